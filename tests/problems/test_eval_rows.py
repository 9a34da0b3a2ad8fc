"""An objective that looks at some of the rows is the weighted mean over those, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, traces

KEY = jax.random.key(0)


def classified(judge, l2=0.0):
    """Nine rows, of which worker 0 holds two and worker 1 seven."""
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((9, 3)), np.arange(9) % 2
    shards = problems.Shards(
        np.array([[3, 5, 0, 0, 0, 0, 0], [0, 1, 2, 4, 6, 7, 8]]), np.array([2, 7])
    )
    model = problems.MLP(hidden=(4,), classes=2)
    sharing = {"n_workers": 2, "shards": shards, "batch": problems.cyclic(2)}
    return problems.classification(
        model, features, labels, key=KEY, eval_rows=judge, l2=l2, **sharing
    ), (model, features, labels, shards)


def at(problem, params):
    assert problem.objective is not None
    return float(problem.objective(params))


@pytest.mark.parametrize("judge", [1, 4, 9])
def test_the_loss_is_the_mean_over_the_rows_weighted_as_the_workers_weigh_them(judge, float64):
    problem, (model, features, labels, shards) = classified(judge, l2=0.1)
    counts = np.zeros(9)
    for rows, size in zip(np.asarray(shards.rows), np.asarray(shards.size), strict=True):
        counts[rows[:size]] = 1 / (2 * size)
    rows = [number * 9 // judge for number in range(judge)]
    scores = np.asarray(model.apply({"params": problem.params}, features[rows]))
    losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(judge), labels[rows]]
    squares = sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(problem.params))
    expected = losses @ counts[rows] / counts[rows].sum() + 0.05 * squares
    assert at(problem, problem.params) == pytest.approx(expected, rel=1e-6)


def test_all_rows_are_the_objective_itself():
    whole, given = classified(None)[0], classified(9)[0]
    assert at(whole, whole.params) == pytest.approx(at(given, whole.params), rel=1e-6)


@pytest.mark.slow
def test_what_judges_a_model_does_not_move_it():
    trace = traces.asynchronous(clocks.exponential([1.0, 2.0]), n_updates=30, key=KEY)
    whole, some = (
        simulation.replay(classified(judge)[0], trace, optax.sgd(0.1)) for judge in (None, 3)
    )
    for one, other in zip(jax.tree.leaves(whole.params), jax.tree.leaves(some.params), strict=True):
        np.testing.assert_array_equal(one, other)
    assert bool(jnp.any(whole.records.loss != some.records.loss))
