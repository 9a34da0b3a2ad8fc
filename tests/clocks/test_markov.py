"""The two-speed clock against a plain loop over the same uniforms."""

import jax
import numpy as np
import pytest

from asyncjax import clocks
from tests.oracles import clocks as oracle

KEY = jax.random.key(11)
FAST, SLOW, N_JOBS = 1.0, 10.0, 500
# Stays between decisive draws, flips between them, never decided, rarely decided, absorbing.
CHANCES = (
    (0.1, 0.3),
    (0.9, 0.8),
    (0.5, 0.5),
    (1.0, 1.0),
    (0.0, 0.0),
    (0.004, 0.002),
    (0.998, 0.999),
    (0.02, 0.0),
    (0.0, 0.4),
    (1.0, 0.0),
)


@pytest.fixture(scope="module")
def clock():
    to_slow, to_fast = np.array(CHANCES).T
    return clocks.markov(FAST, SLOW, to_slow, to_fast)


@pytest.fixture(scope="module")
def uniforms():
    def draw(worker, job):
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(KEY, worker), job))

    workers, jobs = np.arange(len(CHANCES)), np.arange(N_JOBS)
    rows = jax.jit(jax.vmap(jax.vmap(draw, (None, 0)), (0, None)))(workers, jobs)
    return np.asarray(rows)


@pytest.fixture(scope="module")
def expected(uniforms):
    rows = []
    for row, (to_slow, to_fast) in zip(uniforms, CHANCES, strict=True):
        chances = np.float32(to_slow), np.float32(to_fast)
        rows.append(oracle.two_speeds(row, FAST, SLOW, *chances))
    return np.stack(rows)


def test_the_whole_run_is_that_of_the_plain_loop(clock, expected):
    np.testing.assert_array_equal(clock.durations(KEY, N_JOBS), expected)
    assert (expected[:, 0] == FAST).all()


@pytest.mark.parametrize("size", [1, 23])
def test_every_block_is_that_of_the_plain_loop(clock, expected, size):
    for first in (0, 1, 2, 100, 333, N_JOBS - size):
        block = clock.durations(KEY, size, first=first)
        np.testing.assert_array_equal(block, expected[:, first : first + size])


def test_all_speed_changes_occur_in_the_test_itself(expected):
    changes = (np.diff(expected, axis=1) != 0).sum(1)
    assert changes[3] == N_JOBS - 1
    assert changes[4] == changes[8] == 0
    assert changes[7] == changes[9] == 1
    assert (changes[[0, 1, 2, 6]] > 20).all()


def test_undecided_clocks_are_found_at_once_far_out():
    never = clocks.markov(FAST, SLOW, [1.0, 0.0], [1.0, 0.0])
    block = never.durations(KEY, 2, first=2_000_000_001)
    np.testing.assert_array_equal(block, [[SLOW, FAST], [FAST, FAST]])


def test_long_run_moments(clock):
    shares = [oracle.long_run_share(*chances) for chances in CHANCES]
    mean = np.array([FAST + share * (SLOW - FAST) for share in shares])
    near = [0, 1, 2, 3, 4, 8]
    np.testing.assert_allclose(clock.mean[near], mean[near], rtol=2e-3)
    np.testing.assert_allclose(clock.mean[[7, 9]], SLOW)
    share = (clock.mean - FAST) / (SLOW - FAST)
    np.testing.assert_allclose(clock.variance, share * (1 - share) * (SLOW - FAST) ** 2)
