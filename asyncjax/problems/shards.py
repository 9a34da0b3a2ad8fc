r"""Shards: which rows of the data each worker holds.

.. math:: S_1, \dots, S_n \subseteq \{0, \dots, R - 1\}, \qquad
          f_i(x) = \frac{1}{|S_i|} \sum_{r \in S_i} \ell_r(x)

How the labels are spread decides how much the order of workers matters: with rows dealt at random
every :math:`f_i` is nearly f, with sorted labels each worker pulls to its own minimum.

Everything here runs on the host and returns NumPy arrays; randomness comes from a JAX key.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax.checks import one_key, real, whole
from asyncjax.problems.arrays import as_array, is_traced

_MOST_ROWS = 2**31 - 1  # row numbers are int32


class Shards(NamedTuple):
    """The rows of each worker, padded to one length.

    Attributes:
        rows: int32[n, m_max], row numbers; beyond a shard's end its first row is repeated.
        size: int32[n], how many of the entries are the worker's own, at least 1.
    """

    rows: Any  # int32[n, m_max], row numbers; beyond a shard's end its first row is repeated
    size: Any  # int32[n], how many of the entries are the worker's own, at least 1


def contiguous(n_rows: int, n_workers: int) -> Shards:
    """Returns runs of consecutive rows; the first `n_rows mod n_workers` are one row longer.

    Args:
        n_rows: Rows in the data.
        n_workers: At least 1, at most `n_rows`.

    Returns:
        The shards, as `numpy.array_split` cuts.

    Raises:
        TypeError: If an argument is no integer.
        ValueError: If there are more workers than rows.

    Example:
        >>> from asyncjax import problems
        >>> problems.contiguous(5, 2)
        Shards(rows=array([[0, 1, 2], [3, 4, 3]], dtype=int32), size=array([3, 2], dtype=int32))
    """
    n_rows, n_workers = _counts(n_rows, n_workers)
    return _padded(np.array_split(np.arange(n_rows), n_workers))


def iid(n_rows: int, n_workers: int, *, key: jax.Array) -> Shards:
    """Returns shards of a random permutation of the rows: every worker sees the same mixture.

    Args:
        n_rows: Rows in the data.
        n_workers: At least 1, at most `n_rows`.
        key: A typed key.

    Returns:
        The shards; the first `n_rows mod n_workers` are one row longer.

    Raises:
        TypeError: If a count is no integer, or `key` no typed key.
        ValueError: If there are more workers than rows.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> shards = problems.iid(6, 3, key=jax.random.key(0))
        >>> sorted(shards.rows.ravel().tolist()), shards.size.tolist()
        ([0, 1, 2, 3, 4, 5], [2, 2, 2])
    """
    n_rows, n_workers = _counts(n_rows, n_workers)
    rows = np.asarray(jax.random.permutation(one_key("key", key), n_rows))
    return _padded(np.array_split(rows, n_workers))


def by_label(labels: Any, n_workers: int, *, classes_per_worker: int | None = None) -> Shards:
    """Returns shards of data sorted by label: the hardest split for a biased order.

    Without `classes_per_worker` the rows are sorted by label (ties keep their order) and cut into
    consecutive runs as by `contiguous`. With `classes_per_worker = c` and C distinct labels,
    worker i holds the c labels numbered (i c + 0..c-1) mod C in ascending order of label, and the
    rows of a label are cut into consecutive runs, one for each worker that holds it.

    Args:
        labels: [rows], numbers (no NaN) or texts.
        n_workers: At least 1, at most the number of rows.
        classes_per_worker: C, or None.

    Returns:
        The shards: a partition of the rows.

    Raises:
        TypeError: If a count is no integer.
        ValueError: If there are more workers than rows, c exceeds the number of labels,
            `n_workers` times c leaves a label without a worker, or a worker gets no row.

    Example:
        >>> from asyncjax import problems
        >>> problems.by_label([1, 0, 1, 0], 2).rows.tolist()
        [[1, 3], [0, 2]]
        >>> problems.by_label([1, 0, 1, 0], 2, classes_per_worker=2).rows.tolist()
        [[1, 0], [3, 2]]
    """
    labels = _label_array(labels)
    n_workers = _counts(labels.size, n_workers)[1]
    if classes_per_worker is None:
        return _padded(np.array_split(np.argsort(labels, kind="stable"), n_workers))
    held = whole("classes_per_worker", classes_per_worker)
    classes = np.unique(labels)
    if held > classes.size:
        raise ValueError(
            f"classes_per_worker must be at most the {classes.size} distinct labels, got {held}"
        )
    if held * n_workers < classes.size:
        raise ValueError(
            f"n_workers times classes_per_worker must be at least the {classes.size} distinct "
            f"labels, or some rows belong to nobody, got {n_workers} times {held}"
        )
    parts: list[list[np.ndarray]] = [[] for _ in range(n_workers)]
    numbers = np.arange(n_workers * held).reshape(n_workers, held) % classes.size
    for number, label in enumerate(classes):
        holders = np.flatnonzero((numbers == number).any(axis=1))
        runs = np.array_split(np.flatnonzero(labels == label), holders.size)
        for holder, run in zip(holders, runs, strict=True):
            parts[holder].append(run)
    shards = [np.concatenate(part) for part in parts]
    empty = [worker for worker, shard in enumerate(shards) if shard.size == 0]
    if empty:
        raise ValueError(
            f"n_workers must leave every worker a row, got {n_workers}, where worker {empty[0]} "
            "shares too few rows of its labels with others"
        )
    return _padded(shards)


def dirichlet(
    labels: Any, n_workers: int, *, concentration: float, key: jax.Array, minimum: int = 1
) -> Shards:
    r"""Returns shards whose share of every label is drawn from a Dirichlet distribution.

    .. math:: p_c \sim \mathrm{Dirichlet}(\alpha, \dots, \alpha), \qquad
              \text{worker } i \text{ gets about } p_{ci} m_c \text{ of the } m_c
              \text{ rows with label } c

    A small concentration gives each label to few workers, a large one splits all labels evenly.
    Which rows of a label go where is random; a worker keeps its rows in ascending order. A worker
    with fewer than `minimum` rows then takes the last rows of whoever has most.

    Args:
        labels: [rows], numbers (no NaN) or texts.
        n_workers: At least 1, at most the number of rows.
        concentration: alpha, positive and finite.
        key: A typed key.
        minimum: The fewest rows a worker may hold, at least 1.

    Returns:
        The shards: a partition of the rows, of unequal sizes.

    Raises:
        TypeError: If a count is no integer, or `key` no typed key.
        ValueError: If `concentration` is not positive, there are more workers than rows, or
            `minimum` rows each are more than there are.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> labels = [0] * 10 + [1] * 10
        >>> shards = problems.dirichlet(labels, 3, concentration=0.3, key=jax.random.key(1))
        >>> int(shards.size.sum()), bool(shards.size.min() >= 1)
        (20, True)

    Reference:
        Yurochkin and others, Bayesian nonparametric federated learning of neural networks,
        arXiv 1905.12022, whose experiments divide each label so. There small shards are allowed;
        here `minimum` rules them out without drawing again.
    """
    labels = _label_array(labels)
    n_rows, n_workers = _counts(labels.size, n_workers)
    minimum = whole("minimum", minimum)
    if minimum * n_workers > n_rows:
        raise ValueError(
            f"minimum must be at most {n_rows // n_workers}, for {n_rows} rows and {n_workers} "
            f"workers, got {minimum}"
        )
    concentration = real("concentration", concentration, above=0)
    share_key, row_key = jax.random.split(one_key("key", key))
    classes = np.unique(labels)
    alpha = np.full(n_workers, concentration, np.float32)
    shares = np.asarray(jax.random.dirichlet(share_key, alpha, (classes.size,)))
    if not np.isfinite(shares).all():
        raise ValueError(f"concentration must be neither tiny nor huge, got {concentration}")
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


def label_counts(shards: Shards, labels: Any) -> np.ndarray:
    """Returns how many rows of each label each worker holds, int[n, C], labels in ascending order.

    Example:
        >>> label_counts(contiguous(5, 2), [7, 7, 8, 8, 8]).tolist()
        [[2, 1], [0, 2]]
    """
    labels = _label_array(labels)
    shards = check_shards(shards, labels.size)
    classes, numbers = np.unique(labels, return_inverse=True)
    counts = np.zeros((shards.size.size, classes.size), int)
    for worker, (rows, size) in enumerate(zip(shards.rows, shards.size, strict=True)):
        counts[worker] = np.bincount(numbers[rows[:size]], minlength=classes.size)
    return counts


def check_shards(shards: Shards, n_rows: int, n_workers: int | None = None) -> Shards:
    """Returns the shards as int32 NumPy arrays, all row numbers within the data."""
    if not (isinstance(shards, tuple) and len(shards) == 2):
        raise TypeError(f"shards must be Shards(rows, size), got {type(shards).__name__}")
    if any(is_traced(part) for part in shards):
        raise TypeError("shards must be concrete, since they are checked on the host, got traced")
    rows, size = (np.asarray(as_array("shards", part)) for part in shards)
    if not (np.issubdtype(rows.dtype, np.integer) and np.issubdtype(size.dtype, np.integer)):
        raise TypeError(f"shards must hold integers, got {rows.dtype} and {size.dtype}")
    if rows.ndim != 2 or size.shape != rows.shape[:1] or rows.size == 0:
        raise ValueError(
            "shards must hold rows [workers, m_max] and size [workers], not empty, got shapes "
            f"{rows.shape} and {size.shape}"
        )
    if n_workers is not None and size.size != n_workers:
        raise ValueError(f"shards must hold {n_workers} workers (n_workers), got {size.size}")
    if size.min() < 1 or size.max() > rows.shape[1]:
        raise ValueError(
            f"shards must have sizes in 1..{rows.shape[1]}, got {size.min()}..{size.max()}"
        )
    if rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(
            f"shards must name rows in 0..{n_rows - 1}, got {rows.min()}..{rows.max()}"
        )
    return Shards(rows.astype(np.int32), size.astype(np.int32))


def _counts(n_rows: Any, n_workers: Any) -> tuple[int, int]:
    """Returns both counts, checked."""
    n_rows = whole("n_rows", n_rows, most=_MOST_ROWS)
    n_workers = whole("n_workers", n_workers)
    if n_workers > n_rows:
        raise ValueError(
            f"n_workers must be at most the number of rows, {n_rows}, so that every worker has "
            f"one, got {n_workers}"
        )
    return n_rows, n_workers


def _label_array(labels: Any) -> np.ndarray:
    """Returns the labels on the host."""
    array = as_array("labels", labels)
    if is_traced(array):
        raise TypeError("labels must be concrete, since shards are made on the host, got traced")
    array = np.asarray(array)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"labels must be a 1-D array, not empty, got shape {array.shape}")
    if array.dtype.kind not in "biufSU":
        raise TypeError(f"labels must be numbers or texts, got dtype {array.dtype}")
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
