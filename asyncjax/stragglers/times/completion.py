"""Time until the k fastest of n workers have answered: its mean and variance, for any law.

    E T_(k) = t_0 + integral_0^inf P(T_(k) > t_0 + t) dt
    Var T_(k) = integral_0^m 2 (m - t) P(T_(k) <= t) dt + integral_m^inf 2 (t - m) P(T_(k) > t) dt

with `t_0` the smallest possible time and `m` the mean, so that no large numbers cancel. Both are
quadratures of order-statistic probabilities (`laws.py`); one evaluation of the survival
functions serves every k. Model: Egger, Kas Hanna and Bitar (2023), two independent random times.
Gradient coding, as of Tandon et al. (2017), gives every worker its share `s + 1` times over, so
that any n - s answers give the full gradient: its time is `E T_(n-s)` at load `(s + 1) b`.

The quantiles of a law given as `P(T > t)`, found by bisection in the log odds of `u`, with `t =
typical * u / (1 - u)`, are the ends of the panels. Beyond the last quantile the function is
continued by the power of `t` with which it falls there. Where no survival function is known
(Poisson or Markov times, three random parts), `J` drawn rounds stand for the law.

Workers that stop computing at a deadline and answer with what they have, as in anytime minibatches
(Ferdinand et al., 2020), take `T_i = C_i + min(S_i(b), D)`. With C and S independent and `m =
min(t, D)`,

    P(T > t) = integral_0^m f_S(y) P(C > t - y) dy + P(S > m) P(C > t - m)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from asyncjax.checks import whole, within
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.independent_laws import CONSTANT, RECORDED
from asyncjax.stragglers.times import laws
from asyncjax.stragglers.times.laws import Pair, Part, check_times, pieces
from asyncjax.stragglers.times.response_times import Response, check_plain, check_size, shift_of

Survival = Callable[[Array], Array]

_MOST_PANELS = 160  # for workers with laws of their own
_WIDEST = 55.0  # log odds of u are searched between -_WIDEST and _WIDEST
_FARTHEST = 80.0  # log odds of the last quantile


class _Integrand(NamedTuple):
    """What an integral over the completion time needs at one load."""

    offsets: Array  # float[w], time of each law's begin after `start`; w = 1 of identical workers
    parts: tuple[Part, ...]  # none, one or two, of w rows
    start: Array  # float[], smallest possible time
    ends: Array  # float[P], ends of panels, time after `start`
    n_workers: int

    def tails(self, t: Array) -> Pair:
        """`(P(T_(k) > t), P(T_(k) <= t))` at times after the start, float[Q, n] each."""
        both = self.of_workers(t)
        if self.offsets.size == 1:
            return laws.identical(*both, self.n_workers)
        return laws.tails(laws.poisson_binomial(*both))

    def integrals(self, t: Array, weight: Array) -> Array:
        """Integrals of `P(T_(k) > t)` after the start for k = 1 .. n, float[n]."""
        both = self.of_workers(t)
        if self.offsets.size == 1:
            return laws.identical_integrals(weight, *both, self.n_workers)
        return laws.integrals(weight, laws.poisson_binomial(*both))

    def of_workers(self, t: Array) -> Pair:
        """`(P(T_i <= t), P(T_i > t))`, float[Q] of identical workers, else float[n, Q]."""
        if self.offsets.size == 1:
            return laws.both_of(jax.tree.map(lambda rows: rows[0], self.parts))(t)

        def worker(row: tuple[tuple[Part, ...], Array]) -> Pair:
            parts, begin = row
            since = t - begin
            begun = since > 0
            below, above = laws.both_of(parts)(jnp.where(begun, since, 1.0))
            return jnp.where(begun, below, 0.0), jnp.where(begun, above, 1.0)

        return jax.lax.map(worker, (self.parts, self.offsets))

    @property
    def has_tail(self) -> bool:
        """Whether `P(T_(k) > t)` falls like a power at last."""
        return any(part.law.has_tail for part in self.parts)

    def tail_exponent(self, k: Array) -> Array:
        """Exponent with which `P(T_(k) > t)` falls at last, inf if faster than any power."""
        infinite = jnp.full((self.n_workers,), jnp.inf, self.start.dtype)
        shapes = [part.shape for part in self.parts if part.law.has_tail]
        least = jnp.stack([jnp.minimum(infinite, shape) for shape in shapes]).min(0)
        return jnp.cumsum(jnp.sort(least))[self.n_workers - k]


def _integrand(times: Response | Clock, load: Array) -> _Integrand:
    """Writes response times at one load, float[], as a sum, and lays out the panels."""
    listed, n = pieces(times), times.n_workers
    n_rows = max(clock.n_workers for _, clock, _ in listed)
    location, parts = jnp.zeros(n_rows, jnp.result_type(load)), []
    for _, clock, scaling in listed:
        begin, part = laws.part_at(clock, scaling, load)
        location = location + begin
        if part is not None:
            parts.append(jax.tree.map(lambda value: jnp.broadcast_to(value, (n_rows,)), part))
    parts.sort(key=lambda part: -part.law.cost)
    at, start = laws.panel_levels(location.dtype, n), location.min()
    offsets = location - start

    def row_ends(parts: list[Part], offset: Array) -> Array:
        quantiles = (laws.part_quantiles(part, at) for part in parts)
        return sum(quantiles, jnp.zeros(at.shape, location.dtype) + offset)

    ends = jnp.sort(jax.vmap(row_ends)(parts, offsets).ravel())
    if ends.size > _MOST_PANELS:
        chosen = np.unique(np.linspace(0, ends.size - 1, _MOST_PANELS).round().astype(int))
        ends = ends[chosen]
    if n_rows > 1:  # survival functions bend where a worker's times begin
        ends = jnp.sort(jnp.concatenate([ends, offsets]))
    least = ends[-1] * jnp.asarray(1e-25, ends.dtype)
    ends = jax.lax.stop_gradient(jnp.maximum(ends, least))
    return _Integrand(offsets, tuple(parts), start, ends, n)


def with_rest(means: Array, last: Array, late: Array, exponent: Array) -> Array:
    """Adds what is beyond the last panel, where the chance is `late` and falls by a power."""
    rest = last * late / (jnp.maximum(exponent, 1.0) - 1)
    return jnp.where(exponent > 1, means + rest, jnp.inf)


def _means(times: Response | Clock, load: Array) -> Array:
    """`E T_(k)` for k = 1 .. n at one load, float[n]."""
    it = _integrand(times, load)
    t, weight = laws.log_panels(it.ends, laws.nodes_a_panel(it.ends.dtype, it.n_workers))
    means = it.start + it.integrals(t, weight)
    if not it.has_tail:
        return means
    late, _ = it.tails(it.ends[-1:])
    exponent = it.tail_exponent(jnp.arange(1, it.n_workers + 1))
    return with_rest(means, it.ends[-1], late[0], exponent)


def _variance(times: Response | Clock, load: Array, k: Array, mean: Array) -> Array:
    """`Var T_(k)` for one k at one load, float[]."""
    it = _integrand(times, load)
    centre = jax.lax.stop_gradient(mean - it.start)
    order = laws.nodes_a_panel(it.ends.dtype, it.n_workers)
    before, weight = laws.log_panels(jnp.minimum(it.ends, centre), order)
    # of the later times the first panel, from 0, belongs to the earlier ones
    after, later_weight = (
        part[order:] for part in laws.log_panels(jnp.maximum(it.ends, centre), order)
    )
    late, done = it.tails(jnp.concatenate([before, after, it.ends[-1:]]))
    late, done = late[before.size :, k - 1], done[: before.size, k - 1]
    earlier, later = weight * (centre - before), later_weight * (after - centre)
    total = 2 * earlier @ done + 2 * later @ late[:-1]
    if not it.has_tail:
        return total
    last, exponent = it.ends[-1], it.tail_exponent(k)
    safe = jnp.maximum(exponent, 2.0)
    rest = 2 * last * late[-1] * (last / (safe - 2) - centre / (safe - 1))
    return jnp.where(exponent > 2, total + rest, jnp.inf)


def _recorded_rounds(times: Response | Clock, load: Array) -> Array:
    """Sorted times of every round of constant and recorded times, float[J, n]."""
    listed = pieces(times)
    rows = [
        jnp.atleast_2d(jnp.asarray(next(iter(clock.parameters.values()))).T).T
        for _, clock, _ in listed
    ]
    n_rounds = math.lcm(*(row.shape[1] for row in rows))
    total = jnp.zeros((times.n_workers, n_rounds), load.dtype)
    for (_, clock, scaling), row in zip(listed, rows, strict=True):
        grows = scaling == "scale" or (scaling is not None and clock.law.name == "constant")
        total = total + jnp.tile(row, (1, n_rounds // row.shape[1])) * (load if grows else 1.0)
    return jnp.sort(total.T, axis=1)


@jax.jit
def mean_table(times: Response | Clock, loads: Array) -> Array:
    """`E T_(k)` for every k at every load, float[B, n], loads float[B]."""
    if laws.is_deterministic(times):
        return jax.vmap(lambda load: _recorded_rounds(times, load).mean(0))(loads)
    return jax.lax.map(lambda load: _means(times, load), loads)


@jax.jit
def _variances(times: Response | Clock, loads: Array, k: Array, means: Array) -> Array:
    """`Var T_(k)` for pairs of load and k with their means, float[B]."""

    def variance(entry: tuple[Array, Array, Array]) -> Array:
        load, count, mean = entry
        if laws.is_deterministic(times):
            return _recorded_rounds(times, load)[:, count - 1].var()
        return _variance(times, load, count, mean)

    return jax.lax.map(variance, (loads, k, means))


def _checked(times: Response | Clock, k: Any, load: Any) -> Pair:
    """Checks the arguments on the host; gives k as int32 and the load as floats."""
    check_times(times)
    within("k", k, least=1, most=times.n_workers, integer=True)
    within("load", load, above=0)
    load = load if isinstance(load, jax.Array) else np.asarray(load)
    is_float = jnp.issubdtype(load.dtype, jnp.floating)
    counts = jnp.clip(jnp.asarray(k, jnp.int32), 1, times.n_workers)
    return counts, jnp.asarray(load, None if is_float else float)


def _picked(table: Array, shape: tuple[int, ...], counts: Array) -> Array:
    """Entries of a table float[B, n] for k = 1 .. n, whose rows have a shape."""
    return table[np.arange(table.shape[0]).reshape(shape), counts - 1]


def expected_completion(times: Response | Clock, k: ArrayLike, load: ArrayLike = 1.0) -> Array:
    """Computes the expected time until the k fastest of n workers have answered.

    Formula: `E T_(k) = integral_0^inf P(T_(k) > t) dt`; for exponential times
    `mean (H_n - H_{n-k})`.

    Args:
        times: A response, or a clock (read as "scale", its links as communication).
        k: How many answers the server waits for, int or int array in 1 .. n.
        load: Units of load a worker, float or array that broadcasts with `k`; every k comes almost
            free.

    Returns:
        float of the broadcast shape, the laws' time unit; inf where a heavy tail makes it so. Works
        under `jit` and `vmap`, and can be differentiated in the means and in `load`.

    Note:
        Measured relative errors: in single precision 1e-7 to 3e-6 up to (n, k) = (256, 230) and
        2e-5 with 1000 workers; in double 1e-11, and 1e-8 for sums of two parts that are neither
        both exponential nor a gamma time and a slower exponential one; more for a part whose
        density is infinite at 0.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.5), communicate=clocks.exponential(1.0), n_workers=3
        ... )
        >>> stragglers.expected_completion(times, [1, 2, 3]).round(3).tolist()  # .7, 1.35, 2.45
        [0.7..., 1.35..., 2.45...]
    """
    counts, loads = _checked(times, k, load)
    return _picked(mean_table(times, loads.ravel()), loads.shape, counts)


def completion_variance(times: Response | Clock, k: ArrayLike, load: ArrayLike = 1.0) -> Array:
    """Returns the variance of the time until the k fastest of n workers have answered.

    Formula: `E (T_(k) - E T_(k))^2`; for exponential times `mean^2 sum_{i=n-k+1}^n 1/i^2`.

    Args:
        times, k, load: As for `expected_completion`.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(compute=clocks.exponential(0.2), n_workers=5)
        >>> round(float(stragglers.completion_variance(times, 2)), 6)  # 0.04 (1/16 + 1/25)
        0.0041
    """
    counts, loads = _checked(times, k, load)
    means = _picked(mean_table(times, loads.ravel()), loads.shape, counts)
    counts, loads = (jnp.broadcast_to(value, means.shape).ravel() for value in (counts, loads))
    return _variances(times, loads, counts, means.ravel()).reshape(means.shape)


def coded_completion(times: Response | Clock, tolerated: ArrayLike, load: ArrayLike = 1.0) -> Array:
    """Returns the expected time of an update by gradient coding that tolerates `s` stragglers.

    Formula: `E T_(n-s)` at load `(s + 1) b`: every worker computes `s + 1` shares of `b` units, and
    any `n - s` answers give the gradient over all `n b` units.

    Args:
        times: As for `expected_completion`.
        tolerated: Number `s` of stragglers tolerated, int or int array in 0 .. n - 1.
        load: Units of load of one share, float or array that broadcasts with `tolerated`.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.shifted_exponential(0.1, 1.0), communicate=clocks.exponential(0.2),
        ...     scaling="shift", n_workers=12,
        ... )
        >>> [round(float(coded_completion(times, s)), 2) for s in (0, 1, 2)]
        [3.43, 2.53, 2.13]
    """
    within("tolerated", tolerated, least=0, most=times.n_workers - 1, integer=True)
    s, size = (x if isinstance(x, jax.Array) else np.asarray(x) for x in (tolerated, load))
    return expected_completion(times, times.n_workers - s, size * (s + 1))


def deadline_completion(
    times: Response | Clock, k: ArrayLike, deadline: ArrayLike, load: ArrayLike = 1.0
) -> Array:
    """Returns the expected time until k of n that stop at a deadline answer (arXiv 2006.05752).

    Formula: `E T_(k)` of `T_i = C_i + min(S_i(load), D)`. Works under `jit`; can be differentiated
    in means, load and deadline.

    Args:
        times: Response times of identical workers: a response of one-worker clocks.
        k: How many answers the server waits for, int or int array in 1 .. n.
        deadline: Time `D` that a worker computes at most, positive; float or array.
        load: Units of load a worker; `k`, `deadline` and `load` broadcast.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(1.0), communicate=clocks.constant(0.5), n_workers=4
        ... )
        >>> [round(float(value), 4) for value in deadline_completion(times, [1, 4], 1.0)]
        [0.7454, 1.456]
    """
    counts, loads = _checked(times, k, load)
    for name, clock, _ in pieces(times):
        if clock.n_workers > 1 or clock.law.name == "recorded":
            raise ValueError(
                "times must be of identical workers (a response of one-worker clocks) for a "
                f"deadline, got {name} of {clock.n_workers} workers, {clock.law.name}"
            )
    limits = jnp.asarray(within("deadline", deadline, above=0), float)
    limits, loads = jnp.broadcast_arrays(limits, loads.astype(limits.dtype))
    return _picked(_deadline_table(times, limits.ravel(), loads.ravel()), limits.shape, counts)


@jax.jit
def _deadline_table(times: Response | Clock, limits: Array, loads: Array) -> Array:
    """`E T_(k)` for every k at B pairs of deadline and load, float[B, n]."""
    return jax.lax.map(lambda pair: _stopped_means(times, *pair), (limits, loads))


def _stopped_means(times: Response | Clock, limit: Array, load: Array) -> Array:
    """`E T_(k)` for every k of identical workers that stop at one deadline, float[n]."""
    apart: list[Part] = []  # random parts of communication: none, one or two; scalar rows
    compute, n = None, times.n_workers  # the random part of computing
    start, smallest = jnp.zeros_like(limit), jnp.zeros_like(limit)
    for _, clock, scaling in pieces(times):
        location, part = laws.part_at(clock, scaling, load)
        row = jax.tree.map(lambda rows: rows[0], part)
        if scaling is None:
            start = start + location[0]
            apart += [] if row is None else [row]
        else:
            smallest, compute = location[0], row
    room = jnp.maximum(limit - smallest, limit * 1e-20)  # for the random part of computing
    start = start + jnp.minimum(smallest, limit)
    if compute is None and not apart:
        return jnp.broadcast_to(start, (n,))

    def both(t: Array, is_before: Array) -> Pair:
        """`(P(T <= t), P(T > t))` at times after the start, float[Q] each."""
        if compute is None:
            return laws.both_of(tuple(apart))(t)
        if apart:
            return laws.convolution(compute, apart[0], room)(t, is_before)
        below, above = compute.both(t)  # the last node is the deadline: all have finished
        return jnp.where(is_before, below, 1.0), jnp.where(is_before, above, 0.0)

    at = laws.panel_levels(room.dtype, n)
    quantiles = [laws.part_quantiles(part, at) for part in apart]
    ends = communicate = sum(quantiles, jnp.zeros(at.shape, room.dtype))
    if compute is not None:  # what the deadline leaves is an end; communication goes on after it
        later = [room + communicate] if apart else []
        early = jnp.minimum(laws.part_quantiles(compute, at), room) + communicate
        ends = jnp.sort(jnp.concatenate([early, room[None], *later]))
    ends = jax.lax.stop_gradient(ends)
    ends = jnp.maximum(ends, ends[-1] * jnp.asarray(1e-25, ends.dtype))
    t, weight = laws.log_panels(ends, laws.nodes_a_panel(ends.dtype, n))
    is_before = t < room
    if compute is not None:  # nodes follow the deadline, which gives its derivative
        fixed = jax.lax.stop_gradient(room)
        t = jnp.where(is_before, room * (t / fixed), room + (t - fixed))
        weight = jnp.where(is_before, room * (weight / fixed), weight)
    total = start + laws.identical_integrals(weight, *both(t, is_before), n)
    shapes = [part.shape for part in apart if part.law.has_tail]
    if not shapes:
        return total
    past = ends[-1:]
    late = laws.identical(*both(past, past < room), n)[0][0]
    return with_rest(total, ends[-1], late, jnp.stack(shapes).min() * jnp.arange(n, 0, -1))


def completion_of_survival(
    survival: Survival, k: ArrayLike, *, n_workers: int, typical: ArrayLike, start: ArrayLike = 0.0
) -> Array:
    """Computes the expected time until k of n identical workers of any law have answered.

    Formula: `E T_(k) = integral_0^inf P(T_(k) > t) dt`, `P(T_(k) > t)` from `survival(t)`.

    Args:
        survival: `t -> P(T > t)`, a JAX function that maps float[Q] to float[Q]; it falls from 1
            and may jump.
        k: How many answers the server waits for, int or int array in 1 .. n.
        n_workers: Number of workers `n`, at most 10 000.
        typical: A time after `start` of the order of the median, positive; 20 orders of magnitude
            on either side are searched.
        start: Time before which no worker answers, at least 0: where `survival` leaves 1.

    Returns:
        float, as `k` in shape; inf where a heavy tail, or mass at infinity, makes it so. Works
        under `jit` and can be differentiated, but not in the place of a jump. Relative error below
        1e-12 in double and 2e-6 in single precision (exponential, Pareto and Weibull laws).

    Example:
        >>> import jax.numpy as jnp
        >>> times = completion_of_survival(
        ...     lambda t: jnp.exp(-t / 0.2), [1, 2], n_workers=5, typical=0.1
        ... )
        >>> [round(float(value), 6) for value in times]
        [0.04, 0.09]
    """
    n = whole("n_workers", n_workers, 1, laws.MOST_WORKERS)
    within("k", k, least=1, most=n, integer=True)
    within("typical", typical, above=0)
    within("start", start, least=0)
    scale, origin = (jnp.asarray(value, jnp.result_type(float)) for value in (typical, start))
    at = laws.panel_levels(scale.dtype, n)
    step = at[1] - at[0]
    at = np.append(at, np.arange(at[-1] + step, _FARTHEST, step))
    fixed = jax.lax.stop_gradient((scale, origin))
    ends = jnp.sort(jax.lax.stop_gradient(_quantiles(survival, *fixed, at)))
    t, weight = _nodes(ends, n)
    above = survival(origin + t)
    if not isinstance(above, Tracer):
        values, slack = np.asarray(above), 1e-5
        rise = np.diff(values).max()
        if not (values.min() >= -slack and values.max() <= 1 + slack and rise <= slack):
            raise ValueError(
                "survival must return probabilities in 0 .. 1 that do not rise with t, got"
                f" {values.min():.3g} to {values.max():.3g} with a rise by {rise:.3g}"
            )
    means = origin + _integrals(weight, above, ends[-1], n)
    return means[jnp.clip(jnp.asarray(k), 1, n) - 1]


def _quantiles(survival: Survival, scale: Array, start: Array, at: np.ndarray) -> Array:
    """Times after the start at which the law has log odds float[P], by bisection, float[P]."""
    odds = jnp.asarray(at, scale.dtype)

    def halved(_: int, interval: Pair) -> Pair:
        low, high = interval
        middle = (low + high) / 2
        above = survival(start + scale * jnp.exp(middle))
        # log odds of P(T <= t), with the tail that `survival` gives exactly
        is_late = jnp.log1p(-above) - jnp.log(above) < odds
        return jnp.where(is_late, middle, low), jnp.where(is_late, high, middle)

    widest = jnp.full(odds.shape, _WIDEST, scale.dtype)
    low, high = jax.lax.fori_loop(0, 60, halved, (-widest, widest))
    return scale * jnp.exp((low + high) / 2)


@partial(jax.jit, static_argnames=("n",))
def _nodes(ends: Array, n: int) -> Pair:
    """Nodes and weights; two more times, the last end and e times it, have no weight."""
    t, weight = laws.log_panels(ends, laws.nodes_a_panel(ends.dtype, n))
    return jnp.concatenate([t, ends[-1] * jnp.asarray([1.0, np.e], ends.dtype)]), weight


@partial(jax.jit, static_argnames=("n",))
def _integrals(weight: Array, above: Array, last: Array, n: int) -> Array:
    """Integrals of `P(T_(k) > t)` for k = 1 .. n, float[n], with what is beyond the last panel."""
    above = jnp.clip(above, 0.0, 1.0)
    means = laws.identical_integrals(weight, 1 - above[:-2], above[:-2], n)
    late = laws.identical(1 - above[-2:-1], above[-2:-1], n)[0][0]
    here, later = jax.lax.stop_gradient((above[-2], above[-1]))
    # the last two times tell with which power of t the law falls
    is_over = later <= 0
    power = jnp.where(is_over, jnp.inf, jnp.log(here / jnp.where(is_over, 1.0, later)))
    power = power * jnp.arange(n, 0, -1)
    is_finite = power > 1 + 1e-3
    rest = jnp.where(is_over, 0.0, last * late / (jnp.where(is_finite, power, 2.0) - 1))
    return jnp.where(is_finite, means + rest, jnp.inf)


def sampled(times: Response | Clock, key: Array | None, n_rounds: int) -> Response:
    """Draws rounds of any response times and returns them as recorded ones.

    Formula: `T_i(load)` of round `j` is the time that `times` draws for update `j` at worker `i`.

    Args:
        times: A response or a clock of any law, links included; a clock is read as "scale".
        key: Random key; None is allowed if nothing is random.
        n_rounds: How many rounds `J` to draw.

    Returns:
        A response of recorded times; the load works as in `times`. Under "scale" the compute part
        is recorded at load 1 and multiplied by the load. Under "shift" the shift is kept as a
        constant that grows with the load, and the rest recorded.

    Example:
        >>> import jax
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(compute=clocks.uniform(0.0, 2.0), n_workers=3)
        >>> rounds = sampled(times, jax.random.key(0), 2000)
        >>> bool(abs(stragglers.expected_completion(rounds, 2) - 1.0) < 0.05)
        True
    """
    check_plain(times)
    n, n_rounds = times.n_workers, check_size("n_rounds", n_rounds, times.n_workers)
    if isinstance(times, Clock):
        clock, links, scaling = times, (times.download, times.upload), "scale"
    else:
        clock, links, scaling = times.compute, (times.communicate,), times.scaling
    if clock is not None and clock.law.name == "constant":
        scaling = "scale"  # what grows is a multiple
    if scaling == "additive" and clock is not None:
        raise ValueError(
            "times must not be random under scaling 'additive' to be sampled (the sum of several "
            f"draws is not a function of one), got {clock.law.name}"
        )
    drawn = times.times(key, n_rounds)
    apart, compute = drawn.download + drawn.upload, drawn.compute
    if scaling == "shift" and clock is not None:
        shift = shift_of(clock.broadcast(n))
        grows, rest = Clock({"compute": shift}, CONSTANT), apart + compute - shift[:, None]
        return Response(grows, _recorded(rest), "scale", n)
    communicate = None if all(link is None for link in links) else _recorded(apart)
    return Response(None if clock is None else _recorded(compute), communicate, "scale", n)


def _recorded(rounds: Array) -> Clock:
    """A clock of recorded rounds float[n, J]."""
    return Clock({"durations": rounds}, RECORDED)
