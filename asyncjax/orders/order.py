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
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import flag, function_of, one_key, shown, whole
from asyncjax.orders.arguments import check_distinct
from asyncjax.orders.shards import LARGEST


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

    def __post_init__(self) -> None:
        function_of("visits", self.visits, "state")
        function_of("observe", self.observe, "state", "worker", "visit", "gradient")
        function_of("end_epoch", self.end_epoch, "state", "worker", "is_last")


@dataclass(frozen=True)
class Order:
    """Pure functions of an example order, and what is known of it before it runs.

    An epoch has n steps; a unit of data (an example or a microbatch) is visited at each.

    All leaves of a state are jax arrays with fixed shapes and dtypes, so that it goes through
    `jit`, `scan`, `vmap` over keys and donation, and can be saved and restored at any step.

    The orders of this room copy NumPy arrays before they look at them, so that a buffer may be used
    again at once. In a `jit` of one's own the program may read the buffer until it has finished.

    The first four fields make an order of one's own; the rest has defaults. `check_order` says
    whether it keeps the contract.

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
        function_of("init", self.init, "key")
        function_of("permutation", self.permutation, "state")
        function_of("observe", self.observe, "state", "positions", "gradients")
        function_of("end_epoch", self.end_epoch, "state")
        for name, most in (("n", LARGEST), ("n_workers", LARGEST), ("dim", None)):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), most=most)
        flag("needs_gradients", self.needs_gradients)
        if self.on_arrival is not None and not isinstance(self.on_arrival, ArrivalOrder):
            raise TypeError(
                f"on_arrival must be an ArrivalOrder or None, got {shown(self.on_arrival)}"
            )
        if self.counts is not None:
            _check_counts(self.counts, self.n, self.n_workers)


def _check_counts(counts: Any, n: int | None, n_workers: int | None) -> None:
    """Refuses counts that are not those of the workers of an order."""
    if not isinstance(counts, tuple):
        raise TypeError(f"counts must be a tuple of integers or None, got {shown(counts)}")
    for j, count in enumerate(counts):
        whole(f"counts[{j}]", count, most=LARGEST if n is None else n)
    if len(counts) != n_workers:
        raise ValueError(f"counts must be of n_workers = {n_workers} workers, got {len(counts)}")
    if n is not None and max(counts) != n:
        raise ValueError(f"counts must have n = {n} as the largest, got {max(counts)}")


def check_order(order: Order, key: jax.Array | None = None) -> None:
    """Refuses an order of one's own that breaks the contract of `Order`.

    It is begun, read, turned to its second epoch and read again; what `observe` returns is looked
    at without computing it. An order of this room passes at once.

    Example:
        >>> late = Order(
        ...     init=lambda key: jnp.arange(3) + 1,
        ...     permutation=lambda state: state,
        ...     observe=lambda state, positions, gradients: state,
        ...     end_epoch=lambda state: state,
        ... )
        >>> check_order(late)
        Traceback (most recent call last):
        ...
        ValueError: permutation of order must have each of 0 .. 2 once, got 3
    """
    if not isinstance(order, Order):
        raise TypeError(f"order must be an Order, as its factories make it, got {shown(order)}")
    if key is not None:
        one_key("key", key)
    functions = (order.init, order.permutation, order.observe, order.end_epoch)
    rooms = (getattr(one, "__module__", None) or "" for one in functions)
    if all(room.startswith("asyncjax.orders.") and room != __name__ for room in rooms):
        return
    with jax.ensure_compile_time_eval():
        state = order.init(jax.random.key(0) if key is None else key)
        _check_visits(order, order.permutation(state))
        like = jax.eval_shape(lambda: state)
        seen = _observed(order, state)
        if seen is not None:
            _check_same("observe", like, seen)
        _check_same("end_epoch", like, jax.eval_shape(order.end_epoch, state))
        _check_visits(order, order.permutation(order.end_epoch(state)))


def _observed(order: Order, state: Any) -> Any:
    """What `observe` returns for one step, its shapes; None where the gradients are not known."""
    positions = jax.ShapeDtypeStruct((1,), jnp.int32)
    if not order.needs_gradients:
        return jax.eval_shape(
            lambda state, steps: order.observe(state, steps, None), state, positions
        )
    if order.dim is None:
        return None
    workers = () if order.n_workers is None else (order.n_workers,)
    rows = jax.ShapeDtypeStruct((*workers, 1, order.dim), jnp.float32)
    return jax.eval_shape(order.observe, state, positions, rows)


def _check_visits(order: Order, visited: Any) -> None:
    """Refuses what is no permutation int[n] or int[m, n]."""
    try:
        visits = np.asarray(visited)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"permutation of order must return an array of integers, got {shown(visited)}"
        ) from error
    if not jnp.issubdtype(visits.dtype, jnp.integer):
        raise TypeError(f"permutation of order must return integers, got {visits.dtype}")
    workers, n = order.n_workers, order.n
    single = visits.ndim == 1 and workers is None
    shape = (None, *visits.shape) if single else visits.shape
    if (
        len(shape) != 2
        or 0 in shape
        or (workers is not None and shape[0] != workers)
        or n not in (None, shape[1])
    ):
        words = f"[{'n' if n is None else n}]"
        words = words if workers is None else f"[{workers}, {words[1:]}"
        raise ValueError(f"permutation of order must have shape {words}, got {list(visits.shape)}")
    rows = visits[None] if single else visits
    counts = (rows.shape[1],) * len(rows) if order.counts is None else order.counts
    for worker, (row, count) in enumerate(zip(rows, counts, strict=True)):
        whose = "" if single else f" for worker {worker}"
        name = f"permutation of order{whose}"
        own = row[row != -1] if count < len(row) else row
        check_distinct(name, own, count)
        if len(own) != count:
            raise ValueError(
                f"{name} must have each of 0 .. {count - 1} once, got {len(own)} visits"
            )


def _check_same(name: str, before: Any, after: Any) -> None:
    """Refuses a state of another structure, shape or dtype than the one before."""
    old, new = jax.tree.structure(before), jax.tree.structure(after)
    if old != new:
        raise ValueError(
            f"{name} of order must return a state like that of init, {shown(old)}, got {shown(new)}"
        )
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True
    ):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            where = f"state{jax.tree_util.keystr(path)}"
            raise ValueError(
                f"{name} of order must return a state like that of init, whose {where} is"
                f" {one.dtype}{list(one.shape)}, got {other.dtype}{list(other.shape)}"
            )
