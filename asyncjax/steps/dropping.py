"""Dropping gradients that are too old, or were taken too far away.

    drop_stale      keep the update iff delay < threshold
    picky_sgd    keep the update iff ||x - x_read|| <= radius

The rules of Ringmaster asynchronous SGD (arXiv 2501.16168) and of Picky SGD, as a filter in a chain
or as a wrapper that leaves the inner optimizer as if the gradient had never come.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.steps.arguments import number, optimizer
from asyncjax.steps.delays import scalar_delay
from asyncjax.steps.scaling import map_unmasked
from asyncjax.steps.transformation import transformation


class DropStaleState(NamedTuple):
    """State of `drop_stale` and `picky_sgd`."""

    dropped_gradients: jax.Array  # int32[], gradients dropped so far
    kept_state: optax.OptState  # of the inner transformation; empty for the filter
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def drop_stale(
    threshold: ArrayLike, inner: optax.GradientTransformation | None = None
) -> optax.GradientTransformationExtraArgs:
    """Drops every gradient whose delay is not below a threshold.

    Alone, it is a filter for a chain: a dropped gradient becomes exact zeros, nan and infinite
    entries included. The transformations behind a filter still run: in front of adam, zeros decay
    the moments and advance the bias correction. With `inner`, it is a wrapper: on a dropped
    gradient the update is zero and the state of `inner` is bitwise unchanged; `delay` and all other
    extras reach `inner`.

    Args:
        threshold: Smallest delay that is dropped, at least 1, in updates.
        inner: Transformation that sees only the gradients that are kept.

    Returns:
        A transformation whose state has the field `dropped_gradients`.

    Raises:
        TypeError: If `threshold` is not a number or `inner` no transformation; in `update`, if
            `delay` is not an integer.
        ValueError: If `threshold` is below 1, which would drop everything; in `update`, if `delay`
            is negative.

    Note:
        Some systems keep a gradient iff delay <= bound; their bound is `threshold - 1`. Around an
        adaptive rule, a dropped gradient is no update for its history; if the version counter
        behind `delay` counts it, windows are too long, never too short. Put `proximal` inside the
        wrapper, not around it: around it, a dropped gradient would still move the parameters by the
        proximal operator.

    Example:
        >>> optimizer = drop_stale(4, optax.sgd(0.5))
        >>> params = jnp.float32(1.0)
        >>> state = optimizer.init(params)
        >>> for delay in (3, 4):
        ...     update, state = optimizer.update(jnp.float32(2.0), state, params, delay=delay)
        ...     print(float(update), int(state.dropped_gradients))
        -1.0 0
        0.0 1

    Reference:
        Maranjyan, Tyurin, Richtárik 2025, "Ringmaster ASGD", arXiv 2501.16168.
    """
    number("threshold", threshold, least=1, finite=False)

    def keeps(*, params: optax.Params | None = None, delay: ArrayLike, **extra: Any) -> jax.Array:
        del params, extra
        return scalar_delay(delay) < threshold

    return _filtered(keeps, inner)


def picky_sgd(
    radius: ArrayLike, inner: optax.GradientTransformation | None = None
) -> optax.GradientTransformationExtraArgs:
    """Drops every gradient that was taken farther than a radius from where the parameters are now.

    A gradient may be late and still be good, if nothing has moved meanwhile. Alone a filter, with
    `inner` a wrapper, as `drop_stale`. Every `update` needs `params` and the extra `read_params`.

    Args:
        radius: Largest Euclidean distance over the whole tree that is kept, at least 0.
        inner: Transformation that sees only the gradients that are kept.

    Returns:
        A transformation whose state has the field `dropped_gradients`.

    Raises:
        TypeError: If `radius` is not a number or `inner` no transformation.
        ValueError: If `radius` is negative; if `update` gets no `params`, or `read_params` that are
            not like them.

    Example:
        >>> rule = picky_sgd(1.0)
        >>> params = jnp.array([1.0, 2.0])
        >>> state = rule.init(params)
        >>> for read in (0.9, 9.0):
        ...     update, state = rule.update(params, state, params, read_params=params * read)
        ...     print(update.tolist(), int(state.dropped_gradients))
        [1.0, 2.0] 0
        [0.0, 0.0] 1

    Reference:
        Cohen, Daniely, Drori, Koren, Schain 2021, "Asynchronous stochastic optimization robust to
        arbitrary delays" (Picky SGD).
    """
    number("radius", radius, least=0, finite=False)

    def gap(leaf: ArrayLike, read: ArrayLike) -> jax.Array:
        wide = jnp.promote_types(jnp.result_type(leaf), jnp.float32)
        return jnp.asarray(leaf).astype(wide) - jnp.asarray(read).astype(wide)

    def keeps(*, params: optax.Params, read_params: optax.Params, **extra: Any) -> jax.Array:
        del extra
        like("read_params", read_params, params, "params")
        return jnp.asarray(optax.tree.norm(map_unmasked(gap, params, read_params)) <= radius)

    return _filtered(keeps, inner)


def _filtered(
    keeps: Callable[..., jax.Array], inner: optax.GradientTransformation | None
) -> optax.GradientTransformationExtraArgs:
    """The updates of `inner`, or zeros and its old state where `keeps(*, extras)` is false."""
    chosen = optax.identity() if inner is None else optimizer("inner", inner)
    wrapped = optax.with_extra_args_support(chosen)

    def init(params: optax.Params) -> DropStaleState:
        return DropStaleState(
            dropped_gradients=jnp.zeros((), jnp.int32), kept_state=wrapped.init(params)
        )

    @wraps(keeps)
    def update(
        updates: optax.Updates, state: DropStaleState, **extra: Any
    ) -> tuple[optax.Updates, DropStaleState]:
        keep = keeps(**extra)
        params = extra.pop("params")
        updates, kept_state = wrapped.update(updates, state.kept_state, params, **extra)
        updates = jax.tree.map(lambda leaf: jnp.where(keep, leaf, jnp.zeros_like(leaf)), updates)
        kept_state = jax.tree.map(
            lambda new, old: jnp.where(keep, new, old), kept_state, state.kept_state
        )
        dropped = state.dropped_gradients + jnp.logical_not(keep).astype(jnp.int32)
        return updates, DropStaleState(dropped_gradients=dropped, kept_state=kept_state)

    return transformation(init, update, kind=DropStaleState)
