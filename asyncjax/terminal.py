"""What commands write: only characters that print, and quietly no more where nobody reads on."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
    given: Sequence[str],
    run: Callable[[argparse.Namespace], int],
    in_options: Callable[[str], str] = str,
) -> int:
    """Runs a command; what is wrong with what was given is one sentence, and exit status 2.

    `in_options` makes a sentence that speaks of arguments one that speaks of options.
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
            print(f"asyncjax.{name}: {plain(in_options(message))}", file=sys.stderr)
            return 2

    return quietly(command)


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


@contextmanager
def bar() -> Iterator[Callable[[Left], None]]:
    """A progress bar with what is left on standard error; nothing where that is no terminal.

    Example:
        >>> with bar() as told:
        ...     told(Left(1, 2, "round 1"))
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
    except ImportError:
        yield lambda left: None
        return
    if not sys.stderr.isatty():
        yield lambda left: None
        return
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=None)
        yield lambda left: shown.update(
            task, completed=left.done, total=left.done + left.left, description=left.text
        )
