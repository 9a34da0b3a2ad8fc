"""One loop: what every run is made of, and the two ways in which it goes.

    state = begin(problem, given)
    state = advance(problem, given, state, first, last)        turns first .. last - 1
    outcome = measure(problem, given, state)

At once it is one compiled call. With progress, a checkpoint or rows to tell it goes in pieces: a
loop may be cut anywhere without changing a bit, so a piece is a range of turns, whose length adapts
to about a quarter of a second. A kind whose rows can be told has `row(problem, given, state,
number)`, what is measured of one record. (At once and in pieces are two programs: one event at a
time they have been seen to differ in the last place of a float64.) Kinds are compared by value and
all else is an argument, so runs of one kind and of equal sizes share a compilation, and large
arrays are never constants in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
import optax

from asyncjax.problems import Problem
from asyncjax.simulation.checkpoints import Checkpoint, Mark, fingerprint, mark_of
from asyncjax.simulation.hosts import Peers, peers_of
from asyncjax.simulation.placement import cut, fitted
from asyncjax.simulation.plan import ReplayPlan
from asyncjax.traces import Progress
from asyncjax.traces.progress import teller

_PIECE_SECONDS, _CHECKPOINT_SECONDS = 0.25, 30.0


class Algorithm(Protocol):
    """What a turn is: pure functions, and all that is static; hashable."""

    @property
    def optimizer(self) -> optax.GradientTransformation | Callable[..., Any]:
        """The optimizer, or what makes one."""
        ...

    def init(self, problem: Problem, given: Any) -> Any:
        """The state before the first turn."""
        ...

    def step(self, problem: Problem, given: Any, state: Any, first: Any, last: Any) -> Any:
        """The state after turns `first .. last - 1`; with `last` None after all, from the first."""
        ...

    def finalize(self, problem: Problem, given: Any, state: Any) -> Any:
        """What is told of a finished run."""
        ...


@dataclass(frozen=True)
class Loop:
    """A run that is ready to go.

    Attributes:
        kind: What a turn is; static.
        given: All arrays that it reads beside the problem, a pytree: arguments of what is compiled.
        n_turns: Turns in all.
        progress: `(turns made, state) -> Progress`.
        placed: How it goes over several devices; None: on one.
    """

    kind: Algorithm
    given: Any
    n_turns: int
    progress: Callable[[int, Any], Progress]
    placed: Placed | None = None


@dataclass(frozen=True)
class Placed:
    """What takes the place of a loop's kind, inputs and problem where it goes over a mesh.

    The state is that of the loop, perhaps padded at the end of some axes.
    """

    kind: Algorithm
    given: Any
    problem: Callable[[Problem], Problem]


def run(
    loop: Loop,
    problem: Problem,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    rows: RowTeller | None = None,
) -> Any:
    """Runs a loop at once; in pieces for what is told on the way or a checkpoint to resume from."""
    static, given, one = _static(loop.kind), loop.given, problem
    if loop.placed is not None:
        static, given = _static(loop.placed.kind), loop.placed.given
        problem = loop.placed.problem(one)
    peers = peers_of(None if loop.placed is None else given)
    watch = teller(progress)
    is_at_once = watch is None and checkpoint is None and rows is None
    with peers.joined():
        one = peers.gathered(one)  # data may lie on devices of all processes
        mark = _mark(loop, one) if peers.several or checkpoint is not None else None
        if peers.several and mark is not None:
            asked = (is_at_once, checkpoint is None, rows is None)
            peers.agree(_parts(loop, one, mark, asked))
        if is_at_once:
            return peers.gathered(_whole(*static, problem, given, np.int32(0)))
        turn, state, store = 0, _begin(*static, problem, given), None
        if checkpoint is not None and mark is not None:
            like = None
            if loop.placed is not None:
                like = jax.eval_shape(loop.kind.init, one, loop.given)
            store = _Kept(Checkpoint(Path(checkpoint), mark), like, peers)
            turn, state = store.begin(state, loop.n_turns)

        def tell() -> None:
            if rows is not None:
                measured = partial(_row, *static, problem, given, state)
                updates = loop.progress(turn, state).updates
                rows.tell(updates, lambda number: peers.gathered(measured(number)))

        if rows is not None and turn:
            rows.pass_over(loop.progress(turn, state).updates)
        tell()
        length, saved = 1, time.monotonic()
        while turn < loop.n_turns:
            began = time.monotonic()
            last = peers.told(f"turns {turn}", min(turn + length, loop.n_turns))
            state = peers.settled(_piece(*static, problem, given, state, turn, last))
            seconds, turn = time.monotonic() - began, last
            length = max(1, int(length * min(4.0, _PIECE_SECONDS / max(seconds, 1e-9))))
            tell()
            if watch is not None:
                watch(loop.progress(turn, state))
            if store is not None and turn < loop.n_turns:
                is_due = time.monotonic() - saved > _CHECKPOINT_SECONDS
                if peers.told(f"due {turn}", is_due):
                    store.save(turn, state)
                    saved = time.monotonic()
        outcome = peers.gathered(_measured(*static, problem, given, state))
        if store is not None:
            peers.done_once("forgotten", store.file.forget)
        return outcome


def _static(kind: Algorithm) -> tuple[Algorithm, bool]:
    """What is static in a loop's programs."""
    # Named tuples of equal functions are equal, but not every one of them takes extras.
    return kind, isinstance(kind.optimizer, optax.GradientTransformationExtraArgs)


@dataclass(frozen=True)
class _Kept:
    """The checkpoint of a run; over a mesh too it holds the state that one device would have.

    The first process writes and reads the file for all.
    """

    file: Checkpoint
    like: Any  # the shapes of that state; None: the run is on one device
    peers: Peers

    def begin(self, state: Any, n_turns: int) -> tuple[int, Any]:
        """The turn and the state that are in the file; if there is none, the first is written."""
        if self.peers.done_once("there", self.file.path.exists):
            return self.load(state, n_turns)
        self.save(0, state)  # a place that cannot be written to is found at once
        return 0, state

    def load(self, state: Any, n_turns: int) -> tuple[int, Any]:
        """The turn and the state, which lies where `state` does."""
        if self.like is None:
            return self.file.load(state, n_turns)
        read: list[Any] = []

        def turn_of() -> int:
            turn, whole = self.file.load(self.like, n_turns)
            read.append(whole)
            return turn

        turn = self.peers.done_once("read", turn_of)
        return turn, fitted(self.peers.spread(read[0] if read else None, self.like), state)

    def save(self, turn: int, state: Any) -> None:
        """Writes the file, whole or not at all."""
        state = self.peers.gathered(state)
        trimmed = state if self.like is None else cut(state, self.like)
        self.peers.done_once(f"saved {turn}", partial(self.file.save, turn, trimmed))


def _mark(loop: Loop, problem: Problem) -> Mark:
    """What tells a run from others: the programs of one device and their inputs; compiles none."""
    static, given = _static(loop.kind), loop.given
    state = jax.eval_shape(loop.kind.init, problem, given)
    programs = (
        _begin.lower(*static, problem, given),
        _piece.lower(*static, problem, given, state, 0, 1),
        _measured.lower(*static, problem, given, state),
    )
    return mark_of(programs, problem.params, problem.data, given, loop.n_turns)


def _parts(loop: Loop, problem: Problem, mark: Mark, asked: tuple[bool, ...]) -> dict[str, str]:
    """Digests of what several processes must agree on, by the words for it."""
    fields = getattr(loop.given, "_asdict", lambda: {"key": loop.given})()
    words = {"program": "the traces", "events": "the traces", "steps": "step_sizes"}
    inputs = {words.get(name, name): fingerprint(value) for name, value in fields.items()}
    return {
        "the software": mark.software,
        "the problem's params": fingerprint(problem.params),
        "the problem's data": fingerprint(problem.data),
        **inputs,
        "what is compiled (sizes, the optimizer, a function of the problem)": mark.program,
        "whether it has progress, a checkpoint or on_record": f"{asked}",
    }


def progress_at(plan: ReplayPlan, updates: int) -> Progress:
    """How far a replay is after so many updates."""
    now = float(plan.trace.update_time[updates - 1]) if updates else 0.0
    return Progress(updates, plan.n_updates, now)


def whole(kind: Algorithm, problem: Problem, given: Any, first: Any = 0) -> Any:
    """A run at once; pure and traceable. A kind may have a way of its own, `at_once`."""
    at_once = getattr(kind, "at_once", None)
    if at_once is not None:
        return at_once(problem, given, first)
    state = kind.step(problem, given, kind.init(problem, given), first, None)
    return kind.finalize(problem, given, state)


@partial(jax.jit, static_argnums=(0, 1))
def _whole(kind: Algorithm, extras: bool, problem: Problem, given: Any, zero: Any) -> Any:
    # Were the zero known, a run of one turn would be unrolled, to other bits than in pieces.
    return whole(kind, problem, given, zero)


@partial(jax.jit, static_argnums=(0, 1))
def _begin(kind: Algorithm, extras: bool, problem: Problem, given: Any) -> Any:
    return kind.init(problem, given)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _piece(
    kind: Algorithm, extras: bool, problem: Problem, given: Any, state: Any, first: int, last: int
) -> Any:
    return kind.step(problem, given, state, first, last)


@partial(jax.jit, static_argnums=(0, 1))
def _row(kind: Any, extras: bool, problem: Problem, given: Any, state: Any, number: int) -> Any:
    return kind.row(problem, given, state, number)


@partial(jax.jit, static_argnums=(0, 1))
def _measured(kind: Algorithm, extras: bool, problem: Problem, given: Any, state: Any) -> Any:
    return kind.finalize(problem, given, state)


class RowTeller:
    """Calls `on_record` with the rows of a run's records, each once and in order.

    `versions` int[R] are those of all rows; `columns` are the records as far as they are known
    beforehand, None where all is measured.

    Example:
        >>> from asyncjax.results.run import Records
        >>> from asyncjax.simulation.engine import Metrics
        >>> versions, seen = np.array([0, 5, 10]), []
        >>> columns = Records(versions, versions / 2, *[versions] * 3, *[None] * 3)
        >>> rows = RowTeller(seen.append, versions, columns)
        >>> rows.tell(7, lambda number: Metrics(np.float32(0.5), {}, np.bool_(True)))
        >>> [(row.version, row.time, row.loss) for row in seen]
        [(0, 0.0, 0.5), (5, 2.5, 0.5)]
    """

    def __init__(
        self, on_record: Callable[[Any], None], versions: Any, columns: Any = None
    ) -> None:
        self._on_record, self._versions, self._columns = on_record, versions, columns
        self._told = 0

    def pass_over(self, updates: int) -> None:
        """Leaves out the rows up to an update, where a run goes on from there."""
        self._told = self._due(updates)

    def tell(self, updates: int, measure: Callable[[int], Any]) -> None:
        """Tells the rows that are due after so many updates; `measure` of a row's number."""
        due = self._due(updates)
        for number in range(self._told, due):
            row = measure(number)
            if self._columns is not None:
                known = jax.tree.map(lambda column, at=number: column[at], self._columns)
                row = known._replace(**row._asdict())
            self._on_record(in_python(row))
        self._told = due

    def _due(self, updates: int) -> int:
        return int(np.searchsorted(self._versions, updates, side="right"))


def in_python(row: Any) -> Any:
    """A row of arrays without axes as numbers of Python.

    Example:
        >>> in_python({"loss": np.float32(0.5), "finite": np.bool_(True)})
        {'finite': True, 'loss': 0.5}
    """
    return jax.tree.map(lambda value: np.asarray(value).tolist(), row)
