"""A ring of the newest versions of the parameters, read by age.

    push:  x_{k+1} takes the row of the oldest version        read(d) = x_{k - d}

For a training loop in which every gradient is taken at a version `delay` updates old and the delay
is known only when it happens. Every version of the last `capacity` is kept; where the delays are
known beforehand, `version_slots` needs far fewer rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import integers, like, numbers, of_kind
from asyncjax.buffers.rows import empty_rows, one_row, put_rows, take_rows
from asyncjax.checks import whole


class VersionRingState(NamedTuple):
    """Rows of a version ring; `versions` has the tree of the parameters."""

    versions: optax.Params  # tree of [capacity, ...], dtype of the parameters
    newest_row: jax.Array  # int32[], row of the newest version
    versions_written: jax.Array  # int32[], versions ever written, saturating
    version_overflows: jax.Array  # int32[], delays observed that the ring could not serve


@dataclass(frozen=True)
class VersionRing:
    """Pure functions of a version ring; see `version_ring`."""

    init: Callable[[optax.Params], VersionRingState]
    push: Callable[[VersionRingState, optax.Params], VersionRingState]
    read: Callable[[VersionRingState, ArrayLike], optax.Params]
    observe: Callable[[VersionRingState, ArrayLike], VersionRingState]


def version_ring(capacity: int) -> VersionRing:
    """Keeps the last `capacity` versions of the parameters and reads them by age.

    `init(params)` starts the ring with one version. `push(state, params)` writes the next one.
    `read(state, delay)` returns the version `delay` pushes ago, 0 being the newest; a delay is
    clipped to the versions written and kept, so rows never written are never read.
    `observe(state, delay)` adds to `version_overflows` every delay (a scalar, or an array of them)
    of at least `capacity`, which `read` can only answer with the oldest row.

    Args:
        capacity: Rows kept, at least 1. Serves delays 0 .. capacity - 1 exactly.

    Returns:
        A `VersionRing` of pure functions. Several delays at once: `jax.vmap(ring.read, (None, 0))`.

    Raises:
        TypeError: If `capacity` is not a static integer; from the functions, if an argument is of
            the wrong kind.
        ValueError: If `capacity` is below 1; in `push`, if `params` do not fit the rows; in `read`
            and `observe`, if a concrete delay is negative. A traced negative one is read as 0.

    Example:
        >>> ring = version_ring(3)
        >>> state = ring.init(jnp.float32(0.0))
        >>> for version in (1.0, 2.0, 3.0):
        ...     state = ring.push(state, jnp.float32(version))
        >>> [float(ring.read(state, delay)) for delay in (0, 1, 2, 7)]
        [3.0, 2.0, 1.0, 1.0]
        >>> state = ring.observe(state, 7)
        >>> int(state.version_overflows)
        1
    """
    capacity = whole("capacity", capacity)

    def init(params: optax.Params) -> VersionRingState:
        return VersionRingState(
            versions=put_rows(empty_rows(numbers("params", params), capacity), 0, params),
            newest_row=jnp.zeros((), jnp.int32),
            versions_written=jnp.ones((), jnp.int32),
            version_overflows=jnp.zeros((), jnp.int32),
        )

    def push(state: VersionRingState, params: optax.Params) -> VersionRingState:
        of_kind("state", state, VersionRingState)
        like("params", params, one_row(state.versions), "the versions kept")
        row = (state.newest_row + 1) % capacity
        return state._replace(
            versions=put_rows(state.versions, row, params),
            newest_row=row,
            versions_written=jnp.asarray(optax.safe_increment(state.versions_written)),
        )

    def read(state: VersionRingState, delay: ArrayLike) -> optax.Params:
        of_kind("state", state, VersionRingState)
        age = integers("delay", delay)
        if age.ndim:
            raise ValueError(
                f"delay must be a scalar (for several, jax.vmap the read), got shape {age.shape}"
            )
        oldest = jnp.minimum(state.versions_written, capacity) - 1
        age = jnp.clip(age.astype(jnp.int32), 0, oldest)
        return take_rows(state.versions, (state.newest_row - age) % capacity)

    def observe(state: VersionRingState, delay: ArrayLike) -> VersionRingState:
        of_kind("state", state, VersionRingState)
        missed = jnp.sum(integers("delay", delay) >= capacity, dtype=jnp.int32)
        return state._replace(version_overflows=state.version_overflows + missed)

    return VersionRing(init=init, push=push, read=read, observe=observe)
