"""What the workers of this part compute: a problem whose gradients take as long as they are told.

Every worker makes its own: the small network of the main job on handwritten digits, or a model of
10 MB, whose gradient then sleeps, a lognormal time that is drawn from the job's key. So a machine
of two cores has workers of any speed. A worker may also die: its process ends itself by SIGKILL.
"""

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
class Workers:
    """What workers are like.

    Attributes:
        name: In tables.
        seconds: Mean time that each worker sleeps in a job.
        sigma: Of the logarithm of that time.
        large: Whether the model has 10 MB.
        dies: A worker and how many seconds after the start of the run it dies; None: none does.
    """

    name: str
    seconds: tuple[float, ...]
    sigma: float = 0.2
    large: bool = False
    dies: tuple[int, float] | None = None

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

    def __call__(self, data: Any, params: Any, worker: Any, job: Any, key: jax.Array) -> Any:
        """Loss and gradient, later."""
        loss, gradient = self.gradient_of(data, params, worker, job, key)
        normal = jax.random.normal(jax.random.fold_in(key, _TAG))
        seconds = self.seconds * jnp.exp(self.sigma * (normal - self.sigma / 2))
        form = jax.ShapeDtypeStruct((), np.float32)
        return loss + jax.pure_callback(_Sleep(self.dies), form, seconds), gradient


@dataclass(frozen=True)
class _Sleep:
    """Sleeps so many seconds, and answers 0."""

    dies: float | None

    def __call__(self, seconds: Any) -> np.ndarray:
        wanted, now = float(seconds), time.perf_counter()
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


@cache
def make(workers: Workers, worker: int | None) -> problems.Problem:
    """The problem, for a worker, or for the server, who does not sleep."""
    problem = _large(workers.n_workers) if workers.large else _digits(workers.n_workers)
    if worker is None:
        return problem
    dies = workers.dies[1] if workers.dies is not None and workers.dies[0] == worker else None
    late = Sleeping(problem.gradient_of, workers.seconds[worker], workers.sigma, dies)
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
