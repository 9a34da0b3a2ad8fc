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

The layers are known by the trace of the losses, however they are written:

    y = x @ W            W used once, x: one row an example
    z = y + b            b used once, y by nothing else

Where every parameter is such a W or such a b, the inputs x and the gradients of the losses at y are
all that is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from asyncjax.checks import whole
from asyncjax.orders.kernels import as_pairs, gram_signs

PyTree = Any
Layer = Callable[[jax.Array], jax.Array]
Leaves = list[jax.Array]  # of the parameters, or of a tree like them
PAIRS = 64  # decided from one Gram matrix
_HIGHEST = jax.lax.Precision.HIGHEST
_STRIP = 32  # pairs whose inner products with all pairs before them are computed at once
_SHAPES = ("reshape", "broadcast_in_dim")


class DenseUse(NamedTuple):
    """The leaves of the parameters that make one dense layer."""

    kernel: int
    bias: int | None  # None without a bias


class Rows(NamedTuple):
    """What one layer knows of all examples."""

    inputs: jax.Array  # float[B, in]
    deltas: jax.Array  # float[B, out], gradient of the sum of the losses at the pre-activation


Uses = Sequence[DenseUse]


def dense_signs(
    apply: nn.Module | Callable[..., jax.Array],
    params: PyTree,
    inputs: PyTree,
    loss_of_scores: Callable[[jax.Array], jax.Array],
    running_sum: PyTree,
    *,
    pairs_per_block: int | None = PAIRS,
) -> tuple[jax.Array, PyTree, PyTree]:
    r"""Chooses the signs of a batch of a dense network exactly, beside its mean gradient.

    .. math:: s_k = +1 \text{ iff } \langle r, g_{2k} - g_{2k+1} \rangle \le 0, \qquad
              r \leftarrow r + s_k (g_{2k} - g_{2k+1})

    Args:
        apply: A flax linen module, or a function (layers, inputs) -> scores of a plain network;
            `layers` is then a list of functions, one for each (kernel, bias) of `params`, as
            `dense_layers` makes it.
        params: The tree under "params" of the module; or a list of (kernel[in, out], bias[out] or
            None).
        inputs: What `apply` takes, with a leading axis of 2K examples.
        loss_of_scores: Scores -> per-example losses float[2K]; closes over the targets.
        running_sum: Tree like `params`, r so far; float32 or wider, narrower leaves are widened.
        pairs_per_block: Pairs decided from one Gram matrix, then the running sum is brought up to
            date; None for all. It changes time and memory only.

    Returns:
        Signs int8[2K], one an example, as (s, -s) for each pair; the mean gradient, a tree like
        `params` in its dtypes; the new running sum.

    Note:
        The signs are those of `pair_signs` on explicit gradients, up to rounding where an inner
        product nearly vanishes. The loss of an example may depend on no other example. A parameter
        of anything but a dense layer (convolution, normalisation, embedding), or a layer that is
        used more than once, in a loop, or on more than one row an example (in attention, on
        pixels), is refused by name: for such networks call `directional_signs`. Products for signs
        are taken at the highest precision of the device.

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
    """
    running_sum = widened(running_sum, params)

    def losses(params: PyTree, inputs: PyTree) -> jax.Array:
        if isinstance(apply, nn.Module):
            return loss_of_scores(jnp.asarray(apply.apply({"params": params}, inputs)))
        return loss_of_scores(apply(dense_layers(params), inputs))

    traced, values = jax.make_jaxpr(losses, return_shape=True)(params, inputs)
    count = loss_count("loss_of_scores", values)
    met = _shapes(traced, params, inputs, casts=True)
    for product in met.products:
        if product.value.shape[0] != count:
            raise ValueError(
                f"every layer must see {count} rows, one a loss, got {product.value.shape}"
            )
    rows = _rows(traced, params, inputs, met, count)
    block = count // 2
    if pairs_per_block is not None:
        block = min(block, whole("pairs_per_block", pairs_per_block))
    return decided(met.uses, rows, params, running_sum, block)


def dense_layers(params: Sequence[tuple[jax.Array, jax.Array | None]]) -> list[Layer]:
    """Turns (kernel, bias) pairs into functions, so that a plain network can be written once.

    Args:
        params: (kernel[in, out], bias[out] or None) for each layer.

    Returns:
        For each layer the function values[B, in] -> values @ kernel + bias.

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

    return [layer(kernel, bias) for kernel, bias in params]


def widened(running_sum: PyTree, params: PyTree) -> PyTree:
    """Returns the running sum in float32 or wider; it must have the shapes of the parameters."""
    check_shapes(running_sum, params, "params")
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf).astype(jnp.promote_types(leaf.dtype, jnp.float32)),
        running_sum,
    )


def check_shapes(running_sum: PyTree, like: PyTree, words: str) -> None:
    """Refuses a running sum whose leaves have other shapes than those of `like`."""
    leaves = jax.tree_util.tree_leaves_with_path(running_sum)
    for (path, leaf), other in zip(leaves, jax.tree.leaves(like), strict=True):
        if jnp.shape(leaf) != jnp.shape(other):
            raise ValueError(
                f"running_sum{jax.tree_util.keystr(path)} must have the shape of that of {words},"
                f" {jnp.shape(other)}, got {jnp.shape(leaf)}"
            )


def loss_count(name: str, losses: jax.Array) -> int:
    """Returns the number 2K of losses that the function `name` makes."""
    if losses.ndim != 1 or losses.size % 2 or not losses.size:
        raise ValueError(
            f"{name} must return a vector of an even number of losses, pairs of one batch, got"
            f" shape {losses.shape}"
        )
    return losses.size


def dense_form(
    losses: Callable[[PyTree, PyTree], jax.Array], params: PyTree, examples: PyTree
) -> tuple[Uses, list[Rows]] | None:
    """What dense layers know of each example; None where anything else is met.

    Which axis counts examples is read off a second trace with fewer of them.
    """
    count = jax.tree.leaves(examples)[0].shape[0]
    traced = jax.make_jaxpr(losses)(params, examples)
    fewer = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((2 if count > 2 else 4, *leaf.shape[1:]), leaf.dtype),
        examples,
    )
    try:
        met = _shapes(traced, params, examples)
        other = _shapes(jax.make_jaxpr(losses)(params, fewer), params, fewer)
    except (TypeError, ValueError):  # no dense network, or losses of just so many examples
        return None
    if met.uses != other.uses or any(
        rows.shape[0] == fewer.shape[0] or rows.shape[1:] != fewer.shape[1:]
        for rows, fewer in zip(met.inputs, other.inputs, strict=True)
    ):
        return None
    return met.uses, _rows(traced, params, examples, met, count)


class _Leaf:
    """A parameter, or one seen as a row or in another dtype."""

    def __init__(self, index: int, path: Any, value: jax.Array) -> None:
        self.index, self.path, self.value, self.is_row = index, path, value, False
        self.uses: list[bool] = []  # by this leaf in any form; False: no use of a dense layer

    def seen_as(self, value: jax.Array, *, is_row: bool) -> _Leaf:
        other = _Leaf(self.index, self.path, value)
        other.uses, other.is_row = self.uses, is_row
        return other


class _Product:
    """What a kernel made of its inputs, and how often it was read."""

    def __init__(self, place: int, value: jax.Array) -> None:
        self.place, self.value, self.times = place, value, 0


class _Met(NamedTuple):
    """The dense layers that a run of the program met, and what it adds to their products."""

    uses: list[DenseUse]
    inputs: list[jax.Array]
    products: list[_Product]
    taps: Sequence[jax.Array] | None
    casts: bool  # whether a parameter may be used in another dtype than it has


def _rows(
    traced: ClosedJaxpr, params: PyTree, examples: PyTree, met: _Met, count: int
) -> list[Rows]:
    """One forward and one backward pass that stops at the products."""

    def summed(taps: Sequence[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        values, again = _evaluated(traced, params, examples, taps, met.casts)
        return jnp.sum(values), again.inputs

    taps = [jnp.zeros(product.value.shape, product.value.dtype) for product in met.products]
    deltas, inputs = jax.grad(summed, has_aux=True)(taps)
    return [
        Rows(*(array.reshape(count, array.shape[-1]) for array in pair))
        for pair in zip(inputs, deltas, strict=True)
    ]


def _shapes(traced: ClosedJaxpr, params: PyTree, examples: PyTree, casts: bool = False) -> _Met:
    """What would be met, in shapes alone; refuses (ValueError) what is no dense network."""
    met = []

    def look(params: PyTree, examples: PyTree) -> None:
        met.append(_evaluated(traced, params, examples, None, casts)[1])

    jax.eval_shape(look, params, examples)
    return met[0]


def _evaluated(
    traced: ClosedJaxpr,
    params: PyTree,
    examples: PyTree,
    taps: Sequence[jax.Array] | None,
    casts: bool,
) -> tuple[jax.Array, _Met]:
    """The losses, and what was met on the way; `taps` are added to the products."""
    leaves = [
        _Leaf(index, path, jnp.asarray(leaf))
        for index, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(params))
    ]
    met = _Met([], [], [], taps, casts)
    values = _plain(_run(traced, [*leaves, *jax.tree.leaves(examples)], met)[0])
    pairs = zip(met.uses, met.products, strict=True)
    merged = {use.bias: product.times == 1 for use, product in pairs if use.bias is not None}
    for leaf in leaves:
        if leaf.uses != [True] or not merged.get(leaf.index, True):
            raise ValueError(
                f"params{jax.tree_util.keystr(leaf.path)} belongs to no dense layer that was used:"
                " dense_signs covers networks of nn.Dense only; take directional_signs"
            )
    return values, met


def _run(traced: ClosedJaxpr, arguments: list[Any], met: _Met) -> list[Any]:
    """The outputs of a program some of whose inputs are parameters."""
    program, values = traced.jaxpr, {}
    values.update(zip(program.constvars, traced.consts, strict=True))
    values.update(zip(program.invars, arguments, strict=True))

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in program.eqns:
        inputs, params = [value(atom) for atom in equation.invars], equation.params
        name, special = equation.primitive.name, None
        if name in ("jit", "pjit"):
            special = _run(params["jaxpr"], inputs, met)
        elif any(isinstance(one, _Leaf) for one in inputs):
            special = _used(name, inputs, params, equation.outvars[0].aval, met)
        if special is None:
            inputs = [_plain(one) for one in inputs]
            bound = equation.primitive.get_bind_params(params)
            functions, params = bound if isinstance(bound, tuple) else ((), bound)  # jax < 0.10
            special = equation.primitive.bind(*functions, *inputs, **params)
            special = special if equation.primitive.multiple_results else [special]
        values.update(zip(equation.outvars, special, strict=True))
    return [value(atom) for atom in program.outvars]


def _plain(value: Any) -> Any:
    """An array that something else than a dense layer reads."""
    if isinstance(value, _Leaf):
        value.uses.append(False)
    if isinstance(value, _Product):
        value.times += 1
    return value.value if isinstance(value, _Leaf | _Product) else value


def _used(
    name: str, inputs: list[Any], params: dict[str, Any], out: Any, met: _Met
) -> list[Any] | None:
    """What comes of an operation on a parameter, if a dense layer does it."""
    leaf = next(one for one in inputs if isinstance(one, _Leaf))
    if name in _SHAPES and _stays_a_row(leaf, params.get("broadcast_dimensions"), out.shape):
        return [leaf.seen_as(leaf.value.reshape(out.shape), is_row=True)]
    if name == "convert_element_type" and met.casts:
        return [leaf.seen_as(leaf.value.astype(out.dtype), is_row=leaf.is_row)]
    if name == "dot_general" and inputs[1] is leaf and not isinstance(inputs[0], _Leaf):
        return _layer(leaf, _plain(inputs[0]), params, met)
    if name == "add" and len({type(one) for one in inputs}) == 2:
        product = next((one for one in inputs if isinstance(one, _Product)), None)
        if product is not None and leaf.is_row and product.value.shape == out.shape:
            met.uses[product.place] = met.uses[product.place]._replace(bias=leaf.index)
            leaf.uses.append(True)
            return [_plain(product) + leaf.value]
    return None


def _layer(
    leaf: _Leaf, rows: jax.Array, params: dict[str, Any], met: _Met
) -> list[_Product] | None:
    """The product of a kernel and its inputs; None if a dense layer does not multiply like that."""
    numbers = tuple(tuple(map(tuple, pair)) for pair in params["dimension_numbers"])
    if leaf.value.ndim != 2 or rows.ndim < 2 or numbers != (((rows.ndim - 1,), (0,)), ((), ())):
        return None
    words = (getattr(key, "key", getattr(key, "idx", key)) for key in leaf.path[:-1])
    name = "/".join(map(str, words)) or "Dense"
    if True in leaf.uses:
        raise ValueError(f"layer {name} is used twice: dense_signs covers a single use")
    if not set(rows.shape[1:-1]) <= {1}:
        raise ValueError(
            f"layer {name} is used on inputs of shape {rows.shape}: dense_signs covers one "
            f"use an example, inputs [B, in]; take directional_signs"
        )
    place, value = len(met.uses), jax.lax.dot_general(rows, leaf.value, **params)
    leaf.uses.append(True)
    met.uses.append(DenseUse(leaf.index, None))
    met.inputs.append(rows)
    met.products.append(_Product(place, value if met.taps is None else value + met.taps[place]))
    return [met.products[-1]]


def _stays_a_row(leaf: _Leaf, along: Any, shape: tuple[int, ...]) -> bool:
    """Whether a bias of this shape is one row of numbers along the last axis, as before."""
    is_row = leaf.is_row or leaf.value.ndim == 1
    fits = shape[-1:] == leaf.value.shape[-1:] and set(shape[:-1]) <= {1}
    return is_row and fits and (along is None or tuple(along)[-1:] == (len(shape) - 1,))


def decided(
    uses: Uses, rows: Sequence[Rows], params: PyTree, running_sum: PyTree, block: int = PAIRS
) -> tuple[jax.Array, PyTree, PyTree]:
    """Signs int8[2K], mean gradient, running sum of a batch, `block` pairs at a time."""
    leaves, tree = jax.tree.flatten(running_sum)
    wide, count = jnp.result_type(*leaves), rows[0].deltas.shape[0]
    rows = [Rows(row.inputs.astype(wide), row.deltas.astype(wide)) for row in rows]
    signs, total, leaves = _decide(uses, rows, leaves, min(block, count // 2))
    mean = jax.tree.map(
        lambda leaf, like: (leaf / count).astype(like.dtype), tree.unflatten(total), params
    )
    return signs, mean, tree.unflatten(leaves)


def _decide(
    uses: Uses, rows: Sequence[Rows], leaves: Leaves, block: int
) -> tuple[jax.Array, Leaves, Leaves]:
    """Signs, sum of the gradients and running sum; block after block, the last padded by zeros."""
    count, size = rows[0].deltas.shape[0], 2 * block
    if size == count:
        signs = _block_signs(uses, rows, leaves)
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
        signs = _block_signs(uses, rows, leaves)
        gradient, change = _halves(uses, rows, leaves, signs)
        return (
            jax.tree.map(jnp.add, leaves, change),
            jax.tree.map(jnp.add, total, gradient),
        ), as_pairs(signs)

    first = (leaves, [jnp.zeros_like(leaf) for leaf in leaves])
    (leaves, total), signs = jax.lax.scan(step, first, jax.tree.map(cut, list(rows)))
    return signs.reshape(-1)[:count], total, leaves


def _block_signs(uses: Uses, rows: Sequence[Rows], leaves: Leaves) -> jax.Array:
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
        signs = jnp.concatenate([signs, gram_signs(strip[:, start:], inner[start:stop] + known)])
    return signs


def _strip(uses: Uses, rows: Sequence[Rows], start: int, stop: int) -> jax.Array:
    """Inner products of the differences of pairs start..stop with those of pairs 0..stop."""
    gram = jnp.zeros(())
    for use, (inputs, deltas) in zip(uses, rows, strict=True):
        strip, all_before = slice(2 * start, 2 * stop), slice(0, 2 * stop)
        likeness = jnp.matmul(inputs[strip], inputs[all_before].T, precision=_HIGHEST)
        if use.bias is not None:
            likeness = likeness + 1
        gram = gram + likeness * jnp.matmul(deltas[strip], deltas[all_before].T, precision=_HIGHEST)
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
