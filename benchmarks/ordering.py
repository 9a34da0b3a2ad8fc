"""What balancing costs beside plain SGD: time of an epoch, for an MLP 784-h-h/4-10.

Run `python -m benchmarks.ordering`; it prints a Markdown table. All contestants make the same
updates on batches of the same epoch, each epoch one compiled call that ends with the next order;
the rival is plain SGD on the order it is given. All contestants in turn.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from types import EllipsisType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.orders.dense_signs import dense_layers, dense_signs
from asyncjax.orders.kernels import reorder
from asyncjax.orders.projected import directional_signs
from benchmarks.timing import ratio, seconds, setting

WIDTHS = {100_000: 116, 1_000_000: 988}  # h by about how many parameters
FEATURES, CLASSES, STEP = 784, 10, 1e-3
Rows = tuple[jax.Array, jax.Array]
Rule = Callable[[Any, Any, Rows], tuple[jax.Array, Any, Any]]


def network(layers: Sequence[Callable[[jax.Array], jax.Array]], values: jax.Array) -> jax.Array:
    for layer in layers[:-1]:
        values = jax.nn.relu(layer(values))
    return layers[-1](values)


def cross_entropy(scores: jax.Array, labels: jax.Array) -> jax.Array:
    one_hot = labels[:, None] == jnp.arange(CLASSES)
    return jax.nn.logsumexp(scores, -1) - jnp.sum(jnp.where(one_hot, scores, 0.0), -1)


def losses(params: Any, rows: Rows) -> jax.Array:
    return cross_entropy(network(dense_layers(params), rows[0]), rows[1])


def plain(params: Any, running_sum: Any, rows: Rows) -> tuple[jax.Array, Any, Any]:
    signs = jnp.zeros(rows[1].shape, jnp.int8)
    return signs, jax.grad(lambda p: jnp.mean(losses(p, rows)))(params), running_sum


def directional(
    params: Any, running_sum: Any, rows: Rows, *, pairs: int | EllipsisType | None
) -> tuple[jax.Array, Any, Any]:
    return directional_signs(losses, params, running_sum, examples=rows, pairs_per_block=pairs)


def dense(params: Any, running_sum: Any, rows: Rows) -> tuple[jax.Array, Any, Any]:
    loss = partial(cross_entropy, labels=rows[1])
    return dense_signs(network, params, rows[0], loss, running_sum)


def _decided(running_sum: Any, first: Any, second: Any) -> tuple[Any, jax.Array]:
    """The pair rule on two gradients."""
    z = jax.tree.map(jnp.subtract, first, second)
    inner = jax.tree.reduce(jnp.add, jax.tree.map(jnp.vdot, running_sum, z))
    sign = jnp.where(inner <= 0, 1.0, -1.0)
    return jax.tree.map(lambda leaf, other: leaf + sign * other, running_sum, z), sign


def _as_signs(signs: jax.Array) -> jax.Array:
    return jnp.stack([signs, -signs], axis=1).reshape(-1).astype(jnp.int8)


def fused(params: Any, running_sum: Any, rows: Rows) -> tuple[jax.Array, Any, Any]:
    """One pair after another: two gradients, a sign, and both are forgotten."""
    gradient = jax.grad(lambda p, x, y: losses(p, (x[None], y[None]))[0])

    def step(carry: tuple[Any, Any], pair: Rows) -> tuple[tuple[Any, Any], jax.Array]:
        running_sum, mean = carry
        first, second = (gradient(params, pair[0][k], pair[1][k]) for k in (0, 1))
        running_sum, sign = _decided(running_sum, first, second)
        mean = jax.tree.map(lambda leaf, a, b: leaf + (a + b) / len(rows[1]), mean, first, second)
        return (running_sum, mean), sign

    pairs = (rows[0].reshape(-1, 2, FEATURES), rows[1].reshape(-1, 2))
    start = (running_sum, jax.tree.map(jnp.zeros_like, params))
    (running_sum, mean), signs = jax.lax.scan(step, start, pairs)
    return _as_signs(signs), mean, running_sum


def stored(params: Any, running_sum: Any, rows: Rows) -> tuple[jax.Array, Any, Any]:
    """All gradients of the batch at once, then a scan over its pairs."""
    gradient = jax.grad(lambda p, x, y: losses(p, (x[None], y[None]))[0])
    gradients = jax.vmap(gradient, (None, 0, 0))(params, *rows)

    def step(running_sum: Any, k: jax.Array) -> tuple[Any, jax.Array]:
        first, second = (jax.tree.map(lambda g, at=at: g[2 * k + at], gradients) for at in (0, 1))
        return _decided(running_sum, first, second)

    running_sum, signs = jax.lax.scan(step, running_sum, jnp.arange(len(rows[1]) // 2))
    return _as_signs(signs), jax.tree.map(lambda g: jnp.mean(g, axis=0), gradients), running_sum


PLAIN: dict[str, Rule] = {"plain": plain}
RULES: dict[str, Rule] = {
    "plain again": plain,
    "directional, as it chooses (exact)": partial(directional, pairs=...),
    "directional, blocks of 8 pairs": partial(directional, pairs=8),
    "directional, blocks of 16 pairs": partial(directional, pairs=16),
    "directional, the batch one block": partial(directional, pairs=None),
    "dense, exact": dense,
    "fused scan of single gradients, exact": fused,
}


def initial(hidden: int) -> list[tuple[jax.Array, jax.Array]]:
    sizes = (FEATURES, hidden, hidden // 4, CLASSES)
    keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
    return [
        (jax.random.normal(key, (a, b)) * np.sqrt(2 / a), jnp.zeros(b))
        for key, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def epoch(rule: Rule, params: Any, data: Rows, batch: int, n: int) -> Callable[[], Any]:
    """Returns a function of no argument that trains for one epoch of n examples."""
    zeros = jax.tree.map(jnp.zeros_like, params)

    @jax.jit
    def train(params: Any, order: jax.Array, data: Rows) -> Any:
        def step(carry: tuple[Any, Any], places: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
            params, running_sum = carry
            rows = (data[0][places], data[1][places])
            signs, mean, running_sum = rule(params, running_sum, rows)
            params = jax.tree.map(lambda leaf, slope: leaf - STEP * slope, params, mean)
            return (params, running_sum), signs

        batches = order.reshape(-1, batch)
        (params, _), signs = jax.lax.scan(step, (params, zeros), batches)
        return params, reorder(order, signs.reshape(-1)), signs

    return lambda: train(params, jnp.arange(n, dtype=jnp.int32), data)


def table(n_params: int, batch: int, repeats: int, n_batches: int) -> list[str]:
    """Returns the rows for one model and batch."""
    params = initial(WIDTHS[n_params])
    n = batch * n_batches
    draws = np.random.default_rng(0)
    features = jnp.asarray(draws.standard_normal((n, FEATURES), dtype=np.float32))
    data = (features, jnp.asarray(draws.integers(0, CLASSES, n), jnp.int32))
    contestants = {
        name: epoch(rule, params, data, batch, n) for name, rule in (PLAIN | RULES).items()
    }
    check(contestants)
    taken = {name: times / n_batches for name, times in seconds(contestants, repeats).items()}
    if (
        n_params * batch < 64_000_000
    ):  # by itself: the memory it takes and gives back slows the next
        name = "vmap(grad) and a scan, exact"
        alone = seconds({name: epoch(stored, params, data, batch, batch)}, max(2, repeats // 4))
        taken[name] = alone[name]
    plain_times = taken.pop("plain")
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    return [
        f"| {count:,} | {batch} | {name} | "
        f"{ratio(times, against(plain_times, times))} | "
        f"{1e3 * float(np.median(times)):.2f} |"
        for name, times in taken.items()
    ]


def against(plain_times: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Returns plain SGD's times round by round, or its median if rounds do not correspond."""
    same = plain_times.shape == times.shape
    return plain_times if same else np.full(times.shape, np.median(plain_times))


def check(contestants: dict[str, Callable[[], Any]]) -> None:
    """Refuses to time contestants that do not do the same work."""
    wanted, _, _ = contestants["plain"]()
    _, _, exact = contestants["fused scan of single gradients, exact"]()
    for name, run in contestants.items():
        params, _, signs = run()
        for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
        if "exact" in name:
            same = float(jnp.mean(signs == exact))
            assert same > 0.9, f"{name} agrees in a share of {same} of the signs"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="rounds")
    parser.add_argument("--batches", type=int, default=8, help="batches an epoch")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(WIDTHS), choices=WIDTHS)
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 128])
    given = parser.parse_args()
    print(f"{setting()}; {given.repeats} rounds of an epoch of {given.batches} batches\n")
    print(
        "| parameters | batch | balancing | time over plain SGD, median (quartiles) | ms a step |"
    )
    print("|---|---|---|---|---|")
    for n_params in given.sizes:
        for batch in given.batch:
            rows = table(n_params, batch, given.repeats, given.batches)
            print("\n".join(rows), flush=True)


if __name__ == "__main__":
    main()
