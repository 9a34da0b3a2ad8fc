"""What do age and correction do to learning?

A small transformer learns to copy, by policy gradients, from samples that it has made itself, in
old versions. What a sample takes is what the policy writes, in slots of unequal speed. Rules are
compared with one correction, corrections under one rule, at equal simulated time, all tuned alike.
"""

from experiments.common.parts import Part, run_alone
from experiments.rollouts import learning_report
from experiments.rollouts.learning_runs import Settings, checked, run_all


def run(settings: Settings) -> Part:
    """Runs all arms, writes the figure and the numbers.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    checked(settings)
    return learning_report.part(settings, run_all(settings))


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
