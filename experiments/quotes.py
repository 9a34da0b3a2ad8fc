"""Whether pages say what was measured: every quoted number is compared with the committed ones.

`experiments/quotes.toml` lists sentences and table rows of pages, with the place of each number in
`experiments/numbers` instead of the number:

    [[quote]]
    file = "docs/main_job.md"
    says = "reaches the target in {compare/A/methods/pure async/time/median;.1f} units"

What stands in braces is `WHAT` or `WHAT;FORMAT`, with Python's formats. `WHAT` is a place, or
places and plain numbers joined by ` ÷ `, ` × ` or ` − ` (each between spaces; worked out from the
left):

    {compare/A/methods/synchronous/time/geometric ÷ compare/A/methods/pure async/time/geometric;.2f}
    {delay_bench/share × 100;.0f} %

A place is `NAME/KEY/KEY` in `numbers/NAME.json`. A key is one of a mapping, a place in a list (from
the end if negative), one of `REDUCERS` or `share below NUMBER` for a list of numbers, or `*` for
all entries of a mapping or a list: the keys that follow go on in each, and a reducer takes them
together where each is a number: `cells/*/times/median/most` is the largest of the medians. A
mapping's own key comes first. `benchmarks/NAME` are the rows of the tables that `python -m
benchmarks.NAME` printed, as they stand in benchmarks/README.md: a list of mappings from column to
the first number of the cell, ` over ` for ` / ` in a column's name.

`python -m experiments.quotes` says which sentences are missing or say something else; with
`--write` it puts the measured numbers into the pages.
"""

import math
import operator
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from experiments import pages
from experiments.common import numbers

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("quotes.toml")
BENCHMARKS = "benchmarks"
_PLACE = re.compile(r"\{([^{};]+)(?:;([^{}]*))?\}")
_NUMBER = r"(never|[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?%?)"
_WORDS = r"([A-Za-z][\w ]*\w)"


@dataclass(frozen=True)
class Quote:
    """A sentence or a row of a table.

    Attributes:
        file: Path from the root of the repository.
        says: Its text, with what was measured in braces. Without a format the value is text. A time
            that never came is written `never`. Line breaks count as spaces.
    """

    file: str
    says: str


def read(path: Path = LIST) -> list[Quote]:
    """The quotes of a list.

    Raises:
        ValueError: An entry has other fields than `file` and `says`.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("quote", [])
    if wrong := [entry for entry in entries if set(entry) != {"file", "says"}]:
        raise ValueError(f"a quote must have the fields file and says, got {wrong[0]}")
    return [Quote(**entry) for entry in entries]


@cache
def loaded(name: str) -> Any:
    """Committed numbers, or the tables of the benchmarks; read once."""
    return numbers.load(name) if name != BENCHMARKS else timed()


@cache
def timed(path: Path = ROOT / BENCHMARKS / "README.md") -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables of times, by the command that prints them.

    Example:
        >>> timed()["cluster"][0]["load"]
        0.3
    """
    found: dict[str, list[dict[str, Any]]] = {}
    heads, name = None, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## .*\(`python -m benchmarks\.(\w+)`\)$", line):
            name = heading[1]
        if not line.startswith("|"):
            heads = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if heads is None:
            heads = [cell.replace(" / ", " over ") for cell in cells]
        elif not set(line) <= set("|-: "):
            row = zip(heads, map(_first_number, cells), strict=True)
            found.setdefault(name, []).append(dict(row))
    return found


def _first_number(cell: str) -> Any:
    """The number with which a cell begins, or its text."""
    begins = re.match(r"\d[\d,]*(\.\d+)?(?![\w-])", cell)
    return float(begins[0].replace(",", "")) if begins else cell


def value_of(what: str, load: Callable[[str], Any] = loaded) -> Any:
    """The value of a place, or of places and plain numbers joined by ` ÷ `, ` × ` or ` − `.

    Raises:
        KeyError: As in `value_at`.
        ValueError: One of several is not a number, or what is divided by is 0.

    Example:
        >>> value_of("job/slow ÷ job/fast × 100", lambda name: {"slow": 3.0, "fast": 4.0})
        75.0
    """
    first, *rest = re.split(r" ([÷×−]) ", what.strip())
    value = _operand(first, load)
    for sign, other in zip(rest[::2], rest[1::2], strict=True):
        operands = value, _operand(other, load)
        if any(isinstance(one, bool) or not isinstance(one, int | float) for one in operands):
            raise ValueError(f"{what}: both sides of {sign} must be numbers, got {operands}")
        if sign == "÷" and not operands[1]:
            raise ValueError(f"{what}: {other} is 0 and cannot be divided by")
        value = _SIGNS[sign](*operands)
    return value


def _operand(text: str, load: Callable[[str], Any]) -> Any:
    """A plain number, or what is at a place."""
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else value_at(text, load)


class _All(list[Any]):
    """What `*` stands for: entries in each of which the following keys go on."""


def value_at(place: str, load: Callable[[str], Any] = loaded) -> Any:
    """The value at `NAME/KEY/KEY`.

    Raises:
        KeyError: A key that is not there; the error lists those that are.

    Example:
        >>> value_at("compare/times/1", lambda name: {"times": [3.0, 4.5]})
        4.5
        >>> value_at("compare/*/times/least/most", lambda name: {"a": {"times": [3.0, 4.5]}})
        3.0
    """
    name, *keys = place.split("/")
    value: Any = load(name)
    for key in keys:
        try:
            value = _entered(value, key)
        except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError):
            there = list(value) if isinstance(value, dict) else value
            raise KeyError(f"{place}: there is no {key!r}, only {there}") from None
    return value


def _entered(value: Any, key: str) -> Any:
    """What a key leads to, from here."""
    reducer = REDUCERS.get(key) or _below(key)
    if isinstance(value, _All) and (reducer is None or _nested(value)):
        return _All(_entered(entry, key) for entry in value)
    if isinstance(value, dict):
        return _All(value.values()) if key == "*" else value[key]
    if not isinstance(value, list):
        raise TypeError(f"{value!r} has no entries")
    if key == "*":
        return _All(value)
    if reducer is None:
        return value[int(key)]
    return reducer([math.inf if one is None else one for one in value])


def _below(key: str) -> Callable[[list[float]], float] | None:
    """The reducer `share below NUMBER`."""
    found = re.fullmatch(r"share below ([\d.]+)", key)
    if found is None:
        return None
    bound = float(found[1])
    return lambda values: sum(one < bound for one in values) / len(values)


def _nested(entries: list[Any]) -> bool:
    return any(isinstance(entry, dict | list) for entry in entries)


def _seen(values: list[float], share: float) -> float:
    """The least value by which that share of all are there, as in `protocol.reached`."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


REDUCERS: dict[str, Callable[[list[float]], float]] = {
    # A time that never came counts as infinite, so that a quartile is one that was seen.
    "first quartile": lambda values: _seen(values, 0.25),
    "median": lambda values: _seen(values, 0.5),
    "third quartile": lambda values: _seen(values, 0.75),
    "mean": lambda values: sum(values) / len(values),
    "geometric": lambda values: math.exp(sum(map(math.log, values)) / len(values)),
    "sum": sum,
    "least": min,
    "most": max,
    "count": len,
    # Of those that came (are finite), or of those that are true.
    "share": lambda values: (
        sum(one is not False and math.isfinite(one) for one in values) / len(values)
    ),
}
_SIGNS: dict[str, Callable[[float, float], float]] = {
    "÷": operator.truediv,
    "×": operator.mul,
    "−": operator.sub,
}


def written(value: Any, form: str) -> str:
    """A number as a page shows it.

    Example:
        >>> written(1234.5, ",.0f"), written(None, ".1f"), written(float("inf"), ".1f")
        ('1,234', 'never', 'never')
    """
    if value is None or value in (float("inf"), float("-inf")):
        return "never"
    return format(value, form)


def _parts(quote: Quote, load: Callable[[str], Any]) -> tuple[re.Pattern[str], list[str]]:
    """A pattern with a group a number, and what the groups should be."""
    pattern, wanted, end = "", [], 0
    for match in _PLACE.finditer(quote.says):
        value, form = value_of(match[1], load), match[2] or ""
        wanted.append(written(value, form))
        pattern += _spaced(quote.says[end : match.start()])
        pattern += _WORDS if isinstance(value, str) else _NUMBER
        end = match.end()
    return re.compile(pattern + _spaced(quote.says[end:])), wanted


def _spaced(text: str) -> str:
    """A pattern of a text in which any white space stands for any other."""
    return r"\s+".join(re.escape(word) for word in re.split(r"\s+", text))


def compared(
    quotes: Iterable[Quote],
    *,
    root: Path = ROOT,
    load: Callable[[str], Any] = loaded,
    write: bool = False,
) -> list[str]:
    """What pages say against what was measured.

    Args:
        quotes: What to look at.
        root: Folder of the files.
        load: Numbers by name.
        write: Put the measured numbers into the pages, where the rest of the text is found.

    Returns:
        A sentence for every quote that is not found, or found with other numbers, before anything
        was written.
    """
    wrong = []
    for quote in quotes:
        path = root / quote.file
        text = path.read_text(encoding="utf-8")
        pattern, wanted = _parts(quote, load)
        found = list(pattern.finditer(text))
        if len(found) != 1:
            count = "is not there" if not found else f"is there {len(found)} times"
            wrong.append(f"{quote.file}: {quote.says!r} {count}")
            continue
        said = list(found[0].groups())
        if said == wanted:
            continue
        wrong.append(f"{quote.file}: {quote.says!r} says {said}, measured {wanted}")
        if write:
            for group in range(len(wanted), 0, -1):
                start, end = found[0].span(group)
                text = text[:start] + wanted[group - 1] + text[end:]
            path.write_text(text, encoding="utf-8")
    return wrong


def bare(
    file: str,
    quotes: Iterable[Quote],
    *,
    root: Path = ROOT,
    load: Callable[[str], Any] = loaded,
) -> str:
    """A page without what is quoted, or filled in by its template.

    Every sign of it but bars and line breaks is a dot.
    """
    text = (root / file).read_text(encoding="utf-8")
    for quote in quotes:
        if quote.file == file:
            for found in _parts(quote, load)[0].finditer(text):
                start, end = found.span()
                text = text[:start] + re.sub(r"[^|\n]", "·", text[start:end]) + text[end:]
    filled = pages.filled(root / file)
    return "".join(
        "·" if at in filled and sign not in "|\n" else sign for at, sign in enumerate(text)
    )


def main(arguments: list[str]) -> int:
    """Prints what is wrong; the exit code is 1 if something is and nothing was written."""
    write = arguments == ["--write"]
    if arguments and not write:
        print(f"usage: python -m experiments.quotes [--write], got {' '.join(arguments)}")
        return 2
    quotes = read()
    wrong = compared(quotes, write=write)
    print("\n".join(wrong) or f"{len(quotes)} quotes are as measured")
    if write:
        wrong = compared(quotes)
        print(f"{len(quotes) - len(wrong)} of {len(quotes)} are now as measured")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
