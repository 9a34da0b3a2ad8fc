r"""The constants of an error bound, measured on a problem.

Eigenvalues come of Lanczos' method with full orthogonalisation, which forms no Hessian; the minimum
of accelerated gradient descent with the restarts of O'Donoghue and Candes, "Adaptive restart for
accelerated gradient schemes", arXiv 1204.3982, where F(x) - F* <= |grad F(x)|^2 / (2 c).
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from asyncjax.checks import one_key, real, whole
from asyncjax.problems import Problem, batches, smoothness as stated_smoothness
from asyncjax.problems.units import has_losses
from asyncjax.stragglers import ErrorBound
from asyncjax.stragglers.plans.bounds import Floor

_AT_ONCE = 64  # gradients of samples
_CLOSE = 0.01  # a minimum is found where what is left is at most this share of the first error


class ErrorEstimate(NamedTuple):
    """An error bound with measured constants, and how well they are known.

    Attributes:
        bound: The `stragglers.ErrorBound`.
        noise_error: Standard error of `bound.noise_variance`; 0 where every row was taken.
        n_samples: How many gradients of one sample it was measured with.
        minimum: F*, the objective at the minimum that was found or given.
        minimum_error: By how much the true minimum may be lower, |grad F|^2 / (2 c).
        optimum: The model there, a tree like the problem's.
    """

    bound: ErrorBound
    noise_error: float
    n_samples: int
    minimum: float
    minimum_error: float
    optimum: Any


def estimate_error_bound(
    problem: Problem,
    *,
    step_size: float,
    key: jax.Array,
    smoothness: float | None = None,
    strong_convexity: float | None = None,
    optimum: Any = None,
    n_samples: int = 4096,
    n_steps: int = 10_000,
    n_products: int = 128,
    floor: Floor | None = None,
) -> ErrorEstimate:
    r"""Measures the constants of `stragglers.ErrorBound` on a problem.

    .. math::
        \sigma^2 = \mathbb{E} |g_s(x^*) - \nabla F(x^*)|^2, \qquad
        c = \lambda_{\min}(\nabla^2 F(x^*)), \qquad e_0 = F(x_0) - F(x^*)

    A sample is one row of a finite sum, of a worker drawn uniformly, whatever the problem's batch;
    of other problems it is one job, and a load of `b` then counts `b` jobs. Where a finite sum has
    at most `n_samples` rows all are taken, weighed as in F, and the variance is exact.

    Args:
        problem: With an objective that is smooth, and strongly convex at its minimum.
        step_size: Step size of the bound, as in `ErrorBound`.
        key: Typed key, for the samples and the directions that eigenvalues are looked for in.
        smoothness: L; None: what `problems.smoothness` states, valid everywhere, or where it is not
            known the largest eigenvalue at the start and at the minimum, an estimate from below.
        strong_convexity: c; None: the smallest eigenvalue at the minimum, where the loss may be
            flatter elsewhere.
        optimum: The minimum, a tree like `problem.params`; None: it is looked for.
        n_samples: Gradients of one sample, at most 10 000 000.
        n_steps: Most steps of the search for the minimum; it ends as soon as the gradient is down
            by `eps**0.7`, 1e-5 in single precision.
        n_products: Most products with the Hessian for its eigenvalues. With as many parameters or
            fewer they are exact up to rounding; else the smallest is an estimate from above.
        floor: As in `ErrorBound`.

    Raises:
        ValueError: The minimum was not reached, or the Hessian there is singular or indefinite.

    Note:
        The bound asks for a variance that holds everywhere; here it is that at the minimum, which
        decides where the error stops. Jobs must be unbiased: their mean gradient is that of F.

    Example:
        >>> import jax
        >>> from asyncjax import problems, simulation
        >>> problem = problems.least_squares([[1.0], [2.0]], [1.0, 4.0], n_workers=1)
        >>> found = simulation.estimate_error_bound(problem, step_size=0.1, key=jax.random.key(0))
        >>> bound = found.bound
        >>> round(bound.smoothness, 4), round(bound.strong_convexity, 4), found.noise_error
        (2.5, 2.5, 0.0)
        >>> round(bound.noise_variance, 4), round(bound.initial_error, 4)
        (0.64, 4.05)
    """
    objective = problem.objective
    if objective is None or problem.worker_state_of is not None:
        raise TypeError("problem must have an objective, and keep no state at its workers")
    direction_key, start_key, sample_key = jax.random.split(one_key("key", key), 3)
    step_size = real("step_size", step_size, above=0)
    n_samples = whole("n_samples", n_samples, most=10_000_000)
    n_steps, n_products = whole("n_steps", n_steps), whole("n_products", n_products)
    start = jax.tree.map(jnp.asarray, problem.params)
    rounding = _rounding(start)
    if smoothness is not None:
        smoothness = real("smoothness", smoothness, above=0)
    else:
        with contextlib.suppress(TypeError):  # where the loss states none
            smoothness = stated_smoothness(problem).objective or None
    step_of = smoothness or _extremes(objective, start, start_key, n_products)[1]
    if optimum is None:
        optimum = _descended(objective, start, jnp.asarray(step_of), n_steps)
    else:
        optimum = jax.tree.map(
            lambda leaf, value: jnp.reshape(jnp.asarray(value, leaf.dtype), leaf.shape),
            start,
            optimum,
        )
    if strong_convexity is None or smoothness is None:
        least, most = _extremes(objective, optimum, direction_key, n_products)
        smoothness = max(step_of, most) if smoothness is None else smoothness
        strong_convexity = least if strong_convexity is None else strong_convexity
        if not strong_convexity > 8 * rounding * smoothness:
            raise ValueError(
                "problem must be strongly convex at its minimum, got a Hessian with the eigenvalues"
                f" {strong_convexity:.3g} .. {smoothness:.3g}: give strong_convexity, or an optimum"
                " where it is"
            )
    strong_convexity = real("strong_convexity", strong_convexity, above=0)
    if strong_convexity > smoothness * (1 + 8 * rounding):
        raise ValueError(
            f"smoothness must be at least strong_convexity = {strong_convexity:g}, got"
            f" {smoothness:g}"
        )
    first, least, slope = (float(x) for x in _judged(objective, start, optimum))
    left = slope**2 / (2 * strong_convexity)
    _check_reached(first, least, left, rounding)
    noise, error, count = _noise(problem, objective, optimum, sample_key, n_samples)
    constants = step_size, smoothness, strong_convexity, noise, max(first - least, 0.0)
    return ErrorEstimate(ErrorBound(*constants, floor=floor), error, count, least, left, optimum)


def _rounding(params: Any) -> float:
    """Relative precision of the model's numbers."""
    return float(max(jnp.finfo(leaf.dtype).eps for leaf in jax.tree.leaves(params)))


def _check_reached(first: float, least: float, left: float, rounding: float) -> None:
    """Refuses what is no minimum."""
    slack = 32 * rounding * max(abs(first), abs(least))
    if not (first - least >= -slack and left <= _CLOSE * max(first - least, 0.0) + slack):
        raise ValueError(
            f"optimum must be a minimum, got an objective of {least:.6g} after {first:.6g} at the"
            f" start, perhaps {left:.3g} too high: raise n_steps, or give smoothness or optimum"
        )


@jax.jit
def _judged(objective: Any, start: Any, optimum: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Objective of two models, and the norm of the gradient at the second."""
    least, slope = jax.value_and_grad(objective)(optimum)
    return objective(start), least, jnp.linalg.norm(ravel_pytree(slope)[0])


@jax.jit
def _descended(objective: Any, start: Any, smoothness: jax.Array, n_steps: Any) -> Any:
    """The model after accelerated gradient descent, restarted where it climbs."""
    first, restore = ravel_pytree(start)
    slope = jax.grad(lambda vector: objective(restore(vector)))
    enough = jnp.finfo(first.dtype).eps ** 0.7 * jnp.linalg.norm(slope(first))

    def goes_on(state: Any) -> jax.Array:
        return (state[0] < n_steps) & (state[4] > enough)

    def step(state: Any) -> Any:
        count, old, ahead, pace, _ = state
        gradient = slope(ahead)
        new = ahead - gradient / smoothness.astype(first.dtype)
        climbs = jnp.vdot(gradient, new - old) > 0
        faster = (1 + jnp.sqrt(1 + 4 * pace**2)) / 2
        moved = new + jnp.where(climbs, 0, (pace - 1) / faster) * (new - old)
        pace = jnp.where(climbs, 1.0, faster).astype(first.dtype)
        return count + 1, new, moved, pace, jnp.linalg.norm(gradient)

    begun = (jnp.int32(0), first, first, jnp.ones((), first.dtype), jnp.full_like(enough, jnp.inf))
    return restore(jax.lax.while_loop(goes_on, step, begun)[1])


@jax.jit
def _product(objective: Any, params: Any, vector: jax.Array) -> jax.Array:
    """The Hessian times a vector, float[d]."""
    point, restore = ravel_pytree(params)
    slope = jax.grad(lambda x: objective(restore(x)))
    return jax.jvp(slope, (point,), (vector.astype(point.dtype),))[1]


def _extremes(objective: Any, params: Any, key: jax.Array, n_products: int) -> tuple[float, float]:
    """Smallest and largest eigenvalue of the Hessian, by Lanczos' method on the host."""
    size = ravel_pytree(params)[0].size
    vector = np.asarray(jax.random.normal(key, (size,)), np.float64)
    basis = [vector / np.linalg.norm(vector)]
    diagonal, beside = [], []
    while True:
        product = np.asarray(_product(objective, params, jnp.asarray(basis[-1])), np.float64)
        diagonal.append(float(basis[-1] @ product))
        rows = np.array(basis)
        for _ in range(2):  # once leaves what rounding of the first time brings back
            product = product - rows.T @ (rows @ product)
        rest = float(np.linalg.norm(product))
        scale = np.abs(diagonal).max() + np.abs(beside).max(initial=0.0)
        if len(basis) == min(size, n_products) or not rest > 8 * _rounding(params) * scale:
            break
        beside.append(rest)
        basis.append(product / rest)
    tridiagonal = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    if not np.isfinite(tridiagonal).all():
        raise ValueError("problem must have a finite Hessian, got one that is not")
    found = np.linalg.eigvalsh(tridiagonal)
    return float(found[0]), float(found[-1])


def _noise(
    problem: Problem, objective: Any, params: Any, key: jax.Array, n_samples: int
) -> tuple[float, float, int]:
    """Variance of the gradient of a sample, its standard error, and how many were taken."""
    n_workers = 1 if problem.n_workers is None else problem.n_workers
    who, what, root = jax.random.split(key, 3)
    worker = np.asarray(jax.random.randint(who, (n_samples,), 0, n_workers))
    job, weight = np.arange(n_samples), None
    if has_losses(problem):
        size = np.asarray(problem.data.size)
        rule: Any = problem.gradient_of
        problem = replace(problem, gradient_of=replace(rule, batch=batches.cyclic(1)))
        share = np.asarray(jax.random.uniform(what, (n_samples,)), np.float64)
        job = np.minimum(np.floor(share * size[worker]), size[worker] - 1)
        if size.sum() <= n_samples:
            worker = np.repeat(np.arange(n_workers), size)
            job = np.concatenate([np.arange(count) for count in size])
            weight = 1 / (n_workers * size[worker])
    keys = jax.random.split(root, len(worker))
    picked = worker.astype(np.int32), job.astype(np.int32), keys
    found = np.asarray(_deviations(problem, objective, params, *picked), np.float64)
    if weight is not None:
        return float(weight @ found), 0.0, len(found)
    spread = found.std(ddof=1) if len(found) > 1 else np.inf
    return float(found.mean()), float(spread / np.sqrt(len(found))), len(found)


@jax.jit
def _deviations(
    problem: Problem, objective: Any, params: Any, worker: Any, job: Any, keys: jax.Array
) -> jax.Array:
    """Squared distance of the gradient of each job from that of the objective, float[S]."""
    middle = jax.grad(objective)(params)

    def one(picked: tuple[Any, Any, jax.Array]) -> jax.Array:
        gradient = problem.gradient(params, *picked)[1]
        apart = jax.tree.map(lambda a, b: jnp.sum(jnp.square(a - b)), gradient, middle)
        return jnp.stack(jax.tree.leaves(apart)).sum()

    return jax.lax.map(one, (worker, job, keys), batch_size=_AT_ONCE)
