"""Checks: what is read, what is refused, and in which words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.checks import one_key, real, whole, within


@pytest.mark.parametrize("value", [3, np.int8(3), np.array(3), jnp.int32(3)])
def test_whole_reads_integers_of_any_kind(value):
    assert whole("n", value) == 3
    assert type(whole("n", value)) is int
    with pytest.raises(ValueError, match=r"n must be an integer of at least 4, got 3"):
        whole("n", value, 4)
    with pytest.raises(ValueError, match=r"n must be an integer in 1 \.\. 2, got 3"):
        whole("n", value, 1, 2)


@pytest.mark.parametrize("value", [True, 2.0, "3", None, np.array([3]), jnp.float32(3)])
def test_whole_refuses_other_kinds(value):
    with pytest.raises(TypeError, match="n must be an integer of at least 1, got"):
        whole("n", value)


def test_whole_refuses_traced_integers():
    with pytest.raises(TypeError, match="n must be a static integer"):
        jax.jit(lambda n: whole("n", n))(3)


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.array(1), jnp.array(1.0)])
def test_real_reads_numbers_of_any_kind(value):
    assert type(real("x", value)) is float
    assert real("x", np.inf, least=1, finite=False) == np.inf


@pytest.mark.parametrize("value", [True, "1", None, [1.0], 1j, np.ones(1)])
def test_real_refuses_other_kinds(value):
    with pytest.raises(TypeError, match="x must be a concrete real number"):
        real("x", value)


@pytest.mark.parametrize(
    ("bounds", "value", "words"),
    [
        ({"above": 0}, 0, "positive and finite"),
        ({"least": 0}, -1, "at least 0 and finite"),
        ({"above": 1}, 1, "larger than 1 and finite"),
        ({"above": 0, "most": 1}, 1.5, r"in \(0, 1\]"),
        ({"least": 0, "below": 1}, 1, r"in \[0, 1\)"),
        ({}, np.inf, "finite"),
        ({}, np.nan, "finite"),
        ({"least": 1, "finite": False}, np.nan, "at least 1"),
    ],
)
@pytest.mark.parametrize("kind", [float, np.float32, jnp.float32, lambda x: [1e-3, x]])
def test_bounds_are_told_in_words(bounds, value, words, kind):
    with pytest.raises(ValueError, match=f"x must be {words}, got"):
        within("x", kind(value), **bounds) if kind is not float else real("x", value, **bounds)


def test_within_returns_what_it_was_given_and_names_the_entry():
    given = [1.0, 2.0]
    assert within("x", given, above=0) is given
    with pytest.raises(ValueError, match="got -1 at index 1, 0"):
        within("x", np.array([[1, 2], [-1, 3]]), above=0)


@pytest.mark.parametrize("value", [None, "x", [1, [2]], True, [1j], object()])
def test_within_wants_real_numbers(value):
    with pytest.raises(TypeError, match="x must be made of real numbers"):
        within("x", value)


def test_within_wants_integers_where_it_is_told():
    with pytest.raises(TypeError, match="k must be made of integers"):
        within("k", 2.0, integer=True)
    with pytest.raises(ValueError, match="k must be an integer of at least 1, got 0"):
        within("k", 0, least=1, integer=True)
    with pytest.raises(ValueError, match=r"k must be integers in \[1, 4\], got 5 at index 1"):
        within("k", [1, 5], least=1, most=4, integer=True)


def test_traced_values_pass():
    assert jax.jit(lambda x: within("x", x, above=0))(-1.0) == -1.0
    assert jax.jit(lambda x: within("x", [x, 1.0], above=0)[0])(-1.0) == -1.0
    assert jax.jit(lambda key: one_key("key", key))(jax.random.key(1)) == jax.random.key(1)


KEYS = jax.random.split(jax.random.key(0))


@pytest.mark.parametrize("value", [0, None, "key", jax.random.PRNGKey(0), jnp.zeros(2), KEYS])
def test_one_key_wants_a_typed_key(value):
    with pytest.raises(TypeError, match="key must be one typed key"):
        one_key("key", value)
