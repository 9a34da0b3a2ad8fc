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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.problems import Problem
from asyncjax.simulation.checkpoints import form_of, leaf_of, numbers_of
from asyncjax.simulation.update import job_key

Leaves = list[np.ndarray]


class Keeping(NamedTuple):
    """What workers keep from job to job."""

    form: tuple[Any, ...] | None  # shape and dtype of each leaf; None: they keep nothing
    carries: bool  # each answer carries it to the server


class Kept(NamedTuple):
    """What a worker has kept, as its server knows it."""

    after: int  # the last of its jobs that counts; -1: none
    state: Leaves | None  # as it was then, if it was carried to the server


NOTHING = Keeping(None, False)
FIRST = Kept(-1, None)


class Assignment(NamedTuple):
    """What a worker is set up with."""

    run: str  # a name that no other run has
    source: Any  # a Problem, or a function that makes one
    worker: int
    key: tuple[str, np.ndarray]  # of the run: implementation and data
    software: tuple[str, bool]  # the server's version of jax, and whether it computes in float64
    keeping: Keeping = NOTHING


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
    """The problem of a source: itself, or what the function makes, for a worker or for the server.

    Raises:
        TypeError: There is none.
    """
    made = source
    if not isinstance(source, Problem) and callable(source):
        made = source(worker) if _takes_worker(source) else source()
    if not isinstance(made, Problem):
        raise TypeError(f"problem must be a Problem, or a function that makes one, got {made!r}")
    return made


def _takes_worker(make: Callable[..., Any]) -> bool:
    """Whether a maker wants to know for whom it makes."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = inspect.signature(make).parameters.values()
    return any(one.kind in kinds and one.default is inspect.Parameter.empty for one in own)


@contextmanager
def _in_words() -> Iterator[None]:
    """Errors of a call as those that travel; their cause is told by what carries them."""
    try:
        yield
    except Exception as error:
        raise CallError(f"{type(error).__name__}: {error}") from error


def set_up(assignment: Assignment) -> tuple[str, bool]:
    """Makes the problem and compiles its gradient; answers with the worker's software.

    Raises:
        CallError: It cannot.
    """
    own, server, worker = software(), assignment.software, assignment.worker
    if own[0] != server[0]:
        return own
    implementation, data = assignment.key
    with _in_words(), jax.enable_x64(server[1]):
        problem = make_problem(assignment.source, worker)
        key = jax.random.wrap_key_data(jnp.asarray(data), impl=implementation)
        states = _first_states(problem, assignment)
        carries = assignment.keeping.carries
        _SITES[assignment.run, worker] = _Site(problem, key, server[1], carries, states)
        model = [np.asarray(leaf) for leaf in jax.tree.leaves(problem.params)]
    compute(assignment.run, model, worker, 0, FIRST if states else None)
    return own[0], server[1]


def _first_states(problem: Problem, assignment: Assignment) -> dict[int, Any]:
    """What a worker keeps before its first job.

    Raises:
        ValueError: It is not what the server knows of.
    """
    own, server = form_of_state(problem), assignment.keeping.form
    if own != server:
        raise ValueError(
            "problem must keep at a worker what it keeps at the server, from job to job (keep_state"
            f" of local_steps): {server}, got {own}"
        )
    return {} if own is None else {FIRST.after: first_state(problem)}


def compute(run: str, model: Leaves, worker: int, job: int, kept: Kept | None = None) -> Answer:
    """The gradient of a job; `kept` says what the worker starts it with, where it keeps a state.

    Raises:
        CallError: It failed.
    """
    site, began = _SITES[run, worker], time.perf_counter()
    with _in_words(), jax.enable_x64(site.double):
        params = jax.tree.unflatten(jax.tree.structure(site.problem.params), model)
        state = None if kept is None else _before(site, kept)
        loss, gradient, *moved = gradient_of(
            site.problem, params, np.int32(worker), np.int32(job), site.key, state
        )
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(gradient)]
        answer = Answer(np.asarray(loss), leaves, 0.0)
        if kept is not None:
            site.states.clear()
            site.states.update({kept.after: state, job: moved[0]})
            if site.carries:
                answer = answer._replace(state=packed(moved[0]))
    return answer._replace(seconds=time.perf_counter() - began)


def _before(site: _Site, kept: Kept) -> Any:
    """The state that a job starts with: the server's, or the worker's own."""
    if kept.state is not None:
        return unpacked(site.problem, kept.state)
    return site.states[kept.after]


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
    """Shape and dtype of what a worker keeps, leaf by leaf; None where workers keep nothing.

    Example:
        >>> from asyncjax import problems
        >>> form_of_state(problems.quadratic([[1.0]], [[0.0]])) is None
        True
    """
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


def blank_state(problem: Problem) -> Leaves:
    """Zeros of the shapes and dtypes of a worker's state as it travels."""
    leaves = jax.tree.leaves(jax.eval_shape(problem.worker_state))
    return [np.zeros(*form_of(leaf)) for leaf in leaves]


def stacked(problem: Problem, states: dict[int, Any], n_workers: int) -> Any:
    """What n workers keep, a row a worker; those that are not there have what they began with."""
    first = first_state(problem)
    rows = [states.get(worker, first) for worker in range(n_workers)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


def key_parts(key: jax.Array) -> tuple[str, np.ndarray]:
    """A key as it travels."""
    return str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key))
