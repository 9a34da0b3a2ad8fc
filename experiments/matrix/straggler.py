"""What does a slow worker cost those who wait for it? Pure and synchronous SGD, watched for long.

The matrix watches its runs so long that some synchronous ones never arrive, and counts those as
there at the horizon. Here one of eight workers is 3, 10, 30 and 100 times slower than the others,
data are alike and links free as in a scene of the matrix, and every run of either method makes as
many gradients, ten times as many as there: few are cut, and how many is told. Losses are read after
every eighth gradient, which is a round of the one and a unit of time of the other.

    speed-up = time of synchronous / time of pure
             = (length of a round / unit of time) * (rounds needed / units of time needed)

The first factor is n - 1 + 1/s for n workers of which one is s times slower, over n, times s; the
second is what staleness costs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks, results
from asyncjax.study import search as tuning
from asyncjax.study.methods import METHODS, REFERENCE, SPACE
from asyncjax.study.protocol import LEVELS, SETS, TUNING_OF, Seeds, seeds_of
from asyncjax.study.result import Result
from asyncjax.study.scenes import N_WORKERS, NOISE, STEADY, Factors, drawn
from experiments import part
from experiments.matrix.lanes import arrivals, chosen_table

NAME = "matrix_straggler"
TITLE = "What does one slow worker cost those who wait for it?"
PAPERS = ()
PURE = "pure"
CLAIMS = ()


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/matrix_straggler")
    factors: tuple[int, ...] = (3, 10, 30, 100)  # how many times slower one worker is
    rounds: int = 400  # of eight gradients each, of every run of either method
    instances: int = 20  # of each of the two reported sets
    tuning_instances: int = 5  # for each set its own
    trials: int = 4  # settings that a method tries in a round of tuning
    tuning_rounds: tuple[int, int] = (3, 8)  # least and most
    seed: int = 0
    commit: bool = False  # also write the rows where committed ones are


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
    """When runs are at the level for good, float64[steps, instances]; infinity where never."""
    clock, n = clock_of(factor), settings.rounds
    n_updates = n if method == REFERENCE else n * N_WORKERS
    parts = [drawn(Factors("straggler", "alike", noise, "free"), one) for one in drawings]
    rule: Any = METHODS[method].rule_of({})
    keys = [jax.random.key(one.noise(0)) for one in drawings]
    runs = [rule.trace(clock, n_updates=n_updates, key=key) for key in keys]
    optimizer: Any = METHODS[method].optimizer
    return arrivals(parts, runs, optimizer, step_sizes, drawings, LEVELS[-1], records=n)[0]


def study_of(settings: Settings) -> Result:
    """Tunes and runs both methods in every scene."""
    parts = []
    for factor in settings.factors:
        for noise, letter in product(NOISE, "AB"):
            parts += _rows(settings, factor, noise, letter)
        print(f"one worker {factor} times slower: done", flush=True)
    rows = pd.concat(parts, ignore_index=True)
    facts = {"tuned apart": True, "instances": settings.instances}
    return Result(rows, "time", facts, settings.seed)


def _rows(settings: Settings, factor: int, noise: str, letter: str) -> Iterator[pd.DataFrame]:
    """Those of a set in a scene, a table a method."""
    horizons = {REFERENCE: settings.rounds * round_over_unit(factor), PURE: float(settings.rounds)}
    role = SETS[letter]
    drawings = seeds_of(settings.seed, TUNING_OF[role], settings.tuning_instances)
    shown = seeds_of(settings.seed, role, settings.instances)

    def evaluate(method: str, tried: Sequence[tuning.Settings], _: int) -> list[float]:
        found = times(settings, method, factor, noise, drawings, [one["step"] for one in tried])
        return np.log(np.minimum(found, horizons[REFERENCE])).mean(axis=1).tolist()

    found = tuning.tune(
        {method: SPACE for method in horizons},
        evaluate,
        trials=settings.trials,
        gradients=settings.tuning_instances * settings.rounds * N_WORKERS,
        seed=settings.seed,
        role=TUNING_OF[role],
        rounds=settings.tuning_rounds,
    )
    for method, tuned in found.items():
        step = tuned.best.settings["step"]
        yield pd.DataFrame(
            {
                "scene": f"one worker {factor} times slower, {noise} noise",
                "set": letter,
                "instance": range(settings.instances),
                "method": method,
                "factor": factor,
                "noise": noise,
                "step": step,
                "time": times(settings, method, factor, noise, shown, [step])[0],
                "horizon": horizons[method],
                "trials": len(tuned.trials),
                "tuning_gradients": len(tuned.trials) * tuned.gradients,
                "at_edge": bool(tuned.edges),
            }
        )


def speed_ups(result: Result) -> Any:
    """A row a factor and set: the ratio of times, over the factor too, and a round's length.

    Times of synchronous SGD over those of pure, geometric mean over both noise levels.
    """
    factors = result.rows["factor"].unique()
    rows = {at: result.ratio(REFERENCE, over=PURE, where={"factor": at}) for at in factors}
    rows = pd.concat(rows, names=["factor", None]).reset_index("factor").reset_index(drop=True)
    rounds = rows["factor"].map(round_over_unit)
    return rows.assign(share=rows["ratio"] / rows["factor"], round=rounds)


def never(result: Result) -> dict[str, int]:
    """How many runs there are, and how many never arrive."""
    return {"runs": len(result.rows), "cut": int(np.isinf(result.rows["time"]).sum())}


def shares(result: Result) -> dict[str, float]:
    """The least and the largest speed-up over the factor by which the worker is slower."""
    found = speed_ups(result)["share"]
    return {"least": found.min(), "most": found.max()}


def answer(result: Result) -> str:
    """The speed-ups of set A."""
    rows = speed_ups(result).query("set == 'A'")
    said = [f"{row.text} at {row.factor:g}" for row in rows.itertuples()]
    return f"Pure is so many times as fast where one worker is slower: {', '.join(said)}."


def table(result: Result) -> results.Table:
    """A row a factor: the speed-up of both sets, beside the factor and the length of a round."""
    wide = speed_ups(result).pivot(index="factor", columns="set")
    ends = "{:.3g} ({:.3g} to {:.3g})"
    heads = ("one worker so many times slower", "speed-up, set A", "set B", "over the factor, A")
    return part.table(
        (*heads, "B", "a round, in units of time"),
        [
            (
                f"{factor:g}",
                ends.format(*(row[name, "A"] for name in ("ratio", "low", "high"))),
                f"{row['ratio', 'B']:.3g}",
                f"{row['share', 'A']:.2f}",
                f"{row['share', 'B']:.2f}",
                f"{row['round', 'A']:.3g}",
            )
            for factor, row in wide.iterrows()
        ],
        "Times of synchronous SGD over those of pure asynchronous SGD until a run stays at the"
        " tightest target, both tuned: geometric mean over noise levels and instances, in brackets"
        " its interval. {cut} of {runs} runs never do and count as there at their end.".format(
            **never(result)
        ),
        left=0,
    )


TABLES = {"speed-ups": table, "tuning": chosen_table}
FIGURES = {}
FACTS = {
    "runs": never,
    "over the factor": shares,
    "factors": lambda result: result.rows["factor"].unique().tolist(),
}


if __name__ == "__main__":
    part.main(NAME)
