"""Registry: every server rule by name, as tests and benchmarks go through them.

An entry makes a trace, `REGISTRY[name](clock, n_updates=..., key=...)`, on a clock of at least four
workers. A new dispatch rule, collection rule or gate adds its line here.
"""

from __future__ import annotations

from functools import partial
from math import isqrt

from asyncjax.traces.asynchronous import asynchronous
from asyncjax.traces.averages import (
    buffered,
    fresh,
    fresher_than,
    fresher_than_quantile,
    per_worker,
    wait_for,
)
from asyncjax.traces.buckets import every_bucket
from asyncjax.traces.dispatch import lead_at_most, shuffled, shuffled_once, uniformly
from asyncjax.traces.event_trace import EventTrace
from asyncjax.traces.learned import learned_quotas
from asyncjax.traces.quotas import quotas
from asyncjax.traces.synchronous import synchronous
from asyncjax.traces.tables import ringleader, table
from asyncjax.traces.timed import adaptive_deadline, grace_period

Rule = partial[EventTrace]


def _server(**arguments: object) -> Rule:
    return partial(asynchronous, **arguments)  # type: ignore[arg-type]


REGISTRY: dict[str, Rule] = {
    "pure": _server(),
    "random": _server(dispatch=uniformly()),
    "shuffled": _server(dispatch=shuffled()),
    "shuffled once, 3 jobs": _server(dispatch=shuffled_once(), concurrency=3),
    "shuffled, 11 jobs, read at start": _server(dispatch=shuffled(), concurrency=11, read="start"),
    "wait for 2": _server(collect=wait_for(2)),
    "quotas, wait for 3": _server(dispatch=quotas([2, 1, 1, 1]), collect=wait_for(3)),
    "learned quotas, wait for 3": _server(
        dispatch=learned_quotas(3, scale=0.1), collect=wait_for(3), concurrency=3
    ),
    "shuffled, wait for 3": _server(dispatch=shuffled(), collect=wait_for(3)),
    "buffered 3": _server(collect=buffered(3)),
    "buffered 3, by staleness": _server(
        collect=buffered(3, staleness=lambda delay: (1.0 + delay) ** -0.5)
    ),
    "buffered 9": _server(collect=buffered(9), dispatch=uniformly()),
    "every of 3 buckets": _server(collect=every_bucket(3)),
    "fresh 3": _server(collect=fresh(3)),
    "fresher than 4": _server(collect=fresher_than(4)),
    "fresher than 4, cancel": _server(collect=fresher_than(4, cancel=True)),
    "fresher than sqrt of the update": _server(
        collect=fresher_than(lambda version: isqrt(version + 1))
    ),
    "fresher than sqrt of the update, cancel": _server(
        collect=fresher_than(lambda version: isqrt(version + 1), cancel=True)
    ),
    "per worker": _server(collect=per_worker(1.2)),
    "fresh 3, cancel": _server(collect=fresh(3, cancel=True)),
    "fresher than quantile 0.7": _server(collect=fresher_than_quantile(0.7)),
    "table": _server(collect=table()),
    "table, at most 5 old": _server(collect=table(max_age=5)),
    "shuffled, table": _server(dispatch=shuffled(), collect=table()),
    "ringleader": _server(collect=ringleader()),
    "ringleader, refreshed": _server(collect=ringleader(refresh=True)),
    "grace 0.5": _server(collect=grace_period(0.5, quorum=2)),
    "grace 0.3, not held": _server(collect=grace_period(0.3, holds_back=False)),
    "adaptive deadline": _server(collect=adaptive_deadline(1.0, quorum=2)),
    "gate": _server(gate=lead_at_most(1), read="start"),
    "synchronous 4": partial(synchronous, k=4),
}
