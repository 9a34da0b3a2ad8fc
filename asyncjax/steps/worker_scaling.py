"""Steps in proportion to a worker's own time, so that fast workers do not count more.

    update -> t_w / mean_i(t_i) * update,     t_i = time of one job of worker i

Under pure asynchronous dispatch worker i delivers at rate 1 / t_i, so every worker contributes the
same total step a unit of time, and a small constant step solves min (1/n) sum_i f_i instead of the
speed-weighted problem. Rescaled ASGD (2026, arXiv 2605.13434), as its abstract describes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.checks import whole, within
from asyncjax.steps.arguments import number
from asyncjax.steps.delays import scalar_integer
from asyncjax.steps.scaling import scale_tree, wide_dtype
from asyncjax.steps.transformation import stateless, transformation


def scale_by_worker_time(
    times: ArrayLike | Sequence[float],
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by their worker's time over the mean time of all workers.

    Every `update` needs the extra `worker`. It is meant for steps that take one gradient each,
    under pure dispatch (whoever delivers gets the next job); rules that ask all workers equally
    often are not biased and need no such factor.

    Args:
        times: [n], mean time of one job of each worker, in any unit; positive and finite.

    Returns:
        A transformation whose state only counts invalid workers.

    Raises:
        TypeError: If `times` is not made of numbers; in `update`, if `worker` is not an integer.
        ValueError: If `times` is not one positive number a worker; in `update`, if `worker` is out
            of range.

    Note:
        The largest factor is max(times) / mean(times): the largest stable step shrinks by it.

    Example:
        >>> rule = scale_by_worker_time([1.0, 3.0])
        >>> state = rule.init(jnp.float32(0.0))
        >>> [float(rule.update(jnp.float32(1.0), state, worker=i)[0]) for i in (0, 1)]
        [0.5, 1.5]

    Reference:
        Rescaled asynchronous SGD, 2026, arXiv 2605.13434 (abstract).
    """
    within("times", times, above=0)
    known = times if isinstance(times, jax.Array) else np.asarray(times, np.float64)
    if known.ndim != 1 or not known.size:
        raise ValueError(f"times must be one number a worker, got shape {known.shape}")

    def scaled(updates: optax.Updates, *, worker: ArrayLike) -> optax.Updates:
        own = jnp.asarray(known, wide_dtype(updates))
        mine = _row(own, scalar_integer("worker", worker))
        return scale_tree(updates, mine / jnp.mean(own))

    return stateless(scaled, n_workers=lambda state: known.shape[0])


class MeasuredTimeState(NamedTuple):
    """State of `scale_by_measured_time`."""

    # float[n], time of each worker's last delivery, time units; 0: none yet
    last_delivery: jax.Array
    deliveries: jax.Array  # int32[n], how many each worker has made
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def scale_by_measured_time(n_workers: int) -> optax.GradientTransformationExtraArgs:
    """As `scale_by_worker_time`, with the times measured while training.

    Every `update` needs the extras `worker` and `time`. A worker that is never idle has taken, on
    average, (time of its last delivery) / (number of its deliveries) a job; one that has delivered
    nothing yet has taken at least until now, and that is what counts for it.

    Args:
        n_workers: Number of workers n, at least 1.

    Returns:
        A transformation whose state has the fields `last_delivery` and `deliveries`.

    Raises:
        TypeError: If `n_workers` is not an integer; in `update`, if `worker` is not, or `time` is
            not a number.
        ValueError: If `n_workers` is below 1; in `update`, if `worker` is out of range, or `time`
            negative or not finite.

    Note:
        Only for pure dispatch, where workers are never idle, with time counted from the start. In
        float32, times above 2^24 units lose their fraction.

    Example:
        >>> rule = scale_by_measured_time(2)
        >>> state = rule.init(jnp.float32(0.0))
        >>> for worker, time in ((0, 1.0), (0, 2.0), (0, 3.0), (1, 3.0)):
        ...     update, state = rule.update(jnp.float32(1.0), state, worker=worker, time=time)
        ...     print(f"{update:.3f}")
        1.000
        0.667
        0.500
        1.500

    Reference:
        Rescaled asynchronous SGD, 2026, arXiv 2605.13434 (abstract); the estimate is this
        library's.
    """
    number("n_workers", n_workers, least=1, integer=True)

    def init(params: optax.Params) -> MeasuredTimeState:
        count = whole("n_workers", n_workers)
        return MeasuredTimeState(
            last_delivery=jnp.zeros((count,), wide_dtype(params)),
            deliveries=jnp.zeros((count,), jnp.int32),
        )

    def update(
        updates: optax.Updates, state: MeasuredTimeState, *, worker: ArrayLike, time: ArrayLike
    ) -> tuple[optax.Updates, MeasuredTimeState]:
        worker = scalar_integer("worker", worker)
        now = jnp.asarray(time).astype(state.last_delivery.dtype)
        last = state.last_delivery.at[worker].set(now, wrap_negative_indices=False)
        count = state.deliveries.at[worker].add(1, wrap_negative_indices=False)
        own = jnp.where(count > 0, last / jnp.maximum(1, count), now)
        mean = jnp.mean(own)
        factor = jnp.where(mean > 0, _row(own, worker) / jnp.where(mean > 0, mean, 1), 1)
        return scale_tree(updates, factor), MeasuredTimeState(last, count)

    return transformation(init, update, n_workers=lambda state: state.deliveries.shape[0])


def _row(values: jax.Array, worker: jax.Array) -> jax.Array:
    """The entry of a worker; of the nearest one, where a traced worker is out of range."""
    return values.at[worker].get(mode="clip", wrap_negative_indices=False)
