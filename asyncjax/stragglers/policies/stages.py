"""Stages: what each asks for, how they are laid out, and how a policy moves on when told to.

    stage, since  ->  stage + 1, update        if told to move and a next stage exists

A policy holds its `Stages` (what each asks for) and carries its `Place` (which one it is in, since
when); `update - since` is how many updates this stage has made. Stages that are known beforehand
(`schedules.py`) need no place. Numbers of policies are checked where they are known, and may be
traced.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from asyncjax.checks import instance, real, whole, within
from asyncjax.stragglers.plans.planning import Plan
from asyncjax.stragglers.policies.policy import MOST_WORKERS, Choice

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
    """Checks the numbers of several stages, and lays them out; with the capacity, as below.

    What else has an entry a stage must only fit in shape.
    """
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
