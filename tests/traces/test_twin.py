"""Traces equal a plain event loop, for every rule, on random clocks."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncjax import clocks, traces
from tests.oracles import events

COLLECTIONS = {
    "immediately": lambda b: (traces.immediately(), {}),
    "wait_for": lambda b: (traces.wait_for(b), {"parameter": b}),
    "buffered": lambda b: (traces.buffered(b), {"parameter": b}),
    "fresh": lambda b: (traces.fresh(b), {"parameter": b}),
    "fresher_than": lambda b: (traces.fresher_than(b), {"parameter": b}),
    "fresher_than, cancel": lambda b: (
        traces.fresher_than(b, cancel=True),
        {"parameter": b, "cancel": b},
    ),
    "fresh, cancel": lambda b: (traces.fresh(b, cancel=True), {"parameter": b, "cancel": 1}),
    "fresher_than_quantile": lambda b: (
        traces.fresher_than_quantile(0.3 + 0.15 * b),
        {"parameter": 0.3 + 0.15 * b},
    ),
    "per_worker": lambda b: (traces.per_worker(1 + 0.1 * b), {"parameter": 1 + 0.1 * b}),
}
N_UPDATES = 25


def compare(trace, twin):
    traces.validate(trace)
    for name in ("time", "worker", "job", "read_version", "version", "used", "steps", "start"):
        np.testing.assert_array_equal(getattr(trace, name), twin[name], err_msg=name)
    np.testing.assert_allclose(trace.weight, twin.weight, rtol=1e-6)
    assert (
        list(zip(trace.open_jobs.worker, trace.open_jobs.read_version, strict=True))
        == twin.open_jobs
    )
    assert list(zip(*trace.cancelled, strict=True)) == twin.cancelled


@settings(max_examples=150, deadline=None)
@given(
    n=st.sampled_from([1, 2, 5]),
    collect=st.sampled_from(sorted(COLLECTIONS)),
    b=st.integers(1, 4),
    pure=st.booleans(),
    read=st.sampled_from(["assignment", "start"]),
    concurrency=st.one_of(st.none(), st.integers(1, 8)),
    lead=st.sampled_from([np.inf, np.inf, 0, 2]),
    grid=st.sampled_from([1.0, 0.1, None]),
    seed=st.integers(0, 10**6),
)
def test_equals_the_plain_loop(n, collect, b, pure, read, concurrency, lead, grid, seed):
    rng = np.random.default_rng(seed)
    times = rng.exponential(size=(n, 40)) + 0.01
    times = times if grid is None else grid * np.ceil(times / 0.5)  # ties
    sequence = rng.integers(0, n, 3000).tolist()
    open_jobs = n if concurrency is None else concurrency
    reaches_all = not pure or open_jobs >= n
    if collect == "wait_for":
        b = min(b, open_jobs)
    if (not reaches_all and collect == "per_worker") or not (
        (pure and reaches_all) or lead == np.inf
    ):
        return  # a worker that is not asked would be waited for, for ever
    rule, extra = COLLECTIONS[collect](b)
    twin = events.simulate(
        lambda i, j: times[i, j % 40],
        n,
        N_UPDATES,
        dispatch="pure" if pure else "listed",
        sequence=sequence,
        collect=collect.split(",")[0],
        read=read,
        concurrency=concurrency,
        lead=lead,
        **extra,
    )
    trace = traces.asynchronous(
        clocks.recorded(times),
        n_updates=N_UPDATES,
        dispatch=traces.to_deliverer() if pure else traces.given(sequence),
        collect=rule,
        read=read,
        concurrency=concurrency,
        gate=traces.lead_at_most(lead),
    )
    compare(trace, twin)


@pytest.mark.parametrize("dispatch", [traces.uniformly, traces.shuffled, traces.shuffled_once])
def test_random_dispatch_equals_the_loop_on_its_own_sequence(dispatch):
    key = jax.random.key(3)
    clock = clocks.constant([1.0, 2.0, 3.5, 5.0])
    trace = traces.asynchronous(clock, n_updates=60, dispatch=dispatch(), key=key)
    # With immediate steps version v >= 1 was created by the arrival that handed out the job reading it.
    worker_of = dict(zip(trace.read_version.tolist(), trace.worker.tolist(), strict=True))
    worker_of |= dict(
        zip(trace.open_jobs.read_version.tolist(), trace.open_jobs.worker.tolist(), strict=True)
    )
    sequence = [worker_of[v] for v in range(1, 61)]
    twin = events.simulate(
        lambda i, j: [1.0, 2.0, 3.5, 5.0][i], 4, 60, dispatch="listed", sequence=sequence
    )
    compare(trace, twin)


@settings(max_examples=30, deadline=None)
@given(n=st.sampled_from([1, 3, 6]), share=st.floats(0.01, 1), seed=st.integers(0, 10**6))
def test_synchronous_equals_the_plain_loop(n, share, seed):
    times = np.random.default_rng(seed).integers(1, 5, (n, 30)).astype(float)
    k = max(1, round(share * n))
    twin = events.synchronous(lambda i, j: times[i, j % 30], n, k, 80)
    trace = traces.synchronous(clocks.recorded(times), k=k, n_updates=80)
    traces.validate(trace)
    for name in ("time", "worker", "job", "read_version", "version", "used", "steps", "start"):
        np.testing.assert_array_equal(getattr(trace, name), twin[name], err_msg=name)
