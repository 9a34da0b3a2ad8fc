"""What does each admission rule of rollouts cost: idleness, age, waste, bias?

Generators with many slots make samples of uneven lengths, a trainer takes batches of them. Every
rule faces the same samples. Compared are steps a time, who idles, how old what is trained is, what
is thrown away, and whether long samples are heard, for three laws of lengths and several bounds
eta. Then: is age <= eta, as the settings of several frameworks say? How many slots are enough?

No model is involved, nothing is tuned. What the ages do to learning is the part `learning`.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import results, rollouts
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.result import Result
from experiments import part
from experiments.common.parts import Part, run_alone
from experiments.rollouts.admission_runs import (
    BUSY,
    ENOUGH,
    LOADS,
    TRIAL,
    Settings,
    checked,
    run_all,
)
from experiments.rollouts.laws import BOUNDED, PRESETS

NAME = "rollouts_admission"
TITLE = "What does each admission rule of rollouts cost?"
PAPERS = ()
COMMAND = "python -m experiments.rollouts.admission --etas 1 4 --widths 128 --commit"
CLAIMS = ()
DRAWN = ("synchronous", "one step off", "ready first", "budget", "windowed", "withhold", "in order")
DRAWN += ("discard", "discard, a batch waits")
COSTS = {  # of the table of all rules: columns, and how they are written
    "speed": ("speed", ".2f"),
    "age": ("age, mean", ".2f"),
    "age_of_parts": ("in flight", ".2f"),
    "age_late": ("99 %", ".0f"),
    "age_longest": ("longest", ".0f"),
    "wasted": ("time thrown away", "%"),
    "long_share": ("longest tenth heard", ".2f"),
}
NAMED = {  # rules of the page's table, the last four for every law
    "synchronous": "synchronous",
    "one step off": "one step off",
    "withhold": "withhold",
    "ready first, as many wait": "ready first, 128 may wait",
    "in order": "in order",
    "windowed": "windowed, W = 48",
    "budget": "budget",
    "discard": "discard",
}
ORDER = ("synchronous", "one step off", "in order", "withhold", "windowed", "budget", "discard")
ORDER += ("ready first, as many wait",)


def study_of(settings: Settings) -> Result:
    """Runs all laws that are missing.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    checked(settings)
    return as_rows(settings, run_all(settings))


def as_rows(settings: Settings, found: Any) -> Result:
    """A row a law, cell and seed."""
    tables = []
    for law, columns in found.items():
        rows = pd.DataFrame(dict(columns)).rename(columns={"rule": "method", "steps": "n_steps"})
        rows.insert(0, "scene", law)
        rows.insert(1, "set", "A")
        tables.append(rows)
    names = ("shown", "slots", "batch", "steps", "trial_steps", "seeds")
    facts = {name: getattr(settings, name) for name in names}
    return Result(pd.concat(tables, ignore_index=True), "speed", facts, settings.seed)


def numbers(result: Result, column: str, **where: Any) -> np.ndarray:
    """A column of a cell, a number a seed."""
    return result.select(**where)[column].to_numpy(float)


def middle(result: Result, column: str, **where: Any) -> float:
    """Its median over seeds."""
    return float(np.median(numbers(result, column, **where)))


def of_rule(result: Result, rule: str) -> dict[str, Any]:
    """Where a rule's rows are at the eta that is shown."""
    return {"asked": "rules", "method": rule} | (
        {"eta": float(result.facts["shown"])} if rule in BOUNDED else {}
    )


def fastest(result: Result) -> dict[str, tuple[str, float]]:
    """The fastest rule for each law of lengths, and its speed over that of synchronous rounds."""
    found = {}
    for law in result.rows["scene"].unique():
        speeds = {
            rule: middle(result, "speed", scene=law, **of_rule(result, rule))
            for rule in result.select(asked="rules")["method"].unique()
        }
        best = max(speeds, key=speeds.__getitem__)
        found[law] = best, speeds[best] / speeds.get("synchronous", np.nan)
    return found


def answer(result: Result) -> str:
    """The fastest rule for each law of lengths, and what it costs."""
    said = []
    for law, (best, gain) in fastest(result).items():
        where = {"scene": law, **of_rule(result, best)}
        late = middle(result, "age_late", **where)
        wasted = written(numbers(result, "wasted", **where), "%").split(" (")[0]
        words = f"{law}: {best} is fastest, {gain:.2f} times the steps of synchronous, at ages to"
        said.append(f"{words} {late:.0f} (99 %), time thrown away {wasted}")
    return f"At eta {result.facts['shown']:g}, by lengths. {'; '.join(said)}."


def written(values: np.ndarray, form: str) -> str:
    """A median, with its quartiles where they differ from it as they are written."""

    def text(value: float) -> str:
        if form == "%":
            return f"{value:.0%}".replace("%", " %") if value else "0"
        return f"{value:{form}}" if value or form == ".2f" else "0"

    own = results.median_and_spread(values)
    low, median, high = (text(float(one)) for one in (own.low, own.median, own.high))
    return median if low == high else f"{median} ({low} to {high})"


def table(first: Sequence[str], rest: Sequence[str], rows: Any, caption: str) -> results.Table:
    """A table of texts."""
    columns = [results.Column(head, right=False) for head in first]
    columns += [results.Column(head) for head in rest]
    return results.Table(tuple(columns), tuple(map(tuple, rows)), caption)


def cost_table(result: Result) -> results.Table:
    """The rules at one eta: all of the page for the first law, four of them for the others."""
    rows, known = [], set(result.select(asked="rules")["method"])
    for place, law in enumerate(result.rows["scene"].unique()):
        shown = [rule for rule in (ORDER if not place else list(NAMED)[4:]) if rule in known]
        for at, rule in enumerate(shown):
            where = {"scene": law, **of_rule(result, rule)}
            cells = [
                written(numbers(result, column, **where), form)
                for column, (_, form) in COSTS.items()
            ]
            rows.append(["" if at else law, NAMED[rule], *cells])
    caption = "Median (quartiles) of the seeds, eta as shown where a rule reads it."
    return table(["lengths", "rule"], [head for head, _ in COSTS.values()], rows, caption)


def bound_table(result: Result) -> results.Table:
    """Whether no sample is older than eta."""
    asked = result.select(asked="rules", method=["budget", "first finished", "windowed"])
    rows = [
        [
            law,
            rule,
            f"{eta:g}",
            written(own["above"].to_numpy(float), "%").split(" (")[0],
            f"{own['age'].max():.2f}",
            *(written(own[name].to_numpy(float), ".0f") for name in ("age_late", "age_longest")),
            written(own["speed"].to_numpy(float), ".2f"),
        ]
        for (law, rule, eta), own in asked.groupby(["scene", "method", "eta"], sort=False)
    ]
    heads = ("eta", "older than eta", "largest mean age", "99 %", "longest", "speed")
    caption = "Is age <= eta? The share of trained samples that are older, and their ages."
    return table(["lengths", "rule"], heads, rows, caption)


def trial_table(result: Result) -> results.Table:
    """The first trial, with seeds, at several loads of the trainer."""
    rows = []
    for law in result.rows["scene"].unique():
        for load in LOADS:
            ahead, strict, thrown = (
                {"scene": law, "asked": "trial", "method": rule, "load": load} for rule in TRIAL
            )
            slower = numbers(result, "speed", **strict) / numbers(result, "speed", **ahead)
            rows.append(
                [
                    law,
                    f"{load:g}",
                    *(
                        written(numbers(result, name, **ahead), form)
                        for name, form in (
                            ("age", ".2f"),
                            ("age_late", ".0f"),
                            ("age_longest", ".0f"),
                        )
                    ),
                    written(slower, ".2f"),
                    *(
                        written(numbers(result, name, **thrown), form)
                        for name, form in (("wasted", "%"), ("long_share", ".2f"))
                    ),
                ]
            )
    heads = ("load", "budget: mean age", "99 %", "longest", "in order: speed over budget's")
    heads += ("discard: time thrown away", "longest tenth heard")
    caption = "Load: what the trainer needs for a batch over what all slots need."
    return table(["lengths"], heads, rows, caption)


def enough_table(result: Result) -> results.Table:
    """The fewest slots that keep the trainer busy, beside Little's law."""
    laws, rows = list(result.rows["scene"].unique()), []
    for rule, eta in ENOUGH:
        cells = []
        for law in laws:
            own = result.select(scene=law, asked="slots", method=rule, eta=float(eta))
            busy = 1.0 - own.groupby("slots")["trainer_idle"].median()
            enough = busy[busy >= BUSY]
            cells.append(
                enough.index.min() if len(enough) else f"never ({100 * busy.iloc[-1]:.0f} %)"
            )
        rows.append([f"{rule}, eta {eta:g}", *cells])
    caption = (
        f"The fewest slots with which the trainer is busy {100 * BUSY:.0f} % of the time; never:"
        f" how busy it is with the most. Little's law says {result.facts['slots']} for all."
    )
    return table(["rule"], laws, rows, caption)


TABLES = {"costs": cost_table, "bound": bound_table, "trial": trial_table, "enough": enough_table}


def over_budget(result: Result) -> dict[str, Any]:
    """Speed in strict order over the budget's, by law: at the eta shown, and by load."""

    def ratio(**where: Any) -> float:
        speeds = [middle(result, "speed", method=rule, **where) for rule in ("in order", "budget")]
        return speeds[0] / speeds[1]

    shown = float(result.facts["shown"])
    return {
        law: {
            "shown": ratio(scene=law, asked="rules", eta=shown),
            **{f"load {x:g}": ratio(scene=law, asked="trial", load=x) for x in LOADS},
        }
        for law in result.rows["scene"].unique()
    }


def overtaken(result: Result) -> dict[str, float]:
    """Under the budget at the eta shown: of all laws the least and the most of some medians."""
    own = result.select(**of_rule(result, "budget")).groupby("scene")
    above, longest = own["above"].median(), own["age_longest"].median()
    return {
        "least above": above.min(),
        "most above": above.max(),
        "least longest": longest.min(),
        "most longest": longest.max(),
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
                _path(
                    axes, asked[(asked["scene"] == law) & (asked["method"] == rule)], rule, styles
                )
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


def _path(axes: Any, own: Any, rule: str, styles: Any) -> None:
    """A rule at all whole etas."""
    cells = own[own["eta"].isna() | (own["eta"] % 1 == 0)].groupby("eta", dropna=False)
    points = cells[["age_late", "speed", "long_share"]].median()
    marker, colour, dash = "o" if rule in BOUNDED else "D", styles[rule].colour, styles[rule].dash
    axes.plot(points["age_late"], points["speed"], color=colour, linestyle=dash, linewidth=1)
    for at, height, heard in points.itertuples(index=False):
        fill = colour if heard > 0.5 else "white"
        axes.plot(at, height, marker, color=colour, markerfacecolor=fill, markersize=5)
    axes.plot([], [], marker, color=colour, linestyle=dash, label=rule, linewidth=1)


def _busy_lines(own: Any) -> Iterator[results.Series]:
    for rule, eta in ENOUGH:
        cells = own[(own["method"] == rule) & (own["eta"] == eta)].groupby("slots")["trainer_idle"]
        seen = results.median_and_spread(np.stack([1.0 - idle.to_numpy() for _, idle in cells]))
        widths = [float(slots) for slots, _ in cells]
        yield plots.Series(f"{rule}, eta {eta:g}", widths, seen.median, seen.low, seen.high)


def busy(result: Result) -> Illustration:
    """How busy the trainer is, against slots."""
    asked = result.select(asked="slots").groupby("scene", sort=False)
    parts = [plots.Panel(f"slots ({law})", list(_busy_lines(own))) for law, own in asked]
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
        "Twelve slots, one sample in ten ten times longer: a row a slot, a bar a sample, coloured"
        " by its age when it is trained. Long ones are overtaken, and older than eta."
    )
    return Illustration(page, caption)


FIGURES = {"frontier": frontier, "busy": busy, "timeline": timeline}


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, figures, the answer."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
