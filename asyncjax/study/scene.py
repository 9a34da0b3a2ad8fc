"""What a study compares, where, and by what: scenes, methods, measures.

A *scene* is a function `seeds -> Scene` that draws an instance: data, workers, the first model. A
*method* is a rule of the server and an optimizer, both of settings, or a function that makes the
records of a run. A *measure* makes numbers of records; one of them is compared, lower being better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import optax
from numpy.typing import ArrayLike

from asyncjax import checks, results
from asyncjax.clocks import Clock
from asyncjax.problems import Problem
from asyncjax.simulation import Update
from asyncjax.study.protocol import Seeds
from asyncjax.study.search import Knob, Settings
from asyncjax.traces import Rule, Synchronous

Records = Mapping[str, ArrayLike]
Numbers = Mapping[str, float]
Optimizer = optax.GradientTransformation | Update
_FALLING = ("loss", "error", "gap", "norm", "distance", "regret", "perplexity")
_LEAST = 1e-12  # of what a logarithm is taken


@dataclass(frozen=True, eq=False)
class Scene:
    """An instance of a scene: what a method meets.

    Attributes:
        problem: What is optimised; methods of the general form may do without.
        clock: How long a job of each worker takes.
        horizon: Simulated time that every run is watched, time units; None: runs have no time.
        whole: The same problem with whole shards as jobs, of which policies draw their load; None:
            `problem`.
        data: Whatever else methods and measures read.
        numbers: What rules and optimizers may read beside their settings, numbers or arrays, such
            as the smoothness or the workers' mean times; `n_workers` and `rows` are there in any
            case.
        rows: Rows of a job: the clock's time of computing is that of so many. Policies ask for
            loads in rows.
        records: How often a run is looked at on its way to the horizon.

    Example:
        >>> from asyncjax import clocks, problems
        >>> scene = Scene(problems.quadratic([[1.0]], [[3.0]]), clocks.constant([1.0]), 10.0)
        >>> scene.known({"step": 0.5})
        {'n_workers': 1, 'rows': 1, 'step': 0.5}
    """

    problem: Problem | None = None
    clock: Clock | None = None
    horizon: float | None = None
    whole: Problem | None = None
    data: Any = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 1
    records: int = 60

    def known(self, settings: Settings) -> Settings:
        """Settings with the numbers of the scene beside them."""
        n_workers = {} if self.clock is None else {"n_workers": self.clock.n_workers}
        return {**n_workers, "rows": self.rows, **self.numbers, **settings}


@dataclass(frozen=True, eq=False)
class Method:
    """A way of training.

    The short form is `rule` and `optimizer`, each a function of the settings (or a rule that
    depends on none); all instances of a cell then run in one compiled program, and settings are
    data of it where the optimizer can be made of traced numbers. The general form is `run`.

    Attributes:
        rule: What the server does with its workers, or `settings -> rule`. Rounds whose k is a
            policy go through `simulation.run_policy`.
        optimizer: `settings -> optimizer`, or an `Update`; settings may be traced numbers.
        space: Knobs beside those of the study; one of the same name takes its place.
        run: `(scene, settings, seeds) -> records`, instead of rule and optimizer: columns of one
            length, ascending in `time` where there is one, or scalars.
        adapt: `(problem, settings) -> problem`, such as local steps of the settings.
        load: `settings -> factor` on the computing time of a job, such as the local steps.
        text: What it does, for tables.
        default: Settings where nothing is tuned; a knob that is not named takes the middle of its
            grid.

    Example:
        >>> import optax
        >>> from asyncjax import traces
        >>> from asyncjax.study import search
        >>> method = Method(
        ...     lambda s: traces.Rule(collect=traces.buffered(s["b"])),
        ...     lambda s: optax.sgd(s["step"]),
        ...     space={"b": search.Knob((2, 4, 8), whole=True)},
        ... )
        >>> method.settings({"step": search.Knob((0.1, 0.2, 0.4))})
        {'step': 0.2, 'b': 4}
    """

    rule: Rule | Synchronous | Callable[[Settings], Rule | Synchronous] | None = None
    optimizer: Callable[[Settings], Optimizer] | None = None
    space: Mapping[str, Knob] = field(default_factory=dict)
    run: Callable[[Scene, Settings, Seeds], Records] | None = None
    adapt: Callable[[Problem, Settings], Problem] | None = None
    load: Callable[[Settings], float] | None = None
    text: str = ""
    default: Settings = field(default_factory=dict)

    def rule_of(self, settings: Settings) -> Rule | Synchronous:
        """The rule of some settings."""
        rule: Any = self.rule
        return rule if isinstance(rule, Rule | Synchronous) else rule(settings)

    def made(self, settings: Settings) -> tuple[Any, Any]:
        """The rule and the optimizer of some settings."""
        optimizer: Any = self.optimizer
        return self.rule_of(settings), optimizer(settings)

    def settings(self, space: Mapping[str, Knob]) -> Settings:
        """The settings that are used where nothing is tuned."""
        knobs = {**space, **self.space}
        middle = {name: knob.values[len(knob.values) // 2] for name, knob in knobs.items()}
        return {**middle, **self.default}


@dataclass(frozen=True)
class Measure:
    """What of a run is told, and by what methods are compared.

    Attributes:
        of: `(records, scene) -> numbers` of one run, the same names for all; they become columns.
            Records end at the horizon.
        compared: The number that ratios, ranks and verdicts read; positive, lower is better, inf:
            never.
        score: `(numbers, scenes) -> score` of all tuning instances, one a run, what tuning makes
            lowest; inf is worst. None: the mean logarithm of what is compared, cut at the horizon
            where its name begins with `time`.

    Example:
        >>> measure = Measure(lambda records, scene: {"rounds": records["rounds"]}, "rounds")
        >>> measure.scored([{"rounds": 1.0}, {"rounds": 1.0}], [Scene(), Scene()])
        0.0
    """

    of: Callable[[Records, Scene], Numbers]
    compared: str
    score: Callable[[Sequence[Numbers], Sequence[Scene]], float] | None = None

    def scored(self, numbers: Sequence[Numbers], scenes: Sequence[Scene]) -> float:
        """The score of runs on tuning instances; NaN is as bad as inf."""
        if self.score is None:
            is_time = self.compared.startswith("time")
            ends = [scene.horizon if is_time else None for scene in scenes]
            score = _mean_logarithm([one[self.compared] for one in numbers], ends)
        else:
            score = float(self.score(numbers, scenes))
        return math.inf if math.isnan(score) else score


def _mean_logarithm(values: Iterable[float], ends: Sequence[float | None]) -> float:
    """The mean logarithm of values, each cut where it has an end."""
    cut = [v if end is None else min(v, end) for v, end in zip(values, ends, strict=True)]
    return float(np.mean([math.log(max(value, _LEAST)) for value in cut]))


def time_to(
    metric: str, target: float, *, stays: bool = True, above: bool | None = None
) -> Measure:
    """Measures the time at which a metric reaches a target.

    The numbers of a run are `time` (inf where the target never came), the metric's last value, and
    `left`, the share of the way from the first value to the target that is left at the end, 0 where
    it came, at most 1. `time` is compared. What is tuned is the mean logarithm of the time cut at
    the horizon, plus `left`, so that runs that never get there differ; it is inf where all
    diverged.

    Args:
        metric: A column of the records: `loss`, or a metric of the problem.
        target: The value to reach.
        stays: The run must not leave the target again before the horizon.
        above: Reached is at or above the target, as an accuracy; None: unless the metric's name
            has `loss`, `error`, `gap`, `norm`, `distance`, `regret` or `perplexity` in it.

    Returns:
        The measure.

    Raises:
        ValueError: `target` is not finite.

    Example:
        >>> records = {"time": [0.0, 1.0, 2.0, 3.0], "loss": [4.0, 1.0, 3.0, 1.0]}
        >>> time_to("loss", 2.0).of(records, Scene())
        {'time': 3.0, 'loss': 1.0, 'left': 0.0}
        >>> time_to("loss", 0.0).of(records, Scene())
        {'time': inf, 'loss': 1.0, 'left': 0.25}
    """
    above = _rises(metric, above)
    target, stays = checks.real("target", target), checks.flag("stays", stays)
    of = partial(_time_to, metric, target, above, stays)
    return Measure(of, "time", partial(_score_of_times, metric))


def last(metric: str, *, above: bool | None = None) -> Measure:
    """Measures the last value of a metric before the horizon.

    The number of a run is the metric, which is compared; of one that rises, such as an accuracy,
    also `missing`, 1 less the metric, which is compared then. A run that ends without a number has
    inf. What is tuned is the mean logarithm.

    Args:
        metric: A column of the records.
        above: As in `time_to`.

    Returns:
        The measure.

    Example:
        >>> last("accuracy").of({"time": [0.0, 1.0], "accuracy": [0.5, 0.75]}, Scene())
        {'accuracy': 0.75, 'missing': 0.25}
    """
    above = _rises(metric, above)
    return Measure(partial(_last, metric, above), "missing" if above else metric)


def _rises(metric: str, above: bool | None) -> bool:
    """Whether a metric is better the higher it is."""
    return not any(word in metric for word in _FALLING) if above is None else above


def _column(records: Records, metric: str) -> np.ndarray:
    """A column of records, float64[R]."""
    if metric not in records:
        known = ", ".join(records)
        raise ValueError(f"metric must be a column of the records ({known}), got {metric!r}")
    return np.atleast_1d(np.asarray(records[metric], np.float64))


def _time_to(
    metric: str, target: float, above: bool, stays: bool, records: Records, scene: Scene
) -> Numbers:
    """See `time_to`."""
    time, values = _column(records, "time"), _column(records, metric)
    when = float(results.time_to_target(time, values, target, above=above, stays=stays))
    way, left = target - values[0], 1.0
    if math.isfinite(when):
        left = 0.0
    elif way and np.isfinite(values[-1]) and not np.isnan(way):
        left = min(max(float((target - values[-1]) / way), 0.0), 1.0)
    return {"time": when, metric: float(values[-1]), "left": left}


def _score_of_times(metric: str, numbers: Sequence[Numbers], scenes: Sequence[Scene]) -> float:
    """The mean logarithm of cut times, plus what is left of the way; inf where all diverged."""
    times, last, left = (np.array([one[n] for one in numbers]) for n in ("time", metric, "left"))
    if not np.isfinite(times).any() and not np.isfinite(last).any():
        return math.inf
    return _mean_logarithm(times, [scene.horizon for scene in scenes]) + float(left.mean())


def _last(metric: str, above: bool, records: Records, scene: Scene) -> Numbers:
    """See `last`."""
    value = float(_column(records, metric)[-1])
    value = value if math.isfinite(value) else (-math.inf if above else math.inf)
    return {metric: value, "missing": 1.0 - value} if above else {metric: value}
