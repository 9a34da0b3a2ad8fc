"""A part of an experiment that takes no time; the data of seed 13 are missing."""

from dataclasses import dataclass
from pathlib import Path

from asyncjax import results
from asyncjax.results import plots
from experiments.common.parts import written


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output") / "small"
    seed: int = 0


def run(settings):
    """Draws a line and writes the seed."""
    if settings.seed == 13:
        raise FileNotFoundError("the recordings are missing")
    series = plots.Series("one", [0.0, 1.0], [1.0, 0.5], [1.0, 0.4], [1.0, 0.6])
    figure = plots.curves([series], x_label="time", y_label="loss")
    columns = (results.Column("rule", right=False), results.Column("seed"))
    table = results.Table(columns, (("pure", settings.seed),), "A caption.")
    drawings = [("a line", figure, "A line.")]
    return written(
        settings.output, "small", "How small?", drawings, [table], {"seed": settings.seed}
    )
