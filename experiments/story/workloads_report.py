"""Verdicts, tables, the figure and the numbers of the story on many workloads.

A claim is that a set of methods is below all plain in every goal on both problems: the logarithms
of last losses, and of times as shares of the schedule's time (one that never came counts as the
whole), differ by less than 0, over instances, with intervals that share a doubt of 5 %.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import MUTED, add_grid, drawing, new_figure
from asyncjax.study import protocol
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.statistics import (
    Condition,
    Difference,
    disagreements,
    paired,
    verdict,
)
from experiments.common import numbers as committed
from experiments.common.parts import Part, written
from experiments.story.choices import CHOICES, FITTING, PLAIN
from experiments.story.report import PAPERS
from experiments.story.workloads_runs import END, GOALS, SETS, Settings

NAME = "story_workloads"
TITLE = "Do all methods together beat plain choices, over workloads?"
DOUBT = 0.05
ALL_CLAIM = "all methods together beat plain choices"
FITTING_CLAIM = "without the pairs that harm each other, they beat plain choices"
CLAIMS = {ALL_CLAIM: CHOICES[0].name, FITTING_CLAIM: FITTING.name}
TICKS = (0.25, 0.5, 1.0, 2.0, 4.0)
Found = Mapping[str, Any]


def part(settings: Settings, found: Found) -> Part:
    """Draws the figure, makes the tables; writes numbers where they are committed if asked."""
    measured = committed.rounded(numbers(settings, found))
    if settings.commit:
        command = "python -m experiments.story.workloads --commit"
        committed.save(NAME, measured, command=command)
    return written(
        settings.output,
        NAME,
        TITLE,
        (("", figure(measured), "Each arm over all plain, by instance; below 1 it is ahead."),),
        (
            verdict_table(measured),
            ratio_table(measured),
            loss_table(measured),
            tuning_table(measured),
        ),
        measured,
        in_words(measured),
        PAPERS,
        FIRST_CROSSING,
    )


def numbers(settings: Settings, found: Found) -> dict[str, Any]:
    """What was measured, and what follows from it, as plain values."""
    story = settings.story
    kept = {
        "settings": {
            "instances": settings.instances,
            "tuning_instances": settings.tuning_instances,
            "jobs": story.jobs,
            "machines": story.machines,
            "n_slots": story.n_slots,
            "gradients": story.gradients,
            "batch": story.batch,
        },
        **found,
    }
    sets = {letter: by_set(kept, letter) for letter in SETS}
    return kept | {
        "verdicts": {letter: verdicts(own) for letter, own in sets.items()},
        "ratios": {letter: ratios(own) for letter, own in sets.items()},
    }


def by_set(found: Found, letter: str) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Numbers of a set, by task, arm and goal."""
    return {task: own[letter] for task, own in found["tasks"].items()}


def logarithms(goal: str, values: Any) -> np.ndarray:
    """Of last losses, or of times cut at the end of the schedule."""
    own = np.asarray([np.inf if one is None else one for one in values], float)
    return np.log(own if goal == END else protocol.restricted(own, 1.0))


def apart(own: Mapping[str, Any], arm: str, goal: str, level: float) -> Difference:
    """An arm less all plain, in logarithms."""
    ours, plain = (logarithms(goal, own[name][goal]) for name in (arm, PLAIN.name))
    return paired(ours, plain, level=level, draws=max(4000, round(20 / (1 - level)) + 1))


def conditions(own: Mapping[str, Any]) -> dict[str, tuple[Condition, ...]]:
    """The claims about the numbers of one set, by task, arm and goal."""
    level = 1 - DOUBT / (len(own) * len(GOALS))
    return {
        claim: tuple(
            Condition(f"{task}, {goal}: {arm} below all plain", apart(one, arm, goal, level))
            for task, one in own.items()
            for goal in GOALS
        )
        for claim, arm in CLAIMS.items()
    }


def verdicts(own: Mapping[str, Any]) -> dict[str, str]:
    """What the numbers of one set say of each claim."""
    return {claim: verdict(parts) for claim, parts in conditions(own).items()}


def ratios(own: Mapping[str, Any]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Geometric mean of an arm over all plain and its 95 % interval, by task, arm and goal."""
    made: dict[str, dict[str, dict[str, list[float]]]] = {}
    for task, one in own.items():
        for arm in CLAIMS.values():
            for goal in GOALS:
                gap = apart(one, arm, goal, 1 - DOUBT)
                ends = np.exp([gap.mean, gap.low, gap.high]).tolist()
                made.setdefault(task, {}).setdefault(arm, {})[goal] = ends
    return made


def page(found: Found) -> str:
    """The tables of `experiments/README.md`: verdicts and their conditions, ratios, trials."""
    tables = (verdict_table(found), ratio_table(found), loss_table(found), tuning_table(found))
    return "\n\n".join(_rows(one) for one in tables)


def _rows(table: results.Table) -> str:
    """A table in Markdown, without its caption."""
    text = results.as_markdown(table)
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def in_words(found: Found) -> str:
    """Both verdicts on both sets."""
    one, other = (found["verdicts"][letter] for letter in SETS)
    differing = disagreements(one, other)
    said = [
        f"That {claim}: {one[claim]}" + (f" (set A), {other[claim]} (set B)" * (claim in differing))
        for claim in CLAIMS
    ]
    agree = "differ" if differing else "agree"
    return f"{'. '.join(said)}. Two disjoint sets of {_count(found)} workloads {agree}."


def _count(found: Found) -> int:
    return int(found["settings"]["instances"])


def verdict_table(found: Found) -> results.Table:
    """The verdicts, and every condition."""
    by = {letter: conditions(by_set(found, letter)) for letter in SETS}
    rows = []
    for claim in CLAIMS:
        rows.append((claim, *(verdict(by[letter][claim]) for letter in SETS)))
        for at, one in enumerate(by["A"][claim]):
            rows.append((f"- {one.text}", *(by[letter][claim][at].verdict for letter in SETS)))
    return results.Table(
        (
            results.Column("claim, and its conditions", right=False),
            *(results.Column(f"set {letter}", right=False) for letter in SETS),
        ),
        tuple(rows),
        f"By paired differences of logarithms over {_count(found)} workloads a set; the conditions"
        " of a claim share its doubt of 5 %.",
    )


def _text(ends: Any) -> str:
    return f"{ends[0]:.2f} ({ends[1]:.2f} to {ends[2]:.2f})"


def ratio_table(found: Found) -> results.Table:
    """Every arm over all plain."""
    rows = []
    for task in found["tasks"]:
        for arm in CLAIMS.values():
            for letter in SETS:
                own = found["ratios"][letter][task][arm]
                rows.append((f"{task}, {arm}", letter, *(_text(own[goal]) for goal in GOALS)))
    return results.Table(
        (
            results.Column("problem, methods", right=False),
            results.Column("set", right=False),
            *(results.Column(goal if goal == END else f"time to {goal}") for goal in GOALS),
        ),
        tuple(rows),
        "Over all plain on the same workload: geometric mean and its 95 % interval. Below 1 the"
        " methods are ahead.",
    )


def loss_table(found: Found) -> results.Table:
    """Last losses, and who arrives."""
    rows = []
    for task, tuned in found["tasks"].items():
        for arm in tuned["arms"]:
            for letter in SETS:
                own = tuned[letter][arm]
                shares = [f"{np.isfinite(np.array(own[g], float)).mean():.0%}" for g in GOALS[1:]]
                spread = results.median_and_spread(own[END])
                rows.append((f"{task}, {arm}", letter, spread, *shares))
    return results.Table(
        (
            results.Column("problem, methods", right=False),
            results.Column("set", right=False),
            results.Column(END),
            *(results.Column(f"reach {goal}") for goal in GOALS[1:]),
        ),
        tuple(rows),
        "Median (quartiles) of the last loss, and the share of the runs that reach the levels.",
    )


def tuning_table(found: Found) -> results.Table:
    """Trials, gradients, what was chosen."""
    rows = []
    for task, tuned in found["tasks"].items():
        for arm, own in tuned["arms"].items():
            steps = ", ".join(f"{own[goal]['step']:.4g}" for goal in GOALS)
            trials = [own[goal]["trials"] for goal in GOALS]
            gradients = max(own[goal]["gradients"] for goal in GOALS)
            edges = sum(bool(own[goal]["at_edge"]) for goal in GOALS)
            rows.append(
                (f"{task}, {arm}", steps, f"{min(trials)} to {max(trials)}", gradients, edges)
            )
    return results.Table(
        (
            results.Column("problem, methods", right=False),
            results.Column(f"step for {', '.join(GOALS)}", right=False),
            results.Column("trials a goal"),
            results.Column("gradients a goal, at most"),
            results.Column("at an edge"),
        ),
        tuple(rows),
        f"Chosen on {found['settings']['tuning_instances']} other workloads, for each goal by"
        " itself; for a goal all have as many trials.",
    )


def figure(found: Found) -> Any:
    """Last losses over those of all plain, a dot an instance, a panel a problem."""
    tasks = list(found["tasks"])
    with drawing():
        page = new_figure(8.0, 3.4)
        panels = page.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
        styles = plots.assign_styles(list(CLAIMS.values()))
        for axes, task in zip(panels, tasks, strict=True):
            for place, arm in enumerate(CLAIMS.values()):
                for shift, letter in ((-0.18, "A"), (0.18, "B")):
                    own = by_set(found, letter)[task]
                    for at, goal in enumerate(GOALS):
                        pair = (logarithms(goal, own[name][goal]) for name in (arm, PLAIN.name))
                        ratio = np.exp(np.subtract(*pair))
                        x = at + shift + 0.1 * (place - 0.5)
                        axes.plot(
                            np.full(len(ratio), x),
                            ratio,
                            "os"[letter == "B"],
                            color=styles[arm].colour,
                            markersize=3.5,
                            label=f"{arm}, set {letter}" if at == 0 else None,
                        )
            axes.axhline(1.0, color=MUTED, linewidth=0.9, zorder=0)
            axes.set_yscale("log")
            axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
            axes.set_yticks([], minor=True)
            axes.set_xticks(range(len(GOALS)), [g if g == END else f"time to {g}" for g in GOALS])
            axes.tick_params(axis="x", labelsize=7)
            axes.set_title(task)
            add_grid(axes, "y")
        panels[0].set_ylabel("over all plain")
        page.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return page
