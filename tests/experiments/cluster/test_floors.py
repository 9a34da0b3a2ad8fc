"""Price floors on tiny sizes: learned on their own instances, told on others, verdicts by rule."""

from functools import partial

import numpy as np
import pytest

from asyncjax import cluster, results
from asyncjax.study import protocol
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART
from experiments.cluster import floors
from experiments.cluster.floors import LEARNED, LITERAL, MOVED, REFERENCE, Settings
from experiments.common import numbers

SMALL = {"n_jobs": 8, "n_slots": 6, "n_machines": 4}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    output = tmp_path_factory.mktemp("cluster_floors")
    return Settings(
        output=output,
        instances=2,
        tuning_instances=2,
        trials=2,
        n_jobs=8,
        n_slots=6,
        n_machines=4,
        large=4,
    )


@pytest.fixture(scope="module")
def part(settings):
    return floors.run(settings)


@pytest.mark.slow
def test_the_floor_is_the_best_of_its_trials_as_the_library_finds_it(part):
    past = [
        cluster.workloads.balanced(one.data, **SMALL)
        for one in protocol.seeds_of(0, protocol.TUNING, 2)
    ]
    own = part.numbers["points"][REFERENCE]
    lows, earned, _ = np.array(own["floors"]["pd_ors"]).T
    choice = cluster.choose_floor(past, n_slots=6, lows=lows)
    np.testing.assert_allclose(choice.utilities.mean(axis=1), earned, rtol=1e-4)
    at = int(np.searchsorted(lows, own["tuning"]["pd_ors"]["chosen"]["low"]))
    assert earned[at] == max(earned)


@pytest.mark.slow
def test_both_sets_are_played_with_that_floor(part):
    own = part.numbers["points"][REFERENCE]
    chosen = own["tuning"]["pd_ors"]["chosen"]["low"]
    for letter, role in (("A", protocol.SET_A), ("B", protocol.SET_B)):
        for at, one in enumerate(protocol.seeds_of(0, role, 2)):
            made = cluster.workloads.balanced(one.data, **SMALL)
            for name, low in ((LEARNED, chosen), (LITERAL, None)):
                schedule = cluster.pd_ors(*made, n_slots=6, low=low)
                expected = cluster.total_utility(schedule, made[0])
                assert own["sets"][letter][name][at] == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_every_tuned_rule_has_as_many_trials(part, settings):
    for own in part.numbers["points"].values():
        assert len({one["trials"] for one in own["tuning"].values()}) == 1
    assert MOVED not in part.numbers["points"][REFERENCE]["sets"]["A"]
    assert MOVED in part.numbers["points"]["more machines"]["sets"]["A"]
    assert all(path.stat().st_size > 5_000 for path, _ in part.figures)
    assert set(part.numbers["verdicts"]["A"].values()) <= {
        HOLDS,
        IN_PART,
        FAILS,
        "no significant difference",
    }


@pytest.mark.slow
def test_tables_are_made_from_the_committed_numbers(part, settings, monkeypatch, tmp_path):
    monkeypatch.setattr(numbers, "load", partial(numbers.load, folder=tmp_path))
    numbers.save("cluster_floors", part.numbers, folder=tmp_path)
    monkeypatch.setattr(floors, "measured", None)
    again = floors.run(Settings(output=tmp_path, committed=True))
    for one, other in zip(part.tables, again.tables, strict=True):
        assert results.as_text(one) == results.as_text(other)


def made_up(learned, moved=1.5):
    """Numbers in which a learned and a carried floor earn so many times the literal one."""
    generator = np.random.default_rng(0)
    points = {}
    for name in (REFERENCE, "half the work", "more machines"):
        base = generator.lognormal(5, 0.3, 10)
        noise = generator.lognormal(0, 0.05, 10)
        own = {LITERAL: base, LEARNED: learned * base * noise, "marginal_goodput": 1.4 * base}
        own["learned floor, choosing servers"] = 2 * base * noise
        own |= {} if name == REFERENCE else {MOVED: moved * base * noise}
        points[name] = {"sets": {"A": {rule: list(earned) for rule, earned in own.items()}}}
    return {"points": points}


def test_the_verdict_flips_with_what_floors_earn():
    assert floors.verdicts(made_up(1.5), "A")[floors.CLAIM] == HOLDS
    assert floors.verdicts(made_up(0.8), "A")[floors.CLAIM] == FAILS
    mixed = made_up(1.5)
    worse = made_up(0.8)["points"]["half the work"]
    mixed["points"]["half the work"] = worse
    assert floors.verdicts(mixed, "A")[floors.CLAIM] == IN_PART
    assert floors.verdicts(made_up(1.5, moved=0.7), "A")[floors.MOVED_CLAIM] == FAILS
    assert floors.verdicts(made_up(1.0), "A")[floors.RIVAL_CLAIM] == FAILS


def test_committed_verdicts_follow_from_the_committed_numbers():
    """The row on learned floors of docs/claims.md, and the table in experiments/README.md."""
    found = numbers.load("cluster_floors")
    for letter in "AB":
        assert floors.verdicts(found, letter) == found["verdicts"][letter]
    text = (numbers.FOLDER.parent / "README.md").read_text(encoding="utf-8")
    for table in (floors.verdict_table(found), floors.utility_table(found)):
        rows = [row for row in results.as_markdown(table).splitlines() if row.startswith("|")]
        assert "\n".join(rows) in text


@pytest.mark.slow
def test_the_floor_of_best_delays_is_above_the_literal_one():
    jobs, machines = cluster.workloads.balanced(0)
    assert floors.best_delay_floor(jobs, machines, 20) == pytest.approx(6.192316e-13)
    assert cluster.price_bounds(jobs, machines, n_slots=20).low < 1e-40
