"""The tables of the page, made from the committed numbers: `python -m experiments.joint.pages`.

With `--output output/joint` the numbers are first taken from a run of all parts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncjax import storage
from asyncjax.study.statistics import Difference
from experiments.common import numbers
from experiments.joint.arms import RESHUFFLED
from experiments.joint.judging import beside, best_single, effects, verdicts
from experiments.joint.phases_report import Gain, brief, gain_of, summary
from experiments.joint.phases_runs import Cell
from experiments.joint.placed.pages import tables
from experiments.joint.placed.report import numbers as placed_numbers
from experiments.joint.scenes_report import arms_of, goals_of, ratio, seen
from experiments.joint.scenes_runs import SCENES, SETS

PARTS = ("joint_scenes", "joint_map")
PLACED = "joint_placed"
DIGITS = 4


@dataclass(frozen=True)
class Settings:
    """Where a run of all parts is; nowhere: the committed numbers are shown."""

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
                own["tuned"] = {name: own["tuned"][name] for name in ("trials", "step", "at_edge")}
    numbers.save("joint", followed(numbers.rounded(kept, DIGITS)), digits=DIGITS)
    if (path := output / PLACED / f"{PLACED}.json").exists():
        places = numbers.rounded(storage.load_json(path), DIGITS)["places"]
        command = "python -m experiments.joint.placed"
        numbers.save(PLACED, placed_numbers(places), command=command, digits=DIGITS)


def followed(kept: dict[str, Any]) -> dict[str, Any]:
    """The numbers with verdicts, rule and sentence that follow from them as they are rounded."""
    for own in kept.get("scenes", {}).values():
        own["verdicts"] = {role: verdicts(own, role, RESHUFFLED) for role in SETS}
        own["ratios"] = {role: _ratios(own, role) for role in SETS}
    if "map" in kept:
        kept["map"] |= summary(gains_of(kept["map"]["cells"]))
    return kept


def _ratios(own: Mapping[str, Any], role: str) -> dict[str, dict[str, float]]:
    """At every goal both together over the best other arm on set A, and the order's worth."""
    found = {}
    for goal in goals_of(own):
        worth = effects(own, role, goal, RESHUFFLED)["order, bias removed"]
        against = beside(own, role, goal)[best_single(own, SETS[0], goal)]
        found[goal] = {"best other": math.exp(against.mean), "order": math.exp(worth.mean)}
    return found


def gains_of(cells: Sequence[Mapping[str, Any]]) -> dict[str, dict[Cell, Gain]]:
    """The gain of each cell of committed numbers, in their order, by set."""
    named = {Cell(one["unevenness"], one["skew"], int(one["rows"])): one for one in cells}
    return {role: {cell: gain_of(one, role) for cell, one in named.items()} for role in SETS}


def times(kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Mean times to the last level by arm and scene, set A and set B, as lines of Markdown."""
    heads = [f"{name}, {float(goals_of(own)[-2]):.0%} of the way" for name, own in kept.items()]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for arm in arms_of(next(iter(kept.values()))):
        cells = []
        for own in kept.values():
            found = [seen(own, arm, role, goals_of(own)[-2]) for role in SETS]
            cells.append(", ".join(one.text() for one in found))
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return lines


def gains(kept: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Both together against the best single arm, and the interaction, at the last goals."""
    lines = [
        "| scene | target | best of the others | both / it, set A | set B | interaction, set A |"
        " set B |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, own in kept.items():
        for goal in goals_of(own)[-2:]:
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
    """The map: ratio on both sets by skew and rows, bold where it is told apart from 1."""
    both = gains_of(found["cells"])
    uneven = sorted({cell.unevenness for cell in both[SETS[0]]})
    heads = [f"{value:g} times slower" for value in uneven]
    lines = [
        "| rows dealt by label | rows of a unit | " + " | ".join(heads) + " |",
        "|---|---|" + "---|" * len(heads),
    ]
    for rows, skew in sorted({(cell.rows, cell.skew) for cell in both[SETS[0]]}):
        line = []
        for value in uneven:
            picked = [both[role][Cell(value, skew, rows)] for role in SETS]
            line.append(
                f"{', '.join(bold(gain.difference) for gain in picked)} ({brief(picked[0].best)})"
            )
        lines.append(f"| {skew:.0%} | {rows} | " + " | ".join(line) + " |")
    return lines


def bold(difference: Difference) -> str:
    """A ratio, bold where its interval excludes 1."""
    text = f"{math.exp(difference.mean):.2f}"
    return f"**{text}**" if difference.significant else text


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
    made = pages(numbers.load("joint")) | tables(numbers.load(PLACED)["places"])
    for name, lines in made.items():
        print(f"<!-- {name} -->", *lines, "", sep="\n")


if __name__ == "__main__":
    main()
