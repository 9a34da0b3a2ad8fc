"""The whole contract of a clock in one call.

Run it on a clock with a law of your own: what passes gives the same workers to every rule and in
every loop, and its stated moments can be relied on by plans and bounds.
"""

from __future__ import annotations

import jax

from asyncjax.checks import whole
from asyncjax.clocks import Clock
from asyncjax.testing.clock_contract import (
    check_clock_blocks,
    check_clock_moments,
    check_clock_times,
)


def check_clock(clock: Clock, *, key: jax.Array | None = None, n_jobs: int = 1000) -> None:
    """Checks a clock: its times, that each belongs to its job, and its stated moments.

    Runs `check_clock_times`, `check_clock_blocks` and `check_clock_moments`; each can be run alone.

    Args:
        clock: The clock.
        key: Typed key of the draws; None for `jax.random.key(0)`.
        n_jobs: Jobs of every worker that the moments are taken over, under each of 32 keys; more
            than a recorded clock takes to begin again. Memory: 256 bytes a job and worker.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: Saying which part of the contract is broken.

    Example:
        A law whose second job is twice as long, wherever the block begins:

        >>> import numpy as np
        >>> import jax.numpy as jnp
        >>> from asyncjax.clocks.clock import Clock
        >>> from asyncjax.clocks.law import Law
        >>> def draw(row, key, first, count):
        ...     return row["time"] * (1.0 + (jnp.arange(count) == 1))
        >>> def mean(rows):
        ...     return rows["time"]
        >>> law = Law("second is long", draw, mean, mean, is_random=False)
        >>> check_clock(Clock({"time": np.array([1.0, 3.0])}, law))
        Traceback (most recent call last):
        ...
        AssertionError: job 4 of worker 0 must have one time whatever block it is drawn in, got 2 \
among jobs 3 .. 7 and 1 among jobs 0 .. 15
    """
    n_jobs = whole("n_jobs", n_jobs, 2)
    check_clock_times(clock, key=key)
    check_clock_blocks(clock, key=key)
    check_clock_moments(clock, key=key, n_jobs=n_jobs)
