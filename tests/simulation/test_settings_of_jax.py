"""Verbs and problems under JAX's stricter settings."""

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, orders, problems, simulation, steps, stragglers, traces

F = np.random.default_rng(0).normal(size=(12, 3))
T = F.sum(1)
SETTINGS = {
    "rank": lambda: jax.numpy_rank_promotion("raise"),
    "transfers": lambda: jax.transfer_guard("disallow"),
}
MAKERS = {
    "logistic": lambda: problems.logistic(F, np.sign(T), n_workers=3, l2=0.1),
    "least_squares": lambda: problems.least_squares(F, T, n_workers=3),
    "quadratic": lambda: problems.quadratic(np.ones((2, 3)), np.ones((2, 3)), noise=0.1),
    "from_gradient": lambda: problems.from_gradient(np.ones(3), lambda x, w, j, key: (x.sum(), x)),
    "from_loss": lambda: problems.from_loss(
        np.zeros(3), lambda x, batch, key: (batch[0] @ x - batch[1]) ** 2, (F, T), n_workers=3
    ),
    "local_steps": lambda: problems.local_steps(
        problems.least_squares(F, T, n_workers=3), n_steps=2, step_size=0.1
    ),
    "adversarial": lambda: problems.adversarial(problems.least_squares(F, T, n_workers=3), [1]),
}


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", MAKERS)
def test_problems_are_made(setting, name):
    with SETTINGS[setting]():
        problem = MAKERS[name]()
    assert problem.n_workers in (2, 3, None)


KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 2)
CLOCK = clocks.constant([1.0, 2.0, 3.0])
TWO = traces.asynchronous(CLOCK, n_updates=6, collect=traces.wait_for(2))
ONE = traces.asynchronous(CLOCK, n_updates=6)
LS = problems.least_squares(F, T, n_workers=3)
RULE, POLICY = steps.scale_by_adaptive_1(0.9), stragglers.fixed(2)
ALONE = problems.least_squares(F, T, n_workers=1, batch=problems.cyclic(1))
GRAB = orders.grab(12, 3)


def replay(trace=TWO, aggregator=None, **options):
    update = simulation.Update(optax.adam(0.1), aggregator=aggregator)
    return simulation.replay(LS, trace, update, **options)


VERBS = {
    "waves": lambda: repr(replay()),
    "waves of single gradients": lambda: replay(ONE),
    "pieces": lambda: replay(progress=lambda now: None),
    "events": lambda: replay(waves=False),
    "aggregator": lambda: replay(aggregator=steps.median()),
    "sweep": lambda: simulation.sweep(LS, TWO, optax.sgd, [0.1, 0.2], keys=KEYS),
    "apart": lambda: simulation.sweep(LS, [TWO, ONE], optax.sgd, [0.1], keys=KEYS, together=False),
    "policy": lambda: simulation.run_policy(
        LS, CLOCK, POLICY, optax.sgd(0.1), n_updates=4, key=KEY
    ),
    "epochs": lambda: simulation.run_epochs(ALONE, GRAB, optax.sgd(0.1), n_epochs=2),
    "piag": lambda: simulation.replay_piag(LS, ONE, RULE),
    "blocks": lambda: simulation.replay_block_descent(LS, ONE, RULE, n_blocks=2),
    "torn": lambda: simulation.replay_block_descent(LS, ONE, RULE, n_blocks=2, torn=0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", VERBS)
def test_verbs_run(setting, name):
    with SETTINGS[setting]():
        jax.block_until_ready(VERBS[name]())


@pytest.mark.slow
def test_stricter_guards_are_obeyed():
    with jax.transfer_guard("disallow_explicit"), pytest.raises(Exception, match="Disallowed"):
        problems.logistic(F, np.sign(T), n_workers=3)


@pytest.mark.slow
def test_gradients_under_the_settings_have_the_same_bits():
    plain = replay().params
    with SETTINGS["rank"](), SETTINGS["transfers"]():
        strict = replay().params
    np.testing.assert_array_equal(plain, strict)
