"""Figures of fastest-k SGD with load: error, k and load, computation and communication over time.

A server waits for the k fastest of n workers, each of which computes `load` samples. Its time has
two independent parts, communication and computation, and the load changes the second. First on the
bound, where nothing is drawn, then for real losses on simulated workers; both with a response that
is slow for a whole update ("scale") and with one that is noisy for every sample ("additive").

Source: Egger, Kas Hanna, Bitar 2023 (arXiv 2304.08589), and what it builds on: Kas Hanna, Bitar,
Parag, Dasari, El Rouayheb 2020 (arXiv 2002.11005).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import clocks, problems, results, stragglers, study
from asyncjax.results import plots
from asyncjax.results.plots import style
from experiments.papers.figure import RECALLED, Figure, Found, Numbers, Options, Paper
from experiments.stragglers import bounds, methods
from experiments.stragglers.methods import COSTS, MUCH_LESS, SLIGHTLY_MORE

BOTH, ALONE = "adaptive (k, load)", "adaptive k"
LAWS = {"scale": "exponential, scale", "additive": "exponential, additive"}
N_WORKERS, FIXED = 50, (1, 10, 20, 30, 40)
LOADS = tuple(map(int, bounds.Settings().loads))  # the last is a whole shard
SHARES = np.linspace(0, 1, 50) ** 2  # of the horizon, where a curve has its points
LENGTHS = (1024, 4096, 14336)  # updates of a run
ERROR = "error F(w) - F*"
SPENT = {
    "samples_assigned": ("computation", "samples [thousand]"),
    "uplinks": ("communication", "answers [thousand]"),
}


# On the bound.


def plans_of(
    times: Any, bound: Any, loads: Sequence[int], fixed: Iterable[int] = FIXED, least: int = 1
) -> dict[str, stragglers.Plan]:
    """The two adaptive plans and fixed k, of at least so many samples an update."""
    menus: dict[str, dict[str, Any]] = {BOTH: {"load": loads}, ALONE: {"load": loads[-1]}}
    menus |= {f"k = {k}": {"k": k, "load": loads[-1]} for k in fixed}
    options = {"target": 0.0, "admit": lambda k, load: k * load >= least}
    return {x: bounds.plan_anyway(times, bound, **options, **menu) for x, menu in menus.items()}


def path_of(plan: stragglers.Plan, decay: float, moments: np.ndarray) -> dict[str, np.ndarray]:
    """Where a plan is on the bound at moments float64[T]: columns float64[T]."""
    spent = np.clip(moments[:, None] - plan.start_time, 0, plan.end_time - plan.start_time)
    updates, n = spent / plan.completion, plan.n_workers
    at = np.searchsorted(plan.start_time, moments, side="right") - 1
    above = (plan.start_error - plan.floor)[at]
    shrunk = np.exp(-decay * updates[np.arange(len(moments)), at])
    return {
        "time": moments,
        "error": plan.floor[at] + above * shrunk,
        "k": plan.k[at],
        "load": plan.load[at],
        "samples_assigned": updates @ (n * plan.load),
        "samples_used": updates @ (plan.k * plan.load),
        "uplinks": updates @ plan.k,
        "broadcasts": n * updates.sum(1),
    }


def arrival(plan: stragglers.Plan, decay: float, target: float) -> float:
    """When a plan's bound is at a target; inf where it never is."""
    above = np.maximum(plan.end_error, target) - plan.floor
    with np.errstate(divide="ignore"):
        updates = np.log((plan.start_error - plan.floor) / np.maximum(above, 0.0)) / decay
    return float((plan.completion * updates)[plan.start_error > target].sum())


def stages_of(plans: Mapping[str, stragglers.Plan], target: float) -> dict[str, Any]:
    """The stages of adaptive plans until a target: when they begin, k and load."""
    columns, found = {"start": "start_time", "k": "k", "load": "load"}, {}
    for name in (BOTH, ALONE):
        used = plans[name].start_error > target
        found[name] = {x: getattr(plans[name], y)[used] for x, y in columns.items()}
    return found


def on_bound(plans: Any, decay: float, horizon: float, target: float) -> dict[str, Any]:
    """Curves of plans until a horizon, and their costs to a target."""
    ends = {name: np.array([arrival(plan, decay, target)]) for name, plan in plans.items()}
    return {
        "moments": horizon * SHARES,
        "target": target,
        "curves": {name: path_of(plan, decay, horizon * SHARES) for name, plan in plans.items()},
        "costs": {name: path_of(plan, decay, ends[name]) for name, plan in plans.items()},
        "stages": stages_of(plans, target),
    }


@cache
def bounded(_: Options) -> Numbers:
    """Plans for fifty workers under both laws."""
    laws, found = bounds.laws(N_WORKERS, LOADS[-1]), {}
    for law, name in LAWS.items():
        plans = plans_of(laws[name], bounds.BOUND, LOADS)
        found[law] = on_bound(plans, bounds.BOUND.decay, 2000.0, bounds.target_of(1200))
    return found


FIVE = stragglers.ErrorBound(0.001, 2.0, 1.0, 10.0, 100.0)  # of the forerunner's example
MEAN, SHARD = 0.2, 10  # of its response times; rows of a worker


def forerunner(_: Options) -> Numbers:
    """Five workers, whose whole response time is computing."""
    times = stragglers.response(compute=clocks.exponential(MEAN / SHARD), n_workers=5)
    plans = plans_of(times, FIVE, range(1, SHARD + 1), range(1, 6))
    block = on_bound(plans, FIVE.decay, 2500.0, 3e-4)
    completion = stragglers.completion_table(times, np.array([float(SHARD)]))[0]
    starts = block["stages"][ALONE]["start"][1:]
    off = float(np.max(np.abs(starts / switch_times(FIVE, completion, SHARD) - 1)))
    errors = np.array([x["error"] for name, x in block["curves"].items() if name != BOTH])
    above = float(np.max(errors[0] / errors[1:]))  # of adaptive k over each fixed k
    return {"no communication": block | {"off": off, "above": above}}


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


def runs_of(scene: study.Scene, step: float, policy: Any, guess: float, keys: Any) -> Any:
    """Records float[S, updates] of a policy, until all seeds are past the horizon.

    Lengths are few, since each is compiled.
    """
    problem, times = scene.data.task.problem, scene.data.met
    updates = LENGTHS[int(np.searchsorted(LENGTHS[:-1], guess))]
    while True:
        curve = partial(methods.curve, problem, times, policy, step, n_updates=updates)
        raw = {name: np.asarray(x, np.float64) for name, x in jax.vmap(curve)(keys).items()}
        if raw["moment"][:, -1].min() >= (scene.horizon or 0.0):
            return raw
        updates *= 4


def watched(scene: study.Scene, step: float, policies: Any, keys: Any) -> dict[str, Any]:
    """Curves of policies, each with a guess of its updates, and their costs to the target."""
    met, curves, costs = scene.data, {}, {}
    moments, problem = (scene.horizon or 0.0) * SHARES, met.task.problem
    first = {"loss": float(problem.objective(problem.params))}
    for name, (policy, guess) in policies.items():
        runs = {
            field: np.pad(values, ((0, 0), (1, 0)), constant_values=first.get(field, 0.0))
            for field, values in runs_of(scene, step, policy, guess, keys).items()
        }
        runs["k"] = np.diff(runs["uplinks"], append=np.nan)
        runs["load"] = np.round(np.diff(runs["samples_assigned"], append=np.nan) / met.n_workers)
        runs["error"] = methods.mean_gap(runs["loss"], met.task.minimum)
        at = np.array([np.searchsorted(x, moments, side="right") - 1 for x in runs["moment"]])
        seen = {
            field: results.median_and_spread(np.take_along_axis(runs[field], at, axis=1).T)
            for field in ("error", "k", "load", *SPENT)
        }
        curves[name] = {field: spread.median for field, spread in seen.items()}
        curves[name]["error"] = [getattr(seen["error"], x) for x in ("low", "median", "high")]
        seeds = [{x: values[seed] for x, values in runs.items()} for seed in range(len(at))]
        read = [methods.reading(each, scene) for each in seeds]
        costs[name] = {
            cost: [each[cost] if np.isfinite(each["time"]) else np.inf for each in read]
            for cost in bounds.COSTS
        }
    return {"moments": moments, "target": float(met.targets[-1]), "curves": curves, "costs": costs}


def trained(
    task: methods.Task, loads: Sequence[int], share: float, horizons: Any, options: Options
) -> Numbers:
    """The plans of a task and fixed k, by law; the target is the floor of a share of all rows."""
    shard, bound, found = loads[-1], task.bound, {}
    target = float(stragglers.error_floor(bound, 1, share * N_WORKERS * shard))
    seeds = 3 if options.quick else 40 if options.full else 10
    keys = jax.random.split(jax.random.key(options.seed), seeds)
    for law, horizon in horizons.items():
        times = bounds.laws(N_WORKERS, shard)[LAWS[law]]
        met = methods.Instance(task, times, times, loads, 10, np.array([target]), ())
        plans, policies = plans_of(times, bound, loads, least=met.least_samples), {}
        for name, plan in plans.items():
            sent = float(path_of(plan, bound.decay, np.array([1.1 * horizon]))["broadcasts"][0])
            policies[name] = methods.lasting(plan, shard), sent / N_WORKERS
        scene = study.Scene(horizon=horizon, data=met)
        block = watched(scene, bound.step_size, policies, keys)
        found[law] = block | {"stages": stages_of(plans, target)}
    return found


@cache
def sgd(options: Options) -> Numbers:
    """Linear regression on Gaussian rows, the plans those of its constants."""
    task = methods.linear(options.seed, None, (N_WORKERS, LOADS[-1], 20))
    return trained(task, LOADS, 0.6, {"scale": 400.0, "additive": 800.0}, options)


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
    horizon = 400.0 if options.quick else 3000.0
    keys = jax.random.split(jax.random.key(options.seed), 10 if options.full else 2)
    minimum = float(np.mean(residual**2) / 2)
    task = methods.Task(problem, minimum, bounds.BOUND)  # of which nothing is read here
    met = methods.Instance(task, times, times, (40,), 1, np.array([5e-4]), ())
    scene = study.Scene(horizon=horizon, data=met)
    ladder, full = [10, 20, 30, 40], [40] * 4
    means = stragglers.completion_table(times, np.array([40.0]))[0]
    policies = {BOTH: (tested(ladder, ladder), 2000.0), ALONE: (tested(ladder, full), 2000.0)}
    for k in ladder:
        policies[f"k = {k}"] = methods.always(k, 40, 40), 1.02 * horizon / means[k - 1]
    return {"no communication": watched(scene, 5e-4, policies, keys)}


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
    features = features[order] - features[order].mean(0)
    features *= 4 / np.sqrt(np.mean(np.sum(features**2, axis=1)))
    shard = rows // N_WORKERS
    loads = sorted({max(1, round(shard * load / LOADS[-1])) for load in LOADS})
    task = methods.logistic_task(features, labels[order], N_WORKERS, 1.0, None)
    close = replace(task.bound, floor=stragglers.quadratic_floor(N_WORKERS, shard))
    horizons = dict.fromkeys(LAWS, 500.0)
    return trained(replace(task, bound=close), loads, 0.3, horizons, options)


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


def only(measure: Any, *fields: str) -> Callable[[Options], Numbers]:
    """A measure with those columns of curves alone, of adaptive ones where k is among them."""

    def chosen(block: Mapping[str, Any], part: str, names: Iterable[str]) -> dict[str, Any]:
        lines = (BOTH, ALONE) if "k" in names else block[part]
        return {part: {line: {x: block[part][line][x] for x in names} for line in lines}}

    def measured(options: Options) -> Numbers:
        return {
            law: block | chosen(block, "curves", fields) | chosen(block, "costs", bounds.COSTS)
            for law, block in measure(options).items()
        }

    return measured


def by_law(numbers: Numbers) -> dict[str, Any]:
    """Blocks in the order of the laws; files have that of texts."""
    return {law: numbers[law] for law in sorted(numbers, reverse=True)}


def ends_of(values: Any) -> np.ndarray:
    """The low, the median and the high of a curve of quartiles [3, T] or of single values [T]."""
    return np.broadcast_to(np.array(values, float), (3, np.shape(values)[-1]))


def draw_error(numbers: Numbers) -> Any:
    """Error against time, a panel a law."""
    parts, laws = [], by_law(numbers)
    for law, block in laws.items():
        x, lines = np.array(block["moments"]), []
        for name in sorted(block["curves"]):
            low, median, high = ends_of(block["curves"][name]["error"])
            lines.append(results.Series(name, x, median, low, high))
        parts.append(plots.Panel("wall-clock time" + f"\n({law})" * (len(laws) > 1), lines))
    target = next(iter(laws.values()))["target"]
    return plots.panels(parts, y_label=ERROR, log_y=True, target=target)


def _grid(rows: int, columns: int, names: Sequence[str], draw: Callable[..., None]) -> Any:
    """Axes of which `draw(axes, row, column, looks)` makes each, with one legend below."""
    looks = {
        name: {"color": one.colour, "linestyle": one.dash, "label": name}
        for name, one in style.assign_styles(names).items()
    }
    with style.drawing():
        figure = style.new_figure(3.8 * columns, 2.5 * rows + 0.4)
        grid = figure.subplots(rows, columns, squeeze=False)
        for (row, column), axes in np.ndenumerate(grid):
            draw(axes, row, column, looks)
            style.add_grid(axes)
        style.add_legend_below(figure, *grid[0, 0].get_legend_handles_labels())
    return figure


def draw_switches(numbers: Numbers) -> Any:
    """Workers awaited above samples asked, against time, a column a law."""
    laws = by_law(numbers)

    def draw(axes: Any, row: int, column: int, looks: Any) -> None:
        (law, block), field = [*laws.items()][column], ("k", "load")[row]
        for name, look in looks.items():
            values = ends_of(block["curves"][name][field])[1]
            axes.plot(block["moments"], values, drawstyle="steps-post", **look)
        label = ("workers awaited, k", "samples a worker, load")[row]
        axes.set(title="" if row else f"{law} law", ylabel="" if column else label)
        axes.set(xlabel="wall-clock time" if row else "", ylim=(0, None))

    return _grid(2, len(laws), (BOTH, ALONE), draw)


def draw_costs(numbers: Numbers) -> Any:
    """Computation and communication against time and against error, two rows a law."""
    rows = [(law, block, cost) for law, block in by_law(numbers).items() for cost in SPENT]

    def draw(axes: Any, row: int, column: int, looks: Any) -> None:
        law, block, cost = rows[row]
        for name, look in looks.items():
            curve = block["curves"][name]
            x, y = ends_of(curve["error"])[1] if column else block["moments"], np.array(curve[cost])
            axes.plot(x, np.where(y > 0, y / 1000, np.nan), **look)
        axes.set_ylim(axes.get_ylim()[1] / 3000)
        style.set_log(axes.yaxis, True)
        if column:
            axes.axvline(block["target"], color=style.MUTED, linewidth=0.9, linestyle=":")
            style.set_log(axes.xaxis, True)
            axes.invert_xaxis()
        axes.set(title=f"{SPENT[cost][0]}, {law} law", ylabel="" if column else SPENT[cost][1])
        axes.set_xlabel((ERROR if column else "wall-clock time") if row % 2 else "")

    return _grid(len(rows), 2, sorted(rows[0][1]["curves"]), draw)


def ratio(block: Mapping[str, Any], cost: str, ours: str = BOTH, other: str = ALONE) -> float:
    """A cost over another's: geometric mean over seeds; nan where one does not arrive."""
    costs = np.array([block["costs"][name][cost] for name in (ours, other)], float)
    return (
        float(np.exp(np.mean(np.log(costs[0] / costs[1])))) if np.isfinite(costs).all() else np.nan
    )


def time_of(block: Mapping[str, Any], name: str) -> float:
    """The median time to the target."""
    return float(results.median_and_spread(np.array(block["costs"][name]["time"], float)).median)


def fastest(block: Mapping[str, Any]) -> str:
    """The fixed k that is first at the target."""
    return min(sorted({*block["costs"]} - {BOTH, ALONE}), key=partial(time_of, block))


def time_ratio(block: Mapping[str, Any], ours: str, other: str) -> tuple[str, bool]:
    """The ratio of times in words, and whether it is below one."""
    first, second = time_of(block, ours), time_of(block, other)
    value, last = ratio(block, "time", ours, other), block["moments"][-1]
    value = value if np.isfinite(value) else first / (second if np.isfinite(second) else last)
    return f"{'' if np.isfinite(second) else 'below '}{value:.2f}", value < 1


def found_error(numbers: Numbers) -> Found:
    """Times to the target, and their ratios."""
    said, ahead = [], []
    for law, block in by_law(numbers).items():
        fixed = fastest(block)
        times = [(name, time_of(block, name)) for name in (BOTH, ALONE, fixed)]
        words = ", ".join(f"{x} {f'{y:.4g}' if np.isfinite(y) else 'never'}" for x, y in times)
        pairs = (BOTH, ALONE), (BOTH, fixed), (ALONE, fixed)
        ratios = [time_ratio(block, *pair) for pair in pairs]
        said.append(f"{law}: {words}; ratios {', '.join(text for text, _ in ratios[:2])}")
        ahead.append([is_faster for _, is_faster in ratios])
    (alone, fixed, plain), laws = np.sum(ahead, axis=0), f"of {len(ahead)} laws"
    return Found(
        "time to the target, also of the fastest fixed k: " + "; ".join(said),
        f"{'in kind' if alone == fixed == len(ahead) else 'differs'}: (k, load) is faster than k"
        f" alone under {alone} {laws}, than every fixed k under {fixed}, k alone than every fixed k"
        f" under {plain}",
    )


def found_forerunner(numbers: Numbers) -> Found:
    """What is known of the forerunner's example, beside its times."""
    block = numbers["no communication"]
    words = "nowhere above a fixed k" if block["above"] < 1 + 1e-9 else "above a fixed k somewhere"
    starts = ", ".join(f"{x:.4g}" for x in block["stages"][ALONE]["start"][1:])
    return Found(
        f"adaptive k switches at {starts} and is {words}; {found_error(numbers).ours}",
        f"in kind: the forerunner's formula ({RECALLED}) gives these switches within a share of"
        f" {block['off']:.0e}; load as a second knob is of this paper",
    )


def found_synthetic(numbers: Numbers) -> Found:
    """When errors are above the target for the last time, and where they end."""
    block = numbers["no communication"]
    x, last, ends = np.array(block["moments"]), {}, []
    for name, curve in sorted(block["curves"].items()):
        error = np.array(curve["error"])[1]
        last[name] = x[error > block["target"]].max()
        ends.append(f"{name} {np.median(error[x > 0.8 * x[-1]]):.2g}")
    both, alone, *fixed = last.values()
    word = "in kind" if alone < min(fixed) else "differs"
    return Found(
        f"last above {block['target']:g}, of {x[-1]:g} time units: {ALONE} at {alone:.4g}, {BOTH}"
        f" at {both:.4g}, fixed k at {min(fixed):.4g}; median error of the last fifth:"
        f" {', '.join(ends)}",
        f"{word}: k alone stays below {'sooner' if word == 'in kind' else 'no sooner'} than every"
        f" fixed k; (k, load) by the same test {'sooner' if both < alone else 'later'} than it",
    )


def found_switches(numbers: Numbers) -> Found:
    """When k and load go up, and whether they fall."""
    said, falls = [], []
    for law, block in by_law(numbers).items():
        both, alone = block["stages"][BOTH], block["stages"][ALONE]["k"]
        start, k, load = (np.array(both[name]) for name in ("start", "k", "load"))
        full = int(np.argmax(load))
        falls.append(f"{np.sum((np.diff(k) < 0) | (np.diff(load) < 0))} ({law})")
        said.append(
            f"{law}: (k, load) from ({k[0]:g}, {load[0]:g}) to ({k[-1]:g}, {load[-1]:g}) in"
            f" {len(k)} stages, load first at {load[full]:g} at time {start[full]:.4g} with"
            f" k = {k[full]:g}; k alone from {alone[0]:g} to {alone[-1]:g} in {len(alone)}"
        )
    near = f"in kind: both are adapted; k or load falls at {', '.join(falls)} switches"
    return Found("until the target, " + "; ".join(said), near)


def found_costs(numbers: Numbers) -> Found:
    """Costs until the target, over those of k alone."""
    laws, said = by_law(numbers), []
    for law, block in laws.items():
        ratios = ", ".join(f"{COSTS[x]} {ratio(block, x):.2f}" for x in bounds.COSTS)
        costs = (block["costs"][name] for name in (BOTH, ALONE))
        k = [N_WORKERS * np.median(x["uplinks"]) / np.median(x["broadcasts"]) for x in costs]
        said.append(f"{law}: {ratios} (mean k {k[0]:.3g} and {k[1]:.3g})")
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


def _figure(name: str, functions: Any, there: str, here: str, reading: str) -> Figure:
    """A figure whose picture is called what it is there."""
    measure, draw, told = functions
    return Figure(name, there, here, reading, measure, draw, told, f"{name}: {there}")


def _three(name: str, measure: Any, title: str, here: str) -> tuple[Figure, ...]:
    """Error, k and load, and costs of one measure."""
    words = "cumulative computation and communication against time and error"
    less = "significantly less computation, slightly more communication"
    kinds = {
        "error": ("error against wall-clock time", "less time", draw_error, found_error),
        "switches": ("k and load as they switch", "both adapt", draw_switches, found_switches),
        "costs": (words, less, draw_costs, found_costs),
    }
    fields = {"error": ("error",), "switches": ("k", "load"), "costs": ("error", *SPENT)}
    return tuple(
        _figure(
            f"{name}_{kind}",
            (only(measure, *fields[kind]), draw, told),
            f"{what}, {title} ({RECALLED}; laws and constants not seen)",
            here if kind == "error" else f"as `{name}_error`",
            f"{reading} (abstract)",
        )
        for kind, (what, reading, draw, told) in kinds.items()
    )


ON_BOUND = (
    "n = 50, 40 rows each, step 0.01, L = 2, c = 1, noise 400, first error 1,000; communication and"
    " a whole shard take 1 each, exponential; target: the floor of k load = 1,200"
)
OF_SGD = (
    "linear regression, 2,000 Gaussian rows of 20 columns, noise 3, n = 50, step 0.02, laws as"
    " `bound_error`, plans of the data's constants, 10 seeds; target: the bound's floor of 1,200"
)
PAPER = Paper(
    "fastest_k",
    "Fast and straggler-tolerant SGD with reduced computation load",
    "Egger, Kas Hanna, Bitar 2023, [arXiv 2304.08589](https://arxiv.org/abs/2304.08589)",
    (
        _figure(
            "forerunner",
            (only(forerunner, "error"), draw_error, found_forerunner),
            "the forerunner's example (2002.11005): bound against time, n = 5, exponential times of"
            f" mean 0.2, s = 10, step 0.001, L = 2, c = 1, noise 10, first error 100 ({RECALLED})",
            "as there; (k, load) with load 1 to 10, whose time is in proportion",
            f"adaptive k is the lowest of all fixed k at every time ({RECALLED})",
        ),
        *_three("bound", bounded, "on the bound", ON_BOUND),
        *_three("sgd", sgd, "of SGD", OF_SGD),
        _figure(
            "synthetic",
            (only(synthetic, "error"), draw_error, found_synthetic),
            "the forerunner's data (2002.11005): n = 50, 2,000 rows of 100 whole numbers 1 to 10,"
            " weights 1 to 100, noise 1, exponential times of mean 1, step 0.0005, k from 10 to 40"
            f" by a sign test, threshold 10, burn-in 200 ({RECALLED})",
            "as there, two seeds; (k, load) goes up by the same test, (10, 10) to (40, 40), and its"
            " time is in proportion to the load",
            f"adaptive k gets lower in less time than k = 10, 20, 30, 40 ({RECALLED})",
        ),
        _figure(
            "rows",
            (only(real_rows, "error"), draw_error, found_error),
            "none known; error against time on real rows",
            "logistic regression, digits odd against even (`--data`: rows of a CSV file), n = 50,"
            " step 1, close floor, laws as `bound_error`; target: that floor at 0.3 of all rows",
            "(k, load) is there in less time (abstract)",
        ),
    ),
    (
        ("drawing of server and workers; tables", f"no numbers; none is known ({RECALLED})."),
        ("numbers of the figures, the paper's readings and its own rule of switching", "not seen."),
    ),
    "The paper was not seen but for its abstract, and no code of its authors was found: kinds of"
    " figures are *recalled*, settings are our own or the forerunner's, *recalled*. An update takes"
    " the k-th smallest of n sums of communication and computation. Under the scale law a worker is"
    " slow for a whole update, under the additive law every sample has a time of its own."
    " Computation is what all n workers are assigned, communication what the server waits for. No"
    " rule of switching is faster than these plans on the same bound, laws and menu. Figures of"
    " `bound` share one run, and so do those of `sgd`. `--full` has 40 seeds.",
)
