"""Rollouts whose durations follow the data: a sample takes as long as what the policy has made.

Time and values then depend on each other, so the loop of events and the training go together: when
a sample begins its version is there, and its length is asked for. Samples are drawn in blocks of
the next numbers under the present version, so the device is waited for once a block and not once a
sample; what of a block is left when a new version comes is drawn afresh by that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.checks import instance, one_key, whole
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Run
from asyncjax.rollouts.admission import Rule
from asyncjax.rollouts.engine import Engine
from asyncjax.rollouts.generation_loop import Asked
from asyncjax.rollouts.generation_loop import Loop as EventLoop
from asyncjax.rollouts.learner import Learner, StepExtras, draw, empty_rows, improve
from asyncjax.rollouts.replay_plan import Lanes
from asyncjax.rollouts.rollout_problem import Draft, RolloutProblem
from asyncjax.rollouts.rollout_replay import (
    check_learner,
    check_problem,
    learner_of,
    run_of_rollouts,
)
from asyncjax.rollouts.rollout_trace import Fate, RolloutTrace
from asyncjax.rollouts.trace_making import trace as make_trace
from asyncjax.rollouts.versions import Note, Outcome, blank_notes, noted
from asyncjax.simulation.arguments import Execution, execution_of
from asyncjax.simulation.engine import first_state
from asyncjax.simulation.loop import Progress
from asyncjax.simulation.plan import recorded_versions
from asyncjax.traces.progress import Pace, pace_of

_LENGTH = Draft._fields.index("length")
_NOTHING: Any = ((),)


@explicit
def train(
    problem: RolloutProblem,
    learner: Learner | optax.GradientTransformation,
    engine: Engine,
    rule: Rule,
    *,
    batch: int,
    n_steps: int,
    key: jax.Array,
    record_every: int | None = None,
    opt_state: Any = None,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Run, RolloutTrace]:
    """Trains a policy on samples that take as long as they are, and makes the trace of it.

    What `rollouts.trace` does with lengths that are given, this does with those that the policy
    makes: sample i has length_i tokens, drawn by the version that is at the generators when it
    begins, and takes overhead + length_i * token_time of its slot. A policy that learns to answer
    in few tokens makes its generators faster. `rollouts.replay` of the trace under the same key
    gives the same run.

    Args:
        problem: As in `rollouts.replay`.
        learner: What a step makes of its batch; an optax optimizer alone is a `Learner` of it.
        engine: The generators and the trainer, with their times. Its `in_flight` must be False: a
            sample is drawn whole when it begins.
        rule: Whom to admit, select and evict: `rollouts.admission.budget(4)` and others.
        batch: B, samples of a step. So many are also drawn together, those of the next numbers,
            unless the learner has a `width`.
        n_steps: Steps.
        key: Typed key; as in `rollouts.replay`.
        record_every: Record every so many versions, and the last; None: at most 25 records, evenly,
            the last among them.
        opt_state: State that the optimizer begins with; None: `optimizer.init(params)`.
        execution: How the run is watched: its `progress`. All else must be None, a checkpoint too.
        progress: Short for that of `execution`.

    Returns:
        The run, as `rollouts.replay` returns it, and the trace. Memory: one model, its gradient and
        the state of the optimizer on the device; the drafts that are made or wait, 8 T + 5 bytes
        each, on the host.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: A number is out of range, `minibatches` does not divide the batch, the rule
            names a sample that does not wait, or the execution or the engine asks for what this
            cannot do.
        StalledError: As in `rollouts.trace`.

    Example:
        >>> import jax, optax
        >>> from asyncjax import rollouts
        >>> problem = rollouts.contextual_bandit([[1.0, 0.0], [0.0, 1.0]])
        >>> run, trace = rollouts.train(
        ...     problem, optax.sgd(1.0), rollouts.Engine(8, 2.0), rollouts.admission.budget(1),
        ...     batch=4, n_steps=30, key=jax.random.key(0))
        >>> trace.length[:3].tolist(), trace.n_steps, bool(run.records.loss[-1] < -0.7)
        ([1.0, 1.0, 1.0], 30, True)
    """
    check_problem(problem)
    instance("engine", engine, Engine, "an Engine, such as rollouts.Engine(64, 10.0)")
    if engine.in_flight:
        raise ValueError(
            "in_flight of the engine must be False: a sample is drawn whole when it begins"
        )
    batch, n_steps = whole("batch", batch), whole("n_steps", n_steps)
    learner, width = learner_of(learner)
    check_learner(problem, learner, batch, opt_state)
    execution = execution_of(execution, progress=progress)
    if execution.checkpoint is not None:
        raise ValueError(
            "checkpoint of the execution must be None: a run that makes its trace keeps none"
        )
    every = None if record_every is None else whole("record_every", record_every)
    recorded = recorded_versions(n_steps, every)
    trainer = _Trainer(problem, learner, one_key("key", key), engine.group, width or batch)
    trainer.begin(opt_state, recorded, pace_of(execution.progress, n_steps))
    trace = make_trace(Asked(trainer.length), engine, rule, batch=batch, n_steps=n_steps)
    return run_of_rollouts(trace, recorded, trainer.end(trace)), trace


class _Trainer:
    """The policy beside the loop of events: it draws what begins, and trains what is asked for."""

    def __init__(
        self, problem: RolloutProblem, learner: Learner, key: jax.Array, group: int, width: int
    ) -> None:
        self.problem, self.learner, self.key = problem, learner, key
        self.group, self.width = np.int32(group), width
        self.version = 0
        self.first, self.block = 0, _NOTHING  # drawn by this version, on the host
        self.kept: dict[int, Any] = {}  # of samples that have begun, and may be trained

    def begin(self, opt_state: Any, recorded: np.ndarray, pace: Pace | None) -> None:
        """Version 0."""
        params = jax.tree.map(jnp.asarray, self.problem.params)
        first = first_state(self.learner.optimizer, params, opt_state)
        notes = blank_notes(self.problem, len(recorded) + 1)
        self.state: tuple[Any, Any, Note] = params, first, notes
        self.recorded, self.pace = recorded, pace
        self.record_of = {int(one) - 1: row for row, one in enumerate(recorded)}

    def length(self, sample: int, loop: EventLoop) -> float:
        """The length of a sample that begins, in tokens."""
        if loop.queue.published > self.version:
            while self.version < loop.queue.published:
                _, ends, members = loop.steps[self.version]
                self.train(members, ends, loop.queue.start_version)
            self.block = _NOTHING
            self._forget(loop)
        place = sample - self.first
        if not 0 <= place < len(self.block[0]):
            self.first, place = sample, 0
            rows = _drawn(
                self.problem, self.state[0], self.key, self.group, np.int32(sample), self.width
            )
            self.block = jax.tree.map(np.asarray, tuple(rows))
        self.kept[sample] = draft = tuple(np.array(column[place]) for column in self.block)
        return float(draft[_LENGTH])

    def train(self, members: Any, ends: float, start_version: Any) -> None:
        """Makes the next version."""
        numbers = [int(sample) for sample in members]
        drafts = [self.kept.pop(sample) for sample in numbers]
        rows: Any = [np.stack(column) for column in zip(*drafts, strict=True)]
        step, samples = np.int32(self.version), np.array(numbers, np.int32)
        delay = np.int32(self.version - min(start_version[sample] for sample in numbers))
        record = np.int32(self.record_of.get(self.version, len(self.recorded)))
        is_extra = isinstance(self.learner.optimizer, optax.GradientTransformationExtraArgs)
        self.state = _trained(
            self.learner,
            is_extra,
            len(self.recorded),
            self.problem,
            self.state,
            (self.key, (step, samples, self.group), Draft(*rows), StepExtras(delay, ends), record),
        )
        self.version += 1
        if self.pace is not None:
            self.pace.at(self.version, ends)

    def end(self, trace: RolloutTrace) -> Outcome:
        """Trains what no sample has waited for."""
        while self.version < trace.n_steps:
            at = self.version
            self.train(trace.members[at], float(trace.step_end[at]), trace.start_version)
        if self.pace is not None:
            self.pace.end(float(trace.step_end[-1]))
        params, opt_state, notes = self.state
        count = len(self.recorded)
        return Outcome(params, opt_state, jax.tree.map(lambda leaf: leaf[:count], notes))

    def _forget(self, loop: EventLoop) -> None:
        """Drops drafts that were thrown away."""
        for sample in [one for one in self.kept if loop.fate[one] == Fate.EVICTED]:
            del self.kept[sample]


@partial(jax.jit, static_argnums=5)
def _drawn(
    problem: RolloutProblem, params: Any, key: jax.Array, group: Any, first: Any, width: int
) -> Draft:
    """So many samples from `first` on."""
    samples: Any = first + jnp.arange(width, dtype=jnp.int32)
    begin: Any = jnp.zeros_like(samples)
    lanes = Lanes(begin, samples, begin, begin + problem.max_length)
    return draw(problem, params, key, group, lanes, empty_rows(problem, width))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _trained(
    learner: Learner,
    extras: bool,
    n_records: int,
    problem: RolloutProblem,
    state: tuple[Any, Any, Note],
    given: Any,
) -> tuple[Any, Any, Note]:
    """The policy, the optimizer's state and the records after a step."""
    (params, opt_state, notes), (key, numbers, rows, handed, record) = state, given
    server = (params, opt_state)
    server, figures = improve(problem, learner, server, key, numbers, rows, handed)
    return *server, noted(problem, n_records, notes, record, server[0], figures)
