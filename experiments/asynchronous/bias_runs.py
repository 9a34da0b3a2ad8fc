"""What the bias experiment measures: distances to the two optima, and when they stay small.

An instance draws the functions of all workers and deals the times 1, ..., n to them.
"""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import clocks, problems, simulation, traces
from asyncjax.study import protocol
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from experiments.asynchronous.asgrad_methods import DISPATCHED, weighted
from experiments.common.judging import raveled
from experiments.common.methods import Method, plain, rounds_of, server_with
from experiments.common.side_by_side import moved

DIVERGED = 100.0  # distance
NEVER = 1e12  # time
SETS = {"A": SET_A, "B": SET_B}
METHODS = (
    *(rule.name for rule in DISPATCHED),
    "Rescaled",
    "Malenia",
    "Ringleader",
    "table",
    "Ringmaster, cancel",
    "fastest half",
)


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/bias")
    seed: int = 0
    n_workers: int = 6
    dimension: int = 3
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 4  # only to choose the step whose time is reported
    methods: tuple[str, ...] = METHODS
    n_updates: int = 4000  # of every run
    records: int = 800  # points of a run
    horizon: float = 400.0  # simulated time of the curves
    threshold: int = 5  # of Ringmaster
    target: float = 0.05  # distance to the true optimum whose time is reported
    window: float = 0.25  # share of a run over which a floor is averaged
    # One grid for all: a floor falls with the step, so the least is no choice but where one looks.
    step_sizes: tuple[float, ...] = tuple(2.0**power for power in range(-8, 2))
    curve_step: int = 3  # place of the step of the curves
    commit: bool = False  # also write the numbers where committed ones are


@dataclass(frozen=True)
class Drawn:
    """An instance: coefficients a_ij and b_ij, float[n, d], and times of a job, float[n]."""

    curvature: np.ndarray
    linear: np.ndarray
    times: np.ndarray

    def optimum(self, weights: Any) -> np.ndarray:
        """The minimum of sum_i weights_i f_i, float[d]."""
        return np.asarray(weights) @ self.linear / (np.asarray(weights) @ self.curvature)

    @property
    def true(self) -> np.ndarray:
        """The minimum of the mean."""
        return self.optimum(np.ones(len(self.times)))

    @property
    def speed_weighted(self) -> np.ndarray:
        """The minimum of sum_i f_i / s_i."""
        return self.optimum(1.0 / self.times)

    @property
    def gap(self) -> float:
        """How far the two lie apart."""
        return float(np.linalg.norm(self.true - self.speed_weighted))


def drawn(settings: Settings, instance: Seeds) -> Drawn:
    """Curvatures from 1 to 2, linear parts from -1.5 to 1.5, times 1, ..., n in an order."""
    generator = np.random.default_rng(instance.data)
    shape = settings.n_workers, settings.dimension
    curvature, linear = generator.uniform(1, 2, shape), generator.uniform(-1.5, 1.5, shape)
    times = np.random.default_rng(instance.clock).permutation(settings.n_workers) + 1.0
    return Drawn(curvature, linear, times)


def methods(settings: Settings) -> tuple[Method, ...]:
    """The methods, by name."""
    cancelling = server_with(collect=traces.ringmaster(settings.threshold, cancel=True))
    known = (
        *DISPATCHED,
        Method("Rescaled", "Pure; steps in proportion to the worker's time.", weighted, plain),
        Method(
            "Malenia",
            "Waits for a fresh gradient of everyone; mean over workers of their means.",
            server_with(collect=traces.malenia(1.0)),
            plain,
        ),
        Method(
            "Ringleader",
            "Rounds of one step a worker along a table of means.",
            server_with(collect=traces.ringleader()),
            plain,
        ),
        Method(
            "table",
            "Steps along the mean of everyone's last gradient.",
            server_with(collect=traces.table()),
            plain,
        ),
        Method("Ringmaster, cancel", "Stops stale jobs.", cancelling, plain),
        Method("fastest half", "Synchronous rounds of the faster half.", rounds_of(0.5), plain),
    )
    return tuple(method for method in known if method.name in settings.methods)


class Bench:
    """The instances: those for tuning first, then set A, then set B."""

    def __init__(self, settings: Settings) -> None:
        """Draws them."""
        self.settings = settings
        counts = {TUNING: settings.tuning_instances, SET_A: settings.instances}
        counts[SET_B] = settings.instances
        self.instances = [
            one for role, n in counts.items() for one in protocol.seeds_of(settings.seed, role, n)
        ]
        self.drawn = [drawn(settings, one) for one in self.instances]

    def numbers(self, role: str) -> list[int]:
        """Places of the instances of a role."""
        return [at for at, instance in enumerate(self.instances) if instance.role == role]

    @cached_property
    def problem(self) -> problems.Problem:
        """The quadratics of all instances, their workers in one row."""
        made = problems.quadratic(
            np.concatenate([one.curvature for one in self.drawn]),
            np.concatenate([one.linear for one in self.drawn]),
        )
        return replace(made, metrics_of=(("model", raveled),))

    def run(self, method: Method) -> tuple[np.ndarray, np.ndarray, list[traces.EventTrace]]:
        """Models float[I, G, R + 1, d] and times [I, R + 1] of all instances and steps."""
        settings, n = self.settings, self.settings.n_workers
        keys = [jax.random.key(one.noise()) for one in self.instances]
        made = [
            method.trace(clocks.constant(one.times), settings.n_updates, key)
            for one, key in zip(self.drawn, keys, strict=True)
        ]
        run = simulation.sweep(
            self.problem,
            [moved(trace, at, n) for at, trace in enumerate(made)],
            method.optimizer,
            settings.step_sizes,
            keys=jax.numpy.stack(keys),
            record_every=max(1, settings.n_updates // settings.records),
        )
        models = np.asarray(run.records.metrics["model"])
        models = np.pad(models, ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=1.0)
        return models, np.pad(np.asarray(run.records.time)[:, 0], ((0, 0), (1, 0))), made


def measured(bench: Bench, method: Method) -> dict[str, Any]:
    """What one method did, as plain values: lists have one number an instance."""
    settings = bench.settings
    models, time, made = bench.run(method)
    floors = {
        "true": np.array([_floors(settings, m, d.true) for m, d in _pairs(models, bench)]),
        "speed-weighted": np.array(
            [_floors(settings, m, d.speed_weighted) for m, d in _pairs(models, bench)]
        ),
    }  # [I, G]
    within = np.array(
        [
            times_within(settings.target, t, distances(m, d.true))
            for t, (m, d) in zip(time, _pairs(models, bench), strict=True)
        ]
    )  # [I, G]
    tuned = np.log(np.minimum(within[bench.numbers(TUNING)], NEVER)).mean(0)
    best = int(np.argmin(tuned))
    shares = [
        shares_of(trace, len(d.times))[np.argsort(d.times)]
        for trace, d in zip(made, bench.drawn, strict=True)
    ]
    grid = np.linspace(settings.horizon / 60, settings.horizon, 60)
    at = settings.curve_step
    curves = {
        what: np.median(
            [
                smoothed(time[i], distances(models[i, at], point), grid)
                for i in bench.numbers(SET_A)
                for point in [getattr(bench.drawn[i], name)]
            ],
            axis=0,
        ).tolist()
        for what, name in (("true", "true"), ("speed-weighted", "speed_weighted"))
    }
    return {
        "floors": {
            what: {
                letter: [own[bench.numbers(role), g].tolist() for g in range(own.shape[1])]
                for letter, role in SETS.items()
            }
            for what, own in floors.items()
        },
        "step": settings.step_sizes[best],
        "reaches": bool(np.isfinite(within[bench.numbers(TUNING), best]).any()),
        "at_edge": best in (0, len(settings.step_sizes) - 1),
        "trials": len(settings.step_sizes),
        "within": {
            letter: within[bench.numbers(role), best].tolist() for letter, role in SETS.items()
        },
        "shares": np.mean([shares[i] for i in bench.numbers(SET_A)], axis=0).tolist(),
        "utilisation": float(
            np.mean([traces.summarize(made[i]).utilisation for i in bench.numbers(SET_A)])
        ),
        "curves": curves,
    }


def _pairs(models: np.ndarray, bench: Bench) -> list[tuple[np.ndarray, Drawn]]:
    return list(zip(models, bench.drawn, strict=True))


def distances(models: np.ndarray, point: np.ndarray) -> np.ndarray:
    """||model - point||, float[...]; NaN or infinity where a run diverged."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.linalg.norm(models - point, axis=-1)


def _floors(settings: Settings, models: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Mean distance to a point over the last part of the updates, float[G]; NaN: diverged."""
    count = max(1, round(settings.window * (models.shape[1] - 1)))
    mean = distances(models[:, -count:], point).mean(-1)
    return np.where(mean < DIVERGED, mean, np.nan)


def times_within(target: float, time: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """Time from which a distance stays within the target, float[G]; infinity if it does not.

    Args:
        target: Distance.
        time: float[R + 1], of the records.
        gaps: float[G, R + 1].
    """
    outside = ~(gaps <= target)
    last = outside.shape[1] - 1 - np.argmax(outside[:, ::-1], axis=1)  # last record outside
    last = np.where(outside.any(1), last, -1)
    ends = last == outside.shape[1] - 1
    return np.where(ends, np.inf, time[np.where(ends, 0, last + 1)])


def smoothed(time: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Mean of a step function over the last tenth of the time to each point of the grid."""
    moments = np.outer(grid, np.linspace(0.9, 1.0, 11)[1:])
    return values[np.searchsorted(time, moments, side="right") - 1].mean(-1)


def shares_of(trace: traces.EventTrace, n: int) -> np.ndarray:
    """How much each worker's gradients count in all directions together, float[n], summing to 1."""
    if trace.reuse is None:
        counted = np.bincount(trace.worker, trace.weight, minlength=n)
    else:
        lines = trace.reuse
        worker = trace.worker[lines.arrival]
        served = lines.weight * (lines.last - lines.first + 1.0)
        counted = np.bincount(worker, served, minlength=n)
    return counted / np.sum(counted)


def run_methods(settings: Settings) -> dict[str, Any]:
    """All methods by name, and how far the optima of each instance lie apart."""
    bench = Bench(settings)
    found = {m.name: measured(bench, m) for m in methods(settings)}
    gaps = {
        letter: [bench.drawn[i].gap for i in bench.numbers(role)] for letter, role in SETS.items()
    }
    facts = {n: v for n, v in asdict(settings).items() if n not in ("output", "commit")}
    return {"settings": facts, "gaps": gaps, "methods": found}
