"""The sign test and the distance test: golden run, slow twins, a load that is traced."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.stragglers import distance_test, sign_test
from tests.oracles import policies as oracle
from tests.stragglers.policies.following import chosen, follow, seen

N_UPDATES = 80


def test_the_golden_run_of_the_sign_test():
    gradients = np.array([1, 1, -1, 1, -1, 1, -1, 1, 1, -1, 1, -1])
    agreements = np.concatenate([[np.nan, np.nan], gradients[1:] * gradients[:-1]])  # before each
    policy = sign_test([1, 2, 4], threshold=1, burn_in=2)
    states, choice = follow(policy, seen(13, agreement=agreements))
    np.testing.assert_array_equal(choice.k[:12], [1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 4, 4])
    np.testing.assert_array_equal(states.counter[1:], [0, -1, 0, 1, 0, 1, 2, 0, -1, 0, 1, 2])


@pytest.mark.parametrize("seed", range(8))
def test_the_sign_test_against_its_twin(seed):
    rng = np.random.default_rng(seed)
    agreements = rng.normal(-0.3, 1.0, N_UPDATES)
    agreements[:2] = np.nan
    agreements[rng.random(N_UPDATES) < 0.1] = 0.0
    agreements[rng.random(N_UPDATES) < 0.1] = np.nan
    n_stages, threshold, burn_in = 3 + seed % 2, int(rng.integers(0, 4)), int(rng.integers(0, 12))
    patience = None if seed % 2 else int(rng.integers(5, 30))
    ks, loads = np.arange(1, n_stages + 1), 2.0 ** np.arange(n_stages)
    policy = sign_test(ks, loads, threshold=threshold, burn_in=burn_in, patience=patience)
    states, choice = follow(policy, seen(N_UPDATES, agreement=agreements))
    expected = oracle.by_signs(n_stages, agreements, threshold, burn_in, patience or math.inf)
    stages = np.array([stage for stage, _ in expected])
    np.testing.assert_array_equal(choice.stage, stages)
    np.testing.assert_array_equal(states.counter, [counter for _, counter in expected])
    np.testing.assert_array_equal(choice.k, ks[stages])
    np.testing.assert_array_equal(choice.load, loads[stages])
    assert stages[-1] > 0


@pytest.mark.parametrize("seed", range(8))
def test_the_distance_test_against_its_twin(seed):
    rng = np.random.default_rng(seed)
    growth = np.arange(N_UPDATES, dtype=float) ** rng.uniform(0.3, 1.2)
    distances = np.maximum(growth, 1e-3) * np.exp(rng.normal(0, 0.1, N_UPDATES))
    if seed > 5:
        distances[rng.random(N_UPDATES) < 0.2] = np.nan
    n_stages, burn_in = 3 + seed % 2, int(rng.integers(0, 12))
    ratio, slope = (1.5, 2.0, 1.25)[seed % 3], rng.uniform(0.4, 1.0)
    patience = None if seed % 2 else int(rng.integers(20, 40))
    policy = distance_test(
        np.arange(1, n_stages + 1), burn_in=burn_in, ratio=ratio, slope=slope, patience=patience
    )
    expected = oracle.by_distance(n_stages, distances, burn_in, ratio, slope, patience or math.inf)
    np.testing.assert_array_equal(chosen(policy, N_UPDATES, distance=distances).stage, expected)


def test_the_distance_test_reads_off_the_exponent_of_growth():
    updates = np.arange(N_UPDATES, dtype=float)
    policy = distance_test([1, 2], burn_in=6, ratio=2.0, slope=0.6)  # checkpoints 1, 2, 4, 8, ...
    for exponent, switch in ((0.5, 8), (0.59, 8), (0.61, None), (2.0, None), (0.0, 8)):
        stage = np.asarray(chosen(policy, N_UPDATES, distance=updates**exponent).stage)
        assert (int(np.argmax(stage)) if stage.any() else None) == switch
    for nothing in (np.zeros(N_UPDATES), np.full(N_UPDATES, np.nan), np.full(N_UPDATES, np.inf)):
        assert not chosen(policy, N_UPDATES, distance=nothing).stage.any()


def test_a_traced_load_needs_a_capacity():
    def last_load(load, max_load=None):
        policy = sign_test([1, 2], load, threshold=0, burn_in=0, max_load=max_load)
        return follow(policy, seen(9, agreement=-np.ones(9)))[1].load[-1]

    assert jax.jit(lambda load: last_load(load, 8))(jnp.array([2.0, 5.0])) == 5
    with pytest.raises(ValueError, match="max_load must be given"):
        jax.jit(last_load)(jnp.array([2.0, 5.0]))
