"""What a job is worth: a sigmoid of the time it takes.

    u(d) = v / (1 + exp(k (d - c))),     d = slot of completion - slot of arrival

with the value v, the steepness k and the due time c in the columns of `Jobs.utility`. k = 0 is a
job without hurry, worth v/2 at any time; a steep one is worth v before c and nothing after.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def job_utility(utility: Any, delay: Any) -> Any:
    """Computes the utility of jobs that complete after a delay.

    Formula: `u(d) = v / (1 + exp(k (d - c)))`, the exponent clipped where it would overflow.

    Args:
        utility: float[..., 3], columns value, steepness, due.
        delay: Slots between arrival and completion; 0 in the slot of arrival. Broadcasts.

    Returns:
        float[...] of the type of `utility`.

    Example:
        >>> import numpy as np
        >>> job_utility(np.array([8.0, 0.0, 3.0]), np.array([0, 9])).tolist()
        [4.0, 4.0]
        >>> np.round(job_utility(np.array([8.0, 2.0, 3.0]), np.array([0, 3, 9])), 4).tolist()
        [7.9802, 4.0, 0.0]
    """
    library = jnp if isinstance(utility, jax.Array) else np
    value, steepness, due = utility[..., 0], utility[..., 1], utility[..., 2]
    limit = 700.0 if utility.dtype == np.float64 else 80.0
    exponent = library.clip(steepness * (delay - due), -limit, limit)
    return value / (1.0 + library.exp(exponent))
