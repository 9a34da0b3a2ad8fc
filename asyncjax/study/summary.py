"""What a page says of a study: its answer, ranks, profiles, trials, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots, report
from asyncjax.study import statistics

FARTHEST = 4.0  # multiple of the best to which profiles go
LINES = 8  # curves of a figure; the table has all
Result = Any  # of `result.py`, which calls this file for its report


def page(result: Result, claims: Sequence[Any], title: str, command: str) -> str:
    """The page of a study as HTML."""
    judged = [report.Section("Claims", "", (), [verdict_table(result, claims)])] if claims else []
    figures = [profile_figure(result)]
    sections = [
        *judged,
        report.Section("Ranks", "", (), [rank_table(result)]),
        report.Section("Performance profiles", "", figures, [profile_table(result)]),
        report.Section("Scene by scene", "", (), [scene_table(result)]),
        report.Section("What was tuned, and what it cost", "", (), [trial_table(result)]),
        report.provenance(command),
    ]
    return report.render(title, wins(result), sections, verdict=answer(result, claims))


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
    alone = result.verdicts(claims)
    family = {letter: result.judged(claims, letter, together=True) for letter in result.sets}
    heads = ["claim", *(f"set {letter}" for letter in result.sets)]
    rows = [[claim, *words.values()] for claim, words in alone.items()]
    if len(family[result.sets[0]]) > 1:
        heads.append("all at once")
        for row in rows:
            words = {
                letter: statistics.verdict(found[row[0]])
                for letter, found in family.items()
                if row[0] in found
            }
            row.append(worded(words) if words else "")
    if any(statistics.OPEN in words.values() for words in alone.values()):
        heads.append("would have shown")
        for row in rows:
            row.append(_shown(result, claims, row[0]) if statistics.OPEN in row else "")
    differing = sum(len({*words.values()}) > 1 for words in alone.values())
    agree = f"differ in {differing}" if differing else "agree"
    caption = [
        text or "Verdicts by rule: a claim holds where the intervals of all its conditions do.",
        f"The sets {agree}." if len(result.sets) > 1 else "",
        "All at once: with Holm's correction for the conditions of all claims."
        if "all at once" in heads
        else "",
        "Would have shown: the ratio that four of five such studies find significant."
        if "would have shown" in heads
        else "",
    ]
    columns = tuple(results.Column(head, right=False) for head in heads)
    return results.Table(columns, tuple(map(tuple, rows)), " ".join(filter(None, caption)))


def _shown(result: Result, claims: Sequence[Any], text: str) -> str:
    """The largest of the ratios that would have shown, over the open conditions of a claim."""
    claim = next(claim for claim in claims if claim.text == text)
    ratios = []
    for letter in result.sets:
        conditions = result.conditions(claim, letter) if claim.conditions else ()
        level = claim.level or 1 - 0.05 / max(len(conditions), 1)
        ratios += [
            statistics.smallest_ratio(one.difference, level)
            for one in conditions
            if one.verdict == statistics.OPEN
        ]
    return f"{max(ratios):.2f}" if ratios else ""


def rank_table(result: Result) -> results.Table:
    """Methods by their mean in the first set, with their ranks in all."""
    ranks = result.rank()
    order = list(ranks[ranks["set"] == result.sets[0]]["method"])
    by_place = ranks.set_index(["method", "set"])
    heads = ["method"]
    for letter in result.sets:
        heads += [f"rank, set {letter}", f"{result.compared} over the first's, set {letter}"]
    rows = []
    for method in order:
        row = [method]
        for letter in result.sets:
            place = by_place.loc[(method, letter)]
            row.append(_range(place["best_rank"], place["worst_rank"]))
            row.append(f"{place['ratio']:.2f} ({place['low']:.2f} to {place['high']:.2f})")
        rows.append((*row, f"{100 * arrived(result, method):.0f} %"))
    return results.Table(
        tuple(results.Column(head, right=head != "method") for head in [*heads, "came"]),
        tuple(rows),
        "Rank: from one more than how many methods are significantly lower to all but those"
        " significantly higher; all pairs of a set share a doubt of 5 %. Ratios are geometric means"
        f" over {_count(result, 'scene')}; a time that never came counts as the horizon.",
    )


def arrived(result: Result, method: str) -> float:
    """Share of a method's shown runs that came to a number by their horizon."""
    rows = result.select(method=method, set=list(result.sets))
    values = rows[result.compared].to_numpy(float)
    if result.compared in result.cut:
        values = np.where(values <= rows["horizon"].to_numpy(float), values, np.inf)
    return float(np.isfinite(values).mean())


def profile_figure(result: Result) -> report.Illustration:
    """Performance profiles of the methods that solve most."""
    shares = result.profile(FARTHEST)
    names = sorted(_areas(shares), key=lambda name: -_areas(shares)[name])[:LINES]
    series = [
        results.Series(name, shares["ratio"], *[shares[name].to_numpy()] * 3) for name in names
    ]
    figure = plots.curves(
        series,
        x_label=f"times the lowest {result.compared} of the run",
        y_label="share of runs",
        y_range=(0.0, 1.0),
    )
    caption = (
        f"Share of runs (instances of {_count(result, 'scene')}, all sets) whose"
        f" {result.compared} is within so many times that of the best method there."
    )
    return report.Illustration(figure, caption)


def profile_table(result: Result) -> results.Table:
    """Shares at some ratios, and the mean height of the profile."""
    shares = result.profile(FARTHEST)
    areas = _areas(shares)
    at = {ratio: int(np.argmin(np.abs(shares["ratio"] - ratio))) for ratio in (1.0, 2.0, FARTHEST)}
    heads = ("method", "best", "within 2 times", f"within {FARTHEST:g} times", "mean to there")
    rows = [
        (name, *(f"{100 * shares[name][place]:.0f} %" for place in at.values()), f"{area:.2f}")
        for name, area in sorted(areas.items(), key=lambda item: -item[1])
    ]
    columns = tuple(results.Column(head, right=head != "method") for head in heads)
    return results.Table(columns, tuple(rows), "The same in numbers, best first.")


def _areas(shares: Any) -> dict[str, float]:
    """Mean share of each method between 1 and the last ratio."""
    ratios = shares["ratio"].to_numpy()
    width = ratios[-1] - ratios[0]
    return {
        name: float(np.trapezoid(shares[name].to_numpy(), ratios) / width)
        for name in shares
        if name != "ratio"
    }


def wins(result: Result) -> str:
    """Where the method that is first over all wins and loses, in a sentence."""
    leader = result.rank(set=result.sets[0])["method"].iloc[0]
    ahead, behind = [], []
    cells = _cells(result)
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


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return f": {'; '.join([*names[:most], *more])}" if names else ""


def scene_table(result: Result) -> results.Table:
    """The first method of each cell, and who is level with it, in each set."""
    rows = []
    for cell, where in _cells(result).items():
        row = [cell]
        for letter in result.sets:
            ranks = result.rank(where, letter)
            first, *rest = ranks[ranks["with_best"]]["method"]
            row += [first, ", ".join(rest) or "none"]
        rows.append(tuple(row))
    heads = ["scene"]
    for letter in result.sets:
        heads += [f"first, set {letter}", "no significant difference"]
    columns = tuple(results.Column(head, right=False) for head in heads)
    return results.Table(columns, tuple(rows), "Scene by scene, all pairs sharing a doubt of 5 %.")


def trial_table(result: Result) -> results.Table:
    """Trials of each method, what was chosen, and processor time where it was taken."""
    found, rows = result.trials(), []
    known = {*result.cell, "method", "trials", "horizon", "at_edge"}
    of_scenes = found.groupby(result.cell).nunique(dropna=False).max() == 1  # not of methods
    names = [name for name in found if name not in known and not of_scenes.get(name)]
    names = result.facts.get("settings", names if len(result.methods) > 1 else [])
    timed = "processor_seconds" in result.rows
    for method in result.methods:
        chosen = found[found["method"] == method]
        settings = [name for name in names if chosen[name].notna().all()]
        spans = ", ".join(f"{name} {_span(chosen[name])}" for name in settings)
        spent = result.select(method=method)["processor_seconds"].sum() if timed else None
        trials = _span(chosen["trials"]) if "trials" in chosen else "none"
        rows.append((method, trials, spans or "none", f"{spent:.0f} s" if timed else "not taken"))
    heads = ("method", "trials a scene", "chosen", "processor time")
    edges = result.facts.get("at an edge", [])
    text = f" At an edge of its grid after the last round: {', '.join(edges)}." if edges else ""
    return results.Table(
        tuple(results.Column(head, right=head in heads[1::2]) for head in heads),
        tuple(rows),
        "Every method was tuned on other instances than are shown; settings from the least to the"
        f" most over the scenes.{text}",
    )


def _cells(result: Result) -> dict[str, dict[str, Any]]:
    cells = result.rows[result.cell].drop_duplicates().to_dict("records")
    return {", ".join(map(str, cell.values())): cell for cell in cells}


def _count(result: Result, what: str) -> str:
    count = result.rows[what].nunique()
    return f"{count} {what}{'s' if count > 1 else ''}"


def _range(least: Any, most: Any) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


def _span(values: Any) -> str:
    if any(isinstance(value, str) for value in values):
        return " or ".join(dict.fromkeys(map(str, values)))
    return _range(f"{values.min():.3g}", f"{values.max():.3g}")
