"""`RolloutTrace`: which sample was made when, by which versions, and what became of it.

A sample is data made by an old policy; the gradient that is taken of it is fresh. So this is no
`EventTrace`, where what arrives is a gradient of one old model: here many samples make one step, a
sample may have been made by several versions, and it may wait between its end and its step.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


class Fate(IntEnum):
    """What has become of a sample when the trace ends."""

    TRAINED = 0
    WAITING = 1  # finished, not trained
    RUNNING = 2
    EVICTED = 3  # thrown away, running or finished


class RolloutTrace(NamedTuple):
    """N samples in the order in which they were started, and the T steps of the trainer.

    Versions count finished steps of the trainer. A sample's age at training is the version that the
    trainer holds when its step begins, which is the number of the step, minus `start_version`.

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

    start: Float64  # float64[N], time units, not decreasing
    end: Float64  # float64[N], when its generation ended or was thrown away; NaN: it runs
    length: Float64  # float64[N], tokens, the whole sample
    slot: Int32  # int32[N], where it was made
    start_version: Int32  # int32[N], version of the generators when it began
    end_version: Int32  # int32[N], version that made its last token
    step: Int32  # int32[N], the step that trained it; -1: none
    fate: Int32  # int32[N], a `Fate`
    step_begin: Float64  # float64[T], time units
    step_end: Float64  # float64[T]
    published: Float64  # float64[T], when version t + 1 was at the generators; NaN: not yet
    members: Int32  # int32[T, B], the samples of each step, in the order of the rule
    generator_slots: int
    group: int = 1  # samples of one prompt: sample i is of prompt i // group
    in_flight: bool = False  # running samples go on with new versions as they come

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
        versions = np.arange(first, last + 1, dtype=np.int32)
        begins = [self.start[sample], *self.published[first:last].tolist()]
        return versions, np.array(begins, np.float64)
