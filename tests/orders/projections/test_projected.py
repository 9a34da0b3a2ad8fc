"""Orders by projections: one worker, several with a stale time step, sketches, and devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.orders.directional import directional_signs
from asyncjax.orders.kernels import prefix_norms
from asyncjax.orders.projected import (
    coordinated_by_projection,
    coordinated_signs,
    count_sketch,
    pair_balanced_by_projection,
)
from tests.oracles import directional as oracle

KEY = jax.random.key(0)


def losses_of(params, rows):
    return rows["a"] @ params["a"] + rows["b"] @ params["b"]


def placed(order, signs):
    """Front, middle, back, from the definition."""
    front = [x for x, s in zip(order, signs, strict=True) if s > 0]
    middle = [x for x, s in zip(order, signs, strict=True) if s == 0]
    back = [x for x, s in zip(order, signs, strict=True) if s < 0]
    return front + middle + back[::-1]


@pytest.mark.slow
def test_one_worker_over_epochs_and_an_odd_last_example(float64):
    n, batch = 19, 8
    vectors = np.random.default_rng(0).standard_normal((n, 5))
    params = {"a": jnp.zeros(2), "b": jnp.zeros(3)}
    projected = pair_balanced_by_projection(n, params)
    order = projected.order
    assert order.needs_gradients is False

    @jax.jit
    def epoch(state):
        def step(state, start):
            positions = start + jnp.arange(batch, dtype=jnp.int32)
            examples = order.permutation(state)[jnp.minimum(positions, n - 1)]
            rows = {
                "a": jnp.asarray(vectors)[examples, :2],
                "b": jnp.asarray(vectors)[examples, 2:],
            }
            signs, _, total = directional_signs(
                losses_of, params, projected.direction(state), examples=rows, pairs_per_block=2
            )
            return projected.observe_signs(state, positions, signs, total), None

        state, _ = jax.lax.scan(step, state, jnp.arange(0, 24, batch, dtype=jnp.int32))
        return state, order.end_epoch(state)

    state = order.init(KEY)
    for _ in range(3):
        now = order.permutation(state).tolist()
        seen, following = epoch(state)
        padded = np.concatenate([vectors[now], vectors[now[-1:]]])
        full = np.concatenate([padded, np.repeat(padded[-1:], 4, axis=0)])
        signs, total = oracle.stale_pairs(full, np.zeros(5), 2, True)
        signs = [*signs[: n - 1], 0]
        np.testing.assert_array_equal(seen.signs, signs)
        got = projected.direction(seen)
        np.testing.assert_allclose(np.concatenate([got["a"], got["b"]]), total, atol=1e-12)
        assert order.permutation(seen).tolist() == now
        assert order.permutation(following).tolist() == placed(now, signs)
        assert jax.tree.map(jnp.shape, following) == jax.tree.map(jnp.shape, state)
        assert not np.any(projected.direction(following)["a"])
        state = following


@pytest.mark.slow
def test_gradients_where_they_exist_give_the_same_order(float64):
    vectors = jnp.asarray(np.random.default_rng(1).standard_normal((2, 8, 5)))
    projected = coordinated_by_projection(2, 7, jnp.zeros(5))
    start = projected.order.init(KEY)
    assert projected.order.observe(start, jnp.arange(4), None) is start
    observe = jax.jit(projected.order.observe)
    state, signs = start, []
    running_sum = np.zeros(5)
    for first in (0, 4):
        rows = np.array(vectors[:, first : first + 4])
        positions = jnp.arange(first, first + 4)
        given = jnp.asarray(rows).at[:, 3].set(jnp.nan) if first else jnp.asarray(rows)
        state = observe(state, positions, given)
        rows[:, 2:] *= first == 0  # the last pair has a step outside 0..6
        decided, running_sum = oracle.coordinated_step(rows, running_sum, "rank one")
        signs.append(decided)
    signs = np.concatenate(signs, axis=1)[:, :7]
    signs[:, 6] = 0
    np.testing.assert_array_equal(state.signs, signs)
    np.testing.assert_allclose(projected.direction(state), running_sum, atol=1e-12)
    after = projected.order.permutation(projected.order.end_epoch(state))
    for j in range(2):
        assert after[j].tolist() == placed(start.order[j].tolist(), signs[j])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stale", "rank one", "sketch"])
def test_a_time_step_of_several_workers_is_the_definition(float64, kind):
    draws = np.random.default_rng(2)
    gradients, start = draws.standard_normal((5, 6, 16)), draws.standard_normal(16)
    wanted, _ = oracle.coordinated_step(
        gradients, start, kind, lambda z: np.asarray(count_sketch(jnp.asarray(z), KEY, 8))
    )
    sketches = None
    if kind == "sketch":
        differences = jnp.asarray(gradients[:, 0::2] - gradients[:, 1::2])
        sketches = jax.vmap(jax.vmap(lambda z: count_sketch(z, KEY, 8)))(differences)
    signs = coordinated_signs(
        gradients @ start, start @ start, sketches=sketches, rank_one=kind == "rank one"
    )
    np.testing.assert_array_equal(signs, wanted)


@pytest.mark.slow
def test_a_sketch_keeps_inner_products_on_average():
    draws = np.random.default_rng(3)
    tree = {"w": jnp.asarray(draws.standard_normal((6, 5)), jnp.float32), "b": jnp.ones(4)}
    other = jax.tree.map(lambda leaf: leaf + 0.5, tree)

    @jax.jit
    @jax.vmap
    def product(key):
        return jnp.dot(count_sketch(tree, key, 8), count_sketch(other, key, 8))

    inner = np.asarray(product(jax.random.split(KEY, 400)))
    wanted = sum(float(jnp.vdot(tree[name], other[name])) for name in tree)
    assert abs(inner.mean() - wanted) < 4 * inner.std() / 20
    assert inner.std() > 0


def parallel_norm(vectors, rule, n_epochs=3):
    """Largest parallel prefix norm after some epochs of fixed vectors [m, n, d]."""
    m, n, dim = vectors.shape
    projected = coordinated_by_projection(m, n, jnp.zeros(dim))
    rows_of = jnp.arange(m)[:, None]

    @jax.jit
    def epoch(state, key):
        def step(state, first):
            positions = first + jnp.arange(2, dtype=jnp.int32)
            rows = vectors[rows_of, projected.order.permutation(state)[:, positions]]
            total, z = projected.direction(state), rows[:, 0] - rows[:, 1]
            sketches, own = None, jax.random.fold_in(key, first)
            if rule == "sketch":
                sketches = jax.vmap(lambda z: count_sketch(z, own, 4 * m))(z)[:, None]
            signs = coordinated_signs(
                rows @ total, total @ total, sketches=sketches, rank_one=rule == "rank one"
            )
            change = signs[:, 0].astype(jnp.float32) @ z
            return projected.observe_signs(state, positions, signs, total + change), None

        state, _ = jax.lax.scan(step, state, jnp.arange(0, n, 2, dtype=jnp.int32))
        return projected.order.end_epoch(state)

    state = projected.order.init(KEY)
    first = float(prefix_norms(vectors, projected.order.permutation(state)).l2)
    for number in range(n_epochs):
        state = epoch(state, jax.random.fold_in(KEY, number))
    return first, float(prefix_norms(vectors, projected.order.permutation(state)).l2)


@pytest.mark.slow
def test_sketches_repair_the_stale_step_of_many_workers_at_low_rank():
    draws = np.random.default_rng(4)
    factors = draws.standard_normal((32, 32, 4)) @ draws.standard_normal((4, 64))
    vectors = jnp.asarray(factors + 0.1 * draws.standard_normal((32, 32, 64)), jnp.float32)
    random, stale = parallel_norm(vectors, "stale")
    _, corrected = parallel_norm(vectors, "rank one")
    _, sketched = parallel_norm(vectors, "sketch")
    assert sketched < 0.5 * corrected < 0.5 * random
    assert sketched < 0.5 * stale


DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, PartitionSpec as P
from asyncjax.orders import projected
coordinated_signs, count_sketch = projected.coordinated_signs, projected.count_sketch
coordinated_shard_signs = projected.coordinated_shard_signs
assert jax.device_count() == 4
draws = np.random.default_rng(0)
gradients = jnp.asarray(draws.standard_normal((4, 6, 16)), jnp.float32)
total = jnp.asarray(draws.standard_normal(16), jnp.float32)
key = jax.random.key(0)
mesh = jax.make_mesh((4,), ("workers",), axis_types=(AxisType.Auto,))

def sketched(rows):
    return jax.vmap(lambda z: count_sketch(z, key, 16))(rows[0::2] - rows[1::2])

def worker(rows, total, with_sketch):
    rows = rows[0]
    sketches = sketched(rows) if with_sketch else None
    signs = coordinated_shard_signs(rows @ total, total @ total, "workers", sketches=sketches)
    change = jax.lax.psum(signs.astype(rows.dtype) @ rows, "workers")
    return signs[None], total + change

for with_sketch in (False, True):
    step = jax.shard_map(
        lambda rows, total: worker(rows, total, with_sketch),
        mesh=mesh, in_specs=(P("workers"), P()), out_specs=(P("workers"), P()),
    )
    signs, after = jax.jit(step)(gradients, total)
    sketches = jax.vmap(sketched)(gradients) if with_sketch else None
    wanted = coordinated_signs(gradients @ total, total @ total, sketches=sketches)
    np.testing.assert_array_equal(signs, wanted)
    change = jnp.einsum("jb,jbd->d", wanted.astype(jnp.float32), gradients)
    np.testing.assert_allclose(after, total + change, atol=1e-5)
print("equal")
"""


@pytest.mark.slow
def test_four_devices_decide_as_one(four_devices):
    assert four_devices(DEVICES) == "equal"
