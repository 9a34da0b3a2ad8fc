"""Which way of training wins the main job where the server, or a link, takes time?

The main job has a free server and free links. Here the server takes a share of the mean job of the
fastest worker for every gradient that it gets, one after another in the order of arrival, and a
worker's next job waits for that; or every job has so long a link, half of it to download the model
and half to upload the gradient. The instances, workers and draws are those of the main job.

Every method runs with the step that the main job has chosen for it at a free server ("as at 0"),
and with a step that is tuned anew at each time ("anew"): half, the same, twice and four times that
step, all methods further while one's best is at an end. Each of the two sets has the main job's
step of that set, and tunes on the main job's tuning instances of that set. The horizon grows with
the server's time. Adaptive 1 and 2 are left out: at a free server they take two to four times as
long as pure, and they wait for the server as pure does.

A condition that is done is kept in the output folder; a second run goes on from there.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import sets
from experiments.common.kept_rows import once
from experiments.compare import job, runs
from experiments.compare.conditions import (
    ANEW,
    HELD,
    LEFT_OUT,
    LONGER,
    condition_rows,
    scene_of,
)

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
    seed: int = 0  # steps that are held are the main job's of sets A and B, whatever the seed
    shares: tuple[float, ...] = (0.01, 0.03, 0.06, 0.12, 0.25, 0.5)  # of the fastest mean job
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
    chosen = part.committed(job.NAME).rows.groupby(["set", "method"])["step"].first()
    steps = {letter: chosen[letter].to_dict() for letter in sets.SETS}
    asked = [FREE, *((axis, share) for axis in LONGER for share in settings.shares)]
    base, tables = replace(settings.job, seed=settings.seed), []
    for axis, share in asked:
        cell = partial(condition_rows, base, axis, share, steps)
        tables.append(once(settings.output / "conditions", cell))
        print(f"[{len(tables)}/{len(asked)}] {scene_of(axis, share)}", flush=True)
    facts = {"instances": settings.job.instances, "target": settings.job.target}
    facts |= {"tuning_instances": settings.job.tuning_instances, "left_out": [*LEFT_OUT]}
    facts["tuned apart"] = True
    return Result(pd.concat(tables, ignore_index=True), "time", facts, settings.seed)


def shares_of(result: Result, axis: str) -> list[float]:
    """The shares of an axis, ascending, 0 first."""
    return [0.0, *sorted(result.select(axis=axis, share=lambda share: share > 0)["share"].unique())]


def over_pure(
    result: Result, method: str, axis: str, share: float, letter: str, how: str = ANEW
) -> Any:
    """A method's time over pure's in a condition: `ratio`, `low`, `high`, `text`."""
    where = {"scene": scene_of(axis, share), "tuned_for": how}
    return result.ratio(method, PURE, set=letter, where=where).iloc[0]


def winner(result: Result, axis: str, share: float, letter: str) -> str:
    """The method of the least time, each with its step tuned anew."""
    ratios = {m: over_pure(result, m, axis, share, letter)["ratio"] for m in result.methods}
    return min(ratios, key=ratios.__getitem__)


def crossing(result: Result, letter: str, how: str) -> float | None:
    """The server's time at which the fastest half draws level with pure; None: nowhere.

    The logarithm of the ratio is taken as linear between neighbouring times.
    """
    shares = shares_of(result, "server")
    logs = [
        float(np.log(over_pure(result, HALF, "server", share, letter, how)["ratio"]))
        for share in shares
    ]
    for (low, high), (before, after) in zip(pairwise(shares), pairwise(logs), strict=True):
        if before > 0 >= after:
            return low + (high - low) * before / (before - after)
    return None


def conditions_table(result: Result) -> results.Table:
    """One row a condition: who is first, and times over pure's."""
    rows = []
    for axis in LONGER:
        for share in shares_of(result, axis)[axis != "server" :]:
            told = [" | ".join(winner(result, axis, share, letter) for letter in result.sets)]
            for method, how in ((HALF, ANEW), (HALF, HELD), ("synchronous", ANEW)):
                texts = [
                    over_pure(result, method, axis, share, letter, how)["text"].removesuffix(" *")
                    for letter in result.sets
                ]
                told.append(" | ".join(texts))
            rows.append((scene_of(axis, share), *told))
    heads = ("condition", "first", "fastest half over pure", "the same, steps of the free server")
    return part.table(
        (*heads, "synchronous over pure"),
        rows,
        f"Time to stay at {100 * result.facts['target']:g} % over that of pure async, geometric"
        f" mean over {result.facts['instances']} instances and its 95 % interval, set A | set B."
        " 'server 0.12': the server takes 0.12 of the mean job of the fastest worker for every"
        " gradient; 'link 0.12': download and upload take as long together. Steps are tuned anew"
        " in every condition, but for the column that says otherwise.",
        left=2,
    )


def curves(result: Result) -> Illustration:
    """Times over pure's against both shares, first set."""
    letter, panels = result.sets[0], []
    others = [name for name in result.methods if name != PURE]
    for axis, label in (("server", "server, for a gradient"), ("link", "link, both ways")):
        shares, lines = shares_of(result, axis), []
        for name in others:
            rows = [over_pure(result, name, axis, share, letter) for share in shares]
            ends = ([row[end] for row in rows] for end in ("ratio", "low", "high"))
            lines.append(results.Series(name, range(len(shares)), *ends))
        panels.append(plots.Panel(f"{label}\n[mean job of the fastest worker]", lines))
    figure = plots.panels(panels, y_label="time over pure async's", log_y=True)
    for axes, axis in zip(figure.axes, LONGER, strict=True):
        shares = shares_of(result, axis)
        axes.set_xticks(range(len(shares)), [f"{share:g}" for share in shares])
        axes.axhline(1.0, color="black", linewidth=0.9)
    return Illustration(
        figure,
        f"Time to stay at {100 * result.facts['target']:g} % over that of pure async (the line at"
        f" 1), geometric mean and 95 % interval over the instances of set {letter}; steps tuned"
        " anew at every time. Below the line a method is sooner than pure async.",
    )


def spread_table(result: Result) -> results.Table:
    """How far apart the steps are that were tuned anew for the two sets."""
    return sets.spread_table(sets.spread(result.select(tuned_for=ANEW), ["scene"]))


TABLES = {"conditions": conditions_table, "spread": spread_table}
FIGURES = {"curves": curves}


def cut(result: Result, letter: str) -> str:
    """How many runs of pure async with the main job's steps never stay, at the two longest times.

    Of how many stands beside it.
    """
    longest = shares_of(result, "server")[-2:]
    rows = result.select(axis="server", method=PURE, tuned_for=HELD, set=letter)
    rows = rows[rows["share"].isin(longest)]
    return f"{int((rows['time'] > rows['horizon']).sum())} of {len(rows)}"


FACTS = {
    "cut": lambda result: {letter: cut(result, letter) for letter in result.sets},
    "shares": lambda result: {axis: shares_of(result, axis) for axis in LONGER},
    "crossing": lambda result: {
        how: {letter: crossing(result, letter, how) for letter in result.sets}
        for how in (ANEW, HELD)
    },
    "winner": lambda result: {
        scene_of(axis, share): {one: winner(result, axis, share, one) for one in result.sets}
        for axis in LONGER
        for share in shares_of(result, axis)
    },
    "claims": lambda result: [claim.text for claim in CLAIMS],
}

if __name__ == "__main__":
    part.main(NAME, quick=True)
