"""Which method copes best, over uneven workers, skewed data, noise and links, all knobs tuned?

A factorial of scenes: five kinds of workers, rows dealt at random or a class held by the slow
alone, low and high noise, free and dear links. In each scene every method gets the same number of
trials over all of its knobs, scored by the time to the last target on instances that are not shown;
two disjoint sets of instances are. A finished piece is a file: a run that was killed goes on where
it was, to the same bits, and other settings, or another state of the code, never use it. Run it
with `python -m experiments.matrix`; `--full` takes all methods on ten of the scenes.
`--engine processes --workers 8`, or `--engine ray`, computes pieces on the cores of this machine,
or on a cluster.
"""

from collections.abc import Callable
from functools import partial

from experiments.common.parts import Part, run_alone
from experiments.matrix import report
from experiments.matrix.runs import Settings, reported, resolved, searched


def run(settings: Settings, told: Callable[[str], None] = print) -> Part:
    """Runs what is not there yet, writes numbers, tables, figures.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    settings = resolved(settings)
    search = searched(settings, told)
    return report.part(settings, search, reported(settings, search, told))


def main() -> None:
    """Reads the settings from the command line and runs the matrix."""
    run_alone(partial(run, told=partial(print, flush=True)), Settings, __doc__)


if __name__ == "__main__":
    main()
