"""`RolloutTrace`: which sample was made when, by which versions, its fate; and that in numbers.

A sample is data made by an old policy; the gradient that is taken of it is fresh. So this is no
`EventTrace`: many samples make one step, each perhaps made by several versions, after a wait.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    made = np.maximum(came - trace.start_version, 0)[members]
    training = float((trace.step_end - trace.step_begin).mean())
    per_sample = float(took[trace.fate == Fate.TRAINED].mean())
    batch, busy = trace.members.shape[1], float(took.sum())
    return RolloutSummary(
        *(trace.n_steps, end, trace.n_steps / end),
        *(int(counts[fate]) for fate in (Fate.TRAINED, Fate.EVICTED, Fate.WAITING, Fate.RUNNING)),
        generators_idle=1.0 - busy / (trace.generator_slots * end),
        trainer_idle=1.0 - training * trace.n_steps / end,
        age_made=_ages(made),
        age_queued=_ages(age - made),
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
