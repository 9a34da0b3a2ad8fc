"""Which rules reach the true optimum, and which that of the fast workers?

Quadratics whose optima are known, and workers that are unequally fast. Worker i holds f_i(x) =
sum_j (a_ij x_j^2 / 2 - b_ij x_j) and takes s_i for a job, the times 1, ..., n dealt to the workers.
The model should go to the minimum of the mean of the f_i. A rule that lets fast workers count more
goes elsewhere: pure dispatch to the minimum of sum_i f_i / s_i, whatever the step size. Measured
are the distances to both points against time, and their floors against the step size. An instance
draws a_ij, b_ij and who has which time; gradients are exact. Two disjoint sets of instances are
reported; all rules get the same grid of step sizes. The workers of all instances stand in one row,
so that one program runs them all.

Source of the question: Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, simulation, traces
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_number
from asyncjax.study import protocol
from asyncjax.study.protocol import SET_A, TUNING_OF, Seeds
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import sets
from experiments.common.sets import SETS
from experiments.common.side_by_side import moved, raveled

NAME = "bias"
TITLE = "Which methods reach the true optimum, and which the optimum of the fast workers?"
PAPERS = ("Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",)
NEAR = 0.25  # share of the way between the optima that counts as being at one
FALLING = 2  # steps of the grid between the two floors that give the exponent
OPTIMUM = {"true": "true", "weighted": "speed-weighted"}
AT = (("pure", "weighted"), ("shuffled", "true"), ("Rescaled", "true"), ("table", "true"))
CERTAIN = (
    "a theorem: as the step falls a run ends where the mean of its updates is 0, at the optimum of"
    " the losses weighted by how often each worker is applied"
)
N_WORKERS, DIMENSION = 6, 3
DIVERGED = 100.0  # distance
ROUNDING = 1e-5  # distances below count as this
NEVER = 1e12  # time
TARGET = 0.05  # distance to the true optimum whose time is reported
WINDOW = 0.25  # share of a run over which a floor is averaged
GAP = "distance of the optima"  # stands among the methods, with what it is of every instance
DEAF = ("Ringmaster, cancel", "fastest half")
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
    tuning_instances: int = 5  # of each, only to choose the step size whose time is reported
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


def study_of(settings: Settings) -> Result:
    """Runs all rules on all instances with the whole grid of step sizes."""
    seeds = sets.drawn(settings)
    instances = [drawn(one) for one in seeds]
    rows = [
        row_of(letter, one.number, GAP, settings.step_sizes[0], instance.gap, instance.gap)
        for letter, role in SETS.items()
        for one, instance in zip(seeds, instances, strict=True)
        if one.role == role
    ]
    by_rule = {}
    for name in settings.methods:
        found, by_rule[name] = measured(settings, name, seeds, instances)
        rows += found
    names = ("n_updates", "instances", "tuning_instances", "horizon")
    facts: dict[str, Any] = {name: getattr(settings, name) for name in names}
    facts |= {"curve_step": settings.step_sizes[settings.curve_step], "rules": by_rule}
    facts["tuned apart"] = True
    frame = pd.DataFrame(rows).assign(trials=len(settings.step_sizes))
    return Result(frame, "true", facts, settings.seed)


def row_of(
    letter: str, instance: int, method: str, step: float, true: float, weighted: float, **more: Any
) -> dict[str, Any]:
    """A row: distances to the true and to the speed-weighted optimum."""
    head = {"scene": "times 1 to 6", "set": letter, "instance": instance, "method": method}
    return {**head, "step": step, "true": true, "weighted": weighted, **more}


def run_rule(
    settings: Settings, name: str, seeds: Sequence[Seeds], instances: list[Drawn]
) -> tuple[np.ndarray, np.ndarray, list[traces.EventTrace]]:
    """Models float[I, G, R + 1, d], times [I, R + 1] and traces of all instances."""
    quadratics = problems.quadratic(
        np.concatenate([one.curvature for one in instances]),
        np.concatenate([one.linear for one in instances]),
    )
    keys = [jax.random.key(one.noise()) for one in seeds]
    runs = [
        trace_of(name, one.times, settings.n_updates, key)
        for one, key in zip(instances, keys, strict=True)
    ]
    records = simulation.sweep(
        replace(quadratics, metrics_of=(("model", raveled),)),
        [moved(trace, at, N_WORKERS) for at, trace in enumerate(runs)],
        optax.sgd,
        settings.step_sizes,
        keys=jax.numpy.stack(keys),
        record_every=max(1, settings.n_updates // settings.records),
    ).records
    models = np.asarray(records.metrics["model"])
    models = np.pad(models, ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=1.0)
    return models, np.pad(np.asarray(records.time)[:, 0], ((0, 0), (1, 0))), runs


def measured(
    settings: Settings, name: str, seeds: Sequence[Seeds], instances: list[Drawn]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What a rule did: its rows, and means and medians over set A."""
    models, time, runs = run_rule(settings, name, seeds, instances)
    places = {role: sets.places(seeds, role) for role in protocol.ROLES}
    optima = {point: np.stack([one.optima[point] for one in instances]) for point in OPTIMUM}
    ways = {point: distances(models, at[:, None, None]) for point, at in optima.items()}
    floors = {point: floors_of(way) for point, way in ways.items()}  # [I, G], of [I, G, R + 1]
    within = results.time_to_target(time[:, None], ways["true"], TARGET, stays=True)  # [I, G]
    scores = np.log(np.minimum(within, NEVER))
    best = {role: int(scores[places[TUNING_OF[role]]].mean(0).argmin()) for role in SETS.values()}
    rows = []
    for (letter, role), (g, step) in product(SETS.items(), enumerate(settings.step_sizes)):
        for i in places[role]:
            reached = {"within": float(within[i, g])} if g == best[role] else {}
            pair = (float(floors[point][i, g]) for point in OPTIMUM)
            rows.append(row_of(letter, seeds[i].number, name, step, *pair, **reached))
    shown = places[SET_A]
    shares = [shares_of(runs[i], N_WORKERS)[np.argsort(instances[i].times)] for i in shown]
    busy = [traces.summarize(runs[i]).utilisation for i in shown]
    grid = np.linspace(settings.horizon / 60, settings.horizon, 60)
    curves = {
        point: np.median([smoothed(time[i], way[i, settings.curve_step], grid) for i in shown], 0)
        for point, way in ways.items()
    }
    return rows, {
        "shares": np.mean(shares, axis=0).tolist(),
        "utilisation": float(np.mean(busy)),
        "curves": {point: curve.tolist() for point, curve in curves.items()},
    }


def distances(models: np.ndarray, point: np.ndarray) -> np.ndarray:
    """||model - point||, float[...]; NaN or infinity where a run diverged."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.linalg.norm(models - point, axis=-1)


def floors_of(way: np.ndarray) -> np.ndarray:
    """Mean distance over the last part of the updates, float[..., G]; NaN: diverged."""
    count = max(1, round(WINDOW * (way.shape[-1] - 1)))
    mean = way[..., -count:].mean(-1)
    return np.where(mean < DIVERGED, np.maximum(mean, ROUNDING), np.nan)


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


def steps(result: Result) -> tuple[list[float], tuple[float, float]]:
    """The grid of step sizes; the least, and one that is 8 times as large where there is one."""
    grid = sorted(result.rows["step"].unique())
    return grid, (grid[0], grid[min(3, len(grid) - 1)])


def rules(result: Result) -> list[str]:
    """The rules that were run, in their order."""
    return [name for name in result.methods if name != GAP]


def claims(result: Result) -> list[Claim]:
    """The claims, at the smallest step size that was run."""
    low, high = steps(result)[1]

    def at(rule: str, point: str) -> Claim:
        text = f"{rule} is near the {OPTIMUM[point]} optimum"
        condition = less(rule, than=GAP, ratio=NEAR, column=point, text=text, step=low)
        said = f"{rule} ends at the {OPTIMUM[point]} optimum"
        return Claim(said, [condition], PAPERS[0], CERTAIN if (rule, point) in AT else "")

    text = "floor at the smaller step"
    falls = less("pure", than="pure", ratio=0.9, text=text, step=low, beside={"step": high})
    return [
        *(at(*pair) for pair in (*AT, ("random", "true"))),
        Claim("a step 8 times smaller brings pure nearer to the true optimum by a tenth", [falls]),
        Claim(
            "rules that never hear the slow end further from the truth than pure",
            [less("pure", than=DEAF, step=low)],
        ),
    ]


def middle(values: Any) -> float:
    """The least value by which half of all are there, one that was seen; infinity where none was.

    Example:
        >>> middle([4.0, 1.0, 3.0, float("inf")])
        3.0
    """
    found = protocol.reached(np.nan_to_num(values, nan=np.inf), NEVER).quartiles[1]
    return np.inf if found is None else found


def _shown(value: float) -> str:
    return "rounding" if value <= ROUNDING else format_number(value)


def _named(step: float) -> str:
    return f"1/{1 / step:g}" if step < 1 else f"{step:g}"


def main_table(result: Result) -> results.Table:
    """Medians of both sets, rule by rule."""
    rows, (low, high) = [], steps(result)[1]

    def both(rule: str, column: str, **where: Any) -> list[float]:
        frames = [result.select(method=rule, set=letter, **where) for letter in result.sets]
        return [middle(frame[column].to_numpy(float)) for frame in frames]

    for rule in rules(result):
        asked = (("true", low), ("weighted", low), ("true", high))
        medians = [" / ".join(map(_shown, both(rule, point, step=at))) for point, at in asked]
        shares = result.facts["rules"][rule]["shares"]
        timed = {"within": lambda time: ~np.isnan(time)}
        pairs = both(rule, "within", **timed), both(rule, "step", **timed)
        said = [
            f"{'never' if np.isinf(time) else format_number(time)} ({_named(step)})"
            for time, step in zip(*pairs, strict=True)
        ]
        share = f"{shares[0]:.2f}, {shares[-1]:.2f}"
        rows.append((rule, *medians, exponent(result, rule), share, " / ".join(said)))
    facts = result.facts
    gaps = [middle(result.values(GAP, letter).to_numpy()[0]) for letter in result.sets]
    heads = (
        f"to true, step {_named(low)}",
        f"to speed-weighted, step {_named(low)}",
        f"to true, step {_named(high)}",
        "falls like step to the power",
        "share of gradients from fastest, slowest",
        f"time to stay within {TARGET:g} (step)",
    )
    return part.table(
        ("rule", *heads),
        rows,
        f"Distance of the model after {facts['n_updates']:,} updates, mean over the last"
        f" {100 * WINDOW:g} %, median over {facts['instances']} instances of set A / of set B; the"
        f" two optima lie {gaps[0]:.2f} / {gaps[-1]:.2f} apart. The time has the step size that"
        f" was best on {facts['tuning_instances']} further instances, others for each set.",
    )


def floors(result: Result, rule: str) -> np.ndarray:
    """Distances to the true optimum, set A, float[step sizes, instances]."""
    rows = result.select(method=rule, set="A")
    return rows.pivot(index="step", columns="instance", values="true").to_numpy()


def exponent(result: Result, rule: str) -> str:
    """How the floor depends on small steps, over set A; rounding where it is."""
    grid, medians = steps(result)[0], np.median(floors(result, rule), axis=1)
    if len(grid) <= FALLING:
        return ""
    low, high = medians[0], medians[FALLING]
    if not min(low, high) > ROUNDING:
        return "rounding"
    return f"{np.log(high / low) / np.log(grid[FALLING] / grid[0]):.2f}"


TABLES = {"rules": main_table}
FACTS = {
    "least gap": lambda result: float(result.values(GAP, "A").to_numpy().min()),
    "steps": lambda result: list(steps(result)[1]),
}


def against_time(result: Result) -> Illustration:
    """Distances to both optima against time."""
    facts, panels = result.facts, []
    grid = np.linspace(facts["horizon"] / 60, facts["horizon"], 60)
    for point, name in OPTIMUM.items():
        curves = {rule: np.array(facts["rules"][rule]["curves"][point]) for rule in rules(result)}
        series = [results.Series(rule, grid, way) for rule, way in curves.items()]
        label = f"time [job of the fastest worker],\nto the {name} optimum"
        panels.append(plots.Panel(label, series))
    figure = plots.panels(
        panels,
        y_label="distance of the model",
        log_y=True,
        y_range=(1e-3, 3.0),
        styles=plots.assign_styles(rules(result)),
    )
    return Illustration(
        figure,
        "Distance to the true and to the speed-weighted optimum, step size"
        f" {facts['curve_step']:g} for all, mean over the last tenth of the time, median over set"
        " A. Lines that leave at the bottom go on to rounding.",
    )


def against_steps(result: Result) -> Illustration:
    """Floors against the step size."""
    figure = plots.step_size_sensitivity(
        steps(result)[0],
        {rule: floors(result, rule) for rule in rules(result)},
        y_label="floor of the distance to the true optimum",
        y_range=(1e-4, 3.0),
        chosen={},
        styles=plots.assign_styles(rules(result)),
    )
    return Illustration(
        figure,
        "Floor of the distance to the true optimum against the step size, set A. Where a bias is"
        " left the floor stays; rules whose line is missing reach rounding.",
    )


FIGURES = {"time": against_time, "floors": against_steps}


if __name__ == "__main__":
    part.main(NAME, quick=True)
