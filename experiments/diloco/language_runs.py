"""What is run on text: settings, the model, one run; finished runs are files."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from asyncjax import problems, simulation, traces
from asyncjax.problems.held_out import HeldOutLoss
from asyncjax.problems.losses.language_model import TokenCrossEntropy
from asyncjax.simulation.plans.waves import ceil_to_grid
from experiments.common.kept_rows import arrays_once
from experiments.diloco import arms, texts
from experiments.diloco.arms import ARMS, Arm, Outer, Scene, Trial

FIRST_TRIALS = 16  # as many may the first search of an arm make


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


def checked(settings: Settings) -> None:
    """Refuses settings that cannot be run.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    if unknown := [name for name in settings.arms if name not in ARMS]:
        raise ValueError(f"arms must be among {'; '.join(ARMS)}, got {unknown[0]!r}")
    if arms.SYNCHRONOUS not in settings.arms:
        raise ValueError(f"arms must hold {arms.SYNCHRONOUS!r}, the reference")
    counts = len(settings.workers), len(settings.horizons)
    if not counts[0] or counts[0] != counts[1]:
        raise ValueError(f"horizons must be one for each number of workers, got {counts[1]}")
    least = {"seeds": 1, "tuning_seeds": 1, "records": 1, "local_steps": 1, "trials": FIRST_TRIALS}
    for name, bound in least.items():
        if getattr(settings, name) < bound:
            raise ValueError(f"{name} must be at least {bound}, got {getattr(settings, name)}")
    if len(settings.inner) < 3:
        raise ValueError(f"inner must hold at least 3 rates, got {settings.inner}")


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
    made = problems.language_model(
        model,
        text.inputs,
        text.targets,
        n_workers=n,
        shards=shards,
        batch=problems.uniform(settings.batch),
        test=(text.test_inputs, text.test_targets),
        key=jax.random.fold_in(key, 2),
    )
    return replace(made, objective_of=HeldOutLoss(TokenCrossEntropy(model)), metrics_of=())


@cache
def _adamw(rate: float) -> optax.GradientTransformation:
    return optax.adamw(rate)  # kept: every call makes new functions, which compile anew


@lru_cache(32)
def _problem(
    settings: Settings, scene: Scene, seed: int, inner: float, local: tuple[int, ...]
) -> problems.Problem:
    made = _inner_problem(settings, scene, seed)
    counts = np.array(local, np.int32)
    return problems.local_steps(made, n_steps=counts, optimizer=_adamw(inner), keep_state=True)


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


def common_sizes(own: simulation.Sizes, n_workers: int) -> simulation.Sizes:
    """Sizes that the traces of all arms share, so that they share compilations."""
    return replace(
        own,
        waves=max(own.waves, 1024),
        updates=max(own.updates, 2),
        slots=max(own.slots, n_workers + 4),
        directions=max(own.directions, 4),
        copies=max(own.copies, 2),
        group=max(own.group, ceil_to_grid(2 * n_workers)),
        single=False,
    )


class Bench:
    """Runs that are kept as files: one that was made before is read."""

    def __init__(self, settings: Settings, report: Callable[[str], None]) -> None:
        self.settings, self.report = settings, report
        self.folder = settings.output / "runs" / texts.VERSION
        # What decides a run: nothing of how many there are.
        counts: dict[str, Any] = dict.fromkeys(("seed", "seeds", "tuning_seeds", "trials"), 0)
        self.size = replace(settings, output=Path(), arms=(), inner=(), commit=False, **counts)
        self.began, self.count = time.perf_counter(), 0

    def run(self, scene: Scene, arm: Arm, trial: Trial, seed: int) -> Mapping[str, Any]:
        """One run, made or read."""
        self.count += 1
        return arrays_once(self.folder, partial(train, self.size, scene, arm, trial, seed))

    def tell(self, text: str) -> None:
        """Progress, in words."""
        spent = time.perf_counter() - self.began
        self.report(f"[{self.count} runs, {spent:.0f} s] {text}")
