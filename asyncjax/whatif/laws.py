"""Laws fitted to durations, and how well they fit: distance, sampled p-value, likelihood.

Fitted to a row of durations d by maximum likelihood, with SciPy's densities and distributions:

    constant             d = mean
    exponential          mean
    shifted_exponential  shift = (J min - mean) / (J - 1),  mean of the rest
    gamma                log(shape) - digamma(shape) = log(mean d) - mean(log d)
    lognormal            mean and deviation of log d
    weibull              sum d^k log d / sum d^k - 1/k = mean(log d),  k the shape
    markov, two speeds   two groups of log d as far apart as can be; how often they change

The Kolmogorov distance is

    D = max_d |F(d) - share of jobs that took at most d|

Since the parameters are fitted, the p-value comes from samples: as many jobs are drawn from the
fitted law, fitted again, and their distances compared with that of the log (a parametric
bootstrap). The spread of the parameters that are fitted again is their standard error. Laws are
compared by the likelihood less a price for parameters,

    BIC = sum over workers of (p log J - 2 log L).

The best is that with the smallest BIC of those that p does not reject, or else that with the
smallest distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from asyncjax import clocks
from asyncjax.clocks import Clock
from asyncjax.clocks.families import FITS, Parameters
from asyncjax.traces import Log

_SMALL = 1e-12
_SAMPLES = 199
_MOST_JOBS = 300  # of a worker that p-values are sampled with, evenly taken
_MOST_WORKERS = 32
_LEAST = 5  # jobs of every worker, before laws are fitted
CONSTANT = 0.005  # coefficient of variation up to which durations count as constant
REJECTED = 0.01  # p-value below which a law does not fit
CLOSE = 0.05  # Kolmogorov distance of the median worker up to which it is good enough all the same
TWO_SPEEDS = 0.95  # share of the variance that two speeds must explain


class Family(NamedTuple):
    """A law with parameters; fits go along the last axis, so many samples are fitted at once."""

    fit: Callable[[np.ndarray], Parameters]  # of durations float64[..., J]
    law: Any  # of scipy.stats
    arguments: Callable[..., tuple]  # of it, from the parameters: shape, place, scale

    def cdf(self, x: np.ndarray, parameters: Parameters) -> np.ndarray:
        """The share of durations up to x, float64[..., J]."""
        return self.law.cdf(x, *self._columns(parameters))

    def log_density(self, x: np.ndarray, parameters: Parameters) -> np.ndarray:
        """The logarithm of the density at x, float64[..., J]."""
        return self.law.logpdf(x, *self._columns(parameters))

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, ...], parameters: Parameters
    ) -> np.ndarray:
        """Durations of this shape."""
        arguments = self._columns(parameters)
        if self.law is stats.weibull_min:  # SciPy's own way is the quantile function, and slower
            return arguments[-1] * rng.standard_exponential(shape) ** (1 / arguments[0])
        return self.law.rvs(*arguments, size=shape, random_state=rng)

    def distance(self, x: np.ndarray, parameters: Parameters) -> np.ndarray:
        """Kolmogorov distances of samples float64[..., J], float64[...]."""
        jobs = x.shape[-1]
        share = self.cdf(np.sort(x, axis=-1), parameters)
        above = np.arange(1, jobs + 1) / jobs - share
        return np.maximum(above, 1.0 / jobs - above).max(axis=-1)

    def _columns(self, parameters: Parameters) -> tuple:
        return self.arguments(**{k: np.asarray(v)[..., None] for k, v in parameters.items()})


FAMILIES = {
    "exponential": Family(FITS["exponential"], stats.expon, lambda mean: (0.0, mean)),
    "shifted_exponential": Family(
        FITS["shifted_exponential"], stats.expon, lambda shift, mean: (shift, mean)
    ),
    "gamma": Family(FITS["gamma"], stats.gamma, lambda shape, mean: (shape, 0.0, mean / shape)),
    "lognormal": Family(
        FITS["lognormal"],
        stats.lognorm,
        lambda mean, sigma: (sigma, 0.0, mean * np.exp(-(sigma**2) / 2)),
    ),
    "weibull": Family(
        FITS["weibull"],
        stats.weibull_min,
        lambda shape, mean: (shape, 0.0, mean / special.gamma(1 + 1 / shape)),
    ),
}


class Fit(NamedTuple):
    """A law with parameters for every worker."""

    name: str  # of the function in `clocks`
    parameters: Parameters  # float64[n] each
    errors: Parameters  # float64[n] each, standard errors; NaN: not sampled
    distance: np.ndarray  # float64[n], Kolmogorov distance of each worker
    p_value: float  # that durations of this law are as far from it; NaN: not sampled
    bic: float  # the smaller the better; NaN: the law has no density
    clock: Clock  # in the unit of the log

    @property
    def median_distance(self) -> float:
        """Kolmogorov distance of the median worker."""
        return float(np.median(self.distance))

    @property
    def is_rejected(self) -> bool:
        """Whether durations of the law are seldom so far from it."""
        return self.p_value < REJECTED

    @property
    def is_good(self) -> bool:
        """Whether the law may stand for the log."""
        return bool(self.p_value >= REJECTED or self.median_distance <= CLOSE)


def fits_of(log: Log, rng: np.random.Generator) -> tuple[Fit, ...]:
    """Fits every law to the durations of a log, the best first.

    Workers and jobs are independent in these laws; only in `markov` (two speeds) jobs remember.
    """
    rows = list(log.durations)
    spread = [float(row.std() / row.mean()) for row in rows]
    constant = _constant(rows)
    if max(spread) <= CONSTANT or min(map(len, rows)) < _LEAST:
        return (constant,)
    smooth: list[Fit] = []
    if min(spread) > 1e-9:  # a density is infinite where a worker does not vary
        smooth = [_fit(name, family, rows, rng) for name, family in FAMILIES.items()]
    smooth.sort(key=lambda f: (f.is_rejected, f.median_distance if f.is_rejected else f.bic))
    speeds, share = _two_speeds(rows)
    first, last = ([speeds], []) if share >= TWO_SPEEDS else ([], [speeds])
    return (*first, *smooth, *last, constant)


def _stacked(workers: Sequence[Parameters]) -> Parameters:
    return {name: np.array([worker[name] for worker in workers]) for name in workers[0]}


def _fit(name: str, family: Family, rows: list[np.ndarray], rng: np.random.Generator) -> Fit:
    """A law, worker by worker."""
    fitted = [family.fit(row) for row in rows]
    errors = [dict.fromkeys(parameters, np.nan) for parameters in fitted]
    seen, sampled, bic = 0.0, np.zeros(_SAMPLES), 0.0
    for worker, (row, parameters) in enumerate(zip(rows, fitted, strict=True)):
        density = float(family.log_density(row, parameters).sum())
        bic += len(parameters) * np.log(len(row)) - 2.0 * density
        if worker >= _MOST_WORKERS:
            continue
        part = row[:: -(-len(row) // _MOST_JOBS)]
        of_part = family.fit(part)
        drawn = family.draw(rng, (_SAMPLES, len(part)), of_part)
        drawn = np.maximum(drawn, np.finfo(float).tiny)
        again = family.fit(drawn)
        scale = np.sqrt(len(part) / len(row))
        errors[worker] = {key: value.std(axis=0) * scale for key, value in again.items()}
        seen += float(family.distance(part, of_part)) * np.sqrt(len(part))
        sampled += family.distance(drawn, again) * np.sqrt(len(part))
    pairs = zip(rows, fitted, strict=True)
    distances = np.array([family.distance(row, parameters) for row, parameters in pairs])
    p_value = (1 + int((sampled >= seen).sum())) / (1 + _SAMPLES)
    parameters = _stacked(fitted)
    clock = getattr(clocks, name)(**parameters)
    return Fit(name, parameters, _stacked(errors), distances, p_value, bic, clock)


def _constant(rows: list[np.ndarray]) -> Fit:
    """Every job as long as the mean of its worker."""
    mean = np.array([row.mean() for row in rows])
    error = np.array([row.std() / np.sqrt(len(row)) for row in rows])
    away = [row / row.mean() - 1 for row in rows]
    below = np.array([max((a < -CONSTANT).mean(), (a > CONSTANT).mean()) for a in away])
    clock = clocks.constant(mean)
    return Fit("constant", {"compute": mean}, {"compute": error}, below, np.nan, np.nan, clock)


def _two_speeds(rows: list[np.ndarray]) -> tuple[Fit, float]:
    """Every worker with two speeds, and what they explain of the median worker."""
    fitted = [two_speeds(row) for row in rows]
    parameters = _stacked([parameters for parameters, _, _ in fitted])
    errors = _stacked([errors for _, errors, _ in fitted])
    share = np.array([explained for _, _, explained in fitted])
    clock = clocks.markov(**parameters)
    fit = Fit("markov", parameters, errors, 1.0 - share, np.nan, np.nan, clock)
    return fit, float(np.median(share))


def two_speeds(x: np.ndarray) -> tuple[Parameters, Parameters, float]:
    """Parameters of `clocks.markov` for durations float64[J], standard errors, explained share."""
    logs = np.sort(np.log(x))
    jobs, total, share = len(x), float(logs.var()), 0.0
    is_slow = np.zeros(jobs, bool)
    if jobs > 1 and total >= _SMALL:
        left = np.arange(1, jobs)
        sums = np.cumsum(logs)
        low, high = sums[:-1] / left, (sums[-1] - sums[:-1]) / (jobs - left)
        between = left * (jobs - left) / jobs**2 * (high - low) ** 2
        best = int(np.argmax(between))
        is_slow = np.log(x) > logs[best] + 1e-15
        share = min(1.0, round(float(between[best]) / total, 12))
    groups = (x[~is_slow], x[is_slow] if is_slow.any() else x)
    before, after = is_slow[:-1], is_slow[1:]
    changes = (after[~before], ~after[before] if before.any() else np.full(1, not share))
    shares = [change.mean() if change.size else 0.0 for change in changes]
    values = [group.mean() for group in groups] + shares
    errors = [group.std() / np.sqrt(len(group)) for group in groups]
    errors += [(p * (1 - p) / max(1, c.size)) ** 0.5 for p, c in zip(shares, changes, strict=True)]
    names: list[str] = ["fast", "slow", "to_slow", "to_fast"]
    return dict(zip(names, values, strict=True)), dict(zip(names, errors, strict=True)), share
