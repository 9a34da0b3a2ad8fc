"""Quotas: every worker gets a number of jobs of his own in every round.

    a = (a_0, .., a_{n-1}),   b = sum a:     worker i does a_i of the b jobs at a model

With `wait_for(b)` a round is a step: nothing is computed that no step uses, whoever is how fast.
Adaptive task allocation (ATA; Maranjyan, Saad, Richtárik and Orabona 2025, arXiv 2502.00775) looks
for the quotas with which a round ends soonest, and learns them while it runs (`learned`).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace

import jax
import numpy as np

from asyncjax.checks import shown, whole, within
from asyncjax.traces.dispatch import Answer, Dispatch


def quotas(counts: Sequence[int]) -> Dispatch:
    """Dispatch by quotas: in every round worker i gets `counts[i]` jobs.

    A round's jobs are handed out in order of workers, over and over. With
    `collect=wait_for(b), concurrency=b`, b = sum(counts), every step takes exactly the round's
    jobs, all at the model of the step before.

    Args:
        counts: Jobs of each worker in a round, int[m], at least 0 and not all 0; workers beyond the
            m-th get none.

    Returns:
        The rule.

    Raises:
        TypeError: `counts` is no list of integers.
        ValueError: It is empty, negative or 0 throughout; or, when the trace is made, longer than
            there are workers.

    Example:
        Three jobs for the worker that is three times as fast, one for the other:

        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(
        ...     clocks.constant([1.0, 3.0]),
        ...     n_updates=2,
        ...     dispatch=traces.quotas([3, 1]),
        ...     collect=traces.wait_for(4),
        ...     concurrency=4,
        ... )
        >>> trace.worker, trace.time[trace.steps], trace.delay.max()
        (array([0, 0, 0, 1, 0, 0, 0, 1], dtype=int32), array([3., 6.]), np.int32(0))

    Reference:
        Maranjyan, Saad, Richtárik, Orabona, 2025 (arXiv 2502.00775), ATA, with quotas that stay.
    """
    jobs = _counts(counts)
    order = np.repeat(np.arange(len(jobs)), jobs)

    def start(n_workers: int, key: jax.Array | None) -> Answer:
        if len(jobs) > n_workers:
            raise ValueError(f"counts must be those of {n_workers} workers, got {len(jobs)}")
        place = 0

        def answer(deliverers: Sequence[int]) -> Sequence[int]:
            nonlocal place
            handed = order[(place + np.arange(len(deliverers))) % len(order)]
            place = (place + len(deliverers)) % len(order)
            return handed.tolist()

        return answer

    return Dispatch("quotas", start)


def fastest_quotas(times: Sequence[float], b: int) -> list[int]:
    """Shares b jobs so that the last worker is done soonest: min over a of max_i a_i times_i.

    Args:
        times: What a job of each worker takes, in the mean, float[n], positive.
        b: Jobs of a round, at least 1.

    Returns:
        Jobs of each worker, n integers that sum to b, for `quotas`; of equally good ones those that
        are also best for fewer jobs. O(b log n).

    Raises:
        TypeError: `times` is not made of numbers, or `b` no integer.
        ValueError: A time is not positive and finite, `times` is empty or has more than one axis,
            or `b` is below 1.

    Note:
        `learned_quotas` learns the times while it runs; here they are given, as `clock.mean` tells
        them.

    Example:
        >>> fastest_quotas([1.0, 2.0, 10.0], 4)
        [3, 1, 0]

    Reference:
        Maranjyan, Saad, Richtárik, Orabona, 2025 (arXiv 2502.00775).
    """
    pace = np.asarray(within("times", times, above=0.0), np.float64)
    if pace.ndim != 1 or not pace.size:
        raise ValueError(f"times must be one number a worker, got shape {pace.shape}")
    b = whole("b", b)
    return shares(pace.tolist(), b)


def shares(pace: Sequence[float], b: int) -> list[int]:
    """The quotas of given times; those of time 0 take all jobs, and share them evenly.

    Example:
        >>> shares([0.0, 1.0, 0.0], 3)
        [2, 0, 1]
    """
    jobs = [0] * len(pace)
    ends = [(time, 0, i) for i, time in enumerate(pace)]  # of one job more; jobs, where all are 0
    heapify(ends)
    for _ in range(b):
        worker = ends[0][2]
        jobs[worker] += 1
        end = (jobs[worker] + 1) * pace[worker]
        heapreplace(ends, (end, jobs[worker] if end == 0 else 0, worker))
    return jobs


def _counts(counts: Sequence[int]) -> np.ndarray:
    """Reads the jobs of a round."""
    try:
        jobs = np.asarray(counts)
    except (TypeError, ValueError):  # ragged, or traced
        jobs = np.asarray(None)
    if jobs.dtype == object or np.ndim(jobs) == 0:
        raise TypeError(f"counts must be a list of integers, one a worker, got {shown(counts)}")
    if jobs.ndim != 1 or not jobs.size:
        raise ValueError(f"counts must be a list of integers, one a worker, got shape {jobs.shape}")
    within("counts", jobs, least=0, integer=True)
    if not jobs.any():
        raise ValueError("counts must have a job for somebody, got zeros")
    return jobs.astype(np.int64)
