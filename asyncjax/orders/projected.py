r"""Orders by pairs that never see a gradient of an example: signs come from projections.

.. math:: \text{loop:}\quad r = \mathrm{direction}(state), \quad
          (s, \bar g, r^+) = \mathrm{signs}(\dots, r), \quad
          state \leftarrow \mathrm{observe\_signs}(state, \text{steps}, s, r^+)

One worker: PairBalance with `directional_signs` or `dense_signs`. Several: CD-GraB (Cooper et al.
2023, arXiv 2302.00845) in a stale form, in which all pairs of a time step are decided from one
common r; what travels is one more all-reduce (the change of r) and m numbers. Memory O(P).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from asyncjax.checks import flag, function_of, shown, whole
from asyncjax.orders.arguments import (
    array,
    check_like,
    check_positions,
    check_signs,
    check_state,
    check_tree,
)
from asyncjax.orders.directional import along_running_sum, squared_norm
from asyncjax.orders.gradient_order import gradient_order
from asyncjax.orders.kernels import as_pairs, reorder_shard
from asyncjax.orders.order import Order
from asyncjax.orders.shards import LARGEST, random_order, random_orders

PyTree = Any
_HIGHEST = jax.lax.Precision.HIGHEST


class ProjectedState(NamedTuple):
    """State of an order by projections; without the axis m for a single worker."""

    order: jax.Array  # int32[m, n], the example of each step of this epoch
    signs: jax.Array  # int8[m, n], by step; 0: not seen or not paired
    running_sum: PyTree  # tree like the parameters, float32 or wider


@dataclass(frozen=True)
class ProjectedOrder:
    """An `Order`, and two functions for a training loop without per-example gradients.

    `simulation.run_epochs` takes it wherever it takes an `Order`, and trains without the gradient
    of any single unit.

    Attributes:
        order: The four functions. `order.observe(state, positions, None)` changes nothing; given
            gradients it decides each batch as one block (stale: not independent of how an epoch is
            cut).
        direction: State -> the running sum r, a tree like the parameters.
        observe_signs: (state, positions int[B], signs int8[B], running_sum) -> state, with what
            `directional_signs` or `dense_signs` returned; m workers: signs int8[m, B]. Pairs are
            the steps (2k, 2k + 1): batches begin at an even step and have an even B. A pair with a
            step outside 0..n-1 stays unseen; fill it with one example twice, which leaves r as it
            is.
        pairs_per_block: What `run_epochs` is to take: pairs of each worker that are decided from
            the same r; None for all of a step.
        forward_mode: What `run_epochs` is to take: False for losses with a `jax.custom_vjp`.

    Example:
        >>> from asyncjax import problems, simulation
        >>> import optax
        >>> features = jax.random.normal(jax.random.key(0), (16, 3))
        >>> problem = problems.least_squares(features, features @ jnp.ones(3), n_workers=2)
        >>> projected = coordinated_by_projection(2, 8, problem.params)
        >>> run = simulation.run_epochs(
        ...     problem, projected, optax.sgd(0.1), n_epochs=40, n_workers=2, units_per_step=2)
        >>> bool(jnp.allclose(run.params, 1.0, atol=1e-2))
        True
    """

    order: Order
    direction: Callable[[ProjectedState], PyTree]
    observe_signs: Callable[[ProjectedState, Any, Any, PyTree], ProjectedState]
    pairs_per_block: int | None = 8
    forward_mode: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.order, Order):
            raise TypeError(f"order must be an Order, got {shown(self.order)}")
        function_of("direction", self.direction, "state")
        function_of(
            "observe_signs", self.observe_signs, "state", "positions", "signs", "running_sum"
        )
        if self.pairs_per_block is not None:
            whole("pairs_per_block", self.pairs_per_block)
        flag("forward_mode", self.forward_mode)


def pair_balanced_by_projection(
    n: int, like: PyTree, *, pairs_per_block: int | None = 8, forward_mode: bool = True
) -> ProjectedOrder:
    """PairBalance of one worker whose signs come from projections.

    Args:
        n: Examples.
        like: The parameters, or a tree of their shapes (`jax.ShapeDtypeStruct`).
        pairs_per_block: For `simulation.run_epochs`: pairs of a step that are decided from the same
            running sum; 1 is exact, None takes all pairs of the step. See `directional_signs`.
        forward_mode: For `simulation.run_epochs`: False for losses that have a `jax.custom_vjp`.

    Returns:
        A `ProjectedOrder`; permutations int32[n].

    Note:
        With `dense_signs` the order is exactly `pair_balanced`; with `directional_signs` it is
        stale within a block, which fails for gradients with one dominant direction: see there. An
        odd last example takes the middle place.

    Example:
        >>> from asyncjax.orders.directional import directional_signs
        >>> features = jnp.array([[3.0], [0.0], [1.0], [0.0]])
        >>> params = jnp.zeros(1)
        >>> projected = pair_balanced_by_projection(4, params)
        >>> order = projected.order
        >>> state = order.init(jax.random.key(0))
        >>> batch = features[order.permutation(state)]
        >>> signs, mean, running_sum = directional_signs(
        ...     lambda params: batch @ params, params, projected.direction(state))
        >>> state = projected.observe_signs(state, jnp.arange(4), signs, running_sum)
        >>> state = order.end_epoch(state)
        >>> sorted(order.permutation(state).tolist())
        [0, 1, 2, 3]

    Reference:
        The pair rule: Cooper et al. 2023, arXiv 2302.00845.
    """
    return _projected(whole("n", n, most=LARGEST), None, like, pairs_per_block, forward_mode)


def coordinated_by_projection(
    n_workers: int,
    n: int,
    like: PyTree,
    *,
    pairs_per_block: int | None = None,
    forward_mode: bool = True,
) -> ProjectedOrder:
    """CD-GraB in the stale form: all workers' pairs of a time step are decided from the same r.

    Args:
        n_workers: Number of workers m.
        n: Examples of each worker.
        like: The parameters, or a tree of their shapes.
        pairs_per_block: For `simulation.run_epochs`: pairs of each worker that are decided from the
            same running sum, those of all m workers together; None takes all pairs of a step.
        forward_mode: For `simulation.run_epochs`: False for losses that have a `jax.custom_vjp`.

    Returns:
        A `ProjectedOrder`; permutations int32[m, n], signs int8[m, B] of the same steps for all.

    Note:
        This is not CD-GraB itself, which decides the m pairs one after another with r renewed
        between them (`coordinated`). With m = 8 the loss in quality is small; at m = 64 and
        gradients of low rank half of it is lost: see `coordinated_signs`.

    Example:
        >>> projected = coordinated_by_projection(2, 4, jnp.zeros(3))
        >>> state = projected.order.init(jax.random.key(0))
        >>> projected.order.permutation(state).shape, projected.direction(state).shape
        ((2, 4), (3,))

    Reference:
        Cooper et al. 2023, "Coordinating Distributed Example Orders for Provably Accelerated
        Training", arXiv 2302.00845.
    """
    n, n_workers = whole("n", n, most=LARGEST), whole("n_workers", n_workers)
    return _projected(n, n_workers, like, pairs_per_block, forward_mode)


def coordinated_signs(projections: jax.Array, squared_norm: jax.Array) -> jax.Array:
    """Decides the pairs of all workers in one time step from one common running sum.

    Time is the outer loop and worker the inner one, with the rank-one correction of
    `projected_signs`. `projections` float[m, 2K], <r, g> of the examples of m workers;
    `squared_norm` float[], of r; returns int8[m, 2K], (s, -s) for each pair.

    Note:
        Stale. Parallel prefix norm after 10 epochs at m = 64, rank 8 (d = 512): exact 317, here
        826, independent workers 1234.
    """
    projections = projections.astype(jnp.promote_types(projections.dtype, jnp.float32))
    inner = (projections[:, 0::2] - projections[:, 1::2]).T  # [K, m]: time outer, worker inner
    signs = along_running_sum(inner.reshape(-1), squared_norm, True)
    return as_pairs(signs.reshape(inner.shape).T)


def _projected(
    n: int, n_workers: int | None, like: PyTree, pairs_per_block: int | None, forward_mode: bool
) -> ProjectedOrder:
    """Makes the order of one worker (None) or of several."""
    if pairs_per_block is not None:
        pairs_per_block = whole("pairs_per_block", pairs_per_block)
    check_tree("like", like, finite=False)
    counts = None if n_workers is None else (n,) * n_workers
    shape = (n,) if n_workers is None else (n_workers, n)

    def zeros() -> PyTree:
        return jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, jnp.promote_types(leaf.dtype, jnp.float32)), like
        )

    def init(key: jax.Array) -> ProjectedState:
        order = random_order(key, n) if counts is None else random_orders(key, counts)
        return ProjectedState(order, jnp.zeros(shape, jnp.int8), zeros())

    def observe(
        state: ProjectedState, positions: jax.Array, gradients: jax.Array
    ) -> ProjectedState:
        signs, running_sum = _decide_gradients(state, positions, gradients, n)
        return observe_signs(state, positions, signs, running_sum)

    def observe_signs(
        state: ProjectedState, positions: Any, signs: Any, running_sum: PyTree
    ) -> ProjectedState:
        check_state(state, ProjectedState, shape)
        return _with_signs(state, positions, signs, running_sum)

    def end_epoch(state: ProjectedState) -> ProjectedState:
        place = reorder_shard if counts is None else jax.vmap(reorder_shard, (0, 0, None))
        following = place(state.order, state.signs, jnp.asarray(n, jnp.int32))
        return ProjectedState(following, jnp.zeros_like(state.signs), zeros())

    def direction(state: ProjectedState) -> PyTree:
        check_state(state, ProjectedState, shape)
        return state.running_sum

    order = gradient_order(
        ProjectedState,
        init,
        observe,
        end_epoch,
        n=n,
        dim=sum(int(leaf.size) for leaf in jax.tree.leaves(like)),
        counts=counts,
        needs_gradients=False,
    )
    return ProjectedOrder(order, direction, observe_signs, pairs_per_block, forward_mode)


def _with_signs(
    state: ProjectedState, positions: Any, signs: Any, running_sum: PyTree
) -> ProjectedState:
    """The state after some steps whose signs, and the running sum after them, are given."""
    *workers, n = state.order.shape
    positions, signs = check_positions(positions, n), array("signs", signs)
    wanted = (*workers, *positions.shape)
    if signs.shape != wanted:
        raise ValueError(
            f"signs must have one entry a step of positions, {wanted}, got {signs.shape}"
        )
    check_signs(signs)
    check_like("running_sum", running_sum, state.running_sum, "that of init")
    step = jnp.where(paired(positions, n), positions, n)
    seen = state.signs.at[..., step].set(signs.astype(jnp.int8), mode="drop")
    total = jax.tree.map(lambda old, new: new.astype(old.dtype), state.running_sum, running_sum)
    return ProjectedState(state.order, seen, total)


def paired(positions: jax.Array, n: int) -> jax.Array:
    """Says for each step whether both steps of its pair lie in 0..n-1.

    `positions` int32[B]; returns bool[B].
    """
    return (positions >= 0) & (positions - positions % 2 + 1 < n)


def _decide_gradients(
    state: ProjectedState, positions: jax.Array, gradients: jax.Array, n: int
) -> tuple[jax.Array, PyTree]:
    """Decides a batch of gradients float[m, B, d] or float[B, d] as one stale block."""
    total, unravel = ravel_pytree(state.running_sum)
    rows = gradients if gradients.ndim == 3 else gradients[None]
    n_rows = rows.shape[1]
    rows = jnp.where(paired(positions, n)[:, None], rows, 0).astype(total.dtype)
    rows = jnp.pad(rows, ((0, 0), (0, n_rows % 2), (0, 0)))
    projections = jnp.matmul(rows, total, precision=_HIGHEST)
    signs = coordinated_signs(projections, squared_norm(total))
    change = jnp.einsum("jb,jbd->d", signs.astype(rows.dtype), rows, precision=_HIGHEST)
    signs = signs[:, :n_rows].reshape(gradients.shape[:-1])
    return signs, unravel(total + change)
