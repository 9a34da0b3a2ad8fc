"""Scheduling beside a solver of linear programs, and many episodes beside one.

Run `python -m benchmarks.cluster`; it prints two Markdown tables.

1. What every amount of one arrival costs in every slot, 100 machines, 20 slots, 20 amounts, 4
   resources: ours compiled once for all jobs, without and with the hulls of whole units, beside
   HiGHS through SciPy on the same 400 linear programs with costs divided by their own scale, at a
   light and a heavy load.
2. An episode of 50 jobs; and 64 episodes by `vmap` beside the same episodes one by one.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from asyncjax import cluster
from asyncjax.cluster import schedulers
from asyncjax.cluster.slot_tables import slot_table
from benchmarks.timing import ratio, seconds, setting

MACHINES, SLOTS, PARTS, EPISODES = 100, 20, 20, 64


def instance(seed: int, share: float) -> tuple[np.ndarray, np.ndarray, schedulers.JobRow]:
    """Prices and room [T, H, R] at a random load, and a job that may train any amount anywhen."""
    jobs, machines = cluster.workloads.balanced(seed, n_slots=SLOTS, n_machines=MACHINES)
    rng = np.random.default_rng(seed)
    used = rng.uniform(max(0.0, 2 * share - 1), min(1.0, 2 * share), (SLOTS, MACHINES, 1))
    load = np.floor(used * machines.capacity)
    bounds = cluster.price_bounds(jobs, machines, n_slots=SLOTS)
    prices = cluster.price(load, machines.capacity, 1e-6, bounds.high)
    rows = schedulers.prepare(jobs, machines, n_slots=SLOTS, parts=PARTS).jobs
    first = jax.tree.map(lambda leaf: leaf[0], rows)
    return np.asarray(prices), machines.capacity - load, first._replace(batch=np.int32(10**9))


def by_highs(
    prices: np.ndarray, room: np.ndarray, worker: np.ndarray, server: np.ndarray, crews: np.ndarray
) -> np.ndarray:
    """Costs [T, Q] by one linear program a slot and amount; inf where there is no solution."""
    n_machines, n_resources = room.shape[1:]
    machine, resource = (x.ravel() for x in np.indices((n_machines, n_resources)))
    rows = machine * n_resources + resource
    packing = coo_matrix(
        (
            np.concatenate([worker[resource], server[resource]]),
            (np.tile(rows, 2), np.concatenate([machine, n_machines + machine])),
        ),
        shape=(rows.size, 2 * n_machines),
    )
    cover = np.repeat([[-1.0, 0.0], [0.0, -1.0]], n_machines, axis=1)
    matrix = coo_matrix(np.vstack([packing.toarray(), cover])).tocsr()
    costs = np.full((len(prices), crews.shape[1]), np.inf)
    for slot, (price, left) in enumerate(zip(prices, room, strict=True)):
        cost = np.concatenate([price @ worker, price @ server])
        scale = np.median(cost)
        for amount, (workers, servers) in enumerate(crews.T):
            limits = np.concatenate([left.ravel(), [-workers, -servers]])
            found = linprog(cost / scale, A_ub=matrix, b_ub=limits, method="highs")
            if found.status == 0:
                costs[slot, amount] = found.fun * scale
    return costs


def table_rows(repeats: int) -> None:
    """Prints the first table."""

    @partial(jax.jit, static_argnames=("hull_points",))
    def ours(prices: Any, room: Any, job: schedulers.JobRow, hull_points: int = 0) -> jax.Array:
        return slot_table(prices, room, job, hull_points=hull_points, inside=False).cost

    print(
        "| load | problems | feasible | ms, plain | ms, hull | HiGHS / plain | HiGHS / hull |"
        " worst |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for share in (0.3, 0.7):
        prices, room, job = instance(0, share)
        units = np.stack(job.crew[:2])
        given = prices, room, job.worker.astype(float), job.server.astype(float), units
        device = jax.device_put((prices.astype(np.float32), room.astype(np.float32), job))
        rival = by_highs(*given)
        taken = seconds(
            {
                "plain": lambda device=device: ours(*device),
                "hull": lambda device=device: ours(*device, hull_points=32),
                "HiGHS": lambda given=given: by_highs(*given),
            },
            repeats,
        )
        found = np.asarray(ours(*device), np.float64)
        both = np.isfinite(found) & np.isfinite(rival)
        worst = np.abs(found[both] / rival[both] - 1).max()
        cells = [f"{1e3 * np.median(taken[name]):.0f}" for name in ("plain", "hull")]
        cells += [ratio(taken["HiGHS"], taken[name]) for name in ("plain", "hull")]
        print(
            f"| {share:g} | {found.size} | {int(np.isfinite(rival).sum())} | {' | '.join(cells)} |"
            f" {worst:.0e} |",
            flush=True,
        )


def arrival_rows(repeats: int) -> None:
    """Prints the time of one whole arrival.

    Table, search, rounding, with live slots and amounts only.
    """
    jobs, machines = cluster.workloads.balanced(0, n_slots=SLOTS, n_machines=MACHINES)
    settings = schedulers.pd_ors_settings(jobs, machines, n_slots=SLOTS)
    whole = schedulers.prepare(jobs, machines, n_slots=SLOTS, parts=PARTS)
    first = whole._replace(jobs=jax.tree.map(lambda leaf: leaf[:1], whole.jobs))
    play = jax.jit(schedulers.pd_ors_episode, static_argnames="settings")
    contestants: dict[str, Callable[[], Any]] = {
        "one arrival": lambda: play(first, settings),
        "episode": lambda: play(whole, settings),
        "OASiS": lambda: cluster.oasis(jobs, machines, n_slots=SLOTS).workers,
        "DRF": lambda: cluster.drf(jobs, machines, n_slots=SLOTS).workers,
    }
    taken = seconds(contestants, repeats)
    print("| what, 100 machines, 20 slots | ms |")
    print("|---|---|")
    for name, label in (
        ("one arrival", "PD-ORS, one arrival at empty machines: table, search, rounding"),
        ("episode", "PD-ORS, 50 jobs"),
        ("OASiS", "OASiS, 50 jobs, with checks"),
        ("DRF", "DRF, 50 jobs, NumPy"),
    ):
        print(f"| {label} | {1e3 * np.median(taken[name]):.0f} |", flush=True)


def study_rows(repeats: int) -> None:
    """Prints 64 episodes by vmap beside one by one, for a small and a large cluster."""
    print(
        "| 64 episodes (8 seeds, 8 floors) | one by one / vmap | ms an episode, vmap | ms, one by"
        " one |"
    )
    print("|---|---|---|---|")
    for n_jobs, n_slots, n_machines in ((4, 4, 2), (20, 10, 10)):
        episodes, settings = _episodes(n_jobs, n_slots, n_machines)
        for rule, play in (
            ("PD-ORS", partial(schedulers.pd_ors_episode, settings=settings)),
            ("OASiS", partial(schedulers.oasis_episode, n_slots=n_slots)),
        ):
            one = jax.jit(play)
            many = jax.jit(jax.vmap(play))
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *episodes)
            taken = seconds(
                {
                    "vmap": lambda many=many, stacked=stacked: many(stacked),
                    "one by one": lambda one=one, inputs=episodes: [one(each) for each in inputs],
                },
                repeats,
            )
            each = [1e3 * np.median(taken[name]) / EPISODES for name in ("vmap", "one by one")]
            print(
                f"| {rule}, {n_jobs} jobs, {n_slots} slots, {n_machines} machines"
                f" | {ratio(taken['one by one'], taken['vmap'])} | {each[0]:.1f} | {each[1]:.1f} |",
                flush=True,
            )


def _episodes(
    n_jobs: int, n_slots: int, n_machines: int
) -> tuple[list[schedulers.Episode], schedulers.PdOrsSettings]:
    """Eight seeds under eight floors, and settings that serve all."""
    episodes, settings = [], []
    for seed in range(8):
        if n_jobs == 4:
            workload = cluster.workloads.tiny(seed)
        else:
            workload = cluster.workloads.balanced(
                seed, n_jobs=n_jobs, n_slots=n_slots, n_machines=n_machines
            )
        settings.append(schedulers.pd_ors_settings(*workload, n_slots=n_slots))
        parts = 8 if n_jobs == 4 else PARTS
        episodes += [
            schedulers.prepare(*workload, n_slots=n_slots, parts=parts, low=low)
            for low in np.logspace(-6, -1, EPISODES // 8)
        ]
    return episodes, max(settings, key=lambda one: one.hull_points)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{setting()}; {arguments.repeats} rounds, median (quartiles) of ratios of time\n")
    for rows in (table_rows, arrival_rows, study_rows):
        rows(arguments.repeats)
        print(flush=True)


if __name__ == "__main__":
    main()
