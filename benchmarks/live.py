"""What real workers cost: the server, the way of a gradient, and how busy workers are kept.

    server       time of the server for an arrival, gradients not counted, on a virtual clock;
                 beside the compiled update alone
    transport    from the start of a job to the arrival of its gradient, less what the worker
                 computed: one worker, so that nobody waits for a core
    throughput   gradients a second of workers whose jobs take 50 ms, beside n / 50 ms
    rival        Ray's own asynchronous parameter server (`live_tasks.RayExample`) on the same Ray,
                 the same problem and the same workers

Run `python -m benchmarks.live`; it prints Markdown tables. `--quick` shows in half a minute that
it runs. Without Ray its rows are left out.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from asyncjax import clocks, live, problems, results, traces
from benchmarks import live_tasks
from benchmarks.live_tasks import STEP, RayExample
from benchmarks.timing import ratio, seconds, setting

SGD, ADAM = optax.sgd(STEP), optax.adam(STEP / 10)
Make = Callable[[], problems.Problem]
SIZES: dict[str, Make] = {"64-32-10": live_tasks.small, "10 MB": live_tasks.large}
RULES: dict[str, tuple[optax.GradientTransformation, dict[str, Any]]] = {
    "every gradient, SGD": (SGD, {}),
    "every gradient, Adam": (ADAM, {}),
    "ringmaster 8 (Ringmaster)": (SGD, {"collect": traces.ringmaster(8)}),
    "buffered 8 (FedBuff)": (SGD, {"collect": traces.buffered(8)}),
    "table (IAG)": (SGD, {"collect": traces.table()}),
    "shuffled": (SGD, {"dispatch": traces.shuffled()}),
}
ENGINES: dict[str, Callable[[int], live.Engine]] = {
    "threads": live.threads,
    "processes": live.processes,
}
if find_spec("ray"):
    ENGINES["ray"] = partial(live.ray, num_cpus=0.1)
JOB = 0.05  # seconds of a job that sleeps


class Scale(NamedTuple):
    """How much is measured."""

    repeats: int
    arrivals: tuple[int, int]  # in a run for the table of the server: of the small model, the large
    answers: tuple[int, int]  # in one for that of transport
    crews: tuple[int, ...]  # numbers of workers
    rounds: int  # of jobs that sleep
    engines: tuple[str, ...]
    rules: tuple[str, ...]


FULL = Scale(5, (4000, 400), (500, 60), (1, 2, 4, 8, 16), 40, tuple(ENGINES), tuple(RULES))
QUICK = Scale(1, (3000, 100), (100, 10), (2,), 6, ("threads", "processes"), tuple(RULES)[:1])


@cache
def made(make: Make) -> problems.Problem:
    """The problem of a maker, once in this process."""
    return make()


def pace(run: results.Run) -> float:
    """Seconds an arrival, once every worker was heard: rounds of equal jobs come in bursts."""
    arrival, n = run.trace.time, int(np.max(run.trace.worker)) + 1
    return float(arrival[-1] - arrival[n - 1]) / (len(arrival) - n)


def server_seconds(make: Make, rule: str, arrivals: int) -> float:
    """Seconds of the server an arrival, with eight workers in virtual time."""
    optimizer, rules = RULES[rule]
    told: list[tuple[float, int]] = []
    run = live.train(
        made(make),
        live.virtual(clocks.exponential(np.linspace(1.0, 3.0, 8)), jax.random.key(1)),
        optimizer,
        n_updates=arrivals // (8 if "FedBuff" in rule else 1),
        record_every=arrivals,
        progress=lambda now: told.append((time.perf_counter(), now.updates)),
        **rules,
    )
    (began, updates), (ended, _) = told[0], told[-1]
    first = int(np.searchsorted(run.trace.version, updates))
    computed = live.timing(run).computed[first:]
    return float((ended - began - computed.sum()) / len(computed))


def bare_update(make: Make, repeats: int) -> np.ndarray:
    """Seconds of a compiled update that is handed a gradient, float64[repeats]."""
    params = made(make).params
    gradient = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    structure = jax.tree.structure(params)

    @jax.jit
    def step(params: Any, state: Any, gradient: Any) -> tuple[Any, Any]:
        update, state = SGD.update(gradient, state, params)
        return optax.apply_updates(params, update), state

    def run(times: int = 50) -> None:
        now, state = params, SGD.init(params)
        for _ in range(times):
            now, state = step(now, state, jax.tree.unflatten(structure, gradient))
            jax.block_until_ready(now)

    return seconds({"bare": run}, repeats)["bare"] / 50


def spread(values: Sequence[float] | np.ndarray, digits: int = 2) -> str:
    """Median, with quartiles."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{median:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def server_table(scale: Scale) -> None:
    """Prints what the server takes."""
    print("| model | rule | ms an arrival | over the compiled update alone |\n|---|---|---|---|")
    for name, make in SIZES.items():
        is_small = make is live_tasks.small
        arrivals = scale.arrivals[0 if is_small else 1]
        bare = bare_update(make, scale.repeats)
        for rule in scale.rules if is_small else scale.rules[:2]:
            taken = [server_seconds(make, rule, arrivals) for _ in range(scale.repeats + 1)][1:]
            times = np.array(taken)
            print(f"| {name} | {rule} | {spread(1e3 * times)} | {ratio(times, bare)} |", flush=True)


def transport(make: Make, workers: live.Engine, updates: int) -> np.ndarray:
    """Milliseconds of the way of each gradient, the first ones left out."""
    run = live.train(make, workers, SGD, n_updates=updates, record_every=updates)
    way = run.trace.time - np.asarray(run.trace.start) - live.timing(run).computed
    return 1e3 * way[len(way) // 10 :]


def transport_table(scale: Scale) -> None:
    """Prints the way of a gradient: medians of the runs, and of the tenth that was fastest."""
    print(
        "| model | engine | ms, median of a run | ms, fastest tenth | over processes |\n"
        "|---|---|---|---|---|"
    )
    ways: dict[tuple[str, str], list[np.ndarray]] = {}
    with open_engines(scale, 1) as engines:
        for _ in range(scale.repeats):  # in turn, so that a disturbance meets all alike
            for size, make in SIZES.items():
                updates = scale.answers[0 if make is live_tasks.small else 1]
                for name, workers in engines.items():
                    way = transport(make, workers, updates)
                    ways.setdefault((size, name), []).append(way)
    medians = {key: np.array([np.median(way) for way in of]) for key, of in ways.items()}
    for (size, name), of in ways.items():
        best = spread([np.quantile(way, 0.1) for way in of])
        beside = ratio(medians[size, name], medians[size, "processes"])
        print(f"| {size} | {name} | {spread(medians[size, name])} | {best} | {beside} |")


@contextmanager
def open_engines(scale: Scale, n_workers: int) -> Iterator[dict[str, live.Engine]]:
    """All engines with so many workers; only one of them works at a time."""
    opened: dict[str, live.Engine] = {}
    try:
        for name in scale.engines:
            opened[name] = ENGINES[name](n_workers).__enter__()
        yield opened
    finally:
        for workers in opened.values():
            workers.__exit__()


def throughput_table(scale: Scale) -> None:
    """Prints gradients a second of jobs that sleep, as a share of n / 50 ms."""
    print(f"| workers | {' | '.join(scale.engines)} |\n|---|{'---|' * len(scale.engines)}")
    make = partial(live_tasks.sleeping, JOB)
    for n in scale.crews:
        cells = []
        with open_engines(scale, n) as engines:
            for workers in engines.values():
                shares = []
                for _ in range(scale.repeats):
                    run = live.train(
                        make, workers, SGD, n_updates=n * scale.rounds, record_every=10**6
                    )
                    shares.append(100 * JOB / n / pace(run))
                cells.append(f"{spread(shares, 0)} %")
        print(f"| {n} | {' | '.join(cells)} |", flush=True)


RIVAL: dict[str, tuple[Make, int]] = {
    "64-32-10": (live_tasks.small, 600),
    "64-32-10, jobs of 50 ms": (partial(live_tasks.sleeping, JOB), 200),
    "10 MB": (live_tasks.large, 60),
}


def rival_table(scale: Scale, n_workers: int = 4) -> None:
    """Prints ours beside Ray's own example, on one Ray."""
    print("| model | ms an update, ours | ms, example | ours / example |\n|---|---|---|---|")
    with ENGINES["ray"](n_workers) as workers:
        for name, (make, updates) in RIVAL.items():
            ours, theirs = [], []
            live.train(make, workers, SGD, n_updates=2 * n_workers)  # starts Ray
            example = RayExample(make, n_workers)
            example.seconds(2 * n_workers)
            for _ in range(scale.repeats):
                run = live.train(make, workers, SGD, n_updates=updates, record_every=10**6)
                ours.append(1e3 * pace(run))
                theirs.append(1e3 * example.seconds(updates))
            example.close()
            cells = spread(ours), spread(theirs), ratio(np.array(ours), np.array(theirs))
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


TABLES: dict[str, Callable[[Scale], None]] = {
    "server": server_table,
    "transport": transport_table,
    "throughput": throughput_table,
    "rival": rival_table,
}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short form, to see that it runs")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    with_ray = "ray" in scale.engines
    packages = f", ray {version('ray')}" if with_ray else ""
    print(
        f"{setting()}{packages}; {os.cpu_count()} cores; {scale.repeats} runs, median (quartiles)\n"
    )
    for name in arguments.tables:
        if name == "rival" and not with_ray:
            continue
        print(f"**{name}** (load {os.getloadavg()[0]:.1f} at its start)\n", flush=True)
        TABLES[name](scale)
        print(flush=True)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
