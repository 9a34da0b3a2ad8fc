"""Time until the k fastest of n workers have answered: its mean and variance.

    E T_(k) = t_0 + integral_0^inf P(T_(k) > t_0 + t) dt
    Var T_(k) = integral_0^m 2 (m - t) P(T_(k) <= t) dt + integral_m^inf 2 (t - m) P(T_(k) > t) dt

with `t_0` the smallest possible time and `m` the mean, so that no large numbers cancel. Both are
quadratures of order-statistic probabilities (`order_statistics.py`); one evaluation of the survival
functions serves every k. Model: Egger, Kas Hanna and Bitar (2023), two independent random times.
Gradient coding, as of Tandon et al. (2017), gives every worker its share `s + 1` times over, so
that any n - s answers give the full gradient: its time is `E T_(n-s)` at load `(s + 1) b`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from asyncjax.checks import within
from asyncjax.clocks.clock import Clock
from asyncjax.stragglers.times.decomposition import (
    Sum,
    check_times,
    is_deterministic,
    pieces,
    sum_at,
)
from asyncjax.stragglers.times.laws import Part, both_of, part_quantiles
from asyncjax.stragglers.times.order_statistics import (
    identical,
    identical_integrals,
    poisson_binomial,
    poisson_binomial_integrals,
)
from asyncjax.stragglers.times.quadrature import log_panels, nodes_a_panel, panel_levels
from asyncjax.stragglers.times.response_times import Response
from asyncjax.stragglers.times.shapes import as_array, common_shape

_MOST_PANELS = 160  # for workers with laws of their own


class _Integrand(NamedTuple):
    """What an integral over the completion time needs at one load."""

    law: Sum
    start: Array  # float[], smallest possible time
    ends: Array  # float[P], ends of panels, time after `start`
    n_workers: int

    def tails(self, t: Array) -> tuple[Array, Array]:
        """`(P(T_(k) > t), P(T_(k) <= t))` at times after the start, float[Q, n] each."""
        both = self.of_workers(t)
        return identical(*both, self.n_workers) if self.law.n_rows == 1 else poisson_binomial(*both)

    def integrals(self, t: Array, weight: Array) -> Array:
        """Integrals of `P(T_(k) > t)` after the start for k = 1 .. n, float[n]."""
        both = self.of_workers(t)
        if self.law.n_rows == 1:
            return identical_integrals(weight, *both, self.n_workers)
        return poisson_binomial_integrals(weight, *both)

    def of_workers(self, t: Array) -> tuple[Array, Array]:
        """`(P(T_i <= t), P(T_i > t))`, float[Q] of identical workers, else float[n, Q]."""
        if self.law.n_rows == 1:
            return both_of(jax.tree.map(lambda rows: rows[0], self.law.parts))(t)

        def worker(row: tuple[tuple[Part, ...], Array]) -> tuple[Array, Array]:
            parts, begin = row
            since = t - begin
            begun = since > 0
            below, above = both_of(parts)(jnp.where(begun, since, 1.0))
            return jnp.where(begun, below, 0.0), jnp.where(begun, above, 1.0)

        return jax.lax.map(worker, (self.law.parts, self.law.location - self.start))

    def tail_exponent(self, k: Array) -> Array:
        """Exponent with which `P(T_(k) > t)` falls at last, inf if faster than any power."""
        infinite = jnp.full((self.n_workers,), jnp.inf, self.start.dtype)
        tails = [part.shape for part in self.law.parts if part.law.has_tail]
        least = jnp.sort(
            jnp.stack([jnp.minimum(infinite, tail) for tail in tails] or [infinite]).min(0)
        )
        return jnp.cumsum(least)[self.n_workers - k]


def _integrand(times: Response | Clock, load: Array) -> _Integrand:
    """Lays out the panels for one load, float[]."""
    law, n = sum_at(times, load), times.n_workers
    at = panel_levels(law.location.dtype, n)
    start = law.location.min()
    offsets = law.location - start

    def row_ends(parts: tuple[Part, ...], offset: Array) -> Array:
        quantiles = (part_quantiles(part, at) for part in parts)
        return sum(quantiles, jnp.zeros(at.shape, law.location.dtype) + offset)

    ends = jnp.sort(jax.vmap(row_ends)(law.parts, offsets).ravel())
    if ends.size > _MOST_PANELS:
        chosen = np.unique(np.linspace(0, ends.size - 1, _MOST_PANELS).round().astype(int))
        ends = ends[chosen]
    if law.n_rows > 1:  # survival functions bend where a worker's times begin
        ends = jnp.sort(jnp.concatenate([ends, offsets]))
    least = ends[-1] * jnp.asarray(1e-25, ends.dtype)
    return _Integrand(law, start, jax.lax.stop_gradient(jnp.maximum(ends, least)), n)


def _means(times: Response | Clock, load: Array) -> Array:
    """`E T_(k)` for k = 1 .. n at one load, float[n]."""
    it = _integrand(times, load)
    t, weight = log_panels(it.ends, nodes_a_panel(it.ends.dtype, it.n_workers))
    means = it.start + it.integrals(t, weight)
    if any(part.law.has_tail for part in it.law.parts):
        exponent = it.tail_exponent(jnp.arange(1, it.n_workers + 1))
        late, _ = it.tails(it.ends[-1:])
        rest = it.ends[-1] * late[0] / (jnp.maximum(exponent, 1.0) - 1)
        means = jnp.where(exponent > 1, means + rest, jnp.inf)
    return means


def _variance(times: Response | Clock, load: Array, k: Array, mean: Array) -> Array:
    """`Var T_(k)` for one k at one load, float[]."""
    it = _integrand(times, load)
    centre = jax.lax.stop_gradient(mean - it.start)
    order = nodes_a_panel(it.ends.dtype, it.n_workers)
    before, weight = log_panels(jnp.minimum(it.ends, centre), order)
    # of the later times the first panel, from 0, belongs to the earlier ones
    after, later_weight = (part[order:] for part in log_panels(jnp.maximum(it.ends, centre), order))
    late, done = it.tails(jnp.concatenate([before, after, it.ends[-1:]]))
    late, done = late[before.size :, k - 1], done[: before.size, k - 1]
    total = (
        2 * (weight * (centre - before)) @ done + 2 * (later_weight * (after - centre)) @ late[:-1]
    )
    if any(part.law.has_tail for part in it.law.parts):
        last, exponent = it.ends[-1], it.tail_exponent(k)
        safe = jnp.maximum(exponent, 2.0)
        rest = 2 * last * late[-1] * (last / (safe - 2) - centre / (safe - 1))
        total = jnp.where(exponent > 2, total + rest, jnp.inf)
    return total


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
    if is_deterministic(times):
        return jax.vmap(lambda load: _recorded_rounds(times, load).mean(0))(loads)
    return jax.lax.map(lambda load: _means(times, load), loads)


@jax.jit
def _variances(times: Response | Clock, loads: Array, k: Array, means: Array) -> Array:
    """`Var T_(k)` for pairs of load and k with their means, float[B]."""

    def one(entry: tuple[Array, Array, Array]) -> Array:
        load, count, mean = entry
        if is_deterministic(times):
            return _recorded_rounds(times, load)[:, count - 1].var()
        return _variance(times, load, count, mean)

    return jax.lax.map(one, (loads, k, means))


def _table(times: Response | Clock, k: Array, loads: Array) -> Array:
    """Looks up every k at its load, of the broadcast shape."""
    rows = np.arange(loads.size).reshape(loads.shape)
    return mean_table(times, loads.ravel())[rows, jnp.clip(k, 1, times.n_workers) - 1]


def _checked(times: Response | Clock, k: Any, load: Any) -> tuple[Array, Array]:
    """Checks the arguments on the host; returns k as int32 and the load as floats."""
    check_times(times)
    within("k", k, least=1, most=times.n_workers, integer=True)
    within("load", load, above=0)
    common_shape(k=k, load=load)
    load = as_array(load)
    is_float = jnp.issubdtype(load.dtype, jnp.floating)
    return jnp.asarray(k, jnp.int32), jnp.asarray(load, None if is_float else float)


def expected_completion(times: Response | Clock, k: ArrayLike, load: ArrayLike = 1.0) -> Array:
    """Computes the expected time until the k fastest of n workers have answered.

    Formula: `E T_(k) = integral_0^inf P(T_(k) > t) dt`; for exponential times
    `mean (H_n - H_{n-k})`.

    Args:
        times: A response, or a clock (read as "scale", its links as communication).
        k: How many answers the server waits for, int or int array in 1 .. n; traced ones are not
            checked.
        load: Units of load a worker, float or array that broadcasts with `k`. Loads with axis `[L]`
            beside `k` with axes `[K, 1]` make a table; every k comes almost free.

    Returns:
        float of the broadcast shape, the laws' time unit; inf where a heavy tail makes it so. Works
        under `jit` and `vmap`, and can be differentiated in the means and in `load`. Constant and
        recorded times are averaged over the recorded rounds.

    Raises:
        TypeError: If `times` is no response or clock, or `k` not made of integers.
        ValueError: If a `k` is outside 1 .. n, a load is not positive, an array is empty, the
            shapes do not broadcast, a law has no survival function here, more than two parts are
            random, or there are more than 10 000 workers of one law (2000 of laws of their own).

    Note:
        Measured relative errors: in single precision 1e-7 to 3e-6 up to (n, k) = (256, 230) and
        2e-5 with 1000 workers; in double 1e-11, and 1e-8 for sums of two parts that are neither
        both exponential nor a gamma time and a slower exponential one. A part with a density that
        is infinite at 0 (gamma or Weibull with shape below 1), added to another, loses some digits.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.5), communicate=clocks.exponential(1.0), n_workers=3
        ... )
        >>> stragglers.expected_completion(times, [1, 2, 3]).round(3).tolist()  # .7, 1.35, 2.45
        [0.7..., 1.35..., 2.45...]

    Reference:
        Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589: the setting.
    """
    return _table(times, *_checked(times, k, load))


def completion_variance(times: Response | Clock, k: ArrayLike, load: ArrayLike = 1.0) -> Array:
    """Computes the variance of the time until the k fastest of n workers have answered.

    Formula: `E (T_(k) - E T_(k))^2`, integrated around the mean; for exponential times
    `mean^2 sum_{i=n-k+1}^n 1/i^2`.

    Args:
        times: As for `expected_completion`.
        k: As for `expected_completion`.
        load: As for `expected_completion`.

    Returns:
        float of the broadcast shape, squared time units; inf where a heavy tail makes it so.

    Raises:
        TypeError: As `expected_completion`.
        ValueError: As `expected_completion`.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(compute=clocks.exponential(0.2), n_workers=5)
        >>> round(float(stragglers.completion_variance(times, 2)), 6)  # 0.04 (1/16 + 1/25)
        0.0041
    """
    counts, loads = _checked(times, k, load)
    means = _table(times, counts, loads)
    counts, loads = (jnp.broadcast_to(value, means.shape).ravel() for value in (counts, loads))
    counts = jnp.clip(counts, 1, times.n_workers)
    return _variances(times, loads, counts, means.ravel()).reshape(means.shape)


def coded_completion(times: Response | Clock, tolerated: ArrayLike, load: ArrayLike = 1.0) -> Array:
    """Computes the expected time of an update by gradient coding that tolerates `s` stragglers.

    Formula: `E T_(n-s)` at load `(s + 1) b`: every worker computes `s + 1` shares of `b` units, and
    any `n - s` answers give the gradient over all `n b` units.

    Args:
        times: As for `expected_completion`.
        tolerated: Number `s` of stragglers tolerated, int or int array in 0 .. n - 1; traced
            ones are not checked.
        load: Units of load of one share, float or array that broadcasts with `tolerated`.

    Returns:
        float of the broadcast shape, the laws' time unit.

    Raises:
        TypeError: If `times` is no response or clock, or `tolerated` not made of integers.
        ValueError: If a `tolerated` is outside 0 .. n - 1, the shapes do not broadcast, or as
            `expected_completion`.

    Note:
        Redundancy is worth it only if most of the time does not grow with the load.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> times = stragglers.response(
        ...     compute=clocks.shifted_exponential(0.1, 1.0), communicate=clocks.exponential(0.2),
        ...     scaling="shift", n_workers=12,
        ... )
        >>> [round(float(coded_completion(times, s)), 2) for s in (0, 1, 2)]
        [3.43, 2.53, 2.13]

    Reference:
        Tandon, Lei, Dimakis, Karampatziakis, "Gradient coding", ICML 2017.
    """
    check_times(times)
    within("tolerated", tolerated, least=0, most=times.n_workers - 1, integer=True)
    within("load", load, above=0)
    common_shape(tolerated=tolerated, load=load)
    s, size = as_array(tolerated), as_array(load)
    return expected_completion(times, times.n_workers - s, size * (s + 1))
