"""Runs of the comparison: a clock measured under one rule, then every rule, real and simulated."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import optax

from asyncjax import clocks, live, results, traces
from experiments.reality.tasks import Workers, make


@dataclass(frozen=True)
class Rule:
    """A server rule, and the step size it gets; a mean of b gradients steps b times as far."""

    name: str
    collect: Callable[[int], Any]  # of the number of workers
    step_size: float


RULES = (
    Rule("pure", lambda n: traces.immediately(), 0.08),
    Rule("buffered 3", lambda n: traces.buffered(3), 0.24),
    Rule("fastest 3, stops", lambda n: traces.rennala(3, cancel=True), 0.24),
    Rule("Ringmaster", lambda n: traces.ringmaster(n), 0.08),
    Rule("synchronous", lambda n: traces.wait_for(n), 0.4),
    Rule("table", lambda n: traces.table(), 0.08),
)
CASES = (
    Workers("even", (0.03,) * 6),
    Workers("uneven", (0.02, 0.02, 0.03, 0.04, 0.06, 0.1)),
    Workers("one killed", (0.02, 0.02, 0.03, 0.04, 0.06, 0.1), dies=(2, 1.0)),
    Workers("10 MB", (0.03,) * 6, large=True),
)
CLOCKS = ("as asked for", "measured", "measured, server too")


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/reality/reality")
    engine: Literal["processes", "threads", "ray"] = "processes"
    cases: tuple[str, ...] = tuple(case.name for case in CASES)
    rules: tuple[str, ...] = tuple(rule.name for rule in RULES)
    repeats: int = 5
    seconds: float = 2.0  # about how long each run takes
    heard: int = 100  # arrivals of the slowest worker in the run that measures the clock
    target: float = 0.8  # training loss
    seed: int = 0
    commit: bool = False  # also write rows and figures where the page is made from


@dataclass(frozen=True)
class Figures:
    """What is compared of one run."""

    updates: int  # as many as were asked for, or as there were when it stalled
    time: float  # seconds, of the last update
    to_target: float  # seconds; NaN where it is not asked
    delay: float  # mean over arrivals
    utilisation: float

    @property
    def pace(self) -> float:
        """Seconds an update; NaN without any."""
        return self.time / self.updates if self.updates else float("nan")


@dataclass(frozen=True)
class Measured:
    """What the run under the pure rule tells of workers and server."""

    clock: clocks.Clock
    service: traces.Service
    heard: int  # arrivals of the worker that was heard least
    link: float  # seconds, median over jobs, that are not computing


@dataclass(frozen=True)
class Compared:
    """One rule with one kind of workers; R repeats, simulated on the clock of their own repeat."""

    workers: Workers
    rule: Rule
    n_updates: int
    real: tuple[Figures, ...]
    simulated: dict[str, tuple[Figures, ...]]  # by the kind of clock


@dataclass(frozen=True)
class Case:
    """One kind of workers."""

    workers: Workers
    measured: tuple[Measured, ...]  # a repeat each
    rules: tuple[Compared, ...]


def run_case(settings: Settings, workers: Workers) -> Case:
    """In every repeat: measures the clock under the pure rule, then runs every rule, in turn."""
    rules = [rule for rule in RULES if rule.name in settings.rules]
    alive = Workers(workers.name, workers.seconds, workers.sigma, workers.large)
    asked = clocks.lognormal(mean=workers.seconds, sigma=workers.sigma)
    share = 1 / 3 if workers.large else 1.0  # these take longer
    counts = {rule.name: _updates_in(asked, rule, share * settings.seconds) for rule in rules}
    real: dict[str, list[Figures]] = {rule.name: [] for rule in rules}
    measured: list[Measured] = []
    with _engine(settings, workers.n_workers) as engine:
        for repeat in range(settings.repeats):
            heard = max(2, int(share * settings.heard))
            measured.append(measure(settings, engine, alive, heard, repeat))
            for rule in rules:
                one = _real(settings, engine, workers, rule, counts[rule.name], repeat)
                real[rule.name].append(one)
    compared = []
    for rule in rules:
        simulated: dict[str, list[Figures]] = {name: [] for name in CLOCKS}
        for repeat, own in enumerate(measured):
            pairs = ((asked, None), (own.clock, None), (own.clock, own.service))
            for name, pair in zip(CLOCKS, pairs, strict=True):
                one = _simulated(settings, workers, pair, rule, counts[rule.name], repeat)
                simulated[name].append(one)
        made = {name: tuple(own) for name, own in simulated.items()}
        found = tuple(real[rule.name])
        compared.append(Compared(workers, rule, counts[rule.name], found, made))
    return Case(workers, tuple(measured), tuple(compared))


def measure(settings: Settings, engine: Any, workers: Workers, heard: int, repeat: int) -> Measured:
    """A run under the pure rule, until the slowest worker has been heard often enough."""
    rate = sum(max(workers.seconds) / np.array(workers.seconds))
    n_updates = int(1.15 * heard * rate) + workers.n_workers
    run = live.train(
        partial(make, workers),
        engine,
        optax.sgd(RULES[0].step_size),
        n_updates=n_updates,
        key=jax.random.key(1_000 + 100 * settings.seed + repeat),
        record_every=n_updates,
    )
    trace, own = run.trace, live.timing(run)
    assert trace.start is not None  # a live run has starts
    return Measured(
        clocks.of_trace(trace, law=clocks.resampled),
        live.service_of(run),
        int(np.bincount(trace.worker).min()),
        float(np.median(trace.time - trace.start - own.computed)),
    )


def _engine(settings: Settings, n_workers: int) -> live.Engine:
    """Workers that stay away once they are lost."""
    return getattr(live, settings.engine)(n_workers, restarts=0)


def _updates_in(clock: clocks.Clock, rule: Rule, seconds: float) -> int:
    """How many updates a rule makes in so many seconds, on the clock that was asked for."""
    made = traces.lasting(
        lambda n: [
            traces.asynchronous(
                clock, n_updates=n, collect=rule.collect(clock.n_workers), key=jax.random.key(0)
            )
        ],
        [seconds],
    )
    trace = made[0]
    return max(1, int(np.sum(trace.time[trace.steps] <= seconds)))


def _real(
    settings: Settings, engine: Any, workers: Workers, rule: Rule, n_updates: int, repeat: int
) -> Figures:
    """A real run."""
    began = time.perf_counter()
    try:
        run = live.train(
            partial(make, workers),
            engine,
            optax.sgd(rule.step_size),
            n_updates=n_updates,
            collect=rule.collect(workers.n_workers),
            key=_key(settings, repeat),
            record_every=n_updates if workers.large else 1,
            patience=60.0,
        )
    except traces.StalledError as stalled:
        return _of_stalled(stalled)
    took = time.perf_counter() - began
    print(f"{rule.name:<18}{run.trace.time[-1]:6.2f} s of {took:.1f}", flush=True)
    return _figures(settings, workers, run)


def _simulated(
    settings: Settings,
    workers: Workers,
    clock_and_service: tuple[clocks.Clock, traces.Service | None],
    rule: Rule,
    n_updates: int,
    repeat: int,
) -> Figures:
    """The same run in simulation."""
    clock, service = clock_and_service
    if workers.dies is not None:
        leave = np.full(workers.n_workers, np.inf)
        leave[workers.dies[0]] = workers.dies[1]
        clock = clocks.available(clock, leave=leave)
    collect, key = rule.collect(workers.n_workers), _key(settings, repeat)
    try:
        trace = traces.asynchronous(
            clock,
            n_updates=n_updates,
            collect=collect,
            service=service,
            interruptible=False,  # a real worker goes on with a job that is stopped
            key=key,
        )
    except traces.StalledError as stalled:
        return _of_stalled(stalled)
    if workers.large:
        return _of_trace(trace, float("nan"))
    task, optimizer = make(workers, None), optax.sgd(rule.step_size)
    run = live.rerun(task, trace, optimizer, key=key, record_every=1)
    return _figures(settings, workers, run)


def _key(settings: Settings, repeat: int) -> jax.Array:
    return jax.random.key(100 * settings.seed + repeat)


def _figures(settings: Settings, workers: Workers, run: results.Run) -> Figures:
    """What a run that ended comes to."""
    reached = results.time_to_target(run.records.time, run.records.loss, settings.target)
    return _of_trace(run.trace, float("nan") if workers.large else float(reached))


def _of_stalled(stalled: traces.StalledError) -> Figures:
    """What a run that stalled comes to."""
    if stalled.trace is None:
        return Figures(0, float("nan"), float("inf"), float("nan"), float("nan"))
    return _of_trace(stalled.trace, float("inf"))


def _of_trace(trace: traces.EventTrace, to_target: float) -> Figures:
    summary = traces.summarize(trace)
    return Figures(
        summary.updates, summary.time, to_target, summary.delay_mean, summary.utilisation
    )
