"""Losses of a network of dense layers, known by their trace, however they are written.

    y = x @ W            W used once, x: one row an example
    z = y + b            b used once, y by nothing else

Where every parameter is such a W or such a b, inputs x and the gradients of the losses at y are all
that `dense_signs` needs. Which axis counts examples is read off a second trace with fewer of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from asyncjax.orders.dense_signs import DenseUse, Rows

PyTree = Any
_SHAPES = ("reshape", "broadcast_in_dim")


class _NotDenseError(Exception):
    """A parameter is used in another way than a dense layer uses it."""


class _Leaf:
    """A parameter, or one seen as a row: its place, and how often it was used."""

    def __init__(self, index: int, value: jax.Array, times: list[int], is_row: bool) -> None:
        self.index, self.value, self.times, self.is_row = index, value, times, is_row


class _Product:
    """What a kernel made of its inputs: the use, and how often the product was read."""

    def __init__(self, place: int, value: jax.Array) -> None:
        self.place, self.value, self.times = place, value, 0


class _Met(NamedTuple):
    """The uses of dense layers that a run of the program met, and what it adds on the way."""

    uses: list[DenseUse]
    inputs: list[jax.Array]
    products: list[_Product]
    taps: Sequence[jax.Array] | None  # what is added to the products


def dense_form(
    losses: Callable[[PyTree, PyTree], jax.Array], params: PyTree, examples: PyTree
) -> tuple[list[DenseUse], list[Rows]] | None:
    """What dense layers know of each example, one use of each; None if anything else is met.

    Example:
        >>> params = {"w": jnp.ones((2, 1)), "b": jnp.zeros(1)}
        >>> def losses(params, rows):
        ...     return jnp.tanh(rows @ params["w"] + params["b"])[:, 0]
        >>> uses, rows = dense_form(losses, params, jnp.ones((4, 2)))
        >>> uses, rows[0].inputs.shape, rows[0].deltas.shape
        ([DenseUse(name='1', kernel=1, bias=0)], (4, 2), (4, 1))
        >>> dense_form(lambda params, rows: losses(params, rows) * params["b"], params,
        ...            jnp.ones((4, 2))) is None
        True
    """
    count = jax.tree.leaves(examples)[0].shape[0]
    traced = jax.make_jaxpr(losses)(params, examples)
    met = _shapes(traced, params, examples)
    fewer = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((2 if count > 2 else 4, *leaf.shape[1:]), leaf.dtype),
        examples,
    )
    if met is None:
        return None
    try:
        other = _shapes(jax.make_jaxpr(losses)(params, fewer), params, fewer)
    except (TypeError, ValueError):  # losses of just so many examples
        return None
    if other is None or not _counts_examples(met, other):
        return None
    taps = [jnp.zeros(product.value.shape, product.value.dtype) for product in met.products]

    def summed(taps: Sequence[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        values, met = _evaluated(traced, params, examples, taps)
        return jnp.sum(values), met.inputs

    deltas, inputs = jax.grad(summed, has_aux=True)(taps)
    rows = [
        Rows(*(array.reshape(count, array.shape[-1]) for array in pair))
        for pair in zip(inputs, deltas, strict=True)
    ]
    return met.uses, rows


def _shapes(traced: ClosedJaxpr, params: PyTree, examples: PyTree) -> _Met | None:
    """What would be met, in shapes alone."""
    met = []

    def look(params: PyTree, examples: PyTree) -> None:
        met.append(_evaluated(traced, params, examples, None)[1])

    try:
        jax.eval_shape(look, params, examples)
    except _NotDenseError:
        return None
    return met[0]


def _counts_examples(met: _Met, other: _Met) -> bool:
    """Whether the first axis of every layer's inputs, and no other, goes with the examples."""
    return met.uses == other.uses and all(
        rows.shape[0] != fewer.shape[0] and rows.shape[1:] == fewer.shape[1:]
        for rows, fewer in zip(met.inputs, other.inputs, strict=True)
    )


def _evaluated(
    traced: ClosedJaxpr, params: PyTree, examples: PyTree, taps: Sequence[jax.Array] | None
) -> tuple[jax.Array, _Met]:
    """The losses, and what was met on the way; `taps` are added to the products."""
    leaves = [
        _Leaf(index, jnp.asarray(leaf), [0], False)
        for index, leaf in enumerate(jax.tree.leaves(params))
    ]
    met = _Met([], [], [], taps)
    values = _plain(_run(traced, [*leaves, *jax.tree.leaves(examples)], met)[0])
    pairs = zip(met.uses, met.products, strict=True)
    merged = [product.times == 1 for use, product in pairs if use.bias is not None]
    if any(leaf.times != [1] for leaf in leaves) or not all(merged):
        raise _NotDenseError
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
            special = [_used(name, inputs, params, equation.outvars[0].aval.shape, met)]
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
        raise _NotDenseError
    if isinstance(value, _Product):
        value.times += 1
        return value.value
    return value


def _used(
    name: str, inputs: list[Any], params: dict[str, Any], shape: tuple[int, ...], met: _Met
) -> Any:
    """What comes of an operation on a parameter, if a dense layer does it."""
    leaf = next(one for one in inputs if isinstance(one, _Leaf))
    if name in _SHAPES and _stays_a_row(leaf, params.get("broadcast_dimensions"), shape):
        return _Leaf(leaf.index, leaf.value.reshape(shape), leaf.times, True)
    if name == "dot_general" and inputs[1] is leaf and leaf.value.ndim == 2:
        rows = _plain(inputs[0])
        wanted = (((rows.ndim - 1,), (0,)), ((), ()))
        found = tuple(tuple(map(tuple, pair)) for pair in params["dimension_numbers"])
        if found == wanted and rows.ndim > 1 and set(rows.shape[1:-1]) <= {1}:
            place, value = len(met.uses), jax.lax.dot_general(rows, leaf.value, **params)
            leaf.times[0] += 1
            product = _Product(place, value if met.taps is None else value + met.taps[place])
            met.uses.append(DenseUse(str(leaf.index), leaf.index, None))
            met.inputs.append(rows)
            met.products.append(product)
            return product
    if name == "add" and len({type(one) for one in inputs}) == 2:
        product = next((one for one in inputs if isinstance(one, _Product)), None)
        if product is not None and leaf.is_row and product.value.shape == shape:
            use = met.uses[product.place]
            met.uses[product.place] = use._replace(bias=leaf.index)
            leaf.times[0] += 1
            return _plain(product) + leaf.value
    raise _NotDenseError


def _stays_a_row(leaf: _Leaf, along: Any, shape: tuple[int, ...]) -> bool:
    """Whether a bias of this shape is one row of numbers along the last axis, as before."""
    is_row = leaf.is_row or leaf.value.ndim == 1
    fits = shape[-1:] == leaf.value.shape[-1:] and set(shape[:-1]) <= {1}
    return is_row and fits and (along is None or tuple(along)[-1:] == (len(shape) - 1,))
