"""Clocks: how long every worker takes for every one of its jobs.

A factory makes a `Clock`; `clock.durations(key, n_jobs)` draws. The time of job `j` of worker `i`
is a function of `(key, i, j)` alone, so all rules compared under one key face the same workers.

| name | times, or what it does to a clock |
|---|---|
| `constant`, `recorded` | fixed for every worker; measured ones, cycled |
| `exponential`, `shifted_exponential`, `gamma`, `weibull` | independent, light tails |
| `lognormal`, `pareto` | independent, heavy tails |
| `uniform`, `folded_normal`, `poisson` | independent, as published experiments draw them |
| `markov` | a worker is fast or slow for a while |
| `phases` | slow phases on top of any clock, by job or by time, of a worker or common |
| `of_trace`, `fitted`, `resampled` | a clock of what a trace recorded, by one of these laws |
| `fit`, `Fit` | the law that forecasts recorded times best, with memory or without |
| `read_durations`, `recording`, `RECORDINGS`, `Recording` | times from a file, or brought along |
| `communicating` | adds links: download and upload |
| `link`, `Link`, `fit_link` | links in bytes, and from measured messages; a `Link` makes a clock |
| `ring_all_reduce`, `tree_all_reduce`, `server_all_reduce` | time to sum over workers |
| `shared_link` | when transfers through one link are done, event by event |
| `utilisation` | share of time computing, with fragments sent meanwhile |
| `with_failures`, `available`, `on_off` | lost jobs, workers that come and go, outages |
| `with_speed` | any power over time |
| `Clock` | what all of them are |
"""

from asyncjax.clocks.clock import Clock as Clock
from asyncjax.clocks.compositions import (
    available as available,
    communicating as communicating,
    on_off as on_off,
    with_failures as with_failures,
    with_speed as with_speed,
)
from asyncjax.clocks.fitting import Fit as Fit, fit as fit
from asyncjax.clocks.independent_laws import (
    constant as constant,
    exponential as exponential,
    folded_normal as folded_normal,
    gamma as gamma,
    lognormal as lognormal,
    pareto as pareto,
    poisson as poisson,
    recorded as recorded,
    shifted_exponential as shifted_exponential,
    uniform as uniform,
    weibull as weibull,
)
from asyncjax.clocks.links import (
    Link as Link,
    fit_link as fit_link,
    link as link,
    ring_all_reduce as ring_all_reduce,
    server_all_reduce as server_all_reduce,
    shared_link as shared_link,
    tree_all_reduce as tree_all_reduce,
)
from asyncjax.clocks.markov_chain import markov as markov
from asyncjax.clocks.of_trace import fitted as fitted, of_trace as of_trace, resampled as resampled
from asyncjax.clocks.reading import read_durations as read_durations
from asyncjax.clocks.recordings import (
    RECORDINGS as RECORDINGS,
    Recording as Recording,
    recording as recording,
)
from asyncjax.clocks.slow_phases import phases as phases
from asyncjax.clocks.synchronization import utilisation as utilisation
