"""What adapting the load beside the number of awaited workers is worth, on the bound.

No data, no chance.

Plans of (k, load) are compared with plans of k alone, with every fixed pair, with gradient coding
and with waiting for all, under ten laws of response times that have one mean, and for a loose, a
middle and a tight target. Then: what computing less costs in time (a price of computation), and how
many values of k and of the load are enough.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import clocks, results, stragglers
from asyncjax.results import plots
from experiments.common import numbers as kept
from experiments.common.parts import Drawing, Part, run_alone, written
from experiments.stragglers import bounds_verdicts
from experiments.stragglers.bounds_verdicts import COSTS, HEADS

NUMBERS = "straggler_bounds"
TITLE = "On the bound: what is a second knob, the load, worth?"


def plan_anyway(*menu: Any, **options: Any) -> stragglers.Plan:
    """A plan, also where its target is out of reach, as it may be for what it is compared with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return stragglers.plan(*menu, **options)


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults are those of the paper page's table."""

    output: Path = Path("output/straggler_bounds")
    commit: bool = False  # also write the numbers that are committed
    seed: int = 0  # nothing is drawn
    n_workers: int = 50
    shard: int = 40  # samples of a worker
    step_size: float = 0.01
    smoothness: float = 2.0
    strong_convexity: float = 1.0
    noise_variance: float = 400.0
    initial_error: float = 1000.0
    loads: tuple[float, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40)
    targets: tuple[float, ...] = (400, 1200, 1800)  # samples an update whose floor is the target
    prices: tuple[float, ...] = (0.0, 1e-4, 3e-4, 1e-3, 3e-3)  # time units a sample assigned
    laws: tuple[str, ...] = ()  # names of the laws; none: all


def laws(settings: Settings) -> dict[str, stragglers.Response]:
    """Response times by name.

    A whole shard takes 1 time unit on average, and so does communicating unless said.
    """
    shard, n = settings.shard, settings.n_workers
    one = 1.0 / shard

    def made(compute: Any, scaling: str = "scale", apart: float = 1.0) -> stragglers.Response:
        return stragglers.response(
            compute=compute,
            communicate=clocks.exponential(apart) if apart else None,
            scaling=scaling,
            n_workers=n,
        )

    return {
        "exponential, scale": made(clocks.exponential(one)),
        "exponential, additive": made(clocks.exponential(one), "additive"),
        "no communication, scale": made(clocks.exponential(one), apart=0.0),
        "slow links (4 to 1), scale": made(clocks.exponential(one), apart=4.0),
        "fast links (1 to 4), scale": made(clocks.exponential(one), apart=0.25),
        "half shift, scale": made(clocks.shifted_exponential(one / 2, one / 2)),
        "half shift, additive": made(clocks.shifted_exponential(one / 2, one / 2), "additive"),
        "only the shift grows": made(clocks.shifted_exponential(one / 2, 0.5), "shift"),
        "lognormal (sigma 1), scale": made(clocks.lognormal(one, 1.0)),
        "Pareto (tail 2.5), scale": made(clocks.pareto(one, 2.5)),
    }


def bound_of(settings: Settings) -> stragglers.ErrorBound:
    """The constants."""
    return stragglers.ErrorBound(
        step_size=settings.step_size,
        smoothness=settings.smoothness,
        strong_convexity=settings.strong_convexity,
        noise_variance=settings.noise_variance,
        initial_error=settings.initial_error,
    )


def target_of(settings: Settings, samples: float) -> float:
    """The floor of an update of so many samples."""
    return float(stragglers.error_floor(bound_of(settings), 1, samples))


def ratios(plan: stragglers.Plan, other: stragglers.Plan) -> dict[str, float]:
    """Costs of one plan over those of another."""
    return {cost: getattr(plan, cost) / getattr(other, cost) for cost in COSTS}


def run(settings: Settings) -> Part:
    """Makes all plans, writes figures and numbers.

    Raises:
        ValueError: A name is not that of a law.
    """
    made = laws(settings)
    unknown = [name for name in settings.laws if name not in made]
    if unknown:
        raise ValueError(f"laws must be among {', '.join(made)}, got {unknown[0]!r}")
    made = {name: made[name] for name in settings.laws or made}
    bound = bound_of(settings)
    plans = {
        (name, samples): stragglers.compared(
            times, bound, load=settings.loads, target=target_of(settings, samples)
        )
        for name, times in made.items()
        for samples in settings.targets
    }
    first = next(iter(made))
    middle = settings.targets[len(settings.targets) // 2]
    priced = {
        price: plan_anyway(
            made[first],
            bound,
            load=settings.loads,
            target=target_of(settings, middle),
            compute_price=price,
        )
        for price in settings.prices
    }
    ladders = _ladders(settings, made, middle)
    numbers = _numbers(plans, priced, ladders)
    said = bounds_verdicts.committed(numbers, settings.targets, first)
    if settings.commit:
        kept.save(NUMBERS, said, command="python -m experiments.stragglers.bounds --commit")
    tables = (
        _verdict_table(said),
        _claims_table(plans),
        _rivals_table(plans, middle),
        _prices_table(priced, plans[first, middle]["k alone"]),
        _ladders_table(ladders, {name: plans[name, middle]["k and load"] for name in ladders}),
    )
    return written(
        settings.output,
        NUMBERS,
        TITLE,
        _figures(settings, plans, first, middle),
        tables,
        numbers | {"verdicts": said["verdicts"]},
    )


def _ladders(
    settings: Settings, made: Mapping[str, stragglers.Response], samples: float
) -> dict[str, dict[str, stragglers.Plan]]:
    """Plans from few values of k and of the load, for the first two laws."""
    n, full = settings.n_workers, settings.loads[-1]
    tens, few = [k for k in range(10, n + 1, 10)], [1, full / 4, full / 2, full]
    menus = {
        "k 1, 10, 20, ... and load 1, a quarter, half, all": ([1, *tens], few),
        "k 10, 20, 30, ... and the same loads": (tens, few),
        "k 1, 10, 20, ..., full load": ([1, *tens], [full]),
        "k 10, 20, 30, ..., full load": (tens, [full]),
        "all k, full load": (None, [full]),
        "k = n, all loads": ([n], settings.loads),
    }
    target = target_of(settings, samples)
    return {
        law: {
            name: plan_anyway(times, bound_of(settings), k=k, load=load, target=target)
            for name, (k, load) in menus.items()
        }
        for law, times in list(made.items())[:2]
    }


def _verdict_table(said: Mapping[str, Any]) -> results.Table:
    """The verdicts and their rule."""
    bounds = {name: bound for name, (_, bound) in bounds_verdicts.CLAIMS.items()}
    return results.Table(
        (
            results.Column("claim", right=False),
            results.Column("ratio below"),
            results.Column("verdict", right=False),
        ),
        tuple((name, bounds[name], own) for name, own in said["verdicts"].items()),
        "A condition for every law and target, k and load over k alone; nothing is drawn, so there"
        " is no interval: a claim holds if all conditions do, in part if some.",
    )


def _claims_table(plans: Mapping[tuple[str, float], Mapping[str, Any]]) -> results.Table:
    """The abstract's three claims: the two-knob plan over the plan of k alone."""
    rows = [
        (law, samples, *ratios(both["k and load"], both["k alone"]).values())
        for (law, samples), both in plans.items()
    ]
    return results.Table(
        (
            results.Column("law", right=False),
            results.Column("target: floor of samples"),
            *(results.Column(head) for head in HEADS),
        ),
        tuple(rows),
        "Costs of the plan of (k, load) over those of the plan of k alone at full load, to the"
        " same target. Samples assigned are those that all n workers are told to compute; used"
        " are those of awaited answers.",
    )


def _rivals_table(
    plans: Mapping[tuple[str, float], Mapping[str, Any]], samples: float
) -> results.Table:
    """Time of all plans at one target."""
    chosen = {law: both for (law, target), both in plans.items() if target == samples}
    names = list(next(iter(chosen.values())))

    def cell(plan: stragglers.Plan, least: float) -> str:
        stages = f"k {plan.k[0]}, load {plan.load[0]:g}" if plan.k.size == 1 else ""
        text = f"{plan.time / least:.3g}" if plan.reachable else "never"
        return f"{text} ({stages})" if stages and plan.reachable else text

    rows = [
        (
            law,
            both["k and load"].time,
            *(cell(both[name], both["k and load"].time) for name in names[1:]),
        )
        for law, both in chosen.items()
    ]
    return results.Table(
        (
            results.Column("law", right=False),
            results.Column("time of k and load"),
            *(results.Column(f"{name}, over it") for name in names[1:]),
        ),
        tuple(rows),
        f"Time to the floor of {samples:g} samples an update. Gradient coding answers the full"
        " gradient from n - s workers with s + 1 shards each, at the best s.",
    )


def _prices_table(priced: Mapping[float, stragglers.Plan], alone: stragglers.Plan) -> results.Table:
    """What computing less costs in time."""
    rows = [
        (price, *ratios(plan, priced[0.0]).values(), *list(ratios(plan, alone).values())[:2])
        for price, plan in priced.items()
    ]
    return results.Table(
        (
            results.Column("price of a sample [time]"),
            *(results.Column(head) for head in HEADS),
            results.Column("time over k alone"),
            results.Column("assigned over k alone"),
        ),
        tuple(rows),
        "A price on every sample assigned: costs over those of the plan without a price, first"
        " law, middle target.",
    )


def _ladders_table(
    ladders: Mapping[str, Mapping[str, stragglers.Plan]], full: Mapping[str, stragglers.Plan]
) -> results.Table:
    """What few options lose."""
    names = next(iter(ladders.values()))
    rows = [
        (name, *(made[name].time / full[law].time - 1 for law, made in ladders.items()))
        for name in names
    ]
    return results.Table(
        (
            results.Column("options", right=False),
            *(results.Column(f"more time, {law}") for law in ladders),
        ),
        tuple(rows),
        "Time lost by fewer options, middle target; 0.05 is 5 % more time than with all k and all"
        " loads of the menu.",
    )


def _path(plan: stragglers.Plan, values: np.ndarray, name: str) -> results.Series:
    """A stage's value against the error, from the first to the last."""
    error = np.column_stack([plan.start_error, plan.end_error]).ravel()
    steps = np.repeat(values.astype(float), 2)
    return results.Series(name, error[::-1], steps[::-1], steps[::-1], steps[::-1])


def _figures(
    settings: Settings,
    plans: Mapping[tuple[str, float], Mapping[str, Any]],
    first: str,
    middle: float,
) -> Iterator[Drawing]:
    """Paths of (k, load), and errors over time."""
    shown = [law for law, target in plans if target == middle][:2]
    panels = [
        plots.Panel(
            f"error of the bound, {law}",
            [
                _path(plans[law, middle]["k and load"], plans[law, middle]["k and load"].k, "k"),
                _path(
                    plans[law, middle]["k and load"], plans[law, middle]["k and load"].load, "load"
                ),
                _path(plans[law, middle]["k alone"], plans[law, middle]["k alone"].k, "k alone"),
            ],
            log_x=True,
        )
        for law in shown
    ]
    yield (
        "paths",
        plots.panels(panels, y_label="workers awaited, samples asked"),
        "The stages against the error they are used at; a run goes from right to left.",
    )
    panels = [
        plots.Panel(
            f"time, {law}",
            [
                _error_over_time(plan, name)
                for name, plan in plans[law, middle].items()
                if plan.k.size
            ],
        )
        for law in shown
    ]
    yield (
        "errors",
        plots.panels(panels, y_label="error of the bound", log_y=True),
        "The bound against time; each plan is best for its own target.",
    )


def _error_over_time(plan: stragglers.Plan, name: str) -> results.Series:
    """The bound along a plan, on the continuous time of its stages."""
    times, errors = [0.0], [float(plan.start_error[0])]
    for place in range(plan.k.size):
        floor, last = plan.floor[place], plan.end_error[place]
        start = plan.start_error[place]
        if not np.isfinite(plan.end_time[place]):
            continue
        share = np.linspace(0.0, 1.0, 40)[1:]
        above = (start - floor) * ((last - floor) / (start - floor)) ** share
        span = plan.end_time[place] - plan.start_time[place]
        times.extend(plan.start_time[place] + share * span)
        errors.extend(floor + above)
    return results.Series(name, times, errors, errors, errors)


def _numbers(
    plans: Mapping[tuple[str, float], Mapping[str, stragglers.Plan]],
    priced: Mapping[float, stragglers.Plan],
    ladders: Mapping[str, Mapping[str, stragglers.Plan]],
) -> dict[str, Any]:
    """Everything in the tables, as plain values."""

    def costs(plan: stragglers.Plan) -> dict[str, Any]:
        found = {cost: getattr(plan, cost) for cost in COSTS} if plan.reachable else {}
        return found | {"k": plan.k.tolist(), "load": plan.load.tolist()}

    return {
        "plans": {
            f"{law}, {samples:g}": {name: costs(plan) for name, plan in both.items()}
            for (law, samples), both in plans.items()
        },
        "prices": {f"{price:g}": costs(plan) for price, plan in priced.items()},
        "ladders": {
            law: {name: costs(plan) for name, plan in made.items()} for law, made in ladders.items()
        },
    }


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
