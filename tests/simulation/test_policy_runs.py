"""Runs of policies.

Against a plain loop, against replayed traces, vmapped, compiled once.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, stragglers, traces
from asyncjax.simulation import loop
from asyncjax.simulation.update import job_key
from asyncjax.stragglers.times.response_times import sample_times
from tests.oracles import policy_runs as oracle

N, S, D, STEP = 6, 8, 3, 0.05
KEY = jax.random.key(7)
rng = np.random.default_rng(0)
FEATURES = rng.standard_normal((N * S, D))
TARGETS = FEATURES @ np.arange(1.0, D + 1) + 0.3 * rng.standard_normal(N * S)


def linear():
    return problems.least_squares(FEATURES, TARGETS, n_workers=N)


def laws(scaling="scale"):
    return stragglers.response(
        compute=clocks.exponential(0.2),
        communicate=clocks.exponential(1.0),
        scaling=scaling,
        n_workers=N,
    )


def run(policy, times=None, n_updates=40, key=KEY, problem=None, **kwargs):
    return simulation.run_policy(
        linear() if problem is None else problem,
        laws() if times is None else times,
        policy,
        optax.sgd(STEP),
        n_updates=n_updates,
        key=key,
        **kwargs,
    )


def plain(decide, n_updates=40):
    """The twin on the draws of the same key."""
    drawn = laws().times(jax.random.split(KEY)[0], n_updates)
    apart, one = np.asarray(drawn.download), np.asarray(drawn.compute)

    def permutation(worker, update):
        draw = problems.without_replacement(S)
        return np.asarray(draw(jnp.int32(S), S, 0, job_key(KEY, worker, update))[0])

    return oracle.run(
        FEATURES.reshape(N, S, D),
        TARGETS.reshape(N, S),
        permutation,
        lambda worker, update: (apart[worker, update], one[worker, update]),
        decide,
        STEP,
        n_updates,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_stages_of_k_and_load_against_a_plain_loop():
    policy = stragglers.staged(k=[1, 3, 2, N], load=[2, 5, 1, S], updates=[9.6, 10, 10.2, 5])
    ends = [10, 20, 30]  # round(9.6), round(19.6), round(29.8)

    def decide(j, history):
        stage = sum(j >= end for end in ends)
        return [1, 3, 2, N][stage], [2, 5, 1, S][stage]

    final, history = plain(decide)
    got = run(policy)
    np.testing.assert_allclose(got.params, final, rtol=1e-12)
    columns = ("time", "loss", "k", "load", "uplinks", "broadcasts")
    for column in (*columns, "samples_assigned", "samples_used", "samples_done"):
        expected = [row[column.removeprefix("samples_")] for row in history]
        np.testing.assert_allclose(getattr(got.records, column), expected, rtol=1e-12)
    assert got.records.version.tolist() == list(range(1, 41))
    trace = traces.validate(got.trace)
    arrivals = [entry for row in history for entry in row["arrivals"]]
    np.testing.assert_allclose(trace.time, [time for time, _ in arrivals], rtol=1e-12)
    assert trace.worker.tolist() == [worker for _, worker in arrivals]
    assert trace.delay.max() == 0
    costs = got.costs
    assert (costs.uplinks, costs.broadcasts) == (history[-1]["uplinks"], N * 40)
    assert got.raise_if_failed() is got


@pytest.mark.slow
def test_synchronous_rounds_are_their_policy():
    """A policy in a rule is itself, numbers in it a fixed policy; in pieces as at once."""
    staged = stragglers.staged([1, 4], [2, 5], [7, np.inf])
    pairs = [
        (traces.Synchronous(k=staged), staged),
        (traces.Synchronous(k=3, load=4.0), stragglers.fixed(3, 4)),
        (traces.Synchronous(2), stragglers.fixed(2)),
    ]
    for rule, policy in pairs:
        told = []
        one, other = run(rule, n_updates=15, progress=told.append), run(policy, n_updates=15)
        assert told[-1] == simulation.Progress(15, 15, float(other.records.time[-1]))
        for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(left, right)
        assert one.trace.n_updates == 15
        assert one.records.k[-1] == (4 if rule.k is staged else rule.k)
        assert one.records.load[-1] == (5 if rule.k is staged else rule.load)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_what_a_policy_gets_to_see():
    final, history = plain(lambda j, _: (2, 4), n_updates=12)

    def decide(state, observation):
        stored = jax.tree.map(
            lambda rows, new: rows.at[observation.update].set(new), state, observation
        )
        return stored, stragglers.Choice(2, jnp.asarray(4.0), observation.update // 4)

    def init():
        first = stragglers.nothing_seen(N)
        return jax.tree.map(lambda leaf: jnp.zeros((12, *leaf.shape), leaf.dtype), first)

    got = run(stragglers.Policy(init, decide, 4), n_updates=12, record_every=3)
    seen = got.policy_state
    np.testing.assert_array_equal(seen.update, np.arange(12))
    for name in ("time", "agreement", "distance"):
        expected = [row[name] for row in history[:-1]]
        np.testing.assert_allclose(getattr(seen, name)[1:], expected, rtol=1e-10)
    assert np.isnan(seen.agreement[:2]).all()
    recorded = np.isfinite(seen.loss)
    assert np.flatnonzero(recorded).tolist() == [3, 6, 9]
    np.testing.assert_allclose(seen.loss[recorded], [history[j]["loss"] for j in (2, 5, 8)])
    assert (np.isfinite(seen.response).sum(1) == [0] + [2] * 11).all()
    np.testing.assert_array_equal(np.isfinite(seen.response), seen.used)
    longest = np.where(seen.used, seen.response, 0).max(1)
    np.testing.assert_allclose(longest[1:], np.diff(seen.time), rtol=1e-9)
    np.testing.assert_allclose(got.params, final, rtol=1e-12)
    models = [np.zeros(D), *(row["params"] for row in history)]
    begun = [models[4 * ((j - 1) // 4)] for j in range(1, 12)]  # where the stage began
    expected = [((x - start) ** 2).sum() for x, start in zip(models[1:12], begun, strict=True)]
    np.testing.assert_allclose(seen.stage_distance[1:], expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("k", [1, 4, N])
def test_a_fixed_policy_is_the_replay_of_a_synchronous_trace(k):
    clock = clocks.communicating(
        clocks.exponential(np.linspace(0.5, 1, N)), upload=clocks.gamma(2, 1.0)
    )
    trace = traces.synchronous(clock, k=k, n_updates=20, load=float(S), key=KEY)
    replayed = simulation.replay(linear(), trace, optax.adam(STEP), record_every=1, key=KEY)
    got = simulation.run_policy(
        linear(), clock, stragglers.fixed(k, S), optax.adam(STEP), n_updates=20, key=KEY
    )
    np.testing.assert_allclose(got.params, replayed.params, rtol=1e-12)
    np.testing.assert_allclose(got.records.time, replayed.records.time, rtol=1e-12)
    np.testing.assert_allclose(got.records.loss, replayed.records.loss, rtol=1e-12)
    np.testing.assert_array_equal(got.records.computed, replayed.records.computed)
    for mine, theirs in zip(got.trace[:9], trace[:9], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    for mine, theirs in zip(got.trace.cancelled, trace.cancelled, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert got.costs == replayed.costs


@pytest.mark.slow
def test_a_larger_load_only_adds_rows_and_takes_longer():
    few, many = (run(stragglers.fixed(N, load), n_updates=5) for load in (2, 4))
    apart = np.asarray(laws().times(jax.random.split(KEY)[0], 5).download)
    order = np.argsort(np.asarray(few.rounds.worker), axis=1)
    other = np.argsort(np.asarray(many.rounds.worker), axis=1)
    slow = np.take_along_axis(np.asarray(few.rounds.response), order, 1) - apart.T
    slower = np.take_along_axis(np.asarray(many.rounds.response), other, 1) - apart.T
    np.testing.assert_allclose(slower, 2 * slow, rtol=1e-4)


@pytest.mark.slow
def test_seeds_by_vmap_are_the_seeds_one_by_one():
    policy = stragglers.staged([1, 3], [2, 5], [8, 1])
    keys = jax.random.split(jax.random.key(1), 100)
    many = jax.vmap(lambda key: run(policy, key=key, n_updates=15))(keys)
    assert many.records.loss.shape == (100, 15)
    for seed in (0, 57):
        one = run(policy, key=keys[seed], n_updates=15)
        picked = jax.tree.map(lambda leaf, seed=seed: leaf[seed], many)
        np.testing.assert_allclose(picked.params, one.params, rtol=1e-5)
        np.testing.assert_array_equal(picked.rounds.worker, one.rounds.worker)
        np.testing.assert_allclose(picked.trace.time, one.trace.time, rtol=1e-6)
    with pytest.raises(ValueError, match="several"):
        _ = many.trace


@pytest.mark.slow
def test_stages_and_laws_are_arguments_of_one_compiled_loop():
    optimizer = optax.sgd(STEP)
    problem = linear()

    def final(k, load, updates, mean):
        times = stragglers.response(compute=clocks.exponential(mean), n_workers=N)
        policy = stragglers.staged(k, load, updates, max_load=S)
        return simulation.run_policy(
            problem, times, policy, optimizer, n_updates=10, key=KEY
        ).records.time[-1]

    final([1, 2], [2, 3], [4, 4], 1.0)
    compiled = loop._whole._cache_size()
    longer = final([2, 4], [3, 8], [5, 1], 2.0)
    assert loop._whole._cache_size() == compiled
    times = jax.jit(final)(
        jnp.array([2, 4]), jnp.array([3.0, 8.0]), jnp.array([5.0, 1.0]), jnp.float32(2.0)
    )
    np.testing.assert_allclose(times, longer, rtol=1e-5)


@pytest.mark.slow
def test_the_trace_inside_compiled_code_is_padded():
    policy = stragglers.staged([1, 3], 4, [2, 1])
    inside = jax.jit(lambda key: run(policy, key=key, n_updates=4).trace)(KEY)
    host = run(policy, n_updates=4).trace
    assert inside.time.shape == (4 * N,)
    used = np.asarray(inside.used)
    for name in ("time", "worker", "job", "read_version", "version", "steps", "weight", "start"):
        got = np.asarray(getattr(inside, name))[used]
        np.testing.assert_allclose(got, getattr(host, name), rtol=1e-5)
    traces.validate(inside._replace(n_workers=N))


@pytest.mark.slow
def test_costs_that_are_no_counts_keep_their_digits():
    times = stragglers.response(compute=clocks.constant(0.1), n_workers=2)
    problem = problems.quadratic(np.ones((2, 1)), np.ones((2, 1)))
    got = run(stragglers.fixed(1, 1), times, n_updates=50000, record_every=50000, problem=problem)
    assert float(got.records.time[-1]) == pytest.approx(5000.0, rel=3e-7)
    assert float(got.records.samples_assigned[-1]) == 100000


@pytest.mark.slow
def test_a_choice_that_cannot_be_is_counted():
    def decide(state, observation):
        return state, stragglers.Choice(observation.update - 1, jnp.float32(99), jnp.int32(0))

    got = run(stragglers.Policy(lambda: (), decide, 4), n_updates=9)
    assert got.records.out_of_range[-1] == 9
    assert got.records.load.tolist() == [4] * 9
    assert got.records.k.tolist() == [1, 1, 1, 2, 3, 4, 5, 6, 6]
    with pytest.raises(OverflowError, match="9 updates"):
        got.raise_if_failed()


@pytest.mark.slow
def test_problems_without_samples_take_constant_loads_only():
    problem = problems.quadratic(np.ones((N, 2)), np.arange(2.0 * N).reshape(N, 2))
    got = run(stragglers.fixed(2, 3), problem=problem, n_updates=5)
    assert float(got.records.samples_assigned[-1]) == 5 * N * 3
    with pytest.raises(ValueError, match="varies the load"):
        run(stragglers.staged(1, [1, 2], 3), problem=problem)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_coded_gradients_are_the_full_gradient_whoever_is_late():
    code = stragglers.cyclic_code(N, 2)
    policy = stragglers.gradient_coding(code, S, tolerated=2)
    coded = run(policy, n_updates=15)
    full = run(stragglers.fixed(N, S), n_updates=15)
    np.testing.assert_allclose(coded.params, full.params, rtol=1e-9)
    assert coded.records.uplinks[-1] == 15 * (N - 2)
    weights, workers = coded.trace.weight.reshape(15, -1), coded.trace.worker.reshape(15, -1)
    np.testing.assert_allclose(np.einsum("ti,tij->tj", weights, code[workers]), 1 / N, rtol=1e-5)
    assert coded.records.samples_assigned[-1] == 15 * N * 3 * S


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("scaling", ["scale", "additive"])
def test_workers_that_stop_weigh_what_they_have_done(scaling):
    times, limit = laws(scaling), 0.7
    policy = stragglers.drop_compute(limit, 5, n_workers=N)
    got = run(policy, times, n_updates=6)
    key = jax.random.split(KEY)[0]
    x, clock, used = np.zeros(D), 0.0, 0
    features, targets = FEATURES.reshape(N, S, D), TARGETS.reshape(N, S)
    draw = problems.without_replacement(S)
    for j in range(6):
        apart, done_at = map(np.asarray, sample_times(times, key, j, 5))
        counts = (done_at <= limit).sum(1)
        direction = np.zeros(D)
        for i in range(N):
            rows = np.asarray(draw(jnp.int32(S), S, 0, job_key(KEY, i, j))[0])[: counts[i]]
            direction += (features[i, rows] @ x - targets[i, rows]) @ features[i, rows]
        x = x - STEP * direction / max(counts.sum(), 1)
        clock += (apart + np.minimum(done_at[:, -1], limit)).max()
        used += counts.sum()
    np.testing.assert_allclose(got.params, x, rtol=1e-12)
    assert float(got.records.time[-1]) == pytest.approx(clock, rel=1e-12)
    assert float(got.records.samples_used[-1]) == used
    assert 0 < used < 6 * N * 5
    assert float(got.records.samples_done[-1]) == pytest.approx(used, abs=6 * N)


@pytest.mark.slow
def test_only_a_chosen_crew_gets_work():
    def decide(state, observation):
        workers = jnp.arange(N) % 2 == observation.update % 2
        return state, stragglers.Choice(2, 4.0, 0, workers=workers)

    got = run(stragglers.Policy(lambda: (), decide, 4), n_updates=6)
    trace = traces.validate(got.trace)
    assert ((trace.worker - trace.version) % 2 == 0).all()
    assert got.records.broadcasts[-1] == 6 * 3
    assert got.costs.gradients_cancelled == 6
    assert float(got.records.samples_assigned[-1]) == 6 * 3 * 4


def test_a_gradient_that_fails_at_a_worker_that_is_not_used_does_no_harm():
    def gradient(params, worker, job, key):
        loss = jnp.where(worker == N - 1, jnp.nan, jnp.sum(params**2) / 2)
        return loss, params + jnp.where(worker == N - 1, jnp.nan, 0.0)

    problem = problems.from_gradient(jnp.ones(2), gradient, n_workers=N)
    times = stragglers.response(compute=clocks.constant(np.arange(1.0, N + 1)), n_workers=N)
    got = run(stragglers.fixed(N - 1), times, n_updates=5, problem=problem)
    np.testing.assert_allclose(got.params, (1 - STEP) ** 5, rtol=1e-6)
    assert np.isfinite(got.records.loss).all()
