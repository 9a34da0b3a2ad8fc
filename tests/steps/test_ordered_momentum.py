"""Ordered momentum: what it is once gradients are put in order, its limits, a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import buffers, clocks, steps, traces
from tests.oracles import steps as oracle

N_UPDATES, BETA, ETA = 60, 0.8, 0.3


def arrivals(n_workers, seed, n_updates=N_UPDATES, n_jobs=None):
    """The version that each arriving gradient read, in a random order of arrivals.

    Every worker starts on version 0 and on the newest one when it delivered, until there are
    `n_jobs`.
    """
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(n_workers, 0.3)) + 1e-3
    job, read, given = np.zeros(n_workers, int), [], n_workers
    for t in range(n_updates):
        worker = rng.choice(n_workers, p=chances * (job >= 0) / sum(chances * (job >= 0)))
        read.append(job[worker])
        job[worker] = t + 1 if n_jobs is None or given < n_jobs else -1
        given += 1
    return np.array(read)


@jax.jit
def play(grads, delays, rate, momentum, n_workers):
    """All moves and momenta."""
    optimizer = steps.ordered_momentum(rate, momentum, n_workers)

    def step(state, arrival):
        update, state = optimizer.update(arrival[0], state, delay=arrival[1])
        return state, (update, state.momentum)

    return jax.lax.scan(step, optimizer.init(grads[0]), (grads, delays))[1]


def updates_of(optimizer, grads, delays=None):
    """All moves of any optimizer."""

    def step(state, arrival):
        update, state = optimizer.update(arrival[0], state, delay=arrival[1])
        return state, update

    optimizer = optax.with_extra_args_support(optimizer)
    delays = np.zeros(len(grads), int) if delays is None else delays
    return jax.lax.scan(step, optimizer.init(grads[0]), (jnp.asarray(grads), delays))[1]


def gradients(n_updates=N_UPDATES, seed=0):
    return np.random.default_rng(seed).normal(size=(n_updates, 3))


def fed_by_bucket(grads, read, n_workers):
    """Heavy-ball SGD of optax on the sums of all buckets up to that of the last update."""
    bucket = np.ceil(read / n_workers).astype(int)
    sums = np.zeros((int(np.ceil((len(read) - 1) / n_workers)) + 1, 3))
    np.add.at(sums, bucket, grads)
    heavy_ball, state, x = optax.sgd(ETA, BETA), optax.sgd(ETA, BETA).init(sums[0]), 0.0
    for one in sums:
        update, state = heavy_ball.update(jnp.asarray(one), state)
        x = x + np.asarray(update)
    return x, ETA * np.asarray(optax.tree.get(state, "trace"))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_workers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(4))
def test_once_all_have_arrived_it_is_momentum_fed_bucket_by_bucket(n_workers, seed):
    n_updates = N_UPDATES - N_UPDATES % n_workers
    read = arrivals(n_workers, seed, n_updates, n_jobs=n_updates)
    in_bucket = np.bincount(np.ceil(read / n_workers).astype(int))
    assert (in_bucket == n_workers).all()  # all have arrived, in whatever order
    grads = gradients(N_UPDATES)
    delays = np.zeros(N_UPDATES, np.int32)
    delays[:n_updates] = np.arange(n_updates) - read
    moves, momenta = play(grads, delays, ETA, BETA, n_workers)
    x, u = fed_by_bucket(grads[:n_updates], read, n_workers)
    np.testing.assert_allclose(np.sum(moves[:n_updates], axis=0), x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(momenta[n_updates - 1], u, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_workers", [1, 4])
def test_before_that_what_has_not_arrived_counts_as_zero(n_workers):
    read, grads = arrivals(n_workers, seed=7), gradients()
    moves, momenta = play(grads, np.arange(N_UPDATES) - read, ETA, BETA, n_workers)
    for made in (1, 2, 17, 40, N_UPDATES):
        x, u = fed_by_bucket(grads[:made], read[:made], n_workers)
        np.testing.assert_allclose(np.sum(moves[:made], axis=0), x, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(momenta[made - 1], u, rtol=1e-12, atol=1e-12)


def test_a_bucket_is_as_many_gradients_as_workers_on_real_traces():
    clock = clocks.exponential([1.0, 1.0, 3.0, 20.0])
    trace = traces.asynchronous(clock, n_updates=400, key=jax.random.key(0))
    filled = np.bincount(np.ceil(trace.read_version / 4).astype(int))
    assert filled.max() == 4
    assert (filled == 4).mean() > 0.8  # the slow worker holds up a few


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_workers", [1, 4, 70])
def test_it_equals_a_plain_loop(n_workers):
    grads, delays = gradients(), np.arange(N_UPDATES) - arrivals(6, seed=3)
    moves, momenta = play(grads, delays, ETA, BETA, n_workers)
    expected = oracle.ordered_momentum(
        grads, delays, rates=[ETA] * N_UPDATES, beta=BETA, n_workers=n_workers
    )
    np.testing.assert_allclose(moves, expected[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(momenta, expected[1], rtol=1e-12, atol=1e-13)


def test_without_momentum_it_is_sgd():
    grads = gradients().astype(np.float32)
    moves, _ = play(grads, np.arange(N_UPDATES) - arrivals(5, seed=1), np.float32(ETA), 0.0, 5)
    np.testing.assert_array_equal(moves, updates_of(optax.sgd(ETA), grads))


@pytest.mark.usefixtures("float64")
def test_one_worker_without_delay_is_the_heavy_ball_of_optax():
    grads = gradients()
    moves, _ = play(grads, np.zeros(N_UPDATES, int), ETA, BETA, 1)
    np.testing.assert_allclose(moves, updates_of(optax.sgd(ETA, BETA), grads), rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_its_learning_rate_may_follow_the_delay():
    grads, delays = gradients(), np.arange(N_UPDATES) - arrivals(4, seed=5)
    assert (delays > 8).any()
    rates = np.where(delays <= 8, ETA, np.minimum(ETA, 1 / (4 * 2.0 * np.maximum(1, delays))))
    expected, _ = oracle.ordered_momentum(grads, delays, rates=rates, beta=BETA, n_workers=4)
    rule = steps.scale_by_concurrency_bound(ETA, concurrency=8, smoothness=2.0)
    chained = optax.chain(rule, steps.ordered_momentum(1.0, BETA, 4))
    scheduled = optax.inject_hyperparams(steps.ordered_momentum)(
        learning_rate=steps.as_schedule(rule), momentum=BETA, n_workers=4
    )
    for optimizer in (chained, scheduled):
        moves = updates_of(optimizer, grads, delays)
        np.testing.assert_allclose(moves, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("make", "ends"),
    [
        (lambda: optax.sgd(0.02, 0.9), (1e6, np.inf)),
        (lambda: steps.ordered_momentum(0.02, 0.9, 8), (0, 1e-12)),
    ],
)
def test_it_stands_a_step_at_which_momentum_in_order_of_arrival_diverges(make, ends):
    ring, optimizer = buffers.version_ring(8), optax.with_extra_args_support(make())

    def step(carry, t):  # eight workers in turn, each on x^2 / 2
        x, state, versions = carry
        delay = jnp.minimum(t, 7)
        update, state = optimizer.update(ring.read(versions, delay), state, x, delay=delay)
        return (x + update, state, ring.push(versions, x + update)), x

    one = jnp.float32(1.0)
    start = (one, optimizer.init(one), ring.init(one))
    last = np.abs(jax.lax.scan(step, start, jnp.arange(2000))[1])[-50:].max()
    assert ends[0] <= last <= ends[1]


def test_a_delay_longer_than_the_run_reads_the_first_model():
    ones = np.ones((3, 3), np.float32)
    inside, _ = play(ones, np.array([0, 1, 2]), 1.0, 0.5, 2)
    beyond, _ = play(ones, np.array([9, 9, 9]), 1.0, 0.5, 2)
    np.testing.assert_array_equal(inside, beyond)
