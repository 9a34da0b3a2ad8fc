"""Asynchronous block-coordinate descent: its definition, torn reads, its optimum."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.steps.blocks import draw_block
from tests.oracles import steps as oracle
from tests.oracles.block_descent import block_descent
from tests.simulation import lasso

pytestmark = pytest.mark.usefixtures("float64")
M, T, SIZE, LONGEST = 20, 160, 0.8, 9
PROX, KEY = steps.l1(lasso.L1), jax.random.key(11)


ADAPTIVE = steps.scale_by_adaptive_1(SIZE, max_delay=64)
RULES = {
    "adaptive 1": (ADAPTIVE, lambda delays: oracle.adaptive_1(delays, SIZE)),
    "fixed": (steps.worst_case(SIZE, LONGEST), lambda delays: [SIZE / (LONGEST + 1)]),
}


@functools.cache
def blocks(n_blocks=M, n_workers=lasso.WORKERS, jobs=T):
    """The block of every job, from its key."""
    fold = jax.random.fold_in

    def one(worker, job):
        return draw_block(fold(fold(KEY, worker), job), n_blocks)

    draw = jax.vmap(jax.vmap(one, (None, 0)), (0, None))
    return np.asarray(draw(jnp.arange(n_workers), jnp.arange(jobs)))


@pytest.mark.slow
@pytest.mark.parametrize("torn", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("rule", RULES)
def test_a_replay_is_the_definition(rule, torn):
    start = np.full(lasso.DIM, 0.3)
    times = lasso.durations(grid=0.25 if torn == 1.0 else None)
    transform, twin = RULES[rule]
    models, log = block_descent(
        lambda i, j: times[i, j % times.shape[1]],
        lasso.WORKERS,
        T,
        start,
        lambda i, j, x: lasso.gradient(i, x),
        lambda i, j: blocks()[i, j],
        twin,
        n_blocks=M,
        l1=lasso.L1,
        torn=torn,
    )
    trace = lasso.trace(times, T)
    for name in ("worker", "job", "time", "delay"):
        np.testing.assert_array_equal(getattr(trace, name), log[name], err_msg=name)
    for waves in (True, False):
        run = simulation.replay_block_descent(
            lasso.problem(start),
            trace,
            transform,
            n_blocks=M,
            prox=PROX,
            torn=torn,
            record_every=1,
            key=KEY,
            waves=waves,
        )
        np.testing.assert_allclose(run.params, models[-1], rtol=0, atol=1e-12)
        losses = [lasso.objective(x) for x in models[1:]]
        np.testing.assert_allclose(run.records.loss, losses, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            optax.tree.get(run.opt_state, "last_step_size"), log["step"][-1], atol=1e-14
        )
        assert int(run.opt_state.last_block) == log["block"][-1]
        assert run.costs.gradients_used == T


@pytest.mark.slow
def test_torn_reads_are_not_consistent_ones_but_have_their_steps():
    trace, rule = lasso.trace(lasso.durations(), T), ADAPTIVE

    def run(torn):
        return simulation.replay_block_descent(
            lasso.problem(), trace, rule, n_blocks=M, prox=PROX, torn=torn, key=KEY
        )

    whole, torn = run(0.0), run(1.0)
    for name in ("last_step_size", "recent_steps"):
        np.testing.assert_array_equal(
            *(optax.tree.get(each.opt_state, name) for each in (whole, torn))
        )
    assert np.abs(np.asarray(whole.params - torn.params)).max() > 1e-4
    assert torn.costs.live_versions == trace.delay.max() + 1


@pytest.mark.slow
def test_one_block_and_one_worker_are_the_proximal_gradient_method():
    features, labels = lasso.data()
    problem = problems.logistic(
        features[0], labels[0], n_workers=1, l2=lasso.L2, start=np.full(lasso.DIM, 0.3)
    )
    trace = traces.asynchronous(clocks.constant([1.0]), n_updates=30)
    x, step = np.full(lasso.DIM, 0.3), 0.9 * SIZE
    for _ in range(30):
        x = oracle.soft_threshold(x - step * lasso.gradient(0, x), step * lasso.L1)
    for torn in (0.0, 1.0):
        run = simulation.replay_block_descent(
            problem, trace, ADAPTIVE, n_blocks=1, prox=PROX, torn=torn
        )
        np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)


def shared_memory():
    """Every worker sees all data."""
    whole = lasso.problem()
    features, labels = lasso.data()
    flat, signs = jnp.asarray(features.reshape(-1, lasso.DIM)), jnp.asarray(labels.ravel())

    def gradient(x, worker, job, key):
        slope = -(signs / (1 + jnp.exp(signs * (flat @ x)))) @ flat / len(signs)
        return jnp.zeros(()), slope + lasso.L2 * x

    return problems.from_gradient(whole.params, gradient, objective=whole.objective)


@pytest.mark.slow
@pytest.mark.parametrize("torn", [0.0, 1.0])
def test_eight_workers_reach_the_optimum_at_a_mean_delay_of_seven(torn):
    clock = clocks.exponential(np.linspace(1.0, 2.0, 8))
    trace = traces.asynchronous(clock, n_updates=20_000, key=jax.random.key(0))
    assert trace.delay.mean() == pytest.approx(7.0, abs=0.01)
    flat = lasso.data()[0].reshape(-1, lasso.DIM)
    pieces = np.array_split(np.arange(lasso.DIM), M)
    lipschitz = max(np.linalg.norm(flat[:, piece], 2) ** 2 for piece in pieces) / (4 * len(flat))
    rule = steps.scale_by_adaptive_1(0.99 / (lipschitz + lasso.L2), max_delay=256)
    run = simulation.replay_block_descent(
        shared_memory(), trace, rule, n_blocks=M, prox=PROX, torn=torn, record_every=5000
    )
    gaps = np.asarray(run.records.loss) - lasso.optimum()
    assert np.abs(gaps[-1]) <= 1e-6
    run.raise_if_failed()


@pytest.mark.slow
def test_torn_reads_under_vmap_over_step_sizes():
    problem, trace = lasso.problem(), lasso.trace(lasso.durations(), T)

    def run(size):
        rule = steps.scale_by_adaptive_1(size, max_delay=64)
        return simulation.replay_block_descent(
            problem, trace, rule, n_blocks=M, prox=PROX, torn=1.0, key=KEY
        )

    together, alone = jax.vmap(run)(jnp.array([0.2, SIZE])), run(SIZE)
    np.testing.assert_allclose(together.params[1], alone.params, rtol=0, atol=1e-13)
    np.testing.assert_allclose(together.records.loss[1], alone.records.loss, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_blocks_are_cut_through_a_tree():
    start = {"b": jnp.ones(2), "w": jnp.ones((2, 3), jnp.float32)}

    def gradient(params, worker, job, key):
        return jnp.zeros(()), jax.tree.map(lambda leaf: leaf * (1.0 + worker), params)

    problem = problems.from_gradient(start, gradient)
    trace, rule = lasso.trace(lasso.durations(2), 40), ADAPTIVE
    for torn in (0.0, 1.0):
        run = simulation.replay_block_descent(
            problem, trace, rule, n_blocks=3, torn=torn, record_every=40
        )
        assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), run.params) == jax.tree.map(
            lambda leaf: (leaf.shape, leaf.dtype), start
        )
        assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(run.params)) < 1.0
