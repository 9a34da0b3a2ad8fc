r"""Quotas that are learned: adaptive task allocation (ATA), a bandit over the workers' times.

At the start of round k, with K_i times of worker i known and their mean m_i,

    s_i = max(0, m_i - c(K_i, k)),     0 where K_i = 0
    a   = the quotas of `fastest_quotas` for the times s_i:  min over a of max_i a_i s_i

and worker i does a_i of the round's b jobs. Whoever is little known is thought fast, so he is
tried. Maranjyan, Saad, Richtárik and Orabona 2025 (arXiv 2502.00775).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import e, log, sqrt

import jax

from asyncjax.checks import function_of, real, whole
from asyncjax.traces.dispatch import Answer, Dispatch
from asyncjax.traces.quotas import shares

Width = Callable[[int, int], float]  # (K_i, k), both at least 1 -> c


def learned_quotas(b: int, *, scale: float = 0.0, width: Width | None = None) -> Dispatch:
    r"""Dispatch by quotas that follow lower confidence bounds of the workers' times (ATA).

    With `collect=wait_for(b), concurrency=b` every step takes exactly the round's b jobs, all at
    the model of the step before.

    Args:
        b: Jobs of a round, at least 1.
        scale: alpha, how far times scatter, at least 0, time units (in the paper the largest
            sub-exponential norm of a worker's law). 0 trusts the means as soon as there is one.
        width: `(count, round) -> c`, in place of the paper's
            :math:`c = 4 e \alpha (\sqrt{r} + r)`, :math:`r = \ln(2 k^2) / K_i`.

    Returns:
        The rule, random nowhere.

    Raises:
        TypeError: An argument is of the wrong kind; when the trace is made, what `width` gives.
        ValueError: `b` is below 1, or `scale` negative or not finite; when the trace is made, what
            `width` gives.

    Note:
        Read, in a summary of the paper: the bounds, what the quotas minimise, and that times of
        finished jobs are all that is observed. The default width is recalled. Of equally good
        quotas the paper's recursion takes some, which ones was not to be had: here workers with a
        bound of 0 share the jobs evenly, those with the smaller number first.

        A time is that from start to arrival, also where links are slow or the worker was away. Jobs
        that are given up are not observed.

    Example:
        One round tells the times of two jobs each; then the faster worker gets more:

        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(
        ...     clocks.constant([1.0, 3.0]),
        ...     n_updates=3,
        ...     dispatch=traces.learned_quotas(4),
        ...     collect=traces.wait_for(4),
        ...     concurrency=4,
        ... )
        >>> trace.time[trace.steps], trace.worker[trace.version == 1]
        (array([ 6.,  9., 12.]), array([0, 0, 0, 1], dtype=int32))

    Reference:
        Maranjyan, Saad, Richtárik, Orabona, 2025, "ATA: adaptive task allocation for efficient
        resource management in distributed machine learning", arXiv 2502.00775.
    """
    b, scale = whole("b", b), real("scale", scale, least=0.0)
    if width is not None:
        function_of("width", width, "count", "round", reason=", or None")
    chosen = _published(scale) if width is None else width

    def start(n_workers: int, key: jax.Array | None) -> Answer:
        return _Learner(n_workers, b, chosen)

    return Dispatch("learned quotas", start)


def _published(scale: float) -> Width:
    def width(count: int, number: int) -> float:
        ratio = log(2 * number**2) / count
        return 4 * e * scale * (sqrt(ratio) + ratio)

    return width


class _Learner:
    """One run: answers with the workers of the round, and hears how long jobs took."""

    def __init__(self, n_workers: int, b: int, width: Width) -> None:
        self.b, self.width, self.round = b, width, 0
        self.count, self.total = [0] * n_workers, [0.0] * n_workers
        self.left: list[int] = []  # of the round, last first

    def observe(self, worker: int, duration: float) -> None:
        """Hears of a job that is done."""
        self.count[worker] += 1
        self.total[worker] += duration

    def __call__(self, deliverers: Sequence[int]) -> Sequence[int]:
        handed = []
        for _ in deliverers:
            if not self.left:
                self._begin()
            handed.append(self.left.pop())
        return handed

    def _begin(self) -> None:
        """Lays down the quotas of the next round."""
        self.round += 1
        quotas = shares([self._bound(i) for i in range(len(self.count))], self.b)
        self.left = [i for i, jobs in enumerate(quotas) for _ in range(jobs)][::-1]

    def _bound(self, worker: int) -> float:
        count = self.count[worker]
        if not count:
            return 0.0
        wide = real(f"width({count}, {self.round})", self.width(count, self.round), least=0.0)
        return max(0.0, self.total[worker] / count - wide)
