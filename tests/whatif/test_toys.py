"""Toy training: time to a target on stand-in problems, where the order of rules is known."""

import jax
import numpy as np
import optax
import pytest

from asyncjax import simulation, traces
from asyncjax.whatif import toys as module
from asyncjax.whatif.comparing import compare, rules_for
from asyncjax.whatif.toys import SKEW, TASKS, are_apart, toy_training, tried
from tests.oracles.problems import quadratic_optimum

pytestmark = pytest.mark.slow
RULES = {rule.name: rule for rule in rules_for(4, 1.0)}
STEPS = tuple(2.0**power for power in range(-6, 3))


def lessons_of(rows, tasks):
    log = traces.read_log(np.asarray(rows))
    comparison = compare(log, draws=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROUNDS", (60, 100))  # shorter than for a user
        patch.setattr(module, "TASKS", tasks)
        found = toy_training(log, comparison, step_sizes=STEPS, seeds=3)
    return {lesson.task.name: lesson for lesson in found.lessons}


@pytest.fixture(scope="module")
def one_slow():
    return lessons_of([[1.0] * 40] * 5 + [[5.0] * 40], TASKS[:2])


def test_with_equal_workers_little_is_gained_over_synchronous_rounds():
    """Gradients come as fast under every rule; only how they are averaged and dated differs."""
    for lesson in lessons_of(np.ones((6, 40)), TASKS[::2]).values():
        best = max(lesson.speed_up(row.rule.name)[0] for row in lesson.rows)
        assert best < 1.5, lesson.task.name


def test_with_one_slow_worker_the_pure_rule_is_far_ahead_on_even_data(one_slow):
    lesson = one_slow["even data"]
    value, low, _ = lesson.speed_up("pure asynchronous")
    assert value > 2.0
    assert low > 1.0
    assert "synchronous" not in lesson.level


def test_who_never_hears_a_worker_misses_the_target_where_workers_differ(one_slow):
    """Five of six are heard: the optimum of those is too far from that of all."""
    lesson = one_slow["skewed data"]
    problem = TASKS[1].make(6, jax.random.split(jax.random.key(1), 4)[0])
    five = quadratic_optimum(*problem.data, weights=[1.0] * 5 + [0.0])
    assert float(problem.objective(five)) > lesson.target
    row = lesson.of("1 backup worker")
    late = row.curve_loss[row.curve_time > lesson.span / 2]
    assert np.nanmedian(late) > lesson.target  # it may be there for a moment, by noise
    assert np.isfinite(lesson.of("Ringleader").time)
    assert np.isfinite(lesson.of("synchronous").time)
    assert lesson.of("Ringleader").time < row.time


def test_the_same_gradients_are_used_as_in_a_replay_of_their_own(one_slow):
    """The arrays of a sweep are padded to sizes that rules share; the runs are the same."""
    log = traces.read_log(np.random.default_rng(0).gamma(2.0, 1.0, (3, 30)))
    rule = tried(compare(log, draws=2))[0]
    keys = jax.random.split(jax.random.key(0), 2)
    runs = module.lasting(rule, [log.durations] * 2, 40.0, keys)
    problem = TASKS[0].make(3, jax.random.key(2))
    setting = module._Setting(40.0, (0.125, 0.5), keys, 5_000)
    time, loss = module._run(rule, problem, runs, setting)
    every = runs[0].n_updates // module.RECORDS
    run = simulation.replay(problem, runs[1], optax.sgd(0.5), key=keys[1], record_every=every)
    np.testing.assert_allclose(loss[1, 1], run.records.loss, rtol=1e-4)
    np.testing.assert_allclose(time[1, 0], run.records.time)


def test_the_problems_have_the_same_optimum_with_even_and_with_skewed_data():
    even, skewed = (task.make(7, jax.random.key(5)) for task in TASKS[:2])
    optimum = quadratic_optimum(*even.data)
    np.testing.assert_allclose(quadratic_optimum(*skewed.data), optimum, rtol=1e-4)
    start = float(even.objective(even.params)), float(skewed.objective(skewed.params))
    assert start == (0.0, 0.0)
    assert float(even.objective(optimum)) == pytest.approx(-6.0)  # twelve halves
    lone = quadratic_optimum(*skewed.data, weights=[1.0] + [0.0] * 6)
    away = np.asarray((lone - optimum) / optimum)
    assert 0.3 * SKEW < away.std() < 3 * SKEW


def test_sorted_labels_leave_each_worker_with_one():
    problem = TASKS[2].make(8, jax.random.key(0))
    assert problem.n_workers == 8
    gradients = [
        np.asarray(problem.gradient(problem.params, worker, 0, jax.random.key(0))[1])
        for worker in range(8)
    ]
    signs = [np.sign(gradient[-1]) for gradient in gradients]  # of the intercept
    assert signs == [1.0] * 4 + [-1.0] * 4


def test_told_apart_means_on_every_seed():
    assert are_apart(np.array([1.0, 2.0]), np.array([1.5, np.inf]))
    assert not are_apart(np.array([1.0, 3.0]), np.array([1.5, 2.5]))
    assert not are_apart(np.array([np.inf]), np.array([np.inf]))


def test_a_target_that_is_left_again_is_not_reached():
    """Two step sizes; the first crosses the target at 2 and leaves it, the second is there at 5."""
    clock = np.arange(1.0, 9.0)  # the span ends at 7
    noisy = [9.0, 1.0, 9.0, 1.0, 9.0, 2.0, 1.0, 1.0]
    steady = [9.0, 9.0, 9.0, 9.0, 3.0, 3.0, 3.0, 9.0]  # what comes after the span does not count
    seeds = module.TUNING_SEEDS + 1
    setting = module._Setting(7.0, (0.1, 0.2, 0.4), jax.random.split(jax.random.key(0), 1), 8)
    failed = [9.0, 1.0, 1.0, 1.0, 1.0, 1.0, np.nan, np.nan]
    loss = np.tile(np.array([noisy, steady, failed]), (seeds, 1, 1))
    moments = np.tile(clock, (seeds, 1, 1))
    row = module._learned(RULES["synchronous"], moments, loss, 3.0, setting)
    assert row.step_size == 0.2
    np.testing.assert_array_equal(row.times, [5.0])
    alone = module._learned(RULES["synchronous"], moments, loss[:, [0]], 3.0, setting)
    assert 5.0 < alone.times[0] <= 6.0  # between 9 at 5 and 2 at 6
    never = module._learned(RULES["synchronous"], moments, loss[:, [2]], 3.0, setting)
    assert np.isinf(never.times[0])
