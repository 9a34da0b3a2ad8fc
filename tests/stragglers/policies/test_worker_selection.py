"""Deadlines, backups, and workers that are learned: against a slow twin, and the regret."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import stragglers
from asyncjax.stragglers import backup_workers, deadline, drop_compute, learned_crew
from tests.oracles import policies as oracle
from tests.stragglers.policies.following import chosen, follow, seen

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


def test_all_are_tried_once_and_then_the_fastest_work():
    times = np.broadcast_to(MEANS, (N_UPDATES, 8))
    crews = np.asarray(work(learned_crew(8, 3, confidence=0.0), times)[0])
    assert [np.flatnonzero(row).tolist() for row in crews[:3]] == [[0, 1, 2], [3, 4, 5], [3, 6, 7]]
    np.testing.assert_array_equal(np.flatnonzero(crews[3:].all(axis=0)), FASTEST)
    explored = np.asarray(work(learned_crew(8, 3, confidence=1.0), times)[0])
    tries = explored.sum(axis=0)
    assert (tries > 1).all()
    assert sorted(np.argsort(-tries)[:3].tolist()) == FASTEST
    np.testing.assert_array_equal(explored.sum(axis=1), 3)


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


def test_a_worker_that_was_unlucky_once_is_tried_again():
    times = np.array(np.broadcast_to(MEANS, (N_UPDATES, 8)))
    times[:3, 3] = 50.0  # the fastest, at its first try
    trusting = np.asarray(work(learned_crew(8, 3, confidence=0.0), times)[0])
    doubting = np.asarray(work(learned_crew(8, 3, confidence=20.0), times)[0])
    assert trusting[:, 3].sum() == 1
    assert doubting[-50:, 3].mean() > 0.3


def test_parameters_may_be_traced_and_mapped():
    times = exponential(0)

    @jax.jit
    def tries(confidence):
        return work(learned_crew(8, 3, confidence=confidence), times)[0].sum(axis=0)

    found = jax.vmap(tries)(jnp.array([0.0, 100.0]))
    assert found[1].min() > 80 > found[0].min()


def test_a_deadline_stops_all_workers():
    policy = deadline(2.5, max_load=32, n_workers=6)
    choice = chosen(policy, 4)
    assert policy.stops
    assert not policy.varies_load
    assert policy.max_load == 32
    np.testing.assert_array_equal(choice.k, [6] * 4)
    np.testing.assert_array_equal(choice.load, [32.0] * 4)
    np.testing.assert_array_equal(choice.deadline, [2.5] * 4)
    np.testing.assert_array_equal(choice.stage, [0] * 4)
    assert int(chosen(deadline(2.5, max_load=32, k=4, n_workers=6), 4).k[0]) == 4
    assert math.isinf(chosen(deadline(math.inf, max_load=32, n_workers=6), 4).deadline[0])


def test_drop_compute_keeps_the_ordinary_load():
    policy = drop_compute(1.5, 8.0, n_workers=6)
    choice = chosen(policy, 4)
    assert (policy.stops, policy.max_load, policy.varies_load) == (True, 8, False)
    assert [float(x[0]) for x in (choice.k, choice.load, choice.deadline)] == [6, 8, 1.5]


def test_backups_are_not_awaited():
    policy = backup_workers(10, 3, 16)
    choice = chosen(policy, 4)
    assert (policy.stops, policy.max_load) == (False, 16)
    assert [float(x[-1]) for x in (choice.k, choice.load)] == [7, 16]
    assert int(chosen(backup_workers(10, 0), 4).k[0]) == 10


def test_limits_may_be_traced_and_mapped():
    observations = seen(4)

    @jax.jit
    @jax.vmap
    def limits(limit):
        anytime = follow(deadline(limit, max_load=4, n_workers=3), observations)[1]
        dropping = follow(drop_compute(2 * limit, 4, n_workers=3), observations)[1]
        return anytime.deadline[0], dropping.deadline[0]

    given = jnp.array([1.0, 2.0])
    found = limits(given)
    np.testing.assert_array_equal(found, [given, 2 * given])
    before = follow._cache_size()
    for time in (1.0, 2.0, 3.0):
        follow(deadline(time, max_load=5, n_workers=3), observations)
    assert follow._cache_size() == before + 1
