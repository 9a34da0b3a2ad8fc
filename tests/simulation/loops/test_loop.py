"""Long runs: progress, failures, what optimizers and idle lanes may do."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.simulation import loop
from tests.simulation.shared import quadratic, trace_of


@pytest.mark.slow
def test_progress_is_reported():
    problem, _ = quadratic()
    trace, optimizer = trace_of("shuffled", n_updates=200), optax.adam(0.05)
    seen = []
    simulation.replay(problem, trace, optimizer, progress=seen.append)
    assert seen[-1].updates == seen[-1].n_updates == 200
    assert seen[-1].time == trace.time[-1]
    assert [p.updates for p in seen] == sorted(p.updates for p in seen)


def test_divergence_is_recorded_and_raised():
    problem, _ = quadratic()
    run = simulation.replay(
        problem, trace_of("pure", n_updates=400), optax.sgd(60.0), record_every=1
    )
    finite = np.asarray(run.records.finite)
    assert finite[0]
    assert not finite[-1]
    first = int(run.records.version[np.argmin(finite)])
    with pytest.raises(FloatingPointError, match=f"not finite at version {first};"):
        run.raise_if_failed()


@pytest.mark.slow
def test_overflow_of_a_step_rules_history_is_raised():
    problem, _ = quadratic()
    trace = traces.asynchronous(clocks.constant([1.0, 40.0]), n_updates=90)
    rule = optax.chain(steps.scale_by_adaptive_1(0.2, max_delay=8), optax.scale(-1.0))
    run = simulation.replay(problem, trace, rule)
    assert int(run.delay_overflows) == np.sum(trace.delay > 8)
    with pytest.raises(OverflowError, match="max_delay"):
        run.raise_if_failed()
    simulation.replay(problem, trace, optax.sgd(0.05)).raise_if_failed()


@pytest.mark.slow
def test_waves_of_padding_never_leak_nan():
    def gradient(params, worker, job, key):
        # Worker 0 at job 0 is what an idle lane would compute: it must not matter.
        bad = (worker == 0) & (job == 0)
        return jnp.where(bad, np.nan, 0.0), jnp.where(bad, np.nan, params)

    problem, clock = problems.from_gradient(jnp.ones(2), gradient), [500.0, 1.0, 2.0, 3.5]
    for collect in (traces.immediately(), traces.buffered(3)):
        trace = traces.asynchronous(clocks.constant(clock), n_updates=40, collect=collect)
        run = simulation.replay(problem, trace, optax.sgd(0.01), width=8)
        assert bool(run.records.finite.all())


@pytest.mark.slow
def test_optimizers_are_compared_by_their_functions_and_by_whether_they_take_extras():
    def init(params):
        return jnp.zeros((), jnp.int32)

    def update(updates, state, params=None, delay=-1, **_):
        return jax.tree.map(jnp.negative, updates), jnp.asarray(delay, jnp.int32)

    problem, _ = quadratic()
    trace = traces.synchronous(clocks.constant([1.0, 2.0]), k=2, n_updates=3)
    plain = optax.GradientTransformation(init, update)
    extended = optax.GradientTransformationExtraArgs(init, update)
    assert plain == extended
    for options in ({}, {"progress": lambda _: None}):
        for optimizer, seen in ((extended, 0), (plain, -1), (extended, 0)):
            run = simulation.replay(problem, trace, optimizer, **options)
            assert int(run.opt_state) == seen
    sizes = loop._whole._cache_size()
    simulation.replay(problem, trace, optax.GradientTransformation(init, update))
    assert loop._whole._cache_size() == sizes
