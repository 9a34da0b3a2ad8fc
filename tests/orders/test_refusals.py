"""Gradients that are not finite are refused where known; traced, orders stay permutations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import orders
from tests.registries.orders import REGISTRY

pytestmark = pytest.mark.slow  # together they take long

N, DIM = 7, 3  # of the registered examples
BALANCING = [name for name in REGISTRY if REGISTRY[name]().needs_gradients]
KEY = jax.random.key(5)


@functools.cache
def example(name):
    return REGISTRY[name]()


def rows_of(order, seed=0, bad=None):
    """Gradients of an epoch by step; of `bad` = (step, value), one number is not finite."""
    lead = () if order.n_workers is None else (order.n_workers,)
    rows = np.random.default_rng(seed).standard_normal((*lead, N, DIM)).astype(np.float32)
    if bad is not None:
        rows[..., bad[0], 1] = bad[1]
    return rows


def sorted_rows(order, state):
    visited = np.atleast_2d(order.permutation(state))
    return [sorted(row[row >= 0].tolist()) for row in visited]


def is_finite(state):
    """Whether all numbers in a state are; typed keys are no numbers."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", BALANCING)
def test_a_gradient_that_is_not_finite_is_refused_where_it_is_known(name, value):
    order = example(name)
    state, rows = order.init(KEY), rows_of(order, bad=(3, value))  # no worker is idle at step 3
    for given in (rows, jnp.asarray(rows)):
        with pytest.raises(ValueError, match=f"gradients must be finite, got {value} at index"):
            order.observe(state, np.arange(N), given)
    seen = order.observe(state, [0, 1, 2, -1, N, -1, -1], rows)  # padding may be anything
    assert is_finite(seen)


def test_a_gradient_of_an_idle_worker_may_be_anything():
    order = example("coordinated_shards")
    rows = rows_of(order)
    idle = np.asarray(order.permutation(order.init(KEY))) < 0
    assert idle.any()
    rows[idle] = np.nan
    assert is_finite(order.observe(order.init(KEY), np.arange(N), rows))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", BALANCING)
def test_a_traced_one_is_seen_in_the_state_and_gone_two_epochs_later(name, value):
    order = example(name)
    observe, end_epoch = jax.jit(order.observe), jax.jit(order.end_epoch)
    state = observe(order.init(KEY), np.arange(N), rows_of(order, bad=(3, value)))
    everyone = sorted_rows(order, order.init(KEY))
    assert not is_finite(state)
    for epoch in range(2):
        state = end_epoch(state)
        assert sorted_rows(order, state) == everyone
        state = observe(state, np.arange(N), rows_of(order, seed=epoch + 1))
    state = end_epoch(state)
    assert sorted_rows(order, state) == everyone
    assert is_finite(state)


def test_the_walk_counts_pairs_after_nan_as_failures():
    order = orders.probabilistic(8, 2, c=30.0)  # so undecided that it never fails by itself
    rows = np.random.default_rng(0).standard_normal((8, 2)).astype(np.float32)
    observe = jax.jit(order.observe)
    good = observe(order.init(KEY), np.arange(8), rows)
    assert int(good.balance.failures) == 0
    rows[2] = np.nan
    bad = observe(order.init(KEY), np.arange(8), rows)
    assert int(bad.balance.failures) == 3  # the pair that holds it, and the two after it
    assert bool(jnp.isfinite(bad.balance.norm_bound))


def test_an_infinite_gradient_does_not_make_the_walk_undecided_for_ever():
    order = orders.probabilistic(4, 1, c=0.5)
    state = jax.jit(order.observe)(
        order.init(KEY), np.arange(4), np.array([[1.0], [3.0], [np.inf], [0.0]], np.float32)
    )
    assert float(state.balance.norm_bound) == 2.0


@pytest.mark.parametrize(
    ("vectors", "is_sorted"),
    [
        (np.full((6, 2), np.nan, np.float32), True),
        (np.full((6, 2), np.inf, np.float32), True),
        (1e30 * np.arange(12.0, dtype=np.float32).reshape(6, 2), False),  # squares overflow
        (np.array([[1.0], [np.inf], [2.0], [-np.inf], [0.0], [5.0]], np.float32), False),
    ],
)
def test_herding_of_traced_vectors_is_a_permutation_whatever_they_are(vectors, is_sorted):
    def visited(vectors):
        order = orders.herded(vectors)
        return order.permutation(order.init(KEY))

    found = jax.jit(visited)(vectors).tolist()
    assert sorted(found) == list(range(6))
    assert found == list(range(6)) or not is_sorted
    with pytest.raises(ValueError, match="vectors must"):
        orders.herded(vectors)


def test_checks_leave_compiled_programs_as_they_are():
    order = example("pair_balanced")

    def epoch(state, rows):
        return order.end_epoch(order.observe(state, jnp.arange(N, dtype=jnp.int32), rows))

    text = str(jax.make_jaxpr(epoch)(order.init(KEY), rows_of(order)))
    assert "is_finite" not in text
    assert "callback" not in text
