"""AdaSync: the rule, its stall exit, and losses that say nothing."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.stragglers import ada_sync
from tests.oracles import policies as oracle
from tests.stragglers.policies.following import chosen, follow, seen

N_UPDATES = 60


@pytest.mark.parametrize("seed", range(8))
def test_against_the_twin(seed):
    rng = np.random.default_rng(seed)
    k, n_workers, minimum = int(rng.integers(1, 5)), int(rng.integers(5, 40)), rng.uniform(-2, 2)
    losses = minimum + 9 * np.exp(-0.15 * np.arange(N_UPDATES)) * rng.uniform(0.5, 1.5, N_UPDATES)
    losses[rng.random(N_UPDATES) < 0.3] = np.nan
    losses[rng.random(N_UPDATES) < 0.05] = np.inf
    if seed == 7:
        losses[40] = minimum - 0.1
    patience = None if seed % 2 else int(rng.integers(3, 9))
    policy = ada_sync(k, 4, n_workers=n_workers, minimum=minimum, patience=patience)
    choice = chosen(policy, N_UPDATES, loss=losses)
    expected = oracle.by_loss(k, n_workers, losses, minimum, patience or math.inf)
    np.testing.assert_array_equal(choice.k, [count for count, _ in expected])
    np.testing.assert_array_equal(choice.stage, [stalls for _, stalls in expected])
    assert (np.asarray(choice.load) == 4).all()


def test_it_follows_the_loss_both_ways_and_stays_in_range():
    losses = [np.nan, 16.0, 4.0, np.nan, 1.0, 1600.0, 0.0, 16.0]
    choice = chosen(ada_sync(2, n_workers=7), len(losses), loss=losses)
    np.testing.assert_array_equal(choice.k, [2, 2, 4, 4, 7, 1, 7, 2])


def test_a_loss_that_stands_still_asks_for_more_workers():
    losses = np.full(N_UPDATES, 3.0)
    choice = chosen(ada_sync(2, n_workers=6, patience=10), N_UPDATES, loss=losses)
    np.testing.assert_array_equal(choice.k, np.minimum(2 + np.arange(N_UPDATES) // 10, 6))
    unseen = chosen(ada_sync(2, n_workers=6, patience=10), N_UPDATES)
    np.testing.assert_array_equal(unseen.k, choice.k)
    still = chosen(ada_sync(2, n_workers=6), N_UPDATES, loss=losses)
    assert (np.asarray(still.k) == 2).all()


def test_parameters_may_be_traced_and_mapped():
    observations = seen(N_UPDATES, loss=np.linspace(9, 1, N_UPDATES))

    @jax.jit
    def last_k(k, minimum):
        return follow(ada_sync(k, n_workers=20, minimum=minimum), observations)[1].k[-1]

    found = jax.vmap(last_k)(jnp.array([1, 2, 4]), jnp.array([0.0, 0.0, 0.5]))
    np.testing.assert_array_equal(found, [3, 6, round(4 * math.sqrt(8.5 / 0.5))])
