"""The ways of training that the main job compares.

A method is a trace rule (who delivers what, when) and a step rule (what a late gradient does), in
one line each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import optax

from asyncjax import clocks, steps, traces
from asyncjax.whatif import serving

MakeTrace = Callable[..., traces.EventTrace]  # (clock, n_updates, key), perhaps server=
MakeOptimizer = Callable[[Any], optax.GradientTransformation]


@dataclass(frozen=True)
class Method:
    """A way of training.

    Attributes:
        name: What tables and legends call it.
        text: What it does, in one sentence.
        trace: `(clock, n_updates, key) -> EventTrace`; here also of a server that takes the time
            `server` for each gradient.
        optimizer: `step size -> optax optimizer`.
        local_steps: Gradient steps of a job.
    """

    name: str
    text: str
    trace: MakeTrace
    optimizer: MakeOptimizer
    local_steps: int = 1


def plain(step_size: Any) -> optax.GradientTransformation:
    """Plain SGD: x <- x - step_size * direction."""
    return optax.sgd(step_size)


def adaptive_1(step_size: Any) -> optax.GradientTransformation:
    """Adaptive 1 with the step bound `step_size`."""
    return optax.chain(steps.scale_by_adaptive_1(step_size), optax.scale(-1.0))


def adaptive_2(step_size: Any) -> optax.GradientTransformation:
    """Adaptive 2 with the step bound `step_size`."""
    return optax.chain(steps.scale_by_adaptive_2(step_size), optax.scale(-1.0))


def staleness_scaled(step_size: Any) -> optax.GradientTransformation:
    """SGD with every gradient divided by the square root of 1 + its delay."""
    return optax.chain(steps.scale_by_staleness("polynomial", exponent=0.5), optax.sgd(step_size))


def rounds_of(share: float) -> MakeTrace:
    """Synchronous rounds that wait for a share of the workers."""

    def make(
        clock: clocks.Clock, n_updates: int, key: jax.Array, server: float = 0.0
    ) -> traces.EventTrace:
        k = max(1, round(share * clock.n_workers))
        return serving.synchronous(clock, k=k, n_updates=n_updates, server=server, key=key)

    return make


def server_with(**rules: Any) -> MakeTrace:
    """An asynchronous server with the given dispatch and collection rules."""

    def make(
        clock: clocks.Clock, n_updates: int, key: jax.Array, server: float = 0.0
    ) -> traces.EventTrace:
        return serving.asynchronous(clock, n_updates=n_updates, server=server, key=key, **rules)

    return make


pure = server_with()


METHODS = (
    Method(
        "synchronous",
        "Every round waits for all workers and steps along the mean of their gradients.",
        rounds_of(1.0),
        plain,
    ),
    Method(
        "fastest half",
        "Every round waits for the faster half of the workers and cancels the others.",
        rounds_of(0.5),
        plain,
    ),
    Method(
        "pure async",
        "Every gradient is applied on arrival; whoever delivers gets the next job.",
        pure,
        plain,
    ),
    Method(
        "random async",
        "Every gradient is applied on arrival; the next job goes to a random worker.",
        server_with(dispatch=traces.uniformly()),
        plain,
    ),
    Method(
        "shuffled async",
        "Every gradient is applied on arrival; jobs walk through random permutations of the"
        " workers.",
        server_with(dispatch=traces.shuffled()),
        plain,
    ),
    Method(
        "buffered 8",
        "The server steps along the mean of every 8 arrivals; whoever delivers gets the next job"
        " at once.",
        server_with(collect=traces.buffered(8)),
        plain,
    ),
    Method(
        "Adaptive 1",
        "Pure asynchronous; the step is what the bound leaves after the steps taken during the"
        " delay.",
        pure,
        adaptive_1,
    ),
    Method(
        "Adaptive 2",
        "Pure asynchronous; the step is the bound over 1 + delay if the window allows it, else"
        " zero.",
        pure,
        adaptive_2,
    ),
    Method(
        "staleness scaled",
        "Pure asynchronous; every gradient is divided by the square root of 1 + its delay.",
        pure,
        staleness_scaled,
    ),
)
