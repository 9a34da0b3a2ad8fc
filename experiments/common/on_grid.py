"""A method with the step that was best on a grid, over seeds: one instance, digits, its table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from asyncjax import problems, results, traces
from experiments.common.methods import Method


@dataclass(frozen=True)
class Outcome:
    """What one method did; arrays are NumPy, S seeds and R records."""

    method: Method
    step_size: float
    at_edge: bool  # the best step lies at the end of the grid
    tuning: np.ndarray  # float[G], final loss by step size, median over the tuning seeds
    time: np.ndarray  # float64[S, R]
    computed: np.ndarray  # int64[S, R], gradients computed so far, also those never used
    version: np.ndarray  # int32[S, R]
    loss: np.ndarray  # float[S, R], NaN after the horizon
    accuracy: np.ndarray  # float[S, R], NaN after the horizon
    trace: traces.EventTrace  # of the first reported seed
    summaries: tuple[traces.Summary, ...]  # of the reported seeds
    seconds: float


def digits_problem(
    n_workers: int, *, batch: int, hidden: int, concentration: float, seed: int
) -> problems.Problem:
    """Scikit-learn's digits and a network; every worker sees few of the classes."""
    data = problems.digits()
    shards = problems.dirichlet(
        data.train_labels,
        n_workers,
        concentration=concentration,
        key=jax.random.key(seed + 1),
        minimum=batch,
    )
    return problems.classification(
        problems.MLP(hidden=(hidden,), classes=10),
        data.train_features,
        data.train_labels,
        n_workers=n_workers,
        shards=shards,
        batch=problems.uniform(batch),
        test=(data.test_features, data.test_labels),
        key=jax.random.key(seed + 2),
    )


def last_within(horizon: float, axis: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The last value of each run within the horizon, float[S]; NaN where it had diverged.

    Example:
        >>> last_within(2.0, np.array([[1.0, 2.0, 3.0]]), np.array([[5.0, 6.0, 7.0]]))
        array([6.])
    """
    last = np.sum(axis <= horizon, axis=1) - 1
    return values[np.arange(len(values)), last]


def table(
    outcomes: Sequence[Outcome], *, target: float, horizon: float, caption: str
) -> results.Table:
    """One row a method: time and gradients to a target, final loss, delays, use of workers.

    The rows are in the order of the outcomes; a star marks a step at the end of the grid.
    """
    percent = f"{100 * target:g} %"
    columns = (
        results.Column("method", right=False),
        results.Column("step"),
        results.Column(f"time to {percent}"),
        results.Column(f"gradients to {percent}"),
        results.Column("final loss"),
        results.Column("final accuracy"),
        results.Column("mean delay"),
        results.Column("max delay"),
        results.Column("utilisation"),
        results.Column("thrown away"),
    )
    spread, rows = results.median_and_spread, []
    for one in outcomes:
        shared = {"target": target, "above": True}
        rows.append(
            (
                one.method.name,
                f"{one.step_size:.3g}{'*' if one.at_edge else ''}",
                spread(results.time_to_target(one.time, one.accuracy, **shared)),
                spread(results.time_to_target(one.computed, one.accuracy, **shared)),
                spread(last_within(horizon, one.time, one.loss)),
                spread(last_within(horizon, one.time, one.accuracy), smaller_is_better=False),
                spread([summary.delay_mean for summary in one.summaries]),
                spread([summary.delay_max for summary in one.summaries]),
                spread([summary.utilisation for summary in one.summaries]),
                spread([wasted(summary) for summary in one.summaries]),
            )
        )
    return results.Table(columns, tuple(rows), caption)


def wasted(summary: Any) -> float:
    """Share of delivered or cancelled gradients that entered no step."""
    lost = summary.thrown_away + summary.cancelled
    return lost / (summary.used + lost)


def plain_value(value: Any) -> Any:
    """A table cell for JSON."""
    if isinstance(value, results.Spread):
        return {name: float(getattr(value, name)) for name in ("median", "low", "high", "reached")}
    return value
