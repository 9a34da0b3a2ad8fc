"""Traces in which every arrival makes an update of its own.

What PIAG and block descent are defined on.
"""

from __future__ import annotations

import numpy as np

from asyncjax.traces import EventTrace


def check_single(trace: EventTrace, method: str, otherwise: str) -> None:
    """Refuses a trace in which an arrival is thrown away, waits, is weighed or serves twice.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.constant([1.0, 2.0])
        >>> check_single(traces.asynchronous(clock, n_updates=3), "piag", "other rules")
        >>> trace = traces.asynchronous(clock, n_updates=3, collect=traces.buffered(2))
        >>> check_single(trace, "piag", "use replay")
        Traceback (most recent call last):
        ...
        ValueError: trace must make one update with every arrival for piag, but arrival 0 makes
        none; use replay
    """
    needs = f"trace must make one update with every arrival for {method}, but"
    if trace.reuse is not None:
        raise ValueError(f"{needs} its gradients serve in several updates (reuse); {otherwise}")
    for good, fault in (
        (np.asarray(trace.used), "is thrown away"),
        (np.asarray(trace.steps), "makes none"),
        (np.asarray(trace.weight) == 1, "has a weight other than 1"),
    ):
        if not np.all(good):
            raise ValueError(f"{needs} arrival {int(np.argmin(good))} {fault}; {otherwise}")
