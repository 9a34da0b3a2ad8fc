"""What the delay bench runs: optimizers, delays, tasks; what is finished is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from optax import contrib

from asyncjax.study.cells import Cells
from asyncjax.study.digests import key_of
from experiments.common import grids
from experiments.delay_bench import tasks
from experiments.delay_bench.bench import Cell, Tuned, delay_bench, train
from experiments.delay_bench.delays import Law, by_stage, constant, geometric, uniform
from experiments.delay_bench.tasks import Task

METHODS: Mapping[str, tuple[Any, float]] = {  # as optax has them; the step the grid is laid about
    "SGD momentum": (partial(optax.sgd, momentum=0.9), 2.0**-3),
    "Adam": (optax.adam, 2.0**-6),
    "NAdamW .9": (optax.nadamw, 2.0**-6),
    "NAdamW .99": (partial(optax.nadamw, b1=0.99), 2.0**-6),
    "Lion": (optax.lion, 2.0**-9),
    "Muon": (contrib.muon, 2.0**-5),
}
LONGEST = 8  # of the delays by stage and of the uniform ones, in updates
CUT = 32  # of the geometric delays


def laws_of(task: Task) -> dict[str, Law]:
    """All laws of delays, those of the table in its order."""
    return {
        "0": constant(0),
        "1": constant(1),
        "4": constant(4),
        "8": constant(8),
        "by stage 8..0": by_stage(LONGEST, task.stage_of),
        "uniform 0..8": uniform(LONGEST),
        "geometric, mean 4": geometric(4.0, CUT),
    }


LAWS = ("0", "1", "4", "8", "by stage 8..0", "uniform 0..8", "geometric, mean 4")
TASKS = {"digits": tasks.digits, "language": tasks.language}


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about nine minutes of CPU time, most of it `language`."""

    output: Path = Path("output/delay_bench")
    seed: int = 0
    methods: tuple[str, ...] = tuple(METHODS)
    tasks: tuple[str, ...] = tuple(TASKS)
    digits_laws: tuple[str, ...] = LAWS
    language_laws: tuple[str, ...] = LAWS[:5]
    digits_updates: int = 400
    language_updates: int = 300
    digits_steps: int = 6  # of a grid to begin with, a factor of 2 apart
    language_steps: int = 4
    seeds: int = 5  # reported
    tuning_seeds: int = 2  # only to choose the step size
    width: int = 40  # of the transformer
    hidden: int = 32  # units of the network on digits
    commit: bool = False  # also write rows and figures where the page is made from

    def of(self, task: str, field: str) -> Any:
        """A setting of one task."""
        return getattr(self, f"{task}_{field}")


Found = dict[str, dict[str, dict[str, Cell]]]  # by task, method and law


def checked(settings: Settings) -> None:
    """Refuses settings that cannot be run.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    for field, known in (
        ("methods", tuple(METHODS)),
        ("tasks", tuple(TASKS)),
        ("digits_laws", LAWS),
        ("language_laws", LAWS),
    ):
        for name in getattr(settings, field) or ("nothing",):
            if name not in known:
                raise ValueError(f"{field} must be among {'; '.join(known)}, got {name!r}")
        if field.endswith("laws") and LAWS[0] not in getattr(settings, field):
            raise ValueError(f"{field} must have '0', with which all others are compared")
    for field, least in (
        ("seeds", 1),
        ("tuning_seeds", 1),
        ("digits_updates", 1),
        ("language_updates", 1),
        ("digits_steps", 2),
        ("language_steps", 2),
        ("hidden", 1),
    ):
        if getattr(settings, field) < least:
            raise ValueError(f"{field} must be at least {least}, got {getattr(settings, field)}")


def task_of(settings: Settings, name: str) -> Task:
    """A task in the size of the settings."""
    if name == "digits":
        return tasks.digits(settings.hidden)
    return tasks.language(settings.width)


def grid(centre: float, count: int) -> tuple[float, ...]:
    """Step sizes a factor of 2 apart about a centre, one more below it than above.

    Example:
        >>> grid(1.0, 4)
        (0.25, 0.5, 1.0, 2.0)
    """
    return tuple(centre * 2.0 ** (place - count // 2) for place in range(count))


def run_all(settings: Settings) -> Found:
    """Runs what is not there yet, and says how far it is.

    Returns:
        Cells by task, method and law. A task whose data are missing is left out, with a printed
        sentence.
    """
    found: Found = {}
    for name in settings.tasks:
        try:
            task = task_of(settings, name)
        except (ImportError, FileNotFoundError) as missing:
            print(f"{name} left out: {missing}", flush=True)
            continue
        print(task.text, flush=True)
        found[name] = run_task(settings, name, task)
    return found


def run_task(settings: Settings, name: str, task: Task) -> dict[str, dict[str, Cell]]:
    """Tunes and runs all optimizers on a task under all its laws, but for what is known.

    Args:
        settings: What is run.
        name: Of the task.
        task: In the size of the settings.

    Returns:
        Cells by optimizer and law.
    """
    laws, first = laws_of(task), settings.of(name, "steps")
    folder = settings.output / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    cells = Cells(folder)
    keys = {method: key(settings, name, method) for method in settings.methods}
    known = {method: unpacked(cells.get(keys[method]) or {}) for method in settings.methods}

    def done(method: str, own: dict[str, Cell]) -> None:
        cells.put(keys[method], packed(known[method] | own))
        tried = sum(len(cell.step_sizes) for cell in own.values())
        print(f"{name}: {method}, {tried} steps", flush=True)

    return delay_bench(
        task.make_loop,
        {one: Tuned(METHODS[one][0], grid(METHODS[one][1], first)) for one in settings.methods},
        {law: laws[law] for law in settings.of(name, "laws")},
        n_updates=settings.of(name, "updates"),
        key=jax.random.key(settings.seed),
        seeds=settings.seeds,
        tuning_seeds=settings.tuning_seeds,
        at_once=28 if name == "digits" else 5,
        known=known,
        done=done,
    )


def key(settings: Settings, task: str, method: str) -> str:
    """A digest of all that decides the numbers of a single run of a method on a task."""
    names = ("seed", "seeds", "tuning_seeds", "width", "hidden")
    facts = [getattr(settings, name) for name in names]
    code = (delay_bench, train, laws_of, TASKS[task], METHODS[method], grids.wanted)
    device = jax.devices()[0].device_kind
    return key_of(*code, task, method, facts, settings.of(task, "updates"), device)


def packed(cells: Mapping[str, Cell]) -> dict[str, np.ndarray]:
    """Cells by law as arrays."""
    return {
        f"{law}|{one.name}": np.asarray(getattr(cell, one.name), np.float64)
        for law, cell in cells.items()
        for one in fields(Cell)
    }


def unpacked(arrays: Mapping[str, np.ndarray]) -> dict[str, Cell]:
    """Cells by law of what `packed` made."""
    found: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        law, _, field = name.rpartition("|")
        found.setdefault(law, {})[field] = array
    return {
        law: Cell(
            **{
                **own,
                "step_sizes": tuple(own["step_sizes"].tolist()),
                "chosen": int(own["chosen"]),
            }
        )
        for law, own in found.items()
    }
