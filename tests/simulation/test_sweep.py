"""Sweeps of trees of parameters, and of sizes that are told."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import problems, simulation
from tests.simulation.shared import quadratic, trace_of


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 9000])
def test_the_optimizer_of_a_sweep_sees_the_callers_pytree(size):
    start = {"w": jnp.ones((size, 2)), "b": jnp.zeros(2)}

    def gradient(params, worker, job, key):
        return jnp.sum(params["b"]), jax.tree.map(lambda leaf: 0.5 * leaf + worker, params)

    problem = problems.from_gradient(start, gradient, objective=lambda p: jnp.sum(p["w"] ** 2))

    def rule(step):
        decay = optax.add_decayed_weights(0.1, mask={"w": True, "b": False})
        return optax.chain(decay, optax.adam(step))

    trace = trace_of("pure", n_updates=20)
    keys = jax.random.split(jax.random.key(0), 1)
    run = simulation.sweep(problem, trace, rule, [0.01, 0.1], keys=keys)
    alone = simulation.replay(problem, trace, rule(0.1), key=keys[0], width=3)
    swept = jax.tree.map(lambda leaf: leaf[0, 1], (run.params, run.opt_state))
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
        swept,
        (alone.params, alone.opt_state),
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda sizes: replace(sizes, slots=1),
            ValueError,
            "hold the traces, which need slots=.*=1",
        ),
        (lambda sizes: replace(sizes, width=2), ValueError, "need width=1, got width=2"),
        (lambda sizes: replace(sizes, waves=9.5), TypeError, "waves must be an integer"),
    ],
)
def test_sizes_that_do_not_hold_the_traces(change, error, message):
    (problem, _), keys = quadratic(), jax.random.split(jax.random.key(0), 1)
    with pytest.raises(error, match=message):
        simulation.sweep(
            problem, trace_of("pure"), optax.sgd, [0.1], keys=keys, width=1, sizes=change
        )
