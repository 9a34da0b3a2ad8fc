"""How short do orders keep prefix sums? Fixed vectors, nothing trained.

    max_t | sum_{k <= t} (v_{o(k)} - mean) |    m workers: the sums over all workers at each time

Vectors stand for gradients that do not change. Every epoch the order sees them, and makes the next
one; measured is the largest Euclidean norm of a centred prefix sum. First the orders of one worker,
then those of m workers with m n fixed, then the form that decides blocks of pairs from one running
sum (it needs no gradient per example) against the size of the block. The claim, that coordinated
orders keep prefix sums short for any number of workers, is judged on instances, which draw vectors
and first orders. `herding_runs.py` has what is run.

Sources: Lu, Guo, De Sa 2022, GraB (arXiv 2205.10733); Cooper et al. 2023, CD-GraB (arXiv
2302.00845). What such vectors say of an order is how it ranks, not what training gains.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_spread
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.ordering.herding_runs import (
    ALONE,
    BASELINE,
    BLOCKS,
    COORDINATED,
    EXACT,
    FOLLOWED,
    GAUSSIAN,
    INSTANCES,
    JUDGED,
    ONE,
    ORDERS,
    PLAIN,
    RESHUFFLING,
    SEVERAL,
    SHIFTED,
    Settings,
    on_instances,
    on_seeds,
)

NAME = "herding"
TITLE = "Fixed vectors: how short do orders keep prefix sums?"
GRAB = "Lu, Guo, De Sa, 2022, GraB (arXiv 2205.10733)"
CD_GRAB = "Cooper et al., 2023, CD-GraB (arXiv 2302.00845)"
PAPERS = (GRAB, CD_GRAB)
SHORT = "coordinated orders keep prefix sums short"
SHARE = 0.6  # of random prefix sums, at most
SAME = 1.2  # with most workers over with fewest, at most
FEWEST, MOST = 8, 64
AFTER = (1, 2, 5, 10, 20)  # reorderings
SMALL = 8  # pairs of a block


def _below(than: str, ratio: float, text: str, kind: str, m: int, **beside: int) -> Any:
    where: dict[str, Any] = {"study": INSTANCES, "vectors": kind, "workers": m}
    return less(COORDINATED, than, ratio=ratio, text=text, beside=beside, **where)


def _conditions() -> Iterator[Any]:
    for kind in JUDGED:
        for m in (MOST, FEWEST):
            text = f"{kind}, {m} workers: at most {SHARE} of random"
            yield _below(BASELINE, SHARE, text, kind, m)
        text = f"{kind}: {MOST} workers as short as {FEWEST} workers"
        yield _below(COORDINATED, SAME, text, kind, MOST, workers=FEWEST)


CLAIMS = (Claim(SHORT, tuple(_conditions()), CD_GRAB, level=0.95),)


def study_of(settings: Settings) -> Result:
    """Measures everything.

    Raises:
        ValueError: A number of workers or a block does not divide n / 2, or a count is below 1.
    """
    if settings.full:
        settings = replace(settings, n=4 * settings.n, dim=4 * settings.dim, seeds=10)
    checked(settings)
    return as_result(settings, pd.concat([on_instances(settings), on_seeds(settings)]))


def checked(settings: Settings) -> None:
    """Refuses sizes that leave a worker or a block without whole pairs.

    Raises:
        ValueError: As in `study_of`.
    """
    for name in ("workers", "blocks"):
        for value in getattr(settings, name):
            if value < 1 or settings.n % (2 * value):
                raise ValueError(
                    f"{name} must be divisors of n / 2 = {settings.n / 2:g}, got {value}"
                )
    if not {RESHUFFLING, EXACT} <= set(settings.orders) <= set(ORDERS):
        raise ValueError(
            f"orders must be of {', '.join(ORDERS)}, with {RESHUFFLING} and {EXACT}, got"
            f" {', '.join(settings.orders)}"
        )
    for name in ("seeds", "epochs", "dim", "claimed_epochs"):
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(settings, name)}")


def as_result(settings: Settings, rows: Any) -> Result:
    """Rows with the sizes that they were made with; the last norms are compared."""
    names = ("n", "dim", "seeds", "epochs", "instances")
    facts = {name: getattr(settings, name) for name in names}
    return Result(rows.reset_index(drop=True), "norm", facts, settings.seed, cut=())


def ratio_text(ratio: Any) -> str:
    """A ratio and its interval.

    Args:
        ratio: With `ratio`, `low`, `high`: a row of `Result.ratio`.

    Example:
        >>> ratio_text(ratio_of(1.0, 0.9, 1.105))
        '1.00 (0.90 to 1.10)'
    """
    ends = (ratio.ratio, ratio.low, ratio.high)
    return "{} ({} to {})".format(*(f"{x:.2f}" if x >= 0.1 else f"{x:.2g}" for x in ends))


def ratio_of(*ends: float) -> Any:
    """A ratio, the lower and the upper end of its interval, as `Result.ratio` has them."""
    return SimpleNamespace(**dict(zip(("ratio", "low", "high"), ends, strict=True)))


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
    columns = (results.Column(str(name), right=at >= left) for at, name in enumerate(frame))
    cells = frame.astype(object).where(frame.notna(), None)
    return results.Table(tuple(columns), tuple(cells.itertuples(index=False, name=None)), text)


def claim_table(result: Result) -> results.Table:
    """Prefix sums over those of random orders on instances."""
    where = {"study": INSTANCES}
    rows = result.select(**where)[["scene", "vectors", "workers"]].drop_duplicates()
    for name in (ALONE, COORDINATED):
        found = result.ratio(name, BASELINE, where=where, each=True)
        found["text"] = [ratio_text(row) for row in found.itertuples()]
        by_set = found.pivot(index="scene", columns="set", values="text")
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
        f"Largest L2 prefix norm of {facts['n']} fixed Gaussian vectors of length {facts['dim']}"
        f" after so many reorderings: median (range) of {facts['seeds']} seeds. Greedy herding is"
        " told the vectors beforehand, the others are not."
    )
    return table(shown.rename_axis("order").reset_index(), text)


def parallel_table(result: Result) -> results.Table:
    """The sum over m workers."""
    rows = last(result, study=SEVERAL, vectors=JUDGED).rename(columns={"workers": "workers m"})
    by = ["vectors", "workers m"]
    shown = rows.pivot_table("norm", by, "method", aggfunc=ranges, sort=False).sort_index()
    facts = result.facts
    text = (
        f"Largest L2 prefix norm of the sum over m workers after {facts['epochs']} reorderings, m"
        f" n = {facts['n']}, median (range) of {facts['seeds']} seeds. By projections: the stale"
        " form, which decides all m pairs of two time steps from one running sum (with the"
        " rank-one correction). With one worker the last three are pair balance."
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
        " reshuffling the median of all its orders. Exact: pair balance, which a block of one pair"
        " is too (from other first orders)."
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
    found = rows.groupby(x)["norm"].agg(["median", "min", "max"]) / unit
    return results.Series(name, found.index.to_numpy(), *found.to_numpy().T)


def forest(panels: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Any:
    """A figure of ratios with their intervals, a row a name; full points set A, hollow set B.

    Args:
        panels: By label of the axis series by name, each a list a set; None where there is none.
        names: Of the rows.
    """
    with drawing():
        figure = new_figure(10.0, 1.6 + 0.95 * len(names))
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (label, series) in zip(grid, panels.items(), strict=True):
            styles = plots.assign_styles(tuple(series))
            for place, (name, by_set) in enumerate(series.items()):
                colour = styles[name].colour
                for letter, lift in (("A", 0.25), ("B", 0.65)):
                    face = colour if letter == "A" else "white"
                    style = {"color": colour, "markersize": 4, "markerfacecolor": face}
                    offset = 0.8 * ((place + lift) / len(series) - 0.5)
                    for at, one in enumerate(by_set.get(letter, ())):
                        if one is not None:
                            axes.plot([one.low, one.high], [at + offset] * 2, color=colour, lw=1.2)
                            axes.plot(one.ratio, at + offset, "o", **style)
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
    lines: Mapping[str, Any] = {
        **{name: {"vectors": GAUSSIAN, "method": name} for name in ORDERS},
        "GraB, every entry + 3": {"vectors": SHIFTED, "method": "GraB"},
    }
    chosen = {name: result.select(study=ONE, **where) for name, where in lines.items()}
    page = plots.curves(
        [_series(name, rows, "epoch") for name, rows in chosen.items() if len(rows)],
        x_label="reorderings",
        y_label="largest prefix norm",
        title=f"{result.facts['n']} fixed Gaussian vectors, one worker",
        log_y=True,
    )
    count = result.facts["epochs"]
    page.axes[0].set_xticks(np.arange(0, count + 1, max(1, count // 10)))
    return Illustration(
        page,
        "Largest prefix norm against reorderings, Gaussian vectors; bands: range over the seeds.",
    )


def blocks_figure(result: Result) -> Illustration:
    """Blocks of pairs, in units of the median of reshuffling."""
    sizes, panels = block_medians(result).columns.astype(int), []
    for kind in block_medians(result).index.unique("vectors"):
        unit, where = reshuffled(result, kind), {"vectors": kind}
        flat = {
            RESHUFFLING: result.select(study=ONE, method=RESHUFFLING, **where),
            "exact pair balance": last(result, study=ONE, method=EXACT, **where),
        }
        lines = {
            name: rows.drop(columns="pairs").merge(pd.DataFrame({"pairs": sizes}), how="cross")
            for name, rows in flat.items()
        }
        lines["stale block"] = result.select(study=BLOCKS, method=PLAIN, **where)
        lines["stale block, rank one"] = result.select(study=BLOCKS, method=FOLLOWED, **where)
        series = [_series(name, rows, "pairs", unit) for name, rows in lines.items()]
        panels.append(plots.Panel(f"pairs in a block\n{kind}", series, log_x=True))
    page = plots.panels(panels, y_label="largest prefix norm / reshuffling", log_y=True)
    for axes in page.axes:
        axes.set_xticks(sizes, [str(pairs) for pairs in sizes])
        axes.set_xticks([], minor=True)
    ticks_within(page.axes[0].yaxis, page.axes[0].get_ylim())
    return Illustration(
        page,
        "Pairs decided from one running sum, in units of the median of reshuffling; bands: range.",
    )


FIGURES = {"epochs": epochs_figure, "blocks": blocks_figure}


if __name__ == "__main__":
    part.main(NAME)
