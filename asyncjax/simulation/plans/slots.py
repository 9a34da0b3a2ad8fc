"""Slots: where versions and directions are kept, allocated like registers.

Which versions are still to be read is known from the trace. A version lives from the update that
creates it to the last update that takes a gradient read from it (so that the model it was read from
can be handed to the optimizer); then its slot is free. The peak is the number of distinct live
versions: never more than the open jobs and the current model where each gradient serves in one
update; in tables also the oldest models of rows that still serve.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

_CHUNK = 65_536  # intervals looked at in Python at once
_MANY_SLOTS = 8_192  # from here on which of the free ones is taken matters less than the time


def allocate(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, int]:
    """Gives each interval a slot that is free, as few slots as can be.

    The lowest free one; where there are thousands, the one that has been free longest, which is
    found in whole arrays.

    `first` int[K], not falling but for those below 0, which get no slot; `last` int[K], at least
    `first`.

    Example:
        >>> import numpy as np
        >>> from asyncjax.simulation.plans.slots import allocate
        >>> allocate(np.array([0, 0, 1, 3]), np.array([2, 0, 4, 3]))
        (array([0, 1, 1, 0]), 2)
    """
    kept = np.flatnonzero(first >= 0)
    begins, ends = first[kept], last[kept]
    by_end = np.argsort(ends, kind="stable")
    # How many of them have ended before each begins: the first so many of `by_end`.
    ended = np.searchsorted(ends[by_end], begins, side="left")
    # Slots in use once each has one: a new one is needed where none of those released is left.
    opened = np.maximum.accumulate(np.arange(1, len(kept) + 1) - ended)
    count = int(opened[-1]) if len(kept) else 0
    slots = np.full(len(first), -1, np.int64)
    many = count >= _MANY_SLOTS
    slots[kept] = _longest_free(by_end, opened) if many else _lowest_free(by_end, ended)
    return slots, count


def _lowest_free(by_end: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """The lowest free slot of each interval, one by one."""
    own, count, released = np.empty(len(by_end), np.int64), 0, 0
    free: list[int] = []
    for at in range(0, len(by_end), _CHUNK):
        for k, until in enumerate(ended[at : at + _CHUNK].tolist(), at):
            if until > released:
                for slot in own[by_end[released:until]].tolist():
                    heappush(free, slot)
                released = until
            if free:
                own[k] = heappop(free)
            else:
                own[k], count = count, count + 1
    return own


def _longest_free(by_end: np.ndarray, opened: np.ndarray) -> np.ndarray:
    """The slot of each interval that was released first: its r-th reuse is of the r-th to end.

    Who takes over from whom makes chains; each interval's pointer is led to the head of its own,
    which took a new slot, in turns that double what they jump.
    """
    is_new = np.diff(opened, prepend=0) > 0
    before, reused = np.arange(len(by_end)), np.flatnonzero(~is_new)
    before[reused] = by_end[: len(reused)]
    while len(reused):
        ahead = before[before[reused]]
        moved = ahead != before[reused]
        reused = reused[moved]
        before[reused] = ahead[moved]
    return opened[before] - 1
