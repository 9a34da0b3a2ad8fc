"""Arguments: how the rules of this room read what they are made of, and what an update is handed.

    made of     number, function_of, optimizer, table_rows      refused when the rule is made
    handed      delay, worker, block, time                      refused if concrete, else counted

A traced value is known only when the program runs. So a rule that reads one of these extras has a
state with the field `invalid_extras`, int32[]: how many were out of range so far. What the rule
then did is what it does for the nearest value in range, except that a row that is not there is not
written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import integers, is_traced, rows_of, shape_of
from asyncjax.checks import function, shown, within

COUNTED = ("delay", "worker", "time")


def number(name: str, value: Any, **bounds: Any) -> Any:
    """Reads one number that may be traced, within the bounds of `checks.within`.

    A JAX array may also lie on an open bound: an injected schedule that starts at 0 would otherwise
    pass under jit and fail outside.
    """
    if callable(value):
        raise TypeError(
            f"{name} must be a number, got {shown(value)} (a schedule goes through"
            " optax.inject_hyperparams)"
        )
    open_bounds = [bounds[bound] for bound in ("above", "below") if bound in bounds]
    known_scalar = isinstance(value, jax.Array) and value.ndim == 0 and not is_traced(value)
    if known_scalar and value in open_bounds:
        return value
    within(name, value, **bounds)
    if np.ndim(value):
        raise ValueError(f"{name} must be one number, got shape {np.shape(value)}")
    return value


def optimizer(name: str, value: Any) -> Any:
    """Reads an optax transformation."""
    if not all(callable(getattr(value, part, None)) for part in ("init", "update")):
        hint = ", which is to be called first" if callable(value) else ""
        raise TypeError(
            f"{name} must be an optax transformation, such as optax.sgd(0.1), got"
            f" {shown(value)}{hint}"
        )
    return value


def function_of(name: str, value: Any, words: str, *examples: Any, gives_number: bool) -> Any:
    """Reads a function that gives one number, or a tree; it is tried on abstract examples."""
    function(name, value, words)
    try:
        inspect.signature(value).bind(*examples)
    except TypeError as error:
        raise TypeError(f"{name} must be {words}, got {shown(value)}") from error
    except ValueError:  # a builtin has no signature
        pass
    try:
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(jax.eval_shape(value, *examples))]
    except Exception:  # it may need other shapes, or concrete values
        return value
    if shapes != [()] if gives_number else not shapes:
        wanted = "one number" if gives_number else "a tree of arrays"
        got = "None" if not shapes else f"shape {shapes[0]}" if len(shapes) == 1 else "several"
        raise ValueError(f"{name} must return {wanted}, got {got}")
    return value


def delay_weight(name: str, value: Any) -> Callable[[jax.Array], jax.Array]:
    """Reads a function of a float scalar delay."""
    return function_of(name, value, "a function of the delay", jnp.float32(1), gives_number=True)


def table_rows(name: str, tree: Any, n_workers: Any) -> Any:
    """Reads first rows of a table of gradients, a tree of [n_workers, ...]; None is no tree."""
    for leaf in [] if tree is None else jax.tree.leaves(tree) or [tree]:
        shape = shape_of(leaf)
        if not shape or (not isinstance(n_workers, Tracer) and shape[0] != int(n_workers)):
            got = shown(leaf) if shape is None else f"shape {shape}"
            raise ValueError(f"{name} must have leaves of shape [{n_workers}, ...], got {got}")
    return tree


def invalid(name: str, value: Any, n: int | None = None) -> int | jax.Array:
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


def scalar(name: str, value: ArrayLike) -> jax.Array:
    """Returns an extra, such as `delay`, as an int32 scalar."""
    if np.ndim(value):
        wanted = "a scalar"
        if name == "delay":
            wanted += " (for several gradients in one step, the largest of theirs)"
        raise ValueError(f"{name} must be {wanted}, got shape {np.shape(value)}")
    return jnp.asarray(value).astype(jnp.int32)


def late(delay: ArrayLike, dtype: Any) -> jax.Array:
    """Returns the extra `delay` as a scalar of a float dtype that is not negative."""
    return jnp.maximum(0, scalar("delay", delay)).astype(dtype)


def leaf_delays(delay: Any, params: Any) -> Any:
    """Gives every leaf of the parameters its delay."""
    if not jax.tree.leaves(params):  # optax.tree.map_params calls with a placeholder
        return params
    try:
        return jax.tree.broadcast(delay, params)
    except ValueError as error:
        raise ValueError(
            f"delays by leaf must be a prefix of the tree of parameters, "
            f"{jax.tree.structure(params)}, got {jax.tree.structure(delay)}"
        ) from error
