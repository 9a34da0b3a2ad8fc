"""What the lines of this folder may name: the rooms, arrays, and one small thing of each kind."""

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import (
    buffers,
    checks,
    clocks,
    cluster,
    live,
    orders,
    problems,
    results,
    rollouts,
    simulation,
    steps,
    storage,
    stragglers,
    study,
    testing,
    traces,
    whatif,
)

ROOMS = {
    "buffers": buffers,
    "clocks": clocks,
    "cluster": cluster,
    "live": live,
    "orders": orders,
    "problems": problems,
    "results": results,
    "rollouts": rollouts,
    "simulation": simulation,
    "steps": steps,
    "storage": storage,
    "stragglers": stragglers,
    "testing": testing,
    "traces": traces,
    "whatif": whatif,
}


def world() -> dict[str, Any]:
    """The names and their values."""
    clock = clocks.constant([1.0, 2.0, 3.0])
    folder = Path(tempfile.mkdtemp(prefix="asyncjax-inputs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {
        **ROOMS,
        "study": study,  # bad inputs alone: its doors hand most of them on
        "checks": checks,
        "jax": jax,
        "jnp": jnp,
        "np": np,
        "optax": optax,
        "nan": float("nan"),
        "inf": float("inf"),
        "key": jax.random.key(0),
        "a_function": lambda *args: None,
        "clock": clock,
        "trace": traces.asynchronous(clock, n_updates=6),
        "problem": problems.quadratic(np.ones((3, 2)), np.ones((3, 2))),
        "optimizer": optax.sgd(0.1),
        "folder": folder,
    }
