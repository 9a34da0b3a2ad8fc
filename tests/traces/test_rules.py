"""Arguments, storage, checks and figures of traces."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.traces.event_trace import worker_count
from asyncjax.traces.random_draws import DurationBlocks

CLOCK = clocks.constant([1.0, 2.0, 3.0])
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_updates": 0}, "n_updates must be an integer of at least 1, got 0"),
        ({"read": "end"}, "read must be one of 'assignment', 'start', got 'end'"),
        ({"concurrency": 0}, "concurrency must be an integer of at least 1"),
        ({"collect": traces.wait_for(4)}, "collect waits for 4 gradients but only 3 jobs are open"),
        (
            {"collect": traces.wait_for(3), "concurrency": 2},
            "collect waits for 3 gradients but only 2",
        ),
        ({"dispatch": traces.shuffled()}, "key must be given: dispatch is random"),
        ({"dispatch": traces.given([0, 1])}, "sequence is too short: its 2 entries"),
        (
            {"dispatch": traces.given([0, 3])},
            "sequence names worker 3 at position 1; allowed are 0..2",
        ),
        (
            {"gate": traces.lead_at_most(0), "concurrency": 1},
            "cannot go on after arrival 1 at time 1, update 1: no job is running; the gate",
        ),
    ],
)
def test_bad_arguments_of_asynchronous(arguments, message):
    with pytest.raises(ValueError, match=message):
        traces.asynchronous(CLOCK, **{"n_updates": 9, **arguments})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: traces.wait_for(0), "b must be an integer of at least 1, got 0"),
        (lambda: traces.ringmaster(0.5), "threshold must be at least 1"),
        (lambda: traces.ringmaster(float("nan")), "threshold must be at least 1"),
        (lambda: traces.malenia(0.9), "minimum must be at least 1 and finite, got 0.9"),
        (lambda: traces.ringmaster_quantile(0.0), r"quantile must be in \(0, 1\], got 0.0"),
        (lambda: traces.lead_at_most(-1), "bound must be at least 0"),
        (lambda: traces.given([[0]]), "sequence must be a list of worker indices"),
        (lambda: traces.given([0.5]), "sequence must be a list of worker indices"),
    ],
)
def test_bad_rules(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 4}, r"k must be an integer in 1 \.\. 3, got 4"),
        ({"k": 0}, r"k must be an integer in 1 \.\. 3, got 0"),
        ({"load": 0.0}, "load must be positive and finite, got 0.0"),
        ({"load": float("nan")}, "load must be positive and finite, got nan"),
        ({"n_updates": -1}, "n_updates must be an integer"),
    ],
)
def test_bad_arguments_of_synchronous(arguments, message):
    with pytest.raises(ValueError, match=message):
        traces.synchronous(CLOCK, **{"k": 2, "n_updates": 3, **arguments})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: traces.buffered(1.5), "b must be an integer of at least 1, got 1.5"),
        (lambda: traces.rennala(True), "b must be an integer"),
        (lambda: traces.buffered(2, staleness=0.5), "staleness must be a function of the delays"),
        (lambda: traces.asynchronous(CLOCK, n_updates=2.5), "n_updates must be an integer"),
        (lambda: traces.synchronous(CLOCK, k=1.0, n_updates=2), "k must be an integer"),
        (lambda: traces.asynchronous(CLOCK, n_updates=2, load="2"), "load must be a concrete real"),
        (lambda: traces.asynchronous(CLOCK, n_updates=2, timeout="2"), "timeout must be made of"),
        (lambda: traces.lead_at_most("2"), "bound must be a concrete real number"),
    ],
)
def test_what_is_no_number(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_keys_and_kinds():
    random_clock = clocks.exponential([1.0, 2.0])
    with pytest.raises(ValueError, match="key must be given: clock is random"):
        traces.asynchronous(random_clock, n_updates=3)
    with pytest.raises(TypeError, match="key must be one typed key"):
        traces.asynchronous(random_clock, n_updates=3, key=jax.random.PRNGKey(0))
    with pytest.raises(TypeError, match="concrete key"):
        jax.jit(lambda key: traces.asynchronous(random_clock, n_updates=3, key=key).time)(KEY)
    with pytest.raises(TypeError, match="clock must be a Clock"):
        traces.asynchronous([1.0, 2.0], n_updates=3)
    with pytest.raises(TypeError, match="dispatch must be a Dispatch"):
        traces.asynchronous(CLOCK, n_updates=3, dispatch=traces.shuffled)


def test_a_rule_that_never_steps_is_reported():
    with pytest.raises(ValueError, match="'malenia 1' has not let the server update"):
        traces.asynchronous(CLOCK, n_updates=3, collect=traces.malenia(1), concurrency=2)


def test_load_stretches_the_compute_part_only():
    clock = clocks.communicating(CLOCK, download=clocks.constant(0.5), upload=clocks.constant(0.25))
    trace = traces.synchronous(clock, k=3, n_updates=1, load=2.0)
    assert trace.time.tolist() == [2.75, 4.75, 6.75]


@pytest.mark.parametrize("dispatch", [traces.to_deliverer(), traces.uniformly(), traces.shuffled()])
def test_all_rules_face_the_same_workers(dispatch):
    clock = clocks.gamma(2.0, [1.0, 2.0, 3.0])
    trace = traces.asynchronous(clock, n_updates=400, dispatch=dispatch, key=KEY)
    other = traces.asynchronous(clock, n_updates=400, collect=traces.buffered(2), key=KEY)
    spans = {
        (w, j): t for w, j, t in zip(other.worker, other.job, other.time - other.start, strict=True)
    }
    shared = 0
    for worker, job, span in zip(trace.worker, trace.job, trace.time - trace.start, strict=True):
        if (worker, job) in spans:
            assert span == pytest.approx(spans[worker, job], rel=1e-9)
            shared += 1
    assert shared > 300


def test_durations_do_not_depend_on_how_they_are_drawn():
    clock = clocks.exponential([1.0, 2.0])
    blocks = DurationBlocks(clock, KEY)
    alone = [blocks.draw(np.array([w]), np.array([b])) for w in (0, 1) for b in (0, 3)]
    many = blocks.draw(np.repeat([0, 1], 2), np.tile([0, 3], 2))
    np.testing.assert_array_equal(np.concatenate(alone), many)
    assert many.dtype == np.float64


def test_traces_do_not_depend_on_the_precision_of_the_caller():
    clock = clocks.exponential([1.0, 2.0])
    trace = traces.asynchronous(clock, n_updates=50, key=KEY)
    with jax.enable_x64(True):
        again = traces.asynchronous(clock, n_updates=50, key=KEY)
    np.testing.assert_array_equal(trace.time, again.time)
    assert len(np.unique(trace.time.astype(np.float32) - trace.time)) > 1, "times are float64"


def test_save_and_load_keep_every_bit(tmp_path):
    for trace in (
        traces.asynchronous(CLOCK, n_updates=30, collect=traces.ringmaster(2, cancel=True)),
        traces.synchronous(CLOCK, k=2, n_updates=5),
        traces.EventTrace(*traces.asynchronous(CLOCK, n_updates=5)[:8]),
    ):
        path = tmp_path / "trace.npz"
        traces.save(path, trace)
        loaded = traces.load(path)
        assert jax.tree.structure(loaded) == jax.tree.structure(trace)
        for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(trace), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            np.testing.assert_array_equal(a, b)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.npz"]


def test_a_file_that_is_no_trace_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", time=np.zeros(3))
    with pytest.raises(ValueError, match="the field 'worker' is missing"):
        traces.load(tmp_path / "other.npz")


TRACE = traces.asynchronous(CLOCK, n_updates=12, collect=traces.rennala(2))
AGAIN = int(np.flatnonzero(TRACE.worker == 0)[1])


def with_entry(field, place, value):
    column = getattr(TRACE, field).copy()
    column[place] = value
    return TRACE._replace(**{field: column})


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (TRACE._replace(time=TRACE.time[:-1]), r"worker must have shape \(\d+,\)"),
        (with_entry("time", 3, np.nan), "time of arrival 3 is nan"),
        (with_entry("time", 4, 0.5), "time of arrival 4 is 0.5, before"),
        (with_entry("start", 4, 99.0), "start of arrival 4 is 99.0, after its time"),
        (with_entry("read_version", 5, -1), "read_version of arrival 5 is -1"),
        (with_entry("read_version", 2, 9), "read_version of arrival 2 is 9 .* reads the future"),
        (with_entry("version", 6, 9), "version of arrival 6 is 9 but"),
        (with_entry("worker", 1, -1), "worker of arrival 1 is -1"),
        (with_entry("worker", 1, 3), "worker of arrival 1 is 3 but n_workers is 3"),
        (with_entry("job", AGAIN, 0), f"job of arrival {AGAIN} is 0; the jobs of one worker must"),
        (with_entry("weight", 1, np.inf), "weight of arrival 1 is inf"),
        (TRACE._replace(used=np.zeros_like(TRACE.used)), "no gradient was used since the step"),
        (TRACE._replace(worker=TRACE.worker.astype(float)), "worker must be integers"),
        (TRACE._replace(used=TRACE.used.astype(int)), "used must be booleans"),
        (traces.EventTrace(*[column[:0] for column in TRACE[:8]]), "time is empty"),
    ],
)
def test_traces_that_could_not_have_happened(trace, message):
    with pytest.raises(ValueError, match=message):
        traces.validate(trace)


def test_unused_gradients_have_no_weight():
    place = int(np.flatnonzero(~TRACE.used)[0])
    with pytest.raises(ValueError, match=f"weight of arrival {place} .* not used: it must be 0"):
        traces.validate(with_entry("weight", place, 0.5))


def test_summary_counts():
    summary = traces.summarize(TRACE)
    assert summary.updates == 12
    assert summary.used == 24
    assert summary.used + summary.thrown_away == len(TRACE.time)
    assert summary.used_by_worker.sum() == 24
    assert summary.delay_histogram.sum() == len(TRACE.time)
    assert summary.time_per_update == TRACE.time[-1] / 12
    bare = traces.EventTrace(*TRACE[:8])
    assert np.isnan(traces.summarize(bare).utilisation)
    assert worker_count(bare) == 3


def test_utilisation_counts_cancelled_work_and_idle_time():
    trace = traces.synchronous(clocks.constant([1.0, 2.0, 8.0]), k=2, n_updates=3)
    summary = traces.summarize(trace)
    assert summary.cancelled == 3
    assert summary.utilisation == pytest.approx(
        (1 + 2 + 2) / 6
    )  # the third works until it is stopped


@pytest.mark.parametrize("concurrency", [1, 2, 5, 7])
@pytest.mark.parametrize("read", ["assignment", "start"])
def test_merged_and_looped_traces_agree(concurrency, read):
    clock = clocks.constant([1.0, 2.0, 3.0])
    merged = traces.asynchronous(clock, n_updates=40, concurrency=concurrency, read=read)
    looped = traces.asynchronous(
        clock,
        n_updates=40,
        concurrency=concurrency,
        read=read,
        collect=traces.ringmaster(float("inf")),
    )
    for a, b in zip(jax.tree.leaves(merged), jax.tree.leaves(looped), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_million_arrivals_of_very_uneven_workers_fit_in_memory():
    clock = clocks.constant(np.r_[np.full(3, 0.001), np.full(200, 10.0)])
    trace = traces.asynchronous(clock, n_updates=100_000)
    assert len(trace.time) == 100_000
    assert np.all(np.diff(trace.time) >= 0)


@pytest.mark.parametrize("b", [1, 3, 8])
@pytest.mark.parametrize("ties", [False, True])
def test_restarted_and_looped_traces_agree(b, ties):
    """A timeout that never comes sends the same rule through the event loop."""
    times = np.random.default_rng(b).exponential(size=(5, 200)) + 0.01
    clock = clocks.recorded(np.ceil(times / 0.5) if ties else times)
    rule = traces.rennala(b, cancel=True)
    fast = traces.asynchronous(clock, n_updates=90, collect=rule)
    looped = traces.asynchronous(clock, n_updates=90, collect=rule, timeout=1e9)
    for name, value in fast._asdict().items():
        other = getattr(looped, name)
        for one, two in zip(jax.tree.leaves(value), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(one, two, err_msg=name)


@pytest.mark.parametrize(
    "rule", [{"collect": traces.wait_for(8)}, {"dispatch": traces.uniformly()}]
)
def test_arrivals_of_one_instant_go_by_worker_however_many_there_are(rule):
    n = 9_000
    clock = clocks.constant(1.0 + np.arange(n) % 3)
    trace = traces.asynchronous(clock, n_updates=1_000, key=jax.random.key(3), **rule)
    together = np.diff(trace.time) == 0
    assert together.any()
    assert (np.diff(trace.worker)[together] >= 0).all()
