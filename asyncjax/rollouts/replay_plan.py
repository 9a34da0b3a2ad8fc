"""The plan of a replay of rollouts, on the host: what is drawn when, waits where, trains what.

    turn v:   segments drawn by version v, in chunks of `width` lanes   -> slots of the drafts
              the step v of its members, out of their slots             -> version v + 1

A sample has its slot from the turn of its first version to the turn that trains it. Samples that
no step trains are not drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asyncjax.checks import instance
from asyncjax.rollouts.rollout_trace import Fate, RolloutTrace
from asyncjax.simulation.plan import allocate, recorded_versions

_CHUNK_COST = 4  # of a chunk, in lanes
_ROUNDING = 1e-6  # tokens; a boundary that is whole up to rounding is whole


class Lanes(NamedTuple):
    """Segments of samples that are drawn together; a lane that is idle has begin = end."""

    slot: np.ndarray  # int32[C, L], where the sample waits; the last row is scratch
    sample: np.ndarray  # int32[C, L]
    begin: np.ndarray  # int32[C, L], its first token
    end: np.ndarray  # int32[C, L], behind its last


class RolloutProgram(NamedTuple):
    """All that the loop over versions reads of a plan."""

    lanes: Lanes
    first_chunk: np.ndarray  # int32[T + 1]; version v draws first_chunk[v] .. first_chunk[v + 1]
    member: np.ndarray  # int32[T, B], the samples of each step
    member_slot: np.ndarray  # int32[T, B]
    delay: np.ndarray  # int32[T], the largest age in a step
    time: np.ndarray  # float64[T], time units, when a step ends
    record: np.ndarray  # int32[T], row of the records; R: none
    group: np.ndarray  # int32[], samples of one prompt


@dataclass(frozen=True)
class RolloutPlan:
    """A planned replay.

    Attributes:
        trace: What is replayed.
        program: Arrays for the loop.
        records: Recorded versions, int64[R].
        draft_slots: Drafts that wait at once, at most, rounded up so that plans share programs.
        width: Lanes of a chunk.
        in_pieces: Whether some sample is drawn by several versions.
    """

    trace: RolloutTrace
    program: RolloutProgram
    records: np.ndarray
    draft_slots: int
    width: int
    in_pieces: bool


def plan_rollouts(
    trace: RolloutTrace, max_length: int, record_every: int | None, width: int | None
) -> RolloutPlan:
    """Plans the replay of a checked trace.

    Example:
        >>> from asyncjax import rollouts
        >>> engine, rule = rollouts.Engine(4, 1.0), rollouts.admission.in_order(1)
        >>> trace = rollouts.trace([1.0], engine, rule, batch=2, n_steps=5)
        >>> own = plan_rollouts(trace, 1, None, 2)
        >>> own.program.member_slot[:3].tolist(), own.program.first_chunk.tolist()
        ([[0, 1], [2, 3], [0, 1]], [0, 2, 3, 4, 5, 5])
    """
    n_steps, batch = trace.members.shape
    trained = np.sort(trace.members.ravel())
    first, step = trace.start_version[trained], trace.step[trained]
    slots, draft_slots = allocate(first.astype(np.int64), step.astype(np.int64))
    draft_slots = rounded(draft_slots)
    sample, version, begin, end = _segments(trace, trained, max_length)
    count = np.bincount(version, minlength=n_steps)
    width = _width(count, batch) if width is None else width
    chunks = -(-count // width)
    first_chunk = np.append(0, np.cumsum(chunks))
    lanes = _lanes((draft_slots, 0, 0, 0), rounded(int(first_chunk[-1])), width)
    order = np.lexsort((sample, version))
    rank = np.arange(len(order)) - np.append(0, np.cumsum(count))[version[order]]
    at = (first_chunk[version[order]] + rank // width, rank % width)
    slot_of = np.full(len(trace.start), draft_slots, np.int32)
    slot_of[trained] = slots
    for column, values in zip(lanes, (slot_of[sample], sample, begin, end), strict=True):
        column[at] = values[order]
    records = recorded_versions(n_steps, record_every)
    record = np.full(n_steps, len(records), np.int32)
    record[records - 1] = np.arange(len(records))
    program = RolloutProgram(
        lanes,
        first_chunk.astype(np.int32),
        trace.members.astype(np.int32),
        slot_of[trace.members],
        trace.age.reshape(n_steps, batch).max(1).astype(np.int32),
        np.asarray(trace.step_end, np.float64),
        record,
        np.asarray(trace.group, np.int32),
    )
    return RolloutPlan(trace, program, records, draft_slots, width, len(sample) > len(trained))


def check_trace(trace: object) -> RolloutTrace:
    """Refuses what cannot be replayed, in a sentence.

    Raises:
        TypeError: It is no RolloutTrace.
        ValueError: It trains what is not there, or not there yet.
    """
    instance("trace", trace, RolloutTrace, "a RolloutTrace, as rollouts.trace makes it")
    assert isinstance(trace, RolloutTrace)
    members = np.asarray(trace.members)
    if members.ndim != 2 or not members.size:
        raise ValueError(f"trace must have steps, got members of shape {members.shape}")
    count, own = len(trace.start), np.sort(members.ravel())
    if own[0] < 0 or own[-1] >= count:
        raise ValueError(f"trace must train samples in 0..{count - 1}, got {own[[0, -1]].tolist()}")
    if (own[1:] == own[:-1]).any():
        raise ValueError("trace must train a sample once at most, got one twice")
    if (np.diff(trace.start_version) < 0).any() or trace.start_version[0] < 0:
        raise ValueError("trace must have start_version not decreasing from 0 on")
    step = np.arange(len(members))[:, None]
    if (trace.end_version[members] > step).any() or not np.array_equal(
        trace.step[members], np.broadcast_to(step, members.shape)
    ):
        raise ValueError("trace must train samples at steps after their versions, as step says")
    if (trace.end_version < trace.start_version).any():
        raise ValueError("trace must have end_version at least start_version")
    return trace


def used_and_made(trace: RolloutTrace, recorded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples trained, and trained or thrown away, by the end of some steps, int64[R] each."""
    used = recorded * trace.members.shape[1]
    away = np.sort(trace.end[trace.fate == Fate.EVICTED])
    return used, used + np.searchsorted(away, trace.step_end[recorded - 1], side="right")


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
    """Sample, version, first token and end of every segment that has tokens.

    A version that comes when a share s of a sample's time has gone by draws from token s * m on,
    with m its length in the trace, `max_length` at most.
    """
    first = trace.start_version[trained]
    count = trace.end_version[trained] - first + 1
    sample = np.repeat(trained, count)
    place = np.arange(len(sample)) - np.repeat(np.cumsum(count) - count, count)
    version = np.repeat(first, count) + place
    later = place > 0
    came = np.zeros(len(sample))
    came[later] = trace.published[version[later] - 1] - trace.start[sample[later]]
    took = np.maximum(trace.end - trace.start, np.finfo(np.float64).tiny)[sample]
    tokens = np.minimum(np.ceil(trace.length), max_length)[sample]
    begin = np.floor(np.clip(came / took, 0.0, 1.0) * tokens + _ROUNDING)
    begin = np.where(later, np.minimum(begin, max_length), 0).astype(np.int32)
    is_last = np.append(~later[1:], True)
    end = np.where(is_last, max_length, np.append(begin[1:], 0)).astype(np.int32)
    kept = end > begin
    return sample[kept], version[kept], begin[kept], end[kept]


def _width(count: np.ndarray, batch: int) -> int:
    """Lanes of a chunk: the batch, or a half, a quarter, ... of it, where that is less to do."""
    options = [-(-batch // 2**k) for k in range(batch.bit_length())]
    return min(options, key=lambda width: int((-(-count // width)).sum()) * (width + _CHUNK_COST))


def _lanes(idle: tuple[int, ...], chunks: int, width: int) -> Lanes:
    """Lanes that do nothing."""
    return Lanes(*(np.full((chunks, width), value, np.int32) for value in idle))
