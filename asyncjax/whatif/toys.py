"""`toy_training`: how soon each rule reaches a target on stand-in problems, its step size tuned.

The problems are small, convex and noisy:

    even        f_i(x) = 1/2 sum_j (sqrt(a_j) x_j - 1)^2, the same for all; gradients with noise
    skewed      f_i(x) = 1/2 sum_j (sqrt(a_j) x_j - 1 - z_ij)^2, an optimum for each worker; the z_i
                sum to zero, so that the true optimum is the same
    labels      logistic regression, the rows sorted by label: half of the workers hold each

Curvatures a_j fall from 1 to 1/20; the noise of a synchronous round is the same for any number of
workers. On skewed data a rule that hears some workers more often ends somewhere else.

Every rule gets the same span of time, the same grid of step sizes, and the same log, drawn anew in
blocks for each seed. With f_0 the loss at the start and f the lowest that synchronous rounds,
tuned, have by half of the span,

    target = f_0 - 0.93 (f_0 - f)

A rule is there when it does not leave it again: with losses v_1, v_2, .. at x_1 <= x_2 <= ..,

    t = min {x_i : v_j <= target for all j >= i}

The step of a rule is the one that is there first on all of the tuning seeds; it is then
reported on other seeds. With t_s the times of two rules on seed s,

    significant difference      t_s < t'_s in every one of the S reported seeds, or > in every one

which of two equal rules happens by chance with the probability 2^(1-S): 3 % for S = 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
import optax

from asyncjax import problems, results, simulation, traces
from asyncjax.checks import whole, within
from asyncjax.clocks.log_reader.log import Log
from asyncjax.problems import Problem
from asyncjax.simulation.waves import ceil_to_grid
from asyncjax.traces import EventTrace
from asyncjax.traces.random_draws import check_key
from asyncjax.whatif import comparing
from asyncjax.whatif.comparing import SYNCHRONOUS, Comparison, Rows, Rule, Tell

Records = list[tuple[Rule, np.ndarray, np.ndarray]]  # synchronous first; times and losses
STEP_SIZES = tuple(2.0 ** (power / 2) for power in range(-14, 6))
TUNING_SEEDS, SEEDS = 3, 6
RECORDS = 150
REACHED = 0.93  # of the way to the lowest loss of synchronous rounds
SIZE, CONDITION = 12, 20.0
NOISE = 0.2  # of each coordinate of the mean of a gradient of every worker
SKEW = 2.5  # standard deviation of z_ij
_BATCH, _BATCHES = 128, 6  # rows of a gradient of every worker, shards in gradients
_GRADIENTS = 3_000  # of synchronous rounds
_ROUNDS = (60, 150)  # at least and at most
_ARRIVALS = 12_000  # of pure asynchronous training, unless the rounds would be too few
_LOCAL_STEP = 0.1
_SECOND = ("stale synchronous parallel", "Ringmaster")  # families of which the second case is tried


@dataclass(frozen=True, eq=False)
class Task:
    """A stand-in problem."""

    name: str  # what tables call it
    text: str  # what it is, a sentence without a full stop
    is_skewed: bool  # whether the workers' data differ
    make: Callable[[int, jax.Array], Problem]  # (n_workers, key) -> problem


def _quadratic(skew: float) -> Callable[[int, jax.Array], Problem]:
    def make(n: int, key: jax.Array) -> Problem:
        away = skew * np.asarray(jax.random.normal(key, (n, SIZE)))
        optima = 1.0 + away - away.mean(axis=0)
        curvature = np.tile(np.geomspace(1.0, 1.0 / CONDITION, SIZE), (n, 1)).astype(np.float32)
        linear = (np.sqrt(curvature) * optima).astype(np.float32)
        start = np.zeros(SIZE, np.float32)
        return problems.quadratic(curvature, linear, start=start, noise=NOISE * n**0.5)

    return make


def _labels(n: int, key: jax.Array) -> Problem:
    """Two clouds of points, the workers' shards cut from rows sorted by label."""
    batch = max(4, round(_BATCH / n))
    rows = n * _BATCHES * batch
    labels = np.arange(rows) * 2 // rows
    scale = 4.0 * np.geomspace(1.0, 0.5 / np.sqrt(CONDITION), SIZE - 1)
    apart = np.linspace(0.0, 0.8, SIZE - 1)  # what tells the labels apart is small: slow to learn
    points = np.asarray(jax.random.normal(key, (rows, SIZE - 1)))
    points = (points + (2 * labels - 1)[:, None] * apart) * scale
    features = np.column_stack([points, np.ones(rows)]).astype(np.float32)
    return problems.logistic(features, labels, n_workers=n, l2=0.001, batch=problems.uniform(batch))


_FROM_ONE = "quadratic, all workers draw from the same data"
_FROM_MANY = "quadratic, every worker has an optimum of its own"
_BY_LABEL = "logistic regression, every worker holds one of two labels"
TASKS = (
    Task("even data", _FROM_ONE, False, _quadratic(0.0)),
    Task("skewed data", _FROM_MANY, True, _quadratic(SKEW)),
    Task("skewed labels", _BY_LABEL, True, _labels),
)


class Learned(NamedTuple):
    """A rule on a problem, S reported seeds, R records."""

    rule: Rule
    step_size: float | None  # the tuned one; None: none of the grid learns
    at_edge: bool  # the tuned one is the smallest or the largest of the grid
    times: np.ndarray  # float64[S], when it is at the target and stays there; inf: never
    curve_time: np.ndarray  # float64[R + 1], time units, of the first reported seed
    curve_loss: np.ndarray  # float64[R + 1], its loss

    @property
    def time(self) -> float:
        """The median time to the target, inf if half of the seeds do not stay there."""
        return float(np.median(self.times))


@dataclass(frozen=True, eq=False)
class ToyResult:
    """All rules on one problem."""

    task: Task
    target: float  # the loss to reach
    span: float  # what every rule got, time units
    rows: tuple[Learned, ...]  # the soonest first
    level: tuple[str, ...]  # rules with no significant difference to the first, itself included

    def of(self, name: str) -> Learned:
        """The row of a rule."""
        return comparing.row_of(self.rows, name, "lesson")

    def speed_up(self, name: str) -> tuple[float, float, float]:
        """Synchronous time over a rule's: of the medians, and the range over seeds.

        It is 0 where the rule never arrives, and inf where only synchronous rounds never do.
        """
        reference, row = self.of(SYNCHRONOUS), self.of(name)
        with np.errstate(invalid="ignore"):
            ratio = np.where(np.isinf(row.times), 0.0, reference.times / row.times)
        value = 0.0 if np.isinf(row.time) else reference.time / row.time
        return value, float(ratio.min()), float(ratio.max())

    @property
    def surely_sooner(self) -> tuple[str, ...]:
        """Names of the rules that are sooner than synchronous rounds on every seed."""
        reference = self.of(SYNCHRONOUS).times
        return tuple(row.rule.name for row in self.rows if (row.times < reference).all())


@dataclass(frozen=True, eq=False)
class ToyResults:
    """What `toy_training` found.

    Attributes:
        lessons: What each stand-in problem taught.
        step_sizes: The grid that every rule was tuned on.
    """

    lessons: tuple[ToyResult, ...]
    step_sizes: tuple[float, ...]

    def choice(self, is_skewed: bool) -> str:
        """The soonest rule: surely sooner in one of these lessons, and no later in the others."""
        lessons = [lesson for lesson in self.lessons if lesson.task.is_skewed == is_skewed]
        gains = {
            name: np.prod([lesson.speed_up(name)[0] for lesson in lessons])
            for name in [row.rule.name for row in lessons[0].rows]
            if any(name in lesson.surely_sooner for lesson in lessons)
            and all(name in (*lesson.level, *lesson.surely_sooner) for lesson in lessons)
            and all(lesson.speed_up(name)[0] >= 1.0 for lesson in lessons)
        }
        return max(gains, key=gains.__getitem__, default=f"{SYNCHRONOUS} rounds")


def are_apart(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether the first is below the second on every seed, or above on every one."""
    return bool((first < second).all() or (first > second).all())


class _Setting(NamedTuple):
    """What all rules and problems have in common."""

    span: float
    step_sizes: tuple[float, ...]
    keys: jax.Array  # one a seed, those that tune first
    room: int  # arrivals of the longest trace


def toy_training(
    log: Log,
    comparison: Comparison,
    *,
    step_sizes: Sequence[float] = STEP_SIZES,
    seeds: int = SEEDS,
    key: jax.Array | None = None,
    progress: Tell | None = None,
) -> ToyResults:
    """Trains three small problems by eleven rules on the workers of a log.

    Args:
        log: A `traces.Log`, of two workers at least.
        comparison: What `compare` found of it; its rules are those that are tried.
        step_sizes: The grid, for all rules the same.
        seeds: Seeds that are reported, at least 2; three more tune.
        key: Typed key; None: a fixed one.
        progress: As in `compare`.

    Returns:
        A lesson for each problem. Cost: about a minute for 32 workers on two cores, half of it
        compilation; memory tens of megabytes.

    Example:
        >>> from asyncjax import clocks, traces, whatif
        >>> log = traces.read_log("durations.csv")  # doctest: +SKIP
        >>> lessons = whatif.toy_training(log, whatif.compare(log)).lessons  # doctest: +SKIP
    """
    rows = comparing.rows_of(log)
    seeds = whole("seeds", seeds, 2)
    grid = np.asarray(within("step_sizes", step_sizes, above=0.0), np.float64)
    if grid.ndim != 1 or not grid.size:
        raise ValueError(f"step_sizes must be a list of numbers, got shape {grid.shape}")
    progress = progress or comparing.untold
    key = jax.random.key(1) if key is None else key
    check_key(key, "learn")
    problem_key, draw_key, rule_key, run_key = jax.random.split(key, 4)
    rules = tried(comparison)
    count = TUNING_SEEDS + seeds
    drawn = [comparing.redrawn(rows, one) for one in jax.random.split(draw_key, count)]
    span = _span(rows, comparison)
    keys = jax.random.split(rule_key, count)
    runs = {rule.name: lasting(rule, drawn, span, keys) for rule in rules}
    room = max(trace[0].n_arrivals for trace in runs.values())
    setting = _Setting(span, tuple(grid.tolist()), jax.random.split(run_key, count), room)
    lessons = []
    for place, task in enumerate(TASKS):
        problem = task.make(len(rows), problem_key)
        records: Records = []
        for number, rule in enumerate(rules):
            progress(f"{task.name}: {rule.name}", (place + number / len(rules)) / len(TASKS))
            records.append((rule, *_run(rule, problem, runs[rule.name], setting)))
        assert problem.objective is not None
        first = float(problem.objective(problem.params))
        lessons.append(_lesson(task, records, first, setting))
    progress("trained", 1.0)
    return ToyResults(tuple(lessons), setting.step_sizes)


def tried(comparison: Comparison) -> list[Rule]:
    """The rules that are trained with: one or two of each family."""
    families: dict[str, list[Rule]] = {}
    for named in comparing.rules_for(len(comparison.workers), 1.0):  # names depend on no duration
        rule = comparison.of(named.name).rule
        families.setdefault(rule.family, []).append(rule)
    return [rules[: 1 + (family in _SECOND)][-1] for family, rules in families.items()]


def _span(rows: Rows, comparison: Comparison) -> float:
    """Time of enough synchronous rounds."""
    a_round = 1 / comparison.reference.figures.updates_per_time
    affordable = _ARRIVALS / (sum(1 / row.mean() for row in rows) * a_round)
    rounds = np.clip(min(_GRADIENTS / len(rows), affordable), *_ROUNDS)
    return float(round(rounds) * a_round)


def lasting(rule: Rule, drawn: Sequence[Rows], span: float, keys: jax.Array) -> list[EventTrace]:
    """Traces of a rule, one a drawn log, of equally many updates, that last so long."""
    clocks = [comparing.clock_of(rows, rule.local_steps) for rows in drawn]
    pairs = list(zip(clocks, keys, strict=True))

    def make(count: int) -> list[EventTrace]:
        return [rule.make(clock, count, key) for clock, key in pairs]

    return traces.lasting(make, span, n_updates=RECORDS, multiple_of=RECORDS)


def _run(
    rule: Rule, problem: Problem, runs: list[EventTrace], setting: _Setting
) -> tuple[np.ndarray, np.ndarray]:
    """Times and losses of the records, float64[S, 1, R] and [S, G, R]."""
    if rule.local_steps > 1:
        problem = problems.local_steps(problem, n_steps=rule.local_steps, step_size=_LOCAL_STEP)
    records = simulation.sweep(
        problem,
        runs,
        optax.sgd,
        setting.step_sizes,
        keys=setting.keys,
        record_every=runs[0].n_updates // RECORDS,
        width=1,
        sizes=lambda sizes: _common(sizes, problem.n_workers or 1, setting.room),
    ).records
    return np.asarray(records.time, np.float64), np.asarray(records.loss, np.float64)


def _common(sizes: simulation.Sizes, n: int, room: int) -> simulation.Sizes:
    """Sizes that nearly all rules share, and so a compilation."""
    return replace(
        sizes,
        waves=max(sizes.waves, ceil_to_grid(room)),
        updates=max(sizes.updates, 2),
        slots=max(sizes.slots, ceil_to_grid(n + 4)),
        directions=max(sizes.directions, 4) if sizes.runs == 0 else sizes.directions,
        group=max(sizes.group, ceil_to_grid(n)),
        single=False if sizes.runs == 0 else sizes.single,
    )


def _lesson(task: Task, records: Records, first: float, setting: _Setting) -> ToyResult:
    """Chooses the target by synchronous rounds and the step of every rule, and reads off."""
    _, time, loss = records[0]
    early = np.where(time <= setting.span / 2, np.nan_to_num(loss, nan=np.inf), np.inf)
    lowest = float(np.median(early.min(axis=2)[:TUNING_SEEDS], axis=0).min())
    target = first - REACHED * (first - lowest)
    rows = [_learned(*record, target, setting) for record in records]
    rows.sort(key=lambda row: row.time)
    level = tuple(row.rule.name for row in rows if not are_apart(row.times, rows[0].times))
    return ToyResult(task, target, setting.span, tuple(rows), level)


def _learned(
    rule: Rule, time: np.ndarray, loss: np.ndarray, target: float, setting: _Setting
) -> Learned:
    """A rule with its tuned step."""
    in_span = time <= setting.span
    within_span = np.where(in_span, loss, np.nan)
    ending = np.where(in_span, time, np.nan)  # NaN: no record; a loss of NaN is above the target
    when = np.asarray(
        results.time_to_target(ending, loss, target, interpolate=True, stays=True)
    )  # float64[S, G]
    first = when[:TUNING_SEEDS].max(axis=0)  # it is there, and stays, on every tuning seed
    lowest = np.nanmin(np.where(np.isfinite(within_span), within_span, np.inf), axis=2)
    lowest = np.median(lowest[:TUNING_SEEDS], axis=0)
    # The soonest; where none arrives, the lowest loss; among equals the smaller step.
    best = int(np.lexsort((np.arange(len(first)), lowest, first))[0])
    return Learned(
        rule,
        setting.step_sizes[best] if np.isfinite(lowest).any() else None,
        results.at_grid_edge(best, len(setting.step_sizes)),
        when[TUNING_SEEDS:, best],
        time[TUNING_SEEDS, 0],
        within_span[TUNING_SEEDS, best],
    )
