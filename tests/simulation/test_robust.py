"""Adversarial workers, and what stands them; calibrated arrivals against a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles.treatments import train
from tests.simulation.shared import N, assert_close, both, columns, quadratic, trace_of

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.slow]
WORKERS, RATE = 10, 0.1
CENTERS = 1.0 + 0.1 * np.random.default_rng(0).normal(size=(WORKERS, 4))


def alike():
    """Ten workers whose optima lie near one another."""
    return problems.quadratic(np.ones((WORKERS, 4)), CENTERS)


def distance(bad, scale=20.0, **more):
    """How far from the honest optimum a run ends."""
    honest = [i for i in range(WORKERS) if i not in bad]
    clock, collect = clocks.exponential(np.ones(WORKERS)), traces.buffered(WORKERS)
    trace = traces.asynchronous(clock, n_updates=150, collect=collect, key=jax.random.key(1))
    problem = problems.adversarial(alike(), bad, scale=scale)
    run = simulation.replay(problem, trace, simulation.Update(optax.sgd(RATE), **more))
    return float(np.abs(run.params - CENTERS[honest].mean(axis=0)).max())


def own_gradient(params):
    """Of a loss that the server has itself: distance to one honest worker's optimum."""
    return params - CENTERS[0]


ROBUST = {
    "median": {"aggregator": steps.median()},
    "trimmed mean": {"aggregator": steps.trimmed_mean(0.4)},
    "krum": {"aggregator": steps.krum(4)},
    "means of buckets": {"aggregator": steps.bucketed(WORKERS, steps.median())},
    "descent": {"gradient_transform": steps.zeno(own_gradient)},
}


@pytest.mark.parametrize("name", ROBUST)
def test_robust_rules_survive_a_fifth_of_flipped_signs_where_the_mean_fails(name):
    assert distance([]) < 0.1
    assert not distance([3, 7]) < 1e3
    assert distance([3, 7], **ROBUST[name]) < 0.3


def test_an_adversary_sends_what_its_attack_makes():
    inner, key = alike(), jax.random.key(0)
    x = jnp.full(4, 5.0)

    def attack(grads, worker, job, key):
        return grads * job + worker

    problem = problems.adversarial(inner, [2, 4], attack)
    for worker in range(5):
        loss, grads = problem.gradient(x, worker, 3, key)
        own_loss, honest = inner.gradient(x, worker, 3, key)
        expected = honest * 3 + worker if worker in (2, 4) else honest
        np.testing.assert_allclose(grads, expected, rtol=1e-12)
        assert loss == own_loss
    assert float(problem.objective(x)) == float(inner.objective(x))
    none = problems.adversarial(inner, [])
    np.testing.assert_array_equal(none.gradient(x, 1, 0, key)[1], inner.gradient(x, 1, 0, key)[1])


def test_adversaries_may_keep_a_state():
    inner = problems.local_steps(
        alike(), n_steps=2, optimizer=optax.sgd(0.1, momentum=0.5), keep_state=True
    )
    problem = problems.adversarial(inner, [1], scale=2.0)
    state, key = problem.worker_state(), jax.random.key(0)
    x = jnp.ones(4)
    for worker in (0, 1):
        _, grads, after = problem.gradient(x, worker, 0, key, state)
        _, honest, its = inner.gradient(x, worker, 0, key, state)
        np.testing.assert_allclose(grads, honest * (-2.0 if worker else 1.0), rtol=1e-12)
        for one, other in zip(jax.tree.leaves(after), jax.tree.leaves(its), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rule", ["buffered 3", "buffered 9"])
def test_calibrated_updates_equal_the_plain_loop(rule):
    """CA2FL: v = h_bar + mean of (delta - h), h_bar of the table as the step began."""
    problem, gradient = quadratic()
    trace = trace_of(rule)
    cached, frozen, last = np.zeros((N, 3)), [np.zeros(3)], [-1]

    def arrive(g, x, read, row):
        worker = trace.worker[row]
        if trace.version[row] != last[0]:
            frozen[0], last[0] = cached.mean(axis=0), trace.version[row]
        sent = frozen[0] + g - cached[worker]
        cached[worker] = g
        return sent

    def sgd(direction, number, rows):
        return -0.05 * direction

    expected = train(np.ones(3), columns(trace), gradient, sgd, arrive=arrive)
    update = simulation.Update(optax.sgd(0.05), gradient_transform=steps.ca2fl(N))
    for run in both(problem, trace, update):
        assert_close(run.params, expected[-1])


def test_calibration_with_everybody_in_every_step_is_the_mean():
    """Where each worker delivers once a step, h_bar cancels the mean of the h."""
    problem, _ = quadratic()
    clock, optimizer = clocks.constant(np.ones(N)), optax.sgd(0.05)
    trace = traces.asynchronous(clock, n_updates=20, collect=traces.wait_for(N))
    calibrated = simulation.Update(optimizer, gradient_transform=steps.ca2fl(N))
    run, plain = (simulation.replay(problem, trace, rule) for rule in (calibrated, optimizer))
    assert_close(run.params, plain.params)


def test_descent_is_asked_as_defined():
    """Scaled to the server's norm; passes iff <v, g> - rho |g|^2 >= -epsilon."""
    rng = np.random.default_rng(3)
    rule = steps.zeno(lambda params: 2.0 * params, rho=0.4, epsilon=0.1)
    x = rng.normal(size=3)
    state, dropped = rule.init(x), 0
    for _ in range(40):
        g = rng.normal(size=3)
        v = 2.0 * x
        scaled = g * np.linalg.norm(v) / np.linalg.norm(g)
        passes = v @ scaled - 0.4 * scaled @ scaled >= -0.1
        sent, state = rule.update(jnp.asarray(g), state, jnp.asarray(x))
        np.testing.assert_allclose(sent, scaled if passes else np.zeros(3), rtol=1e-12)
        dropped += not passes
        assert int(state.dropped_gradients) == dropped
    assert 0 < dropped < 40
    sent, _ = rule.update(jnp.full(3, jnp.nan), state, jnp.asarray(x))
    np.testing.assert_array_equal(sent, 0.0)
