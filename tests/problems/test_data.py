"""Digits that come with scikit-learn, and windows of a text."""

import sys

import numpy as np
import pytest

from asyncjax import problems


def test_digits():
    data, again, other = problems.digits(), problems.digits(), problems.digits(seed=1)
    assert data.train_features.shape[1] == data.test_features.shape[1] == 64
    assert data.train_features.dtype == data.test_features.dtype == np.float32
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32
    assert (data.train_features.min(), data.train_features.max()) == (0.0, 1.0)
    train, test = np.bincount(data.train_labels), np.bincount(data.test_labels)
    np.testing.assert_array_equal(test, np.round(0.2 * (train + test)))
    for left, right in zip(data, again, strict=True):
        np.testing.assert_array_equal(left, right)
    assert (data.test_features != other.test_features).any()
    half = problems.digits(test_share=0.5)
    assert abs(half.test_labels.size - half.train_labels.size) <= 10


def test_split_rows_are_a_partition_in_the_original_order():
    from sklearn.datasets import load_digits

    data = problems.digits()
    source = [row.tobytes() for row in (load_digits().data / 16).astype(np.float32)]
    place = {row: number for number, row in enumerate(source)}
    assert len(place) == 1797  # no two images are the same
    train = [place[row.tobytes()] for row in data.train_features]
    test = [place[row.tobytes()] for row in data.test_features]
    assert train == sorted(train)
    assert test == sorted(test)
    assert sorted(train + test) == list(range(1797))


def test_digits_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[data\] @ git'):
        problems.digits()


@pytest.mark.parametrize(
    ("n", "length", "rows"), [(7, 2, 3), (8, 2, 3), (9, 2, 4), (3, 2, 1), (2, 1, 1)]
)
def test_windows(n, length, rows):
    inputs, targets = problems.windows(np.arange(n, dtype=np.int64) + 5, length)
    assert inputs.dtype == targets.dtype == np.int32
    assert inputs.shape == targets.shape == (rows, length)
    np.testing.assert_array_equal(inputs.ravel(), np.arange(rows * length) + 5)
    np.testing.assert_array_equal(targets, inputs + 1)
