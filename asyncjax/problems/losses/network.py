"""Problems whose model is a flax linen network: what all their losses have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.checks import one_key, real
from asyncjax.problems.finite_sum import Loss, finite_sum, judged_on
from asyncjax.problems.held_out import CHUNK, held_out_pair, judged_by
from asyncjax.problems.networks.modules import check_module, initial
from asyncjax.problems.problem import Problem

Metrics = tuple[tuple[str, Callable[..., jax.Array]], ...]


@dataclass(frozen=True)
class NetworkTask:
    """What tells one kind of training from another, as pure functions.

    Attributes:
        names: Of the inputs and the targets, for messages.
        read: `(what, inputs, targets) -> both as arrays`, refusing what does not fit; `what` is
            "test " for test rows, else "".
        check: `(what, answer, inputs, targets)`: refuses a model whose answer to one row is of
            another shape, and values that it has no answer for.
        loss: `(model, l2) -> Loss`.
        metrics: `(loss, chunk) ->` pairs of a name and `(data, params) -> scalar`, on test rows.
        chunk: `answer -> rows` that are judged at once.
    """

    names: tuple[str, str]
    read: Callable[[str, Any, Any], tuple[jax.Array, jax.Array]]
    check: Callable[[str, tuple[int, ...], jax.Array, jax.Array], None]
    loss: Callable[[nn.Module, float], Loss]
    metrics: Callable[[Any, int], Metrics]
    chunk: Callable[[tuple[int, ...]], int] = lambda answer: CHUNK


def network_problem(
    task: NetworkTask,
    model: nn.Module,
    pair: tuple[Any, Any],
    test: tuple[Any, Any] | None,
    *,
    key: jax.Array,
    l2: float,
    eval_rows: int | None = None,
    **sharing: Any,
) -> Problem:
    """Returns the training of a network on (inputs, targets); `sharing` is for `finite_sum`."""
    check_module(model)
    inputs, targets = task.read("", *pair)
    loss = task.loss(model, real("l2", l2, least=0))
    params, answer = initial(model, one_key("key", key), inputs)
    task.check("", answer, inputs, targets)
    chunk = task.chunk(answer)
    problem = finite_sum(params, inputs, targets, loss, chunk=chunk, **sharing)
    problem = judged_on(problem, eval_rows)
    if test is None:
        return problem
    rows = task.read("test ", *held_out_pair(test, task.names))
    problem = judged_by(problem, rows, task.metrics(loss, chunk), task.names)
    task.check("test ", answer, *rows)
    return problem


def cross_entropy(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns log sum_c exp(z_c) - z_target, float[...], of scores float[..., c].

    A sum over a mask picks the target's score, so that the gradient needs no scatter.
    """
    own = targets[..., None] == jnp.arange(scores.shape[-1], dtype=targets.dtype)
    return jax.nn.logsumexp(scores, -1) - jnp.sum(jnp.where(own, scores, 0.0), -1)
