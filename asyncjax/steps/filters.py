r"""Filters: a gradient that is too old, too far away, or no gradient at all becomes zero.

    drop_stale   passes if  delay < threshold
    picky_sgd    passes if  ||x - x_read|| <= radius
    zeno         g <- ||v|| / ||g|| g,  v = grad of a validation loss at x;
                 passes if  <v, g> - rho ||g||^2 >= -epsilon
    kardam       passes if  k <= quantile_{(n - f) / n} of k_1 .. k_n,  and its worker is not among
                 those of the 2 f that passed before it

For Kardam let x be the server's model now, x', g' those of the arrival that passed last, and of
worker i the gradient g_i and the model x_i that it was taken at, the last two of each:

    k    = ||g - g'|| / ||x - x'||                                of the arrival
    k_i  = ||g_i - g_i,before|| / ||x_i - x_i,before||            of a worker, the largest of late

So an arrival may not change faster than gradients of workers do (its Lipschitz filter), and of any
2 f + 1 that pass in a row at most f can come from f adversaries (its frequency filter).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import like, number
from asyncjax.buffers.rows import empty_rows
from asyncjax.checks import flag, whole
from asyncjax.steps import trees
from asyncjax.steps.transformation import Transformation, Updated, transformation

_UNKNOWN = -1.0  # in place of a coefficient
_ROUNDINGS = 16  # equal ratios may differ by: of a worker heard twice in a row both are the same


class DropStaleState(NamedTuple):
    """State of `drop_stale` and `picky_sgd`."""

    dropped_gradients: jax.Array  # int32[], gradients dropped so far
    kept_state: optax.OptState  # of the inner transformation; empty for the filter
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def drop_stale(
    threshold: ArrayLike, inner: optax.GradientTransformation | None = None
) -> Transformation:
    """Drops every gradient whose delay is not below a threshold.

    Alone, it is a filter for a chain: a dropped gradient becomes exact zeros, nan and infinite
    entries included, and the transformations behind it still run: zeros decay the moments of adam.
    With `inner`, it is a wrapper: on a dropped gradient the update is zero and the state of `inner`
    is bitwise unchanged; `delay` and all other extras reach `inner`. Source: Maranjyan, Tyurin,
    Richtárik 2025, arXiv 2501.16168.

    Args:
        threshold: Smallest delay that is dropped, at least 1, in updates.
        inner: Transformation that sees only the gradients that are kept.

    Note:
        Put `proximal` inside the wrapper: around it, a dropped gradient would still move the
        parameters. Around an adaptive rule, a dropped gradient is no update for its history.

    Example:
        >>> optimizer = drop_stale(4, optax.sgd(0.5))
        >>> params = jnp.float32(1.0)
        >>> state = optimizer.init(params)
        >>> for delay in (3, 4):
        ...     update, state = optimizer.update(jnp.float32(2.0), state, params, delay=delay)
        ...     print(float(update), int(state.dropped_gradients))
        -1.0 0
        0.0 1
    """
    number("threshold", threshold, least=1, finite=False)

    def keeps(*, params: optax.Params | None = None, delay: ArrayLike, **extra: Any) -> jax.Array:
        return trees.scalar("delay", delay) < threshold

    return _filtered(keeps, inner)


def picky_sgd(
    radius: ArrayLike, inner: optax.GradientTransformation | None = None
) -> Transformation:
    """Drops every gradient that was taken farther than a radius from where the parameters are now.

    Alone a filter, with `inner` a wrapper, as `drop_stale`. Every `update` needs `params` and the
    extra `read_params`. Source: Cohen, Daniely, Drori, Koren, Schain 2021, "Asynchronous stochastic
    optimization robust to arbitrary delays" (Picky SGD).

    Args:
        radius: Largest Euclidean distance over the whole tree that is kept, at least 0.
        inner: Transformation that sees only the gradients that are kept.

    Example:
        >>> rule = picky_sgd(1.0)
        >>> params = jnp.array([1.0, 2.0])
        >>> state = rule.init(params)
        >>> for read in (0.9, 9.0):
        ...     update, state = rule.update(params, state, params, read_params=params * read)
        ...     print(update.tolist(), int(state.dropped_gradients))
        [1.0, 2.0] 0
        [0.0, 0.0] 1
    """
    number("radius", radius, least=0, finite=False)

    def gap(leaf: ArrayLike, read: ArrayLike) -> jax.Array:
        dtype = trees.wide(leaf)
        return jnp.asarray(leaf).astype(dtype) - jnp.asarray(read).astype(dtype)

    def keeps(*, params: optax.Params, read_params: optax.Params, **extra: Any) -> jax.Array:
        like("read_params", read_params, params, "params")
        return jnp.asarray(optax.tree.norm(trees.map_unmasked(gap, params, read_params)) <= radius)

    return _filtered(keeps, inner)


def _filtered(
    keeps: Callable[..., jax.Array], inner: optax.GradientTransformation | None
) -> Transformation:
    """The updates of `inner`, or zeros and its old state where `keeps(*, extras)` is false."""
    wrapped = optax.with_extra_args_support(optax.identity() if inner is None else inner)

    def init(params: optax.Params) -> DropStaleState:
        return DropStaleState(jnp.zeros((), jnp.int32), wrapped.init(params))

    @wraps(keeps)
    def update(updates: optax.Updates, state: DropStaleState, **extra: Any) -> Updated:
        keep = keeps(**extra)
        params = extra.pop("params")
        updates, new = wrapped.update(updates, state.kept_state, params, **extra)
        updates = jax.tree.map(lambda leaf: jnp.where(keep, leaf, jnp.zeros_like(leaf)), updates)
        new = jax.tree.map(lambda new, old: jnp.where(keep, new, old), new, state.kept_state)
        return updates, DropStaleState(_counted(state, keep), new)

    return transformation(init, update)


def _counted(state: Any, passes: jax.Array) -> jax.Array:
    """How many gradients were dropped, this one included."""
    return state.dropped_gradients + jnp.logical_not(passes).astype(jnp.int32)


class PassDescentState(NamedTuple):
    """State of `zeno` and `afl_guard`."""

    dropped_gradients: jax.Array  # int32[], arrivals that did not pass so far


def zeno(
    validation_gradient: Callable[[Any], Any], *, rho: ArrayLike = 0.0, epsilon: ArrayLike = 0.0
) -> Transformation:
    """Zeno++: scales arrivals to the norm of the server's own gradient, and drops those that climb.

    For `simulation.Update(..., gradient_transform=...)`. Every `update` needs `params`, at which
    the server takes its gradient. Source: Xie, Koyejo, Gupta 2020, arXiv 1903.07020.

    Args:
        validation_gradient: `params -> gradient` of a loss that the server can compute itself.
        rho: Weight of the squared norm, at least 0.
        epsilon: How much an accepted step may seem to climb, at least 0.

    Note:
        From memory of the paper: its score is gamma <v, g> - rho ||g||^2 >= -gamma epsilon, here
        with gamma = 1. The paper takes v at a model some updates old; here at the present one.

    Example:
        >>> rule = zeno(lambda x: x)
        >>> x = jnp.array([3.0, 4.0])
        >>> state = rule.init(x)
        >>> for grad in ([6.0, 8.0], [-6.0, -8.0]):
        ...     sent, state = rule.update(jnp.array(grad), state, x)
        ...     print(sent.tolist(), int(state.dropped_gradients))
        [3.0, 4.0] 0
        [0.0, 0.0] 1
    """
    number("rho", rho, least=0)
    number("epsilon", epsilon, least=0)

    def judge(updates: Any, ours: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
        def dot(a: Any, b: Any) -> jax.Array:
            return jnp.sum(jnp.asarray(a).astype(dtype) * jnp.asarray(b).astype(dtype))

        length = jnp.sqrt(_summed(dot, updates, updates, dtype))
        scale = jnp.sqrt(_summed(dot, ours, ours, dtype)) / jnp.where(length > 0, length, 1)
        weight, slack = trees.in_dtype(dtype, rho, epsilon)
        score = scale * _summed(dot, ours, updates, dtype) - weight * (scale * length) ** 2
        return score >= -slack, scale

    return _validated(validation_gradient, judge)


def afl_guard(
    validation_gradient: Callable[[Any], Any], *, bound: ArrayLike = 1.0
) -> Transformation:
    r"""AFLGuard: drops arrivals that are far from the server's own gradient.

    .. math:: \|g - g_s\| \le \lambda \|g_s\|, \qquad g_s = \nabla f_s(x)

    is what passes, with f_s the loss of the server itself.

    For `simulation.Update(..., gradient_transform=...)`. Every `update` needs `params`, at which
    the server takes its gradient.

    Args:
        validation_gradient: `params -> gradient` of a loss that the server can compute itself.
        bound: Lambda, at least 0.

    Note:
        From memory of the paper: there the server's gradient is that of its last round, here it is
        taken at the present model.

    Example:
        >>> rule = afl_guard(lambda x: x, bound=1.5)
        >>> x = jnp.array([3.0, 4.0])
        >>> state = rule.init(x)
        >>> for grad in ([6.0, 8.0], [-6.0, -8.0]):
        ...     sent, state = rule.update(jnp.array(grad), state, x)
        ...     print(sent.tolist(), int(state.dropped_gradients))
        [6.0, 8.0] 0
        [0.0, 0.0] 1

    Reference:
        Fang, Liu, Gong, Bentley 2022, "AFLGuard: Byzantine-robust asynchronous federated learning",
        arXiv 2212.06325.
    """
    number("bound", bound, least=0)

    def judge(updates: Any, ours: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
        nothing = jax.tree.map(jnp.zeros_like, ours)
        most = jnp.asarray(bound).astype(dtype) ** 2 * _squares(ours, nothing, dtype)
        return _squares(updates, ours, dtype) <= most, jnp.ones((), dtype)

    return _validated(validation_gradient, judge)


def _validated(
    validation_gradient: Callable[[Any], Any], judge: Callable[..., tuple[jax.Array, jax.Array]]
) -> Transformation:
    """Updates by a factor, or zeros: `judge(updates, the server's own, dtype)` says what passes."""

    def update(updates: optax.Updates, state: PassDescentState, *, params: optax.Params) -> Updated:
        dtype = trees.wide_dtype(updates)
        passes, factor = judge(updates, validation_gradient(params), dtype)
        sent = trees.scale_tree(updates, jnp.where(passes, factor, 0))
        return sent, PassDescentState(_counted(state, passes))

    return transformation(lambda params: PassDescentState(jnp.zeros((), jnp.int32)), update)


def _summed(of_leaves: Callable[[Any, Any], jax.Array], a: Any, b: Any, dtype: Any) -> jax.Array:
    """The sum over leaves of two trees, the second perhaps whole where the first is masked."""
    parts = jax.tree.leaves(trees.map_unmasked(of_leaves, a, b))
    return sum(parts, start=jnp.zeros((), dtype))


class PassLipschitzState(NamedTuple):
    """State of `kardam`."""

    worker_gradient: optax.Updates  # what each worker sent last, tree of [n, ...]
    worker_model: optax.Params  # what it was taken at, tree of [n, ...]
    passed_gradient: optax.Updates  # that passed last, tree like the parameters
    passed_model: optax.Params  # the server's at that moment, the same
    coefficients: jax.Array  # float[n, window], each worker's last ones; below 0: none yet
    heard: jax.Array  # int32[n], gradients of each worker that were compared, and the first
    recent: jax.Array  # int32[2f], workers of the last that passed, -1: none
    rejections: jax.Array  # int32[], by the first filter, in a row
    dropped_gradients: jax.Array  # int32[], arrivals that did not pass so far
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def kardam(
    n_workers: int,
    n_adversaries: int,
    *,
    window: int = 26,
    most_rejections: int | None = None,
    frequency: bool = True,
) -> Transformation:
    """Kardam: drops arrivals that change faster than those of most workers, or come too often.

    For `simulation.Update(..., gradient_transform=...)`, on a trace that steps at every arrival.
    Every `update` needs `params` and the extras `worker` and `read_params`. Memory: 2 n + 2 models.
    Source: Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki 2018, "Asynchronous Byzantine machine
    learning (the case of SGD)", Section 3.

    Args:
        n_workers: Number of workers n, at least 1.
        n_adversaries: f, workers who may send anything, at least 0 and below n / 3; 0: all passes.
        window: Of how many of a worker's coefficients the largest counts, at least 1.
        most_rejections: So many in a row by the first filter, and the next passes it, at least 1;
            None: n. Where nothing moves no coefficient would ever change.
        frequency: Whether the second filter is there too.

    Note:
        The first filter is that of the authors' template program, with two differences. There the
        quantile is 2/3, which is (n - f) / n for the largest f, and a worker's own gradients are
        scaled by step size and dampening before they are compared. It has no second filter: that is
        recalled, and agrees with a public program; another one lets a worker come f times.

        Dampening by 1 / (1 + delay), or by exp(-0.2 delay), is a rule behind it in a chain:
        `scale_by_staleness("polynomial", exponent=1.0)`, or `scale_by_delay(cgad(0.2, inf), 1.0)`.

        Of honest arrivals many are dropped too: of ten workers of one speed about three in four.
        And an adversary who lies from his first gradient on passes with it.

    Example:
        Worker 3 flips signs from his second gradient on:

        >>> rule = kardam(4, 1)
        >>> x, curvature = jnp.array([3.0, 4.0]), jnp.array([1.0, 0.1])
        >>> state = rule.init(x)
        >>> for t in range(40):
        ...     grad = curvature * x * (-9.0 if t % 4 == 3 and t > 3 else 1.0)
        ...     sent, state = rule.update(grad, state, x, worker=t % 4, read_params=x)
        ...     x = x - 0.1 * sent
        >>> print(state.dropped_gradients, x.round(1))
        9 [0.1 2.9]
    """
    n = whole("n_workers", n_workers)
    f = whole("n_adversaries", n_adversaries, 0, (n - 1) // 3)
    size = whole("window", window)
    most = n if most_rejections is None else whole("most_rejections", most_rejections)
    lists = f if flag("frequency", frequency) else 0

    def init(params: optax.Params) -> PassLipschitzState:
        rows, zero, none = empty_rows(params, n), optax.tree.zeros_like(params), jnp.int32(0)
        coefficients = jnp.full((n, size), _UNKNOWN, trees.wide_dtype(params))
        recent, heard = jnp.full(2 * lists, -1, jnp.int32), jnp.zeros(n, jnp.int32)
        return PassLipschitzState(rows, rows, zero, zero, coefficients, heard, recent, none, none)

    def update(
        updates: Any, state: PassLipschitzState, *, params: Any, worker: ArrayLike, read_params: Any
    ) -> Updated:
        like("updates", updates, state.passed_gradient, "the parameters that init got")
        like("params", params, state.passed_model, "those that init got")
        like("read_params", read_params, state.passed_model, "params")
        worker = trees.scalar("worker", worker)
        state = _compared(state, updates, read_params, worker)
        dtype = state.coefficients.dtype
        change = _distance(state.passed_gradient, updates, dtype)
        ratio = change / _distance(state.passed_model, params, dtype)
        bound, is_known = _quantile(state.coefficients, n, f)
        bound = bound * (1 + _ROUNDINGS * jnp.finfo(dtype).eps)
        is_small = (ratio <= bound) | ~is_known | (state.rejections >= most) | (f == 0)
        passes = is_small & ~jnp.any(state.recent == worker)
        recent = jnp.append(state.recent, worker)[1:].astype(jnp.int32)
        state = state._replace(
            passed_gradient=_chosen(passes, updates, state.passed_gradient),
            passed_model=_chosen(passes, params, state.passed_model),
            recent=jnp.where(passes, recent, state.recent) if lists else state.recent,
            rejections=jnp.where(is_small, 0, state.rejections + 1),
            dropped_gradients=_counted(state, passes),
        )
        return trees.scale_tree(updates, jnp.where(passes, 1, 0).astype(dtype)), state

    return transformation(init, update, n_workers=lambda state: n)


def _compared(
    state: PassLipschitzState, updates: optax.Updates, read: optax.Params, worker: jax.Array
) -> PassLipschitzState:
    """The state with the worker's new coefficient, unless his model is the one of before."""
    dtype, size = state.coefficients.dtype, state.coefficients.shape[1]
    gradients, models = state.worker_gradient, state.worker_model
    gradient, model, heard = trees.row_of((gradients, models, state.heard), worker)
    moved = _distance(model, read, dtype)
    ratio = _distance(gradient, updates, dtype) / moved
    ratio = jnp.where(jnp.isnan(ratio), jnp.inf, ratio)
    is_first, is_new = heard == 0, (heard == 0) | (moved != 0)
    column = jnp.where(is_new & ~is_first, (heard - 1) % size, size)  # size: nowhere
    entry = state.coefficients.at[worker, column]
    return state._replace(
        worker_gradient=trees.with_row(gradients, worker, _chosen(is_new, updates, gradient)),
        worker_model=trees.with_row(models, worker, _chosen(is_new, read, model)),
        coefficients=entry.set(ratio, mode="drop", wrap_negative_indices=False),
        heard=trees.with_row(state.heard, worker, heard + is_new),
    )


def _quantile(coefficients: jax.Array, n: int, f: int) -> tuple[jax.Array, jax.Array]:
    """The quantile of those workers whose coefficient is known, and whether any is."""
    largest = jnp.max(coefficients, axis=1)
    count = jnp.sum(largest >= 0)
    rank = ((n - f) * count + n - 1) // n
    in_order = jnp.sort(jnp.where(largest >= 0, largest, jnp.inf))
    return in_order[jnp.maximum(rank, 1) - 1], count > 0


def _squares(a: Any, b: Any, dtype: Any) -> jax.Array:
    """The squared Euclidean distance of two trees."""

    def of_leaves(a: Any, b: Any) -> jax.Array:
        return jnp.sum((jnp.asarray(a).astype(dtype) - jnp.asarray(b).astype(dtype)) ** 2)

    return _summed(of_leaves, a, b, dtype)


def _distance(a: Any, b: Any, dtype: Any) -> jax.Array:
    return jnp.sqrt(_squares(a, b, dtype))


def _chosen(flag: jax.Array, new: Any, old: Any) -> Any:
    """The first tree or the second, which has the masks and the dtypes."""
    return trees.map_unmasked(
        lambda b, a: jnp.where(flag, jnp.asarray(a).astype(jnp.result_type(b)), b), old, new
    )
