"""What runs at a worker: it holds a problem, and answers a model with a gradient.

A worker knows no rule, no optimizer and no server. It is set up once, which also compiles its
gradient; then every job is a model, a worker's number and a job's number, and the answer a loss, a
gradient and the seconds that it took. Arrays travel as NumPy.
"""

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.problems import Problem
from asyncjax.simulation.plans.extras import job_key

Leaves = list[np.ndarray]


class Assignment(NamedTuple):
    """What a worker is set up with."""

    run: str  # a name that no other run has
    source: Any  # a Problem, or a function that makes one
    worker: int
    key: tuple[str, np.ndarray]  # of the run: implementation and data
    software: tuple[str, bool]  # the server's version of jax, and whether it computes in float64


class Answer(NamedTuple):
    """What a worker sends."""

    loss: np.ndarray  # float[]
    gradient: Leaves
    seconds: float  # that it computed


class CallError(RuntimeError):
    """A call failed at a worker: in words, since not every error can travel."""


class _Site(NamedTuple):
    """A run, as a worker holds it."""

    problem: Problem
    key: jax.Array
    double: bool


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
        _SITES[assignment.run, worker] = _Site(problem, key, server[1])
        model = [np.asarray(leaf) for leaf in jax.tree.leaves(problem.params)]
    compute(assignment.run, model, worker, 0)
    return own[0], server[1]


def compute(run: str, model: Leaves, worker: int, job: int) -> Answer:
    """The gradient of a job.

    Raises:
        CallError: It failed.
    """
    site, began = _SITES[run, worker], time.perf_counter()
    with _in_words(), jax.enable_x64(site.double):
        params = jax.tree.unflatten(jax.tree.structure(site.problem.params), model)
        loss, gradient = gradient_of(
            site.problem, params, np.int32(worker), np.int32(job), site.key
        )
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(gradient)]
        answer = Answer(np.asarray(loss), leaves, 0.0)
    return answer._replace(seconds=time.perf_counter() - began)


def forget(run: str, worker: int) -> None:
    """Drops what a run left at a worker."""
    _SITES.pop((run, worker), None)


@jax.jit
def gradient_of(
    problem: Problem, params: Any, worker: Any, job: Any, key: jax.Array
) -> tuple[jax.Array, Any]:
    """Loss and gradient of a job."""
    return problem.gradient(params, worker, job, job_key(key, worker, job))


def key_parts(key: jax.Array) -> tuple[str, np.ndarray]:
    """A key as it travels."""
    return str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key))
