"""What the main job found, in tables and words: all from the times, losses and traces of runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.tables import format_number, format_spread
from asyncjax.study import protocol
from asyncjax.study import statistics as comparison
from asyncjax.study.statistics import Place
from experiments.common.reaching import last_within, times_to_stay, wasted
from experiments.compare.runs import Outcome, Settings

UNIT = "mean job of the fastest worker"
STAYS = (
    "A time to a target is that of the record from which on a run stays there until the end; a"
    " crossing after which it falls below again does not count."
)
EVEN = 0.9  # of an even share: who hears every worker at least so much is called even
DOUBT = 0.05  # chance that any pair of methods is told apart that does not differ


def times(settings: Settings, outcome: Outcome, target: float = 0.0) -> np.ndarray:
    """Simulated time after which a run stays at a target, float64[I], infinity where never.

    The target is that of the settings unless said.
    """
    goal = target or settings.target
    return times_to_stay(goal, settings.horizon, outcome.time, outcome.accuracy)


def spread_of(values: Any, horizon: float) -> results.Spread:
    """Quartiles of times that may never come, none of them made of an infinity."""
    known = protocol.reached(values, horizon)
    low, median, high = (np.inf if quartile is None else quartile for quartile in known.quartiles)
    return results.Spread(median, low, high, known.share)


def to_target(settings: Settings, outcome: Outcome, target: float = 0.0) -> results.Spread:
    """Simulated time to a target over instances."""
    return spread_of(times(settings, outcome, target), settings.horizon)


def logarithms(
    settings: Settings, outcomes: Sequence[Outcome], target: float = 0.0
) -> dict[str, np.ndarray]:
    """Logarithms of the times to a target, cut at the horizon, float64[I] a method."""
    return {
        one.method.name: np.log(protocol.restricted(times(settings, one, target), settings.horizon))
        for one in outcomes
    }


def places(
    settings: Settings, outcomes: Sequence[Outcome], target: float = 0.0
) -> dict[str, Place]:
    """Where methods stand by their time to a target, the first first; empty for one instance.

    The level holds for all pairs at once.
    """
    if settings.instances < 2:
        return {}
    pairs = max(len(outcomes) * (len(outcomes) - 1) // 2, 1)
    level, draws = 1 - DOUBT / pairs, round(20 * pairs / DOUBT)
    found = comparison.ranks(
        logarithms(settings, outcomes, target), settings.seed, level, max(draws, 4000)
    )
    return {place.name: place for place in found}


def span(place: Place | None) -> str:
    """The ranks that a method may have.

    Example:
        >>> alone = comparison.ranks({"a": [1.0, 2.0], "b": [1.0, 2.0], "c": [5.0, 6.0]})
        >>> [span(place) for place in alone]
        ['1 to 2', '1 to 2', '3']
    """
    if place is None:
        return ""
    if place.best_rank == place.worst_rank:
        return str(place.best_rank)
    return f"{place.best_rank} to {place.worst_rank}"


def ranked(settings: Settings, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, first at the target first; who never reaches it by final accuracy, below.

    First is who has the lowest mean logarithm of the time, cut at the horizon: what is tuned.
    """
    means = {name: own.mean() for name, own in logarithms(settings, outcomes).items()}

    def place(outcome: Outcome) -> tuple[float, float]:
        accuracy = np.nan_to_num(last_within(settings.horizon, outcome.time, outcome.accuracy))
        return float(means[outcome.method.name]), -float(np.median(accuracy))

    return sorted(outcomes, key=place)


def table(settings: Settings, outcomes: Sequence[Outcome]) -> results.Table:
    """One row a method: time and gradients to the target, final loss, delays, use of workers.

    The first at the target stands first.
    """
    percent = f"{100 * settings.target:g} %"
    columns = (
        results.Column("method", right=False),
        results.Column("rank"),
        results.Column("step"),
        results.Column(f"time to {percent}"),
        results.Column(f"mean, cut at {settings.horizon:g}"),
        results.Column(f"gradients to {percent}"),
        results.Column("final loss"),
        results.Column("final accuracy"),
        results.Column("mean delay"),
        results.Column("max delay"),
        results.Column("utilisation"),
        results.Column("thrown away"),
    )
    stand, rows = places(settings, outcomes), []
    for one in ranked(settings, outcomes):
        cut = protocol.restricted(times(settings, one), settings.horizon)
        rows.append(
            (
                one.method.name,
                span(stand.get(one.method.name)),
                one.step_size,
                to_target(settings, one),
                float(cut.mean()),
                spread_of(gradients(settings, one), 1e18),
                results.median_and_spread(last_within(settings.horizon, one.time, one.loss)),
                results.median_and_spread(
                    last_within(settings.horizon, one.time, one.accuracy), smaller_is_better=False
                ),
                *(
                    results.median_and_spread([read(summary) for summary in one.summaries])
                    for read in (
                        lambda summary: summary.delay_mean,
                        lambda summary: summary.delay_max,
                        lambda summary: summary.utilisation,
                        wasted,
                    )
                ),
            )
        )
    return results.Table(
        columns,
        tuple(rows),
        f"Median (quartiles) over {settings.instances} instances of set {settings.set} after"
        f" {settings.horizon:g} units of simulated time; an instance has shards, workers and a"
        f" first model of its own. {STAYS} Rank: those that the instances leave open, by the paired"
        " ratios of the times; in one table of twenty a pair would be told apart by chance."
        " 'Thrown away' is the share of delivered or cancelled gradients that never"
        " entered a step. Times are read off at the records, about"
        f" {settings.horizon / settings.records:.2g} units apart.",
    )


def gradients(settings: Settings, outcome: Outcome) -> np.ndarray:
    """Gradients computed until a run stays at the target, float64[I]; infinity where never."""
    computed = outcome.computed.astype(float)
    return times_to_stay(
        settings.target, settings.horizon, outcome.time, outcome.accuracy, computed
    )


def other_targets(settings: Settings, outcomes: Sequence[Outcome]) -> results.Table:
    """One row a method: time to further targets, and the ranks there."""
    columns = [results.Column("method", right=False)]
    stand = {}
    for level in settings.levels:
        columns += [results.Column(f"time to {100 * level:g} %"), results.Column("rank")]
        stand[level] = places(settings, outcomes, level)
    rows = []
    for one in ranked(settings, outcomes):
        cells: list[Any] = [one.method.name]
        for level in settings.levels:
            place = stand[level].get(one.method.name)
            cells += [to_target(settings, one, level), span(place)]
        rows.append(tuple(cells))
    return results.Table(
        tuple(columns),
        tuple(rows),
        f"The same runs, steps still those chosen for {100 * settings.target:g} %: median"
        f" (quartiles) over {settings.instances} instances.",
    )


def heard(settings: Settings, outcomes: Sequence[Outcome]) -> results.Table:
    """One row a method: each worker's share of the gradients that entered a step."""
    columns = [results.Column("method", right=False)]
    columns += [results.Column(f"worker {worker}", "%") for worker in range(settings.n_workers)]
    rows = []
    for outcome in outcomes:
        shares = [100 * summary.used_by_worker / summary.used for summary in outcome.summaries]
        rows.append((outcome.method.name, *np.median(shares, axis=0)))
    return results.Table(
        tuple(columns),
        tuple(rows),
        "Who is heard: share of the gradients that entered a step, by worker, the fastest first,"
        f" median over {settings.instances} instances; {100 / settings.n_workers:.3g} % each would"
        " be even. What a worker alone holds is learned at the rate at which he is heard, so a"
        " method that is ahead while its slow workers are hardly heard solves another problem than"
        " the given.",
    )


def verdict(settings: Settings, outcomes: Sequence[Outcome]) -> str:
    """The answer in words, from the numbers: who is first, by how much, who is level."""
    best_first = ranked(settings, outcomes)
    spreads = {one.method.name: to_target(settings, one) for one in best_first}
    first = best_first[0]
    name, spread = first.method.name, spreads[first.method.name]
    goal = f"{100 * settings.target:g} % test accuracy"
    if not np.isfinite(spread.median):
        accuracy = float(np.median(last_within(settings.horizon, first.time, first.accuracy)))
        return (
            f"No way of training reaches {goal} within {settings.horizon:g} units of simulated"
            f" time; {name} comes closest, with {100 * accuracy:.3g} %."
        )
    words = [
        f"{_capital(name)} is first at {goal}, after {_number(spread.median)} units of simulated"
        f" time (quartiles over instances {_number(spread.low)} to {_number(spread.high)}; a unit"
        f" is the {UNIT})."
    ]
    logs = logarithms(settings, outcomes)
    if name != "synchronous" and "synchronous" in logs and settings.instances > 1:
        gap = comparison.paired(logs["synchronous"], logs[name], settings.seed)
        cut = not np.isfinite(times(settings, _named("synchronous", outcomes))).all()
        words.append(
            f"Synchronous rounds need {'more than ' * cut}{_ratio(gap.mean)} times as long"
            f" ({_ratio(gap.low)} to"
            f" {_ratio(gap.high)})."
        )
    stand = places(settings, outcomes)
    close = [n for n, place in stand.items() if n != name and place.with_best]
    if close:
        words.append(f"Not told apart from it: {_listed(close, spreads)}.")
    missed = [n for n, own in spreads.items() if not np.isfinite(own.median)]
    if missed:
        words.append(f"Not reached within {settings.horizon:g} units: {', '.join(missed)}.")
    return " ".join([*words, *_fairness(best_first, spreads)])


def _fairness(best_first: Sequence[Outcome], spreads: Mapping[str, results.Spread]) -> list[str]:
    """What the first one's speed may cost: how little it hears a worker, and who hears all."""
    least = {
        one.method.name: float(
            np.median([s.n_workers * min(s.used_by_worker) / s.used for s in one.summaries])
        )
        for one in best_first
    }
    first = best_first[0].method.name
    if least[first] >= EVEN:
        return []
    words = f"It hears its least heard worker {least[first]:.2g} times as often as an even share"
    even = [n for n in least if least[n] >= EVEN and np.isfinite(spreads[n].median)]
    if even:
        words += (
            "; the first of those that hear all alike is"
            f" {even[0]}, after {_number(spreads[even[0]].median)}"
        )
    return [words + "."]


def _named(name: str, outcomes: Sequence[Outcome]) -> Outcome:
    return next(one for one in outcomes if one.method.name == name)


def _capital(name: str) -> str:
    """A name at the beginning of a sentence."""
    return name[:1].upper() + name[1:]


def _number(value: Any) -> str:
    """A number in a sentence."""
    return format_number(float(value))


def _ratio(logarithm: float) -> str:
    return f"{np.exp(logarithm):.2g}"


def _listed(names: Sequence[str], spreads: Mapping[str, results.Spread]) -> str:
    """Names with their medians, in a sentence."""
    return ", ".join(
        f"{name} ({format_spread(spreads[name]).partition(' (')[0]})"
        if np.isfinite(spreads[name].median)
        else f"{name} (median not reached)"
        for name in names
    )
