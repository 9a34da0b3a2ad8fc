"""Seeds, one after the other: each draws its scenario, is checked, and ends in one of four ways."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from asyncjax import traces
from tests.simulate.invariants import (
    Violation,
    check_against,
    check_alone,
    check_prefix,
    check_same_bits,
    ensure,
)
from tests.simulate.runs import check_run, draw_run
from tests.simulate.scenario import World, draw_scenario

# Events without an update for which the plain server goes on where the library says that none can
# come, and where it says that one does.
_IN_VAIN, _WITH_HOPE = 1_000, 20_000
_RUNS = 0.06  # share of seeds that also run something
LEVELS = ("quick", "traces", "runs", "only runs")


@dataclass
class Outcome:
    """How a seed ended."""

    seed: int
    kind: str  # "fine", "stalled", "refused" or "failed"
    drawn: str  # all that was drawn
    message: str = ""


@dataclass
class Report:
    """How many seeds ended how."""

    counts: Counter = field(default_factory=Counter)
    failed: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        """One line."""
        total = sum(self.counts.values())
        words = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        return f"{total} seeds in {self.seconds:.1f} s: {words}"


def run_seed(seed: int, level: str = "runs") -> Outcome:
    """Draws and checks one seed; a function of (seed, level) alone."""
    rng = np.random.default_rng(seed)
    also_runs = level == "only runs" or (level == "runs" and rng.random() < _RUNS)
    drawn = draw_run(rng) if also_runs else draw_scenario(rng, quick=level == "quick")
    try:
        kind = check_run(drawn, check_traces) if also_runs else check_traces(drawn, rng)[0]
    except Violation as error:
        return Outcome(seed, "failed", str(drawn), str(error))
    except ValueError as error:
        return Outcome(seed, "refused", str(drawn), str(error))
    except Exception as error:  # whatever else the library throws is a failure of this seed
        return Outcome(seed, "failed", str(drawn), f"{type(error).__name__}: {error}")
    return Outcome(seed, kind, str(drawn))


def check_traces(scenario, rng):
    """Makes and checks the traces of a scenario; "fine" or "stalled", and the trace."""
    world = World(scenario)
    try:
        trace = world.trace(scenario.n_updates)
    except traces.StalledError as error:
        _check_stalled(error, world)
        return "stalled", error.trace
    check_alone(trace, world)
    ensure(trace.n_updates == scenario.n_updates, "not as many updates as asked for")
    check_against(trace, world.log(scenario.n_updates, _WITH_HOPE), world)
    traces.validate(trace)
    extra = rng.random()
    if extra < 0.4:
        _check_longer(trace, world)
    elif extra < 0.5:
        check_same_bits(trace, World(scenario).trace(scenario.n_updates))
    elif extra < 0.52:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.npz"
            traces.save(path, trace)
            check_same_bits(trace, traces.load(path))
    _check_summary(trace, scenario)
    return "fine", trace


def _check_longer(trace, world):
    """The trace for twice as many updates begins like this one."""
    try:
        longer = world.trace(2 * world.scenario.n_updates)
    except traces.StalledError as error:
        longer = error.trace
        count = 0 if longer is None else longer.n_updates
        ensure(count >= trace.n_updates, "a longer trace stalls after {} updates", count)
    check_prefix(trace, longer)


def _check_stalled(error, world):
    """The plain server cannot go on either, and has done the same until then."""
    log = world.log(world.scenario.n_updates, _IN_VAIN)
    count = 0 if error.trace is None else error.trace.n_updates
    ensure(bool(log.stuck), "the library says that it cannot go on: {}", error)
    ensure(len(log.directions) == count, "{} updates, then stalled: {}", count, error)
    if error.trace is not None:
        check_alone(error.trace, world)
        check_against(error.trace, log, world, whole=False)
        traces.validate(error.trace)


def _check_summary(trace, scenario):
    """The figures of a trace."""
    summary = traces.summarize(trace)
    ensure(summary.updates == scenario.n_updates, "summary: updates")
    ensure(summary.used + summary.thrown_away == trace.n_arrivals, "summary: arrivals")
    ensure(int(summary.arrivals_by_worker.sum()) == trace.n_arrivals, "summary: by worker")
    ensure(int(summary.delay_histogram.sum()) == trace.n_arrivals, "summary: delays")
    ensure(0.0 < summary.utilisation <= 1.0 + 1e-9, "utilisation is {}", summary.utilisation)


def run_seeds(
    seeds: range, level: str = "runs", tell: Callable[[Outcome], None] | None = None, most: int = -1
) -> Report:
    """Runs seeds and counts; `tell` hears of every one, `most` failures end it."""
    report, began = Report(), time.monotonic()
    for seed in seeds:
        outcome = run_seed(seed, level)
        report.counts[outcome.kind] += 1
        if outcome.kind == "failed":
            report.failed.append(outcome)
        if tell is not None:
            tell(outcome)
        if len(report.failed) == most:
            break
    report.seconds = time.monotonic() - began
    return report
