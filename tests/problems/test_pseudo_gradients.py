"""Local steps with an optimizer of the worker's own, and how many of them a worker takes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import problems
from tests.oracles.problems import quadratic_data

KEY, N = jax.random.key(0), 3
START = np.array([1.0, -2.0, 0.5])


def quadratic():
    return problems.quadratic(*quadratic_data(N, 3), start=START)


def numbered():
    """A problem whose gradient says which job it is of."""
    return problems.from_gradient(
        np.zeros(8), lambda x, worker, job, key: (job * 1.0, jax.nn.one_hot(job, 8))
    )


def by_hand(problem, optimizer, worker, count):
    """The local steps of a worker's job 0, in Python."""
    local, state, losses = jnp.asarray(START), optimizer.init(START), []
    for h in range(count):
        loss, grads = problem.gradient(local, worker, h, jax.random.fold_in(KEY, h))
        updates, state = optimizer.update(grads, state, local)
        local = optax.apply_updates(local, updates)
        losses.append(loss)
    return np.mean(losses), START - local, state


@pytest.mark.parametrize("keep_state", [False, True])
def test_a_job_delivers_the_way_of_its_local_steps(float64, keep_state):
    problem, optimizer = quadratic(), optax.adamw(0.1)
    local = problems.local_steps(problem, n_steps=4, optimizer=optimizer, keep_state=keep_state)
    loss, way, *state = local.gradient(START, 2, 0, KEY, local.worker_state())
    expected = by_hand(problem, optimizer, 2, 4)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-12)
    np.testing.assert_allclose(way, expected[1], rtol=0, atol=1e-12)
    assert len(state) == keep_state
    for leaf, other in zip(jax.tree.leaves(state), jax.tree.leaves(expected[2]), strict=False):
        np.testing.assert_allclose(leaf, other, rtol=1e-12)


def test_steps_of_sgd_go_as_far_as_their_mean_gradient_says(float64):
    by_size = problems.local_steps(quadratic(), n_steps=5, step_size=0.1)
    by_rule = problems.local_steps(quadratic(), n_steps=5, optimizer=optax.sgd(0.1))
    loss, mean = by_size.gradient(START, 1, 0, KEY)
    own_loss, way = by_rule.gradient(START, 1, 0, KEY)
    np.testing.assert_allclose(way, 0.5 * mean, rtol=1e-12)
    np.testing.assert_allclose(own_loss, loss, rtol=1e-12)


@pytest.mark.parametrize("how", [{"step_size": 0.1}, {"optimizer": optax.sgd(1.0)}])
def test_every_worker_may_have_its_own_number_of_steps(how):
    local = problems.local_steps(numbered(), n_steps=[2, 3], **how)
    assert local.n_workers == 2
    for worker, count in ((0, 2), (1, 3)):
        jobs = []
        for job in range(2):
            loss, grads = local.gradient(local.params, worker, job, KEY)
            taken = np.flatnonzero(grads)
            share = 1 / count if "step_size" in how else 1.0
            np.testing.assert_allclose(np.abs(grads)[taken], share, rtol=1e-6)
            assert float(loss) == pytest.approx(taken.mean())
            jobs += taken.tolist()
        assert jobs == list(range(2 * count))  # no sample twice, none left out


def test_an_optimizer_is_handed_what_it_asks_for():
    seen = {}

    def update(updates, state, params=None, **extras):
        seen.update(extras)
        arguments = {name: extras[name] for name in ("worker", "job", "key")}
        again = extras["value_fn"](params, **arguments)
        return extras["grad"] * 0 + extras["value"] - again, state

    rule = optax.GradientTransformationExtraArgs(lambda params: (), update)
    local = problems.local_steps(quadratic(), n_steps=2, optimizer=rule)
    _, way = local.gradient(START, 1, 0, KEY)
    assert set(seen) == {"value", "grad", "value_fn", "worker", "job", "key"}
    np.testing.assert_array_equal(way, 0.0)  # the same loss, at the same model
    searching = problems.local_steps(quadratic(), n_steps=3, optimizer=optax.lbfgs())
    assert np.isfinite(searching.gradient(START, 0, 0, KEY)[1]).all()


def test_workers_that_keep_nothing_take_no_state():
    problem = quadratic()
    assert problem.worker_state() is None
    with pytest.raises(ValueError, match="state must be None"):
        problem.gradient(START, 0, 0, KEY, 1)


def test_balanced_steps_let_all_workers_finish_together():
    times = np.array([0.6, 0.9, 1.2, 3.3, 99.0])
    counts = problems.balanced_steps(times, 50)
    assert counts.tolist() == [50, 33, 25, 9, 1]
    ends = (times * counts)[:-1]  # the last one takes longer for one step
    assert (ends <= 30.0 + 1e-9).all()
    assert (ends > 30.0 - times[:-1]).all()  # one more would be too many
    assert problems.balanced_steps([0.7, 2.1], 3).tolist() == [3, 1]  # 3 * 0.7 / 2.1 < 1
