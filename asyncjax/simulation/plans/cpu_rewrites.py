"""A function in the form that a CPU takes fastest, its results the same.

    sum_r a[l, r, :] b[l, r, :]^T   as   copy(a^T)[l] @ b[l]      for every model l

The gradient of a kernel is such a sum over the rows of a batch. XLA's CPU backend (jaxlib 0.10)
does a batch of products in one call of its fast library only where the left factor lies with its
summed axis last; otherwise it calls Eigen once for every model, which for small matrices costs more
than the arithmetic. So the left factor is copied into that form first. The numbers that are
multiplied and added are the same, the order of a sum may differ in the last place. Random bits, bit
for bit the same, come from `random_bits`, and convolutions turn their axes (`convolutions`). Other
devices get everything as it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from asyncjax.simulation.plans import random_bits
from asyncjax.simulation.plans.convolutions import convolution, is_turned

_RANDOM = ("random_bits", "random_fold_in", "random_split")
_SMALL = 2**16  # multiplications of one product


def quick(function: Callable[..., Any], *, random: bool = True) -> Callable[..., Any]:
    """The same function, its small batched products and convolutions in their fastest form.

    And its random bits, unless `random` is False: the form that draws them fastest takes longer to
    compile.

    Example:
        >>> def gram(rows):
        ...     return rows.T @ rows
        >>> rows = jnp.ones((2, 8, 3))
        >>> quick(jax.vmap(gram))(rows)[0, 0].tolist()
        [8.0, 8.0, 8.0]
    """

    def called(*arguments: Any) -> Any:
        traced, form = jax.make_jaxpr(function, return_shape=True)(*arguments)
        outputs = _evaluated(traced, jax.tree.leaves(arguments), random)
        return jax.tree.unflatten(jax.tree.structure(form), outputs)

    return called


def _evaluated(traced: ClosedJaxpr, arguments: list[Any], random: bool) -> list[Any]:
    """The outputs of a traced function."""
    program, values = traced.jaxpr, {}
    values.update(zip(program.constvars, map(_of_now, traced.consts), strict=True))
    values.update(zip(program.invars, arguments, strict=True))

    def value(atom: Any) -> Any:
        return _of_now(atom.val) if isinstance(atom, Literal) else values[atom]

    turned = _turned_products(program)
    for equation in program.eqns:
        inputs = [value(atom) for atom in equation.invars]
        name, params = equation.primitive.name, equation.params
        if name in ("jit", "pjit"):
            outputs = _evaluated(params["jaxpr"], inputs, random)
        elif random and name in _RANDOM and random_bits.is_known(inputs[0]):
            outputs = [_drawn(equation, inputs)]
        elif _is_slow(equation):
            # Where all that is done with the product is to turn it, the other factor goes left.
            left, right = reversed(inputs) if equation.outvars[0] in turned else inputs
            outputs = [_product(left, right, params)]
        elif name == "transpose" and equation.invars[0] in turned:
            outputs = inputs
        elif is_turned(equation):
            outputs = [convolution(inputs[0], inputs[1], params)]
        else:
            bound = equation.primitive.get_bind_params(params)
            functions, params = bound if isinstance(bound, tuple) else ((), bound)  # jax < 0.10
            outputs = equation.primitive.bind(*functions, *inputs, **params)
            outputs = outputs if equation.primitive.multiple_results else [outputs]
        values.update(zip(equation.outvars, outputs, strict=True))
    return [value(atom) for atom in program.outvars]


def _of_now(constant: Any) -> Any:
    """A constant, in the precision that is switched on.

    JAX remembers constants of NumPy as they were when it first saw them, in 64 bits if those were
    switched on then.
    """
    if isinstance(constant, jax.Array | bool | int | float | complex):
        return constant
    return jnp.asarray(np.asarray(constant)) if hasattr(constant, "__array__") else constant


def _drawn(equation: Any, inputs: list[Any]) -> Any:
    """Random bits or keys, drawn in one pass on a CPU."""
    name, params = equation.primitive.name, equation.params
    if name == "random_bits" and params["bit_width"] != 32:
        return equation.primitive.bind(*inputs, **params)

    def plain(*inputs: jax.Array) -> Any:
        return equation.primitive.bind(*inputs, **params)

    def written_out(key: jax.Array, *data: jax.Array) -> Any:
        if name == "random_fold_in":
            return random_bits.folded(key, *data)
        draw = random_bits.bits if name == "random_bits" else random_bits.parted
        return draw(key, tuple(params["shape"]))

    return jax.lax.platform_dependent(*inputs, cpu=written_out, default=plain)


def _is_slow(equation: Any) -> bool:
    """Whether it is a batch of small products, each summed over the first axis of both factors."""
    if equation.primitive.name != "dot_general":
        return False
    summed, batch = equation.params["dimension_numbers"]
    left, right = (atom.aval.shape for atom in equation.invars)
    rows = len(left) - 2
    return (
        rows > 0
        and len(right) == len(left)
        and tuple(map(tuple, summed)) == ((rows,), (rows,))
        and tuple(map(tuple, batch)) == (tuple(range(rows)),) * 2
        and left[-2] * left[-1] * right[-1] <= _SMALL
    )


def _turned_products(program: Jaxpr) -> set[Any]:
    """Slow products whose only use is to be transposed."""
    uses: dict[Any, list[Any]] = {}
    for equation in program.eqns:
        for atom in equation.invars:
            if not isinstance(atom, Literal):
                uses.setdefault(atom, []).append(equation)
    kept = {atom for atom in program.outvars if not isinstance(atom, Literal)}

    def is_turned(made: Any) -> bool:
        users, rank = uses.get(made, []), len(made.aval.shape)
        swap = (*range(rank - 2), rank - 1, rank - 2)
        return (
            made not in kept
            and len(users) == 1
            and users[0].primitive.name == "transpose"
            and tuple(users[0].params["permutation"]) == swap
        )

    made = (equation.outvars[0] for equation in program.eqns if _is_slow(equation))
    return {each for each in made if is_turned(each)}


def _product(left: jax.Array, right: jax.Array, params: dict[str, Any]) -> jax.Array:
    """The product, with the left factor copied on a CPU."""
    summed, batch = params["dimension_numbers"]
    rest = {name: params[name] for name in ("precision", "preferred_element_type")}

    def quick(left: jax.Array, right: jax.Array) -> jax.Array:
        copied = jax.lax.optimization_barrier(jnp.swapaxes(left, -1, -2))
        last = ((left.ndim - 1,), summed[1])
        return jax.lax.dot_general(copied, right, (last, batch), **rest)

    def plain(left: jax.Array, right: jax.Array) -> jax.Array:
        return jax.lax.dot_general(left, right, (summed, batch), **rest)

    return jax.lax.platform_dependent(left, right, cpu=quick, default=plain)
