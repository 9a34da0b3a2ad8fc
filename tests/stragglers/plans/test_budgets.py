"""Plans under caps: caps are kept exactly, against a grid of prices, and what cannot be kept."""

import numpy as np
import pytest

from asyncjax import clocks
from asyncjax.stragglers import ErrorBound, plan, response
from asyncjax.stragglers.plans.budgets import plan_within

BOUND = ErrorBound(
    step_size=0.1, smoothness=2.0, strong_convexity=0.5, noise_variance=8.0, initial_error=10.0
)
PRICES = np.geomspace(3e-3, 0.03, 150)
MENU = {"k": [1, 2, 4, 6, 8], "load": [1, 4, 8], "target": 0.03125}


def eight(scaling="scale"):
    return response(
        compute=clocks.exponential(0.25),
        communicate=clocks.exponential(1.0),
        scaling=scaling,
        n_workers=8,
    )


def test_no_cap_and_loose_caps_give_the_plan():
    free = plan(eight(), BOUND, **MENU)
    for caps in ({}, {"samples_assigned": 9894.0}, {"samples_assigned": 1e6, "uplinks": 605.0}):
        stages = plan_within(eight(), BOUND, **MENU, **caps)
        np.testing.assert_array_equal(stages.k, free.k)
        np.testing.assert_array_equal(stages.updates, free.updates)


@pytest.mark.parametrize("scaling", ["scale", "additive"])
def test_the_less_is_allowed_the_longer_it_takes(scaling):
    caps = np.array([9000.0, 8000.0, 7000.0, 6000.0, 5000.0])
    times = []
    for cap in caps:
        stages = plan_within(eight(scaling), BOUND, **MENU, samples_assigned=cap)
        assert stages.samples_assigned <= cap * (1 + 2e-12)
        np.testing.assert_allclose(stages.start_error[1:], stages.end_error[:-1], rtol=1e-12)
        assert stages.end_error[-1] == MENU["target"]
        times.append(stages.time)
    assert (np.diff(times) >= 0).all()
    assert times[-1] > times[0]


def test_no_priced_plan_within_the_cap_is_faster():
    cap = 8000.0  # here the costs of priced plans jump
    stages = plan_within(eight(), BOUND, **MENU, samples_assigned=cap)
    grid = [plan(eight(), BOUND, **MENU, compute_price=p) for p in PRICES]
    kept = min(one.time for one in grid if one.samples_assigned <= cap)
    # weak duality: nothing within the cap can be faster than this
    dual = max(
        one.time + p * (one.samples_assigned - cap) for p, one in zip(PRICES, grid, strict=True)
    )
    assert dual * (1 - 1e-12) <= stages.time <= kept
    assert stages.time == pytest.approx(dual, rel=1e-4)
    assert stages.samples_assigned == pytest.approx(cap, rel=1e-8)


def test_two_caps_at_once():
    stages = plan_within(eight(), BOUND, **MENU, samples_assigned=8000.0, uplinks=640.0)
    assert stages.samples_assigned <= 8000.0 * (1 + 2e-12)
    assert stages.uplinks <= 640.0 * (1 + 2e-12)
    prices = np.append(0.0, np.geomspace(1e-3, 0.3, 11))
    grid = [
        (p, q, plan(eight(), BOUND, **MENU, compute_price=p, upload_price=q))
        for p in prices
        for q in prices
    ]
    dual = max(
        one.time + p * (one.samples_assigned - 8000) + q * (one.uplinks - 640) for p, q, one in grid
    )
    kept = [one.time for _, _, one in grid if one.samples_assigned <= 8000 and one.uplinks <= 640]
    assert dual * (1 - 1e-9) <= stages.time <= min(kept, default=np.inf)
    assert stages.time <= dual * 1.01


def test_the_least_costs_can_be_had_and_no_less():
    with pytest.raises(ValueError, match=r"uplinks must be at least 571.277 to reach the target"):
        plan_within(eight(), BOUND, **MENU, uplinks=560.0)
    stages = plan_within(eight(), BOUND, **MENU, uplinks=571.278)
    assert stages.uplinks == pytest.approx(571.278, rel=1e-11)
    with pytest.raises(ValueError, match=r"622.857 .* with at most 8000 samples_assigned, got 600"):
        plan_within(eight(), BOUND, **MENU, samples_assigned=8000.0, uplinks=600.0)
    with pytest.raises(ValueError, match="samples_assigned must be positive"):
        plan_within(eight(), BOUND, **MENU, samples_assigned=0.0)


def test_a_target_out_of_reach_is_no_error():
    with pytest.warns(UserWarning, match="target should be above the least floor"):
        stages = plan_within(eight(), BOUND, **{**MENU, "target": 0.02}, samples_assigned=10.0)
    assert not stages.reachable
    there = plan_within(eight(), BOUND, **{**MENU, "target": 11.0}, samples_assigned=10.0)
    assert there.time == 0.0
