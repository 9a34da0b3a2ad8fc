"""Step sizes that are a function of the gradient's own delay.

    gamma_k = step_size * weight(delay_k)

    inverse       1 / max(1, delay)
    polynomial    (delay + 1)^-exponent                                FedAsync, arXiv 1903.03934
    hinge         1 if delay <= grace else 1 / (slope (delay - grace) + 1)               FedAsync
    gated         exp(-decay delay) (1 + cos(pi min(1, delay / cutoff))) / 2        after CGAD
    concurrency   n / max(n, delay)            in the line of Mishchenko et al. 2022, 2206.07638

    gamma_k = eta if delay_k <= concurrency else min(eta, 1 / (4 L delay_k))
                                                in the line of Koloskova et al. 2022, 2206.08307

`scale_by_delay` has a step size; `scale_by_staleness` is a factor alone, for a chain in which
another transformation sets the step. These rules look at one delay only. No choice of constants
makes such a rule safe for all sequences of delays: see `scale_by_adaptive_1` for rules that look at
the steps taken meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.steps.arguments import delay_weight, number
from asyncjax.steps.delays import late
from asyncjax.steps.scaling import scale_tree, wide_dtype
from asyncjax.steps.transformation import scaled_by, stateless

DelayWeight = Callable[[jax.Array], jax.Array]


def inverse_delay() -> DelayWeight:
    """Returns delay -> 1 / max(1, delay).

    Returns:
        A function of a float array of delays.

    Example:
        >>> inverse_delay()(jnp.array([0.0, 1.0, 4.0])).tolist()
        [1.0, 1.0, 0.25]

    Reference:
        Zhang, Gupta, Lian, Liu 2016, "Staleness-aware async-SGD for distributed deep learning".
    """
    return lambda late: 1 / jnp.maximum(1, late)


def polynomial_delay(exponent: ArrayLike = 0.5) -> DelayWeight:
    """Returns delay -> (delay + 1)^-exponent.

    Args:
        exponent: How fast it falls, at least 0.

    Returns:
        A function of a float array of delays.

    Raises:
        TypeError: If `exponent` is not a number.
        ValueError: If `exponent` is negative.

    Example:
        >>> polynomial_delay(0.5)(jnp.array([0.0, 3.0])).tolist()
        [1.0, 0.5]

    Reference:
        Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", arXiv 1903.03934.
    """
    number("exponent", exponent, least=0)
    return lambda late: (late + 1) ** -jnp.asarray(exponent, late.dtype)


def hinge_delay(slope: ArrayLike = 10.0, grace: ArrayLike = 4) -> DelayWeight:
    """Returns delay -> 1 up to `grace`, then 1 / (slope (delay - grace) + 1).

    Args:
        slope: How fast it falls, at least 0.
        grace: Longest delay that is left alone, at least 0, in updates.

    Returns:
        A function of a float array of delays.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If a number is negative.

    Example:
        >>> hinge_delay(slope=1.0, grace=4)(jnp.array([4.0, 5.0])).tolist()
        [1.0, 0.5]

    Reference:
        Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", arXiv 1903.03934.
    """
    number("slope", slope, least=0)
    number("grace", grace, least=0, finite=False)

    def weight(late: jax.Array) -> jax.Array:
        excess = jnp.maximum(0, late - jnp.asarray(grace, late.dtype))
        return 1 / (jnp.asarray(slope, late.dtype) * excess + 1)

    return weight


def cgad(decay: ArrayLike, cutoff: ArrayLike) -> DelayWeight:
    """Returns delay -> exp(-decay delay), times a gate that falls smoothly to 0 at a cutoff.

    `optax.chain(scale_by_delay(cgad(decay, cutoff)), optax.adam(learning_rate))` is the
    outer optimizer of cosine-gated Adam-decay (CGAD): what is late enters both moments of Adam with
    less weight. Without a delay it is Adam.

    Args:
        decay: How much of a gradient's worth is lost in an update, at least 0.
        cutoff: Shortest delay without any weight, positive, in updates; `float("inf")`: no gate.

    Returns:
        A function of a float array of delays.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If an argument is out of range.

    Note:
        Of the paper only the abstract was to be had: the weight is an exponential times a cosine
        gate that smoothly removes what is later than a cutoff, in front of Adam's moments. That the
        gate is half a period of the cosine, 1 without a delay, is this library's reading.

    Example:
        >>> cgad(0.0, cutoff=8)(jnp.array([0.0, 4.0, 8.0, 9.0])).round(3).tolist()
        [1.0, 0.5, 0.0, 0.0]

    Reference:
        Shah, Sun 2026, "Cosine-gated Adam-decay", arXiv 2605.09126.
    """
    number("decay", decay, least=0)
    number("cutoff", cutoff, above=0, finite=False)

    def weight(late: jax.Array) -> jax.Array:
        share = jnp.minimum(1, late / jnp.asarray(cutoff, late.dtype))
        gate = jnp.where(share < 1, (1 + jnp.cos(jnp.pi * share)) / 2, 0)
        return jnp.exp(-jnp.asarray(decay, late.dtype) * late) * gate

    return weight


def concurrency_delay(n_workers: ArrayLike) -> DelayWeight:
    """Returns delay -> n / max(n, delay): a full step up to as many updates as there are workers.

    Args:
        n_workers: n, at least 1.

    Returns:
        A function of a float array of delays.

    Raises:
        TypeError: If `n_workers` is not an integer.
        ValueError: If it is below 1.

    Example:
        >>> concurrency_delay(8)(jnp.array([8.0, 16.0])).tolist()
        [1.0, 0.5]

    Reference:
        Mishchenko, Bach, Even, Woodworth 2022, arXiv 2206.07638.
    """
    number("n_workers", n_workers, least=1, integer=True)

    def weight(late: jax.Array) -> jax.Array:
        workers = jnp.asarray(n_workers, late.dtype)
        return workers / jnp.maximum(workers, late)

    return weight


def scale_by_delay(
    weight: DelayWeight, step_size: ArrayLike = 1.0
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by step_size * weight(delay), for any function of the delay.

    The sign is not flipped. Every `update` needs the extra `delay`.

    Args:
        weight: Function of the delay (a float scalar, at least 0) that returns a factor, such as
            `polynomial_delay(0.5)` or a lambda of your own.
        step_size: Base step eta, positive.

    Returns:
        A transformation whose state has the field `last_step_size`, so that `proximal` can follow
        it and `as_schedule` can turn it into a learning rate.

    Raises:
        TypeError: If `weight` is not a function of one argument or `step_size` not a number; in
            `update`, if `delay` is not an integer.
        ValueError: If `weight` does not return one number or `step_size` is not positive; in
            `update`, if `delay` is negative.

    Example:
        The rule c / (delay + b), which no choice of c and b makes safe:

        >>> rule = scale_by_delay(lambda delay: 1 / (delay + 3), step_size=0.9)
        >>> update, _ = rule.update(jnp.float32(1.0), rule.init(jnp.float32(0.0)), delay=6)
        >>> print(f"{update:.1f}")
        0.1
    """
    delay_weight("weight", weight)
    number("step_size", step_size, above=0)
    return _scaled_by_delay(weight, step_size)


def _scaled_by_delay(
    weight: DelayWeight, step_size: ArrayLike
) -> optax.GradientTransformationExtraArgs:
    def step(dtype: Any, *, delay: ArrayLike) -> jax.Array:
        factor = jnp.asarray(weight(late(delay, dtype))).astype(dtype)
        return jnp.asarray(step_size).astype(dtype) * factor

    return scaled_by(step)


def scale_by_staleness(
    kind: str,
    *,
    exponent: ArrayLike = 0.5,
    slope: ArrayLike = 10.0,
    grace: ArrayLike = 4,
    n_workers: ArrayLike | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by a factor in (0, 1] that falls with their delay.

    The factors are "inverse": 1 / max(1, delay); "polynomial": (delay + 1)^-exponent; "hinge": 1 up
    to `grace`, then 1 / (slope (delay - grace) + 1); "concurrency": n / max(n, delay). Every
    `update` needs the extra `delay`. Goes before or after an optimizer that is linear in the
    gradient; behind one that normalises (adam), after it. For other functions, or for a step size
    that `proximal` can read, see `scale_by_delay`.

    Args:
        kind: "inverse", "polynomial", "hinge" or "concurrency".
        exponent: Decay of "polynomial", at least 0.
        slope: Steepness of "hinge", at least 0.
        grace: Longest delay that "hinge" leaves alone, at least 0, in updates.
        n_workers: The n of "concurrency", at least 1; required there.

    Returns:
        A transformation whose state only counts invalid delays.

    Raises:
        TypeError: If an argument is not a number; in `update`, if `delay` is not an integer.
        ValueError: If `kind` is unknown, or a number is out of range; in `update`, if `delay` is
            negative.

    Example:
        >>> rule = scale_by_staleness("polynomial", exponent=0.5)
        >>> update, _ = rule.update(jnp.float32(8.0), rule.init(jnp.float32(0.0)), delay=3)
        >>> float(update)
        4.0

    Reference:
        Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", arXiv 1903.03934
        (polynomial, hinge); Mishchenko, Bach, Even, Woodworth 2022, arXiv 2206.07638 (concurrency).
    """
    weights = {
        "inverse": inverse_delay(),
        "polynomial": polynomial_delay(exponent),
        "hinge": hinge_delay(slope, grace),
    }
    if n_workers is not None:
        weights["concurrency"] = concurrency_delay(n_workers)
    elif kind == "concurrency":
        raise ValueError("n_workers must be given for kind 'concurrency', got None")
    if not isinstance(kind, str) or kind not in weights:
        kinds = "'inverse', 'polynomial', 'hinge', 'concurrency'"
        raise ValueError(f"kind must be one of {kinds}, got {kind!r}")
    weight = weights[kind]

    def scaled(updates: optax.Updates, *, delay: ArrayLike) -> optax.Updates:
        return scale_tree(updates, weight(late(delay, wide_dtype(updates))))

    return stateless(scaled)


def scale_by_concurrency_bound(
    step_size: ArrayLike, *, concurrency: ArrayLike, smoothness: ArrayLike
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by eta, or by min(eta, 1 / (4 L delay)) when they are later than usual.

    The number of gradients in flight, not the longest delay, decides how large the step may be. The
    sign is not flipped. Every `update` needs the extra `delay`.

    Args:
        step_size: eta, the step for ordinary delays.
        concurrency: Number of gradients computed at the same time, at least 1; delays up to it are
            ordinary.
        smoothness: L, the Lipschitz constant of the gradient, positive.

    Returns:
        A transformation whose state has the field `last_step_size`.

    Raises:
        TypeError: If an argument is not a number; in `update`, if `delay` is not an integer.
        ValueError: If an argument is out of range; in `update`, if `delay` is negative.

    Example:
        >>> rule = scale_by_concurrency_bound(0.5, concurrency=2, smoothness=1.0)
        >>> state = rule.init(jnp.float32(0.0))
        >>> for delay in (2, 5):
        ...     update, state = rule.update(jnp.float32(1.0), state, delay=delay)
        ...     print(f"{update:.2f}")
        0.50
        0.05

    Reference:
        Koloskova, Stich, Jaggi 2022, arXiv 2206.08307.
    """
    number("step_size", step_size, above=0)
    number("concurrency", concurrency, least=1, finite=False)
    number("smoothness", smoothness, above=0)

    def step(delay: jax.Array) -> jax.Array:
        dtype = delay.dtype
        full = jnp.asarray(step_size).astype(dtype)
        curvature = jnp.asarray(smoothness).astype(dtype)
        bounded = jnp.minimum(full, 1 / (4 * curvature * jnp.maximum(1, delay)))
        return jnp.where(delay <= jnp.asarray(concurrency).astype(dtype), full, bounded)

    return _scaled_by_delay(step, 1.0)
