"""Planning while running: times are estimated from the answers seen, and choices made from them.

    means c, s of T = C + load * X   <-  censored likelihood of the last updates (`censored.py`)
    (k, load)                        =   argmax (e - A(k, load)) / E T_(k)(load; c, s)
    e                                <-  A + (1 - eta c) (e - A)     the bound, at what was chosen

The rule is that of `planning.py`, taken one update at a time. With exponential parts the expected
completion is `c M_k(s load / c)`, and the functions `M_k` are tabulated once. Some updates ask
another load than the best, since only two loads distinguish communication from computation.
After Egger, Kas Hanna and Bitar (2023).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from asyncjax.checks import whole
from asyncjax.clocks import exponential
from asyncjax.stragglers.plans.bounds import ErrorBound, error_floor
from asyncjax.stragglers.plans.planning import completion_table, listed_options
from asyncjax.stragglers.policies.policy import Choice, Decided, Observation, Policy, load_capacity
from asyncjax.stragglers.times.censored import DriftState, drifting, estimate, observe
from asyncjax.stragglers.times.laws import MOST_WORKERS
from asyncjax.stragglers.times.response_times import response

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
    """Returns the policy that estimates the response times and chooses `(k, load)` by the bound.

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
            the best one, the least whose floor is below the error.

    Note:
        For times whose parts are near exponential and whose load multiplies ("scale"). The error is
        the bound's, not the run's. Once only the largest load has its floor below the error, only a
        change of both means together is followed. Memory: 289 floats an option, and `window` times
        `n` response times. `Choice.stage` is the index of the option in the order of (k, load).

    Example:
        >>> from asyncjax import stragglers
        >>> bound = stragglers.ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0)
        >>> policy = planned_online(bound, 8, k=[1, 2, 4, 8], load=[1, 4, 8], start=(1.0, 0.25))
        >>> state, choice = policy.decide(policy.init(), stragglers.nothing_seen(8))
        >>> int(choice.k), float(choice.load)
        (1, 1.0)
    """
    n = whole("n_workers", n_workers, 1, MOST_WORKERS)
    ks, loads = listed_options(k, load, n, _MOST_OPTIONS)
    most, varies = load_capacity(loads, None)
    floor = np.broadcast_to(np.asarray(error_floor(bound, ks, loads), float), ks.shape)
    real = jnp.result_type(float)
    options = Options(
        jnp.asarray(ks, jnp.int32),
        jnp.asarray(loads, real),
        jnp.asarray(floor, real),
        jnp.asarray(_log_completions(n)[:, ks - 1], real),
    )
    pace = Pace(
        jnp.asarray(1 - bound.step_size * bound.strong_convexity, real),
        jnp.asarray(whole("warm_up", warm_up, 0) if varies else 0, jnp.int32),
        jnp.asarray(whole("explore_every", explore_every), jnp.int32),
    )
    error = jnp.asarray(bound.initial_error, real)
    first = OnlineState(drifting(window, n, start).init(), error, options.floor[0], options.load[0])
    return Policy(Partial(_unseen, first), Partial(_decide, pace, options), most, varies)


@cache
def _log_completions(n: int) -> np.ndarray:
    """`log M_k` at the ratios of the table, float64[G, n]."""
    times = response(compute=exponential(1.0), communicate=exponential(1.0), n_workers=n)
    return np.log(completion_table(times, np.exp(_LOG_RATIOS)))


def _unseen(first: OnlineState) -> OnlineState:
    """The state before the first update."""
    return first


def _decide(pace: Pace, options: Options, state: OnlineState, observation: Observation) -> Decided:
    """Takes in the last answers, and chooses the option of the steepest fall."""

    def learned(state: OnlineState) -> OnlineState:
        times = observe(state.times, observation.response, state.load)
        error = state.floor + pace.contraction * (state.error - state.floor)
        return state._replace(times=times, error=error)

    state = jax.lax.cond(observation.update > 0, learned, lambda same: same, state)
    communicate, compute = estimate(state.times)
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
