"""Policies that look at the clock or the loss, AdaSync too: slow twins, the stall exit."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax.stragglers import Plan, ada_sync, error_triggered, timed
from tests.oracles import policies as oracle
from tests.stragglers.policies.following import chosen, follow, seen

N_UPDATES = 80
N_LOSSES = 60


def made_plan(rng, n_stages, endless=False, load=None):
    """A plan of made numbers: a policy looks at nothing else."""
    updates = rng.uniform(2, 25, n_stages)
    errors = np.sort(rng.uniform(0.1, 5, n_stages + 1))[::-1]
    completion = rng.uniform(0.5, 2, n_stages)
    if endless:
        updates[-1] = np.inf
    ends = np.cumsum(updates * completion)
    return Plan(
        k=np.arange(1, n_stages + 1),
        load=np.full(n_stages, 4.0) if load is None else np.asarray(load, float),
        start_error=errors[:-1],
        end_error=errors[1:],
        start_time=np.append(0.0, ends)[:-1],
        end_time=ends,
        updates=updates,
        completion=completion,
        floor=errors[1:] / 2,
        n_workers=6,
        target=float(errors[-1]),
        reachable=not endless,
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_clock_decides(seed):
    rng = np.random.default_rng(seed)
    stages = made_plan(rng, 3 + seed % 2, endless=seed > 4)
    clock = np.cumsum(rng.exponential(1.0, N_UPDATES) * (1 + 40 * (rng.random(N_UPDATES) < 0.02)))
    choice = chosen(timed(stages), N_UPDATES, time=clock)
    expected = oracle.by_time(stages.end_time, clock.astype(np.float32))
    np.testing.assert_array_equal(choice.stage, expected)
    np.testing.assert_array_equal(choice.k, stages.k[np.array(expected)])
    assert len(set(expected)) > 1


def test_a_stage_is_left_at_its_end_and_several_at_once():
    stages = made_plan(np.random.default_rng(0), 4, load=[1, 2, 4, 8])
    stages.end_time[:] = [2.0, 3.0, 5.0, 9.0]
    clock = [0.0, 1.999, 2.0, 4.0, 4.5, 5.0, 8.0, 9.0, 1e9, 1e9]
    policy = timed(stages)
    choice = chosen(policy, len(clock), time=clock)
    np.testing.assert_array_equal(choice.stage, [0, 0, 1, 2, 2, 3, 3, 3, 3, 3])
    np.testing.assert_array_equal(choice.load[:4], [1, 1, 2, 4])
    assert (policy.max_load, policy.varies_load) == (8, True)


@pytest.mark.parametrize("seed", range(8))
def test_the_error_decides(seed):
    rng = np.random.default_rng(seed)
    stages = made_plan(rng, 3 + seed % 2, endless=seed > 4)
    minimum, patience = rng.uniform(-3, 3), rng.uniform(0.3, 3)
    losses = minimum + 6 * np.exp(-0.04 * np.arange(N_UPDATES)) + rng.normal(0, 0.3, N_UPDATES)
    losses[rng.random(N_UPDATES) < 0.5] = np.nan
    losses[0] = np.nan
    policy = error_triggered(stages, patience=patience, minimum=minimum)
    choice = chosen(policy, N_UPDATES, loss=losses)
    expected = oracle.by_error(stages.end_error, stages.updates, losses, patience, minimum)
    np.testing.assert_array_equal(choice.stage, expected)
    assert expected[-1] > 0


def test_a_stage_whose_error_is_never_reached_ends_by_patience():
    stages = made_plan(np.random.default_rng(2), 3, endless=True)
    stages.updates[:2] = [4.0, 6.5]
    for losses in (np.full(N_UPDATES, 99.0), np.full(N_UPDATES, np.nan)):
        choice = chosen(error_triggered(stages, patience=2.0), N_UPDATES, loss=losses)
        np.testing.assert_array_equal(np.flatnonzero(np.diff(choice.stage)) + 1, [8, 21])
        choice = chosen(error_triggered(stages, patience=math.inf), N_UPDATES, loss=losses)
        assert not choice.stage.any()


def test_patience_may_be_traced_and_mapped():
    stages = made_plan(np.random.default_rng(2), 3)
    stages.updates[:] = [4.0, 5.0, 6.0]
    observations = seen(N_UPDATES, loss=np.full(N_UPDATES, 99.0))

    @jax.jit
    @jax.vmap
    def first_switch(patience):
        stage = follow(error_triggered(stages, patience=patience), observations)[1].stage
        return jnp.argmax(stage > 0)

    np.testing.assert_array_equal(first_switch(jnp.array([0.5, 1.0, 3.0])), [2, 4, 12])


@pytest.mark.parametrize("seed", range(8))
def test_ada_sync_against_its_twin(seed):
    rng = np.random.default_rng(seed)
    k, n_workers, minimum = int(rng.integers(1, 5)), int(rng.integers(5, 40)), rng.uniform(-2, 2)
    losses = minimum + 9 * np.exp(-0.15 * np.arange(N_LOSSES)) * rng.uniform(0.5, 1.5, N_LOSSES)
    losses[rng.random(N_LOSSES) < 0.3] = np.nan
    losses[rng.random(N_LOSSES) < 0.05] = np.inf
    if seed == 7:
        losses[40] = minimum - 0.1
    patience = None if seed % 2 else int(rng.integers(3, 9))
    policy = ada_sync(k, 4, n_workers=n_workers, minimum=minimum, patience=patience)
    choice = chosen(policy, N_LOSSES, loss=losses)
    expected = oracle.by_loss(k, n_workers, losses, minimum, patience or math.inf)
    np.testing.assert_array_equal(choice.k, [count for count, _ in expected])
    np.testing.assert_array_equal(choice.stage, [stalls for _, stalls in expected])
    assert (np.asarray(choice.load) == 4).all()


def test_a_loss_that_stands_still_asks_for_more_workers():
    losses = np.full(N_LOSSES, 3.0)
    choice = chosen(ada_sync(2, n_workers=6, patience=10), N_LOSSES, loss=losses)
    np.testing.assert_array_equal(choice.k, np.minimum(2 + np.arange(N_LOSSES) // 10, 6))
    unseen = chosen(ada_sync(2, n_workers=6, patience=10), N_LOSSES)
    np.testing.assert_array_equal(unseen.k, choice.k)
    still = chosen(ada_sync(2, n_workers=6), N_LOSSES, loss=losses)
    assert (np.asarray(still.k) == 2).all()
