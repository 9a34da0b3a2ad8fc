"""Columns of a trace as they are checked: arrays of one kind and one length, on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from asyncjax.checks import shown, whole
from asyncjax.traces.event_trace import EventTrace

LARGEST = 2**31 - 1  # the fields are int32
_ROUNDING = 64  # digits of the last place: what it costs to add up thousands of rounds
_KINDS = {"integers": "iu", "booleans": "b", "real numbers": "iuf"}
_ARRIVAL_KINDS = {
    "time": "real numbers",
    "worker": "integers",
    "job": "integers",
    "read_version": "integers",
    "version": "integers",
    "used": "booleans",
    "steps": "booleans",
    "weight": "real numbers",
}


class Columns(NamedTuple):
    """The columns of E arrivals; integers are int64."""

    time: np.ndarray
    worker: np.ndarray
    job: np.ndarray
    read_version: np.ndarray
    version: np.ndarray
    used: np.ndarray
    steps: np.ndarray
    weight: np.ndarray
    start: np.ndarray | None
    n_workers: int | None  # as stated
    slack: float  # time units, what rounding may change in a sum of times
    step_time: np.ndarray  # of the updates

    @property
    def end(self) -> float:
        """The last arrival or update, time units."""
        return float(max(self.time[-1], self.step_time[-1:].max(initial=0.0)))

    def updates_by(self, moment: np.ndarray) -> np.ndarray:
        """How many updates were made up to each moment, itself included, int64[...]."""
        return np.searchsorted(self.step_time, moment + self.slack, side="right")

    def was_there(self, version: np.ndarray, moment: np.ndarray) -> np.ndarray:
        """Whether `updates_by(moment) >= version`, bool[...], without a search a moment."""
        updates = np.concatenate([[-np.inf], self.step_time, [np.inf]])
        made = updates[np.clip(version, 0, len(updates) - 1)]
        return (made <= moment + self.slack) & (version < len(updates) - 1)


def arrival_columns(trace: EventTrace) -> Columns:
    """Reads the columns of the arrivals; refuses other kinds and unequal lengths."""
    length = read_column("time", trace.time, "real numbers").shape
    found = {
        name: read_column(name, getattr(trace, name), kind, length)
        for name, kind in _ARRIVAL_KINDS.items()
    }
    if length == (0,):
        raise ValueError("time is empty: a trace needs at least one arrival")
    time, start = found["time"], trace.start
    if start is not None:
        start = read_column("start", start, "real numbers", length)
    n_workers = trace.n_workers
    if n_workers is not None:
        n_workers = whole("n_workers", n_workers, 1, LARGEST)
    digits = [np.finfo(t.dtype).eps for t in (time, start) if t is not None and t.dtype.kind == "f"]
    slack = _ROUNDING * float(max(digits, default=0.0)) * float(abs(time[-1]))
    made = found["time"][found["steps"]]
    if trace.step_time is not None:
        kind = "real numbers"
        made = read_column("step_time", trace.step_time, kind, made.shape, "update")
    return Columns(**found, start=start, n_workers=n_workers, slack=slack, step_time=made)


def read_column(
    name: str,
    values: Any,
    kind: str,
    shape: tuple[int, ...] | None = None,
    entry: str = "arrival as in time",
) -> np.ndarray:
    """One column as a NumPy array; integers as int64. A shape of None: of any length."""
    if not isinstance(values, np.ndarray):
        if isinstance(values, Tracer):
            raise TypeError(
                f"{name} must be a concrete array, got a traced one: a trace is checked outside jit"
                " and vmap"
            )
        if not isinstance(values, jax.Array):
            raise TypeError(f"{name} must be an array of {kind}, got {shown(values)}")
    if shape is None and values.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {values.shape}")
    if shape is not None and values.shape != shape:
        raise ValueError(
            f"{name} must have shape {shape}, one entry an {entry}, got {values.shape}"
        )
    if values.dtype.kind not in _KINDS[kind]:
        raise ValueError(f"{name} must be {kind}, got dtype {values.dtype}")
    column = np.asarray(values)
    return column.astype(np.int64, copy=False) if kind == "integers" else column


def read_part(name: str, part: Any, of: type, kinds: tuple[str, ...]) -> list[np.ndarray]:
    """The columns of a part of a trace, such as its open jobs; refuses unequal lengths."""
    if not isinstance(part, of):
        raise TypeError(f"{name} must be of type {of.__name__} or None, got {shown(part)}")
    columns = [
        read_column(f"{name}.{field}", values, kind)
        for (field, values), kind in zip(part._asdict().items(), kinds, strict=True)
    ]
    for field, column in zip(part._fields, columns, strict=True):
        if column.shape != columns[0].shape:
            raise ValueError(
                f"{name}.{field} must have shape {columns[0].shape}, as long as"
                f" {name}.{part._fields[0]}, got {column.shape}"
            )
    return columns


def refuse(bad: np.ndarray, message: str, **values: np.ndarray) -> None:
    """Raises a `ValueError` for the first True of `bad`; `message` names it `e`, and its values."""
    if bad.any():
        e = int(np.argmax(bad))
        raise ValueError(message.format(e=e, **{name: value[e] for name, value in values.items()}))
