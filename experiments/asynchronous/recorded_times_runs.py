"""Every method of the family on recorded workers, even and uneven."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, results, simulation, steps, traces
from experiments.common.methods import (
    MakeOptimizer,
    Method,
    adaptive_1,
    plain,
    rounds_of,
    server_with,
)
from experiments.common.on_grid import Outcome
from experiments.common.recordings import EVEN, UNEVEN, of_workers, read_recordings

LOCAL_STEPS = 4


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/recorded_times")
    seed: int = 0
    even: tuple[str, ...] = EVEN  # recordings or files; one column, a seed uses one of them
    uneven: tuple[str, ...] = UNEVEN  # a column each
    most_workers: int = 10  # of a recording that are used
    stress: float = 4.0  # factor of half of the even workers in the made-up column; 0: none
    horizon: float = 200.0  # simulated time that every method gets on even workers
    uneven_horizon: float = 400.0  # the same in the other columns
    seeds: int = 3  # reported
    tuning_seeds: int = 2  # only to choose the step size
    batch: int = 8  # rows of a gradient
    hidden: int = 16  # units of the network's hidden layer
    concentration: float = 0.3  # of the Dirichlet law of labels over workers; small is skewed
    target: float = 0.90  # test accuracy
    records: int = 80  # points of a curve, over the longest horizon; some methods have fewer
    local_step: float = 0.1  # step size of the four local steps
    methods: tuple[str, ...] = ()  # names of the methods that run; none: all
    step_sizes: tuple[float, ...] = field(
        default_factory=lambda: tuple(2.0**power for power in range(-5, 2))
    )


@dataclass(frozen=True)
class Workers:
    """One column, workers of one number: a clock a seed.

    Attributes:
        name: What tables call the column.
        horizon: Simulated time that every method gets.
        clocks: One a seed, the tuning seeds first.
    """

    name: str
    horizon: float
    clocks: tuple[clocks.Clock, ...]

    @property
    def n_workers(self) -> int:
        """Number of workers n."""
        return self.clocks[0].n_workers


def chained(first: Any) -> MakeOptimizer:
    """SGD behind a method that scales or corrects gradients."""
    return lambda step_size: optax.chain(first, optax.sgd(step_size))


def bounded(n_workers: int, smoothness: float) -> MakeOptimizer:
    """Koloskova's method: the step min(step, 1 / (4 L delay)) beyond delay n."""

    def optimizer(step_size: Any) -> optax.GradientTransformation:
        bound = steps.scale_by_concurrency_bound(
            step_size, concurrency=n_workers, smoothness=smoothness
        )
        return optax.chain(bound, optax.scale(-1.0))

    return optimizer


def server_methods(n: int) -> list[Method]:
    """What differs is who gets jobs and which gradients are used; the step is plain."""
    half, threshold = n // 2, 3 * n // 2
    waiting, shuffled = traces.wait_for(half), traces.shuffled()
    late_stopped = traces.fresh(half, cancel=True)
    stopping = traces.fresher_than(threshold, cancel=True)
    ssp = server_with(gate=traces.lead_at_most(2), read="start")
    made = (
        ("synchronous", "rounds that wait for all", rounds_of(1.0)),
        ("fastest half", "rounds that wait for half", rounds_of(0.5)),
        ("pure", "applied on arrival, the deliverer goes on", server_with()),
        ("random", "next job to a random worker", server_with(dispatch=traces.uniformly())),
        ("shuffled", "next job along permutations", server_with(dispatch=shuffled)),
        ("shuffled once", "one permutation", server_with(dispatch=traces.shuffled_once())),
        ("wait for n/2", "mean of b, then b jobs", server_with(collect=waiting)),
        (
            "wait for n/2, shuffled",
            "mean of b, then b jobs along permutations",
            server_with(collect=waiting, dispatch=shuffled),
        ),
        ("buffered n/2", "mean of b", server_with(collect=traces.buffered(half))),
        ("Rennala n/2", "mean of b fresh ones", server_with(collect=traces.fresh(half))),
        ("k-batch-sync n/2", "the same, others stopped", server_with(collect=late_stopped)),
        ("Malenia 1.5", "fresh, by worker", server_with(collect=traces.per_worker(1.5))),
        (
            "Ringmaster 3n/2",
            "delays below R",
            server_with(collect=traces.fresher_than(threshold)),
        ),
        ("Ringmaster 3n/2, stops", "others stopped", server_with(collect=stopping)),
        (
            "quantile 0.9",
            "without the latest tenth",
            server_with(collect=traces.fresher_than_quantile(0.9)),
        ),
        ("Ringleader", "rounds of n steps", server_with(collect=traces.ringleader())),
        ("table", "mean of everyone's last gradient", server_with(collect=traces.table())),
        ("SSP 2", "nobody leads by more than 2 jobs", ssp),
    )
    return [Method(name, text, trace, plain) for name, text, trace in made]


def methods(n: int, smoothness: float) -> list[Method]:
    """The family for n workers."""
    mishchenko = steps.scale_by_staleness("concurrency", n_workers=n)
    measured, pure = steps.scale_by_measured_time(n), server_with()
    made = server_methods(n)
    for name, text, optimizer in (
        ("Koloskova", "step at most 1 / (4 L delay) beyond delay n", bounded(n, smoothness)),
        ("Mishchenko", "step times n / max(n, delay)", chained(mishchenko)),
        ("DC-ASGD", "late gradients corrected", chained(steps.compensate_delay(0.04))),
        ("Rescaled", "step times the worker's time, as measured so far", chained(measured)),
    ):
        made.append(Method(name, f"pure; {text}", pure, optimizer))
    local = server_with(collect=traces.buffered(n // 2), load=float(LOCAL_STEPS))
    name = f"FedBuff, {LOCAL_STEPS} local steps"
    made.append(Method(name, "mean of b, jobs last longer", local, plain, LOCAL_STEPS))
    shuffled = server_with(dispatch=traces.shuffled())
    made.append(Method("shuffled, Adaptive 1", "adaptive step", shuffled, adaptive_1))
    return made


def columns(settings: Settings) -> list[Workers]:
    """The recorded workers; a seed begins at its own place of a recording.

    Raises:
        ValueError: A recording is not known.
    """
    n_seeds = settings.tuning_seeds + settings.seeds

    def made(
        name: str, recordings: Sequence[np.ndarray], horizon: float, stress: float = 1.0
    ) -> Workers:
        n = min(settings.most_workers, *map(len, recordings))
        factor = np.where(np.arange(n) < n // 2, 1.0, stress)[:, None]
        own = []
        for seed in range(n_seeds):
            times = of_workers(recordings[seed % len(recordings)], n)
            begin = seed * times.shape[1] // n_seeds
            own.append(clocks.recorded(factor * np.roll(times, -begin, axis=1)))
        return Workers(name, horizon, tuple(own))

    found = []
    if settings.even:
        even = read_recordings(settings.even)
        found.append(made("even jobs", even, settings.horizon))
        if settings.stress:
            name = f"even jobs, half of them x{settings.stress:g}"
            found.append(made(name, even, settings.uneven_horizon, settings.stress))
    for name in settings.uneven:
        found.append(made(Path(name).stem, read_recordings([name]), settings.uneven_horizon))
    if not found:
        raise ValueError("even or uneven must name a recording, got none")
    return found


def run_method(
    settings: Settings, method: Method, problem: problems.Problem, several: Sequence[Workers]
) -> list[Outcome]:
    """Tunes and runs one method: one compiled call over all columns, seeds and step sizes.

    Raises:
        ValueError: All step sizes diverged.
    """
    began = time.perf_counter()
    n_seeds = settings.tuning_seeds + settings.seeds
    keys = jax.random.split(jax.random.key(settings.seed), n_seeds)
    pairs = [(clock, key) for w in several for clock, key in zip(w.clocks, keys, strict=True)]
    made = traces.lasting(
        lambda n: [method.trace(clock, n, key) for clock, key in pairs],
        np.repeat([workers.horizon for workers in several], n_seeds),
    )
    if method.local_steps > 1:
        problem = problems.local_steps(
            problem, n_steps=method.local_steps, step_size=settings.local_step
        )
    records = simulation.sweep(
        problem,
        made,
        method.optimizer,
        settings.step_sizes,
        keys=jnp.tile(keys, len(several)),
        record_every=max(1, made[0].n_updates // settings.records),
    ).records
    records = jax.tree.map(np.asarray, records)  # waits for the device
    seconds = time.perf_counter() - began
    outcomes = []
    for place, workers in enumerate(several):
        own = slice(place * n_seeds, (place + 1) * n_seeds)
        part = jax.tree.map(lambda values, own=own: values[own], records)
        outcomes.append(outcome(settings, method, workers, part, made[own], seconds / len(several)))
    return outcomes


def outcome(
    settings: Settings,
    method: Method,
    workers: Workers,
    records: results.Records,
    made: Sequence[traces.EventTrace],
    seconds: float,
) -> Outcome:
    """Chooses the step on the tuning seeds and reads off the others, as the main job does."""
    reported = slice(settings.tuning_seeds, None)
    when, loss = np.broadcast_to(records.time, records.loss.shape), np.asarray(records.loss)
    last = np.sum(when <= workers.horizon, axis=-1, keepdims=True) - 1
    final = np.take_along_axis(loss, last, axis=-1)[: settings.tuning_seeds, :, 0]
    if not np.isfinite(final).any():
        tried = settings.step_sizes
        raise ValueError(f"{method.name} diverged at every step size tried: {tried}")
    best = results.best_on_grid(final.T)
    within = when[reported, best] <= workers.horizon
    accuracy = np.asarray(records.metrics["test_accuracy"])[reported, best]
    return Outcome(
        method=method,
        step_size=settings.step_sizes[best],
        at_edge=results.at_grid_edge(best, len(settings.step_sizes)),
        tuning=np.asarray(results.median_and_spread(final.T).median),
        time=when[reported, best],
        computed=np.asarray(records.computed)[reported, 0],
        version=np.asarray(records.version)[reported, 0],
        loss=np.where(within, loss[reported, best], np.nan),
        accuracy=np.where(within, accuracy, np.nan),
        trace=made[settings.tuning_seeds],
        summaries=tuple(traces.summarize(trace) for trace in made[reported]),
        seconds=seconds,
    )
