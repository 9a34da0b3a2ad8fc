"""What the server of a live run holds: the model, those that are still read, and gradients.

    D = sum of w_e g_e over the gradients that enter, in the order of their arrival
    x <- x + optimizer(D)

in two compiled pieces, `add` and `step`, that a rerun calls in the same order, to the same bits.
What is sent is a view of the model, made by a third piece, or the model itself; where gradients are
treated as they arrive, or aggregated, two more do that.

The log, all that the server was told, is the run's checkpoint. Rules keep their state in closures,
but they are deterministic: a fresh server that is told the same events in the same order is in the
same state. So a file holds the events, and beside them only what comes of gradients: models that
are still read or recorded, gradients that wait or serve, the optimizer's state. What the rules
answered is logged as a checksum, so that a file of other rules is known even where their names are
the same.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.live import jobs
from asyncjax.live.jobs import Kept, Leaves
from asyncjax.live.worker_pool import WorkerEvents
from asyncjax.problems import Problem
from asyncjax.simulation.checkpoints import Checkpoint, Mark, form_of, mark_of
from asyncjax.simulation.engine import first_state, judge
from asyncjax.simulation.update import Arrival, Extras, Update, server_step
from asyncjax.traces.collection import Entries, Verdict

SECONDS = 30.0  # between two writings of the log, at least
_SHARE = 20  # and so many times as long as the last one took
INDEX = ("versions", "recorded", "held", "kept")  # what a state is of
_EVENTS = "worker_events"

# What a server is told: a gradient, a lost job, a free worker, that it steps by the clock.
ARRIVED, LOST, FREED, RANG = range(4)


class Held(NamedTuple):
    """A gradient that waits for a step, or serves in several."""

    read_version: int
    gradient: Leaves
    loss: np.ndarray  # float[], of its job
    worker: int
    job: int
    time: float  # seconds, of its arrival
    has_served: bool = False


def extras_of(delay: int, worker: int, job: int, time: float) -> Extras:
    """What an optimizer is told of a gradient, with the dtypes of a replay."""
    return Extras(np.int32(delay), np.int32(worker), np.int32(job), np.float64(time))


class ServerState:
    """The model of a run, and all that is needed to step on."""

    def __init__(self, problem: Problem, update: Update, key: jax.Array, *, once: bool) -> None:
        self.update, self.key, self.version, self.problem = update, key, 0, problem
        self.once = once  # whether a gradient serves in one update only
        self.params = jax.tree.map(jnp.asarray, problem.params)
        self.structure = jax.tree.structure(self.params)
        self.opt_state = jax.jit(partial(first_state, update.optimizer))(self.params, None)
        self.arrival_state = update.init(self.params)
        self.versions: dict[int, Any] = {0: self._handed()}  # as they are handed out
        self.leaves: dict[int, Leaves] = {}  # the same on the host, where they were sent
        self.held: dict[int, Held] = {}  # by number of arrival
        self.losses: list[np.ndarray] = []  # of all arrivals
        self.failed: np.ndarray | None = None  # worker and job of the first that is not finite
        self.recorded: dict[int, Any] = {}
        self.keeps = problem.worker_state_of is not None
        self.kept: dict[int, Kept] = {}  # by worker, after its last job that has arrived

    @cached_property
    def forms(self) -> Any:
        """Shapes and dtypes of a job's loss and gradient; asked for where there is a checkpoint."""
        state = jax.eval_shape(self.problem.worker_state)
        args = (self.problem, self.params, 0, 0, self.key, state)
        return jax.eval_shape(jobs.gradient_of, *args)[:2]

    def kept_by(self, worker: int) -> Kept | None:
        """What a worker starts its next job with; None where workers keep nothing."""
        return self.kept.get(worker, jobs.FIRST) if self.keeps else None

    def worker_states(self, n_workers: int) -> Any:
        """What the workers keep, one row per worker; None: nothing, or each for itself.

        Either all answers carry a state, or none does.
        """
        states = {
            worker: jobs.unpacked(self.problem, start.state)
            for worker, start in self.kept.items()
            if start.state is not None
        }
        return jobs.stacked(self.problem, states, n_workers) if states else None

    def prime(self) -> None:
        """Compiles what a step calls, so that none of it falls into the run."""
        gradient = jax.tree.map(np.zeros_like, self.params)
        direction = add(add(None, gradient, np.float64(0)), gradient, np.float64(0))
        server, extras = (self.params, self.opt_state), extras_of(0, 0, 0, 0.0)
        if self.update.gradient_transform is not None:
            loss = np.zeros((), self.forms[0].dtype)
            arrival = Arrival(gradient, self.params, loss, np.int32(0), extras, self.key)
            arrive(self.update, arrival, self.params, self.arrival_state)
        step(self.update.optimizer, self.key, server, direction, self.params, extras)

    def sent(self, version: int) -> Leaves:
        """A version as it travels."""
        if version not in self.leaves:
            leaves = jax.tree.leaves(self.versions[version])
            self.leaves[version] = [np.asarray(leaf) for leaf in leaves]
        return self.leaves[version]

    def hold(self, arrival: int, held: Held) -> None:
        """Keeps a gradient for the step that it will enter."""
        finite = all(np.isfinite(leaf).all() for leaf in (held.loss, *held.gradient))
        if self.failed is None and not finite:
            self.failed = np.array([held.worker, held.job], np.int32)
        self.held[arrival] = held

    def step(self, entries: Entries, worker: int, job: int, time: float, *, record: bool) -> int:
        """Makes an update of the gradients that enter it; returns its delay."""
        for arrival, _ in sorted(entries):
            if arrival not in self.held:
                raise ValueError(
                    f"the gradient of arrival {arrival} serves in step {self.version} again after a"
                    " pause, or was thrown away: a live run holds a gradient from its arrival until"
                    " the first step that it does not enter"
                )
        entering = [(self.held[arrival], weight) for arrival, weight in sorted(entries)]
        oldest = min(held.read_version for held, _ in entering)
        extras = extras_of(self.version - oldest, worker, job, time)
        server, direction = (self.params, self.opt_state), self._direction(entering)
        self.params, self.opt_state = step(
            self.update.optimizer, self.key, server, direction, self.versions[oldest], extras
        )
        self.version += 1
        self.versions[self.version] = jax.block_until_ready(self._handed())
        if record:
            self.recorded[self.version] = self.params
        serving = {arrival for arrival, _ in entries}
        self.held = {
            e: held._replace(has_served=e in serving)
            for e, held in self.held.items()
            if (not self.once if e in serving else not held.has_served)
        }
        return int(extras.delay)

    def _direction(self, entering: Sequence[tuple[Held, float]]) -> Any:
        """The direction of an update of these gradients."""
        direction, rows, told = None, [], []
        for number, (held, weight) in enumerate(entering):
            gradient = jax.tree.unflatten(self.structure, held.gradient)
            if self.update.is_of_arrivals:
                delay, read = self.version - held.read_version, self.versions[held.read_version]
                told.append(extras_of(delay, held.worker, held.job, held.time))
                its = Arrival(gradient, read, held.loss, np.int32(number), told[-1], self.key)
                treated = arrive(self.update, its, self.params, self.arrival_state)
                gradient, self.arrival_state = treated
            if self.update.aggregator is None:
                direction = add(direction, gradient, np.float64(weight))
            else:
                rows.append(add(None, gradient, np.float64(weight)))
        return together(self.update, rows, told) if rows else direction

    def _handed(self) -> Any:
        """The model as workers are handed it."""
        if self.update.worker_params is None:
            return self.params
        return viewed(self.update, self.params, self.opt_state)

    def state(self) -> tuple[Any, dict[str, np.ndarray]]:
        """All that comes of gradients, and which versions and arrivals it is of."""
        held = [
            (arrival, at.read_version, at.has_served, at.worker, at.job, _bits(at.time))
            for arrival, at in self.held.items()
        ]
        moved = [(worker, state.after) for worker, state in self.kept.items()]
        rows = np.reshape(held, (len(held), 6 if held else 0)), np.reshape(moved, (len(moved), 2))
        index = ([*self.versions], [*self.recorded], *rows)
        state = (
            self.opt_state,
            np.array(self.losses, self.forms[0].dtype),
            [*self.versions.values()],
            [*self.recorded.values()],
            [held.gradient for held in self.held.values()],
            [start.state for start in self.kept.values()],
            self.arrival_state,
            self.params,
        )
        columns = zip(INDEX, index, strict=True)
        return state, {name: np.array(column, np.int64) for name, column in columns}

    def restore(
        self, unpack: Callable[[Any], Any], index: dict[str, np.ndarray], arrivals: int
    ) -> None:
        """Takes a state up; `unpack` gives one of the structure and dtypes that it is shown."""
        versions, recorded, held, moved = (index[name].tolist() for name in INDEX)
        loss, gradient = self.forms
        like = [np.zeros(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(gradient)]
        shapes = jax.tree.leaves(jax.eval_shape(self.problem.worker_state))
        self.opt_state, losses, models, records, gradients, states, *rest = unpack(
            (
                self.opt_state,
                np.zeros(arrivals, loss.dtype),
                [self.params] * len(versions),
                [self.params] * len(recorded),
                [like] * len(held),
                [[np.zeros(*form_of(leaf)) for leaf in shapes]] * len(moved),
                self.arrival_state,
                self.params,
            )
        )
        self.losses = list(np.asarray(losses))
        self.versions = dict(zip(versions, models, strict=True))
        self.recorded = dict(zip(recorded, records, strict=True))
        self.held = {
            at: Held(read, gradient, self.losses[at], worker, job, float(time), bool(served))
            for (at, read, served, worker, job, _), time, gradient in zip(
                held, index["held"][:, -1:].view(np.float64).ravel(), gradients, strict=True
            )
        }
        self.version = max(versions)
        self.kept = {
            worker: Kept(after, [np.asarray(leaf) for leaf in state])
            for (worker, after), state in zip(moved, states, strict=True)
        }
        self.arrival_state, self.params = rest

    def keep(self, read: Iterable[int]) -> None:
        """Drops the versions that nobody reads any more."""
        needed = {self.version, *read, *(held.read_version for held in self.held.values())}
        self.versions = {v: params for v, params in self.versions.items() if v in needed}
        self.leaves = {v: leaves for v, leaves in self.leaves.items() if v in needed}


def _bits(time: float) -> int:
    return int(np.float64(time).view(np.int64))


@jax.jit
def add(direction: Any, gradient: Any, weight: Any) -> Any:
    """A direction with one gradient more."""
    weighted = jax.tree.map(lambda leaf: leaf * jnp.asarray(weight, leaf.dtype), gradient)
    return weighted if direction is None else jax.tree.map(jnp.add, direction, weighted)


@partial(jax.jit, static_argnums=0)
def viewed(update: Update, params: Any, opt_state: Any) -> Any:
    """What is handed out."""
    handed = update.handed(params, opt_state)
    return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), handed, params)


@partial(jax.jit, static_argnums=0)
def arrive(update: Update, arrival: Arrival, params: Any, state: Any) -> tuple[Any, Any]:
    """What a gradient becomes when it arrives, and the state of what treats it."""
    arrival = arrival._replace(gradient=jax.tree.map(jnp.asarray, arrival.gradient))
    return update.arrived(arrival, params, state)


@partial(jax.jit, static_argnums=0)
def together(update: Update, rows: list[Any], told: list[Extras]) -> Any:
    """The direction of an update of its weighted gradients; compiled for each number of them."""
    assert update.aggregator is not None
    count = len(rows)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves) * count, *rows)
    extras = jax.tree.map(lambda *values: jnp.stack(values), *told)
    direction = update.aggregator(stacked, jnp.ones(count, bool), extras)
    return jax.tree.map(lambda new, old: new.astype(old.dtype), direction, rows[0])


step = jax.jit(server_step, static_argnums=0)  # an update of (params, optimizer state)


class Row(NamedTuple):
    """What the server was told."""

    kind: int
    worker: int
    time: float  # seconds, of the arrival
    handled: float  # seconds, when the server took it up
    done: float  # seconds, when it had answered
    computed: float  # seconds that the worker computed


_DTYPES = ("i1", "i4", "f8", "f8", "f8", "f8")
Judged = tuple[Verdict, Entries]  # what becomes of a gradient, and what enters the step then


class Log:
    """The events of a run, and the file that they are kept in, if there is a path.

    `settings` are whatever makes the run beside its programs and arrays: names, numbers, None.
    """

    def __init__(
        self, model: ServerState, path: str | os.PathLike[str] | None, *settings: Any
    ) -> None:
        self.model, self.file = model, None
        if path is not None:
            self.file = Checkpoint(Path(path), _mark(model, repr(settings)))
        self.rows: list[Row] = []
        self.answers: list[int] = []
        self.events = WorkerEvents()  # of workers, as the file has them
        self.due = 0.0  # of the next writing

    def note(self, row: Row, judged: Judged | None, started: Sequence[int]) -> None:
        """Writes an event down, and what the rules answered; compares that if it is there."""
        number = len(self.rows)
        self.rows.append(row)
        if self.file is None:
            return
        answer = zlib.crc32(repr((judged, [int(worker) for worker in started])).encode())
        if number == len(self.answers):
            self.answers.append(answer)
        elif answer != self.answers[number]:
            raise self.file.wrong(
                f"belongs to another run; its rules answered event {number} in another way"
            )

    def save(self, events: WorkerEvents) -> None:
        """Writes the file, if it is time to; with it, what happened to workers so far."""
        began = time.monotonic()
        if self.file is None or began < self.due:
            return
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(Row._fields)
        named = zip(Row._fields, columns, _DTYPES, strict=True)
        arrays = {name: np.array(column, dtype) for name, column, dtype in named}
        state, index = self.model.state()
        arrays |= {"answers": np.array(self.answers, np.uint32), _EVENTS: np.array(events)}
        self.file.write(state, **arrays, **index)
        now = time.monotonic()
        self.due = now + max(SECONDS, _SHARE * (now - began))

    def load(self) -> list[Row]:
        """Restores the model, if there is a file; the events that the server is told again."""
        if self.file is None or not self.file.path.exists():
            return []
        arrays = self.file.read("answers", _EVENTS, *Row._fields, *INDEX)
        rows = [arrays.pop(name).tolist() for name in Row._fields]
        self.answers = arrays.pop("answers").tolist()
        self.events = WorkerEvents(*arrays.pop(_EVENTS).tolist())
        index, file = {name: arrays.pop(name) for name in INDEX}, self.file
        self.model.restore(lambda like: file.unpack(arrays, like), index, rows[0].count(ARRIVED))
        return [Row(*row) for row in zip(*rows, strict=True)]


def _mark(model: ServerState, settings: str) -> Mark:
    """What tells a run from others: its programs, its arrays and its settings."""
    problem, update, key = model.problem, model.update, model.key
    state, params = (model.params, model.opt_state), model.params
    (loss, gradient), worker_state = model.forms, jax.eval_shape(problem.worker_state)
    extras = extras_of(0, 0, 0, 0.0)
    programs = [
        jobs.gradient_of.lower(problem, params, np.int32(0), np.int32(0), key, worker_state),
        add.lower(gradient, gradient, np.float64(1)),
        step.lower(update.optimizer, key, state, gradient, params, extras),
        jax.jit(judge).lower(problem, params, loss),
    ]
    if update.worker_params is not None:
        programs.append(viewed.lower(update, *state))
    if update.gradient_transform is not None:
        arrival = Arrival(gradient, params, loss, np.int32(0), extras, key)
        programs.append(arrive.lower(update, arrival, params, model.arrival_state))
    if update.aggregator is not None:
        programs.append(together.lower(update, [params] * 3, [extras] * 3))
    words = np.frombuffer(settings.encode(), np.uint8)
    has_extras = isinstance(update.optimizer, optax.GradientTransformationExtraArgs)
    return mark_of(programs, problem.params, problem.data, key, words, has_extras)
