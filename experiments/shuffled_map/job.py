"""Where does shuffled dispatch get further than pure in the same time?

Workers of very different speed; the slow half alone holds one of two classes (AsGrad's setting).
Pure dispatch hears fast workers more often, so it ends at the optimum of another problem; shuffled
dispatch hears all alike, and so makes fewer updates in the same time. Both get the same trials of
their step size, for every unevenness and every horizon by itself, on instances that are not shown;
what is shown are two disjoint sets of instances. The map tells who is ahead, and where they cross.

A run that was stopped goes on where it was: every cell is kept in the output folder.

Source: Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452).
"""

from functools import partial

from experiments.common.parts import Part, run_alone
from experiments.shuffled_map import report
from experiments.shuffled_map.runs import Settings, run_cells


def run(settings: Settings) -> Part:
    """Runs all cells that are missing, writes figures and numbers."""
    return report.part(settings, run_cells(settings, partial(print, flush=True)))


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
