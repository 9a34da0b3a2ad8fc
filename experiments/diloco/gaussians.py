r"""Does the public notebook for asynchronous local SGD come out the same?

Four workers of which the slowest takes six times as long as the fastest learn to tell mixtures of
Gaussians apart. What the notebook shows is that Nesterov momentum at the server, which helps the
synchronous server, hurts the asynchronous one at equal numbers of local steps, while without
momentum the asynchronous one is ahead. Nothing is tuned here: rates are the notebook's, and for
delayed Nesterov, which is not in it, the synchronous server's.

Liu et al. 2024 (arXiv 2401.09135) published with their paper the notebook AsyncLocalSGDToyExample
(github.com/google-deepmind/asyncdiloco); what follows was read there. `steps.delayed_nesterov`
makes the same steps as the public code of HALoS (utnslab/halos, src/halos/opt.py), which names this
paper as its source:

    data       K classes of some Gaussians each in 512 dimensions, centres of length 1, deviation
               0.5 a coordinate; a network with one hidden layer, uniform(+- 1/sqrt(fan in))
    jobs       20 local steps on batches of 32; AdamW begun anew, weight decay 0.001, its rate
               falling by a cosine of the steps made on the shard from 2e-4 to 1e-6 (the first step
               of a job still at 2e-4)
    speeds     0.58, 0.75, 1.51 and 3.33 seconds a local step
    server     torch's SGD with Nesterov momentum 0.9 or none, on the mean of four pseudo-gradients
               (rate 0.7), or on every one times 4^(-1/2) (rate 0.07; 0.7 without momentum), or on
               the mean of every four that arrived (`delayed_sgd`)

Different here: rows are drawn with replacement, each worker drawing from all of them; the wait of
half a second for company is left out (jobs last 12 to 67 seconds); the network is smaller.
"""

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, simulation, steps, traces
from asyncjax.problems.finite_sum import Loss, Mean
from asyncjax.problems.losses import Network, cross_entropy, is_hit
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common import doors
from experiments.common.kept_rows import arrays_once
from experiments.common.numbers import spread
from experiments.common.signs import lower

NAME = "diloco_gaussians"
TITLE = "Does the public notebook for asynchronous local SGD come out the same?"
PAPERS = ("Liu et al. 2024, Asynchronous Local-SGD Training for Language Modeling, 2401.09135",)
SCENE = "the notebook's Gaussians"
SECONDS = (0.58, 0.75, 1.51, 3.33)
H, BATCH, DIMENSIONS, CLASSES, DEVIATION = 20, 32, 512, 4, 0.5
PEAK, LAST, DECAY = 2e-4, 1e-6, 1e-3


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/diloco/gaussians")
    seed: int = 0
    full: bool = False  # 128,000 rows and 400 phases, as in the notebook, 1,024 hidden units
    rows: int = 32_000
    hidden: int = 128  # units; the notebook has 65,000
    clusters: int = 8  # Gaussians of a class
    phases: int = 100  # local steps of all workers, over 4 H
    seeds: int = 3
    records: int = 10
    judged: int = 2048  # training rows whose loss is recorded
    commit: bool = False  # also write the rows where committed ones are


@dataclass(frozen=True)
class Way:
    """A way to train.

    Attributes:
        name: In tables and on curves.
        collect: What the server does with an arrival.
        jobs: In a step.
        rate: Outer.
        momentum: Outer.
        every: Arrivals that renew the momentum.
    """

    name: str
    collect: traces.Collection
    jobs: int
    rate: float
    momentum: float
    every: int = 1


WAYS = (
    Way("synchronous, Nesterov", traces.wait_for(4), 4, 0.7, 0.9),
    Way("asynchronous, Nesterov", traces.immediately(), 1, 0.07 / 2, 0.9),
    Way("synchronous, SGD", traces.wait_for(4), 4, 0.7, 0.0),
    Way("asynchronous, SGD", traces.immediately(), 1, 0.7 / 2, 0.0),
    Way("buffered 4, Nesterov", traces.buffered(4), 4, 0.7, 0.9),
    Way("asynchronous, delayed Nesterov", traces.immediately(), 1, 0.7, 0.9, 4),
)


def mixture(seed: int, rows: int, clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the mixture and their classes, in random order, float32[rows, 512] and int32[rows].

    Example:
        >>> features, labels = mixture(0, 64, 2)
        >>> features.shape, np.bincount(labels).tolist()
        ((64, 512), [16, 16, 16, 16])
    """
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((CLASSES * clusters, DIMENSIONS))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    whose = np.repeat(np.arange(len(centres)), rows // len(centres))
    draw.shuffle(whose)
    features = DEVIATION * draw.standard_normal((len(whose), DIMENSIONS), np.float32)
    return features + centres[whose].astype(np.float32), (whose // clusters).astype(np.int32)


def problem_of(settings: Settings, seed: int) -> problems.Problem:
    """The network on a mixture; every worker draws from all rows, the first rows are judged."""
    features, labels = mixture(seed, settings.rows, settings.clusters)
    n, every = len(SECONDS), np.arange(len(features), dtype=np.int32)
    model = problems.MLP(hidden=(settings.hidden,), classes=CLASSES)
    problem = problems.classification(
        model,
        features,
        labels,
        n_workers=n,
        shards=problems.Shards(np.tile(every, (n, 1)), np.full(n, len(every), np.int32)),
        batch=problems.uniform(BATCH),
        test=(features[: settings.judged], labels[: settings.judged]),
        key=jax.random.key(seed),
    )
    entropy, hit = (Loss(Network(model, compare)) for compare in (cross_entropy, is_hit))
    return replace(
        problem,
        params=first_params(problem.params, jax.random.key(seed)),
        objective_of=Mean(entropy, on_test=True),
        metrics_of=(("accuracy", Mean(hit, on_test=True)),),
    )


def first_params(params: Any, key: jax.Array) -> Any:
    """The same tree, uniform within 1 / sqrt(inputs of the layer), biases too, as torch has it."""
    drawn = {}
    for place, (name, layer) in enumerate(sorted(params.items())):
        bound, layer_key = layer["kernel"].shape[0] ** -0.5, jax.random.fold_in(key, place)
        drawn[name] = {
            part: jax.random.uniform(
                jax.random.fold_in(layer_key, number), leaf.shape, leaf.dtype, -1, 1
            )
            * bound
            for number, (part, leaf) in enumerate(sorted(layer.items()))
        }
    return drawn


def trace_of(way: Way, phases: int) -> traces.EventTrace:
    """4 jobs a phase arrive; jobs last 20 steps of the worker's speed, always the same."""
    clock = clocks.constant(np.array(SECONDS) * H)
    n_updates = phases * len(SECONDS) // way.jobs
    return traces.asynchronous(clock, n_updates=n_updates, collect=way.collect)


def turns(trace: traces.EventTrace) -> np.ndarray:
    """How often each worker's jobs find their shard visited before, int32[n, jobs].

    Jobs take, in the order in which they are handed out, the shard that was visited least, so that
    the first four find shards that nobody has visited, and so on.
    """
    n = len(SECONDS)
    worker, job = np.asarray(trace.worker), np.asarray(trace.job)
    # A worker gets its next job when his last one is served, or with the step that takes it.
    step_of = np.searchsorted(np.flatnonzero(np.asarray(trace.steps)), np.arange(len(worker)))
    handed = {(one, 0): number for number, one in enumerate(range(n))}
    by_step = np.lexsort((worker, step_of))
    for number, place in enumerate(by_step, start=n):
        handed[int(worker[place]), int(job[place]) + 1] = number
    table = np.zeros((n, int(job.max()) + 2), np.int32)
    for (one, place), number in handed.items():
        table[one, place] = number // n
    return table


@cache
def adamw(visits: tuple[tuple[int, ...], ...], phases: int) -> optax.GradientTransformation:
    """AdamW as the notebook has it, its rate by the visits to a job's shard before."""
    table = jnp.asarray(visits, jnp.int32)

    def init(params: Any) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: Any,
        state: optax.EmptyState,
        params: Any = None,
        *,
        worker: Any,
        job: Any,
        **others: Any,
    ) -> tuple[Any, optax.EmptyState]:
        del params, others
        visited, h = table[worker, job // H], job % H
        share = jnp.where(h == 0, 0.0, (visited * H + h) / (phases * H))
        rate = LAST + (PEAK - LAST) * 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(share, 1.0)))
        return optax.tree.scale(-rate, updates), state

    by_visits: Any = update
    scaled = optax.GradientTransformationExtraArgs(init, by_visits)
    return optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(DECAY), scaled)


@cache
def outer_of(way: Way) -> Any:
    """The outer optimizer of a rate; SGD is Nesterov without momentum."""
    return partial(steps.delayed_nesterov, momentum=way.momentum, every=way.every)


def train(settings: Settings, way: Way, seed: int) -> dict[str, np.ndarray]:
    """Losses and accuracies at the beginning and at the records."""
    trace = trace_of(way, settings.phases)
    visits = tuple(map(tuple, turns(trace).tolist()))
    inner = problem_of(settings, seed)
    rule = adamw(visits, settings.phases)
    problem = problems.local_steps(inner, n_steps=H, optimizer=rule)
    records = simulation.sweep(
        problem,
        trace,
        outer_of(way),
        [way.rate],
        keys=jax.random.split(jax.random.key(seed), 1),
        record_every=trace.n_updates // settings.records,
        width=1,
    ).records
    first = problem.metrics(problem.params)["accuracy"]
    objective: Any = problem.objective
    losses = np.asarray(records.loss, float)[0, 0]
    accuracies = np.asarray(records.metrics["accuracy"], float)[0, 0]
    return {
        "loss": np.array([float(objective(problem.params)), *losses]),
        "accuracy": np.array([float(first), *accuracies]),
    }


def study_of(settings: Settings) -> Result:
    """Runs all ways; a run that was made before is read.

    Raises:
        ValueError: A number is out of range.
    """
    counts = ("rows", "hidden", "clusters", "phases", "seeds", "records", "judged")
    doors.check(settings, least=dict.fromkeys(counts, 1))
    if settings.full and settings.commit:
        raise ValueError("commit must be False of the notebook's full size")
    if settings.full:
        notebook = {"rows": 128_000, "hidden": 1024, "phases": 400, "seeds": 3, "records": 20}
        settings = replace(settings, **notebook)
    size = replace(settings, output=Path(), seed=0, seeds=1, commit=False, full=False)
    rows = []
    for way in WAYS:
        trace = trace_of(way, settings.phases)
        for instance in range(settings.seeds):
            make = partial(train, size, way, settings.seed + instance)
            ends = arrays_once(settings.output / "runs", make)
            row = {
                "scene": SCENE,
                "set": "A",
                "instance": instance,
                "method": way.name,
                "rate": way.rate,
                "loss": float(ends["loss"][-1]),
                "accuracy": float(ends["accuracy"][-1]),
                "first_loss": float(ends["loss"][0]),
                "time": float(trace.update_time[-1]),
                "local_steps": trace.n_updates * way.jobs * H,
            }
            rows.append(row)
            print(f"{way.name}: seed {settings.seed + instance}, {row['loss']:.4f}", flush=True)
    names = ("rows", "hidden", "judged", "seeds")
    facts = {name: getattr(settings, name) for name in names}
    return Result(pd.DataFrame(rows), "loss", facts, settings.seed)


CLAIMS = tuple(
    Claim(f"{first} ends below {than}", [lower(first, than, "loss")])
    for first, than in (
        ("synchronous, Nesterov", "asynchronous, Nesterov"),
        ("asynchronous, SGD", "synchronous, SGD"),
    )
)


def table(result: Result) -> results.Table:
    """How all ways end."""
    ways, facts = result.rows.groupby("method", sort=False), result.facts
    forms = {
        "rate": lambda rates: f"{rates.iloc[0]:.3g}",
        "time": lambda times: f"{times.iloc[0]:,.0f}",
        "loss": spread,
        "accuracy": partial(spread, digits=3),
    }
    return part.table(
        ("server", "rate on what is sent", "seconds", "loss", "accuracy"),
        ways.agg(forms).itertuples(),
        f"After {int(result.rows['local_steps'].iloc[0]):,} local steps of all workers,"
        f" {facts['hidden']} hidden units, {facts['rows']:,} rows: simulated time, loss and"
        f" accuracy on {facts['judged']:,} training rows, median (quartiles) of"
        f" {facts['seeds']} seeds.",
    )


def sooner(result: Result) -> float:
    """The time of the asynchronous ways over that of the synchronous ones."""
    time = result.rows.groupby("method")["time"].first()
    return float(time["asynchronous, SGD"] / time["synchronous, SGD"])


TABLES = {"ends": table}
FIGURES: dict[str, Any] = {}
FACTS = {"sooner": sooner}


if __name__ == "__main__":
    part.main(NAME)
