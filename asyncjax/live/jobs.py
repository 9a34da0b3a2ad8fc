"""What runs at a worker: it holds a problem, and answers a model with a gradient.

A worker knows no rule, no optimizer and no server. It is set up once, which also compiles its
gradient; then every job is a model, a worker's number and a job's number, and the answer a loss, a
gradient and the seconds that it took. Arrays travel as NumPy.

Where workers keep a state from job to job, a worker has the one before its last job and the one
after it: the server says with each job after which one it starts, so a job whose answer came too
late, or that the server gave up, has not moved the state.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.problems import Problem
from asyncjax.simulation.checkpoints import leaf_of, numbers_of
from asyncjax.simulation.update import job_key

Leaves = list[np.ndarray]


class Kept(NamedTuple):
    """What a worker has kept, as its server knows it."""

    after: int  # the last of its jobs that counts; -1: none
    state: Leaves | None  # as it was then, if it was carried to the server


FIRST = Kept(-1, None)


class Answer(NamedTuple):
    """What a worker sends."""

    loss: np.ndarray  # float[]
    gradient: Leaves
    seconds: float  # that it computed
    state: Leaves | None = None  # what the worker keeps after it, if that is carried


class CallError(RuntimeError):
    """A call failed at a worker: in words, since not every error can travel."""


class _Site(NamedTuple):
    """A run, as a worker holds it."""

    problem: Problem
    key: jax.Array
    double: bool
    carries: bool
    states: dict[int, Any]  # what it keeps, by the job after which; empty where it keeps nothing


_SITES: dict[tuple[str, int], _Site] = {}  # by run and worker: threads share a process


def software() -> tuple[str, bool]:
    """The version of jax, and whether it computes in float64."""
    return jax.__version__, bool(jax.config.read("jax_enable_x64"))


def make_problem(source: Any, worker: int | None) -> Problem:
    """The problem of a source: itself, or what the function makes, for a worker or the server."""
    if isinstance(source, Problem):
        return source
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes = inspect.signature(source).parameters.values()
    asks = any(it.kind in kinds and it.default is inspect.Parameter.empty for it in takes)
    return source(worker) if asks else source()


@contextmanager
def _in_words() -> Iterator[None]:
    """Errors of a call as those that travel; their cause is told by what carries them."""
    try:
        yield
    except Exception as error:
        raise CallError(f"{type(error).__name__}: {error}") from error


def task_of(source: Any, problem: Problem, key: jax.Array, carries: bool) -> tuple[Any, ...]:
    """What `set_up` is told beside run and worker; whether answers carry what workers keep."""
    parts = str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key))
    return source, parts, software(), form_of_state(problem), carries


def set_up(
    run: str, worker: int, source: Any, key: Any, server: Any, form: Any, carries: bool
) -> tuple[str, bool]:
    """Makes the problem of a source, compiles its gradient, and answers with `software` here.

    `run` is a name that no other run has; the rest is the server's (`task_of`).
    """
    here = software()
    if here[0] != server[0]:
        return here
    with _in_words(), jax.enable_x64(server[1]):
        problem, states = make_problem(source, worker), dict[int, Any]()
        if form_of_state(problem) != form:
            raise ValueError(
                "problem must keep at a worker what it keeps at the server, from job to job"
                f" (keep_state of local_steps): {form}, got {form_of_state(problem)}"
            )
        if form is not None:
            states[FIRST.after] = first_state(problem)
        run_key = jax.random.wrap_key_data(jnp.asarray(key[1]), impl=key[0])
        _SITES[run, worker] = _Site(problem, run_key, server[1], carries, states)
        model = [np.asarray(leaf) for leaf in jax.tree.leaves(problem.params)]
    compute(run, model, worker, 0, FIRST if states else None)
    return here[0], server[1]


def compute(run: str, model: Leaves, worker: int, job: int, start: Kept | None = None) -> Answer:
    """The gradient of a job; `start` is what the worker starts it with, where it keeps a state."""
    site, began, state, carried = _SITES[run, worker], time.perf_counter(), None, None
    with _in_words(), jax.enable_x64(site.double):
        if start is not None and start.state is not None:  # it is sent
            state = unpacked(site.problem, start.state)
        elif start is not None:
            state = site.states[start.after]
        loss, gradient, after = evaluate(site.problem, model, worker, job, site.key, state)
        if start is not None:
            site.states.clear()
            site.states.update({start.after: state, job: after})
            carried = packed(after) if site.carries else None
    return Answer(loss, gradient, time.perf_counter() - began, carried)


def evaluate(
    problem: Problem, model: Leaves, worker: int, job: int, key: jax.Array, state: Any
) -> tuple[np.ndarray, Leaves, Any]:
    """Loss and gradient of a job, and what its worker keeps then."""
    params = jax.tree.unflatten(jax.tree.structure(problem.params), model)
    loss, gradient, *after = gradient_of(
        problem, params, np.int32(worker), np.int32(job), key, state
    )
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(gradient)]
    return np.asarray(loss), leaves, after[0] if after else None


def forget(run: str, worker: int) -> None:
    """Drops what a run left at a worker."""
    _SITES.pop((run, worker), None)


@jax.jit
def gradient_of(
    problem: Problem, params: Any, worker: Any, job: Any, key: jax.Array, state: Any = None
) -> tuple[Any, ...]:
    """Loss and gradient of a job; then, where workers keep a state, that after the job."""
    return problem.gradient(params, worker, job, job_key(key, worker, job), state)


@jax.jit
def first_state(problem: Problem) -> Any:
    """What a worker keeps before its first job."""
    return problem.worker_state()


def form_of_state(problem: Problem) -> tuple[Any, ...] | None:
    """Shape and dtype of what a worker keeps, leaf by leaf; None where workers keep nothing."""
    if problem.worker_state_of is None:
        return None
    leaves = jax.tree.leaves(jax.eval_shape(problem.worker_state))
    return tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def packed(state: Any) -> Leaves:
    """A worker's state as it travels: keys as numbers."""
    return [np.asarray(numbers_of(leaf)) for leaf in jax.tree.leaves(state)]


def unpacked(problem: Problem, leaves: Leaves) -> Any:
    """What was packed."""
    like, structure = jax.tree.flatten(jax.eval_shape(problem.worker_state))
    return jax.tree.unflatten(structure, map(leaf_of, leaves, like))


def stacked(problem: Problem, states: dict[int, Any], n_workers: int) -> Any:
    """What n workers keep, one row per worker; an absent one has what it began with."""
    first = first_state(problem)
    rows = [states.get(worker, first) for worker in range(n_workers)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
