"""Phases that recorded times went through: hidden chains of two states, learned from the times.

    z_t   Markov, P(1 | 0) = begins, P(0 | 1) = ends          hidden, of each chain
    x_it  ~ Normal(level_i + shift_i z_t, sigma_i^2)          mean log time of worker i at moment t

A chain belongs to one worker, or all workers share one. With `p_t` the predicted and `q_t` the
filtered probability of state 1, the smoothed one is (Rabiner 1989)

    g_t = q_t ((1 - ends) g_{t+1} / p_{t+1} + ends (1 - g_{t+1}) / (1 - p_{t+1}))
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_ROUNDS = 40
_EDGE = 1e-4  # chances stay so far from 0 and 1
_SMOOTH = 9  # moments that the first guess averages over


class Moments(NamedTuple):
    """Log times of workers, collected by moments: steps, or bins of time."""

    count: Any  # float64[T, n], jobs
    mean: Any  # float64[T, n], of their log times; 0 where there is none
    rest: Any  # float64[T, n], sum of squares about that mean


class Chain(NamedTuple):
    """What was learned of the chains of a log, `C` of them."""

    begins: np.ndarray  # float64[C], chance a moment that a slow phase begins
    ends: np.ndarray  # float64[C], chance a moment that it ends
    shift: np.ndarray  # float64[n], what a slow phase adds to the log time
    error: np.ndarray  # float64[n], standard error of it, were phases known
    slow: np.ndarray  # float64[T, C], probability to be in a slow phase


def _forward(gains: Array, begins: Array, ends: Array) -> tuple[Array, Array, Array]:
    """Filters log likelihoods of state 1 over state 0, [T, C]: (filtered, predicted, evidence)."""

    def step(predicted: Array, gain: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        odds = jnp.log(predicted) - jnp.log1p(-predicted) + gain
        filtered = jax.nn.sigmoid(odds)
        evidence = jnp.logaddexp(jnp.log1p(-predicted), jnp.log(predicted) + gain)
        following = filtered * (1 - ends) + (1 - filtered) * begins
        return following, (filtered, predicted, evidence)

    return lax.scan(step, begins / (begins + ends), gains)[1]


def _smooth(gains: Array, begins: Array, ends: Array) -> tuple[Array, Array, Array]:
    """Smooths: (P(state 1) [T, C], expected begins and ends of slow phases [C])."""
    filtered, predicted, _ = _forward(gains, begins, ends)

    def back(after: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array, Array]]:
        here, ahead = now
        stays, leaves = after / ahead, (1 - after) / (1 - ahead)
        ended = here * ends * leaves
        began = (1 - here) * begins * stays
        smoothed = here * (1 - ends) * stays + ended
        return smoothed, (smoothed, began, ended)

    last = filtered[-1]
    _, (smoothed, began, ended) = lax.scan(back, last, (filtered[:-1], predicted[1:]), reverse=True)
    return jnp.concatenate([smoothed, last[None]]), began.sum(axis=0), ended.sum(axis=0)


@partial(jax.jit, static_argnames=("common",))
def _learn(moments: Moments, guess: Array, common: bool) -> tuple[Array, ...]:
    """Maximises the likelihood from a first guess of the slow moments, float[T, C]."""
    count, mean, rest = moments
    total = count.sum(axis=0)

    def normal(slow: Array) -> tuple[Array, Array, Array, Array]:
        weight = count * slow
        weights = (
            jnp.maximum(weight.sum(axis=0), 1e-3),
            jnp.maximum(total - weight.sum(axis=0), 1e-3),
        )
        high = (weight * mean).sum(axis=0) / weights[0]
        low = ((count - weight) * mean).sum(axis=0) / weights[1]
        squares = weight * (mean - high) ** 2 + (count - weight) * (mean - low) ** 2 + rest
        variance = jnp.maximum(squares.sum(axis=0) / total, 1e-8)
        return low, high, variance, jnp.sqrt(variance * (1 / weights[0] + 1 / weights[1]))

    def again(carry: tuple[Array, Array, Array], _: None) -> tuple[Any, None]:
        slow, begins, ends = carry
        low, high, variance = normal(slow)[:3]
        gains = count * ((mean - low) ** 2 - (mean - high) ** 2) / (2 * variance)
        gains = gains.sum(axis=1, keepdims=True) if common else gains
        slow, began, ended = _smooth(gains, begins, ends)
        in_slow = slow.sum(axis=0)
        begins = (began + 0.5) / (len(slow) - in_slow + 1.0)
        ends = (ended + 0.5) / (in_slow + 1.0)
        return (slow, jnp.clip(begins, _EDGE, 1 - _EDGE), jnp.clip(ends, _EDGE, 1 - _EDGE)), None

    chance = jnp.full(guess.shape[1], 0.1, guess.dtype)
    (slow, begins, ends), _ = lax.scan(again, (guess, chance, chance), None, length=_ROUNDS)
    low, high, _, error = normal(slow)
    return begins, ends, high - low, error, slow


def learn(moments: Moments, *, common: bool) -> Chain:
    """Learns the phases of every worker, or those that all share."""
    count, mean, _ = moments
    total = count.sum(axis=0)
    apart = np.where(count > 0, mean - (count * mean).sum(axis=0) / total, 0.0)
    apart /= np.sqrt((count * apart**2).sum(axis=0) / total) + 1e-12
    series = apart.mean(axis=1, keepdims=True) if common else apart
    width = np.ones(min(_SMOOTH, len(series)))
    smooth = np.stack([np.convolve(column, width / width.sum(), "same") for column in series.T], 1)
    guess = np.clip((smooth > [_split(column) for column in smooth.T]) * 1.0, 0.1, 0.9)
    with jax.enable_x64(True):
        learned = _learn(Moments(*map(jnp.asarray, moments)), jnp.asarray(guess), common)
        return Chain(*map(np.asarray, learned))


def evidence(gains: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Log likelihood of chains [C] over that of always being in state 0; `gains` float64[T, C]."""
    with jax.enable_x64(True):
        return np.asarray(_evidence(jnp.asarray(gains), jnp.asarray(begins), jnp.asarray(ends)))


@jax.jit
def _evidence(gains: Array, begins: Array, ends: Array) -> Array:
    return _forward(gains, begins, ends)[2].sum(axis=0)


def _split(values: np.ndarray) -> float:
    """The value that splits numbers in two groups as far apart as can be (Otsu 1979)."""
    ordered = np.sort(values)
    left = np.arange(1, len(ordered))
    sums = np.cumsum(ordered)
    low, high = sums[:-1] / left, (sums[-1] - sums[:-1]) / (len(ordered) - left)
    return float(ordered[int(np.argmax(left * (len(ordered) - left) * (high - low) ** 2))])
