"""The plain way to give intervals slots: a heap of those that are taken, and one of the free."""

from heapq import heappop, heappush

import numpy as np


def allocate(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, int]:
    """Gives each interval the lowest slot that is free."""
    slots, count = np.full(len(first), -1, np.int64), 0
    free: list[int] = []
    busy: list[tuple[int, int]] = []  # (last moment, slot)
    for k, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        if begin < 0:
            continue
        while busy and busy[0][0] < begin:
            heappush(free, heappop(busy)[1])
        if free:
            slot = heappop(free)
        else:
            slot, count = count, count + 1
        slots[k] = slot
        heappush(busy, (end, slot))
    return slots, count
