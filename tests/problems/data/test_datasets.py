"""Data sets that come with scikit-learn."""

import sys

import numpy as np
import pytest

from asyncjax import problems


def test_digits():
    data = problems.digits()
    assert data.train_features.shape[0] + data.test_features.shape[0] == 1797
    assert data.train_features.shape[1] == data.test_features.shape[1] == 64
    assert data.train_features.dtype == data.test_features.dtype == np.float32
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32
    assert data.train_features.min() == 0.0
    assert data.train_features.max() == 1.0
    train, test = np.bincount(data.train_labels), np.bincount(data.test_labels)
    np.testing.assert_array_equal(test, np.round(0.2 * (train + test)))


@pytest.mark.parametrize("load", [problems.digits, problems.breast_cancer])
def test_splits_depend_on_the_seed_alone(load):
    first, again, other = load(), load(), load(seed=1)
    for left, right in zip(first, again, strict=True):
        np.testing.assert_array_equal(left, right)
    assert (first.test_features != other.test_features).any()
    half = load(test_share=0.5)
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


def test_breast_cancer():
    data = problems.breast_cancer()
    assert data.train_features.shape[0] + data.test_features.shape[0] == 569
    assert data.train_features.dtype == data.test_features.dtype == np.float32
    np.testing.assert_allclose(data.train_features.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(data.train_features.std(0), 1.0, atol=1e-5)
    assert set(data.train_labels) == set(data.test_labels) == {0, 1}
    share = data.test_labels.mean() - data.train_labels.mean()
    assert abs(share) < 0.01
    problem = problems.logistic(data.train_features, data.train_labels, n_workers=4)
    np.testing.assert_allclose(problem.objective(problem.params), np.log(2.0), rtol=1e-5)


@pytest.mark.parametrize("load", [problems.digits, problems.breast_cancer])
def test_loaders_say_what_to_install(load, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[data\] @ git'):
        load()
