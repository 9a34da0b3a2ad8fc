"""The story on a small workload.

Schedules, clocks, dispatch over a crew, training, what is written.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import cluster, traces
from experiments.story import job, training
from experiments.story.training import FITTING, FULL, PLAIN, TABLE, Settings, site_of, trace_of

pytestmark = [pytest.mark.slow, pytest.mark.optimised]  # it plays PD-ORS, see tests/conftest.py
CREWS = [6, 6, 0, 3, 5, 2, 2]


TINY = {"gradients": 300, "rows": 240, "hidden": 4, "seeds": 2, "tuning_seeds": 1, "records": 10}
TINY |= {"step_sizes": (0.01, 0.1), "trained": ("logistic regression",)}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(tmp_path_factory.mktemp("story"), choices=("schedule: DRF",), **TINY)


@pytest.fixture(scope="module")
def workload(settings):
    return job.scheduled(settings)


@pytest.fixture(scope="module")
def result(settings, workload):
    with pytest.MonkeyPatch.context() as patch:  # the same schedules, made once
        patch.setattr(job, "scheduled", lambda _: workload)
        return job.study_of(settings)


def by_hand(crews, shape):
    """A job that has one machine and so many workers in each slot, all of which it needs."""
    jobs, _ = cluster.workloads.balanced(0, n_jobs=1, n_slots=1)
    workers = np.array(crews, np.int32)[None, :, None]
    servers = (workers > 0).astype(np.int32)
    schedule = cluster.Schedule(workers, servers, np.ones(1, bool), np.zeros(1))
    trained = cluster.progress(schedule, jobs)[0]
    jobs = jobs._replace(samples=np.array([0.4 * trained[-1] + 0.6 * trained[-2]]))
    return site_of(Settings(gradients=403, shape=shape), schedule, jobs, 0)


def test_a_clock_computes_what_the_schedule_is_counted_by():
    site = by_hand(CREWS, 0.0)
    trace = trace_of(PLAIN, site, 0)
    begun = np.minimum(np.maximum(site.budget - np.arange(len(CREWS)), 0), 1)  # share of each slot
    done = (np.array(CREWS) > np.arange(max(CREWS))[:, None]) @ (site.pace * begun)
    assert site.budget == pytest.approx(len(CREWS) - 0.6)
    assert done.sum() == pytest.approx(403)
    delivered = np.bincount(trace.worker[trace.time <= site.budget])
    np.testing.assert_allclose(delivered, np.floor(done), atol=1)
    assert site.held(3.5) == site.gpus * 15
    assert site.held(float("inf")) == float("inf")


def test_dispatch_over_the_crew_does_not_wait_for_those_who_left():
    site, rules = by_hand(CREWS, 4.0), (training.crew_shuffled, training.shuffled)
    ours, published = (trace_of(replace(FULL, dispatch=rule), site, 3) for rule in rules)
    within = training.updates_within(ours, site.budget)
    assert 403 > within > 1.3 * training.updates_within(published, site.budget)
    first = np.bincount(ours.worker[ours.time < 2], minlength=6)
    assert first.min() > 0.7 * first.max()  # asked equally
    with pytest.raises(traces.StalledError):
        traces.Rule(traces.shuffled()).trace(site.clock, n_updates=400, key=jax.random.key(3))


def test_a_table_keeps_the_gradients_of_those_who_left():
    site = by_hand([5, 5, 2, 2], 4.0)
    trace, plain = (trace_of(choice, site, 0) for choice in (TABLE, PLAIN))
    last, rows = int(np.asarray(trace.steps).sum()) - 1, trace.reuse
    serving = (np.asarray(rows.first) <= last) & (np.asarray(rows.last) >= last)
    workers = np.asarray(trace.worker)[np.asarray(rows.arrival)[serving]]
    assert sorted(workers) == [0, 1, 2, 3, 4]  # three of them left two slots before
    assert np.asarray(rows.weight)[serving].tolist() == pytest.approx([0.2] * 5)
    within, without = (training.updates_within(one, site.budget) for one in (trace, plain))
    assert within > 0.9 * without


def test_the_fitting_set_leaves_out_the_pairs_that_harm():
    site = by_hand(CREWS, 4.0)
    trace = trace_of(FITTING, site, 0)
    np.testing.assert_array_equal(trace.worker, trace_of(PLAIN, site, 0).worker)
    step = FITTING.step({"step": 0.5, "n_workers": 2})
    state, moved = step.init(np.float32(0)), []
    for worker, time in ((0, 1.0), (0, 2.0), (0, 3.0), (1, 3.0)):
        update, state = step.update(np.float32(1), state, worker=worker, time=time)
        moved.append(float(update))
    assert moved[-1] == pytest.approx(-0.75)  # three times slower: 3 / 2 of the step


def test_the_planned_k_uses_about_the_most_gradients():
    choice = next(one for one in training.CHOICES if one.name == job.PLANNED)
    for shape, crews in ((0.0, [5, 5, 2, 2]), (4.0, [5, 5])):
        site = by_hand(crews, shape)
        runs = {k: trace_of(replace(choice, awaited=k), site, 0) for k in range(1, 6)}
        used = {k: k * training.updates_within(one, site.budget) for k, one in runs.items()}
        assert used[training.planned_k(site)] > 0.95 * max(used.values())
        assert max(used.values()) > 1.2 * used[1]


def test_all_together_end_behind_plain_choices_in_the_time_of_the_schedule(result):
    assert result.methods == ("full set", "schedule: DRF", "all plain")
    assert [len(make(result).rows) for make in job.TABLES.values()] == [3, 3]
    rows = result.rows
    assert len(rows) == 3 * 2
    assert (rows.groupby("scheduler")["budget"].nunique() == 1).all()
    assert rows["budget"].nunique() == 2
    final = {name: rows.loc[rows["method"] == name, "final"].to_numpy() for name in result.methods}
    assert np.isfinite(final["schedule: DRF"]).all()
    assert (final["full set"] > final["all plain"]).all()  # all together do not beat plain choices
    assert (rows["used"] == rows["computed"]).all()
    # Nobody is idle where whoever delivers gets the next job; a shuffle leaves some idle.
    used = rows.groupby("method")["used"]
    assert 1.25 * 300 > used.min()["all plain"] > 1.1 * used.max()["full set"]
    assert len(job.case_figure(result).figure.axes) == 2  # crews, slots


def test_the_same_seeds_give_the_same_bits(result, settings, workload):
    jobs, machines, schedules = workload
    assert all(cluster.check(one, jobs, machines) == [] for one in schedules.values())
    (name,) = settings.trained
    chosen, target = result.facts[name]["job"], result.facts[name]["target"]
    assert chosen == job.chosen_jobs(settings, jobs, schedules)[1]
    site = site_of(settings, schedules["PD-ORS"], jobs, chosen)
    again, _ = training.trained(settings, name, FULL, site, target)
    shown = result.select(method="full set")
    assert again.to_dict("list") == shown.to_dict("list")
    assert shown["final"].between(0, 0.5, inclusive="neither").all()  # it learns


def test_a_target_is_reached_by_two_records_together_not_one_that_dips():
    loss = np.concatenate([np.full(9, 5.0), [1.0], np.full(4, 5.0), np.ones(6)])[None]
    time = np.arange(1.0, 21.0)[None]
    assert [training.reached(time, loss, goal)[0] for goal in (2.0, 0.5)] == [16.0, np.inf]
