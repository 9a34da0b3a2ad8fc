"""Does the simulator predict real runs?

A clock is measured in one run of the pure rule with real workers. Then every rule runs for real
and, on that clock, in simulation, and both are compared: time of so many updates, time to a target
loss, mean delay, utilisation. Workers sleep for most of a job, so that a machine of few cores has
workers of any speed: even ones, uneven ones, uneven ones of which one is killed a second after the
start, and even ones with a model of 10 MB, where the server has much to do. Run it with `python -m
experiments.reality`, with `--engine ray` on a local Ray.

The claim is that the clock of one pure run foretells the pace of every rule. A kind of workers and
a rule are one case: it is foretold if the error of the simulated time is within 10 % either way in
all repeats. (The range of five repeats holds the median error with a chance of 94 %, 1 - 2 / 2^5.)
The two sets of runs, A and B, are those on processes and on Ray.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result
from asyncjax.study.statistics import FAILS, HOLDS, OPEN, Condition, Difference
from experiments import part
from experiments.common.parts import Part, run_alone
from experiments.reality.runs import CASES, CLOCKS, RULES, Case, Compared, Settings, run_case

NAME = "reality"
TITLE = "Does the simulator predict real runs?"
PAPERS = ()
COMMAND = "python -m experiments.reality --commit, also --engine ray"
SETS = {"processes": "A", "ray": "B"}
CLAIM = "the clock of one run foretells the pace of every rule"
BOUND = 10.0  # percent
BEST = CLOCKS[-1]
LARGE = "10 MB"
BESIDE = ("to_target", "delay", "utilisation")  # compared beside the pace, with the last clock


def study_of(settings: Settings) -> Result:
    """Runs all cases; what is committed has the rows of the other engine, too.

    Raises:
        ValueError: A name or a number is out of range.
    """
    checked(settings)
    done = []
    for case in CASES:
        if case.name in settings.cases:
            print(f"workers: {case.name}", flush=True)
            done.append(run_case(settings, case))
    result = as_rows(settings, done)
    return beside(result, part.committed(NAME)) if settings.commit else result


def checked(settings: Settings) -> None:
    """Refuses settings that cannot be run.

    Raises:
        ValueError: A name or a number is out of range.
    """
    known = {"cases": [case.name for case in CASES], "rules": [rule.name for rule in RULES]}
    for field, names in known.items():
        for name in getattr(settings, field) or ("nothing",):
            if name not in names:
                raise ValueError(f"{field} must be among {', '.join(names)}, got {name!r}")
    for field, least in (("repeats", 1), ("heard", 2)):
        if getattr(settings, field) < least:
            raise ValueError(f"{field} must be at least {least}, got {getattr(settings, field)}")
    if settings.commit and settings.engine not in SETS:
        raise ValueError(
            f"engine must be among {', '.join(SETS)} for numbers that are committed,"
            f" got {settings.engine!r}"
        )
    if settings.engine == "threads" and "one killed" in settings.cases:
        raise ValueError("cases must be without 'one killed' on threads, which cannot be killed")


def as_rows(settings: Settings, cases: Sequence[Case]) -> Result:
    """A row a kind of workers, rule and clock: its error in percent over the repeats."""
    rows = [row for case in cases for one in case.rules for row in _rows(case, one)]
    letter = SETS.get(settings.engine, "A")
    table = pd.DataFrame(rows)
    table.insert(1, "set", letter)
    told = {
        case.workers.name: {
            "heard": min(one.heard for one in case.measured),
            "link": float(np.median([one.link for one in case.measured])),
            "server": float(np.median([one.service.step for one in case.measured])),
            "mean jobs": [float(np.mean(np.asarray(one.clock.mean))) for one in case.measured],
        }
        for case in cases
        if case.measured
    }
    return Result(table, "median", {"repeats": settings.repeats, f"measured, {letter}": told})


def beside(result: Result, other: Result) -> Result:
    """The rows of an engine with those that another file has of other engines."""
    rest = other.rows[~other.rows["set"].isin(result.sets)]
    rows = pd.concat([result.rows, rest]).sort_values("set", kind="stable", ignore_index=True)
    return Result(rows, result.compared, {**other.facts, **result.facts})


def _rows(case: Case, one: Compared) -> Iterator[dict[str, Any]]:
    """What is printed of a rule, and no more."""
    real = np.array([run.time for run in one.real])
    stalled = [int(run.updates) for run in one.real if run.updates < one.n_updates]
    stalls = len(stalled) > len(one.real) / 2
    for clock in CLOCKS:
        runs = one.simulated[clock]
        row: dict[str, Any] = {"scene": case.workers.name, "method": one.rule.name, "clock": clock}
        row |= {"updates": one.n_updates}
        off = 100 * (np.array([run.time for run in runs]) / real - 1.0)
        for name, value in (("median", np.median(off)), ("least", off.min()), ("most", off.max())):
            row[name] = math.nan if stalls else round(float(value), 1)
        after = int(np.median([run.updates for run in runs]))
        row["real_seconds"] = math.nan if stalls else round(float(np.median(real)), 2)
        row |= {"stalls_after": float(np.median(stalled)) if stalls else math.nan}
        row |= {"simulated_stalls_after": float(after) if stalls else math.nan}
        for name in BESIDE:
            ends = {"real": one.real, "simulated": one.simulated[BEST]}
            for kind, those in ends.items():
                middle = float(np.median([getattr(run, name) for run in those]))
                row[f"{name}_{kind}"] = middle
        yield row


def conditions(result: Result, letter: str) -> tuple[Condition, ...]:
    """Of each case that does not stall: its error is within the bound, whatever its sign."""
    rows = result.select(set=letter, clock=BEST)
    return tuple(_condition(result, row) for row in rows[rows["median"].notna()].itertuples())


def _condition(result: Result, row: Any) -> Condition:
    least = 0.0 if row.least < 0 < row.most else min(abs(row.least), abs(row.most))
    most = max(abs(row.least), abs(row.most))
    share, count = float(row.median < 0), result.facts["repeats"]
    size = Difference(abs(row.median), least, most, share, count)
    return Condition(f"{row.scene}, {row.method}: within {BOUND:g} %", size, BOUND)


def claims(result: Result) -> tuple[Claim, ...]:
    """The claim, of the cases that were run."""
    most = max((len(conditions(result, letter)) for letter in result.sets), default=0)
    asked = [lambda own, letter, level, at=at: conditions(own, letter)[at] for at in range(most)]
    return (Claim(CLAIM, asked),) if asked else ()


def sizes(result: Result) -> dict[str, dict[str, list[float]]]:
    """Absolute median errors by set, ascending, of small models and of the large one."""
    found = {}
    for letter in result.sets:
        rows = result.select(set=letter, clock=BEST).dropna(subset="median")
        is_large = rows["scene"] == LARGE
        found[letter] = {
            "small": sorted(rows[~is_large]["median"].abs()),
            LARGE: sorted(rows[is_large]["median"].abs()),
        }
    return found


def counts(result: Result) -> dict[str, dict[str, int]]:
    """How many cases have each verdict by set, and how many there are."""
    found = {}
    for letter in result.sets:
        said = [one.verdict for one in conditions(result, letter)]
        found[letter] = {name: said.count(name) for name in (HOLDS, OPEN, FAILS)}
        found[letter]["all"] = len(said)
    return found


def answer(result: Result) -> str:
    """How far off the simulation is, over workers and rules that do not stall."""
    said = []
    for letter in result.sets:
        own = [size for errors in sizes(result)[letter].values() for size in errors]
        if own:
            said.append(
                f"set {letter}: the simulation with the clock '{BEST}' misses the time of all"
                f" updates by {np.median(own):.1f} % (at most {max(own):.1f} %), median over"
                f" {len(own)} pairs of workers and rule, each the median of its repeats"
            )
    return f"{'; '.join(said) or 'all runs stall'}."


def error_table(result: Result, letter: str) -> results.Table:
    """Errors of a set: workers and rules."""
    rows, before = [], ""
    for (workers, rule), own in result.select(set=letter).groupby(["scene", "method"], sort=False):
        first, by_clock = own.iloc[0], own.set_index("clock")
        if math.isnan(first["median"]):
            after = [f"after {by_clock.loc[clock].simulated_stalls_after:g}" for clock in CLOCKS]
            said = [f"stalls after {first.stalls_after:g}", *after]
        else:
            ends = [by_clock.loc[clock, ["median", "least", "most"]] for clock in CLOCKS]
            errors = [f"{middle:+.1f} ({low:+.1f} to {high:+.1f})" for middle, low, high in ends]
            said = [f"{first.real_seconds:.2f}", *errors]
        rows.append(("" if workers == before else workers, rule, int(first.updates), *said))
        before = workers
    heads = ("workers", "rule", "updates", "real [s]", "the law asked for", "measured clock")
    heads += ("and the server's time",)
    return results.Table(
        tuple(results.Column(head, right=place > 1) for place, head in enumerate(heads)),
        tuple(rows),
        "Time of so many updates: real, median, and the error of the simulation in percent, median"
        " (smallest to largest) of the repeats, with three clocks.",
    )


def beside_table(result: Result) -> results.Table:
    """What else is compared, real and simulated side by side."""
    rows = result.select(clock=BEST)
    shown = [f"{name}_{kind}" for name in BESIDE for kind in ("real", "simulated")]
    table = [
        (letter, workers, rule, *(None if math.isnan(x) else f"{x:.3g}" for x in own))
        for letter, workers, rule, *own in rows[["set", "scene", "method", *shown]].to_numpy()
    ]
    heads = ("set", "workers", "rule", *(name.replace("_", ", ") for name in shown))
    return results.Table(
        tuple(results.Column(head, right=place > 2) for place, head in enumerate(heads)),
        tuple(table),
        f"Time to the target [s], mean delay, utilisation: medians, with the clock '{BEST}'.",
    )


TABLES = {
    "A": lambda result: error_table(result, "A"),
    "B": lambda result: error_table(result, "B"),
    "beside": beside_table,
}


def worst_repeat(result: Result) -> dict[str, float]:
    """The largest error of a single repeat with small models, by set."""
    rows = result.select(clock=BEST, scene=lambda scenes: scenes != LARGE)
    worst = rows[["least", "most"]].abs().max(axis=1).groupby(rows["set"]).max()
    return {str(letter): float(error) for letter, error in worst.items()}


def middle_of_small(result: Result) -> dict[str, float]:
    """The median of the errors of small models, by set."""
    found = sizes(result)
    return {letter: float(np.median(own["small"] or [math.nan])) for letter, own in found.items()}


FACTS = {
    "sizes": sizes,
    "counts": counts,
    "worst repeat": worst_repeat,
    "middle of small": middle_of_small,
}


def figure(result: Result) -> Illustration:
    """Errors of the simulated time by workers and rule, a panel an engine."""
    with drawing():
        page = new_figure(4.2 * len(result.sets) + 1.0, 6.2)
        panels = page.subplots(1, len(result.sets), squeeze=False, sharex=True)[0]
        for axes, letter in zip(panels, result.sets, strict=True):
            rows = result.select(set=letter, clock=BEST).dropna(subset="median")
            at = np.arange(len(rows))
            ends = [rows["median"] - rows["least"], rows["most"] - rows["median"]]
            axes.errorbar(rows["median"], at, xerr=ends, fmt="o", markersize=4, linewidth=1)
            axes.axvspan(-BOUND, BOUND, color="0.9", zorder=0)
            axes.set_yticks(at, [f"{row.scene}, {row.method}" for row in rows.itertuples()])
            axes.invert_yaxis()
            axes.set_xscale("symlog", linthresh=20.0)
            engine = next(name for name, own in SETS.items() if own == letter)
            axes.set(title=engine, xlabel="error of the simulated time [%]")
            add_grid(axes)
    caption = (
        "Simulated over real time of all updates, less 1: medians, bars the smallest and the"
        f" largest of the repeats; grey {BOUND:g} % either way. The clock and the server's time of"
        " a repeat are from one run of the pure rule."
    )
    return Illustration(page, caption)


FIGURES = {"errors": figure}


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, the figure, the answer."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
