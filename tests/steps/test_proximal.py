"""Proximal operators against brute force, and the wrapper that applies them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from tests.oracles import steps as oracle

OPERATORS = {
    "l1": (steps.l1(0.7), lambda z: 0.7 * np.abs(z)),
    "l2": (steps.l2(0.7), lambda z: 0.35 * z**2),
    "elastic net": (steps.elastic_net(0.7, 0.4), lambda z: 0.7 * np.abs(z) + 0.2 * z**2),
    "box": (steps.box(-0.5, 1.0), lambda z: np.where((z < -0.5) | (z > 1.0), np.inf, 0.0)),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("step_size", [0.1, 1.3])
def test_operators_minimise_their_definition(name, step_size):
    prox, function = OPERATORS[name]
    points = np.linspace(-3, 3, 25)
    grid = np.linspace(-3, 3, 60_001)
    expected = [oracle.prox_on_grid(function, x, step_size, grid) for x in points]
    np.testing.assert_allclose(prox(jnp.asarray(points), step_size), expected, atol=1e-4)


@pytest.mark.parametrize("name", [*OPERATORS, "group", "simplex"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_operators_keep_dtypes_and_leave_x_alone_for_a_zero_step(name, dtype):
    prox = OPERATORS[name][0] if name in OPERATORS else getattr(steps, name)(0.5)
    tree = {"a": jnp.array([-3.0, 0.1, 3.0], dtype), "b": jnp.asarray(-0.2, dtype)}
    moved = prox(tree, jnp.float32(0.5))
    assert {leaf.dtype for leaf in jax.tree.leaves(moved)} == {jnp.dtype(dtype)}
    same = prox(tree, jnp.float32(0.0))
    jax.tree.map(np.testing.assert_array_equal, same, tree)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("point", [[2.0, -1.0, 0.5], [0.3, -0.2, 0.1], [0.0, 0.0, 0.0]])
def test_a_group_shrinks_as_a_whole(point):
    """What is strictly convex is least where nothing near is less."""
    point = np.array(point)
    shrunk = np.asarray(steps.group(0.9)(jnp.asarray(point), 0.5))
    near = shrunk + np.random.default_rng(0).normal(scale=1e-4, size=(200, 3))

    def objective(z):
        return 0.45 * np.linalg.norm(z, axis=-1) + ((z - point) ** 2).sum(axis=-1) / 2

    assert (objective(near) > objective(shrunk)).all()
    columns = steps.group(0.9, axis=0)(jnp.asarray(np.stack([point, 3 * point], axis=1)), 0.5)
    np.testing.assert_allclose(columns[:, 0], shrunk, atol=1e-12)
    np.testing.assert_allclose(columns[:, 1], steps.group(0.9)(jnp.asarray(3 * point), 0.5))


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_simplex_is_the_nearest_point_of_the_simplex():
    generator = np.random.default_rng(0)
    corners = generator.dirichlet(np.ones(4), size=4000) * 2.0
    for point in generator.normal(size=(5, 4)):
        tree = {"a": jnp.asarray(point[:3]), "b": jnp.asarray(point[3])}
        projected = steps.simplex(2.0)(tree, 0.1)
        flat = np.append(projected["a"], projected["b"])
        assert flat.min() >= 0
        assert flat.sum() == pytest.approx(2.0)
        assert (((flat - point) ** 2).sum() <= ((corners - point) ** 2).sum(axis=1) + 1e-12).all()
        same = steps.simplex(2.0)(tree, 0.0)
        jax.tree.map(np.testing.assert_array_equal, same, tree)


@pytest.mark.usefixtures("float64")
def test_delay_adaptive_sgd_without_delay_is_the_proximal_gradient_method():
    matrix = np.random.default_rng(0).normal(size=(6, 3))
    target = np.array([1.0, -1.0, 0.5, 0.0, 2.0, 0.0])
    optimizer = steps.delay_adaptive_sgd(0.05, 0.8, max_delay=4, prox=steps.l1(0.5))

    @jax.jit
    def step(x, state):
        grad = jnp.asarray(matrix).T @ (jnp.asarray(matrix) @ x - jnp.asarray(target))
        update, state = optimizer.update(grad, state, x, delay=0)
        return optax.apply_updates(x, update), state

    x, twin = jnp.ones(3), np.ones(3)
    state = optimizer.init(x)
    for _ in range(40):
        x, state = step(x, state)
        twin = oracle.soft_threshold(twin - 0.04 * matrix.T @ (matrix @ twin - target), 0.04 * 0.5)
    np.testing.assert_allclose(x, twin, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_sparsity_survives_the_additive_update(dtype):
    params = jnp.asarray(np.random.default_rng(1).normal(size=50), dtype)
    grad = jnp.asarray(np.random.default_rng(2).normal(size=50), dtype)
    optimizer = steps.delay_adaptive_sgd(0.3, max_delay=4, prox=steps.l1(3.0))
    update, _ = optimizer.update(grad, optimizer.init(params), params, delay=0)
    moved = optax.apply_updates(params, update)
    gamma = 0.27
    wide = np.asarray(params, np.float64) - gamma * np.asarray(grad, np.float64)
    zero = np.abs(wide) < gamma * 3.0 - 1e-2
    assert moved.dtype == dtype
    assert 5 < zero.sum() < 50
    np.testing.assert_array_equal(np.asarray(moved)[zero], 0)


def test_a_zero_step_leaves_the_parameters_alone():
    optimizer = steps.proximal(
        optax.chain(steps.scale_by_adaptive_2(1.0, 4), optax.scale(-1.0)), steps.box(0.0, 1.0)
    )
    params = jnp.array([5.0, -2.0])
    state = optimizer.init(params)
    first, state = optimizer.update(jnp.zeros(2), state, params, delay=0)
    np.testing.assert_allclose(params + first, [1, 0])
    second, state = optimizer.update(jnp.ones(2), state, params, delay=1)
    np.testing.assert_array_equal(second, 0)


def test_a_prox_of_ones_own_sees_the_whole_tree_and_the_step_size():
    def ball(tree, step_size):
        norm = optax.tree.norm(tree)
        return jax.tree.map(lambda leaf: leaf / jnp.maximum(1, norm) + 0 * step_size, tree)

    optimizer = steps.proximal(steps.delay_adaptive_sgd(1.0, 1.0, max_delay=4), ball)
    params = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([0.0, 4.0])}
    grads = jax.tree.map(jnp.zeros_like, params)
    update, _ = optimizer.update(grads, optimizer.init(params), params, delay=0)
    assert float(optax.tree.norm(optax.apply_updates(params, update))) == pytest.approx(1.0)
