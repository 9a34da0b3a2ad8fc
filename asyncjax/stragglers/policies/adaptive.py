"""Policies that look at the run: the loss, the gradients, the distance, the times, who is slow.

    error_triggered   stage = number of stages with end_error >= loss - minimum, never falling;
                      one more after `patience * updates` updates in a stage (stall exit)
    ada_sync          k_j = clip(round(k_0 sqrt(F_0 / F_j)) + stalls, 1, n),    F = loss - minimum
    sign_test         counter += 1 if <g_j, g_(j-1)> < 0 else -1
                      switch if counter > threshold and u > burn_in
    distance_test     slope = (log d_u - log d_c) / (log u - log c),    d = |w - w_s|^2
                      at checkpoints c and u = ceil(ratio c); switch if slope < bound, u > burn_in
    learned_crew      lower_i = mean_i - confidence sqrt(2 log j / tries_i),
                      crew = the k least lower_i

Where the constants of a bound are wrong the updates of a plan are wrong too. Switching by the error
mends that; a stage whose floor lies above its `end_error` ends by the stall exit. After Egger, Kas
Hanna and Bitar (2023). AdaSync, after Dutta, Wang and Joshi (2020), needs no plan.

`u` counts the updates made in this stage, which began at `w_s`. In the noise around the optimum
gradients turn against each other and the distance stays. Adaptive fastest-k SGD after Kas
Hanna et al. (2020) uses the sign test; Pesme, Dieuleveut and Flammarion (2020) show that it judges
badly, and propose the distance. The crew is a combinatorial bandit with lower confidence bounds,
after Egger, Bitar, Wachter-Zeh and Gündüz (2022): after `j` updates worker i takes `mean_i` a
sample in the mean.

`planned_online` plans while it runs: times are estimated from the answers seen:

    means c, s of T = C + load * X   <-  censored likelihood of the last updates (`censored.py`)
    (k, load)                        =   argmax (e - A(k, load)) / E T_(k)(load; c, s)
    e                                <-  A + (1 - eta c) (e - A)     the bound, at what was chosen

The rule is that of `planning.py`, taken one update at a time. With exponential parts the expected
completion is `c M_k(s load / c)`, and the functions `M_k` are tabulated once. Some updates ask
another load than the best, since only two loads distinguish communication from computation.
After Egger, Kas Hanna and Bitar (2023).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from asyncjax.checks import whole, within
from asyncjax.clocks import exponential
from asyncjax.stragglers.plans.bounds import ErrorBound, error_floor
from asyncjax.stragglers.plans.planning import Plan, completion_table, listed_options
from asyncjax.stragglers.policies.policy import (
    MOST_WORKERS,
    Choice,
    Decided,
    Observation,
    Place,
    Policy,
    Stages,
    choice_of,
    counted,
    first_place,
    load_capacity,
    moved_on,
    number,
    padded,
    patience_of,
    plan_stages,
    read_stages,
    staged,
)
from asyncjax.stragglers.times import laws
from asyncjax.stragglers.times.censored import DriftState, drifting, estimate, observe
from asyncjax.stragglers.times.response_times import response


class LossRule(NamedTuple):
    """Numbers of AdaSync."""

    k: Array  # int32[], answers awaited at the start
    load: Array  # float[], samples a worker
    n_workers: Array  # int32[]
    minimum: Array  # float[], least value of the objective
    patience: Array  # int32[], updates without a new least loss


class LossState(NamedTuple):
    """What the policy remembers of the losses."""

    first: Array  # float[], first recorded F; NaN before
    last: Array  # float[], last recorded F; NaN before
    best: Array  # float[], least recorded F; inf before
    since: Array  # int32[], update of the best, or of the last stall if later
    stalls: Array  # int32[], how often the loss did not improve for `patience` updates


def error_triggered(plan: Plan, patience: Any, *, minimum: Any = 0.0) -> Policy:
    """Returns the policy that switches when the loss has come down to where a plan ends a stage.

    Formula: a stage is left when `loss - minimum <= end_error`, several at once if the loss is
    below several; and, whatever the loss, after `patience` times the planned updates of the stage.

    Args:
        plan: A plan with at least one stage, whose loads are whole samples.
        patience: How many times the planned updates a stage may last, positive, inf for no limit;
            may be traced. A stage that the plan never ends is never left this way.
        minimum: Least value of the objective, F*, in units of the loss; may be traced.

    Note:
        A loss of NaN was not recorded: it says nothing. Record often enough, or stages end late.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(0.2, 1.0, 1.0, 40.0, 2.5)
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> stages = stragglers.plan(times, bound, load=2.0, target=0.6)
        >>> policy = error_triggered(stages, patience=2.0)
        >>> seen = stragglers.nothing_seen(4)
        >>> stages.end_error.round(2).tolist()
        [1.39, 0.85, 0.6]
        >>> [int(policy.decide(policy.init(), seen._replace(loss=e))[1].k) for e in (1.4, 1.3, 0.1)]
        [2, 3, 4]
    """
    stages, most, varies = plan_stages(plan)
    minimum = number("minimum", minimum)
    errors = padded(plan.end_error).astype(minimum.dtype)
    updates = padded(plan.updates).astype(minimum.dtype)
    limits = number("patience", patience, above=0, finite=False) * updates
    decide = Partial(_by_error, errors, limits, minimum, stages)
    return Policy(Partial(first_place), decide, most, varies)


def ada_sync(
    k: Any,
    load: Any = 1.0,
    *,
    n_workers: int,
    minimum: Any = 0.0,
    patience: Any = None,
    max_load: int | None = None,
) -> Policy:
    """Returns the policy that waits for `k sqrt(F_0 / F_j)` workers: AdaSync (arXiv 2003.10579).

    Formula: `k_j = clip(round(k sqrt(F_0 / F_j)) + stalls, 1, n)` with F_0 the first and F_j the
    last finite recorded loss above `minimum`; all n if the loss is at or below the minimum. The
    stage is the number of stalls.

    Args:
        k: Answers to wait for at the start, a number in 1 .. n; may be traced.
        load, max_load: As for `fixed`.
        n_workers: Number of workers `n`.
        minimum: Least value of the objective, in units of the loss; may be traced.
        patience: Updates without a new least loss after which one worker more is waited for from
            then on (stall exit), None for never; may be traced.

    Example:
        >>> from asyncjax import stragglers
        >>> policy, seen = ada_sync(2, n_workers=8), stragglers.nothing_seen(8)
        >>> state = policy.init()
        >>> for loss in (9.0, 4.0, float("nan"), 1.0, 0.01):
        ...     state, choice = policy.decide(state, seen._replace(loss=loss))
        ...     print(int(choice.k), end=" ")
        2 3 3 6 8
    """
    if np.ndim(k) or np.ndim(load):
        raise ValueError(f"k and load must be single numbers, got {k!r} and {load!r}")
    n_workers = whole("n_workers", n_workers)
    within("k", k, least=1, most=n_workers, integer=True)
    stages, most, varies = read_stages(k, load, max_load)
    rule = LossRule(
        k=stages.k[0],
        load=stages.load[0],
        n_workers=counted("n_workers", n_workers, 1),
        minimum=number("minimum", minimum),
        patience=patience_of(patience),
    )
    return Policy(Partial(_no_losses), Partial(_by_loss, rule), most, varies)


def _no_losses() -> LossState:
    """No loss recorded yet."""
    unknown = jnp.full((), jnp.nan, jnp.result_type(float))
    zero = jnp.zeros((), jnp.int32)
    return LossState(unknown, unknown, jnp.full_like(unknown, jnp.inf), zero, zero)


def _by_loss(rule: LossRule, state: LossState, observation: Observation) -> Decided:
    """Takes in a recorded loss, and finds how many answers it asks for."""
    gap = (observation.loss - rule.minimum).astype(state.last.dtype)
    known = jnp.isfinite(gap)
    first = jnp.where(known & jnp.isnan(state.first), gap, state.first)
    last = jnp.where(known, gap, state.last)
    is_better = known & (gap < state.best)
    since = jnp.where(is_better, observation.update, state.since)
    stalled = observation.update - since >= rule.patience
    state = LossState(
        first=first,
        last=last,
        best=jnp.where(is_better, gap, state.best),
        since=jnp.where(stalled, observation.update, since).astype(jnp.int32),
        stalls=jnp.minimum(state.stalls + stalled, rule.n_workers).astype(jnp.int32),
    )
    above = jnp.where((first > 0) & (last > 0), last, 1.0)
    wanted = rule.k * jnp.sqrt(jnp.where(first > 0, first, 1.0) / above)
    wanted = jnp.where((first <= 0) | (last <= 0), rule.n_workers, wanted)
    wanted = jnp.where(jnp.isnan(last), rule.k, jnp.clip(wanted, 0, rule.n_workers))
    count = jnp.round(wanted).astype(jnp.int32) + state.stalls
    return state, Choice(jnp.clip(count, 1, rule.n_workers), rule.load, state.stalls)


def _by_error(
    errors: Array,
    limits: Array,
    minimum: Array,
    stages: Stages,
    place: Place,
    observation: Observation,
) -> Decided:
    """The stage that the error has come to by its ends, or the next if it lasts over a limit."""
    gap = observation.loss - minimum
    reached = jnp.minimum(jnp.sum(gap <= errors), stages.last).astype(jnp.int32)
    stalled = observation.update - place.since >= limits[place.stage]
    next_place, _ = moved_on(stages, place, stalled, observation.update)
    is_further = reached > next_place.stage
    stage = jnp.where(is_further, reached, next_place.stage)
    since = jnp.where(is_further, observation.update, next_place.since).astype(jnp.int32)
    return Place(stage, since), choice_of(stages, stage)


class Limits(NamedTuple):
    """Numbers of a test."""

    bound: Array  # int32[] the counter must pass, or float[] that the slope must fall below
    burn_in: Array  # int32[], updates that a stage lasts at least, less one
    patience: Array  # int32[], updates after which it is left in any case


class SignState(NamedTuple):
    """State of the sign test."""

    place: Place
    counter: Array  # int32[], negative less positive inner products in this stage


class DistanceState(NamedTuple):
    """State of the distance test."""

    place: Place
    checkpoint: Array  # int32[], updates of this stage at the last checkpoint; 0 before the first
    log_distance: Array  # float[], log d there; NaN before the first


def sign_test(
    k: Any,
    load: Any = 1.0,
    *,
    threshold: Any,
    burn_in: Any,
    patience: Any = None,
    max_load: int | None = None,
) -> Policy:
    """Returns the policy that switches when successive gradients disagree (arXiv 2002.11005).

    Formula: the counter rises by 1 where `agreement < 0` and falls by 1 elsewhere; the next stage
    begins, with counter 0, once `counter > threshold` after more than `burn_in` updates of a stage.

    Args:
        k, load, max_load: As for `staged`.
        threshold: The counter must pass this, an integer of at least 0; may be traced.
        burn_in: Updates that a stage lasts at least, less one; may be traced.
        patience: Updates after which a stage is left anyway, None for never; may be traced.

    Note:
        The last gradient is kept over a switch. The test fires early where gradients are noisy: far
        from stationary, too, their products are then negative almost half of the time.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = sign_test([1, 4], threshold=0, burn_in=0)
        >>> seen = stragglers.nothing_seen(4)
        >>> _, choice = policy.decide(policy.init(), seen._replace(update=2, agreement=-1.0))
        >>> int(choice.k)
        4
    """
    stages, most, varies = read_stages(k, load, max_load)
    bound, least = counted("threshold", threshold, 0), counted("burn_in", burn_in, 0)
    limits = Limits(bound, least, patience_of(patience))
    return Policy(Partial(_no_signs), Partial(_by_signs, limits, stages), most, varies)


def distance_test(
    k: Any,
    load: Any = 1.0,
    *,
    burn_in: Any,
    ratio: Any = 1.5,
    slope: Any = 0.6,
    patience: Any = None,
    max_load: int | None = None,
) -> Policy:
    """Returns the policy that switches when the distance has stopped growing (arXiv 2007.00534).

    Formula: checkpoints are the updates `1, ..., c, max(c + 1, ceil(ratio c)), ...` of a stage; the
    next stage begins at a checkpoint `u > burn_in` at which `(log d_u - log d_c) / (log u - log c)`
    is less than `slope`.

    Args:
        k, load: As for `sign_test`.
        burn_in: Updates that a stage lasts at least, less one; may be traced.
        ratio: Of successive checkpoints, greater than 1; may be traced.
        slope: Exponent of growth below which a stage is over; may be traced. A straight descent has
            2, a random walk 1, stationary noise 0.
        patience, max_load: As for `sign_test`.

    Note:
        The distance is that from where the stage began, as in the paper, where the loop says it
        (`Observation.stage_distance`); else that from where the run began.

    Example:
        The distance grows like the square root of the updates, less than the bound allows:

        >>> from asyncjax import stragglers
        >>> policy, seen = distance_test([1, 4], burn_in=4), stragglers.nothing_seen(4)
        >>> state = policy.init()
        >>> for j in range(9):
        ...     seen = seen._replace(update=j, distance=j**0.5)
        ...     state, choice = policy.decide(state, seen)
        ...     print(int(choice.k), end=" ")
        1 1 1 1 1 4 4 4 4
    """
    stages, most, varies = read_stages(k, load, max_load)
    limits = Limits(number("slope", slope), counted("burn_in", burn_in, 0), patience_of(patience))
    decide = Partial(_by_distance, limits, number("ratio", ratio, above=1), stages)
    return Policy(Partial(_no_distance), decide, most, varies)


def _no_signs() -> SignState:
    """No products of gradients yet."""
    return SignState(first_place(), jnp.zeros((), jnp.int32))


def _by_signs(
    limits: Limits, stages: Stages, state: SignState, observation: Observation
) -> Decided:
    """Counts the last product, and moves on if there were enough negative ones."""
    agreement = observation.agreement
    vote = jnp.where(jnp.isnan(agreement), 0, jnp.where(agreement < 0, 1, -1))
    counter = (state.counter + vote).astype(jnp.int32)
    updates = observation.update - state.place.since
    is_over = (counter > limits.bound) & (updates > limits.burn_in)
    told = is_over | (updates >= limits.patience)
    place, moved = moved_on(stages, state.place, told, observation.update)
    counter = jnp.where(moved, 0, counter)
    return SignState(place, counter), choice_of(stages, place.stage)


def _no_distance() -> DistanceState:
    """No checkpoint yet."""
    unknown = jnp.full((), jnp.nan, jnp.result_type(float))
    return DistanceState(first_place(), jnp.zeros((), jnp.int32), unknown)


def _by_distance(
    limits: Limits, ratio: Array, stages: Stages, state: DistanceState, observation: Observation
) -> Decided:
    """Compares the distance with that of the last checkpoint, where a checkpoint is due."""
    updates = observation.update - state.place.since
    before = state.checkpoint
    due = updates >= jnp.maximum(before + 1, jnp.ceil(ratio * before))
    known = jnp.asarray(observation.stage_distance)
    distance = jnp.where(jnp.isnan(known), observation.distance, known)
    now = jnp.log(distance).astype(state.log_distance.dtype)
    apart = jnp.log(updates / jnp.maximum(before, 1))
    is_flat = now - state.log_distance < limits.bound * apart
    told = due & (updates > limits.burn_in) & is_flat | (updates >= limits.patience)
    place, moved = moved_on(stages, state.place, told, observation.update)
    checkpoint = jnp.where(moved, 0, jnp.where(due, updates, before)).astype(jnp.int32)
    log_distance = jnp.where(moved, jnp.nan, jnp.where(due, now, state.log_distance))
    return DistanceState(place, checkpoint, log_distance), choice_of(stages, place.stage)


class CrewState(NamedTuple):
    """What is known of the workers."""

    total: Array  # float[n], sum of response times a sample, time units
    tries: Array  # int32[n], responses seen
    load: Array  # float[], samples asked in the update under way


def learned_crew(
    n_workers: int,
    k: Any,
    load: Any = 1.0,
    updates: Any = math.inf,
    *,
    confidence: Any,
    max_load: int | None = None,
) -> Policy:
    """Returns the policy that learns which k workers to give work to (arXiv 2202.08302).

    Formula: the k workers with the least `mean_i - confidence sqrt(2 log j / tries_i)` get work,
    and all k are awaited; who has not been tried comes first, ties go to the lower index.

    Args:
        n_workers: Number of workers `n`.
        k: Size of the crew in each stage, a number in 1 .. n or `[S]`; may be traced.
        load, updates, max_load: As for `staged`.
        confidence: Standard deviation of a response time, divided by the load, time units; may be
            traced. 0 trusts the means: it may then settle on slow workers for good.

    Note:
        The time of an update is the largest of k chosen workers, not the k-th fastest of n. Times
        are divided by the load, which is fair where communication is short.

    Example:
        Three workers take 3, 1 and 2; each is tried once, then the crew is the two fastest:

        >>> import jax.numpy as jnp
        >>> from asyncjax import stragglers
        >>> policy, seen = learned_crew(3, 2, confidence=0.0), stragglers.nothing_seen(3)
        >>> state, times = policy.init(), jnp.array([3.0, 1.0, 2.0])
        >>> for j in range(3):
        ...     state, choice = policy.decide(state, seen._replace(update=j))
        ...     seen = seen._replace(response=times, used=choice.workers)
        ...     print([int(i) for i in choice.workers.nonzero()[0]], end=" ")
        [0, 1] [1, 2] [1, 2]
    """
    n_workers = whole("n_workers", n_workers, 1, MOST_WORKERS)
    within("k", k, least=1, most=n_workers, integer=True)
    inner = staged(k, load, updates, max_load=max_load)
    confidence = number("confidence", confidence, least=0)
    start = Partial(_untried, jnp.zeros((n_workers,), jnp.int32))
    decide = Partial(_by_bounds, confidence, inner.decide)
    return Policy(start, decide, inner.max_load, inner.varies_load)


def _untried(zeros: Array) -> CrewState:
    """Nobody has answered yet."""
    real = jnp.result_type(float)
    return CrewState(zeros.astype(real), zeros, jnp.ones((), real))


def _by_bounds(
    confidence: Array, decide: Partial, state: CrewState, observation: Observation
) -> Decided:
    """Takes in the last answers, and gives work to the workers that may be the fastest."""
    seen = observation.used & jnp.isfinite(observation.response)
    times = jnp.where(seen, observation.response, 0) / state.load
    total = (state.total + times).astype(state.total.dtype)
    tries = state.tries + seen.astype(jnp.int32)
    count = jnp.maximum(tries, 1)
    horizon = 2 * jnp.log(jnp.maximum(observation.update, 1).astype(total.dtype))
    lower = total / count - confidence * jnp.sqrt(horizon / count)
    lower = jnp.where(tries > 0, lower, -jnp.inf)
    rank = jnp.argsort(jnp.argsort(lower, stable=True), stable=True)
    _, choice = decide((), observation)
    load = jnp.asarray(choice.load, state.load.dtype)
    return CrewState(total, tries, load), choice._replace(workers=rank < choice.k)


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
    n = whole("n_workers", n_workers, 1, laws.MOST_WORKERS)
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
