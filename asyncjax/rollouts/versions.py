"""The compiled loop over versions.

    turn v:   drafts <- segments that version v draws, a chunk of lanes at a time
              x_{v+1}, s_{v+1} <- improve(x_v, s_v, drafts of the members of step v)

Only the present model is there: what is old is the samples, and their log-probabilities tell by
whom they were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.rollouts.learner import (
    Learner,
    StepExtras,
    StepFigures,
    draw,
    empty_rows,
    improve,
)
from asyncjax.rollouts.replay_plan import Lanes, RolloutPlan, RolloutProgram
from asyncjax.rollouts.rollout_problem import Draft, RolloutProblem
from asyncjax.simulation.engine import first_state, judge
from asyncjax.simulation.loop import Loop, Progress
from asyncjax.simulation.rows import blank, read, when, write


class Note(NamedTuple):
    """What is measured of a version."""

    loss: jax.Array  # float[R], the objective, else minus the mean reward of the step's batch
    finite: jax.Array  # bool[R]
    metrics: dict[str, jax.Array]  # float[R] each
    reward: jax.Array  # float[R], mean of the step's batch
    length: jax.Array  # float[R], tokens, mean of it
    effective: jax.Array  # float[R], effective sample size of it, a share


class VersionState(NamedTuple):
    """What the loop over versions carries."""

    params: Any
    opt_state: Any
    drafts: Draft  # S + 1 rows: samples that are made or wait; the last is scratch
    notes: Note  # R + 1 rows; the last is scratch


class VersionInputs(NamedTuple):
    """What a replay of rollouts is given."""

    program: RolloutProgram
    key: jax.Array
    opt_state: Any  # the optimizer's first; None: its own


class Outcome(NamedTuple):
    """What is left of it."""

    params: Any
    opt_state: Any
    notes: Note  # R rows


def version_loop(plan: RolloutPlan, learner: Learner, key: jax.Array, opt_state: Any) -> Loop:
    """The replay of a plan."""
    time, n_steps = plan.program.time, plan.trace.n_steps

    def progress(turn: int, _: VersionState) -> Progress:
        return Progress(turn, n_steps, float(time[turn - 1]) if turn else 0.0)

    kind: Any = ByVersion(learner, plan.draft_slots, len(plan.records))
    return Loop(kind, VersionInputs(plan.program, key, opt_state), n_steps, progress)


@dataclass(frozen=True)
class ByVersion:
    """A replay whose turns are the versions of the policy."""

    learner: Learner
    draft_slots: int
    n_records: int

    @property
    def optimizer(self) -> Any:
        """The optimizer."""
        return self.learner.optimizer

    def init(self, problem: RolloutProblem, given: VersionInputs) -> VersionState:
        """Nothing is drawn yet."""
        params = jax.tree.map(jnp.asarray, problem.params)
        return VersionState(
            params,
            first_state(self.optimizer, params, given.opt_state),
            empty_rows(problem, self.draft_slots + 1),
            blank_notes(problem, self.n_records + 1),
        )

    def step(
        self,
        problem: RolloutProblem,
        given: VersionInputs,
        state: VersionState,
        first: Any,
        last: Any,
    ) -> VersionState:
        """Makes turns."""
        program, key = given.program, given.key
        group = jnp.asarray(program.group)

        def chunk(number: jax.Array, drafts: Draft, params: Any) -> Draft:
            lanes = Lanes(*read(tuple(program.lanes), number))
            rows = draw(problem, params, key, group, lanes, read(drafts, lanes.slot))
            return write(drafts, lanes.slot, rows)

        def turn(number: jax.Array, state: VersionState) -> VersionState:
            number = jnp.asarray(number, jnp.int32)
            begin, end = read(program.first_chunk, number), read(program.first_chunk, number + 1)
            add = partial(chunk, params=state.params)
            drafts = jax.lax.fori_loop(begin, end, add, state.drafts)
            members, slots, *extras, record = read(
                (program.member, program.member_slot, program.delay, program.time, program.record),
                number,
            )
            server, figures = improve(
                problem,
                self.learner,
                (state.params, state.opt_state),
                key,
                (number, members, group),
                read(drafts, slots),
                StepExtras(*extras),
            )
            notes = noted(problem, self.n_records, state.notes, record, server[0], figures)
            return VersionState(*server, drafts, notes)

        end = program.member.shape[0] if last is None else last
        return jax.lax.fori_loop(first, end, turn, state)

    def finalize(
        self, problem: RolloutProblem, given: VersionInputs, state: VersionState
    ) -> Outcome:
        """The records were written on the way."""
        notes = jax.tree.map(lambda leaf: leaf[: self.n_records], state.notes)
        return Outcome(state.params, state.opt_state, notes)


def blank_notes(problem: Any, count: int) -> Note:
    """Rows for records."""
    params = jax.tree.map(jnp.asarray, problem.params)
    real = jax.eval_shape(problem.empty_draft).log_probs.dtype
    one: Any = jax.ShapeDtypeStruct((), real)
    measured = jax.eval_shape(partial(judge, problem), params, one)
    return blank(Note(measured.loss, measured.finite, measured.metrics, one, one, one), count)


def noted(
    problem: Any, n_records: int, notes: Note, record: jax.Array, params: Any, figures: StepFigures
) -> Note:
    """The records with a version judged, if it is one that is recorded."""

    def note(notes: Note) -> Note:
        # Tied to what the loop changes, else it is taken out of this loop (see `when`).
        notes, model = jax.lax.optimization_barrier((notes, params))
        measured = judge(problem, model, figures.loss)
        row = Note(
            measured.loss,
            measured.finite,
            measured.metrics,
            -figures.loss,
            figures.length,
            figures.effective,
        )
        return write(notes, record, row)

    return when(jnp.asarray(record) < np.int32(n_records), note, notes)
