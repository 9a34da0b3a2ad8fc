"""Slow phases against a plain loop over the same uniforms, and what they are combined with."""

import math

import jax
import numpy as np
import pytest

from asyncjax import clocks, stragglers, traces
from asyncjax.clocks.timeline import timelines
from tests.oracles import clocks as oracle

KEY = jax.random.key(11)
N_JOBS = 300
BASE = clocks.gamma(2.0, [1.0, 2.0, 4.0])
SLOWDOWN = np.array([1.0, 2.0, 5.0])
FAST, SLOW = 6.0, 4.0
PHASES, COMMON = 0x70686173, 0x636F6D6D  # the tags of the streams


def states(key, worker):
    """Whether each job is a slow one, drawn by a plain loop."""
    stream = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, PHASES), 0), worker)
    uniforms = jax.vmap(lambda job: jax.random.uniform(jax.random.fold_in(stream, job)))
    chances = np.float32(1 / FAST), np.float32(1 / SLOW)
    start = np.float32(SLOW / (FAST + SLOW))
    return oracle.two_speeds(uniforms(np.arange(N_JOBS)), 0, 1, *chances, start).astype(bool)


@pytest.mark.slow
@pytest.mark.parametrize("common", [False, True])
def test_phases_are_those_of_the_plain_loop(common):
    clock = clocks.phases(BASE, slowdown=SLOWDOWN, fast=FAST, slow=SLOW, common=common)
    slow = np.stack([states(KEY, COMMON if common else worker) for worker in range(3)])
    expected = BASE.durations(KEY, N_JOBS) * np.where(slow, SLOWDOWN[:, None], 1).astype(np.float32)
    np.testing.assert_array_equal(clock.durations(KEY, N_JOBS), expected)
    assert (slow[0] == slow[1]).all() == common
    later = clock.durations(KEY, 40, first=200)
    np.testing.assert_array_equal(later, expected[:, 200:240])


def test_phases_begin_in_the_long_run():
    clock = clocks.phases(clocks.constant(1.0), slowdown=3.0, fast=30.0, slow=20.0)
    firsts = [float(clock.durations(jax.random.key(seed), 1)[0, 0]) for seed in range(200)]
    assert abs(np.mean(np.array(firsts) == 3.0) - 0.4) < 0.1


@pytest.mark.slow
def test_moments_of_phases_upon_phases():
    inner = clocks.phases(BASE, slowdown=SLOWDOWN, fast=6.0, slow=4.0)
    clock = clocks.phases(inner, slowdown=2.0, fast=5.0, slow=5.0, common=True)
    np.testing.assert_allclose(clock.mean, [1.5, 2 * 1.4 * 1.5, 4 * 2.6 * 1.5])
    drawn = np.asarray(clock.durations(KEY, 60_000), np.float64)
    np.testing.assert_allclose(drawn.mean(axis=1), clock.mean, rtol=0.03)
    np.testing.assert_allclose(drawn.var(axis=1), clock.variance, rtol=0.1)
    floor = clocks.phases(clocks.constant([2.0, 3.0]), slowdown=[0.5, 2.0], fast=9.0, slow=3.0)
    np.testing.assert_array_equal(floor.least(), [1.0, 3.0])


@pytest.mark.slow
def test_mean_lengths_are_those_asked_for():
    clock = clocks.phases(clocks.constant([1.0] * 8), slowdown=2.0, fast=15.0, slow=8.0)
    slow = np.asarray(clock.durations(KEY, 8_000)) > 1.5
    ends = (slow[:, :-1] & ~slow[:, 1:]).sum()
    assert abs(slow.sum() / ends - 8.0) < 0.6
    assert abs(slow.mean() - 8 / 23) < 0.02


@pytest.mark.slow
def test_timed_phases_are_a_power_of_exponential_lengths(float64):
    clock = clocks.phases(BASE, slowdown=SLOWDOWN, fast=FAST, slow=SLOW, common=True, timed=True)
    lines = timelines(clock, KEY)
    for line in lines:
        line.finish(700.0, 1.0)
    begins = np.array(lines[0].begins)
    for line, slowdown in zip(lines, SLOWDOWN, strict=True):
        np.testing.assert_array_equal(line.begins[: len(begins)], begins)
        assert line.rates[:4] == [1.0, 1 / slowdown, 1.0, 1 / slowdown]
        pairs = np.diff(begins), line.rates[: len(begins) - 1], False
        assert math.isclose(line.finish(3.0, 40.0), oracle.finish([pairs], 3.0, 40.0))
    assert abs(np.diff(begins)[2::2].mean() - FAST) < 2.0
    assert abs(np.diff(begins)[1::2].mean() - SLOW) < 1.5
    alone = timelines(clocks.phases(BASE, slowdown=2.0, fast=FAST, slow=SLOW, timed=True), KEY)
    assert alone[0].finish(0.0, 50.0) != alone[1].finish(0.0, 50.0)


def test_timed_phases_begin_in_the_long_run():
    clock = clocks.phases(clocks.constant(1.0), slowdown=3.0, fast=60.0, slow=40.0, timed=True)
    firsts = [timelines(clock, jax.random.key(seed))[0].finish(0.0, 1e-3) for seed in range(150)]
    assert abs(np.mean(np.array(firsts) > 2e-3) - 0.4) < 0.12


@pytest.mark.slow
def test_a_longer_trace_begins_with_the_shorter_one():
    clock = clocks.phases(BASE, slowdown=3.0, fast=9.0, slow=7.0, common=True, timed=True)
    short, long = (traces.asynchronous(clock, n_updates=n, key=KEY) for n in (40, 90))
    np.testing.assert_array_equal(short.time, long.time[:40])
    np.testing.assert_array_equal(short.worker, long.worker[:40])


@pytest.mark.slow
def test_phases_touch_computing_alone_and_come_before_or_after_the_rest():
    how = {"slowdown": SLOWDOWN, "fast": FAST, "slow": SLOW, "common": True}
    links = {"download": clocks.constant(0.5), "upload": clocks.exponential(1.0)}
    before = clocks.communicating(clocks.phases(BASE, **how), **links)
    after = clocks.phases(clocks.communicating(BASE, **links), **how)
    plain = clocks.communicating(BASE, **links).times(KEY, 50)
    for clock in (before, after):
        times = clock.times(KEY, 50)
        np.testing.assert_array_equal(times.upload, plain.upload)
        assert (np.asarray(times.compute) >= plain.compute).all()
    lossy = clocks.with_failures(clocks.phases(BASE, **how), 0.3).durations(KEY, 50)
    np.testing.assert_array_equal(
        np.isinf(lossy), np.isinf(clocks.with_failures(BASE, 0.3).durations(KEY, 50))
    )
    phased = clocks.phases(BASE, **how)
    for powered in (
        clocks.on_off(phased, up=clocks.constant(9.0), down=clocks.constant(1.0)),
        clocks.available(phased, join=[0.0, 1.0, 2.0]),
        clocks.with_speed(phased, [4.0, 2.0], [1.0, 0.5]),
        clocks.phases(phased, slowdown=2.0, fast=9.0, slow=9.0, timed=True),
    ):
        np.testing.assert_array_equal(powered.durations(KEY, 30), phased.durations(KEY, 30))
        trace = traces.asynchronous(powered, n_updates=30, key=KEY)
        assert trace.time[-1] > traces.asynchronous(phased, n_updates=30, key=KEY).time[-1]


@pytest.mark.slow
def test_responses_draw_phases_and_refuse_what_would_ignore_them():
    alike = clocks.phases(
        clocks.exponential([1.0] * 3), slowdown=2.0, fast=3.0, slow=3.0, common=True
    )
    times = stragglers.response(compute=alike, n_workers=3)
    np.testing.assert_array_equal(times.durations(KEY, 20), alike.durations(KEY, 20))
    with pytest.raises(ValueError, match="got exponential, phases; sampled"):
        stragglers.expected_completion(times, 2)
    rounds = stragglers.sampled(times, KEY, 200)
    assert float(stragglers.expected_completion(rounds, 2)) > 0
    with pytest.raises(ValueError, match="compute must be a clock without phases for scaling"):
        stragglers.response(compute=alike, scaling="shift", n_workers=3)
    fixed = clocks.phases(clocks.constant(1.0), slowdown=2.0, fast=3.0, slow=3.0)
    with pytest.raises(ValueError, match="got phases"):
        stragglers.expected_completion(stragglers.response(compute=fixed, n_workers=3), 2)
