"""What the numbers of a set say of the claims about PD-ORS, by a stated rule.

A rule of a claim is a list of conditions "PD-ORS earns more than this rival at this point". Each is
judged by the paired differences of logarithms over instances, with a bootstrap interval; the
conditions of one claim share its doubt of 5 %. The claim holds if all do, in part if some do
(`comparison.verdict`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.study.statistics import HOLDS, Condition, Difference, paired, verdict
from experiments.cluster.rivals_runs import PD_ORS, utilities
from experiments.cluster.tuned import CHOOSING

__all__ = ["HOLDS", "behind", "conditions", "ratio", "verdict", "verdicts"]

DOUBT = 0.05
LEAST = 1.0  # utility below which a run counts as this: one job of the least value
PUBLISHED = ("oasis", "drf", "dorm", "fifo")
LATER = ("least_attained", "marginal_goodput", "marginal_time")
TUNED = ("oasis", "dorm", "least_attained")

EARLIER_CLAIM = "PD-ORS earns more than OASiS, DRF, Dorm and FIFO"
LATER_CLAIM = "PD-ORS earns more than later schedulers"
TUNED_CLAIM = "tuned alike, PD-ORS earns more than all that can be tuned"
CHOOSING_CLAIM = "tuned, and choosing servers, PD-ORS earns more than marginal goodput"
LOCALITY_CLAIM = "placing a job on one machine pays where links are slow"


def behind(rival: ArrayLike, ours: ArrayLike, level: float = 1 - DOUBT) -> Difference:
    """Logarithm of a rival's utility less that of ours, over instances: negative if we earn more.

    Example:
        >>> behind([1.0, 2.0], [2.0, 4.0]).mean
        -0.6931471805599453
    """
    draws = max(4000, round(20 / (1 - level)) + 1)
    theirs, own = (np.log(np.maximum(np.asarray(one, float), LEAST)) for one in (rival, ours))
    return paired(theirs, own, level=level, draws=draws)


def ratio(difference: Difference) -> tuple[float, float, float]:
    """Ours over the rival's, a geometric mean, and the ends of its interval.

    Example:
        >>> [round(end, 3) for end in ratio(Difference(-0.6931, -0.7, -0.6, 1.0, 2))]
        [2.0, 1.822, 2.014]
    """
    mean, low, high = difference.mean, difference.low, difference.high
    return float(np.exp(-mean)), float(np.exp(-high)), float(np.exp(-low))


def _conditions(pairs: Sequence[tuple[str, ArrayLike, ArrayLike]]) -> tuple[Condition, ...]:
    """One for each (text, rival's utility, ours), which share the doubt."""
    level = 1 - DOUBT / max(len(pairs), 1)
    return tuple(Condition(text, behind(rival, ours, level)) for text, rival, ours in pairs)


def conditions(found: Mapping[str, Any]) -> dict[str, tuple[Condition, ...]]:
    """The claims of one set of instances; those about rules that were not run are left out.

    Args:
        found: Numbers of the set: "points", "local", and "tuned" where there was a tuning.
    """
    pairs: dict[str, list[tuple[str, ArrayLike, ArrayLike]]] = {}
    for point, own in found["points"].items():
        earned = utilities(own)
        for claim, rivals in ((EARLIER_CLAIM, PUBLISHED), (LATER_CLAIM, LATER)):
            for rival in rivals:
                if rival in earned:
                    text = f"{point}: more than {rival}"
                    pairs.setdefault(claim, []).append((text, earned[rival], earned[PD_ORS]))
    local = utilities(found["local"])
    pairs[LOCALITY_CLAIM] = [("local: more than apart", local["without"], local["with"])]
    if found.get("tuned"):
        earned = utilities(found["tuned"])
        pairs[TUNED_CLAIM] = [
            (f"more than tuned {rival}", earned[rival], earned[PD_ORS]) for rival in TUNED
        ]
        untuned = utilities(found["points"]["scarce"])
        if "marginal_goodput" in untuned:
            best = untuned["marginal_goodput"]
            pairs[CHOOSING_CLAIM] = [("more than marginal goodput", best, earned[CHOOSING])]
    return {claim: _conditions(own) for claim, own in pairs.items()}


def verdicts(found: Mapping[str, Any]) -> dict[str, str]:
    """The verdict of every claim, of one set of instances."""
    return {claim: verdict(own) for claim, own in conditions(found).items()}
