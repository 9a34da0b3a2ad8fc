"""What does each admission rule of rollouts cost: idleness, age, waste, bias?

Generators with many slots make samples of uneven lengths, a trainer takes batches of them. Every
rule faces the same samples. Compared are steps a time, who idles, how old what is trained is, what
is thrown away, and whether long samples are heard, for several bounds eta and three laws of
lengths, all of mean 1:

    recorded    output lengths of requests to a language model, of a public recording
    lognormal   sigma = 1
    one tenth   lognormal, sigma = 1/2, but one sample in ten is ten times longer

Then: is age <= eta, as the settings of several frameworks say? How many slots are enough?

The unit of time is that of a sample of mean length. With `load` 1 the trainer takes as long for a
batch as the slots need for one on average, batch / slots. No model is involved, nothing is tuned.
What the ages do to learning is the part `learning`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks, results, rollouts
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.rollouts.admission import (
    Rule,
    budget,
    discard,
    first_finished,
    in_order,
    one_step_off,
    ready_first,
    synchronous,
    windowed,
    withhold,
)
from asyncjax.study.result import Result
from experiments import part
from experiments.common import doors
from experiments.common.kept_rows import once

NAME = "rollouts_admission"
TITLE = "What does each admission rule of rollouts cost?"
PAPERS = ()
COMMAND = "python -m experiments.rollouts.admission --etas 1 4 --widths 128 --commit"
CLAIMS = ()
LAWS = ("recorded", "lognormal", "one tenth")
POINTS = 20_000  # of a law that is no recording

Make = Callable[[float, int, int], Rule]  # of eta, batch and slots

PRESETS: Mapping[str, Make] = {
    "synchronous": lambda eta, batch, slots: synchronous(),
    "one step off": lambda eta, batch, slots: one_step_off(),
    "budget": lambda eta, batch, slots: budget(eta),
    "first finished": lambda eta, batch, slots: first_finished(eta),
    "windowed": lambda eta, batch, slots: windowed(eta, window_of(eta, batch)),
    "withhold": lambda eta, batch, slots: withhold(int(eta)),
    "in order": lambda eta, batch, slots: in_order(eta),
    "discard": lambda eta, batch, slots: discard(int(eta)),
    "discard, a batch waits": lambda eta, batch, slots: discard(int(eta), batch),
    "ready first": lambda eta, batch, slots: ready_first(),
    "ready first, as many wait": lambda eta, batch, slots: ready_first(slots),
}
BOUNDED = ("budget", "first finished", "windowed", "withhold", "in order", "discard")
BOUNDED += ("discard, a batch waits",)  # these read eta, the others do not


LOADS = (0.5, 1.0, 1.5)  # of the first trial that is repeated
TRIAL = ("budget", "in order", "discard")
ENOUGH = (("budget", 2), ("budget", 4), ("budget", 8), ("in order", 4), ("in order", 8))
DRAWN = ("synchronous", "one step off", "ready first", "budget", "windowed", "withhold", "in order")
DRAWN += ("discard", "discard, a batch waits")
COSTS = {  # of the table of all rules: columns, and how they are written
    "speed": ("speed", ".2f"),
    "age": ("age, mean", ".2f"),
    "age_of_parts": ("in flight", ".2f"),
    "age_late": ("99 %", ".0f"),
    "age_longest": ("longest", ".0f"),
    "wasted": ("time thrown away", "%"),
    "long_share": ("longest tenth trained", ".2f"),
}
NAMED = {  # rules of the page's table
    "synchronous": "synchronous",
    "one step off": "one step off",
    "in order": "in order",
    "withhold": "withhold",
    "windowed": "windowed, W = 48",
    "budget": "budget",
    "discard": "discard",
    "ready first, as many wait": "ready first, 128 may wait",
}
FOR_ALL = ("in order", "windowed", "budget", "discard")  # of these, for every law


def window_of(eta: float, batch: int) -> int:
    """Torchtitan's default: .3 of what may be ahead.

    Example:
        >>> window_of(4, 32)
        48
    """
    return max(1, int(0.3 * (eta + 1) * batch))


@cache
def lengths_of(law: str) -> np.ndarray:
    """Lengths to draw from with replacement, float64[L], of mean 1.

    A law that is no recording is given by its quantiles.

    Example:
        >>> [round(float(lengths_of(law).max()), 1) for law in LAWS]
        [5.8, 35.0, 26.5]
    """
    if law == "recorded":
        column = clocks.recording("request_lengths").columns["output_length"]
        lengths = np.asarray(column, float)
        lengths = lengths[lengths > 0]
    elif law == "lognormal":
        lengths = np.exp(_normal(POINTS))
    else:
        tenth = np.exp(0.5 * _normal(POINTS // 10))
        lengths = np.concatenate([np.repeat(tenth, 9), 10.0 * tenth])
    return lengths / lengths.mean()


def _normal(count: int) -> np.ndarray:
    """Quantiles of the normal law, in the middle of equal shares."""
    law = NormalDist()
    return np.array([law.inv_cdf((place + 0.5) / count) for place in range(count)])


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about five minutes."""

    output: Path = Path("output/rollouts/admission")
    seed: int = 0
    laws: tuple[str, ...] = LAWS
    rules: tuple[str, ...] = tuple(PRESETS)
    etas: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
    shown: float = 4.0  # the eta of the table of all rules
    slots: int = 128
    batch: int = 32
    steps: int = 600
    trial_steps: int = 400
    seeds: int = 5
    widths: tuple[int, ...] = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384)
    width_steps: int = 300
    commit: bool = False  # also write rows and figures where the page is made from


class Cell(NamedTuple):
    """What is run of a law."""

    asked: str  # "rules", "trial" or "slots"
    method: str
    eta: float  # NaN: the rule reads none
    load: float  # what the trainer needs for a batch over what all slots need
    slots: int
    n_steps: int


def cells(settings: Settings) -> Iterator[Cell]:
    """All there is to run of a law."""
    for rule in settings.rules:
        for eta in settings.etas if rule in BOUNDED else (np.nan,):
            if eta % 1 and rule.startswith(("withhold", "discard")):
                continue
            yield Cell("rules", rule, eta, 1.0, settings.slots, settings.steps)
    for rule in TRIAL:
        for load in LOADS:
            yield Cell("trial", rule, settings.shown, load, settings.slots, settings.trial_steps)
    for rule, eta in ENOUGH:
        for width in settings.widths:
            load = width / settings.slots  # the training time stays
            yield Cell("slots", rule, eta, load, width, settings.width_steps)


def study_of(settings: Settings) -> Result:
    """Runs all laws that are missing: a row a law, cell and seed.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    counts = ("slots", "batch", "steps", "trial_steps", "seeds", "width_steps")
    doors.check(settings, {"laws": LAWS, "rules": PRESETS}, dict.fromkeys(counts, 1))
    if settings.shown not in settings.etas:
        raise ValueError(f"shown must be one of the etas, got {settings.shown:g}")
    if min(settings.etas) < 0 or not settings.widths or min(settings.widths) < 1:
        raise ValueError("etas must be at least 0, and widths some numbers of at least 1")
    asked = replace(settings, output=Path(), laws=(), commit=False)
    tables = []
    for law in settings.laws:
        tables.append(once(settings.output / "laws", partial(rows_of, asked, law)))
        print(f"[{len(tables)}/{len(settings.laws)}] {law} is done", flush=True)
    names = ("shown", "slots", "batch", "steps", "trial_steps", "seeds")
    facts = {name: getattr(settings, name) for name in names}
    return Result(pd.concat(tables, ignore_index=True), "speed", facts, settings.seed)


def rows_of(settings: Settings, law: str) -> pd.DataFrame:
    """All rows of a law."""
    return pd.DataFrame(
        {
            "scene": law,
            "set": "A",
            **cell._asdict(),
            "instance": repeat,
            **figures_of(settings, law, cell, repeat),
        }
        for cell in cells(settings)
        for repeat in range(settings.seeds)
    )


def trace_of(settings: Settings, law: str, cell: Cell, repeat: int) -> rollouts.RolloutTrace:
    """One trace. The same seed draws the same samples.

    Without a pause at a swap, in flight or not is the same trace but for who made the parts.
    """
    training_time = cell.load * settings.batch / cell.slots
    eta = settings.shown if np.isnan(cell.eta) else cell.eta
    return rollouts.trace(
        lengths_of(law),
        rollouts.Engine(cell.slots, training_time, in_flight=True),
        PRESETS[cell.method](eta, settings.batch, cell.slots),
        batch=settings.batch,
        n_steps=cell.n_steps,
        key=jax.random.key(1_000 * settings.seed + repeat),
    )


def figures_of(settings: Settings, law: str, cell: Cell, repeat: int) -> dict[str, float]:
    """What one trace amounts to; shares are of 1."""
    trace = trace_of(settings, law, cell, repeat)
    summary = rollouts.summarize(trace)
    most = cell.slots / settings.batch / max(1.0, cell.load)
    eta = settings.shown if np.isnan(cell.eta) else cell.eta
    return {
        "speed": summary.steps_per_time / most,  # over what slots and trainer can do at most
        "generators_idle": summary.generators_idle,
        "trainer_idle": summary.trainer_idle,
        "age": summary.age_trained.mean,  # over trained samples
        "age_late": summary.age_trained.late,  # that 99 % do not exceed
        "age_longest": summary.age_trained.longest,
        "age_of_parts": summary.age_of_parts,  # mean, if weights had been swapped in flight
        "age_made": summary.age_made.mean,  # by the time that it was finished
        "above": float(np.mean(trace.age > eta)),  # share of trained samples older than eta
        "wasted": summary.time_wasted,  # share of the time of slots at work
        "samples_wasted": summary.samples_wasted,
        "long_share": summary.long_share,
        "concurrency": summary.concurrency,
        "needed": summary.concurrency_needed,  # Little's law: batch / training time * mean time
    }


def at_shown(result: Result) -> Any:
    """The rows of all rules at the eta that is shown, where they read it."""
    rows = result.select(asked="rules")
    return rows[rows["eta"].isna() | (rows["eta"] == result.facts["shown"])]


def laws_of(result: Result) -> list[str]:
    """The laws of lengths."""
    return list(result.rows["scene"].unique())


def answer(result: Result) -> str:
    """The fastest rule for each law of lengths, and what it costs."""
    said = []
    for law, rows in at_shown(result).groupby("scene", sort=False):
        speed = rows.groupby("method", sort=False)["speed"].median()
        best, slow = speed.idxmax(), speed.get("synchronous", np.nan)
        costs, gain = rows[rows["method"] == best], speed[best] / slow
        words = f"{law}: {best} is fastest, {gain:.2f} times the steps of synchronous, at ages to"
        wasted = written(costs["wasted"], "%").split(" (")[0]
        late = costs["age_late"].median()
        said.append(f"{words} {late:.0f} (99 %), time thrown away {wasted}")
    return f"At eta {result.facts['shown']:g}, by lengths. {'; '.join(said)}."


def written(values: Any, form: str) -> str:
    """A median, with its quartiles where they differ from it as they are written."""

    def text(value: float) -> str:
        if form == "%":
            return f"{value:.0%}".replace("%", " %") if value else "0"
        return f"{value:{form}}" if value or form == ".2f" else "0"

    spread = results.median_and_spread(np.asarray(values, float))
    low, median, high = (text(float(one)) for one in (spread.low, spread.median, spread.high))
    return median if low == high else f"{median} ({low} to {high})"


def cost_table(result: Result) -> results.Table:
    """The rules at one eta: all of the page for the first law, four of them for the others."""
    forms = {column: partial(written, form=form) for column, (_, form) in COSTS.items()}
    texts = at_shown(result).groupby(["scene", "method"]).agg(forms)
    rows = []
    for law in laws_of(result):
        shown = [rule for rule in (FOR_ALL if rows else NAMED) if (law, rule) in texts.index]
        rows += [
            ("" if at else law, NAMED[rule], *texts.loc[(law, rule)])
            for at, rule in enumerate(shown)
        ]
    heads = ("lengths", "rule", *(head for head, _ in COSTS.values()))
    caption = "Median (quartiles) of the seeds, eta as shown where a rule reads it."
    return part.table(heads, rows, caption, left=2)


TABLES = {"costs": cost_table}


def over_budget(result: Result) -> dict[str, Any]:
    """Speed in strict order over the budget's, by law: at the eta shown, and by load."""
    speed = result.rows.groupby(["method", "asked", "scene", "eta", "load"])["speed"].median()
    ratio, shown = speed["in order"] / speed["budget"], float(result.facts["shown"])
    return {
        law: {
            "shown": ratio["rules", law, shown, 1.0],
            **{f"load {load:g}": ratio["trial", law, shown, load] for load in LOADS},
        }
        for law in laws_of(result)
    }


def overtaken(result: Result) -> dict[str, float]:
    """Under the budget at the eta shown: of all laws the least and the most of some medians."""
    rows = at_shown(result)
    medians = rows[rows["method"] == "budget"].groupby("scene")[["above", "age_longest"]].median()
    return {
        f"{kind} {word}": getattr(medians[name], end)()
        for name, word in (("above", "above"), ("age_longest", "longest"))
        for kind, end in (("least", "min"), ("most", "max"))
    }


FACTS = {"in order over budget": over_budget, "overtaken": overtaken}


def frontier(result: Result) -> Illustration:
    """Speed against the age of the oldest in a hundred, a line a rule."""
    asked = result.select(asked="rules")
    rules = [rule for rule in DRAWN if rule in set(asked["method"])]
    styles = plots.assign_styles(rules)
    with drawing():
        page = new_figure(9.6, 4.3)
        laws = list(asked["scene"].unique())
        grid = page.subplots(1, len(laws), sharey=True, squeeze=False).ravel()
        for axes, law in zip(grid, laws, strict=True):
            for rule in rules:
                rows = asked[(asked["scene"] == law) & (asked["method"] == rule)]
                _path(axes, rows, rule, styles[rule])
            axes.set_xscale("symlog", linthresh=1.0, linscale=0.5)
            axes.set_xticks([0, 1, 2, 4, 8, 16, 32], ["0", "1", "2", "4", "8", "16", "32"])
            axes.minorticks_off()
            axes.set(title=law, xlabel="age that 99 % do not exceed")
            add_grid(axes)
        grid[0].set(ylabel="speed", ylim=(0.0, 1.05))
        lines = grid[0].get_legend_handles_labels()
        page.legend(*lines, loc="outside lower center", ncols=4, fontsize=8)
    caption = (
        "Steps a time, of the most possible, against the 99 % age; along a line eta grows, medians"
        " over seeds. Open marks: the longest tenth of the samples is heard less than half as often"
        " as it occurs."
    )
    return Illustration(page, caption)


def _path(axes: Any, rows: Any, rule: str, style: Any) -> None:
    """A rule at all whole etas."""
    cells = rows[rows["eta"].isna() | (rows["eta"] % 1 == 0)].groupby("eta", dropna=False)
    points = cells[["age_late", "speed", "long_share"]].median()
    marker, colour, dash = "o" if rule in BOUNDED else "D", style.colour, style.dash
    axes.plot(points["age_late"], points["speed"], color=colour, linestyle=dash, linewidth=1)
    for at, height, heard in points.itertuples(index=False):
        fill = colour if heard > 0.5 else "white"
        axes.plot(at, height, marker, color=colour, markerfacecolor=fill, markersize=5)
    axes.plot([], [], marker, color=colour, linestyle=dash, label=rule, linewidth=1)


def _busy_lines(rows: Any) -> Iterator[results.Series]:
    for rule, eta in ENOUGH:
        fits = (rows["method"] == rule) & (rows["eta"] == eta)
        cells = rows[fits].groupby("slots")["trainer_idle"]
        seen = results.median_and_spread(np.stack([1.0 - idle.to_numpy() for _, idle in cells]))
        widths = [float(slots) for slots, _ in cells]
        yield plots.Series(f"{rule}, eta {eta:g}", widths, seen.median, seen.low, seen.high)


def busy(result: Result) -> Illustration:
    """How busy the trainer is, against slots."""
    asked = result.select(asked="slots").groupby("scene", sort=False)
    parts = [plots.Panel(f"slots ({law})", list(_busy_lines(rows))) for law, rows in asked]
    page = plots.panels(parts, y_label="trainer busy", y_range=(0.0, 1.02))
    for axes in page.axes:
        axes.axvline(result.facts["slots"], color="0.5", linewidth=0.8, linestyle=":")
    caption = (
        "Share of the time in which the trainer works, against slots; dotted what Little's law"
        " says. Median and quartiles over seeds."
    )
    return Illustration(page, caption)


def timeline(result: Result) -> Illustration:
    """The first steps of the budget, on few slots."""
    trace = rollouts.trace(
        np.array([1.0] * 9 + [10.0]),
        rollouts.Engine(12, training_time=0.6),
        PRESETS["budget"](2, 4, 12),
        batch=4,
        n_steps=12,
        key=jax.random.key(4),
    )
    until = float(trace.step_end[-1])
    page = plots.rollout_timeline(trace, until=until, title="budget, eta = 2, batches of 4")
    caption = (
        "Twelve slots, one sample in ten ten times longer: a row per slot, a bar per sample,"
        " coloured by its age when it is trained. Long ones are overtaken, and older than eta."
    )
    return Illustration(page, caption)


FIGURES = {"frontier": frontier, "busy": busy, "timeline": timeline}


if __name__ == "__main__":
    part.main(NAME)
