r"""Smoothness: how fast gradients can change, the L that safe step sizes are made of.

.. math:: \|\nabla f_i(x) - \nabla f_i(y)\| \le L_i \|x - y\|, \qquad
          \|\nabla f(x) - \nabla f(y)\| \le L \|x - y\|, \qquad f = \frac1n \sum_i f_i

For a loss of linear scores with second derivatives in :math:`[c_-, c_+]` and a penalty with second
derivatives in :math:`[p_-, p_+]` a coordinate, with c and p the larger absolute values,

.. math:: L_i = c \frac{\|A_i\|_2^2}{|S_i|} + p, \qquad L = c \, \|W^{1/2} A\|_2^2 + p

where W holds what each row counts in f. The l1 term of an objective is not counted: it is left to
a proximal step.

Reference: Wu, Magnússon, Feyzmahdavian, Johansson, delay-adaptive step sizes (arXiv 2202.08550),
whose PIAG and Async-BCD take their step sizes from these constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncjax.checks import whole
from asyncjax.problems.batches import Shards
from asyncjax.problems.finite_sum import BatchGradient, Samples, row_weights
from asyncjax.problems.losses import QuadraticGradient
from asyncjax.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class Smoothness:
    """Lipschitz constants of the gradients of the workers and of their mean, on the host.

    Attributes:
        worker: float64[n], L_i, of the gradient of f_i.
        objective: L, of the gradient of f; at most the mean of the L_i.
    """

    worker: np.ndarray
    objective: float

    @property
    def mean(self) -> float:
        """The mean of the L_i."""
        return float(self.worker.mean())

    @property
    def root_mean_square(self) -> float:
        """The square root of the mean of the squares of the L_i, which PIAG's step is made of."""
        return float(np.sqrt(np.square(self.worker).mean()))

    @property
    def maximum(self) -> float:
        """The largest L_i."""
        return float(self.worker.max())


@dataclass(frozen=True, eq=False)
class BlockSmoothness:
    """Lipschitz constants of f when one block of coordinates moves, on the host.

    Attributes:
        block: float64[m], of the gradient of f in block j when block j moves.
        across: Of the whole gradient of f when any one block moves.
        objective: L, of the whole gradient when everything moves.
    """

    block: np.ndarray
    across: float
    objective: float

    @property
    def largest(self) -> float:
        """The largest of `block`: the constant that Async-BCD's step is made of.

        It also bounds the gradient in block i when another block j moves.
        """
        return float(self.block.max())


def smoothness(problem: Problem) -> Smoothness:
    r"""Returns upper bounds, valid everywhere, on how fast the gradients change.

    .. math:: L_i = c \frac{\|A_i\|_2^2}{|S_i|} + p, \qquad L = c \, \|W^{1/2} A\|_2^2 + p

    Logistic: c = 1/4 and p = l2 + 2 nonconvex, since :math:`x^2/(1+x^2)` has second derivatives in
    [-1/2, 2]. Least squares: c = 1, p = 0. Quadratic: :math:`L_i = \max_j |a_{ij}|` and
    :math:`L = \max_j |\frac1n \sum_i a_{ij}|`. For the last two the bounds are attained.

    Args:
        problem: Made by `logistic`, `least_squares` or `quadratic`, or by `finite_sum` with a loss
            that states `curvature` and `penalty_curvature`. Its arrays must be concrete.

    Returns:
        The constants, computed on the host in float64. They are those of the whole shards: the
        gradient of a small batch can change faster.

    Example:
        >>> from asyncjax import problems
        >>> features, labels = [[2.0, 0.0], [0.0, 2.0], [4.0, 0.0]], [1, 0, 1]
        >>> found = problems.smoothness(
        ...     problems.logistic(features, labels, n_workers=3, l2=0.5))
        >>> found.worker.round(4).tolist(), round(found.objective, 4)
        ([1.5, 1.5, 4.5], 2.1667)
        >>> round(found.mean, 4), round(found.root_mean_square, 4), round(found.maximum, 4)
        (2.5, 2.8723, 4.5)
    """
    if isinstance(problem.gradient_of, QuadraticGradient):
        curvature = np.asarray(problem.data.curvature).astype(np.float64)
        return Smoothness(np.abs(curvature).max(1), float(np.abs(curvature.mean(0)).max()))
    data, *curvatures = _linear_parts(problem)
    factor, shift = (float(max(map(abs, bounds))) for bounds in curvatures)
    features, rows, size = (np.asarray(part) for part in (data.features, data.rows, data.size))
    worker = [
        factor * _squared_norm(features[held[:count]].astype(np.float64)) / count + shift
        for held, count in zip(rows, size, strict=True)
    ]
    objective = factor * _squared_norm(_weighted_rows(data)) + shift
    return Smoothness(np.array(worker), objective)


def block_smoothness(problem: Problem, n_blocks: int) -> BlockSmoothness:
    r"""Returns upper bounds on how fast the gradient of f changes when one block moves.

    With H the Hessian, :math:`B = W^{1/2} A`, its columns :math:`B_j` of block j, and mean and
    half width :math:`\bar c, \delta_c` of :math:`[c_-, c_+]` (likewise of :math:`[p_-, p_+]`),

    .. math::
        \|H_{jj}\| \le c \|B_j\|^2 + p, \qquad
        \|H_{:j}\| \le \|(\bar c B^\top B + \bar p I)_{:j}\| + \delta_c \|B\| \|B_j\| + \delta_p

    and :math:`\|H_{ij}\| \le \max_j c \|B_j\|^2 + p` for all i and j, by Cauchy-Schwarz. Always
    `largest` <= `across` <= `objective`.

    Args:
        problem: As for `smoothness`.
        n_blocks: m, pieces into which the coordinates are cut: consecutive, the first
            `d mod m` one longer, as by `numpy.array_split`.

    Returns:
        The constants, computed on the host in float64; exact for least squares and quadratics.

    Example:
        >>> from asyncjax import problems
        >>> features = [[2.0, 0.0, 1.0], [0.0, 2.0, 1.0]]
        >>> problem = problems.least_squares(features, [0.0, 0.0], n_workers=1)
        >>> found = problems.block_smoothness(problem, 2)
        >>> found.block.round(4).tolist(), round(found.largest, 4)
        ([2.0, 1.0], 2.0)
        >>> round(found.across, 4), round(found.objective, 4)
        (2.4495, 3.0)

    Note:
        The plain :math:`\|(B^\top B)_{:j}\|` would be no bound for the logistic loss: rows that
        cancel where all count the same no longer do when some scores are large.
    """
    if isinstance(problem.gradient_of, QuadraticGradient):
        curvature = np.asarray(problem.data.curvature).astype(np.float64)
        diagonal = np.abs(curvature.mean(0))
        cuts = _cuts(diagonal.size, n_blocks)
        block = np.array([diagonal[cut].max() for cut in cuts])
        return BlockSmoothness(block, float(block.max()), float(block.max()))
    data, *curvatures = _linear_parts(problem)
    factor, shift = (float(max(map(abs, bounds))) for bounds in curvatures)
    (middle, half), (lift, slack) = ((0.5 * (a + b), 0.5 * (b - a)) for a, b in curvatures)
    cuts = _cuts(data.features.shape[1], n_blocks)
    matrix = _weighted_rows(data)
    squared = np.array([_squared_norm(matrix[:, cut]) for cut in cuts])
    whole = _squared_norm(matrix)
    block, objective = factor * squared + shift, factor * whole + shift
    across = 0.0
    for cut, of_block in zip(cuts, squared, strict=True):
        columns = middle * (matrix.T @ matrix[:, cut])
        columns[cut, np.arange(cut.size)] += lift
        bound = np.sqrt(_squared_norm(columns)) + half * np.sqrt(whole * of_block) + slack
        across = max(across, float(bound))
    # mathematically in this order already, but for rounding and ranges of opposite signs
    objective = max(objective, float(block.max()))
    across = min(max(across, float(block.max())), objective)
    return BlockSmoothness(block, across, objective)


def _linear_parts(problem: Problem) -> tuple[Samples, tuple[float, float], tuple[float, float]]:
    """Returns the rows of a finite sum of linear scores, and how curved loss and penalty are."""
    data, rule = problem.data, problem.gradient_of
    what: Any = rule
    if isinstance(rule, BatchGradient):
        what = rule.loss.function
        curvature: Any = getattr(what, "curvature", None)
        of_penalty: Any = getattr(rule.loss.penalty, "curvature", None)
        if curvature is not None and of_penalty is not None:
            return data, curvature, of_penalty
    raise TypeError(
        "problem must be made by logistic, least_squares or quadratic, or have a loss of linear "
        f"scores that states its curvature, got one of {type(what).__name__}, whose smoothness is "
        "not known (for local_steps, ask for the smoothness of the problem inside)"
    )


def _weighted_rows(data: Samples) -> np.ndarray:
    """Returns float64[rows, d], each row times the root of what it counts in f."""
    shards = Shards(np.asarray(data.rows), np.asarray(data.size))
    features = np.asarray(data.features).astype(np.float64)
    return np.sqrt(row_weights(shards, features.shape[0]))[:, None] * features


def _squared_norm(matrix: np.ndarray) -> float:
    """Returns the square of the largest singular value, from the smaller Gram matrix."""
    gram = matrix.T @ matrix if matrix.shape[1] <= matrix.shape[0] else matrix @ matrix.T
    return max(float(np.linalg.eigvalsh(gram)[-1]), 0.0)


def _cuts(size: int, n_blocks: Any) -> list[np.ndarray]:
    """Returns the coordinates of each block."""
    return np.array_split(np.arange(size), whole("n_blocks", n_blocks, most=size))
