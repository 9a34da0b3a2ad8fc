"""The main job tunes on rows that it does not show; its times are those after which runs stay."""

from dataclasses import replace

import numpy as np
import pytest

from asyncjax import problems
from asyncjax.study.protocol import SET_A, TUNING
from experiments.common import data as skewed_digits
from experiments.common.methods import METHODS
from experiments.compare import job, runs
from experiments.compare.runs import Settings
from tests.experiments.test_compare_report import outcome

PURE = next(method for method in METHODS if method.name == "pure async")


def forget_digits():
    """Digits are read again."""
    for cached in vars(skewed_digits).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


@pytest.fixture
def fresh_digits():
    """Digits are read again, before and after."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn, the extra [data]")
    forget_digits()
    yield
    forget_digits()


def scores_and_shown(settings):
    """Scores of two steps while tuning, and the accuracies that are shown of one of them."""
    field = runs.field_of(settings, TUNING, settings.tuning_instances)
    tuned = next(runs.rounds_of(settings, PURE, field))
    shown = runs.field_of(settings, SET_A, 1)
    return tuned.trials, runs.reported(settings, PURE, shown, tuned).accuracy


@pytest.mark.slow
def test_tuning_reads_no_test_row_and_what_is_shown_reads_them(monkeypatch, fresh_digits):
    settings = Settings(
        instances=1, tuning_instances=2, trials=2, n_workers=4, horizon=20.0, batch=4, hidden=4,
        target=0.3, records=10,
    )  # fmt: skip
    data = problems.digits()
    before = scores_and_shown(settings)
    other = data._replace(
        test_labels=np.random.default_rng(0).permutation(data.test_labels),
        test_features=np.zeros_like(data.test_features),
    )
    monkeypatch.setattr(problems, "digits", lambda: other)
    forget_digits()
    after = scores_and_shown(settings)
    assert before[0] == after[0]
    assert np.nanmax(np.abs(before[1] - after[1])) > 0.05


@pytest.mark.slow
def test_rows_are_split_in_three(fresh_digits):
    data = problems.digits()
    settings = Settings(instances=1, tuning_instances=1, n_workers=4)
    fields = [runs.field_of(settings, role, 1).problems for role in (TUNING, SET_A)]
    tuned, shown = (field.parts[0].data for field in fields)
    rows = [
        {row.tobytes() for row in np.asarray(each)}
        for each in (shown.features, tuned.test[0], shown.test[0])
    ]
    assert [*map(len, rows)] == [1079, 359, 359]
    assert sum(map(len, rows)) == len(set.union(*rows))  # none in two of them
    np.testing.assert_array_equal(tuned.features, shown.features)
    np.testing.assert_array_equal(shown.test[0], data.test_features)


CROSSES_AND_LEAVES = [0.5, 0.95, 0.5, 0.95, 0.95, 0.5]  # at records 0 .. 5, the last too late


def test_a_time_is_that_after_which_a_run_stays_until_the_horizon(tmp_path):
    """In what is shown, in what is committed, in what is tuned."""
    settings = Settings(output=tmp_path, instances=1, horizon=4.0, levels=(0.9,))
    one = outcome("pure async", [np.inf])
    time, accuracy = np.arange(6.0)[None], np.array([CROSSES_AND_LEAVES])
    one = replace(one, time=time, accuracy=accuracy, computed=10 * time.astype(int))
    rows = job.as_rows(settings, [one]).rows
    assert rows[["time", "time_0.9", "gradients"]].to_numpy().tolist() == [[3.0, 3.0, 30.0]]
    assert runs.score(settings, time, accuracy) == pytest.approx(np.log(3.0) + 0.01 * 0.05)
    longer = replace(settings, horizon=5.0)
    assert job.as_rows(longer, [one]).rows["time"].tolist() == [np.inf]


def test_a_ratio_of_cut_times_is_a_bound(tmp_path):
    settings = Settings(output=tmp_path, n_workers=2, horizon=20.0, instances=3, levels=(0.9,))
    early, late = outcome("pure async", [4.0] * 3), outcome("synchronous", [16.0, 17.0, np.inf])
    there = outcome("synchronous", [16.0, 17.0, 20.0])
    for other, need in ((late, "more than 4.4 times"), (there, "4.4 times")):
        told = job.answer(job.as_rows(settings, [early, other]))
        assert f"Synchronous rounds need {need}" in told
