"""Runs until the gradient is small, prolonged until the best is known.

The function and its start are those of the theory, the same for all; an instance draws the noise of
the gradients and, where they are random, the times.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, simulation, storage, traces
from asyncjax.study import protocol
from asyncjax.study.protocol import SET_A, SET_B, TUNING
from asyncjax.study.result import Result

CANDIDATES = {  # names among whose methods a name's best is sought; R may be infinite, m may be n
    "pure": ("pure",),
    "Rennala": ("Rennala",),
    "Ringmaster": ("Ringmaster", "pure"),
    "synchronous": ("synchronous",),
    "fastest m": ("fastest m", "synchronous"),
}


SETS = {"A": SET_A, "B": SET_B}
LONGER = 3  # factor by which a run is prolonged


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/time_complexity")
    seed: int = 0
    workers: tuple[int, ...] = (10, 100, 1000)
    # "heavy tails", times of which each instance has its own, takes as long as both of these
    speeds: tuple[str, ...] = ("sqrt(i)", "one straggler")
    noise: tuple[float, ...] = (1.0, 100.0)  # variance of a gradient over the target squared
    target: float = 0.05  # norm of the exact gradient; it begins at 0.6 sqrt(dimension)
    dimension: int = 50
    parameters: tuple[int, ...] = (
        1,
        4,
        16,
        64,
        250,
        1000,
    )  # b, R and m; those above 10 n are left out
    horizon: float = 5000.0  # simulated time
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 2  # only to choose the step size and the parameter
    records: int = 2048  # points of a curve
    step_sizes: tuple[float, ...] = field(
        default_factory=lambda: tuple(2.0**power for power in range(-12, 2))
    )
    commit: bool = False  # also write the numbers where committed ones are


@dataclass(frozen=True)
class Method:
    """A method with its parameter.

    Attributes:
        name: One of `CANDIDATES`.
        parameter: b, R or m; infinity for pure, which is Ringmaster with R = infinity, and n for
            synchronous, which is fastest m with m = n.
        single: Every update takes one gradient.
        rule: What makes its traces.
    """

    name: str
    parameter: float
    single: bool
    rule: traces.Rule | traces.Synchronous


@dataclass(frozen=True)
class Outcome:
    """Times to the target of one method at one noise level, and when its shortest run ended."""

    reached: np.ndarray  # float64[S, G]; infinity where the run ended first
    end: float


def workers(speeds: str, n: int) -> clocks.Clock:
    """The clock of n workers by the name of their speeds."""
    if speeds == "sqrt(i)":
        return clocks.constant(np.sqrt(np.arange(1, n + 1)))
    if speeds == "one straggler":
        return clocks.constant(np.append(np.ones(n - 1), 100.0))
    if speeds == "heavy tails":
        return clocks.pareto(np.ones(n), 1.5)
    raise ValueError(f"speeds must be 'sqrt(i)', 'one straggler' or 'heavy tails', got {speeds!r}")


def slope(params: jax.Array) -> jax.Array:
    """The exact gradient A x - b, with A = tridiag(-1, 2, -1) / 4 and b = -e_1 / 4."""
    padded = jnp.pad(params, 1)
    return ((2 * params - padded[:-2] - padded[2:]) / 4).at[0].add(0.25)


def _gradient(
    noise: jax.Array, params: jax.Array, worker: Any, job: Any, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return jnp.zeros(()), slope(params) + noise * jax.random.normal(key, params.shape)


def _norm(noise: jax.Array, params: jax.Array) -> jax.Array:
    return jnp.linalg.norm(slope(params))


def quadratic(settings: Settings, noise: jax.typing.ArrayLike) -> problems.Problem:
    """The same quadratic for every worker; start sqrt(d) e_1.

    The noise is data, not a constant of the gradient, so both levels share a compilation.

    Args:
        settings: Dimension and target.
        noise: Expected squared norm of the noise over the target squared.

    Returns:
        The problem; its objective is the norm of the exact gradient.
    """
    scale = settings.target * jnp.sqrt(noise / settings.dimension)
    start = jnp.zeros(settings.dimension).at[0].set(np.sqrt(settings.dimension))
    return problems.Problem(start, scale, _gradient, _norm)


def methods(settings: Settings, n: int) -> list[Method]:
    """All methods with all their parameters for n workers."""
    found = [
        Method("pure", np.inf, True, traces.Rule()),
        Method("synchronous", n, n == 1, traces.Synchronous(n)),
    ]
    for p in (p for p in settings.parameters if p <= 10 * n):
        found.append(Method("Rennala", p, p == 1, traces.Rule(collect=traces.rennala(p))))
        found.append(Method("Ringmaster", p, True, traces.Rule(collect=traces.ringmaster(p))))
    for m in sorted({*settings.parameters, n - 1}):
        if 0 < m < n:
            found.append(Method("fastest m", m, m == 1, traces.Synchronous(m)))
    return found


def first_updates(method: Method) -> int:
    """Updates of a method's first run: few where steps may be large or gradients are many."""
    if method.single:
        return 512 if method.parameter <= 4 else 4096
    return 128 if method.parameter <= 100 else 32


def keys_of(settings: Settings, role: str) -> jax.Array:
    """Keys of the instances of a role."""
    count = settings.tuning_instances if role == TUNING else settings.instances
    drawn = protocol.seeds_of(settings.seed, role, count)
    return jnp.stack([jax.random.key(one.noise()) for one in drawn])


def run_method(
    settings: Settings,
    method: Method,
    clock: clocks.Clock,
    n_updates: int,
    keys: jax.Array,
    step_sizes: Sequence[float],
) -> list[Outcome]:
    """Replays one method with all keys and step sizes.

    Returns:
        The times to the target, a `Outcome` a noise level.
    """
    # Runs of one trace go together; those of several one after the other, which is faster than
    # stacking their plans.
    shared = [keys[at : at + 1] for at in range(len(keys))] if clock.is_random else [keys]
    reached, ends = [], []
    for own in shared:
        trace = method.rule.trace(clock, n_updates=n_updates, key=own[0])

        def losses(noise: jax.Array, own: Any = own, trace: Any = trace) -> Any:
            records = simulation.sweep(
                quadratic(settings, noise),
                trace,
                optax.sgd,
                step_sizes,
                keys=own,
                record_every=max(1, n_updates // settings.records),
                width=1 if method.single else 16,  # few different widths mean few compilations
            ).records
            return records.time, records.loss

        when, loss = jax.vmap(losses, out_axes=(None, 0))(jnp.asarray(settings.noise))
        reached.append(results.time_to_target(when, np.asarray(loss), settings.target))
        ends.append(float(trace.time[-1]))
    return [Outcome(level, min(ends)) for level in np.concatenate(reached, axis=1)]


def tuned(outcome: Outcome) -> np.ndarray:
    """Median time to the target by step size over the tuning instances, float64[G]."""
    return np.asarray(results.median_and_spread(outcome.reached.T).median)


def unfinished(settings: Settings, found: dict[Method, list[Outcome]]) -> set[Method]:
    """The methods that may still beat the best time of their name.

    Args:
        settings: What is run.
        found: By method, a `Outcome` a noise level.
    """
    again: set[Method] = set()
    for name in CANDIDATES:
        own = candidates(found, name)
        for level in range(len(settings.noise)):
            best = min((tuned(found[method][level]).min() for method in own), default=np.inf)
            limit = min(best, settings.horizon)
            again |= {method for method in own if found[method][level].end < limit}
    return again


def candidates(found: Mapping[Method, Any], name: str) -> list[Method]:
    """The methods among which the best of a name is sought."""
    return [method for method in found if method.name in CANDIDATES[name]]


def reported(
    settings: Settings, method: Method, clock: clocks.Clock, step: float, begin: int
) -> dict[str, list[list[float]]]:
    """Times of one setting on both sets: by set, a list a noise level; prolonged as is needed."""
    made = {}
    for letter, role in SETS.items():
        n_updates, keys = begin, keys_of(settings, role)
        while True:
            found = run_method(settings, method, clock, n_updates, keys, [step])
            ends = {one.end for one in found}
            if min(ends) >= settings.horizon or all(np.isfinite(o.reached).all() for o in found):
                break
            n_updates *= LONGER
        made[letter] = [
            np.where(o.reached[:, 0] <= settings.horizon, o.reached[:, 0], np.inf).tolist()
            for o in found
        ]
    return made


def ends(tried: Mapping[tuple[Method, float], float], method: Method) -> tuple[float, float]:
    """The least and the largest step that a method tried."""
    steps = [step for own, step in tried if own == method]
    return min(steps), max(steps)


def finer(
    tried: Mapping[tuple[Method, float], float], horizon: float, count: int
) -> tuple[Method, list[float]]:
    """Steps for a method that has trials left, between those that it tried.

    Around the best step, up to its neighbours on either side; over the whole grid of the method
    where nothing arrived. The widest gaps come first.

    Args:
        tried: Times by method and step, the steps of a method a common factor apart.
        horizon: Later times count as never.
        count: How many.

    Example:
        >>> tried = {("sgd", 0.25): 9.0, ("sgd", 0.5): 3.0, ("sgd", 1.0): 5.0, ("sgd", 2.0): 9.0}
        >>> method, steps = finer(tried, 10.0, 3)
        >>> method, [round(step, 3) for step in steps]
        ('sgd', [0.354, 0.707, 0.297])
    """
    (method, step), best = min(tried.items(), key=lambda item: item[1])
    steps = sorted(own for other, own in tried if other == method)
    if best <= horizon:
        ratio = steps[1] / steps[0]
        steps = [step / ratio, step, step * ratio]
    new: list[float] = []
    while len(new) < count:
        ratios = [high / low for low, high in itertools.pairwise(steps)]
        widest = int(np.argmax(np.round(ratios, 9)))
        new.append(float(np.sqrt(steps[widest] * steps[widest + 1])))
        steps = sorted([*steps, new[-1]])
    return method, new


def run_cell(settings: Settings, speeds: str, n: int) -> list[dict[str, Any]]:
    """The rows of all methods for one law of speeds and one number of workers."""
    clock, began = workers(speeds, n), time.perf_counter()
    found: dict[Method, list[Outcome]] = {}
    keys, sizes = keys_of(settings, TUNING), dict[Method, int]()
    pending = {method: first_updates(method) for method in methods(settings, n)}
    while pending:
        for method, n_updates in pending.items():
            found[method] = run_method(
                settings, method, clock, n_updates, keys, settings.step_sizes
            )
        sizes |= pending
        again = unfinished(settings, found)
        pending = {method: LONGER * size for method, size in pending.items() if method in again}
    trials = max(len(candidates(found, name)) for name in CANDIDATES) * len(settings.step_sizes)
    shown: dict[tuple[Method, float], Any] = {}
    rows: list[dict[str, Any]] = []
    for level, name in itertools.product(range(len(settings.noise)), CANDIDATES):
        tried = _tried(settings, clock, found, sizes, name, level, trials)
        (method, step), best = min(tried.items(), key=lambda item: item[1])
        parameter, at_edge = method.parameter, False
        if best > settings.horizon:
            times = {letter: [np.inf] * settings.instances for letter in SETS}
            step = parameter = np.nan
        else:
            if (method, step) not in shown:
                shown[method, step] = reported(settings, method, clock, step, sizes[method])
            times = {letter: shown[method, step][letter][level] for letter in SETS}
            most = max(one.parameter for one in candidates(found, name))
            at_edge = step in ends(tried, method) or (name == "Rennala" and parameter == most)
        facts = {"step": step, "parameter": parameter, "at_edge": at_edge, "trials": trials}
        rows += rows_of(settings, (speeds, settings.noise[level], n), name, times, facts)
    print(f"{speeds:<14} n = {n:<5} {time.perf_counter() - began:5.1f} s", flush=True)
    return rows


def _tried(
    settings: Settings,
    clock: clocks.Clock,
    found: Mapping[Method, list[Outcome]],
    sizes: Mapping[Method, int],
    name: str,
    level: int,
    trials: int,
) -> dict[tuple[Method, float], float]:
    """The time of every setting that a name tries, finer steps among them."""
    tried = {
        (method, step): time
        for method in candidates(found, name)
        for step, time in zip(settings.step_sizes, tuned(found[method][level]), strict=True)
    }
    method, further = finer(tried, settings.horizon, trials - len(tried))
    width = len(settings.step_sizes)  # as many at once as of the grid: one compilation
    keys = keys_of(settings, TUNING)
    for steps in (further[at : at + width] for at in range(0, len(further), width)):
        outcome = run_method(settings, method, clock, sizes[method], keys, steps)[level]
        tried |= zip(((method, step) for step in steps), tuned(outcome), strict=True)
    return tried


def rows_of(
    settings: Settings,
    cell: tuple[str, float, int],
    method: str,
    times: Mapping[str, Sequence[float]],
    facts: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """A row an instance of both sets."""
    speeds, noise, n = cell
    about = {"speeds": speeds, "noise": noise, "n": n, **facts, "horizon": settings.horizon}
    scene = f"{speeds}, noise {noise:g}, n {n}"
    return [
        {"scene": scene, "set": letter, "instance": i, "method": method, "time": time, **about}
        for letter in times
        for i, time in enumerate(times[letter])
    ]


def kept_cell(settings: Settings, speeds: str, n: int) -> list[dict[str, Any]]:
    """A cell, read where it was made before with the same settings."""
    path = settings.output / "cells" / f"{speeds} {n}.json".replace(" ", "_")
    kept = storage.load_json(path) if path.exists() else {}
    apart = ("output", "commit", "workers", "speeds")
    facts = {name: value for name, value in asdict(settings).items() if name not in apart}
    facts = {name: list(v) if isinstance(v, tuple) else v for name, v in facts.items()}
    if kept.get("settings") != facts:
        kept = {"settings": facts, "rows": run_cell(settings, speeds, n)}
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.save_json(path, kept)
    return kept["rows"]


def study_of(settings: Settings) -> Result:
    """Runs all cells that are missing."""
    rows = [
        row
        for speeds in settings.speeds
        for n in settings.workers
        for row in kept_cell(settings, speeds, n)
    ]
    facts = {"instances": settings.instances, "target": settings.target}
    return Result(pd.DataFrame(rows), "time", facts, settings.seed)
