"""The log of a live run: all that its server was told. It is the run's checkpoint.

Rules keep their state in closures, but they are deterministic: a fresh server that is told the same
events in the same order is in the same state. So a file holds the events, and beside them only what
comes of gradients: models that are still read or recorded, gradients that wait or serve, the
optimizer's state. What the rules answered is logged as a checksum, so that a file of other rules is
known even where their names are the same.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from asyncjax.live import jobs, server_state
from asyncjax.live.news import WorkerEvents
from asyncjax.live.server_state import ServerState
from asyncjax.problems import Problem
from asyncjax.simulation.checkpoints import Checkpoint, mark_of
from asyncjax.simulation.engine import judge
from asyncjax.simulation.update import Arrival, Extras

SECONDS = 30.0  # between two writings, at least
_SHARE = 20  # and so many times as long as the last one took

# What a server is told: a gradient, a lost job, a free worker, that it steps by the clock.
ARRIVED, LOST, FREED, RANG = range(4)


class Row(NamedTuple):
    """What the server was told."""

    kind: int
    worker: int
    time: float  # seconds, of the arrival
    handled: float  # seconds, when the server took it up
    done: float  # seconds, when it had answered
    computed: float  # seconds that the worker computed


_EVENTS = "worker_events"
_DTYPES = ("i1", "i4", "f8", "f8", "f8", "f8")


class Log:
    """The events of a run, and the file that they are kept in."""

    def __init__(self, file: Checkpoint) -> None:
        self.file = file
        self.rows: list[Row] = []
        self.answers: list[int] = []
        self.events = WorkerEvents()  # of workers, as the file has them
        self.due = 0.0  # of the next writing

    def note(self, row: Row, judged: Any, started: Sequence[int]) -> None:
        """Writes an event down, and what the rules answered."""
        self.rows.append(row)
        self.answers.append(_digest(judged, started))

    def check(self, judged: Any, started: Sequence[int]) -> None:
        """Compares what fresh rules answer to the next event with what is logged.

        Raises:
            ValueError: It differs.
        """
        number = len(self.rows)
        if _digest(judged, started) != self.answers[number]:
            raise self.file.wrong(
                f"belongs to another run; its rules answered event {number} in another way"
            )

    def save(self, own: ServerState, events: WorkerEvents) -> None:
        """Writes the file, if it is time to; with it, what happened to workers so far."""
        began = time.monotonic()
        if began < self.due:
            return
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(Row._fields)
        named = zip(Row._fields, columns, _DTYPES, strict=True)
        arrays = {name: np.array(column, dtype) for name, column, dtype in named}
        state, index = own.state()
        arrays |= {"answers": np.array(self.answers, np.uint32), _EVENTS: np.array(events)}
        self.file.write(state, **arrays, **index)
        now = time.monotonic()
        self.due = now + max(SECONDS, _SHARE * (now - began))

    def load(self, own: ServerState) -> list[Row]:
        """Restores the model; the events that the server must be told again."""
        arrays = self.file.read("answers", *Row._fields, *server_state.INDEX)
        rows = [arrays.pop(name).tolist() for name in Row._fields]
        self.answers = arrays.pop("answers").tolist()
        if _EVENTS in arrays:  # not in files of before
            self.events = WorkerEvents(*arrays.pop(_EVENTS).tolist())
        index = {name: arrays.pop(name) for name in server_state.INDEX}
        own.restore(lambda like: self.file.unpack(arrays, like), index, rows[0].count(ARRIVED))
        return [Row(*row) for row in zip(*rows, strict=True)]


def log_of(path: str | os.PathLike[str], problem: Problem, own: ServerState, *settings: Any) -> Log:
    """The log of a run, which knows it by its programs, its arrays and its settings.

    `settings` are whatever else makes the run: names, numbers, None.
    """
    state, key = (own.params, own.opt_state), own.key
    (loss, gradient), kept = own.forms, jax.eval_shape(problem.worker_state)
    extras = Extras(np.int32(0), np.int32(0), np.int32(0), np.float64(0))
    programs = (
        jobs.gradient_of.lower(problem, own.params, np.int32(0), np.int32(0), key, kept),
        server_state.add.lower(gradient, gradient, np.float64(1)),
        server_state.step.lower(own.update.optimizer, key, state, gradient, own.params, extras),
        jax.jit(judge).lower(problem, own.params, loss),
    )
    if own.update.worker_params is not None:
        programs += (server_state.viewed.lower(own.update, *state),)
    if own.update.gradient_transform is not None:
        arriving = Arrival(gradient, own.params, loss, np.int32(0), extras, key)
        args = (arriving, own.params, own.arrival_state)
        programs += (server_state.arrive.lower(own.update, *args),)
    if own.update.aggregator is not None:
        programs += (server_state.together.lower(own.update, [own.params] * 3, [extras] * 3),)
    words = np.frombuffer(repr(settings).encode(), np.uint8)
    has_extras = isinstance(own.update.optimizer, optax.GradientTransformationExtraArgs)
    mark = mark_of(programs, problem.params, problem.data, key, words, has_extras)
    return Log(Checkpoint(Path(path), mark))


def _digest(judged: Any, started: Sequence[int]) -> int:
    return zlib.crc32(repr((judged, [int(worker) for worker in started])).encode())
