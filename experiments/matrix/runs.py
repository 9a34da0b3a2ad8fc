"""What the matrix runs: its settings, its cells, and what decides their numbers."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jax

import asyncjax
from asyncjax import problems, storage
from experiments.matrix.methods import METHODS, REFERENCE
from experiments.matrix.tasks import (
    CLOCKS,
    PROBLEMS,
    Task,
    Workers,
)


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/matrix")  # where cells, report, figures and numbers go
    full: bool = False  # all methods and problems, three times the time, twice the seeds
    methods: tuple[str, ...] = ()  # names; none: the default ones. Synchronous SGD always runs
    clocks: tuple[str, ...] = tuple(CLOCKS)
    problems: tuple[str, ...] = ()  # names; none: the default ones
    n_workers: int = 16
    horizon: float = 60.0  # simulated time; the mean time of a job is 1
    seeds: int = 3  # reported
    tuning_seeds: int = 2  # only to choose the step size
    batch: int = 8  # rows of a gradient
    records: int = 30  # points of a curve
    seed: int = 0
    step_sizes: tuple[float, ...] = tuple(2.0**power for power in range(-8, 3))
    engine: Literal["here", "processes", "ray"] = "here"  # where cells are computed
    workers: int = 2  # of the engine
    address: str = ""  # of a Ray cluster; none: a Ray of this machine


@dataclass(frozen=True)
class Cell:
    """One cell: its names and its file."""

    method: str
    clock: str
    problem: str
    path: Path
    fingerprint: str


def resolved(settings: Settings) -> Settings:
    """The settings with all names and sizes written out, checked.

    Returns:
        The same, `methods` and `problems` never empty, and the sizes of `--full` where they were
        left as they are.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    for field, known in (("methods", METHODS), ("clocks", CLOCKS), ("problems", PROBLEMS)):
        unknown = [name for name in getattr(settings, field) if name not in known]
        if unknown:
            raise ValueError(f"{field} must be among {'; '.join(known)}, got {unknown[0]!r}")
    if not settings.clocks:
        raise ValueError(f"clocks must name at least one of {'; '.join(CLOCKS)}, got none")
    for field, least in (
        ("n_workers", 4),
        ("horizon", 8.0),
        ("seeds", 1),
        ("tuning_seeds", 1),
        ("batch", 1),
        ("records", 2),
        ("workers", 1),
    ):
        if getattr(settings, field) < least:
            raise ValueError(f"{field} must be at least {least}, got {getattr(settings, field)}")
    if not settings.step_sizes or min(settings.step_sizes) <= 0:
        raise ValueError(f"step_sizes must be positive, got {settings.step_sizes}")
    if settings.full:
        plain, longer = Settings(), {"horizon": 180.0, "seeds": 6, "tuning_seeds": 3}
        changed = {
            name: value
            for name, value in longer.items()
            if getattr(settings, name) == getattr(plain, name)
        }
        settings = replace(settings, **changed)
    chosen = settings.methods or [
        n for n, method in METHODS.items() if settings.full or method.default
    ]
    return replace(
        settings,
        methods=tuple(dict.fromkeys((REFERENCE, *chosen))),
        clocks=tuple(dict.fromkeys(settings.clocks)),
        problems=tuple(dict.fromkeys(settings.problems))
        or tuple(name for name, data in PROBLEMS.items() if settings.full or data.default),
        step_sizes=tuple(sorted(settings.step_sizes)),
    )


def fingerprint(settings: Settings, method: str, clock: str, problem: str) -> str:
    """A digest of all that decides a cell's numbers.

    Args:
        settings: What is run, `resolved`.
        method: Name.
        clock: Name.
        problem: Name.
    """
    fields = ("n_workers", "horizon", "seeds", "tuning_seeds", "batch", "records", "seed")
    facts: dict[str, Any] = {name: getattr(settings, name) for name in fields}
    facts |= {"cell": [method, clock, problem], "step_sizes": list(settings.step_sizes)}
    facts |= {"sources": sources(), "jax": jax.__version__, "device": jax.devices()[0].device_kind}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def sources() -> str:
    """A digest of the code that makes a cell, so that no cell of other code is ever used."""
    digest, root = hashlib.sha256(), Path(__file__).parents[2]
    for folder in (Path(asyncjax.__file__).parent, root / "experiments"):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()


def cells_of(settings: Settings, laws: Sequence[str]) -> list[Cell]:
    """All cells, those that share a compilation after one another."""
    folder, found = settings.output / "cells", []
    for problem in settings.problems:
        for method in settings.methods:
            for clock in laws:
                mark = fingerprint(settings, method, clock, problem)
                name = ", ".join((problem, method, clock)).replace("/", " over ")
                path = folder / f"{name}, {mark}.json"
                found.append(Cell(method, clock, problem, path, mark))
    return found


def finished(cell: Cell) -> dict[str, Any] | None:
    """What is in a cell's file; None if there is none, or it is another's or damaged."""
    try:
        found = storage.load_json(cell.path)
    except (FileNotFoundError, ValueError):
        return None
    fits = isinstance(found, dict) and found.get("fingerprint") == cell.fingerprint
    return found if fits else None


def task_of(settings: Settings, problem: str, law: Workers) -> Task:
    """The workers and the problem of some cells."""
    n, size, total = settings.n_workers, settings.batch, settings.tuning_seeds + settings.seeds
    keys = jax.random.split(jax.random.key(settings.seed), total)
    make, key = PROBLEMS[problem].make, jax.random.key(settings.seed + 1)
    return Task(
        problem=make(n, problems.uniform(size), size, key),
        whole=make(n, None, size, key),
        batch=size,
        clocks=tuple(law.make(n, own) for own in keys),
        keys=keys,
    )
