"""A calendar: open jobs in the order in which they are done, taken and put in whole arrays.

What a heap does one by one. Some jobs that are done soon are kept sorted; of those that are put in,
the ones that are done as soon are merged with them (`rennala`), the others wait unsorted (`far`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_NEAR, _PART = 65_536, 8  # open jobs that are kept sorted, at most, and of how many one
_LEAST = 32  # arrivals that are tried at once


class Pool(NamedTuple):
    """Open jobs in the order in which they arrive."""

    finish: np.ndarray  # float64[p]
    job: np.ndarray  # int64[p], a number of the job


class Calendar:
    """The open jobs of one run; those of one instant by `owner(job)`, then by number.

    Example:
        >>> calendar = Calendar(lambda job: job)
        >>> calendar.add(np.array([3.0, 1.0, 2.0]), np.arange(3))
        >>> calendar.next(2).job
        array([1, 2])
        >>> calendar.serve(1, 2)
        >>> calendar.next(2).job
        array([2, 0])
    """

    def __init__(self, owner: Callable[[np.ndarray], np.ndarray]) -> None:
        self._owner, self._horizon, self._served = owner, -np.inf, float(_LEAST)
        self._near = self._fresh = Pool(np.zeros(0), np.zeros(0, np.int64))
        self._is_fresh = np.zeros(0, bool)  # of what `next` gave
        self._far: list[Pool] = []

    @property
    def tries(self) -> int:
        """How many arrivals are worth trying: about twice as many as were certain of late."""
        return int(min(2.0 * self._served + _LEAST, _NEAR / 4))

    def add(self, finish: np.ndarray, job: np.ndarray) -> None:
        """Puts jobs in."""
        is_near = finish < self._horizon
        if not is_near.all():
            self._far.append(Pool(finish[~is_near], job[~is_near]))
        if is_near.any():
            new = self._sorted(Pool(finish[is_near], job[is_near]))
            self._fresh = self._merged(self._fresh, new)

    def next(self, count: int) -> Pool:
        """The next open jobs to arrive, about so many; fewer only where there are no more."""
        if len(self._near.job) < count and (self._far or len(self._fresh.job)):
            self._refill(4 * count)
        near = Pool(self._near.finish[:count], self._near.job[:count])
        until = near.finish[-1] if len(self._near.job) > count else np.inf
        n_fresh = int(np.searchsorted(self._fresh.finish, until, side="right"))
        if not n_fresh:
            self._is_fresh = np.zeros(len(near.job), bool)
            return near
        fresh = Pool(self._fresh.finish[:n_fresh], self._fresh.job[:n_fresh])
        merged = self._merged(near, fresh)
        self._is_fresh = np.isin(merged.job, fresh.job)
        return merged

    def serve(self, count: int, tried: int) -> None:
        """Takes out the first of what `next` gave; the others of those tried were not certain."""
        fresh = int(np.count_nonzero(self._is_fresh[:count]))
        self._fresh = Pool(*(column[fresh:] for column in self._fresh))
        self._near = Pool(*(column[count - fresh :] for column in self._near))
        if count < tried:
            self._served += 0.1 * (count - self._served)

    def _refill(self, least: int) -> None:
        """Sorts the open jobs that arrive next, at least so many if there are."""
        pools = [self._near, self._fresh, *self._far]
        finish, job = (np.concatenate([pool[at] for pool in pools]) for at in (0, 1))
        count = max(least, min(len(finish) // _PART, _NEAR))
        edge = np.inf if len(finish) <= count else np.partition(finish, count)[count]
        is_near = finish <= edge
        self._near = self._sorted(Pool(finish[is_near], job[is_near]))
        self._far = [] if is_near.all() else [Pool(finish[~is_near], job[~is_near])]
        # What is put in from now on and is done before this, is fresh; else it is far.
        self._horizon = float(np.nextafter(self._near.finish[-1], np.inf))
        self._fresh = Pool(np.zeros(0), np.zeros(0, np.int64))

    def _sorted(self, pool: Pool) -> Pool:
        """By finish, then by worker, then by number."""
        order = np.lexsort((pool.job, self._owner(pool.job), pool.finish))
        return Pool(pool.finish[order], pool.job[order])

    def _merged(self, one: Pool, other: Pool) -> Pool:
        """Two sorted pools as one."""
        place = np.searchsorted(one.finish, other.finish, side="right")
        both = Pool(*(np.insert(a, place, b) for a, b in zip(one, other, strict=True)))
        return self._sorted(both) if (both.finish[1:] == both.finish[:-1]).any() else both


def certain(times: np.ndarray, soonest: np.ndarray) -> int:
    """How many of the next arrivals are certain, at least one.

    `times` float64[p]; `soonest` float64[p], when the first of the jobs that start at each arrival
    is done, inf where none starts.

    Example:
        >>> certain(np.array([1.0, 2.0, 3.0]), np.array([9.0, 2.5, 9.0]))
        2
    """
    return 1 + int(np.count_nonzero(np.minimum.accumulate(soonest)[:-1] > times[1:]))
