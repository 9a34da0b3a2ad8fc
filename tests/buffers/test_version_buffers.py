"""Version ring and version slots against Python lists."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import buffers

PARAMS = {"a": jnp.arange(3, dtype=jnp.bfloat16), "b": jnp.zeros((), jnp.float32)}


def version(k):
    return jax.tree.map(lambda leaf: leaf + jnp.asarray(k, leaf.dtype), PARAMS)


def assert_equal(actual, expected):
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    assert jax.tree.map(lambda x: x.dtype, actual) == jax.tree.map(lambda x: x.dtype, expected)


def kinds(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), tree)


@pytest.mark.parametrize("capacity", [1, 4])
def test_ring_reads_what_a_list_would(capacity):
    ring = buffers.version_ring(capacity)
    push, read = jax.jit(ring.push), jax.jit(ring.read)
    state, written = ring.init(PARAMS), [version(0)]
    shapes = kinds(state)
    for k in range(1, 11):
        for delay in (0, 1, 3, 4, 100, -2):
            versions = written[-capacity:]
            expected = versions[max(0, len(versions) - 1 - max(0, delay))]
            assert_equal(read(state, delay), expected)
        state = push(state, version(k))
        written.append(version(k))
        assert kinds(state) == shapes


def test_ring_counts_delays_it_cannot_serve():
    ring = buffers.version_ring(3)
    state = ring.init(PARAMS)
    for delay, count in ((0, 0), (2, 0), (3, 1), (50, 2)):
        state = ring.observe(state, delay)
        assert int(state.version_overflows) == count
    state = ring.observe(state, jnp.array([1, 3, 4]))
    assert int(state.version_overflows) == 4
    assert kinds(state) == kinds(ring.init(PARAMS))


def test_ring_serves_several_delays_under_vmap_and_scan():
    ring = buffers.version_ring(3)

    def body(state, k):
        state = ring.push(state, k.astype(jnp.float32))
        return state, jax.vmap(ring.read, (None, 0))(state, jnp.arange(3))

    _, read = jax.lax.scan(body, ring.init(jnp.float32(0)), jnp.arange(1, 5))
    np.testing.assert_array_equal(read, [[1, 0, 0], [2, 1, 0], [3, 2, 1], [4, 3, 2]])


def test_ring_does_not_alias_the_parameters():
    start = jnp.ones(2)
    state = buffers.version_ring(1).init(start)
    jax.jit(lambda x: x + 1, donate_argnums=0)(start)
    np.testing.assert_array_equal(state.versions, [[1, 1]])


def test_slots_keep_what_was_written_and_drop_writes_outside():
    slots = buffers.version_slots(3)
    state = slots.init(PARAMS)
    shapes = kinds(state)
    write = jax.jit(slots.write)
    state = write(state, 2, version(5))
    state = write(state, 0, version(7))
    for outside in (-1, -3, 3, 99):
        state = write(state, outside, version(9))
    assert kinds(state) == shapes
    for slot, k in ((0, 7), (1, 0), (2, 5), (99, 5), (-1, 7)):
        assert_equal(jax.jit(slots.read)(state, slot), version(k))


def test_slots_take_a_vector():
    slots = buffers.version_slots(4)
    state = slots.init(jnp.float32(0))
    state = slots.write(state, jnp.array([3, -1, 1]), jnp.array([30.0, 90.0, 10.0]))
    np.testing.assert_array_equal(slots.read(state, jnp.array([1, 0, 3])), [10, 0, 30])
