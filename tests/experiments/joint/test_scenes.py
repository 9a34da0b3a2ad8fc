"""Bias removal and learned orders together: scenes, curves, tuning, verdicts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from asyncjax.study.statistics import FAILS, HOLDS, OPEN
from experiments.common import numbers
from experiments.joint import judging, scenes, scenes_runs
from experiments.joint.arms import ARMS, JOINT, PURE, RESCALED, SINGLE, SYNCHRONOUS
from experiments.joint.pages import pages
from experiments.joint.scenes_report import arms_of, goals_of
from experiments.joint.scenes_runs import END, SCENES, Settings, scenes_of
from experiments.joint.training import Curves
from experiments.joint.worlds import Scene, clock_of, dealt, speeds_of, world_of

ONE = Seeds(0, TUNING, 0)
SMALL = Scene("small", "", horizon=600.0, levels=(0.99,))
FEW = (SYNCHRONOUS[-1], *PURE[1:], *RESCALED[1:])


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
    problem = world.made(problems.whole())
    shares = speeds_of(SMALL, ONE) / 8

    def descended(weights):
        start = jnp.asarray(problem.params, float)

        def slope(x):
            own = jax.vmap(lambda w: problem.gradient(x, w, 0, jax.random.key(0))[1])
            return weights @ own(np.arange(8))

        return jax.lax.fori_loop(0, 4000, lambda _, x: x - 0.5 * slope(x), start)

    best, heard = descended(np.full(8, 1 / 8)), descended(shares)
    assert float(problem.objective(problem.params)) == pytest.approx(world.start, abs=1e-6)
    assert float(problem.objective(best)) == pytest.approx(world.least, abs=1e-6)
    assert float(problem.objective(heard)) - world.least == pytest.approx(world.hearing, abs=1e-6)
    assert world.hearing > 0.03 * (world.start - world.least)  # no arm on every arrival gets closer


def test_instances_differ_and_come_again():
    made = [world_of(SMALL, Seeds(0, role, 0)) for role in (TUNING, SET_A, SET_B, TUNING)]
    assert made[0].least == made[3].least
    assert len({own.least for own in made}) == 3
    assert len({float(np.asarray(own.clock.mean)[0]) for own in made}) == 3


def test_curves_reach_where_some_records_do_and_score_what_they_miss():
    gap = np.full((2, 20), 1.0)
    gap[0, 8] = 0.0  # one that dips
    gap[0, 12:] = 0.02
    curves = Curves(np.arange(1.0, 21.0), gap)
    assert curves.reached(0.95).tolist() == [17.0, np.inf]
    np.testing.assert_allclose(curves.last, [0.02, 1.0])
    found = curves.scores(0.95, 40.0)
    np.testing.assert_allclose(found, [np.log(17 / 40), np.log(1.0 / 0.05)])
    np.testing.assert_allclose(curves.scores(None, 40.0), np.log([0.02, 1.0]))


def made_up(order_gain):
    """A scene in which order takes `order_gain` off log T, only where the bias is gone."""
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 0.02, 10)

    def times(arm):
        log = 6.0 if arm in PURE else 4.0
        log -= order_gain * (arm == JOINT)
        return np.exp(log + luck + rng.normal(0, 0.02, 10)).tolist()

    arms = {}
    for arm in ARMS:
        drawn = {role: times(arm) for role in (SET_A, SET_B)}
        own = {role: {"times": {"0.9": t}, END: t} for role, t in drawn.items()}
        arms[arm.name] = {"sets": own}
    scene = {"name": "made up", "horizon": 1e4, "levels": [0.9]}
    return {"asked": {"scene": scene, "arms": list(arms)}, "arms": arms}


@pytest.mark.parametrize(("gain", "word"), [(0.5, HOLDS), (-0.5, FAILS), (0.0, OPEN)])
def test_verdicts_flip_with_the_numbers(gain, word):
    found = judging.verdicts(made_up(gain), SET_A, "reshuffled")
    assert found[f"made up, 0.9: {judging.MORE}"] == word
    faster = found[f"made up, 0.9: {judging.FASTER}"]
    assert (faster == HOLDS) == (gain > 0)
    effects = judging.effects(made_up(gain), SET_A, "0.9", "reshuffled")
    assert effects["interaction"].mean == pytest.approx(-gain, abs=0.04)
    assert effects["bias removed alone"].mean == pytest.approx(-2, abs=0.04)


def test_times_that_never_came_count_as_the_horizon():
    kept = made_up(0.5)
    for arm in PURE:
        kept["arms"][arm.name]["sets"][SET_A]["times"]["0.9"] = [np.inf] * 10
    logs = judging.logs_of(kept, PURE[0].name, SET_A, "0.9")
    assert logs.tolist() == [np.log(1e4)] * 10
    assert judging.best_single(kept, SET_A, "0.9") not in {arm.name for arm in PURE}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    settings = Settings(
        output=tmp_path_factory.mktemp("joint"),
        tuning=2,
        instances=10,
        trials=5,
        rounds=(2, 3),
        records=200,
    )
    return settings, scenes_runs.measured(settings, SMALL, FEW)


@pytest.mark.slow
@pytest.mark.optimised
def test_both_together_gain_more_on_a_small_scene_in_both_sets(measured):
    _, kept = measured
    for role in (SET_A, SET_B):
        found = judging.verdicts(kept, role, "reshuffled")
        assert found[f"small, 0.99: {judging.FASTER}"] == HOLDS
        assert found[f"small, 0.99: {judging.MORE}"] == HOLDS
        biased = kept["arms"][PURE[1].name]["sets"][role]["times"]["0.99"]
        assert np.mean(np.isinf(biased)) > 0.8  # who steps on every arrival does not get there
    assert {own["trials"] for own in kept["tuned"].values()} in ({10}, {15})


@pytest.mark.slow
@pytest.mark.optimised
def test_a_scene_that_was_measured_is_read(measured, monkeypatch):
    settings, kept = measured
    monkeypatch.setattr(scenes_runs, "_measured", lambda *_: pytest.fail("measured again"))
    assert scenes_runs.measured(settings, SMALL, FEW)["arms"] == kept["arms"]
    with pytest.raises(pytest.fail.Exception):
        scenes_runs.measured(replace(settings, seed=1), SMALL, FEW)


def test_wrong_settings_are_named(tmp_path):
    settings = Settings(output=tmp_path)
    with pytest.raises(ValueError, match="scenes must be among two generations, preemption"):
        scenes.run(replace(settings, scenes=("none",)))
    with pytest.raises(ValueError, match="instances must be at least 2, got 1"):
        scenes.run(replace(settings, instances=1))
    assert [own.horizon for own in scenes_of(replace(settings, quick=True))] == [
        own.horizon / 2 for own in SCENES
    ]


def test_the_committed_numbers_are_of_all_arms_and_their_verdicts_follow():
    found = numbers.load("joint")["scenes"]
    assert set(found) == {scene.name for scene in SCENES}
    for own in found.values():
        assert arms_of(own) == tuple(arm.name for arm in ARMS)
        assert {arm.name for arm in SINGLE} < set(own["arms"])
        for role in (SET_A, SET_B):
            assert judging.verdicts(own, role, "reshuffled") == own["verdicts"][role]
            for arm in own["arms"].values():
                assert all(len(times) >= 10 for times in arm["sets"][role]["times"].values())
        assert len({one["trials"] for one in own["tuned"].values()}) == 1
        assert len(own["tuned"]) == len(ARMS) * len(goals_of(own))


def test_the_tables_of_the_page_are_made_from_the_committed_numbers():
    page = (numbers.FOLDER.parent / "README.md").read_text()
    for name, lines in pages(numbers.load("joint")).items():
        text = "\n".join(lines)
        assert " ".join(text.split()) in " ".join(page.split()), name
