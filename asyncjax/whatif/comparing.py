"""`compare`: every rule on the workers of a log, without any training.

All rules get the same span of time and the same durations: job j of worker i lasts what the j-th
recorded job of that worker lasted, and where a rule needs more jobs than were recorded the record
begins again. How sure the figures are comes of drawing the log anew in blocks of neighbouring jobs,
at the same places for all workers (Kuensch, 1989, the jackknife and the bootstrap for general
stationary observations): with r the ratio of a rule's rate of gradients to that of synchronous
rounds on the same drawn log,

    low, high = estimate exp(-+ 2 sd(log r))

Drawing cannot see what all spans have in common: where they end, jobs are under way that no count
has, so estimates are low, with many workers by more than 2 sd. With U of them and N counted, high
is therefore at least estimate (1 + U / N). Under a rule that keeps all workers busy and throws
nothing away, the whole log says what it brings in the long run; low and high enclose that too:

    sum_i 1 / mean_j durations_ij    over    n / mean_j max_i durations_ij

Of the n workers' time within the span each moment is useful (a job whose gradient enters an update,
or that is open at the end), wasted (a job that is stopped, or whose gradient is thrown away) or
idle (no job). With w_i the weight of worker i's gradients in all updates, p_i = w_i / sum w,

    heard_i = n p_i,      misplaced = 1/2 sum_i |p_i - 1/n|
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax import traces
from asyncjax.checks import real, whole
from asyncjax.clocks import Clock
from asyncjax.clocks.log_reader.log import Log
from asyncjax.clocks.of_trace import CYCLED
from asyncjax.traces import EventTrace
from asyncjax.traces.random_draws import check_key
from asyncjax.whatif import serving

Make = Callable[..., EventTrace]  # (clock, n_updates, key, server=0.0) -> trace
Rows = Sequence[np.ndarray]  # float64[k_i], one row per worker, time units
Tell = Callable[[str, float], None]  # what is being done, and the share of it that is done
SYNCHRONOUS = "synchronous"
PURE = "pure asynchronous"
DRAWS = 8
LONGEST = 150_000  # gradients of all workers together in the span
WORTH = 1.05  # a gain that is not surely above this is called none
FAIR = 0.03  # of the weight that is misplaced: below it all are heard alike
_SAME = 1.02  # gains so close are called equal
_EVENTS = 5  # times as long as in whole arrays an arrival takes one by one: where servers take time
_DRAWN = 8_000  # durations of all workers together in a drawn log
_LEAST_SECONDS, _SECONDS = 8.0, 7e-5  # of a processor: for any log, and a gradient that is traced
_LEVEL = 1e-3  # ratios so close are the same
_BUSY = 1e-6  # share of time that is idle by rounding alone
_ROUNDING = 1e-7  # of the span: durations are float32, a sum of them is up to 6e-8 of it off
_GRACE = 0.25  # of a usual job: how long a quorum waits for more
_DEADLINE = 3  # median deviations after the median


@dataclass(frozen=True, eq=False)
class Rule:
    """A way of training, as far as it decides who works when."""

    name: str  # what tables and pictures call it
    family: str  # the idea that it is a case of, which the page tells
    call: str  # how the trace is made with this library, a line of Python
    make: Make
    local_steps: int = 1  # gradient steps of a job; each counts as a gradient
    stops: bool = False  # whether late jobs are stopped, which real workers may be unable to
    server: float = 0.0  # time that the server takes for every gradient

    def served(self, server: float) -> Rule:
        """The same rule with a server that takes so long for every gradient."""
        call = self.call
        if "asynchronous" in call:
            call = call.replace("T", f"T, service=traces.Service({server:g})", 1)
        return replace(self, make=partial(self.make, server=server), call=call, server=server)


def rules_for(n: int, usual: float) -> tuple[Rule, ...]:
    """The rules for n workers whose usual job lasts `usual`; synchronous rounds are the first.

    Counts are shares of n, so that tables for four workers and for a hundred read alike; what comes
    out twice (half of two workers is one) is there once.
    """
    unique: dict[str, Rule] = {}
    for rule in (*_rounds(n), *_deadlines(n, usual), *_arriving(n), *_local(n)):
        unique.setdefault(rule.name, rule)
    return tuple(unique.values())


def _part(name: str, *values: Any, **named: Any) -> tuple[str, Any]:
    """A part of a rule, made by a function of `traces`: how it is written, and the part."""
    written = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    written += [f"{key}={value}" for key, value in named.items()]
    return f"traces.{name}({', '.join(written)})", getattr(traces, name)(*values, **named)


def _asynchronous(name: str, family: str, load: int = 1, **parts: tuple[str, Any]) -> Rule:
    """A rule of a server that handles arrivals one by one, of parts as they are written."""
    arguments = {key: part for key, (_, part) in parts.items()}

    def make(clock: Clock, n_updates: int, key: jax.Array, server: float = 0.0) -> EventTrace:
        return serving.asynchronous(clock, n_updates=n_updates, server=server, key=key, **arguments)

    written = [f"{key}={words}" for key, (words, _) in parts.items()]
    written += [f"load={load}"] * (load > 1) + ["key=key"] * ("dispatch" in parts)
    call = ", ".join(["traces.asynchronous(clock, n_updates=T", *written])
    return Rule(name, family, f"{call})", make, load, "cancel" in call)


def _synchronous(name: str, family: str, n: int, k: int, load: int = 1) -> Rule:
    """Rounds of the fastest k of n."""

    def make(clock: Clock, n_updates: int, key: jax.Array, server: float = 0.0) -> EventTrace:
        return serving.synchronous(clock, k=k, n_updates=n_updates, server=server, key=key)

    written = f", load={load}" * (load > 1)
    call = f"traces.synchronous(clock, k={k}, n_updates=T{written})"
    return Rule(name, family, call, make, load, k < n)


def _share(n: int, share: float) -> int:
    return max(1, round(share * n))


def _rounds(n: int) -> Iterator[Rule]:
    """Everybody, all but a few, three quarters, half."""
    yield _synchronous(SYNCHRONOUS, SYNCHRONOUS, n, n)
    spare, most, half = max(1, round(n / 16)), _share(n, 0.75), _share(n, 0.5)
    if n - spare > most:
        name = f"{spare} backup worker{'s' if spare > 1 else ''}"
        yield _synchronous(name, "backup workers", n, n - spare)
    for k in (most, half):
        if k < n:
            yield _synchronous(f"fastest {k} of {n}", "fastest k", n, k)


def _deadlines(n: int, usual: float) -> Iterator[Rule]:
    """Half of the workers and a little patience; the deadline that jobs usually keep."""
    half, wait = _share(n, 0.5), float(f"{_GRACE * usual:.3g}")
    grace = _part("grace_period", wait, quorum=half)
    yield _asynchronous(f"quorum of {half} + {_GRACE:g} of a job", "deadline", collect=grace)
    deadline = _part("adaptive_deadline", _DEADLINE, quorum=half)
    yield _asynchronous("adaptive deadline", "deadline", collect=deadline)


def _arriving(n: int) -> Iterator[Rule]:
    """Rules that do not wait for rounds."""
    family, start = "stale synchronous parallel", ('"start"', "start")
    for bound in (1, 4, 16):
        gate = _part("lead_at_most", bound)
        yield _asynchronous(f"SSP {bound} ahead", family, gate=gate, read=start)
    yield _asynchronous(PURE, PURE)
    for b in (_share(n, 0.25), _share(n, 0.5), n):
        if b > 1:
            yield _asynchronous(f"buffered {b}", "buffered", collect=_part("buffered", b))
    for threshold, stop in ((n, {}), (2 * n, {}), (n, {"cancel": True})):
        name = f"Ringmaster under {threshold} old" + " (stops)" * len(stop)
        collect = _part("ringmaster", threshold, **stop)
        yield _asynchronous(name, "Ringmaster", collect=collect)
    yield _asynchronous("Ringleader", "Ringleader", collect=_part("ringleader"))
    yield _asynchronous("shuffled", "shuffled", dispatch=_part("shuffled"))


def _local(n: int) -> Iterator[Rule]:
    """Several steps between two exchanges."""
    for steps in (4, 16):
        yield _synchronous(f"{steps} local steps (synchronous)", "local steps", n, n, steps)
    yield _asynchronous("4 local steps (asynchronous)", "local steps", 4)


def clock_of(rows: Rows, local_steps: int = 1) -> Clock:
    """The clock that replays rows round and round; a job of H local steps lasts H durations."""
    if local_steps > 1:  # over as many passes through the row
        rows = [np.tile(row, local_steps).reshape(len(row), -1).sum(axis=1) for row in rows]
    room = 1 << (max(map(len, rows)) - 1).bit_length()  # few lengths, so few compilations
    durations = np.stack([np.resize(row, room) for row in rows]).astype(np.float32)
    count = np.array([len(row) for row in rows], np.float32)
    return Clock({"durations": durations, "count": count}, CYCLED)


def redrawn(rows: Rows, key: jax.Array, *, share: float = 1.0) -> list[np.ndarray]:
    """Draws a share of rows anew, in about sqrt(k) blocks of sqrt(k) jobs, circular."""
    n_blocks = max(1, round(max(map(len, rows)) ** 0.5))
    taken = max(1, min(n_blocks, round(share * n_blocks)))
    begins = np.asarray(jax.random.uniform(key, (taken,)), np.float64)
    drawn = []
    for row in rows:
        length = max(1, round(len(row) / n_blocks))
        places = np.floor(begins * len(row)).astype(int)[:, None] + np.arange(length)
        drawn.append(np.asarray(row, np.float64)[places.reshape(-1) % len(row)])
    return drawn


class Figures(NamedTuple):
    """What a rule did within the span."""

    gradients_per_time: float  # gradients that entered an update, local steps counted, a time unit
    updates_per_time: float  # a time unit
    idle: float  # share of the workers' time
    wasted: float  # share of the workers' time
    staleness_mean: float  # updates, over the uses of gradients
    staleness_late: float  # updates; one use in a hundred is staler
    staleness_longest: int  # updates
    heard: np.ndarray  # float64[n], weight of each worker in all updates over a fair share
    misplaced: float  # share of the weight that would have to move to be fair
    passes: float  # how often the record of the worker who needed most jobs was gone through
    under_way: float  # jobs that were not over when the count ended, to a job that was counted
    server_busy: float = 0.0  # share of the time: gradients that arrived, times the server's time

    @property
    def busy(self) -> float:
        """Share of the workers' time that they had a job."""
        return 1.0 - self.idle

    @property
    def useful(self) -> float:
        """Share of the workers' time that went into updates."""
        return 1.0 - self.idle - self.wasted


def figures_of(
    trace: EventTrace,
    span: float,
    recorded: np.ndarray,
    local_steps: int = 1,
    server: float = 0.0,
) -> Figures:
    """Counts a trace from its beginning to the last update within a span, or to the first.

    To an update, since what is under way at another moment would count for some rules only. The
    trace lasts a little longer; `recorded` is how many durations each worker has in the log.
    """
    n = len(recorded)
    updates = max(1, int(np.count_nonzero(trace.update_time <= span * (1 + _ROUNDING))))
    span = float(trace.update_time[updates - 1])
    is_in = trace.time <= span
    worker, age, weight = _uses(trace, is_in, updates)
    total = np.bincount(worker, weight, minlength=n)
    shares = total / total.sum() if total.sum() > 0 else np.full(n, 1 / n)
    jobs = np.bincount(trace.worker[np.asarray(trace.start) < span], minlength=n)
    busy, wasted, under_way = _spent(trace, span, is_in)
    counted = int(np.count_nonzero(trace.used & is_in))
    rates = counted * local_steps / span, updates / span
    unused = max(0.0, 1.0 - busy / (n * span)), wasted / (n * span)
    late = float(np.quantile(age, 0.99, method="higher")) if len(age) else 0.0
    staleness = float(age.mean()) if len(age) else 0.0, late, int(age.max(initial=0))
    weight = n * shares, float(np.abs(shares - 1 / n).sum() / 2)
    passes = float(np.max(jobs * local_steps / recorded))
    served = server * np.count_nonzero(is_in) / span
    return Figures(*rates, *unused, *staleness, *weight, passes, under_way / counted, served)


def _uses(
    trace: EventTrace, is_in: np.ndarray, updates: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Worker, age and weight of every use of a gradient in the first `updates` updates."""
    if trace.reuse is None:
        taken = trace.used & is_in
        return trace.worker[taken], trace.delay[taken], trace.weight[taken].astype(np.float64)
    arrival, first, last, weight = trace.reuse
    count = np.maximum(np.minimum(last, updates - 1) - first + 1, 0)
    row = np.repeat(np.arange(len(arrival)), count)
    step = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    age = step - trace.read_version[arrival[row]]
    return trace.worker[arrival[row]], age, weight[row].astype(np.float64)


def _spent(trace: EventTrace, span: float, is_in: np.ndarray) -> tuple[float, float, int]:
    """Time spent on jobs, and on those that came to nothing; jobs not over at the span's end."""

    def took(start: Any, end: Any) -> np.ndarray:
        return np.minimum(end, span) - np.minimum(start, span)

    spent = took(trace.start, trace.time)
    busy, wasted = float(spent.sum()), float(spent[is_in & ~trace.used].sum())
    under_way = np.count_nonzero((np.asarray(trace.start) < span) & (trace.time > span))
    if trace.cancelled is not None:
        _, start, stop = trace.cancelled
        lost = float(took(start, stop).sum())
        busy, wasted = busy + lost, wasted + lost
        under_way += np.count_nonzero((start < span) & (stop > span))
    if trace.open_jobs is not None:
        start = np.nan_to_num(trace.open_jobs.start, nan=np.inf)  # NaN: it never began
        busy += float(took(start, span).sum())
        under_way += np.count_nonzero(start < span)
    return busy, wasted, int(under_way)


class Interval(NamedTuple):
    """An estimate, and the range in which it is expected to lie: see the head of the file."""

    value: float
    low: float
    high: float


class RuleResult(NamedTuple):
    """A rule, what it did, and what it gains."""

    rule: Rule
    figures: Figures
    gain: Interval  # rate of gradients over that of synchronous rounds

    @property
    def is_told_apart(self) -> bool:
        """Whether its difference to synchronous rounds is significant."""
        return self.gain.low > 1 + _LEVEL or self.gain.high * (1 + _LEVEL) < 1

    @property
    def is_worth_it(self) -> bool:
        """Whether it surely brings more gradients than synchronous rounds."""
        return self.gain.low > WORTH

    @property
    def hears_all(self) -> bool:
        """Whether the gradients of all workers count alike."""
        return self.figures.misplaced <= FAIR


def row_of(rows: Sequence[Any], name: str, what: str) -> Any:
    """The row of a rule."""
    for row in rows:
        if row.rule.name == name:
            return row
    known = ", ".join(row.rule.name for row in rows)
    raise ValueError(f"name must be a rule of the {what}, {known}, got {name!r}")


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found.

    Attributes:
        workers: Their names.
        rows: In the order of their gain, the largest first.
        span: What every rule got, time units.
        draws: How often the log was drawn anew for the intervals.
        notes: What was cut, in sentences.
    """

    workers: tuple[str, ...]
    rows: tuple[RuleResult, ...]
    span: float
    draws: int
    notes: tuple[str, ...]

    def of(self, name: str) -> RuleResult:
        """The row of a rule."""
        return row_of(self.rows, name, "comparison")

    @property
    def reference(self) -> RuleResult:
        """The row of synchronous rounds."""
        return self.of(SYNCHRONOUS)

    @property
    def plain(self) -> list[RuleResult]:
        """The rows of rules without local steps, the largest gain first."""
        return [row for row in self.rows if row.rule.local_steps == 1]

    @property
    def has_gain(self) -> bool:
        """Whether a rule surely brings more gradients than rounds, local steps apart."""
        return any(row.is_worth_it for row in self.plain)

    @property
    def best(self) -> RuleResult:
        """Pure asynchronous training if it is level with the largest gain, or that."""
        first, pure = self.plain[0], self.of(PURE)
        return pure if first.gain.value <= _SAME * pure.gain.value else first

    @property
    def leading(self) -> list[RuleResult]:
        """The best rule of each family, the largest gain first."""
        seen: dict[str, RuleResult] = {}
        for row in self.rows:
            seen.setdefault(row.rule.family, row)
        return list(seen.values())


def compare(
    log: Log,
    *,
    draws: int = DRAWS,
    key: jax.Array | None = None,
    progress: Tell | None = None,
    only: Collection[str] | None = None,
    server: float = 0.0,
) -> Comparison:
    """Compares ways of training on the workers of a log.

    Args:
        log: A `traces.Log`: the durations of every worker's jobs; of two workers at least.
        draws: How often the log is drawn anew for the intervals, at least 2.
        key: Typed key of the draws and of rules that draw; None: a fixed one.
        progress: Called with what is being done and the share of it that is done.
        only: Names of the rules that are compared with synchronous rounds; None: all.
        server: Time that the server takes for every gradient, one after another in the order of
            arrival, at least 0, in the unit of the log. A worker's next job waits for it, and a job
            lasts until its gradient is handled.

    Returns:
        The rules in the order of their gain. Cost: a second a thousand jobs of 32 workers, about.

    Example:
        >>> from asyncjax import traces, whatif
        >>> log = traces.read_log([("a", 1.0), ("b", 1.0), ("c", 4.0)] * 20)
        >>> comparison = whatif.compare(log)
        >>> comparison.of("pure asynchronous").gain.value  # 1 + 1 + 1/4 instead of 3/4 a time unit
        3.0
    """
    rows = rows_of(log)
    draws, server = whole("draws", draws, 2), real("server", server, least=0.0)
    progress = progress or untold
    key = jax.random.key(0) if key is None else key
    check_key(key, "compare")
    span, notes = _span(rows, server)
    rules = rules_for(len(rows), float(np.median(np.concatenate(rows))))
    if only is not None:
        known = {rule.name for rule in rules}
        if isinstance(only, str) or not set(only) <= known:
            raise ValueError(f"only must be names of rules, of {', '.join(known)}, got {only!r}")
        rules = tuple(rule for rule in rules if rule.name in {SYNCHRONOUS, *only})
    if server:
        rules = tuple(rule.served(server) for rule in rules)
    draw_key, rule_key = jax.random.split(key)
    share = min(1.0, _DRAWN / sum(map(len, rows)))
    drawn = [redrawn(rows, one, share=share) for one in jax.random.split(draw_key, draws)]
    spans = [min(span, max(float(row.sum()) for row in each)) for each in drawn]
    pairs = [(rows, span), *zip(drawn, spans, strict=True)]
    counted = []
    for place, rule in enumerate(rules):
        for column, (each, horizon) in enumerate(pairs):
            progress(rule.name, (place + column / len(pairs)) / len(rules))
            counted.append(played(rule, each, horizon, rule_key))
    rates = np.array([figures.gradients_per_time for figures in counted]).reshape(len(rules), -1)
    ratios = rates / rates[0]
    spread = 2 * np.std(np.log(ratios[:, 1:]), axis=1, ddof=1) * share**0.5
    plain = {steps: _plain(rows, server, steps) for steps in {rule.local_steps for rule in rules}}
    found = []
    for place, figures in enumerate(counted[:: len(pairs)]):
        limit = plain[rules[place].local_steps]
        gain = _interval(ratios[place, 0], spread[place], figures, limit)
        found.append(RuleResult(rules[place], figures, gain))
    found.sort(key=_rank)
    progress("rules compared", 1.0)
    return Comparison(tuple(log.workers), tuple(found), span, draws, notes)


def untold(what: str, share: float) -> None:
    """Tells nobody."""


def rows_of(log: Log) -> list[np.ndarray]:
    """The durations of a log, which must have two workers."""
    rows = [np.asarray(row, np.float64) for row in log.durations]
    if len(rows) < 2:
        raise ValueError(f"log must have at least two workers to compare rules, got {len(rows)}")
    return rows


def seconds_of(log: Log, server: float = 0.0) -> float:
    """Processor time of `compare` and a page, about, as measured on one machine, in seconds."""
    rows = rows_of(log)
    gradients = _span(rows, server)[0] * rate_of(rows) * (_EVENTS if server else 1)
    share = min(1.0, _DRAWN / log.n_jobs)
    return float(_LEAST_SECONDS + _SECONDS * gradients * (1 + DRAWS * share))


def played(rule: Rule, rows: Rows, span: float, key: jax.Array) -> Figures:
    """What a rule does on these durations within a span."""
    recorded, trace = np.array([len(row) for row in rows]), trace_of(rule, rows, span, key)
    return figures_of(trace, span, recorded, rule.local_steps, rule.server)


def trace_of(rule: Rule, rows: Rows, span: float, key: jax.Array, count: int = 64) -> EventTrace:
    """The trace of a rule, a little longer than the span, so that all updates at its end are in."""
    clock, until = clock_of(rows, rule.local_steps), span * (1 + _ROUNDING)
    return traces.lasting(lambda n: [rule.make(clock, n, key)], until, n_updates=count)[0]


def _interval(value: float, width: float, figures: Figures, plain: float) -> Interval:
    """Chance, and what was under way; `plain` is of rules that keep all workers busy."""
    low, high = value * np.exp(-width), value * np.exp(width)
    high = max(high, value * (1 + figures.under_way))
    if figures.idle < _BUSY and figures.wasted == 0:
        low, high = min(low, plain), max(high, plain)
    return Interval(float(value), float(low), float(high))


def rate_of(rows: Rows) -> float:
    """Gradients a time unit of workers who never wait."""
    return float(sum(1 / row.mean() for row in rows))


def _plain(rows: Rows, server: float, local_steps: int) -> float:
    """What the whole log says of never waiting but for the server: its rate over that of rounds."""
    longest = max(map(len, rows))
    table = np.sort([np.resize(row, longest) for row in rows], axis=0)
    rounds = serving.handled(table.T, server)[:, -1]
    jobs = rate_of([row * local_steps + server for row in rows])
    jobs = min(jobs, 1 / server if server else np.inf)
    return float(jobs * local_steps * rounds.mean() / len(rows))


def _rank(row: RuleResult) -> tuple[float, bool, float]:
    """The largest gain first; among equals the plain rule, then the freshest."""
    return -round(row.gain.value, 2), row.rule.name != PURE, row.figures.staleness_mean


def _span(rows: Rows, server: float) -> tuple[float, tuple[str, ...]]:
    """The busy time of the worker with the most, unless the others would make too many jobs."""
    span, rate = max(float(row.sum()) for row in rows), rate_of(rows)
    longest = LONGEST // _EVENTS if server else LONGEST
    if rate * span <= longest:
        return span, ()
    cut = longest / rate
    return cut, (
        f"The comparison spans the first {100 * cut / span:.2g} % of the record of the worker who"
        f" was busy longest, in which all together could make {longest:,} gradients.",
    )
