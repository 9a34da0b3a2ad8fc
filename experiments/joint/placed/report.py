"""Tables, figure and numbers of placed jobs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import COLOURS, MUTED, add_grid, drawing, new_figure, set_log
from asyncjax.study.protocol import FIRST_CROSSING, reached
from asyncjax.study.statistics import disagreements
from experiments.common.parts import Part, written
from experiments.joint.placed.judging import SETS, beside, earned, goals_of, verdicts
from experiments.joint.scenes_report import ratio
from experiments.joint.scenes_runs import END

Kept = Mapping[str, Mapping[str, Any]]  # what was measured, by place


def part(settings: Any, kept: Kept) -> Part:
    """Draws the figure and makes the tables."""
    return written(
        settings.output,
        "joint_placed",
        "A job that a scheduler places: what is each part worth, and all together?",
        (
            (
                "parts",
                parts_figure(kept),
                "The full set over each other, ratios with intervals; below 1 the full set is"
                " ahead; both sets.",
            ),
        ),
        (verdict_table(kept), times_table(kept), schedule_table(kept), tuning_table(kept)),
        numbers(kept),
        note=FIRST_CROSSING,
    )


def numbers(kept: Kept) -> dict[str, Any]:
    """What the tables are made of, as plain values, with what follows from them."""
    return {
        "places": {
            name: {
                **own,
                "verdicts": {role: verdicts(own, role) for role in SETS},
                "ratios": {role: ratios(own, role) for role in SETS},
                "earned": {role: earned(own, role) for role in SETS},
            }
            for name, own in kept.items()
        }
    }


def ratios(own: Mapping[str, Any], role: str) -> dict[str, dict[str, float]]:
    """The full set over each other arm at every goal."""
    return {
        goal: {arm: math.exp(one.mean) for arm, one in beside(own, role, goal).items()}
        for goal in goals_of(own)
    }


def aim(goal: str) -> str:
    """A goal in words."""
    return "gap at the end" if goal == END else f"{float(goal):.0%}"


def verdict_table(kept: Kept) -> results.Table:
    """What both sets say of each claim."""
    rows = []
    for name, own in kept.items():
        one, other = (verdicts(own, role) for role in SETS)
        apart = disagreements(one, other)
        rows += [(name, c, one[c], other[c], "no" if c in apart else "yes") for c in one]
    return results.Table(
        (
            results.Column("place", right=False),
            results.Column("claim", right=False),
            *(results.Column(role, right=False) for role in SETS),
            results.Column("the same", right=False),
        ),
        tuple(rows),
    )


def mean_time(own: Mapping[str, Any], arm: str, role: str, goal: str) -> str:
    """Mean time cut at the horizon, with the share that was there; or the geometric mean gap."""
    found = own["arms"][arm]["sets"][role]
    if goal == END:
        return f"{math.exp(np.mean(np.log(np.maximum(found[END], 1e-12)))):.3f}"
    return reached(found["times"][goal], own["asked"]["scene"]["horizon"]).text(".1f")


def held(own: Mapping[str, Any], arm: str, role: str, goal: str) -> float:
    """Mean GPU-slots held up to a target, or to the end where it was never reached."""
    return float(np.mean(own["arms"][arm]["sets"][role]["held"][goal]))


def times_table(kept: Kept) -> results.Table:
    """Slots to each target, GPU-slots, and the full set over each arm."""
    rows = []
    for name, own in kept.items():
        for goal in goals_of(own):
            apart = {role: beside(own, role, goal) for role in SETS}
            for arm in own["asked"]["arms"]:
                cells = [mean_time(own, arm, role, goal) for role in SETS]
                if goal == END:
                    cells += ["", ""]
                else:
                    cells += [f"{held(own, arm, role, goal):.0f}" for role in SETS]
                cells += [ratio(apart[role][arm]) if arm in apart[role] else "" for role in SETS]
                rows.append((name, aim(goal), arm, *cells))
    return results.Table(
        (
            results.Column("place", right=False),
            results.Column("target", right=False),
            results.Column("arm", right=False),
            *(results.Column(f"mean slots, or gap, {role}") for role in SETS),
            *(results.Column(f"GPU-slots, {role}") for role in SETS),
            *(results.Column(f"full set / this, {role}") for role in SETS),
        ),
        tuple(rows),
    )


def schedule_table(kept: Kept) -> results.Table:
    """What the schedulers earned, and what they gave to the trained jobs."""
    rows = []
    for name, own in kept.items():
        for scheduler, by_role in own["schedulers"].items():
            for role in SETS:
                found = by_role[role]
                means = [np.mean(found[of]) for of in ("utility", "slots", "held", "served")]
                rows.append((name, scheduler, role, *map(float, means)))
    return results.Table(
        (
            results.Column("place", right=False),
            results.Column("scheduler", right=False),
            results.Column("instances", right=False),
            results.Column("utility of all jobs"),
            results.Column("slots of the job"),
            results.Column("GPU-slots of the job"),
            results.Column("slots in which a shard is served"),
        ),
        tuple(rows),
    )


def tuning_table(kept: Kept) -> results.Table:
    """Trials, what was searched and chosen, and what is at an edge."""
    rows = []
    for name, own in kept.items():
        for arm, found in own["tuned"].items():
            chosen = ", ".join(f"{knob} {value:.3g}" for knob, value in found["chosen"].items())
            rows.append(
                (
                    name,
                    arm,
                    found["trials"],
                    found["gradients"],
                    f"{found['from']:.3g} to {found['to']:.3g}",
                    chosen,
                    ", ".join(found["at_edge"]) or "none",
                )
            )
    return results.Table(
        (
            results.Column("place", right=False),
            results.Column("arm and target", right=False),
            results.Column("trials"),
            results.Column("gradients, about"),
            results.Column("steps"),
            results.Column("chosen", right=False),
            results.Column("at an edge", right=False),
        ),
        tuple(rows),
    )


def parts_figure(kept: Kept) -> Any:
    """The full set over each other arm: time to each target, and gap at the end."""
    with drawing():
        most = max(len(own["asked"]["arms"]) for own in kept.values())
        figure = new_figure(10.0, 1.2 + 0.36 * most * len(kept))
        grid = figure.subplots(len(kept), 2, squeeze=False)
        for line, (name, own) in zip(grid, kept.items(), strict=True):
            levels = goals_of(own)[:-1]
            arms = [arm for arm in own["asked"]["arms"] if arm in beside(own, SETS[0], END)]
            for axes, goal in zip(line, (levels[-1], END), strict=True):
                for role, colour, shift in zip(SETS, COLOURS, (-0.15, 0.15), strict=False):
                    for row, arm in enumerate(arms):
                        found = beside(own, role, goal)[arm]
                        ends = np.exp([found.low, found.high])
                        axes.plot(ends, [row + shift] * 2, color=colour, lw=1.6, alpha=0.7)
                        label = role if not row else None
                        at = float(np.exp(found.mean))
                        axes.plot(at, row + shift, "o", color=colour, ms=4, label=label)
                axes.axvline(1.0, color=MUTED, lw=0.8, zorder=0)
                set_log(axes.xaxis, True)
                axes.set_ylim(len(arms) - 0.4, -0.6)
                axes.set_title(f"{name}: {'slots to ' if goal != END else ''}{aim(goal)}")
                axes.set_xlabel("full set over this; below 1 the full set is ahead")
                add_grid(axes, "x")
            line[0].set_yticks(range(len(arms)), arms, fontsize=8)
            line[1].set_yticks(range(len(arms)), [])
        grid[0][0].legend(fontsize=8)
    return figure
