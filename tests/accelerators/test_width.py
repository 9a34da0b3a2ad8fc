"""How many gradients a wave takes where a wave takes as long filled or not."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, simulation, traces


@pytest.mark.parametrize(
    ("speeds", "narrow", "wide"),
    [(1.0 + np.arange(8), 2, 3), (np.sqrt(1.0 + np.arange(64)), 13, 13), (np.ones(8), 8, 8)],
    ids=["few idle", "many idle", "equal"],
)
def test_waves_are_wider_if_few_lanes_are_idle_then(monkeypatch, speeds, narrow, wide):
    trace = traces.asynchronous(clocks.constant(speeds), n_updates=25 * len(speeds))
    assert simulation.plan(trace).width == narrow
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    planned = simulation.plan(trace)
    assert planned.width == wide
    assert planned.fill >= 0.85
