"""Orders in logistic regression: rows, their minimum, runs; and what a run costs in another."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import orders, problems, results, simulation
from experiments.ordering.herding_runs import ALONE, BASELINE, COORDINATED, EXACT, PROJECTED

SMALLEST = 1e-15  # gap; what is below is rounding
LIMIT = 1e-10  # slope at which Newton's method is done


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults took 154 s of CPU time."""

    output: Path = Path("output/ordered_convex")
    seed: int = 0
    full: bool = False  # ten seeds, twice as fine grids, two units a step with all m > 1
    sizes: tuple[tuple[int, int], ...] = ((1, 512), (8, 128), (64, 32))  # m, rows n of each
    double: tuple[int, ...] = (64,)  # m with which two units a step are run as well
    scaling_rows: int = 1024  # m n, where it is fixed
    dim: int = 32
    l2: float = 0.01
    epochs: int = 60
    seeds: int = 3  # reported; each has rows and first orders of its own
    tuning_seeds: int = 2  # only to choose the step
    step_sizes: tuple[tuple[float, ...], ...] = (  # a grid for each of the sizes
        (0.001, 0.0017, 0.003, 0.0055, 0.01, 0.03, 0.1, 0.3),
        (0.003, 0.0055, 0.01, 0.017, 0.03, 0.1, 0.3, 1.0),
        (0.01, 0.017, 0.03, 0.055, 0.1, 0.3, 1.0, 3.0),
    )
    target: float = 1e-4  # gap whose epochs and server steps are reported
    mortgage: bool = True  # whether HMDA is run
    mortgage_workers: int = 4
    mortgage_batch: int = 16  # rows of a unit
    mortgage_momentum: float = 0.9
    mortgage_epochs: int = 50
    mortgage_seeds: int = 5
    mortgage_steps: tuple[float, ...] = (0.0015, 0.003, 0.005, 0.008, 0.015, 0.03, 0.05, 0.15)
    repeats: int = 15  # of an epoch's timing
    commit: bool = False  # also write the rows where committed ones are


@dataclass(frozen=True)
class Method:
    """An order, and how a step takes its units."""

    name: str
    order: orders.Order | orders.ProjectedOrder
    n_workers: int
    units_per_step: int
    units: int = 1  # of each worker in a step, also where one worker stands for all

    @property
    def label(self) -> str:
        """Name, and the units of a step where they are not 1."""
        return self.name if self.units == 1 else f"{self.name}, {self.units} units"


@dataclass(frozen=True)
class Rows:
    """Rows of several seeds, or of one, with their minimum."""

    features: np.ndarray  # float32[S, rows, d]
    labels: np.ndarray  # float32[S, rows], -1 or 1
    l2: float
    optimum: np.ndarray  # float64[S]

    def gap(self, models: np.ndarray) -> np.ndarray:
        """f(x) - f* in float64, float64[G, S, E], of models float[G, S, E, d]."""
        gaps = np.empty(models.shape[:-1])
        for seed in range(models.shape[1]):
            place = min(seed, len(self.optimum) - 1)
            own = models[:, seed].reshape(-1, models.shape[-1]).astype(np.float64)
            loss = objective(self.features[place], self.labels[place], self.l2, own)
            gaps[:, seed] = (loss - self.optimum[place]).reshape(gaps[:, seed].shape)
        return np.where(np.isfinite(gaps), np.maximum(gaps, SMALLEST), np.inf)


@dataclass(frozen=True)
class Outcome:
    """What a method did; G step sizes, S seeds, tuning seeds first, E epochs."""

    label: str
    step_sizes: tuple[float, ...]
    gap: np.ndarray  # float64[G, S, E], after each epoch
    tuning_seeds: int
    steps_per_epoch: int

    @property
    def last(self) -> np.ndarray:
        """The last gap of the reported seeds, float64[G, S]."""
        return self.gap[:, self.tuning_seeds :, -1]

    def chosen(self) -> int:
        """The step with the lowest last gap on the tuning seeds, by place on the grid."""
        return results.best_on_grid(np.log(self.gap[:, : self.tuning_seeds, -1]))

    def reached(self, target: float) -> np.ndarray:
        """Epochs to a gap, float64[S], with the step that is first there on the tuning seeds."""
        epochs = np.arange(1.0, self.gap.shape[-1] + 1)
        first = np.asarray(results.time_to_target(epochs, self.gap, target))
        place = int(np.argmin(np.mean(first[:, : self.tuning_seeds], axis=1)))
        return first[place, self.tuning_seeds :]


def objective(features: Any, labels: Any, l2: float, models: np.ndarray) -> np.ndarray:
    """The objective of models float64[K, d], float64[K]."""
    with np.errstate(over="ignore", invalid="ignore"):
        margin = np.asarray(labels, np.float64) * (models @ np.asarray(features, np.float64).T)
        return np.logaddexp(0, -margin).mean(axis=1) + l2 / 2 * (models**2).sum(axis=1)


def minimum(features: Any, labels: Any, l2: float) -> float:
    """f* of logistic regression by Newton's method in float64.

    Each step is the best of 1, 1/2, 1/4, ... of Newton's.

    Args:
        features: [rows, d].
        labels: [rows], -1 or 1.
        l2: Weight of half the sum of squares, positive.

    Raises:
        RuntimeError: A slope is left after 100 steps.
    """
    a = np.asarray(features, np.float64) * np.asarray(labels, np.float64)[:, None]
    x, ones = np.zeros(a.shape[1]), np.ones(len(a))
    slope = np.full(a.shape[1], np.inf)
    for _ in range(100):
        chance = 0.5 * (1 - np.tanh(a @ x / 2))
        slope = l2 * x - a.T @ chance / len(a)
        if np.abs(slope).max() < LIMIT:
            return float(objective(a, ones, l2, x[None])[0])
        curvature = (a.T * (chance * (1 - chance))) @ a / len(a) + l2 * np.eye(len(x))
        tried = x - 0.5 ** np.arange(20)[:, None] * np.linalg.solve(curvature, slope)
        x = tried[np.argmin(objective(a, ones, l2, tried))]
    raise RuntimeError(f"the optimum was not found: a slope of {np.abs(slope).max():.2g} is left")


def gaussian_rows(settings: Settings, count: int) -> Rows:
    """Gaussian features, labels drawn from a logistic model with weights of length about 2.

    A set a seed.
    """

    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        own, teacher, coin = jax.random.split(key, 3)
        features = jax.random.normal(own, (count, settings.dim))
        weights = 2 * jax.random.normal(teacher, (settings.dim,)) / np.sqrt(settings.dim)
        chance = jax.nn.sigmoid(features @ weights)
        return features, jnp.where(jax.random.uniform(coin, (count,)) < chance, 1.0, -1.0)

    features, labels = map(np.asarray, jax.vmap(draw)(_keys(settings, settings.seeds)))
    found = [minimum(*row, settings.l2) for row in zip(features, labels, strict=True)]
    return Rows(features, labels, settings.l2, np.array(found))


def mortgage_rows(settings: Settings) -> Rows:
    """The training rows of HMDA with a column of ones, in a drawn order.

    Whole units of all workers, an even number each.
    """
    data = problems.hmda()
    group = 2 * settings.mortgage_workers * settings.mortgage_batch
    count = len(data.train_labels) // group * group
    drawn = np.random.default_rng(settings.seed).permutation(len(data.train_labels))[:count]
    features = np.concatenate([data.train_features[drawn], np.ones((count, 1), np.float32)], axis=1)
    labels = np.where(data.train_labels[drawn] == 1, 1.0, -1.0).astype(np.float32)
    return Rows(
        features[None],
        labels[None],
        settings.l2,
        np.array([minimum(features, labels, settings.l2)]),
    )


def methods(m: int, n: int, dim: int) -> list[Method]:
    """The methods that take one unit of each worker in a step.

    One worker that holds everything takes m.
    """
    found = [
        Method(BASELINE, orders.reshuffled(n, n_workers=m), m, 1),
        Method("GraB", orders.grab(m * n, dim), 1, m),
        Method(EXACT, orders.pair_balanced(m * n, dim), 1, m),
    ]
    if m > 1:
        found += [
            Method(ALONE, orders.independent(m, n, dim), m, 1),
            Method(COORDINATED, orders.coordinated(m, n, dim), m, 1),
        ]
    return found


def double_methods(m: int, n: int, dim: int) -> list[Method]:
    """The methods that take two units of each worker in a step, as projections need."""
    like = jnp.zeros(dim)
    return [
        Method(BASELINE, orders.reshuffled(n, n_workers=m), m, 2, 2),
        Method(COORDINATED, orders.coordinated(m, n, dim), m, 2, 2),
        Method(PROJECTED, orders.coordinated_by_projection(m, n, like), m, 2, 2),
    ]


def problem_of(rows: Rows, seed: int, n_workers: int, batch: int = 1) -> problems.Problem:
    """The problem of one seed's rows; its records hold the model."""
    made = problems.logistic(
        rows.features[seed],
        rows.labels[seed],
        n_workers=n_workers,
        l2=rows.l2,
        batch=problems.cyclic(batch),
    )
    return replace(made, metrics_of=(("model", model),))


def model(data: Any, params: jax.Array) -> jax.Array:
    """The model itself, as a metric: gaps are found from it in float64."""
    return params


def models_of(
    method: Method,
    optimizer: Callable[[Any], optax.GradientTransformation],
    epochs: int,
    step_size: Any,
    problem: problems.Problem,
    key: jax.Array,
) -> jax.Array:
    """The model after each epoch, float[E, d]; pure in the last three."""
    run = simulation.run_epochs(
        problem,
        method.order,
        optimizer(step_size),
        n_epochs=epochs,
        n_workers=method.n_workers,
        units_per_step=method.units_per_step,
        key=key,
    )
    return run.records.metrics["model"]


def train(
    settings: Settings, rows: Rows, m: int, found: Sequence[Method], step_sizes: tuple[float, ...]
) -> list[Outcome]:
    """Runs methods on Gaussian rows for all steps and seeds at once, one compilation a method."""
    keys = _keys(settings, settings.seeds)
    n = rows.features.shape[1] // m
    made = {
        count: jax.tree.map(
            lambda *leaves: jnp.stack(leaves),
            *[problem_of(rows, seed, count) for seed in range(len(keys))],
        )
        for count in {method.n_workers for method in found}
    }
    outcomes = []
    for method in found:
        run = partial(models_of, method, optax.sgd, settings.epochs)
        grid = jax.vmap(jax.vmap(run, (None, 0, 0)), (0, None, None))
        models = jax.jit(grid)(jnp.asarray(step_sizes), made[method.n_workers], keys)
        gap = rows.gap(np.asarray(models))
        outcomes.append(
            Outcome(method.label, step_sizes, gap, settings.tuning_seeds, n // method.units)
        )
    return outcomes


def full_gradient(
    rows: Rows, step_sizes: Sequence[float], n_steps: int, momentum: float = 0.0
) -> np.ndarray:
    """The gap after steps along the full gradient, float64[G, S].

    What is left when orders make no noise.
    """

    def run(step_size: jax.Array, signed: jax.Array) -> jax.Array:
        def step(_: Any, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, velocity = state
            slope = rows.l2 * x - jax.nn.sigmoid(-(signed @ x)) @ signed / signed.shape[0]
            velocity = momentum * velocity + slope
            return x - step_size * velocity, velocity

        zero = jnp.zeros(signed.shape[-1])
        return jax.lax.fori_loop(0, n_steps, step, (zero, zero))[0]

    signed = jnp.asarray(rows.features * rows.labels[..., None])
    models = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(jnp.asarray(step_sizes), signed)
    return rows.gap(np.asarray(models)[:, :, None])[..., 0]


def mortgage(settings: Settings) -> tuple[list[Outcome], dict[str, tuple[float, ...]]]:
    """All runs on HMDA, and what an epoch of each method costs in those of D-RR.

    Raises:
        ImportError: The package that carries the data is not installed.
    """
    rows = mortgage_rows(settings)
    m, batch = settings.mortgage_workers, settings.mortgage_batch
    n, dim = rows.features.shape[1] // (m * batch), rows.features.shape[2]
    keys = _keys(settings, settings.mortgage_seeds)
    optimizer = partial(optax.sgd, momentum=settings.mortgage_momentum)
    made = {count: problem_of(rows, 0, count, batch) for count in (1, m)}
    outcomes, timed = [], {}
    for method in methods(m, n, dim) + double_methods(m, n, dim):
        train = jax.jit(partial(models_of, method, optimizer, settings.mortgage_epochs))
        run = partial(train, problem=made[method.n_workers])
        models = [[run(step_size=s, key=key) for key in keys] for s in settings.mortgage_steps]
        steps, gap = n // method.units, rows.gap(np.array(models))
        found = Outcome(method.label, settings.mortgage_steps, gap, settings.tuning_seeds, steps)
        outcomes.append(found)
        timed[method.label] = partial(run, step_size=settings.mortgage_steps[0], key=keys[0])
    return outcomes, prices(timed, BASELINE, settings.repeats)


def finer(grid: tuple[float, ...]) -> tuple[float, ...]:
    """A grid with the geometric means of its neighbours in between."""
    between = np.sqrt(np.multiply(grid[:-1], grid[1:]))
    return tuple(sorted([*grid, *map(float, between)]))


def _keys(settings: Settings, seeds: int) -> jax.Array:
    """Keys of all seeds, those for tuning first."""
    return jax.random.split(jax.random.key(settings.seed), settings.tuning_seeds + seeds)


def prices(
    runs: Mapping[str, Callable[[], Any]], baseline: str, repeats: int = 7
) -> dict[str, tuple[float, float, float]]:
    """What each function costs in another: the median over rounds of ratios, and quartiles.

    Seconds are those of the processor, not of the clock on the wall, so that what else the machine
    does counts little; with one thread the two are the same on a machine of one's own. Every round
    times each once, one right after the other; the first call, which compiles, is not counted.

    Args:
        runs: By name, functions of no argument that do the same number of epochs; what they return
            is waited for.
        baseline: The name whose price is 1.
        repeats: Rounds, at least 1.

    Raises:
        ValueError: `baseline` is not in `runs`, or `repeats` is below 1.

    Example:
        >>> found = prices({"once": lambda: sum(range(9)), "again": lambda: 0}, "once", 3)
        >>> found["once"], list(found)
        ((1.0, 1.0, 1.0), ['once', 'again'])
    """
    if baseline not in runs:
        raise ValueError(f"baseline must be among {', '.join(runs)}, got {baseline!r}")
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    for run in runs.values():
        jax.block_until_ready(run())
    taken = {name: np.zeros(repeats) for name in runs}
    for turn in range(repeats):
        for name, run in runs.items():
            began = time.process_time()
            jax.block_until_ready(run())
            taken[name][turn] = time.process_time() - began
    ratios = {name: seconds / taken[baseline] for name, seconds in taken.items()}
    ends = {name: np.quantile(own, [0.5, 0.25, 0.75]).tolist() for name, own in ratios.items()}
    return {name: (median, low, high) for name, (median, low, high) in ends.items()}
