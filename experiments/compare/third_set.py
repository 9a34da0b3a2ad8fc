"""The main job on a third set of instances: what do sets A and B disagree on?

Set C is drawn once, for this question alone, and its steps are tuned on instances of its own. The
set-up and the claims are those of `experiments.compare`.
"""

from dataclasses import dataclass
from pathlib import Path

from asyncjax.study.result import Result
from experiments import part
from experiments.compare import job, runs

NAME = "compare_third"
TITLE = "The main job on a third set of instances: what do sets A and B disagree on?"
PAGE = job.PAGE
PAPERS = job.PAPERS
CLAIMS = job.CLAIMS
TABLES = {}
FIGURES = {}


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take three to five minutes of processor time."""

    output: Path = Path("output/compare_third")
    seed: int = 0
    commit: bool = False  # also write the rows where the page is made from


def study_of(settings: Settings) -> Result:
    """Tunes and runs all methods on set C."""
    asked = runs.Settings(set="C", seed=settings.seed)
    return job.as_rows(asked, job.outcomes_of(asked))


if __name__ == "__main__":
    part.main(NAME)
