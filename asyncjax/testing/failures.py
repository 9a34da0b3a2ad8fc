"""What the contracts share: how a check says what is broken, and what a state may be.

One AssertionError, one sentence, also where the method raises an error of its own, which stays the
cause of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from asyncjax.checks import one_key, shown


@contextmanager
def fails_as(what: str) -> Iterator[None]:
    """Makes an AssertionError of any error inside: what was asked, and what came."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise AssertionError(f"{what}, got {type(error).__name__}: {first}") from error


def given_key(name: str, value: Any) -> jax.Array:
    """Reads a typed key, `jax.random.key(0)` for None."""
    return jax.random.key(0) if value is None else one_key(name, value)


def first_difference(one: np.ndarray, other: np.ndarray) -> tuple[int, ...] | None:
    """Where two arrays of one shape first differ, None if nowhere; NaN equals NaN."""
    if one.dtype.kind == "f":
        differs = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    else:
        differs = one != other
    if not differs.any():
        return None
    return tuple(int(i) for i in np.argwhere(differs)[0])


def check_initial_state(state: Any, whose: str) -> None:
    """Refuses a state after `init` whose leaves are no jax arrays with dtypes of their own."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = f"state{jax.tree_util.keystr(path)} of {whose} must"
        if not isinstance(leaf, jax.Array):
            raise AssertionError(f"{name} be a jax array after init, got {shown(leaf)}")
        if getattr(leaf, "weak_type", False):  # a typed key has none
            raise AssertionError(
                f"{name} have a dtype of its own after init, got a weak {leaf.dtype}"
            )


def check_same_form(before: Any, after: Any, what: str) -> None:
    """Refuses a state of another structure than that of `init`, or with a leaf of another kind."""
    structures = jax.tree.structure(before), jax.tree.structure(after)
    if structures[0] != structures[1]:
        old, new = map(shown, structures)
        raise AssertionError(f"{what} must give a state like that of init, {old}, got {new}")
    leaves = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, old), new in leaves:
        where = f"state{jax.tree_util.keystr(path)}"
        if not isinstance(new, jax.Array | jax.ShapeDtypeStruct):
            raise AssertionError(f"{what} must keep {where} a jax array, got {shown(new)}")
        kinds = [
            f"{'weak ' if getattr(leaf, 'weak_type', False) else ''}{leaf.dtype}{list(leaf.shape)}"
            for leaf in (old, new)
        ]
        if kinds[0] != kinds[1]:
            raise AssertionError(
                f"{what} must keep {where} {kinds[0]}, as init makes it, got {kinds[1]}"
            )
