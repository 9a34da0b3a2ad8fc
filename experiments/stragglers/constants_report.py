"""Tables, figures and numbers of plans from wrong constants."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.study.protocol import FIRST_CROSSING
from experiments.common import numbers as kept
from experiments.common.parts import Part, written
from experiments.stragglers.bounds import COSTS, HEADS
from experiments.stragglers.constants_runs import Found, Settings
from experiments.stragglers.walks import RIGHT

CLOSE = f"{RIGHT}, close floor"


def part(settings: Settings, found: Found) -> Part:
    """Draws the figures and makes the tables.

    Returns:
        The part; its files lie in `settings.output`.
    """
    tables = (
        bound_table(found),
        training_table(settings, found),
        pilots_table(found),
        floors_table(found),
        switches_table(settings, found),
        bound_costs_table(settings, found),
        training_costs_table(found),
    )
    drawings = (
        (
            "factors",
            factors_figure(found),
            "On the bound: time over the best plan's against how wrong one constant is."
            " Smoothness acts like variance.",
        ),
        (
            "gaps",
            gaps_figure(settings, found),
            "SGD: mean gap of ten iterates over time, median and quartiles; the pilot sees the"
            " loss of the rows it uses.",
        ),
    )
    title, numbers = (
        "What do wrong constants cost a plan, and what mends it?",
        numbers_of(settings, found),
    )
    if settings.commit:
        command = "python -m experiments.stragglers.constants --commit"
        kept.save("straggler_constants", quoted(found), command=command, digits=4)
    return written(
        settings.output,
        "straggler_constants",
        title,
        drawings,
        tables,
        numbers,
        note=FIRST_CROSSING,
    )


def ratio(value: float) -> str:
    """A ratio of times for people."""
    return f"{value:.3f}" if np.isfinite(value) else "never"


def with_pilots(found: Found) -> dict[tuple[str, str], Mapping[str, Any]]:
    """All outcomes of SGD by (plan, switch)."""
    return {**found.outcomes, **{(one.name, "by updates"): one.outcome for one in found.pilots}}


def bound_table(found: Found) -> results.Table:
    """On the bound: time over the best by constant and switch."""
    least = found.walks[RIGHT, 1.0]["by updates"]["time"]
    names = list(found.walks[RIGHT, 1.0])
    rows = [
        (constant, factor, *(walks[name]["time"] / least for name in names))
        for (constant, factor), walks in found.walks.items()
    ]
    return results.Table(
        (
            results.Column("constant", right=False),
            results.Column("believed over true"),
            *(results.Column(name, format=ratio) for name in names),
        ),
        tuple(rows),
        "On the bound, no chance: time to the target over that of the best plan, when one"
        " constant is wrong. The plan that stops at its target stays in the stage in which it"
        " believes to reach it; all others go on to the least floor. Switches by the error see"
        " the true error, and leave a stage at the latest after patience times its updates.",
    )


def bound_costs_table(settings: Settings, found: Found) -> results.Table:
    """On the bound: all costs over the best plan's, for the two constants that matter."""
    best = found.walks[RIGHT, 1.0]["by updates"]
    rows = []
    for (constant, factor), walks in found.walks.items():
        if constant in ("strong convexity", "noise variance"):
            errors = [f"by error, patience {patience:g}" for patience in settings.run_patiences]
            for switch in ("by updates", *(name for name in errors if name in walks)):
                shares = (walks[switch][cost] / best[cost] for cost in COSTS)
                rows.append((constant, factor, switch, *shares))
    return results.Table(
        (
            results.Column("constant", right=False),
            results.Column("believed over true"),
            results.Column("switch", right=False),
            *(results.Column(head, format=ratio) for head in HEADS),
        ),
        tuple(rows),
        "On the bound: all costs until the target over those of the best plan.",
    )


def floors_table(found: Found) -> results.Table:
    """Measured stationary errors beside two floors."""
    rows = [
        (
            *(row[name] for name in ("k", "load", "error", "bound", "close")),
            row["error"] / row["bound"],
            row["error"] / row["close"],
        )
        for row in found.floors
    ]
    heads = ("k", "load", "measured", "bound's floor", "quadratic's", "over it", "over quadratic's")
    return results.Table(
        tuple(results.Column(head) for head in heads),
        tuple(rows),
        "SGD with a fixed pair: mean gap over the second half of a run and all seeds, beside the"
        " bound's floor and the floor for quadratics. Sampling without replacement and small"
        " curvature explain the difference.",
    )


def switches_table(settings: Settings, found: Found) -> results.Table:
    """Where two floors put the switches."""
    whole = settings.n_workers * settings.shard
    rows = []
    for share in (0.02, 0.1, 0.25, 0.5, 0.75, 0.9):
        errors = []
        for name in (RIGHT, CLOSE):
            plan = found.plans[name]
            first = int(np.argmax(plan.k * plan.load >= share * whole))
            errors.append(float(plan.start_error[first]) / found.bench.target)
        rows.append((share * whole, *errors, errors[0] / errors[1]))
    heads = ("samples an update", "bound's floor", "quadratic's floor", "ratio")
    return results.Table(
        tuple(results.Column(head) for head in heads),
        tuple(rows),
        "At which error, over the target, plans from the right constants of the data first use so"
        " many samples an update: the loose floor switches too early.",
    )


def training_table(settings: Settings, found: Found) -> results.Table:
    """In SGD: time by plan and switch."""
    base = found.outcomes[RIGHT, "by updates"]["time"]
    outcomes = with_pilots(found)
    plans = list(dict.fromkeys(plan for plan, _ in outcomes))
    switches = list(dict.fromkeys(switch for _, switch in found.outcomes))

    def cell(plan: str, switch: str) -> str | None:
        outcome = outcomes.get((plan, switch))
        if outcome is None:
            return None
        middle = float(np.median(outcome["time"] / base))
        reached = np.isfinite(outcome["time"])
        if np.isfinite(middle):
            return f"{middle:.2f}"
        return f"never ({reached.sum()} of {reached.size})" if reached.any() else "never"

    rows = [(plan, *(cell(plan, switch) for switch in switches)) for plan in plans]
    return results.Table(
        (results.Column("plan", right=False), *(results.Column(switch) for switch in switches)),
        tuple(rows),
        "SGD on a linear regression: time to the target over that of the plan from the right"
        " constants that switches by updates, median of seeds with the same workers; never: not"
        f" in {settings.most_updates:,} updates. Switches by the error are told the loss on all"
        " rows after each update, and the least loss, free of charge. Pilots are counted.",
    )


def training_costs_table(found: Found) -> results.Table:
    """In SGD: all costs."""
    rows = [
        (plan, switch, *(results.median_and_spread(outcome[cost]) for cost in COSTS))
        for (plan, switch), outcome in with_pilots(found).items()
    ]
    return results.Table(
        (
            results.Column("plan", right=False),
            results.Column("switch", right=False),
            *(results.Column(head) for head in HEADS),
        ),
        tuple(rows),
        "SGD: costs until the target, median (quartiles) over seeds.",
    )


def pilots_table(found: Found) -> results.Table:
    """What the pilots saw and cost."""
    true = found.bench.made.strong_convexity
    spread = results.median_and_spread
    rows = [
        (
            one.name,
            spread(one.convexity),
            spread(one.convexity / true),
            spread(one.time),
            spread(one.outcome["time"]),
        )
        for one in found.pilots
    ]
    return results.Table(
        (
            results.Column("pilot", right=False),
            results.Column("strong convexity seen"),
            results.Column("over the Hessian's"),
            results.Column("time of the pilot"),
            results.Column("time to the target"),
        ),
        tuple(rows),
        "Pilots: so many updates with the cheapest pair, then a plan from the decay that they"
        " showed, median (quartiles) over seeds. The least eigenvalue of the Hessian is"
        f" {true:.3g}; the loss of a quadratic falls twice as fast as the bound says, and at first"
        " along all eigenvectors, not along the slowest alone.",
    )


def factors_figure(found: Found) -> Any:
    """Time over the best against the factor, a panel a switch."""
    panels = []
    for switch, by_constant in found.swept.items():
        series = []
        for constant, times in by_constant.items():
            shown = np.where(np.isfinite(times), times, np.nan)
            series.append(results.Series(constant, found.factors, shown, shown, shown))
        panels.append(plots.Panel(f"believed over true ({switch})", series, log_x=True))
    return plots.panels(panels, y_label="time over the best plan's", log_y=True)


def gaps_figure(settings: Settings, found: Found) -> Any:
    """Mean gap over time, a panel a switch; one pilot among those that switch by updates."""
    convexity, variance = settings.wrong_convexity, settings.wrong_variance
    middle = found.pilots[len(found.pilots) // 2]
    names = {RIGHT: "right", CLOSE: "right, close floor"}
    names |= {f"strong convexity x {x:g}": f"convexity x {x:g}" for x in convexity}
    names |= {f"noise variance x {min(variance):g}": f"variance x {min(variance):g}"}
    names |= {middle.name: f"{middle.name.partition(',')[0]} updates"}
    outcomes = with_pilots(found)
    patiences = (min(settings.run_patiences), max(settings.run_patiences))
    end = 2.5 * np.median(found.outcomes[RIGHT, "by updates"]["time"])
    panels = []
    for switch in ("by updates", *(f"by error, patience {patience:g}" for patience in patiences)):
        series = []
        for plan, name in names.items():
            if (plan, switch) in outcomes:
                when, gap = outcomes[plan, switch]["gap"]
                grid = np.linspace(when[:, 0].max(), min(end, when[:, -1].min()), 120)
                series.append(results.series_over_seeds(name, when, gap, grid))
        panels.append(plots.Panel(f"time ({switch})", series))
    return plots.panels(
        panels, y_label="loss above the minimum", log_y=True, target=found.bench.target
    )


def quoted(found: Found) -> dict[str, Any]:
    """What is committed: times over those with the right constants, errors over the floors."""
    least = found.walks[RIGHT, 1.0]["by updates"]["time"]
    base = found.outcomes[RIGHT, "by updates"]["time"]
    return {
        "bound": {
            f"{constant}, {factor:g}": {name: own["time"] / least for name, own in walks.items()}
            for (constant, factor), walks in found.walks.items()
        },
        "training": {
            f"{plan}, {switch}": float(np.median(outcome["time"] / base))
            for (plan, switch), outcome in with_pilots(found).items()
        },
        "over bound": [row["error"] / row["bound"] for row in found.floors],
        "over quadratic": [row["error"] / row["close"] for row in found.floors],
    }


def numbers_of(settings: Settings, found: Found) -> dict[str, Any]:
    """Everything in the tables, as plain values."""
    said = asdict(settings) | {"output": str(settings.output)}
    return {
        "settings": said,
        "bound": {f"{name}, {factor:g}": walks for (name, factor), walks in found.walks.items()},
        "sweep": {"factors": found.factors, **found.swept},
        "floors": list(found.floors),
        "training": {
            f"{plan}; {switch}": {cost: outcome[cost] for cost in COSTS}
            for (plan, switch), outcome in with_pilots(found).items()
        },
        "pilots": {
            one.name: {"strong_convexity": one.convexity, "time": one.time} for one in found.pilots
        },
        "target": found.bench.target,
        "strong_convexity": found.bench.made.strong_convexity,
    }
