"""Placed jobs: sites, rounds on a schedule, verdicts on every part."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from asyncjax import cluster, traces
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART, OPEN
from experiments.common import numbers
from experiments.joint.placed import judging as placed_judging
from experiments.joint.placed import part as placed
from experiments.joint.placed import report as placed_report
from experiments.joint.placed import runs as placed_runs
from experiments.joint.placed.arms import COMPUTING, FULL, PLACES, PLAIN, ROUNDS, SHARDS
from experiments.joint.placed.judging import BEATS_ALL, BEATS_PLAIN, claim, verdicts
from experiments.joint.placed.pages import tables
from experiments.joint.placed.rounds import alike, rounds_of
from experiments.joint.placed.runs import Settings, world_at
from experiments.joint.placed.sites import (
    DRF,
    Place,
    crew_shuffled,
    served,
    sites_of,
    workload_of,
)
from experiments.joint.placed.training import Training
from experiments.joint.scenes_runs import END

ONE = Seeds(0, TUNING, 0)
SMALL = Place("small", "", exchange=0.2, gradients=1500)


@pytest.fixture(scope="module")
def site():
    return sites_of(SMALL, ONE, {DRF: cluster.drf})[DRF]


def test_the_power_of_all_shards_is_the_crew_and_all_are_served_in_turn(site):
    np.testing.assert_allclose(site.power.sum(0), site.crews)
    turns = (served(np.full(6, 2)) > 0).sum(1)
    assert turns.tolist() == [3, 3, 3, 3]
    assert site.present.any(1).all()


def test_machines_are_of_two_generations_and_a_fifth_of_the_time_is_exchange(site):
    jobs, machines, is_old = workload_of(SMALL, ONE)
    assert is_old.sum() == len(machines.capacity) / 2
    exchange = 1 - jobs.compute / cluster.sample_times(jobs).across
    np.testing.assert_allclose(exchange, 0.2)
    assert site.compute[-1] == pytest.approx(4 * site.compute[0])
    assert np.mean(1 / site.compute) * site.compute[0] == pytest.approx(0.625)


@pytest.mark.slow
def test_the_clock_of_a_site_makes_about_as_many_gradients_as_is_expected(site):
    trace = traces.asynchronous(site.clock, n_updates=1500, key=jax.random.key(0))
    within = np.asarray(trace.time) <= site.budget
    assert within.sum() == pytest.approx(site.expected(1), rel=0.1)
    slots = np.asarray(trace.start)[within].astype(int)
    away = ~site.present[np.asarray(trace.worker)[within], slots]
    assert away.mean() < 0.2  # only jobs that were begun before their shard was left alone


def test_rounds_wait_for_k_or_for_all_that_are_served(site):
    found = rounds_of(site, 4, 1, 3)
    spans = found.response[np.arange(len(found.k)), found.k - 1]
    begins = np.concatenate([[0.0], np.cumsum(spans)])
    present = site.present[:, begins[:-1].astype(int)].sum(0)
    np.testing.assert_array_equal(found.k, np.minimum(4, present))
    assert begins[-2] < site.budget <= begins[-1]
    heavy = rounds_of(site, 4, 8, 3)
    assert len(heavy.k) < 0.4 * len(found.k)
    made = alike([found, heavy])
    assert {(own.n_updates, len(own.time)) for own in made} == {
        (made[0].n_updates, len(made[0].time))
    }
    np.testing.assert_allclose(made[0].time[: found.k[0]], found.response[0, : found.k[0]])


@pytest.mark.slow
def test_shuffled_dispatch_asks_whom_the_slot_serves(site):
    rule = crew_shuffled(site, 0, 4000)
    trace = traces.asynchronous(site.clock, n_updates=800, dispatch=rule, key=jax.random.key(0))
    later = np.asarray(trace.start) > 0
    slots = np.minimum(np.asarray(trace.start)[later].astype(int), site.present.shape[1] - 1)
    asked = site.present[np.asarray(trace.worker)[later], slots]
    assert asked.mean() > 0.9


def made_up(shift):
    """A place in which the full set is `shift` (a log) from every other arm."""
    rng = np.random.default_rng(0)
    luck, arms = rng.normal(0, 0.1, 10), {}
    for place, arm in enumerate(COMPUTING):
        wave = 0.01 * place * (-1.0) ** np.arange(10)
        log = 1.0 + luck + wave + shift.get(arm.name, 0.0)
        own = {"times": {"0.9": np.exp(log).tolist()}, END: np.exp(log).tolist()}
        arms[arm.name] = {"sets": {SET_A: own, SET_B: own}}
    scene = {"name": "made up", "horizon": 12.0, "levels": [0.9]}
    return {"asked": {"scene": scene, "arms": list(arms)}, "arms": arms}


def test_verdicts_on_the_whole_and_on_each_part_flip_with_the_numbers():
    better = verdicts(made_up({FULL.name: -0.5}), SET_A)
    assert set(better.values()) == {HOLDS}
    worse = verdicts(made_up({FULL.name: 0.5}), SET_A)
    assert set(worse.values()) == {FAILS}
    one = verdicts(made_up({FULL.name: -0.5, "rows: reshuffled": -1.0}), SET_A)
    assert one[f"0.9: {BEATS_PLAIN}"] == HOLDS
    assert one[f"0.9: {BEATS_ALL}"] == one[f"0.9: {claim('rows')}"] == IN_PART
    same = verdicts(made_up({PLAIN.name: 0.5}), SET_A)
    assert same[f"0.9: {BEATS_PLAIN}"] == HOLDS
    assert same[f"0.9: {claim('dispatch')}"] == OPEN


@pytest.mark.parametrize(("factor", "word"), [(2.0, HOLDS), (0.5, FAILS), (1.0, OPEN)])
def test_who_earns_more_flips_with_utilities(factor, word):
    other = np.array([1.1, 0.9] * 5)
    made = {"PD-ORS": factor * np.ones(10), DRF: other}
    kept = {"schedulers": {name: {SET_A: {"utility": own}} for name, own in made.items()}}
    assert placed_judging.earned(kept, SET_A) == {DRF: word}


def test_times_that_never_came_count_as_the_horizon():
    kept = made_up({})
    kept["arms"][PLAIN.name]["sets"][SET_A]["times"]["0.9"] = [np.inf] * 10
    assert placed_report.mean_time(kept, PLAIN.name, SET_A, "0.9") == "never"
    assert verdicts(kept, SET_A)[f"0.9: {BEATS_PLAIN}"] == HOLDS


@pytest.mark.slow
@pytest.mark.optimised
def test_bias_removal_beats_a_constant_step_on_a_small_placed_job(site):
    drawn = [Seeds(0, SET_A, number) for number in range(6)]
    worlds = [world_at(SMALL, instance) for instance in drawn]
    sites = [sites_of(SMALL, instance, {DRF: cluster.drf}) for instance in drawn]
    arms = {arm.name: replace(arm, scheduler=DRF) for arm in COMPUTING}
    training = Training(list(arms.values()), worlds, sites, 200, 5)
    steps = [2.0**-power for power in range(3, 8)]

    def lowest(name):
        setting = (SHARDS if arms[name].asked == ROUNDS else 1, 1)
        run = partial(training.curves, arms[name], setting, step_sizes=steps)
        return np.array([run(number=at).last.min() for at in range(len(worlds))])

    full = lowest(FULL.name)
    found = placed_judging.paired(np.log(full), np.log(lowest("steps: constant")))
    assert found.high < 0
    assert np.exp(np.log(full).mean()) < 0.1


def test_wrong_settings_are_named(tmp_path):
    settings = Settings(output=tmp_path)
    with pytest.raises(ValueError, match="trials must be at least 3, got 2"):
        placed.run(replace(settings, trials=2))


def test_a_place_that_was_measured_is_read(tmp_path, monkeypatch):
    place, kept = next(iter(PLACES)), {"arms": {}}
    monkeypatch.setattr(placed_runs, "_measured", lambda *_: kept)
    settings = Settings(output=tmp_path)
    placed_runs.measured(settings, place, ())
    monkeypatch.setattr(placed_runs, "_measured", lambda *_: pytest.fail("measured again"))
    placed_runs.measured(settings, place, ())
    with pytest.raises(pytest.fail.Exception):
        placed_runs.measured(replace(settings, seed=1), place, ())


def test_the_committed_verdicts_follow_from_the_committed_numbers():
    found = numbers.load("joint_placed")["places"]
    assert list(found) == [place.name for place in PLACES]
    for (place, arms), own in zip(PLACES.items(), found.values(), strict=True):
        assert own["asked"]["scene"]["exchange"] == place.exchange
        assert own["asked"]["arms"] == [arm.name for arm in arms]
        for role in (SET_A, SET_B):
            assert verdicts(own, role) == own["verdicts"][role]
            assert placed_judging.earned(own, role) == own["earned"][role]
            assert all(len(arm["sets"][role][END]) >= 10 for arm in own["arms"].values())
        assert len({one["trials"] for one in own["tuned"].values()}) == 1


def test_the_tables_of_the_page_are_made_from_the_committed_numbers():
    page = (numbers.FOLDER.parent / "README.md").read_text()
    for name, lines in tables(numbers.load("joint_placed")["places"]).items():
        text = "\n".join(lines)
        assert " ".join(text.split()) in " ".join(page.split()), name
