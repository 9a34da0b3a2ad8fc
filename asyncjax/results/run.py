"""`Run`: what a simulation returns.

Device values (params, optimizer state, losses, metrics) are pytree leaves and carry the axes of any vmap; what the trace
alone decides (times, versions, delays, costs) is known on the host.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.core import Tracer

from asyncjax.traces import EventTrace

Array = jax.Array | np.ndarray


class Records(NamedTuple):
    """State after some of the updates, R records; under vmap, device columns have further leading axes."""

    version: Array  # int32[R], updates made
    time: Array  # float64[R], time units, when that update was made
    delay: Array  # int32[R], delay of that update, the largest of its gradients
    used: Array  # int64[R], gradients used so far
    computed: Array  # int64[R], gradients used, thrown away or cancelled so far
    loss: (
        jax.Array
    )  # float[R], the objective; without one, the weighted mean loss of the update's jobs
    finite: jax.Array  # bool[R], every parameter is finite
    metrics: dict[str, jax.Array]  # float[R] each


class Costs(NamedTuple):
    """What a trace costs."""

    gradients_used: int
    gradients_thrown_away: int
    gradients_cancelled: int
    uplinks: int  # gradients sent to the server
    broadcasts: int  # models sent to workers: jobs handed out
    utilisation: float  # busy time / (workers * time); NaN if the trace has no starts
    live_versions: int  # models kept at once, at most


@dataclass(frozen=True, eq=False)
class Source:
    """Where a run comes from: one entry a trace; compared by identity, so that it can ride along in a pytree."""

    traces: tuple[EventTrace, ...]
    costs: tuple[Costs, ...]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["params", "opt_state", "records", "order_state"],
    meta_fields=["source"],
)
@dataclass(frozen=True, repr=False)
class Run:
    """Outcome of a simulation.

    Attributes:
        params: The final model.
        opt_state: The final optimizer state.
        records: The curve.
        source: Traces and costs; use the properties.
        order_state: The final state of the example order, where `run_epochs` made the run, or `replay` with an
            order that learns; else None.
    """

    params: Any
    opt_state: Any
    records: Records
    source: Source
    order_state: Any = None

    def __repr__(self) -> str:
        """One line: how far, how long, from which loss to which."""
        records = self.records
        *several, count = self.records.loss.shape
        runs = f"{int(np.prod(several))} runs of " if several else ""
        version, time = np.asarray(records.version), np.asarray(records.time)
        text = f"{runs}{version.ravel()[-1]} updates in {time.ravel()[-1]:.4g} time units, {count} records"
        if not several and not isinstance(records.loss, Tracer):
            text += f", loss {float(records.loss[0]):.4g} -> {float(records.loss[-1]):.4g}"
        return f"Run({text})"

    @property
    def trace(self) -> EventTrace:
        """The trace that was replayed.

        Raises:
            ValueError: The run holds several; use ``run.source.traces``.
        """
        return _only(self.source.traces, "traces")

    @property
    def costs(self) -> Costs:
        """Gradients, messages, utilisation, memory.

        Raises:
            ValueError: The run holds several traces; use ``run.source.costs``.
        """
        return _only(self.source.costs, "costs")

    @property
    def delay_overflows(self) -> Any:
        """Steps that a delay-adaptive rule left out because the delay exceeded its history, int32; 0 for other rules."""
        found = optax.tree.get_all_with_path(self.opt_state, "delay_overflows")
        return sum((value for _, value in found), np.int32(0))

    def raise_if_failed(self) -> "Run":
        """Returns the run, or raises if it went wrong.

        Raises:
            FloatingPointError: A recorded model holds NaN or infinity; names the first such version.
            OverflowError: A delay exceeded the history of a delay-adaptive rule.
        """
        bad = np.argwhere(~np.asarray(self.records.finite))
        if len(bad):
            first = bad[np.argmin(bad[:, -1])]
            record = int(first[-1])
            versions = np.asarray(self.records.version)
            version = versions[tuple(first)] if versions.ndim == len(first) else versions[record]
            where = f" in run {tuple(map(int, first[:-1]))}" if len(first) > 1 else ""
            raise FloatingPointError(
                f"the model is not finite at version {version}{where}; a smaller step size may help"
            )
        overflows = int(np.max(np.asarray(self.delay_overflows)))
        if overflows:
            raise OverflowError(
                f"{overflows} delays exceeded the step rule's history, and their steps were left out; raise its max_delay"
            )
        return self


def _only(values: tuple[Any, ...], name: str) -> Any:
    if len(values) != 1:
        raise ValueError(f"the run holds {len(values)} {name}; use run.source.{name}")
    return values[0]
