"""The short form of a method: all instances of a cell in one compiled program.

    trace      rule of the settings x clock of an instance, until all instances reach their horizon
    run        x <- x + optimizer of the settings (gradients of the trace), an instance a lane

How instances stand side by side is said in `simulation/side_by_side.py`. Policies decide while they
train: their lanes go through `simulation.run_policy`, on the very durations that traces are made
of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import traces
from asyncjax.problems import Problem
from asyncjax.simulation.side_by_side import policies_side_by_side, replay_side_by_side
from asyncjax.stragglers import Policy
from asyncjax.study.protocol import Seeds
from asyncjax.study.scene import Method, Records, Scene
from asyncjax.study.search import Settings
from asyncjax.traces.random_draws import on_host

_FIRST_UPDATES = 256  # of a policy's run; more where it is not at the horizon by then


def records_of_cell(
    method: Method, settings: Settings, scenes: Sequence[Scene], seeds: Sequence[Seeds]
) -> list[Records]:
    """The records of a method's runs, one an instance, each up to its horizon.

    Args:
        method: In its short form or the general one.
        settings: All that it needs.
        scenes: The instances.
        seeds: Those that they were made of.

    Returns:
        Columns by name, NumPy arrays of one length in a run.

    Example:
        >>> import optax
        >>> from asyncjax import clocks, problems
        >>> from asyncjax.study.protocol import TUNING, seeds_of
        >>> problem = problems.least_squares(np.ones((2, 1)), np.ones(2), n_workers=2)
        >>> scene = Scene(problem, clocks.constant([1.0, 2.0]), horizon=6.0, records=6)
        >>> method = Method(traces.Rule(), lambda s: optax.sgd(s["step"]))
        >>> seeds = seeds_of(0, TUNING, 1)
        >>> (records,) = records_of_cell(method, {"step": 0.5}, [scene], seeds)
        >>> records["time"].tolist(), [f"{loss:.2f}" for loss in records["loss"]]
        ([0.0, 2.0, 3.0, 4.0, 6.0], ['0.50', '0.03', '0.07', '0.00', '0.00'])
    """
    lanes = [scene.known(settings) for scene in scenes]
    if method.run is not None:
        runs = [method.run(s, settings, one) for s, one in zip(scenes, seeds, strict=True)]
    elif isinstance(getattr(method.rule_of(lanes[0]), "k", None), Policy):
        runs = _decided(method, lanes, scenes, seeds)
    else:
        runs = _replayed(method, lanes, scenes, seeds)
    return [_until(scene.horizon, records) for scene, records in zip(scenes, runs, strict=True)]


def _until(horizon: float | None, records: Records) -> Records:
    """Records not after the horizon."""
    columns = {name: np.asarray(column) for name, column in records.items()}
    if horizon is None or "time" not in columns:
        return columns
    inside = columns["time"] <= horizon
    return {
        name: column[inside] if column.shape == inside.shape else column
        for name, column in columns.items()
    }


def _columns(records: Any) -> dict[str, np.ndarray]:
    """Records as columns; a model that is not finite has no loss and no metrics."""
    columns = records._asdict()
    judged = {"loss": columns.pop("loss"), **columns.pop("metrics")}
    finite = columns.pop("finite")
    judged = {name: np.where(finite, column, np.nan) for name, column in judged.items()}
    return {**{name: np.asarray(column) for name, column in columns.items()}, **judged}


def _adapted(method: Method, problem: Problem | None, lane: Settings) -> Problem:
    assert problem is not None
    return problem if method.adapt is None else method.adapt(problem, lane)


def _load(method: Method, lane: Settings) -> float:
    return 1.0 if method.load is None else float(method.load(lane))


def _keys(seeds: Sequence[Seeds]) -> jax.Array:
    return jnp.stack([jax.random.key(one.noise(1)) for one in seeds])


def _replayed(
    method: Method, lanes: Sequence[Settings], scenes: Sequence[Scene], seeds: Sequence[Seeds]
) -> list[Records]:
    """Runs of a rule that makes traces."""
    parts = [_adapted(method, s.problem, lane) for s, lane in zip(scenes, lanes, strict=True)]
    rules, load = tuple(map(method.rule_of, lanes)), _load(method, lanes[0])
    several, optimizer = _traces(rules, load, tuple(scenes), tuple(seeds)), method.optimizer
    assert optimizer is not None
    records = scenes[0].records
    runs = replay_side_by_side(parts, several, optimizer, lanes, _keys(seeds), records)
    return [_columns(run) for run in runs]


@lru_cache(8)
def _traces(
    rules: tuple[Any, ...], load: float, scenes: tuple[Scene, ...], seeds: tuple[Seeds, ...]
) -> list[traces.EventTrace]:
    """A trace an instance, of equally many updates, all lasting to their horizon."""
    makers = []
    for rule, scene, one in zip(rules, scenes, seeds, strict=True):
        key, clock = jax.random.key(one.noise(0)), scene.clock
        assert clock is not None
        if isinstance(rule, traces.Synchronous):
            rounds = replace(rule, load=rule.load * load)
            makers.append(partial(rounds.trace, clock, key=key))
        else:
            makers.append(partial(rule.trace, clock, key=key, load=load))
    records = scenes[0].records
    return traces.lasting(
        lambda n_updates: [make(n_updates=n_updates) for make in makers],
        np.array([scene.horizon for scene in scenes], np.float64),
        n_updates=records,
        multiple_of=records,
    )


def _decided(
    method: Method, lanes: Sequence[Settings], scenes: Sequence[Scene], seeds: Sequence[Seeds]
) -> list[Records]:
    """Runs of a policy, with ever more updates until all last to their horizon."""
    wholes = [scene.whole or scene.problem for scene in scenes]
    parts = [_adapted(method, one, lane) for one, lane in zip(wholes, lanes, strict=True)]
    run, load = (
        policies_side_by_side(parts, method.made, lanes, _keys(seeds)),
        _load(method, lanes[0]),
    )
    n_updates = _FIRST_UPDATES
    while True:
        runs = run([_times(*one, n_updates, load) for one in zip(scenes, seeds, strict=True)])
        ends = [float(one.time[-1]) for one in runs]
        lacking = max(float(s.horizon or 0.0) / end for s, end in zip(scenes, ends, strict=True))
        if lacking <= 1.0:
            return [_columns(one) for one in runs]
        n_updates = 2 ** math.ceil(math.log2(n_updates * min(1.05 * lacking, 8.0)))


def _times(scene: Scene, seeds: Seeds, n_jobs: int, load: float) -> dict[str, np.ndarray]:
    """Times of a row and of links, float[n, jobs] each: those that traces are made of."""
    clock = scene.clock
    assert clock is not None
    with on_host(jax.random.key(seeds.noise(0))) as key:
        parts = jax.device_get(clock.times(jax.random.split(key)[0], n_jobs, load=load))
    times = {"compute": parts.compute / scene.rows}
    for link in ("download", "upload"):
        if getattr(clock, link) is not None:
            times[link] = getattr(parts, link)
    kind = jnp.result_type(float)
    shape = clock.n_workers, n_jobs
    return {name: np.broadcast_to(part, shape).astype(kind) for name, part in times.items()}
