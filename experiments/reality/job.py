"""Does the simulator predict real runs?

A clock is measured in one run of the pure rule with real workers. Then every rule runs for real
and, on that clock, in simulation, and both are compared: time of so many updates, time to a target
loss, mean delay, utilisation. Workers sleep for most of a job, so that a machine of few cores has
workers of any speed: even ones, uneven ones, uneven ones of which one is killed a second after the
start, and even ones with a model of 10 MB, where the server has much to do. Run it with `python -m
experiments.reality`, with `--engine ray` on a local Ray.

The claim is that the clock of one pure run predicts the pace of every rule. A kind of workers and
a rule are one case: it is predicted if the error of the simulated time is within 10 % either way in
all repeats. (The range of five repeats holds the median error with a chance of 94 %, 1 - 2 / 2^5.)
The two sets of runs, A and B, are those on processes and on Ray.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, live, results, traces
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import FAILS, HOLDS, OPEN, Condition, Difference
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common import doors
from experiments.reality.tasks import Workers, make

NAME = "reality"
TITLE = "Does the simulator predict real runs?"
PAPERS = ()
COMMAND = "python -m experiments.reality --commit, also --engine ray"
SETS = {"processes": "A", "ray": "B"}
CLAIM = "the clock of one run predicts the pace of every rule"
BOUND = 10.0  # percent
LARGE = "10 MB"
BESIDE = ("to_target", "delay", "utilisation")  # compared beside the pace, with the last clock


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
BEST = CLOCKS[-1]


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


def study_of(settings: Settings) -> Result:
    """Runs all cases; what is committed has the rows of the other engine, too.

    Raises:
        ValueError: A name or a number is out of range.
    """
    known = {"cases": [case.name for case in CASES], "rules": [rule.name for rule in RULES]}
    doors.check(settings, known, {"repeats": 1, "heard": 2})
    if settings.commit and settings.engine not in SETS:
        raise ValueError(
            f"engine must be among {', '.join(SETS)} for numbers that are committed,"
            f" got {settings.engine!r}"
        )
    if settings.engine == "threads" and "one killed" in settings.cases:
        raise ValueError("cases must be without 'one killed' on threads, which cannot be killed")
    done = []
    for case in CASES:
        if case.name in settings.cases:
            print(f"workers: {case.name}", flush=True)
            done.append(run_case(settings, case))
    result = as_rows(settings, done)
    return beside(result, part.committed(NAME)) if settings.commit else result


def as_rows(settings: Settings, cases: Sequence[Case]) -> Result:
    """A row a kind of workers, rule and clock: its error in percent over the repeats."""
    rows = [row for case in cases for one in case.rules for row in _rows(case, one)]
    letter = SETS.get(settings.engine, "A")
    table = pd.DataFrame(rows)
    table.insert(1, "set", letter)
    told = {
        case.workers.name: {
            "heard": min(one.heard for one in case.measured),
            "link": float(np.median([one.link for one in case.measured])),
            "server": float(np.median([one.service.step for one in case.measured])),
            "mean jobs": [float(np.mean(np.asarray(one.clock.mean))) for one in case.measured],
        }
        for case in cases
        if case.measured
    }
    return Result(table, "median", {"repeats": settings.repeats, f"measured, {letter}": told})


def beside(result: Result, other: Result) -> Result:
    """The rows of an engine with those that another file has of other engines."""
    rest = other.rows[~other.rows["set"].isin(result.sets)]
    rows = pd.concat([result.rows, rest]).sort_values("set", kind="stable", ignore_index=True)
    return Result(rows, result.compared, {**other.facts, **result.facts})


def _rows(case: Case, one: Compared) -> Iterator[dict[str, Any]]:
    """What is printed of a rule, and no more."""
    real = np.array([run.time for run in one.real])
    stalled = [int(run.updates) for run in one.real if run.updates < one.n_updates]
    stalls = len(stalled) > len(one.real) / 2
    best = {"real": one.real, "simulated": one.simulated[BEST]}
    beside = {
        f"{name}_{kind}": float(np.median([getattr(run, name) for run in runs]))
        for name in BESIDE
        for kind, runs in best.items()
    }
    for clock, runs in one.simulated.items():
        off = 100 * (np.array([run.time for run in runs]) / real - 1.0)
        ends = {"median": np.median(off), "least": off.min(), "most": off.max()}
        after = int(np.median([run.updates for run in runs]))
        yield {
            "scene": case.workers.name,
            "method": one.rule.name,
            "clock": clock,
            "updates": one.n_updates,
            **{name: math.nan if stalls else round(float(x), 1) for name, x in ends.items()},
            "real_seconds": math.nan if stalls else round(float(np.median(real)), 2),
            "stalls_after": float(np.median(stalled)) if stalls else math.nan,
            "simulated_stalls_after": float(after) if stalls else math.nan,
            **beside,
        }


def run_case(settings: Settings, workers: Workers) -> Case:
    """In every repeat: measures the clock under the pure rule, then runs every rule, in turn."""
    rules = [rule for rule in RULES if rule.name in settings.rules]
    alive = replace(workers, dies=None)
    asked = clocks.lognormal(mean=workers.seconds, sigma=workers.sigma)
    share = 1 / 3 if workers.large else 1.0  # these take longer
    counts = {rule: _updates_in(asked, rule, share * settings.seconds) for rule in rules}
    real: dict[Rule, list[Figures]] = {rule: [] for rule in rules}
    measured: list[Measured] = []
    with getattr(live, settings.engine)(workers.n_workers, restarts=0) as engine:  # lost: away
        for repeat in range(settings.repeats):
            heard = max(2, int(share * settings.heard))
            measured.append(measure(settings, engine, alive, heard, repeat))
            for rule, count in counts.items():
                real[rule].append(_real(settings, engine, workers, rule, count, repeat))

    def simulated(rule: Rule, clock: Callable[[Measured], Any]) -> tuple[Figures, ...]:
        return tuple(
            _simulated(settings, workers, clock(one), rule, counts[rule], repeat)
            for repeat, one in enumerate(measured)
        )

    pairs = (lambda _: (asked, None), lambda m: (m.clock, None), lambda m: (m.clock, m.service))
    compared = [
        Compared(
            rule,
            counts[rule],
            tuple(real[rule]),
            {name: simulated(rule, pair) for name, pair in zip(CLOCKS, pairs, strict=True)},
        )
        for rule in rules
    ]
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
    trace, timing = run.trace, live.timing(run)
    assert trace.start is not None  # a live run has starts
    return Measured(
        clocks.of_trace(trace, law=clocks.resampled),
        live.service_of(run),
        int(np.bincount(trace.worker).min()),
        float(np.median(trace.time - trace.start - timing.computed)),
    )


def _updates_in(clock: clocks.Clock, rule: Rule, seconds: float) -> int:
    """How many updates a rule makes in so many seconds, on the clock that was asked for."""
    how = {"collect": rule.collect(clock.n_workers), "key": jax.random.key(0)}
    [trace] = traces.lasting(lambda n: [traces.asynchronous(clock, n_updates=n, **how)], [seconds])
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
    key = _key(settings, repeat)
    try:
        trace = traces.asynchronous(
            clock,
            n_updates=n_updates,
            collect=rule.collect(workers.n_workers),
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


def conditions(result: Result, letter: str) -> tuple[Condition, ...]:
    """Of each case that does not stall: its error is within the bound, whatever its sign."""
    rows = result.select(set=letter, clock=BEST)
    return tuple(_condition(result, row) for row in rows[rows["median"].notna()].itertuples())


def _condition(result: Result, row: Any) -> Condition:
    least = 0.0 if row.least < 0 < row.most else min(abs(row.least), abs(row.most))
    most = max(abs(row.least), abs(row.most))
    share, count = float(row.median < 0), result.facts["repeats"]
    size = Difference(abs(row.median), least, most, share, count)
    return Condition(f"{row.scene}, {row.method}: within {BOUND:g} %", size, BOUND)


def claims(result: Result) -> tuple[Claim, ...]:
    """The claim, of the cases that were run."""
    most = max((len(conditions(result, letter)) for letter in result.sets), default=0)
    asked = [
        lambda found, letter, level, at=at: conditions(found, letter)[at] for at in range(most)
    ]
    return (Claim(CLAIM, asked),) if asked else ()


def sizes(result: Result) -> dict[str, dict[str, list[float]]]:
    """Absolute median errors by set, ascending, of small models and of the large one."""
    rows = result.select(clock=BEST).dropna(subset="median")
    errors, is_large = rows["median"].abs().sort_values(), rows["scene"] == LARGE
    return {
        letter: {
            "small": errors[(rows["set"] == letter) & ~is_large].tolist(),
            LARGE: errors[(rows["set"] == letter) & is_large].tolist(),
        }
        for letter in result.sets
    }


def counts(result: Result) -> dict[str, dict[str, int]]:
    """How many cases have each verdict by set, and how many there are."""
    said = {s: [one.verdict for one in conditions(result, s)] for s in result.sets}
    return {
        letter: {**{word: words.count(word) for word in (HOLDS, OPEN, FAILS)}, "all": len(words)}
        for letter, words in said.items()
    }


def answer(result: Result) -> str:
    """How far off the simulation is, over workers and rules that do not stall."""
    said = []
    for letter in result.sets:
        errors = [size for some in sizes(result)[letter].values() for size in some]
        if errors:
            said.append(
                f"set {letter}: the simulation with the clock '{BEST}' misses the time of all"
                f" updates by {np.median(errors):.1f} % (at most {max(errors):.1f} %), median over"
                f" {len(errors)} pairs of workers and rule, each the median of its repeats"
            )
    return f"{'; '.join(said) or 'all runs stall'}."


def error_table(result: Result, letter: str) -> results.Table:
    """Errors of a set: workers and rules."""
    rows, before = [], ""
    for (workers, rule), runs in result.select(set=letter).groupby(["scene", "method"], sort=False):
        first, by_clock = runs.iloc[0], runs.set_index("clock")
        if math.isnan(first["median"]):
            after = [f"after {by_clock.loc[clock].simulated_stalls_after:g}" for clock in CLOCKS]
            said = [f"stalls after {first.stalls_after:g}", *after]
        else:
            ends = [by_clock.loc[clock, ["median", "least", "most"]] for clock in CLOCKS]
            errors = [f"{middle:+.1f} ({low:+.1f} to {high:+.1f})" for middle, low, high in ends]
            said = [f"{first.real_seconds:.2f}", *errors]
        rows.append(("" if workers == before else workers, rule, int(first.updates), *said))
        before = workers
    heads = ("workers", "rule", "updates", "real [s]", "the law asked for", "measured clock")
    caption = (
        "Time of so many updates: real, median, and the error of the simulation in percent, median"
        " (smallest to largest) of the repeats, with three clocks."
    )
    return part.table((*heads, "and the server's time"), rows, caption, left=2)


TABLES = {
    "A": lambda result: error_table(result, "A"),
    "B": lambda result: error_table(result, "B"),
}


def worst_repeat(result: Result) -> dict[str, float]:
    """The largest error of a single repeat with small models, by set."""
    rows = result.select(clock=BEST, scene=lambda scenes: scenes != LARGE)
    worst = rows[["least", "most"]].abs().max(axis=1).groupby(rows["set"]).max()
    return {str(letter): float(error) for letter, error in worst.items()}


def middle_of_small(result: Result) -> dict[str, float]:
    """The median of the errors of small models, by set."""
    found = sizes(result)
    return {
        letter: float(np.median(errors["small"] or [math.nan])) for letter, errors in found.items()
    }


FACTS = {
    "sizes": sizes,
    "counts": counts,
    "worst repeat": worst_repeat,
    "middle of small": middle_of_small,
}


def figure(result: Result) -> Illustration:
    """Errors of the simulated time by workers and rule, a panel an engine."""
    with drawing():
        page = new_figure(4.2 * len(result.sets) + 1.0, 6.2)
        panels = page.subplots(1, len(result.sets), squeeze=False, sharex=True)[0]
        for axes, letter in zip(panels, result.sets, strict=True):
            rows = result.select(set=letter, clock=BEST).dropna(subset="median")
            at = np.arange(len(rows))
            ends = [rows["median"] - rows["least"], rows["most"] - rows["median"]]
            axes.errorbar(rows["median"], at, xerr=ends, fmt="o", markersize=4, linewidth=1)
            axes.axvspan(-BOUND, BOUND, color="0.9", zorder=0)
            axes.set_yticks(at, [f"{row.scene}, {row.method}" for row in rows.itertuples()])
            axes.invert_yaxis()
            axes.set_xscale("symlog", linthresh=20.0)
            engine = next(name for name, label in SETS.items() if label == letter)
            axes.set(title=engine, xlabel="error of the simulated time [%]")
            add_grid(axes)
    caption = (
        "Simulated over real time of all updates, less 1: medians, bars the smallest and the"
        f" largest of the repeats; grey {BOUND:g} % either way. The clock and the server's time of"
        " a repeat are from one run of the pure rule."
    )
    return Illustration(page, caption)


FIGURES = {"errors": figure}


if __name__ == "__main__":
    part.main(NAME)
