"""The description of a log: outages, stalls, what is said of it, and the clock that it makes."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces, whatif
from asyncjax.whatif.describing import outages_of


def jobs_of(rng, n, count, away=()):
    """Rows of jobs of 1 on average, one after the other, away at (worker, job) for a length."""
    rows = []
    for worker in range(n):
        now = 0.0
        for job in range(count):
            now += sum(length for who, at, length in away if (who, at) == (worker, job))
            took = float(rng.gamma(20.0, 0.05))
            rows.append({"worker": worker, "start": now, "end": now + took})
            now += took + 0.01
    return rows


def test_outages_are_the_gaps_and_nothing_else():
    away = [(0, 30, 50.0), (2, 10, 20.0), (2, 60, 8.0)]
    log = traces.read_log(jobs_of(np.random.default_rng(0), 3, 100, away))
    found = outages_of(log)
    assert found.worker.tolist() == [0, 2, 2]
    np.testing.assert_allclose(found.length, [50.01, 20.01, 8.01], rtol=1e-6)
    np.testing.assert_allclose(found.begin[0], log.end[0][29])
    np.testing.assert_allclose(found.share * log.span, [50.01, 0.0, 28.02], rtol=1e-6)


def test_waiting_for_others_in_every_round_is_no_outage():
    rounds = traces.synchronous(clocks.constant([1.0, 1.0, 30.0]), k=3, n_updates=40)
    found = outages_of(traces.read_log(rounds))
    assert not found.worker.size
    assert found.is_known


@pytest.mark.parametrize("law", ["exponential", "gamma", "lognormal"])
def test_stalls_are_rare_in_a_law_and_found_beside_it(law):
    rng = np.random.default_rng(2)
    draw = {
        "exponential": lambda: rng.exponential(1.0, (10, 500)),
        "gamma": lambda: rng.gamma(4.0, 0.25, (10, 500)),
        "lognormal": lambda: rng.lognormal(0.0, 0.4, (10, 500)),
    }[law]
    rows = draw()
    assert len(outages_of(traces.read_log(rows)).stalled) <= 2
    rows[4, 77] = 60.0
    found = outages_of(traces.read_log(rows))
    at = int(np.argmax(found.stall))
    assert (found.stalled[at], found.stall_job[at], found.stall[at]) == (4, 77, 60.0)
    np.testing.assert_allclose(found.stall_factor[at], 60.0 / np.median(rows[4]))


def test_a_log_is_told_in_words():
    rows = np.random.default_rng(3).gamma(25.0, 0.04, (5, 400))
    rows[1] *= 2.0
    found = whatif.describe(traces.read_log({f"node{i}": row for i, row in enumerate(rows)}))
    told = " | ".join(found.sentences)
    assert "2,000 jobs of 5 workers" in told
    assert "Slow for good, not by chance: node1 (2 times)" in told
    assert "The gamma law fits" in told
    assert found.clock is found.fits[0].clock
    np.testing.assert_allclose(found.clock.mean, found.figures.mean, rtol=1e-6)
    np.testing.assert_allclose(found.figures.relative, [1, 2, 1, 1, 1], rtol=0.05)
    again = whatif.describe(found.log)
    assert again.sentences == found.sentences


def test_what_a_short_log_leaves_open_is_not_said_of_its_workers():
    """Four uneven workers, 80 exponential jobs each: they differ, but who is slow stays open."""
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(12):
        found = whatif.describe(
            traces.read_log(rng.exponential([[0.8], [1.3], [0.75], [1.4]], (4, 80)))
        )
        words = "for good", "differ significantly"
        told = next(one for one in found.sentences if any(part in one for part in words))
        level = "none by a tenth" in told
        assert not (level and found.spread.factor.max() > 1.1), told
        seen.add(told.split(":")[0])
    assert (
        "Workers differ for good, but the log is too short to tell which of them are slow" in seen
    )


def test_equal_constant_workers_are_nothing_to_speak_of():
    found = whatif.describe(traces.read_log(np.ones((4, 64))))
    assert "The workers do not differ significantly: who is slow is so by chance" in found.sentences
    assert found.fits[0].name == "constant"
    assert not found.outages.stalled.size
    assert found.figures.cv.tolist() == [0.0] * 4


def test_where_no_law_fits_the_clock_draws_from_the_log():
    rng = np.random.default_rng(4)
    is_late = rng.random((3, 600)) < 0.4
    rows = np.where(is_late, rng.gamma(3.0, 1.5, (3, 600)), rng.gamma(400.0, 0.0025, (3, 600)))
    found = whatif.describe(traces.read_log(rows))
    assert not found.fits[0].is_good
    assert "No smooth law fits" in found.sentences[-1]
    drawn = np.asarray(found.clock.durations(jax.random.key(0), 50), float)
    assert np.isin(np.round(drawn[0], 4), np.round(rows[0], 4)).all()


@pytest.mark.parametrize("rows", [{"a": [1.0]}, {"a": [1.0, 2.0], "b": [3.0]}, [[2.0, 2.0, 2.0]]])
def test_the_smallest_logs_are_described(rows):
    found = whatif.describe(traces.read_log(rows if isinstance(rows, dict) else np.array(rows)))
    assert found.sentences
    assert found.clock.n_workers == len(found.log.workers)


def test_the_slow_worker_of_a_recording_is_found():
    """The job in which one of four workers was slowed on purpose."""
    found = whatif.describe(traces.read_log(clocks.recording("llm_slow_worker").durations))
    assert found.spread.for_good.tolist() == [1, 0, 0, 0]
    found = whatif.describe(traces.read_log(clocks.recording("llm_sequences").durations))
    assert not found.spread.for_good.any()  # late by uneven sequences: any of them, by chance
