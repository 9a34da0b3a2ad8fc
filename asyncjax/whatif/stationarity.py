"""Is a log alike from its beginning to its end, and how far may the pace be off afterwards?

The time of a gradient under each rule, of a stretch of the log with durations d_it, n workers:

    fastest k of n (k = n: synchronous)    mean_t d_(k)t / k
    pure asynchronous, buffered            1 / sum_i (1 / mean_t d_it)

*Forecast.* Let s_m^2 be the variance of the logarithm of that time over the m windows of a log. How
it falls with the length of windows tells what jobs remember: as 1 / length if nothing, not at all
if slow phases have every length (a variance-time plot: Leland et al. 1994, "On the self-similar
nature of Ethernet traffic"; batch means without a choice of the batch). With the slope b of
log s_m^2 over log(1 / m), m = 6, 12, 24, between -1 and 0 and one for all rules, what follows, r
times as long as the log, takes exp(log time of the log -+ h) in nine cases of ten,

    h = t_5(0.95) s sqrt(r^b + 1),    s^2 = max_m s_m^2 m^b

where s^2 is the variance of the whole log's. Gains over synchronous rounds are treated alike.

*Alarm.* To the log times y of m windows (24, fewer where jobs remember for longer than one) a step
at each window, but for a sixth at either end, and a line are fitted. With c the coefficient of such
a shape of length 1 and e what is left,

    c^2 / mean_j (e_1 + ... + e_j)^2

needs no estimate of the memory (Shao and Zhang 2010, "Testing for change points in time series").
Its p-value is counted on independent windows, times two for step and line, and times the number of
rules. A log is not stationary if some rule has p < 0.05 and its halves differ by a tenth. So the
rate of false alarms is 5 % at most, for logs that are some twenty times as long as what jobs
remember; a log of a few slow phases looks like one that drifts. After an alarm the forecast starts
from the last period, and h is at least the change that was seen: it may come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import special

from asyncjax.clocks.log_reader.log import Log
from asyncjax.whatif.comparing import PURE, SYNCHRONOUS, Interval
from asyncjax.whatif.describing import autocorrelations, memory_of

ALARM = 0.05  # p below which a change counts
NOTABLE = 1.1  # times, that halves must differ by
AHEAD = 0.2  # of the log's length that is forecast
LEVEL = 0.9  # chance that the interval of a forecast holds
_FEWEST = 8  # windows, each longer than what jobs remember, before drift is told from chance
_MOST = 24
_SCALES = (6, 12, 24)  # windows of which variances are taken
_SHARES = (1.0, 0.75, 0.5)  # of the workers that a round waits for
_END = 6  # a period is no shorter than this part of a log
_DRAWS = 2000


class Period(NamedTuple):
    """A stretch of a log."""

    begin: float  # share of the log
    end: float
    times: np.ndarray  # float64[R], time of a gradient, over that in the whole log


class Stationarity(NamedTuple):
    """Whether a log is alike throughout, by R rules, and the pace that follows."""

    rules: tuple[str, ...]
    windows: np.ndarray  # float64[m, R], time of a gradient over that in the whole log; m = 0: none
    halves: np.ndarray  # float64[R], time of a gradient in the second half over that in the first
    p_values: np.ndarray  # float64[R], that chance makes such windows; NaN: too short to tell
    memory: float  # jobs that one is alike to, of the rule that remembers most
    periods: tuple[Period, ...]  # two of a log that is not stationary, or one, the whole
    pace: tuple[Interval, ...]  # R; time of a gradient in what follows; NaN: too short to tell
    gain: tuple[Interval, ...]  # R; its rate of gradients there over that of synchronous rounds

    @property
    def is_told(self) -> bool:
        """Whether the log is long enough to tell drift from chance."""
        return not np.isnan(self.p_values).any()

    @property
    def is_forecast(self) -> bool:
        """Whether the log is long enough to say how far the pace may be off."""
        return not np.isnan(self.pace[0].low)

    @property
    def is_alarm(self) -> bool:
        """Whether the log changes by more than chance and more than a tenth."""
        return len(self.periods) > 1

    @property
    def by_rule(self) -> list[tuple[str, float]]:
        """Each rule, and how its second half compares to its first."""
        return list(zip(self.rules, self.halves.tolist(), strict=True))

    @property
    def margin(self) -> tuple[float, float]:
        """How much less, and more, time synchronous rounds may take in what follows, as shares."""
        value, low, high = self.pace[0]
        return 1 - low / value, high / value - 1


def stationarity_of(log: Log, *, ahead: float = AHEAD) -> Stationarity:
    """Looks whether a log is alike throughout; `ahead` of its length is forecast."""
    table = _table(log.durations)
    waited, names = _rules(len(table))
    jobs, shortest = table.shape[1], min(map(len, log.durations))
    level = _log_times(table, waited)
    halves = _cut(table, 2) if jobs > 1 else (table, table)
    first, second = (_log_times(half, waited) for half in halves)
    memory = _memory(table, waited)
    count = int(min(_MOST, shortest // 2, jobs / memory))
    windows, p_values = np.zeros((0, len(names))), np.full(len(names), np.nan)
    periods = (Period(0.0, 1.0, np.ones(len(names))),)
    now, change = level, np.zeros(len(names))
    if count >= _FEWEST:
        windows = _of_windows(table, waited, count)
        p_values, step = _tested(windows)
        differs = (p_values < ALARM) & (np.abs(second - first) > np.log(NOTABLE))
        if differs.any():
            cut = int(step[np.argmax(np.abs(second - first) * differs)])
            at = round(jobs * cut / count)
            parts = [_log_times(part, waited) for part in (table[:, :at], table[:, at:])]
            ends = (0.0, at / jobs), (at / jobs, 1.0)
            shown = zip(ends, parts, strict=True)
            periods = tuple(Period(*end, np.exp(part - level)) for end, part in shown)
            now, change = parts[1], parts[1] - parts[0]
    scales = [_of_windows(table, waited, count) for count in _SCALES if shortest >= count]
    pace = _ahead(now, change, scales, ahead)
    gain = _ahead(
        now[:1] - now, change[:1] - change, [each[:, :1] - each for each in scales], ahead
    )
    relative, changes = np.exp(windows - level), np.exp(second - first)
    return Stationarity(names, relative, changes, p_values, memory, periods, pace, gain)


def _ahead(
    now: np.ndarray, change: np.ndarray, scales: Sequence[np.ndarray], ahead: float
) -> tuple[Interval, ...]:
    """Where what is `now`, in logarithms, should lie in what follows; NaN: no windows to tell."""
    half = np.maximum(_half_width(scales, ahead), np.abs(change)) if scales else np.nan * now
    ends = np.exp(np.stack([now, now - half, now + half], axis=1))
    return tuple(Interval(*row) for row in ends.tolist())


def times_of(table: np.ndarray) -> np.ndarray:
    """The logarithm of the time of a gradient by rule, float64[R], of durations float64[n, K]."""
    return _log_times(table, _rules(len(table))[0])


def _rules(n: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """For how many workers rounds wait, and what these rules and the pure one are called."""
    waited = tuple(dict.fromkeys(max(1, round(share * n)) for share in _SHARES))
    rounds = [f"fastest {k} of {n}" for k in waited[1:]]
    return waited, (SYNCHRONOUS, *rounds, *[PURE] * (n > 1))


def _table(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Workers side by side, float64[n, K]: shorter rows are stretched to the longest."""
    longest = max(map(len, rows))
    return np.stack([np.asarray(row)[np.arange(longest) * len(row) // longest] for row in rows])


def _cut(table: np.ndarray, count: int) -> list[np.ndarray]:
    ends = np.round(np.linspace(0, table.shape[1], count + 1)).astype(int)
    return [table[:, begin:end] for begin, end in pairwise(ends)]


def _log_times(table: np.ndarray, waited: Sequence[int]) -> np.ndarray:
    """The logarithm of the time of a gradient by rule, float64[R]."""
    k = np.array(waited)
    rounds = np.sort(table, axis=0)[k - 1].mean(axis=1) / k
    return np.log([*rounds, *[1 / (1 / table.mean(axis=1)).sum()] * (len(table) > 1)])


def _of_windows(table: np.ndarray, waited: Sequence[int], count: int) -> np.ndarray:
    """Log times of so many windows, float64[count, R]."""
    return np.stack([_log_times(part, waited) for part in _cut(table, count)])


def _half_width(scales: Sequence[np.ndarray], ahead: float) -> np.ndarray:
    """Half of the width of intervals, float64[R], from log times of m windows, float64[m, R]s."""
    counts = np.array([len(windows) for windows in scales])
    variances = np.stack([windows.var(axis=0, ddof=1) for windows in scales])
    varies = (variances > 1e-18).all(axis=0)
    length = -np.log(counts) + np.log(counts).mean()
    slopes = length @ np.log(variances[:, varies]) / max((length**2).sum(), 1e-18)
    slope = float(np.clip(slopes.mean(), -1.0, 0.0)) if varies.any() else 0.0
    whole = (variances * counts[:, None] ** slope).max(axis=0)
    quantile = special.stdtrit(counts[0] - 1, (1 + LEVEL) / 2)
    return quantile * np.sqrt(whole * (ahead**slope + 1.0))


@cache
def _shapes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps at some windows and a line, float64[S, count], mean 0 and length 1; where steps are."""
    window, end = np.arange(count), -(-count // _END)
    steps = np.arange(end, count - end + 1)
    rows = np.stack([*(window[None] >= steps[:, None]).astype(float), window / count])
    rows -= rows.mean(axis=1, keepdims=True)
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True)), steps


def _sizes(rows: np.ndarray) -> np.ndarray:
    """How far rows float64[R, m] have each shape, float64[R, S]."""
    shapes, _ = _shapes(rows.shape[1])
    apart = rows - rows.mean(axis=1, keepdims=True)
    part = apart @ shapes.T
    rest = np.cumsum(apart[:, None] - part[..., None] * shapes, axis=2)
    return part**2 / ((rest**2).mean(axis=2) + 1e-18)


@cache
def _by_chance(count: int) -> np.ndarray:
    """Sizes of the largest step and of the line in independent windows, ascending."""
    sizes = _sizes(np.random.default_rng(0).standard_normal((_DRAWS, count)))
    return np.sort([sizes[:, :-1].max(axis=1), sizes[:, -1]], axis=1)


def _tested(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P-values by rule, and the window at which each changes: where a line fits better, half."""
    sizes, steps = _sizes(windows.T), _shapes(len(windows))[1]
    seen = np.stack([sizes[:, :-1].max(axis=1), sizes[:, -1]])
    pairs = zip(_by_chance(len(windows)), seen, strict=True)
    larger = np.stack([_DRAWS - np.searchsorted(chance, row) for chance, row in pairs])
    p_values = np.minimum(1.0, 2 * len(sizes) * (1 + larger.min(axis=0)) / (1 + _DRAWS))
    step = steps[sizes[:, :-1].argmax(axis=1)]
    return p_values, np.where(larger[1] < larger[0], len(windows) // 2, step)


def _memory(table: np.ndarray, waited: Sequence[int]) -> float:
    """The longest memory of a rule, in jobs, of what a step or a line leaves of its times."""
    rounds = np.sort(table, axis=0)[np.array(waited) - 1]
    rows = np.log(np.stack([*rounds, 1 / (1 / table).sum(axis=0)]))
    count = min(_MOST, rows.shape[1] // 2)
    if count < _END:
        return 1.0
    rows -= rows.mean(axis=1, keepdims=True)
    shapes = _shapes(count)[0][:, np.arange(rows.shape[1]) * count // rows.shape[1]]
    part = rows @ shapes.T / (shapes**2).sum(axis=1)
    best = (part**2 * (shapes**2).sum(axis=1)).argmax(axis=1)
    rest = rows - np.take_along_axis(part, best[:, None], axis=1) * shapes[best]
    return max(1.0, *(memory_of(autocorrelations(row)) for row in rest))
