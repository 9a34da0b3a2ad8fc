"""Jobs that never return: which, how many, and that all others stay as they are."""

import jax
import numpy as np
import pytest

from asyncjax import clocks

KEY = jax.random.key(3)
CHANCES = (0.0, 0.1, 0.7)
N_JOBS = 4000


@pytest.fixture(scope="module")
def law():
    return clocks.exponential([1.0, 2.0, 4.0])


@pytest.fixture(scope="module")
def lost(law):
    return np.isinf(clocks.with_failures(law, CHANCES).durations(KEY, N_JOBS))


def test_jobs_that_return_take_the_times_of_the_clock(law, lost):
    times = np.asarray(clocks.with_failures(law, CHANCES).times(KEY, N_JOBS).compute)
    plain = np.asarray(law.durations(KEY, N_JOBS))
    np.testing.assert_array_equal(times, np.where(lost, np.inf, plain))


def test_the_share_of_lost_jobs_is_the_probability(lost):
    share, chance = lost.mean(1), np.array(CHANCES)
    assert share[0] == 0.0
    error = np.sqrt(chance * (1 - chance) / N_JOBS)
    assert (np.abs(share - chance) <= 4.5 * error).all()


def test_a_smaller_probability_loses_a_part_of_the_same_jobs(law, lost):
    fewer = np.isinf(clocks.with_failures(law, 0.5 * np.array(CHANCES)).durations(KEY, N_JOBS))
    assert (fewer <= lost).all()
    assert fewer.sum() < lost.sum()


def test_losses_add_up():
    clock = clocks.with_failures(clocks.with_failures(clocks.constant(1.0), [0.5, 0.0]), 0.25)
    np.testing.assert_array_equal(clock.loss, [0.625, 0.25])
    assert clock.n_workers == 2


def test_a_lost_job_has_its_links_but_no_end(law):
    linked = clocks.communicating(
        clocks.with_failures(law, CHANCES), download=clocks.constant(0.5), upload=law
    )
    same = clocks.with_failures(
        clocks.communicating(law, download=clocks.constant(0.5), upload=law), CHANCES
    )
    parts, others = linked.times(KEY, N_JOBS), same.times(KEY, N_JOBS)
    for part, other in zip(parts, others, strict=True):
        np.testing.assert_array_equal(part, other)
    assert np.isfinite(parts.upload).all()
    np.testing.assert_array_equal(np.isinf(parts.total), np.isinf(parts.compute))
    np.testing.assert_array_equal(linked.mean, 0.5 + 2 * law.mean)
    assert np.isinf(parts.compute).any()


def test_losses_are_independent_of_each_other_and_of_the_times(law, lost):
    plain = np.asarray(law.durations(KEY, N_JOBS))
    rows = np.concatenate([lost[1:, :-1], lost[1:, 1:], plain[1:, :-1]])
    table = np.corrcoef(rows)
    assert np.abs(table - np.eye(6)).max() < 5 / np.sqrt(N_JOBS)
