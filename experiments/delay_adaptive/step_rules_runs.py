"""Step-size rules on one problem and one law of delays, over instances: what is run.

The problem is regularised logistic regression on real data,

    P(x) = (1/n) sum_i mean log(1 + exp(-y a x)) + (l2/2) ||x||^2 + l1 ||x||_1
    f    = all but the last term

Consecutive shards of equal size; trailing rows are left out. The optimum comes from an independent
solver (L-BFGS-B of SciPy on x = u - v with u, v >= 0, in float64), so that a gap P(x_k) - P* does
not depend on the methods compared.

A case says what is optimised, by which algorithm (aggregated gradients or block descent) and with
which delays; an instance of it has rows, workers, a first model and a run of its own. Every rule is
run at its theory step size and at the best multiple of gamma' = h / L, which is searched on the
tuning instances, with as many trials for each rule. Where a best multiple is at the end of the
grid, the grid grows and all rules get another round. All runs of a data set share one compilation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import problems, results, simulation, steps, traces
from asyncjax.simulation.plans.program import Sizes
from asyncjax.study import search as tuning
from asyncjax.study.protocol import LEVELS, SET_A, SET_B, TUNING, Seeds, seeds_of
from asyncjax.study.result import Result
from experiments.common import numbers
from experiments.common.kept_rows import once

Rule = optax.GradientTransformationExtraArgs
Relative = Callable[[jax.Array, jax.Array], jax.Array]
MAX_DELAY = 512
# The relative step of each rule from the room that the window leaves, and the delay.
RELATIVE: dict[str, Relative] = {
    "Adaptive 1": steps.adaptive_1_rule(0.9),
    "Adaptive 2": steps.adaptive_2_rule(),
    "c/(delay+1)": lambda room, delay: 1 / (delay + 1).astype(room.dtype),
    "constant": lambda room, delay: jnp.ones_like(room),
}
CONSTANT, SYNCHRONOUS = "constant", "synchronous"
ADAPTIVE = tuple(name for name in RELATIVE if name != CONSTANT)
THEORY, TUNED = "theory", "tuned"  # step sizes
UPDATES, TIME = "updates", "time"  # what is counted
SETS = {SET_A: "A", SET_B: "B"}
SAFETY = 0.99  # h of gamma' = h / L
N_BLOCKS = 20
DIGITS = 5  # of numbers in rows
_LANES = 9  # runs of one call
_FINE, _LOWEST, _CODES = 1024, -24, 40 * 1024  # of a step: codes an octave, first octave, codes


class Source(NamedTuple):
    """Where rows come from, and what is added to the loss."""

    data: Callable[[], Any]  # labels from 0 on, of which even and odd are told apart
    l1: float = 1e-3
    l2: float = 1e-2
    n_workers: int = 8
    most: int = 5000  # rows
    sorted: bool = False  # by label; rows are then taken in a drawn order


SOURCES = {
    "breast cancer": Source(problems.breast_cancer),
    "digits": Source(problems.digits),
    "MNIST": Source(problems.mnist_subset, n_workers=10, sorted=True),
    "Shakespeare": Source(
        partial(problems.shakespeare_genres, n_features=1000), 3e-4, 1e-3, most=4000, sorted=True
    ),
}


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features float32[rows, d] and labels 0 or 1 of the training rows of one of `SOURCES`.

    Raises:
        ImportError: The package that brings the data is missing; it says which.
    """
    data = SOURCES[name].data()
    features, labels = data.train_features, data.train_labels % 2
    if SOURCES[name].sorted:
        order = np.random.default_rng(0).permutation(len(labels))
        features, labels = features[order], labels[order]
    return features, labels


@dataclass(frozen=True, eq=False)
class Regularized:
    """One data set.

    Attributes:
        shards: The problem with a shard a worker; l1 in the objective only.
        whole: The same with one worker that holds all rows.
        l1: Weight of the sum of absolute values, for the proximal step.
        smoothness: Lipschitz constants of the shards and of f.
        blocks: The same by blocks of coordinates.
        optimum: P*.
    """

    shards: problems.Problem
    whole: problems.Problem
    l1: float
    smoothness: problems.Smoothness
    blocks: problems.BlockSmoothness
    optimum: float


@cache
def regularized(name: str, seed: int) -> Regularized:
    """Makes the problem of an instance; the optimum of the largest data takes some seconds.

    Args:
        name: One of `SOURCES`.
        seed: Of the instance, which has four fifths of the rows, in an order of its own.
    """
    features, labels = rows_of(name)
    _, l1, l2, n_workers, most, _ = SOURCES[name]
    most = min(len(features), most)
    rows = np.random.default_rng(seed).permutation(most)[: 4 * most // 5]
    rows = rows[: len(rows) // n_workers * n_workers]
    features, labels = features[rows], labels[rows]
    shards, whole = (
        problems.logistic(features, labels, n_workers=n, l1=l1, l2=l2) for n in (n_workers, 1)
    )
    signs = np.where(labels == 1, 1.0, -1.0)
    return Regularized(
        shards=shards,
        whole=whole,
        l1=l1,
        smoothness=problems.smoothness(shards),
        blocks=problems.block_smoothness(whole, N_BLOCKS),
        optimum=minimum(features.astype(np.float64), signs, l1, l2)[1],
    )


def minimum(
    features: np.ndarray, signs: np.ndarray, l1: float, l2: float
) -> tuple[np.ndarray, float]:
    """The minimum of P by a general solver, in float64.

    Args:
        features: float64[rows, d].
        signs: float64[rows], -1 or 1.
        l1: Weight of the sum of absolute values.
        l2: Weight of half the sum of squares.

    Returns:
        The minimiser float64[d] and P*.
    """

    def smooth(x: np.ndarray) -> tuple[float, np.ndarray]:
        margin = signs * (features @ x)
        value = np.logaddexp(0, -margin).mean() + l2 / 2 * (x @ x)
        chance = 0.5 * (1 - np.tanh(margin / 2))
        return value, -features.T @ (signs * chance) / len(signs) + l2 * x

    return sparse_minimum(smooth, features.shape[1], l1)


def sparse_minimum(
    smooth: Callable[[np.ndarray], tuple[float, np.ndarray]], dimension: int, l1: float
) -> tuple[np.ndarray, float]:
    """The minimum of a smooth convex function plus l1 times the sum of absolute values, in float64.

    Args:
        smooth: `float64[d] -> (value, gradient)`.
        dimension: d.
        l1: Weight of the sum of absolute values.

    Returns:
        The minimiser float64[d] and the smallest value.

    Raises:
        RuntimeError: The solver stopped far from a stationary point.
    """
    from scipy.optimize import minimize

    def objective(split: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = smooth(split[:dimension] - split[dimension:])
        return value + l1 * split.sum(), np.concatenate([gradient + l1, l1 - gradient])

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-7, "maxcor": 30}
    start, bounds = np.zeros(2 * dimension), [(0.0, None)] * (2 * dimension)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    slope = objective(found.x)[1]
    stationary = np.where(found.x > 0, np.abs(slope), np.maximum(-slope, 0)).max()
    if stationary > 1e-5:
        raise RuntimeError(f"the optimum was not found: a slope of {stationary:.2g} is left")
    return found.x[:dimension] - found.x[dimension:], float(found.fun)


def rule_of(name: str, step_size: Any) -> Rule:
    """A rule of `RELATIVE` as a transformation."""
    return steps.scale_by_window(RELATIVE[name], step_size, max_delay=MAX_DELAY)


# Made once, so that a prediction compiles once.
_PREDICTED = {name: rule_of(name, 1.0) for name in ("Adaptive 1", "Adaptive 2")}


@dataclass(frozen=True)
class Study:
    """How much is run of each case."""

    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 2
    n_updates: int = 4000  # the synchronous server makes as many gradients
    record_every: int = 5  # updates; of the synchronous server a fifth of it
    trials: int = 5  # multiples that a rule tries in a round of tuning
    rounds: tuple[int, int] = (2, 6)  # of tuning
    # multiples of gamma' that tuning begins with
    multiples: tuple[float, ...] = tuple(2.0**power for power in range(-3, 6))
    levels: tuple[float, ...] = LEVELS  # shares of the way; the last is what tuning aims at


@dataclass(frozen=True, eq=False)
class Task:
    """What is run on one instance.

    Attributes:
        instance: Its seeds.
        problem: What is optimised, with its first model.
        trace: Who delivers when.
        ages: The delays that the rules see, int[K].
        step_size: gamma' of the adaptive rules.
        fixed: Theory steps of the fixed rules by name, each told the longest delay of the run.
        optimum: Smallest objective.
    """

    instance: Seeds
    problem: problems.Problem
    trace: traces.EventTrace
    ages: np.ndarray
    step_size: float
    fixed: Mapping[str, float]
    optimum: float

    def step_sums(self) -> dict[str, float]:
        """Sums of the steps of the theory rules, from the delays alone."""
        sums = {
            name: self.step_size * float(steps.predict_steps(rule, self.ages).step_size.sum())
            for name, rule in _PREDICTED.items()
        }
        return sums | {name: step * len(self.ages) for name, step in self.fixed.items()}


@dataclass(frozen=True, eq=False)
class Numbered:
    """Optimizers by a number that stands for an instance, a rule and a step.

    A sweep varies one number only, and compiles anew for every function that makes optimizers. Here
    one serves all; a step is rounded to a 1/1024 of an octave.

    Attributes:
        optimizer: Makes an optimizer of a rule and the place of an instance, int32[].
    """

    optimizer: Callable[[Rule, jax.Array], optax.GradientTransformation]
    relative: Mapping[str, Relative] = field(default_factory=lambda: RELATIVE)

    def number(self, place: int, rule: str, step: float) -> float:
        """The number of an instance's place, a rule and a step."""
        code = round(_FINE * (np.log2(step) - _LOWEST))
        number = (place * len(self.relative) + list(self.relative).index(rule)) * _CODES + code
        assert 0 <= code < _CODES, f"a step of {step}"
        assert number < 2**24, "float32 holds no such number"
        return float(number)

    def __call__(self, number: Any) -> optax.GradientTransformation:
        """The optimizer of a number, which may be traced."""
        whole = jnp.round(number).astype(jnp.int32)
        code, which = whole % _CODES, whole // _CODES
        step = jnp.exp2(_LOWEST + code.astype(jnp.float32) / _FINE)

        def relative(room: jax.Array, delay: jax.Array) -> jax.Array:
            factors = jnp.stack([rule(room, delay) for rule in self.relative.values()])
            return factors[which % len(self.relative)]

        rule: Rule = steps.scale_by_window(relative, step, max_delay=MAX_DELAY)
        return self.optimizer(rule, which // len(self.relative))


class Arm(NamedTuple):
    """A way of running a case: a task an instance (in the order of `drawn`), one optimizer."""

    tasks: tuple[Task, ...]
    optimizers: Numbered
    every: int  # updates between records


class Case(NamedTuple):
    """A data set and a law of delays: how the rules are run, and rounds where there are workers."""

    own: Arm
    synchronous: Arm | None = None


def drawn(settings: Any, seed: int) -> tuple[Seeds, ...]:
    """Instances for tuning, then those of set A, then those of set B."""
    count = settings.instances
    counts = {TUNING: settings.tuning_instances, SET_A: count, SET_B: count}
    return tuple(one for role, count in counts.items() for one in seeds_of(seed, role, count))


def first_model(problem: problems.Problem, instance: Seeds) -> problems.Problem:
    """The problem with the instance's first model, near 0."""
    params: Any = problem.params
    start = np.random.default_rng(instance.model).normal(0.0, 0.1, params.shape)
    return replace(problem, params=jnp.asarray(start, params.dtype))


def losses_of(
    problem: problems.Problem,
    trace: traces.EventTrace,
    optimizer: Any,
    given: Sequence[float],
    instance: Seeds,
    *,
    every: int,
    lanes: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs an optimizer with several numbers on one trace, in calls of one compilation.

    Args:
        problem: What is optimised.
        trace: Who delivers when.
        optimizer: Makes one of a number.
        given: The numbers.
        instance: Its noise is that of the runs.
        every: Updates between records.
        lanes: Runs of a call; the last call repeats its last number.

    Returns:
        Losses float64[G, records], infinity where one is no number; updates and times [records].
    """
    found, records = [], None
    for begin in range(0, len(given), lanes):
        some = list(given[begin : begin + lanes])
        records = simulation.sweep(
            problem,
            trace,
            optimizer,
            np.array(some + some[-1:] * (lanes - len(some))),
            keys=jax.random.split(jax.random.key(instance.noise(1)), 1),
            record_every=every,
            width=1,
            sizes=_roomy,
        ).records
        found.append(np.asarray(records.loss, np.float64)[0, : len(some)])
    assert records is not None, "no runs"
    losses = np.concatenate(found)
    update, time = (np.ravel(np.asarray(axis)) for axis in (records.version, records.time))
    return np.where(np.isfinite(losses), losses, np.inf), update, time


def _roomy(own: Sizes) -> Sizes:
    """Sizes that the traces of many laws share."""
    return replace(own, slots=max(16, 2 ** int(np.ceil(np.log2(own.slots)))))


def score(updates: np.ndarray, left: np.ndarray, horizon: int) -> np.ndarray:
    """What tuning lowers, float[G]: the logarithm of the updates to the last level.

    Where it was not reached, that of the horizon, and more the more is left.
    """
    last = np.asarray(updates)[:, -1]
    there = np.log(np.maximum(np.where(np.isfinite(last), last, 1.0), 1.0))
    return np.where(np.isfinite(last), there, np.log(horizon) + 1.0 + left)


def run(
    arm: Arm, place: int, chosen: Sequence[tuple[str, float]], levels: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs rules with their steps on one instance.

    A step that is too long may pass a level by chance and leave it again; that does not count.

    Returns:
        Updates and times from which each level is kept, float[G, levels], infinity where it is not;
        float[G], what is left of the gap at the end, as a share of the first.
    """
    task = arm.tasks[place]
    given = [arm.optimizers.number(place, *pair) for pair in chosen]
    losses, *counted = losses_of(
        task.problem,
        task.trace,
        arm.optimizers,
        given,
        task.instance,
        every=arm.every,
        lanes=_LANES,
    )
    share = gap_left(losses, task.problem, task.optimum)
    share = np.pad(share, ((0, 0), (1, 0)), constant_values=1.0)
    updates, times = (reached(np.append(0.0, axis), share, levels, stays=True) for axis in counted)
    return updates, times, share[:, -1]


def gap_left(losses: np.ndarray, problem: problems.Problem, optimum: float) -> np.ndarray:
    """What is left of the gap to the optimum, as a share of the first."""
    objective: Any = problem.objective
    return (losses - optimum) / (float(objective(problem.params)) - optimum)


def reached(
    axis: np.ndarray, share: np.ndarray, levels: Sequence[float], *, stays: bool = False
) -> np.ndarray:
    """Where each level is first reached, or kept from there on, float[G, levels].

    Args:
        axis: float[records].
        share: float[G, records], what is left of the gap.
        levels: Shares of the way that are to be made.
        stays: Whether a level counts only where the run does not leave it again.
    """
    goals = [1.0 + 1e-6 - level for level in levels]
    found = [results.time_to_target(axis, share, goal, stays=stays) for goal in goals]
    return np.stack(found, axis=1)


def tuned(case: Case, study: Study, seed: int) -> dict[str, tuning.Tuned]:
    """The multiple of gamma' of every rule, with as many trials each, on the tuning instances."""
    arms = dict.fromkeys(RELATIVE, case.own)
    if case.synchronous is not None:
        arms[SYNCHRONOUS] = case.synchronous

    def evaluate(method: str, settings: Sequence[tuning.Settings], _: int) -> list[float]:
        arm, rule = arms[method], CONSTANT if method == SYNCHRONOUS else method
        found = []
        for place, task in enumerate(arm.tasks[: study.tuning_instances]):
            chosen = [(rule, one["multiple"] * task.step_size) for one in settings]
            updates, _times, left = run(arm, place, chosen, study.levels)
            found.append(score(updates, left, task.trace.n_updates))
        return np.mean(found, axis=0).tolist()

    return tuning.tune(
        {method: {"multiple": tuning.Knob(study.multiples)} for method in arms},
        evaluate,
        trials=study.trials,
        gradients=study.tuning_instances * study.n_updates,
        seed=seed,
        rounds=study.rounds,
    )


def measured(
    study: Study, seed: int, make: Callable[[Study, int, str, str], Case], data: str, law: str
) -> pd.DataFrame:
    """The rows of a case: all rules are tuned and run on both sets."""
    case = make(study, seed, data, law)
    found = tuned(case, study, seed)
    head = {"scene": f"{data}, {law}", "data": data, "delays": law}
    rows = [
        {**head, "set": SETS[one.role], "instance": one.number, **row}
        for place, one in enumerate(drawn(study, seed))
        if one.role in SETS
        for row in _rows(case, study, place, found)
    ]
    return pd.DataFrame(numbers.rounded(rows, DIGITS))


def _rows(
    case: Case, study: Study, place: int, found: Mapping[str, tuning.Tuned]
) -> Iterator[dict[str, Any]]:
    """A row a way of choosing the step, method, count and level, of one instance."""
    task = case.own.tasks[place]
    multiples = {method: one.best.settings["multiple"] for method, one in found.items()}
    asked = [(THEORY, rule, rule, task.step_size) for rule in ADAPTIVE]
    asked += [(THEORY, name, CONSTANT, step) for name, step in task.fixed.items()]
    asked += [(TUNED, rule, rule, multiples[rule] * task.step_size) for rule in RELATIVE]
    arms = [(case.own, asked)]
    if case.synchronous is not None:
        step = case.synchronous.tasks[place].step_size
        both = ((THEORY, step), (TUNED, multiples[SYNCHRONOUS] * step))
        rounds = [(kind, SYNCHRONOUS, CONSTANT, one) for kind, one in both]
        arms.append((case.synchronous, rounds))
    ages = {"longest": int(task.ages.max()), "mean_delay": float(task.ages.mean())}
    ends = {UPDATES: float(study.n_updates), TIME: float(task.trace.time[-1])}
    sums = task.step_sums()
    for arm, asked in arms:
        updates, times, _ = run(arm, place, [own[2:] for own in asked], study.levels)
        for at, (kind, method, *_) in enumerate(asked):
            facts = {"multiple": np.nan, "trials": np.nan, "gradients": np.nan, "at_edge": False}
            if kind == TUNED:
                count = len(found[method].trials)
                spent, at_edge = count * found[method].gradients, bool(found[method].edges)
                facts = dict(zip(facts, (multiples[method], count, spent, at_edge), strict=True))
            facts["step_sum"] = sums.get(method, np.nan) if kind == THEORY else np.nan
            for axis, end in ends.items():
                needed = (updates if axis == UPDATES else times)[at]
                for to, value in zip(study.levels, needed, strict=True):
                    counted = {"axis": axis, "to": to, "needed": float(value), "horizon": end}
                    yield {"method": method, "tuned_for": kind, **counted, **facts, **ages}


def result_of(
    plans: Sequence[tuple[str, str]],
    make: Callable[[Study, int, str, str], Case],
    study: Study,
    seed: int,
    folder: Path,
) -> Result:
    """Runs cases; one that was run before is read from its file.

    Args:
        plans: Data and law of each.
        make: The case of a data set and a law.
        study: How much is run.
        seed: Of the experiment.
        folder: Where cases are kept.
    """
    rows = []
    for data, law in plans:
        rows.append(once(folder, partial(measured, study, seed, make, data, law)))
        print(f"  [{len(rows)}/{len(plans)}] {data}, {law}", flush=True)
    return Result(pd.concat(rows, ignore_index=True), "needed", cut=("needed",))
