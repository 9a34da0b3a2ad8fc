"""Do coordinated orders end lower on convex problems? Two sets of instances, steps tuned alike.

Logistic regression as in `ordered_convex`: Gaussian rows with 1, 8 and 64 workers, and mortgage
applications (HMDA) as in the public scripts of CD-GraB: four workers, units of 16 rows, momentum
0.9, 50 epochs. An instance draws the rows (HMDA: which rows, and which unit of whom each is in) and
the first orders. The step of each order is searched with as many trials, on instances that are not
reported. Shown is f - f* after the last epoch, f* by Newton's method in float64; for mortgages also
after as many epochs as fit into the time of those of D-RR: time of this CPU, flops and bytes as
compiled, and numbers that travel.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import problems, storage
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from asyncjax.study.search import Knob, log_range
from experiments.common.parts import Part, run_alone
from experiments.ordering import order_claims
from experiments.ordering import ordered_convex_runs as convex
from experiments.ordering.epoch_prices import prices

BASELINE, COORDINATED, ALONE = "D-RR", "CD-GraB", "independent"
MORTGAGES = "mortgages"
SETS = {"A": SET_A, "B": SET_B}
LANES = 20  # runs of every call, so that all share one compilation


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
    commit: bool = False  # also write the numbers where committed ones are


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
    counts = {TUNING: settings.tuning_instances, SET_A: settings.instances}
    counts[SET_B] = settings.instances
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
    names = (BASELINE, "pair balance") if m == 1 else (BASELINE, ALONE, COORDINATED)
    names = ("GraB", *names) if name == MORTGAGES else names
    methods = {COORDINATED if n == "pair balance" else n: known[n] for n in names}
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


def measured(settings: Settings, name: str) -> dict[str, Any]:
    """Tunes and runs all orders of a cell; lists have one entry an instance."""
    runs = runs_of(settings, name)
    count = settings.tuning_instances

    def evaluate(method: str, tried: Sequence[tuning.Settings], _: int) -> list[float]:
        pairs = [(place, one["step"]) for one in tried for place in range(count)]
        last = np.log(runs.gaps(method, pairs)[:, -1]).reshape(-1, count)
        return last.mean(axis=1).tolist()

    cell = runs.cell
    found = tuning.tune(
        {method: {"step": cell.step} for method in runs.methods},
        evaluate,
        trials=settings.trials,
        gradients=count * cell.n_epochs * cell.n_workers * cell.n_units,
        seed=settings.seed,
        rounds=settings.rounds,
    )
    reported = range(count, len(runs.instances))
    priced = _priced(settings, runs, found) if name == MORTGAGES else {}
    out: dict[str, Any] = {"sizes": [cell.n_workers, cell.n_units, cell.batch, cell.n_epochs]}
    out["dimension"] = runs.rows.features.shape[-1]
    out["orders"] = {}
    for method, own in found.items():
        step = own.best.settings["step"]
        gaps = runs.gaps(method, [(place, step) for place in reported])
        both = np.split(gaps, 2)
        out["orders"][method] = {
            "step": step,
            "trials": len(own.trials),
            "gradients": len(own.trials) * own.gradients,
            "searched": [own.space["step"].values[0], own.space["step"].values[-1]],
            "edges": list(own.edges),
            "price": priced.get(method),
            "gap": {which: part[:, -1].tolist() for which, part in zip(SETS, both, strict=True)},
            "curves": {which: part.tolist() for which, part in zip(SETS, both, strict=True)}
            if name == MORTGAGES
            else {},
        }
    return out


def _priced(
    settings: Settings, runs: Runs, found: Mapping[str, tuning.Tuned]
) -> dict[str, list[float]]:
    """What an epoch costs on this CPU, in those of D-RR: median and quartiles."""
    key, timed = jax.random.key(0), {}
    for name, method in runs.methods.items():
        own = jax.tree.map(lambda leaf: leaf[0], runs.made[method.n_workers])
        step = found[name].best.settings["step"]
        train = partial(convex.models_of, method, optimizer_of(runs.cell), runs.cell.n_epochs)
        timed[name] = partial(jax.jit(train), step, own, key)
    cost = prices(timed, BASELINE, settings.repeats)
    return {name: [one.median, one.low, one.high] for name, one in cost.items()}


def outcomes(settings: Settings) -> dict[str, dict[str, Any]]:
    """All cells; one that was measured before with the same settings and code is read from file."""
    if unknown := set(settings.cells) - set(cells(settings)):
        known = ", ".join(cells(settings))
        raise ValueError(f"cells must be among {known}, got {min(unknown)!r}")
    found = {}
    facts = {k: v for k, v in vars(settings).items() if k not in ("output", "cells", "commit")}
    mark = hashlib.sha256(repr(facts).encode() + Path(__file__).read_bytes()).hexdigest()[:16]
    for place, name in enumerate(settings.cells):
        path = settings.output / "cells" / f"{name}.json"
        kept = storage.load_json(path) if path.exists() else {}
        if kept.get("mark") != mark:
            kept = {"mark": mark, "found": measured(settings, name)}
            path.parent.mkdir(parents=True, exist_ok=True)
            storage.save_json(path, kept)
        found[name] = kept["found"]
        print(f"[{place + 1}/{len(settings.cells)}] {name}: done", flush=True)
    return found


def run(settings: Settings) -> Part:
    """Runs all cells, writes the figure and numbers.

    Raises:
        ValueError: A cell is not known.
    """
    return order_claims.convex_part(settings, outcomes(settings))


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
