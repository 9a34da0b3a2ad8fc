"""Plans as text: the stages of one, and what several cost beside each other.

A comparison answers for a person's own law, in one call, whether a second knob, the load, is worth
it:

    print(comparison(compared(times, bound, load=[1, 4, 16], target=0.01)))

sets the plan of (k, load) beside the plan of k alone, the best fixed pair, gradient coding and the
synchronous method, all at the same target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax.checks import instance, real
from asyncjax.clocks.clock import Clock
from asyncjax.stragglers.plans.bounds import ErrorBound, error_floor
from asyncjax.stragglers.plans.planning import Goal, Menu, Plan, cheapest, completion_table, menu_of
from asyncjax.stragglers.times.response_times import Response

_COSTS = ("time", "n_updates", "samples_assigned", "samples_used", "uplinks", "broadcasts")


def plan_text(stages: Plan) -> str:
    """Writes the stages of a plan and its costs, a line each.

    Args:
        stages: A plan.

    Returns:
        Text in aligned columns. It says so where the target cannot be reached, and what can.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(0.2, 1.0, 1.0, 40.0, 2.5)
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> print(plan_text(stragglers.plan(times, bound, load=2.0, target=0.6)))
        k  load  from time   error  to error  updates  time an update
        2     2          0     2.5     1.389     6.05          0.2917
        3     2      1.764   1.389    0.8472    6.213          0.5417
        4     2       5.13  0.8472       0.6    5.578           1.042
        target 0.6 reached at time 10.94 after 17.84 updates; samples assigned 142.7, used 106.1;
        uplinks 53.05, broadcasts 71.36
    """
    instance("stages", stages, Plan, "a Plan, as plan(...) makes it")
    head = ("k", "load", "from time", "error", "to error", "updates", "time an update")
    names = ("k", "load", "start_time", "start_error", "end_error", "updates", "completion")
    columns = [getattr(stages, name) for name in names]
    rows = [[_number(value) for value in row] for row in zip(*columns, strict=True)]
    lines = _aligned([list(head), *rows]) if rows else ["no stages"]
    if not stages.reachable:
        return "\n".join([*lines, _out_of_reach(stages)])
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
        times: A response, or a clock.
        bound: Constants of the error bound.
        k: Counts that may be waited for; None for 1 .. n.
        load: Loads that may be asked, samples; the largest is the full load `b`.
        target: Error to reach, positive.

    Returns:
        Plans by name: "k and load"; "k alone" (full load); "best fixed" (the one pair that reaches
        the target first; the one with the least floor if none does); "gradient coding" (the number
        `s` of tolerated stragglers with the fastest update, which waits for `n - s` answers at load
        `(s + 1) b` and is exact over all `n b` samples; its samples used count every copy); and
        "synchronous" (all workers, full load).

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0)
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.25), communicate=clocks.exponential(1.0), n_workers=8
        ... )
        >>> plans = compared(times, bound, k=[1, 2, 4, 8], load=[1.0, 8.0], target=0.04)
        >>> for name, stages in plans.items():
        ...     print(f"{name}: {stages.time:.1f}")
        k and load: 304.7
        k alone: 314.4
        best fixed: 856.8
        gradient coding: 359.8
        synchronous: 856.8
    """
    target = real("target", target, above=0)
    menu = menu_of(times, bound, k, load)
    goal = Goal(bound, target, times.n_workers)
    full = float(menu.load.max())
    coded = _coded(times, bound, full)
    options = {
        "k and load": menu,
        "k alone": menu.at(menu.load == full),
        "best fixed": _best_fixed(menu, goal),
        "gradient coding": coded.at([coded.completion.argmin()]),
        "synchronous": coded.at(slice(1)),
    }
    return {name: cheapest(some, some.completion, goal) for name, some in options.items()}


def _best_fixed(menu: Menu, goal: Goal) -> Menu:
    """The one option that is best from the start to the target."""
    above, first = goal.target - menu.floor, goal.bound.initial_error
    falls = np.where(above > 0, first - menu.floor, 1.0)
    updates = np.where(above > 0, np.log(falls / np.where(above > 0, above, 1.0)), np.inf)
    if first <= goal.target:
        updates = np.zeros_like(above)
    return menu.at(np.lexsort((menu.floor, updates * menu.completion))[:1])


def _coded(times: Response | Clock, bound: ErrorBound, full: float) -> Menu:
    """Gradient coding that tolerates s = 0 .. n - 1 stragglers; the first is synchronous."""
    n = times.n_workers
    tolerated = np.arange(n)
    loads = full * (tolerated + 1)
    completion = completion_table(times, loads)[tolerated, n - 1 - tolerated]
    floor = np.full(n, float(error_floor(bound, n, full)))
    return Menu(n - tolerated, loads, completion, floor)


def comparison(plans: Mapping[str, Plan]) -> str:
    """Writes what plans cost, each cost also relative to the first plan's.

    Args:
        plans: Plans by name, to the same target; `compared` makes the usual five.

    Returns:
        Text in aligned columns, and a line on every target that a plan cannot reach.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(0.2, 1.0, 1.0, 40.0, 2.5)
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> print(comparison({
        ...     "adaptive": stragglers.plan(times, bound, load=2.0, target=0.6),
        ...     "two workers": compared(times, bound, k=2, load=2.0, target=0.6)["k alone"],
        ... }))
        plan         time       updates    assigned   used       uplinks    broadcasts
        adaptive     10.94 (1)  17.84 (1)  142.7 (1)  106.1 (1)  53.05 (1)  71.36 (1)
        two workers  never      never      never      never      never      never
        target 0.6 cannot be reached by two workers, the least floor is 1
    """
    instance("plans", plans, Mapping, "a mapping of names to plans")
    for name, stages in plans.items():
        instance(f"plans[{name!r}]", stages, Plan, "a Plan, as plan(...) makes it")
    if not plans:
        raise ValueError("plans must hold at least one plan, got none")
    head = ["plan", "time", "updates", "assigned", "used", "uplinks", "broadcasts"]
    first = next(iter(plans.values()))
    rows = [
        [name, *(_cost(stages, first, cost) for cost in _COSTS)] for name, stages in plans.items()
    ]
    lost = [_out_of_reach(stages, f" by {name}") for name, stages in plans.items()]
    return "\n".join([*_aligned([head, *rows], left=True), *filter(None, lost)])


def _out_of_reach(stages: Plan, who: str = "") -> str:
    """Says that a plan does not reach its target, and what it could; nothing if it does."""
    if stages.reachable:
        return ""
    floor = f", the least floor is {_number(stages.floor[-1])}" if stages.floor.size else ""
    return f"target {_number(stages.target)} cannot be reached{who}{floor}"


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
