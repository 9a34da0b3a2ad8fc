"""The pictures: what rules gain, where the time goes, how fast workers are, who works when."""

from __future__ import annotations

import math

import numpy as np

from asyncjax.results.tables import format_number
from asyncjax.traces import EventTrace
from asyncjax.traces.log_reader.log import Log
from asyncjax.whatif.comparing.compare import Comparison, RuleResult
from asyncjax.whatif.comparing.rules import SYNCHRONOUS
from asyncjax.whatif.page.drawing import (
    WIDTH,
    legend,
    line,
    number,
    path,
    picture,
    rectangle,
    shortened,
    ticks,
    write,
)
from asyncjax.whatif.page.words import FAIR, percent, speed
from asyncjax.whatif.toys.toy_training import ToyResult

MOST_WORKERS = 40
_STEP, _BAR = 44.0, 13.0  # height of a row with its words above the bar
_RIGHT = 62.0  # room for the number behind the bar


def leading(comparison: Comparison) -> list[RuleResult]:
    """The best rule of each family, the largest gain first."""
    seen: dict[str, RuleResult] = {}
    for row in comparison.rows:
        seen.setdefault(row.rule.family, row)
    return list(seen.values())


def gains(comparison: Comparison) -> str:
    """Bars: gradients against synchronous rounds, coloured by how evenly workers are heard."""
    rows = leading(comparison)
    largest = max(row.gain.high for row in rows)
    scale = (WIDTH - _RIGHT) / largest
    parts, top = legend(
        (("fair", "hears all alike"), ("unfair", "hears fast workers more"), ("base", SYNCHRONOUS)),
        0.0,
    )
    bottom = top + _STEP * len(rows)
    parts.append(line(scale, top, scale, bottom + 4, "mark"))
    for place, row in enumerate(rows):
        y = top + _STEP * place
        parts.append(write(0, y + 15, row.rule.name))
        parts.append(rectangle(0, y + 20, scale * row.gain.value, _BAR, _kind(row)))
        parts.append(_whisker(scale * row.gain.low, scale * row.gain.high, y + 20 + _BAR / 2))
        parts.append(write(scale * row.gain.high + 6, y + 32, f"{row.gain.value:.2f}", "value"))
    parts += _axis(ticks(largest), scale, bottom + 6)
    title = "Gradients against synchronous rounds: " + ", ".join(
        f"{row.rule.name} {row.gain.value:.2f}" for row in rows
    )
    return picture(parts, bottom + 30, title)


def _kind(row: RuleResult) -> str:
    if row.rule.name == SYNCHRONOUS:
        return "base"
    return "fair" if row.figures.misplaced <= FAIR else "unfair"


def _whisker(low: float, high: float, y: float, *, is_cut: bool = False) -> str:
    """A range; without its upper end where that is beyond the picture."""
    if high - low < 1:
        return ""
    ends = (line(x, y - 4, x, y + 4, "whisker") for x in ((low,) if is_cut else (low, high)))
    return line(low, y, high, y, "whisker") + "".join(ends)


def _axis(values: list[float], scale: float, y: float) -> list[str]:
    parts = [line(0, y, WIDTH - _RIGHT, y, "axis")]
    for value in values:
        parts.append(line(scale * value, y, scale * value, y + 4, "axis"))
        anchor = "middle" if value else "start"
        parts.append(write(scale * value, y + 19, f"{value:g}", "small", anchor))
    return parts


def time_spent(comparison: Comparison) -> str:
    """Bars: the workers' time, useful, wasted, idle, a row a family."""
    rows = sorted(leading(comparison), key=lambda row: -row.figures.useful)
    parts, top = legend((("fair", "useful"), ("unfair", "wasted"), ("empty", "idle, waiting")), 0.0)
    scale = WIDTH - _RIGHT
    for place, row in enumerate(rows):
        y, own = top + _STEP * place, row.figures
        useful, wasted = scale * own.useful, scale * own.wasted
        parts.append(write(0, y + 15, row.rule.name))
        parts.append(rectangle(0, y + 20, scale, _BAR, "empty"))
        parts.append(rectangle(0, y + 20, useful, _BAR, "fair"))
        parts.append(rectangle(useful, y + 20, wasted, _BAR, "unfair"))
        parts.append(write(scale + 6, y + 32, percent(own.useful), "value"))
    title = "Useful share of the workers' time: " + ", ".join(
        f"{row.rule.name} {percent(row.figures.useful)}" for row in rows
    )
    return picture(parts, top + _STEP * len(rows), title)


def soonest(lesson: ToyResult) -> str:
    """Bars: how much sooner than synchronous rounds each rule is at the target."""
    found = {row.rule.name: lesson.speed_up(row.rule.name) for row in lesson.rows}
    finite = [three[0] for three in found.values() if math.isfinite(three[0])]
    largest = 1.3 * max([*finite, 1.0])  # longer ranges are cut there
    scale = (WIDTH - _RIGHT) / largest
    words = ("fair", "soonest, or no significant difference to it"), ("base", "later")
    parts, top = legend(words, 0.0)
    bottom = top + _STEP * len(found)
    parts.append(line(scale, top, scale, bottom + 4, "mark"))
    for place, row in enumerate(lesson.rows):
        y = top + _STEP * place
        value, low, high = found[row.rule.name]
        parts.append(write(0, y + 15, row.rule.name))
        if math.isinf(row.time):
            parts.append(write(0, y + 32, "not at the target in time", "small"))
            continue
        kind = "fair" if row.rule.name in lesson.level else "base"
        end = max(min(value, largest), min(high, largest))
        parts.append(rectangle(0, y + 20, scale * min(value, largest), _BAR, kind))
        parts.append(
            _whisker(scale * min(low, end), scale * end, y + 20 + _BAR / 2, is_cut=high > largest)
        )
        parts.append(write(scale * end + 6, y + 32, speed(value), "value"))
    parts += _axis(ticks(largest), scale, bottom + 6)
    title = f"Speed-up to the target, {lesson.task.name}: " + ", ".join(
        f"{name} {speed(three[0])}" for name, three in found.items()
    )
    return picture(parts, bottom + 30, title)


def workers(log: Log) -> str:
    """A row a worker: quantiles of its durations, the slowest on top."""
    order = np.argsort([-np.median(row) for row in log.durations], kind="stable")
    if len(order) > MOST_WORKERS:
        order = order[np.linspace(0, len(order) - 1, MOST_WORKERS).round().astype(int)]
    rows = [np.quantile(log.durations[i], [0.05, 0.25, 0.5, 0.75, 0.95]) for i in order]
    left, step = 110.0, 20.0
    largest = float(max(row[-1] for row in rows))
    unit = 10.0 ** math.floor(math.log10(largest)) / 10  # so that ticks are round
    scale = (WIDTH - left - 16) / largest
    parts = []
    for place, (i, row) in enumerate(zip(order, rows, strict=True)):
        y = step * place + 10
        low, begin, middle, end, high = (left + scale * value for value in row)
        parts.append(write(left - 8, y + 5, shortened(log.workers[i], left - 8), "small", "end"))
        parts.append(line(low, y, high, y, "whisker"))
        parts.append(rectangle(begin, y - 5, max(end - begin, 2), 10, "fair"))
        parts.append(f'<circle cx="{number(middle)}" cy="{number(y)}" r="3.5" class="dot"/>')
    bottom = step * len(rows) + 4
    parts.append(line(left, bottom, WIDTH - 16, bottom, "axis"))
    for value in ticks(largest / unit):
        x = left + scale * value * unit
        parts.append(line(x, bottom, x, bottom + 4, "axis"))
        parts.append(write(x, bottom + 19, f"{value * unit:g}", "small", "middle"))
    name = "seconds" if log.unit == "seconds" else "units of the log"
    parts.append(write(left, bottom + 38, f"duration of a job, {name}", "small"))
    return picture(parts, bottom + 44, f"Durations of {len(order)} workers, the slowest on top")


def timeline(log: Log, trace: EventTrace, until: float) -> str:
    """The first moments: a row a worker, a bar a job, what is left blank is waiting."""
    assert trace.start is not None
    order = np.argsort([np.median(row) for row in log.durations], kind="stable")
    if len(order) > 10:
        order = order[np.linspace(0, len(order) - 1, 10).round().astype(int)]
    left, step = 84.0, 20.0
    scale = (WIDTH - left - 6) / until
    parts = []
    for place, i in enumerate(order):
        y = step * place + 2
        parts.append(write(left - 8, y + 13, shortened(log.workers[i], left - 8), "small", "end"))
        parts.append(rectangle(left, y, scale * until, 15, "empty"))
        own = (trace.worker == i) & (trace.start < until)
        jobs = [
            (begin, end, "fair" if used else "unfair")
            for begin, end, used in zip(
                trace.start[own], trace.time[own], trace.used[own], strict=True
            )
        ]
        for others, kind in ((trace.cancelled, "unfair"), (trace.open_jobs, "fair")):
            if others is not None:
                mine = (others.worker == i) & (others.start < until)
                stops = others[2][mine] if kind == "unfair" else np.full(mine.sum(), until)
                jobs += [(a, b, kind) for a, b in zip(others.start[mine], stops, strict=True)]
        for begin, end, kind in jobs:
            x, wide = left + scale * begin, scale * (min(end, until) - begin)
            parts.append(rectangle(x + 0.4, y + 0.5, wide - 0.8, 14, kind))
    bottom = step * len(order) + 2
    parts.append(line(left, bottom, WIDTH - 6, bottom, "axis"))
    unit = "s" if log.unit == "seconds" else ""
    parts.append(write(left, bottom + 17, "0", "small"))
    parts.append(write(WIDTH - 6, bottom + 17, f"{until:.3g} {unit}".strip(), "small", "end"))
    return picture(parts, bottom + 24, "Who works when")


def curves(lesson: ToyResult, names: list[str]) -> str:
    """Loss against time of a few rules, of one seed."""
    rows = [lesson.of(name) for name in names]
    kinds = ("one", "two", "three", "four")
    parts, top = legend(
        [(f"line-{kind}", row.rule.name) for kind, row in zip(kinds, rows, strict=False)], 0.0
    )
    height, left = 220.0, 6.0
    values = np.concatenate([row.curve_loss[np.isfinite(row.curve_loss)] for row in rows])
    high = float(np.quantile(values, 0.995))
    low = min(float(values.min()), lesson.target)
    span = max(high - low, 1e-12)

    def place(time: float, loss: float) -> tuple[float, float]:
        share = (min(loss, high) - low) / span
        return left + (WIDTH - left - 6) * time / lesson.span, top + height * (1 - share)

    goal = place(0.0, lesson.target)[1]
    parts.append(line(left, goal, WIDTH - 6, goal, "mark"))
    parts.append(write(WIDTH - 6, goal - 6, "target", "small", "end"))
    for kind, row in zip(kinds, rows, strict=False):
        fine = np.isfinite(row.curve_loss)
        pairs = zip(row.curve_time[fine], row.curve_loss[fine], strict=True)
        points = [place(time, loss) for time, loss in pairs]
        if points:
            parts.append(path(points, f"curve {kind}"))
    bottom = top + height + 6
    parts.append(line(left, bottom, WIDTH - 6, bottom, "axis"))
    parts.append(write(left, bottom + 17, "0", "small"))
    parts.append(
        write(WIDTH - 6, bottom + 17, f"time {format_number(lesson.span)}", "small", "end")
    )
    title = f"Loss against time, {lesson.task.name}, one seed: {', '.join(names)}"
    return picture(parts, bottom + 24, title)
