"""Who is ahead at equal time, shuffled or pure, with the line where they cross."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.study.statistics import Condition, Difference, disagreements, paired, verdict
from experiments.common import numbers as committed
from experiments.common.parts import Drawing, Part, written
from experiments.shuffled_map.runs import METHODS, SETS, Settings

NAME = "shuffled_map"
TITLE = "Where does shuffled dispatch get further than pure in the same time?"
CLAIM = "shuffled dispatch is further than pure in the same time"
OPEN = "no significant difference"
PAPERS = ("Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",)
Found = Mapping[str, Mapping[str, Mapping[str, Any]]]  # data, unevenness, method
Key = tuple[str, str, str, float]  # set, data, unevenness, horizon


def differences(settings: Settings, found: Found) -> dict[Key, Difference]:
    """The paired logarithm of shuffled's gap over pure's in every cell; below 0 shuffled is ahead.

    Intervals of 95 %, each for itself.
    """
    made = {}
    for letter in SETS:
        for data, by_unevenness in found.items():
            for unevenness, cells in by_unevenness.items():
                for at, horizon in enumerate(settings.horizons):
                    shuffled, pure = (
                        np.log(cells[name]["gaps"][letter][at]) for name in ("shuffled", "pure")
                    )
                    key = letter, data, unevenness, horizon
                    made[key] = paired(shuffled, pure, settings.seed)
    return made


def winner(difference: Difference) -> str:
    """Who is ahead in a cell, as far as the instances tell.

    Example:
        >>> winner(paired([1.0, 2.0], [3.0, 5.0])), winner(paired([1.0, 2.0], [2.0, 1.0]))
        ('shuffled', 'no significant difference')
    """
    if not difference.significant:
        return OPEN
    return "shuffled" if difference.mean < 0 else "pure"


def verdicts(settings: Settings, found: Found, letter: str) -> dict[str, str]:
    """The claim over all cells of a set, and for each horizon over its cells by itself."""
    cells = {key[1:]: d for key, d in differences(settings, found).items() if key[0] == letter}

    def said(horizons: Sequence[float]) -> str:
        own = [
            Condition(f"{data}, unevenness {unevenness}, time {horizon:g}", difference)
            for (data, unevenness, horizon), difference in cells.items()
            if horizon in horizons and float(unevenness) > 1
        ]
        return verdict(own)

    by_horizon = {f"{CLAIM}, time {h:g}": said([h]) for h in settings.horizons}
    return {CLAIM: said(settings.horizons), **by_horizon}


def crossings(settings: Settings, found: Found) -> dict[tuple[str, str, str], float]:
    """The time from which shuffled is ahead, by set, data and unevenness.

    Between two horizons on a straight line in the logarithm of time; 0 where it is ahead at all of
    them, infinity where pure is ahead at the last.
    """
    means: dict[tuple[str, str, str], list[float]] = {}
    for (letter, data, unevenness, _), difference in differences(settings, found).items():
        means.setdefault((letter, data, unevenness), []).append(difference.mean)
    return {key: crossing(settings.horizons, own) for key, own in means.items()}


def crossing(horizons: Sequence[float], means: Sequence[float]) -> float:
    """From when on the means stay below 0.

    Example:
        >>> crossing([10.0, 100.0, 1000.0], [2.0, 1.0, -1.0])
        316.22776601683796
        >>> crossing([10.0, 100.0], [-2.0, -1.0]), crossing([10.0, 100.0], [1.0, 2.0])
        (0.0, inf)
    """
    last = max((at for at, mean in enumerate(means) if mean >= 0), default=-1)
    if last < 0:
        return 0.0
    if last == len(means) - 1:
        return math.inf
    low, high = np.log(horizons[last]), np.log(horizons[last + 1])
    share = means[last] / (means[last] - means[last + 1])
    return float(np.exp(low + share * (high - low)))


def part(settings: Settings, found: Found) -> Part:
    """Draws the maps, makes the tables; writes numbers where they are committed if asked."""
    measured = numbers(settings, found)
    if settings.commit:
        committed.save(NAME, measured, command=f"python -m experiments.{NAME} --commit")
    return written(
        settings.output,
        NAME,
        TITLE,
        figures(settings, found),
        tables(settings, found),
        measured,
        answer(settings, found),
        PAPERS,
    )


def answer(settings: Settings, found: Found) -> str:
    """The verdict of both sets in words, what the cells say, and when the two cross."""
    said = [verdicts(settings, found, letter)[CLAIM] for letter in SETS]
    both = " and ".join(dict.fromkeys(said))
    times = [t for (_, _, u), t in crossings(settings, found).items() if float(u) > 1]
    seen = sorted(time for time in times if 0 < time < math.inf)
    where = (
        f" They cross between time {seen[0]:.3g} and {seen[-1]:.3g} where workers are uneven."
        if seen
        else ""
    )
    return f"That {CLAIM}: {both}. {told(settings, found)}{where}"


def figures(settings: Settings, found: Found) -> Iterator[Drawing]:
    """A map a set and data set, together in one figure."""
    text = (
        "Gap of shuffled over gap of pure at equal time, geometric mean over"
        f" {settings.instances} instances: blue where shuffled is ahead, red where pure is, grey"
        " numbers where the instances do not tell. The line is where they cross."
    )
    yield "", draw(settings, found), text


def draw(settings: Settings, found: Found) -> Any:
    """The maps: a row a data set, a column a set of instances."""
    apart = differences(settings, found)
    places = {u: at for at, u in enumerate(next(iter(found.values())))}
    with drawing():
        figure = new_figure(9.0, 3.3 * len(found) + 0.3)
        grid = figure.subplots(len(found), len(SETS), squeeze=False, sharex=True, sharey=True)
        for row, data in enumerate(found):
            for column, letter in enumerate(SETS):
                axes = grid[row, column]
                cells = np.array(
                    [[apart[letter, data, u, h].mean for u in places] for h in settings.horizons]
                )
                limit = np.log(12.0)
                axes.pcolormesh(cells, cmap="RdBu_r", vmin=-limit, vmax=limit, alpha=0.75)
                for (x, u), (y, h) in _pairs(places, settings.horizons):
                    own = apart[letter, data, u, h]
                    colour = "black" if own.significant else "grey"
                    style = "normal" if own.significant else "italic"
                    axes.text(
                        x + 0.5, y + 0.5, f"{np.exp(own.mean):.2g}", color=colour,
                        ha="center", va="center", zorder=4, style=style,
                    )  # fmt: skip
                _line(axes, cells)
                axes.set_title(f"{data}, set {letter}")
                axes.set_xticks(np.arange(len(places)) + 0.5, list(places))
                axes.set_yticks(
                    np.arange(len(settings.horizons)) + 0.5, [f"{h:g}" for h in settings.horizons]
                )
                if row == len(found) - 1:
                    axes.set_xlabel("slowest over fastest mean time")
                if column == 0:
                    axes.set_ylabel("time [job of the fastest worker]")
    return figure


def _pairs(places: Mapping[str, int], horizons: Sequence[float]) -> Iterator[Any]:
    for u, x in places.items():
        for y, h in enumerate(horizons):
            yield (x, u), (y, h)


def _line(axes: Any, cells: np.ndarray) -> None:
    """The line where the mean logarithm is 0; without one where it is of one sign."""
    if cells.min() < 0 < cells.max() and min(cells.shape) > 1:
        x, y = (np.arange(size) + 0.5 for size in cells.shape[::-1])
        axes.contour(x, y, cells, levels=[0.0], colors="black", linewidths=1.8, zorder=2)


def tables(settings: Settings, found: Found) -> tuple[results.Table, ...]:
    """Verdicts, ratios with their intervals, crossings, and steps with their trials."""
    return (
        _verdict_table(settings, found),
        _ratio_table(settings, found),
        crossing_table(settings, found),
        _step_table(settings, found),
    )


def kept() -> tuple[Settings, Found]:
    """The committed cells, in the order of their unevenness, and the settings that they need."""
    numbers = committed.load(NAME)
    own = numbers["settings"]
    settings = Settings(horizons=tuple(own["horizons"]), instances=own["instances"])
    cells = {
        data: dict(sorted(by.items(), key=lambda item: float(item[0])))
        for data, by in numbers["cells"].items()
    }
    return settings, cells


def _verdict_table(settings: Settings, found: Found) -> results.Table:
    one, other = (verdicts(settings, found, letter) for letter in SETS)
    apart = disagreements(one, other)
    agree = "The two sets agree." if not apart else f"The two sets differ in {len(apart)}."
    return results.Table(
        (
            results.Column("claim", right=False),
            *(results.Column(f"set {letter}", right=False) for letter in SETS),
        ),
        tuple((claim, one[claim], other[claim]) for claim in one),
        "Over all cells where workers are uneven: it holds if shuffled is told to be ahead in"
        f" all of them, in part if in some. {agree} {told(settings, found)}",
    )


def told(settings: Settings, found: Found) -> str:
    """How many cells each wins in both sets, in words."""
    cells: dict[tuple[str, str, float], list[str]] = {}
    for key, difference in differences(settings, found).items():
        cells.setdefault(key[1:], []).append(winner(difference))
    both = [own[0] for own in cells.values() if len(set(own)) == 1]
    opposite = sum(set(own) == {"pure", "shuffled"} for own in cells.values())
    return (
        f"Of {len(cells)} cells shuffled is ahead in {both.count('shuffled')} in both sets, pure in"
        f" {both.count('pure')}, neither in {both.count(OPEN)}; {len(cells) - len(both)} are told"
        f" apart in one set only, {opposite} of them in opposite ways."
        if not opposite
        else f"Of {len(cells)} cells {opposite} are told apart in opposite ways."
    )


def _ratio_table(settings: Settings, found: Found) -> results.Table:
    apart = differences(settings, found)
    columns = [results.Column("data", right=False), results.Column("slowest / fastest")]
    columns += [
        results.Column(f"time {h:g}, set {letter}") for h in settings.horizons for letter in SETS
    ]
    rows = []
    for data, by_unevenness in found.items():
        for unevenness in by_unevenness:
            cells = [
                _ratio(apart[letter, data, unevenness, h])
                for h in settings.horizons
                for letter in SETS
            ]
            rows.append((data, float(unevenness), *cells))
    return results.Table(
        tuple(columns),
        tuple(rows),
        f"Shuffled's gap over pure's, geometric mean over {settings.instances} instances and its"
        " 95 % interval; a star where the two do not differ significantly. Below 1"
        " shuffled is ahead.",
    )


def _ratio(own: Difference) -> str:
    low, mean, high = (f"{np.exp(value):.2g}" for value in (own.low, own.mean, own.high))
    return f"{mean} ({low} to {high})" + ("" if own.significant else " *")


def crossing_table(settings: Settings, found: Found) -> results.Table:
    """The crossing line; experiments/README.md has it."""
    ahead = crossings(settings, found)
    names = [(data, letter) for data in found for letter in SETS]
    rows = [
        (float(u), *(_moment(settings, ahead[letter, data, u]) for data, letter in names))
        for u in next(iter(found.values()))
    ]
    return results.Table(
        (
            results.Column("slowest / fastest"),
            *(results.Column(f"{data}, set {letter}") for data, letter in names),
        ),
        tuple(rows),
        "The crossing line: from when on shuffled is ahead in the mean, in jobs of the fastest"
        " worker.",
    )


def _moment(settings: Settings, time: float) -> str:
    if time == 0:
        return f"before {min(settings.horizons):g}"
    return f"after {max(settings.horizons):g}" if math.isinf(time) else f"{time:.3g}"


def _step_table(settings: Settings, found: Found) -> results.Table:
    rows = []
    for data, by_unevenness in found.items():
        for unevenness, cells in by_unevenness.items():
            for method in METHODS:
                own = cells[method]
                steps = ", ".join(f"{step:.3g}" for step in own["steps"])
                trials = f"{min(own['trials'])} to {max(own['trials'])}"
                edges = sum(own["at_edge"])
                rows.append((data, float(unevenness), method, steps, trials, edges))
    heads = ("data", "slowest / fastest", "dispatch", "steps, by time", "trials", "at an edge")
    return results.Table(
        tuple(results.Column(head, right=head not in ("data", "dispatch")) for head in heads),
        tuple(rows),
        f"Steps chosen on {settings.tuning_instances} other instances, for each time by itself.",
    )


def numbers(settings: Settings, found: Found) -> dict[str, Any]:
    """All that was measured, and what follows from it, as plain values."""
    return {
        "settings": {
            name: getattr(settings, name)
            for name in ("horizons", "instances", "tuning_instances", "n_workers", "rows", "seed")
        },
        "cells": found,
        "verdicts": {letter: verdicts(settings, found, letter) for letter in SETS},
        "crossings": {
            f"{data}, unevenness {u}, set {letter}": time
            for (letter, data, u), time in crossings(settings, found).items()
        },
    }
