"""The clock: how long every worker takes for every one of its jobs.

A job of worker `i` lasts `download + load * compute + upload`; `compute` follows the clock's own
law, times the draws of its phases, and each link is a clock of its own. The parts follow Egger, Kas
Hanna and Bitar (2023).

A clock may also lose jobs (their compute time is inf) and change the power of its workers over
time. Draws do not know when a job starts, so they are made at power 1; `timeline` does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from asyncjax.checks import whole, within
from asyncjax.clocks.law import Law, Parameter, draw_jobs, spread
from asyncjax.clocks.rng import (
    DOWNLOAD_STREAM,
    LOSS_STREAM,
    PHASE_STREAM,
    UPLOAD_STREAM,
    check_key,
    job_keys,
)

Index = Array | np.integer | int  # of a worker or a job; traced ones are not checked
_LAST_JOB = 2**31 - 1


class Times(NamedTuple):
    """Parts of the time of jobs."""

    download: Array  # float[...], time units: the model travels to the worker
    # float[...], time units: computing at power 1, load included; inf for a job that is lost
    compute: Array
    upload: Array  # float[...], time units: the gradient travels to the server

    @property
    def total(self) -> Array:
        """Time from start to arrival, `download + compute + upload`, added in this order."""
        return self.download + self.compute + self.upload


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Power:
    """A piecewise constant power of every worker, a pytree.

    Piece `m = 0, 1, ...` of worker `i` lasts job `m // C` of clock `lengths[m % C]`, with
    `C = len(lengths)`, and has the rate `rates[i, m % K]`.

    Attributes:
        lengths: `C` clocks of `n` workers: how long the pieces last. A length of inf is the last.
        rates: float[n, K], work a time unit, at least 0.
        repeats: If False, piece `K - 1` lasts for ever (static).
    """

    lengths: tuple[Clock, ...]
    rates: Parameter
    repeats: bool = field(default=True, metadata={"static": True})

    @property
    def is_random(self) -> bool:
        """Whether the length of a piece is drawn."""
        return any(length.is_random for length in self.lengths)

    @property
    def may_end(self) -> bool:
        """Whether a worker may be without power from a time on."""
        is_out = not self.repeats and bool((np.asarray(self.rates)[:, -1] == 0.0).any())
        return is_out or any(length.loss is not None for length in self.lengths)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Clock:
    """How long every worker takes for every one of its jobs.

    A pytree: the parameters are leaves, the law is static. Every part has the same `n` workers.

    Attributes:
        parameters: Arrays with leading axis `[n]`, by name.
        law: Distribution of one compute time (static).
        download: Clock of the link to the worker, None for no time.
        upload: Clock of the link to the server, None for no time.
        loss: float[n], probability that a job never returns, None for no loss.
        powers: How much work a worker does in a time unit, over time; several multiply.
        phases: Clocks whose draws multiply the compute times, job by job.

    Example:
        >>> import jax
        >>> from asyncjax import clocks
        >>> clock = clocks.exponential(mean=[1.0, 2.0, 4.0])
        >>> key = jax.random.key(0)
        >>> clock.durations(key, 5).shape
        (3, 5)
        >>> bool((clock.durations(key, 5)[:, 3:] == clock.durations(key, 2, first=3)).all())
        True
    """

    parameters: dict[str, Parameter]
    law: Law = field(metadata={"static": True})
    download: Clock | None = None
    upload: Clock | None = None
    loss: Parameter | None = None
    powers: tuple[Power, ...] = ()
    phases: tuple[Clock, ...] = ()

    @property
    def n_workers(self) -> int:
        """Number of workers `n`."""
        return np.shape(next(iter(self.parameters.values())))[0]

    @property
    def _links(self) -> list[Clock]:
        """The links that take time."""
        return [link for link in (self.download, self.upload) if link is not None]

    @property
    def is_random(self) -> bool:
        """Whether anything of a job is drawn; if not, the key may be None."""
        is_drawn = self.law.is_random or self.loss is not None
        return is_drawn or any(
            part.is_random for part in (*self._links, *self.powers, *self.phases)
        )

    @property
    def is_plain(self) -> bool:
        """Whether every job returns and takes its drawn time whenever it starts."""
        return self.loss is None and not self.powers

    @property
    def returns(self) -> bool:
        """Whether every job returns: none is lost, and no power ends."""
        return self.loss is None and not any(power.may_end for power in self.powers)

    @property
    def mean(self) -> Parameter:
        """Long-run mean duration, float[n], time units: of jobs that return, load 1, power 1."""
        total = self.law.mean(self.parameters)
        for phase in self.phases:
            total = total * phase.mean
        for link in self._links:
            total = total + link.mean
        return total

    @property
    def variance(self) -> Parameter:
        """Long-run variance of the durations that `mean` is of, float[n], inf where infinite."""
        mean, total = self.law.mean(self.parameters), self.law.variance(self.parameters)
        for phase in self.phases:  # of a product of independent numbers
            total = total * (phase.variance + phase.mean**2) + mean**2 * phase.variance
            mean = mean * phase.mean
        for link in self._links:
            total = total + link.variance
        return total

    def least(self, load: ArrayLike = 1.0) -> np.ndarray:
        """Time that no job is shorter than, float64[n], time units; 0 where nothing is known.

        The load, a factor of the compute part, is one number or one a worker.

        Example:
            >>> from asyncjax import clocks
            >>> clocks.pareto(mean=[3.0, 6.0], tail=3.0).least().tolist()
            [2.0, 4.0]
        """
        load = np.asarray(within("load", load, above=0.0), np.float64)
        known = None if self.law.least is None else self.law.least(self.parameters)
        total = np.zeros(self.n_workers) if known is None else load * np.asarray(known, np.float64)
        for phase in self.phases:
            total = total * phase.least()
        for power in self.powers:
            fastest = np.asarray(power.rates, np.float64).max(axis=1)
            total = total / np.where(fastest > 0, fastest, 1.0)
        return sum((link.least() for link in self._links), total)

    def times(
        self, key: Array | None, n_jobs: int, *, first: Index = 0, load: ArrayLike = 1.0
    ) -> Times:
        """Draws times at power 1, float[n, n_jobs] each, of a block of jobs of every worker.

        Args:
            key: Random key; None is allowed if nothing is random.
            n_jobs: How many jobs a worker (static).
            first: Number of the first job of the block, may be traced.
            load: Factor of the compute part, broadcasts to `[n, n_jobs]`, may be traced.
        """
        n_jobs = whole("n_jobs", n_jobs)
        block = self._block(key, first, load)
        return _all_times(replace(self, powers=()), key, *block, n_jobs)

    def durations(
        self, key: Array | None, n_jobs: int, *, first: Index = 0, load: ArrayLike = 1.0
    ) -> Array:
        """The parts of `times` together, float[n, n_jobs]; inf for jobs that never return."""
        return self.times(key, n_jobs, first=first, load=load).total

    def job_times(
        self, key: Array | None, worker: Index, first: Index, count: int, load: ArrayLike = 1.0
    ) -> Times:
        """Draws `count` jobs of one worker, float[count], the bits of row `worker` of `times`.

        The worker and the first job may be traced; the load broadcasts to `[count]`.
        """
        if not isinstance(worker, Tracer):
            worker = whole("worker", worker, 0, self.n_workers - 1)
        count = whole("count", count)
        block = self._block(key, first, load)
        return _one_times(replace(self, powers=()), key, _int32(worker), *block, count)

    def _block(self, key: Array | None, first: Index, load: ArrayLike) -> tuple[Any, ArrayLike]:
        """Checks on the host which jobs are drawn, and how; returns first job and load."""
        if self.is_random:
            check_key(key)
        if not isinstance(first, Tracer) and whole("first", first, 0) > _LAST_JOB:
            whole("first", first, 0, _LAST_JOB)
        within("load", load, above=0.0)
        # A list would be taken for several arguments.
        return _int32(first), np.asarray(load) if isinstance(load, list | tuple) else load

    def broadcast(self, n_workers: int) -> Clock:
        """Gives every one of `n_workers` workers the law, and a stream, of a one-worker clock."""
        if self.n_workers == whole("n_workers", n_workers):
            return self
        if self.n_workers != 1:
            raise ValueError(
                f"n_workers must be the clock's own number of workers, {self.n_workers}, got"
                f" {n_workers}"
            )
        return jax.tree.map(lambda leaf: spread(leaf, n_workers), self)


def _int32(index: Index) -> Array | np.integer:
    """Gives indices one type, so that host and traced ones share a compiled program."""
    return index.astype(jnp.int32) if isinstance(index, jax.Array) else np.int32(index)


def _finite(times: Array) -> Array:
    """Keeps durations normal, positive and finite, and a product and a later sum apart."""
    limits = jnp.finfo(times.dtype)
    return jnp.clip(times, limits.tiny, limits.max)


def _lost(probability: Parameter, key: Array, worker: Array, first: Array, count: int) -> Array:
    """Draws which jobs of one worker never return, bool[count]."""
    probability = jax.lax.stop_gradient(jnp.asarray(probability))
    keys = job_keys(jax.random.fold_in(key, worker), first, count)
    uniforms = jax.vmap(lambda key: jax.random.uniform(key, (), probability.dtype))(keys)
    return uniforms < probability


def _row_times(row: Clock, key: Any, worker: Array, first: Array, load: Array, count: int) -> Times:
    """Draws for one worker; `row` is the clock with the leading axis taken away."""
    drawn = _finite(draw_jobs(row.law, row.parameters, key, worker, first, count))
    for number, phase in enumerate(row.phases):
        phase_key = jax.random.fold_in(jax.random.fold_in(key, PHASE_STREAM), number)
        drawn = _finite(
            drawn * draw_jobs(phase.law, phase.parameters, phase_key, worker, first, count)
        )
    compute = _finite(load * drawn)
    if row.loss is not None:
        is_lost = _lost(row.loss, jax.random.fold_in(key, LOSS_STREAM), worker, first, count)
        compute = jnp.where(is_lost, jnp.inf, compute)

    def link_times(link: Clock | None, stream: int) -> Array:
        if link is None:
            return jnp.zeros_like(compute)
        link_key = jax.random.fold_in(key, stream) if link.is_random else None
        return _row_times(link, link_key, worker, first, jnp.ones((), compute.dtype), count).total

    download = link_times(row.download, DOWNLOAD_STREAM)
    return Times(download, compute, link_times(row.upload, UPLOAD_STREAM))


@partial(jax.jit, static_argnames=("count",))
def _one_times(
    clock: Clock, key: Array | None, worker: Array, first: Array, load: Array, count: int
) -> Times:
    """Draws for one worker of a clock."""
    row = jax.tree.map(lambda leaf: jnp.asarray(leaf)[worker], clock)
    return _row_times(row, key, worker, first, load, count)


@partial(jax.jit, static_argnames=("count",))
def _all_times(clock: Clock, key: Array | None, first: Array, load: Array, count: int) -> Times:
    """Draws for all workers of a clock."""
    shape = (clock.n_workers, count)
    rows, loads = (None, load) if jnp.ndim(load) == 0 else (0, jnp.broadcast_to(load, shape))

    def one(row: Clock, worker: Array, load: Array) -> Times:
        return _row_times(row, key, worker, first, load, count)

    workers = jnp.arange(clock.n_workers, dtype=jnp.int32)
    return jax.vmap(one, in_axes=(0, 0, rows))(clock, workers, loads)
