"""What commands write: only characters that print, and quietly no more where nobody reads on."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable

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
            sys.stdout.flush()
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            _forget(stream.fileno())
        return CLOSED


def _forget(file: int) -> None:
    """What is still written to a file, at the end of Python also, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file)
    os.close(nowhere)
