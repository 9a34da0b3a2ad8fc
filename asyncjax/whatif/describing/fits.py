"""How well laws fit: the Kolmogorov distance, a sampled p-value, and the likelihood.

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

from typing import NamedTuple

import numpy as np

from asyncjax import clocks
from asyncjax.clocks import Clock
from asyncjax.traces import Log
from asyncjax.whatif.describing.laws import FAMILIES, Family, Parameters, two_speeds

_SAMPLES = 199
_MOST_JOBS = 300  # of a worker that p-values are sampled with, evenly taken
_MOST_WORKERS = 32
_LEAST = 5  # jobs of every worker, before laws are fitted
CONSTANT = 0.005  # coefficient of variation up to which durations count as constant
REJECTED = 0.01  # p-value below which a law does not fit
CLOSE = 0.05  # Kolmogorov distance of the median worker up to which it is good enough all the same
TWO_SPEEDS = 0.95  # share of the variance that two speeds must explain


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
    def is_good(self) -> bool:
        """Whether the law may stand for the log."""
        return bool(self.p_value >= REJECTED or np.median(self.distance) <= CLOSE)


def fits_of(log: Log, rng: np.random.Generator) -> tuple[Fit, ...]:
    """Fits every law to the durations of a log, the best first.

    Workers are independent of each other in these laws, and jobs of those before; only in `markov`
    (two speeds) jobs remember.

    Example:
        >>> from asyncjax import traces
        >>> rng = np.random.default_rng(0)
        >>> log = traces.read_log(rng.lognormal(0.0, 0.5, (3, 200)))
        >>> fits = fits_of(log, rng)
        >>> fits[0].name, fits[0].p_value > 0.05, fits[1].p_value < 0.1
        ('lognormal', True, True)
    """
    rows = list(log.durations)
    spread = max(float(row.std() / row.mean()) for row in rows)
    constant = _constant(rows)
    if spread <= CONSTANT or min(map(len, rows)) < _LEAST:
        return (constant,)
    made = (_fit(family, rows, rng) for family in FAMILIES if _fits_at_all(rows))
    smooth = sorted(made, key=_badness)
    speeds, share = _two_speeds(rows)
    first, last = ([speeds], []) if share >= TWO_SPEEDS else ([], [speeds])
    return (*first, *smooth, *last, constant)


def _badness(fit: Fit) -> tuple[bool, float]:
    """What the best fit has least of."""
    is_rejected = fit.p_value < REJECTED
    return is_rejected, float(np.median(fit.distance)) if is_rejected else fit.bic


def _fits_at_all(rows: list[np.ndarray]) -> bool:
    """Whether every worker varies: a density is infinite where one does not."""
    return all(row.std() > 1e-9 * row.mean() for row in rows)


def _fit(family: Family, rows: list[np.ndarray], rng: np.random.Generator) -> Fit:
    """A law, worker by worker."""
    found: list[Parameters] = []
    errors: list[Parameters] = []
    distances = np.zeros(len(rows))
    seen, sampled, bic = 0.0, np.zeros(_SAMPLES), 0.0
    for worker, row in enumerate(rows):
        parameters = family.fit(row)
        found.append(parameters)
        distances[worker] = _distance(family, row, parameters)
        density = float(family.log_density(row, _columns(parameters)).sum())
        bic += family.n_parameters * np.log(len(row)) - 2.0 * density
        if worker >= _MOST_WORKERS:
            errors.append({name: np.asarray(np.nan) for name in parameters})
            continue
        part = row[:: -(-len(row) // _MOST_JOBS)]
        own = family.fit(part)
        drawn = family.draw(rng, (_SAMPLES, len(part)), own)
        drawn = np.maximum(drawn, np.finfo(float).tiny)
        again = family.fit(drawn)
        scale = np.sqrt(len(part) / len(row))
        errors.append({name: value.std(axis=0) * scale for name, value in again.items()})
        seen += float(_distance(family, part, own)) * np.sqrt(len(part))
        sampled += _distance(family, drawn, again) * np.sqrt(len(part))
    parameters, spreads = (
        {name: np.array([one[name] for one in many]) for name in many[0]}
        for many in (found, errors)
    )
    p_value = (1 + int((sampled >= seen).sum())) / (1 + _SAMPLES)
    clock = family.clock(parameters)
    return Fit(family.name, parameters, spreads, distances, p_value, bic, clock)


def _columns(parameters: Parameters) -> Parameters:
    return {name: np.asarray(value)[..., None] for name, value in parameters.items()}


def _distance(family: Family, x: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Kolmogorov distances of samples float64[..., J], float64[...]."""
    jobs = x.shape[-1]
    share = family.cdf(np.sort(x, axis=-1), _columns(parameters))
    above = np.arange(1, jobs + 1) / jobs - share
    return np.maximum(above, 1.0 / jobs - above).max(axis=-1)


def _constant(rows: list[np.ndarray]) -> Fit:
    """Every job as long as the mean of its worker."""
    mean = np.array([row.mean() for row in rows])
    error = np.array([row.std() / np.sqrt(len(row)) for row in rows])
    below = np.array(
        [
            max((row < one * (1 - CONSTANT)).mean(), (row > one * (1 + CONSTANT)).mean())
            for row, one in zip(rows, mean, strict=True)
        ]
    )
    clock = clocks.constant(mean)
    nan = float("nan")
    return Fit("constant", {"compute": mean}, {"compute": error}, below, nan, nan, clock)


def _two_speeds(rows: list[np.ndarray]) -> tuple[Fit, float]:
    """Every worker with two speeds, and what they explain of the median worker."""
    fitted = [two_speeds(row) for row in rows]
    names = list(fitted[0][0])
    parameters = {name: np.array([one[name] for one, _ in fitted]) for name in names}
    share = np.array([explained for _, explained in fitted])
    errors = _errors_of_speeds(rows, parameters)
    nan = float("nan")
    clock = clocks.markov(**parameters)
    fit = Fit("markov", parameters, errors, 1.0 - share, nan, nan, clock)
    return fit, float(np.median(share))


def _errors_of_speeds(rows: list[np.ndarray], parameters: Parameters) -> Parameters:
    """Standard errors: of the means of two groups, and of two shares."""
    errors: dict[str, list[float]] = {name: [] for name in parameters}
    for worker, row in enumerate(rows):
        fast, slow, to_slow, to_fast = (float(value[worker]) for value in parameters.values())
        is_slow = np.log(row) > (np.log(fast) + np.log(slow)) / 2
        for name, group in (("fast", row[~is_slow]), ("slow", row[is_slow])):
            errors[name].append(
                float(group.std() / np.sqrt(max(1, len(group)))) if len(group) else 0
            )
        for name, share, count in (
            ("to_slow", to_slow, int((~is_slow[:-1]).sum())),
            ("to_fast", to_fast, int(is_slow[:-1].sum())),
        ):
            errors[name].append(float(np.sqrt(share * (1 - share) / max(1, count))))
    return {name: np.array(values) for name, values in errors.items()}
