"""Do all methods together beat plain choices, over workloads?

PD-ORS schedules workloads of their own jobs and machines; the largest job that fits is trained on
the clock of its crew, as a network and as a regression, in three ways: the full set of methods
(dispatch shuffled over the crew, steps that shrink for late gradients, coordinated orders), the
fitting set without the pairs that harm each other (arrival dispatch, Rescaled steps, an order a
worker), and plain choices (arrival dispatch, constant steps, rows drawn with replacement). All are
tuned alike on other workloads, for each goal by itself, and shown on two disjoint sets.

A run that was stopped goes on where it was. `python -m experiments.story.workloads --commit` writes
the numbers that pages quote.
"""

from functools import partial

from experiments.common.parts import Part, run_alone
from experiments.story import workloads_report
from experiments.story.workloads_runs import Settings, measured


def run(settings: Settings) -> Part:
    """Runs what is missing, writes the figure and the numbers.

    Raises:
        ValueError: Too few workloads fit.
    """
    return workloads_report.part(settings, measured(settings, partial(print, flush=True)))


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
