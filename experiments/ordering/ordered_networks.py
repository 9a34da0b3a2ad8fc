"""Do balanced orders train networks faster than random reshuffling, by epochs and by time?

Seven tasks (`epoch_costs.tasks`), up to five orders. Cooper et al. 2023 (arXiv 2302.00845) order
the units of m workers by their gradients. Here a unit is a microbatch. In every step each worker
takes one unit, and the server steps by the mean of their m gradients. Three tasks cost little
(digits, with and without wrong labels, monthly series), four have the form of the authors' public
scripts in a size that fits two cores (a wide forecaster, an LSTM, LeNet, a small transformer).

An instance draws which rows are trained on and which are left for the test, which unit of which
worker each row belongs to, whose labels are wrong, and the first model; its noise is the first
orders. Rows are dealt to units at random, so the units of all workers are alike. All orders have
the same rows, steps and epochs, and as many trials of their step, on instances that are not
reported, others for each set: once for the final loss, once for early arrival. They have no other
knob. An order arrives when its loss is at the target and stays there. Who does not arrive counts as
there after twice as many epochs: at its step for the final loss D-RR is there by the last, since
the target is its own last loss, and at the last epoch nobody could be later.

Time comes in four prices of an epoch, in those of D-RR: measured on this CPU, which plays m
workers, with one thread; flops and bytes as compiled for one of m machines; numbers it sends
(`epoch_costs`). "CD-GraB by projections" is the stale form: its units are half as large and it
takes two a step.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    os.environ.setdefault("NPROC", "1")  # prices are those of one thread

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.flatten_util import ravel_pytree

from asyncjax import checks, orders, problems, results
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import HOLDS, Condition, Difference, paired, shared
from asyncjax.study import protocol, search, summary
from asyncjax.study.protocol import TUNING, TUNING_OF, Seeds
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import numbers, sets
from experiments.common.kept_rows import once
from experiments.common.sets import SETS
from experiments.common.side_by_side import raveled
from experiments.ordering import epoch_costs, herding, ordered_convex as convex
from experiments.ordering.epoch_costs import CPU, EPOCHS, ORDERS, UNITS, Task, tasks, tasks_of
from experiments.ordering.herding import ALONE, BASELINE, CD_GRAB, COORDINATED, PROJECTED

NAME = "ordered_networks"
TITLE = "Do balanced orders train networks faster than random reshuffling?"
PAPERS = (CD_GRAB,)
LOWER, THAN_ALONE = "CD-GraB ends lower than D-RR", "CD-GraB ends lower than independent"
TESTED = "CD-GraB ends with a better test than D-RR"
LEVELS = (*protocol.LEVELS, 1.0)  # of the way to the last loss of D-RR
FINAL, ARRIVAL = "final loss", "arrival"  # what a step is chosen for
JUDGED = 5  # instances of a set whose last orders are judged, at most
DIGITS = 5  # of numbers in rows
LATE = 2.0  # times the epochs that were watched: when those are there that were not by then


@dataclass(frozen=True)
class Settings:
    """What is run; tasks that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/ordered_networks")
    seed: int = 0
    tasks: tuple[str, ...] = tuple(tasks())
    rounds: tuple[int, int] = (3, 6)  # of tuning, least and most
    repeats: int = 5  # timed runs of each order, taking turns
    instances: int | None = None  # of each set; None: what a task has
    n_epochs: int | None = None  # None: what a task has
    commit: bool = False  # also write the rows where committed ones are


def chosen_tasks(settings: Settings) -> list[Task]:
    """The tasks in their sizes.

    Raises:
        ValueError: A task is not known, or a number is too low.
    """
    checks.whole("repeats", settings.repeats)
    changed = {
        name: checks.whole(name, getattr(settings, name), least)
        for name, least in (("instances", 2), ("n_epochs", 1))
        if getattr(settings, name) is not None
    }
    return [replace(task, **changed) for task in tasks_of(settings.tasks)]


def study_of(settings: Settings) -> Result:
    """Runs all tasks; one whose data are not installed is left out, and said to be.

    Raises:
        ValueError: A setting is not allowed.
        FileNotFoundError: The data of no task are installed.
    """
    frames: list[pd.DataFrame] = []
    how = settings.seed, settings.rounds, settings.repeats
    for at, task in enumerate(chosen := chosen_tasks(settings)):
        try:
            frames.append(once(settings.output / "tasks", partial(measured, task, *how)))
        except (ImportError, FileNotFoundError) as missing:
            print(f"left out: {task.title}. {missing}")
            continue
        print(f"[{at + 1}/{len(chosen)}] {task.title}: done", flush=True)
    if not frames:
        raise FileNotFoundError("tasks must have one whose data are installed, got none")
    return as_result(settings, pd.concat(frames, ignore_index=True))


def as_result(settings: Settings, rows: pd.DataFrame) -> Result:
    """Rows of losses, tests and epochs to levels; of a task sizes, prices and costs are facts."""
    told = rows.groupby("scene", sort=False)["facts"].first()
    known = {scene: json.loads(str(text)) for scene, text in told.items()}
    facts = {"tasks": known, "tuned apart": True}
    cut = tuple(map(arrival_column, LEVELS))
    return Result(rows.drop(columns="facts"), "loss", facts, settings.seed, cut)


# Orders, and runs.


class Curve(NamedTuple):
    """What a run was worth, before the first epoch and after each, and how it ended."""

    loss: np.ndarray  # float[E + 1], over all training rows; inf where it diverged
    metric: np.ndarray  # float[E + 1], over the test rows
    visits: Any = None  # the order of a next epoch, int32[n] or int32[m, n]
    model: Any = None  # float[d], the last


@partial(jax.jit, static_argnums=1)
def judged(problem: problems.Problem, metric: str, models: jax.Array) -> tuple[jax.Array, ...]:
    """Training loss over all rows and a metric of the first model and of others, float[E + 1]."""

    def judge(model: jax.Array) -> tuple[jax.Array, jax.Array]:
        params = ravel_pytree(problem.params)[1](model)
        objective: Any = problem.objective
        return objective(params), dict(problem.metrics_of)[metric](problem.data, params)

    first = raveled(None, problem.params)
    return jax.lax.map(judge, jnp.concatenate([first[None], models]))


@partial(jax.jit, static_argnums=2)
def unit_gradients(problem: problems.Problem, model: jax.Array, n_units: int) -> jax.Array:
    """The gradient at one model of each unit of a single worker, float[n_units, d]."""
    params = ravel_pytree(problem.params)[1](model)

    def of_unit(unit: jax.Array) -> jax.Array:
        return ravel_pytree(problem.gradient(params, 0, unit, jax.random.key(0))[1])[0]

    return jax.lax.map(of_unit, jnp.arange(n_units))


class Field:
    """The instances of a task and all runs on them, each done once.

    The units are the same rows for all orders; those by projections have halves, two a step.

    Attributes:
        task: What is trained.
        seed: Of the instances.
        methods: Its orders.
        material: `instance -> rows, rows of its test`.
        problem: `(instance, n_workers, batch) -> Problem` in shards of units.
        curve: `(order, step, instance) -> Curve`, what a run is worth.
    """

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self.material = cache(task.material)
        self.problem: Callable[[Seeds, int, int], problems.Problem] = cache(self._problem)
        self.curve: Callable[[str, float, Seeds], Curve] = cache(self._curve)
        m, n = task.n_workers, task.n_units
        like = self.problem(self.instances(TUNING)[0], m, task.batch).params
        self.size = sum(leaf.size for leaf in jax.tree.leaves(like))
        known = convex.methods(m, n, self.size)
        known[PROJECTED] = convex.Method(orders.coordinated_by_projection(m, 2 * n, like), m, 2)
        self.methods = {name: known[name] for name in ORDERS if name in task.orders}
        optimizer = epoch_costs.OPTIMIZERS[task.optimizer]
        self._run = {
            name: jax.jit(partial(convex.run_of, method, optimizer, task.n_epochs))
            for name, method in self.methods.items()
        }

    def instances(self, role: str) -> tuple[Seeds, ...]:
        """Those of a role."""
        count = self.task.instances if role in TUNING_OF else self.task.tuning_instances
        return protocol.seeds_of(self.seed, role, count)

    def order(self, name: str) -> orders.Order:
        """An order, that of an order by projections too."""
        order: Any = self.methods[name].order
        return getattr(order, "order", order)

    def batch(self, name: str) -> int:
        """Rows of a unit."""
        return self.task.batch // 2 if name == PROJECTED else self.task.batch

    def train(self, name: str, step: float, instance: Seeds) -> tuple[jax.Array, Any]:
        """One run of an order: models float[E, d] and its state; nothing is judged."""
        problem = self.problem(instance, self.methods[name].n_workers, self.batch(name))
        return self._run[name](step, problem, jax.random.key(instance.noise()))

    def _problem(self, instance: Seeds, n_workers: int, batch: int) -> problems.Problem:
        return self.task.problem(self.material(instance), n_workers, batch, instance.model)

    def _curve(self, name: str, step: float, instance: Seeds) -> Curve:
        models, state = self.train(name, step, instance)
        whole = self.problem(instance, self.task.n_workers, self.task.batch)
        loss, metric = map(np.asarray, judged(whole, self.task.metric, models))
        loss = np.where(np.isfinite(loss), loss, np.inf)
        return Curve(loss, metric, self.order(name).permutation(state), models[-1])

    def targets(self, step: float, instance: Seeds) -> np.ndarray:
        """Losses at `LEVELS` of the way to the last of D-RR with a step, on the same instance."""
        first, *_, last = self.curve(BASELINE, step, instance).loss
        last = min(float(last), float(np.nextafter(first, 0)))
        return protocol.targets(float(first), last, LEVELS)

    def imbalance(self, name: str, step: float, instance: Seeds, draws: int = 4) -> float:
        """The longest prefix sum of the last order at the last model, over that of random ones."""
        task, (*_, visits, model) = self.task, self.curve(name, step, instance)
        single = self.problem(instance, 1, task.batch // 2)
        vectors = unit_gradients(single, model, 2 * task.n_workers * task.n_units)
        vectors = jnp.mean(vectors.reshape(visits.size, -1, vectors.shape[-1]), axis=1)
        vectors = vectors.reshape(*visits.shape, -1)
        random = orders.reshuffled(visits.shape[-1], n_workers=self.order(name).n_workers)
        drawn = [
            orders.prefix_norms(vectors, random.permutation(random.init(key))).l2
            for key in jax.random.split(jax.random.key(instance.noise(1)), draws)
        ]
        return float(orders.prefix_norms(vectors, visits).l2 / np.mean(drawn))


def epochs_to(loss: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Epochs from which on a loss stays at each target, float[levels]; inf: never.

    Between records it falls in a straight line.
    """
    when = partial(results.time_to_target, np.arange(len(loss)), loss, interpolate=True, stays=True)
    return np.array([when(float(target)) for target in targets])


def score_arrival(curve: Curve, targets: np.ndarray) -> float:
    """What a step that is chosen for early arrival is judged by; twice the epochs for never."""
    last, epochs = len(curve.loss) - 1, epochs_to(curve.loss, targets)
    return float(np.log(np.where(np.isfinite(epochs), np.maximum(epochs, 1e-3), 2 * last)).mean())


def tuned(
    runs: Field, role: str, rounds: tuple[int, int]
) -> tuple[dict[str, dict[str, search.Tuned]], Callable[[Seeds], np.ndarray]]:
    """The step of every order for each goal, chosen on the tuning instances of a set.

    Returns:
        What was found by goal and order, and the targets of an instance: those of D-RR at its step
        for the final loss.
    """
    chosen = partial(_searched, runs, TUNING_OF[role], rounds)
    ends = chosen(lambda curve, _: float(np.log(curve.loss[-1])))
    targets = partial(runs.targets, ends[BASELINE].best.settings["step"])
    return {FINAL: ends, ARRIVAL: chosen(lambda run, x: score_arrival(run, targets(x)))}, targets


def _searched(
    runs: Field, role: str, rounds: tuple[int, int], score: Callable[[Curve, Seeds], float]
) -> dict[str, search.Tuned]:
    """The step of every order of the lowest score, with as many trials each."""
    task, instances = runs.task, runs.instances(role)

    def evaluate(name: str, tried: Sequence[search.Settings], _: int) -> list[float]:
        return [
            float(np.mean([score(runs.curve(name, trial["step"], x), x) for x in instances]))
            for trial in tried
        ]

    return search.tune(
        {name: {"step": task.step} for name in runs.methods},
        evaluate,
        trials=task.trials,
        gradients=len(instances) * task.n_epochs * task.n_workers * task.n_units,
        seed=runs.seed,
        role=role,
        rounds=rounds,
    )


def measured(task: Task, seed: int, rounds: tuple[int, int], repeats: int) -> pd.DataFrame:
    """Tunes, runs and times all orders on one task.

    Args:
        task: What is trained.
        seed: Of the instances.
        rounds: Of tuning, least and most.
        repeats: Timed runs of each order, taking turns.

    Returns:
        Rows, an order, goal and instance each, and in a column what else is known of the task.
    """
    runs = Field(task, seed)
    found = {letter: tuned(runs, role, rounds) for letter, role in SETS.items()}
    rows = pd.DataFrame(
        {"scene": task.title, "set": letter, "instance": at, "method": name, "tuned_for": goal}
        | {"step": (step := known.best.settings["step"]), "trials": len(known.trials)}
        | {"tuning_gradients": len(known.trials) * known.gradients, "at_edge": bool(known.edges)}
        | _reported(runs, name, goal, step, targets(instance), instance, at)
        for letter, (chosen, targets) in found.items()
        for goal, by_name in chosen.items()
        for name, known in by_name.items()
        for at, instance in enumerate(runs.instances(SETS[letter]))
    )
    first, ends = runs.instances(TUNING)[0], found["A"][0][FINAL]
    steps = {name: known.best.settings["step"] for name, known in ends.items()}
    timed = {name: partial(runs.train, name, steps[name], first) for name in runs.methods}
    names = ("data", "batch", "optimizer", "metric", "instances", "tuning_instances", "authors")
    sizes = {name: getattr(task, name) for name in names}
    sizes |= {"workers": task.n_workers, "units": task.n_units, "epochs": task.n_epochs}
    sizes |= {"test_rows": len(runs.material(first)[1][0]), "parameters": runs.size}
    facts = {"sizes": sizes, "prices": epoch_costs.prices(timed, repeats)}
    facts = numbers.rounded(facts, DIGITS) | {"costs": epoch_costs.of_task(task)}
    return rows.assign(facts=json.dumps(facts))


def _reported(
    runs: Field, name: str, goal: str, step: float, targets: Any, instance: Seeds, at: int
) -> dict[str, float]:
    """What an order was worth on an instance: last loss and test, or epochs to the levels."""
    curve = runs.curve(name, step, instance)
    if goal == ARRIVAL:
        epochs = epochs_to(curve.loss, targets).tolist()
        worth = dict(zip(map(arrival_column, LEVELS), epochs, strict=True))
        worth["horizon"] = LATE * runs.task.n_epochs
    else:
        worth = {"loss": float(curve.loss[-1]), "metric": float(curve.metric[-1])}
        if at < JUDGED:
            worth["imbalance"] = runs.imbalance(name, step, instance)
    return numbers.rounded(worth, DIGITS)


def arrival_column(level: float) -> str:
    """The column of epochs to a level."""
    return f"epochs_{100 * level:.0f}"


# What the rows say.


def arrival(result: Result, unit: str, letter: str, task: str, level: float = 1.0) -> Difference:
    """Logarithm of what CD-GraB needs to a level over what D-RR does, in a unit."""
    facts, where = result.facts["tasks"][task], {"scene": task, "tuned_for": ARRIVAL}
    apart = result.difference(COORDINATED, BASELINE, letter, arrival_column(level), where)
    prices = {EPOCHS: 1.0, CPU: facts["prices"][COORDINATED][0]}
    price = float(np.log((prices | epoch_costs.prices_of(facts["costs"]))[unit]))
    return replace(apart, mean=apart.mean + price, low=apart.low + price, high=apart.high + price)


def ended(result: Result, letter: str, task: str, order: str) -> Difference:
    """Logarithm of an order's final loss over that of D-RR."""
    where = {"scene": task, "tuned_for": FINAL}
    return result.difference(order, BASELINE, letter, where=where)


def is_accuracy(result: Result, task: str) -> bool:
    """Whether the test is an accuracy, else it is a loss."""
    return result.facts["tasks"][task]["sizes"]["metric"] == "test_accuracy"


def on_test(
    result: Result, letter: str, task: str, order: str, *, ratio: bool = True
) -> Difference:
    """A test beside that of D-RR; below 0 is better.

    Args:
        result: Of the part.
        letter: The set.
        task: The scene.
        order: Compared with D-RR.
        ratio: The logarithm of a loss over that of D-RR; else their difference. Of an accuracy
            D-RR's less the order's, always.
    """
    mine, base = (
        result.values(name, letter, "metric", scene=task, tuned_for=FINAL).to_numpy()[0]
        for name in (order, BASELINE)
    )
    if is_accuracy(result, task):
        return paired(base, mine, result.seed)
    return paired(*((np.log(mine), np.log(base)) if ratio else (mine, base)), result.seed)


def sooner(unit: str, level: float) -> str:
    """The claim that CD-GraB arrives first, by a unit.

    Example:
        >>> sooner("flops", 0.5)
        'CD-GraB is sooner at 50 % of the way, by flops'
    """
    where = "the last loss of D-RR" if level == 1.0 else f"{100 * level:.0f} % of the way"
    return f"CD-GraB is sooner at {where}, by {unit}"


def claims(result: Result) -> tuple[Claim, ...]:
    """Losses, tests and arrivals by every unit, a condition a task."""
    scenes = list(_tasks(result))

    def better(task: str, of: Result, letter: str, level: float) -> Condition:
        return Condition(task, on_test(of, letter, task, COORDINATED, ratio=False))

    def first(task: str, at: float, unit: str, of: Result, letter: str, level: float) -> Condition:
        return Condition(task, arrival(of, unit, letter, task, at))

    ends = {"each": True, "tuned_for": FINAL}
    asked: dict[str, list[Any]] = {
        LOWER: [less(COORDINATED, BASELINE, **ends)],
        THAN_ALONE: [less(COORDINATED, ALONE, **ends)],
        TESTED: [partial(better, task) for task in scenes],
    }
    for unit, level in product(UNITS, LEVELS):
        asked[sooner(unit, level)] = [partial(first, task, level, unit) for task in scenes]
    return tuple(Claim(text, parts, CD_GRAB) for text, parts in asked.items())


def answer(result: Result) -> str:
    """The main verdicts in words."""
    main = (LOWER, sooner(EPOCHS, 1.0), sooner(CPU, 1.0))
    return summary.answer(result, [claim for claim in claims(result) if claim.text in main])


def verdict_table(result: Result) -> results.Table:
    """Claims and verdicts of all sets, those at the first two levels left out."""
    early = {sooner(unit, level) for unit in UNITS for level in LEVELS[:2]}
    said = result.verdicts([claim for claim in claims(result) if claim.text not in early])
    heads = ("claim", *(f"set {letter}" for letter in result.sets))
    rows = [(claim, *words.values()) for claim, words in said.items()]
    return herding.aligned(heads, rows, "Verdicts; each has a condition a task.")


def _as_ratio(apart: Difference | None) -> Any:
    """A difference of logarithms as a ratio with its interval."""
    return apart and herding.Ratio(*(float(np.exp(x)) for x in (apart.mean, apart.low, apart.high)))


def _ratio(apart: Difference) -> str:
    """The same in words."""
    return herding.ratio_text(_as_ratio(apart))


def _tasks(result: Result) -> dict[str, Any]:
    """What is known of each task, in the order of the rows."""
    return {task: result.facts["tasks"][task] for task in result.rows["scene"].unique()}


def loss_table(result: Result) -> results.Table:
    """Final losses of all orders."""
    ends = result.select(tuned_for=FINAL).groupby(["scene", "method", "set"], sort=False)
    balance = ends["imbalance"].mean().groupby(["scene", "method"]).mean()
    rows, steps = [], ends["step"].first()
    for task, facts in _tasks(result).items():
        for name in (name for name in ORDERS if name in facts["prices"]):
            cells = ["1", "", "1", "", ""]
            if name != BASELINE:
                losses = [ended(result, letter, task, name) for letter in ("A", "B")]
                cells = [
                    text
                    for loss in losses
                    for text in (_ratio(loss), f"{round(loss.lower * loss.count)} of {loss.count}")
                ]
                test = on_test(result, "A", task, name)
                cells.append(_percent(test) if is_accuracy(result, task) else _ratio(test))
            step = " / ".join(f"{steps[task, name, letter]:.3g}" for letter in result.sets)
            last = float(balance[task, name])
            rows.append((task if name == BASELINE else "", name, step, *cells, last))
    heads = ("task", "order", "step, A / B", "loss / D-RR, set A", "lower in", "set B", "lower in")
    return herding.aligned(
        (*heads, "test, A", "prefix sum"),
        rows,
        "Final training loss over that of D-RR, geometric mean over instances (interval of 95 %)."
        " Test: test loss over that of D-RR, or, for an accuracy, by how many points it is lower."
        " Prefix sum: the longest of the last order at the last model, over that of random orders.",
        right=("step, A / B", "lower in", "prefix sum"),
    )


def _percent(difference: Difference) -> str:
    values = (100 * one for one in (difference.mean, difference.low, difference.high))
    return "{:+.1f} ({:+.1f} to {:+.1f}) points".format(*values)


def price_table(result: Result) -> results.Table:
    """What an epoch of CD-GraB costs in those of D-RR."""
    rows = []
    for task, facts in _tasks(result).items():
        costs, (middle, low, high) = facts["costs"], facts["prices"][COORDINATED]
        cells = (f"{facts['sizes']['parameters']:,}", f"{middle:.2f} ({low:.2f} to {high:.2f})")
        ratios = (
            *costs["ratio"][epoch_costs.DEVICE],
            *costs["ratio"][epoch_costs.MACHINE],
            costs["sent ratio"],
        )
        rows.append((task, *cells, *ratios, *costs["extra over expected"]))
    heads = ("one device: flops", "bytes", "one of m machines: flops", "bytes", "numbers sent")
    heads = ("parameters", *heads, "flops added / derived", "bytes added / derived")
    return herding.aligned(
        ("task", "parameters", "this CPU, median (quartiles)", *heads[1:]),
        rows,
        "The price of an epoch of CD-GraB in those of D-RR. Derived: what balancing adds should be"
        " 6 flops and 8 numbers read or written a parameter and pair of steps.",
        right=heads,
    )


def time_table(result: Result) -> results.Table:
    """What CD-GraB needs to the last loss of D-RR."""
    rows = [
        (
            task,
            *(_ratio(arrival(result, unit, "A", task)) for unit in UNITS),
            *(_as_ratio(arrival(result, unit, "B", task)).ratio for unit in UNITS),
        )
        for task in _tasks(result)
    ]
    return herding.aligned(
        ("task", *(f"{unit}, A" for unit in UNITS), *(right := [f"{unit}, B" for unit in UNITS])),
        rows,
        "What CD-GraB needs until it stays at the last loss of D-RR on the same instance, over that"
        " of D-RR;"
        f" who is not there by the last epoch counts as there after {LATE:g} times as many.",
        right,
    )


def size_table(result: Result) -> results.Table:
    """What the tasks are."""
    rows = []
    for task, facts in _tasks(result).items():
        sizes = facts["sizes"]
        cells = (sizes[name] for name in ("optimizer", "epochs", "instances", "authors"))
        rows.append((task, sizes["data"], f"{sizes['units']} x {sizes['batch']}", *cells))
    heads = ("task", "data", "units x rows", "optimizer", "epochs", "instances a set")
    text = "The tasks; units of each worker."
    return herding.aligned((*heads, "the authors' scripts"), rows, text, (heads[2], *heads[4:]))


TABLES = {
    "main verdicts": verdict_table,
    "losses": loss_table,
    "prices": price_table,
    "times": time_table,
    "sizes": size_table,
    "spread": sets.spread_of,
}


def below_in_both(result: Result, apart: Callable[[str, str], Difference]) -> int:
    """On how many tasks a difference `(set, task) -> Difference` is significantly below 0."""
    return sum(all(apart(x, task).high < 0 for x in result.sets) for task in _tasks(result))


def lower_in_both(result: Result) -> int:
    """On how many tasks CD-GraB ends lower in both sets, as the claim is judged."""
    [claim] = [one for one in claims(result) if one.text == LOWER]
    return shared([result.conditions(claim, x) for x in result.sets]).count(HOLDS)


def sooner_in_both(result: Result) -> dict[str, int]:
    """By unit on how many tasks CD-GraB is significantly sooner at the last loss in both sets."""
    return {unit: below_in_both(result, partial(arrival, result, unit)) for unit in UNITS}


def by_task(result: Result) -> dict[str, Any]:
    """By task and set how many percent lower CD-GraB ends."""

    def lower(task: str, letter: str) -> float:
        return 100 - 100 * float(np.exp(ended(result, letter, task, COORDINATED).mean))

    return {x: {y: {"percent": lower(x, y)} for y in result.sets} for x in _tasks(result)}


FACTS = {
    "by task": by_task,
    "ends lower in both sets": lower_in_both,
    "sooner in both sets": sooner_in_both,
}


def figure(result: Result) -> Illustration:
    """Final losses by order, and what CD-GraB needs by unit, a row a task; set A over set B."""
    known = _tasks(result)

    def loss(order: str, letter: str, task: str) -> Difference | None:
        met = order in known[task]["prices"]
        return ended(result, letter, task, order) if met else None

    def ratios(apart: Callable[..., Any], names: Sequence[str]) -> dict[str, Any]:
        return {
            name: {x: [_as_ratio(apart(name, x, task)) for task in known] for x in result.sets}
            for name in names
        }

    panels = {
        "final training loss / D-RR": ratios(loss, ORDERS[1:]),
        "CD-GraB / D-RR until D-RR's last loss": ratios(partial(arrival, result), UNITS),
    }
    return Illustration(
        herding.forest(panels, list(known)),
        "Final training loss, and what CD-GraB needs until D-RR's last loss by what is counted;"
        " full points set A, hollow set B, intervals of 95 %.",
    )


FIGURES = {"ratios": figure}


if __name__ == "__main__":
    part.main(NAME)
