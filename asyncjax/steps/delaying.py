"""Making any training loop stale: a queue of gradients.

    update k returns the gradient given at update k - delay

In front of an optimizer it turns an ordinary loop into one with a constant delay, with a delay a
leaf as in a pipeline, or with a delay drawn anew for every update. A rule behind it that asks for
`read_params` gets the parameters at which the late gradient was taken, which wait beside it.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import is_traced, like, number
from asyncjax.buffers.rows import empty_rows, one_row, put_rows
from asyncjax.checks import one_key, whole
from asyncjax.steps.transformation import Transformation, Updated, transformation
from asyncjax.steps.trees import leaf_delays

_SLACK = 1e-4  # of a sum of probabilities, which may be rounded


class DelayGradientsState(NamedTuple):
    """State of `delay_gradients`."""

    queued_gradients: optax.Updates  # tree of [longest delay + 1, ...], dtype of the parameters
    queue_row: jax.Array  # int32[], row of the next gradient
    gradients_given: jax.Array  # int32[], saturating
    delay_key: jax.Array | None  # typed key[], for the next draw; None without `key`
    delayed_inner_state: optax.OptState  # of the inner transformation
    # tree of [longest delay + 1, ...], the parameters of the queued gradients; None if not kept
    queued_params: optax.Params | None = None


def delay_gradients(
    delay: Any,
    inner: optax.GradientTransformation | None = None,
    *,
    key: jax.Array | None = None,
    probabilities: ArrayLike | None = None,
    keep_params: bool | None = None,
) -> Transformation:
    """Returns every gradient `delay` updates after it was given.

    Constant: the first `delay` updates are zeros, since nothing has arrived yet; adam behind it
    counts them in its bias correction. By leaf: the same with a delay for each leaf. Drawn (with
    `key`): update k returns the gradient of update k - d, d drawn from 0 .. min(delay, k): some
    gradients come twice, some never, and none is a zero.

    Alone it is a transformation for a chain that needs no extra and ignores one named `delay`. With
    `inner` it is a wrapper that also tells `inner` the delay of the gradient (of the latest leaf),
    so that a loop with delay-adaptive steps is one line. If `inner` asks for `read_params`, it gets
    the parameters at which the late gradient was taken (by leaf: each leaf as old as its gradient):
    the `params` of the update in which it was given, or the extra `read_params` of that update.

    Args:
        delay: Delay in updates, at least 0: an integer; or a tree of integers that is a prefix of
            the parameters; with `key`, an integer, the longest delay.
        inner: Optimizer that gets the late gradients and their `delay`.
        key: Typed key; the delay is then drawn for every update.
        probabilities: [delay + 1], chances of the delays 0 .. delay, which sum to 1, or counts of
            them, which are integers; None: all equal. In the first updates what is too long for k
            counts as k.
        keep_params: Whether parameters wait with their gradients and are handed to `inner` as
            `read_params`; this costs as much memory again. None: if `inner` asks for them, by its
            signature or when it is traced; to be said where it needs extras unknown here.

    Example:
        >>> late = delay_gradients(2)
        >>> state = late.init(jnp.float32(0.0))
        >>> for grad in (1.0, 2.0, 3.0, 4.0):
        ...     update, state = late.update(jnp.float32(grad), state)
        ...     print(float(update))
        0.0
        0.0
        1.0
        2.0
    """
    _check(delay, key, probabilities)
    chosen = optax.identity() if inner is None else inner
    wrapped = optax.with_extra_args_support(chosen)

    def init(params: optax.Params) -> DelayGradientsState:
        longest = max(whole("delay", one, 0) for one in jax.tree.leaves(delay))
        leaf_delays(delay, params)
        rows = longest + 1 if longest else 0
        keeps = _asks_for_read_params(chosen, params) if keep_params is None else keep_params
        models = empty_rows(params, rows) if keeps else None
        row, given = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        first_key = None if key is None else jax.random.fold_in(key, 0)
        queue, inner_state = empty_rows(params, rows), wrapped.init(params)
        return DelayGradientsState(queue, row, given, first_key, inner_state, models)

    def update(
        updates: Any, state: DelayGradientsState, *, params: Any = None, **extra: Any
    ) -> Updated:
        extra.pop("delay", None)
        next_key, served, given = state.delay_key, delay, state.gradients_given
        if next_key is not None:
            next_key, draw_key = jax.random.split(next_key)
            served = jnp.minimum(_draw(draw_key, delay, probabilities), given)
        longest = jnp.max(jnp.stack([jnp.asarray(one) for one in jax.tree.leaves(served)]))
        queue = state.queued_gradients
        arrived, queued = _exchanged("updates", updates, queue, state, served, zeros=True)
        if (models := state.queued_params) is not None:
            name = "read_params" if "read_params" in extra else "params"
            read = extra.get("read_params", params)
            if read is None:
                raise ValueError("params must be given to the update of delay_gradients, got None")
            extra["read_params"], models = _exchanged(name, read, models, state, served)
        moved, inner_state = wrapped.update(
            arrived,
            state.delayed_inner_state,
            params,
            delay=jnp.minimum(longest, given).astype(jnp.int32),
            **extra,
        )
        rows = [leaf.shape[0] for leaf in jax.tree.leaves(queued)]
        row = (state.queue_row + 1) % rows[0] if rows and rows[0] else state.queue_row
        given = jnp.asarray(optax.safe_increment(given))
        return moved, DelayGradientsState(queued, row, given, next_key, inner_state, models)

    return transformation(init, update)


def _exchanged(
    name: str, tree: Any, queue: Any, state: DelayGradientsState, served: Any, zeros: bool = False
) -> tuple[Any, Any]:
    """Puts a tree into its queue and takes the late one out; before the first: it, or zeros."""
    like(name, tree, one_row(queue), "the parameters that init got")
    leaves, given, row = jax.tree.leaves(queue), state.gradients_given, state.queue_row
    rows = leaves[0].shape[0] if leaves else 0
    if not rows:
        return tree, queue
    queue = put_rows(queue, row, tree)

    def take(queue: jax.Array, leaf: Any, late: Any) -> jax.Array:
        age = jnp.minimum(jnp.asarray(late), given)
        oldest = queue[(row - age) % rows].astype(jnp.result_type(leaf))
        return jnp.where(late <= given, oldest, jnp.zeros_like(oldest)) if zeros else oldest

    return jax.tree.map(take, queue, tree, leaf_delays(served, tree)), queue


def _asks_for_read_params(inner: optax.GradientTransformation, params: optax.Params) -> bool:
    """Whether an update misses `read_params`: by its signature, or when it is traced without."""
    if "read_params" in inspect.signature(inner.update).parameters:
        return True
    wrapped = optax.with_extra_args_support(inner)
    extra = dict.fromkeys(("delay", "worker", "block", "job"), 0)

    def once(params: optax.Params) -> Any:
        more = {"key": jax.random.key(0), "time": jnp.float32(1), "worker_params": params}
        return wrapped.update(params, wrapped.init(params), params, **extra, **more)

    try:
        jax.eval_shape(once, params)
    except Exception as error:
        return "read_params" in str(error)
    return False


def _draw(key: jax.Array, longest: Any, probabilities: Any) -> jax.Array:
    if probabilities is None:
        return jax.random.randint(key, (), 0, longest + 1, jnp.int32)
    chances = jnp.asarray(probabilities, jnp.result_type(float))
    return jax.random.categorical(key, jnp.log(chances)).astype(jnp.int32)


def _check(delay: Any, key: Any, probabilities: Any) -> None:
    for one in jax.tree.leaves(delay):
        number("delay", one, least=0, integer=True)
    if key is not None:
        one_key("key", key)
    elif probabilities is not None:
        raise ValueError("probabilities need a key to draw delays with, got key None")
    if probabilities is None or is_traced([delay, probabilities]):
        return
    chances = np.asarray(probabilities, float)
    fits = chances.shape == (delay + 1,) and (chances >= 0).all()
    if not fits or not 0 < chances.sum() < np.inf:
        raise ValueError(
            f"probabilities must be {delay + 1} numbers (delay + 1), at least 0 and not all 0, "
            f"got {probabilities}"
        )
    are_counts = (chances == np.round(chances)).all()
    if not are_counts and abs(chances.sum() - 1) > _SLACK:
        raise ValueError(
            f"probabilities must sum to 1, or be counts, got the sum {chances.sum():g}"
        )
