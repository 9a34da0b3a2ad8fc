"""Gradient coding: workers send combinations of shards, from which the sum can be decoded.

    c_i = sum_j B_ij g_j,    sum_i a_i c_i = sum_j v_j g_j,    v = B^T a

    a = argmin |B_used^T a - 1|

Each row of `B` has at most s + 1 entries, and any n - s rows span the vector of ones: the sum of
all shards' gradients is exact whichever s workers are late, at s + 1 times the work. Fewer answers
give the closest combination. After Tandon, Lei, Dimakis and Karampatziakis (2017), arXiv
1612.03301.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.checks import whole
from asyncjax.stragglers.policies.policy import Policy, fixed

_DRAWS = 64  # codes that are tried
_MOST_PATTERNS = 512  # sets of late workers that are looked at
_MOST_WORKERS = 1000  # of a code, a matrix that is decoded by its singular values
_MOST_WORK = 1e9  # of one draw of a search for codes, flops: a minute or two in all


def cyclic_code(n_workers: int, tolerated: int, *, key: Array | None = None) -> np.ndarray:
    """Returns a code, float64[n, n], in which worker i computes the shards i, ..., i + s, cyclic.

    Formula: for random `H` of s rows that sum to 0, row i of `B` is the combination of its s + 1
    columns that vanishes: `H B^T = 0`. Rows have the length `sqrt(s + 1)`. Of several `H` the one
    is taken whose largest decoding vector `a` is the smallest. Decoding vectors grow with n and s,
    and with them rounding; where s + 1 divides n, `fractional_code` decodes by additions alone.

    Args:
        n_workers: Number of workers `n`, and of shards, at most 1000.
        tolerated: Late workers `s` that may be missing, 0 .. n - 1.
        key: Randomness of the code; None for a fixed one.

    Example:
        >>> code = cyclic_code(5, 2)
        >>> (code[0] != 0).tolist()
        [True, True, True, False, False]
    """
    n, s = _sizes(n_workers, tolerated)
    if s == 0:
        return np.eye(n)
    work = 30.0 * n**3 + (n + _MOST_PATTERNS) * s**3
    if work > _MOST_WORK:
        raise ValueError(
            "n_workers and tolerated must keep 30 n^3 + (n + 512) s^3 below 1e9 for a cyclic code,"
            f" got {n} and {s}, {work:.1e}; a fractional code needs no search"
        )
    size = _DRAWS * s * n
    with jax.ensure_compile_time_eval():  # a code is a constant, also where it is made under jit
        key = jax.random.key(0) if key is None else key
        bits = jax.random.bits(key, (1 << (size - 1).bit_length(),), jnp.uint32)  # few shapes
        drawn = np.asarray(bits)[:size].reshape(_DRAWS, s, n) / 2.0**32
    checks = list(drawn - drawn.mean(axis=2, keepdims=True))
    if (n + s) % 2:
        checks.append(_waves(n, s))
    patterns = _late_sets(n, s, _MOST_PATTERNS)
    codes = [_cyclic_rows(check) for check in checks]
    sizes = [_largest_decoder(code, patterns) for code in codes]
    best = int(np.argmin(sizes))
    if not sizes[best] < 1e9:
        raise ValueError(
            f"tolerated must leave a code that can be decoded, got {s} of {n} workers; try another "
            "key"
        )
    return codes[best]


def fractional_code(n_workers: int, tolerated: int) -> np.ndarray:
    """Returns the code of repetition, float64[n, n].

    Formula: `B_ij = 1` if `j // (s + 1) == i mod n / (s + 1)`, else 0.

    Args:
        n_workers: Number of workers `n`, and of shards, at most 1000.
        tolerated: Late workers `s` that may be missing; s + 1 divides n.

    Example:
        >>> fractional_code(4, 1).astype(int).tolist()
        [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]]
    """
    n, s = _sizes(n_workers, tolerated)
    if n % (s + 1):
        raise ValueError(f"tolerated + 1 must divide n_workers, {n}, got tolerated {s}")
    shards, workers = np.arange(n), np.arange(n)
    return (shards // (s + 1) == (workers % (n // (s + 1)))[:, None]).astype(np.float64)


def decoded(code: Any, used: Any) -> tuple[Array, Array]:
    """Weights of answers and of shards in what is decoded, float[n] each, from those used, bool[n].

    Formula: `v = B^T a` with `a = argmin |B^T a - 1|^2` over `a` that is 0 where not used. Where a
    shard's weight is not 1 the sum is not exact.
    """
    code = jnp.asarray(code)
    code = code.astype(jnp.promote_types(code.dtype, jnp.float32))
    rows = jnp.where(jnp.asarray(used)[:, None], code, 0)
    left, sizes, basis = jnp.linalg.svd(rows, full_matrices=False)
    cutoff = 10 * max(code.shape) * jnp.finfo(code.dtype).eps * sizes[0]
    in_span = sizes > cutoff
    basis = jnp.where(in_span[:, None], basis, 0)
    ones = jnp.ones((code.shape[1],), code.dtype)
    shards = basis.T @ (basis @ ones)
    shards = shards + basis.T @ (basis @ (ones - shards))  # once more: takes rounding away
    answers = left @ ((basis @ ones) / jnp.where(in_span, sizes, 1))
    return jnp.where(jnp.asarray(used), answers, 0), shards


def gradient_coding(code: Any, shard_size: int, *, tolerated: int, exact: bool = True) -> Policy:
    """Returns the policy that waits for all but s coded answers, for a loop that decodes.

    Formula: `k = n - s`; a worker computes `copies` shards, the most that a row of the code has.

    Args:
        code: float[n, n], row i: with which weights worker i adds up the shards' gradients.
        shard_size: Samples a shard; those of a worker's shards together are fewer than 2^24.
        tolerated: Late workers `s` that are not awaited, 0 .. n - 1.
        exact: Whether the sum must be exact for every set of late workers (looked at for many sets
            if n is large). False allows codes that only come close, with less work.

    Example:
        >>> policy = gradient_coding(cyclic_code(5, 2), 8, tolerated=2)
        >>> policy.max_load, policy.copies
        (24, 3)
        >>> gradient_coding(fractional_code(4, 1), 8, tolerated=2)
        Traceback (most recent call last):
        ...
        ValueError: tolerated must leave the sum exact, got 2, but not without the workers 0, 2
    """
    array = np.asarray(code, np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.size == 0:
        raise ValueError(f"code must be a square matrix, got an array of shape {array.shape}")
    if not np.isfinite(array).all() or not (array != 0).any(axis=1).all():
        raise ValueError("code must be finite with an entry in every row, got one that is not")
    n, s = _sizes(array.shape[0], tolerated)
    copies = int((array != 0).sum(axis=1).max())
    shard_size = whole("shard_size", shard_size, 1, (2**24 - 1) // copies)
    if exact:
        _check_exact(array, s)
    return replace(fixed(n - s, copies * shard_size), code=array, copies=copies)


def _sizes(n_workers: int, tolerated: int) -> tuple[int, int]:
    """Reads the number of workers n, and s of them that may be late."""
    n = whole("n_workers", n_workers, 1, _MOST_WORKERS)
    return n, whole("tolerated", tolerated, 0, n - 1)


def _late_sets(n: int, s: int, most: int) -> np.ndarray:
    """Sets of s late workers, int64[sets, s]: all if at most `most`, else evenly spread ones."""
    if math.comb(n, s) <= most:
        return np.array(list(itertools.combinations(range(n), s)), np.int64)
    steps = range(1, max(most // n, 1) + 1)
    spread = (np.unique((first + step * np.arange(s)) % n) for step in steps for first in range(n))
    return np.array([late for late in spread if late.size == s][:most])


def _waves(n: int, s: int) -> np.ndarray:
    """`H`, float64[s, n], of the s highest frequencies, for odd n + s: few late decode well."""
    frequencies = np.arange((n - s + 1) // 2, n // 2 + 1)
    angle = 2 * np.pi * np.outer(frequencies, np.arange(n)) / n
    sines = np.sin(angle)[2 * frequencies != n]
    return np.concatenate([np.cos(angle), sines])


def _cyclic_rows(check: np.ndarray) -> np.ndarray:
    """Rows float64[n, n] on s + 1 neighbours that `H` maps to 0; NaN if not determined."""
    s, n = check.shape
    places = (np.arange(n)[:, None] + np.arange(s + 1)) % n
    columns = np.moveaxis(check[:, places], 1, 0)  # float64[n, s, s + 1]
    try:
        others = np.linalg.solve(columns[:, :, 1:], -columns[:, :, :1])[..., 0]
    except np.linalg.LinAlgError:
        return np.full((n, n), np.nan)
    rows = np.concatenate([np.ones((n, 1)), others], axis=1)
    rows *= math.sqrt(s + 1) / np.linalg.norm(rows, axis=1, keepdims=True)
    code = np.zeros((n, n))
    np.put_along_axis(code, places, rows, axis=1)
    return code


def _largest_decoder(code: np.ndarray, patterns: np.ndarray) -> float:
    """Longest decoding vector over late sets int64[sets, s]; inf if one cannot be decoded."""
    # all solutions of B^T a = 1 are a_0 + z L with L B = 0; z makes the late ones 0
    n, s = code.shape[0], patterns.shape[1]
    if np.isnan(code).any():
        return math.inf
    left, sizes, _ = np.linalg.svd(code)
    if sizes[n - s - 1] < 1e-9 * sizes[0]:
        return math.inf
    free = left[:, n - s :].T
    particular = np.linalg.lstsq(code.T, np.ones(n), rcond=1e-9)[0]
    late = np.moveaxis(free[:, patterns], 0, 2)  # float64[patterns, late, s]
    try:
        shifts = np.linalg.solve(late, -particular[patterns][..., None])[..., 0]
    except np.linalg.LinAlgError:
        return math.inf
    return float(np.linalg.norm(particular + shifts @ free, axis=1).max())


def _check_exact(code: np.ndarray, tolerated: int) -> None:
    """Refuses a code that some set of late workers leaves inexact."""
    n = code.shape[0]
    most = min(_MOST_PATTERNS, 10 + 5_000_000 // n**3)  # seconds at most
    for late in _late_sets(n, tolerated, most):
        rows = np.delete(code, late, axis=0)
        answers = np.linalg.lstsq(rows.T, np.ones(n), rcond=1e-10)[0]
        if np.abs(rows.T @ answers - 1).max() > 1e-6:
            missing = ", ".join(str(worker) for worker in late)
            raise ValueError(
                f"tolerated must leave the sum exact, got {tolerated}, but not without the workers "
                f"{missing}"
            )
