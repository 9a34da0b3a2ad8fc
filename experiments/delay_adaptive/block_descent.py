"""The same question for workers that write single blocks into shared memory.

Asynchronous block-coordinate descent.

Wu, Magnússon, Feyzmahdavian, Johansson 2022 (arXiv 2202.08550), Async-BCD: eight workers, twenty
blocks of coordinates; a write takes a step from the current block along a gradient that is tau
writes old. gamma' = h / L-hat, L-hat the largest Lipschitz constant of a block. Rivals are told the
longest delay: "sun", h / (L-hat (longest + 1/2)), and "Davis", h / (L-hat + 2 L-across longest /
sqrt(m)), which counts on random blocks (formula recalled, see `steps.davis`).

Laws of delays: eight even workers; one of them ten times slower; and the even ones with a delay of
100 in one write of 64. Steps are chosen on instances that are not reported.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from asyncjax import steps, traces
from experiments.common.parts import Part, run_alone
from experiments.common.protocol import SET_A, TUNING, instances
from experiments.delay_adaptive import step_rules_report
from experiments.delay_adaptive.piag import available, clock_of, keys_of
from experiments.delay_adaptive.regularized import N_BLOCKS, SAFETY, Regularized, regularized
from experiments.delay_adaptive.step_rules_runs import Outcome, Rule, Task, run_task

LAWS = ("even workers", "one 10x slow", "1 write in 64 late by 100")


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/block_descent")
    seed: int = 0
    data: tuple[str, ...] = ("breast cancer", "digits")  # all seeds and steps
    large: tuple[str, ...] = ("MNIST", "Shakespeare")  # even workers only, one seed
    laws: tuple[str, ...] = LAWS
    n_workers: int = 8
    n_updates: int = 9000
    n_updates_large: int = 6000
    seeds: int = 2  # runs that are reported, on rows of their own
    tuning_seeds: int = 2  # runs on other rows, only to choose steps
    records: int = 600
    ratio: float = 1e-2  # gap, as a share of the first, that tuning aims at
    # first steps tried, in units of gamma'
    multiples: tuple[float, ...] = (0.0625, 0.25, 1.0, 4.0, 16.0, 64.0)
    multiples_large: tuple[float, ...] = (0.25, 1.0, 4.0, 16.0)
    rounds: tuple[int, int] = (1, 3)  # of tuning


def trace_of(law: str, n_workers: int, n_updates: int, key: jax.Array) -> traces.EventTrace:
    """The writes of workers that all hold all data.

    Delays and times of a run, the writer left out.
    """
    worker_law = "one 10x slow" if law == "one 10x slow" else "even workers"
    made = traces.asynchronous(clock_of(worker_law, n_workers), n_updates=n_updates, key=key)
    delay, k = made.delay.astype(np.int64), np.arange(n_updates)
    if law.startswith("1 write"):
        delay = np.where(k % 64 == 63, np.minimum(100, k), delay)
    return traces.from_delays(delay, time=made.time)


def task_of(chosen: Regularized, law: str, n_workers: int, n_updates: int, keys: jax.Array) -> Task:
    """The task of a data set and a law; the block of a write is drawn from the key of its job."""
    made = tuple(trace_of(law, n_workers, n_updates, key) for key in keys)
    largest = chosen.blocks.largest
    step_size = SAFETY / largest
    longest = np.array([trace.delay.max() for trace in made])
    davis = SAFETY / (largest + 2 * chosen.blocks.across * longest / np.sqrt(N_BLOCKS))

    def optimizer(rule: Rule) -> Rule:
        return steps.random_block(steps.descent(rule, prox=steps.l1(chosen.l1)), N_BLOCKS)

    return Task(
        data=chosen.name,
        law=law,
        problem=chosen.whole,
        traces=made,
        ages=tuple(np.asarray(trace.delay) for trace in made),
        optimizer=optimizer,
        step_size=step_size,
        fixed={"sun": step_size / (longest + 0.5), "Davis": davis},
        start=chosen.start,
        optimum=chosen.optimum,
    )


def outcomes(settings: Settings) -> list[Outcome]:
    """Runs all tasks, steps chosen on instances of their own."""
    plans = [
        (name, law, settings.seeds, settings.tuning_seeds, settings.n_updates, settings.multiples)
        for name in settings.data
        for law in settings.laws
    ]
    plans += [
        (name, settings.laws[0], 1, 1, settings.n_updates_large, settings.multiples_large)
        for name in available(settings.large)
    ]
    found = []
    for name, law, reported, tuned_on, n_updates, multiples in plans:
        tasks = []
        for role, count in ((SET_A, reported), (TUNING, tuned_on)):
            drawn = instances(settings.seed, role, count)
            keys = keys_of(drawn)
            chosen = regularized(name, drawn[0].data)
            tasks.append((task_of(chosen, law, settings.n_workers, n_updates, keys), keys))
        (task, own), (other, others) = tasks
        found.append(
            run_task(
                task,
                other,
                multiples=multiples,
                rounds=settings.rounds,
                ratio=settings.ratio,
                keys=(own, others),
                records=settings.records // (1 if name in settings.data else 2),
            )
        )
        print(f"  {name}, {law}: done", flush=True)
    return found


def run(settings: Settings) -> Part:
    """Runs everything, writes figures and numbers."""
    return step_rules_report.part(
        "block_descent",
        "Block descent in shared memory: the same comparison",
        settings.output,
        outcomes(settings),
        fixed="sun",
    )


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
