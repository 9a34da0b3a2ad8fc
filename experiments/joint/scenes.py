"""Do bias removal and a learned order gain more together than each alone?

Four scenes in which the old half of a crew is slow and holds labels of its own, so that whoever
steps on every arrival hears it too seldom, and in which the noise of single rows is the limit.
*Rescaled* steps (in proportion to a worker's measured time) take the bias away; an order learned
from gradients (GraB, one a worker) lowers the noise. Eleven arms are tuned alike, an own step for
each target, and run on two disjoint sets of instances (rows, speeds, first model drawn anew).

A scene is written when it is measured; run it again with the same settings and it goes on.
"""

from dataclasses import replace

from experiments.common.parts import Part, run_alone
from experiments.joint import scenes_report as report
from experiments.joint.scenes_runs import Settings, measured, scenes_of


def run(settings: Settings) -> Part:
    """Measures the scenes, writes figures and numbers.

    Raises:
        ValueError: A name or a number is out of range.
    """
    if settings.quick:
        settings = replace(settings, instances=min(settings.instances, 4), tuning=2)
    return report.part(
        settings, {scene.name: measured(settings, scene) for scene in scenes_of(settings)}
    )


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
