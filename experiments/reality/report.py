"""Tables, the figure and the numbers of the comparison of simulated with real runs."""

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import jax
import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.study.protocol import FIRST_CROSSING
from experiments.common.parts import Drawing, Part, written
from experiments.reality.runs import CLOCKS, Case, Compared, Figures, Settings

BEST = CLOCKS[-1]
SHOWN = (
    ("seconds an update", lambda one: one.pace),
    ("seconds to the target", lambda one: one.to_target),
    ("mean delay, updates", lambda one: one.delay),
    ("utilisation", lambda one: one.utilisation),
)


def part(settings: Settings, cases: Sequence[Case]) -> Part:
    """Draws the figure and makes the tables."""
    tables = (summary(cases), totals(settings, cases), *(rest(case) for case in cases))
    return written(
        settings.output,
        "reality",
        "Does the simulator predict real runs?",
        (figure(settings, cases),),
        (*tables, measurements(cases)),
        numbers(settings, cases),
        in_words(cases),
        note=FIRST_CROSSING,
    )


def in_words(cases: Sequence[Case]) -> str:
    """How far off the simulation is, over workers and rules that do not stall."""
    goes = [one for case in cases for one in case.rules if not any(_stalls(one))]
    pieces = []
    for name, what in SHOWN[:2]:
        found = [values for one in goes if len(values := errors(one, BEST, what))]
        if found:
            sizes = 100 * np.abs([np.median(values) for values in found])
            pieces.append(f"{name} by {np.median(sizes):.1f} % (at most {sizes.max():.1f} %)")
    if not pieces:
        return ""
    return (
        f"With the clock '{BEST}' the simulation misses "
        + " and ".join(pieces)
        + (f", median over {len(goes)} pairs of workers and rule, each the median of its repeats.")
    )


def medians(runs: Iterable[Figures], what: Callable[[Figures], float]) -> float:
    """The median of a figure over runs; of those without it, NaN."""
    values = np.array([what(run) for run in runs])
    return float(np.median(values))


def errors(compared: Compared, clock: str, what: Callable[[Figures], float]) -> np.ndarray:
    """Simulated over real, less 1, of each repeat; without those where one is not there."""
    real, made = (
        np.array([what(run) for run in runs]) for runs in (compared.real, compared.simulated[clock])
    )
    there = np.isfinite(real) & np.isfinite(made) & (real > 0)
    return made[there] / real[there] - 1.0


def percent(values: np.ndarray) -> str:
    """Errors in words: median (smallest to largest)."""
    if not len(values):
        return "-"
    ends = f"({100 * values.min():+.1f} to {100 * values.max():+.1f})"
    return f"{100 * np.median(values):+.1f} {ends}"


def _stalls(compared: Compared) -> tuple[bool, bool]:
    """Whether most runs stalled, real and simulated."""
    ends = (compared.real, compared.simulated[BEST])
    real, made = (np.mean([run.updates < compared.n_updates for run in runs]) for runs in ends)
    return bool(real > 0.5), bool(made > 0.5)


def summary(cases: Sequence[Case]) -> results.Table:
    """Errors over the rules of a case."""
    rows = []
    for case in cases:
        goes = [one for one in case.rules if not any(_stalls(one))]
        pace = SHOWN[0][1]
        row: list[Any] = [case.workers.name]
        for clock in CLOCKS:
            row.append(_worst([errors(one, clock, pace) for one in goes]))
        row += [_worst([errors(one, BEST, what) for one in goes]) for _, what in SHOWN[1:]]
        rows.append(tuple(row))
    columns = ("workers", *(f"pace, {clock}" for clock in CLOCKS), *(name for name, _ in SHOWN[1:]))
    return results.Table(
        tuple(results.Column(name, right=bool(place)) for place, name in enumerate(columns)),
        tuple(rows),
        "Error of the simulation, simulated over real less 1, median over repeats: the median and"
        f" the largest size over rules, in percent. The last three with the clock '{BEST}'.",
    )


def _worst(found: Sequence[np.ndarray]) -> str:
    sizes = np.abs([np.median(values) for values in found if len(values)])
    return f"{100 * np.median(sizes):.1f}, {100 * sizes.max():.1f}" if len(sizes) else "-"


def totals(settings: Settings, cases: Sequence[Case]) -> results.Table:
    """Real and simulated time of all updates."""
    rows = []
    for case in cases:
        for one in case.rules:
            real = results.median_and_spread([run.time for run in one.real])
            stalls, foreseen = _stalls(one)
            if stalls or foreseen:
                after = [medians(runs, lambda r: r.updates) for runs in (one.real, _best(one))]
                text = f"stalls after {after[0]:g} updates; simulated: after {after[1]:g}"
                rows.append((case.workers.name, one.rule.name, one.n_updates, text, "-", "-", "-"))
                continue
            own = [percent(errors(one, clock, lambda run: run.time)) for clock in CLOCKS]
            rows.append((case.workers.name, one.rule.name, one.n_updates, real, *own))
    columns = ("workers", "rule", "updates", "real time [s]", *CLOCKS)
    return results.Table(
        tuple(results.Column(name, right=place > 1) for place, name in enumerate(columns)),
        tuple(rows),
        f"Time of so many updates on {settings.engine}: real, median (quartiles) of"
        f" {settings.repeats} runs, and the error of the simulation in percent, median (smallest to"
        " largest) of the repeats, with three clocks: the law that was asked for, the times"
        " measured in one run of the pure rule just before, and these with the server's own time.",
    )


def _best(one: Compared) -> tuple[Figures, ...]:
    return one.simulated[BEST]


def rest(case: Case) -> results.Table:
    """What else is compared, real and simulated side by side."""
    rows = []
    for one in case.rules:
        row: list[Any] = [one.rule.name]
        for _, what in SHOWN[1:]:
            for runs in (one.real, _best(one)):
                values = np.array([what(run) for run in runs])
                missing = np.isnan(values).all()
                row.append("-" if missing else results.median_and_spread(values))
        rows.append(tuple(row))
    columns = ["rule"]
    for name, _ in SHOWN[1:]:
        columns += [f"{name}, real", "simulated"]
    return results.Table(
        tuple(results.Column(name, right=bool(place)) for place, name in enumerate(columns)),
        tuple(rows),
        f"Workers: {case.workers.name}. Medians (quartiles); simulated with the clock '{BEST}'.",
    )


def measurements(cases: Sequence[Case]) -> results.Table:
    """What the runs under the pure rule told."""
    rows = []
    for case in cases:
        asked, own = np.array(case.workers.seconds), case.measured
        means = np.array([np.asarray(one.clock.mean) for one in own])
        more, pace = 1e3 * np.mean(means - asked, axis=1), means.mean(axis=1)
        rows.append(
            (
                case.workers.name,
                min(one.heard for one in own),
                f"{more.min():.1f} to {more.max():.1f}",
                1e3 * float(np.median([one.link for one in own])),
                1e3 * float(np.median([one.service.step for one in own])),
                f"{100 * (pace.max() / pace.min() - 1):.0f}",
            )
        )
    columns = (
        *("workers", "heard at least", "longer than the sleep [ms]", "link [ms]"),
        *("server [ms a gradient]", "slowest over fastest repeat, less 1 [%]"),
    )
    return results.Table(
        tuple(results.Column(name, right=bool(place)) for place, name in enumerate(columns)),
        tuple(rows),
        "The runs under the pure rule that clocks are from, one a repeat: arrivals of the worker"
        " heard least; mean job less mean sleep, over repeats; medians of what is not computing in"
        " a job, and of the server's own time; and how much mean jobs differed between repeats,"
        " which is the machine's doing.",
    )


def figure(settings: Settings, cases: Sequence[Case]) -> Drawing:
    """Simulated against real, a panel each."""
    with drawing():
        page = new_figure(8.0, 7.4)
        grid = page.subplots(2, 2).ravel()
        styles = plots.assign_styles([one.rule.name for one in cases[0].rules])
        markers = dict(zip((case.workers.name for case in cases), "osD^v", strict=False))
        for axes, (name, what) in zip(grid, SHOWN, strict=True):
            ends = [
                _point(axes, one, what, styles[one.rule.name].colour, markers[case.workers.name])
                for case in cases
                for one in case.rules
            ]
            _square(axes, np.concatenate(ends), is_log=name.startswith("seconds"))
            add_grid(axes)
            axes.set_title(name)
            axes.set_xlabel("real")
            axes.set_ylabel("simulated")
        for one in cases[0].rules:
            style = styles[one.rule.name]
            grid[0].plot([], [], "o", color=style.colour, label=one.rule.name)
        for name, marker in markers.items():
            grid[1].plot([], [], marker, color="0.4", label=name)
        grid[0].legend(fontsize=7)
        grid[1].legend(fontsize=7)
    caption = (
        f"Simulated against real on {settings.engine}: medians, bars the smallest and the largest"
        f" of {settings.repeats} runs. The clock and the server's time of a repeat are from one run"
        " of the pure rule."
    )
    return "", page, caption


def _square(axes: Any, values: np.ndarray, *, is_log: bool) -> None:
    """Equal axes with their diagonal."""
    if not len(values):
        return
    low, high = values.min(), values.max()
    more = 1.15 if is_log else 0.05 * (high - low) + 1e-6
    limits = (low / more, high * more) if is_log else (low - more, high + more)
    if is_log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.plot(limits, limits, color="0.6", linewidth=0.9, zorder=0)
    axes.set_xlim(limits)
    axes.set_ylim(limits)


def _point(axes: Any, one: Compared, what: Any, color: Any, marker: str) -> np.ndarray:
    """One rule: median and range, both ways; returns their ends."""
    if any(_stalls(one)):
        return np.zeros(0)
    real, made = (np.array([what(run) for run in runs]) for runs in (one.real, _best(one)))
    if not (np.isfinite(real).all() and np.isfinite(made).all()):
        return np.zeros(0)
    at = np.median(real), np.median(made)
    bars = [
        [[place - values.min()], [values.max() - place]]
        for place, values in zip(at, (real, made), strict=True)
    ]
    axes.errorbar(
        *at, xerr=bars[0], yerr=bars[1], fmt=marker, color=color, markersize=5, linewidth=0.8
    )
    return np.concatenate([real, made])


def numbers(settings: Settings, cases: Sequence[Case]) -> dict[str, Any]:
    """Everything, as plain values."""
    return {
        "machine": {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "jax": jax.__version__,
            "cores": os.cpu_count(),
            "load": [round(load, 1) for load in os.getloadavg()],
        },
        "engine": settings.engine,
        "repeats": settings.repeats,
        "target": settings.target,
        "cases": [
            {
                "workers": case.workers.name,
                "seconds": list(case.workers.seconds),
                "measured": [
                    {
                        "heard": one.heard,
                        "mean_job": np.asarray(one.clock.mean).tolist(),
                        "service": one.service._asdict(),
                        "link": one.link,
                    }
                    for one in case.measured
                ],
                "rules": [_row(one) for one in case.rules],
            }
            for case in cases
        ],
    }


def _row(one: Compared) -> dict[str, Any]:
    return {
        "rule": one.rule.name,
        "updates": one.n_updates,
        "real": [vars(run) for run in one.real],
        "simulated": {name: [vars(run) for run in runs] for name, runs in one.simulated.items()},
    }
