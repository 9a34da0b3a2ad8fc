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
from asyncjax.study.result import Result
from experiments import part
from experiments.stragglers import bounds, methods
from experiments.stragglers.methods import Instance, always, lasting

NAME = "straggler_constants"
TITLE = "What do wrong constants cost a plan, and what mends it?"
PAPERS = ("Egger, Kas Hanna, Bitar, 2023 (arXiv 2304.08589)",)
CLAIMS = ()
NOWHERE = 0.0  # no target: the plan goes on as long as its menu does
RIGHT, CONVEXITY = "right constants", "strong convexity"
COMMUNICATE, COMPUTE = "mean of communication", "mean of computation"
CONSTANTS = CONVEXITY, "noise variance", "smoothness", "initial error", COMMUNICATE, COMPUTE
BOUND, SWEEP, SGD, PAIRS = "the bound", "the bound, all factors", "SGD", "SGD, fixed pairs"
UPDATES, CLOCK = "by updates", "by the clock"


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
    lengths: tuple[int, ...] = (1000, 3500)  # updates: the next where most seeds are not there
    seeds: int = 5
    least_samples: int = 10  # of an update, in plans for SGD
    wrong_convexity: tuple[float, ...] = (0.25, 2.0, 4.0)  # factors, in SGD
    wrong_variance: tuple[float, ...] = (0.04, 0.25, 4.0)
    run_patiences: tuple[float, ...] = (1.5, 4.0, math.inf)
    pairs: tuple[tuple[int, int], ...] = ((10, 40), (30, 40), (45, 40), (10, 4), (40, 10))
    pilots: tuple[int, ...] = (30, 60, 180)  # updates before the plan is made anew


# On the bound.

Switch = str | float  # UPDATES, CLOCK, or by the error, with so much patience


def named(switch: Switch) -> str:
    """A switch in tables."""
    return switch if isinstance(switch, str) else f"by error, patience {switch:g}"


class Truth(NamedTuple):
    """What a plan meets: the true times, those of updates by load and k, the error to reach."""

    times: stragglers.Response
    completion: Mapping[Any, np.ndarray]
    target: float


def truth_of(settings: Settings) -> Truth:
    """The true times and target: those of the bound's own experiment."""
    times = bounds.laws(settings.n_workers, settings.shard)["exponential, scale"]
    table = stragglers.completion_table(times, np.asarray(settings.loads, float))
    completion = dict(zip(settings.loads, table, strict=True))
    return Truth(times, completion, bounds.target_of(settings.samples))


def updates_until(error: float, goal: float, floor: float, decay: float) -> float:
    """Counts the updates until the bound has fallen from an error to a goal, fractional.

    Inf if the floor is above it.
    """
    if error <= goal:
        return 0.0
    return math.log((error - floor) / (goal - floor)) / decay if goal > floor else math.inf


def walk(truth: Truth, plan: stragglers.Plan, switch: Switch) -> float:
    """Follows a plan's stages on the true bound: the time until the target, inf if never.

    By the error a stage is left when the true error is at its end, or the patience times later
    than planned.
    """
    error, decay, time = bounds.BOUND.initial_error, bounds.BOUND.decay, 0.0
    floors = stragglers.error_floor(bounds.BOUND, plan.k, plan.load).tolist()
    lengths = (plan.end_time - plan.start_time).tolist()
    stages = zip(plan.k, plan.load, plan.updates.tolist(), plan.end_error.tolist(), strict=True)
    for at, (k, load, planned, end_error) in enumerate(stages):
        floor, completion = floors[at], float(truth.completion[load][k - 1])
        needs = updates_until(error, truth.target, floor, decay)
        if at == plan.k.size - 1:
            updates = needs
        elif isinstance(switch, str):
            updates = min(planned if switch == UPDATES else lengths[at] / completion, needs)
        else:
            falls = updates_until(error, end_error, floor, decay)
            updates = min(falls, switch * planned, needs)
        if math.isinf(updates):
            return math.inf
        error = floor + (error - floor) * math.exp(-decay * updates)
        time += updates * completion
        if needs <= updates:
            return time
    return math.inf


def scaled(bound: stragglers.ErrorBound, constant: str, factor: float) -> stragglers.ErrorBound:
    """The bound with one of its constants so many times what it is; if it has none, itself."""
    field = constant.replace(" ", "_")
    known = getattr(bound, field, None)
    return bound if known is None else replace(bound, **{field: factor * known})


def believed(
    settings: Settings, constant: str, factor: float, *, target: float = NOWHERE
) -> stragglers.Plan:
    """Makes the plan of someone who takes one constant for `factor` times what it is.

    Without a target it goes on to the least floor.
    """
    times = stragglers.response(
        compute=clocks.exponential((factor if constant == COMPUTE else 1.0) / settings.shard),
        communicate=clocks.exponential(factor if constant == COMMUNICATE else 1.0),
        scaling="scale",
        n_workers=settings.n_workers,
    )
    bound = scaled(bounds.BOUND, constant, factor)
    return bounds.plan_anyway(times, bound, load=settings.loads, target=target)


def on_bound(settings: Settings) -> list[dict[str, Any]]:
    """Times over the best by constant, factor and switch.

    The switch "stops at its target" is a plan whose last stage is the one in which it believes to
    be at the target; all others go on to the least floor of the menu.
    """
    truth, rows = truth_of(settings), []
    least = walk(truth, believed(settings, RIGHT, 1.0), UPDATES)

    def follow(scene: str, case: tuple[str, float], switches: Sequence[Switch]) -> None:
        plan = believed(settings, *case)
        for switch in switches:
            ratio = walk(truth, plan, switch) / least
            rows.append(_row(scene, named(switch), *case, ratio=ratio))

    cases = [(RIGHT, 1.0), *((CONVEXITY, factor) for factor in settings.convexity_factors)]
    cases += [(name, factor) for name in CONSTANTS[1:] for factor in settings.factors]
    for case in cases:
        ratio = walk(truth, believed(settings, *case, target=truth.target), UPDATES) / least
        rows.append(_row(BOUND, "stops at its target", *case, ratio=ratio))
        follow(BOUND, case, (UPDATES, CLOCK, *settings.patiences))
    for constant in (CONVEXITY, "noise variance", "initial error", COMMUNICATE):
        for factor in np.geomspace(0.1, 10.0, settings.sweep).tolist():
            follow(SWEEP, (constant, factor), (UPDATES, 1.5, 4.0))
    return rows


def _row(scene: str, method: str, constant: str, factor: float = math.nan, **numbers: Any) -> Any:
    head = {"scene": scene, "set": "A", "instance": 0, "method": method}
    return {**head, "constant": constant, "factor": factor, **numbers}


# In SGD.


@dataclass(frozen=True, eq=False)
class Bench:
    """SGD on one instance, with several seeds."""

    settings: Settings
    instance: Instance

    def run(self, policies: Sequence[stragglers.Policy], n_updates: int) -> dict[str, np.ndarray]:
        """Records of a policy for each seed, or of one for all."""
        seeds, task = self.settings.seeds, self.instance.task
        several = [*policies] * (seeds if len(policies) == 1 else 1)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
        step = jnp.asarray(task.bound.step_size)
        keys = jax.random.split(jax.random.key(self.settings.seed + 1), seeds)

        def run(policy: stragglers.Policy, key: jax.Array) -> dict[str, jax.Array]:
            return methods.curve(task.problem, self.instance.met, policy, step, key, n_updates)

        return {name: np.asarray(x) for name, x in jax.vmap(run)(stacked, keys).items()}

    def reach(self, policies: Sequence[stragglers.Policy]) -> np.ndarray:
        """From when on each seed's run stays at the target to its end, float64[S]."""
        times, (target,) = np.array([]), self.instance.targets
        for n_updates in self.instance.lengths:
            records = self.run(policies, n_updates)
            gaps = methods.mean_gap(records["loss"], self.instance.task.minimum)
            times = results.time_to_target(records["moment"], gaps, target, stays=True)
            if np.isfinite(np.median(times)):
                break
        return times

    @property
    def bounds(self) -> dict[str, stragglers.ErrorBound]:
        """With the constants of the data, and the same with the floor for quadratics."""
        bound = self.instance.task.bound
        return {"bound": bound, "quadratic": replace(bound, floor=self.instance.close_floor)}


def bench_of(settings: Settings) -> Bench:
    """Makes the linear task of `straggler_training`, its times and its target."""
    n, shard, times = settings.n_workers, settings.shard, truth_of(settings).times
    sizes = n, shard, settings.dim
    task = methods.linear(settings.seed, None, sizes, settings.noise, settings.signal)
    target = np.array([task.floor(max(1, round(0.6 * n)) * shard)])
    plans, lengths = (settings.loads, settings.least_samples), settings.lengths
    return Bench(settings, Instance(task, times, times, *plans, target, lengths))


def stationary(bench: Bench) -> list[dict[str, Any]]:
    """Mean gap of fixed pairs over the second half of a run, over both floors."""
    settings, rows = bench.settings, []
    for k, load in settings.pairs:
        policy = always(k, load, settings.shard)
        loss = bench.run([policy], settings.lengths[0])["loss"][:, settings.lengths[0] // 2 :]
        error = float(np.mean(loss, dtype=np.float64)) - bench.instance.task.minimum
        floors = {
            name: stragglers.error_floor(bound, k, load) for name, bound in bench.bounds.items()
        }
        over = {f"over_{name}": error / float(floor) for name, floor in floors.items()}
        rows.append(_row(PAIRS, "fixed pair", RIGHT, k=k, load=load, **over))
    return rows


def trained(bench: Bench) -> list[dict[str, Any]]:
    """Times of plans from right and wrong constants with all switches, and of pilots.

    All over that of the right plan that switches by updates, medians over seeds.
    """
    settings, (bound, close) = bench.settings, bench.bounds.values()
    cases = [(CONVEXITY, factor) for factor in settings.wrong_convexity]
    cases += [("noise variance", factor) for factor in settings.wrong_variance]
    plans = {(RIGHT, math.nan): bound, (f"{RIGHT}, close floor", math.nan): close}
    plans |= {case: scaled(bound, *case) for case in cases}
    switches: dict[str, Any] = {UPDATES: stragglers.planned, CLOCK: stragglers.timed}
    for patience in settings.run_patiences:
        limits = {"patience": patience, "minimum": bench.instance.task.minimum}
        switches[named(patience)] = partial(stragglers.error_triggered, **limits)
    times = {
        (switch, *case): bench.reach(
            [lasting(bench.instance.stages(bound), settings.shard, policy)]
        )
        for switch, policy in switches.items()
        for case, bound in plans.items()
    }
    base = next(iter(times.values()))
    times |= {(UPDATES, name, math.nan): taken for name, taken in piloted(bench).items()}
    return [_row(SGD, *name, ratio=float(np.median(taken / base))) for name, taken in times.items()]


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
    settings, task, bound = bench.settings, bench.instance.task, bench.bounds["bound"]
    first = bench.instance.stages(bound)
    k, load = int(first.k[0]), float(first.load[0])
    policy = always(k, int(load), settings.shard)
    loss = np.asarray(bench.run([policy], settings.lengths[0])["loss"], np.float64)
    rows, found = k * load, {}
    spread = np.random.default_rng(settings.seed).chisquare(rows, loss.shape) / rows
    for length in settings.pilots:
        for words, losses in (("all rows", loss), (f"{rows:g} rows", loss * spread)):
            policies = []
            for row in losses:
                decay, error = fitted_decay(row[:length] - task.minimum)
                convexity = -math.expm1(-decay) / bound.step_size
                again = replace(bound, strong_convexity=convexity, initial_error=error)
                plan = after((k, load, length), bench.instance.stages(again))
                policies.append(lasting(plan, settings.shard))
            found[f"pilot of {length}, loss of {words}"] = bench.reach(policies)
    return found


def after(pilot: tuple[int, float, int], plan: stragglers.Plan) -> stragglers.Plan:
    """Puts a stage `(k, load, updates)` before a plan's; policies switch by updates."""
    first: dict[str, Any] = dict(zip(("k", "load", "updates"), pilot, strict=True))
    columns = {name: getattr(plan, name) for name in (*methods.COLUMNS, "updates")}
    longer = {name: np.append(first.get(name, x[0]), x) for name, x in columns.items()}
    return replace(plan, **longer)


def study_of(settings: Settings) -> Result:
    """Walks on the bound, and trains."""
    bench = bench_of(settings)
    rows = [*on_bound(settings), *trained(bench), *stationary(bench)]
    return Result(pd.DataFrame(rows), "ratio", {"seeds": settings.seeds}, settings.seed)


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
    return part.table(("plan", *wide.columns), [*words.itertuples()], caption)


def floors_table(result: Result) -> results.Table:
    """Measured stationary errors over two floors."""
    names = ["k", "load", "over_bound", "over_quadratic"]
    rows = result.select(scene=PAIRS)[names].itertuples(index=False)
    return part.table(
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
