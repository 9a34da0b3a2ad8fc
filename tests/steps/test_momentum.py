"""Momentum that knows of delays: plain loops, limits, what a block of arrivals comes to."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from tests.oracles import closed_loop, outer_steps, steps as oracle
from tests.steps.loops import updates_of

N_UPDATES, RATE, BETA, SLOW = 60, 0.3, 0.8, 0.05
DELAYS = [0, 3, 1, 7, 2, 0, 12]


def moves_of(optimizer, grads, **extras):
    return updates_of(optax.with_extra_args_support(optimizer), grads, **extras)[0]


def gradients(n_updates, width=3):
    return np.random.default_rng(0).normal(size=(n_updates, width))


def arrivals(n_workers, seed):
    """The version that each arriving gradient read, in a random order of arrivals.

    Every worker starts on version 0, and on the newest one when it delivered.
    """
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(n_workers, 0.3)) + 1e-3
    job, read = np.zeros(n_workers, int), []
    for t in range(N_UPDATES):
        worker = rng.choice(n_workers, p=chances / sum(chances))
        read.append(job[worker])
        job[worker] = t + 1
    return np.array(read)


@jax.jit
def ordered(grads, delays, rate, momentum, n_workers):
    """All moves and momenta."""
    optimizer = steps.ordered_momentum(rate, momentum, n_workers)

    def step(state, arrival):
        update, state = optimizer.update(arrival[0], state, delay=arrival[1])
        return state, (update, state.momentum)

    return jax.lax.scan(step, optimizer.init(grads[0]), (grads, delays))[1]


def fed_by_bucket(grads, read, n_workers):
    """Heavy-ball SGD of optax on the sums of all buckets up to that of the last update."""
    bucket = np.ceil(read / n_workers).astype(int)
    sums = np.zeros((int(np.ceil((len(read) - 1) / n_workers)) + 1, 3))
    np.add.at(sums, bucket, grads)
    heavy_ball, state, x = optax.sgd(RATE, BETA), optax.sgd(RATE, BETA).init(sums[0]), 0.0
    for one in sums:
        update, state = heavy_ball.update(jnp.asarray(one), state)
        x = x + np.asarray(update)
    return x, RATE * np.asarray(optax.tree.get(state, "trace"))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_workers", [1, 3, 4, 8])
def test_it_is_momentum_fed_by_bucket_where_what_has_not_arrived_is_zero(n_workers):
    read, grads = arrivals(n_workers, seed=7), gradients(N_UPDATES)
    moves, momenta = ordered(grads, np.arange(N_UPDATES) - read, RATE, BETA, n_workers)
    for count in (1, 2, 17, 40, N_UPDATES):
        x, u = fed_by_bucket(grads[:count], read[:count], n_workers)
        np.testing.assert_allclose(np.sum(moves[:count], axis=0), x, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(momenta[count - 1], u, rtol=1e-12, atol=1e-12)


def test_ordered_momentum_without_momentum_is_sgd():
    grads = gradients(N_UPDATES).astype(np.float32)
    moves, _ = ordered(grads, np.arange(N_UPDATES) - arrivals(5, seed=1), np.float32(RATE), 0.0, 5)
    np.testing.assert_array_equal(moves, moves_of(optax.sgd(RATE), grads))


@pytest.mark.usefixtures("float64")
def test_the_learning_rate_of_ordered_momentum_may_follow_the_delay():
    grads, delays = gradients(N_UPDATES), np.arange(N_UPDATES) - arrivals(4, seed=5)
    assert (delays > 8).any()
    rates = np.where(delays <= 8, RATE, np.minimum(RATE, 1 / (4 * 2.0 * np.maximum(1, delays))))
    expected, _ = oracle.ordered_momentum(grads, delays, rates=rates, beta=BETA, n_workers=4)
    rule = steps.scale_by_concurrency_bound(RATE, concurrency=8, smoothness=2.0)
    chained = optax.chain(rule, steps.ordered_momentum(1.0, BETA, 4))
    scheduled = optax.inject_hyperparams(steps.ordered_momentum)(
        learning_rate=steps.as_schedule(rule), momentum=BETA, n_workers=4
    )
    for optimizer in (chained, scheduled):
        moves = moves_of(optimizer, grads, delay=delays)
        np.testing.assert_allclose(moves, expected, rtol=1e-12, atol=1e-13)


def test_a_delay_longer_than_the_run_reads_the_first_model():
    ones = np.ones((3, 3), np.float32)
    inside, _ = ordered(ones, np.array([0, 1, 2]), 1.0, 0.5, 2)
    beyond, _ = ordered(ones, np.array([9, 9, 9]), 1.0, 0.5, 2)
    np.testing.assert_array_equal(inside, beyond)


@pytest.mark.parametrize(("every", "share"), [(1, 0.0), (1, 1.0), (4, 0.0), (4, 0.1), (4, 0.25)])
def test_delayed_nesterov_equals_the_plain_loop(float64, every, share):
    grads = gradients(24)
    moves = moves_of(steps.delayed_nesterov(RATE, BETA, every=every, share=share), grads)
    expected = oracle.delayed_nesterov(grads, rate=RATE, beta=BETA, every=every, share=share)
    np.testing.assert_allclose(moves, expected, rtol=1e-12, atol=1e-14)


def test_every_nth_model_is_that_of_nesterov_on_means(float64):
    grads, every = gradients(24), 4
    moves = moves_of(steps.delayed_nesterov(RATE, BETA, every=every), grads)
    means = grads.reshape(-1, every, 3).mean(axis=1)
    expected = moves_of(optax.sgd(RATE, BETA, nesterov=True), means)
    np.testing.assert_allclose(moves.reshape(-1, every, 3).sum(axis=1), expected, rtol=1e-12)


def drawn_delays(longest=9, n_updates=80):
    return np.minimum(
        np.random.default_rng(5).integers(0, longest, n_updates), np.arange(n_updates)
    )


@jax.jit
def closed(grads, delays, gain):
    """All moves, and the momentum of each."""
    optimizer = steps.closed_loop_momentum(SLOW, BETA, max_delay=6, gain=gain)

    def step(state, row):
        move, new = optimizer.update(row[0], state, delay=row[1])
        return new, (move, state.own_momentum)

    last, found = jax.lax.scan(step, optimizer.init(grads[0]), (grads, delays))
    return *found, last


@pytest.mark.parametrize("gain", [0.01, 0.3])
def test_closed_loop_equals_the_plain_loop(float64, gain):
    grads, delays = gradients(80, 7), drawn_delays()
    grads[:5, 2] = 0.0  # an entry that has not moved yet
    moves, momentum, last = closed(grads, delays, gain)
    expected, momenta = closed_loop.closed_loop(
        grads, delays, rate=SLOW, momentum=BETA, max_delay=6, gain=gain, least=-0.9
    )
    np.testing.assert_allclose(moves, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(momentum, momenta, rtol=1e-10)
    assert int(last.delay_overflows) == (delays > 6).sum() > 0
    assert momenta.min() < BETA - 0.03


@pytest.mark.parametrize(("longest", "gain"), [(1, 0.3), (9, 0.0)])
def test_closed_loop_without_delays_or_a_gain_is_heavy_ball_momentum(float64, longest, gain):
    moves, momenta, _ = closed(gradients(80, 7), drawn_delays(longest), gain)
    np.testing.assert_allclose(momenta, BETA, rtol=1e-12)
    plain = moves_of(optax.sgd(SLOW, BETA), gradients(80, 7))
    np.testing.assert_allclose(moves, plain, rtol=1e-10, atol=1e-13)


def test_gradients_that_are_the_same_everywhere_are_never_late(float64):
    """On a slope asynchrony changes nothing, and what is measured is the momentum itself."""
    same = np.tile(np.array([1.0, -2.0, 3.0, 0.5, 1.0, 1.0, 4.0]), (80, 1))
    _, momentum, last = closed(same, drawn_delays(), 0.5)
    np.testing.assert_allclose(momentum, BETA, rtol=1e-9)
    np.testing.assert_allclose(last.measured_momentum, BETA, rtol=1e-9)


PLAIN = {"keep": 0.5, "turn": 0.5, "shrink": 1.0, "most": 1.0, "caution": 1.0}


def leaning(n_updates=60, seed=0):
    """Of a direction that all share, and as much noise: all three cases happen."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=4) + 1.5 * rng.normal(size=(n_updates, 4))


@pytest.mark.parametrize(
    "changed",
    [{}, {"caution": 0.0, "most": 0.5}, {"keep": 0.0}, {"keep": 1.0, "turn": 3.0}, {"shrink": 0.4}],
)
def test_heloco_equals_the_plain_loop(float64, changed):
    grads, correction = leaning(), PLAIN | changed
    moves = moves_of(steps.heloco(RATE, BETA, **correction), grads)
    expected = outer_steps.heloco(grads, rate=RATE, beta=BETA, **correction)
    np.testing.assert_allclose(moves, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "off", [{"keep": -1.0}, {"turn": 0.0, "shrink": 0.0}, {"most": 0.0, "turn": 0.0}]
)
def test_heloco_that_corrects_nothing_is_nesterov_on_an_average(float64, off):
    """m = (1 - beta) times the trace of optax, so the step is g + beta (1 - beta) trace."""
    grads = leaning()
    moves = moves_of(steps.heloco(RATE, BETA, **(PLAIN | off)), grads)
    buffer = -moves_of(optax.sgd(1.0, BETA), grads)
    np.testing.assert_allclose(moves, -RATE * (grads + BETA * (1 - BETA) * buffer), rtol=1e-12)


def test_every_leaf_has_an_angle_of_its_own():
    optimizer = steps.heloco(1.0, 0.5, caution=0.0)
    momentum = {"with": jnp.array([1.0, 0.0]), "against": jnp.array([1.0, 0.0])}
    delta = {"with": jnp.array([1.0, 0.5]), "against": jnp.array([-1.0, 0.0])}
    _, after = optimizer.update(delta, optimizer.init(momentum)._replace(momentum=momentum))
    np.testing.assert_allclose(after.momentum["with"], [1.0, 0.25])
    np.testing.assert_allclose(after.momentum["against"], [0.5, 0.0])


def test_zeros_neither_turn_nor_make_nan():
    optimizer = steps.heloco(1.0, 0.5)
    zero = jnp.zeros(3)
    for grad in (zero, jnp.ones(3), zero):
        move, state = optimizer.update(grad, optimizer.init(zero))
        assert np.isfinite(move).all()
        assert np.isfinite(state.momentum).all()


@pytest.mark.usefixtures("float64")
def test_fadas_equals_a_plain_loop():
    grads = gradients(7)
    optimizer = steps.fadas(0.3, delay_threshold=2, b1=0.8, b2=0.9, epsilon=1e-3)
    updates = moves_of(optimizer, grads, delay=np.array(DELAYS))
    expected = oracle.fadas(grads, DELAYS, rate=0.3, threshold=2, b1=0.8, b2=0.9, epsilon=1e-3)
    np.testing.assert_allclose(updates, expected, rtol=1e-12)
