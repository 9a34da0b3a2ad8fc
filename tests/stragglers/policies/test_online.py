"""Planning while running: as fast as a plan that knows the times, and it follows a drift."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import clocks, stragglers

N = 8
BOUND = stragglers.ErrorBound(0.1, 2.0, 0.5, 8.0, initial_error=10.0)
MENU = {"k": [1, 2, 4, 6, 8], "load": [1, 4, 8]}
TARGET = 0.03125


def laws(communicate=1.0, compute=0.25):
    parts = {"compute": clocks.exponential(compute), "communicate": clocks.exponential(communicate)}
    return stragglers.response(**parts, n_workers=N)


@jax.jit
def follow(policy, keys, first, second):
    """Clock and choices on drawn times.

    The means change from the first to the second at update 10.
    """

    def one(key):
        def update(carry, number):
            state, seen = carry
            state, choice = policy.decide(state, seen)
            means = jnp.where(number < 10, first, second)
            times = laws(means[0], means[1])
            drawn = times.durations(key, 1, first=number, load=choice.load)[:, 0]
            used = jnp.argsort(jnp.argsort(drawn)) < choice.k
            elapsed = jnp.max(jnp.where(used, drawn, 0))
            seen = seen._replace(
                update=number + 1,
                time=seen.time + elapsed,
                response=jnp.where(used, drawn, jnp.inf),
                used=used,
            )
            return (state, seen), (choice.k, choice.load, seen.time, seen.update)

        start = (policy.init(), stragglers.nothing_seen(N))
        return jax.lax.scan(update, start, jnp.arange(230, dtype=jnp.int32))[1]

    return jax.vmap(one)(keys)


def time_to_target(k, load, time):
    """When the bound has come down to the target along the choices made."""
    error, times = np.full(k.shape[0], BOUND.initial_error), np.full(k.shape[0], np.inf)
    for j in range(k.shape[1]):
        floor = np.asarray(
            stragglers.error_floor(BOUND, np.asarray(k[:, j]), np.asarray(load[:, j]))
        )
        error = floor + 0.95 * (error - floor)
        times = np.where((error <= TARGET) & np.isinf(times), time[:, j], times)
    return times


@pytest.mark.slow
def test_it_is_nearly_as_fast_as_a_plan_that_knows_the_times():
    keys, means = jax.random.split(jax.random.key(0), 6), jnp.array([1.0, 0.25])
    known = stragglers.planned(stragglers.plan(laws(), BOUND, **MENU, target=TARGET))
    best = time_to_target(*follow(known, keys, means, means)[:3])
    assert np.isfinite(best).all()
    for start in ((0.05, 2.0), (20.0, 0.01)):
        policy = stragglers.planned_online(BOUND, N, **MENU, start=start, window=12)
        online = time_to_target(*follow(policy, keys, means, means)[:3])
        assert np.median(online / best) < 1.02
    for wrong in ((20.0, 0.001), (0.05, 2.0)):
        plan = stragglers.plan(laws(*wrong), BOUND, **MENU, target=TARGET)
        blind = time_to_target(*follow(stragglers.planned(plan), keys, means, means)[:3])
        assert np.median(blind / best) > 1.03


@pytest.mark.slow
def test_it_follows_a_drift():
    keys, means = jax.random.split(jax.random.key(1), 12), []
    policy = stragglers.planned_online(
        BOUND, N, k=4, load=[1, 4, 8], start=(1.0, 0.25), window=24, explore_every=4
    )
    for second in ((1.0, 10.0), (1.0, 0.25), (20.0, 0.25)):
        load = follow(policy, keys, jnp.array([1.0, 0.25]), jnp.array(second))[1]
        means.append(np.asarray(load)[:, 30:45].mean())
    slow_samples, calm, slow_links = means
    assert slow_links > calm + 1
    assert slow_links > slow_samples + 1
