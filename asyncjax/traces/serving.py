"""Which gradients enter a step, and with which weight: told as the arrivals come.

A trace settles this when all arrivals are known (`collection.settled`). A server that trains must
know it at the step. The weights of a step depend on its own group of gradients alone; rows of
`reuse` depend on the arrivals up to the step alone, so the rows that serve in the step just made
are those that `reuse` of these arrivals lets serve last. A rule that `serves` says so itself, which
costs less than asking again for all arrivals.
"""

from __future__ import annotations

import numpy as np

from asyncjax.traces.collection import Arrivals, Collection, Entries, Verdict, settled


class Serving:
    """The gradients of one run that wait for a step, or serve.

    Example:
        >>> from asyncjax import traces
        >>> serving = Serving(traces.buffered(2), 2)
        >>> serving.hear(0, 0, 1.0, Verdict.KEEP), serving.hear(1, 1, 2.0, Verdict.STEP)
        ([], [(0, 0.5), (1, 0.5)])
    """

    def __init__(self, rule: Collection, n_workers: int) -> None:
        self._rule, self._n_workers = rule, n_workers
        self._rows: list[tuple[int, int, float, Verdict]] = []
        self._first = 0  # number of the arrival of the first row
        self._own = None if rule.serves is None else rule.serves(n_workers)

    def hear(self, worker: int, delay: int, time: float, verdict: Verdict) -> Entries:
        """What enters the step that this arrival makes, by arrival; empty if it makes none."""
        if self._own is not None:
            return self._own(worker, delay, verdict)
        self._rows.append((worker, delay, time, verdict))
        return self.step() if verdict is Verdict.STEP else []

    def step(self) -> Entries:
        """What enters the step that is made now, with the last arrival or by the clock."""
        arrivals = self._arrivals()
        found = settled(self._rule, arrivals)
        if self._rule.reuse is None:
            group = np.flatnonzero(arrivals.used)
            entries = _pairs(group + self._first, found["weight"][group])
            self._first += len(self._rows)
            self._rows.clear()
            return entries
        rows, last = found["reuse"], int(np.count_nonzero(arrivals.steps)) - 1
        serves = rows.last == last
        return _pairs(rows.arrival[serves], rows.weight[serves])

    def _arrivals(self) -> Arrivals:
        worker, delay, time, verdict = zip(*self._rows, strict=True)
        judged = np.array(verdict, np.int8)
        steps = judged == Verdict.STEP
        steps[-1] = True
        return Arrivals(
            np.array(worker, np.int32),
            np.array(delay, np.int32),
            np.array(time, np.float64),
            judged != Verdict.DROP,
            steps,
            self._n_workers,
        )


def _pairs(arrival: np.ndarray, weight: np.ndarray) -> Entries:
    return list(zip(arrival.tolist(), exact_weights(weight).tolist(), strict=True))


def exact_weights(weight: np.ndarray) -> np.ndarray:
    """Weights in float64; a float32 that is the nearest to 1/m for a whole m is taken as 1/m.

    Without this a mean of three gradients would be off by 1e-8 in a float64 run.
    """
    precise = weight.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 1.0 / np.round(1.0 / precise)
    is_share = (precise != 0) & (share.astype(np.float32) == weight.astype(np.float32))
    return np.where(is_share, share, precise)
