"""Traces, problems and comparisons that the tests of the room share."""

import jax
import numpy as np

from asyncjax import clocks, problems, traces
from asyncjax.traces.registry import REGISTRY
from tests.oracles import events
from tests.oracles.problems import quadratic_data, quadratic_gradient

N = 6
RULES = {name: rule for name, rule in REGISTRY.items() if isinstance(rule, traces.Rule)}


def trace_of(rule, *, n_updates=60, seed=0, clock=None):
    """A trace of a registered rule."""
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(N))) if clock is None else clock
    return REGISTRY[rule].trace(clock, n_updates=n_updates, key=jax.random.key(seed))


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
    """Shares 1/m in float64; other weights as they are."""
    count = np.round(1 / np.maximum(weight.astype(np.float64), 1e-9))
    is_share = (weight > 0) & ((1 / count).astype(np.float32) == weight)
    return np.where(is_share, 1 / count, weight)


def quadratic():
    """The quadratic of the golden rows and its gradient in plain NumPy."""
    curvature, linear = quadratic_data(N, 3)
    problem = problems.quadratic(curvature, linear)
    return problem, lambda x, worker, job: quadratic_gradient(curvature, linear, worker, x)
