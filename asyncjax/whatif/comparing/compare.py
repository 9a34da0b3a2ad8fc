"""`compare`: every rule on the workers of a log, without any training.

All rules get the same span of time and the same durations: job j of worker i lasts what the j-th
recorded job of that worker lasted, and where a rule needs more jobs than were recorded the record
begins again. How sure the figures are comes of drawing the log anew in blocks: with r the ratio of
a rule's rate of gradients to that of synchronous rounds on the same drawn log,

    low, high = estimate exp(-+ 2 sd(log r))

Drawing cannot see what all spans have in common: where they end, jobs are under way that no count
has, so estimates are low, with many workers by more than 2 sd. With U of them and N counted, high
is therefore at least estimate (1 + U / N). Under a rule that keeps all workers busy and throws
nothing away, the whole log says what it brings in the long run; low and high enclose that too:

    sum_i 1 / mean_j durations_ij    over    n / mean_j max_i durations_ij
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import jax
import numpy as np

from asyncjax import traces
from asyncjax.checks import function, instance, whole
from asyncjax.traces.log_reader.log import Log
from asyncjax.traces.random_draws import check_key
from asyncjax.whatif.comparing.rows import Rows, clock_of, redrawn
from asyncjax.whatif.comparing.rules import PURE, SYNCHRONOUS, Rule, rules_for
from asyncjax.whatif.comparing.tally import ROUNDING, Figures, figures_of

Tell = Callable[[str, float], None]  # what is being done, and the share of it that is done
DRAWS = 8
LONGEST = 150_000  # gradients of all workers together in the span
_DRAWN = 8_000  # durations of all workers together in a drawn log
_LEAST_SECONDS, _SECONDS = 6.0, 4e-5  # of a processor: for any log, and a gradient that is traced
_LEVEL = 1e-3  # ratios so close are the same
_BUSY = 1e-6  # share of time that is idle by rounding alone


class Interval(NamedTuple):
    """An estimate, and the range in which it is expected to lie: see the head of the file."""

    value: float
    low: float
    high: float


def is_apart(one: Interval, other: Interval) -> bool:
    """Whether two intervals do not overlap.

    Example:
        >>> is_apart(Interval(1.5, 1.4, 1.6), Interval(1.0, 1.0, 1.0))
        True
    """
    room = 1 + _LEVEL
    return one.low > other.high * room or one.high * room < other.low


class RuleResult(NamedTuple):
    """A rule, what it did, and what it gains."""

    rule: Rule
    figures: Figures
    gain: Interval  # rate of gradients over that of synchronous rounds

    @property
    def is_told_apart(self) -> bool:
        """Whether it is faster or slower than synchronous rounds, and not only by chance."""
        return is_apart(self.gain, Interval(1.0, 1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found.

    Attributes:
        workers: Their names.
        rows: The rules in the order of their gain, the largest first.
        span: What every rule got, time units.
        draws: How often the log was drawn anew for the intervals.
        notes: What was cut or repeated, in sentences.
    """

    workers: tuple[str, ...]
    rows: tuple[RuleResult, ...]
    span: float
    draws: int
    notes: tuple[str, ...]

    @property
    def order(self) -> list[str]:
        """Names of the rules in the order in which `rules_for` has them."""
        usual = 1.0  # names do not depend on it
        return [rule.name for rule in rules_for(len(self.workers), usual)]

    def of(self, name: str) -> RuleResult:
        """The row of a rule.

        Raises:
            ValueError: There is none of this name.
        """
        for row in self.rows:
            if row.rule.name == name:
                return row
        known = ", ".join(row.rule.name for row in self.rows)
        raise ValueError(f"name must be a rule of the comparison, {known}, got {name!r}")


def compare(
    log: Log,
    *,
    draws: int = DRAWS,
    key: jax.Array | None = None,
    progress: Tell | None = None,
) -> Comparison:
    """Compares ways of training on the workers of a log.

    Args:
        log: A `traces.Log`: the durations of every worker's jobs.
        draws: How often the log is drawn anew for the intervals, at least 2.
        key: Typed key of the draws and of rules that draw; None: a fixed one.
        progress: Called with what is being done and the share of it that is done.

    Returns:
        The rules in the order of their gain. Cost: a second a thousand jobs of 32 workers, about.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: There are fewer than two workers, or `draws` is below 2.

    Example:
        >>> from asyncjax import traces, whatif
        >>> log = traces.read_log([("a", 1.0), ("b", 1.0), ("c", 4.0)] * 20)
        >>> found = whatif.compare(log)
        >>> found.of("pure asynchronous").gain.value  # 1 + 1 + 1/4 instead of 3/4 a time unit
        3.0
    """
    rows, names = rows_of(log)
    draws = whole("draws", draws, 2)
    if progress is not None:
        function("progress", progress, "a function of a text and a share, or None")
    key = jax.random.key(0) if key is None else key
    check_key(key, "compare")
    span, notes = _span(rows)
    rules = rules_for(len(rows), float(np.median(np.concatenate(rows))))
    draw_key, rule_key = jax.random.split(key)
    share = min(1.0, _DRAWN / sum(map(len, rows)))
    drawn = [redrawn(rows, one, share=share) for one in jax.random.split(draw_key, draws)]
    spans = [min(span, max(float(row.sum()) for row in each)) for each in drawn]
    pairs = [(rows, span), *zip(drawn, spans, strict=True)]
    rates = np.empty((len(rules), len(pairs)))
    found: list[Figures] = []
    for place, rule in enumerate(rules):
        for column, (each, horizon) in enumerate(pairs):
            if progress is not None:
                progress(rule.name, (place + column / len(pairs)) / len(rules))
            figures = played(rule, each, horizon, rule_key)
            rates[place, column] = figures.gradients_per_time
            if column == 0:
                found.append(figures)
    ratios = rates / rates[0]
    spread = 2 * np.std(np.log(ratios[:, 1:]), axis=1, ddof=1) * share**0.5
    plain = _plain(rows)
    made = [
        RuleResult(rule, figures, _interval(ratio, width, figures, plain))
        for rule, figures, ratio, width in zip(rules, found, ratios[:, 0], spread, strict=True)
    ]
    made.sort(key=_place)
    if progress is not None:
        progress("rules compared", 1.0)
    return Comparison(tuple(names), tuple(made), span, draws, notes)


def rows_of(log: Log) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """The durations of a log, and the names of its workers, read and checked.

    Raises:
        TypeError: It is no log.
        ValueError: It has fewer than two workers.
    """
    instance("log", log, Log, "a Log, as traces.read_log makes it")
    rows = [np.asarray(row, np.float64) for row in log.durations]
    if len(rows) < 2:
        raise ValueError(f"log must have at least two workers to compare rules, got {len(rows)}")
    return rows, tuple(log.workers)


def seconds_of(log: Log) -> float:
    """Processor time of `compare` and a page, about, as measured on one machine, in seconds.

    It grows with the gradients that workers who never wait make in the span and in the drawn logs.

    Example:
        >>> from asyncjax import traces
        >>> round(seconds_of(traces.read_log(np.ones((10, 1000)))))
        9
    """
    rows, _ = rows_of(log)
    gradients = _span(rows)[0] * sum(1 / row.mean() for row in rows)
    share = min(1.0, _DRAWN / log.n_jobs)
    return float(_LEAST_SECONDS + _SECONDS * gradients * (1 + DRAWS * share))


def played(rule: Rule, rows: Rows, span: float, key: jax.Array) -> Figures:
    """What a rule does on these durations within a span."""
    trace = trace_of(rule, rows, span, key)
    recorded = np.array([len(row) for row in rows])
    return figures_of(trace, span, recorded, rule.local_steps)


def trace_of(
    rule: Rule, rows: Rows, span: float, key: jax.Array, *, n_updates: int = 64
) -> traces.EventTrace:
    """The trace of a rule on these durations that lasts a little longer than the span.

    So that all updates at its very end are there, of which there may be many at once.
    """
    clock, until = clock_of(rows, rule.local_steps), span * (1 + ROUNDING)
    (made,) = traces.lasting(
        lambda count: [rule.make(clock, count, key)], until, n_updates=n_updates
    )
    return made


def _interval(value: float, width: float, figures: Figures, plain: float) -> Interval:
    """Chance, and what was under way; `plain` is of rules that keep all workers busy."""
    low, high = value * np.exp(-width), value * np.exp(width)
    high = max(high, value * (1 + figures.under_way))
    if figures.idle < _BUSY and figures.wasted == 0:
        low, high = min(low, plain), max(high, plain)
    return Interval(float(value), float(low), float(high))


def _plain(rows: Sequence[np.ndarray]) -> float:
    """What the whole log says of never waiting: its rate over that of rounds.

    Example:
        >>> _plain([np.array([1.0, 1.0]), np.array([1.0, 3.0])])
        1.5
    """
    longest = max(map(len, rows))
    rounds = reduce(np.maximum, (np.resize(row, longest) for row in rows))
    return float(sum(1 / row.mean() for row in rows) * rounds.mean() / len(rows))


def _place(row: RuleResult) -> tuple[float, bool, float]:
    """The largest gain first; among equals the plain rule, then the freshest."""
    return -round(row.gain.value, 2), row.rule.name != PURE, row.figures.staleness_mean


def _span(rows: Sequence[np.ndarray]) -> tuple[float, tuple[str, ...]]:
    """The busy time of the worker with the most, unless the others would make too many jobs."""
    busy = np.array([row.sum() for row in rows])
    rate = float(sum(1 / row.mean() for row in rows))
    span = float(busy.max())
    if rate * span <= LONGEST:
        return span, ()
    cut = LONGEST / rate
    return cut, (
        f"The comparison spans the first {100 * cut / span:.2g} % of the record of the worker who"
        f" was busy longest, in which all together could make {LONGEST:,} gradients.",
    )


__all__ = ["SYNCHRONOUS", "Comparison", "Interval", "RuleResult", "compare", "is_apart"]
