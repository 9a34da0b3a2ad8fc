"""What a good optax transformation does when it is called.

Extras it does not know are ignored, extras it needs are missed by name, its state never changes
shape or dtype, one compilation serves all calls, and updates keep their dtypes.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from asyncjax.checks import whole
from asyncjax.testing.arguments import floating_dtypes, names
from asyncjax.testing.transform_example import (
    NO_EXTRAS,
    Extras,
    apply_in_loop,
    assert_same,
    example_gradients,
    given_extras,
    started,
)


def check_unknown_extra(
    transform: optax.GradientTransformation, *, extras: Extras = NO_EXTRAS, params: Any = None
) -> None:
    """Checks that an extra nobody knows is accepted and changes nothing.

    Args:
        transform: The transformation.
        extras: The extras it needs, a mapping or a function of (params, step).
        params: Parameters to start from; by default a vector and a scalar in float32.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If `update` refuses an unknown extra, or its result depends on it.

    Example:
        >>> check_unknown_extra(optax.with_extra_args_support(optax.sgd(0.1)))
    """
    _, params = started(transform, params)
    state, grads = transform.init(params), example_gradients(params)
    extra = given_extras(extras, params, 0)
    update = optax.GradientTransformationExtraArgs(*transform).update

    @jax.jit
    def both(grads: Any, state: Any, params: Any, extra: dict[str, Any]) -> Any:
        return (
            update(grads, state, params, **extra)[0],
            update(grads, state, params, **extra, an_extra_nobody_knows=1)[0],
        )

    try:
        expected, updates = both(grads, state, params, extra)
    except TypeError as error:
        if "an_extra_nobody_knows" in str(error):
            raise AssertionError(f"update refused an unknown extra: {error}") from error
        if any(f"unexpected keyword argument '{name}'" in str(error) for name in extra):
            raise AssertionError(
                f"update refused an extra that it was given: {error}; a rule without extras becomes"
                " one that ignores them by optax.with_extra_args_support(rule)"
            ) from error
        raise
    assert_same(updates, expected, "updates with and without an unknown extra")


def required_extras(transform: optax.GradientTransformation) -> list[str]:
    """Returns the names of the extras that the signature of `update` requires.

    Example:
        >>> from asyncjax.steps import picky_sgd, piag
        >>> required_extras(picky_sgd(1.0)), required_extras(piag(1.0, n_workers=2))
        (['read_params'], ['delay', 'worker'])
    """
    parameters = inspect.signature(transform.update).parameters.values()
    alone = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    return [one.name for one in alone if one.default is one.empty]


def check_required_extras(
    transform: optax.GradientTransformation,
    required: Sequence[str] | None = None,
    *,
    extras: Extras = NO_EXTRAS,
    params: Any = None,
) -> None:
    """Checks that leaving out a required extra is a TypeError that names it.

    Args:
        transform: The transformation.
        required: Names of the extras that `update` cannot do without; None: the keyword-only
            arguments without default of its signature (chains of optax have none: name them).
        extras: All extras it needs, a mapping or a function of (params, step).
        params: Parameters to start from; by default a vector and a scalar in float32.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a forgotten extra passes unnoticed, or the error does not name it.

    Example:
        >>> from asyncjax.steps import scale_by_adaptive_1
        >>> check_required_extras(scale_by_adaptive_1(1.0), extras={"delay": 0})
    """
    _, params = started(transform, params)
    state, grads = transform.init(params), example_gradients(params)
    given_extras(extras, params, 0)
    for name in required_extras(transform) if required is None else names("required", required):
        extra = given_extras(extras, params, 0)
        extra.pop(name, None)
        update = partial(optax.GradientTransformationExtraArgs(*transform).update, **extra)
        try:
            jax.eval_shape(update, grads, state, params)
        except TypeError as error:
            if name not in str(error):
                raise AssertionError(
                    f"the TypeError for a forgotten {name} does not name it: {error}"
                ) from error
        else:
            raise AssertionError(f"update without the required extra {name} raised no TypeError")


def check_one_compilation(
    transform: optax.GradientTransformation,
    *,
    extras: Extras = NO_EXTRAS,
    params: Any = None,
    n_steps: int = 5,
) -> None:
    """Checks that a jitted `update` is traced once for any number of calls.

    Args:
        transform: The transformation.
        extras: The extras it needs, a mapping or a function of (params, step).
        params: Parameters to start from; by default a vector and a scalar in float32.
        n_steps: Number of calls.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a later call is traced again.

    Example:
        >>> check_one_compilation(optax.adam(0.1))
    """
    inner, params = started(transform, params)
    n_steps, traces = whole("n_steps", n_steps), 0

    def update(*args: Any, **extra: Any) -> Any:
        nonlocal traces
        traces += 1
        return inner.update(*args, **extra)

    counted = optax.GradientTransformationExtraArgs(inner.init, update)
    apply_in_loop(counted, extras, params, n_steps)
    if traces != 1:
        raise AssertionError(
            f"update was traced {traces} times in {n_steps} calls: its state changes shape, dtype, "
            "weak type or structure"
        )


def check_state(
    transform: optax.GradientTransformation, *, extras: Extras = NO_EXTRAS, params: Any = None
) -> None:
    """Checks that every state leaf is an array whose shape, dtype and strong type never change.

    Args:
        transform: The transformation.
        extras: The extras it needs, a mapping or a function of (params, step).
        params: Parameters to start from; by default a vector and a scalar in float32.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a leaf is no array, is weakly typed, or differs after an update.

    Example:
        >>> check_state(optax.adam(0.1))
    """
    inner, params = started(transform, params)
    before = inner.init(params)
    update = partial(inner.update, **given_extras(extras, params, 0))
    _, after = jax.eval_shape(update, example_gradients(params), before, params)
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise AssertionError("the state has another structure after an update")
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, old), new in pairs:
        name = jax.tree_util.keystr(path)
        if not isinstance(old, jax.Array):
            raise AssertionError(f"state{name} is no jax array after init: {old!r}")
        for leaf, when in ((old, "init"), (new, "update")):
            if getattr(leaf, "weak_type", False):  # a typed key has none
                raise AssertionError(f"state{name} has a weak type after {when}")
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise AssertionError(
                f"state{name} changes from {old.dtype}{list(old.shape)} to "
                f"{new.dtype}{list(new.shape)} in an update"
            )


def check_map_params(transform: optax.GradientTransformation, *, params: Any = None) -> None:
    """Checks that `optax.tree.map_params` can walk the state.

    Args:
        transform: The transformation.
        params: Parameters to start from; by default a vector and a scalar in float32.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If it fails, or an identity map changes the state.

    Example:
        >>> check_map_params(optax.adam(0.1))
    """
    _, params = started(transform, params)
    state = transform.init(params)
    try:
        mapped = optax.tree.map_params(transform, lambda leaf: leaf, state)
    except Exception as error:
        raise AssertionError(f"optax.tree.map_params cannot walk the state: {error}") from error
    assert_same(mapped, state, "state after an identity map_params")


def check_dtypes(
    transform: optax.GradientTransformation,
    *,
    extras: Extras = NO_EXTRAS,
    params: Any = None,
    dtypes: Sequence[str] = ("float32", "bfloat16", "float64"),
) -> None:
    """Checks that updates keep the dtypes of the gradients, and the state its own.

    Args:
        transform: The transformation.
        extras: The extras it needs, a mapping or a function of (params, step).
        params: Parameters to start from; by default a vector and a scalar in float32.
        dtypes: Dtypes that the parameters are cast to; "float64" enables x64 for its check.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a dtype changes.

    Example:
        >>> check_dtypes(optax.scale(0.5))
    """
    inner, params = started(transform, params)
    for dtype in floating_dtypes("dtypes", dtypes):
        with jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext():
            cast = jax.tree.map(lambda leaf, to=dtype: jnp.asarray(leaf, to), params)
            check_state(transform, extras=extras, params=cast)
            updates, _ = jax.eval_shape(
                partial(inner.update, **given_extras(extras, cast, 0)),
                example_gradients(cast),
                inner.init(cast),
                cast,
            )
            for update in jax.tree.leaves(updates):
                if update.dtype != jnp.dtype(dtype):
                    raise AssertionError(
                        f"updates have dtype {update.dtype} for gradients and parameters of {dtype}"
                    )
