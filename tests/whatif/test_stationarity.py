"""Whether a log is alike throughout: its twins, false alarms, drift, how often intervals hold."""

from functools import partial

import numpy as np
import pytest

from asyncjax import clocks, traces, whatif
from asyncjax.whatif import page, stationarity
from asyncjax.whatif.stationarity import ALARM, stationarity_of, times_of
from experiments.reality.windows import MADE, STEADY, drifting, stepping
from tests.oracles import stationarity as oracle


def log_of(kind, seed, jobs, n=10):
    return MADE[kind](np.random.default_rng([7, seed]), n, jobs)


def told(table, **settings):
    return stationarity_of(traces.read_log(table), **settings)


def test_times_and_intervals_are_those_of_the_slow_twin():
    table = np.random.default_rng(0).gamma(4.0, 1.0, (5, 61)) * np.linspace(1, 2, 5)[:, None]
    found = told(table, ahead=0.3)
    assert found.rules == ("synchronous", "fastest 4 of 5", "fastest 2 of 5", "pure asynchronous")
    wanted = [oracle.time_of_gradient(table, k) for k in (5, 4, 2, None)]
    np.testing.assert_allclose([one.value for one in found.pace], wanted, rtol=1e-12)
    half = oracle.half_width(table, (5, 4, 2), 0.3, (6, 12, 24))
    np.testing.assert_allclose([np.log(i.high / i.value) for i in found.pace], half, rtol=1e-9)
    np.testing.assert_allclose([np.log(i.value / i.low) for i in found.pace], half, rtol=1e-9)
    parts = [oracle.time_of_gradient(part, 5) for part in oracle.windows(table, 24)]
    np.testing.assert_allclose(found.windows[:, 0] * wanted[0], parts, rtol=1e-12)
    gains = [wanted[0] / time for time in wanted]
    np.testing.assert_allclose([one.value for one in found.gain], gains, rtol=1e-12)


def test_sizes_of_steps_and_lines_are_those_of_the_slow_twin():
    row = np.random.default_rng(1).standard_normal(13) + (np.arange(13) > 7)
    step, at, line = oracle.sizes(row)
    found = stationarity._sizes(row[None])[0]
    steps = stationarity._shapes(13)[1]
    np.testing.assert_allclose([found[:-1].max(), found[-1]], [step, line], rtol=1e-9)
    assert steps[found[:-1].argmax()] == at == 8


def test_p_values_of_independent_windows_are_uniform():
    """As stated, a fifth of them below 0.2 (times two and the number of rules, here one)."""
    rows = np.random.default_rng(3).standard_normal((24, 400))
    chance = stationarity._by_chance(24)
    sizes = stationarity._sizes(rows.T)
    for values, null in zip((sizes[:, :-1].max(axis=1), sizes[:, -1]), chance, strict=True):
        share = np.mean(values > np.quantile(null, 0.8))
        assert abs(share - 0.2) < 4 * (0.2 * 0.8 / 400) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "jobs"), [(STEADY[0], 60), (STEADY[1], 250), (STEADY[2], 1000)])
def test_false_alarms_are_as_rare_as_stated(kind, jobs):
    """Logs some twenty times as long as what jobs remember: 1, 6 and 40 of them."""
    alarms = sum(told(log_of(kind, seed, jobs)).is_alarm for seed in range(60))
    # More than 7 of 60 have probability 0.01 where the rate is 0.05.
    assert alarms <= 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "jobs", "least"),
    [(partial(drifting, to=1.36), 250, 18), (stepping, 300, 18), (stepping, 900, 20)],
)
def test_drift_is_seen_and_what_follows_lies_in_the_interval(make, jobs, least):
    """Times grow to 1.3 times over the log, and on for a fifth of it; or at once, and stay.

    Halves of such a drift differ by 1.14, of logs of 250 jobs give or take 0.02, so that one in
    fifty seems to differ by less than a tenth; a step in 300 jobs that remember may be a phase.
    """
    alarms, inside = 0, []
    for seed in range(20):
        table = make(np.random.default_rng([7, seed]), 10, jobs * 6 // 5)
        found = told(table[:, :jobs])
        alarms += found.is_alarm
        truth = np.exp(times_of(table[:, jobs:]))
        inside += [low <= t <= high for t, (_, low, high) in zip(truth, found.pace, strict=True)]
        if found.is_alarm:
            first, second = (period.times for period in found.periods)
            assert (second > first).all()
    assert alarms >= least
    assert np.mean(inside) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("kind", STEADY)
def test_intervals_hold_as_often_as_stated_in_steady_logs(kind):
    inside = []
    for seed in range(60):
        table = log_of(kind, seed, 300)
        found, truth = told(table[:, :250]), np.exp(times_of(table[:, 250:]))
        inside += [low <= t <= high for t, (_, low, high) in zip(truth, found.pace, strict=True)]
    assert np.mean(inside) >= 0.85  # stated: 0.9


def test_jobs_1_to_3_are_alike_throughout_and_job_4_is_not():
    for name in ("job_1", "job_2", "job_3"):
        found = told(clocks.recording(name).durations)
        assert found.is_told
        assert not found.is_alarm
        assert np.abs(found.halves - 1).max() < 0.06
    times = clocks.recording("job_4").durations
    found = told(times)
    assert found.is_alarm
    assert found.p_values[0] < ALARM
    assert found.halves[[0, 2]].round(2).tolist() == [1.63, 0.88]
    half = times.shape[1] // 2
    for part in (times[:, :half], times[:, half:]):
        for time, (_, low, high) in zip(np.exp(times_of(part)), found.pace, strict=True):
            assert low <= time <= high
    first, second = (period.times[0] for period in found.periods)
    assert second > 2.5 * first


def test_logs_that_are_too_short_and_odd_ones():
    for jobs in (1, 5):
        found = told(np.arange(1.0, 1 + 2 * jobs).reshape(2, jobs))
        assert not found.is_told
        assert not found.is_forecast
        assert not found.is_alarm
    short = told(np.random.default_rng(0).gamma(4.0, 1.0, (3, 9)))
    assert not short.is_told
    assert short.is_forecast
    constant = told(np.full((4, 40), 2.0))
    assert constant.pace[0] == pytest.approx((0.5, 0.5, 0.5))
    assert constant.is_told
    assert not constant.is_alarm
    alone = told(np.random.default_rng(0).gamma(4.0, 1.0, (1, 40)))
    assert alone.rules == ("synchronous",)


def test_rows_of_any_length_stand_side_by_side_by_their_share():
    even = np.random.default_rng(0).gamma(4.0, 1.0, (2, 40))
    rows = {"a": np.repeat(even[0], 3), "b": even[1]}
    found = told({name: row.tolist() for name, row in rows.items()})
    wanted = told(np.stack([rows["a"], np.repeat(even[1], 3)]))
    np.testing.assert_allclose(found.halves, wanted.halves)
    assert len(found.windows) <= 20  # of two jobs of the worker with fewest


@pytest.mark.slow
def test_it_is_said_first_and_answered_by_period():
    rng = np.random.default_rng(0)
    table = rng.gamma(16.0, 1 / 16, (4, 96))
    table[0, 48:] *= 2.0
    answer = whatif.answer(table, quick=True)
    words, text, shown = answer.words, answer.text(), answer.html()
    assert words.headline.startswith(
        "This log is not stationary: in its second half a gradient takes"
    )
    assert text.startswith("This log is not stationary")
    assert shown.index("This log is not stationary") < shown.index("<svg")
    assert "of the log synchronous rounds take" in words.sentences[1]
    first, second = answer.by_period
    assert (
        second.of("pure asynchronous").gain.value > 1.2 * first.of("pure asynchronous").gain.value
    )
    numbers = answer.numbers()
    assert numbers["stationarity"]["halves"][0] > 1.5
    assert len(numbers["rules_by_period"]) == 2
    heads = [column.heading for column in page.pace_table(answer.stationarity, answer.log).columns]
    assert heads[1:3] == ["0 to 50 %", "50 to 100 %"]


@pytest.mark.slow
def test_a_short_log_and_a_steady_one_say_so():
    short = whatif.answer({"a": [1.0, 2.0], "b": [1.0, 3.0, 2.0]}, quick=True).words.sentences
    assert short[0].startswith("The log is too short to tell whether it drifts")
    assert short[1] == "It is too short to say how far the pace of what follows may be off."
    table = np.random.default_rng(0).gamma(16.0, 1 / 16, (4, 96))
    steady = whatif.answer(table, quick=True).words
    assert steady.sentences[0].startswith(
        "The log is alike throughout, as far as its length can tell"
    )
    assert "nine times in ten" in steady.sentences[1]
    assert "stationary" not in steady.headline
