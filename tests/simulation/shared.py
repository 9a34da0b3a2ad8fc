"""Traces, problems and comparisons that the tests of the room share."""

import jax
import numpy as np

from asyncjax import clocks, problems, traces
from tests.oracles import events
from tests.oracles.problems import quadratic_data, quadratic_gradient

N = 6
RULES = {
    "pure": {},
    "random": {"dispatch": traces.uniformly()},
    "shuffled": {"dispatch": traces.shuffled()},
    "shuffled once, 3 jobs": {"dispatch": traces.shuffled_once(), "concurrency": 3},
    "shuffled, 11 jobs, read at start": {
        "dispatch": traces.shuffled(),
        "concurrency": 11,
        "read": "start",
    },
    "wait for 2": {"collect": traces.wait_for(2)},
    "shuffled, wait for 3": {"dispatch": traces.shuffled(), "collect": traces.wait_for(3)},
    "buffered 3": {"collect": traces.buffered(3)},
    "buffered 9": {"collect": traces.buffered(9), "dispatch": traces.uniformly()},
    "fresh 3": {"collect": traces.fresh(3)},
    "fresher than 4": {"collect": traces.fresher_than(4)},
    "fresher than 4, cancel": {"collect": traces.fresher_than(4, cancel=True)},
    "per worker": {"collect": traces.per_worker(1.2)},
    "fresh 3, cancel": {"collect": traces.fresh(3, cancel=True)},
    "fresher than quantile 0.7": {"collect": traces.fresher_than_quantile(0.7)},
    "table": {"collect": traces.table()},
    "shuffled, table": {"dispatch": traces.shuffled(), "collect": traces.table()},
    "ringleader": {"collect": traces.ringleader()},
    "ringleader, refreshed": {"collect": traces.ringleader(refresh=True)},
    "gate": {"gate": traces.lead_at_most(1), "read": "start"},
}


def trace_of(rule, *, n_updates=60, seed=0, clock=None):
    """A trace of one of RULES, or of synchronous rounds."""
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(N))) if clock is None else clock
    key = jax.random.key(seed)
    if rule == "synchronous 4":
        return traces.synchronous(clock, k=4, n_updates=n_updates, key=key)
    return traces.asynchronous(clock, n_updates=n_updates, key=key, **RULES[rule])


def columns(trace):
    """A trace as the plain loop wants it, with exact weights."""
    names = ("time", "worker", "job", "read_version", "version", "used", "steps")
    reuse = trace.reuse
    if reuse is not None:
        reuse = list(zip(*reuse[:3], exact(reuse.weight), strict=True))
    return events.Arrivals(
        {name: getattr(trace, name) for name in names}, weight=exact(trace.weight), reuse=reuse
    )


def exact(weight):
    """Shares 1/m in float64."""
    count = np.round(1 / np.maximum(weight.astype(np.float64), 1e-9))
    return np.where(weight > 0, 1 / count, 0.0)


def quadratic():
    """The quadratic of the golden rows and its gradient in plain NumPy."""
    curvature, linear = quadratic_data(N, 3)
    problem = problems.quadratic(curvature, linear)
    return problem, lambda x, worker, job: quadratic_gradient(curvature, linear, worker, x)
