"""One way to run a rule over gradients."""

import jax
import jax.numpy as jnp


def updates_of(transform, grads, params=None, **extras):
    """All updates on gradients [n, ...], and the last state; an extra has an entry for each."""
    grads = jnp.asarray(grads)
    params = jnp.zeros_like(grads[0]) if params is None else params

    def step(state, row):
        grad, extra = row
        update, state = transform.update(grad, state, params, **extra)
        return state, update

    extras = {name: jnp.asarray(column) for name, column in extras.items()}
    state, updates = jax.lax.scan(step, transform.init(params), (grads, extras))
    return updates, state
