"""Recorded jobs: tiny tables, every refusal, and the real files where they are."""

from pathlib import Path

import numpy as np
import pytest

from asyncjax import cluster

REAL = Path(__file__).parents[3] / "shared" / "traces"


def real(name):
    path = REAL / name
    if not path.exists():
        pytest.skip(
            f"reads {name} as it was released, in {REAL.name} of a folder shared beside the"
            " repository; it is no part of it, and tables written here test the same readers"
        )
    return path


@pytest.fixture
def write(tmp_path):
    def written(*lines):
        path = tmp_path / "jobs.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return written


def test_rows_are_sorted_by_submission(write):
    path = write("submit_s,duration_s,num_gpus,vc", "30,60,1,a", "10,70,2,b", "30,80,4,c")
    table = cluster.read_philly(path)
    assert table.submit.tolist() == [10, 30, 30]
    assert table.duration.tolist() == [70, 60, 80]
    assert table.gpus.tolist() == [2, 1, 4]
    assert table.label == ("b", "a", "c")
    assert "Philly" in table.source


def test_durations_may_be_missing(write):
    path = write("name,time,application,num_replicas,batch_size", "x,107,cifar10,6,2048")
    table = cluster.read_pollux(path)
    assert np.isnan(table.duration).all()
    assert table.label == ("cifar10",)


def test_a_window_keeps_its_rows():
    submit = np.array([0.0, 100.0, 4000.0, 8000.0, 20000.0])
    table = cluster.JobTable(
        submit, np.full(5, 1800.0), np.array([1, 2, 4, 1, 8]), ("",) * 5, "hand"
    )
    whole = cluster.recorded_workload(table, n_slots=6)
    later = cluster.recorded_workload(table, n_slots=2, start=3600.0)
    assert whole.arrival.tolist() == [0, 0, 1, 2, 5]
    assert later.arrival.tolist() == [0, 1]
    for name in whole._fields:
        if name != "arrival":
            np.testing.assert_array_equal(getattr(later, name), getattr(whole, name)[2:4])
    np.testing.assert_array_equal(whole.batch, 4 * table.gpus)
    assert (whole.worker[:, 0] == 1).all()
    other = cluster.recorded_workload(table, n_slots=6, seed=1)
    changed = {
        name
        for name in whole._fields
        if not np.array_equal(getattr(whole, name), getattr(other, name))
    }
    assert changed <= {*cluster.MADE_UP, "samples"}


def test_the_real_philly_week():
    table = cluster.read_philly(real("philly_week.csv"))
    assert len(table.submit) == 12476
    assert (np.diff(table.submit) >= 0).all()
    assert table.submit[0] == 116
    assert table.duration.min() >= 60
    assert (table.gpus == 1).mean() > 0.97
    jobs = cluster.recorded_workload(table, n_slots=6, start=86400.0)
    assert len(jobs.arrival) > 100
    jobs = cluster.Jobs(*(field[:60] for field in jobs))
    machines = cluster.Machines(np.tile([8.0, 64.0, 512.0, 1000.0], (4, 1)))
    for scheduler in (cluster.drf, cluster.dorm):
        schedule = scheduler(jobs, machines, n_slots=6)
        assert cluster.check(schedule, jobs, machines) == []
        assert cluster.outcome(schedule, jobs, machines).completed > 5


def test_the_other_real_tables():
    table = cluster.read_tiresias(real("tiresias_60_job.csv"))
    assert len(table.submit) == 60
    assert set(np.unique(table.gpus)) <= {1, 2, 4, 8, 16}
    table = cluster.read_pollux(real("pollux_workload1.csv"))
    assert len(table.submit) == 160
    assert len(set(table.label)) == 6


def test_tasks_of_alibaba(write):
    header = (
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
    )
    rows = [
        "a,worker,3.0,Terminated,900.0,1000.0,600.0,29.3,50.0,MISC",
        "b,ps,1.0,Terminated,800.0,1000.0,600.0,29.3,0.0,",  # no GPU
        "c,worker,1.0,Running,800.0,,600.0,29.3,100.0,T4",
        "d,worker,,Terminated,800.0,900.0,600.0,29.3,100.0,T4",  # lacks a number
        "e,tensorflow,8.0,Terminated,700.0,760.0,600.0,29.3,100.0,V100",
        "f,tensorflow,8.0,Terminated,700.0,700.0,600.0,29.3,100.0,V100",  # no time at all
    ]
    for lines in (rows, [header, *rows]):
        table = cluster.read_alibaba(write(*lines))
        assert table.submit.tolist() == [0, 200]
        assert table.gpus.tolist() == [8, 2]
        assert table.duration.tolist() == [60, 100]
        assert table.label == ("tensorflow", "worker")
        assert table.source.endswith(
            "without 4 of 6 tasks (1 not terminated, 1 that lack a number, 1 that took no time, 1"
            " without a GPU)"
        )
    assert "without" not in cluster.read_alibaba(write(rows[0])).source
