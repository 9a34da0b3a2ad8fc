"""Slots: where versions and directions are kept, allocated like registers.

Which versions are still to be read is known from the trace. A version lives from the update that
creates it to the last update that takes a gradient read from it (so that the model it was read from
can be handed to the optimizer); then its slot is free. The peak is the number of distinct live
versions: never more than the open jobs and the current model where each gradient serves in one
update; in tables also the oldest models of rows that still serve.
"""

from heapq import heappop, heappush

import numpy as np

_CHUNK = 65_536  # intervals looked at in Python at once


def allocate(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, int]:
    """Gives each interval the lowest slot that is free.

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
    slots, count, released = np.full(len(first), -1, np.int64), 0, 0
    own = np.empty(len(kept), np.int64)
    free: list[int] = []
    for at in range(0, len(kept), _CHUNK):
        for k, until in enumerate(ended[at : at + _CHUNK].tolist(), at):
            if until > released:
                for slot in own[by_end[released:until]].tolist():
                    heappush(free, slot)
                released = until
            if free:
                own[k] = heappop(free)
            else:
                own[k], count = count, count + 1
    slots[kept] = own
    return slots, count
