"""Verbs and problems under JAX's stricter settings."""

from contextlib import contextmanager

import jax
import numpy as np
import pytest

from asyncjax import problems
from tests.simulation.runs import RUNS, SWEEPS

F = np.random.default_rng(0).normal(size=(12, 3))
T = F.sum(1)
EVERY = RUNS | SWEEPS
del EVERY["epochs by projections"]  # multiplies [1, 4] by [4]


@contextmanager
def strict():
    with jax.numpy_rank_promotion("raise"), jax.transfer_guard("disallow"):
        yield


MAKERS = {
    "logistic": lambda: problems.logistic(F, np.sign(T), n_workers=3, l2=0.1),
    "least_squares": lambda: problems.least_squares(F, T, n_workers=3),
    "quadratic": lambda: problems.quadratic(np.ones((2, 3)), np.ones((2, 3)), noise=0.1),
    "from_gradient": lambda: problems.from_gradient(np.ones(3), lambda x, w, j, key: (x.sum(), x)),
    "from_loss": lambda: problems.from_loss(
        np.zeros(3), lambda x, batch, key: (batch[0] @ x - batch[1]) ** 2, (F, T), n_workers=3
    ),
    "local_steps": lambda: problems.local_steps(
        problems.least_squares(F, T, n_workers=3), n_steps=2, step_size=0.1
    ),
    "adversarial": lambda: problems.adversarial(problems.least_squares(F, T, n_workers=3), [1]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_problems_are_made(name):
    with strict():
        problem = MAKERS[name]()
    assert problem.n_workers in (2, 3, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_verbs_run(name):
    with strict():
        repr(jax.block_until_ready(EVERY[name]()))


@pytest.mark.slow
def test_stricter_guards_are_obeyed():
    with jax.transfer_guard("disallow_explicit"), pytest.raises(Exception, match="Disallowed"):
        problems.logistic(F, np.sign(T), n_workers=3)
