"""Memory of logs: how long it lasts, whether workers share it, and blocks that keep it."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.clocks import memory
from tests.oracles import clocks as oracle

KEY = jax.random.key(5)
ROWS = [np.arange(1.0, 8.0), np.arange(10.0, 15.0), np.arange(20.0, 30.0)]


def remembering(rng, n, size, weight=0.9):
    """Log times with autocorrelation weight^k, independent workers."""
    noise, level = rng.standard_normal((n, size + 100)), np.zeros(n)
    rows = []
    for column in noise.T:
        level = weight * level + column
        rows.append(level)
    return np.exp(0.3 * np.stack(rows[100:], axis=1))


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("block", [1, 3, 40])
def test_blocks_are_those_of_the_plain_loop(block, common):
    clock = clocks.resampled(ROWS, block=block, common=common)
    streams = [0x636F6D6D] * 3 if common else range(3)
    keys = [jax.random.fold_in(KEY, stream) for stream in streams]
    numbers = [
        [float(jax.random.uniform(jax.random.fold_in(key, b))) + 2**-24 for b in range(50)]
        for key in keys
    ]
    rows = oracle.side_by_side(ROWS) if common else ROWS
    expected = oracle.in_blocks(rows, numbers, block, 50)
    np.testing.assert_array_equal(clock.durations(KEY, 50), expected)
    np.testing.assert_array_equal(clock.durations(KEY, 9, first=17), expected[:, 17:26])


def test_default_blocks_follow_the_autocorrelation():
    rng = np.random.default_rng(0)
    forgetful = clocks.resampled(rng.gamma(2.0, 1.0, (20, 300))).parameters["block"]
    assert np.mean(forgetful == 1) >= 0.9
    lasting = clocks.resampled(remembering(rng, 20, 500))
    assert (lasting.parameters["block"] > 5).all()
    assert not lasting.law.is_common
    short = clocks.resampled(remembering(rng, 3, 19))
    assert (short.parameters["block"] == 1).all()


def test_lengths_of_blocks_are_near_those_of_the_formula():
    weight, size = 0.8, 4_000  # G = 2 w / (1 - w)^2 over the sum of R, (1 + w) / (1 - w)
    moment, density = 2 * weight / (1 - weight) ** 2, (1 + weight) / (1 - weight)
    formula = (1.5 * (moment / density) ** 2 * size) ** (1 / 3)
    rows = remembering(np.random.default_rng(1), 12, size, weight)
    assert abs(np.median([memory.block_length(row) for row in rows]) / formula - 1) < 0.3


def test_workers_move_together_only_if_they_do():
    rng = np.random.default_rng(2)
    alone = [memory.togetherness(np.log(remembering(rng, 8, 300))) for _ in range(60)]
    assert abs(np.mean(alone)) < 0.5
    assert 0.7 < np.std(alone) < 1.4
    shared = remembering(rng, 1, 300) * remembering(rng, 8, 300)
    assert clocks.resampled(shared).law.is_common
    ragged = [row[: 300 - 20 * number] for number, row in enumerate(shared)]
    assert clocks.resampled(ragged, common=True).law.is_common
    assert memory.togetherness(np.zeros((3, 100))) == 0.0


def test_autocorrelation_is_that_of_the_definition():
    row = remembering(np.random.default_rng(3), 1, 60)[0]
    apart = row - row.mean()
    direct = [(apart[: len(row) - k] * apart[k:]).sum() / (apart**2).sum() for k in range(16)]
    np.testing.assert_allclose(memory.autocorrelation(row[None])[0], direct, atol=1e-12)


@pytest.mark.slow
def test_a_clock_of_a_run_keeps_phases_that_workers_share():
    base = clocks.gamma(9.0, [1.0, 1.0, 1.0, 1.1, 1.2, 1.4])
    truth = clocks.phases(base, slowdown=4.0, fast=60.0, slow=100.0, common=True, timed=True)
    run = traces.asynchronous(truth, n_updates=60_000, key=KEY)
    blocks = clocks.of_trace(run, law=clocks.resampled)
    lost = clocks.of_trace(run, law=lambda rows: clocks.resampled(rows, block=1, common=False))
    pace = [
        traces.synchronous(clock, k=6, n_updates=20_000, key=jax.random.key(9)).time[-1]
        for clock in (truth, blocks, lost)
    ]
    assert abs(pace[1] / pace[0] - 1) < 0.1
    assert pace[2] / pace[0] - 1 > 0.2
