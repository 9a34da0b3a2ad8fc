"""Plans as text: the stages of one, and what several cost beside each other.

A comparison answers for a person's own law whether a second knob, the load, is worth it: the plan of
(k, load), the plan of k alone at the largest load, and the best fixed pair, at the same target.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax.clocks.clock import Clock
from asyncjax.stragglers.bounds import ErrorBound
from asyncjax.stragglers.planning import Plan, plan
from asyncjax.stragglers.response_times import Response

_COSTS = ("time", "n_updates", "samples_assigned", "samples_used", "uplinks", "broadcasts")


def report(stages: Plan) -> str:
    """Writes the stages of a plan and its costs, a line each.

    Args:
        stages: a plan.

    Returns:
        Text in aligned columns. It says so where the target cannot be reached, and what can.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(
        ...     step_size=0.2, smoothness=1.0, strong_convexity=1.0, noise_variance=40.0,
        ...     initial_error=2.5,
        ... )
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> print(report(stragglers.plan(times, bound, load=2.0, target=0.6)))
        k  load  from time   error  to error  updates  time an update
        2     2          0     2.5     1.389     6.05          0.2917
        3     2      1.764   1.389    0.8472    6.213          0.5417
        4     2       5.13  0.8472       0.6    5.578           1.042
        target 0.6 reached at time 10.94 after 17.84 updates; samples assigned 142.7, used 106.1;
        uplinks 53.05, broadcasts 71.36
    """
    head = ("k", "load", "from time", "error", "to error", "updates", "time an update")
    columns = (
        stages.k,
        stages.load,
        stages.start_time,
        stages.start_error,
        stages.end_error,
        stages.updates,
        stages.completion,
    )
    rows = [[_number(value) for value in row] for row in zip(*columns, strict=True)]
    lines = _aligned([list(head), *rows]) if rows else ["no stages"]
    if not stages.reachable:
        least = f", the least floor is {_number(stages.floor[-1])}" if stages.floor.size else ""
        return "\n".join([*lines, f"target {_number(stages.target)} cannot be reached{least}"])
    costs = {name: _number(getattr(stages, name)) for name in _COSTS}
    return "\n".join(
        [
            *lines,
            f"target {_number(stages.target)} reached at time {costs['time']} after "
            f"{costs['n_updates']} updates; samples assigned {costs['samples_assigned']}, used "
            f"{costs['samples_used']};",
            f"uplinks {costs['uplinks']}, broadcasts {costs['broadcasts']}",
        ]
    )


def compared(
    times: Response | Clock, bound: ErrorBound, *, k: Any = None, load: Any, target: float
) -> dict[str, Plan]:
    """Makes the plans that a second knob must be compared with, all to one target.

    Args:
        times: a response, or a clock.
        bound: constants of the error bound.
        k: counts that may be waited for; None for 1 .. n.
        load: loads that may be asked, samples; the largest is the full load.
        target: error to reach, positive.

    Returns:
        Plans by name: "k and load", "k alone" (full load), "best fixed" (the one pair that reaches
        the target first; the one with the least floor if none does).

    Raises:
        ValueError: as `plan`.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(
        ...     step_size=0.1, smoothness=2.0, strong_convexity=0.5, noise_variance=8.0,
        ...     initial_error=10.0,
        ... )
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.25), communicate=clocks.exponential(1.0), n_workers=8
        ... )
        >>> plans = compared(times, bound, k=[1, 2, 4, 8], load=[1.0, 8.0], target=0.04)
        >>> [name for name in plans], plans["k and load"].time < plans["k alone"].time
        (['k and load', 'k alone', 'best fixed'], True)
    """
    loads = np.unique(np.asarray(load, np.float64))
    both = plan(times, bound, k=k, load=loads, target=target)
    alone = plan(times, bound, k=k, load=loads[-1], target=target)
    return {
        "k and load": both,
        "k alone": alone,
        "best fixed": _best_fixed(times, bound, k, loads, target),
    }


def _best_fixed(
    times: Response | Clock, bound: ErrorBound, k: Any, loads: np.ndarray, target: float
) -> Plan:
    """The plan of the one option that is best from the start to the target."""
    counts = np.arange(1, times.n_workers + 1) if k is None else np.unique(np.asarray(k))
    options = [(int(a), float(b)) for a in counts for b in loads]

    def alone(option: tuple[int, float]) -> Plan:
        def is_it(a: int, b: float) -> bool:
            return (a, b) == option

        return plan(times, bound, k=counts, load=loads, target=target, admit=is_it)

    def rank(stages: Plan) -> tuple[float, float]:
        return stages.time, math.inf if not stages.floor.size else float(stages.floor[-1])

    return min((alone(option) for option in options), key=rank)


def comparison(plans: Mapping[str, Plan]) -> str:
    """Writes what plans cost, each cost also relative to the first plan's.

    Args:
        plans: plans by name, to the same target; `compared` makes the usual three.

    Returns:
        Text in aligned columns; a plan that never reaches its target says so.

    Raises:
        ValueError: if there are no plans.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(
        ...     step_size=0.2, smoothness=1.0, strong_convexity=1.0, noise_variance=40.0,
        ...     initial_error=2.5,
        ... )
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> print(comparison({
        ...     "adaptive": stragglers.plan(times, bound, load=2.0, target=0.6),
        ...     "two workers": stragglers.plan(times, bound, k=2, load=2.0, target=0.6),
        ... }))
        plan         time       updates    assigned   used       uplinks    broadcasts
        adaptive     10.94 (1)  17.84 (1)  142.7 (1)  106.1 (1)  53.05 (1)  71.36 (1)
        two workers  never      never      never      never      never      never
    """
    if not plans:
        raise ValueError("plans must hold at least one plan, got none.")
    head = ["plan", "time", "updates", "assigned", "used", "uplinks", "broadcasts"]
    first = next(iter(plans.values()))
    rows = [
        [name, *(_cost(stages, first, cost) for cost in _COSTS)] for name, stages in plans.items()
    ]
    return "\n".join(_aligned([head, *rows], left=True))


def _cost(stages: Plan, first: Plan, name: str) -> str:
    """One cost and its ratio to the first plan's."""
    value, unit = getattr(stages, name), getattr(first, name)
    if math.isinf(value):
        return "never"
    if math.isinf(unit) or unit == 0:
        return _number(value)
    return f"{_number(value)} ({value / unit:.3g})"


def _number(value: float) -> str:
    """Four significant digits; never for what does not end."""
    return "never" if math.isinf(value) else f"{value:.4g}"


def _aligned(rows: Sequence[Sequence[str]], left: bool = False) -> list[str]:
    """Pads columns to one width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad = str.ljust if left else str.rjust
    return ["  ".join(map(pad, row, widths)).rstrip() for row in rows]
