"""Records and traces as tables of pandas."""

import sys

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, traces

TRACE = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=6)
PROBLEM = problems.quadratic([[1.0], [1.0]], [[3.0], [1.0]])


def test_records_of_one_run_are_a_row_each():
    run = simulation.replay(PROBLEM, TRACE, optax.sgd(0.1), record_every=2)
    frame = run.to_frame()
    assert list(frame.columns) == [name for name in run.records._fields if name != "metrics"]
    np.testing.assert_array_equal(frame["loss"], run.records.loss)
    assert frame["time"].dtype == np.float64


def test_records_of_several_runs_say_which():
    run = simulation.sweep(
        PROBLEM, [TRACE, TRACE], optax.sgd, [0.1, 0.2, 0.3],
        keys=jax.random.split(jax.random.key(0), 2), record_every=3,
    )  # fmt: skip
    frame = run.to_frame()
    assert list(frame.columns[:2]) == ["run", "setting"]
    assert len(frame) == 2 * 3 * 2
    part = frame[(frame["run"] == 1) & (frame["setting"] == 2)]
    np.testing.assert_array_equal(part["loss"], run.records.loss[1, 2])
    np.testing.assert_array_equal(part["time"], np.broadcast_to(run.records.time, (2, 3, 2))[1, 2])


def test_a_trace_is_a_row_an_arrival():
    frame = TRACE.to_frame()
    assert len(frame) == TRACE.n_arrivals
    np.testing.assert_array_equal(frame["delay"], TRACE.delay)
    assert "start" in frame
    assert "start" not in TRACE._replace(start=None).to_frame()


def test_without_pandas_the_message_has_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"this needs pandas, .*asyncjax\[study\]"):
        TRACE.to_frame()
