"""What wrong constants cost a plan of (k, load), and what mends it.

A plan is made from believed constants and then meets the true ones: first on the bound, without
data and without chance,

    e <- A + (1 - eta c)^u (e - A),    time <- time + u E T_(k)

with the true floor A, decay and completion times, then in SGD on a linear regression, where the
bound's floor itself is wrong. A plan's stage ends after the planned updates, by the clock, or when
the true error has come down to where the plan ends it, with or without a stall exit; the last stage
never ends. In SGD stationary errors of fixed pairs are set beside two floors, wrong plans run with
all switches, and a plan is made anew after a short pilot run, from the decay that it shows. One
data set, medians over seeds.

After the plans of Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from asyncjax import clocks, results, stragglers
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.pages import value
from asyncjax.study.protocol import FIRST_CROSSING, time_to
from asyncjax.study.result import Result
from experiments import part
from experiments.stragglers import bounds
from experiments.stragglers.methods import COLUMNS, Known, always, curve, lasting, mean_gap
from experiments.stragglers.tasks import Task, bound_of, floor_of, task
from experiments.stragglers.training import known, table_of

NAME = "straggler_constants"
TITLE = "What do wrong constants cost a plan, and what mends it?"
PAPERS = ("Egger, Kas Hanna, Bitar, 2023 (arXiv 2304.08589)",)
NOTE = FIRST_CROSSING
CLAIMS = ()
NOWHERE = 0.0  # no target: the plan goes on as long as its menu does
RIGHT, CONVEXITY = "right constants", "strong convexity"
CONSTANTS = {  # and their fields in a bound
    CONVEXITY: "strong_convexity",
    "noise variance": "noise_variance",
    "smoothness": "smoothness",
    "initial error": "initial_error",
    "mean of communication": "",
    "mean of computation": "",
}
BOUND, SWEEP, SGD, PAIRS = "the bound", "the bound, all factors", "SGD", "SGD, fixed pairs"
UPDATES = "by updates"


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/straggler_constants")
    commit: bool = False  # also write the rows where committed ones are
    seed: int = 0
    n_workers: int = 50
    shard: int = 40  # samples of a worker
    loads: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40)
    samples: float = 1200.0  # of an update whose floor is the target, on the bound
    factors: tuple[float, ...] = (0.1, 0.25, 4.0, 10.0)  # of a constant, believed over true
    convexity_factors: tuple[float, ...] = (0.25, 0.5, 2.0, 4.0)  # of strong convexity
    patiences: tuple[float, ...] = (1.0, 1.5, 2.0, 4.0, math.inf)  # on the bound
    sweep: int = 21  # factors from 0.1 to 10, in the figure
    dim: int = 20
    noise: float = 3.0  # standard deviation of the linear targets
    signal: float = 7.0  # standard deviation of the linear weights: how far off the start is
    n_updates: int = 1000  # of a run of SGD
    most_updates: int = 3500  # where most seeds have not reached the target by then
    seeds: int = 5
    least_samples: int = 10  # of an update, in plans for SGD
    wrong_convexity: tuple[float, ...] = (0.25, 2.0, 4.0)  # factors, in SGD
    wrong_variance: tuple[float, ...] = (0.04, 0.25, 4.0)
    clock: bool = True  # whether plans switch by the clock in SGD too
    run_patiences: tuple[float, ...] = (1.5, 4.0, math.inf)
    pairs: tuple[tuple[int, int], ...] = ((10, 40), (30, 40), (45, 40), (10, 4), (40, 10))
    pilots: tuple[int, ...] = (30, 60, 180)  # updates before the plan is made anew


# On the bound.


class Stage(NamedTuple):
    """A stage as it is planned, and what is true when it begins."""

    end_error: float  # planned
    updates: float  # planned
    span: float  # planned, time units
    error: float  # true, at its beginning
    floor: float  # true
    completion: float  # true time of an update
    decay: float  # true, an update


Switch = Callable[[Stage], float]  # updates until a stage is left


@dataclass(frozen=True, eq=False)
class Truth:
    """What a plan meets: the bound with the true constants, the true times, the error to reach."""

    bound: stragglers.ErrorBound
    known: Known
    target: float


def by_updates(stage: Stage) -> float:
    """Leaves a stage after the planned updates."""
    return stage.updates


def by_clock(stage: Stage) -> float:
    """Leaves a stage after the planned time."""
    return stage.span / stage.completion


def by_error(patience: float) -> Switch:
    """Leaves a stage when the true error is at its end, or `patience` times later than planned."""

    def switch(stage: Stage) -> float:
        falls = updates_until(stage.error, stage.end_error, stage.floor, stage.decay)
        return min(falls, patience * stage.updates)

    return switch


def switches_of(*patiences: float) -> dict[str, Switch]:
    """The switches on the bound, by name."""
    errors = {f"by error, patience {patience:g}": by_error(patience) for patience in patiences}
    return {UPDATES: by_updates, "by the clock": by_clock, **errors}


def updates_until(error: float, goal: float, floor: float, decay: float) -> float:
    """Counts the updates until the bound has fallen from an error to a goal, fractional.

    Inf if the floor is above it.
    """
    if error <= goal:
        return 0.0
    return math.log((error - floor) / (goal - floor)) / decay if goal > floor else math.inf


def walk(truth: Truth, plan: stragglers.Plan, switch: Switch) -> float:
    """Follows a plan's stages on the true bound: the time until the target, inf if never."""
    error, decay, time = truth.bound.initial_error, truth.bound.decay, 0.0
    floors = stragglers.error_floor(truth.bound, plan.k, plan.load)
    completions = truth.known.completion[np.searchsorted(truth.known.loads, plan.load), plan.k - 1]
    for at, (floor, completion) in enumerate(zip(floors, completions, strict=True)):
        span = float(plan.end_time[at] - plan.start_time[at])
        planned = float(plan.end_error[at]), float(plan.updates[at]), span
        needs = updates_until(error, truth.target, float(floor), decay)
        is_last = at == plan.k.size - 1
        lasts = switch(Stage(*planned, error, float(floor), float(completion), decay))
        updates = needs if is_last else min(lasts, needs)
        if math.isinf(updates):
            return math.inf
        error = floor + (error - floor) * math.exp(-decay * updates)
        time += updates * float(completion)
        if needs <= updates:
            return time
    return math.inf


def truth_of(settings: Settings) -> Truth:
    """The true bound and times: those of the bound's own experiment."""
    sizes = {name: getattr(settings, name) for name in ("n_workers", "shard", "loads")}
    same, times = bounds.Settings(**sizes), known("scale", *sizes.values(), 1)
    return Truth(bounds.bound_of(same), times, bounds.target_of(same, settings.samples))


def believed(
    settings: Settings, truth: Truth, constant: str, factor: float, *, target: float = NOWHERE
) -> stragglers.Plan:
    """Makes the plan of someone who takes one constant for `factor` times what it is.

    Without a target it goes on to the least floor.
    """
    bound, times, field = (
        truth.bound,
        truth.known.times,
        CONSTANTS.get(constant, "strong_convexity"),
    )
    if field:
        bound = replace(bound, **{field: factor * getattr(bound, field)})
    else:
        apart, compute = (factor, 1.0) if constant.endswith("communication") else (1.0, factor)
        times = stragglers.response(
            compute=clocks.exponential(compute / settings.shard),
            communicate=clocks.exponential(apart),
            scaling="scale",
            n_workers=settings.n_workers,
        )
    return bounds.plan_anyway(times, bound, load=settings.loads, target=target)


def on_bound(settings: Settings) -> list[dict[str, Any]]:
    """Times over the best by constant, factor and switch.

    The switch "stops at its target" is a plan whose last stage is the one in which it believes to
    be at the target; all others go on to the least floor of the menu.
    """
    truth, rows = truth_of(settings), []
    make = partial(believed, settings, truth)
    least = walk(truth, make(RIGHT, 1.0), by_updates)

    def follow(scene: str, constant: str, factor: float, switches: Any, **target: float) -> None:
        plan = make(constant, factor, **target)
        for switch, rule in switches.items():
            ratio = walk(truth, plan, rule) / least
            rows.append(_row(scene, switch, constant, factor, ratio=ratio))

    cases = [(RIGHT, 1.0), *((CONVEXITY, factor) for factor in settings.convexity_factors)]
    cases += [(name, factor) for name in list(CONSTANTS)[1:] for factor in settings.factors]
    for case in cases:
        follow(BOUND, *case, {"stops at its target": by_updates}, target=truth.target)
        follow(BOUND, *case, switches_of(*settings.patiences))
    shown = switches_of(1.5, 4.0)
    del shown["by the clock"]
    for constant in (CONVEXITY, "noise variance", "initial error", "mean of communication"):
        for factor in np.geomspace(0.1, 10.0, settings.sweep).tolist():
            follow(SWEEP, constant, factor, shown)
    return rows


def _row(scene: str, method: str, constant: str, factor: float = math.nan, **numbers: Any) -> Any:
    head = {"scene": scene, "set": "A", "instance": 0, "method": method}
    return {**head, "constant": constant, "factor": factor, **numbers}


# In SGD.


@partial(jax.jit, static_argnames="n_updates")
def _paired(
    problem: Any, times: Any, policies: Any, step_size: Any, keys: Any, n_updates: int
) -> Any:
    """Loss and costs after every update, a policy for each key; float[S, n_updates] each."""

    def single(policy: Any, key: Any) -> Any:
        return curve(problem, times, policy, step_size, key, n_updates)

    return jax.vmap(single)(policies, keys)


@dataclass(frozen=True, eq=False)
class Bench:
    """SGD on one task: everything but the policy.

    Attributes:
        settings: What is run.
        task: What is trained.
        known: What plans are made from; the times are those that are met.
        target: Gap to reach.
        keys: A key a seed.
    """

    settings: Settings
    task: Task
    known: Known
    target: float
    keys: jax.Array

    def run(self, policies: Sequence[stragglers.Policy], n_updates: int) -> dict[str, np.ndarray]:
        """Records of a policy for each seed, or of one for all."""
        several = [*policies] * (len(self.keys) if len(policies) == 1 else 1)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
        step = jnp.asarray(self.task.step_size)
        of = self.task.problem, self.known.times, stacked, step, self.keys
        return {name: np.asarray(values) for name, values in _paired(*of, n_updates).items()}

    def reach(self, policies: Sequence[stragglers.Policy]) -> np.ndarray:
        """Times to the target, float64[S]."""
        times = np.full(len(self.keys), np.inf)
        for n_updates in (self.settings.n_updates, self.settings.most_updates):
            records = self.run(policies, n_updates)
            gaps = mean_gap(records["loss"], self.task.minimum)
            pairs = zip(records["time"], gaps, strict=True)
            times = np.array([time_to(time, gap, self.target) for time, gap in pairs])
            if np.isfinite(np.median(times)):
                break
        return times

    @property
    def bounds(self) -> dict[str, stragglers.ErrorBound]:
        """With the constants of the data, and the same with the floor for quadratics."""
        bound = bound_of(self.task, self.task.step_size)
        close = stragglers.quadratic_floor(self.settings.n_workers, self.settings.shard)
        return {"bound": bound, "quadratic": replace(bound, floor=close)}


def bench_of(settings: Settings) -> Bench:
    """Makes the linear task of `straggler_training`, its times and its target."""
    n, shard = settings.n_workers, settings.shard
    shape = settings.dim, settings.noise, settings.signal
    linear = task("linear", settings.seed, None, n, shard, *shape)
    return Bench(
        settings,
        linear,
        known("scale", n, shard, settings.loads, settings.least_samples),
        floor_of(linear, max(1, round(0.6 * n)) * shard),
        jax.random.split(jax.random.key(settings.seed + 1), settings.seeds),
    )


def stationary(bench: Bench) -> list[dict[str, Any]]:
    """Mean gap of fixed pairs over the second half of a run, over both floors."""
    settings, rows = bench.settings, []
    for k, load in settings.pairs:
        policy = always(k, load, settings.shard)
        loss = bench.run([policy], settings.n_updates)["loss"][:, settings.n_updates // 2 :]
        error = float(np.mean(loss, dtype=np.float64)) - bench.task.minimum
        floors = {name: stragglers.error_floor(own, k, load) for name, own in bench.bounds.items()}
        over = {f"over_{name}": error / float(floor) for name, floor in floors.items()}
        rows.append(_row(PAIRS, "fixed pair", RIGHT, k=k, load=load, **over))
    return rows


def trained(bench: Bench) -> list[dict[str, Any]]:
    """Times of plans from right and wrong constants with all switches, and of pilots.

    All over that of the right plan that switches by updates, medians over seeds.
    """
    settings, (bound, close) = bench.settings, bench.bounds.values()
    plans = {(RIGHT, math.nan): bound, (f"{RIGHT}, close floor", math.nan): close}
    wrong = {CONVEXITY: settings.wrong_convexity, "noise variance": settings.wrong_variance}
    for constant, factors in wrong.items():
        field = CONSTANTS[constant]
        values = {factor: factor * getattr(bound, field) for factor in factors}
        plans |= {(constant, x): replace(bound, **{field: value}) for x, value in values.items()}
    switches: dict[str, Any] = {UPDATES: stragglers.planned}
    switches |= {"by the clock": stragglers.timed} if settings.clock else {}
    for patience in settings.run_patiences:
        limits = {"patience": patience, "minimum": bench.task.minimum}
        switches[f"by error, patience {patience:g}"] = partial(stragglers.error_triggered, **limits)
    times = {
        (switch, *name): bench.reach([lasting(bench.known.plan(believed), settings.shard, policy)])
        for switch, policy in switches.items()
        for name, believed in plans.items()
    }
    base = next(iter(times.values()))
    times |= {(UPDATES, name, math.nan): own for name, own in piloted(bench).items()}
    return [_row(SGD, *name, ratio=float(np.median(own / base))) for name, own in times.items()]


def fitted_decay(gap: np.ndarray) -> tuple[float, float]:
    """Regresses the logarithm of the gap on the updates.

    Args:
        gap: float[P], loss above its minimum after each update; what is not positive is left out.

    Returns:
        The decay an update, and the fitted gap after the last.

    Raises:
        ValueError: The gap does not fall.
    """
    positive = gap > 0
    turn = np.arange(1, gap.size + 1)
    slope, start = np.polyfit(turn[positive], np.log(gap[positive]), 1)
    if slope >= 0:
        raise ValueError(f"pilots must be long enough for the loss to fall, got {gap.size}")
    return float(-slope), float(np.exp(start + slope * gap.size))


def piloted(bench: Bench) -> dict[str, np.ndarray]:
    """Times with plans that are made after a pilot at the cheapest pair, from the decay it shows.

    The run goes on from where the pilot ends. Either the server measures the loss on all rows after
    each update, which is not counted, or it sees that of as many rows as it uses anyway, here drawn
    from the loss on all: the mean of that many squares of normal residuals. Both know the least
    loss.
    """
    settings, loss_of, bound = bench.settings, bench.task, bench.bounds["bound"]
    first = bench.known.plan(bound)
    k, load = int(first.k[0]), float(first.load[0])
    policy = always(k, int(load), settings.shard)
    loss = np.asarray(bench.run([policy], settings.n_updates)["loss"], np.float64)
    rows, found = k * load, {}
    spread = np.random.default_rng(settings.seed).chisquare(rows, loss.shape) / rows
    for length in settings.pilots:
        for words, losses in (("all rows", loss), (f"{rows:g} rows", loss * spread)):
            policies = []
            for row in losses:
                decay, error = fitted_decay(row[:length] - loss_of.minimum)
                convexity = -math.expm1(-decay) / loss_of.step_size
                again = replace(bound, strong_convexity=convexity, initial_error=error)
                plan = after((k, load, length), bench.known.plan(again))
                policies.append(lasting(plan, settings.shard))
            found[f"pilot of {length}, loss of {words}"] = bench.reach(policies)
    return found


def after(pilot: tuple[int, float, int], plan: stragglers.Plan) -> stragglers.Plan:
    """Puts a stage `(k, load, updates)` before a plan's; policies switch by updates."""
    columns = {name: getattr(plan, name) for name in (*COLUMNS, "updates")}
    first = {name: values[0] for name, values in columns.items()}
    first |= dict(zip(("k", "load", "updates"), pilot, strict=True))
    longer = {name: np.append(first[name], values) for name, values in columns.items()}
    return replace(plan, **longer)


def study_of(settings: Settings) -> Result:
    """Walks on the bound, and trains."""
    bench = bench_of(settings)
    rows = [*on_bound(settings), *trained(bench), *stationary(bench)]
    facts = {name: getattr(settings, name) for name in ("seeds", "most_updates")}
    return Result(pd.DataFrame(rows), "ratio", facts, settings.seed)


# What rows say.


def plan_name(row: Any) -> str:
    """A constant and by how much it is wrong."""
    return row["constant"] + ("" if math.isnan(row["factor"]) else f" x {row['factor']:g}")


def ratio_table(scene: str, caption: str, result: Result) -> results.Table:
    """Times over those with the right constants, a row a plan, a column a switch."""
    rows = result.select(scene=scene)
    plans = rows.apply(plan_name, axis=1)
    wide = rows.assign(plan=plans).pivot(index="plan", columns="method", values="ratio")
    wide = wide.loc[plans.unique(), rows["method"].unique()]
    words = wide.map(lambda x: "" if math.isnan(x) else f"{x:.3f}" if x < math.inf else "never")
    return table_of(("plan", *wide.columns), [*words.itertuples()], caption)


def floors_table(result: Result) -> results.Table:
    """Measured stationary errors over two floors."""
    names = ["k", "load", "over_bound", "over_quadratic"]
    rows = result.select(scene=PAIRS)[names].itertuples(index=False)
    return table_of(
        ("k", "load", "over the bound's floor", "over the floor for quadratics"),
        [(f"{row.k:g}", f"{row.load:g}", row.over_bound, row.over_quadratic) for row in rows],
        "SGD with a fixed pair: mean gap over the second half of a run and all seeds.",
        left=0,
    )


TABLES: Mapping[str, Callable[[Result], results.Table]] = {
    "bound": partial(
        ratio_table,
        BOUND,
        "On the bound, time to the target over that of the best plan. All plans but the one that"
        " stops at its target go on to the least floor. Switches by the error see the true error,"
        " and leave a stage at the latest after patience times its updates.",
    ),
    "training": partial(
        ratio_table,
        SGD,
        "SGD: time over that with the right constants, by updates, median of seeds. Switches by the"
        " error are told the loss on all rows, and the least loss, free of charge.",
    ),
    "floors": floors_table,
}


def factors(result: Result) -> Illustration:
    """Time over the best against the factor, a panel a switch."""
    panels = []
    for switch, rows in result.select(scene=SWEEP).groupby("method", sort=False):
        series = []
        for constant, line in rows.groupby("constant", sort=False):
            shown = line["ratio"].replace(np.inf, np.nan).to_numpy()
            series.append(results.Series(constant, line["factor"].to_numpy(), *[shown] * 3))
        panels.append(plots.Panel(f"believed over true ({switch})", series, log_x=True))
    return Illustration(
        plots.panels(panels, y_label="time over the best plan's", log_y=True),
        "On the bound: time over the best plan's against how wrong one constant is. Smoothness acts"
        " like variance.",
    )


FIGURES = {"factors": factors}


def others(result: Result) -> float:
    """What any constant but strong convexity costs at most, run open-loop, on the bound."""
    rows = result.select(scene=BOUND, method=UPDATES, constant=lambda name: name != CONVEXITY)
    return float(rows["ratio"].max() - 1)


FACTS: Mapping[str, Any] = {
    "others": others,
    "too_high": lambda result: (1 / result.rows["over_bound"]).agg(["min", "max"]).to_dict(),
    "close": lambda result: float((result.rows["over_quadratic"] - 1).abs().max()),
}


def answer(result: Result) -> str:
    """The costs of wrong constants in words."""
    worst = value(result, "ratio", "most", scene=BOUND, method=UPDATES, constant=CONVEXITY)
    return (
        f"On the bound a wrong strong convexity takes up to {worst:.1f} times the time of the best"
        f" plan, any other constant at most {100 * others(result):.1f} % more."
    )


if __name__ == "__main__":
    part.main(NAME)
