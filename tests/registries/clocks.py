"""Registry: one example clock of every factory, three unequal workers each.

Contract tests go through it; a new law adds its line here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from types import SimpleNamespace

import numpy as np

from asyncjax import clocks
from asyncjax.clocks.clock import Clock

_MEANS = (1.0, 2.0, 4.0)
_UNEVEN_ROWS = ([1.0, 2.0, 1.5], [2.0, 3.0], [5.0, 4.0, 7.0, 6.0])  # times of each worker


def _of_arrivals() -> Clock:
    """The clock of the columns of a trace in which every job starts at time 0."""
    worker = np.repeat(np.arange(3), [len(row) for row in _UNEVEN_ROWS])
    time = np.concatenate(_UNEVEN_ROWS)
    columns = {"worker": worker, "start": np.zeros(len(time)), "time": time}
    return clocks.of_trace(SimpleNamespace(**columns, n_workers=3))


REGISTRY: dict[str, Callable[[], Clock]] = {
    "constant": lambda: clocks.constant(_MEANS),
    "exponential": lambda: clocks.exponential(_MEANS),
    "shifted_exponential": lambda: clocks.shifted_exponential((0.0, 0.5, 2.0), _MEANS),
    "gamma": lambda: clocks.gamma(shape=(0.5, 2.0, 9.0), mean=_MEANS),
    "lognormal": lambda: clocks.lognormal(mean=_MEANS, sigma=(0.25, 0.5, 1.0)),
    "pareto": lambda: clocks.pareto(mean=_MEANS, tail=(3.0, 5.0, 9.0)),
    "weibull": lambda: clocks.weibull(shape=(0.7, 1.5, 6.0), mean=_MEANS),
    "uniform": lambda: clocks.uniform(low=(0.0, 0.5, 1.0), high=_MEANS),
    "folded_normal": lambda: clocks.folded_normal(location=_MEANS, scale=_MEANS, shift=1.0),
    "poisson": lambda: clocks.poisson(rate=(1.0, 2.0, 40.0)),
    "markov": lambda: clocks.markov(
        fast=1.0, slow=(2.0, 5.0, 9.0), to_slow=(0.1, 0.5, 0.9), to_fast=(0.3, 0.5, 0.8)
    ),
    "recorded": lambda: clocks.recorded([[1.0, 2.0, 1.5], [2.0, 2.0, 3.0], [5.0, 4.0, 7.0]]),
    "resampled": lambda: clocks.resampled(_UNEVEN_ROWS),
    "fitted": lambda: clocks.fitted(_UNEVEN_ROWS),
    "of_trace": _of_arrivals,
    "communicating": lambda: clocks.communicating(
        clocks.lognormal(mean=_MEANS, sigma=0.5),
        download=clocks.constant(0.25),
        upload=clocks.exponential(_MEANS),
    ),
    "losing": lambda: clocks.with_failures(clocks.exponential(_MEANS), (0.0, 0.25, 0.5)),
    "phases": lambda: clocks.phases(
        clocks.lognormal(_MEANS, 0.5), slowdown=(1.5, 2.0, 4.0), fast=(1.0, 5.0, 9.0), slow=3.0
    ),
    "common phases": lambda: clocks.phases(
        clocks.gamma(2.0, _MEANS), slowdown=(1.0, 2.0, 4.0), fast=9.0, slow=5.0, common=True
    ),
    "timed phases": lambda: clocks.phases(
        clocks.gamma(2.0, _MEANS), slowdown=2.0, fast=9.0, slow=5.0, common=True, timed=True
    ),
    "powered": lambda: clocks.with_speed(clocks.constant(_MEANS), [5.0, 3.0], [1.0, 0.5]),
    "on_off": lambda: clocks.on_off(
        clocks.exponential(_MEANS), up=clocks.exponential(20.0), down=clocks.uniform(1.0, 9.0)
    ),
    "present": lambda: clocks.available(
        clocks.exponential(_MEANS), join=(0.0, 0.0, 30.0), leave=(inf, 50.0, inf)
    ),
}
