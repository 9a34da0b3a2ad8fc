"""`delay_gradients` hands on the parameters at which the late gradient was taken."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles import steps as oracle

CURVATURE = np.array([1.0, 0.3, 0.05])
START = np.array([2.0, -1.0, 3.0])
RULES = {
    "compensate_delay": (
        lambda: optax.chain(steps.compensate_delay(0.4), optax.sgd(0.1)),
        oracle.compensated_change(0.1, 0.4),
    ),
    "picky_sgd": (
        lambda: steps.picky_sgd(0.35, optax.sgd(0.1)),
        oracle.distant_change(0.1, 0.35),
    ),
    "mix_models": (
        lambda: steps.mix_models(0.3, local_scale=0.5),
        oracle.mixed_change(0.3, 0.5),
    ),
}


def gradient(x):
    """Of a quadratic with a quartic term, so that curvature changes."""
    return CURVATURE * x + 0.02 * x**3


def path(optimizer, n_updates):
    """The iterates of an ordinary loop whose optimizer makes it late."""

    def body(carry, _):
        params, state = carry
        updates, state = optimizer.update(gradient(params), state, params)
        return (optax.apply_updates(params, updates), state), params

    start = jnp.asarray(START)
    run = jax.jit(lambda: jax.lax.scan(body, (start, optimizer.init(start)), length=n_updates))
    (last, state), iterates = run()
    return np.concatenate([iterates, last[None]]), state


@pytest.mark.parametrize("delay", [0, 1, 4])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("float64")
def test_a_loop_equals_its_twin(rule, delay):
    make, change = RULES[rule]
    iterates, _ = path(steps.delay_gradients(delay, make()), 30)
    expected = oracle.queued(gradient, START, delay, 30, change)
    np.testing.assert_allclose(iterates, expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_twin_of_drop_distant_drops_some_and_keeps_some():
    _, state = path(steps.delay_gradients(4, RULES["picky_sgd"][0]()), 30)
    assert 5 <= int(state.delayed_inner_state.dropped_gradients) <= 25


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("float64")
def test_a_loop_equals_the_replay_of_a_trace_in_which_all_gradients_are_as_late(rule):
    delay, n_updates = 3, 20
    trace = traces.asynchronous(clocks.constant(np.ones(delay + 1)), n_updates=n_updates)
    np.testing.assert_array_equal(trace.delay, np.minimum(np.arange(n_updates), delay))
    problem = problems.from_gradient(
        jnp.asarray(START), lambda x, worker, job, key: (jnp.zeros(()), gradient(x))
    )
    make, _ = RULES[rule]
    run = simulation.replay(problem, trace, make())
    # A loop starts with as many empty updates; in the trace the first gradients come at once.
    iterates, _ = path(steps.delay_gradients(delay, make()), n_updates + delay)
    np.testing.assert_allclose(run.params, iterates[-1], rtol=0, atol=1e-12)


def gap(updates, state, params=None, *, read_params, **extra):
    """What is left of a gradient that equals its parameters: nothing, if they belong together."""
    return jax.tree.map(lambda g, x: jnp.where(g == 0, 0, g - x), updates, read_params), state


@pytest.mark.parametrize(
    "late",
    [
        {"delay": 2},
        {"delay": {"a": 3, "b": 1}},
        {"delay": 4, "key": jax.random.key(0)},
    ],
    ids=["constant", "by leaf", "drawn"],
)
def test_every_gradient_comes_with_its_own_parameters(late):
    inner = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), gap)
    optimizer = steps.delay_gradients(**late, inner=inner)
    state = optimizer.init({"a": jnp.zeros(2), "b": jnp.zeros(())})
    update = jax.jit(optimizer.update)
    for k in range(12):
        params = {"a": jnp.array([k + 1.0, -k - 2.0]), "b": jnp.float32(k + 3)}
        left, state = update(params, state, params)
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(left))
    # A loop that takes gradients elsewhere says where.
    read = jax.tree.map(lambda leaf: leaf / 2, params)
    for _ in range(6):
        left, state = update(read, state, params, read_params=read)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(left))


@pytest.mark.parametrize(
    ("inner", "keeps"),
    [
        (steps.compensate_delay(0.1), True),
        (steps.picky_sgd(1.0), True),
        (optax.chain(steps.scale_by_adaptive_2(0.5), steps.compensate_delay(0.1)), True),
        (steps.drop_stale(3, optax.chain(optax.sgd(0.1), steps.compensate_delay(0.1))), True),
        (optax.masked(steps.compensate_delay(0.1), {"w": True, "b": False}), True),
        (steps.oldest_delay(steps.mix_models(0.5, local_scale=1.0), 2), True),
        (steps.mix_models(0.5), False),
        (steps.delay_adaptive_sgd(0.5), False),
        (steps.piag(0.5, 3), False),
        (optax.adam(0.1), False),
        (None, False),
    ],
)
def test_parameters_are_kept_only_where_they_are_asked_for(inner, keeps):
    params = {"w": jnp.ones(2), "b": jnp.ones(())}
    state = steps.delay_gradients(2, inner).init(params)
    assert (state.queued_params is not None) is keeps
    said = steps.delay_gradients(2, inner, keep_params=not keeps).init(params)
    assert (said.queued_params is None) is keeps


def test_the_state_with_parameters_can_be_walked():
    late = steps.delay_gradients(2, optax.chain(steps.compensate_delay(0.1), optax.adam(0.1)))
    state = late.init({"w": jnp.ones(2)})
    doubled = optax.tree.map_params(late, lambda leaf: 2 * leaf, state)
    assert doubled.queued_params["w"].shape == (3, 2)
