"""Recorded days on a made-up table: what is read, drawn, scheduled, judged and trained."""

from dataclasses import replace

import numpy as np
import pytest

from asyncjax import results, storage
from asyncjax.study import protocol
from asyncjax.study.statistics import FAILS, HOLDS
from experiments.cluster import recorded, recorded_report
from experiments.cluster.__main__ import COLLECTION
from experiments.cluster.recorded import Settings, read_days
from experiments.cluster.recorded_training import Training
from experiments.common import numbers

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
def part(settings):
    return recorded.run(settings)


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
    one, other = recorded.drawn(settings, protocol.SET_A).values()
    np.testing.assert_array_equal(one.jobs.arrival, other.jobs.arrival)
    np.testing.assert_array_equal(one.jobs.asked, other.jobs.asked)
    assert (np.asarray(one.jobs.utility) != np.asarray(other.jobs.utility)).any()


@pytest.mark.slow
def test_few_jobs_are_finished_by_all(part):
    found = part.numbers["clusters"]["2"]["A"]["published"]
    assert part.numbers["jobs"] == {"A": [3, 3], "B": [3, 3]}
    assert {name: own["completed"] for name, own in found.items()} == {
        "pd_ors": [3, 3],
        "drf": [3, 3],
    }
    assert set(part.numbers["clusters"]["2"]["tuning"]) == {"pd_ors"}


@pytest.mark.slow
def test_the_job_is_trained_when_its_schedule_is_done(part):
    for row in part.tables[-1].rows:
        way, _, awaited, slots, used, time, loss = row[1:]
        assert 0 < time <= slots + 1
        assert loss < 2.0
        if way == "asynchronous":
            assert (awaited, used > 140) == (1, True)
        else:
            assert used % awaited == 0


@pytest.mark.slow
def test_everything_is_written_and_nothing_is_played_twice(part, settings, monkeypatch):
    assert all(path.stat().st_size > 5_000 for path, _ in part.figures)
    saved = storage.load_json(settings.output / "cluster_traces.json")
    assert "utility" in saved["made_up"]
    monkeypatch.setattr(recorded, "_scheduled", None)
    assert recorded.measured(settings)["clusters"] == part.numbers["clusters"] or np.allclose(
        recorded.measured(settings)["clusters"]["2"]["A"]["published"]["drf"]["utility"],
        part.numbers["clusters"]["2"]["A"]["published"]["drf"]["utility"],
        rtol=1e-4,
    )


def test_the_verdict_flips_with_who_earns_more():
    [claim] = [claim for claim, (_, rivals) in recorded_report.CLAIMS.items() if "drf" in rivals]
    low, high = [3.0, 2.5, 3.5, 3.2, 2.9], [9.0, 8.5, 9.9, 9.1, 9.6]
    for ours, theirs, said in ((high, low, HOLDS), (low, high, FAILS)):
        own = {"pd_ors": {"utility": ours}, "drf": {"utility": theirs}}
        found = {"clusters": {"2": {"A": {"published": own, "tuned": {}}}}}
        assert recorded_report.verdicts(found, "A") == {claim: said}


def test_committed_verdicts_follow_from_the_committed_numbers():
    found = numbers.load("cluster_recorded")
    for letter in "AB":
        assert recorded_report.verdicts(found, letter) == found["verdicts"][letter]
    text = (numbers.FOLDER.parent / "README.md").read_text(encoding="utf-8")
    tables = [recorded_report.outcome_table(found, machines) for machines in found["clusters"]]
    for table in (recorded_report.verdict_table(found), *tables):
        rows = [row for row in results.as_markdown(table).splitlines() if row.startswith("|")]
        assert "\n".join(rows) in text


def test_missing_data_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="the recorded jobs are not at"):
        recorded.run(Settings(output=tmp_path, table=tmp_path / "none.csv"))


def test_unknown_schedulers(settings):
    with pytest.raises(ValueError, match="rivals must be among"):
        recorded.run(replace(settings, rivals=("SRTF",), past_days=(0,)))
    names = ["cluster_rivals", "cluster_optimum", "cluster_floors", "cluster_traces"]
    assert list(COLLECTION.parts) == names
