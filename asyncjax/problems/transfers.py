"""Transfers that a caller has asked for by a call.

Under `jax.transfer_guard("disallow")` JAX refuses arrays of NumPy and numbers of Python that are
handed to a device without saying so. To make a problem of arrays, and to run one, is to say so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def explicit(function: Callable[P, R]) -> Callable[P, R]:
    """The function, its transfers counted as explicit: only "disallow_explicit" refuses them.

    Example:
        >>> import numpy as np
        >>> import jax.numpy as jnp
        >>> with jax.transfer_guard("disallow"):
        ...     explicit(jnp.asarray)(np.ones(2)).shape
        (2,)
    """

    @wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> R:
        names = ("jax_transfer_guard", "jax_transfer_guard_host_to_device")
        if "disallow_explicit" in (getattr(jax.config, name) for name in names):
            return function(*arguments, **options)
        with jax.transfer_guard("allow"):
            return function(*arguments, **options)

    return called
