"""The tables: rules by gain, rules by how soon they learn, workers by how slow they are."""

from __future__ import annotations

import numpy as np

from asyncjax import results
from asyncjax.results import Column, Table
from asyncjax.traces.log_reader.log import Log
from asyncjax.whatif.comparing.compare import Comparison, Interval, RuleResult
from asyncjax.whatif.comparing.rules import SYNCHRONOUS
from asyncjax.whatif.describing.describe import Description
from asyncjax.whatif.page.found import Found
from asyncjax.whatif.page.words import percent, speed, speeds
from asyncjax.whatif.toys.toy_training import ToyResult

_HOW_TO_READ = (
    "Times the gradients: gradients that enter an update, a time unit, over those of synchronous"
    " rounds, and the interval. Idle, wasted: shares of the workers' time. Staleness: updates"
    " between the model a gradient was computed at and the update it enters. Least heard: weight of"
    " the worker who counts least, over a fair share; 1 is fair. Misplaced: share of the weight"
    " that the wrong workers have; 0 is fair."
)


def comparison_table(comparison: Comparison, log: Log) -> Table:
    """A row a rule, the largest gain first."""
    unit = "1/s" if log.unit == "seconds" else ""
    columns = (
        Column("rule", right=False),
        Column("times the gradients"),
        Column("interval"),
        Column("gradients", unit or "per time unit"),
        Column("updates", unit or "per time unit"),
        Column("idle"),
        Column("wasted"),
        Column("staleness, mean"),
        Column("99 %"),
        Column("longest"),
        Column("least heard"),
        Column("misplaced"),
    )
    return Table(columns, tuple(map(_row, comparison.rows)), _HOW_TO_READ)


def _row(row: RuleResult) -> tuple[str | float | int, ...]:
    own = row.figures
    return (
        row.rule.name,
        f"{row.gain.value:.2f}",
        _range(row.gain) + ("" if row.is_told_apart or row.rule.name == SYNCHRONOUS else " ~"),
        own.gradients_per_time,
        own.updates_per_time,
        percent(own.idle),
        percent(own.wasted),
        f"{own.staleness_mean:.1f}",
        int(own.staleness_late),
        own.staleness_longest,
        f"{own.heard.min():.2f}",
        percent(own.misplaced),
    )


def _range(gain: Interval) -> str:
    return f"{gain.low:.2f}–{gain.high:.2f}"


def lesson_table(lesson: ToyResult, log: Log) -> Table:
    """A row a rule, the soonest at the target first."""
    columns = (
        Column("rule", right=False),
        Column("time to the target", "s" if log.unit == "seconds" else ""),
        Column("as fast as synchronous"),
        Column("over seeds"),
        Column("step size"),
        Column("verdict", right=False),
    )
    rows = []
    for row in lesson.rows:
        value, low, high = lesson.speed_up(row.rule.name)
        learns = row.step_size is not None
        rows.append(
            (
                row.rule.name,
                row.time,
                speed(value),
                speeds(low, high),
                (f"{row.step_size:.3g}" + (" (end of the grid)" if row.at_edge else ""))
                if learns
                else "diverges",
                _verdict(row.rule.name, lesson),
            )
        )
    return Table(columns, rows, f"{lesson.task.text[0].upper()}{lesson.task.text[1:]}.")


def _verdict(name: str, lesson: ToyResult) -> str:
    if name == lesson.rows[0].rule.name:
        return "soonest"
    return "no significant difference to the soonest" if name in lesson.level else "later"


def worker_table(description: Description) -> Table:
    """A row a worker, the slowest first."""
    log, own, spread = description.log, description.figures, description.spread
    unit = "s" if log.unit == "seconds" else ""
    columns = (
        Column("worker", right=False),
        Column("jobs"),
        Column("mean", unit),
        Column("median", unit),
        Column("longest", unit),
        Column("variation"),
        Column("mean over the median worker's"),
        Column("verdict", right=False),
    )
    rows = []
    for place in np.argsort(-own.mean, kind="stable"):
        rows.append(
            (
                log.workers[place],
                int(own.jobs[place]),
                float(own.mean[place]),
                float(own.median[place]),
                float(own.longest[place]),
                f"{own.cv[place]:.2f}",
                f"{own.relative[place]:.2f}",
                _VERDICTS[int(spread.for_good[place])],
            )
        )
    note = (
        "Variation: standard deviation over mean of the worker's own durations. Verdict: slow or"
        " fast for good where that is more than chance and more than a tenth."
    )
    return Table(columns, rows, note)


_VERDICTS = {1: "slow for good", -1: "fast for good", 0: ""}


def law_table(description: Description) -> Table:
    """A row a law, the best first."""
    columns = (
        Column("law", right=False),
        Column("Kolmogorov distance, median worker"),
        Column("worst worker"),
        Column("p"),
    )
    rows = [
        (
            fit.name.replace("_", " "),
            f"{np.median(fit.distance):.3f}",
            f"{np.max(fit.distance):.3f}",
            "–" if np.isnan(fit.p_value) else f"{fit.p_value:.2g}",
        )
        for fit in description.fits
    ]
    note = (
        "Distance: the largest difference between the share of durations up to a time and what the"
        " law says of it. p: how often durations of this law are as far from it."
    )
    return Table(columns, rows, note)


def in_text(found: Found) -> str:
    """The answer for a terminal."""
    description, comparison, learning, advice, words = found
    parts = [words.headline, words.advice, "\n".join(f"- {one}" for one in words.sentences)]
    if comparison is None or advice is None:
        return "\n\n".join(parts)
    columns = (
        "rule",
        "gradients",
        "interval",
        "idle",
        "wasted",
        "staleness",
        "99 %",
        "least heard",
    )
    heads = tuple(Column(name, right=name != "rule") for name in columns)
    rows = []
    for row in comparison.rows:
        own = row.figures
        rows.append(
            (
                row.rule.name,
                f"{row.gain.value:.2f}x",
                _range(row.gain),
                percent(own.idle),
                percent(own.wasted),
                f"{own.staleness_mean:.1f}",
                int(own.staleness_late),
                f"{own.heard.min():.2f}",
            )
        )
    told = "\n".join(f"- {one}." for one in description.sentences)
    parts.append(f"The workers:\n{told}")
    parts.append(results.as_text(Table(heads, rows)))
    for lesson in () if learning is None else learning.lessons:
        heads = (
            Column("rule", right=False),
            Column("as fast as synchronous"),
            Column("over seeds"),
        )
        own_rows = []
        for row in lesson.rows:
            value, low, high = lesson.speed_up(row.rule.name)
            told = speed(value) + "x" * bool(value)
            own_rows.append((row.rule.name, told, speeds(low, high)))
        parts.append(
            results.as_text(Table(heads, own_rows, f"Stand-in problem: {lesson.task.name}"))
        )
    hints = "\n".join(f"- {hint.sentence}" for hint in advice.hints)
    parts.append(f"{advice.headline}:\n{hints}")
    parts.append("\n".join(f"{note}." for note in advice.notes))
    return "\n\n".join(parts)
