"""Does shuffled dispatch win, per update and per unit of time?

The setting of AsGrad, on data that anyone has. Logistic regression with the penalty 0.1 sum x^2 /
(1 + x^2); ten workers hold contiguous shards of rows sorted by label, so that each pulls to its own
minimum. Pure, random and shuffled dispatch, and two ways to undo pure's bias (Rescaled, whose steps
are in proportion to the worker's time, and a table of everyone's last gradient) face the same
workers under four laws of durations.

Measured is the norm of the full gradient, averaged over the last tenth of an axis: at 500 updates,
at the time in which pure makes 500 updates, and at the time in which the slowest rule does. An
instance draws its rows, which class the faster workers hold, the mean times and the first model.
All get as many trials of their step, for every axis by itself, on instances that are not shown; two
disjoint sets of instances are. A step counts only if the objective, too, has fallen to 0.3 of the
first: very large steps throw the model out to where the penalty is flat, and the gradient is small
there though nothing has been learnt.

Controls: rows dealt at random, and all rows held by everyone. Combinations: shuffled dispatch with
delay-adaptive steps. A run that was stopped goes on where it was: every cell is kept in the output
folder. Equal time over unevenness and horizon: `experiments.shuffled_map`.

Source: Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452), whose public code names the
four laws.
"""

from functools import partial

from experiments.asynchronous import asgrad_report
from experiments.asynchronous.asgrad_runs import Settings, run_tasks
from experiments.common.lanes import compile_quickly
from experiments.common.parts import Part, run_alone


def run(settings: Settings) -> Part:
    """Runs all cells that are missing, writes figures and numbers."""
    return asgrad_report.part(settings, run_tasks(settings, partial(print, flush=True)))


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    compile_quickly()
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
