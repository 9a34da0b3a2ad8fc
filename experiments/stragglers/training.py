"""Fastest-k SGD on real losses: faster, less computation, slightly more communication?

Linear and logistic regression, 50 workers with 40 rows each, simulated response times. Plans made
from the constants of the data run against plans of k alone, fixed pairs, and the wider family: sign
and distance tests, AdaSync, deadlines, drop-compute, backup workers. First plans run as they are
prescribed, at the step that they are made for (there the fixed pair alone has k and load tuned);
then every method has all of its knobs tuned, with equal trials, by the time to the last target, on
instances that are not shown. An instance draws the rows and the first model; two disjoint sets of
instances are reported.

Where uplinks of plans come from: a plan that switches by updates sends, in u updates, the uplinks
of its first u updates, whatever the loss does. With

    U(e) = sum over stages of k times the updates until the bound is at e

the measured ratio of two plans that arrive at bound errors e and e' is U(e) / U'(e'), which is
U(e) / U'(e), what is predicted for where the first arrives, times U'(e) / U'(e'). The bound's floor
is loose, so a run is at its target while the bound is still far above it.

Source: Egger, Kas Hanna, Bitar, 2023 (arXiv 2304.08589).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results, stragglers, study
from asyncjax.results.plots.style import drawing, new_figure, set_log
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import interval
from asyncjax.results.tables import format_number
from asyncjax.study import protocol
from asyncjax.study.compare import SETS
from asyncjax.study.protocol import LEVELS, TUNING_OF, Seeds
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import sets
from experiments.stragglers import methods
from experiments.stragglers.bounds import laws
from experiments.stragglers.methods import ALONE, BOTH, COSTS, PAIR, TASKS, Instance

NAME = "straggler_training"
TITLE = "On real losses: faster, less computation, slightly more communication?"
PAPERS = ("Egger, Kas Hanna, Bitar, 2023 (arXiv 2304.08589)",)
TRACKS = {"prescribed": "at the plans' step", "tuned": "every knob tuned"}  # `tuned_for`
BOUNDS = {  # of ratios to k alone, in words
    "time": (1.0, "faster"),
    "samples_assigned": (methods.MUCH_LESS, "much less computation"),
    "uplinks": (methods.SLIGHTLY_MORE, "at most slightly more communication"),
}
KNOBS = (
    *("step", "scaled step", "floor", "convexity", "patience", "first k", "growth", "burn_in"),
    *("k", "load", "threshold", "slope", "deadline", "extra", "confidence"),
)


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/straggler_training")
    commit: bool = False  # also write the rows where committed ones are
    seed: int = 0
    n_workers: int = 50
    shard: int = 40  # rows of a worker
    dim: int = 20
    instances: int = 40  # of each of the two reported sets
    tuning_instances: int = 5  # to tune each of them on
    trials: int = 12  # settings that a method tries in a round of tuning
    rounds: tuple[int, int] = (5, 8)
    rounds_prescribed: tuple[int, int] = (3, 8)  # at the plans' step, of the fixed pair
    lengths: tuple[int, ...] = (250, 1400, 4000)  # updates, the next where one is too short
    horizon: float = 1000.0  # time units that a run at the plans' step is watched
    horizon_tuned: float = 300.0  # the same of a run whose step is tuned
    levels: tuple[float, ...] = LEVELS  # the last is that of tuning, and of all costs but time
    loads: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40)
    least_samples: int = 10  # of an update, in plans
    cases: tuple[str, ...] = (  # problem and law
        "linear, scale",
        "logistic, scale",
        "linear, additive",
        "linear, lognormal",
    )
    family_cases: tuple[str, ...] = ("linear, scale",)  # in which the wider family runs too


# Scenes.


LAWS = {  # names in cases, and on the bound
    "scale": "exponential, scale",
    "additive": "exponential, additive",
    "lognormal": "lognormal (sigma 1), scale",
}


@dataclass(frozen=True)
class Case:
    """A scene, a problem and a law; an instance draws the rows, the first model and the times."""

    name: str
    settings: Settings

    def __call__(self, seeds: Seeds) -> study.Scene:
        """An instance."""
        chosen, (problem, law) = self.settings, self.name.split(", ")
        n, shard = chosen.n_workers, chosen.shard
        times = laws(n, shard)[LAWS[law]]
        task = TASKS[problem](seeds.data, seeds, (n, shard, chosen.dim))
        targets = task.targets(n * shard, chosen.levels)
        plans = chosen.loads, chosen.least_samples
        instance = Instance(task, times, times, *plans, targets, chosen.lengths)
        return study.Scene(horizon=chosen.horizon, data=instance)


def study_of(settings: Settings) -> Result:
    """Runs all methods on all problems and laws.

    Raises:
        ValueError: A case is not known.
    """
    known = [f"{problem}, {law}" for problem in TASKS for law in LAWS]
    if unknown := {*settings.cases, *settings.family_cases} - {*known}:
        raise ValueError(f"cases must be among {'; '.join(known)}, got {min(unknown)!r}")
    sizes, rows = (settings.n_workers, settings.shard), []
    for case in settings.cases:
        scene = Case(case, replace(settings, output=Path(), commit=False, cases=()))
        wider = methods.family(*sizes) if case in settings.family_cases else {}
        shorter = Case(case, replace(scene.settings, horizon=settings.horizon_tuned))
        fewer = replace(settings, rounds=settings.rounds_prescribed)
        plain = compared(fewer, case, scene, methods.prescribed(*sizes))
        plain = plain.drop(columns=["trials", "tuning_gradients"])
        plain = plain.merge(accounts_of(scene, plain), "left")
        tuned = compared(settings, case, shorter, methods.main_methods(*sizes) | wider)
        rows += [plain.assign(tuned_for="prescribed"), tuned.assign(tuned_for="tuned")]
    return as_result(settings, pd.concat(rows))


def compared(settings: Any, name: str, scene: Any, ways: Mapping[str, study.Method]) -> Any:
    """The rows of methods in a scene, with what was tried and spent to tune them."""
    same = ("rounds", "instances", "tuning_instances", "seed")
    result = study.compare(
        {name: scene},
        ways,
        trials=settings.trials * settings.rounds[0],
        measure=methods.MEASURE,
        path=settings.output,
        **{option: getattr(settings, option) for option in same},
    )
    found = []
    for letter in result.sets:
        tried = result.select(set=TUNING_OF[SETS[letter]]).groupby("method")
        ends = [edge for edge in result.facts["at an edge"] if f", set {letter}: " in edge]
        rows = result.select(set=letter).drop(columns=["left", "seconds", "processor_seconds"])
        names = rows["method"]
        trials = names.map(tried.size() // settings.tuning_instances)
        spent = names.map(tried["samples_used"].sum())
        at_edge = names.isin([edge.rpartition(" of ")[2] for edge in ends])
        found.append(rows.assign(trials=trials, tuning_gradients=spent, at_edge=at_edge))
    return pd.concat(found)


def as_result(settings: Any, rows: Any) -> Result:
    """Rows with what tables quote."""
    names = ("instances", "tuning_instances", "levels")
    facts = {name: getattr(settings, name) for name in names} | {"tuned apart": True}
    return Result(rows, "time", facts, settings.seed)


# Where uplinks come from.


def uplinks_until(plan: stragglers.Plan, decay: float, error: float) -> float:
    """Uplinks until the bound is at an error, fractional; inf where it never is.

    Example:
        >>> from asyncjax import clocks
        >>> bound = stragglers.ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0)
        >>> times = clocks.constant([1.0, 3.0])
        >>> plan = stragglers.plan(times, bound, load=[1.0, 2.0], target=0.5)
        >>> bool(abs(uplinks_until(plan, bound.decay, 0.5) - plan.uplinks) < 1e-9)
        True
    """
    begun = plan.start_error > error
    above = np.maximum(plan.end_error, error) - plan.floor
    with np.errstate(divide="ignore"):
        updates = np.log((plan.start_error - plan.floor) / np.maximum(above, 0.0)) / decay
    return float((plan.k * updates)[begun].sum())


def error_after(plan: stragglers.Plan, decay: float, updates: int) -> tuple[float, int]:
    """The bound's error after so many updates of a plan, and its k then."""
    ends = np.cumsum(plan.updates)
    stage = min(int(np.searchsorted(ends, updates)), plan.k.size - 1)
    since = updates - (ends[stage - 1] if stage else 0.0)
    floor, start = float(plan.floor[stage]), float(plan.start_error[stage])
    return floor + (start - floor) * float(np.exp(-decay * since)), int(plan.k[stage])


def accounts_of(case: Case, rows: Any) -> Any:
    """What the runs of every instance say of their plans, for the rows of k and load.

    For each plan the bound's error over the target when the run is there, and k then; the ratio of
    uplinks as they were sent, as predicted for the error at which k and load arrives
    (`uplinks_same`), and as predicted for the target.
    """
    updates, found = rows.pivot(index=["set", "instance"], columns="method", values="updates"), []
    for (letter, at), row in updates.iterrows():
        instance = case(Seeds(case.settings.seed, SETS[letter], at)).data
        decay, target = instance.task.bound.decay, float(instance.targets[-1])
        both, alone = (instance.plan(methods.PRESCRIBED, adapts_load=x) for x in (True, False))
        error, k = error_after(both, decay, int(row[BOTH]))
        other, k_alone = error_after(alone, decay, int(row[ALONE]))
        ends = {"ratio": (error, other), "same": (error, error), "target": (target, target)}
        ratios = {
            f"uplinks_{name}": uplinks_until(both, decay, one) / uplinks_until(alone, decay, two)
            for name, (one, two) in ends.items()
        }
        head = {"set": letter, "instance": at, "method": BOTH}
        errors = {"error": error / target, "error_alone": other / target}
        found.append(head | errors | {"k_then": k, "k_then_alone": k_alone} | ratios)
    return pd.DataFrame(found)


# What rows say.


def fastest_fixed(result: Result, **where: Any) -> str:
    """Of the ways of always taking one pair, that of the lowest mean log time over all sets.

    It is chosen on what is shown, in its favour: waiting for all and backup workers are pairs too,
    and the pair is tuned in two forms, each by itself.
    """
    pairs = (PAIR, methods.SCALED, methods.ALL, methods.BACKUPS)
    names = result.select(**where)["method"].unique()
    return min(
        (name for name in names if name in pairs or name.startswith("fixed k")),
        key=lambda name: np.mean([np.log(result.values(name, s, **where)) for s in result.sets]),
    )


def over_fixed(result: Result, **where: Any) -> list[Any]:
    """That k and load takes less time than the fastest fixed pair, in each scene."""
    return [
        less(BOTH, fastest_fixed(result, scene=scene, **where), scene=scene, text=scene, **where)
        for scene in result.rows["scene"].unique()
    ]


def claims(result: Result) -> tuple[Claim, ...]:
    """The abstract's, at the plans' step and tuned; a condition a case, and a cost."""
    said: list[Claim] = []
    for track, words in TRACKS.items():
        costs = {
            text: less(BOTH, ALONE, ratio=bound, column=cost, each=True, tuned_for=track)
            for cost, (bound, text) in BOUNDS.items()
        }
        asked = {
            "the same on real SGD": [*costs.values()],
            **{text: [condition] for text, condition in costs.items()},
            "faster than the best fixed pair": over_fixed(result, tuned_for=track),
        }
        source = "Egger et al. 2023"
        said += [
            Claim(f"{text}, {words}", conditions, source) for text, conditions in asked.items()
        ]
    return tuple(said)


def shown(result: Result, other: str, cost: str = "time", *, over: bool = False, **at: Any) -> str:
    """A cost of k and load over another's, set A's mean and interval, then set B's mean.

    Args:
        result: Of the study.
        other: A method.
        cost: A column.
        over: The other way round: the other's over that of k and load.
        **at: Which rows.
    """
    ends = result.ratio(BOTH, other, cost, where=at)[["ratio", "low", "high"]].to_numpy()
    (mean, low, high), (second, *_) = 1 / ends[:, [0, 2, 1]] if over else ends
    return f"{mean:.2f} ({low:.2f} to {high:.2f}); {second:.2f}"


def reached_text(rows: Any, column: str) -> str:
    """Median and quartiles of times that were seen, and who is missing."""
    known = protocol.reached(rows[column].fillna(np.inf), rows["horizon"].iloc[0])
    first, middle, third = (
        "never" if one is None else format_number(one) for one in known.quartiles
    )
    missing = "" if known.share == 1 else f", {100 * known.share:.0f} %"
    return f"{middle} ({first}-{third}){missing}" if known.share else "never"


def count_text(value: float) -> str:
    """A count for people.

    Example:
        >>> count_text(7_468_000.0), count_text(839_400.0), count_text(26_700.0), count_text(681.0)
        ('7.5M', '839k', '26.7k', '681')
    """
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    if value < 2000:
        return f"{value:.0f}"
    return f"{value / 1000:.1f}k" if value < 100_000 else f"{value / 1000:.0f}k"


def chosen_text(row: Any) -> str:
    """The settings of a row."""
    said = row.reindex(KNOBS).dropna()
    return ", ".join(
        f"{name} {x if isinstance(x, str) else f'{x:.4g}'}" for name, x in said.items()
    )


def ratio_table(track: str, result: Result) -> results.Table:
    """Costs of k and load over those of k alone, and its time over the fixed pair's."""
    rows = []
    for scene in result.rows["scene"].unique():
        at = {"scene": scene, "tuned_for": track}
        fixed = fastest_fixed(result, **at)
        cells = [shown(result, ALONE, cost, **at) for cost in COSTS]
        rows.append([scene, *cells, f"{shown(result, fixed, **at)}, {fixed}"])
    return part.table(
        ("loss, law", *COSTS.values(), "time over the fastest fixed pair's"),
        rows,
        f"{TRACKS[track].capitalize()}: costs of k and load over those of k alone until the last"
        " target, geometric mean over set A and its 95 % interval; then set B's mean.",
    )


def method_table(result: Result) -> results.Table:
    """Where most methods run, every knob tuned, set A: times to three targets, all costs."""
    count = result.rows.groupby("scene", sort=False)["method"].nunique()
    at, levels = {"scene": count.idxmax(), "tuned_for": "tuned"}, result.facts["levels"]
    times = [*(f"time_{level}" for level in range(1, len(levels))), "time"]
    _, *costs = COSTS
    rows = [
        [
            name,
            chosen_text(runs.iloc[0]),
            *(reached_text(runs, column) for column in times),
            "" if name == BOTH else shown(result, name, over=True, **at),
            *map(count_text, runs[costs].median()),
            int(runs["trials"].iloc[0]),
            count_text(runs["tuning_gradients"].iloc[0]),
        ]
        for name, runs in result.select(set="A", **at).groupby("method", sort=False)
    ]
    targets = [f"time to {100 * level:g} %" for level in levels]
    heads = ("method", "chosen", *targets, "over k and load's", *map(COSTS.__getitem__, costs))
    return part.table(
        (*heads, "trials", "gradients in trials"),
        rows,
        f"{at['scene'].capitalize()}, every knob tuned, set A: times, median (quartiles); the last"
        " over that of k and load, then set B's mean; costs until the last target, medians.",
        left=2,
    )


def accounts(result: Result) -> dict[str, dict[str, dict[str, Any]]]:
    """Uplinks of k and load over k alone by scene and set, as measured and as predicted."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    rows = result.select(method=BOTH, tuned_for="prescribed")
    for (scene, letter), runs in rows.groupby(["scene", "set"], sort=False):
        apart = np.log(runs["error_alone"] / runs["error"])
        logs = {name: np.log(runs[f"uplinks_{name}"]) for name in ("ratio", "same", "target")}
        ends = {name: np.exp([log.to_numpy().mean(), *interval(log)]) for name, log in logs.items()}
        found.setdefault(scene, {})[letter] = {
            **{
                name: dict(zip(("mean", "low", "high"), span.tolist(), strict=True))
                for name, span in ends.items()
            },
            "least": runs["uplinks_ratio"].min(),
            "most": runs["uplinks_ratio"].max(),
            "error": runs["error"].median(),
            "further": int((runs["error_alone"] < runs["error"]).sum()),
            "k": [int(runs["k_then_alone"].min()), int(runs["k_then_alone"].max())],
            "correlation": float(np.corrcoef(apart, logs["ratio"])[0, 1]),
        }
    return found


def account_table(result: Result) -> results.Table:
    """Uplinks, measured and predicted."""
    rows = []
    for scene, by_set in accounts(result).items():
        for letter, said in by_set.items():
            measured, same, target = (
                "{mean:.2f} ({low:.2f} to {high:.2f})".format(**said[name])
                for name in ("ratio", "same", "target")
            )
            single = f"{said['least']:.2f} to {said['most']:.2f}"
            last = f"{said['error']:.1f}", "{} to {}".format(*said["k"])
            rows.append([scene, letter, measured, single, same, target, *last])
    heads = ("loss, law", "set", "uplinks, measured", "of single instances", "predicted there")
    last = ("bound's error there, over the target", "k alone waits for")
    return part.table(
        (*heads, "predicted at the target", *last),
        rows,
        "Uplinks of k and load over k alone: as measured; as predicted if both stopped where the"
        " bound is when k and load arrives; as predicted for the target.",
        left=2,
    )


TABLES: Mapping[str, Callable[[Result], results.Table]] = {
    "prescribed": partial(ratio_table, "prescribed"),
    "tuned": partial(ratio_table, "tuned"),
    "methods": method_table,
    "accounts": account_table,
    "spread": sets.spread_of,
}


def sooner(result: Result) -> dict[str, float]:
    """How many times as fast tuned plans are as prescribed ones, where the wider family runs."""
    rows = result.select(set="A", scene="linear, scale", method=[BOTH, ALONE])
    logs = np.log(rows["time"].clip(upper=rows["horizon"]))
    means = logs.groupby([rows["method"], rows["tuned_for"]]).mean().unstack()
    return np.exp(means["prescribed"] - means["tuned"]).to_dict()


FACTS = {"accounts": accounts, "sooner": sooner}


def ratio_figure(result: Result, panels: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Any:
    """Times of k and load over another's with intervals, one row per scene and set.

    Args:
        result: Of the study.
        panels: By title the other method (empty: the fastest fixed pair), and which rows.
    """
    scenes = list(result.rows["scene"].unique())
    with drawing():
        figure = new_figure(3.9 * len(panels) + 1.5, 0.5 * len(scenes) + 1.3)
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, (other, where)) in zip(grid, panels.items(), strict=True):
            ats = [{"scene": scene, **where} for scene in scenes]
            rows = pd.concat(
                result.ratio(BOTH, other or fastest_fixed(result, **at), where=at) for at in ats
            )
            for shift, (letter, means) in zip((-0.14, 0.14), rows.groupby("set"), strict=True):
                ends = [means["ratio"] - means["low"], means["high"] - means["ratio"]]
                places = np.arange(len(scenes)) + shift
                axes.errorbar(means["ratio"], places, xerr=ends, fmt="o", label=f"set {letter}")
            axes.axvline(1.0, color="grey", linewidth=1)
            axes.set(title=title, xlabel="time of k and load, ratio")
            set_log(axes.xaxis, True)
        grid[0].set_yticks(range(len(scenes)), scenes)
        grid[0].set_ylim(len(scenes) - 0.5, -0.5)
        grid[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return Illustration(
        figure, "Time of k and load over another's: geometric means and their 95 % intervals."
    )


def ratios(result: Result) -> Illustration:
    """Times over k alone, and over the fastest fixed pair."""
    panels = {words: (ALONE, {"tuned_for": track}) for track, words in TRACKS.items()}
    panels["tuned, over the fastest fixed pair"] = "", {"tuned_for": "tuned"}
    return ratio_figure(result, panels)


def uplinks(result: Result) -> Illustration:
    """Measured ratios of uplinks against how far down the bound the two runs went."""
    scene = result.rows["scene"].iloc[0]
    rows = result.select(scene=scene, tuned_for="prescribed", method=BOTH)
    with drawing():
        figure = new_figure(6.4, 4.2)
        axes = figure.subplots()
        for letter, runs in rows.groupby("set"):
            apart = runs["error"] / runs["error_alone"]
            axes.plot(apart, runs["uplinks_ratio"], "o", label=f"set {letter}")
        same = rows.loc[rows["set"] == "A", "uplinks_same"].mean()
        line = {"color": "grey", "linewidth": 1}
        axes.axhline(same, linestyle="--", label=f"predicted: {same:.2f}", **line)
        axes.axvline(1.0, **line)
        axes.set_xlabel("bound's error when k and load is there,\nover that when k alone is there")
        axes.set_ylabel("uplinks of k and load over k alone")
        set_log(axes.xaxis, True)
        axes.legend(frameon=False)
    return Illustration(
        figure,
        f"{scene}, at the plans' step: uplinks of k and load over k alone, an instance a point, by"
        " how far down the bound the two had gone when they arrived.",
    )


FIGURES = {"ratios": ratios, "uplinks": uplinks}


if __name__ == "__main__":
    part.main(NAME, one_thread=True)
