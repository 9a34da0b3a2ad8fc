"""Handwritten digits and a small network, every worker with few of the classes."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import problems
from experiments.common.protocol import Instance


@lru_cache
def _digits() -> tuple[jax.Array, np.ndarray, tuple[Any, Any]]:
    data = problems.digits()
    test = (jnp.asarray(data.test_features), data.test_labels)
    return jnp.asarray(data.train_features), np.asarray(data.train_labels), test


def digits_problem(
    instance: Instance, n_workers: int, *, batch: int, hidden: int, concentration: float
) -> problems.Problem:
    """Scikit-learn's digits; an instance draws the shares of the workers and the first model.

    Args:
        instance: Its seeds.
        n_workers: Number of workers.
        batch: Rows of a gradient.
        hidden: Units of the hidden layer.
        concentration: Of the Dirichlet law of labels over workers; small is skewed.
    """
    features, labels, test = _digits()
    shards = problems.dirichlet(
        labels,
        n_workers,
        concentration=concentration,
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
        test=test,
        key=jax.random.key(instance.model),
    )
