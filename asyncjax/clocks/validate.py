"""Trials of laws: whether what they answer can be times of jobs.

Draws of a clock are limited to positive, finite numbers, since compiled code cannot refuse any. On
the host, where a trace is made, a law from outside this library is tried once, on a few jobs: a job
must last the same wherever its block begins and ends. And a time at its limit is looked at again,
as the law gave it.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law, Parameters, draw_jobs
from asyncjax.clocks.rng import DOWNLOAD_STREAM, UPLOAD_STREAM

_CLOSE = 1e-4  # blocks may be rounded in other ways
_JOBS = 8
_TRIED: WeakSet[Law] = WeakSet()


def parts_of(clock: Clock, key: Array | None) -> list[tuple[str, Clock, Array | None]]:
    """The clocks that draw parts of a clock's times, with name and stream key of each."""
    parts = [("compute", clock, key)]
    links = (("download", clock.download, DOWNLOAD_STREAM), ("upload", clock.upload, UPLOAD_STREAM))
    for name, link, stream in links:
        if link is not None:
            inner = parts_of(link, None if key is None else jax.random.fold_in(key, stream))
            parts += [(name, part, its_key) for _, part, its_key in inner]
    return parts


def has_own_laws(clock: Clock) -> bool:
    """Whether a law of one of the clock's parts comes from outside this library."""
    return any(part.law.is_own for _, part, _ in parts_of(clock, None))


def try_laws(clock: Clock, key: Array | None) -> None:
    """Draws a few jobs of every law that is new here and comes from outside this library."""
    for _, part, own_key in parts_of(clock, key):
        if part.law.is_own and part.law not in _TRIED:
            _try(part, own_key)
            _TRIED.add(part.law)


def _try(clock: Clock, key: Array | None) -> None:
    row: Parameters = {name: jnp.asarray(value)[0] for name, value in clock.parameters.items()}

    def draw(first: int, count: int) -> np.ndarray:
        return np.asarray(draw_jobs(clock.law, row, key, 0, jnp.int32(first), count), np.float64)

    whole = draw(0, _JOBS)
    for first, count in ((0, 3), (5, 2)):
        block = draw(first, count)
        same = np.isclose(block, whole[first : first + count], rtol=_CLOSE, atol=0, equal_nan=True)
        if not same.all():
            place = int(np.argmin(same))
            raise ValueError(
                f"draw of the law {clock.law.name!r} must give job {first + place} of worker 0 one"
                f" time, whichever block it is in, got {whole[first + place]} among jobs 0 .."
                f" {_JOBS - 1} and {block[place]} among jobs {first} .. {first + count - 1}"
            )


@partial(jax.jit, static_argnames=("count",))
def _as_given(
    clock: Clock, key: Array | None, worker: Array, first: Array, count: int
) -> dict[str, Array]:
    """What the laws of a clock's parts answer for jobs of some workers, without limits."""

    def one(worker: Array, first: Array) -> dict[str, Array]:
        given: dict[str, Array] = {}
        for name, part, own_key in parts_of(clock, key):
            row = jax.tree.map(lambda leaf: jnp.asarray(leaf)[worker], part.parameters)
            drawn = draw_jobs(part.law, row, own_key, worker, first, count)
            given[name] = jnp.minimum(given[name], drawn) if name in given else drawn
        return given

    return jax.vmap(one)(worker, first)


def check_given(clock: Clock, key: Any, worker: np.ndarray, first: np.ndarray, count: int) -> None:
    """Refuses the first time, of blocks from jobs int[l] on, that is not positive and finite."""
    bare = Clock(clock.parameters, clock.law, clock.download, clock.upload)
    given = _as_given(bare, key, worker.astype(np.int32), first.astype(np.int32), count)
    for name, times in given.items():
        times = np.asarray(times, np.float64)
        bad = np.argwhere(~((times > 0.0) & np.isfinite(times)))
        if len(bad):
            lane, job = bad[0]
            part = "a duration" if name == "compute" else f"a time of its {name}"
            raise ValueError(
                f"clock gives worker {worker[lane]} {part} of {times[lane, job]:g} for its job"
                f" {first[lane] + job}; durations must be positive and finite"
            )


def is_doubtful(times: np.ndarray, load: float = 1.0) -> np.ndarray:
    """Whether times are at a limit of what draws give, or NaN; elementwise."""
    limits = np.finfo(np.float64)
    return ~((times > float(limits.tiny) * max(1.0, load)) & (times < float(limits.max)))


def check_lengths(clock: Clock, key: Any, worker: int, first: int, times: np.ndarray) -> np.ndarray:
    """Lengths of pieces, refused like durations; inf is the last where jobs may be lost."""
    if has_own_laws(clock) or (is_doubtful(times) & ~np.isinf(times)).any():
        try_laws(clock, key)
        check_given(clock, key, np.array([worker]), np.array([first]), len(times))
    return times
