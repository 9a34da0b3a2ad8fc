"""What does each admission rule of rollouts cost: idleness, age, waste, bias?

Generators with many slots make samples of uneven lengths, a trainer takes batches of them. Every
rule faces the same samples. Compared are steps a time, who idles, how old what is trained is, what
is thrown away, and whether long samples are heard, for three laws of lengths and several bounds
eta. Then: is age <= eta, as the settings of several frameworks say? How many slots are enough?

No model is involved. What the ages do to learning is the part `learning`.
"""

from experiments.common.parts import Part, run_alone
from experiments.rollouts import admission_report
from experiments.rollouts.admission_runs import Settings, checked, run_all


def run(settings: Settings) -> Part:
    """Runs all rules, writes figures and numbers.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    checked(settings)
    return admission_report.part(settings, run_all(settings))


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
