"""Checkpoints know their run: no mixture of two runs, and no damaged file, goes by."""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, orders, problems, steps, storage, stragglers, traces
from asyncjax.simulation import loop
from asyncjax.simulation.checkpoints import program_digest
from tests.simulation.runs import (
    PROJECTED,
    RUNS,
    SWEEPS,
    blocks,
    epochs,
    from_gradient,
    logistic,
    piag,
    policy,
    quadratic,
    replay,
    sweep,
    trace,
)
from tests.simulation.shared import Killed, assert_same, killed


def deciding(k):
    fixed = stragglers.fixed(2, 4)
    return stragglers.Policy(
        fixed.init,
        lambda state, seen: (state, stragglers.Choice(jnp.int32(k), jnp.float32(4), jnp.int32(0))),
        max_load=4,
    )


# A run, what it is given, and what an old checkpoint of it must not become.
MIXTURES = {
    "step size of sgd": (replay, {}, {"optimizer": optax.sgd(0.5)}),
    "a schedule": (
        replay,
        {"optimizer": optax.sgd(optax.constant_schedule(0.1))},
        {"optimizer": optax.sgd(optax.linear_schedule(0.1, 0.0, 12))},
    ),
    "l2": (replay, {"problem": logistic(0.0)}, {"problem": logistic(1.0)}),
    "kind of batch": (
        replay,
        {"problem": logistic(batch=problems.uniform(2))},
        {"problem": logistic(batch=problems.cyclic(2))},
    ),
    "another gradient": (
        replay,
        {"problem": from_gradient(1.0)},
        {"problem": from_gradient(2.0)},
    ),
    "local steps": (
        replay,
        {"problem": problems.local_steps(quadratic(), n_steps=2, step_size=0.1)},
        {"problem": problems.local_steps(quadratic(), n_steps=5, step_size=0.1)},
    ),
    "first model": (replay, {}, {"problem": quadratic(start=np.full(2, 0.5))}),
    "trace": (replay, {}, {"log": trace(collect=traces.ringmaster(2))}),
    "seed of the key": (replay, {}, {"key": jax.random.key(1)}),
    "waves": (replay, {}, {"waves": False}),
    "order that learns": (
        partial(replay, logistic()),
        {"order": orders.coordinated(3, 8, 2)},
        {"order": orders.independent(3, 8, 2)},
    ),
    "prox of PIAG": (piag, {"prox": steps.l1(1e-3)}, {"prox": steps.l1(1e-2)}),
    "torn reads": (blocks, {"torn": 0.5}, {"torn": 1.0}),
    "number of epochs": (epochs, {}, {"n_epochs": 3}),
    "signs by projections": (
        partial(epochs, units_per_step=4),
        {"order": PROJECTED},
        {"order": PROJECTED.order},
    ),
    "constant of an order": (
        epochs,
        {"order": orders.probabilistic(24, 2, 0.5)},
        {"order": orders.probabilistic(24, 2, 0.7)},
    ),
    "law": (policy, {}, {"law": clocks.gamma}),
    "k of a policy": (policy, {}, {"decide": stragglers.fixed(1, 4)}),
    "decision": (policy, {"decide": deciding(2)}, {"decide": deciding(1)}),
    "maker of a sweep": (sweep, {}, {"maker": optax.adam}),
    "step sizes of a sweep": (sweep, {}, {"step_sizes": (0.1, 0.3)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXTURES)
def test_a_changed_run_is_refused_and_the_checkpoint_stays(name, tmp_path):
    run, given, changed = MIXTURES[name]
    path = tmp_path / "run.npz"
    killed(partial(run, **given), path)
    content = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"belongs to another run; (the program|its inputs) differ"
    ):
        run(**(given | changed), checkpoint=path)
    assert path.read_bytes() == content


def test_a_run_under_other_software_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    killed(replay, path)
    monkeypatch.setattr(jax, "__version__", "0.0.1")
    with pytest.raises(ValueError, match=r"written under jax 0\.10.*this is jax 0\.0\.1 on cpu"):
        replay(checkpoint=path)


def test_equal_functions_count_once_whatever_their_names():
    def inner(x):
        return jnp.sin(x) * 2

    one, other = jax.jit(inner), jax.jit(lambda x: jnp.sin(x) * 2)

    def digest(first, second):
        return program_digest(jax.jit(lambda x: first(x) + second(x + 1)).lower(1.0))

    assert digest(one, one) == digest(one, other) == digest(other, other)
    assert digest(one, one) != digest(one, jax.jit(lambda x: jnp.sin(x) * 3))


def damaged(path, **changes):
    """Writes the same checkpoint with other fields; None: without the field."""
    arrays = storage.load_arrays(path)
    for name, change in changes.items():
        value = change(arrays.pop(name)) if callable(change) else change
        if value is not None:
            arrays[name] = value
    storage.save_arrays(path, arrays)


DAMAGES = {
    "place another": {"place": lambda place: place + 1},
    "no place": {"place": lambda _: None},
    "no checksum": {"checksum": lambda _: None},
    "no program": {"program": lambda _: None},
    "NaN in a leaf": {"leaf0": lambda leaf: np.full_like(leaf, np.nan)},
    "a leaf of another dtype": {"leaf0": lambda leaf: leaf.astype(np.float64)},
    "a leaf of another shape": {"leaf0": lambda leaf: leaf[:1]},
    "a leaf too few": {"leaf1": lambda _: None},
    "a leaf too many": {"leaf99": np.zeros(2)},
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_refused(name, tmp_path):
    path = tmp_path / "run.npz"
    killed(replay, path)
    damaged(path, **DAMAGES[name])
    with pytest.raises(ValueError, match=r"checkpoint '.*run.npz' is (damaged|no checkpoint)"):
        replay(checkpoint=path)


def test_a_file_that_is_no_checkpoint_is_refused_and_stays(tmp_path):
    text, results = tmp_path / "notes.txt", tmp_path / "results.npz"
    text.write_text("not mine")
    storage.save_arrays(results, {"loss": np.ones(3)})
    for path in (text, results):
        content = path.read_bytes()
        with pytest.raises(ValueError, match=r"cannot be read|is no checkpoint"):
            replay(checkpoint=path)
        assert path.read_bytes() == content


def test_a_place_that_cannot_be_written_is_found_before_the_run(tmp_path, monkeypatch):
    seen = []

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replay(checkpoint=tmp_path / "run.npz", progress=seen.append)
    assert not seen
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)
    path, sync, calls = tmp_path / "run.npz", os.fsync, []

    def full(file):
        calls.append(1)
        if len(calls) > 4:
            raise OSError(28, "No space left on device")
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replay(checkpoint=path)
    assert int(storage.load_arrays(path)["place"]) == 3
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]
    monkeypatch.setattr(os, "fsync", sync)
    assert_same(replay(checkpoint=path), replay())


EVERY = RUNS | SWEEPS


@dataclass
class Killer:
    """Ends a run at some point of its own: in a report, or while a file is written."""

    calls: int
    where: str

    def __call__(self, *_):
        self.calls -= 1
        if self.calls < 0:
            raise Killed(self.where)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_runs_killed_anywhere_resume_to_the_same_bits(name, tmp_path, monkeypatch):
    """Ten lives a run: killed in a report, before a file is complete, or before it is in place."""
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)
    run, path, draw = EVERY[name], tmp_path / "run.npz", np.random.default_rng(len(name))
    whole, kills = run(), 0
    while kills < 10:
        where = ("progress", "fsync", "replace")[draw.integers(3)]
        killer = Killer(int(draw.integers(1, 4)), where)
        with monkeypatch.context() as patch:
            if where != "progress":
                real = getattr(os, where)
                patch.setattr(os, where, lambda *a, kill=killer, real=real: (kill(), real(*a))[1])
            try:
                done = run(
                    checkpoint=path, progress=killer if where == "progress" else lambda _: None
                )
            except Killed:
                kills += 1
                continue
        assert_same(done, whole)
        assert not list(tmp_path.iterdir())
    assert_same(run(checkpoint=path), whole)


PROCESS = """
import os, signal, sys, numpy as np, jax
from asyncjax.simulation import loop
from tests.simulation.runs import RUNS
loop._CHECKPOINT_SECONDS, loop._PIECE_SECONDS = -1.0, 0.0
name, path, where, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
real = getattr(os, where)
def killing(*arguments):
    global calls
    calls -= 1
    if calls < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(os, where, killing)
run = RUNS[name](checkpoint=path)
leaves = jax.tree.leaves((run.params, run.records.loss))
np.savez(path + ".done.npz", *map(np.asarray, leaves))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["waves", "epochs"])
def test_a_killed_process_is_resumed_by_another_to_the_same_bits(name, tmp_path):
    path = tmp_path / "run.npz"
    for where, calls in (("fsync", 3), ("replace", 3), ("fsync", 10**6)):
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, name, str(path), where, str(calls)],
            env={**os.environ, "PYTHONHASHSEED": str(calls % 1000)},
            cwd=Path(__file__).parents[2],
            timeout=300,
            capture_output=True,
            check=False,
        )
        assert done.returncode == (0 if calls == 10**6 else -9), done.stderr[-2000:]
    whole = RUNS[name]()
    with np.load(str(path) + ".done.npz") as leaves:
        arrays = [leaves[name] for name in leaves.files]
    assert_same(arrays, jax.tree.leaves((whole.params, whole.records.loss)))
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz.done.npz"]
