"""Bias removal and learned orders together: scenes, curves, verdicts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from asyncjax.results.statistics import HOLDS
from asyncjax.study.protocol import SET_A, SET_B, TUNING, TUNING_OF, Seeds
from asyncjax.study.result import Result
from experiments.joint import scenes, training
from experiments.joint.scenes import FASTER, MORE, Settings
from experiments.joint.training import BIASED, END, UNBIASED, Curve
from experiments.joint.worlds import Scene, clock_of, dealt, speeds_of, world_of

ONE = Seeds(0, TUNING, 0)
SMALL = Scene("small", horizon=600.0, levels=(0.99,))
FEW = (*BIASED[1:], *UNBIASED[1:])  # nobody waits: in rounds CD-GraB is as fast


def test_rows_are_dealt_by_label_as_far_as_they_are_skewed():
    labels = np.arange(400) % 2
    shares = []
    for skew in (0.0, 0.5, 1.0):
        order = dealt(labels, skew, np.random.default_rng(3))
        assert sorted(order) == list(range(400))
        shares.append(labels[order][200:].mean())
    assert shares[0] == pytest.approx(0.5, abs=0.06)
    assert shares[1] == pytest.approx(0.75, abs=0.06)
    assert shares[2] == 1.0


def test_a_crew_makes_n_gradients_a_unit_of_time_and_its_old_half_is_slow():
    speeds = speeds_of(SMALL, ONE)
    assert speeds.sum() == pytest.approx(8)
    assert (speeds[:4] > 3 * speeds[4:]).all()
    away = replace(SMALL, up=40.0, down=20.0)
    np.testing.assert_allclose(speeds_of(away, ONE)[4:], speeds[4:] * 2 / 3)
    assert clock_of(away, ONE).powers
    assert not clock_of(SMALL, ONE).powers


def test_the_ends_of_the_way_are_the_minimum_and_what_arrivals_lead_to(float64):
    world = world_of(SMALL, ONE)
    problem = world.make(problems.whole())
    shares = speeds_of(SMALL, ONE) / 8

    def descended(weights):
        start = jnp.asarray(problem.params, float)

        def slope(x):
            gradients = jax.vmap(lambda w: problem.gradient(x, w, 0, jax.random.key(0))[1])
            return weights @ gradients(np.arange(8))

        return jax.lax.fori_loop(0, 4000, lambda _, x: x - 0.5 * slope(x), start)

    best, heard = descended(np.full(8, 1 / 8)), descended(shares)
    assert float(problem.objective(problem.params)) == pytest.approx(world.start, abs=1e-6)
    assert float(problem.objective(best)) == pytest.approx(world.least, abs=1e-6)
    assert float(problem.objective(heard)) - world.least == pytest.approx(world.hearing, abs=1e-6)
    assert world.hearing > 0.03 * (world.start - world.least)  # no arm on every arrival gets closer


def test_instances_differ_and_come_again():
    first, *others, again = (Seeds(0, role, 0) for role in (TUNING, SET_A, SET_B, TUNING))
    least = [world_of(SMALL, seeds).least for seeds in (first, *others, again)]
    assert least[0] == least[3]
    assert len({*least}) == len({clock_of(SMALL, seeds).mean[0] for seeds in (first, *others)}) == 3


def test_curves_reach_from_when_they_stay_and_score_what_they_miss():
    gap = np.ones(20)
    gap[8], gap[12:] = 0.0, 0.02  # the first is left again
    came, never = (Curve(np.arange(1.0, 21.0), row) for row in (gap, np.ones(20)))
    assert (came.reached("0.95"), never.reached("0.95")) == (13.0, np.inf)
    scores = [(curve.score("0.95", 40.0), curve.score(END, 40.0)) for curve in (came, never)]
    np.testing.assert_allclose(scores[0], np.log([13 / 40, 0.02]))
    np.testing.assert_allclose(scores[1], np.log([1.0 / 0.05, 1.0]))


def test_each_set_is_tuned_on_instances_of_its_own():
    settings = Settings(tuning_instances=2, instances=3, trials=6, rounds=(1, 1))
    best = {TUNING_OF[SET_A]: 2.0**-5, TUNING_OF[SET_B]: 2.0**-3}  # of a grid of six

    class Runs:
        horizon = 10.0

        def curves(self, arm, number, tried):
            aim = best.get(settings.drawn[number].role, 1.0)
            far = [np.exp(abs(np.log(trial["step"] / aim))) for trial in tried]
            return [Curve(np.arange(1.0, 11.0), np.full(10, 0.01 * distance)) for distance in far]

    rows = training.measured(settings, "made up", Runs(), [END], {BIASED[0]: 7}, lambda *_: {})
    steps = rows.drop_duplicates(["set", "step"]).set_index("set")["step"]
    assert [*steps.items()] == [("A", 2.0**-5), ("B", 2.0**-3)]
    assert rows["tuning_gradients"].unique() == [7 * 2 * 6]
    assert rows["value"].tolist() == pytest.approx([0.32] * 3 + [0.08] * 3)


@pytest.mark.slow
@pytest.mark.optimised
def test_both_together_gain_more_on_a_small_scene_in_both_sets():
    settings = Settings(tuning_instances=2, instances=10, trials=5, rounds=(2, 3), records=200)
    result = Result(scenes.rows_of(settings, SMALL, FEW), "value", cut=("value",))
    found = result.verdicts(scenes.claims(result))
    for text in (FASTER, MORE):
        assert found[f"small, 0.99: {text}"] == dict.fromkeys("AB", HOLDS)
    times = result.select(method=BIASED[1].name, tuned_for="0.99")["value"]
    assert np.mean(np.isinf(times)) > 0.8  # who steps on every arrival does not get there
    assert {*result.rows["trials"]} in ({10}, {15})
