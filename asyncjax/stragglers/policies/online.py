"""Planning while running: times are estimated from the answers seen, and choices made from them.

    means c, s of T = C + load * X   <-  censored likelihood of the last updates (`drift.py`)
    (k, load)                        =   argmax (e - A(k, load)) / E T_(k)(load; c, s)
    e                                <-  A + (1 - eta c) (e - A)     the bound, at what was chosen

The rule is that of `planning.py`, taken one update at a time: nothing need be known of the times.
With exponential parts the expected completion is `c M_k(s load / c)`, and the functions `M_k` of
one number are tabulated once. Some updates ask another load than the best, since communication and
computation can only be told apart at two loads. After Egger, Kas Hanna and Bitar (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.tree_util import Partial

from asyncjax.checks import whole, within
from asyncjax.clocks import exponential
from asyncjax.stragglers.plans.bounds import ErrorBound, check_bound, error_floor
from asyncjax.stragglers.plans.planning import completion_table
from asyncjax.stragglers.policies.policy import Choice, Observation, Policy
from asyncjax.stragglers.policies.stages import load_capacity
from asyncjax.stragglers.times.drift import DriftState, drifting
from asyncjax.stragglers.times.response_times import response
from asyncjax.stragglers.times.shapes import MOST_WORKERS

_MOST_OPTIONS = 100_000
_LOG_RATIOS = np.linspace(-12.0, 12.0, 289)  # of computation to communication in the table


class OnlineState(NamedTuple):
    """What the policy carries."""

    times: DriftState  # what was seen of the times
    error: Array  # float[], of the bound
    floor: Array  # float[], of the last choice
    load: Array  # float[], of the last choice


class Options(NamedTuple):
    """What may be chosen, and what it is known to lead to."""

    k: Array  # int32[M]
    load: Array  # float[M]
    floor: Array  # float[M]
    completion: Array  # float[G, M], log E T_(k) for communication of mean 1, by log ratio


class Pace(NamedTuple):
    """Numbers of the rule."""

    error: Array  # float[], at the start
    contraction: Array  # float[], of the error above the floor, an update
    warm_up: Array  # int32[], updates that alternate between the extreme loads
    explore_every: Array  # int32[], of later updates one asks an extreme load


def planned_online(
    bound: ErrorBound,
    n_workers: int,
    *,
    k: Any = None,
    load: Any,
    start: tuple[float, float],
    window: int = 32,
    warm_up: int = 8,
    explore_every: int = 32,
) -> Policy:
    """Makes the policy that estimates the response times and chooses `(k, load)` by the bound.

    Formula: at the bound's error `e`, the option of the greatest `(e - A) / E T_(k)`, with the
    means of communication and computation estimated from the last updates.

    Args:
        bound: Constants of the error bound.
        n_workers: Number of workers `n`, at most 10 000.
        k: Counts that may be waited for, int or ints; None for 1 .. n.
        load: Loads that may be asked, whole samples, one or several.
        start: First guess of the means, `(communicate_mean, compute_mean)`, the latter of one
            sample, time units.
        window: Updates that are remembered; fewer follow a drift sooner, more are less noisy.
        warm_up: Updates at the start that alternate between the least and the largest load.
        explore_every: Of later updates every so many-th asks the largest load, or, where that is
            the best one, the least whose floor is below the error, so that the means stay apart.

    Returns:
        A policy, for times whose parts are near exponential and whose load multiplies ("scale").
        `Choice.stage` is the index of the option in the order of (k, load). Memory: the table, 289
        floats an option, and `window` times `n` response times.

    Raises:
        TypeError: If an argument is of a wrong type, or traced.
        ValueError: If a number is out of range, or there are more than 100 000 options.

    Note:
        The error is the bound's, not the run's: wrong constants of the bound stay wrong. Once only
        the largest load has its floor below the error, nothing else is asked: from then on only a
        change of both means together is followed.

    Example:
        >>> from asyncjax import stragglers
        >>> bound = stragglers.ErrorBound(
        ...     step_size=0.1, smoothness=2.0, strong_convexity=0.5, noise_variance=8.0,
        ...     initial_error=10.0,
        ... )
        >>> policy = planned_online(bound, 8, k=[1, 2, 4, 8], load=[1, 4, 8], start=(1.0, 0.25))
        >>> state, choice = policy.decide(policy.init(), stragglers.nothing_seen(8))
        >>> int(choice.k), float(choice.load)
        (1, 1.0)

    Reference:
        After Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589.
    """
    check_bound(bound)
    n = whole("n_workers", n_workers, 1, MOST_WORKERS)
    for name, value in (("k", k), ("load", load)):
        if isinstance(value, Tracer):
            raise TypeError(f"{name} must be concrete: options are listed on the host, got {value}")
    most, varies = load_capacity(load, None)
    counts = np.arange(1, n + 1) if k is None else np.unique(np.asarray(k))
    within("k", counts, least=1, most=n, integer=True)
    distinct = np.unique(np.asarray(load, float))
    if counts.size * distinct.size > _MOST_OPTIONS:
        raise ValueError(
            f"k and load must make at most {_MOST_OPTIONS} options, got {counts.size} and"
            f" {distinct.size}"
        )
    pairs = np.array([(a, b) for a in counts for b in distinct])
    ks, loads = pairs[:, 0].astype(np.int32), pairs[:, 1]
    floor = np.broadcast_to(np.asarray(error_floor(bound, ks, loads), float), ks.shape)
    real = jnp.result_type(float)
    options = Options(
        jnp.asarray(ks),
        jnp.asarray(loads, real),
        jnp.asarray(floor, real),
        jnp.asarray(_log_completions(n)[:, ks - 1], real),
    )
    pace = Pace(
        jnp.asarray(bound.initial_error, real),
        jnp.asarray(1 - bound.step_size * bound.strong_convexity, real),
        jnp.asarray(whole("warm_up", warm_up, 0) if varies else 0, jnp.int32),
        jnp.asarray(whole("explore_every", explore_every), jnp.int32),
    )
    first = drifting(window, n, start).init()
    return Policy(
        Partial(_unseen, first, pace, options),
        Partial(_Decision(whole("window", window), n), pace, options),
        most,
        varies,
    )


@cache
def _log_completions(n: int) -> np.ndarray:
    """`log M_k` at the ratios of the table, float64[G, n]."""
    times = response(compute=exponential(1.0), communicate=exponential(1.0), n_workers=n)
    return np.log(completion_table(times, np.exp(_LOG_RATIOS)))


def _unseen(times: DriftState, pace: Pace, options: Options) -> OnlineState:
    """The state before the first update."""
    return OnlineState(times, pace.error, options.floor[0], options.load[0])


@dataclass(frozen=True)
class _Decision:
    """One decision; compared by its sizes, so that policies of one kind share a compiled loop."""

    window: int
    n_workers: int

    def __call__(
        self, pace: Pace, options: Options, state: OnlineState, observation: Observation
    ) -> tuple[OnlineState, Choice]:
        estimator = drifting(self.window, self.n_workers, (1.0, 1.0))  # the start is in the state

        def learned(state: OnlineState) -> OnlineState:
            times = estimator.observe(state.times, observation.response, state.load)
            error = state.floor + pace.contraction * (state.error - state.floor)
            return state._replace(times=times, error=error)

        state = jax.lax.cond(observation.update > 0, learned, lambda same: same, state)
        communicate, compute = estimator.estimate(state.times)
        log_ratio = jnp.log(options.load * compute / communicate)
        fall = (state.error - options.floor) * jnp.exp(-_looked_up(options.completion, log_ratio))
        best = jnp.where(jnp.any(fall > 0), jnp.argmax(fall), jnp.argmin(options.floor))
        same_k = options.k == options.k[best]
        harmless = same_k & (options.floor < state.error)
        least = jnp.min(jnp.where(harmless, options.load, options.load[best]))
        load = _asked(pace, options, options.load[best], least, observation.update)
        chosen = jnp.argmax(same_k & (options.load == load)).astype(jnp.int32)
        state = state._replace(floor=options.floor[chosen], load=options.load[chosen])
        return state, Choice(options.k[chosen], options.load[chosen], chosen)


def _looked_up(table: Array, log_ratio: Array) -> Array:
    """The table, float[G, M], at one log ratio for each option, float[M]; linear in between."""
    first, last = float(_LOG_RATIOS[0]), float(_LOG_RATIOS[-1])
    place = (jnp.clip(log_ratio, first, last) - first) / (last - first) * (table.shape[0] - 1)
    low = jnp.clip(jnp.int32(place), 0, table.shape[0] - 2)
    option = jnp.arange(table.shape[1])
    share = place - low
    return table[low, option] * (1 - share) + table[low + 1, option] * share


def _asked(pace: Pace, options: Options, best: Array, harmless: Array, update: Array) -> Array:
    """The best load, or another where it is time to explore."""
    least, most = jnp.min(options.load), jnp.max(options.load)
    alternating = jnp.where(update % 2 == 0, least, most)
    later = update - pace.warm_up
    explores = (later > 0) & (later % pace.explore_every == 0)
    other = jnp.where(best < most, most, harmless)
    return jnp.where(later < 0, alternating, jnp.where(explores, other, best))
