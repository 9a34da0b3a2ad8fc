r"""Calibration: every arrival is corrected by what its worker sent before.

    c = h_bar + g - h[worker],   h[worker] <- g,       h_bar = (1/n) sum_i h[i] when the step began

so the mean of a step's c is h_bar + mean of (g_i - h_i): cached update calibration (CA2FL), of
Wang et al. 2024. What a buffer holds comes from the fast; h_bar speaks for all.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.checks import whole
from asyncjax.steps.delays import scalar_integer
from asyncjax.steps.scaling import wide_dtype
from asyncjax.steps.transformation import transformation


class CalibrateWorkersState(NamedTuple):
    """State of `ca2fl`."""

    cached: optax.Updates  # h, tree of [n_workers, ...]
    cached_mean: optax.Updates  # (1/n) sum of h, tree like the parameters
    step_mean: optax.Updates  # the same when the step began
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def ca2fl(n_workers: int) -> optax.GradientTransformationExtraArgs:
    """CA2FL: adds to each arrival what the mean of all workers' last ones is above its worker's.

    For `simulation.Update(..., gradient_transform=...)`, on a trace of `traces.buffered`. Every
    `update` needs the extras `worker` and `place`, how many arrivals entered the same step before.

    Args:
        n_workers: Number of workers n, at least 1.

    Returns:
        A transformation whose state has the field `cached`. Memory: n + 2 models.

    Raises:
        TypeError: `n_workers` is not an integer; in `update`, if `worker` or `place` is not.
        ValueError: `n_workers` is below 1; in `update`, if `worker` is out of range.

    Note:
        The formula agrees with a public program (of the flgo package, not the authors'). As there,
        a worker that delivers twice in a step is corrected the second time by his first. Workers
        that have not delivered count as 0 in the mean.

    Example:
        Two workers in steps of one arrival; the second arrival is worker 1's first:

        >>> rule = ca2fl(2)
        >>> state = rule.init(jnp.float32(0.0))
        >>> for worker, grad in ((0, 4.0), (1, 2.0), (0, 5.0)):
        ...     sent, state = rule.update(jnp.float32(grad), state, worker=worker, place=0)
        ...     print(float(sent))
        4.0
        4.0
        4.0

    Reference:
        Wang, Cao, Wu, Chen, Chen 2024, "Tackling the data heterogeneity in asynchronous federated
        learning with cached update calibration" (CA2FL).
    """
    count = whole("n_workers", n_workers)

    def init(params: optax.Params) -> CalibrateWorkersState:
        rows = jax.tree.map(
            lambda leaf: jnp.zeros((count, *jnp.shape(leaf)), jnp.result_type(leaf)), params
        )
        zero = optax.tree.zeros_like(params)
        return CalibrateWorkersState(rows, zero, zero)

    def update(
        updates: optax.Updates,
        state: CalibrateWorkersState,
        *,
        worker: ArrayLike,
        place: ArrayLike,
    ) -> tuple[optax.Updates, CalibrateWorkersState]:
        like("updates", updates, state.cached_mean, "the parameters that init got")
        dtype, worker = wide_dtype(updates), scalar_integer("worker", worker)
        begins = scalar_integer("place", place) == 0
        old = jax.tree.map(
            lambda rows: rows.at[worker].get(mode="clip", wrap_negative_indices=False),
            state.cached,
        )
        step_mean = jax.tree.map(
            lambda now, kept: jnp.where(begins, now, kept), state.cached_mean, state.step_mean
        )

        def corrected(grad: ArrayLike, mean: jax.Array, before: jax.Array) -> jax.Array:
            grad = jnp.asarray(grad)
            change = grad.astype(dtype) - before.astype(dtype)
            return (mean.astype(dtype) + change).astype(grad.dtype)

        def moved(mean: jax.Array, grad: ArrayLike, before: jax.Array) -> jax.Array:
            change = jnp.asarray(grad).astype(dtype) - before.astype(dtype)
            return (mean.astype(dtype) + change / count).astype(mean.dtype)

        sent = jax.tree.map(corrected, updates, step_mean, old)
        cached_mean = jax.tree.map(moved, state.cached_mean, updates, old)
        rows = jax.tree.map(
            lambda rows, row: rows.at[worker].set(
                jnp.asarray(row).astype(rows.dtype), mode="drop", wrap_negative_indices=False
            ),
            state.cached,
            updates,
        )
        return sent, CalibrateWorkersState(rows, cached_mean, step_mean)

    return transformation(init, update, n_workers=lambda state: count)
