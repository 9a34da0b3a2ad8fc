"""Phases: workers that are slow for a while, each for itself or many at the same time.

    compute time of job j of worker i = slowdown_i^z_ij * the clock's,   z_ij = 1 in a slow phase

By the number of the job, `z` is a Markov chain in its long-run state,

    P(z_j = 1) = slow / (fast + slow),   P(z ends) = 1 / slow,   P(z begins) = 1 / fast

so that a phase lasts `slow` (or `fast`) jobs on average and a block of jobs is drawn without those
before it, as in `markov_chain`. By the clock on the wall a phase is a power `1 / slowdown_i` that
lasts an exponential time of mean `slow`, after a power 1 of mean `fast`; it begins in the long-run
state too. Phases are a stream of their own, and a common one is the same for all workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from asyncjax.checks import within
from asyncjax.clocks import rng
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.compositions import widened, with_power
from asyncjax.clocks.law import Law, Parameter, Row, namespace, parameter
from asyncjax.clocks.markov_chain import MARKOV

_NONE = 1e-9  # of a mean length: how long a first phase is that is not there
_BEGIN = 2**32 - 1  # no number of a phase


def _draw_lengths(row: Row, worker_key: Any, first: Array, count: int) -> Array:
    """Exponential lengths; the first is next to nothing unless the long run begins with it."""
    mean, jobs = row["mean"], rng.job_indices(first, count)
    lengths = mean * rng.unit_exponential(worker_key, first, count, mean.dtype)
    begins = (
        rng.open_uniform(jax.random.fold_in(worker_key, _BEGIN), (), mean.dtype) < row["begins"]
    )
    return jnp.where((jobs > 0) | begins, lengths, _NONE * mean)


BY_JOB = Law("phases", MARKOV.draw, MARKOV.mean, MARKOV.variance, least=MARKOV.least)
_LENGTHS = Law("length", _draw_lengths, parameter("mean"), lambda rows: rows["mean"] ** 2)


def phases(
    clock: Clock,
    *,
    slowdown: Any,
    fast: Any,
    slow: Any,
    common: bool = False,
    timed: bool = False,
) -> Clock:
    """Returns a clock whose workers are slow for a while, now and then.

    Formula: a compute time is multiplied by `slowdown_i` in a slow phase. Phases end by chance,
    whatever their age: they last `fast` and `slow` jobs, or time units, on average. Applied several
    times, phases multiply: more than two states, or phases of a worker beside common ones.

    Note:
        By the job, the time of job `j` of worker `i` stays a function of `(key, i, j)`, and mean
        and variance include the phases. A block that begins at job j costs also about
        `1 / (1 / fast + 1 / slow)` draws a worker. With `timed=True` the phases are a power: which
        of them a job meets depends on when it starts, so draws and moments are those outside slow
        phases, and only the phases themselves are a function of `(key, worker, time)`. A longer
        trace still begins with the shorter one.

    Args:
        clock: Any clock; may have links, powers, losses and phases.
        slowdown: Factor of the compute times in a slow phase, positive; a number or `[n]`. Workers
            with 1 have no part in common phases.
        fast: Mean length of the phases between: jobs, at least 1, or time units if `timed`; a
            number, or `[n]` unless `common`.
        slow: Mean length of the slow phases, in the same unit.
        common: Whether all workers are slow in the same phases: at jobs of the same number, or at
            the same time.
        timed: Whether phases go by time, not by the number of the job.

    Example:
        >>> import jax
        >>> from asyncjax import clocks
        >>> even = clocks.constant([1.0, 2.0, 3.0])
        >>> clock = clocks.phases(even, slowdown=[4.0, 4.0, 1.0], fast=3.0, slow=2.0, common=True)
        >>> clock.durations(jax.random.key(1), 8)[:, 1:].astype(int).tolist()
        [[4, 4, 1, 1, 1, 4, 1], [8, 8, 2, 2, 2, 8, 2], [3, 3, 3, 3, 3, 3, 3]]
        >>> clock.mean.round(6).tolist()
        [2.2, 4.4, 3.0]
    """
    lengths = {"fast": fast, "slow": slow}
    for name, length in lengths.items():
        if timed:
            within(name, length, above=0.0)
        else:
            within(name, length, least=1.0)
        if common and not isinstance(length, Tracer) and np.size(length) != 1:
            raise ValueError(
                f"{name} must be one number for common phases, got {np.size(length)} values"
            )
    factor = within("slowdown", slowdown, above=0.0)
    wide, rows = widened(clock, slowdown=factor, fast=fast, slow=slow)
    factor, fast, slow = rows["slowdown"], rows["fast"], rows["slow"]
    share = slow / (fast + slow)  # of jobs, or of time, in slow phases
    if timed:
        law = replace(_LENGTHS, is_common=common)
        up = Clock({"mean": fast, "begins": 1 - share}, law)
        down = Clock({"mean": slow, "begins": _ones(share)}, law)
        rates = namespace(factor).stack([_ones(factor), 1 / factor], axis=1)
        return with_power(wide, rates, up=up, down=down)
    chain = {"fast": _ones(factor), "slow": factor, "to_slow": 1 / fast, "to_fast": 1 / slow}
    phase = Clock({**chain, "start": share}, replace(BY_JOB, is_common=common))
    return replace(wide, phases=(*wide.phases, phase))


def _ones(like: Parameter) -> Parameter:
    return namespace(like).ones_like(like)
