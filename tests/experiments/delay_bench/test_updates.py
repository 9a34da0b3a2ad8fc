"""Updates that delays cost: a small run through the study, and the controls by hand."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.delay_bench import updates
from experiments.part import draw, tables


def test_the_controls_equal_entries_and_length():
    gradient = {"a": jnp.array([3.0, -4.0]), "b": jnp.array([0.5])}
    for make, moved in (
        (updates.signs, [-0.1, 0.1, -0.1]),
        (updates.normalised, -0.1 * np.array([3.0, -4.0, 0.5]) / np.sqrt(25.25)),
    ):
        optimizer = make(0.1)
        steps, _ = optimizer.update(gradient, optimizer.init(gradient))
        np.testing.assert_allclose(np.append(steps["a"], steps["b"]), moved, rtol=1e-6)


@pytest.mark.slow
def test_muon_needs_fewer_updates_when_gradients_are_late(tmp_path, monkeypatch):
    """The claim of the table, at the narrowest width with steps about those that are committed."""
    known = {"SGD momentum": (updates.METHODS["SGD momentum"][0], 2.0**-6)}
    known["Muon"] = (updates.METHODS["Muon"][0], 2.0**-6)
    monkeypatch.setattr(updates, "METHODS", known)
    settings = updates.Settings(tmp_path, methods=tuple(known), hidden=(16,), delays=(0, 8))
    few = replace(settings, instances=2, tuning_instances=1, trials=2, rounds=(1, 1), n_updates=500)
    result = updates.study_of(few)
    late = result.select(delay=8)
    by_method = late.groupby(["set", "method"])["time"].mean().unstack()
    assert (by_method["Muon"] < 0.75 * by_method["SGD momentum"]).all()
    assert (late["cost"] > 1.0).all()
    assert (result.select(delay=0)["cost"] == 1.0).all()
    assert len(tables(updates, result)) == 4  # with the verdicts
    assert [path.stem for path, _ in draw(updates, result, tmp_path)] == ["delay_updates_updates"]
