"""Every method on every clock and problem, tuned alike.

A cell is a method, a law of speeds and a problem. Each gets the same simulated time, the same
workers (the duration of job j of worker i is the same for all methods) and the same grid of step
sizes; the step is chosen by the final training loss on some seeds and reported on others. A
finished cell is a file: a run that was killed goes on where it was, to the same bits, and other
settings, or another state of the code, never use it. Run it with `python -m experiments.matrix`;
`--full` takes all methods, longer runs and more seeds: 1,610 cells, each of five times the work of
the 448 default ones.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from asyncjax import storage
from experiments.matrix import report as matrix_report
from experiments.matrix.cells import Budget, run_cell
from experiments.matrix.methods import METHODS
from experiments.matrix.runs import Settings, cells_of, finished, law_of, resolved, task_of


def run(settings: Settings, report: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs what is not there yet, writes numbers, tables, figures and the report.

    Returns:
        All numbers, as they are in `matrix.json`.

    Raises:
        ValueError: A name is not known, a number is out of range, or no clock is left.
    """
    settings = resolved(settings)
    found = {name: law_of(settings, name) for name in settings.clocks}
    laws = {name: law for name, law in found.items() if law is not None}
    if not laws:
        raise ValueError("clocks must leave at least one clock, got only such as are left out")
    cells = cells_of(settings, list(laws))
    (settings.output / "cells").mkdir(parents=True, exist_ok=True)
    done = {cell: value for cell in cells if (value := finished(cell)) is not None}
    report(f"{len(cells)} cells, {len(done)} of them from before")
    budget = Budget(
        settings.horizon,
        settings.step_sizes,
        settings.tuning_seeds,
        settings.seeds,
        settings.records,
    )
    missing = [cell for cell in cells if cell not in done]
    began, tasks = time.perf_counter(), {}
    for number, cell in enumerate(missing, start=1):
        where = (cell.problem, cell.clock)
        if where not in tasks:
            tasks = {key: task for key, task in tasks.items() if key[0] == cell.problem}
            tasks[where] = task_of(settings, cell.problem, laws[cell.clock])
        value = run_cell(METHODS[cell.method], tasks[where], budget)
        done[cell] = value | {"fingerprint": cell.fingerprint}
        storage.save_json(cell.path, done[cell])
        last = number == len(missing) or missing[number].method != cell.method
        if last:  # of a method on a problem
            spent = time.perf_counter() - began
            left = spent / number * (len(missing) - number)
            report(
                f"[{len(done)}/{len(cells)}] {cell.problem:<19} {cell.method:<22} {spent:5.0f} s,"
                f" about {left:.0f} s left"
            )
    named = [((c.method, c.clock, c.problem), done[c]) for c in cells]
    return matrix_report.write(settings, named, laws)


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
