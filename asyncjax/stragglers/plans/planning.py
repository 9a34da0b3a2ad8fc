"""The plan: how many workers to wait for and how much to ask of each, stage by stage; as text.

An option `a = (k, load)` has the completion time `mu_a`, the floor `A_a` and the price

    p_a = mu_a + compute_price * n * load + upload_price * k

On the continuous-time bound `-de/dprice = alpha (e - A_a) / p_a`. The state is one number that only
falls, so the cheapest way to every target at once is to take, at each error `e`, the option with
the greatest `(e - A_a) / p_a`. That is the steepness of the line from `(0, e)` down to `(p_a,
A_a)`: the options ever used are the vertices of the lower-left convex hull of the points `(p, A)`,
and each switch is where a hull edge meets the axis `p = 0`:

    e* = (A_1 p_2 - A_2 p_1) / (p_2 - p_1),     updates = (1 / alpha) ln((e_in - A) / (e_out - A))

A bound-greedy (k, load) plan, after Egger, Kas Hanna and Bitar (2023); exact, no heuristic.

A cap on samples or uplinks is kept by a price, its Lagrange multiplier, found by bisection. Where
two options are equally good at the critical price, costs jump there: the plans on both sides are
optimal at every error, so one is followed down to some error and the other from there on.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax.checks import real, within
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import unshared
from asyncjax.stragglers.plans.bounds import ErrorBound, error_floor
from asyncjax.stragglers.times.completion import mean_table
from asyncjax.stragglers.times.laws import check_times
from asyncjax.stragglers.times.response_times import Response

Admit = Callable[[int, float], bool]
Caps = list[tuple[str, float]]  # names of costs, and how much of each there may be

_COSTS = ("time", "n_updates", "samples_assigned", "samples_used", "uplinks", "broadcasts")
_MOST_OPTIONS = 1_000_000
_MOST_UNDER_CAPS = 10_000  # hundreds of plans are made
_WIDEST = 25.0  # logarithm of the prices searched, around time over cost of the menu
_HALVINGS = 50
_SLACK = 1e-12  # relative, for rounding


@dataclass(frozen=True, eq=False)
class Plan:
    """Stages of `(k, load)`, and what they cost on the bound.

    Attributes:
        k: How many answers to wait for.
        load: Samples a worker.
        start_error: Error of the bound when the stage begins.
        end_error: Error of the bound when it ends; the floor, for a stage that never ends.
        start_time: When the stage begins, time units.
        end_time: When it ends, inf for a stage that never ends.
        updates: Updates of the stage, fractional.
        completion: Expected time of an update.
        floor: Error below which the stage cannot come.
        n_workers: Number of workers `n`.
        target: Error to reach.
        reachable: Whether some option's floor is below the target.
    """

    k: np.ndarray  # int64[S]
    load: np.ndarray  # float64[S], samples
    start_error: np.ndarray  # float64[S]
    end_error: np.ndarray  # float64[S]
    start_time: np.ndarray  # float64[S], time units
    end_time: np.ndarray  # float64[S], time units
    updates: np.ndarray  # float64[S]
    completion: np.ndarray  # float64[S], time units
    floor: np.ndarray  # float64[S]
    n_workers: int
    target: float
    reachable: bool

    @property
    def time(self) -> float:
        """When the target is reached, time units; inf if it cannot be."""
        if not self.reachable:
            return math.inf
        return float(self.end_time[-1]) if self.end_time.size else 0.0

    @property
    def n_updates(self) -> float:
        """Updates of all stages, fractional."""
        return self._total(np.ones_like(self.load))

    @property
    def samples_assigned(self) -> float:
        """Gradients that workers are told to compute: `sum n b updates`."""
        return self._total(self.n_workers * self.load)

    @property
    def samples_used(self) -> float:
        """Gradients that the server averages: `sum k b updates`."""
        return self._total(self.k * self.load)

    @property
    def uplinks(self) -> float:
        """Answers that the server waits for: `sum k updates`."""
        return self._total(self.k)

    @property
    def broadcasts(self) -> float:
        """Models sent to workers: `sum n updates`."""
        return self._total(np.full_like(self.load, self.n_workers))

    def _total(self, per_update: np.ndarray) -> float:
        return math.inf if not self.reachable else float(per_update @ self.updates)


class Menu(NamedTuple):
    """Options that may be taken, in the order of (k, load)."""

    k: np.ndarray  # int64[M]
    load: np.ndarray  # float64[M], samples
    completion: np.ndarray  # float64[M], time units
    floor: np.ndarray  # float64[M]

    def at(self, index: Any) -> Menu:
        """Some of the options: int64[S], bool[M] or a slice."""
        return Menu(*(column[index] for column in self))


class Goal(NamedTuple):
    """Where a plan leads, by which bound, with how many workers."""

    bound: ErrorBound
    target: float
    n_workers: int


def plan(
    times: Response | Clock,
    bound: ErrorBound,
    *,
    k: Any = None,
    load: Any = 1.0,
    target: float,
    compute_price: float = 0.0,
    upload_price: float = 0.0,
    admit: Admit | None = None,
) -> Plan:
    """Plans the stages of `(k, load)` that bring the bound to a target at the least price.

    Formula: at each error `e` the option with the greatest `(e - A) / p`, where `A` is its floor
    and `p = E T_(k) + compute_price * n * load + upload_price * k` its price; exact.

    Args:
        times: A response, or a clock; the unit of load is one sample.
        bound: Constants of the error bound.
        k: Counts that may be waited for, int or ints; None for 1 .. n.
        load: Loads that may be asked, float or floats, samples.
        target: Error to reach; 0: none, the plan goes on to the least floor.
        compute_price, upload_price: Time units that one sample assigned, one uplink is worth.
        admit: Says of a `(k, load)`, given as Python numbers, whether it may be used; None for all.

    Returns:
        A plan, float64. It has no stages if the initial error is at the target already. If the
        target is at or below the least floor, which is warned about unless it is 0, the last stage
        never ends and `reachable` is False.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(0.2, 1.0, 1.0, 40.0, 2.5)
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> stages = stragglers.plan(times, bound, load=2.0, target=0.6)
        >>> stages.k.tolist(), stages.start_time.round(3).tolist(), stages.reachable
        ([2, 3, 4], [0.0, 1.764, 5.13], True)
    """
    compute_price = real("compute_price", compute_price, least=0)
    upload_price = real("upload_price", upload_price, least=0)
    target = real("target", target, least=0)
    menu, n = menu_of(times, bound, k, load, admit), times.n_workers
    price = menu.completion + compute_price * n * menu.load + upload_price * menu.k
    return rounded_plan(cheapest(menu, price, Goal(bound, target, n)))


def rounded_plan(stages: Plan) -> Plan:
    """Warns, where the caller of a caller stands, if a plan does not reach its target."""
    if not stages.reachable and stages.target > 0:
        least = f"{stages.floor[-1]:.6g}" if stages.floor.size else "above the initial error"
        warnings.warn(
            f"target should be above the least floor of the options, which is {least}, to be"
            f" reached, got {stages.target:g}: the plan never ends",
            stacklevel=3,
        )
    return stages


def completion_table(times: Response | Clock, loads: np.ndarray) -> np.ndarray:
    """Returns `E T_(k)` for every k at every load, float64[B, n], time units.

    Args:
        times: A response, or a clock, not traced.
        loads: float64[B], samples, positive.

    Example:
        >>> import numpy as np
        >>> from asyncjax import clocks
        >>> times = clocks.exponential([1.0, 1.0])
        >>> completion_table(times, np.array([1.0, 2.0])).round(12).tolist()
        [[0.5, 1.5], [1.0, 3.0]]
    """
    check_times(times)
    rows = np.asarray(within("loads", loads, above=0), np.float64)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), unshared(times))
    with jax.enable_x64(True):
        return np.asarray(mean_table(wide, rows))


def listed_options(k: Any, load: Any, n_workers: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists pairs of k and load in their order, int64[M] and float64[M]."""
    counts = np.arange(1, n_workers + 1) if k is None else np.unique(np.asarray(k))
    within("k", counts, least=1, most=n_workers, integer=True)
    loads = np.unique(np.asarray(within("load", load, above=0), np.float64))
    if counts.size * loads.size > most:
        raise ValueError(
            f"k and load must make at most {most} options, got {counts.size} and {loads.size}"
        )
    return np.repeat(counts, loads.size), np.tile(loads, counts.size)


def menu_of(
    times: Response | Clock,
    bound: ErrorBound,
    k: Any,
    load: Any,
    admit: Admit | None = None,
    most: int = _MOST_OPTIONS,
) -> Menu:
    """Lists the admitted options with their times and floors."""
    ks, loads = listed_options(k, load, times.n_workers, most)
    distinct, rows = np.unique(loads, return_inverse=True)
    completion = completion_table(times, distinct)[rows, ks - 1]
    usable = np.isfinite(completion)
    if admit is not None:
        pairs = zip(ks[usable].tolist(), loads[usable].tolist(), strict=True)
        usable[usable] = [bool(admit(*pair)) for pair in pairs]
    if not usable.any():
        raise ValueError(
            f"admit must leave an option (k, load) of finite time, got none of {ks.size}"
        )
    ks, loads, completion = ks[usable], loads[usable], completion[usable]
    floor = np.broadcast_to(np.asarray(error_floor(bound, ks, loads), np.float64), ks.shape)
    return Menu(ks, loads, completion, floor)


def hull(price: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Vertices, int64[V], of the lower-left convex hull of points float64[M], from the least price.

    Of collinear points the two ends stay; of equal prices the lower floor; of equals the first.
    """
    vertices: list[int] = []
    for new in np.lexsort((np.arange(price.size), floor, price)).tolist():
        if vertices and floor[new] >= floor[vertices[-1]]:
            continue
        while len(vertices) > 1:
            before, last = vertices[-2:]
            down = (floor[before] - floor[last]) * (price[new] - price[before])
            if down > (floor[before] - floor[new]) * (price[last] - price[before]):
                break
            vertices.pop()
        vertices.append(new)
    return np.array(vertices, np.int64)


def cheapest(menu: Menu, price: np.ndarray, goal: Goal) -> Plan:
    """Walks along the hull of prices float64[M] and floors from the initial error to the target."""
    vertices = hull(price, menu.floor)
    used, price, first = menu.at(vertices), price[vertices], goal.bound.initial_error
    floor = used.floor
    switches = (floor[:-1] * price[1:] - floor[1:] * price[:-1]) / np.diff(price)
    reachable = first <= goal.target or bool(goal.target > floor[-1])
    last = goal.target if reachable else float(floor[-1])
    enters = np.minimum(np.append(np.inf, switches), first)
    leaves = np.maximum(np.append(switches, last), last)
    stages = (enters > leaves) & (enters > floor)
    return in_stages(used.at(stages), enters[stages], leaves[stages], goal, reachable)


def in_stages(
    used: Menu, enters: np.ndarray, leaves: np.ndarray, goal: Goal, reachable: bool = True
) -> Plan:
    """Counts updates and times of options used in turn, each between two errors float64[S]."""
    above = leaves - used.floor
    is_endless = above <= 0
    ratio = (enters - used.floor) / np.where(is_endless, 1.0, above)
    updates = np.where(is_endless, np.inf, np.log(ratio) / goal.bound.decay)
    end_time = np.cumsum(updates * used.completion)
    return Plan(
        **used._asdict(),
        start_error=enters,
        end_error=leaves,
        start_time=np.append(0.0, end_time)[:-1],
        end_time=end_time,
        updates=updates,
        n_workers=goal.n_workers,
        target=goal.target,
        reachable=reachable,
    )


def plan_within(
    times: Response | Clock,
    bound: ErrorBound,
    *,
    k: Any = None,
    load: Any = 1.0,
    target: float,
    samples_assigned: float | None = None,
    uplinks: float | None = None,
    admit: Admit | None = None,
) -> Plan:
    """Plans the fastest stages of `(k, load)` to a target whose costs stay under caps.

    Formula: the plan at the least prices `compute_price` and `upload_price` that keep the caps.

    Args:
        times, bound, k, load, admit: As for `plan`.
        target: Error to reach, positive.
        samples_assigned: Most samples that may be assigned in all, None for any number.
        uplinks: Most answers that may be waited for in all, None for any number.

    Returns:
        A plan that keeps the caps to rounding; that of `plan` if the target cannot be reached.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0)
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
    caps = [
        (name, real(name, cap, above=0))
        for name, cap in (("samples_assigned", samples_assigned), ("uplinks", uplinks))
        if cap is not None
    ]
    menu, n = menu_of(times, bound, k, load, admit, _MOST_UNDER_CAPS), times.n_workers
    goal = Goal(bound, target, n)
    costs = {"samples_assigned": n * menu.load, "uplinks": menu.k.astype(np.float64)}
    free = cheapest(menu, menu.completion, goal)
    if not free.reachable:
        return rounded_plan(free)
    search = _Search(menu, goal, costs)
    for position, (name, cap) in enumerate(caps):  # the second under the cap on the first
        least = getattr(search.within(costs[name], caps[:position]), name)
        if least > cap * (1 + _SLACK):
            others = "".join(f" with at most {limit:g} {other}" for other, limit in caps[:position])
            raise ValueError(
                f"{name} must be at least {least:.6g} to reach the target{others}, got {cap:g}"
            )
    return search.within(menu.completion, caps)


class _Search(NamedTuple):
    """A search for prices."""

    menu: Menu
    goal: Goal
    costs: dict[str, np.ndarray]  # what an update of every option costs, float64[M]

    def within(self, price: np.ndarray, caps: Caps) -> Plan:
        """The plan of the least price, float64[M], under caps, the last one searched outermost."""
        if not caps:
            return cheapest(self.menu, price, self.goal)
        *others, (name, _) = caps
        cost = self.costs[name]
        over = self.within(price, others)
        if _keeps(over, caps):
            return over
        unit = price.max() / cost.min()

        def at(log_price: float) -> Plan:
            return self.within(price + unit * math.exp(log_price) * cost, others)

        low, high = -_WIDEST, _WIDEST
        best = at(high)
        if not _keeps(best, caps):  # only the least cost of all is low enough
            return self.within(cost, others)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            stages = at(middle)
            if _keeps(stages, caps):
                high, best = middle, stages
            else:
                low, over = middle, stages
        return _joined(over, best, caps, self.goal)


def _keeps(stages: Plan, caps: Caps) -> bool:
    """Whether a plan keeps caps, but for rounding."""
    return all(getattr(stages, name) <= cap * (1 + _SLACK) for name, cap in caps)


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


def plan_text(stages: Plan) -> str:
    """Returns the stages of a plan and its costs as text, a line each.

    Args:
        stages: A plan.

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
        times, bound, k: As for `plan`.
        load: Loads that may be asked, samples; the largest is the full load `b`.
        target: Error to reach, positive.

    Returns:
        Plans by name: "k and load"; "k alone" (full load); "best fixed" (the one pair that reaches
        the target first, or has the least floor); "gradient coding" (`n - s` answers at load
        `(s + 1) b` for the `s` of the fastest update; samples used count every copy); and
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
    first, above = goal.bound.initial_error, goal.target - menu.floor
    with np.errstate(divide="ignore", invalid="ignore"):
        updates = np.where(above > 0, np.log((first - menu.floor) / above), np.inf)
    updates = updates if first > goal.target else np.zeros_like(above)
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
    """Returns what plans cost as text, each cost also relative to the first plan's.

    Args:
        plans: Plans by name, to the same target; `compared` makes the usual five.

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
