"""A problem over one flat vector, the optimizer still seeing the caller's own pytree.

A small model takes less time to move as one row than as many, since every leaf is a call of its own
for the CPU; but putting the leaves together costs 1.5 ns a number. One run in waves of 54-8-2 (458
numbers) took 0.94, 0.85 and 0.65 of the time of leaves with waves of 64, 13 and 3, one of 64-32-10
(2410 numbers) 1.4 of it; so a single run is flat below 1024. In a sweep every row that is moved has
an index of its own for each run, and the main job, a sweep of a small network, took less time with
one vector: there the limit is 8192. The values are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from asyncjax.problems import Problem
from asyncjax.steps.transformation import transformation

SMALL_IN_SWEEPS, SMALL_ALONE = 8192, 1024  # parameters


def flattened(
    problem: Problem, optimizer: optax.GradientTransformation, small: int = SMALL_IN_SWEEPS
) -> tuple[Problem, optax.GradientTransformation, Callable[[Any], Any]]:
    """Rewrites a problem of fewer than `small` parameters, and its optimizer, to a flat vector.

    Also returns what makes a model of a vector.
    """
    leaves = jax.tree.leaves(problem.params)
    is_flat = len(leaves) == 1 and leaves[0].ndim == 1 and leaves[0] is problem.params
    if is_flat or len({leaf.dtype for leaf in leaves}) != 1 or sum(map(np.size, leaves)) >= small:
        return problem, optimizer, lambda params: params
    flat, unravel = ravel_pytree(problem.params)
    inner = optax.with_extra_args_support(optimizer)

    def gradient(data: Any, params: Any, *job: Any) -> tuple[Any, ...]:
        loss, grads, *kept = problem.gradient_of(data, unravel(params), *job)
        return loss, ravel_pytree(grads)[0], *kept

    def on_flat(judge: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda data, params: judge(data, unravel(params))

    state = problem.worker_state_of  # what a worker keeps stays the tree that it is

    def update(
        updates: Any, state: Any, *, params: Any, read_params: Any, **extras: Any
    ) -> tuple[Any, Any]:
        updates, state = inner.update(
            unravel(updates), state, unravel(params), read_params=unravel(read_params), **extras
        )
        return ravel_pytree(updates)[0], state

    flat_problem = replace(
        problem,
        params=flat,
        gradient_of=gradient,
        worker_state_of=None if state is None else on_flat(state),
        objective_of=None if problem.objective_of is None else on_flat(problem.objective_of),
        metrics_of=tuple((name, on_flat(metric)) for name, metric in problem.metrics_of),
    )
    flat_optimizer = transformation(lambda params: inner.init(unravel(params)), update)
    return flat_problem, flat_optimizer, unravel
