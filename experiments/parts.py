"""A part of an experiment: what it measured, as tables, pictures and numbers."""

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
