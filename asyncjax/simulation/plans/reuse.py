"""Blends: directions of traces whose gradients serve in several steps.

Gradients that always serve together, with equal weights, are summed in one row; the direction of
update u is a blend,

    D_u = sum over rows r of coefficient_r(u) * row_r,
    coefficient_r(u) = weight of the run of r that holds u, else 0.

Rows are allocated like registers, from the first gradient that enters to the last update that is
made of it. A table of n workers needs about n rows, Ringleader about two tables.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.simulation.plans.slots import allocate
from asyncjax.traces.event_trace import Reuse


class ServiceIntervals(NamedTuple):
    """When rows serve, and with which coefficient; the last axis counts the runs of a row, K."""

    first: jax.Array | np.ndarray  # int32[..., K], update
    last: jax.Array | np.ndarray  # int32[..., K], update; below first: no run
    weight: jax.Array | np.ndarray  # float[..., K]


class ReusePlan(NamedTuple):
    """Which gradients share a row, N groups of them, and when each group serves."""

    group: np.ndarray  # int64[G], the group of each gradient
    runs: ServiceIntervals  # [N, K]


def blends_of(reuse: Reuse, arrival: np.ndarray, weight: np.ndarray) -> ReusePlan:
    """Groups the gradients of a trace.

    `arrival` int64[G]; `weight` float64[K'].
    """
    place_of = np.full(int(reuse.arrival.max()) + 1, -1)
    place_of[arrival] = np.arange(len(arrival))
    gradient = place_of[reuse.arrival]
    turn = np.arange(len(gradient)) - np.searchsorted(reuse.arrival, reuse.arrival)
    shape = (len(arrival), int(turn.max()) + 1)
    last = np.full(shape, -1, np.int32)
    runs = ServiceIntervals(np.zeros(shape, np.int32), last, np.zeros(shape))
    runs.first[gradient, turn] = reuse.first
    runs.last[gradient, turn] = reuse.last
    runs.weight[gradient, turn] = weight
    keys = np.concatenate([runs.first, runs.last, runs.weight], axis=1)
    _, member, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return ReusePlan(group.reshape(-1), ServiceIntervals(*(column[member] for column in runs)))


def place_rows(
    blends: ReusePlan, computed: np.ndarray, made: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Gives every group a row.

    `computed` int64[G]; `made` int64[T].
    """
    n_groups = len(blends.runs.first)
    begin = np.full(n_groups, np.iinfo(np.int64).max)
    np.minimum.at(begin, blends.group, computed)
    end = made[blends.runs.last.max(axis=1)]
    order = np.argsort(begin, kind="stable")
    rows = np.empty(n_groups, np.int64)
    rows[order], n_rows = allocate(begin[order], end[order])
    return rows, begin, n_rows


def oldest_read(reuse: Reuse, read_version: np.ndarray, n_updates: int) -> np.ndarray:
    """The oldest version read by the gradients of each update, int64[T].

    `read_version` int[E].
    """
    read = np.asarray(read_version, np.int64)[reuse.arrival]
    oldest = np.full(n_updates + 1, n_updates, np.int64)
    # Leads to the first update from here on that is not decided yet.
    pending = np.arange(n_updates + 1)

    def free(update: int) -> int:
        root = update
        while pending[root] != root:
            root = pending[root]
        while pending[update] != root:
            pending[update], update = root, pending[update]
        return root

    for k in np.argsort(read, kind="stable").tolist():
        update = free(int(reuse.first[k]))
        while update <= reuse.last[k]:
            oldest[update] = read[k]
            pending[update] = update + 1
            update = free(update)
    return oldest[:-1]


def empty_runs(rows: int, runs: int, dtype: jax.typing.DTypeLike) -> ServiceIntervals:
    """Runs of rows that serve nowhere, [rows, runs]."""
    shape = (rows, runs)
    return ServiceIntervals(
        jnp.zeros(shape, jnp.int32), jnp.full(shape, -1, jnp.int32), jnp.zeros(shape, dtype)
    )


def blend(rows: jax.Array, runs: ServiceIntervals, update: jax.Array) -> jax.Array:
    """One leaf of a direction.

    `rows` float[rows, ...]; returns float[...], in the dtype of the leaf; summed in float32 or
    wider.
    """
    serves = (runs.first <= update) & (update <= runs.last)
    coefficient = jnp.sum(jnp.where(serves, runs.weight, 0), axis=-1)
    precise = jnp.promote_types(rows.dtype, jnp.float32)
    along = (coefficient != 0).reshape(-1, *[1] * (rows.ndim - 1))
    kept = jnp.where(along, rows, 0).astype(precise)
    direction = jnp.tensordot(
        coefficient.astype(precise), kept, axes=1, precision=jax.lax.Precision.HIGHEST
    )
    return direction.astype(rows.dtype)
