"""Does asynchronous DiLoCo train faster than synchronous DiLoCo, and with which outer step?

A small transformer reads characters of text that comes with Python. Every worker makes local steps
of AdamW, keeps their state, and sends how far it went. The server waits for all and steps with
Nesterov momentum (DiLoCo), or steps at every arrival with SGD, Nesterov or delayed Nesterov; slow
workers make as many local steps as the others, or fewer (DyLU); or the server waits a little for
company (grace). Workers are even, uneven or have outages, their shards are dealt at random or of
one kind of text each.

Rates of both optimizers and the momentum are chosen for every arm alone, with as many trials for
all, on uneven workers with shards dealt at random and seeds that are not reported. A claim holds in
a scene where it does on every reported seed. A finished run is a file: a run that was killed goes
on where it was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Condition
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common.forest import forest
from experiments.common.signs import apart
from experiments.diloco.arms import ARMS, MOMENTA, SYNCHRONOUS, Scene
from experiments.diloco.language_runs import (
    Bench,
    Settings,
    arms_of,
    checked,
    horizon_of,
    n_params,
    scenes,
)
from experiments.diloco.language_tuning import Tuned, tune

NAME = "diloco"
TITLE = "Does asynchronous DiLoCo train faster than synchronous DiLoCo?"
NOTE = FIRST_CROSSING
PAPERS = (
    "Douillard et al. 2023, DiLoCo, 2311.08105",
    "Liu et al. 2024, Asynchronous Local-SGD Training for Language Modeling, 2401.09135",
)
SGD, DYLU = "pure, SGD", "DyLU, delayed Nesterov"
MEASURED = ("final", "less", "less_than_sgd", "sooner", "at_equal_tokens", "at_equal_bytes")
AXES = ("tokens", "bytes")
WAITS = "who does not wait ends below DiLoCo: {} workers"
PAYS = "DyLU ends below SGD without it: uneven workers"
Run = Mapping[str, Any]  # as `language_runs.train` returns it


@dataclass(frozen=True)
class Found:
    """What was measured."""

    tuned: dict[tuple[int, str], Tuned] = field(default_factory=dict)  # by workers and arm
    runs: dict[tuple[Scene, str], list[Run]] = field(default_factory=dict)  # one a seed


def study_of(settings: Settings) -> Result:
    """Tunes and runs all arms.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    checked(settings)
    return as_rows(settings, measured(settings, partial(print, flush=True)))


def measured(settings: Settings, report: Callable[[str], None]) -> Found:
    """All runs; `settings` are `checked`."""
    bench, found = Bench(settings, report), Found()
    for n_workers in settings.workers:
        first = scenes(n_workers)[0]
        for name, tuned in tune(bench, first, arms_of(settings, first)).items():
            found.tuned[n_workers, name] = tuned
    for scene in (scene for n in settings.workers for scene in scenes(n)):
        for seed in range(settings.seed, settings.seed + settings.seeds):
            for arm in arms_of(settings, scene):
                trial = found.tuned[scene.n_workers, arm.name].trial
                made = bench.run(scene, arm, trial, seed)
                found.runs.setdefault((scene, arm.name), []).append(made)
            bench.tell(f"{scene.name}: seed {seed}")
    return found


def as_rows(settings: Settings, found: Found) -> Result:
    """A row a scene, arm and seed; what was done and sent, in medians over seeds, is a fact."""
    rows: list[dict[str, Any]] = []
    costs: dict[str, Any] = {}
    for (scene, arm), runs in found.runs.items():
        tuned, horizon = found.tuned[scene.n_workers, arm], horizon_of(settings, scene)
        waits = found.runs[scene, SYNCHRONOUS]
        sgd = found.runs.get((scene, SGD), [{"final": np.nan}] * len(runs))
        costs.setdefault(scene.name, {})[arm] = costs_of(runs, waits, horizon)
        for seed, (own, other, plain) in enumerate(zip(runs, waits, sgd, strict=True)):
            kept = {
                "scene": scene.name,
                "set": "A",
                "instance": seed,
                "method": arm,
                "workers": scene.n_workers,
                "uneven": scene.speeds != "even",
                "final": float(own["final"]),
                "less": float(own["final"] - other["final"]),
                "less_than_sgd": float(own["final"] - plain["final"]),
                "sooner": speed_up(horizon, own, other),
            }
            kept |= {f"at_equal_{axis}": at_equal(axis, horizon, own, other) for axis in AXES}
            kept |= tuned.trial._asdict()
            rows.append(kept | {"trials": len(tuned.scores), "at_edge": tuned.at_edge})
    facts: dict[str, Any] = {"parameters": n_params(settings), "costs": costs}
    by_momentum = facts["least_loss_by_momentum"] = {}
    for (n_workers, arm), own in found.tuned.items():
        by_momentum.setdefault(str(n_workers), {})[arm] = least_losses(own)
    return Result(pd.DataFrame(rows), "final", facts, settings.seed)


def costs_of(runs: Sequence[Run], waits: Sequence[Run], horizon: float) -> dict[str, float]:
    """What runs did and sent up to the horizon, medians over seeds; also over those who wait."""

    def moved(axis: str, own: Sequence[Run]) -> float:
        return float(np.median([at(run["time"], run[axis], horizon) for run in own]))

    tokens, sent = (moved(axis, runs) for axis in AXES)
    return {
        "updates": float(np.median([own["updates"] for own in runs])),
        "delay": float(np.median([own["delay"] for own in runs])),
        "thousand_tokens": tokens / 1e3,
        "megabytes": sent / 1e6,
        "times_thousand_tokens": tokens / moved(AXES[0], waits),
        "times_megabytes": sent / moved(AXES[1], waits),
    }


def least_losses(tuned: Tuned) -> dict[str, float]:
    """The least loss on the first tuning seed with each momentum that was tried."""
    tried = [(trial.momentum, losses[0]) for trial, losses in tuned.scores.items()]
    return {
        f"{one:g}": min(loss for momentum, loss in tried if momentum == one)
        for one in MOMENTA
        if any(momentum == one for momentum, _ in tried)
    }


def at(axis: Sequence[float], values: Sequence[float], point: float) -> float:
    """A curve at a point, between its records on a straight line; NaN beyond its end.

    Example:
        >>> at([0, 2], [4.0, 2.0], 1), at([0, 2], [4.0, 2.0], 3)
        (3.0, nan)
    """
    return float(np.interp(point, axis, values, right=np.nan))


def speed_up(horizon: float, own: Run, other: Run) -> float:
    """The horizon over the time in which a run reaches the other's loss there; 0 if it does not."""
    time = results.time_to_target(own["time"], own["loss"], other["final"], interpolate=True)
    return horizon / float(time) if time <= horizon * (1 + 1e-9) else 0.0


def at_equal(axis: str, horizon: float, own: Run, other: Run) -> float:
    """A run's loss when it has done or sent as much as the other at the horizon; NaN beyond."""
    return at(own[axis], own["loss"], at(other["time"], other[axis], horizon))


def claims(result: Result) -> tuple[Claim, ...]:
    """Who ends lower on every seed: a condition a scene and arm."""
    known = result.rows[["scene", "method", "uneven"]].drop_duplicates().itertuples(index=False)
    places: dict[str, list[Any]] = {}
    for scene, arm, uneven in known:
        if arm != SYNCHRONOUS:
            text = WAITS.format("uneven" if uneven else "even")
            places.setdefault(text, []).append(partial(below, scene, arm, SYNCHRONOUS))
        if arm == DYLU:
            places.setdefault(PAYS, []).append(partial(below, scene, arm, SGD))
    return tuple(Claim(text, found) for text, found in places.items())


def below(scene: str, arm: str, other: str, result: Result, letter: str, level: float) -> Condition:
    """That an arm ends lower than another on every seed of a scene."""
    del letter, level
    pair = (result.select(scene=scene, method=name)["final"] for name in (arm, other))
    return apart(f"{arm}, {scene}", *pair)


def spread(values: Sequence[float], digits: int = 2, sign: str = "") -> str:
    """Median (quartiles); "-" where one was not measured.

    Example:
        >>> spread([2.0, 1.0, 3.0]), spread([0.0, -0.5, 0.5], 1, "+"), spread([1.0, np.nan])
        ('2.00 (1.50 to 2.50)', '+0.0 (-0.2 to 0.2)', '-')
    """
    if np.isnan(values).any():
        return "-"
    found = results.median_and_spread(values)
    low, middle, high = (float(one) for one in (found.low, found.median, found.high))
    return f"{middle:{sign}z.{digits}f} ({low:z.{digits}f} to {high:z.{digits}f})"


def columns(*names: str, left: int = 0) -> tuple[results.Column, ...]:
    """Columns, one of which begins at the left."""
    return tuple(results.Column(name, right=at != left) for at, name in enumerate(names))


def by_scene(column: str, caption: str, sign: str, result: Result) -> results.Table:
    """A number of each run: rows are arms, columns scenes."""
    places, rows = list(result.rows["scene"].unique()), []
    known = {key: own[column].to_numpy() for key, own in result.rows.groupby(["scene", "method"])}
    for arm in result.methods[1:] if column == "less" else result.methods:
        absent = "as without DyLU" if arm in ARMS and ARMS[arm].balanced else "not run"
        pairs = ((place, arm) for place in places)
        rows.append(
            (arm, *(spread(known[pair], sign=sign) if pair in known else absent for pair in pairs))
        )
    return results.Table(columns("arm", *places), tuple(rows), caption)


def cost_table(result: Result) -> results.Table:
    """What runs did and sent, and their loss when all have done and sent as much."""
    first, rows = result.rows.groupby("workers", sort=False)["scene"].first(), []
    for workers, scene in first.items():
        for arm in result.methods:
            own, costs = result.select(scene=scene, method=arm), result.facts["costs"][scene][arm]
            size, delay = costs["megabytes"], costs["delay"]
            done = [costs["updates"], f"{delay:.1f}" if delay else "0", costs["thousand_tokens"]]
            done += [f"{size:.1f}" if size < 10 else f"{size:.0f}"]
            equal = (spread(own[f"at_equal_{axis}"].to_numpy()) for axis in AXES)
            texts = (own if isinstance(own, str) else f"{own:.0f}" for own in done)
            rows.append((str(workers) if arm == SYNCHRONOUS else "", arm, *texts, *equal))
    heads = ("workers", "arm", "updates", "mean delay", "thousand tokens", "MB")
    return results.Table(
        columns(*heads, "loss at equal tokens", "loss at equal bytes", left=1),
        tuple(rows),
        "What was done and sent (up and down) until the end on uneven workers, medians, and the"
        " loss when as many tokens were read, or as many bytes sent, as by the synchronous server"
        " in that time, median (quartiles); a dash: a run was too short for that.",
    )


def tuning_table(result: Result) -> results.Table:
    """What the tuning took."""
    rows, names = [], ["inner", "outer", "momentum"]
    for (workers, arm), own in result.rows.groupby(["workers", "method"], sort=False):
        trials, at_edge, *chosen = own[["trials", "at_edge", *names]].iloc[0]
        where, edge = str(workers) if arm == SYNCHRONOUS else "", "yes" if at_edge else ""
        rows.append((where, arm, *(f"{one:.3g}" for one in chosen), int(trials), edge))
    heads = ("workers", "arm", "AdamW", "outer rate", "momentum", "trials", "at an end")
    text = "Rates that were chosen, on uneven workers with shards dealt at random."
    return results.Table(columns(*heads, left=1), tuple(rows), text)


LAST = "Loss on test rows at the end of the time, nats a character, median (quartiles) of seeds."
LESS = "The same less that of the synchronous server on the same seed."
SOONER = "How many times sooner the synchronous server's last loss is reached; 0: not in time."
TABLES = {
    "losses": partial(by_scene, "final", LAST, ""),
    "less": partial(by_scene, "less", LESS, "+"),
    "sooner": partial(by_scene, "sooner", SOONER, ""),
    "costs": cost_table,
    "tuning": tuning_table,
}


def middles(result: Result) -> pd.DataFrame:
    """Medians over seeds by scene and arm; what was read and sent over who waits for all."""
    found = result.rows.groupby(["scene", "method"], sort=False)[list(MEASURED)].median()
    costs = result.facts["costs"]
    for name in ("times_thousand_tokens", "times_megabytes"):
        found[name] = [costs[scene][arm][name] for scene, arm in found.index]
    return found


def spans(result: Result) -> dict[str, Any]:
    """Least and most of the medians of all arms that do not wait for everybody, by scene."""
    others: Any = middles(result).drop(SYNCHRONOUS, level="method").groupby("scene")
    return {
        scene: own.agg(["min", "max"]).set_axis(["least", "most"]).to_dict()
        for scene, own in others
    }


def ahead(result: Result) -> dict[str, Any]:
    """On how many seeds arms end below the synchronous server, and each below SGD by scene."""
    rows = result.rows[result.rows["method"] != SYNCHRONOUS]
    found: dict[str, Any] = {}
    for uneven, own in rows.groupby("uneven")["less"]:
        kind = "uneven" if uneven else "even"
        found[kind] = {"ahead": int((own < 0).sum()), "of": len(own)}
    below = rows["less_than_sgd"].lt(0).groupby([rows["method"], rows["scene"]]).sum()
    return found | {"of_sgd": below.unstack().T.to_dict()}


def more(result: Result) -> dict[str, Any]:
    """What momentum 0.9 adds to the best trial's loss, and skewed shards to the last one."""
    final: Any = middles(result)["final"].unstack("scene")
    costs = result.facts["costs"]
    skewed = [scene for scene in final if scene.endswith(", skewed")]
    return {
        "momentum": {
            workers: {
                arm: own["0.9"] - own["0"] for arm, own in arms.items() if {"0", "0.9"} <= {*own}
            }
            for workers, arms in result.facts["least_loss_by_momentum"].items()
        },
        "skewed": {
            one: (final[one] - final[one.removesuffix(", skewed")]).to_dict() for one in skewed
        },
        "bytes": {
            scene: arms[DYLU]["megabytes"] / arms[SGD]["megabytes"]
            for scene, arms in costs.items()
            if {DYLU, SGD} <= {*arms}
        },
    }


FACTS = {"spans": spans, "ahead": ahead, "more": more}


def figure(result: Result) -> Illustration:
    """Last losses less the synchronous server's, a panel a number of workers."""
    panels: dict[str, Any] = {}
    others = result.rows[result.rows["method"] != SYNCHRONOUS]
    for (workers, arm, scene), own in others.groupby(["workers", "method", "scene"], sort=False):
        dots = panels.setdefault(f"{workers} workers", {}).setdefault(arm, {})
        dots[scene.split(", ", 1)[1]] = tuple(own["less"].quantile([0.25, 0.5, 0.75]))
    return Illustration(
        forest(panels, "loss less that of DiLoCo", neutral=0.0, log=False),
        "Last losses less the synchronous server's on the same seed, median and quartiles.",
    )


FIGURES = {"losses": figure}


if __name__ == "__main__":
    part.main(NAME)
