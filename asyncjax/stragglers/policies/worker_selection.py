"""Whose work counts: workers stopped at a deadline, the last ones dropped, or slow ones left out.

    deadline, drop_compute    worker i does min(load, what fits into the deadline) samples
    backup_workers            k = n - extra
    learned_crew              lower_i = mean_i - confidence sqrt(2 log j / tries_i),
                              crew = the k least lower_i

After Ferdinand et al. (2020), Giladi et al. (2023) and Chen et al. (2016). After `j` updates
worker i takes `mean_i` a sample in the mean: a combinatorial bandit with lower confidence bounds,
after Egger, Bitar, Wachter-Zeh and Gündüz (2022).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.tree_util import Partial

from asyncjax.checks import whole, within
from asyncjax.stragglers.policies.policy import MOST_WORKERS, Choice, Observation, Policy
from asyncjax.stragglers.policies.schedules import fixed, number, staged


def deadline(compute_time: Any, *, max_load: int, k: Any = None, n_workers: int) -> Policy:
    """Returns the policy of anytime mini-batches: a fixed time of computing (arXiv 2006.05752).

    Formula: worker i sends the sum of the samples it has done by `compute_time`, at most
    `max_load`; what it has done is its weight.

    Args:
        compute_time: Longest time of computing, time units, positive; may be traced.
        max_load: Most samples a worker does in that time (static).
        k: Answers to wait for; None for all n; may be traced.
        n_workers: Number of workers `n`.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = deadline(2.5, max_load=32, n_workers=4)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(4))
        >>> int(choice.k), float(choice.load), float(choice.deadline), policy.stops
        (4, 32.0, 2.5, True)
    """
    n_workers, max_load = whole("n_workers", n_workers), whole("max_load", max_load)
    k = n_workers if k is None else within("k", k, least=1, most=n_workers, integer=True)
    limit = number("compute_time", compute_time, above=0, finite=False)
    return _stopped(limit, fixed(k, max_load, max_load=max_load))


def drop_compute(
    threshold: Any, load: Any, *, n_workers: int, max_load: int | None = None
) -> Policy:
    """Returns the policy whose workers stop at a threshold, or when done (arXiv 2306.10598).

    Formula: as `deadline`, with the ordinary load, and all n answers awaited.

    Args:
        threshold: Longest time of computing, time units, positive; may be traced.
        load, max_load: As for `fixed`.
        n_workers: Number of workers `n`.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = drop_compute(4.0, 8, n_workers=4)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(4))
        >>> int(choice.k), float(choice.load), float(choice.deadline)
        (4, 8.0, 4.0)
    """
    limit = number("threshold", threshold, above=0, finite=False)
    return _stopped(limit, fixed(whole("n_workers", n_workers), load, max_load=max_load))


def _stopped(limit: Array, policy: Policy) -> Policy:
    """A policy with a deadline."""
    return replace(policy, decide=Partial(_by_deadline, limit, policy.decide), stops=True)


def _by_deadline(
    limit: Array, decide: Partial, state: tuple[()], observation: Observation
) -> tuple[tuple[()], Choice]:
    """What the fixed policy asks, until the deadline."""
    state, choice = decide(state, observation)
    return state, choice._replace(deadline=limit)


def backup_workers(
    n_workers: int, extra: int, load: Any = 1.0, *, max_load: int | None = None
) -> Policy:
    """Returns the policy that drops the last few workers of every update (arXiv 1604.00981).

    Formula: `k = n_workers - extra`.

    Args:
        n_workers: Number of workers `n`, the backups among them.
        extra: How many are dropped, 0 .. n - 1.
        load, max_load: As for `fixed`.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = backup_workers(10, 2, 16)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(10))
        >>> int(choice.k)
        8
    """
    n_workers = whole("n_workers", n_workers)
    extra = whole("extra", extra, 0, n_workers - 1)
    return fixed(n_workers - extra, load, max_load=max_load)


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
    """Returns the policy that learns which k workers to give work to (arXiv 2202.08302).

    Formula: the k workers with the least `mean_i - confidence sqrt(2 log j / tries_i)` get work,
    and all k are awaited; who has not been tried comes first, ties go to the lower index.

    Args:
        n_workers: Number of workers `n`.
        k: Size of the crew in each stage, a number in 1 .. n or `[S]`; may be traced.
        load, updates, max_load: As for `staged`.
        confidence: Standard deviation of a response time, divided by the load, time units; may be
            traced. 0 trusts the means: it may then settle on slow workers for good.

    Note:
        The time of an update is the largest of k chosen workers, not the k-th fastest of n. Times
        are divided by the load, which is fair where communication is short.

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
