r"""Balancing without per-example gradients: one forward pass in the direction of the running sum.

.. math:: q_i = \langle r, \nabla \ell_i(x) \rangle \text{ for all } i \text{ at once}, \qquad
          s_k = +1 \text{ iff } (q_{2k} - q_{2k+1}) \, u_k \le 0, \qquad
          u_{k+1} = u_k + s_k (q_{2k} - q_{2k+1}) / \|r\|^2, \quad u_0 = 1

.. math:: c = (s_0, -s_0, s_1, -s_1, \dots), \qquad
          r \leftarrow r + \sum_i c_i \nabla \ell_i(x)

The signs of pair balancing (Cooper et al. 2023, arXiv 2302.00845) need inner products only. A
Jacobian times r gives those of a whole batch; its transpose times 1/B is the mean gradient, and
times c it is the change of the running sum. Memory O(P) for P parameters, whatever the batch.

Orders by pairs are made of such signs:

.. math:: \text{loop:}\quad r = \mathrm{direction}(state), \quad
          (s, \bar g, r^+) = \mathrm{signs}(\dots, r), \quad
          state \leftarrow \mathrm{observe\_signs}(state, \text{steps}, s, r^+)

With several workers it is CD-GraB in a stale form, in which all pairs of a time step are decided
from one common r; what travels is one more all-reduce (the change of r) and m numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import EllipsisType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from asyncjax.checks import whole, within
from asyncjax.orders.dense_signs import check_shapes, decided, dense_form, loss_count, widened
from asyncjax.orders.kernels import as_pairs, as_signs, check_signs, copied, reorder_shard
from asyncjax.orders.order import (
    LARGEST,
    Order,
    gradient_order,
    random_order,
    random_orders,
    read_positions,
)

PyTree = Any
_HIGHEST = jax.lax.Precision.HIGHEST
Losses = Callable[..., jax.Array]  # of the parameters, or of them and examples: float[2K]
Decided = tuple[jax.Array, PyTree, PyTree]  # signs int8[2K], a tree of gradients, running sum
_PAIRS = 8  # of a block, where the network is not dense
_MERGED_BELOW = 1 << 18  # parameters; above, both gradients from one call are slower on a CPU


class Passes(NamedTuple):
    """A Jacobian J of losses by parameters, as two linear functions."""

    project: Callable[[PyTree], jax.Array]  # a tree of tangents -> float[2K], J r
    pull: Callable[[jax.Array], PyTree]  # float[2K] -> a tree of gradients, J^T c


def directional_signs(
    losses: Losses,
    params: PyTree,
    running_sum: PyTree,
    *,
    examples: PyTree | None = None,
    pairs_per_block: int | EllipsisType | None = ...,
    rank_one: bool = True,
    forward_mode: bool = True,
) -> Decided:
    r"""Chooses opposite signs within every pair of a batch, and takes the mean gradient beside it.

    .. math:: s_k = +1 \text{ iff } \langle r, \nabla \ell_{2k} - \nabla \ell_{2k+1} \rangle \, u_k
              \le 0, \qquad r \leftarrow r + \sum_k s_k (\nabla \ell_{2k} - \nabla \ell_{2k+1})

    with r of the start of the block, and u_k the rank-one correction (1 without it).

    Args:
        losses: per-example losses, params -> float[2K]; with `examples` (params, examples) ->
            float[2K]. The loss of an example may depend on no other example (no batch statistics);
            dropout must use one and the same key whenever it is called.
        params: Tree of floating arrays.
        running_sum: Tree like `params`, r so far; float32 or wider, narrower leaves are widened.
        examples: Tree of arrays with a leading axis 2K. Give them if the batch has more than one
            block: every block then runs on its own examples, and all blocks together cost as many
            floating-point operations as one. Without them each block has to pass over all 2K
            losses.
        pairs_per_block: Pairs that are decided from the same r; None for the whole batch. Left out:
            if `examples` are given and every parameter belongs to a dense layer that is used once,
            on one row an example, the pairs are decided exactly, as by `dense_signs` (the trace of
            `losses` tells, however they are written); for all else 8.
        rank_one: Follow the running sum along r within a block; costs one pass over r, its norm.
            Nothing where pairs are decided exactly.
        forward_mode: False for losses that have a `jax.custom_vjp` and therefore no forward mode:
            the projections are then the derivative of the reverse pass with respect to its
            cotangent, slower.

    Returns:
        Signs int8[2K], one an example, as (s, -s) for each pair; the mean gradient, a tree like
        `params` in its dtypes; the new running sum.

    Note:
        A traced NaN or infinity, and one in a gradient, goes on: the running sum is not finite from
        there on, the pairs that follow get (-1, +1), and the mean gradient tells it.

        *Exactness.* Between blocks the rule is exact. Within a block all pairs see the same r, so
        single signs differ from `pair_signs` (about half of them for 16 pairs), which is the
        reference. For dense networks the default is exact (up to rounding where an inner product
        nearly vanishes); a parameter that is used twice, within a loop, as anything but a kernel or
        a bias, in another dtype than it has, or on several rows an example makes a network another
        one.

        *Block size.* Herding quality (largest prefix norm after 20 epochs, 1024 vectors of length
        128; random reshuffling 190 and exact 73 on Gaussian vectors): 72 for 4 and for 8 pairs, 78
        for 16, 88 for 32, 96 for 64. Take 4 to 16. A larger block is faster, the more so the larger
        the model.

        *Where it fails.* If the gradients share one dominant direction, all pairs of a block push
        against the same r and overshoot: reshuffling 959, exact 120, but 211 for 8 pairs, 325 for
        16, 1107 for 64; with the rank-one correction 624 for 64. Smaller blocks are the cure.

        *Cost.* About twice the floating-point operations of a plain gradient; benchmarks/README.md
        has times. Narrow blocks use a CPU badly.

        Inner products are taken in the dtype of `params` and at the precision of the losses' own
        matrix products (`jax.default_matmul_precision`).

    Example:
        >>> features = jnp.array([[3.0], [0.0], [1.0], [0.0]])
        >>> def losses(params):
        ...     return features @ params
        >>> signs, mean, running_sum = directional_signs(losses, jnp.ones(1), jnp.ones(1))
        >>> signs.tolist(), mean.tolist(), running_sum.tolist()
        ([-1, 1, 1, -1], [1.0], [-1.0])
    """
    running_sum = widened(running_sum, params)
    given = (params,) if examples is None else (params, examples)
    n_losses = loss_count("losses", jax.eval_shape(losses, *given))
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(examples)]
    if any(shape[:1] != (n_losses,) for shape in shapes):
        raise ValueError(
            f"examples must have a leading axis of the {n_losses} losses, got shapes {shapes}"
        )
    block = n_losses // 2
    if pairs_per_block is ... and examples is not None:
        dense = dense_form(losses, params, examples)
        if dense is not None:
            return decided(*dense, params, running_sum)
    if pairs_per_block is not None:
        pairs = _PAIRS if pairs_per_block is ... else whole("pairs_per_block", pairs_per_block)
        block = min(block, pairs)
    block_signs = partial(_block, rank_one=rank_one, forward_mode=forward_mode)
    if examples is not None:
        result = _split(losses, params, running_sum, examples, block, block_signs)
    elif 2 * block == n_losses:
        result = block_signs(losses, params, running_sum)
    else:
        values, passes = passes_of(losses, params, forward_mode)
        result = _whole(values, passes, running_sum, block, rank_one)
    signs, total, running_sum = result
    mean = jax.tree.map(lambda leaf, like: (leaf / n_losses).astype(like.dtype), total, params)
    return signs, mean, running_sum


def projected_signs(
    projections: jax.typing.ArrayLike, squared_norm: jax.typing.ArrayLike, *, rank_one: bool = True
) -> jax.Array:
    r"""Decides the pairs of one block from the projections of its gradients on the running sum.

    .. math:: s_k = +1 \text{ iff } (q_{2k} - q_{2k+1}) \, u_k \le 0, \qquad
              u_{k+1} = u_k + s_k (q_{2k} - q_{2k+1}) / \|r\|^2

    Args:
        projections: float[2K], q_i = <r, g_i>.
        squared_norm: float[], the square of the norm of r; 0 switches the correction off.
        rank_one: False for u_k = 1.

    Returns:
        Signs int8[2K] as (s, -s) for each pair; a tie gives (+1, -1).

    Example:
        >>> projected_signs(jnp.array([3.0, 0.0, 3.0, 0.0]), 2.0).tolist()
        [-1, 1, 1, -1]
        >>> projected_signs(jnp.array([3.0, 0.0, 3.0, 0.0]), 2.0, rank_one=False).tolist()
        [-1, 1, -1, 1]
    """
    projections = copied(within("projections", projections))
    if projections.ndim != 1 or projections.shape[0] % 2:
        raise ValueError(
            f"projections must be a vector of even length 2K, got shape {projections.shape}"
        )
    within("squared_norm", squared_norm, least=0)
    projections = projections.astype(jnp.promote_types(projections.dtype, jnp.float32))
    signs = along_running_sum(projections[0::2] - projections[1::2], squared_norm, rank_one)
    return as_pairs(signs)


def along_running_sum(
    inner: jax.Array, squared_norm: jax.typing.ArrayLike, rank_one: bool
) -> jax.Array:
    """Decides differences from their inner products with r; see `projected_signs`.

    `inner` float[K]; `squared_norm` float[]; returns int8[K].
    """
    if not rank_one or inner.shape[0] < 2:
        return as_signs(inner <= 0)
    norm = jnp.asarray(squared_norm).astype(inner.dtype).reshape(())
    share = jnp.where(norm > 0, inner / jnp.where(norm > 0, norm, 1), 0)

    def decide(left: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        product, part = row
        is_plus = product * left <= 0
        return left + jnp.where(is_plus, part, -part), is_plus

    start = jnp.ones_like(inner[0])  # varies over the devices of a mesh if `inner` does
    _, is_plus = jax.lax.scan(decide, start, (inner, share), unroll=min(8, inner.shape[0]))
    return as_signs(is_plus)


def squared_norm(tree: PyTree) -> jax.Array:
    """The sum of the squares of all entries of a tree.

    Returns float[].
    """
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda leaf: jnp.sum(leaf * leaf), tree))


def passes_of(losses: Losses, params: PyTree, forward_mode: bool) -> tuple[jax.Array, Passes]:
    """Takes losses and their Jacobian; both directions share the pass of the losses."""

    def tangents(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf, like: leaf.astype(jnp.result_type(like)), tree, params)

    if not forward_mode:
        values, reverse = jax.vjp(losses, params)
        zeros = jnp.zeros_like(values)
        _, transposed = jax.vjp(lambda weights: reverse(weights)[0], zeros)
        return values, Passes(
            lambda tree: transposed(tangents(tree))[0], lambda weights: reverse(weights)[0]
        )
    values, linear = jax.linearize(losses, params)
    if " custom_lin[" in str(jax.make_jaxpr(linear)(params)):  # else refused when compiled
        raise TypeError(
            "losses must have a forward mode, got a function with a custom_vjp: "
            "give forward_mode=False (slower) or use jax.custom_jvp"
        )
    transposed = jax.linear_transpose(linear, params)
    return values, Passes(
        lambda tree: linear(tangents(tree)), lambda weights: transposed(weights)[0]
    )


def pull_both(passes: Passes, first: jax.Array, second: jax.Array) -> tuple[PyTree, PyTree]:
    """Pulls two cotangents back, in one pass where that is faster.

    `first` float[B]; `second` float[B].
    """
    shapes = jax.eval_shape(passes.pull, first)
    if sum(leaf.size for leaf in jax.tree.leaves(shapes)) > _MERGED_BELOW:
        return passes.pull(first), passes.pull(second)
    pulled = jax.vmap(passes.pull)(jnp.stack([first, second]))
    return jax.tree.map(lambda leaf: leaf[0], pulled), jax.tree.map(lambda leaf: leaf[1], pulled)


def _block(
    losses: Losses, params: PyTree, running_sum: PyTree, rank_one: bool, forward_mode: bool
) -> Decided:
    """One block: signs, sum of the gradients, running sum."""
    values, passes = passes_of(losses, params, forward_mode)
    signs = projected_signs(
        passes.project(running_sum), squared_norm(running_sum), rank_one=rank_one
    )
    total, change = pull_both(passes, jnp.ones_like(values), signs.astype(values.dtype))
    total = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), total, running_sum)
    return signs, total, _added(running_sum, change)


def _whole(
    values: jax.Array, passes: Passes, running_sum: PyTree, block: int, rank_one: bool
) -> Decided:
    """All blocks of losses that cannot be taken apart: passes over all of them for each."""
    n_losses = len(values)
    steps = jnp.arange(n_losses, dtype=jnp.int32)

    def step(
        carry: tuple[PyTree, jax.Array], start: jax.Array
    ) -> tuple[tuple[PyTree, jax.Array], None]:
        running_sum, signs = carry
        inside = (steps >= start) & (steps < start + 2 * block)
        projections = jnp.where(inside, passes.project(running_sum), 0)
        decided = projected_signs(projections, squared_norm(running_sum), rank_one=rank_one)
        decided = jnp.where(inside, decided, 0).astype(jnp.int8)
        change = passes.pull(decided.astype(values.dtype))
        return (_added(running_sum, change), signs + decided), None

    starts = jnp.arange(0, n_losses, 2 * block, dtype=jnp.int32)
    first = (running_sum, jnp.zeros(n_losses, jnp.int8))
    (running_sum, signs), _ = jax.lax.scan(step, first, starts)
    total = passes.pull(jnp.ones_like(values))
    return signs, total, running_sum


def _split(
    losses: Losses,
    params: PyTree,
    running_sum: PyTree,
    examples: PyTree,
    block: int,
    block_signs: Callable[..., Decided],
) -> Decided:
    """All blocks, each on its own examples; a shorter one at the end if they do not divide."""
    n_losses = jnp.shape(jax.tree.leaves(examples)[0])[0]
    n_blocks, size = n_losses // (2 * block), 2 * block

    def part(running_sum: PyTree, rows: PyTree) -> Decided:
        return block_signs(lambda params: losses(params, rows), params, running_sum)

    if size == n_losses:
        return part(running_sum, examples)

    def step(carry: tuple[PyTree, PyTree], rows: PyTree) -> tuple[tuple[PyTree, PyTree], jax.Array]:
        running_sum, total = carry
        signs, gradient, running_sum = part(running_sum, rows)
        return (running_sum, _added(total, gradient)), signs

    blocks = jax.tree.map(
        lambda leaf: leaf[: n_blocks * size].reshape(n_blocks, size, *leaf.shape[1:]), examples
    )
    zeros = jax.tree.map(jnp.zeros_like, running_sum)
    (running_sum, total), signs = jax.lax.scan(step, (running_sum, zeros), blocks)
    signs = signs.reshape(-1)
    if n_blocks * size == n_losses:
        return signs, total, running_sum
    rest = jax.tree.map(lambda leaf: leaf[n_blocks * size :], examples)
    (running_sum, total), last = step((running_sum, total), rest)
    return jnp.concatenate([signs, last]), total, running_sum


def _added(total: PyTree, change: PyTree) -> PyTree:
    """Returns the sum in the dtypes of `total`."""
    return jax.tree.map(lambda leaf, other: leaf + other.astype(leaf.dtype), total, change)


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
        if self.pairs_per_block is not None:
            whole("pairs_per_block", self.pairs_per_block)


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

    Note:
        With `dense_signs` the order is exactly `pair_balanced`; with `directional_signs` it is
        stale within a block, which fails for gradients with one dominant direction: see there. An
        odd last example takes the middle place.

    Example:
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
        gradients of low rank it is as bad as no coordination, unless workers send sketches: see
        `coordinated_signs`.

    Example:
        >>> projected = coordinated_by_projection(2, 4, jnp.zeros(3))
        >>> state = projected.order.init(jax.random.key(0))
        >>> projected.order.permutation(state).shape, projected.direction(state).shape
        ((2, 4), (3,))
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
        return _with_signs(state, positions, signs, running_sum)

    def end_epoch(state: ProjectedState) -> ProjectedState:
        place = reorder_shard if counts is None else jax.vmap(reorder_shard, (0, 0, None))
        following = place(state.order, state.signs, jnp.asarray(n, jnp.int32))
        return ProjectedState(following, jnp.zeros_like(state.signs), zeros())

    def direction(state: ProjectedState) -> PyTree:
        return state.running_sum

    order = gradient_order(
        init,
        observe,
        end_epoch,
        n=n,
        dim=sum(int(leaf.size) for leaf in jax.tree.leaves(like)),
        counts=counts,
        needs_gradients=False,
    )
    return ProjectedOrder(order, direction, _with_signs, pairs_per_block, forward_mode)


def _with_signs(
    state: ProjectedState, positions: Any, signs: Any, running_sum: PyTree
) -> ProjectedState:
    """The state after some steps whose signs, and the running sum after them, are given."""
    *workers, n = state.order.shape
    positions, signs = read_positions(positions, n), copied(signs)
    wanted = (*workers, *positions.shape)
    if signs.shape != wanted:
        raise ValueError(
            f"signs must have one entry a step of positions, {wanted}, got {signs.shape}"
        )
    check_signs(signs)
    check_shapes(running_sum, state.running_sum, "that of init")
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
