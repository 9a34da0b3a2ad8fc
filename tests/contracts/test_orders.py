"""Every registered order keeps the contract of `Order`."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.registries.orders import REGISTRY

N, DIM, ROWS, EPOCHS = 7, 3, 3, 3  # of the registered examples; rows of a batch
NAMES = list(REGISTRY)
BALANCING = [name for name in NAMES if REGISTRY[name]().needs_gradients]


@functools.cache
def example(name):
    """One order for all tests, so that its programs compile once."""
    return REGISTRY[name]()


@functools.cache
def compiled(name):
    """Its `observe` and `end_epoch` with donated states, and how often each was traced."""
    order, traces = example(name), {"observe": 0, "end_epoch": 0}

    def observe(state, positions, gradients):
        traces["observe"] += 1
        return order.observe(state, positions, gradients)

    def end_epoch(state):
        traces["end_epoch"] += 1
        return order.end_epoch(state)

    donated = (jax.jit(observe, donate_argnums=0), jax.jit(end_epoch, donate_argnums=0))
    return *donated, traces


def gradients_of(name, epoch):
    """Gradients by step; a new one every epoch, as in training."""
    order = example(name)
    shape = (N, DIM) if order.n_workers is None else (order.n_workers, N, DIM)
    return np.random.default_rng(epoch).standard_normal(shape).astype(np.float32)


def aligned(shape):
    """A buffer that JAX could use on a CPU without a copy."""
    size = int(np.prod(shape)) * 4
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(np.float32).reshape(shape)


def to_host(state):
    """Leaves as NumPy arrays, as one would save them."""

    def save(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.array(jax.random.key_data(leaf) if is_key else leaf)

    return [save(leaf) for leaf in jax.tree.leaves(state)]


def to_device(saved, like):
    leaves, structure = jax.tree.flatten(like)

    def restore(array, leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jnp.array(array))
        return jnp.array(array)

    return jax.tree.unflatten(structure, map(restore, saved, leaves))


def kinds(state):
    return jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)), state
    )


def assert_close(actual, expected):
    """Equal decisions; sums equal up to rounding."""
    for one, other in zip(to_host(actual), to_host(expected), strict=True):
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(one, other)


def fill(buffer, gradients, rows, steps):
    """Puts the gradients of some steps in some rows of a batch, NaN in all others."""
    buffer[...] = np.nan
    buffer[..., rows, :] = gradients[..., steps, :]
    positions = np.where(np.arange(ROWS) % 2, -1, N + 5).astype(np.int32)
    positions[rows] = steps
    return positions


class Run(NamedTuple):
    first: Any  # state before anything
    visited: np.ndarray  # order of each epoch
    within: list  # permutation after every observation, by epoch
    mid: list  # saved state after the first batch of each epoch
    end: list  # saved state at the end of each epoch, before end_epoch
    kinds: list  # of all states


@functools.cache
def run(name):
    """Three epochs in batches of three rows, the last padded by NaN, from one NumPy buffer."""
    order, (observe, end_epoch, _) = example(name), compiled(name)
    first = order.init(jax.random.key(5))
    state, buffer = order.init(jax.random.key(5)), None
    visited, within, mid, end, seen_kinds = [], [], [], [], [kinds(state)]
    for epoch in range(EPOCHS):
        gradients = gradients_of(name, epoch)
        buffer = aligned((*gradients.shape[:-2], ROWS, DIM)) if buffer is None else buffer
        visited.append(np.array(order.permutation(state)))
        within.append([])
        for start in range(0, N, ROWS):
            steps = np.arange(start, min(start + ROWS, N))
            positions = fill(buffer, gradients, np.arange(len(steps)), steps)
            # A program of one's own may read a NumPy buffer until it has finished, not after that.
            state = jax.block_until_ready(observe(state, positions, buffer))
            buffer[...] = 7.0
            positions[...] = 0
            within[-1].append(np.array(order.permutation(state)))
            seen_kinds.append(kinds(state))
            if start == 0:
                mid.append(to_host(state))
        end.append(to_host(state))
        state = end_epoch(state)
        seen_kinds.append(kinds(state))
    visited.append(np.array(order.permutation(state)))
    return Run(first, np.array(visited), within, mid, end, seen_kinds)


def assert_permutations(order, visited):
    """Each example once; a worker with fewer is idle at the other steps."""
    assert visited.dtype == np.int32
    rows = visited[None] if order.n_workers is None else visited
    counts = (N,) if order.n_workers is None else order.counts
    assert rows.shape == (len(counts), N)
    for row, count in zip(rows, counts, strict=True):
        assert sorted(row) == [-1] * (N - count) + list(range(count))


@pytest.mark.parametrize("name", NAMES)
def test_every_epoch_visits_every_example_once(name):
    order, done = example(name), run(name)
    for visited in done.visited:
        assert_permutations(order, visited)
    for visited, later in zip(done.visited, done.within, strict=False):
        for one in later:
            np.testing.assert_array_equal(one, visited)


@pytest.mark.parametrize("name", NAMES)
def test_one_compilation_and_one_kind_of_state(name):
    done = run(name)
    assert compiled(name)[2] == {"observe": 1, "end_epoch": 1}
    for leaf in jax.tree.leaves(done.first):
        assert isinstance(leaf, jax.Array)
        assert not getattr(leaf, "weak_type", False)  # a typed key has none
    for one in done.kinds:
        assert one == done.kinds[0]


@pytest.mark.parametrize("name", NAMES)
def test_whole_epochs_without_jit_make_the_same_orders(name):
    order, done = example(name), run(name)
    state = order.init(jax.random.key(5))
    for epoch in range(EPOCHS):
        np.testing.assert_array_equal(order.permutation(state), done.visited[epoch])
        gradients = aligned(gradients_of(name, epoch).shape)
        gradients[...] = gradients_of(name, epoch)
        state = order.observe(state, np.arange(N), gradients)
        gradients[...] = 7.0
        assert_close(state, to_device(done.end[epoch], like=state))
        state = order.end_epoch(state)
    np.testing.assert_array_equal(order.permutation(state), done.visited[-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_state_continues_in_mid_epoch(name):
    order, (observe, end_epoch, _), done = example(name), compiled(name), run(name)
    for epoch in range(EPOCHS):
        state = to_device(done.mid[epoch], like=order.init(jax.random.key(0)))
        buffer = np.zeros((*gradients_of(name, 0).shape[:-2], ROWS, DIM), np.float32)
        for start in range(ROWS, N, ROWS):
            steps = np.arange(start, min(start + ROWS, N))
            rows = np.arange(len(steps))
            positions = fill(buffer, gradients_of(name, epoch), rows, steps)
            state = jax.block_until_ready(observe(state, positions, buffer))
        for one, other in zip(to_host(state), done.end[epoch], strict=True):
            np.testing.assert_array_equal(one, other)
        visited = order.permutation(end_epoch(state))
        np.testing.assert_array_equal(visited, done.visited[epoch + 1])
    assert compiled(name)[2] == {"observe": 1, "end_epoch": 1}


@pytest.mark.parametrize("name", BALANCING)
def test_what_is_not_seen_stays_in_the_middle(name):
    order, (_, end_epoch, _), done = example(name), compiled(name), run(name)
    state = to_device(done.mid[1], like=order.init(jax.random.key(0)))
    before, after = done.visited[1], np.array(order.permutation(end_epoch(state)))
    assert_permutations(order, after)
    mean_rule = name in ("grab", "recursive")
    rows = zip(np.atleast_2d(before), np.atleast_2d(after), strict=True)
    for old, new in rows:
        seen = int((old[:ROWS] >= 0).sum())
        decided = seen if mean_rule else seen - seen % 2
        old, new = old[old >= 0], new[new >= 0]
        middle = [example for example in new if example not in old[:decided]]
        assert middle == old[decided:].tolist()
        at = list(new).index(middle[0]) if middle else 0
        assert new[at : at + len(middle)].tolist() == middle
        if not mean_rule:
            assert at == decided // 2
    again = end_epoch(end_epoch(to_device(done.mid[1], like=done.first)))
    np.testing.assert_array_equal(order.permutation(again), after)  # nothing seen, nothing moved


@functools.cache
def reference(name, kind):
    """The state at the end of an epoch that is seen at once."""
    order = example(name)
    observe = jax.jit(order.observe)  # what is known to be no number is refused
    state = observe(order.init(jax.random.key(1)), np.arange(N), strange(name, kind))
    return to_host(state)


def strange(name, kind):
    gradients = gradients_of(name, 11)
    gradients[..., 2:5, :] = {"usual": 1.0, "zero": 0.0, "inf": np.inf, "nan": np.nan}[kind]
    return gradients


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(BALANCING),
    st.sampled_from(["usual", "zero", "inf", "nan"]),
    st.integers(0, 2**31),
)
def test_cuts_and_padding_change_nothing(name, kind, seed):
    order, (observe, end_epoch, _) = example(name), compiled(name)
    gradients, random = strange(name, kind), np.random.default_rng(seed)
    buffer = np.zeros((*gradients.shape[:-2], ROWS, DIM), np.float32)
    state, start = order.init(jax.random.key(1)), 0
    while start < N:
        size = random.integers(0, min(ROWS, N - start) + 1)
        rows = np.sort(random.permutation(ROWS)[:size])
        positions = fill(buffer, gradients, rows, np.arange(start, start + size))
        state = jax.block_until_ready(observe(state, positions, buffer))
        start += size
    assert_close(state, to_device(reference(name, kind), like=state))
    assert_permutations(order, np.array(order.permutation(end_epoch(state))))


@pytest.mark.parametrize("name", NAMES)
def test_orders_say_what_they_are(name):
    order = example(name)
    assert order.n == N
    assert order.needs_gradients == (order.dim is not None)
    assert (order.counts is None) == (order.n_workers is None)
    if order.needs_gradients:
        assert order.dim == DIM
    else:
        state = order.init(jax.random.key(0))
        assert order.observe(state, np.arange(2), None) is state
    if name != "herded":
        firsts = [np.array(order.permutation(order.init(jax.random.key(k)))) for k in range(3)]
        assert any((one != firsts[0]).any() for one in firsts[1:])


@pytest.mark.parametrize("name", BALANCING)
def test_observe_refuses_what_does_not_fit(name):
    order = example(name)
    state = order.init(jax.random.key(0))
    lead = () if order.n_workers is None else (order.n_workers,)
    with pytest.raises(ValueError, match=r"gradients must have shape .*dim.*, got"):
        order.observe(state, np.arange(2), np.zeros((*lead, 2, DIM + 1)))
    with pytest.raises(ValueError, match="gradients must have shape"):
        order.observe(state, np.arange(3), np.zeros((*lead, 2, DIM)))
    with pytest.raises(ValueError, match="gradients must have shape"):
        order.observe(state, np.arange(2), np.zeros((2, 2, 2, DIM)))
    with pytest.raises(ValueError, match="positions must be a vector"):
        order.observe(state, 0, np.zeros((*lead, 1, DIM)))
    with pytest.raises(TypeError, match="positions must be made of integers"):
        order.observe(state, np.zeros(2), np.zeros((*lead, 2, DIM)))


@pytest.mark.slow
def test_bfloat16_gradients_are_summed_in_float32():
    order = example("grab")
    state = order.init(jax.random.key(0))
    rows = jnp.asarray(gradients_of("grab", 0)).astype(jnp.bfloat16)
    seen = order.observe(state, jnp.arange(N), rows)
    assert kinds(seen) == kinds(state)
    np.testing.assert_allclose(
        seen.gradient_sum, np.asarray(rows, np.float64).sum(axis=0), rtol=1e-6
    )


@pytest.mark.slow
def test_double_precision_is_kept(float64):
    for name in ("grab", "recursive", "pair_balanced", "coordinated", "probabilistic"):
        order = REGISTRY[name]()
        state = order.init(jax.random.key(0))
        seen = jax.eval_shape(
            order.observe, state, np.arange(2), gradients_of(name, 0)[..., :2, :].astype(float)
        )
        ended = jax.eval_shape(order.end_epoch, seen)
        dtypes = {leaf.dtype for leaf in jax.tree.leaves(state)}
        assert jnp.dtype("float64") in dtypes
        assert not dtypes & {jnp.dtype("float32"), jnp.dtype("int64")}
        for after in (seen, ended):
            assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
                lambda x: (x.shape, x.dtype), state
            )


@pytest.mark.slow
def test_a_donated_first_state_leaves_the_key_alone():
    key = jax.random.key(3)
    for name in NAMES:
        observe = compiled(name)[0]
        shape = gradients_of(name, 0).shape
        for _ in range(2):
            state = example(name).init(key)
            observe(state, np.arange(ROWS), np.zeros((*shape[:-2], ROWS, DIM), np.float32))
    assert jax.random.key_data(key).tolist() == [0, 3]
