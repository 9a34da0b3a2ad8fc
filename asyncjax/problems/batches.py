r"""Rows: which of the data each worker holds (shards), and which of those a job takes (batches).

.. math:: S_1, \dots, S_n \subseteq \{0, \dots, R - 1\}, \qquad
          f_i(x) = \frac{1}{|S_i|} \sum_{r \in S_i} \ell_r(x)

How the labels are spread decides how much the order of workers matters: with rows dealt at random
every :math:`f_i` is nearly f, with sorted labels each worker pulls to its own minimum. Shards are
NumPy arrays, made on the host; randomness comes from a JAX key.

A batch rule maps the size m of the shard, the worker's job number j and the job's key to
positions in the shard:

.. math:: \text{whole: } 0, \dots, m - 1 \qquad \text{cyclic: } (jB + r) \bmod m \qquad
          \text{uniform: } \xi_r \sim U\{0, \dots, m - 1\}, \qquad r = 0, \dots, B - 1

and `without_replacement` to the beginning of a random permutation of :math:`0, \dots, m - 1`.

A rule of your own is any hashable function `(size, capacity, job, key) -> (positions, valid)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import checks
from asyncjax.problems.arrays import MOST_ROWS

Rows = tuple[jax.Array, jax.Array]  # positions int32[b], valid bool[b]
_LAST, _PACKED = np.uint32(0xFFFFFFFF), 4096


class Shards(NamedTuple):
    """The rows of each worker, padded to one length.

    Attributes:
        rows: int32[n, m_max], row numbers; beyond a shard's end its first row is repeated.
        size: int32[n], how many of the entries are the worker's own, at least 1.
    """

    rows: Any
    size: Any


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
    """Refuses a batch of more rows than the largest shard.

    Example:
        >>> check_batch(cyclic(3), Shards(np.array([[0, 1]]), np.array([2])))
        Traceback (most recent call last):
        ...
        ValueError: batch must take at most 2 rows, those of the largest shard, got Cyclic(size=3)
    """
    largest = int(shards.size.max())
    if isinstance(batch, Cyclic | Uniform | WithoutReplacement) and batch.size > largest:
        raise ValueError(
            f"batch must take at most {largest} rows, those of the largest shard, got {batch}"
        )


def whole() -> Whole:
    """Returns the rule that takes every row of the shard: the exact gradient of f_i.

    With shards of unequal size the padding is masked, so the loss is the mean over the rows that
    the worker really has.

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

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> positions, valid = problems.without_replacement(3)(3, 4, 0, jax.random.key(0))
        >>> sorted(positions.tolist()), valid.tolist()
        ([0, 1, 2], [True, True, True])
    """
    return WithoutReplacement(checks.whole("size", size))


def contiguous(n_rows: int, n_workers: int) -> Shards:
    """Returns runs of consecutive rows; the first `n_rows mod n_workers` are one row longer.

    Args:
        n_rows: Rows in the data.
        n_workers: At least 1, at most `n_rows`.

    Returns:
        The shards, as `numpy.array_split` cuts.

    Example:
        >>> from asyncjax import problems
        >>> problems.contiguous(5, 2)
        Shards(rows=array([[0, 1, 2], [3, 4, 3]], dtype=int32), size=array([3, 2], dtype=int32))
    """
    n_workers = _worker_count(n_rows, n_workers)
    return _padded(np.array_split(np.arange(n_rows), n_workers))


def iid(n_rows: int, n_workers: int, *, key: jax.Array) -> Shards:
    """Returns shards of a random permutation of the rows: every worker sees the same mixture.

    Args:
        n_rows: Rows in the data.
        n_workers: At least 1, at most `n_rows`.
        key: A typed key.

    Returns:
        The shards; the first `n_rows mod n_workers` are one row longer.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> shards = problems.iid(6, 3, key=jax.random.key(0))
        >>> sorted(shards.rows.ravel().tolist()), shards.size.tolist()
        ([0, 1, 2, 3, 4, 5], [2, 2, 2])
    """
    n_workers = _worker_count(n_rows, n_workers)
    rows = np.asarray(jax.random.permutation(checks.one_key("key", key), n_rows))
    return _padded(np.array_split(rows, n_workers))


def by_label(labels: Any, n_workers: int) -> Shards:
    """Returns shards of data sorted by label: the hardest split for a biased order.

    The rows are sorted by label (ties keep their order) and cut into consecutive runs as by
    `contiguous`.

    Args:
        labels: [rows], numbers (no NaN) or texts.
        n_workers: At least 1, at most the number of rows.

    Returns:
        The shards: a partition of the rows.

    Example:
        >>> from asyncjax import problems
        >>> problems.by_label([1, 0, 1, 0], 2).rows.tolist()
        [[1, 3], [0, 2]]
    """
    labels = _label_array(labels)
    n_workers = _worker_count(labels.size, n_workers)
    return _padded(np.array_split(np.argsort(labels, kind="stable"), n_workers))


def dirichlet(
    labels: Any, n_workers: int, *, alpha: float, key: jax.Array, minimum: int = 1
) -> Shards:
    r"""Returns shards whose share of every label is drawn from a Dirichlet distribution.

    .. math:: p_c \sim \mathrm{Dirichlet}(\alpha, \dots, \alpha), \qquad
              \text{worker } i \text{ gets about } p_{ci} m_c \text{ of the } m_c
              \text{ rows with label } c

    A small alpha gives each label to few workers, a large one splits all labels evenly.
    Which rows of a label go where is random; a worker keeps its rows in ascending order. A worker
    with fewer than `minimum` rows then takes the last rows of whoever has most.

    Args:
        labels: [rows], numbers (no NaN) or texts.
        n_workers: At least 1, at most the number of rows.
        alpha: The concentration of the distribution, positive and finite.
        key: A typed key.
        minimum: The fewest rows a worker may hold, at least 1.

    Returns:
        The shards: a partition of the rows, of unequal sizes.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> labels = [0] * 10 + [1] * 10
        >>> shards = problems.dirichlet(labels, 3, alpha=0.3, key=jax.random.key(1))
        >>> int(shards.size.sum()), bool(shards.size.min() >= 1)
        (20, True)

    Reference:
        Yurochkin and others, Bayesian nonparametric federated learning of neural networks,
        arXiv 1905.12022, whose experiments divide each label so. There small shards are allowed;
        here `minimum` rules them out without drawing again.
    """
    labels = _label_array(labels)
    n_rows, n_workers = labels.size, _worker_count(labels.size, n_workers)
    minimum = checks.whole("minimum", minimum, most=n_rows // n_workers)
    alpha = checks.real("alpha", alpha, above=0)
    share_key, row_key = jax.random.split(checks.one_key("key", key))
    classes = np.unique(labels)
    equal = np.full(n_workers, alpha, np.float32)
    shares = np.asarray(jax.random.dirichlet(share_key, equal, (classes.size,)))
    if not np.isfinite(shares).all():
        raise ValueError(f"alpha must be neither tiny nor huge, got {alpha}")
    shuffled = np.asarray(jax.random.permutation(row_key, n_rows))
    parts: list[list[int]] = [[] for _ in range(n_workers)]
    for label, share in zip(classes, shares, strict=True):
        rows = shuffled[labels[shuffled] == label]
        cuts = np.floor(np.cumsum(share[:-1]) * rows.size + 0.5).astype(int)
        for part, run in zip(parts, np.split(rows, np.minimum(cuts, rows.size)), strict=True):
            part.extend(run.tolist())
    for part in parts:
        part.sort()
    for part in parts:
        while len(part) < minimum:
            part.append(max(parts, key=len).pop())
    return _padded([np.sort(part) for part in parts])


def check_shards(shards: Shards, n_rows: int, n_workers: int) -> Shards:
    """Returns the shards as int32 NumPy arrays, all row numbers within the data."""
    rows, size = (np.asarray(part) for part in shards)
    if rows.ndim != 2 or size.shape != rows.shape[:1] or size.size != n_workers:
        raise ValueError(
            f"shards must hold {n_workers} workers (n_workers), rows [workers, m_max] and size"
            f" [workers], got shapes {rows.shape} and {size.shape}"
        )
    checks.within("rows of shards", rows, least=0, most=n_rows - 1, integer=True)
    checks.within("size of shards", size, least=1, most=rows.shape[1], integer=True)
    return Shards(rows.astype(np.int32), size.astype(np.int32))


def _worker_count(n_rows: Any, n_workers: Any) -> int:
    """Returns the number of workers, at most one a row."""
    n_rows = checks.whole("n_rows", n_rows, most=MOST_ROWS)
    return checks.whole("n_workers", n_workers, most=n_rows)


def _label_array(labels: Any) -> np.ndarray:
    """Returns the labels on the host."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"labels must be a 1-D array, not empty, got shape {array.shape}")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError(f"labels must not be NaN, got one at index {np.isnan(array).argmax()}")
    return array


def _padded(parts: list[np.ndarray]) -> Shards:
    """Returns the shards with short rows filled up by their own first entry."""
    size = np.array([part.size for part in parts], np.int32)
    rows = np.empty((len(parts), size.max()), np.int32)
    for row, part in zip(rows, parts, strict=True):
        row[:] = part[0]
        row[: part.size] = part
    return Shards(rows, size)
