"""Torn reads: a worker reads the model block after block while others write.

    xhat_i = block i of x_{v_i},     read_version <= v_i <= version,     i = 0 .. m - 1

so the model that a gradient is taken at may never have existed as a whole: it is the current one
minus some of the writes since the read began. It is a replay of events whose slots are a ring of
the last models, a row a version.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import optax

from asyncjax.simulation.loops.events import ByEvent, EventInputs, event_loop, events_of
from asyncjax.simulation.loops.loop import Loop
from asyncjax.simulation.plans.plan import ReplayPlan
from asyncjax.simulation.plans.program import sizes_of
from asyncjax.simulation.plans.update import Update
from asyncjax.simulation.plans.waves import ceil_to_grid
from asyncjax.traces import EventTrace


def block_versions(trace: EventTrace, n_blocks: int, torn: float) -> np.ndarray:
    """The version that each job reads each block from.

    Block i is read at start + torn (i / m) (time - start), and sees the updates made up to that
    moment; never fewer than `read_version`, never more than `version`.

    Returns int32[E, m], on the host.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.5]), n_updates=4)
        >>> trace.worker.tolist(), trace.read_version.tolist()
        ([0, 0, 1, 0], [0, 1, 0, 2])
        >>> block_versions(trace, 2, 1.0).tolist()
        [[0, 0], [1, 1], [0, 1], [2, 3]]
    """
    start, time = np.asarray(trace.start, np.float64), np.asarray(trace.time, np.float64)
    read, version = np.asarray(trace.read_version), np.asarray(trace.version)
    seen = np.empty((len(time), n_blocks), np.int32)
    for block in range(n_blocks):
        moment = start + torn * (block / n_blocks) * (time - start)
        seen[:, block] = np.clip(np.searchsorted(time, moment, side="right"), read, version)
    return seen


def torn_loop(
    plan: ReplayPlan,
    block_version: np.ndarray,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
) -> Loop:
    """The replay of a trace of one used arrival a step; every block is read from its own version.

    `block_version` int[E, m].
    """
    version = np.asarray(plan.trace.version, np.int32)
    block_version = np.asarray(block_version, np.int32)
    n_rows = ceil_to_grid(int(np.max(version - block_version.min(axis=1))) + 1)
    events = events_of(plan)._replace(
        read_slot=block_version % n_rows, write_slot=(version + 1) % n_rows, oldest_slot=None
    )
    kind = ByEvent(Update(optimizer), replace(sizes_of([plan]), slots=n_rows - 1))
    return event_loop(plan, kind, EventInputs(events, key))
