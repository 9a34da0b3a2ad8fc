"""How time and memory grow with the number of workers, from ten to a million.

Run `python -m benchmarks.many`, or with `--large` up to a million workers and ten million arrivals;
it prints a Markdown table. Every row runs in a process of its own, so that its peak of memory is
its own, and is warmed up with one update on as many workers. Microseconds are of processor time, a
thread's waiting not counted; memory is what a row needs above a process that has imported all.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, simulation, traces
from benchmarks.timing import setting
from benchmarks.traces import KEY, Make, rounds, server

RULES: dict[str, Make] = {
    "trace, pure": server(),
    "trace, buffered 8 (FedBuff)": server(collect=traces.buffered(8)),
    "trace, random": server(dispatch=traces.uniformly()),
    "trace, shuffled": server(dispatch=traces.shuffled()),
    "trace, shuffled, wait for 8": server(dispatch=traces.shuffled(), collect=traces.wait_for(8)),
    "trace, fresher than n (Ringmaster)": lambda clock, n_updates: server(
        collect=traces.fresher_than(clock.n_workers)
    )(clock, n_updates),
    "trace, table (IAG)": server(collect=traces.table()),
    "trace, lead at most 4 (a heap)": server(gate=traces.lead_at_most(4), read="start"),
    "trace, fastest half": rounds(0.5),
    "trace, fresh 8, cancelling (k-batch-sync)": server(collect=traces.fresh(8, cancel=True)),
}
ONE_EACH = ("trace, table (IAG)",)  # an update needs everybody first


def updates_of(rule: str, n: int, n_arrivals: int) -> int:
    """Updates that make about so many arrivals."""
    if rule == "trace, fastest half":
        return max(1, n_arrivals // max(1, round(0.5 * n)))
    if "8" in rule:
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
        make(clock, 1)
        return lambda: len(make(clock, n_updates).time)
    trace = RULES["trace, pure"](clock, n_arrivals)
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


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="up to a million workers")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        what, n, n_arrivals = arguments.row
        print(json.dumps(measured(what, int(n), int(n_arrivals))))
        return
    sizes = [(10, 10**5), (1000, 10**5), (10**4, 10**5)]
    if arguments.large:
        sizes = [(10, 10**6), (1000, 10**6), (10**5, 10**6), (10**6, 10**6), (10**6, 10**7)]
    print(f"{setting()}; exponential times of mean sqrt(i)\n")
    print("| what | workers | arrivals | seconds | us an arrival | MB | bytes an arrival |")
    print("|---|---|---|---|---|---|---|")
    for what in (*RULES, *OTHERS):
        for n, n_arrivals in sizes:
            slow = what in ONE_EACH or "heap" in what or what.startswith("replay")
            if arguments.only not in what or (slow and n_arrivals > 10**6):
                continue
            found = row(what, n, n_arrivals)
            count, size = found["arrivals"], found["megabytes"]
            cells = f"{found['seconds']:.2f} | {found['spent'] / count * 1e6:.2f} | {size:.0f}"
            each = f"{size * 2**20 / count:.0f}"
            print(f"| {what} | {n:,} | {count:,} | {cells} | {each} |", flush=True)


if __name__ == "__main__":
    main()
