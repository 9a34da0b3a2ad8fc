"""Do bias removal and a learned order gain more together than each alone?

Four scenes in which the old half of a crew is slow and holds labels of its own, so that whoever
steps on every arrival hears it too seldom, and in which the noise of single rows is the limit.
*Rescaled* steps (in proportion to a worker's measured time) take the bias away; an order learned
from gradients (GraB, one a worker) lowers the noise. Eleven arms are tuned alike, an own step for
each target, and run on two disjoint sets of instances (rows, speeds, first model drawn anew); the
steps of each set are chosen on instances of its own.

    faster        log T of Rescaled with GraB minus log T of a single arm, over instances: below 0
    worth more    (what GraB takes off log T behind Rescaled) minus (what it takes off behind pure)

T is the time from which on a run stays at a target until the horizon. Times that were never reached
count as the horizon, so differences of logs are shorter than they are. The last gaps are not cut
anywhere. A scene is written when it is measured; run it again with
the same settings and it goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks, results, simulation, traces
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Condition, Difference, draws_at, interval, paired
from asyncjax.study import summary
from asyncjax.study.protocol import reached
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import sets
from experiments.common.forest import forest
from experiments.joint import training
from experiments.joint.training import ARMS, BIASED, END, JOINT, SINGLE, UNBIASED, Arm
from experiments.joint.worlds import Scene, clock_of, world_of

NAME = "joint_scenes"
TITLE = "Do bias removal and a learned order gain more together?"
PAPERS = ()
FASTER = "both together are faster than every arm with one of them or none"
MORE = "an order is worth more once the bias is gone"
DIGITS: Any = {"network": True, "n_workers": 10, "flipped": 0.2, "batch": 2, "units": 16}
SCENES = (
    Scene("two generations", unevenness=4.0, skew=0.5),
    Scene("preemption", unevenness=2.0, skew=0.5, up=40.0, down=20.0),
    Scene("labels of the slow", unevenness=2.0, skew=1.0),
    Scene("network", unevenness=3.0, horizon=600.0, levels=(0.6, 0.7, 0.8), **DIGITS),
)


@dataclass(frozen=True)
class Settings(training.Settings):
    """What is run."""

    output: Path = Path("output/joint_scenes")
    tuning_instances: int = 5
    scenes: tuple[str, ...] = tuple(scene.name for scene in SCENES)


def study_of(settings: Settings) -> Result:
    """Measures the scenes.

    Raises:
        ValueError: A name is not that of a scene.
    """
    known = {scene.name: scene for scene in SCENES}
    if unknown := [name for name in settings.scenes if name not in known]:
        raise ValueError(f"scenes must be among {', '.join(known)}, got {unknown[0]!r}")
    same = replace(settings, output=Path(), scenes=(), commit=False)
    makers = {name: partial(rows_of, same, known[name]) for name in settings.scenes}
    return training.in_turn(settings, makers, {"settings": ["step"]})


def rows_of(
    settings: training.Settings, scene: Scene, arms: Sequence[Arm] = ARMS, goals: Any = (END,)
) -> pd.DataFrame:
    """What all arms did in a scene: a row an instance, arm and goal.

    Each has the gap at which steps of every arrival would end.

    Args:
        settings: Of the part.
        scene: Where they train.
        arms: What is compared.
        goals: Beside the levels of the scene.
    """
    worlds = [world_of(scene, instance) for instance in settings.drawn]
    bias = [world.hearing / (world.start - world.least) for world in worlds]
    plans, end = plans_of(settings, scene.crew), scene.horizon
    runs = training.Training(
        worlds, lambda arm, _, at: plans(arm.asked)[at], lambda *_: end, end, settings.trials
    )
    counts = {
        arm: max(int((np.asarray(plan.trace.time) <= end).sum()) for plan in plans(arm.asked))
        for arm in arms
    }
    levels = (*map(str, scene.levels), *goals)
    return training.measured(
        settings, scene.name, runs, levels, counts, lambda _, at, row: {"bias": bias[at]}
    )


@lru_cache(maxsize=1)
def plans_of(
    settings: training.Settings, crew: Scene
) -> Callable[[str], tuple[simulation.ReplayPlan, ...]]:
    """Makes plans by whom the server asks: one an instance, equally many updates, all beyond.

    Args:
        settings: Of the part.
        crew: The workers, and the horizon beyond which all plans go.
    """
    crews = [(clock_of(crew, one), jax.random.key(one.noise())) for one in settings.drawn]

    def trace(asked: str, clock: clocks.Clock, key: Any, **length: Any) -> traces.EventTrace:
        if asked == training.SYNCHRONOUS:
            return traces.synchronous(clock, k=clock.n_workers, key=key, **length)
        dispatch = traces.shuffled() if asked == training.SHUFFLED else traces.to_deliverer()
        return traces.asynchronous(clock, dispatch=dispatch, key=key, **length)

    @cache
    def plans(asked: str) -> tuple[simulation.ReplayPlan, ...]:
        most = max(trace(asked, *pair, until=crew.horizon).n_updates for pair in crews)
        several = [trace(asked, *pair, n_updates=most + 1) for pair in crews]
        return training.planned(several, most, settings.records)

    return plans


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
    rest, said = [arm.name for arm in SINGLE], []
    for scene, goal in goals_of(result):
        where: dict[str, Any] = {"scene": scene, "tuned_for": goal}
        conditions = {
            FASTER: less(JOINT.name, than=rest, **where),
            MORE: partial(interaction, where),
        }
        said += [
            Claim(f"{scene}, {goal}: {text}", [condition]) for text, condition in conditions.items()
        ]
    return tuple(said)


def goals_of(result: Result) -> list[tuple[str, str]]:
    """Scenes and what was tuned for in each, in the order in which they were run."""
    return list(result.rows[result.cell].drop_duplicates().itertuples(index=False, name=None))


def last_goals(result: Result) -> dict[str, list[str]]:
    """The last level and the end of each scene."""
    return {scene: goals[1].tolist()[-2:] for scene, goals in _by_scene(result)}


def _by_scene(result: Result) -> Any:
    return pd.DataFrame(goals_of(result)).groupby(0, sort=False)


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
    apart = {
        name: result.difference(one.name, other.name, letter, where=where)
        for name, (one, other) in EFFECTS.items()
    }
    return apart | {"interaction": interaction(where, result, letter, 0.95).difference}


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


def seen(result: Result, method: str, form: str = ".0f", **where: Any) -> str:
    """In each set the mean time cut at the horizon and the share that was there; or the gap."""
    texts = []
    for letter in result.sets:
        rows = result.select(method=method, set=letter, **where)
        value, horizon = rows["value"].to_numpy(), rows["horizon"].iloc[0]
        gap = np.exp(np.mean(np.log(np.maximum(value, 1e-12))))
        texts.append(reached(value, horizon).text(form) if horizon < np.inf else f"{gap:.3f}")
    return ", ".join(texts)


def times_table(result: Result) -> results.Table:
    """Mean times to the last level by arm and scene, set A and set B."""
    levels = {scene: level for scene, (level, _) in last_goals(result).items()}
    rows = [
        [arm, *(seen(result, arm, scene=scene, tuned_for=goal) for scene, goal in levels.items())]
        for arm in result.methods
    ]
    heads = ["", *(f"{scene}, {aim(goal)} of the way" for scene, goal in levels.items())]
    return part.table(heads, rows, "Mean time, set A, set B; > and a share: cut at the horizon.")


def at_last(result: Result) -> list[tuple[str, str, str, dict[str, dict[str, Difference]]]]:
    """Scene, goal and the best other arm of set A, at the last goals; and the effects by set.

    Beside the effects is `against`: both together over that arm.
    """
    found = []
    for scene, goals in last_goals(result).items():
        for goal in goals:
            where = {"scene": scene, "tuned_for": goal}
            best = best_single(result, "A", **where)
            by_set = {
                letter: effects(result, letter, **where)
                | {"against": result.difference(JOINT.name, best, letter, where=where)}
                for letter in result.sets
            }
            found.append((scene, goal, best, by_set))
    return found


def gain_table(result: Result) -> results.Table:
    """Both together against the best single arm, and the interaction, at the last goals."""
    rows = [
        [scene, aim(goal), best]
        + [ratio(apart[name]) for name in ("against", "interaction") for apart in by_set.values()]
        for scene, goal, best, by_set in at_last(result)
    ]
    heads = ["scene", "target", "best of the others", "both / it, set A", "set B"]
    text = "Ratios of times, or of last gaps, with 95 % intervals; the best of the others on set A."
    return part.table([*heads, "interaction, set A", "set B"], rows, text, 3)


def words(result: Result, asked: Sequence[Claim]) -> dict[str, str]:
    """Verdicts of both sets by claim."""
    return {text: ", ".join(by_set.values()) for text, by_set in result.verdicts(asked).items()}


def claim_table(result: Result) -> results.Table:
    """Verdicts of both sets on both claims, a line a scene and goal."""
    said = words(result, claims(result))
    rows = [
        [scene, aim(goal), *(said[f"{scene}, {goal}: {text}"] for text in (FASTER, MORE))]
        for scene, goal in goals_of(result)
    ]
    heads = ["both faster than all others", "an order is worth more without bias"]
    return part.table(["scene", "target", *(f"{h}: set A, set B" for h in heads)], rows, "", 4)


TABLES = {
    "times": times_table,
    "gains": gain_table,
    "claims": claim_table,
    "spread": sets.spread_of,
    "tuning": summary.trial_table,
}


def gains(result: Result) -> dict[str, Any]:
    """At the last goals both together over the best other arm of set A, and the order's worth."""
    found: dict[str, Any] = {}
    for scene, goal, _, by_set in at_last(result):
        found.setdefault(scene, {})["end" if goal == END else "level"] = {
            letter: {
                "best_other": ends(apart["against"])[1],
                "order": ends(apart["order, bias removed"])[1],
            }
            for letter, apart in by_set.items()
        }
    return found


FACTS = {"gains": gains}


def times_figure(result: Result) -> Illustration:
    """Geometric mean times of all arms, a panel a scene, a colour a level."""
    panels: dict[str, Any] = {}
    for scene, goals in _by_scene(result):
        *levels, _ = goals[1]
        dots = panels[f"{scene}: {', '.join(map(aim, levels))}"] = {}
        for target, goal in zip(("first target", "second", "third"), levels, strict=False):
            of_arms = {
                arm.name: logs(result, arm, "A", scene=scene, tuned_for=goal) for arm in ARMS
            }
            dots[target] = {
                name: ends(Difference(x.mean(), *interval(x), 0.0, len(x)))
                for name, x in of_arms.items()
            }
    page = forest(panels, "time to shares of the way", neutral=None)
    return Illustration(
        page, "Geometric mean time to three targets with intervals, cut at the horizon; set A."
    )


def effects_figure(result: Result) -> Illustration:
    """Ratios of the two by two at the last level and at the end, both sets."""
    panels: dict[str, Any] = {}
    for scene, goal, _, by_set in at_last(result):
        title = "gap at the end" if goal == END else "time to the last target"
        for letter, apart in by_set.items():
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
