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
from numpy.typing import ArrayLike

from asyncjax import traces
from asyncjax.checks import one_key, whole
from asyncjax.problems import RolloutProblem
from asyncjax.problems.policies.rollout_problem import Draft
from asyncjax.results.run import Run
from asyncjax.simulation.loops.loop import Progress
from asyncjax.simulation.loops.server import first_state
from asyncjax.simulation.plans.plan import recorded_versions
from asyncjax.simulation.rollout_runs import check_learning, check_problem, run_of_rollouts
from asyncjax.simulation.rollouts.advantages import Advantage, leave_one_out
from asyncjax.simulation.rollouts.corrections import Correction, none
from asyncjax.simulation.rollouts.learning import Learning, StepExtras, draw, empty_rows, improve
from asyncjax.simulation.rollouts.plan import Lanes
from asyncjax.simulation.rollouts.versions import Note, Outcome, blank_notes, noted
from asyncjax.traces import RolloutTrace
from asyncjax.traces.generation.admission import Rule
from asyncjax.traces.generation.loop import Asked
from asyncjax.traces.generation.loop import Loop as EventLoop
from asyncjax.traces.generation.rollout_trace import Fate
from asyncjax.traces.progress import Pace, pace_of

_LENGTH = Draft._fields.index("length")
_NOTHING: Any = ((),)


def train_rollouts(
    problem: RolloutProblem,
    optimizer: optax.GradientTransformation,
    *,
    rule: Rule,
    n_slots: int,
    batch: int,
    n_steps: int,
    training_time: float | Callable[[float], float],
    key: jax.Array,
    token_time: ArrayLike = 1.0,
    overhead: float = 0.0,
    transfer_time: float = 0.0,
    pause: float = 0.0,
    group: int = 1,
    correction: Correction | None = None,
    advantage: Advantage | None = None,
    step_scale: Correction | None = None,
    epochs: int = 1,
    minibatches: int = 1,
    record_every: int | None = None,
    width: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    opt_state: Any = None,
) -> tuple[Run, RolloutTrace]:
    """Trains a policy on samples that take as long as they are, and makes the trace of it.

    What `traces.rollouts` does with lengths that are given, this does with those that the policy
    makes: sample i has length_i tokens, drawn by the version that is at the generators when it
    begins, and takes overhead + length_i * token_time of its slot. A policy that learns to answer
    in few tokens makes its generators faster. `replay_rollouts` of the trace under the same key
    gives the same run.

    Args:
        problem: As in `replay_rollouts`.
        optimizer: Any optax optimizer.
        rule: As in `traces.rollouts`, like all that follows down to `group`.
        n_slots: Samples that are made at once.
        batch: B, samples of a step.
        n_steps: Steps.
        training_time: How long a step takes; a number, or a function of the tokens in its batch.
        key: Typed key; as in `replay_rollouts`.
        token_time: Time units a token; one number or one a slot.
        overhead: More for every sample, time units.
        transfer_time: How long weights travel to the generators, time units.
        pause: How long all generators stand still when weights arrive, time units.
        group: Samples of one prompt.
        correction: As in `replay_rollouts`, like all that follows.
        advantage: What rewards are compared with.
        step_scale: Factor of what the optimizer made.
        epochs: How often a step goes over its batch.
        minibatches: Parts of a batch.
        record_every: Record every so many versions, and the last; None: at most 25 records, evenly,
            the last among them.
        width: Samples drawn together, those of the next numbers; None: the batch.
        progress: Called on the host a few times a second with how far the run is.
        opt_state: State that the optimizer begins with; None: `optimizer.init(params)`.

    Returns:
        The run, as `replay_rollouts` returns it, and the trace. Memory: one model, its gradient and
        the state of the optimizer on the device; the drafts that are made or wait, 8 T + 5 bytes
        each, on the host.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: A number is out of range, `minibatches` does not divide the batch, or the rule
            names a sample that does not wait.
        StalledError: As in `traces.rollouts`.

    Example:
        >>> import jax, optax
        >>> from asyncjax import problems, simulation, traces
        >>> problem = problems.contextual_bandit([[1.0, 0.0], [0.0, 1.0]])
        >>> run, trace = simulation.train_rollouts(
        ...     problem, optax.sgd(1.0), rule=traces.admission.budget(1), n_slots=8, batch=4,
        ...     n_steps=30, training_time=2.0, key=jax.random.key(0))
        >>> trace.length[:3].tolist(), trace.n_steps, bool(run.records.loss[-1] < -0.7)
        ([1.0, 1.0, 1.0], 30, True)
    """
    check_problem(problem)
    batch, n_steps, group = whole("batch", batch), whole("n_steps", n_steps), whole("group", group)
    learning = Learning(
        optimizer,
        none() if correction is None else correction,
        leave_one_out() if advantage is None else advantage,
        step_scale,
        whole("epochs", epochs),
        whole("minibatches", minibatches),
    )
    check_learning(problem, learning, batch, opt_state)
    every = None if record_every is None else whole("record_every", record_every)
    width = batch if width is None else whole("width", width)
    recorded = recorded_versions(n_steps, every)
    trainer = _Trainer(problem, learning, one_key("key", key), group, width)
    trainer.begin(opt_state, recorded, pace_of(progress, n_steps))
    trace = traces.rollouts(
        Asked(trainer.length),
        n_slots=n_slots,
        batch=batch,
        n_steps=n_steps,
        rule=rule,
        training_time=training_time,
        token_time=token_time,
        overhead=overhead,
        transfer_time=transfer_time,
        pause=pause,
        group=group,
    )
    return run_of_rollouts(trace, recorded, trainer.end(trace)), trace


class _Trainer:
    """The policy beside the loop of events: it draws what begins, and trains what is asked for."""

    def __init__(
        self, problem: RolloutProblem, learning: Learning, key: jax.Array, group: int, width: int
    ) -> None:
        self.problem, self.learning, self.key = problem, learning, key
        self.group, self.width = np.int32(group), width
        self.version = 0
        self.first, self.block = 0, _NOTHING  # drawn by this version, on the host
        self.kept: dict[int, Any] = {}  # of samples that have begun, and may be trained

    def begin(self, opt_state: Any, recorded: np.ndarray, pace: Pace | None) -> None:
        """Version 0."""
        params = jax.tree.map(jnp.asarray, self.problem.params)
        first = first_state(self.learning.optimizer, params, opt_state)
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
        is_extra = isinstance(self.learning.optimizer, optax.GradientTransformationExtraArgs)
        self.state = _trained(
            self.learning,
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
    learning: Learning,
    extras: bool,
    n_records: int,
    problem: RolloutProblem,
    state: tuple[Any, Any, Note],
    given: Any,
) -> tuple[Any, Any, Note]:
    """The policy, the optimizer's state and the records after a step."""
    (params, opt_state, notes), (key, numbers, rows, handed, record) = state, given
    server = (params, opt_state)
    server, figures = improve(problem, learning, server, key, numbers, rows, handed)
    return *server, noted(problem, n_records, notes, record, server[0], figures)
