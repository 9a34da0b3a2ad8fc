"""`Run`: what a simulation returns.

Device values (params, optimizer state, losses, metrics) are pytree leaves and carry the axes of any
vmap; what the trace alone decides (times, versions, delays, costs) is known on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer

from asyncjax.checks import extra
from asyncjax.traces import EventTrace
from asyncjax.traces.summary import busy_time
from asyncjax.traces.synchronous import Rounds, trace_of_rounds

Array = jax.Array | np.ndarray
Model = TypeVar("Model", bound=Any)
Rows = TypeVar("Rows", bound=Any)
FACTOR = 1e3  # a loss that is larger than its first record by this factor has diverged
SMALLEST = 1e-3  # a first loss nearer to 0 counts as so large


class Records(NamedTuple):
    """State after some of the updates, R records; under vmap, device columns have leading axes."""

    version: Array  # int32[R], updates made
    time: Array  # float64[R], time units, when that update was made
    delay: Array  # int32[R], delay of that update, the largest of its gradients
    used: Array  # int64[R], gradients used so far
    computed: Array  # int64[R], gradients used, thrown away or cancelled so far
    # float[R], the objective; without one, the weighted mean loss of the update's jobs
    loss: jax.Array
    finite: jax.Array  # bool[R], every parameter is finite
    metrics: dict[str, jax.Array]  # float[R] each, by name


class PolicyRecords(NamedTuple):
    """State after some of the updates of a policy.

    R records, all on the device. Costs are sums from the start.
    """

    version: Array  # int32[R], updates made
    time: jax.Array  # float[R], time units, when that update was made
    delay: Array  # int32[R], 0
    used: jax.Array  # int32[R], answers used
    computed: jax.Array  # int32[R], jobs handed out: used or cancelled
    loss: jax.Array  # float[R], as in `Records`
    finite: jax.Array  # bool[R], every parameter is finite
    metrics: dict[str, jax.Array]  # float[R] each, by name
    k: jax.Array  # int32[R], answers awaited in that update
    load: jax.Array  # float[R], samples asked of each worker in that update
    stage: jax.Array  # int32[R], of the policy in that update
    samples_assigned: jax.Array  # float[R], asked of all workers
    samples_used: jax.Array  # float[R], in answers that were used
    samples_done: jax.Array  # float[R], gradients computed, those of cancelled jobs pro rata
    uplinks: jax.Array  # int32[R], answers sent to the server
    broadcasts: jax.Array  # int32[R], models sent to workers
    out_of_range: jax.Array  # int32[R], updates whose k, load or crew could not be as chosen


class Costs(NamedTuple):
    """What a trace costs."""

    gradients_used: int  # gradients that entered an update
    gradients_thrown_away: int  # gradients that arrived and did not
    gradients_cancelled: int  # jobs that were stopped or lost before they arrived
    uplinks: int  # gradients sent to the server
    broadcasts: int  # models sent to workers: jobs handed out
    utilisation: float  # busy time / (workers * time); NaN if the trace has no starts
    live_versions: int  # models kept at once, at most


@dataclass(frozen=True, eq=False)
class Source:
    """Where a run comes from: one entry a trace.

    Compared by identity, so that it can ride along in a pytree.
    """

    traces: tuple[EventTrace, ...]  # the traces, one a run of different traces
    costs: tuple[Costs, ...]  # what each of them costs
    # beside the trace of a live run, when arrivals were handled (see `live.timing`); else None
    timing: Any = None
    # how often workers of a live run were lost, came back, or waited for a place
    # (`live.WorkerEvents`); else None
    worker_events: Any = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Run(Generic[Model, Rows]):
    """Outcome of a simulation."""

    params: Model  # the final model
    opt_state: Any  # the final optimizer state
    records: Rows  # the curve: `Records`, or `PolicyRecords` where `run_policy` made the run
    source: Source = field(metadata={"static": True})  # traces and costs; use the properties
    # the final state of the example order, where `run_epochs` made the run, or `replay` with an
    # order that learns; else None
    order_state: Any = None
    # who answered when, where `run_policy` made the run; its trace is made from them
    rounds: Rounds | None = None
    policy_state: Any = None  # the final state of the policy, likewise
    # the final state of the transformation of arrivals, where `replay` or `sweep` was given one
    arrival_state: Any = None
    # what the workers keep after their last job that arrived, one row per worker (first axis;
    # [S, G, n, ...] of a sweep), where they keep a state from job to job
    # (`problems.local_steps(..., keep_state=True)`); else None, and where a live run left it with
    # its workers
    worker_states: Any = None
    # int32[..., 2], worker and job of the first gradient that entered an update and was not
    # finite, or its loss; -1: none. Leaves of over 16,384 entries are not looked at in compiled
    # loops. None where `run_policy` or `run_epochs` made the run, and after a live run without
    # such a gradient. Not looked for (-1) in a replay over a mesh, and by a live run in what
    # arrived before it was resumed
    failed: Any = None

    def __repr__(self) -> str:
        """One line: how far, how long, from which loss to which."""
        records = self.records
        *several, count = records.loss.shape
        runs = f"{int(np.prod(several))} runs of " if several else ""
        version, time = np.asarray(records.version), np.asarray(records.time)
        if not count:
            return f"Run({runs}0 records)"
        until = f"{version.max()} updates in {time.max():.4g} time units"
        text = f"{runs}{until}, {count} records"
        if not several and not isinstance(records.loss, Tracer):
            losses = np.asarray(records.loss).astype(float)
            text += f", loss {losses[0]:.4g} -> {losses[-1]:.4g}"
        if not isinstance(records.loss, Tracer) and not isinstance(records.finite, Tracer):
            diverged = int(np.sum(self.diverged))
            text += (f", {diverged} diverged" if several else ", diverged") if diverged else ""
        return f"Run({text})"

    @property
    def diverged(self) -> Any:
        """Which runs went wrong, bool[...]: one truth value, or one for each run of several.

        A run has diverged if a recorded model is not finite; or if a recorded loss is not finite or
        is larger than 1000 max(|first recorded loss|, 0.001), so losses up to 1 never have. A loss
        that is NaN in every record says nothing: it was not measured, or `finite` tells.
        """
        loss, finite = self.records.loss, self.records.finite
        traced = isinstance(loss, Tracer) or isinstance(finite, Tracer)
        module: Any = jnp if traced else np
        losses = loss if traced else np.asarray(loss, np.float64)
        if not losses.shape[-1]:
            return module.zeros(losses.shape[:-1], bool)[()]
        measured = ~module.isnan(losses).all(-1)
        return ((_beyond(losses).any(-1) & measured) | ~module.asarray(finite).all(-1))[()]

    @property
    def trace(self) -> EventTrace:
        """The trace that was replayed, or that a policy made.

        Of several there is `run.source.traces`; one run of a policy is taken out of several by
        `jax.tree.map(lambda leaf: leaf[0], run)`.
        """
        if self.rounds is not None:
            return trace_of_rounds(self.rounds)
        return _only(self.source.traces, "traces")

    @property
    def costs(self) -> Costs:
        """Gradients, messages, utilisation, memory; of several traces see `run.source.costs`."""
        if self.rounds is not None:
            return _costs_of_rounds(self.rounds)
        return _only(self.source.costs, "costs")

    @property
    def worker_events(self) -> Any:
        """How often workers of a live run were lost, came back, or waited (`live.WorkerEvents`)."""
        return self.source.worker_events

    @property
    def delay_overflows(self) -> Any:
        """Steps that a delay-adaptive rule left out, int32: the delay exceeded its history."""
        counts = optax.tree.get_all_with_path(self.opt_state, "delay_overflows")
        return sum((value for _, value in counts), np.int32(0))

    def to_frame(self) -> Any:
        """The records as a pandas table, one row per record.

        Columns are the fields of the records and the metrics of one number each. Of several runs
        the rows of one follow those of another, and the columns `run` and `setting` say which
        (`run`, where there is one axis more). Needs the extra `study`, which installs pandas.
        """
        pandas = extra("pandas", "study")
        shape, columns = np.shape(self.records.loss), self.records._asdict() | self.records.metrics
        axes = len(shape) - 1
        names = ["run", "setting"][:axes] if axes < 3 else [f"axis {axis}" for axis in range(axes)]
        table: dict[str, Any] = dict(zip(names, np.indices(shape, dtype=np.int32), strict=False))
        for name, column in columns.items():  # what is alike for all runs is repeated
            fits = name != "metrics" and np.shape(column)[-1:] == shape[-1:]
            if fits and np.ndim(column) <= len(shape):
                table[name] = np.broadcast_to(np.asarray(column), shape)
        return pandas.DataFrame({name: column.ravel() for name, column in table.items()})

    def raise_if_failed(self) -> Run:
        """Returns the run, or raises if it went wrong.

        A FloatingPointError, where a recorded model is not finite or the run `diverged`, names the
        first such version and the first gradient that is not finite (see `failed`). An
        OverflowError says that a delay exceeded the history of a delay-adaptive rule, or that a
        policy chose what cannot be.
        """
        bad = np.argwhere(~np.asarray(self.records.finite))
        if len(bad):
            first = bad[np.argmin(bad[:, -1])]
            raise FloatingPointError(
                f"the model is not finite at version {self._version(first)}{_where(first)}"
                f"{self._failure(first)}; a smaller step size may help"
            )
        if np.any(self.diverged):
            raise FloatingPointError(self._divergence())
        overflows = int(np.max(np.asarray(self.delay_overflows)))
        if overflows:
            raise OverflowError(
                f"{overflows} delays exceeded the step rule's history, and their steps were left"
                " out; raise its max_delay"
            )
        if isinstance(self.records, PolicyRecords):
            outside = int(np.max(np.asarray(self.records.out_of_range)))
            if outside:
                raise OverflowError(
                    f"the policy chose a k, a load or a crew out of range in {outside} updates, and"
                    " the nearest was taken; k must be in 1 .. workers with work, load in 1 .. its"
                    " max_load"
                )
        return self

    def _version(self, record: Any) -> int:
        """The version of a record, by its place among the losses."""
        versions = np.broadcast_to(self.records.version, np.shape(self.records.loss))
        return int(versions[tuple(record)])

    def _divergence(self) -> str:
        """How the run, or the first of several runs that diverged, went wrong."""
        diverged, loss = np.asarray(self.diverged), np.asarray(self.records.loss, np.float64)
        run = tuple(np.argwhere(diverged)[0])
        first, last = (*run, 0), (*run, int(np.argmax(_beyond(loss[run]))))
        text = f"{loss[last]:.4g} at version {self._version(last)}"
        if last[-1]:
            start = f"the loss went from {loss[first]:.4g} at version {self._version(first)} to"
        else:
            start = "the loss is"
        if run:
            start = f"{int(diverged.sum())} of {diverged.size} runs diverged: {start}"
        where = f"{_where(first)}{self._failure(first)}"
        return f"{start} {text}{where}; a smaller step size may help"

    def _failure(self, record: Any) -> str:
        """Which gradient was the first that is not finite, in the run that a record is of."""
        if self.failed is None or np.ndim(self.failed) != len(record):
            return ""
        worker, job = (int(number) for number in np.asarray(self.failed)[tuple(record[:-1])])
        if worker < 0:
            return ""
        traces = self.source.traces
        trace = traces[record[0] if len(traces) > 1 else 0]
        is_it = (np.asarray(trace.worker) == worker) & (np.asarray(trace.job) == job)
        version = int(np.asarray(trace.read_version)[np.argmax(is_it)])
        return (
            f"; the first gradient that is not finite, or its loss, is that of worker {worker},"
            f" job {job}, at version {version}"
        )


def _beyond(losses: Any) -> Any:
    """Which losses, along the last axis, no run has that goes well."""
    size = abs(losses[..., :1])
    return ~(abs(losses) < np.inf) | (losses > FACTOR * size.clip(SMALLEST))


def _where(record: Any) -> str:
    """Which run a record is of, where there are several."""
    return f" in run {tuple(int(i) for i in record[:-1])}" if len(record) > 1 else ""


def _costs_of_rounds(rounds: Rounds) -> Costs:
    """Counts what rounds cost."""
    trace = trace_of_rounds(rounds)
    stopped = 0 if trace.cancelled is None else len(trace.cancelled.worker)
    n, end = np.shape(rounds.worker)[-1], float(trace.time[-1])
    return Costs(
        gradients_used=trace.n_arrivals,
        gradients_thrown_away=0,
        gradients_cancelled=stopped,
        uplinks=trace.n_arrivals,
        broadcasts=trace.n_arrivals + stopped,
        utilisation=float(busy_time(trace).sum()) / (n * end) if end > 0 else float("nan"),
        live_versions=1,
    )


def _only(values: tuple[Any, ...], name: str) -> Any:
    """The one value of a run that has no others."""
    if len(values) != 1:
        raise ValueError(f"the run holds {len(values)} {name}; use run.source.{name}")
    return values[0]
