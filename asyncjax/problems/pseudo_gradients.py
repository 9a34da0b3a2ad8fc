r"""Local steps: a job is several steps of gradient descent at the worker.

A worker that has read x runs

.. math:: y_0 = x, \qquad y_{h+1} = y_h - \eta_l \, \nabla f_i(y_h; \xi_h), \qquad
          h = 0, \dots, H - 1,

and delivers the pseudo-gradient :math:`(x - y_H) / (\eta_l H)`, the mean of the gradients on its
way: FedAvg's and FedBuff's payload, in units of a gradient, so that the server's step size means
the same for every H.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import whole, within
from asyncjax.problems.problem import Problem, PyTree
from asyncjax.problems.units import in_front


@dataclass(frozen=True)
class _PseudoGradient:
    """The mean gradient of a job's local steps."""

    gradient_of: Callable[..., tuple[jax.Array, PyTree]]
    n_steps: int

    def __call__(
        self, data: tuple[PyTree, jax.Array], params: PyTree, worker: Any, job: Any, key: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        inner, step_size = data

        def step(h: jax.Array, carry: tuple[jax.Array, PyTree, PyTree]) -> Any:
            loss, local, total = carry
            number = job * self.n_steps + h
            own, grads = self.gradient_of(inner, local, worker, number, jax.random.fold_in(key, h))
            local = jax.tree.map(lambda y, g: y - step_size.astype(y.dtype) * g, local, grads)
            return loss + own, local, jax.tree.map(jnp.add, total, grads)

        loss = jax.eval_shape(self.gradient_of, inner, params, worker, job, key)[0]
        zeros = jax.tree.map(jnp.zeros_like, params)
        start = (jnp.zeros((), loss.dtype), params, zeros)
        loss, _, total = jax.lax.fori_loop(0, self.n_steps, step, start)
        return loss / self.n_steps, jax.tree.map(lambda leaf: leaf / self.n_steps, total)


def local_steps(problem: Problem, *, n_steps: int, step_size: Any) -> Problem:
    r"""Returns the problem whose jobs are several local steps of another's.

    .. math:: g = \frac{x - y_H}{\eta_l H} = \frac{1}{H} \sum_{h<H} \nabla f_i(y_h; \xi_h)

    The sum is kept as it goes, so that a small step size loses no digits in x - y.

    Args:
        problem: What a single step of a job computes.
        n_steps: H, local steps of a job, at least 1. A clock knows nothing of it: let jobs last
            longer with `traces.asynchronous(..., load=H)`.
        step_size: eta_l, positive; may be traced.

    Returns:
        A problem with the same model, objective and metrics. Local step h of job j is the inner
        problem's job j H + h, with the key fold_in(key of the job, h). The loss of a job is the
        mean over its local steps.

    Raises:
        TypeError: If `problem` is not a problem, or `step_size` not a number.
        ValueError: If `n_steps` is below 1, or `step_size` not one number, positive and finite.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> inner = problems.quadratic([[1.0]], [[0.0]])
        >>> problem = problems.local_steps(inner, n_steps=2, step_size=0.5)
        >>> loss, grads = problem.gradient(problem.params, 0, 0, jax.random.key(0))
        >>> grads.tolist()  # (1 + 0.5) / 2
        [0.75]

    Reference:
        McMahan et al., FedAvg, 2017 (arXiv 1602.05629); Nguyen et al., FedBuff, 2022 (arXiv
        2106.06639).
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, as its factories make it, got {problem!r}")
    n_steps = whole("n_steps", n_steps)
    within("step_size", step_size, above=0)
    if np.ndim(step_size) != 0:
        raise ValueError(f"step_size must be one number, got shape {np.shape(step_size)}")
    size = jnp.asarray(step_size, jnp.result_type(float))
    return in_front(problem, size, _PseudoGradient(problem.gradient_of, n_steps))
