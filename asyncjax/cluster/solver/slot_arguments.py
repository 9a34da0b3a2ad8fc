"""What a slot of the solver is given, checked where it is concrete; traced values pass.

Every function of the solver is pure and meant for `jit` and `vmap`, where nothing is looked at: the
checks run once, where a person calls with numbers.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from asyncjax.checks import within


def checked_slot(
    price: Any, room: Any, worker: Any, server: Any, n_workers: Any, n_servers: Any
) -> tuple[Any, Any, Any, Any]:
    """Checks prices, room, demands and numbers of units of one slot; lists become arrays.

    `price`, `room` [H, R], at least 0; `worker`, `server` [R], at least 0, one entry positive;
    `n_workers`, `n_servers` whole, at least 0.

    Example:
        >>> _ = checked_slot([[1.0]], [[-1.0]], [1.0], [1.0], 1, 1)
        Traceback (most recent call last):
        ...
        ValueError: room must be at least 0 and finite, got -1.0 at index 0, 0
    """
    given = {"price": price, "room": room, "worker": worker, "server": server}
    price, room, worker, server = (array(name, value) for name, value in given.items())
    shape = np.shape(room)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"room must have the shape [machines, resources], got {shape}")
    for name, value, allowed in (
        ("price", price, shape),
        ("worker", worker, shape[1:]),
        ("server", server, shape[1:]),
    ):
        if np.shape(value) != allowed:
            raise ValueError(f"{name} must have the shape {allowed}, got {np.shape(value)}")
    for name, value in (("worker", worker), ("server", server)):
        if not isinstance(value, Tracer) and not (np.asarray(value) > 0).any():
            raise ValueError(f"{name} must have a positive demand, got none")
    for name, value in (("n_workers", n_workers), ("n_servers", n_servers)):
        within(name, value, least=0)
        if np.ndim(value):
            raise ValueError(f"{name} must be one number, got shape {np.shape(value)}")
        if not isinstance(value, Tracer) and np.asarray(value) != np.floor(np.asarray(value)):
            raise ValueError(f"{name} must be whole, got {value}")
    return price, room, worker, server


def array(name: str, value: Any, *, finite: bool = True) -> Any:
    """Checks numbers of at least 0; lists become arrays, anything else stays as it is.

    Example:
        >>> array("cost", [0.0, 1.0])
        array([0., 1.])
    """
    within(name, value, least=0, finite=finite)
    return value if isinstance(value, jax.Array | np.ndarray) else np.asarray(value)
