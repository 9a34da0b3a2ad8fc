"""Every method on every clock and problem, tuned alike.

A cell is a method, a law of speeds and a problem. Each gets the same simulated time, the same
workers (the duration of job j of worker i is the same for all methods) and the same grid of step
sizes; the step is chosen by the final training loss on some seeds and reported on others. A
finished cell is a file: a run that was killed goes on where it was, to the same bits, and other
settings, or another state of the code, never use it. Run it with `python -m experiments.matrix`;
`--full` takes all methods, longer runs and more seeds: 2,300 cells, each of five times the work of
the 640 default ones. `--engine processes --workers 8`, or `--engine ray`, computes them on the
cores of this machine, or on a cluster.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from asyncjax import storage
from experiments.common.spread import engine_of, spread
from experiments.matrix import report as matrix_report
from experiments.matrix.cells import Budget, run_cell
from experiments.matrix.methods import METHODS
from experiments.matrix.runs import (
    Cell,
    Settings,
    cells_of,
    finished,
    resolved,
    task_of,
)
from experiments.matrix.tasks import CLOCKS, Task


def run(settings: Settings, report: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs what is not there yet, writes numbers, tables, figures and the report.

    Returns:
        All numbers, as they are in `matrix.json`.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    settings = resolved(settings)
    laws = {name: CLOCKS[name] for name in settings.clocks}
    cells = cells_of(settings, list(laws))
    (settings.output / "cells").mkdir(parents=True, exist_ok=True)
    done = {cell: value for cell in cells if (value := finished(cell)) is not None}
    report(f"{len(cells)} cells, {len(done)} of them from before")
    missing = [cell for cell in cells if cell not in done]
    began, count = time.perf_counter(), len(done)
    open_cells = Counter((cell.problem, cell.method) for cell in missing)
    for group, values in computed(settings, missing):
        for cell, value in zip(group, values, strict=True):
            done[cell] = value | {"fingerprint": cell.fingerprint}
            storage.save_json(cell.path, done[cell])
        open_cells[group[0].problem, group[0].method] -= len(group)
        if open_cells[group[0].problem, group[0].method]:
            continue
        spent = time.perf_counter() - began
        left = spent / (len(done) - count) * (len(cells) - len(done))
        report(
            f"[{len(done)}/{len(cells)}] {group[0].problem:<19} {group[0].method:<22} {spent:5.0f}"
            f" s, about {left:.0f} s left"
        )
    named = [((c.method, c.clock, c.problem), done[c]) for c in cells]
    return matrix_report.write(settings, named, laws)


def computed(settings: Settings, cells: list[Cell]) -> Iterator[tuple[tuple[Cell, ...], Any]]:
    """Yields groups of cells that share a compilation, and what is in them."""
    groups = [tuple(own) for _, own in groupby(cells, lambda cell: (cell.problem, cell.method))]
    if settings.engine == "here":
        for group in groups:
            for cell in group:  # each is written when it is done
                yield (cell,), compute_cells(settings, (cell,))
        return
    with engine_of(settings.engine, settings.workers, settings.address) as workers:
        yield from spread(workers, partial(compute_cells, settings), groups)


def compute_cells(settings: Settings, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Runs some cells, at whatever worker."""
    budget = Budget(
        settings.horizon,
        settings.step_sizes,
        settings.tuning_seeds,
        settings.seeds,
        settings.records,
    )
    return [run_cell(METHODS[cell.method], _task(settings, cell), budget) for cell in cells]


_TASKS: dict[Any, Task] = {}  # of the last problem


def _task(settings: Settings, cell: Cell) -> Task:
    """The task of a cell; those of one problem are kept."""
    where = (settings, cell.problem, cell.clock)
    if where not in _TASKS:
        for other in [key for key in _TASKS if key[:2] != where[:2]]:
            del _TASKS[other]
        _TASKS[where] = task_of(settings, cell.problem, CLOCKS[cell.clock])
    return _TASKS[where]


def main() -> None:
    """Reads the settings from the command line and runs the matrix."""
    import tyro

    began = time.perf_counter()
    settings = tyro.cli(Settings, description=__doc__)
    numbers = run(settings, partial(print, flush=True))
    for text in matrix_report.as_texts(numbers):
        print(f"\n{text}")
    print(
        f"\nreport  {settings.output / 'report.html'}\ndone in {time.perf_counter() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
