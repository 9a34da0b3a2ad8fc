"""Do coordinated example orders train faster? Logistic regression, the whole grid of steps.

Gaussian rows with 1, 8 and 64 workers, labels from a logistic model; mortgage applications (HMDA)
with four workers, units of 16 rows, momentum 0.9, as in the public scripts of CD-GraB. The minimum
is found by Newton's method in float64, so gaps f - f* are exact. Every order runs with every step
on three seeds; its own best is chosen on two others. "Full gradient" is gradient descent with as
many steps of that size, which no noise of an order limits: random reshuffling is limited by noise
where its gap is ten times that one or more, by optimisation where at most twice. Kept are means
over seeds. One set of seeds and no instances, so there are no verdicts: these are those of
`ordered_instances`, which has its problems and runs from here.

Source: Cooper et al. 2023, CD-GraB (arXiv 2302.00845).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import checks, orders, problems, results, simulation
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Result
from experiments import part
from experiments.common import numbers
from experiments.common.side_by_side import raveled
from experiments.data import hmda
from experiments.ordering import herding
from experiments.ordering.epoch_costs import prices
from experiments.ordering.herding import ALONE, BASELINE, CD_GRAB, COORDINATED, EXACT, PROJECTED

NAME = "ordered_convex"
TITLE = "Do coordinated example orders train faster? Logistic regression"
PAPERS = (CD_GRAB,)
GRID, DOUBLE, BEST, SCALING, HMDA = "grid", "two units", "two units, best", "scaling", "mortgages"
CLAIMS = ()
CLOSE, FAR = 2.0, 10.0  # times the gap of the full gradient: limited by optimisation, by noise
NOISE, OPTIMISATION, BOTH = "noise", "optimisation", "both"
DIGITS = 4  # of numbers in rows
EXACT_TWO, STALE_TWO = f"{COORDINATED}, 2 units", f"{PROJECTED}, 2 units"
SMALLEST = 1e-15  # gap; what is below is rounding
LIMIT = 1e-10  # slope at which Newton's method is done
L2 = 0.01


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults took 154 s of CPU time."""

    output: Path = Path("output/ordered_convex")
    seed: int = 0
    full: bool = False  # ten seeds, twice as fine grids, two units a step with all m > 1
    sizes: tuple[tuple[int, int], ...] = ((1, 512), (8, 128), (64, 32))  # m, rows n of each
    double: tuple[int, ...] = (64,)  # m with which two units a step are run as well
    scaling_rows: int = 1024  # m n, where it is fixed
    dim: int = 32
    epochs: int = 60
    seeds: int = 3  # reported; each has rows and first orders of its own
    tuning_seeds: int = 2  # only to choose the step
    step_sizes: tuple[tuple[float, ...], ...] = (  # a grid for each of the sizes
        (0.001, 0.0017, 0.003, 0.0055, 0.01, 0.03, 0.1, 0.3),
        (0.003, 0.0055, 0.01, 0.017, 0.03, 0.1, 0.3, 1.0),
        (0.01, 0.017, 0.03, 0.055, 0.1, 0.3, 1.0, 3.0),
    )
    target: float = 1e-4  # gap whose epochs and server steps are reported
    mortgage_epochs: int = 50
    mortgage_seeds: int = 5
    mortgage_steps: tuple[float, ...] = (0.0015, 0.003, 0.005, 0.008, 0.015, 0.03, 0.05, 0.15)
    repeats: int = 15  # of an epoch's timing
    commit: bool = False  # also write the rows where committed ones are


# Problems.


class Sizes(NamedTuple):
    """What the problems of a kind have in common."""

    n_workers: int  # m
    n_units: int  # n, of each worker
    batch: int  # rows of a unit
    momentum: float | None  # of SGD

    @property
    def rows(self) -> int:
        """Of a problem."""
        return self.n_workers * self.n_units * self.batch


MORTGAGES = Sizes(4, 28, 16, 0.9)  # as in the public scripts


class Rows(NamedTuple):
    """Rows and the minimum of their objective."""

    features: np.ndarray  # float32[rows, d]
    labels: np.ndarray  # float32[rows], -1 or 1
    optimum: float

    def gap(self, models: np.ndarray) -> np.ndarray:
        """f(x) - f* in float64, float64[...], of models float[..., d]."""
        flat = models.reshape(-1, models.shape[-1]).astype(np.float64)
        gaps = objective(self.features, self.labels, flat) - self.optimum
        gaps = np.where(np.isfinite(gaps), np.maximum(gaps, SMALLEST), np.inf)
        return gaps.reshape(models.shape[:-1])


def objective(features: Any, labels: Any, models: np.ndarray) -> np.ndarray:
    """The objective of models float64[K, d], float64[K]."""
    with np.errstate(over="ignore", invalid="ignore"):
        margin = np.asarray(labels, np.float64) * (models @ np.asarray(features, np.float64).T)
        return np.logaddexp(0, -margin).mean(axis=1) + L2 / 2 * (models**2).sum(axis=1)


def minimised(features: Any, labels: Any) -> Rows:
    """Rows and f* by Newton's method in float64.

    Each step is the best of 1, 1/2, 1/4, ... of Newton's.

    Args:
        features: [rows, d].
        labels: [rows], -1 or 1.

    Raises:
        RuntimeError: A slope is left after 100 steps.
    """
    a = np.asarray(features, np.float64) * np.asarray(labels, np.float64)[:, None]
    x, ones = np.zeros(a.shape[1]), np.ones(len(a))
    slope = np.full(a.shape[1], np.inf)
    for _ in range(100):
        chance = 0.5 * (1 - np.tanh(a @ x / 2))
        slope = L2 * x - a.T @ chance / len(a)
        if np.abs(slope).max() < LIMIT:
            return Rows(features, labels, float(objective(a, ones, x[None])[0]))
        curvature = (a.T * (chance * (1 - chance))) @ a / len(a) + L2 * np.eye(len(x))
        tried = x - 0.5 ** np.arange(20)[:, None] * np.linalg.solve(curvature, slope)
        x = tried[np.argmin(objective(a, ones, tried))]
    raise RuntimeError(f"the optimum was not found: a slope of {np.abs(slope).max():.2g} is left")


def gaussian_rows(settings: Settings, count: int) -> list[Rows]:
    """Gaussian features, labels drawn from a logistic model with weights of length about 2.

    A set a seed.
    """

    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        inputs, teacher, coin = jax.random.split(key, 3)
        features = jax.random.normal(inputs, (count, settings.dim))
        weights = 2 * jax.random.normal(teacher, (settings.dim,)) / np.sqrt(settings.dim)
        chance = jax.nn.sigmoid(features @ weights)
        return features, jnp.where(jax.random.uniform(coin, (count,)) < chance, 1.0, -1.0)

    features, labels = map(np.asarray, jax.vmap(draw)(_keys(settings, settings.seeds)))
    return [minimised(*drawn) for drawn in zip(features, labels, strict=True)]


def mortgage_rows(seed: int) -> Rows:
    """Training rows of HMDA with a column of ones, in a drawn order, as many as its units hold."""
    data, count = hmda(), MORTGAGES.rows
    drawn = np.random.default_rng(seed).permutation(len(data.train_labels))[:count]
    features = np.concatenate([data.train_features[drawn], np.ones((count, 1), np.float32)], axis=1)
    return minimised(
        features, np.where(data.train_labels[drawn] == 1, 1.0, -1.0).astype(np.float32)
    )


def problem_of(rows: Sequence[Rows], n_workers: int, batch: int = 1) -> problems.Problem:
    """The problems of several rows, stacked."""
    of_units = {"n_workers": n_workers, "l2": L2, "batch": problems.cyclic(batch)}
    each = [problems.logistic(features, labels, **of_units) for features, labels, _ in rows]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


# Orders, and runs.


class Method(NamedTuple):
    """An order, and how a step takes its units."""

    order: orders.Order | orders.ProjectedOrder
    n_workers: int
    units_per_step: int


def methods(m: int, n: int, dim: int) -> dict[str, Method]:
    """The methods that take one unit of each worker in a step; one that holds all takes m."""
    return {
        BASELINE: Method(orders.reshuffled(n, n_workers=m), m, 1),
        "GraB": Method(orders.grab(m * n, dim), 1, m),
        EXACT: Method(orders.pair_balanced(m * n, dim), 1, m),
        ALONE: Method(orders.independent(m, n, dim), m, 1),
        COORDINATED: Method(orders.coordinated(m, n, dim), m, 1),
    }


def double_methods(m: int, n: int, dim: int) -> dict[str, Method]:
    """The methods that take two units of each worker in a step, as projections need."""
    single, projected = methods(m, n, dim), orders.coordinated_by_projection(m, n, jnp.zeros(dim))
    twice = {name: single[name]._replace(units_per_step=2) for name in (BASELINE, COORDINATED)}
    twice |= {PROJECTED: Method(projected, m, 2)}
    return {f"{name}, 2 units": method for name, method in twice.items()}


def run_of(
    method: Method,
    optimizer: Callable[[Any], optax.GradientTransformation],
    n_epochs: int,
    step_size: Any,
    problem: problems.Problem,
    key: jax.Array,
) -> tuple[jax.Array, Any]:
    """The model after each epoch, float[E, d], and the order's state; pure in the last three."""
    run = simulation.run_epochs(
        replace(problem, objective_of=None, metrics_of=(("model", raveled),)),
        method.order,
        optimizer(step_size),
        n_epochs=n_epochs,
        n_workers=method.n_workers,
        units_per_step=method.units_per_step,
        key=key,
    )
    return run.records.metrics["model"], run.order_state


def models_of(method: Method, momentum: float | None, n_epochs: int, *rest: Any) -> jax.Array:
    """The models of a run of SGD."""
    return run_of(method, partial(optax.sgd, momentum=momentum), n_epochs, *rest)[0]


def alone(
    method: Method, sizes: Sizes, n_epochs: int, rows: Rows
) -> Callable[[Any, jax.Array], jax.Array]:
    """One run by itself, `(step size, key) -> models float[E, d]`; compiled once."""
    stacked = problem_of([rows], method.n_workers, sizes.batch)
    problem = jax.tree.map(lambda leaf: leaf[0], stacked)
    run = jax.jit(partial(models_of, method, sizes.momentum, n_epochs))
    return lambda step_size, key: run(step_size, problem, key)


def gaps_of(rows: Sequence[Rows], models: Any) -> np.ndarray:
    """Gaps float64[G, S, E] of models float[G, S, E, d], of each seed those of its rows."""
    models = np.asarray(models)
    return np.stack([each.gap(models[:, at]) for at, each in enumerate(rows)], axis=1)


def train(
    settings: Settings,
    rows: Sequence[Rows],
    compared: Mapping[str, Method],
    step_sizes: Sequence[float],
) -> dict[str, np.ndarray]:
    """Gaps float64[G, S, E] of methods on Gaussian rows, of all G steps and S seeds at once."""
    keys, gaps = _keys(settings, settings.seeds), {}
    stacked = {m: problem_of(rows, m) for m in {method.n_workers for method in compared.values()}}
    for name, method in compared.items():
        run = partial(models_of, method, None, settings.epochs)
        grid = jax.jit(jax.vmap(jax.vmap(run, (None, 0, 0)), (0, None, None)))
        models = grid(jnp.asarray(step_sizes), stacked[method.n_workers], keys)
        gaps[name] = gaps_of(rows, models)
    return gaps


def full_gradient(rows: Sequence[Rows], step_sizes: Sequence[float], n_steps: int) -> np.ndarray:
    """The gap after steps along the full gradient, float64[G, S].

    What is left when orders make no noise.
    """

    def run(step_size: jax.Array, signed: jax.Array) -> jax.Array:
        def step(_: Any, x: jax.Array) -> jax.Array:
            slope = L2 * x - jax.nn.sigmoid(-(signed @ x)) @ signed / signed.shape[0]
            return x - step_size * slope

        return jax.lax.fori_loop(0, n_steps, step, jnp.zeros(signed.shape[-1]))

    signed = jnp.stack([features * labels[:, None] for features, labels, _ in rows])
    models = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(jnp.asarray(step_sizes), signed)
    return gaps_of(rows, models[:, :, None])[..., 0]


def chosen(gap: np.ndarray, tuning_seeds: int) -> np.ndarray:
    """The last gaps at the step with the lowest on the tuning seeds, float64[reported seeds].

    Args:
        gap: float64[G, S, E], tuning seeds first.
        tuning_seeds: How many these are.
    """
    best = results.best_on_grid(np.log(gap[:, :tuning_seeds, -1])).row
    return gap[best, tuning_seeds:, -1]


def reached(gap: np.ndarray, tuning_seeds: int, target: float) -> np.ndarray:
    """Epochs until a run stays at a gap, at the step that is soonest so on the tuning seeds."""
    epochs = np.arange(1.0, gap.shape[-1] + 1)
    there = results.time_to_target(epochs, gap, target, stays=True)
    at = int(np.argmin(np.mean(there[:, :tuning_seeds], axis=1)))
    return there[at, tuning_seeds:]


def _keys(settings: Settings, seeds: int) -> jax.Array:
    """Keys of all seeds, those for tuning first."""
    return jax.random.split(jax.random.key(settings.seed), settings.tuning_seeds + seeds)


# The part.


def study_of(settings: Settings) -> Result:
    """Runs everything; without HMDA where its package is missing.

    Raises:
        ValueError: Sizes do not fit together, or a count is below 1.
    """
    if settings.full:
        settings = replace(
            settings,
            double=tuple(m for m, _ in settings.sizes if m > 1),
            step_sizes=tuple(map(finer, settings.step_sizes)),
            seeds=10,
            mortgage_seeds=10,
            mortgage_steps=finer(settings.mortgage_steps),
        )
    for m, n in settings.sizes:
        if m < 1 or n < 2 or n % 2:
            raise ValueError(f"sizes must be m of at least 1 and even n, got m = {m}, n = {n}")
        if (rows := settings.scaling_rows) % (2 * m):
            words = "must be a multiple of 2 m for all m of sizes"
            raise ValueError(f"scaling_rows {words}, got {rows} for m = {m}")
    for name in ("epochs", "seeds", "tuning_seeds", "mortgage_epochs", "mortgage_seeds"):
        checks.whole(name, getattr(settings, name))
    rows = numbers.rounded([*gaussian(settings), *mortgages(settings)], DIGITS)
    frame = pd.DataFrame(rows)
    frame.insert(1, "set", "A")
    names = ("epochs", "seeds", "tuning_seeds", "target", "scaling_rows", "mortgage_seeds")
    return Result(frame, "gap", {name: getattr(settings, name) for name in names}, settings.seed)


def finer(grid: tuple[float, ...]) -> tuple[float, ...]:
    """A grid with the geometric means of its neighbours in between."""
    between = np.sqrt(np.multiply(grid[:-1], grid[1:]))
    return tuple(sorted([*grid, *map(float, between)]))


def gaussian(settings: Settings) -> Iterator[dict[str, Any]]:
    """The rows of all runs on Gaussian rows; with one worker CD-GraB is pair balance."""
    known: dict[tuple[int, int], dict[str, np.ndarray]] = {}
    grids = list(zip(settings.sizes, settings.step_sizes, strict=True))
    seeds, several = settings.tuning_seeds, (ALONE, COORDINATED)

    def compared(m: int, n: int) -> dict[str, Method]:
        every = methods(m, n, settings.dim)
        return {name: method for name, method in every.items() if m > 1 or name not in several}

    for (m, n), steps in grids:
        double = double_methods(m, n, settings.dim) if m in settings.double else {}
        rows = gaussian_rows(settings, m * n)
        known[m, n] = train(settings, rows, compared(m, n) | double, steps)
        full = full_gradient(rows, steps, n * settings.epochs)[:, seeds:]
        yield from of_grid(f"m = {m}", known[m, n], seeds, steps, full)
    rows = gaussian_rows(settings, settings.scaling_rows)
    for (m, _), steps in grids:
        n = settings.scaling_rows // m
        asked = {name: method for name, method in compared(m, n).items() if name != "GraB"}
        gaps = known.get((m, n)) or train(settings, rows, asked, steps)
        for name in asked:
            epochs = float(np.median(reached(gaps[name], seeds, settings.target)))
            gap = geometric(chosen(gaps[name], seeds))
            row = {"scene": f"m = {m}", "study": SCALING, "method": name, "gap": gap}
            yield row | {"epochs": epochs, "server_steps": epochs * n}


def of_grid(
    scene: str,
    gaps: Mapping[str, np.ndarray],
    tuning_seeds: int,
    steps: Sequence[float],
    full: np.ndarray,
) -> Iterator[dict[str, Any]]:
    """Rows of every step: gaps, what limits D-RR; with two units a step how the stale form ends.

    Args:
        scene: Its name.
        gaps: Of all methods, float[steps, seeds, epochs].
        tuning_seeds: The first ones.
        steps: The grid.
        full: The gap of the full gradient, float[steps, reported seeds].
    """
    means = {name: geometric(gap[:, tuning_seeds:, -1]) for name, gap in gaps.items()}
    limits = [limit_of(*pair) for pair in zip(means[BASELINE], geometric(full), strict=True)]
    ours = COORDINATED if COORDINATED in gaps else EXACT
    for name, gap in gaps.items():
        double = name.endswith("2 units")
        frame = pd.DataFrame({"scene": scene, "method": name, "step": steps, "gap": means[name]})
        frame["study"] = DOUBLE if double else GRID
        if double:
            frame["over_exact"] = means[name] / means[EXACT_TWO]
        elif name == ours:
            frame = frame.assign(gain=means[BASELINE] / means[name], limit=limits)
        yield from frame.to_dict("records")
        if double:
            best = geometric(chosen(gap, tuning_seeds))
            yield {"scene": scene, "study": BEST, "method": name, "gap": best}


def mortgages(settings: Settings) -> Iterator[dict[str, Any]]:
    """The rows of HMDA, with what an epoch costs; none where its package is missing."""
    try:
        rows = mortgage_rows(settings.seed)
    except (ImportError, FileNotFoundError) as missing:
        print(f"HMDA is left out: {missing}")
        return
    keys, timed, last = _keys(settings, settings.mortgage_seeds), {}, {}
    sizes = MORTGAGES.n_workers, MORTGAGES.n_units, rows.features.shape[1]
    for name, method in (methods(*sizes) | double_methods(*sizes)).items():
        run = alone(method, MORTGAGES, settings.mortgage_epochs, rows)
        models = [[run(step, key) for key in keys] for step in settings.mortgage_steps]
        gaps = gaps_of([rows] * len(keys), np.array(models))
        last[name] = float(np.median(chosen(gaps, settings.tuning_seeds)))
        timed[name] = partial(run, settings.mortgage_steps[0], keys[0])
    price = prices(timed, settings.repeats)
    for name, gap in last.items():
        row = {"scene": HMDA, "study": HMDA, "method": name, "gap": gap}
        yield row | {"gain": last[BASELINE] / gap, "price": price[name][0]}


def geometric(gaps: np.ndarray) -> Any:
    """Geometric means over seeds, the last axis."""
    return np.exp(np.mean(np.log(gaps), axis=-1))


def limit_of(baseline: float, full: float) -> str:
    """What limits random reshuffling: noise, or the optimisation the full gradient needs as well.

    Example:
        >>> limit_of(1.0, 0.05), limit_of(1.0, 0.2), limit_of(1.0, 0.6)
        ('noise', 'both', 'optimisation')
    """
    if baseline >= FAR * full:
        return NOISE
    return OPTIMISATION if baseline <= CLOSE * full else BOTH


def gains(result: Result) -> Any:
    """The rows of CD-GraB on the grid; with one worker of pair balance, which it is there."""
    rows = result.select(study=GRID)
    return rows[rows["gain"].notna()]


def _shown(rows: Any, columns: dict[str, str], text: str) -> results.Table:
    """A table of some columns."""
    return herding.table(rows.reindex(columns=[*columns]).rename(columns=columns), text, left=2)


def scaling_table(result: Result) -> results.Table:
    """Epochs and server steps to a gap, with m n fixed."""
    heads = {"method": "method", "scene": "workers", "gap": "gap at the end"}
    heads |= {"epochs": "epochs to the target", "server_steps": "server steps to it"}
    facts = result.facts
    return _shown(
        result.select(study=SCALING),
        heads,
        f"m n = {facts['scaling_rows']}. Gap at the end: at the best step for it; to a target of"
        f" {facts['target']:g}: at the first step there. With m = 1 CD-GraB is pair balance.",
    )


def mortgage_table(result: Result) -> results.Table:
    """HMDA at the chosen steps."""
    heads = {"method": "method", "price": "time of an epoch", "gain": "D-RR / this"}
    text = (
        "HMDA: time of an epoch on this CPU in those of D-RR, and the last gap of D-RR over that of"
        f" each method at its best step; medians of {result.facts['mortgage_seeds']} seeds."
    )
    return _shown(result.select(study=HMDA), heads, text)


TABLES = {"scaling": scaling_table, "mortgages": mortgage_table}


def fewer(result: Result) -> dict[str, float]:
    """How many times fewer server steps to the target with most workers than with one."""
    steps = result.select(study=SCALING).set_index(["method", "scene"])["server_steps"]
    scenes = steps.index.unique("scene")
    pairs = {BASELINE: (BASELINE, BASELINE), COORDINATED: (EXACT, COORDINATED)}
    ends = {x: ((few, scenes[0]), (many, scenes[-1])) for x, (few, many) in pairs.items()}
    met = {x: (steps[few], steps[many]) for x, (few, many) in ends.items() if many in steps}
    return {x: float(few / many) for x, (few, many) in met.items() if np.isfinite(few * many)}


FACTS = {"fewer": fewer}


def answer(result: Result) -> str:
    """How many times lower CD-GraB ends where D-RR is limited by noise."""
    rows = gains(result)
    gain = rows.loc[rows["limit"] == NOISE, "gain"]
    if gain.empty:
        return "D-RR is limited by noise at no step."
    ends = f"{gain.min():.1f} to {gain.max():.0f}"
    return f"Where D-RR is limited by noise, CD-GraB ends {ends} times lower at the same step."


def grid_figure(result: Result) -> Illustration:
    """What CD-GraB gains at each step, a line a number of workers; dots: noise limits."""
    lines = gains(result).groupby("scene", sort=False)[["step", "gain"]]
    page = plots.curves(
        [results.Series(str(x), way["step"], *[way["gain"].to_numpy()] * 3) for x, way in lines],
        x_label="step",
        y_label="gap of D-RR / gap of CD-GraB",
        log_x=True,
        log_y=True,
    )
    noisy = gains(result)[gains(result)["limit"] == NOISE]
    page.axes[0].plot(noisy["step"], noisy["gain"], "ko", markersize=4)
    text = "Last gap of D-RR over that of CD-GraB at one step; dots: D-RR is limited by noise."
    return Illustration(page, text)


FIGURES = {"grid": grid_figure}


if __name__ == "__main__":
    part.main(NAME)
