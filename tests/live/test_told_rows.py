"""Rows of the records that a live run tells as it goes."""

import numpy as np
import optax
import pytest

from asyncjax import live, simulation
from asyncjax.live import server_state
from tests.live.shared import quadratic, sgd, tree
from tests.live.test_training import RULES, lived
from tests.simulation.loops.test_record_rows import assert_rows_of, assert_same


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("make", [quadratic, tree])
def test_rows_are_those_of_the_run_and_change_no_bit(name, make):
    """On a virtual clock, where a run is the same each time."""
    seen = []
    given = {"problem": make(), "update": optax.adam(0.05), "n_updates": 12, **RULES[name]}
    run = lived(execution=simulation.Execution(on_record=seen.append), **given)
    records = run.records
    if "ringleader" in name:  # some wait for a later update, and count in the records all the same
        used = np.array([row.used for row in seen])
        assert (used <= records.used).all()
        records = records._replace(used=used)
    assert_rows_of(records, seen)
    plain = lived(**given)
    for field in ("params", "opt_state", "records"):
        assert_same(getattr(run, field), getattr(plain, field))


def test_rows_come_while_real_workers_work():
    """A model is judged when it is made: the run ends with the error of the function."""
    seen = []

    def tell(row):
        seen.append(row.version)
        if row.version == 4:
            raise Killed

    how = simulation.Execution(on_record=tell)
    with live.threads(2) as workers, pytest.raises(Killed):
        live.train(quadratic(), workers, sgd(0.1), n_updates=10**6, record_every=2, execution=how)
    assert seen == [2, 4]


@pytest.mark.slow
def test_a_resumed_run_tells_the_rows_after_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(server_state, "SECONDS", -1.0)
    monkeypatch.setattr(server_state, "_SHARE", 0.0)
    first, rest, path = [], [], tmp_path / "run.npz"

    def kill(row):
        first.append(row)
        if len(first) == 4:
            raise Killed

    given = {"update": sgd(0.1), "n_updates": 12, "record_every": 2}
    with pytest.raises(Killed):
        lived(execution=simulation.Execution(on_record=kill, checkpoint=path), **given)
    run = lived(execution=simulation.Execution(on_record=rest.append, checkpoint=path), **given)
    assert_rows_of(run.records, first[:3] + rest)
