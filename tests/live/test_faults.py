"""Workers that die, hang, raise or come back: every run ends, and its trace says what happened."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from asyncjax import live, simulation, traces
from tests.live.shared import (
    Lost,
    Mortal,
    acting,
    ends,
    killed,
    killed_while_it_sends,
    lost_once,
    quadratic,
    rule_of,
    sgd,
    troubled,
)

pytestmark = pytest.mark.slow  # together they take long

ROOT = Path(__file__).parents[2]
WAIT, CANCEL = traces.wait_for(2), traces.rennala(1, cancel=True)
RULES = {
    "pure": {},
    "wait for 2": {"collect": WAIT},
    "cancel": {"collect": CANCEL},
    "random": {"dispatch": traces.uniformly()},
    "buffered": {"collect": traces.buffered(3)},
    "table": {"collect": traces.table()},
    "malenia": {"collect": traces.malenia(1.0)},
}


def train(workers, problem=quadratic, n_updates=20, patience=60.0, **rest):
    rule, rest = rule_of(rest), {"n_updates": n_updates, "patience": patience, **rest}
    return live.train(problem, workers, sgd(0.1), rule, **rest)


def check(run, rule="pure"):
    """The trace could have happened, no gradient came twice, and its replay is the run."""
    trace = traces.validate(run.trace)  # the jobs of a worker are all there, stopped ones too
    each = list(zip(trace.worker.tolist(), trace.job.tolist(), strict=True))
    assert len(set(each)) == len(each)
    again = simulation.replay(quadratic(), trace, sgd(0.1), waves=False)
    np.testing.assert_allclose(run.params, again.params, rtol=1e-5 if rule == "table" else 0.0)
    return trace


@pytest.mark.parametrize("name", RULES)
def test_runs_whose_workers_are_lost_at_random(name):
    """Four runs a rule; a worker is lost about every tenth job, and comes back."""
    lost = 0
    for seed in range(4):
        draw = np.random.default_rng(seed)
        engine = live.executors(3, lambda _, d=draw: Mortal(d, 0.08), lost=(Lost,), restarts=99)
        with engine as workers:
            run = train(workers, n_updates=15, **RULES[name])
        trace = check(run, name)
        lost += len(trace.cancelled.time)
    assert lost >= 2


def losing(whom, at=5, rule=None):
    """Runs a rule with two workers, of whom some are lost for good after an arrival."""
    mortals = [Mortal() for _ in range(2)]

    def act(_):
        for worker in whom:
            mortals[worker].is_gone = True

    rest = {"collect": traces.immediately(), **(rule or {})}
    rest["collect"] = acting(rest["collect"], {at: act})
    with live.executors(2, lambda i: mortals[i], lost=(Lost,), restarts=0) as workers:
        return train(workers, n_updates=50, **rest)


def test_rules_that_need_nobody_go_on_without_the_lost():
    trace = check(losing([1]))
    assert trace.worker[-40:].tolist() == [0] * 40
    check(losing([0], rule=RULES["cancel"]))


NEEDED = {
    "all": ([0, 1], {}, "no job will|it waits for workers 0, 1"),
    "wait for 2": ([1], RULES["wait for 2"], "no job will|it waits for worker 1"),
    "malenia": ([1], RULES["malenia"], "the rule 'malenia 1' .* waits for worker 1"),
    "gate": ([1], {"gate": traces.lead_at_most(1)}, "no job will return any more"),
    "random": ([1], RULES["random"], "no job will return any more"),
}


@pytest.mark.parametrize("name", NEEDED)
def test_rules_that_need_the_lost_are_stuck(name):
    whom, rule, words = NEEDED[name]
    with pytest.raises(traces.StalledError, match=words) as told:
        losing(whom, rule=rule)
    assert traces.validate(told.value.trace).n_updates >= 2


def slow(seconds):
    """Jobs of worker 1 take so long, but for the first."""
    return partial(troubled, {(1, job): seconds for job in range(1, 99)})


@pytest.mark.usefixtures("released")
def test_a_job_that_hangs_is_given_up_and_nothing_waits_for_it():
    hangs = partial(troubled, {(1, 3): "hang", "all": 0.01})
    with live.threads(2) as workers:
        trace = check(train(workers, hangs, n_updates=60, timeout=[60.0, 0.2]))
    assert set(trace.cancelled.worker.tolist()) == {1}
    options = {"collect": WAIT, "timeout": [60.0, 0.2], "patience": 2.0}
    words = r"nothing has arrived for 2 seconds \(patience\)|waits for worker 1"
    with live.threads(2) as workers, pytest.raises(traces.StalledError, match=words):
        train(workers, hangs, **options)
    options = {"collect": traces.malenia(1.0), "patience": 2.0}  # the other delivers for ever
    words = "it waits for worker 1; worker 1 has a job that is lost"
    with live.threads(2) as workers, pytest.raises(traces.StalledError, match=words):
        train(workers, hangs, **options)


def test_a_late_answer_frees_its_worker():
    late = partial(troubled, {(1, 2): 0.5})
    with live.threads(2) as workers:
        trace = check(train(workers, late, n_updates=8, collect=WAIT, timeout=[60.0, 0.1]))
    assert (trace.cancelled.worker == 1).any()
    assert trace.worker.tolist().count(1) == 8
    assert (1, 2) not in zip(trace.worker.tolist(), trace.job.tolist(), strict=True)


def test_an_error_ends_the_run_at_once_and_is_not_tried_again():
    with live.threads(2) as workers:
        with pytest.raises(live.WorkerError, match="worker 1, job 3, at version") as told:
            train(workers, partial(troubled, {(1, 3): "raise"}))
        shown = "".join(traceback.format_exception(told.value))
        assert "AwkwardError: a weight burst" in shown
        assert "in _happen" in shown
        check(train(workers))  # the workers are there still


def test_an_error_while_a_lost_worker_is_set_up_again_is_told():
    asked = []

    def source(worker):
        asked.append(worker)
        if asked.count(1) > 1:
            raise OSError("the disk is gone")
        return quadratic()

    mortal = [Mortal() for _ in range(3)]
    engine = live.executors(2, lambda i: mortal.pop(0), lost=(Lost,))
    with engine as workers:
        second = workers.executor(0), workers.executor(1)

        def act(_):
            second[1].is_gone = True

        collect = acting(traces.immediately(), {5: act})
        words = "worker 1 could not be set up: OSError: the disk is gone"
        with pytest.raises(live.SetUpError, match=words):
            train(workers, source, collect=collect, n_updates=500)


def pid_of(workers, worker):
    return next(iter(workers.opened[worker]._processes))


def killing(workers, which):
    """Kills the process of the deliverer, who is idle now, or of the other."""

    def act(deliverer):
        os.kill(pid_of(workers, deliverer if which == "idle" else 1 - deliverer), signal.SIGKILL)

    return act


@pytest.mark.parametrize(
    ("which", "name"), [("idle", "wait for 2"), ("busy", "buffered"), ("busy", "cancel")]
)
def test_processes_that_are_killed_come_back(which, name):
    """Jobs of 20 ms; the rule needs both, or both are there when it ends, or stops one's job."""
    with live.processes(2) as workers:
        actions = {5: killing(workers, which), 9: killing(workers, which)}
        collect = acting(RULES[name]["collect"], actions)
        run = train(workers, partial(troubled, {"all": 0.02}), collect=collect, n_updates=12)
        trace = check(run)
    assert 1 <= len(trace.cancelled.time) <= (2 if name != "cancel" else 12)
    assert ends([child.pid for child in multiprocessing.active_children()])


def test_a_process_that_is_killed_while_it_sends_is_lost_at_once():
    before = set(threading.enumerate())
    with live.processes(1) as workers:
        answer = workers.executor(0).submit(killed_while_it_sends)
        with pytest.raises(workers.lost):
            answer.result(timeout=60)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()  # else this process could not end


def test_a_slot_that_is_killed_twice_and_one_in_its_set_up(tmp_path):
    with live.processes(2, restarts=2) as workers:
        twice = partial(troubled, {(0, 2): "kill", (0, 3): "kill"})
        trace = check(train(workers, twice, collect=WAIT, n_updates=6))
        np.testing.assert_array_equal(trace.cancelled.worker, [0, 0])
        (tmp_path / "mark").touch()
        check(train(workers, partial(lost_once, tmp_path / "mark"), n_updates=6))
        assert not (tmp_path / "mark").exists()
        with pytest.raises(live.SetUpError, match=r"worker . of processes was lost 3 times while"):
            train(workers, killed)
    assert ends([child.pid for child in multiprocessing.active_children()])


def test_processes_that_are_gone_for_good_stall_the_rules_that_need_them():
    with live.processes(2, restarts=0) as workers:
        one = {3: lambda _: os.kill(pid_of(workers, 1), signal.SIGKILL)}
        with pytest.raises(traces.StalledError, match=r"the rule 'table' .* waits for worker 1"):
            train(workers, slow_first, collect=acting(traces.table(), one))
        check(train(workers, slow(0.5), collect=acting(traces.immediately(), one)))


def slow_first(worker):
    """The first job of worker 1 takes a while."""
    return troubled({(1, 0): 3.0})


def test_a_process_that_hangs_or_raises():
    with live.processes(2) as workers:
        with pytest.raises(live.WorkerError, match="worker 0, job 2, at version") as told:
            train(workers, partial(troubled, {(0, 2): "raise"}))
        assert "AwkwardError: a weight burst" in "".join(traceback.format_exception(told.value))
        assert not train(workers, partial(troubled, {(0, 2): "nan"})).records.finite[-1]
        hangs = partial(troubled, {(1, 3): "hang", "all": 0.05})
        trace = check(train(workers, hangs, n_updates=50, timeout=[60.0, 1.0]))
        assert set(trace.cancelled.worker.tolist()) == {1}
    assert ends([child.pid for child in multiprocessing.active_children()])


def interrupt(_):
    raise KeyboardInterrupt


def test_a_keyboard_interrupt_leaves_no_process():
    with pytest.raises(KeyboardInterrupt), live.processes(2) as workers:
        train(workers, partial(troubled, {"all": 0.02}), n_updates=10**6, progress=interrupt)
    assert ends([child.pid for child in multiprocessing.active_children()])


SCRIPT = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored
from functools import partial
from asyncjax import live
from tests.live.shared import sgd, troubled
def told(progress):
    print(*(pid for one in workers.opened.values() for pid in one._processes), flush=True)
if __name__ == "__main__":
    with live.processes(2) as workers:
        live.train(partial(troubled, {"all": 0.02}), workers, sgd(0.1), n_updates=10**6,
                   progress=told)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_server(number, tmp_path):
    """Ctrl-C goes to the whole group, as in a terminal; the workers leave it to the server."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    server = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = server.stdout.readline().split()
    assert len(pids) == 2
    if number == signal.SIGINT:
        os.killpg(server.pid, number)
    else:
        server.kill()
    _, errors = server.communicate(timeout=60)
    assert ends(pids)
    if number == signal.SIGINT:
        assert errors.strip().endswith("KeyboardInterrupt")
        assert "SpawnProcess" not in errors
