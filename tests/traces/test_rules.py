"""Gates, loads, storage and figures of traces, and that merged and looped ones agree."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.traces.event_trace import worker_count
from asyncjax.traces.random_draws import DurationBlocks
from tests.traces.same import assert_same

CLOCK = clocks.constant([1.0, 2.0, 3.0])
KEY = jax.random.key(0)


def test_a_gate_without_a_lead_stops_a_run_of_one_job():
    words = "cannot go on after arrival 1 at time 1, update 1: no job is running; the gate"
    with pytest.raises(ValueError, match=words):
        traces.asynchronous(CLOCK, n_updates=9, gate=traces.lead_at_most(0), concurrency=1)


def test_load_stretches_the_compute_part_only():
    clock = clocks.communicating(CLOCK, download=clocks.constant(0.5), upload=clocks.constant(0.25))
    trace = traces.synchronous(clock, k=3, n_updates=1, load=2.0)
    assert trace.time.tolist() == [2.75, 4.75, 6.75]


@pytest.mark.parametrize("dispatch", [traces.to_deliverer(), traces.uniformly(), traces.shuffled()])
def test_all_rules_face_the_same_workers(dispatch):
    clock = clocks.gamma(2.0, [1.0, 2.0, 3.0])
    trace = traces.asynchronous(clock, n_updates=400, dispatch=dispatch, key=KEY)
    other = traces.asynchronous(clock, n_updates=400, collect=traces.buffered(2), key=KEY)
    spans = {
        (w, j): t for w, j, t in zip(other.worker, other.job, other.time - other.start, strict=True)
    }
    shared = 0
    for worker, job, span in zip(trace.worker, trace.job, trace.time - trace.start, strict=True):
        if (worker, job) in spans:
            assert span == pytest.approx(spans[worker, job], rel=1e-9)
            shared += 1
    assert shared > 300


def test_durations_do_not_depend_on_how_they_are_drawn():
    clock = clocks.exponential([1.0, 2.0])
    blocks = DurationBlocks(clock, KEY)
    alone = [blocks.draw(np.array([w]), np.array([b])) for w in (0, 1) for b in (0, 3)]
    many = blocks.draw(np.repeat([0, 1], 2), np.tile([0, 3], 2))
    np.testing.assert_array_equal(np.concatenate(alone), many)
    assert many.dtype == np.float64


def test_traces_do_not_depend_on_the_precision_of_the_caller():
    clock = clocks.exponential([1.0, 2.0])
    trace = traces.asynchronous(clock, n_updates=50, key=KEY)
    with jax.enable_x64(True):
        again = traces.asynchronous(clock, n_updates=50, key=KEY)
    np.testing.assert_array_equal(trace.time, again.time)
    assert len(np.unique(trace.time.astype(np.float32) - trace.time)) > 1, "times are float64"


def test_summary_counts():
    trace = traces.asynchronous(CLOCK, n_updates=12, collect=traces.rennala(2))
    summary = traces.summarize(trace)
    assert summary.updates == 12
    assert summary.used == 24
    assert summary.used + summary.thrown_away == len(trace.time)
    assert summary.used_by_worker.sum() == 24
    assert summary.delay_histogram.sum() == len(trace.time)
    assert summary.time_per_update == trace.time[-1] / 12
    bare = traces.EventTrace(*trace[:8])
    assert np.isnan(traces.summarize(bare).utilisation)
    assert worker_count(bare) == 3


def test_utilisation_counts_cancelled_work_and_idle_time():
    trace = traces.synchronous(clocks.constant([1.0, 2.0, 8.0]), k=2, n_updates=3)
    summary = traces.summarize(trace)
    assert summary.cancelled == 3
    assert summary.utilisation == pytest.approx(
        (1 + 2 + 2) / 6
    )  # the third works until it is stopped


def test_a_million_arrivals_of_very_uneven_workers_fit_in_memory():
    clock = clocks.constant(np.r_[np.full(3, 0.001), np.full(200, 10.0)])
    trace = traces.asynchronous(clock, n_updates=100_000)
    assert len(trace.time) == 100_000
    assert np.all(np.diff(trace.time) >= 0)


@pytest.mark.parametrize("b", [1, 3, 8])
@pytest.mark.parametrize("ties", [False, True])
def test_restarted_and_looped_traces_agree(b, ties):
    """A timeout that never comes sends the same rule through the event loop."""
    times = np.random.default_rng(b).exponential(size=(5, 200)) + 0.01
    clock = clocks.recorded(np.ceil(times / 0.5) if ties else times)
    rule = traces.rennala(b, cancel=True)
    fast = traces.asynchronous(clock, n_updates=90, collect=rule)
    looped = traces.asynchronous(clock, n_updates=90, collect=rule, timeout=1e9)
    assert_same(fast, looped)


@pytest.mark.parametrize(
    "rule", [{"collect": traces.wait_for(8)}, {"dispatch": traces.uniformly()}]
)
def test_arrivals_of_one_instant_go_by_worker_however_many_there_are(rule):
    n = 9_000
    clock = clocks.constant(1.0 + np.arange(n) % 3)
    trace = traces.asynchronous(clock, n_updates=1_000, key=jax.random.key(3), **rule)
    together = np.diff(trace.time) == 0
    assert together.any()
    assert (np.diff(trace.worker)[together] >= 0).all()
