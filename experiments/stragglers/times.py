"""Plans of (k, load) on recorded times of real workers: planned on one half, run on the other.

The recordings come with the library: training jobs with ten workers each from Alibaba's GPU cluster
trace (cluster-trace-gpu-v2020, CC BY 4.0; Xiao et al., AntMan, OSDI 2020), one of even workers and
an uneven one, and two LLM training jobs (ByteDance-Seed/StragglerAnalysis, Apache-2.0; Lin et al.,
OSDI 2025), of which ten workers are made. A plan knows the first half of a recording, as an
empirical law, and runs on the second. A recorded time is that of a whole shard, whose samples take
equal parts of it; communication was not recorded: there is none, or it takes a quarter of a mean
job ("links"). For the even job there is a made-up scene too, where half of the workers take four
times as long.

Logistic regression on the breast cancer data. An instance draws how rows are dealt, the first
model, which worker has which shard (and which ten of 32 there are), and where in the second half
the run begins. All methods have all of their knobs tuned on other instances, with equal trials;
crews of workers learned by lower confidence bounds join, since workers differ here.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from asyncjax import clocks, results, stragglers, study
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import LEVELS, Seeds
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import sets
from experiments.common.recordings import of_workers, read_recordings
from experiments.data import breast_cancer
from experiments.stragglers import methods, training
from experiments.stragglers.methods import ALONE, BOTH
from experiments.stragglers.training import fastest_fixed, reached_text, shown

NAME = "straggler_times"
TITLE = "On the recorded times of real workers: what is a plan worth?"
PAPERS = (*training.PAPERS, "Xiao et al., AntMan, OSDI 2020", "Lin et al., OSDI 2025")
N_WORKERS = 10
FASTER = "adapting k and load is faster than the best fixed pair on recorded times"
FASTER_THAN_ALONE = "and than adapting k alone"


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/straggler_times")
    commit: bool = False  # also write the rows where committed ones are
    seed: int = 0
    even: tuple[str, ...] = ("job_1",)  # recordings or files
    uneven: tuple[str, ...] = ("job_4", "llm_sequences", "llm_slow_worker")
    stress: float = 4.0  # factor of half of the even workers in the made-up scenes
    communication: float = 0.25  # of a mean job, in the scenes with communication
    step_size: float = 0.05
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5  # to tune each of them on
    trials: int = 12  # settings that a method tries in a round of tuning
    rounds: tuple[int, int] = (5, 8)
    lengths: tuple[int, ...] = (250, 1000, 4000, 8000, 16_000)  # updates, the next where too short
    watched: float = 50.0  # rounds that a run is watched: all are awaited, with whole shards
    levels: tuple[float, ...] = LEVELS
    loads: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 24, 32, 40, 56)


@dataclass(frozen=True)
class Recorded:
    """A scene: recorded times and how they are used.

    Attributes:
        settings: What is run.
        recording: Its name or file.
        slowed: Factor of the second half of the workers.
        apart: Time of communication.
    """

    settings: Settings
    recording: str
    slowed: float = 1.0
    apart: float = 0.0

    def __call__(self, seeds: Seeds) -> study.Scene:
        """An instance; its horizon is in rounds as long as the first half has them in the mean."""
        chosen, (believed, met) = self.settings, self.responses(seeds)
        loss, shard = task(chosen.step_size, seeds), max(chosen.loads)
        targets = loss.targets(N_WORKERS * shard, chosen.levels)
        instance = methods.Instance(loss, believed, met, chosen.loads, 1, targets, chosen.lengths)
        round_time = float(stragglers.expected_completion(believed, N_WORKERS, shard))
        return study.Scene(horizon=chosen.watched * round_time, data=instance)

    def responses(self, seeds: Seeds) -> tuple[stragglers.Response, stragglers.Response]:
        """What to plan on, and the response times to run on: those of an instance's workers.

        Plans do not ask who is who, so in the first half the workers stand in the recording's
        order.
        """
        (times,) = read_recordings((self.recording,))
        rng = np.random.default_rng(seeds.clock)
        if len(times) > N_WORKERS:
            times = times[np.sort(rng.permutation(len(times))[:N_WORKERS])]
        half, slow = times.shape[1] // 2, np.arange(N_WORKERS) >= N_WORKERS // 2
        begins, order = rng.integers(times.shape[1] - half), rng.permutation(N_WORKERS)
        times = of_workers(times, N_WORKERS) * np.where(slow, self.slowed, 1.0)[:, None]
        rest = np.roll(times[order, half:], -begins, axis=1)
        return self.response(times[:, :half]), self.response(rest)

    def response(self, times: np.ndarray) -> stragglers.Response:
        """Response times of a part of a recording."""
        return stragglers.response(
            compute=clocks.recorded(times / max(self.settings.loads)),
            communicate=clocks.constant(self.apart) if self.apart else None,
            n_workers=N_WORKERS,
        )


def scenes(settings: Settings) -> dict[str, Recorded]:
    """What is run on, by name: of both kinds the first is run without links too.

    Raises:
        ValueError: A recording is not known.
    """
    read_recordings((*settings.even, *settings.uneven))  # refuses what is not known
    plain, links = replace(settings, output=Path(), commit=False), settings.communication
    found = {}
    for kind in (settings.even, settings.uneven):
        for path in kind:
            name = Path(path).stem
            if path == kind[0]:
                found[name] = Recorded(plain, path)
            found[f"{name} with links"] = Recorded(plain, path, apart=links)
            if kind is settings.even:
                slowed = f"{name}, half x{settings.stress:g}, links"
                found[slowed] = Recorded(plain, path, settings.stress, links)
    return found


@cache
def task(step_size: float, seeds: Seeds) -> methods.Task:
    """Logistic regression on all rows that can be dealt evenly, and a first model."""
    data = breast_cancer()
    features = np.concatenate([data.train_features, data.test_features]).astype(np.float64)
    labels = np.concatenate([data.train_labels, data.test_labels])
    signs = np.where(labels == labels.max(), 1.0, -1.0)
    rows = N_WORKERS * (len(signs) // N_WORKERS)
    order = np.random.default_rng(seeds.data).permutation(len(signs))[:rows]
    return methods.logistic_task(features[order], signs[order], N_WORKERS, step_size, seeds)


def study_of(settings: Settings) -> Result:
    """Runs all methods on all recordings.

    Raises:
        ValueError: A recording is not known.
    """
    sizes = N_WORKERS, max(settings.loads)
    ways = methods.main_methods(*sizes) | {"learned crew": methods.crew(*sizes)}
    several = scenes(settings).items()
    rows = [training.compared(settings, name, scene, ways) for name, scene in several]
    return training.as_result(settings, pd.concat(rows))


def claims(result: Result) -> tuple[Claim, ...]:
    """From times alone; a condition a scene."""
    alone = [less(BOTH, ALONE, each=True)]
    return (
        Claim(FASTER, training.over_fixed(result)),
        Claim(FASTER_THAN_ALONE, alone),
    )


def time_table(result: Result) -> results.Table:
    """Times of all methods to the last target, one row per scene."""
    rows = []
    for scene, runs in result.select(set="A").groupby("scene", sort=False):
        times = [reached_text(group, "time") for _, group in runs.groupby("method", sort=False)]
        fixed = fastest_fixed(result, scene=scene)
        rows.append([scene, *times, *(shown(result, one, scene=scene) for one in (fixed, ALONE))])
    return part.table(
        ("recording", *result.methods, "k and load over the fastest fixed", "over k alone"),
        rows,
        "Time to the last target, everything tuned: median (quartiles) over set A, with the share"
        " that arrived where it is not all; ratios with their 95 % interval, then set B's mean.",
    )


TABLES = {"times": time_table, "spread": sets.spread_of}


def fixed(result: Result) -> dict[str, str]:
    """The fastest fixed pair of each scene."""
    return {scene: fastest_fixed(result, scene=scene) for scene in result.rows["scene"].unique()}


FACTS = {"fixed": fixed}


def ratios(result: Result) -> Illustration:
    """Times over the fastest fixed pair and over k alone."""
    panels = {"over the fastest fixed pair": ("", {}), "over k alone": (ALONE, {})}
    return training.ratio_figure(result, panels)


FIGURES = {"ratios": ratios}


if __name__ == "__main__":
    part.main(NAME, one_thread=True)
