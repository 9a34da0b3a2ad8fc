"""Traces on disk: one npz file, bitwise, without pickle."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from asyncjax.storage import load_arrays, save_arrays
from asyncjax.traces.event_trace import PARTS, EventTrace
from asyncjax.traces.validation import validate


def save(path: str | os.PathLike[str], trace: EventTrace) -> None:
    """Writes a trace; a file that is there already is replaced only when the new one is complete.

    Args:
        path: File name, used as it is (`.npz` is customary); its folder must exist.
        trace: A valid trace.

    Example:
        >>> import tempfile, pathlib
        >>> from asyncjax import clocks, traces
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=3)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.npz"
        >>> traces.save(path, trace)
        >>> traces.load(path).time.tolist() == trace.time.tolist()
        True
    """
    save_arrays(path, arrays_of_trace(validate(trace)))


def arrays_of_trace(trace: EventTrace) -> dict[str, np.ndarray]:
    """The arrays of a trace by name."""
    arrays = {}
    for name, value in trace._asdict().items():
        if name in PARTS and value is not None:
            arrays |= {f"{name}.{key}": np.asarray(part) for key, part in value._asdict().items()}
        elif value is not None:
            arrays[name] = np.asarray(value)
    return arrays


def load(path: str | os.PathLike[str]) -> EventTrace:
    """Reads a trace written by `save`, and checks it.

    Args:
        path: File name.

    Returns:
        The trace, every array with the dtype and bits that were saved.

    Example:
        See `save`.
    """
    arrays = load_arrays(path)
    try:
        return validate(trace_of_arrays(arrays))
    except (TypeError, ValueError) as error:
        raise ValueError(f"path {os.fspath(path)!r} is not a trace: {error}") from error


def trace_of_arrays(arrays: dict[str, np.ndarray]) -> EventTrace:
    """The trace of arrays by name; every one must belong to it."""

    def taken(name: str) -> np.ndarray:
        if name not in arrays:
            raise ValueError(f"the field {name!r} is missing")
        return arrays.pop(name)

    fields: dict[str, Any] = {}
    for name in EventTrace._fields:
        if name in PARTS:
            columns = [f"{name}.{field}" for field in PARTS[name]._fields]
            if any(column in arrays for column in columns):
                fields[name] = PARTS[name](*map(taken, columns))
        elif name in arrays or name not in EventTrace._field_defaults:
            fields[name] = taken(name)
    if arrays:
        raise ValueError(f"the field {min(arrays)!r} is unknown, a trace has none of this name")
    if (count := fields.get("n_workers")) is not None:
        fields["n_workers"] = count.item()
    return EventTrace(**fields)
