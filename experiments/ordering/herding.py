"""How short do orders keep prefix sums? Fixed vectors, nothing trained.

    max_t | sum_{k <= t} (v_{o(k)} - mean) |    m workers: the sums over all workers at each time

Vectors stand for gradients that do not change. Every epoch the order sees them, and makes the next
one; measured is the largest Euclidean norm of a centred prefix sum. First the orders of one worker,
then those of m workers with m n fixed, then the form that decides blocks of pairs from one running
sum (it needs no gradient per example) against the size of the block. The claim, that coordinated
orders keep prefix sums short for any number of workers, is judged on instances, which draw vectors
and first orders. The names that all parts give to orders, and what their tables and figures share,
are here too.

Sources: Lu, Guo, De Sa 2022, GraB (arXiv 2205.10733); Cooper et al. 2023, CD-GraB (arXiv
2302.00845). What such vectors say of an order is how it ranks, not what training gains.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from asyncjax import checks, orders, results
from asyncjax.orders.projected import ProjectedState
from asyncjax.results import plots
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_spread
from asyncjax.study.protocol import SET_A, SET_B, seeds_of
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.common import numbers

NAME = "herding"
TITLE = "Fixed vectors: how short do orders keep prefix sums?"
GRAB = "Lu, Guo, De Sa, 2022, GraB (arXiv 2205.10733)"
CD_GRAB = "Cooper et al., 2023, CD-GraB (arXiv 2302.00845)"
PAPERS = (GRAB, CD_GRAB)
BASELINE, COORDINATED, ALONE = "D-RR", "CD-GraB", "independent"
PROJECTED = "CD-GraB by projections"
SETS = {"A": SET_A, "B": SET_B}
GAUSSIAN, SHIFTED, LOW_RANK = "Gaussian", "Gaussian + 3", "rank 8 + 0.3 noise"
RESHUFFLING, GREEDY, EXACT = "random reshuffling", "greedy herding", "pair balance"
INSTANCES, ONE, SEVERAL, BLOCKS = "instances", "one worker", "several workers", "blocks"  # studies
PLAIN, FOLLOWED = "plain", "rank one"  # how a block is decided
JUDGED = (GAUSSIAN, LOW_RANK)  # kinds of vectors on which the claim is judged
SHORT = "coordinated orders keep prefix sums short"
SHARE = 0.6  # of random prefix sums, at most
SAME = 1.2  # with most workers over with fewest, at most
FEWEST, MOST = 8, 64
AFTER = (1, 2, 5, 10, 20)  # reorderings
SMALL = 8  # pairs of a block
DIGITS = 4  # of numbers in rows
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
    instances: int = 10  # of each of the two sets on which the claim is judged
    claimed_epochs: int = 10  # reorderings there
    commit: bool = False  # also write the rows where committed ones are


# Vectors and orders.


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


KINDS: dict[str, Callable[[jax.Array, int, int], jax.Array]] = {
    GAUSSIAN: gaussian,
    "power j^-3/4": power,
    LOW_RANK: low_rank,
    "one dominant direction": one_direction,
    SHIFTED: lambda key, n, dim: gaussian(key, n, dim) + 3.0,
}


def vectors_of(settings: Settings) -> tuple[jax.Array, jax.Array]:
    """All kinds of vectors and the keys of the first orders, float[K, S, n, d] and keys [K, S]."""
    keys = jax.random.split(jax.random.key(settings.seed), (settings.seeds, 2))
    drawn = [
        jax.vmap(lambda key, draw=draw: draw(key, settings.n, settings.dim))(keys[:, 0])
        for draw in KINDS.values()
    ]
    return jnp.stack(drawn), jnp.broadcast_to(keys[:, 1], (len(KINDS), settings.seeds))


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


def herded(vectors: jax.Array, keys: jax.Array, epochs: int) -> jax.Array:
    """Greedy herding, which is told the vectors and stays as it is, as `visited` gives orders."""

    def herd(vectors: jax.Array, key: jax.Array) -> jax.Array:
        order = orders.herded(vectors)
        return order.permutation(order.init(key))

    fixed = jax.jit(jax.vmap(jax.vmap(herd)))(vectors, keys)
    return jnp.repeat(fixed[:, :, None], epochs + 1, axis=2)


def visited(
    order: orders.Order, vectors: jax.Array, keys: jax.Array, epochs: int, batch: int | None = None
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

    flat = vectors.reshape(keys.size, *vectors.shape[keys.ndim :])
    visits = jax.jit(jax.vmap(lane))(flat, jax.vmap(order.init)(keys.ravel()))
    return visits.reshape(*keys.shape, *visits.shape[1:])


@jax.jit
def prefixes(vectors: jax.Array, visits: jax.Array) -> jax.Array:
    """The largest prefix norms of orders as `visited` gives them, float32[K, S, E + 1]."""
    measure = jax.vmap(orders.prefix_norms, (None, 0))
    return jax.vmap(jax.vmap(measure))(vectors, visits).l2


# What is run. Norms are float[K, S, E + 1] by method: kinds of vectors, seeds, reorderings.


def single(n: int, epochs: int, vectors: jax.Array, keys: jax.Array) -> dict[str, jax.Array]:
    """Prefix norms of the orders of one worker."""
    dim = vectors.shape[-1]
    known = {
        RESHUFFLING: orders.reshuffled(n),
        "flip-flop": orders.flip_flop(n),
        GREEDY: None,
        "GraB": orders.grab(n, dim),
        EXACT: orders.pair_balanced(n, dim),
        "recursive": orders.recursive(n, dim),
        "kernel halving": orders.kernel_halving(n, dim, epochs),
        "probabilistic": orders.probabilistic(n, dim),
    }
    visits = {
        name: visited(order, vectors, keys, epochs) if order else herded(vectors, keys, epochs)
        for name, order in known.items()
    }
    return {name: prefixes(vectors, each) for name, each in visits.items()}


def parallel(epochs: int, vectors: jax.Array, keys: jax.Array, m: int) -> dict[str, jax.Array]:
    """Prefix norms over m workers, among whom the vectors are dealt."""
    n, dim = vectors.shape[-2] // m, vectors.shape[-1]
    dealt = vectors.reshape(*keys.shape, m, n, dim)
    known = {
        BASELINE: (orders.reshuffled(n, n_workers=m), None),
        ALONE: (orders.independent(m, n, dim), None),
        COORDINATED: (orders.coordinated(m, n, dim), None),
        PROJECTED: (orders.coordinated_by_projection(m, n, jnp.zeros(dim)).order, 2),
    }
    return {
        name: prefixes(dealt, visited(order, dealt, keys, epochs, batch))
        for name, (order, batch) in known.items()
    }


def by_block(epochs: int, vectors: jax.Array, keys: jax.Array, pairs: int) -> dict[str, jax.Array]:
    """Prefix norms of blocks of so many pairs, by correction."""
    flags = jnp.array([0.0, 1.0])
    column = jnp.broadcast_to(flags[:, None, None, None, None], (2, *vectors.shape[:-1], 1))
    marked = jnp.concatenate([jnp.stack([vectors, vectors]), column], axis=-1)
    n, dim = vectors.shape[-2:]
    visits = visited(stale(n, dim, pairs), marked, jnp.stack([keys, keys]), epochs, 2 * pairs)
    return {name: prefixes(vectors, visits[at]) for at, name in enumerate((PLAIN, FOLLOWED))}


def on_seeds(settings: Settings) -> list[pd.DataFrame]:
    """Orders of one worker, of several and of blocks on all kinds of vectors, as rows.

    Of several workers and of blocks the last norms alone. With one worker balancing, alone or
    together or from one pair at a time, is pair balance.
    """
    drawn, epochs = vectors_of(settings), settings.epochs
    alone = single(settings.n, epochs, *drawn)
    rows = [rows_of(norms, KINDS, ONE, name) for name, norms in alone.items()]
    balanced = dict.fromkeys((ALONE, COORDINATED, PROJECTED), alone[EXACT])
    several = {
        m: parallel(epochs, *drawn, m) if m > 1 else {BASELINE: alone[RESHUFFLING], **balanced}
        for m in settings.workers
    }
    blocks = {pairs: by_block(epochs, *drawn, pairs) for pairs in settings.blocks}
    return rows + [
        rows_of(norms[..., -1:], KINDS, study, name, epoch=epochs, **{column: number})
        for study, column, by_number in ((SEVERAL, "workers", several), (BLOCKS, "pairs", blocks))
        for number, by_name in by_number.items()
        for name, norms in by_name.items()
    ]


def on_instances(settings: Settings) -> list[pd.DataFrame]:
    """Orders of several workers on instances, which draw vectors and first orders, as rows."""
    roles = SETS.values()
    every = [x for role in roles for x in seeds_of(settings.seed, role, settings.instances)]
    data = [jax.random.key(seeds.data) for seeds in every]
    vectors = jnp.stack(
        [jnp.stack([KINDS[kind](key, settings.n, settings.dim) for key in data]) for kind in JUDGED]
    )
    keys = jnp.stack([jnp.stack([jax.random.key(x.noise()) for x in every])] * len(JUDGED))
    epochs, rows = settings.claimed_epochs, []
    for m in (m for m in settings.workers if m > 1):
        for name, norms in parallel(epochs, vectors, keys, m).items():
            for letter, half in zip(SETS, np.split(norms[..., -1:], 2, axis=1), strict=True):
                facts: dict[str, Any] = {"workers": m, "epoch": epochs, "set": letter}
                rows.append(rows_of(half, JUDGED, INSTANCES, name, **facts))
    return rows


def rows_of(norms: Any, kinds: Any, study: str, method: str, **facts: Any) -> pd.DataFrame:
    """Norms float[kinds, instances, reorderings] as rows; facts are other columns."""
    values = [list(kinds), *map(range, norms.shape[1:])]
    index = pd.MultiIndex.from_product(values, names=["vectors", "instance", "epoch"])
    norm = numbers.rounded(norms.ravel(), DIGITS)
    rows = pd.DataFrame({"norm": norm}, index).reset_index()
    rows = rows.assign(study=study, method=method, **{"set": "A", "workers": 1, **facts})
    many = rows["workers"].astype(str) + np.where(rows["workers"] > 1, " workers", " worker")
    return rows.assign(scene=rows["vectors"] + ", " + many)


def study_of(settings: Settings) -> Result:
    """Measures everything.

    Raises:
        ValueError: A number of workers or a block does not divide n / 2, or a count is below 1.
    """
    if settings.full:
        settings = replace(settings, n=4 * settings.n, dim=4 * settings.dim, seeds=10)
    for name in ("workers", "blocks"):
        for value in getattr(settings, name):
            if value < 1 or settings.n % (2 * value):
                half = settings.n / 2
                raise ValueError(f"{name} must be divisors of n / 2 = {half:g}, got {value}")
    for name in ("seeds", "epochs", "dim", "claimed_epochs"):
        checks.whole(name, getattr(settings, name))
    return as_result(settings, pd.concat([*on_instances(settings), *on_seeds(settings)]))


def as_result(settings: Settings, rows: Any) -> Result:
    """Rows with the sizes that they were made with; the last norms are compared."""
    names = ("n", "dim", "seeds", "epochs", "instances")
    facts = {name: getattr(settings, name) for name in names}
    return Result(rows.reset_index(drop=True), "norm", facts, settings.seed, cut=())


# What the rows say.


def _conditions(kind: str) -> list[Any]:
    """What is claimed of a kind of vectors: short beside random ones, with most as with fewest."""
    where: dict[str, Any] = {"study": INSTANCES, "vectors": kind}
    conditions = []
    for m in (MOST, FEWEST):
        where |= {"workers": m, "text": f"{kind}, {m} workers: at most {SHARE} of random"}
        conditions.append(less(COORDINATED, BASELINE, ratio=SHARE, **where))
    where |= {"workers": MOST, "text": f"{kind}: {MOST} workers as short as {FEWEST} workers"}
    beside = {"workers": FEWEST}
    return [*conditions, less(COORDINATED, COORDINATED, ratio=SAME, beside=beside, **where)]


CERTAIN = (
    "a theorem but for the constant: balanced prefix sums stay bounded for any number of workers,"
    " random ones grow with the root of the number of vectors"
)
CLAIMS = (Claim(SHORT, [x for kind in JUDGED for x in _conditions(kind)], CD_GRAB, CERTAIN),)


class Ratio(NamedTuple):
    """A ratio and the ends of its interval, as a row of `Result.ratio` has them."""

    ratio: float
    low: float
    high: float


def ratio_text(ratio: Any) -> str:
    """A ratio and its interval.

    Args:
        ratio: With `ratio`, `low`, `high`: a `Ratio`, or a row of `Result.ratio`.

    Example:
        >>> ratio_text(Ratio(1.0, 0.9, 1.105))
        '1.00 (0.90 to 1.10)'
    """
    ends = (ratio.ratio, ratio.low, ratio.high)
    return "{} ({} to {})".format(*(f"{x:.2f}" if x >= 0.1 else f"{x:.2g}" for x in ends))


def ranges(values: Any) -> str:
    """Median and range over seeds, as in a table."""
    return format_spread(results.Spread(values.median(), values.min(), values.max(), 1.0))


def table(frame: Any, text: str, left: int = 1) -> results.Table:
    """A table of a frame; so many columns stand left.

    Args:
        frame: Columns as they are to be called.
        text: The caption.
        left: How many.
    """
    cells = frame.astype(object).where(frame.notna(), None)
    return part.table(map(str, frame), cells.itertuples(index=False), text, left)


def aligned(heads: Sequence[str], rows: Any, text: str, right: Sequence[str] = ()) -> results.Table:
    """A table of rows; columns of these heads stand right."""
    columns = tuple(results.Column(head, right=head in right) for head in heads)
    return results.Table(columns, tuple(map(tuple, rows)), text)


def claim_table(result: Result) -> results.Table:
    """Prefix sums over those of random orders on instances."""
    where = {"study": INSTANCES}
    rows = result.select(**where)[["scene", "vectors", "workers"]].drop_duplicates()
    for name in (ALONE, COORDINATED):
        ratios = result.ratio(name, BASELINE, where=where, each=True)
        ratios["text"] = [ratio_text(row) for row in ratios.itertuples()]
        by_set = ratios.pivot(index="scene", columns="set", values="text")
        by_set.columns = [f"{name} / {BASELINE}, {letter}" for letter in by_set]
        rows = rows.join(by_set, on="scene")
    rows = rows.sort_values(["vectors", "workers"])
    rows["workers"] = rows["workers"].astype(str) + " workers"
    text = "Two sets of instances, geometric means (intervals of 95 %)."
    return table(rows.drop(columns="scene"), text, left=6)


def reshuffled(result: Result, kind: str) -> float:
    """The median norm of random reshuffling over all its orders, which are independent."""
    return float(result.select(study=ONE, method=RESHUFFLING, vectors=kind)["norm"].median())


def last(result: Result, **where: Any) -> Any:
    """The rows after all reorderings."""
    return result.select(epoch=result.facts["epochs"], **where)


def single_table(result: Result) -> results.Table:
    """Orders of one worker on Gaussian vectors, after some numbers of reorderings."""
    where: dict[str, Any] = {"study": ONE, "vectors": GAUSSIAN}
    rows = result.select(epoch=AFTER, **where)
    shown = rows.pivot_table("norm", "method", "epoch", aggfunc=ranges, sort=False)
    shown.columns = [f"after {count}" for count in shown]
    middle = last(result, **where).groupby("method")["norm"].median()
    shown["last / reshuffling"] = middle / reshuffled(result, GAUSSIAN)
    facts = result.facts
    text = (
        f"Largest L2 prefix norm of {facts['n']} fixed Gaussian vectors of length {facts['dim']},"
        f" median (range) of {facts['seeds']} seeds. Greedy herding is told the vectors beforehand."
    )
    return table(shown.rename_axis("order").reset_index(), text)


def parallel_table(result: Result) -> results.Table:
    """The sum over m workers."""
    rows = last(result, study=SEVERAL, vectors=JUDGED).rename(columns={"workers": "workers m"})
    by = ["vectors", "workers m"]
    shown = rows.pivot_table("norm", by, "method", aggfunc=ranges, sort=False).sort_index()
    facts = result.facts
    text = (
        f"Largest L2 prefix norm of the sum over m workers after {facts['epochs']} reorderings,"
        f" m n = {facts['n']}, median (range) of {facts['seeds']} seeds. By projections: all m"
        " pairs of two time steps decided from one sum. With one worker the last three are alike."
    )
    return table(shown.reset_index(), text)


def block_medians(result: Result) -> Any:
    """Median norms of blocks: rows are kinds of vectors and corrections, columns sizes."""
    rows = result.select(study=BLOCKS, vectors=lambda kinds: kinds != SHIFTED)  # changes no pair
    return rows.pivot_table("norm", ["vectors", "method"], "pairs", aggfunc="median", sort=False)


def exact(result: Result, kind: str) -> float:
    """The median of exact pair balance."""
    return float(last(result, study=ONE, method=EXACT, vectors=kind)["norm"].median())


def block_table(result: Result) -> results.Table:
    """Sizes of a stale block."""
    rows = []
    for (kind, method), norms in block_medians(result).iterrows():
        limit = reshuffled(result, kind)
        worse = ", ".join(f"{pairs:g}" for pairs in norms.index[norms > limit]) or "none"
        rows.append((kind, method, limit, exact(result, kind), *norms, worse))
    heads = ["vectors", "correction", "reshuffling", "exact"]
    heads += [f"{pairs:g}" for pairs in block_medians(result)] + ["worse than reshuffling at"]
    text = (
        f"Largest L2 prefix norm after {result.facts['epochs']} reorderings by the number of pairs"
        f" that are decided from one running sum; median of {result.facts['seeds']} seeds; of"
        " reshuffling the median of all its orders. Exact: pair balance."
    )
    return table(pd.DataFrame(rows, columns=heads), text, left=2)


TABLES = {
    "claim": claim_table,
    "one worker": single_table,
    "several workers": parallel_table,
    "blocks": block_table,
}


def small_blocks(result: Result) -> dict[str, float]:
    """Blocks of up to 8 pairs: norm over the exact one, and what the correction changes at most."""
    small = block_medians(result).loc[:, lambda frame: frame.columns <= SMALL]
    limits = np.array([exact(result, kind) for kind in small.index.get_level_values("vectors")])
    plain, followed = (small.xs(name, level="method") for name in (PLAIN, FOLLOWED))
    cost = (small.to_numpy() / limits[:, None]).max()
    return {"cost": float(cost), "correction": float(((followed / plain) - 1).abs().max().max())}


FACTS = {"small blocks": small_blocks}


def _series(name: str, rows: Any, x: str, unit: float = 1.0) -> results.Series:
    """Median and range over rows of each x."""
    ends = rows.groupby(x)["norm"].agg(["median", "min", "max"]) / unit
    return results.Series(name, ends.index.to_numpy(), *ends.to_numpy().T)


def forest(panels: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Any:
    """A figure of ratios with their intervals, one row per name; full points set A, hollow set B.

    Args:
        panels: By label of the axis series by name, each a list a set; None where there is none.
        names: Of the rows.
    """
    with drawing():
        figure = new_figure(10.0, 1.6 + 0.95 * len(names))
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (label, series) in zip(grid, panels.items(), strict=True):
            styles = plots.assign_styles(tuple(series))
            for at, (name, by_set) in enumerate(series.items()):
                colour = styles[name].colour
                for letter, lift, face in (("A", 0.25, colour), ("B", 0.65, "white")):
                    offset = 0.8 * ((at + lift) / len(series) - 0.5)
                    for row, ratio in enumerate(by_set.get(letter, ())):
                        if ratio is not None:
                            line = [row + offset] * 2
                            axes.plot([ratio.low, ratio.high], line, color=colour, lw=1.2)
                            axes.plot(ratio.ratio, line[0], "o", color=colour, ms=4, mfc=face)
                axes.plot([], [], "o", color=colour, label=name)
            axes.axvline(1.0, color="grey", linewidth=0.8, zorder=0)
            axes.set_xscale("log")
            ticks_within(axes.xaxis, axes.get_xlim())
            axes.set_xlabel(label)
            axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, columnspacing=1.0)
        grid[0].set_yticks(range(len(names)), names)
        grid[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def ticks_within(axis: Any, limits: tuple[float, float]) -> None:
    """Few ticks of a logarithmic axis, the finer the narrower it is."""
    low, high = limits
    near = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 2, 2.5)
    far = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 100, 300)
    shown = [tick for tick in (near if high < 5 * low else far) if low < tick < high]
    axis.set_ticks(shown, [f"{tick:g}" for tick in shown])
    axis.set_ticks([], minor=True)


def epochs_figure(result: Result) -> Illustration:
    """Largest prefix norms against reorderings."""
    rows = result.select(study=ONE)
    lines = dict([*rows[rows["vectors"] == GAUSSIAN].groupby("method", sort=False)])
    lines["GraB, every entry + 3"] = rows[(rows["vectors"] == SHIFTED) & (rows["method"] == "GraB")]
    page = plots.curves(
        [_series(str(name), line, "epoch") for name, line in lines.items()],
        x_label="reorderings",
        y_label="largest prefix norm",
        title=f"{result.facts['n']} fixed Gaussian vectors, one worker",
        log_y=True,
    )
    count = result.facts["epochs"]
    page.axes[0].set_xticks(np.arange(0, count + 1, max(1, count // 10)))
    text = "Largest prefix norm against reorderings, Gaussian vectors; bands: range over the seeds."
    return Illustration(page, text)


def blocks_figure(result: Result) -> Illustration:
    """Blocks of pairs, in units of the median of reshuffling."""
    sizes, panels = block_medians(result).columns.astype(int), []
    for kind in block_medians(result).index.unique("vectors"):
        unit, where = reshuffled(result, kind), {"vectors": kind}
        lines = {
            RESHUFFLING: result.select(study=ONE, method=RESHUFFLING, **where),
            "exact pair balance": last(result, study=ONE, method=EXACT, **where),
        }
        for name, rows in lines.items():  # level
            lines[name] = pd.concat([rows.assign(pairs=pairs) for pairs in sizes])
        lines["stale block"] = result.select(study=BLOCKS, method=PLAIN, **where)
        lines["stale block, rank one"] = result.select(study=BLOCKS, method=FOLLOWED, **where)
        series = [_series(name, rows, "pairs", unit) for name, rows in lines.items()]
        panels.append(plots.Panel(f"pairs in a block\n{kind}", series, log_x=True))
    page = plots.panels(panels, y_label="largest prefix norm / reshuffling", log_y=True)
    for axes in page.axes:
        axes.set_xticks(sizes, [str(pairs) for pairs in sizes])
        axes.set_xticks([], minor=True)
    ticks_within(page.axes[0].yaxis, page.axes[0].get_ylim())
    text = (
        "Pairs decided from one running sum, in units of the median of reshuffling; bands: range."
    )
    return Illustration(page, text)


FIGURES = {"epochs": epochs_figure, "blocks": blocks_figure}


if __name__ == "__main__":
    part.main(NAME)
