"""Fits clocks to recorded times: which law forecasts best what came next, with memory or without.

Each law is fitted to the first four fifths of every worker's times and scored by the logarithm of
the density that it gives to the last fifth, all that came before being known. Densities of a law
are mixed with a hundredth of a wide lognormal one, so that a few stray jobs do not decide, and are
at most that of a lognormal one of deviation 0.005, which counts as constant. Drift or phases
replace independent times only if they are better by 3 nats in all, odds of 20. The best law is
fitted again to the whole log.

    independent  one family of `families` for all workers, with parameters of each
    drift        log d = level_i + slope_i (share of the log that is over) + noise of a family
    phases       log d = level_i + shift_i z + noise of a family,  z as in `hidden_phases`: of the
                 worker's own jobs, of steps that all share, or of time that all share
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncjax.clocks import hidden_phases, independent_laws, memory
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.compositions import with_speed
from asyncjax.clocks.families import FITS, Parameters, log_density
from asyncjax.clocks.hidden_phases import Moments
from asyncjax.clocks.of_trace import recorded_jobs, rows_of
from asyncjax.clocks.recordings import Recording
from asyncjax.clocks.slow_phases import phases

_LEAST = 5  # jobs of every worker
_MEMORY = 40  # jobs of every worker, before memory can be told from chance
_HELD_OUT = 5  # the last one of so many parts
_BETTER = 3.0  # nats by which a law with more parts must be better
_STRAY = 0.01  # share of a lognormal law in every density
_FINEST = 0.005  # deviation of log times below which they count as constant
_MOST_BINS = 20_000
_NOTABLE = 4.0  # standard errors of a slowdown in common phases, or the worker has no part in them
_PIECES = 10  # of a drift that goes on
_FEW = 5  # phases in the log, below which it is said


@dataclass(frozen=True)
class Fit:
    """What `clocks.fit` learned from a log; `print(fit)` says it in words.

    Attributes:
        clock: The clock to go on with, in the unit of the log.
        law: Name of the law that was chosen, a key of `scores`.
        scores: Held-out log likelihood of every law that was tried, nats a job; higher is better.
        sentence: What was seen, in plain words.
    """

    clock: Clock
    law: str
    scores: dict[str, float]
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class _Log(NamedTuple):
    """Times of jobs, one row per worker."""

    durations: list[np.ndarray]  # float64[k_i]
    start: list[np.ndarray]  # float64[k_i], when they began

    def until(self, counts: Sequence[int]) -> _Log:
        """The first jobs of every worker."""
        cut = [[row[:k] for row, k in zip(rows, counts, strict=True)] for rows in self]
        return _Log(*cut)


class _Model(NamedTuple):
    """A law, fitted."""

    clock: Clock
    likelihood: Callable[[_Log], float]  # logarithm of the density of a log, nats
    said: str  # what it says of the workers, without a full stop


def fit(log: Any) -> Fit:
    """Fits a clock to recorded times, with the law that forecasts them best.

    Formula: the score of a law is `log p(last fifth | first four fifths) / jobs`, its parameters
    from the first four fifths. Tried are constant times, the independent families (exponential,
    shifted exponential, gamma, lognormal, pareto, weibull), drift, phases of every worker's own,
    and phases that workers share, by step and by time.

    Note:
        Times are taken to be those of workers that compute, one job after the other, where the log
        has no starts. Phases by step need as many jobs of every worker. Of a drift the trend goes
        on for a fifth of the log, as far as it was checked, and then stays.

    Args:
        log: A `Recording`, a trace that records starts (that of a live run), or durations,
            positive: `[n, k]`, or one row per worker of any length.

    Returns:
        The clock, the name of its law, the scores, and a sentence. Laws with memory are tried only
        with at least 40 jobs of every worker; the sentence says so where there are fewer.

    Raises:
        ValueError: A worker has fewer than 5 jobs.

    Example:
        >>> import jax
        >>> from asyncjax import clocks
        >>> even = clocks.gamma(9.0, [1.0] * 6)
        >>> truth = clocks.phases(even, slowdown=3.0, fast=60.0, slow=40.0, common=True)
        >>> fitted = clocks.fit(truth.durations(jax.random.key(0), 1000))
        >>> fitted.law
        'common phases by step'
    """
    whole = _read(log)
    shortest = min(map(len, whole.durations))
    counts = [len(row) - max(1, len(row) // _HELD_OUT) for row in whole.durations]
    first, held = whole.until(counts), sum(map(len, whole.durations)) - sum(counts)
    tried: dict[str, Callable[[_Log], _Model]] = {"constant": _constant}
    varies = max(float(np.log(row).std()) for row in whole.durations) > _FINEST
    if varies:
        tried |= {name: _independent(name) for name in FITS}
    if varies and shortest >= _MEMORY:
        tried |= {"drift": _drift, "own phases": _phases(_own_jobs, common=False)}
        if len(counts) > 1:
            if len(set(counts)) == 1:
                tried["common phases by step"] = _phases(_own_jobs, common=True)
            tried["common phases by time"] = _phases(_bins_of(whole), common=True, timed=True)
    scores = {}
    for name, law in tried.items():
        model = law(first)
        scores[name] = float(model.likelihood(whole) - model.likelihood(first)) / held
    law = _chosen(scores, held)
    model = tried[law](whole)
    return Fit(model.clock, law, scores, _sentence(whole, model.said, law, scores))


def _read(log: Any) -> _Log:
    """Rows of times, from whatever records them."""
    if hasattr(log, "worker") and hasattr(log, "start"):
        worker, duration, known = recorded_jobs(log)
        begin = np.asarray(log.start, np.float64)
        order = np.argsort(begin, kind="stable")
        rows = [order[worker[order] == i] for i in range(known)]
        read = _Log([duration[row] for row in rows], [begin[row] for row in rows])
    else:
        times = log.durations if isinstance(log, Recording) else log
        rows = rows_of(times, "log")
        read = _Log(rows, [np.cumsum(row) - row for row in rows])
    for worker, row in enumerate(read.durations):
        if len(row) < _LEAST:
            raise ValueError(
                f"log must have at least {_LEAST} jobs of every worker, got {len(row)} of worker"
                f" {worker}"
            )
    return read


def _chosen(scores: dict[str, float], held: int) -> str:
    """The best independent law, unless a later one is better by enough."""
    simple = [name for name in scores if name in FITS]
    best = max(simple, key=lambda name: scores[name], default="constant")
    if (scores[best] - scores["constant"]) * held < _BETTER:
        best = "constant"
    rest = {name: score for name, score in scores.items() if name not in (*FITS, "constant")}
    other = max(rest, key=lambda name: rest[name], default=best)
    return other if (scores[other] - scores[best]) * held >= _BETTER else best


class _Noise(NamedTuple):
    """Independent times of a family, with parameters for every worker."""

    name: str
    parameters: list[Parameters]
    stray: list[Parameters]  # of the lognormal law that is mixed in

    @property
    def clock(self) -> Clock:
        """The clock of it."""
        columns = {key: np.array([p[key] for p in self.parameters]) for key in self.parameters[0]}
        return getattr(independent_laws, self.name)(**columns)

    def log_density(self, worker: int, times: np.ndarray) -> np.ndarray:
        """Logarithm of the density at times of one worker, float64[k]."""
        law = log_density(self.name, times, self.parameters[worker])
        stray = log_density("lognormal", times, self.stray[worker])
        most = -np.log(times) - np.log(_FINEST * np.sqrt(2 * np.pi))  # of times that do not vary
        return np.minimum(np.logaddexp(np.log1p(-_STRAY) + law, np.log(_STRAY) + stray), most)


def _noise(rows: list[np.ndarray], names: Sequence[str] = tuple(FITS)) -> _Noise:
    """The family that makes times the most likely."""
    stray = [FITS["lognormal"](row) for row in rows]
    stray = [{**p, "sigma": 1 + 2 * p["sigma"]} for p in stray]
    fitted = [_Noise(name, [FITS[name](row) for row in rows], stray) for name in names]
    return max(fitted, key=lambda noise: _likelihood(noise, rows))


def _likelihood(noise: _Noise, rows: list[np.ndarray]) -> float:
    return float(sum(noise.log_density(i, row).sum() for i, row in enumerate(rows)))


def _constant(log: _Log) -> _Model:
    """Every job as long as the mean of its worker, give or take what counts as constant."""
    mean = np.array([row.mean() for row in log.durations])
    narrow = [{"mean": value, "sigma": _FINEST} for value in mean]
    noise = _Noise("lognormal", narrow, _noise(log.durations, ["lognormal"]).stray)
    said = "All jobs of a worker take about the same time"
    clock = independent_laws.constant(mean)
    return _Model(clock, lambda other: _likelihood(noise, other.durations), said)


def _independent(name: str) -> Callable[[_Log], _Model]:
    """Every job for itself, of one family."""

    def model(log: _Log) -> _Model:
        noise = _noise(log.durations, [name])
        said = f"Times of jobs are like independent ones, of the law {name}"
        return _Model(noise.clock, lambda other: _likelihood(noise, other.durations), said)

    return model


def _drift(log: _Log) -> _Model:
    """Times that grow or shrink with time, at a rate of each worker."""
    end = np.array([start[-1] for start in log.start])
    apart = [start - start.mean() for start in log.start]
    pairs = zip(apart, log.durations, strict=True)
    slope = np.array([(a * np.log(row)).sum() / (a**2).sum() for a, row in pairs])

    def trend(other: _Log) -> list[np.ndarray]:
        return [slope[i] * (start - end[i]) for i, start in enumerate(other.start)]

    def flat(other: _Log) -> list[np.ndarray]:
        rows = zip(other.durations, trend(other), strict=True)
        return [row * np.exp(-rise) for row, rise in rows]

    noise = _noise(flat(log))

    def likelihood(other: _Log) -> float:
        return _likelihood(noise, flat(other)) - sum(rise.sum() for rise in trend(other))

    span = np.array([start[-1] - start[0] for start in log.start])
    piece = span / _HELD_OUT / _PIECES
    rates = np.exp(-np.outer(slope * piece, np.arange(_PIECES + 1) + 0.5))
    clock = with_speed(
        noise.clock, np.repeat(piece[:, None], _PIECES, axis=1), rates, repeats=False
    )
    factor = np.exp(slope * span)
    said = (
        f"Durations drift: at the end of the log jobs take {np.median(factor):.2g} times as long as"
        f" at its start (median worker; {factor.min():.2g} to {factor.max():.2g})"
    )
    return _Model(clock, likelihood, said)


Bins = Callable[[_Log], list[np.ndarray]]  # the moment of every job, int64[k_i]


def _own_jobs(log: _Log) -> list[np.ndarray]:
    """Moments are jobs of the same number."""
    return [np.arange(len(row)) for row in log.durations]


def _width(log: _Log) -> float:
    """Width of bins of time: a job of the median worker, unless the log is very long."""
    span = max(float(start[-1]) for start in log.start) - min(float(s[0]) for s in log.start)
    return max(float(np.median([row.mean() for row in log.durations])), span / _MOST_BINS)


def _bins_of(log: _Log) -> Bins:
    """Moments are bins of time."""
    width, zero = _width(log), min(float(start[0]) for start in log.start)
    return lambda other: [((start - zero) / width).astype(np.int64) for start in other.start]


def _moments(log: _Log, bins: list[np.ndarray]) -> Moments:
    """Collects log times by moments."""
    length = 1 + max(int(moment.max()) for moment in bins)
    columns = []
    for row, moment in zip(log.durations, bins, strict=True):
        logs = np.log(row)
        count = np.bincount(moment, minlength=length).astype(np.float64)
        mean = np.bincount(moment, logs, minlength=length) / np.maximum(count, 1)
        rest = np.bincount(moment, (logs - mean[moment]) ** 2, minlength=length)
        columns.append((count, mean, rest))
    return Moments(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))


class _Phased(NamedTuple):
    """Phases in which workers are slow, on top of independent times."""

    bins: Bins
    common: bool
    width: float  # of a moment: 1 job, or time units where phases go by time
    timed: bool
    begins: np.ndarray  # float64[C], chance a moment that a slow phase begins; C chains
    ends: np.ndarray  # float64[C]
    slowdown: np.ndarray  # float64[n]
    is_slow: list[np.ndarray]  # bool[T_c] of every chain
    noise: _Noise  # of the times, slow ones divided by their slowdown

    @property
    def share(self) -> np.ndarray:
        """Share of moments in slow phases, float64[C]."""
        return np.clip([state.mean() for state in self.is_slow], 1e-3, 1 - 1e-3)

    @property
    def lengths(self) -> np.ndarray:
        """Mean length of slow phases, float64[C], in jobs or time units."""
        share = self.share
        return np.maximum(1 / self.ends, (share / (1 - share)).clip(1.0)) * self.width

    def likelihood(self, log: _Log) -> float:
        """Logarithm of the density of a log."""
        places = self.bins(log)
        gains = np.zeros((1 + max(int(moment.max()) for moment in places), len(places)))
        for i, (moment, row) in enumerate(zip(places, log.durations, strict=True)):
            gain = self.noise.log_density(i, row / self.slowdown[i]) - np.log(self.slowdown[i])
            gain -= self.noise.log_density(i, row)
            gains[:, i] = np.bincount(moment, gain, minlength=len(gains))
        gains = gains.sum(axis=1, keepdims=True) if self.common else gains
        sure = hidden_phases.evidence(gains, self.begins, self.ends)
        return _likelihood(self.noise, log.durations) + float(sure.sum())

    def clock(self, log: _Log, rows: list[np.ndarray]) -> Clock:
        """The clock, scaled so that every worker has the mean that it has in the log."""
        share, slow = self.share, self.lengths

        def on(base: Clock) -> Clock:
            how: dict[str, Any] = {"common": self.common, "timed": self.timed}
            how |= {"fast": slow * (1 - share) / share, "slow": slow, "slowdown": self.slowdown}
            return phases(base, **how)

        clock = on(self.noise.clock)
        pace = 1 - share + share / self.slowdown if self.timed else 1.0
        factor = np.array([row.mean() for row in log.durations]) / clock.mean * pace
        scaled = [row * ratio for row, ratio in zip(rows, factor, strict=True)]
        return on(_noise(scaled, [self.noise.name]).clock)

    @property
    def said(self) -> str:
        """What was seen, in words."""
        length, share = np.median(self.lengths), np.median(self.share)
        factor = self.slowdown[np.abs(np.log(self.slowdown)) > 0]
        slower = np.median(factor) if len(factor) else 1.0
        begun = [int((state[1:] & ~state[:-1]).sum()) + int(state[0]) for state in self.is_slow]
        many = int(np.median(begun))
        unit, all_of = ("time units", "the time") if self.timed else ("jobs", "all jobs")
        rough = f"; the log has only {many} of them, so this is rough" if many < _FEW else ""
        if self.common:
            return (
                f"Workers share slow phases of about {length:.2g} {unit}, {share:.0%} of {all_of},"
                f" in which {len(factor)} of {len(self.slowdown)} workers take {slower:.3g} times"
                f" as long{rough}"
            )
        return (
            f"Workers have slow phases of their own of about {length:.2g} {unit}, {share:.0%} of"
            f" {all_of}, in which they take {slower:.3g} times as long (median worker){rough}"
        )


def _phases(bins: Bins, *, common: bool, timed: bool = False) -> Callable[[_Log], _Model]:
    """Phases, of every worker's own jobs, of steps that all share, or of time that all share."""

    def model(log: _Log) -> _Model:
        places = bins(log)
        chain = hidden_phases.learn(_moments(log, places), common=common)
        is_notable = (np.abs(chain.shift) > _NOTABLE * chain.error) | (not common)
        slowdown = np.exp(np.where(is_notable, chain.shift, 0.0))
        states = [chain.slow[:, 0 if common else i] > 0.5 for i in range(len(places))]
        states = [state[: moment.max() + 1] for state, moment in zip(states, places, strict=True)]
        parts = zip(log.durations, states, places, slowdown, strict=True)
        rows = [row / np.where(state[moment], factor, 1.0) for row, state, moment, factor in parts]
        is_slow = [chain.slow[:, 0] > 0.5] if common else states
        width = _width(log) if timed else 1.0
        learned = (chain.begins, chain.ends, slowdown, is_slow, _noise(rows))
        phased = _Phased(bins, common, width, timed, *learned)
        return _Model(phased.clock(log, rows), phased.likelihood, phased.said)

    return model


def _sentence(log: _Log, said: str, law: str, scores: dict[str, float]) -> str:
    """What was seen: the law, what memory there is, and whether the log is long enough."""
    shortest, is_simple = min(map(len, log.durations)), law in (*FITS, "constant")
    if not is_simple:
        best = max(scores[name] for name in FITS)
        said += f"; {scores[law] - best:.2g} nats a held-out job better than independent times"
    if law == "constant":
        return f"{said}."
    if shortest < _MEMORY:
        return (
            f"{said}. The log is too short to tell memory from chance: {shortest} jobs of a worker,"
            f" {_MEMORY} are needed."
        )
    lagged = [memory.autocorrelation(np.log(row)[None])[0, 1] for row in log.durations]
    together = memory.moves_together(log.durations) and "common" not in law
    lasting = np.median([memory.block_length(row) for row in log.durations]) > 1
    if is_simple and (together or lasting):
        said = (
            f"Neither phases nor drift forecast better than independent times of the law {law}, yet"
            " times depend on others: `resampled` keeps that"
        )
    shared = "; workers are slow together more often than by chance" if together else ""
    lag = f"The lag-1 correlation of log times is {np.median(lagged):.2f} (median worker)"
    return f"{said}. {lag}{shared}."
