"""Server rules of several parts, under their names in the field; each is a `Rule`."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from asyncjax.checks import within
from asyncjax.traces.asynchronous import Rule
from asyncjax.traces.collection_rules import rennala, wait_for
from asyncjax.traces.dispatch import lead_at_most
from asyncjax.traces.learned import learned_quotas
from asyncjax.traces.quotas import fastest_quotas, quotas


def ssp(bound: float) -> Rule:
    """Stale synchronous parallel: no worker leads the slowest by more than `bound` jobs.

    `Rule(gate=lead_at_most(bound), read="start")`.

    Args:
        bound: Jobs, at least 0; `math.inf` is pure asynchronous SGD.

    Returns:
        The rule.

    Example:
        >>> from asyncjax import clocks, traces
        >>> trace = traces.ssp(1).trace(clocks.constant([1.0, 3.0]), n_updates=6)
        >>> trace.worker.tolist()
        [0, 0, 1, 0, 1, 0]

    Reference:
        Ho et al., 2013, "More effective distributed ML via a stale synchronous parallel parameter
        server", NeurIPS.
    """
    return Rule(gate=lead_at_most(bound), read="start")


def ata(b: int, *, times: Sequence[float] | None = None, scale: float = 0.0) -> Rule:
    """Adaptive task allocation: every step takes b jobs at one model, shared by the workers' times.

    `Rule(learned_quotas(b, scale=scale), wait_for(b), concurrency=b)`, or the quotas that are best
    for `times`, where these are known.

    Args:
        b: Jobs of a step, at least 1.
        times: What a job of each worker takes in the mean, float[n]; None: they are learned.
        scale: How far times scatter, time units; see `learned_quotas`.

    Returns:
        The rule.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rule = traces.ata(4, times=[1.0, 3.0])
        >>> rule.trace(clocks.constant([1.0, 3.0]), n_updates=2).update_time
        array([3., 6.])

    Reference:
        Maranjyan, Saad, Richtárik, Orabona, 2025 (arXiv 2502.00775).
    """
    learned = learned_quotas(b, scale=scale)
    dispatch = learned if times is None else quotas(fastest_quotas(times, b))
    return Rule(dispatch, wait_for(b), concurrency=b)


def mindflayer(b: int, patience: ArrayLike) -> Rule:
    """MindFlayer: Rennala with b gradients; a job that outlasts its worker's patience restarts.

    `Rule(collect=rennala(b), timeout=patience)`.

    Args:
        b: Gradients at the present model in a step, at least 1.
        patience: Time after which a job is given up and another begun, time units, more than 0; one
            number, or one per worker.

    Returns:
        The rule.

    Note:
        What is known of the method is in the note of `rennala`.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.recorded([[1.0, 1.0], [9.0, 1.0]])
        >>> traces.mindflayer(2, 2.0).trace(clock, n_updates=1).update_time
        array([2.])

    Reference:
        After Maranjyan, Omar, Richtárik, 2024 (arXiv 2410.04285).
    """
    within("patience", patience, above=0.0, finite=False)
    return Rule(collect=rennala(b), timeout=patience)
