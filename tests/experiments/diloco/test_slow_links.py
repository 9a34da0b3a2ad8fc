"""Ways on slow links: what a message costs, and a small run."""

from dataclasses import replace
from typing import Any

import pytest

from experiments.diloco import slow_links
from experiments.diloco.slow_links import KNOBS, LINKS, WAYS, Settings, Trial

SMALL: dict[str, Any] = {"width": 8, "characters": 2000, "test_rows": 8, "batch": 1, "length": 8}


def test_messages_take_as_long_as_their_bytes_and_streaming_hides_four_steps():
    params = slow_links.problem_of(Settings(**SMALL), 0).params
    times = {way.name: slow_links.message_time(way, params, 30.0) for way in WAYS}
    assert times["synchronous"] == times["DiLoCo"] == times["asynchronous"] == 30.0
    assert times["streaming"] == 30 / 4 - 4
    assert times["synchronous, top 1 %"] == pytest.approx(30 * 0.01 * 6 / 4, rel=0.05)
    assert 30 / 8 < times["DiLoCo, int4"] < 1.2 * 30 / 8


def test_all_ways_have_as_many_trials():
    assert {len(slow_links.trials(way)) for way in WAYS} == {6}


@pytest.mark.slow
def test_a_small_run_learns_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(slow_links, "trials", lambda way: (Trial(0.01, 0.7 * (way.local > 1)),))
    monkeypatch.setattr(slow_links, "KNOBS", KNOBS[3:5])
    monkeypatch.setattr(slow_links, "LINKS", {name: LINKS[name] / 10 for name in LINKS})
    monkeypatch.setattr(slow_links, "WAYS", (WAYS[1], WAYS[4]))
    settings = Settings(output=tmp_path, horizon=80.0, seeds=1, **SMALL)
    result = slow_links.study_of(settings)
    assert len(result.rows) == 2 * 3 + 2
    assert (result.rows["final"] < 4.4).all()
    assert len(list((tmp_path / "runs").rglob("*.npz"))) == 2 * 2 * 3 + 2
    assert slow_links.study_of(settings).rows.equals(result.rows)
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        slow_links.study_of(replace(settings, seeds=0))
