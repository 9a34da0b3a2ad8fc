"""What commands write: only characters that print, and quietly no more where nobody reads on."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TextIO

CLOSED = 141  # exit status where the reader has closed the pipe: as of a process that SIGPIPE ended
_UNPRINTED = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, marks of direction, halves of pairs, ends


def plain(text: str, *, lines: bool = False) -> str:
    r"""A text without control characters: they are escaped as in Python.

    Args:
        text: The text; names in it may come from a stranger's file.
        lines: Whether line feeds stay.

    Example:
        >>> print(plain("rank \x1b[31m0"), plain("a\nb"), plain("a b", lines=True))
        rank \x1b[31m0 a\nb a b
    """
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in _UNPRINTED and not (lines and character == "\n")
        else character
        for character in text
    )


def quietly(command: Callable[[], int]) -> int:
    """Runs a command; a pipe that its reader closed, as `head` does, ends it without a word.

    Returns:
        Its exit status, or 141 where the pipe was closed.

    Example:
        >>> quietly(lambda: 2)
        2
    """
    try:
        try:
            return command()
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            _forget(stream)
        return CLOSED


def without_folders(words: Sequence[str], files: Iterable[str | None]) -> list[str]:
    """What was typed, as a page may show it to others: files without the folders they lie in.

    Args:
        words: As they were typed.
        files: Those of them, or of what stands behind their "=", that are files.

    Example:
        >>> without_folders(["/home/me/a.csv", "--json=b/c.json"], ["/home/me/a.csv", "b/c.json"])
        ['a.csv', '--json=c.json']
    """
    names = {file: Path(file).name or file for file in files if file is not None}
    shown = []
    for word in words:
        option, mark, value = word.partition("=")
        if mark and option.startswith("--"):
            shown.append(f"{option}={names.get(value, value)}")
        else:
            shown.append(names.get(word, word))
    return shown


def _forget(stream: TextIO) -> None:
    """What is left for a pipe that was closed goes nowhere, at the end of Python too."""
    try:
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
