"""A run that went wrong says so, and records and traces are tables of pandas."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, results, simulation, steps, traces
from asyncjax.results import report
from asyncjax.results.run import Source

INF, NAN = np.inf, np.nan


def run_of(loss, finite=None, version=None):
    """A run of these losses, recorded at versions 10, 20, ..."""
    losses = np.asarray(loss, np.float32)
    count = losses.shape[-1]
    zeros = np.zeros(count)
    records = results.Records(
        version=10 * np.arange(1, count + 1) if version is None else version,
        time=np.arange(count, dtype=np.float64),
        delay=zeros,
        used=zeros,
        computed=zeros,
        loss=jnp.asarray(losses),
        finite=jnp.ones(losses.shape, bool) if finite is None else jnp.asarray(finite),
        metrics={},
    )
    return results.Run(jnp.zeros(1), (), records, Source((), ()))


@pytest.mark.parametrize(
    ("loss", "diverged"),
    [
        ([2.0, 1.0, 0.5], False),
        ([2.0, 1999.0, 0.5], False),  # a thousand times the first is the limit
        ([2.0, 2001.0, 0.5], True),  # though it came back
        ([2.0, NAN], True),
        ([NAN, 2.0], True),
        ([2.0, INF], True),
        ([INF, 2.0], True),
        ([2.0, -INF], True),
        ([NAN, NAN], False),  # not measured: `finite` decides
        ([0.0, 0.9], False),  # began at its best: losses up to 1 say nothing
        ([0.0, 1.1], True),
        ([1e-12, 1e-7], False),
        ([1e-3, 1.1], True),
        ([-5.0, -9.0], False),  # objectives may be negative, and their size counts
        ([-5.0, 4999.0], False),
        ([-5.0, 5001.0], True),
        ([-5.0, -1e9], False),  # down without end is what was asked for
        ([1e6], False),
        ([3e38, 3e38], False),  # a thousand times as much is no float32
        ([], False),
    ],
)
def test_the_rule(loss, diverged):
    run = run_of(loss)
    assert bool(run.diverged) is diverged
    assert np.shape(run.diverged) == ()
    assert (", diverged)" in repr(run)) is diverged
    if diverged:
        with pytest.raises(FloatingPointError, match="the loss"):
            run.raise_if_failed()
    else:
        assert run.raise_if_failed() is run


def test_the_message_names_versions_and_losses():
    with pytest.raises(FloatingPointError) as told:
        run_of([0.5, 2.0, 1.2e6, 1e9]).raise_if_failed()
    assert str(told.value) == (
        "the loss went from 0.5 at version 10 to 1.2e+06 at version 30; a smaller step size may"
        " help"
    )
    with pytest.raises(FloatingPointError, match="the loss is nan at version 10; a smaller"):
        run_of([NAN, 1.0]).raise_if_failed()


def test_a_model_that_is_not_finite_is_told_first():
    run = run_of([1.0, 1e9, NAN], finite=[True, True, False])
    assert run.diverged
    with pytest.raises(FloatingPointError, match="the model is not finite at version 30; a smal"):
        run.raise_if_failed()
    silent = run_of([NAN, NAN], finite=[True, False])  # nothing measured, and yet seen
    assert silent.diverged


def test_of_several_runs_each_has_its_mark_and_the_message_counts():
    loss = np.ones((2, 3, 4))
    loss[1, 2, 2], loss[0, 1, 3] = 1e7, NAN
    versions = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])[:, None]  # as a sweep over traces has them
    run = run_of(loss, version=versions)
    np.testing.assert_array_equal(run.diverged, [[False, True, False], [False, False, True]])
    with pytest.raises(FloatingPointError) as told:
        run.raise_if_failed()
    assert str(told.value) == (
        "2 of 6 runs diverged: the loss went from 1 at version 1 to nan at version 4 in run"
        " (0, 1); a smaller step size may help"
    )
    assert "2 diverged)" in repr(run_of(loss))
    finite = np.ones((2, 3, 4), bool)
    finite[1, 2, 1] = False
    with pytest.raises(FloatingPointError, match=r"not finite at version 6 in run \(1, 2\)"):
        run_of(loss, finite=finite, version=versions).raise_if_failed()


def test_it_can_be_asked_inside_a_program():
    runs = [run_of([1.0, 2.0]), run_of([1.0, 1e4]), run_of([NAN, NAN]), run_of([0.0, 0.5])]

    def mark(loss):
        return results.Run((), (), runs[0].records._replace(loss=loss), Source((), ())).diverged

    marks = jax.jit(jax.vmap(mark))(jnp.stack([run.records.loss for run in runs]))
    assert marks.tolist() == [bool(run.diverged) for run in runs] == [False, True, False, False]


def test_rows_of_tables_and_reports_say_it():
    columns = (results.Column("method", right=False), results.Column("last loss"))
    several = run_of([[1.0, 2.0], [1.0, 1e4]])
    rows = (
        ("good", run_of([2.0, 0.5])),
        ("bad", run_of([2.0, 1.2e6])),
        ("lost", run_of([2.0, NAN])),
        ("several", several),
        ("empty", run_of([])),
    )
    table = results.Table(columns, rows)
    wanted = ["0.500", "diverged (1,200,000)", "diverged (n/a)", "1 of 2 diverged", "no records"]
    assert [cells[1] for cells in table.cells()] == wanted
    document = report.render("Title", "", [report.Section("s", "", tables=[table])])
    for write in (results.as_text, results.as_markdown, results.as_html):
        assert "diverged (1,200,000)" in write(table)
    assert "diverged (1,200,000)" in document


@pytest.mark.parametrize(
    ("rule", "diverges"),
    [
        (steps.average_workers(3), True),
        (steps.scale_by_worker_time([1.0, 2.0, 3.0]), True),
        (optax.chain(steps.average_workers(3), optax.scale(-0.05)), False),
    ],
)
def test_a_replay_without_a_step_size_is_seen(rule, diverges):
    problem = problems.least_squares(np.eye(3), [1.0, 2.0, 3.0], n_workers=3)
    trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=60)
    run = simulation.replay(problem, trace, rule, record_every=10)
    assert bool(run.records.finite.all())  # nothing but the loss tells
    assert bool(run.diverged) is diverges
    if diverges:
        with pytest.raises(FloatingPointError, match=r"the loss went from .* at version 10 to"):
            run.raise_if_failed()
    else:
        assert run.raise_if_failed() is run


def test_a_run_without_records_has_a_line():
    assert repr(run_of([])) == "Run(0 records)"
    assert repr(run_of(np.zeros((3, 0)))) == "Run(3 runs of 0 records)"


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
