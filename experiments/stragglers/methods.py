"""Ways of choosing (k, load), each with a small space of all of its knobs.

    plans           step, which floor the bound has, how convex the loss is taken for
    fixed pair      step, k, load
    wider family    step, and what each method has: thresholds, burn-in, patience, how k grows,
                    deadlines, redundancy

The knob `step` is a factor of the step size for which the plans' constants were made.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import numpy as np

from asyncjax import stragglers
from asyncjax.stragglers.plans.planning import Goal, Menu, cheapest
from asyncjax.study.search import Knob, Settings, log_range
from experiments.stragglers.tasks import Task, bound_of

MOST_STAGES = 128
STAGES = 8  # of the tests of stationarity
COLUMNS = (
    *("k", "load", "start_error", "end_error", "start_time", "end_time"),
    *("completion", "floor"),
)
STEP = log_range(1.0, 32.0, 6)
CONVEXITY = Knob((0.5, 1.0, 2.0, 4.0))
FLOOR = Knob(("bound", "quadratic"), choice=True)
CONFIDENCE = Knob((0.003, 0.01, 0.03), growth=3.0)


@dataclass(frozen=True, eq=False)
class Known:
    """What a plan is made from, apart from the constants of the loss.

    Attributes:
        times: Response times as they are believed.
        loads: Samples that may be asked, ascending to a whole shard.
        least_samples: Of an update.
    """

    times: stragglers.Response
    loads: tuple[int, ...]
    least_samples: int

    @cached_property
    def completion(self) -> np.ndarray:
        """Time of an update by load and k, float64[B, n]."""
        return stragglers.completion_table(self.times, np.asarray(self.loads, np.float64))

    def plan(self, bound: stragglers.ErrorBound, *, adapts_load: bool) -> stragglers.Plan:
        """The stages of `stragglers.plan` with no target: they go on to the least floor."""
        n = self.times.n_workers
        rows = np.arange(len(self.loads))[slice(None) if adapts_load else slice(-1, None)]
        k, row = (grid.ravel() for grid in np.meshgrid(np.arange(1, n + 1), rows, indexing="ij"))
        load = np.asarray(self.loads, np.float64)[row]
        kept = (k * load >= self.least_samples) & np.isfinite(self.completion[row, k - 1])
        k, load, row = k[kept], load[kept], row[kept]
        floor = np.asarray(stragglers.error_floor(bound, k, load), np.float64)
        menu = Menu(k, load, self.completion[row, k - 1], floor)
        # A step so long that every floor is above the first error: the last stages are left.
        least = float(floor.min())
        error = bound.initial_error if bound.initial_error > least else 2.0 * least
        goal = Goal(replace(bound, initial_error=error), 0.0, n)
        return cheapest(menu, menu.completion, goal)


@dataclass(frozen=True, eq=False)
class Scene:
    """An instance as methods meet it.

    Attributes:
        made: What is trained, with its constants.
        known: What plans are made from.
        met: Response times as they are.
        key: Of a run: the rows that are drawn, and the times from update to update.
        targets: Gaps to reach, float64[levels].
    """

    made: Task
    known: Known
    met: stragglers.Response
    key: jax.Array
    targets: np.ndarray

    @property
    def n_workers(self) -> int:
        """How many workers there are."""
        return self.met.n_workers

    @property
    def shard(self) -> int:
        """Rows of a worker."""
        return self.known.loads[-1]

    def plan(self, chosen: Settings, *, adapts_load: bool) -> stragglers.Plan:
        """The plan with a step, a floor and a convexity."""
        step = self.made.step_size * chosen["step"]
        step = min(step, 0.95 / self.made.strong_convexity)  # beyond it there is no bound
        close = stragglers.quadratic_floor(self.n_workers, self.shard)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # steps beyond 1 / L are tried too
            bound = bound_of(self.made, step, {"bound": None, "quadratic": close}[chosen["floor"]])
            convexity = min(chosen["convexity"] * bound.strong_convexity, 0.95 / step)
            bound = replace(bound, strong_convexity=convexity)
            return self.known.plan(bound, adapts_load=adapts_load)


@dataclass(frozen=True, eq=False)
class Method:
    """A way of choosing (k, load).

    Attributes:
        space: All of its knobs.
        policy: `(scene, a value a knob) -> policy`.
    """

    space: Mapping[str, Knob]
    policy: Callable[[Scene, Settings], stragglers.Policy]


def lasting(
    stages: stragglers.Plan,
    max_load: int,
    policy: Callable[[stragglers.Plan], stragglers.Policy] = stragglers.planned,
) -> stragglers.Policy:
    """A plan's policy, whose last stage never ends; all of one kind share a compiled loop."""
    room = MOST_STAGES - stages.k.size
    rows = {name: np.pad(getattr(stages, name), (0, room), mode="edge") for name in COLUMNS}
    updates = np.append(stages.updates[:-1], np.full(room + 1, np.inf))
    made = policy(replace(stages, updates=updates, **rows))
    return replace(made, max_load=int(max_load), varies_load=True)


def always(k: int, load: int, max_load: int) -> stragglers.Policy:
    """One pair, in the form of a plan's policy."""
    rows = np.full(MOST_STAGES, k), np.full(MOST_STAGES, float(load)), np.full(MOST_STAGES, np.inf)
    return replace(stragglers.staged(*rows), max_load=max_load, varies_load=True)


def _planned(adapts_load: bool, scene: Scene, chosen: Settings) -> stragglers.Policy:
    return lasting(scene.plan(chosen, adapts_load=adapts_load), scene.shard)


def _pair(scene: Scene, chosen: Settings) -> stragglers.Policy:
    return always(chosen["k"], chosen["load"], scene.shard)


def _all(scene: Scene, chosen: Settings) -> stragglers.Policy:
    return always(scene.n_workers, scene.shard, scene.shard)


def counts(most: int, *shares: float) -> Knob:
    """A knob of whole numbers up to `most`, first those shares of it."""
    values = sorted({max(1, round(share * most)) for share in shares})
    return Knob(tuple(values), least=1, most=most, whole=True)


def main_methods(n_workers: int, shard: int) -> dict[str, Method]:
    """The two plans, the fixed pair and waiting for all."""
    plans = {"step": STEP, "floor": FLOOR, "convexity": CONVEXITY}
    pair = {
        "step": STEP,
        "k": counts(n_workers, 0.1, 0.2, 0.4, 0.7, 1.0),
        "load": counts(shard, 0.05, 0.15, 0.4, 1.0),
    }
    return {
        "k and load": Method(plans, partial(_planned, True)),
        "k alone": Method(plans, partial(_planned, False)),
        "fixed pair": Method(pair, _pair),
        "all, whole shards": Method({"step": STEP}, _all),
    }


def _by_error(scene: Scene, chosen: Settings) -> stragglers.Policy:
    triggered = partial(
        stragglers.error_triggered, patience=chosen["patience"], minimum=scene.made.minimum
    )
    return lasting(scene.plan(chosen, adapts_load=True), scene.shard, triggered)


def _rising(scene: Scene, chosen: Settings) -> list[int]:
    """Stages of k: from the first, each so many times the one before."""
    values = chosen["first k"] * chosen["growth"] ** np.arange(STAGES)
    return np.minimum(np.ceil(values), scene.n_workers).astype(int).tolist()


def _signs(scene: Scene, chosen: Settings) -> stragglers.Policy:
    limits = {name: chosen[name] for name in ("threshold", "burn_in")}
    return stragglers.sign_test(_rising(scene, chosen), scene.shard, **limits)


def _distance(scene: Scene, chosen: Settings) -> stragglers.Policy:
    limits = {name: chosen[name] for name in ("slope", "burn_in")}
    return stragglers.distance_test(_rising(scene, chosen), scene.shard, **limits)


def _by_loss(scene: Scene, chosen: Settings) -> stragglers.Policy:
    made = stragglers.ada_sync(
        min(chosen["first k"], scene.n_workers),
        chosen["load"],
        n_workers=scene.n_workers,
        minimum=scene.made.minimum,
        max_load=scene.shard,
    )
    return replace(made, varies_load=True)


def _deadline(scene: Scene, chosen: Settings) -> stragglers.Policy:
    return stragglers.deadline(
        chosen["time"], max_load=scene.shard, k=chosen["k"], n_workers=scene.n_workers
    )


def _dropped(scene: Scene, chosen: Settings) -> stragglers.Policy:
    return stragglers.drop_compute(chosen["threshold"], scene.shard, n_workers=scene.n_workers)


def _backups(scene: Scene, chosen: Settings) -> stragglers.Policy:
    return always(scene.n_workers - chosen["extra"], scene.shard, scene.shard)


def _crew(scene: Scene, chosen: Settings) -> stragglers.Policy:
    made = stragglers.learned_crew(
        scene.n_workers,
        chosen["k"],
        chosen["load"],
        confidence=chosen["confidence"],
        max_load=scene.shard,
    )
    return replace(made, varies_load=True)


def family(n_workers: int, shard: int) -> dict[str, Method]:
    """The wider family, but for gradient coding, whose decoding would take most of the time."""
    grows = {
        "step": STEP,
        "first k": counts(n_workers, 0.02, 0.06, 0.2, 0.6),
        "growth": log_range(1.5, 6.0, 3, least=1.05),
        "burn_in": Knob((1, 4, 16, 64), whole=True, least=1),
    }
    plans = main_methods(n_workers, shard)["k and load"].space
    pair = main_methods(n_workers, shard)["fixed pair"].space
    return {
        "k and load, by the loss": Method(
            {**plans, "patience": log_range(1.0, 8.0, 4, least=1.0)}, _by_error
        ),
        "sign test": Method({**grows, "threshold": Knob((1, 4, 16), whole=True, least=1)}, _signs),
        "distance test": Method({**grows, "slope": Knob((0.3, 0.6, 1.2), most=2.0)}, _distance),
        "AdaSync": Method(
            {"step": STEP, "first k": grows["first k"], "load": pair["load"]}, _by_loss
        ),
        "deadline (anytime)": Method(
            {"step": STEP, "k": pair["k"], "time": Knob((0.25, 0.5, 1.0, 2.0, 4.0))}, _deadline
        ),
        "drop-compute": Method({"step": STEP, "threshold": Knob((0.5, 1.0, 2.0, 4.0))}, _dropped),
        "backup workers": Method(
            {"step": STEP, "extra": counts(n_workers - 1, 0.04, 0.1, 0.2, 0.4, 0.7)}, _backups
        ),
    }


def crew(n_workers: int, shard: int) -> Method:
    """Crews of workers learned by lower confidence bounds."""
    pair = main_methods(n_workers, shard)["fixed pair"].space
    return Method({**pair, "confidence": CONFIDENCE}, _crew)
