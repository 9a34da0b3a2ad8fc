"""Do steps that adapt to the delay beat steps that are safe for the worst one?

Aggregated gradients (PIAG). Wu, Magnússon, Feyzmahdavian, Johansson 2022 (arXiv 2202.08550):
regularised logistic regression, a table of the workers' last gradients, and step sizes from the age
of its oldest row. Adaptive 1 and 2 know no bound on the delays; the fixed rules "sun" (gamma' /
(longest + 1/2)) and "worst case" (gamma' / (longest + 1)) are told the longest delay of their own
run in advance.

Laws of delays: even workers; one of them, drawn, ten times slower; delays drawn from 0..20, with
stamps that never move back or as drawn; a constant delay of 20; and outages, in which one worker
of an otherwise undelayed run is silent for 100 of every 1000 updates. All but the first two, which
come from simulated workers, are sequences of delays of the whole gradient; as drawn from 0..20 they
jump up, which a table's age cannot do.

An instance has four fifths of the rows in an order of its own, workers of its own, and a first
model near 0. Step sizes are chosen on instances that are not reported, with as many trials for
every rule; two disjoint sets are reported, and verdicts follow from them by rule (`step_rules`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, simulation, steps, traces
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import SET_A, Seeds
from asyncjax.study.result import Result
from experiments import part
from experiments.delay_adaptive import step_rules
from experiments.delay_adaptive.step_rules_runs import (
    SAFETY,
    Arm,
    Case,
    Numbered,
    Regularized,
    Rule,
    Study,
    Task,
    drawn,
    first_model,
    regularized,
    result_of,
    rows_of,
)

NAME = "piag"
TITLE = "Aggregated gradients: do steps that adapt to the delay beat steps safe for the worst one?"
PAPERS = (step_rules.PAPER,)
# Of the gamma distribution of a job's time: its standard deviation is 18 % of its mean.
SHAPE = 30.0
EVEN, SLOW = "even workers", "one 10x slow"
WORKERS = (EVEN, SLOW)
CONSTANT_DELAY = "constant 20"
SEQUENCES = ("uniform 0..20, in order", "uniform 0..20, as drawn", CONSTANT_DELAY, "outages")


@dataclass(frozen=True)
class Settings:
    """What is run; cases that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/piag")
    seed: int = 0  # of all instances, below 256
    full: bool = False  # the large data, too
    data: tuple[str, ...] = ("breast cancer", "digits")  # all laws
    large: tuple[str, ...] = ("MNIST", "Shakespeare")  # simulated workers only
    laws: tuple[str, ...] = WORKERS + SEQUENCES
    study: Study = field(default_factory=partial(Study, trials=4))
    commit: bool = False  # also write experiments/rows/piag.csv.gz


def clock_of(law: str, n_workers: int, instance: Seeds) -> clocks.Clock:
    """Workers with gamma times, means 0.9 to 1.1; for "one 10x slow" a drawn one ten times that."""
    generator = np.random.default_rng(instance.clock)
    mean = generator.uniform(0.9, 1.1, n_workers)
    if law == SLOW:
        mean[generator.integers(n_workers)] *= 10.0
    return clocks.gamma(SHAPE, mean)


def sequence(law: str, n_updates: int, seed: int) -> np.ndarray:
    """Delays of the whole gradient, int64[K].

    Args:
        law: One of `SEQUENCES`.
        n_updates: K.
        seed: Of the drawn delays.
    """
    k = np.arange(n_updates)
    if law == CONSTANT_DELAY:
        return np.minimum(20, k)
    if law == "outages":
        return np.maximum(k % 1000 - 899, 0)
    at_random = np.minimum(np.random.default_rng(seed).integers(0, 21, n_updates), k)
    return at_random if law.endswith("as drawn") else k - np.maximum.accumulate(k - at_random)


def worker_task(chosen: Regularized, law: str, n_updates: int, instance: Seeds) -> Task:
    """The task of simulated workers: a table with a row each."""
    n_workers = chosen.shards.n_workers or 1
    clock, key = clock_of(law, n_workers, instance), jax.random.key(instance.noise())
    trace = traces.asynchronous(clock, n_updates=n_updates, key=key)
    ages = steps.table_delays(trace.worker, trace.delay, n_workers)
    return _task(chosen, chosen.shards, trace, ages, instance)


def sequence_task(chosen: Regularized, law: str, n_updates: int, instance: Seeds) -> Task:
    """The task of a sequence of delays: every row of the table has the same stamp."""
    ages = sequence(law, n_updates, instance.noise())
    return _task(chosen, chosen.whole, traces.from_delays(ages), ages, instance)


def _task(chosen: Regularized, problem: Any, trace: Any, ages: np.ndarray, instance: Seeds) -> Task:
    step_size = SAFETY / chosen.smoothness.root_mean_square
    longest = float(ages.max())
    fixed = {"sun": step_size / (longest + 0.5), "worst case": step_size / (longest + 1)}
    problem = first_model(problem, instance)
    return Task(instance, problem, trace, ages, step_size, fixed, chosen.optimum)


def synchronous_task(chosen: Regularized, law: str, n_updates: int, instance: Seeds) -> Task:
    """Proximal gradient in rounds that wait for all, as many gradients; its theory step is h/L."""
    problem = first_model(chosen.shards, instance)
    clock, key = clock_of(law, problem.n_workers or 1, instance), jax.random.key(instance.noise())
    n_rounds = n_updates // clock.n_workers
    trace = traces.synchronous(clock, k=clock.n_workers, n_updates=n_rounds, key=key)
    step_size = SAFETY / chosen.smoothness.objective
    return Task(instance, problem, trace, np.zeros(n_rounds, int), step_size, {}, chosen.optimum)


@cache
def _aggregated(name: str, instances: tuple[Seeds, ...]) -> Numbered:
    """Optimizers of PIAG for all instances of a data set: each has first gradients of its own."""
    drawn_from = [(regularized(name, one.data), one) for one in instances]
    n_workers, prox = drawn_from[0][0].shards.n_workers or 1, steps.l1(drawn_from[0][0].l1)
    key = jax.random.key(0)  # jobs take whole shards, so nothing is drawn
    first = [
        simulation.first_gradients(first_model(chosen.shards, one), key=key)
        for chosen, one in drawn_from
    ]
    tables = np.stack([np.asarray(table, np.float32) for table in first])

    def optimizer(rule: Rule, place: jax.Array) -> optax.GradientTransformation:
        table = jnp.asarray(tables)[place]
        return steps.aggregated(rule, n_workers, initial=table, prox=prox)

    return Numbered(optimizer)


@cache
def descending(l1: float) -> Numbered:
    """Optimizers that step along the whole gradient."""
    return Numbered(lambda rule, place: steps.descent(rule, prox=steps.l1(l1)))


def case_of(study: Study, seed: int, name: str, law: str) -> Case:
    """A data set and a law with all instances."""
    instances, every = drawn(study, seed), study.record_every
    every_one = [(regularized(name, one.data), law, study.n_updates, one) for one in instances]
    plain = descending(every_one[0][0].l1)
    if law not in WORKERS:
        return Case(Arm(tuple(sequence_task(*one) for one in every_one), plain, every))
    optimizers = _aggregated(name, instances)
    return Case(
        Arm(tuple(worker_task(*one) for one in every_one), optimizers, every),
        Arm(tuple(synchronous_task(*one) for one in every_one), plain, max(1, every // 5)),
    )


def available(names: Sequence[str]) -> list[str]:
    """The data sets whose packages are installed; says what is left out."""
    found = []
    for name in names:
        try:
            rows_of(name)
        except ImportError as missing:
            print(f"left out: {name}. {missing}")
        else:
            found.append(name)
    return found


def study_of(settings: Settings) -> Result:
    """Runs all cases, step sizes chosen on instances of their own."""
    plans = [(name, law) for name in settings.data for law in settings.laws]
    if settings.full:
        workers = [law for law in settings.laws if law in WORKERS]
        plans += [(name, law) for name in available(settings.large) for law in workers]
    return result_of(plans, case_of, settings.study, settings.seed, settings.output / "cases")


def picture(result: Result) -> Illustration:
    """Delays and step sizes of one run with a slow worker, the first of set A."""
    first = result.select(axis="updates").iloc[0]
    data, instance = first["data"], Seeds(0, SET_A, 0)
    chosen = regularized(data, instance.data)
    task = worker_task(chosen, SLOW, int(first["horizon"]), instance)
    return step_rules.steps_figure(f"{data}, {SLOW}", task)


CLAIMS = tuple(step_rules.SHORT)
TABLES = {"verdicts": partial(step_rules.verdict_table, CLAIMS), **step_rules.TABLES}
FACTS = {"told": partial(step_rules.told, CLAIMS), "predictions": step_rules.predictions}
FIGURES = {"steps": picture, "prediction": step_rules.prediction_figure}


if __name__ == "__main__":
    part.main(NAME)
