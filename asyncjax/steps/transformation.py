"""The form of every rule of this room: its formula with the extras it needs, and nothing else.

    transformation(init, update)    updates, state = update(updates, state, *, ...)
    stateless(change)               updates = change(updates, *, ...)
    scaled_by(step)                 updates = gamma_k * updates,    gamma_k = step(dtype, *, ...)

An extra that is needed (`delay`, `worker`, `read_params` and so on, and `params`) is a keyword-only
argument without default; what a rule does not name is ignored, unless it takes `**extra` to hand it
on. So a forgotten extra is a TypeError that names it, and `inspect.signature` of the finished
`update` tells which are needed. Here too a `delay`, `worker` or `time` that is needed is read: a
concrete one out of range is refused, a traced one is counted in the field `invalid_extras` of the
state, which a rule need only declare.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.array_checks import integers, is_traced, number, rows_of
from asyncjax.steps.trees import scale_tree, wide_dtype

COUNTED = ("delay", "worker", "time")
Transformation = optax.GradientTransformationExtraArgs
Updated = tuple[optax.Updates, Any]  # what an update returns: the updates and the new state

# While `worker_tables` looks: whose tables they are, and how many workers have a row
_TABLES: ContextVar[list[tuple[str, int]] | None] = ContextVar("tables", default=None)


class StepSizeState(NamedTuple):
    """State of a rule that remembers nothing but the step size it used last.

    Attributes:
        last_step_size: float[], gamma_k of the last update; float32 or wider.
        invalid_extras: int32[], traced extras out of range so far; None for a rule that needs none.
    """

    last_step_size: jax.Array
    invalid_extras: jax.Array | None = None


class ExtrasState(NamedTuple):
    """State of a rule that remembers nothing but how many traced extras were out of range.

    Attributes:
        invalid_extras: int32[], so many so far; None: not counted.
    """

    invalid_extras: jax.Array | None = None


def transformation(
    init: Callable[..., Any],
    update: Callable[..., Any],
    *,
    n_workers: Callable[[Any], int | None] | None = None,
) -> Transformation:
    """Makes an optax transformation of `init` and `update(updates, state, *, extras)`.

    What is made swallows every keyword that `update` does not name.

    Args:
        init: `(params) -> state`.
        update: `(updates, state, *, ...) -> (updates, state)`; what it needs (`delay`, `worker`,
            `read_params`, `params`, ...) is a keyword without default, and then it is required.
        n_workers: `(state) -> n`, how many workers there are, where `worker` is needed; None: not
            known.

    Example:
        >>> def update(updates, state, *, delay):
        ...     return updates / (1.0 + delay), state
        >>> half = transformation(lambda params: optax.EmptyState(), update)
        >>> half.update(1.0, half.init(0.0), delay=1, worker=7)[0]
        0.5
    """
    keywords = _keywords(update)
    hands_on = any(one.kind is one.VAR_KEYWORD for one in _parameters(update))
    rule = update.__qualname__.split(".")[0]
    read = [name for name in COUNTED if name in keywords]

    def started(params: optax.Params) -> Any:
        state = init(params)
        count, tables = n_workers(state) if n_workers else None, _TABLES.get()
        if tables is not None and count is not None:
            tables.append((rule, count))
        counts = read and "invalid_extras" in getattr(state, "_fields", ())
        return state._replace(invalid_extras=jnp.zeros((), jnp.int32)) if counts else state

    def complete(
        updates: optax.Updates, state: Any, params: optax.Params | None = None, **extra: Any
    ) -> Updated:
        if not hands_on:
            extra = {name: extra[name] for name in keywords if name in extra}
        if "params" in keywords:
            if params is None and keywords["params"].default is inspect.Parameter.empty:
                raise ValueError(f"params must be given to the update of {rule}, got None")
            extra["params"] = params
        n = {"worker": n_workers(state)} if n_workers else {}
        found = [check_extra(name, extra[name], n.get(name)) for name in read if name in extra]
        updates, new = update(updates, state, **extra)
        if read and getattr(state, "invalid_extras", None) is not None:
            traced = [count for count in found if isinstance(count, jax.Array)]
            new = new._replace(invalid_extras=sum(traced, start=state.invalid_extras))
        return updates, new

    shown = [one for name, one in keywords.items() if name != "params"]
    outer = list(inspect.signature(complete).parameters.values())
    complete.__signature__ = inspect.Signature([*outer[:3], *shown, outer[3]])  # pyright: ignore[reportFunctionMemberAccess]
    return Transformation(started, complete)


def worker_tables(
    rule: optax.GradientTransformation, params: optax.Params
) -> list[tuple[str, int]]:
    """Returns the tables by worker of a rule and of all inside it: whose, for how many workers.

    Nothing is computed: the state is begun in the abstract, and each rule that has `n_workers`
    tells how many it is made for. Rules that are not made by `transformation` tell nothing.

    Args:
        rule: An optax transformation, such as a chain.
        params: A model that it may be of.

    Example:
        >>> def halved(updates, *, worker):
        ...     return updates / 2.0
        >>> rule = optax.chain(stateless(halved, n_workers=lambda state: 3), optax.sgd(0.1))
        >>> worker_tables(rule, jnp.zeros(2))
        [('halved', 3)]
    """
    tables: list[tuple[str, int]] = []
    token = _TABLES.set(tables)
    try:
        jax.eval_shape(lambda model: rule.init(model), params)  # a new function: nothing is cached
    finally:
        _TABLES.reset(token)
    return tables


def stateless(
    change: Callable[..., optax.Updates], *, n_workers: Callable[[Any], int | None] | None = None
) -> Transformation:
    """Makes a transformation that remembers nothing of `change(updates, *, extras) -> updates`.

    Its state is empty, or counts the extras out of range if `change` needs such; then an empty one
    is taken too, and nothing is counted.

    Args:
        change: The formula; what it needs is a keyword without default.
        n_workers: As in `transformation`.

    Example:
        >>> half = stateless(lambda updates, *, delay: updates / (1.0 + delay))
        >>> half.update(1.0, half.init(0.0), delay=1)[0]
        0.5
    """

    @wraps(change)
    def update(updates: optax.Updates, state: Any, **extra: Any) -> Any:
        return change(updates, **extra), state

    counts = bool(set(COUNTED) & set(_keywords(change)))

    def init(params: optax.Params) -> ExtrasState | optax.EmptyState:
        return ExtrasState() if counts else optax.EmptyState()

    return transformation(init, update, n_workers=n_workers)


def scaled_by(step: Callable[..., jax.Array]) -> Transformation:
    """Makes a transformation that multiplies by `step(dtype, *, extras)`, a scalar of that dtype.

    Its state has the field `last_step_size`, which is 0 at first if `step` needs an extra.

    Args:
        step: The step size; what it needs is a keyword without default.

    Example:
        >>> half = scaled_by(lambda dtype: jnp.asarray(0.5, dtype))
        >>> update, state = half.update(jnp.float32(3.0), half.init(jnp.float32(0.0)))
        >>> float(update), float(state.last_step_size)
        (1.5, 0.5)
    """

    def init(params: optax.Params) -> StepSizeState:
        dtype = wide_dtype(params)
        return StepSizeState(jnp.zeros((), dtype) if _keywords(step) else step(dtype))

    @wraps(step)
    def update(updates: optax.Updates, state: StepSizeState, **extra: Any) -> Updated:
        size = step(state.last_step_size.dtype, **extra)
        return scale_tree(updates, size), StepSizeState(size)

    return transformation(init, update)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _keywords(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return {one.name: one for one in _parameters(function) if one.kind is one.KEYWORD_ONLY}


def check_extra(name: str, value: Any, n: int | None = None) -> int | jax.Array:
    """Refuses a concrete extra that is out of range, and counts how much of a traced one is.

    `n` is the number of workers or blocks, None where there is no bound. What is returned is 0, or
    int32[] for a traced value.
    """
    if name == "time":
        number(name, value, least=0)
    elif name == "delay" or n is None:
        integers(name, value)
    else:
        rows_of(name, value, n, padding=np.ndim(value) > 0)
    if not is_traced(value):
        return 0
    extra = jnp.asarray(value)
    if jnp.issubdtype(extra.dtype, jnp.inexact):
        wrong = jnp.logical_not((extra >= 0) & (extra < jnp.inf))  # NaN is not either
    else:
        wrong = extra < (-1 if name == "worker" and extra.ndim else 0)
    if n is not None and name != "delay":
        wrong |= extra >= n
    return jnp.sum(wrong, dtype=jnp.int32) if extra.ndim else wrong.astype(jnp.int32)
