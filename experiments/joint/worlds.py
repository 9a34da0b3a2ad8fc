"""What the arms meet: rows, their holders, clocks, and the losses between which targets lie.

A scene says how a crew and its rows are drawn; an instance of it is a `World`. Half of the workers
are of an old generation. Times are in units in which a crew of n workers that never wait makes n
gradients in the mean, whatever the unevenness.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from asyncjax import clocks, problems
from asyncjax.study.protocol import Seeds

SHAPE = 16.0  # of the gamma law of a job's time
ALIKE = (0.9, 1.1)  # range of the mean times of workers of one generation, before they are scaled
TEACHER = 3.0  # length of the weights that labels are drawn with
ADAM = 600  # steps along the full gradient, at whose end a network's way ends


@dataclass(frozen=True)
class Scene:
    """How worlds are drawn.

    Attributes:
        name: In tables and files.
        network: Whether a network is trained on digits, and not a logistic regression.
        n_workers: Even; the second half is of the old generation.
        unevenness: Time of the old over that of the new, at least 1.
        skew: Share of the rows that are dealt by label: at 1 the old generation holds nearly all
            rows of one label (network: the later labels) and the new the others.
        flipped: Share of the labels that are redrawn.
        batch: Rows of a unit.
        units: Of each worker.
        up, down: Mean times for which an old worker works and is away by turns; 0: never away.
        horizon: Time that is watched.
        levels: Shares of the way from the first loss to the least, the targets.
    """

    name: str
    network: bool = False
    n_workers: int = 8
    unevenness: float = 4.0
    skew: float = 0.5
    flipped: float = 0.1
    batch: int = 1
    units: int = 32
    up: float = 0.0
    down: float = 0.0
    horizon: float = 1250.0
    levels: tuple[float, ...] = (0.9, 0.97, 0.99)

    @property
    def crew(self) -> "Scene":
        """The same for whoever asks about workers and times alone."""
        return replace(self, name="", skew=0.0, batch=1)


@dataclass(frozen=True, eq=False)
class World:
    """An instance of a scene.

    Attributes:
        scene: Of which it is.
        make: `batch -> problem`; the rows of a worker are in drawn order.
        start: Loss of the first model.
        least: Loss that is taken as the end of the way; gaps are above it.
        noise: Seed of times, orders and draws.
        hearing: Gap of the model at which steps of every arrival alike would end: the minimum
            weighted by speed. NaN where it is not known.
    """

    scene: Scene
    make: Callable[[problems.Batch], problems.Problem]
    start: float
    least: float
    noise: int
    hearing: float = float("nan")


def clock_of(scene: Scene, instance: Seeds) -> clocks.Clock:
    """The workers of an instance: the new ones first; old ones may come and go."""
    n = scene.n_workers
    drawn = np.random.default_rng(instance.clock).uniform(*ALIKE, n)
    times = drawn * np.where(np.arange(n) < n // 2, 1.0, scene.unevenness)
    clock = clocks.gamma(SHAPE, times * np.mean(1 / times))
    if not scene.down:
        return clock
    is_old = np.arange(n) >= n // 2
    up = clocks.exponential(np.where(is_old, scene.up, 1e6))
    return clocks.on_off(clock, up=up, down=clocks.exponential(np.where(is_old, scene.down, 1e-6)))


def speeds_of(scene: Scene, instance: Seeds) -> np.ndarray:
    """Gradients that each worker makes in a unit of time, float64[n]."""
    clock = clock_of(replace(scene, down=0.0), instance)
    speeds = 1 / np.asarray(clock.mean, float)
    if scene.down:
        speeds[scene.n_workers // 2 :] *= scene.up / (scene.up + scene.down)
    return speeds


def dealt(labels: np.ndarray, skew: float, rng: np.random.Generator) -> np.ndarray:
    """An order of the rows; those of the second half have later labels, the more the larger skew.

    Args:
        labels: [rows].
        skew: Share of rows that are placed by label; the others anywhere.
        rng: Of the places.
    """
    n = len(labels)
    ranks = np.empty(n)
    ranks[np.lexsort((rng.random(n), labels))] = (np.arange(n) + 0.5) / n
    place = np.where(rng.random(n) < skew, ranks, rng.random(n))
    order = np.argsort(place, kind="stable")
    return np.concatenate([rng.permutation(half) for half in np.array_split(order, 2)])


def world_of(scene: Scene, instance: Seeds) -> World:
    """Draws an instance of a scene."""
    return (_network if scene.network else _regression)(scene, instance)


def _regression(scene: Scene, instance: Seeds, dim: int = 15, l2: float = 0.01) -> World:
    """Logistic regression on Gaussian rows and a column of ones."""
    n, rng = scene.n_workers, np.random.default_rng(instance.data)
    count = n * scene.units * scene.batch
    features = rng.standard_normal((count, dim))
    teacher = rng.standard_normal(dim)
    chance = 1 / (1 + np.exp(-TEACHER * features @ teacher / np.linalg.norm(teacher)))
    labels = rng.random(count) < chance
    labels = np.where(rng.random(count) < scene.flipped, rng.random(count) < 0.5, labels)
    order = dealt(labels, scene.skew, rng)
    rows = np.column_stack([features, np.ones(count)])[order].astype(np.float32)
    labels = np.where(labels[order], 1.0, -1.0)
    start = 0.3 * np.random.default_rng(instance.model).standard_normal(dim + 1)

    def make(batch: problems.Batch) -> problems.Problem:
        return problems.logistic(
            rows, labels, n_workers=n, l2=l2, batch=batch, start=start.astype(np.float32)
        )

    signed = rows.astype(float) * labels[:, None]
    everyone = np.full(count, 1 / count)
    shares = np.repeat(speeds_of(scene, instance), count // n)
    least = objective(signed, everyone, l2, minimum(signed, everyone, l2))
    heard = objective(signed, everyone, l2, minimum(signed, shares / shares.sum(), l2))
    first = objective(signed, everyone, l2, start)
    return World(scene, make, first, least, instance.noise(), heard - least)


def objective(signed: np.ndarray, weights: np.ndarray, l2: float, x: np.ndarray) -> float:
    """Weighted logistic loss of rows times labels float64[rows, d], with half of l2 |x|^2."""
    return float(weights @ np.logaddexp(0, -signed @ x) + l2 / 2 * x @ x)


def minimum(signed: np.ndarray, weights: np.ndarray, l2: float) -> np.ndarray:
    """The minimum of `objective` by Newton's method, each step the best of 1, 1/2, 1/4, ..."""
    x, slope = np.zeros(signed.shape[1]), np.full(signed.shape[1], np.inf)
    for _ in range(100):
        chance = 0.5 * (1 - np.tanh(signed @ x / 2))
        slope = l2 * x - signed.T @ (weights * chance)
        if np.abs(slope).max() < 1e-8:
            return x
        curved = (signed * (weights * chance * (1 - chance))[:, None]).T @ signed
        step = np.linalg.solve(curved + l2 * np.eye(len(x)), slope)
        tried = [x - 0.5**k * step for k in range(20)]
        x = min(tried, key=lambda at: objective(signed, weights, l2, at))
    raise RuntimeError(f"the minimum was not found: a slope of {np.abs(slope).max():.2g} is left")


def _network(scene: Scene, instance: Seeds, hidden: int = 8, l2: float = 1e-2) -> World:
    """A network on some of the digits, part of whose labels are redrawn.

    Its way ends where `ADAM` steps of Adam along the full gradient do.
    """
    n, rng = scene.n_workers, np.random.default_rng(instance.data)
    count = n * scene.units * scene.batch
    data = problems.digits()
    features, truth = np.asarray(data.train_features), np.asarray(data.train_labels)
    chosen = rng.permutation(len(truth))[:count]
    features, labels = features[chosen], truth[chosen]
    labels = np.where(rng.random(count) < scene.flipped, rng.integers(10, size=count), labels)
    order = dealt(labels, scene.skew, rng)

    def make(batch: problems.Batch) -> problems.Problem:
        return problems.classification(
            problems.MLP(hidden=(hidden,), classes=10),
            features[order],
            labels[order],
            n_workers=n,
            batch=batch,
            key=jax.random.key(instance.model),
            l2=l2,
        )

    problem = make(problems.cyclic(scene.batch))
    start = float(cast(Any, problem.objective)(problem.params))
    return World(scene, make, start, float(_descended(problem)), instance.noise())


@jax.jit
def _descended(problem: problems.Problem) -> jax.Array:
    """The loss after steps of Adam along the full gradient, their size falling to 0."""
    objective: Any = problem.objective
    flat, restored = ravel_pytree(problem.params)
    adam = optax.scale_by_adam()

    def step(number: Any, state: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        x, moments = state
        slope = jax.grad(lambda at: objective(restored(at)))(x)
        move, moments = adam.update(slope, moments)
        return x - 0.03 * (1 - number / ADAM) * move, moments

    x, _ = jax.lax.fori_loop(0, ADAM, step, (flat, adam.init(flat)))
    return objective(restored(x))
