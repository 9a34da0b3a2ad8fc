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
| `of_trace`, `fitted`, `resampled` | a clock of what a trace recorded, by one of these laws |
| `read_durations`, `recording`, `RECORDINGS`, `Recording` | times from a file, or brought along |
| `communicating` | adds links: download and upload |
| `with_failures`, `available`, `on_off` | lost jobs, workers that come and go, outages |
| `with_speed` | any power over time |
| `Clock` | what all of them are |
"""

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
from asyncjax.clocks.measured import read_durations
from asyncjax.clocks.of_trace import fitted, of_trace, resampled
from asyncjax.clocks.poisson_law import poisson
from asyncjax.clocks.power import with_speed
from asyncjax.clocks.recordings import RECORDINGS, Recording, recording
from asyncjax.clocks.uniform_law import uniform
from asyncjax.clocks.weibull_law import weibull

__all__ = [
    "RECORDINGS",
    "Clock",
    "Recording",
    "available",
    "communicating",
    "constant",
    "exponential",
    "fitted",
    "folded_normal",
    "gamma",
    "lognormal",
    "markov",
    "of_trace",
    "on_off",
    "pareto",
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
