"""Managers of public frameworks under drawn schedules; their files are read from a checkout.

ASYNCJAX_MANAGERS=/checkouts pytest tests/rollouts/test_real_managers.py
"""

from functools import partial
from typing import Any

import pytest

from asyncjax.rollouts import check_control_plane
from asyncjax.rollouts.control_plane import World
from tests.rollouts import real_managers
from tests.rollouts.real_managers import BATCH, BOUND, CHECKOUTS, SLOTS, path_of

FAULTS = ("failures", "filtered", "timeouts", "restarts", "slow_engine", "paused_sync", "resume")
NUMBERS: dict[str, Any] = {"batch": BATCH, "slots": SLOTS, "max_staleness": BOUND}
# A sampler is not told of failures, which its controller makes good; its weights are blocking.
SAMPLER: dict[str, Any] = {"faults": ("slow_engine", "resume"), "world": World(sync_time=0.0)}
STEADY = ("trained_once", "nothing_lost", "round_trip", "returns", "progress", "starvation")


def module_of(name):
    if not CHECKOUTS:
        pytest.skip("ASYNCJAX_MANAGERS names no folder of checkouts")
    if not path_of(name).is_file():
        pytest.skip(f"there is no file {path_of(name)}")
    return real_managers.loaded(name)


@pytest.mark.slow
def test_areal_is_right_since_its_fix_and_wrong_before():
    module = module_of("areal")
    report = check_control_plane(
        partial(real_managers.Areal, module), **NUMBERS, faults=FAULTS, examples=500
    )
    if hasattr(module.StalenessManager, "on_version_recovered"):
        report.raise_if_wrong()
        assert report.ages["age_each"] is not None
    else:
        assert report.finding.invariant == "age_aggregate"
        assert len(report.finding.events) <= 15
        assert any(kind == "resume" for kind, *_ in report.finding.events)


@pytest.mark.slow
def test_skyrl_bounds_the_aggregate_as_it_says():
    make = partial(real_managers.Skyrl, module_of("skyrl"))
    report = check_control_plane(make, **NUMBERS, faults=FAULTS, examples=500)
    report.raise_if_wrong()
    assert report.ages["age_each"] is not None
    assert report.ages["age_aggregate"] is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["WindowedSampler", "InOrderSampler", "ReadyFirstSampler"])
def test_samplers_of_nemo_do_what_they_say(kind):
    make = partial(real_managers.Nemo, module_of("nemo"), kind)
    age = "age_aggregate" if kind == "ReadyFirstSampler" else "age_each"
    report = check_control_plane(
        make, **NUMBERS, **SAMPLER, invariants=(age, *STEADY), examples=200
    )
    report.raise_if_wrong()


@pytest.mark.slow
def test_a_batch_that_straddles_a_version_stops_the_fifo_of_nemo():
    """If the trainer wants a whole batch of one version, and its starts were of two."""
    make = partial(real_managers.Nemo, module_of("nemo"), "WeightFifoSampler")
    report = check_control_plane(make, **NUMBERS, **SAMPLER, invariants=("age_each", *STEADY))
    assert report.finding.invariant == "progress"
    assert len(report.finding.events) <= 15
