"""The main job on a small size: it runs, writes what it says, and its figures are consistent."""

import re
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest

from asyncjax import clocks, problems, simulation, storage
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING
from asyncjax.study.result import Result
from experiments import part
from experiments.common import lanes
from experiments.common.data import split_digits
from experiments.common.methods import METHODS
from experiments.compare import job, report, runs
from experiments.compare.runs import Settings

pytestmark = pytest.mark.slow  # one run serves all tests of this file

pytest.importorskip("sklearn", reason="the digits come with scikit-learn, the extra [data]")
NAMES = ("fastest half", "shuffled async", "Adaptive 1")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("compare"), instances=3, tuning_instances=2, trials=2,
        rounds=(2, 2), steps=(0.05, 0.4), n_workers=8, horizon=20.0, batch=4, hidden=4,
        target=0.2, levels=(0.1, 0.2), records=10,
    )  # fmt: skip


@pytest.fixture(scope="module")
def outcome(small):
    outcomes = job.outcomes_of(small, [m for m in METHODS if m.name in NAMES])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "outcomes_of", lambda *_: outcomes)
        job.compare(small)
    return small, outcomes


def test_outcomes_cover_the_horizon(outcome):
    settings, outcomes = outcome
    for one in outcomes:
        assert np.all(one.time[:, -1] >= settings.horizon)
        within = one.time <= settings.horizon
        assert np.all(np.isfinite(one.loss[within]))
        assert np.all(np.isnan(one.loss[~within]))
        assert len(one.tuned.trials) == 4
        assert one.step_size in [trial.settings["step"] for trial in one.tuned.trials]
    half = outcomes[0]
    assert np.all(half.computed >= 2 * half.version * 4)  # 8 start, 4 are used


def test_a_third_set_is_run_as_the_others_are_on_other_instances(small):
    third, known = part.committed("compare_third"), part.committed("compare")
    assert third.sets == ("C",)
    assert third.facts == known.facts
    every = pd.concat([third.rows, known.rows])
    assert not every.duplicated(["method", "final_loss", "utilisation"]).any()
    with pytest.raises(ValueError, match="set must be A or B, got 'C'"):
        job.compare(replace(small, set="C", commit=True))


def test_files_are_complete_and_the_report_stands_alone(outcome):
    settings, outcomes = outcome
    rows = Result.load(settings.output / "compare.csv.gz")
    assert rows.facts["n_workers"] == 8
    assert rows.methods == tuple(one.method.name for one in outcomes)
    curves = storage.load_arrays(settings.output / "curves.npz")
    np.testing.assert_array_equal(curves["shuffled async/loss"], outcomes[1].loss)
    assert (settings.output / "to_target.png").exists()
    assert not list(settings.output.glob(".*"))
    text = (settings.output / "report.html").read_text()
    assert "Use of workers" in text
    sources = re.findall(r'(?:src|href)="(.*?)"', text)
    assert len([s for s in sources if s.startswith("data:image/png")]) >= 6
    assert all(s.startswith(("data:", "#")) for s in sources)


def test_the_report_shows_how_much_each_worker_is_used(outcome):
    settings, outcomes = outcome
    table = report.use_of_workers(settings, outcomes)
    shares = np.array([row[1:] for row in table.rows])
    assert shares.shape == (3, settings.n_workers)
    half, shuffled, adaptive = shares
    assert half[:4].sum() > 60 > half[4:].sum()  # the slow half is hardly used
    np.testing.assert_allclose(shuffled, 100 / 8, atol=5)
    used = [summary.used_by_worker / summary.used for summary in outcomes[2].summaries]
    np.testing.assert_allclose(adaptive, 100 * np.median(used, axis=0))


def test_instances_differ_in_everything_and_sets_share_none(small):
    every = [runs.field_of(small, role, 2) for role in (TUNING, SET_A, SET_B)]
    parts = [part for field in every for part in field.problems.parts]
    means = [np.asarray(clock.mean) for field in every for clock in field.clocks]
    kernels = [np.asarray(one.params["Dense_0"]["kernel"]) for one in parts]
    for drawn in ([np.asarray(one.data.weight) for one in parts], kernels, means):
        assert len({each.tobytes() for each in drawn}) == 6
    for mean in means:
        assert (mean[0], mean[-1]) == pytest.approx((1.0, small.slowest))
        assert np.all(np.diff(mean) >= 0)


@pytest.mark.parametrize("name", [method.name for method in METHODS])
def test_a_step_size_may_be_a_factor_of_the_weights(name, small, float64):
    """What lets one program run all steps: every rule here is homogeneous in its step."""
    method = next(method for method in METHODS if method.name == name)
    field = runs.field_of(replace(small, n_workers=4), TUNING, 1)
    [problem], [clock] = field.problems.parts, field.clocks
    trace = method.trace(clock, 12, jax.random.key(0))
    heavier = trace._replace(weight=trace.weight * np.float32(0.25))
    ends = [
        simulation.replay(problem, weighted, method.optimizer(step)).params["Dense_0"]["kernel"]
        for weighted, step in ((trace, 0.25), (heavier, 1.0))
    ]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-6)
    assert np.abs(np.asarray(ends[0]) - problem.params["Dense_0"]["kernel"]).max() > 1e-4


def test_methods_tuned_by_themselves_are_tuned_as_all_together(small, monkeypatch):
    """Rounds go on for all as long as one best step is at an edge."""
    best = {"fastest half": 0.1, "shuffled async": 3.0, "Adaptive 1": 0.2}

    def run(settings, method, field, every, runs):
        steps = np.array([[step] for _, step in runs])
        wrong = np.abs(np.log(steps / best[method.name]))
        return lanes.Ran(wrong[..., None], wrong, wrong, wrong)

    monkeypatch.setattr(runs, "ran", run)
    monkeypatch.setattr(runs, "accuracies", lambda settings, field, done: done.time)
    monkeypatch.setattr(runs, "score", lambda settings, wrong, _: float(wrong.mean()))
    settings = replace(small, rounds=(2, 6))
    methods = [m for m in METHODS if m.name in NAMES]
    found = runs.tuned_alike(settings, methods, lambda line: None)
    space = {"step": tuning.log_range(*settings.steps, 2 * settings.trials)}
    together = tuning.tune(
        dict.fromkeys(NAMES, space),
        lambda name, trials, _: [abs(np.log(one["step"] / best[name])) for one in trials],
        trials=settings.trials,
        gradients=1,
        rounds=settings.rounds,
    )
    for name, one in found.items():
        assert [t.settings for t in one.trials] == [t.settings for t in together[name].trials]
        assert not one.edges
    assert len({len(one.trials) for one in found.values()}) == 1


def test_arrival_beats_rounds_where_workers_are_uneven_and_not_where_even(small, monkeypatch):
    """The verdict itself on few instances; even workers flip it."""
    claim = "pure async is at the target before synchronous rounds"
    settings = replace(
        small, instances=4, batch=8, hidden=8, horizon=80.0, target=0.35, concentration=1.0,
        trials=3, steps=(0.05, 1.6), records=20,
    )  # fmt: skip
    pair = [method for method in METHODS if method.name in ("synchronous", "pure async")]
    said = {}
    for slowest in (16.0, 1.0):
        means = np.geomspace(1.0, slowest, settings.n_workers)
        monkeypatch.setattr(runs, "workers", lambda *_, times=means: clocks.constant(times))
        outcomes = job.outcomes_of(settings, pair)
        said[slowest] = job.as_rows(settings, outcomes).verdicts(job.CLAIMS)[claim]["A"]
    assert said[16.0] == "holds"
    assert said[1.0] != "holds"


def test_a_step_at_which_all_diverge_is_reported(tmp_path):
    settings = Settings(
        output=tmp_path, n_workers=4, horizon=10.0, instances=1, tuning_instances=1, trials=1,
        rounds=(1, 1), hidden=4, steps=(1e30, 1e31), records=5,
    )  # fmt: skip
    with pytest.raises(ValueError, match="pure async diverged at every step size"):
        job.compare(settings, [m for m in METHODS if m.name == "pure async"])


@pytest.fixture
def fresh_digits():
    """Digits are read again, before and after."""
    split_digits.cache_clear()
    yield
    split_digits.cache_clear()


@pytest.mark.usefixtures("fresh_digits")
def test_tuning_reads_no_test_row_and_what_is_shown_reads_them(monkeypatch):
    pure = next(method for method in METHODS if method.name == "pure async")
    settings = Settings(
        instances=1, tuning_instances=2, trials=2, n_workers=4, horizon=20.0, batch=4, hidden=4,
        target=0.3, records=10,
    )  # fmt: skip

    def scores_and_shown():
        field = runs.field_of(settings, TUNING, settings.tuning_instances)
        tuned = next(runs.rounds_of(settings, pure, field))
        shown = runs.field_of(settings, SET_A, 1)
        return tuned.trials, runs.reported(settings, pure, shown, tuned).accuracy

    before, data = scores_and_shown(), problems.digits()
    other = data._replace(
        test_labels=np.random.default_rng(0).permutation(data.test_labels),
        test_features=np.zeros_like(data.test_features),
    )
    monkeypatch.setattr(problems, "digits", lambda: other)
    split_digits.cache_clear()
    after = scores_and_shown()
    assert before[0] == after[0]
    assert np.nanmax(np.abs(before[1] - after[1])) > 0.05


def test_rows_are_split_in_three(small):
    fields = [runs.field_of(small, role, 1).problems for role in (TUNING, SET_A)]
    tuned, shown = (field.parts[0].data for field in fields)
    rows = [
        {row.tobytes() for row in np.asarray(each)}
        for each in (shown.features, tuned.test[0], shown.test[0])
    ]
    assert [*map(len, rows)] == [1079, 359, 359]
    assert sum(map(len, rows)) == len(set.union(*rows))  # none in two of them
    np.testing.assert_array_equal(tuned.features, shown.features)
    np.testing.assert_array_equal(shown.test[0], problems.digits().test_features)
