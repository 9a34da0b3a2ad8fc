"""Tasks whose data a policy makes: a bandit, all of it known, and answers of a small transformer.

A bandit's objective is a sum and no estimate: a bias from actions of old policies shows in where a
run ends. In a token task a policy reads symbols, writes an answer that can be checked, and stops:
with the end token, or at its T-th token where it never ends. The end token counts as a token. What
is asked of a prompt has one right answer.

Tokens are drawn from a `TinyGPT` one by one, with keys and values of earlier places kept, so a
further token costs one place. The scores are those of the module itself, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.checks import real, whole
from asyncjax.problems import arrays
from asyncjax.problems.networks import TinyGPT, initial
from asyncjax.problems.problem import PyTree
from asyncjax.problems.transfers import explicit
from asyncjax.rollouts.rollout_problem import (
    Bound,
    Draft,
    RolloutProblem,
    empty_draft,
    placed,
    wide_type,
)

Answer = tuple[jax.Array, jax.Array]  # int32[A], of which so many are asked: int32[]
Task = Callable[[jax.Array, jax.Array, int], Answer]  # of symbols, how many, and m
_JUDGE = 2**31 - 1  # seed of the samples by which every policy is evaluated


class BanditData(NamedTuple):
    """What is known of every context."""

    rewards: jax.Array  # float[C, A], r_ca, the mean reward of an action
    chances: jax.Array  # float[C], p_c, of a context; their sum is 1


class Context(NamedTuple):
    """A bandit's prompt."""

    context: jax.Array  # int32[], 0..C-1
    luck: jax.Array  # float[A], what every action brings here beside its mean; no policy reads it


def _context(noise: float, data: BanditData, key: jax.Array) -> Context:
    """A context by its chance, with the noise of its rewards."""
    which, luck = jax.random.split(key)
    context = jax.random.categorical(which, jnp.log(data.chances)).astype(jnp.int32)
    kind, shape = data.rewards.dtype, data.rewards.shape[1:]
    luck = noise * jax.random.normal(luck, shape, kind) if noise else jnp.zeros(shape, kind)
    return Context(context, luck)


def _log_policy(params: jax.Array, context: Any = slice(None)) -> jax.Array:
    """Log pi(a | c), float[A] of one context, or float[C, A] of all."""
    return jax.nn.log_softmax(params[context])


def _draw_action(
    data: BanditData, params: Any, prompt: Context, draft: Draft, begin: Any, end: Any, key: Any
) -> Draft:
    """Draws the action, if begin <= 0 < end."""
    log_probs = _log_policy(params, prompt.context)
    action = jax.random.categorical(jax.random.fold_in(key, 0), log_probs)
    drawn = (jnp.asarray(begin) <= 0) & (jnp.asarray(end) > 0) & ~draft.ended
    draft = placed(draft, 0, action, log_probs[action], drawn)
    return draft._replace(ended=draft.ended | drawn)


def _log_prob_of_action(
    data: BanditData, params: jax.Array, prompt: Context, tokens: jax.Array, length: Any
) -> jax.Array:
    """Log pi(action | context), float[1]; 0 of a sample without tokens."""
    log_probs = _log_policy(params, prompt.context)
    return jnp.where(jnp.arange(1) < length, log_probs[tokens], 0)


def _reward_of_action(data: BanditData, prompt: Context, tokens: Any, length: Any) -> jax.Array:
    """r_ca and the luck of a; 0 of a sample without tokens."""
    action = tokens[0]
    reward = data.rewards[prompt.context, action] + prompt.luck[action]
    return jnp.where(jnp.asarray(length) > 0, reward, 0)


def _minus_expected_reward(data: BanditData, params: jax.Array) -> jax.Array:
    """Summed over contexts and actions."""
    chosen = jnp.exp(_log_policy(params))
    return -jnp.sum(data.chances[:, None] * chosen * data.rewards)


def _regret(data: BanditData, params: jax.Array) -> jax.Array:
    """By how much the best actions' expected reward exceeds the policy's."""
    best = jnp.sum(data.chances * jnp.max(data.rewards, 1))
    return best + _minus_expected_reward(data, params)


@explicit
def contextual_bandit(rewards: Any, *, noise: float = 0.0, start: Any = None) -> RolloutProblem:
    r"""Returns a contextual bandit of C equally likely contexts, with a softmax policy.

    .. math:: f(x) = -\frac1C \sum_{c,a} \pi_x(a | c) \, r_{ca}, \qquad
              \pi_x(\cdot | c) = \mathrm{softmax}(x_c)

    Args:
        rewards: float[C, A], r_ca, the mean reward of each action in each context.
        noise: Standard deviation of what is added to each action's reward, drawn with the prompt:
            samples of one prompt share it.
        start: The initial policy, scores float[C, A]; None: zeros, all actions equally likely.

    Returns:
        The problem, with T = 1, the exact objective, and the metric `regret`: how much expected
        reward the policy lacks. A softmax reaches 0 only in the limit.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from asyncjax import rollouts
        >>> problem = rollouts.contextual_bandit([[1.0, 0.0], [0.0, 3.0]])
        >>> float(problem.metrics(problem.params)["regret"])
        1.0
        >>> float(problem.objective(jnp.array([[99.0, 0.0], [0.0, 99.0]])))
        -2.0
    """
    rewards = arrays.matrix("rewards", rewards, "[contexts, actions]")
    noise, shares = real("noise", noise, least=0), 1 / rewards.shape[0]
    start = arrays.starting_point(start, rewards.shape, 0.0, rewards.dtype)
    data = BanditData(rewards, jnp.full(rewards.shape[0], shares, rewards.dtype))
    sample = Bound(_context, noise), _draw_action, _log_prob_of_action, _reward_of_action
    return RolloutProblem(start, data, *sample, _minus_expected_reward, (("regret", _regret),))


def copying() -> Task:
    """Returns the task to write the symbols of the prompt again.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import rollouts
        >>> answer, length = rollouts.copying()(jnp.array([2, 0, 1]), jnp.int32(3), 4)
        >>> answer.tolist(), int(length)
        ([2, 0, 1], 3)
    """
    return _copied


def _copied(symbols: jax.Array, count: jax.Array, n_symbols: int) -> Answer:
    return symbols, count


class Prompt(NamedTuple):
    """The symbols that an answer is asked for."""

    symbols: jax.Array  # int32[P], 0..m-1; what stands from `size` on is not read
    size: jax.Array  # int32[], n, 1..P, how many there are


class Cache(NamedTuple):
    """What attention needs of earlier places, in every block; L places, H heads of size d."""

    keys: jax.Array  # float[depth, L, H, d]
    contents: jax.Array  # float[depth, L, H, d]


@dataclass(frozen=True)
class TokenTask:
    """What is asked, in which tokens: 0..m-1 symbols, m the end, m + 2 blank, m + 3 the start."""

    task: Task
    model: TinyGPT
    n_symbols: int
    shortest: int
    longest: int
    max_length: int

    @property
    def n_written(self) -> int:
        """How many tokens the policy may write: the symbols and the end."""
        return self.n_symbols + 1

    def prompt(self, data: Any, key: jax.Array) -> Prompt:
        """Symbols, all equally likely, and a number of them, all equally likely."""
        which, how_many = jax.random.split(key)
        symbols = jax.random.randint(which, (self.longest,), 0, self.n_symbols)
        count = jax.random.randint(how_many, (), self.shortest, self.longest + 1)
        inside = jnp.arange(self.longest) < count
        return Prompt(jnp.where(inside, symbols, 0).astype(jnp.int32), count.astype(jnp.int32))

    def asked(self, prompt: Prompt) -> jax.Array:
        """What the policy reads before it writes, int32[P + 1]: symbols, blanks, the start."""
        blank = self.n_symbols + 2
        symbols = jnp.where(jnp.arange(self.longest) < prompt.size, prompt.symbols, blank)
        return jnp.append(symbols, blank + 1).astype(jnp.int32)

    def log_policy(self, scores: jax.Array) -> jax.Array:
        """The log-probabilities of what may be written, of scores over all tokens."""
        return jax.nn.log_softmax(scores[..., : self.n_written])

    def extend(
        self, data: Any, params: Any, prompt: Prompt, draft: Draft, begin: Any, end: Any, key: Any
    ) -> Draft:
        """Draws the tokens at begin <= t < end one by one, unless the sample has ended."""
        asked, model = self.asked(prompt), self.model
        cache, scores = next_scores(model, params, empty_cache(model, params), 0, asked)
        places = jnp.arange(self.max_length, dtype=jnp.int32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, places)
        luck = jax.vmap(lambda each: jax.random.gumbel(each, (self.n_written,)))(keys)

        def draw(carry: Any, turn: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
            (draft, cache, scores), (t, luck) = carry, turn
            log_probs = self.log_policy(scores.astype(draft.log_probs.dtype))
            token = jnp.argmax(log_probs + luck)  # as likely as `log_probs` say
            drawn = (t >= begin) & (t < end) & ~draft.ended
            draft = placed(draft, t, token, log_probs[token], drawn)
            last = (token == self.n_symbols) | (t == self.max_length - 1)
            draft = draft._replace(ended=draft.ended | (drawn & last))
            place, written = asked.size + t, draft.tokens[t][None]
            cache, scores = next_scores(model, params, cache, place, written)
            return (draft, cache, scores[0]), None

        carry = draft, cache, scores[-1]
        (draft, _, _), _ = jax.lax.scan(draw, carry, (places, luck))
        return draft

    def log_probs(
        self, data: Any, params: PyTree, prompt: Prompt, tokens: jax.Array, length: Any
    ) -> jax.Array:
        """Log-probabilities of a sample's tokens, all places at once, float[T]."""
        asked = self.asked(prompt)
        inputs = jnp.concatenate([asked, tokens[:-1].astype(jnp.int32)])
        scores = jnp.asarray(self.model.apply({"params": params}, inputs[None]))[0]
        scores = scores[asked.size - 1 :].astype(wide_type(params))
        log_probs = jnp.take_along_axis(self.log_policy(scores), tokens[:, None], 1)[:, 0]
        return jnp.where(jnp.arange(tokens.size) < length, log_probs, 0)

    def marks(self, prompt: Prompt, tokens: jax.Array, length: Any) -> tuple[Any, Any, Any]:
        """How many tokens of a sample are right, are written, and are asked for."""
        answer, size = self.task(prompt.symbols, prompt.size, self.n_symbols)
        places = jnp.arange(answer.size + 1)
        wanted = jnp.where(places < size, jnp.append(answer, 0), -1)
        wanted = jnp.where(places == size, self.n_symbols, wanted)
        place = jnp.arange(tokens.size)
        right = (place < length) & (tokens == wanted[jnp.minimum(place, answer.size)])
        right &= place <= answer.size
        return right.sum(), jnp.asarray(length), jnp.int32(size) + 1

    def reward(self, data: Any, prompt: Prompt, tokens: jax.Array, length: Any) -> jax.Array:
        """The share of tokens that are right."""
        right, written, asked = self.marks(prompt, tokens, length)
        return right / jnp.maximum(written, asked)

    def judged(self, prompts: Prompt, params: PyTree) -> Draft:
        """A sample of each of the evaluated prompts [n_judged], always with the same randomness."""
        keys = jax.random.split(jax.random.key(_JUDGE), prompts.size.shape[0])
        empty = empty_draft(self.max_length, params)
        draw = jax.vmap(self.extend, (None, None, 0, None, None, None, 0))
        return draw((), params, prompts, empty, 0, self.max_length, keys)

    def objective(self, prompts: Prompt, params: PyTree) -> jax.Array:
        """Minus the mean reward of the evaluated samples, at least -1."""
        drafts = self.judged(prompts, params)
        reward = jax.vmap(self.reward, (None, 0, 0, 0))
        return -jnp.mean(reward((), prompts, drafts.tokens, drafts.length))

    def solved(self, prompts: Prompt, params: PyTree) -> jax.Array:
        """The share of the evaluated samples that are the right answer."""
        drafts = self.judged(prompts, params)
        right, written, asked = jax.vmap(self.marks)(prompts, drafts.tokens, drafts.length)
        return jnp.mean((right == written) & (right == asked), dtype=wide_type(params))

    def mean_length(self, prompts: Prompt, params: PyTree) -> jax.Array:
        """The mean length of the evaluated samples, 1..T, end tokens included."""
        return jnp.mean(self.judged(prompts, params).length, dtype=wide_type(params))


@explicit
def token_task(
    task: Task,
    *,
    key: jax.Array,
    n_symbols: int = 4,
    shortest: int = 1,
    longest: int = 4,
    max_length: int | None = None,
    width: int = 32,
    depth: int = 1,
    heads: int = 2,
    n_judged: int = 128,
) -> RolloutProblem:
    r"""Returns a token task: a transformer reads symbols and writes an answer that can be checked.

    .. math:: r = \frac{\#\{k : y_k = a_k\}}{\max(|y|, |a|)}

    y is what was written, a the right answer, both with their end token. The policy is a `TinyGPT`
    that starts near the uniform distribution; a trained one stops where the answer does, and then
    long prompts make long samples.

    Args:
        task: What is asked: `copying()`, or a pure, traceable and hashable function
            `(symbols, count, n_symbols) -> (answer, length)` of int32[P], of which the first
            `count` are the prompt; the answer is int32[A], of which the first `length` are asked,
            each in 0..n_symbols-1.
        key: A typed key for the initial policy and for the evaluated prompts.
        n_symbols: m, the different symbols, at least 2.
        shortest: Symbols of the shortest prompt, at least 1.
        longest: P, symbols of the longest; each number between is as likely.
        max_length: T, tokens of the longest sample, at least A + 1; None: 2 A + 2.
        width: Of the transformer, a multiple of `heads`.
        depth: Its blocks.
        heads: Of its attention.
        n_judged: The fixed prompts by which a policy is evaluated, one sample each, always with the
            same keys.

    Returns:
        The problem. Its tokens are 0..m-1, and m for the end. Its objective is minus the mean
        reward of the evaluated samples, an estimate that is the same for the same policy; its
        metrics are `solved`, the share of them that are right, and `length`, their mean length.
        None of the three has a useful derivative.

    Note:
        A sample is drawn in T steps of one token each, with keys and values kept: at a time each
        sample holds 2 x depth x (P + 1 + T) x width numbers.

    Example:
        >>> import jax
        >>> from asyncjax import rollouts
        >>> problem = rollouts.token_task(rollouts.copying(), key=jax.random.key(0))
        >>> prompt = problem.prompt(jax.random.key(1))
        >>> answer = prompt.symbols[:int(prompt.size)].tolist() + [4]
        >>> tokens = jax.numpy.array(answer + [0] * (10 - len(answer)))
        >>> float(problem.reward(prompt, tokens, len(answer)))
        1.0
        >>> problem.max_length, [name for name, _ in problem.metrics_of]
        (10, ['solved', 'length'])

    Reference:
        Williams, Machine Learning 8, 1992 (REINFORCE, the gradient that such samples give).
    """
    n_symbols, shortest = whole("n_symbols", n_symbols, 2), whole("shortest", shortest)
    longest, n_judged = whole("longest", longest, shortest), whole("n_judged", n_judged)
    asked = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((longest,), ())]
    answer, _ = jax.eval_shape(lambda some, count: task(some, count, n_symbols), *asked)
    max_length = 2 * answer.size + 2 if max_length is None else max_length
    max_length = whole("max_length", max_length, answer.size + 1)
    length = longest + 1 + max_length
    model = TinyGPT(n_symbols + 4, width=width, depth=depth, heads=heads, length=length)
    sizes = n_symbols, shortest, longest, max_length
    of = TokenTask(task, model, *sizes)
    start, judge = jax.random.split(key)
    params, _ = initial(model, start, jnp.zeros((1, length), jnp.int32))
    judged = jax.vmap(lambda each: of.prompt((), each))(jax.random.split(judge, n_judged))
    methods = TokenTask.prompt, TokenTask.extend, TokenTask.log_probs, TokenTask.reward
    metrics = {"solved": TokenTask.solved, "length": TokenTask.mean_length}
    return RolloutProblem(
        *(params, judged, *(Bound(method, of) for method in methods)),
        objective_of=Bound(TokenTask.objective, of),
        metrics_of=tuple((name, Bound(metric, of)) for name, metric in metrics.items()),
        max_length=max_length,
    )


def empty_cache(model: TinyGPT, params: PyTree) -> Cache:
    """The cache before the first token."""
    shape = model.depth, model.length, model.heads, model.width // model.heads
    zero = jnp.zeros(shape, params["positions"].dtype)
    return Cache(zero, zero)


def next_scores(
    model: TinyGPT, params: PyTree, cache: Cache, place: Any, tokens: jax.Array
) -> tuple[Cache, jax.Array]:
    """Appends tokens int32[n] at `place`, and scores what follows each, float[n, vocabulary].

    The cache is filled below `place`, an int32 scalar of at most L - n, and then below place + n.
    The layers are those of the module, by the names that it gave them.
    """

    def norm(index: int, values: jax.Array) -> jax.Array:
        layer = {"params": params[f"LayerNorm_{index}"]}
        return jnp.asarray(nn.LayerNorm().apply(layer, values))

    def dense(index: int, values: jax.Array) -> jax.Array:
        layer = params[f"Dense_{index}"]
        return values @ layer["kernel"] + layer["bias"]

    def put(old: jax.Array, rows: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(old, rows, place, 0)

    embedding = params["Embed_0"]["embedding"]
    places = place + jnp.arange(tokens.size)
    values = embedding[tokens] + params["positions"][places]
    keys, contents = [], []
    for block in range(model.depth):
        parts = dense(4 * block, norm(2 * block, values))
        parts = parts.reshape(tokens.size, 3, model.heads, -1)
        keys.append(put(cache.keys[block], parts[:, 1]))
        contents.append(put(cache.contents[block], parts[:, 2]))
        mixed = _attention(parts[:, 0], keys[-1], contents[-1], places)
        values = values + dense(4 * block + 1, mixed)
        inner = nn.gelu(dense(4 * block + 2, norm(2 * block + 1, values)))
        values = values + dense(4 * block + 3, inner)
    scores = norm(2 * model.depth, values) @ embedding.T
    if model.depth:
        cache = Cache(jnp.stack(keys), jnp.stack(contents))
    return cache, scores


def _attention(queries: jax.Array, keys: Any, contents: Any, places: Any) -> jax.Array:
    """float[n, width]: each of n queries attends to all places up to its own."""
    n, _, size = queries.shape
    scores = jnp.einsum("nhd,shd->hns", queries, keys) / size**0.5
    past = jnp.arange(keys.shape[0]) <= places[:, None]
    shares = nn.softmax(jnp.where(past, scores, jnp.finfo(scores.dtype).min), axis=-1)
    return jnp.einsum("hns,shd->nhd", shares, contents).reshape(n, -1)
