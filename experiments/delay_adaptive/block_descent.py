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

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from asyncjax import steps, traces
from asyncjax.study.protocol import Seeds
from asyncjax.study.result import Result
from experiments import part
from experiments.delay_adaptive import piag, step_rules as shared
from experiments.delay_adaptive.piag import EVEN, FIXED, SLOW
from experiments.delay_adaptive.step_rules import N_BLOCKS, SAFETY

NAME = "block_descent"
TITLE = "Block descent in shared memory: the same comparison"
PAPERS = piag.PAPERS
LAWS = (EVEN, SLOW, "1 write in 64 late by 100")
N_WORKERS = 8


@dataclass(frozen=True)
class Settings(shared.Settings):
    """What is run; cases that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/block_descent")
    laws: tuple[str, ...] = LAWS


def trace_of(law: str, n_updates: int, instance: Seeds) -> traces.EventTrace:
    """The writes of workers that all hold all data.

    Delays and times of a run, the writer left out.
    """
    workers = SLOW if law == SLOW else EVEN
    run = piag.workers_trace(traces.Rule(), workers, N_WORKERS, n_updates, instance)
    delay, k = run.delay.astype(np.int64), np.arange(n_updates)
    if law.startswith("1 write"):
        delay = np.where(k % 64 == 63, np.minimum(100, k), delay)
    return traces.from_delays(delay, time=run.time)


def task_of(chosen: shared.Regularized, law: str, n_updates: int, instance: Seeds) -> shared.Task:
    """The task of a data set and a law; the block of a write is drawn from the key of its job."""
    trace, problem = (
        trace_of(law, n_updates, instance),
        shared.first_model(chosen.whole, instance),
    )
    largest, longest = chosen.blocks.largest, float(trace.delay.max())
    step_size = SAFETY / largest
    davis = SAFETY / (largest + 2 * chosen.blocks.across * longest / np.sqrt(N_BLOCKS))
    fixed = {FIXED: step_size / (longest + 0.5), "Davis": float(davis)}
    return shared.Task(
        instance, problem, trace, np.asarray(trace.delay), step_size, chosen.optimum, fixed
    )


@cache
def _by_blocks(l1: float) -> shared.Numbered:
    """Optimizers that step along the gradient of a random block."""
    inner = piag.descending(l1).optimizer
    return shared.Numbered(lambda *given: steps.random_block(inner(*given), N_BLOCKS))


def case_of(settings: Settings, name: str, law: str) -> list[shared.Arm]:
    """A data set and a law with all instances."""
    tasks = [task_of(*one) for one in shared.asked(settings, name, law)]
    return [shared.Arm(tasks, _by_blocks(shared.SOURCES[name].l1), settings.record_every)]


def study_of(settings: Settings) -> Result:
    """Runs all cases, step sizes chosen on instances of their own."""
    return shared.result_of(settings, case_of, [EVEN])


CLAIMS = (piag.SAFE, piag.TUNED_ALIKE, piag.NAIVE)
TABLES = {**piag.TABLES, "verdicts": partial(piag.verdict_table, CLAIMS)}
FACTS = {"told": partial(piag.told, CLAIMS), "predictions": piag.predictions}
FIGURES = {"prediction": piag.prediction_figure}


if __name__ == "__main__":
    part.main(NAME)
