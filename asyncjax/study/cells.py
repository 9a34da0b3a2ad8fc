"""Cells: the unit of work and of writing is a scene, role, method and settings, all instances.

A cell lies in a file of its own, named by a digest of all that decides its numbers: the code of
scene, method and measure with what it captured, settings, seeds, the source of the rooms that make
numbers, the version of jax. So whatever changes is computed again, and any number of studies, of
processes and of machines may share a folder. Files hold arrays, never pickle, and are written whole
or not at all; a damaged one counts as missing.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax import storage
from asyncjax.live.engines import Engine, processes
from asyncjax.live.ray_engine import ray
from asyncjax.study import named, protocol
from asyncjax.study.digests import digests, key_of
from asyncjax.study.programs import records_of_cell
from asyncjax.study.protocol import Seeds
from asyncjax.study.scene import Measure, Method, Scene
from asyncjax.study.search import Settings


@dataclass(frozen=True)
class Cells:
    """What was computed, by key; on disk where there is a folder.

    Attributes:
        folder: None: in memory alone.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Cells(Path(folder)).put("ab12", {"time": np.array([2.0])})
        ...     Cells(Path(folder)).get("ab12"), Cells(Path(folder)).get("ab13")
        ({'time': array([2.])}, None)
    """

    folder: Path | None
    known: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, repr=False)

    def get(self, key: str) -> dict[str, np.ndarray] | None:
        """The arrays of a cell; None if there are none, or they are damaged."""
        if key not in self.known and self.folder is not None:
            try:
                self.known[key] = storage.load_arrays(self.folder / f"{key}.npz")
            except (FileNotFoundError, ValueError):
                return None
        return self.known.get(key)

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keeps a cell."""
        if self.folder is not None:
            storage.save_arrays(self.folder / f"{key}.npz", arrays)
        self.known[key] = dict(arrays)


class Cell(NamedTuple):
    """What is computed at once: a method's runs on all instances of a role in a scene."""

    scene: str
    method: str
    role: str
    settings: tuple[tuple[str, Any], ...]


class Order(NamedTuple):
    """What a worker is told of a cell; things travel by their source where that is a text."""

    names: Cell
    scene: Any
    method: Any
    settings: Settings
    seeds: tuple[Seeds, ...]
    measures: tuple[Measure, ...]
    stretch: float  # of the horizon
    float64: bool


@dataclass(frozen=True, eq=False)
class Study:
    """What is compared, where, by what, and what of it is known.

    Attributes:
        scenes: `seeds -> Scene` by name.
        methods: By name.
        measures: By name.
        seed: Base of all seeds.
        counts: Instances by role.
        cells: What was computed.
        sources: Where other processes find scenes and methods, by kind and name.
        version: Stands for what cannot be digested.
        stretch: Factor on horizons.
    """

    scenes: Mapping[str, Callable[[Seeds], Scene]]
    methods: Mapping[str, Method]
    measures: Mapping[str, Measure]
    seed: int
    counts: Mapping[str, int]
    cells: Cells
    sources: Mapping[tuple[str, str], str] = field(default_factory=dict)
    version: str | None = None
    stretch: float = 1.0
    _digests: dict[str, str] = field(default_factory=dict)
    _keys: dict[Cell, str] = field(default_factory=dict)

    def digest(self) -> None:
        """Digests scenes, methods and measures, before any of them is used."""
        things: dict[str, Any] = {"measure": tuple(self.measures.values())}
        things |= {f"scene {name!r}": (scene,) for name, scene in self.scenes.items()}
        for name, one in self.methods.items():
            things[f"method {name!r}"] = one.rule, one.optimizer, one.run, one.adapt, one.load
        self._digests.update(digests(things, self.version))

    def key(self, cell: Cell) -> str:
        """The key of a cell."""
        if cell not in self._keys:
            names = (f"scene {cell.scene!r}", f"method {cell.method!r}", "measure")
            facts = cell.role, self.seed, self.counts[cell.role], self.stretch
            code = [self._digests[name] for name in names]
            self._keys[cell] = key_of(code, facts, sorted(cell.settings), version=self.version)
        return self._keys[cell]

    def get(self, cell: Cell) -> dict[str, np.ndarray] | None:
        """The arrays of a cell, None if it was not computed."""
        return self.cells.get(self.key(cell))

    def known(self, cell: Cell) -> dict[str, np.ndarray]:
        """The arrays of a cell that was computed."""
        arrays = self.get(cell)
        assert arrays is not None
        return arrays

    def compute(
        self,
        cells: Iterable[Cell],
        engine: Engine | None = None,
        told: Callable[[int, int], None] = lambda done, left: None,
    ) -> int:
        """Computes the cells that are not known; how many were asked for.

        `told` hears how many are done and left.
        """
        asked = list(dict.fromkeys(cells))
        pieces = [(self.key(one), self._order(one)) for one in asked if self.get(one) is None]
        done, left = len(asked) - len(pieces), len(pieces)
        told(done, left)
        here = ((piece, computed(piece)) for piece in pieces)
        for (key, _), arrays in here if engine is None else spread(engine, computed, pieces):
            self.cells.put(key, arrays)
            done, left = done + 1, left - 1
            told(done, left)
        return len(asked)

    def _order(self, cell: Cell) -> Order:
        scene: Any = self.sources.get((named.SCENES, cell.scene), self.scenes[cell.scene])
        method: Any = self.sources.get((named.METHODS, cell.method), self.methods[cell.method])
        return Order(
            cell._replace(settings=()),
            scene,
            method,
            dict(cell.settings),
            protocol.seeds_of(self.seed, cell.role, self.counts[cell.role]),
            tuple(self.measures.values()),
            self.stretch,
            bool(jax.config.read("jax_enable_x64")),
        )


def computed(piece: tuple[str, Order]) -> dict[str, np.ndarray]:
    """Computes a cell, here or at a worker: numbers float64[instances, numbers], and the rest."""
    _, order = piece
    began = time.perf_counter(), time.process_time()
    with jax.enable_x64(order.float64):
        make = named.thing(order.names.scene, order.scene, named.SCENES)
        method = named.thing(order.names.method, order.method, named.METHODS)
        try:
            scenes = _instances(make, order.seeds, order.stretch)
            records = records_of_cell(method, order.settings, scenes, order.seeds)
            arrays = _numbers(order, scenes, records)
        except Exception as error:
            name = f"scene {order.names.scene!r}, method {order.names.method!r}"
            error.add_note(f"in {name}, settings {order.settings}")
            raise
    horizons = [math.nan if scene.horizon is None else scene.horizon for scene in scenes]
    spent = time.perf_counter() - began[0], time.process_time() - began[1]
    return {**arrays, "horizon": np.array(horizons), "spent": np.array(spent)}


def _numbers(
    order: Order, scenes: Sequence[Scene], records: Sequence[Any]
) -> dict[str, np.ndarray]:
    """The numbers of all measures, float64[instances, numbers], their names, and scores."""
    arrays: dict[str, np.ndarray] = {}
    for place, measure in enumerate(order.measures):
        numbers = [measure.of(*one) for one in zip(records, scenes, strict=True)]
        names = list(numbers[0])
        if measure.compared not in names:
            words = f"measure must give what it compares, {measure.compared!r}"
            raise ValueError(f"{words}, got {', '.join(names)}")
        if taken := {*order.settings} & {*names}:
            raise ValueError(f"measure must not name a number as a knob, got {min(taken)!r}")
        values = [[float(one[name]) for name in names] for one in numbers]
        arrays[f"numbers {place}"] = np.array(values, np.float64)
        arrays[f"names {place}"] = np.array(names)
        if order.seeds[0].tunes:
            arrays[f"score {place}"] = np.array(measure.scored(numbers, scenes))
    return arrays


@lru_cache(16)
def _instances(
    make: Callable[[Seeds], Scene], seeds: tuple[Seeds, ...], stretch: float
) -> tuple[Scene, ...]:
    """The instances of a role."""
    scenes = [make(one) for one in seeds]
    if stretch != 1.0:
        scenes = [replace(s, horizon=s.horizon and stretch * s.horizon) for s in scenes]
    return tuple(scenes)


def cell_of(scene: str, method: str, role: str, settings: Settings) -> Cell:
    """The cell of some settings."""
    return Cell(scene, method, role, tuple(settings.items()))


def engine_of(name: str, workers: int, address: str = "") -> Engine:
    """The engine "processes" or "ray"; without an address a Ray of this machine."""
    if name == "ray":
        return ray(workers, address=address or None)
    flags = os.environ.get("XLA_FLAGS", "")  # those of this process, for the same bits
    return processes(workers, environment=lambda _: {"XLA_FLAGS": flags})


def spread(engine: Engine, work: Callable[..., Any], pieces: Sequence[Any]) -> Iterator[Any]:
    """Yields `(piece, work(piece))` as the pieces are done, each by one worker.

    `work` must be importable at the workers, and pure: it runs again where a worker is lost.

    Example:
        >>> from asyncjax import live
        >>> with live.threads(2) as workers:
        ...     sorted(spread(workers, abs, [-3, 2, -1]))
        [(-3, 3), (-1, 1), (2, 2)]
    """
    todo, restarts = list(pieces)[::-1], [engine.restarts] * engine.n_workers
    running: dict[Future[Any], tuple[int, Any]] = {}
    idle = list(range(engine.n_workers))[::-1]
    while todo or running:
        while todo and idle:
            worker, piece = idle.pop(), todo.pop()
            running[engine.executor(worker).submit(work, piece)] = worker, piece
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            worker, piece = running.pop(future)
            idle.append(worker)
            error = future.exception()
            if error is None:
                yield piece, future.result()
            elif not isinstance(error, engine.lost):
                raise error
            elif not restarts[worker]:
                raise RuntimeError(
                    f"worker {worker} of {engine.name} was lost {engine.restarts + 1} times"
                ) from error
            else:
                restarts[worker] -= 1
                engine.drop(worker)
                todo.append(piece)
