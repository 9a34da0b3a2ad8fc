"""Every problem of the room by name, each as a small example that the contract tests run.

REGISTRY[name]()  ->  Problem
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from asyncjax.problems.batches import cyclic, uniform, without_replacement
from asyncjax.problems.losses import (
    classification,
    language_model,
    least_squares,
    logistic,
    regression,
)
from asyncjax.problems.networks import MLP, ForecastMLP, WordLSTM
from asyncjax.problems.problem import Problem, from_gradient
from asyncjax.problems.pseudo_gradients import adversarial, local_steps
from asyncjax.problems.quadratic import quadratic

_WORKERS = 2
_FEATURES = np.cos(np.arange(21.0, dtype=np.float32)).reshape(7, 3)  # shards of 4 and 3 rows
_VALUES = np.sin(np.arange(7.0, dtype=np.float32))
_LABELS = np.arange(7) % 2
_LOCAL = optax.adam(0.1)  # equal problems have the same optimizer
_TOKENS, _LSTM = np.arange(28).reshape(7, 4) % 3, WordLSTM(vocabulary=3, width=2)


def _own(params: jax.Array, worker: Any, job: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.value_and_grad(lambda x: ((x - worker) ** 2).sum())(params)


def _own_mean(params: jax.Array) -> jax.Array:
    return (params**2 - params + 0.5).sum()


def _network(make: Any, model: Any, first: np.ndarray, second: np.ndarray, **more: Any) -> Problem:
    test, key = (first[:2], second[:2]), jax.random.key(0)
    return make(model, first, second, n_workers=_WORKERS, test=test, key=key, **more)


REGISTRY: dict[str, Callable[[], Problem]] = {
    "from_gradient": lambda: from_gradient(
        np.ones(3, np.float32), _own, objective=_own_mean, n_workers=_WORKERS
    ),
    "quadratic": lambda: quadratic(_FEATURES[:2] ** 2, _FEATURES[2:4]),
    "quadratic_noise": lambda: quadratic(_FEATURES[:2] ** 2, _FEATURES[2:4], noise=0.1),
    "least_squares": lambda: least_squares(_FEATURES, _VALUES, n_workers=_WORKERS),
    "least_squares_cyclic": lambda: least_squares(
        _FEATURES, _VALUES, n_workers=_WORKERS, batch=cyclic(2)
    ),
    "logistic": lambda: logistic(_FEATURES, _LABELS, n_workers=_WORKERS, l2=0.1, nonconvex=0.1),
    "logistic_uniform": lambda: logistic(
        _FEATURES, _LABELS, n_workers=_WORKERS, l2=0.1, batch=uniform(2)
    ),
    "classification": lambda: _network(
        classification, MLP(hidden=(2,), classes=2), _FEATURES, _LABELS
    ),
    "regression": lambda: _network(
        regression, ForecastMLP(widths=(2,)), _FEATURES, _VALUES, l2=0.1
    ),
    "language_model": lambda: _network(
        language_model, _LSTM, _TOKENS, _TOKENS[::-1], batch=without_replacement(2)
    ),
    "adversarial": lambda: adversarial(quadratic(_FEATURES[:2] ** 2, _FEATURES[2:4]), [1]),
    "local_steps": lambda: local_steps(
        quadratic(_FEATURES[:2] ** 2, _FEATURES[2:4]), n_steps=2, step_size=0.1
    ),
    "local_steps_adam": lambda: local_steps(
        quadratic(_FEATURES[:2] ** 2, _FEATURES[2:4]), n_steps=[2, 3], optimizer=_LOCAL
    ),
}
