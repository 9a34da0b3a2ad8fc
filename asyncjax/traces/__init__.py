"""Traces: who delivers what, when, and how stale it is.

`asynchronous` and `synchronous` make a trace of a clock and of rules: to whom jobs go (`dispatch`),
what becomes of a gradient (`collection_rules`, `gradient_tables`), when a worker may start
(`lead_at_most`). A rule of one's own is a `Collection` (see `collection`) or a `Dispatch`.

| name | what it is |
|---|---|
| `Rule`, `Synchronous` | what a server does with its workers; `rule.trace(clock)` |
| `asynchronous`, `synchronous` | the same in one call |
| `lasting` | traces that reach a horizon in time |
| `from_delays`, `read_log` | a trace of a log of delays; durations of a log |
| `to_deliverer`, `uniformly`, `shuffled`, `shuffled_once`, `given` | dispatch: who gets a job |
| `quotas`, `fastest_quotas`, `learned_quotas` | dispatch by quotas, known or learned |
| `immediately`, `wait_for`, `buffered`, `rennala`, `malenia` | collection: each serves once |
| `every_bucket` | the same: a step once every bucket of workers has delivered |
| `ringmaster`, `ringmaster_quantile` | the same, too late ones thrown away |
| `grace_period`, `adaptive_deadline` | the same, and the server steps by the clock |
| `table`, `ringleader` | collection: it serves until replaced |
| `ssp`, `ata`, `mindflayer` | rules of several parts |
| `lead_at_most` | a gate: how far a worker may lead |
| `Service` | how long the server itself takes |
| `summarize`, `validate`, `save`, `load` | for any trace |
| `EventTrace`, `Summary`, `Progress`, `Log` | what these give |
| `StalledError` | a trace that cannot go on |
| `Collection`, `Dispatch` | what a rule of one's own is made of |
"""

from asyncjax.clocks.log_reader.log import Log as Log
from asyncjax.clocks.reading import read_log as read_log
from asyncjax.traces.asynchronous import (
    Rule as Rule,
    asynchronous as asynchronous,
    ata as ata,
    mindflayer as mindflayer,
    ssp as ssp,
)
from asyncjax.traces.collection import Collection as Collection
from asyncjax.traces.collection_rules import (
    buffered as buffered,
    every_bucket as every_bucket,
    immediately as immediately,
    malenia as malenia,
    rennala as rennala,
    ringmaster as ringmaster,
    ringmaster_quantile as ringmaster_quantile,
    wait_for as wait_for,
)
from asyncjax.traces.dispatch import (
    Dispatch as Dispatch,
    fastest_quotas as fastest_quotas,
    given as given,
    lead_at_most as lead_at_most,
    learned_quotas as learned_quotas,
    quotas as quotas,
    shuffled as shuffled,
    shuffled_once as shuffled_once,
    to_deliverer as to_deliverer,
    uniformly as uniformly,
)
from asyncjax.traces.event_trace import EventTrace as EventTrace, StalledError as StalledError
from asyncjax.traces.gradient_tables import ringleader as ringleader, table as table
from asyncjax.traces.logs import from_delays as from_delays
from asyncjax.traces.progress import Progress as Progress, lasting as lasting
from asyncjax.traces.server import Service as Service
from asyncjax.traces.storage import load as load, save as save
from asyncjax.traces.summary import Summary as Summary, summarize as summarize
from asyncjax.traces.synchronous import Synchronous as Synchronous, synchronous as synchronous
from asyncjax.traces.timed import (
    adaptive_deadline as adaptive_deadline,
    grace_period as grace_period,
)
from asyncjax.traces.validation import validate as validate
