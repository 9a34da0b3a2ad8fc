"""Does the stated interval of a forecast hold in what follows, on recorded workers?

A recording is cut into fifths. From the third on each is forecast from all before it: the time of a
gradient, and the gradients against those of synchronous rounds, under synchronous rounds, the
fastest three quarters, the fastest half, and the pure rule, whose pace buffered rules share. The
interval is that of `whatif`, stated at 90 % (`asyncjax/whatif/stationarity.py`). Beside it, on the
same windows, stands the one that `whatif` puts round its gains, two standard deviations over eight
logs that are drawn anew in blocks (without what it adds for jobs under way where a count ends): it
tells how much the length of a log leaves open.

Width is log(high / low). The score of an interval is its width and, where the truth lies outside,
2 / 0.1 times how far (Gneiting and Raftery 2007, "Strictly proper scoring rules"); lower is better.

Jobs 1 to 3 and the two jobs of language models count. The fourth job, which changes within its last
fifth, stands by itself, and made logs too, whose law is known: independent times, times that
remember, slow phases that are common, a drift, a step. The recipe was chosen among few on the
recordings that count and on other draws of such logs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks, results, traces
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.result import Result
from asyncjax.whatif.comparing import DRAWS, redrawn
from asyncjax.whatif.stationarity import LEVEL, stationarity_of, times_of
from experiments import part
from experiments.common import doors

NAME = "reality_windows"
TITLE = "Does the interval of a forecast hold in what follows?"
PAPERS = ("Gneiting and Raftery 2007 (Journal of the American Statistical Association 102)",)
PAGE = part.ROOT / "docs" / "experiments" / "reality.md"
COMMAND = "python -m experiments.reality.windows --commit"
COUNTED = ("job_1", "job_2", "job_3", "llm_sequences", "llm_slow_worker")
APART = "job_4"
NEW, OLD = "windows", "redrawn"
FIFTHS = 5
CLAIMS = ()


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/reality/windows")
    made: int = 20  # logs of every kind that are made
    workers: int = 10  # of them
    jobs: int = 250
    seed: int = 0
    commit: bool = False  # also write rows and figures where the page is made from


def remembering(rng: np.random.Generator, n: int, jobs: int, lag: float = 0.0) -> np.ndarray:
    """Times whose logarithms have deviation 0.2, half of it common, and correlation lag^|j - k|."""
    noise = rng.standard_normal((n + 1, jobs)) * (1 - lag**2) ** 0.5
    noise[:, 0] /= (1 - lag**2) ** 0.5
    for job in range(1, jobs):
        noise[:, job] += lag * noise[:, job - 1]
    return np.exp(0.2 * (noise[:n] + noise[n]) / 2**0.5)


def phased(rng: np.random.Generator, n: int, jobs: int) -> np.ndarray:
    """Phases of 20 to 60 jobs in which six of ten workers take twice as long, 93 jobs apart."""
    slow, at = np.zeros(jobs, bool), 0
    while at < jobs:
        at += int(rng.geometric(1 / 93))
        slow[at : at + int(rng.integers(20, 61))] = True
        at += 60
    phase = np.where(slow & (np.arange(n)[:, None] < 0.6 * n), 2.0, 1.0)
    return phase * rng.gamma(25.0, 1 / 25, (n, jobs))


def drifting(rng: np.random.Generator, n: int, jobs: int, to: float = 1.3) -> np.ndarray:
    """Independent times that grow to so many times what they were."""
    return remembering(rng, n, jobs) * np.linspace(1.0, to, jobs)


def stepping(rng: np.random.Generator, n: int, jobs: int) -> np.ndarray:
    """Times that remember, and grow to 1.3 times what they were at once, after two fifths."""
    step = np.where(np.arange(jobs) < 0.4 * jobs, 1.0, 1.3)
    return remembering(rng, n, jobs, 0.7) * step


MADE = {
    "independent": remembering,
    "remembering": partial(remembering, lag=0.7),
    "common phases": phased,
    "drift to 1.3": drifting,
    "step to 1.3": stepping,
}
STEADY = ("independent", "remembering", "common phases")


def study_of(settings: Settings) -> Result:
    """Forecasts all windows of all logs."""
    doors.check(settings, {}, {"made": 1, "workers": 2, "jobs": 60})
    rows = [row for name in (*COUNTED, APART) for row in _rows(name, 0, _recorded(name))]
    for kind, make in MADE.items():
        for instance in range(settings.made):
            rng = np.random.default_rng([settings.seed, instance])
            table = make(rng, settings.workers, settings.jobs)
            rows += _rows(kind, instance, table)
    facts = {"level": LEVEL, "made": settings.made, "jobs": settings.jobs}
    return Result(pd.DataFrame(rows), "score", facts)


def _recorded(name: str) -> np.ndarray:
    return clocks.recording(name).durations


def _rows(scene: str, instance: int, table: np.ndarray) -> Iterator[dict[str, Any]]:
    """A row an interval: scene, rule, window, what is forecast, and how."""
    ends = np.arange(FIFTHS + 1) * table.shape[1] // FIFTHS
    for window in range(2, FIFTHS):
        before, after = table[:, : ends[window]], table[:, ends[window] : ends[window + 1]]
        told = stationarity_of(traces.read_log(before), ahead=after.shape[1] / before.shape[1])
        truth = _both(after)
        ranges = {
            NEW: np.log([[row[1:] for row in rows] for rows in (told.pace, told.gain)]),
            OLD: _redrawn(before),
        }
        for what, quantity in enumerate(("pace", "gain")):
            for i in range(what, len(told.rules)):  # synchronous rounds gain nothing on themselves
                for how, ends_of in ranges.items():
                    low, high = ends_of[what, i]
                    miss = max(0.0, low - truth[what, i], truth[what, i] - high)
                    yield {
                        "scene": scene,
                        "set": "A",
                        "instance": instance,
                        "method": _short(told.rules[i], i),
                        "window": window + 1,
                        "forecast": quantity,
                        "interval": how,
                        "alarm": bool(told.is_alarm),
                        "told": bool(told.is_told),
                        "holds": miss == 0,
                        "error": round(float(truth[what, i] - _both(before)[what, i]), 5),
                        "width": round(float(high - low), 5),
                        "score": round(float(high - low + 2 / (1 - LEVEL) * miss), 5),
                    }


def _short(rule: str, place: int) -> str:
    """Rules by shares, since counts differ from log to log."""
    return ("synchronous", "fastest three quarters", "fastest half")[place] if place < 3 else rule


def _both(table: np.ndarray) -> np.ndarray:
    """Log time of a gradient by rule, and log gain over synchronous rounds, float64[2, R]."""
    times = times_of(table)
    return np.stack([times, times[0] - times])


def _redrawn(table: np.ndarray) -> np.ndarray:
    """Two deviations over logs drawn anew in blocks, float64[2, R, 2]."""
    keys = jax.random.split(jax.random.key(0), DRAWS)
    drawn = np.stack([_both(np.stack(redrawn(list(table), key))) for key in keys])
    half = 2 * drawn.std(axis=0, ddof=1)
    return np.stack([_both(table) - half, _both(table) + half], axis=-1)


def summary(rows: Any) -> dict[str, dict[str, float]]:
    """By kind of interval: share of those that hold, median width, mean score."""
    groups = rows.groupby("interval")
    return {
        str(how): {
            "holds": float(of["holds"].mean()),
            "width": float(np.expm1(of["width"]).median()),
            "score": float(of["score"].mean()),
            "count": len(of),
        }
        for how, of in groups
    }


def overall(result: Result) -> dict[str, Any]:
    """The summary of the recordings that count, by what is forecast, and of both."""
    rows = result.select(scene=list(COUNTED))
    both = {what: summary(rows[rows["forecast"] == what]) for what in ("pace", "gain")}
    return {**both, "both": summary(rows)}


def alarms(result: Result) -> dict[str, float]:
    """Share of the last forecasts, of four fifths of a log, before which there was an alarm."""
    rows = result.select(window=FIFTHS, interval=NEW)
    logs = rows.groupby(["scene", "instance"])["alarm"].first()
    return {str(name): float(share) for name, share in logs.groupby("scene").mean().items()}


def answer(result: Result) -> str:
    """How often the interval holds."""
    pace = overall(result)["pace"]
    new, old = pace[NEW], pace[OLD]
    return (
        f"The interval that is stated at {100 * LEVEL:.0f} % holds in {100 * new['holds']:.0f} % of"
        f" {new['count']} forecasts of the pace on recordings (redrawn blocks:"
        f" {100 * old['holds']:.0f} %), mean score {new['score']:.3f} ({old['score']:.3f})."
    )


def _line(head: tuple[str, ...], told: dict[str, dict[str, float]]) -> list[str]:
    """A row of a table: windows, then blocks that are redrawn."""
    cells = [
        (f"{100 * of['holds']:.0f}", f"{100 * of['width']:.1f}", f"{of['score']:.3f}")
        for of in (told[NEW], told[OLD])
    ]
    return [*head, str(told[NEW]["count"]), *cells[0], *cells[1]]


HEADS = ("intervals", "holds [%]", "width [%]", "score", "redrawn: holds", "width", "score")


def recorded_table(result: Result) -> results.Table:
    """Recordings: by log, by rule, in all."""
    lines = []
    for what in ("pace", "gain"):
        rows = result.select(scene=list(COUNTED), forecast=what)
        for column in ("scene", "method"):
            for name, of in rows.groupby(column, sort=False):
                lines.append(_line((what, str(name)), summary(of)))
        lines.append(_line((what, "all"), summary(rows)))
    apart = result.select(scene=APART)
    for what, of in apart.groupby("forecast", sort=False):
        lines.append(_line((str(what), f"{APART}, not counted"), summary(of)))
    caption = f"Recordings: intervals stated at {100 * LEVEL:.0f} %, and how often they hold."
    return part.table(("forecast", "of", *HEADS), lines, caption, left=2)


def made_table(result: Result) -> results.Table:
    """Made logs by kind, and alarms."""
    share, lines = alarms(result), []
    for kind in MADE:
        rows = result.select(scene=kind)
        line = _line((kind,), summary(rows))
        lines.append([*line[:1], f"{100 * share[kind]:.0f}", *line[1:]])
    caption = (
        f"{result.facts['made']} made logs of a kind, {result.facts['jobs']} jobs of each worker:"
        " alarms before the last window; pace and gain together."
    )
    return part.table(("log", "alarms [%]", *HEADS), lines, caption)


TABLES = {"recorded": recorded_table, "made": made_table}
FACTS = {"overall": overall, "alarms": alarms}


def figure(result: Result) -> Illustration:
    """What happened in every window of the recordings against the half width of its interval."""
    with drawing():
        page = new_figure(7.0, 4.0)
        axes = page.subplots()
        for how, marker in ((NEW, "o"), (OLD, "x")):
            rows = result.select(scene=list(COUNTED), forecast="pace", interval=how)
            axes.plot(50 * rows["width"], 100 * rows["error"].abs(), marker, ms=4, label=how)
        equal = np.geomspace(0.1, 40.0, 200)
        axes.plot(equal, equal, color="0.4", lw=1)
        axes.set(xscale="log", xlim=(0.1, 40.0), ylim=(0, 30))
        axes.set_yscale("symlog", linthresh=0.3)
        axes.set(xlabel="half of the interval [%]", ylabel="error of the forecast [%]")
        axes.legend()
        add_grid(axes)
    caption = (
        "Recordings, time of a gradient: a mark a rule and window; below the line the interval"
        " holds. Circles: the interval of windows; crosses: blocks drawn anew."
    )
    return Illustration(page, caption)


FIGURES = {"windows": figure}


if __name__ == "__main__":
    part.main(NAME)
