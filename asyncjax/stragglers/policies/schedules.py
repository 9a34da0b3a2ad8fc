"""Schedules: policies whose stages of (k, load) are known beforehand, by updates or by the clock.

    fixed, staged, planned    stage = number of stages that end at or before this update
    timed                     stage = number of stages that end at or before this time

Stages end at `round(cumsum(updates))`: rounding the sums and not the stages carries remainders
over. The last stage never ends. `planned` is `staged` by the updates of a plan, after Egger, Kas
Hanna and Bitar (2023), and `timed` keeps to the times of the same plan; where updates take as long
as expected, both do the same.

A policy holds its `Stages` (what each asks for); where it looks at the run it carries its `Place`
(which one it is in, since when):

    stage, since  ->  stage + 1, update        if told to move and a next stage exists
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.tree_util import Partial

from asyncjax.checks import instance, real, whole, within
from asyncjax.stragglers.plans.planning import Plan
from asyncjax.stragglers.policies.policy import MOST_WORKERS, Choice, Observation, Policy

NEVER = np.iinfo(np.int32).max


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


def read_stages(k: Any, load: Any, max_load: int | None, **more: Any) -> tuple[Stages, int, bool]:
    """Checks the numbers of several stages, and lays them out; with `load_capacity`."""
    most, varies = load_capacity(load, max_load)
    within("k", k, least=1, integer=True)
    within("k", k, most=MOST_WORKERS, integer=True)
    *names, last = "k", "load", *more
    shapes = [np.shape(value) for value in (k, load, *more.values())]
    try:
        shape = np.broadcast_shapes(*shapes, (1,))
    except ValueError:
        shape = ()
    if len(shape) != 1 or shape == (0,):
        raise ValueError(
            f"{', '.join(names)} and {last} must be numbers or have one entry a stage, got shapes "
            f"{shapes}"
        )

    def row(value: Any, dtype: Any) -> Array:
        xp = jnp if isinstance(value, jax.Array) else np
        return padded(xp.broadcast_to(xp.asarray(value), shape).astype(dtype))

    rows = row(k, np.int32), row(load, jnp.result_type(float))
    return Stages(*rows, jnp.asarray(shape[0] - 1, jnp.int32)), most, varies


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


def check_plan(plan: Any) -> None:
    """Refuses what is no plan with stages (TypeError, ValueError)."""
    instance("plan", plan, Plan, "a Plan, as plan(...) makes it")
    if not plan.k.size:
        raise ValueError("plan must have at least one stage, got none: its error is at the target")


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
    check_plan(plan)
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
    check_plan(plan)
    stages, most, varies = read_stages(plan.k, plan.load, None)
    ends = padded(plan.end_time).astype(stages.load.dtype)
    return Policy(Partial(nothing), Partial(_by_time, ends, stages), most, varies)


def _by_updates(
    ends: Array, stages: Stages, state: tuple[()], observation: Observation
) -> tuple[tuple[()], Choice]:
    """The stage that the number of updates has come to, by the ends of stages int32[P]."""
    return state, _choice_at(ends, stages, observation.update)


def _by_time(
    ends: Array, stages: Stages, state: tuple[()], observation: Observation
) -> tuple[tuple[()], Choice]:
    """The stage that the clock has come to, by the ends of stages float[P]."""
    return state, _choice_at(ends, stages, observation.time)


def _choice_at(ends: Array, stages: Stages, now: Array) -> Choice:
    """What is asked where as many stages as can be have ended."""
    stage = jnp.searchsorted(ends, now, side="right")
    return choice_of(stages, jnp.minimum(stage, stages.last).astype(jnp.int32))
