"""Staleness buffers for a training loop of one's own.

Each factory returns a frozen dataclass of pure functions; the state is a pytree with fixed shapes
and dtypes that travels through `jax.jit`, `jax.vmap` and `jax.lax.scan`. This room imports no
other.

| factory | keeps | reads |
|---|---|---|
| `version_ring(capacity)` | the last versions of the parameters | by age |
| `version_slots(n_slots)` | versions in numbered slots | by slot |
| `step_window(capacity)` | the last step sizes | the sum of the newest |
| `gradient_table(n_workers)` | the last gradient of every worker | the mean |

Example:
    Gradient descent in which every gradient is three versions old:

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from asyncjax import buffers
    >>> ring = buffers.version_ring(4)
    >>> def step(carry, _):
    ...     params, state = carry
    ...     stale = ring.read(state, 3)
    ...     params = params - 0.1 * stale  # the gradient of x^2 / 2, at the stale version
    ...     return (params, ring.push(state, params)), params
    >>> start = jnp.float32(1.0)
    >>> _, path = jax.lax.scan(step, (start, ring.init(start)), length=100)
    >>> bool(abs(path[-1]) < 0.01)
    True
"""

from asyncjax.buffers.rows import (
    gradient_table as gradient_table,
    version_ring as version_ring,
    version_slots as version_slots,
)
from asyncjax.buffers.step_window import step_window as step_window
