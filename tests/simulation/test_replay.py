"""The replay is the algorithm: it equals a plain loop, one event at a time, for every rule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles import events
from tests.oracles.problems import logistic_data, logistic_gradient, logistic_rows
from tests.simulation.shared import (
    RULES,
    N,
    assert_close,
    assert_follows,
    both,
    columns,
    diary,
    job_keys,
    quadratic,
    trace_of,
)

pytestmark = pytest.mark.usefixtures("float64")
EVERY_RULE = [*RULES, "synchronous 4"]


def plain_sgd(x, trace, gradient, step):
    return events.train(x, columns(trace), gradient, lambda direction, k, rows: -step * direction)


@pytest.mark.slow
@pytest.mark.parametrize("rule", EVERY_RULE)
def test_quadratic_equals_the_plain_loop(rule):
    problem, gradient = quadratic()
    trace = trace_of(rule)
    models = plain_sgd(np.ones(3), trace, gradient, 0.05)
    for run in both(problem, trace, optax.sgd(0.05), record_every=20):
        assert_follows(run, models, problem)


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_logistic_equals_the_plain_loop(rule):
    features, labels = logistic_data(N, 8, 5)
    problem = problems.logistic(
        features.reshape(-1, 5),
        labels.ravel(),
        n_workers=N,
        nonconvex=0.1,
        batch=problems.cyclic(2),
        start=np.ones(5),
    )

    def gradient(x, worker, job):
        rows = logistic_rows(8, int(job), 2)
        return logistic_gradient(features[worker, rows], labels[worker, rows], x)

    trace = trace_of(rule, seed=1)
    expected = plain_sgd(np.ones(5), trace, gradient, 0.25)
    run = simulation.replay(problem, trace, optax.sgd(0.25), record_every=60)
    assert_close(run.params, expected[-1])


def test_a_gradient_that_makes_an_update_alone_keeps_its_weight():
    problem, gradient = quadratic()
    rule = traces.Rule(collect=traces.buffered(1, staleness=lambda delay: (1.0 + delay) ** -0.5))
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(N)))
    trace = rule.trace(clock, n_updates=60, key=jax.random.key(0))
    assert len(set(trace.weight.tolist())) > 3
    models = plain_sgd(np.ones(3), trace, gradient, 0.05)
    for run in both(problem, trace, optax.sgd(0.05)):
        assert_close(run.params, models[-1])


@pytest.mark.parametrize("width", [1, 2, 5, 16])
@pytest.mark.parametrize("rule", ["shuffled", "buffered 3"])
def test_the_width_of_waves_changes_nothing(rule, width):
    problem, gradient = quadratic()
    trace = trace_of(rule)
    expected = plain_sgd(np.ones(3), trace, gradient, 0.05)
    run = simulation.replay(problem, trace, optax.sgd(0.05), width=width)
    assert_close(run.params, expected[-1])


@pytest.mark.parametrize("waves", [True, False])
@pytest.mark.parametrize("rule", ["shuffled", "buffered 3", "ringmaster 4", "synchronous 4"])
def test_the_optimizer_is_handed_what_the_trace_says(rule, waves):
    problem, gradient = quadratic()
    trace, key = trace_of(rule), jax.random.key(5)
    models = plain_sgd(np.ones(3), trace, gradient, 0.05)
    rules = optax.chain(diary(60), optax.sgd(0.05))
    seen = simulation.replay(problem, trace, rules, waves=waves, key=key).opt_state[0]
    ends = np.flatnonzero(trace.steps)
    oldest = np.array(
        [trace.read_version[trace.used & (trace.version == k)].min() for k in range(60)]
    )
    numbers = [np.arange(60) - oldest, trace.worker[ends], trace.job[ends], trace.time[ends]]
    assert int(seen.count) == 60
    np.testing.assert_array_equal(seen.numbers[:, :4], np.transpose(numbers))
    np.testing.assert_array_equal(seen.key, job_keys(trace, key, ends))
    assert_close((seen.read, seen.params), (models[oldest], models[:-1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adam(0.05),
        optax.chain(steps.scale_by_adaptive_1(0.3), optax.scale(-1.0)),
        optax.chain(optax.trace(0.9), steps.scale_by_staleness("inverse"), optax.scale(-0.02)),
    ],
    ids=["adam", "adaptive 1", "momentum, inverse staleness"],
)
@pytest.mark.parametrize("rule", ["pure", "wait for 2"])
def test_stateful_optimizers_step_once_an_update(rule, optimizer):
    problem, gradient = quadratic()
    trace = trace_of(rule)
    x = jnp.ones(3)
    state = {"opt": optimizer.init(x), "x": x}

    def step(direction, k, rows):
        delay = jnp.asarray(k - trace.read_version[rows].min())
        update, state["opt"] = optimizer.update(
            jnp.asarray(direction), state["opt"], state["x"], delay=delay
        )
        state["x"] = optax.apply_updates(state["x"], update)
        return np.asarray(update)

    expected = events.train(np.ones(3), columns(trace), gradient, step)
    for run in both(problem, trace, optimizer):
        assert_close(run.params, expected[-1])


def test_pytrees_keep_their_structure_and_dtypes():
    params = {"w": jnp.ones((2, 3), jnp.float32), "b": (jnp.zeros(2, jnp.bfloat16),)}

    def gradient(params, worker, job, key):
        return jnp.float32(0.0), jax.tree.map(lambda leaf: leaf * 0.5, params)

    problem = problems.from_gradient(params, gradient)
    trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=6)
    seen = []

    def update(updates, state, params=None, **_):
        seen.append(jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), updates))
        return jax.tree.map(lambda leaf: -leaf, updates), state

    run = simulation.replay(
        problem, trace, optax.GradientTransformationExtraArgs(lambda p: (), update)
    )
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), params)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), run.params) == shapes
    assert all(shape == shapes for shape in seen)


@pytest.mark.slow
def test_a_job_keeps_its_key_whatever_the_rule():
    def gradient(params, worker, job, key):
        return jnp.zeros(()), jax.random.normal(key, (3,))

    problem = problems.from_gradient(jnp.zeros(3), gradient)
    key = jax.random.key(7)

    @jax.jit
    @jax.vmap
    def noise(worker, job):
        return jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, worker), job), (3,))

    for rule in ("pure", "buffered 3", "synchronous 4"):
        trace = trace_of(rule)
        drawn = np.asarray(noise(trace.worker, trace.job)) * columns(trace).weight[:, None]
        run = simulation.replay(problem, trace, optax.sgd(1.0), key=key)
        np.testing.assert_allclose(run.params, -drawn.sum(axis=0), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_losses_of_the_jobs_are_recorded_without_an_objective():
    def gradient(params, worker, job, key):
        return 10.0 * worker + job, jnp.ones(1)

    problem = problems.from_gradient(jnp.zeros(1), gradient)
    for rule in ("pure", "buffered 3"):
        trace = trace_of(rule)
        loss, version = 10.0 * trace.worker + trace.job, trace.version
        for run in both(problem, trace, optax.sgd(0.1), record_every=7):
            means = [np.mean(loss[version == v - 1]) for v in run.records.version]
            np.testing.assert_allclose(run.records.loss, means)


def test_records_and_costs():
    problem, _ = quadratic()
    trace = trace_of("ringmaster 4, cancel")
    run = simulation.replay(problem, trace, optax.sgd(0.05), record_every=25)
    ends = np.flatnonzero(trace.steps)
    assert run.records.version.tolist() == [25, 50, 60]
    np.testing.assert_array_equal(run.records.time, trace.time[ends[[24, 49, 59]]])
    assert run.records.used.tolist() == [25, 50, 60]
    cancelled = len(trace.cancelled.worker)
    assert run.costs.gradients_cancelled == cancelled > 0
    assert run.records.computed[-1] == len(trace.time) + cancelled
    assert run.costs.broadcasts == len(trace.time) + cancelled + len(trace.open_jobs.worker)
    assert 0 < run.costs.utilisation <= 1 + 1e-12
    assert run.trace is trace
    assert bool(run.records.finite.all())


@pytest.mark.slow
def test_a_whole_run_comes_out_of_vmap_and_prints_as_a_line():
    (problem, _), trace, sizes = quadratic(), trace_of("shuffled"), jnp.array([0.02, 0.05])

    def run(size):
        return simulation.replay(problem, trace, optax.sgd(size), record_every=20)

    several, alone = jax.vmap(run)(sizes), run(0.05)
    assert_close(several.params[1], alone.params, 1e-14)
    assert_close(jax.jit(jax.vmap(lambda size: run(size).params))(sizes), several.params, 1e-14)
    assert several.records.loss.shape == (2, 3)
    assert several.trace is trace
    assert repr(several).startswith("Run(2 runs of 60 updates in ")
    assert repr(alone).startswith("Run(60 updates in ")
    assert "3 records, loss" in repr(alone)
