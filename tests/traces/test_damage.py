"""Damage to a trace is refused in one sentence that names the field and the place."""

import numpy as np
import pytest

from asyncjax import traces
from tests.traces.damage import (
    CLOCKED,
    FRESH,
    KEPT,
    LAST,
    LOG,
    OWN,
    QUEUED,
    RING,
    ROUNDS,
    SECOND,
    STOPPED,
    TABLE,
    UNUSED,
    WAITS,
    changed,
    put,
    rows,
    swapped,
    twice,
    without,
)

DAMAGES = {
    # kinds, shapes and lengths
    "no column": (lambda: FRESH._replace(weight=None), "weight must be an array of real numbers"),
    "float jobs": (lambda: changed(FRESH, "job", np.float32), "job must be integers"),
    "float versions": (lambda: changed(FRESH, "version", np.float32), "version must be integers"),
    "float reads": (
        lambda: changed(FRESH, "read_version", np.float64),
        "read_version must be integers",
    ),
    "boolean workers": (lambda: changed(FRESH, "worker", np.bool_), "worker must be integers"),
    "counted uses": (lambda: changed(FRESH, "used", np.int8), "used must be booleans"),
    "counted steps": (lambda: changed(FRESH, "steps", np.int64), "steps must be booleans"),
    "complex times": (lambda: changed(FRESH, "time", np.complex128), "time must be real numbers"),
    "text weights": (
        lambda: changed(FRESH, "weight", lambda c: c.astype("U9")),
        "weight must be real numbers",
    ),
    "objects": (
        lambda: changed(FRESH, "start", lambda c: c.astype(object)),
        "start must be real numbers",
    ),
    "a column of a matrix": (
        lambda: changed(FRESH, "worker", lambda c: c[:, None]),
        r"worker must have shape \(\d+,\)",
    ),
    "a time without axes": (lambda: FRESH._replace(time=np.array(1.0)), "time must have one axis"),
    "too short": (lambda: changed(FRESH, "used", lambda c: c[:-1]), "used must have shape"),
    "too long": (lambda: changed(FRESH, "job", lambda c: np.append(c, 99)), "job must have shape"),
    "starts too short": (lambda: changed(FRESH, "start", lambda c: c[1:]), "start must have shape"),
    "no workers": (lambda: FRESH._replace(n_workers=0), "n_workers must be an integer in"),
    "too few workers": (lambda: FRESH._replace(n_workers=3), r"worker of .* allowed are 0\.\.2"),
    # times and starts
    "time negative": (lambda: put(LOG, "time", 0, -1.0), "time of arrival 0 is -1.0"),
    "times without starts reversed": (
        lambda: changed(LOG, "time", lambda c: c[::-1].copy()),
        "time of arrival 1 is 5.0, before",
    ),
    "times moved back": (lambda: changed(FRESH, "time", lambda c: c - 1.5), "time of arrival 0"),
    "times moved back, open jobs as they were": (
        lambda: changed(FRESH, "time", lambda c: c - 0.5),
        "open_jobs.start of job 0 is 24.0",
    ),
    "times halved": (lambda: changed(FRESH, "time", lambda c: c / 2), "start of arrival"),
    "start NaN": (lambda: put(FRESH, "start", 2, np.nan), "start of arrival 2 is nan"),
    "start during the job before": (
        lambda: put(FRESH, "start", OWN[1], 0.5),
        f"start of arrival {OWN[1]} is 0.5, but its worker 0 is at the job",
    ),
    "starts all 0": (
        lambda: changed(FRESH, "start", np.zeros_like),
        "when its job started, at 0.0",
    ),
    "starts of two swapped": (
        lambda: put(FRESH, "start", OWN[[1, 2]], FRESH.start[OWN[[2, 1]]]),
        "when its job started|does one job at a time",
    ),
    # versions and steps
    "reads one later": (
        lambda: changed(FRESH, "read_version", lambda c: c + 1),
        "reads the future",
    ),
    "read after the start": (
        lambda: put(FRESH, "read_version", UNUSED, FRESH.version[UNUSED]),
        rf"read_version of arrival {UNUSED} is \d+ but only \d+ updates were made when its job",
    ),
    "no delays": (
        lambda: FRESH._replace(read_version=FRESH.version),
        "updates were made when its job started",
    ),
    "versions begin with 1": (
        lambda: changed(LOG, "version", lambda c: c + 1),
        "version of arrival 0 is 1 but 0 updates were made",
    ),
    "a step more": (lambda: put(FRESH, "steps", KEPT, True), "version of arrival"),
    "a step less": (lambda: put(FRESH, "steps", int(np.argmax(FRESH.steps)), False), "version of"),
    "no steps": (lambda: changed(FRESH, "steps", np.zeros_like), "version of arrival"),
    # workers and jobs
    "worker out of range": (lambda: put(FRESH, "worker", 1, 4), r"worker .* allowed are 0\.\.3"),
    "worker out of any range": (
        lambda: put(changed(LOG, "worker", np.int64)._replace(n_workers=None), "worker", 5, 2**40),
        "worker of arrival 5 is",
    ),
    "another worker": (lambda: put(FRESH, "worker", 6, 3), "does one job at a time|job of arrival"),
    "workers moved on": (
        lambda: changed(FRESH, "worker", lambda c: (c + 1) % 4),
        "open_jobs.start of job",
    ),
    "job negative": (lambda: put(LOG, "job", 0, -1), "job of arrival 0 is -1"),
    "job too large": (lambda: put(FRESH, "job", OWN[-1], 10**9), "one is missing"),
    "jobs begin with 1": (lambda: changed(FRESH, "job", lambda c: c + 1), "one is missing"),
    "job not in 32 bits": (
        lambda: put(changed(LOG, "job", np.int64), "job", 5, 2**40),
        "job of arrival 5 is",
    ),
    # rows of arrivals
    "a kept row less": (lambda: without(FRESH, KEPT), "one is missing"),
    "an unused row less": (lambda: without(FRESH, UNUSED), "one is missing"),
    "a row less, versions as they were": (
        lambda: rows(FRESH, None, np.delete(np.arange(LAST + 1), int(np.argmax(FRESH.steps)))),
        "version of arrival",
    ),
    "the first row less": (lambda: without(QUEUED, 0), "one is missing"),
    "a row twice": (lambda: twice(FRESH, KEPT), "job of arrival|does one job at a time"),
    "a row of a log twice": (lambda: twice(LOG, 2), "version of arrival 3"),
    "two rows swapped": (lambda: swapped(FRESH, 0, 3), "time of arrival"),
    "two rows swapped, times as they were": (
        lambda: swapped(FRESH, 4, 5)._replace(time=FRESH.time),
        "arrival",
    ),
    "rows reversed": (lambda: rows(FRESH, None, slice(None, None, -1)), "time of arrival"),
    "the last rows less": (
        lambda: rows(STOPPED, None, slice(0, -3)),
        r"cancelled.time of job \d+|open_jobs.read_version",
    ),
    "the first rows less": (lambda: rows(FRESH, None, slice(2, None)), "version of arrival|job of"),
    # weights
    "weight infinite": (lambda: put(FRESH, "weight", 1, np.inf), "weight of arrival 1 is inf"),
    "a use less": (lambda: put(FRESH, "used", KEPT, False), f"weight of arrival {KEPT} is 0.5"),
    # open jobs
    "open jobs read the future": (
        lambda: put(QUEUED, "open_jobs.read_version", 0, 13),
        r"open_jobs.read_version of job 0 is 13; allowed are 0\.\.",
    ),
    "an open job reads after its start": (
        lambda: put(FRESH, "open_jobs.read_version", 3, 12),
        r"open_jobs.read_version of job 3 is 12; allowed are 0\.\.10,",
    ),
    "a waiting job reads the future": (
        lambda: put(QUEUED, "open_jobs.read_version", WAITS, 13),
        rf"open_jobs.read_version of job {WAITS} is 13; allowed are 0\.\.12",
    ),
    "an open job reads version -1": (
        lambda: put(QUEUED, "open_jobs.read_version", 1, -1),
        "open_jobs.read_version of job 1 is -1",
    ),
    "an open job of worker 4": (
        lambda: put(QUEUED, "open_jobs.worker", -1, 4),
        r"open_jobs.worker .* is 4 .* allowed are 0\.\.3",
    ),
    "an open job of worker -1": (
        lambda: put(QUEUED, "open_jobs.worker", 0, -1),
        "open_jobs.worker of job 0 is -1",
    ),
    "an open job of another worker": (
        lambda: put(QUEUED, "open_jobs.worker", 0, 3),
        "open_jobs.worker of job 1 is 2, less than",
    ),
    "open jobs of unequal lengths": (
        lambda: changed(QUEUED, "open_jobs.start", lambda c: c[:-1]),
        "open_jobs.start must have shape",
    ),
    "open jobs of float workers": (
        lambda: changed(QUEUED, "open_jobs.worker", np.float64),
        "open_jobs.worker must be integers",
    ),
    "open jobs out of order": (lambda: swapped(QUEUED, 0, -1, "open_jobs"), "open_jobs.worker"),
    "an open job twice": (lambda: twice(FRESH, 0, "open_jobs"), "an open job ahead of it"),
    "an open job starts while its worker is busy": (
        lambda: put(FRESH, "open_jobs.start", 0, 0.5),
        "open_jobs.start of job 0 is 0.5",
    ),
    "an open job starts never": (
        lambda: put(FRESH, "open_jobs.start", 1, np.inf),
        "open_jobs.start of job 1 is inf",
    ),
    "an open job starts after the end": (
        lambda: put(FRESH, "open_jobs.start", 0, 99.0),
        rf"open_jobs.start of job 0 is 99.0; .* to the trace's end, {FRESH.end}",
    ),
    "an open job starts after the last step by the clock": (
        lambda: put(CLOCKED, "open_jobs.start", 0, CLOCKED.end + 1.0),
        rf"open_jobs.start of job 0 is .* to the trace's end, {CLOCKED.end}",
    ),
    "a waiting job runs": (
        lambda: put(QUEUED, "open_jobs.start", WAITS, QUEUED.time[-1]),
        f"open_jobs.start of job {WAITS}",
    ),
    # cancelled jobs
    "cancelled jobs of another kind": (
        lambda: STOPPED._replace(cancelled=STOPPED.open_jobs),
        "cancelled must be of type CancelledJobs",
    ),
    "cancelled at NaN": (
        lambda: put(STOPPED, "cancelled.time", 1, np.nan),
        "cancelled.time of job 1",
    ),
    "cancelled after the end": (
        lambda: put(STOPPED, "cancelled.time", -1, 1e9),
        "cancelled.time .* to the last arrival",
    ),
    "cancelled after the end, others open late": (
        lambda: put(put(STOPPED, "cancelled.time", -1, 98.0), "open_jobs.start", 2, 99.0),
        r"cancelled.time of job \d+ is 98.0|open_jobs.start of job 2 is 99.0",
    ),
    "cancelled after the end, a worker without an open job": (
        lambda: without(put(STOPPED, "cancelled.time", -1, 98.0), 2, "open_jobs"),
        r"cancelled.time of job \d+ is 98.0; .* to the last arrival",
    ),
    "cancelled never, an open job waits": (
        lambda: put(put(STOPPED, "cancelled.time", -1, np.inf), "open_jobs.start", 2, np.nan),
        r"cancelled.time of job \d+ is inf",
    ),
    "cancelled before it began": (
        lambda: put(STOPPED, "cancelled.time", 0, -1.0),
        "cancelled.time of job 0 is -1.0",
    ),
    "cancelled, began at NaN": (
        lambda: put(STOPPED, "cancelled.start", 1, np.nan),
        "cancelled.start of job 1 is nan",
    ),
    "cancelled, began at -5": (
        lambda: put(STOPPED, "cancelled.start", 0, -5.0),
        "cancelled.start of job 0 is -5.0",
    ),
    "cancelled of worker 4": (
        lambda: put(STOPPED, "cancelled.worker", 0, 4),
        r"cancelled.worker of job 0 is 4 .* allowed are 0\.\.3",
    ),
    "cancelled of another worker": (
        lambda: put(STOPPED, "cancelled.worker", 0, 1),
        "does one job at a time|one is missing",
    ),
    "cancelled out of order": (
        lambda: rows(STOPPED, "cancelled", slice(None, None, -1)),
        "cancelled.time of job 2 is .* in the order in which they were stopped",
    ),
    "a cancelled job less": (
        lambda: without(STOPPED, 0, "cancelled"),
        "one is missing",
    ),
    "a cancelled job twice": (lambda: twice(STOPPED, 0, "cancelled"), "cancelled.start of job"),
    "a cancelled job of a round twice": (
        lambda: twice(ROUNDS, 0, "cancelled"),
        "cancelled.start of job",
    ),
    # reuse
    "reuse of another kind": (
        lambda: TABLE._replace(reuse=tuple(TABLE.reuse)),
        "reuse must be of type Reuse",
    ),
    "reuse of an arrival that is not there": (
        lambda: put(TABLE, "reuse.arrival", -1, 10**6),
        r"names arrival 1000000; allowed are 0\.\.",
    ),
    "reuse of arrival -1": (lambda: put(TABLE, "reuse.arrival", 0, -1), "row 0 names arrival -1"),
    "reuse of float steps": (lambda: changed(TABLE, "reuse.first", np.float32), "must be integers"),
    "reuse of unequal lengths": (
        lambda: changed(TABLE, "reuse.weight", lambda c: c[:-1]),
        "reuse.weight must have shape",
    ),
    "reuse before the arrival": (lambda: put(TABLE, "reuse.first", -1, 0), "serves in steps 0"),
    "reuse after the end": (lambda: put(TABLE, "reuse.last", -1, 12), r"serves in steps \d+\.\.12"),
    "reuse that ends before it begins": (
        lambda: put(TABLE, "reuse.last", 2, -1),
        r"reuse row 2 serves in steps",
    ),
    "reuse weight NaN": (
        lambda: put(TABLE, "reuse.weight", 1, np.nan),
        "reuse row 1 has weight nan",
    ),
    "reuse weight doubled": (lambda: put(TABLE, "reuse.weight", 0, 2.0), "the two must be equal"),
    "weights doubled": (lambda: changed(TABLE, "weight", lambda c: 2 * c), "the two must be equal"),
    "reuse weights doubled": (
        lambda: changed(RING, "reuse.weight", lambda c: 2 * c),
        "the two must be equal",
    ),
    "reuse out of order": (lambda: rows(TABLE, "reuse", slice(None, None, -1)), "out of order"),
    "reuse rows swapped": (lambda: swapped(TABLE, SECOND - 1, SECOND, "reuse"), "out of order"),
    "reuse rows overlap": (
        lambda: put(TABLE, "reuse.first", SECOND, TABLE.reuse.last[SECOND - 1]),
        "overlaps the row before it",
    ),
    "a reuse row twice": (lambda: twice(TABLE, 1, "reuse"), "overlaps the row before it"),
    "an only reuse row less": (lambda: without(TABLE, 0, "reuse"), "reuse says otherwise"),
    "a first reuse row less": (lambda: without(RING, 0, "reuse"), "the two must be equal"),
    "no reuse rows": (lambda: rows(TABLE, "reuse", slice(0)), "reuse says otherwise"),
    "no reuse of a gradient that is used": (
        lambda: put(TABLE, "used", int(np.argmax(TABLE.used)), False),
        "weight of arrival",
    ),
    "a step without rows": (
        lambda: RING._replace(
            reuse=RING.reuse._replace(first=np.where(RING.reuse.first < 4, 1, RING.reuse.first))
        ),
        "no row that serves in step 0|serves in steps|overlaps",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_refused_by_name(name):
    damaged, message = DAMAGES[name]
    trace = damaged()
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        traces.validate(trace)
    assert type(caught.value) in (TypeError, ValueError)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).removesuffix(" ...").endswith(".")
