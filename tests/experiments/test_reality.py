"""Simulated and real runs compared, in a short form: it runs, ends clean, and its parts fit."""

import multiprocessing
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from asyncjax import clocks, storage, traces
from asyncjax.study import statistics as comparison
from experiments import claims
from experiments.common import numbers
from experiments.reality import job, report, runs, tasks, verdicts

pytest.importorskip("sklearn", reason="the digits come with scikit-learn, the extra [data]")

FIGURES = runs.Figures(10, 2.0, 1.0, 3.0, 0.5)
EVEN = tasks.Workers("even", (0.01, 0.01))


@pytest.mark.slow
def test_two_rules_on_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "CASES", (EVEN,))
    monkeypatch.setattr(job, "CASES", (EVEN,))
    settings = runs.Settings(
        output=tmp_path,
        engine="threads",
        cases=("even",),
        rules=("pure", "synchronous"),
        repeats=2,
        seconds=0.3,
        heard=50,
    )
    part = job.run(settings)
    saved = storage.load_json(tmp_path / "reality.json")
    (case,) = saved["cases"]
    assert [row["rule"] for row in case["rules"]] == ["pure", "synchronous"]
    assert [one["heard"] >= 50 for one in case["measured"]] == [True, True]
    for row in case["rules"]:
        assert list(row["simulated"]) == list(runs.CLOCKS)
        for made in (row["real"], *row["simulated"].values()):
            assert len(made) == 2
            assert all(one["updates"] == row["updates"] and one["time"] > 0 for one in made)
    sync = case["rules"][1]
    assert all(one["delay"] == 0 for one in sync["real"])
    path, _ = part.figures[0]
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(part.tables) == 4


@pytest.mark.slow
def test_a_worker_that_is_killed_is_foreseen(tmp_path):
    before = {process.pid for process in multiprocessing.active_children()}
    workers = tasks.Workers("one killed", (0.01, 0.01), dies=(1, 0.3))
    settings = runs.Settings(
        tmp_path, rules=("pure", "synchronous"), repeats=1, seconds=0.6, heard=50
    )
    case = runs.run_case(settings, workers)
    pure, synchronous = case.rules
    assert pure.real[0].updates == pure.n_updates
    for found in (synchronous.real, synchronous.simulated[report.BEST]):
        assert found[0].updates < synchronous.n_updates
        assert found[0].to_target == float("inf")
    assert "stalls after" in report.totals(settings, [case]).rows[1][3]
    assert {process.pid for process in multiprocessing.active_children()} <= before


@pytest.mark.slow
def test_workers_sleep_as_they_are_told_and_the_server_does_not():
    workers = tasks.Workers("uneven", (0.001, 0.05), sigma=0.0)
    plain, slow = tasks.make(workers, None), tasks.make(workers, 1)
    place = (np.int32(1), np.int32(0), jax.random.key(0))
    gradient = jax.jit(lambda problem: problem.gradient(problem.params, *place))
    for mine, its in zip(*(jax.tree.leaves(gradient(one)) for one in (plain, slow)), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-6)
    assert isinstance(slow.gradient_of, tasks.Sleeping)
    assert slow.gradient_of.seconds == 0.05
    assert partial(tasks.make, workers)(1) is slow


def test_errors_are_of_medians_and_leave_out_what_is_not_there():
    rule = runs.RULES[0]
    late = replace(FIGURES, time=4.4, to_target=float("inf"))
    simulated = {name: (replace(FIGURES, time=2.2),) * 3 for name in runs.CLOCKS}
    compared = runs.Compared(EVEN, rule, 10, (FIGURES, FIGURES, late), simulated)
    found = report.errors(compared, report.BEST, lambda run: run.time)
    np.testing.assert_allclose(found, [0.1, 0.1, -0.5])
    assert report.percent(found) == "+10.0 (-50.0 to +10.0)"
    reached = report.errors(compared, report.BEST, lambda run: run.to_target)
    np.testing.assert_allclose(reached, [0.0, 0.0])
    assert report.percent(reached[:0]) == "-"


def compared_with(errors):
    """A case whose simulated times are off by these percents, repeat by repeat."""
    made = tuple(replace(FIGURES, time=2.0 * (1 + error / 100)) for error in errors)
    simulated = {name: made for name in runs.CLOCKS}
    one = runs.Compared(EVEN, runs.RULES[0], 10, (FIGURES,) * len(errors), simulated)
    return [runs.Case(EVEN, (), (one,))]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ((-9.0, 2.0, 1.0, 3.0, 9.0), "holds"),
        ((-9.0, 2.0, 1.0, 3.0, 11.0), "no significant difference"),
        ((20.0, 12.0, 11.0, 30.0, 14.0), "does not hold"),
        ((-20.0, -12.0, -11.0, -30.0, -14.0), "does not hold"),
    ],
)
def test_the_verdict_turns_with_the_errors(errors, said):
    own = verdicts.measured(runs.Settings(repeats=5), compared_with(errors))
    assert comparison.verdict(verdicts.conditions(own)) == said
    large = own["cases"]["even"]
    both = {**own, "cases": {**own["cases"], "10 MB": {"pure": large["pure"]}}}
    assert comparison.verdict(verdicts.conditions(both)) == said
    fine = verdicts.measured(runs.Settings(repeats=5), compared_with((1.0, -1.0)))["cases"]["even"]
    both["cases"]["uneven"] = fine
    expected = "holds" if said == "holds" else "in part"
    assert comparison.verdict(verdicts.conditions(both)) == expected


def test_the_page_has_the_committed_errors():
    text = (claims.quotes.ROOT / "experiments/README.md").read_text(encoding="utf-8")
    found = numbers.load("reality")
    for letter in claims.SETS:
        assert "\n".join(verdicts.page_rows(found[letter])) in text
        assert found[letter]["sizes"] == verdicts.sizes(found[letter]["cases"])


def test_committed_numbers_of_one_engine_stay_when_the_other_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts.numbers, "save", lambda name, found, command: saved.append(found))
    saved, case = [], compared_with((1.0, 2.0, 3.0))
    verdicts.commit(runs.Settings(engine="ray", repeats=3), case)
    assert saved[0]["A"] == numbers.load("reality")["A"]
    assert saved[0]["B"]["cases"]["even"]["pure"]["measured"] == [2.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rules": ("pure", "fast")}, "rules must be among pure, .* got 'fast'"),
        ({"cases": ()}, "cases must be among even, .* got 'nothing'"),
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"engine": "threads", "commit": True}, "engine must be among processes, ray for numbers"),
        ({"engine": "threads"}, "cases must be without 'one killed' on threads"),
    ],
)
def test_settings_that_cannot_be_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        job.run(replace(runs.Settings(), **change))


def test_updates_that_fit_into_the_time():
    count = runs._updates_in(clocks.constant([0.1, 0.1]), runs.RULES[0], 1.05)
    assert count == 20
    trace = traces.asynchronous(clocks.constant([0.1, 0.1]), n_updates=count)
    assert trace.time[-1] <= 1.05


@pytest.mark.parametrize("rule", runs.RULES, ids=lambda rule: rule.name)
def test_a_clock_of_one_pure_run_foretells_the_pace_of_every_rule(rule):
    """In virtual time, where "real" runs are of a clock that the forecast never sees."""
    workers = runs.CASES[1]
    true = clocks.lognormal(mean=workers.seconds, sigma=workers.sigma)
    pure = traces.asynchronous(true, n_updates=2500, key=jax.random.key(1))
    assert np.bincount(pure.worker).min() >= 100
    measured = clocks.of_trace(pure, law=clocks.resampled)
    ends = [
        traces.asynchronous(
            clock,
            n_updates=300,
            collect=rule.collect(workers.n_workers),
            interruptible=False,
            key=jax.random.key(seed),
        ).time[-1]
        for seed, clock in enumerate((true, measured))
    ]
    np.testing.assert_allclose(ends[1], ends[0], rtol=0.05)
