"""The tables on placed jobs, as lines of Markdown, from the committed numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.joint.placed.judging import SETS, beside, earned, goals_of, verdicts
from experiments.joint.placed.report import Kept, aim, mean_time
from experiments.joint.scenes_report import ratio
from experiments.joint.scenes_runs import END


def tables(kept: Kept) -> dict[str, list[str]]:
    """All tables by name."""
    made = {}
    for name, own in kept.items():
        made[f"placed, {name}"] = arms(own)
        made[f"verdicts, {name}"] = judged(own)
    return made | {"placed, schedules": schedules(kept)}


def arms(own: Mapping[str, Any]) -> list[str]:
    """Mean slots to two targets and gaps of each arm, and the full set over it, both sets."""
    goals = goals_of(own)[-3:]
    heads = [f"slots to {aim(goal)}" if goal != END else aim(goal) for goal in goals]
    over = [f"full / this, {head.removeprefix('slots to ')}" for head in heads[1:]]
    lines = ["| | " + " | ".join([*heads, *over]) + " |", "|---|" + "---|" * 5]
    for arm in own["asked"]["arms"]:
        cells = [", ".join(mean_time(own, arm, role, goal) for role in SETS) for goal in goals]
        for goal in goals[1:]:
            apart = [beside(own, role, goal).get(arm) for role in SETS]
            cells.append("; ".join(ratio(one) for one in apart if one is not None))
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return lines


def judged(own: Mapping[str, Any]) -> list[str]:
    """Verdicts of both sets, a line a claim and a column a goal."""
    goals = goals_of(own)
    lines = ["| | " + " | ".join(map(aim, goals)) + " |", "|---|" + "---|" * len(goals)]
    found = [verdicts(own, role) for role in SETS]
    for text in dict.fromkeys(key.split(": ", 1)[1] for key in found[0]):
        cells = [", ".join(one[f"{goal}: {text}"] for one in found) for goal in goals]
        lines.append(f"| {text} | " + " | ".join(cells) + " |")
    return lines


def schedules(kept: Kept) -> list[str]:
    """What schedulers earned, and what they gave the trained jobs; means of sets A and B."""
    heads = ("utility of all jobs", "PD-ORS earns more", "slots of the job", "GPU-slots")
    heads = (*heads, "slots a shard is served")
    lines = ["| place | scheduler | " + " | ".join(heads) + " |", "|---|---|" + "---|" * 5]
    for name, own in kept.items():
        for scheduler, by_role in own["schedulers"].items():
            cells = []
            for of, digits in (("utility", 0), ("slots", 1), ("held", 0), ("served", 1)):
                means = [np.mean(by_role[role][of]) for role in SETS]
                cells.append(", ".join(f"{mean:.{digits}f}" for mean in means))
            said = [earned(own, role).get(scheduler, "") for role in SETS]
            cells.insert(1, ", ".join(filter(None, said)))
            lines.append(f"| {name} | {scheduler} | " + " | ".join(cells) + " |")
    return lines
