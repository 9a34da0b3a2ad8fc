"""Tables, figures and numbers of the four scenes."""

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import COLOURS, MUTED, add_grid, drawing, new_figure, set_log
from asyncjax.study.protocol import FIRST_CROSSING, Reached, reached
from asyncjax.study.statistics import Difference, disagreements, interval, ranks
from experiments.common.parts import Part, written
from experiments.joint.arms import JOINT, RESHUFFLED
from experiments.joint.judging import beside, best_single, effects, logs_of, verdicts
from experiments.joint.scenes_runs import END, SETS

Kept = Mapping[str, Mapping[str, Any]]  # what was measured, by scene
MARKS = ("o", "s", "D")


def part(settings: Any, kept: Kept) -> Part:
    """Draws the figures and makes the tables."""
    return written(
        settings.output,
        "joint_scenes",
        "Do bias removal and a learned order gain more together?",
        (
            (
                "times",
                times_figure(kept),
                "Geometric mean time to three targets with intervals, cut at the horizon; set A.",
            ),
            (
                "effects",
                effects_figure(kept),
                "What each of the two is worth, alone and beside the"
                " other: ratio of times with intervals; both sets.",
            ),
        ),
        (
            times_table(kept),
            effects_table(kept),
            verdict_table(kept),
            rank_table(kept),
            tuning_table(kept),
        ),
        numbers(kept),
        note=FIRST_CROSSING,
    )


def goals_of(own: Mapping[str, Any]) -> tuple[str, ...]:
    """Levels of a scene and its end, as keys."""
    return (*map(str, own["asked"]["scene"]["levels"]), END)


def arms_of(own: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the arms, as they are told everywhere."""
    return tuple(own["asked"]["arms"])


def seen(own: Mapping[str, Any], arm: str, role: str, goal: str) -> Reached:
    """What is known of an arm's time to a level."""
    times = own["arms"][arm]["sets"][role]["times"][goal]
    return reached(times, own["asked"]["scene"]["horizon"])


def ratio(difference: Difference) -> str:
    """A difference of logs as a ratio with its interval."""
    mean, low, high = (
        math.exp(value) for value in (difference.mean, difference.low, difference.high)
    )
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def times_table(kept: Kept) -> results.Table:
    """Times to each level, both sets, and the ratio of the joint arm to each."""
    rows = []
    for name, own in kept.items():
        for level in goals_of(own)[:-1]:
            for arm in arms_of(own):
                cells = [seen(own, arm, role, level).text() for role in SETS]
                against = [beside(own, role, level).get(arm) for role in SETS]
                cells += ["" if one is None else ratio(one) for one in against]
                rows.append((name, f"{float(level):.0%}", arm, *cells))
    return results.Table(
        (
            results.Column("scene", right=False),
            results.Column("target"),
            results.Column("arm", right=False),
            *(results.Column(f"mean time, {role}") for role in SETS),
            *(results.Column(f"both together / this, {role}") for role in SETS),
        ),
        tuple(rows),
    )


def effects_table(kept: Kept) -> results.Table:
    """The two by two at every goal, against reshuffled rows."""
    rows = []
    for name, own in kept.items():
        for goal in goals_of(own):
            for role in SETS:
                found = effects(own, role, goal, RESHUFFLED)
                rows.append((name, goal, role, *map(ratio, found.values())))
    heads = effects(next(iter(kept.values())), SETS[0], END, RESHUFFLED)
    return results.Table(
        (
            results.Column("scene", right=False),
            results.Column("target"),
            results.Column("instances", right=False),
            *(results.Column(head) for head in heads),
        ),
        tuple(rows),
    )


def verdict_table(kept: Kept) -> results.Table:
    """What both sets say of each claim."""
    rows = []
    for own in kept.values():
        one, other = (verdicts(own, role, RESHUFFLED) for role in SETS)
        apart = disagreements(one, other)
        rows += [(c, one[c], other[c], "no" if c in apart else "yes") for c in one]
    return results.Table(
        (
            results.Column("claim", right=False),
            *(results.Column(role, right=False) for role in SETS),
            results.Column("the same", right=False),
        ),
        tuple(rows),
    )


def rank_table(kept: Kept) -> results.Table:
    """Ranks by log time at the last level, all pairs held at once."""
    rows = []
    for name, own in kept.items():
        level, arms = goals_of(own)[-2], arms_of(own)
        pairs = len(arms) * (len(arms) - 1) / 2
        for role in SETS:
            scores = {arm: logs_of(own, arm, role, level) for arm in arms}
            places = ranks(scores, level=1 - 0.05 / pairs, draws=40_000)
            for place in places:
                span = f"{place.best_rank} to {place.worst_rank}"
                told = "no significant difference" if place.with_best else "behind"
                rows.append((name, role, place.name, math.exp(place.mean), span, told))
    return results.Table(
        (
            results.Column("scene", right=False),
            results.Column("instances", right=False),
            results.Column("arm", right=False),
            results.Column("geometric mean time"),
            results.Column("rank"),
            results.Column("from the first", right=False),
        ),
        tuple(rows),
    )


def tuning_table(kept: Kept) -> results.Table:
    """Trials, what was searched and chosen, and what is at an edge."""
    rows = []
    for name, own in kept.items():
        for arm, goal in product(arms_of(own), goals_of(own)):
            found = own["tuned"][f"{arm} | {goal}"]
            count = own["arms"][arm]["gradients"] * own["asked"]["tuning"]
            rows.append(
                (
                    name,
                    arm,
                    goal,
                    found["trials"],
                    count * found["trials"],
                    f"{found['from']:.3g} to {found['to']:.3g}",
                    found["step"],
                    "yes" if found["at_edge"] else "no",
                )
            )
    return results.Table(
        (
            results.Column("scene", right=False),
            results.Column("arm", right=False),
            results.Column("for", right=False),
            results.Column("trials"),
            results.Column("gradients at most"),
            results.Column("steps"),
            results.Column("chosen"),
            results.Column("at an edge", right=False),
        ),
        tuple(rows),
    )


def times_figure(kept: Kept) -> Any:
    """Arms of each scene, a mark a level; what is at the right end never came."""
    with drawing():
        figure = new_figure(9.0, 0.8 + 3.0 * math.ceil(len(kept) / 2))
        grid = figure.subplots(math.ceil(len(kept) / 2), 2, squeeze=False)
        for axes, (name, own) in zip(grid.flat, kept.items(), strict=False):
            arms = arms_of(own)
            for place, level in enumerate(goals_of(own)[:-1]):
                for row, arm in enumerate(arms):
                    logs = logs_of(own, arm, SETS[0], level)
                    low, high = np.exp(interval(logs))
                    colour = COLOURS[place]
                    axes.plot([low, high], [row, row], color=colour, lw=1.6, alpha=0.6)
                    label = f"{float(level):.0%}" if not row else None
                    mark = MARKS[place]
                    axes.plot(np.exp(logs.mean()), row, mark, color=colour, ms=5, label=label)
            axes.axvline(own["asked"]["scene"]["horizon"], color=MUTED, lw=0.8, zorder=0)
            axes.axhspan(
                arms.index(JOINT.name) - 0.45,
                arms.index(JOINT.name) + 0.45,
                color="#EEEEEE",
                zorder=0,
            )
            set_log(axes.xaxis, True)
            axes.set_yticks(range(len(arms)), arms, fontsize=8)
            axes.set_ylim(len(arms) - 0.4, -1.7)
            axes.tick_params(axis="y", length=0)
            axes.set_title(name)
            axes.set_xlabel("time to shares of the way (line: horizon)")
            axes.legend(fontsize=8, loc="upper left", ncols=3, handletextpad=0, columnspacing=1)
            add_grid(axes, "x")
        for axes in grid.flat[len(kept) :]:
            axes.axis("off")
    return figure


def effects_figure(kept: Kept) -> Any:
    """Ratios of the two by two at the last level and at the end, both sets."""
    with drawing():
        figure = new_figure(9.0, 4.6)
        grid = figure.subplots(1, 2, sharey=True)
        for axes, place, head in zip(
            grid, (-2, -1), ("time to the last target", "gap at the end"), strict=True
        ):
            labels, row = [], 0
            for name, own in kept.items():
                for which in ("order alone", "order, bias removed", "interaction"):
                    for role, colour in zip(SETS, COLOURS, strict=False):
                        found = effects(own, role, goals_of(own)[place], RESHUFFLED)[which]
                        at = row + (0.15 if role == SETS[1] else -0.15)
                        ends = np.exp([found.low, found.high])
                        axes.plot(ends, [at, at], color=colour, lw=1.6, alpha=0.7)
                        label = role if not row else None
                        axes.plot(np.exp(found.mean), at, "o", color=colour, ms=4, label=label)
                    labels.append(f"{name}: {which}")
                    row += 1
            axes.axvline(1.0, color=MUTED, lw=0.8, zorder=0)
            set_log(axes.xaxis, True)
            axes.set_yticks(range(row), labels, fontsize=8)
            axes.set_ylim(row - 0.4, -0.6)
            axes.set_title(head)
            axes.set_xlabel("ratio; below 1 is a gain")
            add_grid(axes, "x")
        grid[0].legend(fontsize=7)
    return figure


def numbers(kept: Kept) -> dict[str, Any]:
    """What the tables are made of, as plain values."""
    made = {}
    for name, own in kept.items():
        made[name] = {
            **own,
            "best single": {
                goal: {role: best_single(own, role, goal) for role in SETS}
                for goal in goals_of(own)
            },
            "verdicts": {role: verdicts(own, role, RESHUFFLED) for role in SETS},
        }
    return {"scenes": made}
