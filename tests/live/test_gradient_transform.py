"""Each gradient is treated when it arrives at a live server, and those of an update aggregated."""

import jax
import numpy as np
import optax
import pytest

from asyncjax import live, simulation, steps, traces
from asyncjax.live import server_state
from tests.live.shared import adam, quadratic, sgd
from tests.live.test_resume import CLOCK, begun, lived
from tests.live.test_training import assert_equal

TREATED = {
    "its delay": {"gradient_transform": steps.scale_by_staleness("polynomial")},
    "clipped": {"gradient_transform": optax.clip_by_global_norm(1.0)},
    "with a state": {"gradient_transform": steps.ca2fl(4)},
    "median": {"aggregator": steps.median()},
    "both": {"gradient_transform": optax.ema(0.5), "aggregator": steps.trimmed_mean(0.34)},
}
RULES = {"buffered 3": traces.buffered(3), "grace": traces.grace_period(0.5, quorum=2)}


def assert_same(run, other, tolerance=0.0):
    for one, two in zip(jax.tree.leaves(run.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)
    left = (jax.tree.leaves(each.arrival_state) for each in (run, other))
    for one, two in zip(*left, strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(run.records.loss, other.records.loss, rtol=tolerance or 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", TREATED)
def test_a_virtual_run_is_its_replay_and_its_rerun(name, rule):
    treated, key = TREATED[name], jax.random.key(0)
    update = simulation.Update(adam(0.1), **treated)
    run = lived(update=update, collect=RULES[rule])
    again = live.rerun(quadratic(), run.trace, update, key=key)
    assert_same(run, again)
    replayed = simulation.replay(quadratic(), run.trace, update, key=key, waves=False)
    assert_same(run, replayed, 1e-4)
    plain = lived(update=adam(0.1), collect=RULES[rule])
    assert np.abs(run.params - plain.params).max() > 1e-4


def test_a_mean_of_all_is_the_plain_run():
    rest = {"collect": traces.buffered(3), "n_updates": 6}
    mean = simulation.Update(sgd(0.1), aggregator=steps.mean())
    run, plain = lived(update=mean, **rest), lived(update=sgd(0.1), **rest)
    np.testing.assert_allclose(run.params, plain.params, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["with a state", "both"])
def test_a_killed_run_goes_on_with_what_had_arrived(tmp_path, monkeypatch, name):
    monkeypatch.setattr(server_state, "SECONDS", -1.0)
    monkeypatch.setattr(server_state, "_SHARE", 0)
    path = tmp_path / "log"
    rest = {"collect": traces.buffered(3), "clock": CLOCK}
    rest["update"] = simulation.Update(adam(0.1), **TREATED[name])
    begun(path, monkeypatch, **rest)
    run, whole = lived(checkpoint=path, **rest), lived(**rest)
    assert_equal(run.trace, whole.trace)
    assert_same(run, whole)
    begun(path, monkeypatch, **rest)
    with pytest.raises(ValueError, match="checkpoint"):
        lived(checkpoint=path, collect=traces.buffered(3), clock=CLOCK)


def test_tables_are_refused():
    with pytest.raises(ValueError, match="gradient_transform and aggregator must be None where"):
        lived(collect=traces.table(), update=simulation.Update(sgd(0.1), aggregator=steps.median()))
