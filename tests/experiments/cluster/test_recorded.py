"""Recorded days on a made-up table: what is read, drawn, scheduled, judged and trained."""

import numpy as np
import pandas as pd
import pytest

from asyncjax.study import protocol
from experiments.cluster import recorded
from experiments.cluster.recorded import Settings, day_of, read_day

JOBS = {
    "submit_s": [100, 50, 4000, 5000, 90000, 90060, 175000, 175900],
    "duration_s": [3600, 7200, 10000, 600, 600, 5000, 6000, 3000],
    "num_gpus": [2, 1, 4, 1, 8, 1, 3, 2],
    "vc": ["a", "a", "b", "burst", "a", "b", "a", "a"],
}
DAYS = {"first_days": (0,), "other_days": (1,), "past_days": (2,), "after": 0}
DAYS |= {"draws": 2, "past_draws": 3}
TINY = {"machines": (2,), "rivals": ("drf",), "parts": 6, "trials": 1, "leave_out": ("burst",)}
TINY |= {"gradients": 160, "step_size": 0.1, "late_step_size": 0.02}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster_traces")
    pd.DataFrame(JOBS).to_csv(folder / "jobs.csv", index=False)
    return Settings(folder, table=folder / "jobs.csv", **DAYS, **TINY)


@pytest.fixture(scope="module")
def result(settings):
    return recorded.study_of(settings)


def test_days_without_what_is_left_out(settings):
    table = read_day(settings, 0)
    assert table.submit.tolist() == [50, 100, 4000]
    assert table.gpus.tolist() == [1, 2, 4]
    assert table.label == ("a", "a", "b")
    assert read_day(settings, 1).submit.tolist() == [3600, 3660]
    with pytest.raises(ValueError, match="days must have jobs"):
        read_day(settings, 4)


def test_draws_differ_in_what_is_made_up_alone(settings):
    seeds = protocol.seeds_of(0, protocol.SET_A, 2)
    one, other = (day_of(settings, 2, each).data for each in seeds)
    np.testing.assert_array_equal(one.jobs.arrival, other.jobs.arrival)
    np.testing.assert_array_equal(one.jobs.asked, other.jobs.asked)
    assert (np.asarray(one.jobs.utility) != np.asarray(other.jobs.utility)).any()
    np.testing.assert_array_equal(one.asked, read_day(settings, 0).gpus)


def test_each_set_tunes_on_draws_of_its_own_of_a_day_that_is_not_shown(settings):
    assert Settings().tuning_instances >= 5
    every = [
        day_of(settings, 2, one).data.jobs
        for role in protocol.TUNING_OF.values()
        for one in protocol.seeds_of(0, role, settings.tuning_instances)
    ]
    asked = read_day(settings, 2).gpus
    assert len(asked) == len(every[0].arrival)
    utilities = {tuple(np.asarray(one.utility).ravel().tolist()) for one in every}
    assert len(utilities) == len(every) == 3 * settings.tuning_instances


@pytest.mark.slow
def test_few_jobs_are_finished_by_all(result, settings):
    assert result.facts["jobs"] == [3, 2]
    shown = result.select(scene="2 machines", method=["pd_ors", "drf"])
    assert shown.groupby("set")["completed"].unique().to_dict() == {"A": [3], "B": [2]}
    assert set(result.methods) == {"pd_ors", "drf", "pd_ors, tuned"}
    assert result.facts["tuned apart"]
    tuned = result.rows.dropna(subset="trials").drop_duplicates(["set", "trials", "episodes"])
    assert tuned["set"].tolist() == ["A", "B"]
    assert (tuned["episodes"] == settings.tuning_instances * tuned["trials"]).all()
    [row] = recorded.TABLES["spread"](result).rows
    assert row[0] == "PD-ORS, tuned, floor"


@pytest.mark.slow
def test_the_job_is_trained_when_its_schedule_is_done(result):
    for row in recorded.TABLES["training"](result).rows:
        way, _, awaited, slots, used, time, loss = row[1:]
        assert 0 < time <= slots + 1
        assert loss < 2.0
        if way == "asynchronous":
            assert (awaited, used > 140) == (1, True)
        else:
            assert used % awaited == 0
    assert recorded.FIGURES["training"](result).caption.startswith("Job ")
