"""Tables, figures and numbers of the runs on text."""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import optax

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.study.protocol import FIRST_CROSSING
from experiments.common.parts import Part, written
from experiments.diloco import texts
from experiments.diloco.arms import SYNCHRONOUS, Scene
from experiments.diloco.language_runs import Settings, horizon_of, n_params
from experiments.diloco.language_tuning import Tuned

Row = dict[str, Any]  # one run, as `language_runs.train` returns it
HIGHEST = 3.4  # nats a character, of the figures
POINTS = 80  # of a curve
PAPERS = (
    "Douillard et al. 2023, DiLoCo, 2311.08105",
    "Liu et al. 2024, Asynchronous Local-SGD Training for Language Modeling, 2401.09135",
)


@dataclass(frozen=True)
class Found:
    """What was measured."""

    tuned: dict[tuple[int, str], Tuned]  # by number of workers and arm
    runs: dict[tuple[Scene, str], list[Row]]  # by scene and arm, one a seed

    @property
    def scenes(self) -> list[Scene]:
        """In the order in which they were run."""
        return list(dict.fromkeys(scene for scene, _ in self.runs))

    @property
    def arms(self) -> list[str]:
        """Names, in the order in which they were run."""
        return list(dict.fromkeys(name for _, name in self.runs))

    def pairs(self, scene: Scene, arm: str) -> Iterator[tuple[Row, Row]]:
        """The runs of an arm and the synchronous ones of the same seeds."""
        return zip(self.runs[scene, arm], self.runs[scene, SYNCHRONOUS], strict=True)


def part(settings: Settings, found: Found) -> Part:
    """Draws figures and makes tables; `settings` are `resolved`."""
    size = f"{n_params(settings):,} parameters"
    tables = (
        by_scene(
            found,
            lambda scene, own, other: own["final"],
            f"Loss on test rows at the end of the time (transformer of {size}), nats a character,"
            f" median (quartiles) of {settings.seeds} seeds.",
        ),
        by_scene(
            found,
            lambda scene, own, other: own["final"] - other["final"],
            "The same less that of the synchronous server on the same seed.",
        ),
        by_scene(
            found,
            lambda scene, own, other: speed_up(horizon_of(settings, scene), own, other),
            "How many times sooner the synchronous server's last loss is reached; 0: not in time.",
        ),
        *(costs(settings, found, scene) for scene in found.scenes[:1] + _other_size(found)),
        chosen(found),
    )
    name = "diloco_large" if settings.large else "diloco"
    drawings = (
        ("time", over_time(settings, found), "Loss against simulated time."),
        ("costs", over_costs(settings, found), "Loss against time, tokens and bytes sent."),
    )
    title = "Does asynchronous DiLoCo train faster than synchronous DiLoCo?"
    words = in_words(settings, found)
    return written(
        settings.output,
        name,
        title,
        drawings,
        tables,
        numbers(settings, found),
        words,
        PAPERS,
        note=FIRST_CROSSING,
    )


def in_words(settings: Settings, found: Found) -> str:
    """How many asynchronous runs end lower than the synchronous one, and the soonest of them."""
    below = above = 0
    soonest = (0.0, "")
    others = [pair for pair in found.runs if pair[1] != SYNCHRONOUS]
    for scene, arm in others:
        pairs = list(found.pairs(scene, arm))
        lower = [own["final"] < other["final"] for own, other in pairs]
        below, above = below + all(lower), above + (not any(lower))
        horizon = horizon_of(settings, scene)
        sooner = float(np.median([speed_up(horizon, own, other) for own, other in pairs]))
        soonest = max(soonest, (sooner, f"{arm}, {scene.name}"))
    if not others:
        return ""
    said = (
        f"Of {len(others)} arms and scenes {below} end lower than the synchronous server on every"
        f" seed, {above} on none."
    )
    if soonest[0] > 0:
        said += f" The soonest reaches its last loss {soonest[0]:.2f} times as fast ({soonest[1]})."
    return said


def _other_size(found: Found) -> list[Scene]:
    """The first scene with another number of workers, if there is one."""
    first = found.scenes[0]
    return [scene for scene in found.scenes if scene.n_workers != first.n_workers][:1]


def by_scene(found: Found, what: Callable[[Scene, Row, Row], float], caption: str) -> results.Table:
    """A figure of each run and the synchronous one beside it: rows are arms, columns scenes."""
    rows = []
    for arm in found.arms:
        row: list[Any] = [arm]
        for scene in found.scenes:
            if (scene, arm) not in found.runs:
                row.append("as without DyLU" if scene.speeds == "even" else "not run")
                continue
            values = [what(scene, own, other) for own, other in found.pairs(scene, arm)]
            row.append(spread(values))
        rows.append(tuple(row))
    columns = ("arm", *(scene.name for scene in found.scenes))
    return results.Table(
        tuple(results.Column(name, right=bool(place)) for place, name in enumerate(columns)),
        tuple(rows),
        caption,
    )


def spread(values: Sequence[float], form: str = ".3g") -> str:
    """Median (quartiles) in words.

    Example:
        >>> spread([1.0, 2.0, 3.0])
        '2 (1.5 to 2.5)'
    """
    found = results.median_and_spread(np.array(values, float))
    low, high = f"{float(found.low):{form}}", f"{float(found.high):{form}}"
    return f"{float(found.median):{form}} ({low} to {high})"


def at(axis: Sequence[float], values: Sequence[float], point: float) -> float:
    """A curve at a point, between its records on a straight line; NaN beyond its end.

    Example:
        >>> at([0, 2], [4.0, 2.0], 1), at([0, 2], [4.0, 2.0], 3)
        (3.0, nan)
    """
    return float(np.interp(point, axis, values, right=np.nan))


def speed_up(horizon: float, own: Row, other: Row) -> float:
    """The horizon over the time in which a run reaches the other's loss there; 0 if it does not."""
    time = results.time_to_target(own["time"], own["loss"], other["final"], interpolate=True)
    return horizon / float(time) if time <= horizon * (1 + 1e-9) else 0.0


def at_equal(axis: str, horizon: float, own: Row, other: Row) -> float:
    """A run's loss when it has done or sent as much as the other at the horizon; NaN beyond."""
    return at(own[axis], own["loss"], at(other["time"], other[axis], horizon))


def costs(settings: Settings, found: Found, scene: Scene) -> results.Table:
    """What a scene's runs did and sent, and their loss when all have done and sent as much."""
    horizon, rows = horizon_of(settings, scene), []
    for arm in found.arms:
        if (scene, arm) not in found.runs:
            continue
        own, pairs = found.runs[scene, arm], list(found.pairs(scene, arm))

        def equal(axis: str, pairs: list[tuple[Row, Row]] = pairs) -> str:
            values = [at_equal(axis, horizon, *pair) for pair in pairs]
            return "-" if np.isnan(values).any() else spread(values)

        rows.append(
            (
                arm,
                *(float(np.median([run[name] for run in own])) for name in ("updates", "jobs")),
                float(np.median([run["delay"] for run in own])),
                *(
                    float(np.median([at(run["time"], run[name], horizon) for run in own])) / unit
                    for name, unit in (("tokens", 1e3), ("bytes", 1e6))
                ),
                equal("tokens"),
                equal("bytes"),
            )
        )
    names = ("arm", "updates", "jobs", "mean delay", "thousand tokens", "MB sent")
    names += ("loss at equal tokens", "loss at equal bytes")
    return results.Table(
        tuple(results.Column(name, right=bool(place)) for place, name in enumerate(names)),
        tuple(rows),
        f"{scene.name}: what was done and sent (up and down) in {horizon:g} s, medians, and the"
        " loss when as many tokens were read, or as many bytes sent, as by the synchronous server"
        " in that time, median (quartiles); a dash: a run was too short for that.",
    )


def chosen(found: Found) -> results.Table:
    """What the tuning took."""
    rows = []
    for (n_workers, arm), tuned in found.tuned.items():
        trial = tuned.trial
        rows.append(
            (
                n_workers,
                arm,
                trial.inner,
                trial.outer,
                trial.momentum,
                float(np.mean(tuned.scores[trial])),
                len(tuned.scores),
                "yes" if tuned.at_edge else "",
            )
        )
    names = ("workers", "arm", "AdamW", "outer", "momentum", "loss", "trials", "at an edge")
    return results.Table(
        tuple(results.Column(name, right=place != 1) for place, name in enumerate(names)),
        tuple(rows),
        "Rates that were chosen (on uneven workers, shards dealt at random) and their mean loss on"
        " the tuning seeds.",
    )


def over_time(settings: Settings, found: Found) -> Any:
    """Loss against time, a panel a scene."""
    parts = [(scene, "time", "simulated seconds", 1.0) for scene in found.scenes]
    return _grid(settings, found, parts, 3)


def over_costs(settings: Settings, found: Found) -> Any:
    """Loss against time, tokens and bytes, on uneven workers."""
    shown = found.scenes[:1] + _other_size(found)
    axes = (
        ("time", "simulated seconds", 1.0),
        ("tokens", "thousand tokens", 1e3),
        ("bytes", "MB sent", 1e6),
    )
    return _grid(settings, found, [(scene, *axis) for scene in shown for axis in axes], 3)


def _grid(
    settings: Settings,
    found: Found,
    parts: Sequence[tuple[Scene, str, str, float]],
    columns: int,
) -> Any:
    """Panels in rows, all with one vertical axis; medians and quartiles."""
    styles = plots.assign_styles(found.arms)
    lowest = min(run["final"] for runs in found.runs.values() for run in runs)
    columns = min(columns, len(parts))
    rows = -(-len(parts) // columns)
    with drawing():
        figure = new_figure(3.8 * columns, 2.7 * rows + 0.9)
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for place, (axes, (scene, axis, label, unit)) in enumerate(zip(grid, parts, strict=False)):
            for arm in found.arms:
                if (scene, arm) in found.runs:
                    last = horizon_of(settings, scene) if axis == "time" else None
                    _curve(axes, found.runs[scene, arm], axis, unit, last, styles[arm], arm)
            axes.set_title(scene.name)
            axes.set_xlabel(label)
            axes.set_ylim(lowest - 0.05, HIGHEST)
            add_grid(axes)
            if place % columns == 0:
                axes.set_ylabel("test loss, nats a character")
        for axes in grid[len(parts) :]:
            axes.set_visible(False)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def _curve(
    axes: Any, runs: Sequence[Row], axis: str, unit: float, last: float | None, style: Any, arm: str
) -> None:
    """Median and quartiles of an arm."""
    where = np.array([run[axis] for run in runs], float)
    end = where[:, -1].min() if last is None else last
    points = np.linspace(where[:, 0].max(), end, POINTS)
    line = results.series_over_seeds(arm, where, [run["loss"] for run in runs], points)
    axes.fill_between(points / unit, line.low, line.high, color=style.colour, alpha=0.13, lw=0)
    axes.plot(points / unit, line.median, color=style.colour, linestyle=style.dash, label=arm)


def numbers(settings: Settings, found: Found) -> dict[str, Any]:
    """Everything that is shown and more, as plain values."""
    return {
        "settings": {k: v for k, v in asdict(settings).items() if k != "output"},
        "parameters": n_params(settings),
        "text": texts.VERSION,
        "versions": {"jax": jax.__version__, "optax": optax.__version__, "numpy": np.__version__},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "tuned": [
            {
                "workers": n_workers,
                "arm": arm,
                "trial": list(tuned.trial),
                "at_edge": tuned.at_edge,
                "trials": [[*trial, values] for trial, values in tuned.scores.items()],
            }
            for (n_workers, arm), tuned in found.tuned.items()
        ],
        "runs": [
            {
                "scene": scene.name,
                "horizon": horizon_of(settings, scene),
                "arm": arm,
                "runs": runs,
            }
            for (scene, arm), runs in found.runs.items()
        ],
    }
