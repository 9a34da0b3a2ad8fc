"""The same question for workers that write single blocks into shared memory.

Asynchronous block-coordinate descent.

Wu, Magnússon, Feyzmahdavian, Johansson 2022 (arXiv 2202.08550), Async-BCD: eight workers, twenty
blocks of coordinates; a write takes a step from the current block along a gradient that is tau
writes old. gamma' = h / L-hat, L-hat the largest Lipschitz constant of a block. Rivals are told the
longest delay: "sun", h / (L-hat (longest + 1/2)), and "Davis", h / (L-hat + 2 L-across longest /
sqrt(m)), which counts on random blocks (formula recalled, see `steps.davis`).

Laws of delays: eight workers that are about even; one of them ten times slower; and the even ones
with a delay of 100 in one write of 64. Instances, tuning and verdicts are as in `piag`.
"""

from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import jax
import numpy as np

from asyncjax import steps, traces
from asyncjax.study.protocol import Seeds
from asyncjax.study.result import Result
from experiments import part
from experiments.delay_adaptive import step_rules
from experiments.delay_adaptive.piag import EVEN, SLOW, available, clock_of
from experiments.delay_adaptive.step_rules_runs import (
    N_BLOCKS,
    SAFETY,
    Arm,
    Case,
    Numbered,
    Regularized,
    Study,
    Task,
    drawn,
    first_model,
    regularized,
    result_of,
)

NAME = "block_descent"
TITLE = "Block descent in shared memory: the same comparison"
PAPERS = (step_rules.PAPER,)
LAWS = (EVEN, SLOW, "1 write in 64 late by 100")
N_WORKERS = 8


@dataclass(frozen=True)
class Settings:
    """What is run; cases that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/block_descent")
    seed: int = 0  # of all instances, below 256
    full: bool = False  # the large data, too
    data: tuple[str, ...] = ("breast cancer", "digits")  # all laws
    large: tuple[str, ...] = ("MNIST", "Shakespeare")  # even workers only
    laws: tuple[str, ...] = LAWS
    study: Study = field(default_factory=Study)
    commit: bool = False  # also write experiments/rows/block_descent.csv.gz


def trace_of(law: str, n_updates: int, instance: Seeds) -> traces.EventTrace:
    """The writes of workers that all hold all data.

    Delays and times of a run, the writer left out.
    """
    clock = clock_of(SLOW if law == SLOW else EVEN, N_WORKERS, instance)
    key = jax.random.key(instance.noise())
    run = traces.asynchronous(clock, n_updates=n_updates, key=key)
    delay, k = run.delay.astype(np.int64), np.arange(n_updates)
    if law.startswith("1 write"):
        delay = np.where(k % 64 == 63, np.minimum(100, k), delay)
    return traces.from_delays(delay, time=run.time)


def task_of(chosen: Regularized, law: str, n_updates: int, instance: Seeds) -> Task:
    """The task of a data set and a law; the block of a write is drawn from the key of its job."""
    trace, problem = trace_of(law, n_updates, instance), first_model(chosen.whole, instance)
    largest, longest = chosen.blocks.largest, float(trace.delay.max())
    step_size = SAFETY / largest
    davis = SAFETY / (largest + 2 * chosen.blocks.across * longest / np.sqrt(N_BLOCKS))
    fixed = {"sun": step_size / (longest + 0.5), "Davis": float(davis)}
    ages = np.asarray(trace.delay)
    return Task(instance, problem, trace, ages, step_size, fixed, chosen.optimum)


@cache
def _by_blocks(l1: float) -> Numbered:
    """Optimizers that step along the gradient of a random block."""
    return Numbered(
        lambda rule, place: steps.random_block(steps.descent(rule, prox=steps.l1(l1)), N_BLOCKS)
    )


def case_of(study: Study, seed: int, name: str, law: str) -> Case:
    """A data set and a law with all instances."""
    every_one = [(regularized(name, one.data), one) for one in drawn(study, seed)]
    tasks = tuple(task_of(chosen, law, study.n_updates, one) for chosen, one in every_one)
    return Case(Arm(tasks, _by_blocks(every_one[0][0].l1), study.record_every))


def study_of(settings: Settings) -> Result:
    """Runs all cases, step sizes chosen on instances of their own."""
    plans = [(name, law) for name in settings.data for law in settings.laws]
    if settings.full:
        plans += [(name, EVEN) for name in available(settings.large)]
    return result_of(plans, case_of, settings.study, settings.seed, settings.output / "cases")


CLAIMS = (step_rules.SAFE, step_rules.TUNED_ALIKE, step_rules.NAIVE)
TABLES = {"verdicts": partial(step_rules.verdict_table, CLAIMS), **step_rules.TABLES}
FACTS = {"told": partial(step_rules.told, CLAIMS), "predictions": step_rules.predictions}
FIGURES = {"prediction": step_rules.prediction_figure}


if __name__ == "__main__":
    part.main(NAME)
