"""The contract of every registered policy, run on a small problem."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, stragglers, traces
from asyncjax.simulation import loop
from asyncjax.stragglers.policies.policy import check_policy, nothing_seen
from tests.registries.stragglers import REGISTRY

N, S, T = 4, 6, 12
rng = np.random.default_rng(0)
PROBLEM = problems.least_squares(
    rng.standard_normal((N * S, 2)), rng.standard_normal(N * S), n_workers=N
)
OPTIMIZER = optax.sgd(0.1)


def times(mean=1.0):
    return stragglers.response(
        compute=clocks.exponential(mean / S), communicate=clocks.exponential(mean), n_workers=N
    )


def run(policy, key, mean=1.0):
    return simulation.run_policy(PROBLEM, times(mean), policy, OPTIMIZER, n_updates=T, key=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_contract(name):
    policy = REGISTRY[name](N, S)
    key = jax.random.key(3)
    one = run(policy, key).raise_if_failed()
    compiled = loop._whole._cache_size()
    other = run(REGISTRY[name](N, S), jax.random.key(4), mean=2.0)
    assert loop._whole._cache_size() == compiled  # the policy and the law are arguments
    assert not np.array_equal(one.records.time, other.records.time)

    trace = traces.validate(one.trace)
    assert trace.n_updates == T
    np.testing.assert_allclose(trace.time[trace.steps], one.records.time, rtol=1e-5)
    records = jax.tree.map(np.asarray, one.records)
    for cost in (
        "time",
        "samples_assigned",
        "samples_used",
        "samples_done",
        "uplinks",
        "broadcasts",
    ):
        assert (np.diff(getattr(records, cost)) >= 0).all(), cost
    assert (records.samples_used <= records.samples_done * (1 + 1e-5) + 1e-5).all()
    assert (records.samples_done <= records.samples_assigned * (1 + 1e-5)).all()
    assert (records.load <= policy.max_load).all()
    assert ((records.k >= 1) & (records.k <= N)).all()
    assert np.isfinite(records.loss).all()
    assert one.costs.uplinks == records.uplinks[-1]
    assert one.costs.broadcasts == records.broadcasts[-1]

    leaves, structure = jax.tree.flatten(policy)
    again = jax.tree.unflatten(structure, leaves)
    np.testing.assert_array_equal(run(again, key).params, one.params)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_policy_fits_its_workers_and_says_so_of_fewer(name):
    policy = REGISTRY[name](N, S)
    check_policy(policy, N)
    asked = jax.tree.map(np.asarray, jax.jit(policy.decide)(policy.init(), nothing_seen(N))[1])
    if asked.k > 1:  # more than the one worker there would be
        with pytest.raises(ValueError, match=r"policy must .* (worker|code)"):
            check_policy(policy, 1)


def test_traced_counts_are_not_looked_at():
    @jax.jit
    def decided(k):
        policy = stragglers.fixed(k, 2)
        check_policy(policy, N)
        return policy.decide(policy.init(), nothing_seen(N))[1].k

    assert int(decided(9)) == 9


@pytest.mark.slow
def test_seeds_of_every_policy_by_vmap_and_jit():
    keys = jax.random.split(jax.random.key(5), 3)
    for name in ("planned", "sign_test"):
        policy = REGISTRY[name](N, S)
        many = jax.jit(jax.vmap(lambda key, policy=policy: run(policy, key).records))(keys)
        one = run(policy, keys[1]).records
        np.testing.assert_allclose(many.time[1], one.time, rtol=1e-4)
        np.testing.assert_allclose(many.loss[1], one.loss, rtol=1e-3, atol=1e-5)
        assert many.k.dtype == jnp.int32
