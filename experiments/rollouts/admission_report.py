"""Tables, figures and numbers of the comparison of admission rules."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from asyncjax import results, rollouts
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from experiments.common import numbers as committed
from experiments.common.parts import Drawing, Part, written
from experiments.rollouts.admission_runs import (
    BUSY,
    ENOUGH,
    LOADS,
    TRIAL,
    Figures,
    Found,
    Settings,
    key_of,
)
from experiments.rollouts.laws import BOUNDED, LAWS, PRESETS

NAME = "rollouts_admission"
TITLE = "What does each admission rule of rollouts cost?"
What = Callable[[Figures], float]
DRAWN = ("synchronous", "one step off", "ready first", "budget", "windowed", "withhold", "in order")
DRAWN += ("discard", "discard, a batch waits")


def part(settings: Settings, found: Found) -> Part:
    """Draws the figures and makes the tables; writes numbers where they are committed if asked."""
    if settings.commit:
        etas, widths = (" ".join(f"{own:g}" for own in n) for n in (settings.etas, settings.widths))
        command = f"python -m experiments.rollouts.admission --etas {etas} --widths {widths}"
        committed.save(NAME, by_field(found), command=f"{command} --commit", digits=4)
    return written(
        settings.output,
        NAME,
        TITLE,
        drawings(settings, found),
        (
            rules_table(settings, found),
            bound_table(settings, found),
            trial_table(settings, found),
            enough_table(settings, found),
        ),
        numbers(settings, found),
        in_words(settings, found),
    )


def in_words(settings: Settings, found: Found) -> str:
    """The fastest rule for each law of lengths, and what it costs."""
    said = []
    for law, own in found.items():
        runs = {rule: own[key_of(rule, settings.shown)] for rule in settings.rules}
        speeds = {rule: median(each, lambda run: run.speed) for rule, each in runs.items()}
        best = max(speeds, key=speeds.__getitem__)
        words = f"{law}: {best} is fastest"
        if "synchronous" in speeds:
            words += f", {speeds[best] / speeds['synchronous']:.2f} times the steps of synchronous"
        late = median(runs[best], lambda run: run.age_late)
        wasted = _percent(median(runs[best], lambda run: run.wasted))
        said.append(f"{words}, at ages to {late:.0f} (99 %) and {wasted} thrown away")
    return f"At eta {settings.shown:g}, by lengths. {'; '.join(said)}." if said else ""


def spread(runs: Sequence[Figures], what: What) -> results.Spread:
    """Median and quartiles over seeds."""
    return results.median_and_spread([what(run) for run in runs])


def median(runs: Sequence[Figures], what: What) -> float:
    """Median over seeds."""
    return float(np.median([what(run) for run in runs]))


def _short(found: results.Spread) -> str:
    """Two decimals, quartiles where they differ."""
    low, middle, high = (f"{float(x):.2f}" for x in (found.low, found.median, found.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _quartiles(runs: Sequence[Figures], what: What) -> str:
    """Median (quartiles) of a count, as short as it can be."""
    found = spread(runs, what)
    low, middle, high = (f"{float(x):.0f}" for x in (found.low, found.median, found.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def rules_table(settings: Settings, found: Found) -> results.Table:
    """All rules at one eta."""
    rows: list[tuple[Any, ...]] = []
    for law, own in found.items():
        for rule in settings.rules:
            runs = own[key_of(rule, settings.shown)]
            rows.append(
                (
                    law,
                    rule,
                    spread(runs, lambda run: run.speed),
                    _percent(median(runs, lambda run: run.generators_idle)),
                    _percent(median(runs, lambda run: run.trainer_idle)),
                    f"{median(runs, lambda run: run.age):.2f}",
                    f"{median(runs, lambda run: run.age_of_parts):.2f}",
                    _quartiles(runs, lambda run: run.age_late),
                    _quartiles(runs, lambda run: run.age_longest),
                    _percent(median(runs, lambda run: run.wasted)),
                    f"{median(runs, lambda run: run.long_share):.2f}",
                    round(median(runs, lambda run: run.concurrency)),
                    round(median(runs, lambda run: run.needed)),
                )
            )
    heads = ("speed", "generators idle", "trainer idle", "age, mean", "in flight", "99 %")
    heads += ("longest", "thrown away", "longest tenth heard", "at once", "Little")
    text = [results.Column(name, right=False) for name in ("lengths", "rule")]
    return results.Table(
        (*text, results.Column(heads[0], format=_short), *map(results.Column, heads[1:])),
        tuple(rows),
        f"Batches of {settings.batch}, {settings.slots} slots, {settings.steps} steps, eta ="
        f" {settings.shown:g} where a rule reads it; median (quartiles) of {settings.seeds} seeds."
        " Speed: steps a time over the most that slots and trainer can do. In flight: mean age if"
        " weights were swapped while samples run, each part counted by the version that made it."
        " Thrown away: of the time of slots at work. Longest tenth heard: how often it is trained"
        " over how often it occurs. At once: samples that run, on average. Little: what keeps the"
        " trainer just busy, at the mean time of the samples that this rule trains.",
    )


def bound_table(settings: Settings, found: Found) -> results.Table:
    """Whether no sample is older than eta."""
    rows: list[tuple[Any, ...]] = []
    shown = [rule for rule in ("budget", "first finished", "windowed") if rule in settings.rules]
    for law, own in found.items():
        for rule in shown:
            for eta in settings.etas:
                runs = own[key_of(rule, eta)]
                rows.append(
                    (
                        law,
                        rule,
                        f"{eta:g}",
                        _percent(median(runs, lambda run: run.above)),
                        f"{max(run.age for run in runs):.2f}",
                        _quartiles(runs, lambda run: run.age_late),
                        _quartiles(runs, lambda run: run.age_longest),
                        spread(runs, lambda run: run.speed),
                    )
                )
    heads = ("eta", "older than eta", "largest mean age", "99 %", "longest")
    text = [results.Column(name, right=False) for name in ("lengths", "rule")]
    return results.Table(
        (*text, *map(results.Column, heads), results.Column("speed", format=_short)),
        tuple(rows),
        "Is age <= eta? Share of trained samples that are older than eta (median), the largest mean"
        " age of any seed, and ages, median (quartiles).",
    )


def trial_table(settings: Settings, found: Found) -> results.Table:
    """The first trial, with seeds, at several loads of the trainer."""
    rows: list[tuple[Any, ...]] = []
    for law, own in found.items():
        for load in LOADS:
            ahead, strict, thrown = (own[f"trial, {rule}, load {load:g}"] for rule in TRIAL)
            slower = [one.speed / two.speed for one, two in zip(strict, ahead, strict=True)]
            rows.append(
                (
                    law,
                    f"{load:g}",
                    f"{median(ahead, lambda run: run.age):.2f}",
                    _quartiles(ahead, lambda run: run.age_late),
                    _quartiles(ahead, lambda run: run.age_longest),
                    results.median_and_spread(slower),
                    _percent(median(thrown, lambda run: run.wasted)),
                    _percent(median(thrown, lambda run: run.samples_wasted)),
                    f"{median(thrown, lambda run: run.long_share):.2f}",
                )
            )
    heads = ("load", "budget: mean age", "99 %", "longest")
    late = ("discard: time thrown away", "samples", "longest tenth heard")
    return results.Table(
        (
            results.Column("lengths", right=False),
            *map(results.Column, heads),
            results.Column("in order: speed over budget's", format=_short),
            *map(results.Column, late),
        ),
        tuple(rows),
        f"The first trial with {settings.seeds} seeds: {settings.trial_steps} steps, eta ="
        f" {settings.shown:g}. Load: what the trainer needs for a batch over what all slots need.",
    )


def enough_of(settings: Settings, own: dict[str, list[Figures]], rule: str, eta: float) -> Any:
    """The fewest slots that keep the trainer busy, median over seeds of each; None: not tried."""
    for width in sorted(settings.widths):
        runs = own[f"{key_of(rule, eta)}, {width} slots"]
        if 1.0 - median(runs, lambda run: run.trainer_idle) >= BUSY:
            return width
    return None


def enough_table(settings: Settings, found: Found) -> results.Table:
    """Little's law beside what is enough."""
    rows = []
    for rule, eta in ENOUGH:
        cells: list[Any] = []
        for own in found.values():
            width = enough_of(settings, own, rule, eta)
            widest = own[f"{key_of(rule, eta)}, {max(settings.widths)} slots"]
            busy = 1.0 - median(widest, lambda run: run.trainer_idle)
            cells.append(width if width is not None else f"never ({_percent(busy)})")
        rows.append((f"{rule}, eta {eta:g}", round((eta + 1) * settings.batch), *cells))
    heads = ("most ahead", *found)
    return results.Table(
        (results.Column("rule", right=False), *map(results.Column, heads)),
        tuple(rows),
        f"Slots that are enough: the fewest, of {len(settings.widths)} numbers from"
        f" {min(settings.widths)} to {max(settings.widths)}, with which the trainer is busy"
        f" {_percent(BUSY)} of the time; never: how busy it is with the most. Little's law says"
        f" {settings.slots} for all, since a step takes {settings.batch} / {settings.slots} of a"
        " mean sample.",
    )


def drawings(settings: Settings, found: Found) -> Iterator[Drawing]:
    """The figures."""
    yield frontier(settings, found)
    yield busy_figure(settings, found)
    yield timelines()


def frontier(settings: Settings, found: Found) -> Drawing:
    """Speed against the age of the oldest in a hundred, a line a rule."""
    rules = [rule for rule in DRAWN if rule in settings.rules]
    styles = plots.assign_styles(rules)
    with drawing():
        page = new_figure(9.6, 4.3)
        grid = page.subplots(1, len(found), sharey=True, squeeze=False).ravel()
        for axes, (law, own) in zip(grid, found.items(), strict=True):
            for rule in rules:
                _path(axes, settings, own, rule, styles[rule])
            axes.set_xscale("symlog", linthresh=1.0, linscale=0.5)
            axes.set_xticks([0, 1, 2, 4, 8, 16, 32], ["0", "1", "2", "4", "8", "16", "32"])
            axes.minorticks_off()
            axes.set_title(law)
            axes.set_xlabel("age that 99 % do not exceed")
            add_grid(axes)
        grid[0].set_ylabel("speed")
        grid[0].set_ylim(0.0, 1.05)
        page.legend(
            *grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
        )
    etas = ", ".join(f"{eta:g}" for eta in settings.etas if eta == int(eta))
    caption = (
        f"Steps a time, of the most possible, against the 99 % age; along a line eta is {etas},"
        " medians over seeds. Open marks: the longest tenth of the samples is heard less than half"
        " as often as it occurs."
    )
    return "frontier", page, caption


def _path(
    axes: Any, settings: Settings, own: dict[str, list[Figures]], rule: str, style: plots.LineStyle
) -> None:
    """A rule at all whole etas."""
    etas = [eta for eta in settings.etas if eta == int(eta)]
    cells = [own[key_of(rule, eta)] for eta in (etas if rule in BOUNDED else etas[:1])]
    x = [median(runs, lambda run: run.age_late) for runs in cells]
    y = [median(runs, lambda run: run.speed) for runs in cells]
    marker, colour = "o" if rule in BOUNDED else "D", style.colour
    axes.plot(x, y, color=colour, linestyle=style.dash, linewidth=1)
    for at, height, runs in zip(x, y, cells, strict=True):
        is_heard = median(runs, lambda run: run.long_share) > 0.5
        fill = colour if is_heard else "white"
        axes.plot(at, height, marker, color=colour, markerfacecolor=fill, markersize=5)
    axes.plot([], [], marker, color=colour, linestyle=style.dash, label=rule, linewidth=1)


def busy_figure(settings: Settings, found: Found) -> Drawing:
    """How busy the trainer is, against slots."""
    parts = []
    widths = np.array(sorted(settings.widths), float)
    for law, own in found.items():
        lines = []
        for rule, eta in ENOUGH:
            cells = [own[f"{key_of(rule, eta)}, {int(width)} slots"] for width in widths]
            idle = [spread(runs, lambda run: run.trainer_idle) for runs in cells]
            middle, low, high = (
                np.array([1.0 - float(getattr(one, name)) for one in idle])
                for name in ("median", "high", "low")
            )
            lines.append(plots.Series(f"{rule}, eta {eta:g}", widths, middle, low, high))
        parts.append(plots.Panel(f"slots ({law})", lines))
    page = plots.panels(parts, y_label="trainer busy", y_range=(0.0, 1.02))
    for axes in page.axes:
        axes.axvline(settings.slots, color="0.5", linewidth=0.8, linestyle=":")
    caption = (
        f"Share of the time in which the trainer works, against slots; Little's law says"
        f" {settings.slots} (dotted). Median and quartiles over seeds."
    )
    return "busy", page, caption


def timelines() -> Drawing:
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
    return "timeline", page, caption


def by_field(found: Found) -> dict[str, dict[str, dict[str, list[float]]]]:
    """What is committed: by law, cell and field, a number a seed."""
    return {
        law: {
            name: {field: [getattr(run, field) for run in runs] for field in asdict(runs[0])}
            for name, runs in own.items()
        }
        for law, own in found.items()
    }


# Of the table of `experiments/README.md`: rows (rule, its name there) by law, and columns.
PAGE_FIRST = {
    "synchronous": "synchronous",
    "one step off": "one step off",
    "in order, eta 4": "in order",
    "withhold, eta 4": "withhold",
    "windowed, eta 4": "windowed, W = 48",
    "budget, eta 4": "budget",
    "discard, eta 4": "discard",
    "ready first, as many wait": "ready first, 128 may wait",
}
PAGE_REST = ("in order, eta 4", "windowed, eta 4", "budget, eta 4", "discard, eta 4")
PAGE_COLUMNS = {"speed": ".2f", "age": ".2f", "age_of_parts": ".2f", "age_late": ".0f"}
PAGE_COLUMNS |= {"age_longest": ".0f", "wasted": "%", "long_share": ".2f"}


def page_rows(kept: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> list[str]:
    """The rows of that table, of the committed numbers."""
    rows = []
    for place, law in enumerate(name for name in LAWS if name in kept):
        own = kept[law]
        for at, name in enumerate(PAGE_REST if place else PAGE_FIRST):
            cells = [_page_cell(own[name][field], form) for field, form in PAGE_COLUMNS.items()]
            head = f"| {law} |" if at == 0 else "| |"
            rows.append(f"{head} {PAGE_FIRST[name]} | {' | '.join(cells)} |")
    return rows


def _page_cell(values: Sequence[float], form: str) -> str:
    """A median, with its quartiles where they differ from it as they are written."""

    def text(value: float) -> str:
        if form == "%":
            return f"{value:.0%}".replace("%", " %") if value else "0"
        return f"{value:{form}}" if value or form == ".2f" else "0"

    own = results.median_and_spread(values)
    low, middle, high = (text(float(one)) for one in (own.low, own.median, own.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def numbers(settings: Settings, found: Found) -> dict[str, Any]:
    """Everything, as plain values."""
    return {
        "slots": settings.slots,
        "batch": settings.batch,
        "steps": settings.steps,
        "jax": jax.__version__,
        "laws": {
            law: {name: [asdict(run) for run in runs] for name, runs in own.items()}
            for law, own in found.items()
        },
    }
