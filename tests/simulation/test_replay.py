"""The replay is the algorithm: it equals a plain loop, one event at a time, for every rule."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles import events
from tests.oracles.problems import logistic_data, logistic_gradient, logistic_rows
from tests.simulation.shared import RULES, N, columns, quadratic, trace_of

pytestmark = pytest.mark.usefixtures("float64")
EVERY_RULE = [*RULES, "synchronous 4"]


def plain_sgd(x, trace, gradient, step):
    return events.train(x, columns(trace), gradient, lambda direction, k, rows: -step * direction)


@pytest.mark.slow
@pytest.mark.parametrize("rule", EVERY_RULE)
def test_quadratic_equals_the_plain_loop(rule):
    problem, gradient = quadratic()
    trace = trace_of(rule)
    expected = plain_sgd(np.ones(3), trace, gradient, 0.05)
    optimizer = optax.sgd(0.05)
    for waves in (True, False):
        run = simulation.replay(problem, trace, optimizer, waves=waves, record_every=20)
        np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)
        losses = [problem.objective(expected[v]) for v in (20, 40, 60)]
        np.testing.assert_allclose(run.records.loss, losses, rtol=0, atol=1e-12)


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
    np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)


def test_a_gradient_that_makes_an_update_alone_keeps_its_weight():
    problem, gradient = quadratic()
    clock, collect = (
        clocks.exponential(np.sqrt(1.0 + np.arange(N))),
        traces.buffered(1, staleness=root),
    )
    trace = traces.asynchronous(clock, n_updates=60, collect=collect, key=jax.random.key(0))
    assert len(set(trace.weight.tolist())) > 3
    expected = plain_sgd(np.ones(3), trace, gradient, 0.05)
    for waves in (True, False):
        run = simulation.replay(problem, trace, optax.sgd(0.05), waves=waves)
        np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)


def root(delay):
    return (1.0 + delay) ** -0.5


@pytest.mark.parametrize("width", [1, 2, 5, 16])
@pytest.mark.parametrize("rule", ["shuffled", "buffered 3"])
def test_the_width_of_waves_changes_nothing(rule, width):
    problem, gradient = quadratic()
    trace = trace_of(rule)
    expected = plain_sgd(np.ones(3), trace, gradient, 0.05)
    run = simulation.replay(problem, trace, optax.sgd(0.05), width=width)
    np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)


class Diary(NamedTuple):
    count: jax.Array
    delay: jax.Array
    worker: jax.Array
    time: jax.Array
    read: jax.Array


def diary(n_updates: int) -> optax.GradientTransformationExtraArgs:
    """SGD that writes down every extra it is handed."""

    def init(params: Any) -> Diary:
        blank = jnp.zeros(n_updates)
        return Diary(jnp.array(0), blank, blank, blank, jnp.zeros((n_updates, 3)))

    def update(updates, state, params=None, *, delay, worker, time, read_params, **_):
        k = state.count
        state = Diary(
            k + 1,
            state.delay.at[k].set(delay),
            state.worker.at[k].set(worker),
            state.time.at[k].set(time),
            state.read.at[k].set(read_params),
        )
        return -0.05 * updates, state

    return optax.GradientTransformationExtraArgs(init, update)


@pytest.mark.parametrize("waves", [True, False])
@pytest.mark.parametrize("rule", ["shuffled", "buffered 3", "ringmaster 4", "synchronous 4"])
def test_the_optimizer_is_handed_what_the_trace_says(rule, waves):
    problem, gradient = quadratic()
    trace = trace_of(rule)
    models = plain_sgd(np.ones(3), trace, gradient, 0.05)
    seen = simulation.replay(problem, trace, diary(60), waves=waves).opt_state
    ends = np.flatnonzero(trace.steps)
    oldest = np.array(
        [trace.read_version[trace.used & (trace.version == k)].min() for k in range(60)]
    )
    assert int(seen.count) == 60
    np.testing.assert_array_equal(seen.delay, np.arange(60) - oldest)
    np.testing.assert_array_equal(seen.worker, trace.worker[ends])
    np.testing.assert_array_equal(seen.time, trace.time[ends])
    np.testing.assert_allclose(seen.read, models[oldest], rtol=0, atol=1e-12)


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
    for waves in (True, False):
        run = simulation.replay(problem, trace, optimizer, waves=waves)
        np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)


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
        for waves in (True, False):
            run = simulation.replay(problem, trace, optax.sgd(0.1), record_every=7, waves=waves)
            expected = [
                np.mean(
                    [
                        10.0 * trace.worker[e] + trace.job[e]
                        for e in np.flatnonzero(trace.version == v - 1)
                    ]
                )
                for v in run.records.version
            ]
            np.testing.assert_allclose(run.records.loss, expected)


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
def test_vmap_over_step_sizes_and_keys():
    problem, _ = quadratic()
    trace = trace_of("shuffled")
    sizes = jnp.array([0.02, 0.05])
    together = jax.vmap(lambda s: simulation.replay(problem, trace, optax.sgd(s)).params)(sizes)
    compiled = jax.jit(jax.vmap(lambda s: simulation.replay(problem, trace, optax.sgd(s)).params))
    for row, size in enumerate([0.02, 0.05]):
        alone = simulation.replay(problem, trace, optax.sgd(size)).params
        np.testing.assert_allclose(together[row], alone, rtol=0, atol=1e-14)
    np.testing.assert_allclose(compiled(sizes), together, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_a_whole_run_comes_out_of_vmap():
    problem, _ = quadratic()
    trace = trace_of("pure")
    run = jax.vmap(lambda s: simulation.replay(problem, trace, optax.sgd(s), record_every=30))(
        jnp.array([0.02, 0.05])
    )
    assert run.records.loss.shape == (2, 2)
    assert run.trace is trace
    assert repr(run).startswith("Run(2 runs of 60 updates in ")


@pytest.mark.slow
def test_a_run_prints_as_one_line():
    problem, _ = quadratic()
    run = simulation.replay(problem, trace_of("pure"), optax.sgd(0.05), record_every=20)
    assert repr(run).startswith("Run(60 updates in ")
    assert "3 records, loss" in repr(run)


@pytest.mark.slow
def test_a_large_model_goes_one_by_one_to_the_same_end():
    def gradient(params, worker, job, key):
        return jnp.sum(params), params * (1.0 + 0.1 * worker) - 1.0

    problem = problems.from_gradient(jnp.ones(9000), gradient)
    trace = trace_of("buffered 3")
    alone = simulation.replay(problem, trace, optax.sgd(0.05))
    waves = simulation.replay(problem, trace, optax.sgd(0.05), width=4)
    np.testing.assert_allclose(alone.params, waves.params, rtol=0, atol=1e-12)
    np.testing.assert_allclose(alone.records.loss, waves.records.loss, rtol=1e-12)
