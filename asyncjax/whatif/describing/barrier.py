"""Stamps behind a barrier: a log in which nobody can see how uneven its workers are.

A log that only tells when steps ended holds what lies between two ends, the wait for others
included. Where all wait for the slowest, and stamp after that, all seem to take as long as it did.
With e_ij the stamp of worker i for step j, and d_ij the durations, differences of these,

    median_j (max_i e_ij - min_i e_ij) < 0.05 median_ij d_ij

Which stamps are of one step is told by time: those that are nearest to a stamp of the worker with
the fewest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.traces import Log

LINE = (
    "t = time.perf_counter(); grads = jax.block_until_ready(grad(params, batch));"
    " log.writerow((rank, step, time.perf_counter() - t))"
)
_TOGETHER = 0.05  # of a step
_LEAST = 3  # stamps of every worker


class Barrier(NamedTuple):
    """Stamps that lie together, step by step."""

    spread: float  # from the first to the last worker, median over steps, in the unit of the log
    step: float  # the median duration of a step


def barrier_of(log: Log) -> Barrier | None:
    """What hides the unevenness of a log; None: its durations were measured, or stamps lie apart.

    Example:
        >>> from asyncjax import traces
        >>> rows = [{"rank": i, "end": t + 0.01 * i} for i in range(3) for t in (1, 3, 4, 6, 9)]
        >>> found = barrier_of(traces.read_log(rows))
        >>> round(found.spread, 3), found.step
        (0.02, 2.0)
        >>> barrier_of(traces.read_log({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]})) is None
        True
    """
    if log.stamps is None or log.n_workers < 2 or min(map(len, log.stamps)) < _LEAST:
        return None
    stamps = [np.sort(row) for row in log.stamps]
    reference = min(stamps, key=len)
    ends = np.stack([_nearest(row, reference) for row in stamps])
    spread = float(np.median(np.ptp(ends, axis=0)))
    step = float(np.median(np.concatenate(log.durations)))
    return Barrier(spread, step) if spread < _TOGETHER * step else None


def _nearest(row: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Of a sorted row the entry that is nearest to each moment."""
    after = np.clip(np.searchsorted(row, moments), 1, len(row) - 1)
    before = row[after - 1]
    return np.where(moments - before <= row[after] - moments, before, row[after])


def hidden(barrier: Barrier, unit: str) -> str:
    """That unevenness cannot be seen, and why, in a sentence with a full stop."""
    short = "s" if unit == "seconds" else unit
    return (
        "Unevenness cannot be seen in this log: its durations are differences of stamps, and all"
        f" workers stamp a step at about the same moment (within {barrier.spread:.2g} {short}, of"
        f" steps of {barrier.step:.3g} {short}), as they do when they wait for each other. So every"
        " duration contains the wait for the slowest worker."
    )


def remedy() -> str:
    """What to log instead, with a line of code."""
    return (
        "Log instead how long each worker computes, measured before gradients are exchanged, in a"
        f" table with the columns rank, step, seconds: {LINE}"
    )
