"""The workload that part 14 tells in detail: numbers that are committed, rows of its tables."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.common import numbers

NAME = "story"
COMMAND = "python -m experiments.story --commit"
CURVES = ("time", "loss")  # not committed: nothing quotes them
NEVER = "not reached"
NAMED = {"waits for 4": "waits for 4 gradients"}
PLANNED = "synchronous, planned k"
SCHEDULERS = {"PD-ORS": "PD-ORS", "DRF": "DRF", "goodput": "marginal goodput"}
# Digits behind the point of the last loss, by problem.
DIGITS = {"network": 2, "logistic regression": 3}

Found = Mapping[str, Any]


def commit(found: Found) -> None:
    """Writes the numbers of a run where committed ones are.

    Args:
        found: As `report.numbers` has them.
    """
    jobs = {
        name: dict(job)
        | {
            "choices": {
                choice: {key: value for key, value in own.items() if key not in CURVES}
                for choice, own in job["choices"].items()
            }
        }
        for name, job in found["jobs"].items()
    }
    numbers.save(NAME, {"jobs": jobs, "schedules": found["schedules"]}, command=COMMAND)


def held(own: Found, time: float) -> float:
    """GPU-slots held until a time; a slot that has begun counts.

    Example:
        >>> held({"crews": [2, 1, 3], "gpu_slots": 24.0}, 1.5)
        12.0
    """
    if not math.isfinite(time):
        return math.inf
    each = own["gpu_slots"] / sum(own["crews"])
    return each * sum(own["crews"][: math.ceil(time)])


def spread(values: Sequence[float], digits: int) -> str:
    """Median and quartiles.

    Example:
        >>> spread([3.84, 3.69, 4.0, math.inf, 3.7], 1), spread([math.inf] * 5, 1)
        ('3.8 (3.7–4.0)', 'not reached')
    """
    low, middle, high = np.percentile(values, [25, 50, 75], method="nearest")
    if not math.isfinite(middle):
        return NEVER
    last = f"{high:.{digits}f}" if math.isfinite(high) else "never"
    return f"{middle:.{digits}f} ({low:.{digits}f}–{last})"


def short(value: float) -> str:
    """Three digits of a whole number.

    Example:
        >>> short(1016.0)
        '1,020'
    """
    return f"{float(f'{value:.3g}'):,.0f}"


def rows(found: Found) -> Iterator[str]:
    """Rows of both tables of the page.

    Args:
        found: The committed numbers.
    """
    jobs = {task: found["jobs"][task] for task in DIGITS}
    for choice in map(str, jobs["network"]["choices"]):
        both = [job["choices"][choice] for job in jobs.values()]
        name = NAMED.get(choice, choice)
        if choice == PLANNED:
            name += f" ({'; '.join(str(own['awaited']) for own in both)})"
        cells = [name]
        for own, digits in zip(both, DIGITS.values(), strict=True):
            middle = float(np.median([held(own, time) for time in own["to_target"]]))
            used, computed = (f"{int(np.median(own[key])):,}" for key in ("used", "computed"))
            cells += [
                spread(own["to_target"], 1),
                short(middle) if math.isfinite(middle) else "",
                f"{used} of {computed}" if choice == PLANNED else used,
                spread(own["final"], digits),
            ]
        yield _row(cells)
    for name, own in found["schedules"].items():
        cells = [SCHEDULERS[name], f"{own['utility']:.0f} ({own['completed']})"]
        for job in jobs.values():
            one = next(c for c in job["choices"].values() if c["scheduler"] == name)
            crews = " ".join(map(str, one["crews"]))
            cells.append(f"{crews}; {one['budget']:.1f}; {short(one['gpu_slots'])}")
        yield _row(cells)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")
