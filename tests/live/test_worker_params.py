"""Real workers are handed a function of the model: as in a replay, a rerun, after a killing."""

import jax
import numpy as np
import optax
import pytest

from asyncjax import live, simulation, steps, traces
from asyncjax.live import server_state
from tests.live.shared import quadratic
from tests.live.test_resume import CLOCK, begun, lived
from tests.live.test_training import assert_equal

OPTIMIZER = optax.chain(optax.sgd(0.05, 0.6), steps.remember_update())
UPDATE = simulation.Update(OPTIMIZER, worker_params=steps.look_ahead(2.0))


def test_views_are_those_of_a_replay_and_a_rerun():
    run = lived(update=UPDATE, collect=traces.buffered(2))
    again = live.rerun(
        quadratic(),
        run.trace,
        UPDATE,
        key=jax.random.key(0),
    )
    np.testing.assert_array_equal(run.params, again.params)
    np.testing.assert_array_equal(run.records.loss, again.records.loss)
    replayed = simulation.replay(
        quadratic(),
        run.trace,
        UPDATE,
        key=jax.random.key(0),
        waves=False,
    )
    np.testing.assert_allclose(run.params, replayed.params, rtol=1e-5)
    np.testing.assert_allclose(run.records.loss, replayed.records.loss, rtol=1e-5)
    plain = lived(update=OPTIMIZER, collect=traces.buffered(2))
    assert np.abs(run.params - plain.params).max() > 1e-3


def test_a_killed_run_goes_on_with_its_views(tmp_path, monkeypatch):
    monkeypatch.setattr(server_state, "SECONDS", -1.0)
    monkeypatch.setattr(server_state, "_SHARE", 0)
    path, rest = tmp_path / "log", {"update": UPDATE, "clock": CLOCK}
    begun(path, monkeypatch, **rest)
    run, whole = lived(checkpoint=path, **rest), lived(**rest)
    assert_equal(run.trace, whole.trace)
    np.testing.assert_array_equal(run.params, whole.params)
    np.testing.assert_array_equal(run.records.loss, whole.records.loss)
    begun(path, monkeypatch, **rest)
    with pytest.raises(ValueError, match="checkpoint"):
        lived(checkpoint=path, update=OPTIMIZER, clock=CLOCK)
