"""Do coordinated orders end lower on convex problems? Two sets of instances, steps tuned alike.

Logistic regression as in `ordered_convex`: Gaussian rows with 1, 8 and 64 workers, and mortgage
applications (HMDA) as in the public scripts of CD-GraB: four workers, units of 16 rows, momentum
0.9, 50 epochs. An instance draws the rows (HMDA: which rows, and which unit of whom each is in) and
the first orders. The step of each order is searched with as many trials, on instances that are not
reported. Shown is f - f* after the last epoch, f* by Newton's method in float64; for mortgages also
after as many epochs as fit into the time of those of D-RR: time of this CPU, flops and bytes as
compiled, and numbers that travel. What follows from these, ratios and verdicts, are facts beside
the rows, which have last gaps alone.

Source: Cooper et al. 2023, CD-GraB (arXiv 2302.00845).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import problems, results
from asyncjax.results.report import Illustration
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import TUNING, Seeds
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.search import Knob, log_range
from asyncjax.study.statistics import Condition, paired, verdict
from experiments import part
from experiments.common import numbers
from experiments.common.kept_rows import once
from experiments.ordering import epoch_costs
from experiments.ordering import ordered_convex_runs as convex
from experiments.ordering.epoch_costs import BYTES, CPU, FLOPS, SENT
from experiments.ordering.herding import CD_GRAB, forest, ratio_of
from experiments.ordering.herding_runs import ALONE, BASELINE, COORDINATED, EXACT, SETS

NAME = "ordered_instances"
TITLE = "Do coordinated orders end lower on convex problems? Two sets of instances"
PAPERS = (CD_GRAB,)
MORTGAGES = "mortgages"
ORDERS = (BASELINE, "GraB", ALONE, COORDINATED)
COSTS = (FLOPS, BYTES, SENT, CPU)
LANES = 20  # runs of every call, so that all share one compilation
DIGITS = 5  # of numbers in rows
LOWER, THAN_ALONE = "CD-GraB ends lower than D-RR", "CD-GraB ends lower than independent"
CLAIMS = (
    Claim(LOWER, [less(COORDINATED, BASELINE, each=True)], CD_GRAB, level=0.95),
    Claim(THAN_ALONE, [less(COORDINATED, ALONE, each=True, arriving=True)], CD_GRAB, level=0.95),
)


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/ordered_instances")
    seed: int = 0
    cells: tuple[str, ...] = ("1 worker", "8 workers", "64 workers", MORTGAGES)
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = 4  # steps that an order tries in a round
    rounds: tuple[int, int] = (3, 6)
    epochs: int = 60  # on Gaussian rows
    repeats: int = 9  # of an epoch's timing
    commit: bool = False  # also write the rows where committed ones are


@dataclass(frozen=True)
class Cell:
    """One problem.

    Attributes:
        n_workers: m.
        n_units: n, of each worker.
        batch: Rows of a unit.
        momentum: Of SGD.
        n_epochs: Of every run.
        step: First grid.
    """

    n_workers: int
    n_units: int
    batch: int
    momentum: float
    n_epochs: int
    step: Knob

    @property
    def rows(self) -> int:
        """Of an instance."""
        return self.n_workers * self.n_units * self.batch


def cells(settings: Settings) -> dict[str, Cell]:
    """The problems by name."""
    grids = {1: (0.001, 0.008), 8: (0.004, 0.032), 64: (0.02, 0.16)}
    found = {
        f"{m} worker{'s' if m > 1 else ''}": Cell(
            m, n, 1, 0.0, settings.epochs, log_range(*grids[m], 4)
        )
        for m, n in ((1, 512), (8, 128), (64, 32))
    }
    return found | {MORTGAGES: Cell(4, 28, 16, 0.9, 50, log_range(0.004, 0.032, 4))}


def drawn(name: str, cell: Cell, instance: Seeds) -> tuple[np.ndarray, np.ndarray]:
    """Rows of an instance float32[rows, d] and their labels, -1 or 1."""
    generator = np.random.default_rng(instance.data)
    if name == MORTGAGES:
        data = problems.hmda()
        rows = generator.permutation(len(data.train_labels))[: cell.rows]
        ones = np.ones((cell.rows, 1), np.float32)
        features = np.concatenate([data.train_features[rows], ones], axis=1)
        return features, np.where(data.train_labels[rows] == 1, 1.0, -1.0).astype(np.float32)
    features = generator.standard_normal((cell.rows, 32))
    weights = 2 * generator.standard_normal(32) / np.sqrt(32)
    chance = 1 / (1 + np.exp(-features @ weights))
    labels = np.where(generator.uniform(size=cell.rows) < chance, 1.0, -1.0)
    return features.astype(np.float32), labels.astype(np.float32)


@dataclass(frozen=True, eq=False)
class Runs:
    """All instances of a cell, and the runs on them."""

    cell: Cell
    instances: tuple[Seeds, ...]  # those for tuning first
    rows: convex.Rows
    methods: Mapping[str, convex.Method]
    made: Mapping[int, problems.Problem]  # by number of workers, of all instances
    train: Mapping[str, Callable[..., jax.Array]]  # compiled once

    def gaps(self, name: str, pairs: Sequence[tuple[int, float]]) -> np.ndarray:
        """Returns f - f* of runs, pairs of an instance and a step, float64[runs, epochs]."""
        found = []
        for begin in range(0, len(pairs), LANES):
            part = list(pairs[begin : begin + LANES])
            filled = part + part[-1:] * (LANES - len(part))
            places = np.array([place for place, _ in filled])
            steps = jnp.array([step for _, step in filled])
            keys = jnp.stack([jax.random.key(self.instances[p].noise()) for p in places])
            problem = self.made[self.methods[name].n_workers]
            models = np.asarray(self.train[name](problem, jnp.asarray(places), steps, keys))
            for place, model in list(zip(places, models, strict=True))[: len(part)]:
                own = replace(
                    self.rows,
                    features=self.rows.features[place, None],
                    labels=self.rows.labels[place, None],
                    optimum=self.rows.optimum[place, None],
                )
                found.append(own.gap(model[None, None])[0, 0])
        return np.array(found)


def optimizer_of(cell: Cell) -> Callable[[Any], optax.GradientTransformation]:
    """SGD, with momentum where the cell has it."""
    return partial(optax.sgd, momentum=cell.momentum) if cell.momentum else optax.sgd


def runs_of(settings: Settings, name: str) -> Runs:
    """The instances of a cell."""
    cell = cells(settings)[name]
    counts = {TUNING: settings.tuning_instances, **dict.fromkeys(SETS.values(), settings.instances)}
    every = tuple(
        one for role, n in counts.items() for one in protocol.seeds_of(settings.seed, role, n)
    )
    made = [drawn(name, cell, one) for one in every]
    features, labels = (np.stack(part) for part in zip(*made, strict=True))
    l2 = convex.Settings().l2
    optimum = [convex.minimum(*one, l2) for one in made]
    rows = convex.Rows(features, labels, l2, np.array(optimum))
    m, dim = cell.n_workers, features.shape[-1]
    known = {method.name: method for method in convex.methods(m, cell.n_units, dim)}
    names = (BASELINE, EXACT) if m == 1 else (BASELINE, ALONE, COORDINATED)
    names = ("GraB", *names) if name == MORTGAGES else names
    methods = {COORDINATED if n == EXACT else n: known[n] for n in names}
    stacked = {
        count: jax.tree.map(
            lambda *leaves: jnp.stack(leaves),
            *[convex.problem_of(rows, place, count, cell.batch) for place in range(len(every))],
        )
        for count in {method.n_workers for method in methods.values()}
    }
    return Runs(
        cell,
        every,
        rows,
        methods,
        stacked,
        {name: _trainer(cell, method) for name, method in methods.items()},
    )


def _trainer(cell: Cell, method: convex.Method) -> Callable[..., jax.Array]:
    def one(problem: Any, place: jax.Array, step: jax.Array, key: jax.Array) -> jax.Array:
        own = jax.tree.map(lambda leaf: leaf[place], problem)
        return convex.models_of(method, optimizer_of(cell), cell.n_epochs, step, own, key)

    return jax.jit(jax.vmap(one, (None, 0, 0, 0)))


def study_of(settings: Settings) -> Result:
    """Runs all cells; what is done is read.

    Raises:
        ValueError: A cell is not known.
    """
    known = cells(settings)
    if unknown := set(settings.cells) - set(known):
        raise ValueError(f"cells must be among {', '.join(known)}, got {min(unknown)!r}")
    found = []
    own = replace(settings, output=Path(), cells=(), commit=False)  # what decides no numbers
    for place, name in enumerate(settings.cells):
        found.append(once(settings.output / "cells", partial(measured, own, name)))
        print(f"[{place + 1}/{len(settings.cells)}] {name}: done", flush=True)
    return as_result(settings, pd.concat(found, ignore_index=True))


def measured(settings: Settings, name: str) -> pd.DataFrame:
    """Tunes and runs all orders of a cell: a row an order and instance, with gaps by epoch."""
    runs = runs_of(settings, name)
    count, cell = settings.tuning_instances, runs.cell

    def evaluate(method: str, tried: Sequence[tuning.Settings], _: int) -> list[float]:
        pairs = [(place, one["step"]) for one in tried for place in range(count)]
        last = np.log(runs.gaps(method, pairs)[:, -1]).reshape(-1, count)
        return last.mean(axis=1).tolist()

    tuned = tuning.tune(
        {method: {"step": cell.step} for method in runs.methods},
        evaluate,
        trials=settings.trials,
        gradients=count * cell.n_epochs * cell.n_workers * cell.n_units,
        seed=settings.seed,
        rounds=settings.rounds,
    )
    price, found = _priced(settings, runs, tuned) if name == MORTGAGES else {}, []
    for method, own in tuned.items():
        step = own.best.settings["step"]
        gaps = runs.gaps(method, [(at, step) for at in range(count, len(runs.instances))])
        rows = pd.DataFrame(gaps, columns=[after(e) for e in range(1, cell.n_epochs + 1)])
        facts = {"step": step, "trials": len(own.trials), "at_edge": bool(own.edges)}
        facts |= {"tuning_gradients": len(own.trials) * own.gradients}
        facts |= dict(
            zip(("price", "price_low", "price_high"), price.get(method, ()), strict=False)
        )
        sets, at = np.repeat([*SETS], settings.instances), [*range(settings.instances)] * len(SETS)
        found.append(
            rows.assign(
                **{
                    "scene": name,
                    "set": sets,
                    "instance": at,
                    "method": method,
                    "gap": gaps[:, -1],
                },
                **facts,
            )
        )
    return pd.concat(found, ignore_index=True)


def after(epoch: int) -> str:
    """The column of gaps after so many epochs."""
    return f"after {epoch}"


def _priced(
    settings: Settings, runs: Runs, found: Mapping[str, tuning.Tuned]
) -> dict[str, tuple[float, float, float]]:
    """What an epoch costs on this CPU, in those of D-RR: median and quartiles."""
    key, timed = jax.random.key(0), {}
    for name, method in runs.methods.items():
        own = jax.tree.map(lambda leaf: leaf[0], runs.made[method.n_workers])
        step = found[name].best.settings["step"]
        train = partial(convex.models_of, method, optimizer_of(runs.cell), runs.cell.n_epochs)
        timed[name] = partial(jax.jit(train), step, own, key)
    return convex.prices(timed, BASELINE, settings.repeats)


def as_result(settings: Settings, rows: Any) -> Result:
    """Last gaps as rows; and what follows of the gaps by epoch where these are there."""
    curves = [name for name in rows if name.startswith("after ")]
    names = ("instances", "tuning_instances", "epochs")
    facts: dict[str, Any] = {name: getattr(settings, name) for name in names}
    if MORTGAGES in {*rows["scene"]} and curves:
        facts |= at_equal_cost(settings, rows[rows["scene"] == MORTGAGES])
    kept = rows.drop(columns=curves)
    kept["gap"] = numbers.rounded(kept["gap"].tolist(), DIGITS)
    return Result(kept, "gap", facts, settings.seed, cut=())


def at_equal_cost(settings: Settings, rows: Any) -> dict[str, Any]:
    """CD-GraB after the epochs that fit into the cost of all of D-RR: prices, ratios, verdicts.

    Ratios are of D-RR's gap over that of CD-GraB.
    """
    cell, dimension = cells(settings)[MORTGAGES], 13
    costs = epoch_costs.of_logistic(dimension, cell.n_workers, cell.batch)
    cpu = float(rows.loc[rows["method"] == COORDINATED, "price"].iloc[0])
    prices = {CPU: cpu, **epoch_costs.prices_of(costs)}
    ratios: dict[str, Any] = {letter: {} for letter in SETS}
    words: dict[str, Any] = {equal(unit): {} for unit in COSTS}
    for unit in COSTS:
        last = max(1, min(cell.n_epochs, int(cell.n_epochs / prices[unit])))
        for letter, own in rows.groupby("set"):
            ours, base = (
                own.loc[own["method"] == name, after(at)].to_numpy(float)
                for name, at in ((COORDINATED, last), (BASELINE, cell.n_epochs))
            )
            apart = paired(np.log(ours), np.log(base), settings.seed)
            ratios[letter][unit] = [float(np.exp(-x)) for x in (apart.mean, apart.high, apart.low)]
            words[equal(unit)][letter] = verdict([Condition("", apart)])
    return {"costs": costs, "prices": prices, "equal": ratios, "verdicts": words}


def equal(unit: str) -> str:
    """The claim for equal cost."""
    return f"{LOWER}, for equal {unit}"


def claims(result: Result) -> tuple[Claim, ...]:
    """The claims by epoch, and those for equal cost where that was measured."""
    return (*CLAIMS, *(Claim(text, (), CD_GRAB) for text in result.facts.get("verdicts", {})))


def times(ratio: Any) -> str:
    """How many times lower, and its interval."""
    return "{} ({} to {})".format(*(f"{x:.3g}" for x in (ratio.ratio, ratio.low, ratio.high)))


def lower(result: Result, scene: str, letter: str) -> dict[str, Any]:
    """How many times lower than D-RR's the gaps are: of orders, and of CD-GraB for equal cost."""
    where = {"scene": scene}
    met = {*result.select(**where)["method"]}
    found = {
        name: next(result.ratio(BASELINE, name, set=letter, where=where).itertuples())
        for name in ORDERS[1:]
        if name in met
    }
    known = result.facts.get("equal", {}).get(letter, {}) if scene == MORTGAGES else {}
    return found | {unit: ratio_of(*own) for unit, own in known.items()}


def gap_table(result: Result) -> results.Table:
    """Final gaps of all orders, and how many times lower than D-RR's they are."""
    rows = []
    for (scene, name), own in result.select(set="A").groupby(["scene", "method"], sort=False):
        ratios = [lower(result, scene, letter).get(name) for letter in result.sets]
        texts = ["1" if one is None else times(one) for one in ratios]
        step, gap = f"{own['step'].iloc[0]:.3g}", float(np.exp(np.log(own["gap"]).mean()))
        rows.append([scene if name == BASELINE else "", name, step, own["trials"].iloc[0], gap])
        rows[-1] += texts
        if name == COORDINATED:
            by_set = [lower(result, scene, letter) for letter in result.sets]
            rows += [
                ["", f"{name}, equal {unit}", step, None, None, *(times(x[unit]) for x in by_set)]
                for unit in COSTS
                if unit in by_set[0]
            ]
    heads = ("problem", "order", "step", "trials", "f - f*, A", "D-RR / this, set A", "set B")
    return results.Table(
        tuple(results.Column(head, right=head in heads[2:5]) for head in heads),
        tuple(map(tuple, rows)),
        "f - f* after the last epoch, geometric means over the instances of a set (intervals of"
        " 95 %). Equal flops, bytes, numbers sent, time: after the epochs that fit into those of"
        " all epochs of D-RR. With 1 worker CD-GraB is pair balance.",
    )


TABLES = {"gaps": gap_table}


def figure(result: Result) -> Illustration:
    """How many times lower than D-RR's the gaps are, a row a problem; set A over set B."""
    scenes, series = list(result.rows["scene"].unique()), [*ORDERS[1:]]
    series += [unit for unit in COSTS if unit in result.facts.get("prices", {})]
    points = {
        f"CD-GraB, equal {name}" if name in COSTS else name: {
            letter: [lower(result, scene, letter).get(name) for scene in scenes]
            for letter in result.sets
        }
        for name in series
    }
    text = (
        "f - f* of D-RR over that of an order after the last epoch, and of CD-GraB for equal cost;"
        " full points set A, hollow set B, intervals of 95 %."
    )
    return Illustration(forest({"gap of D-RR / this": points}, scenes), text)


FIGURES = {"ratios": figure}


if __name__ == "__main__":
    part.main(NAME)
