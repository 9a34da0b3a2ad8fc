"""Units: what a problem is made of, for those who put its data in order or ask for a part of it.

    unit u of worker j = job u of worker j:
    rows uB .. uB + B - 1 of its shard where the problem's batch is `cyclic(B)`

A problem whose job is the whole shard (the default of a finite sum) is taken a row at a time. A
batch drawn at random is no unit: there would be nothing to put in order. A finite sum also knows
losses, of its rows and of its jobs, whose derivatives are the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from asyncjax.problems.batches import Cyclic, Uniform, Whole, WithoutReplacement
from asyncjax.problems.finite_sum import BatchGradient, Loss
from asyncjax.problems.problem import Problem


def has_losses(problem: Problem) -> bool:
    """Says whether a loss of a job is known whose derivative is the gradient.

    Example:
        >>> from asyncjax import problems
        >>> has_losses(problems.least_squares([[1.0], [2.0]], [1.0, 1.0], n_workers=1))
        True
    """
    rule = problem.gradient_of
    return isinstance(rule, BatchGradient) and not getattr(rule.loss, "keyed", False)


def row_loss(problem: Problem) -> Loss:
    """The loss of a row, and the penalty, of a problem that has losses."""
    return _rule(problem).loss


def job_loss(problem: Problem) -> Callable[..., jax.Array]:
    """The loss of a job, `(params, worker, job, key) -> scalar`, of a problem that has losses."""
    return partial(_rule(problem).loss_of_job, problem.data)


def check_whole_shards(problem: Problem) -> None:
    """Refuses a finite sum whose jobs are not the whole shard, of which loads are drawn."""
    batch = _rule(problem).batch
    if not isinstance(batch, Whole):
        raise ValueError(
            "problem must be made with the default batch, the whole shard, of which a policy"
            f" draws its load, got {batch}"
        )


def in_fixed_units(problem: Problem) -> Problem:
    """The problem whose job u is unit u; refuses one whose units are not fixed data.

    Example:
        >>> from asyncjax import problems
        >>> rows, ones = [[1.0], [2.0]], [1.0, 1.0]
        >>> in_fixed_units(problems.least_squares(rows, ones, n_workers=1)).gradient_of.batch
        Cyclic(size=1)
        >>> random = problems.least_squares(rows, ones, n_workers=1, batch=problems.uniform(1))
        >>> in_fixed_units(random)
        Traceback (most recent call last):
        ...
        ValueError: problem must have units of fixed data to be put in order, but its batches are
        drawn at random; make it with batch=problems.cyclic(size)
    """
    rule: Any = problem.gradient_of
    inner = rule
    while hasattr(inner, "gradient_of"):  # made of another problem's, as local steps are
        inner = inner.gradient_of
    batch = getattr(inner, "batch", None)
    is_random = isinstance(batch, Uniform | WithoutReplacement)
    if is_random or (isinstance(batch, Whole) and inner is not rule):
        fault = "are drawn at random" if is_random else "are all the whole shard"
        raise ValueError(
            "problem must have units of fixed data to be put in order, but its batches"
            f" {fault}; make it with batch=problems.cyclic(size)"
        )
    if has_losses(problem) and isinstance(batch, Whole):
        return replace(problem, gradient_of=replace(rule, batch=Cyclic(1)))
    return problem


def check_unit_counts(problem: Problem, counts: tuple[int, ...]) -> None:
    """Refuses an order that visits more or fewer units than there are.

    A last unit may be cut or wrap.
    """
    if not has_losses(problem) or not isinstance(_rule(problem).batch, Cyclic):
        return
    sizes, batch = problem.data.size, _rule(problem).batch.size
    if isinstance(sizes, Tracer):
        return
    for worker, (count, size) in enumerate(zip(counts, np.asarray(sizes).tolist(), strict=True)):
        whole, all_rows = max(size // batch, 1), -(-size // batch)
        if count not in (whole, all_rows):
            allowed = f"{whole}" if whole == all_rows else f"{whole} or {all_rows}"
            raise ValueError(
                f"order visits {count} units of worker {worker}, but its shard has {size} rows:"
                f" {allowed} units of {batch} row{'s' if batch > 1 else ''}"
            )


@dataclass(frozen=True)
class _OfInner:
    """A function of the problem behind."""

    function: Callable[..., Any]

    def __call__(self, data: tuple[Any, Any], params: Any) -> Any:
        return self.function(data[0], params)


def in_front(problem: Problem, extra: Any, gradient_of: Callable[..., Any]) -> Problem:
    """Another gradient in front of a problem, evaluated as before; its data are `(data, extra)`.

    Where workers keep a state, the gradient takes it and returns it as the one behind does.
    """
    objective, state = problem.objective_of, problem.worker_state_of
    return replace(
        problem,
        data=(problem.data, extra),
        gradient_of=gradient_of,
        worker_state_of=None if state is None else _OfInner(state),
        objective_of=None if objective is None else _OfInner(objective),
        metrics_of=tuple((name, _OfInner(metric)) for name, metric in problem.metrics_of),
    )


def _rule(problem: Problem) -> Any:
    """Returns the gradient of a finite sum."""
    return problem.gradient_of
