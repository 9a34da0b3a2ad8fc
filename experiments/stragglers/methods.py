"""Losses, ways of choosing (k, load) for them, how these are run, and what a run is said to cost.

    plans           step, which floor the bound has, how convex the loss is taken for
    fixed pair      step, k, load; and the same with a step in proportion to k times load
    wider family    step, and what each method has: thresholds, burn-in, patience, how k grows,
                    deadlines, redundancy

The knob `step` is a factor of the step size for which the plans' constants were made. So is `scaled
step`, for an update of all samples; smaller updates then take smaller steps (the linear scaling
rule). Good pairs lie along a ridge on which the step grows with k and load, until it is as long as
it may be; a search that moves one knob at a time may miss its end in one form and find it in the
other. A run goes on to its horizon; the time to a target is that after which the mean gap of
`WINDOW` iterates stays there to the end.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import problems, results, simulation, stragglers, study
from asyncjax.study import protocol
from asyncjax.study.protocol import Seeds
from asyncjax.study.search import Knob, Settings, counts, log_range

BOTH, ALONE, PAIR, ALL = "k and load", "k alone", "fixed pair", "all, whole shards"
BACKUPS, SCALED = "backup workers", "fixed pair, scaled step"
MUCH_LESS, SLIGHTLY_MORE = 2 / 3, 1.1  # what the words of Egger et al. are taken to mean
COSTS = {  # of a run, and their heads in tables
    **{"time": "time", "samples_assigned": "assigned", "samples_used": "used"},
    **{"samples_done": "computed", "uplinks": "uplinks", "broadcasts": "broadcasts"},
}
L2 = 0.01  # of logistic regression
MOST_STAGES = 128
STAGES = 8  # of the tests of stationarity
WINDOW = 10  # iterates whose mean loss counts
COLUMNS = ("k", "load", "start_error", "end_error", "start_time", "end_time", "completion", "floor")
STEP, SCALED_STEP = log_range(1.0, 32.0, 6), log_range(2.0, 256.0, 8)
PLANS = {
    "step": STEP,
    "floor": Knob(("bound", "quadratic"), choice=True),
    "convexity": Knob((0.5, 1.0, 2.0, 4.0)),
}
PRESCRIBED = {"step": 1.0, "floor": "bound", "convexity": 1.0}  # a plan as it is prescribed


# Losses.

Sizes = tuple[int, int, int]  # workers, rows of each, columns


@dataclass(frozen=True, eq=False)
class Task:
    """A loss with its constants.

    Attributes:
        problem: What is trained.
        minimum: The least loss.
        bound: With the step that the factors multiply, the largest eigenvalue of the Hessian
            (logistic: of its bound), and at the minimum its smallest and the variance of one row's
            gradient.
    """

    problem: problems.Problem
    minimum: float
    bound: stragglers.ErrorBound

    def floor(self, samples: float) -> float:
        """The bound's floor of an update of so many samples, at the plans' step."""
        return float(stragglers.error_floor(self.bound, 1, samples))

    def targets(self, samples: float, levels: Sequence[float]) -> np.ndarray:
        """Gaps to reach, float64[levels].

        Each closes that share of the way, in the logarithm of the gap, from the first model to the
        bound's floor of an update of so many samples. (On the gap itself 95 % of the way would be
        made after two stages of twenty.)
        """
        ends = np.log(self.bound.initial_error), np.log(self.floor(samples))
        return np.exp(protocol.targets(*ends, levels))


def _task(
    problem: Any, first: Seeds | None, spread: float, minimum: float, **constants: Any
) -> Task:
    """A task whose first model, where an instance draws it, is normal numbers times `spread`."""
    if first is not None:
        drawn = np.random.default_rng(first.model).normal(size=np.shape(problem.params))
        problem = replace(problem, params=jnp.asarray(spread * drawn, jnp.float32))
    error = float(problem.objective(problem.params)) - minimum
    return Task(problem, minimum, stragglers.ErrorBound(initial_error=error, **constants))


def linear(
    data_seed: int, instance: Seeds | None, sizes: Sizes, noise: float = 3.0, signal: float = 7.0
) -> Task:
    """Linear regression on Gaussian rows, its constants in double precision.

    Args:
        data_seed: Draws the rows.
        instance: Draws the first model. None: zeros.
        sizes: Workers, rows of each, columns.
        noise: Standard deviation of the targets.
        signal: Standard deviation of the weights: how far off the start is.
    """
    rng, rows, (n_workers, _, dim) = np.random.default_rng(data_seed), sizes[0] * sizes[1], sizes
    features, direction = rng.standard_normal((rows, dim)), rng.standard_normal(dim)
    targets = signal * features @ direction + noise * rng.standard_normal(rows)
    best = np.linalg.lstsq(features, targets, rcond=None)[0]
    residual = features @ best - targets
    eigenvalues = np.linalg.eigvalsh(features.T @ features / rows).tolist()
    return _task(
        problems.least_squares(features, targets, n_workers=n_workers),
        instance,
        signal / 7,
        float(np.mean(residual**2) / 2),
        step_size=0.02,
        smoothness=eigenvalues[-1],
        strong_convexity=eigenvalues[0],
        noise_variance=float(np.mean((residual[:, None] * features) ** 2) * dim),
    )


def logistic(data_seed: int, instance: Seeds | None, sizes: Sizes) -> Task:
    """Logistic regression on Gaussian rows; arguments as of `linear`."""
    rng, rows, (n_workers, _, dim) = np.random.default_rng(data_seed), sizes[0] * sizes[1], sizes
    features, direction = rng.standard_normal((rows, dim)), rng.standard_normal(dim)
    scores = 2.0 * features @ direction / np.linalg.norm(direction)
    labels = np.where(rng.random(rows) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
    return logistic_task(features, labels, n_workers, 0.2, instance)


def logistic_task(
    features: np.ndarray, labels: np.ndarray, n_workers: int, step_size: float, instance: Any
) -> Task:
    """Logistic regression with half of `L2` times the squared weights, constants in float64.

    Args:
        features: float64[rows, d].
        labels: float64[rows], -1 or 1.
        n_workers: How many there are.
        step_size: The step that the factors multiply.
        instance: Draws the first model. None: zeros.
    """
    rows, d = features.shape
    best, ridge = np.zeros(d), L2 * np.eye(d)

    def at(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share = 1 / (1 + np.exp(labels * (features @ weights)))
        curved = features.T @ ((share * (1 - share))[:, None] * features) / rows + ridge
        return -(labels * share)[:, None] * features + L2 * weights, curved

    for _ in range(30):  # Newton
        single, curved = at(best)
        best = best - np.linalg.solve(curved, single.mean(0))
    single, curved = at(best)
    minimum = np.mean(np.logaddexp(0, -labels * (features @ best))) + L2 / 2 * best @ best
    largest = np.linalg.eigvalsh(features.T @ features / (4 * rows) + ridge)[-1]
    return _task(
        problems.logistic(features, labels, n_workers=n_workers, l2=L2),
        instance,
        0.1,
        float(minimum),
        step_size=step_size,
        smoothness=float(largest),
        strong_convexity=float(np.linalg.eigvalsh(curved)[0]),
        noise_variance=float((single**2).sum(1).mean()),
    )


TASKS: Mapping[str, Callable[..., Task]] = {"linear": linear, "logistic": logistic}


# What methods meet.


@dataclass(frozen=True, eq=False)
class Instance:
    """An instance as methods meet it.

    Attributes:
        task: What is trained, with its constants.
        believed: Response times that plans are made from.
        met: Response times as they are.
        loads: Samples that may be asked, ascending to a whole shard.
        least_samples: Of an update, in plans.
        targets: Gaps to reach, float64[levels].
        lengths: Updates of a run: the next where one ends before the horizon.
    """

    task: Task
    believed: stragglers.Response
    met: stragglers.Response
    loads: Sequence[int]
    least_samples: int
    targets: np.ndarray
    lengths: Sequence[int]

    @property
    def n_workers(self) -> int:
        """How many workers there are."""
        return self.met.n_workers

    @property
    def shard(self) -> int:
        """Rows of a worker."""
        return self.loads[-1]

    @property
    def close_floor(self) -> Any:
        """The floor for quadratics."""
        return stragglers.quadratic_floor(self.n_workers, self.shard)

    def plan(self, chosen: Settings, *, adapts_load: bool = True) -> stragglers.Plan:
        """The plan with a step, a floor and a convexity."""
        bound = self.task.bound
        step = min(bound.step_size * chosen["step"], 0.95 / bound.strong_convexity)
        convexity = min(chosen["convexity"] * bound.strong_convexity, 0.95 / step)
        floor = self.close_floor if chosen["floor"] == "quadratic" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # steps beyond 1 / L are tried too
            tuned = replace(bound, step_size=step, strong_convexity=convexity, floor=floor)
            return self.stages(tuned, adapts_load=adapts_load)

    def stages(self, bound: stragglers.ErrorBound, *, adapts_load: bool = True) -> stragglers.Plan:
        """The plan on a bound, with no target: its stages go on to the least floor."""
        # A step so long that every floor is above the first error: the last stages are left.
        least = float(stragglers.error_floor(bound, self.n_workers, self.shard))
        if bound.initial_error <= least:
            bound = replace(bound, initial_error=2.0 * least)
        return stragglers.plan(
            self.believed,
            bound,
            load=self.loads,
            target=0.0,
            admit=lambda k, load: (
                k * load >= self.least_samples and (adapts_load or load == self.shard)
            ),
        )


def lasting(
    stages: stragglers.Plan,
    max_load: int,
    policy: Callable[[stragglers.Plan], stragglers.Policy] = stragglers.planned,
) -> stragglers.Policy:
    """A plan's policy, whose last stage never ends; all of one kind share a compiled loop."""
    room = MOST_STAGES - stages.k.size
    rows = {name: np.pad(getattr(stages, name), (0, room), mode="edge") for name in COLUMNS}
    updates = np.append(stages.updates[:-1], np.full(room + 1, np.inf))
    return _up_to(max_load, policy(replace(stages, updates=updates, **rows)))


def _up_to(max_load: int, policy: stragglers.Policy) -> stragglers.Policy:
    return replace(policy, max_load=int(max_load), varies_load=True)


def always(k: int, load: int, max_load: int) -> stragglers.Policy:
    """One pair, in the form of a plan's policy."""
    rows = np.full(MOST_STAGES, k), np.full(MOST_STAGES, float(load)), np.full(MOST_STAGES, np.inf)
    return _up_to(max_load, stragglers.staged(*rows))


# Policies of an instance and settings.


def _planned(adapts_load: bool, given: Settings, instance: Instance, chosen: Settings) -> Any:
    plan = instance.plan({**given, **chosen}, adapts_load=adapts_load)
    return lasting(plan, instance.shard)


def _pair(instance: Instance, chosen: Settings) -> stragglers.Policy:
    return always(chosen["k"], chosen["load"], instance.shard)


def _step(instance: Instance, chosen: Settings) -> float:
    """Factor of the step: as chosen, or by the share of all samples that an update takes."""
    if "scaled step" not in chosen:
        return chosen.get("step", 1.0)
    share = chosen["k"] * chosen["load"] / (instance.n_workers * instance.shard)
    return chosen["scaled step"] * share


def _all(instance: Instance, chosen: Settings) -> stragglers.Policy:
    return always(instance.n_workers - chosen.get("extra", 0), instance.shard, instance.shard)


def _by_error(instance: Instance, chosen: Settings) -> stragglers.Policy:
    limits = {"patience": chosen["patience"], "minimum": instance.task.minimum}
    policy = partial(stragglers.error_triggered, **limits)
    return lasting(instance.plan(chosen), instance.shard, policy)


def _tested(test: Any, limit: str, instance: Instance, chosen: Settings) -> stragglers.Policy:
    """Stages of k: from the first, each so many times the one before."""
    rising = np.ceil(chosen["first k"] * chosen["growth"] ** np.arange(STAGES))
    stages = np.minimum(rising, instance.n_workers).astype(int).tolist()
    return test(stages, instance.shard, **{limit: chosen[limit]}, burn_in=chosen["burn_in"])


def _by_loss(instance: Instance, chosen: Settings) -> stragglers.Policy:
    n, first = instance.n_workers, min(chosen["first k"], instance.n_workers)
    limits = {"minimum": instance.task.minimum, "max_load": instance.shard}
    return _up_to(instance.shard, stragglers.ada_sync(first, chosen["load"], n_workers=n, **limits))


def _deadline(instance: Instance, chosen: Settings) -> stragglers.Policy:
    limits = {"max_load": instance.shard, "k": chosen["k"], "n_workers": instance.n_workers}
    return stragglers.deadline(chosen["deadline"], **limits)


def _dropped(instance: Instance, chosen: Settings) -> stragglers.Policy:
    n, threshold = instance.n_workers, chosen["threshold"]
    return stragglers.drop_compute(threshold, instance.shard, n_workers=n)


def _crew(instance: Instance, chosen: Settings) -> stragglers.Policy:
    limits = {"confidence": chosen["confidence"], "max_load": instance.shard}
    pair = chosen["k"], chosen["load"]
    return _up_to(instance.shard, stragglers.learned_crew(instance.n_workers, *pair, **limits))


# Methods.


def method(policy: Any, **space: Knob) -> study.Method:
    """A way of choosing (k, load), `(instance, settings) -> policy`, with all of its knobs."""
    return study.Method(run=partial(train, policy), space=space)


def up_to(most: int, *shares: float) -> Knob:
    """A knob of whole numbers up to `most`, first those shares of it."""
    values = sorted({max(1, round(share * most)) for share in shares})
    return counts(*values, least=1, most=most)


def _pairs(n_workers: int, shard: int) -> dict[str, Knob]:
    k = up_to(n_workers, 0.1, 0.2, 0.4, 0.7, 0.95, 1.0)
    return {"step": STEP, "k": k, "load": up_to(shard, 0.05, 0.15, 0.4, 1.0)}


def main_methods(n_workers: int, shard: int) -> dict[str, study.Method]:
    """The two plans, the fixed pair in two forms, and waiting for all."""
    pair = _pairs(n_workers, shard)
    scaled = {"scaled step": SCALED_STEP, "k": pair["k"], "load": pair["load"]}
    return {
        BOTH: method(partial(_planned, True, {}), **PLANS),
        ALONE: method(partial(_planned, False, {}), **PLANS),
        PAIR: method(_pair, **pair),
        SCALED: method(_pair, **scaled),
        ALL: method(_all, step=STEP),
    }


def prescribed(n_workers: int, shard: int) -> dict[str, study.Method]:
    """Plans as they are prescribed, nothing tuned; fixed pairs at the same step, one tuned."""
    few, pair = max(1, n_workers // 5), _pairs(n_workers, shard)
    return {
        **{
            f"{name}{end}": method(partial(_planned, name == BOTH, PRESCRIBED | {"floor": floor}))
            for name in (BOTH, ALONE)
            for end, floor in (("", "bound"), (", close floor", "quadratic"))
        },
        f"fixed k {few}, whole shards": method(lambda x, _: always(few, x.shard, x.shard)),
        PAIR: method(_pair, k=pair["k"], load=pair["load"]),
    }


def family(n_workers: int, shard: int) -> dict[str, study.Method]:
    """The wider family, but for gradient coding, whose decoding would take most of the time."""
    first = {"step": STEP, "first k": up_to(n_workers, 0.02, 0.06, 0.2, 0.6)}
    burn_in = counts(1, 4, 16, 64, least=1)
    grows = {**first, "growth": log_range(1.5, 6.0, 3, least=1.05), "burn_in": burn_in}
    pair, deadlines = _pairs(n_workers, shard), Knob((0.25, 0.5, 1.0, 2.0, 4.0))
    extra = up_to(n_workers - 1, 0.04, 0.1, 0.2, 0.4, 0.7)
    signs = partial(_tested, stragglers.sign_test, "threshold")
    distances = partial(_tested, stragglers.distance_test, "slope")
    patience = log_range(1.0, 8.0, 4, least=1.0)
    return {
        f"{BOTH}, by the loss": method(_by_error, **PLANS, patience=patience),
        "sign test": method(signs, **grows, threshold=counts(1, 4, 16, least=1)),
        "distance test": method(distances, **grows, slope=Knob((0.3, 0.6, 1.2), most=2.0)),
        "AdaSync": method(_by_loss, **first, load=pair["load"]),
        "deadline (anytime)": method(_deadline, step=STEP, k=pair["k"], deadline=deadlines),
        "drop-compute": method(_dropped, step=STEP, threshold=Knob((0.5, 1.0, 2.0, 4.0))),
        BACKUPS: method(_all, step=STEP, extra=extra),
    }


def crew(n_workers: int, shard: int) -> study.Method:
    """Crews of workers learned by lower confidence bounds."""
    confidence = Knob((0.003, 0.01, 0.03), growth=3.0)
    return method(_crew, **_pairs(n_workers, shard), confidence=confidence)


# Runs and their costs.


@partial(jax.jit, static_argnames="n_updates")
def curve(
    problem: problems.Problem,
    times: stragglers.Response,
    policy: stragglers.Policy,
    step_size: jax.Array | float,
    key: jax.Array,
    n_updates: int,
) -> dict[str, jax.Array]:
    """What a run has after every update, float[n_updates] each.

    They are the "loss", the "moment" (a column "time" would be cut before the update that passes
    the end) and the other `COSTS`.
    """
    records = simulation.run_policy(
        problem, times, policy, optax.sgd(step_size), n_updates=n_updates, key=key
    ).records
    rest = {name: getattr(records, name) for name in COSTS if name != "time"}
    return {"loss": records.loss, "moment": records.time, **rest}


def mean_gap(loss: np.ndarray, minimum: float) -> np.ndarray:
    """Mean of the last `WINDOW` losses above the minimum, float64[..., n_updates]; inf if none."""
    with np.errstate(all="ignore"):  # runs that diverge
        sums = np.cumsum(np.asarray(loss, np.float64) - minimum, axis=-1)
        wide = [(0, 0)] * (sums.ndim - 1) + [(WINDOW, 0)]
        earlier = np.pad(sums, wide)[..., : sums.shape[-1]]
        gap = (sums - earlier) / np.minimum(np.arange(sums.shape[-1]) + 1, WINDOW)
    return np.where(np.isfinite(gap), gap, np.inf)


def train(policy: Any, scene: study.Scene, chosen: Settings, seeds: Seeds) -> dict[str, Any]:
    """Runs until the horizon, or as long as it may, or until the loss is no number any more."""
    instance, key, records = scene.data, jax.random.key(seeds.noise()), {}
    step = instance.task.bound.step_size * _step(instance, chosen)
    follows = policy(instance, chosen)
    for n_updates in instance.lengths:
        raw = curve(instance.task.problem, instance.met, follows, step, key, n_updates)
        records = {name: np.asarray(values) for name, values in raw.items()}
        if not (records["moment"][-1] < scene.horizon and np.isfinite(records["loss"][-1])):
            break
    return records


def reading(records: Mapping[str, Any], scene: study.Scene) -> dict[str, float]:
    """Times from which on a run stays at each target, and what it costs until then.

    Returns:
        `time` to the last target, `time_1` and so on to the others, inf where never, and where the
        run was not watched to the horizon; costs until `time` or the horizon; `left`, the logarithm
        of the gap then over the last target, at least 0; `whole`, whether it was watched so long.
    """
    instance, horizon = scene.data, float(scene.horizon or math.inf)
    moments, gap = records["moment"], mean_gap(records["loss"], instance.task.minimum)
    whole = bool(moments[-1] >= horizon)
    watched = np.where(moments <= horizon, moments, np.nan)
    times = [
        float(results.time_to_target(watched, gap, target, stays=True)) if whole else math.inf
        for target in instance.targets
    ]
    last = min(int(np.searchsorted(moments, min(times[-1], horizon))), len(moments) - 1)
    return {
        "time": times[-1],
        **{f"time_{at}": time for at, time in enumerate(times[:-1], start=1)},
        "updates": last + 1,
        **{cost: float(records[cost][last]) for cost in COSTS if cost != "time"},
        "left": float(np.log(max(1.0, gap[last] / instance.targets[-1]))),
        "whole": float(whole),
    }


def score(numbers: Sequence[Mapping[str, float]], scenes: Sequence[study.Scene]) -> float:
    """Mean logarithm of the time to the last target; the horizon, and what is left, beyond it."""
    ends = [scene.horizon or math.inf for scene in scenes]
    times = np.minimum([run["time"] for run in numbers], ends)
    return float(np.mean(np.log(times) + [run["left"] for run in numbers]))


MEASURE = study.Measure(reading, "time", score)
