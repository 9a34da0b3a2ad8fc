"""Which rule of the family is fastest on the recorded times of real workers?

The recordings come with the library: three training jobs with ten even workers each and a fourth,
uneven one from Alibaba's GPU cluster trace (cluster-trace-gpu-v2020, CC BY 4.0; Xiao et al.,
AntMan, OSDI 2020), and two LLM training jobs (ByteDance-Seed/StragglerAnalysis, Apache-2.0; Lin et
al., OSDI 2025), of which at most ten workers are used. The mean time of all jobs of a recording is
1.

A small network learns handwritten digits, each worker on its own skewed share of them. An instance
draws the shares, the first model, the recording, its workers and the place where it begins. All
rules get the same simulated time, the same workers and as many trials of all their knobs, scored by
the time to the last level on instances that are not shown; two disjoint sets of instances are. A
run that was stopped goes on where it was: what is done is kept in the output folder. Rules and runs
are in `recorded_times_runs`.
"""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_number
from asyncjax.study import protocol
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.statistics import Place, ranks
from experiments import part
from experiments.asynchronous.recorded_times_runs import Settings, columns, rules, run_column
from experiments.common.recordings import spread_of_jobs

NAME = "recorded_times"
TITLE = "Which rule of the family is fastest on the recorded times of real workers?"
PAPERS = (
    "Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",
    "Xiao et al., OSDI 2020, AntMan (Alibaba cluster-trace-gpu-v2020)",
    "Lin et al., OSDI 2025, stragglers in LLM training (ByteDance-Seed/StragglerAnalysis)",
)
NOTE = protocol.FIRST_CROSSING
PAIR = 0.99  # level at which a pair of rules differs for the ranks
CLOSE = 1.2  # times as fast that the claim on even jobs allows
SYNC, PURE = "synchronous", "pure"
EVEN, UNEVEN, TURNS, SLOW = "even jobs", "job 4", "llm sequences", "llm slow worker"


def _faster(said: str, scene: str, than: Any = SYNC) -> Claim:
    """Pure is faster on workers of a kind; than all others where none is named."""
    return Claim(said, [less(PURE, than=than, scene=scene)])


CLAIMS = (
    _faster("on an uneven job pure is faster than synchronous rounds", UNEVEN),
    _faster("on an uneven job pure is faster than every other rule", UNEVEN, ()),
    _faster(
        "on an uneven job pure is faster than rules that ask all alike",
        UNEVEN,
        ("shuffled", "shuffled once", "random"),
    ),
    _faster("with a worker slow for good pure is faster than synchronous rounds", SLOW),
    _faster("with workers late by turns pure is faster than synchronous rounds", TURNS),
    _faster("on even jobs pure is faster than synchronous rounds", EVEN),
    Claim(
        f"on even jobs no rule is {CLOSE:g} times as fast as synchronous rounds",
        [less(SYNC, ratio=CLOSE, scene=EVEN)],
    ),
)


def study_of(settings: Settings) -> Result:
    """Runs all rules on all kinds of workers.

    Raises:
        ValueError: A recording is not known.
    """
    every, told = columns(settings), partial(print, flush=True)
    rows = [row for one in every for row in run_column(settings, one, told)]
    families = [rules(settings, one.n_workers) for one in every]
    knobs = [
        "step",
        *dict.fromkeys(name for one in families for rule in one for name in rule.knobs),
    ]
    times = [f"time_{level:g}" for level in settings.levels]
    facts: dict[str, Any] = {n: getattr(settings, n) for n in ("instances", "tuning_instances")}
    facts |= {"recordings": [*settings.even, *settings.uneven], "knobs": knobs}
    heads = ["scene", "set", "instance", "method", *knobs, *times]
    heads += ["final_accuracy", "utilisation", "thrown_away", "delay_mean"]
    heads += ["horizon", "trials", "tuning_gradients", "at_edge"]
    frame = pd.DataFrame(rows).reindex(columns=heads)
    return Result(frame, times[-1], facts, settings.seed, tuple(times))


def scenes(result: Result) -> list[str]:
    """The kinds of workers."""
    return list(result.rows["scene"].unique())


def levels(result: Result) -> list[str]:
    """The columns of the times to each level; the last is what was tuned for."""
    return list(result.cut or ())


def _percent(column: str) -> str:
    return f"{100 * float(column.removeprefix('time_')):g} %"


def logarithms(result: Result, letter: str, scene: str, column: str) -> dict[str, np.ndarray]:
    """Logarithms of the times to a level, cut, by rule."""
    return {
        rule: np.log(result.values(rule, letter, column, scene=scene).to_numpy()[0])
        for rule in result.methods
    }


def places(result: Result, letter: str, scene: str, column: str) -> dict[str, Place]:
    """Where rules stand by their time to a level."""
    logs = logarithms(result, letter, scene, column)
    return {place.name: place for place in ranks(logs, result.seed, PAIR, 4000)}


def span(place: Place) -> str:
    """The ranks that a rule may have."""
    low, high = place.best_rank, place.worst_rank
    return str(low) if low == high else f"{low}-{high}"


def reached(result: Result, letter: str, scene: str, rule: str, column: str) -> protocol.Reached:
    """What is known of the times of a rule."""
    rows = result.select(set=letter, scene=scene, method=rule)
    return protocol.reached(rows[column], rows["horizon"].iloc[0])


def time_table(result: Result) -> results.Table:
    """Median time to the last level of set A and ranks of both."""
    every, last, rows = scenes(result), levels(result)[-1], []
    stands = {(one, s): places(result, s, one, last) for one in every for s in result.sets}
    means = [logarithms(result, "A", one, last) for one in every]
    order = sorted(
        result.methods, key=lambda rule: (round(sum(own[rule].mean() for own in means), 6), rule)
    )
    for rule in order:
        cells = []
        for one in every:
            middle = reached(result, "A", one, rule, last).quartiles[1]
            said = "never" if middle is None else format_number(middle)
            spans = " / ".join(span(stands[one, letter][rule]) for letter in result.sets)
            cells.append(f"{said} ({spans})")
        rows.append((rule, *cells))
    return part.table(
        ("rule", *every),
        rows,
        f"Time to {_percent(last)} test accuracy, median over {result.facts['instances']} instances"
        " of set A (ranks in set A / in set B: those that the instances leave open at"
        f" {PAIR:.0%} a pair). Never: not by {result.rows['horizon'].iloc[0]:g}. The unit is the"
        " mean time of a recorded job. First is who has the lowest mean logarithm over all.",
    )


def level_table(result: Result) -> results.Table:
    """At every level the share that came, the restricted mean, the rank."""
    pairs = [(column, letter) for column in levels(result) for letter in result.sets]
    heads = ["workers", "rule"]
    for column, letter in pairs:
        heads += [f"{_percent(column)}, {letter}: share", "restricted mean", "rank"]
    rows = []
    for one in scenes(result):
        stands = {pair: places(result, pair[1], one, pair[0]) for pair in pairs}
        for rule in result.methods:
            cells: list[Any] = [one, rule]
            for column, letter in pairs:
                known = reached(result, letter, one, rule, column)
                place = span(stands[column, letter][rule])
                cells += [known.share, known.text(".4g").split(" ")[0], place]
            rows.append(cells)
    return part.table(
        heads,
        rows,
        "Share of the instances that reach a test accuracy within the horizon, mean of the times"
        " cut there, and ranks. Settings are those tuned for the last level.",
        left=2,
    )


def cost_table(result: Result) -> results.Table:
    """How far rules got, how busy and how late they were."""
    names = ("final_accuracy", "utilisation", "thrown_away", "delay_mean")
    rows = [
        (*key, *(results.median_and_spread(own[name].to_numpy()) for name in names))
        for key, own in result.select(set="A").groupby(["scene", "method"], sort=False)
    ]
    return part.table(
        ("workers", "rule", "final accuracy", "utilisation", "thrown away", "mean delay"),
        rows,
        "Set A, median (quartiles) over instances. 'Thrown away' is the share of delivered or"
        " cancelled gradients that never entered a step.",
        left=2,
    )


def setting_table(result: Result) -> results.Table:
    """What was chosen from how many trials; equal for all rules of a column."""
    chosen, knobs = result.select(set="A", instance=0), result.facts["knobs"]
    by = chosen.set_index(["method", "scene"])

    def setting(rule: str, scene: str) -> str:
        own = by.loc[(rule, scene)]
        said = ", ".join(f"{name} {own[name]:.3g}" for name in knobs if own[name] == own[name])
        return said + ("*" if own["at_edge"] else "")

    spent = "; ".join(
        f"{scene}: {own['trials'].iloc[0]} trials, {own['tuning_gradients'].iloc[0]:,} gradients"
        for scene, own in chosen.groupby("scene", sort=False)
    )
    every = scenes(result)
    return part.table(
        ("rule", *every),
        [(rule, *(setting(rule, one) for one in every)) for rule in result.methods],
        f"Settings chosen on {result.facts['tuning_instances']} further instances. Each rule has"
        f" had, {spent}. A star: a value at the end of its grid after the last round.",
        left=1 + len(every),
    )


def recording_table(result: Result) -> results.Table:
    """How uneven the recordings are."""
    named = {"llm_sequences": "LLM, uneven sequences", "llm_slow_worker": "LLM, a slow worker"}
    found = spread_of_jobs(tuple(result.facts["recordings"]))
    rows = []
    for name, workers, _, *ratios, where, busy, gain in found.rows:
        own = [f"{value:.2f}" for value in (*ratios, busy, gain)]
        own.insert(2, f"{100 * where:.0f}")
        rows.append((named.get(name, name.replace("_", " ")), workers, *own))
    heads = (
        "recording",
        "workers",
        "slowest over fastest",
        "coefficient of variation",
        "of 100 jobs more even",
        "busy in rounds that wait for all",
        "gradients without waiting",
    )
    return part.table(heads, rows, found.caption)


TABLES = {
    "times": time_table,
    "levels": level_table,
    "costs": cost_table,
    "settings": setting_table,
    "recordings": recording_table,
}
FACTS = {
    "trials": lambda result: sorted({int(count) for count in result.rows["trials"]}),
    "rules": lambda result: len(result.methods),
}


def bars(result: Result) -> Illustration:
    """The time to the last level on the uneven job, or on the first workers that were run."""
    every, last = scenes(result), levels(result)[-1]
    scene, spreads = UNEVEN if UNEVEN in every else every[0], {}
    for rule in result.methods:
        known = reached(result, "A", scene, rule, last)
        low, middle, high = (np.inf if q is None else q for q in known.quartiles)
        spreads[rule] = results.Spread(middle, low, high, known.share)
    order = sorted(spreads, key=lambda rule: float(spreads[rule].median))
    label = f"time to {_percent(last)} test accuracy [mean recorded job], {scene}"
    return Illustration(
        plots.bars(order, [spreads[rule] for rule in order], x_label=label),
        f"Workers: {scene}, set A. Median and quartiles over instances, none past"
        f" {result.rows['horizon'].iloc[0]:g}.",
    )


FIGURES = {"to target": bars}


if __name__ == "__main__":
    part.main(NAME, quick=True)
