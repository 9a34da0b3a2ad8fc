"""Do coordinated orders end lower on convex problems? Two sets of instances, steps tuned alike.

Logistic regression as in `ordered_convex`: Gaussian rows with 1, 8 and 64 workers, and mortgage
applications (HMDA) as in the public scripts of CD-GraB: four workers, units of 16 rows, momentum
0.9, 50 epochs. An instance draws the rows (HMDA: which rows, and which unit of whom each is in) and
the first orders. The step of each order is searched with as many trials, on instances that are not
reported, others for each set. Shown is f - f* after the last epoch, f* by Newton's method in
float64; for mortgages also after as many epochs as fit into the time of those of D-RR: time of this
CPU, flops and bytes as compiled, and numbers that travel. What follows from these, ratios and
verdicts, are facts beside the rows, which have last gaps alone.

Source: Cooper et al. 2023, CD-GraB (arXiv 2302.00845).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Condition, paired, verdict
from asyncjax.study import search
from asyncjax.study.protocol import TUNING_OF, Seeds
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import numbers, sets
from experiments.common.kept_rows import once
from experiments.common.sets import SETS
from experiments.ordering import epoch_costs, herding, ordered_convex as convex
from experiments.ordering.epoch_costs import BYTES, CPU, FLOPS, SENT
from experiments.ordering.herding import ALONE, BASELINE, CD_GRAB, COORDINATED, EXACT

NAME = "ordered_instances"
TITLE = "Do coordinated orders end lower on convex problems? Two sets of instances"
PAPERS = (CD_GRAB,)
MORTGAGES = "mortgages"
ORDERS = (BASELINE, "GraB", ALONE, COORDINATED)
COSTS = (FLOPS, BYTES, SENT, CPU)
LANES = 20  # runs of every call, so that all share one compilation
DIGITS = 5  # of numbers in rows
LOWER, THAN_ALONE = "CD-GraB ends lower than D-RR", "CD-GraB ends lower than independent"
CLAIMS = (
    Claim(LOWER, [less(COORDINATED, BASELINE, each=True)], CD_GRAB),
    Claim(THAN_ALONE, [less(COORDINATED, ALONE, each=True, arriving=True)], CD_GRAB),
)


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/ordered_instances")
    seed: int = 0
    cells: tuple[str, ...] = ("1 worker", "8 workers", "64 workers", MORTGAGES)
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5  # of each, too
    trials: int = 4  # steps that an order tries in a round
    rounds: tuple[int, int] = (3, 6)
    epochs: int = 60  # on Gaussian rows
    repeats: int = 9  # of an epoch's timing
    commit: bool = False  # also write the rows where committed ones are


CELLS = {  # sizes, and the ends of the first grid of steps
    "1 worker": (convex.Sizes(1, 512, 1, None), (0.001, 0.008)),
    "8 workers": (convex.Sizes(8, 128, 1, None), (0.004, 0.032)),
    "64 workers": (convex.Sizes(64, 32, 1, None), (0.02, 0.16)),
    MORTGAGES: (convex.MORTGAGES, (0.004, 0.032)),
}
EPOCHS = 50  # on mortgages


def drawn(cell: str, instance: Seeds) -> convex.Rows:
    """Rows of an instance."""
    if cell == MORTGAGES:
        return convex.mortgage_rows(instance.data)
    generator, count = np.random.default_rng(instance.data), CELLS[cell][0].rows
    features = generator.standard_normal((count, 32))
    weights = 2 * generator.standard_normal(32) / np.sqrt(32)
    chance = 1 / (1 + np.exp(-features @ weights))
    labels = np.where(generator.uniform(size=count) < chance, 1.0, -1.0)
    return convex.minimised(features.astype(np.float32), labels.astype(np.float32))


def methods_of(cell: str, dim: int) -> dict[str, convex.Method]:
    """The orders of a cell; with one worker CD-GraB is pair balance."""
    sizes = CELLS[cell][0]
    known = convex.methods(sizes.n_workers, sizes.n_units, dim)
    if sizes.n_workers == 1:
        return {BASELINE: known[BASELINE], COORDINATED: known[EXACT]}
    names = (BASELINE, ALONE, COORDINATED)
    return {name: known[name] for name in (("GraB", *names) if cell == MORTGAGES else names)}


Gaps = Callable[[str, Sequence[tuple[int, float]]], np.ndarray]


def runner(
    sizes: convex.Sizes,
    epochs: int,
    methods: Mapping[str, convex.Method],
    instances: Sequence[Seeds],
    rows: Sequence[convex.Rows],
) -> Gaps:
    """Compiles each order once.

    Returns:
        `(order, pairs of an instance and a step) -> f - f*`, float64[pairs, epochs].
    """
    counts = {method.n_workers for method in methods.values()}
    stacked = {count: convex.problem_of(rows, count, sizes.batch) for count in counts}
    all_keys = jnp.stack([jax.random.key(seeds.noise()) for seeds in instances])

    def trainer(method: convex.Method) -> Callable[..., jax.Array]:
        def run(problem: Any, at: jax.Array, step: jax.Array, key: jax.Array) -> jax.Array:
            mine = jax.tree.map(lambda leaf: leaf[at], problem)
            return convex.models_of(method, sizes.momentum, epochs, step, mine, key)

        return jax.jit(jax.vmap(run, (None, 0, 0, 0)))

    trainers = {name: trainer(method) for name, method in methods.items()}

    def gaps(name: str, pairs: Sequence[tuple[int, float]]) -> np.ndarray:
        problem, curves = stacked[methods[name].n_workers], []
        for begin in range(0, len(pairs), LANES):
            some = list(pairs[begin : begin + LANES])
            filled = some + some[-1:] * (LANES - len(some))
            at, steps = (jnp.array(column) for column in zip(*filled, strict=True))
            models = np.asarray(trainers[name](problem, at, steps, all_keys[at]))
            curves += [rows[i].gap(way) for (i, _), way in zip(some, models, strict=False)]
        return np.array(curves)

    return gaps


def study_of(settings: Settings) -> Result:
    """Runs all cells; what is done is read.

    Raises:
        ValueError: A cell is not known.
    """
    if unknown := set(settings.cells) - set(CELLS):
        raise ValueError(f"cells must be among {', '.join(CELLS)}, got {min(unknown)!r}")
    rows = []
    decisive = replace(settings, output=Path(), cells=(), commit=False)
    for at, cell in enumerate(settings.cells):
        rows.append(once(settings.output / "cells", partial(measured, decisive, cell)))
        print(f"[{at + 1}/{len(settings.cells)}] {cell}: done", flush=True)
    return as_result(settings, pd.concat(rows, ignore_index=True))


def measured(settings: Settings, cell: str) -> pd.DataFrame:
    """Tunes and runs all orders of a cell: a row an order and instance, with gaps by epoch."""
    sizes, grid = CELLS[cell]
    epochs = EPOCHS if cell == MORTGAGES else settings.epochs
    every = sets.drawn(settings)
    rows = [drawn(cell, seeds) for seeds in every]
    methods = methods_of(cell, rows[0].features.shape[1])
    gaps = runner(sizes, epochs, methods, every, rows)

    def tuned(role: str) -> dict[str, search.Tuned]:
        places = sets.places(every, TUNING_OF[role])

        def evaluate(name: str, tried: Sequence[search.Settings], _: int) -> list[float]:
            last = gaps(name, [(at, one["step"]) for one in tried for at in places])[:, -1]
            return np.log(last).reshape(-1, len(places)).mean(axis=1).tolist()

        return search.tune(
            {name: {"step": search.log_range(*grid, 4)} for name in methods},
            evaluate,
            trials=settings.trials,
            gradients=len(places) * epochs * sizes.n_workers * sizes.n_units,
            seed=settings.seed,
            role=TUNING_OF[role],
            rounds=settings.rounds,
        )

    found = {letter: tuned(role) for letter, role in SETS.items()}
    price = {}
    if cell == MORTGAGES:
        steps = {name: known.best.settings["step"] for name, known in found["A"].items()}
        alone = {x: convex.alone(method, sizes, epochs, rows[0]) for x, method in methods.items()}
        runs = {x: partial(run, steps[x], jax.random.key(0)) for x, run in alone.items()}
        price = epoch_costs.prices(runs, settings.repeats)
    frames, columns = [], [after(epoch) for epoch in range(1, epochs + 1)]
    for name, (letter, role) in product(methods, SETS.items()):
        known = found[letter][name]
        step, trials = known.best.settings["step"], len(known.trials)
        curves = gaps(name, [(at, step) for at in sets.places(every, role)])
        facts: dict[str, Any] = {"scene": cell, "set": letter}
        facts |= {"instance": [*range(settings.instances)], "method": name}
        facts |= {"gap": curves[:, -1], "step": step, "trials": trials}
        facts |= {"at_edge": bool(known.edges), "tuning_gradients": trials * known.gradients}
        facts |= dict(zip(("price", "price_low", "price_high"), price.get(name, ()), strict=False))
        frames.append(pd.DataFrame(curves, columns=columns).assign(**facts))
    return pd.concat(frames, ignore_index=True)


def after(epoch: int) -> str:
    """The column of gaps after so many epochs."""
    return f"after {epoch}"


def as_result(settings: Settings, rows: Any) -> Result:
    """Last gaps as rows; and what follows of the gaps by epoch where these are there."""
    curves = [name for name in rows if name.startswith("after ")]
    names = ("instances", "tuning_instances", "epochs")
    facts: dict[str, Any] = {name: getattr(settings, name) for name in names}
    facts["tuned apart"] = True
    if MORTGAGES in {*rows["scene"]} and curves:
        facts |= at_equal_cost(settings, rows[rows["scene"] == MORTGAGES])
    gap = numbers.rounded(rows["gap"].tolist(), DIGITS)
    return Result(rows.drop(columns=curves).assign(gap=gap), "gap", facts, settings.seed, cut=())


def at_equal_cost(settings: Settings, rows: Any) -> dict[str, Any]:
    """CD-GraB after the epochs that fit into the cost of all of D-RR: prices, ratios, verdicts.

    Ratios are of D-RR's gap over that of CD-GraB.
    """
    costs = epoch_costs.of_logistic(13, convex.MORTGAGES.n_workers, convex.MORTGAGES.batch)
    by_order = rows.set_index(["method", "set"]).sort_index(kind="stable")
    cpu = float(by_order.loc[COORDINATED, "price"].iloc[0])
    prices = {CPU: cpu, **epoch_costs.prices_of(costs)}
    ratios: dict[str, Any] = {letter: {} for letter in SETS}
    words: dict[str, Any] = {equal(unit): {} for unit in COSTS}
    for unit, letter in product(COSTS, SETS):
        last = max(1, min(EPOCHS, int(EPOCHS / prices[unit])))
        ours, base = (
            np.log(by_order.loc[(name, letter), after(at)].to_numpy(float))
            for name, at in ((COORDINATED, last), (BASELINE, EPOCHS))
        )
        apart = paired(ours, base, settings.seed)
        ratios[letter][unit] = [float(np.exp(-x)) for x in (apart.mean, apart.high, apart.low)]
        words[equal(unit)][letter] = verdict([Condition("", apart)])
    return {"costs": costs, "prices": prices, "equal": ratios, "verdicts": words}


def equal(unit: str) -> str:
    """The claim for equal cost."""
    return f"{LOWER}, for equal {unit}"


def claims(result: Result) -> tuple[Claim, ...]:
    """The claims by epoch, and those for equal cost where that was measured."""
    return (*CLAIMS, *(Claim(text, (), CD_GRAB) for text in result.facts.get("verdicts", {})))


def times(ratio: Any) -> str:
    """How many times lower, and its interval."""
    return "{} ({} to {})".format(*(f"{x:.3g}" for x in (ratio.ratio, ratio.low, ratio.high)))


def lower(result: Result, scene: str, letter: str) -> dict[str, Any]:
    """How many times lower than D-RR's the gaps are: of orders, and of CD-GraB for equal cost."""
    where = {"scene": scene}
    met = {*result.select(**where)["method"]}
    ratios = {
        name: next(result.ratio(BASELINE, name, set=letter, where=where).itertuples())
        for name in ORDERS[1:]
        if name in met
    }
    known = result.facts.get("equal", {}).get(letter, {}) if scene == MORTGAGES else {}
    return ratios | {unit: herding.Ratio(*ends) for unit, ends in known.items()}


def gap_table(result: Result) -> results.Table:
    """Final gaps of all orders, and how many times lower than D-RR's they are."""
    rows = []
    for (scene, name), both in result.rows.groupby(["scene", "method"], sort=False):
        cell = both[both["set"] == "A"]
        by_set = [lower(result, scene, letter) for letter in result.sets]
        texts = ["1" if name == BASELINE else times(ratios[name]) for ratios in by_set]
        step = " / ".join(f"{one:.3g}" for one in both.groupby("set")["step"].first())
        trials = " / ".join(dict.fromkeys(map(str, both.groupby("set")["trials"].first())))
        gap, problem = float(np.exp(np.log(cell["gap"]).mean())), scene if name == BASELINE else ""
        rows.append([problem, name, step, trials, gap, *texts])
        for unit in COSTS if name == COORDINATED else ():
            if unit in by_set[0]:
                texts = [times(ratios[unit]) for ratios in by_set]
                rows.append(["", f"{name}, equal {unit}", step, None, None, *texts])
    heads = ("problem", "order", "step, A / B", "trials", "f - f*, A", "D-RR / this, A", "B")
    return herding.aligned(
        heads,
        rows,
        "f - f* after the last epoch, geometric means (intervals of 95 %). Equal cost: after the"
        " epochs that fit into that of D-RR. With 1 worker CD-GraB is pair balance.",
        right=heads[2:5],
    )


TABLES = {"gaps": gap_table}


def figure(result: Result) -> Illustration:
    """How many times lower than D-RR's the gaps are, a row a problem; set A over set B."""
    scenes, units = list(result.rows["scene"].unique()), result.facts.get("prices", {})
    titles = {name: name for name in ORDERS[1:]}
    titles |= {unit: f"CD-GraB, equal {unit}" for unit in COSTS if unit in units}
    points = {
        title: {x: [lower(result, one, x).get(name) for one in scenes] for x in result.sets}
        for name, title in titles.items()
    }
    text = (
        "f - f* of D-RR over that of an order after the last epoch, and of CD-GraB for equal cost;"
        " full points set A, hollow set B, intervals of 95 %."
    )
    return Illustration(herding.forest({"gap of D-RR / this": points}, scenes), text)


FIGURES = {"ratios": figure}


if __name__ == "__main__":
    part.main(NAME)
