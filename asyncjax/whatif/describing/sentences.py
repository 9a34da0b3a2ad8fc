"""The description of a log in words."""

from __future__ import annotations

import numpy as np

from asyncjax.traces import Log
from asyncjax.whatif.describing.dependence import Dependence
from asyncjax.whatif.describing.figures import Figures
from asyncjax.whatif.describing.fits import REJECTED, Fit
from asyncjax.whatif.describing.outages import Outages
from asyncjax.whatif.describing.spread import NOTABLE, SURE, Spread

_NAMED = 4  # workers that are named, at most
_ALIKE = 1.05  # slowest over fastest mean, below which workers count as alike


def sentences_of(
    log: Log,
    figures: Figures,
    spread: Spread,
    dependence: Dependence,
    outages: Outages,
    fits: tuple[Fit, ...],
) -> tuple[str, ...]:
    """Says what was found, a sentence each, without a full stop."""
    return (
        _size(log, figures),
        *_who(log, spread),
        _why(spread),
        *_memory(dependence),
        *_away(log, outages),
        _law(fits),
    )


def _size(log: Log, figures: Figures) -> str:
    fastest, slowest = float(figures.mean.min()), float(figures.mean.max())
    unit = "s" if log.unit == "seconds" else log.unit
    jobs = f"{log.n_jobs:,} jobs of {_count(log.n_workers, 'worker')}"
    if log.n_workers == 1:
        return f"{jobs}, {fastest:.3g} {unit} on average"
    if slowest < _ALIKE * fastest:
        return f"{jobs}; a job takes {figures.mean.mean():.3g} {unit} on average, at all of them"
    return (
        f"{jobs}; a job takes {fastest:.3g} {unit} on average at the fastest and {slowest:.3g}"
        f" {unit}, {slowest / fastest:.2g} times as long, at the slowest"
    )


def _who(log: Log, spread: Spread) -> list[str]:
    """Who is slow for good, who is fast, who at times."""
    if log.n_workers == 1:
        return []
    if np.isnan(spread.p_value):
        return ["The log is too short to tell who is slow for good and who by chance"]
    said = []
    for sign, word in ((1, "slow"), (-1, "fast")):
        places = np.flatnonzero(spread.for_good == sign)
        places = places[np.argsort(-sign * spread.factor[places])]
        if places.size:
            said.append(
                f"{word.capitalize()} for good, not by chance: {_named(log, places, spread.factor)}"
            )
    places = np.flatnonzero((spread.for_good == 0) & (spread.at_times > 0))
    if places.size:
        share = 100 * spread.at_times[places].mean()
        names = ", ".join(log.workers[place] for place in places[:_NAMED])
        more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
        said.append(f"Slow at times, in {share:.0f} % of the log each: {names}{more}")
    if said:
        return said
    if spread.p_value >= SURE:
        return ["The workers do not differ significantly: who is slow is so by chance"]
    if np.abs(np.log(spread.factor)).max() > np.log(NOTABLE):
        return ["Workers differ for good, but the log is too short to tell which of them are slow"]
    return ["Workers differ for good, but none by a tenth from the median worker"]


def _why(spread: Spread) -> str:
    shares = [100 * share for share in (spread.between, spread.in_time, spread.rest)]
    return (
        f"Of what durations differ by (the variance of their logarithms) {shares[0]:.0f} % lies"
        f" between workers, {shares[1]:.0f} % is moments at which all are slow, and"
        f" {shares[2]:.0f} % is neither"
    )


def _memory(dependence: Dependence) -> list[str]:
    said = []
    if dependence.p_lag_one < SURE and abs(dependence.mean_lag_one) > 0.05:
        follower = "another" if dependence.mean_lag_one > 0 else "a fast one"
        said.append(
            f"A slow job is followed by {follower}"
            f" more often than by chance (correlation {dependence.mean_lag_one:.2f}; a job is like"
            f" those of about {dependence.memory:.0f} around it)"
        )
    if dependence.p_common < SURE and dependence.common > 0.05:
        said.append(
            f"Workers are slow together: two of them have a correlation of {dependence.common:.2f}"
            " at the same moment"
        )
    return said


def _away(log: Log, outages: Outages) -> list[str]:
    said = []
    if outages.worker.size:
        who = np.unique(outages.worker)
        said.append(
            f"{_count(len(outages.worker), 'outage')} of {_count(len(who), 'worker')}, the longest"
            f" {outages.length.max():.3g}; away {100 * outages.share.mean():.2g} % of the time on"
            " average over all workers"
        )
    if outages.stalled.size:
        at = int(np.argmax(outages.stall_factor))
        said.append(
            f"{_count(len(outages.stalled), 'job')} took far longer than the rest, the worst"
            f" {outages.stall_factor[at]:.3g} times the median of its worker"
            f" ({log.workers[int(outages.stalled[at])]})"
        )
    return said


def _law(fits: tuple[Fit, ...]) -> str:
    best = fits[0]
    name = best.name.replace("_", " ")
    if best.name == "constant":
        return "Durations are constant, or too few to tell a law"
    if best.name == "markov":
        return "Workers have two speeds and change between them"
    figures = f"Kolmogorov distance {np.median(best.distance):.2g}, p = {best.p_value:.2g}"
    if best.p_value >= REJECTED:
        return f"The {name} law fits ({figures})"
    if best.is_good:
        return f"The {name} law is close, though more than chance away ({figures})"
    return f"No smooth law fits: the {name} law is the closest ({figures})"


def _named(log: Log, places: np.ndarray, factor: np.ndarray) -> str:
    """Workers with their factors, the first few."""
    said = ", ".join(f"{log.workers[p]} ({factor[p]:.2g} times)" for p in places[:_NAMED])
    return said + (f" and {len(places) - _NAMED} more" if len(places) > _NAMED else "")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
