"""What can be chosen for a placed job: schedule, whom to ask, steps, rows, whom to wait for.

Every arm has a step. One that waits has the number k of workers that it waits for; where the link
is the limit each has a load, the rows of a gradient, beside it. All are tuned.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import optax

from asyncjax import steps
from asyncjax.study.search import Knob, log_range
from experiments.joint.arms import COORDINATED, DRAWN, LEARNED, RESHUFFLED
from experiments.joint.placed.sites import DRF, GOODPUT, PD_ORS, SHARDS, Place

PURE, CREW, TABLE, ROUNDS = "pure", "shuffled over the crew", "table", "rounds"
RESCALED, CONSTANT, ADAPTIVE = "Rescaled", "constant", "Adaptive 1"
K, LOAD, STEP = "k", "load", "step"
LONGEST = 8192  # delays that Adaptive 1 tells apart
COUNTS, LOADS = (2, 4, SHARDS), (1, 4, 8)


@dataclass(frozen=True)
class Arm:
    """A choice at every place.

    Attributes:
        name: In tables; of an arm with one part replaced, which.
        scheduler: Who places the job.
        asked: Whom the server asks and waits for.
        steps: How long they are.
        rows: In which order a shard's rows are taken.
        knobs: What is tuned besides the step.
        counts: The numbers k among which it is tuned.
    """

    name: str
    scheduler: str = PD_ORS
    asked: str = PURE
    steps: str = RESCALED
    rows: str = LEARNED
    knobs: tuple[str, ...] = ()
    counts: tuple[int, ...] = COUNTS

    @property
    def space(self) -> dict[str, Knob]:
        """The knobs with their values."""
        low = 2.0 ** (-5 if self.asked == ROUNDS else -8)
        found = {STEP: log_range(low, 32 * low, 6)}
        if K in self.knobs:
            found[K] = Knob(self.counts, choice=True)
        if LOAD in self.knobs:
            found[LOAD] = Knob(LOADS, choice=True)
        return found


FULL = Arm("full set")
PLAIN = Arm("all plain", DRF, steps=CONSTANT, rows=DRAWN)
COMPUTING = (
    FULL,
    Arm("schedule: DRF", DRF),
    Arm("schedule: marginal goodput", GOODPUT),
    Arm("steps: constant", steps=CONSTANT),
    Arm("steps: Adaptive 1", steps=ADAPTIVE),
    Arm("steps: constant, of a table", asked=TABLE, steps=CONSTANT),
    Arm("dispatch: shuffled over the crew", asked=CREW, steps=CONSTANT),
    Arm("rows: reshuffled", rows=RESHUFFLED),
    Arm("rows: drawn", rows=DRAWN),
    Arm("waiting: fastest (k, load)", PD_ORS, ROUNDS, CONSTANT, COORDINATED, (K, LOAD)),
    replace(PLAIN, name="all plain, PD-ORS", scheduler=PD_ORS),
    PLAIN,
)
# Waiting for four leaves a gap above a tenth on tuning jobs at any step: fewer are not tried.
WAITING = Arm(FULL.name, PD_ORS, ROUNDS, CONSTANT, COORDINATED, (K, LOAD), (4, SHARDS))
LINKED = (
    WAITING,
    replace(WAITING, name="schedule: DRF", scheduler=DRF),
    replace(WAITING, name="schedule: marginal goodput", scheduler=GOODPUT),
    replace(WAITING, name="waiting: fastest k, load 1", knobs=(K,)),
    replace(WAITING, name="waiting: for all, load 1", knobs=()),
    Arm("waiting: nobody, load tuned", knobs=(LOAD,)),
    Arm("waiting: nobody, load 1"),
    replace(WAITING, name="rows: reshuffled", rows=RESHUFFLED),
    replace(WAITING, name="rows: drawn", rows=DRAWN),
    replace(PLAIN, name="all plain, PD-ORS", scheduler=PD_ORS),
    PLAIN,
)
PLACES = {
    Place(
        "computing is the limit", "exchange is a fifth of the time of a sample", exchange=0.2
    ): COMPUTING,
    Place("the link is the limit", "exchange is nine tenths of it", exchange=0.9): LINKED,
}


def setting_of(arm: Arm, knobs: dict[str, Any]) -> tuple[int, int]:
    """How many gradients a step waits for, and the rows of each."""
    count = knobs.get(K, SHARDS) if arm.asked == ROUNDS else 1
    return int(count), int(knobs.get(LOAD, 1))


@lru_cache
def optimizer_of(kind: str) -> optax.GradientTransformationExtraArgs:
    """SGD whose state holds its `step_size`; the same object for all runs, which share programs."""

    def made(step_size: Any) -> optax.GradientTransformation:
        if kind == RESCALED:
            return optax.chain(steps.scale_by_measured_time(SHARDS), optax.sgd(step_size))
        if kind == ADAPTIVE:
            rule = steps.scale_by_adaptive_1(step_size, max_delay=LONGEST)
            return optax.chain(rule, optax.scale(-1.0))
        return optax.sgd(step_size)

    injected: Any = optax.inject_hyperparams(made)
    return injected(step_size=1.0)
