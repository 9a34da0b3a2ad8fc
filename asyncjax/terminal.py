"""What commands write: only characters that print, and quietly no more where nobody reads on."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

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
    """Runs a command for its exit status, 141 where its reader closed the pipe, as `head` does.

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
        for stream in (sys.stdout, sys.stderr):  # what is left goes nowhere, at Python's end too
            try:
                stream.flush()
            except BrokenPipeError:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
        return CLOSED


def options(program: str, about: str, examples: str = "") -> argparse.ArgumentParser:
    """The parser of a command; about it and examples are shown line by line, as they are."""
    form = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(program, None, about, examples, formatter_class=form)


def answered(
    name: str,
    parser: argparse.ArgumentParser,
    given: Sequence[str] | None,
    run: Callable[[argparse.Namespace], int],
    speaks: Callable[[str], str] = str,
) -> int:
    """Runs a command; what is wrong with what was given is one sentence, and exit status 2.

    `speaks` makes a sentence about arguments one about options, as that of `in_options` does.
    """

    def command() -> int:
        settings, rest = parser.parse_known_args(given)
        if rest:
            parser.error(plain(f"unrecognized arguments: {' '.join(rest)}"))
        try:
            return run(settings)
        except BrokenPipeError:
            raise
        except (OSError, ValueError, TypeError, ImportError) as error:
            message = str(error)
            if isinstance(error, OSError) and error.strerror and error.filename is not None:
                message = f"{error.filename}: {error.strerror.lower().removeprefix('path ')}"
            print(f"asyncjax.{name}: {plain(speaks(message))}", file=sys.stderr)
            return 2

    return quietly(command)


def in_options(
    parser: argparse.ArgumentParser, renamed: Mapping[str, str] | None = None
) -> Callable[[str], str]:
    """Makes a sentence that begins with an argument of Python begin with the parser's option.

    Args:
        parser: That of a command.
        renamed: Options that have another name than the argument.

    Example:
        >>> parser = options("p", "about")
        >>> _ = parser.add_argument("--slots")
        >>> in_options(parser, {"generator_slots": "slots"})("generator_slots must be an integer")
        '--slots must be an integer'
    """

    def told(sentence: str) -> str:
        name, space, rest = sentence.partition(" ")
        option = "--" + (renamed or {}).get(name, name).replace("_", "-")
        return option + space + rest if option in parser.format_help().split() else sentence

    return told


def retyped(program: str, words: Sequence[str], files: Iterable[str | None]) -> str:
    """The command that a page names, `files` of it without the folders they lie in.

    Example:
        >>> retyped("asyncjax", ["/me/a.csv", "--json=b/c.json"], ["/me/a.csv", "b/c.json"])
        'asyncjax a.csv --json=c.json'
    """
    names = {file: Path(file).name or file for file in files if file is not None}
    shown = []
    for word in words:
        option, mark, value = word.partition("=")
        if mark and option.startswith("--"):
            shown.append(f"{option}={names.get(value, value)}")
        else:
            shown.append(names.get(word, word))
    return f"{program} {shlex.join(shown)}"


class Left(NamedTuple):
    """How far a study is."""

    done: int  # cells that are computed or were read
    left: int  # cells that will be asked for, at least
    text: str  # what is being done


def display(*, every: float = 5.0) -> Callable[[str, float], None]:
    """Shows on standard error how far something is, and about how much time is left.

    A terminal has one line, which is written over and goes at the end; anything else has a line
    every few seconds, and none where all takes less.

    Args:
        every: Seconds between two lines where standard error is no terminal.

    Returns:
        A function of what is being done and of the share that is done, 0 to 1.

    Example:
        >>> show = display()
        >>> show("12 of 50 updates", 0.24)
    """
    began = shown = time.monotonic()

    def show(text: str, share: float) -> None:
        nonlocal shown
        now = time.monotonic()
        line = f"{100 * share:3.0f} %  {text}"
        if 0.0 < share < 1.0:
            line += f", about {_duration((now - began) * (1 / share - 1))} left"
        if sys.stderr.isatty():
            bar = f"[{'#' * round(24 * share):.<24}] {line}" if share < 1.0 else ""
            print(f"{bar:<100.100}", end="\r", file=sys.stderr, flush=True)
        elif now - shown >= every or (share >= 1.0 and shown > began):
            shown = now
            print(line, file=sys.stderr, flush=True)

    return show


def _duration(seconds: float) -> str:
    """Seconds as people say them.

    Example:
        >>> _duration(8.2), _duration(90.0), _duration(7300.0)
        ('8 s', '2 min', '2.0 h')
    """
    if seconds < 60.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600.0 else f"{seconds / 3600:.1f} h"
