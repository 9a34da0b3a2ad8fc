"""What a good optax transformation does inside jax's and optax's own wrappers: nothing new.

The updates are the same in a Python loop, in `jax.lax.scan`, under `jax.vmap`, and inside
`inject_hyperparams`, `masked`, `chain` and `MultiSteps`; and an optimizer converges.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from asyncjax.checks import real, whole
from asyncjax.testing.transform_example import (
    NO_EXTRAS,
    Extras,
    apply_in_loop,
    assert_same,
    example_gradients,
    given_extras,
    started,
)


def check_scan(
    transform: optax.GradientTransformation,
    *,
    extras: Extras = NO_EXTRAS,
    params: Any = None,
    n_steps: int = 4,
) -> None:
    """Checks that the state is a fixed carry of `jax.lax.scan`, and the scan equals the loop.

    Args:
        transform: The transformation.
        extras: The extras it needs, a mapping or a function of (params, step).
        params: Parameters to start from; by default a vector and a scalar in float32.
        n_steps: Number of updates.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If the scan refuses the state, or gives other updates.

    Example:
        >>> check_scan(optax.adam(0.1))
    """
    inner, params = started(transform, params)
    n_steps = whole("n_steps", n_steps)
    expected, last_state = apply_in_loop(inner, extras, params, n_steps)
    rows = [example_gradients(params, k) for k in range(n_steps)]
    grads = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)

    def body(state: Any, inputs: Any) -> Any:
        step, gradient = inputs
        updates, state = inner.update(gradient, state, params, **given_extras(extras, params, step))
        return state, updates

    try:
        state, updates = jax.lax.scan(
            body, inner.init(params), (jnp.arange(n_steps, dtype=jnp.int32), grads)
        )
    except TypeError as error:
        raise AssertionError(f"jax.lax.scan refuses the transformation: {error}") from error
    assert_same(state, last_state, "state after a scan and after a loop")
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *expected)
    assert_same(updates, stacked, "updates in a scan and in a loop")


def check_vmap(
    transform: optax.GradientTransformation, *, extras: Extras = NO_EXTRAS, params: Any = None
) -> None:
    """Checks that two runs under `jax.vmap` equal the two runs alone.

    Args:
        transform: The transformation.
        extras: The extras it needs, a mapping or a function of (params, step).
        params: Parameters to start from; by default a vector and a scalar in float32.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a run under vmap gives other updates.

    Example:
        >>> check_vmap(optax.adam(0.1))
    """
    inner, params = started(transform, params)

    def run(params: Any, grads: Any) -> Any:
        state, outputs = inner.init(params), []
        for step, gradient in enumerate(grads):
            extra = given_extras(extras, params, jnp.int32(step))
            updates, state = inner.update(gradient, state, params, **extra)
            outputs.append(updates)
        return outputs

    other = jax.tree.map(lambda leaf: 2 * leaf, params)
    runs = [
        (params, [example_gradients(params, step) for step in (0, 1)]),
        (other, [example_gradients(params, step) for step in (2, 3)]),
    ]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)

    @jax.jit
    def both(batch: Any, runs: Any) -> Any:
        return jax.vmap(run)(*batch), [run(*one) for one in runs]

    together, alone = both(batch, runs)
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone)
    assert_same(together, expected, "updates under vmap and alone")


def check_wrappers(
    transform: optax.GradientTransformation, *, extras: Extras = NO_EXTRAS, params: Any = None
) -> None:
    """Checks that optax's wrappers change nothing.

    The wrappers are `inject_hyperparams` (around a chain with a scale of 1), `masked` with a mask
    that is true everywhere, `chain` and `MultiSteps` with one micro-step.

    Args:
        transform: The transformation.
        extras: The extras it needs, a mapping or a function of (params, step).
        params: Parameters to start from; by default a vector and a scalar in float32.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If updates differ inside a wrapper, or an extra does not get through.

    Example:
        >>> check_wrappers(optax.adam(0.1))
    """
    inner, params = started(transform, params)

    def scaled(scale: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.chain(transform, optax.scale(scale))

    everywhere = jax.tree.map(lambda _: True, params)
    wrapped: dict[str, Any] = {
        "nothing": inner,
        "inject_hyperparams": optax.inject_hyperparams(scaled)(scale=1.0),
        "masked": optax.masked(transform, everywhere),
        "chain": optax.chain(optax.identity(), transform, optax.identity()),
        "MultiSteps": optax.MultiSteps(transform, 1),
    }

    @jax.jit
    def update_all(grads: Any, states: Any, extra: dict[str, Any]) -> Any:
        results = {}
        for name, wrapper in wrapped.items():
            try:
                results[name] = wrapper.update(grads, states[name], params, **extra)
            except Exception as error:
                raise AssertionError(f"update fails inside {name}: {error}") from error
        return results

    states = {name: wrapper.init(params) for name, wrapper in wrapped.items()}
    for step in range(3):
        extra = given_extras(extras, params, step)
        results = update_all(example_gradients(params, step), states, extra)
        states = {name: state for name, (_, state) in results.items()}
        expected, _ = results["nothing"]
        for name, (updates, _) in results.items():
            assert_same(updates, expected, f"updates inside and outside {name}")


def check_convergence(
    transform: optax.GradientTransformation,
    *,
    extras: Extras = NO_EXTRAS,
    params: Any = None,
    n_steps: int = 500,
    tolerance: float = 1e-2,
) -> None:
    """Checks that an optimizer reaches the minimum of ||x - 1||^2 / 2 in a scan.

    Args:
        transform: A complete optimizer: its updates are added to the parameters.
        extras: The extras it needs, a mapping or a function of (params, step).
        params: Parameters to start from; by default a vector and a scalar in float32.
        n_steps: Number of updates.
        tolerance: Largest distance of a parameter from 1 that passes.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a parameter ends further away.

    Example:
        >>> check_convergence(optax.sgd(0.1))
    """
    inner, params = started(transform, params)
    n_steps, tolerance = whole("n_steps", n_steps), real("tolerance", tolerance, above=0)

    def body(carry: Any, step: jax.Array) -> Any:
        params, state = carry
        grads = jax.tree.map(lambda leaf: leaf - 1, params)
        updates, state = inner.update(grads, state, params, **given_extras(extras, params, step))
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def train(params: Any) -> Any:
        steps = jnp.arange(n_steps, dtype=jnp.int32)
        return jax.lax.scan(body, (params, inner.init(params)), steps)[0][0]

    distance = max(float(jnp.max(jnp.abs(leaf - 1))) for leaf in jax.tree.leaves(train(params)))
    if not distance <= tolerance:
        raise AssertionError(
            f"after {n_steps} updates a parameter is {distance:.3g} away from the minimum, "
            f"more than {tolerance:g}"
        )
