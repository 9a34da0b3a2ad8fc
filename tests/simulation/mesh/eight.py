"""What the programs of this folder share; they run where jax sees eight devices."""

import re
from contextlib import contextmanager

import jax
import numpy as np

from asyncjax import clocks, problems, traces
from asyncjax.simulation import loop

COLLECTIVE = re.compile(
    r"= (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)


class Stop(Exception):
    """Ends a run, as if it had been killed."""


def killed(call):
    """Runs two pieces, the first of which is in the checkpoint; returns the updates of that one."""
    seconds, loop._CHECKPOINT_SECONDS = loop._CHECKPOINT_SECONDS, 0.0
    seen = []

    def progress(now):
        seen.append(now.updates)
        if len(seen) == 2:
            raise Stop

    try:
        call(progress=progress)
    except Stop:
        return seen[0]
    finally:
        loop._CHECKPOINT_SECONDS = seconds
    raise AssertionError("the run ended before it was stopped")


def resumed(call, path, first, second):
    """Kills a run on one mesh and goes on with it on another.

    Returns whether it went on from the file, whether that is gone then, and the run.
    """
    updates, seen = killed(lambda **options: call(mesh=first, checkpoint=path, **options)), []
    written = path.exists()
    run = call(mesh=second, checkpoint=path, progress=lambda now: seen.append(now.updates))
    return written and seen[0] > updates, not path.exists(), run


def trace_of(n_workers, n_updates, seed=1, **options):
    clock = clocks.exponential(np.linspace(1.0, 3.0, n_workers))
    return traces.asynchronous(clock, n_updates=n_updates, key=jax.random.key(seed), **options)


def network(n_workers, rows, sizes=(16,), classes=8, features=64):
    """A multi-layer perceptron on random rows, in the precision of the process."""
    rng = np.random.default_rng(0)
    kind = jax.dtypes.canonicalize_dtype(np.float64)
    problem = problems.classification(
        problems.MLP(sizes),
        rng.standard_normal((rows, features)).astype(kind),
        rng.integers(0, classes, rows),
        n_workers=n_workers,
        key=jax.random.key(3),
        batch=problems.cyclic(4),
    )
    return with_params(problem, jax.tree.map(lambda leaf: leaf.astype(kind), problem.params))


def with_params(problem, params):
    return problems.Problem(
        params,
        problem.data,
        problem.gradient_of,
        problem.objective_of,
        problem.metrics_of,
        problem.n_workers,
    )


def outcome(run):
    """All numbers of a run."""
    records = run.records
    return jax.tree.map(np.asarray, (run.params, run.opt_state, records.loss, records.metrics))


def same_bits(run, other):
    pairs = zip(jax.tree.leaves(outcome(run)), jax.tree.leaves(outcome(other)), strict=True)
    return all(np.array_equal(*pair) for pair in pairs)


def apart(run, other):
    """The largest difference, relative where numbers are above 1."""
    pairs = zip(jax.tree.leaves(outcome(run)), jax.tree.leaves(outcome(other)), strict=True)
    parts = [np.abs(a - b) / np.maximum(1.0, np.abs(a)) for a, b in pairs]
    return max(float(np.max(part, initial=0.0)) for part in parts)


@contextmanager
def compiled(texts):
    """Adds the optimised program of every run at once to a list."""
    whole = loop._whole

    def noting(kind, extras, *arrays):
        program = whole.lower(kind, extras, *arrays).compile()  # compiled once, and then run
        texts.append(program.as_text())
        return program(*arrays)

    loop._whole = noting
    try:
        yield
    finally:
        loop._whole = whole


def collectives(text):
    """The kinds of communication in a program, and the shapes that each delivers."""
    return [
        [kind, re.findall(r"\w+\[[\d,]*\]", shapes)] for shapes, kind in COLLECTIVE.findall(text)
    ]


def largest(text):
    """Entries of the largest array on a device."""
    shapes = re.findall(r"\b(?:f|s|u|bf)\d+\[([\d,]*)\]|\bpred\[([\d,]*)\]", text)
    return max(
        int(np.prod([int(x) for x in (one or other).split(",") if x], initial=1))
        for one, other in shapes
    )


def told(call, *args, **options):
    """The error of a call."""
    try:
        call(*args, **options)
    except (TypeError, ValueError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"
