"""The tables of the page, made from the committed numbers: `python -m experiments.joint.pages`.

With `--output output/joint` the numbers are first taken from a run of both parts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from asyncjax import storage
from experiments.common import numbers
from experiments.common.comparison import Difference
from experiments.joint.arms import RESHUFFLED
from experiments.joint.judging import beside, best_single, effects, verdicts
from experiments.joint.phases_report import Gain, crossings, gain_of, rule_of, sentence
from experiments.joint.phases_runs import Cell
from experiments.joint.scenes_report import arms_of, goals_of, ratio, seen
from experiments.joint.scenes_runs import SCENES, SETS

PARTS = ("joint_scenes", "joint_map")
DIGITS = 4


@dataclass(frozen=True)
class Settings:
    """Where a run of both parts is; nowhere: the committed numbers are shown."""

    output: Path | None = None


def keep(output: Path) -> None:
    """Takes the numbers of a run over; a part that was not run stays as it is committed."""
    paths = {part: output / part / f"{part}.json" for part in PARTS}
    known = (numbers.FOLDER / "joint.json").exists()
    kept: dict[str, Any] = numbers.load("joint") if known else {}
    if paths["joint_scenes"].exists():
        kept |= storage.load_json(paths["joint_scenes"])
    if paths["joint_map"].exists():
        kept["map"] = storage.load_json(paths["joint_map"])
        for cell in kept["map"]["cells"]:
            for own in cell["arms"].values():
                own.pop("last", None)
                own["tuned"] = {name: own["tuned"][name] for name in ("trials", "step", "at_edge")}
    numbers.save("joint", followed(numbers.rounded(kept, DIGITS)), digits=DIGITS)


def followed(kept: dict[str, Any]) -> dict[str, Any]:
    """The numbers with verdicts, rule and sentence that follow from them as they are rounded."""
    for own in kept.get("scenes", {}).values():
        own["verdicts"] = {role: verdicts(own, role, RESHUFFLED) for role in SETS}
    if "map" in kept:
        found = gains_of(kept["map"]["cells"])
        rule = rule_of(found)
        kept["map"]["rule"] = None if rule is None else asdict(rule)
        kept["map"]["sentence"] = sentence(rule, found)
        kept["map"]["crossings"] = [[*place, at] for place, at in crossings(found).items()]
        for cell, gain in zip(kept["map"]["cells"], found.values(), strict=True):
            cell |= {"best": gain.best, "difference": asdict(gain.difference)}
    return kept


def gains_of(cells: Sequence[Mapping[str, Any]]) -> dict[Cell, Gain]:
    """The gain of each cell of committed numbers, in their order."""
    return {Cell(one["unevenness"], one["skew"], int(one["rows"])): gain_of(one) for one in cells}


def times(kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Mean times to the last level by arm and scene, set A and set B, as lines of Markdown."""
    heads = [f"{name}, {float(goals_of(own)[-2]):.0%} of the way" for name, own in kept.items()]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for arm in arms_of(next(iter(kept.values()))):
        cells = []
        for own in kept.values():
            found = [seen(own, arm, role, goals_of(own)[-2]) for role in SETS]
            cells.append(", ".join(_time(one.restricted_mean, one.share) for one in found))
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return lines


def _time(mean: float, share: float) -> str:
    if share == 0:
        return "never"
    return f"{mean:.0f}" if share == 1 else f"{mean:.0f} ({share:.0%})"


def gains(kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Both together against the best single arm, and the interaction, at each goal."""
    lines = [
        "| scene | target | best of the others | both / it, set A | set B | interaction, set A |"
        " set B |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, own in kept.items():
        for goal in goals_of(own):
            best = best_single(own, SETS[0], goal)
            against = [ratio(beside(own, role, goal)[best]) for role in SETS]
            both = [ratio(effects(own, role, goal, RESHUFFLED)["interaction"]) for role in SETS]
            aim = "gap at the end" if goal == goals_of(own)[-1] else f"{float(goal):.0%}"
            lines.append("| " + " | ".join([name, aim, best, *against, *both]) + " |")
    return lines


def judged(kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Verdicts of both sets on both claims, a line a scene and goal."""
    lines = [
        "| scene | target | both faster than all others: set A, set B | an order is worth more"
        " without bias: set A, set B |",
        "|---|---|---|---|",
    ]
    for name, own in kept.items():
        sets = [list(verdicts(own, role, RESHUFFLED).values()) for role in SETS]
        for place, goal in enumerate(goals_of(own)):
            aim = "gap at the end" if goal == goals_of(own)[-1] else f"{float(goal):.0%}"
            cells = [", ".join(one[2 * place + which] for one in sets) for which in (0, 1)]
            lines.append("| " + " | ".join([name, aim, *cells]) + " |")
    return lines


def ratios(found: Mapping[str, Any]) -> list[str]:
    """The map: ratio by skew and rows over unevenness, bold where it is told apart from 1."""
    found_gains = gains_of(found["cells"])
    uneven = sorted({cell.unevenness for cell in found_gains})
    heads = [f"{value:g} times slower" for value in uneven]
    lines = [
        "| rows dealt by label | rows of a unit | " + " | ".join(heads) + " |",
        "|---|---|" + "---|" * len(heads),
    ]
    for rows, skew in sorted({(cell.rows, cell.skew) for cell in found_gains}):
        picked = [found_gains[Cell(value, skew, rows)] for value in uneven]
        line = [f"{bold(gain.difference)} ({gain.best})" for gain in picked]
        lines.append(f"| {skew:.0%} | {rows} | " + " | ".join(line) + " |")
    return lines


def bold(difference: Difference) -> str:
    """A ratio, bold where its interval excludes 1."""
    text = f"{math.exp(difference.mean):.2f}"
    return f"**{text}**" if difference.told_apart else text


def pages(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """All tables of the page by name, and the rule of thumb."""
    made = {}
    if found.get("scenes"):
        kept = {scene.name: found["scenes"][scene.name] for scene in SCENES}
        made |= {"times": times(kept), "gains": gains(kept), "verdicts": judged(kept)}
    if found.get("map"):
        made |= {"map": ratios(found["map"]), "rule": [found["map"]["sentence"] + "."]}
    return made


def main() -> None:
    """Takes numbers over if asked to, and prints the tables."""
    import tyro

    settings = tyro.cli(Settings, description=__doc__)
    if settings.output is not None:
        keep(settings.output)
    for name, lines in pages(numbers.load("joint")).items():
        print(f"<!-- {name} -->", *lines, "", sep="\n")


if __name__ == "__main__":
    main()
