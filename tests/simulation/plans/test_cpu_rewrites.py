"""Small batched products in another form: the same numbers, and only where they are small."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, traces
from asyncjax.simulation.cpu_rewrites import quick
from asyncjax.simulation.loops.flat import SMALL_ALONE

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
    for made in jax.tree.leaves(quick(batched)(rows, slopes)):
        np.testing.assert_allclose(
            made, np.einsum("...ri,...ro->...io", rows, slopes), rtol=0, atol=1e-14
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
@pytest.mark.parametrize("hidden", [3, 60])  # flat, and not
def test_a_network_in_waves_equals_one_event_at_a_time(hidden, float64):
    features, labels = rng.standard_normal((24, 20)), rng.integers(0, 2, 24)
    problem = problems.classification(
        problems.MLP(hidden=(hidden,), classes=2),
        features,
        labels,
        n_workers=4,
        batch=problems.cyclic(3),
        key=jax.random.key(0),
    )
    size = sum(leaf.size for leaf in jax.tree.leaves(problem.params))
    assert (size < SMALL_ALONE) == (hidden == 3)
    trace = traces.asynchronous(clocks.constant([1.0, 1.5, 2.0, 4.0]), n_updates=40)
    waves, events = (
        simulation.replay(problem, trace, optax.adam(0.05), width=3 if waves else None, waves=waves)
        for waves in (True, False)
    )
    for one, other in zip(jax.tree.leaves(waves), jax.tree.leaves(events), strict=False):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    assert jax.tree.structure(waves.opt_state) == jax.tree.structure(events.opt_state)


def test_constants_of_numpy_take_the_precision_that_is_switched_on():
    factors = np.array([1.0, 0.5, 0.2])

    def function(values):
        return factors * values

    with jax.enable_x64(True):
        assert quick(function)(jnp.ones(3)).dtype == jnp.float64
    found = quick(function)(jnp.ones(3))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, factors, rtol=1e-6)
