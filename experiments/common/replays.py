"""What training on the clock of a schedule shares: step sizes side by side, and who is served.

A schedule takes workers away. The published shuffled dispatch asks all n workers, also the absent
ones, and waits until the schedule brings them back; `shuffled_over` walks through permutations of
those whom it serves in the present slot.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, orders, problems, simulation, traces


def with_step(
    make: Callable[[Any], optax.GradientTransformation],
) -> optax.GradientTransformationExtraArgs:
    """An optimizer whose state holds its `step_size`, so that steps share a program."""
    injected: Any = optax.inject_hyperparams(make)
    return injected(step_size=1.0)


def losses_of(
    problem: problems.Problem,
    plan: simulation.ReplayPlan,
    optimizer: optax.GradientTransformationExtraArgs,
    steps: Sequence[float],
    *,
    order: orders.Order | None,
    key: jax.Array,
    waves: bool | None = None,
) -> np.ndarray:
    """Losses at the records of a plan with several step sizes, float64[G, R].

    Args:
        problem: What is trained.
        plan: On which trace.
        optimizer: As `with_step` makes it.
        steps: Sizes, G.
        order: Of the rows.
        key: Of the noise.
        waves: As in `simulation.replay`.
    """
    first: Any = optimizer.init(problem.params)

    def losses(step: jax.Array) -> jax.Array:
        state = first._replace(hyperparams={"step_size": step})
        run = simulation.replay(
            problem, plan, optimizer, order=order, key=key, opt_state=state, waves=waves
        )
        return run.records.loss

    return np.asarray(jax.vmap(losses)(jnp.asarray(steps, jnp.float32)), np.float64)


def until_stalled(
    make: Callable[..., traces.EventTrace], clock: clocks.Clock, **how: Any
) -> traces.EventTrace:
    """A trace on a clock, or the part of it that the clock allows.

    Args:
        make: `traces.asynchronous` or `traces.synchronous`.
        clock: Of the schedule.
        **how: Further arguments of `make`.
    """
    try:
        return make(clock, **how)
    except traces.StalledError as stalled:
        if stalled.trace is None:
            raise
        return stalled.trace


def recorded(plan: simulation.ReplayPlan) -> np.ndarray:
    """Times of the records of a plan, float64[R]."""
    time = np.asarray(plan.trace.time, np.float64)
    return time[np.flatnonzero(plan.trace.steps)[plan.records - 1]]


def shuffled_over(
    crews: Sequence[np.ndarray],
    seed: int,
    length: int,
    arrivals: Callable[[traces.Dispatch, int], traces.EventTrace],
) -> traces.Dispatch:
    """Shuffled dispatch over those whom the present slot serves.

    The sequence is made slot by slot: a job handed out in a slot goes to a worker served then.

    Args:
        crews: The workers of each slot.
        seed: Of the permutations.
        length: More jobs than are ever handed out.
        arrivals: `(dispatch, slot) -> trace` that lasts to the beginning of the slot; it decides
            how many jobs the slots before it see.
    """
    rng, sequence = np.random.default_rng(seed), np.zeros(0, np.int64)
    starts = [
        slot
        for slot, crew in enumerate(crews)
        if len(crew) and (slot == 0 or not np.array_equal(crew, crews[slot - 1]))
    ]
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        more = -(-(length - len(sequence)) // len(crews[start]))
        rounds = [rng.permutation(crews[start]) for _ in range(more)]
        drawn = np.concatenate([sequence, *rounds])
        rule = traces.given(drawn[:length].tolist())
        if end is None:
            return rule
        sequence = drawn[: int((np.asarray(arrivals(rule, end).time) < end).sum())]
    raise RuntimeError("a schedule that completes a job has a slot with workers")
