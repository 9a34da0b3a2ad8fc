"""Tables by worker: averages, the age of the oldest row, times."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, steps, traces
from tests.oracles import steps as oracle


def test_average_counts_rows_never_delivered_as_zero():
    rule = steps.average_workers(4)
    state, rows = rule.init(jnp.zeros(2)), np.zeros((4, 2))
    for k, worker in enumerate([1, 3, 1]):
        rows[worker] = [k + 1, 2 * k]
        update, state = rule.update(jnp.asarray(rows[worker], jnp.float32), state, worker=worker)
        np.testing.assert_allclose(update, rows.mean(axis=0), rtol=1e-6)


@pytest.mark.slow
def test_a_vector_of_workers_equals_one_after_the_other():
    grads = {"a": jnp.arange(6.0).reshape(3, 2), "b": jnp.arange(3, dtype=jnp.bfloat16)}
    params = jax.tree.map(lambda leaf: leaf[0], grads)
    rule = steps.average_workers(5)
    together, state = rule.update(grads, rule.init(params), worker=jnp.array([4, 0, 2]))
    alone_state = rule.init(params)
    for row, worker in enumerate([4, 0, 2]):
        grad = jax.tree.map(lambda leaf, row=row: leaf[row], grads)
        alone, alone_state = rule.update(grad, alone_state, worker=worker)
    chex.assert_trees_all_equal(together, alone)
    chex.assert_trees_all_equal(state, alone_state)
    assert together["b"].dtype == jnp.bfloat16


def test_initial_rows():
    initial = {"w": np.arange(6.0).reshape(3, 2)}
    params = {"w": jnp.zeros(2)}
    rule = steps.average_workers(3, initial)
    update, state = rule.update({"w": jnp.zeros(2)}, rule.init(params), worker=0)
    np.testing.assert_allclose(update["w"], [2.0, 8 / 3], rtol=1e-6)
    mapped = optax.tree.map_params(rule, lambda leaf: leaf, state)
    chex.assert_trees_all_equal(mapped, state)
    masked = optax.masked(steps.average_workers(3, {**initial, "v": None}), {"w": True, "v": False})
    masked.init({**params, "v": jnp.zeros(1)})


def test_initial_rows_are_copied():
    initial = jnp.ones((2, 1))
    state = steps.average_workers(2, initial).init(jnp.zeros(1))
    jax.jit(lambda tree: jax.tree.map(lambda leaf: 2 * leaf, tree), donate_argnums=0)(state)
    np.testing.assert_array_equal(initial, 1)


def test_ages_equal_the_oracle_and_reach_the_inner_rule():
    workers = np.random.default_rng(3).choice(4, size=120, p=[0.6, 0.25, 0.1, 0.05])
    delays = oracle.deliveries(workers)
    seen = optax.GradientTransformationExtraArgs(
        lambda params: jnp.zeros((), jnp.int32),
        lambda updates, state, params=None, *, delay, worker, note, **extra: (
            updates + note,
            delay,
        ),
    )
    rule = steps.oldest_delay(seen, 4)

    def body(state, inputs):
        worker, delay = inputs
        update, state = rule.update(jnp.zeros(()), state, worker=worker, delay=delay, note=2.0)
        return state, (update, state.table_state, state.last_table_delay)

    arrivals = (jnp.asarray(workers, jnp.int32), jnp.asarray(delays, jnp.int32))
    state, (notes, inner, ages) = jax.lax.scan(body, rule.init(jnp.zeros(())), arrivals)
    expected = oracle.oldest_rows(workers, delays, 4)
    np.testing.assert_array_equal(ages, expected)
    np.testing.assert_array_equal(inner, expected)
    np.testing.assert_array_equal(notes, 2)
    assert int(state.row_ages.max()) == expected[-1] + 1


def test_ages_of_a_group_and_of_padding():
    rule = steps.oldest_delay(optax.identity(), 3)
    one = jnp.ones(())
    state = rule.init(one)
    for _ in range(2):
        _, state = rule.update(one, state, delay=0, worker=0)
    _, state = rule.update(one, state, delay=jnp.array([1, 0, 9]), worker=jnp.array([1, 2, -1]))
    np.testing.assert_array_equal(state.row_ages, [2, 2, 1])
    assert int(state.last_table_delay) == 1
    _, state = rule.update(one, state, delay=0, worker=jnp.array([0, 2]))
    np.testing.assert_array_equal(state.row_ages, [1, 3, 1])


def factors(rule, trace):
    def step(state, arrival):
        worker, time = arrival
        update, state = rule.update(jnp.float32(1.0), state, worker=worker, time=time)
        return state, update

    arrivals = jnp.asarray(trace.worker), jnp.asarray(trace.time, jnp.float32)
    return jax.lax.scan(step, rule.init(jnp.float32(0.0)), arrivals)[1]


@pytest.mark.slow
def test_measured_factors_equal_the_plain_loop():
    clock = clocks.gamma(3.0, [1.0, 2.0, 5.0, 9.0])
    trace = traces.asynchronous(clock, n_updates=300, key=jax.random.key(0))
    expected = oracle.measured_factors(trace.worker, trace.time, 4)
    np.testing.assert_allclose(factors(steps.scale_by_measured_time(4), trace), expected, rtol=1e-5)
