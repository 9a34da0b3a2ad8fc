"""The map: unevenness, skew and noise of the regression scene, a cell each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from asyncjax import storage
from asyncjax.study.protocol import TUNING, seeds_of
from experiments.joint.arms import (
    COORDINATED,
    JOINT,
    LEARNED,
    PURE,
    RESCALED,
    RESHUFFLED,
    SYNCHRONOUS,
)
from experiments.joint.scenes_runs import SETS, described, tuned
from experiments.joint.training import Training
from experiments.joint.worlds import Scene, world_of

# With rows in order of epochs: nobody gains by drawing them.
ARMS = tuple(
    arm
    for arm in (*SYNCHRONOUS, *PURE, *RESCALED)
    if arm.rows in (RESHUFFLED, LEARNED, COORDINATED)
)


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/joint_map")
    seed: int = 0  # the part's own base is one more, so that no scene has its instances
    quick: bool = False  # a coarser map, 4 instances
    unevenness: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    skew: tuple[float, ...] = (0.0, 0.5, 1.0)
    rows: tuple[int, ...] = (1, 4, 16)  # of a unit: the noise of a gradient falls with its root
    horizon: float = 600.0
    level: float = 0.99
    tuning: int = 10  # instances
    instances: int = 10  # of each set
    trials: int = 4  # of an arm in a round
    rounds: tuple[int, int] = (2, 4)
    records: int = 300  # of a curve

    @property
    def base(self) -> int:
        """Base of all seeds."""
        return self.seed + 1


@dataclass(frozen=True)
class Cell:
    """A place of the map."""

    unevenness: float
    skew: float
    rows: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"uneven_{self.unevenness:g}_skew_{self.skew:g}_rows_{self.rows}"


def cells_of(settings: Settings) -> tuple[Cell, ...]:
    """All cells; those of one unevenness follow each other, since they share clocks.

    Raises:
        ValueError: A number is out of range.
    """
    for name, least in (("tuning", 1), ("instances", 2), ("trials", 2), ("records", 40)):
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(settings, name)}")
    for name, low, high in (("unevenness", 1, 1e3), ("skew", 0, 1), ("rows", 1, 1024)):
        values = getattr(settings, name)
        if not values or not all(low <= value <= high for value in values):
            raise ValueError(f"{name} must be numbers from {low} to {high:g}, got {values}")
    return tuple(Cell(*own) for own in product(settings.unevenness, settings.skew, settings.rows))


def measured(settings: Settings) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """What all arms did in each cell; a cell is written when it is done, and read if it is there.

    Yields:
        Cells, and plain values: `arms` by name with what was `tuned` and `times` by set.
    """
    like: dict[float, Training] = {}
    cells = cells_of(settings)
    for number, cell in enumerate(cells):
        path = settings.output / "cells" / f"{cell.name}.json"
        names = ("horizon", "level", "tuning", "instances", "trials", "records")
        asked = {name: getattr(settings, name) for name in names}
        asked |= {"seed": settings.base, "rounds": list(settings.rounds)}
        kept = storage.load_json(path) if path.exists() else None
        if kept is None or kept["asked"] != asked:
            print(f"[{number + 1}/{len(cells)}] {cell.name}", end=" ", flush=True)
            kept = {"asked": asked, **_measured(settings, cell, like)}
            path.parent.mkdir(parents=True, exist_ok=True)
            storage.save_json(path, kept)
            print(flush=True)
        yield cell, kept


def scene_of(settings: Settings, cell: Cell) -> Scene:
    """The scene of a cell."""
    return Scene(
        cell.name,
        "",
        unevenness=cell.unevenness,
        skew=cell.skew,
        batch=cell.rows,
        horizon=settings.horizon,
        levels=(settings.level,),
    )


def _measured(settings: Settings, cell: Cell, like: dict[float, Training]) -> dict[str, Any]:
    scene = scene_of(settings, cell)
    drawn = list(seeds_of(settings.base, TUNING, settings.tuning))
    for role in SETS:
        drawn += seeds_of(settings.base, role, settings.instances)
    worlds = [world_of(scene, instance) for instance in drawn]
    training = Training(
        worlds, scene.horizon, settings.records, settings.trials, like.get(cell.unevenness)
    )
    like.setdefault(cell.unevenness, training)
    goal = str(settings.level)
    found = tuned(training, ARMS, (goal,), replace(settings, seed=settings.base))
    kept = {}
    for arm in ARMS:
        own = found[f"{arm.name} | {goal}"]
        step = own.best.settings["step"]
        times = [
            float(training.curves(arm, number, [step]).reached(settings.level)[0])
            for number in range(settings.tuning, len(worlds))
        ]
        kept[arm.name] = {
            "tuned": described(own),
            "gradients": training.gradients(arm),
            "times": by_set(settings, times),
        }
        print("+" if arm is JOINT else ".", end="", flush=True)
    bias = [own.hearing / (own.start - own.least) for own in worlds[settings.tuning :]]
    return {"arms": kept, "bias": by_set(settings, bias)}


def by_set(settings: Settings, values: list[float]) -> dict[str, list[float]]:
    """Values of all reported instances, taken apart."""
    count = settings.instances
    return {role: values[at * count : (at + 1) * count] for at, role in enumerate(SETS)}
