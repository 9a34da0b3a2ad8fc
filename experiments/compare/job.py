"""Which way of training copes best with uneven workers? The main job of asyncjax.

A small network learns handwritten digits on simulated workers of very different speed, each with
its own skewed share of the data. Nine ways of training get the same simulated time, the same
workers (the duration of job j of worker i is the same for all), and as many trials of their step
size: the step that is first at the target on some instances is reported on others. An instance has
shards, workers and a first model of its own. Run it with `make run` or
`python -m experiments.compare`; `--set B` reports a second, disjoint set of instances, whose steps
are chosen on others, too.

A time to a target is that of the record from which on a run stays there until the end.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results, storage
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import disagreements
from asyncjax.results.tables import format_number, format_spread
from asyncjax.study import protocol, search as tuning, summary
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common.data import split_digits
from experiments.common.methods import METHODS, Method
from experiments.common.reaching import last_within, times_to_stay, wasted
from experiments.common.sets import SETS
from experiments.compare import report
from experiments.compare.runs import UNIT, Outcome, Settings, field_of, reported, tuned_alike

NAME = "compare"
TITLE = "Which way of training copes best with uneven workers?"
PAGE = part.ROOT / "docs" / "main_job.md"
COMMAND = "python -m experiments.compare --commit, with --set A and --set B"
PAPERS = tuple(dict.fromkeys(report.PAPERS.values()))
FACTS_OF = ("instances", "tuning_instances", "n_workers", "slowest", "horizon", "batch", "hidden")
FACTS_OF += ("concentration", "validation", "target", "records", "seed")
ALIKE = 0.9  # of an even share: a method that uses every worker at least so much uses all alike

BEFORE = "is at the target before"
CLAIMS = tuple(
    Claim(text, [condition])
    for text, condition in {
        f"pure async {BEFORE} synchronous rounds": less("pure async", "synchronous"),
        f"waiting for the faster half {BEFORE} waiting for all": less(
            "fastest half", "synchronous"
        ),
        f"pure async {BEFORE} every other method": less("pure async"),
        "shuffled async needs fewer gradients than every other method": less(
            "shuffled async", column="gradients"
        ),
        f"a tuned constant step {BEFORE} Adaptive 1 and 2": less(
            "pure async", ("Adaptive 1", "Adaptive 2")
        ),
        f"scaling by staleness {BEFORE} a constant step": less("staleness scaled", "pure async"),
        "pure async has the lowest final loss": less("pure async", column="final_loss"),
    }.items()
)


def study_of(settings: Settings) -> Result:
    """Runs all methods on one set; the committed rows of the other set stand behind, if alike."""
    return beside(as_rows(settings, outcomes_of(settings)))


def outcomes_of(settings: Settings, methods: Sequence[Method] = METHODS) -> list[Outcome]:
    """Tunes and runs all methods, prints progress."""
    print(
        f"{len(methods)} ways of training, {settings.n_workers} workers,"
        f" {settings.instances} instances of set {settings.set}; step sizes tuned on"
        f" {settings.tuning_instances} others",
        flush=True,
    )
    found = tuned_alike(settings, methods, partial(print, flush=True))
    field, outcomes = field_of(settings, protocol.SETS[settings.set], settings.instances), []
    with ThreadPoolExecutor(settings.threads) as pool:
        runs = pool.map(lambda one: reported(settings, one, field, found[one.name]), methods)
        for place, outcome in enumerate(runs, start=1):
            outcomes.append(outcome)
            print(
                f"[{place}/{len(methods)}] {outcome.method.name:<17}"
                f" {outcome.trace.n_updates:>5} updates, step {outcome.step_size:.4g}",
                flush=True,
            )
    return outcomes


def as_rows(settings: Settings, outcomes: Sequence[Outcome]) -> Result:
    """A row an instance and method; `time_0.8` and so on are times to further targets."""
    rows = []
    for one in outcomes:
        read = partial(
            times_to_stay, horizon=settings.horizon, time=one.time, accuracy=one.accuracy
        )
        last = partial(last_within, settings.horizon, one.time)
        columns = {
            "scene": "digits",
            "set": settings.set,
            "instance": range(len(one.summaries)),
            "method": one.method.name,
            "step": one.step_size,
            "trials": len(one.tuned.trials),
            "tuning_gradients": len(one.tuned.trials) * one.tuned.gradients,
            "at_edge": bool(one.tuned.edges),
            "horizon": settings.horizon,
            "time": read(settings.target),
            "gradients": read(settings.target, axis=one.computed.astype(float)),
            "final_loss": last(one.loss),
            "final_accuracy": last(one.accuracy),
        }
        for name in ("delay_mean", "delay_max", "utilisation"):
            columns[name] = [float(getattr(each, name)) for each in one.summaries]
        columns["thrown_away"] = [float(wasted(each)) for each in one.summaries]
        columns["least_share"] = [
            each.n_workers * min(each.used_by_worker) / each.used for each in one.summaries
        ]
        columns |= {f"time_{level:g}": read(level) for level in settings.levels}
        rows.append(pd.DataFrame(columns))
    counts = {name: len(labels) for name, (_, labels) in split_digits(settings.validation).items()}
    facts = {name: getattr(settings, name) for name in FACTS_OF}
    facts |= {"rows": counts, "tuned apart": True}
    return Result(pd.concat(rows, ignore_index=True), "time", facts, settings.seed)


def beside(result: Result) -> Result:
    """The rows of a set, and behind them the committed ones of the other, if settings are alike."""
    try:
        other = part.committed(NAME)
    except FileNotFoundError:
        return result
    left = other.rows[~other.rows["set"].isin(result.sets)]
    if other.facts != result.facts or set(left["method"]) != set(result.methods):
        return result
    return replace(result, rows=pd.concat([result.rows, left], ignore_index=True))


def relations(result: Result, letter: str) -> dict[tuple[str, str], int]:
    """For every pair of methods -1 where the first is significantly earlier, 1 later, 0 neither."""
    pairs = list(combinations(sorted(result.methods), 2))
    level = 1 - 0.05 / max(len(pairs), 1)
    found = {pair: result.difference(*pair, letter, level=level) for pair in pairs}
    return {pair: int(gap.low > 0) - int(gap.high < 0) for pair, gap in found.items()}


def differing_of(result: Result) -> dict[str, tuple[str, ...]]:
    """The claims on which sets A and B differ, and what each of the two says."""
    said = result.verdicts(CLAIMS)
    return disagreements(*({c: words[one] for c, words in said.items()} for one in SETS))


def agreement(result: Result) -> str:
    """Whether the two sets agree, in words."""
    if missing := [letter for letter in SETS if letter not in result.sets]:
        return f"Set {missing[0]} has not been run: nothing to compare with."
    said, differing = result.verdicts(CLAIMS), differing_of(result)
    first, second = (np.array([*relations(result, one).values()]) for one in SETS)
    same, neither = np.sum(first * second > 0), np.sum((first == 0) & (second == 0))
    against = np.sum(first * second < 0)
    listed = "; ".join(f"{claim} ({a} | {b})" for claim, (a, b) in differing.items())
    return (
        f"Two disjoint sets of {result.facts['instances']} instances "
        + (f"differ in {len(differing)} of" if differing else "agree in all")
        + f" {len(said)} verdicts{f': {listed}' if listed else ''}. Of {len(first)} pairs of"
        f" methods {same} differ significantly the same way in both, {neither} in neither,"
        f" {len(first) - same - neither - against} in one only, {against} in opposite ways."
    )


def answer(result: Result) -> str:
    """Who is first, by how much, who is level, and whether the sets agree."""
    letter, facts = result.sets[0], result.facts
    ranks, spreads = _ranks(result, letter), _spreads(result, letter)
    medians = {name: spread.median for name, spread in spreads.items()}
    rows = result.select(set=letter).groupby("method")
    goal, first = f"{100 * facts['target']:g} % test accuracy", ranks.index[0]
    if not np.isfinite(medians[first]):
        accuracy = rows["final_accuracy"].median()[[*result.methods]]
        return (
            f"No way of training reaches {goal} within {facts['horizon']:g} units of simulated"
            f" time; {accuracy.idxmax()} comes closest, with {100 * accuracy.max():.3g} %."
        )
    ends = (getattr(spreads[first], name) for name in ("median", "low", "high"))
    words = [
        "{} is first at {}, after {} units of simulated time (quartiles over instances {} to {}; a"
        " unit is the {}).".format(
            first[:1].upper() + first[1:], goal, *map(format_number, ends), UNIT
        )
    ]
    if "synchronous" in medians and first != "synchronous" and facts["instances"] > 1:
        lead = result.ratio("synchronous", first, set=letter).iloc[0]
        cut = "" if np.isfinite(rows["time"].max()["synchronous"]) else "more than "
        words.append(
            f"Synchronous rounds need {cut}{lead['ratio']:.2g} times as long"
            f" ({lead['low']:.2g} to {lead['high']:.2g})."
        )
    if level := [name for name in ranks.index[1:] if ranks["with_best"][name]]:
        told = [f"{name} ({_median(spreads[name])})" for name in level]
        words.append(f"No significant difference from it: {', '.join(told)}.")
    if missed := [name for name in ranks.index if not np.isfinite(medians[name])]:
        words.append(f"Not reached within {facts['horizon']:g}: {', '.join(missed)}.")
    least = rows["least_share"].median() if "least_share" in result.rows else {first: np.inf}
    if least[first] < ALIKE:  # what its speed may cost
        said = f"It uses its least used worker {least[first]:.2g} times as often as an even share"
        alike = [n for n in ranks.index if least[n] >= ALIKE and np.isfinite(medians[n])]
        after = [f"is {name}, after {format_number(medians[name])}" for name in alike[:1]]
        words.append("; the first of those that use all alike ".join([said, *after]) + ".")
    return " ".join([*words, agreement(result)])


def _ranks(result: Result, letter: str) -> Any:
    """Methods in the order of their mean logarithm of the time, with their places."""
    return result.rank(set=letter).set_index("method")


def _spreads(result: Result, letter: str, column: str = "time") -> Any:
    """By method quartiles of what may never come, none of them made of an infinity."""
    found = {}
    for name in result.methods:
        rows = result.select(method=name, set=letter)
        end = 1e18 if column == "gradients" else rows["horizon"].iloc[0]
        known = protocol.reached(rows[column].to_numpy(float), end)
        low, median, high = (np.inf if one is None else one for one in known.quartiles)
        found[name] = results.Spread(median, low, high, known.share)
    return pd.Series(found)


def _median(spread: results.Spread) -> str:
    return format_spread(spread).partition(" (")[0]


def main_table(result: Result) -> results.Table:
    """One row a method, in the order of the first set."""
    goal, sets = f"{100 * result.facts['target']:g} %", result.sets
    ranks = {letter: _ranks(result, letter)[["best_rank", "worst_rank"]] for letter in sets}
    times = {letter: _spreads(result, letter).map(format_spread) for letter in sets}
    medians = result.select(set=sets[0]).groupby("method").median(numeric_only=True)
    steps = {s: result.select(set=s).groupby("method")["step"].first() for s in sets}
    columns = {
        **{
            f"rank, {letter}": rank.apply(lambda ends: " to ".join(map(str, ends.unique())), axis=1)
            for letter, rank in ranks.items()
        },
        **{
            f"step, {letter}": column.map(lambda s: f"1/{1 / s:.3g}" if s < 1 else f"{s:.3g}")
            for letter, column in steps.items()
        },
        **{
            f"time to {goal}, {letter}": column.str.replace("–", " to ")
            for letter, column in times.items()
        },
        f"gradients to {goal}": _spreads(result, sets[0], "gradients").map(_median),
        "final loss": medians["final_loss"].map(format_number),
        "mean (max) delay": medians["delay_mean"].map(format_number)
        + medians["delay_max"].map(" ({:.0f})".format),
        "utilisation": medians["utilisation"].map("{:.2f}".format),
        "thrown away": medians["thrown_away"].map("{:.2g}".format),
    }
    return part.table(
        ("method", *columns),
        pd.DataFrame(columns).loc[ranks[sets[0]].index].itertuples(),
        f"Median (quartiles) over {result.facts['instances']} instances a set; an instance has"
        " shards, workers and a first model of its own. The end is at"
        f" {result.facts['horizon']:g}; a time is that after which a run stays at the target until"
        " the end. Rank: those that the instances leave open, by the paired ratios of the times;"
        " all pairs share a doubt of 5 %. 'Thrown away': share of delivered or cancelled gradients"
        " that never entered a step.",
    )


def targets_table(result: Result) -> results.Table:
    """One row a method: times to further targets in the set that was run."""
    letter = result.sets[0]
    shown = result.select(set=letter).dropna(axis="columns", how="all")
    levels = {n: _spreads(result, letter, n) for n in shown if n.startswith("time_")}
    return part.table(
        ("method", *(f"time to {100 * float(name.removeprefix('time_')):g} %" for name in levels)),
        pd.DataFrame(levels, _ranks(result, letter).index).itertuples(),
        f"The same runs of set {letter}, with steps still chosen for"
        f" {100 * result.facts['target']:g} %: median (quartiles).",
    )


def bars(result: Result) -> Illustration:
    """Times to the target in the first set, first method on top."""
    order = list(_ranks(result, result.sets[0]).index)
    goal = f"{100 * result.facts['target']:g} % test accuracy"
    label = f"simulated time to stay at {goal}\n[{UNIT}]"
    styles = plots.assign_styles(result.methods)
    return Illustration(
        plots.bars(order, [*_spreads(result, result.sets[0])[order]], x_label=label, styles=styles),
        f"Simulated time to stay at {goal}, median and quartiles; shorter is better.",
    )


TABLES = {"main": main_table}
FIGURES = {"times": bars}
FACTS = {
    "agreement": agreement,
    "claims": lambda result: list(result.verdicts(CLAIMS)),
    "differing": differing_of,
    "agreeing": lambda result: (
        f"{len(CLAIMS) - len(differing_of(result))} of {len(CLAIMS)}"  # sets A and B
    ),
    "cut": lambda result: {  # methods of which some run never came, by set
        letter: sorted({*rows.loc[rows["time"] > rows["horizon"], "method"]})
        for letter, rows in result.rows.groupby("set", sort=False)
    },
}


def compare(settings: Settings, methods: Sequence[Method] = METHODS) -> Result:
    """Runs all methods; writes rows, curves and the report, prints the answer."""
    if settings.commit and settings.set not in SETS:
        raise ValueError(f"with commit, set must be A or B, got {settings.set!r}: see third_set.py")
    began = time.perf_counter()
    settings.output.mkdir(parents=True, exist_ok=True)  # fails now, not after minutes
    outcomes = outcomes_of(settings, methods)
    result = beside(as_rows(settings, outcomes))
    result.save(settings.output / f"{NAME}.csv.gz", command=report.command(settings))
    if settings.commit:
        committed = replace(result, rows=result.rows.sort_values("set", kind="stable"))
        committed.save(part.ROWS / f"{NAME}.csv.gz", command=COMMAND)
        part.draw(part.module(NAME), committed)
    columns = ("time", "computed", "version", "loss", "accuracy")
    curves = {f"{o.method.name}/{name}": getattr(o, name) for o in outcomes for name in columns}
    storage.save_arrays(settings.output / "curves.npz", curves)
    tried = tuning.table({one.method.name: one.tuned for one in outcomes})
    tables = {"answer": [main_table(result), targets_table(result)], "tuning": [tried]}
    alone = settings.instances == 1
    tables["claims"] = [] if alone else [summary.verdict_table(result, CLAIMS)]
    words = answer(result)
    written = report.write(settings, outcomes, bars(result), tables, words)
    for table in (tables["answer"][0], tried):
        print(f"\n{results.as_text(table)}")
    print(f"\n{words}\nreport  {written}\nrows    {settings.output / f'{NAME}.csv.gz'}")
    print(f"curves  {settings.output / 'curves.npz'}")
    print(f"done in {time.perf_counter() - began:.0f} s")
    return result


def main() -> None:
    """Reads the settings from the command line and runs the comparison."""
    import tyro

    compare(tyro.cli(Settings, description=__doc__))


if __name__ == "__main__":
    main()
