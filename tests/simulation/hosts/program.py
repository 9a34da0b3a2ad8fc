"""What every process of a test does: some tasks in order, and their facts in a file.

python -m tests.simulation.hosts.program ADDRESS COUNT OWN FOLDER TASK ...
"""

import hashlib
import json
import os
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax

from asyncjax import clocks, orders, problems, simulation, traces
from asyncjax.simulation import loop
from asyncjax.simulation.checkpoints import numbers_of
from asyncjax.simulation.hosts import placed

FINISHED = "finished"


def data(shift=0.0):
    """A noisy quadratic on three workers."""
    targets = np.arange(12.0).reshape(3, 4) + shift
    return problems.quadratic(np.ones((3, 4)), targets, noise=1.0)


def rows():
    """Rows of a small regression, dealt to eight workers."""
    draw = np.random.default_rng(0)
    features = draw.standard_normal((32, 4))
    return problems.least_squares(features, features @ np.ones(4), n_workers=8)


def trace_of():
    """Three workers of unequal speed."""
    clock = clocks.exponential([1.0, 2.0, 3.0])
    return traces.asynchronous(clock, n_updates=60, key=jax.random.key(1))


def sweep(mesh, *, seed=0, shift=0.0, maker=optax.adam, lie=None, **rest):
    """Six seeds and three step sizes, so over eight devices some runs are padding.

    `lie` is where its keys lie already.
    """
    keys = jax.random.split(jax.random.key(seed), 6)
    keys = keys if lie is None else placed(keys, lie)
    given = (data(shift), trace_of(), maker, [0.1, 0.2, 0.3])
    return simulation.sweep(*given, keys=keys, mesh=mesh, **rest)


def replay(mesh, lie=None, specs=None, **rest):
    """One replay, eight lanes a wave; `lie` is where its data lie already."""
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(8)))
    trace = traces.asynchronous(clock, n_updates=80, key=jax.random.key(2))
    problem = problems.quadratic(np.ones((8, 16)), np.arange(128.0).reshape(8, 16), noise=1.0)
    if lie is not None:
        problem = replace(problem, data=jax.tree.map(lambda leaf: placed(leaf, lie), problem.data))
    return simulation.replay(
        problem,
        trace,
        optax.adam(0.05),
        width=8,
        execution=simulation.Execution(mesh, specs),
        **rest,
    )


def epochs(mesh, **rest):
    """CD-GraB's order on eight workers."""
    order = orders.coordinated(8, 4, 4)
    return simulation.run_epochs(
        rows(),
        order,
        optax.sgd(0.05),
        n_epochs=3,
        n_workers=8,
        execution=simulation.Execution(mesh=mesh),
        **rest,
    )


def fact(run):
    """A digest of all arrays of a run, what they are, and numbers to compare."""
    leaves = jax.tree.leaves((run.params, run.opt_state, run.records, run.order_state))
    leaves = [np.asarray(numbers_of(leaf)) for leaf in leaves]
    return {
        "digest": hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest(),
        "dtype": str(leaves[0].dtype),
        "kind": type(jax.tree.leaves(run.params)[0]).__module__.split(".")[0],
        "params": np.ravel(run.params).tolist(),
        "loss": np.ravel(run.records.loss).tolist(),
        "text": repr(run),
    }


def failure(call):
    """The error of a call, and what it took."""
    began = time.monotonic()
    try:
        call()
    except (RuntimeError, ValueError, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}", "seconds": time.monotonic() - began}
    return {"error": ""}


def in_float64(call):
    """The same in double precision."""
    with jax.enable_x64(True):
        return call()


class Killer:
    """Ends this process in the middle of a run, by the signal that nothing hears."""

    def __init__(self, turn):
        self.turn = turn

    def __call__(self, seen):
        if seen.updates >= self.turn:
            os.kill(os.getpid(), signal.SIGKILL)


def quickly():
    """Every turn is a piece, and every piece is written."""
    loop._PIECE_SECONDS, loop._CHECKPOINT_SECONDS = 0.0, -1.0


def killed(process, victim, call):
    """A checkpointed run, one process of which is killed in the middle."""
    quickly()
    progress = Killer(30) if process == victim else lambda _: None
    return failure(partial(call, progress=progress))


def tasks_of(mesh, process, folder):
    """All tasks by their names."""
    wrong = process == 1  # this process is given something else
    other, checkpoint = (optax.sgd, None) if wrong else (optax.adam, folder / "run.npz")
    path = folder / "run.npz"
    spec = jax.sharding.PartitionSpec("devices")
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    split = partial(replay, mesh, specs=spec, checkpoint=folder / "replay.npz")
    seen = []
    return {
        "sweep": lambda: fact(sweep(mesh)),
        "pieces": lambda: fact(sweep(mesh, progress=seen.append)),
        "placed keys": lambda: fact(sweep(None, lie=everywhere)),
        "placed data": lambda: in_float64(
            lambda: fact(replay(mesh, lie=jax.sharding.NamedSharding(mesh, spec)))
        ),
        "resume": lambda: fact(sweep(mesh, checkpoint=path)),
        "replay": lambda: fact(replay(mesh)),
        "replay64": lambda: in_float64(lambda: fact(replay(mesh))),
        "split64": lambda: in_float64(lambda: fact(replay(mesh, specs=spec))),
        "epochs64": lambda: in_float64(lambda: fact(epochs(mesh))),
        "wrong key": lambda: failure(lambda: sweep(mesh, seed=int(wrong))),
        "wrong data": lambda: failure(lambda: sweep(mesh, shift=float(wrong))),
        "wrong optimizer": lambda: failure(lambda: sweep(mesh, maker=other)),
        "wrong checkpoint": lambda: failure(lambda: sweep(mesh, checkpoint=checkpoint)),
        "nowhere": lambda: failure(lambda: sweep(mesh, checkpoint=folder / "no" / "run.npz")),
        "damaged": lambda: failure(lambda: sweep(mesh, checkpoint=folder / "damaged.npz")),
        "kill 1": lambda: killed(process, 1, partial(sweep, mesh, checkpoint=path)),
        "kill 0": lambda: in_float64(lambda: killed(process, 0, split)),
        "resume64": lambda: in_float64(lambda: fact(split())),
    }


def main(address, count, process, folder, *names):
    """Joins the others, does the tasks, and writes what came out after each."""
    count, process, folder = int(count), int(process), Path(folder)
    if count > 1:
        # JAX's own patience with a silent process is its default, 100 s.
        jax.distributed.initialize(
            address,
            count,
            process,
            cluster_detection_method="deactivate",
            initialization_timeout=60,
        )
    mesh = jax.make_mesh((len(jax.devices()),), ("devices",))
    tasks, facts = tasks_of(mesh, process, folder), {"devices": mesh.size}
    for name in names:
        facts[name] = tasks[name]()
        (folder / f"facts.{process}.json").write_text(json.dumps(facts))
    sys.stdout.write(FINISHED)
    sys.stdout.flush()
    if any(name.startswith("kill") for name in names):
        os._exit(3)  # the end of the others is not waited for


if __name__ == "__main__":
    main(*sys.argv[1:])
