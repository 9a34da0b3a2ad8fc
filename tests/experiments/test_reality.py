"""Simulated and real runs compared, in a short form: it runs, ends clean, and its parts fit."""

import multiprocessing
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from experiments import part
from experiments.part import run
from experiments.reality import job, tasks

pytest.importorskip("sklearn", reason="the digits come with scikit-learn, the extra [data]")

FIGURES = job.Figures(10, 2.0, 1.0, 3.0, 0.5)
EVEN = tasks.Workers("even", (0.01, 0.01))


@pytest.mark.slow
def test_two_rules_on_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(job, "CASES", (EVEN,))
    few = {"cases": ("even",), "rules": ("pure", "synchronous"), "repeats": 2}
    settings = job.Settings(tmp_path, engine="threads", seconds=0.3, heard=50, **few)
    report = run(job, settings)
    result = part.Result.load(tmp_path / "reality.csv.gz")
    rows = result.rows
    assert list(rows["method"]) == ["pure"] * 3 + ["synchronous"] * 3
    assert list(rows["clock"]) == [*job.CLOCKS] * 2
    assert (rows["least"] <= rows["median"]).all()
    assert (rows["median"] <= rows["most"]).all()
    in_rounds = result.select(method="synchronous")
    assert not in_rounds[["delay_real", "delay_simulated"]].any(axis=None)
    told = result.facts["measured, A"]["even"]
    assert told["heard"] >= 50
    assert len(told["mean jobs"]) == 2
    assert [len(table.rows) for table in report.tables] == [1, 2, 0]


@pytest.mark.slow
def test_a_worker_that_is_killed_is_foreseen(tmp_path):
    before = {process.pid for process in multiprocessing.active_children()}
    workers = tasks.Workers("one killed", (0.01, 0.01), dies=(1, 0.3))
    settings = job.Settings(
        tmp_path, rules=("pure", "synchronous"), repeats=1, seconds=0.6, heard=50
    )
    case = job.run_case(settings, workers)
    pure, synchronous = case.rules
    assert pure.real[0].updates == pure.n_updates
    for found in (synchronous.real, synchronous.simulated[job.BEST]):
        assert found[0].updates < synchronous.n_updates
        assert found[0].to_target == float("inf")
    result = job.as_rows(settings, [case])
    assert job.error_table(result, "A").rows[1][3].startswith("stalls after ")
    assert len(job.conditions(result, "A")) == 1
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


def compared_with(errors, workers=EVEN):
    """A case whose simulated times are off by these percents, repeat by repeat."""
    figures = tuple(replace(FIGURES, time=2.0 * (1 + error / 100)) for error in errors)
    simulated = {name: figures for name in job.CLOCKS}
    one = job.Compared(job.RULES[0], 10, (FIGURES,) * len(errors), simulated)
    return job.Case(workers, (), (one,))


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
    def verdict(*cases):
        result = job.as_rows(job.Settings(repeats=5), cases)
        return result.verdict(job.claims(result)[0])["A"]

    case = compared_with(errors)
    assert verdict(case) == said
    assert verdict(case, compared_with(errors, tasks.Workers("10 MB", (0.01,) * 2))) == said
    fine = compared_with((1.0, -1.0), tasks.Workers("uneven", (0.01, 0.02)))
    assert verdict(case, fine) == ("holds" if said == "holds" else "in part")


def test_errors_are_in_percent_and_runs_that_stall_have_none():
    large = tasks.Workers("10 MB", (0.01,) * 2)
    cases = (compared_with((2.0, 1.0, -3.0)), compared_with((30.0, 20.0, 25.0), large))
    result = job.as_rows(job.Settings(repeats=3), cases)
    assert job.error_table(result, "A").rows[0][3:5] == ("2.00", "+1.0 (-3.0 to +2.0)")
    assert job.sizes(result) == {"A": {"small": [1.0], "10 MB": [25.0]}}
    assert "by 13.0 % (at most 25.0 %), median over 2 pairs" in job.answer(result)
    simulated = {name: (replace(FIGURES, updates=9),) * 3 for name in job.CLOCKS}
    stalled = job.Compared(job.RULES[0], 20, (FIGURES,) * 3, simulated)  # all real runs make 10
    result = job.as_rows(job.Settings(repeats=3), [job.Case(EVEN, (), (stalled,))])
    assert job.error_table(result, "A").rows[0][3:5] == ("stalls after 10", "after 9")
    assert job.claims(result) == ()


def test_committed_rows_of_one_engine_stay_when_the_other_is_run():
    known = part.committed(job.NAME)
    result = job.as_rows(job.Settings(engine="ray"), [compared_with((1.0, 2.0, 3.0))])
    both = job.beside(result, known)
    assert both.sets == ("A", "B")
    assert list(both.rows) == list(known.rows)
    first, again = (one.select(set="A")["median"].to_numpy() for one in (both, known))
    np.testing.assert_array_equal(first, again)
    assert list(both.select(set="B", clock=job.BEST)["median"]) == [2.0]


@pytest.mark.parametrize("rule", job.RULES, ids=lambda rule: rule.name)
def test_a_clock_of_one_pure_run_predicts_the_pace_of_every_rule(rule):
    """In virtual time, where "real" runs are of a clock that the forecast never sees."""
    workers = job.CASES[1]
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
