"""The bandit: its objective by enumeration, its optimum, its samples and their scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import rollouts
from tests.oracles import rollout_policies as oracle

REWARDS = np.array([[1.0, 0.0, 0.5], [-1.0, 2.0, 0.0]])
SCORES = np.array([[0.3, -0.2, 1.0], [0.0, 0.4, -0.7]])
KEY = jax.random.key(3)


def table(**more):
    return rollouts.contextual_bandit(REWARDS, start=SCORES, **more)


def test_objective_is_the_sum_over_contexts_and_actions(float64):
    problem = table()
    value = oracle.bandit_value(SCORES, REWARDS)
    np.testing.assert_allclose(problem.objective(problem.params), -value, rtol=1e-12)
    slope = oracle.bandit_slope(SCORES, REWARDS)
    np.testing.assert_allclose(jax.grad(problem.objective)(problem.params), -slope, atol=1e-12)


def test_log_probabilities_equal_the_twin(float64):
    problem = table()
    for context in range(2):
        prompt = problem.prompt(KEY)._replace(context=jnp.int32(context))
        twin = oracle.log_softmax(SCORES[context])
        for action in range(3):
            got = problem.log_probs(problem.params, prompt, jnp.array([action]), 1)
            np.testing.assert_allclose(got, twin[action : action + 1], rtol=1e-12)
            assert problem.log_probs(problem.params, prompt, jnp.array([action]), 0)[0] == 0


def test_the_best_actions_have_no_regret():
    problem = table()
    best = jnp.asarray(np.where(REWARDS.max(1, keepdims=True) == REWARDS, 50.0, 0.0))
    assert float(problem.metrics(best)["regret"]) == pytest.approx(0, abs=1e-6)
    assert float(problem.objective(best)) == pytest.approx(-1.5, abs=1e-6)
    twin = oracle.bandit_value(SCORES, REWARDS)
    assert float(problem.metrics(problem.params)["regret"]) == pytest.approx(1.5 - twin, abs=1e-6)


def many(problem, n):
    """The prompts and samples of n keys."""

    @jax.jit
    def draw(problem, keys):
        def one(key):
            which, how = jax.random.split(key)
            prompt = problem.prompt(which)
            return prompt, problem.sample(problem.params, prompt, how)

        return jax.vmap(one)(keys)

    return draw(problem, jax.random.split(KEY, n))


def test_samples_are_as_likely_as_the_policy_says():
    problem, n = table(), 40_000
    prompts, drafts = many(problem, n)
    assert drafts.ended.all()
    assert (drafts.length == 1).all()
    share = float((prompts.context == 1).mean())
    assert abs(share - 0.5) < 5 * (0.5 * 0.5 / n) ** 0.5
    for context in range(2):
        chosen = np.asarray(drafts.tokens[:, 0])[np.asarray(prompts.context) == context]
        likely = np.exp(oracle.log_softmax(SCORES[context]))
        shares = np.bincount(chosen, minlength=3) / len(chosen)
        assert np.all(abs(shares - likely) < 5 * (likely * (1 - likely) / len(chosen)) ** 0.5)


def test_a_reward_is_the_mean_and_the_luck_of_the_prompt():
    problem = table(noise=0.5)
    prompt = problem.prompt(KEY)
    for action in range(3):
        reward = problem.reward(prompt, jnp.array([action]), 1)
        mean = REWARDS[int(prompt.context), action]
        assert float(reward) == pytest.approx(mean + float(prompt.luck[action]), abs=1e-6)
    assert float(problem.reward(prompt, jnp.array([1]), 0)) == 0
    quiet = table().prompt(KEY)
    assert int(quiet.context) == int(prompt.context)  # the same contexts with noise and without
    assert not quiet.luck.any()


def test_nothing_is_drawn_outside_the_piece_or_after_the_end():
    problem = table()
    prompt, empty = problem.prompt(KEY), problem.empty_draft()
    nothing = problem.extend(problem.params, prompt, empty, 0, 0, KEY)
    jax.tree.map(np.testing.assert_array_equal, nothing, empty)
    once = problem.extend(problem.params, prompt, nothing, 0, 1, KEY)
    jax.tree.map(np.testing.assert_array_equal, once, problem.sample(problem.params, prompt, KEY))
    again = problem.extend(problem.params, prompt, once, 0, 1, jax.random.key(9))
    jax.tree.map(np.testing.assert_array_equal, again, once)
