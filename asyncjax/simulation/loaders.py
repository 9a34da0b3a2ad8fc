"""Example orders for data loaders of other libraries, on the host.

A sampler of PyTorch is an iterable with a length, a data source of Grain is an object with a length
and items: both are here without importing either. The next order exists only when the epoch is
over, so an epoch ends where the caller says, and a loader that reads ahead never gets past it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from asyncjax.checks import one_key, whole
from asyncjax.orders import Order
from asyncjax.simulation.example_orders import check_visits, order_shape, permutations


class IndexSource:
    """Hands out the units of an epoch, and is told what their gradients were.

    For each epoch: iterate over `worker(j)` (over the source itself, where there is one worker),
    call `observe` with the gradients in the sequence of the epoch, in batches of any size, then
    `end_epoch`.

    Args:
        order: Any order.
        key: Typed key; the state begins as `order.init(key)`.

    Example:
        >>> from asyncjax import orders
        >>> source = IndexSource(orders.pair_balanced(4, 2), jax.random.key(0))
        >>> first = list(source)
        >>> sorted(first)
        [0, 1, 2, 3]
        >>> source.observe(np.ones((3, 2)))
        >>> source.observe(np.ones((1, 2)))
        >>> source.end_epoch()
        >>> list(source) == [first[0], first[2], first[3], first[1]]  # equal gradients
        True
    """

    def __init__(self, order: Order, key: jax.Array) -> None:
        self._shape = order_shape(order)
        check_visits(order, self._shape)
        self._order = order
        self._state = order.init(one_key("key", key))
        self._epoch = 0
        self._begin()

    def _begin(self) -> None:
        workers = range(self._shape.n_workers)
        self._visits = np.asarray(permutations(self._order, self._shape, self._state))
        self._ready = [self._steps(worker, 0) for worker in workers]
        self._opened: set[int] = set()
        self._observed = 0

    @property
    def state(self) -> Any:
        """The state of the order, a pytree of arrays."""
        return self._state

    def worker(self, worker: int) -> WorkerIndices:
        """The units of one worker in this epoch, and after `end_epoch` in the next."""
        worker = whole("worker", worker, least=0, most=self._shape.n_workers - 1)
        return WorkerIndices(self, worker)

    def view(self, data: Any, worker: int = 0) -> EpochView:
        """A data set in the order of this epoch, and of this epoch only.

        Args:
            data: Has items by index, one a unit.
            worker: Whose units they are.

        Example:
            >>> from asyncjax import orders
            >>> view = IndexSource(orders.reshuffled(3), jax.random.key(0)).view("abc")
            >>> sorted(view[t] for t in range(len(view)))
            ['a', 'b', 'c']
        """
        self.worker(worker)
        self._ready[worker] = self._shape.n
        visits = self._visits[worker]
        return EpochView(data, visits[visits >= 0])

    def observe(self, gradients: Any) -> None:
        """Tells the order the gradients of the next steps of this epoch.

        Args:
            gradients: float[B, d], or float[m, B, d] for an order of m workers, with anything at
                idle steps; an order that ignores gradients need not be told.
        """
        if not self._order.needs_gradients:
            return
        shape = np.shape(gradients)
        workers = () if self._shape.single else (self._shape.n_workers,)
        if len(shape) != len(workers) + 2 or shape[:-2] != workers:
            axes = ", ".join([*map(str, workers), "B", "d"])
            raise ValueError(f"gradients must have shape [{axes}], got {shape}")
        last, ready = self._observed + shape[-2], min(self._ready)
        if last > ready:
            raise ValueError(
                f"gradients must be of units handed out in this epoch, {ready - self._observed}"
                f" more, got {shape[-2]}"
            )
        positions = np.arange(self._observed, last, dtype=np.int32)
        self._state = self._order.observe(self._state, positions, gradients)
        self._observed = last

    def end_epoch(self) -> None:
        """Turns to the next order. What was not observed keeps its place in the middle."""
        self._state = self._order.end_epoch(self._state)
        self._epoch += 1
        self._begin()

    def __len__(self) -> int:
        """Units of an epoch, for one worker."""
        return len(self._only())

    def __iter__(self) -> Iterator[int]:
        """Iterates over this epoch's units, for one worker."""
        return iter(self._only())

    def _only(self) -> WorkerIndices:
        if self._shape.n_workers > 1:
            raise TypeError(f"the order has {self._shape.n_workers} workers; use worker(j)")
        return self.worker(0)

    def _steps(self, worker: int, handed_out: int) -> int:
        """Steps of the epoch that are covered once so many units of a worker were handed out."""
        steps = np.append(np.flatnonzero(self._visits[worker] >= 0), self._shape.n)
        return int(steps[handed_out])

    def _units(self, worker: int, epoch: int) -> Iterator[int]:
        """Hands out a worker's units, until the epoch is over."""
        visits = self._visits[worker]
        for number, unit in enumerate(visits[visits >= 0].tolist()):
            if epoch != self._epoch:
                raise RuntimeError("the epoch of this iterator has ended; iterate anew")
            self._ready[worker] = self._steps(worker, number + 1)
            yield unit


@dataclass(frozen=True)
class WorkerIndices:
    """A sampler: the units of one worker, once an epoch; `IndexSource.worker` makes it."""

    source: IndexSource
    worker: int

    def __len__(self) -> int:
        """Units of an epoch."""
        return self.source._shape.counts[self.worker]

    def __iter__(self) -> Iterator[int]:
        """Iterates over this epoch's units; a RuntimeError where they were handed out before."""
        if self.worker in self.source._opened:
            raise RuntimeError(
                f"the units of worker {self.worker} were handed out in this epoch; call"
                " end_epoch() for the next order"
            )
        self.source._opened.add(self.worker)
        return self.source._units(self.worker, self.source._epoch)


@dataclass(frozen=True, eq=False)
class EpochView:
    """A data source with random access: item t is the unit of step t of one epoch.

    `IndexSource.view` makes it. It stays as it is, so it may be read ahead or by other processes,
    and it ends with its epoch: make another for the next.
    """

    data: Any
    indices: np.ndarray  # int32[n]

    def __len__(self) -> int:
        """Units of the epoch."""
        return len(self.indices)

    def __getitem__(self, step: int) -> Any:
        """The unit of a step."""
        return self.data[int(self.indices[step])]
