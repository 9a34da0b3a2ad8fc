"""Delayed Nesterov: its limits, what a block of arrivals comes to, a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from tests.oracles import steps as oracle

RATE, BETA = 0.3, 0.8


def gradients(n_updates=24, seed=0):
    return np.random.default_rng(seed).normal(size=(n_updates, 3))


def moves_of(optimizer, grads):
    def step(state, grad):
        update, state = optimizer.update(grad, state)
        return state, update

    return jax.lax.scan(step, optimizer.init(grads[0]), jnp.asarray(grads))[1]


@pytest.mark.parametrize(("every", "share"), [(1, 0.0), (1, 1.0), (4, 0.0), (4, 0.1), (4, 0.25)])
def test_equals_the_plain_loop(float64, every, share):
    grads = gradients()
    moves = moves_of(steps.delayed_nesterov(RATE, BETA, every=every, share=share), grads)
    expected = oracle.delayed_nesterov(grads, rate=RATE, beta=BETA, every=every, share=share)
    np.testing.assert_allclose(moves, expected, rtol=1e-12, atol=1e-14)


def test_every_arrival_is_nesterov_momentum(float64):
    grads = gradients()
    moves = moves_of(steps.delayed_nesterov(RATE, BETA, every=1), grads)
    expected = moves_of(optax.sgd(RATE, BETA, nesterov=True), grads)
    np.testing.assert_allclose(moves, expected, rtol=1e-12)


def test_every_nth_model_is_that_of_nesterov_on_means(float64):
    grads, every = gradients(), 4
    moves = moves_of(steps.delayed_nesterov(RATE, BETA, every=every), grads)
    means = grads.reshape(-1, every, 3).mean(axis=1)
    expected = moves_of(optax.sgd(RATE, BETA, nesterov=True), means)
    np.testing.assert_allclose(moves.reshape(-1, every, 3).sum(axis=1), expected, rtol=1e-12)


def test_the_shares_of_a_momentum_sum_to_its_step(float64):
    """One gradient, then nothing: its momentum's step is taken once a block, however shared."""
    grads, every = np.zeros((24, 3)), 4
    grads[0] = 1.0
    ends = [
        moves_of(steps.delayed_nesterov(RATE, BETA, every=every, share=share), grads).sum(axis=0)
        for share in (0.0, 0.25)
    ]
    # All but the last block's momentum has been spent whole: what is left is its later shares.
    left = RATE * BETA * BETA ** (24 // every - 1) / every * (every - 1) * 0.25
    np.testing.assert_allclose(ends[1] - ends[0], left, rtol=1e-12)


def test_without_momentum_it_is_plain_sgd(float64):
    grads = gradients()
    moves = moves_of(steps.delayed_nesterov(RATE, 0.0, every=4, share=0.2), grads)
    np.testing.assert_allclose(moves, -RATE / 4 * grads, rtol=1e-12)
