"""How time and memory grow with the number of workers, from ten to a million.

Run `python -m benchmarks.many`, some minutes; with `--large` ten million arrivals of a million
workers instead, up to 6 GB. It prints a Markdown table. Every row runs in a process of its own, so
that its peak of memory is its own, warmed up on as many workers with a twentieth of the updates.
Microseconds are of processor time, a thread's waiting not counted; memory is what a row needs above
a process that has imported all.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, simulation, traces
from benchmarks.timing import setting
from benchmarks.traces import KEY, Make, rounds, server


def cut(share: float, **rules: Any) -> Make:
    """A server that gives jobs up after so many mean durations."""
    return lambda clock, n_updates: server(timeout=share * clock.mean, **rules)(clock, n_updates)


def ringmaster(*, cancel: bool) -> Make:
    """Only gradients that are fresher than there are workers."""
    return lambda clock, n_updates: server(
        collect=traces.ringmaster(clock.n_workers, cancel=cancel)
    )(clock, n_updates)


# Arrivals in whole arrays.
STREAMS: dict[str, Make] = {
    "pure": server(),
    "buffered 8 (FedBuff)": server(collect=traces.buffered(8)),
    "fresher than n (Ringmaster)": ringmaster(cancel=False),
    "table (IAG)": server(collect=traces.table()),
    "pure, given up after 2 means": cut(2.0),
    "the same after 10, one in a hundred lost": lambda clock, n_updates: cut(10.0)(
        clocks.with_failures(clock, 0.01), n_updates
    ),
    "lead at most 4 (SSP)": server(gate=traces.lead_at_most(4), read="start"),
    "fastest half": rounds(0.5),
    "rennala 8, cancelling (k-batch-sync)": server(collect=traces.rennala(8, cancel=True)),
}
# Arrivals one by one, from a heap.
HEAPS: dict[str, Make] = {
    "pure, wait for 8": server(collect=traces.wait_for(8)),
    "random": server(dispatch=traces.uniformly()),
    "shuffled": server(dispatch=traces.shuffled()),
    "shuffled, wait for 8": server(dispatch=traces.shuffled(), collect=traces.wait_for(8)),
    "shuffled, given up after 2 means": cut(2.0, dispatch=traces.shuffled()),
    "fresher than n, cancelling": ringmaster(cancel=True),
    "pure, the server takes time": server(service=traces.Service(1e-9, 1e-9)),
}
RULES = {**STREAMS, **HEAPS}
ONE_EACH, MOST_FOR_ALL = "table (IAG)", 10**5  # an update needs everybody first: so many workers
RESTARTS, MOST_STOPPED = "rennala 8, cancelling (k-batch-sync)", 2 * 10**7  # a trace lists them all


def updates_of(rule: str, n: int, n_arrivals: int) -> int:
    """Updates that make about so many arrivals; fewer where each stops all other workers."""
    if rule == "fastest half":
        return max(1, n_arrivals // max(1, round(0.5 * n)))
    if rule == RESTARTS:
        return max(1, min(n_arrivals // 8, MOST_STOPPED // n))
    if " 8" in rule:
        return max(1, n_arrivals // 8)
    return n_arrivals


def shards(n: int) -> Any:
    """A least-squares problem whose shards are drawn when they are needed, none is stored."""

    def gradient(params: jax.Array, worker: Any, job: Any, key: jax.Array) -> Any:
        features = jax.random.normal(jax.random.fold_in(jax.random.key(7), worker), (4, 4))
        residual = features @ params - 1.0
        return 0.5 * jnp.mean(residual**2), features.T @ residual / 4

    return problems.from_gradient(jnp.zeros(4), gradient)


def work(what: str, n: int, n_arrivals: int) -> Callable[[], int]:
    """A function that does a row's work and gives its number of arrivals."""
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(n)))
    if what in RULES:
        make, n_updates = RULES[what], updates_of(what, n, n_arrivals)
        make(clock, max(1, n_updates // 20))
        return lambda: len(make(clock, n_updates).time)
    trace = RULES["pure"](clock, n_arrivals)
    if what == "summarize (with validate)":
        return lambda: len(traces.summarize(trace).arrivals_by_worker) and n_arrivals
    if what == "save and load":
        return lambda: saved_and_loaded(trace)
    if what == "plan":
        return lambda: len(simulation.plan(trace).gradients.arrival)
    problem, optimizer = shards(n), optax.sgd(0.01)

    def replayed() -> int:
        run = simulation.replay(problem, trace, optimizer, key=KEY)
        jax.block_until_ready(run.params)
        return n_arrivals

    return replayed


def saved_and_loaded(trace: traces.EventTrace) -> int:
    """Writes a trace and reads it again; its number of arrivals."""
    with tempfile.TemporaryDirectory() as folder:
        traces.save(Path(folder) / "trace.npz", trace)
        return len(traces.load(Path(folder) / "trace.npz").time)


OTHERS = ("summarize (with validate)", "save and load", "plan", "replay, with its plan")


def peak() -> float:
    """Most memory that this process has had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(what: str, n: int, n_arrivals: int) -> dict[str, float]:
    """One row, in this process."""
    traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=2)
    before, run = peak(), work(what, n, n_arrivals)
    began, spent = time.perf_counter(), time.process_time()
    count = run()
    return {
        "seconds": time.perf_counter() - began,
        "spent": time.process_time() - spent,
        "arrivals": count,
        "megabytes": peak() - before,
    }


def row(what: str, n: int, n_arrivals: int) -> dict[str, float]:
    """One row, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.many", "--row", what, str(n), str(n_arrivals)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{what} with n = {n} failed: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])


def rows(*, large: bool) -> Iterator[tuple[str, int, int]]:
    """What is measured: a row's name, workers and arrivals."""
    million = 10**6
    for what in (*RULES, *OTHERS):
        heap, few = what in HEAPS, what.startswith("replay")
        for n in (million,) if large else (10, 1000, 10**4, 10**5, million):
            n_arrivals = 10 * million if large else million // (10 if heap else 1)
            if (what == ONE_EACH and n > MOST_FOR_ALL) or (large and (heap or what == RESTARTS)):
                continue
            yield what, n, n_arrivals // 10 if few and n < 1000 else n_arrivals


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="ten million arrivals")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        what, n, n_arrivals = arguments.row
        print(json.dumps(measured(what, int(n), int(n_arrivals))))
        return
    print(f"{setting()}; exponential times of mean sqrt(i)\n")
    print("| what | workers | arrivals | seconds | us an arrival | MB | bytes an arrival |")
    print("|---|---|---|---|---|---|---|")
    for what, n, n_arrivals in rows(large=arguments.large):
        if arguments.only not in what:
            continue
        found = row(what, n, n_arrivals)
        count, size = found["arrivals"], found["megabytes"]
        cells = f"{found['seconds']:.2f} | {found['spent'] / count * 1e6:.2f} | {size:.0f}"
        each = f"{size * 2**20 / count:.0f}"
        print(f"| {what} | {n:,} | {count:,} | {cells} | {each} |", flush=True)


if __name__ == "__main__":
    main()
