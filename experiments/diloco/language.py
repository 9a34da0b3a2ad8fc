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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import problems, results, simulation, traces
from asyncjax.problems.finite_sum import Loss, Mean
from asyncjax.problems.losses import Network, token_cross_entropy
from asyncjax.results.report import Illustration
from asyncjax.simulation.waves import ceil_to_grid
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common import doors
from experiments.common.forest import forest
from experiments.common.kept_rows import arrays_once
from experiments.common.numbers import spread
from experiments.common.signs import lower
from experiments.diloco import arms, texts
from experiments.diloco.arms import ARMS, SYNCHRONOUS, Arm, Outer, Scene, Trial
from experiments.diloco.language_tuning import Search, tune

NAME = "diloco"
TITLE = "Does asynchronous DiLoCo train faster than synchronous DiLoCo?"
PAPERS = (
    "Douillard et al. 2023, DiLoCo, 2311.08105",
    "Liu et al. 2024, Asynchronous Local-SGD Training for Language Modeling, 2401.09135",
)
SGD, DYLU = "pure, SGD", "DyLU, delayed Nesterov"
MEASURED = ("final", "less", "less_than_sgd", "sooner", "at_equal_tokens", "at_equal_bytes")
AXES = ("tokens", "bytes")
WAITS = "who does not wait ends below DiLoCo: {} workers"
PAYS = "DyLU ends below SGD without it: uneven workers"
Run = Mapping[str, Any]  # as `train` returns it
FIRST_TRIALS = 16  # as many may the first search of an arm make
TUNING = 1000  # the first tuning seed, after the settings' own


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/diloco/language")
    seed: int = 0
    arms: tuple[str, ...] = tuple(ARMS)
    workers: tuple[int, ...] = (4, 16)
    horizons: tuple[float, ...] = (480.0, 240.0)  # seconds, one for each number of workers
    width: int = 32  # of the transformer
    depth: int = 1
    heads: int = 2
    length: int = 32  # characters of a row
    batch: int = 4  # rows of a local step
    characters: int = 200_000  # a quarter of the text
    test_rows: int = 128
    local_steps: int = 10  # H
    fastest: float = 0.6  # seconds of a local step
    slowest: float = 3.3
    up: float = 90.0  # seconds, mean time between two outages of a worker
    down: float = 30.0  # mean length of an outage
    # rates of AdamW: the middle three, the others where the best is at an end
    inner: tuple[float, ...] = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    trials: int = 36  # at most, to choose rates; all arms get as many as the one with the most
    seeds: int = 5  # reported
    tuning_seeds: int = 2  # only to choose rates; all trials on the first, three on the others
    records: int = 12  # points of a curve
    commit: bool = False  # also write the rows where committed ones are


class Tuned(NamedTuple):
    """What was tried for an arm."""

    trial: Trial  # the choice
    losses: Mapping[Trial, Sequence[float]]  # by seed, the first of all trials
    at_edge: bool = False  # whether no value was tried beyond the choice, on a side of a knob


Known = Mapping[tuple[int, str], Tuned]  # by workers and arm
Runs = Mapping[tuple[Scene, str], Sequence[Run]]  # one a seed


def study_of(settings: Settings) -> Result:
    """Tunes and runs all arms.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    checked(settings)
    known: dict[tuple[int, str], Tuned] = {}
    for n_workers in settings.workers:
        for name, tuned in tuned_in(settings, scenes(n_workers)[0]).items():
            known[n_workers, name] = tuned
    runs: dict[tuple[Scene, str], list[Run]] = {}
    for scene in (scene for n in settings.workers for scene in scenes(n)):
        for seed in range(settings.seed, settings.seed + settings.seeds):
            for arm in arms_of(settings, scene):
                trial = known[scene.n_workers, arm.name].trial
                run = run_once(settings, scene, arm, trial, seed)
                runs.setdefault((scene, arm.name), []).append(run)
        print(f"{scene.name} is done", flush=True)
    return as_rows(settings, known, runs)


def checked(settings: Settings) -> None:
    """Refuses settings that cannot be run.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    counts = dict.fromkeys(("seeds", "tuning_seeds", "records", "local_steps"), 1)
    doors.check(settings, {"arms": ARMS}, counts | {"trials": FIRST_TRIALS})
    if SYNCHRONOUS not in settings.arms:
        raise ValueError(f"arms must hold {SYNCHRONOUS!r}, the reference")
    if not settings.workers or len(settings.workers) != len(settings.horizons):
        got = len(settings.horizons)
        raise ValueError(f"horizons must be one for each number of workers, got {got}")
    if len(settings.inner) < 3:
        raise ValueError(f"inner must hold at least 3 rates, got {settings.inner}")


def tuned_in(settings: Settings, scene: Scene) -> dict[str, Tuned]:
    """The rates of all arms of a scene."""

    def search(arm: Arm) -> Search:
        def run(trial: Trial, number: int) -> float:
            seed = settings.seed + TUNING + number
            return float(run_once(settings, scene, arm, trial, seed)["final"])

        most, seeds = settings.trials, settings.tuning_seeds
        return Search(run, settings.inner, arm.momentum, most, seeds)

    searches = {arm.name: search(arm) for arm in arms_of(settings, scene)}
    tune(searches.values())
    found = {}
    for name, one in searches.items():
        found[name] = Tuned(one.choice(), one.losses, bool(one.open_sides()))
        print(f"{scene.name}: {name} takes {found[name].trial} of {len(one.losses)}", flush=True)
    return found


def run_once(settings: Settings, scene: Scene, arm: Arm, trial: Trial, seed: int) -> Run:
    """One run, made or read."""
    # What decides a run: nothing of how many there are.
    counts: Any = dict.fromkeys(("seed", "seeds", "tuning_seeds", "trials"), 0)
    size = replace(settings, output=Path(), arms=(), inner=(), commit=False, **counts)
    folder = settings.output / "runs" / texts.VERSION
    return arrays_once(folder, partial(train, size, scene, arm, trial, seed))


def scenes(n_workers: int) -> list[Scene]:
    """Which are reported, the one that is tuned on first."""
    kinds = (("uneven", False), ("outages", False), ("uneven", True), ("even", False))
    return [Scene(n_workers, *kind) for kind in kinds]


def arms_of(settings: Settings, scene: Scene) -> list[Arm]:
    """The arms of a scene: where all are even, DyLU changes nothing."""
    chosen = [ARMS[name] for name in settings.arms]
    return [arm for arm in chosen if not (arm.balanced and scene.speeds == "even")]


@lru_cache(32)
def _inner_problem(settings: Settings, scene: Scene, seed: int) -> problems.Problem:
    """The text dealt to workers, and a first model; judged on test rows."""
    text = texts.rows(settings.length, settings.characters, settings.test_rows)
    n, key = scene.n_workers, jax.random.key(seed)
    if scene.skewed:
        places = np.random.default_rng(seed + 1).permutation(n)
        whole = problems.contiguous(len(text.inputs), n)
        shards = problems.Shards(*(np.asarray(leaf)[places] for leaf in whole))
    else:
        shards = problems.iid(len(text.inputs), n, key=jax.random.fold_in(key, 1))
    model = problems.TinyGPT(
        vocabulary=len(texts.SYMBOLS),
        width=settings.width,
        depth=settings.depth,
        heads=settings.heads,
        length=settings.length,
    )
    problem = problems.language_model(
        model,
        text.inputs,
        text.targets,
        n_workers=n,
        shards=shards,
        batch=problems.uniform(settings.batch),
        test=(text.test_inputs, text.test_targets),
        key=jax.random.fold_in(key, 2),
    )
    loss = Loss(Network(model, token_cross_entropy))
    return replace(problem, objective_of=Mean(loss, on_test=True), metrics_of=())


@cache
def _adamw(rate: float) -> optax.GradientTransformation:
    return optax.adamw(rate)  # kept: every call makes new functions, which compile anew


@lru_cache(32)
def _problem(
    settings: Settings, scene: Scene, seed: int, inner: float, local: tuple[int, ...]
) -> problems.Problem:
    problem = _inner_problem(settings, scene, seed)
    counts = np.array(local, np.int32)
    return problems.local_steps(problem, n_steps=counts, optimizer=_adamw(inner), keep_state=True)


@jax.jit
def _first_loss(problem: problems.Problem) -> jax.Array:
    objective: Any = problem.objective
    return objective(problem.params)


def n_params(settings: Settings) -> int:
    """Parameters of the model."""
    params = _inner_problem(settings, Scene(settings.workers[0]), settings.seed).params
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def horizon_of(settings: Settings, scene: Scene) -> float:
    """Simulated seconds of a run."""
    return settings.horizons[settings.workers.index(scene.n_workers)]


def setup(
    settings: Settings, scene: Scene, arm: Arm, seed: int
) -> tuple[traces.EventTrace, np.ndarray]:
    """The trace of an arm that lasts to the horizon, and the local steps of each worker's job."""
    times = arms.seconds(scene, settings.fastest, settings.slowest, seed)
    local = arms.counts(arm, times, settings.local_steps)
    clock = arms.clock_of(scene, times, local, settings.up, settings.down)
    wait, key = arm.grace * settings.local_steps * times.min(), jax.random.key(seed)
    (trace,) = traces.lasting(
        lambda n: [arms.trace_of(arm, clock, float(wait), n, key)],
        horizon_of(settings, scene),
        n_updates=settings.records,
        multiple_of=settings.records,
    )
    return trace, local


def train(
    settings: Settings, scene: Scene, arm: Arm, trial: Trial, seed: int
) -> dict[str, np.ndarray]:
    """One run.

    Returns:
        `time`, `loss`, `tokens`, `bytes` at the records, from the beginning on; `final`, the loss
        at the horizon; and the updates and their mean delay (in updates) up to it.
    """
    trace, local = setup(settings, scene, arm, seed)
    problem = _problem(settings, scene, seed, trial.inner, tuple(local.tolist()))
    outer = Outer(scene.n_workers)
    every = trace.n_updates // settings.records
    records = simulation.sweep(
        problem,
        trace,
        outer,
        [outer.number(arm, trial)],
        keys=jax.random.split(jax.random.key(seed), 1),
        record_every=every,
        width=1,
        sizes=partial(common_sizes, n_workers=scene.n_workers),
    ).records
    at = np.asarray(records.version) - 1
    done, horizon = arms.sent(trace, local), horizon_of(settings, scene)
    losses = [float(_first_loss(problem)), *np.asarray(records.loss, float)[0, 0].tolist()]
    moments = [0.0, *trace.update_time[at].tolist()]
    bytes_of_model = arms.BYTES * sum(leaf.size for leaf in jax.tree.leaves(problem.params))
    moved = (done.jobs + done.models)[at] * bytes_of_model
    within = np.asarray(trace.time) <= horizon
    final = float(np.interp(horizon, moments, losses))
    found = {
        "time": moments,
        "loss": losses,
        "tokens": [0, *(done.local_steps[at] * settings.batch * settings.length).tolist()],
        "bytes": [scene.n_workers * bytes_of_model, *moved.tolist()],
        "final": final if np.isfinite(final) else np.inf,
        "updates": np.sum(trace.update_time <= horizon),
        "delay": np.asarray(trace.delay)[within].mean(),
    }
    return {name: np.asarray(values, float) for name, values in found.items()}


def common_sizes(needed: simulation.Sizes, n_workers: int) -> simulation.Sizes:
    """Sizes that the traces of all arms share, so that they share compilations."""
    return replace(
        needed,
        waves=max(needed.waves, 1024),
        updates=max(needed.updates, 1024),
        slots=max(needed.slots, n_workers + 4),
        directions=max(needed.directions, 4),
        group=max(needed.group, ceil_to_grid(2 * n_workers)),
        single=False,
    )


def as_rows(settings: Settings, known: Known, runs: Runs) -> Result:
    """A row a scene, arm and seed; what was done and sent, in medians over seeds, is a fact."""
    rows: list[dict[str, Any]] = []
    costs: dict[str, Any] = {}
    for (scene, arm), of_arm in runs.items():
        tuned, horizon = known[scene.n_workers, arm], horizon_of(settings, scene)
        waits = runs[scene, SYNCHRONOUS]
        sgd = runs.get((scene, SGD), [{"final": np.nan}] * len(of_arm))
        costs.setdefault(scene.name, {})[arm] = costs_of(of_arm, waits, horizon)
        for seed, (run, other, plain) in enumerate(zip(of_arm, waits, sgd, strict=True)):
            row = {
                "scene": scene.name,
                "set": "A",
                "instance": seed,
                "method": arm,
                "workers": scene.n_workers,
                "uneven": scene.speeds != "even",
                "final": float(run["final"]),
                "less": float(run["final"] - other["final"]),
                "less_than_sgd": float(run["final"] - plain["final"]),
                "sooner": speed_up(horizon, run, other),
            }
            row |= {f"at_equal_{axis}": at_equal(axis, horizon, run, other) for axis in AXES}
            row |= tuned.trial._asdict()
            rows.append(row | {"trials": len(tuned.losses), "at_edge": tuned.at_edge})
    facts: dict[str, Any] = {"parameters": n_params(settings), "costs": costs}
    by_momentum = facts["least_loss_by_momentum"] = {}
    for (n_workers, arm), tuned in known.items():
        by_momentum.setdefault(str(n_workers), {})[arm] = least_losses(tuned)
    return Result(pd.DataFrame(rows), "final", facts, settings.seed)


def costs_of(runs: Sequence[Run], waits: Sequence[Run], horizon: float) -> dict[str, float]:
    """What runs did and sent up to the horizon, medians over seeds; also over those who wait."""

    def moved(axis: str, group: Sequence[Run]) -> float:
        return float(np.median([at(run["time"], run[axis], horizon) for run in group]))

    tokens, sent = (moved(axis, runs) for axis in AXES)
    return {
        "updates": float(np.median([run["updates"] for run in runs])),
        "delay": float(np.median([run["delay"] for run in runs])),
        "thousand_tokens": tokens / 1e3,
        "megabytes": sent / 1e6,
        "times_thousand_tokens": tokens / moved(AXES[0], waits),
        "times_megabytes": sent / moved(AXES[1], waits),
    }


def least_losses(tuned: Tuned) -> dict[str, float]:
    """The least loss on the first tuning seed with each momentum that was tried."""
    momenta = [trial.momentum for trial in tuned.losses]
    tried: Any = pd.Series([losses[0] for losses in tuned.losses.values()], momenta)
    return {f"{momentum:g}": loss for momentum, loss in tried.groupby(level=0).min().items()}


def at(axis: Sequence[float], values: Sequence[float], point: float) -> float:
    """A curve at a point, between its records on a straight line; NaN beyond its end.

    Example:
        >>> at([0, 2], [4.0, 2.0], 1), at([0, 2], [4.0, 2.0], 3)
        (3.0, nan)
    """
    return float(np.interp(point, axis, values, right=np.nan))


def speed_up(horizon: float, run: Run, other: Run) -> float:
    """The horizon over the time from which on a run stays at the other's last loss; 0 if never.

    Example:
        >>> run = {"time": [0, 2, 4, 6, 8], "loss": [4, 2, 3, 1, 9], "final": 1}
        >>> speed_up(6.0, run, {"final": 2})
        1.2
    """
    watched = np.asarray(run["time"]) < horizon
    moments = np.append(np.asarray(run["time"])[watched], horizon)
    losses = np.append(np.asarray(run["loss"])[watched], run["final"])
    marks = {"interpolate": True, "stays": True}
    return horizon / float(results.time_to_target(moments, losses, float(other["final"]), **marks))


def at_equal(axis: str, horizon: float, run: Run, other: Run) -> float:
    """A run's loss when it has done or sent as much as the other at the horizon; NaN beyond."""
    return at(run[axis], run["loss"], at(other["time"], other[axis], horizon))


def claims(result: Result) -> tuple[Claim, ...]:
    """Who ends lower on every seed: a condition a scene and arm."""
    known = result.rows[["scene", "method", "uneven"]].drop_duplicates().itertuples(index=False)
    places: dict[str, list[Any]] = {}
    for scene, arm, uneven in known:
        if arm != SYNCHRONOUS:
            text = WAITS.format("uneven" if uneven else "even")
            lowest = lower(arm, SYNCHRONOUS, "final", f"{arm}, {scene}", scene=scene)
            places.setdefault(text, []).append(lowest)
        if arm == DYLU:
            lowest = lower(arm, SGD, "final", f"{arm}, {scene}", scene=scene)
            places.setdefault(PAYS, []).append(lowest)
    return tuple(Claim(text, found) for text, found in places.items())


def by_scene(result: Result, column: str, caption: str, sign: str = "") -> results.Table:
    """A number of each run: rows are arms, columns scenes."""
    scenes, rows = result.rows["scene"].unique(), []
    texts = result.rows.groupby(["method", "scene"])[column].agg(partial(spread, sign=sign))
    for arm in result.methods[1:] if column == "less" else result.methods:
        absent = "as without DyLU" if arm in ARMS and ARMS[arm].balanced else "not run"
        rows.append((arm, *(texts.get((arm, scene), absent) for scene in scenes)))
    return part.table(("arm", *scenes), rows, caption)


def by_arm(heads: Sequence[str], rows: Sequence[Any], caption: str) -> results.Table:
    """A table whose second column alone is of words."""
    columns = [results.Column(head, right=at != 1) for at, head in enumerate(heads)]
    return results.Table(columns, tuple(rows), caption)


def cost_table(result: Result) -> results.Table:
    """What runs did and sent, and their loss when all have done and sent as much."""
    first, rows = result.rows.groupby("workers", sort=False)["scene"].first(), []
    for workers, scene in first.items():
        for arm in result.methods:
            runs, costs = result.select(scene=scene, method=arm), result.facts["costs"][scene][arm]
            size, delay = costs["megabytes"], costs["delay"]
            done = [costs["updates"], f"{delay:.1f}" if delay else "0", costs["thousand_tokens"]]
            done += [f"{size:.1f}" if size < 10 else f"{size:.0f}"]
            equal = (spread(runs[f"at_equal_{axis}"].to_numpy()) for axis in AXES)
            texts = (cell if isinstance(cell, str) else f"{cell:.0f}" for cell in done)
            rows.append((str(workers) if arm == SYNCHRONOUS else "", arm, *texts, *equal))
    heads = ("workers", "arm", "updates", "mean delay", "thousand tokens", "MB")
    return by_arm(
        (*heads, "loss at equal tokens", "loss at equal bytes"),
        rows,
        "What was done and sent (up and down) until the end on uneven workers, medians, and the"
        " loss when as many tokens were read, or as many bytes sent, as by the synchronous server"
        " in that time, median (quartiles); a dash: a run was too short for that.",
    )


def tuning_table(result: Result) -> results.Table:
    """What the tuning took."""
    rows, names = [], ["inner", "outer", "momentum"]
    for (workers, arm), runs in result.rows.groupby(["workers", "method"], sort=False):
        trials, at_edge, *chosen = runs[["trials", "at_edge", *names]].iloc[0]
        where, edge = str(workers) if arm == SYNCHRONOUS else "", "yes" if at_edge else ""
        rows.append((where, arm, *(f"{one:.3g}" for one in chosen), int(trials), edge))
    heads = ("workers", "arm", "AdamW", "outer rate", "momentum", "trials", "at an end")
    text = "Rates that were chosen, on uneven workers with shards dealt at random."
    return by_arm(heads, rows, text)


LAST = "Loss on test rows at the end of the time, nats a character, median (quartiles) of seeds."
LESS = "The same less that of the synchronous server on the same seed."
SOONER = "How many times sooner a run stays at the synchronous server's last loss; 0: not in time."
TABLES = {
    "losses": partial(by_scene, column="final", caption=LAST),
    "less": partial(by_scene, column="less", caption=LESS, sign="+"),
    "sooner": partial(by_scene, column="sooner", caption=SOONER),
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
        scene: medians.agg(["min", "max"]).set_axis(["least", "most"]).to_dict()
        for scene, medians in others
    }


def ahead(result: Result) -> dict[str, Any]:
    """On how many seeds arms end below the synchronous server, and each below SGD by scene."""
    rows = result.rows[result.rows["method"] != SYNCHRONOUS]
    found: dict[str, Any] = {}
    for uneven, gaps in rows.groupby("uneven")["less"]:
        kind = "uneven" if uneven else "even"
        found[kind] = {"ahead": int((gaps < 0).sum()), "of": len(gaps)}
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
                arm: losses["0.9"] - losses["0"]
                for arm, losses in arms.items()
                if {"0", "0.9"} <= {*losses}
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
    for (workers, arm, scene), runs in others.groupby(["workers", "method", "scene"], sort=False):
        dots = panels.setdefault(f"{workers} workers", {}).setdefault(arm, {})
        dots[scene.split(", ", 1)[1]] = tuple(runs["less"].quantile([0.25, 0.5, 0.75]))
    return Illustration(
        forest(panels, "loss less that of DiLoCo", neutral=0.0, log=False),
        "Last losses less the synchronous server's on the same seed, median and quartiles.",
    )


FIGURES = {"losses": figure}


if __name__ == "__main__":
    part.main(NAME)
