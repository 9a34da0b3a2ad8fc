"""Collection rules that also react to time: the server steps when it has waited long enough.

With c the gradients collected since the last step, at the time u,

    grace_period(w)         steps w after the quorum-th of them arrived
    adaptive_deadline(s)    steps at u + median + s MAD of how long the last jobs took, or, where
                            c < quorum then, as soon as c = quorum

and both at once when c = most, everybody has delivered. x <- x - mean of the c gradients. Workers
are answered with the step (`holds_back`) or at once; whoever is late enters a later step.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asyncjax.checks import flag, real, whole, within
from asyncjax.traces.collection import Arrivals, Collection, Collector, Timer, Verdict
from asyncjax.traces.collection_rules import without_all

Staleness = Callable[[NDArray[np.int32]], ArrayLike]
_FEW = 256  # numbers whose median Python finds faster than NumPy


def grace_period(
    wait: float,
    *,
    quorum: int = 1,
    most: int | None = None,
    holds_back: bool = True,
    staleness: Staleness | None = None,
) -> Collection:
    """The server waits for a quorum, then a little longer, and steps with whoever is there.

    Args:
        wait: How long it waits after the `quorum`-th gradient, at least 0, time units. 0 with a
            quorum of 1 is the pure rule; inf waits for `most`.
        quorum: Gradients without which it does not step, at least 1.
        most: Gradients at which it steps at once, at least `quorum`; None: as many as there are
            workers, or `quorum` if that is more.
        holds_back: Workers get their next job with the step that takes their gradient. False: at
            once.
        staleness: `(delay int32[E]) -> float[E]`, a factor of each gradient by its delay, at least
            0, as in `buffered`. None: all 1.

    Returns:
        The rule. A step is made when the wait is over; the trace says so in `step_time`. The
        divisor is the number of gradients in the step, with and without `staleness`.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.constant([1.0, 1.5, 4.0])
        >>> rule = traces.grace_period(1.0)
        >>> trace = traces.asynchronous(clock, n_updates=2, collect=rule)
        >>> trace.update_time, trace.worker, trace.delay[-1]
        (array([2., 4.]), array([0, 1, 0, 1, 2], dtype=int32), np.int32(1))
    """
    wait = real("wait", wait, least=0.0, finite=False)
    quorum, most, holds_back = _counts(quorum, most, holds_back)

    def start(n_workers: int) -> Collector:
        group = _Group(n_workers, quorum, most)

        def receive(worker: int, delay: int) -> Verdict:
            return group.take(enough=wait == 0.0)

        def heard(worker: int, now: float) -> float:
            if group.count == quorum:
                group.due = now + wait
            return group.due

        timer = Timer(lambda now: inf, heard, group.close)
        return Collector(receive, None, without_all(n_workers), timer)

    name = f"grace of {wait:g} after {quorum}"
    return _collection(name, start, quorum, most, staleness, holds_back=holds_back)


def adaptive_deadline(
    scale: float = 3.0,
    *,
    window: int | None = None,
    quorum: int = 1,
    most: int | None = None,
    holds_back: bool = True,
    staleness: Staleness | None = None,
) -> Collection:
    r"""The server steps when jobs usually are back, and a little slack has passed.

    .. math:: t = u + \mathrm{median}(T) + s \, \mathrm{median} |T - \mathrm{median}(T)|

    with u the time of the last step, T how long the last arrivals took since their worker was
    answered the last time, those of late workers included, and s = `scale`.

    Args:
        scale: s, at least 0. (For normal times 1.48 median deviations are one standard deviation.)
        window: How many of T are remembered; None: four for every worker. Until as many are
            remembered as there are workers, the server waits for `most`.
        quorum: Gradients without which it does not step, at least 1; if fewer are there at the
            deadline, it steps with the one that makes the quorum.
        most: As in `grace_period`.
        holds_back: As in `grace_period`.
        staleness: As in `grace_period`.

    Returns:
        The rule; the trace says in `step_time` when the steps were.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.constant([1.0, 1.0, 1.5, 9.0])
        >>> rule = traces.adaptive_deadline(2.0)
        >>> trace = traces.asynchronous(clock, n_updates=4, collect=rule)
        >>> trace.update_time  # the first waits for all; then 1.25 + 2 x 0.25, then 1 + 2 x 0
        array([ 9.  , 10.75, 11.75, 12.75])
    """
    scale = real("scale", scale, least=0.0)
    window = None if window is None else whole("window", window)
    quorum, most, holds_back = _counts(quorum, most, holds_back)

    def start(n_workers: int) -> Collector:
        group = _Group(n_workers, quorum, most)
        least = n_workers if window is None else min(window, n_workers)
        took: deque[float] = deque(maxlen=4 * n_workers if window is None else window)
        answered_at, answered = [0.0] * n_workers, list[int]()

        def begin(now: float) -> float:
            group.is_overdue, group.due = False, inf
            for worker in answered:
                answered_at[worker] = now
            answered.clear()
            if len(took) >= least:
                median = statistics.median if len(took) < _FEW else np.median
                middle = median(took)
                group.due = now + float(middle + scale * median([abs(t - middle) for t in took]))
            return group.due

        def receive(worker: int, delay: int) -> Verdict:
            return group.take(enough=group.is_overdue)

        def heard(worker: int, now: float) -> float:
            took.append(now - answered_at[worker])
            if holds_back:
                answered.append(worker)
            else:
                answered_at[worker] = now
            return inf if group.is_overdue else group.due

        timer = Timer(begin, heard, group.close)
        return Collector(receive, None, without_all(n_workers), timer)

    name = f"deadline of median + {scale:g} MAD"
    return _collection(name, start, quorum, most, staleness, holds_back=holds_back)


class _Group:
    """The gradients of the step that is being formed."""

    def __init__(self, n_workers: int, quorum: int, most: int | None) -> None:
        self.quorum, self.most = quorum, max(quorum, n_workers) if most is None else most
        self.count = 0
        self.due, self.is_overdue = inf, False  # when it rings; whether it has, in vain

    def take(self, *, enough: bool) -> Verdict:
        """Adds a gradient; steps if `most` are there, or the quorum where that is `enough`."""
        self.count += 1
        if self.count >= (self.quorum if enough else self.most):
            self._end()
            return Verdict.STEP
        return Verdict.KEEP

    def close(self) -> bool:
        """Ends the group at its time, if the quorum is there."""
        self.is_overdue = self.count < self.quorum
        if not self.is_overdue:
            self._end()
        return not self.is_overdue

    def _end(self) -> None:
        self.count, self.due = 0, inf


def _counts(quorum: int, most: int | None, holds_back: bool) -> tuple[int, int | None, bool]:
    quorum, holds_back = whole("quorum", quorum), flag("holds_back", holds_back)
    return quorum, None if most is None else whole("most", most, quorum), holds_back


def _collection(
    name: str,
    start: Callable[[int], Collector],
    quorum: int,
    most: int | None,
    staleness: Staleness | None,
    *,
    holds_back: bool,
) -> Collection:
    """The rule, which says how many open jobs it needs where its workers are held back."""

    def weigh(arrivals: Arrivals) -> NDArray[np.floating[Any]]:
        factor = 1.0 if staleness is None else staleness(arrivals.delay)
        count = np.bincount(arrivals.version)[arrivals.version]
        return np.asarray(within("staleness", factor, least=0.0)) / count

    if not holds_back:
        return Collection(name, start, weigh)
    most = quorum if most is None else most
    return Collection(name, start, weigh, holds_back=True, quorum=quorum, most=most)
