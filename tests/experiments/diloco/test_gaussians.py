"""The public notebook's problem: its data, its times, whose turn a shard is, a small run."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.diloco import gaussians
from experiments.diloco.gaussians import LAST, PEAK, WAYS, H, Settings


def test_the_mixture_has_centres_of_length_one_and_deviation_a_half():
    features, labels = gaussians.mixture(0, 4096, 1)
    means = np.stack([features[labels == label].mean(0) for label in range(4)])
    # The mean of 1024 rows has an error of 1/64 a coordinate: 0.125 of all 512 squared, and 1/32
    # is the deviation of twice its product with the centre.
    assert np.linalg.norm(means, axis=1) ** 2 == pytest.approx(np.full(4, 1.125), abs=4 / 32)
    spread = np.concatenate([features[labels == label] - means[label] for label in range(4)])
    assert spread.std() == pytest.approx(0.5, rel=0.01)


def test_times_are_those_that_the_notebook_prints():
    # It prints 66.6 s a synchronous round, and 1998.6 s after 8,000 asynchronous local steps.
    waits = gaussians.trace_of(WAYS[0], 5)
    assert waits.update_time == pytest.approx([66.6, 133.2, 199.8, 266.4, 333.0])
    pure = gaussians.trace_of(WAYS[1], 100)
    assert pure.n_updates * H == 8000
    assert pure.update_time[-1] == pytest.approx(1998.6, rel=0.005)


def test_every_fourth_job_begins_a_new_turn_of_the_shards():
    waits = gaussians.turns(gaussians.trace_of(WAYS[0], 6))
    assert waits[:, :6].tolist() == [[0, 1, 2, 3, 4, 5]] * 4
    # Jobs are handed out at 0 (four), then to 0 at 11.6, to 1 at 15, to 0 at 23.2, to 1 at 30, to
    # 2 at 30.2, to 0 at 34.8
    pure = gaussians.turns(gaussians.trace_of(WAYS[1], 3))
    assert pure[0, :3].tolist() == [0, 1, 1]
    assert pure[1, :3].tolist() == [0, 1, 1]
    assert pure[2, :2].tolist() == [0, 2]


@pytest.mark.slow
def test_adamw_is_optax_with_the_rate_of_its_turn():
    rule = gaussians.adamw(((0, 3), (1, 2)), 4)
    params = jnp.array([1.0, -2.0])
    grads = jnp.array([0.5, 0.25])
    for worker, job, share in ((0, 0, 0.0), (0, H, 0.0), (0, H + 1, (3 * H + 1) / (4 * H))):
        move, _ = rule.update(grads, rule.init(params), params, worker=worker, job=job)
        rate = LAST + (PEAK - LAST) * 0.5 * (1 + np.cos(np.pi * share))
        expected = -rate * (np.sign(grads) + 0.001 * params)  # Adam's first step has size 1
        np.testing.assert_allclose(move, expected, rtol=1e-4)


def test_the_first_network_is_torchs():
    settings = replace(Settings(), rows=64, clusters=1, hidden=32, judged=16)
    params = gaussians.problem_of(settings, 0).params
    inner, outer = params["Dense_0"], params["Dense_1"]
    for layer, inputs in ((inner, 512), (outer, 32)):
        for leaf in jax.tree.leaves(layer):
            assert float(jnp.abs(leaf).max()) <= inputs**-0.5
    assert float(jnp.std(inner["kernel"])) == pytest.approx(512**-0.5 / 3**0.5, rel=0.05)


@pytest.mark.slow
def test_a_small_run_learns_and_is_kept(tmp_path):
    settings = Settings(
        output=tmp_path, rows=256, clusters=1, hidden=16, phases=8, seeds=1, records=2, judged=64
    )
    result = gaussians.study_of(settings)
    assert result.methods == tuple(way.name for way in WAYS)
    assert len(list((tmp_path / "runs").iterdir())) == len(WAYS)
    assert gaussians.study_of(settings).rows.equals(result.rows)
    waits = result.rows.iloc[0]
    assert waits["time"] == pytest.approx(8 * 66.6)
    assert (result.rows["local_steps"] == 8 * 80).all()
    assert waits["loss"] < waits["first_loss"]
    with pytest.raises(ValueError, match="phases must be at least 1, got 0"):
        gaussians.study_of(replace(settings, phases=0))
