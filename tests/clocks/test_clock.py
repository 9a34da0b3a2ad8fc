"""The contract of every clock: keys, blocks, parts, transformations, precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import clocks
from tests.oracles import clocks as oracle
from tests.registries.clocks import REGISTRY

KEY = jax.random.key(7)
NAMES = sorted(REGISTRY)
DRAWN = [name for name in NAMES if not REGISTRY[name]().powers]  # powers take no part in draws
RANDOM = [name for name in NAMES if REGISTRY[name]().is_random]
# Compiles without optimising, where no bits are compared.
QUICKLY = {"xla_backend_optimization_level": 0}
# A parameter that makes jobs longer, where it is not the mean.
SLOWER = {
    "constant": "compute",
    "recorded": "durations",
    "resampled": "durations",
    "of_trace": "durations",
    "markov": "fast",
    "weibull": "scale",
    "uniform": "low",
    "folded_normal": "shift",
    "poisson": "least",
    "powered": "compute",
}


def bits(array):
    return np.asarray(array).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_blocks_agree_bitwise_however_they_are_drawn(name):
    clock = REGISTRY[name]()
    whole = np.asarray(clock.durations(KEY, 41, load=1.7))
    assert whole.shape == (3, 41)
    assert whole.dtype == np.float32
    assert (whole > 0).all()
    assert clock.loss is not None or np.isfinite(whole).all()

    def step(job, _):
        one = clock.durations(KEY, 1, first=job, load=1.7)[:, 0]
        seven = jax.vmap(lambda i: clock.job_times(KEY, i, job, 7, 1.7).total)(jnp.arange(3))
        return job + 1, (one, seven)

    _, (ones, sevens) = jax.jit(lambda: jax.lax.scan(step, jnp.int32(0), None, 34))()
    np.testing.assert_array_equal(ones.T, whole[:, :34])
    for first in range(34):
        np.testing.assert_array_equal(sevens[first], whole[:, first : first + 7])


@pytest.mark.parametrize("name", RANDOM)
def test_times_belong_to_key_worker_and_job(name):
    clock = REGISTRY[name]()
    draws = clock.durations(KEY, 41)
    assert bits(draws) == bits(clock.durations(jax.random.key(7), 41))
    assert bits(draws) != bits(clock.durations(jax.random.key(8), 41))
    alike = jax.tree.map(lambda leaf: np.stack([leaf[0]] * 3), clock)
    same_law = alike.durations(KEY, 41)
    assert bits(same_law[0]) == bits(draws[0])
    assert len({bits(row) for row in same_law}) == 3


@pytest.mark.parametrize("name", NAMES)
def test_load_multiplies_compute_alone(name):
    clock = REGISTRY[name]()
    plain, loaded = clock.times(KEY, 41), clock.times(KEY, 41, load=3.0)
    np.testing.assert_array_equal(loaded.compute, np.float32(3.0) * plain.compute)
    np.testing.assert_array_equal(loaded.download, plain.download)
    np.testing.assert_array_equal(loaded.upload, plain.upload)
    np.testing.assert_array_equal(loaded.total, clock.durations(KEY, 41, load=3.0))


def test_load_may_differ_by_worker_and_job():
    clock = clocks.constant([1.0, 2.0])
    malenia = clock.durations(None, 3, load=np.array([[1.0], [10.0]]))
    np.testing.assert_array_equal(malenia, [[1, 1, 1], [20, 20, 20]])
    per_job = clock.durations(None, 3, load=jnp.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(per_job, [[1, 2, 3], [2, 4, 6]])
    np.testing.assert_array_equal(
        clock.job_times(None, 1, 0, 3, jnp.array([1.0, 2.0, 3.0])).compute, [2, 4, 6]
    )


def test_links_broadcast_and_may_be_added_one_by_one():
    one, three = clocks.constant(1.0), clocks.constant([1.0, 2.0, 3.0])
    stepwise = clocks.communicating(clocks.communicating(one, upload=three), download=one)
    parts = stepwise.times(None, 1)
    np.testing.assert_array_equal(parts.total, [[3.0], [4.0], [5.0]])
    np.testing.assert_array_equal(parts.download, np.ones((3, 1)))
    assert not stepwise.is_random
    assert clocks.communicating(one, upload=clocks.exponential(1.0)).is_random
    assert clocks.communicating(three).n_workers == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_second_clock_of_the_law_does_not_recompile(name):
    traced = []

    @partial(jax.jit, compiler_options=QUICKLY)
    @jax.grad
    def slopes(clock, key):
        traced.append(1)
        return clock.durations(key, 41).sum()

    first = REGISTRY[name]()
    second = jax.tree.map(lambda leaf: 0.875 * leaf, REGISTRY[name]())
    found = slopes(first, KEY)
    slopes(second, jax.random.key(9))
    assert len(traced) == 1
    assert slopes._cache_size() == 1
    assert hash(first.law) == hash(second.law)
    assert first.law == second.law

    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    assert float(found.parameters[SLOWER.get(name, "mean")][0].sum()) > 0


@pytest.mark.parametrize("name", ["markov", "losing"])
def test_clocks_and_keys_map(name):
    clock = REGISTRY[name]()
    keys = jax.random.split(KEY, 2)
    clock_axis = jax.tree.map(lambda leaf: np.stack([leaf, 0.875 * leaf]), clock)
    draw = jax.jit(jax.vmap(lambda clock, key: clock.durations(key, 41, load=1.7)))
    mapped = draw(clock_axis, keys)
    for one in range(2):
        row = jax.tree.map(lambda leaf, one=one: leaf[one], clock_axis)
        np.testing.assert_array_equal(mapped[one], row.durations(keys[one], 41, load=1.7))


def test_factories_take_tracers():
    def total(mean):
        return clocks.exponential(mean).durations(KEY, 4).sum()

    value, slope = jax.value_and_grad(jax.jit(total))(2.0)
    np.testing.assert_allclose(slope, value / 2.0, rtol=1e-6)
    mixed = jax.jit(lambda mean: clocks.gamma([1.0, 2.0], [mean, 2 * mean]).mean)(3.0)
    np.testing.assert_array_equal(mixed, [3.0, 6.0])
    assert clocks.constant(jnp.asarray([1, 2])).parameters["compute"].dtype == jnp.float32


def test_fixed_times_are_exact_in_double_precision(float64):
    times = np.array([[0.1, 1 / 3, 1e-7], [2.0**40 + 1, 1e300, 5.1]])
    clock = clocks.recorded(times)
    assert clock.parameters["durations"].dtype == np.float64
    drawn = clock.durations(None, 7, first=2)
    assert drawn.dtype == jnp.float64
    np.testing.assert_array_equal(drawn, oracle.cycled(times, 2, 7))
    np.testing.assert_array_equal(clocks.constant(times[0]).durations(None, 1)[:, 0], times[0])
    linked = clocks.communicating(clocks.constant(0.1), download=clocks.constant(0.2))
    assert float(linked.durations(None, 1)[0, 0]) == 0.2 + 0.1


def test_times_too_small_for_single_precision_stay_positive():
    tiny = np.finfo(np.float32).tiny
    assert clocks.constant(1e-60).durations(None, 1)[0, 0] == tiny
    assert clocks.exponential(1e-60).durations(KEY, 9).min() == tiny
    assert np.isfinite(clocks.lognormal(1.0, 60.0).durations(KEY, 50)).all()


def test_parameters_are_kept_and_copied():
    mean = np.array([1.0, 2.0])
    clock = clocks.exponential(mean)
    mean[0] = -1.0
    np.testing.assert_array_equal(clock.mean, [1.0, 2.0])
    assert clock.mean.dtype == np.float64
    assert clocks.gamma(2, [1, 2, 3]).n_workers == 3
    assert clocks.gamma(2, 1).n_workers == 1


def test_broadcast():
    one = clocks.communicating(clocks.exponential(1.0), upload=clocks.constant(2.0))
    wide = one.broadcast(4)
    assert wide.n_workers == 4
    assert wide.upload.n_workers == 4
    np.testing.assert_array_equal(wide.mean, [3.0] * 4)
    assert wide.broadcast(4) is wide
    assert jax.tree.map(jnp.asarray, one).broadcast(2).n_workers == 2
    np.testing.assert_array_equal(
        clocks.recorded([[1.0, 2.0]]).broadcast(2).durations(None, 3), [[1, 2, 1]] * 2
    )


def test_times_do_not_depend_on_the_number_of_workers():
    clock = clocks.exponential([1.0, 2.0, 4.0])
    draws = np.asarray(clock.durations(KEY, 41))
    alone = clocks.exponential(1.0)
    np.testing.assert_array_equal(alone.durations(KEY, 41)[0], draws[0])
    for worker in range(3):
        jobs = clock.job_times(KEY, worker, 5, 7).total
        np.testing.assert_array_equal(jobs, draws[worker, 5:12])


@pytest.mark.slow
def test_links_are_independent_streams_that_leave_compute_alone():
    law = clocks.exponential([1.0, 1.0])
    both = clocks.communicating(law, download=law, upload=law)
    parts = both.times(KEY, 4000)
    np.testing.assert_array_equal(parts.compute, law.durations(KEY, 4000))
    np.testing.assert_array_equal(
        parts.upload, clocks.communicating(law, upload=law).times(KEY, 4000).upload
    )
    table = np.corrcoef(np.concatenate(parts))
    assert np.abs(table - np.eye(6)).max() < 5 / np.sqrt(4000)
    np.testing.assert_array_equal(parts.total, parts.download + parts.compute + parts.upload)
    np.testing.assert_array_equal(both.mean, [3.0, 3.0])
    np.testing.assert_array_equal(both.variance, [3.0, 3.0])
