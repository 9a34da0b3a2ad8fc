"""An example order: which example is visited at which step of an epoch.

    state = init(key)                                 before the first epoch
    o = permutation(state)                            of this epoch
    state = observe(state, steps, gradients)          as often as there are batches
    state = end_epoch(state)

Four pure functions. An order may look at the gradients of an epoch and choose the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from asyncjax.checks import whole


@dataclass(frozen=True)
class ArrivalOrder:
    """How m workers learn an order when they are not in step: every worker has epochs of its own.

    Attributes:
        visits: State -> int32[m, n], the examples of each worker in its present sequence; the first
            counts[j] entries of row j are its examples.
        observe: (state, worker int[], visit int[], gradient float[d]) -> state. The gradient of the
            worker's visit number 0 .. counts[j]-1 of its present epoch; each worker's visits come
            in increasing sequence, with gaps where a gradient was lost; a visit of -1 changes
            nothing.
        end_epoch: (state, worker int[], is_last bool[]) -> state. This worker turns to its next
            epoch; `is_last` says that all others have left the epoch before.
    """

    visits: Callable[[Any], jax.Array]
    observe: Callable[[Any, Any, Any, Any], Any]
    end_epoch: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Order:
    """Pure functions of an example order, and what is known of it before it runs.

    An epoch has n steps; a unit of data (an example or a microbatch) is visited at each.

    All leaves of a state are jax arrays with fixed shapes and dtypes, so that it goes through
    `jit`, `scan`, `vmap` over keys and donation, and can be saved and restored at any step.

    The orders of this room copy NumPy arrays before they look at them, so that a buffer may be used
    again at once. In a `jit` of one's own the program may read the buffer until it has finished.

    The first four fields make an order of one's own; the rest has defaults. `testing.check_order`
    says whether it keeps the contract.

    Attributes:
        init: `(key) -> state`, before the first epoch; the key is typed (`jax.random.key`).
        permutation: `(state) -> int32[n]`: entry t is the example of step t. With m workers
            int32[m, n], each row in local indices of its worker. It stays as it is within an epoch.
        observe: `(state, positions, gradients) -> state`, tells the order the gradients
            float[B, d] (m workers: [m, B, d]) of the steps int32[B] of this epoch. Steps come in
            increasing sequence without gaps, in batches of any size; where the epoch is cut changes
            nothing. A row whose step lies outside 0 .. n-1 is padding: it is ignored, even if it is
            NaN. The orders of this room refuse NaN and infinity in other rows, and steps out of
            sequence, unless they are traced: traced, signs are what comparisons with NaN make of
            them, and the order stays a permutation.
        end_epoch: `(state) -> state`, turns to the next epoch.
        n: Steps of an epoch: examples (of the worker that has most); None if not known.
        n_workers: Number of workers m; None for an order of one worker without the leading axis.
        counts: With m workers, the examples of each. A worker with fewer than n is idle at n -
            counts[j] steps of the epoch: there `permutation` is -1, and its gradients are ignored.
        dim: Length d of the gradients that `observe` takes; None if it ignores them.
        needs_gradients: False if `observe` may be left out, or be given None for the gradients; a
            training loop then has no need of one gradient per example.
        on_arrival: How it learns in an asynchronous run; None if only from workers in step.

    Example:
        Always backwards:

        >>> import jax.numpy as jnp
        >>> backwards = Order(
        ...     init=lambda key: jnp.arange(4, dtype=jnp.int32)[::-1],
        ...     permutation=lambda state: state,
        ...     observe=lambda state, positions, gradients: state,
        ...     end_epoch=lambda state: state,
        ... )
        >>> backwards.permutation(backwards.init(jax.random.key(0))).tolist()
        [3, 2, 1, 0]
    """

    init: Callable[[jax.Array], Any]
    permutation: Callable[[Any], jax.Array]
    observe: Callable[[Any, Any, Any], Any]
    end_epoch: Callable[[Any], Any]
    n: int | None = None
    n_workers: int | None = None
    counts: tuple[int, ...] | None = None
    dim: int | None = None
    needs_gradients: bool = True
    on_arrival: ArrivalOrder | None = None

    def __post_init__(self) -> None:
        for name in ("n", "n_workers", "dim"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        if self.counts is None:
            return
        if len(self.counts) != self.n_workers or self.n not in (None, max(self.counts)):
            raise ValueError(
                f"counts must be of n_workers = {self.n_workers} workers, with n = {self.n} as the"
                f" largest, got {self.counts}"
            )
