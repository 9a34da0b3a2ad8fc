"""What does a slow worker cost those who wait for it? Pure and synchronous SGD, watched for long.

The matrix watches its runs so long that some synchronous ones never arrive, and counts those as
there at the horizon. Here one of eight workers is 3, 10, 30 and 100 times slower than the others,
data are alike and links free as in a scene of the matrix, and every run of either method makes as
many gradients, ten times as many as there: next to none is cut, and how many are is told. Losses
are read after every eighth gradient, which is a round of the one and a unit of time of the other.

    speed-up = time of synchronous / time of pure
             = (length of a round / unit of time) * (rounds needed / units of time needed)

The first factor is n - 1 + 1/s for n workers of which one is s times slower, over n, times s; the
second is what staleness costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, results, simulation
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds, restricted, seeds_of
from asyncjax.study.scenes import N_WORKERS, NOISE, STEADY, Factors, drawn
from asyncjax.study.statistics import paired
from experiments.common import numbers as committed
from experiments.common.judging import raveled
from experiments.common.parts import Part, run_alone, written
from experiments.common.side_by_side import moved, side_by_side
from experiments.matrix.lanes import read_off
from experiments.matrix.methods import METHODS, REFERENCE, STEP

NAME = "matrix_straggler"
SETS = {"A": SET_A, "B": SET_B}
PURE = "pure"
LEVEL = 0.95
Cells = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by factor, noise and method


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/matrix_straggler")
    factors: tuple[int, ...] = (3, 10, 30, 100)  # how many times slower one worker is
    rounds: int = 400  # of eight gradients each, of every run of either method
    instances: int = 20  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = 4  # settings that a method tries in a round of tuning
    tuning_rounds: tuple[int, int] = (3, 8)  # least and most
    seed: int = 0
    commit: bool = False  # also write the numbers where committed ones are


def clock_of(factor: float) -> clocks.Clock:
    """Eight workers, the last so many times slower; without waiting, a gradient each and unit."""
    slower = np.r_[np.ones(N_WORKERS - 1), float(factor)]
    return clocks.gamma(STEADY, slower * np.mean(1.0 / slower))


def round_over_unit(factor: float) -> float:
    """The mean length of a round that waits for the slow worker.

    Example:
        >>> round_over_unit(10)
        8.875
    """
    return (N_WORKERS - 1 + 1 / factor) / N_WORKERS * factor


def times(
    settings: Settings,
    method: str,
    factor: int,
    noise: str,
    drawings: Sequence[Seeds],
    step_sizes: Sequence[float],
) -> np.ndarray:
    """When runs are first at the level, float64[steps, instances]; infinity where never."""
    make, clock, n = METHODS[method].trace, clock_of(factor), settings.rounds
    assert make is not None
    n_updates = n if method == REFERENCE else n * N_WORKERS
    made = [drawn(Factors("straggler", "alike", noise, "free"), one) for one in drawings]
    keys = [jax.random.key(one.noise(0)) for one in drawings]
    traced = [make({})(clock, n_updates, key) for key in keys]
    problem = side_by_side([one.problem for one in made])
    records = simulation.sweep(
        replace(problem, metrics_of=(("model", raveled),)),
        [moved(trace, at, N_WORKERS) for at, trace in enumerate(traced)],
        optax.sgd,
        np.asarray(step_sizes, np.float32),
        keys=jnp.stack([jax.random.key(one.noise(1)) for one in drawings]),
        record_every=n_updates // n,
        width=1,
    ).records
    when = np.asarray(records.time).reshape(len(traced), -1)  # a row a trace
    ways = np.asarray(records.metrics["model"])
    return np.array(
        [
            [
                read_off(own, np.inf, when[at], ways[at, place], (LEVEL,)).times[0]
                for at, own in enumerate(made)
            ]
            for place in range(len(step_sizes))
        ]
    )


def measured(settings: Settings) -> dict[str, Any]:
    """Tunes and runs both methods in every scene: cells by factor, noise and method."""
    cells: dict[str, Any] = {}
    for factor in settings.factors:
        for noise in NOISE:
            cells.setdefault(str(factor), {})[noise] = _cell(settings, factor, noise)
        print(f"one worker {factor} times slower: done", flush=True)
    return cells


def _cell(settings: Settings, factor: int, noise: str) -> dict[str, Any]:
    horizons = {REFERENCE: settings.rounds * round_over_unit(factor), PURE: float(settings.rounds)}
    drawings = seeds_of(settings.seed, TUNING, settings.tuning_instances)

    def evaluate(method: str, tried: Sequence[tuning.Settings], gradients: int) -> list[float]:
        del gradients  # the same for every trial
        step_sizes = [one["step"] for one in tried]
        found = times(settings, method, factor, noise, drawings, step_sizes)
        return np.log(np.minimum(found, horizons[REFERENCE])).mean(axis=1).tolist()

    found = tuning.tune(
        {method: {"step": STEP} for method in (REFERENCE, PURE)},
        evaluate,
        trials=settings.trials,
        gradients=settings.tuning_instances * settings.rounds * N_WORKERS,
        seed=settings.seed,
        rounds=settings.tuning_rounds,
    )
    return {
        method: {
            "step": own.best.settings["step"],
            "trials": len(own.trials),
            "tuning_gradients": len(own.trials) * own.gradients,
            "at_edge": list(own.edges),
            "horizon": horizons[method],
            "times": {
                letter: times(
                    settings,
                    method,
                    factor,
                    noise,
                    seeds_of(settings.seed, role, settings.instances),
                    [own.best.settings["step"]],
                )[0].tolist()
                for letter, role in SETS.items()
            },
        }
        for method, own in found.items()
    }


def numbers_of(settings: Settings, cells: Cells) -> dict[str, Any]:
    """What is committed: cells, and by set and factor the speed-up and what it is made of.

    A speed-up is the geometric mean over instances and both noise levels, with its interval.
    """
    found: dict[str, Any] = {}
    for letter in SETS:
        for factor, by_noise in cells.items():
            logs = [
                np.mean([np.log(cut(own[method], letter)) for own in by_noise.values()], axis=0)
                for method in (REFERENCE, PURE)
            ]
            own = paired(logs[0], logs[1], settings.seed)
            mean, low, high = np.exp([own.mean, own.low, own.high]).tolist()
            found.setdefault(letter, {})[factor] = {
                "mean": mean,
                "low": low,
                "high": high,
                "of the factor": mean / float(factor),
                "round over unit": round_over_unit(float(factor)),
                "rounds over units": mean / round_over_unit(float(factor)),
            }
    runs = [
        time
        for by_noise in cells.values()
        for own in by_noise.values()
        for method in own.values()
        for one in method["times"].values()
        for time in one
    ]
    return {
        "speed_up": found,
        "cells": cells,
        "runs": len(runs),
        "cut": int(np.isinf(runs).sum()),
    }


def cut(method: Mapping[str, Any], letter: str) -> np.ndarray:
    """The times of a set, float64[instances]; where a run never arrives, until when it lasted."""
    return restricted(method["times"][letter], method["horizon"])


def table(found: Mapping[str, Any]) -> results.Table:
    """A row a factor: the speed-up of both sets, beside the factor and the length of a round."""
    one, other = (found["speed_up"][letter] for letter in SETS)
    return results.Table(
        tuple(
            map(
                results.Column,
                (
                    "one worker so many times slower",
                    "speed-up, set A",
                    "set B",
                    "over the factor, A",
                    "B",
                    "a round, in units of time",
                ),
            )
        ),
        tuple(
            (
                factor,
                "{mean:.3g} ({low:.3g} to {high:.3g})".format(**one[factor]),
                f"{other[factor]['mean']:.3g}",
                f"{one[factor]['of the factor']:.2f}",
                f"{other[factor]['of the factor']:.2f}",
                f"{one[factor]['round over unit']:.3g}",
            )
            for factor in sorted(one, key=float)
        ),
        "Times of synchronous SGD over those of pure asynchronous SGD to the tightest target, first"
        " crossings, both tuned: geometric mean over noise levels and instances, in brackets its"
        f" interval. {found['cut']} of {found['runs']} runs never arrive and count as there at"
        " their end.",
    )


def run(settings: Settings) -> Part:
    """Measures; writes numbers where they are committed if asked."""
    found = numbers_of(settings, measured(settings))
    if settings.commit:
        command = "python -m experiments.matrix.straggler --commit"
        committed.save(NAME, found, command=command, digits=4)
    title = "What does one slow worker cost those who wait for it?"
    return written(settings.output, NAME, title, (), (table(found),), found)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
