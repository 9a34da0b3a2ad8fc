"""Quotas, fixed and learned: what a round is, the best quotas, the plain bandit of ATA."""

from itertools import product

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, traces
from tests.oracles import allocation
from tests.traces.same import assert_same

TIMES = 0.1 + np.random.default_rng(1).exponential(size=(4, 50))


def rounds(counts, times=TIMES, n_updates=8):
    b = sum(counts)
    return traces.asynchronous(
        clocks.recorded(times),
        n_updates=n_updates,
        dispatch=traces.quotas(counts),
        collect=traces.wait_for(b),
        concurrency=b,
    )


@pytest.mark.parametrize("counts", [(1, 1, 1, 1), (3, 2, 0, 1), (5,), (0, 0, 2, 4)])
def test_a_round_is_everybodys_quota_at_one_model(counts):
    trace = rounds(counts)
    full = np.zeros(4, int)
    full[: len(counts)] = counts
    for version in range(8):
        done = np.bincount(trace.worker[trace.version == version], minlength=4)
        np.testing.assert_array_equal(done, full)
    assert trace.used.all()
    assert (trace.delay == 0).all()


def test_a_round_ends_when_the_last_worker_has_done_his_jobs():
    counts, trace, begin = (3, 2, 0, 1), rounds((3, 2, 0, 1)), 0.0
    done = [0, 0, 0, 0]
    for end in trace.time[trace.steps]:
        spans = []
        for i, count in enumerate(counts):
            spans.append(sum(TIMES[i, (done[i] + j) % 50] for j in range(count)))
            done[i] += count
        np.testing.assert_allclose(end, begin + max(spans), rtol=1e-12)
        begin = end


def test_quotas_of_one_are_synchronous():
    trace = rounds((1, 1, 1, 1))
    plain = traces.synchronous(clocks.recorded(TIMES), k=4, n_updates=8)
    assert_same(trace, plain, ("worker", "job", "read_version", "version", "used", "steps"))
    np.testing.assert_allclose(trace.time, plain.time, rtol=1e-12)


def test_a_step_is_along_the_mean_of_the_round(float64):
    curvature = np.arange(1.0, 5.0)[:, None] * np.ones((4, 2))
    problem = problems.quadratic(curvature, np.ones((4, 2)))
    trace = rounds((3, 2, 0, 1), n_updates=5)
    run = simulation.replay(problem, trace, optax.sgd(0.1), key=jax.random.key(0))
    x = np.ones(2)
    for _ in range(5):
        parts = [count * (curvature[i] * x - 1) for i, count in enumerate((3, 2, 0, 1))]
        x = x - 0.1 * sum(parts) / 6
    np.testing.assert_allclose(run.params, x, rtol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_quotas_are_those_of_all_that_there_are(seed):
    rng = np.random.default_rng(seed)
    times, b = rng.exponential(size=3) + 0.05, int(rng.integers(1, 9))
    found = traces.fastest_quotas(times, b)
    assert sum(found) == b
    ends = [max(np.array(a) * times) for a in product(range(b + 1), repeat=3) if sum(a) == b]
    np.testing.assert_allclose(max(np.array(found) * times), min(ends), rtol=1e-12)


def test_even_workers_share_evenly():
    assert traces.fastest_quotas([2.0, 2.0, 2.0], 7) == [3, 2, 2]


N, B, ROUNDS = 4, 9, 30
# Multiples of 1/64: durations are exact, as differences of times too.
EXACT = np.random.default_rng(2).exponential(size=(N, 90)) * np.arange(1.0, N + 1)[:, None]
EXACT = np.ceil(64 * (0.1 + EXACT)) / 64


def made(clock, n_updates=ROUNDS, b=B, **rule):
    return traces.asynchronous(
        clock,
        n_updates=n_updates,
        dispatch=traces.learned_quotas(b, **rule),
        collect=traces.wait_for(b),
        concurrency=b,
    )


def quotas_of(trace):
    counts = np.zeros((trace.n_updates, trace.n_workers), int)
    np.add.at(counts, (trace.version, trace.worker), 1)
    return counts


@pytest.mark.parametrize("scale", [0.0, 0.02, 0.2, 3.0])
def test_rounds_are_those_of_the_plain_bandit(scale):
    trace = made(clocks.recorded(EXACT), scale=scale)
    traces.validate(trace)
    quotas, ends = allocation.rounds(EXACT, B, ROUNDS, allocation.published(scale))
    np.testing.assert_array_equal(quotas_of(trace), quotas)
    np.testing.assert_array_equal(trace.time[trace.steps], ends)
    assert (trace.delay == 0).all()


@pytest.mark.parametrize("times", [[1.0, 2.0, 10.0], [1.0, 1.0, 1.0], [0.5, 0.7, 0.9, 1.1, 30.0]])
def test_on_constant_times_it_finds_the_fastest_quotas(times):
    best = traces.fastest_quotas(times, 8)
    found = quotas_of(made(clocks.constant(times), 20, b=8))
    np.testing.assert_array_equal(found[1:], [best] * 19)
    # With doubt the slow ones are tried again, ever more seldom.
    doubtful = quotas_of(made(clocks.constant(times), 400, b=8, scale=0.02))
    ends = (doubtful * np.array(times)).max(axis=1)
    least = max(np.array(best) * np.array(times))
    assert np.mean(ends[-100:] == least) > 0.9


class Listener:
    """A dispatch of one's own that writes down what it hears."""

    def __init__(self):
        self.heard = []

    def observe(self, worker, duration):
        self.heard.append((worker, duration))

    def __call__(self, deliverers):
        return list(deliverers)


def test_rules_of_ones_own_may_observe():
    listener = Listener()
    rule = traces.Dispatch("listening", lambda n, key: listener)
    trace = traces.asynchronous(clocks.recorded(EXACT), n_updates=20, dispatch=rule)
    expected = list(zip(trace.worker.tolist(), (trace.time - trace.start).tolist(), strict=True))
    assert listener.heard == expected
