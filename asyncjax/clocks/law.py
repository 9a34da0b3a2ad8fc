"""Laws: how one duration is distributed, as a bundle of pure functions of parameters.

A parameter is a number or one number a worker. What the caller gives as numbers or NumPy arrays is
kept as NumPy float64, so that a simulation on the host loses nothing; jax narrows it when the clock
enters compiled code without double precision. JAX arrays are passed on, traced ones unchecked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from asyncjax.clocks.rng import COMMON_STREAM

Parameter = Array | np.ndarray
Parameters = dict[str, Parameter]  # [n, ...], by name
Row = dict[str, Array]  # those of one worker


@dataclass(frozen=True)
class Law:
    """The distribution of one duration: a bundle of pure functions, made once at module level.

    Hashable and equal by value, so that a compiled function serves every clock of its law.

    Attributes:
        name: Name of the law.
        draw: `(parameters of one worker, worker_key, first, count) -> float[count]`, the times of
            jobs `first .. first + count - 1`; `first` may be traced, `count` is static, and the
            time of a job must not depend on where the block begins or ends.
        mean: `parameters -> float[n]`, long-run mean of one duration.
        variance: `parameters -> float[n]`, long-run variance of one duration, inf where infinite.
        is_random: False if `draw` needs no key.
        least: `parameters -> float[n]`, no duration is shorter; None: nothing is known.
        is_common: Whether all workers draw with one key, and so with the same random numbers.
    """

    name: str
    draw: Callable[[Row, Array | None, Array, int], Array]
    mean: Callable[[Parameters], Parameter]
    variance: Callable[[Parameters], Parameter]
    is_random: bool = True
    least: Callable[[Parameters], Parameter] | None = None
    is_common: bool = False

    @property
    def is_own(self) -> bool:
        """Whether the law comes from outside this library."""
        return not str(getattr(self.draw, "__module__", "")).startswith("asyncjax.")


def draw_jobs(
    law: Law, row: Parameters, key: Array | None, worker: ArrayLike, first: Array, count: int
) -> Array:
    """Draws the times of jobs of one worker, refused if they are not one time a job."""
    worker_key = None
    if law.is_random and key is not None:
        worker_key = jax.random.fold_in(key, COMMON_STREAM if law.is_common else worker)
    drawn = jnp.asarray(law.draw(jax.tree.map(jnp.asarray, row), worker_key, first, count))
    if drawn.shape != (count,) or not jnp.issubdtype(drawn.dtype, jnp.floating):
        raise ValueError(
            f"draw of the law {law.name!r} must give float[{count}], a time a job, got"
            f" {drawn.dtype}[{', '.join(map(str, drawn.shape))}]"
        )
    return drawn


def as_floats(value: Any) -> Parameter:
    """Turns numbers, checked before, into a floating point array."""
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value)):
        array = jnp.asarray(value)
        return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)
    return np.array(value, dtype=np.float64)


def check_order(**pair: Parameter) -> None:
    """Refuses the first worker whose second parameter is not larger; traced ones pass."""
    (low, first), (high, last) = pair.items()
    if isinstance(first, Tracer) or isinstance(last, Tracer):
        return
    allowed = np.asarray(last) > np.asarray(first)
    if not allowed.all():
        worker = int(np.argmin(allowed))
        raise ValueError(
            f"{high} must be larger than {low}, got {last[worker]} for {low} {first[worker]} at"
            f" index {worker}"
        )


def align(**parameters: Any) -> dict[str, Parameter]:
    """Broadcasts numbers, or one a worker, to one value a worker each."""
    rows = {name: as_floats(value) for name, value in parameters.items()}
    for name, value in rows.items():
        if value.ndim > 1 or value.size == 0:
            raise ValueError(
                f"{name} must be a number or one number a worker, got an array of shape"
                f" {value.shape}"
            )
    lengths = {name: value.size for name, value in rows.items()}
    n_workers = max(lengths.values())
    if any(length not in (1, n_workers) for length in lengths.values()):
        given = " and ".join(f"{name} with {length}" for name, length in lengths.items())
        raise ValueError(f"parameters must agree on the number of workers, got {given} values")
    return {name: spread(value.reshape(-1), n_workers) for name, value in rows.items()}


def spread(value: Parameter, n_workers: int) -> Parameter:
    """Repeats the one row of `value` for every worker."""
    return namespace(value).broadcast_to(value, (n_workers, *value.shape[1:]))


def parameter(name: str) -> Callable[[Parameters], Parameter]:
    """The function that returns the parameter of this name, for a moment that is one."""
    return lambda parameters: parameters[name]


def namespace(*arrays: Parameter) -> ModuleType:
    """Module to compute moments in: `jax.numpy` if any array is a JAX array, else `numpy`."""
    return jnp if any(isinstance(array, jax.Array) for array in arrays) else np


def unshared(tree: Any) -> Any:
    """Copies the NumPy arrays of a tree, to be used in another precision than before.

    JAX remembers, by identity, what it made of an array that a compiled function closed over.
    """
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)
