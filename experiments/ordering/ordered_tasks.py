"""The tasks of the comparison of orders on networks: what an instance draws, networks, sizes.

An instance draws which rows are trained on and which are left for the test, which unit of which
worker each row belongs to, whose labels are wrong, and the first model. Rows are dealt to units at
random, so the units of all workers are alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import problems
from asyncjax.study.protocol import Seeds
from asyncjax.study.search import Knob, log_range

GENRES = ("tragedies",)
CLASSES = 10
Pair = tuple[np.ndarray, np.ndarray]  # features and targets of some rows


class Material(NamedTuple):
    """Rows of an instance, a network, and the problem made of them."""

    data: str  # what the rows are
    model: nn.Module
    problem: Callable[..., problems.Problem]  # such as `problems.classification`
    train: Pair
    test: Pair


Load = Callable[[int, int, int], Material]  # training rows, test rows at most, seed of the data


@dataclass(frozen=True)
class Task:
    """What is trained, by how many workers, for how long.

    Attributes:
        name: In tables.
        load: Makes the rows of an instance.
        n_workers: m.
        n_units: n, of each worker, even.
        batch: Rows of a unit, even.
        test_rows: At most.
        optimizer: "SGD", "momentum" or "Adam".
        step: First grid of the step.
        n_epochs: Of every run.
        metric: "test_loss" or "test_accuracy".
        instances: Of each reported set.
        tuning_instances: On which steps are chosen.
        trials: Steps that an order tries in a round of tuning.
        orders: That are run; D-RR among them.
        authors: What the public scripts of CD-GraB have where this is smaller; empty: nothing.
    """

    name: str
    load: Load
    n_workers: int
    n_units: int
    batch: int
    test_rows: int
    optimizer: str
    step: Knob
    n_epochs: int
    metric: str = "test_loss"
    instances: int = 10
    tuning_instances: int = 4
    trials: int = 4
    orders: tuple[str, ...] = ("D-RR", "GraB", "independent", "CD-GraB", "CD-GraB by projections")
    authors: str = ""

    @property
    def title(self) -> str:
        """Name and number of workers."""
        return f"{self.name}, m = {self.n_workers}"

    @property
    def rows(self) -> int:
        """Training rows of an instance."""
        return self.n_workers * self.n_units * self.batch

    def material(self, instance: Seeds) -> Material:
        """The rows of an instance."""
        return self.load(self.rows, self.test_rows, instance.data)

    def problem(self, material: Material, n_workers: int, batch: int, seed: int) -> Any:
        """An instance's rows in contiguous shards, in units of `batch` rows.

        Args:
            material: Of the instance.
            n_workers: Shards.
            batch: Rows of a unit.
            seed: Of the first model.
        """
        train, test = (tuple(map(jnp.asarray, pair)) for pair in (material.train, material.test))
        return material.problem(
            material.model,
            *train,
            n_workers=n_workers,
            key=jax.random.key(seed),
            batch=problems.cyclic(batch),
            test=test,
        )


def dealt(rows: Sequence[np.ndarray], count: int, rest: int, seed: int) -> tuple[Pair, Pair]:
    """Some rows of a pair of arrays in random order, and others for the test.

    Raises:
        ValueError: There are not so many rows.
    """
    features, targets = rows
    if len(features) < count + 1:
        raise ValueError(f"rows must be at most {len(features) - 1}, got {count}")
    drawn = np.random.default_rng(seed).permutation(len(features))
    own, others = drawn[:count], drawn[count : count + rest]
    return (features[own], targets[own]), (features[others], targets[others])


def mislabelled(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Labels of which a share is drawn anew, each other label as likely."""
    generator = np.random.default_rng([seed, 1])
    wrong = generator.permutation(len(labels))[: round(share * len(labels))]
    found = labels.copy()
    found[wrong] = (found[wrong] + generator.integers(1, CLASSES, len(wrong))) % CLASSES
    return found


@cache
def _digits() -> Pair:
    found = problems.digits()
    return (
        np.concatenate([found.train_features, found.test_features]),
        np.concatenate([found.train_labels, found.test_labels]),
    )


@cache
def _images() -> Pair:
    found = problems.mnist_subset()
    features = np.concatenate([found.train_features, found.test_features])
    labels = np.concatenate([found.train_labels, found.test_labels])
    return features.reshape(-1, 28, 28, 1), labels


@cache
def _series() -> Pair:
    found = problems.m3("monthly", lags=12)
    return (
        np.concatenate([found.train_features, found.test_features]),
        np.concatenate([found.train_targets, found.test_targets]),
    )


@cache
def _words(n_words: int, length: int) -> tuple[Pair, int]:
    corpus = problems.shakespeare_words(n_words=n_words, genres=GENRES)
    return problems.windows(corpus.train, length), len(corpus.vocabulary)


@cache
def _characters(length: int) -> tuple[Pair, int]:
    corpus = problems.shakespeare_characters(genres=GENRES)
    return problems.windows(corpus.train, length), len(corpus.vocabulary)


def digits(noise: float, widths: tuple[int, ...], count: int, rest: int, seed: int) -> Material:
    """Handwritten digits, a share of whose training labels is wrong."""
    train, test = dealt(_digits(), count, rest, seed)
    train = (train[0], mislabelled(train[1], noise, seed))
    text = f"handwritten digits, {noise:.0%} of the labels wrong"
    return Material(text, problems.MLP(widths, CLASSES), problems.classification, train, test)


def images(noise: float, count: int, rest: int, seed: int) -> Material:
    """5,000 digits of MNIST, a share of whose training labels is wrong."""
    train, test = dealt(_images(), count, rest, seed)
    train = (train[0], mislabelled(train[1], noise, seed))
    text = f"digits of MNIST, {noise:.0%} of the labels wrong"
    return Material(text, problems.LeNet(), problems.classification, train, test)


def series(widths: tuple[int, ...], count: int, rest: int, seed: int) -> Material:
    """Windows of 12 months of M3, and the month that follows."""
    pairs = dealt(_series(), count, rest, seed)
    return Material("M3, monthly", problems.ForecastMLP(widths), problems.regression, *pairs)


def words(n_words: int, width: int, length: int, count: int, rest: int, seed: int) -> Material:
    """Windows of words of Shakespeare's tragedies."""
    rows, size = _words(n_words, length)
    model = problems.WordLSTM(size, width)
    text = f"words of Shakespeare, {length} a row, vocabulary {size}"
    return Material(text, model, problems.language_model, *dealt(rows, count, rest, seed))


def characters(width: int, length: int, count: int, rest: int, seed: int) -> Material:
    """Windows of characters of Shakespeare's tragedies."""
    rows, size = _characters(length)
    model = problems.TinyGPT(size, width, depth=2, heads=2, length=length)
    text = f"characters of Shakespeare, {length} a row"
    return Material(text, model, problems.language_model, *dealt(rows, count, rest, seed))


def tasks() -> Mapping[str, Task]:
    """The tasks by name: three that cost little, then four of the form of the authors' scripts.

    What the scripts of CD-GraB (github.com/GarlGuo/CD-GraB) have is stated where it differs.
    """
    small: dict[str, Any] = {"instances": 20, "tuning_instances": 5}
    dear: dict[str, Any] = {"tuning_instances": 2, "trials": 3}
    dear |= {"orders": ("D-RR", "independent", "CD-GraB")}
    sgd, adam = log_range(0.05, 0.4, 4), log_range(1e-3, 8e-3, 4)
    found = (
        Task("digits", partial(digits, 0.0, (32,)), 8, 32, 4, 512, "SGD", sgd, 30, **small),
        Task("noisy digits", partial(digits, 0.2, (32,)), 8, 32, 4, 512, "SGD", sgd, 30, **small),
        Task("forecast", partial(series, (32, 32)), 8, 32, 8, 2048, "Adam", adam, 20, **small),
        Task(
            "wide forecast",
            partial(series, (64, 64, 64)),
            *(32, 32, 4, 2048, "Adam", log_range(5e-4, 4e-3, 4), 20),
            authors="m = 32 and three layers of 64 as here; M4, weekly",
            **dear,
        ),
        Task(
            "LSTM",
            partial(words, 500, 24, 12),
            *(4, 16, 16, 512, "SGD", log_range(4.0, 32.0, 4), 14),
            authors="m = 4 and 16 rows a unit as here; WikiText-2, step 5, cut to 0.1 every ten",
            **dear,
        ),
        Task(
            "LeNet",
            partial(images, 0.2),
            *(16, 16, 4, 500, "momentum", log_range(0.01, 0.08, 4), 6),
            metric="test_accuracy",
            authors="LeNet and m of 4 to 64 as here; CIFAR-10, 100 epochs, step 0.001",
            **dear,
        ),
        Task(
            "GPT",
            partial(characters, 32, 24),
            *(64, 4, 2, 512, "Adam", log_range(2e-3, 1.6e-2, 4), 10),
            authors="m = 64 and two blocks as here; width 128, WikiText-103, AdamW, step 5e-4",
            **dear,
        ),
    )
    return {task.name: task for task in found}
