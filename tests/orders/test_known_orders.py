"""Orders that were worked out beforehand, and orders of the NumPy twins."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import orders
from tests.oracles import orders as oracle
from tests.orders.shared import all_orders, from_identity, gaussian

pytestmark = pytest.mark.slow

SINGLE = {
    "pair": (
        lambda: orders.pair_balanced(8, 4),
        gaussian(8, 4),
        ["03467521", "06712543", "07543216"],
    ),
    "pair_one_worker": (
        lambda: orders.coordinated(1, 9, 8),
        gaussian(1, 9, 8),
        [["034786521"], ["076215843"]],
    ),
    "grab": (
        lambda: orders.grab(8, 4),
        gaussian(8, 4),
        ["03467521", "03465217", "03465217"],
    ),
    "coordinated": (
        lambda: orders.coordinated(2, 8, 8),
        gaussian(2, 8, 8),
        [
            ["03567421", "02567431"],
            ["06412753", "26731450"],
            ["01753246", "67150432"],
        ],
    ),
}


@functools.cache
def known(name):
    return SINGLE[name][0]()


def digits(text):
    return [digits(part) for part in text] if isinstance(text, list) else [int(c) for c in text]


@pytest.mark.parametrize("name", SINGLE)
def test_known_orders_come_out(name):
    _, vectors, expected = SINGLE[name]
    order = known(name)
    found = all_orders(order, from_identity(order), vectors, len(expected))
    np.testing.assert_array_equal(found[1:], [digits(one) for one in expected])


def test_greedy_herding_is_known():
    vectors = gaussian(8, 4)
    order = orders.herded(vectors)
    state = order.init(jax.random.key(0))
    assert order.permutation(state).tolist() == digits("70436152")
    vectors = gaussian(23, 5, seed=4)
    order = orders.herded(vectors)
    assert order.permutation(order.init(None)).tolist() == oracle.herded(vectors)


@pytest.mark.parametrize("n", [1, 2, 9, 12])
def test_pairs_follow_their_twin(n):
    vectors = gaussian(n, 5, seed=n)
    order = orders.pair_balanced(n, 5)
    found = all_orders(order, from_identity(order), vectors, 6)
    np.testing.assert_array_equal(found, oracle.pair_balanced(vectors, range(n), 6))


@pytest.mark.parametrize("n", [1, 2, 9])
def test_grab_follows_its_twin(n, float64):
    vectors = gaussian(n, 5, seed=n).astype(np.float64) + 0.3
    order = orders.grab(n, 5)
    found = all_orders(order, from_identity(order), vectors, 6)
    np.testing.assert_array_equal(found, oracle.grab(vectors, range(n), 6))


@pytest.mark.parametrize(("n", "depth"), [(13, 0), (40, 2)])
def test_the_tree_follows_its_twin(n, depth, float64):
    vectors = gaussian(n, 5, seed=n).astype(np.float64)
    order = orders.recursive(n, 5, depth)
    found = all_orders(order, from_identity(order), vectors, 5)
    np.testing.assert_array_equal(found, oracle.recursive(vectors, range(n), depth, 5))
    if depth == 0:
        np.testing.assert_array_equal(found, oracle.grab(vectors, range(n), 5))


@pytest.mark.parametrize(("counts", "block"), [((7, 4, 1), 1), ((2, 9), 1), ((7, 4, 1), 3)])
def test_workers_follow_their_twins(counts, block):
    shards = [gaussian(count, 6, seed=10 * j + count) for j, count in enumerate(counts)]
    vectors = np.full((len(counts), max(counts), 6), np.nan, np.float32)
    for j, shard in enumerate(shards):
        vectors[j, : len(shard)] = shard
    order = orders.coordinated(len(counts), counts, 6, block=block)
    found = all_orders(order, from_identity(order), vectors, 4)
    expected = oracle.coordinated(shards, [range(count) for count in counts], 4)
    for epoch in range(5):
        for j, count in enumerate(counts):
            steps = oracle.visit_steps(count, max(counts))
            assert found[epoch, j, steps].tolist() == expected[epoch][j]
            assert np.delete(found[epoch, j], steps).tolist() == [-1] * (max(counts) - count)

    alone = orders.independent(len(counts), counts, 6)
    found = all_orders(alone, from_identity(alone), vectors, 4)
    for j, count in enumerate(counts):
        expected = oracle.pair_balanced(shards[j], range(count), 4)
        np.testing.assert_array_equal(found[:, j, oracle.visit_steps(count, max(counts))], expected)


def uniforms(balance, n_pairs, epoch):
    key = jax.random.fold_in(balance.key, epoch)
    draw = lambda k: jax.random.uniform(jax.random.fold_in(key, k), (), minval=-1.0, maxval=1.0)  # noqa: E731
    return np.asarray(jax.vmap(draw)(jnp.arange(n_pairs)))


def signs_of_pairs(state):
    return np.asarray(state.signs)[::2]


@pytest.mark.parametrize("c", [0.05, 1.0])
def test_the_walk_follows_its_twin(c):
    n, vectors = 60, gaussian(60, 5, seed=8)
    order = orders.probabilistic(n, 5, c)
    state, bound, failures = order.init(jax.random.key(1)), 0.0, 0
    for epoch in range(2):
        visited = np.asarray(order.permutation(state))
        differences = vectors[visited][::2] - vectors[visited][1::2]
        coins = uniforms(state.balance, n // 2, epoch)
        expected, failed, bound = oracle.walk(differences, coins, c, bound)
        state = order.observe(state, np.arange(n), vectors[visited])
        failures += failed
        np.testing.assert_array_equal(signs_of_pairs(state), expected)
        assert int(state.balance.failures) == failures
        assert float(state.balance.norm_bound) == pytest.approx(bound, rel=1e-6)
        state = order.end_epoch(state)
    assert failures > 0 if c < 1 else failures < 30


def test_kernel_halving_follows_its_twin():
    n, vectors = 60, gaussian(60, 5, seed=9)
    order = orders.kernel_halving(n, 5, epochs=3, delta=0.5)
    state = order.init(jax.random.key(2))
    for epoch in range(3):
        visited = np.asarray(order.permutation(state))
        differences = vectors[visited][::2] - vectors[visited][1::2]
        coins = uniforms(state.balance, n // 2, epoch)
        expected, tau = oracle.halving(differences, coins, n=n, epoch=epoch, epochs=3, delta=0.5)
        state = order.observe(state, np.arange(n), vectors[visited])
        np.testing.assert_array_equal(signs_of_pairs(state), expected)
        assert float(state.balance.variance) == pytest.approx(tau, rel=1e-4)
        state = order.end_epoch(state)


def test_random_orders_are_what_they_say():
    key = jax.random.key(7)
    order = orders.reshuffled(20)
    state = order.init(key)
    for epoch in range(3):
        expected = jax.random.permutation(jax.random.fold_in(key, epoch), 20)
        np.testing.assert_array_equal(order.permutation(state), expected)
        state = order.end_epoch(state)

    once = orders.shuffled_once(20)
    np.testing.assert_array_equal(once.permutation(once.init(key)), jax.random.permutation(key, 20))

    flip = orders.flip_flop((20, 13), n_workers=2)
    found = all_orders(flip, flip.init(key), np.zeros((2, 20, 1)), 3)
    for j, count in enumerate((20, 13)):
        visits = found[:, j, oracle.visit_steps(count, 20)]
        assert (visits >= 0).all()
        np.testing.assert_array_equal(visits[1], visits[0][::-1])
        np.testing.assert_array_equal(visits[3], visits[2][::-1])
        assert (visits[2] != visits[0]).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: orders.reshuffled(50, 3),
        lambda: orders.shuffled_once(50, 3),
        lambda: orders.coordinated(3, 50, 2),
        lambda: orders.independent(3, 50, 2),
    ],
)
def test_workers_start_in_different_random_orders(make):
    order = make()
    rows = np.asarray(order.permutation(order.init(jax.random.key(0))))
    again = np.asarray(order.permutation(order.init(jax.random.key(1))))
    assert len({tuple(row) for row in (*rows, *again, np.arange(50))}) == 7


def test_small_shards_start_uniformly():
    order = orders.shuffled_once((6, 3), n_workers=2)
    rows = jax.jit(jax.vmap(lambda key: order.permutation(order.init(key))))(
        jax.random.split(jax.random.key(0), 1200)
    )[:, 1]
    rows = rows[:, jnp.array(oracle.visit_steps(3, 6))]
    _, counts = np.unique(np.asarray(rows), axis=0, return_counts=True)
    assert len(counts) == 6
    assert counts.min() > 140  # mean 200, standard deviation 13
