"""On the bound: what is a second knob, the load, worth beside the number of awaited workers?

No data, no chance: nothing is drawn, so there is one set, and a condition is a ratio below a bound
without an interval.

Plans of (k, load) are compared with plans of k alone, with every fixed pair, with gradient coding
and with waiting for all, under ten laws of response times that have one mean, and for a loose, a
middle and a tight target. Then: what computing less costs in time (a price of computation), and how
many values of k and of the load are enough.

Source: Egger, Kas Hanna, Bitar, 2023 (arXiv 2304.08589).
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import clocks, results, stragglers
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result
from asyncjax.study.statistics import Condition, Difference
from experiments import part
from experiments.stragglers.methods import ALONE, BOTH, MUCH_LESS, SLIGHTLY_MORE
from experiments.stragglers.training import table_of

NAME = "straggler_bounds"
TITLE = "On the bound: what is a second knob, the load, worth?"
PAPERS = ("Egger, Kas Hanna, Bitar, 2023 (arXiv 2304.08589)",)
CLAIMS_OF = {  # by text: the cost that is compared with that of k alone, and the bound of the ratio
    "adapting k and load is faster than adapting k alone": ("time", 1.0),
    "with much less computation": ("samples_assigned", MUCH_LESS),
    "and slightly more communication": ("uplinks", SLIGHTLY_MORE),
}
COSTS = ("time", "samples_assigned", "samples_used", "uplinks", "broadcasts")
PRICE = "price 0.0003"  # of which the page tells
HEADS = ("time", "assigned", "used", "uplinks", "broadcasts")


def plan_anyway(*menu: Any, **options: Any) -> stragglers.Plan:
    """A plan, also where its target is out of reach, as it may be for what it is compared with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return stragglers.plan(*menu, **options)


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults are those of the paper page's table."""

    output: Path = Path("output/straggler_bounds")
    commit: bool = False  # also write experiments/rows/straggler_bounds.csv.gz
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


def menus(settings: Settings) -> dict[str, tuple[Any, Any]]:
    """Few values of k and of the load."""
    n, full = settings.n_workers, settings.loads[-1]
    tens, few = [k for k in range(10, n + 1, 10)], [1, full / 4, full / 2, full]
    return {
        "k 1, 10, 20, ... and load 1, a quarter, half, all": ([1, *tens], few),
        "k 10, 20, 30, ... and the same loads": (tens, few),
        "k 1, 10, 20, ..., full load": ([1, *tens], [full]),
        "k 10, 20, 30, ..., full load": (tens, [full]),
        "all k, full load": (None, [full]),
        "k = n, all loads": ([n], settings.loads),
    }


def study_of(settings: Settings) -> Result:
    """Makes all plans: a row a law, target and plan; prices and menus at the middle target alone.

    Raises:
        ValueError: A name is not that of a law.
    """
    made, bound = laws(settings), bound_of(settings)
    if unknown := [name for name in settings.laws if name not in made]:
        raise ValueError(f"laws must be among {', '.join(made)}, got {unknown[0]!r}")
    made = {name: made[name] for name in settings.laws or made}
    middle = settings.targets[len(settings.targets) // 2]
    rows, stages = [], {}
    for place, (law, times) in enumerate(made.items()):
        for samples in settings.targets:
            target = target_of(settings, samples)
            plans = stragglers.compared(times, bound, load=settings.loads, target=target)
            if samples == middle and place < 2:
                stages[law] = {name: _stages(plans[name]) for name in (BOTH, ALONE)}
                plans |= {
                    name: plan_anyway(times, bound, k=k, load=load, target=target)
                    for name, (k, load) in menus(settings).items()
                }
            if samples == middle and place == 0:
                plans |= {
                    f"price {price:g}": plan_anyway(
                        times, bound, load=settings.loads, target=target, compute_price=price
                    )
                    for price in settings.prices
                }
            rows += [_row(law, samples, name, plan, plans[ALONE]) for name, plan in plans.items()]
    facts = {"targets": list(settings.targets), "stages": stages}
    return Result(pd.DataFrame(rows), "time", facts, settings.seed)


def _row(
    law: str, samples: float, name: str, plan: stragglers.Plan, alone: stragglers.Plan
) -> dict[str, Any]:
    """A plan's costs over those of k alone; k and load where it has one stage."""
    over = {cost: getattr(plan, cost) / getattr(alone, cost) for cost in COSTS}
    single = plan.k.size == 1 and plan.reachable
    return {
        "scene": f"{law}, {samples:g}",
        "set": "A",
        "instance": 0,
        "method": name,
        "law": law,
        "samples": float(samples),
        **{cost: float(value) if plan.reachable else np.inf for cost, value in over.items()},
        "time_units": float(plan.time) if plan.reachable else np.inf,
        "k": float(plan.k[0]) if single else np.nan,
        "load": float(plan.load[0]) if single else np.nan,
    }


def _stages(plan: stragglers.Plan) -> dict[str, list[float]]:
    names = ("k", "load", "start_error", "end_error")
    return {name: np.asarray(getattr(plan, name), float).tolist() for name in names}


def costs(result: Result, method: str) -> Any:
    """Costs of a plan over those of k alone: a row a law and target, in the order of the rows."""
    return result.select(method=method).set_index(["law", "samples"])[list(COSTS)]


def claims(result: Result) -> tuple[Claim, ...]:
    """A condition for every law and target, without an interval, since nothing is drawn."""
    ratios = costs(result, BOTH)
    return tuple(
        Claim(
            text,
            [
                partial(_below, f"{law}, {samples:g}: {cost}", float(np.log(row[cost] / bound)))
                for (law, samples), row in ratios.iterrows()
            ],
            "Egger et al. 2023",
        )
        for text, (cost, bound) in CLAIMS_OF.items()
    )


def _below(text: str, apart: float, *_: Any) -> Condition:
    """A difference that is known: its interval is itself."""
    return Condition(text, Difference(apart, apart, apart, float(apart < 0), 1))


def verdict_table(result: Result) -> results.Table:
    """The verdicts and their rule."""
    found = result.verdicts(claims(result))
    return table_of(
        ("claim", "ratio below", "verdict"),
        [(text, bound, found[text]["A"]) for text, (_, bound) in CLAIMS_OF.items()],
        "A condition for every law and target, k and load over k alone; nothing is drawn, so there"
        " is no interval: a claim holds if all conditions do, in part if some.",
    )


def ratio_table(result: Result) -> results.Table:
    """The abstract's three claims: the middle target, and the loose and tight beside it."""
    ratios, (loose, middle, tight) = costs(result, BOTH), result.facts["targets"]
    rows = []
    for law in result.rows["law"].unique():
        own = ratios.loc[law]
        cells = [
            f"{own[cost][middle]:{form}} ({own[cost][loose]:{form}} / {own[cost][tight]:{form}})"
            for cost, form in (("time", ".3f"), ("samples_assigned", ".3f"), ("uplinks", ".2f"))
        ]
        used, sent = f"{own['samples_used'][middle]:.3f}", f"{own['broadcasts'][middle]:.2f}"
        rows.append((law, *cells[:2], used, cells[2], sent))
    return table_of(
        ("law of computing", *HEADS),
        rows,
        "Costs of the plan of (k, load) over those of the plan of k alone at full load, to the same"
        " target: middle (loose / tight).",
    )


def _over_best(result: Result, names: Sequence[str]) -> Any:
    """Times at the middle target over that of the plan of k and load, by law."""
    middle = result.facts["targets"][1]
    times = result.select(samples=middle, method=[BOTH, *names])
    wide = times.pivot(index="law", columns="method", values="time")
    return wide[list(names)].div(wide[BOTH], axis=0).loc[times["law"].unique()]


def rivals_of(result: Result) -> list[str]:
    """The plans that are made for all laws."""
    others = result.rows["method"].value_counts()
    return [name for name in result.methods if others[name] == others[BOTH]]


TABLES = {"claims": verdict_table, "ratios": ratio_table}


def path_figure(result: Result) -> Illustration:
    """Paths of (k, load)."""
    panels = []
    for law, plans in result.facts["stages"].items():
        lines = [
            _path(plans[plan], values, name)
            for plan, values, name in (
                (BOTH, "k", "k"),
                (BOTH, "load", "load"),
                (ALONE, "k", ALONE),
            )
        ]
        panels.append(plots.Panel(f"error of the bound, {law}", lines, log_x=True))
    return Illustration(
        plots.panels(panels, y_label="workers awaited, samples asked"),
        "The stages against the error they are used at; a run goes from right to left.",
    )


def _path(plan: Mapping[str, Any], values: str, name: str) -> results.Series:
    """A stage's value against the error, from the first to the last."""
    error = np.column_stack([plan["start_error"], plan["end_error"]]).ravel()[::-1]
    steps = np.repeat(np.array(plan[values], float), 2)[::-1]
    return results.Series(name, error, steps, steps, steps)


FIGURES = {"paths": path_figure}


def _span(values: Any) -> dict[str, float]:
    return {"least": float(values.min()), "most": float(values.max())}


def spans(result: Result) -> dict[str, Any]:
    """The least and the most of each cost over that of k alone, over laws and targets."""
    return {cost: _span(values) for cost, values in costs(result, BOTH).items()}


def _changed(result: Result, sign: int) -> dict[str, Any]:
    """By how much costs are above (1) or below (-1) those of k alone, the least and the most."""
    return {cost: _span(sign * (values - 1)) for cost, values in costs(result, BOTH).items()}


def slight(result: Result) -> dict[str, Any]:
    """The laws under which uplinks rise by less than a fifth at all targets, and by how much."""
    uplinks = costs(result, BOTH)["uplinks"].unstack("law")
    few = uplinks.loc[:, uplinks.max() < 1.2]
    return {"laws": int(few.shape[1]), **_span(few.to_numpy())}


FACTS: Mapping[str, Any] = {
    "spans": spans,
    "saved": lambda result: _changed(result, -1),
    "more": lambda result: _changed(result, 1),
    "slight": lambda result: {
        name: value if name == "laws" else value - 1 for name, value in slight(result).items()
    },
    "middle_uplinks": lambda result: _span(
        costs(result, BOTH)["uplinks"].xs(result.facts["targets"][1], level="samples")
    ),
    "rivals": lambda result: {
        name: _span(values) for name, values in _over_best(result, rivals_of(result)).items()
    },
    "menus": lambda result: {
        name: (values.dropna() - 1).tolist()
        for name, values in _over_best(result, list(menus(Settings()))).items()
    },
    "price_saved": lambda result: float(1 - costs(result, PRICE)["samples_assigned"].iloc[0]),
    "price_more": lambda result: float(costs(result, PRICE)["uplinks"].iloc[0] - 1),
}


def answer(result: Result) -> str:
    """The verdicts in words."""
    found = result.verdicts(claims(result))
    return "; ".join(f"{text}: {word['A']}" for text, word in found.items()) + "."


if __name__ == "__main__":
    part.main(NAME)
