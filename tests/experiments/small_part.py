"""A part of an experiment that takes no time; the data of seed 13 are missing."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from asyncjax import results
from asyncjax.results import plots, report
from asyncjax.study.result import Result
from experiments import part

NAME, TITLE, PAPERS, CLAIMS = "small", "How small?", ("Doe 2020, <Late>",), ()
COMMAND = "python"
WORDS = "It is so, as 3 < 4."


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output") / "small"
    seed: int = 0
    commit: bool = False


def study_of(settings):
    """One row, which holds the seed."""
    if settings.seed == 13:
        raise FileNotFoundError("the recordings are missing")
    row = {"scene": "one", "set": "A", "instance": 0, "method": "pure", "loss": settings.seed}
    return Result(pd.DataFrame([row]), "loss", {"seed": settings.seed}, settings.seed)


def table(result) -> results.Table:
    """The seed."""
    return part.table(("rule", "seed"), [("pure", result.facts["seed"])], "A caption.")


def figure(result) -> report.Illustration:
    """A line."""
    series = plots.Series("one", [0.0, 1.0], [1.0, 0.5], [1.0, 0.4], [1.0, 0.6])
    return report.Illustration(plots.curves([series], x_label="time", y_label="loss"), "A line.")


def answer(result) -> str:
    """What was found."""
    return WORDS


TABLES, FIGURES = {"seeds": table}, {"a line": figure}
