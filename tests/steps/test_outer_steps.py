"""Late pseudo-gradients at an outer optimizer: HeLoCo's correction, CGAD's weight."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps
from tests.oracles import outer_steps

RATE, BETA = 0.3, 0.8
PLAIN = {"keep": 0.5, "turn": 0.5, "shrink": 1.0, "most": 1.0, "caution": 1.0}


def gradients(n_updates=60, seed=0):
    """Of a direction that all share, and as much noise: all three cases happen."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=4) + 1.5 * rng.normal(size=(n_updates, 4))


def moves_of(optimizer, grads, **extra):
    optimizer = optax.with_extra_args_support(optimizer)

    def step(state, row):
        grad, extra = row
        update, state = optimizer.update(grad, state, **extra)
        return state, update

    return jax.lax.scan(step, optimizer.init(grads[0]), (jnp.asarray(grads), extra))[1]


@pytest.mark.parametrize(
    "changed",
    [{}, {"caution": 0.0, "most": 0.5}, {"keep": 0.0}, {"keep": 1.0, "turn": 3.0}, {"shrink": 0.4}],
)
def test_heloco_equals_the_plain_loop(float64, changed):
    grads, correction = gradients(), PLAIN | changed
    moves = moves_of(steps.heloco(RATE, BETA, **correction), grads)
    expected = outer_steps.heloco(grads, rate=RATE, beta=BETA, **correction)
    np.testing.assert_allclose(moves, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "off", [{"keep": -1.0}, {"turn": 0.0, "shrink": 0.0}, {"most": 0.0, "turn": 0.0}]
)
def test_heloco_that_corrects_nothing_is_nesterov_on_an_average(float64, off):
    """m = (1 - beta) times the trace of optax, so the step is g + beta (1 - beta) trace."""
    grads = gradients()
    moves = moves_of(steps.heloco(RATE, BETA, **(PLAIN | off)), grads)
    buffer = -moves_of(optax.sgd(1.0, BETA), grads)
    np.testing.assert_allclose(moves, -RATE * (grads + BETA * (1 - BETA) * buffer), rtol=1e-12)


def one_correction(delta, momentum, **correction):
    """What is left of a pseudo-gradient, read off the momentum that it was averaged into."""
    optimizer = steps.heloco(1.0, 0.5, **(PLAIN | correction))
    state = optimizer.init(momentum)._replace(momentum=momentum)
    _, after = optimizer.update(delta, state)
    return (after.momentum - 0.5 * momentum) / 0.5


def test_what_is_against_the_momentum_is_removed_and_nothing_else(float64):
    delta, momentum = jnp.array([-3.0, 4.0]), jnp.array([2.0, 0.0])
    left = one_correction(delta, momentum, shrink=1e9, caution=0.0)
    np.testing.assert_allclose(left, [0.0, 4.0], atol=1e-12)
    half = one_correction(delta, momentum, shrink=1e9, most=0.5, caution=0.0)
    np.testing.assert_allclose(half, [-1.5, 4.0], rtol=1e-12)


def test_what_lies_across_keeps_its_length_and_is_turned(float64):
    delta, momentum = jnp.array([0.0, 2.0]), jnp.array([5.0, 0.0])
    left = one_correction(delta, momentum, turn=0.5, caution=0.0)
    np.testing.assert_allclose(left, np.sqrt(2.0) * np.ones(2), rtol=1e-12)
    whole = one_correction(delta, momentum, turn=9.0, caution=0.0)
    np.testing.assert_allclose(whole, [2.0, 0.0], atol=1e-12)


def test_what_is_aligned_is_left_alone():
    delta, momentum = jnp.array([2.0, 1.0]), jnp.array([5.0, 0.0])
    np.testing.assert_allclose(one_correction(delta, momentum), delta, rtol=1e-6)


def test_short_pseudo_gradients_are_trusted_less(float64):
    momentum, delta = jnp.array([1.0, 0.0]), jnp.array([-1e-3, 0.0])
    wary, rash = (one_correction(delta, momentum, caution=by)[0] for by in (1.0, 0.0))
    assert rash == 0.0
    np.testing.assert_allclose(wary, -1e-3 * (1 - 1e-3 / 1.001), rtol=1e-9)


def test_every_leaf_has_an_angle_of_its_own():
    optimizer = steps.heloco(1.0, 0.5, caution=0.0)
    momentum = {"with": jnp.array([1.0, 0.0]), "against": jnp.array([1.0, 0.0])}
    delta = {"with": jnp.array([1.0, 0.5]), "against": jnp.array([-1.0, 0.0])}
    _, after = optimizer.update(delta, optimizer.init(momentum)._replace(momentum=momentum))
    np.testing.assert_allclose(after.momentum["with"], [1.0, 0.25])
    np.testing.assert_allclose(after.momentum["against"], [0.5, 0.0])


def test_zeros_neither_turn_nor_make_nan():
    optimizer = steps.heloco(1.0, 0.5)
    zero = jnp.zeros(3)
    for grad in (zero, jnp.ones(3), zero):
        move, state = optimizer.update(grad, optimizer.init(zero))
        assert np.isfinite(move).all()
        assert np.isfinite(state.momentum).all()


def test_the_gated_weight_is_its_formula(float64):
    delays = np.arange(12.0)
    weight = steps.cgad(0.2, cutoff=8)(jnp.asarray(delays))
    gate = [0.5 + 0.5 * np.cos(np.pi * d / 8) if d < 8 else 0.0 for d in delays]
    np.testing.assert_allclose(weight, np.exp(-0.2 * delays) * gate, rtol=1e-12, atol=1e-15)
    assert weight[0] == 1.0
    assert (weight[8:] == 0.0).all()
    assert (np.diff(weight) <= 0).all()


def gated_adam(decay, cutoff):
    return optax.chain(steps.scale_by_delay(steps.cgad(decay, cutoff)), optax.adam(0.1))


def test_gated_adam_without_a_delay_or_a_gate_is_adam(float64):
    grads, delays = gradients(), np.random.default_rng(2).integers(0, 9, 60)
    plain = moves_of(optax.adam(0.1), grads)
    fresh = moves_of(gated_adam(0.2, 8), grads, delay=np.zeros(60, int))
    # Not to the bit: a compiler may join the weight, which is 1, with what follows.
    np.testing.assert_allclose(fresh, plain, rtol=1e-12)
    open_gate = moves_of(gated_adam(0.0, np.inf), grads, delay=delays)
    np.testing.assert_allclose(open_gate, plain, rtol=1e-12)


def test_gated_adam_is_adam_on_weighted_gradients(float64):
    grads, delays = gradients(), np.random.default_rng(2).integers(0, 9, 60)
    weight = np.exp(-0.1 * delays) * (1 + np.cos(np.pi * np.minimum(1, delays / 6))) / 2
    moves = moves_of(gated_adam(0.1, 6), grads, delay=delays)
    expected = moves_of(optax.adam(0.1), weight[:, None] * grads)
    np.testing.assert_allclose(moves, expected, rtol=1e-9)
