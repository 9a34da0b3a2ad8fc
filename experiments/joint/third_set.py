"""The four scenes and the two places on a third set of instances.

When each set came to be tuned on instances of its own, and a time to be that from which on a run
stays at the target, what is said of both turned. Set C is drawn once, for this question alone, and
its settings are chosen on instances of its own. Set-up and claims are those of
`experiments.joint.scenes` and `experiments.joint.placed`. The gap of the network at the end is left
out: a run ended below the loss that is taken for the least, and has no logarithm of its gap.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.joint import placed, scenes
from experiments.joint.training import END

NAME = "joint_third"
TITLE = "The joint scenes and the placed jobs on a third set of instances"
PAGE = part.ROOT / "docs" / "experiments" / "joint_scenes.md"
PAPERS = ()
TABLES = {}
FIGURES = {}


@dataclass(frozen=True)
class Settings:
    """What is run; a scene or place is written when it is measured."""

    output: Path = Path("output/joint_third")
    seed: int = 0
    commit: bool = False  # also write the rows where the pages are made from


def study_of(settings: Settings) -> Result:
    """Tunes and runs all arms on set C, in the scenes and at the places."""
    asked = {"output": settings.output, "seed": settings.seed, "sets": ("C",)}
    first = scenes.study_of(scenes.Settings(**asked))
    second = placed.study_of(placed.Settings(**asked))
    rows = pd.concat([first.rows, second.rows], ignore_index=True)
    rows = rows[(rows["scene"] != "network") | (rows["tuned_for"] != END)]
    return replace(first, rows=rows, facts={**first.facts, **second.facts})


def claims(result: Result) -> tuple[Claim, ...]:
    """Those of the scenes, and those of the places."""
    at_place = result.rows["scene"].isin([place.name for place in placed.PLACES])
    apart = (replace(result, rows=result.rows[of]) for of in (~at_place, at_place))
    return tuple(
        claim
        for module, rows in zip((scenes, placed), apart, strict=True)
        for claim in module.claims(rows)
    )


if __name__ == "__main__":
    part.main(NAME)
