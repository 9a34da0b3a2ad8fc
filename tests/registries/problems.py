"""Every problem of the room by name, each as a small example that the contract tests run.

REGISTRY[name]()  ->  Problem
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from asyncjax import problems

_WORKERS = 2
_FEATURES = np.cos(np.arange(21.0, dtype=np.float32)).reshape(7, 3)  # shards of 4 and 3 rows
_VALUES = np.sin(np.arange(7.0, dtype=np.float32))
_LABELS = np.arange(7) % 2
_LOCAL = optax.adam(0.1)  # equal problems have the same optimizer
_TOKENS, _LSTM = np.arange(28).reshape(7, 4) % 3, problems.WordLSTM(vocabulary=3, width=2)


def _own(params: jax.Array, worker: Any, job: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(lambda x: ((x - worker) ** 2).sum())(params)


def _own_mean(params: jax.Array) -> jax.Array:
    return (params**2 - params + 0.5).sum()


def _quadratic(**more: Any) -> problems.Problem:
    return problems.quadratic(_FEATURES[:2] ** 2, _FEATURES[2:4], **more)


def _linear(make: Any, targets: np.ndarray, **more: Any) -> problems.Problem:
    return make(_FEATURES, targets, n_workers=_WORKERS, **more)


def _network(
    make: Any, model: Any, first: np.ndarray, second: np.ndarray, **more: Any
) -> problems.Problem:
    test, key = (first[:2], second[:2]), jax.random.key(0)
    return make(model, first, second, n_workers=_WORKERS, test=test, key=key, **more)


_least_squares = partial(_linear, problems.least_squares, _VALUES)
_logistic = partial(_linear, problems.logistic, _LABELS, l2=0.1)
_MLP, _FORECAST = problems.MLP(hidden=(2,), classes=2), problems.ForecastMLP(widths=(2,))
_language = partial(_network, problems.language_model, _LSTM, _TOKENS, _TOKENS[::-1])
REGISTRY: dict[str, Callable[[], problems.Problem]] = {
    "from_gradient": lambda: problems.from_gradient(
        np.ones(3, np.float32), _own, objective=_own_mean, n_workers=_WORKERS
    ),
    "quadratic": _quadratic,
    "quadratic_noise": partial(_quadratic, noise=0.1),
    "least_squares": _least_squares,
    "least_squares_cyclic": partial(_least_squares, batch=problems.cyclic(2)),
    "logistic": partial(_logistic, nonconvex=0.1),
    "logistic_uniform": partial(_logistic, batch=problems.uniform(2)),
    "classification": partial(_network, problems.classification, _MLP, _FEATURES, _LABELS),
    "regression": partial(_network, problems.regression, _FORECAST, _FEATURES, _VALUES, l2=0.1),
    "language_model": partial(_language, batch=problems.without_replacement(2)),
    "adversarial": lambda: problems.adversarial(_quadratic(), [1]),
    "local_steps": lambda: problems.local_steps(_quadratic(), n_steps=2, step_size=0.1),
    "local_steps_adam": lambda: problems.local_steps(
        _quadratic(), n_steps=[2, 3], optimizer=_LOCAL
    ),
}
