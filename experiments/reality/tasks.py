"""What the workers of this part compute: a problem whose gradients take as long as they are told.

Every worker makes its own: the small network of the main job on handwritten digits, or a model of
10 MB, whose gradient then sleeps, a lognormal time that is drawn from the job's key. So a machine
of two cores has workers of any speed. They may compute instead, have slow phases, or drift. A
worker may also die: its process ends itself by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import problems

LARGE = 2_500_000  # parameters, float32: 10 MB
_TAG = 0x736C7070  # of the stream of sleeps
_CALLS: list[float] = []  # when this process was asked for its first two gradients


@dataclass(frozen=True)
class Phases:
    """Slow phases by the machine's clock, exponentially long, the same for all processes.

    Attributes:
        common: Whether all that take part are slow together.
        factor: How many times as long jobs take in them.
        slow: Seconds that one lasts, on average.
        fast: Seconds between two, on average.
        share: Of the workers, that take part; the first ones.
    """

    common: bool
    factor: float = 2.5
    slow: float = 0.3
    fast: float = 0.5
    share: float = 0.6

    def at(self, worker: int, n_workers: int, now: float) -> float:
        """How many times as long a job of a worker takes that begins now."""
        if self.common and worker >= round(self.share * n_workers):
            return 1.0
        ends = _ends(0 if self.common else 1 + worker, self.slow, self.fast)
        return self.factor if np.searchsorted(ends, now % ends[-1]) % 2 else 1.0


@dataclass(frozen=True)
class Drift:
    """Jobs that take longer and longer, evenly, and on at the same rate.

    Attributes:
        to: How many times as long they take in the end.
        seconds: After which they do.
        file: Whose time of change is the beginning.
    """

    to: float
    seconds: float = 1.0
    file: str = ""

    def at(self, worker: int, n_workers: int, now: float) -> float:
        """How many times as long a job takes that begins now."""
        del worker, n_workers
        return 1.0 + (self.to - 1.0) * max(0.0, now - os.path.getmtime(self.file)) / self.seconds


@cache
def _ends(seed: int, slow: float, fast: float) -> np.ndarray:
    """When phases end, fast and slow in turn, seconds; then they begin again."""
    drawn = np.random.default_rng(seed).exponential(1.0, (2000, 2)) * [fast, slow]
    return np.cumsum(drawn)


@dataclass(frozen=True)
class Workers:
    """What workers are like.

    Attributes:
        name: In tables.
        seconds: Mean time that each worker sleeps in a job.
        sigma: Of the logarithm of that time.
        large: Whether the model has 10 MB.
        dies: A worker and how many seconds after the start of the run it dies; None: none does.
        computes: Whether a worker computes in that time, processor seconds, instead of sleeping.
        slowness: How many times as long jobs take that begin at a moment; None: as long.
    """

    name: str
    seconds: tuple[float, ...]
    sigma: float = 0.2
    large: bool = False
    dies: tuple[int, float] | None = None
    computes: bool = False
    slowness: Phases | Drift | None = None

    @property
    def n_workers(self) -> int:
        """How many there are."""
        return len(self.seconds)


@dataclass(frozen=True)
class Sleeping:
    """A gradient that takes longer; equal to another if it does the same."""

    gradient_of: Callable[..., Any]
    seconds: float
    sigma: float
    dies: float | None
    at: tuple[Workers, int] | None = None  # whose worker this is, where moments or work differ

    def __call__(self, data: Any, params: Any, worker: Any, job: Any, key: jax.Array) -> Any:
        """Loss and gradient, later."""
        loss, gradient = self.gradient_of(data, params, worker, job, key)
        normal = jax.random.normal(jax.random.fold_in(key, _TAG))
        seconds = self.seconds * jnp.exp(self.sigma * (normal - self.sigma / 2))
        form = jax.ShapeDtypeStruct((), np.float32)
        return loss + jax.pure_callback(_Sleep(self.dies, self.at), form, seconds), gradient


@dataclass(frozen=True)
class _Sleep:
    """Sleeps so many seconds, and answers 0."""

    dies: float | None
    at: tuple[Workers, int] | None

    def __call__(self, seconds: Any) -> np.ndarray:
        wanted, now = float(seconds), time.perf_counter()
        if self.at is not None:
            workers, worker = self.at
            if workers.slowness is not None:
                wanted *= workers.slowness.at(worker, workers.n_workers, time.time())
            _compute(wanted) if workers.computes else time.sleep(wanted)
            return np.zeros((), np.float32)
        if self.dies is None:
            time.sleep(wanted)
            return np.zeros((), np.float32)
        if len(_CALLS) < 2:
            _CALLS.append(now)  # the first call compiles, the second is the first job of the run
        left = _CALLS[1] + self.dies - now if len(_CALLS) == 2 else wanted
        time.sleep(max(0.0, min(wanted, left)))
        if left <= wanted and len(_CALLS) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros((), np.float32)


def _compute(seconds: float) -> None:
    """Multiplies matrices for so many processor seconds."""
    matrix, end = np.full((48, 48), 1 / 48), time.thread_time() + seconds
    while time.thread_time() < end:
        matrix = matrix @ matrix


@cache
def make(workers: Workers, worker: int | None) -> problems.Problem:
    """The problem, for a worker, or for the server, who does not sleep."""
    problem = _large(workers.n_workers) if workers.large else _digits(workers.n_workers)
    if worker is None:
        return problem
    dies = workers.dies[1] if workers.dies is not None and workers.dies[0] == worker else None
    at = (workers, worker) if workers.computes or workers.slowness is not None else None
    late = Sleeping(problem.gradient_of, workers.seconds[worker], workers.sigma, dies, at)
    return replace(problem, gradient_of=late)


def _digits(n_workers: int) -> problems.Problem:
    data = problems.digits()
    return problems.classification(
        problems.MLP(hidden=(32,), classes=10),
        data.train_features,
        data.train_labels,
        n_workers=n_workers,
        batch=problems.uniform(16),
        key=jax.random.key(2),
    )


def _large(n_workers: int) -> problems.Problem:
    return problems.from_gradient(
        jnp.zeros(LARGE), _towards_worker, objective=_distance, n_workers=n_workers
    )


def _towards_worker(params: Any, worker: Any, job: Any, key: jax.Array) -> tuple[Any, Any]:
    return 0.5 * (params[0] - worker) ** 2, params - worker


def _distance(params: Any) -> jax.Array:
    return jnp.abs(params[0] - 1.0)
