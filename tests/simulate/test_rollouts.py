"""Rollouts: seeds pass, reach the rare states, and find what is broken."""

import pytest

from tests.simulate import rollouts, seeds
from tests.simulate.faults import ROLLOUT_FAULTS
from tests.simulate.seeds import failure, run_seeds, shown, shrunk


def test_four_seeds():
    findings, number, _ = run_seeds(rollouts, range(400, 404))
    assert not findings, findings
    assert number == 4


@pytest.mark.slow
def test_two_hundred_schedules_that_are_checked_and_reach_every_rare_state():
    findings, _, sometimes = run_seeds(rollouts, range(200))
    assert not findings, findings
    assert set(sometimes) == set(rollouts.SOMETIMES)
    assert all(sometimes.values()), sometimes


@pytest.mark.slow
@pytest.mark.parametrize("name", ROLLOUT_FAULTS)
def test_a_planted_fault_is_found_and_made_small(name):
    with ROLLOUT_FAULTS[name]():
        findings, number, _ = run_seeds(rollouts, range(40))
        assert findings, "no seed found it"
        small = shrunk(rollouts, findings[0].scenario)
        assert failure(rollouts, small) is not None
    assert small.n_steps <= 3 < findings[0].scenario.n_steps
    assert failure(rollouts, small) is None
    print(name, number, findings[0].message, shown(small))


def test_the_command_tells_what_failed_made_small(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(seeds, "CAMPAIGN", tmp_path / "campaign.json")
    monkeypatch.setattr("sys.argv", ["seeds", "rollouts", "--seeds", "2", "--write"])
    with ROLLOUT_FAULTS["one too many"]():
        assert seeds.main()
    told = capsys.readouterr().out
    assert "FAILED seed 0: Violation: " in told
    assert "made small: Scenario(seed=0, " in told
    assert '"failed": 2' in (tmp_path / "campaign.json").read_text()
