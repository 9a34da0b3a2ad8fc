"""Loads: the mean gradient of a step in which every worker takes as many samples as it is told.

    direction = sum_i share_i * (1 / load_i) sum of the gradients of load_i rows of shard i

The rows are drawn without replacement, afresh in every update: row r of the permutation that worker
i draws in update j is a function of (key, i, j, r), so a larger load only adds rows. No worker's
own gradient is formed where the problem has a loss a row: one backward pass serves all workers, or
as many as the rows that count need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.problems import Problem
from asyncjax.problems.batches import WithoutReplacement
from asyncjax.problems.units import check_whole_shards, has_losses, row_loss
from asyncjax.simulation.plans.cpu_rewrites import quick
from asyncjax.simulation.update import job_key
from asyncjax.stragglers import Policy

# Random bits; more are split over threads, which takes longer than to make them.
_DRAWN_AT_ONCE = 800


@dataclass(frozen=True)
class LoadRule:
    """How a problem takes loads (static)."""

    has_samples: bool  # False: a job is what it is, and the load only takes time
    takes_all: bool  # every load is the whole shard
    capacity: int  # most samples of a shard in an update
    rows_at_once: int | None = None  # of a pass over the rows that count; None: one over all


def load_rule(
    problem: Problem, policy: Policy, n_workers: int, rows_at_once: int | None = None
) -> LoadRule:
    """Fits a problem and a policy together.

    Example:
        >>> import numpy as np
        >>> from asyncjax import problems, stragglers
        >>> problem = problems.least_squares(np.ones((6, 2)), np.ones(6), n_workers=2)
        >>> load_rule(problem, stragglers.fixed(1, 2), 2)
        LoadRule(has_samples=True, takes_all=False, capacity=2, rows_at_once=None)
    """
    if problem.n_workers not in (None, n_workers):
        raise ValueError(
            f"times must have {problem.n_workers} workers, as the problem has shards, got"
            f" {n_workers}"
        )
    capacity = policy.max_load // policy.copies
    if not has_losses(problem):
        needs = {
            "varies the load": policy.varies_load,
            "stops workers before they are done": policy.stops,
            "decodes sums of several shards": policy.code is not None,
        }
        for what, is_needed in needs.items():
            if is_needed:
                raise ValueError(
                    "problem must be made of samples (least_squares, logistic, classification, ...)"
                    f" for a policy that {what}: the gradient of this problem takes no load"
                )
        return LoadRule(False, False, capacity)
    check_whole_shards(problem)
    sizes = problem.data.size
    if isinstance(sizes, Tracer):
        return LoadRule(True, False, capacity, rows_at_once)
    sizes = np.asarray(sizes)
    if capacity > sizes.min():
        raise ValueError(
            f"load must be at most {sizes.min()}, the rows of the smallest shard, got {capacity}"
            + (f" times {policy.copies} shards" if policy.copies > 1 else "")
        )
    takes_all = not (policy.varies_load or policy.stops) and bool((sizes == capacity).all())
    return LoadRule(True, takes_all, capacity, rows_at_once)


def shared_gradient(
    problem: Problem,
    how: LoadRule,
    key: jax.Array,
    params: Any,
    number: jax.Array,
    shares: jax.Array,
    loads: jax.Array,
) -> tuple[jax.Array, Any]:
    """The direction of a step.

    `number` int32[]; `shares` float[n]; `loads` float[n].

    Example:
        >>> from asyncjax import problems
        >>> problem = problems.least_squares([[1.0], [2.0]], [1.0, 4.0], n_workers=2)
        >>> loss, direction = shared_gradient(
        ...     problem, LoadRule(True, True, 1), jax.random.key(0), problem.params, jnp.int32(0),
        ...     jnp.array([0.0, 1.0]), jnp.ones(2))
        >>> float(loss), direction.tolist()
        (8.0, [-8.0])
    """
    workers = jnp.arange(shares.size, dtype=jnp.int32)
    keys = quick(jax.vmap(lambda worker: job_key(key, worker, number)))(workers)
    if not how.has_samples:
        return _of_jobs(problem, params, number, shares, workers, keys)
    rows = _drawn_rows(problem, how, keys, shares != 0)
    share = jnp.sum(shares)

    def penalty(params: Any) -> jax.Array:
        return share.astype(problem.data.weight.dtype) * row_loss(problem).penalty(params)

    if how.rows_at_once is None:
        losses = _all_rows(problem, rows, shares, loads)
        total, direction = jax.value_and_grad(lambda x: losses(x) + penalty(x))(params)
    else:
        begin = jax.value_and_grad(penalty)(params)
        total, direction = _add_used_rows(
            problem, how.rows_at_once, params, rows, shares, loads, begin
        )
    return total / share.astype(total.dtype), direction


def _drawn_rows(problem: Problem, how: LoadRule, keys: jax.Array, used: jax.Array) -> jax.Array:
    """Rows of the data that each worker takes, in their order, int32[n, capacity].

    Drawn for workers that count, some at a time; the others' rows are any of theirs.
    """
    data, n = problem.data, used.size
    capacity = data.rows.shape[1]
    if how.takes_all:
        return data.rows[:, : how.capacity]
    rule = WithoutReplacement(how.capacity)

    def of_worker(size: jax.Array, key: jax.Array, rows: jax.Array) -> jax.Array:
        return rows[rule(size, capacity, 0, key)[0]]

    at_once = min(n, max(1, _DRAWN_AT_ONCE // capacity))
    counting = jnp.sort(jnp.where(used, jnp.arange(n, dtype=jnp.int32), n))  # n: nobody
    counts = jnp.pad(counting, (0, at_once), constant_values=n)

    def draw(turn: jax.Array, drawn: jax.Array) -> jax.Array:
        workers = jax.lax.dynamic_slice_in_dim(counts, turn * at_once, at_once)
        some = jnp.minimum(workers, n - 1)
        made = quick(jax.vmap(of_worker))(data.size[some], keys[some], data.rows[some])
        return drawn.at[workers].set(made, mode="drop")

    turns = -(-jnp.sum(used, dtype=jnp.int32) // at_once)
    return jax.lax.fori_loop(0, turns, draw, data.rows[:, : how.capacity])


def _weighted_loss(problem: Problem, rows: jax.Array, weight: jax.Array) -> Callable[[Any], Any]:
    """The weighted sum of the losses of some rows, a function of the model."""
    data, loss = problem.data, row_loss(problem)
    features, targets = data.features[rows], data.targets[rows]

    def total(params: Any) -> jax.Array:
        losses = loss.of_rows(params, features, targets)
        return jnp.sum(jnp.where(weight != 0, weight.astype(losses.dtype) * losses, 0))

    return total


def _all_rows(
    problem: Problem, rows: jax.Array, shares: jax.Array, loads: jax.Array
) -> Callable[[Any], Any]:
    """The loss of one masked pass over all rows that could be asked.

    What is gathered depends on the key alone.
    """
    asked = (jnp.arange(rows.shape[1])[None] < loads[:, None]) & (shares != 0)[:, None]
    weight = jnp.where(asked, (shares / loads)[:, None], 0).reshape(-1)
    return _weighted_loss(problem, rows.reshape(-1), weight)


def _add_used_rows(
    problem: Problem,
    at_once: int,
    params: Any,
    rows: jax.Array,
    shares: jax.Array,
    loads: jax.Array,
    begin: tuple[jax.Array, Any],
) -> tuple[jax.Array, Any]:
    """Adds only the rows that count, so many at a time: as many passes as they need."""
    held = jnp.where(shares != 0, loads, 0).astype(jnp.int32)
    ends = jnp.cumsum(held)

    def pass_over(number: jax.Array, carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        place = number * at_once + jnp.arange(at_once, dtype=jnp.int32)
        worker = jnp.minimum(jnp.searchsorted(ends, place, side="right"), shares.size - 1)
        own = jnp.clip(place - ends[worker] + held[worker], 0, rows.shape[1] - 1)
        weight = jnp.where(place < ends[-1], shares[worker] / loads[worker], 0)
        total = _weighted_loss(problem, rows[worker, own], weight)
        return jax.tree.map(jnp.add, carry, jax.value_and_grad(total)(params))

    return jax.lax.fori_loop(0, -(-ends[-1] // at_once), pass_over, begin)


def _of_jobs(
    problem: Problem,
    params: Any,
    number: jax.Array,
    shares: jax.Array,
    workers: jax.Array,
    keys: jax.Array,
) -> tuple[jax.Array, Any]:
    """Every worker's own gradient, where a problem has no samples."""
    counts = shares != 0
    losses, grads = jax.vmap(problem.gradient, in_axes=(None, 0, None, 0))(
        params, workers, number, keys
    )

    def weighted(grad: jax.Array) -> jax.Array:
        along = [-1, *[1] * (grad.ndim - 1)]
        parts = shares.astype(grad.dtype).reshape(along) * grad
        return jnp.sum(jnp.where(counts.reshape(along), parts, 0), axis=0)

    share = shares.astype(losses.dtype)
    loss = jnp.sum(jnp.where(counts, share * losses, 0)) / jnp.sum(share)
    return loss, jax.tree.map(weighted, grads)
