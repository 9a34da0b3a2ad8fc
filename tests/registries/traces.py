"""Registry: every server rule by name, as tests and benchmarks go through them.

An entry makes a trace, `REGISTRY[name].trace(clock, n_updates=..., key=...)`, on a clock of at
least four workers. A new dispatch rule, collection rule or gate adds its line here.
"""

from __future__ import annotations

from math import isqrt

from asyncjax.traces.asynchronous import Rule, ata, ssp
from asyncjax.traces.collection_rules import (
    buffered,
    every_bucket,
    malenia,
    rennala,
    ringmaster,
    ringmaster_quantile,
    wait_for,
)
from asyncjax.traces.dispatch import quotas, shuffled, shuffled_once, uniformly
from asyncjax.traces.gradient_tables import ringleader, table
from asyncjax.traces.synchronous import Synchronous
from asyncjax.traces.timed import adaptive_deadline, grace_period

REGISTRY: dict[str, Rule | Synchronous] = {
    "pure": Rule(),
    "random": Rule(dispatch=uniformly()),
    "shuffled": Rule(dispatch=shuffled()),
    "shuffled once, 3 jobs": Rule(dispatch=shuffled_once(), concurrency=3),
    "shuffled, 11 jobs, read at start": Rule(dispatch=shuffled(), concurrency=11, read="start"),
    "wait for 2": Rule(collect=wait_for(2)),
    "quotas, wait for 3": Rule(dispatch=quotas([2, 1, 1, 1]), collect=wait_for(3)),
    "learned quotas, wait for 3": ata(3, scale=0.1),
    "shuffled, wait for 3": Rule(dispatch=shuffled(), collect=wait_for(3)),
    "buffered 3": Rule(collect=buffered(3)),
    "buffered 3, by staleness": Rule(
        collect=buffered(3, staleness=lambda delay: (1.0 + delay) ** -0.5)
    ),
    "buffered 9": Rule(collect=buffered(9), dispatch=uniformly()),
    "every of 3 buckets": Rule(collect=every_bucket(3)),
    "rennala 3": Rule(collect=rennala(3)),
    "ringmaster 4": Rule(collect=ringmaster(4)),
    "ringmaster 4, cancel": Rule(collect=ringmaster(4, cancel=True)),
    "ringmaster sqrt of the update": Rule(collect=ringmaster(lambda version: isqrt(version + 1))),
    "ringmaster sqrt of the update, cancel": Rule(
        collect=ringmaster(lambda version: isqrt(version + 1), cancel=True)
    ),
    "malenia": Rule(collect=malenia(1.2)),
    "rennala 3, cancel": Rule(collect=rennala(3, cancel=True)),
    "ringmaster quantile 0.7": Rule(collect=ringmaster_quantile(0.7)),
    "table": Rule(collect=table()),
    "table, at most 5 old": Rule(collect=table(max_age=5)),
    "shuffled, table": Rule(dispatch=shuffled(), collect=table()),
    "ringleader": Rule(collect=ringleader()),
    "ringleader, refreshed": Rule(collect=ringleader(refresh=True)),
    "grace 0.5": Rule(collect=grace_period(0.5, quorum=2)),
    "grace 0.3, not held": Rule(collect=grace_period(0.3, holds_back=False)),
    "adaptive deadline": Rule(collect=adaptive_deadline(1.0, quorum=2)),
    "gate": ssp(1),
    "synchronous 4": Synchronous(k=4),
}
