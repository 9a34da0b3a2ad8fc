"""What the main job claims, as conditions on numbers, for each of two disjoint sets of instances.

The numbers of a set are committed (`experiments/numbers/compare.json`); verdicts and ranks follow
from them by rule, so nobody has to run anything to see whether the two sets agree.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax.study import protocol
from asyncjax.study.statistics import (
    Condition,
    Difference,
    disagreements,
    paired,
    ranks,
    verdict,
)
from experiments.common import numbers
from experiments.common.reaching import last_within, wasted
from experiments.common.skewed_digits import split_digits
from experiments.compare.runs import ROLES, Outcome, Settings
from experiments.compare.tables import DOUBT, gradients, times

NAME = "compare"
Measured = Mapping[str, Any]  # of one set: "settings", and "methods" by name


def measured(settings: Settings, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The numbers of a set that are committed: lists have one number an instance."""
    kept = ("instances", "tuning_instances", "n_workers", "slowest", "horizon", "batch", "hidden")
    kept += ("concentration", "validation", "target", "records", "seed")
    rows = {name: len(labels) for name, (_, labels) in split_digits(settings.validation).items()}
    return {
        "settings": {**{name: getattr(settings, name) for name in kept}, "rows": rows},
        "methods": {
            one.method.name: {
                "step": one.step_size,
                "trials": len(one.tuned.trials),
                "tuning_gradients": len(one.tuned.trials) * one.tuned.gradients,
                "at_edge": list(one.tuned.edges),
                "time": times(settings, one),
                "gradients": gradients(settings, one),
                "final_loss": last_within(settings.horizon, one.time, one.loss),
                "final_accuracy": last_within(settings.horizon, one.time, one.accuracy),
                "delay_mean": [float(own.delay_mean) for own in one.summaries],
                "delay_max": [int(own.delay_max) for own in one.summaries],
                "utilisation": [float(own.utilisation) for own in one.summaries],
                "thrown_away": [float(wasted(own)) for own in one.summaries],
            }
            for one in outcomes
        },
    }


def conditions(found: Measured) -> dict[str, tuple[Condition, ...]]:
    """The claims of one set of instances; those about methods that were not run are left out.

    A claim of several conditions shares its doubt among them.
    """
    names = tuple(found["methods"])
    others = tuple(name for name in names if name != "pure async")
    asked = {
        "pure async is at the target before synchronous rounds": (
            "time", "pure async", ("synchronous",)
        ),
        "waiting for the faster half is at the target before waiting for all": (
            "time", "fastest half", ("synchronous",)
        ),
        "pure async is at the target before every other method": ("time", "pure async", others),
        "shuffled async needs fewer gradients than every other method": (
            "gradients", "shuffled async", tuple(n for n in names if n != "shuffled async")
        ),
        "a tuned constant step is at the target before Adaptive 1 and 2": (
            "time", "pure async", ("Adaptive 1", "Adaptive 2")
        ),
        "scaling by staleness is at the target before a constant step": (
            "time", "staleness scaled", ("pure async",)
        ),
        "pure async has the lowest final loss": ("final_loss", "pure async", others),
    }  # fmt: skip
    made = {}
    for claim, (what, first, seconds) in asked.items():
        if not seconds or not {first, *seconds} <= set(names):
            continue
        level = 1 - DOUBT / len(seconds)
        made[claim] = tuple(
            Condition(f"{first} below {second}", apart(found, what, first, second, level))
            for second in seconds
        )
    return made


def apart(found: Measured, what: str, first: str, second: str, level: float = 0.95) -> Difference:
    """The paired difference of logarithms, first less second, of what is cut where it never came.

    Args:
        found: Numbers of a set.
        what: "time", "gradients" or "final_loss".
        first: A method.
        second: Another.
        level: Of the interval.
    """
    one, other = (_logarithms(found, what, name) for name in (first, second))
    draws = max(4000, round(20 / (1 - level)))
    return paired(one, other, found["settings"]["seed"], level, draws)


def mark(cut: bool, other_cut: bool) -> str:
    """What stands before a ratio of times of which some are cut at the horizon.

    Args:
        cut: Whether some of the first method's times are.
        other_cut: Whether some of the second's are.

    Example:
        >>> mark(cut=True, other_cut=False), mark(cut=False, other_cut=False)
        ('>', '')
    """
    return {(True, False): ">", (False, True): "<", (True, True): "~"}.get((cut, other_cut), "")


def _logarithms(found: Measured, what: str, name: str) -> np.ndarray:
    own = found["methods"][name]
    values = np.asarray(own[what], float)
    if what == "time":
        return np.log(protocol.restricted(values, found["settings"]["horizon"]))
    finite = values[np.isfinite(values)]  # a run that never got there used at least the most seen
    return np.log(np.where(np.isfinite(values), values, max(finite, default=1.0)))


def verdicts(found: Measured) -> dict[str, str]:
    """What the numbers of one set say of each claim."""
    return {claim: verdict(parts) for claim, parts in conditions(found).items()}


def relations(found: Measured) -> dict[tuple[str, str], int]:
    """For every pair of methods -1 where the first is told to be earlier, 1 later, 0 neither."""
    logs = {name: _logarithms(found, "time", name) for name in found["methods"]}
    pairs = [(one, other) for one in sorted(logs) for other in sorted(logs) if one < other]
    level = 1 - DOUBT / max(len(pairs), 1)
    seed = found["settings"]["seed"]
    made = {}
    for one, other in pairs:
        gap = paired(logs[one], logs[other], seed, level, round(20 / (1 - level)))
        made[one, other] = int(gap.low > 0) - int(gap.high < 0)
    return made


def agreement(sets: Mapping[str, Measured]) -> str:
    """Whether the sets agree, in words; what is missing is said, too.

    Args:
        sets: Numbers by the set's letter.
    """
    if missing := [letter for letter in ROLES if letter not in sets]:
        return f"Set {missing[0]} has not been run: nothing to compare with."
    one, other = (verdicts(sets[letter]) for letter in ROLES)
    apart = disagreements(one, other)
    first, second = (relations(sets[letter]) for letter in ROLES)
    same = sum(first[pair] == second[pair] != 0 for pair in first)
    open_in_both = sum(first[pair] == second[pair] == 0 for pair in first)
    against = sum(first[pair] * second[pair] < 0 for pair in first)
    rest = len(first) - same - open_in_both - against
    words = f"Two disjoint sets of {sets['A']['settings']['instances']} instances" + (
        f" agree in all {len(one)} verdicts."
        if not apart
        else f" differ in {len(apart)} of {len(one)} verdicts: "
        + "; ".join(f"{claim} ({a} | {b})" for claim, (a, b) in apart.items())
        + "."
    )
    return (
        f"{words} Of {len(first)} pairs of methods {same} are told apart the same way in both,"
        f" {open_in_both} in neither, {rest} in one only, {against} in opposite ways."
    )


def standing(found: Measured) -> tuple[Any, ...]:
    """Places of the methods by their time to the target, as in the table."""
    logs = {name: _logarithms(found, "time", name) for name in found["methods"]}
    pairs = len(logs) * (len(logs) - 1) // 2
    draws = max(4000, round(20 * pairs / DOUBT))
    return ranks(logs, found["settings"]["seed"], 1 - DOUBT / pairs, draws)


def committed() -> dict[str, Measured]:
    """The committed numbers by the set's letter; empty where there are none."""
    try:
        return dict(numbers.load(NAME))
    except FileNotFoundError:
        return {}


def commit(settings: Settings, found: Measured, command: str) -> None:
    """Writes a set's numbers beside those of the other."""
    kept = {**committed(), settings.set: found}
    numbers.save(NAME, kept, command=f"{command} --commit, with --set A and --set B")
