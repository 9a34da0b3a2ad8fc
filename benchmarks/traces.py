"""How fast traces are made, and how that grows with the number of workers.

Run ``python -m benchmarks.traces``; it prints a Markdown table of microseconds an arrival. Absolute times belong to the
machine they were taken on; what counts is the growth along a row.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from asyncjax import clocks, traces
from benchmarks.timing import seconds, setting

WORKERS = (10, 64, 1000)
KEY = jax.random.key(0)


def server(**rules: Any) -> Callable[[clocks.Clock, int], traces.EventTrace]:
    """An asynchronous server with the given rules."""

    def make(clock: clocks.Clock, n_arrivals: int) -> traces.EventTrace:
        collect = rules.get("collect")
        per_update = collect.period if isinstance(collect, traces.Collection) else 1
        return traces.asynchronous(
            clock, n_updates=n_arrivals // (per_update or 1), key=KEY, **rules
        )

    return make


def rounds(clock: clocks.Clock, n_arrivals: int) -> traces.EventTrace:
    """Synchronous rounds that wait for all."""
    n_updates = max(1, n_arrivals // clock.n_workers)
    return traces.synchronous(clock, k=clock.n_workers, n_updates=n_updates, key=KEY)


RULES = {
    "pure": server(),
    "pure, buffered 8": server(collect=traces.buffered(8)),
    "pure, wait for 8": server(collect=traces.wait_for(8)),
    "pure, fresher than 50": server(collect=traces.fresher_than(50)),
    "random": server(dispatch=traces.uniformly()),
    "shuffled": server(dispatch=traces.shuffled()),
    "shuffled once": server(dispatch=traces.shuffled_once()),
    "synchronous": rounds,
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrivals", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    print(
        f"{setting()}; {arguments.arrivals} arrivals, exponential times, median of {arguments.repeats}\n"
    )
    print("| rule | " + " | ".join(f"n = {n}" for n in WORKERS) + " | seconds at n = 64 |")
    print("|---|" + "---|" * (len(WORKERS) + 1))
    for name, make in RULES.items():
        clocks_by_n = {n: clocks.exponential(np.sqrt(1.0 + np.arange(n))) for n in WORKERS}
        taken = seconds(
            {
                str(n): lambda clock=clock, make=make: make(clock, arguments.arrivals).time
                for n, clock in clocks_by_n.items()
            },
            arguments.repeats,
        )
        medians = {n: float(np.median(taken[str(n)])) for n in WORKERS}
        cells = [f"{medians[n] / arguments.arrivals * 1e6:.2f}" for n in WORKERS]
        print(f"| {name} | {' | '.join(cells)} | {medians[64]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
