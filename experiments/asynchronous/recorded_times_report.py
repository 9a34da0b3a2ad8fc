"""What the experiment on recorded times found: verdicts, tables, figures, all from its numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.tables import format_number
from asyncjax.study import protocol
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.statistics import (
    Condition,
    Difference,
    Place,
    paired,
    ranks,
    verdict,
)
from experiments.asynchronous.recorded_times_runs import SETS, Settings, identity
from experiments.common import agreement
from experiments.common import numbers as committed
from experiments.common.parts import Drawing, Part, written
from experiments.common.recordings import spread_of_jobs

NAME = "recorded_times"
TITLE = "Which rule of the family is fastest on the recorded times of real workers?"
DOUBT = 0.05  # shared among the conditions of a claim
PAIR = 0.99  # level at which a pair of rules is told apart for the ranks
CLOSE = 1.2  # times as fast that the claim on even jobs allows
SYNC, PURE = "synchronous", "pure"
EVEN, UNEVEN = "even jobs", "job 4"
TURNS, SLOW = "llm sequences", "llm slow worker"
PAPERS = (
    "Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",
    "Xiao et al., OSDI 2020, AntMan (Alibaba cluster-trace-gpu-v2020)",
    "Lin et al., OSDI 2025, stragglers in LLM training (ByteDance-Seed/StragglerAnalysis)",
)
Numbers = Mapping[str, Any]  # "settings", "columns" by name, each with "rules" by name


def numbers_of(settings: Settings, columns: Mapping[str, Any]) -> dict[str, Any]:
    """What is committed; `columns` has for each kind of workers what every rule did."""
    measured: dict[str, Any] = {
        "settings": {**identity(settings), "even": settings.even, "uneven": settings.uneven},
        "columns": {name: {"rules": rules} for name, rules in columns.items()},
    }
    if settings.instances > 1:
        measured["verdicts"] = {letter: verdicts(measured, letter) for letter in SETS}
        measured["speed_ups"] = {letter: speed_ups(measured, letter) for letter in SETS}
    return measured


def logarithms(numbers: Numbers, letter: str, column: str, goal: str = "") -> dict[str, np.ndarray]:
    """Logarithms of the times to a level, that which is tuned for unless said, cut, by rule."""
    horizon, goal = numbers["settings"]["horizon"], goal or goals(numbers)[-1]
    return {
        name: np.log(protocol.restricted(own["sets"][letter]["times"][goal], horizon))
        for name, own in numbers["columns"][column]["rules"].items()
    }


def goals(numbers: Numbers) -> list[str]:
    """The levels as they are written."""
    return [f"{level:g}" for level in numbers["settings"]["levels"]]


def apart(
    logs: Mapping[str, np.ndarray], first: str, second: str, seed: int, parts: int = 1
) -> Difference:
    """First less second, at a level that `parts` conditions share."""
    level = 1 - DOUBT / parts
    return paired(logs[first], logs[second], seed, level, max(4000, round(20 / (1 - level))))


def conditions(numbers: Numbers, letter: str) -> dict[str, list[Condition]]:
    """The claims of one set of instances; those about what was not run are left out."""
    seed, made = numbers["settings"]["seed"], {}

    def before(claim: str, column: str, first: str, seconds: Sequence[str] = ()) -> None:
        """The first is at the target before the others, all others where none is named."""
        if column not in numbers["columns"]:
            return
        logs = logarithms(numbers, letter, column)
        others = [name for name in seconds or logs if name != first]
        if {first, *others} <= set(logs) and others:
            made[claim] = [
                Condition(f"{first} below {one}", apart(logs, first, one, seed, len(others)))
                for one in others
            ]

    before("on an uneven job pure is faster than synchronous rounds", UNEVEN, PURE, [SYNC])
    before("on an uneven job pure is faster than every other rule", UNEVEN, PURE)
    before(
        "on an uneven job pure is faster than rules that ask all alike",
        UNEVEN, PURE, ["shuffled", "shuffled once", "random"],
    )  # fmt: skip
    before("with a worker slow for good pure is faster than synchronous rounds", SLOW, PURE, [SYNC])
    before("with workers late by turns pure is faster than synchronous rounds", TURNS, PURE, [SYNC])
    before("on even jobs pure is faster than synchronous rounds", EVEN, PURE, [SYNC])
    if EVEN in numbers["columns"]:
        logs = logarithms(numbers, letter, EVEN)
        others = [name for name in logs if name != SYNC]
        if SYNC in logs and others:
            made[f"on even jobs no rule is {CLOSE:g} times as fast as synchronous rounds"] = [
                Condition(
                    f"{SYNC} over {one}", apart(logs, SYNC, one, seed, len(others)), np.log(CLOSE)
                )
                for one in others
            ]
    return made


def verdicts(numbers: Numbers, letter: str) -> dict[str, str]:
    """What the numbers of one set say of each claim."""
    return {claim: verdict(own) for claim, own in conditions(numbers, letter).items()}


def speed_ups(numbers: Numbers, letter: str) -> dict[str, dict[str, list[float]]]:
    """How many times as fast as synchronous rounds each rule is: mean and ends of the interval.

    Geometric means over instances of ratios of times that are cut at the horizon.
    """
    made: dict[str, dict[str, list[float]]] = {}
    for column in numbers["columns"]:
        logs = logarithms(numbers, letter, column)
        if SYNC in logs:
            gaps = {n: apart(logs, SYNC, n, numbers["settings"]["seed"]) for n in logs}
            made[column] = {
                n: np.exp([gap.mean, gap.low, gap.high]).tolist() for n, gap in gaps.items()
            }
    return made


def places(numbers: Numbers, letter: str, column: str, goal: str = "") -> dict[str, Place]:
    """Where rules stand by their time to a level."""
    found = ranks(
        logarithms(numbers, letter, column, goal), numbers["settings"]["seed"], PAIR, 4000
    )
    return {place.name: place for place in found}


def span(place: Place) -> str:
    """The ranks that a rule may have."""
    low, high = place.best_rank, place.worst_rank
    return str(low) if low == high else f"{low}-{high}"


def part(settings: Settings, columns: Mapping[str, Any]) -> Part:
    """Draws all figures and makes all tables; its figures lie in `settings.output`.

    Args:
        settings: What was run.
        columns: For each kind of workers what every rule did.
    """
    numbers = numbers_of(settings, columns)
    if settings.commit:
        command = f"python -m experiments.asynchronous.{NAME} --commit"
        committed.save(NAME, numbers, command=command)
    return written(
        settings.output,
        NAME,
        TITLE,
        figures(numbers),
        tables(settings, numbers),
        numbers,
        answer(numbers),
        PAPERS,
        FIRST_CROSSING,
    )


def answer(numbers: Numbers) -> str:
    """The verdicts of both sets, in words."""
    if "verdicts" not in numbers:
        return ""
    return agreement.in_words(*(numbers["verdicts"][letter] for letter in SETS))


def tables(settings: Settings, numbers: Numbers) -> tuple[results.Table, ...]:
    """Verdicts, times with ranks, further levels, what was chosen, and how uneven the jobs are."""
    several = settings.instances > 1
    return (
        *((verdict_table(numbers), times_table(numbers)) if several else ()),
        *(level_table(numbers, column) for column in numbers["columns"] if several),
        *(cost_table(numbers, column) for column in numbers["columns"]),
        choice_table(numbers),
        spread_of_jobs((*settings.even, *settings.uneven)),
    )


def verdict_table(numbers: Numbers) -> results.Table:
    """The claims, set by set; experiments/README.md has it."""
    one, other = (verdicts(numbers, letter) for letter in SETS)
    return agreement.verdict_table(one, other, f"By the time to {_percent(numbers)} test accuracy.")


def times_table(numbers: Numbers) -> results.Table:
    """Median time to the target of set A and ranks of both; experiments/README.md has it."""
    stands = {(c, s): places(numbers, s, c) for c in numbers["columns"] for s in SETS}
    means = {c: logarithms(numbers, "A", c) for c in numbers["columns"]}
    names = sorted(
        next(iter(means.values())),
        key=lambda name: (round(sum(own[name].mean() for own in means.values()), 6), name),
    )
    rows = [
        (
            name,
            *(
                f"{_median(numbers, 'A', column, name)}"
                f" ({span(stands[column, 'A'][name])} / {span(stands[column, 'B'][name])})"
                for column in numbers["columns"]
            ),
        )
        for name in names
    ]
    own = numbers["settings"]
    return results.Table(
        (
            results.Column("rule", right=False),
            *(results.Column(column) for column in numbers["columns"]),
        ),
        tuple(rows),
        f"Time to {_percent(numbers)} test accuracy, median over {own['instances']} instances of"
        f" set A (ranks in set A / in set B: those that the instances leave open, a pair told apart"
        f" at {PAIR:.0%}). Never: not by {own['horizon']:g}. The unit is the mean time of a"
        " recorded job. First is who has the lowest mean logarithm over all columns.",
    )


def _percent(numbers: Numbers) -> str:
    return f"{100 * numbers['settings']['levels'][-1]:g} %"


def _median(numbers: Numbers, letter: str, column: str, name: str) -> str:
    times = numbers["columns"][column]["rules"][name]["sets"][letter]["times"][goals(numbers)[-1]]
    middle = protocol.reached(times, numbers["settings"]["horizon"]).quartiles[1]
    return "never" if middle is None else format_number(middle)


def level_table(numbers: Numbers, column: str) -> results.Table:
    """One row a rule: at every level the share that came, the restricted mean, the rank."""
    horizon = numbers["settings"]["horizon"]
    heads, rows = [results.Column("rule", right=False)], []
    stands = {
        (goal, letter): places(numbers, letter, column, goal)
        for goal in goals(numbers)
        for letter in SETS
    }
    for goal in goals(numbers):
        for letter in SETS:
            heads += [
                results.Column(f"{float(goal):.0%}, {letter}: share"),
                results.Column("restricted mean"),
                results.Column("rank"),
            ]
    for name, own in numbers["columns"][column]["rules"].items():
        cells: list[Any] = [name]
        for goal in goals(numbers):
            for letter in SETS:
                known = protocol.reached(own["sets"][letter]["times"][goal], horizon)
                place = stands[goal, letter][name]
                cells += [known.share, known.text(".4g").split(" ")[0], span(place)]
        rows.append(tuple(cells))
    return results.Table(
        tuple(heads),
        tuple(rows),
        f"Workers: {column}. Share of the instances that reach a test accuracy within {horizon:g},"
        " mean of the times cut there, and ranks. Settings are those tuned for the last level.",
    )


def cost_table(numbers: Numbers, column: str) -> results.Table:
    """One row a rule: how far it got, how busy and how late it was."""
    names = ("final_accuracy", "utilisation", "thrown_away", "delay_mean")
    rows = [
        (name, *(results.median_and_spread(own["sets"]["A"][what]) for what in names))
        for name, own in numbers["columns"][column]["rules"].items()
    ]
    heads = ("final accuracy", "utilisation", "thrown away", "mean delay")
    return results.Table(
        (results.Column("rule", right=False), *map(results.Column, heads)),
        tuple(rows),
        f"Workers: {column}, set A, median (quartiles) over instances. 'Thrown away' is the share"
        " of delivered or cancelled gradients that never entered a step.",
    )


def choice_table(numbers: Numbers) -> results.Table:
    """What was chosen from how many trials; equal for all rules of a column."""
    columns = numbers["columns"]
    rows = []
    for name in next(iter(columns.values()))["rules"]:
        cells = []
        for column in columns.values():
            own = column["rules"][name]
            knobs = ", ".join(f"{knob} {value:.3g}" for knob, value in own["knobs"].items())
            cells += [knobs + ("*" if own["at_edge"] else "")]
        rows.append((name, *cells))
    spent = "; ".join(
        f"{name}: {own['trials']} trials, {own['tuning_gradients']:,} gradients each"
        for name, column in columns.items()
        for own in [next(iter(column["rules"].values()))]
    )
    return results.Table(
        (
            results.Column("rule", right=False),
            *(results.Column(name, right=False) for name in columns),
        ),
        tuple(rows),
        f"Settings chosen on {numbers['settings']['tuning_instances']} further instances. {spent}."
        " A star: a value at the end of its grid after the last round.",
    )


def figures(numbers: Numbers) -> Iterator[Drawing]:
    """Bars of the time to the target, a figure a kind of workers."""
    horizon = numbers["settings"]["horizon"]
    for place, (column, own) in enumerate(numbers["columns"].items()):
        spreads = {}
        for name, rule in own["rules"].items():
            known = protocol.reached(rule["sets"]["A"]["times"][goals(numbers)[-1]], horizon)
            low, middle, high = (np.inf if q is None else q for q in known.quartiles)
            spreads[name] = results.Spread(middle, low, high, known.share)
        order = sorted(spreads, key=lambda name: float(spreads[name].median))
        label = f"time to {_percent(numbers)} test accuracy [mean recorded job], {column}"
        figure = plots.bars(order, [spreads[name] for name in order], x_label=label)
        text = f"Workers: {column}, set A. Median and quartiles over instances, none past"
        yield f"to_target_{place}", figure, f"{text} {horizon:g}."
