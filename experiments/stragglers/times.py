"""Plans of (k, load) on recorded times of real workers: planned on one half, run on the other.

The recordings come with the library: four training jobs with ten workers each from Alibaba's GPU
cluster trace (cluster-trace-gpu-v2020, CC BY 4.0; Xiao et al., AntMan, OSDI 2020), three of even
workers and an uneven one, and two LLM training jobs (ByteDance-Seed/StragglerAnalysis, Apache-2.0;
Lin et al., OSDI 2025), of which ten workers are made. A plan knows the first half of a recording,
as an empirical law, and runs on the second. A recorded time is that of a whole shard, whose samples
take equal parts of it; communication was not recorded: there is none, or it takes a quarter of a
mean job ("links"). For the even jobs there is a made-up column too, where half of the workers take
four times as long.

Logistic regression on the breast cancer data, rows dealt at random. Methods, steps and knobs are
chosen as in `straggler_training`; crews of workers learned by lower confidence bounds join, since
workers differ here.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import clocks, problems, stragglers
from experiments.common.parts import Part, run_alone
from experiments.common.recordings import EVEN, UNEVEN, of_workers, read_recordings
from experiments.stragglers import training_report, training_runs
from experiments.stragglers.tasks import Task, logistic_constants
from experiments.stragglers.training_runs import Method, Outcome

N_WORKERS = 10


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/straggler_times")
    seed: int = 0
    even: tuple[str, ...] = EVEN  # recordings or files
    uneven: tuple[str, ...] = UNEVEN
    stress: float = 4.0  # factor of half of the even workers in the made-up columns
    communication: float = 0.25  # of a mean job, in the columns with communication
    l2: float = 0.01
    step_size: float = 0.05
    factors: tuple[float, ...] = (1.0, 4.0, 8.0)
    n_updates: int = 1500
    seeds: int = 3
    tuning_seeds: int = 2
    loads: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 24, 32, 40, 56)


def task(settings: Settings) -> Task:
    """Logistic regression on all rows that can be dealt evenly."""
    data = problems.breast_cancer()
    features = np.concatenate([data.train_features, data.test_features]).astype(np.float64)
    labels = np.concatenate([data.train_labels, data.test_labels])
    signs = np.where(labels == labels.max(), 1.0, -1.0)
    rows = N_WORKERS * (len(signs) // N_WORKERS)
    order = np.asarray(jax.random.permutation(jax.random.key(settings.seed), len(signs)))[:rows]
    features, signs = features[order], signs[order]
    problem = problems.logistic(features, signs, n_workers=N_WORKERS, l2=settings.l2)
    return Task(problem, settings.step_size, *logistic_constants(features, signs, settings.l2))


def columns(settings: Settings) -> dict[str, tuple[stragglers.Response, stragglers.Response]]:
    """Response times to plan on and to run on, by name.

    Raises:
        ValueError: A recording is not known.
    """
    shard = max(settings.loads)
    slowed = np.where(np.arange(N_WORKERS) < N_WORKERS // 2, 1.0, settings.stress)[:, None]

    def made(times: np.ndarray, apart: float) -> stragglers.Response:
        return stragglers.response(
            compute=clocks.recorded(times / shard),
            communicate=clocks.constant(apart) if apart else None,
            n_workers=N_WORKERS,
        )

    found = {}
    names = (*settings.even, *settings.uneven)
    for place, (path, times) in enumerate(zip(names, read_recordings(names), strict=True)):
        times, name = of_workers(times, N_WORKERS), Path(path).stem
        half = times.shape[1] // 2
        parts = times[:, :half], times[:, half:]
        own: list[tuple[str, Any, float]] = [(f"{name} with links", 1.0, settings.communication)]
        if place < len(settings.even):
            slow = f"{name}, half x{settings.stress:g}, links"
            own.append((slow, slowed, settings.communication))
        if place in (0, len(settings.even)):
            own.insert(0, (name, 1.0, 0.0))
        for column, factor, apart in own:
            found[column] = tuple(made(factor * part, apart) for part in parts)
    return found


def crews(settings: Settings) -> Method:
    """Crews that learn who is fast; the knob is how much they explore."""
    full = max(settings.loads)
    policies = {
        f"crew of {k}, confidence {confidence:g}": stragglers.learned_crew(
            N_WORKERS, k, full, confidence=confidence
        )
        for k in (3, 5, 8)
        for confidence in (0.0, 0.01)
    }
    return Method("learned crew", lambda step_size: policies)


def run(settings: Settings) -> Part:
    """Runs all methods on all columns, writes figures and numbers.

    Raises:
        ValueError: A recording is not known.
    """
    made = task(settings)
    as_trained = training_runs.Settings(
        output=settings.output,
        seed=settings.seed,
        n_workers=N_WORKERS,
        shard=max(settings.loads),
        n_updates=settings.n_updates,
        seeds=settings.seeds,
        tuning_seeds=settings.tuning_seeds,
        loads=settings.loads,
        factors=settings.factors,
    )
    found: dict[tuple[str, str], tuple[list[Outcome], list[Outcome]]] = {}
    for name, (known, met) in columns(settings).items():
        several = [*training_runs.methods(as_trained, made, known), crews(settings)]
        pairs = [training_runs.measure(as_trained, made, met, method) for method in several]
        found["breast cancer", name] = ([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        times = ", ".join(
            f"{pair[0].name} {np.median(pair[0].costs['time']):.4g}" for pair in pairs
        )
        print(f"{name}: {times}", flush=True)
    part = training_report.part(as_trained, found, name="straggler_times")
    return replace(part, title="On the recorded times of real workers: what is a plan worth?")


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
