"""Collection by buckets: BASGD's loop, its limits, robust steps along it, live the same."""

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles import basgd
from tests.oracles.problems import quadratic_data
from tests.traces.same import assert_same

N, D = 5, 3
CURVATURE, LINEAR = quadratic_data(N, D)
TIMES = 0.1 + np.random.default_rng(4).exponential(size=(N, 60)) * np.arange(1.0, N + 1)[:, None]
NAMES = ("time", "worker", "job", "read_version", "version", "used", "steps")


def made(n_buckets, n_updates=40, times=TIMES, **rules):
    rule = traces.every_bucket(n_buckets)
    return traces.asynchronous(clocks.recorded(times), n_updates=n_updates, collect=rule, **rules)


def gradient(x, worker):
    return CURVATURE[worker] * x - LINEAR[worker]


def trimmed(h):
    cut = int(0.3 * len(h))
    return np.sort(h, axis=0)[cut : len(h) - cut].mean(axis=0)


AGGREGATES = {
    "mean": (steps.mean(), lambda h: h.mean(axis=0)),
    "median": (steps.median(), lambda h: np.median(h, axis=0)),
    "trimmed mean": (steps.trimmed_mean(0.3), trimmed),
}


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("n_buckets", [1, 2, 3, 5])
@pytest.mark.parametrize("grid", [None, 1.0])
def test_models_are_those_of_the_plain_algorithm(float64, aggregate, n_buckets, grid):
    times = TIMES if grid is None else np.ceil(TIMES)  # ties
    ours, plain = AGGREGATES[aggregate]
    expected, rows = basgd.train(times, n_buckets, 40, gradient, plain, np.ones(D), 0.05)
    trace = made(n_buckets, times=times)
    traces.validate(trace)
    time, worker, step = zip(*rows, strict=True)
    np.testing.assert_array_equal(trace.time, time)
    np.testing.assert_array_equal(trace.worker, worker)
    np.testing.assert_array_equal(trace.steps, step)
    problem = problems.quadratic(CURVATURE, LINEAR)
    for waves in (True, False):
        run = simulation.replay(
            problem,
            trace,
            simulation.Update(optax.sgd(0.05), aggregator=steps.bucketed(n_buckets, ours)),
            key=jax.random.key(0),
            waves=waves,
        )
        np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)


def test_one_bucket_is_the_pure_rule():
    plain = traces.asynchronous(clocks.recorded(TIMES), n_updates=40)
    assert_same(made(1), plain, (*NAMES, "weight"))


def test_as_many_as_workers_wait_for_everybody():
    """The same arrivals as of the pure rule; a step as soon as each has come since the last."""
    trace, heard = made(N), set()
    for worker, is_step in zip(trace.worker, trace.steps, strict=True):
        heard.add(int(worker))
        assert is_step == (len(heard) == N)
        heard = set() if is_step else heard
    for version in range(40):
        assert set(trace.worker[trace.version == version].tolist()) == set(range(N))


def test_weights_are_shares_of_a_step():
    trace = made(3)
    total = np.bincount(trace.version, trace.weight)
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)
    for version in range(40):
        assert len(set(trace.weight[trace.version == version].tolist())) == 1


def test_the_event_loop_makes_the_same_trace_as_the_stream():
    """A server that takes no time to speak of is not made of a stream."""
    assert_same(made(3), made(3, service=traces.Service()), NAMES)


def test_a_bucket_whose_workers_are_lost_is_waited_for_in_vain():
    clock = clocks.available(clocks.constant(np.ones(4)), leave=[np.inf, 2.5, np.inf, 3.5])
    rule = traces.every_bucket(2)
    with pytest.raises(traces.StalledError, match="every of 2 buckets") as caught:
        traces.asynchronous(clock, n_updates=20, collect=rule)
    # At 1 and 2 two pairs step each; at 3 worker 3 alone is there for his bucket, and never again.
    assert caught.value.trace.n_updates == 5
    left = clocks.available(clocks.constant(np.ones(4)), leave=[np.inf, 2.5, np.inf, np.inf])
    assert traces.asynchronous(left, n_updates=20, collect=rule).n_updates == 20


@pytest.mark.slow
def test_two_of_ten_flipped_signs_move_the_mean_and_not_the_median():
    """Both adversaries deliver ten times as often, and still fill two buckets."""
    centers = np.random.default_rng(1).normal(0.0, 0.1, size=(10, 4)) + 3.0
    problem = problems.adversarial(problems.quadratic(np.ones((10, 4)), centers), [3, 7], scale=5.0)
    speed = np.where(np.isin(np.arange(10), [3, 7]), 0.1, 1.0)
    trace = traces.asynchronous(
        clocks.exponential(speed),
        n_updates=120,
        collect=traces.every_bucket(10),
        key=jax.random.key(1),
    )

    def distance(aggregate):
        run = simulation.replay(
            problem,
            trace,
            simulation.Update(optax.sgd(0.1), aggregator=steps.bucketed(10, aggregate)),
        )
        return float(np.abs(np.asarray(run.params) - 3.0).max())

    assert distance(steps.median()) < 0.3
    assert distance(steps.trimmed_mean(0.2)) < 0.3
    plain = simulation.replay(problem, trace, optax.sgd(0.1)).params
    assert not float(np.abs(np.asarray(plain) - 3.0).max()) < 1e3
