"""Jobs that never return: a worker crashes, or the server never hears of it.

    T = inf with probability p, else the time of the clock

independently for every job, from a stream of its own: the jobs that return take exactly the times
they would take without losses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from asyncjax.checks import within
from asyncjax.clocks.broadcast import widened
from asyncjax.clocks.clock import Clock


def with_failures(clock: Clock, probability: Any) -> Clock:
    """Lets jobs get lost, each independently of all others.

    Formula: `compute = inf` with the given probability. Losses of a clock that loses jobs already
    add up to `1 - (1 - p) (1 - q)`.

    Args:
        clock: Any clock; may have links, powers and losses.
        probability: Chance that a job never returns, in [0, 1); a number or `[n]`.

    Returns:
        A clock with the times of `clock`, inf for lost jobs. Its mean and variance are those of
        the jobs that return.

    Raises:
        TypeError: If `clock` is not a clock, or `probability` not made of real numbers.
        ValueError: If a probability is outside [0, 1), or the numbers of workers disagree.

    Example:
        >>> import jax
        >>> from asyncjax import clocks
        >>> clock = clocks.with_failures(clocks.constant([1.0, 2.0]), probability=[0.0, 0.5])
        >>> clock.durations(jax.random.key(1), 4).tolist()
        [[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, inf, inf]]
        >>> clock.mean.tolist()
        [1.0, 2.0]
    """
    chance = within("probability", probability, least=0.0, below=1.0)
    wide, rows = widened(clock, probability=chance)
    loss = rows["probability"]
    if wide.loss is not None:
        loss = wide.loss + loss - wide.loss * loss
    return replace(wide, loss=loss)
