"""Recorded durations as clocks: as they stand, several at a time, and drawn anew in blocks.

    as they stand   T_ij = durations_i[j mod k_i]
    H local steps   T_ij = durations_i[jH] + ... + durations_i[jH + H - 1], places mod k_i
    drawn anew      blocks of neighbouring jobs, at the same places of the log for all workers

Blocks keep what belongs together: neighbours in time, and workers that are slow together (Kuensch,
1989, the jackknife and the bootstrap for general stationary observations).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from asyncjax.clocks import Clock
from asyncjax.clocks.of_trace import CYCLED

Rows = Sequence[np.ndarray]  # float64[k_i], a row a worker, time units


def clock_of(rows: Rows, local_steps: int = 1) -> Clock:
    """The clock that replays rows, each from its beginning again when it ends.

    Example:
        >>> import numpy as np
        >>> clock = clock_of([np.array([1.0, 2.0]), np.array([3.0])], local_steps=2)
        >>> clock.durations(None, 2).tolist()
        [[3.0, 3.0], [6.0, 6.0]]
    """
    rows = [_summed(np.asarray(row, np.float64), local_steps) for row in rows]
    room = 1 << (max(map(len, rows)) - 1).bit_length()  # few lengths, so few compilations
    return Clock(
        {
            "durations": np.stack([np.resize(row, room) for row in rows]).astype(np.float32),
            "count": np.array([len(row) for row in rows], np.float32),
        },
        CYCLED,
    )


def _summed(row: np.ndarray, steps: int) -> np.ndarray:
    """Sums of so many durations that follow each other, over as many passes through the row."""
    if steps == 1:
        return row
    return np.tile(row, steps).reshape(len(row), steps).sum(axis=1)


def redrawn(rows: Rows, key: jax.Array, *, share: float = 1.0) -> list[np.ndarray]:
    """Draws rows anew, in about sqrt(k) blocks of sqrt(k) jobs, circular.

    Args:
        rows: The recorded durations.
        key: Typed key.
        share: Of the blocks, how many are drawn: 0.25 makes rows of a quarter of the length.

    Returns:
        Rows of at most the same length, float64, time units.

    Example:
        >>> import jax, numpy as np
        >>> drawn = redrawn([np.arange(1.0, 101.0)] * 2, jax.random.key(0))
        >>> len(drawn[0]), bool((drawn[0] == drawn[1]).all())
        (100, True)
    """
    longest = max(map(len, rows))
    n_blocks = max(1, round(longest**0.5))
    taken = max(1, min(n_blocks, round(share * n_blocks)))
    begins = np.asarray(jax.random.uniform(key, (taken,)), np.float64)
    drawn = []
    for row in rows:
        length = max(1, round(len(row) / n_blocks))
        places = np.floor(begins * len(row)).astype(int)[:, None] + np.arange(length)
        drawn.append(np.asarray(row, np.float64)[places.reshape(-1) % len(row)])
    return drawn
