"""Rows of public data of two classes or ten digits, as logistic regression takes them."""

from functools import cache

import numpy as np

from asyncjax import problems


@cache
def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised features with a column of ones, and labels: those of ten digits, or of two.

    Raises:
        ValueError: The data are not known.
    """
    loaders = {"breast cancer": problems.breast_cancer, "digits": problems.digits}
    if name not in loaders:
        raise ValueError(f"data must be one of {', '.join(loaders)}, got {name!r}")
    data = loaders[name]()
    features = np.asarray(data.train_features, np.float64)
    spread = features.std(0)
    features = (features - features.mean(0)) / np.where(spread > 0, spread, 1.0)
    ones = np.ones((len(features), 1))
    return np.hstack([features, ones]), np.asarray(data.train_labels)
