"""Timelines against a plain walk over the pieces in exact fractions."""

import itertools
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks
from asyncjax.clocks.timeline import timelines
from tests.oracles import clocks as oracle

KEY = jax.random.key(5)

EIGHTHS = st.integers(1, 80).map(lambda k: k / 8)
DYADIC_RATES = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])
QUESTIONS = st.tuples(st.integers(0, 2000).map(lambda k: k / 8), EIGHTHS.map(lambda w: 4 * w))
LENGTHS, RATES = st.floats(0.05, 20.0), st.floats(0.1, 10.0)
JOBS = st.tuples(st.floats(0.0, 500.0), st.floats(0.01, 100.0))


@st.composite
def tables(draw, lengths, rates, zeros):
    """One power of one worker: (lengths, rates, repeats)."""
    size, repeats = draw(st.integers(1, 5)), draw(st.booleans())
    drawn = draw(st.lists(rates, min_size=size, max_size=size))
    if repeats or not zeros:
        drawn = [*drawn[:-1], drawn[-1] or 1.0]
    return draw(st.lists(lengths, min_size=size, max_size=size)), drawn, repeats


def recorded_lengths(clock, key, worker, first, count):
    table = clock.parameters["durations"]
    return table[worker[:, None], (first[:, None] + np.arange(count)) % table.shape[1]]


def line_of(powers):
    clock = clocks.constant(1.0)
    for lengths, rates, repeats in powers:
        clock = clocks.with_speed(clock, lengths, rates, repeats=repeats)
    (line,) = timelines(clock, None, draw=recorded_lengths)
    return line


def together(power, others):
    """Powers that are never 0 all the time: only the first may be 0 at all."""
    return [power, *((lengths, [r or 1.0 for r in rates], rep) for lengths, rates, rep in others)]


DYADIC = st.builds(
    together,
    tables(EIGHTHS, DYADIC_RATES, zeros=True),
    st.lists(tables(EIGHTHS, DYADIC_RATES, zeros=False), max_size=2),
)
GENERAL = st.lists(tables(LENGTHS, RATES, zeros=False), min_size=1, max_size=2)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(DYADIC, st.lists(QUESTIONS, min_size=1, max_size=6))
def test_dyadic_numbers_are_answered_exactly(powers, questions):
    line = line_of(powers)
    for start, work in questions:
        assert line.finish(start, work) == oracle.finish(powers, start, work)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(GENERAL, st.lists(JOBS, min_size=1, max_size=4))
def test_general_numbers_are_answered_to_rounding(powers, questions):
    line = line_of(powers)
    for start, work in questions:
        assert math.isclose(
            line.finish(start, work), oracle.finish(powers, start, work), rel_tol=1e-12
        )


@settings(max_examples=100, deadline=None)
@given(DYADIC, st.lists(QUESTIONS, min_size=2, max_size=6))
def test_later_starts_and_more_work_end_no_earlier(powers, questions):
    line = line_of(powers)
    for (start, work), (other, more) in itertools.permutations(questions, 2):
        end = line.finish(start, work)
        assert end > start
        if other >= start and more >= work:
            assert line.finish(other, more) >= end
    start, work = questions[0]
    first = line.finish(start, work / 2)
    assert first == math.inf or line.finish(first, work / 2) == line.finish(start, work)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(GENERAL, st.lists(JOBS, min_size=2, max_size=6))
def test_answers_do_not_depend_on_earlier_questions(powers, questions):
    forth, back = line_of(powers), line_of(powers)
    answers = [forth.finish(*question) for question in questions]
    assert [back.finish(*question) for question in reversed(questions)] == answers[::-1]
    assert all(line_of(powers).finish(*questions[0]) == answers[0] for _ in range(2))


def test_long_runs_do_not_drift():
    power = [0.125, 0.375, 1.0, 0.25], [0.5, 0.0, 2.0, 1.0], True
    line, now = line_of([power]), 0.0
    for _ in range(20_000):
        now = line.finish(now, 2.3125)  # a period of 1.75 does exactly this much work
    assert now == 20_000 * 1.75


def test_work_below_the_rounding_of_the_total_still_waits_for_the_outage_to_end():
    line = line_of([([2.0**60, 4096.0], [1.0, 0.0], True)])
    assert line.finish(2.0**60, 1e-6) == 2.0**60 + 4096.0


@pytest.fixture
def outages():
    up, down = clocks.exponential([3.0, 1.0]), clocks.exponential([1.0, 5.0])
    clock = clocks.available(clocks.exponential([1.0, 2.0]), join=[0.0, 2.0])
    return clocks.on_off(clock, up=up, down=down), up, down


@pytest.mark.slow
def test_lengths_come_from_streams_of_their_own(outages, float64):
    clock, up, down = outages
    stream = jax.random.fold_in(jax.random.fold_in(KEY, 0x706F7765), 1)  # the second power
    ups, downs = (
        np.asarray(law.durations(jax.random.fold_in(stream, index), 120))
        for index, law in enumerate((up, down))
    )
    for worker, line in enumerate(timelines(clock, KEY)):
        pairs = np.stack([ups[worker], downs[worker]], 1).ravel()
        powers = [
            (pairs, [1.0, 0.0] * 120, True),
            ([[0.5, 2.0][worker]], [worker == 0, 1.0], False),
        ]
        for start, work in ((0.0, 1.0), (17.0, 30.0), (3.0, 0.5), (400.0, 5.0)):
            assert math.isclose(
                line.finish(start, work), oracle.finish(powers, start, work), rel_tol=1e-12
            )
    assert len(line.rates) > 130  # more than one block
