"""How short do orders keep prefix sums? Fixed vectors, nothing trained.

    max_t | sum_{k <= t} (v_{o(k)} - mean) |    m workers: the sums over all workers at each time

Vectors stand for gradients that do not change. Every epoch the order sees them, and makes the next
one; measured is the largest Euclidean norm of a centred prefix sum. First the orders of one worker,
then those of m workers with m n fixed, then the form that decides blocks of pairs from one running
sum (it needs no gradient per example) against the size of the block.

Sources: Lu, Guo, De Sa 2022, GraB (arXiv 2205.10733); Cooper et al. 2023, CD-GraB (arXiv
2302.00845). What such vectors say of an order is how it ranks, not what training gains.
"""

from dataclasses import replace

from experiments.common import numbers
from experiments.common.parts import Part, run_alone
from experiments.ordering import herding_report
from experiments.ordering.herding_runs import (
    EXACT,
    KINDS,
    ORDERS,
    RESHUFFLING,
    Settings,
    by_block,
    claimed,
    one_worker,
    parallel,
    single,
    vectors_of,
)

DIGITS = 4


def _check(settings: Settings) -> None:
    """Refuses sizes that leave a worker or a block without whole pairs."""
    for name in ("workers", "blocks"):
        for value in getattr(settings, name):
            if value < 1 or settings.n % (2 * value):
                raise ValueError(
                    f"{name} must be divisors of n / 2 = {settings.n / 2:g}, got {value}"
                )
    if not {RESHUFFLING, EXACT} <= set(settings.orders) <= set(ORDERS):
        raise ValueError(
            f"orders must be of {', '.join(ORDERS)}, with {RESHUFFLING} and {EXACT}, got"
            f" {', '.join(settings.orders)}"
        )
    for name in ("seeds", "epochs", "dim", "claimed_epochs"):
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(settings, name)}")


def run(settings: Settings) -> Part:
    """Measures everything, writes figures and numbers.

    Raises:
        ValueError: A number of workers or a block does not divide n / 2, or a count is below 1.
    """
    if settings.full:
        settings = replace(settings, n=4 * settings.n, dim=4 * settings.dim, seeds=10)
    _check(settings)
    vectors, keys = vectors_of(settings)
    alone = single(settings, vectors, keys)
    found = herding_report.Found(
        kinds=tuple(KINDS),
        single=alone,
        parallel={
            m: one_worker(alone) if m == 1 else parallel(settings, vectors, keys, m)
            for m in settings.workers
        },
        blocks={pairs: by_block(settings, vectors, keys, pairs) for pairs in settings.blocks},
    )
    judged = numbers.rounded(claimed(settings), DIGITS)
    if settings.commit:
        command = "python -m experiments.ordering.herding --commit"
        made = herding_report.committed(found, judged)
        numbers.save("herding", made, command=command, digits=DIGITS)
    return herding_report.part(settings, found, judged)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
