"""`Log`: how long the jobs of real workers took, worker by worker, in order of time.

A log holds what was measured and no rule: who waited for whom is not in it. What was repaired while
it was read is in its notes, in words.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from asyncjax.clocks.clock import Clock
from asyncjax.clocks.of_trace import cycled

Rows = tuple[np.ndarray, ...]  # one row per worker, float64[J_i]


def notes_of_copies(workers: Sequence[str], durations: Sequence[np.ndarray]) -> list[str]:
    """A note on workers whose durations are those of another, if there are any.

    Example:
        >>> notes_of_copies("abc", [np.array([1.0, 2.0])] * 2 + [np.array([1.0, 2.5])])[0][:53]
        "workers 'a' and 'b' have the same durations throughou"
    """
    first: dict[bytes, str] = {}
    copies: list[tuple[str, str]] = []
    for name, row in zip(workers, durations, strict=True):
        of = first.setdefault(row.tobytes(), name)
        if of is not name and len(row) > 1:
            copies.append((of, name))
    if not copies:
        return []
    more = "" if len(copies) == 1 else f", and {len(copies) - 1} more those of another worker"
    return [
        f"workers {copies[0][0]!r} and {copies[0][1]!r} have the same durations throughout{more}:"
        " see whether a column is there twice, or whether all log the time of the whole step"
    ]


@dataclass(frozen=True)
class Log:
    """Durations of the jobs of real workers; `traces.read_log` makes it.

    Rows are as long as they are: J_i jobs of worker i, in order of time.

    Attributes:
        workers: Names, sorted; numbers in them count as numbers ("w2" before "w10").
        durations: A row float64[J_i] a worker, positive, in `unit`.
        start: When each job began, in `unit` since the first job of the log; None: not known.
        end: When each job ended; there if `start` is, at least `start + duration` up to rounding.
        step: Its column of steps or times, float64[J_i] a worker; None: there was none.
        lines: The line of each job in the file, int64[J_i] a worker, from 1.
        unit: "seconds", or "time units" where the log does not say.
        source: Where the log is from, in words.
        notes: What was repaired, left out or supposed while it was read, a sentence each.
        columns: Which columns were read as what, and in which unit; empty without a table.
        stamps: Times of a worker whose differences are all that durations are, so that they contain
            what it waited, float64[J_i] a worker, in `unit`; None: durations were measured.

    Example:
        >>> from asyncjax import traces
        >>> log = traces.read_log([("b", 1, 2.0), ("a", 1, 1.0), ("a", 2, 1.5)])
        >>> log.workers, [row.tolist() for row in log.durations]
        (('a', 'b'), [[1.0, 1.5], [2.0]])
        >>> log.n_workers, log.n_jobs
        (2, 3)
    """

    workers: tuple[str, ...]
    durations: Rows
    start: Rows | None = None
    end: Rows | None = None
    step: Rows | None = None
    lines: Rows | None = None
    unit: str = "time units"
    source: str = "rows"
    notes: tuple[str, ...] = ()
    columns: str = ""
    stamps: Rows | None = None

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return len(self.workers)

    @property
    def n_jobs(self) -> int:
        """Number of jobs of all workers."""
        return sum(map(len, self.durations))

    @property
    def span(self) -> float:
        """From the first start to the last end, in `unit`; NaN where starts are not known."""
        if self.start is None or self.end is None:
            return float("nan")
        return max(row[-1] for row in self.end) - min(row[0] for row in self.start)

    @property
    def utilisation(self) -> np.ndarray:
        """Share of the span in which each worker worked, float64[n]; NaN without starts.

        Example:
            >>> from asyncjax import traces
            >>> jobs = [{"start": 0, "end": 3}, {"start": 3.5, "end": 4}]
            >>> traces.read_log(jobs).utilisation
            array([0.875])
        """
        return np.array([row.sum() for row in self.durations]) / self.span

    def table(self) -> np.ndarray:
        """The durations as one table, every worker cut to the number of jobs of the shortest.

        A warning says how many are left out where they are more than those that stay.

        Returns:
            float64[n, k], in `unit`, one row per worker.

        Example:
            >>> from asyncjax import traces
            >>> traces.read_log({"a": [1.0, 2.0, 1.5], "b": [5.0, 4.0]}).table()
            array([[1., 2.],
                   [5., 4.]])
        """
        length = min(map(len, self.durations))
        left_out = self.n_jobs - length * self.n_workers
        if 2 * left_out > self.n_jobs:
            fewest = self.workers[min(range(self.n_workers), key=lambda i: len(self.durations[i]))]
            warnings.warn(
                f"worker {fewest!r} has only {length} jobs in {self.source}, so {left_out} jobs of"
                f" {self.n_jobs} are left out",
                stacklevel=2,
            )
        return np.array([row[:length] for row in self.durations])

    def clock(self, law: Callable[[list[np.ndarray]], Clock] | None = None) -> Clock:
        """The clock of the log, one worker a row.

        Args:
            law: `(rows) -> Clock`, as in `clocks.of_trace`, such as `clocks.fitted`. None: the
                durations come again in their order, each worker's from the beginning.

        Returns:
            A clock of `n_workers` workers, in `unit`. Pauses between jobs are not in it.

        Example:
            >>> from asyncjax import clocks, traces
            >>> log = traces.read_log({"a": [1.0, 2.0], "b": [5.0]})
            >>> log.clock().durations(None, 3).tolist()
            [[1.0, 2.0, 1.0], [5.0, 5.0, 5.0]]
            >>> log.clock(clocks.fitted).mean.tolist()
            [1.5, 5.0]
        """
        return (cycled if law is None else law)(list(self.durations))
