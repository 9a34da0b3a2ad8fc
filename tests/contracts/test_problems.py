"""Every registered problem keeps the contract of `Problem`."""

import functools

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from tests.registries.problems import REGISTRY

NAMES = list(REGISTRY)
HONEST = [name for name in NAMES if "local_steps" not in name and name != "adversarial"]
WORKERS, JOBS, KEYS = 2, 12, 100  # in 12 jobs of two rows a shard of 3 or 4 is gone through evenly
LANES = [np.ravel(axis) for axis in np.indices((WORKERS, JOBS, KEYS))]


@functools.cache
def example(name):
    """One problem for all tests, so that its programs compile once."""
    return REGISTRY[name]()


def keys_of(seed):
    return jax.random.split(jax.random.key(seed), LANES[0].size)


def shifted(problem):
    """A model in general position, not the first one."""
    return jax.tree.map(lambda leaf: leaf + 0.1 * jnp.cos(3.0 * leaf + 1.0), problem.params)


@functools.cache
def compiled():
    """The gradients of many jobs at once, of one job, and how a model is judged."""

    def flat(problem, params, worker, job, key):
        loss, grads = problem.gradient(params, worker, job, key)
        return loss, jax.flatten_util.ravel_pytree(grads)[0]

    def judged(problem, params):
        objective, slope = jax.value_and_grad(problem.objective)(params)
        return objective, jax.flatten_util.ravel_pytree(slope)[0], problem.metrics(params)

    return jax.jit(jax.vmap(flat, (None, None, 0, 0, 0))), jax.jit(flat), jax.jit(judged)


@functools.cache
def jobs(name):
    """Losses [workers, jobs, keys] and gradients [workers, jobs, keys, d]."""
    problem = example(name)
    losses, grads = compiled()[0](problem, shifted(problem), *LANES[:2], keys_of(0))
    shape = (WORKERS, JOBS, KEYS)
    return np.reshape(losses, shape), np.reshape(grads, (*shape, -1))


@pytest.mark.parametrize("name", HONEST)
def test_jobs_have_the_gradient_of_the_objective_on_average(name):
    """The mean over workers, with what the draws of keys leave open.

    Local steps have gradients of their own, and adversaries send what they like.
    """
    _, grads = jobs(name)
    _, slope, _ = compiled()[2](example(name), shifted(example(name)))
    means = grads.mean((0, 1))  # of every set of keys, which are independent
    error = means.std(0) / np.sqrt(KEYS - 1)
    np.testing.assert_array_less(np.abs(means.mean(0) - slope), 5.0 * error + 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_like_the_model_and_everything_is_finite(name):
    problem = example(name)
    loss, grads = jax.eval_shape(problem.gradient, problem.params, 0, 0, jax.random.key(0))
    assert loss.shape == ()
    assert jnp.issubdtype(loss.dtype, jnp.floating)
    kinds = [jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (grads, problem.params)]
    assert kinds[0] == kinds[1]
    objective, _, metrics = compiled()[2](problem, shifted(problem))
    assert all(np.isfinite(value).all() for value in (*jobs(name), objective, *metrics.values()))
    assert objective.shape == ()
    assert set(metrics) == {metric for metric, _ in problem.metrics_of}
    assert all(value.shape == () for value in metrics.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_another_form_is_refused(name):
    """By the gradient, the objective and the metrics, before anything is computed."""
    problem = example(name)
    larger = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype), problem.params
    )
    for function in (
        lambda params: problem.gradient(params, 0, 0, jax.random.key(0)),
        problem.objective,
        problem.metrics,
    ):
        with pytest.raises(ValueError, match="params must have the shapes of the problem's params"):
            jax.eval_shape(function, larger)


@pytest.mark.parametrize("name", NAMES)
def test_one_job_is_what_it_is_among_many(name):
    problem, (losses, grads) = example(name), jobs(name)
    for worker, job, number in ((0, 0, 0), (1, 5, 7)):
        key = keys_of(0)[np.ravel_multi_index((worker, job, number), losses.shape)]
        loss, grad = compiled()[1](problem, shifted(problem), worker, job, key)
        np.testing.assert_allclose(loss, losses[worker, job, number], rtol=1e-5)
        np.testing.assert_allclose(grad, grads[worker, job, number], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_keys_give_the_same_and_only_keys_are_random(name):
    problem, (losses, grads) = example(name), jobs(name)
    again = compiled()[0](problem, shifted(problem), *LANES[:2], keys_of(0))
    np.testing.assert_array_equal(again[0], losses.ravel())
    other = compiled()[0](problem, shifted(problem), *LANES[:2], keys_of(1))[1]
    differs = bool((np.reshape(other, grads.shape) != grads).any())
    assert differs == bool((grads != grads[:, :, :1]).any())


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_is_a_pytree_and_equal_ones_share_a_compilation(name):
    problem, again = example(name), REGISTRY[name]()
    leaves, structure = jax.tree.flatten(problem)
    assert structure == jax.tree.structure(again)
    assert hash(structure) == hash(jax.tree.structure(again))
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    for one, other in zip(leaves, jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    rebuilt = jax.tree.unflatten(structure, leaves)
    objective, *_ = compiled()[2](rebuilt, shifted(problem))
    before = compiled()[2]._cache_size()
    assert compiled()[2](again, shifted(problem))[0] == objective
    assert compiled()[2]._cache_size() == before
    assert rebuilt.n_workers == WORKERS
