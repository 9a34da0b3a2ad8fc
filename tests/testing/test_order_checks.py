"""Every order of the library keeps the contract; broken ones are told in a sentence."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import orders, testing
from tests.registries.orders import REGISTRY


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_orders_of_the_library_keep_the_contract(name):
    testing.check_order(REGISTRY[name]())


def order_of(**changed):
    """Rotates one random order by one example every epoch; parts of it may be changed."""
    parts = {
        "init": lambda key: jax.random.permutation(key, jnp.arange(5, dtype=jnp.int32)),
        "permutation": lambda state: state,
        "observe": lambda state, positions, gradients: state,
        "end_epoch": lambda state: jnp.roll(state, 1),
    }
    return orders.Order(**{**parts, **changed})


def test_a_good_order_of_ones_own_passes():
    testing.check_order(order_of())
    testing.check_order(order_of(n=5, needs_gradients=False))
    testing.check_order(order_of(n=5, dim=2), n_epochs=1)


def sorting(state, positions, gradients):
    """Sums gradients for the next order: of rows that are padding, too."""
    return state[0], state[1] + jnp.nansum(jnp.where(positions < 0, 1.0, 0.0))


def counting_batches(state, positions, gradients):
    return state[0], state[1] + 1.0


def with_sum(observe):
    return order_of(
        init=lambda key: (jnp.arange(5, dtype=jnp.int32), jnp.float32(0.0)),
        permutation=lambda state: state[0],
        observe=observe,
        end_epoch=lambda state: (jnp.roll(state[0], state[1].astype(jnp.int32)), state[1]),
    )


counter = itertools.count()
BROKEN = {
    "with replacement": (
        order_of(permutation=lambda state: jnp.minimum(state, 3)),
        r"have each of 0 .. 4 once, got \[.*\] in epoch 0",
    ),
    "later an example is lost": (
        order_of(end_epoch=lambda state: state % 4),
        r"have each of 0 .. 4 once, got \[.*\] in epoch 1",
    ),
    "another number of examples": (
        order_of(n=6),
        r"permutation of the order must be int32\[6\], got int32\[5\] in epoch 0",
    ),
    "without the workers": (
        order_of(n=5, n_workers=2, counts=(5, 5)),
        r"permutation of the order must be int32\[2, 5\], got int32\[5\]",
    ),
    "turns within an epoch": (
        order_of(observe=lambda state, positions, gradients: jnp.roll(state, 1)),
        r"must stay as it is until end_epoch, got example \d and not \d at step \d of epoch 0",
    ),
    "a state beside the state": (
        order_of(end_epoch=lambda state: jnp.roll(state, next(counter) % 5)),
        r"must be the same every time it begins with one key, got example \d and then \d",
    ),
    "an init that fails": (
        order_of(init=lambda key: {}["n"]),
        r"init of the order must make a state of a key, got KeyError: 'n'",
    ),
    "an end that fails": (
        order_of(end_epoch=lambda state: state["order"]),
        r"end_epoch of the order must turn to the next epoch, got ",
    ),
    "a number of Python": (
        order_of(init=lambda key: (jnp.arange(5), 0), permutation=lambda state: state[0]),
        r"state\[1\] of the order must be a jax array .* after init, got no jax array, 0",
    ),
    "an array of NumPy": (
        order_of(init=lambda key: np.arange(5, dtype=np.int32)),
        r"state of the order must be a jax array .* after init, got no jax array, int32\[5\]",
    ),
    "a weak dtype": (
        order_of(init=lambda key: (jnp.arange(5), jnp.asarray(0)), permutation=lambda s: s[0]),
        r"state\[1\] of the order must be a jax array with a dtype of its own .*, got weak int32",
    ),
    "a list that grows": (
        order_of(
            init=lambda key: [jnp.arange(5)],
            permutation=lambda state: state[0],
            observe=lambda state, positions, gradients: [*state, gradients],
        ),
        r"observe of the order must keep state\[1\] None, as init makes it, got",
    ),
    "an array that grows": (
        order_of(
            permutation=lambda state: state[:5],
            end_epoch=lambda state: jnp.append(state, state[-1]),
        ),
        r"end_epoch of the order must keep state int32\[5\], as init makes it, got int32\[6\]",
    ),
    "another dtype": (
        order_of(
            permutation=lambda state: state.astype(jnp.int32),
            end_epoch=lambda state: state * 1.0,
        ),
        r"end_epoch of the order must keep state int32\[5\], as init makes it, got .*float32\[5\]",
    ),
    "an array that leaves jax": (
        order_of(end_epoch=lambda state: np.roll(np.asarray(state), 1)),
        r"end_epoch of the order must keep state int32\[5\], .* got no jax array, int32\[5\]",
    ),
    "a branch of Python": (
        order_of(end_epoch=lambda state: state[::-1] if state[0] > 2 else state),
        r"must go through jax.jit, jax.lax.scan and jax.vmap, got TracerBoolConversionError",
    ),
    "padding that is looked at": (
        with_sum(sorting),
        r"must be the same in a scan .* got example \d and not \d at step \d of epoch 1",
    ),
    "batches that are counted": (
        with_sum(counting_batches),
        r"must be the same in a scan .* got example \d and not \d at step \d of epoch 1",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_order_is_told(name):
    order, words = BROKEN[name]
    with pytest.raises(AssertionError, match=words):
        testing.check_order(order)
