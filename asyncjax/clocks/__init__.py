"""Clocks: how long every worker takes for every one of its jobs.

A factory makes a `Clock`; `clock.durations(key, n_jobs)` draws. The time of job `j` of worker `i`
is a function of `(key, i, j)` alone, so all rules compared under one key face the same workers.
"""

from asyncjax.clocks.clock import Clock, Law, Times
from asyncjax.clocks.examples import EXAMPLES
from asyncjax.clocks.fixed import constant, recorded
from asyncjax.clocks.links import communicating
from asyncjax.clocks.markov_chain import markov
from asyncjax.clocks.memoryless import (
    exponential,
    gamma,
    lognormal,
    pareto,
    shifted_exponential,
)

__all__ = [
    "EXAMPLES",
    "Clock",
    "Law",
    "Times",
    "communicating",
    "constant",
    "exponential",
    "gamma",
    "lognormal",
    "markov",
    "pareto",
    "recorded",
    "shifted_exponential",
]
