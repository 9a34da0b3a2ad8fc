"""Workers that keep a state from job to job, live: as a replay has them, to the bits of a rerun."""

import os
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, live, problems, simulation, storage, traces
from asyncjax.live import jobs
from tests.live.shared import (
    CLOCK,
    Lost,
    Mortal,
    assert_equal,
    begun,
    keeping,
    killed_while_it_keeps,
    lived,
    quadratic,
    sgd,
    tree,
)

KEY, OUTER = jax.random.key(0), optax.sgd(0.7)
RULES = {
    "pure": {},
    "buffered 3": {"collect": traces.buffered(3)},
    "thrown away": {"collect": traces.ringmaster(2)},
    "stopped": {"collect": traces.rennala(2, cancel=True)},
    "given up": {"timeout": 1.5},
    "grace": {"collect": traces.grace_period(0.5, quorum=2)},
    "table": {"collect": traces.table()},
    "queues, read at start": {"dispatch": traces.uniformly(), "concurrency": 7, "read": "start"},
}


def noisy():
    """Local steps whose optimizer keeps a key."""
    optimizer = optax.add_noise(0.1, 0.5, key=jax.random.key(7))
    optimizer = optax.chain(optimizer, optax.sgd(0.05))
    return problems.local_steps(quadratic(), n_steps=2, optimizer=optimizer, keep_state=True)


def numbers(run):
    """All that a run has computed; keys as numbers."""
    return jobs.packed((run.params, run.opt_state, run.worker_states, run.records.loss))


def assert_same(run, other, tolerance=0.0):
    for one, two in zip(numbers(run), numbers(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)


def rerun_of(run, problem, **rest):
    return live.rerun(problem, run.trace, OUTER, key=KEY, **rest)


def check_virtual(name, *, interruptible=True, problem=None):
    """A virtual run has the bits of its rerun, and is its replay to rounding."""
    problem = keeping() if problem is None else problem
    workers = live.virtual(CLOCK, KEY, interruptible=interruptible)
    run = live.train(problem, workers, OUTER, traces.Rule(**RULES[name]), n_updates=20, key=KEY)
    assert_same(run, rerun_of(run, problem))
    replayed = simulation.replay(problem, run.trace, OUTER, key=KEY, waves=False)
    assert_same(run, replayed, 1e-4)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("interruptible", [True, False])
@pytest.mark.parametrize("name", RULES)
def test_every_rule_on_a_clock_is_its_replay_and_its_rerun(name, interruptible):
    run = check_virtual(name, interruptible=interruptible)
    stopped = len(run.trace.cancelled.time)
    assert (stopped > 0) == (name in ("stopped", "given up"))
    assert not (name == "thrown away" and run.trace.used.all())


@pytest.mark.slow
def test_jobs_that_are_stopped_do_not_move_their_workers_state():
    run = check_virtual("stopped")
    counts = run.worker_states[0].count
    arrived = np.bincount(run.trace.worker, minlength=4)
    assert len(run.trace.cancelled.time) > 10
    np.testing.assert_array_equal(counts, 2 * arrived)


@pytest.mark.slow
def test_a_key_may_be_kept():
    run = check_virtual("buffered 3", problem=noisy())
    drawn = jax.random.key_data(run.worker_states[0].rng_key)
    assert len(np.unique(drawn, axis=0)) > 1


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_one_worker_is_the_optimizer_itself():
    """H steps of AdamW in each of J jobs are H J steps of it, in the model and in the state."""
    inner, optimizer, n_steps, n_jobs = quadratic.__wrapped__(), optax.adamw(0.05), 3, 7
    problem = problems.local_steps(inner, n_steps=n_steps, optimizer=optimizer, keep_state=True)
    workers = live.virtual(clocks.constant([1.0]))
    run = live.train(problem, workers, optax.sgd(1.0), n_updates=n_jobs)
    params, state = inner.params, optimizer.init(inner.params)
    for job in range(n_steps * n_jobs):
        grads = inner.gradient(params, 0, job, KEY)[1]
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(run.params, np.asarray(params), rtol=0, atol=1e-12)
    for rows, leaf in zip(jax.tree.leaves(run.worker_states), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(rows[0], leaf, rtol=0, atol=1e-12)


def test_one_step_of_sgd_is_the_plain_rule():
    """Its state has no leaves, and is kept all the same."""
    one = problems.local_steps(quadratic(), n_steps=1, optimizer=optax.sgd(0.1), keep_state=True)
    run, plain = lived(problem=one, update=optax.sgd(1.0)), lived(update=sgd(0.1))
    assert_equal(run.trace, plain.trace)
    np.testing.assert_allclose(run.params, plain.params, rtol=1e-5, atol=1e-6)
    assert not jax.tree.leaves(run.worker_states)


@pytest.mark.parametrize("name", ["pure", "stopped"])
def test_threads(name):
    with live.threads(3) as workers:
        rule = traces.Rule(**RULES[name])
        run = live.train(keeping(), workers, OUTER, rule, n_updates=25, key=KEY)
    assert_same(run, rerun_of(run, keeping()))
    arrived = np.bincount(run.trace.worker, minlength=3)
    np.testing.assert_array_equal(run.worker_states[0].count, 2 * arrived)


@pytest.mark.slow
def test_processes_with_states_that_travel_and_that_stay():
    flags = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    for restarts in (1, 0):
        with live.processes(2, restarts=restarts, environment=lambda worker: flags) as workers:
            for name in ("buffered 3", "stopped"):
                rest = {"n_updates": 25, "key": KEY, "rule": traces.Rule(**RULES[name])}
                run = live.train(keeping, workers, OUTER, **rest)
                again = rerun_of(run, keeping())
                assert (run.worker_states is None) == (restarts == 0)
                if restarts == 0:
                    again = replace(again, worker_states=None)
                assert_same(run, again)


@pytest.mark.slow
def test_a_process_that_takes_the_place_of_a_killed_one_goes_on_with_its_state():
    flags = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    with live.processes(2, environment=lambda worker: flags) as workers:
        rest = {"n_updates": 24, "key": KEY, "rule": traces.Rule(traces.shuffled())}
        run = live.train(killed_while_it_keeps, workers, OUTER, **rest)
    assert run.trace.cancelled.worker.tolist() == [0]
    after = run.trace.time > run.trace.cancelled.time[0]
    assert (run.trace.worker[after] == 0).sum() >= 3
    assert_same(run, rerun_of(run, keeping(quadratic)))


def test_workers_that_are_lost_at_random_go_on_with_their_states():
    """In its place another is set up, at which nothing is kept: it is sent what the server has."""
    lost = 0
    for seed in range(3):
        draw = np.random.default_rng(seed)
        engine = live.executors(3, lambda _, d=draw: Mortal(d, 0.08), lost=(Lost,), restarts=99)
        with engine as workers:
            run = live.train(keeping(), workers, OUTER, n_updates=20, key=KEY)
        lost += len(run.trace.cancelled.time)
        assert_same(run, rerun_of(run, keeping()))
    assert lost >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pure", "stopped", "thrown away"])
@pytest.mark.parametrize("problem", [keeping, noisy])
@pytest.mark.usefixtures("often")
def test_a_killed_run_goes_on_with_the_states(name, problem, tmp_path, monkeypatch):
    path, rest = tmp_path / "run.npz", {"problem": problem(), "update": OUTER, **RULES[name]}
    whole = lived(**rest)
    for saves in (9, 4):
        begun(path, monkeypatch, saves, **rest)
    assert len(storage.load_arrays(path)["kept"]) > 0
    run = lived(checkpoint=path, **rest)
    assert_equal(whole.trace, run.trace)
    assert_same(whole, run)


def test_a_worker_holds_two_states_and_answers_with_one_if_it_is_carried():
    problem, model = keeping(), [np.asarray(leaf) for leaf in jax.tree.leaves(tree().params)]
    for carries in (True, False):
        jobs.set_up("mine", 0, *jobs.task_of(problem, problem, KEY, carries))
        after = -1
        for job in (0, 1, 3):
            answer = jobs.compute("mine", model, 0, job, jobs.Kept(after, None))
            site = jobs._SITES["mine", 0]
            assert set(site.states) == {after, job}
            assert (answer.state is not None) == carries
            after = job
        twice = [jobs.compute("mine", model, 0, job, jobs.Kept(3, None)) for job in (4, 5)]
        counts = [site.states[job][0].count for job in (3, 5)]
        assert counts == [6, 8]  # job 4 did not count
        assert len(twice) == 2
        jobs.forget("mine", 0)


def test_what_is_kept_must_be_the_same_everywhere():
    words = "problem must keep at a worker what it keeps at"
    with live.threads(1) as workers, pytest.raises(live.SetUpError, match=words):
        live.train(
            lambda worker: tree() if worker == 0 else keeping(), workers, sgd(0.1), n_updates=2
        )
