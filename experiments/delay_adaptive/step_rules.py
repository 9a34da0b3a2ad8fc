"""What comparisons of step-size rules say: claims, tables and figures of `piag`, `block_descent`.

A row is a run counted along one axis (updates or time) to one target, a share of the way to the
optimum, with its step size from theory or tuned. A condition of a claim is a scene (data and law of
delays) at a target; a target that neither rule keeps in any run of a scene is no condition. The
conditions of one claim share its doubt of 5 %. Runs that are not there count as the horizon.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncjax import results, steps
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure, set_log
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import LEVELS, reached
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.statistics import FAILS, HOLDS, Condition, verdict
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


def _ahead(text: str, rival: str, axis: str = UPDATES, **where: Any) -> Claim:
    """That Adaptive 1 at its theory step size needs less than a rival, to every level."""
    conditions = [
        less(
            OURS,
            than=rival,
            each=True,
            arriving=True,
            text=f"{100 * to:g} %",
            tuned_for=THEORY,
            axis=axis,
            to=to,
            **where,
        )
        for to in LEVELS
    ]
    return Claim(text, conditions, PAPER)


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
TUNED_ALIKE = Claim(
    "tuned alike, Adaptive 1 needs fewer updates than a constant step",
    [
        less(
            OURS,
            than=CONSTANT,
            each=True,
            arriving=True,
            text=f"{100 * LEVELS[-1]:g} %",
            tuned_for=TUNED,
            axis=UPDATES,
            to=LEVELS[-1],
        )
    ],
    "asked here",
)
NAIVE = _ahead("at gamma', Adaptive 1 needs fewer updates than c / (delay + 1)", INVERSE)
ROUNDS = _ahead(
    "at theory steps, Adaptive 1 takes less time than synchronous rounds", SYNCHRONOUS, TIME
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

    sets = [result.judged(claims, letter) for letter in result.sets]
    asked = [one.text for one in claims if any(one.text in own for own in sets)]
    heads = ("claim (conditions that hold)", *(f"set {letter}" for letter in result.sets))
    return results.Table(
        tuple(results.Column(head, right=False) for head in heads),
        tuple((text, *(cell(own.get(text, ())) for own in sets)) for text in asked),
        f"{text} The conditions of a claim share its doubt of 5 %.",
    )


def verdict_table(claims: Sequence[Claim], result: Result) -> results.Table:
    """What each set says of every claim."""
    text = "A condition is a case at a target (tuned: at the last)."
    return counted_verdicts(result, claims, text)


def _where(scene: str, to: float, tuned_for: str = THEORY, axis: str = UPDATES) -> dict[str, Any]:
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
    own = result.ratio(rival, OURS, set=letter, where=where).iloc[0]
    sign = {0: "", 1: "> ", 2: "< ", 3: "about "}[late.any()[rival] + 2 * late.any()[OURS]]
    return f"{sign}{own['ratio']:.3g} ({own['low']:.3g} to {own['high']:.3g})"


def _columns(*headings: str) -> tuple[results.Column, ...]:
    left = (results.Column("data", right=False), results.Column("delays", right=False))
    return (*left, *(results.Column(heading) for heading in headings))


def _named(scene: str) -> tuple[str, str]:
    data, law = scene.split(", ", 1)
    return data, law


def theory_table(result: Result) -> results.Table:
    """The table that answers the question: Adaptive 1 against the safe step, theory steps."""
    targets = levels(result)
    pairs = [(letter, to) for letter in result.sets for to in targets[1:]]
    rows = []
    for scene in scenes(result):
        where = {"set": "A", "scene": scene, "tuned_for": THEORY, "axis": UPDATES, "method": OURS}
        own = result.select(**where)
        horizon = own["horizon"].iloc[0]
        middle = [
            reached(one["needed"].to_numpy(), horizon).quartiles[1] for _, one in own.groupby("to")
        ]
        once = own[own["to"] == targets[0]]
        delays = f"{once['longest'].median():.0f} ({np.mean(once['mean_delay'].tolist()):.1f})"
        times = " / ".join("never" if m is None else f"{m:,.0f}" for m in middle)
        cells = [_cell(result, letter, FIXED, **_where(scene, to)) for letter, to in pairs]
        rows.append((*_named(scene), delays, times, *cells, f"{predicted(result, scene, 'A'):.3g}"))
    shown = [f"{100 * to:g} %" for to in targets]
    return results.Table(
        _columns(
            "longest (mean)",
            f"Adaptive 1, updates to {' / '.join(shown)}",
            *(f"{FIXED} / it to {100 * to:g} %, {letter}" for letter, to in pairs),
            "predicted",
        ),
        tuple(rows),
        "Updates from which a target is kept, theory steps: median of set A, and paired ratios"
        " (geometric mean, interval of 95 %) of both sets. Runs that were not there in"
        f" {result.rows['horizon'].max():,.0f} updates count as that many: '>' where they are runs"
        f" of {FIXED}, '<' of Adaptive 1, 'about' of both.",
    )


def tuned_table(result: Result) -> results.Table:
    """All rules at their best multiple of gamma', the last target."""
    last, rows = levels(result)[-1], []
    pairs = [(CONSTANT, letter) for letter in result.sets]
    pairs += [("Adaptive 2", "A"), (INVERSE, "A")]
    for scene in scenes(result):
        where = _where(scene, last, TUNED)
        own = result.select(set="A", instance=0, **where).set_index("method")
        cells = [_cell(result, letter, rule, **where) for rule, letter in pairs]
        multiples = ", ".join(f"{own['multiple'][rule]:.3g}" for rule in RELATIVE)
        edges = ", ".join(own.index[own["at_edge"].astype(bool)]) or "none"
        count = (f"{own['trials'][OURS]:.0f}", f"{own['gradients'][OURS]:,.0f}")
        rows.append((*_named(scene), *cells, multiples, *count, edges))
    return results.Table(
        _columns(
            "constant / Adaptive 1, A",
            "B",
            "Adaptive 2 / it, A",
            "c/(delay+1) / it, A",
            "multiples of gamma'",
            "trials a rule",
            "gradients a rule",
            "at an edge",
        ),
        tuple(rows),
        "The same with every rule at its best multiple of gamma' (Adaptive 1, Adaptive 2,"
        " c/(delay+1), constant), searched on other instances, to the last target.",
    )


def others_table(result: Result) -> results.Table:
    """The other rules at theory steps; synchronous rounds, in time."""
    last = levels(result)[-1]
    run = {*result.select(tuned_for=THEORY)["method"]}
    others = sorted(run - {OURS, SYNCHRONOUS, FIXED})
    rounds = [(kind, letter) for kind in (THEORY, TUNED) for letter in result.sets]
    rounds = rounds if SYNCHRONOUS in run else []
    rows = []
    for scene in scenes(result):
        cells = [_cell(result, "A", rule, **_where(scene, last)) for rule in others]
        cells += [
            _cell(result, letter, SYNCHRONOUS, **_where(scene, last, kind, TIME))
            for kind, letter in rounds
        ]
        rows.append((*_named(scene), *cells))
    return results.Table(
        _columns(
            *(f"{rule} / Adaptive 1, A" for rule in others),
            *(f"synchronous / it in time, {kind}, {letter}" for kind, letter in rounds),
        ),
        tuple(rows),
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


def point(result: Result, scene: str) -> tuple[float, bool] | None:
    """By how much Adaptive 1 is ahead at the tightest target that all runs of both keep.

    Where there is none, at the tightest that all of its own keep: a lower bound, and True.
    """
    for rules in ([OURS, FIXED], [OURS]):
        for to in reversed(levels(result)):
            rows = result.select(set="A", method=rules, **_where(scene, to))
            if np.isfinite(rows["needed"]).all():
                ratio = result.ratio(FIXED, OURS, set="A", where=_where(scene, to))
                return float(ratio["ratio"].iloc[0]), FIXED not in rules
    return None


def told(claims: Sequence[Claim], result: Result) -> dict[str, dict[str, dict[str, int]]]:
    """In how many conditions of a claim Adaptive 1 is ahead and behind, by set and in both."""
    found = {}
    for claim in claims:
        sets = [result.conditions(claim, letter) for letter in result.sets]
        by_text = [{one.text: one.verdict for one in own} for own in sets]
        alike = [word for text, word in by_text[0].items() if by_text[-1].get(text) == word]
        words = dict(zip(result.sets, (list(own.values()) for own in by_text), strict=True))
        found[SHORT[claim]] = {
            letter: {"ahead": own.count(HOLDS), "behind": own.count(FAILS), "of": len(own)}
            for letter, own in {**words, "both": alike}.items()
        }
    return found


def predictions(result: Result) -> dict[str, float]:
    """How many scenes there are, how many were predicted to 5 %, and the most that one misses."""
    ratios = {one: own[0] for one in scenes(result) if (own := point(result, one)) is not None}
    missed = [abs(own / predicted(result, one, "A") - 1) for one, own in ratios.items()]
    return {"scenes": len(missed), "near": sum(one < 0.05 for one in missed), "most": max(missed)}


def prediction_figure(result: Result) -> Illustration:
    """What is predicted from the delays against what was measured."""
    points = {
        scene: (predicted(result, scene, "A"), own)
        for scene in scenes(result)
        if (own := point(result, scene)) is not None
    }
    data, laws = (list(dict.fromkeys(_named(one)[at] for one in points)) for at in (0, 1))
    markers, styles = dict(zip(data, "osD^v", strict=False)), plots.assign_styles(laws)
    values = [value for expected, own in points.values() for value in (expected, own[0])]
    low, high = 0.8 * min(values), 1.4 * max(values)
    with drawing():
        figure = new_figure(7.4, 4.6)
        axes = figure.subplots()
        axes.plot([low, high], [low, high], color="0.6", linewidth=1, zorder=0)
        for scene, (expected, (ratio, bound)) in points.items():
            name, law = _named(scene)
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
