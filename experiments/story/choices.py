"""What can be chosen where a scheduled job is trained.

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
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import optax

from asyncjax import clocks, cluster, orders, steps, stragglers, traces
from experiments.common.replays import shuffled_over

PAPERS = (
    "Wu, Magnússon, Feyzmahdavian, Johansson, Delay-adaptive step-sizes, 2022 (arXiv 2202.08550).",
    "Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452).",
    "Cooper et al., Coordinating distributed example orders, 2023 (arXiv 2302.00845).",
    "Egger, Kas Hanna, Bitar, Straggler-tolerant distributed SGD, 2023 (arXiv 2304.08589).",
    "Yu, Liu, Wu, Ji, Bentley, An efficient learning framework, 2021 (arXiv 2108.02917).",
)


@dataclass(frozen=True, eq=False)
class Site:
    """A job on its schedule; slots count from the slot of its arrival.

    On its clock the slot in which the job completes never ends, so that traces of all seeds can be
    equally long; what comes after the budget is not counted.
    """

    scheduler: str
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


def site_of(
    scheduler: str,
    schedule: cluster.Schedule,
    jobs: cluster.Jobs,
    job: int,
    *,
    gradients: int,
    shape: float,
) -> Site:
    """Makes the site of a job that its schedule completes.

    Args:
        scheduler: Who made the schedule.
        schedule: The schedule.
        jobs: Its jobs.
        job: Which of them.
        gradients: Into so many gradients the job's samples are divided.
        shape: Of the gamma law of a gradient's time, whose mean the schedule gives; 0: always the
            mean.

    Raises:
        ValueError: The schedule does not complete the job.
    """
    end = int(cluster.completion(schedule, jobs)[job])
    if end < 0:
        raise ValueError(f"job must be one that {scheduler} completes, got {job}")
    samples = float(jobs.samples[job])
    clock = cluster.clock_of(schedule, jobs, job, samples=samples / gradients)
    (power,) = clock.powers
    law = clocks.gamma(shape, clock.mean) if shape > 0 else replace(clock, powers=())
    until_done = replace(power, rates=power.rates[:, : end + 1 - int(jobs.arrival[job])])
    slots = slice(int(jobs.arrival[job]), end + 1)
    crews = np.asarray(schedule.workers)[job].sum(-1)[slots].astype(np.int64)
    trained = cluster.samples_trained(schedule.workers, schedule.servers, jobs)[job][slots]
    missing = (samples - trained[:-1].sum()) / trained[-1]
    return Site(
        scheduler,
        replace(law, powers=(until_done,)),
        crews,
        trained / np.maximum(crews, 1) * gradients / samples,
        len(crews) - 1 + min(float(missing), 1.0),
        float(jobs.worker[job, 0]),
        shape,
    )


def to_deliverer(site: Site, seed: int) -> traces.Dispatch:
    """Pure arrival dispatch."""
    del site, seed
    return traces.to_deliverer()


def shuffled(site: Site, seed: int) -> traces.Dispatch:
    """Shuffled dispatch as published: absent workers are asked too."""
    del site, seed
    return traces.shuffled()


@lru_cache(maxsize=64)
def crew_shuffled(site: Site, seed: int) -> traces.Dispatch:
    """Shuffled dispatch over the workers that the schedule gives in the present slot.

    Args:
        site: The job on its schedule.
        seed: Of the permutations, and of the durations that decide how many jobs a slot sees.
    """

    def arrivals(rule: traces.Dispatch, end: int) -> traces.EventTrace:
        expected = int(1.2 * float(site.crews[:end] @ site.pace[:end])) + 2 * site.n_workers
        return _arrivals(site, rule, min(expected, site.limit), jax.random.key(seed))

    crews = [np.arange(crew) for crew in site.crews]
    return shuffled_over(crews, seed, site.limit + site.n_workers, arrivals)


def _arrivals(
    site: Site,
    dispatch: traces.Dispatch,
    n_updates: int,
    key: jax.Array,
    collect: traces.Collection | None = None,
) -> traces.EventTrace:
    """An asynchronous trace, or the part of it that the clock allows."""
    return _until_stalled(
        lambda: traces.asynchronous(
            site.clock, n_updates=n_updates, dispatch=dispatch, collect=collect, key=key
        )
    )


def constant(n_workers: int) -> Callable[[Any], optax.GradientTransformation]:
    """The same step for all gradients."""
    del n_workers
    return lambda step_size: optax.sgd(step_size)


def concurrency(n_workers: int) -> Callable[[Any], optax.GradientTransformation]:
    """The step times n / max(n, delay).

    Only gradients later than usual are made shorter (Mishchenko et al. 2022).
    """
    return lambda step_size: optax.chain(
        steps.scale_by_staleness("concurrency", n_workers=n_workers), optax.sgd(step_size)
    )


def adaptive_2(n_workers: int) -> Callable[[Any], optax.GradientTransformation]:
    """Adaptive 2 (Wu et al. 2022); the step size is its bound gamma'."""
    del n_workers
    return lambda step_size: optax.chain(steps.scale_by_adaptive_2(step_size), optax.scale(-1.0))


def rescaled(n_workers: int) -> Callable[[Any], optax.GradientTransformation]:
    """The step times a worker's measured time over the mean, so that all are heard alike."""
    return lambda step_size: optax.chain(
        steps.scale_by_measured_time(n_workers), optax.sgd(step_size)
    )


def coordinated(counts: Sequence[int], dim: int) -> orders.Order:
    """One balance for all workers (CD-GraB)."""
    return orders.coordinated(len(counts), counts, dim)


def independent(counts: Sequence[int], dim: int) -> orders.Order:
    """A balance for every worker."""
    return orders.independent(len(counts), counts, dim)


def reshuffled(counts: Sequence[int], dim: int) -> orders.Order:
    """A new random order in every epoch of a worker."""
    del dim
    return orders.reshuffled(counts, n_workers=len(counts))


@dataclass(frozen=True)
class Choice:
    """What is chosen at every place; the defaults are the full set."""

    name: str
    scheduler: str = "PD-ORS"
    dispatch: Callable[[Site, int], traces.Dispatch] | None = crew_shuffled  # None: synchronous
    step: Callable[[int], Callable[[Any], optax.GradientTransformation]] = concurrency
    order: Callable[[Sequence[int], int], orders.Order] | None = coordinated  # None: drawn rows
    awaited: int | None = 1  # gradients in a step; None: `planned_k`
    table: bool = False  # whether each step is along the mean of every worker's last gradient


PLAIN = Choice("all plain", dispatch=to_deliverer, step=constant, order=None)
# All together but for what harms in pairs: shuffled dispatch with steps that look at delays, and
# one balance for workers that are out of step.
FITTING = Choice("fitting set", dispatch=to_deliverer, step=rescaled, order=independent)
TABLE = replace(PLAIN, name="all plain, a table", table=True)

CHOICES = (
    Choice("full set"),
    FITTING,
    Choice("dispatch: pure", dispatch=to_deliverer),
    Choice("dispatch: shuffled as published", dispatch=shuffled),
    Choice("steps: constant", step=constant),
    Choice("steps: Adaptive 2", step=adaptive_2),
    Choice("examples: each worker alone", order=independent),
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
    for crew in np.unique(site.crews[site.crews > 0]):
        k = np.arange(1, crew + 1)
        slots = float(site.pace[site.crews == crew].sum())
        used[:crew] += slots * k / _completion(site.shape, int(crew))
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
    k, key = awaited(choice, site), jax.random.key(seed)
    count = -(-site.limit // k) if n_updates is None else n_updates
    if choice.dispatch is None:
        return _until_stalled(lambda: traces.synchronous(site.clock, k=k, n_updates=count, key=key))
    rule = choice.dispatch(site, seed)
    if choice.table:
        collect = traces.table()
    else:
        collect = traces.immediately() if k == 1 else traces.buffered(k)
    return _arrivals(site, rule, count, key, collect)


def updates_within(trace: traces.EventTrace, budget: float) -> int:
    """Updates that a trace makes up to a time."""
    return int((np.asarray(trace.steps) & (np.asarray(trace.time) <= budget)).sum())


def _completion(shape: float, crew: int) -> np.ndarray:
    """The expected time of the k fastest of a crew, k = 1 .. crew, in mean times."""
    if shape == 0:
        return np.ones(crew)
    times = stragglers.response(compute=clocks.gamma(shape, 1.0), n_workers=crew)
    return np.asarray(stragglers.expected_completion(times, np.arange(1, crew + 1)))


def _until_stalled(make: Callable[[], traces.EventTrace]) -> traces.EventTrace:
    """A trace, or the part of it that the clock allows."""
    try:
        return make()
    except traces.StalledError as stalled:
        if stalled.trace is None:
            raise
        return stalled.trace
