"""Recorded days on a made-up table: what is read, drawn, scheduled, judged and trained."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from asyncjax.study import protocol
from asyncjax.study.result import Result
from experiments.cluster import recorded
from experiments.cluster.__main__ import COLLECTION
from experiments.cluster.recorded import Settings, Training, read_days

ROWS = [
    (100, 3600, 2, "a"),
    (50, 7200, 1, "a"),
    (4000, 10000, 4, "b"),
    (5000, 600, 1, "burst"),
    (90000, 600, 8, "a"),
    (90050, 6000, 2, "a"),
    (90060, 5000, 1, "b"),
    (175000, 600, 1, "a"),
    (175000, 6000, 3, "a"),
    (175900, 3000, 2, "a"),
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster_traces")
    lines = ["submit_s,duration_s,num_gpus,vc", *(",".join(map(str, row)) for row in ROWS)]
    (folder / "jobs.csv").write_text("\n".join(lines) + "\n")
    return Settings(
        output=folder,
        table=folder / "jobs.csv",
        leave_out=("burst",),
        first_days=(0,),
        other_days=(1,),
        past_days=(2,),
        draws=2,
        trials=1,
        after=0,
        machines=(2,),
        rivals=("drf",),
        parts=6,
        training=Training(gradients=160, step_size=0.1, late_step_size=0.02),
    )


@pytest.fixture(scope="module")
def result(settings):
    return recorded.study_of(settings)


def test_some_days_without_what_is_left_out(settings):
    table = read_days(settings, 0)
    assert table.submit.tolist() == [50, 100, 4000]
    assert table.gpus.tolist() == [1, 2, 4]
    assert table.label == ("a", "a", "b")
    assert read_days(settings, 1).submit.tolist() == [3600, 3650, 3660]
    both = read_days(replace(settings, days=2), 0)
    assert both.submit.tolist()[3:] == [90000, 90050, 90060]
    assert replace(settings, days=2, after=3).n_slots == 51
    with pytest.raises(ValueError, match="first_day must have jobs"):
        read_days(settings, 4)


def test_draws_differ_in_what_is_made_up_alone(settings):
    days = recorded.Days(settings, 2)
    one, other = (days(seeds).data for seeds in protocol.seeds_of(0, protocol.SET_A, 2))
    np.testing.assert_array_equal(one.jobs.arrival, other.jobs.arrival)
    np.testing.assert_array_equal(one.jobs.asked, other.jobs.asked)
    assert (np.asarray(one.jobs.utility) != np.asarray(other.jobs.utility)).any()
    np.testing.assert_array_equal(one.asked, read_days(settings, 0).gpus)


@pytest.mark.slow
def test_few_jobs_are_finished_by_all(result):
    assert result.facts["jobs"] == [3, 3]
    assert "utility" in result.facts["made_up"]
    shown = result.select(scene="2 machines", method=["pd_ors", "drf"])
    assert shown["completed"].eq(3).all()
    assert set(result.methods) == {"pd_ors", "drf", "pd_ors, tuned"}


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


@pytest.mark.parametrize(("ours", "theirs", "said"), [(9, 3, "holds"), (3, 9, "does not hold")])
def test_the_verdict_flips_with_who_earns_more(ours, theirs, said):
    rows = [
        (scene, "A", i, name + end, level + i / 10)
        for scene in ("12 machines", "40 machines")
        for end in ("", recorded.TUNED)
        for name in ("pd_ors", *recorded.PUBLISHED, *recorded.LATER)
        for level in [ours if name == "pd_ors" else theirs]
        for i in range(5)
    ]
    head = ["scene", "set", "instance", "method", "earned"]
    result = Result(pd.DataFrame(rows, columns=head), "earned")
    assert {by["A"] for by in result.verdicts(recorded.CLAIMS).values()} == {said}


def test_missing_data_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="the recorded jobs are not at"):
        recorded.study_of(Settings(output=tmp_path, table=tmp_path / "none.csv"))


def test_unknown_schedulers(settings):
    with pytest.raises(ValueError, match="rivals must be among"):
        recorded.study_of(replace(settings, rivals=("SRTF",), past_days=(0,)))
    names = ["cluster_rivals", "cluster_optimum", "cluster_floors", "cluster_traces"]
    assert list(COLLECTION.parts) == names
