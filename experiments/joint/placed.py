"""A job that a scheduler places: what is each part worth, and all together?

Machines of two generations, which no scheduler knows; jobs arrive; PD-ORS (choosing servers, its
floor tuned), DRF or marginal goodput places them. The schedule of one job is the clock on which it
trains a logistic regression whose shards lie at machines of either generation and differ in labels.
The full set: PD-ORS, whoever delivers is asked again, Rescaled steps, an order of each shard's own
(where the link is the limit: fastest (k, load) with one balance for all). Each part is replaced
alone, and all by plain choices. All knobs of all arms are tuned with equally many trials, for each
target and for the gap at the end, on instances that are not shown.

    the full set beats plain choices     log T (full) - log T (all plain) below 0
    it beats every other set             the same against each arm with one part replaced
    a part is worth something            the same against the arms that replace this part, each
    PD-ORS earns more                    log utility (other) - log utility (PD-ORS) below 0

Times that were never reached count as the horizon, so differences of logs are shorter than they
are. Last gaps are not cut. A place is written when it is measured; run it again with the same
settings and it goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.report import Illustration
from asyncjax.study import summary
from asyncjax.study.protocol import FIRST_CROSSING, TUNING, Seeds, seeds_of
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.search import Settings as Setting
from asyncjax.study.search import Tuned, log_range, tune
from experiments import part
from experiments.common.forest import forest
from experiments.joint.arms import COMPUTING, DRF, FULL, GOODPUT, LINKED, PD_ORS, PLAIN, SHARDS, Arm
from experiments.joint.scenes import aim, ends, goals_of, ratio, seen, table
from experiments.joint.sites import Place, Plans, schedulers, sites_of, utility_of
from experiments.joint.training import END, Training, at_least, drawn, in_turn, measured
from experiments.joint.worlds import Scene, World, world_of

NAME = "joint_placed"
TITLE = "A job that a scheduler places: what is each part worth, and all together?"
PAPERS = ()
NOTE = FIRST_CROSSING
BEATS_PLAIN = "the full set beats plain choices"
BEATS_ALL = "the full set beats every set with one part replaced"
PLACES = {
    Place("computing is the limit", exchange=0.2): COMPUTING,  # of the time of a sample
    Place("the link is the limit", exchange=0.9): LINKED,
}


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/joint_placed")
    seed: int = 0  # the part's own base is three more, so that its instances are its own
    tuning: int = 10  # instances
    instances: int = 10  # of each set
    floors: int = 10  # instances on which the floor of PD-ORS is tuned
    trials: int = 6  # of an arm in a round
    rounds: tuple[int, int] = (2, 8)
    records: int = 600  # of a curve
    levels: tuple[float, ...] = (0.9, 0.95, 0.98)
    commit: bool = False  # also write the rows where committed ones are

    @property
    def base(self) -> int:
        """Base of all seeds."""
        return self.seed + 3


def study_of(settings: Settings) -> Result:
    """Measures both places.

    Raises:
        ValueError: A number is too small.
    """
    at_least(settings, tuning=1, instances=2, floors=1, trials=3, records=40)
    same = replace(settings, output=Path(), commit=False)
    made = {place.name: partial(rows_of, same, place, arms) for place, arms in PLACES.items()}
    return as_result(settings, in_turn(settings, made))


def as_result(settings: Settings, rows: Any) -> Result:
    """The rows of all places."""
    facts = {"tuning": settings.tuning, "settings": ["step", "k", "load"]}
    return Result(rows, "value", facts, settings.seed, cut=("value",))


def rows_of(settings: Settings, place: Place, arms: Sequence[Arm]) -> pd.DataFrame:
    """What all arms did at a place, and what their schedules earned and gave the trained job."""
    floor, instances = floor_of(settings, place), drawn(settings)
    low = floor.best.settings["low"]
    sites = [sites_of(place, instance, schedulers(low)) for instance in instances]
    worlds = [world_at(place, instance) for instance in instances]
    plans = Plans(arms, [world.noise for world in worlds], sites, settings.records)
    training = Training(
        worlds,
        plans.plan,
        lambda arm, number: sites[number][arm.scheduler].budget,
        settings.trials,
    )
    goals, horizon = (*map(str, settings.levels), END), float(place.n_slots)
    rows = []
    for arm, number, row in measured(
        training, arms, goals, settings, horizon, lambda arm: place.gradients
    ):
        site = sites[number][arm.scheduler]
        rows.append(
            {
                "scene": place.name,
                **row,
                "held": np.nan if row["tuned_for"] == END else site.held(row["value"]),
                "scheduler": arm.scheduler,
                "utility": site.utility,
                "slots": site.budget,
                "gpu_slots": site.held(site.budget),
                "served": float(site.present.sum() / SHARDS),
                "floor": low,
                "floor_at_edge": bool(floor.edges),
            }
        )
    return pd.DataFrame(rows)


def floor_of(settings: Settings, place: Place) -> Tuned:
    """The floor of PD-ORS that earns most on tuning instances."""
    instances = seeds_of(settings.base, TUNING, settings.floors)

    def evaluate(name: str, tried: Sequence[Setting], gradients: int) -> list[float]:
        del gradients  # a trial is an episode of each instance
        rules = [schedulers(one["low"])[name] for one in tried]
        return [
            -float(np.mean([utility_of(place, at, rule) for at in instances])) for rule in rules
        ]

    spaces = {PD_ORS: {"low": log_range(1e-6, 1e-1, 11)}}
    return tune(spaces, evaluate, trials=6, gradients=settings.floors)[PD_ORS]


def world_at(place: Place, instance: Seeds) -> World:
    """What the job of an instance trains: the first four shards are those at new machines."""
    return world_of(Scene(place.name, unevenness=place.unevenness, skew=0.5), instance)


def arms_at(result: Result, place: str) -> list[str]:
    """The arms that were run at a place, in their order."""
    return list(result.select(scene=place)["method"].unique())


def claim(one: str) -> str:
    """What is claimed of a part."""
    return f"{one}: that of the full set beats each other"


def texts_of(result: Result, place: str) -> dict[str, list[str]]:
    """Claims of a place at each of its goals, and the arms that the full set is to beat."""
    parts: dict[str, list[str]] = {}
    for name in arms_at(result, place):
        if ": " in name:
            parts.setdefault(claim(name.split(": ")[0]), []).append(name)
    every = [name for names in parts.values() for name in names]
    return {BEATS_PLAIN: [PLAIN.name], BEATS_ALL: every, **parts}


def claims(result: Result) -> tuple[Claim, ...]:
    """Claims on the whole and on each part at every goal, and on what schedulers earn."""
    found = []
    for place, goal in goals_of(result):
        where: dict[str, Any] = {"scene": place, "tuned_for": goal}
        for text, names in texts_of(result, place).items():
            beaten = less(FULL.name, than=names, **where)
            found.append(Claim(f"{place}, {goal}: {text}", [beaten], level=0.95))
        for rival in (DRF, GOODPUT) if goal == END else ():
            more = less(f"schedule: {rival}", than=FULL.name, column="utility", **where)
            found.append(Claim(f"{place}, {earns(rival)}", [more], level=0.95))
    return tuple(found)


def earns(rival: str) -> str:
    """What is claimed of schedulers."""
    return f"{PD_ORS} earns more than {rival}"


def words(result: Result) -> dict[str, str]:
    """Verdicts of both sets by claim."""
    return {text: ", ".join(own.values()) for text, own in result.verdicts(claims(result)).items()}


def goals_at(result: Result, place: str) -> list[str]:
    """What was tuned for at a place."""
    return [goal for where, goal in goals_of(result) if where == place]


def arm_table(place: str, result: Result) -> results.Table:
    """Mean slots to two targets and gaps of each arm, and the full set over it, both sets."""
    goals, rows = goals_at(result, place)[-3:], []
    for arm in arms_at(result, place):
        cells = []
        for goal in goals:
            where = {"scene": place, "tuned_for": goal}
            cells.append(", ".join(seen(result, arm, one, ".1f", **where) for one in result.sets))
        for goal in goals[1:] if arm != FULL.name else ():
            where = {"scene": place, "tuned_for": goal}
            apart = (result.difference(FULL.name, arm, one, where=where) for one in result.sets)
            cells.append("; ".join(map(ratio, apart)))
        rows.append([arm, *cells, *[""] * (2 * len(goals) - len(cells) - 1)])
    heads = [f"slots to {aim(goal)}" if goal != END else aim(goal) for goal in goals]
    over = [f"full / this, {aim(goal)}" for goal in goals[1:]]
    return table(
        ["", *heads, *over],
        rows,
        "Mean slots, set A, set B (> and a share: cut at the horizon), geometric mean gaps, and the"
        " full set over each other arm with 95 % intervals.",
    )


def claim_table(place: str, result: Result) -> results.Table:
    """Verdicts of both sets, a line a claim and a column a goal."""
    goals, said = goals_at(result, place), words(result)
    rows = [
        [text, *(said[f"{place}, {goal}: {text}"] for goal in goals)]
        for text in texts_of(result, place)
    ]
    return table(["", *map(aim, goals)], rows, "Verdicts, set A, set B.", 1 + len(goals))


def schedule_table(result: Result) -> results.Table:
    """What schedulers earned, and what they gave the trained jobs; means of sets A and B."""
    rows, said = [], words(result)
    ends_of = result.select(tuned_for=END).groupby(["scene", "scheduler"], sort=False)
    for (place, scheduler), own in ends_of:
        means = own.groupby("set")[["utility", "slots", "gpu_slots", "served"]].mean()
        cells = [
            ", ".join(f"{mean:.{digits}f}" for mean in means[name])
            for name, digits in (("utility", 0), ("slots", 1), ("gpu_slots", 0), ("served", 1))
        ]
        cells.insert(1, said.get(f"{place}, {earns(scheduler)}", ""))
        rows.append([place, scheduler, *cells])
    heads = ["place", "scheduler", "utility of all jobs", "PD-ORS earns more", "slots of the job"]
    return table([*heads, "GPU-slots", "slots a shard is served"], rows, "Means, set A, set B.", 2)


TABLES = {
    **{f"arms, {place.name}": partial(arm_table, place.name) for place in PLACES},
    **{f"claims, {place.name}": partial(claim_table, place.name) for place in PLACES},
    "schedules": schedule_table,
    "tuning": summary.trial_table,
}


def parts_figure(result: Result) -> Illustration:
    """The full set over each other arm: time to the last target, and gap at the end."""
    panels: dict[str, Any] = {}
    for place in result.rows["scene"].unique():
        for goal in goals_at(result, place)[-2:]:
            where = {"scene": place, "tuned_for": goal}
            panels[f"{place}: {'' if goal == END else 'slots to '}{aim(goal)}"] = {
                f"set {letter}": {
                    arm: ends(result.difference(FULL.name, arm, letter, where=where))
                    for arm in arms_at(result, place)
                    if arm != FULL.name
                }
                for letter in result.sets
            }
    return Illustration(
        forest(panels, "full set over this; below 1 the full set is ahead"),
        "The full set over each other, ratios with intervals; below 1 the full set is ahead; both"
        " sets.",
    )


FIGURES = {"parts": parts_figure}
FACTS = {
    "chosen": lambda result: len(result.trials()),
    "levels": lambda result: [
        float(goal) for goal in result.rows["tuned_for"].unique() if goal != END
    ],
}


if __name__ == "__main__":
    part.main(NAME)
