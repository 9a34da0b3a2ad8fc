"""Where one method of the family becomes another."""

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles.problems import quadratic_data, quadratic_optimum

N = 5
CLOCK = clocks.exponential(np.arange(1.0, N + 1))
KEY = jax.random.key(0)
COLUMNS = ("time", "worker", "job", "read_version", "version", "used", "steps", "weight")


def make(n_updates=60, clock=CLOCK, **rules):
    return traces.asynchronous(clock, n_updates=n_updates, key=KEY, **rules)


def same(one, other):
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize(
    ("rules", "limit"),
    [
        ({"collect": traces.ringmaster(float("inf"))}, {}),
        ({"collect": traces.ringmaster(float("inf"), cancel=True)}, {}),
        ({"collect": traces.ringmaster_quantile(1.0)}, {}),
        ({"collect": traces.ringmaster(1)}, {"collect": traces.rennala(1)}),
        (
            {"collect": traces.ringmaster(1, cancel=True)},
            {"collect": traces.rennala(1, cancel=True)},
        ),
        ({"collect": traces.buffered(1)}, {}),
        ({"collect": traces.wait_for(1)}, {}),
        ({"gate": traces.lead_at_most(float("inf"))}, {}),
        ({"timeout": 1e9}, {}),
        ({"clock": clocks.with_failures(CLOCK, 0.0)}, {}),
        ({"clock": clocks.available(CLOCK)}, {}),
        ({"clock": clocks.with_speed(CLOCK, [3.0, 0.5], [1.0, 1.0])}, {}),
    ],
)
def test_the_traces_are_the_same(rules, limit):
    one, other = make(**rules), make(**limit)
    if "clock" in rules and rules["clock"].powers:  # times pass through the integral of the power
        np.testing.assert_allclose(one.time, other.time, rtol=1e-12)
        one = one._replace(time=other.time)
    same(one, other)


@pytest.mark.parametrize("dispatch", [traces.uniformly(), traces.shuffled()])
def test_waiting_for_one_is_not_waiting_whatever_the_dispatch(dispatch):
    same(make(dispatch=dispatch, collect=traces.wait_for(1)), make(dispatch=dispatch))


def test_k_batch_sync_with_every_worker_fresh_is_rennala_without_waste():
    cancelled = make(collect=traces.rennala(3, cancel=True))
    assert cancelled.used.all()
    assert not cancelled.delay.any()
    wasteful = make(collect=traces.rennala(3))
    assert not wasteful.used.all()
    assert not wasteful.delay[wasteful.used].any()


def test_constant_equal_speeds_make_k_batch_sync_k_sync():
    clock = clocks.constant(np.ones(N))
    batch = make(clock=clock, collect=traces.rennala(N, cancel=True))
    rounds = traces.synchronous(clock, k=N, n_updates=60)
    for name in ("time", "worker", "read_version", "version", "steps", "weight"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(rounds, name))


def test_used_delays_stay_below_the_threshold():
    for cancel in (False, True):
        trace = make(collect=traces.ringmaster(4, cancel=cancel))
        assert trace.delay[trace.used].max() == 3
        assert trace.used.all() == cancel


def test_the_quantile_is_the_share_that_is_used():
    for quantile in (0.3, 0.6, 0.9):
        trace = make(n_updates=2000, collect=traces.ringmaster_quantile(quantile))
        smaller = [
            np.mean(trace.delay[: e + 1] < trace.delay[e]) for e in range(0, len(trace.time), 37)
        ]
        np.testing.assert_array_equal(trace.used[::37], np.array(smaller) < quantile)
        assert quantile - 0.05 < trace.used.mean() < quantile + 0.2


def test_malenia_with_whole_gradients_is_gradient_descent(float64):
    curvature, linear = quadratic_data(N, 3)
    x = np.ones(3)
    for _ in range(15):
        x = x - 0.1 * np.mean(curvature * x - linear, axis=0)
    trace = make(n_updates=15, collect=traces.malenia(1.5))
    run = simulation.replay(problems.quadratic(curvature, linear), trace, optax.sgd(0.1))
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("collect", [traces.table(), traces.ringleader(), traces.malenia(1)])
def test_rules_that_average_over_workers_solve_the_true_problem(collect, float64):
    curvature, linear = quadratic_data(N, 3)
    problem = problems.quadratic(curvature, linear)
    clock = clocks.constant(np.arange(1.0, N + 1))
    run = simulation.replay(problem, make(3000, clock=clock, collect=collect), optax.sgd(0.02))
    true = quadratic_optimum(curvature, linear)
    np.testing.assert_allclose(run.params, true, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("measured", [False, True])
def test_rescaling_by_the_workers_times_removes_the_bias_of_pure(measured, float64):
    """The speed-weighted optimum is far away; what is left is of the order of the step."""
    curvature, linear = quadratic_data(N, 3)
    problem = problems.quadratic(curvature, linear)
    times = np.arange(1.0, N + 1)
    trace = make(30_000, clock=clocks.constant(times))
    rule = steps.scale_by_measured_time(N) if measured else steps.scale_by_worker_time(times)
    true = quadratic_optimum(curvature, linear)

    def distance(transform):
        run = simulation.replay(problem, trace, optax.chain(transform, optax.sgd(1e-3)))
        return np.linalg.norm(run.params - true)

    assert distance(optax.identity()) > 0.1
    assert distance(rule) < 5e-3


@pytest.mark.slow
def test_local_steps_of_one_step_are_the_problem_itself():
    problem = problems.quadratic(*quadratic_data(N, 3))
    local = problems.local_steps(problem, n_steps=1, step_size=0.3)
    run = simulation.replay(problem, make(), optax.sgd(0.05))
    other = simulation.replay(local, make(), optax.sgd(0.05))
    np.testing.assert_allclose(run.params, other.params, rtol=1e-6)
    np.testing.assert_allclose(run.records.loss, other.records.loss, rtol=1e-6)


def test_a_pseudo_gradient_is_the_way_travelled(float64):
    curvature, linear = quadratic_data(N, 3)
    problem = problems.quadratic(curvature, linear)
    local = problems.local_steps(problem, n_steps=7, step_size=0.1)
    start = y = np.array([1.0, -2.0, 0.5])
    losses = []
    for _ in range(7):
        loss, grads = problem.gradient(y, 2, 0, KEY)
        losses.append(float(loss))
        y = y - 0.1 * np.asarray(grads)
    loss, payload = local.gradient(start, 2, 0, KEY)
    np.testing.assert_allclose(payload, (start - y) / 0.7, rtol=1e-12)
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-12)


def test_local_steps_take_the_next_rows_of_a_worker():
    seen = problems.from_gradient(
        np.zeros(3), lambda x, worker, job, key: (job * 1.0, jax.nn.one_hot(job % 3, 3))
    )
    loss, payload = problems.local_steps(seen, n_steps=2, step_size=0.1).gradient(
        seen.params, 0, 2, KEY
    )
    np.testing.assert_allclose(payload, [0.0, 0.5, 0.5])  # jobs 4 and 5
    assert float(loss) == 4.5
