"""Updates to a loss under late gradients: counted on the way, and what the committed ones carry."""

import jax
import numpy as np
import optax
import pytest

from experiments.common import numbers
from experiments.delay_bench import updates
from experiments.delay_bench.bench import Loop, losses_on_the_way
from experiments.delay_bench.delays import constant


def test_losses_on_the_way_are_those_of_plain_descent_and_of_stale_one():
    """x - 0.1 * 2 x_{k - d}, looked at every second update."""

    def make_loop(key):
        return Loop(jax.numpy.float32(1.0), lambda x, key: x**2, lambda x: (x**2, x**2))

    laws = {"0": constant(0), "2": constant(2)}
    keys = jax.random.split(jax.random.key(0), 1)
    run = losses_on_the_way(make_loop, optax.sgd, laws, n_updates=6, every=2, keys=keys)
    for law, delay in (("0", 0), ("2", 2)):
        way = [1.0]
        for k in range(6):
            way.append(way[-1] - 0.2 * way[max(k - delay, 0)])
        np.testing.assert_allclose(run(law, [0.1])[0, 0], np.square(way[2::2]), rtol=1e-5)


def test_muon_needs_fewer_updates_than_adam_under_every_delay():
    """What the readme says, by the committed numbers; what it does not say, too."""
    found = numbers.load(updates.NAME)
    for law, own in found["cells"]["Muon"].items():
        assert np.mean(own["updates"]) < 0.7 * np.mean(found["cells"]["Adam"][law]["updates"])
    less = found["Muon over Adam"]
    assert less["1"]["low"] < 1 < less["1"]["high"], "delays cost Muon hardly less"
    assert less["8"]["mean"] > 0.7


@pytest.mark.slow
def test_a_small_run_counts(tmp_path):
    settings = updates.Settings(
        tmp_path, methods=("Muon",), target=2.2, updates=10, factors=(1.0,), seeds=2, tuning_seeds=1
    )
    part = updates.run(settings)
    assert set(part.numbers["times the updates"]) == {"Muon"}
    assert part.numbers["cells"]["Muon"]["0"]["updates"][0] in (5.0, 10.0, float("inf"))
