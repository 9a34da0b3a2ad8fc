"""Plans from wrong constants, on a tiny size: which wrong constant hurts, and what mends it."""

import math

import numpy as np
import pytest

from asyncjax import stragglers
from experiments import part
from experiments.stragglers import constants
from experiments.stragglers.bounds import BOUND as TRUE
from experiments.stragglers.constants import BOUND, CLOCK, CONVEXITY, RIGHT, SGD, UPDATES
from experiments.stragglers.methods import always, lasting

pytestmark = pytest.mark.slow  # one run serves most tests of this file


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    sizes = {"n_workers": 10, "shard": 16, "dim": 8, "loads": (1, 2, 4, 8, 16), "samples": 96.0}
    sizes |= {"sweep": 2, "lengths": (1400,), "seeds": 2, "least_samples": 2, "pilots": (60, 120)}
    return constants.Settings(
        tmp_path_factory.mktemp("straggler_constants"),
        **{"noise": 1.0, "signal": 5.0, "wrong_convexity": (4.0,), "wrong_variance": (0.005,)},
        **{"run_patiences": (1.0, math.inf), "pairs": ((4, 16), (8, 16), (10, 2))},
        **sizes,
    )


@pytest.fixture(scope="module")
def result(settings):
    return constants.study_of(settings)


@pytest.fixture(scope="module")
def ratios(result):
    """Times over those with the right constants, by scene, plan and switch."""
    rows = result.rows.assign(plan=result.rows.apply(constants.plan_name, axis=1))
    return rows.set_index(["scene", "plan", "method"])["ratio"].sort_index()


@pytest.fixture(scope="module")
def truth(settings):
    return constants.truth_of(settings)


def test_the_right_constants_are_never_beaten_and_convexity_matters_most(ratios):
    assert (ratios[BOUND] >= 1 - 1e-9).all()
    np.testing.assert_allclose(ratios[BOUND][f"{RIGHT} x 1"], 1, rtol=1e-9)
    costs = ratios[BOUND].xs(UPDATES, level="method")
    for other in ("noise variance", "smoothness", "initial error", "mean of communication"):
        for factor in ("0.25", "4"):
            assert costs[f"{CONVEXITY} x {factor}"] > 1.2 * costs[f"{other} x {factor}"]


def test_a_variance_too_small_needs_a_stall_exit(ratios):
    for plan in ("noise variance x 0.25", f"{CONVEXITY} x 4"):
        costs = ratios[BOUND][plan]
        assert np.isinf(costs[["by error, patience inf", "stops at its target"]]).all()
        assert costs["by error, patience 4"] < 6
    assert 1.05 < ratios[BOUND, "noise variance x 4", "by error, patience inf"] < 6


def test_a_clock_needs_the_true_times(ratios):
    for plan in ("mean of communication x 0.1", "mean of computation x 10"):
        costs = ratios[BOUND][plan]
        assert costs["by updates"] < 1.1 < costs["by the clock"]
        np.testing.assert_allclose(costs["by error, patience inf"], costs["by updates"], rtol=0.05)


def test_the_rows_on_the_bound_are_those_that_are_committed():
    old = part.committed("straggler_constants").rows["ratio"].to_numpy()
    new = [row["ratio"] for row in constants.on_bound(constants.Settings())]
    np.testing.assert_allclose(new, old[: len(new)], rtol=6e-4)


@pytest.mark.parametrize("switch", [UPDATES, CLOCK, 1.7])
def test_walks_agree_with_small_steps(settings, truth, switch):
    """The same walk by many small steps, from the definition."""
    plan = constants.believed(settings, CONVEXITY, 3.0)
    step, error, time, stage, done, spent = 1e-2, 1000.0, 0.0, 0, 0.0, 0.0
    while error > truth.target:
        ended = {
            UPDATES: done >= plan.updates[stage],
            CLOCK: spent >= plan.end_time[stage] - plan.start_time[stage],
            1.7: error <= plan.end_error[stage] or done >= 1.7 * plan.updates[stage],
        }[switch]
        if ended and stage < plan.k.size - 1:
            stage, done, spent = stage + 1, 0.0, 0.0
            continue
        k, load = int(plan.k[stage]), plan.load[stage]
        floor = 0.01 * 2.0 * 400.0 / (2 * 1.0 * k * load)
        error = floor + (error - floor) * 0.99**step
        lasts = step * truth.completion[load][k - 1]
        done, spent, time = done + step, spent + lasts, time + lasts
    np.testing.assert_allclose(constants.walk(truth, plan, switch), time, rtol=5e-3)


def test_stationary_errors_lie_at_the_close_floor(result):
    rows = result.select(scene=constants.PAIRS)
    assert rows["over_quadratic"].between(0.7, 1.3).all()
    assert (rows["over_bound"] < 0.6).all()


def test_without_a_stall_exit_sgd_waits_for_ever_too(ratios):
    small = ratios[SGD, "noise variance x 0.005"]
    assert np.isinf(small["by error, patience inf"])
    assert np.isfinite(small["by error, patience 1"])
    assert ratios[SGD, f"{CONVEXITY} x 4", "by updates"] > 1.2
    assert ratios[SGD, "pilot of 60, loss of all rows", "by updates"] < 1.1


def test_the_fit_of_an_exact_decay():
    gap = 5.0 * 0.97 ** np.arange(1, 41)
    decay, error = constants.fitted_decay(np.where(np.arange(40) == 7, -1.0, gap))
    np.testing.assert_allclose((decay, error), (-math.log(0.97), gap[-1]), rtol=1e-9)
    with pytest.raises(ValueError, match=r"pilots must be long enough .*, got 40"):
        constants.fitted_decay(gap[::-1])


def test_a_pilot_stage_comes_before_the_plan(settings, truth):
    bench = constants.bench_of(settings)
    plan = stragglers.plan(truth.times, TRUE, load=settings.loads, target=0.0)
    longer = constants.after((1, 2.0, 30), plan)
    np.testing.assert_array_equal(longer.k, [1, *plan.k])
    np.testing.assert_array_equal(longer.updates, [30, *plan.updates])
    policies = [lasting(longer, settings.shard), always(1, 2, settings.shard)]
    runs = [bench.run([policy], settings.lengths[0])["loss"] for policy in policies]
    np.testing.assert_array_equal(runs[0][:, :30], runs[1][:, :30])
    assert (runs[0][:, -1] != runs[1][:, -1]).all()


def test_room_for_more_stages_changes_no_decision(settings, truth):
    plan = constants.believed(settings, "noise variance", 0.5, target=truth.target)
    seen = stragglers.nothing_seen(settings.n_workers)
    policies = stragglers.timed(plan), lasting(plan, settings.shard, stragglers.timed)
    for share in (0.0, 0.6, 1.5):
        now = seen._replace(time=np.float32(share * plan.time))
        choices = [policy.decide(policy.init(), now)[1] for policy in policies]
        assert int(choices[0].k) == int(choices[1].k)
        assert float(choices[0].load) == float(choices[1].load)
