"""Sweeps equal single replays; compilations are shared."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, traces
from asyncjax.simulation.memory import memory
from asyncjax.simulation.program import sizes_of
from tests.simulation.shared import quadratic, trace_of

STEPS = [0.02, 0.05, 0.1]


def noisy(counter=None):
    def gradient(params, worker, job, key):
        if counter is not None:
            counter.append(1)
        noise = 0.1 * jax.random.normal(key, params.shape)
        return jnp.sum(params**2), params * (1.0 + 0.1 * worker) - 1.0 + noise

    return problems.from_gradient(jnp.ones(3), gradient, objective=lambda x: jnp.sum(x**2))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["shuffled", "wait for 2", "ringleader"])
def test_seeds_with_traces_of_their_own(rule):
    problem = noisy()
    keys = jax.random.split(jax.random.key(0), 3)
    made = [trace_of(rule, seed=seed) for seed in range(3)]
    run = simulation.sweep(problem, made, optax.sgd, STEPS, keys=keys, record_every=20)
    assert run.records.loss.shape == (3, 3, 3)
    for s, trace in enumerate(made):

        @jax.jit
        def single(step, key, trace=trace):
            rule = optax.sgd(step)
            alone = simulation.replay(problem, trace, rule, key=key, record_every=20)
            return alone.params, alone.records.loss

        for g, step in enumerate(STEPS):
            params, loss = single(step, keys[s])
            np.testing.assert_allclose(run.params[s, g], params, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(run.records.loss[s, g], loss, rtol=1e-5)
        made_at = trace.time[np.flatnonzero(trace.steps)]
        np.testing.assert_array_equal(run.records.time[s, 0], made_at[[19, 39, 59]])
    with pytest.raises(ValueError, match="holds 3 traces"):
        _ = run.trace
    assert len(run.source.costs) == 3


@pytest.mark.slow
def test_one_trace_for_all_seeds():
    problem = noisy()
    keys = jax.random.split(jax.random.key(1), 2)
    trace = trace_of("pure")
    run = simulation.sweep(problem, trace, optax.sgd, STEPS, keys=keys)
    alone = simulation.replay(problem, trace, optax.sgd(STEPS[2]), key=keys[1])
    np.testing.assert_allclose(run.params[1, 2], alone.params, rtol=1e-5, atol=1e-6)
    assert run.records.time.shape == run.records.loss.shape[2:]
    assert run.trace is trace


@pytest.mark.slow
def test_a_second_call_and_ten_traces_of_one_law_compile_once():
    traced = []
    problem = noisy(traced)
    optimizer = optax.sgd(0.05)
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(16)))
    key = jax.random.key(0)
    made = [
        traces.asynchronous(clock, n_updates=400, key=jax.random.fold_in(key, s)) for s in range(10)
    ]
    simulation.replay(problem, made[0], optimizer)
    before = len(traced)
    simulation.replay(problem, made[0], optimizer)
    assert len(traced) == before, "the second call of the same run compiled something"
    for trace in made[1:]:
        simulation.replay(problem, trace, optimizer, key=key)
    assert len(traced) == before, "a trace of the same law compiled something"


@pytest.mark.slow
def test_same_key_same_bits_and_other_key_other_bits():
    problem, trace = noisy(), trace_of("random")
    optimizer = optax.sgd(0.05)
    runs = [
        simulation.replay(problem, trace, optimizer, key=jax.random.key(k)).params
        for k in (0, 0, 1)
    ]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    again = [trace_of("random", seed=seed) for seed in (0, 0, 1)]
    assert np.array_equal(again[0].time, again[1].time)
    assert not np.array_equal(again[0].time, again[2].time)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([0.1, np.nan], "step_sizes must be at least 0 and finite"),
        ([], "non-empty"),
        ([[0.1]], "non-empty"),
    ],
)
def test_bad_step_sizes(steps, message):
    problem, _ = quadratic()
    keys = jax.random.split(jax.random.key(0), 1)
    with pytest.raises(ValueError, match=message):
        simulation.sweep(problem, trace_of("pure"), optax.sgd, steps, keys=keys)


def test_wrong_number_of_traces():
    problem, _ = quadratic()
    two = [trace_of("pure", seed=s) for s in range(2)]
    with pytest.raises(ValueError, match="one trace or one a key"):
        simulation.sweep(
            problem, two, optax.sgd, [0.1], keys=jax.random.split(jax.random.key(0), 3)
        )


def test_memory_is_stated_and_refused():
    problem, _ = quadratic()
    trace = trace_of("pure")
    made = simulation.plan(trace)
    stated = memory(problem.params, sizes_of([made]))
    assert stated.total == stated.versions + stated.directions + stated.recorded + stated.lanes
    simulation.replay(
        problem, trace, optax.sgd(0.05), execution=simulation.Execution(memory_limit=stated.total)
    )
    with pytest.raises(MemoryError, match=r"memory_limit is .* but 1 run\(s\) keep .*versions"):
        simulation.replay(
            problem,
            trace,
            optax.sgd(0.05),
            execution=simulation.Execution(memory_limit=stated.total - 1),
        )
    keys, limit = jax.random.split(jax.random.key(0), 2), 5 * stated.total
    with pytest.raises(MemoryError, match=r"6 run\(s\)"):
        simulation.sweep(
            problem,
            trace,
            optax.sgd,
            STEPS,
            keys=keys,
            execution=simulation.Execution(memory_limit=limit),
        )


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 9000])
def test_the_optimizer_of_a_sweep_sees_the_callers_pytree(size):
    start = {"w": jnp.ones((size, 2)), "b": jnp.zeros(2)}

    def gradient(params, worker, job, key):
        return jnp.sum(params["b"]), jax.tree.map(lambda leaf: 0.5 * leaf + worker, params)

    problem = problems.from_gradient(start, gradient, objective=lambda p: jnp.sum(p["w"] ** 2))

    def rule(step):
        decay = optax.add_decayed_weights(0.1, mask={"w": True, "b": False})
        return optax.chain(decay, optax.adam(step))

    trace = trace_of("pure", n_updates=20)
    keys = jax.random.split(jax.random.key(0), 1)
    run = simulation.sweep(problem, trace, rule, [0.01, 0.1], keys=keys)
    alone = simulation.replay(problem, trace, rule(0.1), key=keys[0], width=3)
    for a, b in zip(jax.tree.leaves(run.params), jax.tree.leaves(alone.params), strict=True):
        np.testing.assert_allclose(a[0, 1], b, rtol=1e-5, atol=1e-6)
    states = zip(jax.tree.leaves(run.opt_state), jax.tree.leaves(alone.opt_state), strict=True)
    assert all(a[0, 1].shape == b.shape for a, b in states)


def roomy(own):
    """Sizes that hold the traces of these tests."""
    return replace(
        own,
        waves=max(own.waves, 320),
        updates=max(own.updates, 320),
        slots=max(own.slots, 10),
        directions=max(own.directions, 5),
        group=max(own.group, 10),
        single=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("several", [True, False])
def test_sweeps_of_common_sizes_share_a_compilation(several):
    traced = []
    problem, keys = noisy(traced), jax.random.split(jax.random.key(0), 2)

    def swept(rule, sizes):
        made = [trace_of(rule, seed=seed) for seed in range(2)]
        given = made if several else made[0]
        return simulation.sweep(
            problem, given, optax.sgd, STEPS, keys=keys, record_every=20, width=1, sizes=sizes
        )

    rules = ("pure", "shuffled", "wait for 2", "ringmaster 4")
    common = [swept(rules[0], roomy)]
    before = len(traced)
    common += [swept(rule, roomy) for rule in rules[1:]]
    assert len(traced) == before
    for rule, run in zip(rules, common, strict=True):
        own = swept(rule, None)
        for a, b in zip(jax.tree.leaves(run), jax.tree.leaves(own), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda own: replace(own, slots=1), ValueError, "hold the traces, which need slots=.*=1"),
        (lambda own: replace(own, width=2), ValueError, "need width=1, got width=2"),
        (lambda own: replace(own, waves=9.5), TypeError, "waves must be an integer"),
    ],
)
def test_sizes_that_do_not_hold_the_traces(change, error, message):
    problem, keys = noisy(), jax.random.split(jax.random.key(0), 1)
    with pytest.raises(error, match=message):
        simulation.sweep(
            problem, trace_of("pure"), optax.sgd, STEPS, keys=keys, width=1, sizes=change
        )
