"""What the table of claims says of each: its verdict follows from committed numbers by a rule.

`experiments/claims.toml` names, for each row of `docs/claims.md`, where its verdict comes from, in
one of two ways; `{set}` stands for A or B, the two disjoint sets of instances:

    [[claim]]
    row = "placing a job on one machine pays where links are slow"
    numbers = "cluster_rivals/sets/{set}"
    by = "experiments.cluster.verdicts:verdicts"
    claims = ["placing a job on one machine pays where links are slow"]

calls the function, which gives the verdict of each claim, with the numbers at that place (as in
`experiments.quotes`); a function that gives the conditions of a single claim needs no `claims`. And

    [[claim]]
    row = "carried with PIAG, Adaptive 1 is faster than a carried constant"
    verdicts = ["NAME/verdicts/set {set}/PIAG: Adaptive 1 is faster than a constant"]

reads verdicts that the program has put among its numbers. A row of several claims holds if all do,
and in part if one of them does, in part or whole. Where the two sets differ, the table has both.

`python -m experiments.claims` says which rows say something else or have no rule; with `--write` it
puts the verdicts into the table, and how many there are of each into the readme.
"""

import importlib
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncjax.study.statistics import FAILS, HOLDS, IN_PART, OPEN, RANKING, together, verdict
from experiments import quotes
from experiments.common import numbers

LIST = Path(__file__).with_name("claims.toml")
TABLE, README = "docs/claims.md", "README.md"
SETS = ("A", "B")
COLUMN = 4  # of the verdicts
_COUNTS = r"Of \d+ claims checked[^:]*:"


@dataclass(frozen=True)
class Rule:
    """Where the verdict of a row comes from: `verdicts`, or what `by` says of `numbers`.

    Attributes:
        row: First cell of the row.
        verdicts: Places of verdicts among committed numbers.
        numbers: Place of the numbers of a set.
        by: `module:function`, numbers of a set -> verdict by claim, or conditions of one claim.
        claims: Which of these; none: the function gives conditions.
    """

    row: str
    verdicts: tuple[str, ...] = ()
    numbers: str = ""
    by: str = ""
    claims: tuple[str, ...] = ()


def read(path: Path = LIST) -> list[Rule]:
    """The rules of a list.

    Raises:
        ValueError: An entry has other fields than one of the two ways, or a row has two.
    """
    made = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("claim", []):
        if set(entry) - {"claims"} not in ({"row", "verdicts"}, {"row", "numbers", "by"}):
            raise ValueError(
                "a claim must have the fields row and verdicts, or row, numbers, by and perhaps"
                f" claims, got {entry}"
            )
        lists = {name: tuple(own) for name, own in entry.items() if isinstance(own, list)}
        made.append(Rule(**(entry | lists)))
    if double := [row for row, count in Counter(rule.row for rule in made).items() if count > 1]:
        raise ValueError(f"a row must have one entry, got more for {double[0]!r}")
    return made


def judged(rule: Rule, letter: str, load: Callable[[str], Any] = numbers.load) -> str:
    """What one set of instances says of a row.

    Args:
        rule: Of the row.
        letter: A or B.
        load: Numbers by name.

    Raises:
        KeyError: The numbers, or a claim among the verdicts, are not there.
    """
    if rule.verdicts:
        places = [place.replace("{set}", letter) for place in rule.verdicts]
        return together([quotes.value_at(place, load) for place in places])
    module, _, name = rule.by.partition(":")
    own = quotes.value_at(rule.numbers.replace("{set}", letter), load)
    found = getattr(importlib.import_module(module), name)(own)
    if not rule.claims:
        return verdict(found)
    return together([found[claim] for claim in rule.claims])


def shown(verdicts: Sequence[str]) -> str:
    """The verdicts of both sets in the table.

    Example:
        >>> shown(["holds", "holds"]), shown(["holds", "in part"])
        ('holds', 'holds (A), in part (B)')
    """
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return ", ".join(f"{own} ({letter})" for own, letter in zip(verdicts, SETS, strict=True))


def weaker(text: str) -> str:
    """A row's verdict as it counts: the weaker one where the sets differ.

    Example:
        >>> weaker("holds (A), in part (B)")
        'in part'
    """
    return max((re.sub(r" \(.\)$", "", one) for one in text.split(", ")), key=RANKING.index)


def rows_of(text: str) -> list[list[str]]:
    """Cells of the rows of the table on a page, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def counted(rows: Iterable[Sequence[str]]) -> str:
    """How many claims hold, in words.

    Example:
        >>> counted([["", "", "", "", "holds"], ["", "", "", "", "does not hold"]])
        'Of 2 claims checked 1 hold here, 0 in part, 1 do not:'
    """
    count = Counter(weaker(row[COLUMN]) for row in rows)
    last = f"{count[FAILS]} do not" + (f", {count[OPEN]} are open" if count[OPEN] else "")
    return (
        f"Of {count.total()} claims checked {count[HOLDS]} hold here, {count[IN_PART]} in part,"
        f" {last}:"
    )


def compared(
    rules: Iterable[Rule],
    *,
    root: Path = quotes.ROOT,
    load: Callable[[str], Any] = numbers.load,
    write: bool = False,
) -> tuple[list[str], list[str]]:
    """The table and the readme against the numbers.

    Args:
        rules: Of the rows.
        root: Folder of the pages.
        load: Numbers by name.
        write: Put the verdicts and their counts into the pages.

    Returns:
        A sentence for everything that is wrong, before anything was written; and the rows without
        a rule.
    """
    path, by_row = root / TABLE, {rule.row: rule for rule in rules}
    text, wrong, without = path.read_text(encoding="utf-8"), [], []
    source = root / f"{TABLE}.j2"  # whose rows judge themselves where a part has rows
    template = source.read_text(encoding="utf-8").splitlines() if source.exists() else []
    for line in [line for line in text.splitlines() if line.startswith("|")][2:]:
        cells = line.split("|")  # the first is what stands before the line's first bar
        rule = by_row.pop(cells[1].strip(), None)
        if rule is None:
            if not any(row.startswith(f"|{cells[1]}|") and "verdict(" in row for row in template):
                without.append(cells[1].strip())
            continue
        found, said = shown([judged(rule, one, load) for one in SETS]), cells[COLUMN + 1].strip()
        if said != found:
            wrong.append(f"{TABLE}: {rule.row!r} says {said}, the numbers say {found}")
            cells[COLUMN + 1] = f" {found} "
            text = text.replace(line, "|".join(cells))
    wrong += [f"{LIST.name}: no row {row!r} in {TABLE}" for row in by_row]
    readme = (root / README).read_text(encoding="utf-8")
    (said,) = re.findall(_COUNTS, readme)
    if " ".join(said.split()) != (count := counted(rows_of(text))):
        wrong.append(f"{README}: {' '.join(said.split())!r}, the table has {count!r}")
    if write:
        path.write_text(text, encoding="utf-8")
        (root / README).write_text(readme.replace(said, count), encoding="utf-8")
    return wrong, without


def main(arguments: list[str]) -> int:
    """Prints what is wrong; the exit code is 1 if something is and nothing was written."""
    write = arguments == ["--write"]
    if arguments and not write:
        print(f"usage: python -m experiments.claims [--write], got {' '.join(arguments)}")
        return 2
    rules = read()
    wrong, without = compared(rules, write=write)
    print("\n".join(wrong) or f"{len(rules)} verdicts are what the numbers say")
    for row in without:
        print(f"no rule: {row}")
    if write:
        wrong, _ = compared(rules)
    return int(bool(wrong or without))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
