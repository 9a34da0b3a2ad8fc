"""What the bias experiment measures: distances to the two optima, and when they stay small.

An instance draws the functions of all workers and deals the times 1, ..., n to them. The workers of
all instances stand in one row, so that one program runs them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, simulation, traces
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds, seeds_of
from asyncjax.study.result import Result
from experiments.common.judging import raveled
from experiments.common.side_by_side import moved

N_WORKERS, DIMENSION = 6, 3
DIVERGED = 100.0  # distance
ROUNDING = 1e-5  # distances below count as this
NEVER = 1e12  # time
TARGET = 0.05  # distance to the true optimum whose time is reported
WINDOW = 0.25  # share of a run over which a floor is averaged
GAP = "distance of the optima"  # stands among the methods, with what it is of every instance
RULES: Mapping[str, traces.Rule | traces.Synchronous] = {
    "pure": traces.Rule(),
    "random": traces.Rule(dispatch=traces.uniformly()),
    "shuffled": traces.Rule(dispatch=traces.shuffled()),
    "Rescaled": traces.Rule(),  # pure; steps in proportion to the worker's time
    "Malenia": traces.Rule(collect=traces.malenia(1.0)),
    "Ringleader": traces.Rule(collect=traces.ringleader()),
    "table": traces.Rule(collect=traces.table()),
    "Ringmaster, cancel": traces.Rule(collect=traces.ringmaster(5, cancel=True)),
    "fastest half": traces.Synchronous(k=N_WORKERS // 2),
}


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/bias")
    seed: int = 0
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 4  # only to choose the step size whose time is reported
    methods: tuple[str, ...] = tuple(RULES)
    n_updates: int = 4000  # of every run
    records: int = 800  # points of a run
    horizon: float = 400.0  # simulated time of the curves
    # One grid for all: a floor falls with the step size, so the least is where one looks.
    step_sizes: tuple[float, ...] = tuple(2.0**power for power in range(-8, 2))
    curve_step: int = 3  # place of the step size of the curves
    commit: bool = False  # also write the rows where committed ones are


@dataclass(frozen=True)
class Drawn:
    """An instance: coefficients a_ij and b_ij, float[n, d], and times of a job, float[n]."""

    curvature: np.ndarray
    linear: np.ndarray
    times: np.ndarray

    def optimum(self, weights: Any) -> np.ndarray:
        """The minimum of sum_i weights_i f_i, float[d]."""
        return np.asarray(weights) @ self.linear / (np.asarray(weights) @ self.curvature)

    @cached_property
    def optima(self) -> dict[str, np.ndarray]:
        """The minima of the mean and of sum_i f_i / s_i."""
        return {"true": self.optimum(np.ones(N_WORKERS)), "weighted": self.optimum(1 / self.times)}

    @property
    def gap(self) -> float:
        """How far the two lie apart."""
        return float(np.linalg.norm(self.optima["true"] - self.optima["weighted"]))


def drawn(seeds: Seeds) -> Drawn:
    """Curvatures from 1 to 2, linear parts from -1.5 to 1.5, times 1, ..., n in an order."""
    generator = np.random.default_rng(seeds.data)
    shape = N_WORKERS, DIMENSION
    curvature, linear = generator.uniform(1, 2, shape), generator.uniform(-1.5, 1.5, shape)
    times = np.random.default_rng(seeds.clock).permutation(N_WORKERS) + 1.0
    return Drawn(curvature, linear, times)


def trace_of(name: str, times: np.ndarray, n_updates: int, key: jax.Array) -> traces.EventTrace:
    """A rule's trace; Rescaled has its factors as weights in pure's."""
    trace = RULES[name].trace(clocks.constant(times), n_updates=n_updates, key=key)
    if name != "Rescaled":
        return trace
    factors = (times / times.mean()).astype(np.float32)
    return trace._replace(weight=trace.weight * factors[trace.worker])


class Bench:
    """The instances: those for tuning first, then set A, then set B."""

    def __init__(self, settings: Settings) -> None:
        """Draws them."""
        self.settings = settings
        counts = {TUNING: settings.tuning_instances, SET_A: settings.instances}
        counts[SET_B] = settings.instances
        self.seeds = [s for role, n in counts.items() for s in seeds_of(settings.seed, role, n)]
        self.drawn = [drawn(one) for one in self.seeds]
        quadratics = problems.quadratic(
            np.concatenate([one.curvature for one in self.drawn]),
            np.concatenate([one.linear for one in self.drawn]),
        )
        self.problem = replace(quadratics, metrics_of=(("model", raveled),))

    def of(self, role: str) -> list[int]:
        """Places of the instances of a role."""
        return [at for at, one in enumerate(self.seeds) if one.role == role]

    def run(self, name: str) -> tuple[np.ndarray, np.ndarray, list[traces.EventTrace]]:
        """Models float[I, G, R + 1, d], times [I, R + 1] and traces of all instances."""
        settings = self.settings
        keys = [jax.random.key(one.noise()) for one in self.seeds]
        runs = [
            trace_of(name, one.times, settings.n_updates, key)
            for one, key in zip(self.drawn, keys, strict=True)
        ]
        records = simulation.sweep(
            self.problem,
            [moved(trace, at, N_WORKERS) for at, trace in enumerate(runs)],
            optax.sgd,
            settings.step_sizes,
            keys=jax.numpy.stack(keys),
            record_every=max(1, settings.n_updates // settings.records),
        ).records
        models = np.asarray(records.metrics["model"])
        models = np.pad(models, ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=1.0)
        return models, np.pad(np.asarray(records.time)[:, 0], ((0, 0), (1, 0))), runs


def study_of(settings: Settings) -> Result:
    """Runs all rules on all instances with the whole grid of step sizes."""
    bench, rows, by_rule = Bench(settings), [], {}
    for letter, role in (("A", SET_A), ("B", SET_B)):
        for instance, at in enumerate(bench.of(role)):
            gap = bench.drawn[at].gap
            rows.append(row_of(letter, instance, GAP, settings.step_sizes[0], gap, gap))
    for name in settings.methods:
        found, by_rule[name] = measured(bench, name)
        rows += found
    names = ("n_updates", "instances", "tuning_instances", "horizon")
    facts: dict[str, Any] = {name: getattr(settings, name) for name in names}
    facts |= {"curve_step": settings.step_sizes[settings.curve_step], "rules": by_rule}
    table = pd.DataFrame(rows).assign(trials=len(settings.step_sizes))
    return Result(table, "true", facts, settings.seed)


def row_of(
    letter: str, instance: int, method: str, step: float, true: float, weighted: float, **more: Any
) -> dict[str, Any]:
    """A row: distances to the true and to the speed-weighted optimum."""
    head = {"scene": "times 1 to 6", "set": letter, "instance": instance, "method": method}
    return {**head, "step": step, "true": true, "weighted": weighted, **more}


def measured(bench: Bench, name: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What a rule did: its rows, and means and medians over set A."""
    settings = bench.settings
    models, time, runs = bench.run(name)
    pairs = list(zip(models, bench.drawn, strict=True))
    floors = {
        point: np.array([floors_of(own, one.optima[point]) for own, one in pairs])
        for point in ("true", "weighted")
    }  # [I, G]
    within = np.array(
        [
            times_within(TARGET, moments, distances(own, one.optima["true"]))
            for moments, (own, one) in zip(time, pairs, strict=True)
        ]
    )  # [I, G]
    best = int(np.argmin(np.log(np.minimum(within[bench.of(TUNING)], NEVER)).mean(0)))
    rows = []
    for letter, role in (("A", SET_A), ("B", SET_B)):
        for g, step in enumerate(settings.step_sizes):
            for instance, i in enumerate(bench.of(role)):
                reached = {"within": float(within[i, g])} if g == best else {}
                pair = float(floors["true"][i, g]), float(floors["weighted"][i, g])
                rows.append(row_of(letter, instance, name, step, *pair, **reached))
    shown = bench.of(SET_A)
    shares = [shares_of(runs[i], N_WORKERS)[np.argsort(bench.drawn[i].times)] for i in shown]
    busy = [traces.summarize(runs[i]).utilisation for i in shown]
    grid = np.linspace(settings.horizon / 60, settings.horizon, 60)
    curves = {
        point: np.median(
            [
                smoothed(
                    time[i],
                    distances(models[i, settings.curve_step], bench.drawn[i].optima[point]),
                    grid,
                )
                for i in shown
            ],
            axis=0,
        ).tolist()
        for point in ("true", "weighted")
    }
    shown_alone = {"shares": np.mean(shares, axis=0).tolist(), "utilisation": float(np.mean(busy))}
    return rows, {**shown_alone, "curves": curves}


def distances(models: np.ndarray, point: np.ndarray) -> np.ndarray:
    """||model - point||, float[...]; NaN or infinity where a run diverged."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.linalg.norm(models - point, axis=-1)


def floors_of(models: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Mean distance to a point over the last part of the updates, float[G]; NaN: diverged."""
    count = max(1, round(WINDOW * (models.shape[1] - 1)))
    mean = distances(models[:, -count:], point).mean(-1)
    return np.where(mean < DIVERGED, np.maximum(mean, ROUNDING), np.nan)


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
