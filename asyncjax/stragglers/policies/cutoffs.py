"""Cutting off: computing at a deadline, or the answers of the last workers.

    deadline, drop_compute    worker i does min(load, what fits into the deadline) samples
    backup_workers            k = n - extra

A fixed time of computing makes the time of an update certain and the batch random; cancelling the
last workers makes the batch certain and shortens the time. After Ferdinand et al. (2020), Giladi et
al. (2023) and Chen et al. (2016).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jax import Array
from jax.tree_util import Partial

from asyncjax.checks import whole, within
from asyncjax.stragglers.policies.limits import number
from asyncjax.stragglers.policies.policy import Choice, Observation, Policy
from asyncjax.stragglers.policies.schedules import fixed


def deadline(compute_time: Any, *, max_load: int, k: Any = None, n_workers: int) -> Policy:
    """Makes the policy that lets workers compute for a fixed time: anytime mini-batches.

    Formula: worker i sends the sum of the samples it has done by `compute_time`, at most
    `max_load`; what it has done is its weight.

    Args:
        compute_time: Longest time of computing, time units, positive; may be traced.
        max_load: Most samples a worker does in that time (static).
        k: Answers to wait for; None for all n; may be traced.
        n_workers: Number of workers `n`.

    Returns:
        A policy that stops workers.

    Raises:
        TypeError: If an argument is no number.
        ValueError: If one is out of range.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = deadline(2.5, max_load=32, n_workers=4)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(4))
        >>> int(choice.k), float(choice.load), float(choice.deadline), policy.stops
        (4, 32.0, 2.5, True)

    Reference:
        After Ferdinand et al. (2020), "Anytime minibatch: exploiting stragglers in online
        distributed optimization", arXiv 2006.05752.
    """
    max_load = whole("max_load", max_load)
    return _stopped("compute_time", compute_time, k, max_load, max_load, n_workers)


def drop_compute(
    threshold: Any, load: Any, *, n_workers: int, max_load: int | None = None
) -> Policy:
    """Makes the policy of synchronous training whose workers stop at a threshold, or when done.

    Formula: as `deadline`, with the ordinary load, and all n answers awaited.

    Args:
        threshold: Longest time of computing, time units, positive; may be traced.
        load: Samples a worker does where it is in time, a whole number; may be traced.
        n_workers: Number of workers `n`.
        max_load: Most samples (static), needed where `load` is traced.

    Returns:
        A policy that stops workers.

    Raises:
        TypeError: If an argument is no number.
        ValueError: If one is out of range, or `max_load` is missing.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = drop_compute(4.0, 8, n_workers=4)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(4))
        >>> int(choice.k), float(choice.load), float(choice.deadline)
        (4, 8.0, 4.0)

    Reference:
        After Giladi et al. (2023), "DropCompute: simple and more robust distributed synchronous
        training via compute variance reduction", arXiv 2306.10598.
    """
    return _stopped("threshold", threshold, None, load, max_load, n_workers)


def backup_workers(
    n_workers: int, extra: int, load: Any = 1.0, *, max_load: int | None = None
) -> Policy:
    """Makes the policy that starts all workers and drops the last few of every update.

    Formula: `k = n_workers - extra`.

    Args:
        n_workers: Number of workers `n`, the backups among them.
        extra: How many are dropped, 0 .. n - 1.
        load: Samples a worker, a whole number; may be traced.
        max_load: Most samples (static), needed where `load` is traced.

    Returns:
        A policy.

    Raises:
        TypeError: If an argument is no number.
        ValueError: If one is out of range, or `max_load` is missing.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = backup_workers(10, 2, 16)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(10))
        >>> int(choice.k)
        8

    Reference:
        After Chen et al. (2016), "Revisiting distributed synchronous SGD", arXiv 1604.00981.
    """
    n_workers = whole("n_workers", n_workers)
    extra = whole("extra", extra, 0, n_workers - 1)
    return fixed(n_workers - extra, load, max_load=max_load)


def _stopped(
    name: str, limit: Any, k: Any, load: Any, max_load: int | None, n_workers: int
) -> Policy:
    """A fixed policy with a deadline."""
    n_workers = whole("n_workers", n_workers)
    k = n_workers if k is None else k
    within("k", k, least=1, most=n_workers, integer=True)
    limit = number(name, limit, above=0, finite=False)
    policy = fixed(k, load, max_load=max_load)
    return replace(policy, decide=Partial(_by_deadline, limit, policy.decide), stops=True)


def _by_deadline(
    limit: Array, decide: Partial, state: tuple[()], observation: Observation
) -> tuple[tuple[()], Choice]:
    """What the fixed policy asks, until the deadline."""
    state, choice = decide(state, observation)
    return state, choice._replace(deadline=limit)
