r"""Orders by pairs that never see a gradient of an example: signs come from projections.

.. math:: \text{loop:}\quad r = \mathrm{direction}(state), \quad
          (s, \bar g, r^+) = \mathrm{signs}(\dots, r), \quad
          state \leftarrow \mathrm{observe\_signs}(state, \text{steps}, s, r^+)

One worker: PairBalance with `directional_signs` or `dense_signs`. Several: CD-GraB (Cooper et al.
2023, arXiv 2302.00845) in a stale form, in which all pairs of a time step are decided from one
common r; what travels is one more all-reduce (the change of r), m numbers and perhaps m sketches.
Memory O(P).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from asyncjax.checks import flag, function_of, one_key, shown, whole
from asyncjax.orders.arguments import (
    array,
    check_finite,
    check_like,
    check_positions,
    check_signs,
    check_squared_norm,
    check_state,
    check_tree,
)
from asyncjax.orders.directional import along_running_sum, squared_norm
from asyncjax.orders.gradient_order import gradient_order
from asyncjax.orders.kernels import as_pairs, as_signs, reorder_shard
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

    Raises:
        TypeError: If a number is not a static integer, or a leaf of `like` is not floating.
        ValueError: If a number is below 1, or `like` has no leaf; in `observe_signs` if shapes,
            trees, steps or signs do not fit, or the running sum is not finite.

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

    Raises:
        TypeError: If a number is not a static integer, or a leaf of `like` is not floating.
        ValueError: If a number is below 1, or `like` has no leaf; in `observe_signs` if shapes,
            trees, steps or signs do not fit, or the running sum is not finite.

    Note:
        This is not CD-GraB itself, which decides the m pairs one after another with r renewed
        between them (`coordinated`). With m = 8 the loss in quality is small; at m = 64 and
        gradients of low rank it is as bad as no coordination, unless workers send sketches: see
        `coordinated_signs`.

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


def coordinated_signs(
    projections: jax.typing.ArrayLike,
    squared_norm: jax.typing.ArrayLike,
    *,
    sketches: jax.typing.ArrayLike | None = None,
    rank_one: bool = True,
) -> jax.Array:
    r"""Decides the pairs of all workers in one time step from one common running sum.

    .. math:: s_{kj} = +1 \text{ iff } \langle r, z_{kj} \rangle + \Big\langle
              \sum_{(k', j') < (k, j)} s_{k'j'} S z_{k'j'}, \, S z_{kj} \Big\rangle \le 0

    time k is the outer loop and worker j the inner one. Without sketches the second term is that of
    the rank-one correction (`projected_signs`), or none.

    Args:
        projections: float[m, 2K], <r, g> of the examples of m workers.
        squared_norm: float[], the square of the norm of r; not used with sketches.
        sketches: float[m, K, k], `count_sketch` of the differences z, one key for all; None for
            none.
        rank_one: Without sketches: follow the running sum along r.

    Returns:
        Signs int8[m, 2K] as (s, -s) for each pair.

    Raises:
        TypeError: If an argument is not real, or `rank_one` is neither True nor False.
        ValueError: If shapes do not fit, or a number is not finite, or `squared_norm` is negative.

    Note:
        Stale: differences within the step are not known but for what the sketch tells. Parallel
        prefix norm after 10 epochs at m = 64, rank 8 (d = 512): exact 317, stale 1160, rank one
        826, sketches of 64 numbers 380, of 256 317; independent workers 1234. On Gaussian vectors:
        exact 279, stale 301, sketches of 64 342, of 256 304. So take k about 4 m where m is large,
        and never k <= m.

    Example:
        >>> coordinated_signs(jnp.array([[3.0, 0.0], [3.0, 0.0]]), 2.0).tolist()
        [[-1, 1], [1, -1]]
        >>> sketches = jnp.array([[[1.0]], [[2.0]]])
        >>> coordinated_signs(jnp.zeros((2, 2)), 0.0, sketches=sketches).tolist()
        [[1, -1], [-1, 1]]
    """
    rank_one, projections = flag("rank_one", rank_one), array("projections", projections)
    if projections.ndim != 2 or projections.shape[1] % 2:
        raise ValueError(f"projections must have shape [m, 2K], got {projections.shape}")
    check_finite("projections", projections)
    projections = projections.astype(jnp.promote_types(projections.dtype, jnp.float32))
    inner = (projections[:, 0::2] - projections[:, 1::2]).T  # [K, m]: time outer, worker inner
    if sketches is None:
        check_squared_norm(squared_norm)
        signs = along_running_sum(inner.reshape(-1), squared_norm, rank_one)
    else:
        sketches = array("sketches", sketches)
        if sketches.ndim != 3 or sketches.shape[:2] != inner.T.shape:
            raise ValueError(
                f"sketches must have shape [m, K, k] with [m, K] = {inner.T.shape}, "
                f"got {sketches.shape}"
            )
        check_finite("sketches", sketches)
        rows = jnp.swapaxes(sketches, 0, 1).reshape(-1, sketches.shape[2]).astype(inner.dtype)
        signs = _by_sketches(inner.reshape(-1), rows)
    return as_pairs(signs.reshape(inner.shape).T)


def coordinated_shard_signs(
    projections: jax.Array,
    squared_norm: jax.Array,
    axis_name: str,
    *,
    sketches: jax.Array | None = None,
    rank_one: bool = True,
) -> jax.Array:
    """Decides for the worker of this device, inside `jax.shard_map`, as `coordinated_signs` does.

    Every device gathers the projections (m numbers a pair) and the sketches and makes all decisions
    itself. Its own change of the running sum is then to be summed over the devices by
    `jax.lax.psum`. `projections` float[2K] and `sketches` float[K, k] are of this worker;
    `axis_name` is the mesh axis of the workers; returns int8[2K].

    Example:
        >>> auto = (jax.sharding.AxisType.Auto,)
        >>> mesh = jax.make_mesh((1,), ("workers",), axis_types=auto)
        >>> spec = jax.sharding.PartitionSpec("workers")
        >>> def decide(projections):
        ...     return coordinated_shard_signs(projections, jnp.float32(1.0), "workers")
        >>> sharded = jax.shard_map(decide, mesh=mesh, in_specs=spec, out_specs=spec)
        >>> sharded(jnp.array([3.0, 0.0])).tolist()
        [-1, 1]
    """
    everyone = jax.lax.all_gather(projections, axis_name)
    others = None if sketches is None else jax.lax.all_gather(sketches, axis_name)
    signs = coordinated_signs(everyone, squared_norm, sketches=others, rank_one=rank_one)
    return signs[jax.lax.axis_index(axis_name)]


def count_sketch(tree: PyTree, key: jax.Array, size: int) -> jax.Array:
    r"""Sketches a tree by `size` numbers whose inner products are those of the trees on average.

    .. math:: (S z)_b = \sum_{i : h(i) = b} \sigma_i z_i, \qquad
              \mathbb E \langle S z, S w \rangle = \langle z, w \rangle

    with a random bucket h(i) and a random sign for each entry, both from the key: the same for all
    workers, a fresh one for every step (Charikar, Chen, Farach-Colton 2002).

    Example:
        >>> sketch = count_sketch({"w": jnp.array([3.0, 0.0])}, jax.random.key(0), 4)
        >>> float(jnp.sum(sketch**2))
        9.0
    """
    size, key = whole("size", size), one_key("key", key)
    check_tree("tree", tree)
    sketch = jnp.zeros(size)
    for index, leaf in enumerate(jax.tree.leaves(tree)):
        values = jnp.ravel(leaf)
        values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
        bucket_key, sign_key = jax.random.split(jax.random.fold_in(key, index))
        buckets = jax.random.randint(bucket_key, values.shape, 0, size, jnp.int32)
        signs = jax.random.rademacher(sign_key, values.shape, values.dtype)
        sketch = sketch + jax.ops.segment_sum(signs * values, buckets, num_segments=size)
    return sketch


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

    Example:
        >>> paired(jnp.arange(4), 3).tolist()
        [True, True, False, False]
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


def _by_sketches(inner: jax.Array, sketches: jax.Array) -> jax.Array:
    """Decides differences whose mutual inner products are those of their sketches."""

    def decide(total: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        product, sketch = row
        is_plus = product + jnp.dot(total, sketch, precision=_HIGHEST) <= 0
        return jnp.where(is_plus, total + sketch, total - sketch), is_plus

    _, is_plus = jax.lax.scan(decide, jnp.zeros_like(sketches[0]), (inner, sketches))
    return as_signs(is_plus)
