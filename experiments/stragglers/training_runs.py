"""Fastest-k SGD on real losses: scenes, runs, costs to the targets, tuning."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from asyncjax import clocks, problems, simulation, storage, stragglers
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING
from experiments.stragglers import uplinks
from experiments.stragglers.methods import (
    Known,
    Method,
    Scene,
    always,
    family,
    main_methods,
)
from experiments.stragglers.tasks import Settings, target_of, targets_of, task

__all__ = ["Settings", "target_of", "task"]

WINDOW = 10  # iterates whose mean loss counts
COSTS = ("time", "samples_assigned", "samples_used", "uplinks", "broadcasts", "samples_done")
SETS = {"A": SET_A, "B": SET_B}
PLAIN = {"step": 1.0, "floor": "bound", "convexity": 1.0}  # a plan as it is prescribed
Scenes = Mapping[str, Sequence[Scene]]  # by role


def laws(settings: Settings) -> dict[str, stragglers.Response]:
    """Response times by name.

    Communicating takes 1 time unit on average, and so does a whole shard.
    """
    one = 1.0 / settings.shard

    def made(compute: clocks.Clock, scaling: str) -> stragglers.Response:
        return stragglers.response(
            compute=compute,
            communicate=clocks.exponential(1.0),
            scaling=scaling,
            n_workers=settings.n_workers,
        )

    return {
        "scale": made(clocks.exponential(one), "scale"),
        "additive": made(clocks.exponential(one), "additive"),
        "shift": made(clocks.shifted_exponential(one / 2, 0.5), "shift"),
        "lognormal": made(clocks.lognormal(one, 1.0), "scale"),
    }


def scenes_of(settings: Settings, problem: str, law: str) -> Scenes:
    """The instances of a case: rows, first model, rows drawn and times from update to update."""
    times = laws(settings)[law]
    known = Known(times, settings.loads, settings.least_samples)
    counts = {TUNING: settings.tuning_instances}
    counts |= dict.fromkeys(SETS.values(), settings.instances)

    def scene(instance: protocol.Seeds) -> Scene:
        made = task(settings, problem, instance)
        targets = targets_of(made, settings.n_workers * settings.shard, settings.levels)
        return Scene(made, known, times, jax.random.key(instance.noise()), targets)

    return {
        role: [scene(one) for one in protocol.seeds_of(settings.seed, role, count)]
        for role, count in counts.items()
    }


@partial(jax.jit, static_argnames="n_updates")
def curve(
    problem: problems.Problem,
    times: stragglers.Response,
    policy: stragglers.Policy,
    step_size: jax.Array | float,
    key: jax.Array,
    n_updates: int,
) -> dict[str, jax.Array]:
    """Loss and costs after every update, float[n_updates] each: "loss" and those of `COSTS`."""
    records = simulation.run_policy(
        problem, times, policy, optax.sgd(step_size), n_updates=n_updates, key=key
    ).records
    return {name: getattr(records, name) for name in ("loss", *COSTS)}


def mean_gap(loss: np.ndarray, minimum: float) -> np.ndarray:
    """Mean of the last `WINDOW` losses above the minimum, float64[..., n_updates]."""
    with np.errstate(all="ignore"):  # runs that diverge
        sums = np.cumsum(np.asarray(loss, np.float64) - minimum, axis=-1)
        wide = [(0, 0)] * (sums.ndim - 1) + [(WINDOW, 0)]
        earlier = np.pad(sums, wide)[..., : sums.shape[-1]]
        return (sums - earlier) / np.minimum(np.arange(sums.shape[-1]) + 1, WINDOW)


def at_target(found: Mapping[str, np.ndarray], minimum: float, target: float) -> dict[str, Any]:
    """Costs when the mean gap of ten iterates is first at the target; inf where it never is.

    Args:
        found: float[S, n_updates] by name.
        minimum: The least loss.
        target: Gap.

    Returns:
        float[S] by cost, and the mean gap, float[S, n_updates].
    """
    gap = mean_gap(found["loss"], minimum)
    there = gap <= target
    first = there.argmax(axis=1)[:, None]
    costs: dict[str, Any] = {
        name: np.where(there.any(axis=1), np.take_along_axis(found[name], first, 1)[:, 0], np.inf)
        for name in COSTS
    }
    return costs | {"gap": gap}


@dataclass(frozen=True, eq=False)
class Watched:
    """One run.

    Attributes:
        times: float64[levels], when the mean gap is first at each target; inf: not by the horizon.
        costs: Of `COSTS`, when the last target is reached, or else at the horizon.
        updates: Until then.
        left: Logarithm of the gap at the end over the last target, at least 0.
        whole: Whether it arrived or was watched until the horizon.
    """

    times: np.ndarray
    costs: dict[str, float]
    updates: int
    left: float
    whole: bool


def watch(
    settings: Settings,
    scene: Scene,
    policy: stragglers.Policy,
    step_size: float,
    lengths: Sequence[int],
) -> Watched:
    """Runs a policy until it has reached all targets or the horizon, or as long as it may."""
    seen: Watched | None = None
    for n_updates in lengths:
        found = curve(scene.made.problem, scene.met, policy, step_size, scene.key, n_updates)
        seen = _read(settings, scene, {name: np.asarray(own) for name, own in found.items()})
        if seen.whole or not math.isfinite(seen.left):
            break
    assert seen is not None
    return seen


def _read(settings: Settings, scene: Scene, found: Mapping[str, np.ndarray]) -> Watched:
    time, gap = found["time"], mean_gap(found["loss"], scene.made.minimum)
    gap = np.where(np.isfinite(gap), gap, np.inf)
    times = np.array([protocol.time_to(time, gap, target) for target in scene.targets])
    times = np.where(times <= settings.horizon, times, np.inf)
    end = min(times[-1], settings.horizon)
    last = min(int(np.searchsorted(time, end)), len(time) - 1)
    costs = {name: float(found[name][last]) for name in COSTS} | {"time": float(end)}
    left = max(0.0, float(np.log(gap[last] / scene.targets[-1])))
    whole = bool(np.isfinite(times[-1]) or time[-1] >= settings.horizon)
    return Watched(times, costs, last + 1, left, whole)


def score(settings: Settings, runs: Sequence[Watched]) -> float:
    """Mean logarithm of the time to the last target; the horizon, and what is left, beyond it."""
    logs = [
        math.log(run.times[-1])
        if math.isfinite(run.times[-1])
        else math.log(settings.horizon) + run.left
        for run in runs
    ]
    return float(np.mean(logs))


def run_of(
    settings: Settings,
    scene: Scene,
    method: Method,
    chosen: tuning.Settings,
    lengths: Sequence[int],
) -> Watched:
    """Runs a method with its knobs; without a knob `step` at the plans' own."""
    step_size = scene.made.step_size * chosen.get("step", 1.0)
    return watch(settings, scene, method.policy(scene, chosen), step_size, lengths)


def tuned(
    settings: Settings,
    scenes: Scenes,
    methods: Mapping[str, Method],
    told: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Tunes methods on the tuning instances and runs the best settings on both sets."""
    used = dict.fromkeys(methods, 0.0)

    def evaluate(name: str, several: Sequence[tuning.Settings], gradients: int) -> list[float]:
        scores = []
        for chosen in several:
            runs = [
                run_of(settings, scene, methods[name], chosen, settings.lengths[:2])
                for scene in scenes[TUNING]
            ]
            used[name] += sum(run.costs["samples_used"] for run in runs)
            scores.append(score(settings, runs))
        return scores

    found = tuning.tune(
        {name: method.space for name, method in methods.items()},
        evaluate,
        trials=settings.trials,
        gradients=settings.tuning_instances * settings.lengths[:2][-1],  # updates, at most
        seed=settings.seed,
        rounds=settings.rounds,
    )
    made = {}
    for name, _, trials, _, chosen, edges in tuning.table(found).rows:
        own = found[name]
        searched = "; ".join(
            f"{knob}: {', '.join(map(_short, grid.values))}" for knob, grid in own.space.items()
        )
        made[name] = {
            "chosen": chosen,
            "searched": searched,
            "trials": trials,
            "samples": used[name],
            "edges": edges,
            **on_sets(settings, scenes, methods[name], own.best.settings),
        }
        told(f"  {name}: {chosen}; at an edge: {edges}")
    return made


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def on_sets(
    settings: Settings, scenes: Scenes, method: Method, chosen: tuning.Settings
) -> dict[str, dict[str, Any]]:
    """Runs a setting on both sets of instances; times by level and instance, costs by instance."""
    made = {}
    for letter, role in SETS.items():
        runs = [run_of(settings, scene, method, chosen, settings.lengths) for scene in scenes[role]]
        made[letter] = {
            "times": np.transpose([run.times for run in runs]).tolist(),
            "updates": [run.updates for run in runs],
            "short": sum(not run.whole for run in runs),
            **{cost: [run.costs[cost] for run in runs] for cost in COSTS},
        }
    return made


def at_plans_step(
    settings: Settings, scenes: Scenes, told: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Plans as they are prescribed, nothing tuned; fixed pairs at the same step, one of them tuned.

    That one gets the trials of `tuned`, for k and the load.
    """
    n, shard = settings.n_workers, settings.shard
    methods = main_methods(n, shard)
    made: dict[str, dict[str, Any]] = {}
    for name in ("k and load", "k alone"):
        for ending, floor in (("", "bound"), (", close floor", "quadratic")):
            chosen = PLAIN | {"floor": floor}
            made[name + ending] = on_sets(settings, scenes, methods[name], chosen)
    ten = Method({}, lambda scene, _: always(max(1, n // 5), shard, shard))
    made[f"fixed k {max(1, n // 5)}, whole shards"] = on_sets(settings, scenes, ten, {})
    pair = methods["fixed pair"]
    space = {name: knob for name, knob in pair.space.items() if name != "step"}
    return made | tuned(settings, scenes, {"fixed pair": Method(space, pair.policy)}, told)


def run_case(settings: Settings, case: str, told: Callable[[str], None]) -> dict[str, Any]:
    """All that is measured of a problem and a law."""
    problem, _, law = case.partition(", ")
    scenes = scenes_of(settings, problem, law)
    methods = main_methods(settings.n_workers, settings.shard)
    if case in settings.family_cases:
        methods |= family(settings.n_workers, settings.shard)
    plain = at_plans_step(settings, scenes, told)
    return {
        "prescribed": plain,
        "tuned": tuned(settings, scenes, methods, told),
        "uplinks": {
            letter: _accounts(scenes[role], plain, letter) for letter, role in SETS.items()
        },
    }


def _accounts(
    scenes: Sequence[Scene], plain: Mapping[str, Any], letter: str
) -> list[dict[str, float]]:
    """The account of uplinks of every instance of a set."""
    updates = [plain[name][letter]["updates"] for name in uplinks.PLANS]
    return [uplinks.account(scene, *both) for scene, *both in zip(scenes, *updates, strict=True)]


def run_cases(
    settings: Settings,
    run: Callable[[str], dict[str, Any]],
    names: Sequence[str],
    told: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """All cases by name; those that were done before are read from the output folder.

    A case that was made with other settings is made again.

    Args:
        settings: Of the part.
        run: Makes a case.
        names: Of the cases.
        told: Hears of progress.
    """
    folder = settings.output / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for place, name in enumerate(names, start=1):
        path = folder / f"{name.replace(', ', '_').replace(' ', '_')}.json"
        said = identity(settings, name)
        kept = storage.load_json(path) if path.exists() else {}
        if kept.get("settings") != said:
            told(f"[{place}/{len(names)}] {name}")
            kept = {"settings": said, "cell": run(name)}
            storage.save_json(path, kept)
        found[name] = kept["cell"]
        told(f"[{place}/{len(names)}] {name}: done")
    return found


def identity(settings: Settings, case: str) -> dict[str, Any]:
    """The settings on which a case depends, as plain values."""
    apart = ("output", "commit", "cases", "family_cases")
    said = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name not in apart
    }
    plain = {name: list(own) if isinstance(own, tuple) else own for name, own in said.items()}
    return plain | {"case": case, "family": case in settings.family_cases}
