"""Steps for those who cannot tune: chosen on one pattern of delays, used on another.

Delay-adaptive steps promise safety where nobody knows the delays. So each rule's one step size is
chosen on one law of delays and used on five others, by three algorithms (PIAG, Async-BCD, plain
asynchronous SGD) on up to three problems. Four further scenes: the theory step, with nothing tuned;
a worker that becomes ten times slower during the run; one that becomes as fast as the others; one
that stalls for long. How often does each rule diverge, or need more than twice the updates that it
needs with a step size chosen on the law itself?

Rules: a constant; one divided by the longest delay of the run, which it is told; Adaptive 1 and 2
(Wu, Magnússon, Feyzmahdavian, Johansson 2022, arXiv 2202.08550); steps scaled by 1 / (delay + 1),
by (delay + 1)^-1/2 and by the hinge of FedAsync (slope 10 from a delay of 4 on). All have as many
trials on instances that are not reported.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_number
from asyncjax.study import statistics
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.result import Claim, Result
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART, Condition
from experiments import part
from experiments.common import numbers
from experiments.delay_adaptive.step_rules import PAPER
from experiments.delay_adaptive.transfer_runs import (
    ALGORITHMS,
    CONSTANT,
    LAWS,
    OWN,
    RULES,
    SCENES,
    SETS,
    THEORY,
    Settings,
    all_runs,
)

NAME = "transfer"
TITLE = "Steps for those who cannot tune: chosen on one pattern of delays, used on another"
PAPERS = (PAPER,)
NOTE = FIRST_CROSSING
CARRIED, UNTUNED = "carried to other delays", "at the theory step"
ALL = "all"  # data sets
FACTOR = 2.0  # a run that needs more than that many times its own updates has failed
UNKNOWN = "own step never there"
FEWER, FASTER = "fails less often than a constant", "is faster than a constant"
NEVER = "at its theory step a rule never diverges"
DIGITS = 4  # of numbers in rows
Frame = Any  # a pandas.DataFrame, whose stubs refuse much of what pandas does


def study_of(settings: Settings) -> Result:
    """Runs everything; a scene needs the law on which its step size is chosen.

    Raises:
        ValueError: A law or a scene is not known, or a scene lacks its law.
    """
    for name, given, known in (
        ("laws", settings.laws, LAWS),
        ("scenes", settings.scenes, tuple(SCENES)),
        ("laws", {SCENES[scene] for scene in settings.scenes if scene in SCENES}, settings.laws),
    ):
        if missing := set(given) - set(known):
            raise ValueError(f"{name} must be among {', '.join(known)}, got {min(missing)!r}")
    return result_of(settings, all_runs(settings))


def compared(settings: Settings, runs: Frame) -> Frame:
    """The runs of each scene beside those with the step that was chosen on the law that they met.

    Columns further than those of `transfer_runs.measured`: `scene`; `regret`, updates over those
    with the law's own step, and `slower`, the same of times; `missed`, whether that one never came;
    `failed`, NaN where it was missed; `over`, updates over those of the constant chosen on the law;
    `behind`, whether it diverged or needs more than `FACTOR` times as many.
    """
    met = ["algorithm", "data", "set", "instance", "law"]
    runs = runs.assign(
        missed=np.isinf(runs["updates"]),
        updates=runs["updates"].clip(upper=settings.n_updates),
        times=runs[["times", "end"]].min(axis=1),
    )
    own = runs[runs["chosen"] == OWN].set_index([*met, "method"])
    constant = own.xs(CONSTANT, level="method")["updates"].rename("constant")
    own = own[["updates", "times", "missed"]].add_prefix("own_")
    runs = runs.drop(columns="missed").join(own, on=own.index.names).join(constant, on=met)
    runs = runs.rename(columns={"own_missed": "missed"}).assign(
        regret=runs["updates"] / runs["own_updates"],
        slower=runs["times"] / runs["own_times"],
        over=runs["updates"] / runs["constant"],
    )
    failed = (runs["diverged"] | (runs["regret"] > FACTOR)).astype(float)
    runs["failed"] = failed.mask(runs["missed"])
    runs["behind"] = runs["diverged"] | (runs["over"] > FACTOR)
    law, chosen, steady = runs["law"], runs["chosen"], runs["law"].isin(settings.laws)
    scene = law.where(chosen == law.map(SCENES))
    scene = scene.mask(steady & chosen.isin(settings.laws) & (chosen != law), CARRIED)
    runs["scene"] = scene.mask(steady & (chosen == THEORY), UNTUNED)
    return runs.dropna(subset="scene")


def row_of(runs: Frame, n_updates: int) -> dict[str, Any]:
    """What came of a rule, over all pairs of some cases; the intervals are over instances."""
    known = runs[~runs["missed"]]
    by_instance = runs.groupby("instance")[["failed", "behind"]].mean()
    shares, behind = by_instance["failed"].dropna().to_numpy(), by_instance["behind"].to_numpy()
    failed = statistics.interval(shares) if shares.size > 1 else (np.nan, np.nan)
    ends = statistics.interval(behind)
    # Not there in the end, and with the law's own step only after half of it.
    is_open = (runs["updates"] >= n_updates) & (runs["failed"] == 0)
    return {
        "diverged": runs["diverged"].mean(),
        "failed": shares.mean() if shares.size else np.nan,
        "failed_low": failed[0],
        "failed_high": failed[1],
        "median": known["regret"].median(),
        "worst": known["regret"].max(),
        "median_in_time": known["slower"].median(),
        "own_missed": runs["missed"].mean(),
        "open": is_open.mean(),
        "to_tuned_constant": runs["over"].median(),
        "behind": runs["behind"].mean(),
        "behind_low": ends[0],
        "behind_high": ends[1],
    }


def rows_of(settings: Settings, runs: Frame) -> Iterator[dict[str, Any]]:
    """A row a scene, algorithm, data (or all), set and rule: shares and medians over pairs."""
    tried = runs.drop_duplicates(["algorithm", "data", "law", "method"]).groupby("method")
    trials, edges = tried["trials"].sum(), tried["at_edge"].any()
    price = settings.tuning_instances * settings.n_updates
    shown = compared(settings, runs)
    carried = shown[shown["scene"] == CARRIED]
    names = ["scene", "algorithm", "data", "set", "method"]
    for scene in (CARRIED, UNTUNED, *settings.scenes):
        pooled = [shown[shown["scene"] == scene].assign(data=ALL)]
        for group in [*pooled, carried] if scene == CARRIED else pooled:
            for key, own in group.groupby(names, sort=False):
                head = dict(zip(names, key, strict=True))
                count = int(trials[head["method"]]) if scene == CARRIED else np.nan
                tuned = {"trials": count, "gradients": count * price}
                tuned["at_edge"] = bool(edges[head["method"]])
                yield {**head, **row_of(own, settings.n_updates), **tuned}


def verdicts_of(carried: Frame) -> dict[str, str]:
    """For every rule and algorithm, and over all: does it carry over better than a constant?

    A claim has a condition for every data set of the algorithm.
    """
    scores = carried.assign(log=np.log(carried["updates"]))
    by = ["algorithm", "data", "method", "instance"]
    wide = scores.groupby(by, sort=False)[["failed", "log"]].mean().unstack("method", sort=False)
    verdicts = {}
    for rule in RULES:
        for claim, score in ((FEWER, "failed"), (FASTER, "log")) if rule != CONSTANT else ():
            both = wide[score][[rule, CONSTANT]].dropna()
            found: dict[str, list[Condition]] = {one: [] for one in carried["algorithm"].unique()}
            for (algorithm, data), pairs in both.groupby(level=[0, 1], sort=False):
                if len(pairs) > 1:
                    apart = statistics.paired(*pairs.to_numpy().T)
                    found[algorithm].append(Condition(data, apart))
            found["all"] = [one for conditions in found.values() for one in conditions]
            for algorithm, asked in found.items():
                word = statistics.verdict(asked) if asked else UNKNOWN
                verdicts[f"{algorithm}: {rule} {claim}"] = word
    return verdicts


def _untuned(rows: Frame, rule: str) -> str:
    """Whether a rule never diverges at its theory step; a condition an algorithm.

    Runs are counted, nothing is estimated: a condition holds if no run diverged.
    """
    clean = rows[(rows["scene"] == UNTUNED) & (rows["method"] == rule)]["diverged"] == 0
    return HOLDS if clean.all() else IN_PART if clean.any() else FAILS


def _map(carried: Frame, laws: tuple[str, ...]) -> list[list[float]]:
    """Share that failed, by the law of the step (rows) and the law that is run on."""
    shares = carried.pivot_table("failed", "chosen", "law", "mean").reindex(laws, columns=laws)
    return np.where(np.eye(len(laws)), 0.0, shares).tolist()


def result_of(settings: Settings, runs: Frame) -> Result:
    """Aggregates as rows; verdicts, which follow from single runs, and maps as facts."""
    rows = pd.DataFrame(numbers.rounded(list(rows_of(settings, runs)), DIGITS))
    shown = compared(settings, runs)
    carried = shown[shown["scene"] == CARRIED]
    words = {
        letter: verdicts_of(carried[carried["set"] == letter])
        | {f"{rule}: {NEVER}": _untuned(rows[rows["set"] == letter], rule) for rule in RULES}
        for letter in SETS.values()
    }
    maps = {
        algorithm: {rule: _map(own[own["method"] == rule], settings.laws) for rule in RULES}
        for algorithm, own in carried.groupby("algorithm", sort=False)
    }
    facts = {
        "laws": list(settings.laws),
        "instances": settings.instances,
        "n_updates": settings.n_updates,
        "level": settings.level,
        "maps": numbers.rounded(maps, DIGITS),
        "verdicts": {text: {one: words[one][text] for one in words} for text in words["A"]},
    }
    return Result(rows, "failed", facts, cut=())


def claims(result: Result) -> tuple[Claim, ...]:
    """What was said of single runs, which the rows do not hold."""
    return tuple(Claim(text, source=PAPER) for text in result.facts["verdicts"])


def answer(result: Result) -> str:
    """How often carried steps fail, a sentence an algorithm."""
    said = []
    for algorithm in algorithms(result):
        shares = [f"{rule} {share_text(one(result, algorithm, rule))}" for rule in RULES]
        said.append(f"{algorithm}: percent of the carried runs that fail: {', '.join(shares)}.")
    return " ".join(said)


def algorithms(result: Result) -> list[str]:
    """Those that were run."""
    return [name for name in ALGORITHMS if name in {*result.rows["algorithm"]}]


def one(
    result: Result, algorithm: str, rule: str, scene: str = CARRIED, data: str = ALL, set: str = "A"
) -> dict[str, Any]:
    """What became of a rule."""
    where = {"scene": scene, "algorithm": algorithm, "data": data, "set": set, "method": rule}
    [row] = result.select(**where).to_dict("records")
    return row


def share_text(row: dict[str, Any]) -> str:
    """A share that failed and its interval, in percent.

    Example:
        >>> share_text({"failed": 0.125, "failed_low": 0.1, "failed_high": 0.2})
        '12 (10 to 20)'
    """
    if math.isnan(row["failed"]):
        return "n/a"
    share, low, high = (100 * row[name] for name in ("failed", "failed_low", "failed_high"))
    return f"{share:.0f} ({low:.0f} to {high:.0f})"


_CELLS: dict[str, Callable[[dict[str, Any]], str]] = {
    "diverged, %": lambda row: f"{100 * row['diverged']:.0f}",
    "failed, % (interval)": share_text,
    "median": lambda row: format_number(row["median"]),
    "worst": lambda row: format_number(row["worst"]),
    "over tuned constant": lambda row: format_number(row["to_tuned_constant"]),
    "more than 2x that, %": lambda row: f"{100 * row['behind']:.0f}",
    "own step fails, %": lambda row: f"{100 * row['own_missed']:.0f}",
}


def _table(
    result: Result, named: tuple[str, ...], groups: Iterable[tuple[str, str, str]], text: str
) -> results.Table:
    """Rows of all rules for each group, whose names stand beside the first.

    Args:
        result: Of the part.
        named: Of scene, algorithm and data those that are shown.
        groups: Scene, algorithm and data.
        text: The caption.
    """
    rows = []
    for scene, algorithm, data in groups:
        names = {"scene": scene, "algorithm": algorithm, "case": f"{algorithm}, {data}"}
        for rule in RULES:
            first, second = (one(result, algorithm, rule, scene, data, letter) for letter in "AB")
            shown = [names[name] if rule == CONSTANT else "" for name in named]
            cells = [cell(first) for cell in _CELLS.values()]
            rows.append([*shown, rule, *cells, share_text(second)])
    heads = (*named, "rule", *_CELLS, "failed, set B")
    return part.table(heads, rows, text, left=len(named) + 1)


def carried_table(result: Result) -> results.Table:
    """The table that answers the question: all data sets of an algorithm together, set A."""
    facts = result.facts
    return _table(
        result,
        ("algorithm",),
        [(CARRIED, name, ALL) for name in algorithms(result)],
        f"A step size chosen on one law of delays, used on another, {len(facts['laws'])} laws, all"
        f" pairs, {facts['instances']} instances a set. Failed: it diverged, or needs more than"
        f" {FACTOR:g} times the updates to {100 * facts['level']:g} % of the way that the same rule"
        f" needs with the step size chosen on the law itself (at most {facts['n_updates']:,});"
        " median and worst are of that ratio. Pairs in which even that one is not there in time"
        " ('own step fails') say nothing of the transfer and are left out of these three. 'Over"
        " tuned constant': median of the updates over those of a constant step chosen on the law"
        " itself; next to it how many diverged or need more than twice as many, all pairs.",
    )


def case_table(result: Result) -> results.Table:
    """The same a data set."""
    rows = result.select(scene=CARRIED, set="A", method=CONSTANT, data=lambda name: name != ALL)
    groups = [
        (CARRIED, algorithm, data)
        for algorithm in algorithms(result)
        for data in sorted(rows[rows["algorithm"] == algorithm]["data"])
    ]
    return _table(result, ("case",), groups, "The same a data set, set A.")


def scenes_of(result: Result) -> list[str]:
    """All scenes but that of steps that are carried."""
    return [scene for scene in (UNTUNED, *SCENES) if scene in {*result.rows["scene"]}]


def scene_table(result: Result) -> results.Table:
    """Theory steps, delays that change, a worker that stalls."""
    return _table(
        result,
        ("scene", "algorithm"),
        [(scene, name, ALL) for scene in scenes_of(result) for name in algorithms(result)],
        "The same columns. At the theory step nothing is tuned: gamma' for all, but the safe"
        " constant is told the longest delay. In the others the step size was chosen on even"
        " workers ('straggler, then even': on the straggler), and 'own' is one chosen on such"
        " runs.",
    )


def short_scenes(result: Result) -> results.Table:
    """What became of the rules in the other scenes, three shares an algorithm."""

    def cell(scene: str, rule: str, algorithm: str) -> str:
        row = one(result, algorithm, rule, scene)
        shares = [row[name] for name in ("diverged", "failed", "behind")]
        return " / ".join("n/a" if math.isnan(x) else f"{100 * x:.0f}" for x in shares)

    names = algorithms(result)
    rows = [
        (scene if rule == CONSTANT else "", rule, *(cell(scene, rule, name) for name in names))
        for scene in scenes_of(result)
        for rule in RULES
    ]
    return part.table(
        ("scene", "rule", *names),
        rows,
        "Percent of runs, set A: diverged / failed / diverged or more than twice the updates of the"
        " tuned constant.",
        left=2,
    )


def verdict_table(result: Result) -> results.Table:
    """The verdicts by rule on both sets of instances."""
    words, names = result.facts["verdicts"], ["all", *algorithms(result)]

    def cell(name: str, rule: str, claim: str) -> str:
        return " / ".join(dict.fromkeys(words[f"{name}: {rule} {claim}"].values()))

    rows = [
        (claim, rule, *(cell(name, rule, claim) for name in names))
        for claim in (FEWER, FASTER)
        for rule in RULES
        if rule != CONSTANT
    ]
    return part.table(
        ("claim", "rule", *names),
        rows,
        "Steps carried to other delays, against a constant carried alike: verdicts from paired"
        " differences over instances, a condition a data set; two where the sets disagree.",
        left=2 + len(names),
    )


def trial_table(result: Result) -> results.Table:
    """Trials of each rule."""
    spent = [one(result, algorithms(result)[0], rule) for rule in RULES]
    rows = [
        (rule, f"{row['trials']:,.0f}", f"{row['gradients']:,.0f}", bool(row["at_edge"]))
        for rule, row in zip(RULES, spent, strict=True)
    ]
    text = "Trials over all cases and laws."
    return part.table(("rule", "trials", "gradients", "at an edge"), rows, text)


TABLES = {
    "verdicts": verdict_table,
    "carried": carried_table,
    "scenes": scene_table,
    "short scenes": short_scenes,
    "cases": case_table,
    "trials": trial_table,
}


def heat_map(algorithm: str, result: Result) -> Illustration:
    """A map of failures of one algorithm, a panel a rule."""
    laws = result.facts["laws"]
    unknown = {rule: np.full((len(laws), len(laws)), np.nan) for rule in RULES}
    maps = result.facts["maps"].get(algorithm, unknown)  # grey where it was not run
    edges = np.arange(len(laws) + 1) - 0.5
    with drawing():
        figure = new_figure(8.0, 7.6)
        grid = figure.subplots(3, 3, sharex=True, sharey=True)
        colours: Any = None
        for axes, rule in zip(grid.flat, RULES, strict=False):
            values = np.array(maps[rule])
            off = ~np.eye(len(laws), dtype=bool)
            off &= ~np.isnan(values)
            shown = np.ma.masked_array(values, ~off)
            axes.set_facecolor("#E4E4E4")
            colours = axes.pcolormesh(
                edges, edges, shown, vmin=0, vmax=1, cmap="Blues", edgecolor="white", linewidth=0.6
            )
            for row, column in zip(*np.nonzero(off), strict=True):
                share = values[row, column]
                colour = "white" if share > 0.55 else "black"
                text = {"ha": "center", "va": "center", "color": colour, "size": 9}
                axes.text(column, row, f"{100 * share:.0f}", **text)
            axes.set_title(rule)
            axes.set_xticks(range(len(laws)), laws, rotation=90)
            axes.set_yticks(range(len(laws)), laws)
            axes.set_ylim(len(laws) - 0.5, -0.5)
            axes.tick_params(length=0, labelbottom=False, labeltop=axes in grid[0])
        left = list(grid.flat[len(maps) :])
        for axes in left:
            axes.set_visible(False)
        bar = figure.colorbar(colours, ax=left, location="bottom", aspect=20, fraction=0.4)
        bar.set_label("share that failed")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        figure.supylabel("step chosen on", size=12)
        figure.suptitle("run on", size=12)
    return Illustration(
        figure,
        f"{algorithm}: share of runs, in percent, that diverged or needed more than {FACTOR:g}"
        " times the updates, by the law on which the step was chosen (rows) and the law that was"
        " met (columns); all data sets, both sets of instances.",
    )


FIGURES = {"piag": partial(heat_map, "PIAG"), "sgd": partial(heat_map, "SGD")}


def to_even_workers(result: Result) -> dict[str, float]:
    """How often PIAG's constant fails on even workers, by the law on which it was chosen."""
    at = result.facts["laws"].index("even")
    rows = result.facts["maps"]["PIAG"][CONSTANT]
    return {law: row[at] for law, row in zip(result.facts["laws"], rows, strict=True)}


def price(result: Result) -> dict[str, float]:
    """What Adaptive 1 and 2 at their theory steps need, in updates of the tuned constant."""
    rows = result.select(scene=UNTUNED, method=["Adaptive 1", "Adaptive 2"], set="A")
    needed = rows["to_tuned_constant"]
    return {"least": float(needed.min()), "most": float(needed.max())}


FACTS = {"to even workers": to_even_workers, "price": price}


if __name__ == "__main__":
    part.main(NAME)
