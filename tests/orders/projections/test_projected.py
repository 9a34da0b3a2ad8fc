"""Orders by projections: one worker, and several with a stale time step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.orders.kernels import prefix_norms
from asyncjax.orders.projected import (
    coordinated_by_projection,
    coordinated_signs,
    directional_signs,
    pair_balanced_by_projection,
)
from tests.oracles import directional as oracle

KEY = jax.random.key(0)


def losses_of(params, rows):
    return rows["a"] @ params["a"] + rows["b"] @ params["b"]


def placed(order, signs):
    """Front, middle, back, from the definition."""
    front = [x for x, s in zip(order, signs, strict=True) if s > 0]
    middle = [x for x, s in zip(order, signs, strict=True) if s == 0]
    back = [x for x, s in zip(order, signs, strict=True) if s < 0]
    return front + middle + back[::-1]


@pytest.mark.slow
def test_one_worker_over_epochs_and_an_odd_last_example(float64):
    n, batch = 19, 8
    vectors = np.random.default_rng(0).standard_normal((n, 5))
    params = {"a": jnp.zeros(2), "b": jnp.zeros(3)}
    projected = pair_balanced_by_projection(n, params)
    order = projected.order
    assert order.needs_gradients is False

    @jax.jit
    def epoch(state):
        def step(state, start):
            positions = start + jnp.arange(batch, dtype=jnp.int32)
            examples = order.permutation(state)[jnp.minimum(positions, n - 1)]
            rows = {
                "a": jnp.asarray(vectors)[examples, :2],
                "b": jnp.asarray(vectors)[examples, 2:],
            }
            signs, _, total = directional_signs(
                losses_of, params, projected.direction(state), examples=rows, pairs_per_block=2
            )
            return projected.observe_signs(state, positions, signs, total), None

        state, _ = jax.lax.scan(step, state, jnp.arange(0, 24, batch, dtype=jnp.int32))
        return state, order.end_epoch(state)

    state = order.init(KEY)
    for _ in range(3):
        now = order.permutation(state).tolist()
        seen, following = epoch(state)
        padded = np.concatenate([vectors[now], vectors[now[-1:]]])
        full = np.concatenate([padded, np.repeat(padded[-1:], 4, axis=0)])
        signs, total = oracle.stale_pairs(full, np.zeros(5), 2, True)
        signs = [*signs[: n - 1], 0]
        np.testing.assert_array_equal(seen.signs, signs)
        got = projected.direction(seen)
        np.testing.assert_allclose(np.concatenate([got["a"], got["b"]]), total, atol=1e-12)
        assert order.permutation(seen).tolist() == now
        assert order.permutation(following).tolist() == placed(now, signs)
        assert jax.tree.map(jnp.shape, following) == jax.tree.map(jnp.shape, state)
        assert not np.any(projected.direction(following)["a"])
        state = following


@pytest.mark.slow
def test_gradients_where_they_exist_give_the_same_order(float64):
    vectors = jnp.asarray(np.random.default_rng(1).standard_normal((2, 8, 5)))
    projected = coordinated_by_projection(2, 7, jnp.zeros(5))
    start = projected.order.init(KEY)
    assert projected.order.observe(start, jnp.arange(4), None) is start
    observe = jax.jit(projected.order.observe)
    state, signs = start, []
    running_sum = np.zeros(5)
    for first in (0, 4):
        rows = np.array(vectors[:, first : first + 4])
        positions = jnp.arange(first, first + 4)
        given = jnp.asarray(rows).at[:, 3].set(jnp.nan) if first else jnp.asarray(rows)
        state = observe(state, positions, given)
        rows[:, 2:] *= first == 0  # the last pair has a step outside 0..6
        decided, running_sum = oracle.coordinated_step(rows, running_sum)
        signs.append(decided)
    signs = np.concatenate(signs, axis=1)[:, :7]
    signs[:, 6] = 0
    np.testing.assert_array_equal(state.signs, signs)
    np.testing.assert_allclose(projected.direction(state), running_sum, atol=1e-12)
    after = projected.order.permutation(projected.order.end_epoch(state))
    for j in range(2):
        assert after[j].tolist() == placed(start.order[j].tolist(), signs[j])


@pytest.mark.slow
def test_a_time_step_of_several_workers_is_the_definition(float64):
    draws = np.random.default_rng(2)
    gradients, start = draws.standard_normal((5, 6, 16)), draws.standard_normal(16)
    wanted, _ = oracle.coordinated_step(gradients, start)
    np.testing.assert_array_equal(coordinated_signs(gradients @ start, start @ start), wanted)


@pytest.mark.slow
def test_stale_steps_of_many_workers_beat_random_orders_at_low_rank():
    draws = np.random.default_rng(4)
    m, n = 32, 32
    factors = draws.standard_normal((m, n, 4)) @ draws.standard_normal((4, 64))
    vectors = jnp.asarray(factors + 0.1 * draws.standard_normal((m, n, 64)), jnp.float32)
    projected = coordinated_by_projection(m, n, jnp.zeros(64))

    @jax.jit
    def epoch(state):
        def step(state, first):
            positions = first + jnp.arange(2, dtype=jnp.int32)
            rows = vectors[jnp.arange(m)[:, None], projected.order.permutation(state)[:, positions]]
            return projected.order.observe(state, positions, rows), None

        state, _ = jax.lax.scan(step, state, jnp.arange(0, n, 2, dtype=jnp.int32))
        return projected.order.end_epoch(state)

    state = projected.order.init(KEY)
    norms = [float(prefix_norms(vectors, projected.order.permutation(state)).l2)]
    for _ in range(3):
        state = epoch(state)
    norms.append(float(prefix_norms(vectors, projected.order.permutation(state)).l2))
    assert norms[1] < norms[0]
