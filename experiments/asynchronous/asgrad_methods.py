"""The ways of training that the AsGrad experiment compares.

Step rules that need to know the workers are made once for the same workers, so that equal cases
share a compilation.
"""

from functools import lru_cache
from typing import Any

import jax
import numpy as np
import optax

from asyncjax import clocks, steps, traces
from experiments.common.methods import Method, plain, server_with

HISTORY = 512  # delays that Adaptive 1 remembers; none here is as long


def adaptive(step_size: Any) -> optax.GradientTransformation:
    """Adaptive 1 with the step bound `step_size`."""
    rule = steps.scale_by_adaptive_1(step_size, max_delay=HISTORY)
    return optax.chain(rule, optax.scale(-1.0))


@lru_cache
def bounded_by(n_workers: int) -> Any:
    """Step rule of Mishchenko et al. (2022).

    The step falls as n / delay once the delay exceeds n.
    """

    def optimizer(step_size: Any) -> optax.GradientTransformation:
        rule = steps.scale_by_staleness("concurrency", n_workers=n_workers)
        return optax.chain(rule, optax.sgd(step_size))

    return optimizer


PURE = server_with()
SHUFFLED = server_with(dispatch=traces.shuffled())
DISPATCHED = (
    Method("pure", "Whoever delivers gets the next job.", PURE, plain),
    Method(
        "random",
        "The next job goes to a random worker.",
        server_with(dispatch=traces.uniformly()),
        plain,
    ),
    Method("shuffled", "Jobs walk through random permutations of the workers.", SHUFFLED, plain),
)


def compared() -> tuple[Method, ...]:
    """The three ways of dispatch, and two that keep pure's and undo its bias."""
    return (
        *DISPATCHED,
        Method("Rescaled", "Pure; steps in proportion to the worker's time.", weighted, plain),
        Method(
            "table",
            "Steps along the mean of everyone's last gradient.",
            server_with(collect=traces.table()),
            plain,
        ),
    )


def combinations(clock: clocks.Clock) -> tuple[Method, ...]:
    """Shuffled dispatch with two delay-adaptive steps."""
    n = clock.n_workers
    return (
        Method("shuffled, Adaptive 1", "Adaptive 1 steps.", SHUFFLED, adaptive),
        Method("shuffled, n/delay", "Steps fall with the delay.", SHUFFLED, bounded_by(n)),
    )


def weighted(clock: clocks.Clock, n_updates: int, key: jax.Array) -> traces.EventTrace:
    """Rescaled again: the factors of `steps.scale_by_worker_time` as weights in pure's trace.

    The iterates are the same, and all clocks share one compilation, since a trace is data.
    """
    trace, times = PURE(clock, n_updates, key), np.asarray(clock.mean)
    factors = (times / times.mean()).astype(np.float32)
    return trace._replace(weight=trace.weight * factors[trace.worker])
