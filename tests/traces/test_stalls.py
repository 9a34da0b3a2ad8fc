"""A run is called stuck exactly where a plain loop sees that nothing more can happen.

Workers leave, one may have several jobs, and deliver more than one of them to a step.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from asyncjax import clocks, traces
from tests.oracles import events
from tests.traces.test_twin import COLLECTIONS, agree

N_UPDATES = 12
# Three workers of one speed, the last of whom leaves within its first job.
LEFT = clocks.available(clocks.constant([1.0, 1.0, 1.0]), leave=[math.inf, math.inf, 0.5])

# With nine jobs a worker has three. Those of 0 and 1 arrive at 1, 2, 3; the third gradient makes a
# step, and comes at 2: of worker 0. That of worker 1 at 2 is the first of the next step, which has
# its third at 3, and so on: three arrive in every step, two in every unit of time.
THREES = {
    "wait for 3": traces.wait_for(3),
    "grace, quorum 3": traces.grace_period(0.5, quorum=3),
    "grace for ever, at most 3": traces.grace_period(math.inf, quorum=1, most=3),
    "deadline, quorum 2, at most 3": traces.adaptive_deadline(1.0, quorum=2, most=3),
    "deadline, quorum 3": traces.adaptive_deadline(1.0, quorum=3),
}


@pytest.mark.parametrize("name", THREES)
def test_two_workers_with_three_jobs_each_make_a_step_of_three(name):
    trace = traces.asynchronous(LEFT, n_updates=2, concurrency=9, collect=THREES[name])
    assert trace.update_time.tolist() == [2.0, 3.0]
    assert trace.worker.tolist() == [0, 1, 0, 1, 0, 1]
    assert trace.time.tolist() == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    traces.validate(trace)


@pytest.mark.parametrize("name", THREES)
def test_they_are_stuck_with_one_job_each(name):
    with pytest.raises(traces.StalledError, match=r"after arrival 2 at time 1, update 0") as caught:
        traces.asynchronous(LEFT, n_updates=2, collect=THREES[name])
    assert "jobs of 1 workers (2) are lost" in str(caught.value)


def test_a_quorum_of_more_than_the_workers():
    clock = clocks.constant([1.0, 1.0])
    for rule in (traces.grace_period(0.25, quorum=3), traces.adaptive_deadline(1.0, quorum=3)):
        trace = traces.asynchronous(clock, n_updates=2, concurrency=4, collect=rule)
        # 1, 1, 2: the step of three, and it is three (`most`) at once
        assert trace.update_time.tolist() == [2.0, 3.0]
    rule = traces.grace_period(0.25, quorum=3, most=4)
    trace = traces.asynchronous(clock, n_updates=2, concurrency=4, collect=rule)
    assert trace.update_time.tolist() == [2.0, 4.0]  # the fourth comes at the same time
    rule = traces.grace_period(0.25, quorum=3, most=5)
    trace = traces.asynchronous(clock, n_updates=2, concurrency=6, collect=rule)
    assert trace.update_time.tolist() == [2.25, 4.25]  # 1 1 2 2, 3 3 4 4


def test_jobs_that_are_given_up_go_to_others_who_deliver_twice():
    # Worker 2 never keeps its timeout; its job goes to worker 0, who is then the third.
    for rule in (traces.grace_period(0.5, quorum=3), traces.wait_for(3)):
        trace = traces.asynchronous(
            clocks.constant([1.0, 1.0, 5.0]),
            n_updates=1,
            collect=rule,
            dispatch=traces.given([0, 1, 2, 0]),
            timeout=2.0,
        )
        # given up at 2, handed to 0, back at 3
        assert trace.time.tolist() == [1.0, 1.0, 3.0]
        assert trace.worker.tolist() == [0, 1, 0]


TIMED = {
    "grace": lambda first, window, counts: traces.grace_period(first, **counts),
    "deadline": lambda first, window, counts: traces.adaptive_deadline(
        first, window=window, **counts
    ),
}


def finish_of(times, leave):
    def finish(i, j, start):
        done = start + times[i, j % times.shape[1]]
        return done if done <= leave[i] else math.inf

    return finish


# The two of the issue: stuck before the first job, by a rule that counted workers.
ISSUE = {"n": 3, "pure": True, "concurrency": 9, "timeout": None, "n_left": 1, "same": True}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example(**ISSUE, collect="grace", first=0.5, counts=(3, 3), held=True, seed=0)
@example(**ISSUE, collect="deadline", first=1.0, counts=(2, 3), held=True, seed=0)
@example(**ISSUE, collect="wait_for", first=1.0, counts=(3, 3), held=True, seed=0)
@example(
    **ISSUE | {"concurrency": None}, collect="malenia", first=1.0, counts=(1, 1), held=True, seed=0
)
@given(
    n=st.sampled_from([1, 2, 3, 4]),
    collect=st.sampled_from([*sorted(COLLECTIONS), "malenia", *(5 * sorted(TIMED))]),
    first=st.sampled_from([0.0, 0.5, 1.0, 3.0, math.inf]),
    counts=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    held=st.booleans(),
    pure=st.booleans(),
    concurrency=st.one_of(st.none(), st.integers(1, 9)),
    timeout=st.sampled_from([None, None, 1.5, "one a worker"]),
    n_left=st.integers(0, 4),
    same=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_stuck_where_nothing_more_can_happen(
    n, collect, first, counts, held, pure, concurrency, timeout, n_left, same, seed
):
    rng = np.random.default_rng(seed)
    times = np.ones((n, 24)) if same else rng.integers(1, 9, (n, 24)) / 4.0
    leave = np.where(np.arange(n) < n - n_left, math.inf, rng.integers(1, 40, n) / 4.0)
    timeouts = np.full(n, math.inf if timeout is None else 1.5)
    if timeout == "one a worker":
        timeouts[::2] = math.inf
    if np.all(times.min(axis=1) > timeouts):
        return
    open_jobs = n if concurrency is None else concurrency
    sequence = rng.integers(0, n, 20_000).tolist()
    b = counts[0]
    more: dict[str, Any]
    if collect in TIMED:
        first = min(first, 3.0) if collect == "deadline" else first
        quorum = min(counts) if not held else min(*counts, open_jobs)
        most = max(quorum, max(counts) if not held else min(max(counts), open_jobs))
        knobs = {"quorum": quorum, "most": most, "holds_back": held}
        rule = TIMED[collect](first, 4, knobs)
        more = {"parameter": (first, 4, quorum, most, held)}
    else:
        b = min(b, open_jobs) if collect == "wait_for" else min(b, 4)
        rule, more = COLLECTIONS[collect](b)
    arguments = {
        "dispatch": traces.to_deliverer() if pure else traces.given(sequence),
        "collect": rule,
        "concurrency": concurrency,
        "timeout": timeouts,
    }
    clock = clocks.available(clocks.recorded(times), leave=leave)
    try:
        twin = events.simulate(
            None,
            n,
            N_UPDATES,
            dispatch="pure" if pure else "listed",
            sequence=sequence,
            collect=collect.split(",")[0],
            concurrency=concurrency,
            finish=finish_of(times, leave),
            timeout=timeouts,
            leave=leave,
            shortest=times.min(axis=1),
            **more,
        )
    except events.EndlessError as endless:  # given up for ever, or told by malenia
        arrivals, updates = endless.args
        with pytest.raises(traces.StalledError, match=f"after arrival {arrivals} at time") as error:
            traces.asynchronous(clock, n_updates=N_UPDATES, **arguments)
        assert f"update {updates}:" in str(error.value)
        return
    agree(clock, twin, N_UPDATES, **arguments)
    if twin.steps.sum() == N_UPDATES:
        ends = traces.asynchronous(clock, n_updates=N_UPDATES, **arguments).update_time
        np.testing.assert_array_equal(ends, twin.step_time)
