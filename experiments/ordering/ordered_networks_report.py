"""Tables, figure and numbers of the comparison of orders on networks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import assign_styles, drawing, new_figure
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.statistics import Difference, paired
from experiments.common import numbers as committed
from experiments.common.parts import Part, written
from experiments.ordering import order_claims
from experiments.ordering.epoch_costs import DEVICE, MACHINE
from experiments.ordering.order_claims import (
    CPU,
    EPOCHS,
    LEVELS,
    SETS,
    UNITS,
    arrival,
    logarithm,
    ratio_text,
)
from experiments.ordering.ordered_networks_runs import (
    ARRIVAL,
    BASELINE,
    COORDINATED,
    FINAL,
    ORDERS,
)
from experiments.ordering.ordered_tasks import tasks

NAME = "ordered_networks"
TITLE = "Do balanced orders train networks faster than random reshuffling?"
DIGITS = 5
TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2)  # a narrow axis
WIDE_TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 7)
LOSS_TICKS = (0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 2, 2.5)
WIDE_LOSS_TICKS = (1, 3, 10, 30, 100, 300)
CURVES = ("loss_curve", "early_curve", "metric_curve")
Found = Mapping[str, Any]


def numbers(found: Found) -> dict[str, Any]:
    """What tables and verdicts are made from: all but curves, and the verdicts of both sets."""
    kept = {
        task: own
        | {
            "sets": {
                which: {
                    name: {key: value for key, value in run.items() if key not in CURVES}
                    for name, run in runs.items()
                }
                for which, runs in own["sets"].items()
            }
        }
        for task, own in found.items()
    }
    kept = committed.rounded(kept, DIGITS)
    said = order_claims.network_verdicts(kept)
    return {
        "tasks": kept,
        "verdicts": said,
        "disagreements": {k: list(v) for k, v in order_claims.differing(said).items()},
        "summary": summary(kept),
    }


def summary(found: Found) -> dict[str, Any]:
    """What pages quote: ratios of final losses and what CD-GraB needs, by task and set."""
    made: dict[str, Any] = {}
    for task, own in found.items():
        made[task] = {
            "price": own["prices"][COORDINATED][0],
            "ratio": {
                which: {
                    name: float(np.exp(loss_of(own, which, name).mean))
                    for name in own["prices"]
                    if name != BASELINE
                }
                for which in SETS
            },
            "percent": {  # by which CD-GraB ends lower
                which: float(100 - 100 * np.exp(loss_of(own, which, COORDINATED).mean))
                for which in SETS
            },
            "lower": {which: loss_of(own, which, COORDINATED).lower for which in SETS},
            "needs": {
                which: {
                    unit: float(np.exp(arrival(own, which, len(LEVELS) - 1, unit).mean))
                    for unit in UNITS
                }
                for which in SETS
            },
        }
    return made


def loss_of(own: Found, which: str, name: str) -> Difference:
    """Logarithm of an order's final loss over that of D-RR."""
    runs = own["sets"][which]
    return logarithm(runs[name]["loss"], runs[BASELINE]["loss"])


def tested(own: Found, which: str, name: str) -> Difference:
    """Logarithm of a test loss over that of D-RR; for an accuracy D-RR's errors less the order's.

    So below 0 is better.
    """
    runs = own["sets"][which]
    mine, base = (np.array(runs[one]["metric"]) for one in (name, BASELINE))
    return paired(base, mine) if is_accuracy(own) else logarithm(mine, base)


def is_accuracy(own: Found) -> bool:
    """Whether the test is an accuracy, else it is a loss."""
    return own["sizes"]["metric"] == "test_accuracy"


def ordered(found: Found) -> list[str]:
    """Titles in the order of the tasks; files of numbers keep none."""
    known = [task.title for task in tasks().values()]
    return sorted(found, key=lambda title: known.index(title) if title in known else len(known))


def loss_table(found: Found) -> results.Table:
    """Final losses of all orders."""
    columns = (
        results.Column("task", right=False),
        results.Column("order", right=False),
        results.Column("step", format=_step),
        results.Column("loss / D-RR, set A", right=False),
        results.Column("lower in", format=str),
        results.Column("set B", right=False),
        results.Column("lower in", format=str),
        results.Column("test, A", right=False),
        results.Column("prefix sum"),
    )
    rows = []
    for task in ordered(found):
        own = found[task]
        for name in (name for name in ORDERS if name in own["prices"]):
            step = own["tuning"][FINAL][name]["step"]
            balance = float(np.mean([own["sets"][w][name]["imbalance"] for w in SETS]))
            if name == BASELINE:
                rows.append((task, name, step, "1", "", "1", "", "", balance))
                continue
            both = [loss_of(own, which, name) for which in SETS]
            lower = [f"{round(one.lower * one.count)} of {one.count}" for one in both]
            test = tested(own, "A", name)
            rows.append(
                (
                    "",
                    name,
                    step,
                    ratio_text(both[0]),
                    lower[0],
                    ratio_text(both[1]),
                    lower[1],
                    _percent(test) if is_accuracy(own) else ratio_text(test),
                    balance,
                )
            )
    return results.Table(
        columns,
        tuple(rows),
        "Final training loss over that of D-RR, geometric mean over instances (interval of 95 %)."
        " Test: test loss over that of D-RR, or, for an accuracy, by how many points it is lower."
        " Prefix sum: the longest of the last order at the last model, over that of random orders.",
    )


def price_table(found: Found) -> results.Table:
    """What an epoch of CD-GraB costs in those of D-RR."""
    columns = (
        results.Column("task", right=False),
        results.Column("parameters", format=str),
        results.Column("this CPU, median (quartiles)", right=False),
        results.Column("one device: flops"),
        results.Column("bytes"),
        results.Column("one of m machines: flops"),
        results.Column("bytes"),
        results.Column("numbers sent"),
        results.Column("flops added / derived"),
        results.Column("bytes added / derived"),
    )
    rows = []
    for task in ordered(found):
        own, costs = found[task], found[task]["costs"]
        middle, low, high = own["prices"][COORDINATED]
        ratio = costs["ratio"]
        rows.append(
            (
                task,
                f"{own['sizes']['parameters']:,}",
                f"{middle:.2f} ({low:.2f} to {high:.2f})",
                *ratio[DEVICE],
                *ratio[MACHINE],
                costs["sent ratio"],
                *costs["extra over expected"],
            )
        )
    return results.Table(
        columns,
        tuple(rows),
        "The price of an epoch of CD-GraB in those of D-RR. Derived: what balancing adds should be"
        " 6 flops and 8 numbers read or written a parameter and pair of steps.",
    )


def time_table(found: Found) -> results.Table:
    """What CD-GraB needs to the lowest loss of D-RR."""
    columns = (
        results.Column("task", right=False),
        *(results.Column(f"{unit}, A", right=False) for unit in UNITS),
        *(results.Column(f"{unit}, B") for unit in UNITS),
    )
    last = len(LEVELS) - 1
    rows = [
        (
            task,
            *(ratio_text(arrival(found[task], "A", last, unit)) for unit in UNITS),
            *(float(np.exp(arrival(found[task], "B", last, unit).mean)) for unit in UNITS),
        )
        for task in ordered(found)
    ]
    return results.Table(
        columns,
        tuple(rows),
        "What CD-GraB needs until the lowest loss of D-RR on the same instance, over what D-RR"
        " needs; geometric mean (interval of 95 %). Who is not there by the last epoch counts as"
        " there after twice as many. Flops, bytes and numbers sent: of one of m machines.",
    )


def verdict_table(said: Mapping[str, Mapping[str, str]]) -> results.Table:
    """Claims and verdicts of both sets."""
    columns = tuple(results.Column(name, right=False) for name in ("claim", "set A", "set B"))
    rows = order_claims.verdict_rows(said)
    return results.Table(columns, tuple(rows), "Verdicts; each has a condition a task.")


def main_claims(said: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """The verdicts that pages show: those at the first two levels are left out."""
    early = tuple(f"at {level:.0%} of".replace("%", " %") for level in LEVELS[:2])
    return {
        which: {
            claim: word for claim, word in own.items() if not any(level in claim for level in early)
        }
        for which, own in said.items()
    }


def trial_table(found: Found) -> results.Table:
    """Trials, gradient evaluations, steps and edges of each order."""
    columns = (
        results.Column("task", right=False),
        results.Column("chosen for", right=False),
        results.Column("trials an order"),
        results.Column("gradients an order"),
        results.Column("steps", right=False),
        results.Column("at an edge", right=False),
    )
    rows = []
    for task in ordered(found):
        for aim in (FINAL, ARRIVAL):
            own = found[task]["tuning"][aim]
            names = [name for name in ORDERS if name in own]
            edges = [name for name in names if own[name]["edges"]]
            rows.append(
                (
                    task,
                    aim,
                    " or ".join(sorted({str(one["trials"]) for one in own.values()})),
                    " or ".join(sorted({f"{one['gradients']:,}" for one in own.values()})),
                    ", ".join(f"{name} {_step(own[name]['step'])}" for name in names),
                    ", ".join(edges) or "none",
                )
            )
    return results.Table(columns, tuple(rows), "Tuning, on instances that are not reported.")


def size_table(found: Found) -> results.Table:
    """What the tasks are."""
    columns = (
        results.Column("task", right=False),
        results.Column("data", right=False),
        results.Column("units x rows"),
        results.Column("optimizer", right=False),
        results.Column("epochs"),
        results.Column("instances a set"),
        results.Column("the authors' scripts", right=False),
    )
    rows = []
    for task in ordered(found):
        own = found[task]["sizes"]
        units = f"{own['units']} x {own['batch']}"
        cells = (own["optimizer"], own["epochs"], own["instances"], own["authors"])
        rows.append((task, own["data"], units, *cells))
    return results.Table(columns, tuple(rows), "The tasks; units of each worker.")


def _step(value: Any) -> str:
    return f"{value:.3g}"


def _percent(difference: Difference) -> str:
    values = (100 * one for one in (difference.mean, difference.low, difference.high))
    return "{:+.1f} ({:+.1f} to {:+.1f}) points".format(*values)


def forest(found: Found) -> Any:
    """Final losses by order, and what CD-GraB needs by unit, a row a task; set A over set B."""
    titles = ordered(found)
    names = [name for name in ORDERS if name != BASELINE]
    left = {
        name: lambda own, which, name=name: (
            loss_of(own, which, name) if name in own["prices"] else None
        )
        for name in names
    }
    last = len(LEVELS) - 1
    right = {unit: lambda own, which, unit=unit: arrival(own, which, last, unit) for unit in UNITS}
    panels = (
        ("final training loss / D-RR", left),
        ("CD-GraB / D-RR until D-RR's lowest loss", right),
    )
    with drawing():
        figure = new_figure(10.0, 1.6 + 0.95 * len(titles))
        grid = figure.subplots(1, 2, sharey=True)
        for axes, (label, series) in zip(grid, panels, strict=True):
            styles = assign_styles(tuple(series))
            for place, (name, of) in enumerate(series.items()):
                colour = styles[name].colour
                for which, lift, face in (("A", 0.25, colour), ("B", 0.65, "white")):
                    points = [of(found[title], which) for title in titles]
                    _row(axes, points, 0.8 * ((place + lift) / len(series) - 0.5), colour, face)
                axes.plot([], [], "o", color=styles[name].colour, label=name)
            axes.axvline(1.0, color="grey", linewidth=0.8, zorder=0)
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            _ticks(axes.xaxis, (low, high), TICKS if high < 2 * low else WIDE_TICKS)
            axes.set_xlabel(label)
            axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, columnspacing=1.0)
        grid[0].set_yticks(range(len(titles)), titles)
        grid[0].set_ylim(len(titles) - 0.5, -0.5)
    return figure


def _ticks(axis: Any, limits: tuple[float, float], known: Sequence[float]) -> None:
    ticks = [tick for tick in known if limits[0] < tick < limits[1]]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def _row(
    axes: Any, found: Sequence[Difference | None], offset: float, colour: Any, face: Any
) -> None:
    """The points of one series and set, a row a task; a task may have none."""
    for at, difference in enumerate(found):
        if difference is not None:
            ends = np.exp([difference.low, difference.high])
            axes.plot(ends, [at + offset] * 2, color=colour, linewidth=1.2)
            style = {"color": colour, "markersize": 4, "markerfacecolor": face}
            axes.plot(np.exp(difference.mean), at + offset, "o", **style)


def courses(found: Found) -> Any:
    """Median losses of D-RR by epoch and of CD-GraB by epoch and by what its epochs cost, set A."""
    titles = ordered(found)
    with drawing():
        figure = new_figure(10.0, 5.6)
        grid = figure.subplots(2, (len(titles) + 2) // 2, squeeze=False).ravel()
        styles = assign_styles((BASELINE, *UNITS))
        for axes, title in zip(grid, titles, strict=False):
            own = found[title]
            for name in (BASELINE, *UNITS):
                price = 1.0 if name == BASELINE else order_claims.price_of(own, name)
                order = BASELINE if name == BASELINE else COORDINATED
                base, loss = (own["sets"]["A"][one]["loss_curve"] for one in (BASELINE, order))
                count = 1 + int((len(base) - 1) / price)  # epochs that fit, the start too
                shown = np.array(loss)[1:count] / base[-1]
                epochs = np.arange(1, 1 + len(shown))
                axes.plot(price * epochs, shown, color=styles[name].colour)
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            _ticks(axes.yaxis, (low, high), LOSS_TICKS if high < 5 * low else WIDE_LOSS_TICKS)
            axes.set_title(title)
            axes.set_xlabel("epochs of D-RR")
        labels = [BASELINE, *(f"{COORDINATED}, {unit}" for unit in UNITS)]
        for axes in grid[len(titles) :]:
            axes.axis("off")
        grid[-1].legend(grid[0].lines, labels, loc="center")
        grid[0].set_ylabel("training loss / last of D-RR")
    return figure


def part(output: Path, found: Found, commit: bool) -> Part:
    """Draws the figure, makes the tables; writes numbers where they are committed if asked."""
    made = numbers(found)
    if commit:
        command = "python -m experiments.ordering.ordered_networks --commit"
        committed.save(NAME, made, command=command, digits=DIGITS)
    kept = made["tasks"]
    drawn = [
        (
            "",
            forest(kept),
            "Final training loss over that of D-RR, and what CD-GraB needs until D-RR's lowest"
            " loss by epochs, flops, bytes, numbers sent and time of this CPU; full points set A,"
            " hollow set B, intervals of 95 %.",
        ),
        (
            "courses",
            courses(found),
            "Median training loss by epoch, and of CD-GraB by what its epochs cost; set A.",
        ),
    ]
    said = made["verdicts"]
    return written(
        output,
        NAME,
        TITLE,
        drawn,
        (
            loss_table(kept),
            price_table(kept),
            time_table(kept),
            verdict_table(said),
            trial_table(kept),
            size_table(kept),
        ),
        made,
        answer(said),
        note=FIRST_CROSSING,
    )


def answer(said: Mapping[str, Mapping[str, str]]) -> str:
    """The two main verdicts in words."""
    words = []
    for claim in (
        order_claims.LOWER,
        order_claims.sooner(EPOCHS, 1.0),
        order_claims.sooner(CPU, 1.0),
    ):
        both = list(dict.fromkeys(said[which][claim] for which in SETS))
        words.append(f"That {claim}: {' and '.join(both)}.")
    return " ".join(words)
