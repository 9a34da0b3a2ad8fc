"""Replays of rollouts equal a plain loop that keeps every version; at age 0 they are on-policy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import problems, simulation, traces
from asyncjax.simulation import advantages, corrections
from tests.oracles import rollout_runs as twin
from tests.simulation.rollouts.chain import LONGEST, chain, start, trace_of

KEY = jax.random.key(3)
INF = float("inf")
CASES = {
    "none": (corrections.none, ("none",), {}),
    "tokens": (lambda: corrections.truncated_importance(1.2), ("tokens", 1.2), {}),
    "tokens without a cap": (corrections.truncated_importance, ("tokens", INF), {}),
    "whole samples": (
        lambda: corrections.truncated_importance(1.5, whole_samples=True),
        ("whole", 1.5),
        {},
    ),
    "clip": (lambda: corrections.ppo_clip(0.1), ("clip", 0.1), {}),
    "clip in parts": (
        lambda: corrections.ppo_clip(0.1),
        ("clip", 0.1),
        {"epochs": 2, "minibatches": 2},
    ),
    "decoupled": (lambda: corrections.decoupled(0.1, 1.3), ("decoupled", 0.1, 1.3), {}),
    "decoupled in parts": (
        lambda: corrections.decoupled(0.05, 1.3),
        ("decoupled", 0.05, 1.3),
        {"epochs": 3, "minibatches": 2},
    ),
}
STEP = 1.5


def same(one, other):
    """Whether two trees are equal, bit by bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def rates(run):
    """What a run says of the batches of its steps, [R, 3]."""
    records = run.records
    return np.stack([records.reward, records.length, records.effective_sample_size], 1)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("in_flight", [False, True])
def test_a_replay_equals_the_loop_that_keeps_every_version(name, in_flight):
    correction, own, parts = CASES[name]
    trace = trace_of(in_flight=in_flight, transfer_time=0.2)
    assert trace.age.max() >= 3
    if in_flight:
        assert (trace.end_version > trace.start_version)[trace.members].sum() > 5
    run = simulation.replay_rollouts(
        chain(), trace, optax.sgd(STEP), key=KEY, correction=correction(), record_every=1, **parts
    )
    table, told = twin.train(
        start(), trace, KEY, longest=LONGEST, step_size=STEP, correction=own, **parts
    )
    np.testing.assert_allclose(run.params, table, rtol=0, atol=1e-12)
    np.testing.assert_allclose(rates(run), told, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.records.loss, -told[:, 0], rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "name", ["plain", "batch_mean", "leave_one_out", "group_mean", "group_others"]
)
def test_advantages_and_the_scale_of_a_step_equal_the_loop(name):
    trace = trace_of(traces.admission.ready_first(), group=2, n_steps=6)
    run = simulation.replay_rollouts(
        chain(),
        trace,
        optax.sgd(STEP),
        key=KEY,
        correction=corrections.truncated_importance(2.0),
        advantage=getattr(advantages, name)(),
        step_scale=corrections.effective_sample_size(),
        record_every=1,
    )
    table, told = twin.train(
        start(),
        trace,
        KEY,
        longest=LONGEST,
        step_size=STEP,
        correction=("tokens", 2.0),
        advantage=name,
        scaled=True,
    )
    assert told[:, 2].min() < 0.99
    np.testing.assert_allclose(run.params, table, rtol=0, atol=1e-12)
    np.testing.assert_allclose(rates(run), told, rtol=0, atol=1e-12)


def plain_loop(problem, optimizer, key, n_steps, batch):
    """On-policy policy gradient as one writes it down: no trace, no buffer, no correction."""

    @jax.jit
    def step(params, opt_state, numbers):
        folded = jax.vmap(jax.random.fold_in, (None, 0))
        prompts = jax.vmap(problem.prompt)(folded(jax.random.fold_in(key, 0), numbers))
        keys = folded(jax.random.fold_in(key, 1), numbers)
        drafts = jax.vmap(problem.sample, (None, 0, 0))(params, prompts, keys)
        rewards = jax.vmap(problem.reward)(prompts, drafts.tokens, drafts.length)
        advantage = rewards - jnp.mean(rewards)

        def loss(params):
            each = jax.vmap(problem.log_probs, (None, 0, 0, 0))
            log_probs = each(params, prompts, drafts.tokens, drafts.length)
            return -jnp.mean(advantage * jnp.sum(log_probs, 1))

        updates, opt_state = optimizer.update(jax.grad(loss)(params), opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params, opt_state = problem.params, optimizer.init(problem.params)
    for number in range(n_steps):
        numbers = jnp.arange(number * batch, (number + 1) * batch)
        params, opt_state = step(params, opt_state, numbers)
    return params, opt_state


def bandit():
    rewards = np.random.default_rng(1).normal(size=(4, 3))
    return problems.contextual_bandit(rewards, noise=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [bandit, chain])
def test_at_age_0_it_is_on_policy_training_to_the_bit(make):
    problem, optimizer = make(), optax.adam(0.05)
    trace = trace_of(traces.admission.synchronous(), n_steps=25)
    assert trace.age.max() == 0
    run = simulation.replay_rollouts(
        problem, trace, optimizer, key=KEY, advantage=advantages.batch_mean()
    )
    # the members of a step are the next of the numbers, in some order: here in their own
    assert np.array_equal(trace.members, np.arange(100).reshape(25, 4))
    assert same((run.params, run.opt_state), plain_loop(problem, optimizer, KEY, 25, 4))
