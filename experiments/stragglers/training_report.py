"""Tables, figures, verdicts and numbers of fastest-k SGD on real losses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.tables import format_number
from asyncjax.study import protocol
from asyncjax.study.statistics import Condition, Difference, disagreements, paired, verdict
from experiments.stragglers.training_runs import COSTS, SETS, Settings

Cases = Mapping[str, Mapping[str, Any]]  # case, then "prescribed", "tuned", "uplinks"
HEADS = {
    "time": "time",
    "samples_assigned": "assigned",
    "samples_used": "used",
    "samples_done": "computed",
    "uplinks": "uplinks",
    "broadcasts": "broadcasts",
}
BOTH, ALONE, PAIR = "k and load", "k alone", "fixed pair"
GROUPS = {"prescribed": "at the plans' step", "tuned": "every knob tuned"}
MUCH_LESS, SLIGHTLY_MORE = 2 / 3, 1.1  # what the abstract's words are taken to mean
BOUNDS = {"time": 1.0, "samples_assigned": MUCH_LESS, "uplinks": SLIGHTLY_MORE}
PARTS = {
    "time": "faster",
    "samples_assigned": "much less computation",
    "uplinks": "at most slightly more communication",
}


ORDER = (  # of methods; files keep none
    *(BOTH, f"{BOTH}, close floor", f"{BOTH}, by the loss"),
    *(ALONE, f"{ALONE}, close floor", PAIR),
)


def ordered(names: Iterable[str]) -> list[str]:
    """Methods in the order of tables: plans, the fixed pair, all others by name.

    Example:
        >>> ordered(["AdaSync", "k alone", "k and load"])
        ['k and load', 'k alone', 'AdaSync']
    """
    return sorted(names, key=lambda n: (ORDER.index(n) if n in ORDER else len(ORDER), n.lower()))


def fastest_fixed(methods: Mapping[str, Any]) -> str:
    """Of the ways of always taking one pair, that of the lowest mean log time over both sets.

    It is chosen on what is shown, in its favour: waiting for all and backup workers are pairs too,
    and are tuned by themselves.
    """
    fixed = [
        name
        for name in methods
        if name in (PAIR, "all, whole shards", "backup workers") or name.startswith("fixed k")
    ]
    return min(
        fixed,
        key=lambda name: np.mean(np.log([methods[name][letter]["time"] for letter in SETS])),
    )


def difference(
    cell: Mapping[str, Any], group: str, letter: str, cost: str, pair: tuple[str, str]
) -> Difference:
    """The paired logarithm of a cost of one method over that of another, until the last target."""
    first, second = (np.log(cell[group][name][letter][cost]) for name in pair)
    return paired(first, second)


def condition(
    cases: Cases, case: str, group: str, letter: str, cost: str, pair: tuple[str, str]
) -> Condition:
    """That a cost is lower, much lower for samples, at most slightly higher for uplinks."""
    own = difference(cases[case], group, letter, cost, pair)
    return Condition(f"{case}: {cost}", own, float(np.log(BOUNDS[cost])))


def verdicts(cases: Cases) -> dict[str, dict[str, str]]:
    """What both sets say, from costs alone; a condition a case, and a cost where there are several.

    "The same on real SGD" are the abstract's three claims: less time than k alone, at most 2/3 of
    the samples assigned, at most 1.1 times the uplinks.
    """

    def said(letter: str, group: str, costs: Sequence[str], rival: str = ALONE) -> str:
        return verdict(
            [
                condition(
                    cases, case, group, letter, cost, (BOTH, rival or fastest_fixed(own[group]))
                )
                for case, own in cases.items()
                for cost in costs
            ]
        )

    made: dict[str, dict[str, str]] = {}
    for letter in SETS:
        own = made[letter] = {}
        for group, words in GROUPS.items():
            own[f"the same on real SGD, {words}"] = said(letter, group, list(BOUNDS))
            for cost, part in PARTS.items():
                own[f"{part}, {words}"] = said(letter, group, [cost])
            own[f"faster than the best fixed pair, {words}"] = said(letter, group, ["time"], "")
    return made


def numbers(
    settings: Settings,
    cases: Cases,
    judge: Callable[[Cases], dict[str, dict[str, str]]] = verdicts,
) -> dict[str, Any]:
    """All that was measured, and what follows from it, as plain values."""
    found = judge(cases)
    return {
        "settings": {
            name: getattr(settings, name)
            for name in ("instances", "tuning_instances", "levels", "horizon", "lengths", "seed")
        },
        "order": list(cases),
        "fastest fixed": {
            case: {group: fastest_fixed(cell[group]) for group in GROUPS if group in cell}
            for case, cell in cases.items()
        },
        "cases": cases,
        "ratios": {
            case: {
                group: {
                    other: {
                        cost: {
                            letter: _shown(difference(cell, group, letter, cost, (BOTH, other)))
                            for letter in SETS
                        }
                        for cost in COSTS
                    }
                    for other in cell[group]
                    if other != BOTH
                }
                for group in GROUPS
                if group in cell
            }
            for case, cell in cases.items()
        },
        "accounts": {
            case: _account(cell["uplinks"]) for case, cell in cases.items() if "uplinks" in cell
        },
        "verdicts": found,
        "disagreements": disagreements(*found.values()),
    }


def _shown(own: Difference) -> dict[str, float]:
    """A ratio, geometric mean over instances, and its interval."""
    return {name: float(np.exp(getattr(own, name))) for name in ("mean", "low", "high")}


def _account(sets: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Uplinks of k and load over k alone, as measured and as foretold."""
    made = {}
    for letter, rows in sets.items():
        column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        zero = np.zeros(len(rows))
        own = {
            name: _shown(paired(np.log(column[name]), zero)) for name in ("ratio", "same", "target")
        }
        apart = np.log(column["error_alone"] / column["error"])
        made[letter] = own | {
            "least": float(column["ratio"].min()),
            "most": float(column["ratio"].max()),
            "error": float(np.median(column["error"])),
            "further": int((column["error_alone"] < column["error"]).sum()),
            "k": [int(column["k_alone"].min()), int(column["k_alone"].max())],
            "correlation": float(np.corrcoef(apart, np.log(column["ratio"]))[0, 1]),
        }
    return made


def text_of(sets: Mapping[str, Mapping[str, float]]) -> str:
    """Set A's ratio and interval, then that of set B."""
    one, other = (sets[letter] for letter in SETS)
    return f"{one['mean']:.2f} ({one['low']:.2f} to {one['high']:.2f}); {other['mean']:.2f}"


def tables(found: Mapping[str, Any]) -> tuple[results.Table, ...]:
    """All tables, from the numbers."""
    return (
        verdict_table(found),
        *(ratio_table(found, group) for group in GROUPS),
        *(
            method_table(found, case, group)
            for case in found["order"]
            for group in reversed(GROUPS)
        ),
        account_table(found),
        *(trial_table(found, case, group) for case in found["order"] for group in GROUPS),
    )


def page_tables(found: Mapping[str, Any]) -> tuple[results.Table, ...]:
    """Those of experiments/README.md."""
    family = max(found["order"], key=lambda case: len(found["cases"][case]["tuned"]))
    return (
        *(ratio_table(found, group) for group in GROUPS),
        method_table(found, family, "tuned"),
        account_table(found),
    )


def verdict_table(found: Mapping[str, Any]) -> results.Table:
    """Verdicts of both sets."""
    one, other = (found["verdicts"][letter] for letter in SETS)
    return results.Table(
        (
            results.Column("claim", right=False),
            *(results.Column(f"set {letter}", right=False) for letter in SETS),
        ),
        tuple((claim, one[claim], other[claim]) for claim in one),
        "The plan of k and load against that of k alone, or the fastest fixed pair (chosen on what"
        " is shown, in its favour; waiting for all is one of them); a condition a case."
        f" Much less is below {MUCH_LESS:.2f} of the samples assigned, slightly more below"
        f" {SLIGHTLY_MORE:g} times the uplinks; the same on real SGD are all three.",
    )


def ratio_table(found: Mapping[str, Any], group: str) -> results.Table:
    """Costs of k and load over those of k alone, and its time over the fixed pair's."""
    rows = []
    for case in found["order"]:
        own = found["ratios"][case][group]
        cells = [text_of(own[ALONE][cost]) for cost in HEADS]
        fixed = found["fastest fixed"][case][group]
        rows.append((case, *cells, f"{text_of(own[fixed]['time'])}, {fixed}"))
    return results.Table(
        (
            results.Column("loss, law", right=False),
            *(results.Column(head) for head in HEADS.values()),
            results.Column("time over the fastest fixed pair's"),
        ),
        tuple(rows),
        f"{GROUPS[group].capitalize()}: costs of the plan of k and load over those of the plan of"
        f" k alone until the last target, geometric mean over {found['settings']['instances']}"
        " instances of set A and its 95 % interval; then set B's mean.",
    )


def reached_text(times: Sequence[float], horizon: float) -> str:
    """Median and quartiles of times that were seen, and who is missing.

    Example:
        >>> reached_text([2.0, 4.0, 6.0, float("inf")], 10.0)
        '4.00 (2.00-6.00), 75 %'
    """
    own = protocol.reached(times, horizon)
    first, middle, third = ("never" if one is None else format_number(one) for one in own.quartiles)
    missing = "" if own.share == 1 else f", {100 * own.share:.0f} %"
    return f"{middle} ({first}-{third}){missing}" if own.share else "never"


def method_table(found: Mapping[str, Any], case: str, group: str) -> results.Table:
    """All methods of a case, set A: times to three targets, costs until the last."""
    settings, rows = found["settings"], []
    cell = found["cases"][case][group]
    for name, own in ((name, cell[name]) for name in ordered(cell)):
        times = [reached_text(one, settings["horizon"]) for one in own["A"]["times"]]
        costs = [_count(float(np.median(own["A"][cost]))) for cost in list(HEADS)[1:]]
        ratio = "" if name == BOTH else _inverse(found["ratios"][case][group][name]["time"])
        spent = (own["trials"], _count(own["samples"])) if "trials" in own else ("", "")
        rows.append((name, own.get("chosen", ""), *times, ratio, *costs, *spent))
    return results.Table(
        (
            results.Column("method", right=False),
            results.Column("chosen", right=False),
            *(results.Column(f"time to {100 * level:g} %") for level in settings["levels"]),
            results.Column("over k and load's"),
            *(results.Column(head) for head in list(HEADS.values())[1:]),
            results.Column("trials"),
            results.Column("gradients in trials"),
        ),
        tuple(rows),
        f"{case[0].upper()}{case[1:]}, {GROUPS[group]}: median (quartiles) over set A, with the"
        " share that arrived where it is not all; the last time over that of k and load, mean and"
        " interval, then set B's mean; costs until the last target, medians.",
    )


def _inverse(sets: Mapping[str, Mapping[str, float]]) -> str:
    one, other = (sets[letter] for letter in SETS)
    return f"{1 / one['mean']:.2f} ({1 / one['high']:.2f} to {1 / one['low']:.2f}); " + (
        f"{1 / other['mean']:.2f}"
    )


def _count(value: float) -> str:
    """A count for people.

    Example:
        >>> _count(7_468_000.0), _count(839_400.0), _count(26_700.0), _count(681.0)
        ('7.5M', '839k', '26.7k', '681')
    """
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    if value < 2000:
        return f"{value:.0f}"
    return f"{value / 1000:.1f}k" if value < 100_000 else f"{value / 1000:.0f}k"


def account_table(found: Mapping[str, Any]) -> results.Table:
    """Uplinks, measured and foretold."""
    rows = []
    for case, sets in ((case, found["accounts"][case]) for case in found["order"]):
        for letter, own in sets.items():
            cells = [
                f"{own[name]['mean']:.2f} ({own[name]['low']:.2f} to {own[name]['high']:.2f})"
                for name in ("ratio", "same", "target")
            ]
            spread = f"{own['least']:.2f} to {own['most']:.2f}"
            last = f"{own['error']:.1f}", f"{own['k'][0]} to {own['k'][1]}"
            rows.append((case, letter, cells[0], spread, *cells[1:], *last))
    heads = (
        *("loss, law", "set", "uplinks, measured", "of single instances"),
        *("foretold there", "foretold at the target"),
        *("bound's error there, over the target", "k alone waits for"),
    )
    return results.Table(
        tuple(results.Column(head, right=head not in heads[:2]) for head in heads),
        tuple(rows),
        "At the plans' step, uplinks of k and load over k alone: as measured; as foretold if both"
        " stopped where the bound is when k and load arrives; as foretold for the target.",
    )


def _spans(searched: str) -> str:
    """The values of knobs, long rows of them by their ends.

    Example:
        >>> _spans("k: 1, 2, 3, 4, 5, 6; load: 1, 40")
        'k: 1 to 6 (6 values); load: 1, 40'
    """
    shown = []
    for part in searched.split("; "):
        name, _, values = part.partition(": ")
        row = values.split(", ")
        short = f"{row[0]} to {row[-1]} ({len(row)} values)" if len(row) > 5 else values
        shown.append(f"{name}: {short}")
    return "; ".join(shown)


def trial_table(found: Mapping[str, Any], case: str, group: str) -> results.Table:
    """What was tuned, how much, and what was chosen."""
    cell, rows = found["cases"][case][group], []
    for name in ordered(name for name, own in cell.items() if "trials" in own):
        own, samples = cell[name], _count(cell[name]["samples"])
        rows.append((name, own["searched"], own["trials"], samples, own["chosen"], own["edges"]))
    settings = found["settings"]
    most = settings["lengths"][:2][-1]
    return results.Table(
        (
            results.Column("method", right=False),
            results.Column("searched", right=False),
            results.Column("trials"),
            results.Column("gradients used"),
            results.Column("chosen", right=False),
            results.Column("at an edge", right=False),
        ),
        tuple(rows),
        f"{case}, {GROUPS[group]}: trials, each on {settings['tuning_instances']} instances that"
        f" are not shown, at most {most:,} updates of a run; gradients of single"
        " rows in awaited answers until the last target, of all trials. What stands beside the"
        " trials without a knob is not tuned.",
    )


def ratio_figure(found: Mapping[str, Any], pairs: Mapping[str, tuple[str, str]], label: str) -> Any:
    """Ratios with their intervals, a row a case and set, a panel a comparison.

    Args:
        found: The numbers.
        pairs: By title: group, and the method that k and load is compared with; empty: the
            fastest fixed pair.
        label: Of the horizontal axes.
    """
    with drawing():
        count = len(found["cases"])
        figure = new_figure(3.9 * len(pairs) + 1.5, 0.5 * count + 1.3)
        grid = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
        for axes, (title, (group, other)) in zip(grid, pairs.items(), strict=True):
            for place, case in enumerate(found["order"]):
                for shift, letter, colour in ((-0.14, "A", "C0"), (0.14, "B", "C1")):
                    rival = other or found["fastest fixed"][case][group]
                    own = found["ratios"][case][group][rival]["time"][letter]
                    ends = [[own["mean"] - own["low"]], [own["high"] - own["mean"]]]
                    name = f"set {letter}" if place == 0 else None
                    axes.errorbar(
                        own["mean"], place + shift, xerr=ends, fmt="o", color=colour, label=name
                    )
            axes.axvline(1.0, color="grey", linewidth=1)
            axes.set_title(title)
            axes.set_xscale("log")
            _few_ticks(axes)
            axes.set_xlabel(label)
        grid[0].set_yticks(range(count), list(found["order"]))
        grid[0].set_ylim(count - 0.5, -0.5)
        grid[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def _few_ticks(axes: Any) -> None:
    """Plain numbers on a logarithmic axis."""
    low, high = axes.get_xlim()
    marks = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
    if high / low < 2:
        marks = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6)
    elif high / low > 8:
        marks = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
    axes.set_xticks([mark for mark in marks if low <= mark <= high])
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:g}")


def uplinks_figure(found: Mapping[str, Any], case: str) -> Any:
    """Measured ratios of uplinks against how far down the bound the two runs went."""
    with drawing():
        figure = new_figure(6.4, 4.2)
        axes = figure.subplots()
        for letter, colour in (("A", "C0"), ("B", "C1")):
            rows = found["cases"][case]["uplinks"][letter]
            apart = [row["error"] / row["error_alone"] for row in rows]
            axes.plot(
                apart, [row["ratio"] for row in rows], "o", color=colour, label=f"set {letter}"
            )
        same = float(np.mean([row["same"] for row in found["cases"][case]["uplinks"]["A"]]))
        axes.axhline(same, color="grey", linewidth=1, linestyle="--")
        axes.axvline(1.0, color="grey", linewidth=1)
        axes.annotate(
            f"foretold: {same:.2f}", (1.0, same), (6, 6), textcoords="offset points", color="grey"
        )
        axes.set_xscale("log")
        _few_ticks(axes)
        axes.set_xlabel("bound's error when k and load is there,\nover that when k alone is there")
        axes.set_ylabel("uplinks of k and load over k alone")
        axes.legend(frameon=False)
    return figure
