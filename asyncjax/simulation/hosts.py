"""Several processes that make one run: what they agree on, what one tells all, and who is lost.

After `jax.distributed.initialize` every process makes the same calls in the same order. A run over
a mesh that has devices of several of them goes so:

    agree      digests of program, data, trace and keys are compared; who differs is named
    placed     each process puts what its own devices hold there, from arrays that all have
    told       one process decides what depends on time or on a file: pieces, when to save
    gathered   the outcome comes to all of them as plain NumPy arrays

Small words go through the key-value store of JAX's distributed runtime, arrays through devices, a
piece at a time, among the processes of the mesh alone (`multihost_utils` waits for all that there
are, takes whole arrays, and adds zeros to what it sends). No wait is for ever: while a process
lives it says so every two seconds, and one that was silent for half a minute is lost, which is an
error in all others, even where JAX itself would wait on.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import cache, partial
from threading import Event, Thread
from typing import Any

import jax
import numpy as np
from jax._src.distributed import global_state  # there is no public way to the key-value store
from jax.core import Tracer
from jax.errors import JaxRuntimeError
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from asyncjax.simulation.checkpoints import form_of, leaf_of, numbers_of

_BEAT_SECONDS, _LOST_SECONDS = 2.0, 30.0
_PIECE = 2**28  # bytes of all processes that are exchanged at once
_WORD_MILLISECONDS = 10_000  # that one question for a word takes
_LOOK_SECONDS = 0.5  # between two looks at who is lost, while something is waited for
_ADVICE = (
    "start all processes again; a run with a checkpoint goes on from it, also with another number"
    " of processes"
)
_DEVICE_TROUBLE = {"UNKNOWN", "UNAVAILABLE", "INTERNAL", "ABORTED", "CANCELLED"}
_DEVICE_TROUBLE |= {"DEADLINE_EXCEEDED"}
_runs: Counter[tuple[int, ...]] = Counter()


def placed(tree: Any, sharding: Sharding) -> Any:
    """Arrays that every process has, on devices; each process puts what its own devices hold.

    Example:
        >>> here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        >>> placed({"x": np.ones(2)}, here)
        {'x': Array([1., 1.], dtype=float32)}
    """
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def put(leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return jax.device_put(leaf, sharding)
        array = np.asarray(numbers_of(leaf))
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
        whole = jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])
        return leaf_of(whole, leaf)

    return jax.tree.map(put, tree)


def peers_of(arrays: Any) -> Peers:
    """The processes whose devices hold parts of some arrays, as the next run of these processes."""
    leaves = [leaf for leaf in jax.tree.leaves(arrays) if isinstance(leaf, jax.Array)]
    shardings = {leaf.sharding for leaf in leaves if not isinstance(leaf, Tracer)}
    met = {device.process_index for each in shardings for device in each.device_set}
    rank = jax.process_index() if met else 0
    if met and rank not in met:
        raise ValueError(f"mesh must have a device of process {rank}, which runs it, but has none")
    if len(met) < 2:
        return Peers((rank,), rank, "")
    processes = tuple(sorted(met))
    _runs[processes] += 1
    _watch()
    return Peers(processes, rank, f"asyncjax/{hash(processes)}/{_runs[processes]}")


@dataclass(frozen=True)
class Peers:
    """The processes that make a run together; often this one alone, and then all is as it was.

    Example:
        >>> alone = Peers((0,), 0, "")
        >>> alone.told("turns", 3), alone.done_once("sum", lambda: 1 + 1)
        (3, 2)
    """

    processes: tuple[int, ...]
    own: int  # this one
    name: str  # of the run, the same in all of them

    @property
    def several(self) -> bool:
        """Whether there is another process."""
        return len(self.processes) > 1

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Tells the others if this process leaves with an error."""
        try:
            yield
        except BaseException as error:
            if not self.several:
                raise
            with contextlib.suppress(RuntimeError):
                name = f"{_left(self.name)}{self.own}"
                self._while_all_live(partial(_store().key_value_set, name, type(error).__name__))
            first = str(error).splitlines()[0] if str(error) else ""
            is_of_devices = isinstance(error, JaxRuntimeError | ValueError)
            if is_of_devices and first.split(":")[0] in _DEVICE_TROUBLE:
                raise RuntimeError(
                    f"process {self.own} could not compute with the others, of which one may be"
                    f" lost ({first}): {_ADVICE}"
                ) from error
            raise

    def agree(self, digests: Mapping[str, str]) -> None:
        """Compares what every process is about to run; all raise the same ValueError."""
        if self.several:
            self._say(f"mark/{self.own}", json.dumps(dict(digests)))
            self.done_once("agreed", self._compare)

    def _compare(self) -> None:
        marks = {at: json.loads(self._heard(f"mark/{at}")) for at in self.processes}
        first = marks[self.processes[0]]
        for at, mark in marks.items():
            parts = [name for name in first if mark.get(name) != first[name]]
            if parts:
                raise ValueError(
                    f"process {at} of {len(self.processes)} differs from process"
                    f" {self.processes[0]} in {' and '.join(parts)}: every process must make the"
                    " same call with the same arguments"
                )

    def told(self, name: str, value: Any) -> Any:
        """The value (JSON) that the first process has, in all of them; a name is used once."""
        if self.several and self.own == self.processes[0]:
            self._say(f"told/{name}", json.dumps(value))
        elif self.several:
            return json.loads(self._heard(f"told/{name}"))
        return value

    def done_once(self, name: str, action: Callable[[], Any]) -> Any:
        """What the first process returns (JSON) or raises when it acts, in all of them."""
        if self.own != self.processes[0]:
            kind, answer = self.told(name, None)
            if kind:
                raise {"OSError": OSError, "ValueError": ValueError}[kind](answer)
            return answer
        try:
            answer = action()
        except (OSError, ValueError) as error:
            self.told(name, ("OSError" if isinstance(error, OSError) else "ValueError", str(error)))
            raise
        return self.told(name, ("", answer))[1]

    def settled(self, tree: Any) -> Any:
        """The arrays, computed; a RuntimeError if a process is lost, or has left, meanwhile."""
        ready = partial(jax.block_until_ready, tree)
        return self._while_all_live(ready) if self.several else ready()

    def gathered(self, tree: Any) -> Any:
        """The arrays as they are; of several processes each of them whole, in NumPy, in all."""

        def whole(leaf: Any) -> Any:
            if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
                return leaf
            raw = self.settled(numbers_of(leaf))
            if raw.is_fully_replicated:
                return leaf_of(np.asarray(raw.addressable_data(0)), leaf)
            array = np.empty(raw.shape, raw.dtype)
            parts: dict[int, list[np.ndarray]] = {at: [] for at in self.processes}
            data = []
            for shard in sorted(raw.global_shards, key=lambda shard: shard.device.id):
                if shard.replica_id == 0:  # each part once, from the process that has it
                    parts[shard.device.process_index].append(array[shard.index])
                    data += [] if shard.data is None else [np.asarray(shard.data).tobytes()]
            size = max(sum(part.nbytes for part in each) for each in parts.values())
            rows = self._exchanged(b"".join(data), size, len(parts))
            for row, at in zip(rows, self.processes, strict=True):
                start = 0
                for part in parts[at]:
                    values = row[start : start + part.nbytes].view(raw.dtype)
                    part[...] = values.reshape(part.shape)
                    start += part.nbytes
            return leaf_of(array, leaf)

        return jax.tree.map(whole, tree) if self.several else tree

    def spread(self, tree: Any, like: Any) -> Any:
        """The arrays of the first process, bit for bit, in all; `like` has their shapes."""
        if not self.several:
            return tree

        def sent(like: Any, leaf: Any) -> Any:
            shape, dtype = form_of(like)
            is_first = self.own == self.processes[0]
            data = np.asarray(numbers_of(leaf)).tobytes() if is_first else b""
            row = self._exchanged(data, math.prod(shape) * dtype.itemsize, 1)[0]
            return leaf_of(row.view(dtype).reshape(shape), like)

        return jax.tree.map(sent, like, like if tree is None else tree)

    def _exchanged(self, data: bytes, size: int, n_rows: int) -> np.ndarray:
        """The first of rows uint8[processes, size], one from each, in all; a piece at a time."""
        devices = [jax.local_devices(process_index=at)[0] for at in self.processes]
        mesh = Mesh(np.array(devices), ("processes",))
        split = NamedSharding(mesh, PartitionSpec("processes"))
        raw, rows = np.frombuffer(data.ljust(size, b"\0"), np.uint8), np.empty((n_rows, size), "u1")
        step = max(1, _PIECE // len(devices))
        for start in range(0, size, step):
            row = raw[None, start : start + step]
            shape = (len(devices), row.shape[1])
            pieces = _everywhere(mesh, n_rows)(
                jax.make_array_from_process_local_data(split, row, shape)
            )
            rows[:, start : start + step] = self.settled(pieces).addressable_data(0)
        return rows

    def _say(self, name: str, text: str) -> None:
        """Leaves a word for the others."""
        self._while_all_live(partial(_store().key_value_set, f"{self.name}/{name}", text))

    def _heard(self, name: str) -> str:
        """A word that another process leaves, waited for."""
        read = partial(_store().blocking_key_value_get, f"{self.name}/{name}", _WORD_MILLISECONDS)
        while True:
            try:
                return self._while_all_live(read)
            except JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise _lost("process 0, or the way to it,", "no answer") from error

    def _while_all_live(self, call: Callable[[], Any]) -> Any:
        """What a call that may wait for ever returns or raises; who is lost is looked at."""
        end: Future[Any] = Future()

        def act() -> None:
            try:
                end.set_result(call())
            except Exception as error:  # raised in the thread that waits
                end.set_exception(error)

        Thread(target=act, daemon=True).start()  # a call of several devices may have no end
        while not wait([end], _LOOK_SECONDS).done:
            _watch().check(self.name)
        return end.result()


@dataclass
class _Watch:
    """Who is alive. Process 0 hears all beats and says who is lost; the others hear process 0."""

    own: int
    over: Event = field(default_factory=Event)
    beats: int = 0
    heard: dict[int, tuple[str, float]] = field(default_factory=dict)  # last beat, when it came
    lost: str = ""  # processes that process 0 misses
    left: dict[str, str] = field(default_factory=dict)  # who has left which run with what error

    def keep(self) -> None:
        """Beats and listens until the process ends."""
        while not self.over.is_set():
            with contextlib.suppress(RuntimeError):  # silence is noticed by `check`
                self.turn(_store())
            self.over.wait(_BEAT_SECONDS)

    def turn(self, store: Any) -> None:
        """One beat, and one look."""
        self.beats += 1
        self.left = dict(store.key_value_dir_get(_left("")))
        if self.own:
            store.key_value_set(f"asyncjax/beats/{self.own}", str(self.beats), True)
            for _, text in store.key_value_dir_get("asyncjax/watch/"):
                beat, self.lost = json.loads(text)
                self._hear(0, beat)
            return
        for name, beat in store.key_value_dir_get("asyncjax/beats/"):
            self._hear(_process_of(name), beat)
        self.lost = " and ".join(str(at) for at in sorted(self.heard) if self._is_silent(at))
        store.key_value_set("asyncjax/watch/0", json.dumps((str(self.beats), self.lost)), True)

    def _hear(self, at: int, beat: str) -> None:
        if at not in self.heard or self.heard[at][0] != beat:
            self.heard[at] = (beat, time.monotonic())

    def _is_silent(self, at: int) -> bool:
        return at in self.heard and time.monotonic() - self.heard[at][1] > _LOST_SECONDS

    def check(self, run: str) -> None:
        """Raises where a process is lost, or another than this has left the run."""
        silent = "0" if self.own and self._is_silent(0) else self.lost
        if silent:
            raise _lost(f"process {silent}", f"silent for {_LOST_SECONDS:.0f} s")
        for name, error in self.left.items():
            at = _process_of(name)
            if at != self.own and name == f"{_left(run)}{at}":
                raise RuntimeError(
                    f"process {at} has left the run with an error ({error}), see its output:"
                    f" {_ADVICE}"
                )


@cache
def _watch() -> _Watch:
    """The watch of this process, begun at its first run with others."""
    watch = _Watch(jax.process_index())
    Thread(target=watch.keep, daemon=True, name="asyncjax watch").start()
    atexit.register(watch.over.set)
    return watch


def _lost(who: str, why: str) -> RuntimeError:
    return RuntimeError(f"{who} is lost ({why}), so this run cannot go on: {_ADVICE}")


def _store() -> Any:
    """The key-value store that all processes share."""
    if global_state.client is None:
        raise RuntimeError("jax.distributed was shut down in this process")
    return global_state.client


def _left(run: str) -> str:
    """The folder of the processes that have left a run."""
    return f"asyncjax/left/{run}/" if run else "asyncjax/left/"


def _process_of(name: str) -> int:
    return int(name.rsplit("/", 1)[1])


@cache
def _everywhere(mesh: Mesh, n_rows: int) -> Callable[[jax.Array], jax.Array]:
    """The first rows of an array, on every device of a mesh."""
    return jax.jit(lambda rows: rows[:n_rows], out_shardings=NamedSharding(mesh, PartitionSpec()))
