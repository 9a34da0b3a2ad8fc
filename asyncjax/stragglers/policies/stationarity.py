"""Tests of stationarity: switch when SGD with this `(k, load)` has stopped getting anywhere.

    sign_test       counter += 1 if <g_j, g_(j-1)> < 0 else -1
                    switch if counter > threshold and u > burn_in
    distance_test   slope = (log d_u - log d_c) / (log u - log c),    d = |w - w_s|^2
                    at checkpoints c and u = ceil(ratio c); switch if slope < bound, u > burn_in

`u` counts the updates made in this stage, which began at `w_s`. In the noise around the optimum
gradients turn against each other and the distance stays. Adaptive fastest-k SGD after Kas
Hanna et al. (2020) uses the sign test; Pesme, Dieuleveut and Flammarion (2020) show that it judges
badly, and propose the distance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.tree_util import Partial

from asyncjax.stragglers.policies.policy import Choice, Observation, Policy
from asyncjax.stragglers.policies.schedules import (
    Place,
    Stages,
    choice_of,
    counted,
    first_place,
    moved_on,
    number,
    patience_of,
    read_stages,
)


class Limits(NamedTuple):
    """Numbers of a test."""

    bound: Array  # int32[] the counter must pass, or float[] that the slope must fall below
    burn_in: Array  # int32[], updates that a stage lasts at least, less one
    patience: Array  # int32[], updates after which it is left in any case


class SignState(NamedTuple):
    """State of the sign test."""

    place: Place
    counter: Array  # int32[], negative less positive inner products in this stage


class DistanceState(NamedTuple):
    """State of the distance test."""

    place: Place
    checkpoint: Array  # int32[], updates of this stage at the last checkpoint; 0 before the first
    log_distance: Array  # float[], log d there; NaN before the first


def sign_test(
    k: Any,
    load: Any = 1.0,
    *,
    threshold: Any,
    burn_in: Any,
    patience: Any = None,
    max_load: int | None = None,
) -> Policy:
    """Returns the policy that switches when successive gradients disagree (arXiv 2002.11005).

    Formula: the counter rises by 1 where `agreement < 0` and falls by 1 elsewhere; the next stage
    begins, with counter 0, once `counter > threshold` after more than `burn_in` updates of a stage.

    Args:
        k, load, max_load: As for `staged`.
        threshold: The counter must pass this, an integer of at least 0; may be traced.
        burn_in: Updates that a stage lasts at least, less one; may be traced.
        patience: Updates after which a stage is left anyway, None for never; may be traced.

    Note:
        The last gradient is kept over a switch. The test fires early where gradients are noisy: far
        from stationary, too, their products are then negative almost half of the time.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = sign_test([1, 4], threshold=0, burn_in=0)
        >>> seen = stragglers.nothing_seen(4)
        >>> _, choice = policy.decide(policy.init(), seen._replace(update=2, agreement=-1.0))
        >>> int(choice.k)
        4
    """
    stages, most, varies = read_stages(k, load, max_load)
    bound, least = counted("threshold", threshold, 0), counted("burn_in", burn_in, 0)
    limits = Limits(bound, least, patience_of(patience))
    return Policy(Partial(_no_signs), Partial(_by_signs, limits, stages), most, varies)


def distance_test(
    k: Any,
    load: Any = 1.0,
    *,
    burn_in: Any,
    ratio: Any = 1.5,
    slope: Any = 0.6,
    patience: Any = None,
    max_load: int | None = None,
) -> Policy:
    """Returns the policy that switches when the distance has stopped growing (arXiv 2007.00534).

    Formula: checkpoints are the updates `1, ..., c, max(c + 1, ceil(ratio c)), ...` of a stage; the
    next stage begins at a checkpoint `u > burn_in` at which `(log d_u - log d_c) / (log u - log c)`
    is less than `slope`.

    Args:
        k, load: As for `sign_test`.
        burn_in: Updates that a stage lasts at least, less one; may be traced.
        ratio: Of successive checkpoints, greater than 1; may be traced.
        slope: Exponent of growth below which a stage is over; may be traced. A straight descent has
            2, a random walk 1, stationary noise 0.
        patience, max_load: As for `sign_test`.

    Note:
        The distance is that from where the stage began, as in the paper, where the loop says it
        (`Observation.stage_distance`); else that from where the run began.

    Example:
        The distance grows like the square root of the updates, less than the bound allows:

        >>> from asyncjax import stragglers
        >>> policy, seen = distance_test([1, 4], burn_in=4), stragglers.nothing_seen(4)
        >>> state = policy.init()
        >>> for j in range(9):
        ...     seen = seen._replace(update=j, distance=j**0.5)
        ...     state, choice = policy.decide(state, seen)
        ...     print(int(choice.k), end=" ")
        1 1 1 1 1 4 4 4 4
    """
    stages, most, varies = read_stages(k, load, max_load)
    limits = Limits(number("slope", slope), counted("burn_in", burn_in, 0), patience_of(patience))
    decide = Partial(_by_distance, limits, number("ratio", ratio, above=1), stages)
    return Policy(Partial(_no_distance), decide, most, varies)


def _no_signs() -> SignState:
    """No products of gradients yet."""
    return SignState(first_place(), jnp.zeros((), jnp.int32))


def _by_signs(
    limits: Limits, stages: Stages, state: SignState, observation: Observation
) -> tuple[SignState, Choice]:
    """Counts the last product, and moves on if there were enough negative ones."""
    agreement = observation.agreement
    vote = jnp.where(jnp.isnan(agreement), 0, jnp.where(agreement < 0, 1, -1))
    counter = (state.counter + vote).astype(jnp.int32)
    updates = observation.update - state.place.since
    is_over = (counter > limits.bound) & (updates > limits.burn_in)
    told = is_over | (updates >= limits.patience)
    place, moved = moved_on(stages, state.place, told, observation.update)
    counter = jnp.where(moved, 0, counter)
    return SignState(place, counter), choice_of(stages, place.stage)


def _no_distance() -> DistanceState:
    """No checkpoint yet."""
    unknown = jnp.full((), jnp.nan, jnp.result_type(float))
    return DistanceState(first_place(), jnp.zeros((), jnp.int32), unknown)


def _by_distance(
    limits: Limits, ratio: Array, stages: Stages, state: DistanceState, observation: Observation
) -> tuple[DistanceState, Choice]:
    """Compares the distance with that of the last checkpoint, where a checkpoint is due."""
    updates = observation.update - state.place.since
    before = state.checkpoint
    due = updates >= jnp.maximum(before + 1, jnp.ceil(ratio * before))
    known = jnp.asarray(observation.stage_distance)
    distance = jnp.where(jnp.isnan(known), observation.distance, known)
    now = jnp.log(distance).astype(state.log_distance.dtype)
    apart = jnp.log(updates / jnp.maximum(before, 1))
    is_flat = now - state.log_distance < limits.bound * apart
    told = due & (updates > limits.burn_in) & is_flat | (updates >= limits.patience)
    place, moved = moved_on(stages, state.place, told, observation.update)
    checkpoint = jnp.where(moved, 0, jnp.where(due, updates, before)).astype(jnp.int32)
    log_distance = jnp.where(moved, jnp.nan, jnp.where(due, now, state.log_distance))
    return DistanceState(place, checkpoint, log_distance), choice_of(stages, place.stage)
