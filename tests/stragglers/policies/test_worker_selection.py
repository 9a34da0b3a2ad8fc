"""Deadlines, backups, and workers that are learned: against a slow twin, and the regret."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import stragglers
from asyncjax.stragglers import backup_workers, deadline, drop_compute, learned_crew
from tests.oracles import policies as oracle
from tests.stragglers.policies.following import chosen

N_UPDATES = 300
MEANS = np.array([3.0, 1.0, 2.5, 0.8, 4.0, 1.2, 3.5, 2.0])
FASTEST = [1, 3, 5]


@jax.jit
def work(policy, times):
    """Crews over the updates and how long each took; times float[T, n] a sample."""

    def step(carry, row):
        state, seen = carry
        state, choice = policy.decide(state, seen)
        response = jnp.where(choice.workers, row * choice.load, jnp.inf)
        elapsed = jnp.max(jnp.where(choice.workers, response, 0))
        seen = seen._replace(update=seen.update + 1, response=response, used=choice.workers)
        return (state, seen), (choice.workers, elapsed, choice)

    seen = stragglers.nothing_seen(times.shape[1])
    return jax.lax.scan(step, (policy.init(), seen), times)[1]


def exponential(seed, means=MEANS):
    return np.random.default_rng(seed).exponential(1.0, (N_UPDATES, means.size)) * means


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("float64")
def test_against_the_twin(seed):
    times = exponential(seed)
    updates = [60.4, 80.3, math.inf]
    ks = np.repeat([2, 3, 5], [60, 81, 159])
    confidence = (0.0, 0.5, 2.0, 5.0)[seed]
    policy = learned_crew(8, [2, 3, 5], [1, 2, 4], updates, confidence=confidence)
    crews, _, choice = work(policy, times)
    expected = oracle_crews(times, ks, confidence)
    np.testing.assert_array_equal(crews, expected)
    np.testing.assert_array_equal(choice.k, ks)
    np.testing.assert_array_equal(choice.load, np.repeat([1, 2, 4], [60, 81, 159]))
    assert (policy.max_load, policy.varies_load) == (4, True)


def oracle_crews(times, ks, confidence):
    crews = np.zeros(times.shape, bool)
    for j, crew in enumerate(oracle.by_bounds(times, ks, confidence)):
        crews[j, crew] = True
    return crews


def test_the_regret_is_far_below_that_of_chance():
    policy = learned_crew(8, 3, confidence=0.5)
    times = np.stack([exponential(seed) for seed in range(6)])
    crews, elapsed, _ = jax.vmap(work, in_axes=(None, 0))(policy, times)
    rng = np.random.default_rng(9)
    chance = np.argsort(rng.random(times.shape), axis=2)[:, :, :3]
    random = np.take_along_axis(times, chance, axis=2).max(axis=2)
    best = times[:, :, FASTEST].max(axis=2)
    regret, of_chance = (float((x - best).sum(axis=1).mean()) for x in (elapsed, random))
    assert 0 < regret < 0.4 * of_chance
    late = np.asarray(crews)[:, N_UPDATES // 2 :].mean(axis=(0, 1))
    assert late[FASTEST].min() > 0.7 > 0.5 > np.delete(late, FASTEST).max()


@pytest.mark.parametrize(
    ("policy", "k", "load", "limit"),
    [
        (deadline(2.5, max_load=32, n_workers=6), 6, 32, 2.5),
        (deadline(math.inf, max_load=32, k=4, n_workers=6), 4, 32, math.inf),
        (drop_compute(1.5, 8.0, n_workers=6), 6, 8, 1.5),
        (backup_workers(10, 3, 16), 7, 16, None),
    ],
)
def test_who_is_stopped_or_not_awaited(policy, k, load, limit):
    choice = chosen(policy, 4)
    assert (policy.stops, policy.max_load, policy.varies_load) == (limit is not None, load, False)
    asked = {"k": k, "load": load, "deadline": math.inf if limit is None else limit, "stage": 0}
    for name, value in asked.items():
        np.testing.assert_array_equal(getattr(choice, name), value)
