"""Generators feed a trainer as a rule says: the `Engine` with its times, the loop of its events.

Events at one instant, in this order: samples that end, by number; the trainer's step ends; weights
arrive; a pause ends. After each the rule is asked what to evict, what to train, and whom to admit.
In a pause the generators' time stands still, in which a sample's end is kept.

A `RolloutTrace` says which sample was made when, by which versions, and its fate; `summarize` says
that in numbers. A sample is data made by an old policy; the gradient that is taken of it is fresh.
So this is no `EventTrace`: many samples make one step, each perhaps made by several versions, after
a wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import IntEnum
from heapq import heappop, heappush
from itertools import chain, count
from math import inf, nan
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from asyncjax.checks import real, whole, within
from asyncjax.clocks import Clock
from asyncjax.rollouts.admission import Queue, Rule
from asyncjax.traces.event_trace import StalledError
from asyncjax.traces.random_draws import DurationBlocks, check_key, on_host

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
_LONGEST = 0.1  # of all samples, whose share among the trained is looked at


class Fate(IntEnum):
    """What has become of a sample when the trace ends."""

    TRAINED = 0
    WAITING = 1  # finished, not trained
    RUNNING = 2
    EVICTED = 3  # thrown away, running or finished


class RolloutTrace(NamedTuple):
    """N samples in the order in which they were started, and the T steps of the trainer.

    Versions count finished steps of the trainer. A sample's age at training is the number of its
    step minus `start_version`.

    Attributes:
        start: float64[N], time units, not decreasing.
        end: float64[N], when its generation ended or was thrown away; NaN: it runs.
        length: float64[N], tokens, the whole sample.
        slot: int32[N], where it was made.
        start_version: int32[N], version of the generators when it began.
        end_version: int32[N], version that made its last token.
        step: int32[N], the step that trained it; -1: none.
        fate: int32[N], a `Fate`.
        step_begin: float64[T], time units.
        step_end: float64[T], time units.
        published: float64[T], when version t + 1 was at the generators; NaN: not yet.
        members: int32[T, B], the samples of each step, in the order of the rule.
        generator_slots: Number of slots, samples that may run at once.
        group: Samples of one prompt: sample i is of prompt i // group.
        in_flight: Whether running samples go on with new versions as they come.
    """

    start: Float64
    end: Float64
    length: Float64
    slot: Int32
    start_version: Int32
    end_version: Int32
    step: Int32
    fate: Int32
    step_begin: Float64
    step_end: Float64
    published: Float64
    members: Int32
    generator_slots: int
    group: int = 1
    in_flight: bool = False

    @property
    def n_steps(self) -> int:
        """Number of steps T."""
        return len(self.step_end)

    @property
    def age(self) -> Int32:
        """Age of each trained sample at its training, int32[T B], in the order of `members`."""
        step = np.repeat(np.arange(self.n_steps, dtype=np.int32), self.members.shape[1])
        return step - self.start_version[self.members.ravel()]

    def versions_of(self, sample: int) -> tuple[Int32, Float64]:
        """The versions that made a sample, and when each began, int32[S] and float64[S].

        Example:
            >>> from asyncjax import rollouts
            >>> engine = rollouts.Engine(1, training_time=1.0, in_flight=True)
            >>> rule = rollouts.admission.ready_first()
            >>> trace = rollouts.trace([4.0], engine, rule, batch=1, n_steps=2)
            >>> trace.versions_of(1)
            (array([0, 1], dtype=int32), array([4., 5.]))
        """
        first, last = int(self.start_version[sample]), int(self.end_version[sample])
        begins = [self.start[sample], *self.published[first:last].tolist()]
        return np.arange(first, last + 1, dtype=np.int32), np.array(begins, np.float64)


class Ages(NamedTuple):
    """Ages of trained samples, in versions."""

    mean: float
    late: float  # that 99 % do not exceed
    longest: int


class RolloutSummary(NamedTuple):
    """Figures of a trace; shares are of 1.

    Attributes:
        steps: Steps of the trainer.
        time: The end of the last step, time units.
        steps_per_time: Steps a time unit.
        trained: Samples trained.
        evicted: Samples thrown away.
        waiting: Samples finished and not trained at the end.
        running: Samples under way at the end.
        generators_idle: Share of slot time in which no sample is made.
        trainer_idle: Share of the time in which the trainer waits.
        age_made: New versions that came to the generators while a sample was made.
        age_queued: Versions of the trainer that came after that, until its step began.
        age_trained: Both together, the age at training.
        samples_wasted: Share of started samples that were thrown away.
        time_wasted: Share of the time of slots at work that went into them.
        long_share: How often the longest tenth is among the trained, over how often it is among the
            started: 1 is fair, 0 never. The first and the last 2 * slots samples are left out.
        concurrency: Samples that run at once, on average.
        concurrency_needed: Little's law: samples at once that keep the trainer just busy, at the
            mean time of a sample.
        age_of_parts: Mean age of what was trained, by the version that made each part of it; that
            of `age_trained` but for samples that went on with new versions in flight.
    """

    steps: int
    time: float
    steps_per_time: float
    trained: int
    evicted: int
    waiting: int
    running: int
    generators_idle: float
    trainer_idle: float
    age_made: Ages
    age_queued: Ages
    age_trained: Ages
    samples_wasted: float
    time_wasted: float
    long_share: float
    concurrency: float
    concurrency_needed: float
    age_of_parts: float


def summarize(trace: RolloutTrace) -> RolloutSummary:
    """Tells a trace of rollouts in numbers.

    Args:
        trace: What `rollouts.trace` or `rollouts.train` made.

    Returns:
        The figures.

    Example:
        >>> from asyncjax import rollouts
        >>> rule, engine = rollouts.admission.synchronous(), rollouts.Engine(4, 1.0)
        >>> trace = rollouts.trace([3.0], engine, rule, batch=4, n_steps=10)
        >>> figures = rollouts.summarize(trace)
        >>> figures.generators_idle, figures.trainer_idle, figures.age_trained.longest
        (0.25, 0.75, 0)
    """
    end, members, age = float(trace.step_end[-1]), trace.members.ravel(), trace.age
    until = np.where(np.isnan(trace.end), end, trace.end)
    took = until - trace.start
    counts = np.bincount(trace.fate, minlength=len(Fate))
    # Of weights that come while a sample is being trained or after it, none is newer than its step.
    came = np.searchsorted(trace.published[~np.isnan(trace.published)], until, side="right")
    age_made = np.maximum(came - trace.start_version, 0)[members]
    training = float((trace.step_end - trace.step_begin).mean())
    per_sample = float(took[trace.fate == Fate.TRAINED].mean())
    batch, busy = trace.members.shape[1], float(took.sum())
    return RolloutSummary(
        *(trace.n_steps, end, trace.n_steps / end),
        *(int(counts[fate]) for fate in (Fate.TRAINED, Fate.EVICTED, Fate.WAITING, Fate.RUNNING)),
        generators_idle=1.0 - busy / (trace.generator_slots * end),
        trainer_idle=1.0 - training * trace.n_steps / end,
        age_made=_ages(age_made),
        age_queued=_ages(age - age_made),
        age_trained=_ages(age),
        samples_wasted=float(counts[Fate.EVICTED] / len(trace.start)),
        time_wasted=float(took[trace.fate == Fate.EVICTED].sum() / busy),
        long_share=_long_share(trace),
        concurrency=busy / end,
        concurrency_needed=batch / training * per_sample if training else float("inf"),
        age_of_parts=float(age.mean()) - _renewed(trace),
    )


def _renewed(trace: RolloutTrace) -> float:
    """By how many versions parts of trained samples are newer than their beginning, on average."""
    # A version that came after a share x of a sample's time made 1 - x of it (or its successors).
    members = trace.members.ravel()
    first, last = trace.start_version[members], trace.end_version[members]
    start, end = trace.start[members], trace.end[members]
    came = np.append(0.0, np.cumsum(np.nan_to_num(trace.published)))
    after = (last - first) * end - (came[last] - came[first])
    return float((after / (end - start)).mean())


def _ages(ages: np.ndarray) -> Ages:
    late = np.quantile(ages, 0.99, method="inverted_cdf")
    return Ages(float(ages.mean()), float(late), int(ages.max()))


def _long_share(trace: RolloutTrace) -> float:
    """How often the longest tenth is trained, over how often it was started."""
    edge = 2 * trace.generator_slots
    middle = slice(edge, max(edge, len(trace.start) - edge))
    length, done = trace.length[middle], trace.fate[middle] == Fate.TRAINED
    if not done.any():
        return float("nan")
    longest = length >= np.quantile(length, 1.0 - _LONGEST, method="inverted_cdf")
    return float(longest[done].mean() / longest.mean())


_PATIENCE = 1_000  # samples without a step, times (slots + batch), until a rule is called stuck
_BLOCK = 4_096  # lengths drawn together
LengthOf = Callable[[int, "GenerationLoop"], float]


@dataclass(frozen=True)
class Engine:
    """Generators that feed a trainer, and their times; numbers are checked, and then Python's.

    A slot makes one sample at a time; sample i takes overhead + length_i * token_time of its slot.

    Attributes:
        generator_slots: Samples that are made at once.
        training_time: How long a step takes, time units; a number, or a function of the tokens in
            its batch.
        token_time: Time units a token; one number or one a slot.
        overhead: More for every sample, time units.
        transfer_time: How long weights travel to the generators after a step, time units.
        pause: How long all generators stand still when weights arrive, time units.
        in_flight: Samples that run go on with the new weights, and so have several versions. False:
            they keep the version that they began with.
        group: Samples of one prompt: those of a group can be trained only when all have ended.

    Example:
        >>> from asyncjax import rollouts
        >>> engine = rollouts.Engine(2, training_time=5.0, token_time=[1.0, 2.0])
        >>> engine.generator_slots, engine.token_time
        (2, (1.0, 2.0))
    """

    generator_slots: int
    training_time: float | Callable[[float], float]
    _: KW_ONLY
    token_time: ArrayLike = 1.0
    overhead: float = 0.0
    transfer_time: float = 0.0
    pause: float = 0.0
    in_flight: bool = False
    group: int = 1

    def __post_init__(self) -> None:
        numbers: dict[str, Any] = {
            name: whole(name, getattr(self, name)) for name in ("generator_slots", "group")
        }
        for name in ("training_time", "transfer_time", "pause", "overhead"):
            if name != "training_time" or not callable(self.training_time):
                numbers[name] = real(name, getattr(self, name), least=0.0)
        tokens = np.asarray(within("token_time", self.token_time, above=0.0), np.float64)
        numbers["token_time"] = tuple(tokens.tolist()) if tokens.shape else float(tokens)
        for name, value in numbers.items():
            object.__setattr__(self, name, value)

    def step_time(self, tokens: float) -> float:
        """How long a step takes whose batch has so many tokens, time units."""
        if callable(self.training_time):
            return real("training_time of a batch", self.training_time(tokens), least=0.0)
        return self.training_time


def trace(
    lengths: ArrayLike | Clock,
    engine: Engine,
    rule: Rule,
    *,
    batch: int,
    n_steps: int,
    key: jax.Array | None = None,
) -> RolloutTrace:
    """Makes the trace of rollout workers that feed a trainer.

    The generators make samples, the trainer takes `batch` of them that the rule selects; when its
    step is done the new version is on its way, and samples that start when it has come are made by
    it.

    Args:
        lengths: Lengths of samples, tokens: recorded ones, float[L], drawn with replacement; or the
            law of a clock of one worker, such as `clocks.lognormal([500.0], sigma=1.0)`. Sample i
            has the same length under every rule.
        engine: The generators and the trainer, with their times.
        rule: Whom to admit, select and evict: `rollouts.admission.budget(4)` and others.
        batch: B, samples of a step.
        n_steps: Steps; the trace ends with the last of them.
        key: Typed key, needed where lengths are drawn: several of them, or a law that is random.

    Returns:
        The trace, NumPy arrays on the host. A hundred thousand samples in one to two seconds.

    Raises:
        StalledError: No step can come any more: nothing runs and nothing may start, or a thousand
            times (slots + batch) samples in a row ended without a step; says what waits.

    Example:
        >>> import jax
        >>> from asyncjax import clocks, rollouts
        >>> engine = rollouts.Engine(generator_slots=16, training_time=200.0)
        >>> trace = rollouts.trace(
        ...     clocks.lognormal([400.0], sigma=1.0), engine, rollouts.admission.budget(2),
        ...     batch=8, n_steps=50, key=jax.random.key(0))
        >>> trace.n_steps, trace.members.shape, bool(trace.age.max() >= 2)
        (50, (50, 8), True)
    """
    batch, n_steps = whole("batch", batch), whole("n_steps", n_steps)
    draw = _lengths(lengths, key, engine.overhead)
    each = chain.from_iterable(draw(block).tolist() for block in count())
    return GenerationLoop(engine, rule, batch, n_steps, lambda sample, loop: next(each)).run()


def _lengths(
    lengths: ArrayLike | Clock, key: jax.Array | None, overhead: float
) -> Callable[[int], np.ndarray]:
    """What draws block b of the lengths of all samples, those from b * 4096 on."""
    if isinstance(lengths, Clock):
        return _of_law(lengths, key)
    recorded = np.asarray(within("lengths", lengths, least=0.0), np.float64)
    is_constant = bool((recorded == recorded[0]).all())
    check_key(key, None if is_constant else "the length of a sample")
    if not overhead and not recorded.all():
        raise ValueError("lengths must be above 0 where overhead is 0, got 0")

    def draw(block: int) -> np.ndarray:
        if is_constant:
            return np.full(_BLOCK, recorded[0])
        with on_host(key) as on_cpu:
            block_key = jax.random.fold_in(on_cpu, block)
            return recorded[np.asarray(jax.random.randint(block_key, (_BLOCK,), 0, len(recorded)))]

    return draw


def _of_law(clock: Clock, key: jax.Array | None) -> Callable[[int], np.ndarray]:
    """The same of the law of a clock."""
    if clock.n_workers != 1:
        raise ValueError(
            f"lengths must be the law of a clock of one worker, got one of {clock.n_workers}"
        )
    if clock.powers or clock.loss is not None:
        raise ValueError("lengths must be a law without powers or losses: a sample has a length")
    check_key(key, "the law of lengths" if clock.is_random else None)
    blocks = DurationBlocks(clock, key)
    size = _BLOCK // blocks.size

    def draw(block: int) -> np.ndarray:
        numbers = np.arange(block * size, (block + 1) * size)
        return blocks.draw(np.zeros(size, np.int64), numbers).ravel()

    return draw


class GenerationLoop:
    """One run, a heap over running samples, a trainer, weights on their way; `run` makes the trace.

    `length_of(sample, loop)` is asked when a sample begins: then `loop.queue.published` is the
    version that makes it, and `loop.steps` has the members of the steps that made that version.
    """

    def __init__(
        self, engine: Engine, rule: Rule, batch: int, n_steps: int, length_of: LengthOf
    ) -> None:
        self.engine, self.rule, self.queue = engine, rule, Queue(batch)
        self.n_steps, self.length_of = n_steps, length_of
        speed = np.broadcast_to(np.asarray(engine.token_time), (engine.generator_slots,))
        self.token_time: list[float] = speed.tolist()
        self.free = list(range(engine.generator_slots))  # a heap
        self.ends: list[tuple[float, int]] = []  # a heap: end in the generators' time, sample
        self.lost = 0.0  # how far the generators' time is behind
        self.paused_until = 0.0
        self.start, self.end, self.length = list[float](), list[float](), list[float]()
        self.slot, self.end_version, self.fate = list[int](), list[int](), list[int]()
        self.open_in_group: dict[int, int] = {}
        self.steps: list[tuple[float, float, list[int]]] = []
        self.busy_until = inf  # the trainer's
        self.arriving: list[tuple[float, int]] = []  # weights on their way: when, version
        self.published: list[float] = []
        self.silent = 0  # samples that ended since the last step began

    def run(self) -> RolloutTrace:
        """Serves events until the last step has ended."""
        queue, most = self.queue, _PATIENCE * (self.engine.generator_slots + self.queue.batch)
        self._decide()
        while queue.version < self.n_steps:
            now, what = self._next()
            if now == inf or self.silent > most:
                raise StalledError(self._why_stuck(now == inf), None)
            queue.now = now
            what()
            self._decide()
        return self._trace()

    def _next(self) -> tuple[float, Callable[[], None]]:
        """The next event."""
        while self.ends and self.ends[0][1] not in self.queue.running:
            heappop(self.ends)  # thrown away
        end = self.ends[0][0] + self.lost if self.ends else inf
        weights = self.arriving[0][0] if self.arriving else inf
        coming = (
            (end, self._finish),
            (self.busy_until, self._end_step),
            (weights, self._publish),
            (self.paused_until if self.paused_until > self.queue.now else inf, lambda: None),
        )
        return min(coming, key=lambda event: event[0])

    def _finish(self) -> None:
        """A sample ends."""
        _, sample = heappop(self.ends)
        self._leave(sample, Fate.WAITING)
        self.silent += 1
        if self.engine.group > 1:
            self._close(sample // self.engine.group)
        else:
            self.queue.waiting[sample] = None

    def _close(self, group: int) -> None:
        """A sample of a group has left; the group is handed over when all of them have ended."""
        self.open_in_group[group] -= 1
        if not self.open_in_group[group]:
            del self.open_in_group[group]
            first = group * self.engine.group
            for sample in range(first, first + self.engine.group):
                if self.fate[sample] == Fate.WAITING:
                    self.queue.waiting[sample] = None

    def _leave(self, sample: int, fate: Fate) -> None:
        """A sample leaves its slot."""
        queue = self.queue
        del queue.running[sample]
        self.end[sample], self.fate[sample] = queue.now, fate
        if self.engine.in_flight:
            self.end_version[sample] = queue.published
        heappush(self.free, self.slot[sample])

    def _end_step(self) -> None:
        """A step of the trainer ends; its weights go to the generators."""
        self.queue.version += 1
        self.busy_until = inf
        self.arriving.append((self.queue.now + self.engine.transfer_time, self.queue.version))

    def _publish(self) -> None:
        """Weights are at the generators, which stand still for a moment."""
        now, self.queue.published = self.arriving.pop(0)
        self.published.append(now)
        self.paused_until = max(now, self.paused_until) + self.engine.pause
        self.lost += self.engine.pause

    def _decide(self) -> None:
        """Asks the rule."""
        queue, rule = self.queue, self.rule
        if rule.evict is not None:
            for sample in rule.evict(queue):
                self._evict(sample)
        if self.busy_until == inf and queue.version < self.n_steps:
            members = rule.select(queue)
            if members is not None:
                self._train(members)
        if queue.now >= self.paused_until:
            while self.free and rule.admit(queue):
                self._begin()

    def _begin(self) -> None:
        """A new sample starts."""
        queue, sample = self.queue, len(self.start)
        slot, length = heappop(self.free), self.length_of(sample, self)
        self.start.append(queue.now)
        self.end.append(nan)
        self.length.append(length)
        self.slot.append(slot)
        self.end_version.append(queue.published)
        self.fate.append(Fate.RUNNING)
        queue.start_version.append(queue.published)
        queue.running[sample] = queue.untrained[sample] = None
        queue.started += 1
        if self.engine.group > 1:
            self.open_in_group.setdefault(sample // self.engine.group, self.engine.group)
        takes = self.engine.overhead + length * self.token_time[slot]
        heappush(self.ends, (queue.now - self.lost + takes, sample))

    def _train(self, members: list[int]) -> None:
        """The trainer begins a step."""
        queue, number = self.queue, len(self.steps)
        if len(members) != queue.batch or len(set(members)) != queue.batch:
            wanted = f"{queue.batch} samples, each once"
            self._refuse("select", wanted, f"{len(members)} for step {number}")
        for sample in members:
            if sample not in queue.waiting:
                self._refuse("select", "samples that wait", f"{sample} for step {number}")
            del queue.waiting[sample], queue.untrained[sample]
            self.fate[sample] = Fate.TRAINED
        took = self.engine.step_time(sum(self.length[sample] for sample in members))
        self.steps.append((queue.now, queue.now + took, list(members)))
        self.busy_until, self.silent = queue.now + took, 0

    def _evict(self, sample: int) -> None:
        """A sample is thrown away."""
        queue = self.queue
        if sample not in queue.untrained:
            self._refuse("evict", "samples that run or wait", f"{sample} at time {queue.now:g}")
        del queue.untrained[sample]
        queue.started -= 1
        if sample in queue.running:
            self._leave(sample, Fate.EVICTED)
            self.silent += 1
            if self.engine.group > 1:
                self._close(sample // self.engine.group)
        self.fate[sample] = Fate.EVICTED
        queue.waiting.pop(sample, None)

    def _refuse(self, what: str, wanted: str, named: str) -> None:
        raise ValueError(f"{what} of the rule '{self.rule.name}' must name {wanted}, got {named}")

    def _why_stuck(self, is_silent: bool) -> str:
        """Why no step will come, with the state of the queue."""
        queue = self.queue
        why = "nothing runs and nothing may start"
        if not is_silent:
            why = f"{self.silent} samples ended since the last step began"
        return (
            f"the rollouts cannot go on at time {queue.now:g} after step {queue.version}: {why};"
            f" the rule '{self.rule.name}' selects no batch of {queue.batch} out of"
            f" {len(queue.waiting)} that wait ({len(queue.running)} run, {queue.started} were"
            f" started, {len(self.free)} of {self.engine.generator_slots} slots are free)"
        )

    def _trace(self) -> RolloutTrace:
        engine, members = self.engine, np.array([step[2] for step in self.steps], np.int32)
        step = np.full(len(self.start), -1, np.int32)
        step[members] = np.arange(len(members), dtype=np.int32)[:, None]
        published = np.full(len(members), nan)
        published[: len(self.published)] = self.published
        fate, end_version = np.array(self.fate, np.int32), np.array(self.end_version, np.int32)
        if engine.in_flight:
            end_version[fate == Fate.RUNNING] = self.queue.published
        samples = [np.array(column, np.float64) for column in (self.start, self.end, self.length)]
        slot, start_version = np.array([self.slot, self.queue.start_version], np.int32)
        times = [np.array([step[which] for step in self.steps]) for which in (0, 1)]
        columns = *samples, slot, start_version, end_version, step, fate, *times, published, members
        fields: Any = *columns, engine.generator_slots, engine.group, engine.in_flight
        return RolloutTrace(*fields)
