"""What a server that treats gradients and models costs in a replay, beside one that does not.

    plain      simulation.replay: gradients are weighed and summed as they come
    arrival    each gradient that enters goes through a transformation first
    aggregate  the gradients of an update are put together in another way than by their mean
    view       workers are handed something else than the model

All replays of a row's network and rule take the same plan, problem, optimizer and gradients, so the
ratio is what the treatment costs: its own arithmetic, a row in memory for each gradient where they
are treated one by one, and whatever the compiler can no longer join. Each is one compiled call,
warmed up, timed in turn; all also judge the last model. The small network goes in waves, the other
one event at a time, as `replay` chooses by itself on a CPU. Run `python -m benchmarks.arrivals`; it
prints a Markdown table.
"""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.problems import Problem
from asyncjax.simulation import ReplayPlan
from asyncjax.traces import Collection
from benchmarks.timing import ratio, seconds, setting

WORKERS, BATCH, ROWS, FEATURES, CLASSES = 16, 32, 4096, 64, 10
OPTIMIZER = optax.chain(optax.sgd(0.05), steps.remember_update())  # what it looks ahead by
NETWORKS = (((32,), True), ((128, 128), False))  # 2410 and 26122 parameters; in waves or not
RULES = (("pure", traces.immediately()), ("buffered 8", traces.buffered(8)))
PLAIN = "plain"
TREATMENTS: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {},
    "arrival, nothing": {"gradient_transform": optax.identity()},
    "arrival, weight by its delay": {"gradient_transform": steps.scale_by_staleness("polynomial")},
    "arrival, clipped": {"gradient_transform": optax.clip_by_global_norm(1.0)},
    "arrival, a row a worker": {"gradient_transform": steps.ca2fl(WORKERS)},
    "aggregate, mean": {"aggregator": steps.mean()},
    "aggregate, median": {"aggregator": steps.median()},
    "view, the model": {"worker_params": lambda params, opt_state: params},
    "view, look-ahead": {"worker_params": steps.look_ahead(0.9)},
}


def problem_of(hidden: tuple[int, ...]) -> Problem:
    """A small network on drawn rows."""
    drawn = np.random.default_rng(0)
    features = drawn.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return problems.classification(
        problems.MLP(hidden=hidden, classes=CLASSES),
        features,
        np.argmax(features[:, :CLASSES], axis=1),
        n_workers=WORKERS,
        batch=problems.uniform(BATCH),
        key=jax.random.key(0),
    )


def plan_of(gradients: int, collect: Collection) -> ReplayPlan:
    """A trace of about so many gradients that enter, of uneven workers, planned."""
    clock, key = clocks.exponential(np.sqrt(1.0 + np.arange(WORKERS))), jax.random.key(1)
    n_updates = gradients // 8 if collect.name != traces.immediately().name else gradients
    trace = traces.asynchronous(clock, n_updates=n_updates, collect=collect, key=key)
    return simulation.plan(trace, record_every=n_updates)


def replays(problem: Problem, plan: ReplayPlan, *, waves: bool) -> dict[str, Callable[[], Any]]:
    """A replay with each treatment, by its name."""

    def run(treated: Mapping[str, Any]) -> Any:
        update = simulation.Update(OPTIMIZER, **treated)
        return simulation.replay(problem, plan, update, waves=waves).params

    return {name: partial(run, treated) for name, treated in TREATMENTS.items()}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gradients", type=int, default=800)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    print(setting())
    print(f"{WORKERS} workers, batches of {BATCH}, {given.gradients} gradients")
    print("\n| network | rule | lanes | treatment | s | us a gradient | treated / plain |")
    print("|---|---|---|---|---|---|---|")
    for hidden, waves in NETWORKS:
        problem, size = problem_of(hidden), "-".join(map(str, (FEATURES, *hidden, CLASSES)))
        for rule, collect in RULES:
            plan = plan_of(given.gradients, collect)
            took = seconds(replays(problem, plan, waves=waves), given.repeats)
            for name, times in took.items():
                median, lanes = float(np.median(times)), plan.width if waves else 1
                print(
                    f"| {size} | {rule} | {lanes} | {name} | {median:.3f}"
                    f" | {1e6 * median / len(plan.gradients.arrival):.1f}"
                    f" | {ratio(times, took[PLAIN])} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
