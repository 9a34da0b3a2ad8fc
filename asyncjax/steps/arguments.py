"""Arguments: how the rules of this room read what they are made of, and what an update is handed.

    made of     number, one_number_of, returning, optimizer     refused when the rule is made
    handed      delay, worker, block, time                      refused if concrete, else counted

A traced value is known only when the program runs. So a rule that reads one of these extras has a
state with the field `invalid_extras`, int32[]: how many were out of range so far. What the rule
then did is what it does for the nearest value in range, except that a row that is not there is not
written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.buffers.arguments import integers, is_traced, rows_of, shape_of
from asyncjax.checks import function, shown, within

COUNTED = ("delay", "worker", "time")


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    finite: bool = True,
    integer: bool = False,
) -> Any:
    """Reads one number that may be traced, as a hyperparameter is that optax injects.

    A JAX array may also lie on an open bound: an injected schedule that starts at 0 would otherwise
    pass under jit and fail outside.

    Example:
        >>> number("step_size", 0.0, above=0)
        Traceback (most recent call last):
        ...
        ValueError: step_size must be positive and finite, got 0.0
        >>> float(number("step_size", jnp.float32(0.0), above=0))
        0.0
    """
    if callable(value):
        raise TypeError(
            f"{name} must be a number, got {shown(value)} (a schedule goes through"
            " optax.inject_hyperparams)"
        )
    known_scalar = isinstance(value, jax.Array) and value.ndim == 0 and not is_traced(value)
    if known_scalar and any(bound is not None and value == bound for bound in (above, below)):
        return value
    within(
        name,
        value,
        above=above,
        least=least,
        below=below,
        most=most,
        finite=finite,
        integer=integer,
    )
    if np.ndim(value):
        raise ValueError(f"{name} must be one number, got shape {np.shape(value)}")
    return value


def optimizer(name: str, value: Any) -> Any:
    """Reads an optax transformation.

    Example:
        >>> optimizer("inner", 3)
        Traceback (most recent call last):
        ...
        TypeError: inner must be an optax transformation, such as optax.sgd(0.1), got 3
    """
    if not all(callable(getattr(value, part, None)) for part in ("init", "update")):
        hint = ", which is to be called first" if callable(value) else ""
        raise TypeError(
            f"{name} must be an optax transformation, such as optax.sgd(0.1), got"
            f" {shown(value)}{hint}"
        )
    return value


def one_number_of(name: str, value: Any, words: str, *examples: Any) -> Any:
    """Reads a function that returns one number; it is tried on abstract examples.

    Example:
        >>> one_number_of("weight", lambda delay: None, "a function of the delay", jnp.float32(1))
        Traceback (most recent call last):
        ...
        ValueError: weight must return one number, got None
    """
    result = _tried(name, value, words, examples)
    if result is not None and [np.shape(leaf) for leaf in result] != [()]:
        shapes = [np.shape(leaf) for leaf in result]
        got = "None" if not shapes else f"shape {shapes[0]}" if len(shapes) == 1 else "several"
        raise ValueError(f"{name} must return one number, got {got}")
    return value


def returning(name: str, value: Any, words: str, *examples: Any) -> Any:
    """Reads a function that returns something; it is tried on abstract examples.

    Example:
        >>> returning("prox", lambda tree, step: None, "a function", jnp.zeros(2), 1.0)
        Traceback (most recent call last):
        ...
        ValueError: prox must return a tree of arrays, got None
    """
    if _tried(name, value, words, examples) == []:
        raise ValueError(f"{name} must return a tree of arrays, got None")
    return value


def _tried(name: str, value: Any, words: str, examples: Iterable[Any]) -> list[Any] | None:
    """The leaves of what a function returns; None where that is not known beforehand."""
    function(name, value, words)
    try:
        inspect.signature(value).bind(*examples)
    except TypeError as error:
        raise TypeError(f"{name} must be {words}, got {shown(value)}") from error
    except ValueError:  # a builtin has no signature
        pass
    try:
        return jax.tree.leaves(jax.eval_shape(value, *examples))
    except Exception:  # it may need other shapes, or concrete values
        return None


def delay_weight(name: str, value: Any) -> Callable[[jax.Array], jax.Array]:
    """Reads a function of a float scalar delay.

    Example:
        >>> delay_weight("weight", 3)
        Traceback (most recent call last):
        ...
        TypeError: weight must be a function of the delay, got 3
    """
    return one_number_of(name, value, "a function of the delay", jnp.float32(1))


def table_rows(name: str, tree: Any, n_workers: Any) -> Any:
    """Reads first rows of a table of gradients, a tree of [n_workers, ...]; None is no tree.

    Example:
        >>> table_rows("initial", jnp.zeros((2, 3)), 4)
        Traceback (most recent call last):
        ...
        ValueError: initial must have leaves of shape [4, ...], got shape (2, 3)
    """
    if tree is None:
        return None
    leaves = jax.tree.leaves(tree)
    for leaf in leaves or [tree]:
        shape = shape_of(leaf)
        if not shape or (not isinstance(n_workers, Tracer) and shape[0] != int(n_workers)):
            got = shown(leaf) if shape is None else f"shape {shape}"
            raise ValueError(f"{name} must have leaves of shape [{n_workers}, ...], got {got}")
    return tree


def invalid(name: str, value: Any, n: int | None = None) -> int | jax.Array:
    """Refuses a concrete extra that is out of range, and counts how much of a traced one is.

    Args:
        name: "delay", "worker", "block" or "time".
        value: What `update` was handed.
        n: How many workers or blocks there are; None: unknown, or no bound.

    Returns:
        0, or int32[] for a traced value.

    Example:
        >>> int(jax.jit(lambda delay: invalid("delay", delay))(-3))
        1
        >>> invalid("worker", 4, n=4)
        Traceback (most recent call last):
        ...
        ValueError: worker must be an integer in [0, 3], got 4
    """
    if name == "time":
        number(name, value, least=0)
    elif name == "delay" or n is None:
        integers(name, value)
    else:
        padding = np.ndim(value) > 0
        rows_of(name, value, n, padding=padding)
    if not is_traced(value):
        return 0
    found = jnp.asarray(value)
    if jnp.issubdtype(found.dtype, jnp.inexact):
        wrong = jnp.logical_not((found >= 0) & (found < jnp.inf))  # NaN is not either
    else:
        wrong = found < (-1 if name == "worker" and found.ndim else 0)
    if n is not None and name != "delay":
        wrong |= found >= n
    return jnp.sum(wrong, dtype=jnp.int32) if found.ndim else wrong.astype(jnp.int32)
