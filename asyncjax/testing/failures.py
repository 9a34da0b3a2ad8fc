"""How a check says what is broken: one AssertionError, one sentence, also where the method fails.

A method that raises an error of its own has not kept the contract either; its error stays the cause
of the AssertionError, so that the traceback leads to the line that raised it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import one_key, shown


@contextmanager
def fails_as(what: str) -> Iterator[None]:
    """Makes an AssertionError of any error inside: what was asked, and what came.

    Example:
        >>> with fails_as("mean of the law 'mine' must be there"):
        ...     raise KeyError("shape")
        Traceback (most recent call last):
        ...
        AssertionError: mean of the law 'mine' must be there, got KeyError: 'shape'
    """
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise AssertionError(f"{what}, got {type(error).__name__}: {first}") from error


def given_key(name: str, value: Any) -> jax.Array:
    """Reads a typed key, `jax.random.key(0)` for None.

    Example:
        >>> jax.random.key_data(given_key("key", None)).tolist()
        [0, 0]
    """
    return jax.random.key(0) if value is None else one_key(name, value)


def array_of(what: str, value: Any) -> np.ndarray:
    """A NumPy array of real numbers, or an AssertionError that says that `what` gives none.

    Example:
        >>> array_of("mean of the law 'mine'", "slow")
        Traceback (most recent call last):
        ...
        AssertionError: mean of the law 'mine' must give real numbers, got 'slow'
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise AssertionError(f"{what} must give real numbers, got {shown(value)}")
    return array


def first_difference(one: np.ndarray, other: np.ndarray) -> tuple[int, ...] | None:
    """Where two arrays of one shape first differ, None if nowhere; NaN equals NaN.

    Example:
        >>> first_difference(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]]))
        (1, 1)
    """
    if one.dtype.kind == "f":
        differs = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    else:
        differs = one != other
    if not differs.any():
        return None
    return tuple(int(i) for i in np.argwhere(differs)[0])
