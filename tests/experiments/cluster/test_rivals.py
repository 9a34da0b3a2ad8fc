"""The comparison of schedulers: verdicts turn with the numbers, rows are what schedulers earn."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from asyncjax import cluster
from asyncjax.study import protocol
from asyncjax.study.result import Result
from experiments import part
from experiments.cluster import playing, rivals
from experiments.cluster.rivals import TUNED, Settings

SMALL: dict[str, Any] = {"n_jobs": 8, "n_slots": 6, "n_machines": 4}


TINY: dict[str, Any] = {"plenty": 4, "ranges": (8, 6, 4), "machines": (4,), "jobs": (8,)}
TINY |= {"loads": (0.05, 1.0), "local_machines": 4, "parts": (), "draws": 1, "splits": (0.3, 0.5)}
TINY |= {"instances": 2, "few": 2, "tuning_instances": 1, "trials": 2}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    output = tmp_path_factory.mktemp("cluster_rivals")
    names = ("oasis", "drf", "fifo", "marginal_goodput")
    return rivals.study_of(Settings(output, schedulers=names, **SMALL, **TINY))


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["A", "B"])
def test_rows_are_what_schedulers_earn(result, letter):
    role = {"A": protocol.SET_A, "B": protocol.SET_B}[letter]
    for index, seeds in enumerate(protocol.seeds_of(0, role, 2)):
        jobs, machines = cluster.workloads.balanced(seeds.data, **SMALL)
        asked = cluster.workloads.fixed_workers(seeds.data, jobs)  # drawn for every instance
        for name, options in (("pd_ors", {}), ("drf", {}), ("fifo", {"workers": asked})):
            schedule = getattr(cluster, name)(jobs, machines, n_slots=6, **options)
            [row] = result.select(scene="scarce", set=letter, instance=index, method=name)[
                "utility"
            ]
            assert row == pytest.approx(cluster.total_utility(schedule, jobs), rel=1e-5)


@pytest.mark.slow
def test_all_are_tuned_alike_and_tables_are_made(result):
    trials = result.rows.groupby(["method", "set"])["trials"].first().dropna().unstack("set")
    assert set(trials.index) == {name + TUNED for name in playing.tunable()}
    assert trials.columns.tolist() == ["A", "B"]
    assert trials.nunique().eq(1).all()
    assert trials.min().min() >= 4
    tables = part.tables(rivals, result)
    assert set(tables) == {"verdicts", *rivals.TABLES}
    assert [row[0] for row in tables["verdicts"].rows] == [claim.text for claim in rivals.CLAIMS]


def test_who_is_at_an_edge_is_told_by_set(monkeypatch):
    rows = pd.DataFrame(
        [("scarce", letter, 0, name, 1.0) for letter in "AB" for name in ("dorm", "pd_ors")],
        columns=["scene", "set", "instance", "method", "earned"],
    )
    edges = {"at an edge": ["scarce, set B: resize of dorm", "scarce, set B: slack of dorm"]}
    monkeypatch.setattr(playing, "_compared", lambda *_: Result(rows, "earned", edges))
    monkeypatch.setattr(Result, "trials", lambda _: rows.assign(trials=4))
    tuned = playing.tuned(Settings(), (), {}, {})
    assert tuned.loc[tuned["at_edge"], ["set", "method"]].values.tolist() == [["B", "dorm, tuned"]]


@pytest.mark.slow
def test_less_work_earns_more(result):
    light, full = (result.values("drf", "A", "utility", scene=f"load {f}") for f in ("0.05", "1"))
    assert light.to_numpy().mean() > full.to_numpy().mean()
    [seeds] = protocol.seeds_of(0, protocol.SET_A, 1)
    few, whole = (playing.Point(8, 6, 4, load)(seeds).data.jobs.samples for load in (0.05, 1.0))
    np.testing.assert_array_equal(few, np.floor(0.05 * whole))
