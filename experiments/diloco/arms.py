r"""Ways to train with local steps: who is waited for, how long a job is, how the server steps.

A worker reads x, makes H steps of AdamW, whose state it keeps, and sends x - y_H. With g the mean
of what a step takes (a single one where nobody is waited for), the server makes

    SGD                x <- x - s g
    Nesterov           m <- b m + g,   x <- x - s (g + b m)
    delayed Nesterov   m and its step only with every n-th arrival, x <- x - s g / n meanwhile

All three are `steps.delayed_nesterov`, with b = 0 or `every` = 1, so that they share a compilation.
Sent: 4 bytes a parameter, up for every job that arrives, down for every job that begins.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, steps, traces

MOMENTA = (0.0, 0.2, 0.5, 0.8, 0.9, 0.95)
OUTER = tuple(2.0 ** (power / 2) for power in range(-16, 8))
BYTES = 4  # of a parameter


@dataclass(frozen=True)
class Arm:
    """A way to train.

    Attributes:
        name: In tables and on curves.
        waits: Whether the server steps only when everybody has been heard.
        momentum: Whether the outer step has momentum.
        delayed: Whether that is delayed Nesterov.
        balanced: Whether slower workers make fewer local steps, so that all finish together (DyLU).
        grace: Time that the server waits after an arrival, as a share of a job of the fastest
            worker, before it steps along the mean of what is there.
    """

    name: str
    waits: bool = False
    momentum: bool = True
    delayed: bool = False
    balanced: bool = False
    grace: float = 0.0


SYNCHRONOUS = "synchronous, Nesterov"
ARMS = {
    arm.name: arm
    for arm in (
        Arm(SYNCHRONOUS, waits=True),
        Arm("pure, SGD", momentum=False),
        Arm("pure, Nesterov"),
        Arm("pure, delayed Nesterov", delayed=True),
        Arm("DyLU, delayed Nesterov", delayed=True, balanced=True),
        Arm("grace, Nesterov", grace=0.5),
        Arm("DyLU, grace, Nesterov", balanced=True, grace=0.5),
    )
}


@dataclass(frozen=True)
class Scene:
    """Workers and what they hold."""

    n_workers: int
    speeds: str = "uneven"  # or "even", "outages"
    skewed: bool = False  # whether a worker holds text of one kind

    @property
    def name(self) -> str:
        """In tables and file names."""
        return f"{self.n_workers} workers, {self.speeds}{', skewed' if self.skewed else ''}"


class Trial(NamedTuple):
    """What is tuned."""

    inner: float  # learning rate of AdamW
    outer: float  # s, one of `OUTER`
    momentum: float  # b, one of `MOMENTA`


class Sent(NamedTuple):
    """What was done and sent until an update; [updates] each."""

    local_steps: np.ndarray  # int64, of all workers
    jobs: np.ndarray  # int64, arrived: pseudo-gradients sent up
    models: np.ndarray  # int64, sent down


def seconds(scene: Scene, fastest: float, slowest: float, seed: int) -> np.ndarray:
    """Seconds of a local step, float64[n].

    Uneven ones lie evenly from the fastest to the slowest, dealt to the workers by the seed; even
    ones make as many steps a second all together.

    Example:
        >>> seconds(Scene(4), 0.6, 3.3, seed=0).round(1).tolist()
        [2.4, 0.6, 1.5, 3.3]
        >>> seconds(Scene(4, "even"), 0.6, 3.3, seed=0).round(2).tolist()
        [1.31, 1.31, 1.31, 1.31]
    """
    spread = np.linspace(fastest, slowest, scene.n_workers)
    if scene.speeds == "even":
        return np.full(scene.n_workers, scene.n_workers / np.sum(1 / spread))
    return np.random.default_rng(seed).permutation(spread)


def counts(arm: Arm, times: np.ndarray, n_steps: int) -> np.ndarray:
    """Local steps of a job of each worker, int32[n]."""
    if arm.balanced:
        return problems.balanced_steps(times, n_steps)
    return np.full(len(times), n_steps, np.int32)


def clock_of(
    scene: Scene, times: np.ndarray, local: np.ndarray, up: float, down: float
) -> clocks.Clock:
    """Durations of jobs of so many local steps: gamma, a tenth of the mean as deviation."""
    clock = clocks.gamma(100.0, times * local)
    if scene.speeds != "outages":
        return clock
    return clocks.on_off(clock, up=clocks.exponential(up), down=clocks.exponential(down))


def trace_of(
    arm: Arm, clock: clocks.Clock, wait: float, n_updates: int, key: jax.Array
) -> traces.EventTrace:
    """A trace of an arm; `wait` is the time of grace."""
    collect = traces.immediately()
    if arm.waits:
        collect = traces.wait_for(clock.n_workers)
    elif arm.grace:
        collect = traces.grace_period(wait)
    return traces.asynchronous(clock, n_updates=n_updates, collect=collect, key=key)


def sent(trace: traces.EventTrace, local: np.ndarray) -> Sent:
    """What was done and sent until every update.

    Every worker gets a model at the beginning, and one for each of its jobs that arrived, at the
    latest with the update that takes it.

    Args:
        trace: Of one of the arms, none of which throws a job away.
        local: int[n], local steps of a job of each worker.

    Example:
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=3)
        >>> trace.worker.tolist()
        [0, 0, 1]
        >>> sent(trace, np.array([10, 5])).local_steps.tolist()
        [10, 20, 25]
        >>> sent(trace, np.array([10, 5])).models.tolist()
        [3, 4, 5]
    """
    version = np.asarray(trace.version)
    jobs = np.searchsorted(version, np.arange(1, trace.n_updates + 1))
    done = np.cumsum(np.asarray(local, np.int64)[np.asarray(trace.worker)])
    return Sent(done[jobs - 1], jobs, jobs + len(local))


@dataclass(frozen=True)
class Outer:
    """Outer optimizers by a number, so that all arms and trials share a compilation."""

    n_workers: int

    def number(self, arm: Arm, trial: Trial) -> float:
        """The number of a trial.

        Raises:
            ValueError: Its rate or momentum is not among `OUTER` and `MOMENTA`.
        """
        place = int(arm.delayed) * len(MOMENTA) + MOMENTA.index(trial.momentum)
        return float(place * len(OUTER) + OUTER.index(trial.outer))

    def __call__(self, number: Any) -> optax.GradientTransformation:
        """Returns the optimizer of a number."""
        code = jnp.round(number).astype(jnp.int32)
        place = code // len(OUTER)
        return steps.delayed_nesterov(
            jnp.asarray(OUTER)[code % len(OUTER)],
            jnp.asarray(MOMENTA)[place % len(MOMENTA)],
            every=jnp.where(place >= len(MOMENTA), self.n_workers, 1),
        )
