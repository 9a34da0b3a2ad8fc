"""How well do links in bytes predict measured DiLoCo runs that were left out?

    python -m experiments.links ../shared/traces/diloco_l40s.csv

fits `asyncjax links` to the runs without one link, without one number of local steps, without one
cell, and to one cell alone, predicts the rest, and writes `experiments/rows/links.json`, which
`docs/howto/links.md` is made from. The usual formula stands beside it: steps, and bytes over
bandwidth. The runs: Adnan082/diloco-measured, experiments/01_cu_grid (Apache-2.0).
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from asyncjax import storage
from asyncjax.clocks.links_command import over_bandwidth, over_ways
from asyncjax.clocks.synchronization import Measured, SyncTimes, assumed, fit_runs, read_runs
from experiments.part import ROWS

FILE = ROWS / "links.json"
N_PARAMETERS = 30_846_720
PAYLOAD: dict[str, Any] = {"nbytes": 4 * N_PARAMETERS, "n_workers": 4}
GROUPS: dict[str, Callable[[Measured], Any]] = {
    "one link": lambda one: one.cell.bits_per_second,
    "one number of local steps": lambda one: one.cell.local_steps,
    "one cell": lambda one: one.cell,
}
Split = tuple[list[Measured], list[Measured]]  # what is fitted to, what is predicted


def splits(measured: Sequence[Measured], group: Callable[[Measured], Any]) -> Iterable[Split]:
    """Leaves each group out in turn."""
    for left_out in sorted({group(one) for one in measured}):
        rest = [one for one in measured if group(one) != left_out]
        yield rest, [one for one in measured if group(one) == left_out]


def alone(measured: Sequence[Measured]) -> Iterable[Split]:
    """Fits to each cell alone."""
    for one in measured:
        yield [one], [other for other in measured if other is not one]


def usual(fit: SyncTimes, one: Measured) -> float:
    """The share by the usual formula, with the step time of a fit and the counts of the cell."""
    speed = one.cell.bits_per_second
    formula = assumed(**PAYLOAD, bits_per_second=speed, step=fit.compute)
    return formula.predict(one.cell).share


def predicted(splits: Iterable[Split]) -> list[dict[str, Any]]:
    """A row for each prediction of a cell that was left out."""
    rows = []
    for rest, left_out in splits:
        fit = fit_runs(rest, **PAYLOAD)
        for one in left_out:
            answer, formula = fit.predict(one.cell), usual(fit, one)
            rows.append(
                {
                    "local_steps": one.cell.local_steps,
                    "link_mbit_per_s": one.cell.bits_per_second / 1e6,
                    "measured": one.share,
                    "holds": answer.low <= one.share <= answer.high,
                    **answer._asdict(),
                    "error": abs(answer.share / one.share - 1),
                    "usual": formula,
                    "usual_error": abs(formula / one.share - 1),
                }
            )
    return sorted(rows, key=lambda row: (row["link_mbit_per_s"], row["local_steps"]))


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Median and largest errors, and how often the interval holds the truth."""
    errors, formula = ([row[name] for row in rows] for name in ("error", "usual_error"))
    return {
        "predictions": len(rows),
        "median": float(np.median(errors)),
        "largest": max(errors),
        "usual_median": float(np.median(formula)),
        "usual_largest": max(formula),
        "holds": float(np.mean([row["holds"] for row in rows])),
    }


def sweep(fit: SyncTimes) -> dict[str, float]:
    """How long 200 cells of local steps, bandwidths, fragments and compression take."""
    begin, cells = time.perf_counter(), 0
    for steps in (8, 16, 32, 64, 128):
        for speed in np.geomspace(1e7, 1e11, 5):
            for parts, overlap in ((1, 0), (4, 0), (4, 2), (8, 1)):
                for factor in (1.0, 4.0):
                    ways = {"fragments": parts, "overlap": overlap, "compression": factor}
                    fit.utilisation(steps, float(speed), **ways)
                    cells += 1
    return {"cells": cells, "seconds": time.perf_counter() - begin}


def answer(path: Any) -> dict[str, Any]:
    """Everything that the page says, from the file of runs."""
    measured = read_runs(path)
    fit = fit_runs(measured, **PAYLOAD)
    left_out = {name: predicted(splits(measured, group)) for name, group in GROUPS.items()}
    left_out["all cells but one"] = predicted(alone(measured))
    return {
        "cells": left_out["one link"],
        "left_out": {name: summary(rows) for name, rows in left_out.items()},
        "over_bandwidth": over_bandwidth(fit),
        "over_ways": over_ways(fit),
        "sweep": sweep(fit),
        "fit": {
            "n_parameters": N_PARAMETERS,
            "compute_ms": 1e3 * fit.compute,
            "uneven": fit.uneven,
            "links": [
                {"link_mbit_per_s": speed / 1e6, "efficiency": share, "first_ms": 1e3 * first}
                for speed, share, first in zip(fit.links, fit.efficiency, fit.first, strict=True)
            ],
        },
    }


if __name__ == "__main__":
    storage.save_json(FILE, answer(sys.argv[1]))
