"""A price floor learned from the past.

    L* = argmax over L of the mean total utility of past workloads, replayed under L

The price L of an idle resource decides, in effect, who is admitted: too low, and early jobs of
little worth fill the machines; too high, and nobody enters. The bound from theory is set by the
single most hopeless job, and is far below the best. Utility is real utility; what is learned should
be reported on other workloads than those it was learned on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import instance, shown, whole, within
from asyncjax.cluster.checked_jobs import host_floats
from asyncjax.cluster.episode import Episode, prepare
from asyncjax.cluster.machines_and_jobs import Data, Jobs, Machines
from asyncjax.cluster.outcomes import total_utility
from asyncjax.cluster.schedulers.arrival_rules import Allocation, schedule_of
from asyncjax.cluster.schedulers.pd_ors import (
    PdOrsSettings,
    pd_ors_episode,
    pd_ors_program,
    pd_ors_settings,
)

_MOST_REPLAYS = 100_000
_TOGETHER = 64  # episodes in one vmap; their tables are held at once
_HALF_DECADES = np.arange(-14, -3) / 2  # of the default floors, relative to the highest price


class FloorChoice(NamedTuple):
    """Price floors tried on past workloads.

    Attributes:
        low: float, the floor with the largest mean utility; the smallest of equal ones.
        lows: float64[L], the floors that were tried.
        utilities: float64[L, P], total utility of each past workload under each floor.
    """

    low: float
    lows: np.ndarray  # float64[L]
    utilities: np.ndarray  # float64[L, P]


def choose_floor(
    past: Sequence[tuple[Jobs, Machines]],
    *,
    n_slots: int,
    lows: Any = None,
    parts: int = 20,
    hull: bool = True,
    inside: bool = True,
    together: int | None = None,
    servers: Data = (1.0,),
) -> FloorChoice:
    """Replays past workloads under many price floors and chooses the best.

    Formula: `argmax over L of mean over past workloads of their total utility under PD-ORS`.

    Args:
        past: Workloads of one shape, `(jobs, machines)` each.
        n_slots: T.
        lows: float[L], floors to try; None for half decades from 1e-7 to 1e-2 of the highest price.
        parts, hull, inside: As in `pd_ors`.
        together: Episodes in one `vmap`; None for at most 64.
        servers: As in `pd_ors`.

    Returns:
        The floor for `pd_ors(low=...)`, and what each floor earned.

    Raises:
        TypeError: If `past` is no sequence of pairs, or another argument of another kind.
        ValueError: If there are no workloads, their shapes differ, a floor is not positive, or
            there are 100 000 replays or more.

    Example:
        >>> from asyncjax import cluster
        >>> past = [cluster.workloads.tiny(seed) for seed in range(2)]
        >>> choice = cluster.choose_floor(past, n_slots=4, parts=8, lows=[1e-6, 1e-3, 100.0])
        >>> choice.utilities.shape, bool(choice.low < 100)
        ((3, 2), True)
    """
    instance("past", past, Sequence, "a sequence of pairs (jobs, machines)")
    for one in past:
        if not isinstance(one, tuple | list) or len(one) != 2:
            raise TypeError(
                f"past must be a sequence of pairs (jobs, machines), got {shown(one)} in it"
            )
    if not past:
        raise ValueError("past must hold at least one workload, got none")
    episodes = [prepare(*one, n_slots=n_slots, parts=parts, servers=servers) for one in past]
    shapes = {tuple(np.shape(leaf) for leaf in jax.tree.leaves(one)) for one in episodes}
    if len(shapes) > 1:
        raise ValueError(f"past must hold workloads of one shape, got {len(shapes)} shapes")
    if lows is None:
        lows = max(float(one.high.max()) for one in episodes) * 10.0**_HALF_DECADES
    floors = within("lows", host_floats("lows", lows), above=0)
    if floors.ndim != 1 or floors.size == 0:
        raise ValueError(f"lows must be positive numbers, at least one, got {shown(lows)}")
    if floors.size * len(past) >= _MOST_REPLAYS:
        raise ValueError(
            f"lows must make fewer than {_MOST_REPLAYS} replays of {len(past)} workloads, got"
            f" {floors.size}"
        )
    every = [pd_ors_settings(*one, n_slots=n_slots, hull=hull, inside=inside) for one in past]
    settings = max(every, key=lambda one: one.hull_points)  # serves all
    columns = episodes[0].jobs.crew.workers_across.shape[1]
    settings = settings._replace(choices=columns // parts)
    grid = [one._replace(low=np.asarray(low, one.low.dtype)) for low in floors for one in episodes]
    width = min(_TOGETHER, len(grid)) if together is None else whole("together", together)
    found = _study(grid, settings, width)
    if any(np.asarray(one.overflow).any() for one in found):
        found = _study(grid, settings._replace(pieces=settings.hull_points), width)
    earned = [
        total_utility(schedule_of(one), past[index % len(past)][0])
        for index, one in enumerate(found)
    ]
    utilities = np.reshape(earned, (len(floors), len(past)))
    order = np.lexsort((floors, -utilities.mean(1)))
    return FloorChoice(float(floors[order[0]]), floors, utilities)


def _study(grid: list[Episode], settings: PdOrsSettings, width: int) -> list[Allocation]:
    """Plays episodes, so many at once."""
    if width == 1:
        return [pd_ors_program(one, settings, None, 1.0) for one in grid]
    found = []
    for first in range(0, len(grid), width):
        some = grid[first : first + width]
        some += some[-1:] * (width - len(some))  # one shape, one program
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *some)
        together = jax.tree.map(np.asarray, _together(stacked, settings))
        found += [jax.tree.map(lambda leaf, i=i: leaf[i], together) for i in range(width)]
    return found[: len(grid)]


@partial(jax.jit, static_argnames=("settings",))
def _together(episodes: Episode, settings: PdOrsSettings) -> Allocation:
    """Plays episodes with a leading axis in one program."""
    return jax.vmap(partial(pd_ors_episode, settings=settings))(episodes)
