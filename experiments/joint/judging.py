"""Verdicts on the scenes, each by a stated rule from the times and last gaps of one set.

    faster        log T of Rescaled with GraB minus log T of a single arm, over instances: below 0
    worth more    (what GraB takes off log T behind Rescaled) minus (what it takes off behind pure)

Times that were never reached count as the horizon, so differences of logs are shorter than they
are. The last gaps are not cut anywhere.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncjax.study.protocol import restricted
from asyncjax.study.statistics import Condition, Difference, paired, verdict
from experiments.joint.arms import JOINT, LEARNED, PURE, RESCALED, SINGLE
from experiments.joint.scenes_runs import END

FASTER = "both together are faster than every arm with one of them or none"
MORE = "an order is worth more once the bias is gone"


def logs_of(kept: Mapping[str, Any], arm: str, role: str, goal: str) -> np.ndarray:
    """Log of the time to a level, cut at the horizon, or of the last gap, float64[instances]."""
    own = kept["arms"][arm]["sets"][role]
    if goal == END:
        return np.log(np.maximum(own[END], 1e-12))
    return np.log(restricted(own["times"][goal], kept["asked"]["scene"]["horizon"]))


def beside(kept: Mapping[str, Any], role: str, goal: str) -> dict[str, Difference]:
    """Both together against each single arm."""
    joint = logs_of(kept, JOINT.name, role, goal)
    return {
        arm.name: paired(joint, logs_of(kept, arm.name, role, goal))
        for arm in SINGLE
        if arm.name in kept["arms"]
    }


def best_single(kept: Mapping[str, Any], role: str, goal: str) -> str:
    """The single arm of the lowest mean log."""
    names = [arm.name for arm in SINGLE if arm.name in kept["arms"]]
    return min(names, key=lambda name: logs_of(kept, name, role, goal).mean())


def effects(kept: Mapping[str, Any], role: str, goal: str, before: str) -> dict[str, Difference]:
    """The two by two of bias removed or not, and order learned or `before`; in logs.

    Returns:
        What each factor adds with and without the other, and the interaction.
    """

    def log(arms: Any, rows: str) -> np.ndarray:
        (arm,) = (own for own in arms if own.rows == rows)
        return logs_of(kept, arm.name, role, goal)

    plain, ordered = log(PURE, before), log(PURE, LEARNED)
    unbiased, both = log(RESCALED, before), log(RESCALED, LEARNED)
    return {
        "order alone": paired(ordered, plain),
        "order, bias removed": paired(both, unbiased),
        "bias removed alone": paired(unbiased, plain),
        "bias removed, ordered": paired(both, ordered),
        "interaction": paired(both - unbiased, ordered - plain),
    }


def verdicts(kept: Mapping[str, Any], role: str, before: str) -> dict[str, str]:
    """What one set says of a scene, a claim for each goal."""
    found = {}
    for goal in (*kept["asked"]["scene"]["levels"], END):
        name = kept["asked"]["scene"]["name"]
        faster = [
            Condition(f"than {arm}", own) for arm, own in beside(kept, role, str(goal)).items()
        ]
        found[f"{name}, {goal}: {FASTER}"] = verdict(faster)
        more = effects(kept, role, str(goal), before)["interaction"]
        found[f"{name}, {goal}: {MORE}"] = verdict([Condition("interaction", more)])
    return found
