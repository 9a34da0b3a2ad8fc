"""Memory of a replay, stated before it runs, and the memory that a device says is free."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.simulation.program import Sizes


class Memory(NamedTuple):
    """Bytes that a replay keeps on the device while it runs, one run of it.

    The lanes' models and gradients are the working set of a wave, or of one event; what the
    gradient itself needs, its activations, comes on top.
    """

    versions: int  # models still to be read
    directions: int  # unfinished directions, or gradients that wait for an update
    recorded: int  # models to be evaluated at the end
    lanes: int  # models, gradients and workers' states of one wave, or event
    workers: int = 0  # states that the workers keep from job to job

    @property
    def total(self) -> int:
        """Sum of all parts, bytes."""
        return sum(self)


def memory(
    params: Any, sizes: Sizes, *, one_by_one: bool = False, worker_state: Any = None
) -> Memory:
    """States the memory of a replay.

    Args:
        params: The model, a pytree of arrays.
        sizes: Sizes of the program.
        one_by_one: One event at a time: one gradient, and one direction that grows, or as many as
            unfinished blends have rows.
        worker_state: What a worker keeps from job to job, a pytree of arrays or their shapes; None:
            nothing.

    Returns:
        Bytes by purpose. A compiler may need less: for a TPU it was seen to keep versions in
        bfloat16 where nothing but products reads them.

    Example:
        >>> sizes = Sizes(10, 4, 9, 3, 8, 5, 1, True, 0, False)
        >>> memory(np.zeros(100, np.float32), sizes)
        Memory(versions=1600, directions=3600, recorded=2400, lanes=3200, workers=0)
        >>> memory(np.zeros(100, np.float32), sizes, one_by_one=True)
        Memory(versions=1600, directions=400, recorded=2400, lanes=800, workers=0)
    """
    leaves = jax.tree.leaves(params)
    count = sum(int(np.size(leaf)) for leaf in leaves)
    model = count * jnp.result_type(*leaves).itemsize if leaves else 0
    directions = 1 if one_by_one and not sizes.runs else sizes.directions + 1
    states = jax.tree.leaves(worker_state)
    carried = sum(int(np.size(leaf)) * jnp.result_type(leaf).itemsize for leaf in states)
    if sizes.collected:
        directions = sizes.collected + (0 if one_by_one else directions)
    return Memory(
        versions=(sizes.slots + 1) * model,
        directions=directions * model,
        recorded=(sizes.records + 1) * model,
        lanes=2 * (1 if one_by_one else sizes.width) * (model + carried),
        workers=(sizes.workers + 1) * carried,
    )


def check_memory(stated: Memory, runs: int, limit: float | None, given: Any = None) -> None:
    """Refuses a replay that would exceed a limit.

    `limit` None is the default, the memory that is free where the arrays of `given` lie, if that
    can be known; with `given` None too there is no limit.

    Example:
        >>> stated = Memory(versions=1600, directions=400, recorded=2400, lanes=800)
        >>> check_memory(stated, 1, np.inf), check_memory(stated, 1, None, np.zeros(3))
        (None, None)
    """
    least, default = limit, ""
    if limit is None:
        least = None if given is None else free_for(given)
        default = (
            "; the limit is the default, what the device says is free: memory_limit=math.inf lifts"
            " it, a number of bytes sets another"
        )
    if least is None or stated.total * runs <= least:
        return
    named = stated._asdict().items()
    there = [(name, value) for name, value in named if value or name != "workers"]
    parts = ", ".join(f"{name} {_bytes(value * runs)}" for name, value in there)
    raise MemoryError(
        f"memory_limit is {_bytes(least)} but {runs} run(s) keep {_bytes(stated.total * runs)} on"
        f" the device ({parts});"
        " record less often (record_every), use narrower waves (width), or run fewer at once"
        f"{default}"
    )


def free_for(given: Any) -> int | None:
    """Bytes that are free on the device of a tree's arrays.

    None where that is unknown: arrays are traced or abstract, they lie on several devices, or the
    device does not say. Arrays of NumPy go to JAX's default device.

    Example:
        >>> jax.eval_shape(lambda x: [free_for(x) is None, x][1], np.zeros(3)).shape
        (3,)
    """
    leaves = [jnp.zeros(()), *jax.tree.leaves(given)]  # inside compiled code the first is traced
    if any(isinstance(leaf, Tracer | jax.ShapeDtypeStruct) for leaf in leaves):
        return None
    placed = [leaf.devices() for leaf in leaves[1:] if isinstance(leaf, jax.Array)]
    devices = set().union(*placed) or leaves[0].devices()
    return free_memory(*devices) if len(devices) == 1 else None


def free_memory(device: Any) -> int | None:
    """Bytes that are free on a device, None if it does not say.

    An accelerator's limit less what is in use; for a CPU `MemAvailable` of Linux, which may be more
    than a container is allowed.

    Example:
        >>> free_memory(jax.devices("cpu")[0]) != 0
        True
    """
    if device.platform == "cpu":
        return _available(Path("/proc/meminfo"))
    try:
        told = device.memory_stats() or {}
    except RuntimeError:  # a backend that keeps no account
        return None
    if not {"bytes_limit", "bytes_in_use"} <= told.keys():
        return None
    return max(told["bytes_limit"] - told["bytes_in_use"], 0)


def _available(path: Path) -> int | None:
    """Bytes after `MemAvailable`, given in kB; None without such a file or line."""
    try:
        lines = re.findall(r"^MemAvailable:\s+(\d+)\s+kB$", path.read_text("ascii"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return None
    return 1024 * int(lines[0]) if len(lines) == 1 else None


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
