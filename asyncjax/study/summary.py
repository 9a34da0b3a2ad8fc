"""What a page says of a study: its answer, ranks, profiles, scene by scene, trials and their cost.

Where some of the methods are one's own, a page says where each of them wins and loses. In each
scene its rival is the other method of the least time in set A; the ratio to it is measured in set
B, which had no part in choosing it. A scene is won or lost where the interval of the ratio excludes
1; the scenes share a doubt of 5 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots, statistics
from asyncjax.results.report import Illustration, Section, provenance, render
from asyncjax.results.statistics import DOUBT, OPEN
from asyncjax.study.scene import Method

FARTHEST = 4.0  # multiple of the best to which profiles go
LINES = 8  # curves of a figure; the table has all
NAMED = 4  # scenes that a sentence names
CHOSEN_ON, MEASURED_ON = "A", "B"
Result = Any  # of `result.py`, which calls this file for its report


def page(
    result: Result,
    claims: Sequence[Any],
    title: str,
    command: str,
    *,
    names: Sequence[str] = (),
    methods: Mapping[str, Method] | None = None,
    text: str = "",
    verdict: str = "",
) -> str:
    """The page of a study as HTML.

    Args:
        result: Its rows.
        claims: What is to be judged.
        title: Of the page.
        command: What was run.
        names: Methods of one's own.
        methods: What is told of methods; None: nothing.
        text: Below the title; empty: where the first of all wins and loses.
        verdict: Above all; empty: the answer.
    """
    met = [one for one in names if rivals_of(result, one, names) and arrived(result, one)]
    by_scene = [beside_table(result, one, rivals_of(result, one, names)) for one in met]
    parts = {
        "Claims": [verdict_table(result, claims)] if claims else [],
        "Ranks": [_marked(rank_table(result), names)],
        "Performance profiles": [_marked(profile_table(result), names)],
        "Scene by scene": by_scene if names else [scene_table(result)],
        "What was tuned, and what it cost": [_marked(trial_table(result), names)],
        "Methods": [method_table(result, methods)] if methods else [],
    }
    figures = {"Performance profiles": [profile_figure(result, names)]}
    sections = [Section(head, "", figures.get(head, ()), some) for head, some in parts.items()]
    sections = [one for one in sections if one.tables] + [provenance(command)]
    return render(title, text or wins(result), sections, verdict=verdict or answer(result, claims))


def answer(result: Result, claims: Sequence[Any] = ()) -> str:
    """The claims and their verdicts in words; without claims who is first."""
    if claims:
        found = result.verdicts(claims)
        return "; ".join(f"{text}: {worded(words)}" for text, words in found.items()) + "."
    said = []
    for letter in result.sets:
        ranks = result.rank(set=letter)
        first, *rest = ranks[ranks["with_best"]]["method"]
        level = f", with no significant difference to {', '.join(rest)}" if rest else " alone"
        said.append(f"set {letter}: {first} is first{level}")
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}."


def worded(words: Any) -> str:
    """The verdict of all sets, or of each where they differ.

    Example:
        >>> worded({"A": "holds", "B": "holds"}), worded({"A": "holds", "B": "in part"})
        ('holds', 'holds (A), in part (B)')
    """
    if len({*words.values()}) == 1:
        return next(iter(words.values()))
    return ", ".join(f"{word} ({letter})" for letter, word in words.items())


def verdict_table(result: Result, claims: Sequence[Any], text: str = "") -> results.Table:
    """Claims and what each set says of them, alone and all together.

    Where nothing is told, the smallest ratio that so many instances would have shown.
    """
    alone, family = (
        {letter: result.judged(claims, letter, together=one) for letter in result.sets}
        for one in (False, True)
    )

    def words(judged: Any, claim: Any) -> dict[str, str]:
        if not claim.conditions:
            return result.verdict(claim)
        found = {letter: by_claim.get(claim.text, ()) for letter, by_claim in judged.items()}
        if not all(found.values()):  # it is about nothing that was run
            return {}
        return {
            s: statistics.counted([one.verdict for one in conditions])
            for s, conditions in found.items()
        }

    told = {claim: found for claim in claims if (found := words(alone, claim))}
    heads = ["claim", *(f"set {letter}" for letter in result.sets)]
    rows = [[claim.text, *found.values()] for claim, found in told.items()]
    text = text or "Verdicts by rule: a claim holds where the intervals of all its conditions do."
    if len(result.sets) > 1:
        differing = sum(len({one.partition(" (")[0] for one in row[1:]}) > 1 for row in rows)
        text += f" The sets differ in {differing}." if differing else " The sets agree."
    if len(family[result.sets[0]]) > 1:
        heads.append("all at once")
        text += " All at once: with Holm's correction for the conditions of all claims."
        for claim, row in zip(told, rows, strict=True):
            row.append(worded(words(family, claim)) if claim.conditions else "")
    if any(OPEN in found.values() for found in told.values()):
        heads.append("would have shown")
        text += " Would have shown: the ratio that four of five such studies find significant."
        for claim, row in zip(told, rows, strict=True):
            judged = [by_claim.get(claim.text, ()) for by_claim in alone.values()]
            row.append(_would_have_shown(judged) if OPEN in row else "")
    return _table(heads, rows, text)


def _would_have_shown(judged: Iterable[Sequence[statistics.Condition]]) -> str:
    """The largest of the ratios that would have shown, over the open conditions of a claim."""
    ratios = []
    for conditions in judged:
        still = [one.difference for one in conditions if one.verdict == OPEN]
        level = 1 - DOUBT / max(len(still), 1)  # at which Holm's procedure left them
        ratios += [statistics.smallest_ratio(one, level) for one in still]
    return f"{max(ratios):.2f}" if ratios else ""


def rank_table(result: Result) -> results.Table:
    """Methods by their mean in the first set, with their ranks in all."""
    ranks = result.rank()
    by_place = ranks.set_index(["method", "set"])
    heads, rows = ["method"], []
    for letter in result.sets:
        heads += [f"rank, set {letter}", f"{result.compared} over the first's, set {letter}"]
    for method in ranks[ranks["set"] == result.sets[0]]["method"]:
        row = [method]
        for letter in result.sets:
            place = by_place.loc[(method, letter)]
            row.append(_range(place["best_rank"], place["worst_rank"]))
            row.append(f"{place['ratio']:.2f} ({place['low']:.2f} to {place['high']:.2f})")
        rows.append([*row, f"{100 * arrived(result, method):.0f} %"])
    return _table(
        [*heads, "came"],
        rows,
        "Rank: from one more than how many methods are significantly lower to all but those"
        " significantly higher; all pairs of a set share a doubt of 5 %. Ratios are geometric means"
        f" over {_scenes(result)}; a time that never came counts as the horizon.",
        right=[*heads[1:], "came"],
    )


def arrived(result: Result, method: str) -> float:
    """Share of a method's shown runs that came to a number by their horizon."""
    rows = result.select(method=method, set=list(result.sets))
    values = rows[result.compared].to_numpy(float)
    if result.compared in result.cut:
        values = np.where(values <= rows["horizon"].to_numpy(float), values, np.inf)
    return float(np.isfinite(values).mean())


def profile_figure(result: Result, names: Sequence[str] = ()) -> Illustration:
    """Performance profiles of one's own methods and of those that solve most."""
    shares = result.profile(FARTHEST)
    told = list(dict.fromkeys([*names, *_areas(shares)]))[:LINES]
    figure = plots.curves(
        [results.Series(name, shares["ratio"], *[shares[name].to_numpy()] * 3) for name in told],
        x_label=f"times the lowest {result.compared} of the run",
        y_label="share of runs",
        y_range=(0.0, 1.0),
    )
    caption = (
        f"Share of runs (instances of {_scenes(result)}, all sets) whose"
        f" {result.compared} is within so many times that of the best method there."
    )
    return Illustration(figure, caption)


def profile_table(result: Result) -> results.Table:
    """Shares at some ratios, and the mean height of the profile."""
    shares = result.profile(FARTHEST)
    at = [int(np.argmin(np.abs(shares["ratio"] - ratio))) for ratio in (1.0, 2.0, FARTHEST)]
    heads = ("method", "best", "within 2 times", f"within {FARTHEST:g} times", "mean to there")
    rows = [
        (name, *(f"{100 * shares[name][place]:.0f} %" for place in at), f"{area:.2f}")
        for name, area in _areas(shares).items()
    ]
    return _table(heads, rows, "The same in numbers, best first.", right=heads[1:])


def _areas(shares: Any) -> dict[str, float]:
    """Mean share of each method between 1 and the last ratio, the highest first."""
    ratios = shares["ratio"].to_numpy()
    areas = shares.drop(columns="ratio").apply(lambda curve: np.trapezoid(curve, ratios))
    return (areas / np.ptp(ratios)).sort_values(ascending=False, kind="stable").to_dict()


def wins(result: Result) -> str:
    """Where the method that is first over all wins and loses, in a sentence."""
    leader = result.rank(set=result.sets[0])["method"].iloc[0]
    ahead, behind, cells = [], [], _cells(result)
    for cell, where in cells.items():
        ranks = result.rank(where, result.sets[0])
        place = ranks[ranks["method"] == leader].iloc[0]
        if place["worst_rank"] == 1:
            ahead.append(cell)
        elif not place["with_best"]:
            best = f"{ranks['method'].iloc[0]} at {1 / place['ratio']:.2g} times its"
            behind.append(f"{cell} ({best} {result.compared})")
    return (
        f"{leader}, first over all in set {result.sets[0]}, is alone in front in {len(ahead)} of"
        f" {len(cells)} {'cells' if 'tuned_for' in result.cell else 'scenes'}{_listed(ahead)},"
        f" and significantly behind in {len(behind)}{_listed(behind)}."
    )


def scene_table(result: Result) -> results.Table:
    """The first method of each cell, and who is level with it, in each set."""
    heads, rows = ["scene"], []
    for letter in result.sets:
        heads += [f"first, set {letter}", "no significant difference"]
    for cell, where in _cells(result).items():
        row = [cell]
        for letter in result.sets:
            ranks = result.rank(where, letter)
            first, *rest = ranks[ranks["with_best"]]["method"]
            row += [first, ", ".join(rest) or "none"]
        rows.append(row)
    return _table(heads, rows, "Scene by scene, all pairs sharing a doubt of 5 %.")


def trial_table(result: Result) -> results.Table:
    """Trials of each method, what was chosen by set, and processor time where it was taken."""
    found, rows = result.trials(), []
    known = {*result.cell, "set", "method", "trials", "horizon", "at_edge"}
    of_scenes = found.groupby(result.cell).nunique(dropna=False).max() == 1  # not of methods
    names = [name for name in found if name not in known and not of_scenes.get(name)]
    names = names if len(result.methods) > 1 else []
    names = [one for one in result.facts.get("settings", names) if one in found]
    timed = "processor_seconds" in result.rows
    for method in result.methods:
        chosen = found[found["method"] == method]
        apart = chosen.groupby("set") if "set" in found else [("", chosen)]
        by_set = {letter: text for letter, group in apart if (text := _chosen(group, names))}
        spans = "; ".join(f"{letter}: {text}".removeprefix(": ") for letter, text in by_set.items())
        trials = _span(chosen["trials"]) if "trials" in chosen else "none"
        taken: Any = result.select(method=method)["processor_seconds"].dropna() if timed else ()
        cost = f"{taken.sum():.0f} s" if len(taken) else "stored"
        rows.append((method, trials, spans or "none", cost))
    heads = ("method", "trials a scene", "chosen", "processor time")
    edges = result.facts.get("at an edge", [])
    text = f" At an edge of its grid after the last round: {', '.join(edges)}." if edges else ""
    return _table(
        heads,
        rows,
        "Every method was tuned on other instances than are shown; settings from the least to the"
        f" most over the scenes. Processor time is not stored with rows.{text}",
        right=heads[1::2],
    )


def _chosen(rows: Any, names: Sequence[str]) -> str:
    """Settings that all rows have, from the least to the most."""
    settings = [name for name in names if rows[name].notna().all()]
    return ", ".join(f"{name} {_span(rows[name])}" for name in settings)


def method_table(result: Result, methods: Mapping[str, Method]) -> results.Table:
    """What each method does."""
    rows = [(name, methods[name].text or "-") for name in result.methods if name in methods]
    return _table(("method", "what it does"), rows)


# Methods of one's own beside the others.


def rivals_of(result: Result, name: str, names: Sequence[str]) -> list[str]:
    """Methods that are not one's own; where there are none, one's own others."""
    others = [one for one in result.methods if one not in names]
    return others or [one for one in names if one != name]


def beside_best(result: Result, name: str, rivals: Sequence[str]) -> list[dict[str, Any]]:
    """A method beside the best rival of each scene: rows of `Result.ratio` with the rival."""
    scenes, found = list(result.rows["scene"].unique()), []
    for scene in scenes:
        where, level = {"scene": scene}, 1 - DOUBT / len(scenes)
        logs = {one: np.log(result.values(one, CHOSEN_ON, **where).to_numpy()) for one in rivals}
        best = min(rivals, key=lambda one: float(logs[one].mean()))
        row = result.ratio(name, best, set=MEASURED_ON, level=level, where=where)
        found.append({**where, "rival": best, **row.to_dict("records")[0]})
    return sorted(found, key=lambda row: row["ratio"])


def summary_of(result: Result, names: Sequence[str], errors: Mapping[str, str]) -> str:
    """A sentence a method of one's own, and what raised."""
    said = []
    for name in names:
        rivals = rivals_of(result, name, names)
        said.append(sentence_of(result, name, rivals) if rivals else f"{name} has no rival here.")
    said += [f"{name} is left out, since it raised: {words}." for name, words in errors.items()]
    return "\n".join(said)


def sentence_of(result: Result, name: str, rivals: Sequence[str]) -> str:
    """Where a method wins and loses against the best rival of each scene."""
    found = beside_best(result, name, rivals)
    count = counted(len(found), "scene")
    if not arrived(result, name):
        return f"{name} never reaches the target, so it loses in {count} of {len(found)}."
    won = [row for row in found if _word(row) == "wins"]
    lost = [row for row in found[::-1] if _word(row) == "loses"]
    over_all = result.ratio(name, over=rivals[0], set=MEASURED_ON)["text"].iloc[0]
    return (
        f"{name} wins in {len(won)} of {count}{_listed(map(_told, won))}, loses in"
        f" {len(lost)}{_listed(map(_told, lost))}, and does not differ significantly in"
        f" {len(found) - len(won) - len(lost)} from the fastest of the others there. Over all it"
        f" takes {over_all.removesuffix(' *')} times as long as {rivals[0]}."
    )


def beside_table(result: Result, name: str, rivals: Sequence[str]) -> results.Table:
    """A row a scene: the best rival and the ratio to it."""
    rows = [
        (row["scene"], row["rival"], row["text"].removesuffix(" *"), _word(row))
        for row in beside_best(result, name, rivals)
    ]
    return _table(
        ("scene", "fastest of the others", "time over its", ""),
        rows,
        f"{name} beside the fastest of the others in each scene, which set {CHOSEN_ON} chose; the"
        f" ratio of times with its interval is that of set {MEASURED_ON}.",
        right=["time over its"],
    )


def _word(row: Mapping[str, Any]) -> str:
    if row["high"] < 1:
        return "wins"
    return "loses" if row["low"] > 1 else OPEN


def _told(row: Mapping[str, Any]) -> str:
    return f"{row['scene']}, {row['ratio']:.2g} times as long as {row['rival']}"


# Words and cells of tables.


def _table(
    heads: Sequence[str], rows: Iterable[Any], caption: str = "", *, right: Sequence[str] = ()
) -> results.Table:
    columns = tuple(results.Column(head, right=head in right) for head in heads)
    return results.Table(columns, tuple(map(tuple, rows)), caption)


def _marked(table: results.Table, names: Sequence[str]) -> results.Table:
    """A table with a star behind the names of one's own methods."""
    if not names:
        return table
    rows = tuple((f"{name} *" if name in names else name, *rest) for name, *rest in table.rows)
    return replace(table, rows=rows, caption=f"{table.caption} * one's own.")


def _cells(result: Result) -> dict[str, dict[str, Any]]:
    cells = result.rows[result.cell].drop_duplicates().to_dict("records")
    return {", ".join(map(str, cell.values())): cell for cell in cells}


def counted(count: int, noun: str) -> str:
    """A number of things in words.

    Example:
        >>> counted(1, "scene"), counted(2, "scene")
        ('1 scene', '2 scenes')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _scenes(result: Result) -> str:
    return counted(result.rows["scene"].nunique(), "scene")


def _listed(names: Iterable[str]) -> str:
    """The first of them behind a colon."""
    names = list(names)
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return f": {'; '.join([*names[:NAMED], *more])}" if names else ""


def _range(least: Any, most: Any) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


def _span(values: Any) -> str:
    if any(isinstance(value, str) for value in values):
        return " or ".join(dict.fromkeys(map(str, values)))
    return _range(f"{values.min():.3g}", f"{values.max():.3g}")
