"""Where do bias removal and a learned order gain more together? A map, and a rule of thumb.

The regression scene over how many times slower the old machines are, which share of the rows is
dealt by label (the old hold the one, the new the other), and how many rows a unit has, by which the
noise of a gradient falls. In each cell six arms are tuned alike and run on instances apart; what is
shown is the time of Rescaled steps with an order of each worker's own over that of the best of the
others, which is picked on the reported instances, so that the map errs against the pair.

A cell is written when it is measured; run it again with the same settings and it goes on.
"""

from dataclasses import replace

from experiments.common.parts import Part, run_alone
from experiments.joint import phases_report as report
from experiments.joint.phases_runs import Settings, measured


def run(settings: Settings) -> Part:
    """Measures the map, writes figures and numbers.

    Raises:
        ValueError: A number is out of range.
    """
    if settings.quick:
        settings = replace(
            settings,
            unevenness=(1.0, 4.0),
            skew=(0.0, 1.0),
            rows=(1, 16),
            horizon=300.0,
            instances=4,
        )
    return report.part(settings, dict(measured(settings)))


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
