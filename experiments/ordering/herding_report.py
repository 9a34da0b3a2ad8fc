"""Tables, figures and numbers of the prefix norms of fixed vectors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from experiments.common.parts import Part, written
from experiments.ordering import order_claims
from experiments.ordering.herding_runs import KINDS, ORDERS, Found
from experiments.ordering.order_claims import count_of, logarithm, ratio_text
from experiments.ordering.ordered_networks_runs import ALONE, BASELINE, COORDINATED, PROJECTED

RESHUFFLING, EXACT = "random reshuffling", "pair balance"
AFTER = (1, 2, 5, 10, 20)  # reorderings
PARALLEL_KINDS = ("Gaussian", "rank 8 + 0.3 noise")
CORRECTED = {False: "plain", True: "rank one"}


def part(settings: Any, found: Found, judged: order_claims.Found) -> Part:
    """Draws the figures and makes the tables.

    Args:
        settings: Of the part.
        found: All norms of the seeds.
        judged: Norms on instances, as `herding_runs.claimed` has them.
    """
    drawn = (
        (
            "epochs",
            _epochs_figure(settings, found),
            "Largest prefix norm against reorderings, Gaussian vectors; bands: range over the"
            " seeds.",
        ),
        (
            "blocks",
            _blocks_figure(settings, found),
            "Pairs decided from one running sum, in units of the median of reshuffling; bands:"
            " range.",
        ),
    )
    return written(
        settings.output,
        "herding",
        "Fixed vectors: how short do orders keep prefix sums?",
        drawn,
        (
            claim_table(judged),
            single_table(settings, found),
            kinds_table(settings, found),
            parallel_table(settings, found),
            block_table(settings, found),
        ),
        _numbers(found) | {"claimed": judged},
        answer(judged),
    )


def committed(found: Found, judged: order_claims.Found) -> dict[str, Any]:
    """What pages and the verdict are made from."""
    said = order_claims.prefix_verdicts(judged)
    return {
        "claimed": judged,
        "verdicts": said,
        "disagreements": {k: list(v) for k, v in order_claims.differing(said).items()},
        "seeds": _numbers(found),
    }


def kept(seeds: Mapping[str, Any]) -> Found:
    """What was measured on seeds, made of the committed numbers.

    Of several workers and of blocks these have the last norms alone.
    """
    kinds = tuple(kind for kind in KINDS if kind in seeds)
    groups = {name: tuple(seeds[kinds[0]][name]) for name in ("single", "parallel", "blocks")}

    def norms(group: str, name: str) -> np.ndarray:
        found = np.array([seeds[kind][group][name] for kind in kinds])
        return found if group == "single" else found[..., None]

    counts = {int(label.split(" = ")[1]) for label in groups["parallel"]}
    pairs = {int(label.split()[0]) for label in groups["blocks"]}
    return Found(
        kinds=kinds,
        single={name: norms("single", name) for name in ORDERS if name in groups["single"]},
        parallel={
            m: {
                name: norms("parallel", f"{name}, m = {m}")
                for name in (BASELINE, ALONE, COORDINATED, PROJECTED)
            }
            for m in sorted(counts)
        },
        blocks={
            size: {
                flag: norms("blocks", f"{size} pairs, {word}") for flag, word in CORRECTED.items()
            }
            for size in sorted(pairs)
        },
    )


def answer(judged: order_claims.Found) -> str:
    """The verdict of both sets."""
    said = order_claims.prefix_verdicts(judged)
    both = dict.fromkeys(said[which][order_claims.SHORT] for which in said)
    return f"That {order_claims.SHORT}: {' and '.join(both)}."


def claim_table(judged: order_claims.Found) -> results.Table:
    """Prefix sums over those of random orders on instances."""
    columns = (
        results.Column("vectors", right=False),
        results.Column("workers", right=False),
        *(
            results.Column(f"{name} / {BASELINE}, {which}", right=False)
            for name in (ALONE, COORDINATED)
            for which in order_claims.SETS
        ),
    )
    rows = [
        (
            kind,
            workers,
            *(
                ratio_text(logarithm(norms[name][which], norms[BASELINE][which]))
                for name in (ALONE, COORDINATED)
                for which in order_claims.SETS
            ),
        )
        for kind, by_workers in judged.items()
        for workers, norms in sorted(by_workers.items(), key=lambda item: count_of(item[0]))
    ]
    said = order_claims.prefix_verdicts(judged)
    words = ", ".join(f"set {which}: {own[order_claims.SHORT]}" for which, own in said.items())
    text = f"Two sets of instances, geometric means (intervals of 95 %); the claim {words}."
    return results.Table(columns, tuple(rows), text)


def worse_at(found: Found, kind: str, corrected: bool) -> list[int]:
    """The sizes of a block, in pairs, at which the median norm is above that of reshuffling."""
    limit = found.reshuffled(kind)
    return [
        pairs
        for pairs, norms in found.blocks.items()
        if np.median(found.last(kind, norms[corrected])) > limit
    ]


def range_of(values: np.ndarray) -> results.Spread:
    """Median and range of the seeds, float[S]."""
    return results.Spread(np.median(values), values.min(), values.max(), 1.0)


def single_table(settings: Any, found: Found) -> results.Table:
    """Orders of one worker on Gaussian vectors, after some numbers of reorderings."""
    after = [count for count in AFTER if count <= settings.epochs]
    columns = (
        results.Column("order", right=False),
        *(results.Column(f"after {count}") for count in after),
        results.Column("last / reshuffling"),
    )
    kind = found.kinds[0]
    rows = [
        (
            name,
            *(range_of(found.of(kind, norms)[:, count]) for count in after),
            float(np.median(found.last(kind, norms))) / found.reshuffled(kind),
        )
        for name, norms in found.single.items()
    ]
    text = (
        f"Largest L2 prefix norm of {settings.n} fixed Gaussian vectors of length {settings.dim}"
        f" after so many reorderings: median (range) of {settings.seeds} seeds. Greedy herding is"
        " told the vectors beforehand, the others are not."
    )
    return results.Table(columns, tuple(rows), text)


def kinds_table(settings: Any, found: Found) -> results.Table:
    """Orders of one worker on all kinds of vectors, after all reorderings."""
    columns = (
        results.Column("order", right=False),
        *(results.Column(kind) for kind in found.kinds),
    )
    rows = [
        (name, *(range_of(found.last(kind, norms)) for kind in found.kinds))
        for name, norms in found.single.items()
    ]
    text = f"The same after {settings.epochs} reorderings by kind of vectors."
    return results.Table(columns, tuple(rows), text)


def parallel_table(settings: Any, found: Found) -> results.Table:
    """The sum over m workers."""
    methods = tuple(next(iter(found.parallel.values())))
    columns = (
        results.Column("vectors", right=False),
        results.Column("workers m"),
        *(results.Column(name) for name in methods),
    )
    rows = [
        (kind, m, *(range_of(found.last(kind, norms[name])) for name in methods))
        for kind in PARALLEL_KINDS
        for m, norms in found.parallel.items()
    ]
    text = (
        f"Largest L2 prefix norm of the sum over m workers after {settings.epochs} reorderings, m"
        f" n = {settings.n}, median (range) of {settings.seeds} seeds. By projections: the stale"
        " form, which decides all m pairs of two time steps from one running sum (with the"
        " rank-one correction). With one worker the last three are pair balance."
    )
    return results.Table(columns, tuple(rows), text)


def block_table(settings: Any, found: Found) -> results.Table:
    """Sizes of a stale block."""
    columns = (
        results.Column("vectors", right=False),
        results.Column("correction", right=False),
        results.Column("reshuffling"),
        results.Column("exact"),
        *(results.Column(str(pairs)) for pairs in found.blocks),
        results.Column("worse than reshuffling at"),
    )
    rows, widest = [], 0.0
    for kind in _spectra(found):
        for corrected, word in CORRECTED.items():
            balanced = (found.single[EXACT], *(block[corrected] for block in found.blocks.values()))
            shown = [found.last(kind, norms) for norms in balanced]
            widest = max(widest, *((norm.max() - norm.min()) / np.median(norm) for norm in shown))
            worse = ", ".join(map(str, worse_at(found, kind, corrected))) or "none"
            medians = (float(np.median(norm)) for norm in shown)
            rows.append((kind, word, found.reshuffled(kind), *medians, worse))
    text = (
        f"Largest L2 prefix norm after {settings.epochs} reorderings by the number of pairs that"
        f" are decided from one running sum; median of {settings.seeds} seeds, whose range is at"
        f" most {widest:.0%} of it; of reshuffling the median of all its orders. Exact: pair"
        " balance, which a block of one pair is too (from other first orders)."
    )
    return results.Table(columns, tuple(rows), text)


def _spectra(found: Found) -> list[str]:
    """The kinds that blocks are compared on; a common shift changes no pair."""
    return [kind for kind in found.kinds if "+ 3" not in kind]


def _series(name: str, x: Any, values: np.ndarray) -> results.Series:
    """Median over the seeds, first axis, with their range."""
    return results.Series(
        name, x, np.median(values, axis=0), values.min(axis=0), values.max(axis=0)
    )


def _divided(line: results.Series, unit: float) -> results.Series:
    values = (np.asarray(part) / unit for part in (line.median, line.low, line.high))
    return results.Series(line.name, line.x, *values)


def _epochs_figure(settings: Any, found: Found) -> Any:
    reorderings = np.arange(settings.epochs + 1)
    series = [
        _series(name, reorderings, found.of(found.kinds[0], norms))
        for name, norms in found.single.items()
    ]
    shifted = found.kinds[-1]
    series.append(
        _series("GraB, every entry + 3", reorderings, found.of(shifted, found.single["GraB"]))
    )
    figure = plots.curves(
        series,
        x_label="reorderings",
        y_label="largest prefix norm",
        title=f"{settings.n} fixed Gaussian vectors, one worker",
        log_y=True,
    )
    figure.axes[0].set_xticks(reorderings[:: max(1, settings.epochs // 10)])
    return figure


def _blocks_figure(settings: Any, found: Found) -> Any:
    sizes, panels = tuple(found.blocks), []
    for kind in _spectra(found):
        lines = {
            "exact pair balance": [found.single[EXACT]] * len(sizes),
            "stale block": [block[False] for block in found.blocks.values()],
            "stale block, rank one": [block[True] for block in found.blocks.values()],
        }
        series = [
            _series(name, sizes, np.stack([found.last(kind, norms) for norms in values], axis=1))
            for name, values in lines.items()
        ]
        drawn = found.of(kind, found.single[RESHUFFLING]).ravel()
        series.insert(0, _series(RESHUFFLING, sizes, np.repeat(drawn[:, None], len(sizes), axis=1)))
        series = [_divided(line, found.reshuffled(kind)) for line in series]
        panels.append(plots.Panel(f"pairs in a block\n{kind}", series, log_x=True))
    figure = plots.panels(panels, y_label="largest prefix norm / reshuffling", log_y=True)
    for axes in figure.axes:
        axes.set_xticks(sizes, [str(pairs) for pairs in sizes])
        axes.set_xticks([], minor=True)
    low, high = figure.axes[0].get_ylim()
    shown = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if low < tick < high]
    figure.axes[0].set_yticks(shown, [f"{tick:g}" for tick in shown])
    return figure


def _numbers(found: Found) -> dict[str, Any]:
    """Everything measured, lists over the seeds; of one worker for all reorderings."""
    return {
        kind: {
            "single": {
                name: found.of(kind, norms).tolist() for name, norms in found.single.items()
            },
            "parallel": {
                f"{name}, m = {m}": found.last(kind, norms).tolist()
                for m, methods in found.parallel.items()
                for name, norms in methods.items()
            },
            "blocks": {
                f"{pairs} pairs, {word}": found.last(kind, block[corrected]).tolist()
                for pairs, block in found.blocks.items()
                for corrected, word in CORRECTED.items()
            },
            "worse_than_reshuffling": {
                word: worse_at(found, kind, corrected) for corrected, word in CORRECTED.items()
            },
        }
        for kind in found.kinds
    }
