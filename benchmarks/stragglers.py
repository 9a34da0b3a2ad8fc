"""Completion tables and runs of policies beside other ways of getting the same numbers.

Run `python -m benchmarks.stragglers`; it prints two Markdown tables.

1. A table of E T_(k) for 50 values of k and 15 loads: ours in double precision on the host
   (`completion_table`) and in single precision under jit, beside one SciPy quadrature an entry of
   the incomplete beta function (double precision).
2. Fastest-k SGD on least squares, 50 workers with 40 rows: one compiled scan of two stages, beside
   a NumPy loop that is handed the drawn times and permutations, and a Python loop around one
   jitted update; and 100 seeds by vmap beside the same seeds one by one.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import integrate, special

from asyncjax import clocks, problems, simulation, stragglers
from benchmarks.timing import ratio, seconds, setting

N, SHARD, DIM, STEP = 50, 40, 20, 0.02
LOADS = np.array([1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40], float)


def laws(scaling: str) -> stragglers.Response:
    """Communication of mean 1, samples of mean 1/40."""
    return stragglers.response(
        compute=clocks.exponential(1 / SHARD),
        communicate=clocks.exponential(1.0),
        scaling=scaling,
        n_workers=N,
    )


def by_scipy(scaling: str, k: int, load: float) -> float:
    """E T_(k) by one adaptive quadrature."""
    mean = load / SHARD

    def survival(t: float) -> float:
        if scaling == "scale":
            if abs(mean - 1) < 1e-9:
                return np.exp(-t) * (1 + t)
            return (np.exp(-t) - mean * np.exp(-t / mean)) / (1 - mean)
        lost = SHARD * t
        near = (SHARD / (SHARD - 1)) ** load * special.gammainc(load, (SHARD - 1) * t)
        return special.gammaincc(load, lost) + np.exp(-t) * near

    def late(t: float) -> float:
        return float(special.betainc(N - k + 1, k, min(1.0, survival(t))))

    return integrate.quad(late, 0, np.inf, epsrel=1e-9, limit=200)[0]


def table_rows(repeats: int) -> None:
    """Prints the first table."""
    print(
        "| scaling | SciPy / ours, double | SciPy / ours, single | ms, double | ms, single |"
        " worst difference |"
    )
    print("|---|---|---|---|---|---|")
    single = jax.jit(stragglers.expected_completion)
    k, loads = jnp.arange(1, N + 1)[:, None], jnp.asarray(LOADS, jnp.float32)
    for scaling in ("scale", "additive"):
        times = laws(scaling)
        rival = np.array([[by_scipy(scaling, j, b) for j in range(1, N + 1)] for b in LOADS])
        taken = seconds(
            {
                "double": lambda times=times: stragglers.completion_table(times, LOADS),
                "single": lambda times=times: single(times, k, loads),
                "SciPy": lambda scaling=scaling: [
                    by_scipy(scaling, j, b) for b in LOADS for j in range(1, N + 1)
                ],
            },
            repeats,
        )
        ours = stragglers.completion_table(times, LOADS)
        cells = [ratio(taken["SciPy"], taken[name]) for name in ("double", "single")]
        cells += [f"{1e3 * np.median(taken[name]):.1f}" for name in ("double", "single")]
        print(
            f"| {scaling} | {' | '.join(cells)} | {np.abs(ours / rival - 1).max():.1g} |",
            flush=True,
        )


def plain_loop(
    features: np.ndarray,
    targets: np.ndarray,
    drawn: tuple[np.ndarray, np.ndarray],
    rows: np.ndarray,
    stages: np.ndarray,
) -> np.ndarray:
    """Fastest-k SGD in NumPy on drawn times [n, T] and permutations [T, n, shard].

    Used workers only.
    """
    x, apart, one = np.zeros(DIM, np.float32), *drawn
    for j, (k, load) in enumerate(stages):
        used = np.argsort(apart[:, j] + load * one[:, j], kind="stable")[:k]
        picked = rows[j, used, :load] + used[:, None] * SHARD
        inputs = features[picked.ravel()]
        x = x - STEP * ((inputs @ x - targets[picked.ravel()]) @ inputs) / (k * load)
    return x


def print_ratios(taken: Any, n_updates: int) -> None:
    """Prints a row a rival."""
    print("| rival | rival / ours | us an update, ours |")
    print("|---|---|---|")
    for name, ours, per in (
        ("NumPy loop, times and rows given, used workers only", "scan", n_updates),
        ("Python loop around one compiled update", "scan", n_updates),
        ("100 seeds one by one, beside vmap", "vmap", 100 * n_updates),
    ):
        rival = {"Num": "NumPy", "Pyt": "loop", "100": "seeds"}[name[:3]]
        each = 1e6 * np.median(taken[ours]) / per
        print(f"| {name} | {ratio(taken[rival], taken[ours])} | {each:.1f} |")


def run_rows(n_updates: int, repeats: int) -> None:
    """Prints the second table."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((N * SHARD, DIM)).astype(np.float32)
    targets = (features @ rng.standard_normal(DIM)).astype(np.float32)
    problem = problems.least_squares(features, targets, n_workers=N)
    times, key, optimizer = laws("scale"), jax.random.key(0), optax.sgd(STEP)
    half = n_updates // 2
    policy = stragglers.staged([10, 30], [20, 30], [half, half])
    run = partial(
        simulation.run_policy,
        problem,
        times,
        policy,
        optimizer,
        n_updates=n_updates,
        record_every=n_updates,
    )
    one = jax.jit(lambda key: run(key=key).params)
    many = jax.jit(lambda keys: jax.vmap(lambda key: run(key=key).params)(keys))
    single = jax.jit(partial(simulation.run_policy, n_updates=1), static_argnums=3)
    keys = jax.random.split(key, 100)

    drawn = times.times(jax.random.split(key)[0], n_updates)
    rule = problems.without_replacement(SHARD)

    def permutation(update: Any, worker: Any) -> Any:
        draw_key = jax.random.fold_in(jax.random.fold_in(key, worker), update)
        return rule(jnp.int32(SHARD), SHARD, 0, draw_key)[0]

    over_workers = jax.vmap(permutation, in_axes=(None, 0))
    orders = jax.vmap(over_workers, in_axes=(0, None))(jnp.arange(n_updates), jnp.arange(N))
    rows = np.asarray(orders)
    stages = np.repeat([[10, 20], [30, 30]], half, axis=0)
    handed = (np.asarray(drawn.download), np.asarray(drawn.compute))

    def one_by_one() -> Any:
        latest, fixed = problem, stragglers.fixed(10, 30)
        for j in range(n_updates):
            moved = single(latest, times, fixed, optimizer, key=jax.random.fold_in(key, j)).params
            latest = problems.Problem(moved, latest.data, latest.gradient_of, latest.objective_of)
        return latest.params

    contestants: dict[str, Callable[[], Any]] = {
        "scan": lambda: one(key),
        "NumPy": lambda: plain_loop(features, targets, handed, rows, stages),
        "loop": one_by_one,
        "vmap": lambda: many(keys),
        "seeds": lambda: [one(seed) for seed in keys],
    }
    difference = np.abs(contestants["scan"]() - contestants["NumPy"]()).max()
    print_ratios(seconds(contestants, repeats), n_updates)
    print(f"\nFinal models of scan and NumPy loop differ by {difference:.1g}.")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{setting()}; {arguments.repeats} rounds, median (quartiles) of ratios of time\n")
    table_rows(arguments.repeats)
    print()
    run_rows(arguments.updates, arguments.repeats)


if __name__ == "__main__":
    main()
