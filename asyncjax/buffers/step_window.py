"""The last step sizes of a run, and the sum of the newest of them.

    window(d) = s_{k-1} + s_{k-2} + ... + s_{k-d}        (d = 0: exactly 0)

The sum is taken afresh over a masked ring. The difference of two running sums would lose all digits
of small steps after long runs, and with them every guarantee that is built on the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import floating, integers
from asyncjax.checks import whole, within


class StepWindowState(NamedTuple):
    """The history of step sizes; the number of rows is the longest window it can sum."""

    recent_steps: jax.Array  # float[capacity], zero where nothing was pushed
    next_row: jax.Array  # int32[], row of the next push
    steps_pushed: jax.Array  # int32[], pushes so far, saturating


@dataclass(frozen=True)
class StepWindow:
    """Pure functions of a step history; see `step_window`."""

    capacity: int
    dtype: jax.typing.DTypeLike

    def init(self) -> StepWindowState:
        """Returns an empty history."""
        return StepWindowState(
            recent_steps=jnp.zeros((self.capacity,), self.dtype),
            next_row=jnp.zeros((), jnp.int32),
            steps_pushed=jnp.zeros((), jnp.int32),
        )

    def push(self, state: StepWindowState, step: ArrayLike) -> StepWindowState:
        """Appends a step."""
        return push_step(state, within("step", step, least=0))

    def window(self, state: StepWindowState, delay: ArrayLike) -> jax.Array:
        """Sums the newest `delay` steps."""
        return window_sum(state, integers("delay", delay))


def step_window(capacity: int, dtype: jax.typing.DTypeLike = jnp.float32) -> StepWindow:
    """Keeps the last `capacity` step sizes and sums the newest `delay` of them.

    `init()` is an empty history. `push(state, step)` appends a step. `window(state, delay)` is the
    sum of the last `delay` steps; a delay is first clipped to the steps pushed, and one that is
    still above `capacity` gives infinity: the sum is unknown, and a shorter one would be wrong in
    silence. A traced negative delay sums nothing.

    Args:
        capacity: Steps kept, at least 1.
        dtype: Floating dtype of the history, float32 or wider.

    Returns:
        A `StepWindow` of pure functions.

    Example:
        >>> history = step_window(3)
        >>> state = history.init()
        >>> for step in (1.0, 2.0, 4.0, 8.0):
        ...     state = history.push(state, step)
        >>> [float(history.window(state, delay)) for delay in (0, 1, 3, 4)]
        [0.0, 8.0, 14.0, inf]
    """
    return StepWindow(whole("capacity", capacity), floating("dtype", dtype))


def push_step(state: StepWindowState, step: ArrayLike) -> StepWindowState:
    """Appends a step, a float scalar."""
    steps = state.recent_steps
    return StepWindowState(
        recent_steps=steps.at[state.next_row].set(jnp.asarray(step).astype(steps.dtype)),
        next_row=(state.next_row + 1) % steps.shape[0],
        steps_pushed=jnp.asarray(optax.safe_increment(state.steps_pushed)),
    )


def window_sum(state: StepWindowState, delay: ArrayLike) -> jax.Array:
    """Sums the newest `delay` steps: a float scalar in the dtype of the history."""
    capacity = state.recent_steps.shape[0]
    delay = jnp.clip(jnp.asarray(delay).astype(jnp.int32), 0, state.steps_pushed)
    # Age 0 is the last step. A remainder would cost more than the sum.
    age = state.next_row - 1 - jnp.arange(capacity, dtype=jnp.int32)
    age = jnp.where(age < 0, age + capacity, age)
    total = jnp.sum(jnp.where(age < delay, state.recent_steps, 0))
    return jnp.where(delay <= capacity, total, jnp.inf).astype(state.recent_steps.dtype)
