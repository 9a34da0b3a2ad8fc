"""Steps without a gradient of any single unit.

The mean gradient in one pass, and the signs of pairs from projections.

    plain:       g = grad of (1/c) sum_i l_i(x)                   i: the c units of a step
    projected:   q_i = <r, grad l_i(x)> for all i at once         r as the block began
                 s = signs(q)
                 g = (1/c) sum_i grad l_i(x),   r <- r + sum_i s_i grad l_i(x)
                                                                  both from one transposed pass

CD-GraB of Cooper et al. 2023 (arXiv 2302.00845) in the stale form of `orders.directional_signs`;
memory of three models and the activations of a block. Possible where a loss is known whose
derivative is the gradient: finite sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from asyncjax.orders import ProjectedOrder
from asyncjax.orders.directional import passes_of, pull_both, squared_norm
from asyncjax.orders.projected import ProjectedState, coordinated_signs, paired
from asyncjax.problems import Problem
from asyncjax.problems.units import has_losses, job_loss
from asyncjax.simulation.example_orders.units import OrderShape
from asyncjax.simulation.update import job_key


def fitting_units(
    problem: Problem, projected: ProjectedOrder, shape: OrderShape, units_per_step: int
) -> int:
    """Fits an order by projections, a problem and the size of a step together.

    Example:
        >>> from asyncjax import orders, problems
        >>> problem = problems.least_squares(jnp.ones((5, 2)), jnp.ones(5), n_workers=1)
        >>> projected = orders.pair_balanced_by_projection(5, problem.params)
        >>> shape = OrderShape((5,), 5, True)
        >>> [fitting_units(problem, projected, shape, units) for units in (2, 5, 9)]
        [2, 6, 6]
    """
    if not has_losses(problem):
        raise ValueError(
            "problem must be one of logistic, least_squares, classification, regression and"
            " language_model, without local"
            " steps, for an order by projections, which needs a loss whose derivative is known to"
            " be the gradient; got"
            f" gradient_of={type(problem.gradient_of).__name__}; take an order of gradients such as"
            " pair_balanced"
        )
    running_sum = jax.eval_shape(
        lambda: projected.direction(projected.order.init(jax.random.key(0)))
    )
    made_for, wanted = (
        (jax.tree.structure(tree), [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)])
        for tree in (running_sum, problem.params)
    )
    if made_for != wanted:
        raise ValueError(
            f"order must be made for like=problem.params, a tree {wanted[0]} of shapes {wanted[1]},"
            f" got {made_for[0]} of"
            f" {made_for[1]}"
        )
    if min(shape.counts) < shape.n:
        raise ValueError(
            "order must have as many units at every worker to go by projections, got"
            f" counts={shape.counts}"
        )
    if units_per_step >= shape.n:
        return shape.n + shape.n % 2
    if units_per_step % 2:
        raise ValueError(
            "units_per_step must be even for an order by projections, whose pairs lie within a"
            " step, such as 2 or 16, or at"
            f" least {shape.n}, the whole epoch; got {units_per_step}"
        )
    return units_per_step


def mean_gradient(
    problem: Problem, key: jax.Array, params: Any, units: jax.Array, epoch: jax.Array
) -> tuple[jax.Array, Any]:
    """The mean gradient of a step's units, from one pass over all of them.

    `units` int32[m, b]; `epoch` int32[].

    Example:
        >>> from functools import partial
        >>> from asyncjax import problems
        >>> problem = problems.least_squares(
        ...     jnp.eye(2), jnp.array([1.0, 3.0]), n_workers=1, batch=problems.cyclic(1))
        >>> mean = jax.jit(partial(mean_gradient, problem, jax.random.key(0)))
        >>> losses, gradient = mean(problem.params, jnp.array([[1, -1, 0]]), jnp.int32(0))
        >>> losses.tolist(), gradient.tolist()
        ([[4.5, 0.0, 0.5]], [-0.5, -1.5])
    """
    valid = units >= 0
    workers = jnp.broadcast_to(jnp.arange(units.shape[0], dtype=jnp.int32)[:, None], units.shape)
    some = jnp.argmax(valid)  # stands in where there is none: 0 times a NaN would be a NaN
    workers, jobs = (jnp.where(valid, x, x.reshape(-1)[some]) for x in (workers, units))
    losses_of = _losses(problem, key, workers.reshape(-1), jobs.reshape(-1), epoch)
    count = jnp.maximum(jnp.sum(valid), 1)

    def mean(params: Any) -> tuple[jax.Array, jax.Array]:
        losses = jnp.where(valid, losses_of(params).reshape(valid.shape), 0)
        return jnp.sum(losses) / count.astype(losses.dtype), losses

    (_, losses), grads = jax.value_and_grad(mean, has_aux=True)(params)
    any_unit = jnp.any(valid)
    return losses, jax.tree.map(lambda leaf: jnp.where(any_unit, leaf, 0), grads)


def projected_step(
    problem: Problem,
    projected: ProjectedOrder,
    key: jax.Array,
    params: Any,
    order_state: ProjectedState,
    positions: jax.Array,
    units: jax.Array,
    epoch: jax.Array,
) -> tuple[jax.Array, Any, ProjectedState]:
    """The mean gradient of a step's units, and what the order learns from it.

    `positions` int32[b]; `units` int32[m, b]; `epoch` int32[].

    Example:
        >>> from functools import partial
        >>> from asyncjax import orders, problems
        >>> problem = problems.least_squares(
        ...     jnp.eye(2), jnp.array([1.0, 3.0]), n_workers=1, batch=problems.cyclic(1))
        >>> projected = orders.pair_balanced_by_projection(2, problem.params)
        >>> step = jax.jit(partial(projected_step, problem, projected, jax.random.key(0)))
        >>> begun, visits = projected.order.init(jax.random.key(0)), jnp.array([[1, 0]])
        >>> epoch = jnp.int32(0)
        >>> losses, gradient, state = step(problem.params, begun, jnp.arange(2), visits, epoch)
        >>> gradient.tolist(), projected.direction(state).tolist(), state.signs.tolist()
        ([-0.5, -1.5], [1.0, -3.0], [1, -1])
    """
    visits = projected.order.permutation(order_state)
    n, (n_workers, n_places) = visits.shape[-1], units.shape
    running_sum = projected.direction(order_state)
    counts = positions < n
    places = (units.T, counts, paired(positions, n))

    def block(carry: tuple[Any, Any], places: Any) -> tuple[tuple[Any, Any], Any]:
        return _block(problem, projected.forward_mode, key, params, epoch, carry, places)

    of_worker = projected.pairs_per_block
    size = n_places if of_worker is None else min(2 * of_worker, n_places)
    carry = running_sum, jax.tree.map(jnp.zeros_like, running_sum)
    carry, rows = _in_blocks(block, carry, places, size)
    (running_sum, total), (signs, losses) = carry, jax.tree.map(jnp.transpose, rows)
    count = n_workers * jnp.maximum(jnp.sum(counts), 1)
    mean = jax.tree.map(
        lambda leaf, like: (leaf / count.astype(leaf.dtype)).astype(like.dtype), total, params
    )
    signs = signs if visits.ndim == 2 else signs[0]
    return losses, mean, projected.observe_signs(order_state, positions, signs, running_sum)


def _block(
    problem: Problem,
    forward_mode: bool,
    key: jax.Array,
    params: Any,
    epoch: jax.Array,
    carry: tuple[Any, Any],
    places: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[tuple[Any, Any], tuple[jax.Array, jax.Array]]:
    """Adds a block's places, units [size, m], to the running sum and the sum of gradients."""
    running_sum, total = carry
    units, counts, is_pair = places
    shape = units.T.shape
    workers = jnp.broadcast_to(jnp.arange(shape[0], dtype=jnp.int32)[:, None], shape)
    losses_of = _losses(problem, key, workers.reshape(-1), units.T.reshape(-1), epoch)
    values, passes = passes_of(losses_of, params, forward_mode)
    projections = jnp.where(is_pair, passes.project(running_sum).reshape(shape), 0)
    signs = coordinated_signs(projections, squared_norm(running_sum)) * is_pair
    ones = jnp.broadcast_to(counts, shape)
    cotangents = (x.reshape(-1).astype(values.dtype) for x in (ones, signs))
    sums = pull_both(passes, *cotangents)
    total, running_sum = (
        jax.tree.map(lambda old, new: old + new.astype(old.dtype), *pair)
        for pair in zip((total, running_sum), sums, strict=True)
    )
    losses = jnp.where(counts, values.reshape(shape), 0)
    return (running_sum, total), (signs.T, losses.T)


def _in_blocks(block: Callable[..., Any], carry: Any, places: Any, size: int) -> tuple[Any, Any]:
    """Scans over blocks of `size` places, and a shorter one at the end if they do not divide."""
    n_places = places[0].shape[0]
    n_blocks = n_places // size
    cut = n_blocks * size
    if n_places == size:
        return block(carry, places)
    blocks = jax.tree.map(lambda x: x[:cut].reshape(n_blocks, size, *x.shape[1:]), places)
    carry, rows = jax.lax.scan(block, carry, blocks)
    rows = jax.tree.map(lambda x: x.reshape(cut, *x.shape[2:]), rows)
    if cut < n_places:
        carry, last = block(carry, jax.tree.map(lambda x: x[cut:], places))
        rows = jax.tree.map(lambda *parts: jnp.concatenate(parts), rows, last)
    return carry, rows


def _losses(
    problem: Problem, key: jax.Array, workers: jax.Array, units: jax.Array, epoch: jax.Array
) -> Callable[[Any], jax.Array]:
    """The losses float[B] of some units, a function of the model."""
    loss_of = job_loss(problem)

    def losses(params: Any) -> jax.Array:
        def loss(worker: jax.Array, unit: jax.Array) -> jax.Array:
            unit = jnp.maximum(unit, 0)
            own_key = jax.random.fold_in(job_key(key, worker, unit), epoch)
            return loss_of(params, worker, unit, own_key)

        return jax.vmap(loss)(workers, units)

    return losses
