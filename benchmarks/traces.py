"""How fast traces are made, for every rule, and how that grows with the number of workers.

Run `python -m benchmarks.traces`; it prints a Markdown table of microseconds an arrival. Absolute
times belong to the machine they were taken on; what counts is the growth along a row. With
`--log-rows 1000000` it prints instead what it takes to read logs of so many rows, a process each;
with `--clocks` how many times as much processor time traces of clocks with memory take as those of
`gamma`.
"""

import argparse
import datetime
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import clocks, traces
from benchmarks.timing import ratio, seconds, setting

WORKERS = (10, 100, 1000)
KEY = jax.random.key(0)
Make = Callable[[clocks.Clock, int], traces.EventTrace]


def server(**rules: Any) -> Make:
    """An asynchronous server with the given rules."""
    return lambda clock, n_updates: traces.asynchronous(
        clock, n_updates=n_updates, key=KEY, **rules
    )


def rounds(share: float) -> Make:
    """Synchronous rounds that wait for a share of the workers."""
    return lambda clock, n_updates: traces.synchronous(
        clock, k=max(1, round(share * clock.n_workers)), n_updates=n_updates, key=KEY
    )


def failing(make: Make) -> Make:
    """The same on workers that pause now and then and lose one job in a hundred."""

    def on(clock: clocks.Clock, n_updates: int) -> traces.EventTrace:
        pausing = clocks.on_off(clock, up=clocks.exponential(200.0), down=clocks.exponential(20.0))
        return make(clocks.with_failures(pausing, 0.01), n_updates)

    return on


RULES: dict[str, Make] = {
    "pure": server(),
    "random": server(dispatch=traces.uniformly()),
    "shuffled": server(dispatch=traces.shuffled()),
    "shuffled once": server(dispatch=traces.shuffled_once()),
    "shuffled, read at start": server(dispatch=traces.shuffled(), read="start"),
    "pure, wait for 8": server(collect=traces.wait_for(8)),
    "shuffled, wait for 8": server(dispatch=traces.shuffled(), collect=traces.wait_for(8)),
    "buffered 8 (FedBuff)": server(collect=traces.buffered(8)),
    "rennala 8 (Rennala)": server(collect=traces.rennala(8)),
    "rennala 8, cancelling (k-batch-sync)": server(collect=traces.rennala(8, cancel=True)),
    "fresher than n (Ringmaster)": lambda clock, n_updates: server(
        collect=traces.ringmaster(clock.n_workers)
    )(clock, n_updates),
    "the same, cancelling": lambda clock, n_updates: server(
        collect=traces.ringmaster(clock.n_workers, cancel=True)
    )(clock, n_updates),
    "ringmaster quantile 0.9": server(collect=traces.ringmaster_quantile(0.9)),
    "malenia 1 (Malenia)": server(collect=traces.malenia(1)),
    "table (IAG)": server(collect=traces.table()),
    "ringleader": server(collect=traces.ringleader()),
    "lead at most 4 (SSP)": server(gate=traces.lead_at_most(4), read="start"),
    "synchronous": rounds(1.0),
    "fastest half": rounds(0.5),
    "shuffled, outages and losses": failing(server(dispatch=traces.shuffled(), timeout=100.0)),
}


def with_memory(n: int) -> dict[str, clocks.Clock]:
    """Clocks of n workers with memory, and what they are compared with, first.

    Slow phases take 40 mean jobs and fast ones 60; phases of one mean job, the last two, are
    shorter than many a job and than every synchronous round.
    """
    means = np.sqrt(1.0 + np.arange(n))
    gamma, job = clocks.gamma(2.0, means), float(means.mean())
    log = np.random.default_rng(0).gamma(2.0, 0.5, (n, 200))
    by_time = {
        f"{kind}{length}": clocks.phases(
            gamma, slowdown=3.0, fast=60.0 * unit, slow=40.0 * unit, common=common, timed=True
        )
        for length, unit in (("", job), (", one job long", job / 50.0))
        for kind, common in (("phases by time", False), ("common phases by time", True))
    }
    by_job = {
        kind: clocks.phases(gamma, slowdown=3.0, fast=60.0, slow=40.0, common=common)
        for kind, common in (("phases by job", False), ("common phases by job", True))
    }
    up, down = clocks.exponential(60.0 * job), clocks.constant(40.0 * job)
    return {
        "gamma": gamma,
        **by_job,
        "resampled in blocks": clocks.resampled(log, block=20, common=True),
        "on and off": clocks.on_off(gamma, up=up, down=down),
        **by_time,
    }


def memory(n_arrivals: int, repeats: int) -> None:
    """Prints how many times as much processor time as with `gamma` traces take."""
    print(
        f"{setting()}; at least {n_arrivals} arrivals; ratio of processor time to gamma, median of"
        f" {repeats} (quartiles); gamma in seconds\n"
    )
    print("| rule | clock | " + " | ".join(f"n = {n}" for n in WORKERS) + " |")
    print("|---|---|" + "---|" * len(WORKERS))
    for rule in ("pure", "buffered 8 (FedBuff)", "rennala 8 (Rennala)", "synchronous"):
        cells: dict[str, list[str]] = {}
        for n in WORKERS:
            make, those = RULES[rule], with_memory(n)
            size, _ = updates_for(make, those["gamma"], n_arrivals)
            runs = {
                name: lambda clock=clock, make=make, size=size: make(clock, size).time
                for name, clock in those.items()
            }
            taken = seconds(runs, repeats, time.process_time)
            for name, times in taken.items():
                cells.setdefault(name, []).append(ratio(times, taken["gamma"]))
            cells["gamma"][-1] = f"{np.median(taken['gamma']):.3f} s"
        for name, row in cells.items():
            print(f"| {rule} | {name} | {' | '.join(row)} |", flush=True)


def updates_for(make: Make, clock: clocks.Clock, n_arrivals: int) -> tuple[int, int]:
    """Updates after which a rule has served at least so many arrivals, and how many it then has."""
    n_updates = 1
    while True:
        arrivals = len(make(clock, n_updates).time)
        if arrivals >= n_arrivals:
            return n_updates, arrivals
        n_updates = int(np.ceil(n_updates * min(8.0, 1.1 * n_arrivals / arrivals)))


def moment(seconds: float) -> str:
    """A date, so many seconds after another."""
    return datetime.datetime.fromtimestamp(1.7e9 + seconds, datetime.UTC).isoformat()


# Layouts of a log: header, and the row of a job, of a worker, its number, its start and its length.
LAYOUTS: dict[str, tuple[str, Callable[[int, int, float, float], str]]] = {
    "steps.csv": ("worker,step,seconds", lambda w, j, at, took: f"w{w},{j},{took!r}"),
    "spans.csv": ("worker,start,end", lambda w, j, at, took: f"w{w},{at!r},{at + took!r}"),
    "dates.csv": (
        "worker,start,end",
        lambda w, j, at, took: f"w{w},{moment(at)},{moment(at + took)}",
    ),
    "units.csv": ("worker,step,time", lambda w, j, at, took: f"w{w},{j},{1e3 * took:.6f} ms"),
    "stamps.csv": ("worker,timestamp", lambda w, j, at, took: f"w{w},{1.7e9 + at + took:.6f}"),
    "steps.jsonl": ("", lambda w, j, at, took: f'{{"worker": {w}, "step": {j}, "s": {took!r}}}'),
}


def read(path: Path) -> tuple[float, float]:
    """Processor seconds that reading a log takes, and the most memory of the process, MB."""
    began = time.process_time()
    traces.read_log(path)
    return time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def logs(n_rows: int) -> None:
    """Prints what it takes to read logs of 100 workers."""
    lengths = np.random.default_rng(0).gamma(2.0, 0.5, n_rows) + 1e-3
    print(
        f"{setting()}; {n_rows} rows\n\n| log | processor seconds | peak memory, MB |\n"
        "|---|---|---|"
    )
    for name, (header, write) in LAYOUTS.items():
        with tempfile.TemporaryDirectory() as folder:
            path, at = Path(folder, name), [0.0] * 100
            with path.open("w") as file:
                print(header, file=file)
                for row, took in enumerate(lengths.tolist()):
                    job, worker = divmod(row, 100)
                    print(write(worker, job, at[worker], took), file=file)
                    at[worker] += took
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                took, memory = pool.apply(read, [path])
        print(f"| {name} | {took:.1f} | {memory:.0f} |", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrivals", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--log-rows", type=int)
    parser.add_argument("--clocks", action="store_true")
    arguments = parser.parse_args()
    if arguments.clocks:
        memory(arguments.arrivals, arguments.repeats)
        return
    if arguments.log_rows is not None:
        logs(arguments.log_rows)
        return
    print(
        f"{setting()}; at least {arguments.arrivals} arrivals, exponential times of mean sqrt(i),"
        f" median of {arguments.repeats}; microseconds an arrival\n"
    )
    heads = " | ".join(f"n = {n}" for n in WORKERS)
    print(f"| rule | {heads} | growth 10 to 1000 | seconds at n = 1000 |")
    print("|---|" + "---|" * (len(WORKERS) + 2))
    for name, make in RULES.items():
        by_n = {n: clocks.exponential(np.sqrt(1.0 + np.arange(n))) for n in WORKERS}
        sizes = {n: updates_for(make, clock, arguments.arrivals) for n, clock in by_n.items()}
        taken = seconds(
            {
                str(n): lambda n=n, clock=clock, make=make, sizes=sizes: (
                    make(clock, sizes[n][0]).time
                )
                for n, clock in by_n.items()
            },
            arguments.repeats,
        )
        medians = {n: float(np.median(taken[str(n)])) for n in WORKERS}
        each = {n: medians[n] / sizes[n][1] * 1e6 for n in WORKERS}
        cells = " | ".join(f"{each[n]:.2f}" for n in WORKERS)
        growth = each[WORKERS[-1]] / each[WORKERS[0]]
        print(f"| {name} | {cells} | {growth:.1f} | {medians[WORKERS[-1]]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
