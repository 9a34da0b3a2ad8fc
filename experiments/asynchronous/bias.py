"""Who is biased? Quadratics whose optima are known, and workers that are unequally fast.

Worker i holds f_i(x) = sum_j (a_ij x_j^2 / 2 - b_ij x_j) and takes s_i for a job, the times 1, ...,
n dealt to the workers. The model should go to the minimum of the mean of the f_i. A rule that lets
fast workers count more goes elsewhere: pure dispatch to the minimum of sum_i f_i / s_i, whatever
the step size. Measured are the distances to both points against time, and their floors against the
step size. An instance draws a_ij, b_ij and who has which time; gradients are exact. Two disjoint
sets of instances are reported; all methods get the same grid of steps.

Source of the methods: Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452), and those named
in `bias_runs.methods`.
"""

from experiments.asynchronous import bias_report
from experiments.asynchronous.bias_runs import Settings, run_methods
from experiments.common.lanes import compile_quickly
from experiments.common.parts import Part, run_alone


def run(settings: Settings) -> Part:
    """Runs everything, writes figures and numbers."""
    return bias_report.part(settings, run_methods(settings))


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    compile_quickly()
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
