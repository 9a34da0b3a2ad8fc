"""Tables and figures of the comparisons of step-size rules, from their numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure, set_log
from asyncjax.study.protocol import reached
from asyncjax.study.statistics import HOLDS, Difference, verdict
from experiments.common.parts import Drawing, Part, written
from experiments.delay_adaptive.step_rules_runs import (
    ADAPTIVE,
    CONSTANT,
    RELATIVE,
    SETS,
    SYNCHRONOUS,
    Task,
    rule_of,
)
from experiments.delay_adaptive.step_rules_verdicts import OURS, ahead, conditions, predicted

Found = Mapping[str, Any]


def part(name: str, title: str, output: Path, found: Found, picture: tuple[str, Task]) -> Part:
    """Draws all figures and makes all tables.

    Args:
        name: Of the part.
        title: The question.
        output: Folder.
        found: From `numbers`.
        picture: A name and a task, whose delays and steps are drawn.
    """
    drawn: tuple[Drawing, ...] = (
        (
            "steps",
            _steps(picture, found["fixed"]),
            "The delays that a run meets (above) and the steps that each rule makes of them"
            " (below); steps of exactly 0 are not drawn.",
        ),
        (
            "prediction",
            _prediction(found),
            "Updates saved by Adaptive 1 against the ratio of the sums of the steps, which is"
            " known before the run; the tightest target that all runs of both rules keep, set A."
            " Hollow: the fixed rule is not there in time in some runs, so the point is a lower"
            " bound.",
        ),
    )
    tables = (verdict_table(found), theory_table(found), tuned_table(found), others_table(found))
    return written(output, name, title, drawn, tables, dict(found))


def verdict_table(found: Found) -> results.Table:
    """What the numbers of each set say of every claim."""
    by_set = {letter: conditions(found, letter) for letter in SETS}
    rows = []
    for claim in by_set["A"]:
        row = [claim]
        for own in by_set.values():
            if claim in own:
                held = sum(one.verdict == HOLDS for one in own[claim])
                row.append(f"{verdict(own[claim])} ({held} of {len(own[claim])})")
            else:
                row.append("nobody is there")
        rows.append(tuple(row))
    return results.Table(
        (
            results.Column("claim (conditions that hold)", right=False),
            *(results.Column(f"set {letter}", right=False) for letter in SETS),
        ),
        tuple(rows),
        "A condition is a case at a target (tuned: at the last); together they share a doubt of"
        " 5 %.",
    )


def _cell(said: tuple[Difference, str] | None) -> str:
    if said is None:
        return "nobody there"
    difference, sign = said
    middle, low, high = (np.exp(-x) for x in (difference.mean, difference.high, difference.low))
    return f"{sign}{middle:.3g} ({low:.3g} to {high:.3g})"


def _named(case: str) -> tuple[str, str]:
    data, law = case.split(", ", 1)
    return data, law


def _columns(*headings: str) -> tuple[results.Column, ...]:
    left = (results.Column("data", right=False), results.Column("delays", right=False))
    return (*left, *(results.Column(heading) for heading in headings))


def theory_table(found: Found) -> results.Table:
    """The table that answers the question: Adaptive 1 against the safe step, theory steps."""
    fixed, levels = found["fixed"], found["levels"]
    rows = []
    for case, own in sorted(found["cases"].items()):
        one = own["A"]
        updates = np.array(one["theory"][OURS]["updates"], float)
        middle = [reached(column, found["n_updates"]).quartiles[1] for column in updates.T]
        cells = [
            _cell(ahead(found, case, letter, fixed, level))
            for letter in SETS
            for level in range(1, len(levels))
        ]
        delays = f"{np.median(one['longest']):.0f} ({np.mean(one['mean']):.1f})"
        times = " / ".join("never" if m is None else f"{m:,.0f}" for m in middle)
        predictions = f"{predicted(found, case, 'A'):.3g}"
        rows.append((*_named(case), delays, times, *cells, predictions))
    targets = [f"{100 * level:g} %" for level in levels]
    return results.Table(
        _columns(
            "longest (mean)",
            f"Adaptive 1, updates to {' / '.join(targets)}",
            *(f"{fixed} / it to {target}, {letter}" for letter in SETS for target in targets[1:]),
            "predicted",
        ),
        tuple(rows),
        "Updates from which a target is kept, theory steps: median of set A, and paired ratios"
        " (geometric mean, interval of 95 %) of both sets. Runs that were not there in"
        f" {found['n_updates']:,} updates count as that many: '>' where they are runs of {fixed},"
        " '<' of Adaptive 1, 'about' of both.",
    )


def tuned_table(found: Found) -> results.Table:
    """All rules at their best multiple of gamma', the last target."""
    rows = []
    for case, own in sorted(found["cases"].items()):
        tuning = own["tuning"]
        multiples = ", ".join(f"{tuning[rule]['multiple']:.3g}" for rule in RELATIVE)
        cells = [
            _cell(ahead(found, case, letter, rule, kind="tuned"))
            for rule in (CONSTANT, "Adaptive 2", "c/(delay+1)")
            for letter in (SETS if rule == CONSTANT else "A")
        ]
        trials = tuning[OURS]["trials"]
        edges = ", ".join(rule for rule, one in tuning.items() if one["at_edge"]) or "none"
        gradients = f"{tuning[OURS]['gradients']:,}"
        rows.append((*_named(case), *cells, multiples, trials, gradients, edges))
    return results.Table(
        _columns(
            "constant / Adaptive 1, A",
            "B",
            "Adaptive 2 / it, A",
            "c/(delay+1) / it, A",
            "multiples of gamma'",
            "trials a rule",
            "gradients a rule",
            "at an edge",
        ),
        tuple(rows),
        "The same with every rule at its best multiple of gamma' (Adaptive 1, Adaptive 2,"
        " c/(delay+1), constant), searched on other instances, to the last target.",
    )


def others_table(found: Found) -> results.Table:
    """The other rules at theory steps; synchronous rounds, in time."""
    run = {rule for case in found["cases"].values() for rule in case["A"]["theory"]}
    others = sorted(run - {OURS, SYNCHRONOUS, found["fixed"]})
    rounds = [(kind, letter) for kind in ("theory", "tuned") for letter in SETS]
    rounds = rounds if SYNCHRONOUS in run else []
    rows = []
    for case, own in sorted(found["cases"].items()):
        cells = [_cell(ahead(found, case, "A", rule)) for rule in others]
        for kind, letter in rounds:
            if SYNCHRONOUS in own[letter][kind]:
                cells.append(
                    _cell(ahead(found, case, letter, SYNCHRONOUS, kind=kind, axis="times"))
                )
            else:
                cells.append("")
        rows.append((*_named(case), *cells))
    return results.Table(
        _columns(
            *(f"{rule} / Adaptive 1, A" for rule in others),
            *(f"synchronous / it in time, {kind}, {letter}" for kind, letter in rounds),
        ),
        tuple(rows),
        "Updates of the other rules over those of Adaptive 1 at theory steps, and time of"
        " synchronous rounds, which wait for all workers, over its time; the last target.",
    )


def _steps(picture: tuple[str, Task], fixed: str) -> Any:
    """Delay profile and step sequence, one above the other: the picture that explains the rules."""
    from asyncjax.steps import predict_steps

    name, task = picture
    last = min(len(task.ages), 1400)
    window = np.arange(max(0, last - 500), last)
    styles = plots.assign_styles(["Adaptive 1", "Adaptive 2", fixed])
    with drawing():
        figure = new_figure(8.0, 4.6)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.6))
        above.plot(window, task.ages[window], color="0.3", linewidth=1.2)
        above.set_ylabel("delay [updates]")
        above.set_title(name)
        for rule in ADAPTIVE[:2]:
            found = predict_steps(rule_of(rule, 1.0), task.ages).step_size[window]
            below.plot(
                window,
                np.where(found > 0, found, np.nan),
                ".",
                markersize=3,
                color=styles[rule].colour,
                label=rule,
            )
        level = task.fixed[fixed] / task.step_size
        below.plot(window, np.full(len(window), level), color=styles[fixed].colour, label=fixed)
        set_log(below.yaxis, True)
        below.set_ylim(1e-4, 1.5)
        below.set_ylabel("step / gamma'")
        below.set_xlabel("update")
        for axes in (above, below):
            add_grid(axes)
        figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _point(found: Found, case: str) -> tuple[float, bool] | None:
    """By how much Adaptive 1 is ahead at the tightest target that all runs of both keep.

    Where there is none, at the tightest that all of its own keep: a lower bound.
    """
    fixed, last = found["fixed"], len(found["levels"]) - 1
    own = found["cases"][case]["A"]["theory"]
    for rules, bound in (((OURS, fixed), False), ((OURS,), True)):
        for level in range(last, -1, -1):
            values = [np.array(own[rule]["updates"], float)[:, level] for rule in rules]
            said = ahead(found, case, "A", fixed, level)
            if said is not None and np.isfinite(values).all():
                return float(np.exp(-said[0].mean)), bound
    return None


def _prediction(found: Found) -> Any:
    points = {
        case: (predicted(found, case, "A"), point)
        for case in sorted(found["cases"])
        if (point := _point(found, case)) is not None
    }
    data = list(dict.fromkeys(_named(case)[0] for case in points))
    laws = list(dict.fromkeys(_named(case)[1] for case in points))
    markers = dict(zip(data, "osD^v", strict=False))
    styles = plots.assign_styles(laws)
    values = [value for expected, point in points.values() for value in (expected, point[0])]
    low, high = 0.8 * min(values), 1.4 * max(values)
    with drawing():
        figure = new_figure(7.4, 4.6)
        axes = figure.subplots()
        axes.plot([low, high], [low, high], color="0.6", linewidth=1, zorder=0)
        for case, (expected, (ratio, bound)) in points.items():
            name, law = _named(case)
            colour = styles[law].colour
            axes.plot(
                expected,
                ratio,
                markers[name],
                color=colour,
                markerfacecolor="none" if bound else colour,
                markersize=7,
            )
        for law in laws:
            axes.plot([], [], "s", color=styles[law].colour, label=law)
        for name in data:
            axes.plot([], [], markers[name], color="0.3", markerfacecolor="none", label=name)
        for axis in (axes.xaxis, axes.yaxis):
            set_log(axis, True)
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        axes.set_xlabel(f"sum of the steps of Adaptive 1 over that of {found['fixed']}")
        axes.set_ylabel(f"updates of {found['fixed']} over those of Adaptive 1")
        add_grid(axes)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure
