"""The main job on a small size: it runs, writes what it says, and its figures are consistent."""

from html.parser import HTMLParser

import numpy as np
import pytest

from asyncjax import storage
from experiments.common.methods import METHODS
from experiments.compare.job import Settings, compare
from experiments.compare.report import heard, ranked

pytestmark = pytest.mark.slow  # one run serves all tests of this file

pytest.importorskip("sklearn", reason="the digits come with scikit-learn, the extra [data]")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    settings = Settings(
        output=tmp_path_factory.mktemp("compare"),
        n_workers=8,
        horizon=20.0,
        seeds=2,
        tuning_seeds=1,
        batch=4,
        hidden=4,
        target=0.2,
        records=6,
        step_sizes=(0.05, 0.2),
    )
    chosen = [m for m in METHODS if m.name in ("fastest half", "shuffled async", "Adaptive 1")]
    return settings, compare(settings, chosen)


def test_outcomes_cover_the_horizon(outcome):
    settings, outcomes = outcome
    for one in outcomes:
        assert one.time.shape == one.loss.shape == one.accuracy.shape
        assert one.time.shape[0] == settings.seeds
        assert np.all(one.time[:, -1] >= settings.horizon)
        within = one.time <= settings.horizon
        assert np.all(np.isfinite(one.loss[within]))
        assert np.all(np.isnan(one.loss[~within]))
        assert one.step_size in settings.step_sizes
        assert one.tuning.shape == (2,)
    half = outcomes[0]
    assert np.all(half.computed >= 2 * half.version * 4)  # 8 start, 4 are used


def test_files_are_complete(outcome):
    settings, outcomes = outcome
    numbers = storage.load_json(settings.output / "numbers.json")
    assert [row["method"] for row in numbers["table"]] == [
        one.method.name for one in ranked(settings, outcomes)
    ]
    assert numbers["settings"]["n_workers"] == 8
    curves = storage.load_arrays(settings.output / "curves.npz")
    np.testing.assert_array_equal(curves["shuffled async/loss"], outcomes[1].loss)
    assert not list(settings.output.glob(".*"))


def test_the_report_stands_alone(outcome):
    settings, _ = outcome
    text = (settings.output / "report.html").read_text()
    sources = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            sources.extend(value for name, value in attrs if name in ("src", "href"))

    Reader().feed(text)
    assert len([s for s in sources if s.startswith("data:image/png")]) >= 6
    assert all(s.startswith(("data:", "#")) for s in sources)


def test_the_report_shows_who_is_heard(outcome):
    settings, outcomes = outcome
    table = heard(settings, outcomes)
    shares = np.array([row[1:] for row in table.rows])
    assert shares.shape == (3, settings.n_workers)
    half, shuffled, adaptive = shares
    assert half[:4].sum() > 60 > half[4:].sum()  # the slow half is hardly heard
    np.testing.assert_allclose(shuffled, 100 / 8, atol=5)
    used = [summary.used_by_worker / summary.used for summary in outcomes[2].summaries]
    np.testing.assert_allclose(adaptive, 100 * np.median(used, axis=0))
    text = (settings.output / "report.html").read_text()
    assert "Who is heard" in text


def test_a_grid_on_which_all_diverge_is_reported(tmp_path):
    settings = Settings(
        output=tmp_path,
        n_workers=4,
        horizon=10.0,
        seeds=1,
        tuning_seeds=1,
        hidden=4,
        step_sizes=(float("1e30"),),
    )
    with pytest.raises(ValueError, match="pure async diverged at every step size"):
        compare(settings, [m for m in METHODS if m.name == "pure async"])
