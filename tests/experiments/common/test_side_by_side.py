"""Instances run side by side are what each of them is alone."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, traces
from experiments.common.side_by_side import moved, side_by_side

N = 3


def instance(seed, *, rows=None, batch=None):
    """Logistic regression with shards of unequal size and a start of its own."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(24, 4)) if rows is None else rows
    labels = np.arange(24) % 2
    shards = problems.dirichlet(
        np.arange(24) % 3, N, alpha=0.5, key=jax.random.key(seed), minimum=2
    )
    start = generator.normal(size=4)
    return problems.logistic(
        features, labels, n_workers=N, l2=0.1, batch=batch, shards=shards, start=start
    )


def trace_of(seed, dispatch):
    clock = clocks.exponential([1.0, 2.0, 4.0])
    return traces.asynchronous(clock, n_updates=30, dispatch=dispatch, key=jax.random.key(seed))


@pytest.mark.parametrize("batch", [None, problems.cyclic(2)])
def test_each_instance_ends_where_it_ends_alone(batch, float64):
    parts = [instance(seed, batch=batch) for seed in range(3)]
    assert len({part.data.rows.shape for part in parts}) > 1  # so some are padded
    runs = [trace_of(seed, traces.shuffled()) for seed in range(3)]
    steps, keys = [0.1, 0.3], jax.random.split(jax.random.key(0), 3)
    both = simulation.sweep(
        side_by_side(parts),
        [moved(trace, number, N) for number, trace in enumerate(runs)],
        optax.sgd,
        steps,
        keys=keys,
    )
    for number, (part, trace) in enumerate(zip(parts, runs, strict=True)):
        for at, step in enumerate(steps):
            alone = simulation.replay(part, trace, optax.sgd(step)).params
            ends = part.params + both.params[number, at]
            np.testing.assert_allclose(ends, alone, atol=1e-12)


def test_rows_that_are_shared_are_held_once():
    """They may be handed over as arrays of JAX, which a problem keeps."""
    assert side_by_side([instance(0), instance(1)]).data.samples.features.shape == (48, 4)
    rows = jnp.ones((24, 4))
    parts = [instance(seed, rows=rows) for seed in range(2)]
    assert side_by_side(parts).data.samples.features.shape == (24, 4)


def test_rounds_that_stop_jobs_are_moved_too():
    clock = clocks.exponential([1.0, 2.0, 4.0])
    trace = traces.synchronous(clock, k=2, n_updates=5, key=jax.random.key(0))
    there = moved(trace, 4, N)
    traces.validate(there)
    assert set(there.worker.tolist()) <= {12, 13, 14}
    assert traces.summarize(there).cancelled == traces.summarize(trace).cancelled > 0
    np.testing.assert_array_equal(there.delay, trace.delay)


def test_what_differs_in_more_is_refused():
    with pytest.raises(ValueError, match="differ in rows, shards and start alone"):
        side_by_side([instance(0), instance(0, batch=problems.cyclic(2))])
    with pytest.raises(ValueError, match="one or more problems"):
        side_by_side([])
