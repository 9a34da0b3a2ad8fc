"""Golden traces: first arrivals, counts and times of every rule, by hand-checkable constant speeds
1..6.
"""

from itertools import islice

import numpy as np
import pytest

from asyncjax import clocks, traces
from tests.oracles.events import Congruential

SPEEDS = np.arange(1.0, 7.0)


def permutations(count, seed=1):
    return list(islice(Congruential(seed).permutations(6), count))


def draws(count, seed=1):
    generator = Congruential(seed)
    return [generator.draw(6) for _ in range(count)]


SHUFFLED = traces.given(permutations(200))


def make(n_updates, **arguments):
    trace = traces.asynchronous(clocks.constant(SPEEDS), n_updates=n_updates, **arguments)
    return traces.validate(trace)


RULES = {
    "pure": {},
    "random": {"dispatch": traces.given(draws(200))},
    "shuffled": {"dispatch": SHUFFLED},
    "shuffled, read at start": {"dispatch": SHUFFLED, "read": "start"},
    "shuffled once": {"dispatch": traces.given(permutations(6) * 40)},
    "one open job": {"dispatch": traces.given(permutations(61)), "concurrency": 1},
    "pure, wait 2": {"collect": traces.wait_for(2)},
    "shuffled, wait 3": {"dispatch": SHUFFLED, "collect": traces.wait_for(3)},
    "buffered 3": {"collect": traces.buffered(3)},
    "rennala 3": {"collect": traces.rennala(3)},
    "malenia 1.2": {"collect": traces.malenia(1.2)},
    "ringmaster 5": {"collect": traces.ringmaster(5)},
    "ringmaster 5, cancel": {"collect": traces.ringmaster(5, cancel=True)},
    "table": {"collect": traces.table()},
    "buffered 2": {"collect": traces.buffered(2)},
    "gate": {"gate": traces.lead_at_most(1), "read": "start"},
}
# A table, whose delay the source counts in arrivals, has none here (-).
ROWS = """
rule; updates, arrivals, last time; arrivals by worker; largest delay; time/worker/read version
pure; 120 120 50; 50 25 16 12 9 8; 14; 1/0/0 2/0/1 2/1/0 3/0/2 3/2/0 4/0/4 4/1/3 4/3/0
random; 120 120 124; 26 13 17 22 24 18; 16; 1/0/0 2/1/0 3/0/2 3/2/0 4/0/3 4/3/0 5/4/0 6/2/1
shuffled; 120 120 108; 20 21 20 21 20 18; 20; 1/0/0 2/1/0 3/2/0 4/1/2 4/3/0 5/0/4 5/4/0 6/0/7
shuffled, read at start; 100 100 89; 17 18 17 17 17 14; 13;
shuffled once; 120 120 109; 21 21 20 20 20 18; 21;
one open job; 60 60 210; 10 10 10 10 10 10; 0; 6/5/0 8/1/1 12/3/2 13/0/3 18/4/4 21/2/5
pure, wait 2; 60 120 54; 51 25 16 11 9 8; 8; 1/0/0 2/1/0 3/0/1 3/2/0 4/0/2 4/1/1 4/3/0 5/0/3
shuffled, wait 3; 60 180 174; 30 30 31 30 30 29; 5; 1/0/0 2/1/0 3/2/0 4/3/0 5/1/1 5/4/0 6/0/2 6/5/0
buffered 3; 60 180 75; 75 37 24 18 14 12; 5; 1/0/0 2/0/0 2/1/0 3/0/0 3/2/0 4/0/1 4/1/1 4/3/0
rennala 3; 40 258 106; 106 53 35 26 21 17; 3; 1/0/0 2/0/0 2/1/0 3/0/0* 3/2/0* 4/0/1 4/1/1 4/3/0*
malenia 1.2; 20 425 174; 174 87 58 43 34 29; 1;
ringmaster 5; 100 143 60; 60 30 19 14 11 9; 10;
ringmaster 5, cancel; 100 100 60; 60 30 10 0 0 0; 4;
table; 100 113 48; 48 23 15 11 9 7; -;
buffered 2; 40 80 34; 34 16 11 8 6 5; 7; 1/0/0 2/0/0 2/1/0 3/0/1 3/2/0 4/0/2 4/1/1 4/3/0
gate; 60 60 55; 11 10 10 10 10 9; -; 1/0/0 2/0/1 2/1/0 3/2/0 4/1/3 4/3/0 5/4/0 6/2/4
"""


@pytest.mark.parametrize("row", ROWS.strip().splitlines()[1:], ids=lambda row: row.split(";")[0])
def test_golden_row(row):
    name, sizes, counts, delay, first = (cell.strip() for cell in row.split(";"))
    n_updates, arrivals, last = map(int, sizes.split())
    trace = make(n_updates, **RULES[name])
    shown = [
        f"{t:g}/{w}/{r}" + ("" if used else "*")
        for t, w, r, used in zip(
            trace.time, trace.worker, trace.read_version, trace.used, strict=True
        )
    ]
    assert shown[: len(first.split())] == first.split()
    assert (len(trace.time), trace.time[-1]) == (arrivals, last)
    assert np.bincount(trace.worker, minlength=6).tolist() == list(map(int, counts.split()))
    if delay != "-":
        assert max(trace.delay.max(), traces.summarize(trace).open_ages.max()) == int(delay)


def test_the_generator_of_the_golden_rows():
    assert draws(8) == [2, 0, 0, 3, 5, 4, 2, 0]
    assert permutations(12) == [5, 1, 3, 0, 4, 2, 0, 1, 3, 5, 2, 4]


def test_fresher_than_five_throws_the_first_stale_gradient_away():
    trace = make(100, collect=traces.ringmaster(5))
    assert [trace.worker[7], trace.read_version[7], trace.used[7]] == [3, 0, False]


def test_a_table_first_steps_when_the_slowest_has_been_heard():
    trace = make(100, collect=traces.table())
    assert int(np.argmax(trace.steps)) + 1 == 14


def test_equal_speeds_give_delay_n_minus_one():
    trace = traces.asynchronous(clocks.constant(np.ones(5)), n_updates=40)
    assert trace.delay.tolist() == [0, 1, 2, 3] + [4] * 36
