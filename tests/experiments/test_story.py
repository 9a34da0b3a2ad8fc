"""The story on a small workload.

Schedules, clocks, dispatch over a crew, training, what is written.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import cluster, traces
from asyncjax.study.result import Result
from experiments.story import job, runs
from experiments.story.choices import (
    CHOICES,
    FITTING,
    PLAIN,
    TABLE,
    crew_shuffled,
    planned_k,
    shuffled,
    site_of,
    trace_of,
    updates_within,
)
from experiments.story.job import Settings

pytestmark = [pytest.mark.slow, pytest.mark.optimised]  # it plays PD-ORS, see tests/conftest.py
FULL = CHOICES[0]
CREWS = [6, 6, 0, 3, 5, 2, 2]


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("story"),
        gradients=300,
        rows=240,
        hidden=4,
        seeds=2,
        tuning_seeds=1,
        records=10,
        step_sizes=(0.01, 0.1),
        trained=("logistic regression",),
        choices=("schedule: DRF",),
    )


@pytest.fixture(scope="module")
def workload(settings):
    return runs.scheduled(settings)


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
    return site_of("by hand", schedule, jobs, 0, gradients=403, shape=shape)


def test_a_clock_computes_what_the_schedule_is_counted_by():
    site = by_hand(CREWS, 0.0)
    trace = trace_of(PLAIN, site, 0)
    begun = np.minimum(np.maximum(site.budget - np.arange(len(CREWS)), 0), 1)  # share of each slot
    done = [
        sum(site.pace[slot] * begun[slot] for slot, crew in enumerate(CREWS) if crew > worker)
        for worker in range(max(CREWS))
    ]
    assert site.budget == pytest.approx(len(CREWS) - 0.6)
    assert sum(done) == pytest.approx(403)
    delivered = [
        int(((trace.worker == worker) & (trace.time <= site.budget)).sum()) for worker in range(6)
    ]
    np.testing.assert_allclose(delivered, np.floor(done), atol=1)
    assert site.held(3.5) == site.gpus * 15
    assert site.held(float("inf")) == float("inf")


def test_dispatch_over_the_crew_does_not_wait_for_those_who_left():
    site = by_hand(CREWS, 4.0)
    made = {
        rule: trace_of(replace(FULL, dispatch=rule), site, 3) for rule in (crew_shuffled, shuffled)
    }
    ours, published = (
        updates_within(made[rule], site.budget) for rule in (crew_shuffled, shuffled)
    )
    assert 403 > ours > 1.3 * published
    with pytest.raises(traces.StalledError):
        traces.asynchronous(
            site.clock, n_updates=400, dispatch=traces.shuffled(), key=jax.random.key(3)
        )
    first = made[crew_shuffled].worker[made[crew_shuffled].time < 2]
    assert np.bincount(first, minlength=6).min() > 0.7 * np.bincount(first).max()  # asked equally


def test_a_table_keeps_the_gradients_of_those_who_left():
    site = by_hand([5, 5, 2, 2], 4.0)
    trace = trace_of(TABLE, site, 0)
    last = int(np.asarray(trace.steps).sum()) - 1
    rows = trace.reuse
    serving = (np.asarray(rows.first) <= last) & (np.asarray(rows.last) >= last)
    workers = np.asarray(trace.worker)[np.asarray(rows.arrival)[serving]]
    assert sorted(workers) == [0, 1, 2, 3, 4]  # three of them left two slots before
    assert np.asarray(rows.weight)[serving].tolist() == pytest.approx([0.2] * 5)
    assert updates_within(trace, site.budget) > 0.9 * updates_within(
        trace_of(PLAIN, site, 0), site.budget
    )


def test_the_fitting_set_leaves_out_the_pairs_that_harm():
    site = by_hand(CREWS, 4.0)
    trace = trace_of(FITTING, site, 0)
    np.testing.assert_array_equal(trace.worker, trace_of(PLAIN, site, 0).worker)
    step = FITTING.step(2)(0.5)
    state, moved = step.init(np.float32(0)), []
    for worker, time in ((0, 1.0), (0, 2.0), (0, 3.0), (1, 3.0)):
        update, state = step.update(np.float32(1), state, worker=worker, time=time)
        moved.append(float(update))
    assert moved[-1] == pytest.approx(-0.75)  # three times slower: 3 / 2 of the step
    assert FITTING.order([3, 2], 4).on_arrival is not None


def test_the_planned_k_uses_about_the_most_gradients():
    choice = next(own for own in CHOICES if own.name.startswith("synchronous"))
    for shape, crews in ((0.0, [5, 5, 2, 2]), (4.0, [5, 5])):
        site = by_hand(crews, shape)
        used = {
            k: k * updates_within(trace_of(replace(choice, awaited=k), site, 0), site.budget)
            for k in range(1, 6)
        }
        assert used[planned_k(site)] > 0.95 * max(used.values())
        assert max(used.values()) > 1.2 * used[1]


def test_every_row_is_there_and_has_the_time_of_its_schedule(result):
    assert result.methods == ("full set", "schedule: DRF", "all plain")
    assert [len(make(result).rows) for make in job.TABLES.values()] == [3, 3]
    rows = result.rows
    assert len(rows) == 3 * 2
    assert (rows.groupby("scheduler")["budget"].nunique() == 1).all()
    assert rows["budget"].nunique() == 2
    assert np.isfinite(rows["final"]).all()
    assert (rows["used"] == rows["computed"]).all()
    assert rows["used"].max() < 1.25 * 300
    by = rows.groupby("method")
    for name, own in result.facts["logistic regression"]["curves"].items():
        assert max(own["time"]) == pytest.approx(by["budget"].max()[name], rel=1e-3)
    # Nobody is idle where whoever delivers gets the next job; a shuffle leaves some idle.
    assert by["used"].min()["all plain"] > 1.1 * by["used"].max()["full set"]
    assert len(job.case_figure(result).figure.axes) == 3  # crews, curves, slots


def test_the_same_seeds_give_the_same_bits(result, settings, workload):
    jobs, machines, made = workload
    assert all(cluster.check(own, jobs, machines) == [] for own in made.values())
    chosen = runs.chosen_jobs(settings, jobs, made)
    (task,) = runs.tasks(settings, chosen)
    assert result.facts[task.name]["job"] == task.job == chosen[1]
    site = site_of("PD-ORS", made["PD-ORS"], jobs, task.job, gradients=300, shape=4.0)
    again = runs.trained(settings, task, FULL, site)
    assert again.final.tolist() == result.select(method="full set")["final"].tolist()
    assert (again.loss[:, 0] > 2 * again.final).all()  # it learns
    assert np.nanmin(again.loss) > 0  # and stays above the least loss
    made_up = np.concatenate([np.full(9, 5.0), [1.0], np.full(4, 5.0), np.ones(6)])[None]
    steady = replace(again, loss=made_up, time=np.arange(1.0, 21.0)[None])
    assert steady.reached(2.0).tolist() == [16.0]  # two records together, not one that dips
    assert steady.reached(0.5).tolist() == [np.inf]


@pytest.mark.parametrize(("by", "count"), [(1.0, 2), (10.0, 0)])
def test_the_answer_turns_with_the_losses(result, by, count):
    rows = result.rows.copy()
    rows.loc[rows["method"] == "full set", "final"] = [0.5, 0.4]
    rows.loc[rows["method"] == "all plain", "final"] = [0.2 * by, 0.3 * by]
    turned = Result(rows, "final", result.facts, cut=())
    assert f"lower on {count} of 2 seeds" in job.answer(turned)


def test_wrong_settings_are_named(settings, workload):
    with pytest.raises(ValueError, match="must be among full set, fitting set, dispatch: pure"):
        job.study_of(replace(settings, choices=("steps: none",)))
    with pytest.raises(ValueError, match="tuning_seeds must be at least 1, got 0"):
        job.study_of(replace(settings, tuning_seeds=0))
    with pytest.raises(ValueError, match="trained must be among network, logistic"):
        job.study_of(replace(settings, trained=("tree",)))
    with pytest.raises(ValueError, match="shape must be at least 0, got -1"):
        job.study_of(replace(settings, shape=-1.0))
    jobs, _, made = workload
    with pytest.raises(ValueError, match="seed must give two jobs"):
        runs.chosen_jobs(replace(settings, most_workers=4), jobs, made)
    left = int(np.argmin(cluster.completion(made["PD-ORS"], jobs)))
    with pytest.raises(ValueError, match="job must be one that PD-ORS completes"):
        site_of("PD-ORS", made["PD-ORS"], jobs, left, gradients=100, shape=0.0)
