"""Tables, figures and numbers of the AsGrad experiment."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from asyncjax import results
from asyncjax.results import plots
from experiments.asynchronous.asgrad_runs import Outcome, Settings, Task
from experiments.common.parts import Drawing, Part, written

Found = Mapping[Task, Mapping[str, Outcome]]
Crossover = Mapping[str, Mapping[float, Mapping[str, Outcome]]]

RULES = ("pure", "random", "shuffled")
EDGE = " (edge)"
PAPERS = (
    "Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",
    "Mishchenko, Bach, Even, Woodworth, 2022, Asynchronous SGD beats minibatch SGD under arbitrary"
    " delays (arXiv 2206.07638)",
)
FLOOR = (1e-3, 5.0)  # shown where exact methods fall to rounding


def part(settings: Settings, found: Found, crossover: Crossover) -> Part:
    """Draws all figures and makes all tables.

    Returns:
        The part; its figures lie in `settings.output`.
    """
    styles = plots.assign_styles(
        [*RULES, *(name for group in (*_flat(crossover), *found.values()) for name in group)]
    )
    return written(
        settings.output,
        "asgrad",
        "Does shuffled dispatch win, per update and per unit of time?",
        _figures(settings, found, crossover, styles),
        tables(settings, found, crossover),
        numbers(settings, found, crossover),
        answer(settings, found),
        PAPERS,
    )


def answer(settings: Settings, found: Found) -> str:
    """In how many cases with sorted shards shuffled ends below pure, axis by axis, in words."""
    cases = [group for task, group in found.items() if task.split == "sorted"]
    ahead = {
        axis: sum(
            group["shuffled"].readings[axis].norm.median < group["pure"].readings[axis].norm.median
            for group in cases
        )
        for axis in ("updates", "time", "long time")
    }
    return (
        "With sorted shards shuffled dispatch has a smaller median norm than pure in"
        f" {ahead['updates']} of {len(cases)} cases after {settings.n_updates} updates, in"
        f" {ahead['time']} in the time of these updates of pure, and in {ahead['long time']} in the"
        " time that the slowest rule takes for them."
    )


def _flat(crossover: Crossover) -> list[Mapping[str, Outcome]]:
    return [group for by_time in crossover.values() for group in by_time.values()]


def _figures(
    settings: Settings, found: Found, crossover: Crossover, styles: Any
) -> Iterator[Drawing]:
    for data in settings.data:
        group = next(v for c, v in found.items() if c.data == data and c.delays == "fixed")
        yield (
            f"curves {data}",
            _axes(group, RULES, styles),
            f"{data}, sorted shards, fixed delays: norm of the full gradient per update and per"
            " unit of time. In every panel the step is the one that is best at its right end.",
        )
        combined = [name for name in group if not name.startswith("pure, ")]
        yield (
            f"combinations {data}",
            _axes(group, combined, styles),
            f"{data}, sorted shards, fixed delays: Rescaled and, on the first data set, shuffled"
            " dispatch with delay-adaptive steps.",
        )
        patterns = {
            c.delays: v
            for c, v in found.items()
            if c.data == data and c.split == "sorted" and c.batch is None
        }
        yield (
            f"delays {data}",
            _over_time(patterns, "delays", styles, None),
            f"{data}, sorted shards: four laws of durations, per unit of time.",
        )
        splits = {
            c.split: v
            for c, v in found.items()
            if c.data == data and c.delays == "fixed" and c.batch is None
        }
        yield (
            f"controls {data}",
            _over_time(splits, "shards", styles, FLOOR),
            f"{data}, fixed delays: sorted shards, rows dealt at random, and, on the first data"
            " set, all rows held by everyone, where the norm falls to rounding.",
        )
    for data, by_time in crossover.items():
        yield (
            f"crossover {data}",
            _crossover(settings, by_time, styles),
            f"{data}: one worker is made slower and slower; norm at equal time. Lines that leave"
            " at the bottom go on to rounding.",
        )


def _axes(group: Mapping[str, Outcome], names: Iterable[str], styles: Any) -> Any:
    labels = {
        "updates": "server updates",
        "time": "time [job of the fastest worker]",
        "long time": "longer time [job of the fastest worker]",
    }
    parts = [
        plots.Panel(label, [group[name].readings[axis].curve for name in names])
        for axis, label in labels.items()
    ]
    return plots.panels(parts, y_label="norm of the full gradient", log_y=True, styles=styles)


def _over_time(
    groups: Mapping[str, Mapping[str, Outcome]], what: str, styles: Any, y_range: Any
) -> Any:
    parts = [
        plots.Panel(
            f"time [fastest job], {name} {what}",
            [group[rule].readings["long time"].curve for rule in RULES],
        )
        for name, group in groups.items()
    ]
    return plots.panels(
        parts, y_label="norm of the full gradient", log_y=True, y_range=y_range, styles=styles
    )


def _crossover(
    settings: Settings, by_time: Mapping[float, Mapping[str, Outcome]], styles: Any
) -> Any:
    ratios = [unevenness(settings, slowest) for slowest in by_time]
    parts = []
    for axis, label in (
        ("time", f"{settings.n_updates} updates"),
        ("long time", f"{settings.longer * settings.n_updates:g} updates"),
    ):
        series = []
        for name in next(iter(by_time.values())):
            spreads = [group[name].readings[axis].norm for group in by_time.values()]
            series.append(
                plots.Series(
                    name,
                    ratios,
                    [spread.median for spread in spreads],
                    [spread.low for spread in spreads],
                    [spread.high for spread in spreads],
                )
            )
        parts.append(plots.Panel(f"max(s) / mean(s), at the time of pure's\n{label}", series))
    return plots.panels(
        parts, y_label="norm of the full gradient", log_y=True, y_range=FLOOR, styles=styles
    )


def unevenness(settings: Settings, slowest: float) -> float:
    """Slowest over mean time where all workers but one take time 1."""
    return slowest * settings.n_workers / (settings.n_workers - 1 + slowest)


def beaten(
    settings: Settings, by_time: Mapping[float, Mapping[str, Outcome]], axis: str
) -> dict[str, list[float]]:
    """The measured max(s)/mean(s) at which a method has a smaller median norm than shuffled."""
    return {
        name: [
            unevenness(settings, slowest)
            for slowest, group in by_time.items()
            if group[name].readings[axis].norm.median < group["shuffled"].readings[axis].norm.median
        ]
        for name in next(iter(by_time.values()))
        if name != "shuffled"
    }


def tables(settings: Settings, found: Found, crossover: Crossover) -> tuple[results.Table, ...]:
    """Delays, controls and batches, combinations, crossover."""
    whole = {c: v for c, v in found.items() if c.split == "sorted" and c.batch is None}
    other = {c: v for c, v in found.items() if c not in whole}
    fixed = {c: v for c, v in whole.items() if c.delays == "fixed"}
    n = settings.n_updates
    told = (
        f"Norm of the full gradient, median (quartiles) over {settings.seeds} seeds, mean over the"
        f" last {100 * settings.window:g} % of the axis; time is that of pure's {n} updates, long"
        " time that of the slowest rule's. The step is chosen for every axis by itself."
    )
    return (
        _table(settings, whole, RULES, f"Sorted, whole shards. {told}"),
        _table(settings, other, RULES, f"Mini-batches, and controls. {told}"),
        _table(settings, fixed, None, f"Combinations, sorted, whole shards, fixed delays. {told}"),
        _crossover_table(settings, crossover),
    )


def _table(
    settings: Settings, found: Found, names: Iterable[str] | None, caption: str
) -> results.Table:
    columns = (
        results.Column("case", right=False),
        results.Column("rule", right=False),
        results.Column(f"norm at {settings.n_updates} updates"),
        results.Column("step"),
        results.Column(f"time of {settings.n_updates}"),
        results.Column("norm at time"),
        results.Column("step"),
        results.Column("updates in time"),
        results.Column("norm at long time"),
        results.Column("step"),
        results.Column("utilisation"),
    )
    rows = []
    for task, group in found.items():
        for name in names or group:
            outcome = group[name]
            by_update, by_time, later = outcome.readings.values()
            rows.append(
                (
                    task.name,
                    name,
                    by_update.norm,
                    _step(by_update),
                    outcome.time_of_updates.median,
                    by_time.norm,
                    _step(by_time),
                    int(outcome.updates_in_time.median),
                    later.norm,
                    _step(later),
                    outcome.utilisation.median,
                )
            )
    return results.Table(columns, tuple(rows), f"{caption} {_edges(found, names)}")


def _crossover_table(settings: Settings, crossover: Crossover) -> results.Table:
    names = list(_flat(crossover)[0])
    columns = (
        results.Column("data", right=False),
        results.Column("slowest time"),
        results.Column("max/mean"),
        results.Column("pure's updates"),
        *(results.Column(name) for name in names),
        results.Column("utilisation, shuffled"),
    )
    rows = []
    for data, by_time in crossover.items():
        for axis, factor in (("time", 1.0), ("long time", settings.longer)):
            for slowest, group in by_time.items():
                readings = [group[name].readings[axis] for name in names]
                rows.append(
                    (
                        data,
                        slowest,
                        unevenness(settings, slowest),
                        int(factor * settings.n_updates),
                        *(_median(reading) for reading in readings),
                        group["shuffled"].utilisation.median,
                    )
                )
    caption = (
        f"One slow worker among {settings.n_workers}: median norm at the time of so many updates"
        " of pure; the last worker is the slow one. * the best step lies at the end of the grid."
        f" Ratios at which shuffled dispatch is beaten, by {_in_words(settings, crossover)}."
    )
    return results.Table(columns, tuple(rows), caption)


def _in_words(settings: Settings, crossover: Crossover) -> str:
    def places(ratios: list[float]) -> str:
        return " ".join(f"{ratio:.2g}" for ratio in ratios) or "none"

    return "; ".join(
        f"{data}, {axis}: "
        + ", ".join(f"{n} {places(r)}" for n, r in beaten(settings, by_time, axis).items())
        for data, by_time in crossover.items()
        for axis in ("time", "long time")
    )


def _edges(found: Found, names: Iterable[str] | None) -> str:
    edges = [
        f"{name} ({task.name}, {axis})"
        for task, group in found.items()
        for name in names or group
        for axis, reading in group[name].readings.items()
        if reading.at_edge
    ]
    if not edges:
        return "No chosen step lies at the end of the grid."
    return "The chosen step lies at the end of the grid for: " + "; ".join(edges) + "."


def _step(reading: Any) -> str:
    """A step size as a fraction, marked where it lies at the end of the grid."""
    step = reading.step_size
    text = f"1/{1 / step:g}" if step < 1 else f"{step:g}"
    return text + (EDGE if reading.at_edge else "")


def _median(reading: Any) -> str:
    """A median norm, marked where the step lies at the end of the grid."""
    return f"{float(reading.norm.median):.3g}" + ("*" if reading.at_edge else "")


def numbers(settings: Settings, found: Found, crossover: Crossover) -> dict[str, Any]:
    """All that was measured, as plain values."""
    return {
        "cases": {
            task.name: {name: outcome_numbers(outcome) for name, outcome in group.items()}
            for task, group in found.items()
        },
        "crossover": {
            data: {
                f"{slowest:g}": {n: outcome_numbers(o) for n, o in group.items()}
                for slowest, group in by_time.items()
            }
            for data, by_time in crossover.items()
        },
        "shuffled_beaten": {
            data: {axis: beaten(settings, by_time, axis) for axis in ("time", "long time")}
            for data, by_time in crossover.items()
        },
    }


def outcome_numbers(outcome: Outcome) -> dict[str, Any]:
    """What one method did, as plain values."""
    return {
        "readings": {
            axis: {
                "step_size": reading.step_size,
                "at_edge": reading.at_edge,
                "tuning": reading.tuning,
                "norm": spread_numbers(reading.norm),
                "objective": spread_numbers(reading.objective),
            }
            for axis, reading in outcome.readings.items()
        },
        "time_of_updates": spread_numbers(outcome.time_of_updates),
        "updates_in_time": spread_numbers(outcome.updates_in_time),
        "utilisation": spread_numbers(outcome.utilisation),
    }


def spread_numbers(spread: results.Spread) -> dict[str, float]:
    """Median and quartiles."""
    return {name: float(getattr(spread, name)) for name in ("median", "low", "high")}
