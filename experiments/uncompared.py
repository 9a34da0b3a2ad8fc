"""Numbers of pages that no test compares with what was measured.

A number of a page is compared if it stands in a quote (`experiments.quotes`), in a row of a table
that a program makes of committed numbers (`experiments.page_tables`), or between marks "made by"
(such a page has a test of its own). A number that also stands in such a quote or row of the same
section repeats it. What is left is listed in `experiments/uncompared.toml`, with the reason: whole
words of the pages that readers see first, and for each section of the experiments how many there
are at most. Code, links, headings, pictures, years and names do not count.

`python -m experiments.uncompared` prints what is left line by line, and how much of each section.
Lines before the first section are of section 0.
"""

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from experiments import page_tables, quotes

LIST = Path(__file__).with_name("uncompared.toml")
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/claims.md",
    "docs/main_job.md",
    "docs/which_rule.md",
    "docs/speed_and_limits.md",
    "docs/protocol.md",
)
EXPERIMENTS = "experiments/README.md"
NUMBER = re.compile(r"(?<![\w.`/-])[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e-?\d+)?(?!\w)")
_UNREAD = (
    r"<!-- made by .*?<!-- end of what is made -->",
    r"```.*?```",
    r"`[^`]*`",
    r"!\[[^\]]*\]",
    r"\]\([^)]*\)",
    r"https?://\S+",
    r"(?m)^#[^\n]*",
    r"(?m)^\|[^\n]*\n(?=\|[ :|-]+\n)",
    r"\b[Pp]arts? \d+(?:(?:,| and| to) \d+)*",
    r"\b(?:19|20)\d\d(?:-\d\d-\d\d)?\b(?! \w+ of)",
    r"Of \d+ claims checked[^:]*:",
    r"(?:Python|jax|optax|ray) \d[\d.]*",
    r"Adaptive 1(?:\s+and\s+2)?|Adaptive 2|job_?\s?\d",
)


def _blank(text: str) -> str:
    return re.sub(r"[^|\n]", " ", text)


def unread(text: str) -> str:
    """A page of which only what may be measured is left, line by line.

    Example:
        >>> unread("part 3: `n = 8` takes 12 updates, as in 2021").split()
        [':', 'takes', '12', 'updates,', 'as', 'in']
    """
    for pattern in _UNREAD:
        text = re.sub(pattern, lambda found: _blank(found[0]), text, flags=re.DOTALL)
    return text


def sections_of(text: str) -> list[str]:
    """The number of the `##` section of every line; 0 before the first, empty without one."""
    found, now = [], "0"
    for line in text.split("\n"):
        if heading := re.match(r"## (\d*)", line):
            now = heading[1]
        found.append(now)
    return found


class Left(NamedTuple):
    """Numbers of a line that are not compared."""

    file: str
    line: int
    section: str
    table: bool
    numbers: tuple[str, ...]


def left_in(file: str, text: str, bare: str, rows: Iterable[str] = ()) -> list[Left]:
    """Lines of a page with numbers that are not compared.

    Args:
        file: Its name.
        text: The page.
        bare: The same with dots for what is quoted or allowed.
        rows: Of tables that programs make.
    """
    known, lines, sections = set(rows), text.split("\n"), sections_of(text)
    said: dict[str, set[str]] = {}
    for line, own, section in zip(lines, bare.split("\n"), sections, strict=True):
        sure = line if page_tables.plain(line) in known else _quoted(line, own)
        said.setdefault(section, set()).update(_numbers(sure))
    found = []
    for place, own in enumerate(unread(bare).split("\n")):
        line, section = lines[place], sections[place]
        numbers = [] if page_tables.plain(line) in known else _numbers(own)
        if left := tuple(one for one in numbers if one not in said[section]):
            found.append(Left(file, place + 1, section, line.startswith("|"), left))
    return found


def _numbers(text: str) -> list[str]:
    return [one.rstrip(",") for one in NUMBER.findall(text)]


def _quoted(line: str, bare: str) -> str:
    """What of a line lies within quotes."""
    return "".join(one if other == "·" else " " for one, other in zip(line, bare, strict=True))


def allowed(path: Path = LIST) -> tuple[list[quotes.Quote], dict[tuple[str, bool], int]]:
    """What need not be compared: words of pages, and how many numbers a section may have left.

    Returns:
        The words as quotes without places; and by section, prose or table, how many at most. The
        sections of `EXPERIMENTS` are their numbers, another page is a section as a whole.
    """
    listed = tomllib.loads(path.read_text(encoding="utf-8"))
    words = [quotes.Quote(own["file"], one) for own in listed["words"] for one in own["says"]]
    most = {}
    for own in listed["section"]:
        for section, (prose, tables) in own["most"].items():
            most |= {(section, False): prose, (section, True): tables}
    return words, most


def left() -> list[Left]:
    """All that is left on all pages but what is allowed in words."""
    rows, (words, _), found = page_tables.rows(), allowed(), []
    for file in (*PAGES, EXPERIMENTS):
        text = (quotes.ROOT / file).read_text(encoding="utf-8")
        bare = quotes.bare(file, [*quotes.read(), *words])
        found += left_in(file, text, bare, rows)
    return found


def counted(found: Iterable[Left]) -> Counter[tuple[str, bool]]:
    """How many numbers are left by section, in prose and in tables."""
    count: Counter[tuple[str, bool]] = Counter()
    for one in found:
        section = one.section if one.file == EXPERIMENTS else one.file
        count[section, one.table] += len(one.numbers)
    return count


def wrong(found: Iterable[Left], most: Mapping[tuple[str, bool], int]) -> list[str]:
    """A sentence for every section with too many.

    Args:
        found: What is left.
        most: How many there may be, by section, in prose and in tables.
    """
    found, said = list(found), []
    for (section, table), count in sorted(counted(found).items()):
        if count > (bound := most.get((section, table), 0)):
            where = section if section in PAGES else f"part {section} of {EXPERIMENTS}"
            kind = "tables" if table else "prose"
            said.append(f"{where}: {count} numbers in {kind} are not compared, {bound} may be")
    return said


def main() -> int:
    """Prints what is left; the exit code is 1 if it is more than the list allows."""
    found = left()
    for one in found:
        print(f"{one.file}:{one.line}: {', '.join(one.numbers)}")
    for (section, table), count in sorted(counted(found).items()):
        print(f"{section}, {'tables' if table else 'prose'}: {count}")
    said = wrong(found, allowed()[1])
    print("\n".join(said) or "no more than is allowed")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
