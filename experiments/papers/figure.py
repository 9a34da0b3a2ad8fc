"""What a figure of a paper is, and how it is made again.

A paper is a file beside this one, with `PAPER`. Each of its figures has three functions: `measure`
computes its numbers, `draw` makes a picture of them, and `found` says what came out and how near it
is to the paper. Numbers are mappings of text to numbers, lists and text; the committed ones lie in
`experiments/rows/papers`, pictures beside those of the other experiments, and `docs/papers.md` is
made of both.
"""

import importlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from asyncjax import storage
from experiments import part
from experiments.common.numbers import rounded

ROWS = part.ROWS / "papers"
PAPERS = ("delay_adaptive", "asgrad", "cd_grab", "fastest_k", "pd_ors")
RECALLED = "*recalled*"  # of a setting that was remembered and not seen
DIGITS = 5
Numbers = Mapping[str, Any]


@dataclass(frozen=True)
class Options:
    """How a figure is made."""

    quick: bool = False  # smaller, in about a minute
    full: bool = False  # at the size of the paper where that takes hours
    data: Path | None = None  # a file or folder of the reader's own, for figures that take one
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """What came out, in words."""

    ours: str  # the numbers, as the paper's reading has them
    near: str  # how near that is to the paper: "met", "in kind", or what differs and why


@dataclass(frozen=True)
class Figure:
    """A figure or a table of a paper."""

    name: str
    there: str  # which one it is, its setting in the paper, and the source of that setting
    here: str  # the setting here; "as there" where it is the same
    reading: str  # what the paper reads from it
    measure: Callable[[Options], Numbers]
    draw: Callable[[Numbers], Any]  # a figure of matplotlib
    found: Callable[[Numbers], Found]
    alt: str  # of the picture
    arguments: str = ""  # of the command that made the committed numbers, such as a file


@dataclass(frozen=True)
class Paper:
    """A paper: its figures, and those that cannot be made here."""

    name: str
    title: str
    reference: str
    figures: tuple[Figure, ...]
    missing: tuple[tuple[str, str], ...] = ()  # which figure, and why
    note: str = ""  # what has to be known to read the table


def paper(name: str) -> Paper:
    """The paper of a name."""
    return importlib.import_module(f"experiments.papers.{name}").PAPER


def named(words: str) -> Iterator[tuple[Paper, Figure]]:
    """The figures that words name: a paper, `paper.figure`, or "all"."""
    name, _, wanted = words.partition(".")
    for each in PAPERS if name == "all" else (name,):
        if each not in PAPERS:
            raise ValueError(f"name must be one of {', '.join(PAPERS)} or all, got {name!r}")
        figures = [one for one in paper(each).figures if wanted in ("", one.name)]
        if not figures:
            names = ", ".join(one.name for one in paper(each).figures)
            raise ValueError(f"figure of {each} must be one of {names}, got {wanted!r}")
        yield from ((paper(each), one) for one in figures)


def make(of: Paper, figure: Figure, options: Options, folder: Path, *, commit: bool) -> Found:
    """Measures and draws a figure; writes its numbers and its picture, and returns the words."""
    began, name = time.process_time(), f"{of.name}_{figure.name}"
    numbers = rounded(figure.measure(options), DIGITS)
    minutes = (time.process_time() - began) / 60
    record = {"numbers": numbers, "minutes": rounded(minutes, 2), "date": f"{date.today()}"}
    rows = [(folder, folder)] + [(ROWS, part.FIGURES)] * commit
    for place, pictures in rows:
        place.mkdir(parents=True, exist_ok=True)
        storage.save_json(path := place / f"{name}.json", record)
        line = json.dumps(json.loads(path.read_text("utf-8")), sort_keys=True)
        storage.write_atomically(path, f"{line}\n")  # of one line, since some are long
        part.save(pictures / f"paper_{name}.png", figure.draw(numbers))
    return figure.found(numbers)


def committed(of: Paper, figure: Figure) -> dict[str, Any] | None:
    """The committed record of a figure: `numbers`, `minutes`, `date`; None: there is none."""
    path = ROWS / f"{of.name}_{figure.name}.json"
    return storage.load_json(path) if path.exists() else None


def page(path: Path) -> list[dict[str, Any]]:
    """What the template of a page at a path shows of each paper."""
    shown = []
    for of in map(paper, PAPERS):
        rows, pictures = [], []
        for one in of.figures:
            if (record := committed(of, one)) is None:
                continue
            words = one.found(record["numbers"])
            words_of_command = f"python -m experiments.papers {of.name}.{one.name}", one.arguments
            command = f"`{' '.join(filter(None, words_of_command))}`"
            minutes = f"{record['minutes']:.2g} ({record['date']})"
            cells = (one.there, one.here, one.reading, words.ours, words.near, command, minutes)
            rows.append([cell.replace("|", "\\|") for cell in cells])
            picture = part.FIGURES / f"paper_{of.name}_{one.name}.png"
            target = Path(os.path.relpath(picture, path.parent)).as_posix()
            pictures.append(f"![{one.alt}]({target})")
        fields = {"title": of.title, "reference": of.reference, "note": of.note}
        shown.append(fields | {"rows": rows, "pictures": pictures, "missing": of.missing})
    return shown
