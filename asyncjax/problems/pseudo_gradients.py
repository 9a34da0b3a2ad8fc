r"""What workers deliver in place of a gradient: several local steps, or lies.

A worker that has read x runs H steps on the samples of its own, from :math:`y_0 = x`. With a step
size these are steps of gradient descent,

.. math:: y_{h+1} = y_h - \eta_l \, \nabla f_i(y_h; \xi_h), \qquad h = 0, \dots, H - 1,

and it delivers the pseudo-gradient :math:`(x - y_H) / (\eta_l H)`, the mean of the gradients on its
way: FedAvg's and FedBuff's payload, in units of a gradient, so that the server's step size means
the same for every H. With an optimizer,

.. math:: (\delta_h, s_{h+1}) = \mathrm{optimizer}(\nabla f_i(y_h; \xi_h), s_h, y_h), \qquad
          y_{h+1} = y_h + \delta_h,

it delivers :math:`x - y_H`, so that a server with `optax.sgd(1.0)` adopts what one worker found:
DiLoCo's payload. The state s begins anew with every job, or is kept at the worker.

An adversary sends :math:`a(g)` in place of :math:`g`, by default the sign flipped and scaled: what
it learned is undone. Losses, objective and metrics stay those of the problem, so that a run tells
what was reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.checks import real, whole, within
from asyncjax.problems.problem import Model, Problem, PyTree
from asyncjax.problems.transfers import explicit
from asyncjax.problems.units import in_front

Attack = Callable[[PyTree, Any, Any, jax.Array], PyTree]


@dataclass(frozen=True)
class _PseudoGradient:
    """The mean gradient of a job's local steps."""

    gradient_of: Callable[..., tuple[jax.Array, PyTree]]
    n_steps: int | None  # None: one a worker, among the data

    def __call__(
        self, data: tuple[PyTree, Any], params: PyTree, worker: Any, job: Any, key: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        inner, step_size = data
        n_steps: Any = self.n_steps
        if n_steps is None:
            step_size, n_steps = step_size[0], step_size[1][worker]

        def step(h: jax.Array, carry: tuple[jax.Array, PyTree, PyTree]) -> Any:
            loss, local, total = carry
            number = job * n_steps + h
            job_key = jax.random.fold_in(key, h)
            step_loss, grads = self.gradient_of(inner, local, worker, number, job_key)
            local = jax.tree.map(lambda y, g: y - step_size.astype(y.dtype) * g, local, grads)
            return loss + step_loss, local, jax.tree.map(jnp.add, total, grads)

        loss = jax.eval_shape(self.gradient_of, inner, params, worker, job, key)[0]
        zeros = jax.tree.map(jnp.zeros_like, params)
        start = (jnp.zeros((), loss.dtype), params, zeros)
        loss, _, total = jax.lax.fori_loop(0, n_steps, step, start)
        return loss / n_steps, jax.tree.map(lambda leaf: leaf / n_steps, total)


@dataclass(frozen=True)
class LocalSteps:
    """Steps of a worker's own optimizer, on another problem's gradients."""

    gradient_of: Callable[..., tuple[jax.Array, PyTree]]
    optimizer: optax.GradientTransformation
    takes_extras: bool = field(init=False)  # equal functions make equal optimizers, but not all do

    def __post_init__(self) -> None:
        takes = isinstance(self.optimizer, optax.GradientTransformationExtraArgs)
        object.__setattr__(self, "takes_extras", takes)

    def begin(self, inner: PyTree, params: PyTree, state: PyTree, *job: Any) -> Any:
        """The sum of losses, the model and the state before the first step."""
        loss = jax.eval_shape(self.gradient_of, inner, params, *job)[0]
        return jnp.zeros((), loss.dtype), params, state

    def run(
        self, inner: PyTree, carry: Any, first: Any, last: Any, worker: Any, start: Any, key: Any
    ) -> Any:
        """Steps `first .. last - 1` of a job whose step h is the inner problem's job start + h."""
        rule = optax.with_extra_args_support(self.optimizer)

        def step(h: jax.Array, carry: tuple[jax.Array, PyTree, PyTree]) -> Any:
            total, local, state = carry
            number, own_key = start + h, jax.random.fold_in(key, h)

            def loss_at(params: PyTree, worker: Any, job: Any, key: jax.Array) -> jax.Array:
                return self.gradient_of(inner, params, worker, job, key)[0]

            loss, grads = self.gradient_of(inner, local, worker, number, own_key)
            of_step = {"value": loss, "grad": grads, "value_fn": loss_at}
            of_job = {"worker": worker, "job": number, "key": own_key}  # `value_fn` takes them
            updates, state = rule.update(grads, state, local, **of_step, **of_job)
            return total + loss, optax.apply_updates(local, updates), state

        return jax.lax.fori_loop(first, last, step, carry)


@dataclass(frozen=True)
class _Displacement:
    """How far a job's local steps went, and where the optimizer's state is then."""

    local: LocalSteps
    n_steps: int | None  # None: one a worker, among the data
    keep_state: bool

    @property
    def gradient_of(self) -> Callable[..., tuple[jax.Array, PyTree]]:
        """That of the problem inside."""
        return self.local.gradient_of

    def __call__(
        self,
        data: tuple[PyTree, Any],
        params: PyTree,
        worker: Any,
        job: Any,
        key: jax.Array,
        *states: Any,
    ) -> tuple[Any, ...]:
        inner, counts = data
        n_steps: Any = self.n_steps if counts is None else counts[worker]
        params = jax.tree.map(jnp.asarray, params)
        (state,) = states or (FirstState(self.local.optimizer)(None, params),)
        start = self.local.begin(inner, params, state, worker, job, key)
        total, local, state = self.local.run(inner, start, 0, n_steps, worker, job * n_steps, key)
        moved = total / n_steps, jax.tree.map(jnp.subtract, params, local)
        return (*moved, state) if self.keep_state else moved


@dataclass(frozen=True)
class FirstState:
    """The state of a worker's optimizer before its first job."""

    optimizer: optax.GradientTransformation

    def __call__(self, data: PyTree, params: PyTree) -> PyTree:
        """That of the optimizer, as arrays."""
        return jax.tree.map(jnp.asarray, self.optimizer.init(params))


@explicit
def local_steps(
    problem: Problem[Model],
    *,
    n_steps: Any,
    step_size: Any = None,
    optimizer: optax.GradientTransformation | None = None,
    keep_state: bool = False,
) -> Problem[Model]:
    r"""Returns the problem whose jobs are several local steps of another's.

    With a step size a job delivers the mean gradient on its way, with an optimizer its way:

    .. math:: g = \frac{x - y_H}{\eta_l H} = \frac{1}{H} \sum_{h<H} \nabla f_i(y_h; \xi_h)
              \qquad \text{or} \qquad g = x - y_H

    The sum of gradients is kept as it goes, so that a small step size loses no digits in x - y.

    Args:
        problem: What a single step of a job computes; its workers keep no state.
        n_steps: H, local steps of a job, at least 1; or one H a worker, int[n], so that all of
            them finish together (see `balanced_steps`). A clock knows nothing of it: let jobs last
            longer with `traces.asynchronous(..., load=n_steps)`.
        step_size: eta_l, positive; may be traced. Either it or an optimizer is given.
        optimizer: Any optax transformation, the worker's own; make it once where several problems
            share it, since each new one is compiled for. An optimizer that asks for them is
            handed `value`, `grad` and `value_fn` of the step's loss, and `worker`, `job` (the inner
            problem's) and `key`; a local step has no `delay`.
        keep_state: Whether a worker keeps the optimizer's state from job to job, or begins anew at
            the model that it reads. It is kept by worker, starting from `optimizer.init` at the
            problem's `params`, and moved by every job that arrives, also by those that the server
            throws away; a job that is stopped or lost leaves it as it was. All workers start from
            the same state, so where it holds a key they draw the same.

    Returns:
        A problem with the same model, objective and metrics. Local step h of job j of worker i is
        the inner problem's job j H_i + h, with the key fold_in(key of the job, h). The loss of a
        job is the mean over its local steps. Where a state is kept, n workers hold n times its
        memory (two models a worker for Adam), and `replay`, `sweep` and live runs carry it; the
        last states are `worker_states` of the run.

    Example:
        >>> import jax, optax
        >>> from asyncjax import problems
        >>> inner = problems.quadratic([[1.0]], [[0.0]])
        >>> problem = problems.local_steps(inner, n_steps=2, step_size=0.5)
        >>> loss, grads = problem.gradient(problem.params, 0, 0, jax.random.key(0))
        >>> grads.tolist()  # (1 + 0.5) / 2
        [0.75]
        >>> problem = problems.local_steps(inner, n_steps=2, optimizer=optax.sgd(0.5))
        >>> loss, grads = problem.gradient(problem.params, 0, 0, jax.random.key(0))
        >>> grads.tolist()  # from 1 to 0.25
        [0.75]

    Reference:
        McMahan et al., FedAvg, 2017 (arXiv 1602.05629); Nguyen et al., FedBuff, 2022 (arXiv
        2106.06639); Douillard et al., DiLoCo, 2023 (arXiv 2311.08105), and Liu et al., 2024 (arXiv
        2401.09135), whose workers keep their AdamW from job to job.
    """
    if problem.worker_state_of is not None:
        raise ValueError("problem must be one whose workers keep no state: they have local steps")
    counts, n_steps, problem = _counts(problem, n_steps)
    if (step_size is None) == (optimizer is None):
        raise ValueError(
            "step_size must be given where there is no optimizer, and be None where there is one,"
            f" got {step_size!r}"
        )
    if optimizer is None:
        if keep_state:
            raise ValueError("keep_state must be False without an optimizer, got True")
        size = jnp.asarray(within("step_size", step_size, above=0), jnp.result_type(float))
        if size.ndim:
            raise ValueError(f"step_size must be one number, got shape {size.shape}")
        extra = size if counts is None else (size, counts)
        return in_front(problem, extra, _PseudoGradient(problem.gradient_of, n_steps))
    displacement = _Displacement(LocalSteps(problem.gradient_of, optimizer), n_steps, keep_state)
    state_of = FirstState(optimizer) if keep_state else None
    local = replace(in_front(problem, counts, displacement), worker_state_of=state_of)
    key, states = jax.eval_shape(jax.random.key, 0), (local.worker_state(),) if keep_state else ()
    # a missing extra is told here
    jax.eval_shape(displacement, local.data, local.params, 0, 0, key, *states)
    return local


@explicit
def balanced_steps(times: Any, n_steps: int) -> np.ndarray:
    r"""Returns how many local steps every worker takes, so that all finish about together.

    .. math:: H_i = \max\left(1, \left\lfloor H \, \frac{\min_j t_j}{t_i} \right\rfloor\right)

    Args:
        times: [n], how long a local step takes each worker, positive, time units.
        n_steps: H, local steps of the fastest worker, at least 1.

    Returns:
        int32[n], for `local_steps(..., n_steps=...)`. A job of worker i then takes t_i H_i, at most
        t_min H, unless a single step takes longer.

    Example:
        >>> from asyncjax import problems
        >>> problems.balanced_steps([0.6, 1.0, 3.3], 50).tolist()
        [50, 30, 9]

    Reference:
        Liu et al. 2024 (arXiv 2401.09135), dynamic local updates (DyLU), who give the workers
        speeds 1 / t_i; that a worker takes at least one step is added here.
    """
    seconds = np.asarray(within("times", times, above=0), np.float64)
    share = whole("n_steps", n_steps) * (seconds.min() / seconds)
    return np.maximum(1, np.floor(share * (1 + 1e-9))).astype(np.int32)  # 1 / 3 of 30 is 10


def _counts(problem: Problem, n_steps: Any) -> tuple[jax.Array | None, int | None, Problem]:
    """The local steps one a worker or for all, and the problem with as many workers."""
    if np.ndim(n_steps) == 0:
        return None, whole("n_steps", n_steps), problem
    counts = np.asarray(within("n_steps", n_steps, least=1, integer=True))
    n_workers = counts.size if problem.n_workers is None else problem.n_workers
    if counts.shape != (n_workers,) or not counts.size:
        raise ValueError(
            f"n_steps must be one number or one a worker, {n_workers}, got shape {counts.shape}"
        )
    return jnp.asarray(counts, jnp.int32), None, replace(problem, n_workers=n_workers)


@dataclass(frozen=True)
class _Attacked:
    """A gradient that some workers replace."""

    gradient_of: Callable[..., tuple[Any, ...]]
    attack: Attack

    def __call__(
        self, data: tuple[PyTree, jax.Array], params: PyTree, worker: Any, job: Any, *rest: Any
    ) -> tuple[Any, ...]:
        inner, adversaries = data
        loss, grads, *states = self.gradient_of(inner, params, worker, job, *rest)
        sent = self.attack(grads, worker, job, rest[0])
        is_bad = jnp.any(adversaries == worker)
        chosen = jax.tree.map(
            lambda bad, good: jnp.where(is_bad, jnp.asarray(bad).astype(good.dtype), good),
            sent,
            grads,
        )
        return loss, chosen, *states


@dataclass(frozen=True)
class _Flipped:
    """The gradient with its sign flipped, scaled."""

    scale: float

    def __call__(self, grads: PyTree, worker: Any, job: Any, key: jax.Array) -> PyTree:
        return jax.tree.map(lambda leaf: -self.scale * leaf, grads)


@explicit
def adversarial(
    problem: Problem[Model],
    workers: Sequence[int],
    attack: Attack | None = None,
    *,
    scale: float = 1.0,
) -> Problem[Model]:
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
    last = None if problem.n_workers is None else problem.n_workers - 1
    if len(workers):
        within("workers", workers, least=0, most=last, integer=True)
    scale = real("scale", scale, above=0)
    attack = _Flipped(scale) if attack is None else attack
    numbers = jnp.asarray(np.asarray(workers, np.int32))
    return in_front(problem, numbers, _Attacked(problem.gradient_of, attack))
