"""Several processes that make one run: what they agree on, what one tells all, and who is lost.

After `jax.distributed.initialize` every process makes the same calls in the same order. A run over
a mesh that has devices of several of them goes so:

    agree      digests of program, data, trace and keys are compared; who differs is named
    placed     each process puts what its own devices hold there, from arrays that all have
    told       one process decides what depends on time or on a file: pieces, when to save
    gathered   the outcome comes to all of them as plain NumPy arrays

Small words go through the key-value store of JAX's distributed runtime, arrays through devices. No
wait is for ever: while a process lives it says so every two seconds, and one that was silent for
half a minute is lost, which is an error in all others, even where JAX itself would wait on.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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

from asyncjax.simulation.loops.checkpoints import form_of, leaf_of, numbers_of

_BEAT_SECONDS, _LOST_SECONDS = 2.0, 30.0
_PIECE = 2**28  # bytes of all processes that are exchanged at once
_WORD_MILLISECONDS = 10_000  # that one question for a word takes
_LOOK_SECONDS = 0.5  # between two looks at who is lost, while something is waited for
_ADVICE = (
    "start all processes again; a run with a checkpoint goes on from it, also with another number"
    " of processes"
)
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

    def one(leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return jax.device_put(leaf, sharding)
        array = np.asarray(numbers_of(leaf))
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
        whole = jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])
        return leaf_of(whole, leaf)

    return jax.tree.map(one, tree)


def peers_of(arrays: Any) -> Peers:
    """The processes whose devices hold parts of some arrays, as the next run of these processes.

    Raises:
        ValueError: None of the devices is this process's.

    Example:
        >>> peers_of(jax.numpy.ones(2)).several
        False
    """
    leaves = [leaf for leaf in jax.tree.leaves(arrays) if isinstance(leaf, jax.Array)]
    shardings = {leaf.sharding for leaf in leaves if not isinstance(leaf, Tracer)}
    met = {device.process_index for each in shardings for device in each.device_set}
    own = jax.process_index() if met else 0
    if met and own not in met:
        raise ValueError(f"mesh must have a device of process {own}, which runs it, but has none")
    if len(met) < 2:
        return Peers((own,), own, "")
    processes = tuple(sorted(met))
    _runs[processes] += 1
    _watch()
    return Peers(processes, own, f"asyncjax/{hash(processes)}/{_runs[processes]}")


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
        """Tells the others if this process leaves with an error.

        Raises:
            RuntimeError: What the processes compute together fails, as it does without one of them.
        """
        try:
            yield
        except BaseException as error:
            if self.several:
                with contextlib.suppress(RuntimeError):
                    name = _left(self.name, self.own)
                    self._while_all_live(
                        partial(_store().key_value_set, name, type(error).__name__)
                    )
                if _is_of_devices(error):
                    raise RuntimeError(
                        f"process {self.own} could not compute with the others, of which one may be"
                        f" lost ({str(error).splitlines()[0]}): {_ADVICE}"
                    ) from error
            raise

    def agree(self, digests: Mapping[str, str]) -> None:
        """Compares what every process is about to run, by the names of its parts.

        Raises:
            ValueError: A process differs from the first; the same in all of them.
        """
        if not self.several:
            return
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
        if not self.several:
            return value
        if self.own == self.processes[0]:
            self._say(f"told/{name}", json.dumps(value))
            return value
        return json.loads(self._heard(f"told/{name}"))

    def done_once(self, name: str, action: Callable[[], Any]) -> Any:
        """What the first process returns (JSON) or raises when it acts, in all of them."""
        if not self.several:
            return action()
        if self.own != self.processes[0]:
            kind, answer = self.told(name, None)
            if kind:
                raise {"OSError": OSError, "ValueError": ValueError}[kind](answer)
            return answer
        try:
            answer = action()
        except (OSError, ValueError) as error:
            kind = "OSError" if isinstance(error, OSError) else "ValueError"
            self.told(name, (kind, str(error)))
            raise
        self.told(name, ("", answer))
        return answer

    def settled(self, tree: Any) -> Any:
        """The arrays, computed.

        Raises:
            RuntimeError: A process is lost, or has left the run, while they are waited for.
        """
        if not self.several:
            return jax.block_until_ready(tree)
        return self._while_all_live(partial(jax.block_until_ready, tree))

    def gathered(self, tree: Any) -> Any:
        """The arrays as they are; of several processes each of them whole, in NumPy, in all."""
        if not self.several:
            return tree

        def one(leaf: Any) -> Any:
            if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
                return leaf
            raw = self.settled(numbers_of(leaf))
            if raw.is_fully_replicated:
                return leaf_of(np.asarray(raw.addressable_data(0)), leaf)
            owned = _owned(raw)
            own = {_bounds(each.index, raw.shape): each.data for each in raw.addressable_shards}
            data = [np.asarray(own[part]).tobytes() for part in owned[self.own]]
            size = max(sum(map(_size, parts)) for parts in owned.values()) * raw.dtype.itemsize
            rows = self._exchanged(b"".join(data), size, _all)
            whole = np.empty(raw.shape, raw.dtype)
            for row, at in zip(rows, self.processes, strict=True):
                values, place = np.frombuffer(row.tobytes(), raw.dtype), 0
                for part in owned[at]:
                    there = whole[tuple(slice(*bounds) for bounds in part)]
                    there[...] = values[place : place + there.size].reshape(there.shape)
                    place += there.size
            return leaf_of(whole, leaf)

        return jax.tree.map(one, tree)

    def spread(self, tree: Any, like: Any) -> Any:
        """The arrays of the first process, bit for bit, in all; `like` has their shapes."""
        if not self.several:
            return tree

        def one(own: Any, leaf: Any) -> Any:
            shape, dtype = form_of(own)
            size, data = math.prod(shape) * dtype.itemsize, b""
            if self.own == self.processes[0]:
                data = np.asarray(numbers_of(leaf)).tobytes()
            sent = self._exchanged(data, size, _first)
            return leaf_of(np.frombuffer(sent.tobytes(), dtype).reshape(shape), own)

        return jax.tree.map(one, like, like if tree is None else tree)

    def _exchanged(
        self, data: bytes, size: int, seen: Callable[[Mesh], Callable[[jax.Array], jax.Array]]
    ) -> np.ndarray:
        """What all see of rows uint8[processes, size], one from each; a piece at a time."""
        devices = [jax.local_devices(process_index=at)[0] for at in self.processes]
        mesh = Mesh(np.array(devices), ("processes",))
        split = NamedSharding(mesh, PartitionSpec("processes"))
        own, pieces = np.frombuffer(data.ljust(size, b"\0"), np.uint8), []
        step = max(1, _PIECE // len(devices))
        for start in range(0, size, step):
            row = own[None, start : start + step]
            shape = (len(devices), row.shape[1])
            rows = jax.make_array_from_callback(shape, split, lambda _, row=row: row)
            pieces.append(np.asarray(self.settled(seen(mesh)(rows)).addressable_data(0)))
        return np.concatenate(pieces, axis=-1) if pieces else np.zeros((len(devices), 0), np.uint8)

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
        """What a call that may wait for ever returns or raises; who is lost is looked at meanwhile.

        Raises:
            RuntimeError: A process is lost, or has left this run.
        """
        ends: list[tuple[Any, Exception | None]] = []

        def act() -> None:
            try:
                ends.append((call(), None))
            except Exception as error:  # raised in the thread that waits
                ends.append((None, error))

        thread = Thread(target=act, daemon=True)  # a call of several devices may have no end
        thread.start()
        thread.join(_LOOK_SECONDS)
        while thread.is_alive():
            _watch().check(self.name, self.own)
            thread.join(_LOOK_SECONDS)
        value, error = ends[0]
        if error is not None:
            raise error
        return value


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
        self.left = dict(store.key_value_dir_get("asyncjax/left/"))
        if self.own:
            store.key_value_set(f"asyncjax/beats/{self.own}", str(self.beats), True)
            for _, text in store.key_value_dir_get("asyncjax/watch/"):
                beat, self.lost = json.loads(text)
                self._hear(0, beat)
            return
        for name, beat in store.key_value_dir_get("asyncjax/beats/"):
            self._hear(_process_of(name), beat)
        silent = [at for at, (_, when) in self.heard.items() if _is_long_ago(when)]
        self.lost = " and ".join(map(str, sorted(silent)))
        store.key_value_set("asyncjax/watch/0", json.dumps((str(self.beats), self.lost)), True)

    def _hear(self, at: int, beat: str) -> None:
        if at not in self.heard or self.heard[at][0] != beat:
            self.heard[at] = (beat, time.monotonic())

    def check(self, run: str, own: int) -> None:
        """Raises where a process is lost, or another than this has left the run."""
        silent = self.lost
        if self.own and 0 in self.heard and _is_long_ago(self.heard[0][1]):
            silent = "0"
        if silent:
            raise _lost(f"process {silent}", f"silent for {_LOST_SECONDS:.0f} s")
        for name, error in self.left.items():
            at = _process_of(name)
            if at != own and name == _left(run, at):
                words = f"process {at} has left the run with an error ({error}), see its output"
                raise RuntimeError(f"{words}: {_ADVICE}")


def _is_long_ago(when: float) -> bool:
    return time.monotonic() - when > _LOST_SECONDS


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


def _left(run: str, process: int) -> str:
    """Where it stands that a process has left a run."""
    return f"asyncjax/left/{run}/{process}"


def _process_of(name: str) -> int:
    return int(name.rsplit("/", 1)[1])


def _is_of_devices(error: BaseException) -> bool:
    """Whether an error came up while devices computed or talked, and not for want of memory."""
    words = str(error).split(":")[0]
    kinds = ("UNKNOWN", "UNAVAILABLE", "INTERNAL", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED")
    return isinstance(error, JaxRuntimeError | ValueError) and words in kinds


def _owned(array: jax.Array) -> dict[int, list[tuple[tuple[int, int], ...]]]:
    """The parts of an array by the process that hands them on; each part is one process's."""
    first: dict[tuple[tuple[int, int], ...], int] = {}
    owned: dict[int, list[tuple[tuple[int, int], ...]]] = {}
    for device, index in array.sharding.devices_indices_map(array.shape).items():
        part = _bounds(index, array.shape)
        process = device.process_index or 0
        first[part] = min(first.get(part, process), process)
        owned[process] = []
    for part, process in sorted(first.items()):
        owned[process].append(part)
    return owned


def _bounds(index: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Where a part begins and ends, along each axis."""
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def _size(part: tuple[tuple[int, int], ...]) -> int:
    return math.prod(end - start for start, end in part)


@cache
def _all(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda rows: rows, out_shardings=NamedSharding(mesh, PartitionSpec()))


@cache
def _first(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda rows: rows[0], out_shardings=NamedSharding(mesh, PartitionSpec()))
