"""Placed jobs: sites, rounds on a schedule, verdicts on every part."""

from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest

from asyncjax import cluster, traces
from asyncjax.results.statistics import FAILS, HOLDS, IN_PART, OPEN
from asyncjax.study.protocol import TUNING, Seeds
from experiments import part
from experiments.joint import placed
from experiments.joint.training import COMPUTING, DRF, END, FULL, PLAIN
from tests.experiments import made_up

ONE = Seeds(0, TUNING, 0)
SMALL = placed.Place("small", exchange=0.2, gradients=1500)


@pytest.fixture(scope="module")
def site():
    return placed.sites_of(SMALL, ONE, {DRF: cluster.drf})[DRF]


def test_the_power_of_all_shards_is_the_crew_and_all_are_served_in_turn(site):
    np.testing.assert_allclose(site.power.sum(0), site.crews)
    turns = (placed.served(np.full(6, 2)) > 0).sum(1)
    assert turns.tolist() == [3, 3, 3, 3]
    assert site.present.any(1).all()


def test_machines_are_of_two_generations_and_a_fifth_of_the_time_is_exchange(site):
    jobs, machines, is_old = placed.workload_of(SMALL, ONE)
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
    found = placed.rounds_of(site, 4, 1, 3)
    spans = found.response[np.arange(len(found.k)), found.k - 1]
    begins = np.concatenate([[0.0], np.cumsum(spans)])
    present = site.present[:, begins[:-1].astype(int)].sum(0)
    np.testing.assert_array_equal(found.k, np.minimum(4, present))
    assert begins[-2] < site.budget <= begins[-1]
    heavy = placed.rounds_of(site, 4, 8, 3)
    assert len(heavy.k) < 0.4 * len(found.k)
    runs = placed.alike([found, heavy])
    assert {(run.n_updates, len(run.time)) for run in runs} == {
        (runs[0].n_updates, len(runs[0].time))
    }
    np.testing.assert_allclose(runs[0].time[: found.k[0]], found.response[0, : found.k[0]])


@pytest.mark.slow
def test_shuffled_dispatch_asks_whom_the_slot_serves(site):
    arm = replace(COMPUTING[6], scheduler=DRF)
    trace = placed.plans_of([arm], [0], [{DRF: site}], 40)(arm, (1, 1), 0).trace
    later = (np.asarray(trace.start) > 0) & (np.asarray(trace.start) < site.budget)
    slots = np.asarray(trace.start)[later].astype(int)
    asked = site.present[np.asarray(trace.worker)[later], slots]
    assert asked.mean() > 0.9


def verdicts(shift, goal="0.9"):
    """The words of set A at a goal, at a place where arms are `shift` (a log) from the others."""
    luck, wave = np.random.default_rng(0).normal(1, 0.1, 10), 0.01 * (-1.0) ** np.arange(10)
    cells = [
        (
            {"scene": "made up", "method": arm.name, "scheduler": arm.scheduler, "utility": 1.0}
            | {"tuned_for": to, "horizon": horizon},
            np.exp(luck + number * wave + shift.get(arm.name, 0.0)),
        )
        for number, arm in enumerate(COMPUTING)
        for to, horizon in (("0.9", 12.0), (END, np.inf))
    ]
    result = made_up.result(cells, "value", cut=("value",))
    found, begin = result.verdicts(placed.claims(result)), f"made up, {goal}: "
    return {
        text[len(begin) :]: words["A"] for text, words in found.items() if text.startswith(begin)
    }


@pytest.mark.slow
def test_verdicts_on_the_whole_and_on_each_part_flip_with_the_numbers():
    for goal in ("0.9", END):
        assert {*verdicts({FULL.name: -0.5}, goal).values()} == {HOLDS}
        assert {*verdicts({FULL.name: 0.5}, goal).values()} == {FAILS}
    one = verdicts({FULL.name: -0.5, "rows: reshuffled": -1.0})
    assert one[placed.BEATS_PLAIN] == HOLDS
    assert one[placed.BEATS_ALL] == one[placed.claim("rows")] == IN_PART
    same = verdicts({PLAIN.name: 0.5})
    assert same[placed.BEATS_PLAIN] == HOLDS
    assert same[placed.claim("dispatch")] == OPEN


@pytest.mark.slow
@pytest.mark.optimised
def test_all_together_end_lower_than_plain_choices_and_than_one_part_replaced():
    settings = placed.Settings(
        tuning_instances=1,
        instances=2,
        floors=1,
        trials=4,
        rounds=(1, 2),
        records=100,
        levels=(0.98,),
    )
    others = {"steps: constant": 0.5, "rows: drawn": 0.7, PLAIN.name: 0.4}
    several = [arm for arm in COMPUTING if arm.name in {FULL.name, *others}]
    arms = tuple(replace(arm, scheduler=DRF) for arm in several)
    place = SMALL._replace(gradients=4000)
    rows = placed.rows_of(settings, place, arms)
    ends = rows[rows["tuned_for"] == END].pivot_table("value", ["set", "instance"], "method")
    logs = np.log(ends)
    for name, most in others.items():
        assert np.exp((logs[FULL.name] - logs[name]).mean()) < most, name
    assert len(rows) == len(arms) * 2 * 2 * 2
    assert (rows["held"].isna() == (rows["tuned_for"] == END)).all()
    assert (rows["gpu_slots"] >= rows["held"].fillna(0)).all()
    assert rows["served"].between(0, placed.N_SLOTS).all()


def test_a_third_set_is_run_as_the_others_are_on_other_instances():
    names = ("joint_scenes", "joint_placed")
    third, known = part.committed("joint_third"), [part.committed(name) for name in names]
    both, cell = pd.concat([one.rows for one in known]), ["scene", "method", "tuned_for"]
    both = both[(both["scene"] != "network") | (both["tuned_for"] != END)]
    assert third.sets == ("C",)
    assert set(third.rows.groupby(cell).size().items()) == set(
        both[both["set"] == "A"].groupby(cell).size().items()
    )
    ends = pd.concat([third.rows, both]).query("tuned_for == @END")
    assert not ends.duplicated(["scene", "method", "value"]).any()
    ended = f"network, {END}"
    asked = [part.claims(*pair) for pair in zip(map(part.module, names), known, strict=True)]
    assert [claim.text for claim in part.claims(part.module("joint_third"), third)] == [
        claim.text for claims in asked for claim in claims if not claim.text.startswith(ended)
    ]
