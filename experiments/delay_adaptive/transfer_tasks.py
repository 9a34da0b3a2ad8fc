"""What steps are carried over: problems of an instance, laws of delays, rules by number.

An instance has rows, a start, workers and a run of its own. Three algorithms: PIAG on shards of the
rows; Async-BCD, whose workers hold all rows and write single blocks; plain asynchronous SGD with
small batches. All take the proximal step of l1.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.problems.finite_sum import Objective
from asyncjax.problems.losses.least_squares import SquaredLoss
from asyncjax.study.protocol import Seeds
from experiments.delay_adaptive.regularized import SAFETY, minimum, rows_of, sparse_minimum
from experiments.delay_adaptive.step_rules_runs import RELATIVE, Numbered, Rule

N_WORKERS, N_BLOCKS, BATCH = 8, 10, 16
SHAPE = 30.0  # of the gamma law of a job's time: a deviation of 18 %
ALGORITHMS = ("PIAG", "Async-BCD", "SGD")
ROWS = {"breast cancer": 160, "digits": 320, "lasso": 160}  # of an instance
L1 = {"breast cancer": 1e-3, "digits": 1e-3, "lasso": 0.05}
L2 = 1e-2  # of the logistic losses

LAWS = ("even", "spread", "straggler", "exponential", "heavy tail", "bursts")
# Delays that change, and the law on which the step was chosen.
SCENES = {
    "even, then a straggler": "even",
    "straggler, then even": "straggler",
    "a worker stalls": "even",
}
CHANGE = 6.0  # time at which they change, in mean jobs of a fast worker
STALL = 40.0  # time for which a worker stalls

CONSTANT, SAFE = "constant", "safe constant"
RULES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    CONSTANT: RELATIVE[CONSTANT],
    SAFE: RELATIVE[CONSTANT],  # its step is divided by the longest delay of the run + 1/2
    "Adaptive 1": RELATIVE["Adaptive 1"],
    "Adaptive 2": RELATIVE["Adaptive 2"],
    "inverse": RELATIVE["c/(delay+1)"],
    "polynomial": lambda room, delay: steps.polynomial_delay(0.5)(delay.astype(room.dtype)),
    "hinge": lambda room, delay: steps.hinge_delay(10.0, 4)(delay.astype(room.dtype)),
}
# Where tuning begins, in units of gamma': the middle of each rule's first grid.
CENTRES = {
    CONSTANT: 1.0,
    SAFE: 8.0,
    "Adaptive 1": 4.0,
    "Adaptive 2": 8.0,
    "inverse": 8.0,
    "polynomial": 2.0,
    "hinge": 4.0,
}


@dataclass(frozen=True, eq=False)
class Drawn:
    """An algorithm's problem on one instance.

    Attributes:
        problem: With shards for PIAG, else with one that holds all rows.
        theory: gamma' = h / L of the algorithm.
        start: Objective at the first model.
        optimum: Smallest objective, by a solver of its own.
    """

    problem: problems.Problem
    theory: float
    start: float
    optimum: float


def drawn(algorithm: str, data: str, instance: Seeds) -> Drawn:
    """The problem of an instance: rows drawn from the data (lasso: made), a start near 0."""
    generator = np.random.default_rng(instance.data)
    n_workers = N_WORKERS if algorithm == "PIAG" else 1
    batch = problems.uniform(BATCH) if algorithm == "SGD" else None
    if data == "lasso":
        features, targets = _sparse_regression(generator)
        made = problems.least_squares(features, targets, n_workers=n_workers, batch=batch)
        made = replace(made, objective_of=Objective(SquaredLoss(), L1[data]))
        optimum = _lasso_minimum(features, targets, L1[data])
    else:
        features, labels = rows_of(data)
        rows = generator.permutation(len(features))[: ROWS[data]]
        features, labels = features[rows], labels[rows]
        made = problems.logistic(
            features, labels, n_workers=n_workers, l1=L1[data], l2=L2, batch=batch
        )
        signs = np.where(labels == 1, 1.0, -1.0)
        optimum = minimum(features.astype(np.float64), signs, L1[data], L2)[1]
    start = np.random.default_rng(instance.model).normal(0.0, 0.1, features.shape[1])
    made = replace(made, params=jnp.asarray(start, features.dtype))
    objective: Any = made.objective
    return Drawn(made, _theory(algorithm, made), float(objective(made.params)), optimum)


def _theory(algorithm: str, problem: problems.Problem) -> float:
    if algorithm == "PIAG":
        return SAFETY / problems.smoothness(problem).root_mean_square
    if algorithm == "Async-BCD":
        return SAFETY / problems.block_smoothness(problem, N_BLOCKS).largest
    return SAFETY / problems.smoothness(problem).objective


def _sparse_regression(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows with neighbouring columns alike (0.5), 8 of 40 coefficients not 0, noise 0.5."""
    count, dimension = ROWS["lasso"], 40
    features = generator.normal(size=(count, dimension))
    for column in range(1, dimension):
        features[:, column] = 0.5 * features[:, column - 1] + 0.75**0.5 * features[:, column]
    truth = np.zeros(dimension)
    truth[generator.permutation(dimension)[:8]] = generator.normal(size=8)
    targets = features @ truth + 0.5 * generator.normal(size=count)
    return features.astype(np.float32), targets.astype(np.float32)


def _lasso_minimum(features: np.ndarray, targets: np.ndarray, l1: float) -> float:
    matrix, aim = features.astype(np.float64), targets.astype(np.float64)

    def smooth(x: np.ndarray) -> tuple[float, np.ndarray]:
        residual = matrix @ x - aim
        return float(0.5 * np.mean(residual**2)), matrix.T @ residual / len(aim)

    return sparse_minimum(smooth, matrix.shape[1], l1)[1]


def clock_of(law: str, instance: Seeds, n_jobs: int) -> clocks.Clock:
    """The workers of an instance under a law; of each at least `n_jobs` jobs are known.

    Raises:
        ValueError: The law is not known.
    """
    generator = np.random.default_rng(instance.clock)
    ones = np.ones(N_WORKERS)
    spread = np.exp(generator.uniform(0.0, np.log(8.0), N_WORKERS))
    slow = np.r_[ones[1:], np.exp(generator.uniform(np.log(5.0), np.log(20.0)))]
    made = {
        "even": clocks.gamma(SHAPE, ones),
        "spread": clocks.gamma(SHAPE, spread),
        "straggler": clocks.gamma(SHAPE, slow),
        "exponential": clocks.exponential(ones),
        "heavy tail": clocks.pareto(ones, 1.5),
        "bursts": clocks.markov(ones, 10 * ones, 0.02, 0.2),
    }
    if law in made:
        return made[law]
    if law not in SCENES:
        raise ValueError(f"law must be among {', '.join((*LAWS, *SCENES))}, got {law!r}")
    one, other = jax.random.split(jax.random.key(instance.noise()))
    times = np.array(made[SCENES[law]].durations(one, n_jobs))
    if law == "a worker stalls":
        place = int(np.searchsorted(np.cumsum(times[-1]), CHANGE))
        times[-1, place] += STALL
    else:
        after = np.array(
            made["even" if law.endswith("even") else "straggler"].durations(other, n_jobs)
        )
        for row, later in zip(times, after, strict=True):
            place = 1 + int(np.searchsorted(np.cumsum(row), CHANGE))
            row[place:] = later[: n_jobs - place]
    return clocks.recorded(times)


def trace_of(algorithm: str, law: str, instance: Seeds, n_updates: int) -> traces.EventTrace:
    """A run of an instance's workers; those of Async-BCD and SGD all hold all rows."""
    clock = clock_of(law, instance, n_updates)
    key = jax.random.key(instance.noise())
    made = traces.asynchronous(clock, n_updates=n_updates, key=key)
    return made if algorithm == "PIAG" else traces.from_delays(made.delay, time=made.time)


def ages_of(algorithm: str, trace: traces.EventTrace) -> np.ndarray:
    """The delays that the rules see, int[K]."""
    if algorithm == "PIAG":
        return steps.table_delays(trace.worker, trace.delay, N_WORKERS)
    return np.asarray(trace.delay)


def numbered(algorithm: str, data: str, made: tuple[Drawn, ...]) -> Numbered:
    """The optimizers of some instances, by the number of an instance, a rule and a step."""
    tables, prox = np.zeros(0), steps.l1(L1[data])
    if algorithm == "PIAG":
        key = jax.random.key(0)  # jobs take whole shards, so nothing is drawn
        tables = np.stack(
            [np.asarray(simulation.first_gradients(one.problem, key=key)) for one in made]
        )

    def optimizer(rule: Rule, place: jax.Array) -> optax.GradientTransformation:
        if algorithm == "PIAG":
            table = jnp.asarray(tables)[place]
            return steps.aggregated(rule, N_WORKERS, initial=table, prox=prox)
        step_of = steps.descent(rule, prox=prox)
        return steps.random_block(step_of, N_BLOCKS) if algorithm == "Async-BCD" else step_of

    return Numbered(optimizer, RULES)
