"""Public data as experiments take them; digits and a small network, few classes a worker."""

from functools import cache, lru_cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import problems
from asyncjax.problems.data import held_out_rows
from asyncjax.study.protocol import Seeds
from experiments.data import breast_cancer

Rows = tuple[jax.Array, np.ndarray]  # features and labels


@lru_cache
def split_digits(validation: float = 0.0) -> dict[str, Rows]:
    """The rows by what they are for: "training", "test" and, if asked for, "validation".

    Args:
        validation: Share of each class of the training rows that becomes validation rows; 0 for
            none. The test rows are the same in any case.
    """
    data = problems.digits()
    features, labels = jnp.asarray(data.train_features), np.asarray(data.train_labels)
    rows = {"test": (jnp.asarray(data.test_features), data.test_labels)}
    if validation:
        taken = held_out_rows(labels, validation, seed=0)
        rows["validation"] = features[taken], labels[taken]
        features, labels = features[~taken], labels[~taken]
    return {"training": (features, labels), **rows}


def digits_problem(
    instance: Seeds,
    n_workers: int,
    *,
    batch: int,
    hidden: int,
    concentration: float,
    validation: float = 0.0,
    judged_on: Literal["test", "validation"] = "test",
) -> problems.Problem:
    """Scikit-learn's digits; an instance draws the shares of the workers and the first model.

    Args:
        instance: Its seeds.
        n_workers: Number of workers.
        batch: Rows of a gradient.
        hidden: Units of the hidden layer.
        concentration: Of the Dirichlet law of labels over workers; small is skewed.
        validation: Share of the training rows that nobody trains on, see `split_digits`.
        judged_on: The rows of the metric `test_accuracy`.
    """
    rows = split_digits(validation)
    features, labels = rows["training"]
    shards = problems.dirichlet(
        labels,
        n_workers,
        alpha=concentration,
        key=jax.random.key(instance.data),
        minimum=batch,
    )
    return problems.classification(
        problems.MLP(hidden=(hidden,), classes=10),
        features,
        labels,
        n_workers=n_workers,
        shards=shards,
        batch=problems.uniform(batch),
        test=rows[judged_on],
        key=jax.random.key(instance.model),
    )


@cache
def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised features with a column of ones, and labels: those of ten digits, or of two.

    Raises:
        ValueError: The data are not known.
    """
    loaders = {"breast cancer": breast_cancer, "digits": problems.digits}
    if name not in loaders:
        raise ValueError(f"data must be one of {', '.join(loaders)}, got {name!r}")
    data = loaders[name]()
    features = np.asarray(data.train_features, np.float64)
    spread = features.std(0)
    features = (features - features.mean(0)) / np.where(spread > 0, spread, 1.0)
    ones = np.ones((len(features), 1))
    return np.hstack([features, ones]), np.asarray(data.train_labels)
