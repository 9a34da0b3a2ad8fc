r"""Compression: what a worker sends in place of its gradient, and what it remembers for that.

    top_k         the k entries of largest size
    random_k      k entries drawn from the job's key, which both sides know
    scaled_sign   mean |x| sign(x), of each leaf
    quantized     round(x / s) s,   s = max |x| / (2^(bits - 1) - 1) of each block
    power_sgd     P Q^T,   P = orthonormal(M Q),   Q <- M^T P   of each matrix
    demo          m <- b m + g;   q = the k largest cosines of each tile of m;   m <- m - q

Biased compressors C alone may diverge. Error feedback remembers what was lost:

    ef14          c = C(g + e),   e <- e + g - c,   sent: c
    ef21          h <- h + C(g - h),   sent: the compressed difference; the server knows h

A compressor is a value of one worker, `compressed` gives every worker a row of its state. What it
returns is what the server decodes; `nbytes` counts what was on the wire, indices included.

Sources: Seide et al. 2014 (1-bit SGD), Stich et al. 2018 and Karimireddy et al. 2019 (arXiv
1901.09847) for EF14; Richtárik, Sokolov, Fatkhullin 2021 (arXiv 2106.05203) for EF21; Vogels et al.
2019 (arXiv 1905.13727) for PowerSGD; Peng, Quesnelle, Kingma 2024 (arXiv 2411.19870) for DeMo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from asyncjax.checks import flag, instance, real, whole
from asyncjax.steps import trees
from asyncjax.steps.transformation import Transformation, Updated, transformation

_SCALE = 4  # bytes of a scale, a float32


@dataclass(frozen=True)
class Compressor:
    """How one worker compresses, as functions of a tree of gradients.

    Attributes:
        init: `(params) -> state`, what the worker remembers before its first message.
        compress: `(key, updates, state) -> (decoded, state)`: what the server makes of the message,
            like `updates`, and what the worker remembers.
        nbytes: `(params) -> int`, bytes of a message; arrays, or `jax.ShapeDtypeStruct`.

    Example:
        >>> compressor = top_k(1)
        >>> sent, _ = compressor.compress(jax.random.key(0), jnp.array([1.0, -3.0]), ())
        >>> sent.tolist(), compressor.nbytes(jnp.zeros(2))
        ([0.0, -3.0], 5)
    """

    init: Callable[[Any], Any]
    compress: Callable[[jax.Array, Any, Any], tuple[Any, Any]]
    nbytes: Callable[[Any], int]


class CompressedState(NamedTuple):
    """State of `compressed`."""

    compressor_states: Any  # of each worker, tree of [n_workers, ...]
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def compressed(compressor: Compressor, n_workers: int, *, fragments: int = 1) -> Transformation:
    """Replaces every gradient by what the server decodes of its worker's message.

    For `simulation.Update(..., gradient_transform=...)`. Every `update` needs the extras `worker`
    and `key`, and `job` where there are fragments.

    Args:
        compressor: Such as `ef14(top_k(100))`.
        n_workers: Number of workers n, at least 1; each has a row of the compressor's state.
        fragments: P of `simulation.streaming_diloco`: message j of a worker is of fragment j mod P,
            and what a compressor remembers of a fragment is for the next message of that fragment.
            Each worker then has P rows.

    Example:
        >>> rule = compressed(ef14(top_k(1)), n_workers=2)
        >>> state = rule.init(jnp.zeros(2))
        >>> for _ in range(2):
        ...     grads, key = jnp.array([2.0, 3.0]), jax.random.key(0)
        ...     sent, state = rule.update(grads, state, worker=0, key=key)
        ...     print(sent.tolist())
        [0.0, 3.0]
        [4.0, 0.0]
    """
    instance("compressor", compressor, Compressor, "a compressor, such as steps.top_k(100)")
    count, pieces = whole("n_workers", n_workers), whole("fragments", fragments)

    def init(params: optax.Params) -> CompressedState:
        def rows(leaf: ArrayLike) -> jax.Array:
            return jnp.repeat(jnp.asarray(leaf)[None], count * pieces, axis=0)

        return CompressedState(jax.tree.map(rows, compressor.init(params)))

    def message(
        updates: optax.Updates, state: CompressedState, number: Any, key: jax.Array
    ) -> Updated:
        rows = state.compressor_states
        sent, row = compressor.compress(key, updates, trees.row_of(rows, number))
        return trees.cast(sent, updates), CompressedState(trees.with_row(rows, number, row))

    def update(
        updates: optax.Updates, state: CompressedState, *, worker: ArrayLike, key: jax.Array
    ) -> Updated:
        return message(updates, state, trees.scalar("worker", worker), key)

    def update_fragment(
        updates: optax.Updates,
        state: CompressedState,
        *,
        worker: ArrayLike,
        key: jax.Array,
        job: ArrayLike,
    ) -> Updated:
        number = trees.scalar("worker", worker) * pieces + trees.scalar("job", job) % pieces
        return message(updates, state, number, key)

    rule = update if pieces == 1 else update_fragment
    return transformation(init, rule, n_workers=lambda state: count)


def ef14(compressor: Compressor) -> Compressor:
    """Error feedback: what a message lost is added to what the next one is made of.

    c = C(g + e), e <- e + g - c. With a constant learning rate this is the paper's form, which
    scales g before. One model for each worker.

    Args:
        compressor: C, any.

    Example:
        >>> compressor = ef14(scaled_sign())
        >>> sent, error = compressor.compress(
        ...     jax.random.key(0), jnp.array([1.0, 3.0]), compressor.init(jnp.zeros(2)))
        >>> sent.tolist(), error[0].tolist()
        ([2.0, 2.0], [-1.0, 1.0])

    Reference:
        Seide et al. 2014; Karimireddy et al. 2019, arXiv 1901.09847, algorithm 2.
    """

    def compress(key: jax.Array, updates: Any, state: Any) -> tuple[Any, Any]:
        lost, inner = state
        wanted = jax.tree.map(jnp.add, updates, lost)
        sent, inner = compressor.compress(key, wanted, inner)
        sent = trees.cast(sent, updates)
        return sent, (trees.cast(jax.tree.map(jnp.subtract, wanted, sent), lost), inner)

    return _with_model(compressor, compress)


def ef21(compressor: Compressor) -> Compressor:
    """Error feedback by differences: the server's copy of a gradient follows it.

    h <- h + C(g - h), from h = 0; the server steps along the mean of all h. As C shrinks
    differences, h comes to be g, and gradient descent converges to the minimum itself, also where
    the workers' gradients there are not 0. One model for each worker.

    Args:
        compressor: C, any.

    Note:
        The mean of an update is that of all copies in synchronous rounds of all workers. For single
        arrivals put `average_workers` behind it, which has the copies of the others.

    Example:
        >>> compressor = ef21(top_k(1))
        >>> copy = compressor.init(jnp.zeros(2))
        >>> for _ in range(2):
        ...     sent, copy = compressor.compress(jax.random.key(0), jnp.array([1.0, 3.0]), copy)
        ...     print(sent.tolist())
        [0.0, 3.0]
        [1.0, 3.0]

    Reference:
        Richtárik, Sokolov, Fatkhullin 2021, arXiv 2106.05203, algorithm 2.
    """

    def compress(key: jax.Array, updates: Any, state: Any) -> tuple[Any, Any]:
        copy, inner = state
        moved, inner = compressor.compress(key, jax.tree.map(jnp.subtract, updates, copy), inner)
        copy = trees.cast(jax.tree.map(jnp.add, copy, moved), copy)
        return copy, (copy, inner)

    return _with_model(compressor, compress)


def _with_model(compressor: Compressor, compress: Callable[..., Any]) -> Compressor:
    """Another compressor around one, which remembers a model more, 0 at first."""
    instance("compressor", compressor, Compressor, "a compressor, such as steps.top_k(100)")

    def init(params: Any) -> tuple[Any, Any]:
        return _zeros(params), compressor.init(params)

    return Compressor(init, compress, compressor.nbytes)


def top_k(k: int) -> Compressor:
    """Sends the k entries of largest size of the whole gradient, and where they are.

    k (bytes of an entry + bytes of an index): an index has 1, 2 or 4 bytes, as many as the number
    of entries needs. Of entries of one size the first go. With k = d nothing is lost.

    Args:
        k: Entries in a message, 1 .. d, the number of parameters.

    Example:
        >>> compressor = top_k(2)
        >>> sent, _ = compressor.compress(jax.random.key(0), jnp.array([1.0, -3.0, 2.0]), ())
        >>> sent.tolist(), compressor.nbytes(jnp.zeros(1000))
        ([0.0, -3.0, 2.0], 12)

    Reference:
        Stich, Cordonnier, Jaggi 2018, arXiv 1809.07599.
    """
    count = whole("k", k)

    def compress(key: jax.Array, updates: Any, state: Any) -> tuple[Any, Any]:
        flat, unravel = ravel_pytree(updates)
        return unravel(_largest(flat, count)), state

    def nbytes(params: Any) -> int:
        size, width = _whole_vector(params)
        return count * (width + _index_bytes(size))

    return Compressor(_at_most(count), compress, nbytes)


def random_k(k: int, *, unbiased: bool = False) -> Compressor:
    """Sends k entries drawn from the key of the job, which the server knows: no indices are sent.

    Args:
        k: Entries in a message, 1 .. d, the number of parameters.
        unbiased: Whether entries are multiplied by d / k, so that the mean of many draws is the
            gradient; not inside error feedback, which needs a contraction.

    Example:
        >>> compressor = random_k(1, unbiased=True)
        >>> sent, _ = compressor.compress(jax.random.key(0), jnp.ones(4), ())
        >>> sorted(sent.tolist()), compressor.nbytes(jnp.zeros(4))
        ([0.0, 0.0, 0.0, 4.0], 4)

    Reference:
        Stich, Cordonnier, Jaggi 2018, arXiv 1809.07599.
    """
    count, scales = whole("k", k), flag("unbiased", unbiased)

    def compress(key: jax.Array, updates: Any, state: Any) -> tuple[Any, Any]:
        flat, unravel = ravel_pytree(updates)
        places = jax.random.permutation(key, flat.size)[:count]
        chosen = flat[places] * (flat.size / count if scales else 1.0)
        return unravel(jnp.zeros_like(flat).at[places].set(chosen.astype(flat.dtype))), state

    return Compressor(_at_most(count), compress, lambda params: count * _whole_vector(params)[1])


def scaled_sign() -> Compressor:
    """Sends one bit for each entry, and the mean size of each leaf: mean |x| sign(x).

    The sign of 0 is +1. Alone it may not converge; see `ef14`.

    Example:
        >>> sent, _ = scaled_sign().compress(jax.random.key(0), jnp.array([1.0, -3.0]), ())
        >>> sent.tolist(), scaled_sign().nbytes(jnp.zeros(9))
        ([2.0, -2.0], 6)

    Reference:
        Seide et al. 2014; Karimireddy et al. 2019, arXiv 1901.09847.
    """

    def signs(leaf: jax.Array) -> jax.Array:
        size = jnp.mean(jnp.abs(leaf))
        return jnp.where(leaf >= 0, size, -size)

    return _leaf_by_leaf(signs, lambda leaf: -(-leaf.size // 8) + _SCALE)


def quantized(bits: int = 8, *, block: int = 256) -> Compressor:
    """Sends every entry as a whole number of few bits, and one scale for each block of entries.

    q = round(x / s), s = max |x| / (2^(bits - 1) - 1) over the block: int8 is `quantized(8)`, int4
    is `quantized(4)`. Entries are off by s / 2 at most; in blocks of one nothing is lost.

    Args:
        bits: Of an entry, 2 .. 16.
        block: Entries that share a scale, at least 1; the last block of a leaf may be shorter.

    Example:
        >>> compressor = quantized(4, block=3)
        >>> sent, _ = compressor.compress(jax.random.key(0), jnp.array([7.0, 2.4, -0.6]), ())
        >>> sent.tolist(), compressor.nbytes(jnp.zeros(6))
        ([7.0, 2.0, -1.0], 11)

    Reference:
        Dettmers et al. 2022, "8-bit optimizers via block-wise quantization", arXiv 2110.02861.
    """
    most, length = 2 ** (whole("bits", bits, 2, 16) - 1) - 1, whole("block", block)

    def rounded(leaf: jax.Array) -> jax.Array:
        blocks = jnp.pad(leaf.ravel(), (0, -leaf.size % length)).reshape(-1, length)
        scale = jnp.max(jnp.abs(blocks), axis=1, keepdims=True) / most
        whole_numbers = jnp.round(blocks / jnp.where(scale > 0, scale, 1))
        return (whole_numbers * scale).ravel()[: leaf.size].reshape(leaf.shape)

    return _leaf_by_leaf(
        rounded, lambda leaf: -(-leaf.size * bits // 8) + _SCALE * -(-leaf.size // length)
    )


def power_sgd(rank: int) -> Compressor:
    """Sends two thin matrices in place of each matrix: a power iteration, started where it was.

    M is a leaf of two axes or more, all but the last taken together; P = orthonormal(M Q) and
    Q <- M^T P are sent, and P Q^T is M where its rank is at most r. Leaves for which that is not
    smaller are sent as they are.

    Args:
        rank: r, at least 1, and no more than the largest rank of a matrix of the model.

    Note:
        Every worker compresses alone; the paper averages P and Q over the workers on the way, so
        that the mean of all has rank r, where here it has up to n r. The first Q is drawn from the
        key of the first job.

    Example:
        >>> compressor = power_sgd(1)
        >>> outer = jnp.outer(jnp.arange(4.0), jnp.ones(4))
        >>> state = compressor.init(outer)
        >>> sent, state = compressor.compress(jax.random.key(0), outer, state)
        >>> bool(jnp.allclose(sent, outer, atol=1e-5)), compressor.nbytes(outer)
        (True, 32)

    Reference:
        Vogels, Karimireddy, Jaggi 2019, arXiv 1905.13727, algorithm 1.
    """
    rank = whole("rank", rank)

    def is_thin(leaf: Any) -> bool:
        rows, columns = _as_matrix(leaf.shape)
        return rank * (rows + columns) < leaf.size

    def init(params: Any) -> Any:
        shapes = [leaf.shape for leaf in _forms(params) if len(leaf.shape) > 1]
        if shapes:
            whole("rank", rank, 1, max(min(_as_matrix(shape)) for shape in shapes))

        def first(leaf: Any) -> jax.Array:
            leaf = jnp.asarray(leaf)
            shape = (leaf.shape[-1], rank) if is_thin(leaf) else (0,)
            return jnp.zeros(shape, trees.wide(leaf))  # rows of 0: not begun

        return jax.tree.map(first, params)

    def compress(key: jax.Array, updates: Any, state: Any) -> tuple[Any, Any]:
        def iterated(leaf: jax.Array, right: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
            if not right.size:
                return leaf, right
            drawn = jax.random.normal(jax.random.fold_in(key, number), right.shape, right.dtype)
            right = jnp.where(jnp.any(right != 0), right, drawn)
            matrix = leaf.reshape(_as_matrix(leaf.shape)).astype(right.dtype)
            with jax.default_matmul_precision("highest"):
                left = jnp.linalg.qr(matrix @ right)[0]
                right = matrix.T @ left
                return (left @ right.T).reshape(leaf.shape), right

        leaves, structure = jax.tree.flatten(updates)
        rows = zip(leaves, jax.tree.leaves(state), range(len(leaves)), strict=True)
        pairs = [iterated(*row) for row in rows]
        sent, state = (jax.tree.unflatten(structure, part) for part in zip(*pairs, strict=True))
        return sent, state

    def nbytes(params: Any) -> int:
        return sum(
            leaf.dtype.itemsize
            * (rank * sum(_as_matrix(leaf.shape)) if is_thin(leaf) else leaf.size)
            for leaf in _forms(params)
        )

    return Compressor(init, compress, nbytes)


def demo(k: int, *, chunk: int = 64, decay: float = 0.999) -> Compressor:
    """DeMo: sends the fast components of a worker's own momentum, which then forgets them.

    m <- b m + g; of each tile of m the k largest coefficients of its cosine transform are sent, and
    taken from m. Behind it the paper takes the sign of the mean (`optax.sign_sgd`). One model for
    each worker. With k as large as a tile nothing is lost, and the gradient itself is sent.

    Args:
        k: Coefficients of a tile in a message, at least 1; of a smaller tile all.
        chunk: Longest side of a tile, which is cut as the largest divisor up to it: of vectors in
            one, of matrices in two dimensions. A leaf of more axes is a matrix of all but the last
            together.
        decay: b, of the momentum, in [0, 1].

    Example:
        >>> compressor = demo(1, chunk=2, decay=1.0)
        >>> state = compressor.init(jnp.zeros(2))
        >>> for _ in range(2):
        ...     sent, state = compressor.compress(jax.random.key(0), jnp.array([3.0, 1.0]), state)
        ...     print(sent.round(3).tolist(), state.round(3).tolist())
        [2.0, 2.0] [1.0, -1.0]
        [2.0, 2.0] [2.0, -2.0]

    Reference:
        Peng, Quesnelle, Kingma 2024, arXiv 2411.19870, algorithm 1.
    """
    count, side = whole("k", k), whole("chunk", chunk)
    decay = real("decay", decay, least=0, most=1)

    def fast(momentum: jax.Array) -> jax.Array:
        (rows, columns), (high, wide) = _tiles(momentum.shape, side)
        left, right = (jnp.asarray(_cosines(n), momentum.dtype) for n in (high, wide))
        tiles = momentum.reshape(rows // high, high, columns // wide, wide)
        with jax.default_matmul_precision("highest"):
            seen = jnp.einsum("ij,ajbk,lk->abil", left, tiles, right)
            flat = seen.reshape(*seen.shape[:2], high * wide)
            chosen = _largest(flat, min(count, high * wide)).reshape(seen.shape)
            back = jnp.einsum("ij,abil,lk->ajbk", left, chosen, right)
        return back.reshape(momentum.shape)

    def compress(key: jax.Array, updates: Any, state: Any) -> tuple[Any, Any]:
        momentum = jax.tree.map(lambda g, m: decay * m + g.astype(m.dtype), updates, state)
        sent = trees.cast(jax.tree.map(fast, momentum), updates)
        return sent, trees.cast(jax.tree.map(jnp.subtract, momentum, sent), state)

    def nbytes(params: Any) -> int:
        def of_leaf(leaf: Any) -> int:
            _, (high, wide) = _tiles(leaf.shape, side)
            tile = high * wide
            each = min(count, tile) * (leaf.dtype.itemsize + _index_bytes(tile))
            return leaf.size // tile * each

        return sum(map(of_leaf, _forms(params)))

    return Compressor(_zeros, compress, nbytes)


# What they share.


def _forms(params: Any) -> list[Any]:
    """The leaves' shapes and dtypes."""
    return jax.tree.leaves(jax.eval_shape(lambda tree: tree, params))


def _zeros(params: Any) -> Any:
    """A model of zeros, in float32 at least, so that small remainders add up."""
    return jax.tree.map(lambda leaf: jnp.zeros_like(leaf, trees.wide(leaf)), params)


def _whole_vector(params: Any) -> tuple[int, int]:
    """How many entries a model has, and the bytes of one."""
    leaves = _forms(params)
    return sum(leaf.size for leaf in leaves), jnp.result_type(*leaves).itemsize


def _index_bytes(size: int) -> int:
    """Bytes of an index into so many entries."""
    return 1 if size <= 2**8 else 2 if size <= 2**16 else 4


def _at_most(k: int) -> Callable[[Any], Any]:
    """The start of a compressor that remembers nothing and refuses more entries than there are."""

    def init(params: Any) -> tuple[()]:
        leaves = _forms(params)
        if leaves:  # optax.tree.map_params calls init with a placeholder that has none
            whole("k", k, 1, sum(leaf.size for leaf in leaves))
        return ()

    return init


def _leaf_by_leaf(
    change: Callable[[jax.Array], jax.Array], nbytes: Callable[[Any], int]
) -> Compressor:
    """A compressor of single leaves that remembers nothing."""

    def compress(key: jax.Array, updates: Any, state: Any) -> tuple[Any, Any]:
        return jax.tree.map(lambda leaf: change(leaf.astype(trees.wide(leaf))), updates), state

    return Compressor(lambda params: (), compress, lambda params: sum(map(nbytes, _forms(params))))


def _largest(values: jax.Array, k: int) -> jax.Array:
    """The k largest in size along the last axis, all others 0."""
    places = jax.lax.top_k(jnp.abs(values), k)[1]
    chosen = jnp.take_along_axis(values, places, axis=-1)
    return jnp.put_along_axis(jnp.zeros_like(values), places, chosen, axis=-1, inplace=False)


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns: all axes but the last, and that one."""
    return (int(np.prod(shape[:-1])), shape[-1]) if shape else (1, 1)


def _tiles(shape: tuple[int, ...], chunk: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Sides of a leaf as a matrix, and of its tiles."""
    sides = _as_matrix(shape)
    high, wide = (max(n for n in range(1, min(side, chunk) + 1) if side % n == 0) for side in sides)
    return sides, (high, wide)


def _cosines(n: int) -> np.ndarray:
    """The orthonormal cosine transform (DCT-II), float64[n, n]."""
    angles = np.pi * np.outer(np.arange(n), 2 * np.arange(n) + 1) / (2 * n)
    return np.cos(angles) * np.sqrt(np.where(np.arange(n) == 0, 1, 2) / n)[:, None]
