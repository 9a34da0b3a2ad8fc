"""Text that comes with Python, as rows of characters: documentation, code and tables.

Half of it is the reference documentation (`pydoc_data.topics`), a quarter source code, a quarter
tables of encodings, which read quite differently from both. Rows are in that order, so a
contiguous part of them is of one kind.
"""

import encodings
import importlib.util
import sys
from functools import cache
from pathlib import Path
from pydoc_data import topics
from typing import NamedTuple

import numpy as np

from asyncjax import problems

SYMBOLS = "\n" + "".join(map(chr, range(32, 127)))  # what is anything else is left out
MODULES = ("argparse", "ast", "datetime", "doctest", "enum", "inspect", "difflib", "dataclasses")
VERSION = f"Python {sys.version_info.major}.{sys.version_info.minor}"


class Text(NamedTuple):
    """Rows of characters, and the same rows one character later."""

    inputs: np.ndarray  # int32[rows, T], by kind
    targets: np.ndarray  # int32[rows, T]
    test_inputs: np.ndarray  # int32[test rows, T], a random sample, of all kinds
    test_targets: np.ndarray  # int32[test rows, T]


@cache
def kinds(characters: int) -> tuple[str, str, str]:
    """Documentation, code and tables, of twice, once and once so many characters.

    Raises:
        ValueError: Python has not so much text.

    Example:
        >>> [len(text) for text in kinds(1000)]
        [2000, 1000, 1000]
    """
    words = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    code = "".join(_source(name) for name in MODULES)
    folder = Path(encodings.__file__).parent
    tables = "".join(path.read_text("utf-8") for path in sorted(folder.glob("cp*.py")))
    found = []
    for text, least in ((words, 2 * characters), (code, characters), (tables, characters)):
        plain = "".join(symbol for symbol in text if symbol in _PLAIN)
        if len(plain) < least:
            raise ValueError(
                f"characters must be at most {len(plain) * characters // least} with the text of"
                f" this Python, got {characters}"
            )
        found.append(plain[:least])
    return found[0], found[1], found[2]


_PLAIN = frozenset(SYMBOLS)


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text("utf-8")


@cache
def rows(length: int, characters: int, test_rows: int) -> Text:
    """The text in rows; the last tenth of every kind is kept for the test.

    Args:
        length: T, characters of a row.
        characters: A quarter of the text.
        test_rows: How many rows are drawn from what is kept, each kind as often as it is long.
    """
    number = {symbol: place for place, symbol in enumerate(SYMBOLS)}
    train, test = [], []
    for text in kinds(characters):
        tokens = np.array([number[symbol] for symbol in text], np.int32)
        first = len(tokens) * 9 // 10
        train.append(problems.windows(tokens[:first], length))
        test.append(problems.windows(tokens[first:], length))
    inputs, targets = (np.concatenate(part) for part in zip(*train, strict=True))
    unseen = [np.concatenate(part) for part in zip(*test, strict=True)]
    chosen = np.random.default_rng(0).permutation(len(unseen[0]))[:test_rows]
    return Text(inputs, targets, unseen[0][chosen], unseen[1][chosen])
