"""Orders on networks: tasks, who orders what, the step of each, runs on instances, prices.

An instance draws which rows are trained on and which are left for the test, which unit of which
worker each row belongs to, whose labels are wrong, and the first model. Rows are dealt to units at
random, so the units of all workers are alike.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax.flatten_util import ravel_pytree

from asyncjax import orders, problems, results, simulation
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import TUNING, Seeds
from asyncjax.study.search import Knob, log_range
from experiments.common import numbers
from experiments.common.side_by_side import raveled
from experiments.ordering.herding_runs import ALONE, BASELINE, COORDINATED, PROJECTED, SETS
from experiments.ordering.ordered_convex_runs import prices

ORDERS = (BASELINE, "GraB", ALONE, COORDINATED, PROJECTED)
OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "SGD": optax.sgd,
    "momentum": partial(optax.sgd, momentum=0.9),
    "Adam": optax.adam,
}
LEVELS = (*protocol.LEVELS, 1.0)  # of the way to the lowest loss of D-RR
FINAL, ARRIVAL = "final loss", "arrival"  # what a step is chosen for
JUDGED = 5  # instances of a set whose last orders are judged, at most
DIGITS = 5  # of numbers in rows
LATE = 2.0  # times the epochs that were watched: when those are there that were not by then
GENRES = ("tragedies",)
CLASSES = 10
Pair = tuple[np.ndarray, np.ndarray]  # features and targets of some rows


class Material(NamedTuple):
    """Rows of an instance, a network, and the problem made of them."""

    data: str  # what the rows are
    model: nn.Module
    problem: Callable[..., problems.Problem]  # such as `problems.classification`
    train: Pair
    test: Pair


Load = Callable[[int, int, int], Material]  # training rows, test rows at most, seed of the data


@dataclass(frozen=True)
class Task:
    """What is trained, by how many workers, for how long.

    Attributes:
        name: In tables.
        load: Makes the rows of an instance.
        n_workers: m.
        n_units: n, of each worker, even.
        batch: Rows of a unit, even.
        test_rows: At most.
        optimizer: "SGD", "momentum" or "Adam".
        step: First grid of the step.
        n_epochs: Of every run.
        metric: "test_loss" or "test_accuracy".
        instances: Of each reported set.
        tuning_instances: On which steps are chosen.
        trials: Steps that an order tries in a round of tuning.
        orders: That are run; D-RR among them.
        authors: What the public scripts of CD-GraB have where this is smaller; empty: nothing.
    """

    name: str
    load: Load
    n_workers: int
    n_units: int
    batch: int
    test_rows: int
    optimizer: str
    step: Knob
    n_epochs: int
    metric: str = "test_loss"
    instances: int = 10
    tuning_instances: int = 4
    trials: int = 4
    orders: tuple[str, ...] = ORDERS
    authors: str = ""

    @property
    def title(self) -> str:
        """Name and number of workers."""
        return f"{self.name}, m = {self.n_workers}"

    @property
    def rows(self) -> int:
        """Training rows of an instance."""
        return self.n_workers * self.n_units * self.batch

    def material(self, instance: Seeds) -> Material:
        """The rows of an instance."""
        return self.load(self.rows, self.test_rows, instance.data)

    def problem(self, material: Material, n_workers: int, batch: int, seed: int) -> Any:
        """An instance's rows in contiguous shards, in units of `batch` rows.

        Args:
            material: Of the instance.
            n_workers: Shards.
            batch: Rows of a unit.
            seed: Of the first model.
        """
        train, test = (tuple(map(jnp.asarray, pair)) for pair in (material.train, material.test))
        return material.problem(
            material.model,
            *train,
            n_workers=n_workers,
            key=jax.random.key(seed),
            batch=problems.cyclic(batch),
            test=test,
        )


def dealt(rows: Sequence[np.ndarray], count: int, rest: int, seed: int) -> tuple[Pair, Pair]:
    """Some rows of a pair of arrays in random order, and others for the test.

    Raises:
        ValueError: There are not so many rows.
    """
    features, targets = rows
    if len(features) < count + 1:
        raise ValueError(f"rows must be at most {len(features) - 1}, got {count}")
    drawn = np.random.default_rng(seed).permutation(len(features))
    own, others = drawn[:count], drawn[count : count + rest]
    return (features[own], targets[own]), (features[others], targets[others])


def mislabelled(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Labels of which a share is drawn anew, each other label as likely."""
    generator = np.random.default_rng([seed, 1])
    wrong = generator.permutation(len(labels))[: round(share * len(labels))]
    found = labels.copy()
    found[wrong] = (found[wrong] + generator.integers(1, CLASSES, len(wrong))) % CLASSES
    return found


@cache
def _digits() -> Pair:
    found = problems.digits()
    return (
        np.concatenate([found.train_features, found.test_features]),
        np.concatenate([found.train_labels, found.test_labels]),
    )


@cache
def _images() -> Pair:
    found = problems.mnist_subset()
    features = np.concatenate([found.train_features, found.test_features])
    labels = np.concatenate([found.train_labels, found.test_labels])
    return features.reshape(-1, 28, 28, 1), labels


@cache
def _series() -> Pair:
    found = problems.m3("monthly", lags=12)
    return (
        np.concatenate([found.train_features, found.test_features]),
        np.concatenate([found.train_targets, found.test_targets]),
    )


@cache
def _words(n_words: int, length: int) -> tuple[Pair, int]:
    corpus = problems.shakespeare_words(n_words=n_words, genres=GENRES)
    return problems.windows(corpus.train, length), len(corpus.vocabulary)


@cache
def _characters(length: int) -> tuple[Pair, int]:
    corpus = problems.shakespeare_characters(genres=GENRES)
    return problems.windows(corpus.train, length), len(corpus.vocabulary)


def digits(noise: float, widths: tuple[int, ...], count: int, rest: int, seed: int) -> Material:
    """Handwritten digits, a share of whose training labels is wrong."""
    train, test = dealt(_digits(), count, rest, seed)
    train = (train[0], mislabelled(train[1], noise, seed))
    text = f"handwritten digits, {noise:.0%} of the labels wrong"
    return Material(text, problems.MLP(widths, CLASSES), problems.classification, train, test)


def images(noise: float, count: int, rest: int, seed: int) -> Material:
    """5,000 digits of MNIST, a share of whose training labels is wrong."""
    train, test = dealt(_images(), count, rest, seed)
    train = (train[0], mislabelled(train[1], noise, seed))
    text = f"digits of MNIST, {noise:.0%} of the labels wrong"
    return Material(text, problems.LeNet(), problems.classification, train, test)


def series(widths: tuple[int, ...], count: int, rest: int, seed: int) -> Material:
    """Windows of 12 months of M3, and the month that follows."""
    pairs = dealt(_series(), count, rest, seed)
    return Material("M3, monthly", problems.ForecastMLP(widths), problems.regression, *pairs)


def words(n_words: int, width: int, length: int, count: int, rest: int, seed: int) -> Material:
    """Windows of words of Shakespeare's tragedies."""
    rows, size = _words(n_words, length)
    model = problems.WordLSTM(size, width)
    text = f"words of Shakespeare, {length} a row, vocabulary {size}"
    return Material(text, model, problems.language_model, *dealt(rows, count, rest, seed))


def characters(width: int, length: int, count: int, rest: int, seed: int) -> Material:
    """Windows of characters of Shakespeare's tragedies."""
    rows, size = _characters(length)
    model = problems.TinyGPT(size, width, depth=2, heads=2, length=length)
    text = f"characters of Shakespeare, {length} a row"
    return Material(text, model, problems.language_model, *dealt(rows, count, rest, seed))


def tasks() -> Mapping[str, Task]:
    """The tasks by name: three that cost little, then four of the form of the authors' scripts.

    What the scripts of CD-GraB (github.com/GarlGuo/CD-GraB) have is stated where it differs.
    """
    small: dict[str, Any] = {"instances": 20, "tuning_instances": 5}
    dear: dict[str, Any] = {"tuning_instances": 2, "trials": 3}
    dear |= {"orders": (BASELINE, ALONE, COORDINATED)}
    sgd, adam = log_range(0.05, 0.4, 4), log_range(1e-3, 8e-3, 4)
    found = (
        Task("digits", partial(digits, 0.0, (32,)), 8, 32, 4, 512, "SGD", sgd, 30, **small),
        Task("noisy digits", partial(digits, 0.2, (32,)), 8, 32, 4, 512, "SGD", sgd, 30, **small),
        Task("forecast", partial(series, (32, 32)), 8, 32, 8, 2048, "Adam", adam, 20, **small),
        Task(
            "wide forecast",
            partial(series, (64, 64, 64)),
            *(32, 32, 4, 2048, "Adam", log_range(5e-4, 4e-3, 4), 20),
            authors="m = 32 and three layers of 64 as here; M4, weekly",
            **dear,
        ),
        Task(
            "LSTM",
            partial(words, 500, 24, 12),
            *(4, 16, 16, 512, "SGD", log_range(4.0, 32.0, 4), 14),
            authors="m = 4 and 16 rows a unit as here; WikiText-2, step 5, cut to 0.1 every ten",
            **dear,
        ),
        Task(
            "LeNet",
            partial(images, 0.2),
            *(16, 16, 4, 500, "momentum", log_range(0.01, 0.08, 4), 6),
            metric="test_accuracy",
            authors="LeNet and m of 4 to 64 as here; CIFAR-10, 100 epochs, step 0.001",
            **dear,
        ),
        Task(
            "GPT",
            partial(characters, 32, 24),
            *(64, 4, 2, 512, "Adam", log_range(2e-3, 1.6e-2, 4), 10),
            authors="m = 64 and two blocks as here; width 128, WikiText-103, AdamW, step 5e-4",
            **dear,
        ),
    )
    return {task.name: task for task in found}


class Method(NamedTuple):
    """One order, and how a run takes it."""

    order: Any  # an Order or a ProjectedOrder
    n_workers: int
    units_per_step: int
    n_units: int  # of each worker
    batch: int  # rows of a unit
    n_vectors: int  # as long as the model, kept by the order


class Trained(NamedTuple):
    """One run, E epochs."""

    models: jax.Array  # float[E, d], after each epoch
    order_state: Any


class Curve(NamedTuple):
    """What a run was worth, before the first epoch and after each."""

    loss: np.ndarray  # float[E + 1], over all training rows; inf where it diverged
    metric: np.ndarray  # float[E + 1], over the test rows


def methods_of(task: Task, like: Any) -> dict[str, Method]:
    """The orders of a task; the units are the same rows for all, those by projections have halves.

    Args:
        task: What is trained.
        like: A model.
    """
    m, n, batch = task.n_workers, task.n_units, task.batch
    dim = sum(leaf.size for leaf in jax.tree.leaves(like))

    def projected() -> Method:
        order = orders.coordinated_by_projection(m, 2 * n, like)
        return Method(order, m, 2, 2 * n, batch // 2, 1)

    makers: dict[str, Callable[[], Method]] = {
        BASELINE: lambda: Method(orders.reshuffled(n, n_workers=m), m, 1, n, batch, 0),
        "GraB": lambda: Method(orders.grab(m * n, dim), 1, m, m * n, batch, 3),
        ALONE: lambda: Method(orders.independent(m, n, dim), m, 1, n, batch, 2 * m),
        COORDINATED: lambda: Method(orders.coordinated(m, n, dim), m, 1, n, batch, m + 1),
        PROJECTED: projected,
    }
    return {name: makers[name]() for name in ORDERS if name in task.orders}


def trainer(task: Task, method: Method) -> Callable[..., Trained]:
    """Compiles one order on one task once, for all models, step sizes and seeds.

    Returns:
        `(problem, step_size, key) -> Trained`; it judges nothing, so it may be timed.
    """

    @jax.jit
    def train(problem: problems.Problem, step_size: jax.Array, key: jax.Array) -> Trained:
        run = simulation.run_epochs(
            replace(problem, objective_of=None, metrics_of=(("model", raveled),)),
            method.order,
            OPTIMIZERS[task.optimizer](step_size),
            n_epochs=task.n_epochs,
            n_workers=method.n_workers,
            units_per_step=method.units_per_step,
            key=key,
        )
        return Trained(run.records.metrics["model"], run.order_state)

    return train


@partial(jax.jit, static_argnums=1)
def judged(problem: problems.Problem, metric: str, models: jax.Array) -> tuple[jax.Array, ...]:
    """Training loss over all rows and a metric of the first model and of others, float[E + 1]."""

    def one(model: jax.Array) -> tuple[jax.Array, jax.Array]:
        params = ravel_pytree(problem.params)[1](model)
        objective: Any = problem.objective
        return objective(params), dict(problem.metrics_of)[metric](problem.data, params)

    first = raveled(None, problem.params)
    return jax.lax.map(one, jnp.concatenate([first[None], models]))


@partial(jax.jit, static_argnums=2)
def unit_gradients(problem: problems.Problem, model: jax.Array, n_units: int) -> jax.Array:
    """The gradient at one model of each unit of a single worker, float[n_units, d]."""
    params = ravel_pytree(problem.params)[1](model)

    def of_unit(unit: jax.Array) -> jax.Array:
        return ravel_pytree(problem.gradient(params, 0, unit, jax.random.key(0))[1])[0]

    return jax.lax.map(of_unit, jnp.arange(n_units))


@dataclass(frozen=True, eq=False)
class Field:
    """The instances of a task and all runs on them, each made once."""

    task: Task
    seed: int
    known: dict[tuple[str, float, Seeds], Curve] = field(default_factory=dict)
    ends: dict[tuple[str, float, Seeds], tuple[jax.Array, jax.Array]] = field(default_factory=dict)
    trainers: dict[str, Callable[..., Trained]] = field(default_factory=dict)
    made: dict[tuple[Seeds, int, int], problems.Problem] = field(default_factory=dict)
    materials: dict[Seeds, Material] = field(default_factory=dict)
    methods: dict[str, Method] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = self.problem(self.instances(TUNING)[0], self.task.n_workers, self.task.batch)
        self.methods.update(methods_of(self.task, first.params))
        self.trainers.update({k: trainer(self.task, v) for k, v in self.methods.items()})

    def instances(self, role: str) -> tuple[Seeds, ...]:
        """Those of a role."""
        count = self.task.tuning_instances if role == TUNING else self.task.instances
        return protocol.seeds_of(self.seed, role, count)

    def problem(self, instance: Seeds, n_workers: int, batch: int) -> problems.Problem:
        """The problem of an instance in shards of units; made once."""
        place = (instance, n_workers, batch)
        if place not in self.made:
            if instance not in self.materials:
                self.materials[instance] = self.task.material(instance)
            material = self.materials[instance]
            self.made[place] = self.task.problem(material, n_workers, batch, instance.model)
        return self.made[place]

    def train(self, name: str, step: float, instance: Seeds) -> Trained:
        """One run of an order."""
        method = self.methods[name]
        problem = self.problem(instance, method.n_workers, method.batch)
        return self.trainers[name](problem, step, jax.random.key(instance.noise()))

    def curve(self, name: str, step: float, instance: Seeds) -> Curve:
        """What a run of an order is worth."""
        place = (name, step, instance)
        if place not in self.known:
            trained, order = self.train(name, step, instance), self.order(name)
            whole = self.problem(instance, self.task.n_workers, self.task.batch)
            loss, metric = map(np.asarray, judged(whole, self.task.metric, trained.models))
            self.ends[place] = (order.permutation(trained.order_state), trained.models[-1])
            self.known[place] = Curve(np.where(np.isfinite(loss), loss, np.inf), metric)
        return self.known[place]

    def order(self, name: str) -> orders.Order:
        """An order, that of an order by projections too."""
        own = self.methods[name].order
        return getattr(own, "order", own)

    def targets(self, step: float, instance: Seeds) -> np.ndarray:
        """Losses at `LEVELS` of the way to the lowest of D-RR with a step, on the same instance."""
        loss = self.curve(BASELINE, step, instance).loss
        lowest = min(float(loss.min()), float(np.nextafter(loss[0], 0)))
        return protocol.targets(float(loss[0]), lowest, LEVELS)

    def imbalance(self, name: str, step: float, instance: Seeds, draws: int = 4) -> float:
        """The longest prefix sum of the last order at the last model, over that of random ones."""
        task, method, order = self.task, self.methods[name], self.order(name)
        self.curve(name, step, instance)
        visits, model = self.ends[name, step, instance]
        single = self.problem(instance, 1, task.batch // 2)
        vectors = unit_gradients(single, model, 2 * task.n_workers * task.n_units)
        vectors = jnp.mean(vectors.reshape(visits.size, -1, vectors.shape[-1]), axis=1)
        vectors = vectors.reshape(*visits.shape, -1)
        random = orders.reshuffled(method.n_units, n_workers=order.n_workers)
        drawn = [
            orders.prefix_norms(vectors, random.permutation(random.init(own))).l2
            for own in jax.random.split(jax.random.key(instance.noise(1)), draws)
        ]
        return float(orders.prefix_norms(vectors, visits).l2 / np.mean(drawn))


def epochs_to(loss: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Epochs until each target, between records in a straight line, float[levels]; inf: never."""
    epochs = np.arange(len(loss))
    return np.array(
        [results.time_to_target(epochs, loss, float(t), interpolate=True) for t in targets]
    )


def score_final(curve: Curve) -> float:
    """What a step that is chosen for the final loss is judged by."""
    return float(np.log(curve.loss[-1]))


def score_arrival(curve: Curve, targets: np.ndarray) -> float:
    """What a step that is chosen for early arrival is judged by; twice the epochs for never."""
    last = len(curve.loss) - 1
    found = epochs_to(curve.loss, targets)
    return float(np.log(np.where(np.isfinite(found), np.maximum(found, 1e-3), 2 * last)).mean())


def tuned(
    runs: Field, rounds: tuple[int, int], score: Callable[[Curve, Seeds], float]
) -> dict[str, tuning.Tuned]:
    """The step of every order, with as many trials each, on the instances for tuning."""
    task, own = runs.task, runs.instances(TUNING)

    def evaluate(name: str, tried: Sequence[tuning.Settings], _: int) -> list[float]:
        return [
            float(np.mean([score(runs.curve(name, one["step"], each), each) for each in own]))
            for one in tried
        ]

    return tuning.tune(
        {name: {"step": task.step} for name in runs.methods},
        evaluate,
        trials=task.trials,
        gradients=len(own) * task.n_epochs * task.n_workers * task.n_units,
        seed=runs.seed,
        rounds=rounds,
    )


def measured(
    task: Task, seed: int, rounds: tuple[int, int], repeats: int
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Tunes, runs and times all orders on one task.

    Args:
        task: What is trained.
        seed: Of the instances.
        rounds: Of tuning, least and most.
        repeats: Timed runs of each order, taking turns.

    Returns:
        Rows, an order, goal and instance each, and what else is known of the task.
    """
    began = time.process_time()
    runs = Field(task, seed)
    chosen = {FINAL: tuned(runs, rounds, lambda curve, _: score_final(curve))}
    base = chosen[FINAL][BASELINE].best.settings["step"]
    chosen[ARRIVAL] = tuned(
        runs, rounds, lambda curve, own: score_arrival(curve, runs.targets(base, own))
    )
    print(f"  {task.title}: tuned, {time.process_time() - began:.0f} s of CPU time", flush=True)
    first = runs.instances(TUNING)[0]
    step = {name: own.best.settings["step"] for name, own in chosen[FINAL].items()}
    timed = {name: partial(runs.train, name, step[name], first) for name in runs.methods}
    priced = prices(timed, BASELINE, repeats)
    rows = pd.DataFrame(
        {"scene": task.title, "set": letter, "instance": at, "method": name, "tuned_for": goal}
        | {"step": own.best.settings["step"], "trials": len(own.trials)}
        | {"tuning_gradients": len(own.trials) * own.gradients, "at_edge": bool(own.edges)}
        | _reported(runs, name, goal, own.best.settings["step"], base, one, at)
        for letter, role in SETS.items()
        for goal, found in chosen.items()
        for name, own in found.items()
        for at, one in enumerate(runs.instances(role))
    )
    print(f"  {task.title}: done, {time.process_time() - began:.0f} s of CPU time", flush=True)
    like = runs.problem(first, task.n_workers, task.batch).params
    facts = {"sizes": sizes_of(task, runs.materials[first], like), "prices": priced}
    facts["vectors"] = {name: method.n_vectors for name, method in runs.methods.items()}
    return rows, numbers.rounded(facts, DIGITS)


def _reported(
    runs: Field, name: str, goal: str, step: float, base: float, one: Seeds, at: int
) -> dict[str, float]:
    """What an order was worth on an instance: last loss and test, or epochs to the levels."""
    curve = runs.curve(name, step, one)
    if goal == ARRIVAL:
        epochs = epochs_to(curve.loss, runs.targets(base, one))
        found = dict(zip(map(arrival_column, LEVELS), epochs.tolist(), strict=True))
        return numbers.rounded(found | {"horizon": LATE * runs.task.n_epochs}, DIGITS)
    found = {"loss": float(curve.loss[-1]), "metric": float(curve.metric[-1])}
    if at < JUDGED:
        found["imbalance"] = runs.imbalance(name, step, one)
    return numbers.rounded(found, DIGITS)


def arrival_column(level: float) -> str:
    """The column of epochs to a level."""
    return f"epochs_{100 * level:.0f}"


def sizes_of(task: Task, material: Material, like: Any) -> dict[str, Any]:
    """What a task is, as plain values."""
    return {
        "data": material.data,
        "workers": task.n_workers,
        "units": task.n_units,
        "batch": task.batch,
        "test_rows": len(material.test[0]),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(like)),
        "optimizer": task.optimizer,
        "epochs": task.n_epochs,
        "metric": task.metric,
        "instances": task.instances,
        "tuning_instances": task.tuning_instances,
        "authors": task.authors,
    }
