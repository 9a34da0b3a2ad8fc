"""What the price of an idle machine is worth: floors learned from past workloads.

PD-ORS sets the lowest price L from the single most hopeless job, far below anything that matters.
Here L is a number, learned on the tuning instances of the protocol with as many trials as the
rivals that have a knob, and compared on two other sets with the literal floor, with the floor that
the best delays give, with the floor that was learned on another cluster or load, and with rivals
that know no prices. Three points: machines scarce, half the work, more machines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import cluster, results
from asyncjax.results import plots
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study import statistics as comparison
from experiments.cluster import rivals_runs, tuned
from experiments.cluster.rivals_report import LABELS
from experiments.cluster.rivals_runs import PD_ORS, ROLES, Played, Point, values
from experiments.cluster.verdicts import DOUBT, behind, ratio
from experiments.common import numbers
from experiments.common.parts import Drawing, Part, run_alone, written

NAME = "cluster_floors"
REFERENCE, LIGHT, LARGE = "scarce", "half the work", "more machines"
LITERAL, BEST_DELAY = "literal floor", "best-delay floor"
LEARNED, MOVED = "learned floor", "floor learned on scarce"
CHOOSING, DORM = "learned floor, choosing servers", "dorm"
UNTUNED = ("drf", "marginal_goodput")
TUNED = {PD_ORS: LEARNED, tuned.CHOOSING: CHOOSING, DORM: DORM}

CLAIM = "a price floor learned from the past earns more than the literal one"
MOVED_CLAIM = "a floor learned on one cluster and load earns more than the literal one on another"
RIVAL_CLAIM = "with a learned floor PD-ORS earns more than marginal goodput"
CHOOSING_CLAIM = "with a learned floor, and choosing servers, it earns more than marginal goodput"
CLAIMS = {  # of each: who earns more than whom, at every point where both were played
    CLAIM: (LEARNED, LITERAL),
    MOVED_CLAIM: (MOVED, LITERAL),
    RIVAL_CLAIM: (LEARNED, "marginal_goodput"),
    CHOOSING_CLAIM: (CHOOSING, "marginal_goodput"),
}


@dataclass(frozen=True)
class Settings:
    """What is run. Floors are learned on instances of their own; A and B are disjoint."""

    output: Path = Path("output/cluster_floors")
    seed: int = 0  # of all instances, below 256
    instances: int = 20  # of each set
    tuning_instances: int = 10
    trials: int = 6  # settings a rule tries in a round of tuning
    n_jobs: int = 40
    n_slots: int = 16
    n_machines: int = 30
    light: float = 0.5  # factor of all samples, on the same cluster
    large: int = 50  # machines of another cluster, for the same jobs
    commit: bool = False  # write experiments/numbers/cluster_floors.json
    committed: bool = False  # measure nothing: tables and verdicts of the committed numbers


def points(settings: Settings) -> dict[str, Point]:
    """Where floors are learned; the first is that of the floor that is carried."""
    n_jobs, n_machines = settings.n_jobs, settings.n_machines
    return {
        REFERENCE: Point(n_jobs, n_machines),
        LIGHT: Point(n_jobs, n_machines, settings.light),
        LARGE: Point(n_jobs, settings.large),
    }


def best_delay_floor(jobs: cluster.Jobs, machines: cluster.Machines, n_slots: int) -> float:
    """The floor that values jobs at their best delays and not at the end of time."""
    delays = np.minimum(cluster.best_delays(jobs), n_slots - jobs.arrival)
    return cluster.price_bounds(jobs, machines, n_slots=n_slots, delays=delays).low


def _at_best_delays(
    jobs: cluster.Jobs, machines: cluster.Machines, *, n_slots: int
) -> cluster.Schedule:
    """PD-ORS with that floor."""
    low = best_delay_floor(jobs, machines, n_slots)
    return cluster.pd_ors(jobs, machines, n_slots=n_slots, low=low)


def run(settings: Settings) -> Part:
    """Learns floors, plays both sets, or reads the committed numbers; writes figures and numbers.

    Raises:
        FileNotFoundError: Committed numbers are asked for, and there are none.
        RuntimeError: A schedule breaks a rule.
    """
    if settings.committed:
        found = numbers.load(NAME)
    else:
        found = numbers.rounded(measured(settings))
        if settings.commit:
            numbers.save(NAME, found, command="python -m experiments.cluster.floors --commit")
    return written(
        settings.output,
        NAME,
        "What is the price of an idle machine worth?",
        (_figure(found["points"]),),
        (verdict_table(found), utility_table(found), trials_table(found)),
        found,
    )


def measured(settings: Settings) -> dict[str, Any]:
    """All numbers, as values for JSON; lists are over instances."""
    common = {
        name: value
        for name, value in asdict(settings).items()
        if name in rivals_runs.Settings.__dataclass_fields__
    }
    played = Played(rivals_runs.Settings(**{**common, "commit": False, "committed": False}))
    found: dict[str, Any] = {}
    for name, point in points(settings).items():
        carried = found[REFERENCE]["tuning"][PD_ORS]["chosen"]["low"] if found else None
        found[name] = _measured(played, point, carried)
    made = {
        "settings": {name: value for name, value in common.items() if name != "output"},
        "points": found,
    }
    return made | {
        "ratios": _ratios(made),
        "verdicts": {letter: verdicts(made, letter) for letter in ROLES},
    }


def _measured(played: Played, point: Point, carried: float | None) -> dict[str, Any]:
    """Learns the floor of a point and plays both sets with it and beside it."""
    settings = played.settings
    past = protocol.seeds_of(settings.seed, protocol.TUNING, settings.tuning_instances)
    found = tuned.tuned(played, point, tuple(TUNED))
    rules: dict[str, tuple[str, Callable[..., cluster.Schedule]]] = {
        LITERAL: (PD_ORS, cluster.pd_ors),
        BEST_DELAY: (BEST_DELAY, _at_best_delays),
    }
    for name, own in found.items():
        knobs = own.best.settings
        rules[TUNED[name]] = (tuned.played_as(name, knobs), tuned.scheduler(name, knobs))
    if carried is not None:
        knobs = {"low": carried}
        rules[MOVED] = (tuned.played_as(PD_ORS, knobs), partial(cluster.pd_ors, low=carried))
    rules |= {name: (name, cluster.SCHEDULERS[name]) for name in UNTUNED}

    def earned(name: str, some: Sequence[protocol.Seeds]) -> list[float]:
        return values(played(point, *rules[name], some)).tolist()

    sets = {
        letter: protocol.seeds_of(settings.seed, role, settings.instances)
        for letter, role in ROLES.items()
    }
    return {
        "tuning": tuned.kept(found),
        "past": {name: earned(name, past) for name in (LITERAL, "marginal_goodput")},
        "floors": {
            name: sorted(
                [trial.settings["low"], *_mean_and_error(played, point, name, trial, past)]
                for trial in found[name].trials
            )
            for name in (PD_ORS, tuned.CHOOSING)
        },
        "sets": {
            letter: {name: earned(name, some) for name in rules} for letter, some in sets.items()
        },
    }


def _mean_and_error(
    played: Played,
    point: Point,
    name: str,
    trial: tuning.Trial,
    past: Sequence[protocol.Seeds],
) -> tuple[float, float]:
    """Mean utility of a trial and its standard error; the episodes were played before."""
    rule = tuned.scheduler(name, trial.settings)
    own = values(played(point, tuned.played_as(name, trial.settings), rule, past))
    return float(own.mean()), float(own.std(ddof=1) / np.sqrt(own.size)) if own.size > 1 else 0.0


def conditions(found: Mapping[str, Any], letter: str) -> dict[str, tuple[Any, ...]]:
    """The claims of one set of instances; the conditions of one claim share its doubt."""
    made = {}
    for claim, (ours, rival) in CLAIMS.items():
        sets = {name: own["sets"][letter] for name, own in found["points"].items()}
        pairs = {name: own for name, own in sets.items() if ours in own and rival in own}
        level = 1 - DOUBT / len(pairs)
        made[claim] = tuple(
            comparison.Condition(name, behind(own[rival], own[ours], level))
            for name, own in pairs.items()
        )
    return made


def verdicts(found: Mapping[str, Any], letter: str) -> dict[str, str]:
    """The verdict of every claim, of one set of instances."""
    return {claim: comparison.verdict(own) for claim, own in conditions(found, letter).items()}


def _ratios(found: Mapping[str, Any]) -> dict[str, Any]:
    """Utility over that at the literal floor by point, set and rule: mean, and the interval."""
    return {
        name: {
            letter: {
                rule: list(ratio(behind(sets[LITERAL], earned)))
                for rule, earned in sets.items()
                if rule != LITERAL
            }
            for letter, sets in own["sets"].items()
        }
        for name, own in found["points"].items()
    }


def verdict_table(found: Mapping[str, Any]) -> results.Table:
    """What the numbers of each set say of every claim."""
    by_set = {letter: conditions(found, letter) for letter in ROLES}
    rows = []
    for claim in CLAIMS:
        row = [claim]
        for own in by_set.values():
            held = sum(one.verdict == comparison.HOLDS for one in own[claim])
            row.append(f"{comparison.verdict(own[claim])} ({held} of {len(own[claim])})")
        rows.append(tuple(row))
    return results.Table(
        (
            results.Column("claim (conditions that hold)", right=False),
            *(results.Column(f"set {letter}", right=False) for letter in by_set),
        ),
        tuple(rows),
        "A condition a point; it holds where the whole interval of the paired difference says so.",
    )


def utility_table(found: Mapping[str, Any]) -> results.Table:
    """Mean utility of every rule at every point and over that at the literal floor, both sets."""
    order = (LITERAL, BEST_DELAY, LEARNED, MOVED, CHOOSING, DORM, *UNTUNED)
    rows = []
    for name, own in ((point, found["points"][point]) for point in (REFERENCE, LIGHT, LARGE)):
        for rule in (rule for rule in order if rule in own["sets"]["A"]):
            row = [name, LABELS.get(rule, rule) + (", tuned" if rule == DORM else "")]
            for letter in ROLES:
                row.append(f"{np.mean(own['sets'][letter][rule]):,.0f}")
                if rule == LITERAL:
                    row.append("1")
                else:
                    middle, low, high = found["ratios"][name][letter][rule]
                    row.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
            rows.append(tuple(row))
    columns = [results.Column("point", right=False), results.Column("rule", right=False)]
    for letter in ROLES:
        columns += [results.Column(f"{letter}: utility"), results.Column(f"{letter}: over literal")]
    return results.Table(
        tuple(columns),
        tuple(rows),
        "Total utility, and its paired ratio to PD-ORS at its literal floor (geometric mean,"
        " interval of 95 %); floors were learned on other instances.",
    )


def trials_table(found: Mapping[str, Any]) -> results.Table:
    """Trials, episodes, what was chosen and what is at an edge, at every point."""
    rows = []
    for point in (REFERENCE, LIGHT, LARGE):
        for name in TUNED:
            own = found["points"][point]["tuning"][name]
            chosen = ", ".join(f"{knob} {value:.2g}" for knob, value in own["chosen"].items())
            edges = ", ".join(own["at_edge"]) or "none"
            rows.append((point, LABELS[name], own["trials"], own["episodes"], chosen, edges))
    return results.Table(
        (
            results.Column("point", right=False),
            results.Column("rule", right=False),
            results.Column("trials"),
            results.Column("episodes"),
            results.Column("chosen", right=False),
            results.Column("at an edge", right=False),
        ),
        tuple(rows),
        "Tuned alike, on instances that are not shown elsewhere; the others have no knob.",
    )


def _figure(found: Mapping[str, Any]) -> Drawing:
    """Utility against the floor on the tuning instances, a panel a point."""
    panels = []
    for name in (REFERENCE, LIGHT, LARGE):
        lines, ends = [], np.array([1.0, 0.0])
        for rule, trials in found[name]["floors"].items():
            lows, mean, error = np.array(trials).T
            ends = np.array([min(ends[0], lows[0]), max(ends[1], lows[-1])])
            lines.append(results.Series(LABELS[rule], lows, mean, mean - error, mean + error))
        for rule, earned in found[name]["past"].items():
            level = np.full(2, np.mean(earned))
            name_of = LABELS.get(str(rule), str(rule))
            lines.append(results.Series(name_of, ends, level, level, level))
        panels.append(plots.Panel(f"price floor, {name}", lines, log_x=True))
    caption = "Mean total utility of the trials against the price floor, with standard errors."
    return "sweep", plots.panels(panels, y_label="total utility"), caption


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
