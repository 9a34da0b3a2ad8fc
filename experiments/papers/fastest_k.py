"""Figures of fastest-k SGD with load: error, k and load, computation and communication over time.

A server waits for the k fastest of n workers, each of which computes `load` samples. Its time has
two independent parts, communication and computation, and the load changes the second. First on the
bound, where nothing is drawn, then for real losses on simulated workers; both with a response that
is slow for a whole update ("scale") and with one that is noisy for every sample ("additive").

Source: Egger, Kas Hanna, Bitar 2023 (arXiv 2304.08589), and what it builds on: Kas Hanna, Bitar,
Parag, Dasari, El Rouayheb 2020 (arXiv 2002.11005).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import clocks, problems, results, stragglers, study
from asyncjax.results import plots
from asyncjax.results.plots.style import (
    WIDTH,
    add_grid,
    add_legend_below,
    assign_styles,
    drawing,
    new_figure,
    set_log,
)
from experiments.papers.figure import RECALLED, Figure, Found, Numbers, Options, Paper
from experiments.stragglers import bounds, methods
from experiments.stragglers.methods import COSTS, MUCH_LESS, SLIGHTLY_MORE

BOTH, ALONE = "adaptive (k, load)", "adaptive k"
LAWS = {"scale": "exponential, scale", "additive": "exponential, additive"}
N_WORKERS, FIXED = 50, (1, 10, 20, 30, 40)
LOADS = bounds.Settings().loads  # the last is a whole shard
SHARES = np.linspace(0, 1, 80) ** 2  # of the horizon, where a curve has its points
LENGTHS = (1024, 4096, 16384)  # updates of a run
ERROR = "error F(w) - F*"
SPENT = {"computation": "samples_assigned", "communication": "uplinks"}
WORDS = {"computation": "thousand samples assigned", "communication": "thousand answers sent"}


# On the bound.


def plans_of(
    times: stragglers.Response,
    bound: stragglers.ErrorBound,
    loads: Sequence[int],
    fixed: Iterable[int] = FIXED,
    least: int = 1,
) -> dict[str, stragglers.Plan]:
    """The two adaptive plans and fixed k, of at least so many samples an update."""
    menus: dict[str, dict[str, Any]] = {BOTH: {"load": loads}, ALONE: {"load": loads[-1]}}
    menus |= {f"k = {k}": {"k": k, "load": loads[-1]} for k in fixed}

    def admit(k: int, load: float) -> bool:
        return k * load >= least

    return {
        name: bounds.plan_anyway(times, bound, target=0.0, admit=admit, **menu)
        for name, menu in menus.items()
    }


def path_of(plan: stragglers.Plan, decay: float, moments: np.ndarray) -> dict[str, np.ndarray]:
    """Where a plan is on the bound at moments float64[T]: columns float64[T]."""
    spent = np.clip(moments[:, None] - plan.start_time, 0, plan.end_time - plan.start_time)
    updates = spent / plan.completion
    at = np.searchsorted(plan.start_time, moments, side="right") - 1
    above = (plan.start_error - plan.floor)[at]
    now = updates[np.arange(len(moments)), at]
    return {
        "error": plan.floor[at] + above * np.exp(-decay * now),
        "k": plan.k[at],
        "load": plan.load[at],
        "updates": updates.sum(1),
        "computation": updates @ (plan.n_workers * plan.load),
        "communication": updates @ plan.k,
    }


def spent_until(plan: stragglers.Plan, decay: float, target: float) -> dict[str, list[float]]:
    """What a plan costs until its bound is at a target, a list of one each; inf where it is not."""
    begun = plan.start_error > target
    above = np.maximum(plan.end_error, target) - plan.floor
    with np.errstate(divide="ignore"):
        updates = np.log((plan.start_error - plan.floor) / np.maximum(above, 0.0))[begun] / decay
    k, load, n = plan.k[begun], plan.load[begun], float(plan.n_workers)
    weights = {
        "time": plan.completion[begun],
        "samples_assigned": n * load,
        "samples_used": k * load,
        "uplinks": k,
        "broadcasts": np.full_like(load, n),
    }
    return {cost: [float(weight @ updates)] for cost, weight in weights.items()}


def stages_of(plan: stragglers.Plan, target: float) -> dict[str, np.ndarray]:
    """The stages until a target: when they begin, k and load."""
    used = plan.start_error > target
    return {"start": plan.start_time[used], "k": plan.k[used], "load": plan.load[used]}


def on_bound(
    times: stragglers.Response,
    bound: stragglers.ErrorBound,
    loads: Sequence[int],
    fixed: Iterable[int],
    ends: tuple[float, float],
) -> dict[str, Any]:
    """Curves of plans until a horizon, and their costs to a target."""
    horizon, target = ends
    moments, plans = horizon * SHARES, plans_of(times, bound, loads, fixed)
    return {
        "moments": moments,
        "target": target,
        "curves": {name: path_of(plan, bound.decay, moments) for name, plan in plans.items()},
        "costs": {name: spent_until(plan, bound.decay, target) for name, plan in plans.items()},
        "stages": {name: stages_of(plans[name], target) for name in (BOTH, ALONE)},
    }


def bounded(_: Options) -> Numbers:
    """Plans for fifty workers under both laws."""
    laws, target = bounds.laws(N_WORKERS, LOADS[-1]), bounds.target_of(1200)
    return {
        law: on_bound(laws[name], bounds.BOUND, LOADS, FIXED, (2000.0, target))
        for law, name in LAWS.items()
    }


FIVE = stragglers.ErrorBound(0.001, 2.0, 1.0, 10.0, 100.0)  # of the forerunner's example
MEAN, SHARD = 0.2, 10  # of its response times; rows of a worker


def forerunner(_: Options) -> Numbers:
    """Five workers, whose whole response time is computing."""
    times = stragglers.response(compute=clocks.exponential(MEAN / SHARD), n_workers=5)
    loads, fixed = range(1, SHARD + 1), range(1, 6)
    return {"no communication": on_bound(times, FIVE, loads, fixed, (2500.0, 3e-4))}


def switch_times(bound: stragglers.ErrorBound, completion: np.ndarray, shard: int) -> np.ndarray:
    """When to wait for k + 1 workers, from the forerunner's formula, which is recalled.

    With mu_k the completion time, s the rows of a worker and e the bound's error so far

        t_k = t_{k-1} + mu_k / alpha (ln(mu_{k+1} - mu_k) - ln(eta L sigma^2 mu_k)
                                      + ln(2 c k (k + 1) s e - eta L (k + 1) sigma^2))
    """
    noise = bound.step_size * bound.smoothness * bound.noise_variance
    error, time, moments = bound.initial_error, 0.0, []
    for k, (now, later) in enumerate(pairwise(completion), start=1):
        above = 2 * bound.strong_convexity * k * (k + 1) * shard * error - (k + 1) * noise
        lasts = np.log(later - now) - np.log(noise * now) + np.log(above)
        floor = noise / (2 * bound.strong_convexity * k * shard)
        error = floor + (error - floor) * np.exp(-lasts)
        time += now / bound.decay * lasts
        moments.append(time)
    return np.array(moments)


# Real losses.


@dataclass(frozen=True, eq=False)
class Training:
    """What is trained, on which workers, and how it is watched."""

    problem: Any
    minimum: float
    step_size: float
    times: stragglers.Response
    shard: int
    horizon: float
    target: float
    keys: jax.Array


@partial(jax.jit, static_argnames="n_updates")
def _runs(problem: Any, times: Any, policy: Any, step: float, keys: Any, n_updates: int) -> Any:
    def one(key: jax.Array) -> dict[str, jax.Array]:
        return methods.curve(problem, times, policy, step, key, n_updates)

    return jax.vmap(one)(keys)


def runs_of(work: Training, policy: stragglers.Policy, guess: float) -> dict[str, np.ndarray]:
    """Records float[S, updates] of a policy, until all seeds are past the horizon.

    Lengths are few, since each is compiled.
    """
    updates = LENGTHS[int(np.searchsorted(LENGTHS[:-1], guess))]
    while True:
        raw = _runs(work.problem, work.times, policy, work.step_size, work.keys, updates)
        if float(jnp.min(raw["moment"][:, -1])) >= work.horizon:
            return {name: np.asarray(values, np.float64) for name, values in raw.items()}
        updates *= 4


def watched(work: Training, policies: Mapping[str, tuple[Any, float]]) -> dict[str, Any]:
    """Curves of policies, each with a guess of its updates, and their costs to the target."""
    moments, curves, costs = work.horizon * SHARES, {}, {}
    target, start = np.array([work.target]), float(work.problem.objective(work.problem.params))
    task = methods.Task(work.problem, work.minimum, bounds.BOUND)
    met = methods.Instance(task, work.times, work.times, (work.shard,), 1, target, (1,))
    scene = study.Scene(horizon=work.horizon, data=met)
    for name, (policy, updates) in policies.items():
        runs = runs_of(work, policy, updates)
        first = {"loss": start, "moment": 0.0}
        runs = {
            field: np.pad(values, ((0, 0), (1, 0)), constant_values=first.get(field, 0.0))
            for field, values in runs.items()
        }
        runs["k"] = np.diff(runs["uplinks"], append=np.nan)
        runs["load"] = np.round(np.diff(runs["samples_assigned"], append=np.nan) / met.n_workers)
        runs["error"] = methods.mean_gap(runs["loss"], work.minimum)
        at = [np.searchsorted(one, moments, side="right") - 1 for one in runs["moment"]]
        fields = {"error": "error", "k": "k", "load": "load", **SPENT}
        curves[name] = {
            field: _band(
                np.take_along_axis(runs[column], np.array(at), axis=1), whole=field == "error"
            )
            for field, column in fields.items()
        }
        seeds = [{x: values[seed] for x, values in runs.items()} for seed in range(len(at))]
        read = [methods.reading(each, scene) for each in seeds]
        costs[name] = {
            cost: [each[cost] if np.isfinite(each["time"]) else np.inf for each in read]
            for cost in bounds.COSTS
        }
    return {"moments": moments, "target": work.target, "curves": curves, "costs": costs}


def _band(values: np.ndarray, *, whole: bool) -> np.ndarray:
    """Quartiles over seeds, float64[3, T]: low, median, high; or the median float64[T] alone."""
    seen = results.median_and_spread(values.T)
    return np.array([seen.low, seen.median, seen.high]) if whole else seen.median


def trained(task: methods.Task, loads: Sequence[int], horizons: Any, options: Options) -> Numbers:
    """The plans of a task and fixed k, by law."""
    shard, bound = loads[-1], task.bound
    target = float(stragglers.error_floor(bound, 1, 0.6 * N_WORKERS * shard))
    seeds = 3 if options.quick else 40 if options.full else 10
    keys, found = jax.random.split(jax.random.key(options.seed), seeds), {}
    for law, name in LAWS.items():
        times, horizon = bounds.laws(N_WORKERS, shard)[name], horizons[law]
        plans = plans_of(times, bound, loads, least=10)
        fields = task.problem, task.minimum, bound.step_size, times, shard, horizon, target, keys
        end = np.array([1.1 * horizon])
        policies = {
            name: (methods.lasting(one, shard), float(path_of(one, bound.decay, end)["updates"][0]))
            for name, one in plans.items()
        }
        stages = {name: stages_of(plans[name], target) for name in (BOTH, ALONE)}
        found[law] = watched(Training(*fields), policies) | {"stages": stages}
    return found


@cache
def sgd(options: Options) -> Numbers:
    """Linear regression on Gaussian rows, the plans those of its constants."""
    task = methods.linear(options.seed, None, (N_WORKERS, LOADS[-1], 20))
    return trained(task, LOADS, {"scale": 400.0, "additive": 800.0}, options)


# What the forerunner trains.


@cache
def synthetic(options: Options) -> Numbers:
    """Linear regression on whole numbers; k and load go up when gradients disagree."""
    rng, (rows, dim) = np.random.default_rng(options.seed), (2000, 100)
    features = rng.integers(1, 11, (rows, dim)).astype(float)
    weights, noise = rng.integers(1, 101, dim), rng.standard_normal(rows)
    residual = noise - features @ np.linalg.lstsq(features, noise, rcond=None)[0]
    # Moved by the weights: the same steps, and single precision holds the loss at the minimum.
    problem = problems.least_squares(features, noise, n_workers=N_WORKERS)
    problem = replace(problem, params=jnp.asarray(-weights, jnp.float32))
    times = stragglers.response(compute=clocks.exponential(1 / 40), n_workers=N_WORKERS)
    horizon = 400.0 if options.quick else 3200.0
    keys = jax.random.split(jax.random.key(options.seed), 2 if options.quick else 4)
    minimum = float(np.mean(residual**2) / 2)
    work = Training(problem, minimum, 5e-4, times, 40, horizon, 1e-3, keys)
    ladder, full = [10, 20, 30, 40], [40] * 4
    policies = {BOTH: tested(ladder, ladder), ALONE: tested(ladder, full)}
    policies |= {f"k = {k}": methods.always(k, 40, 40) for k in ladder}
    return {"no communication": watched(work, {x: (y, 1024) for x, y in policies.items()})}


def tested(k: Sequence[int], load: Sequence[int]) -> stragglers.Policy:
    """The forerunner's sign test over stages of k and load."""
    policy = stragglers.sign_test(k, load, threshold=10, burn_in=200)
    return replace(policy, max_load=40, varies_load=True)


# Rows of the reader's.


@cache
def real_rows(options: Options) -> Numbers:
    """Logistic regression on a file's rows or on digits, odd against even; the close floor."""
    features, labels = table(options.data)
    rows = len(labels) // N_WORKERS * N_WORKERS
    order = np.random.default_rng(options.seed).permutation(len(labels))[:rows]
    features, labels = features[order], labels[order]
    features = features - features.mean(0)
    features *= 4 / np.sqrt(np.mean(np.sum(features**2, axis=1)))
    shard = rows // N_WORKERS
    loads = sorted({max(1, round(shard * load / LOADS[-1])) for load in LOADS})
    task = methods.logistic_task(features, labels, N_WORKERS, 1.0, None)
    close = replace(task.bound, floor=stragglers.quadratic_floor(N_WORKERS, shard))
    task = replace(task, bound=close)
    return trained(task, loads, {"scale": 400.0, "additive": 400.0}, options)


def table(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Features float64[rows, d] and labels -1 or 1: a CSV file's, its last column's, or digits."""
    if path is None:
        known = problems.digits()
        features = np.concatenate([known.train_features, known.test_features])
        labels = np.concatenate([known.train_labels, known.test_labels]) % 2
    else:
        rows = np.loadtxt(path, delimiter=",", skiprows=1)
        features, labels = rows[:, :-1], rows[:, -1]
    return features.astype(np.float64), np.where(labels == labels.max(), 1.0, -1.0)


# What is drawn and said.


def only(measure: Callable[[Options], Numbers], *fields: str) -> Callable[[Options], Numbers]:
    """A measure with those columns of curves alone, so that files are small."""

    def measured(options: Options) -> Numbers:
        return {
            law: {
                **block,
                "curves": {
                    name: {field: curve[field] for field in fields}
                    for name, curve in block["curves"].items()
                },
            }
            for law, block in measure(options).items()
        }

    return measured


def by_law(numbers: Numbers) -> dict[str, Any]:
    """Blocks in the order of the laws; files have that of texts."""
    return {law: numbers[law] for law in sorted(numbers, reverse=True)}


def line_of(name: str, x: Any, values: Any) -> results.Series:
    """A curve: of quartiles [3, T] or of single values [T]."""
    ends = np.atleast_2d(np.array(values, float))
    return results.Series(name, np.array(x, float), ends[len(ends) // 2], ends[0], ends[-1])


def middle(values: Any) -> np.ndarray:
    """The median of a curve."""
    ends = np.atleast_2d(np.array(values, float))
    return ends[len(ends) // 2]


def draw_error(numbers: Numbers) -> Any:
    """Error against time, a panel a law."""
    parts, target = [], 0.0
    for law, block in by_law(numbers).items():
        lines = [
            line_of(name, block["moments"], block["curves"][name]["error"])
            for name in sorted(block["curves"])
        ]
        label = "wall-clock time" if len(numbers) == 1 else f"wall-clock time\n({law} law)"
        parts.append(plots.Panel(label, lines))
        target = block["target"]
    return plots.panels(parts, y_label=ERROR, log_y=True, target=target)


def _grid(rows: int, columns: int, names: Sequence[str], draw: Callable[..., None]) -> Any:
    """Axes of which `draw(axes, row, column, styles)` makes each, with one legend below."""
    with drawing():
        figure = new_figure(max(WIDTH, 3.8 * columns), 2.5 * rows + 0.4)
        grid, styles = figure.subplots(rows, columns, squeeze=False), assign_styles(names)
        for (row, column), axes in np.ndenumerate(grid):
            draw(axes, row, column, styles)
            add_grid(axes)
        add_legend_below(figure, *grid[0, 0].get_legend_handles_labels())
    return figure


def draw_switches(numbers: Numbers) -> Any:
    """Workers awaited above samples asked, against time, a column a law."""
    laws, names = by_law(numbers), (BOTH, ALONE)

    def draw(axes: Any, row: int, column: int, styles: Any) -> None:
        law, field = [*laws][column], ("k", "load")[row]
        block = laws[law]
        for name in names:
            look, values = styles[name], middle(block["curves"][name][field])
            lines = {"color": look.colour, "linestyle": look.dash, "label": name}
            axes.plot(block["moments"], values, drawstyle="steps-post", **lines)
        axes.set_ylabel(("workers awaited, k", "samples a worker, load")[row] if not column else "")
        axes.set_ylim(0)
        if row:
            axes.set_xlabel("wall-clock time")
        else:
            axes.set_title(f"{law} law")

    return _grid(2, len(laws), names, draw)


def draw_costs(numbers: Numbers) -> Any:
    """Computation and communication against time and against error, two rows a law."""
    laws = by_law(numbers)
    names = sorted(next(iter(laws.values()))["curves"])
    rows = [(law, cost) for law in laws for cost in SPENT]

    def draw(axes: Any, row: int, column: int, styles: Any) -> None:
        law, cost = rows[row]
        block = laws[law]
        for name in names:
            look, curve = styles[name], block["curves"][name]
            x = middle(curve["error"]) if column else block["moments"]
            y, lines = middle(curve[cost]), {"color": look.colour, "linestyle": look.dash}
            axes.plot(x, np.where(y > 0, y / 1000, np.nan), label=name, **lines)
        set_log(axes.yaxis, True)
        if column:
            axes.axvline(block["target"], color="grey", linewidth=0.9, linestyle=":")
            set_log(axes.xaxis, True)
            axes.invert_xaxis()
        else:
            axes.set_ylabel(WORDS[cost])
        axes.set_xlabel((ERROR if column else "wall-clock time") if row % 2 else "")
        axes.set_title(f"{cost}, {law} law")

    return _grid(len(rows), 2, names, draw)


def ratio(block: Mapping[str, Any], cost: str, other: str = ALONE) -> float:
    """Cost of k and load over another's: geometric mean over seeds; inf where one is not there."""
    ours, theirs = (np.array(block["costs"][name][cost], float) for name in (BOTH, other))
    if not np.isfinite([ours, theirs]).all():
        return np.inf
    return float(np.exp(np.mean(np.log(ours) - np.log(theirs))))


def time_ratio(block: Mapping[str, Any], other: str) -> tuple[str, bool]:
    """The ratio of times in words, and whether k and load is faster."""
    ours, theirs = (_median(block["costs"][name]["time"]) for name in (BOTH, other))
    if np.isfinite(ours) and not np.isfinite(theirs):
        return f"below {ours / block['moments'][-1]:.2f}", True
    value = ratio(block, "time", other)
    value = value if np.isfinite(value) else ours / theirs
    return f"{value:.2f}", value < 1


def fastest(block: Mapping[str, Any]) -> str:
    """The fixed k that is first at the target."""
    fixed = [name for name in sorted(block["costs"]) if name not in (BOTH, ALONE)]
    return min(fixed, key=lambda name: _median(block["costs"][name]["time"]))


def _median(values: Any) -> float:
    return float(results.median_and_spread(np.array(values, float)).median)


def _time(block: Mapping[str, Any], name: str) -> str:
    time = _median(block["costs"][name]["time"])
    return f"{time:.4g}" if np.isfinite(time) else "never"


def found_error(numbers: Numbers) -> Found:
    """Times to the target, and their ratios."""
    said, ahead = [], []
    for law, block in by_law(numbers).items():
        fixed = fastest(block)
        times = ", ".join(f"{name} {_time(block, name)}" for name in (BOTH, ALONE, fixed))
        ratios = [time_ratio(block, name) for name in (ALONE, fixed)]
        said.append(f"{law}: {times}; ratios {' and '.join(text for text, _ in ratios)}")
        ahead.append([is_faster for _, is_faster in ratios])
    alone, fixed = np.sum(ahead, axis=0)
    word = "in kind" if np.all(ahead) else "differs"
    near = f"{word}: (k, load) is faster than k alone under {alone} of {len(ahead)} laws,"
    return Found(
        "time to the target, also of the fastest fixed k: " + "; ".join(said),
        f"{near} than every fixed k shown under {fixed}",
    )


def found_switches(numbers: Numbers) -> Found:
    """When k and load go up, and whether they fall."""
    said, falls = [], []
    for law, block in by_law(numbers).items():
        both, alone = (
            {x: np.array(y) for x, y in block["stages"][name].items()} for name in (BOTH, ALONE)
        )
        k, load, start = both["k"], both["load"], both["start"]
        full = int(np.argmax(load == load.max()))
        falls.append(int(np.sum(np.diff(k) < 0) + np.sum(np.diff(load) < 0)))
        said.append(
            f"{law}: (k, load) from ({k[0]:g}, {load[0]:g}) to ({k[-1]:g}, {load[-1]:g}) in {len(k)}"
            f" stages, load first at {load.max():g} at time {start[full]:.4g} with k = {k[full]:g};"
            f" k alone to {alone['k'][-1]:g} in {len(alone['k'])}"
        )
    near = f"in kind: both are adapted; k or load falls at {listed(falls)} switches"
    return Found("until the target, " + "; ".join(said), near)


def listed(values: Iterable[float], form: str = "g") -> str:
    """Numbers in a row."""
    return ", ".join(f"{value:{form}}" for value in values)


def found_costs(numbers: Numbers) -> Found:
    """Costs until the target, over those of k alone."""
    laws = by_law(numbers)
    said = [
        f"{law}: " + ", ".join(f"{COSTS[x]} {ratio(block, x):.2f}" for x in bounds.COSTS)
        for law, block in laws.items()
    ]
    less, more = (
        [law for law, block in laws.items() if ratio(block, cost) < most]
        for cost, most in (("samples_assigned", MUCH_LESS), ("uplinks", SLIGHTLY_MORE))
    )
    word = "in kind" if len(less) == len(more) == len(laws) else "in part"
    return Found(
        "(k, load) over k alone, to the target: " + "; ".join(said),
        f"{word}: computation below {MUCH_LESS:.2f} under {len(less)} of {len(laws)} laws,"
        f" communication (uplinks) below {SLIGHTLY_MORE:g} under {len(more)}",
    )
