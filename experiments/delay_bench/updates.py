"""How many updates more do late gradients cost, on the digits? The bench, stopped at a loss.

The bench compares losses after as many updates, where some are near 0: a factor of two tiny losses
says little. Here a run is read every few updates and counts the updates to a loss far from 0. For
each method and law the step with the lowest mean logarithm of that count on the tuning seeds is
taken, of those about the step that the bench chose for the last loss; the other seeds are shown.
Delays, seeds and batches are those of the bench.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import results
from experiments.common import numbers as committed
from experiments.common.comparison import paired
from experiments.common.parts import Part, run_alone, written
from experiments.common.protocol import reached, restricted
from experiments.delay_bench import tasks
from experiments.delay_bench.bench import losses_on_the_way
from experiments.delay_bench.report import NAME as BENCH
from experiments.delay_bench.report import PLAIN
from experiments.delay_bench.runs import LAWS as ALL
from experiments.delay_bench.runs import METHODS, laws_of

NAME = "delay_bench_updates"
FIRST, RIVAL = "Muon", "Adam"
LAWS = ALL[:4]  # constant delays


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/delay_bench_updates")
    methods: tuple[str, ...] = ("Muon", "Adam")
    target: float = 0.7  # of the training loss, 2.3 at first
    updates: int = 400
    every: int = 5  # updates between two looks
    factors: tuple[float, ...] = tuple(
        2.0**power for power in range(-3, 5)
    )  # times the step of the bench
    seeds: int = 10  # shown
    tuning_seeds: int = 5
    seed: int = 0
    commit: bool = False  # also write the numbers where committed ones are


def measured(settings: Settings) -> dict[str, Any]:
    """Updates to the target by method and law: the shown seeds, step, trials, edge."""
    task = tasks.digits()
    bench = committed.load(BENCH)["digits"]
    laws = {law: own for law, own in laws_of(task).items() if law in LAWS}
    keys = jax.random.split(jax.random.key(settings.seed), settings.tuning_seeds + settings.seeds)
    cells: dict[str, Any] = {}
    for method in settings.methods:
        run = losses_on_the_way(
            task.make_loop,
            METHODS[method][0],
            laws,
            n_updates=settings.updates,
            every=settings.every,
            keys=keys,
        )
        cells[method] = {}
        for law in LAWS:
            steps = [factor * bench[method][law]["step"] for factor in settings.factors]
            there = run(law, steps) <= settings.target
            first = (there.argmax(axis=-1) + 1.0) * settings.every
            counts = np.where(there.any(axis=-1), first, np.inf)
            tuning = restricted_log(counts[:, : settings.tuning_seeds], settings.updates)
            best = int(tuning.mean(axis=1).argmin())
            cells[method][law] = {
                "updates": counts[best, settings.tuning_seeds :].tolist(),
                "step": steps[best],
                "trials": len(steps),
                "at_edge": best in (0, len(steps) - 1),
            }
        print(f"{method}: done", flush=True)
    return cells


def restricted_log(counts: Any, updates: int) -> np.ndarray:
    """Logarithms of counts, those that never came as twice what was watched."""
    values = np.asarray(counts, float)
    return np.log(np.where(np.isfinite(values), values, 2.0 * updates))


def numbers_of(settings: Settings, cells: Mapping[str, Any]) -> dict[str, Any]:
    """What is committed: cells, and how many times the updates without delay each law takes."""

    def logs(method: str, law: str) -> np.ndarray:
        return np.log(restricted(cells[method][law]["updates"], settings.updates))

    more = {
        method: {
            law: float(np.exp((logs(method, law) - logs(method, PLAIN)).mean())) for law in LAWS
        }
        for method in cells
    }
    less: dict[str, Any] = {}
    for law in LAWS[1:] if {FIRST, RIVAL} <= set(cells) else ():
        ways = [logs(method, law) - logs(method, PLAIN) for method in (FIRST, RIVAL)]
        own = paired(ways[0], ways[1], settings.seed)
        mean, low, high = np.exp([own.mean, own.low, own.high]).tolist()
        less[law] = {"mean": mean, "low": low, "high": high}
    return {
        "target": settings.target,
        "cells": cells,
        "times the updates": more,
        f"{FIRST} over {RIVAL}": less,
    }


def table(settings: Settings, found: Mapping[str, Any]) -> results.Table:
    """A row a method: mean updates to the target, and how many times those without delay."""
    rows = [
        (
            method,
            *(
                f"{reached(cell['updates'], settings.updates).text()}, {more[law]:.2f}"
                for law, cell in cells.items()
            ),
        )
        for (method, cells), more in zip(
            found["cells"].items(), found["times the updates"].values(), strict=True
        )
    ]
    return results.Table(
        (results.Column("method", right=False), *map(results.Column, LAWS)),
        tuple(rows),
        f"Digits: updates to a training loss of {settings.target:g}, mean over {settings.seeds}"
        " seeds, then how many times those without delay (geometric mean); first crossings.",
    )


def run(settings: Settings) -> Part:
    """Measures; writes numbers where they are committed if asked."""
    found = numbers_of(settings, measured(settings))
    if settings.commit:
        command = "python -m experiments.delay_bench.updates --commit"
        committed.save(NAME, found, command=command, digits=4)
    title = "How many updates more do late gradients cost?"
    return written(settings.output, NAME, title, (), (table(settings, found),), found)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
