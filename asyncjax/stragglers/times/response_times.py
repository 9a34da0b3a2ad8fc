"""Response times: a part that does not depend on the load, and a part that does.

    T_i(load) = C_i + S_i(load)

`C` is communication and `S` computation, as Egger, Kas Hanna and Bitar (2023) separate them; `S`
grows with the load in one of the three ways of `response`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from asyncjax.checks import whole, within
from asyncjax.clocks.clock import Clock, Times
from asyncjax.clocks.law import Parameter
from asyncjax.clocks.rng import DOWNLOAD_STREAM, check_key, job_keys, unit_gamma

SAMPLE_STREAM = 0x73616D70  # "samp" in ASCII: tag of the times of single samples
SCALINGS = ("scale", "additive", "shift")
SUMMABLE = ("constant", "exponential", "shifted_exponential", "gamma")  # sums stay in the law


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Response:
    """How long every worker takes for an update, as a function of its load; itself a clock.

    A pytree whose leaves are the parameters of the two clocks.

    Attributes:
        compute: Clock of one unit of load, of 1 or `n` workers, None for no time.
        communicate: Clock of the part that ignores the load, of 1 or `n` workers, None for no time.
        scaling: How the compute time grows with the load (static).
        n_workers: Number of workers `n` (static).

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.constant([1.0, 2.0]), communicate=clocks.constant(0.5), n_workers=2
        ... )
        >>> times.durations(None, 1, load=3.0).tolist()
        [[3.5], [6.5]]
    """

    compute: Clock | None
    communicate: Clock | None
    scaling: str = field(metadata={"static": True})
    n_workers: int = field(metadata={"static": True})

    @property
    def parts(self) -> tuple[Clock, ...]:
        """The clocks that are there."""
        return tuple(part for part in (self.compute, self.communicate) if part is not None)

    @property
    def is_random(self) -> bool:
        """Whether anything is drawn; if not, the key may be None."""
        return any(part.is_random for part in self.parts)

    @property
    def is_plain(self) -> bool:
        """Whether every job returns and takes its drawn time whenever it starts: always."""
        return True

    @property
    def mean(self) -> Parameter:
        """Mean duration at load 1, float[n], time units."""
        return sum((part.broadcast(self.n_workers).mean for part in self.parts), np.zeros(()))

    @property
    def variance(self) -> Parameter:
        """Variance of the duration at load 1, float[n], inf where infinite."""
        return sum((part.broadcast(self.n_workers).variance for part in self.parts), np.zeros(()))

    def times(
        self, key: Array | None, n_jobs: int, *, first: ArrayLike = 0, load: ArrayLike = 1.0
    ) -> Times:
        """Draws times float[n, n_jobs] of a block of updates; communication is `download`.

        The draws of update `j` at worker `i` are a function of `(key, i, j)` alone and the load
        only transforms them, so that loads compared under one key face the same workers.

        Args:
            key: Random key; None is allowed if nothing is random.
            n_jobs: How many updates (static).
            first: Number of the first update, may be traced.
            load: Units of load, positive; broadcasts to `[n, n_jobs]`, may be traced.
        """
        within("load", load, above=0)
        if not isinstance(first, Tracer):
            whole("first", first, 0, 2**31 - 1)
        if self.is_random:
            check_key(key)
        count = check_size("n_jobs", n_jobs, self.n_workers)
        return _draw(self, key if self.is_random else None, first, jnp.asarray(load), count)

    def durations(
        self, key: Array | None, n_jobs: int, *, first: ArrayLike = 0, load: ArrayLike = 1.0
    ) -> Array:
        """Draws the durations of a block of updates, float[n, n_jobs], as `times` does."""
        return self.times(key, n_jobs, first=first, load=load).total


def check_size(name: str, value: Any, n_workers: int) -> int:
    """Reads a number of times a worker; refuses more times than can be counted."""
    count = whole(name, value)
    if n_workers * count >= 2**31:
        raise ValueError(
            f"{name} must make fewer than 2**31 times of {n_workers} workers, got {count}"
        )
    return count


@partial(jax.jit, static_argnames=("n_jobs",))
def _draw(times: Response, key: Array | None, first: ArrayLike, load: Array, n_jobs: int) -> Times:
    """Draws both parts; the communication uses the stream of a clock's download."""
    n, index = times.n_workers, jnp.asarray(first, jnp.int32)
    loads = jnp.broadcast_to(load, (n, n_jobs))
    apart = compute = jnp.zeros((n, n_jobs), jnp.result_type(float))
    if times.communicate is not None:
        link_key = None if key is None else jax.random.fold_in(key, DOWNLOAD_STREAM)
        apart = times.communicate.broadcast(n).durations(link_key, n_jobs, first=index)
    if times.compute is not None:
        compute = _compute_times(times.compute.broadcast(n), times.scaling, key, index, loads)
    return Times(apart, compute, jnp.zeros_like(apart))


def _compute_times(
    clock: Clock, scaling: str, key: Array | None, first: Array, loads: Array
) -> Array:
    """Draws `S(load)`, float[n, n_jobs]."""
    n, n_jobs = loads.shape
    if scaling == "scale":
        return clock.durations(key, n_jobs, first=first, load=loads)
    if scaling == "shift" or clock.law.name == "constant":
        return clock.durations(key, n_jobs, first=first) + (loads - 1) * shift_of(clock)[:, None]
    row = {name: jnp.asarray(value)[:, None] for name, value in clock.parameters.items()}
    shape = row.get("shape", jnp.ones_like(row["mean"]))
    assert key is not None  # only random laws get here

    def draw_worker(worker: Array, shapes: Array) -> Array:
        keys = job_keys(jax.random.fold_in(key, worker), first, n_jobs)
        return jax.vmap(unit_gamma)(keys, shapes)

    shapes = jnp.broadcast_to(shape * loads, loads.shape)
    units = jax.vmap(draw_worker)(jnp.arange(n, dtype=jnp.int32), shapes)
    return loads * shift_of(clock)[:, None] + row["mean"] / shape * units


def sample_times(
    times: Response | Clock, key: Array | None, update: Array | int, max_load: int
) -> tuple[Array, Array]:
    """Draws when every worker has done its first, second, ... sample of one update.

    Returns the communication float[n] and `S(1), ..., S(max_load)`, float[n, max_load]: multiples
    of one draw under "scale", a shift more each under "shift", sums of draws under "additive".
    """
    drawn = times.times(key, 1, first=update)
    apart, single = (drawn.download + drawn.upload)[:, 0], drawn.compute
    more = jnp.arange(max_load, dtype=single.dtype)
    if isinstance(times, Clock) or times.scaling == "scale" or times.compute is None:
        return apart, single * (1 + more)
    clock = times.compute.broadcast(times.n_workers)
    if times.scaling == "shift" or not clock.is_random:
        return apart, single + more * shift_of(clock)[:, None]
    assert key is not None  # checked by the draw above
    stream = jax.random.fold_in(jax.random.fold_in(key, SAMPLE_STREAM), update)
    return apart, jnp.cumsum(clock.durations(stream, max_load), axis=1)


def shift_of(clock: Clock) -> Array:
    """The smallest time, which the load multiplies in every scaling, float[n]."""
    name = {"constant": "compute", "shifted_exponential": "shift"}.get(clock.law.name)
    return jnp.asarray(clock.parameters[name] if name else jnp.zeros_like(jnp.asarray(clock.mean)))


def check_plain(times: Response | Clock) -> None:
    """Refuses clocks that lose jobs or change their power."""
    if not times.is_plain:
        raise ValueError("times must be without losses and powers, got a clock that has some")


def response(
    *,
    compute: Clock | None = None,
    communicate: Clock | None = None,
    scaling: str = "scale",
    n_workers: int,
) -> Response:
    """Returns response times, which loops take as a clock, of computing and communicating.

    Formula: `T_i(load) = C_i + S_i(load)`. With `X = shift + Y` the time of one unit of load, `S`
    is `load * X` under "scale" (a worker that is slow is so for the whole update), the sum of
    `load` independent `X` under "additive" (noise of its own for every unit), and
    `load * shift + Y` under "shift" (only the smallest time grows).

    Args:
        compute: Clock of one unit of load (one sample, wherever an error bound is used), None for
            no time.
        communicate: Clock of the part that ignores the load, None for no time.
        scaling: "scale", "additive" or "shift". Only constant and shifted exponential have a shift.
        n_workers: Number of workers `n`; one-worker clocks stand for each of them.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.25), communicate=clocks.exponential(1.0), n_workers=3
        ... )
        >>> times.mean.tolist()
        [1.25, 1.25, 1.25]
    """
    n_workers = whole("n_workers", n_workers)
    if compute is None and communicate is None:
        raise ValueError("compute or communicate must be a clock, got None for both")
    if scaling not in SCALINGS:
        raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}, got {scaling!r}")
    for name, part in (("compute", compute), ("communicate", communicate)):
        if part is None:
            continue
        if part.download is not None or part.upload is not None or not part.is_plain:
            raise ValueError(
                f"{name} must be a clock without links, losses and powers, got one of law "
                f"{part.law.name} that has some"
            )
        part.broadcast(n_workers)  # refuses another number of workers
        if part.phases and scaling != "scale":
            raise ValueError(
                f"{name} must be a clock without phases for scaling {scaling!r}, got one with"
                f" {len(part.phases)}; 'scale' takes it"
            )
    if scaling == "additive" and compute is not None and compute.law.name not in SUMMABLE:
        raise ValueError(
            f"compute must be a clock whose sums are known ({', '.join(SUMMABLE)}) for scaling "
            f"'additive', got {compute.law.name}"
        )
    return Response(_narrowed(compute), _narrowed(communicate), scaling, n_workers)


def _narrowed(clock: Clock | None) -> Clock | None:
    """Keeps one row where all rows are known to be equal: the workers are then identical."""
    if clock is None or clock.n_workers == 1 or clock.phases:
        return clock
    values = clock.parameters.values()
    if not all(isinstance(value, np.ndarray) and (value == value[:1]).all() for value in values):
        return clock
    return Clock({name: value[:1] for name, value in clock.parameters.items()}, clock.law)
