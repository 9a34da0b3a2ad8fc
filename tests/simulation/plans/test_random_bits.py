"""Threefry written out gives the very bits and keys of `jax.random`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.simulation.cpu_rewrites import quick
from asyncjax.simulation import cpu_rewrites

KEYS = jax.random.split(jax.random.key(3), (2, 3))


def same_keys(one, other):
    np.testing.assert_array_equal(jax.random.key_data(one), jax.random.key_data(other))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3)])
def test_bits_and_split_are_those_of_jax(shape):
    for key in (jax.random.key(0), KEYS[1, 2]):
        np.testing.assert_array_equal(cpu_rewrites.bits(key, shape), jax.random.bits(key, shape))
        same_keys(cpu_rewrites.parted(key, shape), jax.random.split(key, shape))


def test_every_key_has_its_own_bits():
    many = cpu_rewrites.bits(KEYS, (4,))
    one_by_one = [[jax.random.bits(key, (4,)) for key in row] for row in KEYS]
    np.testing.assert_array_equal(many, one_by_one)


@pytest.mark.parametrize("data", [0, 1, 2**31 - 1])
def test_folding_is_that_of_jax(data):
    own = cpu_rewrites.folded(jax.random.key(9), jnp.uint32(data))
    same_keys(own, jax.random.fold_in(jax.random.key(9), data))


def draws(key, number):
    """Of every kind that gradients and clocks draw."""
    key = jax.random.fold_in(jax.random.fold_in(key, number), -number)
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
@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_a_function_in_its_quick_form_draws_the_same(kind):
    keys = jax.random.split(jax.random.key(5, impl=kind), 3)
    plain, other = jax.vmap(draws), quick(jax.vmap(draws))
    for one, two in zip(plain(keys, jnp.arange(3)), other(keys, jnp.arange(3)), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_in_double_precision_too(float64):
    keys = jax.random.split(jax.random.key(5), 3)
    for one, two in zip(
        jax.vmap(draws)(keys, jnp.arange(3)),
        quick(jax.vmap(draws))(keys, jnp.arange(3)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)
