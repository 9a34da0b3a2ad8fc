"""What is told of workers while a run goes on: who is lost, who is back, who waits for a place."""

import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from asyncjax import clocks, live, results, traces
from asyncjax.live import server_state, worker_pool
from asyncjax.live.ray_engine import shortage
from tests.live.shared import (
    RELEASED,
    Killed,
    Lost,
    Mortal,
    acting,
    quadratic,
    rule_of,
    sgd,
    troubled,
)

pytestmark = pytest.mark.usefixtures("unjudged")

ROOT = Path(__file__).parents[2]
AGAIN = "worker {} of executors is lost (Lost): {}, it is opened again"
BACK = "worker {} of executors is back: {} workers are there"


def mortals(n_workers, opened, **rest):
    """An engine, and its workers as they are opened, in a list of each."""

    def open_one(worker):
        opened.setdefault(worker, []).append(Mortal(is_gone=worker in opened.get("born dead", ())))
        return opened[worker][-1]

    return live.executors(n_workers, open_one, lost=(Lost,), **rest)


def losing(opened, *workers):
    """An action of a rule: these workers are gone now."""

    def act(_):
        for worker in workers:
            opened[worker][-1].is_gone = True

    return act


def losing_itself(opened):
    """An action of a rule: the worker that delivers is gone when it is sent the next job."""
    return lambda worker: losing(opened, worker)(worker)


def train(workers, actions, collect=None, n_updates=12, **rest):
    """A run that waits for everybody, unless it is told otherwise."""
    collect = traces.wait_for(workers.n_workers) if collect is None else collect
    rest = {"collect": acting(collect, actions), "n_updates": n_updates, **rest}
    return live.train(quadratic, workers, sgd(0.1), rule_of(rest), **rest)


@pytest.fixture
def told(caplog):
    """The lines so far."""

    def lines():
        records = [one for one in caplog.records if one.name == "asyncjax.live"]
        assert all(one.levelno == logging.WARNING for one in records)
        return [one.getMessage() for one in records]

    return lines


def test_a_lost_worker_and_its_return_are_told_once(told):
    opened, seen = {}, []
    with mortals(3, opened) as workers:
        run = train(workers, {5: losing(opened, 1)}, progress=seen.append)
    assert told() == [
        AGAIN.format(1, "2 of 3 workers are left"),
        BACK.format(1, "3 of 3"),
    ]
    assert run.worker_events == live.WorkerEvents(lost=1, returned=1, waited=0)
    last = seen[-1]
    assert (last.lost, last.returned, last.waited) == (1, 1, 0)


def test_each_loss_is_a_line(told):
    opened = {}
    with mortals(2, opened) as workers:
        actions = {3: losing(opened, 0, 1), 9: losing(opened, 1)}
        run = train(workers, actions)
    lines = told()
    first, second, third = lines[0][7], lines[1][7], lines[2][7]
    assert {first, second} == {"0", "1"}
    assert lines[:2] == [
        AGAIN.format(first, "1 of 2 workers is left"),
        AGAIN.format(second, "0 of 2 workers are left"),
    ]
    assert lines[2] == f"worker {third} of executors is back: 1 of 2 workers is there"
    assert lines[3] == BACK.format(1 - int(third), "2 of 2")
    assert lines[4:] == [AGAIN.format(1, "1 of 2 workers is left"), BACK.format(1, "2 of 2")]
    assert run.worker_events == (3, 3, 0)


def test_a_worker_that_is_lost_for_good_is_told_once_and_the_run_goes_on(told):
    opened, seen = {}, []
    with mortals(2, opened, restarts=0) as workers:
        collect = traces.immediately()
        run = train(workers, {4: losing_itself(opened)}, collect, 40, progress=seen.append)
    words = "1 of 2 workers is left, it is not opened again (restarts=0)"
    (line,) = told()
    assert line == f"worker {line[7]} of executors is lost (Lost): {words}"
    assert run.worker_events == (1, 0, 0)
    assert seen[-1].lost == 1
    assert seen[-1].returned == 0


def test_a_worker_that_does_not_live_to_return_is_one_loss(told):
    """It is opened twice more and dies in its set-up: no line a try, one when nobody tries on."""
    opened = {}

    def act(worker):
        opened["born dead"] = {worker}
        losing_itself(opened)(worker)

    with mortals(2, opened, restarts=2) as workers:
        run = train(workers, {4: act}, traces.immediately(), 40)
    left, lost = "1 of 2 workers is left", next(iter(opened["born dead"]))
    assert told() == [
        AGAIN.format(lost, left),
        f"worker {lost} of executors is lost (Lost): {left}, it is not opened again (restarts=2)",
    ]
    assert len(opened[lost]) == 3
    assert run.worker_events == (1, 0, 0)


def test_nothing_is_told_where_nothing_happens(told):
    clock = clocks.available(clocks.constant([1.0, 1.0, 1.0]), leave=[np.inf, np.inf, 2.5])
    run = live.train(quadratic, live.virtual(clock), sgd(0.1), n_updates=9)
    assert run.worker_events == live.WorkerEvents(0, 0, 0)
    assert results.Run(None, None, None, results.Source((), ())).worker_events is None
    with live.threads(2) as workers:
        run = live.train(quadratic, workers, sgd(0.1), n_updates=9)
    assert run.worker_events == (0, 0, 0)
    assert told() == []


@pytest.mark.slow
@pytest.mark.usefixtures("released")
def test_a_worker_that_does_not_answer_is_told_once_and_so_is_its_answer(told):
    class Hand(logging.Handler):
        def emit(self, record):
            RELEASED.set()  # when the loss is told, the job goes on

    hand = Hand()
    logging.getLogger("asyncjax.live").addHandler(hand)
    hangs = partial(troubled, {(1, 3): "hang", "all": 0.01})
    try:
        with live.threads(2) as workers:
            run = live.train(hangs, workers, sgd(0.1), n_updates=400, patience=2.0)
    finally:
        logging.getLogger("asyncjax.live").removeHandler(hand)
    why = "no answer for 2 seconds, patience"
    assert told() == [
        f"worker 1 of threads is lost ({why}): 1 of 2 workers is left, it is waited for",
        "worker 1 of threads is back: 2 of 2 workers are there",
    ]
    assert run.worker_events == (1, 1, 0)


def stop(monkeypatch, is_enough):
    """Kills the server once its file says that so much happened; it counts from the writing."""
    real = server_state.Checkpoint.write

    def write(file, state, **columns):
        events = live.WorkerEvents(*columns["worker_events"].tolist())
        real(file, state, **columns)
        if is_enough(events):
            raise Killed

    monkeypatch.setattr(server_state.Checkpoint, "write", write)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("field", ["lost", "returned"])  # all are opened again
def test_a_run_that_goes_on_counts_on(field, tmp_path, monkeypatch):
    opened, path = {}, tmp_path / "run.npz"
    with monkeypatch.context() as patch, mortals(2, opened) as workers:
        stop(patch, lambda events: getattr(events, field) == 1)
        with pytest.raises(Killed):
            train(workers, {5: losing(opened, 1)}, checkpoint=path)
    with mortals(2, {}) as workers:
        run = train(workers, {}, checkpoint=path)
    assert run.worker_events == (1, 1, 0)
    assert type(run.worker_events) is live.WorkerEvents
    assert traces.validate(run.trace).n_updates == 12


class Placeless(ThreadPoolExecutor):
    """A worker that begins when there is a place for it."""

    def __init__(self, place):
        super().__init__(1, initializer=place.wait, initargs=(60,))


def crowded(looks):
    """An engine of four workers; `looks` says who has no place at each look, then all have one."""
    place, left = threading.Event(), list(looks)

    def waiting(opened):
        if left:
            return left.pop(0), shortage({"CPU": 1.0}, 2, {}, {"CPU": 4.0})
        place.set()
        return set(), ""

    everybody = threading.Event()
    everybody.set()
    late = set().union(*looks)
    engine = live.executors(4, lambda i: Placeless(place if i in late else everybody))
    return replace(engine, name="ray", waiting=waiting)


@pytest.mark.parametrize(
    ("looks", "lines"),
    [
        ([{2, 3}] * 4, ["2 of 4 workers of ray wait: 2 of 4 CPUs are free"]),
        ([{1, 2, 3}, {2, 3}, {3}], []),  # one after the other gets its place
        ([{2, 3}, {3}, {3}], ["1 of 4 workers of ray waits: 2 of 4 CPUs are free"]),
    ],
    ids=["nobody gets a place", "they get places", "one is left"],
)
def test_waiting_for_a_place_is_told_once(looks, lines, told, monkeypatch):
    monkeypatch.setattr(worker_pool, "_LOOK", 0.02)
    seen = []
    with crowded(looks) as workers:
        run = train(workers, {}, n_updates=3, progress=seen.append)
    assert told() == lines
    waited = int(lines[0][0]) if lines else 0
    assert run.worker_events == (0, 0, waited)
    assert seen[-1].waited == waited


SHORT = [
    ({"CPU": 1.0, "GPU": 1.0}, 1, {"CPU": 7.0}, {"CPU": 8.0, "GPU": 1.0}, "1 of 1 GPUs is free"),
    ({"CPU": 2.0}, 0, {"CPU": 1.0}, {"CPU": 4.0}, "1 of 4 CPUs is free"),
    ({"TPU": 4.0}, 0, {}, {"CPU": 4.0}, "0 of 0 TPU are free"),
    ({"CPU": 1.0}, 1, {"CPU": 2.0}, {"CPU": 4.0}, "3 of 4 CPUs are free"),  # by another reason
    ({"memory": 2.0**31}, 1, {"memory": 2.0**30}, {"memory": 2.0**32}, "3 of 4 GiB of memory are"),
    ({}, 0, {}, {"CPU": 4.0}, "they have no place yet"),
]


@pytest.mark.parametrize("case", SHORT, ids=lambda case: case[-1])
def test_what_is_short_is_named(case):
    *given, words = case
    assert shortage(*given).startswith(words)


SCRIPT = """
from functools import partial
from asyncjax import live, traces
from tests.live.shared import sgd, troubled
if __name__ == "__main__":
    killed = partial(troubled, {(1, 2): "kill", "all": 0.01})
    with live.processes(2) as workers:
        run = live.train(killed, workers, sgd(0.1), n_updates=8, collect=traces.wait_for(2),
                         progress=lambda now: print(now.lost, now.returned, now.waited))
    print("run", *run.worker_events)
"""


@pytest.mark.slow
def test_a_script_without_any_logging_shows_a_killed_process_on_stderr(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stderr.splitlines() == [
        "worker 1 of processes is lost (BrokenProcessPool): 1 of 2 workers is left, it is opened"
        " again",
        "worker 1 of processes is back: 2 of 2 workers are there",
    ]
    lines = done.stdout.splitlines()
    assert "1 0 0" in lines[:-1]  # while it is away
    assert lines[-2:] == ["1 1 0", "run 1 1 0"]
