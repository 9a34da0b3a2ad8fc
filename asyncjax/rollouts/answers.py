r"""What is asked of a prompt of n symbols 0..m-1: one right answer, so that it can be checked.

.. math:: \text{copying: } a_t = q_t, \qquad \text{sorting: } a = \mathrm{sort}(q), \qquad
          \text{sums: } a_t = \sum_{s \le t} q_s \bmod m

Each has as many symbols as the prompt; the last can also ask for the sum of all alone, and then all
right answers have one length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from asyncjax.checks import flag

Answer = tuple[jax.Array, jax.Array]  # int32[A], of which so many are asked: int32[]
Task = Callable[[jax.Array, jax.Array, int], Answer]


@dataclass(frozen=True)
class Copying:
    """The symbols as they are."""

    def __call__(self, symbols: jax.Array, count: jax.Array, n_symbols: int) -> Answer:
        """Returns the answer and its length."""
        return symbols, count


@dataclass(frozen=True)
class Sorting:
    """The symbols, the smallest first."""

    def __call__(self, symbols: jax.Array, count: jax.Array, n_symbols: int) -> Answer:
        """Returns the answer and its length."""
        inside = jnp.arange(symbols.size) < count
        return jnp.sort(jnp.where(inside, symbols, n_symbols)), count


@dataclass(frozen=True)
class ModularSums:
    """The sums of the first symbols, modulo m; all of them, or the last alone."""

    running: bool

    def __call__(self, symbols: jax.Array, count: jax.Array, n_symbols: int) -> Answer:
        """Returns the answer and its length."""
        inside = jnp.arange(symbols.size) < count
        sums = jnp.cumsum(jnp.where(inside, symbols, 0)).astype(symbols.dtype) % n_symbols
        return (sums, count) if self.running else (sums[-1:], jnp.ones_like(count))


def copying() -> Copying:
    """Returns the task to write the symbols of the prompt again.

    Returns:
        A task for `token_task`, with answers as long as the prompt.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import rollouts
        >>> answer, length = rollouts.copying()(jnp.array([2, 0, 1]), jnp.int32(3), 4)
        >>> answer.tolist(), int(length)
        ([2, 0, 1], 3)
    """
    return Copying()


def sorting() -> Sorting:
    """Returns the task to write the symbols of the prompt in order, the smallest first.

    Returns:
        A task for `token_task`, with answers as long as the prompt.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import rollouts
        >>> answer, length = rollouts.sorting()(jnp.array([2, 0, 1]), jnp.int32(3), 4)
        >>> answer.tolist(), int(length)
        ([0, 1, 2], 3)
    """
    return Sorting()


def modular_sums(*, running: bool = True) -> ModularSums:
    """Returns the task to add the symbols of the prompt, modulo how many different ones there are.

    Args:
        running: Whether the sums of the first, the first two, ... symbols are asked; otherwise that
            of all alone.

    Returns:
        A task for `token_task`, with answers as long as the prompt; of one symbol if not `running`.

    Raises:
        TypeError: If `running` is neither True nor False.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import rollouts
        >>> answer, length = rollouts.modular_sums()(jnp.array([2, 3, 1]), jnp.int32(3), 4)
        >>> answer.tolist(), int(length)
        ([2, 1, 2], 3)
    """
    return ModularSums(flag("running", running))
