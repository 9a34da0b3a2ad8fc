"""Step-size rules on given delays: what `piag`, `block_descent` and the others of this group share.

The problem is regularised logistic regression on real data,

    P(x) = (1/n) sum_i mean log(1 + exp(-y a x)) + (l2/2) ||x||^2 + l1 ||x||_1
    f    = all but the last term

Consecutive shards of equal size; trailing rows are left out. The optimum comes from an independent
solver (L-BFGS-B of SciPy on x = u - v with u, v >= 0, in float64), so that a gap P(x_k) - P* does
not depend on the methods compared.

A case says what is optimised, by which algorithm (aggregated gradients or block descent) and with
which delays; an instance of it has rows, workers, a first model and a run of its own. Every rule is
run at its theory step size and at the best multiple of gamma' = h / L, which is searched on the
tuning instances of its set, with as many trials for each rule. Where a best multiple is at the end
of the grid, it grows and all rules get another round. All runs of a data set share one compilation.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, simulation, steps, traces
from asyncjax.results.statistics import HOLDS, Condition, verdict
from asyncjax.simulation.program import Sizes
from asyncjax.study import search
from asyncjax.study.protocol import LEVELS, TUNING_OF, Seeds
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common import numbers, sets
from experiments.common.kept_rows import once
from experiments.common.sets import SETS
from experiments.data import breast_cancer, mnist_subset, shakespeare_genres

PAPER = "Wu, Magnússon, Feyzmahdavian, Johansson, 2022, delay-adaptive steps (arXiv 2202.08550)"
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
SAFETY = 0.99  # h of gamma' = h / L
N_BLOCKS = 20
DIGITS = 5  # of numbers in rows


# Data and their optima.


class Source(NamedTuple):
    """Where rows come from, and what is added to the loss."""

    data: Callable[[], Any]  # labels from 0 on, of which even and odd are told apart
    l1: float = 1e-3
    l2: float = 1e-2
    n_workers: int = 8
    most: int = 5000  # rows
    sorted: bool = False  # by label; rows are then taken in a drawn order


SHAKESPEARE = partial(shakespeare_genres, n_features=1000)
SOURCES = {
    "breast cancer": Source(breast_cancer),
    "digits": Source(problems.digits),
    "MNIST": Source(mnist_subset, n_workers=10, sorted=True),
    "Shakespeare": Source(SHAKESPEARE, 3e-4, 1e-3, most=4000, sorted=True),
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


class Regularized(NamedTuple):
    """One data set: l1 is in the objectives only, and in the proximal step."""

    shards: problems.Problem  # one a worker
    whole: problems.Problem  # one worker that holds all rows
    smoothness: problems.Smoothness  # of the shards and of f
    blocks: problems.BlockSmoothness  # the same by blocks of coordinates
    optimum: float  # P*


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
    constants = problems.smoothness(shards), problems.block_smoothness(whole, N_BLOCKS)
    return Regularized(
        shards, whole, *constants, minimum(features, logistic_loss(labels), l1, l2)[1]
    )


def minimum(
    features: np.ndarray, loss: Callable[[np.ndarray], Any], l1: float, l2: float = 0.0
) -> tuple[np.ndarray, float]:
    """The minimum of the mean loss of a linear model by a general solver, in float64.

    Args:
        features: float[rows, d].
        loss: `fitted float64[rows] -> (mean loss, derivative of each row's loss)`.
        l1: Weight of the sum of absolute values.
        l2: Weight of half the sum of squares.

    Returns:
        The minimiser float64[d] and the smallest value.

    Raises:
        RuntimeError: The solver stopped far from a stationary point.
    """
    from scipy.optimize import minimize

    matrix = np.asarray(features, np.float64)
    count, dimension = matrix.shape

    def objective(split: np.ndarray) -> tuple[float, np.ndarray]:
        x = split[:dimension] - split[dimension:]
        mean, slopes = loss(matrix @ x)
        gradient = matrix.T @ slopes / count + l2 * x
        value = mean + l2 / 2 * (x @ x) + l1 * split.sum()
        return value, np.concatenate([gradient + l1, l1 - gradient])

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-7, "maxcor": 30}
    start, bounds = np.zeros(2 * dimension), [(0.0, None)] * (2 * dimension)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    slope = objective(found.x)[1]
    stationary = np.where(found.x > 0, np.abs(slope), np.maximum(-slope, 0)).max()
    if stationary > 1e-5:
        raise RuntimeError(f"the optimum was not found: a slope of {stationary:.2g} is left")
    return found.x[:dimension] - found.x[dimension:], float(found.fun)


def logistic_loss(labels: np.ndarray) -> Callable[[np.ndarray], Any]:
    """The logistic loss of labels 0 or 1, for `minimum`."""
    signs = np.where(labels == 1, 1.0, -1.0)

    def loss(fitted: np.ndarray) -> Any:
        margin = signs * fitted
        return np.logaddexp(0, -margin).mean(), -signs * (0.5 * (1 - np.tanh(margin / 2)))

    return loss


# Rules and their optimizers.


@dataclass(frozen=True)
class Coded:
    """Positive numbers by whole ones, of which one float32 can hold several."""

    fine: int  # codes an octave
    lowest: int  # first octave
    octaves: int

    @property
    def count(self) -> int:
        """How many codes there are."""
        return self.fine * self.octaves

    def code(self, value: float) -> int:
        """The code of a number, which it rounds."""
        code = round(self.fine * (np.log2(value) - self.lowest))
        assert 0 <= code < self.count, f"a step or knob of {value}"
        return code

    def value(self, code: jax.Array) -> jax.Array:
        """The number of a code, which may be traced."""
        return jnp.exp2(self.lowest + code.astype(jnp.float32) / self.fine)


@dataclass(frozen=True, eq=False)
class Numbered:
    """Optimizers by a number that stands for an instance, a rule and a step.

    A sweep varies one number only, and compiles anew for every function that makes optimizers. Here
    one serves all; a step is rounded to a 1/1024 of an octave.

    Attributes:
        optimizer: Makes an optimizer of a rule and the place of an instance, int32[].
        relative: Relative steps by rule.
    """

    optimizer: Callable[[Rule, jax.Array], optax.GradientTransformation]
    relative: Mapping[str, Relative] = field(default_factory=lambda: RELATIVE)
    sizes = Coded(1024, -24, 40)

    def number(self, place: int, rule: str, step: float) -> float:
        """The number of an instance's place, a rule and a step."""
        which = place * len(self.relative) + list(self.relative).index(rule)
        number = which * self.sizes.count + self.sizes.code(step)
        assert number < 2**24, "float32 holds no such number"
        return float(number)

    def __call__(self, number: Any) -> optax.GradientTransformation:
        """The optimizer of a number, which may be traced."""
        whole = jnp.round(number).astype(jnp.int32)
        which, step = whole // self.sizes.count, self.sizes.value(whole % self.sizes.count)

        def relative(room: jax.Array, delay: jax.Array) -> jax.Array:
            factors = jnp.stack([rule(room, delay) for rule in self.relative.values()])
            return factors[which % len(self.relative)]

        rule: Rule = steps.scale_by_window(relative, step, max_delay=MAX_DELAY)
        return self.optimizer(rule, which // len(self.relative))


def aggregated(
    parts: Sequence[problems.Problem], l1: float, relative: Mapping[str, Relative] = RELATIVE
) -> Numbered:
    """Optimizers of PIAG for all instances: each has first gradients of its own."""
    key = jax.random.key(0)  # jobs take whole shards, so nothing is drawn
    first = [simulation.first_gradients(one, key=key) for one in parts]
    tables, n_workers = np.stack([np.asarray(one, np.float32) for one in first]), len(first[0])

    def optimizer(rule: Rule, place: jax.Array) -> optax.GradientTransformation:
        table = jnp.asarray(tables)[place]
        return steps.aggregated(rule, n_workers, initial=table, prox=steps.l1(l1))

    return Numbered(optimizer, relative)


# Prepared once, so that a prediction compiles once.
PREDICTED = {
    name: steps.scale_by_window(RELATIVE[name], 1.0, max_delay=MAX_DELAY) for name in ADAPTIVE[:2]
}


# What is run.


@dataclass(frozen=True)
class Counts:
    """What all parts say of a run; what is done is kept in `output`, and a second run goes on."""

    output: Path = Path("output")
    seed: int = 0  # of all instances, below 256
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5  # of each, too
    trials: int = 5  # settings that a rule tries in a round of tuning
    rounds: tuple[int, int] = (2, 6)  # of tuning
    commit: bool = False  # also write the rows where committed ones are


@dataclass(frozen=True)
class Settings(Counts):
    """What is run of `piag` and `block_descent`."""

    full: bool = False  # the large data, too
    data: tuple[str, ...] = ("breast cancer", "digits")  # all laws
    large: tuple[str, ...] = ("MNIST", "Shakespeare")  # simulated workers only
    laws: tuple[str, ...] = ()
    n_updates: int = 4000  # the synchronous server makes as many gradients
    record_every: int = 5  # updates; of the synchronous server a fifth of it
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
        optimum: Smallest objective.
        fixed: Theory steps of the fixed rules by name, each told the longest delay of the run.
    """

    instance: Seeds
    problem: problems.Problem
    trace: traces.EventTrace
    ages: Any = None
    step_size: float = 0.0
    optimum: float = 0.0
    fixed: Mapping[str, float] = field(default_factory=dict)

    def step_sums(self) -> dict[str, float]:
        """Sums of the steps of the theory rules, from the delays alone."""
        sums = {
            name: self.step_size * float(steps.predict_steps(rule, self.ages).step_size.sum())
            for name, rule in PREDICTED.items()
        }
        return sums | {name: step * len(self.ages) for name, step in self.fixed.items()}

    @cached_property
    def start(self) -> float:
        """The objective at the first model."""
        objective: Any = self.problem.objective
        return float(objective(self.problem.params))


class Arm(NamedTuple):
    """A way of running a case."""

    tasks: Sequence[Task]  # one an instance, in the order of `sets.drawn`
    optimizers: Numbered
    every: int  # updates between records
    rules: Mapping[str, str] = {rule: rule for rule in RELATIVE}  # by the names of what is tuned

    def gaps(
        self, place: int, chosen: Sequence[tuple[str, float]], lanes: int = 9
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Runs rules with their steps on one instance, so many in a call.

        Returns:
            What is left of the gap to the optimum, as a share of the first, float[G, records];
            updates and times of the records.
        """
        task, number = self.tasks[place], self.optimizers.number
        given = [number(place, *pair) for pair in chosen]
        losses, updates, times = losses_of(
            task, self.optimizers, given, every=self.every, lanes=lanes
        )
        return (losses - task.optimum) / (task.start - task.optimum), updates, times

    def run(
        self, place: int, chosen: Sequence[tuple[str, float]], levels: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Runs rules with their steps on one instance.

        A step that is too long may pass a level by chance and leave it again; that does not count.

        Returns:
            Updates and times from which each level is kept, float[G, levels], infinity where it is
            not; float[G], what is left of the gap at the end, as a share of the first.
        """
        left, *counted = self.gaps(place, chosen)
        left = np.pad(left, ((0, 0), (1, 0)), constant_values=1.0)
        goals = goals_of(levels)
        updates, times = (
            crossings(np.append(0.0, axis), left, goals, stays=True) for axis in counted
        )
        return updates, times, left[:, -1]


Case = Sequence[Arm]  # a data set and a law; where there are workers, rounds that wait for all last
Make = Callable[[Any, str, str], Case]  # (settings, data, law) -> case


def known(name: str, given: Collection[str], every: Collection[str]) -> None:
    """Refuses what is not among all that there are.

    Raises:
        ValueError: It says what there is.
    """
    if missing := {*given} - {*every}:
        raise ValueError(f"{name} must be among {', '.join(every)}, got {min(missing)!r}")


def workers(n_workers: int, instance: Seeds, shape: float, *, one_slow: bool) -> clocks.Clock:
    """Workers with gamma times, means 0.9 to 1.1; a drawn one ten times that where one is slow."""
    generator = np.random.default_rng(instance.clock)
    mean = generator.uniform(0.9, 1.1, n_workers)
    if one_slow:
        mean[generator.integers(n_workers)] *= 10.0
    return clocks.gamma(shape, mean)


def asked(settings: Any, name: str, law: str) -> list[tuple[Regularized, str, int, Seeds]]:
    """What the task of each instance of a data set and a law is made of."""
    n_updates = settings.n_updates
    return [(regularized(name, one.data), law, n_updates, one) for one in sets.drawn(settings)]


def first_model(problem: problems.Problem, instance: Seeds) -> problems.Problem:
    """The problem with the instance's first model, near 0."""
    params: Any = problem.params
    start = np.random.default_rng(instance.model).normal(0.0, 0.1, params.shape)
    return replace(problem, params=jnp.asarray(start, params.dtype))


def losses_of(
    task: Task, optimizer: Any, given: list[float], *, every: int, lanes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Runs an optimizer with several numbers on one trace, in calls of one compilation.

    Args:
        task: Problem and trace; the noise is that of its instance.
        optimizer: Makes one of a number.
        given: The numbers.
        every: Updates between records.
        lanes: Runs of a call; the last call repeats its last number.

    Returns:
        Losses float64[G, records], infinity where one is no number; updates and times [records].
    """
    key = jax.random.split(jax.random.key(task.instance.noise(1)), 1)
    how: Any = {"keys": key, "record_every": every, "width": 1, "sizes": _roomy}
    padded = np.array([*given, *given[-1:] * (-len(given) % lanes)]).reshape(-1, lanes)
    calls = [
        simulation.sweep(task.problem, task.trace, optimizer, some, **how).records
        for some in padded
    ]
    losses = np.concatenate([np.asarray(one.loss, np.float64)[0] for one in calls])[: len(given)]
    update, time = (np.ravel(np.asarray(axis)) for axis in (calls[-1].version, calls[-1].time))
    return np.where(np.isfinite(losses), losses, np.inf), update, time


def _roomy(sizes: Sizes) -> Sizes:
    """Sizes that the traces of many laws share."""
    return replace(sizes, slots=max(16, 2 ** int(np.ceil(np.log2(sizes.slots)))))


def crossings(
    axis: np.ndarray, values: np.ndarray, goals: Sequence[float] | np.ndarray, **how: bool
) -> np.ndarray:
    """Where each goal is first reached, or with `stays=True` kept from there on, float[G, goals].

    Args:
        axis: float[records].
        values: float[G, records], lower is better.
        goals: Values to reach.
        **how: As in `results.time_to_target`.
    """
    return np.stack([results.time_to_target(axis, values, goal, **how) for goal in goals], axis=1)


def goals_of(levels: Sequence[float]) -> list[float]:
    """What is left of the gap, as a share, where those shares of the way are made."""
    return [1.0 + 1e-6 - level for level in levels]


def score(updates: np.ndarray, left: np.ndarray, horizon: int) -> np.ndarray:
    """What tuning lowers, float[G]: the logarithm of the updates to the last level.

    Where it was not reached, that of the horizon, and more the more is left.
    """
    last = np.asarray(updates)[:, -1]
    there = np.log(np.maximum(np.where(np.isfinite(last), last, 1.0), 1.0))
    return np.where(np.isfinite(last), there, np.log(horizon) + 1.0 + left)


Tried = Sequence[tuple[str, search.Settings]]  # methods and settings


def tuned(
    settings: Any,
    role: str,
    spaces: Mapping[str, search.Space],
    scores: Callable[[int, Tried], np.ndarray],
) -> dict[str, search.Tuned]:
    """Searches the spaces of all methods, with as many trials each.

    Args:
        settings: Of the part.
        role: Of a set, on whose tuning instances they are searched.
        spaces: Knobs by method.
        scores: `(place of an instance, methods and settings) -> float[G]`, lower is better.
    """
    places = sets.places(sets.drawn(settings), TUNING_OF[role])

    def evaluate(asked: Mapping[Any, Sequence[search.Settings]], _: int) -> dict[Any, Any]:
        tried = [(pair[0], one) for pair, several in asked.items() for one in several]
        means = iter(np.mean([scores(place, tried) for place in places], axis=0).tolist())
        return {pair: [next(means) for _ in several] for pair, several in asked.items()}

    how = {name: getattr(settings, name) for name in ("trials", "seed", "rounds")}
    how["gradients"] = settings.tuning_instances * settings.n_updates
    found = search.search(spaces, {role: TUNING_OF[role]}, evaluate, **how)
    return {name: one for (name, _), one in found.items()}


def spent(found: search.Tuned | None) -> dict[str, Any]:
    """What tuning cost, and whether it ended at an edge; None: nothing was tuned."""
    if found is None:
        return {"trials": np.nan, "gradients": np.nan, "at_edge": False}
    count = len(found.trials)
    return {"trials": count, "gradients": count * found.gradients, "at_edge": bool(found.edges)}


def measured(settings: Settings, make: Make, data: str, law: str) -> pd.DataFrame:
    """The rows of a case: all rules are tuned for each set and run on it."""
    case = make(settings, data, law)

    def scores(place: int, tried: Sequence[Any]) -> np.ndarray:
        found = np.empty(len(tried))
        for arm in case:
            task, rules = arm.tasks[place], arm.rules
            indices = [at for at, (method, _) in enumerate(tried) if method in rules]
            pairs = (tried[at] for at in indices)
            chosen = [(rules[name], one["multiple"] * task.step_size) for name, one in pairs]
            updates, _, left = arm.run(place, chosen, settings.levels)
            found[indices] = score(updates, left, task.trace.n_updates)
        return found

    space = {"multiple": search.Knob(settings.multiples)}
    spaces = {method: space for arm in case for method in arm.rules}
    head, rows = {"scene": f"{data}, {law}", "data": data, "delays": law}, []
    for letter, role in SETS.items():
        found = tuned(settings, role, spaces, scores)
        for instance, place in enumerate(sets.places(sets.drawn(settings), role)):
            about = head | {"set": letter, "instance": instance}
            rows += [about | row for row in _rows(settings, case, place, found)]
    return pd.DataFrame(numbers.rounded(rows, DIGITS))


def _rows(
    settings: Settings, case: Case, place: int, found: Mapping[str, search.Tuned]
) -> Iterator[dict[str, Any]]:
    """A row a way of choosing the step, method, count and level, of one instance."""
    first = case[0].tasks[place]
    sums, end = first.step_sums(), float(first.trace.time[-1])
    ages = {"longest": int(first.ages.max()), "mean_delay": float(first.ages.mean())}
    best = {method: one.best.settings["multiple"] for method, one in found.items()}
    for arm in case:
        task = arm.tasks[place]
        asked = [(THEORY, rule, task.step_size) for rule in arm.rules if rule in ADAPTIVE]
        asked += [(THEORY, name, step) for name, step in task.fixed.items()]
        asked += [(TUNED, name, best[name] * task.step_size) for name in arm.rules]
        chosen = [(arm.rules.get(name, CONSTANT), step) for _, name, step in asked]
        updates, times, _ = arm.run(place, chosen, settings.levels)
        for at, (kind, method, _) in enumerate(asked):
            row, is_tuned = {"method": method, "tuned_for": kind}, kind == TUNED
            facts = {"multiple": best[method] if is_tuned else np.nan}
            facts |= spent(found[method] if is_tuned else None)
            facts["step_sum"] = np.nan if is_tuned else sums.get(method, np.nan)
            counted = ((UPDATES, updates, float(settings.n_updates)), (TIME, times, end))
            for axis, needed, horizon in counted:
                for to, value in zip(settings.levels, needed[at].tolist(), strict=True):
                    where = {"axis": axis, "to": to, "needed": value, "horizon": horizon}
                    yield row | where | facts | ages


def result_of(settings: Settings, make: Make, laws: Sequence[str]) -> Result:
    """Runs cases; one that was run before is read from its file.

    Args:
        settings: What is run.
        make: The case of a data set and a law.
        laws: Those that the large data meet.
    """
    plans = [*product(settings.data, settings.laws)]
    if settings.full:
        met = [law for law in settings.laws if law in laws]
        plans += product(settings.large, met)
    same = {"output": Path(), "commit": False, "full": False, "data": (), "large": (), "laws": ()}
    core, rows = replace(settings, **same), []
    for data, law in plans:
        rows.append(once(settings.output / "cases", partial(measured, core, make, data, law)))
        print(f"  [{len(rows)}/{len(plans)}] {data}, {law}", flush=True)
    facts = {"tuned apart": True}
    return Result(pd.concat(rows, ignore_index=True), "needed", facts, cut=("needed",))


def counted_verdicts(result: Result, claims: Sequence[Claim], text: str) -> results.Table:
    """What each set says of every claim, and how many of its conditions hold."""

    def cell(found: Sequence[Condition]) -> str:
        held = sum(one.verdict == HOLDS for one in found)
        return f"{verdict(found)} ({held} of {len(found)})" if found else "nobody is there"

    sets = {f"set {letter}": result.judged(claims, letter) for letter in result.sets}
    asked = [one.text for one in claims if any(one.text in found for found in sets.values())]
    return part.table(
        ("claim (conditions that hold)", *sets),
        [(one, *(cell(found.get(one, ())) for found in sets.values())) for one in asked],
        f"{text} The conditions of a claim share its doubt of 5 %.",
        left=1 + len(sets),
    )
