"""Coordinated balancing with every vector split over four devices, in a process of its own."""

import pytest

PROGRAM = """
import re
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from asyncjax import orders

assert jax.device_count() == 4
m, n, d = 4, 8, 32
mesh = jax.make_mesh((4,), ("model",), axis_types=(AxisType.Auto,))
split = NamedSharding(mesh, P("model"))
several = NamedSharding(mesh, P(None, "model"))
vectors = np.random.default_rng(0).standard_normal((m, n, d)).astype(np.float32)
spread = jax.device_put(vectors, NamedSharding(mesh, P(None, None, "model")))

def seen(vectors, visited):
    return jnp.take_along_axis(vectors, visited[..., None], axis=1)

for block in (1, m):
    order = orders.coordinated(m, n, d, block=block)

    def batch(state, vectors, first):
        own = seen(vectors, jax.lax.dynamic_slice_in_dim(order.permutation(state), first, 2, 1))
        return order.observe(state, first + jnp.arange(2), own)

    alone = order.init(jax.random.key(0))
    state = alone._replace(
        balance=jax.device_put(alone.balance, split),
        waiting_gradient=jax.device_put(alone.waiting_gradient, several),
    )
    step = jax.jit(batch)
    text = step.lower(state, spread, 0).compile().as_text()
    assert "all-reduce" in text, "nothing was shared"
    # no vector is put together on a device: whatever travels is smaller than one
    for shape in re.findall(r"= \\S*?\\[([0-9,]*)\\]\\S* (?:all-gather|all-to-all)", text):
        assert np.prod([int(x) for x in shape.split(",") if x], initial=1) < d, shape
    for epoch in range(3):
        for first in range(0, n, 2):
            alone, state = step(alone, vectors, first), step(state, spread, first)
        assert state.balance.sharding.is_equivalent_to(split, 1), state.balance.sharding
        assert state.waiting_gradient.sharding.is_equivalent_to(several, 2)
        np.testing.assert_allclose(alone.balance, state.balance, rtol=2e-5, atol=2e-5)
        alone, state = order.end_epoch(alone), order.end_epoch(state)
        np.testing.assert_array_equal(alone.order, state.order)
print("equal")
"""


@pytest.mark.slow
def test_vectors_stay_split_and_orders_are_the_same(four_devices):
    assert four_devices(PROGRAM) == "equal"
