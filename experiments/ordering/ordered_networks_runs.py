"""Orders on networks: who orders what, the step of each, runs on instances, prices."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from asyncjax import orders, problems, results, simulation, storage
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from experiments.common.judging import raveled
from experiments.ordering import ordered_tasks
from experiments.ordering.epoch_prices import prices
from experiments.ordering.ordered_tasks import Material, Task

BASELINE, COORDINATED, ALONE = "D-RR", "CD-GraB", "independent"
PROJECTED = "CD-GraB by projections"
ORDERS = (BASELINE, "GraB", ALONE, COORDINATED, PROJECTED)
FEW = (BASELINE, ALONE, COORDINATED)  # where runs are dear
OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "SGD": optax.sgd,
    "momentum": partial(optax.sgd, momentum=0.9),
    "Adam": optax.adam,
}
SETS = {"A": SET_A, "B": SET_B}
LEVELS = (*protocol.LEVELS, 1.0)  # of the way to the lowest loss of D-RR
FINAL, ARRIVAL = "final loss", "arrival"  # what a step is chosen for
JUDGED = 5  # instances of a set whose last orders are judged, at most


@dataclass(frozen=True)
class Settings:
    """What is run; tasks that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/ordered_networks")
    seed: int = 0
    tasks: tuple[str, ...] = tuple(ordered_tasks.tasks())
    rounds: tuple[int, int] = (3, 6)  # of tuning, least and most
    repeats: int = 5  # timed runs of each order, taking turns
    instances: int | None = None  # of each set; None: what a task has
    n_epochs: int | None = None  # None: what a task has
    commit: bool = False  # also write the numbers where committed ones are


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


def tasks_of(settings: Settings) -> tuple[Task, ...]:
    """The chosen tasks.

    Raises:
        ValueError: A task is not known, or a number is below 1.
    """
    known = ordered_tasks.tasks()
    if not settings.tasks or not set(settings.tasks) <= set(known):
        raise ValueError(f"tasks must be of {', '.join(known)}, got {', '.join(settings.tasks)}")
    given = {name: getattr(settings, name) for name in ("instances", "n_epochs")}
    for name, least in (("repeats", 1), ("instances", 2), ("n_epochs", 1)):
        number = getattr(settings, name)
        if number is not None and number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}")
    changed = {name: number for name, number in given.items() if number is not None}
    return tuple(replace(known[name], **changed) for name in settings.tasks)


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
    runs: Field, settings: Settings, score: Callable[[Curve, Seeds], float]
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
        seed=settings.seed,
        rounds=settings.rounds,
    )


def measured(task: Task, settings: Settings) -> dict[str, Any]:
    """Tunes, runs and times all orders on one task, as plain values."""
    began = time.process_time()
    runs = Field(task, settings.seed)
    chosen = {FINAL: tuned(runs, settings, lambda curve, _: score_final(curve))}
    base = chosen[FINAL][BASELINE].best.settings["step"]
    chosen[ARRIVAL] = tuned(
        runs, settings, lambda curve, own: score_arrival(curve, runs.targets(base, own))
    )
    print(f"  {task.title}: tuned, {time.process_time() - began:.0f} s of CPU time", flush=True)
    first = runs.instances(TUNING)[0]
    step = {name: own.best.settings["step"] for name, own in chosen[FINAL].items()}
    arrives = {name: own.best.settings["step"] for name, own in chosen[ARRIVAL].items()}
    priced = prices(
        {name: partial(runs.train, name, step[name], first) for name in runs.methods},
        BASELINE,
        settings.repeats,
    )
    sets = {}
    for which, role in SETS.items():
        own = runs.instances(role)
        sets[which] = {name: _reported(runs, own, name, step, arrives) for name in step}
        done = time.process_time() - began
        print(f"  {task.title}: set {which}, {done:.0f} s of CPU time", flush=True)
    like = runs.problem(first, task.n_workers, task.batch).params
    return {
        "sizes": sizes_of(task, runs.materials[first], like),
        "prices": {name: [one.median, one.low, one.high] for name, one in priced.items()},
        "vectors": {name: method.n_vectors for name, method in runs.methods.items()},
        "tuning": {
            aim: {
                name: {
                    "step": own.best.settings["step"],
                    "trials": len(own.trials),
                    "gradients": len(own.trials) * own.gradients,
                    "searched": [own.space["step"].values[0], own.space["step"].values[-1]],
                    "edges": list(own.edges),
                }
                for name, own in found.items()
            }
            for aim, found in chosen.items()
        },
        "sets": sets,
    }


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


def _reported(
    runs: Field,
    own: Sequence[Seeds],
    name: str,
    step: Mapping[str, float],
    arrives: Mapping[str, float],
) -> dict[str, Any]:
    """An order on a set: lists have one entry an instance, curves are medians."""
    curves = [runs.curve(name, step[name], one) for one in own]
    early = [runs.curve(name, arrives[name], one) for one in own]
    reached = [
        epochs_to(curve.loss, runs.targets(step[BASELINE], one))
        for curve, one in zip(early, own, strict=True)
    ]
    return {
        "loss": [float(curve.loss[-1]) for curve in curves],
        "metric": [float(curve.metric[-1]) for curve in curves],
        "epochs": np.transpose(reached).tolist(),  # by level
        "loss_curve": np.median([curve.loss for curve in curves], axis=0).tolist(),
        "early_curve": np.median([curve.loss for curve in early], axis=0).tolist(),
        "metric_curve": np.median([curve.metric for curve in curves], axis=0).tolist(),
        "imbalance": [runs.imbalance(name, step[name], one) for one in own[:JUDGED]],
    }


def outcomes(settings: Settings) -> dict[str, dict[str, Any]]:
    """All tasks by title; one that was measured before with the same settings is read from file.

    A task whose data are not installed is left out, and said to be.
    """
    found: dict[str, dict[str, Any]] = {}
    for place, task in enumerate(tasks := tasks_of(settings)):
        path = settings.output / "tasks" / f"{task.name}.json"
        mark = _fingerprint(settings, task)
        kept = storage.load_json(path) if path.exists() else {}
        if kept.get("fingerprint") != mark:
            try:
                kept = {"fingerprint": mark, "found": measured(task, settings)}
            except (ImportError, FileNotFoundError) as missing:
                print(f"left out: {task.title}. {missing}")
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            storage.save_json(path, kept)
        found[task.title] = kept["found"]
        print(f"[{place + 1}/{len(tasks)}] {task.title}: done", flush=True)
    if not found:
        raise FileNotFoundError("tasks must have one whose data are installed, got none")
    return found


def _fingerprint(settings: Settings, task: Task) -> str:
    """A digest of all that decides the numbers of a task."""
    facts = [task.name, task.instances, task.n_epochs, task.rows, jax.__version__]
    facts += [settings.seed, settings.rounds, settings.repeats]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name in ("ordered_networks_runs", "ordered_tasks"):
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]
