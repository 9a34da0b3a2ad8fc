"""Policies that look at the loss: stages of a plan left by the error, and AdaSync.

    error_triggered   stage = number of stages with end_error >= loss - minimum, never falling;
                      one more after `patience * updates` updates in a stage (stall exit)
    ada_sync          k_j = clip(round(k_0 sqrt(F_0 / F_j)) + stalls, 1, n),    F = loss - minimum

Where the constants of a bound are wrong the updates of a plan are wrong too. Switching by the error
mends that; a stage whose floor lies above its `end_error` ends by the stall exit. After Egger, Kas
Hanna and Bitar (2023). AdaSync needs no plan. After Dutta, Wang and Joshi (2020).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from asyncjax.checks import whole, within
from asyncjax.stragglers.plans.planning import Plan
from asyncjax.stragglers.policies import schedules
from asyncjax.stragglers.policies.policy import Choice, Observation, Policy
from asyncjax.stragglers.policies.schedules import Place, Stages, counted, number, patience_of


class LossRule(NamedTuple):
    """Numbers of AdaSync."""

    k: Array  # int32[], answers awaited at the start
    load: Array  # float[], samples a worker
    n_workers: Array  # int32[]
    minimum: Array  # float[], least value of the objective
    patience: Array  # int32[], updates without a new least loss


class LossState(NamedTuple):
    """What the policy remembers of the losses."""

    first: Array  # float[], first recorded F; NaN before
    last: Array  # float[], last recorded F; NaN before
    best: Array  # float[], least recorded F; inf before
    since: Array  # int32[], update of the best, or of the last stall if later
    stalls: Array  # int32[], how often the loss did not improve for `patience` updates


def error_triggered(plan: Plan, patience: Any, *, minimum: Any = 0.0) -> Policy:
    """Returns the policy that switches when the loss has come down to where a plan ends a stage.

    Formula: a stage is left when `loss - minimum <= end_error`, several at once if the loss is
    below several; and, whatever the loss, after `patience` times the planned updates of the stage.

    Args:
        plan: A plan with at least one stage, whose loads are whole samples.
        patience: How many times the planned updates a stage may last, positive, inf for no limit;
            may be traced. A stage that the plan never ends is never left this way.
        minimum: Least value of the objective, F*, in units of the loss; may be traced.

    Note:
        A loss of NaN was not recorded: it says nothing. Record often enough, or stages end late.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(0.2, 1.0, 1.0, 40.0, 2.5)
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> stages = stragglers.plan(times, bound, load=2.0, target=0.6)
        >>> policy = error_triggered(stages, patience=2.0)
        >>> seen = stragglers.nothing_seen(4)
        >>> stages.end_error.round(2).tolist()
        [1.39, 0.85, 0.6]
        >>> [int(policy.decide(policy.init(), seen._replace(loss=e))[1].k) for e in (1.4, 1.3, 0.1)]
        [2, 3, 4]
    """
    schedules.check_plan(plan)
    stages, most, varies = schedules.read_stages(plan.k, plan.load, None)
    minimum = number("minimum", minimum)
    errors = schedules.padded(plan.end_error).astype(minimum.dtype)
    updates = schedules.padded(plan.updates).astype(minimum.dtype)
    limits = number("patience", patience, above=0, finite=False) * updates
    decide = Partial(_by_error, errors, limits, minimum, stages)
    return Policy(Partial(schedules.first_place), decide, most, varies)


def ada_sync(
    k: Any,
    load: Any = 1.0,
    *,
    n_workers: int,
    minimum: Any = 0.0,
    patience: Any = None,
    max_load: int | None = None,
) -> Policy:
    """Returns the policy that waits for `k sqrt(F_0 / F_j)` workers: AdaSync (arXiv 2003.10579).

    Formula: `k_j = clip(round(k sqrt(F_0 / F_j)) + stalls, 1, n)` with F_0 the first and F_j the
    last finite recorded loss above `minimum`; all n if the loss is at or below the minimum. The
    stage is the number of stalls.

    Args:
        k: Answers to wait for at the start, a number in 1 .. n; may be traced.
        load, max_load: As for `fixed`.
        n_workers: Number of workers `n`.
        minimum: Least value of the objective, in units of the loss; may be traced.
        patience: Updates without a new least loss after which one worker more is waited for from
            then on (stall exit), None for never; may be traced.

    Example:
        >>> from asyncjax import stragglers
        >>> policy, seen = ada_sync(2, n_workers=8), stragglers.nothing_seen(8)
        >>> state = policy.init()
        >>> for loss in (9.0, 4.0, float("nan"), 1.0, 0.01):
        ...     state, choice = policy.decide(state, seen._replace(loss=loss))
        ...     print(int(choice.k), end=" ")
        2 3 3 6 8
    """
    if np.ndim(k) or np.ndim(load):
        raise ValueError(f"k and load must be single numbers, got {k!r} and {load!r}")
    n_workers = whole("n_workers", n_workers)
    within("k", k, least=1, most=n_workers, integer=True)
    stages, most, varies = schedules.read_stages(k, load, max_load)
    rule = LossRule(
        k=stages.k[0],
        load=stages.load[0],
        n_workers=counted("n_workers", n_workers, 1),
        minimum=number("minimum", minimum),
        patience=patience_of(patience),
    )
    return Policy(Partial(_no_losses), Partial(_by_loss, rule), most, varies)


def _no_losses() -> LossState:
    """No loss recorded yet."""
    unknown = jnp.full((), jnp.nan, jnp.result_type(float))
    zero = jnp.zeros((), jnp.int32)
    return LossState(unknown, unknown, jnp.full_like(unknown, jnp.inf), zero, zero)


def _by_loss(
    rule: LossRule, state: LossState, observation: Observation
) -> tuple[LossState, Choice]:
    """Takes in a recorded loss, and finds how many answers it asks for."""
    gap = (observation.loss - rule.minimum).astype(state.last.dtype)
    known = jnp.isfinite(gap)
    first = jnp.where(known & jnp.isnan(state.first), gap, state.first)
    last = jnp.where(known, gap, state.last)
    is_better = known & (gap < state.best)
    since = jnp.where(is_better, observation.update, state.since)
    stalled = observation.update - since >= rule.patience
    state = LossState(
        first=first,
        last=last,
        best=jnp.where(is_better, gap, state.best),
        since=jnp.where(stalled, observation.update, since).astype(jnp.int32),
        stalls=jnp.minimum(state.stalls + stalled, rule.n_workers).astype(jnp.int32),
    )
    above = jnp.where((first > 0) & (last > 0), last, 1.0)
    wanted = rule.k * jnp.sqrt(jnp.where(first > 0, first, 1.0) / above)
    wanted = jnp.where((first <= 0) | (last <= 0), rule.n_workers, wanted)
    wanted = jnp.where(jnp.isnan(last), rule.k, jnp.clip(wanted, 0, rule.n_workers))
    count = jnp.round(wanted).astype(jnp.int32) + state.stalls
    return state, Choice(jnp.clip(count, 1, rule.n_workers), rule.load, state.stalls)


def _by_error(
    errors: Array,
    limits: Array,
    minimum: Array,
    stages: Stages,
    place: Place,
    observation: Observation,
) -> tuple[Place, Choice]:
    """The stage that the error has come to by its ends, or the next if it lasts over a limit."""
    gap = observation.loss - minimum
    reached = jnp.minimum(jnp.sum(gap <= errors), stages.last).astype(jnp.int32)
    stalled = observation.update - place.since >= limits[place.stage]
    next_place, _ = schedules.moved_on(stages, place, stalled, observation.update)
    is_further = reached > next_place.stage
    stage = jnp.where(is_further, reached, next_place.stage)
    since = jnp.where(is_further, observation.update, next_place.since).astype(jnp.int32)
    return Place(stage, since), schedules.choice_of(stages, stage)
