"""Runs of several instances in one program: an instance a lane, a trace is data.

What the runs of a call may differ in are the instance, the trace and the noise; what they share is
how many updates they make, and one number that the optimizer is made of, such as a step size.
Another call with another number, or with other traces of like sizes, compiles nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from asyncjax import problems, simulation, traces
from asyncjax.simulation.waves import ceil_to_grid
from experiments.common.side_by_side import moved, raveled, side_by_side


@dataclass(frozen=True, eq=False)
class Field:
    """Problems of several instances, each by itself and side by side."""

    parts: tuple[problems.Problem, ...]
    joined: problems.Problem

    @property
    def n_workers(self) -> int:
        """Of an instance."""
        n = self.parts[0].n_workers
        assert n is not None
        return n


def field_of(parts: Sequence[problems.Problem]) -> Field:
    """Problems that differ in rows, shards and start alone."""
    return Field(tuple(parts), side_by_side(parts))


@dataclass(frozen=True)
class Lane:
    """One run: which instance, its trace, the key of its noise."""

    number: int
    trace: traces.EventTrace
    key: jax.Array


class Ran(NamedTuple):
    """Runs at their records: models float[K, R, d] and the columns of the records, [K, R]."""

    models: np.ndarray
    time: np.ndarray  # float64
    computed: np.ndarray  # int64, gradients computed so far, also those never used
    version: np.ndarray  # int32


def roomy(n_workers: int, gradients: float) -> Callable[[simulation.Sizes], simulation.Sizes]:
    """Sizes with room for so many gradients a trace, at least, so that calls share a compilation.

    Args:
        n_workers: Of an instance.
        gradients: Of a trace.
    """

    def sizes(needed: simulation.Sizes) -> simulation.Sizes:
        return replace(
            needed,
            waves=max(needed.waves, ceil_to_grid(int(gradients))),
            updates=max(needed.updates, ceil_to_grid(int(gradients))),
            slots=max(needed.slots, ceil_to_grid(3 * n_workers)),
            directions=max(needed.directions, 8) if needed.runs == 0 else needed.directions,
            group=max(needed.group, ceil_to_grid(8 * n_workers)),
            single=False if needed.runs == 0 else needed.single,
        )

    return sizes


def replayed(
    field: Field,
    lanes: Sequence[Lane],
    optimizer: Callable[[Any], optax.GradientTransformation],
    number: float,
    *,
    records: int,
    gradients: float = 0.0,
    sizes: Callable[[simulation.Sizes], simulation.Sizes] | None = None,
    width: int | None = 1,
) -> Ran:
    """Runs all lanes.

    Args:
        field: The problems.
        lanes: Their traces make equally many updates, a multiple of the records.
        optimizer: Makes one from the number.
        number: Such as a step size.
        records: Models that are kept, R.
        gradients: Room for so many a trace, at least, so that calls share a compilation.
        sizes: Other room; None: `roomy` for the gradients.
        width: As in `simulation.sweep`.
    """
    runs = simulation.sweep(
        replace(field.joined, metrics_of=(("model", raveled),)),
        [moved(lane.trace, lane.number, field.n_workers) for lane in lanes],
        optimizer,
        [number],
        keys=jnp.stack([lane.key for lane in lanes]),
        record_every=lanes[0].trace.n_updates // records,
        width=width,
        sizes=sizes or roomy(field.n_workers, gradients),
    ).records
    starts = [ravel_pytree(field.parts[lane.number].params)[0] for lane in lanes]
    models = np.asarray(runs.metrics["model"])[:, 0] + np.stack(starts)[:, None]
    columns = runs.time, runs.computed, runs.version  # one run alone has them without its axis
    return Ran(models, *(np.asarray(column).reshape(len(lanes), -1) for column in columns))
