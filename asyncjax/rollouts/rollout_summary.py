"""What a trace of rollouts amounts to: steps, idleness, ages, waste, and whose samples count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asyncjax.checks import instance
from asyncjax.rollouts.rollout_trace import Fate, RolloutTrace

_LONGEST = 0.1  # of all samples, whose share among the trained is looked at


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
    time: float  # time units, the end of the last step
    steps_per_time: float
    trained: int
    evicted: int
    waiting: int
    running: int
    generators_idle: float  # share of slot time in which no sample is made
    trainer_idle: float  # share of the time
    age_made: Ages  # new versions that came to the generators while it was made
    age_queued: Ages  # versions of the trainer that came after that, until its step began
    age_trained: Ages  # both
    samples_wasted: float  # share of started samples that were thrown away
    time_wasted: float  # share of the time of slots at work that went into them
    # How often the longest tenth is among the trained, over how often it is among the started: 1 is
    # fair, 0 never. The first 2 * slots and the last 2 * slots samples are left out.
    long_share: float
    concurrency: float  # samples that run at once, on average
    # Little's law: samples at once that keep the trainer just busy, at the mean time of a sample
    concurrency_needed: float
    # Mean age of what was trained, by the version that made each part of it; that of `age_trained`
    # but for samples that went on with new versions in flight.
    age_of_parts: float


def summarize(trace: RolloutTrace) -> RolloutSummary:
    """Tells a trace of rollouts in numbers.

    Args:
        trace: What `rollouts.trace` or `rollouts.train` made.

    Returns:
        The figures.

    Raises:
        TypeError: `trace` is no RolloutTrace.

    Example:
        >>> from asyncjax import rollouts
        >>> rule, engine = rollouts.admission.synchronous(), rollouts.Engine(4, 1.0)
        >>> trace = rollouts.trace([3.0], engine, rule, batch=4, n_steps=10)
        >>> figures = rollouts.summarize(trace)
        >>> figures.generators_idle, figures.trainer_idle, figures.age_trained.longest
        (0.25, 0.75, 0)
    """
    instance("trace", trace, RolloutTrace, "a RolloutTrace, as rollouts.trace makes it")
    end, members = float(trace.step_end[-1]), trace.members.ravel()
    until = np.where(np.isnan(trace.end), end, trace.end)
    took = until - trace.start
    counts = np.bincount(trace.fate, minlength=len(Fate))
    # Of weights that come while a sample is being trained or after it, none is newer than its step.
    came = np.searchsorted(trace.published[~np.isnan(trace.published)], until, side="right")
    made = np.maximum(came - trace.start_version, 0)[members]
    trained = trace.age
    done = trace.fate == Fate.TRAINED
    per_sample = float(took[done].mean())
    training = float((trace.step_end - trace.step_begin).mean())
    batch, busy = trace.members.shape[1], float(took.sum())
    return RolloutSummary(
        steps=trace.n_steps,
        time=end,
        steps_per_time=trace.n_steps / end,
        trained=int(counts[Fate.TRAINED]),
        evicted=int(counts[Fate.EVICTED]),
        waiting=int(counts[Fate.WAITING]),
        running=int(counts[Fate.RUNNING]),
        generators_idle=1.0 - busy / (trace.generator_slots * end),
        trainer_idle=1.0 - training * trace.n_steps / end,
        age_made=_ages(made),
        age_queued=_ages(trained - made),
        age_trained=_ages(trained),
        samples_wasted=float(counts[Fate.EVICTED] / len(trace.start)),
        time_wasted=float(took[trace.fate == Fate.EVICTED].sum() / busy),
        long_share=_long_share(trace),
        concurrency=busy / end,
        concurrency_needed=batch / training * per_sample if training else float("inf"),
        age_of_parts=float(trained.mean()) - _renewed(trace),
    )


def _renewed(trace: RolloutTrace) -> float:
    """By how many versions parts of trained samples are newer than their beginning, on average.

    A version that came after a share x of a sample's time made 1 - x of it (or its successors did).
    """
    if not trace.in_flight:
        return 0.0
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
