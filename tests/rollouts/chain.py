"""A chain: the smallest policy with several tokens; a table of scores after each token."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import clocks, rollouts
from asyncjax.rollouts import admission
from asyncjax.rollouts.rollout_problem import placed

LONGEST, TOKENS = 5, 3
LENGTHS = clocks.lognormal([4.0], sigma=0.8)


def _log_policy(params, token):
    return jax.nn.log_softmax(params[token])


def _prompt(data, key):
    return jax.random.randint(key, (), 0, TOKENS)


def _extend(data, params, prompt, draft, begin, end, key):
    def one(t, draft):
        before = jnp.where(t > 0, draft.tokens[jnp.maximum(t - 1, 0)], TOKENS)
        log_probs = _log_policy(params, before)
        token = jax.random.categorical(jax.random.fold_in(key, t), log_probs)
        drawn = (t >= begin) & (t < end) & ~draft.ended
        draft = placed(draft, t, token, log_probs[token], drawn)
        last = (token == 0) | (t == LONGEST - 1)
        return draft._replace(ended=draft.ended | (drawn & last))

    return jax.lax.fori_loop(0, LONGEST, one, draft)


def _log_probs(data, params, prompt, tokens, length):
    before = jnp.concatenate([jnp.array([TOKENS]), tokens[:-1]])
    log_probs = jax.vmap(partial(_log_policy, params))(before)
    chosen = jnp.take_along_axis(log_probs, tokens[:, None], 1)[:, 0]
    return jnp.where(jnp.arange(LONGEST) < length, chosen, 0)


def _reward(data, prompt, tokens, length):
    right = (tokens == prompt) & (jnp.arange(LONGEST) < length)
    return jnp.sum(right, dtype=data.dtype) / LONGEST


def start():
    """Scores under which all lengths occur, float64[4, 3]."""
    return np.random.default_rng(7).normal(0.0, 0.7, (TOKENS + 1, TOKENS))


def chain():
    """The problem, without an objective."""
    x = jnp.asarray(start())
    data = jnp.ones((), x.dtype)
    return rollouts.RolloutProblem(
        x, data, _prompt, _extend, _log_probs, _reward, None, (), LONGEST
    )


def trace_of(rule=None, *, n_steps=8, batch=4, slots=10, seed=0, **rest):
    """A trace whose samples are of several ages, a few of several versions where in flight."""
    rule = admission.budget(2) if rule is None else rule
    engine = rollouts.Engine(slots, **{"training_time": 1.5, **rest})
    key = jax.random.key(seed)
    return rollouts.trace(LENGTHS, engine, rule, batch=batch, n_steps=n_steps, key=key)
