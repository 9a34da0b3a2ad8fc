"""The four scenes: every arm tuned alike, then run on two disjoint sets of instances."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import storage
from asyncjax.study.protocol import SET_A, SET_B, TUNING, seeds_of
from asyncjax.study.search import Knob, Tuned, log_range, tune
from asyncjax.study.search import Settings as Setting
from experiments.joint.arms import ARMS, Arm
from experiments.joint.training import Curves, Training
from experiments.joint.worlds import Scene, world_of

SETS = (SET_A, SET_B)
END = "end"  # tuned for the last gap, and not for the time to a level

SCENES = (
    Scene(
        "two generations",
        "8 workers, half of them 4 times slower; half of the rows are dealt by label",
        unevenness=4.0,
        skew=0.5,
    ),
    Scene(
        "preemption",
        "8 workers, half of them 2 times slower and taken away for 20 of every 60 units of time, in"
        " the mean; half of the rows are dealt by label",
        unevenness=2.0,
        skew=0.5,
        up=40.0,
        down=20.0,
    ),
    Scene(
        "labels of the slow",
        "8 workers, half of them 2 times slower; they alone hold one of the labels",
        unevenness=2.0,
        skew=1.0,
    ),
    Scene(
        "network",
        "10 workers, half of them 3 times slower; a network on digits, a fifth of whose labels are"
        " redrawn; half of the rows are dealt by label",
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
    quick: bool = False  # half the horizon, 4 instances a set
    tuning: int = 3  # instances
    instances: int = 10  # of each set
    trials: int = 5  # of an arm in a round
    rounds: tuple[int, int] = (2, 5)
    records: int = 400  # of a curve
    scenes: tuple[str, ...] = field(default_factory=lambda: tuple(own.name for own in SCENES))


def scenes_of(settings: Settings) -> tuple[Scene, ...]:
    """The scenes that are run.

    Raises:
        ValueError: A name is not that of a scene, or a number is too small.
    """
    known = {scene.name: scene for scene in SCENES}
    for name in settings.scenes or ("nothing",):
        if name not in known:
            raise ValueError(f"scenes must be among {', '.join(known)}, got {name!r}")
    for name, least in (("tuning", 1), ("instances", 2), ("trials", 4), ("records", 40)):
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(settings, name)}")
    chosen = tuple(known[name] for name in settings.scenes)
    if settings.quick:
        chosen = tuple(replace(scene, horizon=scene.horizon / 2) for scene in chosen)
    return chosen


def measured(settings: Settings, scene: Scene, arms: Sequence[Arm] = ARMS) -> dict[str, Any]:
    """What all arms did in a scene, read if it was measured before with the same settings.

    Returns:
        Plain values: `arms` by name, each with its steps by target, times and last gaps by set.
    """
    path = settings.output / f"{scene.name.replace(' ', '_')}.json"
    asked = {
        "scene": asdict(scene),
        "arms": [arm.name for arm in arms],
        **{name: getattr(settings, name) for name in ("seed", "tuning", "trials", "records")},
        "rounds": list(settings.rounds),
        "instances": settings.instances,
    }
    asked["scene"]["levels"] = list(scene.levels)
    if path.exists():
        kept = storage.load_json(path)
        if kept["asked"] == asked:
            print(f"{scene.name}: measured before", flush=True)
            return kept
    kept = {"asked": asked, **_measured(settings, scene, arms)}
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.save_json(path, kept)
    return kept


def _measured(settings: Settings, scene: Scene, arms: Sequence[Arm]) -> dict[str, Any]:
    roles = [TUNING] * settings.tuning
    drawn = list(seeds_of(settings.seed, TUNING, settings.tuning))
    for role in SETS:
        drawn += seeds_of(settings.seed, role, settings.instances)
        roles += [role] * settings.instances
    worlds = [world_of(scene, instance) for instance in drawn]
    training = Training(worlds, scene.horizon, settings.records, settings.trials)
    print(f"{scene.name}: {len(arms)} arms, tuning", end=" ", flush=True)
    found = tuned(training, arms, goals(scene), settings)
    print(" instances", end=" ", flush=True)
    kept = {}
    for arm in arms:
        steps = {goal: found[f"{arm.name} | {goal}"].best.settings["step"] for goal in goals(scene)}
        curves = [
            training.curves(arm, number, list(steps.values()))
            for number in range(settings.tuning, len(worlds))
        ]
        kept[arm.name] = {
            "steps": steps,
            "gradients": training.gradients(arm),
            "sets": {
                role: _seen(
                    scene,
                    [
                        c
                        for c, own in zip(curves, roles[settings.tuning :], strict=True)
                        if own == role
                    ],
                )
                for role in SETS
            },
        }
        print(".", end="", flush=True)
    print(flush=True)
    bias = [world.hearing / (world.start - world.least) for world in worlds]
    return {
        "arms": kept,
        "bias": bias[settings.tuning :],
        "tuned": {name: described(own) for name, own in found.items()},
    }


def goals(scene: Scene) -> tuple[str, ...]:
    """What an arm is tuned for, each with a step of its own: every level, and the end."""
    return (*map(str, scene.levels), END)


def _seen(scene: Scene, curves: Sequence[Curves]) -> dict[str, Any]:
    """Times by level and last gaps over instances, each at the step tuned for it."""
    times = {
        str(level): [float(own.reached(level)[place]) for own in curves]
        for place, level in enumerate(scene.levels)
    }
    return {"times": times, END: [float(own.last[len(scene.levels)]) for own in curves]}


def tuned(
    training: Training, arms: Sequence[Arm], aims: Sequence[str], settings: Any
) -> Mapping[str, Tuned]:
    """Searches a step of each arm for each goal, by `tuning.tune`.

    The first `settings.tuning` worlds are those of the role TUNING.
    """
    by_name = {arm.name: arm for arm in arms}
    spaces: dict[str, dict[str, Knob]] = {}
    for goal in aims:
        for arm in arms:
            low = 2.0 ** (-5 if arm.asked == "synchronous" else -7)
            spaces[f"{arm.name} | {goal}"] = {"step": log_range(low, 32 * low, 6)}

    def evaluate(name: str, tried: Sequence[Setting], gradients: int) -> list[float]:
        del gradients  # the same time for all; what is computed by then is told in the table
        arm, goal = name.split(" | ")
        level = None if goal == END else float(goal)
        steps = [setting["step"] for setting in tried]
        scores = [
            training.curves(by_name[arm], number, steps).scores(level, training.horizon)
            for number in range(settings.tuning)
        ]
        print(".", end="", flush=True)
        return np.mean(scores, axis=0).tolist()

    most = max(training.gradients(arm) for arm in arms)
    return tune(
        spaces,
        evaluate,
        trials=settings.trials,
        gradients=most * settings.tuning,
        seed=settings.seed,
        rounds=settings.rounds,
    )


def described(own: Tuned) -> dict[str, Any]:
    """Trials, the range that was searched, what was chosen, and whether it is at an edge."""
    values = own.space["step"].values
    return {
        "trials": len(own.trials),
        "from": values[0],
        "to": values[-1],
        "step": own.best.settings["step"],
        "score": own.best.score,
        "at_edge": bool(own.edges),
    }
