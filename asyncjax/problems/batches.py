r"""Batches: which rows of its shard a worker uses for a job.

A batch rule maps the size m of the shard, the worker's job number j and the job's key to
positions in the shard:

.. math:: \text{whole: } 0, \dots, m - 1 \qquad \text{cyclic: } (jB + r) \bmod m \qquad
          \text{uniform: } \xi_r \sim U\{0, \dots, m - 1\}, \qquad r = 0, \dots, B - 1

and `without_replacement` to the beginning of a random permutation of :math:`0, \dots, m - 1`.

A rule of your own is any hashable function `(size, capacity, job, key) -> (positions, valid)`; it
is traced once when a problem is made with it, to check what it returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import checks
from asyncjax.problems.shards import Shards

Rows = tuple[jax.Array, jax.Array]  # positions int32[b], valid bool[b]
_LAST, _PACKED = np.uint32(0xFFFFFFFF), 4096


class Batch(Protocol):
    """A hashable rule that chooses a job's rows; equal rules share a compilation."""

    def __call__(self, size: jax.Array, capacity: int, job: Any, key: jax.Array) -> Rows:
        """Returns the positions of a job's rows in the worker's shard.

        Args:
            size: An int32 scalar, the rows in this worker's shard.
            capacity: The rows in the largest shard.
            job: An int32 scalar, how many jobs this worker had started before.
            key: A typed key.

        Returns:
            Positions int32[b] in 0..capacity-1, and valid bool[b]: False marks padding, which
            counts for nothing.
        """
        ...


@dataclass(frozen=True)
class Whole:
    """All rows of the shard."""

    def __call__(self, size: jax.Array, capacity: int, job: Any, key: jax.Array) -> Rows:
        """Returns every position, those beyond the shard's end marked as padding."""
        positions = jnp.arange(capacity, dtype=jnp.int32)
        return positions, positions < size


@dataclass(frozen=True)
class Cyclic:
    """The next `size` rows of the shard, round and round."""

    size: int

    def __call__(self, size: jax.Array, capacity: int, job: Any, key: jax.Array) -> Rows:
        """Returns positions (job B + 0..B-1) mod m, exact for every job number."""
        rows = jnp.asarray(size).astype(jnp.uint32)
        turn = jnp.asarray(job).astype(jnp.uint32) % rows
        first = jnp.zeros_like(turn)
        for digit in f"{self.size:b}":  # Horner's rule modulo m: job * B itself may overflow
            first = (2 * first + (turn if digit == "1" else 0)) % rows
        positions = (first + jnp.arange(self.size, dtype=jnp.uint32) % rows) % rows
        return positions.astype(jnp.int32), jnp.ones(self.size, bool)


@dataclass(frozen=True)
class Uniform:
    """`size` rows of the shard drawn with replacement."""

    size: int

    def __call__(self, size: jax.Array, capacity: int, job: Any, key: jax.Array) -> Rows:
        """Returns independent uniform positions in 0..m-1."""
        positions = jax.random.randint(key, (self.size,), 0, size, dtype=jnp.int32)
        return positions, jnp.ones(self.size, bool)


@dataclass(frozen=True)
class WithoutReplacement:
    """`size` rows of the shard, no row twice; or the first `load` of them, where one is given.

    With a traced `load` the rule only serves inside compiled code: it cannot be hashed. Of two rows
    of a shard of up to 4096 the first comes first with a probability that is off 1/2 by 2^-21 at
    most.
    """

    size: int
    load: Any = None  # float or int scalar, at most `size`; None for all

    def __call__(self, size: jax.Array, capacity: int, job: Any, key: jax.Array) -> Rows:
        """Returns the beginning of a random permutation of the shard; a larger load adds to it."""
        places = jnp.arange(capacity, dtype=jnp.uint32)
        bits = jax.random.bits(key, (capacity,), jnp.uint32)
        bits = jnp.where(places < jnp.asarray(size).astype(jnp.uint32), bits, _LAST)
        if capacity <= _PACKED:  # a place in the lowest bits: one number sorts six times faster
            low = jnp.uint32((1 << (capacity - 1).bit_length()) - 1)
            positions = jnp.sort((bits & ~low) | places) & low
        else:  # the sort is stable: padding stays behind rows
            positions = jnp.argsort(bits)
        positions = positions[: self.size].astype(jnp.int32)
        count = jnp.asarray(self.size if self.load is None else self.load)
        numbers = jnp.arange(positions.size)
        return positions, (numbers < count) & (numbers < size)


def check_batch(batch: Any, shards: Shards) -> None:
    """Refuses what is no batch rule, and a batch of more rows than the largest shard.

    Example:
        >>> check_batch(cyclic(3), Shards(np.array([[0, 1]]), np.array([2])))
        Traceback (most recent call last):
        ...
        ValueError: batch must take at most 2 rows, those of the largest shard, got Cyclic(size=3)
    """
    if not callable(batch):
        raise TypeError(
            f"batch must be a rule such as whole(), cyclic(16) or uniform(16), got {batch!r}"
        )
    try:
        hash(batch)
    except TypeError as error:
        raise TypeError(
            f"batch must be hashable, so that compilations can be shared, got {batch!r}"
        ) from error
    largest = int(shards.size.max())
    if isinstance(batch, Cyclic | Uniform | WithoutReplacement):
        if batch.size > largest:
            raise ValueError(
                f"batch must take at most {largest} rows, those of the largest shard, got {batch}"
            )
    elif not isinstance(batch, Whole):
        _check_own(batch, shards.rows.shape[1])


def _check_own(batch: Any, capacity: int) -> None:
    """Refuses a person's own rule that does not return positions and which of them count."""
    answer = " -> (positions int[b], valid bool[b])"
    checks.function_of("batch", batch, "size", "capacity", "job", "key", reason=answer)
    number, key = jax.ShapeDtypeStruct((), jnp.int32), jax.eval_shape(jax.random.key, 0)
    found = jax.eval_shape(
        lambda size, job, key: batch(size, capacity, job, key), number, number, key
    )
    parts = found if isinstance(found, tuple) and len(found) == 2 else (None, None)
    shapes = [getattr(part, "shape", ()) for part in parts]
    kinds = [getattr(getattr(part, "dtype", None), "kind", "") for part in parts]
    fits = shapes[0] == shapes[1] and len(shapes[0]) == 1
    if not (fits and kinds[0] in ("i", "u") and kinds[1] == "b"):
        raise TypeError(f"batch must be a function{answer}, got one that returns {found}")


def whole() -> Whole:
    """Returns the rule that takes every row of the shard: the exact gradient of f_i.

    With shards of unequal size the padding is masked, so the loss is the mean over the rows that
    the worker really has.

    Returns:
        The rule.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> positions, valid = problems.whole()(3, 4, 0, jax.random.key(0))
        >>> positions.tolist(), valid.tolist()
        ([0, 1, 2, 3], [True, True, True, False])
    """
    return Whole()


def cyclic(size: int) -> Cyclic:
    r"""Returns the rule that goes through the shard in order, `size` rows a job.

    .. math:: (jB + r) \bmod m, \qquad r = 0, \dots, B - 1

    Args:
        size: B, rows in a job, at least 1 and at most those of the largest shard; in a shard of
            fewer rows they repeat.

    Returns:
        The rule, a function of the job number alone.

    Raises:
        TypeError: If `size` is no integer.
        ValueError: If it is below 1.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> problems.cyclic(2)(3, 4, 1, jax.random.key(0))[0].tolist()
        [2, 0]
    """
    return Cyclic(checks.whole("size", size))


def uniform(size: int) -> Uniform:
    """Returns the rule that draws `size` rows of the shard with replacement, from the job's key.

    Args:
        size: Rows in a job, at least 1 and at most those of the largest shard.

    Returns:
        The rule: an unbiased estimate of the gradient of f_i.

    Raises:
        TypeError: If `size` is no integer.
        ValueError: If it is below 1.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> positions, valid = problems.uniform(4)(3, 4, 0, jax.random.key(0))
        >>> positions.shape, bool((positions < 3).all()), bool(valid.all())
        ((4,), True, True)
    """
    return Uniform(checks.whole("size", size))


def without_replacement(size: int) -> WithoutReplacement:
    r"""Returns the rule that draws `size` different rows of the shard, from the job's key.

    Args:
        size: Rows in a job, at least 1 and at most those of the largest shard; of a smaller shard
            all rows.

    Returns:
        The rule: an unbiased estimate of the gradient of f_i, of less variance than
        `uniform(size)`.

    Raises:
        TypeError: If `size` is no integer.
        ValueError: If it is below 1.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> positions, valid = problems.without_replacement(3)(3, 4, 0, jax.random.key(0))
        >>> sorted(positions.tolist()), valid.tolist()
        ([0, 1, 2], [True, True, True])
    """
    return WithoutReplacement(checks.whole("size", size))
