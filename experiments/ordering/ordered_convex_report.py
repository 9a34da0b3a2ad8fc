"""Tables, figures and numbers of example orders in logistic regression."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import DASHES
from asyncjax.study.protocol import FIRST_CROSSING
from experiments.common import numbers
from experiments.common.parts import Part, written
from experiments.ordering.ordered_convex_runs import Gaussian, Mortgage, Outcome

BASELINE, COORDINATED, CENTRAL, FULL = "D-RR", "CD-GraB", "pair balance", "full gradient"
METHODS = (BASELINE, "GraB", CENTRAL, "independent", COORDINATED)
DOUBLE = ("D-RR, 2 units", "CD-GraB, 2 units", "CD-GraB by projections, 2 units")
STYLES = plots.assign_styles((*METHODS, FULL, "CD-GraB by projections"))
NAME, DIGITS = "ordered_convex", 4
CLOSE, FAR = 2.0, 10.0  # times the gap of the full gradient: limited by optimisation, by noise


def part(settings: Any, gaussian: Gaussian, mortgage: Mortgage | None, left_out: str) -> Part:
    """Draws the figures and makes the tables; writes what pages quote if asked.

    Args:
        settings: Of the experiment.
        gaussian: What was measured on Gaussian rows.
        mortgage: What was measured on HMDA; None where it was not run.
        left_out: Why not.
    """
    if settings.commit:
        command = "python -m experiments.ordering.ordered_convex --commit"
        made = summary(settings, gaussian, mortgage)
        numbers.save(NAME, made, command=command, digits=DIGITS)
    tables = [
        best_table(settings, gaussian),
        grid_table(settings, gaussian),
        double_table(gaussian),
        scaling_table(settings, gaussian),
    ]
    drawn = [
        (
            "grid",
            _grid_figure(gaussian),
            "Final gap against the step, Gaussian rows; bands: range over the seeds.",
        ),
        (
            "scaling",
            _scaling_figure(gaussian),
            "Gap against epochs and server steps, m n fixed, each point at the step best for it;"
            " m = 1: pair balance.",
        ),
    ]
    if mortgage is None:
        tables.append(results.Table((results.Column("HMDA", right=False),), ((left_out,),)))
    else:
        tables += [mortgage_table(settings, mortgage), mortgage_grid(mortgage)]
        drawn.append(
            (
                "mortgage",
                _mortgage_figure(mortgage),
                "HMDA against epochs and against time, each point at the step best for it; bands:"
                " quartiles.",
            )
        )
    return written(
        settings.output,
        NAME,
        "Do coordinated example orders train faster? Logistic regression",
        drawn,
        tuple(tables),
        _numbers(gaussian, mortgage, left_out),
        note=FIRST_CROSSING,
    )


def geometric(values: np.ndarray) -> results.Spread:
    """Geometric mean and range over the seeds, float64[S]."""
    mean = float(np.exp(np.mean(np.log(values))))
    return results.Spread(mean, values.min(), values.max(), float(np.isfinite(values).mean()))


def by_label(outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    """Outcomes by the method's label."""
    return {outcome.label: outcome for outcome in outcomes}


def limit_of(baseline: float, full: float) -> str:
    """What limits random reshuffling.

    Noise, or the optimisation that the full gradient needs as well.
    """
    if baseline >= FAR * full:
        return "noise"
    return "optimisation" if baseline <= CLOSE * full else "both"


def best_table(settings: Any, gaussian: Gaussian) -> results.Table:
    """Each method at its own best step."""
    columns = (
        results.Column("m, n", right=False),
        results.Column("method", right=False),
        results.Column("step", format=str),
        results.Column("gap at the end"),
        results.Column("D-RR / this"),
    )
    rows = []
    for (m, n), size in gaussian.sizes.items():
        found = by_label(size.outcomes)
        for label, outcome in found.items():
            base = found[DOUBLE[0] if label in DOUBLE else BASELINE]
            final = geometric(outcome.reported[outcome.chosen(), :, -1])
            other = geometric(base.reported[base.chosen(), :, -1])
            cell = _step(outcome, outcome.chosen())
            rows.append((f"{m}, {n}", label, cell, final, float(other.median / final.median)))
    text = (
        f"Gaussian rows, logistic regression, d = {settings.dim}, L2 {settings.l2:g}: f - f* after"
        f" {settings.epochs} epochs, each method at the step that was best on"
        f" {settings.tuning_seeds} other seeds; geometric mean (range) of {settings.seeds} seeds;"
        " '(edge)': the first or last step of the grid. The last column compares with D-RR at its"
        " own best step and as many units a step."
    )
    return results.Table(columns, tuple(rows), text)


def grid_table(settings: Any, gaussian: Gaussian) -> results.Table:
    """The whole grid, one unit of each worker in a step."""
    columns = (
        results.Column("m, n", right=False),
        results.Column("step", format=_plain),
        results.Column(FULL),
        *(results.Column(name) for name in METHODS),
        results.Column("D-RR / CD-GraB"),
        results.Column("D-RR is limited by", right=False),
    )
    rows = []
    for (m, n), size in gaussian.sizes.items():
        found = by_label(size.outcomes)
        for place, step_size in enumerate(found[BASELINE].step_sizes):
            full = geometric(size.full[place]).median
            cells = [_cell(found.get(name), place) for name in METHODS]
            base, own = cells[0], _cell(found.get(COORDINATED, found[CENTRAL]), place)
            rows.append((f"{m}, {n}", step_size, full, *cells, base / own, limit_of(base, full)))
    text = (
        f"The same for all steps (geometric means of {settings.seeds} seeds). Full gradient:"
        " gradient descent with as many steps of that size. D-RR is limited by noise if its gap"
        f" is at least {FAR:g} times that, by optimisation if at most {CLOSE:g} times. With one"
        " worker CD-GraB, like independent, is pair balance."
    )
    return results.Table(columns, tuple(rows), text)


def double_table(gaussian: Gaussian) -> results.Table:
    """The whole grid, two units of each worker in a step."""
    head = (results.Column("m, n", right=False), results.Column("step", format=_plain))
    ratio = results.Column("by projections / CD-GraB")
    columns = (*head, *(results.Column(name) for name in DOUBLE), ratio)
    rows = []
    for (m, n), size in gaussian.sizes.items():
        found = by_label(size.outcomes)
        if DOUBLE[0] not in found:
            continue
        for place, step_size in enumerate(found[BASELINE].step_sizes):
            cells = [_cell(found[name], place) for name in DOUBLE]
            rows.append((f"{m}, {n}", step_size, *cells, cells[2] / cells[1]))
    text = (
        "Two units of each worker in a step, half as many steps. By projections all m pairs of a"
        " step are decided from one running sum (the stale form), and no gradient of a unit is"
        " formed."
    )
    return results.Table(columns, tuple(rows), text)


def scaling_table(settings: Any, gaussian: Gaussian) -> results.Table:
    """Epochs and server steps to a gap, with m n fixed."""
    columns = (
        results.Column("method", right=False),
        results.Column("m"),
        results.Column("server steps an epoch"),
        results.Column("gap at the end"),
        results.Column("step for the target", format=str),
        results.Column("epochs to the target"),
        results.Column("server steps to it"),
        results.Column("fewer than with m = 1"),
    )
    rows = []
    for label in METHODS:
        alone = None
        for m, outcomes in gaussian.scaling.items():
            outcome = by_label(outcomes).get(label)
            if outcome is None and m == 1:
                outcome = by_label(outcomes)[CENTRAL]
            if outcome is None or label == "GraB":
                continue
            place, epochs = outcome.reached(settings.target)
            middle = float(np.median(epochs))
            steps = middle * outcome.steps_per_epoch
            alone = steps if alone is None else alone
            ratio = alone / steps if np.isfinite(alone) and np.isfinite(steps) else None
            final = geometric(outcome.reported[outcome.chosen(), :, -1])
            cell = _step(outcome, place) if np.isfinite(middle) else ""
            rows.append((label, m, outcome.steps_per_epoch, final, cell, middle, steps, ratio))
    text = (
        f"m n = {settings.scaling_rows}. Gap at the end: at the best step for it. Target: a gap of"
        f" {settings.target:g}, at the step that is there first on the tuning seeds; median of the"
        " seeds. Linear speed-up is a last column of m. With m = 1 all but D-RR are pair balance."
    )
    return results.Table(columns, tuple(rows), text)


def mortgage_table(settings: Any, mortgage: Mortgage) -> results.Table:
    """HMDA at the chosen steps, by epochs and by time."""
    columns = (
        results.Column("method", right=False),
        results.Column("time of an epoch", format=str),
        results.Column("step", format=str),
        results.Column("gap at the end"),
        results.Column("D-RR / this"),
        results.Column("epochs in equal time"),
        results.Column("step", format=str),
        results.Column("gap at equal time"),
        results.Column("D-RR / this"),
    )
    rows, base = [], by_label(mortgage.outcomes)[BASELINE]
    other = float(np.median(base.reported[base.chosen(), :, -1]))
    for outcome in mortgage.outcomes:
        cells: list[Any] = [outcome.label, outcome.price]
        for epoch in (outcome.gap.shape[-1], equal_time(outcome)):
            place = outcome.chosen(epoch - 1)
            found = results.median_and_spread(outcome.reported[place, :, epoch - 1])
            cells += [_step(outcome, place), found, other / float(found.median), epoch]
        del cells[5]
        cells.insert(5, cells.pop())
        rows.append(tuple(cells))
    text = (
        f"HMDA, {mortgage.rows} rows, {settings.mortgage_workers} workers, units of"
        f" {settings.mortgage_batch} rows, momentum {settings.mortgage_momentum:g}: f - f* after"
        f" {settings.mortgage_epochs} epochs, and in the time of so many epochs of D-RR (no more"
        f" epochs than that); median (quartiles) of {settings.mortgage_seeds} seeds, the step"
        f" chosen on {settings.tuning_seeds} others for each of the two. Time of an epoch: in"
        f" epochs of D-RR, median and quartiles of {settings.repeats} interleaved repeats."
        " '(edge)': the step is the first or last of the grid."
    )
    return results.Table(columns, tuple(rows), text)


def mortgage_grid(mortgage: Mortgage) -> results.Table:
    """The whole grid of HMDA."""
    columns = (
        results.Column("step", format=_plain),
        results.Column(FULL),
        *(results.Column(outcome.label) for outcome in mortgage.outcomes),
        results.Column("D-RR is limited by", right=False),
    )
    rows = []
    for place, step_size in enumerate(mortgage.outcomes[0].step_sizes):
        cells = [float(np.median(own.reported[place, :, -1])) for own in mortgage.outcomes]
        full = float(mortgage.full[place, 0])
        rows.append((step_size, full, *cells, limit_of(cells[0], full)))
    return results.Table(columns, tuple(rows), "HMDA after all epochs for all steps, medians.")


def equal_time(outcome: Outcome) -> int:
    """Whole epochs in the time that D-RR takes for all of its, at most as many, at least 1."""
    count = outcome.gap.shape[-1]
    price = 1.0 if outcome.price is None else outcome.price.median
    return max(1, min(count, int(count / price)))


def _cell(outcome: Outcome | None, place: int) -> Any:
    """The mean gap at a step; nothing for a method that was not run."""
    return None if outcome is None else geometric(outcome.reported[place, :, -1]).median


def _step(outcome: Outcome, place: int) -> str:
    edge = " (edge)" if outcome.at_edge(place) else ""
    return f"{outcome.step_sizes[place]:g}{edge}"


def _plain(value: float) -> str:
    return f"{value:g}"


def _grid_figure(gaussian: Gaussian) -> Any:
    panels = []
    for (m, n), size in gaussian.sizes.items():
        found = by_label(size.outcomes)
        shown = {name: found[name].reported[:, :, -1] for name in METHODS if name in found}
        shown[FULL] = size.full
        sizes = found[BASELINE].step_sizes
        series = [_ranged(name, sizes, values) for name, values in shown.items()]
        who = f"one worker, {n} rows" if m == 1 else f"{m} workers, {n} rows each"
        panels.append(plots.Panel(f"step\n{who}", series, log_x=True))
    label = "gap f - f* after the last epoch"
    return plots.panels(panels, y_label=label, log_y=True, y_range=(1e-9, 3.0), styles=STYLES)


def _scaling_figure(gaussian: Gaussian) -> Any:
    series, styles = {"epochs": [], "server steps": []}, {}
    for m, outcomes in gaussian.scaling.items():
        found = by_label(outcomes)
        for label in (BASELINE, "independent", COORDINATED):
            outcome = found.get(label)
            if m == 1 and label == COORDINATED:
                outcome = found[CENTRAL]
            if outcome is None:
                continue
            name = f"{label}, m = {m}"
            dash = DASHES[list(gaussian.scaling).index(m) % len(DASHES)]
            styles[name] = plots.LineStyle(STYLES[label].colour, dash)
            values = outcome.at_best().T
            epochs = np.arange(1, len(values) + 1)
            for axis, factor in (("epochs", 1), ("server steps", outcome.steps_per_epoch)):
                series[axis].append(_ranged(name, epochs * factor, values))
    panels = [plots.Panel(axis, lines, log_x=True) for axis, lines in series.items()]
    figure = plots.panels(panels, y_label="gap f - f*, step tuned", log_y=True, styles=styles)
    return _relaid(figure, len(gaussian.scaling))


def _mortgage_figure(mortgage: Mortgage) -> Any:
    by_epoch, by_time, styles = [], [], {}
    for outcome in mortgage.outcomes:
        name, units = outcome.label.split(",")[0], 2 if "units" in outcome.label else 1
        styles[outcome.label] = plots.LineStyle(STYLES[name].colour, DASHES[units - 1])
        count = outcome.gap.shape[-1]
        epochs = np.arange(1, count + 1)
        price = 1.0 if outcome.price is None else outcome.price.median
        curve = outcome.at_best()
        inside = epochs * price <= count
        by_epoch.append(_quartiles(outcome.label, epochs, curve))
        by_time.append(_quartiles(outcome.label, epochs[inside] * price, curve[:, inside]))
    panels = [plots.Panel("epochs", by_epoch), plots.Panel("time [epochs of D-RR]", by_time)]
    figure = plots.panels(panels, y_label="gap f - f*, step tuned", log_y=True, styles=styles)
    return _relaid(figure, 3)


def _relaid(figure: Any, columns: int) -> Any:
    """A figure of two panels, larger, with its legend in so many columns."""
    handles, labels = [], []
    for legend in list(figure.legends):
        handles, labels = legend.legend_handles, [text.get_text() for text in legend.texts]
        legend.remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    figure.set_size_inches(9.0, 5.2)
    return figure


def _ranged(name: str, x: Any, values: np.ndarray) -> results.Series:
    """Geometric mean and range over the last axis."""
    mean = np.exp(np.mean(np.log(values), axis=-1))
    return results.Series(name, x, mean, values.min(axis=-1), values.max(axis=-1))


def _quartiles(name: str, x: np.ndarray, values: np.ndarray) -> results.Series:
    spread = results.median_and_spread(values.T)
    return results.Series(name, x, spread.median, spread.low, spread.high)


def _numbers(gaussian: Gaussian, mortgage: Mortgage | None, left_out: str) -> dict[str, Any]:
    """All final gaps, float[G][S] of the reported seeds, and what was chosen."""

    def plain(outcome: Outcome) -> dict[str, Any]:
        found = {
            "step_sizes": list(outcome.step_sizes),
            "chosen": outcome.step_sizes[outcome.chosen()],
            "final_gap": outcome.reported[:, :, -1].tolist(),
            "gap_by_epoch_at_chosen": outcome.reported[outcome.chosen()].tolist(),
        }
        if outcome.price is not None:
            price = outcome.price
            found["price"] = {"median": price.median, "low": price.low, "high": price.high}
        return found

    numbers: dict[str, Any] = {
        f"m = {m}, n = {n}": {
            "full_gradient": size.full.tolist(),
            **{outcome.label: plain(outcome) for outcome in size.outcomes},
        }
        for (m, n), size in gaussian.sizes.items()
    }
    numbers["scaling"] = {
        f"m = {m}": {outcome.label: plain(outcome) for outcome in outcomes}
        for m, outcomes in gaussian.scaling.items()
    }
    if mortgage is None:
        numbers["mortgage"] = left_out
    else:
        numbers["mortgage"] = {
            "full_gradient": mortgage.full.tolist(),
            "rows": mortgage.rows,
            **{outcome.label: plain(outcome) for outcome in mortgage.outcomes},
        }
    return numbers


def summary(settings: Any, gaussian: Gaussian, mortgage: Mortgage | None) -> dict[str, Any]:
    """What pages quote: mean gaps over the grid, epochs and server steps to the target, prices."""

    def finals(outcome: Outcome) -> list[float]:
        return [_cell(outcome, place) for place in range(len(outcome.step_sizes))]

    def arrival(outcome: Outcome) -> dict[str, float]:
        epochs = float(np.median(outcome.reached(settings.target)[1]))
        return {"epochs": epochs, "steps": epochs * outcome.steps_per_epoch, "gap": best(outcome)}

    def best(outcome: Outcome) -> float:
        return _cell(outcome, outcome.chosen())

    grid, stale = {}, {}
    for (m, _), size in gaussian.sizes.items():
        found = by_label(size.outcomes)
        base, own = (finals(found[n]) for n in (BASELINE, COORDINATED if m > 1 else CENTRAL))
        full = [geometric(values).median for values in size.full]
        limits = [limit_of(*pair) for pair in zip(base, full, strict=True)]
        gains = [first / second for first, second in zip(base, own, strict=True)]
        noisy = [gain for gain, limit in zip(gains, limits, strict=True) if limit == "noise"]
        grid[f"m = {m}"] = {"gain": gains, "limited by": limits, "gain where noise": noisy}
        if DOUBLE[0] in found:
            ratios = np.array(finals(found[DOUBLE[2]])) / finals(found[DOUBLE[1]])
            stale[f"m = {m}"] = {n: best(found[n]) for n in DOUBLE} | {"ratio": ratios.tolist()}
    scaling = {
        f"m = {m}": {outcome.label: arrival(outcome) for outcome in outcomes}
        for m, outcomes in gaussian.scaling.items()
    }
    real = {}
    if mortgage is not None:
        base = np.median(by_label(mortgage.outcomes)[BASELINE].at_best()[:, -1])
        for one in mortgage.outcomes:
            price = None if one.price is None else one.price.median
            ratio = float(base / np.median(one.at_best()[:, -1]))
            real[one.label] = {"price": price, "ratio": ratio}
    return {"grid": grid, "stale": stale, "scaling": scaling, "mortgage": real}
