"""What the plans on the bound say: ratios, verdicts, and the numbers that pages quote.

Nothing is drawn, so a condition is a number below a bound, without an interval. A claim has a
condition for every law and target: it holds if all do, in part if some, and else it does not hold.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.study.statistics import Condition, Difference, verdict
from experiments.stragglers.training_report import ALONE, BOTH, MUCH_LESS, SLIGHTLY_MORE

CLAIMS = {  # by name: the cost that is compared with that of k alone, and the bound
    "adapting k and load is faster than adapting k alone": ("time", 1.0),
    "with much less computation": ("samples_assigned", MUCH_LESS),
    "and slightly more communication": ("uplinks", SLIGHTLY_MORE),
}
COSTS = ("time", "samples_assigned", "samples_used", "uplinks", "broadcasts")
HEADS = ("time", "assigned", "used", "uplinks", "broadcasts")
Ratios = Mapping[str, Mapping[str, Mapping[str, float]]]  # law, target, cost


def ratios_of(numbers: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Costs of the plan of k and load over those of k alone, by law, target and cost."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, plans in numbers["plans"].items():
        law, _, target = name.rpartition(", ")
        own = {cost: plans[BOTH][cost] / plans[ALONE][cost] for cost in COSTS}
        found.setdefault(law, {})[target] = own
    return found


def verdicts(ratios: Ratios) -> dict[str, str]:
    """The verdict of each claim.

    Example:
        >>> one = dict.fromkeys(COSTS, 0.5)
        >>> other = one | {"uplinks": 1.2}
        >>> list(verdicts({"a law": {"400": one, "1200": other}}).values())
        ['holds', 'holds', 'in part']
    """
    return {
        claim: verdict(
            [
                Condition(f"{law}, {target}: {cost}", _exact(float(np.log(own[cost] / bound))))
                for law, by_target in ratios.items()
                for target, own in by_target.items()
            ]
        )
        for claim, (cost, bound) in CLAIMS.items()
    }


def _exact(value: float) -> Difference:
    """A difference that is known: its interval is itself."""
    return Difference(value, value, value, float(value < 0), 1)


def committed(numbers: Mapping[str, Any], targets: Sequence[float], shown: str) -> dict[str, Any]:
    """What is committed: ratios, verdicts, and the spans that pages quote.

    Args:
        numbers: Of the part.
        targets: Samples an update, loose, middle, tight.
        shown: The law of the prices.
    """
    ratios = ratios_of(numbers)
    middle = f"{targets[len(targets) // 2]:g}"
    every = [own for by_target in ratios.values() for own in by_target.values()]
    times = {law: numbers["plans"][f"{law}, {middle}"] for law in ratios}
    rivals = {
        name: _span([plans[name]["time"] / plans[BOTH]["time"] for plans in times.values()])
        for name in next(iter(times.values()))
        if all("time" in plans[name] for plans in times.values())
    }
    slight = [law for law, own in ratios.items() if max(r["uplinks"] for r in own.values()) < 1.2]
    return {
        "targets": [f"{target:g}" for target in targets],
        "laws": list(ratios),
        "ratios": ratios,
        "verdicts": verdicts(ratios),
        "spans": {cost: _span([own[cost] for own in every]) for cost in COSTS},
        "middle uplinks": _span([own[middle]["uplinks"] for own in ratios.values()]),
        "slight": {
            "laws": len(slight),
            "uplinks": _span([r["uplinks"] for law in slight for r in ratios[law].values()]),
        },
        "rivals": rivals,
        "ladders": {
            law: {
                name: plan["time"] / times[law][BOTH]["time"] - 1
                for name, plan in made.items()
                if "time" in plan
            }
            for law, made in numbers["ladders"].items()
        },
        "prices": {
            price: {
                cost: plan[cost] / times[shown][other][cost]
                for cost, other in (
                    ("time", ALONE),
                    ("samples_assigned", ALONE),
                    ("uplinks", ALONE),
                )
            }
            for price, plan in numbers["prices"].items()
        },
    }


def _span(values: Sequence[float]) -> list[float]:
    return [min(values), max(values)]


def page_table(found: Mapping[str, Any]) -> results.Table:
    """The table of experiments/README.md: the middle target, and the loose and tight beside it."""
    loose, middle, tight = found["targets"]
    rows = []
    for law in found["laws"]:
        own = found["ratios"][law]
        cells = [
            f"{own[middle][cost]:{form}} ({own[loose][cost]:{form}} / {own[tight][cost]:{form}})"
            for cost, form in (("time", ".3f"), ("samples_assigned", ".3f"), ("uplinks", ".2f"))
        ]
        used, sent = f"{own[middle]['samples_used']:.3f}", f"{own[middle]['broadcasts']:.2f}"
        rows.append((law, *cells[:2], used, cells[2], sent))
    columns = (results.Column("law of computing", right=False), *map(results.Column, HEADS))
    return results.Table(columns, tuple(rows))
