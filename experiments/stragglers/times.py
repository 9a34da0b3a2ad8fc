"""Plans of (k, load) on recorded times of real workers: planned on one half, run on the other.

The recordings come with the library: training jobs with ten workers each from Alibaba's GPU cluster
trace (cluster-trace-gpu-v2020, CC BY 4.0; Xiao et al., AntMan, OSDI 2020), one of even workers and
an uneven one, and two LLM training jobs (ByteDance-Seed/StragglerAnalysis, Apache-2.0; Lin et al.,
OSDI 2025), of which ten workers are made. A plan knows the first half of a recording, as an
empirical law, and runs on the second. A recorded time is that of a whole shard, whose samples take
equal parts of it; communication was not recorded: there is none, or it takes a quarter of a mean
job ("links"). For the even job there is a made-up column too, where half of the workers take four
times as long.

Logistic regression on the breast cancer data. An instance draws how rows are dealt, the first
model, which worker has which shard (and which ten of 32 there are), and where in the second half
the run begins. All methods have all of their knobs tuned on other instances, with equal trials;
crews of workers learned by lower confidence bounds join, since workers differ here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import clocks, problems, results, stragglers
from asyncjax.study import protocol
from asyncjax.study.protocol import FIRST_CROSSING, LEVELS, TUNING, Seeds
from asyncjax.study.statistics import verdict
from experiments.common import numbers
from experiments.common.parts import Part, run_alone, written
from experiments.common.recordings import of_workers, read_recordings
from experiments.stragglers import tasks, training_report, training_runs
from experiments.stragglers.methods import Known, Method, Scene, crew, main_methods
from experiments.stragglers.tasks import Task, begun, logistic_constants, targets_of
from experiments.stragglers.training_report import ALONE, BOTH, PAIR, text_of
from experiments.stragglers.training_runs import SETS

N_WORKERS = 10
NUMBERS = "straggler_times"
DIGITS = 4
TITLE = "On the recorded times of real workers: what is a plan worth?"
FASTER = "adapting k and load is faster than the best fixed pair on recorded times"
FASTER_THAN_ALONE = "and than adapting k alone"
RIVALS = {FASTER: "", FASTER_THAN_ALONE: ALONE}  # none: the fastest fixed pair


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/straggler_times")
    commit: bool = False  # also write the numbers that are committed
    seed: int = 0
    even: tuple[str, ...] = ("job_1",)  # recordings or files
    uneven: tuple[str, ...] = ("job_4", "llm_sequences", "llm_slow_worker")
    stress: float = 4.0  # factor of half of the even workers in the made-up columns
    communication: float = 0.25  # of a mean job, in the columns with communication
    l2: float = 0.01
    step_size: float = 0.05
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 3
    trials: int = 14  # settings that a method tries in a round of tuning
    rounds: tuple[int, int] = (3, 5)
    lengths: tuple[int, ...] = (250, 1000, 4000)  # updates: the next where one is too short
    horizon: float = 600.0  # mean jobs that a run is watched
    levels: tuple[float, ...] = LEVELS
    loads: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 24, 32, 40, 56)


@dataclass(frozen=True)
class Column:
    """Recorded times and how they are used.

    Attributes:
        recording: Its name or file.
        slowed: Factor of the second half of the workers.
        apart: Time of communication.
    """

    recording: str
    slowed: float = 1.0
    apart: float = 0.0


def columns(settings: Settings) -> dict[str, Column]:
    """What is run on, by name.

    Raises:
        ValueError: A recording is not known.
    """
    names = (*settings.even, *settings.uneven)
    read_recordings(names)  # refuses what is not known
    found = {}
    for place, path in enumerate(names):
        name = Path(path).stem
        if place in (0, len(settings.even)):
            found[name] = Column(path)
        found[f"{name} with links"] = Column(path, apart=settings.communication)
        if place < len(settings.even):
            slowed = Column(path, settings.stress, settings.communication)
            found[f"{name}, half x{settings.stress:g}, links"] = slowed
    return found


def task(settings: Settings, instance: Seeds) -> Task:
    """Logistic regression on all rows that can be dealt evenly, and a first model."""
    data = problems.breast_cancer()
    features = np.concatenate([data.train_features, data.test_features]).astype(np.float64)
    labels = np.concatenate([data.train_labels, data.test_labels])
    signs = np.where(labels == labels.max(), 1.0, -1.0)
    rows = N_WORKERS * (len(signs) // N_WORKERS)
    order = np.random.default_rng(instance.data).permutation(len(signs))[:rows]
    features, signs = features[order], signs[order]
    problem = begun(
        problems.logistic(features, signs, n_workers=N_WORKERS, l2=settings.l2), instance, 0.1
    )
    return Task(problem, settings.step_size, *logistic_constants(features, signs, settings.l2))


def responses(
    settings: Settings, column: Column, instance: Seeds
) -> tuple[stragglers.Response, stragglers.Response]:
    """Response times to plan on and to run on: those of an instance's workers.

    Plans do not ask who is who, so in the first half the workers stand in the recording's order.
    """
    (times,) = read_recordings((column.recording,))
    rng = np.random.default_rng(instance.clock)
    if len(times) > N_WORKERS:
        times = times[np.sort(rng.permutation(len(times))[:N_WORKERS])]
    times = of_workers(times, N_WORKERS)
    times = times * np.where(np.arange(N_WORKERS) < N_WORKERS // 2, 1.0, column.slowed)[:, None]
    half = times.shape[1] // 2
    begins, order = rng.integers(times.shape[1] - half), rng.permutation(N_WORKERS)

    def made(part: np.ndarray) -> stragglers.Response:
        return stragglers.response(
            compute=clocks.recorded(part / max(settings.loads)),
            communicate=clocks.constant(column.apart) if column.apart else None,
            n_workers=N_WORKERS,
        )

    return made(times[:, :half]), made(np.roll(times[order, half:], -begins, axis=1))


def scenes_of(settings: Settings, column: Column) -> training_runs.Scenes:
    """The instances of a column, by role."""
    shared = read_recordings((column.recording,))[0].shape[0] <= N_WORKERS
    kept: dict[bool, Known] = {}

    def scene(instance: Seeds) -> Scene:
        known, met = responses(settings, column, instance)
        plans = Known(known, settings.loads, 1)
        plans = kept.setdefault(True, plans) if shared else plans  # one table for all
        made = _task(settings, instance)
        targets = targets_of(made, N_WORKERS * max(settings.loads), settings.levels)
        return Scene(made, plans, met, jax.random.key(instance.noise()), targets)

    counts = {TUNING: settings.tuning_instances}
    counts |= dict.fromkeys(SETS.values(), settings.instances)
    return {
        role: [scene(one) for one in protocol.seeds_of(settings.seed, role, count)]
        for role, count in counts.items()
    }


_task = cache(task)


def methods(settings: Settings) -> dict[str, Method]:
    """The two plans, the fixed pair, waiting for all, and crews."""
    shard = max(settings.loads)
    return main_methods(N_WORKERS, shard) | {"learned crew": crew(N_WORKERS, shard)}


def as_trained(settings: Settings) -> tasks.Settings:
    """The settings of runs and tuning."""
    names = ("output", "seed", "instances", "tuning_instances", "trials", "rounds")
    names += ("lengths", "horizon", "levels", "loads")
    own = {name: getattr(settings, name) for name in names}
    return tasks.Settings(**own, n_workers=N_WORKERS, shard=max(settings.loads), family_cases=())


def verdicts(cells: training_report.Cases) -> dict[str, dict[str, str]]:
    """What both sets say, from times alone; a condition a column."""

    def said(letter: str, rival: str) -> str:
        return verdict(
            [
                training_report.condition(
                    cells,
                    case,
                    "tuned",
                    letter,
                    "time",
                    (BOTH, rival or training_report.fastest_fixed(own["tuned"])),
                )
                for case, own in cells.items()
            ]
        )

    return {
        letter: {claim: said(letter, rival) for claim, rival in RIVALS.items()} for letter in SETS
    }


def run(settings: Settings) -> Part:
    """Runs all methods on all columns, writes figures and numbers.

    Raises:
        ValueError: A recording is not known.
    """
    known, own, told = columns(settings), as_trained(settings), partial(print, flush=True)

    def one(name: str) -> dict[str, Any]:
        scenes = scenes_of(settings, known[name])
        return {"tuned": training_runs.tuned(own, scenes, methods(settings), told)}

    cells = training_runs.run_cases(own, one, list(known), told)
    found = numbers.rounded(training_report.numbers(own, cells, verdicts), DIGITS)
    if settings.commit:
        command = "python -m experiments.stragglers.times --commit"
        numbers.save(NUMBERS, found, command=command, digits=DIGITS)
    pairs = {
        "over the fastest fixed pair": ("tuned", ""),
        "over k alone": ("tuned", ALONE),
    }
    drawings = (
        (
            "ratios",
            training_report.ratio_figure(found, pairs, "time of k and load, ratio"),
            "Time of the plan of k and load over that of the best fixed pair, and over that of k"
            " alone, all tuned: geometric means over instances and their 95 % intervals.",
        ),
    )
    return written(
        settings.output, NUMBERS, TITLE, drawings, tables(found), found, note=FIRST_CROSSING
    )


def tables(found: Mapping[str, Any]) -> tuple[results.Table, ...]:
    """Verdicts, times of all methods, all costs, trials."""
    cases = found["order"]
    return (
        training_report.verdict_table(found),
        time_table(found),
        *(training_report.method_table(found, case, "tuned") for case in cases),
        *(training_report.trial_table(found, case, "tuned") for case in cases),
    )


def time_table(found: Mapping[str, Any]) -> results.Table:
    """Times of all methods to the last target, a row a column of recorded times."""
    rows, horizon = [], found["settings"]["horizon"]
    names = training_report.ordered(found["cases"][found["order"][0]]["tuned"])
    for case in found["order"]:
        own = found["cases"][case]["tuned"]
        times = [
            training_report.reached_text(own[name]["A"]["times"][-1], horizon) for name in names
        ]
        fixed = found["fastest fixed"][case]["tuned"]
        ratios = [text_of(found["ratios"][case]["tuned"][one]["time"]) for one in (fixed, ALONE)]
        rows.append((case, own[PAIR]["chosen"], *times, *ratios))
    return results.Table(
        (
            results.Column("recording", right=False),
            results.Column("fixed pair chosen", right=False),
            *(results.Column(name) for name in names),
            results.Column("k and load over the fastest fixed"),
            results.Column("over k alone"),
        ),
        tuple(rows),
        "Time to the last target, everything tuned: median (quartiles) over set A, with the share"
        " that arrived where it is not all; ratios are geometric means over instances with their"
        " 95 % interval, then set B's mean.",
    )


def page_table(found: Mapping[str, Any]) -> results.Table:
    """The table of experiments/README.md: `time_table` without what was chosen."""
    whole = time_table(found)
    return results.Table(
        (whole.columns[0], *whole.columns[2:]),
        tuple((row[0], *row[2:]) for row in whole.rows),
        whole.caption,
    )


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
