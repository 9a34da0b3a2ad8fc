"""Every rule on every clock: traces equal the plain loop that is given the same durations."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks, traces
from asyncjax.traces.random_draws import DurationBlocks, on_host
from tests.oracles import events
from tests.registries.clocks import REGISTRY
from tests.traces.test_twin import COLLECTIONS, compare

N_UPDATES = 20
PLAIN = sorted(name for name, make in REGISTRY.items() if make().is_plain)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    clock=st.sampled_from(PLAIN),
    collect=st.sampled_from(sorted(COLLECTIONS)),
    b=st.integers(1, 3),
    pure=st.booleans(),
    concurrency=st.sampled_from([None, 3, 5]),
    seed=st.integers(0, 5),
)
def test_equals_the_plain_loop(clock, collect, b, pure, concurrency, seed):
    timing, key = REGISTRY[clock](), jax.random.key(seed)
    n = timing.n_workers
    rng = np.random.default_rng(seed)
    sequence = rng.integers(0, n, 2000).tolist()
    with on_host(key) as host_key:
        duration_key, _ = jax.random.split(host_key)
    drawn = {}

    def duration(i, j):
        if (i, j // 64) not in drawn:
            blocks = DurationBlocks(timing, duration_key)
            drawn[i, j // 64] = blocks.draw(np.array([i]), np.array([j // 64]))[0]
        return drawn[i, j // 64][j % 64]

    rule, extra = COLLECTIONS[collect](b)
    twin = events.simulate(
        duration,
        n,
        N_UPDATES,
        dispatch="pure" if pure else "listed",
        sequence=sequence,
        collect=collect.split(",")[0],
        concurrency=concurrency,
        **extra,
    )
    trace = traces.asynchronous(
        timing,
        n_updates=N_UPDATES,
        dispatch=traces.to_deliverer() if pure else traces.given(sequence),
        collect=rule,
        concurrency=concurrency,
        key=key,
    )
    compare(trace, twin)


def test_a_clock_inside_a_compiled_function_still_makes_traces():
    def fresh():
        work = clocks.recorded(np.arange(1.0, 9.0).reshape(2, 4))
        return clocks.with_speed(work, np.full((2, 3), 2.0), np.tile([1.0, 0.5, 2.0], (2, 1)))

    clock = fresh()
    compiled = jax.jit(lambda key: clock.durations(key, 5))
    assert compiled(jax.random.key(0)).dtype == np.float32  # and remembers that, while it lives
    trace = traces.asynchronous(clock, n_updates=20)
    np.testing.assert_array_equal(trace.time, traces.asynchronous(fresh(), n_updates=20).time)


@pytest.mark.parametrize("rule", [{}, {"collect": traces.wait_for(2)}, {"timeout": 30.0}])
def test_a_load_for_every_worker(rule):
    """The time of a job follows its own local steps; equal loads are the one load, bit for bit."""
    clock, key = clocks.exponential([1.0, 2.0, 4.0]), jax.random.key(0)
    one, each = (
        traces.asynchronous(clock, n_updates=40, key=key, load=load, **rule)
        for load in (3.0, [3.0] * 3)
    )
    np.testing.assert_array_equal(one.time, each.time)
    loads = np.array([4.0, 2.0, 1.0])
    plain, loaded = (
        traces.asynchronous(clock, n_updates=40, key=key, load=load, **rule)
        for load in (1.0, loads)
    )
    # each worker's own jobs last so much longer, whatever the order in which all arrive
    for worker in range(3):
        first, same = (
            (trace.time - trace.start)[trace.worker == worker] for trace in (plain, loaded)
        )
        count = min(len(first), len(same))
        if rule != {"timeout": 30.0}:
            np.testing.assert_allclose(same[:count], loads[worker] * first[:count], rtol=1e-9)
