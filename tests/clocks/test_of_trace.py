"""Clocks of traces: the same trace again, ragged rows, what is left out, fitted laws, links."""

import warnings

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.clocks.of_trace import CYCLED

KEY = jax.random.key(3)
UNEVEN = clocks.lognormal(mean=[0.5, 1.0, 4.0], sigma=0.4)


@pytest.fixture(scope="module")
def recorded():
    return traces.asynchronous(UNEVEN, n_updates=300, key=KEY)


def test_the_same_rule_makes_the_same_trace_again(recorded):
    clock = clocks.of_trace(recorded)
    assert clock.law is CYCLED
    assert not clock.is_random
    again = traces.asynchronous(clock, n_updates=recorded.n_updates)
    for name in ("worker", "job", "read_version", "version", "used", "steps"):
        np.testing.assert_array_equal(getattr(again, name), getattr(recorded, name))
    np.testing.assert_allclose(again.time, recorded.time, rtol=1e-6)


def test_rows_are_cycled_when_they_end_and_have_their_own_moments(recorded):
    clock = clocks.of_trace(recorded)
    heard = np.bincount(recorded.worker)
    assert len({*heard.tolist()}) == 3  # ragged
    durations = np.asarray(clock.durations(None, int(heard.max()) + 5))
    for worker, count in enumerate(heard):
        mask = recorded.worker == worker
        row = (recorded.time - recorded.start)[mask]
        np.testing.assert_allclose(durations[worker], np.resize(row, durations.shape[1]), 1e-6)
        np.testing.assert_allclose(clock.mean[worker], row.mean())
        np.testing.assert_allclose(clock.variance[worker], row.var())
        assert clock.least()[worker] == row.min()
        assert len(row) == count


def test_resampling_draws_every_recorded_time_and_no_other():
    rows = [[1.0, 2.0, 4.0], [8.0], [3.0, 5.0]]
    clock = clocks.resampled(rows)
    durations = np.asarray(clock.durations(KEY, 400))
    for row, drawn in zip(rows, durations, strict=True):
        values, counts = np.unique(drawn, return_counts=True)
        np.testing.assert_array_equal(values, sorted(row))
        assert counts.min() > 0.8 * 400 / len(row)
    other = np.asarray(clock.durations(jax.random.key(4), 400))
    assert (other[0] != durations[0]).any()


def test_a_fitted_law_has_the_recorded_moments_and_draws_like_them(recorded):
    rows = clocks.of_trace(recorded)
    law = clocks.of_trace(recorded, law=clocks.fitted)
    np.testing.assert_allclose(law.mean, rows.mean, rtol=1e-12)
    np.testing.assert_allclose(law.variance, rows.variance, rtol=1e-9)
    drawn = np.asarray(law.durations(KEY, 4000))
    np.testing.assert_allclose(drawn.mean(axis=1), law.mean, rtol=0.05)


def test_more_workers_are_like_those_recorded(recorded):
    drawn = clocks.of_trace(recorded, law=clocks.fitted, n_workers=7)
    np.testing.assert_allclose(drawn.mean, np.resize(np.asarray(drawn.mean)[:3], 7))
    cycled = clocks.of_trace(recorded, n_workers=6)
    np.testing.assert_allclose(cycled.mean[3:], cycled.mean[:3])
    times = np.asarray(cycled.durations(None, 20))
    assert not (times[:3, 0] == times[3:, 0]).any()  # they begin elsewhere
    few = clocks.of_trace(recorded, law=clocks.resampled, n_workers=2)
    np.testing.assert_allclose(few.mean, np.asarray(cycled.mean)[:2])


def test_computing_and_link_are_apart(recorded):
    duration = recorded.time - recorded.start
    clock = clocks.of_trace(recorded, computed=0.75 * duration)
    times = clock.times(None, 10)
    np.testing.assert_allclose(times.compute, 3 * times.upload, rtol=1e-6)
    again = traces.asynchronous(clock, n_updates=200)
    np.testing.assert_allclose(again.time, recorded.time[:200], rtol=1e-6)
    all_compute = clocks.of_trace(recorded, computed=duration)
    assert np.asarray(all_compute.durations(None, 5, load=2.0) > 0).all()
    for law in (clocks.resampled, clocks.fitted):
        parts = clocks.of_trace(recorded, computed=0.75 * duration, law=law)
        np.testing.assert_allclose(parts.mean, clock.mean, rtol=1e-6)


def test_jobs_that_did_not_arrive_are_left_out_and_counted_where_many():
    law, rule = clocks.lognormal(mean=[0.5, 1.0, 4.0], sigma=1.0), traces.rennala(1, cancel=True)
    trace = traces.asynchronous(law, n_updates=500, collect=rule, key=KEY)
    stopped = len(trace.cancelled.worker)
    message = rf"of \d+ jobs .* {stopped} were stopped or lost and 3 are still open"
    with pytest.warns(UserWarning, match=message) as caught:
        clock = clocks.of_trace(trace)
    assert caught[0].filename == __file__
    assert clock.mean[2] < 0.5 * law.mean[2]  # who wins is fast: what is left is not fair
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clocks.of_trace(traces.asynchronous(clocks.constant([1.0, 1.5]), n_updates=60))
