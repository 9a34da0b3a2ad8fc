"""Which corrections are unbiased, on the bandit and on a chain, where all sums can be made."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import rollouts
from asyncjax.rollouts import advantages, corrections
from tests.rollouts.chain import LONGEST, TOKENS, chain

COUNT = 20_000


def far(params, seed=5, size=0.6):
    """A policy some steps away."""
    return params + size * np.random.default_rng(seed).normal(size=params.shape)


def errors_of(problem, correction, exact):
    """By how many deviations the mean gradient of many old samples is off, one for each score."""
    params, old = problem.params, far(problem.params)
    keys = jax.random.split(jax.random.key(2), (2, COUNT))

    def one(prompt_key, key):
        prompt = problem.prompt(prompt_key)
        draft = problem.sample(old, prompt, key)
        reward = problem.reward(prompt, draft.tokens, draft.length)

        def loss(params):
            new = problem.log_probs(params, prompt, draft.tokens, draft.length)[None]
            rest = (draft.log_probs[None], jax.lax.stop_gradient(new), reward[None])
            return correction(new, *rest, draft.length[None])

        return jax.grad(loss)(params)

    grads = np.asarray(jax.jit(jax.vmap(one))(*keys), np.float64)
    spread = grads.std(0) / np.sqrt(COUNT)
    return np.abs(grads.mean(0) - exact) / np.maximum(spread, 1e-12)


def bandit():
    rewards = np.random.default_rng(1).normal(size=(3, 3))
    start = np.random.default_rng(2).normal(size=(3, 3))
    return rollouts.contextual_bandit(rewards, noise=0.3, start=start)


UNBIASED = {
    "tokens": corrections.truncated_importance(),
    "whole samples": corrections.truncated_importance(whole_samples=True),
    "decoupled": corrections.decoupled(0.2),
}
BIASED = {
    "none": corrections.none(),
    "a cap of 1": corrections.truncated_importance(1.0),
    "clip": corrections.ppo_clip(0.1),
    "decoupled, a cap of 1": corrections.decoupled(0.2, 1.0),
}


ALL = {**UNBIASED, **BIASED, "weights": corrections.effective_sample_size()}


@pytest.mark.slow
@pytest.mark.parametrize("name", {**UNBIASED, **BIASED})
def test_without_weights_or_with_a_cap_gradients_are_biased(name):
    problem = bandit()
    exact = jax.grad(problem.objective)(problem.params)
    error = errors_of(problem, ALL[name], exact).max()
    assert error < 4.5 if name in UNBIASED else error > 10  # of nine numbers: one in 10^4 seeds


def expected_reward(problem):
    """The chain's expected reward, summed over all samples there are."""
    samples = []
    for tokens in itertools.product(range(TOKENS), repeat=LONGEST):
        end = tokens.index(0) + 1 if 0 in tokens else LONGEST
        samples.append((*tokens[:end], *(0,) * (LONGEST - end), end))
    table = jnp.array(sorted(set(samples)))
    tokens, length = table[:, :-1], table[:, -1]

    def value(params):
        def of(prompt):
            each = jax.vmap(problem.log_probs, (None, None, 0, 0))
            chances = jnp.exp(each(params, prompt, tokens, length).sum(1))
            worth = jax.vmap(problem.reward, (None, 0, 0))(prompt, tokens, length)
            return jnp.sum(chances), jnp.sum(chances * worth)

        total, worth = jax.vmap(of)(jnp.arange(TOKENS))
        return jnp.mean(worth), total

    return value


@pytest.mark.slow
def test_weights_of_whole_samples_are_unbiased_and_those_of_tokens_are_not():
    problem = chain()
    value = expected_reward(problem)
    grad, total = jax.grad(value, has_aux=True)(problem.params)
    np.testing.assert_allclose(total, 1.0, rtol=1e-5)
    whole = corrections.truncated_importance(whole_samples=True)
    assert errors_of(problem, whole, -np.asarray(grad)).max() < 4.5
    tokens = corrections.truncated_importance()
    assert errors_of(problem, tokens, -np.asarray(grad)).max() > 10


def arrays(seed=0, shape=(6, 4)):
    rng = np.random.default_rng(seed)
    logs = (jnp.asarray(-rng.exponential(1.0, shape), jnp.float32) for _ in range(3))
    gain = jnp.asarray(rng.normal(size=shape[0]), jnp.float32)
    return (*logs, gain, jnp.asarray(rng.integers(1, shape[1] + 1, shape[0]), jnp.int32))


@pytest.mark.parametrize("name", ALL)
def test_what_stands_behind_the_end_of_a_sample_does_not_count(name):
    new, behaviour, proximal, gain, length = arrays()
    beyond = jnp.arange(4) >= length[:, None]
    value, grad = jax.value_and_grad(ALL[name])(new, behaviour, proximal, gain, length)
    for wild in (99.0, -99.0):
        spoilt = (jnp.where(beyond, wild, new), jnp.where(beyond, -wild, behaviour))
        other = jax.value_and_grad(ALL[name])(*spoilt, proximal, gain, length)
        np.testing.assert_array_equal(other[0], value)
        np.testing.assert_array_equal(other[1], grad)
    assert not np.asarray(grad)[np.asarray(beyond)].any()


@pytest.mark.parametrize("name", {**UNBIASED, **BIASED})
def test_where_all_policies_are_one_every_correction_has_the_plain_gradient(name):
    new, _, _, gain, length = arrays()
    one = jax.grad(ALL[name])(new, new, new, gain, length)
    plain = jax.grad(corrections.none())(new, new, new, gain, length)
    np.testing.assert_allclose(one, plain, rtol=1e-6)


def test_decoupled_is_truncated_importance_in_one_pass_and_ppo_about_the_behaviour_policy():
    new, behaviour, _, gain, length = arrays()
    grad = jax.grad(corrections.decoupled(0.2, 1.7))(new, behaviour, new, gain, length)
    other = jax.grad(corrections.truncated_importance(1.7))(new, behaviour, new, gain, length)
    np.testing.assert_allclose(grad, other, rtol=1e-6)
    loss = corrections.decoupled(0.2)(new, behaviour, behaviour, gain, length)
    other = corrections.ppo_clip(0.2)(new, behaviour, behaviour, gain, length)
    np.testing.assert_allclose(loss, other, rtol=1e-6)


def test_the_effective_sample_size_by_hand():
    size = corrections.effective_sample_size()
    new, _, _, gain, length = arrays()
    assert float(size(new, new, new, gain, length)) == 1.0
    one = jnp.zeros((4, 1)).at[0].set(200.0)  # one sample has all the weight; nothing overflows
    zero, many = jnp.zeros((4, 1)), jnp.ones(4, jnp.int32)
    assert float(size(one, zero, zero, many, many)) == 0.25


SHARES = {  # of the gradient that is left
    "plain": [1.0] * 4,
    "leave_one_out": [1.0] * 4,
    "group_others": [1.0] * 4,
    "batch_mean": [0.75] * 4,
    "group_mean": [2 / 3] * 3 + [0.0],
}


@pytest.mark.parametrize("name", SHARES)
def test_a_mean_that_a_sample_is_part_of_shrinks_and_others_are_unbiased(name):
    """Mean over all draws of two rewards: A_i keeps E[A_i (1 - p)] = E[R_i (1 - p)] of each."""
    prompts, value = jnp.array([0, 0, 0, 1]), getattr(advantages, name)()
    rewards = jnp.array(list(itertools.product([0.0, 1.0], repeat=4)))
    gains = jax.vmap(value, (0, None))(rewards, prompts)
    # with chance 1/2 each, grad log of the chance of a 1 is 4 (R - 1/2) / 2
    score = 2 * (rewards - 0.5)
    left = jnp.mean(rewards * score, 0) * jnp.array(SHARES[name])
    np.testing.assert_allclose(jnp.mean(gains * score, 0), left, atol=1e-6)


@pytest.mark.slow
def test_scaled_group_means_have_deviation_1():
    rewards, prompts = jnp.array([1.0, 3.0, 9.0, 9.0]), jnp.array([0, 0, 1, 1])
    scaled = advantages.group_mean(scaled=True)(rewards, prompts)
    np.testing.assert_allclose(scaled, [-1.0, 1.0, 0.0, 0.0], atol=1e-5)
