"""Steps for those who cannot tune: chosen on one pattern of delays, used on another.

Delay-adaptive steps promise safety where nobody knows the delays. So each rule's one step size is
chosen on one law of delays and used on five others, by three algorithms (PIAG, Async-BCD, plain
asynchronous SGD) on up to three problems. Four further scenes: the theory step, with nothing tuned;
a worker that becomes ten times slower during the run; one that becomes as fast as the others; one
that stalls for long. How often does each rule diverge, or need more than twice the updates that it
needs with a step chosen on the law itself?

Rules: a constant; one divided by the longest delay of the run, which it is told; Adaptive 1 and 2
(Wu, Magnússon, Feyzmahdavian, Johansson 2022, arXiv 2202.08550); steps scaled by 1 / (delay + 1),
by (delay + 1)^-1/2 and by the hinge of FedAsync (slope 10 from a delay of 4 on). All have as many
trials on instances that are not reported.
"""

from collections.abc import Iterable

from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART
from experiments.common import numbers
from experiments.common.parts import Part, run_alone, written
from experiments.delay_adaptive import transfer_report
from experiments.delay_adaptive.transfer_runs import Settings, outcomes
from experiments.delay_adaptive.transfer_tasks import LAWS, SCENES

NUMBERS = "delay_adaptive_transfer"
DIGITS = 4
UNTUNED_CLAIM = "at its theory step a rule never diverges"
TITLE = "Steps for those who cannot tune: chosen on one pattern of delays, used on another"


def run(settings: Settings) -> Part:
    """Runs everything, writes figures and numbers.

    Args:
        settings: What is run; a scene needs the law on which its step is chosen.

    Raises:
        ValueError: A law or a scene is not known, or a scene lacks its law.
    """
    for name, given, known in (
        ("laws", settings.laws, LAWS),
        ("scenes", settings.scenes, tuple(SCENES)),
        ("laws", {SCENES[scene] for scene in settings.scenes if scene in SCENES}, settings.laws),
    ):
        if missing := set(given) - set(known):
            raise ValueError(f"{name} must be among {', '.join(known)}, got {min(missing)!r}")
    found = transfer_report.numbers(settings, outcomes(settings))
    found = numbers.rounded(found, DIGITS)  # tables are made of what is committed
    if settings.commit:
        command = "python -m experiments.delay_adaptive.transfer --commit"
        numbers.save(NUMBERS, found, command=command, digits=DIGITS)
    return written(
        settings.output,
        "transfer",
        TITLE,
        transfer_report.figures(found),
        (
            transfer_report.carried_table(found),
            transfer_report.verdict_table(found),
            transfer_report.scene_table(found),
            transfer_report.case_table(found),
            transfer_report.trial_table(found),
        ),
        found,
        note=FIRST_CROSSING,
    )


def untuned(diverged: Iterable[float]) -> dict[str, str]:
    """Whether a rule never diverges at its theory step; a condition an algorithm.

    Runs are counted, nothing is estimated: a condition holds if no run diverged.

    Args:
        diverged: Share of the runs that did, an algorithm each.

    Example:
        >>> [*untuned([0.0, 0.0]).values(), *untuned([0.0, 0.01]).values()]
        ['holds', 'in part']
    """
    shares = list(diverged)
    clean = sum(share == 0 for share in shares)
    return {UNTUNED_CLAIM: FAILS if clean == 0 else HOLDS if clean == len(shares) else IN_PART}


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
