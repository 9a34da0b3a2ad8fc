r"""Models that change hands: handed out ahead of x, or mixed into x when they come back.

    look_ahead             handed out = x + reach * drift
    remember_update        drift = the last update of x
    distributed_nesterov   v_i <- beta v_i + g,   x <- x - eta v_i,   drift = -eta beta sum_j v_j
    mix_models             x <- (1 - a_t) x + a_t x_worker,     a_t = mixing * weight(delay)

With the last update as the drift, reach = beta is the look-ahead of Nesterov momentum, and reach =
the delay to come is SpecTrain's weight prediction. The other drift is DANA-Zero: a model is handed
out from where the momenta of all workers will have carried it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import like, number
from asyncjax.buffers.rows import empty_rows
from asyncjax.checks import whole
from asyncjax.steps import trees
from asyncjax.steps.delay_functions import DelayWeight
from asyncjax.steps.transformation import StepSizeState, Transformation, Updated, transformation


def look_ahead(reach: ArrayLike = 1.0) -> Callable[[optax.Params, Any], optax.Params]:
    """Returns the view `(params, opt_state) -> params + reach * drift`.

    The drift stands in the state of `remember_update` or `distributed_nesterov`. For
    `simulation.Update(..., worker_params=...)`, or to be called after each update. Source: Chen,
    Yang, Cheng 2018 (SpecTrain), arXiv 1809.02839: w - s eta v.

    Args:
        reach: How many drifts ahead, at least 0; 0 is the model itself.

    Example:
        >>> optimizer = optax.chain(optax.sgd(0.5), remember_update())
        >>> params, view = jnp.float32(3.0), look_ahead(2.0)
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update(jnp.float32(1.0), state, params)
        >>> params = optax.apply_updates(params, updates)
        >>> float(params), float(view(params, state))
        (2.5, 1.5)
    """
    number("reach", reach, least=0)

    def view(params: optax.Params, opt_state: Any) -> optax.Params:
        drifts = [value for _, value in optax.tree.get_all_with_path(opt_state, "drift")]
        if len(drifts) != 1:
            raise ValueError(
                "opt_state must hold one drift for look_ahead, as that of"
                " optax.chain(optimizer, steps.remember_update()) does,"
                f" got {len(drifts)}"
            )

        def ahead(leaf: ArrayLike, drift: jax.Array) -> jax.Array:
            now, far, change = trees.in_dtype(trees.wide(leaf), leaf, reach, drift)
            return (now + far * change).astype(jnp.result_type(leaf))

        return jax.tree.map(ahead, params, drifts[0])

    return view


class RememberUpdateState(NamedTuple):
    """State of `remember_update`."""

    drift: optax.Updates  # the last update, tree like the parameters


def remember_update() -> Transformation:
    """Leaves updates as they are, and keeps the last one, for `look_ahead`.

    Goes last in a chain.

    Example:
        >>> rule = remember_update()
        >>> _, state = rule.update(jnp.float32(-0.5), rule.init(jnp.float32(0.0)))
        >>> float(state.drift)
        -0.5
    """

    def update(updates: optax.Updates, state: RememberUpdateState) -> Updated:
        like("updates", updates, state.drift, "the parameters that init got")
        return updates, RememberUpdateState(trees.cast(updates, state.drift))

    return transformation(lambda params: RememberUpdateState(optax.tree.zeros_like(params)), update)


class DistributedNesterovState(NamedTuple):
    """State of `distributed_nesterov`."""

    momenta: optax.Updates  # v, tree of [n_workers, ...]
    total: optax.Updates  # the sum of v over the workers, tree like the parameters
    drift: optax.Updates  # -eta beta times that
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def distributed_nesterov(
    learning_rate: ArrayLike, momentum: ArrayLike = 0.9, *, n_workers: int
) -> Transformation:
    """DANA-Zero: a momentum for every worker; hand out models with the view `look_ahead()`.

    A complete optimizer: the sign is flipped. Every `update` needs the extra `worker`. Memory:
    n + 2 models. Source: Hakimi, Barkai, Gabel, Schuster 2019, arXiv 1907.11612
    (DANA-Zero).

    Args:
        learning_rate: eta, positive.
        momentum: beta, in [0, 1).
        n_workers: Number of workers n, at least 1.

    Note:
        From memory of the paper; checked: with one worker, the models handed out are those of
        `optax.sgd(eta, beta, nesterov=True)`.

    Example:
        >>> rule, view = distributed_nesterov(1.0, 0.5, n_workers=2), look_ahead()
        >>> params = jnp.float32(0.0)
        >>> state = rule.init(params)
        >>> for worker in (0, 1):
        ...     update, state = rule.update(jnp.float32(1.0), state, params, worker=worker)
        ...     params = optax.apply_updates(params, update)
        ...     print(float(params), float(view(params, state)))
        -1.0 -1.5
        -2.0 -3.0
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    count = whole("n_workers", n_workers)

    def init(params: optax.Params) -> DistributedNesterovState:
        zero = optax.tree.zeros_like(params)
        return DistributedNesterovState(empty_rows(params, count), zero, zero)

    def update(
        updates: optax.Updates, state: DistributedNesterovState, *, worker: ArrayLike
    ) -> Updated:
        like("updates", updates, state.total, "the parameters that init got")
        dtype, worker = trees.wide_dtype(updates), trees.scalar("worker", worker)
        rate, decay = trees.in_dtype(dtype, learning_rate, momentum)

        def mapped(rule: Callable[..., jax.Array], *given: Any) -> Any:
            return trees.cast(jax.tree.map(rule, *trees.in_dtype(dtype, *given)), state.total)

        def times(factor: jax.Array, tree: optax.Updates) -> optax.Updates:
            return mapped(lambda leaf: -factor * leaf, tree)

        old = trees.row_of(state.momenta, worker)
        new = mapped(lambda before, grad: decay * before + grad, old, updates)
        rows = trees.with_row(state.momenta, worker, new)
        total = mapped(lambda sum_, after, before: sum_ + (after - before), state.total, new, old)
        return times(rate, new), DistributedNesterovState(rows, total, times(rate * decay, total))

    return transformation(init, update, n_workers=lambda state: count)


def mix_models(
    mixing: ArrayLike = 0.6,
    weight: DelayWeight | None = None,
    *,
    local_scale: ArrayLike | None = None,
) -> Transformation:
    """FedAsync: moves the parameters towards the worker's, the less the later these come.

    It is no rescaled gradient: what the server did meanwhile is mixed away too. A complete
    optimizer. Every `update` needs `params` and the extra `delay`; and either the extra
    `worker_params`, the model that the worker delivers, or `local_scale`, with which that model is
    found from what the worker read: x_worker = read_params - local_scale * updates. Source: Xie,
    Koyejo, Gupta 2019, arXiv 1903.03934.

    Args:
        mixing: a, in (0, 1].
        weight: Function of the delay, such as `polynomial_delay(0.5)`; None: constant.
        local_scale: How far a pseudo-gradient moved its worker; for `problems.local_steps(...,
            n_steps=H, step_size=s)` it is H s. Then `read_params` is needed, not `worker_params`.

    Example:
        >>> from asyncjax.steps import polynomial_delay
        >>> rule = mix_models(0.5, polynomial_delay(0.5))
        >>> x, worker = jnp.float32(4.0), jnp.float32(0.0)
        >>> state = rule.init(x)
        >>> for delay in (0, 3):
        ...     update, state = rule.update(x, state, x, delay=delay, worker_params=worker)
        ...     print(float(x + update))
        2.0
        3.0
    """
    number("mixing", mixing, above=0, most=1)
    if local_scale is not None:
        number("local_scale", local_scale, above=0)

    def mix(params: optax.Params, delivered: Any, state: StepSizeState, delay: Any) -> Updated:
        dtype = state.last_step_size.dtype
        factor = 1 if weight is None else weight(trees.late(delay, dtype))
        share = (jnp.asarray(mixing).astype(dtype) * factor).astype(dtype)

        def towards(ours: Any, theirs: Any) -> jax.Array:
            here, there = trees.in_dtype(dtype, ours, theirs)
            return (share * (there - here)).astype(jnp.result_type(ours))

        return trees.map_unmasked(towards, params, delivered), StepSizeState(share)

    def update_from_model(
        updates: Any, state: StepSizeState, *, params: Any, delay: ArrayLike, worker_params: Any
    ) -> Updated:
        like("worker_params", worker_params, params, "params")
        return mix(params, worker_params, state, delay)

    def update_from_gradient(
        updates: Any, state: StepSizeState, *, params: Any, delay: ArrayLike, read_params: Any
    ) -> Updated:
        like("params", params, updates, "the updates")
        like("read_params", read_params, updates, "the updates")
        dtype = state.last_step_size.dtype

        def moved(grad: Any, read: Any) -> jax.Array:
            start, scale, change = trees.in_dtype(dtype, read, local_scale, grad)
            return start - scale * change

        return mix(params, trees.map_unmasked(moved, updates, read_params), state, delay)

    def init(params: optax.Params) -> StepSizeState:
        return StepSizeState(jnp.zeros((), trees.wide_dtype(params)))

    return transformation(init, update_from_model if local_scale is None else update_from_gradient)
