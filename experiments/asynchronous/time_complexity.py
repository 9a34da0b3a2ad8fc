"""How long until the gradient is small, when all workers hold the same data?

All n workers hold f(x) = x^T A x / 2 - b^T x with A = tridiag(-1, 2, -1) / 4, the badly conditioned
quadratic of this literature, and return its gradient plus Gaussian noise. The score of a run is the
simulated time from which on the exact gradient norm stays at the target. Pure asynchronous,
Rennala, Ringmaster, synchronous and fastest-m servers get the same grid of step sizes and the same
grid for their own parameter (b, R, m). Those without a parameter, or with fewer values of it, try
as many settings: further step sizes around their best one. Two disjoint sets of instances are
reported, and the best is chosen for each on instances of its own.

The optimal times that are drawn beside the measured ones are recalled from the literature (Tyurin,
Richtárik 2023), with constants dropped: only their shape over n, noise and speeds is meant. All
runs of a cell, which is speeds, noise and n, are watched for the same time, a multiple of it or
fifteen jobs of the straggler.

The function and its start are those of the theory, the same for all; an instance draws the noise of
the gradients and, where they are random, the times. A run that was stopped goes on where it was:
every cell is kept in the output folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise, product, starmap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, simulation, traces
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_number
from asyncjax.study import protocol, summary
from asyncjax.study.protocol import TUNING_OF
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import sets
from experiments.common.kept_rows import once
from experiments.common.sets import SETS

NAME = "time_complexity"
TITLE = "How long until the gradient is small, when all workers hold the same data?"
PAPERS = (
    "Tyurin, Richtárik, 2023, Rennala and Malenia (arXiv 2305.12387)",
    "Maranjyan, Tyurin, Richtárik, 2025, Ringmaster (arXiv 2501.16168)",
)
OPTIMA = ("optimal, recalled", "optimal for any data, recalled")
ROOT, STRAGGLER = "sqrt(i)", "one straggler"
CANDIDATES = {  # names among whose methods a name's best is sought; R may be infinite, m may be n
    "pure": ("pure",),
    "Rennala": ("Rennala",),
    "Ringmaster": ("Ringmaster", "pure"),
    "synchronous": ("synchronous",),
    "fastest m": ("fastest m", "synchronous"),
}


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/time_complexity")
    seed: int = 0
    workers: tuple[int, ...] = (10, 100)
    # "heavy tails", times of which each instance has its own, takes as long as both of these
    speeds: tuple[str, ...] = ("sqrt(i)", "one straggler")
    noise: tuple[float, ...] = (1.0, 100.0)  # variance of a gradient over the target squared
    target: float = 0.05  # norm of the exact gradient; it begins at 0.6 sqrt(dimension)
    dimension: int = 50
    parameters: tuple[int, ...] = (1, 4, 16, 64, 250)  # b, R and m; up to 25 n
    horizon: float = 400.0  # simulated time of a cell, over its recalled optimum,
    least: float = 1500.0  # but at least so much: 15 jobs of the straggler
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5  # of each, only to choose the step size and the parameter
    records: int = 2048  # points of a curve
    step_sizes: tuple[float, ...] = tuple(2.0**power for power in range(-10, 2))
    commit: bool = False  # also write the numbers where committed ones are


class Method(NamedTuple):
    """A method with its parameter."""

    name: str  # one of `CANDIDATES`
    parameter: float  # b, R or m; infinity for pure, and n for synchronous, which is m = n
    single: bool  # every update takes one gradient
    rule: traces.Rule | traces.Synchronous


class Cell(NamedTuple):
    """What methods are compared on."""

    speeds: str
    noise: float
    n: int

    @property
    def scene(self) -> str:
        """Its name."""
        return f"{self.speeds}, noise {self.noise:g}, n {self.n}"

    @property
    def clock(self) -> clocks.Clock:
        """The workers."""
        return workers(self.speeds, self.n)

    def end(self, settings: Settings) -> float:
        """Until when all runs are watched."""
        optimum = recalled_optimum(np.asarray(self.clock.mean), self.noise)
        return max(settings.least, settings.horizon * optimum)


# The quadratic, workers and methods.


def workers(speeds: str, n: int) -> clocks.Clock:
    """The clock of n workers by the name of their speeds."""
    if speeds == "sqrt(i)":
        return clocks.constant(np.sqrt(np.arange(1, n + 1)))
    if speeds == "one straggler":
        return clocks.constant(np.append(np.ones(n - 1), 100.0))
    if speeds == "heavy tails":
        return clocks.pareto(np.ones(n), 1.5)
    raise ValueError(f"speeds must be 'sqrt(i)', 'one straggler' or 'heavy tails', got {speeds!r}")


def slope(params: jax.Array) -> jax.Array:
    """The exact gradient A x - b, with A = tridiag(-1, 2, -1) / 4 and b = -e_1 / 4."""
    padded = jnp.pad(params, 1)
    return ((2 * params - padded[:-2] - padded[2:]) / 4).at[0].add(0.25)


def _gradient(
    noise: jax.Array, params: jax.Array, worker: Any, job: Any, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return jnp.zeros(()), slope(params) + noise * jax.random.normal(key, params.shape)


def _norm(noise: jax.Array, params: jax.Array) -> jax.Array:
    return jnp.linalg.norm(slope(params))


def quadratic(settings: Settings, noise: jax.typing.ArrayLike) -> problems.Problem:
    """The same quadratic for every worker; start sqrt(d) e_1.

    Args:
        settings: Dimension and target.
        noise: Expected squared norm of the noise over the target squared.

    Returns:
        The problem; its objective is the norm of the exact gradient.
    """
    scale = settings.target * jnp.sqrt(noise / settings.dimension)
    start = jnp.zeros(settings.dimension).at[0].set(np.sqrt(settings.dimension))
    return problems.Problem(start, scale, _gradient, _norm)


def methods(settings: Settings, n: int) -> list[Method]:
    """All methods with all their parameters for n workers."""
    found = [
        Method("pure", np.inf, True, traces.Rule()),
        Method("synchronous", n, n == 1, traces.Synchronous(n)),
    ]
    for p in (p for p in settings.parameters if p <= 25 * n):
        found.append(Method("Rennala", p, p == 1, traces.Rule(collect=traces.rennala(p))))
        found.append(Method("Ringmaster", p, True, traces.Rule(collect=traces.ringmaster(p))))
    crews = [m for m in sorted({*settings.parameters, n - 1}) if 0 < m < n]
    return found + [Method("fastest m", m, m == 1, traces.Synchronous(m)) for m in crews]


# Runs.


def keys_of(settings: Settings, role: str) -> jax.Array:
    """Keys of the instances of a role."""
    count = settings.instances if role in SETS.values() else settings.tuning_instances
    drawn = protocol.seeds_of(settings.seed, role, count)
    return jnp.stack([jax.random.key(one.noise()) for one in drawn])


def times(
    settings: Settings, cell: Cell, method: Method, keys: jax.Array, step_sizes: Sequence[float]
) -> np.ndarray:
    """Replays one method with all keys and step sizes.

    Returns:
        float64[S, G], from when on each stays at the target; infinity: not by the end.
    """
    end = cell.end(settings)
    # Runs of one trace go together; those of several one after the other, which is faster than
    # stacking their plans.
    shared = [keys[at : at + 1] for at in range(len(keys))] if cell.clock.is_random else [keys]
    found = []
    for group in shared:
        [trace] = traces.lasting(partial(_traces, method, cell.clock, group[0]), end)
        records = simulation.sweep(
            quadratic(settings, cell.noise),
            trace,
            optax.sgd,
            step_sizes,
            keys=group,
            record_every=max(1, trace.n_updates // settings.records),
            width=1 if method.single else 16,  # few different widths mean few compilations
        ).records
        when = np.where(np.asarray(records.time) <= end, records.time, np.nan)
        found.append(results.time_to_target(when, records.loss, settings.target, stays=True))
    return np.concatenate(found)


def _traces(
    method: Method, clock: clocks.Clock, key: jax.Array, n_updates: int
) -> list[traces.EventTrace]:
    return [method.rule.trace(clock, n_updates=n_updates, key=key)]


def medians(found: np.ndarray) -> list[float]:
    """Median time by step size over instances, of float64[S, G]."""
    return np.asarray(results.median_and_spread(found.T).median).tolist()


def candidates(every: Sequence[Method], name: str) -> list[Method]:
    """The methods among which the best of a name is sought."""
    return [method for method in every if method.name in CANDIDATES[name]]


def finer(tried: Mapping[tuple[Method, float], float], count: int) -> tuple[Method, list[float]]:
    """Steps for a method that has trials left, between those that it tried.

    Around the best step, up to its neighbours on either side; over the whole grid of the method
    where nothing arrived. The widest gaps come first.

    Args:
        tried: Times by method and step, the steps of a method a common factor apart.
        count: How many.

    Example:
        >>> tried = {("sgd", 0.25): 9.0, ("sgd", 0.5): 3.0, ("sgd", 1.0): 5.0, ("sgd", 2.0): 9.0}
        >>> method, steps = finer(tried, 3)
        >>> method, [round(step, 3) for step in steps]
        ('sgd', [0.354, 0.707, 0.297])
    """
    (method, step), best = min(tried.items(), key=lambda item: item[1])
    steps = sorted(size for other, size in tried if other == method)
    if np.isfinite(best):
        ratio = steps[1] / steps[0]
        steps = [step / ratio, step, step * ratio]
    new: list[float] = []
    while len(new) < count:
        ratios = [high / low for low, high in pairwise(steps)]
        widest = int(np.argmax(np.round(ratios, 9)))
        new.append(float(np.sqrt(steps[widest] * steps[widest + 1])))
        steps = sorted([*steps, new[-1]])
    return method, new


def run_cell(settings: Settings, cell: Cell) -> pd.DataFrame:
    """The rows of all methods in a cell.

    The grid is run for both sets at once, on the tuning instances of each.
    """
    every = methods(settings, cell.n)
    trials = max(len(candidates(every, name)) for name in CANDIDATES) * len(settings.step_sizes)
    keys = {letter: keys_of(settings, TUNING_OF[role]) for letter, role in SETS.items()}
    both, count = jnp.concatenate([*keys.values()]), settings.tuning_instances
    grid = {one: times(settings, cell, one, both, settings.step_sizes) for one in every}
    rows: list[dict[str, Any]] = []
    for (at, letter), name in product(enumerate(SETS), CANDIDATES):
        span = slice(at * count, (at + 1) * count)
        tried = {
            (method, step): time
            for method in candidates(every, name)
            for step, time in zip(settings.step_sizes, medians(grid[method][span]), strict=True)
        }
        tried |= _further(settings, cell, keys[letter], tried, trials - len(tried))
        rows += _shown(settings, cell, letter, name, tried)
    return pd.DataFrame(rows)


def _further(
    settings: Settings,
    cell: Cell,
    keys: jax.Array,
    tried: Mapping[tuple[Method, float], float],
    count: int,
) -> dict[tuple[Method, float], float]:
    """The time of so many further settings of a name."""
    method, steps = finer(tried, count)
    width = len(settings.step_sizes)  # as many at once as of the grid
    parts = [steps[at : at + width] for at in range(0, count, width)]
    found = [medians(times(settings, cell, method, keys, part)) for part in parts]
    return dict(zip(((method, step) for step in steps), chain(*found), strict=True))


def _shown(
    settings: Settings,
    cell: Cell,
    letter: str,
    name: str,
    tried: Mapping[tuple[Method, float], float],
) -> list[dict[str, Any]]:
    """The best setting of a name on the instances of a set: a row each."""
    (method, step), best = min(tried.items(), key=lambda item: item[1])
    facts = {"step": np.nan, "parameter": np.nan, "at_edge": False, "trials": len(tried)}
    found = np.full(settings.instances, np.inf)
    if np.isfinite(best):
        found = times(settings, cell, method, keys_of(settings, SETS[letter]), [step])[:, 0]
        most = max(one.parameter for one, _ in tried)
        steps = [size for other, size in tried if other == method]
        at_edge = step in (min(steps), max(steps))
        at_edge |= name == "Rennala" and method.parameter == most
        facts |= {"step": step, "parameter": method.parameter, "at_edge": at_edge}
    about = {"scene": cell.scene, "set": letter, "method": name, **cell._asdict(), **facts}
    about["horizon"] = cell.end(settings)
    return [{**about, "instance": i, "time": time} for i, time in enumerate(found.tolist())]


def study_of(settings: Settings) -> Result:
    """Runs all cells that are missing."""
    core, rows = replace(settings, output=Path(), commit=False, workers=(), speeds=(), noise=()), []
    for cell in starmap(Cell, product(settings.speeds, settings.noise, settings.workers)):
        rows.append(once(settings.output / "cells", partial(run_cell, core, cell)))
        print(cell.scene, flush=True)
    facts: dict[str, Any] = {n: getattr(settings, n) for n in ("instances", "tuning_instances")}
    facts |= {"target": settings.target, "tuned apart": True}
    heads = ["scene", "set", "instance", "method", "time", *Cell._fields, "step", "parameter"]
    frame = pd.concat(rows, ignore_index=True)[[*heads, "at_edge", "trials", "horizon"]]
    return Result(frame, "time", facts, settings.seed)


# What is said of it.


def claims(result: Result) -> list[Claim]:
    """The claims, about the fewest and the most workers that were run."""
    few, many = result.rows["n"].min(), result.rows["n"].max()
    levels = sorted(result.rows["noise"].unique())

    def scene(noise: float, n: int) -> str:
        return f"{ROOT}, noise {noise:g}, n {n}"

    def from_to(rule: str, noise: float, ns: tuple[int, int], ratio: float) -> Any:
        one, other = (scene(noise, n) for n in ns)
        text = f"{rule}, {one} below {other}"
        return less(rule, than=rule, ratio=ratio, text=text, scene=one, beside={"scene": other})

    def beside_straggler(rule: str, ratio: float) -> Any:
        return less("pure", than=rule, ratio=ratio, each=True, speeds=STRAGGLER)

    return [
        Claim(
            "Ringmaster takes at most 1.25 times as long as the best rule, in every cell",
            [less("Ringmaster", ratio=1.25, each=True)],
            PAPERS[1],
        ),
        Claim(
            "more and slower workers make pure twice as slow, little noise",
            [from_to("pure", levels[0], (few, many), 0.5)],
        ),
        Claim(
            "more and slower workers do not make Ringmaster slower",
            [from_to("Ringmaster", noise, (many, few), 1.1) for noise in levels],
            PAPERS[1],
        ),
        Claim(
            "one straggler makes synchronous rounds 10 times as slow as pure",
            [beside_straggler("synchronous", 0.1)],
        ),
        Claim(
            "with one straggler pure takes at most 1.25 times as long as Ringmaster",
            [beside_straggler("Ringmaster", 1.25)],
        ),
    ]


def spread(rows: Any, column: str) -> results.Spread:
    """Quartiles of times, none of them of a time that never came: infinity in its place."""
    known = protocol.reached(rows[column], rows["horizon"].iloc[0])
    low, middle, high = (np.inf if one is None else one for one in known.quartiles)
    return results.Spread(middle, low, high, known.share)


def times_of(result: Result, letter: str, **where: Any) -> results.Spread:
    """The quartiles of the times of a method in a cell."""
    return spread(result.select(set=letter, **where), "time")


def recalled_optimum(mean_times: np.ndarray, noise: float, *, skewed: bool = False) -> float:
    """Shape of the optimal time to a small gradient, constants dropped.

    `min_m (mean_{i<=m} 1/tau_i)^-1 (1 + noise / m)` over the m fastest workers; for heterogeneous
    data (Malenia) `tau_n + mean(tau) noise / n`.

    Args:
        mean_times: float[n], mean time tau_i of a job.
        noise: Variance of a gradient over the target squared.
        skewed: The formula for heterogeneous data.

    Returns:
        The time in units of a constant that does not depend on workers or noise.

    Example:
        >>> recalled_optimum(np.array([1.0, 1.0, 1.0, 1.0]), 8.0)
        3.0

    Reference:
        Tyurin, Richtárik, 2023 (arXiv 2305.12387); recalled.
    """
    tau = np.sort(np.asarray(mean_times, np.float64))
    if skewed:
        return float(tau[-1] + tau.mean() * noise / len(tau))
    count = np.arange(1, len(tau) + 1)
    return float(np.min(count / np.cumsum(1 / tau) * (1 + noise / count)))


def cells(result: Result) -> list[tuple[str, float, int]]:
    """Speeds, noise and number of workers of every scene, in this order."""
    rows = result.rows[["speeds", "noise", "n"]].drop_duplicates()
    return [
        (str(speeds), float(noise), int(n))
        for speeds, group in rows.groupby("speeds", sort=False)
        for noise, n in sorted(zip(group["noise"], group["n"], strict=True))
    ]


def optima(result: Result) -> dict[tuple[str, float, int], tuple[float, float]]:
    """Recalled optimal times, for equal data and for any data, times one constant for all.

    The constant is the median over all cells of Rennala's measured time over the recalled one; NaN
    where Rennala never reached the target.
    """
    shapes, ratios = {}, []
    for speeds, noise, n in cells(result):
        mean = np.asarray(workers(speeds, n).mean)
        shape = recalled_optimum(mean, noise), recalled_optimum(mean, noise, skewed=True)
        where = {"method": "Rennala", "speeds": speeds, "noise": noise, "n": n}
        measured = times_of(result, "A", **where).median
        shapes[speeds, noise, n] = shape
        ratios.append(float(measured) / shape[0])
    finite = [ratio for ratio in ratios if np.isfinite(ratio)]
    constant = float(np.median(finite)) if finite else np.nan
    return {cell: (constant * one, constant * two) for cell, (one, two) in shapes.items()}


def time_table(result: Result) -> results.Table:
    """Medians of both sets."""
    rows = []
    for (speeds, noise, n), (optimum, _) in optima(result).items():
        cell, end = [], result.select(speeds=speeds, noise=noise, n=n)["horizon"].iloc[0]
        for rule in CANDIDATES:
            where = {"method": rule, "speeds": speeds, "noise": noise, "n": n}
            medians = [float(times_of(result, one, **where).median) for one in result.sets]
            told = [format_number(one) if np.isfinite(one) else "never" for one in medians]
            cell.append(" / ".join(dict.fromkeys(told)))
        rows.append((speeds, f"{noise:g}", n, *cell, format_number(optimum), f"{end:,.0f}"))
    return part.table(
        ("speeds", "noise", "n", *CANDIDATES, OPTIMA[0], "end"),
        rows,
        "Median time to stay at the target over the instances of set A / of set B, once where they"
        " agree, and the end, until when all runs are watched; the fastest worker's job lasts 1 on"
        " average. Noise: variance of a gradient over the target squared. Never: not by the end."
        " The column before the last: the optimal time for equal data as recalled from the"
        " literature, constants dropped, times one constant for all rows, which is fitted to"
        " Rennala.",
    )


def spread_table(result: Result) -> results.Table:
    """How far apart the steps are that were chosen for the two sets, and how often b, R or m is."""
    same = same_parameters(result)
    table = sets.spread_table(sets.spread(result.rows, ["scene"]))
    heads = ("method", "step: median factor", "most", "cells with one b, R or m")
    rows = [(*row, "{} of {}".format(*same[row[0]])) for row in table.rows]
    return part.table(heads, rows, table.caption)


TABLES = {"times": time_table, "spread": spread_table, "settings": summary.trial_table}


def same_parameters(result: Result) -> dict[str, tuple[int, int]]:
    """By method in how many cells, of how many, both sets have the same parameter."""
    first = result.rows[result.rows["instance"] == 0].dropna(subset="parameter")
    wide = first.pivot(index=["scene", "method"], columns="set", values="parameter").dropna()
    alike = (wide["A"] == wide["B"]).groupby("method")
    return {name: (int(one.sum()), len(one)) for name, one in alike}


def slowed(result: Result) -> float:
    """At least how many times as long synchronous rounds take as pure.

    With most workers, one a straggler; a time that never came counts as the end.
    """
    rows = result.rows
    where = {"speeds": STRAGGLER, "noise": rows["noise"].min(), "n": rows["n"].max()}
    rounds, pure = (times_of(result, "A", method=m, **where) for m in ("synchronous", "pure"))
    return min(float(rounds.median), result.select(**where)["horizon"].iloc[0]) / float(pure.median)


FACTS = {
    "same": same_parameters,
    "slowed": slowed,
    "trials": lambda result: [
        int(trials.max()) for _, trials in result.rows.groupby("n")["trials"]
    ],
}


def against_workers(result: Result) -> Illustration:
    """Time to the target over the number of workers: a row a level of noise."""
    recalled, panels = optima(result), []
    ns, rows = sorted(result.rows["n"].unique()), result.rows
    for noise, speeds in product(sorted(rows["noise"].unique()), rows["speeds"].unique()):
        where, series = {"speeds": speeds, "noise": noise}, []
        for rule in CANDIDATES:
            points = [times_of(result, "A", method=rule, n=n, **where) for n in ns]
            values = [[getattr(one, end) for one in points] for end in ("median", "low", "high")]
            series.append(results.Series(rule, ns, *values))
        for name, line in zip(
            OPTIMA, zip(*(recalled[speeds, noise, n] for n in ns), strict=True), strict=True
        ):
            series.append(results.Series(name, ns, line))
        panels.append(plots.Panel(f"workers n ({speeds}, noise {noise:g})", series, log_x=True))
    figure = plots.panels(
        panels,
        y_label="simulated time to stay at target",
        log_y=True,
        columns=rows["speeds"].nunique(),
        styles=plots.assign_styles([*CANDIDATES, *OPTIMA]),
    )
    return Illustration(
        figure,
        "Time to stay at the target, median and quartiles over set A; no point where it was not"
        " reached by the end. Noise: variance of a gradient over the target squared."
        " sqrt(i): a job of worker i lasts sqrt(i); one straggler: 100 for the last worker, 1 for"
        " the others; heavy tails: Pareto times with mean 1 and tail 1.5 for all. The recalled"
        " optima are shapes: constants dropped, one constant for all panels, fitted to Rennala.",
    )


FIGURES = {"workers": against_workers}


if __name__ == "__main__":
    part.main(NAME, quick=True)
