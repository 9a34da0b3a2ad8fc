"""Traces equal a plain event loop, for every rule, on random clocks."""

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from asyncjax import clocks, traces
from tests.oracles import events
from tests.traces.same import assert_same

COLLECTIONS = {
    "immediately": lambda b: (traces.immediately(), {}),
    "wait_for": lambda b: (traces.wait_for(b), {"parameter": b}),
    "buffered": lambda b: (traces.buffered(b), {"parameter": b}),
    "fresh": lambda b: (traces.rennala(b), {"parameter": b}),
    "ringmaster": lambda b: (traces.ringmaster(b), {"parameter": b}),
    "ringmaster, cancel": lambda b: (
        traces.ringmaster(b, cancel=True),
        {"parameter": b, "cancel": b},
    ),
    "fresh, cancel": lambda b: (traces.rennala(b, cancel=True), {"parameter": b, "cancel": 1}),
    "ringmaster_quantile": lambda b: (
        traces.ringmaster_quantile(0.3 + 0.15 * b),
        {"parameter": 0.3 + 0.15 * b},
    ),
    "malenia": lambda b: (traces.malenia(1 + 0.1 * b), {"parameter": 1 + 0.1 * b}),
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


def agree(clock, twin, n_updates, **arguments):
    """The trace is the twin's; where the twin cannot go on, it stops after the same arrival."""
    if twin.steps.sum() == n_updates:
        compare(traces.asynchronous(clock, n_updates=n_updates, **arguments), twin)
        return
    with pytest.raises(traces.StalledError, match="cannot go on after arrival") as caught:
        traces.asynchronous(clock, n_updates=n_updates, **arguments)
    assert f"after arrival {len(twin.time)} " in str(caught.value)
    so_far = caught.value.trace
    if so_far is None:
        assert not twin.steps.any()
        return
    end = int(np.flatnonzero(twin.steps)[-1]) + 1
    traces.validate(so_far)
    for name in ("time", "worker", "job", "read_version", "version", "used", "steps"):
        np.testing.assert_array_equal(getattr(so_far, name), twin[name][:end], err_msg=name)


# Three jobs on two workers: the one job that the step waits for lies with the worker that the gate
# holds back, and the other worker has none.
STALLS = {"n": 2, "collect": "wait_for", "b": 3, "pure": True, "concurrency": 3, "lead": 0}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@example(**STALLS, read="assignment", grid=1.0, interruptible=True, seed=0)
@given(
    n=st.sampled_from([1, 2, 5]),
    collect=st.sampled_from(sorted(COLLECTIONS)),
    b=st.integers(1, 4),
    pure=st.booleans(),
    read=st.sampled_from(["assignment", "start"]),
    concurrency=st.one_of(st.none(), st.integers(1, 8)),
    lead=st.sampled_from([np.inf, np.inf, 0, 2]),
    grid=st.sampled_from([1.0, 0.1, None]),
    interruptible=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_equals_the_plain_loop(
    n, collect, b, pure, read, concurrency, lead, grid, interruptible, seed
):
    rng = np.random.default_rng(seed)
    times = rng.exponential(size=(n, 40)) + 0.01
    times = times if grid is None else grid * np.ceil(times / 0.5)  # ties
    sequence = rng.integers(0, n, 3000).tolist()
    open_jobs = n if concurrency is None else concurrency
    reaches_all = not pure or open_jobs >= n
    if collect == "wait_for":
        b = min(b, open_jobs)
    if (not reaches_all and collect == "malenia") or not ((pure and reaches_all) or lead == np.inf):
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
        interruptible=interruptible,
        **extra,
    )
    agree(
        clocks.recorded(times),
        twin,
        N_UPDATES,
        dispatch=traces.to_deliverer() if pure else traces.given(sequence),
        collect=rule,
        read=read,
        concurrency=concurrency,
        gate=traces.lead_at_most(lead),
        interruptible=interruptible,
    )


def test_the_loops_stall_together():
    clock = clocks.constant([1.0, 1.0])
    twin = events.simulate(
        lambda i, j: 1.0, 2, 5, collect="wait_for", parameter=3, concurrency=3, lead=0
    )
    assert 0 < twin.steps.sum() < 5
    agree(
        clock,
        twin,
        5,
        collect=traces.wait_for(3),
        concurrency=3,
        gate=traces.lead_at_most(0),
    )


@pytest.mark.parametrize("dispatch", [traces.uniformly, traces.shuffled, traces.shuffled_once])
def test_random_dispatch_equals_the_loop_on_its_own_sequence(dispatch):
    key = jax.random.key(3)
    clock = clocks.constant([1.0, 2.0, 3.5, 5.0])
    trace = traces.asynchronous(clock, n_updates=60, dispatch=dispatch(), key=key)
    # With immediate steps the arrival that made version v >= 1 handed out the job that reads it.
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


@pytest.mark.parametrize("collect", COLLECTIONS)
@pytest.mark.parametrize("timeout", [np.inf, 2.5])
@pytest.mark.parametrize("interruptible", [True, False])
def test_a_server_that_takes_time_is_the_twins(collect, timeout, interruptible):
    draw = np.random.default_rng(len(collect))
    durations = draw.exponential(1.0, (4, 400)) + 0.01
    for dispatch, service in (("pure", (0.3, 0.2)), ("listed", (0.0, 0.7)), ("pure", (1.5, 0.0))):
        rule, twins = COLLECTIONS[collect](2)
        sequence = draw.integers(0, 4, 4000)
        twin = events.simulate(
            lambda i, j: durations[i, j % 400],
            4,
            N_UPDATES,
            dispatch=dispatch,
            sequence=sequence.tolist(),
            collect=collect.split(",")[0],
            timeout=timeout,
            service=service,
            interruptible=interruptible,
            **twins,
        )
        agree(
            clocks.recorded(durations),
            twin,
            N_UPDATES,
            collect=rule,
            dispatch=traces.to_deliverer() if dispatch == "pure" else traces.given(sequence),
            timeout=timeout,
            service=traces.Service(*service),
            interruptible=interruptible,
        )


def test_a_server_that_takes_no_time_is_the_one_without_service():
    clock, key = clocks.exponential([1.0, 2.0, 3.0]), jax.random.key(0)
    for collect in (traces.immediately(), traces.rennala(2, cancel=True), traces.table()):
        plain = traces.asynchronous(clock, n_updates=40, collect=collect, key=key)
        served = traces.asynchronous(
            clock, n_updates=40, collect=collect, key=key, service=traces.Service()
        )
        assert_same(plain, served)


def test_a_busy_server_sets_the_pace():
    trace = traces.asynchronous(
        clocks.constant(np.ones(8)), n_updates=80, service=traces.Service(0.1, 0.4)
    )
    # Update k is made at 1 + k / 2; the job of arrival k starts with update k - 8, and takes 1.
    assert trace.time[-1] == pytest.approx(1 + (80 - 8) / 2 + 1)
