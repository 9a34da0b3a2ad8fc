"""Why steps that only look at the delay are not safe.

A parabola and delays that go 0, 1, ..., T - 1 and start again.

f(x) = x^2 / 2 and delay_k = k mod T, so all T gradients of a cycle are taken at its first point,
and with steps c / (delay + b) that point is multiplied by 1 - sum_{t<T} c / (t + b) a cycle. The
sum grows like c ln T: for every c and b there is a T from which the iterates diverge. Steps with a
window are safe whatever the delays. Wu, Magnússon, Feyzmahdavian, Johansson 2022 (arXiv
2202.08550).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pandas as pd

from asyncjax import problems, results, simulation, steps, traces
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Result
from experiments import part
from experiments.delay_adaptive.step_rules import PAPER

NAME = "sawtooth"
TITLE = "Steps that only look at the delay diverge on a sawtooth"
PAPERS = (PAPER,)
CLAIMS = ()
Rule = optax.GradientTransformationExtraArgs
STEP_SIZE = 0.99  # gamma' = h / L with L = 1
RULES: dict[str, Callable[[float], Rule]] = {
    "c/(delay+1)": lambda c: steps.scale_by_delay(lambda delay: 1 / (delay + 1), c),
    "c/(delay+3)": lambda c: steps.scale_by_delay(lambda delay: 1 / (delay + 3), c),
    "c/sqrt(delay+1)": lambda c: steps.scale_by_delay(steps.polynomial_delay(0.5), c),
    "Adaptive 1": lambda c: steps.scale_by_adaptive_1(c, max_delay=512),
    "Adaptive 2": lambda c: steps.scale_by_adaptive_2(c, max_delay=512),
}


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/sawtooth")
    seed: int = 0  # unused: nothing is random
    periods: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128, 256)
    cycles: int = 30
    constants: tuple[float, ...] = (0.125, 0.25, 0.5, STEP_SIZE)
    commit: bool = False  # also write experiments/rows/sawtooth.csv.gz


def growth(rule: Rule, period: int, n_updates: int) -> float:
    """Factor by which |x| changes a cycle, from the steps and the definition alone.

    Returns:
        The geometric mean; above 1 the iterates diverge.
    """
    taken = np.float64(steps.predict_steps(rule, np.arange(n_updates) % period).step_size)
    sums = taken.reshape(-1, period).sum(axis=1)
    return float(np.exp(np.mean(np.log(np.maximum(np.abs(1 - sums), 1e-30)))))


def replayed(rule: Rule, period: int, cycles: int) -> np.ndarray:
    """|x| at the ends of the cycles when the trace is replayed, float[cycles]."""
    problem = problems.quadratic([[1.0]], [[0.0]], start=[1.0])
    trace = traces.from_delays(np.arange(period * cycles) % period)
    run = simulation.replay(problem, trace, steps.descent(rule), record_every=period)
    return np.sqrt(2 * np.abs(np.asarray(run.records.loss, np.float64)))


def study_of(settings: Settings) -> Result:
    """A row a rule, c and T; nothing is drawn, so there is one set without instances."""
    n_updates = settings.cycles * max(settings.periods)
    rows = [
        ("A", name, c, period, growth(one, period, n_updates))
        for name, rule in RULES.items()
        for c, one in {c: rule(c) for c in settings.constants}.items()
        for period in settings.periods
    ]
    frame = pd.DataFrame(rows, columns=["set", "method", "c", "period", "factor"])
    return Result(frame, "factor", {"cycles": settings.cycles})


def unsafe(result: Result) -> dict[str, Any]:
    """The least T at which a rule diverges, by rule and c; infinite: none of them."""
    periods = result.rows["period"].where(result.rows["factor"] > 1, np.inf)
    least = periods.groupby([result.rows["c"].map("{:g}".format), result.rows["method"]]).min()
    return least.unstack("c").to_dict("index")


def answer(result: Result) -> str:
    """From which period on each rule diverges at the largest c."""
    last = f"{result.rows['c'].max():g}"
    said = [f"{name} {periods[last]:g}" for name, periods in unsafe(result).items()]
    return f"At c = {last} the least T at which iterates diverge: {', '.join(said)}."


def growth_table(result: Result) -> results.Table:
    """How x changes over a cycle."""
    wide, first = result.rows.pivot_table("factor", ["method", "c"], "period"), unsafe(result)
    rows = []
    for (name, c), factors in wide.reindex(list(RULES), level="method").iterrows():
        least = first[name][f"{c:g}"]
        rows.append((name, c, *factors, int(least) if np.isfinite(least) else "none"))
    return part.table(
        ("steps", "c", *(f"T = {period}" for period in wide.columns), "diverges from T ="),
        rows,
        "Factor by which |x| changes over one cycle of delays 0 .. T - 1 on x^2 / 2, from the"
        " steps alone: above 1 the run diverges. Adaptive rules get c as gamma' (allowed: below 1"
        " / L = 1).",
    )


def replays(result: Result) -> Illustration:
    """The same replayed, at the last c and the last T but one."""
    period, c = sorted(result.rows["period"].unique())[-2], result.rows["c"].max()
    cycle = np.arange(1, result.facts["cycles"] + 1)
    series = []
    for name, rule in RULES.items():
        size = replayed(rule(c), int(period), len(cycle))
        shown = np.where(np.isfinite(size) & (size > 0), size, np.nan)
        series.append(results.Series(name, cycle, shown))
    look: Any = {"y_label": "|x|", "log_y": True, "y_range": (1e-12, 1e12)}
    figure = plots.curves(series, x_label="cycles of the delays", **look)
    caption = f"The same replayed, T = {period}, c = {c:g}; Adaptive 1 lies under Adaptive 2."
    return Illustration(figure, caption)


TABLES = {"growth": growth_table}
FIGURES = {"replays": replays}
FACTS = {"unsafe": unsafe}


if __name__ == "__main__":
    part.main(NAME)
