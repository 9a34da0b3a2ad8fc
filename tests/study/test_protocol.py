"""Instances of different roles share no seed; times that never come are counted, not averaged."""

from itertools import product

import numpy as np
import pytest

from asyncjax.study import protocol
from asyncjax.study.protocol import PURPOSES, ROLES, SET_A, SET_C, TUNING


def seeds_of(base, role, count=20, repeats=5):
    found = set()
    for instance in protocol.seeds_of(base, role, count):
        found |= {instance.data, instance.clock, instance.model}
        found |= {instance.noise(repeat) for repeat in range(repeats)}
    return found


def test_roles_and_experiments_share_no_seed():
    every = [seeds_of(base, role) for base, role in product((0, 1, 255), ROLES)]
    assert all(len(seeds) == 20 * (3 + 5) for seeds in every)  # none twice within one either
    assert len(set.union(*every)) == sum(len(seeds) for seeds in every)


def test_the_largest_seed_fits_31_bits():
    assert protocol.seed_of(255, SET_C, PURPOSES[-1], 1023, 511) < 2**31


def test_instance_stays_while_the_noise_changes():
    (one,), (again,) = (protocol.seeds_of(7, SET_A, 1) for _ in range(2))
    assert (one.data, one.clock, one.model) == (again.data, again.clock, again.model)
    assert one.noise(0) != one.noise(1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((256, TUNING, "data", 0, 0), "base"),
        ((0, "test", "data", 0, 0), "role must be one of tuning, set A, set B"),
        ((0, TUNING, "order", 0, 0), "purpose must be one of"),
        ((0, SET_A, "data", 1024, 0), "number"),
        ((0, TUNING, "data", 256, 0), "number of an instance to tune on"),
        ((0, TUNING, "data", 0, -1), "repeat"),
    ],
)
def test_a_seed_out_of_range_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        protocol.seed_of(*arguments)


def test_three_targets_close_their_shares_of_the_way():
    assert protocol.targets(3.0, 1.0) == pytest.approx([2.0, 1.4, 1.1])
    with pytest.raises(ValueError, match="below start"):
        protocol.targets(1.0, 1.0)


def test_censored_times_by_hand():
    # Seen by 10: 1, 2 and 6. One comes after it, one never does: both count as 10.
    found = protocol.reached([6.0, np.inf, 1.0, 12.0, 2.0], 10.0)
    assert found.share == 3 / 5
    assert found.restricted_mean == pytest.approx((6 + 10 + 1 + 10 + 2) / 5)
    assert found.quartiles == (2.0, 6.0, None)


def test_restricted_mean_is_the_area_under_the_survival_curve():
    times = np.append(np.random.default_rng(0).exponential(3.0, 40), [np.inf] * 5)
    grid = (np.arange(20_000) + 0.5) * 4.0 / 20_000
    area = np.mean(times[:, None] > grid, axis=0).mean() * 4.0
    assert protocol.reached(times, 4.0).restricted_mean == pytest.approx(area, rel=1e-3)


def test_no_quartile_is_made_of_times_that_never_came():
    found = protocol.reached([np.inf] * 4, 10.0)
    assert (found.share, found.restricted_mean) == (0.0, 10.0)
    assert found.quartiles == (None, None, None)


@pytest.mark.parametrize(
    ("times", "horizon"), [([np.nan], 1.0), ([], 1.0), ([-1.0], 1.0), ([1.0], np.inf), ([1.0], 0.0)]
)
def test_times_and_horizons_that_mean_nothing_are_refused(times, horizon):
    with pytest.raises(ValueError, match="must be"):
        protocol.reached(times, horizon)
