"""Workers whose times remember: what they do, and a short form of the part, which goes on."""

import os
import time
from dataclasses import replace

import numpy as np
import pytest

from experiments import part
from experiments.reality import kinds, tasks

pytest.importorskip("sklearn", reason="the digits come with scikit-learn, the extra [data]")


def test_phases_are_slow_for_their_share_of_time_and_common_to_those_who_take_part():
    alone, common = (
        kinds.CASES[f"sleeping, {which} phases"].slowness for which in ("own", "common")
    )
    moments = np.linspace(0.0, 3000.0, 20_001)
    factors = np.array([[common.at(i, 6, now) for now in moments] for i in range(6)])
    assert (factors[:4] == factors[0]).all()
    assert (factors[4:] == 1.0).all()
    assert set(factors[0]) == {1.0, common.factor}
    share = common.slow / (common.slow + common.fast)
    assert np.mean(factors[0] > 1) == pytest.approx(share, abs=0.03)
    others = np.array([[alone.at(i, 6, now) for now in moments] for i in (0, 5)])
    assert np.mean(others > 1) == pytest.approx(share, abs=0.03)
    assert abs(np.corrcoef(others)[0, 1]) < 0.1


def test_a_drift_begins_when_its_file_was_changed_and_goes_on(tmp_path):
    file = tmp_path / "began"
    file.touch()
    os.utime(file, (100.0, 100.0))
    drift = tasks.Drift(to=1.3, seconds=10.0, file=str(file))
    assert [drift.at(0, 6, now) for now in (90.0, 100.0)] == [1.0, 1.0]
    assert [drift.at(0, 6, now) for now in (110.0, 120.0)] == pytest.approx([1.3, 1.6])


def test_workers_that_compute_take_processor_time():
    began = time.thread_time()
    tasks._Sleep(None, (kinds.COMPUTING, 0))(0.02)
    assert time.thread_time() - began >= 0.02


@pytest.mark.slow
def test_a_short_run_on_threads_and_one_that_goes_on(tmp_path, monkeypatch):
    two = tasks.Workers("sleeping", (0.01, 0.01), slowness=tasks.Drift(to=1.3))
    monkeypatch.setattr(kinds, "CASES", {"two, drift": two})
    few = {"engine": "threads", "cases": ("two, drift",), "log": 1.0}
    settings = kinds.Settings(tmp_path, **few, repeats=1, seconds=0.3, draws=1)
    one = kinds.study_of(settings)
    assert list(one.rows["method"]) == ["pure", "buffered 2", "fastest 1, stops", "synchronous"]
    assert one.rows["off_memory"].abs().max() < 100
    assert one.rows["told"].all()
    later = kinds.study_of(replace(settings, repeats=2))
    assert len(later.rows) == 8
    first = later.rows[later.rows["instance"] == 0].reset_index(drop=True)
    assert first[list(one.rows)].equals(one.rows.reset_index(drop=True))
    assert len(kinds.case_table(later, "A").rows) == 4
    assert kinds.sizes(later)["A"]["cases"] == 0  # a drift is not steady


def test_refusals():
    with pytest.raises(ValueError, match="cases must be among sleeping, independent"):
        kinds.study_of(kinds.Settings(cases=("slow",)))
    with pytest.raises(ValueError, match="engine must be processes or ray with commit"):
        kinds.study_of(kinds.Settings(engine="threads", commit=True))


def test_committed_rows_say_of_which_run_they_are():
    result = part.committed(kinds.NAME)
    runs = result.rows.groupby(["set", "scene", "method"]).size()
    assert set(runs) == {result.facts["repeats"]}
    assert runs["A"].index.equals(runs["B"].index)  # processes, Ray
    assert "of runs" in kinds.answer(result)
