"""What experiments say of committed numbers: every verdict by name, with the figures behind it.

    python -m tests.tools.verdicts --write FILE      the verdicts of this tree
    python -m tests.tools.verdicts --compare FILE    every one that differs, is missing or is new

`--only PART`, once or more, takes these parts alone; with `--write` the file keeps the others.
`--words` compares words and names and leaves figures out. Something that differs, or cannot be
made, makes the exit status 1.

A verdict is a name, a word and figures. No part is known here by name; of each there are

| name | word | figures |
|---|---|---|
| `PART / SET / CLAIM` | of the claim | how many conditions it has, and how many hold |
| `PART / SET / CLAIM / CONDITION` | of the condition | mean, interval and bound, as judged |
| `PART / table TABLE` | its headings and caption | |
| `PART / table TABLE / FIRST CELLS` | the cells behind them | |
| `PART / fact FACT` | its texts | its numbers |
| `PART / answer` | the answer | |

and `claims / CLAIM` of each row of `docs/claims.md`. Nothing is run but what makes pages of numbers
that are committed. `tests/experiments/verdicts.json` says at which commit it was written, since
which the words in it are what they are (`words`), and since when they have these names (`names`).
"""

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import jax

from asyncjax import results
from asyncjax.results import statistics
from experiments import pages, part
from tests.tools import frozen

Figures = Mapping[str, float | None]  # None: not a finite number
Verdicts = Mapping[str, tuple[str, Figures]]  # by name
Said = Iterator[tuple[str, str, dict[str, float]]]  # name without the part, word, figures
FILE = Path(__file__).parents[1] / "experiments" / "verdicts.json"
CLAIMS = "claims"  # the page
PARTS = (CLAIMS, *part.PARTS)
DIGITS = 6
CLOSE = 2e-6  # relative: two of the last digit that is kept
NAUGHT = 1e-9  # below it a figure is 0
APART = " / "


def rounded(value: float) -> float | None:
    """A figure as it is kept; None for what is no finite number.

    Example:
        >>> rounded(2 / 3), rounded(float("inf")), rounded(12)
        (0.666667, None, 12.0)
    """
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def of_claim(result: Any, claim: Any) -> Said:
    """What each set says of a claim and of its conditions: name, word, figures."""
    if not claim.conditions:  # a fact of the study
        yield from (
            (f"{letter} / {claim.text}", word, {}) for letter, word in result.verdict(claim).items()
        )
        return
    for letter in result.sets:
        name = f"{letter} / {claim.text}"
        conditions = result.judged([claim], letter).get(claim.text)
        if conditions is None:  # no run of this set is there
            continue
        hold = sum(condition.verdict == statistics.HOLDS for condition in conditions)
        yield name, statistics.verdict(conditions), {"of": len(conditions), "hold": hold}
        for condition in conditions:
            judged = {key: getattr(condition.difference, key) for key in ("mean", "low", "high")}
            figures = judged | {"bound": condition.bound}
            yield f"{name} / {condition.text}", condition.verdict, figures


def of_table(key: str, table: results.Table) -> Said:
    """What a table says: its head, and its rows, named by as few first cells as tell them apart.

    In a name an empty cell is the one above it.
    """
    name, rows = f"table {key}", table.cells()
    yield name, " | ".join([*(column.label for column in table.columns), table.caption]), {}
    words = sum(not column.right for column in table.columns)
    firsts = list(
        accumulate(rows, lambda above, row: [a or b for a, b in zip(row, above, strict=True)])
    )
    few = (n for n in range(1, words) if len({(*row[:n],) for row in firsts}) == len(rows))
    count = next(few, 1)
    for first, row in zip(firsts, rows, strict=True):
        yield f"{name} / {', '.join(first[:count])}", " | ".join(row[count:]), {}


def of_fact(key: str, value: Any) -> tuple[str, str, dict[str, float]]:
    """What a part makes for pages beside its tables: its texts, and its numbers by their keys."""
    leaves = jax.tree_util.tree_leaves_with_path(value)
    texts = [leaf for _, leaf in leaves if isinstance(leaf, str)]
    figures = {
        jax.tree_util.keystr(path, simple=True, separator=", "): float(leaf)
        for path, leaf in leaves
        if not isinstance(leaf, str)
    }
    return f"fact {key}", "; ".join(texts), figures


def of_part(name: str) -> Said:
    """What a part says, or the page of all claims."""
    if name == CLAIMS:
        rows = pages.cells_of(pages.CLAIMS.read_text(encoding="utf-8"))  # made by its template
        yield from ((row[0], row[pages.VERDICT], {}) for row in rows)
        yield "how many", pages.counted(rows), {}
        return
    module, result = part.module(name), part.judged(name)
    for claim in part.claims(module, result):
        yield from of_claim(result, claim)
    for key, table in part.committed_tables(name).items():
        yield from of_table(key, table)
    for key, make in getattr(module, "FACTS", {}).items():
        yield of_fact(key, make(part.committed(name)))
    yield "answer", part.answer(module, part.committed(name)), {}


def verdicts_of(name: str) -> Verdicts:
    """The verdicts of a part by full name, rounded; of those with one name all but one numbered."""
    verdicts: dict[str, tuple[str, Figures]] = {}
    for begin, word, figures in of_part(name):
        full, count = name + APART + begin, 1
        while full in verdicts:
            count += 1
            full = f"{name}{APART}{begin} ({count})"
        verdicts[full] = word, {key: rounded(value) for key, value in figures.items()}
    return verdicts


def _alike(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=NAUGHT)


def differences(old: Verdicts, new: Verdicts, words: bool = False) -> list[str]:
    """A line for every verdict that differs, is missing or is new.

    Args:
        old: What was.
        new: What is.
        words: Whether figures are left out; those that the old ones lack are not compared.

    Example:
        >>> one, other = {"a": ("in part", {"mean": 1.0})}, {"a": ("holds", {"mean": 1.1})}
        >>> differences(one, other)
        ["word     a: was 'in part', is 'holds'", 'figure   a: mean was 1.0, is 1.1']
        >>> differences(one, other, words=True)
        ["word     a: was 'in part', is 'holds'"]
    """
    lines = [f"missing  {name}" for name in old if name not in new]
    lines += [f"new      {name}" for name in new if name not in old]
    for name in sorted(old.keys() & new.keys()):
        (was, figures), (word, now) = old[name], new[name]
        if was != word:
            lines.append(f"word     {name}: was {was!r}, is {word!r}")
        lines += [
            f"figure   {name}: {key} was {value}, is {now.get(key)}"
            for key, value in figures.items()
            if not words and not _alike(value, now.get(key, math.nan))
        ]
    return lines


def part_of(name: str) -> str:
    """The part of a verdict."""
    return name.partition(APART)[0]


def read(path: Path) -> tuple[Verdicts, str]:
    """The verdicts of a file, and the commit at which it was written."""
    file = json.loads(path.read_text(encoding="utf-8"))
    return {name: tuple(said) for name, said in file["verdicts"].items()}, file["commit"]


def write(path: Path, verdicts: Verdicts) -> None:
    """Writes a line a verdict, after the commit of this tree; what else its head says stays."""
    asked = ["git", "rev-parse", "HEAD"]
    here = Path(__file__).parent
    done = subprocess.run(asked, cwd=here, capture_output=True, text=True, check=True)
    head = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    head |= {"commit": done.stdout.strip(), "verdicts": {}}
    lines = [f"{json.dumps(name)}: {json.dumps(said)}" for name, said in sorted(verdicts.items())]
    begin = json.dumps(head, indent=0).removesuffix("}\n}")
    path.write_text(begin + "\n" + ",\n".join(lines) + "\n}\n}\n", encoding="utf-8")


KEPT = frozen.Frozen(
    "verdicts", PARTS, verdicts_of, part_of, read, write, differences, options=("words",)
)

if __name__ == "__main__":
    sys.exit(frozen.main(KEPT))
