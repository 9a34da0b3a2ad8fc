"""The workers of a log, described: who is slow, when, and by which law.

Workers are put side by side: by step, by time where starts are known, or by the number of the job.
Of the logarithm of the duration of worker i at moment t,

    log d_it = m + a_i + b_t + e_it,

the variance is split into that of a (between workers), of b (in time: all are slow at once) and the
rest. Standard errors are those of the means of blocks of moments, far longer than what jobs
remember. Whether workers differ at all is asked by exchanging them within each block,

    p = (1 + number of exchanges with means of workers as far apart) / (1 + number of exchanges),

whether one is slow for good by a t test on its blocks, with Holm's correction for n of them.

A gap between two jobs is an outage if it is longer than five typical jobs and ten typical gaps of
its worker. A job of a worker with J jobs is a stall if it took three times the median, and

    d > median + s log(J / 0.02),   s = (ninth decile - median) / log 5,

which, were the upper half of durations exponential, one log in a hundred would have.

Where durations are differences of stamps e_ij and all workers stamp after a barrier, all seem to
take as long as the slowest, and nobody can see how uneven they are:

    median_j (max_i e_ij - min_i e_ij) < 0.05 median_ij d_ij
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from asyncjax.checks import whole
from asyncjax.clocks import Clock, resampled
from asyncjax.traces import Log
from asyncjax.whatif.laws import Fit, fits_of
from asyncjax.whatif.words import said

QUANTILES = (0.05, 0.25, 0.75, 0.95, 0.99)
SURE = 0.01  # p below which a difference counts
NOTABLE = 1.1  # times the usual duration, from which a worker counts as slow
_JOBS = 2.0  # of the slowest worker, that a stretch of time holds on average
_FEWEST = 8  # columns, before another way of making them is tried
_MOST = 2000  # columns; of more, neighbours are averaged
_BLOCKS = ((64, 16), (16, 8), (4, 4))  # so many blocks, from so many moments on
_EXCHANGES = 999
_SLOW_BLOCK = 1.25  # times the usual duration, from which a block of a worker counts as slow
_CHANCE = 4.0  # typical deviations of a block that it must also be away
_SHIFTS = 199
_LEAST = 4  # jobs of a worker, or moments, before a correlation is taken, or a job called a stall
_MOST_LAGS = 1000
_OUTAGE = 5.0, 10.0  # typical jobs, and typical gaps, that an outage is longer than
_STALL = 3.0  # times the median that a stall takes at least
_EXPECTED = 0.01  # jobs of an exponential tail that are called stalls
_TOGETHER = 0.05  # of a step: stamps that lie closer are those of a barrier
_STAMPS = 3  # of every worker, at least


def aligned(log: Log) -> tuple[np.ndarray, str]:
    """Workers side by side: mean log durations float64[n, T], by "step", "time" or "job"."""
    logs = [np.log(row) for row in log.durations]
    by, table = "step", _by_step(log, logs)
    if table is None:
        by, table = "time", _by_time(log, logs)
    if table is None:
        length = min(map(len, logs))
        by, table = "job", np.stack([row[:length] for row in logs])
    unit = -(-table.shape[1] // _MOST)
    length = table.shape[1] // unit * unit
    return table[:, :length].reshape(len(table), -1, unit).mean(axis=2), by


def _by_step(log: Log, logs: list[np.ndarray]) -> np.ndarray | None:
    """Columns of steps that every worker has once; None: they are too few."""
    if log.step is None or any(len(np.unique(row)) < len(row) for row in log.step):
        return None
    common = reduce(np.intersect1d, log.step)
    if 2 * len(common) < min(map(len, logs)):
        return None
    pairs = zip(log.step, logs, strict=True)
    return np.stack([values[np.isin(row, common)] for row, values in pairs])


def _by_time(log: Log, logs: list[np.ndarray]) -> np.ndarray | None:
    """Columns of stretches of time in which every worker had a job; None: they are too few."""
    if log.start is None or log.end is None:
        return None
    span = max(float(row[-1]) for row in log.end)
    width = _JOBS * max(span / len(row) for row in logs)
    count = int(span / width)
    if count < _FEWEST:
        return None
    moments = [((a + b) / 2 / width).astype(int) for a, b in zip(log.start, log.end, strict=True)]
    rows = [i * count + np.minimum(row, count - 1) for i, row in enumerate(moments)]
    place, size = np.concatenate(rows), len(logs) * count
    jobs = np.bincount(place, minlength=size)
    total = np.bincount(place, np.concatenate(logs), minlength=size)
    table = np.where(jobs > 0, total / np.maximum(jobs, 1), np.nan).reshape(len(logs), count)
    table = table[:, ~np.isnan(table).any(axis=0)]
    return table if table.shape[1] >= max(_FEWEST, count // 2) else None


class Figures(NamedTuple):
    """Figures of n workers, in the unit of the log."""

    jobs: np.ndarray  # int64[n]
    mean: np.ndarray  # float64[n]
    median: np.ndarray  # float64[n]
    cv: np.ndarray  # float64[n], standard deviation over mean
    quantiles: np.ndarray  # float64[n, 5], of `QUANTILES`
    longest: np.ndarray  # float64[n]
    relative: np.ndarray  # float64[n], mean over the median of the workers' means
    busy: np.ndarray  # float64[n], share of the span of the log spent on jobs; NaN without starts


def figures_of(log: Log) -> Figures:
    """Figures of every worker of a log."""

    def each(of: Callable[..., Any]) -> np.ndarray:
        return np.array([of(row) for row in log.durations])

    mean, quantiles = each(np.mean), each(lambda row: np.quantile(row, QUANTILES))
    spread, relative = each(np.std) / mean, mean / np.median(mean)
    parts = each(len), mean, each(np.median), spread, quantiles, each(np.max), relative
    return Figures(*parts, log.utilisation)


class Spread(NamedTuple):
    """Why durations differ."""

    between: float  # share of the variance of log durations, 0 .. 1: workers differ for good
    in_time: float  # share: moments at which all are slow, or fast
    rest: float  # share: what is neither
    p_value: float  # that workers only differ by chance; NaN: the log is too short to tell
    factor: np.ndarray  # float64[n], geometric mean duration, over that of the median worker
    error: np.ndarray  # float64[n], standard error of log(factor); NaN: too short
    p_values: np.ndarray  # float64[n], Holm: that the worker is like the median one
    for_good: np.ndarray  # int8[n], 1: slow for good, -1: fast for good, 0: neither
    at_times: np.ndarray  # float64[n], share of blocks in which it was 1.25 times as slow as usual
    blocks: int  # that the moments were put into

    @property
    def is_told(self) -> bool:
        """Whether the log is long enough to tell who is slow by chance."""
        return not np.isnan(self.p_value)

    @property
    def is_notable(self) -> bool:
        """Whether a worker is a tenth slower, or faster, than the median one."""
        return bool(np.abs(np.log(self.factor)).max() > np.log(NOTABLE))


def spread_of(log: Log, side: np.ndarray, rng: np.random.Generator) -> Spread:
    """Splits the variance of a log, and says who is slow for good."""
    n, moments = side.shape
    count = next((blocks for least, blocks in _BLOCKS if moments >= least), 0)
    apart = side - np.median(side, axis=0)
    centre = apart.mean(axis=1)
    within = float(np.mean([np.log(row).var() for row in log.durations]))
    if not count or n < 2:
        unknown, between, in_time = np.full(n, np.nan), float(centre.var()), 0.0
        factor = np.exp(centre - np.median(centre))
        rest = np.nan, factor, unknown, unknown, np.zeros(n, np.int8), np.zeros(n), count
    else:
        length = moments // count * count
        means = apart[:, :length].reshape(n, count, -1).mean(axis=2)
        error = means.std(axis=1, ddof=1) / np.sqrt(count)
        between = max(0.0, float(centre.var(ddof=1) - np.mean(error**2)))
        in_time = min(_in_time(side), within)
        effect = means.mean(axis=1) - np.median(means.mean(axis=1))
        sizes = np.abs(effect) / np.maximum(error, 1e-12)
        p_values = _holm(2.0 * special.stdtr(count - 1, -sizes))
        notable = (p_values < SURE) & (np.abs(effect) > np.log(NOTABLE))
        for_good = np.where(notable, np.sign(effect), 0).astype(np.int8)
        away = means - np.median(means, axis=1, keepdims=True)
        typical = 1.4826 * float(np.median(np.abs(away)))
        is_slow = away > max(np.log(_SLOW_BLOCK), _CHANCE * typical)
        chance = _exchanged(means, rng)
        rest = chance, np.exp(effect), error, p_values, for_good, is_slow.mean(axis=1), count
    total = (between + within) or 1.0
    return Spread(between / total, in_time / total, (within - in_time) / total, *rest)


def _in_time(table: np.ndarray) -> float:
    """Variance of what all workers share at a moment, from the mean squares of two ways."""
    n, moments = table.shape
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    mean_square = (rest**2).sum() / ((n - 1) * (moments - 1))
    columns = n * table.mean(axis=0).var(ddof=1)
    return max(0.0, float(columns - mean_square) / n)


def _holm(p_values: np.ndarray) -> np.ndarray:
    """Corrected for as many tests as there are."""
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return corrected


def _exchanged(means: np.ndarray, rng: np.random.Generator) -> float:
    """Probability that means of workers, float64[n, blocks], are as far apart by chance."""
    seen = means.mean(axis=1).var()
    draws = (rng.permuted(means, axis=0).mean(axis=1).var() for _ in range(_EXCHANGES))
    as_far = sum(bool(draw >= seen * (1 - 1e-12)) for draw in draws)
    return (1 + as_far) / (1 + _EXCHANGES)


class Dependence(NamedTuple):
    """What durations remember, of the job before and of others at the moment: of their logs."""

    lag_one: np.ndarray  # float64[n], of a job with the one before it of its worker; NaN: too few
    error: np.ndarray  # float64[n], standard error of `lag_one` where there is none, 1 / sqrt(J)
    mean_lag_one: float  # over workers, by number of jobs
    p_lag_one: float  # that there is none in any worker
    memory: float  # jobs that one job is alike to: 1 + 2 sum of correlations, mean over workers
    common: float  # mean correlation of two workers at the same moment; NaN: one worker
    p_common: float  # that there is none: from workers shifted against each other in time


def dependence_of(log: Log, side: np.ndarray, rng: np.random.Generator) -> Dependence:
    """Correlations within and across workers."""
    lags = [autocorrelations(np.log(row)) for row in log.durations]
    lag_one = np.array([row[0] if len(row) else np.nan for row in lags])
    jobs = np.array([len(row) for row in log.durations], float)
    known = np.isfinite(lag_one)
    mean, p_value, memory = 0.0, np.nan, 1.0
    if known.any():
        centred = lag_one[known] + 1.0 / jobs[known]  # without any it is -1/J on average
        mean = float(np.average(centred, weights=jobs[known]))
        p_value = float(2.0 * special.ndtr(-abs(mean) * np.sqrt(jobs[known].sum())))
        memory = float(np.mean([memory_of(row) for row in lags if len(row)]))
    common, p_common = _common(side, rng)
    return Dependence(lag_one, 1.0 / np.sqrt(jobs), mean, p_value, memory, common, p_common)


def autocorrelations(row: np.ndarray) -> np.ndarray:
    """Correlations at lags 1, 2, ...; none for a row that is short or does not vary."""
    apart = row - row.mean()
    length = len(row)
    if length < _LEAST or (apart**2).mean() < 1e-20:
        return np.zeros(0)
    spectrum = np.fft.rfft(apart, 2 * length)
    sums = np.fft.irfft(np.abs(spectrum) ** 2)[: min(length, _MOST_LAGS)]
    return sums[1:] / sums[0]


def memory_of(correlations: np.ndarray) -> float:
    """1 + 2 times the correlations up to the first that is lost in the noise."""
    small = np.flatnonzero(correlations < 2.0 / np.sqrt(len(correlations) + 1))
    end = small[0] if small.size else len(correlations)
    return 1.0 + 2.0 * float(correlations[:end].sum())


def _common(table: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Mean correlation of pairs of rows, and p that it is chance, of rows that are shifted."""
    apart = table - table.mean(axis=1, keepdims=True)
    deviation = apart.std(axis=1, keepdims=True)
    scaled = (apart / np.maximum(deviation, 1e-300))[deviation[:, 0] > 1e-10]
    n, moments = scaled.shape
    if n < 2 or moments < _LEAST:
        return np.nan, np.nan

    def pairs(rows: np.ndarray) -> float:
        return float((rows.sum(axis=0) ** 2).mean() - n) / (n * (n - 1))

    seen, place, as_large = pairs(scaled), np.arange(moments), 0
    for _ in range(_SHIFTS):
        shifts = rng.integers(moments, size=(n, 1))
        shifted = np.take_along_axis(scaled, (place + shifts) % moments, axis=1)
        as_large += abs(pairs(shifted)) >= abs(seen)
    return seen, (1 + as_large) / (1 + _SHIFTS)


class Outages(NamedTuple):
    """Outages and stalls, each in the order of workers and then of time."""

    worker: np.ndarray  # int64[A], who was away
    begin: np.ndarray  # float64[A], when, in the unit of the log since its first job
    length: np.ndarray  # float64[A], for how long
    stalled: np.ndarray  # int64[B], who took so long
    stall: np.ndarray  # float64[B], how long the job took
    stall_factor: np.ndarray  # float64[B], over the median of its worker
    stall_job: np.ndarray  # int64[B], number of the job at its worker
    share: np.ndarray  # float64[n], of its time that each worker was away; NaN without starts
    is_known: bool  # whether starts are known, and gaps so seen


def outages_of(log: Log) -> Outages:
    """Finds the outages and stalls of a log."""
    away, stalls = np.zeros((0, 3)), np.zeros((0, 4))
    n, share = log.n_workers, np.full(log.n_workers, np.nan)
    for worker, row in enumerate(log.durations):
        if log.start is not None and log.end is not None and len(row) > 1:
            end = log.end[worker][:-1]
            gap = np.maximum(log.start[worker][1:] - end, 0.0)
            is_long = gap > _OUTAGE[0] * np.median(row) + _OUTAGE[1] * np.median(gap)
            rows = np.stack([np.full(len(gap), worker), end, gap], axis=1)[is_long]
            away = np.concatenate([away, rows])
        if len(row) >= _LEAST:
            median, decile = np.quantile(row, (0.5, 0.9))
            tail = (decile - median) / np.log(5.0) * np.log(len(row) / (2 * _EXPECTED))
            jobs = np.flatnonzero(row > max(median + tail, _STALL * median))
            took = row[jobs]
            rows = np.stack([np.full(len(jobs), worker), took, took / median, jobs], axis=1)
            stalls = np.concatenate([stalls, rows])
    who, stalled = away[:, 0].astype(np.int64), stalls[:, 0].astype(np.int64)
    if log.start is not None:
        share = np.bincount(who, away[:, 2], minlength=n) / log.span
    jobs = stalls[:, 3].astype(np.int64)
    known = log.start is not None
    _, begin, length = away.T
    _, took, factor, _ = stalls.T
    return Outages(who, begin, length, stalled, took, factor, jobs, share, known)


class Barrier(NamedTuple):
    """Stamps that lie together, step by step."""

    spread: float  # from the first to the last worker, median over steps, in the unit of the log
    step: float  # the median duration of a step


def barrier_of(log: Log) -> Barrier | None:
    """What hides how uneven workers are; None: durations were measured, or stamps lie apart."""
    if log.stamps is None or log.n_workers < 2 or min(map(len, log.stamps)) < _STAMPS:
        return None
    stamps = [np.sort(row) for row in log.stamps]
    reference = min(stamps, key=len)
    ends = np.stack([_nearest(row, reference) for row in stamps])
    spread = float(np.median(np.ptp(ends, axis=0)))
    step = float(np.median(np.concatenate(log.durations)))
    return Barrier(spread, step) if spread < _TOGETHER * step else None


def _nearest(row: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Of a sorted row the entry that is nearest to each moment."""
    after = np.clip(np.searchsorted(row, moments), 1, len(row) - 1)
    before = row[after - 1]
    return np.where(moments - before <= row[after] - moments, before, row[after])


@dataclass(frozen=True)
class Description:
    """What a log says of its workers; `whatif.describe` makes it.

    Attributes:
        log: What was read.
        by: What workers were compared by: the "step", the "time", or the number of the "job".
        figures: Mean, median, spread and quantiles of each worker.
        spread: Why durations differ, and who is slow for good.
        dependence: Correlations in time and across workers.
        outages: When workers were away, and which jobs stalled.
        fits: Laws fitted to the durations, the best first.
        barrier: What hides how uneven workers are; None: nothing does.
    """

    log: Log
    by: str
    figures: Figures
    spread: Spread
    dependence: Dependence
    outages: Outages
    fits: tuple[Fit, ...]
    barrier: Barrier | None = None

    @property
    def clock(self) -> Clock:
        """The clock of the best law, or one that draws from the log where no law fits."""
        return self.fits[0].clock if self.fits[0].is_good else resampled(list(self.log.durations))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The description in words, without full stops; needs jinja2, of the extra `whatif`."""
        mean, share = self.figures.mean, self.outages.share
        facts = {
            "slowest_over_fastest": mean.max() / mean.min(),
            "percent_away": 100 * share.mean(),
        }
        return said("workers", description=self, sure=SURE, **facts)

    @property
    def seems_barrier(self) -> bool:
        """Whether all workers' times agree step by step but change from step to step."""
        rows = self.log.durations
        if len({len(row) for row in rows}) != 1 or len(rows[0]) < 3:
            return False
        table = np.stack([np.asarray(row, np.float64) for row in rows])
        within = float(np.median(table.std(axis=0) / table.mean(axis=0)))
        over = float(table.mean(axis=0).std() / table.mean())
        return within < 0.01 and over > 10 * max(within, 1e-4)

    def judged(self, sign: int) -> list[str]:
        """Who is slow (1) or fast (-1) for good, the most so first, with its factor."""
        factor, names = self.spread.factor, self.log.workers
        places = np.flatnonzero(self.spread.for_good == sign)
        places = places[np.argsort(-sign * factor[places])]
        return [f"{names[place]} ({factor[place]:.2g} times)" for place in places]

    @property
    def slow_at_times(self) -> tuple[list[str], float]:
        """Who is neither, but was slow in a part of the log, and in how much of it."""
        places = np.flatnonzero((self.spread.for_good == 0) & (self.spread.at_times > 0))
        share = float(self.spread.at_times[places].mean()) if len(places) else 0.0
        return [self.log.workers[place] for place in places], share


def describe(log: Log, *, seed: int = 0) -> Description:
    """Describes the workers of a log.

    Args:
        log: As `traces.read_log` makes it.
        seed: Of the random numbers that p-values and standard errors are sampled with.

    Returns:
        The description; the same for the same log and seed. A few seconds for 32 workers with 1,000
        jobs each, and memory for some dozen copies of the log.

    Note:
        P-values suppose that jobs further apart than a block are independent, and those of laws
        that all are. Durations of a log that were rounded fit no smooth law by their p-value; their
        distance says whether that matters.

    Example:
        >>> from asyncjax import clocks, traces, whatif
        >>> log = traces.read_log(clocks.recording("llm_slow_worker").durations)
        >>> description = whatif.describe(log)
        >>> description.spread.factor.round(1), description.spread.for_good
        (array([2.3, 1. , 1. , 1. ]), array([1, 0, 0, 0], dtype=int8))
        >>> description.sentences[1]
        'Slow for good, not by chance: 0 (2.3 times)'
    """
    rng = np.random.default_rng(whole("seed", seed, 0))
    side, by = aligned(log)
    spread, dependence = spread_of(log, side, rng), dependence_of(log, side, rng)
    parts = figures_of(log), spread, dependence, outages_of(log), fits_of(log, rng)
    return Description(log, by, *parts, barrier_of(log))
