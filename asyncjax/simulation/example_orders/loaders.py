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
from asyncjax.simulation.example_orders.units import check_visits, order_shape, permutations


class IndexSource:
    """Hands out the units of an epoch, and is told what their gradients were.

    For each epoch: iterate over `worker(j)` (over the source itself, where there is one worker),
    call `observe` with the gradients in the sequence of the epoch, in batches of any size, then
    `end_epoch`.

    Args:
        order: Any order.
        key: Typed key; the state begins as `order.init(key)`.

    Raises:
        TypeError: `order` is no order, or `key` no typed key.

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
        self._visits = np.asarray(permutations(self._order, self._shape, self._state))
        self._ready = [self._steps(j, 0) for j in range(self._shape.n_workers)]
        self._opened = [False] * self._shape.n_workers
        self._observed = 0

    @property
    def state(self) -> Any:
        """The state of the order, a pytree of arrays."""
        return self._state

    def worker(self, worker: int) -> WorkerIndices:
        """The units of one worker in this epoch, and after `end_epoch` in the next.

        Raises:
            ValueError: There is no such worker.
        """
        worker = whole("worker", worker, least=0, most=self._shape.n_workers - 1)
        return WorkerIndices(self, worker)

    def view(self, data: Any, worker: int = 0) -> EpochView:
        """A data set in the order of this epoch, and of this epoch only.

        Args:
            data: Has items by index, one a unit.
            worker: Whose units they are.

        Raises:
            ValueError: There is no such worker.

        Example:
            >>> from asyncjax import orders
            >>> view = IndexSource(orders.reshuffled(3), jax.random.key(0)).view("abc")
            >>> sorted(view[t] for t in range(len(view)))
            ['a', 'b', 'c']
        """
        self.worker(worker)
        self._ready[worker] = self._shape.n
        return EpochView(data, self._indices(worker))

    def observe(self, gradients: Any) -> None:
        """Tells the order the gradients of the next steps of this epoch.

        Args:
            gradients: float[B, d], or float[m, B, d] for an order of m workers, with anything at
                idle steps; an order that ignores gradients need not be told.

        Raises:
            ValueError: Units were not yet handed out for so many steps, or the shape is another.
        """
        if not self._order.needs_gradients:
            return
        shape, single = np.shape(gradients), self._shape.single
        if len(shape) != (2 if single else 3) or (not single and shape[0] != self._shape.n_workers):
            axes = "[B, d]" if single else f"[{self._shape.n_workers}, B, d]"
            raise ValueError(f"gradients must have shape {axes}, got {shape}")
        batch = shape[-2]
        last = self._observed + batch
        ready = min(self._ready)
        if last > ready:
            raise ValueError(
                f"gradients must be of units handed out in this epoch, {ready - self._observed}"
                f" more, got {batch}"
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

    def _indices(self, worker: int) -> np.ndarray:
        visits = self._visits[worker]
        return visits[visits >= 0]

    def _steps(self, worker: int, handed_out: int) -> int:
        """Steps of the epoch that are covered once so many units were handed out.

        Up to the next, if there is one.
        """
        steps = np.flatnonzero(self._visits[worker] >= 0)
        return int(steps[handed_out]) if handed_out < len(steps) else self._shape.n

    def _walk(self, worker: int) -> Iterator[int]:
        """Hands out a worker's units, until the epoch is over."""
        if self._opened[worker]:
            raise RuntimeError(
                f"the units of worker {worker} were handed out in this epoch; call end_epoch() for"
                " the next order"
            )
        self._opened[worker] = True
        return self._units(worker, self._epoch)

    def _units(self, worker: int, epoch: int) -> Iterator[int]:
        for number, unit in enumerate(self._indices(worker).tolist()):
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
        """Iterates over this epoch's units.

        Raises:
            RuntimeError: They were handed out before, and the epoch has not ended; or it ended
                meanwhile.
        """
        return self.source._walk(self.worker)


@dataclass(frozen=True, eq=False)
class EpochView:
    """A data source with random access: item t is the unit of step t of one epoch.

    `IndexSource.view` makes it.

    It stays as it is, so it may be read ahead or by other processes, and it ends with its epoch:
    make another for the next.
    """

    data: Any
    indices: np.ndarray  # int32[n]

    def __len__(self) -> int:
        """Units of the epoch."""
        return len(self.indices)

    def __getitem__(self, step: int) -> Any:
        """The unit of a step.

        Raises:
            IndexError: The epoch has no such step.
        """
        if not 0 <= step < len(self.indices):
            raise IndexError(f"step must be in 0..{len(self.indices) - 1}, got {step}")
        return self.data[int(self.indices[step])]
