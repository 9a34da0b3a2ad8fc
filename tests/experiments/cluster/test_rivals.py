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
from experiments.cluster.rivals import PD_ORS, TUNED, Settings

SMALL: dict[str, Any] = {"n_jobs": 8, "n_slots": 6, "n_machines": 4}


def made_up(scale, places):
    """Rows in which a method earns so many times what the others do, by method and scene."""
    generator = np.random.default_rng(0)
    base, rows = generator.lognormal(5, 0.3, 12), []
    for scene, name in places:
        earned = scale.get((scene, name), scale.get(name, 1.0)) * base
        earned = earned * generator.lognormal(0, 0.02, 12)
        rows += [(scene, "A", i, name, x) for i, x in enumerate(earned)]
    head = ["scene", "set", "instance", "method", "earned"]
    return Result(pd.DataFrame(rows, columns=head), "earned")


PLACES = [
    *((point, name) for point in rivals.POINTS for name in rivals.SCHEDULERS),
    *(("local", name) for name in (PD_ORS, rivals.APART)),
    *(("scarce", name + TUNED) for name in playing.tunable()),
]


@pytest.mark.parametrize(
    ("claim", "scale", "said"),
    [
        (0, {PD_ORS: 1.5}, "holds"),
        (0, {PD_ORS: 1.5, ("plenty", PD_ORS): 0.8}, "in part"),
        (0, {PD_ORS: 0.7}, "does not hold"),
        (1, {PD_ORS: 1.5}, "holds"),
        (1, {PD_ORS: 1.5, "marginal_goodput": 3.0}, "in part"),
        (2, {rivals.APART: 0.6}, "holds"),
        (2, {rivals.APART: 1.4}, "does not hold"),
        (3, {PD_ORS + TUNED: 1.3}, "holds"),
        (3, {"oasis" + TUNED: 1.3, PD_ORS + TUNED: 1.1}, "in part"),
        (4, {"marginal_goodput": 0.8}, "holds"),
        (4, {"marginal_goodput": 1.2}, "does not hold"),
    ],
)
def test_a_verdict_turns_with_what_rules_earn(claim, scale, said):
    assert made_up(scale, PLACES).verdict(rivals.CLAIMS[claim]) == {"A": said}


def test_what_is_close_is_no_significant_difference():
    result = part.committed("cluster_rivals")
    assert result.verdict(rivals.CLAIMS[4])["A"] == "no significant difference"


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="schedulers must be among"):
        rivals.study_of(Settings(output=tmp_path, schedulers=("pd_ors", "srtf")))


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
        for name, own in (("pd_ors", {}), ("drf", {}), ("fifo", {"workers": asked})):
            schedule = getattr(cluster, name)(jobs, machines, n_slots=6, **own)
            [row] = result.select(scene="scarce", set=letter, instance=index, method=name)[
                "utility"
            ]
            assert row == pytest.approx(cluster.total_utility(schedule, jobs), rel=1e-5)


@pytest.mark.slow
def test_all_are_tuned_alike_and_tables_are_made(result):
    trials = result.rows.groupby("method")["trials"].first().dropna()
    assert set(trials.index) == {name + TUNED for name in playing.tunable()}
    assert trials.nunique() == 1
    assert trials.iloc[0] >= 4
    tables = part.tables(rivals, result)
    assert set(tables) == {"verdicts", *rivals.TABLES}
    assert [row[0] for row in tables["claims"].rows] == [claim.text for claim in rivals.CLAIMS]


@pytest.mark.slow
def test_less_work_earns_more(result):
    light, full = (result.values("drf", "A", "utility", scene=f"load {f}") for f in ("0.05", "1"))
    assert light.to_numpy().mean() > full.to_numpy().mean()
    [seeds] = protocol.seeds_of(0, protocol.SET_A, 1)
    few, whole = (playing.Point(8, 6, 4, load)(seeds).data.jobs.samples for load in (0.05, 1.0))
    np.testing.assert_array_equal(few, np.floor(0.05 * whole))
