"""Tables, figures, verdicts and numbers of the experiment on steps that are carried over."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.tables import format_number
from asyncjax.study import statistics as comparison
from asyncjax.study.protocol import SET_A, SET_B
from experiments.common.parts import Drawing
from experiments.delay_adaptive.transfer_runs import OWN, THEORY, Outcome, Settings
from experiments.delay_adaptive.transfer_tasks import ALGORITHMS, CONSTANT, RULES, SCENES

CARRIED, UNTUNED = "carried to other delays", "at the theory step"
SETS = (SET_A, SET_B)
FACTOR = 2.0  # a run that needs more than that many times its own updates has failed
UNKNOWN = "own step never there"
FEWER, FASTER = "fails less often than a constant", "is faster than a constant"
Numbers = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Taken:
    """Runs with a step chosen elsewhere: I instances, P pairs of a law and a step, R rules.

    Attributes:
        updates: float[I, P, R], to the target, at most the horizon.
        own: The same with the step that was chosen on the law that is run on.
        missed: bool[I, P, R], with that step the target was not reached.
        diverged: bool[I, P, R].
        slower: float[I, P, R], times over those with the law's own step.
    """

    updates: np.ndarray
    own: np.ndarray
    missed: np.ndarray
    diverged: np.ndarray
    slower: np.ndarray

    @property
    def regret(self) -> np.ndarray:
        """Updates over those with the law's own step."""
        return self.updates / self.own

    @property
    def failed(self) -> np.ndarray:
        """It diverged, or needs more than `FACTOR` times the updates; float, NaN where `missed`."""
        return np.where(self.missed, np.nan, self.diverged | (self.regret > FACTOR))

    @property
    def behind(self) -> np.ndarray:
        """The same against the constant step that was chosen on the law; bool[I, P, R]."""
        constant = self.own[..., [list(RULES).index(CONSTANT)]]
        return self.diverged | (self.updates / constant > FACTOR)


def by_instance(values: np.ndarray) -> np.ndarray:
    """Means over pairs, float[I, ...] of [I, P, ...], of what is not NaN; NaN if there is none."""
    known = ~np.isnan(values)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.where(known.any(axis=1), total / np.maximum(known.sum(axis=1), 1), np.nan)


def pairs_of(settings: Settings, scene: str) -> list[tuple[int, int]]:
    """Places of the law that is run on, and of the step: `CARRIED`, `UNTUNED` or of `SCENES`."""
    count = len(settings.laws)
    if scene == CARRIED:
        return [(run, chosen) for run in range(count) for chosen in range(count) if run != chosen]
    if scene == UNTUNED:
        return [(run, THEORY) for run in range(count)]
    return [(count + settings.scenes.index(scene), settings.laws.index(SCENES[scene]))]


def taken(settings: Settings, outcome: Outcome, scene: str, which: str) -> Taken:
    """The runs of a scene on a set of instances."""
    first = SETS.index(which) * settings.instances
    rows = slice(first, first + settings.instances)
    runs, chosen = np.array(pairs_of(settings, scene)).T
    updates = np.minimum(outcome.updates[rows, ..., -1], settings.n_updates)
    last = outcome.horizon_time[rows, :, None, None]
    times = np.minimum(outcome.times[rows, ..., -1], last)
    own = np.full(len(runs), OWN)
    return Taken(
        updates[:, runs, chosen],
        updates[:, runs, own],
        np.isinf(outcome.updates[rows, ..., -1][:, runs, own]),
        outcome.diverged[rows][:, runs, chosen],
        times[:, runs, chosen] / times[:, runs, own],
    )


def row_of(parts: Sequence[Taken], rule: str, n_updates: int) -> dict[str, Any]:
    """What came of a rule, over all pairs of some cases; the interval is over instances."""
    place = list(RULES).index(rule)

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name)[..., place] for part in parts], axis=1)

    failed, regret, behind = joined("failed"), joined("regret"), joined("behind")
    base = np.concatenate([part.own[..., list(RULES).index(CONSTANT)] for part in parts], axis=1)
    short = (joined("updates") >= n_updates) & (failed == 0)
    shares = by_instance(failed)
    shares = shares[~np.isnan(shares)]
    missed = joined("missed")

    def over_known(of: Callable[[np.ndarray], Any], values: np.ndarray) -> float:
        return np.nan if missed.all() else float(of(values[~missed]))

    return {
        "diverged": float(joined("diverged").mean()),
        "failed": float(shares.mean()) if shares.size else np.nan,
        "interval": list(comparison.interval(shares)) if shares.size > 1 else [np.nan, np.nan],
        "median": float(np.median(regret[~missed])) if not missed.all() else np.nan,
        "worst": float(regret[~missed].max()) if not missed.all() else np.nan,
        "median in time": float(np.median(joined("slower")[~missed]))
        if not missed.all()
        else np.nan,
        "own missed": float(missed.mean()),
        "open": float(short.mean()),  # not there in the end, and its own only after half of it
        "to tuned constant": float(np.median(joined("updates") / base)),
        "behind": float(behind.mean()),
        "behind interval": list(comparison.interval(behind.mean(axis=1))),
    }


def numbers(settings: Settings, found: Sequence[Outcome]) -> dict[str, Any]:
    """All that tables, figures and verdicts are made from."""
    scenes = (CARRIED, UNTUNED, *settings.scenes)
    by_algorithm: dict[str, list[Outcome]] = {}
    for outcome in found:
        by_algorithm.setdefault(outcome.algorithm, []).append(outcome)

    def rows(group: Sequence[Outcome], scene: str) -> dict[str, Any]:
        sets = {which: [taken(settings, one, scene, which) for one in group] for which in SETS}
        return {
            which: {rule: row_of(parts, rule, settings.n_updates) for rule in RULES}
            for which, parts in sets.items()
        }

    verdicts = {which: verdicts_of(settings, by_algorithm, which) for which in SETS}
    return {
        "laws": list(settings.laws),
        "instances": settings.instances,
        "n_updates": settings.n_updates,
        "level": settings.levels[-1],
        "cases": {f"{one.algorithm}, {one.data}": rows([one], CARRIED) for one in found},
        "scenes": {
            scene: {name: rows(group, scene) for name, group in by_algorithm.items()}
            for scene in scenes
        },
        "maps": {
            name: {rule: _map(settings, group, rule) for rule in RULES}
            for name, group in by_algorithm.items()
        },
        "verdicts": verdicts,
        "disagreements": comparison.disagreements(*(verdicts[which] for which in SETS)),
        "tuning": _trials(found),
    }


def verdicts_of(
    settings: Settings, by_algorithm: Mapping[str, Sequence[Outcome]], which: str
) -> dict[str, str]:
    """For every rule and algorithm, and over all: does it carry over better than a constant?

    A claim has a condition for every data set of the algorithm.
    """
    base, verdicts = list(RULES).index(CONSTANT), {}
    for place, rule in enumerate(RULES):
        if rule == CONSTANT:
            continue
        every: dict[str, list[comparison.Condition]] = {FEWER: [], FASTER: []}
        for algorithm, group in by_algorithm.items():
            own: dict[str, list[comparison.Condition]] = {FEWER: [], FASTER: []}
            for outcome in group:
                part = taken(settings, outcome, CARRIED, which)
                failed, log = by_instance(part.failed), np.log(part.updates).mean(axis=1)
                for claim, score in ((FEWER, failed), (FASTER, log)):
                    both = score[:, [place, base]]
                    both = both[~np.isnan(both).any(axis=1)]
                    if len(both) > 1:
                        difference = comparison.paired(*both.T)
                        own[claim].append(comparison.Condition(outcome.data, difference))
            for claim, conditions in own.items():
                verdicts[f"{algorithm}: {rule} {claim}"] = _verdict(conditions)
                every[claim] += conditions
        for claim, conditions in every.items():
            verdicts[f"all: {rule} {claim}"] = _verdict(conditions)
    return verdicts


def _verdict(conditions: Sequence[comparison.Condition]) -> str:
    return comparison.verdict(conditions) if conditions else UNKNOWN


def _map(settings: Settings, group: Sequence[Outcome], rule: str) -> list[list[float]]:
    """Share that failed, by the law of the step (rows) and the law that is run on."""
    count, place = len(settings.laws), list(RULES).index(rule)
    shares = np.zeros((count, count))
    parts = [taken(settings, one, CARRIED, which) for one in group for which in SETS]
    failed = by_instance(np.concatenate([part.failed[..., place] for part in parts]).T)
    for (run, chosen), share in zip(pairs_of(settings, CARRIED), failed, strict=True):
        shares[chosen, run] = share
    return shares.tolist()


def _trials(found: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Trials and gradients of each rule over all cases and laws, and what is at an edge still."""
    table = {rule: {"trials": 0, "gradients": 0, "edges": []} for rule in RULES}
    for outcome in found:
        for law, rows in outcome.tuning.items():
            for rule, trials, gradients, edges in rows:
                table[rule]["trials"] += trials
                table[rule]["gradients"] += gradients
                if edges:
                    table[rule]["edges"].append(f"{outcome.algorithm}, {outcome.data}, {law}")
    return table


def algorithms_of(found: Numbers) -> list[str]:
    """Those that were run; files of numbers keep no order."""
    return [name for name in ALGORITHMS if name in found["maps"]]


def scenes_of(found: Numbers) -> list[str]:
    """All scenes but that of steps that are carried."""
    return [scene for scene in (UNTUNED, *SCENES) if scene in found["scenes"]]


def share_text(row: Numbers) -> str:
    """A share that failed and its interval, in percent.

    Example:
        >>> share_text({"failed": 0.125, "interval": [0.1, 0.2]})
        '12 (10 to 20)'
    """
    low, high = row["interval"]
    if math.isnan(row["failed"]):
        return "n/a"
    return f"{100 * row['failed']:.0f} ({100 * low:.0f} to {100 * high:.0f})"


_HEADINGS = (
    "diverged, %",
    "failed, % (interval)",
    "median",
    "worst",
    "over tuned constant",
    "more than 2x that, %",
    "own step fails, %",
    "failed, set B",
)


def _cells(sets: Numbers, rule: str) -> tuple[str, ...]:
    row = sets[SET_A][rule]
    return (
        f"{100 * row['diverged']:.0f}",
        share_text(row),
        format_number(row["median"]),
        format_number(row["worst"]),
        format_number(row["to tuned constant"]),
        f"{100 * row['behind']:.0f}",
        f"{100 * row['own missed']:.0f}",
        share_text(sets[SET_B][rule]),
    )


def _table(
    named: Sequence[str], groups: Sequence[tuple[tuple[str, ...], Numbers]], text: str
) -> results.Table:
    """Rows of all rules for each group, whose names stand beside the first."""
    rows = [
        (*(names if rule == CONSTANT else ("",) * len(names)), rule, *_cells(sets, rule))
        for names, sets in groups
        for rule in RULES
    ]
    columns = [results.Column(name, right=False) for name in (*named, "rule")]
    columns += [results.Column(heading) for heading in _HEADINGS]
    return results.Table(tuple(columns), tuple(rows), text)


def carried_table(found: Numbers) -> results.Table:
    """The table that answers the question: all data sets of an algorithm together, set A."""
    groups = [((name,), found["scenes"][CARRIED][name]) for name in algorithms_of(found)]
    return _table(
        ("algorithm",),
        groups,
        f"A step chosen on one law of delays, used on another, {len(found['laws'])} laws, all"
        f" pairs, {found['instances']} instances a set. Failed: it diverged, or needs more than"
        f" {FACTOR:g} times the updates to {100 * found['level']:g} % of the way that the same"
        f" rule needs with the step chosen on the law itself (at most {found['n_updates']:,});"
        " median and worst are of that ratio. Pairs in which even that step is not there in time"
        " ('own step fails') say nothing of the transfer and are left out of these three. 'Over"
        " tuned constant': median of the updates over those of a constant step chosen on the law"
        " itself; next to it how many diverged or need more than twice as many, all pairs.",
    )


def case_table(found: Numbers) -> results.Table:
    """The same a data set."""
    groups = [
        ((case,), sets)
        for name in algorithms_of(found)
        for case, sets in sorted(found["cases"].items())
        if case.startswith(name)
    ]
    return _table(("case",), groups, "The same a data set, set A.")


def scene_table(found: Numbers) -> results.Table:
    """Theory steps, delays that change, a worker that stalls."""
    groups = [
        ((scene, name), found["scenes"][scene][name])
        for scene in scenes_of(found)
        for name in algorithms_of(found)
    ]
    return _table(
        ("scene", "algorithm"),
        groups,
        "The same columns. At the theory step nothing is tuned: gamma' for all, but the safe"
        " constant is told the longest delay. In the others the step was chosen on even workers"
        " ('straggler, then even': on the straggler), and 'own' is a step chosen on such runs.",
    )


def short_scenes(found: Numbers) -> results.Table:
    """What became of the rules in the other scenes, three shares an algorithm."""
    algorithms, rows = algorithms_of(found), []
    for scene in scenes_of(found):
        for rule in RULES:
            own = [found["scenes"][scene][name][SET_A][rule] for name in algorithms]
            shares = [(row["diverged"], row["failed"], row["behind"]) for row in own]
            cells = [
                " / ".join("n/a" if math.isnan(one) else f"{100 * one:.0f}" for one in three)
                for three in shares
            ]
            rows.append((scene if rule == CONSTANT else "", rule, *cells))
    named = ("scene", "rule", *algorithms)
    return results.Table(
        tuple(results.Column(name, right=name in algorithms) for name in named),
        tuple(rows),
        "Percent of runs, set A: diverged / failed / diverged or more than twice the updates of the"
        " tuned constant.",
    )


def verdict_table(found: Numbers) -> results.Table:
    """The verdicts by rule on both sets of instances."""
    rows = []
    for claim in (FEWER, FASTER):
        for rule in RULES:
            names = ["all", *algorithms_of(found)]
            keys = [f"{name}: {rule} {claim}" for name in names]
            if rule != CONSTANT:
                cells = [
                    " / ".join(dict.fromkeys(found["verdicts"][which][key] for which in SETS))
                    for key in keys
                ]
                rows.append((claim, rule, *cells))
    named = ("claim", "rule", "all", *algorithms_of(found))
    return results.Table(
        tuple(results.Column(name, right=False) for name in named),
        tuple(rows),
        "Steps carried to other delays, against a constant carried alike: verdicts from paired"
        " differences over instances, a condition a data set; two where the sets disagree.",
    )


def trial_table(found: Numbers) -> results.Table:
    """Trials of each rule."""
    rows = [
        (rule, own["trials"], own["gradients"], "; ".join(own["edges"]) or "none")
        for rule, own in ((rule, found["tuning"][rule]) for rule in RULES)
    ]
    columns = (
        results.Column("rule", right=False),
        results.Column("trials"),
        results.Column("gradient evaluations"),
        results.Column("at an edge", right=False),
    )
    return results.Table(columns, tuple(rows), "Trials over all cases and laws.")


def figures(found: Numbers) -> tuple[Drawing, ...]:
    """A map of failures an algorithm, a panel a rule."""
    return tuple(
        (
            name.lower().replace("-", "_"),
            heat_map(found, name),
            f"{name}: share of runs, in percent, that diverged or needed more than {FACTOR:g} times"
            " the updates, by the law on which the step was chosen (rows) and the law that was met"
            " (columns); all data sets, both sets of instances.",
        )
        for name in algorithms_of(found)
    )


def heat_map(found: Numbers, algorithm: str) -> Any:
    """Panels of one algorithm, a rule each."""
    laws, maps = found["laws"], found["maps"][algorithm]
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
                axes.text(
                    column,
                    row,
                    f"{100 * share:.0f}",
                    ha="center",
                    va="center",
                    color="white" if share > 0.55 else "black",
                    size=9,
                )
            axes.set_title(rule)
            axes.set_xticks(range(len(laws)), laws, rotation=90)
            axes.set_yticks(range(len(laws)), laws)
            axes.set_ylim(len(laws) - 0.5, -0.5)
            axes.tick_params(length=0, labelbottom=False, labeltop=axes in grid[0])
        for axes in grid.flat[len(maps) :]:
            axes.set_visible(False)
        bar = figure.colorbar(
            colours, ax=list(grid.flat[len(maps) :]), location="bottom", aspect=20, fraction=0.4
        )
        bar.set_label("share that failed")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        figure.supylabel("step chosen on", size=12)
        figure.suptitle("run on", size=12)
    return figure
