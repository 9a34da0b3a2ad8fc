"""Placed jobs measured: schedulers' floor and all arms tuned alike, then run on two sets."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import storage
from asyncjax.study.protocol import TUNING, Seeds, seeds_of
from asyncjax.study.search import Settings as Setting
from asyncjax.study.search import Tuned, log_range, tune
from experiments.joint.placed.arms import PLACES, STEP, Arm, setting_of
from experiments.joint.placed.sites import (
    PD_ORS,
    SHARDS,
    Place,
    Site,
    schedulers,
    sites_of,
    utility_of,
)
from experiments.joint.placed.training import Training
from experiments.joint.scenes_runs import END, SETS
from experiments.joint.worlds import Scene, World, world_of


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/joint_placed")
    seed: int = 0  # the part's own base is three more, so that its instances are its own
    quick: bool = False  # 4 instances a set, 2 to tune on
    tuning: int = 10  # instances
    instances: int = 10  # of each set
    floors: int = 10  # instances on which the floor of PD-ORS is tuned
    trials: int = 6  # of an arm in a round
    rounds: tuple[int, int] = (2, 8)
    records: int = 600  # of a curve
    levels: tuple[float, ...] = (0.9, 0.95, 0.98)

    @property
    def base(self) -> int:
        """Base of all seeds."""
        return self.seed + 3


def measured(settings: Settings, place: Place, arms: Sequence[Arm]) -> dict[str, Any]:
    """What all arms did at a place, read if it was measured before with the same settings.

    Returns:
        Plain values: `arms` by name, each with times and last gaps by set; `schedulers`.
    """
    path = settings.output / f"{place.name.replace(' ', '_')}.json"
    named = ("tuning", "instances", "floors", "trials", "records")
    asked = {
        "scene": asdict(place) | {"horizon": float(place.n_slots), "levels": list(settings.levels)},
        "arms": [arm.name for arm in arms],
        **{name: getattr(settings, name) for name in named},
        "seed": settings.base,
        "rounds": list(settings.rounds),
    }
    if path.exists():
        kept = storage.load_json(path)
        if kept["asked"] == asked:
            print(f"{place.name}: measured before", flush=True)
            return kept
    kept = {"asked": asked, **_measured(settings, place, arms)}
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.save_json(path, kept)
    return kept


def floor_of(settings: Settings, place: Place) -> Tuned:
    """The floor of PD-ORS that earns most on tuning instances."""
    drawn = seeds_of(settings.base, TUNING, settings.floors)

    def evaluate(name: str, tried: Sequence[Setting], gradients: int) -> list[float]:
        del gradients  # a trial is an episode of each instance
        rules = [schedulers(one["low"])[name] for one in tried]
        return [-float(np.mean([utility_of(place, at, rule) for at in drawn])) for rule in rules]

    spaces = {PD_ORS: {"low": log_range(1e-6, 1e-1, 11)}}
    return tune(spaces, evaluate, trials=6, gradients=settings.floors)[PD_ORS]


def world_at(place: Place, instance: Seeds) -> World:
    """What the job of an instance trains: the first four shards are those at new machines."""
    return world_of(Scene(place.name, "", unevenness=place.unevenness, skew=0.5), instance)


def goals(settings: Settings) -> tuple[str, ...]:
    """What an arm is tuned for, each with settings of its own: every level, and the end."""
    return (*map(str, settings.levels), END)


def _measured(settings: Settings, place: Place, arms: Sequence[Arm]) -> dict[str, Any]:
    drawn = list(seeds_of(settings.base, TUNING, settings.tuning))
    for role in SETS:
        drawn += seeds_of(settings.base, role, settings.instances)
    floor = floor_of(settings, place)
    rules = schedulers(floor.best.settings["low"])
    sites = [sites_of(place, instance, rules) for instance in drawn]
    worlds = [world_at(place, instance) for instance in drawn]
    training = Training(arms, worlds, sites, settings.records, settings.trials)
    print(f"{place.name}: {len(arms)} arms, tuning", end=" ", flush=True)
    found = tuned(settings, place, training, arms)
    print(" instances", end=" ", flush=True)
    reported = range(settings.tuning, len(drawn))
    kept = {}
    for arm in arms:
        best = {goal: found[f"{arm.name} | {goal}"].best.settings for goal in goals(settings)}
        own = {goal: [_seen(training, arm, best, goal, at) for at in reported] for goal in best}
        kept[arm.name] = {"chosen": best, "sets": _sets(settings, sites, arm, own)}
        print(".", end="", flush=True)
    print(flush=True)
    return {
        "arms": kept,
        "schedulers": _placed(settings, sites[settings.tuning :]),
        "floor": {"low": floor.best.settings["low"], "at_edge": bool(floor.edges)},
        "tuned": {name: described(own) for name, own in found.items()},
    }


def _seen(
    training: Training, arm: Arm, best: Mapping[str, Setting], goal: str, number: int
) -> float:
    """The time to a level, or the last gap, at the settings tuned for it."""
    setting = setting_of(arm, best[goal])
    same = [own[STEP] for own in best.values() if setting_of(arm, own) == setting]
    curves = training.curves(arm, setting, number, same)
    place = same.index(best[goal][STEP])
    return float(curves.last[place] if goal == END else curves.reached(float(goal))[place])


def _sets(
    settings: Settings,
    sites: Sequence[Mapping[str, Site]],
    arm: Arm,
    found: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """Times, GPU-slots held until then, and last gaps, by set."""
    made, count = {}, settings.instances
    for at, role in enumerate(SETS):
        own = slice(at * count, (at + 1) * count)
        places = [one[arm.scheduler] for one in sites[settings.tuning :][own]]
        times = {goal: list(found[goal][own]) for goal in map(str, settings.levels)}
        held = {
            goal: [site.held(time) for site, time in zip(places, values, strict=True)]
            for goal, values in times.items()
        }
        made[role] = {"times": times, "held": held, END: list(found[END][own])}
    return made


def _placed(settings: Settings, sites: Sequence[Mapping[str, Site]]) -> dict[str, Any]:
    """What each scheduler earned, and how the trained job fared under it, by set."""
    found: dict[str, Any] = {}
    for at, role in enumerate(SETS):
        own = sites[at * settings.instances : (at + 1) * settings.instances]
        for name in own[0]:
            mine = [one[name] for one in own]
            found.setdefault(name, {})[role] = {
                "utility": [site.utility for site in mine],
                "slots": [site.budget for site in mine],
                "held": [site.held(site.budget) for site in mine],
                "served": [float(site.present.sum() / SHARDS) for site in mine],
            }
    return found


def tuned(
    settings: Settings, place: Place, training: Training, arms: Sequence[Arm]
) -> dict[str, Tuned]:
    """Searches all knobs of each arm for each goal, on the first `settings.tuning` jobs."""
    by_name = {arm.name: arm for arm in arms}
    spaces = {f"{arm.name} | {goal}": arm.space for goal in goals(settings) for arm in arms}

    def evaluate(name: str, tried: Sequence[Setting], gradients: int) -> list[float]:
        del gradients  # as many as the schedule has time for
        arm, goal = by_name[name.split(" | ")[0]], name.split(" | ")[1]
        level = None if goal == END else float(goal)
        scores = np.empty(len(tried))
        settings_of = [setting_of(arm, one) for one in tried]
        for setting in dict.fromkeys(settings_of):
            picked = [at for at, own in enumerate(settings_of) if own == setting]
            steps = [tried[at][STEP] for at in picked]
            found = [
                training.curves(arm, setting, number, steps).scores(level, place.n_slots)
                for number in range(settings.tuning)
            ]
            scores[picked] = np.mean(found, axis=0)
        print(".", end="", flush=True)
        return scores.tolist()

    return tune(
        spaces,
        evaluate,
        trials=settings.trials,
        gradients=place.gradients * settings.tuning,
        seed=settings.base,
        rounds=settings.rounds,
    )


def described(own: Tuned) -> dict[str, Any]:
    """Trials, the range of steps that was searched, what was chosen, and what is at an edge."""
    values = own.space[STEP].values
    return {
        "trials": len(own.trials),
        "gradients": own.gradients * len(own.trials),
        "from": values[0],
        "to": values[-1],
        "chosen": dict(own.best.settings),
        "score": own.best.score,
        "at_edge": list(own.edges),
    }


def all_measured(settings: Settings) -> dict[str, dict[str, Any]]:
    """Both places by name.

    Raises:
        ValueError: A number is too small.
    """
    least = {"tuning": 1, "instances": 2, "floors": 1, "trials": 3, "records": 40}
    for name, bound in least.items():
        if getattr(settings, name) < bound:
            raise ValueError(f"{name} must be at least {bound}, got {getattr(settings, name)}")
    return {place.name: measured(settings, place, arms) for place, arms in PLACES.items()}
