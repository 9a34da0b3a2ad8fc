"""How long until the gradient is small, when all workers hold the same data?

All n workers hold f(x) = x^T A x / 2 - b^T x with A = tridiag(-1, 2, -1) / 4, the badly conditioned
quadratic of this literature, and return its gradient plus Gaussian noise. A run ends when the exact
gradient norm first reaches the target; its score is the simulated time. Pure asynchronous, Rennala,
Ringmaster, synchronous and fastest-m servers get the same grid of step sizes and the same grid for
their own parameter (b, R, m). Those without a parameter, or with fewer values of it, try as many
settings: further step sizes around their best one. The best is chosen on some instances, and two
disjoint sets of others are reported.

The optimal times that are drawn beside the measured ones are recalled from the literature (Tyurin,
Richtárik 2023), with constants dropped: only their shape over n, noise and speeds is meant.

A run that has not reached the target is prolonged threefold until it ends after the best time of
its method, or the horizon; this and the methods are in `time_complexity_runs`. A run that was
stopped goes on where it was: every cell is kept in the output folder.
"""

from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_number
from asyncjax.study import protocol
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.asynchronous.time_complexity_runs import CANDIDATES, Settings, study_of, workers

__all__ = ["Settings", "study_of"]
NAME = "time_complexity"
TITLE = "How long until the gradient is small, when all workers hold the same data?"
PAPERS = (
    "Tyurin, Richtárik, 2023, Rennala and Malenia (arXiv 2305.12387)",
    "Maranjyan, Tyurin, Richtárik, 2025, Ringmaster (arXiv 2501.16168)",
)
NOTE = protocol.FIRST_CROSSING
LETTERS = {"Rennala": "b", "Ringmaster": "R", "fastest m": "m"}
OPTIMA = ("optimal, recalled", "optimal for any data, recalled")
ROOT, STRAGGLER = "sqrt(i)", "one straggler"


def claims(result: Result) -> list[Claim]:
    """The claims, about the fewest and the most workers that were run."""
    few, many = result.rows["n"].min(), result.rows["n"].max()
    levels = sorted(result.rows["noise"].unique())

    def scene(noise: float, n: int) -> str:
        return f"{ROOT}, noise {noise:g}, n {n}"

    def from_to(rule: str, noise: float, ns: tuple[int, int], ratio: float) -> Any:
        one, other = (scene(noise, n) for n in ns)
        text = f"{rule}, {one} below {other}"
        return less(rule, than=rule, ratio=ratio, text=text, scene=one, beside={"scene": other})

    def beside_straggler(rule: str, ratio: float) -> Any:
        return less("pure", than=rule, ratio=ratio, each=True, speeds=STRAGGLER)

    return [
        Claim(
            "Ringmaster takes at most 1.25 times as long as the best rule, in every cell",
            [less("Ringmaster", ratio=1.25, each=True)],
            PAPERS[1],
        ),
        Claim(
            "more and slower workers make pure twice as slow, little noise",
            [from_to("pure", levels[0], (few, many), 0.5)],
        ),
        Claim(
            "more and slower workers do not make Ringmaster slower",
            [from_to("Ringmaster", noise, (many, few), 1.1) for noise in levels],
            PAPERS[1],
        ),
        Claim(
            "one straggler makes synchronous rounds 10 times as slow as pure",
            [beside_straggler("synchronous", 0.1)],
        ),
        Claim(
            "with one straggler pure takes at most 1.25 times as long as Ringmaster",
            [beside_straggler("Ringmaster", 1.25)],
        ),
    ]


def spread(result: Result, letter: str, **where: Any) -> results.Spread:
    """Quartiles of times, none of them made of a time that never came."""
    rows = result.select(set=letter, **where)
    known = protocol.reached(rows["time"], rows["horizon"].iloc[0])
    low, middle, high = (np.inf if value is None else value for value in known.quartiles)
    return results.Spread(middle, low, high, known.share)


def recalled_optimum(mean_times: np.ndarray, noise: float, *, skewed: bool = False) -> float:
    """Shape of the optimal time to a small gradient, constants dropped.

    `min_m (mean_{i<=m} 1/tau_i)^-1 (1 + noise / m)` over the m fastest workers; for heterogeneous
    data (Malenia) `tau_n + mean(tau) noise / n`.

    Args:
        mean_times: float[n], mean time tau_i of a job.
        noise: Variance of a gradient over the target squared.
        skewed: The formula for heterogeneous data.

    Returns:
        The time in units of a constant that does not depend on workers or noise.

    Example:
        >>> recalled_optimum(np.array([1.0, 1.0, 1.0, 1.0]), 8.0)
        3.0

    Reference:
        Tyurin, Richtárik, 2023 (arXiv 2305.12387); recalled.
    """
    tau = np.sort(np.asarray(mean_times, np.float64))
    if skewed:
        return float(tau[-1] + tau.mean() * noise / len(tau))
    count = np.arange(1, len(tau) + 1)
    return float(np.min(count / np.cumsum(1 / tau) * (1 + noise / count)))


def cells(result: Result) -> list[tuple[str, float, int]]:
    """Speeds, noise and number of workers of every scene, in this order."""
    rows = result.rows[["speeds", "noise", "n"]].drop_duplicates()
    return [
        (str(speeds), float(noise), int(n))
        for speeds, own in rows.groupby("speeds", sort=False)
        for noise, n in sorted(zip(own["noise"], own["n"], strict=True))
    ]


def optima(result: Result) -> dict[tuple[str, float, int], tuple[float, float]]:
    """Recalled optimal times, for equal data and for any data, times one constant for all.

    The constant is the median over all cells of Rennala's measured time over the recalled one; NaN
    where Rennala never reached the target.
    """
    shapes, ratios = {}, []
    for speeds, noise, n in cells(result):
        mean = np.asarray(workers(speeds, n).mean)
        shape = recalled_optimum(mean, noise), recalled_optimum(mean, noise, skewed=True)
        measured = spread(result, "A", method="Rennala", speeds=speeds, noise=noise, n=n).median
        shapes[speeds, noise, n] = shape
        ratios.append(float(measured) / shape[0])
    finite = [ratio for ratio in ratios if np.isfinite(ratio)]
    constant = float(np.median(finite)) if finite else np.nan
    return {cell: (constant * one, constant * two) for cell, (one, two) in shapes.items()}


def _table(result: Result, heads: Any, cell: Any, last: Any, text: str) -> results.Table:
    """A row a scene: what `cell` says of each method, and the last columns."""
    names = ("speeds", "noise", "n", *heads)
    rows = []
    for speeds, noise, n in cells(result):
        own = (cell(rule, {"speeds": speeds, "noise": noise, "n": n}) for rule in CANDIDATES)
        rows.append((speeds, f"{noise:g}", n, *own, *last(speeds, noise, n)))
    return part.table(names, rows, text)


def time_table(result: Result) -> results.Table:
    """Medians of both sets."""
    recalled = optima(result)

    def both(rule: str, where: dict[str, Any]) -> str:
        medians = [spread(result, s, method=rule, **where).median for s in result.sets]
        told = [format_number(float(one)) if np.isfinite(one) else "never" for one in medians]
        return told[0] if told[0] == told[1] else " / ".join(told)

    return _table(
        result,
        (*CANDIDATES, OPTIMA[0]),
        both,
        lambda *cell: (format_number(recalled[cell][0]),),
        "Median time to the target over the instances of set A / of set B, once where they agree;"
        " the fastest worker's job lasts 1 on average. Noise: variance of a gradient over the"
        f" target squared. Never: not by {result.rows['horizon'].iloc[0]:g}. Last column: the"
        " optimal time for equal data as recalled from the literature, constants dropped, times"
        " one constant for all rows, which is fitted to Rennala.",
    )


def setting_table(result: Result) -> results.Table:
    """What was chosen."""

    def setting(rule: str, where: dict[str, Any]) -> str:
        own = result.select(method=rule, **where).iloc[0]
        if np.isnan(own["step"]):
            return "none"
        step = f"{own['step']:.3g}" if own["step"] >= 0.1 else f"1/{1 / own['step']:g}"
        star = "*" if own["at_edge"] else ""
        return f"{own['parameter']:g}, {step}{star}"

    heads = [f"{rule}: {LETTERS[rule]}, step" if rule in LETTERS else rule for rule in CANDIDATES]
    return _table(
        result,
        heads,
        setting,
        lambda *_: (),
        "The setting that was best on the tuning instances: parameter, step size. R = inf is pure,"
        " m = n is synchronous. A star: at the end of a grid, so a better one may lie outside.",
    )


TABLES = {"times": time_table, "settings": setting_table}


def slowed(result: Result) -> float:
    """How many times as long synchronous rounds take as pure: most workers, one a straggler."""
    rows = result.rows
    where = {"speeds": STRAGGLER, "noise": rows["noise"].min(), "n": rows["n"].max()}
    rounds, pure = (spread(result, "A", method=m, **where) for m in ("synchronous", "pure"))
    return float(rounds.median) / float(pure.median)


FACTS = {
    "slowed": slowed,
    "trials": lambda result: [int(own.max()) for _, own in result.rows.groupby("n")["trials"]],
}


def against_workers(result: Result) -> Illustration:
    """Time to the target over the number of workers: a row a level of noise."""
    recalled, panels = optima(result), []
    ns, rows = sorted(result.rows["n"].unique()), result.rows
    for noise in sorted(rows["noise"].unique()):
        for speeds in rows["speeds"].unique():
            series = []
            for rule in CANDIDATES:
                own = [
                    spread(result, "A", method=rule, speeds=speeds, noise=noise, n=n) for n in ns
                ]
                values = [[getattr(one, part) for one in own] for part in ("median", "low", "high")]
                series.append(results.Series(rule, ns, *values))
            for which, name in enumerate(OPTIMA):
                line = [recalled[speeds, noise, n][which] for n in ns]
                series.append(results.Series(name, ns, line, line, line))
            panels.append(plots.Panel(f"workers n ({speeds}, noise {noise:g})", series, log_x=True))
    figure = plots.panels(
        panels,
        y_label="simulated time to target",
        log_y=True,
        columns=rows["speeds"].nunique(),
        styles=plots.assign_styles([*CANDIDATES, *OPTIMA]),
    )
    return Illustration(
        figure,
        "Time to the target, median and quartiles over set A; no point where it was not reached by"
        f" {rows['horizon'].iloc[0]:g}. Noise: variance of a gradient over the target squared."
        " sqrt(i): a job of worker i lasts sqrt(i); one straggler: 100 for the last worker, 1 for"
        " the others; heavy tails: Pareto times with mean 1 and tail 1.5 for all. The recalled"
        " optima are shapes: constants dropped, one constant for all panels, fitted to Rennala.",
    )


FIGURES = {"workers": against_workers}


if __name__ == "__main__":
    part.main(NAME, quick=True)
