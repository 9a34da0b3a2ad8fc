"""A job that a scheduler places: what is each part worth, and all together?

Machines of two generations, which no scheduler knows; jobs arrive; PD-ORS (choosing servers, its
floor tuned), DRF or marginal goodput places them. The schedule of one job is the clock on which it
trains a logistic regression whose shards lie at machines of either generation and differ in labels.
The full set: PD-ORS, whoever delivers is asked again, Rescaled steps, an order of each shard's own
(where the link is the limit: fastest (k, load) with one balance for all). Each part is replaced
alone, and all by plain choices. All knobs of all arms are tuned with equally many trials, for each
target and for the gap at the end, on instances that are not shown.

A place is written when it is measured; run it again with the same settings and it goes on.
"""

from dataclasses import replace

from experiments.common.parts import Part, run_alone
from experiments.joint.placed import report
from experiments.joint.placed.runs import Settings, all_measured


def run(settings: Settings) -> Part:
    """Measures both places, writes figures and numbers.

    Raises:
        ValueError: A number is out of range.
    """
    if settings.quick:
        settings = replace(settings, instances=4, tuning=2, floors=4)
    return report.part(settings, all_measured(settings))


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)
