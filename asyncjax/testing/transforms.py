"""What a good optax transformation does: called as a loop calls it, and inside other wrappers.

Extras it does not know are ignored, extras it needs are missed by name, its state never changes
shape or dtype, one compilation serves all calls, and updates keep their dtypes. The updates are the
same in a Python loop, in `jax.lax.scan`, under `jax.vmap`, and inside `inject_hyperparams`,
`masked`, `chain` and `MultiSteps`; and an optimizer converges. What passes can be used in any loop.

It is tried on a small problem: loss(x) = ||x - 1||^2 / 2,     gradients: cos(1), cos(2), ...
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.checks import within
from asyncjax.testing.failures import check_initial_state, check_same_form, fails_as

Extras = Mapping[str, Any] | Callable[[Any, Any], Mapping[str, Any]]

NO_EXTRAS: Mapping[str, Any] = MappingProxyType({})
_STEPS = 4  # updates of a loop and of a scan
_LONG, _NEAR = 500, 1e-2  # updates until the minimum, and how far from it a parameter may end


def check_transform(
    transform: optax.GradientTransformation,
    *,
    extras: Extras = NO_EXTRAS,
    params: Any = None,
    required: Sequence[str] | None = None,
    converges: bool = True,
    finish: optax.GradientTransformation | None = None,
    dtypes: Sequence[str] = ("float32", "bfloat16", "float64"),
    sharded: bool = True,
) -> None:
    """Checks a transformation against the contract of optax's own.

    - an extra nobody knows is accepted and changes nothing; leaving out a required one is a
      TypeError that names it;
    - every leaf of the state is a jax array whose shape, dtype and strong type never change, and
      `optax.tree.map_params` can walk it;
    - updates keep the dtypes of the gradients;
    - a jitted `update` is traced once, `jax.lax.scan` gives what the loop gives, and two runs under
      `jax.vmap` what each gives alone;
    - `inject_hyperparams` (around a chain with a scale of 1), `masked` with a mask that is true
      everywhere, `chain` and `MultiSteps` with one micro-step change nothing;
    - `init` takes shapes for parameters, and on an explicit mesh the state is sharded alike after
      `init` and after `update`, jitted or not (optax's own sharding test);
    - unless told otherwise, it reaches the minimum of ||x - 1||^2 / 2 within 0.01 in 500 updates.

    Args:
        transform: The transformation.
        extras: The extras it needs: a mapping such as `{"delay": 1}`, or a function of (params,
            step) for extras that change or that look like the parameters. Required ones that it
            does not give are those of `example_extras`, where that has them.
        params: Tree of parameters; by default a vector and a scalar in float32.
        required: Names of the extras that `update` cannot do without; None: the keyword-only
            arguments without default of its signature (chains of optax have none: name them).
        converges: Whether it is asked to minimise a small quadratic.
        finish: What follows it in a chain for that, such as `optax.scale(-0.1)` for a
            transformation that only rescales; by default nothing.
        dtypes: Dtypes of parameters and gradients that must be kept; "float64" enables x64 for its
            check.
        sharded: Whether it is tried on sharded parameters, on a mesh of one device; False for a
            rule that flattens them, as for a median over all coordinates.

    Example:
        >>> from asyncjax.steps import delay_adaptive_sgd
        >>> check_transform(delay_adaptive_sgd(0.9), required=["delay"])
    """
    if params is None:
        params = {"bias": jnp.float32(0.5), "weight": jnp.array([-1.0, 2.0, 0.25], jnp.float32)}

    names = required_extras(transform) if required is None else required

    def of_step(params: Any, step: Any) -> dict[str, Any]:
        given = dict(extras(params, step) if callable(extras) else extras)
        known = example_extras(params, step) if set(names) - set(given) else {}
        return {name: known[name] for name in names if name in known} | given

    _check_unknown_extra(transform, of_step(params, 0), params)
    _check_required_extras(transform, names, of_step(params, 0), params)
    inner = optax.with_extra_args_support(transform)
    _check_state(inner, of_step, params)
    _check_map_params(transform, params)
    for dtype in dtypes:
        _check_dtype(inner, of_step, params, dtype)
    _check_scan(inner, of_step, params)
    _check_vmap(inner, of_step, params)
    _check_wrappers(transform, of_step, params)
    if sharded:
        _check_sharding(inner, of_step, params)
    if converges:
        whole = transform if finish is None else optax.chain(transform, finish)
        _check_convergence(optax.with_extra_args_support(whole), of_step, params)


def example_extras(params: optax.Params, step: Any) -> dict[str, Any]:
    """Returns every extra that a loop of this library hands to an optimizer, for one update.

    Three workers in turn; delays 0, 1, 2 in turn; parameters read a tenth away from now.

    Args:
        params: The current parameters.
        step: Number of the update, an int or an int32 scalar.

    Returns:
        A dictionary with `delay`, `worker`, `block`, `time`, `place`, `key`, `read_params` and
        `worker_params`.

    Example:
        >>> extras = example_extras(jnp.float32(2.0), 4)
        >>> extras["delay"], extras["time"], float(extras["worker_params"])
        (1, 5.0, 1.5)
    """
    within("step", step, least=0, integer=True)
    return {
        "delay": step % 3,
        "worker": step % 3,
        "block": step % 3,
        "time": 1.0 + step,
        "place": step % 2,
        "key": jax.random.fold_in(jax.random.key(0), step),
        "read_params": jax.tree.map(lambda leaf: leaf * jnp.asarray(0.9, leaf.dtype), params),
        "worker_params": jax.tree.map(lambda leaf: (leaf + 1) / 2, params),
    }


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


def _gradients(params: Any, step: int = 0) -> Any:
    """Gradients like `params`: fixed numbers in [-1, 1] that differ from step to step."""

    def gradient(leaf: ArrayLike) -> jax.Array:
        leaf = jnp.asarray(leaf)
        numbers = np.cos(np.arange(1, leaf.size + 1) + step).reshape(leaf.shape)
        return jnp.asarray(numbers, leaf.dtype)

    return jax.tree.map(gradient, params)


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _same(actual: Any, expected: Any, what: str) -> None:
    """Compares two trees of numbers, to six digits; of typed keys their numbers."""

    def numbers(leaf: Any) -> Any:
        is_key = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if is_key else leaf

    trees = jax.tree.map(numbers, (actual, expected))
    chex.assert_trees_all_close(*trees, rtol=2e-6, atol=1e-6, custom_message=what)


def _check_unknown_extra(transform: Any, extra: dict[str, Any], params: Any) -> None:
    """Checks that an extra nobody knows is accepted and changes nothing."""
    state, grads = transform.init(params), _gradients(params)
    update = optax.GradientTransformationExtraArgs(*transform).update

    @jax.jit
    def both(*called: Any, extra: dict[str, Any]) -> Any:
        known, more = update(*called, **extra), update(*called, **extra, an_extra_nobody_knows=1)
        return known[0], more[0]

    try:
        expected, updates = both(grads, state, params, extra=extra)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise AssertionError(
            f"update refused an extra that it was given: {error}; a rule without extras becomes"
            " one that ignores them by optax.with_extra_args_support(rule)"
        ) from error
    _same(updates, expected, "updates with and without an unknown extra")


def _check_required_extras(
    transform: Any, names: Sequence[str], extras: dict[str, Any], params: Any
) -> None:
    """Checks that leaving out a required extra is a TypeError that names it."""
    state, grads = transform.init(params), _gradients(params)
    for name in names:
        extra = {key: value for key, value in extras.items() if key != name}
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


def _check_state(inner: Any, extras: Any, params: Any) -> Any:
    """Checks that every leaf of the state is an array that keeps its form; gives the updates."""
    before = inner.init(params)
    check_initial_state(before, "the transformation")
    update = partial(inner.update, **extras(params, 0))
    updates, after = jax.eval_shape(update, _gradients(params), before, params)
    check_same_form(before, after, "update of the transformation")
    return updates


def _check_map_params(transform: Any, params: Any) -> None:
    """Checks that `optax.tree.map_params` can walk the state, and changes nothing."""
    state = transform.init(params)
    with fails_as("optax.tree.map_params must walk the state"):
        mapped = optax.tree.map_params(transform, lambda leaf: leaf, state)
    _same(mapped, state, "state after an identity map_params")


def _check_dtype(inner: Any, extras: Any, params: Any, dtype: str) -> None:
    """Checks that updates keep the dtype of parameters and gradients, and the state its own."""
    with jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext():
        cast = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), params)
        for update in jax.tree.leaves(_check_state(inner, extras, cast)):
            if update.dtype != jnp.dtype(dtype):
                raise AssertionError(
                    f"updates have dtype {update.dtype} for gradients and parameters of {dtype}"
                )


def _loop(inner: Any, extras: Any, params: Any, grads: Sequence[Any]) -> tuple[Any, Any]:
    """The updates for several gradients, stacked, and the last state."""
    state, outputs = inner.init(params), []
    for step, gradient in enumerate(grads):
        updates, state = inner.update(gradient, state, params, **extras(params, step))
        outputs.append(updates)
    return _stacked(outputs), state


def _check_scan(inner: Any, extras: Any, params: Any) -> None:
    """Checks that `update` is traced once in a loop, and that `jax.lax.scan` equals the loop."""
    traced = []

    @jax.jit
    def update(*called: Any, **extra: Any) -> Any:
        traced.append(None)
        return inner.update(*called, **extra)

    grads = [_gradients(params, step) for step in range(_STEPS)]
    expected = _loop(inner._replace(update=update), extras, params, grads)
    if len(traced) != 1:
        raise AssertionError(
            f"update was traced {len(traced)} times in {_STEPS} calls: its state or its extras"
            " change shape, dtype, weak type or structure"
        )

    def body(state: Any, inputs: Any) -> Any:
        step, gradient = inputs
        updates, state = inner.update(gradient, state, params, **extras(params, step))
        return state, updates

    inputs = jnp.arange(_STEPS, dtype=jnp.int32), _stacked(grads)
    with fails_as("jax.lax.scan must take the transformation"):
        state, updates = jax.lax.scan(body, inner.init(params), inputs)
    _same(state, expected[1], "state after a scan and after a loop")
    _same(updates, expected[0], "updates in a scan and in a loop")


def _check_vmap(inner: Any, extras: Any, params: Any) -> None:
    """Checks that two runs under `jax.vmap` equal the two runs alone."""
    run = partial(_loop, inner, extras)
    other = jax.tree.map(lambda leaf: 2 * leaf, params)
    grads = [_gradients(params, step) for step in range(4)]
    runs = [(params, grads[:2]), (other, grads[2:])]

    @jax.jit
    def both(batch: Any, runs: Any) -> Any:
        return jax.vmap(run)(*batch), _stacked([run(*one) for one in runs])

    together, alone = both(_stacked(runs), runs)
    _same(together, alone, "updates or state under vmap and alone")


def _check_wrappers(transform: Any, extras: Any, params: Any) -> None:
    """Checks that optax's wrappers change nothing, and that extras get through."""

    def scaled(scale: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.chain(transform, optax.scale(scale))

    everywhere = jax.tree.map(lambda _: True, params)
    wrapped: dict[str, Any] = {
        "nothing": optax.with_extra_args_support(transform),
        "inject_hyperparams": optax.inject_hyperparams(scaled)(scale=1.0),
        "masked": optax.masked(transform, everywhere),
        "chain": optax.chain(optax.identity(), transform, optax.identity()),
        "MultiSteps": optax.MultiSteps(transform, 1),
    }

    @jax.jit
    def update_all(grads: Any, states: Any, extra: dict[str, Any]) -> Any:
        results = {}
        for name, wrapper in wrapped.items():
            with fails_as(f"update must work inside {name}"):
                results[name] = wrapper.update(grads, states[name], params, **extra)
        return results

    states = {name: wrapper.init(params) for name, wrapper in wrapped.items()}
    for step in range(3):
        extra = extras(params, step)
        results = update_all(_gradients(params, step), states, extra)
        states = {name: state for name, (_, state) in results.items()}
        expected, _ = results["nothing"]
        for name, (updates, _) in results.items():
            _same(updates, expected, f"updates inside and outside {name}")


def _check_sharding(inner: Any, extras: Any, params: Any) -> None:
    """Checks that the state has one sharding, whoever makes it, as optax's sharding test does."""
    params = jax.tree.map(jnp.asarray, params)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    explicit = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((1,), ("x",), axis_types=explicit, devices=jax.devices()[:1])

    def shard(leaf: jax.Array) -> jax.Array:
        spec = jax.P(*[None] * (leaf.ndim - 1), "x") if leaf.ndim else jax.P()
        return jax.device_put(leaf, jax.NamedSharding(mesh, spec))

    def types(tree: Any) -> str:
        return str(jax.tree.map(jax.typeof, tree))

    what = "the transformation must take sharded parameters (sharded=False if it is not meant to)"
    with fails_as(what):
        inner.init(shapes)
        with jax.set_mesh(mesh):
            params = jax.tree.map(shard, params)
            update = partial(inner.update, **extras(params, 0))
            first = inner.init(params)
            states = {
                "update": update(params, first, params)[1],
                "jitted init": jax.jit(inner.init)(params),
                "jitted update": jax.jit(update)(params, first, params)[1],
            }
    for name, state in states.items():
        if types(state) != types(first):
            raise AssertionError(
                f"the state has types {types(state)} after {name} and {types(first)} after init"
            )


def _check_convergence(inner: Any, extras: Any, params: Any) -> None:
    """Checks that an optimizer reaches the minimum of ||x - 1||^2 / 2 in a scan."""

    def body(carry: Any, step: jax.Array) -> Any:
        params, state = carry
        grads = jax.tree.map(lambda leaf: leaf - 1, params)
        updates, state = inner.update(grads, state, params, **extras(params, step))
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def train(params: Any) -> Any:
        steps = jnp.arange(_LONG, dtype=jnp.int32)
        return jax.lax.scan(body, (params, inner.init(params)), steps)[0][0]

    distance = max(float(jnp.max(jnp.abs(leaf - 1))) for leaf in jax.tree.leaves(train(params)))
    if not distance <= _NEAR:
        raise AssertionError(
            f"after {_LONG} updates a parameter is {distance:.3g} away from the minimum, "
            f"more than {_NEAR:g}"
        )
