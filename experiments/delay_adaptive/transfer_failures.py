"""What becomes of steps that are carried over: failures, their shares and intervals, verdicts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from asyncjax.study import statistics as comparison
from asyncjax.study.protocol import SET_A, SET_B
from asyncjax.study.result import Result
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART
from experiments.common import numbers
from experiments.delay_adaptive.transfer_runs import OWN, THEORY, Outcome, Settings
from experiments.delay_adaptive.transfer_tasks import CONSTANT, RULES, SCENES

CARRIED, UNTUNED = "carried to other delays", "at the theory step"
SETS = {"A": SET_A, "B": SET_B}
ALL = "all"  # data sets
FACTOR = 2.0  # a run that needs more than that many times its own updates has failed
UNKNOWN = "own step never there"
FEWER, FASTER = "fails less often than a constant", "is faster than a constant"
NEVER = "at its theory step a rule never diverges"
DIGITS = 4  # of numbers in rows


@dataclass(frozen=True, eq=False)
class Taken:
    """Runs with a step chosen elsewhere: I instances, P pairs of a law and a step, R rules.

    Attributes:
        updates: float[I, P, R], to the target, at most the horizon.
        own: The same with the step that was chosen on the law that is run on.
        missed: bool[I, P, R], with that step the target was not reached.
        diverged: bool[I, P, R].
        slower: float[I, P, R], times over those with the law's own step.
    """

    updates: np.ndarray
    own: np.ndarray
    missed: np.ndarray
    diverged: np.ndarray
    slower: np.ndarray

    @property
    def regret(self) -> np.ndarray:
        """Updates over those with the law's own step."""
        return self.updates / self.own

    @property
    def failed(self) -> np.ndarray:
        """It diverged, or needs more than `FACTOR` times the updates; float, NaN where `missed`."""
        return np.where(self.missed, np.nan, self.diverged | (self.regret > FACTOR))

    @property
    def behind(self) -> np.ndarray:
        """The same against the constant step that was chosen on the law; bool[I, P, R]."""
        constant = self.own[..., [list(RULES).index(CONSTANT)]]
        return self.diverged | (self.updates / constant > FACTOR)


def by_instance(values: np.ndarray) -> np.ndarray:
    """Means over pairs, float[I, ...] of [I, P, ...], of what is not NaN; NaN if there is none."""
    known = ~np.isnan(values)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.where(known.any(axis=1), total / np.maximum(known.sum(axis=1), 1), np.nan)


def pairs_of(settings: Settings, scene: str) -> list[tuple[int, int]]:
    """Places of the law that is run on, and of the step: `CARRIED`, `UNTUNED` or of `SCENES`."""
    count = len(settings.laws)
    if scene == CARRIED:
        return [(run, chosen) for run in range(count) for chosen in range(count) if run != chosen]
    if scene == UNTUNED:
        return [(run, THEORY) for run in range(count)]
    return [(count + settings.scenes.index(scene), settings.laws.index(SCENES[scene]))]


def taken(settings: Settings, outcome: Outcome, scene: str, which: str) -> Taken:
    """The runs of a scene on a set of instances."""
    first = list(SETS).index(which) * settings.instances
    rows = slice(first, first + settings.instances)
    runs, chosen = np.array(pairs_of(settings, scene)).T
    updates = np.minimum(outcome.updates[rows, ..., -1], settings.n_updates)
    last = outcome.horizon_time[rows, :, None, None]
    times = np.minimum(outcome.times[rows, ..., -1], last)
    own = np.full(len(runs), OWN)
    return Taken(
        updates[:, runs, chosen],
        updates[:, runs, own],
        np.isinf(outcome.updates[rows, ..., -1][:, runs, own]),
        outcome.diverged[rows][:, runs, chosen],
        times[:, runs, chosen] / times[:, runs, own],
    )


def row_of(parts: Sequence[Taken], rule: str, n_updates: int) -> dict[str, Any]:
    """What came of a rule, over all pairs of some cases; the interval is over instances."""
    place = list(RULES).index(rule)

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name)[..., place] for part in parts], axis=1)

    failed, regret, behind = joined("failed"), joined("regret"), joined("behind")
    base = np.concatenate([part.own[..., list(RULES).index(CONSTANT)] for part in parts], axis=1)
    short = (joined("updates") >= n_updates) & (failed == 0)
    shares = by_instance(failed)
    shares = shares[~np.isnan(shares)]
    missed = joined("missed")

    def over_known(of: Callable[[np.ndarray], Any], values: np.ndarray) -> float:
        return np.nan if missed.all() else float(of(values[~missed]))

    failed_low, failed_high = comparison.interval(shares) if shares.size > 1 else (np.nan, np.nan)
    behind_low, behind_high = comparison.interval(behind.mean(axis=1))
    return {
        "diverged": float(joined("diverged").mean()),
        "failed": float(shares.mean()) if shares.size else np.nan,
        "failed_low": failed_low,
        "failed_high": failed_high,
        "median": over_known(np.median, regret),
        "worst": over_known(np.max, regret),
        "median_in_time": over_known(np.median, joined("slower")),
        "own_missed": float(missed.mean()),
        "open": float(short.mean()),  # not there in the end, and its own only after half of it
        "to_tuned_constant": float(np.median(joined("updates") / base)),
        "behind": float(behind.mean()),
        "behind_low": behind_low,
        "behind_high": behind_high,
    }


def verdicts_of(
    settings: Settings, groups: Mapping[str, Sequence[Outcome]], which: str
) -> dict[str, str]:
    """For every rule and algorithm, and over all: does it carry over better than a constant?

    A claim has a condition for every data set of the algorithm.
    """
    base, verdicts = list(RULES).index(CONSTANT), {}
    for place, rule in enumerate(RULES):
        if rule == CONSTANT:
            continue
        every: dict[str, list[comparison.Condition]] = {FEWER: [], FASTER: []}
        for algorithm, group in groups.items():
            own: dict[str, list[comparison.Condition]] = {FEWER: [], FASTER: []}
            for outcome in group:
                part = taken(settings, outcome, CARRIED, which)
                failed, log = by_instance(part.failed), np.log(part.updates).mean(axis=1)
                for claim, score in ((FEWER, failed), (FASTER, log)):
                    both = score[:, [place, base]]
                    both = both[~np.isnan(both).any(axis=1)]
                    if len(both) > 1:
                        difference = comparison.paired(*both.T)
                        own[claim].append(comparison.Condition(outcome.data, difference))
            for claim, conditions in own.items():
                verdicts[f"{algorithm}: {rule} {claim}"] = _verdict(conditions)
                every[claim] += conditions
        for claim, conditions in every.items():
            verdicts[f"all: {rule} {claim}"] = _verdict(conditions)
    return verdicts


def _verdict(conditions: Sequence[comparison.Condition]) -> str:
    return comparison.verdict(conditions) if conditions else UNKNOWN


def _map(settings: Settings, group: Sequence[Outcome], rule: str) -> list[list[float]]:
    """Share that failed, by the law of the step (rows) and the law that is run on."""
    count, place = len(settings.laws), list(RULES).index(rule)
    shares = np.zeros((count, count))
    parts = [taken(settings, one, CARRIED, which) for one in group for which in SETS]
    failed = by_instance(np.concatenate([part.failed[..., place] for part in parts]).T)
    for (run, chosen), share in zip(pairs_of(settings, CARRIED), failed, strict=True):
        shares[chosen, run] = share
    return shares.tolist()


def rows_of(settings: Settings, found: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """A row a scene, algorithm, data (or all), set and rule: shares and medians over pairs."""
    trials = {rule: sum(one.trials[:, at].sum() for one in found) for at, rule in enumerate(RULES)}
    edges = {rule: any(one.at_edge[:, at].any() for one in found) for at, rule in enumerate(RULES)}
    price = settings.tuning_instances * settings.n_updates
    for scene in (CARRIED, UNTUNED, *settings.scenes):
        groups = [(name, ALL, group) for name, group in by_algorithm(found).items()]
        if scene == CARRIED:
            groups += [(one.algorithm, one.data, [one]) for one in found]
        for algorithm, data, group in groups:
            for letter in SETS:
                parts = [taken(settings, one, scene, letter) for one in group]
                for rule in RULES:
                    count = int(trials[rule]) if scene == CARRIED else np.nan
                    head = {"scene": scene, "algorithm": algorithm, "data": data, "set": letter}
                    own = row_of(parts, rule, settings.n_updates)
                    tuned = {"trials": count, "gradients": count * price, "at_edge": edges[rule]}
                    yield {**head, "method": rule, **own, **tuned}


def by_algorithm(found: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Outcomes on all data of each algorithm."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in found:
        groups.setdefault(outcome.algorithm, []).append(outcome)
    return groups


def untuned(rows: Any, rule: str, letter: str) -> str:
    """Whether a rule never diverges at its theory step; a condition an algorithm.

    Runs are counted, nothing is estimated: a condition holds if no run diverged.
    """
    own = rows[(rows["scene"] == UNTUNED) & (rows["set"] == letter) & (rows["method"] == rule)]
    clean = own["diverged"] == 0
    return HOLDS if clean.all() else IN_PART if clean.any() else FAILS


def result_of(settings: Settings, found: Sequence[Outcome]) -> Result:
    """Aggregates as rows; verdicts, which follow from single runs, and maps as facts."""
    groups = by_algorithm(found)
    rows = pd.DataFrame(numbers.rounded(list(rows_of(settings, found)), DIGITS))
    words = {letter: verdicts_of(settings, groups, letter) for letter in SETS}
    verdicts = {text: {letter: words[letter][text] for letter in SETS} for text in words["A"]}
    for rule in RULES:
        verdicts[f"{rule}: {NEVER}"] = {letter: untuned(rows, rule, letter) for letter in SETS}
    maps = {
        name: {rule: _map(settings, group, rule) for rule in RULES}
        for name, group in groups.items()
    }
    facts = {
        "laws": list(settings.laws),
        "instances": settings.instances,
        "n_updates": settings.n_updates,
        "level": settings.levels[-1],
        "maps": numbers.rounded(maps, DIGITS),
        "verdicts": verdicts,
    }
    return Result(rows, "failed", facts, cut=())
