"""Loads: the mean gradient of a step in which every worker takes as many samples as it is told.

    direction = sum_i share_i * (1 / load_i) sum of the gradients of load_i rows of shard i

The rows are drawn without replacement, afresh in every update: row r of the permutation that worker i
draws in update j is a function of (key, i, j, r), so a larger load only adds rows. One backward pass
serves all workers; no worker's own gradient is formed where the problem has a loss a row.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.problems import Problem, Whole, WithoutReplacement
from asyncjax.problems.finite_sum import BatchGradient
from asyncjax.simulation.loop import job_key
from asyncjax.stragglers import Policy


@dataclass(frozen=True)
class LoadRule:
    """How a problem takes loads (static)."""

    has_samples: bool  # False: a job is what it is, and the load only takes time
    takes_all: bool  # every load is the whole shard
    capacity: int  # most samples of a shard in an update


def load_rule(problem: Problem, policy: Policy, n_workers: int) -> LoadRule:
    """Fits a problem and a policy together.

    Args:
        problem: What is optimised.
        policy: Who asks for loads.
        n_workers: Workers of the run.

    Returns:
        The rule.

    Raises:
        ValueError: The numbers of workers do not fit, the problem's batch is not the whole shard, the load is larger than
            the smallest shard, or the problem has no samples and the policy varies the load, stops workers or decodes.

    Example:
        >>> import numpy as np
        >>> from asyncjax import problems, stragglers
        >>> problem = problems.least_squares(np.ones((6, 2)), np.ones(6), n_workers=2)
        >>> load_rule(problem, stragglers.fixed(1, 2), 2)
        LoadRule(has_samples=True, takes_all=False, capacity=2)
    """
    if problem.n_workers not in (None, n_workers):
        raise ValueError(
            f"times must have {problem.n_workers} workers, as the problem has shards, got {n_workers}"
        )
    rule, capacity = problem.gradient_of, policy.max_load // policy.copies
    if not isinstance(rule, BatchGradient):
        needs = {
            "varies the load": policy.varies_load,
            "stops workers before they are done": policy.stops,
            "decodes sums of several shards": policy.code is not None,
        }
        for what, is_needed in needs.items():
            if is_needed:
                raise ValueError(
                    "problem must be made of samples (least_squares, logistic, classification, ...) for a policy that"
                    f" {what}: the gradient of this problem takes no load"
                )
        return LoadRule(False, False, capacity)
    if not isinstance(rule.batch, Whole):
        raise ValueError(
            "problem must be made with the default batch, the whole shard, of which a policy draws its load, got"
            f" {rule.batch}"
        )
    sizes = problem.data.size
    if isinstance(sizes, Tracer):
        return LoadRule(True, False, capacity)
    sizes = np.asarray(sizes)
    if capacity > sizes.min():
        raise ValueError(
            f"load must be at most {sizes.min()}, the rows of the smallest shard, got {capacity}"
            + (f" times {policy.copies} shards" if policy.copies > 1 else "")
        )
    takes_all = not (policy.varies_load or policy.stops) and bool((sizes == capacity).all())
    return LoadRule(True, takes_all, capacity)


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

    Args:
        problem: One that `load_rule` has seen.
        how: The rule.
        key: Typed key; the job of worker i gets fold_in(fold_in(key, i), number).
        params: The model.
        number: int32[], of the update, which is every worker's job.
        shares: float[n], factor of each shard's mean; what has 0 counts in nothing.
        loads: float[n], samples, at least 1 where the share is not 0.

    Returns:
        The mean loss by the same shares, NaN if they sum to 0, and the direction, like params.

    Example:
        >>> from asyncjax import problems
        >>> problem = problems.least_squares([[1.0], [2.0]], [1.0, 4.0], n_workers=2)
        >>> loss, direction = shared_gradient(
        ...     problem, LoadRule(True, True, 1), jax.random.key(0), problem.params, jnp.int32(0),
        ...     jnp.array([0.0, 1.0]), jnp.ones(2))
        >>> float(loss), direction.tolist()
        (8.0, [-8.0])
    """
    counts, workers = shares != 0, jnp.arange(shares.size, dtype=jnp.int32)
    keys = jax.vmap(lambda worker: job_key(key, worker, number))(workers)
    rule: Any = problem.gradient_of
    if how.has_samples:

        def loss_of(params: Any, worker: jax.Array, load: jax.Array, key: jax.Array) -> jax.Array:
            own = rule
            if not how.takes_all:
                own = replace(rule, batch=WithoutReplacement(how.capacity, load))
            return own.loss_of_job(problem.data, params, worker, number, key)

        def total(params: Any) -> tuple[jax.Array, jax.Array]:
            losses = jax.vmap(loss_of, in_axes=(None, 0, 0, 0))(params, workers, loads, keys)
            return jnp.sum(jnp.where(counts, shares.astype(losses.dtype) * losses, 0)), losses

        (_, losses), direction = jax.value_and_grad(total, has_aux=True)(params)
    else:
        losses, grads = jax.vmap(problem.gradient, in_axes=(None, 0, None, 0))(
            params, workers, number, keys
        )

        def weighted(grad: jax.Array) -> jax.Array:
            along = [-1, *[1] * (grad.ndim - 1)]
            parts = shares.astype(grad.dtype).reshape(along) * grad
            return jnp.sum(jnp.where(counts.reshape(along), parts, 0), axis=0)

        direction = jax.tree.map(weighted, grads)
    share = shares.astype(losses.dtype)
    return jnp.sum(jnp.where(counts, share * losses, 0)) / jnp.sum(share), direction
