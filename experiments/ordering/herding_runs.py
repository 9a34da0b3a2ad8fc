"""Prefix norms of orders on fixed vectors, as rows; and the names that all parts give to orders."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from asyncjax import orders
from asyncjax.orders.projections.projected import ProjectedState
from asyncjax.study import protocol
from asyncjax.study.protocol import SET_A, SET_B
from experiments.common import numbers

BASELINE, COORDINATED, ALONE = "D-RR", "CD-GraB", "independent"
PROJECTED = "CD-GraB by projections"
SETS = {"A": SET_A, "B": SET_B}
GAUSSIAN, SHIFTED, LOW_RANK = "Gaussian", "Gaussian + 3", "rank 8 + 0.3 noise"
RESHUFFLING, GREEDY, EXACT = "random reshuffling", "greedy herding", "pair balance"
ORDERS: tuple[str, ...] = (
    RESHUFFLING,
    "flip-flop",
    GREEDY,
    "GraB",
    EXACT,
    "recursive",
    "kernel halving",
    "probabilistic",
)
JUDGED = (GAUSSIAN, LOW_RANK)  # kinds of vectors on which the claim is judged
INSTANCES, ONE, SEVERAL, BLOCKS = "instances", "one worker", "several workers", "blocks"  # studies
PLAIN, FOLLOWED = "plain", "rank one"  # how a block is decided
DIGITS = 4
_HIGHEST = jax.lax.Precision.HIGHEST


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/herding")
    seed: int = 0
    full: bool = False  # four times the vectors, four times as long, ten seeds
    n: int = 1024  # vectors, of all workers together
    dim: int = 128
    seeds: int = 3
    epochs: int = 20  # reorderings
    workers: tuple[int, ...] = (1, 8, 64)
    blocks: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)  # pairs decided from one running sum
    orders: tuple[str, ...] = ORDERS  # of one worker; the others are compared with two of them
    instances: int = 10  # of each of the two sets on which the claim is judged
    claimed_epochs: int = 10  # reorderings there
    commit: bool = False  # also write the rows where committed ones are


def gaussian(key: jax.Array, n: int, dim: int) -> jax.Array:
    """Independent standard normal entries, float[n, d]."""
    return jax.random.normal(key, (n, dim))


def power(key: jax.Array, n: int, dim: int) -> jax.Array:
    """Gaussian vectors whose j-th entry has deviation j^-3/4."""
    return gaussian(key, n, dim) * jnp.arange(1.0, dim + 1) ** -0.75


def low_rank(key: jax.Array, n: int, dim: int) -> jax.Array:
    """Gaussian vectors within 8 random directions, and noise of deviation 0.3."""
    inside, directions, noise = jax.random.split(key, 3)
    spanned = jnp.matmul(gaussian(inside, n, 8), gaussian(directions, 8, dim), precision=_HIGHEST)
    return spanned + 0.3 * gaussian(noise, n, dim)


def one_direction(key: jax.Array, n: int, dim: int) -> jax.Array:
    """Gaussian vectors with 3 times a common normal number added to all entries of a vector."""
    along, rest = jax.random.split(key)
    return gaussian(rest, n, dim) + 3.0 * gaussian(along, n, 1)


SPECTRA: dict[str, Callable[[jax.Array, int, int], jax.Array]] = {
    GAUSSIAN: gaussian,
    "power j^-3/4": power,
    LOW_RANK: low_rank,
    "one dominant direction": one_direction,
}
KINDS = {**SPECTRA, SHIFTED: lambda key, n, dim: gaussian(key, n, dim) + 3.0}


def vectors_of(settings: Settings) -> tuple[jax.Array, jax.Array]:
    """All kinds of vectors and the keys of the first orders, float[K, S, n, d] and keys [K, S]."""
    keys = jax.random.split(jax.random.key(settings.seed), (settings.seeds, 2))
    made = [
        jax.vmap(lambda key, make=make: make(key, settings.n, settings.dim))(keys[:, 0])
        for make in KINDS.values()
    ]
    return jnp.stack(made), jnp.broadcast_to(keys[:, 1], (len(KINDS), settings.seeds))


def stale(n: int, dim: int, pairs: int) -> orders.Order:
    """PairBalance that decides each batch it observes as one block, from the running sum before it.

    Gradients are float[B, d + 1]: the last column is 1 where the running sum is to be followed
    along itself within a block (the rank-one correction), and 0 where not, so that both share a
    compilation.

    Returns:
        An order of one worker that observes batches of 2 `pairs` steps.
    """
    projected = orders.pair_balanced_by_projection(n, jnp.zeros(dim))

    def observe(state: ProjectedState, positions: Any, gradients: Any) -> Any:
        total, rows = projected.direction(state), gradients[:, :dim]
        inner, square = jnp.matmul(rows, total, precision=_HIGHEST), total @ total
        plain, followed = (
            orders.projected_signs(inner, square, rank_one=rank_one) for rank_one in (False, True)
        )
        signs = jnp.where(gradients[0, dim] > 0, followed, plain)
        change = jnp.matmul(signs.astype(total.dtype), rows, precision=_HIGHEST)
        return projected.observe_signs(state, positions, signs, total + change)

    return replace(projected.order, observe=observe)


def visited(
    order: orders.Order,
    vectors: jax.Array,
    keys: jax.Array,
    epochs: int,
    batch: int | None = None,
) -> jax.Array:
    """The first order and the one after each reordering.

    Args:
        order: Of n examples, or of m workers with n each.
        vectors: float[..., n, d], or float[..., m, n, d], what the order observes.
        keys: Of the first orders, [...].
        epochs: Reorderings E.
        batch: Steps that are observed together; None: the whole epoch.

    Returns:
        int32[..., E + 1, n], or int32[..., E + 1, m, n].
    """
    n = vectors.shape[-2]
    batch = n if batch is None else batch
    starts = jnp.arange(0, n, batch, dtype=jnp.int32)

    def epoch(vectors: jax.Array, state: Any, _: None) -> tuple[Any, jax.Array]:
        visits = order.permutation(state)
        rows = jnp.take_along_axis(vectors, visits[..., None], axis=-2)

        def observe(state: Any, start: jax.Array) -> tuple[Any, None]:
            seen = jax.lax.dynamic_slice_in_dim(rows, start, batch, axis=-2)
            steps = start + jnp.arange(batch, dtype=jnp.int32)
            return order.observe(state, steps, seen), None

        if order.needs_gradients or batch < n:
            state, _ = jax.lax.scan(observe, state, starts)
        return order.end_epoch(state), visits

    def lane(vectors: jax.Array, state: Any) -> jax.Array:
        return jax.lax.scan(partial(epoch, vectors), state, length=epochs + 1)[1]

    lanes = keys.shape
    flat = vectors.reshape(keys.size, *vectors.shape[keys.ndim :])
    states = jax.vmap(order.init)(keys.ravel())
    found = jax.jit(jax.vmap(lane))(flat, states)
    return found.reshape(*lanes, *found.shape[1:])


def prefixes(vectors: jax.Array, visits: jax.Array) -> np.ndarray:
    """The largest prefix norms of orders as `visited` gives them, float32[K, S, E + 1]."""
    return np.asarray(_prefixes(vectors, visits))


@jax.jit
def _prefixes(vectors: jax.Array, visits: jax.Array) -> jax.Array:
    measure = jax.vmap(orders.prefix_norms, (None, 0))
    return jax.vmap(jax.vmap(measure))(vectors, visits).l2


def single(settings: Settings, vectors: jax.Array, keys: jax.Array) -> dict[str, np.ndarray]:
    """Prefix norms of the orders of one worker, float[K, S, E + 1] by method.

    Args:
        settings: What is run.
        vectors: float[K, S, n, d].
        keys: Of the first orders, [K, S].
    """
    n, dim, epochs = settings.n, settings.dim, settings.epochs
    known = (
        orders.reshuffled(n),
        orders.flip_flop(n),
        None,
        orders.grab(n, dim),
        orders.pair_balanced(n, dim),
        orders.recursive(n, dim),
        orders.kernel_halving(n, dim, epochs),
        orders.probabilistic(n, dim),
    )
    made: dict[str, orders.Order | None] = dict(zip(ORDERS, known, strict=True))

    def herd(vectors: jax.Array, key: jax.Array) -> jax.Array:
        order = orders.herded(vectors)
        return order.permutation(order.init(key))

    found = {}
    for name in settings.orders:
        order = made[name]
        if order is None:
            fixed = jax.jit(jax.vmap(jax.vmap(herd)))(vectors, keys)
            visits = jnp.repeat(fixed[:, :, None], epochs + 1, axis=2)
        else:
            visits = visited(order, vectors, keys, epochs)
        found[name] = prefixes(vectors, visits)
    return found


def parallel(
    settings: Settings, vectors: jax.Array, keys: jax.Array, m: int
) -> dict[str, np.ndarray]:
    """Prefix norms over m workers with n / m vectors each, float[K, S, E + 1] by method."""
    n, dim = settings.n // m, settings.dim
    dealt = vectors.reshape(*keys.shape, m, n, dim)
    stale = orders.coordinated_by_projection(m, n, jnp.zeros(dim)).order
    made = {
        BASELINE: (orders.reshuffled(n, n_workers=m), None),
        ALONE: (orders.independent(m, n, dim), None),
        COORDINATED: (orders.coordinated(m, n, dim), None),
        PROJECTED: (stale, 2),
    }
    return {
        name: prefixes(dealt, visited(order, dealt, keys, settings.epochs, batch))
        for name, (order, batch) in made.items()
    }


def by_block(
    settings: Settings, vectors: jax.Array, keys: jax.Array, pairs: int
) -> dict[str, np.ndarray]:
    """Prefix norms of blocks of so many pairs, float[K, S, E + 1], by correction."""
    flags = jnp.array([0.0, 1.0])
    column = jnp.broadcast_to(flags[:, None, None, None, None], (2, *vectors.shape[:-1], 1))
    marked = jnp.concatenate([jnp.stack([vectors, vectors]), column], axis=-1)
    visits = visited(
        stale(settings.n, settings.dim, pairs),
        marked,
        jnp.stack([keys, keys]),
        settings.epochs,
        2 * pairs,
    )
    return {name: prefixes(vectors, visits[at]) for at, name in enumerate((PLAIN, FOLLOWED))}


def on_seeds(settings: Settings) -> pd.DataFrame:
    """Orders of one worker, of several and of blocks on all kinds of vectors, as rows.

    Of several workers and of blocks the last norms alone. With one worker balancing, alone or
    together or from one pair at a time, is pair balance.
    """
    vectors, keys = vectors_of(settings)
    alone = single(settings, vectors, keys)
    balanced = dict.fromkeys((ALONE, COORDINATED, PROJECTED), alone[EXACT])
    several = {
        m: parallel(settings, vectors, keys, m)
        if m > 1
        else {BASELINE: alone[RESHUFFLING], **balanced}
        for m in settings.workers
    }
    found = [rows_of(norms, KINDS, ONE, name) for name, norms in alone.items()]
    found += [
        rows_of(norms[..., -1:], KINDS, SEVERAL, name, workers=m, epoch=settings.epochs)
        for m, methods in several.items()
        for name, norms in methods.items()
    ]
    found += [
        rows_of(norms[..., -1:], KINDS, BLOCKS, name, pairs=pairs, epoch=settings.epochs)
        for pairs in settings.blocks
        for name, norms in by_block(settings, vectors, keys, pairs).items()
    ]
    return pd.concat(found)


def on_instances(settings: Settings) -> pd.DataFrame:
    """Orders of several workers on instances, which draw vectors and first orders, as rows."""
    seeds = {
        letter: protocol.seeds_of(settings.seed, role, settings.instances)
        for letter, role in SETS.items()
    }
    every = [one for own in seeds.values() for one in own]
    vectors = jnp.stack(
        [
            jnp.stack(
                [SPECTRA[kind](jax.random.key(one.data), settings.n, settings.dim) for one in every]
            )
            for kind in JUDGED
        ]
    )
    keys = jnp.stack([jnp.stack([jax.random.key(one.noise()) for one in every])] * len(JUDGED))
    own, found = replace(settings, epochs=settings.claimed_epochs), []
    for m in (m for m in settings.workers if m > 1):
        for name, norms in parallel(own, vectors, keys, m).items():
            for letter, part in zip(SETS, np.split(norms[..., -1:], 2, axis=1), strict=True):
                facts: dict[str, Any] = {"workers": m, "epoch": own.epochs, "set": letter}
                found.append(rows_of(part, JUDGED, INSTANCES, name, **facts))
    return pd.concat(found) if found else pd.DataFrame()


def rows_of(norms: np.ndarray, kinds: Any, study: str, method: str, **facts: Any) -> pd.DataFrame:
    """Norms float[kinds, instances, reorderings] as rows; facts are other columns."""
    values = [list(kinds), *map(range, norms.shape[1:])]
    index = pd.MultiIndex.from_product(values, names=["vectors", "instance", "epoch"])
    norm = numbers.rounded(norms.ravel(), DIGITS)
    rows = pd.DataFrame({"norm": norm}, index).reset_index()
    rows = rows.assign(study=study, method=method, **{"set": "A", "workers": 1, **facts})
    many = rows["workers"].astype(str) + np.where(rows["workers"] > 1, " workers", " worker")
    return rows.assign(scene=rows["vectors"] + ", " + many)
