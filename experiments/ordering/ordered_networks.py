"""Do balanced orders train networks faster than random reshuffling, by epochs and by time?

Seven tasks, up to five orders. Cooper et al. 2023 (arXiv 2302.00845) order the units of m workers
by their gradients. Here a unit is a microbatch. In every step each worker takes one unit, and the
server steps by the mean of their m gradients. Three tasks cost little (digits, with and without
wrong labels, monthly series), four have the form of the authors' public scripts in a size that fits
two cores (a wide forecaster, an LSTM, LeNet, a small transformer).

An instance draws rows, their units and workers, wrong labels and the first model; its noise is the
first orders. All orders have the same rows, steps and epochs, and as many trials of their step, on
instances that are not reported: once for the final loss, once for early arrival. They have no other
knob.

Time comes in four prices of an epoch, in those of D-RR: measured on this CPU, which plays m
workers, with one thread; flops and bytes as compiled for one of m machines; numbers it sends
(`epoch_costs`). "CD-GraB by projections" is the stale form: its units are half as large and it
takes two a step.
"""

import os
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("NPROC", "1")  # prices are those of one thread

from asyncjax import storage
from experiments.common.parts import Part, run_alone
from experiments.ordering import epoch_costs, ordered_networks_report
from experiments.ordering.ordered_networks_runs import Settings, Task, outcomes, tasks_of


def costs_of(settings: Settings, task: Task) -> dict[str, Any]:
    """What two steps of a task cost as compiled; kept for the next run of the same code."""
    path, mark = settings.output / "costs" / f"{task.name}.json", epoch_costs.fingerprint()
    kept = storage.load_json(path) if path.exists() else {}
    if kept.get("mark") != mark:
        kept = {"mark": mark, "costs": epoch_costs.of_task(task)}
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.save_json(path, kept)
    return kept["costs"]


def run(settings: Settings) -> Part:
    """Runs all tasks, writes the figure and numbers.

    Returns:
        The part; tasks whose data are not installed are left out.

    Raises:
        ValueError: A setting is not allowed.
        FileNotFoundError: The data of no task are installed.
    """
    found = outcomes(settings)
    for task in tasks_of(settings):
        if task.title in found:
            found[task.title]["costs"] = costs_of(settings, task)
            print(f"  {task.title}: compiled costs", flush=True)
    return ordered_networks_report.part(settings.output, found, settings.commit)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
