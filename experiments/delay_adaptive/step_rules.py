"""What comparisons of step-size rules say: claims, tables and figures of `piag`, `block_descent`.

A row is a run counted along one axis (updates or time) to one target, a share of the way to the
optimum, with its step size from theory or tuned. A condition of a claim is a scene (data and law of
delays) at a target; a target that neither rule keeps in any run of a scene is no condition. The
conditions of one claim share its doubt of 5 %. Runs that are not there count as the horizon.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from asyncjax import results, steps
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure, set_log
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import LEVELS, reached
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.statistics import FAILS, HOLDS, Condition, verdict
from experiments import part
from experiments.delay_adaptive.step_rules_runs import (
    ADAPTIVE,
    CONSTANT,
    RELATIVE,
    SYNCHRONOUS,
    THEORY,
    TIME,
    TUNED,
    UPDATES,
    Task,
    rule_of,
)

PAPER = "Wu, Magnússon, Feyzmahdavian, Johansson, 2022, delay-adaptive steps (arXiv 2202.08550)"
OURS, FIXED, INVERSE = "Adaptive 1", "sun", "c/(delay+1)"


def _ahead(
    text: str,
    rival: str,
    tuned_for: str = THEORY,
    axis: str = UPDATES,
    levels: Sequence[float] = LEVELS,
    source: str = PAPER,
    **where: Any,
) -> Claim:
    """That Adaptive 1 needs less than a rival, to every level."""
    kind = {"each": True, "arriving": True, "tuned_for": tuned_for, "axis": axis, **where}
    texts = {to: f"{100 * to:g} %" for to in levels}
    asked = [less(OURS, than=rival, text=texts[to], to=to, **kind) for to in levels]
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
    TUNED,
    levels=LEVELS[-1:],
    source="asked here",
)
NAIVE = _ahead("at gamma', Adaptive 1 needs fewer updates than c / (delay + 1)", INVERSE)
ROUNDS = _ahead(
    "at theory steps, Adaptive 1 takes less time than synchronous rounds", SYNCHRONOUS, axis=TIME
)
SHORT = {SAFE: "safe", STEADY: "steady", TUNED_ALIKE: "tuned", NAIVE: "naive", ROUNDS: "rounds"}


def levels(result: Result) -> list[float]:
    """Targets, shares of the way."""
    return sorted(result.rows["to"].unique())


def scenes(result: Result) -> list[str]:
    """Data and laws of delays, in order."""
    return sorted(result.rows["scene"].unique())


def counted_verdicts(result: Result, claims: Sequence[Claim], text: str) -> results.Table:
    """What each set says of every claim, and how many of its conditions hold."""

    def cell(found: Sequence[Condition]) -> str:
        held = sum(one.verdict == HOLDS for one in found)
        return f"{verdict(found)} ({held} of {len(found)})" if found else "nobody is there"

    sets = {f"set {letter}": result.judged(claims, letter) for letter in result.sets}
    asked = [one.text for one in claims if any(one.text in found for found in sets.values())]
    return part.table(
        ("claim (conditions that hold)", *sets),
        [(one, *(cell(found.get(one, ())) for found in sets.values())) for one in asked],
        f"{text} The conditions of a claim share its doubt of 5 %.",
        left=1 + len(sets),
    )


def verdict_table(claims: Sequence[Claim], result: Result) -> results.Table:
    """What each set says of every claim."""
    text = "A condition is a case at a target (tuned: at the last)."
    return counted_verdicts(result, claims, text)


def _where(scene: str, to: Any, tuned_for: str = THEORY, axis: str = UPDATES) -> dict[str, Any]:
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
        rows = result.select(set="A", method=OURS, scene=scene, tuned_for=THEORY, axis=UPDATES)
        horizon, once = rows["horizon"].iloc[0], rows[rows["to"] == targets[0]]
        middle = [reached(one, horizon).quartiles[1] for _, one in rows.groupby("to")["needed"]]
        return [
            f"{once['longest'].median():.0f} ({np.mean(once['mean_delay'].tolist()):.1f})",
            " / ".join("never" if count is None else f"{count:,.0f}" for count in middle),
            *(_cell(result, letter, FIXED, **_where(scene, to)) for letter, to in pairs),
            f"{predicted(result, scene, 'A'):.3g}",
        ]

    heads = (
        "longest (mean)",
        f"Adaptive 1, updates to {' / '.join(f'{100 * to:g} %' for to in targets)}",
        *(f"{FIXED} / it to {100 * to:g} %, {letter}" for letter, to in pairs),
        "predicted",
    )
    return _by_scene(
        result,
        heads,
        cells,
        "Updates from which a target is kept, theory steps: median of set A, and paired ratios"
        " (geometric mean, interval of 95 %) of both sets. Runs that were not there in"
        f" {result.rows['horizon'].max():,.0f} updates count as that many: '>' where they are runs"
        f" of {FIXED}, '<' of Adaptive 1, 'about' of both.",
    )


def tuned_table(result: Result) -> results.Table:
    """All rules at their best multiple of gamma', the last target."""
    first, *rest = ((CONSTANT, letter) for letter in result.sets)
    rivals = {f"{CONSTANT} / Adaptive 1, {first[1]}": first, **{pair[1]: pair for pair in rest}}
    rivals |= {f"{rule} / it, A": (rule, "A") for rule in ("Adaptive 2", INVERSE)}

    def cells(scene: str) -> list[str]:
        where = _where(scene, levels(result)[-1], TUNED)
        chosen = result.select(set="A", instance=0, **where).set_index("method")
        return [
            *(_cell(result, letter, rule, **where) for rule, letter in rivals.values()),
            ", ".join(f"{multiple:.3g}" for multiple in chosen["multiple"][list(RELATIVE)]),
            f"{chosen['trials'][OURS]:.0f}",
            f"{chosen['gradients'][OURS]:,.0f}",
            ", ".join(chosen.index[chosen["at_edge"].astype(bool)]) or "none",
        ]

    return _by_scene(
        result,
        (*rivals, "multiples of gamma'", "trials a rule", "gradients a rule", "at an edge"),
        cells,
        "The same with every rule at its best multiple of gamma' (Adaptive 1, Adaptive 2,"
        " c/(delay+1), constant), searched on other instances, to the last target.",
    )


def others_table(result: Result) -> results.Table:
    """The other rules at theory steps; synchronous rounds, in time."""
    run = {*result.select(tuned_for=THEORY)["method"]}
    asked = {
        f"{rule} / Adaptive 1, A": ("A", rule, THEORY, UPDATES)
        for rule in sorted(run - {OURS, SYNCHRONOUS, FIXED})
    }
    if SYNCHRONOUS in run:
        asked |= {
            f"{SYNCHRONOUS} / it in time, {kind}, {letter}": (letter, SYNCHRONOUS, kind, TIME)
            for kind in (THEORY, TUNED)
            for letter in result.sets
        }
    last = levels(result)[-1]
    return _by_scene(
        result,
        asked,
        lambda scene: [
            _cell(result, letter, rule, **_where(scene, last, *kind))
            for letter, rule, *kind in asked.values()
        ],
        "Updates of the other rules over those of Adaptive 1 at theory steps, and time of"
        " synchronous rounds, which wait for all workers, over its time; the last target.",
    )


TABLES = {"theory": theory_table, "tuned": tuned_table, "others": others_table}


def predicted(result: Result, scene: str, letter: str) -> float:
    """The ratio of the sums of the steps, Adaptive 1 over the fixed rule, geometric mean."""
    rows = result.select(set=letter, **_where(scene, levels(result)[-1]))
    sums = rows.pivot(index="instance", columns="method", values="step_sum")
    return float(np.exp(np.log(sums[OURS] / sums[FIXED]).mean()))


def steps_figure(name: str, task: Task) -> Illustration:
    """Delay profile and step sequence, one above the other: the picture that explains the rules."""
    last = min(len(task.ages), 1400)
    window = np.arange(max(0, last - 500), last)
    styles = plots.assign_styles([*ADAPTIVE[:2], FIXED])
    with drawing():
        figure = new_figure(8.0, 4.6)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.6))
        above.plot(window, task.ages[window], color="0.3", linewidth=1.2)
        above.set_ylabel("delay [updates]")
        above.set_title(name)
        for rule in ADAPTIVE[:2]:
            found = steps.predict_steps(rule_of(rule, 1.0), task.ages).step_size[window]
            shown = np.where(found > 0, found, np.nan)
            colour = styles[rule].colour
            below.plot(window, shown, ".", markersize=3, color=colour, label=rule)
        level = np.full(len(window), task.fixed[FIXED] / task.step_size)
        below.plot(window, level, color=styles[FIXED].colour, label=FIXED)
        set_log(below.yaxis, True)
        below.set_ylim(1e-4, 1.5)
        below.set_ylabel("step / gamma'")
        below.set_xlabel("update")
        for axes in (above, below):
            add_grid(axes)
        figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return Illustration(
        figure,
        "The delays that a run meets (above) and the step sizes that each rule makes of them"
        " (below); those of exactly 0 are not drawn.",
    )


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
            kept = wide.index[np.isfinite(wide[rules]).all(axis=1)]
            if len(kept):
                where = _where(scene, kept.max())
                ratio = float(result.ratio(FIXED, OURS, set="A", where=where)["ratio"].iloc[0])
                found[scene] = predicted(result, scene, "A"), ratio, bool(bound)
                break
    return found


def told(claims: Sequence[Claim], result: Result) -> dict[str, dict[str, dict[str, int]]]:
    """In how many conditions of a claim Adaptive 1 is ahead and behind, by set and in both."""
    found = {}
    for claim in claims:
        words = {
            letter: {one.text: one.verdict for one in result.conditions(claim, letter)}
            for letter in result.sets
        }
        first, last = words[result.sets[0]], words[result.sets[-1]]
        words["both"] = {text: word for text, word in first.items() if last.get(text) == word}
        counts = {letter: list(one.values()) for letter, one in words.items()}
        found[SHORT[claim]] = {
            letter: {"ahead": one.count(HOLDS), "behind": one.count(FAILS), "of": len(one)}
            for letter, one in counts.items()
        }
    return found


def predictions(result: Result) -> dict[str, float]:
    """How many scenes there are, how many were predicted to 5 %, and the most that one misses."""
    missed = [abs(ratio / expected - 1) for expected, ratio, _ in points(result).values()]
    return {"scenes": len(missed), "near": sum(one < 0.05 for one in missed), "most": max(missed)}


def prediction_figure(result: Result) -> Illustration:
    """What is predicted from the delays against what was measured."""
    shown = {tuple(scene.split(", ", 1)): point for scene, point in points(result).items()}
    data, laws = (list(dict.fromkeys(names)) for names in zip(*shown, strict=True))
    markers, styles = dict(zip(data, "osD^v", strict=False)), plots.assign_styles(laws)
    values = [value for *pair, _ in shown.values() for value in pair]
    low, high = 0.8 * min(values), 1.4 * max(values)
    with drawing():
        figure = new_figure(7.4, 4.6)
        axes = figure.subplots()
        axes.plot([low, high], [low, high], color="0.6", linewidth=1, zorder=0)
        for (name, law), (expected, ratio, bound) in shown.items():
            colour = styles[law].colour
            face = "none" if bound else colour
            mark = {"color": colour, "markerfacecolor": face, "markersize": 7}
            axes.plot(expected, ratio, markers[name], **mark)
        for law in laws:
            axes.plot([], [], "s", color=styles[law].colour, label=law)
        for name in data:
            axes.plot([], [], markers[name], color="0.3", markerfacecolor="none", label=name)
        for axis in (axes.xaxis, axes.yaxis):
            set_log(axis, True)
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        axes.set_xlabel(f"sum of the steps of Adaptive 1 over that of {FIXED}")
        axes.set_ylabel(f"updates of {FIXED} over those of Adaptive 1")
        add_grid(axes)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return Illustration(
        figure,
        "Updates saved by Adaptive 1 against the ratio of the sums of the steps, which is known"
        " before the run; the tightest target that all runs of both rules keep, set A. Hollow: the"
        " fixed rule is not there in time in some runs, so the point is a lower bound.",
    )
