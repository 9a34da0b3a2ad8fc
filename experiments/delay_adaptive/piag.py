"""Do steps that adapt to the delay beat steps that are safe for the worst one?

Aggregated gradients (PIAG). Wu, Magnússon, Feyzmahdavian, Johansson 2022 (arXiv 2202.08550):
regularised logistic regression, a table of the workers' last gradients, and step sizes from the age
of its oldest row. Adaptive 1 and 2 know no bound on the delays; the fixed rules "sun" (gamma' /
(longest + 1/2)) and "worst case" (gamma' / (longest + 1)) are told the longest delay of their own
run in advance.

Laws of delays: even workers; one of them, drawn, ten times slower; delays drawn from 0..20, with
stamps that never move back or as drawn; a constant delay of 20; and outages, in which one worker
of an otherwise undelayed run is silent for 100 of every 1000 updates. All but the first two, which
come from simulated workers, are sequences of delays of the whole gradient; as drawn from 0..20 they
jump up, which a table's age cannot do.

An instance has four fifths of the rows in an order of its own, workers of its own, and a first
model near 0. Step sizes are chosen on instances that are not reported, with as many trials for
every rule, others for each of the two disjoint sets that are; verdicts follow from them by rule.

A row is a run counted along one axis (updates or time) to one target, a share of the way to the
optimum, with its step size from theory or tuned. A condition of a claim is a scene (data and law of
delays) at a target; a target that neither rule keeps in any run of a scene is no condition. The
conditions of one claim share its doubt of 5 %. Runs that are not there count as the horizon.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import results, steps, traces
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure, set_log
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import FAILS, HOLDS
from asyncjax.study.protocol import LEVELS, SET_A, Seeds, reached
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.delay_adaptive import step_rules as shared
from experiments.delay_adaptive.step_rules import CONSTANT, PAPER, SAFETY, SYNCHRONOUS, THEORY

NAME = "piag"
TITLE = "Aggregated gradients: do steps that adapt to the delay beat steps safe for the worst one?"
PAPERS = (PAPER,)
SHAPE = 30.0  # of the gamma law of a job's time: a deviation of 18 %
EVEN, SLOW = "even workers", "one 10x slow"
WORKERS = (EVEN, SLOW)
CONSTANT_DELAY = "constant 20"
SEQUENCES = ("uniform 0..20, in order", "uniform 0..20, as drawn", CONSTANT_DELAY, "outages")
OURS, FIXED, INVERSE = "Adaptive 1", "sun", "c/(delay+1)"


@dataclass(frozen=True)
class Settings(shared.Settings):
    """What is run; cases that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/piag")
    laws: tuple[str, ...] = WORKERS + SEQUENCES
    trials: int = 4


def sequence(law: str, n_updates: int, seed: int) -> np.ndarray:
    """Delays of the whole gradient, int64[K].

    Args:
        law: One of `SEQUENCES`.
        n_updates: K.
        seed: Of the drawn delays.
    """
    k = np.arange(n_updates)
    if law == CONSTANT_DELAY:
        return np.minimum(20, k)
    if law == "outages":
        return np.maximum(k % 1000 - 899, 0)
    at_random = np.minimum(np.random.default_rng(seed).integers(0, 21, n_updates), k)
    return at_random if law.endswith("as drawn") else k - np.maximum.accumulate(k - at_random)


def task_of(chosen: shared.Regularized, law: str, n_updates: int, instance: Seeds) -> shared.Task:
    """Simulated workers, with a row of the table each; or delays of the whole gradient."""
    if law in WORKERS:
        problem, n_workers = chosen.shards, chosen.shards.n_workers or 1
        trace = workers_trace(traces.Rule(), law, n_workers, n_updates, instance)
        ages = steps.table_delays(trace.worker, trace.delay, n_workers)
    else:
        problem, ages = chosen.whole, sequence(law, n_updates, instance.noise())
        trace = traces.from_delays(ages)
    step_size, longest = SAFETY / chosen.smoothness.root_mean_square, float(ages.max())
    fixed = {FIXED: step_size / (longest + 0.5), "worst case": step_size / (longest + 1)}
    problem = shared.first_model(problem, instance)
    return shared.Task(instance, problem, trace, ages, step_size, chosen.optimum, fixed)


def workers_trace(
    rule: Any, law: str, n_workers: int, n_updates: int, instance: Seeds
) -> traces.EventTrace:
    """What simulated workers deliver to a server."""
    clock = shared.workers(n_workers, instance, SHAPE, one_slow=law == SLOW)
    key = jax.random.key(instance.noise())
    return rule.trace(clock, n_updates=n_updates, key=key)


def synchronous_task(
    chosen: shared.Regularized, law: str, n_updates: int, instance: Seeds
) -> shared.Task:
    """Proximal gradient in rounds that wait for all, as many gradients; its theory step is h/L."""
    n = chosen.shards.n_workers or 1
    n_rounds, problem = n_updates // n, shared.first_model(chosen.shards, instance)
    trace = workers_trace(traces.Synchronous(n), law, n, n_rounds, instance)
    ages, step = np.zeros(n_rounds, int), SAFETY / chosen.smoothness.objective
    return shared.Task(instance, problem, trace, ages, step, chosen.optimum, {SYNCHRONOUS: step})


@cache
def _aggregated(name: str, instances: tuple[Seeds, ...]) -> shared.Numbered:
    """Optimizers of PIAG for all instances of a data set."""
    parts = [
        shared.first_model(shared.regularized(name, one.data).shards, one) for one in instances
    ]
    return shared.aggregated(parts, shared.SOURCES[name].l1)


@cache
def descending(l1: float) -> shared.Numbered:
    """Optimizers that step along the whole gradient."""
    return shared.Numbered(lambda rule, place: steps.descent(rule, prox=steps.l1(l1)))


def case_of(settings: Settings, name: str, law: str) -> list[shared.Arm]:
    """A data set and a law with all instances; of simulated workers also rounds."""
    every, plain = settings.record_every, descending(shared.SOURCES[name].l1)
    tasks = [task_of(*one) for one in shared.asked(settings, name, law)]
    if law not in WORKERS:
        return [shared.Arm(tasks, plain, every)]
    rounds = [synchronous_task(*one) for one in shared.asked(settings, name, law)]
    aggregated = _aggregated(name, tuple(one.instance for one in tasks))
    slower = shared.Arm(rounds, plain, max(1, every // 5), {SYNCHRONOUS: CONSTANT})
    return [shared.Arm(tasks, aggregated, every), slower]


def study_of(settings: Settings) -> Result:
    """Runs all cases, step sizes chosen on instances of their own."""
    return shared.result_of(settings, case_of, WORKERS)


# Claims, for block descent too.


def _ahead(
    text: str, rival: str, levels: Sequence[float] = LEVELS, source: str = PAPER, **where: Any
) -> Claim:
    """That Adaptive 1 needs less than a rival, to every level."""
    kind = {"each": True, "arriving": True, "tuned_for": THEORY, "axis": shared.UPDATES, **where}
    asked = [less(OURS, than=rival, text=f"{100 * to:g} %", to=to, **kind) for to in levels]
    return Claim(text, asked, source)


SAFE = _ahead(
    "where delays vary, Adaptive 1 needs fewer updates than a step safe for the longest",
    FIXED,
    delays=lambda law: ~law.str.contains("constant"),
)
STEADY = _ahead(
    "where delays are constant, Adaptive 1 needs fewer updates than such a step, too",
    FIXED,
    delays=lambda law: law.str.contains("constant"),
)
TUNED_ALIKE = _ahead(
    "tuned alike, Adaptive 1 needs fewer updates than a constant step",
    CONSTANT,
    LEVELS[-1:],
    "asked here",
    tuned_for=shared.TUNED,
)
NAIVE = _ahead("at gamma', Adaptive 1 needs fewer updates than c / (delay + 1)", INVERSE)
ROUNDS = _ahead(
    "at theory steps, Adaptive 1 takes less time than synchronous rounds",
    SYNCHRONOUS,
    axis=shared.TIME,
)
SHORT = {SAFE: "safe", STEADY: "steady", TUNED_ALIKE: "tuned", NAIVE: "naive", ROUNDS: "rounds"}


def levels(result: Result) -> list[float]:
    """Targets, shares of the way."""
    return sorted(result.rows["to"].unique())


def scenes(result: Result) -> list[str]:
    """Data and laws of delays, in order."""
    return sorted(result.rows["scene"].unique())


def verdict_table(claims: Sequence[Claim], result: Result) -> results.Table:
    """What each set says of every claim."""
    text = "A condition is a case at a target (tuned: at the last)."
    return shared.counted_verdicts(result, claims, text)


def _where(
    scene: str, to: Any, tuned_for: str = THEORY, axis: str = shared.UPDATES
) -> dict[str, Any]:
    return {"scene": scene, "to": to, "tuned_for": tuned_for, "axis": axis}


def _cell(result: Result, letter: str, rival: str, **where: Any) -> str:
    """What a rival needs over what Adaptive 1 needs: ">" if it was not there in some runs.

    "<" if Adaptive 1 was not, "about" if neither.
    """
    rows = result.select(set=letter, method=[OURS, rival], **where)
    if rival not in {*rows["method"]}:
        return ""
    late = (rows["needed"] > rows["horizon"]).groupby(rows["method"])
    if late.all().all():
        return "nobody there"
    ratio = result.ratio(rival, OURS, set=letter, where=where).iloc[0]
    sign = {0: "", 1: "> ", 2: "< ", 3: "about "}[late.any()[rival] + 2 * late.any()[OURS]]
    return f"{sign}{ratio['ratio']:.3g} ({ratio['low']:.3g} to {ratio['high']:.3g})"


def _by_scene(
    result: Result, heads: Iterable[str], cells: Callable[[str], Iterable[str]], text: str
) -> results.Table:
    """A row a scene: data, delays, and what `cells` says of it."""
    rows = [(*scene.split(", ", 1), *cells(scene)) for scene in scenes(result)]
    return part.table(("data", "delays", *heads), rows, text, left=2)


def theory_table(result: Result) -> results.Table:
    """The table that answers the question: Adaptive 1 against the safe step, theory steps."""
    targets = levels(result)
    pairs = [(letter, to) for letter in result.sets for to in targets[1:]]

    def cells(scene: str) -> list[str]:
        rows = result.select(
            set="A", method=OURS, scene=scene, tuned_for=THEORY, axis=shared.UPDATES
        )
        horizon, once = rows["horizon"].iloc[0], rows[rows["to"] == targets[0]]
        middle = [reached(one, horizon).quartiles[1] for _, one in rows.groupby("to")["needed"]]
        return [
            f"{once['longest'].median():.0f} ({np.mean(once['mean_delay'].tolist()):.1f})",
            " / ".join("never" if count is None else f"{count:,.0f}" for count in middle),
            *(_cell(result, letter, FIXED, **_where(scene, to)) for letter, to in pairs),
            f"{predicted(result, scene, 'A'):.3g}",
        ]

    return _by_scene(
        result,
        (
            "longest (mean)",
            f"Adaptive 1, updates to {' / '.join(f'{100 * to:g} %' for to in targets)}",
            *(f"{FIXED} / it to {100 * to:g} %, {letter}" for letter, to in pairs),
            "predicted",
        ),
        cells,
        "Updates from which a target is kept, theory steps: median of set A, and paired ratios"
        " (geometric mean, interval of 95 %) of both sets. Runs that were not there in"
        f" {result.rows['horizon'].max():,.0f} updates count as that many: '>' where they are runs"
        f" of {FIXED}, '<' of Adaptive 1, 'about' of both.",
    )


def tuned_table(result: Result) -> results.Table:
    """All rules at their best multiple of gamma', the last target."""
    first, *rest = result.sets
    rivals = [(f"{CONSTANT} / Adaptive 1, {first}", CONSTANT, first)]
    rivals += [(letter, CONSTANT, letter) for letter in rest]
    rivals += [(f"{rule} / it, A", rule, "A") for rule in ("Adaptive 2", INVERSE)]

    def cells(scene: str) -> list[str]:
        where = _where(scene, levels(result)[-1], shared.TUNED)
        chosen = result.select(instance=0, **where)
        pairs = chosen.pivot(index="method", columns="set", values="multiple")
        ours = chosen[chosen["method"] == OURS]
        return [
            *(_cell(result, letter, rule, **where) for _, rule, letter in rivals),
            ", ".join(_both(pairs.loc[rule], ".3g") for rule in shared.RELATIVE),
            _both(ours["trials"], ".0f"),
            _both(ours["gradients"], ",.0f"),
            ", ".join(chosen["method"][chosen["at_edge"].astype(bool)].unique()) or "none",
        ]

    heads = [head for head, *_ in rivals]
    return _by_scene(
        result,
        (*heads, "multiples of gamma'", "trials a rule", "gradients a rule", "at an edge"),
        cells,
        "The same with every rule at its best multiple of gamma' (Adaptive 1, Adaptive 2,"
        " c/(delay+1), constant), searched on other instances for each set (A / B), to the last"
        " target.",
    )


def _both(values: Iterable[float], form: str) -> str:
    """Numbers of the sets, one where they are the same."""
    return " / ".join(dict.fromkeys(f"{value:{form}}" for value in values))


def predicted(result: Result, scene: str, letter: str) -> float:
    """The ratio of the sums of the steps, Adaptive 1 over the fixed rule, geometric mean."""
    rows = result.select(set=letter, **_where(scene, levels(result)[-1]))
    sums = rows.pivot(index="instance", columns="method", values="step_sum")
    return float(np.exp(np.log(sums[OURS] / sums[FIXED]).mean()))


def points(result: Result) -> dict[str, tuple[float, float, bool]]:
    """By scene what is predicted, and by how much Adaptive 1 is ahead.

    At the tightest target that all runs of both keep; where there is none, at the tightest that all
    runs of Adaptive 1 keep: a lower bound, and True.
    """
    found = {}
    for scene in scenes(result):
        rows = result.select(set="A", method=[OURS, FIXED], **_where(scene, levels(result)))
        wide = rows.pivot_table("needed", "to", "method", "max")
        for bound, rules in enumerate(([OURS, FIXED], [OURS])):
            targets = wide.index[np.isfinite(wide[rules]).all(axis=1)]
            if len(targets):
                where = _where(scene, targets.max())
                ratio = float(result.ratio(FIXED, OURS, set="A", where=where)["ratio"].iloc[0])
                found[scene] = predicted(result, scene, "A"), ratio, bool(bound)
                break
    return found


def told(claims: Sequence[Claim], result: Result) -> dict[str, dict[str, dict[str, int]]]:
    """In how many conditions of a claim Adaptive 1 is ahead and behind, by set and in both."""
    found = {}
    for claim in claims:
        by_set = {one: result.conditions(claim, one) for one in result.sets}
        words = pd.DataFrame(
            {s: {c.text: c.verdict for c in conditions} for s, conditions in by_set.items()}
        )
        words["both"] = words[result.sets[0]].where(words.nunique(axis=1, dropna=False) == 1)
        counts = {"ahead": (words == HOLDS).sum(), "behind": (words == FAILS).sum()}
        table = pd.DataFrame({**counts, "of": words.count()})
        found[SHORT[claim]] = table.to_dict("index")
    return found


def predictions(result: Result) -> dict[str, float]:
    """How many scenes there are, how many were predicted to 5 %, and the most that one misses."""
    missed = [abs(ratio / expected - 1) for expected, ratio, _ in points(result).values()]
    return {"scenes": len(missed), "near": sum(one < 0.05 for one in missed), "most": max(missed)}


# Figures.


def steps_figure(result: Result) -> Illustration:
    """Delays and steps of one run with a slow worker, the first of set A: what explains the rules.

    The delay profile and the step sequence, one above the other.
    """
    first = result.select(axis=shared.UPDATES).iloc[0]
    data, instance = first["data"], Seeds(0, SET_A, 0)
    chosen = shared.regularized(data, instance.data)
    task = task_of(chosen, SLOW, int(first["horizon"]), instance)
    last = min(len(task.ages), 1400)
    window = np.arange(max(0, last - 500), last)
    styles = plots.assign_styles([*shared.ADAPTIVE[:2], FIXED])
    with drawing():
        figure = new_figure(8.0, 4.6)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.6))
        above.plot(window, task.ages[window], color="0.3", linewidth=1.2)
        above.set_ylabel("delay [updates]")
        above.set_title(f"{data}, {SLOW}")
        for name, rule in shared.PREDICTED.items():
            found = steps.predict_steps(rule, task.ages).step_size[window]
            shown = np.where(found > 0, found, np.nan)
            below.plot(window, shown, ".", markersize=3, color=styles[name].colour, label=name)
        level = np.full(len(window), task.fixed[FIXED] / task.step_size)
        below.plot(window, level, color=styles[FIXED].colour, label=FIXED)
        set_log(below.yaxis, True)
        below.set(ylim=(1e-4, 1.5), ylabel="step / gamma'", xlabel="update")
        for axes in (above, below):
            add_grid(axes)
        figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return Illustration(
        figure,
        "The delays that a run meets (above) and the step sizes that each rule makes of them"
        " (below); those of exactly 0 are not drawn.",
    )


def prediction_figure(result: Result) -> Illustration:
    """What is predicted from the delays against what was measured."""
    shown = {tuple(scene.split(", ", 1)): point for scene, point in points(result).items()}
    data, laws = (list(dict.fromkeys(names)) for names in zip(*shown, strict=True))
    markers, styles = dict(zip(data, "osD^v", strict=False)), plots.assign_styles(laws)
    values = [value for *pair, _ in shown.values() for value in pair]
    ends = 0.8 * min(values), 1.4 * max(values)
    with drawing():
        figure = new_figure(7.4, 4.6)
        axes = figure.subplots()
        axes.plot(ends, ends, color="0.6", linewidth=1, zorder=0)
        for (name, law), (expected, ratio, bound) in shown.items():
            mark = {"color": styles[law].colour, "markersize": 7}
            face: Any = {"markerfacecolor": "none"} if bound else {}
            axes.plot(expected, ratio, markers[name], **mark, **face)
        for law in laws:
            axes.plot([], [], "s", color=styles[law].colour, label=law)
        for name in data:
            axes.plot([], [], markers[name], color="0.3", markerfacecolor="none", label=name)
        for axis in (axes.xaxis, axes.yaxis):
            set_log(axis, True)
        labels = {
            "xlabel": f"sum of the steps of Adaptive 1 over that of {FIXED}",
            "ylabel": f"updates of {FIXED} over those of Adaptive 1",
        }
        axes.set(xlim=ends, ylim=ends, **labels)
        add_grid(axes)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return Illustration(
        figure,
        "Updates saved by Adaptive 1 against the ratio of the sums of the steps, which is known"
        " before the run; the tightest target that all runs of both rules keep, set A. Hollow: the"
        " fixed rule is not there in time in some runs, so the point is a lower bound.",
    )


CLAIMS = tuple(SHORT)
TABLES = {
    "verdicts": partial(verdict_table, CLAIMS),
    "theory": theory_table,
    "tuned": tuned_table,
}
FACTS = {"told": partial(told, CLAIMS), "predictions": predictions}
FIGURES = {"steps": steps_figure, "prediction": prediction_figure}


if __name__ == "__main__":
    part.main(NAME)
