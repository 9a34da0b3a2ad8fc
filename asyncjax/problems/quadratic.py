r"""Separable quadratics: the smallest problem on which every bias of asynchrony shows exactly.

.. math:: f_i(x) = \sum_j \left( \tfrac12 a_{ij} x_j^2 - b_{ij} x_j \right), \qquad
          \nabla f_i(x)_j = a_{ij} x_j - b_{ij}

Every worker has its own minimum, so an order that favours fast workers ends at the wrong point,
and which one is known: with weights w the minimum is :math:`x_j = \sum_i w_i b_{ij} / \sum_i w_i
a_{ij}`.

Reference: Islamov, Safaryan, Alistarh, AsGrad (arXiv 2310.20452), whose heterogeneous setting
this is the smallest case of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import real
from asyncjax.problems import arrays
from asyncjax.problems.problem import Problem
from asyncjax.problems.transfers import explicit


class QuadraticData(NamedTuple):
    """The coefficients of all workers."""

    curvature: jax.Array  # float[n, d], a_ij
    linear: jax.Array  # float[n, d], b_ij


@dataclass(frozen=True)
class QuadraticGradient:
    """The gradient a_i x - b_i, with Gaussian noise of standard deviation `noise` added."""

    noise: float = 0.0

    def __call__(
        self, data: QuadraticData, params: jax.Array, worker: Any, job: Any, key: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the exact loss of the worker and its noisy gradient."""
        curvature, linear = data.curvature[worker], data.linear[worker]
        loss = jnp.sum((0.5 * curvature * params - linear) * params)
        gradient = curvature * params - linear
        if self.noise:
            gradient += self.noise * jax.random.normal(key, gradient.shape, gradient.dtype)
        return loss, gradient


def quadratic_mean(data: QuadraticData, params: jax.Array) -> jax.Array:
    """Returns (1/n) sum_i f_i(params)."""
    curvature, linear = jnp.mean(data.curvature, 0), jnp.mean(data.linear, 0)
    return jnp.sum((0.5 * curvature * params - linear) * params)


@explicit
def quadratic(curvature: Any, linear: Any, *, start: Any = None, noise: float = 0.0) -> Problem:
    r"""Returns the problem of n separable quadratics, one a worker.

    .. math:: f_i(x) = \sum_j \left( \tfrac12 a_{ij} x_j^2 - b_{ij} x_j \right)

    Args:
        curvature: float[n, d], a_ij; may be negative (then f has no minimum in that coordinate).
        linear: float[n, d], b_ij.
        start: float[d], the initial model; None: ones.
        noise: Standard deviation of the Gaussian noise added to each coordinate of a job's
            gradient, drawn from the job's key; the loss of a job is exact.

    Returns:
        A problem with n workers, whose objective is the mean of the f_i.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> problem = problems.quadratic([[1.0, 2.0], [3.0, 4.0]], [[0.5, 0.0], [0.0, 1.0]])
        >>> loss, grads = problem.gradient(problem.params, 1, 0, jax.random.key(0))
        >>> float(loss), grads.tolist()
        (2.5, [3.0, 3.0])

    Reference:
        Islamov, Safaryan, Alistarh, AsGrad, arXiv 2310.20452.
    """
    curvature, linear = _coefficients(curvature, linear)
    n_workers, size = curvature.shape
    return Problem(
        params=arrays.starting_point(start, (size,), 1.0, curvature.dtype),
        data=QuadraticData(curvature, linear),
        gradient_of=QuadraticGradient(real("noise", noise, least=0)),
        objective_of=quadratic_mean,
        n_workers=n_workers,
    )


@explicit
def quadratic_optimum(problem: Any, linear: Any = None, weights: Any = None) -> jax.Array:
    r"""Returns the minimum of a weighted sum of the workers' quadratics, where a biased order ends.

    .. math:: x_j = \frac{\sum_i w_i b_{ij}}{\sum_i w_i a_{ij}}

    Of a problem made by `quadratic`, or of a curvature and a linear part float[n, d]; `weights`
    float[n], of any scale, such as the workers' shares of the updates; None: all equal.

    Example:
        >>> problem = quadratic([[1.0], [3.0]], [[1.0], [1.0]])
        >>> quadratic_optimum(problem).tolist()
        [0.5]
        >>> quadratic_optimum([[1.0], [3.0]], [[1.0], [1.0]], weights=[2, 0]).tolist()
        [1.0]
    """
    if isinstance(problem, Problem):
        if not isinstance(problem.data, QuadraticData):
            raise TypeError("problem must have been made by quadratic, got another kind")
        if linear is not None:
            raise TypeError("linear must be None together with a problem, got an array")
        curvature, linear = problem.data
    elif linear is None:
        raise TypeError("linear must be given together with a curvature, got None")
    else:
        curvature, linear = _coefficients(problem, linear)
    n_workers = curvature.shape[0]
    weights = jnp.ones(n_workers) if weights is None else arrays.floating("weights", weights)
    if weights.shape != (n_workers,):
        raise ValueError(
            f"weights must have shape ({n_workers},), one for each worker, got {weights.shape}"
        )
    weights = weights[:, None].astype(curvature.dtype)
    total = jnp.sum(weights * curvature, 0)
    if not arrays.is_traced(total) and not (np.asarray(total) > 0.0).all():
        raise ValueError(
            "curvature times weights must sum to a positive number in every coordinate for a "
            f"minimum to exist, got {np.asarray(total)}"
        )
    return jnp.sum(weights * linear, 0) / total


def _coefficients(curvature: Any, linear: Any) -> tuple[jax.Array, jax.Array]:
    """Returns both coefficient arrays, checked and of one floating-point type."""
    curvature = arrays.matrix("curvature", curvature, "[workers, coordinates]")
    linear = arrays.matrix("linear", linear, "[workers, coordinates]")
    if curvature.shape != linear.shape:
        raise ValueError(
            f"curvature and linear must have the same shape, got {curvature.shape} and "
            f"{linear.shape}"
        )
    return arrays.of_one_type(curvature, linear)
