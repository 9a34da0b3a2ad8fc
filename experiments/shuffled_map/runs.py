"""Shuffled and pure dispatch where slow workers alone hold a label: gaps at equal time.

Logistic regression of two classes with AsGrad's penalty, 0.1 sum x^2 / (1 + x^2), exact gradients
of small shards. Workers 0 to n - 1 are ordered by their mean times, which rise from 1 to the
unevenness; the faster half holds one class, the slower half the other. An instance draws the rows,
which class is whose, the mean times and the first model; its noise is the times from job to job.

What is measured is the gap f(x) - f*, mean over the last tenth of the time, f the mean over workers
and f* the lowest value that L-BFGS finds in float64. (AsGrad shows the norm of the gradient, which
is also small where a large step has thrown the model out to where the penalty is flat.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, simulation, storage, traces
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from experiments.common.judging import raveled
from experiments.common.methods import pure, server_with
from experiments.common.side_by_side import moved, side_by_side
from experiments.common.standardised import rows_of

PENALTY = 0.1
FLOOR = 1e-7  # gaps below are rounding
MOMENTS = 10  # points over which a gap is averaged
METHODS = {"pure": pure, "shuffled": server_with(dispatch=traces.shuffled())}
SETS = {"A": SET_A, "B": SET_B}


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/shuffled_map")
    seed: int = 0
    data: tuple[str, ...] = ("breast cancer", "digits")
    unevenness: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)  # slowest over fastest mean time
    horizons: tuple[float, ...] = (40.0, 120.0, 360.0, 1080.0)  # mean jobs of the fastest worker
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = 4  # step sizes that a method tries in a round of tuning
    rounds: tuple[int, int] = (3, 6)
    steps: tuple[float, float] = (2.0**-5, 4.0)  # ends of the grid, which has 2 * trials values
    n_workers: int = 10
    rows: int = 240  # of an instance, half of each class
    window: float = 0.1  # share of the time over which a gap is averaged
    records: int = 540
    commit: bool = False  # also write the numbers where committed ones are


@dataclass(frozen=True, eq=False)
class Drawn:
    """An instance: its rows by worker, its first model, its lowest value."""

    features: np.ndarray  # float32[rows, d], the rows of worker 0 first
    signs: np.ndarray  # float32[rows], -1 or 1
    start: np.ndarray  # float32[d]
    lowest: float

    def problem(self, n_workers: int) -> problems.Problem:
        """Logistic regression over contiguous shards of equal size."""
        return problems.logistic(
            self.features,
            self.signs,
            n_workers=n_workers,
            nonconvex=PENALTY,
            start=self.start,
        )


def drawn(settings: Settings, name: str, instance: Seeds) -> Drawn:
    """An instance; digits 0 to 4 are one class, and each worker holds few of them."""
    features, labels = rows_of(name)
    generator = np.random.default_rng(instance.data)
    class_of = (labels >= 5 if name == "digits" else labels >= 1).astype(int)
    picked = []
    for side in generator.permutation(2):  # the first is that of the faster half
        groups = [np.flatnonzero((class_of == side) & (labels == label)) for label in range(10)]
        groups = [generator.permutation(group) for group in groups if group.size]
        share = -(-(settings.rows // 2) // len(groups))
        picked += [groups[g][:share] for g in generator.permutation(len(groups))]
    rows = np.concatenate(picked)
    signs = np.where(class_of[rows] == 1, 1.0, -1.0)
    features = features[rows]
    start = np.random.default_rng(instance.model).normal(size=features.shape[1])
    lowest = min(minimum(features, signs, begin) for begin in (start, 0 * start))
    return Drawn(
        features.astype(np.float32), signs.astype(np.float32), start.astype(np.float32), lowest
    )


def value(features: np.ndarray, signs: np.ndarray, models: np.ndarray) -> np.ndarray:
    """The objective of models float[..., d], float64[...]; shards are of equal size."""
    scores = np.asarray(models, np.float64) @ np.asarray(features, np.float64).T
    squares = np.square(np.asarray(models, np.float64))
    losses = np.logaddexp(0.0, -signs * scores).mean(-1)
    return losses + PENALTY * (squares / (1.0 + squares)).sum(-1)


def minimum(features: np.ndarray, signs: np.ndarray, start: np.ndarray) -> float:
    """The lowest value found from a start, by L-BFGS in float64."""
    from scipy.optimize import minimize

    def graded(x: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = -signs / (1.0 + np.exp(np.clip(signs * (features @ x), -500, 500)))
        grad = slopes @ features / len(signs) + PENALTY * 2 * x / (1 + x**2) ** 2
        return float(value(features, signs, x)), grad

    options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9}
    return float(minimize(graded, start, jac=True, method="L-BFGS-B", options=options).fun)


def workers(settings: Settings, instance: Seeds, unevenness: float) -> clocks.Clock:
    """Gamma-distributed times, the fastest worker first; logarithms of the means are uniform.

    The means of an instance at one unevenness are powers of those at another.
    """
    powers = np.random.default_rng(instance.clock).uniform(size=max(settings.n_workers - 2, 0))
    powers = np.sort(np.concatenate([[0.0], powers, [1.0]]))[: settings.n_workers]
    return clocks.gamma(4.0, unevenness**powers)


@dataclass(frozen=True, eq=False)
class Field:
    """All instances of one data set: those for tuning first, then set A, then set B."""

    instances: tuple[Seeds, ...]
    drawn: tuple[Drawn, ...]
    joined: problems.Problem

    def numbers(self, role: str) -> list[int]:
        """Places of the instances of a role."""
        return [at for at, instance in enumerate(self.instances) if instance.role == role]


def field_of(settings: Settings, name: str) -> Field:
    """The instances of a data set, side by side."""
    counts = {TUNING: settings.tuning_instances, SET_A: settings.instances}
    counts[SET_B] = settings.instances
    every = tuple(
        one for role, n in counts.items() for one in protocol.seeds_of(settings.seed, role, n)
    )
    made = tuple(drawn(settings, name, one) for one in every)
    joined = side_by_side([one.problem(settings.n_workers) for one in made])
    return Field(every, made, joined)


Runs = Sequence[tuple[int, float]]  # number of an instance, step size


def gaps_of(settings: Settings, field: Field, method: str, unevenness: float) -> Callable[..., Any]:
    """A function of runs that returns their gaps at every horizon, float64[runs, horizons].

    Steps multiply the weights of a trace, so that all runs of all cells share one program.
    """
    made = traces.lasting(
        lambda n: [
            METHODS[method](workers(settings, one, unevenness), n, jax.random.key(one.noise()))
            for one in field.instances
        ],
        max(settings.horizons),
        multiple_of=settings.records,
    )
    return partial(_gaps, settings, field, made)


def _gaps(
    settings: Settings, field: Field, made: Sequence[traces.EventTrace], runs: Runs
) -> np.ndarray:
    lanes = 2 * settings.trials * settings.tuning_instances  # of every call: one compilation
    found = []
    for begin in range(0, len(runs), lanes):
        part = list(runs[begin : begin + lanes])
        found.append(_replayed(settings, field, made, part + part[-1:] * (lanes - len(part))))
    return np.concatenate(found)[: len(runs)]


def _replayed(
    settings: Settings, field: Field, made: Sequence[traces.EventTrace], runs: Runs
) -> np.ndarray:
    def at(number: int, step: float) -> traces.EventTrace:
        trace = moved(made[number], number, settings.n_workers)
        return trace._replace(weight=trace.weight * np.float32(step))

    gradients = 1.5 * settings.n_workers * max(settings.horizons)  # of even workers, and some

    def roomy(own: Any) -> Any:
        wide = {"waves": 2 ** int(np.ceil(np.log2(gradients))), "slots": 2 * settings.n_workers}
        more = {name: max(getattr(own, name), size) for name, size in wide.items()}
        return replace(own, copies=4, **more)

    records = simulation.sweep(
        replace(field.joined, metrics_of=(("model", raveled),)),
        [at(*run) for run in runs],
        optax.sgd,
        [1.0],
        keys=jnp.stack([jax.random.key(0)] * len(runs)),  # gradients are exact
        record_every=made[0].n_updates // settings.records,
        width=1,
        sizes=roomy,
    ).records
    ways = np.asarray(records.metrics["model"])[:, 0]
    times = np.asarray(records.time)[:, 0]
    return np.array(
        [
            read_off(settings, field.drawn[number], way, time)
            for (number, _), way, time in zip(runs, ways, times, strict=True)
        ]
    )


def read_off(settings: Settings, one: Drawn, way: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The gap of one run at every horizon, float64[H]; infinity where it has diverged.

    Args:
        settings: With the horizons and the window.
        one: The instance.
        way: float[R, d], models less the start.
        time: float[R], of the records.
    """
    moments = np.linspace(1.0 - settings.window, 1.0, MOMENTS + 1)[1:]
    places = np.searchsorted(time, np.outer(settings.horizons, moments), side="right")
    models = np.concatenate([one.start[None], one.start + way])[places]  # [H, moments, d]
    with np.errstate(all="ignore"):
        found = value(one.features, one.signs, models).mean(-1) - one.lowest
    return np.where(np.isfinite(found), np.maximum(found, FLOOR), np.inf)


def cell(settings: Settings, field: Field, method: str, unevenness: float) -> dict[str, Any]:
    """A method at one unevenness: for each horizon the chosen step, and the gaps of both sets."""
    gaps = gaps_of(settings, field, method, unevenness)
    tuned, known = field.numbers(TUNING), {}

    def scores(steps: Sequence[float]) -> np.ndarray:
        """Mean logarithm of the gap, [steps, H]."""
        if missing := [step for step in steps if step not in known]:
            found = gaps([(number, step) for step in missing for number in tuned])
            means = np.log(found).reshape(len(missing), len(tuned), -1).mean(1)
            known.update(zip(missing, means, strict=True))
        return np.array([known[step] for step in steps])

    space = tuning.log_range(*settings.steps, 2 * settings.trials)
    scores(space.values)
    chosen = [
        tuning.tune(
            {"step": {"step": space}},
            lambda _, trials, n, at=at: list(scores([one["step"] for one in trials])[:, at]),
            trials=settings.trials,
            gradients=1,
            seed=settings.seed,
            rounds=settings.rounds,
        )["step"]
        for at in range(len(settings.horizons))
    ]
    steps = [one.best.settings["step"] for one in chosen]
    reported = field.numbers(SET_A) + field.numbers(SET_B)
    runs = [(number, step) for step in sorted(set(steps)) for number in reported]
    found = dict(zip(runs, gaps(runs), strict=True))
    return {
        "steps": steps,
        "at_edge": [bool(one.edges) for one in chosen],
        "trials": [len(one.trials) for one in chosen],
        "gaps": {
            letter: [
                [float(found[number, step][at]) for number in field.numbers(role)]
                for at, step in enumerate(steps)
            ]
            for letter, role in SETS.items()
        },
    }


def run_cells(settings: Settings, told: Callable[[str], None] = print) -> dict[str, Any]:
    """All cells by data, unevenness and method; those that were done before are read.

    A cell that was made with other settings is made again.
    """
    folder = settings.output / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    keys = [(d, u, m) for d in settings.data for u in settings.unevenness for m in METHODS]
    fields: dict[str, Field] = {}
    found: dict[str, Any] = {}
    for place, (data, unevenness, method) in enumerate(keys, start=1):
        path = folder / f"{data}_{unevenness:g}_{method}.json".replace(" ", "_")
        own = _kept(settings, path)
        if own is None:
            if data not in fields:
                fields[data] = field_of(settings, data)
            own = cell(settings, fields[data], method, unevenness)
            storage.save_json(path, {"settings": identity(settings), "cell": own})
        found.setdefault(data, {}).setdefault(f"{unevenness:g}", {})[method] = own
        told(f"[{place}/{len(keys)}] {data}, unevenness {unevenness:g}, {method}")
    return found


def identity(settings: Settings) -> dict[str, Any]:
    """What a cell depends on, as it comes back from JSON."""
    apart = ("output", "commit", "data", "unevenness")
    kept: Mapping[str, Any] = {n: v for n, v in asdict(settings).items() if n not in apart}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in kept.items()}


def _kept(settings: Settings, path: Path) -> dict[str, Any] | None:
    """A cell that was made before, with the same settings."""
    if not path.exists():
        return None
    kept = storage.load_json(path)
    return kept["cell"] if kept["settings"] == identity(settings) else None
