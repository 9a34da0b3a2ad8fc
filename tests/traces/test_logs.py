"""Logs of real runs become traces."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.traces.event_trace import worker_count
from tests.registries.traces import REGISTRY
from tests.traces.same import assert_same


def test_delays_alone_are_enough():
    log = traces.from_delays([0, 1, 0, 3])
    assert log.worker.tolist() == [0, 0, 0, 0]
    assert log.job.tolist() == [0, 1, 2, 3]
    assert log.read_version.tolist() == [0, 0, 2, 0]
    assert log.time.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert log.n_workers == worker_count(log) == 1
    assert log.start is None, "nobody said who delivered, or when"
    assert traces.from_delays([0, 1], n_workers=5).n_workers == 5
    assert_same(traces.from_delays([0, 1, 0, 3], version=[0, 1, 2, 3]), log)


SEVERAL = [0, 0, 0, 1, 1, 2, 2]  # updates of 3, 2 and 2 gradients


def test_gradients_of_one_version_make_one_update():
    log = traces.from_delays([0, 0, 0, 1, 0, 2, 1], version=SEVERAL, worker=[0, 1, 2, 0, 0, 1, 2])
    assert log.version.tolist() == SEVERAL
    assert log.read_version.tolist() == [0, 0, 0, 0, 1, 0, 1]
    assert log.steps.tolist() == [False, False, True, False, True, False, True]
    np.testing.assert_array_equal(log.weight, np.float32([1 / 3, 1 / 3, 1 / 3, 0.5, 0.5, 0.5, 0.5]))
    assert log.n_updates == 3


# Several gradients an update, and jobs handed out neither on delivery nor to those of the update.
NO_STARTS = {
    "quotas, wait for 3",
    "learned quotas, wait for 3",
    "shuffled, wait for 3",
    "buffered 9",
    "rennala 3, cancel",
}
CLOCK = clocks.exponential([1.0, 2.0, 4.0, 3.0])


def log_of(trace):
    """The log of the gradients that entered an update."""
    names = ("delay", "worker", "time", "version")
    columns = {name: getattr(trace, name)[np.asarray(trace.used)] for name in names}
    return traces.from_delays(**columns, n_workers=trace.n_workers)


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_starts_follow_from_a_log_or_are_not_told(name):
    """To the bit those of the trace, or None; too early at most where the log tells less."""
    trace = REGISTRY[name].trace(CLOCK, n_updates=40, key=jax.random.key(1))
    log = log_of(trace)
    assert traces.validate(log) is log
    if not trace.used.all() or trace.step_time is not None:  # jobs that are not in the log, alarms
        assert log.start is None or (log.start <= trace.start[trace.used]).all()
    elif name in NO_STARTS:
        assert log.start is None
    else:
        np.testing.assert_array_equal(log.start, trace.start)


@pytest.mark.parametrize("collect", [traces.immediately(), traces.buffered(3)])
def test_a_log_of_a_trace_is_the_trace(collect):
    trace = traces.asynchronous(CLOCK, n_updates=20, collect=collect, key=jax.random.key(0))
    log = log_of(trace)
    assert_same(log, trace, trace._fields[:9])
    assert log.reuse is None


def test_starts_by_hand():
    """Workers 0 and 1 take 1 and 2; both are answered at every second gradient."""
    columns = {"worker": [0, 1, 0, 1], "time": [1.0, 2.0, 3.0, 4.0], "version": [0, 0, 1, 1]}
    rounds = traces.from_delays([0, 0, 0, 0], **columns)
    assert rounds.start.tolist() == [0.0, 0.0, 2.0, 2.0]
    assert traces.summarize(rounds).utilisation == 6 / 8
    answered = traces.from_delays([0, 0, 1, 0], **columns)  # worker 0 at once, at version 0
    assert answered.start.tolist() == [0.0, 0.0, 1.0, 2.0]


def test_a_clock_is_made_of_a_log():
    trace = traces.asynchronous(CLOCK, n_updates=60, key=jax.random.key(2))
    again = traces.asynchronous(clocks.of_trace(log_of(trace)), n_updates=40)
    np.testing.assert_allclose(again.time, trace.time[:40], rtol=1e-6)
    assert again.worker.tolist() == trace.worker[:40].tolist()


def test_a_gap_with_several_gradients_an_update_has_no_starts():
    """Worker 0 was free from 1 on and read version 2: he began at update 2 or later."""
    worker, version = [0, 1, 1, 1, 0, 1], [0, 0, 1, 1, 2, 2]
    told = {"worker": worker, "version": version, "time": np.arange(1.0, 7.0)}
    assert traces.from_delays([0, 0, 1, 1, 0, 0], **told).start is None
    assert traces.from_delays([0, 0, 1, 1, 2, 1], **told).start is not None
