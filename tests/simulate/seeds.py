"""Seeds of drawn scenarios: run, counted, and made small where one fails.

A kind of scenario is a module with `draw(seed)`, `check(scenario, sometimes)`, `smaller(scenario)`
and the rare states that are counted, `SOMETIMES`.
"""

from collections import Counter
from typing import NamedTuple


class Finding(NamedTuple):
    """A scenario that fails."""

    seed: int
    message: str
    scenario: object


def failure(kind, scenario, sometimes=None):
    """What is wrong with a scenario, in words; None: nothing."""
    try:
        kind.check(scenario, Counter() if sometimes is None else sometimes)
    except Exception as error:  # whatever the library throws is a failure
        return f"{type(error).__name__}: {error}"
    return None


def run_seeds(kind, seeds, most=1):
    """Runs seeds until so many have failed; the findings, how many were run, the rare states."""
    findings, sometimes, number = [], Counter(dict.fromkeys(kind.SOMETIMES, 0)), 0
    for number, seed in enumerate(seeds, 1):
        message = failure(kind, kind.draw(seed), sometimes)
        if message is not None:
            findings.append(Finding(seed, message, kind.draw(seed)))
        if len(findings) == most:
            break
    return findings, number, sometimes


def shrunk(kind, scenario):
    """A scenario that fails too, with the same error, and of which nothing simpler does."""
    error = failure(kind, scenario).split(":")[0]
    while True:
        for simpler in kind.smaller(scenario):
            if (failure(kind, simpler) or "").split(":")[0] == error:
                scenario = simpler
                break
        else:
            return scenario
