"""The problem as a pytree: gradients of one's own, shared compilations, vmap; and its units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from asyncjax.problems import units
from asyncjax.problems.batches import Cyclic

KEY = jax.random.key(0)


def own_gradient(params, worker, job, key):
    loss, grads = jax.value_and_grad(lambda x: jnp.sum((x["a"] - worker) ** 2))(params)
    return loss + job, grads


def test_from_gradient_passes_everything_on():
    problem = problems.from_gradient(
        {"a": np.ones(2)}, own_gradient, objective=lambda x: jnp.sum(x["a"]), n_workers=3
    )
    loss, grads = problem.gradient(problem.params, jnp.int32(2), jnp.int32(5), KEY)
    assert float(loss) == 7.0
    np.testing.assert_array_equal(grads["a"], [-2.0, -2.0])
    assert problem.n_workers == 3
    assert problem.objective is not None
    assert float(problem.objective(problem.params)) == 2.0
    assert problem.metrics(problem.params) == {}


def test_without_objective_there_is_none():
    problem = problems.from_gradient({"a": np.ones(2)}, own_gradient)
    assert problem.objective is None
    assert problem.n_workers is None


def test_a_python_number_may_be_the_loss():
    problem = problems.from_gradient(np.ones(2), lambda params, *_: (0.0, params))
    assert problem.gradient(problem.params, 0, 0, KEY)[0] == 0.0


def test_from_gradient_can_be_built_inside_vmap():
    def loss_at(start):
        problem = problems.from_gradient({"a": start}, own_gradient)
        return problem.gradient(problem.params, 0, 0, KEY)[0]

    np.testing.assert_array_equal(jax.vmap(loss_at)(jnp.eye(2) * 3.0), [9.0, 9.0])


def test_batches_fit_the_largest_shard():
    shards = problems.Shards([[0, 1, 2], [3, 3, 3]], [3, 1])  # the largest counts
    problem = problems.least_squares(
        np.eye(4), np.ones(4), n_workers=2, batch=problems.cyclic(3), shards=shards
    )
    assert problem.n_workers == 2


def test_a_rule_of_ones_own_is_a_batch():
    def last(size, capacity, job, key):
        return jnp.array([size - 1]), jnp.ones(1, bool)

    problem = problems.least_squares(np.eye(4), np.arange(4.0), n_workers=2, batch=last)
    assert problem.gradient(problem.params, 1, 0, KEY)[0] == 4.5  # half of 3^2


def make_logistic(seed):
    values = np.random.default_rng(seed).normal(size=(12, 4))
    return problems.logistic(
        values, values[:, 0] > 0, n_workers=3, l2=0.1, batch=problems.cyclic(2), start=np.ones(4)
    )


def test_another_setting_compiles_again():
    features, labels = np.eye(4), [0, 1, 0, 1]
    structures = [
        jax.tree.structure(problems.logistic(features, labels, n_workers=2, **setting))
        for setting in ({}, {"l2": 0.1}, {"l1": 0.1}, {"batch": problems.cyclic(1)}, {})
    ]
    assert structures[0] == structures[4]
    assert len(set(structures)) == 4


def test_data_are_arguments_and_not_constants():
    jaxpr = jax.make_jaxpr(lambda problem: problem.objective(problem.params))(make_logistic(1))
    assert all(np.size(constant) <= 1 for constant in jaxpr.consts)


def test_objective_can_be_an_argument_of_a_compiled_function():
    problem = make_logistic(1)
    evaluate = jax.jit(lambda objective, params: objective(params))
    np.testing.assert_allclose(
        evaluate(problem.objective, problem.params), problem.objective(problem.params), rtol=1e-6
    )


FEATURES = np.random.default_rng(0).standard_normal((7, 2))
TARGETS = FEATURES @ np.ones(2)


def finite_sum(batch=None):
    return problems.least_squares(FEATURES, TARGETS, n_workers=2, batch=batch)


def test_only_a_finite_sum_without_local_steps_has_losses():
    local = problems.local_steps(finite_sum(), n_steps=2, step_size=0.1)
    assert units.has_losses(finite_sum())
    assert not units.has_losses(local)
    assert not units.has_losses(problems.quadratic(np.ones((2, 1)), np.ones((2, 1))))


@pytest.mark.slow
def test_the_gradient_is_that_of_the_loss_of_the_job():
    problem = finite_sum(problems.uniform(3))
    job = (jnp.int32(1), jnp.int32(4), jax.random.key(0))
    loss, gradient = jax.value_and_grad(units.job_loss(problem))(problem.params, *job)
    wanted = problem.gradient(problem.params, *job)
    np.testing.assert_array_equal(loss, wanted[0])
    np.testing.assert_array_equal(gradient, wanted[1])


def test_units_are_rows_of_a_whole_shard_and_jobs_of_a_cyclic_one():
    assert units.in_fixed_units(finite_sum()).gradient_of.batch == Cyclic(1)
    for problem in (
        finite_sum(problems.cyclic(2)),
        problems.local_steps(finite_sum(problems.cyclic(2)), n_steps=2, step_size=0.1),
        problems.quadratic(np.ones((2, 1)), np.ones((2, 1))),
    ):
        assert units.in_fixed_units(problem) is problem


@pytest.mark.parametrize(
    ("problem", "fault"),
    [
        (finite_sum(problems.uniform(2)), "drawn at random"),
        (finite_sum(problems.without_replacement(2)), "drawn at random"),
        (problems.local_steps(finite_sum(), n_steps=2, step_size=0.1), "all the whole shard"),
    ],
)
def test_what_has_no_units_is_refused(problem, fault):
    with pytest.raises(ValueError, match=rf"problem must have units of fixed data.*{fault}"):
        units.in_fixed_units(problem)


def test_an_order_must_visit_the_units_that_there_are():
    problem = finite_sum(problems.cyclic(2))  # shards of 4 and 3 rows
    for counts in ((2, 2), (2, 1)):
        units.check_unit_counts(problem, counts)
    with pytest.raises(ValueError, match=r"order visits 3 units of worker 1, .* 3 rows: 1 or 2"):
        units.check_unit_counts(problem, (2, 3))
    units.check_unit_counts(problems.quadratic(np.ones((2, 1)), np.ones((2, 1))), (5, 7))


def test_loads_are_drawn_of_whole_shards():
    units.check_whole_shards(finite_sum())
    with pytest.raises(ValueError, match=r"problem must be made with the default batch.*Cyclic"):
        units.check_whole_shards(finite_sum(problems.cyclic(2)))
