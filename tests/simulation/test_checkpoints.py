"""Checkpoints know their run: no mixture of two runs, and no damaged file, goes by."""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, orders, problems, simulation, steps, storage, stragglers, traces
from asyncjax.simulation import checkpoints, loop
from asyncjax.simulation.checkpoints import program_digest


class Killed(Exception):
    pass


CLOCK = clocks.constant([1.0, 2.0, 3.0])
sgd = cache(optax.sgd)  # one for equal arguments, so that a second run compiles nothing
rule_of = cache(steps.scale_by_adaptive_1)
shuffled = cache(orders.reshuffled)
FEATURES = np.random.default_rng(0).standard_normal((24, 2)).astype(np.float32)
LABELS = np.arange(24) % 2
ONES = np.ones((3, 2), np.float32)
PROJECTED = orders.pair_balanced_by_projection(24, jnp.zeros(2))


def trace(n_updates=12, **rest):
    return traces.asynchronous(CLOCK, n_updates=n_updates, **rest)


def logistic(l2=0.0, batch=None, n_workers=3):
    return problems.logistic(FEATURES, LABELS, n_workers=n_workers, l2=l2, batch=batch)


def quadratic(noise=0.0, start=None):
    return problems.quadratic(ONES, ONES, noise=noise, start=start)


def chained(rule):
    return optax.chain(rule, optax.scale(-0.1))


def replay(problem=None, optimizer=None, own=None, **rest):
    problem = quadratic() if problem is None else problem
    optimizer = sgd(0.1) if optimizer is None else optimizer
    own = trace() if own is None else own
    return simulation.replay(problem, own, optimizer, width=1, **rest)


def from_gradient(factor):
    return problems.from_gradient(
        jnp.zeros(2), lambda x, worker, job, key: (jnp.sum(x**2), factor * x - ONES[0])
    )


def piag(step=0.1, prox=None, **rest):
    rule = rule_of(step, max_delay=8)
    return simulation.replay_piag(quadratic(), trace(), rule, prox=prox, width=1, **rest)


def blocks(torn=0.0, **rest):
    rule = rule_of(0.1, max_delay=8)
    return simulation.replay_block_descent(
        quadratic(), trace(), rule, n_blocks=2, torn=torn, **rest
    )


def epochs(step=0.1, order=None, n_epochs=2, **rest):
    order = shuffled(24) if order is None else order
    problem = logistic(n_workers=1)
    return simulation.run_epochs(problem, order, sgd(step), n_epochs=n_epochs, **rest)


def policy(law=clocks.lognormal, decide=None, **rest):
    times = stragglers.response(compute=law([1.0, 1.0, 2.0], 0.5), n_workers=3)
    own = stragglers.fixed(2, 4) if decide is None else decide
    return simulation.run_policy(
        logistic(), times, own, sgd(0.1), n_updates=6, key=jax.random.key(0), **rest
    )


def sweep(maker=optax.sgd, step_sizes=(0.1, 0.2), **rest):
    keys = jax.random.split(jax.random.key(0), 2)
    return simulation.sweep(quadratic(0.1), trace(), maker, step_sizes, keys=keys, **rest)


def with_metric(factor):
    problem = quadratic()
    object.__setattr__(problem, "metrics_of", (("m", partial(metric, factor)),))
    return problem


def metric(factor, data, params):
    return factor * jnp.sum(params)


def kind(name):
    return jax.random.key(0, impl=name)


def deciding(k):
    own = stragglers.fixed(2, 4)
    return stragglers.Policy(
        own.init,
        lambda state, seen: (state, stragglers.Choice(jnp.int32(k), jnp.float32(4), jnp.int32(0))),
        max_load=4,
    )


# A run, what it is given, and what an old checkpoint of it must not become.
MIXTURES = {
    "step size of sgd": (replay, {}, {"optimizer": optax.sgd(0.5)}),
    "sgd, then a staleness rule": (replay, {}, {"optimizer": chained(steps.drop_stale(1))}),
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
    "noise": (replay, {}, {"problem": quadratic(1.0)}),
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
    "metric": (replay, {"problem": with_metric(1.0)}, {"problem": with_metric(2.0)}),
    "trace": (replay, {}, {"own": trace(collect=traces.ringmaster(2))}),
    "weights": (
        replay,
        {"own": trace(collect=traces.buffered(2))},
        {"own": trace(collect=traces.buffered(2, staleness=lambda d: 1 / (1 + d)))},
    ),
    "seed of the key": (replay, {}, {"key": jax.random.key(1)}),
    "waves": (replay, {}, {"waves": False}),
    "order that learns": (
        partial(replay, logistic()),
        {"order": orders.coordinated(3, 8, 2)},
        {"order": orders.independent(3, 8, 2)},
    ),
    "step size of PIAG": (piag, {}, {"step": 0.2}),
    "prox of PIAG": (piag, {"prox": steps.l1(1e-3)}, {"prox": steps.l1(1e-2)}),
    "torn reads": (blocks, {"torn": 0.5}, {"torn": 1.0}),
    "step size of epochs": (epochs, {}, {"step": 0.2}),
    "order": (epochs, {}, {"order": orders.flip_flop(24)}),
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
    "decision": (policy, {"decide": deciding(2)}, {"decide": deciding(1)}),
    "k of a policy": (policy, {}, {"decide": stragglers.fixed(1, 4)}),
    "maker of a sweep": (sweep, {}, {"maker": optax.adam}),
    "step sizes of a sweep": (sweep, {}, {"step_sizes": (0.1, 0.3)}),
}


def begun(run, path):
    """Runs until the first piece is done; leaves a checkpoint."""

    def kill(_):
        raise Killed

    with pytest.raises(Killed):
        run(progress=kill, checkpoint=path)
    assert path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXTURES)
def test_a_changed_run_is_refused_and_the_checkpoint_stays(name, tmp_path):
    run, given, changed = MIXTURES[name]
    path = tmp_path / "run.npz"
    begun(partial(run, **given), path)
    kept = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"belongs to another run; (the program|its inputs) differ"
    ):
        run(**(given | changed), checkpoint=path)
    assert path.read_bytes() == kept


def test_a_run_under_other_software_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    begun(replay, path)
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
    begun(replay, path)
    damaged(path, **DAMAGES[name])
    with pytest.raises(ValueError, match=r"checkpoint '.*run.npz' is (damaged|no checkpoint)"):
        replay(checkpoint=path)


def test_a_file_that_is_no_checkpoint_is_refused_and_stays(tmp_path):
    text, results = tmp_path / "notes.txt", tmp_path / "results.npz"
    text.write_text("not mine")
    storage.save_arrays(results, {"loss": np.ones(3)})
    for path in (text, results):
        kept = path.read_bytes()
        with pytest.raises(ValueError, match=r"cannot be read|is no checkpoint"):
            replay(checkpoint=path)
        assert path.read_bytes() == kept


def test_a_place_that_cannot_be_written_is_found_before_the_run(tmp_path, monkeypatch):
    seen = []
    with pytest.raises(FileNotFoundError, match="checkpoint must lie in a folder that exists"):
        replay(checkpoint=tmp_path / "no" / "run.npz", progress=seen.append)
    with pytest.raises(IsADirectoryError, match="checkpoint must be the path of a file"):
        replay(checkpoint=tmp_path, progress=seen.append)

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
    assert same(replay(checkpoint=path), replay())


def same(one, other):
    """Whether all arrays of two runs are the same bits."""
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in map(plain, leaves))


def plain(pair):
    if isinstance(pair[0], jax.Array) and jnp.issubdtype(pair[0].dtype, jax.dtypes.prng_key):
        return tuple(map(jax.random.key_data, pair))
    return pair


RUNS = {
    "replay in waves": partial(
        replay, quadratic(1.0), optax.adam(0.1), trace(collect=traces.buffered(2))
    ),
    "replay of events": partial(replay, quadratic(1.0), optax.adam(0.1), waves=False),
    "sweep": sweep,
    "epochs": partial(epochs, order=orders.grab(24, 2), n_epochs=3, prefix_norms=True),
    "epochs by projections": partial(epochs, order=PROJECTED, units_per_step=4),
    "order that learns": partial(
        replay, logistic(), optax.sgd(0.1, momentum=0.5), order=orders.coordinated(3, 8, 2)
    ),
    "policy": partial(policy, decide=stragglers.staged([1, 3], [2, 5], [3, 1])),
    "PIAG": piag,
}


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
@pytest.mark.parametrize("name", RUNS)
def test_runs_killed_anywhere_resume_to_the_same_bits(name, tmp_path, monkeypatch):
    """Ten lives a run: killed in a report, before a file is complete, or before it is in place."""
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)
    run, path, draw = RUNS[name], tmp_path / "run.npz", np.random.default_rng(len(name))
    whole, kills = run(), 0
    while kills < 10:
        where = ("progress", "fsync", "replace")[draw.integers(3)]
        killer = Killer(int(draw.integers(1, 4)), where)
        with monkeypatch.context() as patch:
            if where != "progress":
                real = getattr(os, where)
                patch.setattr(os, where, lambda *a, own=killer, real=real: (own(), real(*a))[1])
            try:
                done = run(
                    checkpoint=path, progress=killer if where == "progress" else lambda _: None
                )
            except Killed:
                kills += 1
                continue
        assert same(done, whole)
        assert not list(tmp_path.iterdir())
    assert same(run(checkpoint=path), whole)


PROCESS = """
import os, signal, sys, numpy as np, jax
from asyncjax.simulation import loop
from tests.simulation.test_checkpoints import RUNS
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
@pytest.mark.parametrize("name", ["replay in waves", "epochs"])
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
        kept = [leaves[name] for name in leaves.files]
    assert same(kept, [np.asarray(x) for x in jax.tree.leaves((whole.params, whole.records.loss))])
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz.done.npz"]


def test_the_mark_costs_no_compilation(tmp_path):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    replay(from_gradient(3.0), progress=lambda _: None)
    before = len(compiled)
    replay(from_gradient(4.0), checkpoint=tmp_path / "run.npz")
    fresh = len(compiled) - before
    replay(from_gradient(5.0), progress=lambda _: None)
    assert fresh == len(compiled) - before - fresh == 3
    assert checkpoints.fingerprint(kind("rbg")) != checkpoints.fingerprint(kind("unsafe_rbg"))
