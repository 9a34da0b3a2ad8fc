r"""Kardam's filter: an arrival passes if it does not change faster than gradients of workers do.

With x the server's model now, x', g' those of the arrival that passed last, and of worker i the
gradient g_i and the model x_i that it was taken at, the last two of each,

    k    = ||g - g'|| / ||x - x'||                                of the arrival
    k_i  = ||g_i - g_i,before|| / ||x_i - x_i,before||            of a worker, the largest of late
    passes if  k <= quantile_{(n - f) / n} of k_1 .. k_n,  and its worker is not among those of the
    2 f that passed before it

Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki 2018. The first is their Lipschitz filter, the
second their frequency filter: of any 2 f + 1 that pass one after the other at most f can come from
f adversaries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.checks import flag, whole
from asyncjax.steps.delays import scalar_integer
from asyncjax.steps.scaling import map_unmasked, scale_tree, wide_dtype
from asyncjax.steps.transformation import transformation

_UNKNOWN = -1.0  # in place of a coefficient
_ROUNDINGS = 16  # equal ratios may differ by: of a worker heard twice in a row both are the same


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
) -> optax.GradientTransformationExtraArgs:
    """Kardam: drops arrivals that change faster than those of most workers, or come too often.

    For `simulation.Update(..., gradient_transform=...)`, on a trace that steps at every arrival.
    Every `update` needs `params` and the extras `worker` and `read_params`. What does not pass is
    zero.

    Args:
        n_workers: Number of workers n, at least 1.
        n_adversaries: f, workers who may send anything, at least 0 and below n / 3. 0 lets
            everything pass.
        window: Of how many of a worker's coefficients the largest counts, at least 1.
        most_rejections: So many in a row by the first filter, and the next passes it, at least 1;
            None: as many as there are workers. Where nothing moves no coefficient would ever
            change.
        frequency: Whether the second filter is there too.

    Returns:
        A transformation whose state has the fields `coefficients` and `dropped_gradients`. Memory:
        2 n + 2 models.

    Raises:
        TypeError: An argument is of the wrong kind; in `update`, if `worker` is not an integer.
        ValueError: An argument is out of range; in `update`, if `worker` is, if there are no
            `params`, or `read_params` that are not like them.

    Note:
        Read in the authors' template program: both ratios, the largest of a worker's last 26, that
        the first arrivals pass, that a worker's coefficient stays while his model does, and
        `most_rejections`. There the quantile is 2/3, which is (n - f) / n for the largest f; with
        m workers known it is here the ceil((n - f) m / n)-th smallest of theirs. The program scales
        a worker's own gradients by step size and dampening before they are compared and the
        arrival not; here neither is. It has no second filter: what that is for is recalled, the
        rule follows from it and agrees with a public program that follows the paper; another one
        lets a worker come f times.

        Dampening by 1 / (1 + delay), or by exp(-0.2 delay), is a rule behind it in a chain:
        `scale_by_staleness("polynomial", exponent=1.0)`, or `scale_by_delay(cgad(0.2, inf),
        1.0)`.

        A ratio of gradients at late models to a short step of the server is large: of honest
        arrivals many are dropped too (Xie et al. 2020 and Yang and Li 2021 found the same; in the
        test of this rule, ten workers of one speed, about three in four). And an adversary who lies
        from his first gradient on passes with it, as nothing is known yet.

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

    Reference:
        Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki 2018, "Asynchronous Byzantine machine
        learning (the case of SGD)", Section 3.
    """
    n = whole("n_workers", n_workers)
    f = whole("n_adversaries", n_adversaries, 0, (n - 1) // 3)
    size = whole("window", window)
    most = n if most_rejections is None else whole("most_rejections", most_rejections)
    lists = f if flag("frequency", frequency) else 0

    def init(params: optax.Params) -> PassLipschitzState:
        rows = jax.tree.map(
            lambda leaf: jnp.zeros((n, *jnp.shape(leaf)), jnp.result_type(leaf)), params
        )
        zero, none = optax.tree.zeros_like(params), jnp.zeros((), jnp.int32)
        coefficients = jnp.full((n, size), _UNKNOWN, wide_dtype(params))
        recent = jnp.full(2 * lists, -1, jnp.int32)
        heard = jnp.zeros(n, jnp.int32)
        return PassLipschitzState(rows, rows, zero, zero, coefficients, heard, recent, none, none)

    def update(
        updates: optax.Updates,
        state: PassLipschitzState,
        *,
        params: optax.Params,
        worker: ArrayLike,
        read_params: optax.Params,
    ) -> tuple[optax.Updates, PassLipschitzState]:
        like("updates", updates, state.passed_gradient, "the parameters that init got")
        like("params", params, state.passed_model, "those that init got")
        number = scalar_integer("worker", worker)
        state = _compared(state, updates, read_params, number)
        dtype = state.coefficients.dtype
        change = _distance(state.passed_gradient, updates, dtype)
        ratio = change / _distance(state.passed_model, params, dtype)
        bound, is_known = _quantile(state.coefficients, n, f)
        bound = bound * (1 + _ROUNDINGS * jnp.finfo(dtype).eps)
        is_small = (ratio <= bound) | ~is_known | (state.rejections >= most) | (f == 0)
        passes = is_small & ~jnp.any(state.recent == number)
        recent = jnp.append(state.recent, number)[1:].astype(jnp.int32)
        state = state._replace(
            passed_gradient=_chosen(passes, updates, state.passed_gradient),
            passed_model=_chosen(passes, params, state.passed_model),
            recent=jnp.where(passes, recent, state.recent) if lists else state.recent,
            rejections=jnp.where(is_small, 0, state.rejections + 1),
            dropped_gradients=state.dropped_gradients + jnp.where(passes, 0, 1).astype(jnp.int32),
        )
        return scale_tree(updates, jnp.where(passes, 1, 0).astype(dtype)), state

    return transformation(init, update, n_workers=lambda state: n)


def _compared(
    state: PassLipschitzState, updates: optax.Updates, read: optax.Params, worker: jax.Array
) -> PassLipschitzState:
    """The state with the worker's new coefficient, unless his model is the one of before."""
    like("read_params", read, state.passed_model, "params")
    dtype, size = state.coefficients.dtype, state.coefficients.shape[1]
    gradient, model = _row(state.worker_gradient, worker), _row(state.worker_model, worker)
    heard = _row(state.heard, worker)
    moved = _distance(model, read, dtype)
    ratio = _distance(gradient, updates, dtype) / moved
    is_first, is_new = heard == 0, (heard == 0) | (moved != 0)
    place = jnp.where(is_new & ~is_first, (heard - 1) % size, size)  # size: nowhere
    ratio = jnp.where(jnp.isnan(ratio), jnp.inf, ratio)
    kept = state.coefficients.at[worker, place]
    return state._replace(
        worker_gradient=_written(state.worker_gradient, worker, _chosen(is_new, updates, gradient)),
        worker_model=_written(state.worker_model, worker, _chosen(is_new, read, model)),
        coefficients=kept.set(ratio, mode="drop", wrap_negative_indices=False),
        heard=_written(state.heard, worker, heard + is_new),
    )


def _quantile(coefficients: jax.Array, n: int, f: int) -> tuple[jax.Array, jax.Array]:
    """The quantile of those workers whose coefficient is known, and whether any is."""
    largest = jnp.max(coefficients, axis=1)
    count = jnp.sum(largest >= 0)
    rank = ((n - f) * count + n - 1) // n
    in_order = jnp.sort(jnp.where(largest >= 0, largest, jnp.inf))
    return in_order[jnp.maximum(rank, 1) - 1], count > 0


def _distance(one: Any, other: Any, dtype: Any) -> jax.Array:
    """The Euclidean distance of two trees, the second perhaps whole where the first is masked."""
    squares = map_unmasked(
        lambda a, b: jnp.sum((jnp.asarray(a).astype(dtype) - jnp.asarray(b).astype(dtype)) ** 2),
        one,
        other,
    )
    return jnp.sqrt(sum(jax.tree.leaves(squares), start=jnp.zeros((), dtype)))


def _chosen(flag: jax.Array, one: Any, other: Any) -> Any:
    """The first tree or the second, which has the masks and the dtypes."""
    return map_unmasked(
        lambda b, a: jnp.where(flag, jnp.asarray(a).astype(jnp.result_type(b)), b), other, one
    )


def _row(rows: Any, worker: jax.Array) -> Any:
    return map_unmasked(
        lambda leaf: leaf.at[worker].get(mode="clip", wrap_negative_indices=False), rows
    )


def _written(rows: Any, worker: jax.Array, row: Any) -> Any:
    """A table with another row, where there is such a worker."""
    return map_unmasked(
        lambda leaf, new: leaf.at[worker].set(new, mode="drop", wrap_negative_indices=False),
        rows,
        row,
    )
