"""Intervals of forecasts in windows of recordings: what must hold, and how it is counted."""

import numpy as np
import pytest

from asyncjax import traces
from asyncjax.whatif.stationarity import stationarity_of, times_of
from experiments import part
from experiments.reality import windows


def test_the_stated_interval_holds_on_recordings_and_scores_better():
    told = windows.overall(part.committed(windows.NAME))
    for what in ("pace", "gain", "both"):
        new, old = told[what][windows.NEW], told[what][windows.OLD]
        assert new["holds"] >= 0.8
        assert new["score"] < old["score"]
    assert told["pace"][windows.NEW]["count"] == 5 * 4 * 3  # logs, rules, windows


def test_committed_rows_of_recordings_come_again():
    """The windows of one recording, counted anew by hand."""
    rows = part.committed(windows.NAME).select(scene="job_2", forecast="pace", interval=windows.NEW)
    table = windows._recorded("job_2")
    ends = [len(table[0]) * i // 5 for i in range(6)]
    for window in (3, 4, 5):
        before = table[:, : ends[window - 1]]
        after = table[:, ends[window - 1] : ends[window]]
        told = stationarity_of(traces.read_log(before), ahead=after.shape[1] / before.shape[1])
        of = rows[rows["window"] == window]
        width = [np.log(one.high / one.low) for one in told.pace]
        np.testing.assert_allclose(of["width"], width, atol=1e-5)
        held = [
            lo <= t <= hi for t, (_, lo, hi) in zip(np.exp(times_of(after)), told.pace, strict=True)
        ]
        assert list(of["holds"]) == held


def test_width_score_and_summary_of_rows_by_hand():
    table = np.random.default_rng(0).gamma(4.0, 1.0, (4, 100))
    table[:, 60:80] *= 3.0  # the fourth fifth is missed by far
    rows = [row for row in windows._rows("made", 0, table) if row["window"] == 4]
    row = next(row for row in rows if row["forecast"] == "pace" and row["interval"] == windows.NEW)
    assert not row["holds"]
    assert row["score"] > row["width"]
    assert row["score"] - row["width"] == pytest.approx(
        20 * (row["error"] - row["width"] / 2), abs=1e-3
    )


def test_made_logs_are_what_they_are_said_to_be():
    rng = np.random.default_rng(0)
    slow = windows.phased(rng, 10, 20_000) > 1.6
    assert slow[:6].mean() > 10 * slow[6:].mean()
    logs = np.log(windows.remembering(rng, 10, 20_000, 0.7))
    assert logs.std() == pytest.approx(0.2, rel=0.05)
    assert np.corrcoef(logs[0, 1:], logs[0, :-1])[0, 1] == pytest.approx(0.7, abs=0.03)
    assert np.corrcoef(logs)[0, 1] == pytest.approx(0.5, abs=0.05)
