"""The comparison of schedulers on tiny sizes: pairs, tables, verdicts, and what is written."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from asyncjax import cluster, results, storage
from asyncjax.study import protocol
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART, disagreements
from experiments.cluster import rivals, tuned, verdicts
from experiments.cluster.rivals import Settings
from experiments.cluster.rivals_runs import (
    Played,
    Point,
    _digest,
    difference,
    points,
    utilities,
    workload,
)
from experiments.common import numbers

pytestmark = pytest.mark.slow  # one run serves all tests of this file

SMALL: dict[str, Any] = {"n_jobs": 8, "n_slots": 6, "n_machines": 4}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("cluster_rivals"),
        instances=2,
        few=2,
        tuning_instances=1,
        trials=2,
        **SMALL,
        plenty=4,
        ranges=(8, 6, 4),
        machines=(4,),
        jobs=(8,),
        loads=(0.05, 1.0),
        schedulers=("pd_ors", "drf", "fifo", "marginal_goodput"),
        local_machines=4,
        parts=(),
        draws=0,
        splits=(0.3, 0.5),
    )


@pytest.fixture(scope="module")
def part(settings):
    return rivals.run(settings)


def drawn(settings, name="A"):
    """Jobs and machines of a set, from the definition."""
    role = {"A": protocol.SET_A, "B": protocol.SET_B}[name]
    drawn = protocol.seeds_of(0, role, settings.instances)
    return [(one.data, cluster.workloads.balanced(one.data, **SMALL)) for one in drawn]


def test_outcomes_are_those_of_the_schedulers(part, settings):
    for name in ("A", "B"):
        found = part.numbers["sets"][name]["points"]["scarce"]
        for index, (seed, (jobs, machines)) in enumerate(drawn(settings, name)):
            for rule in ("pd_ors", "drf"):
                schedule = getattr(cluster, rule)(jobs, machines, n_slots=6)
                expected = cluster.total_utility(schedule, jobs)
                assert found[rule]["utility"][index] == pytest.approx(expected, rel=1e-5)
            asked = cluster.workloads.fixed_workers(seed, jobs)  # drawn anew for every instance
            fifo = cluster.fifo(jobs, machines, n_slots=6, workers=asked)
            expected = cluster.total_utility(fifo, jobs)
            assert found["fifo"]["utility"][index] == pytest.approx(expected, rel=1e-5)


def test_the_sets_and_what_was_tuned_on_are_disjoint(settings):
    seeds = [{one.data for one in protocol.seeds_of(0, role, 20)} for role in protocol.ROLES]
    assert len(set.union(*seeds)) == 60
    assert {seed for seed, _ in drawn(settings)} <= seeds[1]


def test_every_tuned_rule_has_as_many_trials_as_the_others(part):
    counts = {own["trials"] for own in part.numbers["tuning"].values()}
    assert len(counts) == 1
    assert counts.pop() >= 4
    for name, own in part.numbers["tuning"].items():
        for knob, value in own["chosen"].items():
            low, high = own["spans"][knob]
            assert low <= value <= high, (name, knob)


def test_less_work_earns_more(part, settings):
    sweep = part.numbers["sweeps"]["load"]
    light, full = (sweep["found"][sweep["at"].index(at)]["drf"] for at in (0.05, 1))
    assert np.mean(light["utility"]) > np.mean(full["utility"])
    one = protocol.seeds_of(0, protocol.SET_A, 1)[0]
    few = workload(settings, Point(8, 4, 0.05), one)[0].samples
    whole = workload(settings, Point(8, 4), one)[0].samples
    np.testing.assert_array_equal(few, np.floor(0.05 * whole))


def test_a_stopped_run_goes_on(part, settings, monkeypatch):
    def never(*_):
        raise AssertionError("it was played already")

    monkeypatch.setattr(Played, "_play", never)
    again = rivals.run(settings)
    for name in ("sets", "tuning", "sweeps", "knobs"):
        np.testing.assert_equal(again.numbers[name], part.numbers[name])
    saved = storage.load_json(settings.output / "played.json")
    storage.save_json(settings.output / "played.json", {**saved, "made_by": "another library"})
    assert Played(settings).known == {}
    storage.save_json(settings.output / "played.json", saved)
    assert saved["made_by"] == _digest()


def test_tables_are_made_from_the_committed_numbers(part, settings, monkeypatch, tmp_path):
    monkeypatch.setattr(numbers, "save", partial(numbers.save, folder=tmp_path))
    monkeypatch.setattr(numbers, "load", partial(numbers.load, folder=tmp_path))
    rivals.run(replace(settings, commit=True))
    monkeypatch.setattr(rivals, "measured", None)
    again = rivals.run(replace(settings, committed=True, output=tmp_path / "again"))
    for one, other in zip(part.tables, again.tables, strict=True):
        assert results.as_text(one) == results.as_text(other)


def test_pairs():
    apart, spread = difference([3.0, 5.0, 7.0], [1.0, 2.0, 3.0])
    assert apart == 3
    assert spread == pytest.approx(1 / np.sqrt(3))
    assert np.isnan(difference([1.0], [2.0])[1])
    halved = verdicts.behind([2.0, 4.0, 9.0, 5.0], [4.0, 8.0, 18.0, 10.0])
    assert verdicts.ratio(halved) == pytest.approx((2.0, 2.0, 2.0))
    # A run that earns nothing counts as one job of the least value.
    assert verdicts.behind([0.0, 0.0], [np.e, np.e]).mean == pytest.approx(-1)


def made_up(generator, factors, count=12):
    """Numbers of a set in which each rule earns its factor of what PD-ORS does, with noise."""
    ours = generator.lognormal(5, 0.4, count)

    def earn(factor):
        return {"utility": (factor * ours * generator.lognormal(0, 0.1, count)).tolist()}

    of = {name: earn(factors.get(name, 0.5)) for name in (*verdicts.PUBLISHED, *verdicts.LATER)}
    at = {"pd_ors": {"utility": ours.tolist()}, **of}
    local = {"with": earn(1.0), "without": earn(factors.get("apart", 0.6))}
    best = {name: earn(factors.get(name, 0.5)) for name in verdicts.TUNED}
    best |= {"pd_ors": earn(1.0), tuned.CHOOSING: earn(factors.get("choosing", 1.0))}
    return {"points": {"scarce": at, "plenty": at}, "local": local, "tuned": best}


def test_verdicts_turn_where_the_numbers_do():
    generator = np.random.default_rng(0)

    def said(**factors):
        return verdicts.verdicts(made_up(generator, factors))

    ahead = said()
    assert ahead[verdicts.EARLIER_CLAIM] == ahead[verdicts.LATER_CLAIM] == HOLDS
    assert ahead[verdicts.LOCALITY_CLAIM] == ahead[verdicts.TUNED_CLAIM] == HOLDS
    assert ahead[verdicts.CHOOSING_CLAIM] == HOLDS
    assert said(drf=1.5)[verdicts.EARLIER_CLAIM] == IN_PART  # one rival ahead
    assert said(dorm=1.0)[verdicts.EARLIER_CLAIM] == IN_PART  # one level
    behind = dict.fromkeys(verdicts.PUBLISHED, 1.4)
    assert said(**behind)[verdicts.EARLIER_CLAIM] == FAILS
    assert said(marginal_goodput=1.5)[verdicts.LATER_CLAIM] == IN_PART
    assert said(marginal_goodput=1.5)[verdicts.CHOOSING_CLAIM] == FAILS
    assert said(apart=1.4)[verdicts.LOCALITY_CLAIM] == FAILS
    assert said(oasis=1.6)[verdicts.TUNED_CLAIM] == IN_PART


def test_the_conditions_of_a_claim_share_its_doubt():
    found = made_up(np.random.default_rng(1), {})
    wide = verdicts.conditions(found)[verdicts.EARLIER_CLAIM]
    assert len(wide) == 8  # four rivals at two points
    alone = verdicts.behind(
        found["points"]["scarce"]["oasis"]["utility"],
        found["points"]["scarce"]["pd_ors"]["utility"],
    )
    assert wide[0].difference.low < alone.low < alone.high < wide[0].difference.high


def test_the_committed_sets_agree():
    found = numbers.load("cluster_rivals")
    one, other = (verdicts.verdicts(found["sets"][name]) for name in ("A", "B"))
    # Of the paper's claims and the one beside them the sets say the same. Of the two about tuned
    # rules one set tells less than the other, and neither says the contrary.
    apart = disagreements(one, other)
    assert set(apart) <= {verdicts.TUNED_CLAIM, verdicts.CHOOSING_CLAIM}
    assert not any(FAILS in pair for pair in apart.values())
    assert not any(own["at_edge"] for own in found["tuning"].values())
    for own in found["sets"].values():
        for at in own["points"].values():
            assert {len(row) for row in utilities(at).values()} == {found["settings"]["instances"]}


def test_the_default_is_compared_with_itself_at_no_difference(part):
    default, *others = part.numbers["knobs"].values()
    scarce = part.numbers["sets"]["A"]["points"]["scarce"]
    assert default["utility"] == scarce["pd_ors"]["utility"]
    table = part.tables[-1].rows
    assert table[0][2] == 0
    for row, own in zip(table[1:], others, strict=True):
        assert row[2] == pytest.approx(np.mean(own["utility"]) - np.mean(default["utility"]))


def test_everything_is_written(part, settings):
    assert all(path.stat().st_size > 5_000 for path, _ in part.figures)
    saved = storage.load_json(settings.output / "cluster_rivals.json")
    assert saved["sets"].keys() == {"A", "B"}
    assert saved["sets"]["A"]["points"].keys() == points(settings).keys()
    assert saved["sets"]["A"]["splits"].keys() == {"0_3", "0_5"}
    assert saved["verdicts"]["A"].keys() == saved["verdicts"]["B"].keys()


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="schedulers must be among"):
        rivals.run(Settings(output=tmp_path, schedulers=("pd_ors", "srtf")))
    with pytest.raises(ValueError, match="must have 'pd_ors'"):
        rivals.run(Settings(output=tmp_path, schedulers=("drf",)))
    with pytest.raises(ValueError, match="sets must be among A, B, got"):
        rivals.run(Settings(output=tmp_path, sets=("A", "C")))
