"""The next durations of any workers, in whole arrays; every worker counts its own jobs."""

from __future__ import annotations

import numpy as np

from asyncjax.traces.random_draws import DurationBlocks


class NextDurations:
    """Who has used up a block draws along with all who soon will; two blocks of each are held.

    Attributes:
        taken: int32[n], jobs that have begun.

    Example:
        >>> from asyncjax import clocks
        >>> following = NextDurations(DurationBlocks(clocks.constant([1.0, 2.0]), None))
        >>> following.take(np.array([1, 0])), following.taken
        (array([2., 1.]), array([1, 1], dtype=int32))
    """

    def __init__(self, blocks: DurationBlocks) -> None:
        self._blocks, n, self._size = blocks, blocks.clock.n_workers, blocks.size
        self.taken, self._end = np.zeros(n, np.int32), np.zeros(n, np.int32)  # end of what is held
        self._held = np.empty((n, 2, self._size))
        self._refill(np.arange(n))

    def peek(self, workers: np.ndarray) -> np.ndarray:
        """Durations of the next job of each of some workers, float64[m]."""
        job = self.taken[workers]
        if (job == self._end[workers]).any():
            self._refill(np.flatnonzero(self.taken > self._end - self._size // 2))
        block, place = np.divmod(job, self._size)
        return self._held[workers, block % 2, place]

    def take(self, workers: np.ndarray) -> np.ndarray:
        """The same, and these jobs have begun; nobody is named twice."""
        durations = self.peek(workers)
        self.taken[workers] += 1
        return durations

    def _refill(self, workers: np.ndarray) -> None:
        """Draws the next block of some workers, of each of whom one at most is not used up."""
        block = self._end[workers] // self._size
        self._held[workers, block % 2] = self._blocks.draw(workers, block)
        self._end[workers] += self._size
