"""A run that was killed goes on from its log, and the log of another run is refused."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from asyncjax import clocks, live, problems, simulation, storage, traces
from asyncjax.live import server_state
from asyncjax.live.server_state import ARRIVED
from asyncjax.traces.collection import Collection, Collector, Verdict
from tests.live.shared import (
    Killed,
    adam,
    assert_equal,
    begun,
    dying,
    ends,
    lived,
    quadratic,
    sgd,
    tree,
)
from tests.live.test_training import RULES

LIVES = int(os.environ.get("LIVES", "3"))  # of the run that is killed and killed again


SAME = ("pure", "random", "wait for 2", "grace 0.5", "adaptive deadline", "rennala 3, cancel")
KINDS = {name: RULES[name] for name in (*SAME, "table", "ringleader")}
KINDS["gate"] = {**RULES["gate"], "timeout": 3.0}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("often", "unjudged")
def test_a_killed_run_goes_on_to_the_same_bits(name, tmp_path, monkeypatch):
    """On a virtual clock nothing at all differs."""
    path, rules, draw = tmp_path / "run.npz", KINDS[name], np.random.default_rng(len(name))
    whole = lived(**rules)
    for _ in range(3):
        begun(path, monkeypatch, int(draw.integers(1, 9)), **rules)
    run = lived(checkpoint=path, **rules)
    assert_equal(whole.trace, run.trace)
    np.testing.assert_array_equal(whole.params, run.params)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("often")
@pytest.mark.slow
def test_all_of_a_run_is_kept(tmp_path, monkeypatch):
    """Optimizer, losses, recorded models and timing, of a tree with random samples."""
    path, options = tmp_path / "run.npz", {"problem": tree, "update": adam(0.01), "record_every": 4}
    options["clock"] = clocks.constant([1.0, 2.5])
    whole = lived(**options)
    begun(path, monkeypatch, 14, **options)
    run = lived(checkpoint=path, **options)
    parts = [(each.params, each.opt_state, each.records) for each in (whole, run)]
    jax.tree.map(np.testing.assert_array_equal, *parts)
    np.testing.assert_array_equal(live.timing(whole).done, live.timing(run).done)


@pytest.mark.usefixtures("unjudged")
def test_the_file_is_written_before_anything_runs_and_then_seldom(tmp_path, monkeypatch):
    path, seen = tmp_path / "run.npz", []
    real = server_state.Checkpoint.write

    def write(self, *state, **columns):
        seen.append(len(columns["kind"]))
        real(self, *state, **columns)

    monkeypatch.setattr(server_state.Checkpoint, "write", write)
    lived(checkpoint=path)
    assert seen == [0]
    assert not list(tmp_path.iterdir())


def louder(factor):
    """Rules of one name; what they answer differs."""

    def start(n_workers):
        heard = []

        def receive(worker, delay):
            heard.append(worker)
            return Verdict.STEP if len(heard) % factor == 0 else Verdict.DROP

        return Collector(receive)

    return Collection("mine", start, lambda arrivals: arrivals.used.astype(np.float32))


def by_age(power):
    return traces.buffered(3, staleness=lambda delay: (1.0 + delay) ** power)


MIXTURES = {
    "step size": ({}, {"update": sgd(0.2)}),
    "problem": ({}, {"problem": problems.quadratic(np.ones((4, 3)), np.ones((4, 3)))}),
    "key": ({}, {"key": jax.random.key(1)}),
    "length": ({}, {"n_updates": 26}),
    "rule": ({}, {"collect": traces.buffered(2)}),
    "dispatch": ({}, {"dispatch": traces.shuffled()}),
    "gate": ({}, {"gate": traces.lead_at_most(1)}),
    "read": ({}, {"read": "start"}),
    "concurrency": ({}, {"concurrency": 5}),
    "timeout": ({}, {"timeout": 9.0}),
    "records": ({}, {"record_every": 5}),
    "workers": ({}, {"clock": clocks.exponential(np.ones(3))}),
    "rules of one name": ({"collect": louder(2)}, {"collect": louder(3)}),
    "weights of one name": ({"collect": by_age(-0.5)}, {"collect": by_age(-1.0)}),
}


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.usefixtures("often", "unjudged")
def test_another_run_is_refused_and_the_file_stays(name, tmp_path, monkeypatch):
    given, changed = MIXTURES[name]
    path = tmp_path / "run.npz"
    begun(path, monkeypatch, 9, **given)
    content = path.read_bytes()
    words = r"belongs to another run; (the program differs|its inputs differ|its rules answered)"
    with pytest.raises(ValueError, match=words):
        lived(checkpoint=path, **{**given, **changed})
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["time", "answers", "held", "leaf0"])
@pytest.mark.usefixtures("often", "unjudged")
def test_a_damaged_file_is_refused(name, tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    begun(path, monkeypatch, collect=traces.buffered(3))
    arrays = storage.load_arrays(path)
    storage.save_arrays(path, {**arrays, name: arrays[name] + 1})
    with pytest.raises(ValueError, match=r"run\.npz' is damaged"):
        lived(checkpoint=path, collect=traces.buffered(3))
    del arrays[name]
    storage.save_arrays(path, arrays)
    with pytest.raises(ValueError, match=r"is (damaged|no checkpoint)"):
        lived(checkpoint=path, collect=traces.buffered(3))
    path.write_text("not mine")
    with pytest.raises(ValueError, match="cannot be read"):
        lived(checkpoint=path)


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_stopped_workers_are_free_when_a_run_goes_on(tmp_path, monkeypatch):
    """The file of a run whose job was stopped: its worker is new, and gets the next at once."""
    path, rules = tmp_path / "run.npz", {"collect": traces.rennala(1, cancel=True)}
    with live.threads(3) as workers:
        train = partial(live.train, quadratic(), workers, sgd(0.1), n_updates=12, **rules)
        with monkeypatch.context() as patch:
            dying(patch, 8)
            with pytest.raises(Killed):
                train(checkpoint=path)
        stored = storage.load_arrays(path)
        run = train(checkpoint=path)
    traces.validate(run.trace)
    arrived = stored["kind"] == ARRIVED
    np.testing.assert_array_equal(run.trace.time[: arrived.sum()], stored["time"][arrived])
    again = simulation.replay(quadratic(), run.trace, sgd(0.1), waves=False)
    np.testing.assert_array_equal(run.params, again.params)


PROCESS = """
import os, signal, sys
import numpy as np
from asyncjax import live, traces
from asyncjax.live import server_state
from tests.live.shared import quadratic, sgd
server_state.SECONDS, server_state._SHARE = -1.0, 0
path, where, rule, calls, n_updates = *sys.argv[1:4], *map(int, sys.argv[4:])
real = getattr(os, where)
def killing(*arguments):
    global calls
    calls -= 1
    if calls < 0:
        pids = [str(pid) for one in workers.opened.values() for pid in one._processes]
        open(path + ".pids", "w").write(" ".join(pids))
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
rules = {"pure": {}, "cancel": {"collect": traces.rennala(1, cancel=True)},
         "table": {"collect": traces.table()}}
if __name__ == "__main__":
    setattr(os, where, killing)
    with live.processes(2) as workers:
        run = live.train(quadratic, workers, sgd(0.1), n_updates=n_updates, checkpoint=path,
                         **rules[rule])
    traces.save(path + ".trace.npz", run.trace)
    np.savez(path + ".params.npz", run.params)
"""


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["pure", "cancel", "table"])
def test_a_killed_server_is_resumed_by_another_process(rule, tmp_path):
    path, draw, prefix = tmp_path / "run.npz", np.random.default_rng(len(rule)), {}
    script = tmp_path / "script.py"
    script.write_text(PROCESS)
    root = Path(__file__).parents[2]
    for life in range(LIVES):
        where = ("fsync", "replace")[draw.integers(2)]
        calls = 10**6 if life == LIVES - 1 else int(draw.integers(1, 16))
        done = subprocess.run(
            [sys.executable, str(script), str(path), where, rule, str(calls), str(20 * LIVES)],
            env={**os.environ, "PYTHONPATH": str(root)},
            timeout=300,
            capture_output=True,
            check=False,
        )
        assert done.returncode == (0 if calls == 10**6 else -signal.SIGKILL), done.stderr[-3000:]
        if calls < 10**6:
            assert ends(Path(f"{path}.pids").read_text().split())
            stored = storage.load_arrays(path)
            for name, column in prefix.items():
                np.testing.assert_array_equal(stored[name][: len(column)], column)
            prefix = {name: stored[name] for name in server_state.Row._fields}
    trace = traces.load(f"{path}.trace.npz")
    traces.validate(trace)
    arrived = prefix["kind"] == ARRIVED
    for name, column in (("time", trace.time), ("worker", trace.worker)):
        np.testing.assert_array_equal(column[: arrived.sum()], prefix[name][arrived])
    jobs = list(zip(trace.worker.tolist(), trace.job.tolist(), strict=True))
    assert len(set(jobs)) == len(jobs)
    again = simulation.replay(quadratic(), trace, sgd(0.1), waves=False)
    with np.load(f"{path}.params.npz") as arrays:
        exactly = 0.0 if rule != "table" else 1e-5
        np.testing.assert_allclose(arrays["arr_0"], again.params, rtol=exactly)
    assert not path.exists()
