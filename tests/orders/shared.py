"""Driving an order over fixed vectors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import orders


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def visit(order, state, vectors):
    """The vectors of an epoch, by step."""
    visited = order.permutation(state)
    if visited.ndim == 1:
        return vectors[visited]
    return jnp.take_along_axis(vectors, jnp.maximum(visited, 0)[..., None], axis=1)


def all_orders(order, state, vectors, n_epochs):
    """Orders of epochs 0 .. n_epochs, with one observation an epoch."""
    return np.asarray(_all_orders(order, state, jnp.asarray(vectors), n_epochs))


@functools.partial(jax.jit, static_argnums=(0, 3))
def _all_orders(order, state, vectors, n_epochs):
    def epoch(state, _):
        seen = visit(order, state, vectors)
        after = order.observe(state, jnp.arange(order.n, dtype=jnp.int32), seen)
        return order.end_epoch(after), order.permutation(state)

    return jax.lax.scan(epoch, state, length=n_epochs + 1)[1]


def from_identity(order, seed=0):
    """A first state whose order is 0, 1, 2, ... (-1 behind the end of a shard)."""
    state = order.init(jax.random.key(seed))
    return state._replace(order=jnp.where(state.order < 0, -1, identity(order)))


def identity(order):
    steps = jnp.arange(order.n, dtype=jnp.int32)
    return steps if order.n_workers is None else jnp.tile(steps, (order.n_workers, 1))


def quality(order, vectors, epochs, seed=0):
    """The largest prefix norm of the orders of some epochs."""
    found = all_orders(order, order.init(jax.random.key(seed)), vectors, max(epochs))
    return [float(orders.prefix_norms(vectors, found[epoch]).l2) for epoch in epochs]
