r"""A small token task: a policy reads symbols, writes an answer that can be checked, and stops.

A sample ends with the end token, or with its T-th token where the policy never ends it: how long it
is is up to the policy. It is worth

.. math:: r = \frac{\#\{k : z_k = a_k\}}{\max(|z|, |a|)} - \lambda \frac{|y|}{T},

where y is all that was written, z is y without fillers and a the right answer; the end token counts
as a token of each. Without partial credit the fraction is replaced by 1 if z = a, and 0 otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asyncjax.checks import flag, function_of, one_key, real, whole
from asyncjax.problems.networks import TinyGPT, initial
from asyncjax.problems.problem import PyTree
from asyncjax.problems.transfers import explicit
from asyncjax.rollouts.answers import Task
from asyncjax.rollouts.decoding import Cache, empty_cache, next_scores
from asyncjax.rollouts.rollout_problem import (
    Draft,
    RolloutProblem,
    empty_draft,
    placed,
    wide_type,
)

_JUDGE = 2**31 - 1  # seed of the samples by which every policy is judged


class Prompt(NamedTuple):
    """The symbols that an answer is asked for."""

    symbols: jax.Array  # int32[P], 0..m-1; what stands from `size` on is not read
    size: jax.Array  # int32[], n, 1..P, how many there are


class TokenData(NamedTuple):
    """What the functions of a token task read."""

    judged: Prompt  # [n_judged, ...], the prompts of the objective


@dataclass(frozen=True)
class TokenTask:
    """What is asked, in which tokens: 0..m-1 symbols, then end, filler, blank, start."""

    task: Task
    model: TinyGPT
    n_symbols: int
    shortest: int
    longest: int
    max_length: int
    filler: bool
    partial: bool
    length_cost: float

    @property
    def end(self) -> int:
        """The token that ends a sample."""
        return self.n_symbols

    @property
    def n_written(self) -> int:
        """How many tokens the policy may write: the symbols, the end, perhaps the filler."""
        return self.n_symbols + 1 + self.filler

    @property
    def blank(self) -> int:
        """What the policy reads beyond the symbols of a prompt; the next is what starts an answer.

        A filler has its number, read or not, so a policy has the same shapes with it and without.
        """
        return self.n_symbols + 2

    def asked(self, prompt: Prompt) -> jax.Array:
        """Returns what the policy reads before it writes, int32[P + 1]."""
        inside = jnp.arange(self.longest) < prompt.size
        symbols = jnp.where(inside, prompt.symbols, self.blank)
        return jnp.append(symbols, self.blank + 1).astype(jnp.int32)

    def log_policy(self, scores: jax.Array) -> jax.Array:
        """Returns the log-probabilities of what may be written, of scores over all tokens."""
        return jax.nn.log_softmax(scores[..., : self.n_written])


@dataclass(frozen=True)
class DrawPrompt:
    """Symbols, all equally likely, and a number of them, all equally likely."""

    of: TokenTask

    def __call__(self, data: PyTree, key: jax.Array) -> Prompt:
        """Returns a prompt."""
        which, how_many = jax.random.split(key)
        symbols = jax.random.randint(which, (self.of.longest,), 0, self.of.n_symbols)
        count = jax.random.randint(how_many, (), self.of.shortest, self.of.longest + 1)
        inside = jnp.arange(self.of.longest) < count
        return Prompt(jnp.where(inside, symbols, 0).astype(jnp.int32), count.astype(jnp.int32))


@dataclass(frozen=True)
class DrawTokens:
    """One token after the other, with keys and values of the places before kept."""

    of: TokenTask

    def __call__(
        self,
        data: TokenData,
        params: PyTree,
        prompt: Prompt,
        draft: Draft,
        begin: Any,
        end: Any,
        key: jax.Array,
    ) -> Draft:
        """Draws the tokens at begin <= t < end, unless the sample has ended."""
        of, asked = self.of, self.of.asked(prompt)
        cache, scores = next_scores(of.model, params, empty_cache(of.model, params), 0, asked)
        places = jnp.arange(of.max_length, dtype=jnp.int32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, places)
        luck = jax.vmap(lambda one: jax.random.gumbel(one, (of.n_written,)))(keys)

        def draw(
            carry: tuple[Draft, Cache, jax.Array], turn: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[Draft, Cache, jax.Array], None]:
            (draft, cache, scores), (t, luck) = carry, turn
            log_probs = of.log_policy(scores.astype(draft.log_probs.dtype))
            token = jnp.argmax(log_probs + luck)  # as likely as `log_probs` say
            drawn = (t >= begin) & (t < end) & ~draft.ended
            draft = placed(draft, t, token, log_probs[token], drawn)
            last = (token == of.end) | (t == of.max_length - 1)
            draft = draft._replace(ended=draft.ended | (drawn & last))
            place, written = asked.size + t, draft.tokens[t][None]
            cache, scores = next_scores(of.model, params, cache, place, written)
            return (draft, cache, scores[0]), None

        carry = draft, cache, scores[-1]
        (draft, _, _), _ = jax.lax.scan(draw, carry, (places, luck))
        return draft


@dataclass(frozen=True)
class TokenLogProbs:
    """The log-probabilities of a sample's tokens, all places at once."""

    of: TokenTask

    def __call__(
        self, data: TokenData, params: PyTree, prompt: Prompt, tokens: jax.Array, length: Any
    ) -> jax.Array:
        """Returns float[T], 0 from `length` on."""
        asked = self.of.asked(prompt)
        inputs = jnp.concatenate([asked, tokens[:-1].astype(jnp.int32)])
        scores = jnp.asarray(self.of.model.apply({"params": params}, inputs[None]))[0]
        scores = scores[asked.size - 1 :].astype(wide_type(params))
        log_probs = jnp.take_along_axis(self.of.log_policy(scores), tokens[:, None], 1)[:, 0]
        return jnp.where(jnp.arange(tokens.size) < length, log_probs, 0)


class Marks(NamedTuple):
    """A sample beside the right answer."""

    right: jax.Array  # int32[], tokens that are right, the end token included
    written: jax.Array  # int32[], tokens that are no fillers
    asked: jax.Array  # int32[], tokens of the right answer


@dataclass(frozen=True)
class Reward:
    """The share of the tokens that are right, or whether all are; less the cost of the length."""

    of: TokenTask

    def marks(self, prompt: Prompt, tokens: jax.Array, length: Any) -> Marks:
        """Compares a sample with the right answer, token by token, fillers left out."""
        answer, size = self.of.task(prompt.symbols, prompt.size, self.of.n_symbols)
        places = jnp.arange(answer.size + 1)
        wanted = jnp.where(places < size, jnp.append(answer, 0), -1)
        wanted = jnp.where(places == size, self.of.end, wanted)
        serious = jnp.arange(tokens.size) < length
        if self.of.filler:
            serious &= tokens != self.of.end + 1
        place = jnp.cumsum(serious) - 1
        right = serious & (tokens == wanted[jnp.clip(place, 0, answer.size)])
        right &= place <= answer.size
        return Marks(right.sum(), serious.sum(), jnp.int32(size) + 1)

    def __call__(self, data: TokenData, prompt: Prompt, tokens: jax.Array, length: Any) -> Any:
        """Returns the scalar, at most 1."""
        right, written, asked = self.marks(prompt, tokens, length)
        whole_answer = jnp.maximum(written, asked)
        reward = right / whole_answer if self.of.partial else jnp.float32(right == whole_answer)
        return reward - self.of.length_cost * jnp.asarray(length) / self.of.max_length


@dataclass(frozen=True)
class EvalSamples:
    """What a policy makes of the judged prompts, always with the same randomness."""

    of: TokenTask

    def samples(self, data: TokenData, params: PyTree) -> Draft:
        """Returns a sample for each of the judged prompts."""
        count = data.judged.size.shape[0]
        keys = jax.random.split(jax.random.key(_JUDGE), count)
        empty = empty_draft(self.of.max_length, params)
        draw = jax.vmap(DrawTokens(self.of), (None, None, 0, None, None, None, 0))
        return draw(data, params, data.judged, empty, 0, self.of.max_length, keys)


@dataclass(frozen=True)
class MinusReward:
    """Minus the mean reward of the judged samples."""

    judged: EvalSamples

    def __call__(self, data: TokenData, params: PyTree) -> jax.Array:
        """Returns the scalar, at least -1."""
        drafts = self.judged.samples(data, params)
        reward = jax.vmap(Reward(self.judged.of), (None, 0, 0, 0))
        return -jnp.mean(reward(data, data.judged, drafts.tokens, drafts.length))


@dataclass(frozen=True)
class Solved:
    """The share of the judged samples that are the right answer."""

    judged: EvalSamples

    def __call__(self, data: TokenData, params: PyTree) -> jax.Array:
        """Returns the scalar, 0..1."""
        drafts = self.judged.samples(data, params)
        marks = jax.vmap(Reward(self.judged.of).marks)
        right, written, asked = marks(data.judged, drafts.tokens, drafts.length)
        return jnp.mean((right == written) & (right == asked), dtype=wide_type(params))


@dataclass(frozen=True)
class MeanLength:
    """The mean length of the judged samples, fillers and end tokens included."""

    judged: EvalSamples

    def __call__(self, data: TokenData, params: PyTree) -> jax.Array:
        """Returns the scalar, 1..T."""
        return jnp.mean(self.judged.samples(data, params).length, dtype=wide_type(params))


@explicit
def token_task(
    task: Task,
    *,
    key: jax.Array,
    n_symbols: int = 4,
    shortest: int = 1,
    longest: int = 4,
    max_length: int | None = None,
    filler: bool = False,
    partial: bool = True,
    length_cost: float = 0.0,
    width: int = 32,
    depth: int = 1,
    heads: int = 2,
    n_judged: int = 128,
) -> RolloutProblem:
    r"""Returns a token task: a transformer reads symbols and writes an answer that can be checked.

    .. math:: r = \frac{\#\{k : z_k = a_k\}}{\max(|z|, |a|)} - \lambda \frac{|y|}{T}

    z is what was written without fillers, a the right answer, both with their end token. The policy
    is a `TinyGPT` that starts near the uniform distribution, so its first samples have a length
    that knows nothing of the prompt; a trained one stops where the answer does, and then long
    prompts make long samples.

    Args:
        task: What is asked: `copying()`, `sorting()`, `modular_sums()`, or a pure, traceable and
            hashable function `(symbols, count, n_symbols) -> (answer, length)` of int32[P], of
            which the first `count` are the prompt; the answer is int32[A], of which the first
            `length` are asked, each in 0..n_symbols-1.
        key: A typed key for the initial policy and for the judged prompts.
        n_symbols: m, the different symbols, at least 2.
        shortest: Symbols of the shortest prompt, at least 1.
        longest: P, symbols of the longest; each number between is as likely.
        max_length: T, tokens of the longest sample, at least A + 1; None: 2 A + 2.
        filler: Whether a further token may be written that the checker leaves out: the policy may
            think as long as it likes.
        partial: Whether a part of the answer brings a part of the reward; otherwise it is 0 or 1.
        length_cost: lambda, what a sample of T tokens costs; not negative.
        width: Of the transformer, a multiple of `heads`.
        depth: Its blocks.
        heads: Of its attention.
        n_judged: The fixed prompts by which a policy is judged, one sample each, always with the
            same keys.

    Returns:
        The problem. Its tokens are 0..m-1, m for the end, m + 1 for the filler. Its objective is
        minus the mean reward of the judged samples, an estimate that is the same for the same
        policy; its metrics are `solved`, the share of them that are right, and `length`, their mean
        length. None of the three has a useful derivative.

    Note:
        A sample is drawn in T steps of one token each, with keys and values kept: at a time each
        sample holds 2 x depth x (P + 1 + T) x width numbers.

    Raises:
        TypeError: If an argument is of another kind, `task` is not hashable, or its answer holds
            no integers.
        ValueError: If a number is out of range, T is too short for the answers, or the answer of
            `task` has another form.

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
        Williams, Simple statistical gradient-following algorithms for connectionist reinforcement
        learning, Machine Learning 8, 1992 (the gradient that such samples give).
    """
    one_key("key", key)
    n_symbols, shortest = whole("n_symbols", n_symbols, 2), whole("shortest", shortest)
    longest, n_judged = whole("longest", longest, shortest), whole("n_judged", n_judged)
    n_answer = _answer_size(task, longest, n_symbols)
    if max_length is None:
        max_length = 2 * n_answer + 2
    max_length = whole("max_length", max_length, n_answer + 1)
    length = longest + 1 + max_length
    model = TinyGPT(n_symbols + 4, width=width, depth=depth, heads=heads, length=length)
    of = TokenTask(
        task=task,
        model=model,
        n_symbols=n_symbols,
        shortest=shortest,
        longest=longest,
        max_length=max_length,
        filler=flag("filler", filler),
        partial=flag("partial", partial),
        length_cost=real("length_cost", length_cost, least=0),
    )
    start, judge = jax.random.split(key)
    params, _ = initial(model, start, jnp.zeros((1, length), jnp.int32))
    draw = jax.vmap(lambda one: DrawPrompt(of)((), one))
    judged = draw(jax.random.split(judge, n_judged))
    return RolloutProblem(
        params=params,
        data=TokenData(judged),
        prompt_of=DrawPrompt(of),
        extend_of=DrawTokens(of),
        log_probs_of=TokenLogProbs(of),
        reward_of=Reward(of),
        objective_of=MinusReward(EvalSamples(of)),
        metrics_of=(("solved", Solved(EvalSamples(of))), ("length", MeanLength(EvalSamples(of)))),
        max_length=max_length,
    )


def _answer_size(task: Any, longest: int, n_symbols: int) -> int:
    """Returns A; refuses what is no task. Nothing is computed."""
    function_of("task", task, "symbols", "count", "n_symbols", reason=" -> (answer, length)")
    try:
        hash(task)
    except TypeError as error:
        raise TypeError(
            f"task must be hashable, so that compilations can be shared, got {task!r}"
        ) from error
    symbols, count = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((longest,), ()))
    result = jax.eval_shape(lambda *prompt: task(*prompt, n_symbols), symbols, count)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise TypeError(f"task must return the pair (answer, length), got {type(result).__name__}")
    shapes = tuple(jnp.shape(one) for one in result)
    if len(shapes[0]) != 1 or shapes[0][0] < 1 or shapes[1] != ():
        raise ValueError(
            f"task must return an answer int32[A], A >= 1, and its length int32[], got {result}"
        )
    for one in result:
        if not jnp.issubdtype(one.dtype, jnp.integer):
            raise TypeError(f"task must return integers, got dtype {one.dtype}")
    return shapes[0][0]
