"""What the paper promises, on seed means with the bars that measurements leave room for."""

import functools

import numpy as np
import pandas as pd
import pytest

from asyncjax import cluster
from asyncjax.study import protocol
from asyncjax.study.result import Result
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART, OPEN, interval, verdict
from experiments.cluster import optimum, rivals
from tests.oracles import cluster as oracle

pytestmark = pytest.mark.slow  # one run serves all tests of this file

SHAPE = {"n_jobs": 40, "n_slots": 16, "n_machines": 30}
SEEDS = range(6)


@functools.cache
def mean_utility(preset, **own):
    """Mean over the seeds, with 40 jobs, 16 slots and 30 machines."""
    values = []
    for seed in SEEDS:
        jobs, machines = getattr(cluster.workloads, preset)(seed, **SHAPE)
        schedule = cluster.pd_ors(jobs, machines, n_slots=16, **own)
        assert cluster.check(schedule, jobs, machines) == []
        values.append(cluster.total_utility(schedule, jobs))
    return np.mean(values)


def test_utility_beside_the_rivals():
    ours = mean_utility("balanced")
    rivals = {"oasis": 1.3, "drf": 1.15, "dorm": 1.12, "fifo": 2.0}
    values = {name: [] for name in rivals}
    for seed in SEEDS:
        jobs, machines = cluster.workloads.balanced(seed, **SHAPE)
        for name in rivals:
            own = {"workers": cluster.workloads.fixed_workers(seed, jobs)} if name == "fifo" else {}
            schedule = getattr(cluster, name)(jobs, machines, n_slots=16, **own)
            values[name].append(cluster.total_utility(schedule, jobs))
    for name, bar in rivals.items():
        assert ours >= bar * np.mean(values[name]), (name, ours, np.mean(values[name]))


def test_marginal_goodput_earns_more_on_this_preset():
    """It runs more servers than the nominal ratio at which PD-ORS plans.

    See experiments/README.md.
    """
    values = []
    for seed in SEEDS:
        jobs, machines = cluster.workloads.balanced(seed, **SHAPE)
        schedule = cluster.marginal_goodput(jobs, machines, n_slots=16)
        values.append(cluster.total_utility(schedule, jobs))
    assert np.mean(values) > 1.2 * mean_utility("balanced")


def small_set(count=10):
    """Utilities of the first instances of set A where machines are scarce, by rule."""
    found = {"with": [], "without": []}
    rules = {
        "pd_ors": cluster.pd_ors,
        **{n: cluster.SCHEDULERS[n] for n in (*rivals.PUBLISHED, *rivals.LATER)},
    }
    for instance in protocol.seeds_of(0, protocol.SET_A, count):
        jobs, machines = cluster.workloads.balanced(instance.data, **SHAPE)
        for name, rule in rules.items():
            own = {}
            if name == "fifo":
                rule = cluster.fifo
                own["workers"] = cluster.workloads.fixed_workers(instance.data, jobs)
            schedule = rule(jobs, machines, n_slots=16, **own)
            found.setdefault(name, []).append(cluster.total_utility(schedule, jobs))
        shape = {**SHAPE, "n_machines": 20}  # links decide here
        jobs, machines = cluster.workloads.local(instance.data, **shape)
        for name, inside in (("with", True), ("without", False)):
            schedule = cluster.pd_ors(jobs, machines, n_slots=16, inside=inside)
            found[name].append(cluster.total_utility(schedule, jobs))
    return found


def said(earned, claim, **other):
    """The verdict of a claim by its place, where some methods earn what others did."""
    earned = {**earned, **other}
    names = {name: ("scarce", name) for name in earned}
    names |= {"with": ("local", rivals.PD_ORS), "without": ("local", rivals.APART)}
    rows = [
        (*names[name][:1], "A", instance, names[name][1], value)
        for name, values in earned.items()
        for instance, value in enumerate(values)
    ]
    head = ["scene", "set", "instance", "method", "earned"]
    return Result(pd.DataFrame(rows, columns=head), "earned").verdict(rivals.CLAIMS[claim])["A"]


EARLIER, LATER, LOCALITY = 0, 1, 2  # places of the claims


@pytest.fixture(scope="module")
def measured():
    return small_set()


def test_verdicts_on_a_small_set(measured):
    """With scarce machines PD-ORS is ahead of the four, and behind marginal goodput."""
    assert said(measured, EARLIER) == HOLDS
    assert said(measured, LATER) == IN_PART
    assert said(measured, LOCALITY) == HOLDS
    ratios = np.log(measured["pd_ors"]) - np.log(measured["oasis"])
    low, high = np.exp(interval(ratios))
    assert 1 < low < np.exp(ratios.mean()) < high
    assert np.exp(ratios.mean()) > 1.2


def test_the_verdicts_of_that_set_turn_with_its_numbers(measured):
    assert said(measured, EARLIER, drf=measured["marginal_goodput"]) == IN_PART
    turned = {"pd_ors": measured["fifo"], "fifo": measured["pd_ors"]}
    assert said(measured, EARLIER, **turned) != HOLDS
    assert said(measured, EARLIER, oasis=measured["pd_ors"]) == IN_PART
    assert said(measured, LATER, marginal_goodput=measured["marginal_time"]) == HOLDS
    assert said(measured, LATER, pd_ors=measured["marginal_time"]) != HOLDS
    turned = {"with": measured["without"], "without": measured["with"]}
    assert said(measured, LOCALITY, **turned) == FAILS


def test_locality_matters_where_communication_does():
    assert mean_utility("local") >= 1.2 * mean_utility("local", inside=False)


@pytest.fixture(scope="module")
def optima():
    return [oracle.best_schedule(*cluster.workloads.tiny(seed), 4) for seed in range(40)]


def test_the_exact_optimum_of_known_cases(optima):
    known = [36.513416, 183.967980, 151.507958, 79.867195, 50.310816, 72.177061]
    np.testing.assert_allclose(optima[:6], known, rtol=1e-6)


def near_the_optimum(ratios):
    """The conditions of the claim, of such utilities over the optimum."""
    rows = [("tiny", "A", instance, "pd_ors", ratio) for instance, ratio in enumerate(ratios)]
    table = pd.DataFrame(rows, columns=["scene", "set", "instance", "method", "ratio"])
    return Result(table, "ratio").conditions(optimum.CLAIMS[0], "A")


def test_tiny_cases_come_near_the_optimum(optima):
    ratios = {"pd_ors": [], "oasis": [], "drf": [], "dorm": []}
    for seed, best in enumerate(optima):
        jobs, machines = cluster.workloads.tiny(seed)
        for name in ratios:
            own = {"parts": 8} if name in ("pd_ors", "oasis") else {}
            schedule = getattr(cluster, name)(jobs, machines, n_slots=4, **own)
            ratios[name].append(cluster.total_utility(schedule, jobs) / best)
    for name, values in ratios.items():
        assert max(values) <= 1 + 1e-5, name
    assert np.mean(ratios["pd_ors"]) >= 0.70
    assert np.mean(ratios["pd_ors"]) > 1.5 * np.mean(ratios["oasis"])
    # The verdict, by its rule. So few cases leave it open, and rule neither condition out.
    near, far = near_the_optimum(ratios["pd_ors"])
    assert near.difference.mean < 0
    assert far.difference.mean > 0
    assert far.verdict != HOLDS
    assert verdict((near, far)) in (OPEN, IN_PART)
    turned = near_the_optimum(ratios["oasis"])
    assert verdict(turned) == FAILS
    never_low = np.maximum(ratios["pd_ors"], 0.6)
    assert verdict(near_the_optimum(never_low)) == HOLDS


def test_a_floor_learned_from_the_past_earns_more():
    past = [cluster.workloads.balanced(100 + seed, **SHAPE) for seed in range(3)]
    choice = cluster.choose_floor(past, n_slots=16, lows=[1e-12, 1e-4, 1e-3, 1e-2])
    assert choice.low in (1e-4, 1e-3)
    assert mean_utility("balanced", low=choice.low) >= 1.2 * mean_utility("balanced")


def test_floors_are_tried_on_every_workload():
    past = [cluster.workloads.tiny(seed) for seed in range(3)]
    lows = [1e-8, 1e4]
    choice = cluster.choose_floor(past, n_slots=4, parts=8, lows=lows)
    expected = [
        [
            cluster.total_utility(cluster.pd_ors(*one, n_slots=4, parts=8, low=low), one[0])
            for one in past
        ]
        for low in lows
    ]
    np.testing.assert_allclose(choice.utilities, expected, rtol=1e-6)
    assert choice.low == lows[int(np.argmax(np.mean(expected, axis=1)))]
    together = cluster.choose_floor(past, n_slots=4, parts=8, lows=lows, together=6)
    np.testing.assert_allclose(together.utilities, expected, rtol=1e-6)
    usual = cluster.choose_floor(past[:1], n_slots=4, parts=8)
    assert usual.utilities.shape == (11, 1)
    assert usual.utilities.max() == usual.utilities[usual.lows == usual.low]
    with pytest.raises(ValueError, match="past must hold at least one workload"):
        cluster.choose_floor([], n_slots=4)
    with pytest.raises(ValueError, match=r"lows must be positive and finite, got 0\.0"):
        cluster.choose_floor(past, n_slots=4, lows=[0.0, 1.0])
    short = cluster.workloads.balanced(0, n_jobs=4, n_slots=4, n_machines=2)
    with pytest.raises(ValueError, match="past must hold workloads of one shape, got 2 shapes"):
        cluster.choose_floor([past[0], short], n_slots=4)
