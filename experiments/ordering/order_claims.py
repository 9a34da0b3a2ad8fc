"""What the numbers of orders on networks say, by rule, for each of two sets of instances."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.study.statistics import (
    Condition,
    Difference,
    disagreements,
    paired,
    verdict,
)
from experiments.ordering.epoch_costs import BYTES, CPU, EPOCHS, FLOPS, MACHINE, SENT
from experiments.ordering.ordered_networks_runs import ALONE, BASELINE, COORDINATED, LEVELS

SETS = ("A", "B")
UNITS = (EPOCHS, FLOPS, BYTES, SENT, CPU)
LOWER, THAN_ALONE = "CD-GraB ends lower than D-RR", "CD-GraB ends lower than independent"
TESTED = "CD-GraB ends with a better test than D-RR"
SOONER = "CD-GraB is sooner at the lowest loss of D-RR"
LATE = 2.0  # times the epochs that were watched: when those are there that were not by then
Found = Mapping[str, Any]


def logarithm(first: ArrayLike, second: ArrayLike) -> Difference:
    """Logarithm of first over second, over instances.

    Example:
        >>> round(logarithm([1.0, 2.0], [2.0, 4.0]).mean, 3)
        -0.693
    """
    return paired(np.log(first), np.log(second))


def ratio_text(difference: Difference) -> str:
    """A ratio and its interval.

    Example:
        >>> ratio_text(Difference(0.0, -0.1, 0.1, 0.5, 9))
        '1.00 (0.90 to 1.11)'
    """
    values = np.exp([difference.mean, difference.low, difference.high])
    return "{} ({} to {})".format(*map(_short, values))


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def price_of(found: Found, unit: str, order: str = COORDINATED) -> float:
    """An epoch of CD-GraB in those of D-RR; flops, bytes and numbers sent of one of m machines.

    Args:
        found: With `prices` or, by order, `price`; and `costs`.
        unit: One of `UNITS`.
        order: Another order has no price but that of this CPU.
    """
    if unit == EPOCHS:
        return 1.0
    if unit == CPU:
        if "prices" in found:
            return float(found["prices"][order][0])
        return float(found["orders"][order]["price"][0])
    if order != COORDINATED:
        return float("nan")
    if unit == SENT:
        return float(found["costs"]["sent ratio"])
    return float(found["costs"]["ratio"][MACHINE][(FLOPS, BYTES).index(unit)])


def arrival(
    found: Found, which: str, level: int, unit: str, order: str = COORDINATED
) -> Difference:
    """Logarithm of what an order needs to a level over what D-RR does.

    Both are watched for as many epochs. D-RR is there by the last, since the target is its own
    loss; so one that is not counts as there after `LATE` times as many, not at the last, where it
    would be as early as D-RR. Then epochs are priced.
    """
    horizon, times = found["sizes"]["epochs"], found["sets"][which]
    epochs = [np.asarray(times[name]["epochs"][level], float) for name in (order, BASELINE)]
    own, base = (np.where(np.isfinite(one), one, LATE * horizon) for one in epochs)
    return logarithm(own * price_of(found, unit, order), base)


def network_conditions(found: Found, which: str) -> dict[str, list[Condition]]:
    """Losses, tests and arrivals of networks, a condition a task.

    Args:
        found: By task, as `ordered_networks_runs.measured` has it, with `costs`.
        which: The set.
    """
    made: dict[str, list[Condition]] = {LOWER: [], THAN_ALONE: [], TESTED: []}
    for task, own in found.items():
        runs = own["sets"][which]
        loss = {name: run["loss"] for name, run in runs.items()}
        made[LOWER].append(Condition(task, logarithm(loss[COORDINATED], loss[BASELINE])))
        made[THAN_ALONE].append(Condition(task, logarithm(loss[COORDINATED], loss[ALONE])))
        sign = -1.0 if own["sizes"]["metric"] == "test_accuracy" else 1.0
        scores = [sign * np.array(runs[name]["metric"]) for name in (COORDINATED, BASELINE)]
        made[TESTED].append(Condition(task, paired(scores[0], scores[1])))
    for unit in UNITS:
        for place, level in enumerate(LEVELS):
            claim = sooner(unit, level)
            made[claim] = [
                Condition(task, arrival(own, which, place, unit)) for task, own in found.items()
            ]
    return made


def sooner(unit: str, level: float) -> str:
    """The claim that CD-GraB arrives first, by a unit.

    Example:
        >>> sooner("flops", 0.5)
        'CD-GraB is sooner at 50 % of the way, by flops'
    """
    where = (
        SOONER
        if level == 1.0
        else f"CD-GraB is sooner at {level:.0%} of the way".replace("%", " %")
    )
    return f"{where}, by {unit}"


def network_verdicts(found: Found) -> dict[str, dict[str, str]]:
    """The verdicts on networks of each set."""
    return {which: _said(network_conditions(found, which)) for which in SETS}


def _said(conditions: Mapping[str, Sequence[Condition]]) -> dict[str, str]:
    return {claim: verdict(own) for claim, own in conditions.items() if own}


def verdict_rows(found: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str, str]]:
    """Claims and their verdicts of both sets."""
    return [(claim, found["A"][claim], found["B"][claim]) for claim in found["A"]]


def differing(found: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, str]]:
    """Claims on which the sets disagree."""
    return disagreements(found["A"], found["B"])
