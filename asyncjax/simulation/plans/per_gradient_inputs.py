"""Entering: which gradients are taken together by each update, one after the other.

Where every gradient is treated by itself before it is summed, each needs a row of its own from the
wave that computes it to the update that takes it. Rows are allocated like registers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax.simulation.plans.extras import Extras
from asyncjax.simulation.plans.plan import ReplayPlan
from asyncjax.simulation.plans.slots import allocate


class PerGradientInputs(NamedTuple):
    """The gradients of every update, at most B, in the order of their arrival."""

    count: Any  # int32[T]
    row: Any  # int32[T, B], where the gradient is kept; Q: padding
    slot: Any  # int32[T, B], where the model is that it was taken at; S: padding
    lane: Any  # int32[T, B], wave * L + lane, where its loss is
    weight: Any  # float[T, B], its factor in the direction
    extras: Extras  # [T, B] each, of the arrival


def places(plan: ReplayPlan) -> tuple[np.ndarray, np.ndarray]:
    """The gradients that enter, by update and then by arrival, and the place of each in its update.

    Both int64[N]; the first are places in the columns of the gradients.
    """
    own = plan.gradients
    order = np.lexsort((own.arrival, own.update))
    order = order[own.enters[order]]
    update = own.update[order]
    return order, np.arange(len(order)) - np.searchsorted(update, update)


def rows_of(plan: ReplayPlan) -> tuple[np.ndarray, int]:
    """The row of every gradient that enters, int64[G], and how many rows there are."""
    waves, own = plan.waves, plan.gradients
    order = np.argsort(waves.gradient_wave, kind="stable")
    order = order[own.enters[order]]
    row, ends = np.zeros(len(own.arrival), np.int64), waves.update_wave[own.update[order]]
    row[order], count = allocate(waves.gradient_wave[order], ends)
    return row, count


def most_entering(plan: ReplayPlan) -> int:
    """Gradients that an update takes, at most."""
    return int(plan.gradients.group_size.max())


def entering_of(plan: ReplayPlan, most: int, n_rows: int, version_slots: int) -> PerGradientInputs:
    """The columns of a plan; `most` B, `n_rows` Q, `version_slots` S."""
    own, trace, (order, place) = plan.gradients, plan.trace, places(plan)
    at = (own.update[order], place)
    arrival = own.arrival[order]
    slot = np.where(plan.version_slot < 0, version_slots, plan.version_slot)
    lane = plan.waves.gradient_wave * plan.width + plan.waves.gradient_lane
    extras = Extras(
        delay=own.update[order] - own.read_version[order],
        worker=np.asarray(trace.worker)[arrival],
        job=np.asarray(trace.job)[arrival],
        time=np.asarray(trace.time)[arrival],
    )

    def column(values: np.ndarray, fill: int = 0) -> np.ndarray:
        kind = np.int32 if values.dtype.kind == "i" else values.dtype
        out = np.full((plan.n_updates, most), fill, kind)
        out[at] = values
        return out

    return PerGradientInputs(
        count=own.group_size.astype(np.int32),
        row=column(rows_of(plan)[0][order], n_rows),
        slot=column(slot[own.read_version[order]], version_slots),
        lane=column(lane[order]),
        weight=column(plan.weight[order]),
        extras=jax.tree.map(column, extras),
    )
