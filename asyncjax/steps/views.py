r"""Views: what a worker is handed in place of the model, so that it computes where x will be.

    handed out = x + reach * drift

    remember_update        drift = the last update of x
    distributed_nesterov   v_i <- beta v_i + g,   x <- x - eta v_i,   drift = -eta beta sum_j v_j

With the last update as the drift, reach = beta is the look-ahead of Nesterov momentum, and reach =
the delay to come is SpecTrain's weight prediction (Chen et al. 2018). The other drift is DANA-Zero
(Hakimi et al. 2019): a momentum for every worker, and a model is handed out from where all of them
will have carried it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.checks import whole
from asyncjax.steps.arguments import number
from asyncjax.steps.delays import scalar_integer
from asyncjax.steps.scaling import wide_dtype
from asyncjax.steps.transformation import transformation


class RememberUpdateState(NamedTuple):
    """State of `remember_update`."""

    drift: optax.Updates  # the last update, tree like the parameters


def look_ahead(reach: ArrayLike = 1.0) -> Callable[[optax.Params, Any], optax.Params]:
    """Returns the view `(params, opt_state) -> params + reach * drift`.

    The drift stands in the optimizer's state: that of `remember_update` or `distributed_nesterov`.
    For `simulation.Update(..., worker_params=...)`; a loop of one's own calls it after each update
    and gives out what it returns.

    Args:
        reach: How many drifts ahead; with `remember_update` the momentum, for the look-ahead of
            Nesterov, or the delay that is expected, in updates. 0 is the model itself.

    Returns:
        A function of the parameters and the optimizer's state; it raises a ValueError if there is
        not one `drift` in the state.

    Raises:
        TypeError: If `reach` is not a number.
        ValueError: If it is negative or not finite.

    Example:
        >>> optimizer = optax.chain(optax.sgd(0.5), remember_update())
        >>> params, view = jnp.float32(3.0), look_ahead(2.0)
        >>> state = optimizer.init(params)
        >>> updates, state = optimizer.update(jnp.float32(1.0), state, params)
        >>> params = optax.apply_updates(params, updates)
        >>> float(params), float(view(params, state))
        (2.5, 1.5)

    Reference:
        Chen, Yang, Cheng 2018, "Efficient and robust parallel DNN training through model
        parallelism on multi-GPU platform" (SpecTrain), arXiv 1809.02839: w - s eta v.
    """
    number("reach", reach, least=0)

    def view(params: optax.Params, opt_state: Any) -> optax.Params:
        found = [value for _, value in optax.tree.get_all_with_path(opt_state, "drift")]
        if len(found) != 1:
            raise ValueError(
                "opt_state must hold one drift for look_ahead, as that of"
                " optax.chain(optimizer, steps.remember_update()) does,"
                f" got {len(found)}"
            )

        def ahead(own: ArrayLike, drift: jax.Array) -> jax.Array:
            own = jnp.asarray(own)
            wide = jnp.promote_types(own.dtype, jnp.float32)
            far = jnp.asarray(reach).astype(wide) * drift.astype(wide)
            return (own.astype(wide) + far).astype(own.dtype)

        return jax.tree.map(ahead, params, found[0])

    return view


def remember_update() -> optax.GradientTransformationExtraArgs:
    """Leaves updates as they are, and keeps the last one, for `look_ahead`.

    Goes last in a chain, where the update is what is added to the parameters. It needs no extra.

    Returns:
        A transformation whose state has the field `drift`, a tree like the parameters; 0 at first.

    Example:
        >>> rule = remember_update()
        >>> _, state = rule.update(jnp.float32(-0.5), rule.init(jnp.float32(0.0)))
        >>> float(state.drift)
        -0.5
    """

    def init(params: optax.Params) -> RememberUpdateState:
        return RememberUpdateState(optax.tree.zeros_like(params))

    def update(
        updates: optax.Updates, state: RememberUpdateState
    ) -> tuple[optax.Updates, RememberUpdateState]:
        like("updates", updates, state.drift, "the parameters that init got")
        kept = jax.tree.map(
            lambda old, new: jnp.asarray(new).astype(old.dtype), state.drift, updates
        )
        return updates, RememberUpdateState(kept)

    return transformation(init, update)


class DistributedNesterovState(NamedTuple):
    """State of `distributed_nesterov`."""

    momenta: optax.Updates  # v, tree of [n_workers, ...]
    total: optax.Updates  # the sum of v over the workers, tree like the parameters
    drift: optax.Updates  # -eta beta times that
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def distributed_nesterov(
    learning_rate: ArrayLike, momentum: ArrayLike = 0.9, *, n_workers: int
) -> optax.GradientTransformationExtraArgs:
    """DANA-Zero: a momentum for every worker; hand out models with the view `look_ahead()`.

    A complete optimizer: the sign is flipped. Every `update` needs the extra `worker`. Before that
    worker's next gradient arrives the others will move the model by about their momenta, so it
    computes where these lead.

    Args:
        learning_rate: eta, positive.
        momentum: beta, in [0, 1).
        n_workers: Number of workers n, at least 1.

    Returns:
        An optimizer whose state has the fields `momenta` and `drift`. Memory: n + 2 models.

    Raises:
        TypeError: If a number is of the wrong kind; in `update`, if `worker` is not an integer.
        ValueError: If a number is out of range; in `update`, if `worker` is.

    Note:
        The algorithm is given from memory of the paper. What it must hold was checked: with one
        worker, the models handed out are those of `optax.sgd(eta, beta, nesterov=True)`.

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

    Reference:
        Hakimi, Barkai, Gabel, Schuster 2019, "Taming momentum in a distributed asynchronous
        environment", arXiv 1907.11612 (DANA-Zero).
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    count = whole("n_workers", n_workers)

    def init(params: optax.Params) -> DistributedNesterovState:
        rows = jax.tree.map(
            lambda leaf: jnp.zeros((count, *jnp.shape(leaf)), jnp.result_type(leaf)), params
        )
        zero = optax.tree.zeros_like(params)
        return DistributedNesterovState(rows, zero, zero)

    def update(
        updates: optax.Updates, state: DistributedNesterovState, *, worker: ArrayLike
    ) -> tuple[optax.Updates, DistributedNesterovState]:
        like("updates", updates, state.total, "the parameters that init got")
        dtype, worker = wide_dtype(updates), scalar_integer("worker", worker)
        rate, decay = (jnp.asarray(one).astype(dtype) for one in (learning_rate, momentum))
        old = jax.tree.map(
            lambda rows: rows.at[worker].get(mode="clip", wrap_negative_indices=False),
            state.momenta,
        )

        def aged(before: jax.Array, grad: ArrayLike) -> jax.Array:
            fresh = jnp.asarray(grad).astype(dtype)
            return (decay * before.astype(dtype) + fresh).astype(before.dtype)

        def summed(total: jax.Array, after: jax.Array, before: jax.Array) -> jax.Array:
            change = after.astype(dtype) - before.astype(dtype)
            return (total.astype(dtype) + change).astype(total.dtype)

        def times(factor: jax.Array, leaf: jax.Array) -> jax.Array:
            return (-factor * leaf.astype(dtype)).astype(leaf.dtype)

        new = jax.tree.map(aged, old, updates)
        rows = jax.tree.map(
            lambda rows, row: rows.at[worker].set(row, mode="drop", wrap_negative_indices=False),
            state.momenta,
            new,
        )
        total = jax.tree.map(summed, state.total, new, old)
        drift = jax.tree.map(lambda leaf: times(rate * decay, leaf), total)
        moves = jax.tree.map(lambda leaf: times(rate, leaf), new)
        return moves, DistributedNesterovState(rows, total, drift)

    return transformation(init, update, n_workers=lambda state: count)
