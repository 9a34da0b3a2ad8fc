"""Rules that also react to time: a plain loop, limits, and timers of one's own."""

import math

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks, live, problems, simulation, traces
from asyncjax.traces.collection import Collection, Collector, Timer, Verdict
from tests.oracles import events
from tests.traces.same import assert_same
from tests.traces.test_twin import agree

N_UPDATES = 25
CLOCK = clocks.exponential([1.0, 1.5, 2.0, 4.0])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    n=st.sampled_from([1, 2, 3, 5]),
    by_deadline=st.booleans(),
    first=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    window=st.sampled_from([1, 4, 40]),
    counts=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    held=st.booleans(),
    pure=st.booleans(),
    timeout=st.sampled_from([math.inf, math.inf, 1.7]),
    service=st.sampled_from([(0.0, 0.0), (0.0, 0.0), (0.05, 0.1)]),
    interruptible=st.booleans(),
    grid=st.sampled_from([1.0, 0.5, None]),
    seed=st.integers(0, 10**6),
)
def test_traces_equal_the_plain_loop(
    n, by_deadline, first, window, counts, held, pure, timeout, service, interruptible, grid, seed
):
    rng = np.random.default_rng(seed)
    times = rng.exponential(size=(n, 40)) + 0.01
    times = times if grid is None else grid * np.ceil(times / 0.5)  # ties
    if timeout < np.inf and np.all(times.min(axis=1) > timeout):
        return
    sequence = rng.integers(0, n, 3000).tolist()
    quorum = min(n, min(counts))
    most = max(quorum, min(n, max(counts)))
    knobs = {"quorum": quorum, "most": most, "holds_back": held}
    if by_deadline:
        rule, name = traces.adaptive_deadline(first, window=window, **knobs), "deadline"
    else:
        rule, name = traces.grace_period(first, **knobs), "grace"
    twin = events.simulate(
        lambda i, j: times[i, j % 40],
        n,
        N_UPDATES,
        dispatch="pure" if pure else "listed",
        sequence=sequence,
        collect=name,
        parameter=(first, window, quorum, most, held),
        timeout=timeout,
        service=service,
        interruptible=interruptible,
    )
    rules = {
        "dispatch": traces.to_deliverer() if pure else traces.given(sequence),
        "collect": rule,
        "timeout": None if timeout == math.inf else timeout,
        "service": None if service == (0.0, 0.0) else traces.Service(*service),
        "interruptible": interruptible,
    }
    clock = clocks.recorded(times)
    agree(clock, twin, N_UPDATES, **rules)
    if twin.steps.sum() == N_UPDATES:
        ends = traces.asynchronous(clock, n_updates=N_UPDATES, **rules).update_time
        np.testing.assert_array_equal(ends, twin.step_time)


def made(collect, n_updates=40, seed=0, **rules):
    key = jax.random.key(seed)
    return traces.asynchronous(CLOCK, n_updates=n_updates, collect=collect, key=key, **rules)


NAMES = ("time", "worker", "job", "read_version", "version", "used", "steps", "weight")
NAMES = (*NAMES, "start", "update_time")


@pytest.mark.parametrize(
    ("rule", "known"),
    [
        (traces.grace_period(0.0), traces.immediately()),
        (traces.grace_period(0.0, holds_back=False), traces.immediately()),
        (traces.grace_period(0.7, quorum=4), traces.wait_for(4)),
        (traces.grace_period(math.inf, quorum=4), traces.wait_for(4)),
        (traces.adaptive_deadline(3.0, quorum=4), traces.wait_for(4)),
        (traces.grace_period(0.0, quorum=2), traces.wait_for(2)),
        (traces.grace_period(0.0, quorum=3, holds_back=False), traces.buffered(3)),
    ],
)
def test_borders_are_known_rules(rule, known):
    assert_same(made(rule), made(known), NAMES)


def test_a_grace_by_hand():
    clock = clocks.constant([1.0, 1.5, 4.0])
    trace = traces.asynchronous(clock, n_updates=4, collect=traces.grace_period(1.0))
    # 1: first; 1.5: second; 2: step. 3, 3.5; 4: the third, of model 0, comes with the alarm: step.
    # All three begin at 4: 5, 5.5, step at 6; 7, 7.5; 8: again.
    assert trace.update_time.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert trace.worker.tolist() == [0, 1, 0, 1, 2, 0, 1, 0, 1, 2]
    assert trace.delay.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    np.testing.assert_allclose(trace.weight[:5], [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3], rtol=1e-6)
    assert trace.start[2:5].tolist() == [2.0, 2.0, 0.0]


def test_a_late_worker_is_not_waited_for():
    clock = clocks.constant([1.0, 1.0, 1.0, 50.0])
    rule = traces.adaptive_deadline(3.0, window=8)
    trace = traces.asynchronous(clock, n_updates=80, collect=rule)
    # The first step waits for all; then the others are back after 1, and so is the deadline.
    assert trace.update_time[:3].tolist() == [50.0, 51.0, 52.0]
    assert trace.delay.max() > 20


def test_the_server_goes_on_without_a_worker_that_is_lost():
    clock = clocks.available(clocks.constant([1.0, 1.0, 1.0]), leave=[np.inf, np.inf, 3.5])
    trace = traces.asynchronous(clock, n_updates=20, collect=traces.grace_period(0.5))
    assert set(trace.worker[trace.time > 4].tolist()) == {0, 1}
    with pytest.raises(traces.StalledError, match=r"jobs of 1 workers \(2\) are lost"):
        traces.asynchronous(clock, n_updates=20, collect=traces.grace_period(0.5, quorum=3))


def test_a_trace_is_kept_whole(tmp_path):
    trace = made(traces.grace_period(0.5))
    assert (trace.step_time > trace.time[trace.steps]).any()
    traces.save(tmp_path / "trace.npz", trace)
    again = traces.load(tmp_path / "trace.npz")
    np.testing.assert_array_equal(again.step_time, trace.step_time)
    assert trace.end == trace.step_time[-1] == traces.summarize(trace).time
    bad = trace.step_time.copy()
    bad[3] = np.nan
    with pytest.raises(ValueError, match="step_time of update 3 is nan; allowed are times from"):
        traces.validate(trace._replace(step_time=bad))


def test_optimizer_and_records_are_told_the_time_of_the_step(float64):
    problem = problems.quadratic(np.ones((4, 2)), np.arange(8.0).reshape(4, 2))
    trace = made(traces.grace_period(0.5), n_updates=12)

    def update(updates, state, params=None, *, time, **extras):
        return jax.tree.map(lambda leaf: 0.0 * leaf - time, updates), state

    told = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    for waves in (True, False):
        run = simulation.replay(problem, trace, told, record_every=1, waves=waves)
        moved = run.params - problem.params
        np.testing.assert_allclose(moved, -trace.step_time.sum(), rtol=1e-12)
        np.testing.assert_array_equal(run.records.time, trace.step_time)


def every_two_seconds():
    """The clock alone decides; what is there at an even second is used."""

    def start(n_workers):
        count = [0]

        def receive(worker, delay):
            count[0] += 1
            return Verdict.DROP if delay > 3 else Verdict.KEEP

        def begin(now):
            count[0] = 0
            return 2.0 * math.floor(now / 2.0) + 2.0

        def heard(worker, now):
            return 2.0 * math.ceil(now / 2.0)

        return Collector(receive, timer=Timer(begin, heard, lambda: count[0] > 0))

    def weigh(arrivals):
        used = np.bincount(arrivals.version, arrivals.used)[arrivals.version]
        return np.where(arrivals.used, 1.0 / np.maximum(used, 1), 0.0)

    return Collection("every two seconds", start, weigh)


@pytest.mark.parametrize("timeout", [None, 3.0])
def test_a_virtual_run_is_the_simulated_one(timeout):
    """Here a rule of one's own; those of the registry are tried in `tests/live`."""
    key, problem = jax.random.key(1), problems.quadratic(np.ones((4, 2)), np.ones((4, 2)))
    rule = every_two_seconds()
    run = live.train(
        problem,
        live.virtual(CLOCK, key),
        optax.sgd(0.1),
        n_updates=25,
        rule=traces.Rule(timeout=timeout, collect=rule),
        key=key,
    )
    trace = traces.asynchronous(CLOCK, n_updates=25, collect=rule, timeout=timeout, key=key)
    assert_same(run.trace, trace, NAMES)
    replayed = simulation.replay(problem, trace, optax.sgd(0.1), key=key, waves=False)
    np.testing.assert_allclose(run.params, replayed.params, rtol=1e-5)


def test_own_timers_are_looked_at():
    def rule(timer, **more):
        start = traces.immediately().start
        return Collection(
            "own", lambda n: start(n)._replace(timer=timer), lambda a: 1.0 * a.used, **more
        )

    always = Timer(lambda now: now, lambda worker, now: now, lambda: True)
    with pytest.raises(ValueError, match="no gradient had arrived since the step before"):
        made(rule(always))
