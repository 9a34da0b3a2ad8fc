"""What the story measures: schedules, the two jobs that are trained, and how."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import cluster, problems, results, simulation, traces
from experiments.common.replays import losses_of, recorded, with_step
from experiments.story.choices import (
    Choice,
    Site,
    awaited,
    trace_of,
    updates_within,
)

SCHEDULERS = {
    "PD-ORS": cluster.pd_ors,
    "DRF": cluster.drf,
    "goodput": cluster.marginal_goodput,
}
TRAINED = ("network", "logistic regression")  # by the larger and the smaller job


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
    shape: float = (
        4.0  # of the gamma law of a gradient's time, its mean as scheduled; 0: always the mean
    )
    batch: int = 5  # rows of a gradient
    hidden: int = 16  # units of the network
    l2: float = 0.01  # of the logistic regression
    rows: int = 0  # of the data that are used; 0: all
    seeds: int = 5  # reported
    tuning_seeds: int = 3  # only to choose the step size
    records: int = 50  # points of a curve
    slack: float = 2.0  # target: so many times the loss at which all plain ends (tuning seeds)
    trained: tuple[str, ...] = TRAINED
    choices: tuple[str, ...] = ()  # besides the full set and all plain; none: all
    commit: bool = False  # also write the numbers where committed ones are
    step_sizes: tuple[float, ...] = field(
        default_factory=lambda: tuple(2.0**power for power in range(-9, 1))
    )


@dataclass(frozen=True)
class Task:
    """What a scheduled job trains."""

    name: str
    label: str  # of the curves
    job: int
    make: Any  # (n_workers, batch) -> Problem
    floor: Any  # Problem -> the least loss there is, subtracted from the curves


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one choice did for one job; S reported seeds, R records."""

    choice: Choice
    site: Site
    step_size: float
    at_edge: bool  # the step is an end of the grid
    tuned: float  # final loss at that step, median over the tuning seeds
    awaited: int  # gradients in a step
    time: np.ndarray  # float64[S, R], slots after arrival, up to the budget; NaN after it
    loss: np.ndarray  # float64[S, R], less the least loss
    final: np.ndarray  # float64[S], mean over the last tenth of the budget
    used: np.ndarray  # int64[S], gradients within the budget
    computed: np.ndarray  # int64[S], the same and those that were cancelled
    delay: np.ndarray  # float64[S], mean, in updates
    longest: np.ndarray  # int64[S], in updates

    def reached(self, target: float) -> np.ndarray:
        """Slots until a tenth of the records has the target as mean loss, float64[S]; or inf."""
        width = max(1, self.loss.shape[1] // 10)
        sums = np.cumsum(np.pad(self.loss, ((0, 0), (width, 0))), axis=1)
        mean = (sums[:, width:] - sums[:, :-width]) / width
        mean[:, : width - 1] = np.nan
        return np.asarray(results.time_to_target(self.time, mean, target))


def scheduled(
    settings: Settings,
) -> tuple[cluster.Jobs, cluster.Machines, dict[str, cluster.Schedule]]:
    """Lets every scheduler play the same workload.

    Raises:
        RuntimeError: A schedule breaks a rule.
    """
    jobs, machines = cluster.workloads.balanced(
        settings.seed, n_jobs=settings.jobs, n_slots=settings.n_slots, n_machines=settings.machines
    )
    made = {
        name: rule(jobs, machines, n_slots=settings.n_slots) for name, rule in SCHEDULERS.items()
    }
    for name, schedule in made.items():
        wrong = cluster.check(schedule, jobs, machines)
        if wrong:
            raise RuntimeError(f"{name}: {wrong[0]}")
    return jobs, machines, made


def chosen_jobs(
    settings: Settings, jobs: cluster.Jobs, made: Mapping[str, cluster.Schedule]
) -> list[int]:
    """The two largest jobs on GPUs that all complete, with 4 to `most_workers` workers at most.

    Returns:
        Two jobs, the larger one first; large in worker-slots inside a machine.

    Raises:
        ValueError: There are no two.
    """
    done = np.all([cluster.completion(schedule, jobs) >= 0 for schedule in made.values()], axis=0)
    crews = np.array([np.asarray(schedule.workers).sum(-1).max(-1) for schedule in made.values()])
    fit = (crews.min(0) >= 4) & (crews.max(0) <= settings.most_workers)
    work = jobs.samples * cluster.sample_times(jobs).inside
    work = np.where(done & fit & (jobs.worker[:, 0] > 0), work, -1.0)
    if (work > 0).sum() < 2:
        raise ValueError(
            "seed must give two jobs that all schedulers complete with 4 to"
            f" {settings.most_workers} workers, got {settings.seed}, which gives"
            f" {int((work > 0).sum())}"
        )
    return [int(job) for job in np.argsort(-work, kind="stable")[:2]]


def tasks(
    settings: Settings,
    jobs: tuple[int, ...] | list[int],
    seeds: tuple[int, int] | None = None,
) -> list[Task]:
    """A network for the larger job, logistic regression for the other; those in `trained`.

    Args:
        settings: What is run.
        jobs: The larger one first.
        seeds: Of the shards, and of the first network; None: that of the workload for both.
    """
    shards, first = (settings.seed, settings.seed) if seeds is None else seeds
    data = problems.digits()
    last = settings.rows or len(data.train_labels)
    features, labels = data.train_features[:last], np.asarray(data.train_labels)[:last]
    columns = np.column_stack([features, np.ones(len(features), np.float32)])

    def network(n_workers: int, batch: problems.Batch) -> problems.Problem:
        return problems.classification(
            problems.MLP(hidden=(settings.hidden,), classes=10),
            features,
            labels,
            n_workers=n_workers,
            shards=dealt(labels, n_workers, shards),
            batch=batch,
            key=jax.random.key(first),
        )

    def logistic(n_workers: int, batch: problems.Batch) -> problems.Problem:
        return problems.logistic(
            columns,
            labels >= 5,
            n_workers=n_workers,
            l2=settings.l2,
            shards=dealt(labels, n_workers, shards),
            batch=batch,
        )

    every = [
        Task("network", "training loss", jobs[0], network, lambda problem: 0.0),
        Task("logistic regression", "loss above its minimum", jobs[1], logistic, least_loss),
    ]
    return [task for task in every if task.name in settings.trained]


def dealt(labels: np.ndarray, n_workers: int, seed: int) -> problems.Shards:
    """Rows sorted by label, cut into equal shards, dealt to the workers at random.

    Each sees one or two labels.
    """
    shards = problems.by_label(labels, n_workers)
    places = np.random.default_rng(seed).permutation(n_workers)
    return problems.Shards(*(np.asarray(leaf)[places] for leaf in shards))


def least_loss(problem: problems.Problem) -> float:
    """The minimum of a convex objective of few numbers, by Newton's method."""
    objective: Any = problem.objective

    def newton(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return x - jnp.linalg.solve(jax.hessian(objective)(x), jax.grad(objective)(x)), None

    x, _ = jax.lax.scan(newton, jnp.asarray(problem.params), length=12)
    return float(objective(x))


def trained(settings: Settings, task: Task, choice: Choice, site: Site) -> Outcome:
    """Trains a job in one way: all seeds, all step sizes; the best step by the tuning seeds.

    Returns:
        What came out; its curves end with the budget.

    Raises:
        ValueError: No step of the grid gives a finite loss.
    """
    seeds = range(settings.tuning_seeds + settings.seeds)
    longest = [trace_of(choice, site, seed) for seed in seeds]
    n_updates = max(updates_within(trace, site.budget) for trace in longest)
    n_updates = min(n_updates, *(trace.n_updates for trace in longest))
    made = [trace_of(choice, site, seed, n_updates) for seed in seeds]
    plans = simulation.plan_alike(made, record_every=max(1, n_updates // settings.records))
    curves = _curves(settings, task, choice, site, plans)  # [seeds, G, R]
    times = np.array([recorded(plan) for plan in plans])
    times = np.where(times <= site.budget, times, np.nan)
    finals = np.array([settled(*pair, site.budget) for pair in zip(times, curves, strict=True)])
    best = results.best_on_grid(finals[: settings.tuning_seeds].T)
    mine = slice(settings.tuning_seeds, None)
    counted = [_counted(trace, site.budget) for trace in made[mine]]
    return Outcome(
        choice=choice,
        site=site,
        step_size=settings.step_sizes[best],
        at_edge=results.at_grid_edge(best, len(settings.step_sizes)),
        tuned=float(np.median(finals[: settings.tuning_seeds, best])),
        awaited=awaited(choice, site),
        time=times[mine],
        loss=np.where(np.isnan(times[mine]), np.nan, curves[mine, best]),
        final=finals[mine, best],
        used=np.array([own["used"] for own in counted]),
        computed=np.array([own["computed"] for own in counted]),
        delay=np.array([own["delay"] for own in counted]),
        longest=np.array([own["longest"] for own in counted]),
    )


def _curves(
    settings: Settings, task: Task, choice: Choice, site: Site, plans: list[simulation.ReplayPlan]
) -> np.ndarray:
    """Losses at all records, less the least loss, float64[seeds, G, R]."""
    losses, _ = replayed(settings, task, choice, site)
    return np.stack([losses(plan, seed, settings.step_sizes) for seed, plan in enumerate(plans)])


def replayed(
    settings: Settings, task: Task, choice: Choice, site: Site
) -> tuple[Callable[[simulation.ReplayPlan, int, Sequence[float]], np.ndarray], float]:
    """How a choice trains a job: (plan, seed, step sizes) -> losses, and the first model's loss.

    Losses are float64[G, R], at the records of the plan, less the least loss.
    """
    batch = problems.uniform if choice.order is None else problems.cyclic
    problem = task.make(site.n_workers, batch(settings.batch))
    order = None
    if choice.order is not None:
        counts = [-(-int(size) // settings.batch) for size in np.asarray(problem.data.size)]
        dim = sum(leaf.size for leaf in jax.tree.leaves(problem.params))
        order = choice.order(counts, dim)
    optimizer = with_step(choice.step(site.n_workers))
    floor, objective = task.floor(problem), problem.objective
    assert objective is not None

    def losses(plan: simulation.ReplayPlan, seed: int, steps: Sequence[float]) -> np.ndarray:
        key = jax.random.key(seed)
        return losses_of(problem, plan, optimizer, steps, order=order, key=key) - floor

    return losses, float(objective(problem.params)) - floor


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
