"""Runs that cannot go on are told at once, slow ones go on; what is told of a run under way."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.traces.collection import Collector, Verdict
from tests.traces.same import assert_same

KEY = jax.random.key(0)
THREE = clocks.constant([1.0, 2.0, 3.0])


def told(rule=None, n_updates=60, clock=THREE, **arguments):
    """The error of a run that has to be stuck."""
    with pytest.raises(traces.StalledError) as caught:
        traces.asynchronous(clock, n_updates=n_updates, collect=rule, **arguments)
    return caught.value


@pytest.mark.parametrize("rule", [traces.ringleader(), traces.table(), traces.malenia(1)])
def test_a_timeout_that_one_worker_cannot_keep_is_told_before_the_first_job(rule):
    error = told(rule, timeout=2.5)
    assert "after arrival 0 at time 0, update 0" in str(error)
    assert "worker 2 takes 3 at least, its timeout is 2.5" in str(error)
    assert error.trace is None


def test_a_timeout_that_nobody_can_keep_is_refused_whatever_the_rule():
    with pytest.raises(ValueError, match=r"timeout must be longer .* got 0\.5 for worker 0"):
        traces.asynchronous(THREE, n_updates=3, timeout=0.5)
    # one worker can: then the others are of no use, but the run goes on
    assert set(traces.asynchronous(THREE, n_updates=9, timeout=1.0).worker) == {0}


@pytest.mark.parametrize("rule", [traces.ringleader(), traces.malenia(1), traces.table()])
def test_a_worker_whose_jobs_are_hardly_ever_back_is_waited_for(rule):
    # one job of 300 of worker 0: hundreds in a row are given up, and thousands arrive meanwhile
    clock = clocks.with_failures(THREE, [1.0 - 1 / 300, 0.0, 0.0])
    trace = traces.asynchronous(clock, n_updates=4, collect=rule, timeout=50.0, key=KEY)
    assert trace.n_updates == 4
    assert trace.n_arrivals > 5_000


def test_the_trace_of_a_stuck_run_goes_to_its_last_update():
    left = clocks.available(THREE, leave=[np.inf, 5.0, np.inf])
    error = told(traces.ringleader(), clock=left, timeout=100.0)
    assert "worker 1 has no power any more" in str(error)
    assert error.trace is not None
    assert error.trace.steps[-1]
    traces.validate(error.trace)
    full = traces.asynchronous(THREE, n_updates=3, collect=traces.ringleader())
    assert error.trace.n_updates == 3
    np.testing.assert_array_equal(error.trace.time, full.time)


def test_a_worker_with_power_for_a_short_job_has_not_left():
    # the job of 4 is never done, those of 0.25 are
    clock = clocks.available(clocks.recorded([[4.0, 0.25], [9.0, 9.0]]), leave=[3.0, np.inf])
    trace = traces.asynchronous(clock, n_updates=3, timeout=[1.0, np.inf])
    assert trace.worker[:1].tolist() == [0]
    assert trace.time[:1].tolist() == [1.25]


def own(receive, says=None):
    def start(n_workers):
        return Collector(receive, is_stuck_without=says)

    return replace(traces.immediately(), name="own", start=start, period=None)


@pytest.mark.slow
def test_an_own_rule_that_never_steps_has_a_bound_unless_it_says_what_it_needs():
    assert "'own' has not let the server update for" in str(told(own(lambda w, d: Verdict.KEEP)))
    count = iter(range(10**9))
    late = own(
        lambda worker, delay: Verdict.STEP if next(count) == 300_000 else Verdict.KEEP,
        says=lambda lost: len(lost) == 3,
    )
    assert traces.asynchronous(THREE, n_updates=1, collect=late).n_arrivals == 300_001


@pytest.mark.slow
def test_a_slow_rule_is_not_called_stuck():
    # a worker a million times slower than the others, every gradient of whom is kept
    clock = clocks.constant([1.0, 1.0, 200_000.0])
    trace = traces.asynchronous(clock, n_updates=1, collect=traces.malenia(1))
    assert trace.n_arrivals > 300_000


RUNS = {
    "in one piece": {},
    "restarts": {"collect": traces.rennala(2, cancel=True)},
    "event loop": {"collect": traces.ringleader()},
    "shuffled": {"dispatch": traces.shuffled()},
}


@pytest.mark.parametrize("arguments", RUNS.values(), ids=RUNS)
def test_progress_is_told_and_changes_nothing(arguments, monkeypatch):
    monkeypatch.setattr("asyncjax.traces.progress._SECONDS", 0.0)
    clock, seen = clocks.exponential([1.0, 2.0, 4.0]), []
    quiet = traces.asynchronous(clock, n_updates=2000, key=KEY, **arguments)
    trace = traces.asynchronous(clock, n_updates=2000, key=KEY, progress=seen.append, **arguments)
    assert_same(quiet, trace)
    assert len(seen) > 1 or not arguments
    assert all(type(one) is traces.Progress and one.n_updates == 2000 for one in seen)
    updates, times = [one.updates for one in seen], [one.time for one in seen]
    assert updates == sorted(updates)
    assert times == sorted(times) or not arguments  # in one piece, they are foretold
    assert seen[-1][:3] == (2000, 2000, trace.time[-1])


def test_progress_of_rounds(monkeypatch):
    monkeypatch.setattr("asyncjax.traces.progress._SECONDS", 0.0)
    seen = []
    trace = traces.synchronous(THREE, k=2, n_updates=5, progress=seen.append)
    assert [one.updates for one in seen] == [1, 2, 3, 4, 5, 5]
    assert seen[-1].time == trace.time[-1]


@pytest.mark.parametrize("arguments", RUNS.values(), ids=RUNS)
def test_an_interrupted_run_leaves_nothing_behind(arguments, monkeypatch):
    monkeypatch.setattr("asyncjax.traces.progress._SECONDS", 0.0)
    clock = clocks.exponential([1.0, 2.0, 4.0])
    before = traces.asynchronous(clock, n_updates=50, key=KEY, **arguments)

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        traces.asynchronous(clock, n_updates=2000, key=KEY, progress=stop, **arguments)
    assert jax.numpy.zeros(1).dtype == np.float32
    assert_same(before, traces.asynchronous(clock, n_updates=50, key=KEY, **arguments))


def test_an_own_rule_that_says_of_itself_that_it_never_steps_is_told_at_once():
    rule = own(lambda worker, delay: Verdict.DROP, says=lambda lost: True)
    assert "it says so of itself" in str(told(rule))
    assert "it says so of itself" in str(told(rule, gate=traces.lead_at_most(2)))

    def start(n_workers):
        left = [3]

        def receive(worker, delay):
            left[0] -= 1
            return Verdict.STEP if left[0] >= 0 else Verdict.DROP

        return Collector(receive, is_stuck_without=lambda lost: left[0] <= 0)

    thrice = replace(traces.immediately(), name="thrice", start=start, period=None)
    error = told(thrice)
    assert error.trace.n_updates == 3
