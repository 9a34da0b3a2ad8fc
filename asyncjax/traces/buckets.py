"""A collection by buckets: the server steps when each of B groups of workers has been heard.

    worker i writes into bucket i mod B;     the step comes with the first gradient of the last
    bucket that had none;     then all are empty again

Buffered asynchronous SGD (BASGD; Yang and Li, 2021) steps along a robust aggregate of the means of
the buckets. Here a trace says who is in a step, and `steps.bucketed` makes the direction of it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncjax.checks import whole
from asyncjax.traces.collection import Arrivals, Collection, Collector, Verdict


def every_bucket(n_buckets: int) -> Collection:
    """BASGD's collection: a step comes once every bucket has at least one gradient.

    Each deliverer gets its next job at once. A worker who delivers often, or sends anything, fills
    one bucket only, and the slow ones of a bucket need not be waited for.

    Args:
        n_buckets: Buckets B, at least 1 and at most the number of workers; worker i writes into
            bucket i mod B. One is the pure rule; as many as workers wait for everybody.

    Returns:
        The rule. Every gradient of a step has the same weight, 1 / their number, so that
        `simulation.Update(optimizer, aggregator=steps.bucketed(n_buckets, steps.median()))` steps
        along the median of the buckets' means, and `steps.mean()` in its place along their mean.
        Without an aggregate the step is along the mean of all gradients.

    Raises:
        TypeError: `n_buckets` is not an integer.
        ValueError: It is below 1; when the trace is made, there are fewer workers.

    Note:
        Read in the authors' text (the version under review, 2021), Section 3.1: buffers, their
        means, and that the server answers a worker immediately.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rule = traces.every_bucket(2)
        >>> clock = clocks.constant([1.0, 1.5, 4.0])  # workers 0 and 2 share a bucket
        >>> trace = traces.asynchronous(clock, n_updates=3, collect=rule)
        >>> trace.worker, trace.time[trace.steps]
        (array([0, 1, 0, 0, 1, 0, 2, 1], dtype=int32), array([1.5, 3. , 4.5]))

    Reference:
        Yang, Li, 2021, "BASGD: buffered asynchronous SGD for Byzantine learning", arXiv 2003.00937,
        Algorithm 2.
    """
    n_buckets = whole("n_buckets", n_buckets)

    def start(n_workers: int) -> Collector:
        if n_buckets > n_workers:
            raise ValueError(
                f"n_buckets must be at most the number of workers, {n_workers}, got {n_buckets}"
            )
        empty = set(range(n_buckets))

        def receive(worker: int, delay: int) -> Verdict:
            empty.discard(worker % n_buckets)
            if empty:
                return Verdict.KEEP
            empty.update(range(n_buckets))
            return Verdict.STEP

        def is_stuck_without(lost: Set[int]) -> bool:
            left = {worker % n_buckets for worker in range(n_workers) if worker not in lost}
            return len(lost) == n_workers or not empty <= left

        return Collector(receive, is_stuck_without=is_stuck_without)

    return Collection(f"every of {n_buckets} buckets", start, _equally)


def _equally(arrivals: Arrivals) -> NDArray[np.floating[Any]]:
    """The weights of a mean over the gradients of each step, all of which are used."""
    return 1.0 / np.bincount(arrivals.version)[arrivals.version]
