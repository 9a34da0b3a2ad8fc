"""Rows: every leaf of a tree with a leading axis, and the three buffers that are kept in them.

    rows[i] <- tree             i outside the range, negative ones included: no write

    version_ring      x_{k+1} takes the row of the oldest version       read(d) = x_{k - d}
    version_slots     slot[s] <- x                                      read(s) = slot[s]
    gradient_table    g[w] <- gradient of worker w                      mean = (1/n) sum_i g[i]

The ring is for a training loop in which every gradient is taken at a version `delay` updates old
and the delay is known only when it happens: every version of the last `capacity` is kept. Where it
is known beforehand which versions are still to be read, slots are allocated like registers: each
live version gets one, which is reused as soon as its version is dead. The plan decides the numbers.

The table is behind proximal incremental aggregated gradient, SAG and other incremental methods. The
mean is taken afresh: in a running sum, the rounding error of one large old row would stay for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import integers, like, rows_of
from asyncjax.checks import whole


def empty_rows(tree: Any, n_rows: int) -> Any:
    """Returns zeros of shape [n_rows, ...] for every leaf, in its dtype and sharded as it is."""

    def rows(leaf: ArrayLike) -> jax.Array:
        zeros = jnp.zeros_like(leaf, jnp.result_type(leaf))
        return jnp.broadcast_to(zeros, (n_rows, *zeros.shape))

    return jax.tree.map(rows, tree)


def one_row(rows: Any) -> Any:
    """The shapes and dtypes of one row of every leaf."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), rows)


def put_rows(rows: Any, index: ArrayLike, tree: Any) -> Any:
    """Overwrites one row, or m distinct ones for int[m] and leaves of shape [m, ...].

    Example:
        >>> put_rows(jnp.zeros(3), jnp.array([0, -1, 2]), jnp.array([3.0, 9.0, 6.0])).tolist()
        [3.0, 0.0, 6.0]
    """
    index = jnp.asarray(index)

    def put(table: jax.Array, leaf: ArrayLike) -> jax.Array:
        place = jnp.where(index < 0, table.shape[0], index)
        return table.at[place].set(jnp.asarray(leaf).astype(table.dtype), mode="drop")

    return jax.tree.map(put, rows, tree)


def take_rows(rows: Any, index: ArrayLike) -> Any:
    """Returns one row of every leaf, or m of them for int[m]; `index` must be in range."""
    return jax.tree.map(lambda leaf: leaf[index], rows)


class VersionRingState(NamedTuple):
    """Rows of a version ring; `versions` has the tree of the parameters."""

    versions: optax.Params  # tree of [capacity, ...], dtype of the parameters
    newest_row: jax.Array  # int32[], row of the newest version
    versions_written: jax.Array  # int32[], versions ever written, saturating
    version_overflows: jax.Array  # int32[], delays observed that the ring could not serve


@dataclass(frozen=True)
class VersionRing:
    """Pure functions of a version ring; see `version_ring`."""

    capacity: int

    def init(self, params: optax.Params) -> VersionRingState:
        """Starts with one version."""
        return VersionRingState(
            versions=put_rows(empty_rows(params, self.capacity), 0, params),
            newest_row=jnp.zeros((), jnp.int32),
            versions_written=jnp.ones((), jnp.int32),
            version_overflows=jnp.zeros((), jnp.int32),
        )

    def push(self, state: VersionRingState, params: optax.Params) -> VersionRingState:
        """Writes the next version."""
        like("params", params, one_row(state.versions), "the versions kept")
        row = (state.newest_row + 1) % self.capacity
        return state._replace(
            versions=put_rows(state.versions, row, params),
            newest_row=row,
            versions_written=jnp.asarray(optax.safe_increment(state.versions_written)),
        )

    def read(self, state: VersionRingState, delay: ArrayLike) -> optax.Params:
        """Returns the version `delay` pushes ago."""
        oldest = jnp.minimum(state.versions_written, self.capacity) - 1
        age = jnp.clip(integers("delay", delay).astype(jnp.int32), 0, oldest)
        return take_rows(state.versions, (state.newest_row - age) % self.capacity)

    def observe(self, state: VersionRingState, delay: ArrayLike) -> VersionRingState:
        """Counts the delays that the ring cannot serve."""
        missed = jnp.sum(integers("delay", delay) >= self.capacity, dtype=jnp.int32)
        return state._replace(version_overflows=state.version_overflows + missed)


def version_ring(capacity: int) -> VersionRing:
    """Keeps the last `capacity` versions of the parameters and reads them by age.

    `init(params)` starts the ring with one version. `push(state, params)` writes the next one.
    `read(state, delay)` returns the version `delay` pushes ago, 0 being the newest; a delay is
    clipped to the versions written and kept, so rows never written are never read, and a traced
    negative one is read as 0. `observe(state, delay)` adds to `version_overflows` every delay (a
    scalar, or an array of them) of at least `capacity`, which `read` can only answer with the
    oldest row.

    Args:
        capacity: Rows kept, at least 1. Serves delays 0 .. capacity - 1 exactly.

    Returns:
        A `VersionRing` of pure functions. Several delays at once: `jax.vmap(ring.read, (None, 0))`.

    Example:
        >>> ring = version_ring(3)
        >>> state = ring.init(jnp.float32(0.0))
        >>> for version in (1.0, 2.0, 3.0):
        ...     state = ring.push(state, jnp.float32(version))
        >>> [float(ring.read(state, delay)) for delay in (0, 1, 2, 7)]
        [3.0, 2.0, 1.0, 1.0]
    """
    return VersionRing(whole("capacity", capacity))


class VersionSlotsState(NamedTuple):
    """Rows of the slots; `slots` has the tree of the parameters."""

    slots: optax.Params  # tree of [n_slots, ...], dtype of the parameters


@dataclass(frozen=True)
class VersionSlots:
    """Pure functions of numbered slots; see `version_slots`."""

    n_slots: int

    def init(self, params: optax.Params) -> VersionSlotsState:
        """Fills every slot with `params`."""

        def fill(leaf: ArrayLike) -> jax.Array:
            leaf = jnp.asarray(leaf)
            return jnp.full((self.n_slots, *leaf.shape), leaf, leaf.dtype)

        return VersionSlotsState(jax.tree.map(fill, params))

    def write(
        self, state: VersionSlotsState, slot: ArrayLike, params: optax.Params
    ) -> VersionSlotsState:
        """Overwrites one slot, or m distinct ones."""
        index = rows_of("slot", slot, self.n_slots, padding=True)
        of = f"the versions kept for slot of shape {index.shape}"
        like("params", params, one_row(state.slots), of, index.shape)
        return VersionSlotsState(put_rows(state.slots, index, params))

    def read(self, state: VersionSlotsState, slot: ArrayLike) -> optax.Params:
        """Returns the version of one slot, or of m slots."""
        index = rows_of("slot", slot, self.n_slots, padding=False)
        return take_rows(state.slots, jnp.clip(index, 0, self.n_slots - 1))


def version_slots(n_slots: int) -> VersionSlots:
    """Keeps versions of the parameters in slots 0 .. n_slots - 1.

    `init(params)` fills every slot with `params`. `write(state, slot, params)` overwrites one slot;
    -1 is no write (so it can mean "nobody will read this version"). `read(state, slot)` returns a
    slot's version. With a vector of m slots, `write` takes and `read` returns trees with a leading
    axis m. A traced slot outside the range is no write, and is clipped when it is read.

    Args:
        n_slots: Number of slots, at least 1.

    Returns:
        A `VersionSlots` of pure functions.

    Example:
        >>> slots = version_slots(2)
        >>> state = slots.init(jnp.float32(0.0))
        >>> state = slots.write(state, 1, jnp.float32(5.0))
        >>> float(slots.read(state, 0)), float(slots.read(state, 1))
        (0.0, 5.0)
    """
    return VersionSlots(whole("n_slots", n_slots))


class GradientTableState(NamedTuple):
    """Rows of a gradient table; `gradient_rows` has the tree of the parameters."""

    gradient_rows: optax.Updates  # tree of [n_workers, ...], dtype of the parameters


@dataclass(frozen=True)
class GradientTable:
    """Pure functions of a gradient table; see `gradient_table`."""

    n_workers: int

    def init(self, params: optax.Params) -> GradientTableState:
        """Returns a table of zeros."""
        return GradientTableState(empty_rows(params, self.n_workers))

    def put(
        self, state: GradientTableState, worker: ArrayLike, grads: optax.Updates
    ) -> GradientTableState:
        """Overwrites the row of one worker, or of m distinct ones."""
        index = rows_of("worker", worker, self.n_workers, padding=True)
        return put_gradient(state, index, fitting(state, index, grads, "grads"))

    def mean(self, state: GradientTableState) -> optax.Updates:
        """Averages all rows."""
        return mean_row(state)


def gradient_table(n_workers: int) -> GradientTable:
    """Keeps one gradient per worker and averages all rows.

    `init(params)` is a table of zeros in the dtypes of `params`. `put(state, worker, grads)`
    overwrites one row, or m rows for a vector `worker[m]` and gradients with a leading axis m; a
    worker of -1, or a traced one outside the range, is no write (padding). `mean(state)` divides by
    `n_workers` whatever was delivered: a row never delivered counts as zero.

    Args:
        n_workers: Number of rows n, at least 1.

    Returns:
        A `GradientTable` of pure functions.

    Example:
        >>> table = gradient_table(4)
        >>> state = table.init({"w": jnp.zeros(2)})
        >>> state = table.put(state, 1, {"w": jnp.array([4.0, 8.0])})
        >>> table.mean(state)["w"].tolist()
        [1.0, 2.0]
    """
    return GradientTable(whole("n_workers", n_workers))


def fitting(
    table: GradientTableState, worker: jax.Array, grads: optax.Updates, name: str
) -> optax.Updates:
    """Reads the gradients of one worker, or of m with a leading axis m; see `gradient_table`."""
    of = f"the rows of the table for worker of shape {worker.shape}"
    return like(name, grads, one_row(table.gradient_rows), of, worker.shape)


def put_gradient(
    state: GradientTableState, worker: ArrayLike, grads: optax.Updates
) -> GradientTableState:
    """Overwrites the row of one worker, or of m distinct ones; see `gradient_table`."""
    return GradientTableState(put_rows(state.gradient_rows, worker, grads))


def mean_row(state: GradientTableState) -> optax.Updates:
    """Averages all rows, in float32 or wider, and returns a tree in the dtypes of the rows."""

    def mean(rows: jax.Array) -> jax.Array:
        wide = jnp.promote_types(rows.dtype, jnp.float32)
        total = _sum_rows(rows.astype(wide))
        return (total / rows.shape[0]).astype(rows.dtype)

    return jax.tree.map(mean, state.gradient_rows)


def _sum_rows(rows: jax.Array) -> jax.Array:
    """Sums over the leading axis in halves: XLA's own sum is far slower on a CPU for long rows."""
    rest = None
    while rows.shape[0] > 1:
        half = rows.shape[0] // 2
        if rows.shape[0] % 2:
            rest = rows[-1] if rest is None else rest + rows[-1]
        rows = rows[:half] + rows[half : 2 * half]
    return rows[0] if rest is None else rows[0] + rest
