"""Random draws for traces: on the CPU, in float64, whatever the caller's precision and accelerator.

A trace is decided by comparing times, so its draws must not depend on where or in which precision
the model is trained. `on_host` opens that setting and carries the caller's key into it; `finishes`
turns a clock into one function per worker that says when its next job is done, durations being
drawn in blocks.
"""

from __future__ import annotations

import contextlib
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import length_hint
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from asyncjax.checks import one_key, whole
from asyncjax.clocks import Clock
from asyncjax.clocks.clock import Times
from asyncjax.clocks.law import unshared
from asyncjax.clocks.timeline import timelines
from asyncjax.clocks.validate import (
    check_given,
    check_lengths,
    has_own_laws,
    is_doubtful,
    try_laws,
)

Finish = Callable[[float], float]
Load = float | np.ndarray


class Finishes(Protocol):
    """One `Finish` a worker."""

    def __len__(self) -> int: ...
    def __getitem__(self, worker: int, /) -> Finish: ...
    def __iter__(self) -> Iterator[Finish]: ...


_BLOCK = 64  # jobs of one lane
_SMALL_BLOCK = 8  # where workers are so many that most do a few jobs
_MANY_WORKERS = 65_536
_MOST_UPDATES = 2**31 - 1
_LEAST_WORK = float(np.finfo(np.float64).tiny)
_FEW, _MANY = 16, 256  # lanes of one call: two compiled shapes a clock
_SMALL_LANES = 8_192  # of small blocks: one more


@contextlib.contextmanager
def on_host(key: jax.Array | None) -> Iterator[jax.Array]:
    """Float64 draws on the CPU; yields the key as a typed key there."""
    with contextlib.ExitStack() as stack:
        data = None if key is None else np.asarray(jax.random.key_data(key))
        stack.enter_context(jax.enable_x64(True))
        with contextlib.suppress(RuntimeError):  # no CPU backend beside the accelerator's
            stack.enter_context(jax.default_device(jax.local_devices(backend="cpu")[0]))
        if key is None or data is None:
            yield jax.random.key(0)
        else:
            yield jax.random.wrap_key_data(jnp.asarray(data), impl=jax.random.key_impl(key))


def check_key(key: Any, needed_by: str | None) -> None:
    """Refuses a missing key where something is random, and anything that is not one typed key."""
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
    one_key("key", key)


def count_of_updates(n_updates: Any) -> int:
    """Reads the number of updates of a trace, whose versions are int32."""
    count = whole("n_updates", n_updates)
    return count if count <= _MOST_UPDATES else whole("n_updates", count, 1, _MOST_UPDATES)


@partial(jax.jit, static_argnames=("count",))
def _lanes(
    clock: Clock, key: jax.Array, worker: jax.Array, first: jax.Array, load: Any, count: int
) -> jax.Array:
    """Durations of `count` jobs from `first` on of each lane's worker, float64[lanes, count]."""
    return _of_lanes(clock, key, worker, first, load, count).total


@partial(jax.jit, static_argnames=("count",))
def _part_lanes(
    clock: Clock, key: jax.Array, worker: jax.Array, first: jax.Array, load: Any, count: int
) -> Times:
    """The parts of the same durations."""
    return _of_lanes(clock, key, worker, first, load, count)


def _of_lanes(
    clock: Clock, key: jax.Array, worker: jax.Array, first: jax.Array, load: Any, count: int
) -> Times:
    """Times of `count` jobs of each lane's worker; `load` one number, or float[lanes]."""

    def of_lane(worker: jax.Array, first: jax.Array, load: Any) -> Times:
        return clock.job_times(key, worker, first, count, load)

    return jax.vmap(of_lane, in_axes=(0, 0, 0 if np.ndim(load) else None))(worker, first, load)


class DurationBlocks:
    """Durations of any jobs of any workers, drawn in blocks of consecutive jobs.

    The duration of job j of worker i depends on (key, i, j) alone, so the blocking never shows. The
    load is one number or one a worker, float64[n].

    Attributes:
        size: Jobs of a block: 64, or 8 of very many workers, most of whom do a few jobs. Laws from
            outside this library are always asked for 64, in case they round by the block.
    """

    def __init__(self, clock: Clock, key: jax.Array | None, load: Load = 1.0) -> None:
        self.clock, self.key, self._load = unshared(clock), key, load
        self._links = clock.download is not None or clock.upload is not None
        self._own = has_own_laws(clock)
        many = clock.n_workers >= _MANY_WORKERS and not self._own
        self.size = _SMALL_BLOCK if many else _BLOCK
        if self._own:
            with on_host(key) as host_key:
                try_laws(self.clock, host_key)

    def draw(
        self, worker: np.ndarray, block: np.ndarray, told: Callable[[float], None] | None = None
    ) -> np.ndarray:
        """Blocks number `block[l]` of workers `worker[l]`; `told` hears of the share drawn.

        `worker` int[l]; `block` int[l]; returns float64[l, size], time units; inf for a job that
        never returns, if the clock may lose jobs.
        """
        durations = self._drawn(_lanes, worker, block, told)
        self._check(durations, worker, block)
        return durations

    def _load_of(self, worker: np.ndarray) -> Load:
        """The load of each lane, or of all."""
        return self._load[worker] if isinstance(self._load, np.ndarray) else self._load

    def draw_parts(self, worker: np.ndarray, block: np.ndarray) -> np.ndarray:
        """As `draw`, the parts apart: float64[l, size, 3], download, compute and upload."""
        parts = self._drawn(_part_lanes, worker, block)
        self._check(parts.sum(axis=-1), worker, block)
        return parts

    def _drawn(
        self,
        draw: Callable[..., Any],
        worker: np.ndarray,
        block: np.ndarray,
        told: Callable[[float], None] | None = None,
    ) -> np.ndarray:
        width = _FEW if len(worker) <= 4 * _FEW else _MANY
        if self.size == _SMALL_BLOCK:
            width = _SMALL_LANES
        pieces = []
        with on_host(self.key) as key:
            for at in range(0, len(worker), width):
                lane = np.minimum(np.arange(at, at + width), len(worker) - 1)
                first = (block[lane] * self.size).astype(np.int32)
                lanes = worker[lane].astype(np.int32), first
                drawn = draw(self.clock, key, *lanes, self._load_of(worker[lane]), count=self.size)
                columns = np.stack([np.asarray(part) for part in jax.tree.leaves(drawn)], axis=-1)
                pieces.append(columns[: len(worker) - at])
                if told is not None:
                    told((at + width) / len(worker))
        drawn = np.concatenate(pieces).astype(np.float64, copy=False)
        return drawn[..., 0] if drawn.shape[-1] == 1 else drawn

    def _check(self, durations: np.ndarray, worker: np.ndarray, block: np.ndarray) -> None:
        doubtful = is_doubtful(durations, float(np.max(self._load)))
        if self.clock.loss is not None:
            doubtful &= ~np.isinf(durations)
        if doubtful.any() or (self._own and self._links):  # a link hides what its worker lacks
            lanes = np.flatnonzero(doubtful.any(axis=1) | (self._own and self._links))
            lanes = lanes[np.lexsort((block[lanes], worker[lanes]))]  # the first worker is told of
            with on_host(self.key) as key:
                check_given(self.clock, key, worker[lanes], block[lanes] * self.size, self.size)
            self._check_sums(durations[lanes], worker[lanes], block[lanes])

    def _check_sums(self, durations: np.ndarray, worker: np.ndarray, block: np.ndarray) -> None:
        """Refuses durations that became infinite by their load, or by adding up."""
        fine = np.isfinite(durations) | (self.clock.loss is not None)
        bad = np.argwhere(~((durations > 0.0) & fine))
        if len(bad):
            lane, job = bad[0]
            raise ValueError(
                f"clock gives worker {worker[lane]} a duration of {durations[lane, job]} for its"
                f" job {block[lane] * self.size + job}; durations must be positive and finite"
            )


def looking_up(
    blocks: DurationBlocks, timeout: list[float]
) -> Callable[[int, int, int], int | None] | None:
    """A function that finds the next job that is back in time, None if that depends on its start.

    It is called with a worker, a number of a job, and how many jobs to look at.
    """
    if blocks.clock.powers:
        return None

    def look_up(worker: int, job: int, count: int) -> int | None:
        numbers = np.arange(job // blocks.size, (job + count - 1) // blocks.size + 1)
        durations = blocks.draw(np.full(len(numbers), worker), numbers).ravel()
        back = np.flatnonzero(durations[job % blocks.size :][:count] <= timeout[worker])
        return job + int(back[0]) if len(back) else None

    return look_up


def finishes(
    blocks: DurationBlocks, jobs_expected: float
) -> tuple[Finishes, Callable[[int, float], bool]]:
    """Per worker, when its next job is done; and whether a worker has no power from a time on."""
    clock = blocks.clock
    if not clock.powers and blocks.size == _SMALL_BLOCK:
        return _ManyFinishes(blocks), lambda worker, now: False
    if not clock.powers:
        streams = _streams(blocks.draw, clock.n_workers, jobs_expected)
        plain = [lambda now, draw=stream.__next__: now + draw() for stream in streams]
        return plain, lambda worker, now: False
    streams = _streams(blocks.draw_parts, clock.n_workers, jobs_expected)
    with on_host(blocks.key) as key:
        lines = timelines(clock, key, draw=_draw_on_host)

    def finish_of(worker: int) -> Finish:
        parts, line = streams[worker], lines[worker]

        def finish(now: float) -> float:
            download, compute, upload = next(parts)
            return line.finish(now + download, compute) + upload

        return finish

    def has_left(worker: int, now: float) -> bool:
        return lines[worker].finish(now, _LEAST_WORK) == np.inf

    return [finish_of(worker) for worker in range(clock.n_workers)], has_left


class _ManyFinishes:
    """When the next jobs of very many workers are done: two columns, and nothing else a worker.

    Whoever has used up a block draws along with all who soon will.
    """

    def __init__(self, blocks: DurationBlocks) -> None:
        self.blocks, n = blocks, blocks.clock.n_workers
        self.taken = array("i", bytes(4 * n))  # jobs that have begun
        self.next_block, size = np.zeros(n, np.int64), blocks.size
        self.held = array("d", bytes(16 * n * size))  # two blocks of each worker in turn
        self._refill(np.arange(n))

    def __len__(self) -> int:
        return len(self.taken)

    def __getitem__(self, worker: int) -> Finish:
        return partial(self._finish, worker)

    def __iter__(self) -> Iterator[Finish]:
        return map(self.__getitem__, range(len(self)))

    def _finish(self, worker: int, now: float) -> float:
        job, size = self.taken[worker], self.blocks.size
        if job == self.next_block[worker] * size:
            taken = np.frombuffer(self.taken, np.int32)
            self._refill(np.flatnonzero(taken > self.next_block * size - size // 2))
        self.taken[worker] = job + 1
        return now + self.held[2 * size * worker + job % (2 * size)]

    def _refill(self, workers: np.ndarray) -> None:
        """Draws the next block of some workers, of each of whom one at most is not used up."""
        size = self.blocks.size
        held = np.frombuffer(self.held, np.float64).reshape(-1, 2, size)
        held[workers, self.next_block[workers] % 2] = self.blocks.draw(
            workers, self.next_block[workers]
        )
        self.next_block[workers] += 1


def _draw_on_host(
    clock: Clock, key: jax.Array | None, worker: int, first: int, count: int
) -> np.ndarray:
    with on_host(key) as host_key:
        times = clock.job_times(host_key, np.int32(worker), np.int32(first), count)
        return check_lengths(clock, host_key, worker, first, np.asarray(times.total, np.float64))


def _streams(
    draw: Callable[[np.ndarray, np.ndarray], np.ndarray], n_workers: int, jobs_expected: float
) -> list[Iterator[Any]]:
    """One endless iterator per worker over what `draw` gives for each of its jobs, as floats.

    A worker that runs out draws along with all others that soon will, since a call costs about the
    same for one as for many.
    """
    first = int(np.clip(jobs_expected // _BLOCK, 1, 16))
    queued: list[deque[list[Any]]] = [deque() for _ in range(n_workers)]
    current: list[Iterator[Any]] = [iter(()) for _ in range(n_workers)]
    drawn = [0] * n_workers  # blocks

    def refill(workers: list[int], count: int) -> None:
        lanes = np.repeat(workers, count)
        numbers = np.concatenate([drawn[worker] + np.arange(count) for worker in workers])
        blocks = draw(lanes, numbers)
        for worker, own in zip(
            workers, blocks.reshape(len(workers), count, *blocks.shape[1:]), strict=True
        ):
            queued[worker].extend(own.tolist())
            drawn[worker] += count

    def stream(worker: int) -> Iterator[Any]:
        while True:
            if not queued[worker]:
                low = [
                    other
                    for other in range(n_workers)
                    if not queued[other] and length_hint(current[other]) < _BLOCK // 2
                ]
                lanes = _FEW if drawn[worker] < 4 * _FEW else _MANY
                refill(low, max(1, lanes // len(low)))
            current[worker] = iter(queued[worker].popleft())
            yield from current[worker]

    refill(list(range(n_workers)), first)
    return [stream(worker) for worker in range(n_workers)]
