"""How the verbs read what they share, before anything is planned or compiled."""

from __future__ import annotations

import inspect
import math
import os
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from asyncjax.checks import file_path, one_key, shown, whole
from asyncjax.problems import Problem
from asyncjax.simulation.update import Arrival, Extras, Update
from asyncjax.steps.transformation import worker_tables
from asyncjax.traces import EventTrace, Progress
from asyncjax.traces.event_trace import worker_count
from asyncjax.traces.progress import teller

# Of an execution, beside progress and checkpoint.
FIELDS = ("mesh", "specs", "memory_limit", "on_record")
_KNOWN = ("optax", "asyncjax")  # packages whose functions depend on nothing that changes


@dataclass(frozen=True)
class Execution:
    """Where a run is computed and how it is watched; what is computed does not depend on it.

    Attributes:
        mesh: Devices over which the run is split; how, the verb says. The result is that of one
            device up to rounding, and a checkpoint may be resumed on another number of devices.
            Data are whole on every device, unless they lie on the mesh already. None: one device.
        specs: For models that do not fit one device: the `PartitionSpec` of each parameter, in a
            tree like the params or one for all, or a function of a leaf. Versions, directions,
            records and what of the optimizer's state is like the params are split the same way, and
            are never gathered. Lanes go over the axes that no spec names, beside which the model
            stays split (tensor parallel); if specs name all axes, over all, and each device is sent
            its own lanes' models whole (fully sharded data parallel). None: whole on every device.
        memory_limit: Bytes, on each device; a run whose buffers exceed it is refused before
            anything compiles. `math.inf`: no limit. None: what the device says is free, which for a
            CPU is `MemAvailable` of Linux; and no limit where it does not say, over a mesh, and
            where the problem, the key or the optimizer's state is traced.
        checkpoint: File in which the state of the run is kept: it is written at once and then every
            half a minute, and removed at the end. If it is there, the run goes on from it, to the
            same bits, in another process too. It knows its run by what is compiled, constants
            included, and by all arrays that this is given: anything else is refused. (What a host
            callback of a gradient does is not seen.) Costs the lowering of the programs, 0.1 to 0.3
            s where they were compiled before, and no compilation. Needs concrete arguments.
        progress: True shows on standard error how far the run is, and about how long it will take.
            Or a function that is called on the host a few times a second with a `traces.Progress`.
            Needs concrete arguments. Neither this nor a checkpoint chooses how a run is computed.
        on_record: Called on the host with each row of the records of the run, once and in order,
            within about a quarter of a second: to plot or log a run while it goes. A row is the
            named tuple that `run.records` is (`Records`, `PolicyRecords`), with a number of Python
            in the place of each column: `row.version`, `row.time`, `row.loss`, `row.metrics[name]`.
            It never chooses how a run is computed, and what is returned is the same to the bit.
            Models of a replay are evaluated for this one by one, and once more at the end, all
            together, so a loss in a row is that of the records up to rounding. A run that goes on
            from its checkpoint tells the rows after that place, so those between the checkpoint
            and the end of the first process come twice. An error that it raises ends the run.
            Needs concrete arguments; of several processes each calls its own.

    Example:
        >>> import numpy as np, optax
        >>> from asyncjax import clocks, problems, simulation, traces
        >>> problem = problems.quadratic(np.ones((3, 2)), np.arange(6.0).reshape(3, 2))
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=50)
        >>> def log(row):
        ...     print(row.version, row.time, round(row.loss, 2))
        >>> execution = simulation.Execution(on_record=log)
        >>> run = simulation.replay(
        ...     problem, trace, optax.sgd(0.1), record_every=20, execution=execution)
        20 12.0 -5.6
        40 22.0 -6.1
        50 28.0 -6.0
    """

    mesh: Mesh | None = None
    specs: Any = None
    memory_limit: float | None = None
    checkpoint: str | os.PathLike[str] | None = None
    progress: Callable[[Progress], None] | bool | None = None
    on_record: Callable[[Any], None] | None = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            file_path("checkpoint", self.checkpoint)
        teller(self.progress)  # refuses what is none
        limit = self.memory_limit
        if limit is not None and not (isinstance(limit, float) and limit == math.inf):
            whole("memory_limit", limit)

    @property
    def is_at_once(self) -> bool:
        """Whether nothing is to be done before the end of the run."""
        return not self.progress and self.checkpoint is None and self.on_record is None


def execution_of(
    execution: Execution | None, *, knows: Sequence[str] = (), **short: Any
) -> Execution:
    """The execution of a run, of its long form and the short ones, None where they are not given.

    `knows` names the fields that this run can honour beside progress and checkpoint.
    """
    execution = Execution() if execution is None else execution
    for name, value in short.items():
        if value is not None and getattr(execution, name) is not None:
            raise ValueError(f"{name} must be given once, alone or in the execution")
    for name in FIELDS:
        if name not in knows and getattr(execution, name) is not None:
            raise ValueError(f"{name} of the execution must be None: this run does not look at it")
    return replace(execution, **{name: value for name, value in short.items() if value is not None})


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


def check_workers(problem: Problem, trace: EventTrace) -> None:
    """Refuses a trace with more workers than the problem has shards."""
    workers = worker_count(trace)
    if problem.n_workers is not None and workers > problem.n_workers:
        raise ValueError(
            f"trace has {workers} workers but problem has only {problem.n_workers} shards"
            " (n_workers)"
        )


def check_update(
    update: Update | optax.GradientTransformation,
    params: Any,
    traces: Sequence[EventTrace] = (),
    *,
    n_workers: int = 0,
) -> None:
    """Refuses an update that does not fit the run.

    That is one whose parts make no model of such a model, look at gradients one by one where these
    serve in several updates, or have a table of fewer workers than those of the traces, or
    `n_workers`.
    """
    n_workers = max([n_workers, *map(worker_count, traces)])
    is_plain = not isinstance(update, Update)
    update = Update(update) if is_plain else update
    optimizer, transform = update.optimizer, update.gradient_transform
    sent, aggregator = update.worker_params, update.aggregator
    check_optimizer("update" if is_plain else "optimizer", optimizer)
    if sent is not None:
        _check_like("worker_params", lambda model: sent(model, optimizer.init(model)), params)
    for name in ("gradient_transform", "aggregator"):
        if getattr(update, name) is not None and any(trace.reuse is not None for trace in traces):
            raise ValueError(
                f"{name} must be None where gradients serve in several updates (a trace of a table,"
                " with reuse)"
            )
    if transform is not None:
        check_optimizer("gradient_transform", transform)

        def changed(model: Any) -> Any:
            key = jax.random.key(0)
            arriving = Arrival(model, model, jnp.zeros(()), np.int32(0), _extras(()), key)
            return update.changed(arriving, model, transform.init(model))[0]

        _check_like("gradient_transform", changed, params)
    if aggregator is not None:

        def aggregated(model: Any) -> Any:
            rows = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), model)
            return aggregator(rows, jnp.ones(3, bool), _extras((3,)))

        _check_like("aggregator", aggregated, params)
    for name, rule in (("optimizer", optimizer), ("gradient_transform", transform)):
        for whose, count in () if rule is None else worker_tables(rule, params):
            if count < n_workers:
                raise ValueError(
                    f"{name} must be made for all {n_workers} workers, got steps.{whose} for"
                    f" {count}"
                )


def plain_optimizer(
    update: Update | optax.GradientTransformation, what: str
) -> optax.GradientTransformation:
    """The optimizer of an update that is nothing beside it; `what` knows no more."""
    if not isinstance(update, Update):
        check_optimizer("update", update)
        return update
    for name in ("worker_params", "gradient_transform", "aggregator"):
        if getattr(update, name) is not None:
            raise ValueError(f"{name} of the update must be None in {what}")
    check_optimizer("optimizer", update.optimizer)
    return update.optimizer


def _extras(shape: tuple[int, ...]) -> Extras:
    """Extras of no arrival."""
    number = jnp.zeros(shape, jnp.int32)
    return Extras(number, number, number, jnp.zeros(shape))


def _check_like(name: str, make: Callable[[Any], Any], params: Any) -> None:
    """Refuses a function that does not make a model of a model; nothing is computed."""
    model = jax.tree.map(jnp.asarray, params)
    new = jax.eval_shape(lambda model: jax.tree.map(jnp.asarray, make(model)), model)
    got, like = (jax.tree.flatten(jax.tree.map(lambda leaf: leaf.shape, x)) for x in (new, model))
    if got != like:
        leaves = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(new)]
        raise ValueError(
            f"{name} must return a tree like the model's, got {', '.join(leaves) or 'no arrays'}"
        )


def key_of(key: jax.Array | None) -> jax.Array:
    """The key of a run: `jax.random.key(0)` where none is given."""
    return jax.random.key(0) if key is None else one_key("key", key)


def first_equal(value: Any) -> Any:
    """The first transformation, or function, equal to this one by value; mostly itself.

    Two calls of `optax.sgd(0.1)` make two closures, and what is compiled is kept by identity. Two
    functions are equal if they are of optax or of this package, of one code, and what they close
    over is equal: numbers of one type and to the bit, text, classes, tuples, dataclasses of this
    package and such functions. Whatever else is in there (a function or an array of the caller's, a
    traced value) is only equal to itself, since nobody can say what it depends on.

    Example:
        >>> one = first_equal(optax.adam(0.1))
        >>> first_equal(optax.adam(0.1)) is one, first_equal(optax.adam(0.2)) is one
        (True, False)
        >>> first_equal(optax.sgd(lambda step: 0.1)) is first_equal(optax.sgd(lambda step: 0.1))
        False
    """
    if isinstance(value, Update):
        parts = (value.optimizer, value.worker_params, value.gradient_transform, value.aggregator)
        return Update(*map(first_equal, parts))
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


def _value_of(thing: Any, inside: bool, depth: int = 0) -> Hashable:
    """What tells a thing from others; `inside`: a function of this package closes over it."""
    inner = partial(_value_of, inside=inside, depth=depth + 1)
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
    if inside and kind is list:
        return kind, tuple(map(inner, thing))
    if inside and kind is dict:
        return kind, tuple((name, inner(value)) for name, value in thing.items())
    if inside and is_dataclass(kind) and kind.__module__.startswith("asyncjax."):  # all are frozen
        return kind, tuple(inner(getattr(thing, one.name)) for one in fields(kind))
    if inside and kind is inspect.Parameter:
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
