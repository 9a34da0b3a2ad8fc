"""The same number of trials for every method, over all of its knobs; no best value at an edge.

A method's space is a grid of values a knob. The first round draws settings at random. A later one
starts with the neighbours of the best setting so far, knob by knob; where a value of it is the
first or last of its grid, the grid grows first. The rest are drawn from the whole grid. No setting
is tried twice; a grid that is used up becomes finer. As long as the best value of any method is at
an edge, *all* methods get another round. Searches for different sets of instances have different
draws, so that two sets do not agree because the same settings were missed for both.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any
from zlib import crc32

import numpy as np

from asyncjax import checks, results
from asyncjax.study.protocol import TUNING, TUNING_OF

Settings = dict[str, Any]
Evaluate = Callable[[str, Sequence[Settings], int], Sequence[float]]


@dataclass(frozen=True)
class Knob:
    """Values of one argument of a method.

    Attributes:
        values: Ascending positive numbers, or, of a choice, anything.
        least: No value below makes sense; a best value there is not at an edge.
        most: No value above makes sense.
        whole: Only integers.
        choice: The values have no order: the grid neither grows nor becomes finer.
        growth: Factor from value to value where the grid grows; 0 stands for the ratio of the
            first two values.
    """

    values: tuple[Any, ...]
    least: float = 0.0
    most: float = math.inf
    whole: bool = False
    choice: bool = False
    growth: float = 0.0

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("values must be at least one, got none")
        if self.choice:
            return
        apart = all(low < high for low, high in zip(self.values, self.values[1:], strict=False))
        if len(self.values) < 2 or not apart or self.values[0] <= 0:
            raise ValueError(f"values must be two or more ascending numbers, got {self.values}")
        if self.values[0] < self.least or self.values[-1] > self.most:
            raise ValueError(f"values must be from {self.least} to {self.most}, got {self.values}")
        if not self.growth:
            object.__setattr__(self, "growth", self.values[1] / self.values[0])
        if not self.growth > 1:
            raise ValueError(f"growth must be above 1, got {self.growth}")

    def at_edge(self, value: Any) -> bool:
        """Whether a value is the first or last of the grid and could be passed."""
        if self.choice:
            return False
        return (value == self.values[0] > max(self.least, self.whole)) or (
            value == self.values[-1] < self.most
        )

    def grown(self, value: Any) -> "Knob":
        """The grid with two values more beyond `value`, where that is at an edge."""
        knob = self
        for _ in range(2):
            if not knob.at_edge(value):
                break
            down = value == knob.values[0]
            value = knob._beyond(down=down)
            values = (value, *knob.values) if down else (*knob.values, value)
            knob = replace(knob, values=values)
        return knob

    def _beyond(self, *, down: bool) -> float:
        """The next value beyond the first or the last, at most the limit."""
        if down:
            value, last = self.values[0] / self.growth, self.values[0]
            value = max(min(round(value), last - 1), 1) if self.whole else value
            return max(value, self.least)
        value, last = self.values[-1] * self.growth, self.values[-1]
        value = max(round(value), last + 1) if self.whole else value
        return min(value, self.most)

    def finer(self) -> "Knob":
        """The grid with geometric means put between its values."""
        if self.choice:
            return self
        pairs = zip(self.values, self.values[1:], strict=False)
        between = [math.sqrt(low * high) for low, high in pairs]
        new = {round(value) if self.whole else value for value in between}
        return replace(self, values=tuple(sorted({*self.values, *new})))


def log_range(low: float, high: float, count: int, **limits: Any) -> Knob:
    """A knob of `count` values from `low` to `high`, each the same multiple of the one before.

    Args:
        low: The first value, above 0.
        high: The last value, above `low`.
        count: At least 2.
        **limits: Further fields of `Knob`, such as `least`.

    Returns:
        The knob.

    Example:
        >>> log_range(1.0, 100.0, 3).values
        (1.0, 10.0, 100.0)
    """
    ratio = (high / low) ** (1 / (checks.whole("count", count, 2) - 1))
    return Knob((*(low * ratio**i for i in range(count - 1)), high), **limits)


def powers(low: int, high: int, **limits: Any) -> Knob:
    """A knob of powers of two, from 2**low to 2**high.

    Args:
        low: The first exponent.
        high: The last exponent, above `low`.
        **limits: Further fields of `Knob`, such as `least`.

    Returns:
        The knob.

    Example:
        >>> powers(-1, 1).values
        (0.5, 1.0, 2.0)
    """
    return Knob(tuple(2.0**power for power in range(low, high + 1)), **limits)


def counts(*values: int, **limits: Any) -> Knob:
    """A knob of whole numbers.

    Args:
        *values: Ascending, at least two.
        **limits: Further fields of `Knob`, such as `most`.

    Returns:
        The knob.

    Example:
        >>> counts(2, 4, 8).values
        (2, 4, 8)
    """
    return Knob(values, whole=True, **limits)


def choices(*values: Any) -> Knob:
    """A knob of values that have no order.

    Args:
        *values: Any values that a method reads.

    Returns:
        The knob.

    Example:
        >>> choices("mean", "median").choice
        True
    """
    return Knob(values, choice=True)


Space = Mapping[str, Knob]


@dataclass(frozen=True)
class Trial:
    """One setting and what came of it.

    Attributes:
        settings: A value a knob.
        score: Lower is better; inf where the run diverged.
        round: In which round, from 0.
    """

    settings: Settings
    score: float
    round: int


@dataclass(frozen=True)
class Tuned:
    """What the search of one method found.

    Attributes:
        space: The knobs as they are at the end, grown where that was needed.
        trials: All, in the order in which they were made.
        gradients: Gradient evaluations of each trial.
    """

    space: Mapping[str, Knob]
    trials: tuple[Trial, ...]
    gradients: int

    @property
    def best(self) -> Trial:
        """The trial of the lowest score, the earliest of several."""
        return min(self.trials, key=lambda trial: trial.score)

    @property
    def edges(self) -> tuple[str, ...]:
        """Knobs whose best value is at an edge; all that could grow, if every trial diverged."""
        best = self.best
        if not math.isfinite(best.score):
            return tuple(name for name, knob in self.space.items() if not knob.choice)
        return tuple(n for n, knob in self.space.items() if knob.at_edge(best.settings[n]))

    def told(
        self, space: "Space", settings: Sequence[Settings], scores: Iterable[float], turn: int
    ) -> "Tuned":
        """The same with the trials of another round; NaN is as bad as inf."""
        new = [
            Trial(one, math.inf if math.isnan(score) else float(score), turn)
            for one, score in zip(settings, scores, strict=True)
        ]
        return Tuned(space, (*self.trials, *new), self.gradients)


def _near(space: Space, old: Space, best: Settings) -> Iterator[Collection[Any]]:
    """The best setting with one knob moved: the next new value of each, then the neighbours."""
    for name, knob in space.items():
        new = sorted(
            set(knob.values) - set(old[name].values) if not knob.choice else (),
            key=lambda value, at=best[name]: abs(math.log(value / at)),
        )
        yield from ({**best, name: value}.values() for value in new[:1])
    for name, knob in space.items():
        at = knob.values.index(best[name])
        for value in knob.values[max(at - 2, 0) : at + 3]:
            yield {**best, name: value}.values()


def propose(
    tuned: Tuned, method: str, count: int, seed: int, turn: int, role: str
) -> tuple[Space, list[Settings]]:
    """A space, perhaps grown or finer, and `count` settings of it that were not tried.

    Without knobs there is one trial, in the first round.
    """
    space, near = tuned.space, iter([])
    if not space:
        return space, [{}][len(tuned.trials) :]
    number = [*TUNING_OF.values()].index(role)
    generator = np.random.default_rng([seed, turn, crc32(method.encode()), number])
    tried = {tuple(trial.settings.values()) for trial in tuned.trials}
    if tuned.trials and math.isfinite(tuned.best.score):
        best = tuned.best.settings
        space = {name: knob.grown(best[name]) for name, knob in space.items()}
        near = _near(space, tuned.space, best)
    elif tuned.trials:  # nothing worked: the answer is elsewhere
        for end in (0, -1):
            space = {name: knob.grown(knob.values[end]) for name, knob in space.items()}
    while math.prod(len(knob.values) for knob in space.values()) < len(tried) + count:
        finer = {name: knob.finer() for name, knob in space.items()}
        if finer == space:
            raise ValueError(f"the space of {', '.join(space)} has no {count} further settings")
        space = finer
    # Of so many different settings at least `count` were not tried.
    grids = [knob.values for knob in space.values()]
    sizes = tuple(map(len, grids))
    drawn = generator.permutation(math.prod(sizes))[: len(tried) + count]
    places = zip(*np.unravel_index(drawn, sizes), strict=True)
    far = [[grid[at] for grid, at in zip(grids, place, strict=True)] for place in places]
    fresh = dict.fromkeys(tuple(values) for values in chain(near, far) if (*values,) not in tried)
    return space, [dict(zip(space, values, strict=True)) for values in islice(fresh, count)]


def search(
    spaces: Mapping[str, Space],
    goals: Mapping[Any, str],
    evaluate: Callable[[Mapping[tuple[str, Any], Sequence[Settings]], int], Mapping[Any, Any]],
    *,
    trials: int,
    rounds: tuple[int, int],
    seed: int = 0,
    gradients: int = 1,
) -> dict[tuple[str, Any], Tuned]:
    """Searches the spaces of all methods for several goals, with the same number of trials.

    Args:
        spaces: For each method its knobs by name.
        goals: What settings are chosen for, and the role of the instances on which they are; all
            methods have as many rounds for a goal.
        evaluate: `(asked, round) -> scores`, from settings by method and goal to a score a setting.
        trials: Settings that a method tries in each round.
        rounds: Least and most. Between them the search for a goal ends when no best value is at an
            edge.
        seed: Of the draws; a method's draws depend on its name and the role, not on other methods.
        gradients: Gradient evaluations of a trial.

    Returns:
        What was found, by method and goal.
    """
    found = {(name, goal): Tuned(spaces[name], (), gradients) for goal in goals for name in spaces}
    for turn in range(rounds[1]):
        pairs = [(name, goal) for goal in goals for name in spaces]
        asked = {
            (name, goal): propose(found[name, goal], name, trials, seed, turn, goals[goal])
            for name, goal in pairs
        }
        scores = evaluate({pair: settings for pair, (_, settings) in asked.items()}, turn)
        for pair, (space, settings) in asked.items():
            found[pair] = found[pair].told(space, settings, scores[pair], turn)
        if turn + 1 >= rounds[0]:
            edges = {goal: [found[name, goal].edges for name in spaces] for goal in goals}
            goals = {goal: role for goal, role in goals.items() if any(edges[goal])}
        if not goals:
            break
    return found


def tune(
    spaces: Mapping[str, Space],
    evaluate: Evaluate,
    *,
    trials: int,
    gradients: int,
    seed: int = 0,
    role: str = TUNING,
    rounds: tuple[int, int] = (2, 6),
) -> dict[str, Tuned]:
    """Searches the spaces of all methods with the same number of trials and gradients.

    Args:
        spaces: For each method its knobs by name.
        evaluate: `(method, settings, gradients) -> scores`, one score a setting, lower is better,
            NaN as bad as inf. It spends `gradients` gradient evaluations on each setting, on
            instances of `role` alone.
        trials: Settings a method tries in each round, at least as many as any has knobs.
        gradients: Gradient evaluations of a trial.
        seed: Of the draws; a method's draws depend on its name and the role, not on other methods.
        role: Of the instances to tune on, as in `protocol.TUNING_OF`.
        rounds: Least and most. Between them the search ends when no best value is at an edge; after
            the most it ends in any case, and the table says what is at an edge still.

    Returns:
        For each method what was found. All have as many trials.

    Raises:
        ValueError: A space is empty or too small, or `evaluate` returned another number of scores.

    Example:
        >>> def evaluate(method, settings, gradients):
        ...     return [abs(one["step"] - 8.0) for one in settings]
        >>> found = tune({"sgd": {"step": Knob((1.0, 2.0))}}, evaluate, trials=2, gradients=10)
        >>> found["sgd"].best.settings, found["sgd"].edges
        ({'step': 8.0}, ())
    """
    checks.whole("trials", trials)
    checks.whole("gradients", gradients)
    if empty := [method for method, space in spaces.items() if not space]:
        raise ValueError(f"spaces must have a knob for every method, got none for {empty[0]}")
    if trials < (most := max(map(len, spaces.values()), default=0)):
        raise ValueError(f"trials must be at least the number of knobs, {most}, got {trials}")
    least = checks.whole("the least of rounds", rounds[0])
    limits = least, checks.whole("the most of rounds", rounds[1], least)

    def scores(asked: Mapping[Any, Sequence[Settings]], _: int) -> dict[Any, Sequence[float]]:
        return {pair: evaluate(pair[0], several, gradients) for pair, several in asked.items()}

    how = {"trials": trials, "rounds": limits, "seed": seed, "gradients": gradients}
    return {method: one for (method, _), one in search(spaces, {"": role}, scores, **how).items()}


def table(found: Mapping[str, Tuned]) -> results.Table:
    """Trials and gradient evaluations of each method, what was chosen, and what is at an edge."""
    rows = []
    for method, tuned in found.items():
        count = len(tuned.trials)
        chosen = ", ".join(f"{name} {_short(v)}" for name, v in tuned.best.settings.items())
        spans = ", ".join(f"{name} {_span(knob)}" for name, knob in tuned.space.items())
        edges = ", ".join(tuned.edges) or "none"
        rows.append((method, spans, count, count * tuned.gradients, chosen, edges))
    heads = ("method", "searched", "trials", "gradient evaluations", "chosen", "at an edge")
    columns = tuple(results.Column(head, right=head in heads[2:4]) for head in heads)
    return results.Table(columns, tuple(rows))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _span(knob: Knob) -> str:
    if knob.choice:
        return " or ".join(_short(value) for value in knob.values)
    return f"{_short(knob.values[0])} to {_short(knob.values[-1])} ({len(knob.values)} values)"
