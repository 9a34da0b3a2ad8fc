"""Every transformation on parameters sharded over four devices, in a process of its own."""

import pytest

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.registries.steps import REGISTRY
from asyncjax.testing import example_extras

assert jax.device_count() == 4
mesh = jax.make_mesh((4,), ("model",), axis_types=(AxisType.Auto,))
rows = NamedSharding(mesh, P("model"))
params = {"w": jnp.arange(32.0).reshape(8, 4) / 16, "b": jnp.ones(8)}
sharded = jax.device_put(params, rows)

for name, entry in REGISTRY.items():
    transform = entry.make()

    @jax.jit
    def train(params):
        def body(carry, k):
            params, state = carry
            grads = jax.tree.map(lambda leaf: 0.1 * leaf, params)
            updates, state = transform.update(grads, state, params, **example_extras(params, k))
            params = jax.tree.map(lambda p, u: p - 0.01 * u, params, updates)
            return (params, state), None
        carry = (params, transform.init(params))
        return jax.lax.scan(body, carry, jnp.arange(4))[0][0]

    alone, spread = train(params), train(sharded)
    for leaf in jax.tree.leaves(spread):
        assert leaf.sharding.is_equivalent_to(rows, leaf.ndim), (name, leaf.sharding)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7), alone, spread)
print("done", len(REGISTRY))
"""


@pytest.mark.slow
def test_sharded_parameters_give_the_same_and_stay_sharded(four_devices):
    assert four_devices(PROGRAM).startswith("done")
