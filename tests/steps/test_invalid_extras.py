"""Traced extras that are out of range are counted; without any, a rule compiles as it did."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from asyncjax.testing import example_extras
from asyncjax.testing.transforms import required_extras
from tests.registries.steps import REGISTRY

PARAMS = {"w": jnp.ones(3)}
OUT_OF_RANGE = {"delay": -1, "worker": 3, "block": 3, "time": -1.0}
COUNTING = [
    name for name in REGISTRY if set(required_extras(REGISTRY[name].make())) & set(OUT_OF_RANGE)
]


@pytest.mark.parametrize("name", COUNTING)
def test_every_rule_refuses_what_is_concrete_and_counts_what_is_traced(name):
    rule = REGISTRY[name].make()
    state, extras = rule.init(PARAMS), example_extras(PARAMS, 1)
    wrong = {name: OUT_OF_RANGE[name] for name in required_extras(rule) if name in OUT_OF_RANGE}
    for extra, value in wrong.items():
        with pytest.raises(ValueError, match=f"{extra} must be"):
            rule.update(PARAMS, state, PARAMS, **{**extras, extra: value})
    update = jax.jit(lambda state, wrong: rule.update(PARAMS, state, PARAMS, **{**extras, **wrong}))
    right = {extra: extras[extra] for extra in wrong}
    for values, count in ((right, 0), (wrong, len(wrong)), (right, len(wrong))):
        _, state = update(state, values)
        assert int(state.invalid_extras) == count


def test_in_a_vector_of_workers_only_the_padding_is_not_counted():
    rule = steps.oldest_delay(optax.identity(), 3)
    update = jax.jit(lambda state, worker: rule.update(PARAMS, state, delay=0, worker=worker)[1])
    state = update(rule.init(PARAMS), jnp.array([0, -1, 2]))
    assert int(state.invalid_extras) == 0
    assert int(update(state, jnp.array([0, -2, 3])).invalid_extras) == 2


def test_a_time_that_is_not_finite_is_counted():
    rule = steps.scale_by_measured_time(2)
    update = jax.jit(lambda state, time: rule.update(PARAMS, state, worker=0, time=time)[1])
    state = rule.init(PARAMS)
    for time, count in ((1.0, 0), (np.nan, 1), (np.inf, 2)):
        state = update(state, time)
        assert int(state.invalid_extras) == count


@pytest.mark.parametrize("worker", [-1, 2])
def test_a_traced_worker_that_is_not_there_leaves_the_rows_alone(worker):
    measured = steps.scale_by_measured_time(2)
    update = jax.jit(lambda state, worker: measured.update(PARAMS, state, worker=worker, time=1.0))
    _, state = update(measured.init(PARAMS), worker)
    assert not np.any(state.last_delivery)
    assert not np.any(state.deliveries)
    mean = steps.average_workers(2)
    updates, _ = jax.jit(mean.update)(PARAMS, mean.init(PARAMS), worker=worker)
    np.testing.assert_array_equal(updates["w"], 0)
    known = steps.scale_by_worker_time([1.0, 3.0])
    updates, _ = jax.jit(known.update)(PARAMS, known.init(PARAMS), worker=worker)
    np.testing.assert_array_equal(updates["w"], 0.5 if worker < 0 else 1.5)


def test_an_injected_schedule_may_pass_through_zero_but_not_below():
    warm_up = optax.linear_schedule(0.0, 0.5, 2)
    rule = optax.inject_hyperparams(steps.scale_by_delay, static_args=("weight",))(
        weight=steps.inverse_delay(), step_size=warm_up
    )
    state, found = rule.init(PARAMS), []
    for _ in range(3):
        updates, state = rule.update(PARAMS, state, delay=1)
        found.append(float(updates["w"][0]))
    np.testing.assert_allclose(found, [0.0, 0.25, 0.5])
    sinking = optax.inject_hyperparams(steps.worst_case)(
        step_size=optax.linear_schedule(0.0, -1.0, 2), max_delay=0
    )
    state = sinking.init(PARAMS)
    _, state = sinking.update(PARAMS, state)
    with pytest.raises(ValueError, match=r"step_size must be positive and finite, got -0\.5"):
        sinking.update(PARAMS, state)
