"""The comparisons of step rules: the bars of the claims, their verdicts, the bookkeeping."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from asyncjax import results, steps
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART
from experiments.common import numbers
from experiments.delay_adaptive import (
    block_descent,
    piag,
    sawtooth,
    step_rules_report,
    step_rules_runs,
    step_rules_verdicts,
)
from experiments.delay_adaptive.regularized import minimum, regularized, rows_of
from experiments.delay_adaptive.step_rules_runs import Study, all_measured, drawn
from experiments.delay_adaptive.step_rules_verdicts import (
    NAIVE_CLAIM,
    SAFE_CLAIM,
    STEADY_CLAIM,
    TUNED_CLAIM,
    verdicts,
)

SMALL = Study(
    instances=3,
    tuning_instances=1,
    n_updates=1500,
    trials=3,
    rounds=(1, 1),
    multiples=(0.25, 0.5, 8.0),
    levels=(0.8, 0.95),
)
DRAWN = "uniform 0..20, as drawn"
LAWS = (piag.EVEN, DRAWN, piag.CONSTANT_DELAY)


@pytest.fixture(scope="module")
def aggregated(tmp_path_factory):
    output = tmp_path_factory.mktemp("piag")
    return piag.Settings(output=output, data=("breast cancer",), laws=LAWS, study=SMALL)


@pytest.fixture(scope="module")
def part(aggregated):
    return piag.run(aggregated)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    settings = block_descent.Settings(
        output=tmp_path_factory.mktemp("block_descent"),
        data=("breast cancer",),
        laws=(piag.EVEN, "1 write in 64 late by 100"),
        study=SMALL,
    )
    return block_descent.run(settings)


def ratio(found, case, rival="sun", **more):
    """Updates of a rival over those of Adaptive 1, set A."""
    said = step_rules_verdicts.ahead(found, f"breast cancer, {case}", "A", rival, **more)
    assert said is not None
    difference, _ = said
    return float(np.exp(-difference.mean))


@pytest.mark.slow
@pytest.mark.optimised
def test_adaptive_steps_beat_a_fixed_step_that_knows_the_longest_delay(part):
    """The verdict itself; where the delay is constant, there is hardly a gain."""
    found = part.numbers
    assert 1.2 <= ratio(found, piag.EVEN) <= 2.0
    assert 2.8 <= ratio(found, DRAWN) <= 5.0
    assert 0.85 <= ratio(found, piag.CONSTANT_DELAY) <= 1.1
    for letter in "AB":
        said = verdicts(found, letter)
        assert said[SAFE_CLAIM] in (HOLDS, IN_PART)
        assert said[STEADY_CLAIM] != HOLDS
        assert said[NAIVE_CLAIM] != HOLDS


@pytest.mark.slow
@pytest.mark.optimised
def test_a_tuned_constant_is_no_slower(part):
    found = part.numbers
    tuned = [own for case in found["cases"].values() for own in case["tuning"].values()]
    assert {own["trials"] for own in tuned} == {3}
    assert ratio(found, piag.EVEN, "constant", kind="tuned") <= 1.1
    assert verdicts(found, "A")[TUNED_CLAIM] != HOLDS


@pytest.mark.slow
@pytest.mark.optimised
def test_the_sums_of_the_steps_predict_the_speed_ups(part):
    for law in LAWS:
        expected = step_rules_verdicts.predicted(part.numbers, f"breast cancer, {law}", "A")
        assert ratio(part.numbers, law) == pytest.approx(expected, rel=0.35), law


@pytest.mark.slow
@pytest.mark.optimised
def test_block_descent_gains_and_a_rare_long_delay_costs_little(blocks):
    found = blocks.numbers
    assert 1.4 <= ratio(found, piag.EVEN) <= 2.6
    assert ratio(found, piag.EVEN, "Davis") >= 1.4
    late = "1 write in 64 late by 100"
    assert ratio(found, late) >= 3.0
    own = [found["cases"][f"breast cancer, {law}"]["A"]["theory"] for law in (piag.EVEN, late)]
    even, rare = (np.array(one["Adaptive 1"]["updates"], float)[:, -1] for one in own)
    assert np.log(rare / even).mean() < 0.35
    assert verdicts(found, "A")[SAFE_CLAIM] in (HOLDS, IN_PART)


@pytest.mark.slow
@pytest.mark.optimised
def test_what_is_done_is_not_done_again_and_all_is_written(part, aggregated, monkeypatch):
    def never(*_):
        raise AssertionError("a case was run again")

    monkeypatch.setattr(step_rules_runs, "measured", never)
    again = piag.run(aggregated)
    np.testing.assert_equal(again.numbers, part.numbers)
    with pytest.raises(AssertionError, match="run again"):
        piag.run(replace(aggregated, study=replace(SMALL, n_updates=1600)))
    assert len(part.figures) == 2
    assert all(path.stat().st_size > 10_000 for path, _ in part.figures)
    assert [len(table.rows) for table in part.tables[1:]] == [3, 3, 3]


def made_up(ours, theirs, case="data, even workers", kind="theory", rival="sun"):
    """Numbers of one case in which both rules need so many updates."""
    generator = np.random.default_rng(0)

    def runs(count):
        own = (count * generator.lognormal(0, 0.03, (6, 1))).tolist()
        return {"updates": own, "times": own}

    rules = {"theory": {}, "tuned": {}}
    rules[kind] = {"Adaptive 1": runs(ours), rival: runs(theirs)}
    case_of = {"A": {**rules, "horizon": [1e4] * 6}}
    return {"cases": {case: case_of}, "levels": [0.95], "n_updates": 10_000, "fixed": "sun"}


@pytest.mark.parametrize(
    ("claim", "more"),
    [
        (SAFE_CLAIM, {}),
        (STEADY_CLAIM, {"case": "data, constant 20"}),
        (TUNED_CLAIM, {"kind": "tuned", "rival": "constant"}),
    ],
)
def test_verdicts_flip_with_who_is_ahead(claim, more):
    """Rows 1 to 3 of docs/claims.md."""
    assert verdicts(made_up(100.0, 200.0, **more), "A") == {claim: HOLDS}
    assert verdicts(made_up(200.0, 100.0, **more), "A") == {claim: FAILS}
    never = verdicts(made_up(100.0, np.inf, **more), "A")
    assert never == {claim: HOLDS}  # who is not there counts as the horizon
    assert verdicts(made_up(np.inf, np.inf, **more), "A") == {}
    both = made_up(100.0, 200.0, **more)
    [case] = both["cases"]
    [other] = made_up(200.0, 100.0, **more)["cases"].values()
    both["cases"]["more " + case] = other
    assert verdicts(both, "A") == {claim: IN_PART}


@pytest.mark.parametrize("name", ["piag", "block_descent"])
def test_committed_verdicts_follow_from_the_committed_numbers(name):
    found = numbers.load(name)
    report = step_rules_report
    told = report.verdict_table(found)
    for row in told.rows:
        for cell, letter in zip(row[1:], "AB", strict=True):
            assert str(cell).startswith(found["verdicts"][letter][row[0]] + " (")
    for case in found["cases"].values():
        assert len({own["trials"] for own in case["tuning"].values()}) == 1
    text = (numbers.FOLDER.parent / "README.md").read_text(encoding="utf-8")
    for table in (told, report.theory_table(found), report.tuned_table(found)):
        rows = [row for row in results.as_markdown(table).splitlines() if row.startswith("|")]
        assert "\n".join(rows) in text


@pytest.mark.slow
@pytest.mark.parametrize("module", [piag, block_descent])
def test_instances_differ_in_rows_workers_and_first_model(module):
    study = Study(instances=1, tuning_instances=1, n_updates=300)
    tuned, one, other = module.case_of(study, 0, "breast cancer", piag.SLOW).own.tasks
    for first, second in ((tuned, one), (one, other)):
        assert abs(first.optimum - second.optimum) > 1e-6
        assert not np.array_equal(first.ages, second.ages)
        assert not np.array_equal(first.problem.params, second.problem.params)


def test_every_plan_is_run_once_and_kept_by_name(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(step_rules_runs, "measured", lambda case, *_: seen.append(case) or {})
    plans = [("a", "x"), ("a", "y")]
    named: Any = lambda data, law: (data, law)  # noqa: E731
    for _ in range(2):
        found = all_measured(plans, named, SMALL, 0, tmp_path)
        assert list(found) == ["a, x", "a, y"]
    assert seen == plans


def test_stamps_in_order_never_jump_up():
    drawn = piag.sequence("uniform 0..20, as drawn", 4000, 0)
    ordered = piag.sequence("uniform 0..20, in order", 4000, 0)
    assert (np.diff(ordered) <= 1).all()
    assert (np.diff(drawn) > 1).any()
    assert (ordered <= drawn).all()
    outages = piag.sequence("outages", 3000, 0)
    assert (outages.max(), outages.mean()) == (100, pytest.approx(5.05))


@pytest.mark.slow
def test_the_optimum_is_a_minimum():
    features, labels = rows_of("breast cancer")
    features, signs = features[:100].astype(float), np.where(labels[:100] == 1, 1.0, -1.0)
    best, value = minimum(features, signs, 1e-2, 1e-2)

    def objective(x):
        loss = np.logaddexp(0, -signs * (features @ x)).mean()
        return loss + 0.005 * (x @ x) + 1e-2 * np.abs(x).sum()

    assert objective(best) == pytest.approx(value, abs=1e-12)
    generator = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(50):
            assert objective(best + size * generator.normal(size=best.size)) > value


def test_unknown_data_are_refused():
    with pytest.raises(ValueError, match="data must be among breast cancer"):
        rows_of("iris")


@pytest.mark.slow
def test_theory_steps_are_made_of_the_right_constants():
    [one, *_] = drawn(Study(), 0)
    chosen = regularized("breast cancer", one.data)
    shards = piag.worker_task(chosen, piag.EVEN, 200, one)
    blockwise = block_descent.task_of(chosen, piag.EVEN, 200, one)
    assert shards.step_size == pytest.approx(0.99 / chosen.smoothness.root_mean_square)
    assert blockwise.step_size == pytest.approx(0.99 / chosen.blocks.largest)
    assert shards.fixed["worst case"] == pytest.approx(shards.step_size / (shards.ages.max() + 1))
    assert blockwise.ages[100:].mean() == pytest.approx(7.0, abs=0.1)


@pytest.mark.slow
@pytest.mark.optimised
def test_sawtooth_growth_is_what_a_replay_does(tmp_path):
    for rule in (
        steps.scale_by_delay(lambda delay: 1 / (delay + 1), 0.99),
        steps.scale_by_adaptive_1(0.99, max_delay=64),
    ):
        size = sawtooth.replayed(rule, 8, 5)
        factors = size[1:] / size[:-1]
        expected = sawtooth.growth(rule, 8, 40)
        np.testing.assert_allclose(factors[0], expected, rtol=0.05)
    part = sawtooth.run(
        sawtooth.Settings(output=tmp_path, periods=(4, 32), cycles=4, constants=(0.99,))
    )
    assert part.numbers["c/(delay+1), c = 0.99"]["32"] > 1
    assert all(factor < 0.03 for factor in part.numbers["Adaptive 1, c = 0.99"].values())
    assert (tmp_path / "sawtooth.png").stat().st_size > 10_000
