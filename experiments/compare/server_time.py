"""Which way of training wins the main job where the server, or a link, takes time?

The main job has a free server and free links. Here the server takes a share of the mean job of the
fastest worker for every gradient that it gets, one after another in the order of arrival, and a
worker's next job waits for that; or every job has so long a link, half of it to download the model
and half to upload the gradient. The instances, workers and draws are those of the main job.

Every method runs with the step that the main job has chosen for it at a free server ("as at 0"),
and with a step that is tuned anew at each time ("anew"): half, the same, twice and four times that
step, on the main job's tuning instances, all methods further while one's best is at an end. The
horizon grows with the server's time. Adaptive 1 and 2 are left out: at a free server they take two
to four times as long as pure, and they wait for the server as pure does.

A condition that is done is kept in the output folder; a second run goes on from there.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common.kept_rows import once
from experiments.compare import job, runs
from experiments.compare.conditions import ANEW, LEFT_OUT, LONGER, condition_rows, scene_of

NAME = "compare_server"
TITLE = "Which way of training wins the main job where the server, or a link, takes time?"
PAGE = job.PAGE
PAPERS = job.PAPERS
PURE, HALF = "pure async", "fastest half"
FREE = ("server", 0.0)


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about 15 minutes of processor time."""

    output: Path = Path("output/compare_server")  # also keeps conditions that are done
    seed: int = 0
    shares: tuple[float, ...] = (0.12, 0.5, 0.25, 0.06, 0.03, 0.01)  # of the fastest mean job
    job: runs.Settings = field(default_factory=lambda: runs.Settings(instances=8, rounds=(1, 4)))
    commit: bool = False  # also write rows and figures where the page is made from


def _flip(text: str, share: float, first: str, second: str) -> Claim:
    return Claim(text, [less(first, second, scene=scene_of("server", share), tuned_for=ANEW)])


CLAIMS = (
    _flip("pure async is at the target before the fastest half, free server", 0.0, PURE, HALF),
    _flip("the fastest half is at the target before pure async, server 0.12", 0.12, HALF, PURE),
    _flip("the fastest half is at the target before pure async, server 0.5", 0.5, HALF, PURE),
    Claim(
        "pure async is at the target before synchronous rounds at every link",
        [less(PURE, "synchronous", each=True, axis="link", tuned_for=ANEW)],
    ),
)


def study_of(settings: Settings) -> Result:
    """Runs all conditions that are missing, that of a free server first."""
    steps = part.committed(job.NAME).rows.groupby("method")["step"].first().to_dict()
    asked = [FREE, *((axis, share) for share in settings.shares for axis in LONGER)]
    base, tables = replace(settings.job, seed=settings.seed), []
    for axis, share in asked:
        cell = partial(condition_rows, base, axis, share, steps)
        tables.append(once(settings.output / "conditions", cell))
        print(f"[{len(tables)}/{len(asked)}] {scene_of(axis, share)}", flush=True)
    facts = {"instances": settings.job.instances, "target": settings.job.target}
    facts |= {"tuning_instances": settings.job.tuning_instances, "left_out": [*LEFT_OUT]}
    return Result(pd.concat(tables, ignore_index=True), "time", facts, settings.seed)


TABLES = {}
FIGURES = {}

if __name__ == "__main__":
    part.main(NAME, quick=True)
