"""Rows that are told while a run goes: those of its records, and no bit of the run changes."""

import json

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, orders, problems, simulation, steps, stragglers, traces
from asyncjax.simulation import loop
from tests.simulation.shared import N, quadratic, trace_of

KEY = jax.random.key(3)
FEATURES = np.random.default_rng(0).standard_normal((24, 3))
ROWS = problems.least_squares(FEATURES, FEATURES @ np.ones(3), n_workers=3)
RULE = steps.scale_by_adaptive_1(0.2, max_delay=64)


def blind():
    """A problem that has no objective: what is recorded is the loss of the update's jobs."""
    seen, _ = quadratic()

    def gradient(params, worker, job, key):
        loss, grads = seen.gradient(params, worker, job, key)
        return loss + jax.random.normal(key), grads

    return problems.from_gradient(seen.params, gradient)


def _half(params, opt_state):
    return jax.tree.map(lambda leaf: leaf / 2, params)


def replay(rule="buffered 3", make=lambda: quadratic()[0], *, sent=None, **options):
    trace = trace_of(rule, n_updates=40)
    update = simulation.Update(optax.adam(0.05), worker_params=sent)
    return lambda how: simulation.replay(make(), trace, update, key=KEY, execution=how, **options)


def policy(how):
    chosen = stragglers.staged([1, 3], [2, 5], [8, 1])
    clock = clocks.exponential(np.ones(3))
    return simulation.run_policy(
        ROWS, clock, chosen, optax.sgd(0.1), n_updates=20, record_every=3, key=KEY, execution=how
    )


def epochs(how):
    order, options = orders.coordinated(3, 8, 3), {"prefix_norms": True, "record_every": 2}
    return simulation.run_epochs(
        ROWS, order, optax.sgd(0.1), n_epochs=5, n_workers=3, execution=how, **options
    )


def piag(how):
    trace = traces.asynchronous(clocks.constant(np.arange(1.0, N + 1)), n_updates=30)
    return simulation.replay_piag(quadratic()[0], trace, RULE, key=KEY, execution=how)


def blocks(torn):
    trace = traces.asynchronous(clocks.constant(np.arange(1.0, N + 1)), n_updates=30)
    options = {"n_blocks": 3, "torn": torn, "record_every": 7, "key": KEY}
    return lambda how: simulation.replay_block_descent(
        quadratic()[0], trace, RULE, execution=how, **options
    )


RUNS = {
    "waves": replay(),
    "waves, every third": replay(record_every=3, waves=True),
    "waves, no objective": replay(make=blind),
    "waves, a table": replay("ringleader", record_every=4, width=3),
    "waves, what is sent is no version": replay(sent=_half),
    "events": replay(waves=False),
    "events, no objective": replay(make=blind, waves=False, record_every=6),
    "policy": policy,
    "epochs": epochs,
    "piag": piag,
    "blocks": blocks(0.0),
    "torn blocks": blocks(0.5),
}


def told_by(call, **options):
    """The run, and the rows that it told."""
    seen = []
    return call(simulation.Execution(on_record=seen.append, **options)), seen


def assert_same(one, other):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jax.numpy.issubdtype(left.dtype, jax.dtypes.prng_key):
            left, right = jax.random.key_data(left), jax.random.key_data(right)
        np.testing.assert_array_equal(left, right)


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
    assert_same(run, RUNS[name](None))


def test_a_row_is_told_before_the_run_goes_on(monkeypatch):
    """One piece after the other: at every row the run is no farther than that."""
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)
    seen, marks = [], []
    how = simulation.Execution(
        on_record=lambda row: seen.append((row.version, marks[-1] if marks else 0)),
        progress=lambda now: marks.append(now.updates),
    )
    replay("pure", record_every=10, waves=False)(how)
    assert seen == [(10, 9), (20, 19), (30, 29), (40, 39)]


class Killed(Exception):
    pass


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
        call(simulation.Execution(on_record=kill, checkpoint=path))
    run, rest = told_by(call, checkpoint=path)
    assert_rows_of(run.records, first[:2] + rest)
    assert_same(run, call(None))


def test_an_error_of_the_function_ends_the_run():
    def fail(row):
        raise Killed(f"at {row.version}")

    with pytest.raises(Killed, match="at 40"):
        replay(waves=False, record_every=40)(simulation.Execution(on_record=fail))


def test_what_tells_no_rows_says_so():
    how, trace = simulation.Execution(on_record=print), trace_of("pure", n_updates=5)
    keys = jax.random.split(KEY, 2)
    with pytest.raises(ValueError, match="on_record of the execution must be None: this run does"):
        simulation.sweep(quadratic()[0], trace, optax.sgd, [0.1], keys=keys, execution=how)
