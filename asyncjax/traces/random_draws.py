"""Random draws for traces: on the CPU, in float64, whatever the caller's precision and accelerator.

A trace is decided by comparing times, so its draws must not depend on where or in which precision
the model is trained. `on_host` opens that setting and carries the caller's key into it; `finishes`
turns a clock into one function per worker that says when its next job is done, durations being
drawn in blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from itertools import count
from operator import add, length_hint
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import one_key, whole
from asyncjax.clocks import Clock
from asyncjax.clocks.clock import Times
from asyncjax.clocks.law import unshared
from asyncjax.clocks.timeline import Timelines
from asyncjax.clocks.validate import check_given, has_own_laws, is_doubtful, try_laws

Finish = Callable[[float], float]
Load = float | np.ndarray
Drawn = Any  # a duration; or download, compute and upload [..., 3], where links meet powers


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
    one_key("key", key)


def count_of_updates(n_updates: Any) -> int:
    """Reads the number of updates of a trace, whose versions are int32."""
    count = whole("n_updates", n_updates)
    return count if count <= _MOST_UPDATES else whole("n_updates", count, 1, _MOST_UPDATES)


@partial(jax.jit, static_argnames=("count", "apart"))
def _lanes(
    clock: Clock,
    key: jax.Array,
    worker: jax.Array,
    first: jax.Array,
    load: Any,
    count: int,
    apart: bool,
) -> jax.Array | Times:
    """Durations of `count` jobs from `first` on of each lane's worker, float64[lanes, count].

    Or their parts; `load` is one number, or float[lanes].
    """

    def of_lane(worker: jax.Array, first: jax.Array, load: Any) -> Times:
        return clock.job_times(key, worker, first, count, load)

    lanes = jax.vmap(of_lane, in_axes=(0, 0, 0 if np.ndim(load) else None))
    times = lanes(worker, first, load)
    return times if apart else times.total


class DurationBlocks:
    """Durations of any jobs of any workers, drawn in blocks of consecutive jobs.

    The duration of job j of worker i depends on (key, i, j) alone, so the blocking never shows. The
    load is one number or one a worker, float64[n].

    Attributes:
        size: Jobs of a block: 64, or 8 of very many workers, most of whom do a few jobs. Laws from
            outside this library are always asked for 64, in case they round by the block.
    """

    def __init__(
        self, clock: Clock, key: jax.Array | None, load: Load = 1.0, size: int = _BLOCK
    ) -> None:
        self.clock, self.key, self._load = unshared(clock), key, load
        self._drawn = replace(self.clock, powers=())  # draws do not know when a job starts
        self._links = clock.download is not None or clock.upload is not None
        self._own = has_own_laws(clock)
        many = clock.n_workers >= _MANY_WORKERS and not self._own
        self.size = _SMALL_BLOCK if many else size
        self.is_apart = bool(clock.powers) and self._links
        if self._own:
            with on_host(key) as host_key:
                try_laws(self.clock, host_key)

    def draw(
        self,
        worker: np.ndarray,
        block: np.ndarray,
        told: Callable[[float], None] | None = None,
    ) -> np.ndarray:
        """Blocks number `block[l]` of workers `worker[l]`; `told` hears of the share drawn.

        `worker` int[l]; `block` int[l]; returns float64[l, size], time units; inf for a job that
        never returns, if the clock may lose jobs. Where links meet powers, float64[l, size, 3]:
        download, compute and upload.
        """
        apart = self.is_apart
        width, pieces = _FEW if len(worker) <= 4 * _FEW else _MANY, []
        if self.size < _BLOCK and len(worker) > 2 * _MANY:
            width *= 4
        if self.size == _SMALL_BLOCK:
            width = _SMALL_LANES
        with on_host(self.key) as key:
            for at in range(0, len(worker), width):
                lane = np.minimum(np.arange(at, at + width), len(worker) - 1)
                who, first = worker[lane], (block[lane] * self.size).astype(np.int32)
                load = self._load[who] if isinstance(self._load, np.ndarray) else self._load
                who = who.astype(np.int32)
                drawn = _lanes(self._drawn, key, who, first, load, self.size, apart)
                columns = [np.asarray(part)[: len(worker) - at] for part in jax.tree.leaves(drawn)]
                pieces.append(np.stack(columns, axis=-1) if apart else columns[0])
                if told is not None:
                    told((at + width) / len(worker))
        drawn = np.concatenate(pieces).astype(np.float64, copy=False)
        self._check(drawn.sum(axis=-1) if apart else drawn, worker, block)
        return drawn

    def by_job(self) -> Iterator[np.ndarray]:
        """What is drawn of the first, second, ... job of every worker, float64[n] each."""
        for block in count():
            n = self.clock.n_workers
            yield from self.draw(np.arange(n), np.full(n, block)).swapaxes(0, 1)

    @cached_property
    def timelines(self) -> Timelines:
        """The powers of the workers."""

        def draw(
            clock: Clock, key: jax.Array | None, worker: np.ndarray, first: np.ndarray, count: int
        ) -> np.ndarray:
            return DurationBlocks(clock, key, size=count).draw(worker, first // count)

        with on_host(self.key) as key:
            return Timelines(self.clock, key, draw)

    def ends(
        self, start: float | np.ndarray, drawn: np.ndarray, worker: np.ndarray | None = None
    ) -> np.ndarray:
        """When a job each of workers int[l] is done, float64[l]; starts must be finite.

        None: of all workers.
        """
        if not self.clock.powers:
            return start + drawn
        if not self.is_apart:
            return self.timelines.finish(start, drawn, worker)
        download, compute, upload = drawn.T
        return self.timelines.finish(start + download, compute, worker) + upload

    def in_turn(self, worker: int, now: float, drawn: list[Drawn], until: float) -> list[float]:
        """When jobs of a worker are done that follow each other, up to the first after `until`."""
        if not self.is_apart:
            return self.timelines.lines[worker].in_turn(now, drawn, until)
        end, ends = self.end_of(worker), list[float]()
        for parts in drawn:
            now = end(now, parts)
            ends.append(now)
            if now > until:
                break
        return ends

    def work(self, worker: np.ndarray, start: np.ndarray, until: float) -> np.ndarray:
        """What workers int[l] do from `start` float64[l] on, as time at power 1, float64[l]."""
        if not self.clock.powers:
            return until - start
        done = self.timelines.done
        return done(worker, np.full(len(worker), until)) - done(worker, start)

    def end_of(self, worker: int) -> Callable[[float, Drawn], float]:
        """When a job of a worker is done, as a function of its start and what is drawn."""
        if not self.clock.powers:
            return add
        finish = self.timelines.lines[worker].finish
        if not self.is_apart:
            return finish
        return lambda start, parts: finish(start + parts[0], parts[1]) + parts[2]

    def _check(self, durations: np.ndarray, worker: np.ndarray, block: np.ndarray) -> None:
        doubtful = is_doubtful(durations, float(np.max(self._load)))
        if self.clock.loss is not None:
            doubtful &= ~np.isinf(durations)
        if doubtful.any() or (self._own and self._links):  # a link hides what its worker lacks
            lanes = np.flatnonzero(doubtful.any(axis=1) | (self._own and self._links))
            lanes = lanes[np.lexsort((block[lanes], worker[lanes]))]  # the first worker is told of
            with on_host(self.key) as key:
                check_given(self.clock, key, worker[lanes], block[lanes] * self.size, self.size)
            # What is infinite by its load, or by adding up, is left.
            fine = np.isfinite(durations[lanes]) | (self.clock.loss is not None)
            bad = np.argwhere(~((durations[lanes] > 0.0) & fine))
            if len(bad):
                lane, place = lanes[bad[0, 0]], bad[0, 1]
                raise ValueError(
                    f"clock gives worker {worker[lane]} a duration of {durations[lane, place]} for"
                    f" its job {block[lane] * self.size + place}; durations must be positive and"
                    " finite"
                )


class NextDurations:
    """What is drawn of workers' next jobs, each of whom counts his own; `taken` int32[n].

    Who has used up a block draws along with all who soon will; two blocks of each are held.
    """

    def __init__(self, blocks: DurationBlocks) -> None:
        self._blocks, n, self._size = blocks, blocks.clock.n_workers, blocks.size
        self.taken, self._end = np.zeros(n, np.int32), np.zeros(n, np.int32)  # end of what is held
        shape = (n, 2 * self._size, 3) if blocks.is_apart else (n, 2 * self._size)
        self._held, self._everybody = np.empty(shape), np.arange(n)
        self._refill()

    def all(self) -> np.ndarray:
        """What is drawn of the next job of every worker, float64[n]."""
        if (self.taken == self._end).any():
            self._refill()
        durations = self._held[self._everybody, self.taken % (2 * self._size)]
        self.taken += 1
        return durations

    def one(self, worker: int) -> Drawn:
        """What is drawn of the next job of one worker."""
        job = int(self.taken[worker])
        if job == self._end[worker]:
            self._refill()
        self.taken[worker] = job + 1
        return self._held[worker, job % (2 * self._size)].tolist()

    def _refill(self) -> None:
        """Draws the next block of all who have used up half of their last one."""
        workers = np.flatnonzero(self.taken > self._end - self._size // 2)
        block = self._end[workers] // self._size
        held = self._held.reshape(-1, 2, self._size, *self._held.shape[2:])
        held[workers, block % 2] = self._blocks.draw(workers, block)
        self._end[workers] += self._size


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
) -> tuple[list[Finish], Callable[[int, float], bool]]:
    """Per worker, when its next job is done; and whether a worker has no power from a time on."""
    streams = _streams(blocks, jobs_expected)
    if not blocks.clock.powers:
        plain = [lambda now, draw=stream.__next__: now + draw() for stream in streams]
        return plain, lambda worker, now: False

    def finish_of(worker: int) -> Finish:
        draw, end = streams[worker].__next__, blocks.end_of(worker)
        return lambda now: end(now, draw())

    def has_left(worker: int, now: float) -> bool:
        return blocks.timelines.lines[worker].finish(now, _LEAST_WORK) == np.inf

    return [finish_of(worker) for worker in range(blocks.clock.n_workers)], has_left


def _streams(blocks: DurationBlocks, jobs_expected: float) -> list[Iterator[Drawn]]:
    """One endless iterator per worker over what is drawn of its jobs.

    A worker that runs out draws along with all others that soon will, since a call costs about the
    same for one as for many.
    """
    n, size = blocks.clock.n_workers, blocks.size
    queued: list[list[list[Any]]] = [[] for _ in range(n)]  # blocks, the next one last
    current: list[Iterator[Any]] = [iter(())] * n
    drawn = np.zeros(n, np.int64)  # blocks

    def refill(workers: list[int], count: int) -> None:
        numbers = drawn[workers][:, None] + np.arange(count)[::-1]
        times = blocks.draw(np.repeat(workers, count), numbers.ravel())
        for row, worker in enumerate(workers):
            queued[worker] = [*times[row * count : (row + 1) * count].tolist(), *queued[worker]]
        drawn[workers] += count

    def stream(worker: int) -> Iterator[Any]:
        while True:
            if not queued[worker]:
                low = [
                    other
                    for other in range(n)
                    if not queued[other] and length_hint(current[other]) < size // 2
                ]
                lanes = _FEW if drawn[worker] < 4 * _FEW else _MANY
                refill(low, max(1, lanes // len(low)))
            current[worker] = iter(queued[worker].pop())
            yield from current[worker]

    refill(list(range(n)), int(np.clip(jobs_expected // _BLOCK, 1, 16)))
    return [stream(worker) for worker in range(n)]
