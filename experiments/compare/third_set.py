"""The main job on a third set of instances: what do sets A and B disagree on?

Set C is drawn once, for this question alone, and its steps are tuned on instances of its own. The
set-up and the claims are those of `experiments.compare`.
"""

from dataclasses import dataclass, replace
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
    instances: int = runs.Settings.instances
    tuning_instances: int = runs.Settings.tuning_instances
    commit: bool = False  # also write the rows where the page is made from


def study_of(settings: Settings) -> Result:
    """Tunes and runs all methods on set C."""
    counts = {"instances": settings.instances, "tuning_instances": settings.tuning_instances}
    asked = replace(runs.Settings(set="C", seed=settings.seed), **counts)
    return job.as_rows(asked, job.outcomes_of(asked))


FACTS = {
    "words": lambda result: {claim: words["C"] for claim, words in result.verdicts(CLAIMS).items()}
}

if __name__ == "__main__":
    part.main(NAME)
