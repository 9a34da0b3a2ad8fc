"""The scenes of the matrix: who is slow, who holds what, how loud the noise is, what a link costs.

    uneven   how the workers' times differ
    skew     rows dealt at random, or one of two classes held by the slow workers alone
    noise    "low": a gradient of ten rows, true labels; "high": of two, a tenth of the labels wrong
    link     "free", or "expensive": every exchange takes as long as three mean jobs

Two Gaussian classes, logistic regression with an l2 penalty, 30 rows a worker: a convex problem
whose minimum is found by L-BFGS. An instance draws rows, workers and the first model; scenes that
differ in other things share them. Times are such that workers who never wait compute one gradient a
worker and unit of time, whatever the law. `SCENES` has all forty by name, as `compare` takes them;
`TO_TARGET` is what methods are compared by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product, starmap
from typing import NamedTuple

import jax
import numpy as np

from asyncjax import clocks, problems, results
from asyncjax.study.protocol import LEVELS, TUNING, Seeds, restricted, seeds_of
from asyncjax.study.scene import Measure, Records, Scene

N_WORKERS = 8
ROWS = 30  # of a worker
DIMENSION = 16  # of a row, without the column of ones
L2 = 0.01
OFFSET = 0.7  # deviation of the mean of a column
FLIPPED = 0.1  # share of wrong labels where noise is high
BATCH = {"low": 10, "high": 2}  # rows of a gradient
LINK = {"free": 0.0, "expensive": 3.0}  # of an exchange
STEADY = 400.0  # shape of the gamma law of a job's time: a deviation of 5 %
SLOW = {"straggler": 1}  # workers who hold a class of their own; else half
ROUNDS = {"low": 30, "high": 48}  # rounds that wait for all, of mean length: the horizon
SHORTER = {"straggler": 0.75}  # their rounds are so long that fewer are watched
RECORDS = 60  # of a run
RECORDING = "job_4"  # a training job of ten workers, which comes with the library


def _scaled(means: np.ndarray) -> np.ndarray:
    """Mean times with the slowest last, such that the harmonic mean is 1."""
    means = np.sort(means)
    return means * np.mean(1.0 / means)


def _steady(means: np.ndarray) -> clocks.Clock:
    return clocks.gamma(STEADY, _scaled(means))


def _spread(generator: np.random.Generator) -> clocks.Clock:
    return _steady(4.0 ** np.concatenate([[0.0, 1.0], generator.uniform(size=N_WORKERS - 2)]))


def _recorded(generator: np.random.Generator) -> clocks.Clock:
    """Eight of the ten workers of a recorded job, from somewhere in the record on."""
    times = clocks.recording(RECORDING).durations
    times = times / times.mean()
    crew = generator.permutation(len(times))[:N_WORKERS]
    chosen = np.roll(times[crew], -int(generator.integers(times.shape[1])), axis=1)
    means = chosen.mean(axis=1)
    return clocks.recorded(chosen[np.argsort(means)] * np.mean(1.0 / means))


UNEVEN: Mapping[str, Callable[[np.random.Generator], clocks.Clock]] = {
    "even": lambda generator: clocks.gamma(STEADY, np.ones(N_WORKERS)),
    "spread": _spread,
    "straggler": lambda generator: _steady(np.r_[np.ones(N_WORKERS - 1), 10.0]),
    "by chance": lambda generator: clocks.exponential(np.ones(N_WORKERS)),
    "recorded": _recorded,
}
SKEW = ("alike", "slow hold labels")
NOISE = tuple(BATCH)
LINKS = tuple(LINK)


class Factors(NamedTuple):
    """A cell of the factorial."""

    uneven: str
    skew: str
    noise: str
    link: str

    @property
    def name(self) -> str:
        """What files and tables call it."""
        return f"{self.uneven}, {self.skew}, {self.noise} noise, {self.link} links"

    @property
    def problem(self) -> str:
        """What is optimised."""
        return "logistic regression, two Gaussian classes"

    @property
    def clock(self) -> tuple[str, str]:
        """What decides its traces."""
        return self.uneven, self.link

    @property
    def horizon(self) -> float:
        """How long every run is watched."""
        rounds = ROUNDS[self.noise] * SHORTER.get(self.uneven, 1.0)
        return float(f"{rounds * round_time(*self.clock):.3g}")


FACTORS = {one.name: one for one in starmap(Factors, product(UNEVEN, SKEW, NOISE, LINKS))}


def _scene(factors: Factors, seeds: Seeds) -> Scene:
    instance = drawn(factors, seeds)
    known, rows = {"smoothness": instance.smoothness}, BATCH[factors.noise]
    clock, end = workers(*factors.clock, seeds), factors.horizon
    return Scene(instance.problem, clock, end, instance.whole, instance, known, rows, RECORDS)


SCENES = {name: partial(_scene, factors) for name, factors in FACTORS.items()}


@lru_cache(4096)
def workers(uneven: str, link: str, seeds: Seeds) -> clocks.Clock:
    """The workers of an instance, the slowest in the mean last."""
    compute = UNEVEN[uneven](np.random.default_rng(seeds.clock))
    if not LINK[link]:
        return compute
    return clocks.communicating(compute, download=clocks.constant(LINK[link]))


@lru_cache
def round_time(uneven: str, link: str) -> float:
    """How long a round that waits for all takes in the mean, on eight instances for tuning."""
    rounds = []
    for seeds in seeds_of(0, TUNING, 8):
        times = workers(uneven, link, seeds).durations(jax.random.key(seeds.noise()), 64)
        rounds.append(np.asarray(times).max(axis=0).mean())
    return float(np.mean(rounds))


@dataclass(frozen=True, eq=False)
class Drawn:
    """The data of an instance in a scene.

    Attributes:
        problem: Its jobs draw rows at random.
        whole: The same with the whole shard as a job, of which policies draw their load.
        features: float32[rows, d], the rows of worker 0 first.
        signs: float32[rows], -1 or 1.
        start: float32[d], the first model.
        first: Its loss.
        lowest: The lowest loss.
        smoothness: Of the objective.
    """

    problem: problems.Problem
    whole: problems.Problem
    features: np.ndarray
    signs: np.ndarray
    start: np.ndarray
    first: float
    lowest: float
    smoothness: float


def drawn(factors: Factors, seeds: Seeds) -> Drawn:
    """An instance of a scene; scenes of one skew, noise and number of slow workers share it."""
    slow = SLOW.get(factors.uneven, N_WORKERS // 2)
    return _drawn(factors.skew, factors.noise, slow, seeds)


@lru_cache(512)
def _drawn(skew: str, noise: str, slow: int, seeds: Seeds) -> Drawn:
    generator = np.random.default_rng(seeds.data)
    total, few = N_WORKERS * ROWS, slow * ROWS
    scale = np.geomspace(1.0, 0.2, DIMENSION)
    way = generator.normal(size=DIMENSION)
    way *= 2.0 / np.linalg.norm(way)
    sides = np.where(np.arange(total) < total - few, 1.0, -1.0) * generator.choice([-1.0, 1.0])
    rows = (generator.normal(size=(total, DIMENSION)) + sides[:, None] * way) * scale
    rows += OFFSET * generator.normal(size=DIMENSION)  # columns are not centred: ill-conditioned
    wrong = generator.permutation(total)[: round(FLIPPED * total)]
    signs = sides.copy()
    if noise == "high":
        signs[wrong] *= -1
    if skew == "alike":
        order = generator.permutation(total)
        rows, signs = rows[order], signs[order]
    features = np.hstack([rows, np.ones((total, 1))])
    start = np.random.default_rng(seeds.model).normal(0.0, 0.5, size=DIMENSION + 1)
    arrays = features.astype(np.float32), signs.astype(np.float32), start.astype(np.float32)

    def problem(batch: problems.Batch | None) -> problems.Problem:
        return problems.logistic(
            *arrays[:2], n_workers=N_WORKERS, l2=L2, batch=batch, start=arrays[2]
        )

    exact = tuple(np.asarray(each, np.float64) for each in arrays)
    return Drawn(
        problem(problems.uniform(BATCH[noise])),
        problem(None),
        *arrays,
        float(losses(exact[0], exact[1], exact[2])),
        minimum(exact[0], exact[1]),
        float(np.linalg.eigvalsh(exact[0].T @ exact[0] / total)[-1] / 4 + L2),
    )


def losses(features: np.ndarray, signs: np.ndarray, models: np.ndarray) -> np.ndarray:
    """The objective of models float[..., d], float64[...]; shards are of equal size."""
    models = np.asarray(models, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = models @ np.asarray(features, np.float64).T
        rows = np.logaddexp(0.0, -np.asarray(signs, np.float64) * scores).mean(-1)
        return rows + 0.5 * L2 * np.square(models).sum(-1)


def minimum(features: np.ndarray, signs: np.ndarray) -> float:
    """The lowest value, by L-BFGS in float64."""
    from scipy.optimize import minimize

    def graded(x: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = -signs / (1.0 + np.exp(np.clip(signs * (features @ x), -500, 500)))
        return float(losses(features, signs, x)), slopes @ features / len(signs) + L2 * x

    begin = np.zeros(features.shape[1])
    options = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-8}
    return float(minimize(graded, begin, jac=True, method="L-BFGS-B", options=options).fun)


def reached(
    instance: Drawn,
    horizon: float,
    times: np.ndarray,
    values: np.ndarray,
    levels: Sequence[float],
) -> tuple[list[float], float]:
    """From which record on losses stay at each level, and the share of the way that is left.

    A loss that is not a number is never at a target; a run that ends so has all of the way left.

    Args:
        instance: The data, with its first and lowest loss.
        horizon: Until when a run is watched.
        times: float[R], of the records.
        values: float[R], losses.
        levels: Shares of the way from the first loss to the lowest.

    Returns:
        A time a level, infinity where the last record by the horizon is not there, and the share
        left at the horizon.
    """
    left = (values - instance.lowest) / (instance.first - instance.lowest)
    left = np.where(np.isfinite(left), left, np.inf)[times <= horizon]
    times = times[times <= horizon]
    when = [results.time_to_target(times, left, 1.0 - level, stays=True) for level in levels]
    return [float(time) for time in when], float(left[-1]) if left.size else 1.0


COLUMNS = {level: f"time to {level:.0%}" for level in LEVELS}  # of the way
COMPARED, LEFT = COLUMNS[LEVELS[-1]], "left"


def _measured(records: Records, scene: Scene) -> Mapping[str, float]:
    instance: Drawn = scene.data
    times, values = (np.asarray(records[name], np.float64) for name in ("time", "loss"))
    when, left = reached(instance, float(scene.horizon or np.inf), times, values, LEVELS)
    return {**dict(zip(COLUMNS.values(), when, strict=True)), LEFT: left}


def _score(numbers: Sequence[Mapping[str, float]], scenes: Sequence[Scene]) -> float:
    """The mean logarithm of the time to the last level, cut.

    Where it never came, the share of the way that is left at the horizon is added, at most 1.
    Infinity where every run diverged.
    """
    times, left = (np.array([each[name] for each in numbers]) for name in (COMPARED, LEFT))
    if not (left < 1.0).any() and not np.isfinite(times).any():
        return float("inf")
    never = np.where(np.isfinite(times), 0.0, np.minimum(left, 1.0))
    cut = restricted(times, float(scenes[0].horizon or np.inf))
    return float((np.log(cut) + never).mean())


TO_TARGET = Measure(of=_measured, compared=COMPARED, score=_score)
