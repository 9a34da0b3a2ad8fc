"""How do all methods stand, on the ten scenes of the matrix with high noise and free links?

`python -m experiments.matrix --full`: the same search and the same sets of instances as in the
matrix. Of so many runs what is committed is the speed-up of every method in families of scenes, and
what the rows say of the claims of the matrix.
"""

from dataclasses import replace

import pandas as pd

from asyncjax import results
from asyncjax.study.methods import REFERENCE
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common.sets import spread, spread_table
from experiments.matrix import job
from experiments.matrix.job import SETS, Settings

NAME = "matrix_full"
TITLE = "How do all methods stand where noise is high and links are free?"
PAPERS = ()
COMMAND = "python -m experiments.matrix --full --commit"
FAMILIES = {**job.BY_WORKERS, **job.BY_PLACE} | {
    f"{uneven}, {skew}, {link}": {"uneven": uneven, "skew": skew, "link": link}
    for uneven in job.BY_WORKERS
    for skew in ("alike", job.LABELS)
    for link in ("free", "expensive")
}
SHOWN = {  # families of the table
    "even": "even workers",
    "alike, free links": "uneven, data alike",
    "slow hold labels, free links": "uneven, slow hold labels",
}
ORDER = "high noise"


def study_of(settings: Settings) -> Result:
    """Runs what is not there yet.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    return of_rows(job.measured(job.resolved(replace(settings, full=True)))[0])


def of_rows(result: Result) -> Result:
    """A row a family of scenes, set and method: its speed-up, with its interval."""
    rows = [
        {"scene": family, "set": letter, "method": method}
        | {name: gain[name] for name in ("ratio", "low", "high")}
        for family, where in job.met(result, FAMILIES).items()
        for letter in SETS
        for method in result.methods
        for gain in [job.speed_up(result, method, where, letter)]
    ]
    trials = result.trials()
    facts = {
        **result.facts,
        "scenes": int(result.rows["scene"].nunique()),
        "trials": {"least": int(trials["trials"].min()), "most": int(trials["trials"].max())},
        "best values": len(trials),
        "at an edge": int(trials["at_edge"].sum()),
        "steps apart": spread(result.rows, ["scene"]),
        "verdicts": result.verdicts(job.claims(result)),
    }
    return Result(pd.DataFrame(rows), "ratio", facts, result.seed)


def claims(result: Result) -> tuple[Claim, ...]:
    """What was said of single runs, which the rows do not hold."""
    return tuple(map(Claim, result.facts["verdicts"]))


def table(result: Result) -> results.Table:
    """Speed-ups of all methods; the fastest over uneven workers first."""
    by_cell, known = (
        result.rows.assign(sign="").set_index(["scene", "set", "method"]),
        {*result.rows["scene"]},
    )
    shown = {family: head for family, head in SHOWN.items() if family in known}

    def cell(family: str, method: str) -> str:
        return job.beside(*(by_cell.loc[family, letter, method] for letter in SETS))

    rows = result.select(scene=ORDER if ORDER in known else result.rows["scene"].iloc[0], set="A")
    order = rows.sort_values("ratio", ascending=False, kind="stable")["method"]
    return part.table(
        ("method", *shown.values()),
        [(m, *("1" if m == REFERENCE else cell(family, m) for family in shown)) for m in order],
        "How many times as fast as synchronous SGD until a run stays at 95 % of the way, high"
        " noise, free links: geometric mean, in brackets its 95 % interval over instances, then the"
        " mean in set B.",
    )


def apart_table(result: Result) -> results.Table:
    """How far apart the steps lie that the two sets chose for a scene."""
    return spread_table(result.facts["steps apart"])


TABLES = {"speed-ups": table, "spread": apart_table}
FIGURES = {}
FACTS = {"methods": lambda result: len(result.methods)}


def answer(result: Result) -> str:
    """Who is fastest over uneven workers."""
    first, *rest = (row[0] for row in table(result).rows)
    return f"Fastest over uneven workers: {first}, then {', '.join(rest[:4])}."
