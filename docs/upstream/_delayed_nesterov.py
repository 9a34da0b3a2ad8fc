"""Delayed Nesterov momentum for asynchronous training.

The outer optimizer of asynchronous local SGD of Liu et al., "Asynchronous
Local-SGD Training for Language Modeling" (https://arxiv.org/abs/2401.09135).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from optax._src import base
from optax._src import combine
from optax._src import transform
import optax.tree


class DelayedNesterovState(NamedTuple):
  """State of `scale_by_delayed_nesterov`."""

  momentum: base.Updates
  buffer: base.Updates  # sum of the updates since the momentum was renewed
  count: jax.Array  # how many these are


def scale_by_delayed_nesterov(
    decay: jax.typing.ArrayLike = 0.9,
    every: jax.typing.ArrayLike = 1,
    share: jax.typing.ArrayLike = 0.0,
) -> base.GradientTransformation:
  r"""Nesterov momentum that is renewed only at every N-th update.

  Args:
    decay: Decay rate :math:`\beta` of the momentum.
    every: Number :math:`N` of updates after which the momentum is renewed,
      usually the number of asynchronous workers.
    share: Part :math:`c \leq 1 / N` of the momentum's step that each update
      between two renewals takes; the rest is taken at the renewal.

  Returns:
    A :class:`optax.GradientTransformation` object.
  """

  def init_fn(params):
    zeros = optax.tree.zeros_like(params)
    return DelayedNesterovState(zeros, zeros, jnp.zeros([], jnp.int32))

  def update_fn(updates, state, params=None):
    del params
    renews = state.count + 1 >= every
    part = jnp.where(renews, 1 - (every - 1) * share, share)
    buffer = optax.tree.add(state.buffer, updates)

    def renewed(moment, total):
      new = decay * moment + total / every
      return jnp.where(renews, new, moment).astype(moment.dtype)

    def direction(grad, moment):
      return (grad / every + part * decay * moment).astype(grad.dtype)

    momentum = jax.tree.map(renewed, state.momentum, buffer)
    updates = jax.tree.map(direction, updates, momentum)
    buffer = jax.tree.map(
        lambda total: jnp.where(renews, jnp.zeros_like(total), total), buffer
    )
    count = jnp.where(renews, 0, state.count + 1).astype(jnp.int32)
    return updates, DelayedNesterovState(momentum, buffer, count)

  return base.GradientTransformation(init_fn, update_fn)


def delayed_nesterov(
    learning_rate: base.ScalarOrSchedule,
    momentum: jax.typing.ArrayLike = 0.9,
    every: jax.typing.ArrayLike = 1,
    share: jax.typing.ArrayLike = 0.0,
) -> base.GradientTransformation:
  r"""Nesterov momentum for pseudo-gradients that arrive one by one.

  With gradients (or pseudo-gradients of local steps) that :math:`N` workers
  send in turn, ordinary momentum ages :math:`N` times as fast as it would if
  they came together, and is applied :math:`N` times. Here momentum
  :math:`m` is renewed at every :math:`N`-th arrival with the mean of the last
  :math:`N` gradients,

  .. math::

    m \leftarrow \beta m + \frac{1}{N} \sum_{i=1}^{N} g_i,

  and every arrival moves the parameters by
  :math:`-\eta (g / N + p \beta m)`, with :math:`p = 1 - (N - 1) c` at the
  renewal and :math:`p = c` otherwise. With :math:`N = 1` it is
  ``optax.sgd(learning_rate, momentum, nesterov=True)``.

  Args:
    learning_rate: A global scaling factor, either fixed or a schedule.
    momentum: Decay rate :math:`\beta` of the momentum.
    every: Number :math:`N` of arrivals after which momentum is renewed.
    share: :math:`c`, at most :math:`1 / N`.

  Returns:
    The corresponding :class:`optax.GradientTransformation`.

  Examples:
    >>> import jax.numpy as jnp
    >>> import optax
    >>> opt = delayed_nesterov(1.0, 0.5, every=2)
    >>> params = jnp.float32(0.0)
    >>> state = opt.init(params)
    >>> for _ in range(2):
    ...   update, state = opt.update(jnp.float32(1.0), state, params)
    ...   print(float(update))
    -0.5
    -1.0

  References:
    Liu et al., `Asynchronous Local-SGD Training for Language Modeling
    <https://arxiv.org/abs/2401.09135>`_, 2024
  """
  return combine.chain(
      scale_by_delayed_nesterov(momentum, every, share),
      transform.scale_by_learning_rate(learning_rate),
  )
