"""Which way of training loses least where the link is slow, at equal time?

A small transformer reads characters of text that comes with Python. Four workers, equal but for a
tenth of jitter, share no link; to send the whole model and get it back takes as long as a third of
a local step, three, or thirty. In the same simulated time:

    synchronous     the mean gradient of every step, AdamW at the server
    top 1 %         the same, of each gradient the largest hundredth, with error feedback (EF14)
    DiLoCo          16 steps of AdamW at the worker, then one outer step with Nesterov momentum
    int4            the same, what is sent in 4 bits a number
    streaming       the same in 4 fragments, each applied 4 steps after it was sent, half of it
    asynchronous    the same without waiting, outer steps with delayed Nesterov momentum

All get six trials for each link, on a seed that is not reported: three rates of AdamW with two of
the outer step, or six of AdamW. Times are those of the formula: a message takes as long as its
bytes say, and streaming waits only for what is left of it after 4 steps. Then streaming again on
the middle link with other fragments, overlaps and shares. A finished run is a file: a run that was
killed goes on where it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, simulation, steps, traces
from asyncjax.problems.finite_sum import Loss, Mean
from asyncjax.problems.losses import Network, token_cross_entropy
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common import doors
from experiments.common.kept_rows import arrays_once
from experiments.common.numbers import spread
from experiments.common.signs import lower
from experiments.diloco import texts

NAME = "diloco_links"
TITLE = "Which way of training loses least where the link is slow?"
PAPERS = (
    "Douillard et al. 2025, Streaming DiLoCo with overlapping communication, 2501.18512",
    "Karimireddy et al. 2019, Error feedback fixes SignSGD, 1901.09847",
)
N, LOCAL, MOMENTUM, TUNING = 4, 16, 0.9, 1000
MEASURED = ("final", "updates", "megabytes")
RATES, OUTER = (0.003, 0.01, 0.03), (0.35, 0.7)
ALONE = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)  # rates of AdamW at the server
LINKS = {"fast": 1 / 3, "middle": 3.0, "slow": 30.0}  # steps that a model takes, there and back
KNOBS = ((1, 0, 1.0), (1, 4, 0.5), (4, 0, 1.0), (4, 4, 1.0), (4, 4, 0.5), (4, 16, 0.5), (8, 2, 0.5))


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/diloco/links")
    seed: int = 0
    horizon: float = 320.0  # local steps' time
    width: int = 32  # of the transformer
    length: int = 32  # characters of a row
    batch: int = 4  # rows of a local step
    characters: int = 200_000  # a quarter of the text
    test_rows: int = 128
    seeds: int = 3  # reported
    commit: bool = False  # also write the rows where committed ones are


@dataclass(frozen=True)
class Way:
    """A way to train.

    Attributes:
        name: In tables.
        local: Steps between two messages of the same fragment; 1: gradients.
        knobs: Fragments, overlap, share.
        waits: Whether the server waits for all.
        compressor: What is done to messages; None: nothing. Made of the number of parameters.
    """

    name: str
    local: int = LOCAL
    knobs: tuple[int, int, float] = (1, 0, 1.0)
    waits: bool = True
    compressor: str = ""


WAYS = (
    Way("synchronous", local=1),
    Way("synchronous, top 1 %", local=1, compressor="top"),
    Way("DiLoCo"),
    Way("DiLoCo, int4", compressor="int4"),
    Way("streaming", knobs=(4, 4, 0.5)),
    Way("asynchronous", waits=False),
)


class Trial(NamedTuple):
    """What is tuned."""

    rate: float  # of AdamW
    outer: float  # of the outer step; 0 where there is none


def trials(way: Way) -> tuple[Trial, ...]:
    """The six trials of a way."""
    if way.local == 1:
        return tuple(Trial(rate, 0.0) for rate in ALONE)
    return tuple(Trial(rate, outer) for rate in RATES for outer in OUTER)


@cache
def problem_of(settings: Settings, seed: int) -> problems.Problem:
    """The text dealt to the workers, and a first model; judged on test rows."""
    text = texts.rows(settings.length, settings.characters, settings.test_rows)
    key = jax.random.key(seed)
    model = problems.TinyGPT(
        vocabulary=len(texts.SYMBOLS),
        width=settings.width,
        depth=1,
        heads=2,
        length=settings.length,
    )
    problem = problems.language_model(
        model,
        text.inputs,
        text.targets,
        n_workers=N,
        shards=problems.iid(len(text.inputs), N, key=jax.random.fold_in(key, 1)),
        batch=problems.uniform(settings.batch),
        test=(text.test_inputs, text.test_targets),
        key=jax.random.fold_in(key, 2),
    )
    loss = Loss(Network(model, token_cross_entropy))
    return replace(problem, objective_of=Mean(loss, on_test=True), metrics_of=())


@cache
def outer_of(way: Way) -> Any:
    """A server's optimizer whose rate is in its state; made once, since each is compiled for."""
    if way.local == 1:
        return optax.inject_hyperparams(optax.adamw)(learning_rate=0.1)
    return optax.inject_hyperparams(steps.delayed_nesterov, static_args=("momentum", "every"))(
        learning_rate=0.1, momentum=MOMENTUM, every=1 if way.waits else N
    )


@cache
def streaming_of(settings: Settings, way: Way, rate: float, seed: int) -> Any:
    """What workers and the server do where workers make local steps."""
    fragments, overlap, adopt = way.knobs
    return simulation.streaming_diloco(
        problem_of(settings, seed),
        n_steps=way.local,
        inner=optax.adamw(rate),
        outer=outer_of(way),
        fragments=fragments,
        overlap=overlap,
        adopt=adopt,
    )


@cache
def server_of(settings: Settings, way: Way) -> Any:
    """The server's optimizer: one for all rates and seeds."""
    if way.local == 1:
        return outer_of(way)
    return streaming_of(settings, way, RATES[0], settings.seed).optimizer


def compressor_of(way: Way, params: Any) -> steps.Compressor | None:
    """How messages are compressed."""
    if way.compressor == "int4":
        return steps.quantized(4)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    return steps.ef14(steps.top_k(size // 100)) if way.compressor else None


def message_time(way: Way, params: Any, link: float) -> float:
    """How long a worker waits for a message, in local steps."""
    compressor, (fragments, overlap, _) = compressor_of(way, params), way.knobs
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    part_of_it = 1.0 if compressor is None else compressor.nbytes(params) / whole
    return max(0.0, link * part_of_it / fragments - overlap)


def train(settings: Settings, way: Way, link: float, trial: Trial, seed: int) -> dict[str, Any]:
    """One run: the loss at the horizon, updates, and bytes that a worker sent."""
    inner, optimizer, load = problem_of(settings, seed), server_of(settings, way), 1.0
    problem, rate = inner, trial.rate
    if way.local > 1:
        streaming = streaming_of(settings, way, trial.rate, seed)
        problem, load, rate = streaming.problem, streaming.load, trial.outer
    compressor, wait = compressor_of(way, inner.params), message_time(way, inner.params, link)
    clock = clocks.gamma(100.0, np.ones(N))
    if wait:
        clock = clocks.communicating(clock, upload=clocks.constant(np.full(N, wait)))
    make = partial(traces.synchronous, k=N) if way.waits else traces.asynchronous
    trace = make(clock, until=settings.horizon, load=load, key=jax.random.key(seed))
    state = optimizer.init(inner.params)
    rates = optax.tree.get(state, "learning_rate")
    transform = None if compressor is None else steps.compressed(compressor, N)
    run = simulation.replay(
        problem,
        trace,
        simulation.Update(optimizer, gradient_transform=transform),
        opt_state=optax.tree.set(state, learning_rate=np.full(np.shape(rates), rate, np.float32)),
        record_every=trace.n_updates,
        key=jax.random.key(seed),
        waves=False,
    )
    final = float(run.records.loss[-1])
    nbytes = (compressor or steps.top_k(1)).nbytes(inner.params)
    if compressor is None:
        nbytes = sum(leaf.nbytes for leaf in jax.tree.leaves(inner.params)) / way.knobs[0]
    return {
        "final": np.float64(final if np.isfinite(final) else np.inf),
        "updates": np.float64(trace.n_updates),
        "megabytes": np.float64(trace.n_arrivals / N * nbytes / 1e6),
    }


def run_once(settings: Settings, way: Way, link: str, trial: Trial, seed: int) -> Mapping[str, Any]:
    """One run, made or read."""
    size = replace(settings, output=Path(), seed=0, seeds=1, commit=False)
    folder = settings.output / "runs" / texts.VERSION
    return arrays_once(folder, partial(train, size, way, LINKS[link], trial, seed))


def study_of(settings: Settings) -> Result:
    """Tunes and runs all ways on all links, and streaming with other knobs.

    Raises:
        ValueError: A number is out of range.
    """
    doors.check(settings, least={"seeds": 1, "horizon": 4 * (LOCAL + max(LINKS.values()))})
    rows: list[dict[str, Any]] = []
    chosen: dict[tuple[str, str], Trial] = {}

    def report(scene: str, way: Way, link: str, trial: Trial, count: int) -> None:
        for instance in range(settings.seeds):
            run = run_once(settings, way, link, trial, settings.seed + instance)
            row = {"scene": scene, "set": "A", "instance": instance, "method": way.name}
            row |= {name: float(run[name]) for name in MEASURED}
            rows.append(row | trial._asdict() | {"trials": count})

    for link in LINKS:
        for way in WAYS:
            seed = settings.seed + TUNING
            tried = {
                trial: float(run_once(settings, way, link, trial, seed)["final"])
                for trial in trials(way)
            }
            chosen[link, way.name] = min(tried, key=lambda trial: tried[trial])
            report(link, way, link, chosen[link, way.name], len(tried))
        print(f"the {link} link is done", flush=True)
    for knobs in KNOBS:
        name = "{} fragments, {} steps later, {:g}".format(*knobs)
        way = Way(name, knobs=knobs)
        report("knobs", way, "middle", chosen["middle", "streaming"], 0)
    params = problem_of(settings, settings.seed).params
    facts = {"parameters": sum(leaf.size for leaf in jax.tree.leaves(params)), "links": LINKS}
    return Result(pd.DataFrame(rows), "final", facts, settings.seed)


CLAIMS = (
    Claim(
        "on a slow link local steps end below a gradient every step",
        [lower("DiLoCo", "synchronous", "final", scene=link) for link in ("middle", "slow")],
    ),
    Claim(
        "on a slow link streaming ends below DiLoCo",
        [lower("streaming", "DiLoCo", "final", scene=link) for link in ("middle", "slow")],
    ),
    Claim(
        "on a slow link the largest hundredth of a gradient is enough",
        [
            lower("synchronous, top 1 %", "synchronous", "final", scene=link)
            for link in ("middle", "slow")
        ],
    ),
)


def losses(result: Result) -> results.Table:
    """How all ways end on all links."""
    names = [way.name for way in WAYS]
    cells = result.rows.groupby(["method", "scene"])["final"].agg(spread)
    rows = [(name, *(cells[name, link] for link in LINKS)) for name in names]
    caption = "Loss on test rows at the end of the time, nats a character, median (quartiles)."
    return part.table(("way", *LINKS), rows, caption)


def messages(result: Result) -> results.Table:
    """What was done and sent."""
    median = result.rows.groupby(["scene", "method"], sort=False)[["updates", "megabytes"]].median()
    rows = [
        (link, way.name, f"{one.updates:.0f}", f"{one.megabytes:.2f}", *_taken(result, link, way))
        for link in LINKS
        for way in WAYS
        for one in [median.loc[link, way.name]]
    ]
    heads = ("link", "way", "updates", "MB of a worker", "AdamW", "outer", "at an end")
    caption = (
        "Updates, what a worker sent, and the rates taken, of AdamW perhaps the least or most."
    )
    return part.table(heads, rows, caption, left=2)


def _taken(result: Result, link: str, way: Way) -> Sequence[str]:
    one = result.select(scene=link, method=way.name).iloc[0]
    rates = sorted(trial.rate for trial in trials(way))
    at_end = one.rate in (rates[0], rates[-1])
    return f"{one.rate:g}", f"{one.outer:g}" if one.outer else "", "yes" if at_end else ""


def knobs(result: Result) -> results.Table:
    """Streaming with other fragments, overlaps and shares."""
    rows = result.select(scene="knobs").groupby("method", sort=False)["final"].agg(spread)
    heads = ("streaming on the middle link", "loss")
    return part.table(
        heads, rows.items(), "The same rates, other knobs: fragments, overlap, share."
    )


TABLES = {"losses": losses, "messages": messages, "knobs": knobs}
FIGURES: dict[str, Any] = {}


if __name__ == "__main__":
    part.main(NAME, quick=True)
