"""The fastest plan whose costs stay under caps on samples and uplinks.

A cap is kept by a price, its Lagrange multiplier: a plan that is the cheapest at prices `(p, q)`,

    time + p * samples_assigned + q * uplinks    least,

is the fastest of all plans that assign no more samples and make no more uplinks than it does. Costs
fall as their price rises, so the least prices that keep the caps are found by bisection. Where two
options are equally good at the critical price, costs jump there: the plans on both sides are
optimal at every error, so one is followed down to some error and the other from there on, which
keeps the cap exactly. Times of the options are computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import real
from asyncjax.clocks.clock import Clock
from asyncjax.stragglers.plans.bounds import ErrorBound
from asyncjax.stragglers.plans.planning import (
    Goal,
    Menu,
    Plan,
    cheapest,
    in_stages,
    menu_of,
    rounded_plan,
)
from asyncjax.stragglers.times.response_times import Response

_WIDEST = 25.0  # logarithm of the prices searched, around time over cost of the menu
_HALVINGS = 50
_SLACK = 1e-12  # relative, for rounding
_MOST_OPTIONS = 10_000


def plan_within(
    times: Response | Clock,
    bound: ErrorBound,
    *,
    k: Any = None,
    load: Any = 1.0,
    target: float,
    samples_assigned: float | None = None,
    uplinks: float | None = None,
    admit: Callable[[int, float], bool] | None = None,
) -> Plan:
    """Plans the fastest stages of `(k, load)` to a target whose costs stay under caps.

    Formula: the plan at the least prices `compute_price` and `upload_price` that keep the caps.

    Args:
        times: As for `plan`.
        bound: As for `plan`.
        k: As for `plan`.
        load: As for `plan`.
        target: Error to reach, positive.
        samples_assigned: Most samples that may be assigned in all, None for any number.
        uplinks: Most answers that may be waited for in all, None for any number.
        admit: As for `plan`.

    Returns:
        A plan that keeps the caps to rounding; `plan`'s own if that does, and also, with its
        warning, if the target cannot be reached at all.

    Raises:
        TypeError: If an argument is of a wrong type, or `times` traced.
        ValueError: If no plan keeps the caps, naming the least possible, there are more than 10 000
            options, or as `plan`.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(
        ...     step_size=0.1, smoothness=2.0, strong_convexity=0.5, noise_variance=8.0,
        ...     initial_error=10.0,
        ... )
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.25), communicate=clocks.exponential(1.0), n_workers=8
        ... )
        >>> menu = {"k": [1, 2, 4, 6, 8], "load": [1.0, 4.0, 8.0], "target": 0.03125}
        >>> free, frugal = plan_within(times, bound, **menu), plan_within(
        ...     times, bound, **menu, samples_assigned=8000.0
        ... )
        >>> [round(stages.time, 1) for stages in (free, frugal)]
        [393.1, 401.9]
        >>> round(frugal.samples_assigned)
        8000
    """
    target = real("target", target, above=0)
    kept = [
        (name, real(name, cap, above=0))
        for name, cap in (("samples_assigned", samples_assigned), ("uplinks", uplinks))
        if cap is not None
    ]
    menu, n = menu_of(times, bound, k, load, admit), times.n_workers
    if menu.k.size > _MOST_OPTIONS:  # hundreds of plans are made
        raise ValueError(
            f"k and load must make at most {_MOST_OPTIONS} options for a plan under caps, got"
            f" {menu.k.size}"
        )
    costs = {"samples_assigned": n * menu.load, "uplinks": menu.k.astype(np.float64)}
    search = _Search(menu, Goal(bound, target, n), costs)
    free = search.staged(menu.completion)
    if not free.reachable:
        return rounded_plan(free)
    for position, (name, cap) in enumerate(kept):  # the second under the cap on the first
        least = getattr(_within(search, costs[name], kept[:position]), name)
        if least > cap * (1 + _SLACK):
            others = "".join(f" with at most {limit:g} {other}" for other, limit in kept[:position])
            raise ValueError(
                f"{name} must be at least {least:.6g} to reach the target{others}, got {cap:g}"
            )
    return _within(search, menu.completion, kept)


class _Search(NamedTuple):
    """What a search for prices needs."""

    menu: Menu
    goal: Goal
    costs: dict[str, np.ndarray]  # what an update of every option costs, float64[M]

    def staged(self, price: np.ndarray) -> Plan:
        """The plan at prices float64[M]."""
        return cheapest(self.menu, price, self.goal)


Caps = list[tuple[str, float]]  # names of costs, and how much of each there may be


def _keeps(stages: Plan, caps: Caps) -> bool:
    """Whether a plan keeps caps, but for rounding."""
    return all(getattr(stages, name) <= cap * (1 + _SLACK) for name, cap in caps)


def _within(search: _Search, price: np.ndarray, caps: Caps) -> Plan:
    """The plan of the least price in all, from prices float64[M], under caps that can be kept.

    The last cap's own price is searched around those of the others.
    """
    if not caps:
        return search.staged(price)
    *others, (name, _) = caps
    cost = search.costs[name]

    def at(log_price: float) -> Plan:
        return _within(search, price + unit * math.exp(log_price) * cost, others)

    over = _within(search, price, others)
    if _keeps(over, caps):
        return over
    unit = price.max() / cost.min()
    low, high = -_WIDEST, _WIDEST
    best = at(high)
    if not _keeps(best, caps):  # only the least cost of all is low enough
        return _within(search, cost, others)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        stages = at(middle)
        if _keeps(stages, caps):
            high, best = middle, stages
        else:
            low, over = middle, stages
    return _joined(over, best, caps, search.goal)


def _joined(over: Plan, best: Plan, caps: Caps, goal: Goal) -> Plan:
    """Follows a plan that breaks caps as far down as they allow, then one that keeps them."""
    low, high = math.log(goal.target), math.log(goal.bound.initial_error)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        stages = _spliced(over, best, math.exp(middle), goal)
        if _keeps(stages, caps):
            high = middle
            best = stages if stages.time < best.time else best
        else:
            low = middle
    return best


def _spliced(before: Plan, after: Plan, error: float, goal: Goal) -> Plan:
    """Follows one plan down to an error and another from there on."""
    first, second = before.start_error > error, after.end_error < error
    columns = ("k", "load", "completion", "floor")
    used = Menu(*(np.append(getattr(before, c)[first], getattr(after, c)[second]) for c in columns))
    enters = np.append(before.start_error[first], np.minimum(after.start_error[second], error))
    leaves = np.append(np.maximum(before.end_error[first], error), after.end_error[second])
    is_same = (used.k[1:] == used.k[:-1]) & (used.load[1:] == used.load[:-1])
    begins, ends = np.append(True, ~is_same), np.append(~is_same, True)
    return in_stages(used.at(begins), enters[begins], leaves[ends], goal)
