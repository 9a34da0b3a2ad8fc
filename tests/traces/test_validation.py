"""`validate`: every trace that is made passes; what it cannot know; what it costs."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, simulation, traces
from tests.traces import damage
from tests.traces.damage import (
    FRESH,
    KEPT,
    LOG,
    RING,
    ROUNDS,
    SECOND,
    SPANS,
    STOPPED,
    TABLE,
    changed,
    of_one_instant,
    put,
    swapped,
    without,
)

PAIRS = traces.asynchronous(
    clocks.constant([1.0, 1.0, 1.0]), n_updates=5, collect=traces.buffered(3)
)

# What a trace does not say twice: how to damage it, and why nobody can know.
UNKNOWN = {
    # a rule may weigh as it likes; one that weighs by delay is no mean
    "a used weight doubled": lambda: put(FRESH, "weight", KEPT, 1.0),
    # a factor by staleness may be 0
    "a used weight of 0": lambda: put(FRESH, "weight", KEPT, 0.0),
    # codes of gradients are decoded with such factors
    "a used weight below 0": lambda: put(FRESH, "weight", KEPT, -0.5),
    # only the first weight stands in two places
    "the second reuse row of an arrival doubled": lambda: put(TABLE, "reuse.weight", SECOND, 2.0),
    # ringleader averages several gradients of one worker, so that their rows may overlap
    "reuse that lasts longer": lambda: put(RING, "reuse.last", 1, 5),
    # as above: nothing says that the rule was a table
    "a row of a table that outlasts its worker's next gradient": lambda: put(
        TABLE, "reuse.last", -1, 11
    )._replace(n_workers=4),
    # a job may have waited in a queue, or its worker kept its model
    "an older read": lambda: put(FRESH, "read_version", -1, 0),
    # the server may have served them in this order
    "two arrivals of one instant swapped": lambda: swapped(PAIRS, *of_one_instant(PAIRS)),
    # times have no unit
    "all times doubled": lambda: changed(LOG, "time", lambda c: 2 * c),
    # a worker may rest between two jobs, as one does whose queue is empty
    "times moved back, after the starts": lambda: changed(
        FRESH._replace(open_jobs=None), "time", lambda c: c - 0.5
    ),
    # a log has no starts; nothing else tells who delivered
    "another worker, in a log": lambda: put(put(LOG, "worker", 5, 1), "job", 5, 2),
    # an update may take any number of gradients
    "a row less, in a log of several gradients an update": lambda: without(
        traces.from_delays([0, 0, 0, 1, 1, 0], version=[0, 0, 0, 1, 1, 1], worker=range(6)), 1
    ),
    # its worker may have rested until it began its open job
    "the last arrival of a worker less, which made no step": lambda: without(
        FRESH, np.flatnonzero(FRESH.worker == 3)[-1]
    ),
    # the number of answers that are awaited may change, and a worker may get no work
    "a row of a round less": lambda: without(ROUNDS, 0),
    # its worker may have rested until it began its open job
    "the last cancelled job less": lambda: without(STOPPED, -1, "cancelled"),
    # how many jobs are open is not written elsewhere, and a worker may have none
    "an open job less": lambda: without(FRESH, 0, "open_jobs"),
    # they may be left out
    "no open jobs": lambda: FRESH._replace(open_jobs=None),
    # they may be left out
    "no starts": lambda: FRESH._replace(start=None),
    # some may never be heard
    "more workers": lambda: FRESH._replace(n_workers=9),
    # a server that takes time stops jobs after the arrival that makes the last update
    "cancelled after the end, an open job waits": lambda: put(
        put(STOPPED, "cancelled.time", -1, 98.0), "open_jobs.start", 2, np.nan
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_nobody_can_know_is_still_a_trace(name):
    """It could have happened, so it is planned and counted without trouble."""
    trace = traces.validate(UNKNOWN[name]())
    assert simulation.plan(trace).n_updates == trace.n_updates
    assert not traces.summarize(trace).utilisation > 1 + 1e-12


def anywhere(trace, rng):
    """A trace with one number changed at random, somewhere."""
    columns = [name for name in trace._fields[:9] if getattr(trace, name) is not None]
    for part in ("open_jobs", "cancelled", "reuse"):
        if getattr(trace, part) is not None and len(getattr(trace, part)[0]):
            columns += [f"{part}.{column}" for column in getattr(trace, part)._fields]
    field = columns[rng.integers(len(columns))]
    name, _, inner = field.partition(".")
    column = getattr(getattr(trace, name), inner) if inner else getattr(trace, name)
    values = [-1, 0, 1, 2, 7, 100, 2**30]
    if column.dtype.kind == "f":
        values += [np.nan, np.inf, 0.5, 3.0, 1e30]
    if column.dtype == bool:
        values = [True, False]
    return put(trace, field, rng.integers(len(column)), values[rng.integers(len(values))])


@pytest.mark.parametrize("times", [20, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["FRESH", "STOPPED", "QUEUED", "TABLE", "RING", "ROUNDS", "LOG"])
def test_whatever_passes_is_planned_and_counted(name, times):
    """A wrong number is refused, or leads nowhere out of bounds."""
    trace, rng, refused = getattr(damage, name), np.random.default_rng(times), 0
    for _ in range(times):
        one = anywhere(trace, rng)
        try:
            traces.validate(one)
        except ValueError:
            refused += 1
            continue
        if one.n_updates:
            plan = simulation.plan(one)
            assert (plan.update_delay >= 0).all()
            assert (plan.update_delay <= np.arange(one.n_updates)).all()
        summary = traces.summarize(one)
        assert not summary.utilisation > 1 + 1e-12
        assert not summary.utilisation < 0
        assert (summary.open_ages >= 0).all()
    assert refused > times // 3


def test_arrays_of_jax_are_read():
    leaves, structure = jax.tree.flatten(FRESH._replace(n_workers=None))
    there = jax.tree.unflatten(structure, [jax.numpy.asarray(leaf) for leaf in leaves])
    assert traces.validate(there) is there


def test_times_in_single_precision_may_be_rounded():
    """As inside compiled code, where every round begins a rounding before the last one ended."""
    spans = np.full(4000, 0.1, np.float32)
    begins = np.cumsum(spans) - spans
    rounds = np.arange(4000, dtype=np.int32)
    trace = LOG._replace(
        time=begins + spans,
        start=begins,
        worker=0 * rounds,
        job=rounds,
        read_version=rounds,
        version=rounds,
        used=rounds >= 0,
        steps=rounds >= 0,
        weight=np.ones(4000, np.float32),
    )
    assert (trace.start[1:] < trace.time[:-1]).any()
    assert traces.validate(trace) is trace
    early = np.maximum(begins - np.float32(0.05), 0)
    with pytest.raises(ValueError, match="one job at a time"):
        traces.validate(trace._replace(start=early, read_version=0 * rounds))


def test_jobs_are_counted_without_starts_too():
    bare = STOPPED._replace(start=None)
    assert traces.validate(bare) is bare
    with pytest.raises(ValueError, match="one is missing, or is there twice"):
        traces.validate(put(bare, "job", -1, 50))


@pytest.mark.parametrize("collect", [traces.ringmaster(2, cancel=True), traces.wait_for(2)])
def test_jobs_of_a_server_that_takes_time_wait_for_its_last_answer(collect):
    """At the end of the trace the job in answer to the last arrival has not begun."""
    trace = traces.asynchronous(
        SPANS, n_updates=12, collect=collect, service=traces.Service(0.05, 0.1), timeout=4.5
    )
    assert traces.validate(trace) is trace
    last = trace.open_jobs.worker == trace.worker[-1]
    assert np.isnan(trace.open_jobs.start[last]).all()
    begun = trace.open_jobs.start[~np.isnan(trace.open_jobs.start)]
    assert (begun <= trace.end).all()


def test_jobs_that_began_after_the_last_update_of_a_stalled_run_have_no_start():
    # worker 2 leaves; 0 and 1 go on delivering, and no update comes any more
    clock = clocks.available(clocks.constant([1.0, 2.0, 3.0]), leave=[np.inf, np.inf, 5.0])
    with pytest.raises(traces.StalledError) as caught:
        traces.asynchronous(clock, n_updates=9, collect=traces.ringleader())
    trace = traces.validate(caught.value.trace)
    assert trace.open_jobs.worker.tolist() == [0, 1, 2]
    assert trace.open_jobs.start[2] == 3.0
    assert np.isnan(trace.open_jobs.start[:2]).all()
