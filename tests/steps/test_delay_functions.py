"""Rules that are a formula of the delay: known answers, schedules, predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from tests.steps.loops import updates_of

DELAYS = [0, 3, 1, 7, 2, 0, 12]


LATE = np.arange(0.0, 50.0)
WEIGHTS = {
    "inverse": (steps.inverse_delay(), 1 / np.maximum(1, LATE)),
    "polynomial": (steps.polynomial_delay(0.7), (LATE + 1) ** -0.7),
    "hinge": (steps.hinge_delay(10.0, 4), 1 / (10 * np.maximum(0, LATE - 4) + 1)),
    "concurrency": (steps.concurrency_delay(8), 8 / np.maximum(8, LATE)),
    "cgad": (
        steps.cgad(0.2, cutoff=8),
        np.exp(-0.2 * LATE) * (0.5 + 0.5 * np.cos(np.pi * np.minimum(1, LATE / 8))),
    ),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_their_formulas(float64, name):
    weight, expected = WEIGHTS[name]
    np.testing.assert_allclose(weight(jnp.asarray(LATE)), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", ["inverse", "polynomial", "hinge", "concurrency"])
def test_staleness_kinds_are_the_delay_functions(kind):
    weight = {
        "inverse": steps.inverse_delay(),
        "polynomial": steps.polynomial_delay(0.5),
        "hinge": steps.hinge_delay(),
        "concurrency": steps.concurrency_delay(3),
    }[kind]
    grads = np.ones((7, 2), np.float32)
    scaled, _ = updates_of(steps.scale_by_staleness(kind, n_workers=3), grads, delay=DELAYS)
    stepped, state = updates_of(steps.scale_by_delay(weight, 0.5), grads, delay=DELAYS)
    np.testing.assert_array_equal(0.5 * scaled, stepped)
    assert float(state.last_step_size) == stepped[-1, 0]


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_memoryless_rules_equal_their_formulas():
    ones = np.ones(7)
    late = np.array(DELAYS, float)
    t = 1 + np.arange(7)
    cases = {
        "koloskova": (
            steps.scale_by_concurrency_bound(0.5, concurrency=2, smoothness=0.1),
            np.where(late <= 2, 0.5, np.minimum(0.5, 1 / (0.4 * np.maximum(late, 1)))),
        ),
        "ada_delay": (steps.scale_by_ada_delay(2.0, 0.5), 1 / (2 + 0.5 * np.sqrt(t + late))),
        "davis": (
            steps.davis(1.5, 2.5, n_blocks=16, max_delay=12, safety=0.9),
            np.full(7, 0.9 / (1.5 + 2 * 2.5 * 12 / 4)),
        ),
        "sun": (steps.sun(0.7, 12), np.full(7, 0.7 / 12.5)),
        "worst_case": (steps.worst_case(0.7, 12), np.full(7, 0.7 / 13)),
    }
    for name, (rule, expected) in cases.items():
        updates, state = updates_of(rule, ones, delay=DELAYS)
        np.testing.assert_allclose(updates, expected, rtol=1e-14, err_msg=name)
        predicted = steps.predict_steps(rule, DELAYS)
        np.testing.assert_allclose(predicted.step_size, expected, rtol=1e-14, err_msg=name)
        assert float(optax.tree.get(state, "last_step_size")) == pytest.approx(expected[-1])


@pytest.mark.parametrize(
    "rule",
    [
        steps.worst_case(0.7, 12),
        steps.davis(1.5, 2.5, n_blocks=16, max_delay=12),
        steps.scale_by_delay(steps.inverse_delay(), 0.3),
        steps.scale_by_concurrency_bound(0.5, concurrency=2, smoothness=1.0),
        steps.scale_by_ada_delay(2.0, 0.5),
        steps.scale_by_adaptive_2(0.5, max_delay=16),
    ],
)
def test_schedules_give_the_learning_rate_of_their_rule(rule):
    grads = np.tile(np.array([1.0, -2.0], np.float32), (7, 1))
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=steps.as_schedule(rule))
    scheduled, state = updates_of(optimizer, grads, delay=DELAYS)
    np.testing.assert_array_equal(-scheduled, updates_of(rule, grads, delay=DELAYS)[0])
    assert float(state.hyperparams["learning_rate"]) == -scheduled[-1, 0]


def test_predicted_steps_count_overflows():
    predicted = steps.predict_steps(
        steps.scale_by_adaptive_1(1.0, max_delay=2), np.minimum(np.arange(9), 3)
    )
    assert predicted.overflows == 6
    assert (predicted.step_size[3:] == 0).all()


def test_stage_delays_fall_per_leaf_and_are_annealed():
    grads = {"first": {"w": jnp.ones(2), "b": jnp.ones(())}, "last": jnp.ones(3)}
    rule = steps.scale_by_stage_delay({"first": 8, "last": 0}, anneal_updates=3)
    state, seen = rule.init(grads), []
    for _ in range(5):
        updates, state = rule.update(grads, state)
        seen.append([float(updates["first"]["b"]), float(updates["last"][0])])
    np.testing.assert_allclose(
        np.array(seen)[:, 0], [8 ** -(1 - min(k / 3, 1)) for k in range(5)], rtol=1e-6
    )
    np.testing.assert_array_equal(np.array(seen)[:, 1], 1)


def test_clipping_bounds_the_norm_by_the_delay():
    tree = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0, jnp.bfloat16)}
    rule = steps.clip_by_delay(5.0, steps.inverse_delay())
    state = rule.init(tree)
    for delay, norm in ((0, 5.0), (1, 5.0), (4, 1.25)):
        clipped, _ = rule.update(tree, state, delay=delay)
        assert float(optax.tree.norm(clipped)) == pytest.approx(norm, rel=1e-2)
        assert clipped["b"].dtype == jnp.bfloat16
    nothing, _ = rule.update(jax.tree.map(jnp.zeros_like, tree), state, delay=4)
    assert float(optax.tree.norm(nothing)) == 0
