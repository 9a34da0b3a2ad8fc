"""`python -m tests.simulate.seeds live --seeds 1000`: seeds run, counted, and made small.

A kind of scenario, `live` or `rollouts`, is a module with `draw(seed)`, `check(scenario,
sometimes)` and the rare states that are counted, `SOMETIMES`; a scenario is a dataclass whose
fields have values that are as usual, the seed and sizes aside. With `--write`
what came out goes to `campaign.json`, of which `docs/reliability.md` is made.
"""

import argparse
import importlib
import json
import sys
from collections import Counter
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import NamedTuple

CAMPAIGN = Path(__file__).with_name("campaign.json")


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
    findings, sometimes, done = [], Counter(dict.fromkeys(kind.SOMETIMES, 0)), 0
    for done, seed in enumerate(seeds, 1):  # noqa: B007
        message = failure(kind, kind.draw(seed), sometimes)
        if message is not None:
            findings.append(Finding(seed, message, kind.draw(seed)))
        if len(findings) == most:
            break
    return findings, done, sometimes


def shown(scenario):
    """What was drawn, without what is as usual."""
    drawn = [(field, getattr(scenario, field.name)) for field in fields(scenario)]
    told = [f"{field.name}={value!r}" for field, value in drawn if value != field.default]
    return f"Scenario({', '.join(told)})"


def smaller(scenario):
    """Simpler scenarios, of which one may fail like this one."""
    for field in fields(scenario)[1:]:
        value, simpler = getattr(scenario, field.name), []
        if value == field.default:
            continue
        if type(value) is int and value > 1:
            simpler = [value // 2, value - 1]
        elif field.default is not MISSING:
            simpler = [field.default]
        if type(value) is tuple and len(value) > 1 and type(value[0]) is tuple:
            simpler += [(each,) for each in value]
        yield from (replace(scenario, **{field.name: each}) for each in simpler)


def shrunk(kind, scenario):
    """A scenario that fails too, with the same error, and of which nothing simpler does."""
    error = failure(kind, scenario).split(":")[0]
    while True:
        for simpler in smaller(scenario):
            if (failure(kind, simpler) or "").split(":")[0] == error:
                scenario = simpler
                break
        else:
            return scenario


def write(name, number, failed, sometimes):
    """Puts the figures of a kind into the file."""
    known = json.loads(CAMPAIGN.read_text()) if CAMPAIGN.exists() else {}
    states = {state: int(times) for state, times in sometimes.items()}
    known[name] = {"seeds": number, "failed": failed, "sometimes": states}
    CAMPAIGN.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def main():
    """Reads the arguments, runs the seeds, and tells."""
    parser = argparse.ArgumentParser(prog="tests.simulate.seeds", description=__doc__)
    parser.add_argument("kind", choices=["live", "rollouts"])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    kind = importlib.import_module(f"tests.simulate.{given.kind}")
    seeds = range(given.start, given.start + given.seeds)
    findings, number, sometimes = run_seeds(kind, seeds, most=-1)
    for finding in findings:
        print(f"FAILED seed {finding.seed}: {finding.message}\n  {shown(finding.scenario)}")
        print(f"  made small: {shown(shrunk(kind, finding.scenario))}")
    print(f"{number} seeds, {len(findings)} failed")
    for state, times in sometimes.items():
        print(f"  {state}: {times}")
    if given.write:
        write(given.kind, number, len(findings), sometimes)
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
