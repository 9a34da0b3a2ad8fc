"""`make pages`: writes pages from their templates and the committed rows; nobody types a number.

`experiments/pages/NAME.md.j2` becomes `docs/experiments/NAME.md`, and a template that lies beside a
page, such as `docs/claims.md.j2`, that page. Beside filters (`asyncjax.study.pages`) it may name:

| name | what it gives |
|---|---|
| `ratio(part, first, second, set="A", **where)` | `.text`, `.value`, `.low`, `.high` |
| `ratios(part, first, second, **where)` | one for each cell and set, with `.cell` and `.set` |
| `verdict(part, claim, ...)` | `.word`, `.by_set`, `.A`, `.B`; several claims together |
| `together(verdict(...), verdict(...))` | the same of several parts |
| `drawn_anew()` | of all parts with sets C and D what these say, and what A and B say |
| `ranges(verdict(...), logs=True)` | between which ends chosen bounds turn no word |
| `value(part, column, how="median", set="A", **where)` | a number of the rows |
| `facts(part)` | facts of the rows, and what the part's `FACTS` make of them |
| `table(part, name)` | Markdown of a table of the part, or of its `"verdicts"` |
| `figure(part, name, alt)` | a picture; `python -m experiments.pages --figures` draws it |
| `trials()` | how often each part tuned its methods, a row a part |
| `bench(name, row, column)` | a number of a table in `benchmarks/README.md` |
| `papers()` | figures of the five papers (`experiments/papers`) |
| `counted()`, `claimed()` | how many rows of `docs/claims.md` hold; their verdicts by claim |
| `simulated(kind)` | what the last campaign of `tests.simulate.seeds` gave |
| `links()` | what `experiments.links` found |

`where` is as in `study.less`. `python -m experiments.pages` writes all pages that changed, with
`--check` it says which are not current, with names it writes those alone.
"""

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from asyncjax import results
from asyncjax.results import statistics
from asyncjax.study import pages
from experiments import part
from experiments.papers import figure as figure_of_papers
from experiments.part import ROOT

HOME = Path(__file__).with_name("pages")
SITE = ROOT / "docs" / "experiments"
CLAIMS = ROOT / "docs" / "claims.md"
VERDICT = 4  # column of that page's table
COSTS = {"tuning_gradients": "gradients", "gradients": "gradients", "episodes": "episodes"}


def templates() -> dict[Path, Path]:
    """All templates, and the page that each stands for."""
    found = {path: SITE / path.stem for path in sorted(HOME.glob("*.md.j2"))}
    beside = [*ROOT.glob("*.md.j2"), *(ROOT / "docs").rglob("*.md.j2")]
    return found | {path: path.with_suffix("") for path in sorted(beside)}


def namespace(page: Path) -> dict[str, Any]:
    """What the template of a page may name."""

    def of(function: Any) -> Any:
        return lambda name, *rest, **where: function(part.judged(name), *rest, **where)

    def figure(name: str, drawn: str, alt: str) -> str:
        path = part.FIGURES / f"{name}_{drawn}.png".replace(" ", "_")
        if drawn not in part.module(name).FIGURES or not path.exists():
            raise ValueError(f"figure must be a drawn figure of {name}, got {drawn!r}")
        return f"![{alt}]({Path(os.path.relpath(path, page.parent)).as_posix()})"

    return {
        "ratio": of(pages.ratio),
        "ratios": of(pages.ratios),
        "value": of(pages.value),
        "verdict": verdict,
        "drawn_anew": drawn_anew,
        "together": together,
        "ranges": ranges,
        "facts": lambda name: part.facts(part.module(name), part.committed(name)),
        "table": lambda name, table: markdown(name)[table],
        "figure": figure,
        "trials": lambda: _rows(trials_table()),
        "bench": bench,
        "papers": lambda: figure_of_papers.page(page),
        "simulated": simulated,
        "links": lambda: json.loads((part.ROWS / "links.json").read_text(encoding="utf-8")),
        "counted": lambda: counted(claim_rows()),
        "claimed": lambda: {row[0]: row[VERDICT] for row in claim_rows()},
    }


def simulated(kind: str) -> Any:
    """How many schedules of a kind were run, how many failed, and the rare states they reached."""
    path = ROOT / "tests" / "simulate" / "campaign.json"
    return json.loads(path.read_text(encoding="utf-8"))[kind]


@cache
def _claims(name: str) -> dict[str, Any]:
    """What a part asks of all its sets, by text."""
    return {claim.text: claim for claim in part.claims(part.module(name), part.judged(name))}


@cache
def verdict(name: str, *claims: str) -> pages.Verdict:
    """What all sets of a part say of claims of its own, named by their text."""
    known = _claims(name)
    if unknown := [text for text in claims if text not in known]:
        raise ValueError(f"claim must be one of {', '.join(known)}, got {unknown[0]!r}")
    return pages.verdict(part.judged(name), *(known[text] for text in claims))


def drawn_anew() -> dict[str, Any]:
    """By part with sets C and D: how many of its questions have the `same` word, and `other` words.

    Under `questions`, what sets A and B say of each, what C and D do, whether the word is one, and
    whether a row of the claims rests on it.
    """
    rows = CLAIMS.with_suffix(".md.j2").read_text(encoding="utf-8").splitlines()
    found = {}
    for name in sorted(path.name.partition(".")[0] for path in part.REDRAWN.glob("*.csv.gz")):
        said: dict[str, list[pages.Verdict]] = {text: [] for text in _claims(name)}
        for drawn in (part.committed(name), part.redrawn(name)):
            for claim in part.claims(part.module(name), drawn):
                verdict = pages.verdict(drawn, claim)
                if verdict.asked or verdict.told:  # else it has no condition on these sets
                    said[claim.text].append(verdict)
        claimed = "".join(row for row in rows if f'verdict("{name}"' in row)
        questions = {
            text: (
                *both,
                len({str(one).partition(" (")[0] for one in both}) == 1,
                quoted in claimed,
            )
            for text, both in said.items()
            if len(both) == 2
            for quoted in [f'"{text}"']
        }
        same = sum(alike for *_, alike, _ in questions.values())
        found[name] = {"same": same, "other": len(questions) - same, "questions": questions}
    return found


def together(*found: pages.Verdict) -> pages.Verdict:
    """What verdicts of several parts come to, their conditions one family."""
    asked = [one for verdict in found for one in verdict.asked]
    told = [one for verdict in found for one in verdict.told]
    return pages.Verdict(found[0].sets, asked, told)


class Range(NamedTuple):
    """A bound that was chosen, and between which ends it turns nothing, as text."""

    bound: str
    word: str  # what each set says, and both
    tally: str  # also how many conditions hold


def ranges(found: pages.Verdict, *, logs: bool = True) -> list[Range]:
    """The bounds of a verdict that are not 0, each moved with all others left where they are.

    Args:
        found: The verdict.
        logs: Whether bounds are logarithms: then they move up to a hundredfold, and else from 0
            to ten times the bound; where nothing turns by then, an end is "any".
    """
    asked = [cache(one) for one in found.asked]

    def moved(one: Any, old: float, new: float, *at: Any) -> statistics.Condition:
        condition = one(*at)
        return replace(condition, bound=new) if condition.bound == old else condition

    def verdict(old: float, new: float) -> pages.Verdict:
        return replace(found, asked=[partial(moved, one, old, new) for one in asked])

    def end(says: Any, old: float, outer: float) -> str:
        inner, close = old, 1e-4 * abs(outer - old)
        if says(verdict(old, outer)) == says(found):
            return "any"
        while abs(outer - inner) > close:
            middle = (inner + outer) / 2
            same = says(verdict(old, middle)) == says(found)
            inner, outer = (middle, outer) if same else (inner, middle)
        return text(inner)

    def span(says: Any, bound: float) -> str:
        steps = (math.log(100),) * 2 if logs else (abs(bound), 9 * abs(bound))
        ends = end(says, bound, bound - steps[0]), end(says, bound, bound + steps[1])
        both = " to ".join(ends if logs or bound > 0 else ends[::-1])
        return "any" if both == "any to any" else both

    def text(value: float) -> str:
        return f"{math.exp(value) if logs else abs(value):.3g}"

    def word(one: pages.Verdict) -> Any:
        return one.by_set, statistics.together(one.shared)

    judged = (one for conditions in found.judged.values() for one in conditions)
    bounds = sorted({one.bound for one in judged} - {0.0})
    return [Range(text(bound), span(word, bound), span(str, bound)) for bound in bounds]


@cache
def markdown(name: str) -> dict[str, str]:
    """The tables of a part's committed rows, without their captions."""
    return {key: _rows(table) for key, table in part.committed_tables(name).items()}


def _rows(table: results.Table) -> str:
    lines = results.as_markdown(table).splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


def cells_of(text: str) -> list[list[str]]:
    """The cells of all rows of a page's tables, without heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    ruled = {at for at, line in enumerate(lines) if set(line) <= set("|-: ")}
    left = (line for at, line in enumerate(lines) if not {at, at + 1} & ruled)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in left]


@cache
def claim_rows() -> list[list[str]]:
    """The rows of `docs/claims.md` as its template and the committed rows have them."""
    return cells_of(rendered(CLAIMS.with_suffix(".md.j2"), CLAIMS))


def counted(rows: list[list[str]]) -> str:
    """How many claims hold, in words; where the sets differ, the weaker verdict counts.

    Example:
        >>> check = "holds: a check of the code"
        >>> cells = ["holds", check, check, "in part (7 of 9; A 8, B 7)"]
        >>> counted([[""] * VERDICT + [cell] for cell in cells])
        'Of 4 claims checked 1 hold here, 1 in part, 0 do not; the other 2 are checks of the code'
    """
    cells = [row[VERDICT] for row in rows]
    words = ([word for word in statistics.RANKING if word in cell] for cell in cells)
    count = Counter(max(both, key=statistics.RANKING.index) for both in words)
    none, sure = count[statistics.OPEN], sum(cell.endswith(pages.CHECK) for cell in cells)
    return (
        f"Of {count.total()} claims checked {count[statistics.HOLDS] - sure} hold here,"
        f" {count[statistics.IN_PART]} in part, {count[statistics.FAILS]} do not"
        + (f", for {none} no difference is seen" if none else "")
        + (f"; the other {sure} are checks of the code" if sure else "")
    )


@cache
def benchmarks() -> dict[str, list[dict[str, str]]]:
    """The rows of all tables of `benchmarks/README.md`, by the command that prints them."""
    found, name, heads = dict[str, list[dict[str, str]]](), "", list[str]()
    for line in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## .*\(`python -m benchmarks\.(\w+)`\)$", line):
            name = heading[1]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heads = []
        elif not heads:
            heads = cells
        elif not set(line) <= set("|-: "):
            found.setdefault(name, []).append(dict(zip(heads, cells, strict=True)))
    return found


def bench(name: str, row: int, column: str, *, inverse: bool = False) -> float:
    """The number with which a cell of a benchmark begins, or one over it.

    `row` counts the rows, over all tables of the benchmark, that have the column.

    Raises:
        ValueError: There is no such cell, or it does not begin with a number.
    """
    cells = [cells[column] for cells in benchmarks().get(name, []) if column in cells]
    cell = cells[row] if row < len(cells) else ""
    number = re.match(r"\d[\d,]*(\.\d+)?(?![\w-])", cell)
    if number is None:
        raise ValueError(f"column must be a number of row {row} of {name}, got {column!r}")
    value = float(number[0].replace(",", ""))
    return 1 / value if inverse else value


def tuned_alike(name: str) -> list[bool]:
    """For each scene of a part whether all of its methods had equally many trials."""
    return [
        len({str(one.tolist()) for _, one in scene.groupby("method")["trials"]}) == 1
        for _, scene in _tuned(name)
    ]


def _tuned(name: str) -> list[tuple[Any, Any]]:
    """By scene the rows of methods that were tuned."""
    trials = part.committed(name).trials()
    if "trials" not in trials:
        return []
    return list(trials.dropna(subset="trials").groupby("scene", sort=False))


def trials_table() -> results.Table:
    """Trials of methods, and what they cost, a row a part that was tuned."""
    rows = []
    for name in sorted(part.PARTS):
        if not (scenes := _tuned(name)):
            continue
        alike, every = tuned_alike(name), part.committed(name).trials()
        column = next((column for column in COSTS if column in every), "")
        cost = f"{_span(every[column])} {COSTS[column]}" if column else "not counted"
        trials = _span(every["trials"])
        rows.append((f"{name}.csv.gz", f"{sum(alike)} of {len(scenes)}", trials, cost))
    heads = ("groups with as many trials for all", "trials of a method", "of all its trials")
    return results.Table(
        (results.Column("numbers", right=False), *map(results.Column, heads)), tuple(rows)
    )


def _span(values: Any) -> str:
    low, high = values.dropna().min(), values.dropna().max()
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def rendered(template: Path, page: Path, *, marked: bool = False) -> str:
    """A page as its template and the committed rows have it."""
    source = template.relative_to(ROOT) if template.is_relative_to(ROOT) else template.name
    head = f"<!-- made by make pages from {source}: edit that -->\n"
    return head + pages.render(template, namespace(page), marked=marked)


def filled(page: Path) -> set[int]:
    """Where in a page stands what its template does not say itself; nowhere without a template."""
    source = next((path for path, target in templates().items() if target == page), None)
    at, inside, found = 0, False, set[int]()
    for sign in rendered(source, page, marked=True) if source else "":
        if sign in (pages.BEGIN, pages.END):
            inside = sign == pages.BEGIN
            continue
        if inside:
            found.add(at)
        at += 1
    return found


def stale(names: list[str]) -> Iterator[tuple[Path, str]]:
    """Pages that are not what they should be, and what that is."""
    for template, page in templates().items():
        if names and page.stem not in names:
            continue
        text = rendered(template, page)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            yield page, text


def main(arguments: list[str]) -> int:
    """Writes pages, or figures; with `--check` only says what is not current: exit code 1."""
    names = [name for name in arguments if not name.startswith("--")]
    options = {name for name in arguments if name.startswith("--")}
    if options - {"--check", "--figures"}:
        print(f"usage: python -m experiments.pages [--check | --figures] [NAME ...], got {options}")
        return 2
    if "--figures" in options:
        for name in names or part.PARTS:
            for path, _ in part.draw(part.module(name), part.committed(name)):
                print(path)
        return 0
    changed = 0
    for page, text in stale(names):
        changed += 1
        print(f"{page.relative_to(ROOT)} {'is not current' if '--check' in options else 'written'}")
        if "--check" not in options:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
    return int("--check" in options and changed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
