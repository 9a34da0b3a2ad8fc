"""On the bound: what is a second knob, the load, worth beside the number of awaited workers?

No data, no chance: nothing is drawn, so there is one set, and a condition is a ratio below a bound
without an interval.

Plans of (k, load) are compared with plans of k alone, with every fixed pair, with gradient coding
and with waiting for all, under ten laws of response times that have one mean, and for a loose, a
middle and a tight target. Then: what computing less costs in time (a price of computation), and how
many values of k and of the load are enough.

Source: Egger, Kas Hanna, Bitar, 2023 (arXiv 2304.08589).
"""

import math
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import clocks, results, stragglers
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Condition, Difference
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.stragglers.methods import ALONE, BOTH, MUCH_LESS, SLIGHTLY_MORE

NAME = "straggler_bounds"
TITLE = "On the bound: what is a second knob, the load, worth?"
PAPERS = ("Egger, Kas Hanna, Bitar, 2023 (arXiv 2304.08589)",)
CLAIMS_OF = {  # by text: the cost that is compared with that of k alone, and the bound of the ratio
    "adapting k and load is faster than adapting k alone": ("time", 1.0),
    "with much less computation": ("samples_assigned", MUCH_LESS),
    "and slightly more communication": ("uplinks", SLIGHTLY_MORE),
}
CERTAIN = {  # by cost, why the plan of both cannot do worse
    "time": "by construction: all plans of k alone are among those of which the fastest is taken",
    "samples_assigned": "by construction: both plans are evaluated on the bound that they minimise;"
    " nothing is drawn, so no other instance could turn it",
}
COSTS = ("time", "samples_assigned", "samples_used", "uplinks", "broadcasts")
PRICE = "price 0.0003"  # of which the page tells
BOUND = stragglers.ErrorBound(
    step_size=0.01,
    smoothness=2.0,
    strong_convexity=1.0,
    noise_variance=400.0,
    initial_error=1000.0,
)


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults are those of the paper page's table."""

    output: Path = Path("output/straggler_bounds")
    commit: bool = False  # also write experiments/rows/straggler_bounds.csv.gz
    seed: int = 0  # nothing is drawn
    n_workers: int = 50
    loads: tuple[float, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40)  # to a shard
    targets: tuple[float, ...] = (400, 1200, 1800)  # samples an update whose floor is the target
    prices: tuple[float, ...] = (0.0, 1e-4, 3e-4, 1e-3, 3e-3)  # time units a sample assigned
    laws: tuple[str, ...] = ()  # names of the laws; none: all


def laws(n_workers: int, shard: float) -> dict[str, stragglers.Response]:
    """Response times by name.

    A whole shard takes 1 time unit on average, and so does communicating unless said.
    """
    one, sample = 1.0 / shard, clocks.exponential(1.0 / shard)
    half = clocks.shifted_exponential(one / 2, one / 2)
    known = {
        "exponential, scale": (sample, "scale", 1.0),
        "exponential, additive": (sample, "additive", 1.0),
        "no communication, scale": (sample, "scale", 0.0),
        "slow links (4 to 1), scale": (sample, "scale", 4.0),
        "fast links (1 to 4), scale": (sample, "scale", 0.25),
        "half shift, scale": (half, "scale", 1.0),
        "half shift, additive": (half, "additive", 1.0),
        "only the shift grows": (clocks.shifted_exponential(one / 2, 0.5), "shift", 1.0),
        "lognormal (sigma 1), scale": (clocks.lognormal(one, 1.0), "scale", 1.0),
        "Pareto (tail 2.5), scale": (clocks.pareto(one, 2.5), "scale", 1.0),
    }
    return {
        name: stragglers.response(
            compute=compute,
            communicate=clocks.exponential(apart) if apart else None,
            scaling=scaling,
            n_workers=n_workers,
        )
        for name, (compute, scaling, apart) in known.items()
    }


def target_of(samples: float) -> float:
    """The floor of an update of so many samples."""
    return float(stragglers.error_floor(BOUND, 1, samples))


def plan_anyway(times: Any, bound: Any = BOUND, **options: Any) -> stragglers.Plan:
    """A plan, also where its target is out of reach, as it may be for what it is compared with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return stragglers.plan(times, bound, **options)


def menus(settings: Settings) -> dict[str, dict[str, Any]]:
    """Few values of k and of the load."""
    n, full = settings.n_workers, settings.loads[-1]
    tens, few = [k for k in range(10, n + 1, 10)], [1, full / 4, full / 2, full]
    return {
        "k 1, 10, 20, ... and load 1, a quarter, half, all": {"k": [1, *tens], "load": few},
        "k 10, 20, 30, ... and the same loads": {"k": tens, "load": few},
        "k 1, 10, 20, ..., full load": {"k": [1, *tens], "load": [full]},
        "k 10, 20, 30, ..., full load": {"k": tens, "load": [full]},
        "all k, full load": {"load": [full]},
        "k = n, all loads": {"k": [n], "load": settings.loads},
    }


def study_of(settings: Settings) -> Result:
    """Makes all plans: a row a law, target and plan; prices and menus at the middle target alone.

    Raises:
        ValueError: A name is not that of a law.
    """
    known, loads = laws(settings.n_workers, settings.loads[-1]), settings.loads
    if unknown := [name for name in settings.laws if name not in known]:
        raise ValueError(f"laws must be among {', '.join(known)}, got {unknown[0]!r}")
    middle, rows, stages = settings.targets[len(settings.targets) // 2], [], {}
    for place, law in enumerate(settings.laws or known):
        for samples in settings.targets:
            times, target = known[law], target_of(samples)
            plans = stragglers.compared(times, BOUND, load=loads, target=target)
            more = menus(settings) if samples == middle and place < 2 else {}
            if more:
                stages[law] = {name: _stages(plans[name]) for name in (BOTH, ALONE)}
            if more and place == 0:
                priced = {
                    f"price {x:g}": {"load": loads, "compute_price": x} for x in settings.prices
                }
                more |= priced
            plans |= {
                name: plan_anyway(times, target=target, **menu) for name, menu in more.items()
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
        "time_units": plan.time,
        "k": float(plan.k[0]) if single else np.nan,
        "load": float(plan.load[0]) if single else np.nan,
    }


def _stages(plan: stragglers.Plan) -> dict[str, list[float]]:
    names = ("k", "load", "start_error", "end_error")
    return {name: np.asarray(getattr(plan, name), float).tolist() for name in names}


def costs(result: Result, method: str = BOTH) -> Any:
    """Costs of a plan over those of k alone: a row a law and target, in the order of the rows."""
    return result.select(method=method).set_index(["law", "samples"])[list(COSTS)]


def claims(result: Result) -> tuple[Claim, ...]:
    """A condition for every law and target, without an interval, since nothing is drawn."""
    ratios = costs(result)
    return tuple(
        Claim(
            text,
            [
                partial(_below, f"{law}, {samples:g}: {cost}", math.log(ratio), math.log(bound))
                for (law, samples), ratio in ratios[cost].items()
            ],
            "Egger et al. 2023",
            CERTAIN.get(cost, ""),
        )
        for text, (cost, bound) in CLAIMS_OF.items()
    )


def _below(text: str, apart: float, bound: float, *_: Any) -> Condition:
    """A difference that is known: its interval is itself."""
    return Condition(text, Difference(apart, apart, apart, float(apart < bound), 1), bound)


def verdict_table(result: Result) -> results.Table:
    """The verdicts and their rule."""
    words = result.verdicts(claims(result))
    return part.table(
        ("claim", "ratio below", "verdict"),
        [(text, bound, words[text]["A"]) for text, (_, bound) in CLAIMS_OF.items()],
        "A condition for every law and target, k and load over k alone; nothing is drawn, so there"
        " is no interval: a claim holds if all conditions do, in part if some.",
    )


def ratio_table(result: Result) -> results.Table:
    """The abstract's three claims: the middle target, and the loose and tight beside it."""
    wide, rows = costs(result).unstack("samples"), []
    claimed = [cost for cost, _ in CLAIMS_OF.values()]
    for law in result.rows["law"].unique():
        rows.append([law])
        for cost in COSTS:
            form = ".2f" if cost in ("uplinks", "broadcasts") else ".3f"
            ratios = wide.loc[law, cost]
            loose, middle, tight = (
                f"{ratios[target]:{form}}" for target in result.facts["targets"]
            )
            rows[-1].append(f"{middle} ({loose} / {tight})" if cost in claimed else middle)
    return part.table(
        ("law of computing", "time", "assigned", "used", "uplinks", "broadcasts"),
        rows,
        "Costs of the plan of (k, load) over those of the plan of k alone at full load, to the same"
        " target: middle (loose / tight).",
    )


TABLES = {"claims": verdict_table, "ratios": ratio_table}


def path_figure(result: Result) -> Illustration:
    """Paths of (k, load): stages against the error, from the first to the last."""
    panels = []
    for law, plans in result.facts["stages"].items():
        lines = []
        for plan, column, name in ((BOTH, "k", "k"), (BOTH, "load", "load"), (ALONE, "k", ALONE)):
            stages = plans[plan]
            error = np.column_stack([stages["start_error"], stages["end_error"]]).ravel()[::-1]
            steps = np.repeat(np.array(stages[column], float), 2)[::-1]
            lines.append(results.Series(name, error, *[steps] * 3))
        panels.append(plots.Panel(f"error of the bound, {law}", lines, log_x=True))
    return Illustration(
        plots.panels(panels, y_label="workers awaited, samples asked"),
        "The stages against the error they are used at; a run goes from right to left.",
    )


FIGURES = {"paths": path_figure}


def _spans(ratios: Any) -> dict[str, dict[str, float]]:
    """The least and the most of each column."""
    return {name: {"least": float(x.min()), "most": float(x.max())} for name, x in ratios.items()}


def slight(result: Result) -> dict[str, Any]:
    """The laws under which uplinks rise by less than a fifth at all targets, and by how much."""
    uplinks = costs(result)["uplinks"].unstack("law")
    few = uplinks.loc[:, uplinks.max() < 1.2]
    more = few.to_numpy() - 1
    return {"laws": few.shape[1], "least": float(more.min()), "most": float(more.max())}


def over_best(result: Result) -> Any:
    """Times at the middle target over that of the plan of k and load, a row a law."""
    times = result.select(samples=result.facts["targets"][1])
    wide = times.pivot(index="law", columns="method", values="time")
    wide = wide.loc[times["law"].unique(), times["method"].unique()]
    return wide.div(wide[BOTH], axis=0)


FACTS: Any = {
    "spans": lambda result: _spans(costs(result)),  # of each cost over that of k alone
    "saved": lambda result: _spans(1 - costs(result)),
    "more": lambda result: _spans(costs(result) - 1),
    "slight": slight,
    "middle_uplinks": lambda result: _spans(
        costs(result).xs(result.facts["targets"][1], level="samples")
    )["uplinks"],
    "rivals": lambda result: _spans(over_best(result).dropna(axis=1)),
    "menus": lambda result: {
        name: (over_best(result)[name].dropna() - 1).tolist() for name in menus(Settings())
    },
    "price_saved": lambda result: float(1 - costs(result, PRICE)["samples_assigned"].iloc[0]),
    "price_more": lambda result: float(costs(result, PRICE)["uplinks"].iloc[0] - 1),
}


if __name__ == "__main__":
    part.main(NAME)
