"""Fits of made logs: the law is recognised, and forecasts of real rules follow it.

`python -m tests.clocks.test_fitting 20` prints by how many percent forecasts miss a fresh
continuation of a log with common slow phases, the median over 20 logs.
"""

import sys

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.clocks import hidden_phases
from tests.oracles import clocks as oracle

KEY = jax.random.key(2)
N, STEPS = 10, 8_000  # 100 slow phases of 20 to 60 steps, and as many fast ones
PHASES = {"share": 0.6, "slowdown": 3.0, "lengths": (20, 60), "sigma": 0.25}
RULES = {
    "synchronous": lambda clock, n, key: traces.synchronous(clock, k=N, n_updates=n, key=key),
    "fastest half": lambda clock, n, key: traces.synchronous(clock, k=N // 2, n_updates=n, key=key),
    "buffered": lambda clock, n, key: traces.asynchronous(
        clock, n_updates=n * N // 5, collect=traces.buffered(5), key=key
    ),
    "pure": lambda clock, n, key: traces.asynchronous(clock, n_updates=n * N, key=key),
}


def percent_off(seed, steps=STEPS):
    """By how many percent forecasts miss the time of so many steps, by forecast and rule."""
    rng = np.random.default_rng(seed)
    log, later = (oracle.in_phases(rng, N, steps, **PHASES) for _ in range(2))
    forecasts = {
        "fit": clocks.fit(log).clock,
        "blocks": clocks.resampled(log),
        "independent": clocks.resampled(log, block=1, common=False),
    }
    key = jax.random.key(seed)
    off = {}
    for rule, run in RULES.items():
        truth = run(clocks.recorded(later), steps, key).time[-1]
        for name, clock in forecasts.items():  # phases by chance need longer to be near their mean
            longer = 4 if name == "fit" else 1
            forecast = run(clock, longer * steps, key).time[-1] / longer
            off[name, rule] = 100 * (forecast / truth - 1)
    return off


@pytest.mark.slow
def test_forecasts_of_common_phases_are_right_where_independent_times_are_not():
    rows = [percent_off(seed, steps=4_000) for seed in range(3)]
    off = {case: np.median([abs(row[case]) for row in rows]) for case in rows[0]}
    for rule in RULES:
        assert off["fit", rule] < 8.0, rule
        assert off["blocks", rule] < 5.0, rule
    assert off["independent", "synchronous"] > 20.0
    assert off["independent", "fastest half"] > 20.0


GAMMA = clocks.gamma(9.0, [1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
LAWS = {
    "gamma": GAMMA,
    "shifted_exponential": clocks.shifted_exponential([1.0] * 6, 2.0),
    "constant": clocks.constant([1.0, 2.0, 3.0]),
    "own phases": clocks.phases(GAMMA, slowdown=3.0, fast=40.0, slow=30.0),
    "common phases by step": clocks.phases(
        GAMMA, slowdown=[3.0] * 4 + [1.0] * 2, fast=40.0, slow=30.0, common=True
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_the_law_of_a_log_is_recognised(law):
    log = np.asarray(LAWS[law].durations(KEY, 600), np.float64)
    fitted = clocks.fit(log)
    assert fitted.law == law
    assert str(fitted) == fitted.sentence
    np.testing.assert_allclose(fitted.clock.mean, log.mean(axis=1), rtol=0.01)
    assert all(np.isfinite(score) for score in fitted.scores.values())
    if "phases" in law:
        (phase,) = fitted.clock.phases
        np.testing.assert_allclose(np.median(phase.parameters["slow"]), 3.0, rtol=0.1)
        np.testing.assert_allclose(np.median(1 / phase.parameters["to_fast"]), 30.0, rtol=0.4)
    if law == "common phases by step":
        assert "Workers share slow phases" in fitted.sentence
        assert "4 of 6 workers" in fitted.sentence
        np.testing.assert_array_equal(phase.parameters["slow"][4:], 1.0)


@pytest.mark.slow
def test_phases_by_time_and_drift_are_recognised():
    base = clocks.gamma(9.0, [1.0, 1.5, 2.0, 2.5, 3.0, 6.0])
    by_time = clocks.phases(base, slowdown=3.0, fast=90.0, slow=60.0, common=True, timed=True)
    fitted = clocks.fit(traces.asynchronous(by_time, n_updates=4_000, key=KEY))
    assert fitted.law == "common phases by time"
    assert fitted.clock.powers
    rng = np.random.default_rng(0)
    log = rng.gamma(16.0, 1 / 16, (4, 400)) * np.exp(np.linspace(0, 1, 400))
    drift = clocks.fit(log)
    assert drift.law == "drift"
    assert "at the end of the log jobs take 2." in drift.sentence
    later = traces.synchronous(drift.clock, k=4, n_updates=20, key=KEY).time[-1] / 20
    np.testing.assert_allclose(later, 2.8 * 1.26, rtol=0.15)


def test_short_logs_are_said_to_be_short_and_shorter_ones_refused():
    rng = np.random.default_rng(1)
    log = rng.gamma(2.0, 1.0, (4, 20))
    fitted = clocks.fit(log)
    assert "too short to tell memory from chance: 20 jobs of a worker" in fitted.sentence
    assert not fitted.clock.phases
    assert not set(fitted.scores) & {"own phases", "drift"}
    with pytest.raises(ValueError, match=r"log must have at least 5 jobs .* got 4 of worker 1"):
        clocks.fit([log[0], log[1][:4]])


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_memory_of_the_recordings_is_seen(number):
    recording = clocks.recording(f"job_{number}")
    fitted = clocks.fit(recording)
    logs = np.log(recording.durations)
    lagged = [np.corrcoef(row[:-1], row[1:])[0, 1] for row in logs]
    said = float(fitted.sentence.split("log times is ")[1].split()[0])
    assert 0.6 <= said <= 0.8
    assert abs(said - np.median(lagged)) < 0.03
    assert ("slow together" in fitted.sentence) == (number != 2)
    assert fitted.law == "own phases" or "`resampled` keeps that" in fitted.sentence


def test_the_evidence_of_a_chain_is_the_sum_over_all_paths():
    rng = np.random.default_rng(4)
    gains, begins, ends = rng.normal(size=(9, 2)), np.array([0.2, 0.7]), np.array([0.4, 0.1])
    expected = [
        oracle.two_state_likelihood(*row) for row in zip(gains.T, begins, ends, strict=True)
    ]
    np.testing.assert_allclose(hidden_phases.evidence(gains, begins, ends), expected, rtol=1e-12)


def main():
    rows = [percent_off(seed) for seed in range(int(sys.argv[1]))]
    print("forecast     rule           median  median of the absolute value  largest")
    for name, rule in rows[0]:
        off = np.array([row[name, rule] for row in rows])
        size = np.abs(off)
        print(f"{name:12} {rule:13} {np.median(off):7.1f} {np.median(size):7.1f} {size.max():7.1f}")


if __name__ == "__main__":
    main()
