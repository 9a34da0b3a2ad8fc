"""The ways of training: who is asked, how long steps are, in which order rows are taken.

*Rescaled* steps (in proportion to a worker's measured time) remove the bias to fast workers. Rows
are *drawn* with replacement, *reshuffled* every epoch of a worker, or in an order learned from
gradients: *CD-GraB* (one balance) in rounds and *GraB* (one a worker) out of step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import optax

from asyncjax import orders, steps
from asyncjax.study.search import Knob, choices, log_range
from experiments.common.replays import with_step

SYNCHRONOUS, PURE, SHUFFLED = "synchronous", "pure", "shuffled"
CREW, TABLE, ROUNDS = "shuffled over the crew", "table", "rounds"
DRAWN, RESHUFFLED, LEARNED, COORDINATED = "drawn", "reshuffled", "GraB", "CD-GraB"
RESCALED, CONSTANT, ADAPTIVE = "Rescaled", "constant", "Adaptive 1"
PD_ORS, DRF, GOODPUT = "PD-ORS", "DRF", "marginal goodput"
K, LOAD, STEP = "k", "load", "step"  # knobs
LONGEST = 8192  # delays that Adaptive 1 tells apart
SHARDS = 8  # of a placed job
COUNTS, LOADS = (2, 4, SHARDS), (1, 4, 8)


@dataclass(frozen=True)
class Arm:
    """A way of training.

    Attributes:
        asked: Whom the server asks and waits for.
        rows: How a worker takes its rows.
        steps: How long they are.
        label: In tables; of a placed job with one part replaced, which.
        scheduler: Who places the job, where jobs are placed.
        knobs: What is tuned besides the step: of one that waits the number k of workers that it
            waits for, and the load, the rows of a gradient.
        counts: The numbers k among which it is tuned.
    """

    asked: str
    rows: str
    steps: str = CONSTANT
    label: str = ""
    scheduler: str = PD_ORS
    knobs: tuple[str, ...] = ()
    counts: tuple[int, ...] = COUNTS

    @property
    def name(self) -> str:
        """In tables: who is asked, and which rows."""
        asked = RESCALED if self.steps == RESCALED else self.asked
        return self.label or f"{asked}, {self.rows}"

    @property
    def space(self) -> dict[str, Knob]:
        """The knobs with their values."""
        low = 2.0 ** (-5 if self.asked in (SYNCHRONOUS, ROUNDS) else -8 if self.label else -7)
        rest = {K: choices(*self.counts), LOAD: choices(*LOADS)}
        return {STEP: log_range(low, 32 * low, 6)} | {name: rest[name] for name in self.knobs}

    def setting(self, knobs: Mapping[str, Any]) -> tuple[int, int]:
        """How many gradients a step waits for, and the load of each."""
        count = knobs.get(K, SHARDS) if self.asked == ROUNDS else 1
        return int(count), int(knobs.get(LOAD, 1))


IN_ROUNDS = tuple(Arm(SYNCHRONOUS, rows) for rows in (DRAWN, RESHUFFLED, COORDINATED))
BIASED = tuple(Arm(PURE, rows) for rows in (DRAWN, RESHUFFLED, LEARNED))
UNBIASED = tuple(Arm(PURE, rows, RESCALED) for rows in (DRAWN, RESHUFFLED, LEARNED))
ARMS = (*IN_ROUNDS, *BIASED, *UNBIASED, Arm(SHUFFLED, RESHUFFLED), Arm(SHUFFLED, LEARNED))
JOINT = UNBIASED[-1]
# What takes one of the two parts of JOINT alone, or none.
SINGLE = (*IN_ROUNDS, *BIASED, *UNBIASED[:-1])
# With rows in order of epochs: nobody gains by drawing them.
MAPPED = tuple(arm for arm in (*SINGLE, JOINT) if arm.rows != DRAWN)

FULL = Arm(PURE, LEARNED, RESCALED, "full set")
PLAIN = Arm(PURE, DRAWN, CONSTANT, "all plain", DRF)
COMPUTING = (
    FULL,
    replace(FULL, label="schedule: DRF", scheduler=DRF),
    replace(FULL, label="schedule: marginal goodput", scheduler=GOODPUT),
    replace(FULL, label="steps: constant", steps=CONSTANT),
    replace(FULL, label="steps: Adaptive 1", steps=ADAPTIVE),
    replace(FULL, label="steps: constant, of a table", asked=TABLE, steps=CONSTANT),
    replace(FULL, label="dispatch: shuffled over the crew", asked=CREW, steps=CONSTANT),
    replace(FULL, label="rows: reshuffled", rows=RESHUFFLED),
    replace(FULL, label="rows: drawn", rows=DRAWN),
    Arm(ROUNDS, COORDINATED, CONSTANT, "waiting: fastest (k, load)", knobs=(K, LOAD)),
    replace(PLAIN, label="all plain, PD-ORS", scheduler=PD_ORS),
    PLAIN,
)
# Waiting for four leaves a gap above a tenth on tuning jobs at any step: fewer are not tried.
WAITING = Arm(ROUNDS, COORDINATED, CONSTANT, FULL.name, knobs=(K, LOAD), counts=(4, SHARDS))
LINKED = (
    WAITING,
    replace(WAITING, label="schedule: DRF", scheduler=DRF),
    replace(WAITING, label="schedule: marginal goodput", scheduler=GOODPUT),
    replace(WAITING, label="waiting: fastest k, load 1", knobs=(K,)),
    replace(WAITING, label="waiting: for all, load 1", knobs=()),
    replace(FULL, label="waiting: nobody, load tuned", knobs=(LOAD,)),
    replace(FULL, label="waiting: nobody, load 1"),
    replace(WAITING, label="rows: reshuffled", rows=RESHUFFLED),
    replace(WAITING, label="rows: drawn", rows=DRAWN),
    replace(PLAIN, label="all plain, PD-ORS", scheduler=PD_ORS),
    PLAIN,
)


@lru_cache
def optimizer_of(kind: str, n_workers: int) -> optax.GradientTransformationExtraArgs:
    """SGD whose state holds its `step_size`; the same object for all runs, which share programs."""

    def made(step_size: Any) -> optax.GradientTransformation:
        if kind == RESCALED:
            return optax.chain(steps.scale_by_measured_time(n_workers), optax.sgd(step_size))
        if kind == ADAPTIVE:
            rule = steps.scale_by_adaptive_1(step_size, max_delay=LONGEST)
            return optax.chain(rule, optax.scale(-1.0))
        return optax.sgd(step_size)

    return with_step(made)


@lru_cache
def order_of(rows: str, n_workers: int, units: int, dim: int) -> orders.Order | None:
    """The order in which workers take their units; None: drawn."""
    if rows == DRAWN:
        return None
    if rows == RESHUFFLED:
        return orders.reshuffled(units, n_workers=n_workers)
    learned: dict[str, Callable[..., orders.Order]] = {
        LEARNED: orders.independent,
        COORDINATED: orders.coordinated,
    }
    return learned[rows](n_workers, units, dim)
