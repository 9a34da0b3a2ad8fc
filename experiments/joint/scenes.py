"""Do bias removal and a learned order gain more together than each alone?

Four scenes in which the old half of a crew is slow and holds labels of its own, so that whoever
steps on every arrival hears it too seldom, and in which the noise of single rows is the limit.
*Rescaled* steps (in proportion to a worker's measured time) take the bias away; an order learned
from gradients (GraB, one a worker) lowers the noise. Eleven arms are tuned alike, an own step for
each target, and run on two disjoint sets of instances (rows, speeds, first model drawn anew).

    faster        log T of Rescaled with GraB minus log T of a single arm, over instances: below 0
    worth more    (what GraB takes off log T behind Rescaled) minus (what it takes off behind pure)

Times that were never reached count as the horizon, so differences of logs are shorter than they
are. The last gaps are not cut anywhere. A scene is written when it is measured; run it again with
the same settings and it goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.report import Illustration
from asyncjax.study import summary
from asyncjax.study.protocol import FIRST_CROSSING, reached
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.statistics import Condition, Difference, draws_at, interval, paired
from experiments import part
from experiments.common.forest import forest
from experiments.joint.arms import ARMS, BIASED, JOINT, SINGLE, UNBIASED, Arm
from experiments.joint.training import (
    END,
    Training,
    at_least,
    drawn,
    in_turn,
    measured,
    watched,
    within,
)
from experiments.joint.worlds import Scene, World, world_of

NAME = "joint_scenes"
TITLE = "Do bias removal and a learned order gain more together?"
PAPERS = ()
NOTE = FIRST_CROSSING
FASTER = "both together are faster than every arm with one of them or none"
MORE = "an order is worth more once the bias is gone"
SCENES = (
    Scene("two generations", unevenness=4.0, skew=0.5),
    Scene("preemption", unevenness=2.0, skew=0.5, up=40.0, down=20.0),
    Scene("labels of the slow", unevenness=2.0, skew=1.0),
    Scene(
        "network",
        network=True,
        n_workers=10,
        unevenness=3.0,
        skew=0.5,
        flipped=0.2,
        batch=2,
        units=16,
        horizon=600.0,
        levels=(0.6, 0.7, 0.8),
    ),
)


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/joint_scenes")
    seed: int = 0
    tuning: int = 3  # instances
    instances: int = 10  # of each set
    trials: int = 5  # of an arm in a round
    rounds: tuple[int, int] = (2, 5)
    records: int = 400  # of a curve
    scenes: tuple[str, ...] = field(default_factory=lambda: tuple(own.name for own in SCENES))
    commit: bool = False  # also write the rows where committed ones are

    @property
    def base(self) -> int:
        """Base of all seeds."""
        return self.seed


def study_of(settings: Settings) -> Result:
    """Measures the scenes.

    Raises:
        ValueError: A name or a number is out of range.
    """
    same = replace(settings, output=Path(), scenes=(), commit=False)
    made = {scene.name: partial(rows_of, same, scene) for scene in scenes_of(settings)}
    return as_result(settings, in_turn(settings, made))


def as_result(settings: Settings, rows: Any) -> Result:
    """The rows of all scenes."""
    facts = {"tuning": settings.tuning, "settings": ["step"]}
    return Result(rows, "value", facts, settings.seed, cut=("value",))


def scenes_of(settings: Settings) -> tuple[Scene, ...]:
    """The scenes that are run.

    Raises:
        ValueError: A name is not that of a scene, or a number is too small.
    """
    known = {scene.name: scene for scene in SCENES}
    for name in settings.scenes or ("nothing",):
        if name not in known:
            raise ValueError(f"scenes must be among {', '.join(known)}, got {name!r}")
    at_least(settings, tuning=1, instances=2, trials=4, records=40)
    return tuple(known[name] for name in settings.scenes)


def rows_of(settings: Settings, scene: Scene, arms: Sequence[Arm] = ARMS) -> pd.DataFrame:
    """What all arms did in a scene: a row an instance, arm and target."""
    worlds = [world_of(scene, instance) for instance in drawn(settings)]
    crews = [(world.clock, world.noise) for world in worlds]
    plans = watched(crews, scene.horizon, settings.records)
    goals = (*map(str, scene.levels), END)
    return pd.DataFrame(trained(settings, scene, worlds, plans, arms, goals))


def trained(
    settings: Any, scene: Scene, worlds: list[World], plans: Any, arms: Sequence[Arm], goals: Any
) -> list[dict[str, Any]]:
    """The rows of a scene, each with the gap at which steps of every arrival would end."""
    training = Training(
        worlds,
        lambda arm, setting, number: plans(arm.asked)[number],
        lambda arm, number: scene.horizon,
        settings.trials,
    )
    counts = {arm: within(plans(arm.asked), scene.horizon) for arm in arms}
    bias = [world.hearing / (world.start - world.least) for world in worlds]
    made = measured(training, arms, goals, settings, scene.horizon, counts.__getitem__)
    return [{"scene": scene.name, **row, "bias": bias[number]} for _, number, row in made]


def logs(result: Result, arm: Arm, letter: str, **where: Any) -> np.ndarray:
    """Log of the time to a level, cut at the horizon, or of the last gap, float64[instances]."""
    return np.log(result.values(arm.name, letter, **where).to_numpy()[0])


def interaction(where: dict[str, str], result: Result, letter: str, level: float) -> Condition:
    """What an order takes off behind Rescaled steps over what it takes off in pure runs."""
    plain, ordered, unbiased, both = (
        logs(result, arm, letter, **where) for arm in (*BIASED[1:], *UNBIASED[1:])
    )
    apart = paired(both - unbiased, ordered - plain, result.seed, level, draws_at(level))
    return Condition("interaction", apart)


def claims(result: Result) -> tuple[Claim, ...]:
    """Two claims a scene and target."""
    rest, found = [arm.name for arm in SINGLE], []
    for scene, goal in goals_of(result):
        where: dict[str, Any] = {"scene": scene, "tuned_for": goal}
        faster = less(JOINT.name, than=rest, **where)
        found += [
            Claim(f"{scene}, {goal}: {FASTER}", [faster], level=0.95),
            Claim(f"{scene}, {goal}: {MORE}", [partial(interaction, where)], level=0.95),
        ]
    return tuple(found)


def goals_of(result: Result) -> list[tuple[str, str]]:
    """Scenes and what was tuned for in each, in the order in which they were run."""
    return list(result.rows[result.cell].drop_duplicates().itertuples(index=False, name=None))


def tight(result: Result) -> list[tuple[str, str]]:
    """The last level and the end of each scene."""
    found = goals_of(result)
    return [one for at, one in enumerate(found) if one[1] == END or found[at + 1][1] == END]


def best_single(result: Result, letter: str, **where: Any) -> str:
    """The single arm of the lowest mean log."""
    known = [arm for arm in SINGLE if arm.name in result.methods]
    return min(known, key=lambda arm: logs(result, arm, letter, **where).mean()).name


EFFECTS = {
    "order alone": (BIASED[2], BIASED[1]),
    "order, bias removed": (UNBIASED[2], UNBIASED[1]),
    "bias removed alone": (UNBIASED[1], BIASED[1]),
    "bias removed, ordered": (UNBIASED[2], BIASED[2]),
}


def effects(result: Result, letter: str, **where: Any) -> dict[str, Difference]:
    """The two by two of bias removed or not, and order learned or reshuffled; in logs."""
    made = {
        name: result.difference(one.name, other.name, letter, where=where)
        for name, (one, other) in EFFECTS.items()
    }
    return made | {"interaction": interaction(where, result, letter, 0.95).difference}


def aim(goal: str) -> str:
    """A goal in words."""
    return "gap at the end" if goal == END else f"{float(goal):.0%}"


def ends(apart: Difference) -> tuple[float, float, float]:
    """A difference of logs as a ratio between the ends of its interval."""
    low, middle, high = np.exp([apart.low, apart.mean, apart.high]).tolist()
    return low, middle, high


def ratio(apart: Difference) -> str:
    """The same in words."""
    low, middle, high = ends(apart)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def table(names: Sequence[str], rows: Any, caption: str = "", left: int = 1) -> results.Table:
    """A table of texts whose first columns begin at the left."""
    columns = (results.Column(name, right=at >= left) for at, name in enumerate(names))
    return results.Table(tuple(columns), tuple(map(tuple, rows)), caption)


def seen(result: Result, method: str, letter: str, form: str = ".0f", **where: Any) -> str:
    """The mean time cut at the horizon with the share that was there; or the mean gap."""
    own = result.select(method=method, set=letter, **where)
    value, horizon = own["value"].to_numpy(), own["horizon"].iloc[0]
    if not np.isfinite(horizon):
        return f"{np.exp(np.mean(np.log(np.maximum(value, 1e-12)))):.3f}"
    return reached(value, horizon).text(form)


def times_table(result: Result) -> results.Table:
    """Mean times to the last level by arm and scene, set A and set B."""
    shown = [(scene, goal) for scene, goal in tight(result) if goal != END]
    rows = []
    for arm in result.methods:
        cells = [
            ", ".join(
                seen(result, arm, letter, scene=scene, tuned_for=goal) for letter in result.sets
            )
            for scene, goal in shown
        ]
        rows.append([arm, *cells])
    heads = ["", *(f"{scene}, {aim(goal)} of the way" for scene, goal in shown)]
    return table(heads, rows, "Mean time, set A, set B; > and a share: cut at the horizon.")


def at_last(result: Result) -> dict[tuple[str, str], dict[str, Any]]:
    """At the last goals of each scene the best other arm of set A, both together over it, effects.

    The differences are by set.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for scene, goal in tight(result):
        where = {"scene": scene, "tuned_for": goal}
        best = best_single(result, "A", **where)
        own = found[scene, goal] = {"best": best, "against": {}, "effects": {}}
        for letter in result.sets:
            own["against"][letter] = result.difference(JOINT.name, best, letter, where=where)
            own["effects"][letter] = effects(result, letter, **where)
    return found


def gain_table(result: Result) -> results.Table:
    """Both together against the best single arm, and the interaction, at the last goals."""
    rows = []
    for (scene, goal), own in at_last(result).items():
        both = (apart["interaction"] for apart in own["effects"].values())
        ratios = map(ratio, (*own["against"].values(), *both))
        rows.append([scene, aim(goal), own["best"], *ratios])
    heads = ["scene", "target", "best of the others", "both / it, set A", "set B"]
    text = "Ratios of times, or of last gaps, with 95 % intervals; the best of the others on set A."
    return table([*heads, "interaction, set A", "set B"], rows, text, 3)


def claim_table(result: Result) -> results.Table:
    """Verdicts of both sets on both claims, a line a scene and goal."""
    words = {text: ", ".join(own.values()) for text, own in result.verdicts(claims(result)).items()}
    rows = [
        [scene, aim(goal), *(words[f"{scene}, {goal}: {text}"] for text in (FASTER, MORE))]
        for scene, goal in goals_of(result)
    ]
    heads = ["both faster than all others", "an order is worth more without bias"]
    return table(["scene", "target", *(f"{head}: set A, set B" for head in heads)], rows, "", 4)


TABLES = {
    "times": times_table,
    "gains": gain_table,
    "claims": claim_table,
    "tuning": summary.trial_table,
}


def gains(result: Result) -> dict[str, Any]:
    """At the last goals both together over the best other arm of set A, and the order's worth."""
    found: dict[str, Any] = {}
    for (scene, goal), own in at_last(result).items():
        found.setdefault(scene, {})["end" if goal == END else "level"] = {
            letter: {
                "best_other": ends(own["against"][letter])[1],
                "order": ends(apart["order, bias removed"])[1],
            }
            for letter, apart in own["effects"].items()
        }
    return found


FACTS = {"gains": gains}


def times_figure(result: Result) -> Illustration:
    """Geometric mean times of all arms, a panel a scene, a colour a level."""
    panels: dict[str, Any] = {}
    by_scene = pd.DataFrame(goals_of(result)).groupby(0, sort=False)[1]
    for scene, goals in by_scene:
        *levels, _ = goals
        dots = panels[f"{scene}: {', '.join(map(aim, levels))}"] = {}
        for target, goal in zip(("first target", "second", "third"), levels, strict=False):
            dots[target] = {}
            for arm in ARMS:
                own = logs(result, arm, "A", scene=scene, tuned_for=goal)
                low, high = interval(own)
                dots[target][arm.name] = tuple(np.exp([low, own.mean(), high]))
    page = forest(panels, "time to shares of the way", neutral=None)
    return Illustration(
        page, "Geometric mean time to three targets with intervals, cut at the horizon; set A."
    )


def effects_figure(result: Result) -> Illustration:
    """Ratios of the two by two at the last level and at the end, both sets."""
    panels: dict[str, Any] = {}
    for (scene, goal), own in at_last(result).items():
        title = "gap at the end" if goal == END else "time to the last target"
        for letter, apart in own["effects"].items():
            dots = panels.setdefault(title, {}).setdefault(f"set {letter}", {})
            names = ("order alone", "order, bias removed", "interaction")
            dots |= {f"{scene}: {name}": ends(apart[name]) for name in names}
    return Illustration(
        forest(panels, "ratio; below 1 is a gain"),
        "What each of the two is worth, alone and beside the other: ratio of times with intervals;"
        " both sets.",
    )


FIGURES = {"times": times_figure, "effects": effects_figure}


if __name__ == "__main__":
    part.main(NAME)
