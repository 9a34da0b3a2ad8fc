"""Powers: what the factories build, how they combine, and that draws are made at power 1."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import clocks
from asyncjax.clocks.timeline import timelines

KEY = jax.random.key(5)
INF = float("inf")


def ends(clock, start, work, key=None):
    return [line.finish(start, work) for line in timelines(clock, key)]


def test_a_table_by_hand():
    clock = clocks.with_speed(clocks.constant(1.0), [1.0, 2.0], [[2.0, 0.5], [0.0, 1.0]])
    first, second = timelines(clock, None)
    assert [first.finish(0.0, work) for work in (1.0, 2.0, 2.5, 3.0, 5.0)] == [0.5, 1, 2, 3, 4]
    assert [first.finish(start, 1.0) for start in (0.5, 0.75, 3.0, 1.0)] == [1.0, 2.0, 3.5, 3.0]
    assert [second.finish(0.0, work) for work in (1.0, 2.0, 3.0)] == [2.0, 3.0, 5.0]


def test_a_table_that_does_not_repeat():
    for lengths in ([1.0, 2.0], [1.0, 2.0, 99.0]):
        slows = clocks.with_speed(clocks.constant(1.0), lengths, [1.0, 0.5, 0.25], repeats=False)
        assert ends(slows, 0.0, 3.0) == [7.0]
        quits = clocks.with_speed(clocks.constant(1.0), lengths, [1.0, 0.5, 0.0], repeats=False)
        assert ends(quits, 0.0, 2.0) == [3.0]
        assert ends(quits, 0.0, 2.125) == ends(quits, 3.0, 0.125) == ends(quits, 50.0, 1.0) == [INF]
    half = clocks.with_speed(clocks.constant(1.0), [4.0], [0.5], repeats=False)
    assert ends(half, 1.0, 3.0) == [7.0]


def test_an_outage_may_be_longer_than_the_job():
    clock = clocks.on_off(
        clocks.constant(1.0), up=clocks.constant([3.0, 2.0]), down=clocks.constant(100.0)
    )
    assert ends(clock, 0.0, 3.0) == [3.0, 103.0]
    assert ends(clock, 50.0, 1.0) == [104.0, 103.0]
    assert ends(clock, 2.0, 2.0) == [104.0, 104.0]


def test_present_from_join_to_leave():
    clock = clocks.available(clocks.constant(1.0), join=[0.0, 5.0, 0.3], leave=[7.0, INF, 0.7])
    assert ends(clock, 0.0, 2.0) == [2.0, 7.0, INF]
    assert ends(clock, 6.0, 1.0) == [7.0, 7.0, INF]
    assert ends(clock, 6.0, 1.5) == [INF, 7.5, INF]
    assert ends(clock, 8.0, 0.125) == [INF, 8.125, INF]
    assert timelines(clock, None)[2].finish(0.0, 0.1) == 0.3 + 0.1
    assert clocks.available(clocks.constant(1.0)).is_plain
    assert ends(clocks.available(clocks.constant(1.0), leave=2.5), 2.0, 0.5) == [2.5]


def test_who_has_left_is_away_for_ever_whatever_else_happens():
    up_and_down = {"up": clocks.constant(1.0), "down": clocks.constant(1.0)}
    clock = clocks.on_off(clocks.available(clocks.constant(1.0), leave=2.5), **up_and_down)
    assert ends(clock, 0.0, 1.5) == [2.5]
    assert ends(clock, 0.0, 1.625) == [INF]


def test_powers_multiply_in_any_order():
    def half(clock):
        return clocks.with_speed(clock, [4.0, 4.0], [1.0, 0.5])

    def outages(clock):
        return clocks.on_off(clock, up=clocks.constant(3.0), down=clocks.constant(1.0))

    one = clocks.constant([1.0, 2.0])
    clock = outages(half(one))
    assert len(clock.powers) == 2
    assert ends(clock, 0.0, 3.0) == [3.0, 3.0]
    assert ends(clock, 0.0, 4.0) == [6.0, 6.0]
    assert ends(half(outages(one)), 0.0, 4.0) == [6.0, 6.0]


def test_a_worker_without_any_power_is_refused_when_asked(monkeypatch):
    monkeypatch.setattr(importlib.import_module("asyncjax.clocks.timeline"), "_PATIENCE", 1000)
    never = clocks.with_speed(clocks.constant(1.0), [1.0, 1.0], [1.0, 0.0])
    never = clocks.with_speed(never, [1.0, 1.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="powers must let a worker go on"):
        ends(never, 0.0, 1.0)


def test_an_outage_may_be_the_last():
    gone = clocks.with_failures(clocks.constant(2.0), [0.0, 0.99])
    clock = clocks.on_off(clocks.constant(1.0), up=clocks.constant(4.0), down=gone)
    assert ends(clock, 0.0, 4.0, KEY) == [4.0, 4.0]
    assert ends(clock, 0.0, 40.0, KEY) == [58.0, INF]


def test_numbers_of_workers_are_broadcast():
    one, three = clocks.constant(1.0), clocks.constant([1.0, 2.0, 3.0])
    for clock in (
        clocks.on_off(one, up=three, down=one),
        clocks.on_off(three, up=one, down=one),
        clocks.with_speed(one, [1.0, 2.0], np.ones((3, 2))),
        clocks.with_speed(one, np.ones((3, 2)), [1.0, 2.0]),
        clocks.with_speed(three, [1.0], [1.0]),
        clocks.available(one, join=[0.0, 1.0, 2.0]),
        clocks.available(three, leave=5.0),
        clocks.communicating(clocks.on_off(one, up=one, down=one), upload=three),
        clocks.with_failures(clocks.on_off(one, up=one, down=one), [0.1, 0.2, 0.3]),
        clocks.with_failures(clocks.available(one, leave=2.0), 0.5).broadcast(3),
    ):
        assert clock.n_workers == 3
        assert len(clock.powers) == 1
        assert {leaf.shape[0] for leaf in jax.tree.leaves(clock)} == {3}
        assert len(timelines(clock, KEY)) == 3


def test_everything_combines():
    clock = clocks.communicating(clocks.constant(2.0), download=clocks.constant(0.5))
    clock = clocks.with_failures(
        clocks.on_off(clock, up=clocks.constant(3.0), down=clocks.constant(1.0)), 0.25
    )
    clock = clocks.communicating(clock, upload=clocks.constant([1.0, 2.0]))
    parts = clock.times(KEY, 41)
    lost = np.isinf(parts.compute)
    assert 0 < lost.sum() < 82
    back = [
        line.finish(2.0 + float(download), 2.0) + float(upload)
        for line, download, upload in zip(
            timelines(clock, KEY), parts.download[:, 0], parts.upload[:, 0], strict=True
        )
    ]
    assert back == [6.5, 7.5]  # at the worker at 2.5, outage from 3 to 4, done at 5.5 and sent


def test_factories_take_tracers():
    @jax.jit
    def draw(mean, rates):
        clock = clocks.with_speed(clocks.constant(mean), [1.0, 2.0], rates)
        clock = clocks.available(clock, join=mean, leave=3 * mean)
        return clock, clocks.with_failures(clock, mean / 4).durations(KEY, 3)

    clock, times = draw(2.0, jnp.asarray([1.0, 0.5]))
    assert times.shape == (1, 3)
    assert len(clock.powers) == 3
    assert ends(clock, 0.0, 1.5) == [4.0]
