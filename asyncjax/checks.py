"""Checks: the one way in which every room reads an argument, before anything compiles.

    whole, real     one number, known when a program is made: returned as Python's int or float
    within          numbers that may be arrays, or traced: returned as they are
    one_key         one typed key
    instance        what factories make
    flag            True or False
    function        something to call
    file_path       where a file is, or will be
    install_line    the command that installs an extra, for the message where one is missing
    extra           imports a library of an extra, or says that line

A message names the argument, the value and what is allowed. What is no number of the right kind is
a `TypeError`, what lies out of range a `ValueError`; a bool is not a number. A traced value exists
only when the program runs: `within` lets it pass, `whole` and `real` refuse it. JAX is imported by
the checks that are about it, not by this file: some commands need none.
"""

from __future__ import annotations

import importlib
import math
import operator
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax

SOURCE = "https://github.com/asyncjax/asyncjax"  # as in pyproject.toml


def _traced(value: Any) -> bool:
    """Whether this is a traced value; without JAX there is none."""
    return "jax" in sys.modules and isinstance(value, sys.modules["jax"].core.Tracer)


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Reads an integer of `least .. most`, also from a concrete array without axes.

    Example:
        >>> whole("n_workers", 0)
        Traceback (most recent call last):
        ...
        ValueError: n_workers must be an integer of at least 1, got 0
    """
    allowed = f"of at least {least}" if most is None else f"in {least} .. {most}"
    if _traced(value):
        raise TypeError(
            f"{name} must be a static integer {allowed}, got a traced value (under"
            f" optax.inject_hyperparams, pass static_args=({name!r},))"
        )
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer {allowed}, got {value!r}")
    if number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be an integer {allowed}, got {number}")
    return number


def real(name: str, value: Any, *, finite: bool = True, **bounds: Any) -> float:
    """Reads one real number, also from a concrete array without axes; bounds are as in `within`.

    Example:
        >>> real("target", -1, above=0)
        Traceback (most recent call last):
        ...
        ValueError: target must be positive and finite, got -1.0
    """
    number = None
    kinds = bool | np.bool_ | str | bytes
    if not isinstance(value, kinds) and not _traced(value) and np.ndim(value) == 0:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = None
    if number is None:
        raise TypeError(f"{name} must be a concrete real number, got {value!r}")
    within(name, number, finite=finite, **bounds)
    return number


def within(
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
    """Refuses numbers out of a range, in arrays too; traced values pass.

    Args:
        name: The argument, for the message.
        value: A number or an array of numbers, of Python, NumPy or JAX; returned as it is.
        above: Every entry must be larger than this.
        least: Every entry must be at least this.
        below: Every entry must be smaller than this.
        most: Every entry must be at most this.
        finite: Whether infinity is refused; NaN always is.
        integer: Whether every entry must be an integer.

    Example:
        >>> within("probability", [0.5, 1.5], least=0, most=1)
        Traceback (most recent call last):
        ...
        ValueError: probability must be in [0, 1], got 1.5 at index 1
    """
    if value is None:
        raise TypeError(f"{name} must be made of real numbers, got None")
    if _traced(value):
        return value
    kind = "integers" if integer else "real numbers"
    try:
        entries = np.asarray(value)
    except (TypeError, ValueError) as error:  # ragged, or traced inside
        if _holds_traced(value):
            return value
        raise TypeError(f"{name} must be made of {kind}, got {value!r}") from error
    if not (_of_kind(entries, "integer") or (_of_kind(entries, "floating") and not integer)):
        raise TypeError(f"{name} must be made of {kind}, got {value!r}")
    fits = np.ones(entries.shape, bool) if integer else ~np.isnan(entries)
    if finite and not integer:
        fits &= np.isfinite(entries)
    for bound, keeps in (
        (above, np.greater),
        (least, np.greater_equal),
        (below, np.less),
        (most, np.less_equal),
    ):
        if bound is not None:
            fits &= keeps(entries, bound)
    if not fits.all():
        first = np.unravel_index(np.argmin(fits), fits.shape)
        where = f" at index {', '.join(str(int(i)) for i in first)}" if first else ""
        bounds = _words(above, least, below, most, finite and not integer)
        if integer:
            of = "of " if bounds.startswith("at ") else ""
            bounds = f"{'integers' if entries.ndim else 'an integer'} {of}{bounds}"
        raise ValueError(f"{name} must be {bounds}, got {entries[first]}{where}")
    return value


def _holds_traced(value: Any) -> bool:
    import jax

    return any(map(_traced, jax.tree.leaves(value)))


def _of_kind(entries: np.ndarray, kind: str) -> bool:
    """Whether a dtype is of a kind, those of JAX beside NumPy's (bfloat16, int4) included."""
    if entries.dtype.isbuiltin != 2:  # 2: registered by another package
        return np.issubdtype(entries.dtype, getattr(np, kind))
    import jax.numpy as jnp

    return jnp.issubdtype(entries.dtype, getattr(jnp, kind))


def _words(
    above: float | None, least: float | None, below: float | None, most: float | None, finite: bool
) -> str:
    """What is allowed, in words."""
    lower, upper = above if least is None else least, below if most is None else most
    if lower is not None and upper is not None:
        left, right = "(" if least is None else "[", ")" if most is None else "]"
        return f"in {left}{lower:.10g}, {upper:.10g}{right}"
    words = []
    if above is not None:
        words.append("positive" if above == 0 else f"larger than {above:.10g}")
    if least is not None:
        words.append(f"at least {least:.10g}")
    if below is not None:
        words.append(f"less than {below:.10g}")
    if most is not None:
        words.append(f"at most {most:.10g}")
    if finite and (upper is None or not math.isfinite(upper)):
        words.append("finite")
    return " and ".join(words) or "a number"


def one_key(name: str, value: Any) -> jax.Array:
    """Reads one typed key, concrete or traced.

    Example:
        >>> one_key("key", 0)
        Traceback (most recent call last):
        ...
        TypeError: key must be one typed key, as jax.random.key(seed) makes it, got 0
    """
    import jax
    import jax.numpy as jnp

    is_typed = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    if not is_typed or value.shape != ():
        raise TypeError(
            f"{name} must be one typed key, as jax.random.key(seed) makes it, got {value!r}"
        )
    return value


def instance(name: str, value: Any, kind: type | tuple[type, ...], words: str) -> Any:
    """Reads what only a factory makes.

    Example:
        >>> instance("clock", 3, str, "a clock, as clocks.constant makes it")
        Traceback (most recent call last):
        ...
        TypeError: clock must be a clock, as clocks.constant makes it, got 3
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {words}, got {shown(value)}")
    return value


def flag(name: str, value: Any) -> bool:
    """Reads True or False, of Python or NumPy.

    Example:
        >>> flag("waves", "no")
        Traceback (most recent call last):
        ...
        TypeError: waves must be True or False, got 'no'
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def function(name: str, value: Any, words: str = "a function") -> Any:
    """Reads something to call."""
    if not callable(value):
        raise TypeError(f"{name} must be {words}, got {shown(value)}")
    return value


def file_path(name: str, value: Any) -> Path:
    """Reads the path of a file that is there or will be written: its folder must exist."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise TypeError(f"{name} must be the path of a file, got {shown(value)}")
    path = Path(value)
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be the path of a file, got the folder {str(path)!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{name} must lie in a folder that exists, got {str(path)!r}")
    return path


def install_line(extra: str) -> str:
    """The command that installs an extra, from the repository; an index may have no release.

    Example:
        >>> install_line("ray")
        'pip install "asyncjax[ray] @ git+https://github.com/asyncjax/asyncjax"'
    """
    return f'pip install "asyncjax[{extra}] @ git+{SOURCE}"'


def extra(module: str, name: str) -> Any:
    """Imports a library of the extra `name` when it is needed, or says how to install it.

    Example:
        >>> extra("json", "study").dumps([1])
        '[1]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs {module}, which is not installed: {install_line(name)}"
        ) from error


def shown(value: Any) -> str:
    """A value in a message: at most one line; an array by its dtype and shape.

    Example:
        >>> shown(np.zeros(3)), shown("x" * 300)[-8:]
        ('float64[3]', 'xxxx ...')
    """
    if hasattr(value, "dtype") and getattr(value, "shape", ()) != ():
        return f"{value.dtype}{list(value.shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 120 else f"{text[:116]} ..."
