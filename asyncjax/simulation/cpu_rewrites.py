r"""A function in the form that a CPU takes fastest, its results the same.

    sum_r a[l, r, :] b[l, r, :]^T   as   copy(a^T)[l] @ b[l]      for every model l

The gradient of a kernel is such a sum over the rows of a batch. XLA's CPU backend (jaxlib 0.10)
does a batch of products in one call of its fast library only where the left factor lies with its
summed axis last; otherwise it calls Eigen once for every model, which for small matrices costs more
than the arithmetic. So the left factor is copied into that form first.

The gradient of a convolution's kernel, sum_{r, p} x[r, p + q, c] g[r, p, o] at [q, c, o], is a
convolution whose batch is c and whose channels are r. The library wants the batch first, the
channels last and the kernel as [places, in, out]; in the body of a loop XLA goes by a plain loop
nest for all others, which takes three times as long. So they are turned here. (One that is vmapped
over its kernel becomes a grouped one, slow in every form.)

Random bits of "threefry2x32" (Salmon, Moraes, Dror, Shaw 2011, "Parallel Random Numbers: As Easy as
1, 2, 3") are drawn in one fused pass, where JAX makes five turns of a loop: eight times as long for
a thousand small draws.

.. math:: (x_0, x_1) \leftarrow (x_0 + x_1, \; (x_1 \lll r) \oplus (x_0 + x_1))
          \quad \text{twenty times, a part of the key added after every fourth}

Bits are the same; the numbers that are multiplied and added too, the order of a sum may differ in
the last place. Other devices get everything as it was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from asyncjax.problems import Problem

_CONVOLUTION = "conv_general_dilated"
_LARGE = 8192  # parameters
_SMALL = 2**16  # multiplications of one product
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
Words = tuple[jax.Array, jax.Array]  # uint32[...] each


def convolves(problem: Problem) -> bool:
    """Whether a job's gradient has a convolution in it; traced once, nothing is computed.

    Example:
        >>> from asyncjax import problems
        >>> def loss(kernel, images, key):
        ...     return jnp.mean(jax.lax.conv(images, kernel, (1, 1), "SAME") ** 2)
        >>> kernel, images = jnp.ones((1, 1, 3, 3)), jnp.ones((4, 1, 8, 8))
        >>> convolves(problems.from_loss(kernel, loss, images, n_workers=2))
        True
    """
    leaves, structure = jax.tree.flatten((problem.data, problem.params, problem.worker_state()))
    forms = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return _convolves(problem.gradient_of, problem.worker_state_of is not None, structure, forms)


def batching_loses(problem: Problem) -> bool:
    """Whether one event at a time is faster than waves.

    XLA's batched products are slow on a CPU for all but small models, its batched convolutions for
    all.
    """
    if jax.default_backend() != "cpu":
        return False
    size = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(problem.params))
    return size >= _LARGE or convolves(problem)


@lru_cache(maxsize=16)
def _convolves(
    gradient: Callable[..., Any], keeps: bool, structure: Any, forms: tuple[Any, ...]
) -> bool:
    leaves = [jax.ShapeDtypeStruct(*form) for form in forms]
    data, params, state = jax.tree.unflatten(structure, leaves)
    number, key = jax.ShapeDtypeStruct((), jnp.int32), jax.eval_shape(jax.random.key, 0)
    traced = jax.make_jaxpr(gradient)(data, params, number, number, key, *(state,) * keeps)
    return _CONVOLUTION in str(traced)  # its text has inner functions too


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
    program = traced.jaxpr
    values = dict(zip(program.constvars, map(_of_now, traced.consts), strict=True))
    values |= dict(zip(program.invars, arguments, strict=True))

    def value(atom: Any) -> Any:
        return _of_now(atom.val) if isinstance(atom, Literal) else values[atom]

    turned = _turned_products(program)
    for equation in program.eqns:
        inputs = [value(atom) for atom in equation.invars]
        name, params = equation.primitive.name, equation.params
        if name in ("jit", "pjit"):
            outputs = _evaluated(params["jaxpr"], inputs, random)
        elif random and _is_random(equation, inputs):
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
    """A constant in the precision that is switched on: JAX keeps those of NumPy as first seen."""
    if isinstance(constant, jax.Array | bool | int | float | complex):
        return constant
    return jnp.asarray(np.asarray(constant)) if hasattr(constant, "__array__") else constant


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
    atoms = [atom for equation in program.eqns for atom in equation.invars] + [*program.outvars]
    uses = Counter(atom for atom in atoms if not isinstance(atom, Literal))
    slow = {equation.outvars[0] for equation in program.eqns if _is_slow(equation)}
    turned = set()
    for equation in program.eqns:
        product: Any = equation.invars[0] if equation.primitive.name == "transpose" else None
        if product in slow and uses[product] == 1:
            rank = len(product.aval.shape)
            if tuple(equation.params["permutation"]) == (*range(rank - 2), rank - 1, rank - 2):
                turned.add(product)
    return turned


def _product(left: jax.Array, right: jax.Array, params: dict[str, Any]) -> jax.Array:
    """The product, with the left factor copied on a CPU."""
    summed, batch = params["dimension_numbers"]
    rest = {name: params[name] for name in ("precision", "preferred_element_type")}

    def copied(left: jax.Array, right: jax.Array) -> jax.Array:
        left = jax.lax.optimization_barrier(jnp.swapaxes(left, -1, -2))
        last = ((left.ndim - 1,), summed[1])
        return jax.lax.dot_general(left, right, (last, batch), **rest)

    def plain(left: jax.Array, right: jax.Array) -> jax.Array:
        return jax.lax.dot_general(left, right, (summed, batch), **rest)

    return jax.lax.platform_dependent(left, right, cpu=copied, default=plain)


def is_turned(equation: Any) -> bool:
    """Whether an operation is a convolution of one group whose axes lie in another order."""
    if equation.primitive.name != _CONVOLUTION:
        return False
    params = equation.params
    groups = params["feature_group_count"], params["batch_group_count"]
    axes = params["dimension_numbers"]
    return groups == (1, 1) and axes != _plain(len(axes.lhs_spec))


def convolution(left: jax.Array, right: jax.Array, params: dict[str, Any]) -> jax.Array:
    """The convolution, on a CPU with its axes in the order that the library takes."""
    axes = params["dimension_numbers"]
    rest = {name: value for name, value in params.items() if name != "dimension_numbers"}

    def turned(left: jax.Array, right: jax.Array) -> jax.Array:
        batch, channels, *places = axes.lhs_spec
        left = jnp.transpose(left, (batch, *places, channels))
        out, into, *places = axes.rhs_spec
        right = jnp.transpose(right, (*places, into, out))
        result = jax.lax.conv_general_dilated(
            left, right, dimension_numbers=_plain(left.ndim), **rest
        )
        batch, channels, *places = axes.out_spec
        return jnp.transpose(result, np.argsort((batch, *places, channels)).tolist())

    def plain(left: jax.Array, right: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(left, right, dimension_numbers=axes, **rest)

    return jax.lax.platform_dependent(left, right, cpu=turned, default=plain)


def _plain(rank: int) -> jax.lax.ConvDimensionNumbers:
    """Batch first, channels last; the kernel as [places, in, out]."""
    data = (0, rank - 1, *range(1, rank - 1))
    return jax.lax.ConvDimensionNumbers(data, (rank - 1, rank - 2, *range(rank - 2)), data)


def _is_random(equation: Any, inputs: list[Any]) -> bool:
    """Whether it draws bits or keys whose numbers are those of this file."""
    name = equation.primitive.name
    if name == "random_bits" and equation.params["bit_width"] != 32:
        return False
    return name in ("random_bits", "random_fold_in", "random_split") and (
        str(jax.random.key_impl(inputs[0])) in ("fry", "threefry2x32")
        and bool(getattr(jax.config, "jax_threefry_partitionable", False))
    )


def _drawn(equation: Any, inputs: list[Any]) -> Any:
    """Random bits or keys, drawn in one pass on a CPU."""
    name, params = equation.primitive.name, equation.params

    def plain(*inputs: jax.Array) -> Any:
        return equation.primitive.bind(*inputs, **params)

    def written_out(key: jax.Array, *data: jax.Array) -> Any:
        if name == "random_fold_in":
            return folded(key, *data)
        draw = bits if name == "random_bits" else parted
        return draw(key, tuple(params["shape"]))

    return jax.lax.platform_dependent(*inputs, cpu=written_out, default=plain)


def folded(key: jax.Array, data: jax.Array) -> jax.Array:
    """`jax.random.fold_in`, key by key."""
    low, words = data.astype(jnp.uint32), jax.random.key_data(key)
    return _keys(key, _threefry((words[..., 0], words[..., 1]), jnp.zeros_like(low), low))


def parted(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """`jax.random.split`; keys [...] give [..., *shape]."""
    return _keys(key, _counted(key, shape))


def bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """`jax.random.bits` of 32 bits; keys [...] give uint32[..., *shape]."""
    first, second = _counted(key, shape)
    return first ^ second


def _counted(key: jax.Array, shape: tuple[int, ...]) -> Words:
    """The two words of each place of a shape."""
    places = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint32).reshape(shape)
    wanted = (*key.shape, *shape)
    low = jnp.broadcast_to(places, wanted)
    words = jax.random.key_data(key).reshape(*key.shape, *(1,) * len(shape), 2)
    first, second = (jnp.broadcast_to(words[..., number], wanted) for number in (0, 1))
    return _threefry((first, second), jnp.zeros_like(low), low)


def _keys(like: jax.Array, words: Words) -> jax.Array:
    return jax.random.wrap_key_data(jnp.stack(words, -1), impl=jax.random.key_impl(like))


def _threefry(key: Words, first: Any, second: Any) -> Words:
    """Twenty rounds on pairs of words."""
    parts = (*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    first, second = first + parts[0], second + parts[1]
    for turn in range(5):
        for rotation in _ROTATIONS[turn % 2]:
            first = first + second
            left, right = np.uint32(rotation), np.uint32(32 - rotation)
            second = first ^ ((second << left) | (second >> right))
        first = first + parts[(turn + 1) % 3]
        second = second + parts[(turn + 2) % 3] + np.uint32(turn + 1)
    return first, second
