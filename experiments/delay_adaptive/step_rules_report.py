"""Tables, figures and numbers of the comparisons of step-size rules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure, set_log
from asyncjax.results.tables import format_number, format_spread
from experiments.common.parts import Part, written
from experiments.delay_adaptive.step_rules_runs import ADAPTIVE, CONSTANT, Curve, Outcome, rule_of

RATIOS = (0.3, 0.1, 0.01, 0.001)  # gaps, as shares of the first


def part(
    name: str,
    title: str,
    output: Path,
    outcomes: Sequence[Outcome],
    *,
    fixed: str,
    further: tuple[results.Table, ...] = (),
) -> Part:
    """Draws all figures and makes all tables."""
    tables = (_theory_table(outcomes, fixed), _tuned_table(outcomes), *further)
    drawn = (
        (
            "curves",
            _curves(outcomes),
            "Gap to the optimum at the theory steps, the first data set.",
        ),
        (
            "steps",
            _steps(_picture_task(outcomes), fixed),
            "The delays that a run meets (above) and the steps that each rule makes of them"
            " (below); steps of exactly 0 are not drawn.",
        ),
        (
            "prediction",
            _prediction(outcomes, fixed),
            "Updates saved by Adaptive 1 against the ratio of the sums of the steps, which is"
            " known before the run. Hollow: the fixed rule did not reach the gap in time, so the"
            " point is a lower bound.",
        ),
    )
    return written(output, name, title, drawn, tables, numbers(outcomes, fixed))


def compared(outcome: Outcome, fixed: str) -> tuple[float, results.Spread, bool]:
    """By how much Adaptive 1 is ahead of a fixed rule, both at their theory steps.

    Returns:
        The smallest gap of `RATIOS` that both reach in every seed (else that Adaptive 1 reaches),
        the ratio of the updates needed there, and whether it is a lower bound because the fixed
        rule never got there.
    """
    adaptive, rival = outcome.theory["Adaptive 1"], outcome.theory[fixed]
    for ratio in reversed(RATIOS):
        own, other = adaptive.reached(ratio), rival.reached(ratio)
        if np.isfinite(own).all() and np.isfinite(other).all():
            return ratio, results.median_and_spread(other / own), False
    for ratio in RATIOS:
        own = adaptive.reached(ratio)
        if np.isfinite(own).all():
            return ratio, results.median_and_spread(rival.update[-1] / own), True
    return RATIOS[0], results.median_and_spread(np.full(len(outcome.task.ages), np.nan)), False


def predicted(outcome: Outcome, fixed: str) -> float:
    """The ratio of the sums of the steps, median over the seeds."""
    return float(np.median(outcome.predicted["Adaptive 1"] / outcome.predicted[fixed]))


def _theory_table(outcomes: Sequence[Outcome], fixed: str) -> results.Table:
    others = [name for name in outcomes[0].theory if name not in ADAPTIVE and name != fixed]
    rules = ("Adaptive 1", "Adaptive 2", fixed, *others, "c/(delay+1)")
    columns = (
        results.Column("data", right=False),
        results.Column("delays", right=False),
        results.Column("max (mean)"),
        results.Column("gap", format=_share),
        *(results.Column(rule) for rule in rules),
        results.Column(f"{fixed} / Adaptive 1", format=str),
        results.Column("predicted"),
        results.Column("time, Adaptive 1"),
        results.Column(f"time, {fixed}"),
    )
    rows = []
    for outcome in outcomes:
        ratio, ahead, bound = compared(outcome, fixed)
        ages = outcome.task.ages
        rows.append(
            (
                outcome.task.data,
                outcome.task.law,
                f"{int(np.median([age.max() for age in ages]))}"
                f" ({np.mean([age.mean() for age in ages]):.1f})",
                ratio,
                *(float(np.median(outcome.theory[rule].reached(ratio))) for rule in rules),
                _ahead(ahead, bound),
                predicted(outcome, fixed),
                *(
                    float(np.median(outcome.theory[rule].reached(ratio, axis="time")))
                    for rule in ("Adaptive 1", fixed)
                ),
            )
        )
    return results.Table(
        columns,
        tuple(rows),
        "Updates from which the gap to the optimum stays within the given share of the first,"
        f" each rule at its theory step, median over the seeds. '{fixed}' and the other fixed"
        " rules are told the longest delay of their own run. 'Predicted' is the ratio of the sums"
        " of the steps, from the delays alone, before anything is trained. Time in mean jobs of a"
        " fast worker (for sequences of delays: updates).",
    )


def _tuned_table(outcomes: Sequence[Outcome]) -> results.Table:
    rules = (*ADAPTIVE, CONSTANT)
    columns = (
        results.Column("data", right=False),
        results.Column("delays", right=False),
        results.Column("gap", format=_share),
        *(results.Column(rule, format=str) for rule in rules),
        results.Column("constant / Adaptive 1"),
        results.Column("time, Adaptive 1"),
        results.Column("time, constant"),
    )
    rows = []
    for outcome in outcomes:
        tuned = outcome.tuned
        reached = {
            rule: [float(np.median(tuned[rule].reached(ratio))) for ratio in RATIOS]
            for rule in rules
        }
        both = [
            place
            for place in range(len(RATIOS))
            if np.isfinite(reached["Adaptive 1"][place]) and np.isfinite(reached[CONSTANT][place])
        ]
        place = min(RATIOS.index(0.01), both[-1]) if both else 0
        times = [
            float(np.median(tuned[rule].reached(RATIOS[place], axis="time")))
            for rule in ("Adaptive 1", CONSTANT)
        ]
        ratio = reached[CONSTANT][place] / reached["Adaptive 1"][place] if both else None
        cells = [_with_multiple(reached[rule][place], tuned[rule]) for rule in rules]
        task = outcome.task
        rows.append((task.data, task.law, RATIOS[place], *cells, ratio, *times))
    return results.Table(
        columns,
        tuple(rows),
        "The same with every rule at the best step of one grid, the same for all (in brackets, in"
        " units of gamma'), chosen on other rows and other runs of the workers; where a best step"
        " was at an end, the grid grew for all. 'edge': it is at an end still.",
    )


def numbers(outcomes: Sequence[Outcome], fixed: str) -> dict[str, Any]:
    """All that was measured, as plain values."""
    out: dict[str, Any] = {}
    for outcome in outcomes:
        ratio, ahead, bound = compared(outcome, fixed)
        task = outcome.task
        out[f"{task.data}, {task.law}"] = {
            "longest_delay": [int(age.max()) for age in task.ages],
            "mean_delay": [float(age.mean()) for age in task.ages],
            "gap": ratio,
            "ahead": float(ahead.median),
            "lower_bound": bound,
            "predicted": predicted(outcome, fixed),
            "theory": {name: _reached(curve) for name, curve in outcome.theory.items()},
            "tuned": {
                name: {"multiple": curve.multiple, "edge": curve.at_edge, **_reached(curve)}
                for name, curve in outcome.tuned.items()
            },
        }
    return out


def _reached(curve: Curve) -> dict[str, Any]:
    return {
        axis: {f"{ratio:g}": float(np.median(curve.reached(ratio, axis=axis))) for ratio in RATIOS}
        for axis in ("update", "time")
    }


def _curves(outcomes: Sequence[Outcome]) -> Any:
    first = outcomes[0].task.data
    chosen = [outcome for outcome in outcomes if outcome.task.data == first][:4]
    panels = []
    for outcome in chosen:
        series = [_series(name, curve) for name, curve in outcome.theory.items()]
        series.append(_series("best constant, tuned", outcome.tuned[CONSTANT]))
        panels.append(plots.Panel(f"updates\n{first}, {outcome.task.law}", series))
    return plots.panels(panels, y_label="gap, share of the first", log_y=True, y_range=(1e-5, 1.5))


def _series(name: str, curve: Curve) -> results.Series:
    share = curve.gap / curve.gap[:, :1]
    update = np.broadcast_to(curve.update, share.shape)
    return results.series_over_seeds(name, update, share, curve.update)


def _picture_task(outcomes: Sequence[Outcome]) -> Outcome:
    """The task whose delays change most: that of a slow worker, if there is one."""
    slow = [outcome for outcome in outcomes if "slow" in outcome.task.law]
    return (slow or list(outcomes))[0]


def _steps(outcome: Outcome, fixed: str) -> Any:
    """Delay profile and step sequence, one above the other: the picture that explains the rules."""
    from asyncjax.steps import predict_steps

    task = outcome.task
    age = task.ages[0]
    last = min(len(age), 1400)
    window = np.arange(max(0, last - 500), last)
    styles = plots.assign_styles(["Adaptive 1", "Adaptive 2", fixed])
    with drawing():
        figure = new_figure(8.0, 4.6)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.6))
        above.plot(window, age[window], color="0.3", linewidth=1.2)
        above.set_ylabel("delay [updates]")
        above.set_title(f"{task.data}, {task.law}")
        for name in ("Adaptive 1", "Adaptive 2"):
            found = predict_steps(rule_of(name, 1.0), age).step_size[window]
            below.plot(
                window,
                np.where(found > 0, found, np.nan),
                ".",
                markersize=3,
                color=styles[name].colour,
                label=name,
            )
        level = float(task.fixed[fixed][0]) / task.step_size
        below.plot(window, np.full(len(window), level), color=styles[fixed].colour, label=fixed)
        set_log(below.yaxis, True)
        below.set_ylim(1e-4, 1.5)
        below.set_ylabel("step / gamma'")
        below.set_xlabel("update")
        for axes in (above, below):
            add_grid(axes)
        figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _prediction(outcomes: Sequence[Outcome], fixed: str) -> Any:
    data = list(dict.fromkeys(outcome.task.data for outcome in outcomes))
    laws = list(dict.fromkeys(outcome.task.law for outcome in outcomes))
    markers = dict(zip(data, "osD^v", strict=False))
    styles = plots.assign_styles(laws)
    points = [
        (outcome.task, predicted(outcome, fixed), compared(outcome, fixed)) for outcome in outcomes
    ]
    points = [point for point in points if np.isfinite(point[2][1].median)]
    values = [value for point in points for value in (point[1], float(point[2][1].median))]
    low, high = 0.8 * min(values), 1.4 * max(values)
    with drawing():
        figure = new_figure(7.4, 4.6)
        axes = figure.subplots()
        axes.plot([low, high], [low, high], color="0.6", linewidth=1, zorder=0)
        for task, expected, (_, ahead, bound) in points:
            colour = styles[task.law].colour
            axes.plot(
                expected,
                float(ahead.median),
                markers[task.data],
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
        axes.set_xlabel(f"sum of the steps of Adaptive 1 over that of {fixed}")
        axes.set_ylabel(f"updates of {fixed} over those of Adaptive 1")
        add_grid(axes)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure


def _ahead(ahead: results.Spread, bound: bool) -> str:
    if not np.isfinite(ahead.median):
        return "no gap reached"
    text = format_spread(ahead)
    return f"> {text}" if bound else text


def _with_multiple(reached: float, curve: Curve) -> str:
    edge = ", edge" if curve.at_edge else ""
    when = format_number(reached) if np.isfinite(reached) else "not reached"
    return f"{when} ({curve.multiple:.3g}{edge})"


def _share(value: float) -> str:
    return f"{value:g}"
