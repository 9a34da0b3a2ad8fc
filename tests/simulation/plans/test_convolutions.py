"""Convolutions with their axes turned are the convolutions that they were."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from asyncjax.simulation.cpu_rewrites import convolution, convolves, is_turned, quick

LAYOUTS = ["NHWC HWIO NHWC", "NCHW OIHW NCHW", "CHWN IHWO HWNC", "NHWC OIHW HWNC"]


def slow(left, right, layout, padding, strides):
    """A convolution from its definition, in NumPy loops; the result as N H W C."""
    spec = layout.split()
    x = np.transpose(left, [spec[0].index(axis) for axis in "NHWC"])
    w = np.transpose(right, [spec[1].index(axis) for axis in "HWIO"])
    x = np.pad(x, ((0, 0), *padding, (0, 0)))
    height = (x.shape[1] - w.shape[0]) // strides[0] + 1
    width = (x.shape[2] - w.shape[1]) // strides[1] + 1
    out = np.zeros((len(x), height, width, w.shape[3]))
    for row in range(height):
        for column in range(width):
            top, side = row * strides[0], column * strides[1]
            part = x[:, top : top + w.shape[0], side : side + w.shape[1]]
            out[:, row, column] = np.einsum("nhwi,hwio->no", part, w)
    return out


def arranged(rng, layout, sizes):
    return rng.standard_normal([sizes[axis] for axis in layout])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
def test_a_convolution_of_any_layout_is_that_of_the_definition(layout, strides, float64):
    rng, spec = np.random.default_rng(0), layout.split()
    left = arranged(rng, spec[0], {"N": 3, "H": 5, "W": 4, "C": 2})
    right = arranged(rng, spec[1], {"H": 3, "W": 2, "I": 2, "O": 4})
    padding = ((1, 0), (0, 2))
    call = {
        "window_strides": strides,
        "padding": padding,
        "dimension_numbers": jax.lax.conv_dimension_numbers(left.shape, right.shape, spec),
    }
    made = convolution(jnp.asarray(left), jnp.asarray(right), call)
    made = np.transpose(made, [spec[2].index(axis) for axis in "NHWC"])
    np.testing.assert_allclose(made, slow(left, right, layout, padding, strides), atol=1e-12)


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
    made = quick(gradients)(jnp.asarray(params), jnp.asarray(images))
    np.testing.assert_allclose(made, gradients(params, images), rtol=1e-12)
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
