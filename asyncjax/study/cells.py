"""Cells: the unit of work and of writing is a scene, role, method and settings, all instances.

A cell lies in a file of its own, named by a digest of all that decides its numbers: the code of
scene, method and measure with what it captured, settings, seeds, the source of the rooms that make
numbers, the version of jax. So whatever changes is computed again, and any number of studies, of
processes and of machines may share a folder. Files hold arrays, never pickle, and are written whole
or not at all; a damaged one counts as missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from asyncjax import storage
from asyncjax.study import named, protocol
from asyncjax.study.digests import digests, key_of
from asyncjax.study.engine import spread
from asyncjax.study.programs import records_of_cell
from asyncjax.study.protocol import TUNING, Seeds
from asyncjax.study.scene import Measure, Method, Scene
from asyncjax.study.search import Settings

if TYPE_CHECKING:
    from asyncjax.live import Engine


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

    scene: tuple[str, Any]
    method: tuple[str, Any]
    settings: tuple[tuple[str, Any], ...]
    seeds: tuple[Seeds, ...]
    measures: tuple[Measure, ...]
    stretch: float  # of the horizon
    is_scored: bool
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
        scenes = {f"scene {name!r}": (scene,) for name, scene in self.scenes.items()}
        methods = {
            f"method {name!r}": (one.rule, one.optimizer, one.run, one.adapt, one.load)
            for name, one in self.methods.items()
        }
        measures = {"measure": tuple(self.measures.values())}
        self._digests.update(digests({**scenes, **methods, **measures}, self.version))

    def key(self, cell: Cell) -> str:
        """The key of a cell."""
        if cell not in self._keys:
            names = (f"scene {cell.scene!r}", f"method {cell.method!r}", "measure")
            code = [self._digests[name] for name in names]
            facts = [cell.role, self.seed, self.counts[cell.role], self.stretch]
            settings = sorted(cell.settings)
            self._keys[cell] = key_of(code, facts, settings, version=self.version)
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
        keys = {cell: self.key(cell) for cell in asked}
        missing = {
            keys[cell]: self._order(cell) for cell in asked if self.cells.get(keys[cell]) is None
        }
        done = len(asked) - len(missing)
        told(done, len(missing))
        pieces = list(missing.items())
        answers: Iterable[Any] = ((piece, computed(piece)) for piece in pieces)
        if engine is not None:
            answers = spread(engine, computed, pieces)
        for number, ((key, _), arrays) in enumerate(answers, start=1):
            self.cells.put(key, arrays)
            told(done + number, len(missing) - number)
        return len(asked)

    def _order(self, cell: Cell) -> Order:
        scene: Any = self.sources.get((named.SCENES, cell.scene), self.scenes[cell.scene])
        method: Any = self.sources.get((named.METHODS, cell.method), self.methods[cell.method])
        return Order(
            (cell.scene, scene),
            (cell.method, method),
            cell.settings,
            protocol.seeds_of(self.seed, cell.role, self.counts[cell.role]),
            tuple(self.measures.values()),
            self.stretch,
            cell.role == TUNING,
            bool(jax.config.read("jax_enable_x64")),
        )


def computed(piece: tuple[str, Order]) -> dict[str, np.ndarray]:
    """Computes a cell, here or at a worker: numbers float64[instances, numbers], and the rest."""
    _, order = piece
    began = time.perf_counter(), time.process_time()
    with jax.enable_x64(order.float64):
        make = named.thing(*order.scene, named.SCENES)
        method = named.thing(*order.method, named.METHODS)
        try:
            scenes = _instances(make, order.seeds, order.stretch)
            records = records_of_cell(method, dict(order.settings), scenes, order.seeds)
            arrays = _numbers(order, scenes, records)
        except Exception as error:
            error.add_note(
                f"in scene {order.scene[0]!r}, method {order.method[0]!r},"
                f" settings {dict(order.settings)}"
            )
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
            raise ValueError(
                f"measure must give what it compares, {measure.compared!r}, got {', '.join(names)}"
            )
        if taken := {name for name, _ in order.settings} & set(names):
            raise ValueError(f"measure must not name a number as a knob, got {min(taken)!r}")
        values = [[float(one[name]) for name in names] for one in numbers]
        arrays[f"numbers {place}"] = np.array(values, np.float64)
        arrays[f"names {place}"] = np.array(names)
        if order.is_scored:
            arrays[f"score {place}"] = np.array(measure.scored(numbers, scenes))
    return arrays


@lru_cache(16)
def _instances(
    make: Callable[[Seeds], Scene], seeds: tuple[Seeds, ...], stretch: float
) -> tuple[Scene, ...]:
    """The instances of a role."""
    scenes = tuple(make(one) for one in seeds)
    if stretch == 1.0:
        return scenes
    return tuple(
        s if s.horizon is None else replace(s, horizon=stretch * s.horizon) for s in scenes
    )


def cell_of(scene: str, method: str, role: str, settings: Settings) -> Cell:
    """The cell of some settings."""
    return Cell(scene, method, role, tuple(settings.items()))
