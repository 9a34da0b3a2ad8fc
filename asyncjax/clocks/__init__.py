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
| `with_failures`, `available`, `on_off` | lost jobs, workers that come and go, outages |
| `with_speed` | any power over time |
| `Clock` | what all of them are |
"""

from asyncjax.clocks.clock import Clock
from asyncjax.clocks.compositions import (
    available,
    communicating,
    on_off,
    with_failures,
    with_speed,
)
from asyncjax.clocks.fitting import Fit, fit
from asyncjax.clocks.independent_laws import (
    constant,
    exponential,
    folded_normal,
    gamma,
    lognormal,
    pareto,
    poisson,
    recorded,
    shifted_exponential,
    uniform,
    weibull,
)
from asyncjax.clocks.markov_chain import markov
from asyncjax.clocks.of_trace import fitted, of_trace, resampled
from asyncjax.clocks.recordings import RECORDINGS, Recording, read_durations, recording
from asyncjax.clocks.slow_phases import phases

__all__ = [
    "RECORDINGS",
    "Clock",
    "Fit",
    "Recording",
    "available",
    "communicating",
    "constant",
    "exponential",
    "fit",
    "fitted",
    "folded_normal",
    "gamma",
    "lognormal",
    "markov",
    "of_trace",
    "on_off",
    "pareto",
    "phases",
    "poisson",
    "read_durations",
    "recorded",
    "recording",
    "resampled",
    "shifted_exponential",
    "uniform",
    "weibull",
    "with_failures",
    "with_speed",
]
