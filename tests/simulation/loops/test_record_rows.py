"""Rows that are told while a run goes: those of its records, and no bit of the run changes."""

import json

import numpy as np
import pytest

from asyncjax import simulation
from asyncjax.simulation import loop
from tests.simulation.runs import RUNS, replay, trace
from tests.simulation.shared import Killed, assert_same


def told_by(call, **options):
    """The run, and the rows that it told."""
    seen = []
    how = simulation.Execution(on_record=seen.append, **options)
    return call(execution=how), seen


def assert_rows_of(records, rows):
    """Each row once and in order, of plain numbers: the counts are equal, what is judged nearly."""
    assert [type(row) for row in rows] == [type(records)] * len(records.version)
    json.dumps(rows)
    for name, column in records._asdict().items():
        if name == "metrics":
            assert all(set(row.metrics) == set(column) for row in rows)
            pairs = [([row.metrics[key] for row in rows], column[key]) for key in column]
        else:
            pairs = [([getattr(row, name) for row in rows], column)]
        for got, wanted in pairs:
            np.testing.assert_allclose(got, wanted, rtol=2e-6 if name == "loss" else 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_rows_are_told_and_change_no_bit(name, monkeypatch):
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)  # one turn a piece
    run, rows = told_by(RUNS[name])
    assert_rows_of(run.records, rows)
    assert_same(run, RUNS[name]())


def test_a_row_is_told_before_the_run_goes_on(monkeypatch):
    """One piece after the other: at every row the run is no farther than that."""
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)
    seen, marks = [], []
    how = simulation.Execution(
        on_record=lambda row: seen.append((row.version, marks[-1] if marks else 0)),
        progress=lambda now: marks.append(now.updates),
    )
    replay(log=trace(40), record_every=10, waves=False, execution=how)
    assert seen == [(10, 9), (20, 19), (30, 29), (40, 39)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["waves", "events", "policy", "epochs"])
def test_a_resumed_run_tells_the_rows_after_its_place(name, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)
    call, path, first = RUNS[name], tmp_path / "run.npz", []

    def kill(row):
        first.append(row)
        if len(first) == 3:
            raise Killed

    with pytest.raises(Killed):
        call(execution=simulation.Execution(on_record=kill, checkpoint=path))
    run, rest = told_by(call, checkpoint=path)
    assert_rows_of(run.records, first[:2] + rest)
    assert_same(run, call())


def test_an_error_of_the_function_ends_the_run():
    def fail(row):
        raise Killed(f"at {row.version}")

    with pytest.raises(Killed, match="at 12"):
        replay(waves=False, record_every=12, execution=simulation.Execution(on_record=fail))
