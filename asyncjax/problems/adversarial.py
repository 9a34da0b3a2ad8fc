r"""Adversaries: some workers send something else than their gradient.

A worker of the set sends :math:`a(g)` in place of :math:`g`, by default :math:`-s g`, the sign
flipped and scaled: what it learned is undone. Losses, objective and metrics stay those of the
problem, so that a run tells what was reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import function, shown, within
from asyncjax.problems.problem import Problem, PyTree
from asyncjax.problems.transfers import explicit
from asyncjax.problems.units import in_front

Attack = Callable[[PyTree, Any, Any, jax.Array], PyTree]


@dataclass(frozen=True)
class _Attacked:
    """A gradient that some workers replace."""

    gradient_of: Callable[..., tuple[Any, ...]]
    attack: Attack

    def __call__(
        self, data: tuple[PyTree, jax.Array], params: PyTree, worker: Any, job: Any, *rest: Any
    ) -> tuple[Any, ...]:
        inner, adversaries = data
        loss, grads, *kept = self.gradient_of(inner, params, worker, job, *rest)
        sent = self.attack(grads, worker, job, rest[0])
        is_bad = jnp.any(adversaries == worker)
        chosen = jax.tree.map(
            lambda bad, good: jnp.where(is_bad, jnp.asarray(bad).astype(good.dtype), good),
            sent,
            grads,
        )
        return loss, chosen, *kept


@dataclass(frozen=True)
class _Flipped:
    """The gradient with its sign flipped, scaled."""

    scale: float

    def __call__(self, grads: PyTree, worker: Any, job: Any, key: jax.Array) -> PyTree:
        return jax.tree.map(lambda leaf: -self.scale * leaf, grads)


@explicit
def adversarial(
    problem: Problem,
    workers: Sequence[int],
    attack: Attack | None = None,
    *,
    scale: float = 1.0,
) -> Problem:
    r"""Returns the problem in which some workers send what an attack makes of their gradients.

    .. math:: g_i \leftarrow a(g_i, i, j, \text{key}) \quad \text{for the workers } i \text{ named}

    Args:
        problem: Any problem.
        workers: Numbers of the adversaries; none leaves the problem as it is.
        attack: `(grads, worker, job, key) -> grads`, compiled with the gradient. None: -scale *
            grads.
        scale: s, of the default attack, positive.

    Returns:
        A problem with the same model, objective and metrics; losses are those of the gradients that
        were not sent.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: A worker is out of range, or `scale` not positive and finite.

    Example:
        >>> import jax
        >>> from asyncjax import problems
        >>> inner = problems.quadratic([[1.0], [1.0]], [[0.0], [0.0]])
        >>> problem = problems.adversarial(inner, [1], scale=3.0)
        >>> [problem.gradient(problem.params, i, 0, jax.random.key(0))[1].tolist() for i in (0, 1)]
        [[1.0], [-3.0]]

    Reference:
        Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine learning with adversaries".
    """
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem must be a Problem, as its factories make it, got {shown(problem)}"
        )
    last = None if problem.n_workers is None else problem.n_workers - 1
    if not isinstance(workers, list | tuple | range | np.ndarray):
        raise TypeError(f"workers must be a list of workers' numbers, got {shown(workers)}")
    if len(workers):
        within("workers", workers, least=0, most=last, integer=True)
    if np.ndim(workers) != 1:
        raise ValueError(f"workers must be a list of numbers, got shape {np.shape(workers)}")
    within("scale", scale, above=0)
    if np.ndim(scale) != 0:
        raise ValueError(f"scale must be one number, got shape {np.shape(scale)}")
    if attack is None:
        attack = _Flipped(float(scale))
    function("attack", attack, "a function of (grads, worker, job, key)")
    numbers = jnp.asarray(np.asarray(workers, np.int32))
    return in_front(problem, numbers, _Attacked(problem.gradient_of, attack))
