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
NUMBERS = {"batch": BATCH, "slots": SLOTS, "max_staleness": BOUND}
# A sampler is not told of failures, which its controller makes good; its weights are blocking.
SAMPLER = {"faults": ("slow_engine", "resume"), "world": World(sync_time=0.0)}
STEADY = ("trained_once", "nothing_lost", "round_trip", "returns", "progress", "starvation")

check: Any = check_control_plane


def module_of(name):
    if not CHECKOUTS:
        pytest.skip("ASYNCJAX_MANAGERS names no folder of checkouts")
    if not path_of(name).is_file():
        pytest.skip(f"there is no file {path_of(name)}")
    return real_managers.loaded(name)


@pytest.mark.slow
def test_areal_is_right_since_its_fix_and_wrong_before():
    module = module_of("areal")
    is_fixed = hasattr(module.StalenessManager, "on_version_recovered")
    for batch, slots, bound in ((1, 2, 0), (2, 4, 1)):
        make = partial(real_managers.Areal, module, batch, slots, bound)
        numbers = {"batch": batch, "slots": slots, "max_staleness": bound}
        report = check(make, **numbers, faults=FAULTS, examples=500)
        if is_fixed:
            report.raise_if_wrong()
            assert bound == 0 or report.ages["age_each"] is not None
            continue
        finding = report.finding
        print(finding.timeline)
        assert finding.invariant == "age_aggregate"
        assert len(finding.events) <= (15 if batch == 1 else 30)
        assert any(kind == "resume" for kind, *_ in finding.events)


@pytest.mark.slow
def test_skyrl_bounds_the_aggregate_as_it_says():
    make = partial(real_managers.Skyrl, module_of("skyrl"))
    report = check(make, **NUMBERS, faults=FAULTS, examples=500)
    report.raise_if_wrong()
    assert report.ages["age_each"] is not None
    assert report.ages["age_aggregate"] is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["WindowedSampler", "InOrderSampler", "ReadyFirstSampler"])
def test_samplers_of_nemo_do_what_they_say(kind):
    make = partial(real_managers.Nemo, module_of("nemo"), kind)
    age = "age_aggregate" if kind == "ReadyFirstSampler" else "age_each"
    report = check(make, **NUMBERS, **SAMPLER, invariants=(age, *STEADY), examples=200)
    report.raise_if_wrong()


@pytest.mark.slow
def test_a_batch_that_straddles_a_version_stops_the_fifo_of_nemo():
    """If the trainer wants a whole batch of one version, and its starts were of two."""
    make = partial(real_managers.Nemo, module_of("nemo"), "WeightFifoSampler")
    report = check(make, **NUMBERS, **SAMPLER, invariants=("age_each", *STEADY))
    finding = report.finding
    assert finding.invariant == "progress"
    assert len(finding.events) <= 15
