"""Gradients that arrive late.

A wrapper that hands its optimizer the gradient of `delay` updates ago. It
makes an ordinary training loop behave as one in which gradients are stale:
those of an asynchronous parameter server, or, with one delay per leaf, of
pipeline parallelism, where early layers see older gradients than late ones.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from optax._src import base


class DelayGradientsState(NamedTuple):
  """State of `delay_gradients`."""

  queue: Any  # per leaf a tuple of its waiting gradients, oldest first
  base_optimizer_state: base.OptState


def _map_with_delay(function, delay, *trees):
  """Maps `function(delay, *leaves)`; `delay` may be a prefix of the trees."""

  def on_subtree(steps, *subtrees):
    return jax.tree.map(functools.partial(function, steps), *subtrees)

  return jax.tree.map(on_subtree, delay, *trees)


def delay_gradients(
    base_optimizer: base.GradientTransformation, delay: Any
) -> base.GradientTransformationExtraArgs:
  r"""Applies `base_optimizer` to gradients that are `delay` updates old.

  With :math:`g_k` the gradient passed to update :math:`k`, the base optimizer
  receives :math:`g_{k - \tau}`, and zeros while :math:`k < \tau`.

  Args:
    base_optimizer: The optimizer that receives the late gradients.
    delay: Delay :math:`\tau` in updates: a non-negative integer, or a tree of
      such integers that is a prefix of the parameters (one delay per leaf or
      subtree). The state holds :math:`\tau` gradients per leaf, and the tree
      grows with :math:`\tau`, so that delays should be tens rather than
      thousands.

  Returns:
    A :class:`optax.GradientTransformationExtraArgs` object.

  Examples:
    >>> import jax.numpy as jnp
    >>> import optax
    >>> opt = delay_gradients(optax.sgd(1.0), delay=2)
    >>> params = jnp.float32(0.0)
    >>> state = opt.init(params)
    >>> for grad in (1.0, 2.0, 3.0, 4.0):
    ...   update, state = opt.update(jnp.float32(grad), state, params)
    ...   print(float(update) + 0.0)
    0.0
    0.0
    -1.0
    -2.0
  """
  if any(steps < 0 for steps in jax.tree.leaves(delay)):
    raise ValueError(f'delay must be at least 0, got {delay}')
  base_optimizer = base.with_extra_args_support(base_optimizer)

  def init_fn(params):
    def empty(steps, leaf):
      return (jnp.zeros_like(leaf),) * steps

    queue = _map_with_delay(empty, delay, params)
    return DelayGradientsState(queue, base_optimizer.init(params))

  def update_fn(updates, state, params=None, **extra_args):
    def late(steps, leaf, waiting):
      return waiting[0] if steps else leaf

    def queued(steps, leaf, waiting):
      return (*waiting[1:], leaf.astype(waiting[0].dtype)) if steps else ()

    arrived = _map_with_delay(late, delay, updates, state.queue)
    queue = _map_with_delay(queued, delay, updates, state.queue)
    updates, base_optimizer_state = base_optimizer.update(
        arrived, state.base_optimizer_state, params, **extra_args
    )
    return updates, DelayGradientsState(queue, base_optimizer_state)

  return base.GradientTransformationExtraArgs(init_fn, update_fn)
