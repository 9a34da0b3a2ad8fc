"""Every loop hands the optimizer the job that made the update, and that job's key."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import simulation
from tests.simulation.shared import quadratic, trace_of

T = 60


class Probe(NamedTuple):
    count: jax.Array
    worker: jax.Array
    job: jax.Array
    key: jax.Array


def probe(step):
    """SGD that writes down which job it was handed, and the data of its key."""

    def init(params):
        blank = jnp.zeros(T, jnp.int32)
        return Probe(jnp.int32(0), blank, blank, jnp.zeros((T, 2), jnp.uint32))

    def update(updates, state, params=None, *, worker, job, key, **_):
        assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        assert jnp.asarray(job).dtype == jnp.int32
        k = state.count
        state = Probe(
            k + 1,
            state.worker.at[k].set(worker),
            state.job.at[k].set(job),
            state.key.at[k].set(jax.random.key_data(key)),
        )
        return -step * updates, state

    return optax.GradientTransformationExtraArgs(init, update)


def expected(trace, key):
    """Jobs and keys of the definition."""
    ends = np.flatnonzero(trace.steps)
    fold = jax.random.fold_in
    keys = jax.vmap(lambda w, j: fold(fold(key, w), j))(trace.worker[ends], trace.job[ends])
    return trace.job[ends], np.asarray(jax.random.key_data(keys))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["shuffled", "ringmaster 4", "ringleader"])
def test_job_and_key_are_those_of_the_arrival_that_made_the_update(rule):
    problem, _ = quadratic()
    made = [trace_of(rule, seed=seed) for seed in range(2)]
    keys = jax.random.split(jax.random.key(5), 2)
    alone = probe(0.05)
    for s, trace in enumerate(made):
        jobs, data = expected(trace, keys[s])
        for options in ({}, {"waves": False}, {"progress": lambda _: None})[: 3 if s else 2]:
            run = simulation.replay(problem, trace, alone, key=keys[s], **options)
            np.testing.assert_array_equal(run.opt_state.job, jobs)
            np.testing.assert_array_equal(run.opt_state.key, data)
    if rule == "ringmaster 4":
        return
    seen = simulation.sweep(problem, made, probe, [0.01, 0.05], keys=keys).opt_state
    for s in range(2):
        jobs, data = expected(made[s], keys[s])
        for g in range(2):
            np.testing.assert_array_equal(seen.job[s, g], jobs)
            np.testing.assert_array_equal(seen.key[s, g], data)
