"""What a good example order does: permutations, states that never change their form, compilation.

An order is four pure functions of a state, a pytree of jax arrays. All that it remembers is in the
state, all its randomness in the key that `init` gets. What passes goes through `jit`, `scan` and
`vmap` over keys, and can be saved at any step.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import shown, whole
from asyncjax.orders import Order
from asyncjax.testing.failures import (
    check_initial_state,
    check_same_form,
    fails_as,
    first_difference,
    given_key,
)

_ROWS = 3  # of a batch


def check_order(
    order: Order, *, key: jax.Array | None = None, n_epochs: int = 3, dim: int = 3
) -> None:
    """Checks an order: its permutations, its state, and that it can be compiled.

    - its state is a pytree of jax arrays that keep their shapes and dtypes;
    - every epoch visits every example once, stays as it is until `end_epoch`, and is the same
      every time the order begins with one key;
    - epochs in `jax.lax.scan` under `jax.vmap` over keys are those of a Python loop.

    How an order learns in asynchronous runs (`Order.on_arrival`) is not looked at.

    Args:
        order: The order.
        key: Typed key that it begins with; None for `jax.random.key(0)`.
        n_epochs: Number of epochs.
        dim: Length of the example gradients, for an order that does not state its own.

    Example:
        An order that draws with replacement:

        >>> import jax
        >>> from asyncjax.orders import Order
        >>> order = Order(
        ...     init=lambda key: key,
        ...     permutation=lambda key: jax.random.randint(key, (4,), 0, 4),
        ...     observe=lambda key, positions, gradients: key,
        ...     end_epoch=lambda key: jax.random.fold_in(key, 1),
        ... )
        >>> check_order(order)
        Traceback (most recent call last):
        ...
        AssertionError: permutation of the order must have each of 0 .. 3 once, got [1, 0, \
0, 1] in epoch 0
    """
    key, n_epochs, dim = given_key("key", key), whole("n_epochs", n_epochs), whole("dim", dim)
    dim = dim if order.dim is None else order.dim
    keys = jnp.stack([key, jax.random.fold_in(key, 1)])
    first, again, other = (_epochs(order, one, n_epochs, dim) for one in (key, *keys))
    if (at := first_difference(first, again)) is not None:
        raise AssertionError(
            "the order must be the same every time it begins with one key, got example"
            f" {again[at]} and then {first[at]} at step {at[-1]} of epoch {at[0]}"
        )
    compiled = _compiled_epochs(order, keys, first, dim)
    alone = np.stack([first, other])
    if (at := first_difference(alone, compiled)) is not None:
        raise AssertionError(
            "the order must be the same in a scan that observes each epoch at once, with padding"
            f" behind, as in a loop that observes it in batches, got example {compiled[at]} and"
            f" not {alone[at]} at step {at[-1]} of epoch {at[1]}"
        )


def _epochs(order: Order, key: jax.Array, n_epochs: int, dim: int) -> np.ndarray:
    """The examples of `n_epochs` epochs and of the one behind, observed in batches in a loop.

    Every state is looked at, and that observing does not change the epoch.

    Returns:
        int32[n_epochs + 1, n], or [n_epochs + 1, m, n] of m workers.
    """
    with fails_as("init of the order must make a state of a key"):
        state = first = order.init(key)
    check_initial_state(first, "the order")
    visited = [_visits(order, state, 0)]
    positions = np.arange(visited[0].shape[-1], dtype=np.int32)
    for epoch in range(n_epochs):
        gradients = _gradients(visited[0], epoch, dim)
        for steps in np.split(positions, range(_ROWS, len(positions), _ROWS)):
            rows = gradients[..., steps, :] if order.needs_gradients else None
            with fails_as(f"observe of the order must take steps {steps.tolist()} of an epoch"):
                state = order.observe(state, steps, rows)
            check_same_form(first, state, "observe of the order")
            now = _visits(order, state, epoch)
            if (at := first_difference(visited[-1], now)) is not None:
                raise AssertionError(
                    "permutation of the order must stay as it is until end_epoch, got example"
                    f" {now[at]} and not {visited[-1][at]} at step {at[-1]} of epoch {epoch} after"
                    " observe"
                )
        with fails_as("end_epoch of the order must turn to the next epoch"):
            state = order.end_epoch(state)
        check_same_form(first, state, "end_epoch of the order")
        visited.append(_visits(order, state, epoch + 1))
    return np.stack(visited)


def _compiled_epochs(order: Order, keys: jax.Array, visited: np.ndarray, dim: int) -> np.ndarray:
    """What `_epochs` gives for several keys, of one compiled program, int32[keys, *visited.shape].

    Every epoch is observed at once, with two rows of NaN behind, whose steps lie outside it: where
    the epoch is cut and what is padding must not matter.
    """
    n_epochs, n, rows = len(visited) - 1, visited.shape[-1], None
    positions = np.append(np.arange(n), (-1, n + 5)).astype(np.int32)
    if order.needs_gradients:
        rows = np.stack([_gradients(visited[0], epoch, dim) for epoch in range(n_epochs)])
        widths = [(0, 0)] * (rows.ndim - 2) + [(0, 2), (0, 0)]
        rows = np.pad(rows, widths, constant_values=np.nan)

    def epoch(state: Any, gradients: Any) -> Any:
        visits = order.permutation(state)
        return order.end_epoch(order.observe(state, positions, gradients)), visits

    def run(key: jax.Array) -> jax.Array:
        state, visits = jax.lax.scan(epoch, order.init(key), rows, length=n_epochs)
        return jnp.concatenate([visits, order.permutation(state)[None]])

    with fails_as("functions of the order must go through jax.jit, jax.lax.scan and jax.vmap"):
        return np.asarray(jax.jit(jax.vmap(run))(keys))


def _visits(order: Order, state: Any, epoch: int) -> np.ndarray:
    """The examples of an epoch, int[n] or int[m, n]; refused if they are no permutation."""
    what, when = "permutation of the order must", f"in epoch {epoch}"
    with fails_as(f"{what} give the examples of an epoch"):
        visits = np.asarray(order.permutation(state))
    leads = () if order.n_workers is None else (order.n_workers,)
    fits = visits.ndim == len(leads) + 1 and visits.shape[:-1] == leads and visits.size > 0
    if not fits or order.n not in (None, visits.shape[-1]) or visits.dtype != np.int32:
        kind = ", ".join(map(str, (*leads, "n" if order.n is None else order.n)))
        raise AssertionError(
            f"{what} be int32[{kind}], got {visits.dtype}{list(visits.shape)} {when}"
        )
    n = visits.shape[-1]
    for worker, row in enumerate(visits.reshape(-1, n)):
        count = n if order.counts is None else order.counts[worker]
        if sorted(row.tolist()) != [-1] * (n - count) + list(range(count)):
            whose = "" if order.n_workers is None else f" of worker {worker}"
            idle = f" and -1 at {n - count} steps" if count < n else ""
            raise AssertionError(
                f"{what} have each of 0 .. {count - 1} once{idle}, got {shown(row.tolist())}"
                f"{whose} {when}"
            )
    return visits


def _gradients(visits: np.ndarray, epoch: int, dim: int) -> np.ndarray:
    """Gradients of the steps of an epoch, float32[n, dim] or [m, n, dim]: fixed numbers."""
    shape = (*visits.shape, dim)
    numbers = np.arange(1, int(np.prod(shape)) + 1) * (1.0 + 0.1 * epoch)
    return np.cos(numbers).reshape(shape).astype(np.float32)
