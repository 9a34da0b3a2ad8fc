"""One loop: what every run is made of, and the two ways in which it goes.

    state = begin(problem, given)
    state = advance(problem, given, state, first, last)        turns first .. last - 1
    outcome = measure(problem, given, state)

At once it is one compiled call. With progress or a checkpoint it goes in pieces: a loop may be cut
anywhere without changing a bit, so a piece is a range of turns, whose length adapts to about a
quarter of a second. (At once and in pieces are two programs: one event at a time they have been
seen to differ in the last place of a float64.) Kinds are compared by value and all else is an
argument, so runs of one kind and of equal sizes share a compilation, and large arrays are never
constants in it.
"""

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
from asyncjax.simulation.loops.checkpoints import Checkpoint, mark_of
from asyncjax.simulation.loops.placement import cut, fitted
from asyncjax.simulation.plans.plan import ReplayPlan
from asyncjax.traces import Progress

_PIECE_SECONDS, _CHECKPOINT_SECONDS = 0.25, 30.0


class Kind(Protocol):
    """What a turn is: pure functions, and all that is static; hashable."""

    @property
    def optimizer(self) -> optax.GradientTransformation | Callable[..., Any]:
        """The optimizer, or what makes one."""
        ...

    def begin(self, problem: Problem, given: Any) -> Any:
        """The state before the first turn."""
        ...

    def advance(self, problem: Problem, given: Any, state: Any, first: Any, last: Any) -> Any:
        """The state after turns `first .. last - 1`; with `last` None after all, from the first."""
        ...

    def measure(self, problem: Problem, given: Any, state: Any) -> Any:
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

    kind: Kind
    given: Any
    n_turns: int
    progress: Callable[[int, Any], Progress]
    placed: "Placed | None" = None


@dataclass(frozen=True)
class Placed:
    """What takes the place of a loop's kind, inputs and problem where it goes over a mesh.

    The state is that of the loop, perhaps padded at the end of some axes.
    """

    kind: Kind
    given: Any
    problem: Callable[[Problem], Problem]


def run(
    loop: Loop,
    problem: Problem,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Any:
    """Runs a loop at once; in pieces for progress on the host or a checkpoint to resume from."""
    static, given, one = _static(loop.kind), loop.given, problem
    if loop.placed is not None:
        static, given = _static(loop.placed.kind), loop.placed.given
        problem = loop.placed.problem(one)
    if progress is None and checkpoint is None:
        return _whole(*static, problem, given, np.int32(0))
    kept = None if checkpoint is None else _kept(loop, one, checkpoint)
    turn, state = 0, _begin(*static, problem, given)
    if kept is not None and kept.file.path.exists():
        turn, state = kept.load(state, loop.n_turns)
    elif kept is not None:
        kept.save(turn, state)  # a place that cannot be written to is found at once
    length, saved = 1, time.monotonic()
    while turn < loop.n_turns:
        began, last = time.monotonic(), min(turn + length, loop.n_turns)
        state = jax.block_until_ready(_piece(*static, problem, given, state, turn, last))
        seconds, turn = time.monotonic() - began, last
        length = max(1, int(length * min(4.0, _PIECE_SECONDS / max(seconds, 1e-9))))
        if progress is not None:
            progress(loop.progress(turn, state))
        is_due = time.monotonic() - saved > _CHECKPOINT_SECONDS
        if kept is not None and is_due and turn < loop.n_turns:
            kept.save(turn, state)
            saved = time.monotonic()
    outcome = _measured(*static, problem, given, state)
    if kept is not None:
        kept.file.forget()
    return outcome


def _static(kind: Kind) -> tuple[Kind, bool]:
    """What is static in a loop's programs."""
    # Named tuples of equal functions are equal, but not every one of them takes extras.
    return kind, isinstance(kind.optimizer, optax.GradientTransformationExtraArgs)


@dataclass(frozen=True)
class _Kept:
    """The checkpoint of a run; over a mesh too it holds the state that one device would have."""

    file: Checkpoint
    like: Any  # the shapes of that state; None: the run is on one device

    def load(self, state: Any, n_turns: int) -> tuple[int, Any]:
        """The turn and the state, which lies where `state` does."""
        if self.like is None:
            return self.file.load(state, n_turns)
        turn, whole = self.file.load(cut(state, self.like), n_turns)
        return turn, fitted(whole, state)

    def save(self, turn: int, state: Any) -> None:
        """Writes the file, whole or not at all."""
        self.file.save(turn, state if self.like is None else cut(state, self.like))


def _kept(loop: Loop, problem: Problem, path: str | os.PathLike[str]) -> _Kept:
    """The checkpoint, marked by the programs of one device and their inputs; compiles nothing."""
    static, given = _static(loop.kind), loop.given
    state = jax.eval_shape(loop.kind.begin, problem, given)
    programs = (
        _begin.lower(*static, problem, given),
        _piece.lower(*static, problem, given, state, 0, 1),
        _measured.lower(*static, problem, given, state),
    )
    mark = mark_of(programs, problem.params, problem.data, given, loop.n_turns)
    return _Kept(Checkpoint(Path(path), mark), None if loop.placed is None else state)


def progress_at(plan: ReplayPlan, updates: int) -> Progress:
    """How far a replay is after so many updates."""
    enders = np.flatnonzero(np.asarray(plan.trace.steps))
    now = float(plan.trace.time[enders[updates - 1]]) if updates else 0.0
    return Progress(updates, plan.n_updates, now)


def whole(kind: Kind, problem: Problem, given: Any, first: Any = 0) -> Any:
    """A run at once; pure and traceable."""
    state = kind.advance(problem, given, kind.begin(problem, given), first, None)
    return kind.measure(problem, given, state)


@partial(jax.jit, static_argnums=(0, 1))
def _whole(kind: Kind, extras: bool, problem: Problem, given: Any, zero: Any) -> Any:
    # Were the zero known, a run of one turn would be unrolled, to other bits than in pieces.
    return whole(kind, problem, given, zero)


@partial(jax.jit, static_argnums=(0, 1))
def _begin(kind: Kind, extras: bool, problem: Problem, given: Any) -> Any:
    return kind.begin(problem, given)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _piece(
    kind: Kind, extras: bool, problem: Problem, given: Any, state: Any, first: int, last: int
) -> Any:
    return kind.advance(problem, given, state, first, last)


@partial(jax.jit, static_argnums=(0, 1))
def _measured(kind: Kind, extras: bool, problem: Problem, given: Any, state: Any) -> Any:
    return kind.measure(problem, given, state)
