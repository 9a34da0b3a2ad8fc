"""Where methods of one's own stand beside others: sentences, tables and a figure, of rows.

In each scene the rival is the other method of the least time in set A; the ratio to it is measured
in set B, which had no part in choosing it. A scene is won or lost where the interval of the ratio
excludes 1; the scenes share a doubt of 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from asyncjax import results
from asyncjax.results.report import Illustration, Section, provenance
from asyncjax.study import summary
from asyncjax.study.result import Result
from asyncjax.study.scene import Method

CHOSEN_ON, MEASURED_ON = "A", "B"
DOUBT = 0.05
SHOWN = 3  # scenes that a sentence names
FARTHEST = 4.0  # multiple of the fastest time to which profiles go


class Against(NamedTuple):
    """A method and its rival in a scene."""

    scene: str
    rival: str
    ratio: float  # of times; below 1 the method is faster
    low: float
    high: float


def against_best(result: Result, name: str, rivals: Sequence[str]) -> tuple[Against, ...]:
    """A method beside the best rival of each scene."""
    scenes = list(result.rows["scene"].unique())
    level = 1 - DOUBT / len(scenes)
    found = []
    for scene in scenes:
        where = {"scene": scene}
        means = {
            rival: float(np.log(result.values(rival, CHOSEN_ON, **where).to_numpy()).mean())
            for rival in rivals
        }
        best = min(means, key=lambda rival: means[rival])
        apart = result.difference(name, best, MEASURED_ON, where=where, level=level)
        found.append(Against(scene, best, *map(math.exp, (apart.mean, apart.low, apart.high))))
    return tuple(found)


def never(result: Result, name: str) -> bool:
    """Whether no run of a method came to its target by the horizon."""
    rows = result.rows[(result.rows["method"] == name) & (result.rows["set"] != "tuning")]
    return "horizon" in rows and not (rows[result.compared] <= rows["horizon"]).any()


def sentence_of(result: Result, name: str, rivals: Sequence[str]) -> str:
    """Where a method wins and loses against the best rival of each scene."""
    found = against_best(result, name, rivals)
    count = counted(len(found), "scene")
    if never(result, name):
        return f"{name} never reaches the target, so it loses in {count} of {len(found)}."
    won = sorted((one for one in found if one.high < 1), key=lambda one: one.ratio)
    lost = sorted((one for one in found if one.low > 1), key=lambda one: -one.ratio)
    said = [
        f"{name} wins in {len(won)} of {count}{_listed(won)}",
        f"loses in {len(lost)}{_listed(lost)}",
        f"and does not differ significantly in {len(found) - len(won) - len(lost)}"
        " from the fastest of the others there",
    ]
    row = result.ratio(name, over=rivals[0], set=MEASURED_ON).to_dict("records")[0]
    over_all = (
        f"Over all it takes {row['ratio']:.2g} ({row['low']:.2g} to {row['high']:.2g}) times as"
        f" long as {rivals[0]}."
    )
    return f"{', '.join(said)}. {over_all}"


def counted(count: int, noun: str) -> str:
    """A number of things in words.

    Example:
        >>> counted(1, "scene"), counted(2, "scene")
        ('1 scene', '2 scenes')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _listed(found: Sequence[Against]) -> str:
    """The clearest of them in brackets."""
    if not found:
        return ""
    told = [f"{one.scene}: {one.ratio:.2g} times as long as {one.rival}" for one in found[:SHOWN]]
    more = [f"{len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return f" ({'; '.join([*told, *more])})"


def table_of(result: Result, name: str, rivals: Sequence[str]) -> results.Table:
    """A row a scene: the best rival and the ratio to it."""
    rows = [
        (one.scene, one.rival, f"{one.ratio:.2g} ({one.low:.2g} to {one.high:.2g})", _word(one))
        for one in sorted(against_best(result, name, rivals), key=lambda one: one.ratio)
    ]
    heads = ("scene", "fastest of the others", "time over its", "")
    return results.Table(
        tuple(results.Column(head, right=head.startswith("time")) for head in heads),
        tuple(rows),
        f"{name} beside the fastest of the others in each scene, which set {CHOSEN_ON} chose; the"
        f" ratio of times with its interval is that of set {MEASURED_ON}.",
    )


def _word(one: Against) -> str:
    if one.high < 1:
        return "wins"
    return "loses" if one.low > 1 else "no significant difference"


def summary_of(result: Result, names: Sequence[str], errors: Mapping[str, str]) -> str:
    """A sentence a method of one's own, and what raised."""
    said = []
    for name in names:
        rivals = rivals_of(result, name, names)
        said.append(sentence_of(result, name, rivals) if rivals else f"{name} has no rival here.")
    said += [f"{name} is left out, since it raised: {words}." for name, words in errors.items()]
    return "\n".join(said)


def rivals_of(result: Result, name: str, names: Sequence[str]) -> list[str]:
    """Methods that are not one's own; where there are none, one's own others."""
    others = [one for one in result.methods if one not in names]
    return others or [one for one in names if one != name]


def marked(table: results.Table, names: Sequence[str]) -> results.Table:
    """A table with a star behind the names of one's own methods."""
    rows = tuple((_marked(name, names), *rest) for name, *rest in table.rows)
    return replace(table, rows=rows, caption=f"{table.caption} * one's own.")


def _marked(name: str, names: Sequence[str]) -> str:
    return f"{name} *" if name in names else name


def profile_figure(result: Result, names: Sequence[str]) -> Any:
    """Profiles of one's own methods, coloured, over those of the others, of which three are told.

    The three are the reference of ranks, and those that solve most at once and in the end.
    """
    from asyncjax.results.plots.style import COLOURS, DASHES, MUTED, drawing, new_figure

    table = result.profile(FARTHEST)
    ratios = table["ratio"].to_numpy()
    shares = {name: table[name].to_numpy() for name in result.methods}
    others = [name for name in shares if name not in names]
    told = dict.fromkeys([*others[:1], *_best(shares, others, 0), *_best(shares, others, -1)])
    with drawing():
        figure = new_figure(6.0, 4.2)
        axes = figure.subplots()
        for name in others:
            if name not in told:
                axes.plot(ratios, shares[name], color="#CCCCCC", linewidth=0.8, zorder=1)
        for at, name in enumerate(told):
            axes.plot(
                ratios, shares[name], color=MUTED, linestyle=DASHES[at + 1], linewidth=1.3,
                label=name,
            )  # fmt: skip
        for at, name in enumerate(names):
            axes.plot(ratios, shares[name], color=COLOURS[at % len(COLOURS)], lw=2.2, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 1.5, 2, 3, 4], ["1", "1.5", "2", "3", "4"])
        axes.minorticks_off()
        axes.set_xlim(1.0, FARTHEST)
        axes.set_ylim(0.0, 1.0)
        axes.set_xlabel("time over that of the fastest method")
        axes.set_ylabel("share of runs at the target")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def _best(shares: Mapping[str, np.ndarray], others: Sequence[str], at: int) -> list[str]:
    return [max(others, key=lambda name: shares[name][at])] if others else []


def tuned_table(result: Result) -> results.Table:
    """Trials of each method, the settings that were chosen, and what they cost."""
    found, seconds = result.trials(), result.facts.get("seconds", {})
    known = {*result.cell, "method", "trials", "horizon"}
    rows = []
    for name in result.methods:
        chosen = found[found["method"] == name]
        settings = [one for one in chosen if one not in known and chosen[one].notna().all()]
        spans = ", ".join(f"{one} {_span(chosen[one])}" for one in settings)
        trials = _span(chosen["trials"]) if "trials" in chosen else "none"
        cost = f"{seconds[name]:.0f} s" if name in seconds else "stored"
        rows.append((name, spans, trials, cost))
    heads = ("method", "chosen settings", "trials a scene", "processor time")
    return results.Table(
        tuple(results.Column(head, right=head in heads[2:]) for head in heads),
        tuple(rows),
        "Every method is tuned in every scene, on five instances that are not shown, by the same"
        " search: it goes on as long as a best value is at an edge of its grid. Least and most over"
        " the scenes. Processor time: of tuning and of the runs shown; stored: the rows came with"
        " the library.",
    )


def _span(values: Any) -> str:
    least, most = values.min(), values.max()
    if isinstance(least, str):
        return " or ".join(sorted(set(values)))
    return f"{least:.3g}" if least == most else f"{least:.3g} to {most:.3g}"


def method_table(result: Result, methods: Mapping[str, Method]) -> results.Table:
    """What each method does."""
    rows = [(name, methods[name].text or "-") for name in result.methods if name in methods]
    heads = ("method", "what it does")
    return results.Table(tuple(results.Column(head, right=False) for head in heads), rows)


def sections_of(
    result: Result, names: Sequence[str], methods: Mapping[str, Method], made_by: str
) -> list[Section]:
    """The page: ranks, profiles, scene by scene, what was tuned, what the methods are."""
    caption = (
        "Share of runs at the target within so many times what the fastest method of the run took,"
        " both sets. Grey and thin: the other methods."
    )
    figures = [Illustration(profile_figure(result, names), caption)]
    by_scene = [
        table_of(result, name, rivals)
        for name in names
        if (rivals := rivals_of(result, name, names)) and not never(result, name)
    ]
    return [
        Section("Ranks", "", (), (marked(summary.rank_table(result), names),)),
        Section("Profiles", "", figures),
        Section("Where they win and lose", "", (), by_scene),
        Section("What was tuned, and what it cost", "", (), (marked(tuned_table(result), names),)),
        Section("Methods", "", (), (method_table(result, methods),)),
        provenance(made_by),
    ]
