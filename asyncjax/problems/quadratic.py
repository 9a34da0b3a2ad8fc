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
def quadratic(
    curvature: Any, linear: Any, *, start: Any = None, noise: float = 0.0
) -> Problem[jax.Array]:
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
    """
    curvature = arrays.matrix("curvature", curvature, "[workers, coordinates]")
    linear = arrays.matrix("linear", linear, "[workers, coordinates]")
    if curvature.shape != linear.shape:
        raise ValueError(
            f"curvature and linear must have the same shape, got {curvature.shape} and "
            f"{linear.shape}"
        )
    curvature, linear = arrays.of_one_type(curvature, linear)
    n_workers, size = curvature.shape
    return Problem(
        params=arrays.starting_point(start, (size,), 1.0, curvature.dtype),
        data=QuadraticData(curvature, linear),
        gradient_of=QuadraticGradient(real("noise", noise, least=0)),
        objective_of=quadratic_mean,
        n_workers=n_workers,
    )
