"""Every rule of the family on recorded workers: tuned alike, then run on two sets of instances.

An instance draws how labels are divided over the workers, the first model, which recording of its
column, which of its workers (and who of them holds which shard), and where in the recording it
begins. Its noise is the rows of each gradient and what a dispatch rule draws. A rule has all of its
knobs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, steps, storage, traces
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from asyncjax.study.search import Knob, log_range
from experiments.common import reaching
from experiments.common.data import digits_problem
from experiments.common.lanes import Field, Lane, Ran, field_of, replayed
from experiments.common.methods import MakeTrace, plain, rounds_of, server_with
from experiments.common.recordings import EVEN, UNEVEN, read_recordings

SETS = {"A": SET_A, "B": SET_B}
LOCAL_STEPS = 4
HISTORY = 1024  # delays that Adaptive 1 remembers; more are an error
MakeOptimizer = Callable[[Any], optax.GradientTransformation]


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
    trace: Callable[[tuning.Settings], MakeTrace]
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    optimizer: MakeOptimizer = plain
    numbers: Callable[[tuning.Settings], tuple[float, float]] = lambda s: (1.0, s["step"])
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


def _rounds(settings: tuning.Settings) -> MakeTrace:
    def make(clock: clocks.Clock, n_updates: int, key: jax.Array) -> traces.EventTrace:
        return traces.synchronous(clock, k=settings["k"], n_updates=n_updates, key=key)

    return make


def _server(
    collect: Callable[[tuning.Settings], Any] | None = None, **rules: Any
) -> Callable[[tuning.Settings], MakeTrace]:
    """An asynchronous server; how it collects may depend on the knobs."""
    if collect is None:
        return lambda _: server_with(**rules)
    return lambda settings: server_with(collect=collect(settings), **rules)


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
    waiting, shuffled = lambda s: traces.wait_for(s["b"]), traces.shuffled()
    return (
        # Steps take several gradients.
        Rule("synchronous", lambda _: rounds_of(1.0)),  # rounds that wait for all
        Rule("fastest k", _rounds, {"k": part}),  # rounds that wait for k
        Rule("wait for b", _server(waiting), {"b": part}),  # mean of b, then b jobs
        Rule("wait for b, shuffled", _server(waiting, dispatch=shuffled), {"b": part}),
        Rule("buffered b", _server(lambda s: traces.buffered(s["b"])), b),  # mean of b
        Rule("Rennala", _server(lambda s: traces.rennala(s["b"])), b),  # mean of b fresh ones
        Rule("k-batch-sync", _server(lambda s: traces.rennala(s["b"], cancel=True)), b),
        Rule("Malenia", _server(lambda s: traces.malenia(s["S"])), heard),  # mean by worker
        Rule("Ringleader", _server(lambda _: traces.ringleader())),  # rounds of n steps
        Rule("table", _server(lambda _: traces.table())),  # mean of everyone's last gradient
        Rule(
            f"FedBuff, {LOCAL_STEPS} local steps",  # mean of b, jobs last longer
            _server(lambda s: traces.buffered(s["b"]), load=float(LOCAL_STEPS)),
            {**b, "local step": log_range(0.05, 0.4, 3)},
            local=True,
        ),
        # A step at every gradient that is used.
        Rule("pure", _server()),  # applied on arrival, the deliverer goes on
        Rule("random", _server(dispatch=traces.uniformly())),  # next job to a random worker
        Rule("shuffled", _server(dispatch=shuffled)),  # next job along permutations
        Rule("shuffled once", _server(dispatch=traces.shuffled_once())),  # along one permutation
        Rule("Ringmaster", _server(lambda s: traces.ringmaster(s["R"])), threshold),  # delays < R
        Rule(
            "Ringmaster, stops",  # the others are stopped
            _server(lambda s: traces.ringmaster(s["R"], cancel=True)),
            threshold,
        ),
        Rule(
            "quantile",  # without the latest share
            _server(lambda s: traces.ringmaster_quantile(1.0 - s["cut"])),
            shares,
        ),
        Rule(
            "SSP",  # nobody leads by more than s jobs
            lambda s: server_with(gate=traces.lead_at_most(s["s"]), read="start"),
            {"s": Knob((1, 2, 4), whole=True)},
        ),
        *_late_rules(n),
    )


@dataclass(frozen=True)
class Settings:
    """What is run; what is done is kept in `output`, and a second run goes on from there."""

    output: Path = Path("output/recorded_times")
    seed: int = 0
    even: tuple[str, ...] = EVEN  # recordings or files; one column, an instance draws one of them
    uneven: tuple[str, ...] = UNEVEN  # a column each
    most_workers: int = 10  # of a recording that are used
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = 4  # settings that a rule tries in a round of tuning
    rounds: tuple[int, int] = (3, 8)
    steps: tuple[float, float] = (2.0**-6, 1.0)  # ends of the first grid, of six steps
    horizon: float = 200.0  # simulated time that every rule gets
    batch: int = 8  # rows of a gradient
    hidden: int = 16  # units of the network's hidden layer
    concentration: float = 0.3  # of the Dirichlet law of labels over workers; small is skewed
    levels: tuple[float, ...] = (0.8, 0.85, 0.9)  # test accuracies; the last is tuned for
    records: int = 80  # points of a curve, at least so many over the horizon
    methods: tuple[str, ...] = ()  # names of the rules that run; none: all
    commit: bool = False  # also write the numbers where committed ones are


@dataclass(frozen=True)
class Column:
    """Workers of one kind: recordings of which an instance draws one.

    Attributes:
        name: What tables call it.
        recordings: float64[n, k] each, of mean 1.
        n_workers: That an instance has.
    """

    name: str
    recordings: tuple[np.ndarray, ...]
    n_workers: int

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
    made = []
    for name, files in named.items():
        recordings = tuple(read_recordings(files))
        n = min(settings.most_workers, *map(len, recordings))
        made.append(Column(name, recordings, n))
    return made


def rules(settings: Settings, n_workers: int) -> list[Rule]:
    """The rules that run."""
    family = rules_of(n_workers)
    return [rule for rule in family if not settings.methods or rule.name in settings.methods]


@lru_cache(maxsize=4)
def _field(settings: Settings, n_workers: int) -> tuple[tuple[Seeds, ...], Field]:
    """All instances of workers of a number: those for tuning first, then set A, then set B."""
    counts = {TUNING: settings.tuning_instances, SET_A: settings.instances}
    counts[SET_B] = settings.instances
    every = tuple(
        one for role, n in counts.items() for one in protocol.seeds_of(settings.seed, role, n)
    )
    parts = [
        digits_problem(
            one,
            n_workers,
            batch=settings.batch,
            hidden=settings.hidden,
            concentration=settings.concentration,
        )
        for one in every
    ]
    return every, field_of(parts)


class Bench:
    """A column's instances, on which rules are tuned and run; what was computed is kept."""

    def __init__(self, settings: Settings, column: Column) -> None:
        """Draws the instances, reads what an earlier run left."""
        self.settings, self.column = settings, column
        self.instances, self.field = _field(replace(settings, methods=()), column.n_workers)
        self.clocks = [column.clock(instance) for instance in self.instances]
        self._path = settings.output / "cells" / f"{column.name}.json".replace(" ", "_")
        kept = storage.load_json(self._path) if self._path.exists() else {}
        alike = kept.get("settings") == identity(settings)
        self._known: dict[str, Any] = kept["known"] if alike else {}
        self._made: dict[str, list[traces.EventTrace]] = {}

    def numbers(self, role: str) -> list[int]:
        """Places of the instances of a role."""
        return [at for at, instance in enumerate(self.instances) if instance.role == role]

    def gradients(self) -> int:
        """Gradients that a trial may compute: those of workers who never wait."""
        rates = [1.0 / np.asarray(self.clocks[at].mean) for at in self.numbers(TUNING)]
        return round(self.settings.horizon * float(np.sum(rates)))

    def traces_of(
        self, rule: Rule, chosen: tuning.Settings, numbers: Sequence[int]
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

    def run(self, rule: Rule, chosen: tuning.Settings, numbers: Sequence[int]) -> Ran:
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
        found = np.array([reaching.accuracies(judge, jnp.asarray(own)) for own in ran.models])
        there = (ran.time <= self.settings.horizon) & np.isfinite(ran.models).all(-1)
        return np.where(there, found, np.nan)

    def score(self, rule: Rule, chosen: tuning.Settings) -> float:
        """The mean logarithm of the time to the last level on the tuning instances, cut."""
        mark = json.dumps([rule.name, chosen])
        if mark not in self._known:
            numbers, settings = self.numbers(TUNING), self.settings
            ran = self.run(rule, chosen, numbers)
            self._known[mark] = reaching.score(
                settings.levels[-1], settings.horizon, ran.time, self.accuracies(numbers, ran)
            )
        return self._known[mark]

    def tuned(self, family: Sequence[Rule], told: Callable[[str], None]) -> dict[str, tuning.Tuned]:
        """All rules, with the same number of trials."""
        settings, by_name = self.settings, {rule.name: rule for rule in family}
        step = tuning.log_range(*settings.steps, 6)
        done: dict[str, int] = {}

        def evaluate(name: str, trials: Sequence[tuning.Settings], _: int) -> list[float]:
            scores = [self.score(by_name[name], trial) for trial in trials]
            done[name] = done.get(name, 0) + len(scores)
            if name == family[-1].name:
                self.keep()
                told(f"{self.column.name}: {done[name]} trials of each rule")
            return scores

        return tuning.tune(
            {rule.name: {"step": step, **rule.knobs} for rule in family},
            evaluate,
            trials=settings.trials,
            gradients=self.gradients(),
            seed=settings.seed,
            rounds=settings.rounds,
        )

    def rows(self, rule: Rule, tuned: tuning.Tuned) -> list[dict[str, Any]]:
        """A tuned rule on both sets of instances: a row a run."""
        chosen, per_call = tuned.best.settings, self.settings.tuning_instances
        mark = json.dumps([rule.name, chosen, "rows"])
        if mark not in self._known:
            every = {letter: self.numbers(role) for letter, role in SETS.items()}
            self._known[mark] = [
                {"set": letter, **row}
                for letter, numbers in every.items()
                for begin in range(0, len(numbers), per_call)
                for row in self._measured(rule, chosen, numbers[begin : begin + per_call])
            ]
        count = len(tuned.trials)
        spent = {"trials": count, "tuning_gradients": count * tuned.gradients}
        spent |= {"horizon": self.settings.horizon, "at_edge": bool(tuned.edges)}
        head = {"scene": self.column.name, "method": rule.name}
        return [{**head, **chosen, **row, **spent} for row in self._known[mark]]

    def _measured(
        self, rule: Rule, chosen: tuning.Settings, numbers: Sequence[int]
    ) -> list[dict[str, Any]]:
        """Runs on instances, as many at once as are tuned on: the last is repeated."""
        horizon, count = self.settings.horizon, len(numbers)
        numbers = [*numbers, *[numbers[-1]] * (self.settings.tuning_instances - count)]
        ran = self.run(rule, chosen, numbers)
        found = self.accuracies(numbers, ran)
        last = reaching.last_within(horizon, ran.time, found)
        reached = {
            f"time_{level:g}": reaching.times_to_target(level, ran.time, found)
            for level in self.settings.levels
        }
        rows = []
        for lane, trace in enumerate(self.traces_of(rule, chosen, numbers)[:count]):
            used = traces.summarize(trace)
            times = {name: float(own[lane]) for name, own in reached.items()}
            rows.append(
                {
                    "instance": self.instances[numbers[lane]].number,
                    **{name: t if t <= horizon else np.inf for name, t in times.items()},
                    "final_accuracy": float(last[lane]),
                    "utilisation": float(used.utilisation),
                    "thrown_away": float(reaching.wasted(used)),
                    "delay_mean": float(used.delay_mean),
                }
            )
        return rows

    def keep(self) -> None:
        """Writes what is known, so that a run that is killed goes on from there."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        storage.save_json(self._path, {"settings": identity(self.settings), "known": self._known})


def run_column(
    settings: Settings, column: Column, told: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """The rows of all rules on one kind of workers."""
    bench, family = Bench(settings, column), rules(settings, column.n_workers)
    tuned, rows = bench.tuned(family, told), []
    for rule in family:
        rows += bench.rows(rule, tuned[rule.name])
        bench.keep()
    told(f"{column.name}: {len(family)} rules on {2 * settings.instances} instances")
    return rows


def identity(settings: Settings) -> dict[str, Any]:
    """What a column depends on, as it comes back from JSON."""
    apart = ("output", "commit", "methods", "even", "uneven")
    facts = {name: value for name, value in asdict(settings).items() if name not in apart}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in facts.items()}
