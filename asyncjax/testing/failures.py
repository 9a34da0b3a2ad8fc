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


def _kind(leaf: Any) -> str:
    """Dtype and shape of a leaf of a state, and what else JAX would compile anew for."""
    if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return f"no jax array, {shown(leaf)}"
    weak = getattr(leaf, "weak_type", False)  # a typed key has none
    return f"{'weak ' * weak}{leaf.dtype}{list(leaf.shape)}"


def check_same_form(before: Any, after: Any, what: str) -> None:
    """Refuses a state whose leaves are not those that `init` made, in place, dtype and shape."""
    old, new = (
        {jax.tree_util.keystr(path): _kind(leaf) for path, leaf in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, (before, after))
    )
    for place in old | new:
        if old.get(place) != new.get(place):
            pair = f"{old.get(place)}, as init makes it, got {new.get(place)}"
            raise AssertionError(f"{what} must keep state{place} {pair}")


def check_initial_state(state: Any, whose: str) -> None:
    """Refuses a state after `init` whose leaves are no jax arrays with dtypes of their own."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if (kind := _kind(leaf)).startswith(("no ", "weak ")):
            raise AssertionError(
                f"state{jax.tree_util.keystr(path)} of {whose} must be a jax array with a dtype of"
                f" its own after init, got {kind}"
            )
