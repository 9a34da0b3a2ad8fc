"""A job on its schedule, what can be chosen where it is trained, and how it is trained.

Dispatch, steps, examples, gradients awaited.

A job on a schedule is a `Site`: the clock that the schedule implies and what the job holds
meanwhile. A `Choice` says which schedule it is and what is done at every other place. Two rules are
made here, since a schedule takes workers away:

    crew shuffled   jobs walk through random permutations of the slot's W_t workers, not of all n
    planned k       k with most gradients: sum over slots with W_t >= k of k / (E T_(k) of W_t)

The published shuffled dispatch asks all n workers, also the absent ones, and waits until the
schedule brings them back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import (
    clocks,
    cluster,
    orders,
    problems,
    results,
    simulation,
    steps,
    stragglers,
    traces,
)
from asyncjax.study import methods
from experiments.common import replays

PAPERS = (
    "Wu, Magnússon, Feyzmahdavian, Johansson, Delay-adaptive step-sizes, 2022 (arXiv 2202.08550).",
    "Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452).",
    "Cooper et al., Coordinating distributed example orders, 2023 (arXiv 2302.00845).",
    "Egger, Kas Hanna, Bitar, Straggler-tolerant distributed SGD, 2023 (arXiv 2304.08589).",
    "Yu, Liu, Wu, Ji, Bentley, An efficient learning framework, 2021 (arXiv 2108.02917).",
)
TRAINED = {  # by the larger and the smaller job: the name of the loss
    "network": "training loss",
    "logistic regression": "loss above its minimum",
}


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about five minutes on two CPU cores."""

    output: Path = Path("output/story")
    seed: int = 4  # of the workload
    jobs: int = 20
    n_slots: int = 16
    machines: int = 12
    most_workers: int = 48  # that a job to be trained may ever have, so that all hold some rows
    gradients: int = 2500  # into which all samples of a job are divided
    shape: float = 4.0  # of the gamma law of a gradient's time; 0: always the mean, as scheduled
    batch: int = 5  # rows of a gradient
    hidden: int = 16  # units of the network
    l2: float = 0.01  # of the logistic regression
    rows: int = 0  # of the data that are used; 0: all
    seeds: int = 5  # reported
    tuning_seeds: int = 3  # only to choose the step size
    records: int = 50  # points of a curve
    slack: float = 2.0  # target: so many times the loss at which all plain ends (tuning seeds)
    trained: tuple[str, ...] = tuple(TRAINED)
    choices: tuple[str, ...] = ()  # besides the full set and all plain; none: all
    commit: bool = False  # also write the numbers where committed ones are
    step_sizes: tuple[float, ...] = field(
        default_factory=lambda: tuple(2.0**power for power in range(-9, 1))
    )


@dataclass(frozen=True, eq=False)
class Site:
    """A job on its schedule; slots count from the slot of its arrival.

    On its clock the slot in which the job completes never ends, so that traces of all seeds can be
    equally long; what comes after the budget is not counted.
    """

    clock: clocks.Clock
    crews: np.ndarray  # int64[T], workers in every slot up to the job's completion
    pace: np.ndarray  # float64[T], gradients that one worker computes in a slot, in the mean
    budget: float  # slots, when all samples of the job have been trained
    gpus: float  # that a worker holds
    shape: float  # of the gamma law of times; 0: exactly the mean

    @property
    def n_workers(self) -> int:
        """Workers of the largest crew."""
        return self.clock.n_workers

    @property
    def limit(self) -> int:
        """More gradients than are ever computed within the budget."""
        return int(1.25 * float(self.crews @ self.pace)) + 4 * self.n_workers

    def held(self, time: float) -> float:
        """GPU-slots held up to a time; a slot that has begun counts whole, inf stays inf."""
        if not np.isfinite(time):
            return float("inf")
        return self.gpus * float(self.crews[: int(np.ceil(time))].sum())


def workload(settings: Settings, seed: int) -> tuple[cluster.Jobs, cluster.Machines]:
    """Jobs and machines of a seed."""
    return cluster.workloads.balanced(
        seed, n_jobs=settings.jobs, n_slots=settings.n_slots, n_machines=settings.machines
    )


def fitting(settings: Settings, jobs: cluster.Jobs, *schedules: cluster.Schedule) -> list[int]:
    """Jobs on GPUs that all schedules complete with 4 to `most_workers` workers at most.

    The largest is the first; large in worker-slots inside a machine.
    """
    crews = np.array([np.asarray(one.workers).sum(-1).max(-1) for one in schedules])
    fits = np.all([cluster.completion(one, jobs) >= 0 for one in schedules], axis=0)
    fits &= (crews.min(0) >= 4) & (crews.max(0) <= settings.most_workers)
    fits &= np.asarray(jobs.worker)[:, 0] > 0
    order = np.argsort(-jobs.samples * cluster.sample_times(jobs).inside, kind="stable")
    return order[fits[order]].tolist()


def site_of(settings: Settings, schedule: cluster.Schedule, jobs: cluster.Jobs, job: int) -> Site:
    """Makes the site of a job that its schedule completes.

    Args:
        settings: The job's samples are divided into so many `gradients`, whose time has a gamma law
            of that `shape` around what the schedule gives.
        schedule: The schedule.
        jobs: Its jobs.
        job: Which of them.

    Raises:
        ValueError: The schedule does not complete the job.
    """
    begin, end = int(jobs.arrival[job]), int(cluster.completion(schedule, jobs)[job])
    if end < 0:
        raise ValueError(f"job must be one that the schedule completes, got {job}")
    samples = float(jobs.samples[job])
    clock = cluster.clock_of(schedule, jobs, job, samples=samples / settings.gradients)
    (power,) = clock.powers
    random = settings.shape > 0
    law = clocks.gamma(settings.shape, clock.mean) if random else replace(clock, powers=())
    until_done = replace(power, rates=power.rates[:, : end + 1 - begin])
    crews = np.asarray(schedule.workers)[job, begin : end + 1].sum(-1).astype(np.int64)
    trained = cluster.samples_trained(schedule.workers, schedule.servers, jobs)[job]
    trained = trained[begin : end + 1]
    missing = (samples - trained[:-1].sum()) / trained[-1]
    return Site(
        replace(law, powers=(until_done,)),
        crews,
        trained / np.maximum(crews, 1) * settings.gradients / samples,
        len(crews) - 1 + min(float(missing), 1.0),
        float(jobs.worker[job, 0]),
        settings.shape,
    )


@lru_cache(maxsize=64)
def crew_shuffled(site: Site, seed: int) -> traces.Dispatch:
    """Shuffled dispatch over the workers that the schedule gives in the present slot.

    Args:
        site: The job on its schedule.
        seed: Of the permutations, and of the durations that decide how many jobs a slot sees.
    """

    def arrivals(rule: traces.Dispatch, end: int) -> traces.EventTrace:
        expected = int(1.2 * float(site.crews[:end] @ site.pace[:end])) + 2 * site.n_workers
        how: dict[str, Any] = {"n_updates": min(expected, site.limit), "key": jax.random.key(seed)}
        return replays.until_stalled(traces.asynchronous, site.clock, dispatch=rule, **how)

    crews = [np.arange(crew) for crew in site.crews]
    return replays.shuffled_over(crews, seed, site.limit + site.n_workers, arrivals)


def pure(site: Site, seed: int) -> traces.Dispatch:
    """Arrival dispatch."""
    del site, seed
    return traces.to_deliverer()


def shuffled(site: Site, seed: int) -> traces.Dispatch:
    """Shuffled dispatch as published: absent workers are asked too."""
    del site, seed
    return traces.shuffled()


# Only gradients later than usual are made shorter: n / max(n, delay) (Mishchenko et al. 2022).
concurrency = methods.after(
    lambda s: steps.scale_by_staleness("concurrency", n_workers=s["n_workers"])
)
# The step times a worker's measured time over the mean, so that all are heard alike.
rescaled = methods.after(lambda s: steps.scale_by_measured_time(s["n_workers"]))


def adaptive_2(settings: methods.Settings) -> optax.GradientTransformation:
    """Adaptive 2 (Wu et al. 2022); the step size is its bound gamma'."""
    return optax.chain(steps.scale_by_adaptive_2(settings["step"]), optax.scale(-1.0))


def reshuffled(n_workers: int, counts: Sequence[int], dim: int) -> orders.Order:
    """A new random order in every epoch of a worker."""
    del dim
    return orders.reshuffled(counts, n_workers)


@dataclass(frozen=True)
class Choice:
    """What is chosen at every place; the defaults are the full set."""

    name: str
    scheduler: str = "PD-ORS"
    dispatch: Callable[[Site, int], traces.Dispatch] | None = crew_shuffled  # None: synchronous
    step: methods.Optimizer = concurrency  # of `step` and `n_workers`
    # Of the workers' numbers of examples and the numbers of a gradient; None: drawn rows.
    order: Callable[[int, Sequence[int], int], orders.Order] | None = orders.coordinated
    awaited: int | None = 1  # gradients in a step; None: `planned_k`
    table: bool = False  # whether each step is along the mean of every worker's last gradient


PLAIN = Choice("all plain", dispatch=pure, step=methods.plain, order=None)
# All together but for what harms in pairs: shuffled dispatch with steps that look at delays, and
# one balance for workers that are out of step.
FITTING = Choice("fitting set", dispatch=pure, step=rescaled, order=orders.independent)
TABLE = replace(PLAIN, name="all plain, a table", table=True)
FULL = Choice("full set")
CHOICES = (
    FULL,
    FITTING,
    Choice("dispatch: pure", dispatch=pure),
    Choice("dispatch: shuffled as published", dispatch=shuffled),
    Choice("steps: constant", step=methods.plain),
    Choice("steps: Adaptive 2", step=adaptive_2),
    Choice("examples: each worker alone", order=orders.independent),
    Choice("examples: reshuffled", order=reshuffled),
    Choice("examples: drawn with replacement", order=None),
    Choice("schedule: DRF", scheduler="DRF"),
    Choice("schedule: marginal goodput", scheduler="goodput"),
    Choice("waits for 4", awaited=4),
    Choice("synchronous, planned k", dispatch=None, awaited=None),
    replace(FITTING, name="fitting set, schedule: DRF", scheduler="DRF"),
    PLAIN,
    TABLE,
    replace(PLAIN, name="all plain, schedule: DRF", scheduler="DRF"),
    replace(TABLE, name="all plain, a table, schedule: DRF", scheduler="DRF"),
    replace(PLAIN, name="all plain, schedule: marginal goodput", scheduler="goodput"),
)


def planned_k(site: Site) -> int:
    """How many gradients a synchronous server should wait for on this schedule.

    Formula: `argmax over k of the sum over slots with W_t >= k of pace_t k / E T_(k)`, with T_(k)
    the k-th smallest of W_t times of mean 1; rounds that need more workers than a slot has make no
    progress in it.
    """
    used = np.zeros(site.n_workers)
    for crew in np.unique(site.crews[site.crews > 0]).tolist():
        k, took = np.arange(1, crew + 1), np.ones(crew)
        if site.shape:
            times = stragglers.response(compute=clocks.gamma(site.shape, 1.0), n_workers=crew)
            took = np.asarray(stragglers.expected_completion(times, k))
        used[:crew] += float(site.pace[site.crews == crew].sum()) * k / took
    return int(used.argmax()) + 1


def awaited(choice: Choice, site: Site) -> int:
    """Gradients in a step of this choice."""
    return planned_k(site) if choice.awaited is None else choice.awaited


def trace_of(
    choice: Choice, site: Site, seed: int, n_updates: int | None = None
) -> traces.EventTrace:
    """Makes the trace of a choice.

    Args:
        choice: The choice.
        site: The job on its schedule.
        seed: Of durations and permutations.
        n_updates: How many; None: as many as the schedule has time for, and then some.

    Returns:
        The trace; it is shorter where the schedule ends.
    """
    k = awaited(choice, site)
    how: dict[str, Any] = {"n_updates": n_updates or -(-site.limit // k)}
    how["key"] = jax.random.key(seed)
    if choice.dispatch is None:
        return replays.until_stalled(traces.synchronous, site.clock, k=k, **how)
    collect = traces.immediately() if k == 1 else traces.buffered(k)
    how["collect"] = traces.table() if choice.table else collect
    rule = choice.dispatch(site, seed)
    return replays.until_stalled(traces.asynchronous, site.clock, dispatch=rule, **how)


def updates_within(trace: traces.EventTrace, budget: float) -> int:
    """Updates that a trace makes up to a time."""
    return int((np.asarray(trace.steps) & (np.asarray(trace.time) <= budget)).sum())


def problem_of(
    settings: Settings, task: str, n_workers: int, batch: problems.Batch, seeds: tuple[int, int]
) -> problems.Problem:
    """A network or a logistic regression on digits, in shards of one or two labels.

    Rows sorted by label are cut into equal shards and dealt to the workers at random.

    Args:
        settings: What is run.
        task: One of `TRAINED`.
        n_workers: Of the site.
        batch: Rows of a gradient.
        seeds: Of the shards, and of the first network.
    """
    data = problems.digits()
    last = settings.rows or len(data.train_labels)
    features, labels = data.train_features[:last], np.asarray(data.train_labels)[:last]
    places = np.random.default_rng(seeds[0]).permutation(n_workers)
    shards = (np.asarray(leaf)[places] for leaf in problems.by_label(labels, n_workers))
    how: dict[str, Any] = {"n_workers": n_workers, "batch": batch}
    how["shards"] = problems.Shards(*shards)
    if task == "network":
        model = problems.MLP(hidden=(settings.hidden,), classes=10)
        return problems.classification(model, features, labels, key=jax.random.key(seeds[1]), **how)
    columns = np.column_stack([features, np.ones(len(features), np.float32)])
    return problems.logistic(columns, labels >= 5, l2=settings.l2, **how)


def least_loss(problem: problems.Problem) -> float:
    """The minimum of a convex objective of few numbers, by Newton's method."""
    objective: Any = problem.objective

    def newton(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return x - jnp.linalg.solve(jax.hessian(objective)(x), jax.grad(objective)(x)), None

    x, _ = jax.lax.scan(newton, jnp.asarray(problem.params), length=12)
    return float(objective(x))


Train = Callable[[simulation.ReplayPlan, int, Sequence[float]], np.ndarray]


def replayed(
    settings: Settings, task: str, choice: Choice, site: Site, seeds: tuple[int, int]
) -> tuple[Train, float]:
    """How a choice trains a job: (plan, seed, step sizes) -> losses, and the first model's loss.

    Losses are float64[G, R], at the records of the plan, less the least loss. `seeds` are those of
    `problem_of`.
    """
    batch = problems.uniform if choice.order is None else problems.cyclic
    problem = problem_of(settings, task, site.n_workers, batch(settings.batch), seeds)
    order = None
    if choice.order is not None:
        counts = [-(-int(size) // settings.batch) for size in np.asarray(problem.data.size)]
        dim = sum(leaf.size for leaf in jax.tree.leaves(problem.params))
        order = choice.order(site.n_workers, counts, dim)
    known = {"n_workers": site.n_workers}
    optimizer = replays.with_step(lambda step_size: choice.step({"step": step_size, **known}))
    floor = 0.0 if task == "network" else least_loss(problem)
    objective: Any = problem.objective

    def losses(plan: simulation.ReplayPlan, seed: int, sizes: Sequence[float]) -> np.ndarray:
        key = jax.random.key(seed)
        return replays.losses_of(problem, plan, optimizer, sizes, order=order, key=key) - floor

    return losses, float(objective(problem.params)) - floor


def trained(
    settings: Settings, task: str, choice: Choice, site: Site, target: float | None = None
) -> tuple[pd.DataFrame, float]:
    """Trains a job in one way: all seeds, all step sizes; the best step by the tuning seeds.

    Args:
        settings: What is run.
        task: One of `TRAINED`.
        choice: The way.
        site: The job on the schedule of the choice.
        target: A loss; None: `slack` times that at which this choice ends on the tuning seeds.

    Returns:
        A row a reported seed (slots to the target, what was held, computed and reached; delays in
        updates), and the target.

    Raises:
        ValueError: No step of the grid gives a finite loss.
    """
    seeds = range(settings.tuning_seeds + settings.seeds)
    longest = [trace_of(choice, site, seed) for seed in seeds]
    n_updates = max(updates_within(trace, site.budget) for trace in longest)
    n_updates = min(n_updates, *(trace.n_updates for trace in longest))
    runs = [trace_of(choice, site, seed, n_updates) for seed in seeds]
    plans = simulation.plan_alike(runs, record_every=max(1, n_updates // settings.records))
    losses, _ = replayed(settings, task, choice, site, (settings.seed, settings.seed))
    every = [losses(plan, seed, settings.step_sizes) for seed, plan in enumerate(plans)]
    times = np.array([replays.recorded(plan) for plan in plans])
    times = np.where(times <= site.budget, times, np.nan)
    finals = np.array([settled(*pair, site.budget) for pair in zip(times, every, strict=True)])
    tuning, shown = slice(settings.tuning_seeds), slice(settings.tuning_seeds, None)
    best, at_edge = results.best_on_grid(finals[tuning].T)
    target = target or settings.slack * float(np.median(finals[tuning, best]))
    loss = np.where(np.isnan(times), np.nan, np.stack(every)[:, best])
    to_target = reached(times[shown], loss[shown], target)
    columns = {
        "scene": task,
        "set": "A",
        "instance": range(settings.seeds),
        "method": choice.name,
        "step": settings.step_sizes[best],
        "awaited": awaited(choice, site),
        "scheduler": choice.scheduler,
        "to_target": to_target,
        "held": [site.held(time) for time in to_target],
        "final": finals[shown, best],
        **pd.DataFrame([_counted(trace, site.budget) for trace in runs[shown]]),
        "budget": site.budget,
        "gpu_slots": site.held(site.budget),
        "trials": len(settings.step_sizes),
        "at_edge": at_edge,
    }
    return pd.DataFrame(columns), target


def reached(time: np.ndarray, loss: np.ndarray, target: float) -> np.ndarray:
    """Slots until the mean loss of a tenth of the records stays at the target, float64[S]; or inf.

    Args:
        time: float64[S, R], slots; NaN after the budget.
        loss: float64[S, R].
        target: The loss.
    """
    width = max(1, loss.shape[1] // 10)
    sums = np.cumsum(np.pad(loss, ((0, 0), (width, 0))), axis=1)
    mean = (sums[:, width:] - sums[:, :-width]) / width
    mean[:, : width - 1] = np.nan
    return np.asarray(results.time_to_target(time, mean, target, stays=True))


def settled(time: np.ndarray, loss: np.ndarray, budget: float) -> np.ndarray:
    """Mean loss over the last tenth of the budget, float64[G].

    The last record where none lies there.
    """
    late = time > 0.9 * budget  # NaN, after the budget, is not
    if not late.any():
        late = np.arange(len(time)) == np.flatnonzero(~np.isnan(time))[-1]
    return loss[:, late].mean(-1)


def _counted(trace: traces.EventTrace, budget: float) -> dict[str, Any]:
    """Gradients and delays up to the budget."""
    within = np.asarray(trace.time) <= budget
    used, delay = within & np.asarray(trace.used), np.asarray(trace.delay)[within]
    cancelled = 0 if trace.cancelled is None else int((trace.cancelled.time <= budget).sum())
    return {
        "used": int(used.sum()),
        "computed": int(within.sum()) + cancelled,
        "delay": float(delay.mean()),
        "longest": int(delay.max()),
    }
