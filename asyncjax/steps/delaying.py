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

from asyncjax.buffers.arguments import is_traced, like
from asyncjax.buffers.rows import empty_rows, one_row, put_rows
from asyncjax.checks import flag, one_key, whole, within
from asyncjax.steps.arguments import number, optimizer
from asyncjax.steps.delays import leaf_delays
from asyncjax.steps.transformation import transformation

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
) -> optax.GradientTransformationExtraArgs:
    """Returns every gradient `delay` updates after it was given.

    Constant: the first `delay` updates are zeros, since nothing has arrived yet. That is not the
    same as repeating the first gradient, and adam behind it counts the zeros in its bias
    correction. `delay=0` is the identity. By leaf: the same with a delay for each leaf. Drawn (with
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
            `read_params`; this costs as much memory again. None: if `inner` asks for them, which is
            found out in `init` by its signature or, for a chain, by tracing it once; to be said
            where `inner` also needs extras that this library does not know.

    Returns:
        A transformation; the longest delay + 1 gradients wait, in the dtypes of the parameters, and
        as many models where parameters are kept.

    Raises:
        TypeError: If a delay is not an integer, `inner` no transformation, or `key` not one typed
            key.
        ValueError: If a delay is negative, delays by leaf do not fit the parameters or come with a
            key, or `probabilities` come without a key, in a wrong number, negative, or with a wrong
            sum; in `update`, if the updates are not like the parameters, or parameters are kept and
            none are given.

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

        Any loop with delays drawn from 0 .. 8, and steps that adapt to them:

        >>> from asyncjax.steps import delay_adaptive_sgd
        >>> optimizer = delay_gradients(8, delay_adaptive_sgd(0.5), key=jax.random.key(0))
        >>> params = jnp.array([1.0, -2.0])
        >>> state = optimizer.init(params)
        >>> for _ in range(150):
        ...     updates, state = optimizer.update(params, state, params)  # gradient of ||x||^2 / 2
        ...     params = optax.apply_updates(params, updates)
        >>> bool(jnp.abs(params).max() < 1e-3)
        True
    """
    _check(delay, key, probabilities)
    keep_params = None if keep_params is None else flag("keep_params", keep_params)
    chosen = optax.identity() if inner is None else optimizer("inner", inner)
    wrapped = optax.with_extra_args_support(chosen)

    def init(params: optax.Params) -> DelayGradientsState:
        longest = max(whole("delay", one, 0) for one in jax.tree.leaves(delay))
        leaf_delays(delay, params)
        keeps = _asks_for_read_params(chosen, params) if keep_params is None else keep_params
        return DelayGradientsState(
            queued_gradients=empty_rows(params, longest + 1 if longest else 0),
            queue_row=jnp.zeros((), jnp.int32),
            gradients_given=jnp.zeros((), jnp.int32),
            delay_key=None if key is None else jax.random.fold_in(key, 0),
            delayed_inner_state=wrapped.init(params),
            queued_params=empty_rows(params, longest + 1 if longest else 0) if keeps else None,
        )

    def update(
        updates: optax.Updates,
        state: DelayGradientsState,
        *,
        params: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[optax.Updates, DelayGradientsState]:
        extra.pop("delay", None)
        next_key, served = state.delay_key, delay
        if next_key is not None:
            next_key, draw_key = jax.random.split(next_key)
            drawn = _draw(draw_key, delay, probabilities)
            served = jnp.minimum(drawn, state.gradients_given)
        longest = jnp.max(jnp.stack([jnp.asarray(one) for one in jax.tree.leaves(served)]))
        arrived, queued, row = _pass_through(updates, state, served)
        if (models := state.queued_params) is not None:
            extra["read_params"], models = _read_params(params, state, served, extra)
        moved, inner_state = wrapped.update(
            arrived,
            state.delayed_inner_state,
            params,
            delay=jnp.minimum(longest, state.gradients_given).astype(jnp.int32),
            **extra,
        )
        return moved, DelayGradientsState(
            queued_gradients=queued,
            queue_row=row,
            gradients_given=jnp.asarray(optax.safe_increment(state.gradients_given)),
            delay_key=next_key,
            delayed_inner_state=inner_state,
            queued_params=models,
        )

    return transformation(init, update)


def _pass_through(
    updates: optax.Updates, state: DelayGradientsState, served: Any
) -> tuple[optax.Updates, optax.Updates, jax.Array]:
    """Puts the new gradients into the queue and takes the late ones out."""
    like("updates", updates, one_row(state.queued_gradients), "the parameters that init got")
    queues = jax.tree.leaves(state.queued_gradients)
    rows = queues[0].shape[0] if queues else 0
    if not rows:
        return updates, state.queued_gradients, state.queue_row
    row = state.queue_row
    queued = put_rows(state.queued_gradients, row, updates)

    def take(queue: jax.Array, leaf: Any, late: Any) -> jax.Array:
        oldest = queue[(row - jnp.asarray(late)) % rows].astype(jnp.result_type(leaf))
        return jnp.where(late <= state.gradients_given, oldest, jnp.zeros_like(oldest))

    arrived = jax.tree.map(take, queued, updates, leaf_delays(served, updates))
    return arrived, queued, (row + 1) % rows


def _read_params(
    params: optax.Params | None, state: DelayGradientsState, served: Any, extra: dict[str, Any]
) -> tuple[optax.Params, optax.Params]:
    """Puts the parameters of the new gradients into their queue and takes those of the late out."""
    given = extra.get("read_params", params)
    if given is None:
        raise ValueError("params must be given to the update of delay_gradients, got None")
    name = "read_params" if "read_params" in extra else "params"
    kept: Any = state.queued_params
    like(name, given, one_row(kept), "the parameters that init got")
    queues = jax.tree.leaves(kept)
    rows, row = queues[0].shape[0] if queues else 0, state.queue_row
    if not rows:
        return given, kept
    queued = put_rows(kept, row, given)

    def take(queue: jax.Array, leaf: Any, late: Any) -> jax.Array:
        age = jnp.minimum(jnp.asarray(late), state.gradients_given)
        return queue[(row - age) % rows].astype(jnp.result_type(leaf))

    return jax.tree.map(take, queued, given, leaf_delays(served, given)), queued


def _asks_for_read_params(inner: optax.GradientTransformation, params: optax.Params) -> bool:
    """Whether an update misses `read_params`: by its signature, or when it is traced without.

    Example:
        >>> from asyncjax.steps import compensate_delay
        >>> chain = optax.chain(compensate_delay(0.1), optax.sgd(0.5))
        >>> _asks_for_read_params(chain, jnp.zeros(2)), _asks_for_read_params(optax.sgd(0.5), 0.0)
        (True, False)
    """
    if "read_params" in inspect.signature(inner.update).parameters:
        return True
    wrapped = optax.with_extra_args_support(inner)
    scalars = {name: 0 for name in ("delay", "worker", "block", "job")}

    def once(params: optax.Params) -> Any:
        key, time = jax.random.key(0), jnp.float32(1)
        return wrapped.update(
            params,
            wrapped.init(params),
            params,
            key=key,
            time=time,
            worker_params=params,
            **scalars,
        )

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
    leaves = jax.tree.leaves(delay)
    if not leaves:
        raise ValueError(f"delay must be an integer or a tree of integers, got {delay!r}")
    for one in leaves:
        number("delay", one, least=0, integer=True)
    if key is not None and leaves[0] is not delay:
        raise ValueError(f"delay must be one integer, the longest, with a key, got {delay!r}")
    if key is not None:
        one_key("key", key)
    if probabilities is None:
        return
    if key is None:
        raise ValueError("probabilities need a key to draw delays with, got key None")
    within("probabilities", probabilities)
    if is_traced([delay, probabilities]):
        return
    chances = np.asarray(probabilities, float)
    if chances.shape != (delay + 1,) or not (chances >= 0).all() or not chances.sum() > 0:
        raise ValueError(
            f"probabilities must be {delay + 1} numbers (delay + 1), at least 0 and not all 0, "
            f"got {probabilities}"
        )
    are_counts = (chances == np.round(chances)).all()
    if not are_counts and abs(chances.sum() - 1) > _SLACK:
        raise ValueError(
            f"probabilities must sum to 1, or be counts, got the sum {chances.sum():g}"
        )
