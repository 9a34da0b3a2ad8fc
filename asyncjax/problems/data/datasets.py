"""Real data that come with scikit-learn: no download, read on the host.

`digits`: 1797 images of 8 x 8, 10 classes; `breast_cancer`: 569 rows of 30 columns, 2 classes.
The split into training and test rows is stratified, that is made within each class, and depends
on an integer seed alone. Rows keep the order they have in the source, so contiguous shards are
those of the source.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import install_line, real, whole


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
        The data set.

    Raises:
        ImportError: If scikit-learn is not installed; it says what to install.
        TypeError: If `seed` is no integer.
        ValueError: If `test_share` is not between 0 and 1 or leaves a part without rows, or `seed`
            is negative.

    Example:
        >>> from asyncjax import problems
        >>> data = problems.digits()
        >>> data.train_features.shape, data.test_features.shape
        ((1438, 64), (359, 64))

    Reference:
        UCI Machine Learning Repository, Optical Recognition of Handwritten Digits (test part).
    """
    check_split(test_share, seed)
    bunch = _scikit_learn().load_digits()
    features = np.asarray(bunch.data, np.float32) / np.float32(16.0)
    return split_rows(features, bunch.target, test_share, seed)


def breast_cancer(*, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Returns the breast cancer data: 569 rows of 30 columns, labels 0 (malignant) and 1.

    Each column is shifted and scaled to mean 0 and standard deviation 1 over the training rows.

    Args:
        test_share: Share of each class that goes to the test rows, between 0 and 1.
        seed: Chooses which rows do.

    Returns:
        The data set.

    Raises:
        ImportError: If scikit-learn is not installed; it says what to install.
        TypeError: If `seed` is no integer.
        ValueError: If `test_share` is not between 0 and 1 or leaves a part without rows, or `seed`
            is negative.

    Example:
        >>> from asyncjax import problems
        >>> data = problems.breast_cancer()
        >>> data.train_features.shape, data.test_features.shape
        ((456, 30), (113, 30))

    Reference:
        UCI Machine Learning Repository, Breast Cancer Wisconsin (Diagnostic).
    """
    check_split(test_share, seed)
    bunch = _scikit_learn().load_breast_cancer()
    raw = split_rows(np.asarray(bunch.data, np.float64), bunch.target, test_share, seed)
    return standardised(raw)


def _scikit_learn() -> ModuleType:
    """Returns `sklearn.datasets`, imported only when data are asked for."""
    try:
        import sklearn.datasets
    except ImportError as error:
        raise ImportError(
            f"This data set comes with scikit-learn: {install_line('data')}"
        ) from error
    return sklearn.datasets


def check_split(test_share: float, seed: int) -> tuple[float, int]:
    """Returns what a split depends on, checked before any data are read."""
    return real("test_share", test_share, above=0, below=1), whole("seed", seed, 0)


def held_out_rows(labels: np.ndarray, test_share: float, seed: int) -> np.ndarray:
    """Returns bool[rows]: which rows are for the test, drawn within each class."""
    test_share, seed = check_split(test_share, seed)
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


def standardised(raw: Dataset) -> Dataset:
    """Returns columns of mean 0 and standard deviation 1 over the training rows, in float32."""
    mean, deviation = raw.train_features.mean(0), raw.train_features.std(0)
    if not (deviation > 0).all():
        raise ValueError(
            "test_share must leave training rows whose columns vary, got one that leaves "
            f"{len(raw.train_features)} rows, all of one value in column {np.argmin(deviation)}"
        )
    return raw._replace(
        train_features=((raw.train_features - mean) / deviation).astype(np.float32),
        test_features=((raw.test_features - mean) / deviation).astype(np.float32),
    )
