"""What the AsGrad experiment found: verdicts, tables, figures, all from its cells."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.tables import format_number
from asyncjax.study.statistics import Condition, Difference, paired, verdict
from experiments.asynchronous.asgrad_runs import AXES, SETS, Settings, Task, identity
from experiments.common import agreement
from experiments.common import numbers as committed
from experiments.common.parts import Drawing, Part, written

NAME = "asgrad"
TITLE = "Does shuffled dispatch win, per update and per unit of time?"
DOUBT = 0.05  # shared among the conditions of a claim
WHERE = {
    "updates": "at equal updates",
    "time": "at the time of pure's updates",
    "long time": "at the time of the slowest rule's",
}
RULES = ("pure", "random", "shuffled", "Rescaled")
PAPERS = (
    "Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",
    "Mishchenko, Bach, Even, Woodworth, 2022, Asynchronous SGD beats minibatch SGD under arbitrary"
    " delays (arXiv 2206.07638)",
)
Cells = Mapping[str, Mapping[str, Any]]  # by task, then by method


def logarithms(cells: Cells, task: str, method: str, axis: str, letter: str) -> np.ndarray:
    """Logarithms of a method's norms at an axis, one an instance."""
    return np.log(cells[task][method]["norms"][letter][AXES.index(axis)])


def ratio(
    cells: Cells, task: str, pair: tuple[str, str], axis: str, letter: str, parts: int = 1
) -> Difference:
    """The paired logarithm of the first's norm over the second's; `parts` share the doubt."""
    level, (first, second) = 1 - DOUBT / parts, pair
    one, other = (logarithms(cells, task, name, axis, letter) for name in (first, second))
    return paired(one, other, 0, level, max(4000, round(20 / (1 - level))))


def sorted_tasks(cells: Cells) -> list[str]:
    """Tasks with sorted whole shards, under every law."""
    return [task for task in cells if ", sorted, whole shards, " in task]


def conditions(cells: Cells, letter: str) -> dict[str, list[Condition]]:
    """The claims of one set of instances; those about what was not run are left out."""
    made: dict[str, list[Condition]] = {}

    def lower(claim: str, tasks: Sequence[str], pair: tuple[str, str], axis: str) -> None:
        own = [task for task in tasks if set(pair) <= set(cells[task])]
        if own:
            made[claim] = [
                Condition(
                    f"{pair[0]} below {pair[1]}, {task}",
                    ratio(cells, task, pair, axis, letter, len(own)),
                )
                for task in own
            ]

    sorted_shards = sorted_tasks(cells)
    for axis, where in WHERE.items():
        lower(f"shuffled below pure {where}", sorted_shards, ("shuffled", "pure"), axis)
    for axis in AXES[1:]:
        where = WHERE[axis]
        lower(f"random below pure {where}", sorted_shards, ("random", "pure"), axis)
        lower(f"Rescaled below shuffled {where}", sorted_shards, ("Rescaled", "shuffled"), axis)
    for name in ("shuffled, Adaptive 1", "shuffled, n/delay"):
        lower(f"{name} below shuffled at equal updates", sorted_shards, (name, "shuffled"), AXES[0])
    shared = [task for task in cells if ", shared, " in task]
    lower("pure below shuffled where all hold all rows", shared, ("pure", "shuffled"), "time")
    return made


def verdicts(cells: Cells, letter: str) -> dict[str, str]:
    """What the cells of one set say of each claim."""
    return {claim: verdict(own) for claim, own in conditions(cells, letter).items()}


def ratios(cells: Cells, pair: tuple[str, str]) -> dict[str, Any]:
    """First's norm over second's in each task with sorted whole shards, by axis and set.

    Each the geometric mean over instances and the ends of its own 95 % interval; and over the tasks
    the least and the largest of the means.
    """
    made: dict[str, Any] = {}
    for axis in AXES:
        for letter in SETS:
            own = {task: ratio(cells, task, pair, axis, letter) for task in sorted_tasks(cells)}
            means = [float(np.exp(each.mean)) for each in own.values()]
            made.setdefault(axis, {})[letter] = {
                "tasks": {
                    task: np.exp([each.mean, each.low, each.high]).tolist()
                    for task, each in own.items()
                },
                "least": min(means),
                "most": max(means),
                "ahead": sum(each.high < 0 for each in own.values()),
                "behind": sum(each.low > 0 for each in own.values()),
            }
    return made


def numbers_of(settings: Settings, cells: Cells) -> dict[str, Any]:
    """What is committed."""
    measured: dict[str, Any] = {"settings": identity(settings), "cells": cells}
    if settings.instances > 1:
        measured["verdicts"] = {letter: verdicts(cells, letter) for letter in SETS}
        pairs = (("shuffled", "pure"), ("Rescaled", "shuffled"), ("random", "pure"))
        ran = set.intersection(*(set(cells[task]) for task in sorted_tasks(cells)))
        measured["ratios"] = {
            " over ".join(pair): ratios(cells, pair) for pair in pairs if set(pair) <= ran
        }
    return measured


def part(settings: Settings, cells: Cells) -> Part:
    """Draws all figures and makes all tables; its figures lie in `settings.output`."""
    numbers = numbers_of(settings, cells)
    if settings.commit:
        command = f"python -m experiments.asynchronous.{NAME} --commit"
        committed.save(NAME, numbers, command=command)
    return written(
        settings.output,
        NAME,
        TITLE,
        figures(settings, cells),
        tables(settings, cells),
        numbers,
        answer(numbers),
        PAPERS,
    )


def answer(numbers: Mapping[str, Any]) -> str:
    """The first claims of both sets, in words."""
    if "verdicts" not in numbers:
        return ""
    return agreement.in_words(*(numbers["verdicts"][letter] for letter in SETS))


def figures(settings: Settings, cells: Cells) -> Iterator[Drawing]:
    """Curves at fixed times, and who is ahead under every law."""
    styles = plots.assign_styles([*RULES, "table"])
    for data in settings.data:
        group = cells.get(Task(data).name, {})
        names = [name for name in (*RULES, "table") if name in group and group[name]["curves"]]
        if not names:
            continue
        shares = np.linspace(1 / 60, 1, 60)
        labels = {
            "updates": f"share of {settings.n_updates} updates",
            "time": f"share of the time of pure's {settings.n_updates}",
            "long time": f"share of the time of the slowest rule's {settings.n_updates}",
        }
        panels = []
        for at, axis in enumerate(AXES):
            curves = {name: np.array(group[name]["curves"][at]) for name in names}
            series = [results.Series(n, shares, y, y, y) for n, y in curves.items()]
            panels.append(plots.Panel(labels[axis], series))
        yield (
            f"curves {data}",
            plots.panels(
                panels,
                y_label="norm of the full gradient",
                log_y=True,
                y_range=(3e-3, 3.0),
                styles=styles,
            ),
            f"{data}, sorted shards, fixed delays: norm of the full gradient, median of"
            f" {settings.tuning_instances} instances of set A. In every panel the step is the one"
            " that is best at its right end.",
        )


def tables(settings: Settings, cells: Cells) -> tuple[results.Table, ...]:
    """Verdicts, norms, ratios, and steps with their trials."""
    several = settings.instances > 1
    return (
        *((verdict_table(cells),) if several else ()),
        norm_table(settings, cells),
        *((ratio_table(settings, cells),) if several else ()),
        step_table(cells),
    )


def verdict_table(cells: Cells) -> results.Table:
    """The claims, set by set; experiments/README.md has it."""
    one, other = (verdicts(cells, letter) for letter in SETS)
    return agreement.verdict_table(
        one,
        other,
        "Norm of the full gradient, over all data and laws with sorted shards: a claim holds if it"
        " is told in all of them, in part if in some.",
    )


def norm_table(settings: Settings, cells: Cells) -> results.Table:
    """One row a task and method: norms of set A, median (quartiles); README has the first rows."""
    rows = []
    for task, group in cells.items():
        for name, own in group.items():
            norms = [results.median_and_spread(own["norms"]["A"][at]) for at in range(len(AXES))]
            seconds = float(np.median(own["time_of_updates"]))
            busy = float(np.median(own["utilisation"]))
            rows.append((task, name, norms[0], seconds, *norms[1:], busy))
    return results.Table(
        (
            results.Column("task", right=False),
            results.Column("rule", right=False),
            results.Column(f"norm at {settings.n_updates} updates"),
            results.Column("time of these"),
            results.Column("norm at time"),
            results.Column("norm at long time"),
            results.Column("utilisation"),
        ),
        tuple(rows),
        f"Norm of the full gradient, median (quartiles) over {settings.instances} instances of set"
        f" A, mean over the last {100 * settings.window:g} % of the axis; time is that of pure's"
        f" {settings.n_updates} updates on the same instance, long time that of the slowest rule's."
        " The step is chosen for every axis by itself, on other instances.",
    )


def short_table(cells: Cells) -> results.Table:
    """Fixed times, sorted whole shards: medians of set A; experiments/README.md has it."""
    rows = []
    for task, group in cells.items():
        if not task.endswith(", sorted, whole shards, fixed"):
            continue
        order = (*RULES, "table", *group)
        for name in dict.fromkeys(name for name in order if name in group):
            own = group[name]
            norms = [
                format_number(float(np.median(own["norms"]["A"][at]))) for at in range(len(AXES))
            ]
            seconds, busy = (
                float(np.median(own[what])) for what in ("time_of_updates", "utilisation")
            )
            data = task.partition(",")[0]
            rows.append((data, name, norms[0], round(seconds), *norms[1:], f"{busy:.2f}"))
    heads = ("at 500 updates", "time of these", "at pure's time", "at the long time", "utilisation")
    return results.Table(
        (
            results.Column("data, fixed times", right=False),
            results.Column("rule", right=False),
            *map(results.Column, heads),
        ),
        tuple(rows),
        "Norm of the full gradient, median over the instances of set A.",
    )


def ratio_table(settings: Settings, cells: Cells) -> results.Table:
    """Shuffled's norm over pure's, and Rescaled's over shuffled's, with intervals, set by set."""
    pairs, rows = (("shuffled", "pure"), ("Rescaled", "shuffled")), []
    for pair in pairs:
        for task, group in cells.items():
            if not set(pair) <= set(group):
                continue
            told = [
                _ratio(ratio(cells, task, pair, axis, letter)) for axis in AXES for letter in SETS
            ]
            rows.append((" over ".join(pair), task, *told))
    heads = [results.Column(f"{axis}, set {letter}") for axis in AXES for letter in SETS]
    return results.Table(
        (results.Column("norms", right=False), results.Column("task", right=False), *heads),
        tuple(rows),
        f"Geometric mean over {settings.instances} instances and its 95 % interval; a star where"
        " the two do not differ significantly. Below 1 the first is ahead.",
    )


def _ratio(own: Difference) -> str:
    low, mean, high = (f"{np.exp(value):.2g}" for value in (own.low, own.mean, own.high))
    return f"{mean} ({low} to {high})" + ("" if own.significant else " *")


def step_table(cells: Cells) -> results.Table:
    """What was chosen from how many trials."""
    rows = []
    for task, group in cells.items():
        for name, own in group.items():
            steps = ", ".join(f"{step:.3g}" for step in own["steps"])
            trials = " ".join(map(str, own["trials"]))
            spent = f"{max(own['tuning_gradients']):,}"
            rows.append((task, name, steps, trials, spent, sum(own["at_edge"])))
    heads = ("task", "rule", "steps, by axis", "trials", "gradients, at most", "at an edge")
    return results.Table(
        tuple(
            results.Column(head, right=place > 1 and place != 2) for place, head in enumerate(heads)
        ),
        tuple(rows),
        "The steps chosen for 500 updates, for the time and for the long time, each from so many"
        " trials on instances that are not shown.",
    )
