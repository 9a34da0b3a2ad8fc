"""Plans: known answers, the hull against slow twins, optimality, targets out of reach, caps."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks
from asyncjax.stragglers import (
    ErrorBound,
    compared,
    comparison,
    completion_table,
    error_floor,
    plan,
    plan_text,
    plan_within,
    quadratic_floor,
    response,
)
from asyncjax.stragglers.plans.planning import hull
from tests.oracles import stragglers as oracle

BOUND = ErrorBound(0.1, 2.0, 0.5, 8.0, initial_error=10.0)
MENU = {"k": [1, 2, 4, 6, 8], "load": [1, 4, 8]}
TARGET = 0.03125
TO_TARGET = MENU | {"target": TARGET}
PRICES = np.geomspace(3e-3, 0.03, 150)


def eight(scaling):
    compute, communicate = clocks.exponential(0.25), clocks.exponential(1.0)
    return response(compute=compute, communicate=communicate, n_workers=8, scaling=scaling)


def pairs(stages):
    return list(zip(stages.k.tolist(), stages.load.astype(int).tolist(), strict=True))


def options(times, bound=BOUND):
    table = completion_table(times, np.array(MENU["load"], float))
    price = np.array([table[j, k - 1] for k in MENU["k"] for j in range(3)])
    floor = np.array([float(error_floor(bound, k, b)) for k in MENU["k"] for b in MENU["load"]])
    return price, floor


def test_two_knobs_under_the_scale_law():
    stages = plan(eight("scale"), BOUND, **MENU, target=TARGET)
    assert pairs(stages) == [(1, 1), (1, 4), (1, 8), (2, 8), (4, 8), (6, 8), (8, 8)]
    starts = [0, 10.00452, 27.78298, 49.73904, 83.76708, 145.53392, 254.10641]
    np.testing.assert_allclose(stages.start_time, starts, atol=6e-6)
    assert stages.time == pytest.approx(393.09313, abs=6e-6)
    assert stages.end_error[0] == pytest.approx(2.9631441, abs=6e-8)
    totals = (stages.samples_assigned, stages.samples_used, stages.uplinks, stages.broadcasts)
    np.testing.assert_allclose(totals, [9893.68, 4454.73, 604.61, 1618.89], atol=6e-3)
    assert stages.reachable
    assert stages.n_updates == pytest.approx(stages.broadcasts / 8)
    np.testing.assert_allclose(stages.start_error[1:], stages.end_error[:-1], rtol=1e-15)
    np.testing.assert_allclose(stages.start_time[1:], stages.end_time[:-1], rtol=1e-15)
    np.testing.assert_allclose(
        stages.end_time - stages.start_time, stages.updates * stages.completion, rtol=1e-12
    )
    alone = plan(eight("scale"), BOUND, k=MENU["k"], load=8.0, target=TARGET)
    totals = (alone.time, alone.samples_assigned, alone.uplinks)
    np.testing.assert_allclose(totals, [405.37239, 11904.85, 588.27], rtol=1e-5)


def test_prices_move_the_stages():
    prices = {"compute_price": 0.02, "upload_price": 0.05}
    stages = plan(eight("scale"), BOUND, **MENU, target=TARGET, **prices)
    expected = [(1, 1), (2, 1), (1, 4), (2, 4), (4, 4), (4, 8), (6, 8), (8, 8)]
    assert pairs(stages) == expected
    assert stages.time == pytest.approx(409.63724, abs=6e-6)
    np.testing.assert_allclose(
        [stages.samples_assigned, stages.uplinks], [7289.55, 706.25], atol=6e-3
    )
    free = plan(eight("scale"), BOUND, **MENU, target=TARGET)

    def price(one):
        return one.time + 0.02 * one.samples_assigned + 0.05 * one.uplinks

    assert stages.time >= free.time
    assert price(stages) <= price(free)


@pytest.mark.slow
def test_two_knobs_under_the_additive_law():
    stages = plan(eight("additive"), BOUND, **MENU, target=TARGET)
    expected = [(1, 1), (2, 1), (1, 4), (2, 4), (4, 4), (6, 4), (4, 8), (6, 8), (8, 8)]
    assert pairs(stages) == expected  # k falls at two switches
    assert stages.time == pytest.approx(379.83156, abs=6e-6)
    assert stages.samples_assigned == pytest.approx(7060.53, abs=6e-3)

    def is_full(k, load):
        assert type(k) is int
        assert type(load) is float
        return load == 8.0

    alone = plan(eight("additive"), BOUND, **MENU, target=TARGET, admit=is_full)
    np.testing.assert_allclose(
        [alone.time, alone.samples_assigned], [446.63905, 10592.31], rtol=1e-5
    )


def test_the_plan_of_k_alone():
    bound = ErrorBound(0.001, 2.0, 1.0, 10.0, 100.0)
    times = response(compute=clocks.exponential(0.02), n_workers=5)
    stages = plan(times, bound, load=10.0, target=0.00021)
    assert stages.k.tolist() == [1, 2, 3, 4, 5]
    switches = [496.9196222964, 621.6237211486, 793.6535740604, 1102.5187248964]
    np.testing.assert_allclose(stages.start_time[1:], switches, rtol=1e-10)
    errors = [0.0014, 0.000725, 0.000463888889, 0.000314166667]
    np.testing.assert_allclose(stages.start_error[1:], errors, rtol=1e-8)


POINT = st.tuples(st.integers(1, 40), st.integers(1, 40))


@settings(max_examples=60, deadline=None)
@given(st.lists(POINT, min_size=1, max_size=12))
def test_the_hull_is_what_comparing_all_options_gives(points):
    price, floor = (np.array(column, float) for column in zip(*points, strict=True))
    used = [option for option, _ in oracle.stages(price, floor, 1e6, floor.min() + 1e-9)]
    vertices = hull(price, floor)
    np.testing.assert_array_equal(price[vertices], price[used])
    np.testing.assert_array_equal(floor[vertices], floor[used])


@pytest.mark.parametrize("scaling", ["scale", "additive"])
def test_hull_greedy_and_quadrature_agree(scaling):
    times = eight(scaling)
    price, floor = options(times)
    stages = plan(times, BOUND, **MENU, target=TARGET)
    names = [(k, b) for k in MENU["k"] for b in MENU["load"]]
    greedy = oracle.stages(price, floor, 10.0, TARGET)
    assert [names[option] for option, _ in greedy] == pairs(stages)
    np.testing.assert_allclose([error for _, error in greedy], stages.start_error, rtol=1e-12)
    cost = oracle.greedy_cost(price, floor, BOUND.decay, 10.0, TARGET)
    assert stages.time == pytest.approx(cost, rel=1e-6)


def test_whole_updates_follow_the_plan():
    stages = plan(eight("scale"), BOUND, **MENU, target=TARGET)
    n_updates = math.ceil(stages.n_updates)
    errors = oracle.run_bound(stages.k, stages.load, stages.updates, n_updates, vars(BOUND))
    assert errors[-1] == pytest.approx(TARGET, rel=0.02)


def test_a_target_out_of_reach_is_said_so():
    for target in (0.02, 0.025):  # the least floor is 0.025
        with pytest.warns(
            UserWarning, match=rf"least floor .* is 0\.025, .* got {target}: the plan"
        ):
            stages = plan(eight("scale"), BOUND, **MENU, target=target)
        assert not stages.reachable
        assert stages.time == stages.n_updates == stages.uplinks == math.inf
        assert stages.k.tolist()[-1] == 8
        assert stages.end_error[-1] == stages.floor[-1] == pytest.approx(0.025)
        assert stages.updates[-1] == stages.end_time[-1] == math.inf
        assert np.isfinite(stages.start_time).all()
        assert np.isfinite(stages.updates[:-1]).all()
    assert "target 0.025 cannot be reached, the least floor is 0.025" in plan_text(stages)
    near = plan(eight("scale"), BOUND, **MENU, target=0.025 * (1 + 1e-12))
    assert near.reachable
    assert math.isfinite(near.time)


def test_an_error_already_there_needs_no_stage():
    stages = plan(eight("scale"), BOUND, **MENU, target=10.0)
    assert stages.reachable
    assert stages.k.size == 0
    assert stages.time == stages.n_updates == stages.samples_used == 0.0
    low = ErrorBound(0.1, 2.0, 0.5, 8.0, 0.02)  # below every floor, above the target
    with pytest.warns(UserWarning, match="target should be above .* above the initial error"):
        stages = plan(eight("scale"), low, **MENU, target=0.01)
    assert not stages.reachable
    assert stages.k.size == 0
    assert stages.time == math.inf
    assert "no stages" in plan_text(stages)


def test_another_floor_moves_the_switches():
    times = response(compute=clocks.constant([1.0, 2.0, 4.0]), n_workers=3)
    tight = ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0, quadratic_floor(3, 2))
    here = plan(times, tight, load=2.0, target=1e-6)
    assert here.k.tolist() == [1, 2, 3]
    assert here.floor[-1] == 0.0
    assert here.reachable
    with pytest.warns(UserWarning, match="target should be above the least floor"):
        assert not plan(times, BOUND, load=2.0, target=1e-6).reachable


@pytest.mark.filterwarnings("ignore:target should be above")  # some are out of reach
def test_reports_and_comparisons():
    stages = plan(eight("scale"), BOUND, **MENU, target=TARGET)
    text = plan_text(stages)
    assert len(text.splitlines()) == 1 + 7 + 2
    assert "target 0.03125 reached at time 393.1 after 202.4 updates" in text
    plans = compared(eight("scale"), BOUND, k=[4, 8], load=[4, 8], target=0.03)
    assert plans["k and load"].time <= plans["k alone"].time <= plans["best fixed"].time
    best = min(
        plan(eight("scale"), BOUND, k=k, load=b, target=0.03).time for k in (4, 8) for b in (4, 8)
    )
    assert plans["best fixed"].time == pytest.approx(best, rel=1e-12)
    lines = comparison(plans).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["plan", *plans]


def test_gradient_coding_and_the_synchronous_method_are_compared():
    times = response(
        compute=clocks.shifted_exponential(0.01, 1.0),
        communicate=clocks.exponential(0.2),
        scaling="shift",
        n_workers=8,
    )
    plans = compared(times, BOUND, load=[4, 8], target=0.03)
    coded, plain = plans["gradient coding"], plans["synchronous"]
    table = completion_table(times, 8.0 * np.arange(1, 9))
    each = [table[s, 7 - s] for s in range(8)]
    best = int(np.argmin(each))
    assert 0 < best < 8
    assert pairs(coded) == [(8 - best, 8 * (best + 1))]
    assert coded.floor[0] == plain.floor[0] == pytest.approx(1.6 / 64)
    updates = math.log((10 - 0.025) / (0.03 - 0.025)) / BOUND.decay
    assert coded.n_updates == plain.n_updates == pytest.approx(updates)
    assert coded.time == pytest.approx(updates * min(each))
    assert plain.time == pytest.approx(updates * each[0])
    assert coded.samples_assigned == pytest.approx(updates * 8 * 8 * (best + 1))
    assert coded.uplinks == pytest.approx(updates * (8 - best))
    assert pairs(plain) == [(8, 8)]
    text = comparison(compared(times, BOUND, load=[4, 8], target=0.025))
    assert text.count("cannot be reached by") == 5
    assert "by gradient coding, the least floor is 0.025" in text


@pytest.mark.filterwarnings("ignore:target should be above")  # some are out of reach
def test_times_inside_a_compiled_function_can_still_be_planned():
    times = eight("scale")
    compiled = jax.jit(lambda load: times.durations(jax.random.key(0), 3, load=load))
    assert compiled(3.0).dtype == np.float32  # and remembers that, while it lives
    for loads in ([1, 4, 8], [1, 4]):
        found, expected = (
            plan(workers, BOUND, k=[1, 8], load=loads, target=0.05)
            for workers in (times, eight("scale"))
        )
        np.testing.assert_array_equal(found.completion, expected.completion)


def test_no_cap_and_loose_caps_give_the_plan():
    free = plan(eight("scale"), BOUND, **TO_TARGET)
    for caps in ({}, {"samples_assigned": 9894.0}, {"samples_assigned": 1e6, "uplinks": 605.0}):
        stages = plan_within(eight("scale"), BOUND, **TO_TARGET, **caps)
        np.testing.assert_array_equal(stages.k, free.k)
        np.testing.assert_array_equal(stages.updates, free.updates)


def test_no_priced_plan_within_the_cap_is_faster():
    cap = 8000.0  # here the costs of priced plans jump
    stages = plan_within(eight("scale"), BOUND, **TO_TARGET, samples_assigned=cap)
    grid = [plan(eight("scale"), BOUND, **TO_TARGET, compute_price=p) for p in PRICES]
    fastest = min(one.time for one in grid if one.samples_assigned <= cap)
    # weak duality: nothing within the cap can be faster than this
    dual = max(
        one.time + p * (one.samples_assigned - cap) for p, one in zip(PRICES, grid, strict=True)
    )
    assert dual * (1 - 1e-12) <= stages.time <= fastest
    assert stages.time == pytest.approx(dual, rel=1e-4)
    assert stages.samples_assigned == pytest.approx(cap, rel=1e-8)


def test_two_caps_at_once():
    stages = plan_within(eight("scale"), BOUND, **TO_TARGET, samples_assigned=8000.0, uplinks=640.0)
    assert stages.samples_assigned <= 8000.0 * (1 + 2e-12)
    assert stages.uplinks <= 640.0 * (1 + 2e-12)
    prices = np.append(0.0, np.geomspace(1e-3, 0.3, 11))
    grid = [
        (p, q, plan(eight("scale"), BOUND, **TO_TARGET, compute_price=p, upload_price=q))
        for p in prices
        for q in prices
    ]
    dual = max(
        one.time + p * (one.samples_assigned - 8000) + q * (one.uplinks - 640) for p, q, one in grid
    )
    within = [one.time for _, _, one in grid if one.samples_assigned <= 8000 and one.uplinks <= 640]
    assert dual * (1 - 1e-9) <= stages.time <= min(within, default=np.inf)
    assert stages.time <= dual * 1.01


def test_the_least_costs_can_be_had_and_no_less():
    with pytest.raises(ValueError, match=r"uplinks must be at least 571.277 to reach the target"):
        plan_within(eight("scale"), BOUND, **TO_TARGET, uplinks=560.0)
    stages = plan_within(eight("scale"), BOUND, **TO_TARGET, uplinks=571.278)
    assert stages.uplinks == pytest.approx(571.278, rel=1e-11)
    with pytest.raises(ValueError, match=r"622.857 .* with at most 8000 samples_assigned, got 600"):
        plan_within(eight("scale"), BOUND, **TO_TARGET, samples_assigned=8000.0, uplinks=600.0)


def test_a_target_out_of_reach_is_no_error():
    with pytest.warns(UserWarning, match="target should be above the least floor"):
        stages = plan_within(eight("scale"), BOUND, **MENU, target=0.02, samples_assigned=10.0)
    assert not stages.reachable
    there = plan_within(eight("scale"), BOUND, **MENU, target=11.0, samples_assigned=10.0)
    assert there.time == 0.0
