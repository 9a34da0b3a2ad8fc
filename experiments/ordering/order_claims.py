"""What is claimed of orders, as conditions on numbers, for each of two disjoint sets of instances.

Verdicts follow by rule from numbers that are committed: gaps of
convex problems, losses of networks. Ratios are compared by their logarithms, paired by instance.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from asyncjax import results
from asyncjax.results import plots
from asyncjax.study.statistics import (
    Condition,
    Difference,
    disagreements,
    paired,
    verdict,
)
from experiments.common import numbers
from experiments.common.parts import Part, written
from experiments.ordering import epoch_costs
from experiments.ordering.epoch_costs import MACHINE
from experiments.ordering.ordered_networks_runs import ALONE, BASELINE, COORDINATED, LEVELS

SETS = ("A", "B")
EPOCHS, CPU = "epochs", "time of this CPU"
FLOPS, BYTES, SENT = "flops", "bytes", "numbers sent"
UNITS = (EPOCHS, FLOPS, BYTES, SENT, CPU)
LOWER, THAN_ALONE = "CD-GraB ends lower than D-RR", "CD-GraB ends lower than independent"
TESTED = "CD-GraB ends with a better test than D-RR"
SOONER = "CD-GraB is sooner at the lowest loss of D-RR"
LATE = 2.0  # times the epochs that were watched: when those are there that were not by then
CELLS = ("1 worker", "8 workers", "64 workers", "mortgages")
ORDERS = (BASELINE, "GraB", ALONE, COORDINATED)
NAME, DIGITS = "ordered_instances", 5
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


def gap_conditions(found: Found, which: str) -> dict[str, list[Condition]]:
    """Final gaps of convex problems.

    Args:
        found: By cell `orders`, each with `gap` by set, and with `curves` and `price` if timed.
        which: The set.
    """
    made: dict[str, list[Condition]] = {LOWER: [], THAN_ALONE: []}
    for cell, own in found.items():
        gaps = {name: order["gap"][which] for name, order in own["orders"].items()}
        for claim, other in ((LOWER, BASELINE), (THAN_ALONE, ALONE)):
            if other in gaps:
                made[claim].append(Condition(cell, logarithm(gaps[COORDINATED], gaps[other])))
    for unit in UNITS[1:]:
        own = [
            Condition(cell, in_equal_time(cell_found, which, unit))
            for cell, cell_found in found.items()
            if "costs" in cell_found
        ]
        if own:
            made[f"{LOWER}, for equal {unit}"] = own
    return made


def in_equal_time(found: Found, which: str, unit: str, order: str = COORDINATED) -> Difference:
    """Gap of an order over that of D-RR, after the epochs that fit into the cost of all of D-RR."""
    curve, base = (np.array(found["orders"][n]["curves"][which]) for n in (order, BASELINE))
    count = base.shape[1]
    last = max(1, min(count, int(count / price_of(found, unit, order))))
    return logarithm(curve[:, last - 1], base[:, -1])


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


def gap_verdicts(found: Found) -> dict[str, dict[str, str]]:
    """The verdicts on convex problems of each set."""
    return {which: _said(gap_conditions(found, which)) for which in SETS}


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


def convex_part(settings: Any, found: Found) -> Part:
    """Tables, figure, verdicts and numbers of convex problems on two sets of instances.

    Args:
        settings: With `output` and `commit`.
        found: By cell, as `ordered_instances.measured` has it; where it was timed compiled costs
            are added.
    """
    timed = {
        cell: {"costs": epoch_costs.of_logistic(own["dimension"], *own["sizes"][::2])}
        for cell, own in found.items()
        if own["orders"][BASELINE]["price"]
    }
    kept = {cell: own | timed.get(cell, {}) for cell, own in found.items()}
    kept = numbers.rounded(kept, DIGITS)
    said = gap_verdicts(kept)
    small = {
        cell: own
        | {
            "orders": {
                name: {key: value for key, value in order.items() if key != "curves"}
                for name, order in own["orders"].items()
            }
        }
        for cell, own in kept.items()
    }
    ratios = {cell: {which: _ratios(own, which) for which in SETS} for cell, own in kept.items()}
    made = {
        "cells": small,
        "verdicts": said,
        "disagreements": {k: list(v) for k, v in differing(said).items()},
        "ratios": ratios,
    }
    if settings.commit:
        command = "python -m experiments.ordering.ordered_instances --commit"
        numbers.save(NAME, made, command=command, digits=DIGITS)
    both = " and ".join(dict.fromkeys(said[which][LOWER] for which in SETS))
    text = "f - f* of mortgages against epochs, set A, at the steps chosen; bands: quartiles."
    return written(
        settings.output,
        NAME,
        "Do coordinated orders end lower on convex problems? Two sets of instances",
        [("", _mortgages(kept["mortgages"]), text)] if "mortgages" in kept else [],
        (gap_table(made), convex_verdicts(made)),
        made,
        f"That {LOWER}: {both}.",
    )


def _ratios(own: Found, which: str) -> dict[str, dict[str, float]]:
    """Mean and ends of D-RR's gap over an order's; of CD-GraB for equal cost too, where timed."""
    base = own["orders"][BASELINE]["gap"][which]
    found = {
        name: logarithm(base, order["gap"][which])
        for name, order in own["orders"].items()
        if name != BASELINE
    }
    if "costs" in own:
        for unit in UNITS[1:]:
            one = in_equal_time(own, which, unit)
            found[unit] = Difference(-one.mean, -one.high, -one.low, 1 - one.lower, one.count)
    return {
        name: {"ratio": float(np.exp(d.mean)), "low": float(np.exp(d.low))}
        | {"high": float(np.exp(d.high))}
        for name, d in found.items()
    }


def _step(value: float) -> str:
    return f"{value:.3g}"


def gap_table(made: Found) -> results.Table:
    """Final gaps of all orders, and how many times lower than D-RR's they are."""
    columns = (
        results.Column("problem", right=False),
        results.Column("order", right=False),
        results.Column("step", format=_step),
        results.Column("trials", format=str),
        results.Column("f - f*, A"),
        results.Column("D-RR / this, set A", right=False),
        results.Column("set B", right=False),
    )
    rows = []
    for cell in (cell for cell in CELLS if cell in made["cells"]):
        own = made["cells"][cell]["orders"]
        for name in (name for name in ORDERS if name in own):
            ratios = [made["ratios"][cell][which].get(name) for which in SETS]
            texts = ["1" if one is None else _times(one) for one in ratios]
            gap = float(np.exp(np.mean(np.log(own[name]["gap"]["A"]))))
            first = cell if name == BASELINE else ""
            rows.append((first, name, own[name]["step"], own[name]["trials"], gap, *texts))
        rows += [
            (
                *("", f"{COORDINATED}, equal {unit}", own[COORDINATED]["step"], "", None),
                *(_times(made["ratios"][cell][which][unit]) for which in SETS),
            )
            for unit in UNITS[1:]
            if unit in made["ratios"][cell]["A"]
        ]
    return results.Table(
        columns,
        tuple(rows),
        "f - f* after the last epoch, geometric means over the instances of a set (intervals of"
        " 95 %). Equal flops, bytes, numbers sent, time: after the epochs that fit into those of"
        " all epochs of D-RR. With 1 worker CD-GraB is pair balance.",
    )


def _times(ratio: Mapping[str, float]) -> str:
    return "{} ({} to {})".format(*(f"{ratio[key]:.3g}" for key in ("ratio", "low", "high")))


def convex_verdicts(made: Found) -> results.Table:
    """Claims and verdicts of both sets."""
    columns = tuple(results.Column(name, right=False) for name in ("claim", "set A", "set B"))
    rows = verdict_rows(made["verdicts"])
    return results.Table(columns, tuple(rows), "Verdicts; each has a condition a problem.")


def _mortgages(own: Found) -> Any:
    """Gaps of all orders against epochs, and those of CD-GraB against what they cost."""
    lines = []
    for name in (name for name in ORDERS if name in own["orders"]):
        curve = np.array(own["orders"][name]["curves"]["A"])
        spread = results.median_and_spread(curve.T)
        epochs = np.arange(1, curve.shape[1] + 1)
        lines.append(results.Series(name, epochs, spread.median, spread.low, spread.high))
    return plots.curves(
        lines, x_label="epochs", y_label="gap f - f*", title="Mortgage applications", log_y=True
    )
