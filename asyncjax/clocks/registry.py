"""Registry: one example clock of every factory, three unequal workers each.

Contract tests go through it; a new law adds its line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asyncjax.clocks.availability import available, on_off
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.fixed import constant, recorded
from asyncjax.clocks.folded_normal_law import folded_normal
from asyncjax.clocks.independent_laws import (
    exponential,
    gamma,
    lognormal,
    pareto,
    shifted_exponential,
)
from asyncjax.clocks.links import communicating
from asyncjax.clocks.lost_jobs import with_failures
from asyncjax.clocks.markov_chain import markov
from asyncjax.clocks.of_trace import fitted, of_trace, resampled
from asyncjax.clocks.poisson_law import poisson
from asyncjax.clocks.power import with_speed
from asyncjax.clocks.uniform_law import uniform
from asyncjax.clocks.weibull_law import weibull

_MEANS = (1.0, 2.0, 4.0)
_UNEVEN_ROWS = ([1.0, 2.0, 1.5], [2.0, 3.0], [5.0, 4.0, 7.0, 6.0])  # times of each worker


class _Arrivals(NamedTuple):
    """The columns of a trace that a clock is made of."""

    worker: np.ndarray
    start: np.ndarray
    time: np.ndarray
    n_workers: int


def _arrivals() -> _Arrivals:
    worker = np.repeat(np.arange(3), [len(row) for row in _UNEVEN_ROWS])
    duration = np.concatenate(_UNEVEN_ROWS)
    return _Arrivals(worker, np.zeros(len(duration)), duration, 3)


REGISTRY: dict[str, Callable[[], Clock]] = {
    "constant": lambda: constant(_MEANS),
    "exponential": lambda: exponential(_MEANS),
    "shifted_exponential": lambda: shifted_exponential(shift=(0.0, 0.5, 2.0), mean=_MEANS),
    "gamma": lambda: gamma(shape=(0.5, 2.0, 9.0), mean=_MEANS),
    "lognormal": lambda: lognormal(mean=_MEANS, sigma=(0.25, 0.5, 1.0)),
    "pareto": lambda: pareto(mean=_MEANS, tail=(3.0, 5.0, 9.0)),
    "weibull": lambda: weibull(shape=(0.7, 1.5, 6.0), mean=_MEANS),
    "uniform": lambda: uniform(low=(0.0, 0.5, 1.0), high=_MEANS),
    "folded_normal": lambda: folded_normal(location=_MEANS, scale=_MEANS, shift=1.0),
    "poisson": lambda: poisson(rate=(1.0, 2.0, 40.0)),
    "markov": lambda: markov(
        fast=1.0, slow=(2.0, 5.0, 9.0), to_slow=(0.1, 0.5, 0.9), to_fast=(0.3, 0.5, 0.8)
    ),
    "recorded": lambda: recorded([[1.0, 2.0, 1.5], [2.0, 2.0, 3.0], [5.0, 4.0, 7.0]]),
    "resampled": lambda: resampled(_UNEVEN_ROWS),
    "fitted": lambda: fitted(_UNEVEN_ROWS),
    "of_trace": lambda: of_trace(_arrivals()),
    "communicating": lambda: communicating(
        lognormal(mean=_MEANS, sigma=0.5), download=constant(0.25), upload=exponential(_MEANS)
    ),
    "losing": lambda: with_failures(exponential(_MEANS), probability=(0.0, 0.25, 0.5)),
    "powered": lambda: with_speed(constant(_MEANS), lengths=[5.0, 3.0], rates=[1.0, 0.5]),
    "on_off": lambda: on_off(exponential(_MEANS), up=exponential(20.0), down=uniform(1.0, 9.0)),
    "present": lambda: available(
        exponential(_MEANS), join=(0.0, 0.0, 30.0), leave=(float("inf"), 50.0, float("inf"))
    ),
}
