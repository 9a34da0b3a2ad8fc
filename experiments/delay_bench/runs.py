"""What the delay bench runs: optimizers, delays, tasks; finished optimizers are files."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from optax import contrib

from asyncjax import problems, storage
from experiments.common import grids
from experiments.delay_bench import tasks
from experiments.delay_bench.bench import Cell, Tuned, delay_bench
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
    commit: bool = False  # also write the losses where committed numbers are

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


def run_all(settings: Settings) -> tuple[Found, dict[str, str]]:
    """Runs what is not there yet, and says how far it is.

    Returns:
        Cells by task, method and law, and the texts of the tasks. A task whose data are missing is
        left out, with a printed sentence.
    """
    found: Found = {}
    texts: dict[str, str] = {}
    began, spent = time.perf_counter(), time.process_time()
    for name in settings.tasks:
        try:
            task = task_of(settings, name)
        except (ImportError, FileNotFoundError) as missing:
            print(f"{name} left out: {missing}", flush=True)
            continue
        texts[name] = task.text

        def told(method: str, cells: Mapping[str, Cell], name: str = name) -> None:
            print(
                f"{name}: {method}, {sum(len(cell.step_sizes) for cell in cells.values())} steps,"
                f" done after {time.perf_counter() - began:.0f} s,"
                f" {time.process_time() - spent:.0f} s of CPU time",
                flush=True,
            )

        found[name] = run_task(settings, name, task, told)
    return found, texts


def run_task(
    settings: Settings,
    name: str,
    task: Task,
    told: Callable[[str, Mapping[str, Cell]], None],
) -> dict[str, dict[str, Cell]]:
    """Tunes and runs all optimizers on a task under all its laws, but for what is known.

    Args:
        settings: What is run.
        name: Of the task.
        task: In the size of the settings.
        told: Called with the name and the cells of an optimizer that has become a file.

    Returns:
        Cells by optimizer and law.
    """
    laws, first = laws_of(task), settings.of(name, "steps")
    paths = {one: settings.output / "cells" / f"{name}, {one}.json" for one in settings.methods}
    marks = {one: fingerprint(settings, name, one) for one in settings.methods}
    known = {one: loaded(paths[one], marks[one]) for one in settings.methods}

    def done(method: str, cells: dict[str, Cell]) -> None:
        save(paths[method], marks[method], known[method] | cells)
        told(method, cells)

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


def fingerprint(settings: Settings, task: str, method: str) -> str:
    """A digest of all that decides the numbers of a single run of a method on a task."""
    facts: dict[str, Any] = {
        field: getattr(settings, field)
        for field in ("seed", "seeds", "tuning_seeds", "width", "hidden")
    }
    facts |= {
        "names": [task, method],
        "updates": settings.of(task, "updates"),
        "sources": sources(),
        "jax": jax.__version__,
    }
    facts |= {"optax": optax.__version__, "device": jax.devices()[0].device_kind}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def sources() -> str:
    """A digest of the code that makes the numbers: that of this folder, networks and data."""
    digest, room = hashlib.sha256(), Path(problems.__file__).parent
    own = [Path(__file__).parent / f"{name}.py" for name in ("bench", "delays", "runs", "tasks")]
    own.append(Path(grids.__file__))
    for folder in ("data", "networks"):
        own += sorted((room / folder).glob("*.py"))
    for path in (*own, room / "losses" / "network.py"):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def save(path: Path, mark: str, cells: Mapping[str, Cell]) -> None:
    """Writes the cells of a method on a task."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        law: {
            "step_sizes": list(cell.step_sizes),
            "tuning": cell.tuning.tolist(),
            "chosen": cell.chosen,
            "loss": cell.loss.tolist(),
            "held_out": cell.held_out.tolist(),
        }
        for law, cell in cells.items()
    }
    storage.save_json(path, {"fingerprint": mark, "cells": plain})


def loaded(path: Path, mark: str) -> dict[str, Cell]:
    """The cells in a file; none if there is no file, or it is another's or damaged."""
    try:
        found = storage.load_json(path)
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(found, dict) or found.get("fingerprint") != mark:
        return {}
    return {
        law: Cell(
            tuple(own["step_sizes"]),
            np.asarray(own["tuning"], float),
            own["chosen"],
            np.asarray(own["loss"], float),
            np.asarray(own["held_out"], float),
        )
        for law, own in found["cells"].items()
    }
