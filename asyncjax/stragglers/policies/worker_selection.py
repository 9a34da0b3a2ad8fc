"""Learning which workers are fast, and giving work to no others.

    lower_i = mean_i - confidence sqrt(2 log j / tries_i),    crew = the k least lower_i

after `j` updates, `mean_i` the mean time of worker i a sample. Waiting for the k fastest of n
wastes the work of n - k workers in every update; a crew of k, all of whom are awaited, wastes none.
A combinatorial bandit with lower confidence bounds, after Egger, Bitar, Wachter-Zeh and Gündüz
(2022).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.tree_util import Partial

from asyncjax.checks import whole, within
from asyncjax.stragglers.policies.limits import number
from asyncjax.stragglers.policies.policy import MOST_WORKERS, Choice, Observation, Policy
from asyncjax.stragglers.policies.schedules import staged


class CrewState(NamedTuple):
    """What is known of the workers."""

    total: Array  # float[n], sum of response times a sample, time units
    tries: Array  # int32[n], responses seen
    load: Array  # float[], samples asked in the update under way


def learned_crew(
    n_workers: int,
    k: Any,
    load: Any = 1.0,
    updates: Any = math.inf,
    *,
    confidence: Any,
    max_load: int | None = None,
) -> Policy:
    """Makes the policy that gives work to k workers alone, and learns which are the fastest.

    Formula: the k workers with the least `mean_i - confidence sqrt(2 log j / tries_i)` get work,
    and all k are awaited; who has not been tried comes first, ties go to the lower index.

    Args:
        n_workers: Number of workers `n`.
        k: Size of the crew in each stage, a number in 1 .. n or `[S]`; may be traced.
        load: Samples a worker in each stage, whole, a number or `[S]`; may be traced.
        updates: Updates of each stage, as in `staged`; may be traced.
        confidence: Standard deviation of a response time, divided by the load, time units, at least
            0; may be traced. 0 trusts the means: it may then settle on slow workers for good.
        max_load: Most samples (static), needed where `load` is traced.

    Returns:
        A policy that leaves workers out.

    Raises:
        TypeError: If an argument is not made of numbers.
        ValueError: If one is out of range, the shapes do not fit, or `max_load` is missing.

    Note:
        The time of an update is the largest of k chosen workers, another quantity than the k-th
        fastest of n: longer, unless workers differ much. Times are divided by the load, which is
        fair where loads change and communication is short.

    Example:
        Three workers take 3, 1 and 2; each is tried once, then the crew is the two fastest:

        >>> import jax.numpy as jnp
        >>> from asyncjax import stragglers
        >>> policy, seen = learned_crew(3, 2, confidence=0.0), stragglers.nothing_seen(3)
        >>> state, times = policy.init(), jnp.array([3.0, 1.0, 2.0])
        >>> for j in range(3):
        ...     state, choice = policy.decide(state, seen._replace(update=j))
        ...     seen = seen._replace(response=times, used=choice.workers)
        ...     print([int(i) for i in choice.workers.nonzero()[0]], end=" ")
        [0, 1] [1, 2] [1, 2]

    Reference:
        After Egger, Bitar, Wachter-Zeh, Gündüz (2022), "Cost-efficient distributed learning via
        combinatorial multi-armed bandits", arXiv 2202.08302.
    """
    n_workers = whole("n_workers", n_workers, 1, MOST_WORKERS)
    within("k", k, least=1, most=n_workers, integer=True)
    inner = staged(k, load, updates, max_load=max_load)
    confidence = number("confidence", confidence, least=0)
    start = Partial(_untried, jnp.zeros((n_workers,), jnp.int32))
    decide = Partial(_by_bounds, confidence, inner.decide)
    return Policy(start, decide, inner.max_load, inner.varies_load)


def _untried(zeros: Array) -> CrewState:
    """Nobody has answered yet."""
    real = jnp.result_type(float)
    return CrewState(zeros.astype(real), zeros, jnp.ones((), real))


def _by_bounds(
    confidence: Array, decide: Partial, state: CrewState, observation: Observation
) -> tuple[CrewState, Choice]:
    """Takes in the last answers, and gives work to the workers that may be the fastest."""
    seen = observation.used & jnp.isfinite(observation.response)
    times = jnp.where(seen, observation.response, 0) / state.load
    total = (state.total + times).astype(state.total.dtype)
    tries = state.tries + seen.astype(jnp.int32)
    count = jnp.maximum(tries, 1)
    horizon = 2 * jnp.log(jnp.maximum(observation.update, 1).astype(total.dtype))
    lower = total / count - confidence * jnp.sqrt(horizon / count)
    lower = jnp.where(tries > 0, lower, -jnp.inf)
    rank = jnp.argsort(jnp.argsort(lower, stable=True), stable=True)
    _, choice = decide((), observation)
    load = jnp.asarray(choice.load, state.load.dtype)
    return CrewState(total, tries, load), choice._replace(workers=rank < choice.k)
