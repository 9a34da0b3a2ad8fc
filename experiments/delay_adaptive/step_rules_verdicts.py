"""Claims on step-size rules, their verdicts, and the numbers that are kept.

A condition of a claim is a case (data and law of delays) at a target; it holds where the interval
of the paired difference of log updates (or times) over instances lies below 0. Runs that are not
there count as the horizon; a target that nobody keeps in a case is no condition. The conditions of
one claim share its doubt of 5 %.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncjax.study.statistics import Condition, Difference, paired, verdict
from experiments.common import numbers as kept_numbers
from experiments.delay_adaptive.step_rules_runs import CONSTANT, RELATIVE, SETS, SYNCHRONOUS

OURS = "Adaptive 1"
SAFE_CLAIM = "where delays vary, Adaptive 1 needs fewer updates than a step safe for the longest"
STEADY_CLAIM = "where delays are constant, Adaptive 1 needs fewer updates than such a step, too"
TUNED_CLAIM = "tuned alike, Adaptive 1 needs fewer updates than a constant step"
NAIVE_CLAIM = "at gamma', Adaptive 1 needs fewer updates than c / (delay + 1)"
ROUNDS_CLAIM = "at theory steps, Adaptive 1 takes less time than synchronous rounds"
DOUBT = 0.05
DIGITS = 5
Found = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """That Adaptive 1 is ahead of a rival.

    Attributes:
        rival: Name of the rule; "fixed" stands for that of the part.
        kind: "theory" or "tuned".
        counts: Whether a case of this name is one that the claim speaks of.
        axis: "updates" or "times".
    """

    rival: str
    kind: str = "theory"
    counts: Callable[[str], bool] = lambda case: True
    axis: str = "updates"


CLAIMS = {
    SAFE_CLAIM: Claim("fixed", counts=lambda case: "constant" not in case),
    STEADY_CLAIM: Claim("fixed", counts=lambda case: "constant" in case),
    TUNED_CLAIM: Claim(CONSTANT, kind="tuned"),
    NAIVE_CLAIM: Claim("c/(delay+1)"),
    ROUNDS_CLAIM: Claim(SYNCHRONOUS, axis="times"),
}


def _values(found: Found, own: Found, kind: str, rule: str, axis: str, level: int) -> np.ndarray:
    """Updates or times to a target, float64[instances]; inf: not there by the horizon."""
    values = np.array(own[kind][rule][axis], float)[:, level]
    return np.where(values <= _horizon(found, own, axis), values, np.inf)


def _horizon(found: Found, own: Found, axis: str) -> np.ndarray:
    """Until when runs are watched: for all the time that Adaptive 1 needs for its updates."""
    return np.asarray(own["horizon"] if axis == "times" else found["n_updates"], float)


def _both(
    found: Found, case: str, letter: str, rival: str, level: int, kind: str, axis: str
) -> list[np.ndarray] | None:
    """Values of Adaptive 1 and a rival; None if nobody is there, or the rival was not run."""
    own = found["cases"][case][letter]
    if rival not in own[kind]:
        return None
    values = [_values(found, own, kind, rule, axis, level) for rule in (OURS, rival)]
    return values if np.isfinite(values).any() else None


def ahead(
    found: Found,
    case: str,
    letter: str,
    rival: str,
    level: int = -1,
    *,
    kind: str = "theory",
    axis: str = "updates",
    doubt: float = DOUBT,
) -> tuple[Difference, str] | None:
    """Logarithm of the updates of Adaptive 1 less that of a rival's: negative if it is ahead.

    Args:
        found: Numbers of the part.
        case: Name of the case.
        letter: Of the set.
        rival: Name of the rule.
        level: Place of the target.
        kind: "theory" or "tuned".
        axis: "updates" or "times".
        doubt: Of the interval.

    Returns:
        The difference, and what stands before the ratio of the rival's to those of Adaptive 1:
        "> " if only runs of the rival did not get there, "< " if only runs of Adaptive 1,
        "about " if of both. None if nobody did, or the rival was not run.
    """
    values = _both(found, case, letter, rival, level, kind, axis)
    if values is None:
        return None
    last = _horizon(found, found["cases"][case][letter], axis)
    ours, theirs = (np.log(np.maximum(np.minimum(one, last), 1e-3)) for one in values)
    draws = max(4000, round(20 / doubt) + 1)
    difference = paired(ours, theirs, level=1 - doubt, draws=draws)
    ours_short, theirs_short = (bool(np.isinf(own).any()) for own in values)
    return difference, {0: "", 1: "> ", 2: "< ", 3: "about "}[theirs_short + 2 * ours_short]


def conditions(found: Found, letter: str) -> dict[str, tuple[Condition, ...]]:
    """The claims of one set; those that no case of the part speaks of are left out."""
    made = {}
    for name, claim in CLAIMS.items():
        rival = found["fixed"] if claim.rival == "fixed" else claim.rival
        last = len(found["levels"]) - 1
        levels = [last] if claim.kind == "tuned" else range(last + 1)
        places = [
            (case, level)
            for case in found["cases"]
            if claim.counts(case)
            for level in levels
            if _both(found, case, letter, rival, level, claim.kind, claim.axis) is not None
        ]
        own = [
            (
                f"{case}, {100 * found['levels'][level]:g} %",
                ahead(
                    found,
                    case,
                    letter,
                    rival,
                    level,
                    kind=claim.kind,
                    axis=claim.axis,
                    doubt=DOUBT / len(places),
                ),
            )
            for case, level in places
        ]
        if own:
            made[name] = tuple(Condition(text, said[0]) for text, said in own if said is not None)
    return made


def verdicts(found: Found, letter: str) -> dict[str, str]:
    """The verdict of every claim, of one set of instances."""
    return {claim: verdict(own) for claim, own in conditions(found, letter).items()}


def predicted(found: Found, case: str, letter: str) -> float:
    """The ratio of the sums of the steps, Adaptive 1 over the fixed rule, geometric mean."""
    sums = found["cases"][case][letter]["predicted"]
    return float(np.exp(np.mean(np.log(np.array(sums[OURS]) / sums[found["fixed"]]))))


def numbers(cases: Mapping[str, Any], levels: tuple[float, ...], n_updates: int, fixed: str) -> Any:
    """All that tables, figures and verdicts are made from, with what pages quote of it."""
    found: dict[str, Any] = {
        "cases": dict(cases),
        "levels": list(levels),
        "n_updates": n_updates,
        "fixed": fixed,
    }
    found = kept_numbers.rounded(found, DIGITS)
    found["ratios"] = {
        case: {letter: _ratios(found, case, letter) for letter in SETS} for case in found["cases"]
    }
    found["verdicts"] = {letter: verdicts(found, letter) for letter in SETS}
    return kept_numbers.rounded(found, DIGITS)


def _ratios(found: Found, case: str, letter: str) -> dict[str, Any]:
    """Rivals over Adaptive 1, geometric means: by target against the fixed rule, then the others.

    None where nobody is there.
    """

    def ratio(rival: str, level: int = -1, kind: str = "theory", axis: str = "updates"):
        said = ahead(found, case, letter, rival, level, kind=kind, axis=axis)
        return None if said is None else float(np.exp(-said[0].mean))

    theory = found["cases"][case][letter]["theory"]
    return {
        "fixed": [ratio(found["fixed"], level) for level in range(len(found["levels"]))],
        "predicted": predicted(found, case, letter),
        "theory": {rule: ratio(rule) for rule in theory if rule not in (OURS, SYNCHRONOUS)},
        "tuned": {rule: ratio(rule, kind="tuned") for rule in RELATIVE if rule != OURS},
        "rounds": {
            kind: ratio(SYNCHRONOUS, kind=kind, axis="times") for kind in ("theory", "tuned")
        },
    }


def commit(name: str, found: Found) -> None:
    """Writes the numbers where committed ones are."""
    command = f"python -m experiments.delay_adaptive.{name} --commit"
    kept_numbers.save(name, found, command=command, digits=DIGITS)
