"""Fastest-k SGD on real losses: methods, runs, costs to the target."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, simulation, stragglers
from experiments.stragglers.bounds import plan_anyway
from experiments.stragglers.tasks import Settings, Task, bound_of, target_of, task

WINDOW = 10  # iterates whose mean loss counts
MOST_STAGES = 128
COSTS = ("time", "samples_assigned", "samples_used", "uplinks", "broadcasts", "samples_done")


@dataclass(frozen=True, eq=False)
class Method:
    """A way of choosing (k, load).

    One policy for each setting of its own knobs, given a step size.
    """

    name: str
    policies: Callable[[float], Mapping[str, stragglers.Policy]]  # step size -> by setting


@dataclass(frozen=True, eq=False)
class Outcome:
    """Costs until the target is reached, inf where it is not.

    Attributes:
        name: Of the method.
        setting: Its knobs.
        factor: Of the step size.
        costs: float[seeds] by cost, of the reported seeds.
        curve: `(time, gap)` of the reported seeds, float[seeds, n_updates] each.
    """

    name: str
    setting: str
    factor: float
    costs: dict[str, np.ndarray]
    curve: tuple[np.ndarray, np.ndarray]


def laws(settings: Settings) -> dict[str, stragglers.Response]:
    """Response times by name.

    Communicating takes 1 time unit on average, and so does a whole shard.
    """
    one = 1.0 / settings.shard

    def made(compute: clocks.Clock, scaling: str) -> stragglers.Response:
        return stragglers.response(
            compute=compute,
            communicate=clocks.exponential(1.0),
            scaling=scaling,
            n_workers=settings.n_workers,
        )

    return {
        "scale": made(clocks.exponential(one), "scale"),
        "additive": made(clocks.exponential(one), "additive"),
        "shift": made(clocks.shifted_exponential(one / 2, 0.5), "shift"),
        "lognormal": made(clocks.lognormal(one, 1.0), "scale"),
    }


def methods(settings: Settings, made: Task, times: stragglers.Response) -> list[Method]:
    """The plans and what they must be compared with."""
    n, full, target = settings.n_workers, settings.shard, target_of(settings, made)

    def plan_with(floor: Any, load: Any) -> Callable[[float], Mapping[str, stragglers.Policy]]:
        def policies(step_size: float) -> Mapping[str, stragglers.Policy]:
            stages = plan_anyway(
                times,
                bound_of(made, step_size, floor),
                load=load,
                target=target,
                admit=lambda k, b: k * b >= settings.least_samples,
            )
            return {"": long_plan(stages, np.max(load), stragglers.planned)}

        return policies

    def always(*pairs: tuple[int, int]) -> Callable[[float], Mapping[str, stragglers.Policy]]:
        policies = {f"k {k}, load {load}": stragglers.fixed(k, load) for k, load in pairs}
        return lambda step_size: policies

    close = stragglers.quadratic_floor(n, full)
    pairs = [(max(1, round(share * n)), full) for share in (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)]
    pairs += [(k, b) for k in (2 * n // 5, n) for b in (1, max(2, full // 16), full // 4)]
    return [
        Method("k and load", plan_with(None, settings.loads)),
        Method("k and load, close floor", plan_with(close, settings.loads)),
        Method("k alone", plan_with(None, full)),
        Method("k alone, close floor", plan_with(close, full)),
        *(Method(f"fixed k {k}", always((k, full))) for k in (n // 5, 3 * n // 5, n)),
        Method("best fixed", always(*pairs)),
    ]


def long_plan(
    stages: stragglers.Plan, max_load: int, policy: Callable[[stragglers.Plan], stragglers.Policy]
) -> stragglers.Policy:
    """A plan's policy with room for many stages: plans of all step sizes run in one call."""
    room = MOST_STAGES - stages.k.size
    names = (
        "k",
        "load",
        "start_error",
        "end_error",
        "start_time",
        "end_time",
        "completion",
        "floor",
    )
    rows = {name: np.pad(getattr(stages, name), (0, room), mode="edge") for name in names}
    updates = np.append(stages.updates[:-1], np.full(room + 1, np.inf))
    made = policy(replace(stages, updates=updates, **rows))
    return replace(made, max_load=int(max_load), varies_load=True)


def constant(policies: Mapping[str, stragglers.Policy]) -> Any:
    """The same policies for every step size."""
    return lambda step_size: policies


def stopping(n: int, full: int) -> list[Method]:
    """The methods that stop, drop or repeat the work of the late."""
    stopped = {
        f"time {time:g}, k {k}": stragglers.deadline(time, max_load=full, k=k, n_workers=n)
        for time in (0.25, 1.0)
        for k in (2 * n // 5, 4 * n // 5)
    }
    dropped = {
        f"threshold {threshold:g}": stragglers.drop_compute(threshold, full, n_workers=n)
        for threshold in (0.5, 2.0)
    }
    backups = {
        f"{extra} more": stragglers.backup_workers(n, extra, full)
        for extra in (max(1, n // 20), max(1, n // 10), n // 5)
    }
    coded = {
        f"{late} late": stragglers.gradient_coding(
            stragglers.cyclic_code(n, late), full, tolerated=late
        )
        for late in (1, 2)
    }
    return [
        Method("deadline (anytime)", constant(stopped)),
        Method("drop-compute", constant(dropped)),
        Method("backup workers", constant(backups)),
        Method("gradient coding", constant(coded)),
    ]


def family(settings: Settings, made: Task, times: stragglers.Response) -> list[Method]:
    """The wider family; each with a small grid of its own knobs."""
    n, full = settings.n_workers, settings.shard
    rising = [max(1, round(share * n)) for share in (0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)]
    target = target_of(settings, made)

    def triggered(step_size: float) -> Mapping[str, stragglers.Policy]:
        stages = plan_anyway(
            times,
            bound_of(made, step_size),
            load=settings.loads,
            target=target,
            admit=lambda k, b: k * b >= settings.least_samples,
        )
        return {
            f"patience {patience:g}": long_plan(
                stages,
                full,
                partial(stragglers.error_triggered, patience=patience, minimum=made.minimum),
            )
            for patience in (1.5, 4.0)
        }

    signs = {
        f"threshold {threshold}, burn-in {burn_in}": stragglers.sign_test(
            rising, full, threshold=threshold, burn_in=burn_in
        )
        for threshold in (0, 10)
        for burn_in in (20, 100)
    }
    distances = {
        f"slope {slope}, burn-in 20": stragglers.distance_test(
            rising, full, slope=slope, burn_in=20
        )
        for slope in (0.3, 0.6)
    }
    losses = {
        f"k {k} at first": stragglers.ada_sync(k, full, n_workers=n, minimum=made.minimum)
        for k in (1, 2, 5)
    }
    return [
        Method("k and load, by error", triggered),
        Method("sign test", constant(signs)),
        Method("distance test", constant(distances)),
        Method("AdaSync", constant(losses)),
        *stopping(n, full),
    ]


@partial(jax.jit, static_argnames="n_updates")
def curves(
    problem: problems.Problem,
    times: stragglers.Response,
    policies: stragglers.Policy,
    step_sizes: jax.Array,
    keys: jax.Array,
    n_updates: int,
) -> dict[str, jax.Array]:
    """Loss and costs after every update, float[G, S, n_updates] each.

    Args:
        problem: What is trained.
        times: Response times.
        policies: Chooses (k, load); a policy for each step size, stacked.
        step_sizes: float[G].
        keys: Typed keys [S].
        n_updates: Of every run.

    Returns:
        By name: "loss" and those of `COSTS`.
    """

    def one(
        policy: stragglers.Policy, step_size: jax.Array, key: jax.Array
    ) -> dict[str, jax.Array]:
        records = simulation.run_policy(
            problem, times, policy, optax.sgd(step_size), n_updates=n_updates, key=key
        ).records
        return {name: getattr(records, name) for name in ("loss", *COSTS)}

    over_keys = jax.vmap(one, in_axes=(None, None, 0))
    return jax.vmap(over_keys, in_axes=(0, 0, None))(policies, step_sizes, keys)


def at_target(found: Mapping[str, np.ndarray], minimum: float, target: float) -> dict[str, Any]:
    """Costs when the mean gap of ten iterates is first at the target; inf where it never is.

    Args:
        found: float[S, n_updates] by name.
        minimum: The least loss.
        target: Gap.

    Returns:
        float[S] by cost, and the mean gap, float[S, n_updates].
    """
    sums = np.cumsum(np.asarray(found["loss"], np.float64) - minimum, axis=1)
    earlier = np.pad(sums, ((0, 0), (WINDOW, 0)))[:, : sums.shape[1]]
    gap = (sums - earlier) / np.minimum(np.arange(sums.shape[1]) + 1, WINDOW)
    there = gap <= target
    first = there.argmax(axis=1)[:, None]
    costs: dict[str, Any] = {
        name: np.where(there.any(axis=1), np.take_along_axis(found[name], first, 1)[:, 0], np.inf)
        for name in COSTS
    }
    return costs | {"gap": gap}


def measure(
    settings: Settings, made: Task, times: stragglers.Response, method: Method
) -> tuple[Outcome, Outcome]:
    """Runs a method at all steps and settings of its knobs.

    Returns:
        The outcome at the factor 1 of the step size, and at the best factor; each at the best
        setting of the knobs, by the median time to the target on the tuning seeds.
    """
    total, target = settings.tuning_seeds + settings.seeds, target_of(settings, made)
    keys = jax.random.split(jax.random.key(settings.seed + 1), total)
    step_sizes = [made.step_size * factor for factor in settings.factors]
    by_step = [method.policies(step_size) for step_size in step_sizes]
    best: dict[bool, tuple[float, Outcome]] = {}
    for setting in by_step[0]:
        several = [policies[setting] for policies in by_step]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
        steps = jnp.asarray(step_sizes)
        found = curves(made.problem, times, stacked, steps, keys, settings.n_updates)
        found = {name: np.asarray(values) for name, values in found.items()}
        for place, factor in enumerate(settings.factors):
            own = {name: values[place] for name, values in found.items()}
            outcome, score = _outcome(settings, made, target, own, (method.name, setting, factor))
            for tuned in (False, True):
                if (tuned or factor == 1.0) and (tuned not in best or score < best[tuned][0]):
                    best[tuned] = (score, outcome)
    return best[False][1], best[True][1]


def _outcome(
    settings: Settings,
    made: Task,
    target: float,
    found: Mapping[str, np.ndarray],
    names: tuple[str, str, float],
) -> tuple[Outcome, float]:
    """What the reported seeds cost, and the median time of the tuning seeds."""
    reached = at_target(found, made.minimum, target)
    gap, own = reached.pop("gap"), slice(settings.tuning_seeds, None)
    score = float(np.median(reached["time"][: settings.tuning_seeds]))
    costs = {name: values[own] for name, values in reached.items()}
    return Outcome(*names, costs, (found["time"][own], gap[own])), score


def claims(
    settings: Settings, name: str, times: stragglers.Response, chosen: Sequence[str] = ()
) -> dict[str, dict[str, np.ndarray]]:
    """Costs of plans and of a fixed k on several data sets, all at one step size.

    Args:
        settings: What is run.
        name: Of the problem.
        times: Response times.
        chosen: Names of methods; none: plans, and the smallest fixed k.

    Returns:
        Median costs over the reported seeds, float[data_seeds], by method and cost.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(settings.data_seeds):
        own = replace(settings, seed=settings.seed + number)
        made = task(own, name)
        keys = jax.random.split(jax.random.key(own.seed + 1), settings.seeds)
        for method in methods(own, made, times)[:5]:
            if chosen and method.name not in chosen:
                continue
            (policy,) = method.policies(made.step_size).values()
            stacked = jax.tree.map(lambda leaf: leaf[None], policy)
            step = jnp.asarray([made.step_size])
            several = curves(made.problem, times, stacked, step, keys, settings.n_updates)
            several = {cost: np.asarray(values)[0] for cost, values in several.items()}
            reached = at_target(several, made.minimum, target_of(own, made))
            for cost in COSTS:
                kept = found.setdefault(method.name, {}).setdefault(cost, [])
                kept.append(float(np.median(reached[cost])))
    return {
        method: {cost: np.array(values) for cost, values in costs.items()}
        for method, costs in found.items()
    }
