"""Versions of the parameters in numbered slots, allocated like registers.

    write(s):  slot[s] <- x        read(s) = slot[s]

When it is known which versions are still to be read, each live version gets a slot and a slot is
reused as soon as its version is dead. The plan decides the numbers; this buffer only keeps the
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like, numbers, of_kind, rows_of
from asyncjax.buffers.rows import one_row, put_rows, take_rows
from asyncjax.checks import whole


class VersionSlotsState(NamedTuple):
    """Rows of the slots; `slots` has the tree of the parameters."""

    slots: optax.Params  # tree of [n_slots, ...], dtype of the parameters


@dataclass(frozen=True)
class VersionSlots:
    """Pure functions of numbered slots; see `version_slots`."""

    init: Callable[[optax.Params], VersionSlotsState]
    write: Callable[[VersionSlotsState, ArrayLike, optax.Params], VersionSlotsState]
    read: Callable[[VersionSlotsState, ArrayLike], optax.Params]


def version_slots(n_slots: int) -> VersionSlots:
    """Keeps versions of the parameters in slots 0 .. n_slots - 1.

    `init(params)` fills every slot with `params`. `write(state, slot, params)` overwrites one slot;
    -1 is no write (so it can mean "nobody will read this version"). `read(state, slot)` returns a
    slot's version. With a vector of m slots, `write` takes and `read` returns trees with a leading
    axis m.

    Args:
        n_slots: Number of slots, at least 1.

    Returns:
        A `VersionSlots` of pure functions.

    Raises:
        TypeError: If `n_slots` is not a static integer; from the functions, if an argument is of
            the wrong kind.
        ValueError: If `n_slots` is below 1; in `write`, if `params` do not fit the slots, or a
            concrete slot is outside -1 .. n_slots - 1 or comes twice; in `read`, if a concrete slot
            is outside 0 .. n_slots - 1. A traced slot outside the range is no write, and is clipped
            when it is read.

    Example:
        >>> slots = version_slots(2)
        >>> state = slots.init(jnp.float32(0.0))
        >>> state = slots.write(state, 1, jnp.float32(5.0))
        >>> state = slots.write(state, -1, jnp.float32(9.0))
        >>> float(slots.read(state, 0)), float(slots.read(state, 1))
        (0.0, 5.0)
    """
    n_slots = whole("n_slots", n_slots)

    def init(params: optax.Params) -> VersionSlotsState:
        def fill(leaf: ArrayLike) -> jax.Array:
            leaf = jnp.asarray(leaf)
            return jnp.full((n_slots, *leaf.shape), leaf, leaf.dtype)

        return VersionSlotsState(jax.tree.map(fill, numbers("params", params)))

    def write(state: VersionSlotsState, slot: ArrayLike, params: optax.Params) -> VersionSlotsState:
        of_kind("state", state, VersionSlotsState)
        index = rows_of("slot", slot, n_slots, padding=True)
        of = f"the versions kept for slot of shape {index.shape}"
        like("params", params, one_row(state.slots), of, index.shape)
        return VersionSlotsState(put_rows(state.slots, index, params))

    def read(state: VersionSlotsState, slot: ArrayLike) -> optax.Params:
        of_kind("state", state, VersionSlotsState)
        index = rows_of("slot", slot, n_slots, padding=False)
        return take_rows(state.slots, jnp.clip(index, 0, n_slots - 1))

    return VersionSlots(init=init, write=write, read=read)
