"""Recorded days on a made-up table: what is read, scheduled and trained."""

from dataclasses import replace

import numpy as np
import pytest

from asyncjax import storage
from experiments.cluster import recorded
from experiments.cluster.__main__ import COLLECTION
from experiments.cluster.recorded import Settings, read_days

pytestmark = pytest.mark.slow  # one run serves all tests of this file

ROWS = [
    (100, 3600, 2, "a"),
    (50, 7200, 1, "a"),
    (4000, 10000, 4, "b"),
    (5000, 600, 1, "burst"),
    (90000, 600, 8, "a"),
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
        days=1,
        after=0,
        machines=(2,),
        parts=6,
        gradients=160,
        step_size=0.1,
        late_step_size=0.02,
        schedulers=("DRF",),
    )


@pytest.fixture(scope="module")
def part(settings):
    return recorded.run(settings)


def test_some_days_without_what_is_left_out(settings):
    table = read_days(settings)
    assert table.submit.tolist() == [50, 100, 4000]
    assert table.gpus.tolist() == [1, 2, 4]
    assert table.label == ("a", "a", "b")
    later = read_days(replace(settings, first_day=1))
    assert later.submit.tolist() == [90000 - 86400]
    both = read_days(replace(settings, days=2))
    assert both.submit.tolist() == [50, 100, 4000, 90000]
    assert replace(settings, days=2, after=3).n_slots == 51
    with pytest.raises(ValueError, match="first_day must have jobs"):
        read_days(replace(settings, first_day=3))


def test_few_jobs_are_finished_by_all(part):
    outcomes = part.numbers["outcomes"]["2"]
    assert part.numbers["jobs"] == 3
    assert {name: own["completed"] for name, own in outcomes.items()} == {"PD-ORS": 3, "DRF": 3}


def test_the_job_is_trained_when_its_schedule_is_done(part):
    (_, training) = part.tables
    for row in training.rows:
        way, _, awaited, slots, used, time, _ = row[1:]
        assert 0 < time <= slots + 1
        if way == "asynchronous":
            assert (awaited, used > 140) == (1, True)
        else:
            assert used % awaited == 0
    curves = part.numbers["trained"]["curves"]
    for curve in curves.values():
        assert (np.diff(curve["time"]) >= 0).all()
        assert curve["loss"][-1] < 0.8 * curve["loss"][0]


def test_everything_is_written(part, settings):
    assert all(path.stat().st_size > 5_000 for path, _ in part.figures)
    saved = storage.load_json(settings.output / "cluster_traces.json")
    assert "utility" in saved["made_up"]


def test_missing_data_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="the recorded jobs are not at"):
        recorded.run(Settings(output=tmp_path, table=tmp_path / "none.csv"))


def test_unknown_schedulers(settings):
    with pytest.raises(ValueError, match="schedulers must be among"):
        recorded.run(replace(settings, schedulers=("SRTF",)))
    names = ["cluster_rivals", "cluster_optimum", "cluster_floors", "cluster_traces"]
    assert list(COLLECTION.parts) == names
