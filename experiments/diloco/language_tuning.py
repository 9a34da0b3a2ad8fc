"""How rates are chosen on text: as many trials for every arm, on seeds that are not reported.

    first    the outer rate, six values a factor of 2 apart, the same for all arms
    then     the two other rates of AdamW at the best of these
    then     four more: smaller momenta with larger outer rates, or, where there is no momentum,
             outer rates in between and further out
    last     one at a time: what lies beyond an end at which the choice is, otherwise the nearest to
             it that was not tried, until no choice is at an end and all arms have as many trials

In the first part a grid whose best lies at an end is extended, by two values at most. All are run
on one seed, the best three on the others too; the least mean of the final loss is the choice. It is
made anew with every trial of the last part.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log2

import numpy as np

from experiments.diloco.arms import MOMENTA, OUTER, Trial

FIRST = tuple(OUTER.index(2.0**power) for power in range(-5, 1))
FIRST_MOMENTUM = 0.9
SMALLER = ((0.8, 0), (0.8, 2), (0.5, 2), (0.5, 4))  # momentum, half powers of 2 on the rate
BETWEEN = (1, -1, 2, -2, 3, -3, 4, -4)  # half powers of 2, the first four that are new
MOST_MORE, MORE = 2, 4
LEADING = 3  # trials that are run on all tuning seeds
KNOBS = ("momentum", "outer", "inner")  # ends of the first are left first


def tune(searches: Collection["Search"]) -> None:
    """Makes the trials of arms that are compared in a scene, as many for all."""
    for search in searches:
        search.begin()
    trials = 0
    while {len(search.losses) for search in searches} != {trials}:
        trials = max(len(search.losses) for search in searches)
        for search in searches:
            search.go_on(trials)


@dataclass
class Search:
    """The search of an arm's rates.

    Attributes:
        run: The last loss of a trial on the n-th tuning seed.
        rates: Of AdamW, ascending.
        momentum: Whether the outer momentum is tuned.
        most: Trials.
        seeds: For tuning.
        losses: Of what was tried by seed; what ever led has all seeds.
    """

    run: Callable[[Trial, int], float]
    rates: Sequence[float]
    momentum: bool
    most: int
    seeds: int
    losses: dict[Trial, list[float]] = field(default_factory=dict)

    def begin(self) -> None:
        """The first trials, which are alike for all arms but for the ends of grids."""
        middle, momentum = len(self.rates) // 2, FIRST_MOMENTUM if self.momentum else 0.0
        first = Trial(self.rates[middle], 1.0, momentum)
        self._grow(first, "outer", OUTER, list(FIRST), 2)
        self._grow(self._leading()[0], "inner", self.rates, [middle - 1, middle, middle + 1], 1)
        self._four_more(self._leading()[0])

    def _grow(
        self, trial: Trial, knob: str, values: Sequence[float], places: list[int], step: int
    ) -> None:
        """Tries a knob at some places, and beyond the end at which the best is."""
        for place in places:
            self._try(trial._replace(**{knob: values[place]}))
        for _ in range(MOST_MORE):
            best = values.index(getattr(self._leading()[0], knob))
            place = best + (step if best == max(places) else -step)
            if min(places) < best < max(places) or not 0 <= place < len(values):
                return
            places.append(place)
            self._try(trial._replace(**{knob: values[place]}))

    def _four_more(self, best: Trial) -> None:
        """Trials around the best; with momentum, those of `SMALLER`."""
        where = OUTER.index(best.outer)
        if self.momentum:
            for momentum, shift in SMALLER:
                self._try(Trial(best.inner, OUTER[min(where + shift, len(OUTER) - 1)], momentum))
            return
        places = (where + shift for shift in BETWEEN if 0 <= where + shift < len(OUTER))
        around = (best._replace(outer=OUTER[place]) for place in places)
        for trial in [trial for trial in around if trial not in self.losses][:MORE]:
            self._try(trial)

    def go_on(self, trials: int) -> None:
        """Tries on until the choice is at no end and there are so many trials, or the most."""
        while len(self.losses) < self.most:
            choice = self.choice()
            beyond = (_beyond(choice, *side, self.rates) for side in self.open_sides())
            wanted = next((trial for trial in beyond if trial is not None), None)
            if wanted is None and len(self.losses) >= trials:
                return
            self._try(wanted or self._nearest(choice))

    def _nearest(self, choice: Trial) -> Trial:
        """Of what was not tried, the nearest to the choice."""
        momenta = MOMENTA if self.momentum else MOMENTA[:1]

        def distance(trial: Trial) -> int:
            outer = abs(OUTER.index(trial.outer) - _place(choice, trial.momentum))
            inner = abs(self.rates.index(trial.inner) - self.rates.index(choice.inner))
            momentum = abs(MOMENTA.index(trial.momentum) - MOMENTA.index(choice.momentum))
            return outer + 2 * (inner + momentum)

        every = (Trial(*values) for values in product(self.rates, OUTER, momenta))
        return min((trial for trial in every if trial not in self.losses), key=distance)

    def choice(self) -> Trial:
        """Of the leading trials the best on all tuning seeds."""
        for trial in self._leading():
            known = self.losses[trial]
            known += [self.run(trial, number) for number in range(len(known), self.seeds)]
        return min(self._leading(), key=lambda trial: float(np.mean(self.losses[trial])))

    def open_sides(self) -> list[tuple[str, int]]:
        """Knobs and sides on which nothing was tried beyond the choice."""
        return open_sides(self.choice(), self.losses, momentum=self.momentum)

    def _try(self, trial: Trial) -> None:
        if trial not in self.losses:
            self.losses[trial] = [self.run(trial, 0)]

    def _leading(self) -> list[Trial]:
        return sorted(self.losses, key=lambda trial: self.losses[trial][0])[:LEADING]


def open_sides(
    taken: Trial, tried: Collection[Trial], *, momentum: bool = True
) -> list[tuple[str, int]]:
    """Knobs and sides (-1 below, 1 above) on which no value was tried beyond the one taken.

    Rates must have been tried on both sides with all else equal, the momentum with the same rate of
    AdamW and the outer rate with which a step reaches as far. None is below a momentum of 0.

    Args:
        taken: The choice.
        tried: All trials.
        momentum: Whether the momentum is tuned.

    Example:
        >>> taken = Trial(0.01, 0.5, 0.0)
        >>> beside = [Trial(0.01, 1.0, 0.0), Trial(0.03, 0.5, 0.0), Trial(0.003, 0.5, 0.0)]
        >>> open_sides(taken, [taken, *beside], momentum=False)
        [('outer', -1)]
        >>> open_sides(taken, [taken, *beside, Trial(0.01, 0.25, 0.0)])
        [('momentum', 1)]
    """
    sides = []
    for knob in KNOBS if momentum else KNOBS[1:]:
        value = getattr(taken, knob)
        beside = [getattr(trial, knob) for trial in tried if trial == _moved(taken, trial, knob)]
        if min(beside) >= value and not (knob == "momentum" and value == 0):
            sides.append((knob, -1))
        if max(beside) <= value:
            sides.append((knob, 1))
    return sides


def _moved(taken: Trial, to: Trial, knob: str) -> Trial:
    """A trial with one knob as in another; the outer rate goes with the momentum."""
    if knob == "momentum":
        return Trial(taken.inner, OUTER[_place(taken, to.momentum)], to.momentum)
    return taken._replace(**{knob: getattr(to, knob)})


def _beyond(taken: Trial, knob: str, side: int, rates: Sequence[float]) -> Trial | None:
    """A trial further out, if there is one: half or twice the outer rate, else the next value."""
    values, step = {"inner": (rates, 1), "outer": (OUTER, 2), "momentum": (MOMENTA, 1)}[knob]
    place = values.index(getattr(taken, knob)) + step * side
    if not 0 <= place < len(values):
        return None
    return _moved(taken, taken._replace(**{knob: values[place]}), knob)


def _place(taken: Trial, momentum: float) -> int:
    """Where the outer rate lies with which another momentum's step reaches as far."""
    shift = round(2 * log2((1 - momentum) / (1 - taken.momentum)))
    return min(max(OUTER.index(taken.outer) + shift, 0), len(OUTER) - 1)
