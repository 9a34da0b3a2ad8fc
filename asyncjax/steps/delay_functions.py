"""Steps and factors that are a formula: of a gradient's own delay, or of the longest one.

    scale_by_delay        step_size * weight(delay)
        inverse           1 / max(1, delay)
        polynomial        (delay + 1)^-exponent                           FedAsync, arXiv 1903.03934
        hinge             1 if delay <= grace else 1 / (slope (delay - grace) + 1)          FedAsync
        cgad              exp(-decay delay) (1 + cos(pi min(1, delay / cutoff))) / 2
        concurrency       n / max(n, delay)        in the line of Mishchenko et al. 2022, 2206.07638
    concurrency_bound     eta if delay <= concurrency else min(eta, 1 / (4 L delay))
                                                   in the line of Koloskova et al. 2022, 2206.08307
    ada_delay             1 / (L + c sqrt(t + delay)),    t = 1, 2, ...  updates, this one included
    stage_delay           max(1, tau_leaf)^-(1 - min(k / K, 1))                             PipeMare
    clip_by_delay         ||update|| <= max_norm * weight(delay)
    worst_case, sun       gamma' / (max_delay + 1),    gamma' / (max_delay + 1/2)
    davis                 h / (L_block + 2 L_across max_delay / sqrt(m))                    m blocks

`scale_by_staleness` has the weights as a factor. No constants make a function of one delay safe for
all sequences of delays; `scale_by_adaptive_1` is. The last three are constants to compare with, of
the longest delay; taking it from a finished run flatters them. They and `scale_by_stage_delay` need
no extra, the others the extra `delay`. No sign is flipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from asyncjax.array_checks import is_traced, number
from asyncjax.steps.transformation import (
    Transformation,
    Updated,
    scaled_by,
    stateless,
    transformation,
)
from asyncjax.steps.trees import in_dtype, late, leaf_delays, scale_tree, wide_dtype

DelayWeight = Callable[[jax.Array], jax.Array]


def inverse_delay() -> DelayWeight:
    """Returns delay -> 1 / max(1, delay), of a float array of delays (Zhang et al. 2016).

    Example:
        >>> inverse_delay()(jnp.array([0.0, 1.0, 4.0])).tolist()
        [1.0, 1.0, 0.25]
    """
    return lambda late: 1 / jnp.maximum(1, late)


def polynomial_delay(exponent: ArrayLike = 0.5) -> DelayWeight:
    """Returns delay -> (delay + 1)^-exponent (Xie, Koyejo, Gupta 2019, arXiv 1903.03934).

    Args:
        exponent: How fast it falls, at least 0.

    Example:
        >>> polynomial_delay(0.5)(jnp.array([0.0, 3.0])).tolist()
        [1.0, 0.5]
    """
    number("exponent", exponent, least=0)
    return lambda late: (late + 1) ** -jnp.asarray(exponent, late.dtype)


def hinge_delay(slope: ArrayLike = 10.0, grace: ArrayLike = 4) -> DelayWeight:
    """Returns delay -> 1 up to `grace`, then 1 / (slope (delay - grace) + 1) (arXiv 1903.03934).

    Args:
        slope: How fast it falls, at least 0.
        grace: Longest delay that is left alone, at least 0, in updates.

    Example:
        >>> hinge_delay(slope=1.0, grace=4)(jnp.array([4.0, 5.0])).tolist()
        [1.0, 0.5]
    """
    number("slope", slope, least=0)
    number("grace", grace, least=0, finite=False)

    def weight(late: jax.Array) -> jax.Array:
        excess = jnp.maximum(0, late - jnp.asarray(grace, late.dtype))
        return 1 / (jnp.asarray(slope, late.dtype) * excess + 1)

    return weight


def cgad(decay: ArrayLike, cutoff: ArrayLike) -> DelayWeight:
    """Returns delay -> exp(-decay delay), times a gate that falls smoothly to 0 at a cutoff.

    `optax.chain(scale_by_delay(cgad(decay, cutoff)), optax.adam(learning_rate))` is the outer
    optimizer of cosine-gated Adam-decay (CGAD). Source: Shah, Sun 2026, arXiv 2605.09126.

    Args:
        decay: How much of a gradient's worth is lost in an update, at least 0.
        cutoff: Shortest delay without any weight, positive, in updates; `float("inf")`: no gate.

    Note:
        Of the paper only the abstract was to be had. That the gate is half a period of the cosine,
        1 without a delay, is this library's reading.

    Example:
        >>> cgad(0.0, cutoff=8)(jnp.array([0.0, 4.0, 8.0, 9.0])).round(3).tolist()
        [1.0, 0.5, 0.0, 0.0]
    """
    number("decay", decay, least=0)
    number("cutoff", cutoff, above=0, finite=False)

    def weight(late: jax.Array) -> jax.Array:
        share = jnp.minimum(1, late / jnp.asarray(cutoff, late.dtype))
        gate = jnp.where(share < 1, (1 + jnp.cos(jnp.pi * share)) / 2, 0)
        return jnp.exp(-jnp.asarray(decay, late.dtype) * late) * gate

    return weight


def concurrency_delay(n_workers: ArrayLike) -> DelayWeight:
    """Returns delay -> n / max(n, delay) (Mishchenko et al. 2022, arXiv 2206.07638).

    Args:
        n_workers: n, at least 1.

    Example:
        >>> concurrency_delay(8)(jnp.array([8.0, 16.0])).tolist()
        [1.0, 0.5]
    """
    number("n_workers", n_workers, least=1, integer=True)

    def weight(late: jax.Array) -> jax.Array:
        workers = jnp.asarray(n_workers, late.dtype)
        return workers / jnp.maximum(workers, late)

    return weight


def scale_by_delay(weight: DelayWeight, step_size: ArrayLike = 1.0) -> Transformation:
    """Multiplies updates by step_size * weight(delay), for any function of the delay.

    Args:
        weight: Function of the delay, a float scalar, such as `polynomial_delay(0.5)`.
        step_size: Base step eta, positive.

    Example:
        >>> rule = scale_by_delay(lambda delay: 1 / (delay + 3), step_size=0.9)
        >>> update, _ = rule.update(jnp.float32(1.0), rule.init(jnp.float32(0.0)), delay=6)
        >>> print(f"{update:.1f}")
        0.1
    """
    number("step_size", step_size, above=0)

    def step(dtype: Any, *, delay: ArrayLike) -> jax.Array:
        base, factor = in_dtype(dtype, step_size, weight(late(delay, dtype)))
        return base * factor

    return scaled_by(step)


def scale_by_staleness(
    kind: str,
    *,
    exponent: ArrayLike = 0.5,
    slope: ArrayLike = 10.0,
    grace: ArrayLike = 4,
    n_workers: ArrayLike | None = None,
) -> Transformation:
    """Multiplies updates by a factor in (0, 1] that falls with their delay.

    Goes behind an optimizer that normalises (adam); before or after one that is linear in the
    gradient. For other functions, or a step size that `proximal` can read, see `scale_by_delay`.

    Args:
        kind: "inverse", "polynomial", "hinge" or "concurrency": `inverse_delay` and so on.
        exponent, slope, grace: As for `polynomial_delay` and `hinge_delay`.
        n_workers: The n of "concurrency", at least 1; required there.

    Example:
        >>> rule = scale_by_staleness("polynomial", exponent=0.5)
        >>> update, _ = rule.update(jnp.float32(8.0), rule.init(jnp.float32(0.0)), delay=3)
        >>> float(update)
        4.0
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
    if kind not in weights:
        kinds = "'inverse', 'polynomial', 'hinge', 'concurrency'"
        raise ValueError(f"kind must be one of {kinds}, got {kind!r}")

    def scaled(updates: optax.Updates, *, delay: ArrayLike) -> optax.Updates:
        return scale_tree(updates, weights[kind](late(delay, wide_dtype(updates))))

    return stateless(scaled)


def scale_by_concurrency_bound(
    step_size: ArrayLike, *, concurrency: ArrayLike, smoothness: ArrayLike
) -> Transformation:
    """Multiplies updates by eta, or by min(eta, 1 / (4 L delay)) when they are later than usual.

    The number of gradients in flight, not the longest delay, decides how large the step may be.
    Source: Koloskova, Stich, Jaggi 2022, arXiv 2206.08307.

    Args:
        step_size: eta, the step for ordinary delays.
        concurrency: Gradients computed at the same time, at least 1; delays up to it are ordinary.
        smoothness: L, the Lipschitz constant of the gradient, positive.

    Example:
        >>> rule = scale_by_concurrency_bound(0.5, concurrency=2, smoothness=1.0)
        >>> state = rule.init(jnp.float32(0.0))
        >>> for delay in (2, 5):
        ...     update, state = rule.update(jnp.float32(1.0), state, delay=delay)
        ...     print(f"{update:.2f}")
        0.50
        0.05
    """
    number("step_size", step_size, above=0)
    number("concurrency", concurrency, least=1, finite=False)
    number("smoothness", smoothness, above=0)

    def step(dtype: Any, *, delay: ArrayLike) -> jax.Array:
        full, curvature, usual = in_dtype(dtype, step_size, smoothness, concurrency)
        staleness = late(delay, dtype)
        bounded = jnp.minimum(full, 1 / (4 * curvature * jnp.maximum(1, staleness)))
        return jnp.where(staleness <= usual, full, bounded)

    return scaled_by(step)


class AdaDelayState(NamedTuple):
    """State of `scale_by_ada_delay`."""

    updates_made: jax.Array  # int32[], saturating
    last_step_size: jax.Array  # float[], gamma_t of the last update
    invalid_extras: jax.Array | None = None  # int32[], traced extras out of range so far


def scale_by_ada_delay(smoothness: ArrayLike, growth: ArrayLike) -> Transformation:
    """AdaDelay: multiplies updates by 1 / (L + c sqrt(t + delay)), which count a delay as time.

    For stochastic convex problems, where steps must diminish anyway. The scalar form: the paper's
    practical form has a c of its own for every coordinate. Source: Sra et al. 2015, 1508.05003.

    Args:
        smoothness: L, the Lipschitz constant of the gradient, at least 0; not both 0.
        growth: c, at least 0: about (noise of a gradient) / (distance to the optimum).

    Example:
        >>> rule = scale_by_ada_delay(1.0, 1.0)
        >>> state = rule.init(jnp.float32(0.0))
        >>> for delay in (0, 7):
        ...     update, state = rule.update(jnp.float32(1.0), state, delay=delay)
        ...     print(f"{update:.2f}")
        0.50
        0.25
    """
    number("smoothness", smoothness, least=0)
    number("growth", growth, least=0)
    if not is_traced([smoothness, growth]) and not (np.any(smoothness) or np.any(growth)):
        raise ValueError("smoothness must be positive where growth is 0, got 0")

    def init(params: optax.Params) -> AdaDelayState:
        return AdaDelayState(jnp.zeros((), jnp.int32), jnp.zeros((), wide_dtype(params)))

    def update(updates: optax.Updates, state: AdaDelayState, *, delay: ArrayLike) -> Updated:
        dtype = state.last_step_size.dtype
        count = jnp.asarray(optax.safe_increment(state.updates_made))
        root = jnp.sqrt(count.astype(dtype) + late(delay, dtype))
        curvature, slope = in_dtype(dtype, smoothness, growth)
        step = 1 / (curvature + slope * root)
        return scale_tree(updates, step), AdaDelayState(count, step)

    return transformation(init, update)


class StageDelayState(NamedTuple):
    """State of `scale_by_stage_delay`."""

    annealing_updates: jax.Array  # int32[], updates made, saturating


def scale_by_stage_delay(stage_delay: Any, anneal_updates: ArrayLike) -> Transformation:
    """PipeMare: multiplies every leaf by max(1, its delay)^-(1 - min(k / K, 1)).

    For pipelines, where every stage of a network has a delay of its own. Goes in front of or behind
    the optimizer, as `scale_by_staleness`. Source: Yang et al. 2019, arXiv 1910.05124, technique 1;
    the other one predicts the weights of the backward pass, which a transformation cannot do.

    Args:
        stage_delay: Delays in updates, at least 0: one number, or a tree of numbers that is a
            prefix of the tree of parameters.
        anneal_updates: K, updates until the factor is 1, at least 1.

    Example:
        >>> rule = scale_by_stage_delay({"first": 4, "last": 0}, anneal_updates=2)
        >>> grads = {"first": jnp.float32(8.0), "last": jnp.float32(8.0)}
        >>> state = rule.init(grads)
        >>> for _ in range(2):
        ...     updates, state = rule.update(grads, state)
        ...     print(float(updates["first"]), float(updates["last"]))
        2.0 8.0
        4.0 8.0
    """
    for delay in jax.tree.leaves(stage_delay):
        number("stage_delay", delay, least=0)
    number("anneal_updates", anneal_updates, least=1, integer=True)

    def init(params: optax.Params) -> StageDelayState:
        leaf_delays(stage_delay, params)
        return StageDelayState(jnp.zeros((), jnp.int32))

    def update(updates: optax.Updates, state: StageDelayState) -> Updated:
        dtype = wide_dtype(updates)
        done, whole = in_dtype(dtype, state.annealing_updates, anneal_updates)
        power = 1 - jnp.minimum(done / whole, 1)

        def scaled(leaf: Any, delay: Any) -> Any:
            return scale_tree(leaf, jnp.maximum(1, jnp.asarray(delay, dtype)) ** -power)

        updates = jax.tree.map(scaled, updates, leaf_delays(stage_delay, updates))
        count = jnp.asarray(optax.safe_increment(state.annealing_updates))
        return updates, StageDelayState(count)

    return transformation(init, update)


def clip_by_delay(max_norm: ArrayLike, weight: DelayWeight | None = None) -> Transformation:
    """Scales updates down to a global norm of at most max_norm * weight(delay).

    The norm is that of the whole tree, as in `optax.clip_by_global_norm`. This library's
    combination of two usual remedies; it is not taken from a paper.

    Args:
        max_norm: Largest norm for a delay of 0, positive.
        weight: Function of the delay, such as `inverse_delay()`; None: (delay + 1)^-1/2.

    Example:
        >>> rule = clip_by_delay(10.0)
        >>> grad = jnp.array([6.0, 8.0])
        >>> for delay in (0, 3):
        ...     print(rule.update(grad, rule.init(grad), delay=delay)[0].tolist())
        [6.0, 8.0]
        [3.0, 4.0]
    """
    number("max_norm", max_norm, above=0, finite=False)
    weight = polynomial_delay(0.5) if weight is None else weight

    def clipped(updates: optax.Updates, *, delay: ArrayLike) -> optax.Updates:
        dtype = wide_dtype(updates)
        bound = jnp.asarray(max_norm, dtype) * weight(late(delay, dtype))
        norm = optax.tree.norm(jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), updates))
        factor = jnp.where(norm > bound, bound / jnp.where(norm > 0, norm, 1), 1)
        return scale_tree(updates, factor.astype(dtype))

    return stateless(clipped)


def worst_case(step_size: ArrayLike, max_delay: ArrayLike) -> Transformation:
    """Multiplies updates by gamma' / (max_delay + 1), the largest safe constant.

    The largest that keeps gamma_k <= gamma' - window_k, the condition of `scale_by_adaptive_1`.
    With `max_delay=0` it is a plain constant step that `proximal` can read.

    Args:
        step_size: gamma' = h / L with h in (0, 1).
        max_delay: Longest delay of the run, at least 0, in updates.

    Example:
        >>> print(worst_case(1.0, max_delay=4).init(jnp.float32(0.0)).last_step_size)
        0.2
    """
    return _constant(step_size, max_delay, 1.0)


def sun(step_size: ArrayLike, max_delay: ArrayLike) -> Transformation:
    """Multiplies updates by gamma' / (max_delay + 1/2), with which papers on delays compare.

    With `max_delay=0` this is 2 gamma', twice what `scale_by_adaptive_1` could ever take.

    Args:
        step_size, max_delay: As for `worst_case`.

    Example:
        >>> print(sun(1.0, max_delay=2).init(jnp.float32(0.0)).last_step_size)
        0.4
    """
    return _constant(step_size, max_delay, 0.5)


def _constant(step_size: ArrayLike, max_delay: ArrayLike, offset: float) -> Transformation:
    number("step_size", step_size, above=0)
    number("max_delay", max_delay, least=0)

    def step(dtype: Any) -> jax.Array:
        size, longest = in_dtype(dtype, step_size, max_delay)
        return size / (longest + offset)

    return scaled_by(step)


def davis(
    block_smoothness: ArrayLike,
    across_smoothness: ArrayLike,
    *,
    n_blocks: ArrayLike,
    max_delay: ArrayLike,
    safety: ArrayLike = 0.99,
) -> Transformation:
    """Multiplies updates by h / (L_block + 2 L_across max_delay / sqrt(m)), for block descent.

    In the line of Davis 2016: two writes seldom meet in one block, so that the delay counts only by
    its share of sqrt(m). From memory of the literature; here it serves as a rival only.

    Args:
        block_smoothness: L_block, largest Lipschitz constant of a block's gradient along it.
        across_smoothness: L_across, of the whole gradient along one block, at least 0.
        n_blocks: m, at least 1.
        max_delay: Longest delay of the run, at least 0, in updates.
        safety: The share h, in (0, 1].

    Example:
        >>> rule = davis(1.0, 2.0, n_blocks=16, max_delay=4, safety=1.0)
        >>> print(rule.init(jnp.float32(0.0)).last_step_size)
        0.2
    """
    number("block_smoothness", block_smoothness, above=0)
    number("across_smoothness", across_smoothness, least=0)
    number("n_blocks", n_blocks, least=1)
    number("max_delay", max_delay, least=0)
    number("safety", safety, above=0, most=1)

    def step(dtype: Any) -> jax.Array:
        within, across, blocks, longest, share = in_dtype(
            dtype, block_smoothness, across_smoothness, n_blocks, max_delay, safety
        )
        return share / (within + 2 * across * longest / jnp.sqrt(blocks))

    return scaled_by(step)
