r"""Exact pair balancing of networks of dense layers, without per-example gradients.

.. math:: \nabla_{W} \ell_i = a_i \delta_i^\top, \qquad
          \langle g_i, g_j \rangle = \sum_{\text{layers}}
          (a_i^\top a_j + 1)(\delta_i^\top \delta_j),
          \qquad \langle r, g_i \rangle = \sum_{\text{layers}} (a_i^\top R + \rho)\, \delta_i

with a_i the input of a layer, \delta_i the gradient of the loss at its pre-activation, R and \rho
the parts of the running sum r that belong to its kernel and its bias (without a bias, no + 1). Of
these numbers the pair rule of Cooper et al. 2023 (arXiv 2302.00845) makes the very signs it makes
of the gradients themselves: a block of pairs is decided from its Gram matrix, one pair after
another, then the running sum is brought up to date. Memory O(P + B (widths + pairs in a block)) for
P parameters and B examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from asyncjax.checks import function_of, shown, whole
from asyncjax.orders.arguments import check_rows, check_tree, loss_count, widened_sum
from asyncjax.orders.kernels import as_pairs, gram_signs

PyTree = Any
Layer = Callable[[jax.Array], jax.Array]
Recursion = Callable[[jax.Array, jax.Array], jax.Array]  # Gram matrix, inner products -> int8[K]
PAIRS = 64  # decided from one Gram matrix
_HIGHEST = jax.lax.Precision.HIGHEST
_STRIP = 32  # pairs whose inner products with all pairs before them are computed at once


class DenseUse(NamedTuple):
    """One use of a dense layer, as the forward pass met it."""

    name: str  # of the layer, for messages
    kernel: int  # which leaf of the parameters
    bias: int | None  # which leaf, None without a bias


class Rows(NamedTuple):
    """What one layer knows of all examples."""

    inputs: jax.Array  # float[B, in]
    deltas: jax.Array  # float[B, out], gradient of the sum of the losses at the pre-activation


def dense_signs(
    apply: nn.Module | Callable[..., jax.Array],
    params: PyTree,
    inputs: PyTree,
    loss_of_scores: Callable[[jax.Array], jax.Array],
    running_sum: PyTree,
    *,
    pairs_per_block: int | None = PAIRS,
    recursion: Recursion = gram_signs,
) -> tuple[jax.Array, PyTree, PyTree]:
    r"""Chooses the signs of a batch of a dense network exactly, beside its mean gradient.

    .. math:: s_k = +1 \text{ iff } \langle r, g_{2k} - g_{2k+1} \rangle \le 0, \qquad
              r \leftarrow r + s_k (g_{2k} - g_{2k+1})

    Args:
        apply: A flax linen module whose parameters all belong to `nn.Dense` layers, or a function
            (layers, inputs) -> scores of a plain network; `layers` is then a list of functions, one
            for each (kernel, bias) of `params`, as `dense_layers` makes it.
        params: The tree under "params" of the module; or a list of (kernel[in, out], bias[out] or
            None).
        inputs: What `apply` takes, with a leading axis of 2K examples.
        loss_of_scores: Scores -> per-example losses float[2K]; closes over the targets.
        running_sum: Tree like `params`, r so far; float32 or wider, narrower leaves are widened.
        pairs_per_block: Pairs decided from one Gram matrix, then the running sum is brought up to
            date; None for all. It changes time and memory only.
        recursion: How a Gram matrix is decided. (A kernel of one's own can gain little: compiled
            for a TPU and a GPU, a step without Gram matrix and recursion moves 3 to 4 % less.)

    Returns:
        Signs int8[2K], one an example, as (s, -s) for each pair; the mean gradient, a tree like
        `params` in its dtypes; the new running sum.

    Raises:
        TypeError: If a leaf of `params` is not floating, `pairs_per_block` is not a static integer,
            a function is none of these arguments, or the params of a function are no list of
            (kernel, bias).
        ValueError: If the number of losses is odd, or trees do not fit; if a number of `params`,
            `inputs` or `running_sum` is known and not finite; if a parameter belongs to
            anything but a dense layer (convolution, normalisation, embedding, `nn.DenseGeneral`),
            or a layer is used more than once or on more than one row an example (in attention, on
            pixels). The message names it. Nothing else is tried: for such networks call
            `directional_signs`.

    Note:
        The signs are those of `pair_signs` on explicit gradients, up to rounding where an inner
        product nearly vanishes. The loss of an example may depend on no other example. Layers must
        be reached directly: not inside `nn.vmap`, `nn.scan`, `nn.jit` or `nn.remat`. Products for
        signs are taken at the highest precision of the device.

    Example:
        >>> model = nn.Sequential([nn.Dense(3), nn.tanh, nn.Dense(1)])
        >>> inputs, targets = jnp.arange(8.0).reshape(4, 2), jnp.array([0.0, 1.0, 1.0, 0.0])
        >>> params = model.init(jax.random.key(0), inputs)["params"]
        >>> def loss_of_scores(scores):
        ...     return jnp.square(scores[:, 0] - targets)
        >>> zeros = jax.tree.map(jnp.zeros_like, params)
        >>> signs, mean, _ = dense_signs(model, params, inputs, loss_of_scores, zeros)
        >>> signs[:2].tolist(), mean["layers_0"]["kernel"].shape
        ([1, -1], (2, 3))

    Reference:
        Cooper et al. 2023, "Coordinating Distributed Example Orders for Provably Accelerated
        Training", arXiv 2302.00845; its signs from activations are this library's.
    """
    if not isinstance(apply, nn.Module):
        function_of("apply", apply, "layers", "inputs")
        _check_pairs(params)
    function_of("loss_of_scores", loss_of_scores, "scores")
    function_of("recursion", recursion, "gram", "inner")
    check_rows("inputs", inputs)
    running_sum = widened_sum(params, running_sum)
    uses, rows = _backward(apply, params, inputs, loss_of_scores)
    n_losses = rows[0].deltas.shape[0]
    block = n_losses // 2
    if pairs_per_block is not None:
        block = min(block, whole("pairs_per_block", pairs_per_block))
    return decided(uses, rows, params, running_sum, block, recursion)


Uses = Sequence[DenseUse]
Leaves = list[jax.Array]  # of the parameters, or of a tree like them


class _Taps:
    """Meets every use of a dense layer: keeps its input, adds a zero to its output."""

    def __init__(self, taps: Sequence[jax.Array] | None, names: dict[tuple[Any, ...], int]) -> None:
        self.taps = taps
        self.names = names
        self.uses: list[DenseUse] = []
        self.inputs: list[jax.Array] = []
        self.outputs: list[jax.Array] = []

    def __call__(
        self, name: str, path: tuple[Any, ...], inputs: jax.Array, outputs: jax.Array
    ) -> jax.Array:
        kernel = self.names[(*path, "kernel")]
        bias = self.names.get((*path, "bias"))
        if any(use.kernel == kernel for use in self.uses):
            raise ValueError(f"layer {name} is used twice: dense_signs covers a single use")
        if inputs.ndim != 2:
            raise ValueError(
                f"layer {name} is used on inputs of shape {inputs.shape}: dense_signs covers one "
                f"use an example, inputs [B, in]; take directional_signs"
            )
        self.uses.append(DenseUse(name, kernel, bias))
        self.inputs.append(inputs)
        self.outputs.append(outputs)
        return outputs if self.taps is None else outputs + self.taps[len(self.uses) - 1]


def dense_layers(params: Sequence[tuple[jax.Array, jax.Array | None]]) -> list[Layer]:
    """Turns (kernel, bias) pairs into functions, so that a plain network can be written once.

    Args:
        params: (kernel[in, out], bias[out] or None) for each layer.

    Returns:
        For each layer the function values[B, in] -> values @ kernel + bias.

    Raises:
        TypeError: If `params` is no list of (kernel, bias) of floating arrays.
        ValueError: If a kernel or a bias has another shape, or is known and not finite.

    Example:
        >>> def network(layers, inputs):
        ...     hidden, last = layers
        ...     return last(jnp.tanh(hidden(inputs)))
        >>> params = [(jnp.ones((2, 3)), jnp.zeros(3)), (jnp.ones((3, 1)), None)]
        >>> network(dense_layers(params), jnp.zeros((4, 2))).shape
        (4, 1)
    """

    def layer(kernel: jax.Array, bias: jax.Array | None) -> Layer:
        return lambda values: values @ kernel if bias is None else values @ kernel + bias

    _check_pairs(params)
    return [layer(kernel, bias) for kernel, bias in params]


def _backward(
    apply: nn.Module | Callable[..., jax.Array],
    params: PyTree,
    inputs: PyTree,
    loss_of_scores: Callable[[jax.Array], jax.Array],
) -> tuple[list[DenseUse], list[Rows]]:
    """One forward and one backward pass that stops at the pre-activations."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    names = {_words(path, apply): index for index, (path, _) in enumerate(leaves)}

    def losses(taps: Sequence[jax.Array] | None) -> tuple[jax.Array, _Taps]:
        met = _Taps(taps, names)
        scores = _forward(apply, params, inputs, met)
        if scores is None:
            raise TypeError("apply must return scores, an array with a row an example, got None")
        return loss_of_scores(scores), met

    seen: list[_Taps] = []

    def look() -> jax.Array:
        values, met = losses(None)
        seen.append(met)
        return values

    count = loss_count("loss_of_scores", jax.eval_shape(look))
    uses, outputs = seen[0].uses, seen[0].outputs  # of the outputs only the shapes
    covered = {index for use in uses for index in (use.kernel, use.bias)}
    for index, (path, _) in enumerate(leaves):
        if index not in covered:
            raise ValueError(
                f"params{jax.tree_util.keystr(path)} belongs to no dense layer that was used:"
                " dense_signs covers networks of nn.Dense only; take directional_signs"
            )
    for use, out in zip(uses, outputs, strict=True):
        kernel = leaves[use.kernel][1].shape
        if out.shape[0] != count:
            raise ValueError(f"every layer must see {count} rows, one a loss, got {out.shape}")
        if kernel[1:] != out.shape[1:]:
            raise ValueError(f"layer {use.name} must have a kernel [in, out], got shape {kernel}")

    def summed(taps: Sequence[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        values, met = losses(taps)
        return jnp.sum(values), met.inputs

    taps = [jnp.zeros(out.shape, out.dtype) for out in outputs]
    deltas, activations = jax.grad(summed, has_aux=True)(taps)
    return uses, [Rows(*pair) for pair in zip(activations, deltas, strict=True)]


def _words(path: tuple[Any, ...], apply: Any) -> tuple[Any, ...]:
    """Returns the words of a leaf's path: of a module's scopes, or (layer, "kernel" or "bias")."""
    words = tuple(getattr(key, "key", getattr(key, "idx", None)) for key in path)
    if isinstance(apply, nn.Module) or len(words) != 2:
        return words
    return (words[0], "bias" if words[1] else "kernel")


def _forward(
    apply: nn.Module | Callable[..., jax.Array], params: PyTree, inputs: PyTree, met: _Taps
) -> jax.Array:
    """The scores; `met` sees every call of `nn.Dense`, or of a layer of a plain network."""

    def layer(index: int, plain: Layer) -> Layer:
        return lambda values: met(str(index), (index,), values, plain(values))

    def intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if type(context.module) is not nn.Dense or context.method_name != "__call__":
            return call(*args, **kwargs)
        path = context.module.path
        values = jnp.asarray(args[0] if args else kwargs["inputs"])
        return met("/".join(path) or "Dense", path, values, call(*args, **kwargs))

    if not isinstance(apply, nn.Module):
        return apply([layer(*numbered) for numbered in enumerate(dense_layers(params))], inputs)
    with nn.intercept_methods(intercept):
        return jnp.asarray(apply.apply({"params": params}, inputs))


def _check_pairs(params: Any) -> None:
    fits = isinstance(params, list | tuple) and all(
        isinstance(layer, list | tuple) and len(layer) == 2 for layer in params
    )
    if not fits or not params:
        got = jax.tree.structure(params) if jax.tree.leaves(params) else params
        raise TypeError(
            "params of a function of layers must be a list of (kernel, bias or None), got"
            f" {shown(got)}"
        )
    check_tree("params", params)
    for index, (kernel, bias) in enumerate(params):
        if kernel is None or jnp.ndim(kernel) != 2:
            shape = None if kernel is None else jnp.shape(kernel)
            raise ValueError(f"params[{index}][0] must be a kernel [in, out], got {shape}")
        if bias is not None and jnp.shape(bias) != jnp.shape(kernel)[1:]:
            raise ValueError(
                f"params[{index}][1] must be a bias of shape {jnp.shape(kernel)[1:]}, got"
                f" {jnp.shape(bias)}"
            )


def decided(
    uses: Uses,
    rows: Sequence[Rows],
    params: PyTree,
    running_sum: PyTree,
    block: int = PAIRS,
    recursion: Recursion = gram_signs,
) -> tuple[jax.Array, PyTree, PyTree]:
    """Signs int8[2K], mean gradient, running sum of a batch, `block` pairs at a time.

    Example:
        >>> uses = [DenseUse("0", 0, None)]
        >>> rows = [Rows(jnp.array([[3.0], [0.0], [1.0], [0.0]]), jnp.ones((4, 1)))]
        >>> signs, mean, total = decided(uses, rows, jnp.ones((1, 1)), jnp.ones((1, 1)))
        >>> signs.tolist(), mean.tolist(), total.tolist()
        ([-1, 1, 1, -1], [[1.0]], [[-1.0]])
    """
    leaves, tree = jax.tree.flatten(running_sum)
    wide, count = jnp.result_type(*leaves), rows[0].deltas.shape[0]
    rows = [Rows(row.inputs.astype(wide), row.deltas.astype(wide)) for row in rows]
    signs, total, leaves = _decide(uses, rows, leaves, min(block, count // 2), recursion)
    mean = jax.tree.map(
        lambda leaf, like: (leaf / count).astype(like.dtype), tree.unflatten(total), params
    )
    return signs, mean, tree.unflatten(leaves)


def _decide(
    uses: Uses, rows: Sequence[Rows], leaves: Leaves, block: int, recursion: Recursion
) -> tuple[jax.Array, Leaves, Leaves]:
    """Signs, sum of the gradients and running sum; block after block, the last padded by zeros."""
    count, size = rows[0].deltas.shape[0], 2 * block
    if size == count:
        signs = _block_signs(uses, rows, leaves, recursion)
        total, change = _halves(uses, rows, leaves, signs)
        return as_pairs(signs), total, jax.tree.map(jnp.add, leaves, change)
    n_blocks = -(-count // size)

    def cut(array: jax.Array) -> jax.Array:
        padded = jnp.pad(array, ((0, n_blocks * size - count), (0, 0)))
        return padded.reshape(n_blocks, size, -1)

    def step(
        carry: tuple[Leaves, Leaves], rows: Sequence[Rows]
    ) -> tuple[tuple[Leaves, Leaves], jax.Array]:
        leaves, total = carry
        signs = _block_signs(uses, rows, leaves, recursion)
        gradient, change = _halves(uses, rows, leaves, signs)
        return (
            jax.tree.map(jnp.add, leaves, change),
            jax.tree.map(jnp.add, total, gradient),
        ), as_pairs(signs)

    first = (leaves, [jnp.zeros_like(leaf) for leaf in leaves])
    (leaves, total), signs = jax.lax.scan(step, first, jax.tree.map(cut, list(rows)))
    return signs.reshape(-1)[:count], total, leaves


def _block_signs(
    uses: Uses, rows: Sequence[Rows], leaves: Leaves, recursion: Recursion
) -> jax.Array:
    """Signs int8[K] of a block from its Gram matrix, strip by strip of the lower triangle."""
    projections = jnp.zeros(())
    for use, (inputs, deltas) in zip(uses, rows, strict=True):
        slopes = jnp.matmul(inputs, leaves[use.kernel], precision=_HIGHEST)
        if use.bias is not None:
            slopes = slopes + leaves[use.bias]
        projections = projections + jnp.sum(slopes * deltas, axis=1)
    inner = projections[0::2] - projections[1::2]
    n_pairs = inner.shape[0]
    signs = jnp.zeros(0, jnp.int8)
    for start in range(0, n_pairs, _STRIP):
        stop = min(start + _STRIP, n_pairs)
        strip = _strip(uses, rows, start, stop)  # inner products with pairs before it and within
        known = strip[:, :start] @ signs.astype(strip.dtype)
        own = recursion(strip[:, start:], inner[start:stop] + known)
        if getattr(own, "shape", None) != (stop - start,):
            raise TypeError(f"recursion must return signs int8[{stop - start}], got {shown(own)}")
        signs = jnp.concatenate([signs, own])
    return signs


def _strip(uses: Uses, rows: Sequence[Rows], start: int, stop: int) -> jax.Array:
    """Inner products of the differences of pairs start..stop with those of pairs 0..stop."""
    gram = jnp.zeros(())
    for use, (inputs, deltas) in zip(uses, rows, strict=True):
        own, all_before = slice(2 * start, 2 * stop), slice(0, 2 * stop)
        likeness = jnp.matmul(inputs[own], inputs[all_before].T, precision=_HIGHEST)
        if use.bias is not None:
            likeness = likeness + 1
        gram = gram + likeness * jnp.matmul(deltas[own], deltas[all_before].T, precision=_HIGHEST)
    apart = gram[0::2] - gram[1::2]
    return apart[:, 0::2] - apart[:, 1::2]


def _halves(
    uses: Uses, rows: Sequence[Rows], leaves: Leaves, signs: jax.Array
) -> tuple[Leaves, Leaves]:
    """Sum of the gradients, and sum with signs, from the sums over +1 and over -1 examples."""
    # Each half has one example of a pair, so both sums together are as much work as one gradient.
    total, change = list(leaves), list(leaves)
    first_is_plus = (signs > 0)[:, None]

    def apart(array: jax.Array) -> tuple[jax.Array, jax.Array]:
        pair = array[0::2], array[1::2]
        return jnp.where(first_is_plus, *pair), jnp.where(first_is_plus, *pair[::-1])

    for use, (inputs, deltas) in zip(uses, rows, strict=True):
        plus_inputs, minus_inputs = apart(inputs)
        plus_deltas, minus_deltas = apart(deltas)
        plus, minus = plus_inputs.T @ plus_deltas, minus_inputs.T @ minus_deltas
        total[use.kernel], change[use.kernel] = plus + minus, plus - minus
        if use.bias is not None:
            plus, minus = jnp.sum(plus_deltas, axis=0), jnp.sum(minus_deltas, axis=0)
            total[use.bias], change[use.bias] = plus + minus, plus - minus
    return total, change
