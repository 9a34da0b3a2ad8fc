"""Workers that crash, leave, join and pause: traces equal a plain loop, and no run hangs."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks, traces
from asyncjax.traces.collection import Collector, Verdict
from tests.oracles import events
from tests.traces.same import assert_same
from tests.traces.test_twin import COLLECTIONS, agree

N_UPDATES = 25


def dyadic(rng, shape, low=1, high=16):
    """Multiples of 1/4: sums and quotients by powers of two are exact."""
    return rng.integers(low, high, shape) / 4.0


def plain_finish(compute, lengths, rates, leave):
    """Job j of worker i at power rates (segments repeated), never after the worker has left."""

    def finish(i, j, start):
        work = compute[i, j % compute.shape[1]]
        if np.isinf(work) or np.isinf(start):
            return np.inf
        rounds = int(start // lengths[i].sum())  # whole ones before the start change nothing
        now = rounds * lengths[i].sum()
        for m in range(100_000):
            segment = m % lengths.shape[1]
            end, rate = now + lengths[i, segment], rates[i, segment]
            begin = max(now, start)
            if end > begin:
                if rate * (end - begin) >= work:
                    done = begin + work / rate
                    return done if done <= leave[i] else np.inf
                work -= rate * (end - begin)
            now = end
            if now > leave[i]:
                return np.inf
        raise AssertionError("too short")

    return finish


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(
    n=st.sampled_from([1, 2, 5]),
    collect=st.sampled_from(sorted(COLLECTIONS)),
    b=st.integers(1, 3),
    pure=st.booleans(),
    read=st.sampled_from(["assignment", "start"]),
    timeout=st.sampled_from([None, 2.5, 4.0, "one a worker"]),
    leaves=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_equals_the_plain_loop(n, collect, b, pure, read, timeout, leaves, seed):
    rng = np.random.default_rng(seed)
    compute, lengths = dyadic(rng, (n, 40)), dyadic(rng, (n, 6))
    rates = rng.choice([0.0, 0.5, 1.0, 2.0], (n, 6))
    rates[:, 0] = 1.0
    leave = np.where(rng.random(n) < 0.5, dyadic(rng, n, 20, 60), np.inf)
    leave = leave if leaves else np.full(n, np.inf)
    b = min(b, n) if collect == "wait_for" else b
    rule, extra = COLLECTIONS[collect](b)
    if timeout == "one a worker":
        timeout = np.where(np.arange(n) == 0, np.inf, 2.5 + np.arange(n))
    sequence = rng.integers(0, n, 3000).tolist()
    clock = clocks.with_speed(clocks.recorded(compute), lengths, rates)
    clock = clocks.available(clock, leave=leave)
    try:
        twin = events.simulate(
            None,
            n,
            N_UPDATES,
            dispatch="pure" if pure else "listed",
            sequence=sequence,
            collect=collect.split(",")[0],
            read=read,
            finish=plain_finish(compute, lengths, rates, leave),
            timeout=np.broadcast_to(np.inf if timeout is None else timeout, n),
            **extra,
        )
    except (events.EndlessError, StopIteration):
        return  # workers that left are asked again and again: the list ends, or no update comes
    agree(
        clock,
        twin,
        N_UPDATES,
        dispatch=traces.to_deliverer() if pure else traces.given(sequence),
        collect=rule,
        read=read,
        timeout=timeout,
    )


def leaving(leave):
    return clocks.available(clocks.constant([1.0, 2.0, 3.0]), leave=leave)


def test_pure_loses_the_worker_and_goes_on():
    trace = traces.asynchronous(leaving([np.inf, 5.0, np.inf]), n_updates=60)
    assert trace.time[trace.worker == 1].tolist() == [2.0, 4.0]
    assert trace.open_jobs.worker.tolist() == [0, 1, 2]


@pytest.mark.parametrize("rule", [traces.shuffled, traces.uniformly, traces.shuffled_once])
def test_asking_everybody_starves(rule):
    with pytest.raises(traces.StalledError, match=r"jobs of 1 workers \(1\) are lost") as caught:
        traces.asynchronous(
            leaving([np.inf, 5.0, np.inf]), n_updates=60, dispatch=rule(), key=jax.random.key(0)
        )
    so_far = caught.value.trace
    assert 0 < so_far.n_updates < 60
    assert (so_far.open_jobs.worker == 1).all()  # all open jobs lie with the one that left
    assert len(so_far.open_jobs.worker) == 3


def test_a_timeout_lets_shuffled_dispatch_go_on():
    trace = traces.asynchronous(
        leaving([np.inf, 5.0, np.inf]),
        n_updates=60,
        dispatch=traces.shuffled(),
        timeout=6.0,
        key=jax.random.key(0),
    )
    assert trace.n_updates == 60
    assert set(trace.cancelled.worker.tolist()) == {1}
    np.testing.assert_allclose(trace.cancelled.time - trace.cancelled.start, 6.0)
    assert len(trace.open_jobs.worker) == 3


@pytest.mark.parametrize(
    "collect",
    [traces.rennala(2), traces.buffered(2), traces.ringmaster(3), traces.rennala(2, cancel=True)],
)
def test_rules_that_need_nobody_in_particular_go_on(collect):
    trace = traces.asynchronous(leaving([np.inf, 5.0, np.inf]), n_updates=40, collect=collect)
    assert trace.n_updates == 40
    assert np.max(trace.time[trace.worker == 1], initial=0.0) <= 5.0


def test_a_table_goes_on_with_the_last_gradient_of_the_one_that_left():
    trace = traces.asynchronous(
        leaving([np.inf, 5.0, np.inf]), n_updates=60, collect=traces.table()
    )
    last = trace.reuse.last[trace.worker[trace.reuse.arrival] == 1]
    assert last.max() == 59


def test_a_worker_joins_late():
    clock = clocks.available(clocks.constant([1.0, 1.0]), join=[0.0, 10.0])
    trace = traces.asynchronous(clock, n_updates=30)
    assert trace.time[trace.worker == 1][0] == 11.0
    assert trace.delay[trace.worker == 1][0] == 11  # its first job was handed out at time 0


def test_lost_jobs_are_asked_again_after_the_timeout():
    clock = clocks.with_failures(clocks.constant([1.0, 2.0]), 0.3)
    key = jax.random.key(5)
    trace = traces.asynchronous(clock, n_updates=400, timeout=5.0, key=key)
    traces.validate(trace)
    lost, arrived = len(trace.cancelled.worker), len(trace.time)
    assert 0.25 < lost / (lost + arrived) < 0.35
    with pytest.raises(traces.StalledError, match="are lost"):
        traces.asynchronous(clock, n_updates=400, key=key)


@pytest.mark.slow
def test_the_jobs_that_return_last_as_long_as_without_losses():
    times = clocks.exponential([1.0, 2.0])
    key = jax.random.key(1)
    plain = traces.asynchronous(times, n_updates=50, key=key)
    trace = traces.asynchronous(
        clocks.with_failures(times, 0.2), n_updates=50, timeout=1e3, key=key
    )
    lasted = {
        (w, j): t for w, j, t in zip(plain.worker, plain.job, plain.time - plain.start, strict=True)
    }
    for w, j, t in zip(trace.worker, trace.job, trace.time - trace.start, strict=True):
        if (w, j) in lasted:
            assert t == pytest.approx(lasted[w, j], rel=1e-12)


def test_outages_pause_a_job():
    clock = clocks.on_off(
        clocks.constant([2.0]), up=clocks.constant(3.0), down=clocks.constant(10.0)
    )
    trace = traces.asynchronous(clock, n_updates=3)
    assert trace.time.tolist() == [
        2.0,
        14.0,
        16.0,
    ]  # 3 = up, 13 = up again, the second job is half done
    rounds = traces.synchronous(clock, k=1, n_updates=3)
    assert rounds.time.tolist() == [2.0, 14.0, 16.0]


def test_synchronous_rounds_need_k_workers():
    clock = leaving([np.inf, 5.0, np.inf])
    assert traces.synchronous(clock, k=2, n_updates=20).n_updates == 20
    with pytest.raises(traces.StalledError, match="only 2 of 3 jobs of the next round") as caught:
        traces.synchronous(clock, k=3, n_updates=20)
    assert caught.value.trace.n_updates == 2


def test_every_worker_has_its_own_patience():
    clock = leaving([np.inf, 5.0, 4.0])
    trace = traces.asynchronous(clock, n_updates=30, timeout=[np.inf, 3.0, 7.0])
    lasted = trace.cancelled.time - trace.cancelled.start
    assert set(lasted[trace.cancelled.worker == 1]) == {3.0}
    assert set(lasted[trace.cancelled.worker == 2]) == {7.0}
    alike = [
        traces.asynchronous(clock, n_updates=30, timeout=patience)
        for patience in (4.0, np.full(3, 4.0))
    ]
    assert_same(*alike)


def of_those_who_answer():
    """A table that no longer waits for a worker once a job of it has been given up."""
    told = []

    def start(n_workers):
        unheard = set(range(n_workers))

        def receive(worker, delay):
            unheard.discard(worker)
            return Verdict.KEEP if unheard else Verdict.STEP

        def given_up(worker):
            told.append(worker)
            unheard.discard(worker)

        return Collector(receive, given_up)

    return replace(traces.table(), name="answering", start=start), told


def test_a_rule_hears_of_jobs_that_are_given_up():
    clock = clocks.available(clocks.constant([1.0, 2.0, 3.0]), leave=[np.inf, np.inf, 2.5])
    with pytest.raises(traces.StalledError):
        traces.asynchronous(clock, n_updates=9, collect=traces.table())
    rule, told = of_those_who_answer()
    trace = traces.asynchronous(clock, n_updates=9, collect=rule, timeout=4.5)
    assert told == trace.cancelled.worker.tolist()
    assert set(told) == {2}
    first = int(np.argmax(trace.steps))
    assert trace.time[first] == 5.0  # the job of worker 2 was given up at 4.5
    assert trace.steps[first:].all()
    traces.validate(trace)
