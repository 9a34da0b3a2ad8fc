"""How long until the gradient is small?

Time complexity of asynchronous rules when all workers hold the same data. All n workers hold f(x) =
x^T A x / 2 - b^T x with A = tridiag(-1, 2, -1) / 4, the badly conditioned quadratic of this
literature, and return its gradient plus Gaussian noise. A run ends when the exact gradient norm
first reaches the target; its score is the simulated time. Pure asynchronous, Rennala, Ringmaster,
synchronous and fastest-m servers get the same grid of step sizes and the same grid for their own
parameter (b, R, m). Those without a parameter, or with fewer values of it, try as many settings:
further steps around their best one. The best is chosen on some instances, and two disjoint sets of
others are reported.

The optimal times that are drawn beside the measured ones are recalled from the literature (Tyurin,
Richtárik 2023), with constants dropped: only their shape over n, noise and speeds is meant.

A run that has not reached the target is prolonged threefold until it ends after the best time of
its method, or the horizon. A run that was stopped goes on where it was: every cell is kept in the
output folder.
"""

from experiments.asynchronous import time_complexity_report
from experiments.asynchronous.time_complexity_runs import CANDIDATES, Scores, Settings, kept_cell
from experiments.common.lanes import compile_quickly
from experiments.common.parts import Part, run_alone


def run(settings: Settings) -> Part:
    """Runs all settings, writes figures and numbers."""
    scores: Scores = {}
    for speeds in settings.speeds:
        found = {n: kept_cell(settings, speeds, n) for n in settings.workers}
        for level in range(len(settings.noise)):
            for n in settings.workers:
                scores |= {(speeds, level, n, m): found[n][m][level] for m in CANDIDATES}
    return time_complexity_report.part(settings, scores)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    compile_quickly()
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
