"""The forms that a CPU takes fastest: the same numbers, and only where they pay."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import problems, simulation
from asyncjax.simulation.cpu_rewrites import convolution, convolves, is_turned, quick
from asyncjax.simulation.engine import SMALL_ALONE
from tests.simulation.shared import assert_close, convolutional, network, trace_of

rng = np.random.default_rng(0)


def kernel_gradient(rows, slopes):
    """Sum over rows of the outer products, as autodiff writes it."""
    return jnp.einsum("ro,ri->oi", slopes, rows).T


def hidden_in_jit(rows, slopes):
    return jax.jit(kernel_gradient)(rows, slopes), jnp.einsum("ri,ro->io", rows, slopes)


@pytest.mark.parametrize("function", [kernel_gradient, hidden_in_jit])
@pytest.mark.parametrize("lanes", [(4,), (2, 3)])
def test_the_numbers_are_those_of_the_plain_product(function, lanes, float64):
    rows, slopes = rng.standard_normal((*lanes, 5, 3)), rng.standard_normal((*lanes, 5, 2))
    batched = function
    for _ in lanes:
        batched = jax.vmap(batched)
    for product in jax.tree.leaves(quick(batched)(rows, slopes)):
        np.testing.assert_allclose(
            product, np.einsum("...ri,...ro->...io", rows, slopes), rtol=0, atol=1e-14
        )


def copies(function, *arguments):
    return str(jax.make_jaxpr(quick(function))(*arguments)).count("optimization_barrier")


def test_only_small_products_of_several_models_are_copied():
    small, large = jnp.ones((2, 8, 4)), jnp.ones((2, 8, 128))
    assert copies(jax.vmap(kernel_gradient), small, small) == 1
    assert copies(jax.vmap(kernel_gradient), large, large) == 0
    assert copies(kernel_gradient, small[0], small[0]) == 0
    assert copies(jax.vmap(jnp.matmul), small, jnp.ones((2, 4, 3))) == 0


def test_what_was_traced_can_be_differentiated_and_mapped():
    rows = jnp.asarray(rng.standard_normal((2, 4, 3)), jnp.float32)

    def total(rows):
        return jnp.sum(quick(jax.vmap(kernel_gradient))(rows, rows) ** 2)

    def plain(rows):
        return jnp.sum(jax.vmap(kernel_gradient)(rows, rows) ** 2)

    np.testing.assert_allclose(jax.grad(total)(rows), jax.grad(plain)(rows), rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(total)(rows[None]), [plain(rows)], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [3, 60, None])  # flat, and not; convolutions
def test_a_network_in_waves_equals_one_event_at_a_time(hidden, float64):
    problem = network(hidden, features=20) if hidden else convolutional()
    size = sum(leaf.size for leaf in jax.tree.leaves(problem.params))
    assert (size < SMALL_ALONE) == (hidden != 60)
    waves, events = (
        simulation.replay(problem, trace_of("pure"), optax.adam(0.05), **way)
        for way in ({"width": 3}, {"waves": False})
    )
    assert_close(waves, events)


def test_constants_of_numpy_take_the_precision_that_is_switched_on():
    factors = np.array([1.0, 0.5, 0.2])

    def function(values):
        return factors * values

    with jax.enable_x64(True):
        assert quick(function)(jnp.ones(3)).dtype == jnp.float64
    found = quick(function)(jnp.ones(3))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, factors, rtol=1e-6)


LAYOUTS = ["NHWC HWIO NHWC", "NCHW OIHW NCHW", "CHWN IHWO HWNC", "NHWC OIHW HWNC"]


def arranged(rng, layout, sizes):
    return rng.standard_normal([sizes[axis] for axis in layout])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
def test_a_convolution_of_any_layout_is_that_of_jax(layout, strides, float64):
    rng, spec = np.random.default_rng(0), layout.split()
    left = arranged(rng, spec[0], {"N": 3, "H": 5, "W": 4, "C": 2})
    right = arranged(rng, spec[1], {"H": 3, "W": 2, "I": 2, "O": 4})
    padding = ((1, 0), (0, 2))
    numbers = jax.lax.conv_dimension_numbers(left.shape, right.shape, spec)
    call = {"window_strides": strides, "padding": padding, "dimension_numbers": numbers}
    found = convolution(jnp.asarray(left), jnp.asarray(right), call)
    wanted = jax.lax.conv_general_dilated(left, right, **call)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def gradients(params, images):
    def loss(params):
        axes = ("NHWC", "HWIO", "NHWC")
        hidden = jax.lax.conv_general_dilated(
            images, params, (2, 1), "SAME", dimension_numbers=axes
        )
        return jnp.sum(hidden**2)

    return jax.grad(loss)(params)


def test_the_gradient_of_a_kernel_is_turned_and_stays_what_it_was(float64):
    rng = np.random.default_rng(1)
    params, images = rng.standard_normal((3, 3, 2, 4)), rng.standard_normal((5, 6, 6, 2))
    equations = jax.make_jaxpr(gradients)(params, images).eqns
    assert sum(is_turned(equation) for equation in equations) == 1
    found = quick(gradients)(jnp.asarray(params), jnp.asarray(images))
    np.testing.assert_allclose(found, gradients(params, images), rtol=1e-12)
    rewritten = str(jax.make_jaxpr(jax.jit(quick(gradients)))(params, images))
    assert rewritten.count("conv_general_dilated") > str(
        jax.make_jaxpr(gradients)(params, images)
    ).count("conv_general_dilated")


def test_a_convolution_is_found_inside_of_inner_functions():
    images, kernel = jnp.ones((4, 1, 5, 5)), jnp.ones((1, 1, 3, 3))

    @jax.jit
    def inner(kernel, batch):
        return jax.lax.cond(
            jnp.sum(batch) > 0,
            lambda kernel: jnp.mean(jax.lax.conv(batch, kernel, (1, 1), "SAME") ** 2),
            lambda kernel: jnp.sum(kernel),
            kernel,
        )

    def loss(params, batch, key):
        return inner(params, batch)

    assert convolves(problems.from_loss(kernel, loss, images, n_workers=2))
    assert not convolves(problems.quadratic([[1.0]], [[1.0]]))


def draws(key, number):
    """Of every kind that gradients and clocks draw."""
    key = jax.random.fold_in(jax.random.fold_in(key, number), -number)
    key = jax.random.fold_in(key, 2**31 - 1)
    first, second = jax.random.split(key)
    return (
        jax.random.normal(first, (3,)),
        jax.random.randint(second, (4,), 0, 17),
        jax.random.bernoulli(first, 0.3, (2, 2)),
        jax.random.permutation(second, 7),
        jax.random.bits(first, (3,), jnp.uint8),
        jax.random.exponential(second),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "double"), [("threefry2x32", False), ("rbg", False), ("threefry2x32", True)]
)
def test_a_function_in_its_quick_form_draws_the_same(kind, double):
    with jax.enable_x64(double):
        keys = jax.random.split(jax.random.key(5, impl=kind), 3)
        plain, other = jax.vmap(draws), quick(jax.vmap(draws))
        for one, two in zip(plain(keys, jnp.arange(3)), other(keys, jnp.arange(3)), strict=True):
            assert one.dtype == two.dtype
            np.testing.assert_array_equal(one, two)
