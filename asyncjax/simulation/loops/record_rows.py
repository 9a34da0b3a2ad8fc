"""Rows of the records, told on the host while a run goes.

A row is due once the update is made that it is recorded after. What is known of it beforehand
(version, time, what was counted) is in the columns of the records; the rest is measured then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


class RowTeller:
    """Calls `on_record` with the rows of a run's records, each once and in order.

    `versions` int[R] are those of all rows; `columns` are the records as far as they are known
    beforehand, None where all is measured.

    Example:
        >>> from asyncjax.results.run import Records
        >>> from asyncjax.simulation.loops.server import Metrics
        >>> versions, seen = np.array([0, 5, 10]), []
        >>> columns = Records(versions, versions / 2, *[versions] * 3, *[None] * 3)
        >>> rows = RowTeller(seen.append, versions, columns)
        >>> rows.tell(7, lambda number: Metrics(np.float32(0.5), {}, np.bool_(True)))
        >>> [(row.version, row.time, row.loss) for row in seen]
        [(0, 0.0, 0.5), (5, 2.5, 0.5)]
    """

    def __init__(
        self, on_record: Callable[[Any], None], versions: Any, columns: Any = None
    ) -> None:
        self._on_record, self._versions, self._columns = on_record, versions, columns
        self._told = 0

    def pass_over(self, updates: int) -> None:
        """Leaves out the rows up to an update, where a run goes on from there."""
        self._told = self._due(updates)

    def tell(self, updates: int, measure: Callable[[int], Any]) -> None:
        """Tells the rows that are due after so many updates; `measure` of a row's number."""
        due = self._due(updates)
        for number in range(self._told, due):
            row = measure(number)
            if self._columns is not None:
                known = jax.tree.map(lambda column, at=number: column[at], self._columns)
                row = known._replace(**row._asdict())
            self._on_record(in_python(row))
        self._told = due

    def _due(self, updates: int) -> int:
        return int(np.searchsorted(self._versions, updates, side="right"))


def in_python(row: Any) -> Any:
    """A row of arrays without axes as numbers of Python.

    Example:
        >>> in_python({"loss": np.float32(0.5), "finite": np.bool_(True)})
        {'finite': True, 'loss': 0.5}
    """
    return jax.tree.map(lambda value: np.asarray(value).tolist(), row)
