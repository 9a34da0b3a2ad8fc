"""Comparing: what is known beforehand, by hand, by a formula, or by a count job by job."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.whatif import comparing as module
from asyncjax.whatif.comparing import (
    Interval,
    clock_of,
    compare,
    figures_of,
    played,
    redrawn,
    rules_for,
    trace_of,
)
from tests.oracles import spans

ROWS = [np.random.default_rng(worker).gamma(3.0, 1.0 + worker, 40) for worker in range(5)]
RULES = {rule.name: rule for rule in rules_for(5, 6.0)}


@pytest.fixture(scope="module")
def even():
    return compare(traces.read_log(np.full((8, 48), 2.0)), draws=2)


@pytest.fixture(scope="module")
def one_slow():
    """Nine workers of 1 and one of 10."""
    return compare(traces.read_log(np.array([[1.0] * 60] * 9 + [[10.0] * 60])), draws=2)


@pytest.fixture(scope="module")
def recorded():
    return compare(traces.read_log(clocks.recording("llm_sequences").durations), draws=4)


@pytest.mark.slow
def test_with_equal_workers_nobody_gains(even):
    for row in even.rows:
        assert row.gain.value <= 1.0 + 1e-6, row.rule.name
        if not row.rule.stops:
            assert row.gain == Interval(1.0, 1.0, 1.0), row.rule.name
            assert row.figures.idle == 0.0
            assert row.figures.misplaced < 1e-6
            assert not row.is_told_apart
    # Whoever stops k of n equal workers throws away k / n of their time.
    assert even.of("fastest 4 of 8").gain.value == pytest.approx(0.5)
    assert even.of("fastest 4 of 8").figures.wasted == pytest.approx(0.5)
    assert even.of("1 backup worker").gain.value == pytest.approx(7 / 8)


@pytest.mark.slow
def test_one_worker_ten_times_slower_by_hand(one_slow):
    gain = {row.rule.name: row.gain.value for row in one_slow.rows}
    # A round of 10 brings 10 gradients; in that time 9 workers make 10 each and one makes 1.
    assert gain["pure asynchronous"] == pytest.approx(9.1)
    assert gain["Ringleader"] == pytest.approx(9.1)
    assert gain["1 backup worker"] == pytest.approx(9.0)  # nine in every time unit
    assert gain["fastest 5 of 10"] == pytest.approx(5.0)
    assert gain["4 local steps (synchronous)"] == pytest.approx(1.0)
    # 600 time units: the slow worker makes 60 jobs, the others at most s more.
    assert gain["SSP 4 ahead"] == pytest.approx((60 * 10 + 4 * 9) / 600, rel=0.01)
    figures = one_slow.of("synchronous").figures
    assert figures.idle == pytest.approx(9 / 10 * 9 / 10)
    pure = one_slow.of("pure asynchronous").figures
    assert pure.idle == pytest.approx(0.0, abs=1e-9)
    assert pure.heard.min() == pytest.approx(10 * 0.1 / 9.1)  # one of 91 gradients
    assert pure.heard.max() == pytest.approx(10 * 1.0 / 9.1)
    assert pure.staleness_longest == 90  # nine others make ten each while the slow one is at it
    assert pure.passes == pytest.approx(10.0)
    assert one_slow.of("Ringleader").figures.misplaced == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_a_recorded_job_by_sums_of_its_times(recorded):
    """Synchronous rounds take the longest of each step; the pure rule adds up rates."""
    times = clocks.recording("llm_sequences").durations.astype(np.float32).astype(np.float64)
    rounds = np.cumsum(times.max(axis=0))
    within = rounds[rounds <= recorded.span]
    figures = recorded.of("synchronous").figures
    assert figures.updates_per_time == pytest.approx(len(within) / within[-1], rel=1e-6)
    for k in (16, 24, 30):
        name = {30: "2 backup workers"}.get(k, f"fastest {k} of 32")
        ends = np.cumsum(np.sort(np.tile(times, 2), axis=0)[k - 1])
        ends = ends[ends <= recorded.span]
        rate = k * len(ends) / ends[-1]
        assert recorded.of(name).figures.gradients_per_time == pytest.approx(rate, rel=1e-6)
    arrivals = np.cumsum(np.tile(times, 2), axis=1)
    count = int((arrivals <= recorded.span * (1 + 1e-9)).sum())
    rate = count / arrivals[arrivals <= recorded.span * (1 + 1e-9)].max()
    assert recorded.of("pure asynchronous").figures.gradients_per_time == pytest.approx(rate)
    gains = [round(row.gain.value, 2) for row in recorded.rows]
    assert gains == sorted(gains, reverse=True)


@pytest.mark.slow
def test_intervals_narrow_with_the_length_of_the_log_and_cover_the_truth():
    """Of exponential times the gain of the pure rule is the mean of the longest of n."""
    n, seeds = 4, 5
    truth = sum(1 / k for k in range(1, n + 1))
    inside, width = [], {}
    for jobs in (48, 432):
        for seed in range(seeds):
            rows = np.random.default_rng(seed).exponential(1.0, (n, jobs))
            log, pure = traces.read_log(rows), "pure asynchronous"
            gain = compare(log, draws=8, only=[pure]).of(pure).gain
            inside.append(gain.low <= truth <= gain.high)
            width.setdefault(jobs, []).append(gain.high / gain.low - 1)
    # Two standard deviations, themselves estimated from eight draws, cover with probability 0.91:
    # seven of ten or more with probability 0.99.
    assert sum(inside) >= 7
    assert 1.8 < np.median(width[48]) / np.median(width[432]) < 5.0  # sqrt(9) = 3


def test_records_of_any_length_begin_again():
    clock = clock_of([np.array([1.0, 2.0, 3.0]), np.array([5.0, 7.0])])
    times = np.asarray(clock.durations(None, 6))
    assert times.tolist() == [[1.0, 2.0, 3.0, 1.0, 2.0, 3.0], [5.0, 7.0, 5.0, 7.0, 5.0, 7.0]]


def test_local_steps_take_the_durations_that_follow_each_other():
    row = np.arange(1.0, 6.0)
    times = np.asarray(clock_of([row, row], local_steps=2).durations(None, 6))[0]
    endless = np.tile(row, 3)[:12].reshape(6, 2).sum(axis=1)
    np.testing.assert_array_equal(times, endless)


def test_a_drawn_log_keeps_workers_and_neighbours_together():
    rows = [np.arange(100.0), np.arange(100.0) + 1000.0]
    first, second = redrawn(rows, jax.random.key(4))
    np.testing.assert_array_equal(second - first, 1000.0)  # the same moments for both
    steps = np.diff(first.reshape(10, 10), axis=1) % 100
    np.testing.assert_array_equal(steps, 1.0)  # blocks of ten that follow each other
    assert len(np.unique(first)) < 100  # drawn, not as it was
    short, _ = redrawn(rows, jax.random.key(4), share=0.3)
    assert len(short) == 30


@pytest.mark.parametrize("n", [2, 3, 4, 7, 32, 100])
def test_rules_have_names_of_their_own_and_fit_the_workers(n):
    rules = rules_for(n, 1.0)
    assert rules[0].name == "synchronous"
    assert len({rule.name for rule in rules}) == len(rules)
    trace = rules[0].make(clocks.constant(np.ones(n)), 3, jax.random.key(0))
    assert trace.n_updates == 3


@pytest.mark.parametrize("name", [rule.name for rule in rules_for(4, 2.0)])
def test_the_line_of_code_makes_the_same_trace(name):
    """What the page says to write is what was counted."""
    rule = next(rule for rule in rules_for(4, 2.0) if rule.name == name)
    clock, key = clocks.constant([1.0, 2.0, 2.0, 5.0]), jax.random.key(0)
    names = {"traces": traces, "clock": clock, "T": 12, "key": key}
    written = eval(rule.call, names)
    trace = rule.make(
        clock_of([np.full(3, t) for t in (1.0, 2.0, 2.0, 5.0)], rule.local_steps), 12, key
    )
    np.testing.assert_allclose(written.time, trace.time, rtol=1e-6)
    np.testing.assert_array_equal(written.worker, trace.worker)
    np.testing.assert_array_equal(written.used, trace.used)


@pytest.mark.slow
def test_it_is_the_same_again_and_another_key_changes_the_draws_alone():
    log = traces.read_log(np.random.default_rng(0).gamma(2.0, 1.0, (3, 30)))
    one, two, other = (compare(log, draws=3, key=jax.random.key(k)) for k in (5, 5, 6))
    assert [row.gain for row in one.rows] == [row.gain for row in two.rows]
    assert one.of("pure asynchronous").gain.value == other.of("pure asynchronous").gain.value
    assert one.of("pure asynchronous").gain.low != other.of("pure asynchronous").gain.low


@pytest.mark.slow
def test_a_very_uneven_log_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 2_000)
    log = traces.read_log([*[("fast", 0.01)] * 2, *[("slow", 1.0)] * 40])
    found = compare(log, draws=2)
    assert found.span == pytest.approx(2_000 / 101, rel=1e-6)
    assert "The comparison spans the first" in found.notes[0]


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_counted_as_job_by_job(name):
    span = 90.0
    trace = trace_of(RULES[name], ROWS, span, jax.random.key(3))
    found = figures_of(trace, span, np.full(5, 40))
    wanted = spans.figures(trace, span)
    for field, value in wanted.items():
        np.testing.assert_allclose(getattr(found, field), value, rtol=1e-6, atol=1e-7)


def test_one_use_in_a_hundred_is_staler():
    trace = traces.from_delays(np.minimum(np.arange(200), 3), n_workers=1)
    trace = trace._replace(start=trace.time - 1.0)
    found = figures_of(trace, 200.0, np.array([200]))
    assert found.staleness_late == 3
    assert found.staleness_mean == pytest.approx((0 + 1 + 2 + 197 * 3) / 200)


def test_a_span_before_the_first_update_lasts_to_it():
    trace = trace_of(RULES["synchronous"], ROWS, 50.0, jax.random.key(0))
    found = figures_of(trace, 1e-3, np.full(5, 40))
    assert found.updates_per_time == pytest.approx(1 / float(trace.update_time[0]))


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        # Until 0.5: three rounds; one makes 3 jobs, the other 5. Floats of 32 bits end after it.
        (([0.1, 0.1, 0.3], [0.1, 0.1, 0.1]), {"synchronous": 6, "pure asynchronous": 8}),
        # Until 4: eighty jobs end in four moments, and all of the last moment count.
        (([1.0] * 4,) * 20, {"synchronous": 80, "pure asynchronous": 80}),
        # Until 0.4: of two rounds, of 0.2 and 0.3, the first is in time; each makes two jobs.
        (([0.1, 0.3], [0.2, 0.1]), {"synchronous": 2, "pure asynchronous": 4}),
    ],
)
def test_the_last_job_of_the_span_counts(rows, counts):
    rows = [np.array(row) for row in rows]
    span = max(float(row.sum()) for row in rows)
    for rule in rules_for(len(rows), 1.0):
        if rule.name in counts:
            figures = played(rule, rows, span, jax.random.key(0))
            # the count ends at the last update
            end = {2: 0.2}.get(counts[rule.name], span)
            assert figures.gradients_per_time * end == pytest.approx(counts[rule.name], rel=1e-6)


def plain(times):
    return float((1 / times.mean(axis=1)).sum() / (len(times) / times.max(axis=0).mean()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant", "random", "few jobs"])
def test_intervals_hold_the_ratio_of_the_whole_log(kind):
    """With 300 workers jobs under way at the end of the span are more than what chance leaves."""
    rng = np.random.default_rng(5)
    times = {
        "constant": np.linspace(1.0, 4.0, 300)[:, None] * np.ones((300, 20)),
        "random": rng.gamma(4.0, 0.25, (300, 12)),
        "few jobs": rng.exponential(1.0, (5, 6)),
    }[kind]
    names = ("pure asynchronous", "Ringleader", "4 local steps (asynchronous)")
    found = compare(traces.read_log(times), draws=2, only=names)
    for name in names:
        gain = found.of(name).gain
        assert gain.low <= plain(times) <= gain.high, name
        assert gain.low <= gain.value <= gain.high, name
    assert found.of("synchronous").gain == (1.0, 1.0, 1.0)
