"""Which rule of the family is fastest on the recorded times of real workers?

The recordings come with the library: three training jobs with ten even workers each and a fourth,
uneven one from Alibaba's GPU cluster trace (cluster-trace-gpu-v2020, CC BY 4.0; Xiao et al.,
AntMan, OSDI 2020), and two LLM training jobs (ByteDance-Seed/StragglerAnalysis, Apache-2.0; Lin et
al., OSDI 2025), of which at most ten workers are used. The mean time of all jobs of a recording is
1.

A small network learns handwritten digits, each worker on its own skewed share of them. An instance
draws how labels are divided over the workers, the first model, which recording of its column, which
of its workers (and who of them holds which shard), and where in the recording it begins. Its noise
is the rows of each gradient and what a dispatch rule draws. All rules get the same simulated time,
the same workers and as many trials of all their knobs, scored by the time to the last level on
instances that are not shown, others for each of the two disjoint sets that are. A time to a level
is that of the record from which on a run stays there until the end. A run that was stopped goes on
where it was: a column that is done is kept in the output folder.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, steps, traces
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Place, ranks
from asyncjax.results.tables import format_number
from asyncjax.study import search, summary
from asyncjax.study.protocol import TUNING_OF, Seeds
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.search import Knob, log_range
from experiments import part
from experiments.asynchronous.time_complexity import spread
from experiments.common import reaching, sets
from experiments.common.data import digits_problem
from experiments.common.kept_rows import once
from experiments.common.lanes import Field, Lane, Ran, field_of, replayed
from experiments.common.methods import MakeOptimizer, MakeTrace, plain, rounds_of, server_with
from experiments.common.recordings import (
    EVEN as EVEN_JOBS,
    UNEVEN as UNEVEN_JOBS,
    read_recordings,
    spread_of_jobs,
)
from experiments.common.sets import SETS

NAME = "recorded_times"
TITLE = "Which rule of the family is fastest on the recorded times of real workers?"
PAPERS = (
    "Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",
    "Xiao et al., OSDI 2020, AntMan (Alibaba cluster-trace-gpu-v2020)",
    "Lin et al., OSDI 2025, stragglers in LLM training (ByteDance-Seed/StragglerAnalysis)",
)
PAIR = 0.99  # level at which a pair of rules differs for the ranks
CLOSE = 1.2  # times as fast that the claim on even jobs allows
SYNC, PURE = "synchronous", "pure"
EVEN, UNEVEN, TURNS, SLOW = "even jobs", "job 4", "llm sequences", "llm slow worker"
LOCAL_STEPS = 4
HISTORY = 1024  # delays that Adaptive 1 remembers; more are an error


@dataclass(frozen=True)
class Settings:
    """What is run; what is done is kept in `output`, and a second run goes on from there."""

    output: Path = Path("output/recorded_times")
    seed: int = 0
    even: tuple[str, ...] = (
        EVEN_JOBS  # recordings or files; one column, an instance draws one of them
    )
    uneven: tuple[str, ...] = UNEVEN_JOBS  # a column each
    most_workers: int = 10  # of a recording that are used
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5  # of each, too
    trials: int = 4  # settings that a rule tries in a round of tuning
    rounds: tuple[int, int] = (3, 8)
    steps: tuple[float, float] = (2.0**-6, 1.0)  # ends of the first grid, of six steps
    horizon: float = 400.0  # simulated time that every rule gets
    batch: int = 8  # rows of a gradient
    hidden: int = 16  # units of the network's hidden layer
    concentration: float = 0.3  # of the Dirichlet law of labels over workers; small is skewed
    levels: tuple[float, ...] = (0.8, 0.85, 0.9)  # test accuracies; the last is tuned for
    records: int = 160  # points of a curve, at least so many over the horizon
    methods: tuple[str, ...] = ()  # names of the rules that run; none: all
    commit: bool = False  # also write the numbers where committed ones are


# Rules.


@dataclass(frozen=True)
class Rule:
    """A way of training.

    Attributes:
        name: What tables call it.
        trace: Of its knobs, `settings -> make a trace`.
        knobs: Further than the step, at first.
        optimizer: From one number, so that settings share a compilation.
        numbers: `settings -> (factor of the weights of a trace, number of the optimizer)`.
        local: A job is `LOCAL_STEPS` steps of the size `local step`.
    """

    name: str
    trace: Callable[[search.Settings], MakeTrace]
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    optimizer: MakeOptimizer = plain
    numbers: Callable[[search.Settings], tuple[float, float]] = lambda s: (1.0, s["step"])
    local: bool = False


def corrected(strength: Any) -> optax.GradientTransformation:
    """DC-ASGD whose step is in the weights: strength over step."""
    return optax.chain(steps.compensate_delay(strength), optax.sgd(1.0))


def adaptive_1(step_size: Any) -> optax.GradientTransformation:
    """Adaptive 1 with the step bound `step_size`."""
    rule = steps.scale_by_adaptive_1(step_size, max_delay=HISTORY)
    return optax.chain(rule, optax.scale(-1.0))


@lru_cache
def bounded(n: int) -> MakeOptimizer:
    """Koloskova's rule whose step is in the weights: of the product of step and smoothness."""

    def optimizer(product: Any) -> optax.GradientTransformation:
        rule = steps.scale_by_concurrency_bound(1.0, concurrency=n, smoothness=product)
        return optax.chain(rule, optax.scale(-1.0))

    return optimizer


@lru_cache
def falling(n: int) -> MakeOptimizer:
    """Mishchenko's rule: the step times n / max(n, delay)."""

    def optimizer(step_size: Any) -> optax.GradientTransformation:
        return optax.chain(
            steps.scale_by_staleness("concurrency", n_workers=n), optax.sgd(step_size)
        )

    return optimizer


def rescaled(clock: clocks.Clock, n_updates: int, key: jax.Array) -> traces.EventTrace:
    """Pure's trace whose weights are the factors of `steps.scale_by_measured_time`.

    The iterates are the same, and all workers share one compilation, since a trace is data.
    """
    trace = server_with()(clock, n_updates, key)
    factors = _factors(clock.n_workers, trace.worker, np.asarray(trace.time, np.float32))
    return trace._replace(weight=trace.weight * np.asarray(factors))


@partial(jax.jit, static_argnums=0)
def _factors(n: int, workers: jax.Array, times: jax.Array) -> jax.Array:
    rule, one = steps.scale_by_measured_time(n), jnp.float32(1.0)

    def deliver(state: Any, arrival: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        factor, state = rule.update(one, state, worker=arrival[0], time=arrival[1])
        return state, jnp.asarray(factor)

    return jax.lax.scan(deliver, rule.init(one), (workers, times))[1]


def _server(**rules: Any) -> Callable[[search.Settings], MakeTrace]:
    """An asynchronous server without knobs."""
    return lambda _: server_with(**rules)


def _collecting(
    collect: Callable[[Any], traces.Collection], knob: str, **rules: Any
) -> Callable[[search.Settings], MakeTrace]:
    """An asynchronous server whose collection has a knob."""
    return lambda settings: server_with(collect=collect(settings[knob]), **rules)


def _rounds(settings: search.Settings) -> MakeTrace:
    rule = traces.Synchronous(settings["k"])
    return lambda clock, n_updates, key: rule.trace(clock, n_updates=n_updates, key=key)


def _without_latest(share: float) -> traces.Collection:
    return traces.ringmaster_quantile(1.0 - share)


def _leading(settings: search.Settings) -> MakeTrace:
    return server_with(gate=traces.lead_at_most(settings["s"]), read="start")


def _late_rules(n: int) -> tuple[Rule, ...]:
    """Rules that change the step of a late gradient, or the gradient; all but the last are pure."""
    return (
        Rule(
            "Koloskova",  # step at most 1 / (4 L delay) beyond delay n
            _server(),
            {"L": log_range(0.25, 4.0, 3)},
            bounded(n),
            lambda s: (s["step"], s["L"] * s["step"]),
        ),
        Rule("Mishchenko", _server(), optimizer=falling(n)),  # step times n / max(n, delay)
        Rule(
            "DC-ASGD",  # late gradients corrected
            _server(),
            {"strength": log_range(0.01, 0.16, 3)},
            corrected,
            lambda s: (s["step"], s["strength"] / s["step"]),
        ),
        Rule("Rescaled, measured", lambda _: rescaled),  # step times the worker's time, so far
        Rule("shuffled, Adaptive 1", _server(dispatch=traces.shuffled()), optimizer=adaptive_1),
    )


def rules_of(n: int) -> tuple[Rule, ...]:
    """The family for n workers."""
    few, more = max(n // 4, 1), max(n // 2, 2)
    values = tuple(sorted({few, more, more + few}))
    part = Knob(values, most=n, whole=True)  # of the open jobs, which are n
    b = {"b": Knob(values, whole=True)}
    heard = {"S": Knob((1.0, 1.5, 2.25), least=1.0)}
    threshold = {"R": Knob(tuple(sorted({max(n // 2, 2), n + 1, 2 * n})), whole=True)}
    shares = {"cut": log_range(0.025, 0.4, 3, most=0.8)}
    stopping, shuffled = partial(traces.ringmaster, cancel=True), traces.shuffled()
    return (
        # Steps take several gradients.
        Rule("synchronous", lambda _: rounds_of(1.0)),  # rounds that wait for all
        Rule("fastest k", _rounds, {"k": part}),  # rounds that wait for k
        Rule(
            "wait for b", _collecting(traces.wait_for, "b"), {"b": part}
        ),  # mean of b, then b jobs
        Rule(
            "wait for b, shuffled",
            _collecting(traces.wait_for, "b", dispatch=shuffled),
            {"b": part},
        ),
        Rule("buffered b", _collecting(traces.buffered, "b"), b),  # mean of b
        Rule("Rennala", _collecting(traces.rennala, "b"), b),  # mean of b fresh ones
        Rule("k-batch-sync", _collecting(partial(traces.rennala, cancel=True), "b"), b),
        Rule("Malenia", _collecting(traces.malenia, "S"), heard),  # mean by worker
        Rule("Ringleader", _server(collect=traces.ringleader())),  # rounds of n steps
        Rule("table", _server(collect=traces.table())),  # mean of everyone's last gradient
        Rule(
            f"FedBuff, {LOCAL_STEPS} local steps",  # mean of b, jobs last longer
            _collecting(traces.buffered, "b", load=float(LOCAL_STEPS)),
            {**b, "local step": log_range(0.05, 0.4, 3)},
            local=True,
        ),
        # A step at every gradient that is used.
        Rule("pure", _server()),  # applied on arrival, the deliverer goes on
        Rule("random", _server(dispatch=traces.uniformly())),  # next job to a random worker
        Rule("shuffled", _server(dispatch=shuffled)),  # next job along permutations
        Rule("shuffled once", _server(dispatch=traces.shuffled_once())),  # along one permutation
        Rule("Ringmaster", _collecting(traces.ringmaster, "R"), threshold),  # delays < R
        Rule("Ringmaster, stops", _collecting(stopping, "R"), threshold),  # others are stopped
        Rule("quantile", _collecting(_without_latest, "cut"), shares),  # without a latest share
        Rule("SSP", _leading, {"s": Knob((1, 2, 4), whole=True)}),  # nobody leads by more jobs
        *_late_rules(n),
    )


# Columns: workers of one kind, with all instances.


class Column(NamedTuple):
    """Recordings of which an instance draws one."""

    name: str  # what tables call it
    recordings: tuple[np.ndarray, ...]  # float64[n, k] each, of mean 1
    n_workers: int  # that an instance has

    def clock(self, instance: Seeds) -> clocks.Clock:
        """The workers of an instance, in an order of its own, from a place of its own."""
        generator = np.random.default_rng(instance.clock)
        times = self.recordings[generator.integers(len(self.recordings))]
        rows = generator.permutation(len(times))[: self.n_workers]
        return clocks.recorded(np.roll(times[rows], -generator.integers(times.shape[1]), axis=1))


def columns(settings: Settings) -> list[Column]:
    """The kinds of recorded workers.

    Raises:
        ValueError: A recording is not known, or none is named.
    """
    named = {"even jobs": settings.even} if settings.even else {}
    named |= {Path(name).stem.replace("_", " "): (name,) for name in settings.uneven}
    if not named:
        raise ValueError("even or uneven must name a recording, got none")
    kinds = []
    for name, files in named.items():
        recordings = tuple(read_recordings(files))
        n = min(settings.most_workers, *map(len, recordings))
        kinds.append(Column(name, recordings, n))
    return kinds


def rules(settings: Settings, n_workers: int) -> list[Rule]:
    """The rules that run."""
    family = rules_of(n_workers)
    return [rule for rule in family if not settings.methods or rule.name in settings.methods]


@lru_cache(maxsize=4)
def _field(settings: Settings, n_workers: int) -> tuple[tuple[Seeds, ...], Field]:
    """All instances of workers of a number: of both sets, and those to tune each on."""
    every = sets.drawn(settings)
    same = {name: getattr(settings, name) for name in ("batch", "hidden", "concentration")}
    return every, field_of([digits_problem(one, n_workers, **same) for one in every])


class Bench:
    """A column's instances, on which rules are tuned and run."""

    def __init__(self, settings: Settings, column: Column) -> None:
        """Draws the instances."""
        self.settings, self.column = settings, column
        self.instances, self.field = _field(replace(settings, methods=()), column.n_workers)
        self.clocks = [column.clock(instance) for instance in self.instances]
        self._made: dict[str, list[traces.EventTrace]] = {}

    def numbers(self, role: str) -> list[int]:
        """Places of the instances of a role."""
        return sets.places(self.instances, role)

    def gradients(self, numbers: Sequence[int]) -> int:
        """Gradients that a trial on instances may compute: those of workers who never wait."""
        rates = [1.0 / np.asarray(self.clocks[at].mean) for at in numbers]
        return round(self.settings.horizon * float(np.sum(rates)))

    def traces_of(
        self, rule: Rule, chosen: search.Settings, numbers: Sequence[int]
    ) -> list[traces.EventTrace]:
        """One trace an instance, lasting to the horizon; the same jobs last equally long for all.

        The steps and the size of local steps change nothing here, so traces are kept.
        """
        apart = ("step", "local step", "L", "strength")
        knobs = {name: value for name, value in chosen.items() if name not in apart}
        mark = json.dumps([rule.name, knobs, list(numbers)])
        if mark not in self._made:
            make = rule.trace(chosen)
            keys = [jax.random.key(self.instances[at].noise(0)) for at in numbers]
            self._made[mark] = traces.lasting(
                lambda n: [
                    make(self.clocks[at], n, key) for at, key in zip(numbers, keys, strict=True)
                ],
                self.settings.horizon,
                multiple_of=self.settings.records,
            )
        return self._made[mark]

    def run(self, rule: Rule, chosen: search.Settings, numbers: Sequence[int]) -> Ran:
        """Runs a rule with its knobs on as many instances as are tuned on: one compiled call."""
        factor, number = rule.numbers(chosen)
        lanes = [
            Lane(
                at,
                trace._replace(weight=trace.weight * np.float32(factor)),
                jax.random.key(self.instances[at].noise(1)),
            )
            for at, trace in zip(numbers, self.traces_of(rule, chosen, numbers), strict=True)
        ]
        field = self.field
        if rule.local:
            size = jnp.float32(chosen["local step"])
            joined = problems.local_steps(field.joined, n_steps=LOCAL_STEPS, step_size=size)
            field = replace(field, joined=joined)
        settings, n = self.settings, self.column.n_workers
        return replayed(
            field,
            lanes,
            rule.optimizer,
            number,
            records=settings.records,
            gradients=2.5 * n * settings.horizon,
        )

    def accuracies(self, numbers: Sequence[int], ran: Ran) -> np.ndarray:
        """Test accuracies float[K, R], NaN where a model is not finite or after the horizon."""
        judge = reaching.slim(self.field.parts[numbers[0]])  # the test rows are one for all
        found = np.array([reaching.accuracies(judge, jnp.asarray(models)) for models in ran.models])
        there = (ran.time <= self.settings.horizon) & np.isfinite(ran.models).all(-1)
        return np.where(there, found, np.nan)

    def tuned(self, family: Sequence[Rule], role: str) -> dict[str, search.Tuned]:
        """All rules for a set, with the same number of trials.

        The score is the mean logarithm of the time to the last level on its tuning instances, cut.
        """
        settings, by_name = self.settings, {rule.name: rule for rule in family}
        numbers, step = self.numbers(TUNING_OF[role]), log_range(*settings.steps, 6)

        def evaluate(name: str, trials: Sequence[search.Settings], _: int) -> list[float]:
            runs = [self.run(by_name[name], trial, numbers) for trial in trials]
            goal = settings.levels[-1], settings.horizon
            pairs = [(ran.time, self.accuracies(numbers, ran)) for ran in runs]
            return [reaching.score(*goal, *pair) for pair in pairs]

        return search.tune(
            {rule.name: {"step": step, **rule.knobs} for rule in family},
            evaluate,
            trials=settings.trials,
            gradients=self.gradients(numbers),
            seed=settings.seed,
            role=TUNING_OF[role],
            rounds=settings.rounds,
        )

    def rows(self, rule: Rule, letter: str, tuned: search.Tuned) -> list[dict[str, Any]]:
        """A tuned rule on the instances of a set: one row per run."""
        chosen, per_call, count = (
            tuned.best.settings,
            self.settings.tuning_instances,
            len(tuned.trials),
        )
        spent = {"trials": count, "tuning_gradients": count * tuned.gradients}
        spent |= {"horizon": self.settings.horizon, "at_edge": bool(tuned.edges)}
        head = {"scene": self.column.name, "method": rule.name, **chosen, "set": letter}
        numbers = self.numbers(SETS[letter])
        return [
            {**head, **row, **spent}
            for begin in range(0, len(numbers), per_call)
            for row in self._measured(rule, chosen, numbers[begin : begin + per_call])
        ]

    def _measured(
        self, rule: Rule, chosen: search.Settings, numbers: Sequence[int]
    ) -> list[dict[str, Any]]:
        """Runs on instances, as many at once as are tuned on: the last is repeated."""
        horizon, count = self.settings.horizon, len(numbers)
        numbers = [*numbers, *[numbers[-1]] * (self.settings.tuning_instances - count)]
        ran = self.run(rule, chosen, numbers)
        found = self.accuracies(numbers, ran)
        last = reaching.last_within(horizon, ran.time, found)
        reached = {
            f"time_{level:g}": reaching.times_to_stay(level, horizon, ran.time, found)
            for level in self.settings.levels
        }
        rows = []
        for lane, trace in enumerate(self.traces_of(rule, chosen, numbers)[:count]):
            used = traces.summarize(trace)
            times = {name: float(by_lane[lane]) for name, by_lane in reached.items()}
            rows.append(
                {
                    "instance": self.instances[numbers[lane]].number,
                    **times,
                    "final_accuracy": float(last[lane]),
                    "utilisation": float(used.utilisation),
                    "thrown_away": float(reaching.wasted(used)),
                    "delay_mean": float(used.delay_mean),
                }
            )
        return rows


def run_column(settings: Settings, column: Column) -> pd.DataFrame:
    """The rows of all rules on one kind of workers."""
    bench, family = Bench(settings, column), rules(settings, column.n_workers)
    tuned = {letter: bench.tuned(family, role) for letter, role in SETS.items()}
    return pd.DataFrame(
        [
            row
            for rule in family
            for letter in SETS
            for row in bench.rows(rule, letter, tuned[letter][rule.name])
        ]
    )


def study_of(settings: Settings) -> Result:
    """Runs all rules on all kinds of workers.

    Raises:
        ValueError: A recording is not known.
    """
    core, rows = replace(settings, output=Path(), commit=False, even=(), uneven=()), []
    knobs: dict[str, None] = {"step": None}
    for column in columns(settings):
        rows.append(once(settings.output / "cells", partial(run_column, core, column)))
        family = rules(settings, column.n_workers)
        knobs |= dict.fromkeys(name for rule in family for name in rule.knobs)
        print(f"{column.name}: {len(family)} rules", flush=True)
    times = [f"time_{level:g}" for level in settings.levels]
    facts: dict[str, Any] = {n: getattr(settings, n) for n in ("instances", "tuning_instances")}
    facts |= {"recordings": [*settings.even, *settings.uneven], "knobs": list(knobs)}
    facts["tuned apart"] = True
    heads = ["scene", "set", "instance", "method", *knobs, *times]
    heads += ["final_accuracy", "utilisation", "thrown_away", "delay_mean"]
    heads += ["horizon", "trials", "tuning_gradients", "at_edge"]
    frame = pd.concat(rows, ignore_index=True).reindex(columns=heads)
    return Result(frame, times[-1], facts, settings.seed, tuple(times))


# What is said of it.


def _faster(said: str, scene: str, than: Any = SYNC) -> Claim:
    """Pure is faster on workers of a kind; than all others where none is named."""
    return Claim(said, [less(PURE, than=than, scene=scene)])


CLAIMS = (
    _faster("on an uneven job pure is faster than synchronous rounds", UNEVEN),
    _faster("on an uneven job pure is faster than every other rule", UNEVEN, ()),
    _faster(
        "on an uneven job pure is faster than rules that ask all alike",
        UNEVEN,
        ("shuffled", "shuffled once", "random"),
    ),
    _faster("with a worker slow for good pure is faster than synchronous rounds", SLOW),
    _faster("with workers late by turns pure is faster than synchronous rounds", TURNS),
    _faster("on even jobs pure is faster than synchronous rounds", EVEN),
    Claim(
        f"on even jobs no rule is {CLOSE:g} times as fast as synchronous rounds",
        [less(SYNC, ratio=CLOSE, scene=EVEN)],
    ),
)


def scenes(result: Result) -> list[str]:
    """The kinds of workers."""
    return list(result.rows["scene"].unique())


def levels(result: Result) -> list[str]:
    """The columns of the times to each level; the last is what was tuned for."""
    return list(result.cut or ())


def _percent(column: str) -> str:
    return f"{100 * float(column.removeprefix('time_')):g} %"


def logarithms(result: Result, letter: str, scene: str, column: str) -> dict[str, np.ndarray]:
    """Logarithms of the times to a level, cut, by rule."""
    return {
        rule: np.log(result.values(rule, letter, column, scene=scene).to_numpy()[0])
        for rule in result.methods
    }


def places(result: Result, letter: str, scene: str, column: str) -> dict[str, Place]:
    """Where rules stand by their time to a level."""
    logs = logarithms(result, letter, scene, column)
    return {place.name: place for place in ranks(logs, result.seed, PAIR, 4000)}


def span(place: Place) -> str:
    """The ranks that a rule may have."""
    return "-".join(dict.fromkeys([str(place.best_rank), str(place.worst_rank)]))


def times_of(result: Result, scene: str, rule: str) -> results.Spread:
    """Quartiles of the times of a rule to the last level, set A."""
    return spread(result.select(set="A", scene=scene, method=rule), levels(result)[-1])


def time_table(result: Result) -> results.Table:
    """Median time to the last level of set A and ranks of both."""
    every, last, rows = scenes(result), levels(result)[-1], []
    stands = {(one, s): places(result, s, one, last) for one in every for s in result.sets}
    means = [logarithms(result, "A", one, last) for one in every]

    def mean(rule: str) -> tuple[float, str]:
        return round(sum(logs[rule].mean() for logs in means), 6), rule

    for rule in sorted(result.methods, key=mean):
        cells = []
        for one in every:
            middle = float(times_of(result, one, rule).median)
            said = format_number(middle) if np.isfinite(middle) else "never"
            spans = " / ".join(span(stands[one, letter][rule]) for letter in result.sets)
            cells.append(f"{said} ({spans})")
        rows.append((rule, *cells))
    return part.table(
        ("rule", *every),
        rows,
        f"Time to stay at {_percent(last)} test accuracy until the end, median over"
        f" {result.facts['instances']} instances of set A (ranks in set A / in set B: those that"
        f" the instances leave open at {PAIR:.0%} a pair). Never: not by"
        f" {result.rows['horizon'].iloc[0]:g}. The unit is the mean time of a recorded job. First"
        " is who has the lowest mean logarithm over all.",
    )


def cost_table(result: Result) -> results.Table:
    """How far rules got, how busy and how late they were."""
    names = ("final_accuracy", "utilisation", "thrown_away", "delay_mean")
    rows = [
        (*key, *(results.median_and_spread(runs[name].to_numpy()) for name in names))
        for key, runs in result.select(set="A").groupby(["scene", "method"], sort=False)
    ]
    return part.table(
        ("workers", "rule", "final accuracy", "utilisation", "thrown away", "mean delay"),
        rows,
        "Set A, median (quartiles) over instances. 'Thrown away' is the share of delivered or"
        " cancelled gradients that never entered a step.",
        left=2,
    )


def recording_table(result: Result) -> results.Table:
    """How uneven the recordings are."""
    named = {"llm_sequences": "LLM, uneven sequences", "llm_slow_worker": "LLM, a slow worker"}
    found = spread_of_jobs(tuple(result.facts["recordings"]))
    rows = []
    for name, workers, _, ratio, varying, where, busy, gain in found.rows:
        numbers = f"{ratio:.2f}", f"{varying:.2f}", f"{100 * where:.0f}", f"{busy:.2f}"
        rows.append((named.get(name, name.replace("_", " ")), workers, *numbers, f"{gain:.2f}"))
    heads = (
        "recording",
        "workers",
        "slowest over fastest",
        "coefficient of variation",
        "of 100 jobs more even",
        "busy in rounds that wait for all",
        "gradients without waiting",
    )
    return part.table(heads, rows, found.caption)


TABLES = {
    "times": time_table,
    "spread": sets.spread_of,
    "costs": cost_table,
    "settings": summary.trial_table,
    "recordings": recording_table,
}
FACTS = {
    "trials": lambda result: sorted({int(count) for count in result.rows["trials"]}),
    "rules": lambda result: len(result.methods),
    "cut": lambda result: {  # shares of the runs that never stay at the last level
        scene: np.isinf(runs[levels(result)[-1]]).groupby(runs["set"]).mean().to_dict()
        for scene, runs in result.rows.groupby("scene", sort=False)
    },
}


def bars(result: Result) -> Illustration:
    """The time to the last level on the uneven job, or on the first workers that were run."""
    every = scenes(result)
    scene = UNEVEN if UNEVEN in every else every[0]
    times = {rule: times_of(result, scene, rule) for rule in result.methods}
    order = sorted(times, key=lambda rule: float(times[rule].median))
    goal = f"{_percent(levels(result)[-1])} test accuracy"
    label = f"time to stay at {goal}\n[mean recorded job], {scene}"
    return Illustration(
        plots.bars(order, [times[rule] for rule in order], x_label=label),
        f"Workers: {scene}, set A. Median and quartiles over instances, none past"
        f" {result.rows['horizon'].iloc[0]:g}.",
    )


FIGURES = {"to target": bars}


if __name__ == "__main__":
    part.main(NAME, quick=True)
