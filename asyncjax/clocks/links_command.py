"""`asyncjax links`: how long workers compute and how long they wait for the network.

    asyncjax links measured.csv --parameters 30846720 --workers 4 --predict cells.csv
    asyncjax links --parameters 30.8e6 --workers 4 --link 1e9 --step-ms 25

FILE has a row for each step of runs of DiLoCo, local SGD or DDP, warm-up left out, with the columns
  algorithm, local_steps, link_mbit_per_s, repeat, step, outer (1 where it synchronised),
  compute_ms, sync_blocked_ms, optimizer_ms, loader_ms
CELLS has a row for each way to run that is asked for: algorithm, local_steps, link_mbit_per_s, and
perhaps steps and outer, how many of each were measured. What is said is the share of time spent
computing, with an interval, for them and for many local steps and bandwidths; and what fragments,
overlap and compression would give.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Any

from asyncjax.checks import real, whole
from asyncjax.clocks.synchronization import (
    Cell,
    Prediction,
    SyncTimes,
    assumed,
    fit_runs,
    read_cells,
    read_runs,
)
from asyncjax.storage import save_json
from asyncjax.terminal import answered, options, plain

PROGRAM = "asyncjax links"
BUSY = 0.9  # the share of time computing that a knee is at
STEPS = (1, 8, 32, 128, 512)
SPEEDS = (1e8, 2e8, 5e8, 1e9, 2.5e9, 1e10, 2.5e10, 1e11)
# Columns of the last table: fragments, whether the next is computed meanwhile, compression.
WAYS = (
    ("as it is", 1, False, 1.0),
    ("4 fragments, sent while computing", 4, True, 1.0),
    ("a quarter of the bytes", 1, False, 4.0),
    ("both", 4, True, 4.0),
)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = options(program, str(__doc__).replace(PROGRAM, program))
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="table of measured runs")
    add("--parameters", metavar="N", help="how many the model has, such as 30.8e6")
    add("--workers", type=int, metavar="N", help="how many sum their models")
    add("--bytes", type=float, default=4.0, help="sent for each parameter; default: 4, float32")
    add("--predict", metavar="CELLS", help="table of ways to run, to be predicted")
    add("--json", metavar="FILE", help="where to write the predictions")
    add("--link", metavar="BITS", help="without FILE: bandwidth, bits a second, such as 1e9")
    add("--step-ms", metavar="MS", help="without FILE: time to compute a step, milliseconds")
    return parser


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command, called as `program`, with what stands behind it; its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return answered("links", _parser(program), given, _run)


def _run(settings: argparse.Namespace) -> int:
    if settings.json and not settings.predict:
        raise ValueError("--json must come with --predict, whose rows it has the answers to")
    fit, told = _model(settings)
    text = [*told, "", *over_bandwidth(fit), "", *over_ways(fit)]
    if settings.predict:
        cells = read_cells(settings.predict)
        answers = [fit.predict(cell) for cell in cells]
        text += ["", *_predicted(cells, answers)]
        if settings.json:
            save_json(settings.json, {"cells": list(map(_entry, cells, answers))})
    print(plain("\n".join(text), lines=True))
    return 0


def _entry(cell: Cell, answer: Prediction) -> dict[str, Any]:
    """What the file of predictions says of one cell."""
    named = {"algorithm": cell.algorithm, "local_steps": cell.local_steps}
    shares = {"share_computing": answer.share, "low": answer.low, "high": answer.high}
    return {**named, "link_mbit_per_s": cell.bits_per_second / 1e6, **shares}


def _model(settings: argparse.Namespace) -> tuple[SyncTimes, list[str]]:
    """The model, and in words what it stands on."""
    alone = (settings.link, settings.step_ms)
    if settings.file is not None and alone != (None, None):
        raise ValueError("--link and --step-ms must be left out where a FILE is given")
    measured = None if settings.file is None else read_runs(settings.file)
    if None in (settings.parameters, settings.workers):
        raise ValueError("give --parameters and --workers: bytes and links follow from them")
    n_parameters = _number("--parameters", settings.parameters)
    payload = {
        "nbytes": n_parameters * real("--bytes", settings.bytes, above=0.0),
        "n_workers": whole("--workers", settings.workers, 2),
    }
    told = [
        f"payload: {payload['nbytes'] / 1e6:,.1f} MB, all-reduced in a ring over"
        f" {payload['n_workers']} workers"
    ]
    if measured is None:
        if None in alone:
            raise ValueError("give the FILE of measured runs, or --link and --step-ms in its place")
        speed, step = _number("--link", alone[0]), _number("--step-ms", alone[1]) / 1e3
        told += ["nothing is measured: no cost but computing and bytes over bandwidth is in this,"]
        told += ["which is off by 1.1 to 1.9 times on measured runs; intervals are a guess"]
        return assumed(**payload, bits_per_second=speed, step=step), told
    fit = fit_runs(measured, **payload)
    if len(measured) == 1:
        told += ["one cell alone is measured: other links and local steps are a guess"]
        print(f"asyncjax.links: warning: {told[-1]}", file=sys.stderr)
    told += [
        f"measured: {len(measured)} cells; a step computes {1e3 * fit.compute:.2f} ms and takes"
        f" {1e3 * fit.other:.2f} ms for loader and optimizer",
        f"the slowest worker is waited for {100 * fit.uneven:.1f} % of the computing",
        *(
            f"link {_speed(speed)}: efficiency {efficiency:.2f}, the first synchronisation of a run"
            f" takes {1e3 * first:,.0f} ms more"
            for speed, efficiency, first in zip(fit.links, fit.efficiency, fit.first, strict=True)
        ),
        "assumed: all algorithms send as much and wait alike (DDP hides nothing behind its",
        "backward pass); that a run's first synchronisation is measured is read from steps and",
        "outer, without them it is not; other links are interpolated, their efficiency at most 1",
    ]
    return fit, told


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {text!r}") from None
    return real(name, value, above=0.0)


def _speed(bits_per_second: float) -> str:
    return f"{bits_per_second / 1e6:,.10g} Mbit/s"


def _lines(rows: list[list[str]]) -> list[str]:
    """Columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if at else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def over_bandwidth(fit: SyncTimes) -> list[str]:
    """Share of time computing over bandwidth and local steps, and where it is high enough."""
    rows = [["share of time computing, link", *(f"H={h}" for h in STEPS), f"H for {BUSY}"]]
    for speed in sorted({*SPEEDS, *fit.links}):
        shares = [f"{fit.utilisation(h, speed):.3f}" for h in STEPS]
        rows.append([_speed(speed), *shares, knee(fit, speed)])
    return _lines(rows)


def knee(fit: SyncTimes, bits_per_second: float) -> str:
    """The fewest local steps that keep workers busy enough, in words.

    Formula: `H c / (H (c + o + u c) + T) >= b`.
    """
    gain = fit.compute - BUSY * (fit.compute * (1 + fit.uneven) + fit.other)
    needed = BUSY * fit.transfer(bits_per_second)
    return f"{max(1, math.ceil(needed / gain)):,}" if gain > 0 else "never"


def over_ways(fit: SyncTimes) -> list[str]:
    """What fragments, overlap and compression would give, by bandwidth, at one H."""
    steps = STEPS[2]
    rows = [[f"at H={steps}, link", *(name for name, *_ in WAYS)]]
    for speed in sorted({*SPEEDS, *fit.links}):
        shares = [
            fit.utilisation(
                steps,
                speed,
                fragments=parts,
                overlap=steps // parts * later,
                compression=factor,
            )
            for _, parts, later, factor in WAYS
        ]
        rows.append([_speed(speed), *(f"{share:.3f}" for share in shares)])
    return _lines(rows)


def _predicted(cells: list[Cell], answers: list[Prediction]) -> list[str]:
    """The answers, a line for each cell."""
    rows = [["predicted", "H", "link", "share", "low", "high"]]
    for cell, answer in zip(cells, answers, strict=True):
        named = [plain(cell.algorithm), str(cell.local_steps), _speed(cell.bits_per_second)]
        rows.append([*named, *(f"{value:.4f}" for value in answer)])
    return _lines(rows)


__all__ = ["PROGRAM", "main", "over_bandwidth", "over_ways"]
