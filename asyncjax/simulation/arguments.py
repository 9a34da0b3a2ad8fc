"""How the verbs read what they share, before anything is planned or compiled."""

from __future__ import annotations

import inspect
import math
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.checks import file_path, function, instance, one_key, shown, whole
from asyncjax.problems import Problem
from asyncjax.simulation.plans.extras import Extras
from asyncjax.simulation.plans.plan import ReplayPlan, plan
from asyncjax.simulation.plans.treatment import Arriving, Treatment
from asyncjax.steps.transformation import worker_tables
from asyncjax.traces import EventTrace
from asyncjax.traces.event_trace import worker_count

_KNOWN = ("optax", "asyncjax")  # packages whose functions depend on nothing that changes


def check_run(
    problem: Problem, *, progress: Any = None, checkpoint: Any = None, memory_limit: Any = None
) -> None:
    """Refuses what no run can go by."""
    instance("problem", problem, Problem, "a Problem, as asyncjax.problems makes it")
    if progress is not None:
        function("progress", progress, "a function of a Progress")
    if checkpoint is not None:
        file_path("checkpoint", checkpoint)
    is_open = isinstance(memory_limit, float) and memory_limit == math.inf
    if memory_limit is not None and not is_open:
        whole("memory_limit", memory_limit)


def check_optimizer(name: str, value: Any) -> None:
    """Refuses what is no optimizer.

    Example:
        >>> check_optimizer("optimizer", optax.sgd)
        Traceback (most recent call last):
        ...
        TypeError: optimizer must be an optax transformation, such as optax.sgd(0.1), got sgd
        uncalled
    """
    if not isinstance(value, optax.GradientTransformation):
        is_maker = callable(value) and hasattr(value, "__name__")
        what = f"{value.__name__} uncalled" if is_maker else shown(value)
        raise TypeError(
            f"{name} must be an optax transformation, such as optax.sgd(0.1), got {what}"
        )


def check_prox(prox: Any, params: Any) -> None:
    """Refuses what is no proximal operator of such a model; None is.

    Example:
        >>> from asyncjax import steps
        >>> check_prox(steps.l1(0.1), jnp.zeros(2))
        >>> check_prox(lambda tree, step_size: 0.0, jnp.zeros(2))
        Traceback (most recent call last):
        ...
        ValueError: prox must return a tree like the model's, got float32[]
    """
    if prox is None:
        return
    function("prox", prox, "a proximal operator, such as steps.l1(1e-3)")
    model = jax.tree.map(jnp.asarray, params)
    made = jax.eval_shape(lambda model: jax.tree.map(jnp.asarray, prox(model, 1.0)), model)
    if forms(made) != forms(model):
        leaves = [f"{leaf.dtype}{[*leaf.shape]}" for leaf in jax.tree.leaves(made)]
        raise ValueError(
            f"prox must return a tree like the model's, got {', '.join(leaves) or 'no arrays'}"
        )


def treatment_of(
    plans: Sequence[ReplayPlan],
    optimizer: optax.GradientTransformation,
    params: Any,
    *,
    view: Any,
    arrival: Any,
    aggregate: Any,
    n_workers: int = 0,
) -> Treatment:
    """What a server does beside its update, checked; so is the optimizer, against the workers.

    They are those of the plans, or `n_workers` if that is more.
    """
    check_view(view, optimizer, params)
    for name, value in (("arrival", arrival), ("aggregate", aggregate)):
        if value is not None and any(plan.blends is not None for plan in plans):
            raise ValueError(
                f"{name} must be None where gradients serve in several updates (a trace of a table,"
                " with reuse)"
            )
    check_arrival(arrival, params)
    check_aggregate(aggregate, params)
    n_workers = max([n_workers, *(worker_count(each.trace) for each in plans)])
    check_tables(n_workers, params, optimizer=optimizer, arrival=arrival)
    takes_extras = isinstance(arrival, optax.GradientTransformationExtraArgs)
    return Treatment(view, arrival, aggregate, takes_extras)


def check_view(view: Any, optimizer: optax.GradientTransformation, params: Any) -> None:
    """Refuses what is no view of a model; None is.

    Example:
        >>> check_view(lambda params, state: 0.0, optax.sgd(0.1), jnp.zeros(2))
        Traceback (most recent call last):
        ...
        ValueError: view must return a tree like the model's, got float32[]
    """
    if view is not None:
        function("view", view, "a function of (params, opt_state), such as steps.look_ahead(0.9)")
        _check_made("view", lambda model: view(model, optimizer.init(model)), params)


def check_arrival(arrival: Any, params: Any) -> None:
    """Refuses what does not make gradients of gradients; None does.

    Example:
        >>> check_arrival(optax.sgd, jnp.zeros(2))
        Traceback (most recent call last):
        ...
        TypeError: arrival must be an optax transformation, such as optax.sgd(0.1), got sgd uncalled
    """
    if arrival is None:
        return
    check_optimizer("arrival", arrival)
    one = Arriving(None, None, jnp.zeros(()), np.int32(0), _extras(()), jax.random.key(0))

    def tried(model: Any) -> Any:
        own = one._replace(gradient=model, read_params=model)
        return Treatment(arrival=arrival).changed(own, model, arrival.init(model))[0]

    _check_made("arrival", tried, params)


def check_aggregate(aggregate: Any, params: Any) -> None:
    """Refuses what does not make one gradient of several; None does.

    Example:
        >>> check_aggregate(lambda rows, present, extras: rows, jnp.zeros(2))
        Traceback (most recent call last):
        ...
        ValueError: aggregate must return a tree like the model's, got float32[3,2]
    """
    if aggregate is None:
        return
    words = "a function of (rows, present, extras), such as steps.median()"
    function("aggregate", aggregate, words)

    def tried(model: Any) -> Any:
        rows = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), model)
        return aggregate(rows, jnp.ones(3, bool), _extras((3,)))

    _check_made("aggregate", tried, params)


def check_tables(n_workers: int, params: Any, **rules: Any) -> None:
    """Refuses rules, by name, with a table of fewer workers than there are; None has none.

    Example:
        >>> from asyncjax import steps
        >>> check_tables(3, jnp.zeros(2), optimizer=steps.average_workers(2))
        Traceback (most recent call last):
        ...
        ValueError: optimizer must be made for all 3 workers, got steps.average_workers for 2
    """
    for name, rule in rules.items():
        for whose, count in () if rule is None else worker_tables(rule, params):
            if count < n_workers:
                raise ValueError(
                    f"{name} must be made for all {n_workers} workers, got steps.{whose} for"
                    f" {count}"
                )


def _extras(shape: tuple[int, ...]) -> Extras:
    """Extras of no arrival."""
    number = jnp.zeros(shape, jnp.int32)
    return Extras(number, number, number, jnp.zeros(shape))


def _check_made(name: str, make: Callable[[Any], Any], params: Any) -> None:
    """Refuses a function that does not make a model of a model."""
    model = jax.tree.map(jnp.asarray, params)
    made = jax.eval_shape(lambda model: jax.tree.map(jnp.asarray, make(model)), model)
    own = [leaf.shape for leaf in jax.tree.leaves(model)]
    shapes = [leaf.shape for leaf in jax.tree.leaves(made)]
    if jax.tree.structure(made) == jax.tree.structure(model) and shapes == own:
        return
    leaves = [f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" for leaf in jax.tree.leaves(made)]
    got = ", ".join(leaves) or "no arrays"
    raise ValueError(f"{name} must return a tree like the model's, got {got}")


def forms(tree: Any) -> tuple[Any, list[Any]]:
    """Structure, shapes and dtypes of a tree of arrays."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def key_of(key: jax.Array | None) -> jax.Array:
    """The key of a run: `jax.random.key(0)` where none is given."""
    return jax.random.key(0) if key is None else one_key("key", key)


def plan_of(trace: Any, *, width: Any = None, record_every: Any = None) -> ReplayPlan:
    """The plan of a trace, or the one that was given.

    Example:
        >>> from asyncjax import clocks, traces
        >>> own = plan(traces.asynchronous(clocks.constant([1.0]), n_updates=9))
        >>> plan_of(own, width=2)
        Traceback (most recent call last):
        ...
        ValueError: width must be None where trace is a plan, which has its own (1), got 2
    """
    if not isinstance(trace, ReplayPlan):
        instance("trace", trace, EventTrace, "an EventTrace, or a plan of one")
        return plan(trace, width=width, record_every=record_every)
    own = {"width": trace.width, "record_every": None}
    for name, value in (("width", width), ("record_every", record_every)):
        if value is not None:
            its = "" if own[name] is None else f" ({own[name]})"
            raise ValueError(
                f"{name} must be None where trace is a plan, which has its own{its}, got {value!r}"
            )
    return trace


def trace_of(trace: Any) -> EventTrace:
    """The trace, also of a plan."""
    if isinstance(trace, ReplayPlan):
        return trace.trace
    return instance("trace", trace, EventTrace, "an EventTrace, or a plan of one")


def first_equal(value: Any) -> Any:
    """The first transformation, or function, equal to this one by value; mostly itself.

    Two calls of `optax.sgd(0.1)` make two closures, and what is compiled is kept by identity. Two
    functions are equal if they are of optax or of this package, of one code, and what they close
    over is equal: numbers of one type and to the bit, text, classes, tuples and such functions.
    Whatever else is in there (a function or an array of the caller's, a traced value) is only equal
    to itself, since nobody can say what it depends on.

    Example:
        >>> one = first_equal(optax.adam(0.1))
        >>> first_equal(optax.adam(0.1)) is one, first_equal(optax.adam(0.2)) is one
        (True, False)
        >>> first_equal(optax.sgd(lambda step: 0.1)) is first_equal(optax.sgd(lambda step: 0.1))
        False
    """
    try:
        return _first(_Valued(_value_of(value, False), value))
    except _UnknownError:
        return value


class _UnknownError(Exception):
    """A value that is only equal to itself."""


@dataclass(frozen=True)
class _Valued:
    """Something that is compared by its value; it keeps alive what the value names by place."""

    value: Hashable
    thing: Any = field(compare=False)


@lru_cache(maxsize=128)
def _first(valued: _Valued) -> Any:
    return valued.thing


def _value_of(thing: Any, own: bool, depth: int = 0) -> Hashable:
    """What tells a thing from others; `own`: a function of this package closes over it."""
    inner = partial(_value_of, own=own, depth=depth + 1)
    kind = type(thing)
    if depth > 50:  # it may hold itself
        raise _UnknownError
    if thing is None or kind in (bool, int, str, bytes):
        return kind, thing
    if kind is float:
        return kind, struct.pack("d", thing)
    if isinstance(thing, np.generic | np.dtype):
        return kind, thing.tobytes() if isinstance(thing, np.generic) else thing.str
    if isinstance(thing, type):
        return type, id(thing)
    if isinstance(thing, tuple):
        return kind, tuple(map(inner, thing))
    if own and kind is list:
        return kind, tuple(map(inner, thing))
    if own and kind is dict:
        return kind, tuple((name, inner(value)) for name, value in thing.items())
    if own and kind is inspect.Parameter:
        return kind, str(thing)
    if kind is partial:
        return kind, inner(thing.func), inner(thing.args), inner(tuple(thing.keywords.items()))
    if kind is FunctionType:
        return _function_of(thing, depth)
    raise _UnknownError


def _function_of(function: FunctionType, depth: int) -> Hashable:
    """What tells a function from others."""
    room = str(function.__globals__.get("__name__")).partition(".")[0]
    if room not in _KNOWN or set(function.__dict__) - {"__signature__"}:
        raise _UnknownError
    try:
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    except ValueError as empty:
        raise _UnknownError from empty
    held = (function.__defaults__, tuple((function.__kwdefaults__ or {}).items()), cells)
    names = id(function.__globals__)
    return FunctionType, id(function.__code__), names, _value_of(held, room == "asyncjax", depth)
