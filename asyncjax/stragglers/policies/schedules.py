"""Schedules: policies whose stages of (k, load) are known beforehand, by updates or by the clock.

    fixed, staged, planned    stage = number of stages that end at or before this update
    timed                     stage = number of stages that end at or before this time

Stages end at `round(cumsum(updates))`: rounding the sums and not the stages carries remainders
over. The last stage never ends. `planned` is `staged` by the updates of a plan, after Egger, Kas
Hanna and Bitar (2023), and `timed` keeps to the times of the same plan; where updates take as long
as expected, both do the same.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from asyncjax.checks import within
from asyncjax.stragglers.plans.planning import Plan
from asyncjax.stragglers.policies.policy import Choice, Observation, Policy
from asyncjax.stragglers.policies.stages import (
    NEVER,
    Stages,
    check_plan,
    choice_of,
    nothing,
    padded,
    read_stages,
)


def fixed(k: Any, load: Any = 1.0, *, max_load: int | None = None) -> Policy:
    """Makes the policy that waits for the k fastest and asks the same load, always.

    Args:
        k: Answers to wait for, at least 1; may be traced.
        load: Samples a worker, a positive whole number; may be traced.
        max_load: Most samples, needed where `load` is traced.

    Returns:
        A policy. With `k` the number of workers and `load` a whole shard it is gradient descent.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = stragglers.fixed(3, 8)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(5))
        >>> int(choice.k), float(choice.load)
        (3, 8.0)

    Reference:
        Dutta et al., "Slow and stale gradients can win the race" (2018), arXiv 1803.01113: k-sync.
    """
    if np.ndim(k) or np.ndim(load):
        raise ValueError(f"k and load must be single numbers, got {k!r} and {load!r}")
    return staged(k, load, np.inf, max_load=max_load)


def staged(k: Any, load: Any, updates: Any, *, max_load: int | None = None) -> Policy:
    """Makes the policy that goes through stages of `(k, load)`, each for so many updates.

    Formula: stage s ends before update `round(updates_0 + ... + updates_s)`; the last never ends.

    Args:
        k: Answers to wait for, at least 1, a number or `[S]`; may be traced.
        load: Samples a worker, positive whole numbers, a number or `[S]`; may be traced.
        updates: Updates of each stage, at least 0, fractional or inf, a number or `[S]`; may be
            traced. A stage without updates is passed over.
        max_load: Most samples (static), needed where `load` is traced.

    Returns:
        A policy. Those with equally many stages (up to the next power of two) and one `max_load`
        share a compiled loop.

    Example:
        >>> import jax
        >>> from asyncjax import stragglers
        >>> policy = stragglers.staged(k=[1, 4], load=[2, 8], updates=[1.4, 10])
        >>> seen = stragglers.nothing_seen(5)
        >>> _, choice = policy.decide(policy.init(), seen._replace(update=1))
        >>> int(choice.k), float(choice.load), int(choice.stage)
        (4, 8.0, 1)
    """
    stages, most, varies = read_stages(k, load, max_load, updates=updates)
    within("updates", updates, least=0, finite=False)
    lengths = updates if isinstance(updates, jax.Array) else np.asarray(updates, np.float64)
    xp = jnp if isinstance(updates, jax.Array) else np
    shape = np.broadcast_shapes(*map(np.shape, (k, load, updates)), (1,))
    sums = xp.cumsum(xp.broadcast_to(lengths, shape))
    ends = padded(xp.where(sums < NEVER, xp.round(sums), NEVER).astype(np.int32))
    return Policy(Partial(nothing), Partial(_by_updates, ends, stages), most, varies)


def planned(plan: Plan) -> Policy:
    """Makes the policy that switches after as many updates as a plan says.

    Args:
        plan: A plan with at least one stage, whose loads are whole samples.

    Returns:
        A policy.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(
        ...     step_size=0.2, smoothness=1.0, strong_convexity=1.0, noise_variance=40.0,
        ...     initial_error=2.5,
        ... )
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> policy = planned(stragglers.plan(times, bound, load=2.0, target=0.6))
        >>> policy.max_load, policy.varies_load
        (2, False)

    Reference:
        After Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589.
    """
    check_plan(plan)
    return staged(plan.k, plan.load, plan.updates)


def timed(plan: Plan) -> Policy:
    """Makes the policy that switches when a plan says so by the clock.

    Formula: stage s is left at the first update that starts at `end_time_s` or later; the last
    stage never ends.

    Args:
        plan: A plan with at least one stage, whose loads are whole samples.

    Returns:
        A policy without state.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(
        ...     step_size=0.2, smoothness=1.0, strong_convexity=1.0, noise_variance=40.0,
        ...     initial_error=2.5,
        ... )
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> policy = timed(stragglers.plan(times, bound, load=2.0, target=0.6))
        >>> seen = stragglers.nothing_seen(4)
        >>> [int(policy.decide((), seen._replace(time=t))[1].k) for t in (0.0, 1.8, 9.0)]
        [2, 3, 4]

    Reference:
        After Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589.
    """
    check_plan(plan)
    stages, most, varies = read_stages(plan.k, plan.load, None)
    ends = padded(plan.end_time).astype(stages.load.dtype)
    return Policy(Partial(nothing), Partial(_by_time, ends, stages), most, varies)


def _by_updates(
    ends: Array, stages: Stages, state: tuple[()], observation: Observation
) -> tuple[tuple[()], Choice]:
    """The stage that the number of updates has come to, by the ends of stages int32[P]."""
    return state, _choice_at(ends, stages, observation.update)


def _by_time(
    ends: Array, stages: Stages, state: tuple[()], observation: Observation
) -> tuple[tuple[()], Choice]:
    """The stage that the clock has come to, by the ends of stages float[P]."""
    return state, _choice_at(ends, stages, observation.time)


def _choice_at(ends: Array, stages: Stages, now: Array) -> Choice:
    """What is asked where as many stages as can be have ended."""
    stage = jnp.searchsorted(ends, now, side="right")
    return choice_of(stages, jnp.minimum(stage, stages.last).astype(jnp.int32))
