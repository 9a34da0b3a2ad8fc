"""The doors of the room: what orders, kernels and rules by projections are handed.

Shapes and types are always looked at, values only where they are known: a traced value passes. What
is looked at costs one pass over the array on the host, or on its device where it lies on one, and
never a part of a compiled program. A gradient that is NaN or infinite would decide all signs that
follow it in its epoch.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import shown
from asyncjax.orders.shards import LARGEST, visit_numbers

PyTree = Any


def array(name: str, value: Any, *, integers: bool = False) -> jax.Array:
    """Reads an array of real numbers, or of integers; NumPy's are copied.

    Integers that int32 does not hold are refused where they would be cut.
    """
    kind = "integers" if integers else "real numbers"
    is_array = isinstance(value, jax.Array | np.ndarray | np.generic)
    try:
        given = value if isinstance(value, jax.Array) else np.array(value)
        if not is_array and given.dtype == object:  # such as a list of traced numbers
            given = jnp.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must be {kind}, got {shown(value)}") from error
    dtype = given.dtype
    is_integer = jnp.issubdtype(dtype, jnp.integer)
    may_be_floating = not integers or not given.size
    if not is_integer and not (may_be_floating and jnp.issubdtype(dtype, jnp.floating)):
        raise TypeError(
            f"{name} must be {kind}, got {dtype if is_array or np.ndim(value) else shown(value)}"
        )
    is_wide = is_integer and dtype.itemsize > 3 and dtype != jnp.int32
    if is_wide and given.size and not isinstance(given, Tracer):
        most = max(np.asarray(given).min(), np.asarray(given).max(), key=lambda x: abs(int(x)))
        if abs(int(most)) > LARGEST:
            raise ValueError(
                f"{name} must hold integers of at most {LARGEST:,} in size, got {most}"
            )
    return jnp.asarray(given)


def check_finite(name: str, values: Any) -> None:
    """Refuses a concrete array with NaN or infinity."""
    rows = finite_rows(values)
    if rows is not None and not rows.all():
        host = np.asarray(values)
        index, words = _first(~np.isfinite(host))
        raise ValueError(f"{name} must be finite, got {host[index]}{words}")


def finite_rows(values: Any) -> np.ndarray | None:
    """Says of every row along the last axis whether it is finite; None where that is not known.

    Returns bool[...].
    """
    if isinstance(values, Tracer):
        return None
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return np.ones(values.shape[:-1], bool)
    axis = -1 if values.ndim else None
    if isinstance(values, jax.Array) and any(one.platform != "cpu" for one in values.devices()):
        with jax.ensure_compile_time_eval():  # what travels is one truth value a row
            return np.asarray(jnp.all(jnp.isfinite(values), axis=axis))
    return np.asarray(np.isfinite(np.asarray(values)).all(axis=axis))


def _first(wrong: np.ndarray) -> tuple[tuple[int, ...], str]:
    """The index of the first true entry, and the words for it."""
    index = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), wrong.shape))
    return index, f" at index {', '.join(map(str, index))}" if index else ""


def check_tree(name: str, tree: PyTree, *, finite: bool = True) -> None:
    """Refuses a tree without leaves, or with a leaf that is no floating array.

    With `finite` a leaf of concrete values must be finite too; else leaves may be shapes.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    if not leaves:
        raise ValueError(f"{name} must be a tree with at least one array, got {shown(tree)}")
    for path, leaf in leaves:
        where, dtype = name + jax.tree_util.keystr(path), getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            got = shown(leaf) if dtype is None else dtype
            raise TypeError(f"{where} must be a floating array, got {got}")
        if finite:
            check_finite(where, leaf)


def check_like(name: str, tree: PyTree, like: PyTree, words: str) -> None:
    """Refuses a tree of another structure, or with leaves of other shapes, than `like` has."""
    check_tree(name, tree)
    wanted, got = jax.tree.structure(like), jax.tree.structure(tree)
    if wanted != got:
        raise ValueError(f"{name} must be a tree like {words}, {shown(wanted)}, got {shown(got)}")
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    for (path, leaf), other in zip(leaves, jax.tree.leaves(like), strict=True):
        if leaf.shape != other.shape:
            raise ValueError(
                f"{name}{jax.tree_util.keystr(path)} must have the shape of that of {words},"
                f" {other.shape}, got {leaf.shape}"
            )


def widened_sum(params: PyTree, running_sum: PyTree) -> PyTree:
    """Returns the running sum in float32 or wider, if it fits the parameters."""
    check_tree("params", params)
    check_like("running_sum", running_sum, params, "params")
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf).astype(jnp.promote_types(leaf.dtype, jnp.float32)),
        running_sum,
    )


def check_rows(name: str, tree: PyTree) -> int:
    """Returns the number of rows of a tree of finite arrays with one leading axis."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    if not leaves:
        raise ValueError(f"{name} must have at least one array, got {shown(tree)}")
    n_rows = next(iter(np.shape(leaves[0][1])), 0)
    for path, leaf in leaves:
        where, shape = name + jax.tree_util.keystr(path), getattr(leaf, "shape", ())
        if not shape:
            raise ValueError(f"{where} must be an array with a leading axis, got {shown(leaf)}")
        if shape[0] != n_rows:
            raise ValueError(
                f"{where} must have a leading axis of {n_rows} rows, as the other arrays, got"
                f" {shape}"
            )
        check_finite(where, leaf)
    return n_rows


def loss_count(name: str, losses: Any) -> int:
    """Returns the number 2K of losses that the function `name` makes: a vector of even length."""
    shape = getattr(losses, "shape", None)
    if shape is None or len(shape) != 1:
        raise ValueError(f"{name} must return a vector, one loss an example, got shape {shape}")
    if shape[0] % 2 or not shape[0]:
        raise ValueError(
            f"{name} must return an even number of losses, pairs of one batch, got {shape[0]}"
        )
    return shape[0]


def check_state(
    state: Any, kind: type[tuple[Any, ...]], shape: tuple[int, ...] | None = None
) -> None:
    """Refuses what is no state of an order: a `kind`, whose field `order` has this shape."""
    if not isinstance(state, kind):
        raise TypeError(
            f"state must be a {kind.__name__}, as init of this order makes it, got {shown(state)}"
        )
    if shape is not None:
        check_order_shape(getattr(state, "order"), shape)  # noqa: B009


def check_order_shape(order: Any, shape: tuple[int, ...]) -> None:
    """Refuses the order in a state that has another shape."""
    if (got := getattr(order, "shape", ())) != shape:
        raise ValueError(f"state must be of this order, of shape {shape}, got one of shape {got}")


def check_observation(
    positions: Any,
    gradients: Any,
    *,
    dim: int,
    n: int,
    counts: tuple[int, ...] | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns the arguments of `observe` as arrays that share no memory with the caller's.

    `positions` integers[B]; `gradients` real[B, dim], with workers [n_workers, B, dim]; returns
    int32[B] and the gradients in their own dtype. Rows that are padding, and those of idle workers,
    may hold anything.
    """
    steps = check_positions(positions, n)
    if gradients is None or isinstance(gradients, dict):
        raise TypeError(
            "gradients must be an array of real numbers, one row a step (ravel trees by"
            f" jax.flatten_util.ravel_pytree), got {shown(gradients)}"
        )
    rows = array("gradients", gradients)
    wanted, words = (steps.shape[0], dim), "[B, dim]"
    if counts is not None:
        wanted, words = (len(counts), *wanted), "[n_workers, B, dim]"
    if rows.shape != wanted:
        raise ValueError(f"gradients must have shape {words} = {wanted}, got {rows.shape}")
    _check_rows(steps, rows, n, counts)
    return steps, rows


def check_positions(positions: Any, n: int) -> jax.Array:
    """Returns the steps int32[B] that are observed; those outside 0 .. n-1 are padding."""
    given = array("positions", positions, integers=True)
    if given.ndim != 1 or not given.shape[0]:
        raise ValueError(f"positions must be a vector of B >= 1 steps, got shape {given.shape}")
    if not isinstance(given, Tracer):
        steps = np.asarray(given)
        steps = steps[(steps >= 0) & (steps < n)].astype(np.int64)
        if (torn := np.diff(steps) != 1).any():
            at = int(np.argmax(torn))
            raise ValueError(
                "positions must be steps of the epoch one after the other, got"
                f" {steps[at + 1]} after {steps[at]}"
            )
    return given.astype(jnp.int32)


def _check_rows(steps: jax.Array, rows: jax.Array, n: int, counts: tuple[int, ...] | None) -> None:
    """Refuses NaN and infinity in the rows that count, where they are known."""
    finite = None if isinstance(steps, Tracer) else finite_rows(rows)
    if finite is None or finite.all():
        return
    there = np.asarray(steps)
    counted = (there >= 0) & (there < n)
    if counts is not None:
        counted = counted & (visit_numbers(counts)[:, there % n] >= 0)
    bad = np.argwhere(counted & ~finite)
    if len(bad):
        *worker, row = (int(i) for i in bad[0])
        whose = f" of worker {worker[0]}" if worker else ""
        entries = np.asarray(rows)[tuple(bad[0])]
        raise ValueError(
            "gradients must be finite, got"
            f" {entries[np.argmin(np.isfinite(entries))]} at step {int(there[row])}{whose}"
        )


def check_vectors(name: str, vectors: Any) -> jax.Array:
    """Returns a matrix of row vectors in float32 or wider.

    `vectors` real[K, d]; returns float[K, d], bfloat16 and integers cast to float32.
    """
    vectors = array(name, vectors)
    if vectors.ndim != 2:
        raise ValueError(f"{name} must have shape [K, d], got {vectors.shape}")
    check_finite(name, vectors)
    return vectors.astype(jnp.promote_types(vectors.dtype, jnp.float32))


def check_signs(signs: jax.Array) -> None:
    """Refuses signs that are known and none.

    `signs` number[...].
    """
    if isinstance(signs, Tracer):
        return
    host = np.asarray(signs)
    wrong = ~np.isin(host, (-1, 0, 1))
    if wrong.any():
        index, words = _first(wrong)
        raise ValueError(f"signs must be -1, 0 or +1, got {host[index]}{words}")


def check_distinct(name: str, visited: np.ndarray, n: int) -> None:
    """Refuses visits that are none of n examples, or that come twice.

    `visited` int[k].
    """
    outside = (visited < 0) | (visited >= n)
    if outside.any():
        got = visited[np.argmax(outside)]
        raise ValueError(f"{name} must have each of 0 .. {n - 1} once, got {got}")
    twice = np.bincount(visited, minlength=n) > 1
    if twice.any():
        raise ValueError(
            f"{name} must have each of 0 .. {n - 1} once, got {np.argmax(twice)} twice"
        )
