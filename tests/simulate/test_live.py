"""Live runs in virtual time: seeds pass, reach the rare states, and find what is broken."""

from collections import Counter

import numpy as np
import pytest

from asyncjax import simulation
from tests.simulate import live
from tests.simulate.faults import LIVE_FAULTS
from tests.simulate.seeds import failure, run_seeds, shown, shrunk

pytestmark = pytest.mark.slow  # what they compile alone takes seconds


def test_forty_runs_that_are_checked_and_reach_every_rare_state():
    findings, _, sometimes = run_seeds(live, range(330, 370))
    assert not findings, findings
    assert set(sometimes) == set(live.SOMETIMES)
    assert all(sometimes.values()), sometimes


@pytest.mark.parametrize("name", LIVE_FAULTS)
def test_a_planted_fault_is_found_and_made_small(name):
    with LIVE_FAULTS[name]():
        findings, number, _ = run_seeds(live, range(40))
        assert findings, "no seed found it"
        small = shrunk(live, findings[0].scenario)
        assert failure(live, small) is not None
    assert small.n_updates <= findings[0].scenario.n_updates
    assert len(shown(small)) < len(shown(findings[0].scenario))
    assert failure(live, small) is None
    print(name, number, findings[0].message, shown(small))


def test_the_replay_of_the_library_gives_the_same_bits():
    """As `tests/live` asks of plain SGD; the shapes are those of one length."""
    for seed in (3, 4):
        drawn = live.Scenario(seed, 3, 8, losses=(0.1, 0.1, 0.1), kills=(("after a step", 3),))
        world, run = live.run(drawn, Counter())
        assert world.sometimes["resumed"]
        problem, sgd = live.problem_of(False), live.sgd(0.1)
        again = simulation.replay(problem, run.trace, sgd, waves=False)
        np.testing.assert_array_equal(run.params, again.params)
