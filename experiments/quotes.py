"""Whether pages say what was measured: every quoted number is compared with the committed ones.

`experiments/quotes.toml` lists sentences and table rows of pages, with the place of each number in
`experiments/numbers` instead of the number:

    [[quote]]
    file = "docs/main_job.md"
    says = "reaches the target in {compare/A/methods/pure async/time/median;.1f} units"

`python -m experiments.quotes` says which sentences are missing or say something else; with
`--write` it puts the measured numbers into the pages.
"""

import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common import numbers

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("quotes.toml")
_PLACE = re.compile(r"\{([^{};]+)(?:;([^{}]*))?\}")
_NUMBER = r"(never|[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?%?)"
_WORDS = r"([A-Za-z][\w ]*\w)"


@dataclass(frozen=True)
class Quote:
    """A sentence or a row of a table.

    Attributes:
        file: Path from the root of the repository.
        says: Its text; `{NAME/KEY/KEY;FORMAT}` stands for a number of `numbers/NAME.json`. A key is
            one of a mapping, a place in a list, or `median` of a list of numbers. The format is
            Python's; without one the value is text. A time that never came is written `never`. Line
            breaks count as spaces.
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


def value_at(place: str, load: Callable[[str], Any] = numbers.load) -> Any:
    """The value at `NAME/KEY/KEY`.

    Raises:
        KeyError: A key that is not there; the error lists those that are.

    Example:
        >>> value_at("compare/times/1", lambda name: {"times": [3.0, 4.5]})
        4.5
    """
    name, *keys = place.split("/")
    value: Any = load(name)
    for key in keys:
        try:
            if isinstance(value, list):
                value = middle(value) if key == "median" else value[int(key)]
            else:
                value = value[key]
        except (KeyError, IndexError, ValueError, TypeError):
            there = list(value) if isinstance(value, dict) else value
            raise KeyError(f"{place}: there is no {key!r}, only {there}") from None
    return value


def middle(values: list[float]) -> float:
    """The least value by which half of all are there, as in `protocol.reached`: one that was seen.

    Example:
        >>> middle([4.0, 1.0, 3.0, float("inf")])
        3.0
    """
    return sorted(values)[(len(values) + 1) // 2 - 1]


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
        value, form = value_at(match[1], load), match[2] or ""
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
    load: Callable[[str], Any] = numbers.load,
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
