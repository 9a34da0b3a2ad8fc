"""Rules of the wider family: known answers, plain loops, schedules, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from asyncjax.steps.blocks import draw_block
from asyncjax.steps.registry import REGISTRY
from tests.oracles import steps as oracle

DELAYS = [0, 3, 1, 7, 2, 0, 12]


def run(transform, grads, extras=None, params=None):
    """All updates of a transformation on a list of gradients."""
    params = jnp.zeros_like(jnp.asarray(grads[0])) if params is None else params
    state, updates = transform.init(params), []
    for k, grad in enumerate(grads):
        extra = {} if extras is None else {name: column[k] for name, column in extras.items()}
        update, state = transform.update(jnp.asarray(grad), state, params, **extra)
        updates.append(np.asarray(update))
    return np.array(updates), state


def test_weights_have_the_known_values():
    values = [
        (steps.inverse_delay(), [(0, 1), (1, 1), (4, 0.25)]),
        (steps.polynomial_delay(0.5), [(0, 1), (3, 0.5)]),
        (steps.hinge_delay(10.0, 4), [(4, 1), (6, 1 / 21)]),
        (steps.concurrency_delay(8), [(8, 1), (12, 2 / 3)]),
    ]
    for weight, answers in values:
        for delay, answer in answers:
            assert float(weight(jnp.float32(delay))) == pytest.approx(answer, rel=1e-6)


@pytest.mark.parametrize("kind", ["inverse", "polynomial", "hinge", "concurrency"])
def test_staleness_kinds_are_the_delay_functions(kind):
    weight = {
        "inverse": steps.inverse_delay(),
        "polynomial": steps.polynomial_delay(0.5),
        "hinge": steps.hinge_delay(),
        "concurrency": steps.concurrency_delay(3),
    }[kind]
    grads, extras = [np.ones(2, np.float32)] * 7, {"delay": DELAYS}
    scaled, _ = run(steps.scale_by_staleness(kind, n_workers=3), grads, extras)
    stepped, state = run(steps.scale_by_delay(weight, 0.5), grads, extras)
    np.testing.assert_array_equal(0.5 * scaled, stepped)
    assert float(state.last_step_size) == stepped[-1, 0]


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_memoryless_rules_equal_their_formulas():
    ones, extras = [np.ones(())] * 7, {"delay": DELAYS}
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
        updates, state = run(rule, ones, extras)
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
    grads, extras = [np.array([1.0, -2.0], np.float32)] * 7, {"delay": DELAYS}
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=steps.as_schedule(rule))
    scheduled, state = run(optimizer, grads, extras)
    np.testing.assert_array_equal(-scheduled, run(rule, grads, extras)[0])
    assert float(state.hyperparams["learning_rate"]) == -scheduled[-1, 0]


def test_predicted_steps_count_overflows():
    predicted = steps.predict_steps(
        steps.scale_by_adaptive_1(1.0, max_delay=2), np.minimum(np.arange(9), 3)
    )
    assert predicted.overflows == 6
    assert (predicted.step_size[3:] == 0).all()


def random_gradients(n, seed=0):
    return list(np.random.default_rng(seed).normal(size=(n, 3)))


@pytest.mark.usefixtures("float64")
def test_adaptive_compensation_equals_a_plain_loop():
    grads = random_gradients(6)
    x = jnp.array([1.0, -1.0, 0.5])
    reads = [x + 0.1 * k for k in range(6)]
    rule = steps.compensate_delay_adaptively(2.0, decay=0.95, epsilon=1e-7)
    updates, _ = run(rule, grads, {"read_params": reads}, params=x)
    expected = oracle.compensated_adaptively(grads, np.asarray(x), [np.asarray(r) for r in reads])
    np.testing.assert_allclose(updates, expected, rtol=1e-13)
    silent, _ = run(steps.compensate_delay_adaptively(0.0), grads, {"read_params": reads}, params=x)
    np.testing.assert_array_equal(silent, grads)


def test_adaptive_compensation_survives_gradients_that_are_always_zero():
    rule = steps.compensate_delay_adaptively(2.0, epsilon=0.0)
    updates, _ = run(rule, [np.zeros(2, np.float32)] * 2, {"read_params": [jnp.ones(2)] * 2})
    np.testing.assert_array_equal(updates, 0)


@pytest.mark.usefixtures("float64")
def test_fadas_equals_a_plain_loop():
    grads = random_gradients(7)
    optimizer = steps.fadas(0.3, delay_threshold=2, b1=0.8, b2=0.9, epsilon=1e-3)
    updates, _ = run(optimizer, grads, {"delay": DELAYS})
    expected = oracle.fadas(grads, DELAYS, rate=0.3, threshold=2, b1=0.8, b2=0.9, epsilon=1e-3)
    np.testing.assert_allclose(updates, expected, rtol=1e-12)


def test_mixing_moves_towards_the_worker():
    x, worker = jnp.array([2.0, 4.0]), jnp.array([0.0, 8.0])
    constant, _ = run(
        steps.mix_models(0.25), [x], {"delay": [9], "worker_params": [worker]}, params=x
    )
    np.testing.assert_allclose(constant[0], [-0.5, 1.0])
    hinge = steps.mix_models(0.5, steps.hinge_delay(1.0, 4))
    late, state = run(hinge, [x], {"delay": [5], "worker_params": [worker]}, params=x)
    np.testing.assert_allclose(late[0], [-0.5, 1.0])
    assert float(state.last_step_size) == 0.25


def test_mixing_finds_the_worker_from_its_pseudo_gradient():
    x, read = jnp.array([2.0, 4.0]), jnp.array([1.0, 3.0])
    pseudo = (read - jnp.array([0.0, 8.0])) / 0.4  # what local steps moved, over H s = 0.4
    rule = steps.mix_models(0.25, local_scale=0.4)
    updates, _ = run(rule, [pseudo], {"delay": [0], "read_params": [read]}, params=x)
    np.testing.assert_allclose(updates[0], [-0.5, 1.0], rtol=1e-6)


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


def test_distant_gradients_are_dropped_and_the_inner_state_frozen():
    x = jnp.array([0.0, 3.0])
    rule = steps.picky_sgd(5.0, optax.adam(0.1))
    state = rule.init(x)
    _, near = rule.update(jnp.ones(2), state, x, read_params=jnp.array([4.0, 0.0]))
    assert int(near.dropped_gradients) == 0
    far = jnp.array([4.1, 0.0])
    update, after = rule.update(jnp.full(2, jnp.nan), near, x, read_params=far)
    np.testing.assert_array_equal(update, 0)
    jax.tree.map(np.testing.assert_array_equal, after.kept_state, near.kept_state)
    assert int(after.dropped_gradients) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_blocks_partition_and_only_one_moves():
    params = {"a": jnp.ones((2, 3)), "b": jnp.ones(4)}
    labels = steps.block_labels(params, 4)
    flat = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(labels)])
    np.testing.assert_array_equal(flat, np.repeat(np.arange(4), [3, 3, 2, 2]))
    by_leaf = steps.block_labels(params)
    assert (by_leaf["a"] == 0).all()
    assert (by_leaf["b"] == 1).all()
    # Momentum, adam and a proximal operator would move the other blocks too.
    for inner in (
        optax.adam(0.1),
        optax.sgd(0.1, momentum=0.9),
        steps.descent(steps.worst_case(0.1, 0), prox=steps.l1(1.0)),
    ):
        optimizer = steps.update_block(inner, 4)
        state = optimizer.init(params)
        for block in (2, 0):
            updates, state = optimizer.update(params, state, params, block=block)
            moved = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(updates)])
            np.testing.assert_array_equal(moved != 0, flat == block)


@pytest.mark.slow
def test_random_blocks_are_even_and_apart_from_other_uses_of_the_key():
    keys = jax.random.split(jax.random.key(0), 4000)
    blocks = jax.vmap(lambda key: draw_block(key, 5))(keys)
    np.testing.assert_allclose(np.bincount(blocks) / 4000, 0.2, atol=0.02)
    others = jax.vmap(lambda key: jax.random.randint(key, (), 0, 5))(keys)
    assert abs(np.corrcoef(blocks, others)[0, 1]) < 0.05


def test_adaptive_compensation_has_the_bound_that_it_states():
    """Gradient 4, drift 1: s = 0.05 * 16, so the correction is 2 / sqrt(0.8) * 16 = 35.78."""
    rule = steps.compensate_delay_adaptively(2.0, decay=0.95, epsilon=0.0)
    extras = {"read_params": [jnp.float32(2.0)]}
    updates, _ = run(rule, [np.float32(4.0)], extras, params=jnp.float32(3.0))
    assert float(updates[0]) == pytest.approx(4 + 35.777, rel=1e-5)
    assert float(updates[0]) == pytest.approx(4 * (1 + 2 / np.sqrt(0.05)), rel=1e-6)


@pytest.mark.parametrize("delay", range(1, 9))
def test_the_registered_adaptive_compensation_stays_finite_under_a_real_delay(delay):
    """On x^2 / 2 from several places; plain steps of 0.2 bear a delay of 7."""
    entry = REGISTRY["compensate_delay_adaptively"]
    rule = optax.chain(entry.make(), entry.finish)
    update, x = jax.jit(rule.update), jnp.array([1.0, -2.0, 5.0], jnp.float32)
    models, state = [x] * (delay + 1), rule.init(x)
    for _ in range(150):
        updates, state = update(models[0], state, x, read_params=models[0])
        x = optax.apply_updates(x, updates)
        models = [*models[1:], x]
    assert np.abs(x).max() < 5
