"""Fastest-k SGD on real losses.

What adapting k and the load buys in time, computation and communication.

Linear and logistic regression, 50 workers with 40 rows each, simulated response times. Plans made
from the constants of the data run against plans of k alone, fixed pairs, and the wider family: sign
and distance tests, AdaSync, deadlines, drop-compute, backup workers. First plans
run as they are prescribed, at the step that they are made for; then every method has all of its
knobs tuned, with equal trials, by the time to the last target, on instances that are not shown. An
instance draws the rows and the first model; two disjoint sets of instances are reported.

A run that was stopped goes on where it was: every case is kept in the output folder.
"""

from functools import partial

from asyncjax.study.protocol import FIRST_CROSSING
from experiments.common import numbers
from experiments.common.parts import Part, run_alone, written
from experiments.stragglers import training_report
from experiments.stragglers.tasks import PROBLEMS, Settings
from experiments.stragglers.training_report import ALONE
from experiments.stragglers.training_runs import laws, run_case, run_cases

NUMBERS = "straggler_training"
DIGITS = 4
TITLE = "On real losses: faster, less computation, slightly more communication?"


def run(settings: Settings) -> Part:
    """Runs all methods on all problems and laws, writes figures and numbers.

    Raises:
        ValueError: A case is not known.
    """
    known = laws(settings)
    for case in (*settings.cases, *settings.family_cases):
        name, _, law = case.partition(", ")
        if name not in PROBLEMS or law not in known:
            raise ValueError(
                f"cases must be a problem ({', '.join(PROBLEMS)}) and a law ({', '.join(known)}),"
                f" got {case!r}"
            )
    told = partial(print, flush=True)
    cells = run_cases(settings, lambda case: run_case(settings, case, told), settings.cases, told)
    found = numbers.rounded(training_report.numbers(settings, cells), DIGITS)
    if settings.commit:
        command = "python -m experiments.stragglers.training --commit"
        numbers.save(NUMBERS, found, command=command, digits=DIGITS)
    pairs = {
        "at the plans' step": ("prescribed", ALONE),
        "every knob tuned": ("tuned", ALONE),
        "tuned, over the fastest fixed pair": ("tuned", ""),
    }
    first = settings.cases[0]
    drawings = (
        (
            "ratios",
            training_report.ratio_figure(found, pairs, "time of k and load, ratio"),
            "Time of the plan of k and load over that of k alone, and over that of the fastest"
            " fixed pair: geometric means over instances and their 95 % intervals.",
        ),
        (
            "uplinks",
            training_report.uplinks_figure(found, first),
            f"{first}, at the plans' step: uplinks of the plan of k and load over those of k alone,"
            " an instance a point, by how far down the bound the two had gone when they arrived.",
        ),
    )
    tables = training_report.tables(found)
    return written(
        settings.output,
        "straggler_training",
        TITLE,
        drawings,
        tables,
        found,
        note=FIRST_CROSSING,
    )


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
