"""Traces: who delivers what, when, and how stale it is."""

from asyncjax.traces.asynchronous import asynchronous
from asyncjax.traces.collection import (
    Collection,
    buffered,
    fresh,
    fresher_than,
    immediately,
    per_worker,
    wait_for,
)
from asyncjax.traces.dispatch import (
    Dispatch,
    given,
    shuffled,
    shuffled_once,
    to_deliverer,
    uniformly,
)
from asyncjax.traces.event_trace import CancelledJobs, EventTrace, OpenJobs, worker_count
from asyncjax.traces.gate import Gate, lead_at_most
from asyncjax.traces.storage import load, save
from asyncjax.traces.summary import Summary, busy_time, summarize
from asyncjax.traces.synchronous import synchronous
from asyncjax.traces.validation import validate

__all__ = [
    "CancelledJobs",
    "Collection",
    "Dispatch",
    "EventTrace",
    "Gate",
    "OpenJobs",
    "Summary",
    "asynchronous",
    "buffered",
    "busy_time",
    "fresh",
    "fresher_than",
    "given",
    "immediately",
    "lead_at_most",
    "load",
    "per_worker",
    "save",
    "shuffled",
    "shuffled_once",
    "summarize",
    "synchronous",
    "to_deliverer",
    "uniformly",
    "validate",
    "wait_for",
    "worker_count",
]
