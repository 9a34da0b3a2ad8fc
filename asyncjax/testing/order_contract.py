"""What a good example order does: permutations, states that never change their form, compilation.

An order is four pure functions of a state, a pytree of jax arrays. All that it remembers is in the
state, all its randomness in the key that `init` gets.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import instance, shown, whole
from asyncjax.orders import Order
from asyncjax.testing.failures import fails_as, first_difference, given_key

_ROWS = 3  # of a batch


def check_order_epochs(
    order: Order, *, key: jax.Array | None = None, n_epochs: int = 3, dim: int = 3
) -> None:
    """Checks that every epoch visits every example once, and that the key decides how.

    Epochs are observed in batches, in which the order stays as it is, and gone through twice.

    Args:
        order: The order.
        key: Typed key that it begins with; None for `jax.random.key(0)`.
        n_epochs: Number of epochs.
        dim: Length of the example gradients, for an order that does not state its own.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a function fails, an epoch is no permutation, an order changes within an
            epoch, or the second time is not like the first.

    Example:
        >>> from asyncjax import orders
        >>> check_order_epochs(orders.reshuffled(5))
    """
    key, n_epochs, dim = _arguments(order, key, n_epochs, dim)
    visited = []
    for turn in ("once", "again"):
        state, visits = _begun(order, key), []
        for epoch in range(n_epochs):
            visits.append(_visits(order, state, f"epoch {epoch}"))
            for positions, gradients in _batches(order, visits[0], epoch, dim):
                state = _observed(order, state, positions, gradients)
                now = _visits(order, state, f"epoch {epoch}")
                if (place := first_difference(visits[-1], now)) is not None:
                    raise AssertionError(
                        "permutation of the order must stay as it is until end_epoch, got example"
                        f" {now[place]} and not {visits[-1][place]} at step {place[-1]} of epoch"
                        f" {epoch} after observe"
                    )
            with fails_as("end_epoch of the order must turn to the next epoch"):
                state = order.end_epoch(state)
        visits.append(_visits(order, state, f"epoch {n_epochs}"))
        visited.append(np.stack(visits))
        if turn == "again" and (place := first_difference(*visited)) is not None:
            raise AssertionError(
                "the order must be the same every time it begins with one key, got example"
                f" {visited[1][place]} and then {visited[0][place]} at step {place[-1]} of epoch"
                f" {place[0]}"
            )


def check_order_state(order: Order, *, key: jax.Array | None = None, dim: int = 3) -> None:
    """Checks that the state is a pytree of jax arrays that keep their shapes and dtypes.

    Args:
        order: The order.
        key: Typed key that it begins with; None for `jax.random.key(0)`.
        dim: Length of the example gradients, for an order that does not state its own.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a leaf is no jax array, is weakly typed, or differs after `observe` or
            `end_epoch`.

    Example:
        >>> from asyncjax import orders
        >>> check_order_state(orders.grab(5, 3))
    """
    key, _, dim = _arguments(order, key, 1, dim)
    first = _begun(order, key)
    for path, leaf in jax.tree_util.tree_leaves_with_path(first):
        name = f"state{jax.tree_util.keystr(path)} of the order"
        if not isinstance(leaf, jax.Array):
            raise AssertionError(f"{name} must be a jax array after init, got {shown(leaf)}")
        if getattr(leaf, "weak_type", False):  # a typed key has none
            raise AssertionError(
                f"{name} must have a dtype of its own after init, got a weak {leaf.dtype}"
            )
    visits = _visits(order, first, "epoch 0")
    state = first
    for positions, gradients in _batches(order, visits, 0, dim):
        state = _observed(order, state, positions, gradients)
        _same_form(first, state, "observe")
    with fails_as("end_epoch of the order must turn to the next epoch"):
        ended = order.end_epoch(state)
    _same_form(first, ended, "end_epoch")


def check_order_compiled(
    order: Order, *, key: jax.Array | None = None, n_epochs: int = 3, dim: int = 3
) -> None:
    """Checks that epochs in `jax.lax.scan` under `jax.vmap` over keys are those of a Python loop.

    The loop shows each epoch in batches and without padding; the scan at once, with two rows of NaN
    behind, whose steps lie outside the epoch: where the epoch is cut and what is padding must not
    matter.

    Args:
        order: The order.
        key: Typed key that it begins with; None for `jax.random.key(0)`.
        n_epochs: Number of epochs.
        dim: Length of the example gradients, for an order that does not state its own.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a function cannot be compiled, or compiled epochs are others.

    Example:
        >>> from asyncjax import orders
        >>> check_order_compiled(orders.shuffled_once(5))
    """
    key, n_epochs, dim = _arguments(order, key, n_epochs, dim)
    keys = jnp.stack([key, jax.random.fold_in(key, 1)])
    first = _visits(order, _begun(order, key), "epoch 0")
    n = first.shape[-1]
    positions = np.append(np.arange(n), (-1, n + 5)).astype(np.int32)
    rows = None
    if order.needs_gradients:
        rows = np.stack([_gradients(order, first, epoch, dim) for epoch in range(n_epochs)])
        padding = np.full((*rows.shape[:-2], 2, rows.shape[-1]), np.nan, np.float32)
        rows = np.concatenate([rows, padding], axis=-2)

    def epoch(state: Any, gradients: Any) -> Any:
        visited = order.permutation(state)
        return order.end_epoch(order.observe(state, positions, gradients)), visited

    def run(key: jax.Array) -> jax.Array:
        state, visited = jax.lax.scan(epoch, order.init(key), rows, length=n_epochs)
        return jnp.concatenate([visited, order.permutation(state)[None]])

    with fails_as("functions of the order must go through jax.jit, jax.lax.scan and jax.vmap"):
        compiled = np.asarray(jax.jit(jax.vmap(run))(keys))
    for number, one in enumerate(keys):
        state = _begun(order, one)
        for at in range(n_epochs + 1):
            alone = _visits(order, state, f"epoch {at}")
            if (place := first_difference(alone, compiled[number, at])) is not None:
                raise AssertionError(
                    "the order must be the same in a scan that observes each epoch at once, with"
                    " padding behind, as in a loop that observes it in batches, got example"
                    f" {compiled[number, at][place]} and not {alone[place]} at step {place[-1]} of"
                    f" epoch {at}"
                )
            if at < n_epochs:
                for steps, gradients in _batches(order, first, at, dim):
                    state = _observed(order, state, steps, gradients)
                state = order.end_epoch(state)


def _arguments(order: Any, key: Any, n_epochs: Any, dim: Any) -> tuple[jax.Array, int, int]:
    """Reads the arguments that the checks share."""
    instance("order", order, Order, "an Order, as its factories make it")
    key, n_epochs, dim = given_key("key", key), whole("n_epochs", n_epochs), whole("dim", dim)
    return key, n_epochs, dim if order.dim is None else order.dim


def _begun(order: Order, key: jax.Array) -> Any:
    with fails_as("init of the order must make a state of a key"):
        return order.init(key)


def _observed(order: Order, state: Any, positions: Any, gradients: Any) -> Any:
    with fails_as(f"observe of the order must take steps {positions.tolist()} of an epoch"):
        return order.observe(state, positions, gradients)


def _visits(order: Order, state: Any, when: str) -> np.ndarray:
    """The examples of an epoch, int[n] or int[m, n]; refused if they are no permutation."""
    what = "permutation of the order must"
    with fails_as(f"{what} give the examples of an epoch"):
        visits = np.asarray(order.permutation(state))
    kind = f"int32[{'n' if order.n is None else order.n}]"
    if order.n_workers is not None:
        kind = f"int32[{order.n_workers}, {kind[6:]}"
    leads = () if order.n_workers is None else (order.n_workers,)
    fits = visits.ndim == len(leads) + 1 and visits.shape[:-1] == leads and visits.size > 0
    if not fits or order.n not in (None, visits.shape[-1]) or visits.dtype != np.int32:
        raise AssertionError(f"{what} be {kind}, got {visits.dtype}{list(visits.shape)} in {when}")
    rows = visits.reshape(-1, visits.shape[-1])
    n = rows.shape[1]
    for worker, row in enumerate(rows):
        count = n if order.counts is None else order.counts[worker]
        expected = [-1] * (n - count) + list(range(count))
        if sorted(row.tolist()) != expected:
            whose = "" if order.n_workers is None else f" of worker {worker}"
            idle = f" and -1 at {n - count} steps" if count < n else ""
            raise AssertionError(
                f"{what} have each of 0 .. {count - 1} once{idle}, got {shown(row.tolist())}"
                f"{whose} in {when}"
            )
    return visits


def _gradients(order: Order, visits: np.ndarray, epoch: int, dim: int) -> np.ndarray:
    """Gradients of the steps of an epoch, float32[n, dim] or [m, n, dim]: fixed numbers."""
    shape = (*visits.shape, dim)
    numbers = np.arange(1, int(np.prod(shape)) + 1) * (1.0 + 0.1 * epoch)
    return np.cos(numbers).reshape(shape).astype(np.float32)


def _batches(order: Order, visits: np.ndarray, epoch: int, dim: int) -> list[tuple[Any, Any]]:
    """Steps and gradients of an epoch, three rows at a time."""
    gradients, n = _gradients(order, visits, epoch, dim), visits.shape[-1]
    cuts = [np.arange(at, min(at + _ROWS, n), dtype=np.int32) for at in range(0, n, _ROWS)]
    needs = order.needs_gradients
    return [(steps, gradients[..., steps, :] if needs else None) for steps in cuts]


def _same_form(before: Any, after: Any, name: str) -> None:
    """Refuses a state of another structure, or with a leaf of another kind."""
    old, new = jax.tree.structure(before), jax.tree.structure(after)
    if old != new:
        raise AssertionError(
            f"{name} of the order must give a state like that of init, {shown(old)}, got"
            f" {shown(new)}"
        )
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True
    ):
        where = f"state{jax.tree_util.keystr(path)}"
        if not isinstance(other, jax.Array):
            raise AssertionError(
                f"{name} of the order must keep {where} a jax array, got {shown(other)}"
            )
        kinds = [
            f"{'weak ' if getattr(leaf, 'weak_type', False) else ''}{leaf.dtype}{list(leaf.shape)}"
            for leaf in (one, other)
        ]
        if kinds[0] != kinds[1]:
            raise AssertionError(
                f"{name} of the order must keep {where} {kinds[0]}, as init makes it, got"
                f" {kinds[1]}"
            )
