"""Do steps that adapt to the delay beat steps that are safe for the worst one?

Aggregated gradients (PIAG). Wu, Magnússon, Feyzmahdavian, Johansson 2022 (arXiv 2202.08550):
regularised logistic regression, a table of the workers' last gradients, and step sizes from the age
of its oldest row. Adaptive 1 and 2 know no bound on the delays; the fixed rules "sun" (gamma' /
(longest + 1/2)) and "worst case" (gamma' / (longest + 1)) are told the longest delay of their own
run in advance.

Laws of delays: even workers; one worker ten times slower; delays drawn from 0..20, with stamps that
never move back or as drawn; a constant delay of 20; and outages, in which one worker of an
otherwise undelayed run is silent for 100 of every 1000 updates. All but the first two, which come
from simulated workers, are sequences of delays of the whole gradient; as drawn from 0..20 they jump
up, which a table's age cannot do.

Steps are chosen on instances that are not reported: other rows, other workers' times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import numpy as np

from asyncjax import clocks, results, simulation, steps, traces
from experiments.common.parts import Part, run_alone
from experiments.common.protocol import SET_A, TUNING, Instance, instances
from experiments.delay_adaptive import step_rules_report
from experiments.delay_adaptive.regularized import SAFETY, Regularized, regularized
from experiments.delay_adaptive.step_rules_runs import (
    CONSTANT,
    Curve,
    Outcome,
    Rule,
    Task,
    run_task,
)

SHAPE = (
    30.0  # of the gamma distribution of a job's time: its standard deviation is 18 % of its mean
)
WORKERS = ("even workers", "one 10x slow")
SEQUENCES = ("uniform 0..20, in order", "uniform 0..20, as drawn", "constant 20", "outages")


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/piag")
    seed: int = 0
    data: tuple[str, ...] = ("breast cancer", "digits")  # all laws, seeds and steps
    large: tuple[str, ...] = ("MNIST", "Shakespeare")  # simulated workers only, one seed
    laws: tuple[str, ...] = WORKERS + SEQUENCES
    n_updates: int = 8000
    n_updates_large: int = 8000
    n_rounds: int = 2000  # of the synchronous server
    seeds: int = 3  # runs that are reported, on rows of their own
    tuning_seeds: int = 2  # runs on other rows, only to choose steps
    records: int = 800
    ratio: float = 1e-2  # gap, as a share of the first, that tuning aims at
    # first steps tried, in units of gamma'
    multiples: tuple[float, ...] = tuple(2.0**power for power in range(-4, 7))
    multiples_large: tuple[float, ...] = (0.0625, 0.25, 1.0, 4.0, 16.0)
    rounds: tuple[int, int] = (1, 3)  # of tuning


def clock_of(law: str, n_workers: int) -> clocks.Clock:
    """Workers with gamma times of mean 1, the last ten times slower for "one 10x slow"."""
    mean = np.ones(n_workers)
    if law == "one 10x slow":
        mean[-1] = 10.0
    return clocks.gamma(SHAPE, mean)


def sequence(law: str, n_updates: int, seed: int) -> np.ndarray:
    """Delays of the whole gradient, int64[K].

    Args:
        law: One of `SEQUENCES`.
        n_updates: K.
        seed: Of the drawn delays.
    """
    k = np.arange(n_updates)
    if law == "constant 20":
        return np.minimum(20, k)
    if law == "outages":
        return np.maximum(k % 1000 - 899, 0)
    drawn = np.minimum(np.random.default_rng(seed).integers(0, 21, n_updates), k)
    return drawn if law.endswith("as drawn") else k - np.maximum.accumulate(k - drawn)


def worker_task(chosen: Regularized, law: str, n_updates: int, keys: jax.Array) -> Task:
    """The task of simulated workers: a table with a row each."""
    n_workers = chosen.shards.n_workers or 1
    clock = clock_of(law, n_workers)
    made = tuple(traces.asynchronous(clock, n_updates=n_updates, key=key) for key in keys)
    ages = tuple(steps.table_delays(trace.worker, trace.delay, n_workers) for trace in made)
    table = simulation.first_gradients(chosen.shards, key=keys[0])

    def optimizer(rule: Rule) -> Rule:
        return steps.aggregated(rule, n_workers, initial=table, prox=steps.l1(chosen.l1))

    return _task(chosen, law, chosen.shards, made, ages, optimizer)


def sequence_task(chosen: Regularized, law: str, n_updates: int, drawn: Sequence[Instance]) -> Task:
    """The task of a sequence of delays: every row of the table has the same stamp."""
    count = len(drawn) if law.startswith("uniform") else 1
    ages = tuple(sequence(law, n_updates, one.noise()) for one in drawn[:count])
    made = tuple(traces.from_delays(age) for age in ages)

    def optimizer(rule: Rule) -> Rule:
        return steps.descent(rule, prox=steps.l1(chosen.l1))

    return _task(chosen, law, chosen.whole, made, ages, optimizer)


def _task(chosen: Regularized, law: str, problem, made, ages, optimizer) -> Task:
    step_size = SAFETY / chosen.smoothness.root_mean_square
    longest = np.array([age.max() for age in ages])
    return Task(
        data=chosen.name,
        law=law,
        problem=problem,
        traces=made,
        ages=ages,
        optimizer=optimizer,
        step_size=step_size,
        fixed={"sun": step_size / (longest + 0.5), "worst case": step_size / (longest + 1)},
        start=chosen.start,
        optimum=chosen.optimum,
    )


def available(names: tuple[str, ...]) -> list[str]:
    """The data sets whose packages are installed; says what is left out."""
    found = []
    for name in names:
        try:
            regularized(name)
        except ImportError as missing:
            print(f"left out: {name}. {missing}")
        else:
            found.append(name)
    return found


def keys_of(drawn: Sequence[Instance]) -> jax.Array:
    """Typed keys [S], of the times and the jobs of instances."""
    return jax.numpy.stack([jax.random.key(one.noise()) for one in drawn])


def outcomes(settings: Settings) -> list[Outcome]:
    """Runs all tasks, steps chosen on instances of their own."""
    plans = [
        (name, law, settings.seeds, settings.tuning_seeds, settings.n_updates, settings.multiples)
        for name in settings.data
        for law in settings.laws
    ]
    plans += [
        (name, law, 1, 1, settings.n_updates_large, settings.multiples_large)
        for name in available(settings.large)
        for law in settings.laws
        if law in WORKERS
    ]
    found = []
    for name, law, reported, tuned_on, n_updates, multiples in plans:
        tasks = []
        for role, count in ((SET_A, reported), (TUNING, tuned_on)):
            drawn = instances(settings.seed, role, count)
            chosen, keys = regularized(name, drawn[0].data), keys_of(drawn)
            if law in WORKERS:
                task = worker_task(chosen, law, n_updates, keys)
            else:
                task = sequence_task(chosen, law, n_updates, drawn)
            tasks.append((task, keys[: len(task.traces)]))
        (task, own), (other, others) = tasks
        found.append(
            run_task(
                task,
                other,
                multiples=multiples,
                rounds=settings.rounds,
                ratio=settings.ratio,
                keys=(own, others),
                records=settings.records // (1 if name in settings.data else 2),
            )
        )
        print(f"  {name}, {law}: done", flush=True)
    return found


def synchronous(settings: Settings, name: str, law: str) -> dict[str, Curve]:
    """Proximal gradient in rounds that wait for all, at its theory step h / L and tuned."""
    tasks = []
    for role in (SET_A, TUNING):
        drawn = instances(settings.seed, role, 1)
        chosen, keys = regularized(name, drawn[0].data), keys_of(drawn)
        clock = clock_of(law, chosen.shards.n_workers or 1)
        trace = traces.synchronous(
            clock, k=clock.n_workers, n_updates=settings.n_rounds, key=keys[0]
        )
        step_size = SAFETY / chosen.smoothness.objective
        task = Task(
            data=name,
            law=law,
            problem=chosen.shards,
            traces=(trace,),
            ages=(np.zeros(settings.n_rounds, int),),
            optimizer=partial(steps.descent, prox=steps.l1(chosen.l1)),
            step_size=step_size,
            fixed={"h / L": np.array([step_size])},
            start=chosen.start,
            optimum=chosen.optimum,
        )
        tasks.append((task, keys))
    (task, own), (other, others) = tasks
    found = run_task(
        task,
        other,
        multiples=settings.multiples,
        rounds=settings.rounds,
        ratio=settings.ratio,
        keys=(own, others),
        records=settings.n_rounds // 4,
    )
    return {"theory": found.theory["h / L"], "tuned": found.tuned[CONSTANT]}


def _synchronous_table(settings: Settings, found: list[Outcome]) -> results.Table:
    columns = (
        results.Column("data", right=False),
        results.Column("delays", right=False),
        results.Column("gap"),
        results.Column("Adaptive 1, theory"),
        results.Column("synchronous, theory"),
        results.Column("ratio"),
        results.Column("Adaptive 1, tuned"),
        results.Column("synchronous, tuned"),
        results.Column("ratio"),
    )
    rows = []
    for outcome in found:
        if outcome.task.law not in WORKERS:
            continue
        rounds = synchronous(settings, outcome.task.data, outcome.task.law)
        ratio, *_ = step_rules_report.compared(outcome, "sun")
        times = []
        for kind, curves in (("theory", outcome.theory), ("tuned", outcome.tuned)):
            own = float(np.median(curves["Adaptive 1"].reached(ratio, axis="time")))
            other = float(np.median(rounds[kind].reached(ratio, axis="time")))
            times += [own, other, other / own if np.isfinite(own) else None]
        rows.append((outcome.task.data, outcome.task.law, ratio, *times))
    return results.Table(
        columns,
        tuple(rows),
        "Time to the gap against synchronous proximal gradient, whose rounds wait for all"
        " workers; in mean jobs of a fast worker. Theory: h / L with L of the mean for the"
        " synchronous rounds, of the root mean square for PIAG.",
    )


def run(settings: Settings) -> Part:
    """Runs everything, writes figures and numbers."""
    found = outcomes(settings)
    return step_rules_report.part(
        "piag",
        "Aggregated gradients: do steps that adapt to the delay beat steps safe for the worst one?",
        settings.output,
        found,
        fixed="sun",
        further=(_synchronous_table(settings, found),),
    )


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
