"""Random draws for traces: on the CPU, in float64, whatever the caller's precision and accelerator.

A trace is decided by comparing times, so its draws must not depend on where or in which precision the model is trained.
`on_host` opens that setting and carries the caller's key into it; `duration_streams` turns a clock into one endless
iterator of durations per worker, drawn in blocks.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.clocks import Clock

_BLOCK = 64  # jobs of one lane
_FEW, _MANY = 16, 256  # lanes of one call: two compiled shapes a clock


@contextlib.contextmanager
def on_host(key: jax.Array | None) -> Iterator[jax.Array]:
    """Float64 draws on the CPU; yields the key as a typed key there."""
    with contextlib.ExitStack() as stack:
        data = None if key is None else np.asarray(jax.random.key_data(key))
        stack.enter_context(jax.enable_x64(True))
        with contextlib.suppress(
            RuntimeError
        ):  # no CPU backend beside the accelerator's: draw there
            stack.enter_context(jax.default_device(jax.local_devices(backend="cpu")[0]))
        if key is None or data is None:
            yield jax.random.key(0)
        else:
            yield jax.random.wrap_key_data(jnp.asarray(data), impl=jax.random.key_impl(key))


def check_key(key: Any, needed_by: str | None) -> None:
    """Refuses a missing key where something is random, and anything that is not one typed key.

    Raises:
        ValueError: ``key`` is None although ``needed_by`` names something random.
        TypeError: ``key`` is not a scalar typed key, or is a tracer.
    """
    if key is None:
        if needed_by is not None:
            raise ValueError(
                f"key must be given: {needed_by} is random; pass key=jax.random.key(seed)"
            )
        return
    if isinstance(key, Tracer):
        raise TypeError(
            "key must be a concrete key: a trace is made on the host, outside jit and vmap"
        )
    is_typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not is_typed or key.shape != ():
        raise TypeError(f"key must be one typed key, as jax.random.key(seed) makes it, got {key!r}")


@jax.jit
def _lanes(
    clock: Clock, key: jax.Array, worker: jax.Array, first: jax.Array, load: float
) -> jax.Array:
    """Durations of jobs first..first+63 of each lane's worker, float64[lanes, 64]."""
    return jax.vmap(lambda i, j: clock.job_times(key, i, j, _BLOCK, load).total)(worker, first)


class DurationBlocks:
    """Durations of any jobs of any workers, drawn in blocks of 64 consecutive jobs.

    The duration of job j of worker i depends on (key, i, j) alone, so the blocking never shows.
    """

    def __init__(self, clock: Clock, key: jax.Array | None, load: float = 1.0) -> None:
        self._clock, self._key, self._load = clock, key, load

    def draw(self, worker: np.ndarray, block: np.ndarray) -> np.ndarray:
        """Blocks number ``block[l]`` of workers ``worker[l]``.

        Args:
            worker: int[l].
            block: int[l], job numbers divided by 64.

        Returns:
            float64[l, 64], time units.

        Raises:
            ValueError: A duration is not positive and finite.
        """
        width = _FEW if len(worker) <= 4 * _FEW else _MANY
        pieces = []
        with on_host(self._key) as key:
            for at in range(0, len(worker), width):
                lane = np.minimum(np.arange(at, at + width), len(worker) - 1)
                first = (block[lane] * _BLOCK).astype(np.int32)
                drawn = _lanes(self._clock, key, worker[lane].astype(np.int32), first, self._load)
                pieces.append(np.asarray(drawn)[: len(worker) - at])
        durations = np.concatenate(pieces).astype(np.float64)
        bad = np.argwhere(~((durations > 0.0) & np.isfinite(durations)))
        if len(bad):
            lane, job = bad[0]
            raise ValueError(
                f"clock gives worker {worker[lane]} a duration of {durations[lane, job]} for its job"
                f" {block[lane] * _BLOCK + job}; durations must be positive and finite"
            )
        return durations


def duration_streams(
    blocks: DurationBlocks, n_workers: int, jobs_expected: float
) -> list[Iterator[float]]:
    """One endless iterator of durations per worker.

    Args:
        blocks: Where durations come from.
        n_workers: Number of workers n.
        jobs_expected: Jobs that a worker is likely to do, at least; the first draw covers so many, within limits.

    Returns:
        n iterators over Python floats, time units.
    """
    first = int(np.clip(jobs_expected // _BLOCK, 1, 16))
    lanes = np.repeat(np.arange(n_workers), first), np.tile(np.arange(first), n_workers)
    begun = blocks.draw(*lanes).reshape(n_workers, -1)

    def stream(worker: int) -> Iterator[float]:
        yield from begun[worker].tolist()
        block, count = first, _FEW
        while True:
            numbers = np.arange(block, block + count)
            yield from blocks.draw(np.full(count, worker), numbers).ravel().tolist()
            block, count = block + count, (_FEW if block < 4 * _FEW else _MANY)

    return [stream(worker) for worker in range(n_workers)]
