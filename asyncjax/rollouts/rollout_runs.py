"""Rollout runs: a policy is trained on samples that older versions of it made.

    turn v:   drafts <- segments that version v draws, in chunks of `width` lanes
              x_{v+1}, s_{v+1} <- improve(x_v, s_v, drafts of the members of step v)

A replay knows from its trace what is drawn when, waits where, and trains what: a plan says so, made
on the host, and one compiled loop goes over the versions. A sample has its slot from the turn of
its first version to the turn that trains it. Only the present model is there: what is old is the
samples, and their log-probabilities tell by whom they were made.

Where durations follow the data (`train`), the loop of events and the training go together: when a
sample begins its version is there, and its length is asked for. Samples are drawn in blocks of the
next numbers, so the device is waited for once a block; what is left of a block when a new version
comes is drawn afresh by that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.checks import one_key, whole
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Array, Run, Source
from asyncjax.rollouts.admission import Rule
from asyncjax.rollouts.engine import Engine, Fate, GenerationLoop, RolloutTrace
from asyncjax.rollouts.learner import Lanes, Learner, Step, StepFigures, draw, improve, learner_of
from asyncjax.rollouts.rollout_problem import Draft, RolloutProblem
from asyncjax.simulation.arguments import Execution, execution_of
from asyncjax.simulation.engine import Metrics, first_state, judge
from asyncjax.simulation.loop import Loop, Progress, run
from asyncjax.simulation.plan import allocate, recorded_versions
from asyncjax.simulation.rows import blank, read, when, write
from asyncjax.traces.progress import Pace, teller

_CHUNK_COST = 4  # of a chunk, in lanes
_ROUNDING = 1e-6  # tokens; a boundary that is whole up to rounding is whole


class RolloutRecords(NamedTuple):
    """State after some of the steps, R records; device columns may have further leading axes.

    Attributes:
        version: int32[R], steps made.
        time: float64[R], time units, when that step ended.
        delay: int32[R], the largest age in its batch.
        used: int64[R], samples trained so far.
        computed: int64[R], samples trained or thrown away so far.
        loss: float[R], the objective; without one, minus `reward`.
        finite: bool[R], every parameter is finite.
        metrics: float[R] each.
        age: float64[R], mean age in the batch.
        reward: float[R], mean reward of the batch.
        length: float[R], tokens, mean length of its samples.
        effective_sample_size: float[R], of the samples' weights as the step began, a share of the
            batch.
    """

    version: Array
    time: Array
    delay: Array
    used: Array
    computed: Array
    loss: jax.Array
    finite: jax.Array
    metrics: dict[str, jax.Array]
    age: Array
    reward: jax.Array
    length: jax.Array
    effective_sample_size: jax.Array


@explicit
def replay(
    problem: RolloutProblem,
    trace: RolloutTrace,
    learner: Learner | optax.GradientTransformation,
    *,
    key: jax.Array,
    record_every: int | None = None,
    opt_state: Any = None,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run[Any, RolloutRecords]:
    """Replays a trace of rollouts: each sample is drawn by the versions that the trace says.

    Samples that no step trains are not drawn. The trace decides when, the policy decides what:
    unless the lengths of the trace are the policy's own (`rollouts.train`), a sample may be shorter
    or longer than its time says. A version that comes in flight, when a share s of a sample's time
    has gone by, draws from token s m on, with m its length in the trace, T at most.

    The prompt of sample i is drawn with a key folded from `key` and i // group, the sample with one
    folded from `key` and i: traces that are compared under one key deal the same prompts. The
    optimizer is handed `delay` (the largest age in the step's batch), `time` (when it ends) and
    `key`. It may be vmapped over keys, initial policies and states of the optimizer.

    Args:
        problem: A policy, what it is asked, and what its answers are worth.
        trace: What `rollouts.trace` or `rollouts.train` made.
        learner: What a step makes of its batch; an optax optimizer alone is a `Learner` of it.
        key: Typed key.
        record_every: Record every so many versions, and the last; None: at most 25 records, evenly,
            the last among them.
        opt_state: State that the optimizer begins with; None: `optimizer.init(params)`.
        execution: How the run is watched; its `mesh`, `specs`, `memory_limit` and `on_record` must
            be None.
        progress: Short for that of `execution`.
        checkpoint: Short for that of `execution`.

    Returns:
        The run: `records` as `RolloutRecords`, `trace` the one that was given, no `costs` (see
        `rollouts.summarize`). Memory: one model, its gradient and the state of the optimizer;
        8 T + 5 bytes for each draft that is made or waits at once, 16 bytes a segment and 8 a
        trained sample; and what the policy needs to draw `width` samples, and to differentiate a
        minibatch.

    Example:
        >>> import jax, optax
        >>> from asyncjax import rollouts
        >>> problem = rollouts.contextual_bandit([[1.0, 0.0], [0.0, 1.0]])
        >>> engine, rule = rollouts.Engine(24, 1.0), rollouts.admission.budget(2)
        >>> trace = rollouts.trace([1.0], engine, rule, batch=8, n_steps=60)
        >>> learner = rollouts.Learner(
        ...     optax.sgd(1.0), correction=rollouts.corrections.truncated_importance(4.0))
        >>> run = rollouts.replay(problem, trace, learner, key=jax.random.key(0), record_every=20)
        >>> run.records.version.tolist(), bool(run.records.loss[-1] < run.records.loss[0] < -0.5)
        ([20, 40, 60], True)
    """
    _check_trace(trace)
    execution = execution_of(execution, progress=progress, checkpoint=checkpoint)
    key = one_key("key", key)
    learner, width = learner_of(learner, problem, trace.members.shape[1])
    recorded = _recorded(trace.n_steps, record_every)
    program, draft_slots = plan_rollouts(trace, problem.max_length, recorded, width)
    n_steps, time = trace.n_steps, np.append(0.0, program.steps.time).tolist()
    kind: Any = ByVersion(learner, draft_slots, len(recorded))
    given, policy = (program, key, opt_state), cast(Any, problem)
    loop = Loop(kind, given, n_steps, lambda turn, _: Progress(turn, n_steps, time[turn]))
    state = run(loop, policy, execution.progress, execution.checkpoint)
    return _run_of(trace, recorded, *state)


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
    progress: Callable[[Progress], None] | bool | None = None,
) -> tuple[Run[Any, RolloutRecords], RolloutTrace]:
    """Trains a policy on samples that take as long as they are, and makes the trace of it.

    What `rollouts.trace` does with lengths that are given, this does with those that the policy
    makes when a sample begins: one that learns to answer in few tokens makes its generators faster.
    `rollouts.replay` of the trace under the same key gives the same run.

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
        record_every: As in `rollouts.replay`.
        opt_state: State that the optimizer begins with; None: `optimizer.init(params)`.
        execution: How the run is watched: its `progress`. All else must be None, a checkpoint too.
        progress: Short for that of `execution`.

    Returns:
        The run, as `rollouts.replay` returns it, and the trace. Drafts that are made or wait are
        on the host, 8 T + 5 bytes each.

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
    batch, n_steps = whole("batch", batch), whole("n_steps", n_steps)
    if engine.in_flight:
        raise ValueError(
            "in_flight of the engine must be False: a sample is drawn whole when it begins"
        )
    learner, width = learner_of(learner, problem, batch)
    execution = execution_of(execution, progress=progress)
    if execution.checkpoint is not None:
        raise ValueError(
            "checkpoint of the execution must be None: a run that makes its trace keeps none"
        )
    key, recorded = one_key("key", key), _recorded(n_steps, record_every)
    pace = Pace(teller(execution.progress) or (lambda _: None), n_steps)
    sizes = np.int32(engine.group), width or batch, len(recorded), _rows_of(recorded, n_steps)
    state = _begun(problem, learner, opt_state, len(recorded))
    trainer = _Trainer(problem, learner, key, *sizes, pace, state)
    trace = GenerationLoop(engine, rule, batch, n_steps, trainer.length).run()
    trainer.end(trace)
    return _run_of(trace, recorded, *_told(trainer.state, len(recorded))), trace


def _recorded(n_steps: int, record_every: int | None) -> np.ndarray:
    """The versions that are recorded, int64[R]."""
    every = None if record_every is None else whole("record_every", record_every)
    return recorded_versions(n_steps, every)


def _check_trace(trace: RolloutTrace) -> None:
    """Refuses a trace that trains what is not there, or not there yet."""
    members, last = np.asarray(trace.members), len(trace.start) - 1
    step, ends = np.arange(len(members))[:, None], [int(members.min()), int(members.max())]

    def refuse(is_wrong: Any, words: str) -> None:
        if np.any(is_wrong):
            raise ValueError(f"trace must {words}")

    refuse(ends[0] < 0 or ends[1] > last, f"train samples in 0..{last}, got {ends}")
    refuse(np.unique(members).size < members.size, "train a sample once at most, got one twice")
    versions = trace.start_version, trace.end_version
    refuse(np.diff(versions[0], prepend=0) < 0, "have start_version not decreasing from 0 on")
    late = (versions[1][members] > step) | (trace.step[members] != step)
    refuse(late, "train samples at steps after their versions, as step says")
    refuse(versions[1] < versions[0], "have end_version at least start_version")


class RolloutProgram(NamedTuple):
    """All that the loop over versions reads of a plan."""

    lanes: Lanes  # [C, L], of C chunks
    first_chunk: np.ndarray  # int32[T + 1]; version v draws first_chunk[v] .. first_chunk[v + 1]
    slots: np.ndarray  # int32[T, B], of the samples of each step
    steps: Step  # [T]


def plan_rollouts(
    trace: RolloutTrace, max_length: int, recorded: np.ndarray, width: int | None
) -> tuple[RolloutProgram, int]:
    """Plans the replay of a checked trace; also how many drafts wait at once, at most, rounded up.

    Example:
        >>> from asyncjax import rollouts
        >>> engine, rule = rollouts.Engine(4, 1.0), rollouts.admission.in_order(1)
        >>> trace = rollouts.trace([1.0], engine, rule, batch=2, n_steps=5)
        >>> program, draft_slots = plan_rollouts(trace, 1, np.array([5]), 2)
        >>> program.slots[:3].tolist(), program.first_chunk.tolist()
        ([[0, 1], [2, 3], [0, 1]], [0, 2, 3, 4, 5, 5])
    """
    n_steps, batch = trace.members.shape
    trained = np.sort(trace.members.ravel())
    slots, draft_slots = allocate(trace.start_version[trained], trace.step[trained])
    draft_slots = rounded(draft_slots)
    slot_of = np.full(len(trace.start), draft_slots, np.int32)
    slot_of[trained] = slots
    sample, version, begin, end = _segments(trace, trained, max_length)
    count = np.bincount(version, minlength=n_steps)
    width = _width(count, batch) if width is None else width
    first_chunk = np.append(0, np.cumsum(-(-count // width))).astype(np.int32)
    order = np.lexsort((sample, version))
    rank = np.arange(len(order)) - np.append(0, np.cumsum(count))[version[order]]
    at = (first_chunk[version[order]] + rank // width, rank % width)
    shape, idle = (rounded(int(first_chunk[-1])), width), (draft_slots, 0, 0, 0)
    lanes = Lanes(*(np.full(shape, value, np.int32) for value in idle))
    for column, values in zip(lanes, (slot_of[sample], sample, begin, end), strict=True):
        column[at] = values[order]
    members, age = trace.members.astype(np.int32), trace.age.reshape(n_steps, batch)
    group, delay = np.full(n_steps, trace.group, np.int32), age.max(1).astype(np.int32)
    numbers, ends = np.arange(n_steps, dtype=np.int32), np.asarray(trace.step_end, np.float64)
    steps = Step(numbers, members, group, delay, ends, _rows_of(recorded, n_steps))
    return RolloutProgram(lanes, first_chunk, slot_of[members], steps), draft_slots


def _rows_of(recorded: np.ndarray, n_steps: int) -> np.ndarray:
    """The row of each step in the records, int32[T]; R where it has none."""
    rows = np.full(n_steps, len(recorded), np.int32)
    rows[recorded - 1] = np.arange(len(recorded))
    return rows


def rounded(count: int) -> int:
    """A size that many plans share: at most a quarter more.

    Example:
        >>> [rounded(count) for count in (1, 7, 9, 33, 57)]
        [1, 7, 10, 40, 64]
    """
    unit = max(1, 2 ** (max(count - 1, 1).bit_length() - 3))
    return -(-count // unit) * unit


def _segments(
    trace: RolloutTrace, trained: np.ndarray, max_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sample, version, first token and end of every segment that has tokens."""
    # A version that comes when a share s of a sample's time has gone by draws from token s * m on,
    # with m its length in the trace, `max_length` at most.
    first = trace.start_version[trained]
    count = trace.end_version[trained] - first + 1
    sample = np.repeat(trained, count)
    number = np.arange(len(sample)) - np.repeat(np.cumsum(count) - count, count)
    version = np.repeat(first, count) + number
    later = number > 0
    came = np.zeros(len(sample))
    came[later] = trace.published[version[later] - 1] - trace.start[sample[later]]
    took = np.maximum(trace.end - trace.start, np.finfo(np.float64).tiny)[sample]
    tokens = np.minimum(np.ceil(trace.length), max_length)[sample]
    begin = np.floor(np.clip(came / took, 0.0, 1.0) * tokens + _ROUNDING)
    begin = np.where(later, np.minimum(begin, max_length), 0).astype(np.int32)
    is_last = np.append(~later[1:], True)
    end = np.where(is_last, max_length, np.append(begin[1:], 0)).astype(np.int32)
    drawn = end > begin
    return sample[drawn], version[drawn], begin[drawn], end[drawn]


def _width(count: np.ndarray, batch: int) -> int:
    """Lanes of a chunk: the batch, or a half, a quarter, ... of it, where that is less to do."""
    options = [-(-batch // 2**k) for k in range(batch.bit_length())]
    return min(options, key=lambda width: int((-(-count // width)).sum()) * (width + _CHUNK_COST))


class Note(NamedTuple):
    """What is told of a version, R rows."""

    metrics: Metrics
    figures: StepFigures  # of the step that made it


State = tuple[Any, Any, Note]  # params, optimizer's state, R + 1 rows of which the last is scratch


@dataclass(frozen=True)
class ByVersion:
    """Turns are versions; given are a program, the key, the optimizer's first state or None."""

    learner: Learner
    draft_slots: int
    n_records: int

    @property
    def optimizer(self) -> Any:
        """The optimizer."""
        return self.learner.optimizer

    def init(self, problem: RolloutProblem, given: Any) -> tuple[Draft, State]:
        """Nothing is drawn yet: S + 1 rows for drafts that are made or wait, one is scratch."""
        drafts = blank(problem.empty_draft(), self.draft_slots + 1)
        return drafts, _begun(problem, self.learner, given[2], self.n_records)

    def step(self, problem: Any, given: Any, state: Any, first: Any, last: Any) -> Any:
        """Makes turns."""
        program, key, _ = given

        def chunk(number: jax.Array, drafts: Draft, params: Any, group: Any) -> Draft:
            lanes = read(program.lanes, number)
            rows = draw(problem, params, key, group, lanes, read(drafts, lanes.slot))
            return write(drafts, lanes.slot, rows)

        def turn(number: jax.Array, state: tuple[Draft, State]) -> tuple[Draft, State]:
            (drafts, server), number = state, jnp.asarray(number, jnp.int32)
            begin, end = read(program.first_chunk, number), read(program.first_chunk, number + 1)
            step, slots = read((program.steps, program.slots), number)
            add = partial(chunk, params=server[0], group=step.group)
            drafts = jax.lax.fori_loop(begin, end, add, drafts)
            rows = read(drafts, slots)
            return drafts, _advanced(self.learner, self.n_records, problem, server, key, step, rows)

        end = program.slots.shape[0] if last is None else last
        return jax.lax.fori_loop(first, end, turn, state)

    def finalize(self, problem: Any, given: Any, state: tuple[Draft, State]) -> State:
        """The records were written on the way."""
        return _told(state[1], self.n_records)


def _told(state: State, n_records: int) -> State:
    """The state without the scratch row of its records."""
    return *state[:2], jax.tree.map(lambda leaf: leaf[:n_records], state[2])


def _begun(problem: Any, learner: Learner, opt_state: Any, n_records: int) -> tuple[Any, Any, Note]:
    """Version 0: the policy, the optimizer's state, and rows for records, one of them scratch."""
    params = jax.tree.map(jnp.asarray, problem.params)
    real: Any = jax.ShapeDtypeStruct((), jax.eval_shape(problem.empty_draft).log_probs.dtype)
    metrics = jax.eval_shape(partial(judge, problem), params, real)
    notes = blank(Note(metrics, StepFigures(real, real, real)), n_records + 1)
    return params, first_state(learner.optimizer, params, opt_state), notes


def _advanced(
    learner: Learner,
    n_records: int,
    problem: Any,
    state: State,
    key: jax.Array,
    step: Step,
    rows: Any,
) -> State:
    """The next version, evaluated if it is one that is recorded."""
    params, opt_state, notes = state
    server, figures = improve(problem, learner, (params, opt_state), key, step, rows)

    def note(notes: Note) -> Note:
        # Tied to what the loop changes, else it is taken out of this loop (see `when`).
        notes, model = jax.lax.optimization_barrier((notes, server[0]))
        return write(notes, step.record, Note(judge(problem, model, figures.loss), figures))

    return *server, when(jnp.asarray(step.record) < np.int32(n_records), note, notes)


@dataclass(eq=False)
class _Trainer:
    """The policy beside the loop of events: it draws what begins, and trains what is asked for."""

    problem: RolloutProblem
    learner: Learner
    key: jax.Array
    group: np.int32  # samples of one prompt
    width: int  # samples of a block
    n_records: int
    record: np.ndarray  # int32[T], row of the records; R: none
    pace: Pace
    state: State
    version: int = 0
    first: int = 0  # sample of the block
    block: Any = None  # a Draft of samples drawn by this version, on the host
    drafts: dict[int, Draft] = field(default_factory=dict)  # that have begun, and may be trained

    def length(self, sample: int, loop: GenerationLoop) -> float:
        """The length of a sample that begins, in tokens."""
        if loop.queue.published > self.version:
            for _, ends, members in loop.steps[self.version : loop.queue.published]:
                self.train(members, ends, loop.queue.start_version)
            self.block = None
            for evicted in [each for each in self.drafts if loop.fate[each] == Fate.EVICTED]:
                del self.drafts[evicted]
        if self.block is None or sample >= self.first + self.width:
            self.first, start = sample, (np.int32(sample), self.width)
            rows = _drawn(self.problem, self.state[0], self.key, self.group, *start)
            self.block = jax.tree.map(np.asarray, rows)
        row = sample - self.first
        self.drafts[sample] = jax.tree.map(lambda column: np.array(column[row]), self.block)
        return float(self.drafts[sample].length)

    def train(self, members: list[int], ends: float, start_version: Any) -> None:
        """Makes the next version."""
        drafts = [self.drafts.pop(sample) for sample in members]
        rows = jax.tree.map(lambda *column: np.stack(column), *drafts)
        delay = np.int32(self.version - min(start_version[sample] for sample in members))
        number, record = np.int32(self.version), self.record[self.version]
        step = Step(number, np.array(members, np.int32), self.group, delay, ends, record)
        is_extra = isinstance(self.learner.optimizer, optax.GradientTransformationExtraArgs)
        static, given = (is_extra, self.learner, self.n_records), (self.key, step, rows)
        self.state = _trained(*static, self.problem, self.state, *given)
        self.version += 1
        self.pace.at(self.version, ends)

    def end(self, trace: RolloutTrace) -> None:
        """Trains what no sample has waited for."""
        rest = zip(trace.members.tolist(), trace.step_end.tolist(), strict=True)
        for members, ends in list(rest)[self.version :]:
            self.train(members, ends, trace.start_version)
        self.pace.end(float(trace.step_end[-1]))


@partial(jax.jit, static_argnums=5)
def _drawn(problem: Any, params: Any, key: Any, group: Any, first: Any, width: int) -> Draft:
    """So many samples from `first` on."""
    samples: Any = first + jnp.arange(width, dtype=jnp.int32)
    begin: Any = jnp.zeros_like(samples)
    lanes = Lanes(begin, samples, begin, begin + problem.max_length)
    return draw(problem, params, key, group, lanes, blank(problem.empty_draft(), width))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _trained(extras: bool, learner: Learner, n_records: int, *given: Any) -> State:
    """The state after a step; whether the optimizer takes extras is static, too."""
    return _advanced(learner, n_records, *given)


def _run_of(
    trace: RolloutTrace, recorded: np.ndarray, params: Any, opt_state: Any, notes: Note
) -> Run[Any, RolloutRecords]:
    """The run of a trace, recorded at these versions int64[R]."""
    ends, ages = trace.step_end[recorded - 1], trace.age.reshape(trace.members.shape)[recorded - 1]
    used = recorded * trace.members.shape[1]
    evicted = np.sort(trace.end[trace.fate == Fate.EVICTED])
    computed = used + np.searchsorted(evicted, ends, side="right")
    (loss, metrics, finite), (step_loss, length, effective) = notes
    host = recorded.astype(np.int32), ends, ages.max(1).astype(np.int32), used, computed
    device = loss, finite, metrics, ages.mean(1), -step_loss, length, effective
    source: Any = trace
    return Run(params, opt_state, RolloutRecords(*host, *device), Source((source,), ()))
