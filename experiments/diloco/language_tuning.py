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

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log2

import numpy as np

from experiments.diloco.arms import MOMENTA, OUTER, Arm, Scene, Trial
from experiments.diloco.language_runs import Bench

FIRST = tuple(OUTER.index(2.0**power) for power in range(-5, 1))
FIRST_MOMENTUM = 0.9
SMALLER = ((0.8, 0), (0.8, 2), (0.5, 2), (0.5, 4))  # momentum, half powers of 2 on the rate
BETWEEN = (1, -1, 2, -2, 3, -3, 4, -4)  # half powers of 2, the first four that are new
MOST_MORE, MORE = 2, 4
LEADING = 3  # trials that are run on all tuning seeds
TUNING = 1000  # the first tuning seed, after the settings' own
KNOBS = ("momentum", "outer", "inner")  # ends of the first are left first


@dataclass
class Tuned:
    """What was tried for an arm."""

    trial: Trial
    scores: dict[Trial, list[float]] = field(default_factory=dict)  # final losses by seed
    at_edge: bool = False  # as `open_sides` has it


def tune(bench: Bench, scene: Scene, arms: Sequence[Arm]) -> dict[str, Tuned]:
    """Chooses the rates of arms that are compared in a scene."""
    searches = [Search(bench, scene, arm) for arm in arms]
    for search in searches:
        search.begin()
    trials = 0
    while {len(search.scores) for search in searches} != {trials}:
        trials = max(len(search.scores) for search in searches)
        for search in searches:
            search.go_on(trials)
    return {search.arm.name: search.tuned() for search in searches}


@dataclass
class Search:
    """The search of an arm's rates."""

    bench: Bench
    scene: Scene
    arm: Arm
    scores: dict[Trial, float] = field(default_factory=dict)  # on the first tuning seed
    others: dict[Trial, list[float]] = field(default_factory=dict)  # of those that ever led

    def begin(self) -> None:
        """The first trials, which are alike for all arms but for the ends of grids."""
        rates = self.bench.settings.inner
        momentum = FIRST_MOMENTUM if self.arm.momentum else 0.0
        middle = len(rates) // 2
        places = list(FIRST)
        for place in places:
            self._score(Trial(rates[middle], OUTER[place], momentum))
        for _ in range(MOST_MORE):
            now = OUTER.index(self._best().outer)
            if now == min(places) and now >= 2:
                places.append(now - 2)
            elif now == max(places) and now + 2 < len(OUTER):
                places.append(now + 2)
            else:
                break
            self._score(Trial(rates[middle], OUTER[places[-1]], momentum))
        outer, tried = self._best().outer, [middle - 1, middle, middle + 1]
        for number in tried[::2]:
            self._score(Trial(rates[number], outer, momentum))
        for _ in range(MOST_MORE):
            now = rates.index(self._best().inner)
            step = 1 if now == max(tried) else -1
            if min(tried) < now < max(tried) or not 0 <= now + step < len(rates):
                break
            self._score(Trial(rates[now + step], outer, momentum))
            tried.append(now + step)
        self._four_more()

    def _four_more(self) -> None:
        """Trials around the best; with momentum, those of `SMALLER`."""
        best = self._best()
        where = OUTER.index(best.outer)
        if self.arm.momentum:
            for momentum, shift in SMALLER:
                place = min(where + shift, len(OUTER) - 1)
                self._score(Trial(best.inner, OUTER[place], momentum))
            return
        places = (where + shift for shift in BETWEEN if 0 <= where + shift < len(OUTER))
        around = (best._replace(outer=OUTER[place]) for place in places)
        for trial in [trial for trial in around if trial not in self.scores][:MORE]:
            self._score(trial)

    def go_on(self, trials: int) -> None:
        """Tries on until the choice is at no end and there are so many trials, or the most."""
        settings = self.bench.settings
        while len(self.scores) < settings.trials:
            taken = self.choice()
            sides = open_sides(taken, self.scores, momentum=self.arm.momentum)
            beyond = (_beyond(taken, *side, settings.inner) for side in sides)
            wanted = next((trial for trial in beyond if trial is not None), None)
            if wanted is None and len(self.scores) >= trials:
                return
            self._score(wanted or self._nearest(taken))

    def _nearest(self, taken: Trial) -> Trial:
        """Of what was not tried, the nearest to the choice."""
        rates = self.bench.settings.inner
        momenta = MOMENTA if self.arm.momentum else MOMENTA[:1]

        def distance(trial: Trial) -> int:
            outer = abs(OUTER.index(trial.outer) - _place(taken, trial.momentum))
            inner = abs(rates.index(trial.inner) - rates.index(taken.inner))
            momentum = abs(MOMENTA.index(trial.momentum) - MOMENTA.index(taken.momentum))
            return outer + 2 * (inner + momentum)

        every = (Trial(*values) for values in product(rates, OUTER, momenta))
        return min((trial for trial in every if trial not in self.scores), key=distance)

    def choice(self) -> Trial:
        """Of the leading trials the best on all tuning seeds."""
        return min(self._leading(), key=lambda trial: float(np.mean(self._all_seeds(trial))))

    def tuned(self) -> Tuned:
        """What came out."""
        taken = self.choice()
        scores = {trial: [value] for trial, value in self.scores.items()}
        scores |= {trial: self._all_seeds(trial) for trial in self._leading()}
        at_edge = bool(open_sides(taken, scores, momentum=self.arm.momentum))
        self.bench.tell(
            f"{self.scene.name}: {self.arm.name} takes {_words(taken)} of {len(scores)} trials"
            f"{', at an end' if at_edge else ''}"
        )
        return Tuned(taken, scores, at_edge)

    def _score(self, trial: Trial) -> None:
        if trial not in self.scores:
            self.scores[trial] = self._run(trial, 0)
            text = f"{self.scene.name}: {self.arm.name}, {_words(trial)}: {self.scores[trial]:.4f}"
            self.bench.tell(text)

    def _run(self, trial: Trial, number: int) -> float:
        seed = self.bench.settings.seed + TUNING + number
        return float(self.bench.run(self.scene, self.arm, trial, seed)["final"])

    def _best(self) -> Trial:
        return self._leading()[0]

    def _leading(self) -> list[Trial]:
        return sorted(self.scores, key=lambda trial: self.scores[trial])[:LEADING]

    def _all_seeds(self, trial: Trial) -> list[float]:
        if trial not in self.others:
            numbers = range(1, self.bench.settings.tuning_seeds)
            self.others[trial] = [self._run(trial, number) for number in numbers]
        return [self.scores[trial], *self.others[trial]]


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
    found = []
    for knob in KNOBS if momentum else KNOBS[1:]:
        own = getattr(taken, knob)
        beside = [getattr(trial, knob) for trial in tried if trial == _moved(taken, trial, knob)]
        if min(beside) >= own and not (knob == "momentum" and own == 0):
            found.append((knob, -1))
        if max(beside) <= own:
            found.append((knob, 1))
    return found


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


def _words(trial: Trial) -> str:
    return f"AdamW {trial.inner:g}, outer {trial.outer:.3g}, momentum {trial.momentum:g}"
