r"""Data that a problem can be tried on at once, read on the host: images, and windows of a text."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import extra, real, whole, within
from asyncjax.problems.arrays import MOST_ROWS


class Dataset(NamedTuple):
    """Training and test rows, as NumPy arrays on the host."""

    train_features: np.ndarray  # float32[train rows, d]
    train_labels: np.ndarray  # int32[train rows]
    test_features: np.ndarray  # float32[test rows, d]
    test_labels: np.ndarray  # int32[test rows]


def digits(*, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Returns the handwritten digits: 1797 rows of 64 pixels in 0..1, labels 0..9.

    For a convolutional network reshape the features to [rows, 8, 8, 1].

    Args:
        test_share: Share of each class that goes to the test rows, between 0 and 1.
        seed: Chooses which rows do.

    Returns:
        The data set; rows keep the order they have in scikit-learn, which brings them.

    Example:
        >>> from asyncjax import problems
        >>> data = problems.digits()
        >>> data.train_features.shape, data.test_features.shape
        ((1438, 64), (359, 64))

    Reference:
        UCI Machine Learning Repository, Optical Recognition of Handwritten Digits (test part).
    """
    test_share = real("test_share", test_share, above=0, below=1)
    seed = whole("seed", seed, 0)
    bunch = extra("sklearn.datasets", "data").load_digits()
    features = np.asarray(bunch.data, np.float32) / np.float32(16.0)
    return split_rows(features, bunch.target, test_share, seed)


def held_out_rows(labels: np.ndarray, test_share: float, seed: int) -> np.ndarray:
    """Returns bool[rows]: which rows are for the test, drawn within each class."""
    generator = np.random.default_rng(seed)
    in_test = np.zeros(labels.size, bool)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        in_test[rows[: round(test_share * rows.size)]] = True
    if in_test.all() or not in_test.any():
        part = "training" if in_test.all() else "test"
        raise ValueError(f"test_share must leave {part} rows, got {test_share}, which leaves none")
    return in_test


def split_rows(features: np.ndarray, labels: Any, test_share: float, seed: int) -> Dataset:
    """Returns a split made within each class, rows in their original order."""
    labels = np.asarray(labels, np.int32)
    in_test = held_out_rows(labels, test_share, seed)
    return Dataset(features[~in_test], labels[~in_test], features[in_test], labels[in_test])


def windows(tokens: Any, length: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns a stream cut into rows, and the same rows one token later.

    .. math:: a_{rt} = w_{rT + t}, \qquad b_{rt} = w_{rT + t + 1}, \qquad 0 \le t < T

    Args:
        tokens: int[tokens], 0 .. 2^31 - 1, at least `length + 1` of them; what fills no row at
            the end is left out.
        length: T, tokens in a row, at least 1.

    Returns:
        Inputs and targets, int32[rows, T] each, in the order of the text: contiguous shards hold
        stretches of it.

    Example:
        >>> from asyncjax import problems
        >>> inputs, targets = problems.windows([5, 6, 7, 8, 9, 1], 2)
        >>> inputs.tolist(), targets.tolist()
        ([[5, 6], [7, 8]], [[6, 7], [8, 9]])
    """
    length = whole("length", length)
    tokens = np.asarray(within("tokens", tokens, least=0, most=MOST_ROWS, integer=True))
    if tokens.ndim != 1 or tokens.size <= length:
        raise ValueError(
            f"tokens must be a stream of at least length + 1 = {length + 1}, "
            f"got shape {tokens.shape}"
        )
    shape = (tokens.size - 1) // length, length
    stream = tokens[: shape[0] * length + 1].astype(np.int32)
    return stream[:-1].reshape(shape), stream[1:].reshape(shape)
