"""A part of an experiment: what it measured, as tables, pictures and numbers."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncjax import results


@dataclass(frozen=True)
class Part:
    """One claim, measured.

    Attributes:
        name: Short name for files, such as ``asgrad``.
        title: The question, in words.
        figures: Paths of PNG files and their captions.
        tables: Tables, first the one that answers the question.
        numbers: Everything in the tables and more, as plain values for JSON.
    """

    name: str
    title: str
    figures: tuple[tuple[Path, str], ...]
    tables: tuple[results.Table, ...]
    numbers: dict[str, Any]


def run_alone(run: Callable[[Any], Part], settings: type, description: str | None) -> None:
    """Runs one part from the command line; prints its tables and where its pictures are.

    Args:
        run: ``settings -> Part``.
        settings: The part's settings, a dataclass whose fields are the options.
        description: What ``--help`` says.
    """
    import tyro

    began = time.perf_counter()
    part = run(tyro.cli(settings, description=description))
    for table in part.tables:
        print(f"{results.as_text(table)}\n")
    for path, caption in part.figures:
        print(f"{path}  {caption}")
    print(f"done in {time.perf_counter() - began:.0f} s")
