"""The token task: its transformer, its samples piece by piece, its checker."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems, rollouts
from asyncjax.rollouts.tasks import Prompt, empty_cache, next_scores
from tests.oracles import rollout_policies as oracle

pytestmark = pytest.mark.slow  # nearly every test compiles the transformer
KEY = jax.random.key(0)


def last_sum(symbols, count, n_symbols):
    inside = jnp.arange(symbols.size) < count
    total = jnp.sum(jnp.where(inside, symbols, 0)) % n_symbols
    return total[None].astype(symbols.dtype), jnp.ones_like(count)


TASKS = {"copying": rollouts.copying(), "last sum": last_sum}


def lively(problem, scale=1.0):
    """The problem with a policy far from uniform."""
    leaves, tree = jax.tree.flatten(problem.params)
    keys = jax.random.split(KEY, len(leaves))

    def moved(leaf, key):
        return leaf + scale * jax.random.normal(key, leaf.shape, leaf.dtype)

    params = jax.tree.unflatten(tree, map(moved, leaves, keys))
    return dataclasses.replace(problem, params=params)


def tiny(**more):
    """Two symbols and at most three tokens, so that every sample can be listed."""
    sizes = {"n_symbols": 2, "longest": 2, "max_length": 3, "width": 4, "depth": 2}
    return lively(rollouts.token_task(TASKS["copying"], key=KEY, **(sizes | more)))


def small(depth=1, **more):
    return lively(rollouts.token_task(TASKS["copying"], key=KEY, width=8, depth=depth, **more), 0.2)


@jax.jit
def draw(problem, keys):
    """A prompt and a sample of every key, and the key that the sample was drawn with."""

    def one(key):
        which, how = jax.random.split(key)
        prompt = problem.prompt(which)
        return prompt, problem.sample(problem.params, prompt, how), how

    return jax.vmap(one)(keys)


def drawn(problem):
    return draw(problem, jax.random.split(jax.random.key(1), 64))


def row(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


def double(problem):
    return dataclasses.replace(
        problem, params=jax.tree.map(lambda leaf: leaf.astype(jnp.float64), problem.params)
    )


def as_numpy(params):
    return jax.tree.map(np.asarray, params)


def padded(tokens, length):
    return jnp.array([*tokens, *[0] * (length - len(tokens))])


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_kept_keys_and_values_score_as_the_module_does(depth):
    model = problems.TinyGPT(vocabulary=5, width=8, depth=depth, heads=2, length=7)
    tokens = jnp.array([3, 0, 1, 4, 2, 0, 3])
    params = model.init(KEY, tokens[None])["params"]
    want = np.asarray(model.apply({"params": params}, tokens[None]))[0]
    cache, first = next_scores(model, params, empty_cache(model, params), 0, tokens[:3])
    cache, second = next_scores(model, params, cache, 3, tokens[3:5])
    _, third = next_scores(model, params, cache, 5, tokens[5:])
    np.testing.assert_allclose(np.concatenate([first, second, third]), want, atol=2e-6)


def test_samples_and_log_probabilities_equal_the_twin(float64):
    """Tokens of the twin: the largest of log-probability and Gumbel noise of fold_in(key, t)."""
    problem = double(small(2))
    params, n_written = as_numpy(problem.params), 5
    prompts, drafts, keys = drawn(problem)
    likely = jax.jit(jax.vmap(problem.log_probs, (None, 0, 0, 0)))
    log_probs = likely(problem.params, prompts, drafts.tokens, drafts.length)
    for i in range(12):
        prompt, draft = row(prompts, i), row(drafts, i)
        length, size = int(draft.length), int(prompt.size)
        read = oracle.asked(prompt.symbols[:size].tolist(), 4, 4)
        tokens = draft.tokens[:length].tolist()
        twin = oracle.token_log_probs(params, read, tokens, n_written, 2, 2)
        np.testing.assert_allclose(draft.log_probs[:length], twin, atol=1e-12)
        np.testing.assert_allclose(log_probs[i, :length], twin, atol=1e-12)
        assert not log_probs[i, length:].any()
        for t in range(length):
            scores = oracle.transformer_scores(params, [*read, *tokens[:t]], 2, 2)[:n_written]
            luck = jax.random.gumbel(jax.random.fold_in(keys[i], t), (n_written,))
            assert int(np.argmax(oracle.log_softmax(scores) + np.asarray(luck))) == tokens[t]


def test_a_sample_ends_with_the_end_token_or_is_full():
    problem = small()
    prompts, drafts, _ = drawn(problem)
    for i in range(64):
        draft = row(drafts, i)
        tokens = draft.tokens.tolist()
        length = tokens.index(4) + 1 if 4 in tokens else 10
        assert (int(draft.length), bool(draft.ended)) == (length, True)
        assert not any(tokens[length:])
        assert not draft.log_probs[length:].any()
        assert (draft.log_probs[:length] < 0).all()
    assert len(set(drafts.length.tolist())) > 4
    assert set(prompts.size.tolist()) == {1, 2, 3, 4}


def test_drawing_in_pieces_gives_the_same_bits():
    """In one program; another one may round its matrix products otherwise, in the last digit."""
    problem = small()
    prompts, whole, keys = drawn(problem)

    @jax.jit
    @jax.vmap
    def in_pieces(prompt, key, cuts):
        draft = problem.empty_draft()
        for begin, end in itertools.pairwise(cuts):
            draft = problem.extend(problem.params, prompt, draft, begin, end, key)
        return draft

    inner = np.sort(np.random.default_rng(0).integers(0, 11, (64, 2)), axis=1)
    cuts = np.concatenate([np.zeros((64, 1), int), inner, np.full((64, 1), 10)], axis=1)
    pieces = in_pieces(prompts, keys, jnp.asarray(cuts, jnp.int32))
    at_once = in_pieces(prompts, keys, jnp.tile(jnp.array([0, 10, 10, 10]), (64, 1)))
    jax.tree.map(np.testing.assert_array_equal, pieces, at_once)

    np.testing.assert_array_equal(pieces.tokens, whole.tokens)
    np.testing.assert_array_equal(pieces.length, whole.length)
    np.testing.assert_allclose(pieces.log_probs, whole.log_probs, rtol=1e-6)


def test_a_later_version_goes_on_with_its_own_view_of_the_tokens_before():
    """Tokens of the first piece stay; those of the second are as likely as the new policy says."""
    old, new = small(), lively(small(), 0.3).params
    prompts, _, keys = drawn(old)

    @jax.jit
    @jax.vmap
    def two_versions(prompt, key):
        first = old.extend(old.params, prompt, old.empty_draft(), 0, 3, key)
        second = old.extend(new, prompt, first, 3, 10, key)
        under = [old.log_probs(x, prompt, second.tokens, second.length) for x in (old.params, new)]
        return first, second, jnp.stack(under)

    first, second, under = two_versions(prompts, keys)
    np.testing.assert_array_equal(second.tokens[:, :3], first.tokens[:, :3])
    np.testing.assert_array_equal(second.log_probs[:, :3], first.log_probs[:, :3])
    np.testing.assert_allclose(second.log_probs[:, :3], under[:, 0, :3], atol=1e-5)
    np.testing.assert_allclose(second.log_probs[:, 3:], under[:, 1, 3:], atol=1e-5)
    assert int(second.length.max()) > 3
    assert np.abs(under[:, 0] - under[:, 1]).max() > 0.1


def test_all_samples_together_have_probability_one(float64):
    """And the score has mean zero, and the expected reward the gradient that it should have."""
    problem = double(tiny())
    samples = list(oracle.all_samples(3, 2, 3))
    assert len(samples) == 1 + 2 + 4 * 3
    tokens = jnp.stack([padded(sample, 3) for sample in samples])
    lengths = jnp.array([len(sample) for sample in samples])
    prompt = Prompt(jnp.array([1, 0]), jnp.int32(2))
    rewards = jax.vmap(lambda *sample: problem.reward(prompt, *sample))(tokens, lengths)

    def log_probs(params):
        return jax.vmap(lambda *sample: problem.log_probs(params, prompt, *sample).sum())(
            tokens, lengths
        )

    def check(params):
        likely, slopes = jnp.exp(log_probs(params)), jax.jacobian(log_probs)(params)
        value = jax.grad(lambda x: jnp.exp(log_probs(x)) @ rewards)(params)

        def mean(factor):
            return jax.tree.map(lambda slope: jnp.tensordot(factor, slope, 1), slopes)

        return likely, mean(likely), mean(likely * rewards), value

    likely, score, estimate, value = jax.jit(check)(problem.params)
    assert float(likely.sum()) == pytest.approx(1, abs=1e-12)
    for leaf in jax.tree.leaves(score):
        np.testing.assert_allclose(leaf, 0, atol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), estimate, value)


@pytest.mark.parametrize("kind", TASKS)
def test_rewards_equal_the_twin(kind):
    problem = rollouts.token_task(TASKS[kind], key=KEY, max_length=9, width=2)
    random = np.random.default_rng(1)
    prompts, rows, lengths, want = [], [], [], []
    for i in range(120):
        symbols = random.integers(0, 4, random.integers(1, 5)).tolist()
        answer = oracle.right_answer(kind, symbols, 4)
        tokens = [*answer, 4] if i % 3 else random.integers(0, 5, 9).tolist()
        if i % 3 == 1:  # right but for one place, or as it is
            tokens[random.integers(len(tokens))] = int(random.integers(0, 4))
        tokens = tokens[:9]
        tokens = tokens[: tokens.index(4) + 1] if 4 in tokens else tokens
        prompts.append(Prompt(padded(symbols, 4), jnp.int32(len(symbols))))
        rows.append(padded(tokens, 9))
        lengths.append(len(tokens))
        want.append(oracle.token_reward(answer, tokens, 4))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *prompts)
    got = jax.jit(jax.vmap(problem.reward))(stacked, jnp.stack(rows), jnp.array(lengths))
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert max(want) == 1
    assert min(want) < 0.1


def test_the_objective_is_the_mean_of_the_judged_samples():
    problem = small(n_judged=64)
    judge = jax.random.split(jax.random.key(2**31 - 1), 64)
    judged = problem.data
    sample = jax.jit(jax.vmap(problem.sample, (None, 0, 0)))
    drafts = sample(problem.params, judged, judge)
    rewards = jax.vmap(problem.reward)(judged, drafts.tokens, drafts.length)
    assert float(problem.objective(problem.params)) == pytest.approx(-float(rewards.mean()))
    metrics = problem.metrics(problem.params)
    assert float(metrics["length"]) == pytest.approx(float(drafts.length.mean()))
    assert float(metrics["solved"]) == pytest.approx(float((rewards == 1).mean()))
    assert float(problem.objective(problem.params)) == float(problem.objective(problem.params))


def test_equal_tasks_share_a_compilation():
    @jax.jit
    def draw(problem, key):
        traced.append(problem)
        return problem.sample(problem.params, problem.prompt(key), key)

    traced = []
    for seed in (0, 1):
        problem = rollouts.token_task(rollouts.copying(), key=jax.random.key(seed), width=2)
        draw(problem, KEY)
    assert len(traced) == 1


def test_a_task_of_ones_own():
    def backwards(symbols, count, n_symbols):
        places = (count - 1 - jnp.arange(symbols.size)) % symbols.size
        return symbols[places], count

    problem = rollouts.token_task(backwards, key=KEY, width=2)
    prompt = Prompt(jnp.array([2, 0, 1, 0]), jnp.int32(3))
    assert float(problem.reward(prompt, padded([1, 0, 2, 4], 10), 4)) == 1
