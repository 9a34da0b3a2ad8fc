"""Policies: how many answers to wait for and how much to ask, decided before every update.

    state = policy.init()
    state, choice = policy.decide(state, observation)        before each update, the first one too

A policy is pure: it runs inside a compiled loop, `simulation.run_policy`, and under `vmap` over
seeds. The fastest-k policies after Egger, Kas Hanna and Bitar (2023) choose `(k, load)`; the wider
family may also stop workers at a deadline, leave workers out, or decode coded gradients.

Here are those whose stages of (k, load) are known beforehand:

    fixed, staged, planned    stage = number of stages that end at or before this update
    timed                     stage = number of stages that end at or before this time
    deadline, drop_compute    worker i does min(load, what fits into the deadline) samples
    backup_workers            k = n - extra

Stages end at `round(cumsum(updates))`: rounding the sums and not the stages carries remainders
over. The last stage never ends. `planned` and `timed` keep to the updates and to the times of one
plan; where updates take as long as expected, both do the same. Workers that are stopped or dropped
are after Ferdinand et al. (2020), Giladi et al. (2023) and Chen et al. (2016).

A policy holds its `Stages`, what each asks for; one that looks at the run carries its `Place`,
which stage it is in and since when (`adaptive.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.tree_util import Partial

from asyncjax.checks import real, whole, within
from asyncjax.stragglers.plans.planning import Plan

MOST_WORKERS = 2**24  # of an observation or a policy: more exact counts no single precision holds
NEVER = np.iinfo(np.int32).max


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
            if type(function) is not object and not isinstance(function, Partial):
                object.__setattr__(self, name, Partial(function))  # jax puts an object for a node
        whole("max_load", self.max_load, 1, 2**24 - 1)
        whole("copies", self.copies)


Decided = tuple[Any, Choice]  # the next state, and what is done


def check_policy(policy: Policy, n_workers: int) -> None:
    """Refuses a policy that holds a k above the number of workers, or a code of another size.

    Traced numbers pass; what is decided later is clipped in the loop, and counted.
    """

    def holds_k(node: Any) -> bool:
        return isinstance(node, tuple) and "k" in getattr(node, "_fields", ())

    for node in jax.tree.leaves((policy.init, policy.decide), is_leaf=holds_k):
        if not holds_k(node) or isinstance(node.k, Tracer):
            continue
        k = np.ravel(np.asarray(node.k))
        if (k > n_workers).any():
            stage = int(np.argmax(k > n_workers))
            raise ValueError(
                f"policy must wait for at most the {n_workers} workers there are, got k ="
                f" {k[stage]}" + (f" in stage {stage}" if k.size > 1 else "")
            )
    shape, code = (n_workers, n_workers), np.shape(policy.code)
    if policy.code is not None and code != shape:
        raise ValueError(f"policy must have a code of the shape {shape}, got {code}")


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


class Stages(NamedTuple):
    """What each stage asks for; rows after `last` only fill up to a power of two."""

    k: Array  # int32[P], answers to wait for
    load: Array  # float[P], samples a worker
    last: Array  # int32[], index of the last stage


class Place(NamedTuple):
    """Where a policy is."""

    stage: Array  # int32[]
    since: Array  # int32[], updates made when the stage began


def counted(name: str, value: Any, least: int) -> Array:
    """Reads an integer as int32[], the largest of which stands for all above."""
    if not isinstance(value, Tracer):
        value = min(whole(name, value, least), NEVER)
    return jnp.asarray(value, jnp.int32)


def patience_of(patience: Any) -> Array:
    """Reads after how many updates a stage is left whatever is seen, None for never; int32[]."""
    return counted("patience", NEVER if patience is None else patience, 1)


def number(name: str, value: Any, **limits: Any) -> Array:
    """Reads a real number as float[], within the limits of `checks.real`."""
    if not isinstance(value, Tracer):
        value = real(name, value, **limits)
    return jnp.asarray(value, jnp.result_type(float))


def read_stages(
    k: Any, load: Any, max_load: int | None, updates: Any = 1.0
) -> tuple[Stages, int, bool]:
    """Checks the numbers of several stages, and lays them out; with `load_capacity`."""
    most, varies = load_capacity(load, max_load)
    within("k", k, least=1, integer=True)
    within("k", k, most=MOST_WORKERS, integer=True)
    shape = np.broadcast_shapes(*map(np.shape, (k, load, updates)), (1,))

    def row(value: Any, dtype: Any) -> Array:
        xp = jnp if isinstance(value, jax.Array) else np
        return padded(xp.broadcast_to(xp.asarray(value), shape).astype(dtype))

    rows = row(k, np.int32), row(load, jnp.result_type(float))
    return Stages(*rows, jnp.asarray(shape[0] - 1, jnp.int32)), most, varies


def plan_stages(plan: Plan) -> tuple[Stages, int, bool]:
    """Lays out the stages of a plan; refuses one that has none."""
    if not plan.k.size:
        raise ValueError("plan must have at least one stage, got none: its error is at the target")
    return read_stages(plan.k, plan.load, None)


def load_capacity(load: Any, max_load: int | None) -> tuple[int, bool]:
    """Finds the most samples a policy may ask of a worker, and whether its load may change."""
    if isinstance(load, Tracer):
        if max_load is None:
            raise ValueError("max_load must be given where load is traced, got None")
        return whole("max_load", max_load, 1, 2**24 - 1), True
    loads = np.asarray(within("load", load, finite=False), np.float64)
    bad = ~((loads >= 1) & (loads < 2**24) & (loads == np.round(loads)))
    if loads.size == 0 or bad.any():
        first = loads[bad].flat[0] if bad.any() else "none"
        raise ValueError(f"load must be a positive whole number of samples in a run, got {first}")
    most, varies = int(loads.max()), bool((loads != loads.flat[0]).any())
    return most if max_load is None else whole("max_load", max_load, most, 2**24 - 1), varies


def padded(row: Any) -> Array:
    """Repeats the last entry up to a power of two, so that such policies share compilations."""
    size = row.shape[0]
    return jnp.pad(jnp.asarray(row), (0, (1 << (size - 1).bit_length()) - size), mode="edge")


def nothing() -> tuple[()]:
    """The state of a policy that needs none."""
    return ()


def first_place() -> Place:
    """The first stage, from the first update on."""
    return Place(stage=jnp.zeros((), jnp.int32), since=jnp.zeros((), jnp.int32))


def moved_on(stages: Stages, place: Place, told: Array, update: Array) -> tuple[Place, Array]:
    """Enters the next stage if told to, bool[], and there is one; says whether, bool[]."""
    moved = told & (place.stage < stages.last)
    stage = place.stage + moved.astype(jnp.int32)
    return Place(stage, jnp.where(moved, update, place.since).astype(jnp.int32)), moved


def choice_of(stages: Stages, stage: Any) -> Choice:
    """What a stage, int32[], asks for."""
    return Choice(stages.k[stage], stages.load[stage], jnp.asarray(stage, jnp.int32))


def fixed(k: Any, load: Any = 1.0, *, max_load: int | None = None) -> Policy:
    """Returns the policy that waits for the k fastest, always: k-sync (arXiv 1803.01113).

    With `k` the number of workers and `load` a whole shard it is gradient descent.

    Args:
        k: Answers to wait for, at least 1; may be traced.
        load: Samples a worker, a positive whole number; may be traced.
        max_load: Most samples, needed where `load` is traced.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = stragglers.fixed(3, 8)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(5))
        >>> int(choice.k), float(choice.load)
        (3, 8.0)
    """
    if np.ndim(k) or np.ndim(load):
        raise ValueError(f"k and load must be single numbers, got {k!r} and {load!r}")
    return staged(k, load, np.inf, max_load=max_load)


def staged(k: Any, load: Any, updates: Any, *, max_load: int | None = None) -> Policy:
    """Returns the policy that goes through stages of `(k, load)`, each for so many updates.

    Formula: stage s ends before update `round(updates_0 + ... + updates_s)`; the last never ends.
    Policies with equally many stages (up to the next power of two) share a compiled loop.

    Args:
        k: Answers to wait for, at least 1, a number or `[S]`; may be traced.
        load: Samples a worker, positive whole numbers, a number or `[S]`; may be traced.
        updates: Updates of each stage, at least 0, fractional or inf, a number or `[S]`; may be
            traced. A stage without updates is passed over.
        max_load: Most samples (static), needed where `load` is traced.

    Example:
        >>> import jax
        >>> from asyncjax import stragglers
        >>> policy = stragglers.staged(k=[1, 4], load=[2, 8], updates=[1.4, 10])
        >>> seen = stragglers.nothing_seen(5)
        >>> _, choice = policy.decide(policy.init(), seen._replace(update=1))
        >>> int(choice.k), float(choice.load), int(choice.stage)
        (4, 8.0, 1)
    """
    stages, most, varies = read_stages(k, load, max_load, updates=updates)
    within("updates", updates, least=0, finite=False)
    lengths = updates if isinstance(updates, jax.Array) else np.asarray(updates, np.float64)
    xp = jnp if isinstance(updates, jax.Array) else np
    shape = np.broadcast_shapes(*map(np.shape, (k, load, updates)), (1,))
    sums = xp.cumsum(xp.broadcast_to(lengths, shape))
    ends = padded(xp.where(sums < NEVER, xp.round(sums), NEVER).astype(np.int32))
    return Policy(Partial(nothing), Partial(_by_updates, ends, stages), most, varies)


def planned(plan: Plan) -> Policy:
    """Returns the policy that switches after as many updates as a plan says.

    Args:
        plan: A plan with at least one stage, whose loads are whole samples.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(0.2, 1.0, 1.0, 40.0, 2.5)
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> policy = planned(stragglers.plan(times, bound, load=2.0, target=0.6))
        >>> policy.max_load, policy.varies_load
        (2, False)
    """
    plan_stages(plan)
    return staged(plan.k, plan.load, plan.updates)


def timed(plan: Plan) -> Policy:
    """Returns the policy that switches when a plan says so by the clock.

    Formula: stage s is left at the first update that starts at `end_time_s` or later; the last
    stage never ends.

    Args:
        plan: A plan with at least one stage, whose loads are whole samples.

    Example:
        >>> from asyncjax import clocks, stragglers
        >>> bound = stragglers.ErrorBound(0.2, 1.0, 1.0, 40.0, 2.5)
        >>> times = stragglers.response(compute=clocks.exponential(0.25), n_workers=4)
        >>> policy = timed(stragglers.plan(times, bound, load=2.0, target=0.6))
        >>> seen = stragglers.nothing_seen(4)
        >>> [int(policy.decide((), seen._replace(time=t))[1].k) for t in (0.0, 1.8, 9.0)]
        [2, 3, 4]
    """
    stages, most, varies = plan_stages(plan)
    ends = padded(plan.end_time).astype(stages.load.dtype)
    return Policy(Partial(nothing), Partial(_by_time, ends, stages), most, varies)


def _by_updates(ends: Array, stages: Stages, state: Any, observation: Observation) -> Decided:
    """The stage that the number of updates has come to, by the ends of stages int32[P]."""
    return state, _choice_at(ends, stages, observation.update)


def _by_time(ends: Array, stages: Stages, state: Any, observation: Observation) -> Decided:
    """The stage that the clock has come to, by the ends of stages float[P]."""
    return state, _choice_at(ends, stages, observation.time)


def _choice_at(ends: Array, stages: Stages, now: Array) -> Choice:
    """What is asked where as many stages as can be have ended."""
    stage = jnp.searchsorted(ends, now, side="right")
    return choice_of(stages, jnp.minimum(stage, stages.last).astype(jnp.int32))


def deadline(compute_time: Any, *, max_load: int, k: Any = None, n_workers: int) -> Policy:
    """Returns the policy of anytime mini-batches: a fixed time of computing (arXiv 2006.05752).

    Formula: worker i sends the sum of the samples it has done by `compute_time`, at most
    `max_load`; what it has done is its weight.

    Args:
        compute_time: Longest time of computing, time units, positive; may be traced.
        max_load: Most samples a worker does in that time (static).
        k: Answers to wait for; None for all n; may be traced.
        n_workers: Number of workers `n`.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = deadline(2.5, max_load=32, n_workers=4)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(4))
        >>> int(choice.k), float(choice.load), float(choice.deadline), policy.stops
        (4, 32.0, 2.5, True)
    """
    n_workers, max_load = whole("n_workers", n_workers), whole("max_load", max_load)
    k = n_workers if k is None else within("k", k, least=1, most=n_workers, integer=True)
    limit = number("compute_time", compute_time, above=0, finite=False)
    return _stopped(limit, fixed(k, max_load, max_load=max_load))


def drop_compute(
    threshold: Any, load: Any, *, n_workers: int, max_load: int | None = None
) -> Policy:
    """Returns the policy whose workers stop at a threshold, or when done (arXiv 2306.10598).

    Formula: as `deadline`, with the ordinary load, and all n answers awaited.

    Args:
        threshold: Longest time of computing, time units, positive; may be traced.
        load, max_load: As for `fixed`.
        n_workers: Number of workers `n`.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = drop_compute(4.0, 8, n_workers=4)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(4))
        >>> int(choice.k), float(choice.load), float(choice.deadline)
        (4, 8.0, 4.0)
    """
    limit = number("threshold", threshold, above=0, finite=False)
    return _stopped(limit, fixed(whole("n_workers", n_workers), load, max_load=max_load))


def _stopped(limit: Array, policy: Policy) -> Policy:
    """A policy with a deadline."""
    return replace(policy, decide=Partial(_by_deadline, limit, policy.decide), stops=True)


def _by_deadline(limit: Array, decide: Partial, state: Any, observation: Observation) -> Decided:
    """What the fixed policy asks, until the deadline."""
    state, choice = decide(state, observation)
    return state, choice._replace(deadline=limit)


def backup_workers(
    n_workers: int, extra: int, load: Any = 1.0, *, max_load: int | None = None
) -> Policy:
    """Returns the policy that drops the last few workers of every update (arXiv 1604.00981).

    Formula: `k = n_workers - extra`.

    Args:
        n_workers: Number of workers `n`, the backups among them.
        extra: How many are dropped, 0 .. n - 1.
        load, max_load: As for `fixed`.

    Example:
        >>> from asyncjax import stragglers
        >>> policy = backup_workers(10, 2, 16)
        >>> _, choice = policy.decide(policy.init(), stragglers.nothing_seen(10))
        >>> int(choice.k)
        8
    """
    n_workers = whole("n_workers", n_workers)
    extra = whole("extra", extra, 0, n_workers - 1)
    return fixed(n_workers - extra, load, max_load=max_load)
