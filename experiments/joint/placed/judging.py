"""Verdicts on placed jobs, each by a stated rule from the numbers of one set.

    the full set beats plain choices     log T (full) - log T (all plain) below 0
    it beats every other set             the same against each arm with one part replaced
    a part is worth something            the same against the arms that replace this part, each
    PD-ORS earns more                    log utility (other) - log utility (PD-ORS) below 0

Times that were never reached count as the horizon, so differences of logs are shorter than they
are. Last gaps are not cut.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncjax.study.protocol import SET_A, SET_B
from asyncjax.study.statistics import Condition, Difference, paired, verdict
from experiments.joint.judging import logs_of
from experiments.joint.placed.arms import FULL, PLAIN
from experiments.joint.placed.sites import PD_ORS
from experiments.joint.scenes_runs import END

SETS = (SET_A, SET_B)
BEATS_PLAIN = "the full set beats plain choices"
BEATS_ALL = "the full set beats every set with one part replaced"


def goals_of(own: Mapping[str, Any]) -> tuple[str, ...]:
    """Levels of a place and its end, as keys."""
    return (*map(str, own["asked"]["scene"]["levels"]), END)


def beside(own: Mapping[str, Any], role: str, goal: str) -> dict[str, Difference]:
    """The full set against every other arm, differences of logs."""
    full = logs_of(own, FULL.name, role, goal)
    return {
        name: paired(full, logs_of(own, name, role, goal))
        for name in own["asked"]["arms"]
        if name != FULL.name
    }


def parts_of(own: Mapping[str, Any]) -> dict[str, list[str]]:
    """The arms that replace each part."""
    found: dict[str, list[str]] = {}
    for name in own["asked"]["arms"]:
        if ": " in name:
            found.setdefault(name.split(": ")[0], []).append(name)
    return found


def claim(part: str) -> str:
    """What is claimed of a part."""
    return f"{part}: that of the full set beats each other"


def earned(own: Mapping[str, Any], role: str) -> dict[str, str]:
    """Whether PD-ORS earns more with all jobs than each other scheduler, by logs of utility."""
    logs = {name: -np.log(by_role[role]["utility"]) for name, by_role in own["schedulers"].items()}
    ours = logs.pop(PD_ORS)
    return {name: verdict([Condition(name, paired(ours, log))]) for name, log in logs.items()}


def verdicts(own: Mapping[str, Any], role: str) -> dict[str, str]:
    """What one set says of a place: a claim for each goal, on the whole and on each part."""
    found = {}
    for goal in goals_of(own):
        apart = beside(own, role, goal)
        parts = parts_of(own)
        claims = {
            BEATS_PLAIN: [PLAIN.name],
            BEATS_ALL: [name for names in parts.values() for name in names],
            **{claim(part): names for part, names in parts.items()},
        }
        for text, names in claims.items():
            found[f"{goal}: {text}"] = verdict([Condition(name, apart[name]) for name in names])
    return found
