"""Policies: how many answers to wait for and how much to ask, decided before every update.

    state = policy.init()
    state, choice = policy.decide(state, observation)        before each update, the first one too

A policy is pure: it runs inside a compiled loop, `simulation.run_policy`, and under `vmap` over
seeds. The fastest-k policies after Egger, Kas Hanna and Bitar (2023) choose `(k, load)`; the wider
family may also stop workers at a deadline, leave workers out, or decode coded gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from asyncjax.checks import flag, instance, whole

MOST_WORKERS = 2**24  # of an observation or a policy: more exact counts no single precision holds


class Choice(NamedTuple):
    """What the server does in the next update.

    A worker stops computing at `deadline` and sends what it has done; samples done count as
    weights.

    Attributes:
        k: int32[], answers it waits for.
        load: float[], samples it asks of a worker, a whole number.
        stage: int32[], of the policy; for the records.
        deadline: float[], longest time of computing; see `Policy.stops`.
        workers: bool[n], which get work; at least k of them.
    """

    k: Array
    load: Array
    stage: Array
    deadline: Array | float = jnp.inf
    workers: Array | bool = True


class Observation(NamedTuple):
    """What the server knows before an update.

    Attributes:
        update: int32[], updates made so far.
        time: float[], clock, time units.
        elapsed: float[], how long the last update took; 0 before the first.
        response: float[n], last response times; inf where not awaited, and before the first.
        used: bool[n], whose answers made the last update.
        agreement: float[], inner product of the last two aggregated gradients; NaN before two.
        distance: float[], |w - w_0|^2.
        loss: float[], objective after the last update; NaN unless recorded.
        stage_distance: float[], from where the stage began; NaN: not known.
    """

    update: Array
    time: Array
    elapsed: Array
    response: Array
    used: Array
    agreement: Array
    distance: Array
    loss: Array
    stage_distance: Array | float = jnp.nan


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Policy:
    """A policy as two pure functions and static capacities.

    A pytree: functions given as `jax.tree_util.Partial` keep their arrays as leaves, so that
    policies of one kind share a compiled loop.

    Attributes:
        init: `() -> state`.
        decide: `(state, observation) -> (state, choice)`.
        max_load: Most samples it may ask of a worker in one update (static).
        varies_load: Whether the load may change during a run (static).
        stops: Whether deadlines are used, so that times of single samples are drawn (static).
        code: float[n, n], row i: with which weights worker i adds up the shards' gradients; the
            server decodes by least squares. None: worker i answers for shard i alone.
        copies: Shards a worker computes; its load is `copies` times the samples of a shard
            (static).

    Example:
        Wait for one more worker every hundred updates:

        >>> import jax.numpy as jnp
        >>> from asyncjax import stragglers
        >>> def decide(state, observation):
        ...     k = jnp.minimum(1 + observation.update // 100, 10)
        ...     return state, stragglers.Choice(k, jnp.float32(16.0), k)
        >>> policy = stragglers.Policy(init=lambda: (), decide=decide, max_load=16)
        >>> policy.max_load
        16
    """

    init: Callable[[], Any]
    decide: Callable[[Any, Observation], tuple[Any, Choice]]
    max_load: int = field(metadata={"static": True})
    varies_load: bool = field(default=True, metadata={"static": True})
    stops: bool = field(default=False, metadata={"static": True})
    code: Any = None  # float[n, n] or None
    copies: int = field(default=1, metadata={"static": True})

    def __post_init__(self) -> None:
        for name in ("init", "decide"):
            function = getattr(self, name)
            if not callable(function) and type(function) is not object:  # what jax puts for a node
                raise TypeError(f"{name} must be a function, got {function!r}")
            if callable(function) and not isinstance(function, jax.tree_util.Partial):
                object.__setattr__(self, name, jax.tree_util.Partial(function))
        whole("max_load", self.max_load, 1, 2**24 - 1)
        whole("copies", self.copies)
        for name in ("varies_load", "stops"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))


def check_policy(policy: Any, n_workers: int | None = None) -> None:
    """Refuses what is no `Policy`, and, where `n_workers` is given, what does not fit so many.

    With `n_workers` every k that the policy holds, in whatever stage, must be at most that (traced
    ones pass), and `decide` is traced once. What it decides later is clipped there and counted.
    """
    instance("policy", policy, Policy, "a Policy")
    for name in ("init", "decide"):
        if not callable(getattr(policy, name)):
            raise TypeError(f"policy must have a function {name}, got {getattr(policy, name)!r}")
    if n_workers is not None:
        n = whole("n_workers", n_workers)
        _check_counts(policy, n)
        code = np.shape(policy.code)
        if policy.code is not None and code != (n, n):
            raise ValueError(f"policy must have a code of the shape {(n, n)}, got {code}")
        _check_decision(policy, n)


def _check_counts(policy: Policy, n: int) -> None:
    """Refuses a concrete k above n in what the policy holds: tuples with a field k."""

    def holds_k(node: Any) -> bool:
        return isinstance(node, tuple) and "k" in getattr(node, "_fields", ())

    for node in jax.tree.leaves((policy.init, policy.decide), is_leaf=holds_k):
        if not holds_k(node) or isinstance(node.k, Tracer):
            continue
        k = np.ravel(np.asarray(node.k))
        if (k > n).any():
            stage = int(np.argmax(k > n))
            raise ValueError(
                f"policy must wait for at most the {n} workers there are, got k = {k[stage]}"
                + (f" in stage {stage}" if k.size > 1 else "")
            )


def _check_decision(policy: Policy, n: int) -> None:
    """Refuses a `decide` that fails for n workers, or returns what is no state and choice."""

    def first() -> Any:
        return policy.decide(jax.tree.map(jnp.asarray, policy.init()), nothing_seen(n))

    try:
        answer = jax.eval_shape(first)
    except Exception as error:
        reason = str(error).partition("\n")[0].rstrip(". ")
        raise ValueError(
            f"policy must decide with the observation of {n} workers, got"
            f" {type(error).__name__}: {reason}"
        ) from error
    is_pair = isinstance(answer, tuple | list) and len(answer) == 2
    if not is_pair or not isinstance(answer[1], Choice):
        raise TypeError(f"policy must decide on a pair (state, Choice), got {answer!r}")
    kinds = {"k": (jnp.integer,), "stage": (jnp.integer,), "workers": (jnp.bool_,)}
    for name, value in answer[1]._asdict().items():
        allowed = kinds.get(name, (jnp.integer, jnp.floating))
        if not any(jnp.issubdtype(value.dtype, kind) for kind in allowed):
            words = " or ".join(kind.__name__ for kind in allowed)
            raise TypeError(f"policy must choose {name} of kind {words}, got {value.dtype}")
        if value.shape and (name != "workers" or value.shape != (n,)):
            more = f" or {(n,)}" if name == "workers" else ""
            raise ValueError(f"policy must choose {name} of the shape (){more}, got {value.shape}")


def nothing_seen(n_workers: int) -> Observation:
    """Returns the observation before the first update: NaN for what needs a gradient or a loss.

    Args:
        n_workers: Number of workers `n`.

    Example:
        >>> seen = nothing_seen(2)
        >>> int(seen.update), seen.response.tolist(), bool(seen.agreement != seen.agreement)
        (0, [inf, inf], True)
    """
    n_workers = whole("n_workers", n_workers, 1, MOST_WORKERS)
    real = jnp.result_type(float)
    zero, unknown = jnp.zeros((), real), jnp.full((), jnp.nan, real)
    return Observation(
        update=jnp.zeros((), jnp.int32),
        time=zero,
        elapsed=zero,
        response=jnp.full((n_workers,), jnp.inf, real),
        used=jnp.zeros((n_workers,), bool),
        agreement=unknown,
        distance=zero,
        loss=unknown,
        stage_distance=unknown,
    )
