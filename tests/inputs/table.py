"""The table of bad inputs: one line an input, `call => words its message must have`.

    clocks.constant([])                        => mean
    steps.scale_by_ada_delay(0)                => step_size; positive

In `<room>.txt`. Words are separated by `;`. A line `name = value` defines what later lines may use,
`#` opens a comment. Adding a line is how a reported case is closed.
"""

import signal
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
SECONDS = 10  # after which a call hangs
# How Python says what it cannot do with a value; none of them is a sentence for a user.
_RAW = (
    "unexpected keyword",
    "positional argument",
    "not supported between",
    "object is not",
    "object has no attribute",
    "unsupported operand",
    "not subscriptable",
    "not callable",
    "not iterable",
    "out of bounds",
    "not enough values to unpack",
    "too many values to unpack",
)


class Line(NamedTuple):
    """A line of a table."""

    file: str
    number: int
    text: str  # what is evaluated
    rest: str  # what stands behind the separator

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.text}"


class Hanging(BaseException):
    """A call that takes too long; no Exception, so that nobody catches it."""


def lines(path: Path, separator: str) -> Iterator[Line]:
    """The lines of a table, without comments; a definition has an empty rest."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            text, _, rest = line.partition(separator)
            yield Line(path.name, number, text.strip(), rest.strip())


def evaluate(text: str, names: dict[str, Any]) -> Any:
    """The value of an expression, or of what a definition binds."""
    code = compile(text, "<line>", "exec" if is_definition(text) else "eval")
    return exec(code, names) if is_definition(text) else eval(code, names)


def is_definition(text: str) -> bool:
    """Whether a line is `name = value`."""
    name, equals, rest = text.partition("=")
    return bool(equals) and name.strip().isidentifier() and not rest.startswith("=")


@contextmanager
def bounded(seconds: float = SECONDS) -> Iterator[None]:
    """Ends what takes longer with `Hanging`."""

    def ring(*_: object) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def told(text: str, names: dict[str, Any]) -> Exception | str | None:
    """What a call answers: its error, "hangs", or None where it goes by in silence."""
    try:
        with bounded(), chdir(names["folder"]):
            evaluate(text, names)
    except Hanging:
        return "hangs"
    except Exception as error:
        return error
    return None


def is_sentence(error: Exception) -> bool:
    """Whether an error is ours: of an expected kind, in one sentence that is not Python's own."""
    kinds = (TypeError, ValueError, OSError, MemoryError)
    message = str(error)
    return (
        isinstance(error, kinds)
        and len(message) < 600
        and (message.endswith("...") or not message.endswith("."))  # a long value is cut
        and not any(raw in message for raw in _RAW)
    )
