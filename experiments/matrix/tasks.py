"""The workers and the problems of the matrix.

Every clock has the mean time 1 over all workers and jobs, so that a budget of simulated time means
the same for all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from asyncjax import clocks, problems
from experiments.common.recordings import EVEN, of_workers, read_recordings

LEAST_ROWS = 2  # rows of the smallest shard, in batches


@dataclass(frozen=True, eq=False)
class Workers:
    """A law of speeds.

    Attributes:
        text: What it is.
        make: `(n, key) -> clock`; the mean time of a job is 1, the key chooses what a seed begins
            with.
    """

    text: str
    make: Callable[[int, jax.Array], clocks.Clock]


def _constant(factors: Callable[[int], np.ndarray]) -> Callable[..., clocks.Clock]:
    def make(n: int, key: jax.Array) -> clocks.Clock:
        times = factors(n).astype(float)
        return clocks.constant(times / times.mean())

    return make


def _recorded(*names: str) -> Callable[[int, jax.Array], clocks.Clock]:
    """Recorded workers, each recording scaled to mean 1, as many as there are to be.

    Those of several recordings take turns: the first of each, the second of each, and so on. Where
    there are more workers than were recorded, they begin again at another place of the record. A
    seed begins somewhere in the recordings, which are cycled.
    """

    def make(n: int, key: jax.Array) -> clocks.Clock:
        read = read_recordings(names)
        length = min(times.shape[1] for times in read)
        if len(read) > 1:
            turns = range(max(map(len, read)))
            rows = [times[i, :length] for i in turns for times in read if i < len(times)]
            read = [np.stack(rows[:n])]
        times = of_workers(read[0], n)
        begin = int(jax.random.randint(key, (), 0, length))
        return clocks.recorded(np.roll(times / times.mean(), -begin, axis=1))

    return make


CLOCKS: Mapping[str, Workers] = {
    "equal": Workers("all workers equally fast", _constant(np.ones)),
    "sqrt": Workers(
        "fixed times in proportion to 1, sqrt 2, ..., sqrt n",
        _constant(lambda n: np.sqrt(1.0 + np.arange(n))),
    ),
    "one straggler": Workers(
        "the last worker 10 times slower",
        _constant(lambda n: np.where(np.arange(n) < n - 1, 1.0, 10.0)),
    ),
    "slow labels": Workers(
        "the last 5/8 of the workers 4 times slower; where data are sorted nearly all of the last"
        " labels are theirs",
        _constant(lambda n: np.where(np.arange(n) < n - round(0.625 * n), 1.0, 4.0)),
    ),
    "exponential": Workers("exponential times", lambda n, key: clocks.exponential(np.ones(n))),
    "heavy tail": Workers("Pareto times, tail 1.5", lambda n, key: clocks.pareto(np.ones(n), 1.5)),
    "even jobs": Workers(
        "recorded: workers of three training jobs on GPUs, mini-batches", _recorded(*EVEN)
    ),
    "job 4": Workers(
        "recorded: a fourth such job, ten workers, some of them twice", _recorded("job_4")
    ),
    "LLM sequences": Workers(
        "recorded: of 32 workers of an LLM job, which are late by turns (uneven sequences)",
        _recorded("llm_sequences"),
    ),
    "LLM slow worker": Workers(
        "recorded: four workers of another, one slowed on purpose, each several times",
        _recorded("llm_slow_worker"),
    ),
}
RECORDED = ("even jobs", "job 4", "LLM sequences", "LLM slow worker")


@dataclass(frozen=True, eq=False)
class Task:
    """A problem with its workers: what a method runs on, and may know beforehand.

    Attributes:
        problem: Its jobs draw rows at random.
        whole: The same with the whole shard as a job, of which policies draw their load.
        batch: Rows of a gradient.
        clocks: One a seed, the tuning seeds first; the mean time of a job is 1.
        keys: Typed keys, one a seed.
    """

    problem: problems.Problem
    whole: problems.Problem
    batch: int
    clocks: tuple[clocks.Clock, ...]
    keys: jax.Array

    @property
    def n_workers(self) -> int:
        """Number of workers n."""
        return self.clocks[0].n_workers


@dataclass(frozen=True, eq=False)
class Data:
    """A problem, made with any batch.

    Attributes:
        text: What it is.
        make: `(n, batch, rows of a gradient, key) -> problem`; the batch None is the whole shard.
        default: Whether it runs without `--full`.
    """

    text: str
    make: Callable[[int, Any, int, jax.Array], problems.Problem]
    default: bool = True


def _least_squares(n: int, batch: Any, size: int, key: jax.Array) -> problems.Problem:
    rows, dim = 40 * n, 20
    for_rows, for_model, for_noise = jax.random.split(key, 3)
    scale = 1.0 / (1.0 + np.arange(dim))  # eigenvalues 1, 1/4, ..., 1/400
    features = np.asarray(jax.random.normal(for_rows, (rows, dim))) * scale
    model = np.asarray(jax.random.normal(for_model, (dim,))) / scale**0.5
    targets = features @ model + 0.1 * np.asarray(jax.random.normal(for_noise, (rows,)))
    return problems.least_squares(features, targets, n_workers=n, batch=batch)


def _sorted_logistic(n: int, batch: Any, size: int, key: jax.Array) -> problems.Problem:
    data = problems.breast_cancer()
    order = np.argsort(data.train_labels, kind="stable")
    return problems.logistic(
        data.train_features[order], data.train_labels[order], n_workers=n, l2=0.01, batch=batch
    )


@lru_cache
def _dirichlet(n: int, size: int, seed: int) -> problems.Shards:
    labels = problems.digits().train_labels
    return problems.dirichlet(
        labels, n, concentration=0.3, key=jax.random.key(seed), minimum=LEAST_ROWS * size
    )


def _network(kind: str) -> Callable[[int, Any, int, jax.Array], problems.Problem]:
    """A network on the digits; shards are padded to one width, so that all share a compilation."""

    def make(n: int, batch: Any, size: int, key: jax.Array) -> problems.Problem:
        data, skewed = problems.digits(), _dirichlet(n, size, int(jax.random.key_data(key)[-1]))
        rows = len(data.train_labels)
        shards = {
            "iid": lambda: problems.iid(rows, n, key=key),
            "Dirichlet": lambda: skewed,
            "sorted": lambda: problems.contiguous(rows, n),
        }[kind]()
        features, labels = data.train_features, data.train_labels
        if kind == "sorted":
            order = np.argsort(labels, kind="stable")
            features, labels = features[order], labels[order]
        return problems.classification(
            problems.MLP(hidden=(16,), classes=10),
            features,
            labels,
            n_workers=n,
            shards=_padded(shards, skewed.rows.shape[1]),
            batch=batch,
            key=key,
        )

    return make


def _padded(shards: problems.Shards, width: int) -> problems.Shards:
    """The same shards with longer padding."""
    missing = width - shards.rows.shape[1]
    if missing <= 0:
        return shards
    return shards._replace(
        rows=np.concatenate([shards.rows, np.repeat(shards.rows[:, :1], missing, axis=1)], axis=1)
    )


PROBLEMS: Mapping[str, Data] = {
    "least squares, iid": Data("made-up regression, 20 columns, condition 400", _least_squares),
    "logistic, sorted": Data("breast cancer, l2 0.01, sorted by label", _sorted_logistic),
    "network, iid": Data("16 hidden units on digits, dealt at random", _network("iid")),
    "network, Dirichlet": Data(
        "the same, labels divided by a Dirichlet law of concentration 0.3", _network("Dirichlet")
    ),
    "network, sorted": Data("the same, sorted by label", _network("sorted"), default=False),
}
