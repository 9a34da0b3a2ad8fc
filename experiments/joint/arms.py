"""The ways of training: who is asked, whether steps weigh speed out, in which order rows are taken.

Three ways to ask (synchronous rounds, whoever delivers, shuffled), with the second also *Rescaled*
(steps in proportion to a worker's measured time, which removes the bias to fast workers); three
ways to take rows: *drawn* with replacement, *reshuffled* every epoch of a worker, and in an order
learned from gradients, *CD-GraB* (one balance) in rounds and *GraB* (one a worker) out of step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import optax

from asyncjax import clocks, orders, steps, traces

DRAWN, RESHUFFLED, LEARNED, COORDINATED = "drawn", "reshuffled", "GraB", "CD-GraB"


@dataclass(frozen=True)
class Arm:
    """A way of training.

    Attributes:
        asked: "synchronous", "pure" or "shuffled".
        rows: How a worker takes its rows, one of the words above.
        rescaled: Whether steps weigh the workers' speeds out.
    """

    asked: str
    rows: str
    rescaled: bool = False

    @property
    def name(self) -> str:
        """Who is asked, and which rows."""
        return f"{'Rescaled' if self.rescaled else self.asked}, {self.rows}"

    def trace(
        self, clock: clocks.Clock, key: jax.Array, *, until: float | None, n_updates: int | None
    ) -> traces.EventTrace:
        """The trace on a clock, up to a time or with so many updates."""
        if self.asked == "synchronous":
            return traces.synchronous(
                clock, k=clock.n_workers, until=until, n_updates=n_updates, key=key
            )
        dispatch = traces.shuffled() if self.asked == "shuffled" else traces.to_deliverer()
        return traces.asynchronous(
            clock, dispatch=dispatch, until=until, n_updates=n_updates, key=key
        )


SYNCHRONOUS = tuple(Arm("synchronous", rows) for rows in (DRAWN, RESHUFFLED, COORDINATED))
PURE = tuple(Arm("pure", rows) for rows in (DRAWN, RESHUFFLED, LEARNED))
RESCALED = tuple(Arm("pure", rows, True) for rows in (DRAWN, RESHUFFLED, LEARNED))
SHUFFLED = tuple(Arm("shuffled", rows) for rows in (RESHUFFLED, LEARNED))
ARMS = (*SYNCHRONOUS, *PURE, *RESCALED, *SHUFFLED)
JOINT = RESCALED[-1]
# What takes one of the two parts of JOINT alone, or none.
SINGLE = (*SYNCHRONOUS, *PURE, *RESCALED[:-1])


@lru_cache
def optimizer_of(arm: Arm, n_workers: int) -> optax.GradientTransformationExtraArgs:
    """SGD whose state holds its `step_size`; the same object for all runs, which share programs."""

    def made(step_size: Any) -> optax.GradientTransformation:
        if arm.rescaled:
            return optax.chain(steps.scale_by_measured_time(n_workers), optax.sgd(step_size))
        return optax.sgd(step_size)

    injected: Any = optax.inject_hyperparams(made)
    return injected(step_size=1.0)


@lru_cache
def order_of(rows: str, n_workers: int, units: int, dim: int) -> orders.Order | None:
    """The order in which workers take their units; None: drawn."""
    learned: dict[str, Callable[..., orders.Order]] = {
        LEARNED: orders.independent,
        COORDINATED: orders.coordinated,
    }
    if rows == DRAWN:
        return None
    if rows == RESHUFFLED:
        return orders.reshuffled(units, n_workers=n_workers)
    return learned[rows](n_workers, units, dim)
