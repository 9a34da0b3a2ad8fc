"""What is committed of the comparison, and what it says of the claim, by a stated rule.

The claim is that the clock of one pure run foretells the pace of every rule. A kind of workers and
a rule are one case: it is foretold if the error of the simulated time is within 10 % either way in
all repeats. (The range of five repeats holds the median error with a chance of 94 %, 1 - 2 / 2^5.)
The two sets of runs, A and B, are those on processes and on Ray.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax.study.statistics import FAILS, HOLDS, OPEN, Condition, Difference
from experiments.common import numbers
from experiments.reality.runs import CASES, CLOCKS, RULES, Case, Settings

NAME = "reality"
SETS = {"processes": "A", "ray": "B"}
BOUND = 10.0  # percent
BEST = CLOCKS[-1]
LARGE = "10 MB"


def measured(settings: Settings, cases: Sequence[Case]) -> dict[str, Any]:
    """Errors of the simulated time in percent, by workers and rule; what is printed and no more.

    Returns:
        "cases": for each the updates, the real seconds (median), whether it stalls, and for each
        clock median, least and most over repeats; "sizes": absolute medians with the last clock,
        ascending, of small models and of the large one; "counts": cases by their verdict.
    """
    made: dict[str, dict[str, Any]] = {}
    for case in cases:
        for one in case.rules:
            own: dict[str, Any] = {"updates": one.n_updates}
            real = np.array([run.time for run in one.real])
            stalls = [int(run.updates) for run in one.real if run.updates < one.n_updates]
            if len(stalls) > len(one.real) / 2:
                own["stalls after"] = [int(np.median(stalls))]
                for clock in CLOCKS:
                    after = [run.updates for run in one.simulated[clock]]
                    own["stalls after"].append(int(np.median(after)))
            else:
                own["seconds"] = round(float(np.median(real)), 2)
                for clock in CLOCKS:
                    simulated = np.array([run.time for run in one.simulated[clock]])
                    off = 100 * (simulated / real - 1.0)
                    ends = (np.median(off), off.min(), off.max())
                    own[clock] = [round(float(end), 1) for end in ends]
            made.setdefault(case.workers.name, {})[one.rule.name] = own
    found = {"repeats": settings.repeats, "cases": made, "sizes": sizes(made)}
    return found | {"counts": counts(found)}


def counts(own: Mapping[str, Any]) -> dict[str, int]:
    """How many cases have each verdict, and how many there are."""
    said = [one.verdict for one in conditions(own)]
    return {name: said.count(name) for name in (HOLDS, OPEN, FAILS)} | {"all": len(said)}


def sizes(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, list[float]]:
    """Absolute median errors, ascending, of small models and of the large one."""
    found: dict[str, list[float]] = {"small": [], LARGE: []}
    for workers, rules in cases.items():
        errors = [abs(own[BEST][0]) for own in rules.values() if BEST in own]
        found[LARGE if workers == LARGE else "small"] += errors
    return {name: sorted(own) for name, own in found.items()}


def conditions(own: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Of each case that does not stall: its error is within the bound, whatever its sign."""
    made = []
    for workers, rules in own["cases"].items():
        for rule, errors in rules.items():
            if BEST not in errors:
                continue
            middle, low, high = errors[BEST]
            least = 0.0 if low < 0 < high else min(abs(low), abs(high))
            most = max(abs(low), abs(high))
            size = Difference(abs(middle), least, most, float(middle < 0), own["repeats"])
            made.append(Condition(f"{workers}, {rule}: within {BOUND:g} %", size, BOUND))
    return tuple(made)


def commit(settings: Settings, cases: Sequence[Case]) -> None:
    """Writes the numbers of an engine beside those of the other."""
    try:
        known = numbers.load(NAME)
    except FileNotFoundError:
        known = {}
    found = {**known, SETS[settings.engine]: measured(settings, cases)}
    numbers.save(NAME, found, command="python -m experiments.reality --commit, also --engine ray")


def page_rows(own: Mapping[str, Any]) -> list[str]:
    """The rows of the table of a set in `experiments/README.md`."""
    rows = []
    for workers in (case.name for case in CASES if case.name in own["cases"]):
        rules = own["cases"][workers]
        for place, rule in enumerate(one.name for one in RULES if one.name in rules):
            errors = rules[rule]
            head = f"| {'' if place else workers} | {rule} | {errors['updates']} |"
            if "stalls after" in errors:
                real, *made = errors["stalls after"]
                said = " | ".join([f"stalls after {real}", *(f"after {one}" for one in made)])
            else:
                said = " | ".join([f"{errors['seconds']:.2f}", *(_text(errors[c]) for c in CLOCKS)])
            rows.append(f"{head.replace('|  |', '| |')} {said} |")
    return rows


def _text(error: Sequence[float]) -> str:
    middle, low, high = error
    return f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"
