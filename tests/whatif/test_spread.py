"""Who is slow for good and who by chance; what durations remember."""

import numpy as np
import pytest

from asyncjax import traces
from asyncjax.whatif.describing import _holm, aligned, dependence_of, spread_of
from tests.oracles import describing as oracle


def remembering(rng, n, jobs, memory):
    """Rows whose entries have variance 1 and correlation memory^lag, float64[n, jobs]."""
    noise = rng.standard_normal((n, jobs)) * np.sqrt(1.0 - memory**2)
    rows = np.empty((n, jobs))
    rows[:, 0] = rng.standard_normal(n)
    for job in range(1, jobs):
        rows[:, job] = memory * rows[:, job - 1] + noise[:, job]
    return rows


def described(logs, seed=0):
    log = traces.read_log(np.exp(logs))
    return spread_of(log, aligned(log)[0], np.random.default_rng(seed))


def test_the_variance_is_split_as_it_was_made():
    rng = np.random.default_rng(0)
    worker, moment = 0.3 * rng.standard_normal((40, 1)), 0.2 * rng.standard_normal(2000)
    logs = worker + moment + 0.4 * rng.standard_normal((40, 2000))
    found = described(logs)
    parts = np.array([worker.var(), moment.var(), 0.16])
    shares = [found.between, found.in_time, found.rest]
    np.testing.assert_allclose(shares, parts / parts.sum(), atol=0.02)
    np.testing.assert_allclose(sum(shares), 1.0)


def test_the_part_in_time_is_that_of_the_expected_mean_squares():
    logs = np.random.default_rng(1).standard_normal((4, 30)) + np.linspace(-1, 1, 30)
    found = described(logs)
    centre = logs - np.median(logs, axis=0)
    means = centre[:, : 30 // 8 * 8].reshape(4, 8, -1).mean(axis=2)
    between = max(0.0, centre.mean(axis=1).var(ddof=1) - (means.var(axis=1, ddof=1) / 8).mean())
    total = between + logs.var(axis=1).mean()
    np.testing.assert_allclose(found.in_time * total, oracle.components(np.exp(logs)), rtol=1e-9)
    np.testing.assert_allclose(found.between, between / total, rtol=1e-9)
    assert found.blocks == 8


def test_a_slow_worker_is_found_and_its_factor_told():
    rng = np.random.default_rng(2)
    logs = 0.3 * remembering(rng, 8, 640, 0.5)
    logs[3] += np.log(1.5)
    logs[6] -= np.log(2.0)
    found = described(logs)
    assert found.for_good.tolist() == [0, 0, 0, 1, 0, 0, -1, 0]
    assert found.p_value == 0.001
    for worker, factor in ((3, 1.5), (6, 0.5)):
        assert abs(np.log(found.factor[worker] / factor)) < 4 * found.error[worker]


def test_a_worker_that_is_slow_for_a_while_is_not_slow_for_good():
    logs = 0.1 * np.random.default_rng(3).standard_normal((6, 640))
    logs[2, 100:260] += np.log(3.0)
    found = described(logs)
    assert not found.for_good.any()
    assert 0.2 <= found.at_times[2] <= 0.4
    assert not np.delete(found.at_times, 2).any()


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_equal_workers_are_not_told_apart(memory):
    """False alarms are as rare as said, also where slow jobs come in runs."""
    p_values, alarms = [], 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        found = described(0.5 * remembering(rng, 6, 320, memory), seed)
        p_values.append(found.p_value)
        alarms += bool(found.for_good.any())
    assert np.mean(np.array(p_values) < 0.05) < 0.15
    assert 0.3 < np.mean(p_values) < 0.7
    assert alarms <= 4


def test_what_is_too_short_is_not_judged():
    found = described(np.tile([[0.0], [1.0], [0.0]], 3))
    assert np.isnan(found.p_value)
    assert not found.for_good.any()
    np.testing.assert_allclose(found.factor, [1.0, np.e, 1.0])
    alone = described(np.zeros((1, 50)))
    assert np.isnan(alone.p_value)


def test_holm():
    p_values = np.random.default_rng(0).uniform(size=20) ** 3
    np.testing.assert_allclose(_holm(p_values), oracle.holm(p_values.tolist()))


def test_correlations_are_those_of_the_definition():
    rng = np.random.default_rng(4)
    rows = np.exp(remembering(rng, 3, 50, 0.6) + 0.5 * rng.standard_normal(50))
    log = traces.read_log(rows)
    found = dependence_of(log, aligned(log)[0], rng)
    one = [oracle.autocorrelation(row.tolist(), 1) for row in rows]
    np.testing.assert_allclose(found.lag_one, one, rtol=1e-9)
    np.testing.assert_allclose(found.common, oracle.mean_pair_correlation(rows), rtol=1e-9)


def test_memory_and_common_moments_are_recovered():
    rng = np.random.default_rng(5)
    series = remembering(rng, 8, 2000, 0.7)
    log = traces.read_log(np.exp(series))
    found = dependence_of(log, aligned(log)[0], rng)
    assert abs(found.mean_lag_one - 0.7) < 0.03
    assert abs(found.memory - 1.7 / 0.3) < 0.8  # (1 + r) / (1 - r)
    assert found.p_lag_one < 1e-6
    assert found.p_common > 0.02
    shared = remembering(rng, 8, 2000, 0.0) + rng.standard_normal(2000)
    log = traces.read_log(np.exp(shared))
    found = dependence_of(log, aligned(log)[0], rng)
    assert abs(found.common - 0.5) < 0.05
    assert found.p_common == 0.005
    assert abs(found.mean_lag_one) < 0.05


def test_runs_of_slow_jobs_do_not_make_workers_alike():
    """Workers that remember but share nothing have no common moments: p-values are even."""
    low = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        log = traces.read_log(np.exp(remembering(rng, 4, 200, 0.9)))
        low += dependence_of(log, aligned(log)[0], rng).p_common < 0.05
    assert low <= 4


def test_workers_are_put_side_by_side_by_step_by_time_or_by_job():
    steps = [("a", step, step) for step in (1, 2, 3, 4)] + [("b", step, 10) for step in (2, 3, 4)]
    side, by = aligned(traces.read_log(steps))
    assert by == "step"
    np.testing.assert_allclose(np.exp(side), [[2, 3, 4], [10, 10, 10]])
    jobs = [{"worker": "a", "start": t, "end": t + 1} for t in range(64)]
    jobs += [{"worker": "b", "start": 2 * t, "end": 2 * t + 2} for t in range(32)]
    side, by = aligned(traces.read_log(jobs))
    assert by == "time"
    np.testing.assert_allclose(np.exp(side), [[1.0] * 16, [2.0] * 16])
    side, by = aligned(traces.read_log({"a": [1.0, 1.0, 1.0], "b": [1.0, 1.0]}))
    assert (side.tolist(), by) == ([[0.0, 0.0], [0.0, 0.0]], "job")
