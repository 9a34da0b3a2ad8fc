"""Do balanced orders train networks faster than random reshuffling, by epochs and by time?

Seven tasks, up to five orders. Cooper et al. 2023 (arXiv 2302.00845) order the units of m workers
by their gradients. Here a unit is a microbatch. In every step each worker takes one unit, and the
server steps by the mean of their m gradients. Three tasks cost little (digits, with and without
wrong labels, monthly series), four have the form of the authors' public scripts in a size that fits
two cores (a wide forecaster, an LSTM, LeNet, a small transformer).

An instance draws rows, their units and workers, wrong labels and the first model; its noise is the
first orders. All orders have the same rows, steps and epochs, and as many trials of their step, on
instances that are not reported: once for the final loss, once for early arrival. They have no other
knob. Who does not arrive counts as there after twice as many epochs: D-RR is there by the last,
since the target is its own loss, and at the last epoch nobody could be later.

Time comes in four prices of an epoch, in those of D-RR: measured on this CPU, which plays m
workers, with one thread; flops and bytes as compiled for one of m machines; numbers it sends
(`epoch_costs`). "CD-GraB by projections" is the stale form: its units are half as large and it
takes two a step. `ordered_networks_runs.py` has the tasks and what is run.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("NPROC", "1")  # prices are those of one thread

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.statistics import Condition, Difference, paired
from experiments import part
from experiments.common.kept_rows import once
from experiments.ordering import epoch_costs
from experiments.ordering.epoch_costs import CPU, DEVICE, EPOCHS, MACHINE, UNITS
from experiments.ordering.herding import CD_GRAB, forest, ratio_of, ratio_text
from experiments.ordering.herding_runs import ALONE, BASELINE, COORDINATED
from experiments.ordering.ordered_networks_runs import (
    ARRIVAL,
    FINAL,
    LATE,
    LEVELS,
    ORDERS,
    Task,
    arrival_column,
    measured,
    tasks,
)

NAME = "ordered_networks"
TITLE = "Do balanced orders train networks faster than random reshuffling?"
PAPERS = (CD_GRAB,)
NOTE = FIRST_CROSSING
LOWER, THAN_ALONE = "CD-GraB ends lower than D-RR", "CD-GraB ends lower than independent"
TESTED = "CD-GraB ends with a better test than D-RR"


@dataclass(frozen=True)
class Settings:
    """What is run; tasks that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/ordered_networks")
    seed: int = 0
    tasks: tuple[str, ...] = tuple(tasks())
    rounds: tuple[int, int] = (3, 6)  # of tuning, least and most
    repeats: int = 5  # timed runs of each order, taking turns
    instances: int | None = None  # of each set; None: what a task has
    n_epochs: int | None = None  # None: what a task has
    commit: bool = False  # also write the rows where committed ones are


def tasks_of(settings: Settings) -> tuple[Task, ...]:
    """The chosen tasks.

    Raises:
        ValueError: A task is not known, or a number is below 1.
    """
    known = tasks()
    if not settings.tasks or not set(settings.tasks) <= set(known):
        raise ValueError(f"tasks must be of {', '.join(known)}, got {', '.join(settings.tasks)}")
    given = {name: getattr(settings, name) for name in ("instances", "n_epochs")}
    for name, least in (("repeats", 1), ("instances", 2), ("n_epochs", 1)):
        number = getattr(settings, name)
        if number is not None and number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}")
    changed = {name: number for name, number in given.items() if number is not None}
    return tuple(replace(known[name], **changed) for name in settings.tasks)


def study_of(settings: Settings) -> Result:
    """Runs all tasks; one whose data are not installed is left out, and said to be.

    Raises:
        ValueError: A setting is not allowed.
        FileNotFoundError: The data of no task are installed.
    """
    found: list[pd.DataFrame] = []
    how = settings.seed, settings.rounds, settings.repeats
    for place, task in enumerate(chosen := tasks_of(settings)):
        try:
            found.append(once(settings.output / "tasks", partial(with_facts, task, *how)))
        except (ImportError, FileNotFoundError) as missing:
            print(f"left out: {task.title}. {missing}")
            continue
        print(f"[{place + 1}/{len(chosen)}] {task.title}: done", flush=True)
    if not found:
        raise FileNotFoundError("tasks must have one whose data are installed, got none")
    return as_result(settings, pd.concat(found, ignore_index=True))


def with_facts(task: Task, seed: int, rounds: tuple[int, int], repeats: int) -> pd.DataFrame:
    """Rows of a task, and in a column what else is known of it, with what is compiled."""
    rows, facts = measured(task, seed, rounds, repeats)
    return rows.assign(facts=json.dumps(facts | {"costs": epoch_costs.of_task(task)}))


def as_result(settings: Settings, rows: pd.DataFrame) -> Result:
    """Rows of losses, tests and epochs to levels; of a task sizes, prices and costs are facts."""
    told = rows.groupby("scene", sort=False)["facts"].first()
    facts = {"tasks": {scene: json.loads(str(text)) for scene, text in told.items()}}
    cut = tuple(map(arrival_column, LEVELS))
    return Result(rows.drop(columns="facts"), "loss", facts, settings.seed, cut)


def price_of(result: Result, task: str, unit: str, order: str = COORDINATED) -> float:
    """An epoch of an order in those of D-RR; only that of this CPU is known of all."""
    own = result.facts["tasks"][task]
    if unit in (EPOCHS, CPU):
        return 1.0 if unit == EPOCHS else float(own["prices"][order][0])
    return epoch_costs.prices_of(own["costs"])[unit]


def arrival(result: Result, letter: str, task: str, level: float, unit: str) -> Difference:
    """Logarithm of what CD-GraB needs to a level over what D-RR does, in a unit."""
    apart = result.difference(
        COORDINATED, BASELINE, letter, arrival_column(level), {"scene": task, "tuned_for": ARRIVAL}
    )
    dear = float(np.log(price_of(result, task, unit)))
    ends = {name: getattr(apart, name) + dear for name in ("mean", "low", "high")}
    return replace(apart, **ends)


def ended(result: Result, letter: str, task: str, order: str) -> Difference:
    """Logarithm of an order's final loss over that of D-RR."""
    where = {"scene": task, "tuned_for": FINAL}
    return result.difference(order, BASELINE, letter, where=where)


def is_accuracy(result: Result, task: str) -> bool:
    """Whether the test is an accuracy, else it is a loss."""
    return result.facts["tasks"][task]["sizes"]["metric"] == "test_accuracy"


def on_test(
    result: Result, letter: str, task: str, order: str, *, ratio: bool = True
) -> Difference:
    """A test beside that of D-RR; below 0 is better.

    Args:
        result: Of the part.
        letter: The set.
        task: The scene.
        order: Compared with D-RR.
        ratio: The logarithm of a loss over that of D-RR; else their difference. Of an accuracy
            D-RR's less the order's, always.
    """
    mine, base = (
        result.values(name, letter, "metric", scene=task, tuned_for=FINAL).to_numpy()[0]
        for name in (order, BASELINE)
    )
    if is_accuracy(result, task):
        return paired(base, mine, result.seed)
    return paired(*((np.log(mine), np.log(base)) if ratio else (mine, base)), result.seed)


def sooner(unit: str, level: float) -> str:
    """The claim that CD-GraB arrives first, by a unit.

    Example:
        >>> sooner("flops", 0.5)
        'CD-GraB is sooner at 50 % of the way, by flops'
    """
    where = "the lowest loss of D-RR" if level == 1.0 else f"{100 * level:.0f} % of the way"
    return f"CD-GraB is sooner at {where}, by {unit}"


def claims(result: Result) -> tuple[Claim, ...]:
    """Losses, tests and arrivals by every unit, a condition a task."""
    scenes = list(result.rows["scene"].unique())

    def better(task: str, own: Result, letter: str, level: float) -> Condition:
        return Condition(task, on_test(own, letter, task, COORDINATED, ratio=False))

    def first(task: str, at: float, unit: str, own: Result, letter: str, level: float) -> Condition:
        return Condition(task, arrival(own, letter, task, at, unit))

    ends = {"each": True, "tuned_for": FINAL}
    asked: dict[str, list[Any]] = {
        LOWER: [less(COORDINATED, BASELINE, **ends)],
        THAN_ALONE: [less(COORDINATED, ALONE, **ends)],
        TESTED: [partial(better, task) for task in scenes],
    }
    for unit in UNITS:
        for level in LEVELS:
            asked[sooner(unit, level)] = [partial(first, task, level, unit) for task in scenes]
    return tuple(Claim(text, own, CD_GRAB, level=0.95) for text, own in asked.items())


def answer(result: Result) -> str:
    """The main verdicts in words."""
    known = {claim.text: claim for claim in claims(result)}
    words = []
    for text in (LOWER, sooner(EPOCHS, 1.0), sooner(CPU, 1.0)):
        both = dict.fromkeys(result.verdict(known[text]).values())
        words.append(f"That {text}: {' and '.join(both)}.")
    return " ".join(words)


def verdict_table(result: Result, *, main: bool) -> results.Table:
    """Claims and verdicts of all sets; those at the first two levels are left out of the main."""
    early = {sooner(unit, level) for unit in UNITS for level in LEVELS[:2]}
    said = result.verdicts([one for one in claims(result) if not main or one.text not in early])
    heads = ("claim", *(f"set {letter}" for letter in result.sets))
    return results.Table(
        tuple(results.Column(head, right=False) for head in heads),
        tuple((claim, *words.values()) for claim, words in said.items()),
        "Verdicts; each has a condition a task.",
    )


def _as_ratio(apart: Difference) -> Any:
    """A difference of logarithms as a ratio with its interval."""
    return ratio_of(*(float(np.exp(x)) for x in (apart.mean, apart.low, apart.high)))


def _table(heads: Mapping[str, bool], rows: Sequence[Any], text: str) -> results.Table:
    """A table; of each heading whether it stands right."""
    columns = tuple(results.Column(name, right=right) for name, right in heads.items())
    return results.Table(columns, tuple(map(tuple, rows)), text)


def _tasks(result: Result) -> dict[str, Any]:
    """What is known of each task, in the order of the rows."""
    return {task: result.facts["tasks"][task] for task in result.rows["scene"].unique()}


def loss_table(result: Result) -> results.Table:
    """Final losses of all orders."""
    ends = result.select(tuned_for=FINAL).groupby(["scene", "method", "set"], sort=False)
    balance = ends["imbalance"].mean().groupby(["scene", "method"]).mean()
    rows, steps = [], ends["step"].first()
    for task, own in _tasks(result).items():
        for name in (name for name in ORDERS if name in own["prices"]):
            step, last = f"{steps[task, name, 'A']:.3g}", float(balance[task, name])
            if name == BASELINE:
                rows.append((task, name, step, "1", "", "1", "", "", last))
                continue
            row = ["", name, step]
            for letter in ("A", "B"):
                loss = ended(result, letter, task, name)
                count = f"{round(loss.lower * loss.count)} of {loss.count}"
                row += [ratio_text(_as_ratio(loss)), count]
            test = on_test(result, "A", task, name)
            told = _percent(test) if is_accuracy(result, task) else ratio_text(_as_ratio(test))
            rows.append((*row, told, last))
    heads = ("task", "order", "step", "loss / D-RR, set A", "lower in", "set B", "lower in")
    right = (False, False, True, False, True, False, True)
    columns = [results.Column(name, right=own) for name, own in zip(heads, right, strict=True)]
    columns += [results.Column("test, A", right=False), results.Column("prefix sum")]
    return results.Table(
        tuple(columns),
        tuple(rows),
        "Final training loss over that of D-RR, geometric mean over instances (interval of 95 %)."
        " Test: test loss over that of D-RR, or, for an accuracy, by how many points it is lower."
        " Prefix sum: the longest of the last order at the last model, over that of random orders.",
    )


def _percent(difference: Difference) -> str:
    values = (100 * one for one in (difference.mean, difference.low, difference.high))
    return "{:+.1f} ({:+.1f} to {:+.1f}) points".format(*values)


def price_table(result: Result) -> results.Table:
    """What an epoch of CD-GraB costs in those of D-RR."""
    rows = []
    for task, own in _tasks(result).items():
        costs, (middle, low, high) = own["costs"], own["prices"][COORDINATED]
        cells = (f"{own['sizes']['parameters']:,}", f"{middle:.2f} ({low:.2f} to {high:.2f})")
        ratios = (*costs["ratio"][DEVICE], *costs["ratio"][MACHINE], costs["sent ratio"])
        rows.append((task, *cells, *ratios, *costs["extra over expected"]))
    heads = ("one device: flops", "bytes", "one of m machines: flops", "bytes", "numbers sent")
    heads += ("flops added / derived", "bytes added / derived")
    first = (results.Column("task", right=False), results.Column("parameters"))
    cpu = results.Column("this CPU, median (quartiles)", right=False)
    return results.Table(
        (*first, cpu, *map(results.Column, heads)),
        tuple(rows),
        "The price of an epoch of CD-GraB in those of D-RR. Derived: what balancing adds should be"
        " 6 flops and 8 numbers read or written a parameter and pair of steps.",
    )


def time_table(result: Result) -> results.Table:
    """What CD-GraB needs to the lowest loss of D-RR."""
    rows = [
        (
            task,
            *(ratio_text(_as_ratio(arrival(result, "A", task, 1.0, unit))) for unit in UNITS),
            *(_as_ratio(arrival(result, "B", task, 1.0, unit)).ratio for unit in UNITS),
        )
        for task in _tasks(result)
    ]
    heads = {"task": False, **{f"{unit}, A": False for unit in UNITS}}
    return _table(
        heads | {f"{unit}, B": True for unit in UNITS},
        rows,
        "What CD-GraB needs until the lowest loss of D-RR on the same instance, over what D-RR"
        " needs; geometric mean (interval of 95 %). Who is not there by the last epoch counts as"
        f" there after {LATE:g} times as many; flops, bytes and numbers sent: of a machine.",
    )


def size_table(result: Result) -> results.Table:
    """What the tasks are."""
    rows = []
    for task, facts in _tasks(result).items():
        own = facts["sizes"]
        cells = (own[name] for name in ("optimizer", "epochs", "instances", "authors"))
        rows.append((task, own["data"], f"{own['units']} x {own['batch']}", *cells))
    heads = {"task": False, "data": False, "units x rows": True, "optimizer": False}
    heads |= {"epochs": True, "instances a set": True, "the authors' scripts": False}
    return _table(heads, rows, "The tasks; units of each worker.")


TABLES = {
    "verdicts": partial(verdict_table, main=False),
    "main verdicts": partial(verdict_table, main=True),
    "losses": loss_table,
    "prices": price_table,
    "times": time_table,
    "sizes": size_table,
}


def by_task(result: Result) -> dict[str, Any]:
    """By task and set how many percent lower CD-GraB ends, and its longest prefix sum."""
    rows = result.select(method=COORDINATED, tuned_for=FINAL)
    balance = rows.groupby(["scene", "set"])["imbalance"].mean()
    return {
        task: {
            letter: {
                "percent": 100 - 100 * float(np.exp(ended(result, letter, task, COORDINATED).mean)),
                "imbalance": float(balance[task, letter]),
            }
            for letter in result.sets
        }
        for task in _tasks(result)
    }


def lower_in_both(result: Result) -> int:
    """On how many tasks CD-GraB ends significantly lower in both sets."""
    found = [[ended(result, x, task, COORDINATED) for x in result.sets] for task in _tasks(result)]
    return sum(all(one.high < 0 for one in both) for both in found)


def sooner_in_both(result: Result) -> dict[str, int]:
    """By unit on how many tasks CD-GraB is significantly sooner at the lowest loss in both sets."""
    return {
        unit: sum(
            all(arrival(result, letter, task, 1.0, unit).high < 0 for letter in result.sets)
            for task in _tasks(result)
        )
        for unit in UNITS
    }


def bytes_added(result: Result) -> float:
    """What balancing adds to bytes over what is derived, at most."""
    return max(own["costs"]["extra over expected"][1] for own in _tasks(result).values())


FACTS = {
    "by task": by_task,
    "ends lower in both sets": lower_in_both,
    "sooner in both sets": sooner_in_both,
    "bytes added": bytes_added,
}


def figure(result: Result) -> Illustration:
    """Final losses by order, and what CD-GraB needs by unit, a row a task; set A over set B."""
    names = list(_tasks(result))
    met = {task: own["prices"] for task, own in _tasks(result).items()}
    losses = {
        order: {
            letter: [
                _as_ratio(ended(result, letter, task, order)) if order in met[task] else None
                for task in names
            ]
            for letter in result.sets
        }
        for order in ORDERS[1:]
    }
    needs = {
        unit: {
            letter: [_as_ratio(arrival(result, letter, task, 1.0, unit)) for task in names]
            for letter in result.sets
        }
        for unit in UNITS
    }
    labels = ("final training loss / D-RR", "CD-GraB / D-RR until D-RR's lowest loss")
    return Illustration(
        forest(dict(zip(labels, (losses, needs), strict=True)), names),
        "Final training loss over that of D-RR, and what CD-GraB needs until D-RR's lowest loss by"
        " epochs, flops, bytes, numbers sent and time of this CPU; full points set A, hollow set B,"
        " intervals of 95 %.",
    )


FIGURES = {"ratios": figure}


if __name__ == "__main__":
    part.main(NAME)
