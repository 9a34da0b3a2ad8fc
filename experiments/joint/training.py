"""The ways of training, and what they do on worlds: tuned for each target, run on two sets.

*Rescaled* steps (in proportion to a worker's measured time) remove the bias to fast workers. Rows
are *drawn* with replacement, *reshuffled* every epoch of a worker, or in an order learned from
gradients: *CD-GraB* (one balance) in rounds and *GraB* (one a worker) out of step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import orders, problems, results, simulation, steps, traces
from asyncjax.study.protocol import SETS, TUNING_OF, Seeds
from asyncjax.study.result import Result
from asyncjax.study.search import Knob, Settings as Setting, Tuned, choices, log_range, tune
from experiments.common import sets
from experiments.common.kept_rows import once
from experiments.common.replays import losses_of, recorded, with_step
from experiments.joint.worlds import World

SYNCHRONOUS, PURE, SHUFFLED = "synchronous", "pure", "shuffled"
CREW, TABLE, ROUNDS = "shuffled over the crew", "table", "rounds"
DRAWN, RESHUFFLED, LEARNED, COORDINATED = "drawn", "reshuffled", "GraB", "CD-GraB"
RESCALED, CONSTANT, ADAPTIVE = "Rescaled", "constant", "Adaptive 1"
PD_ORS, DRF, GOODPUT = "PD-ORS", "DRF", "marginal goodput"
K, LOAD, STEP = "k", "load", "step"  # knobs
LONGEST = 8192  # delays that Adaptive 1 tells apart
SHARDS = 8  # of a placed job
COUNTS, LOADS = (2, 4, SHARDS), (1, 4, 8)
LATE = 0.1  # share of the horizon, at its end, whose mean is the last gap
WORST = 1e6  # times the first gap: a run that diverged
END = "end"  # tuned for the last gap, and not for the time to a level


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

    def make(step_size: Any) -> optax.GradientTransformation:
        if kind == ADAPTIVE:
            rule = steps.scale_by_adaptive_1(step_size, max_delay=LONGEST)
            return optax.chain(rule, optax.scale(-1.0))
        sgd = optax.sgd(step_size)
        return (
            optax.chain(steps.scale_by_measured_time(n_workers), sgd) if kind == RESCALED else sgd
        )

    return with_step(make)


@lru_cache
def order_of(rows: str, n_workers: int, units: int, dim: int) -> orders.Order | None:
    """The order in which workers take their units; None: drawn."""
    if rows == RESHUFFLED:
        return orders.reshuffled(units, n_workers=n_workers)
    if rows == LEARNED:
        return orders.independent(n_workers, units, dim)
    return orders.coordinated(n_workers, units, dim) if rows == COORDINATED else None


@dataclass(frozen=True)
class Settings:
    """What is run of any part."""

    output: Path = Path("output/joint")
    seed: int = 0  # of each part the base of all seeds is another, so that instances are its own
    tuning_instances: int = 10  # of each set
    instances: int = 10  # of each set
    trials: int = 5  # of an arm in a round
    rounds: tuple[int, int] = (2, 5)
    records: int = 400  # of a curve
    commit: bool = False  # also write the rows where committed ones are
    sets: tuple[str, ...] = ("A", "B")
    first: ClassVar[int] = 0

    @property
    def base(self) -> int:
        """Base of all seeds."""
        return self.seed + self.first

    @property
    def roles(self) -> dict[str, str]:
        """The role of each set."""
        return {letter: SETS[letter] for letter in self.sets}

    @property
    def drawn(self) -> list[Seeds]:
        """The instances of each set, and those to tune each on."""
        return list(sets.drawn(replace(self, seed=self.base), self.roles.values()))


def in_turn(
    settings: Settings, makers: Mapping[str, Callable[[], pd.DataFrame]], facts: Mapping[str, Any]
) -> Result:
    """The rows of all that is run, by its name, and facts; what was run before is read."""
    found = []
    for name, make in makers.items():
        print(name, end=" ", flush=True)
        found.append(once(settings.output / "cells", make))
        print(flush=True)
    rows = pd.concat(found, ignore_index=True)
    told = {"tuning": settings.tuning_instances, "tuned apart": True, **facts}
    return Result(rows, "value", told, settings.seed, cut=("value",))


@dataclass(frozen=True, eq=False)
class Curve:
    """What an arm did in a world with one setting."""

    time: np.ndarray  # float64[R], up to the horizon
    gap: np.ndarray  # float64[R], share of the way that is left: 1 at the start, 0 at the least

    @property
    def last(self) -> float:
        """Mean over the last tenth of the horizon."""
        late = self.gap[self.time > (1 - LATE) * self.time[-1]]
        return float(np.cumsum(late)[-1] / len(late))

    def reached(self, goal: str) -> float:
        """The last gap; or the time from which on the run has a level behind it; inf: never."""
        if goal == END:
            return self.last
        return float(results.time_to_target(self.time, self.gap, 1 - float(goal), stays=True))

    def score(self, goal: str, horizon: float) -> float:
        """What tuning makes small.

        Formula: `log(min(T, H) / H) + max(0, log(last gap / target))`, T the time to a level; or,
        for the end, the log of the last gap.
        """
        last = np.log(max(self.last, 1e-12))
        if goal == END:
            return last
        missed = last - np.log(1 - float(goal))
        return np.log(min(self.reached(goal), horizon) / horizon) + max(missed, 0.0)


@dataclass(frozen=True, eq=False)
class Training:
    """All runs of some worlds, each made once; runs of an arm share a program.

    Attributes:
        worlds: All that will ever be run.
        plan: `(arm, setting, number) -> plan` of world `number`; all of an arm's are alike.
        until: `(arm, number) -> time` that is watched.
        horizon: At which times are cut.
        lanes: Step sizes that are run side by side, whatever is asked for.
    """

    worlds: Sequence[World]
    plan: Callable[[Arm, tuple[int, int], int], simulation.ReplayPlan]
    until: Callable[[Arm, int], float]
    horizon: float
    lanes: int
    _known: dict[Any, Any] = field(default_factory=dict, init=False)

    def curves(self, arm: Arm, number: int, tried: Sequence[Setting]) -> list[Curve]:
        """What an arm does in world `number` with each of some settings; each is run once."""
        asked = [(arm, number, arm.setting(knobs), float(knobs[STEP])) for knobs in tried]
        new: dict[tuple[int, int], list[float]] = {}
        for *_, setting, step in (one for one in dict.fromkeys(asked) if one not in self._known):
            new.setdefault(setting, []).append(step)
        for setting, sizes in new.items():
            for first in range(0, len(sizes), self.lanes):
                some = sizes[first : first + self.lanes]
                filled = [*some, *some[-1:] * (self.lanes - len(some))]
                curves = zip(some, self._run(arm, number, setting, filled), strict=False)
                self._known.update({(arm, number, setting, s): curve for s, curve in curves})
        return [self._known[one] for one in asked]

    def _run(
        self, arm: Arm, number: int, setting: tuple[int, int], sizes: Sequence[float]
    ) -> list[Curve]:
        """The curves of several step sizes."""
        world, plan = self.worlds[number], self.plan(arm, setting, number)
        scene, load, is_drawn = world.scene, setting[1], arm.rows == DRAWN
        problem = problem_of(world, is_drawn, load)
        dim = sum(leaf.size for leaf in jax.tree.leaves(problem.params))
        loss = losses_of(
            problem,
            plan,
            optimizer_of(arm.steps, scene.n_workers),
            sizes,
            order=order_of(arm.rows, scene.n_workers, scene.units // load, dim),
            key=jax.random.key(world.noise),
            waves=False,
        )
        gaps = (loss - world.least) / (world.start - world.least)
        gaps = np.where(np.isfinite(gaps), np.minimum(gaps, WORST), WORST)
        time = recorded(plan)
        time = time[time <= self.until(arm, number)]
        return [Curve(time, gap[: len(time)]) for gap in gaps]


@lru_cache(maxsize=512)
def problem_of(world: World, is_drawn: bool, load: int) -> problems.Problem:
    """What a world trains, with gradients of so many units."""
    batch = problems.uniform if is_drawn else problems.cyclic
    return world.make(batch(world.scene.batch * load))


def planned(
    several: Sequence[traces.EventTrace], most: int, records: int
) -> tuple[simulation.ReplayPlan, ...]:
    """Plans of traces with about so many records among the first `most` updates."""
    every = max(1, most // records)
    return tuple(simulation.plan(trace, record_every=every, width=1) for trace in several)


def measured(
    settings: Settings,
    scene: str,
    runs: Training,
    goals: Sequence[str],
    gradients: Mapping[Arm, int],
    beside: Callable[[Arm, int, Mapping[str, Any]], Mapping[str, Any]],
) -> pd.DataFrame:
    """Tunes all arms for each goal and set, and runs them: a row an instance, arm and goal.

    Args:
        settings: Of the part.
        scene: Its name.
        runs: Of the worlds of `settings.drawn`.
        goals: Levels, and `END`, each with settings of its own.
        gradients: By arm, of a trial on an instance.
        beside: `(arm, number, row) -> columns` of world `number`.
    """
    horizon = runs.horizon
    spaces = {f"{arm.name} | {goal}": (arm, goal) for goal in goals for arm in gradients}

    def tuned(role: str) -> dict[str, Tuned]:
        places = sets.places(settings.drawn, TUNING_OF[role])

        def evaluate(name: str, tried: Sequence[Setting], _: int) -> list[float]:
            arm, goal = spaces[name]
            print(".", end="", flush=True)
            each = [runs.curves(arm, number, tried) for number in places]
            return np.mean(
                [[one.score(goal, horizon) for one in group] for group in each], 0
            ).tolist()

        return tune(
            {name: arm.space for name, (arm, _) in spaces.items()},
            evaluate,
            trials=settings.trials,
            gradients=1,  # as many as there is time for
            seed=settings.base,
            role=TUNING_OF[role],
            rounds=settings.rounds,
        )

    by_set, rows = {letter: tuned(role) for letter, role in settings.roles.items()}, []
    for arm, (letter, role) in product(gradients, settings.roles.items()):
        found = {goal: by_set[letter][f"{arm.name} | {goal}"] for goal in goals}
        best = [outcome.best.settings for outcome in found.values()]
        for instance, number in enumerate(sets.places(settings.drawn, role)):
            curves = runs.curves(arm, number, best)
            for (goal, outcome), curve in zip(found.items(), curves, strict=True):
                spent = gradients[arm] * settings.tuning_instances * len(outcome.trials)
                row = {
                    "scene": scene,
                    "set": letter,
                    "instance": instance,
                    "method": arm.name,
                    "tuned_for": goal,
                    **outcome.best.settings,
                    "value": curve.reached(goal),
                    "horizon": np.inf if goal == END else horizon,
                    "trials": len(outcome.trials),
                    "tuning_gradients": spent,
                    "at_edge": bool(outcome.edges),
                }
                rows.append(row | dict(beside(arm, number, row)))
    return pd.DataFrame(rows)
