"""SGD with plans from wrong constants, and with plans made after a pilot."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import problems, simulation, stragglers
from experiments.stragglers.methods import COSTS, mean_gap
from experiments.stragglers.tasks import Task, bound_of, floor_of, task
from experiments.stragglers.training import laws
from experiments.stragglers.walks import CONSTANTS, NOWHERE, RIGHT, Settings

ROOM = 128  # stages of a policy, so that all of one kind share a compiled loop
COLUMNS = (
    *("k", "load", "start_error", "end_error", "start_time", "end_time"),
    *("updates", "completion", "floor"),
)


@partial(jax.jit, static_argnames="n_updates")
def paired(
    problem: problems.Problem,
    times: stragglers.Response,
    policies: stragglers.Policy,
    step_size: jax.Array,
    keys: jax.Array,
    n_updates: int,
) -> dict[str, jax.Array]:
    """Loss and costs after every update, a policy for each key; float[S, n_updates] each.

    Args:
        problem: What is trained.
        times: Response times.
        policies: Stacked, S of them.
        step_size: float[].
        keys: Typed keys [S].
        n_updates: Of every run.

    Returns:
        By name: "loss" and those of `COSTS`.
    """

    def one(policy: stragglers.Policy, key: jax.Array) -> dict[str, jax.Array]:
        records = simulation.run_policy(
            problem, times, policy, optax.sgd(step_size), n_updates=n_updates, key=key
        ).records
        return {name: getattr(records, name) for name in ("loss", *COSTS)}

    return jax.vmap(one)(policies, keys)


@dataclass(frozen=True, eq=False)
class Bench:
    """SGD on one task: everything but the policy.

    Attributes:
        settings: What is run.
        made: What is trained.
        times: Response times.
        target: Gap to reach.
        keys: A key a seed.
    """

    settings: Settings
    made: Task
    times: stragglers.Response
    target: float
    keys: jax.Array

    def run(self, policies: Sequence[stragglers.Policy], n_updates: int) -> dict[str, np.ndarray]:
        """Records of a policy for each seed, or of one for all."""
        full = self.settings.shard
        alike = [replace(policy, max_load=full, varies_load=True) for policy in policies]
        several = alike * len(self.keys) if len(alike) == 1 else alike
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
        step = jnp.asarray(self.made.step_size)
        found = paired(self.made.problem, self.times, stacked, step, self.keys, n_updates)
        return {name: np.asarray(values) for name, values in found.items()}

    def reach(self, policies: Sequence[stragglers.Policy]) -> dict[str, Any]:
        """Costs to the target, float[S], and the curve `(time, gap)`, float[S, n_updates] each."""
        reached: dict[str, Any] = {}
        for n_updates in (self.settings.n_updates, self.settings.most_updates):
            found = self.run(policies, n_updates)
            reached = at_target(found, self.made.minimum, self.target)
            reached["gap"] = (found["time"], reached["gap"])
            if np.isfinite(np.median(reached["time"])):
                break
        return reached

    def plan(self, bound: stragglers.ErrorBound) -> stragglers.Plan:
        """The plan of a bound, to the least floor."""
        least = self.settings.least_samples
        return stragglers.plan(
            self.times,
            bound,
            load=self.settings.loads,
            target=NOWHERE,
            admit=lambda k, b: k * b >= least,
        )


def bench_of(settings: Settings) -> Bench:
    """Makes the linear task of `straggler_training`, its times and its target."""
    sizes = settings.n_workers, settings.shard
    made = task(
        "linear", settings.seed, None, *sizes, settings.dim, settings.noise, settings.signal
    )
    return Bench(
        settings,
        made,
        laws(*sizes)["scale"],
        floor_of(made, max(1, round(0.6 * settings.n_workers)) * settings.shard),
        jax.random.split(jax.random.key(settings.seed + 1), settings.seeds),
    )


def at_target(found: Mapping[str, np.ndarray], minimum: float, target: float) -> dict[str, Any]:
    """Costs, float[S], when the mean gap is first at the target; inf where never; and the gap."""
    gap = mean_gap(found["loss"], minimum)
    there = gap <= target
    first = there.argmax(axis=1)[:, None]
    costs: dict[str, Any] = {
        name: np.where(there.any(axis=1), np.take_along_axis(found[name], first, 1)[:, 0], np.inf)
        for name in COSTS
    }
    return costs | {"gap": gap}


def roomy(plan: stragglers.Plan) -> stragglers.Plan:
    """Repeats the last stage until there are `ROOM`; a policy of the plan does the same."""
    room = ROOM - plan.k.size
    return replace(
        plan, **{name: np.pad(getattr(plan, name), (0, room), mode="edge") for name in COLUMNS}
    )


def always(k: int, load: float) -> stragglers.Policy:
    """One pair, in the form of a plan's policy."""
    return stragglers.staged([k] * ROOM, [load] * ROOM, 1.0)


def stationary(bench: Bench) -> list[dict[str, float]]:
    """Mean gap of fixed pairs over the second half of a run, beside both floors."""
    settings, rows = bench.settings, []
    bound = bound_of(bench.made, bench.made.step_size)
    close = stragglers.quadratic_floor(settings.n_workers, settings.shard)
    for k, load in settings.pairs:
        loss = bench.run([always(k, load)], settings.n_updates)["loss"][
            :, settings.n_updates // 2 :
        ]
        error = float(np.mean(loss, dtype=np.float64)) - bench.made.minimum
        floors = [
            float(stragglers.error_floor(b, k, load)) for b in (bound, replace(bound, floor=close))
        ]
        rows.append({"k": k, "load": load, "error": error, "bound": floors[0], "close": floors[1]})
    return rows


def real_plans(bench: Bench) -> dict[str, stragglers.Plan]:
    """Plans from right and wrong constants of the data, by name."""
    settings = bench.settings
    bound = bound_of(bench.made, bench.made.step_size)
    close = stragglers.quadratic_floor(settings.n_workers, settings.shard)
    bounds = {RIGHT: bound, f"{RIGHT}, close floor": replace(bound, floor=close)}
    wrong = {
        "strong convexity": settings.wrong_convexity,
        "noise variance": settings.wrong_variance,
    }
    for constant, factors in wrong.items():
        field = CONSTANTS[constant]
        for factor in factors:
            value = factor * getattr(bound, field)
            bounds[f"{constant} x {factor:g}"] = replace(bound, **{field: value})
    return {name: bench.plan(bound) for name, bound in bounds.items()}


def trained(
    bench: Bench, plans: Mapping[str, stragglers.Plan]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Runs all plans with all switches; costs to the target by (plan, switch)."""
    made = bench.made
    switches: dict[str, Callable[[stragglers.Plan], stragglers.Policy]] = {
        "by updates": stragglers.planned
    }
    if bench.settings.clock:
        switches["by the clock"] = stragglers.timed
    for patience in bench.settings.run_patiences:
        switches[f"by error, patience {patience:g}"] = partial(
            stragglers.error_triggered, patience=patience, minimum=made.minimum
        )
    return {
        (name, switch): bench.reach([policy(roomy(plan))])
        for switch, policy in switches.items()
        for name, plan in plans.items()
    }


def fitted_decay(gap: np.ndarray) -> tuple[float, float]:
    """Regresses the logarithm of the gap on the updates.

    Args:
        gap: float[P], loss above its minimum after each update; what is not positive is left out.

    Returns:
        The decay an update, and the fitted gap after the last.

    Raises:
        ValueError: The gap does not fall.
    """
    positive = gap > 0
    turn = np.arange(1, gap.size + 1)
    slope, start = np.polyfit(turn[positive], np.log(gap[positive]), 1)
    if slope >= 0:
        raise ValueError(f"pilots must be long enough for the loss to fall, got {gap.size}")
    return float(-slope), float(np.exp(start + slope * gap.size))


@dataclass(frozen=True, eq=False)
class Pilot:
    """A short run at the cheapest pair, and the whole run of the plan that is made from it.

    Attributes:
        name: Its updates and whose loss it sees.
        convexity: float[S], strong convexity by the decay.
        time: float[S], when it ends.
        outcome: Costs and curve of the whole run, the pilot among them.
    """

    name: str
    convexity: np.ndarray
    time: np.ndarray
    outcome: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Found:
    """What was measured.

    Attributes:
        walks: On the bound: costs by (constant, factor) and switch.
        factors: float64[F], of the sweep.
        swept: Times over the best by switch and constant, float64[F].
        floors: Stationary errors of fixed pairs beside the floors.
        plans: For SGD, by name.
        outcomes: Costs and curves in SGD by (plan, switch).
        pilots: Plans made after a pilot run.
        bench: SGD's task and target.
    """

    walks: Mapping[tuple[str, float], Mapping[str, Mapping[str, float]]]
    factors: np.ndarray
    swept: Mapping[str, Mapping[str, np.ndarray]]
    floors: Sequence[Mapping[str, float]]
    plans: Mapping[str, stragglers.Plan]
    outcomes: Mapping[tuple[str, str], Mapping[str, Any]]
    pilots: Sequence[Pilot]
    bench: Bench


def piloted(bench: Bench) -> list[Pilot]:
    """Runs plans that are made after a pilot, from the decay that it shows.

    The run goes on from where the pilot ends.

    Either the server measures the loss on all rows after each update, which is not counted, or it
    sees that of as many rows as it uses anyway, here drawn from the loss on all: the mean of that
    many squares of normal residuals. Both know the least loss.
    """
    settings, made = bench.settings, bench.made
    bound = bound_of(made, made.step_size)
    first = bench.plan(bound)
    k, load = int(first.k[0]), float(first.load[0])
    seen = bench.run([always(k, load)], settings.n_updates)
    loss, rows = np.asarray(seen["loss"], np.float64), k * load
    spread = np.random.default_rng(settings.seed).chisquare(rows, loss.shape) / rows
    found = []
    for length in settings.pilots:
        for words, losses in (("all rows", loss), (f"{rows:g} rows", loss * spread)):
            fits = [fitted_decay(row[:length] - made.minimum) for row in losses]
            values = [-math.expm1(-decay) / made.step_size for decay, _ in fits]
            policies = []
            for value, (_, error) in zip(values, fits, strict=True):
                again = replace(bound, strong_convexity=value, initial_error=error)
                policies.append(stragglers.planned(after((k, load, length), bench.plan(again))))
            found.append(
                Pilot(
                    f"pilot of {length}, loss of {words}",
                    np.array(values),
                    seen["time"][:, length - 1],
                    bench.reach(policies),
                )
            )
    return found


def after(pilot: tuple[int, float, int], plan: stragglers.Plan) -> stragglers.Plan:
    """Puts a stage `(k, load, updates)` before a plan's own; policies switch by updates."""
    columns = {name: getattr(plan, name) for name in COLUMNS}
    first = {name: own[0] for name, own in columns.items()}
    first |= dict(zip(("k", "load", "updates"), pilot, strict=True))
    longer = {name: np.append(first[name], own) for name, own in columns.items()}
    return roomy(replace(plan, **longer))
